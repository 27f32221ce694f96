/* Row tags: what proves that bytes from disk are this row and no other.
 *
 *   base = XXH3-64(namespace digest[16] | piece hash[16] | copy u64 | layer u32 | part u32, seed 0)
 *   seed = mix(base + position * 0x9E3779B97F4A7C15)         mix: the splitmix64 finaliser
 *   tag  = XXH3-64(row bytes, seed)                           integers little-endian
 *
 * part: 0 a paired row (K then V), 1 a K row, 2 a V row, 3 a probe row, 4 and 5 a block of codes of
 * K and V (store/rows/quant_blocks.h; its first row counts); 6 is of versions before 0.3. position
 * is the row's logical position in the prompt. copy is the number of the extent, or of the derived
 * section, in which the bytes stand: another each time that anything is stored
 * (store/log/copy_number.c). docs/reference/store-format.md is the specification; frozen vectors
 * stand in the test.
 *
 * Holds: a row that moved (other position, layer, piece, namespace, part) or is of another copy of
 * the same tokens fails like a flipped bit does.
 * Does not: allocate, keep state, know where rows lie.
 * Threads: any.
 * Tests: tests/unit/store/test_tag.c */
#ifndef SC_STORE_ROWS_TAG_H
#define SC_STORE_ROWS_TAG_H

#include <stdint.h>

enum sc_store_tag_part {
    SC_STORE_PART_ROW = 0,
    SC_STORE_PART_K = 1,
    SC_STORE_PART_V = 2,
    SC_STORE_PART_PROBE = 3,
    SC_STORE_PART_K_QUANT = 4,
    SC_STORE_PART_V_QUANT = 5
};

/* The part of a seed that all rows of a piece in one layer share. */
uint64_t sc_store_tag_base(const uint8_t digest[16], const uint8_t piece_hash[16], uint64_t copy,
                           uint32_t layer, uint32_t part);

/* Rows one behind the other, of row_bytes each: row i has position position_first + i, and its tag
 * stands at tags[i * tag_step]. */
struct sc_store_tag_rows {
    uint64_t base, position_first, row_bytes, count, tag_step;
};
/* Where rows' bytes are apart: row i's [j * bytes, (j + 1) * bytes) at at[i * step + j]. A row is a
 * multiple of `bytes`. */
struct sc_store_tag_spans {
    uint8_t *const *at;
    uint64_t bytes, step;
};

void sc_store_tag_make(const struct sc_store_tag_rows *what, const uint8_t *rows,
                       uint64_t *ret_tags);
/* Index of the first row whose tag differs; count when all agree. */
uint64_t sc_store_tag_verify(const struct sc_store_tag_rows *what, const uint8_t *rows,
                             const uint64_t *tags);
/* Verifies rows on their way to where they belong, past the caches (base/nt_copy.h): once through
 * memory, not twice. Of a row that nobody wants, all spans are NULL: it is only verified. The
 * places of the first row that differs and of those after it may have some of their bytes. Who sees
 * what this thread writes next sees what was moved, too. */
uint64_t sc_store_tag_move(const struct sc_store_tag_rows *what, const uint8_t *rows,
                           const uint64_t *tags, const struct sc_store_tag_spans *to);
/* Makes rows out of their spans, none of which is NULL, and their tags on the way; else as move. */
void sc_store_tag_gather(const struct sc_store_tag_rows *what,
                         const struct sc_store_tag_spans *from, uint8_t *ret_rows,
                         uint64_t *ret_tags);

/* The same by one instruction set each; i = 0 (baseline), 1, ... until NULL: what this machine has.
 * The functions above use the best. */
struct sc_store_tag_rung {
    void (*make)(const struct sc_store_tag_rows *what, const uint8_t *rows, uint64_t *ret_tags);
    uint64_t (*verify)(const struct sc_store_tag_rows *what, const uint8_t *rows,
                       const uint64_t *tags);
    uint64_t (*move)(const struct sc_store_tag_rows *what, const uint8_t *rows,
                     const uint64_t *tags, const struct sc_store_tag_spans *to);
    void (*gather)(const struct sc_store_tag_rows *what, const struct sc_store_tag_spans *from,
                   uint8_t *ret_rows, uint64_t *ret_tags);
    uint64_t (*hash)(const void *bytes, uint64_t count, uint64_t seed);
};
extern const struct sc_store_tag_rung sc_store_tag_base_rung, sc_store_tag_avx2,
    sc_store_tag_avx512;
const struct sc_store_tag_rung *sc_store_tag_rung_at(uint32_t i);

/* The log's checksums: XXH3-64 with a seed. */
uint64_t sc_store_checksum(const void *bytes, uint64_t count, uint64_t seed);

#endif
