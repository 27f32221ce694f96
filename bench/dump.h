/* dump: ranks of a prefix's rows for a question, in every head of a real model.
 *
 *   head     struct bench_dump_head
 *   entries  struct bench_dump_entry [entry_count], of one prefix each
 *   ranks    [entry][question][layer][list][token], a byte: 255 is the best 256th of the rows, 0
 *            the last one, so a quarter of the rows are those from 192 on
 *
 * Lists of a layer: [kv_heads] of KV heads, whose importance is summed over the query heads of
 * their group; then [heads] of single query heads. List kv_heads + i is of KV head i % kv_heads.
 *
 * bench-similarity --dump FILE writes one; bench-impress plants it. Numbers are little-endian.
 * Threads: one. Tests: tests/unit/bench/test_dump.c */
#ifndef BENCH_DUMP_H
#define BENCH_DUMP_H

#include <stdint.h>
#include <stdio.h>

#define BENCH_DUMP_MAGIC "scdump1"

struct bench_dump_head {
    char magic[8];
    char source[232]; /* the model's directory and the eval file, by name; ended by NUL */
    uint32_t layers, heads, kv_heads, entry_count;
};

struct bench_dump_entry {
    char id[56]; /* ended by NUL */
    uint32_t tokens, questions;
};

struct bench_dump {
    struct bench_dump_head head;
    struct bench_dump_entry *entries;
    uint8_t *ranks;
};

/* Ends the program where the file is none, or is cut. */
void bench_dump_read(struct bench_dump *ret_dump, const char *path);
void bench_dump_done(struct bench_dump *dump);
/* [tokens] of the entry. Question and list are inside what the head and the entry say. */
const uint8_t *bench_dump_ranks(const struct bench_dump *dump, uint64_t entry, uint64_t question,
                                uint64_t layer, uint64_t list);

/* Head and entries, which are told before any ranks are. */
void bench_dump_begin(FILE *file, const struct bench_dump_head *head,
                      const struct bench_dump_entry *entries);
/* The next list: order[i] is the row that matters i-th. scratch: [tokens]. */
void bench_dump_put(FILE *file, const uint32_t *order, uint64_t tokens, uint8_t *scratch);

#endif
