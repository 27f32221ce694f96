/* tag: row tags: prove that bytes from disk are this row and no other.
 *
 *   base = XXH3-64(namespace digest[16] | piece hash[16] | copy u64 | layer u32 | part u32, seed 0)
 *   seed = mix(base + position * 0x9E3779B97F4A7C15)         mix: the splitmix64 finaliser
 *   tag  = XXH3-64(row bytes, seed)                           integers little-endian
 *
 * part: enum sc_store_tag_part; K_QUANT and V_QUANT tag whole blocks (store/rows/quant_blocks.h) at
 * their first row; 6 was used before 0.3. position: the row's position in the prompt. copy: unique
 * per extent or derived section (store/log/copy_number.c). Specification:
 * docs/reference/store-format.md; frozen vectors are in the test.
 *
 * Invariants: a row of another position, layer, piece, namespace, part or copy fails like a flipped
 * bit.
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

/* Returns the part of a seed that a piece's rows share in one layer. */
uint64_t sc_store_tag_base(const uint8_t digest[16], const uint8_t piece_hash[16], uint64_t copy,
                           uint32_t layer, uint32_t part);

/* Consecutive rows: row i has position position_first + i and tag tags[i * tag_step]. */
struct sc_store_tag_rows {
    uint64_t base, position_first, row_bytes, count, tag_step;
};
/* Rows in spans: bytes [j * bytes, (j + 1) * bytes) of row i are at[i * step + j]. */
struct sc_store_tag_spans {
    uint8_t *const *at;
    uint64_t bytes, step;
};

void sc_store_tag_make(const struct sc_store_tag_rows *what, const uint8_t *rows,
                       uint64_t *ret_tags);
/* Returns the index of the first row whose tag differs; count: none. */
uint64_t sc_store_tag_verify(const struct sc_store_tag_rows *what, const uint8_t *rows,
                             const uint64_t *tags);
/* Verifies rows while copying them with non-temporal stores (base/nt_copy.h), in one pass over
 * memory. A row with NULL spans is only verified. The first bad row and later ones may be partly
 * copied. The copies are ordered before this thread's next stores. */
uint64_t sc_store_tag_move(const struct sc_store_tag_rows *what, const uint8_t *rows,
                           const uint64_t *tags, const struct sc_store_tag_spans *to);
/* Copies rows out of their spans (none NULL) and computes tags on the way. */
void sc_store_tag_gather(const struct sc_store_tag_rows *what,
                         const struct sc_store_tag_spans *from, uint8_t *ret_rows,
                         uint64_t *ret_tags);

/* One table per instruction set: i = 0 (baseline), 1, ... until NULL. The last is used above. */
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

/* The log's checksum: XXH3-64 with a seed. */
uint64_t sc_store_checksum(const void *bytes, uint64_t count, uint64_t seed);

#endif
