/* dump: reads and writes dumps. See dump.h. */
#include "bench/dump.h"

#include "bench/bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t lists_of(const struct bench_dump *dump)
{
    return dump->head.kv_heads + dump->head.heads;
}

static uint64_t bytes_of(const struct bench_dump *dump, uint64_t entry)
{
    const struct bench_dump_entry *of = &dump->entries[entry];
    return (uint64_t)of->tokens * of->questions * dump->head.layers * lists_of(dump);
}

static void read_all(FILE *file, const char *path, void *ret_bytes, uint64_t count)
{
    if (fread(ret_bytes, 1, count, file) != count)
        bench_die("%s: no whole dump: make it anew", path);
}

static void *memory_of(uint64_t count, uint64_t bytes)
{
    void *memory = calloc(count, bytes);
    if (memory == NULL)
        bench_die("no memory for %" PRIu64 " x %" PRIu64 " bytes of a dump", count, bytes);
    return memory;
}

static void check_head(const struct bench_dump_head *head, const char *path)
{
    if (memcmp(head->magic, BENCH_DUMP_MAGIC, sizeof(head->magic)) != 0 ||
        memchr(head->source, '\0', sizeof(head->source)) == NULL)
        bench_die("%s is no dump of bench-similarity", path);
    if (head->layers == 0 || head->kv_heads == 0 || head->heads == 0 || head->entry_count == 0 ||
        head->layers > 1024 || head->kv_heads > 1024 || head->heads > 1024 ||
        head->entry_count > 65536)
        bench_die("%s: a count in its head is out of range", path);
}

void bench_dump_read(struct bench_dump *ret_dump, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        bench_die("%s cannot be opened", path);
    struct bench_dump dump = {0};
    read_all(file, path, &dump.head, sizeof(dump.head));
    check_head(&dump.head, path);
    dump.entries = memory_of(dump.head.entry_count, sizeof(*dump.entries));
    read_all(file, path, dump.entries, dump.head.entry_count * sizeof(*dump.entries));
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < dump.head.entry_count; i++) {
        const struct bench_dump_entry *entry = &dump.entries[i];
        if (entry->tokens == 0 || entry->tokens > 1u << 20 || entry->questions == 0 ||
            entry->questions > 1024 || memchr(entry->id, '\0', sizeof(entry->id)) == NULL)
            bench_die("%s: entry %" PRIu64 " is out of range", path, i);
        bytes += bytes_of(&dump, i);
    }
    dump.ranks = memory_of(bytes, 1);
    read_all(file, path, dump.ranks, bytes);
    if (fgetc(file) != EOF)
        bench_die("%s has more than its head says: make it anew", path);
    (void)fclose(file);
    *ret_dump = dump;
}

void bench_dump_done(struct bench_dump *dump)
{
    free(dump->entries);
    free(dump->ranks);
}

const uint8_t *bench_dump_ranks(const struct bench_dump *dump, uint64_t entry, uint64_t question,
                                uint64_t layer, uint64_t list)
{
    const uint8_t *ranks = dump->ranks;
    for (uint64_t i = 0; i < entry; i++)
        ranks += bytes_of(dump, i);
    uint64_t number = (question * dump->head.layers + layer) * lists_of(dump) + list;
    return ranks + number * dump->entries[entry].tokens;
}

static void write_all(FILE *file, const void *bytes, uint64_t count)
{
    if (fwrite(bytes, 1, count, file) != count)
        bench_die("the dump cannot be written");
}

void bench_dump_begin(FILE *file, const struct bench_dump_head *head,
                      const struct bench_dump_entry *entries)
{
    write_all(file, head, sizeof(*head));
    write_all(file, entries, head->entry_count * sizeof(*entries));
}

void bench_dump_put(FILE *file, const uint32_t *order, uint64_t tokens, uint8_t *scratch)
{
    for (uint64_t i = 0; i < tokens; i++)
        scratch[order[i]] = (uint8_t)(255 - i * 256 / tokens);
    write_all(file, scratch, tokens);
}
