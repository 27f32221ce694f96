/* The key/value cache of one sequence: per layer, rows of K and rows of V, packed.
 *
 *   layer 0  K [capacity][kv_heads][head_dim]   V [capacity][kv_heads][head_dim]
 *   layer 1  K ...                              V ...
 *            |<- rows[layer] filled ->|<- free ->|
 *
 * K is held after the rotary turn. Rows of a layer need not stand for consecutive positions, nor
 * for the same positions in every layer or every head: a connector may supply the important rows
 * of a prefix only. Attention reads them in the order in which they stand here.
 *
 * Holds: rows[layer] <= capacity; all layers have the same dtype and shape.
 * Does not: know positions; grow.
 * Threads: one at a time; forward's own threads read filled rows.
 * Tests: tests/unit/engine/test_model.c
 */
#ifndef ENG_KV_H
#define ENG_KV_H

#include <stdint.h>

#include "conformance/engine/config.h"
#include "conformance/engine/error.h"
#include "conformance/engine/halffloat.h"

struct eng_kv {
    enum eng_dtype dtype;
    uint64_t layers, kv_heads, head_dim, capacity;
    uint64_t row_elems; /* kv_heads x head_dim: one token's K, or V, of one layer */
    uint64_t row_bytes; /* of K alone */
    uint64_t *rows;     /* [layers] filled */
    uint8_t *base;      /* all layers; made by init */
    uint64_t base_bytes;
};

eng_status eng_kv_init(struct eng_kv *kv, const struct eng_config *config, enum eng_dtype dtype,
                       uint64_t capacity, struct eng_error *reterr);
void eng_kv_done(struct eng_kv *kv);

/* Writes zero into every page, so that the first use pays for none (page faults are not what a
 * time to first token shall measure). The cache must be empty. */
void eng_kv_touch(struct eng_kv *kv);

/* First byte of row `row` of a layer. */
uint8_t *eng_kv_k(const struct eng_kv *kv, uint64_t layer, uint64_t row);
uint8_t *eng_kv_v(const struct eng_kv *kv, uint64_t layer, uint64_t row);

/* Keeps the first `rows` rows of every layer. */
void eng_kv_truncate(struct eng_kv *kv, uint64_t rows);

/* Makes `to` hold the first `rows` rows of every layer of `from`, byte for byte; shapes and dtypes
 * are equal and `to` has room. */
void eng_kv_copy(struct eng_kv *to, const struct eng_kv *from, uint64_t rows);

#endif
