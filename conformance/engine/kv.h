/* kv: the key/value cache of one sequence: per layer, rows of K and rows of V, packed.
 *
 *   layer 0  K [capacity][kv_heads][head_dim]   V [capacity][kv_heads][head_dim]
 *   layer 1  K ...                              V ...
 *            |<- rows[layer] filled ->|<- free ->|
 *
 *   with a gap: [chosen prefix rows][gap: room for the others][new rows ...][free]
 *                  0    gap_first[layer] ^    gap_end[layer] ^
 *
 * K is stored after rope. Rows of a layer need not have consecutive positions, or the same
 * positions in every layer or head: a connector may supply different important rows of a prefix to
 * each pass. The gap keeps their place, so that new rows do not move. Attention reads rows in their
 * order here, without the gap.
 *
 * Invariants: gap_first <= gap_end <= rows[layer] <= capacity; all layers have the same dtype and
 * shape.
 * Threads: one at a time; forward's own threads read filled rows.
 * Tests: tests/unit/engine/test_model.c */
#ifndef CONFORMANCE_ENGINE_KV_H
#define CONFORMANCE_ENGINE_KV_H

#include <stdint.h>

#include "conformance/engine/config.h"
#include "conformance/engine/error.h"
#include "conformance/engine/halffloat.h"

struct eng_kv {
    enum eng_dtype dtype;
    uint64_t layers, kv_heads, head_dim, capacity;
    uint64_t row_elems;            /* kv_heads x head_dim: one token's K, or V, of one layer */
    uint64_t row_bytes;            /* of K alone */
    uint64_t *rows;                /* [layers] filled, the gap counted */
    uint64_t *gap_first, *gap_end; /* [layers] equal: no gap */
    uint8_t *base;                 /* all layers; made by init */
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

/* Of the layer's first `capacity` rows, which are a prefix, the first `count` are attended from now
 * on; rows behind them stay. count <= capacity, and no other prefix was set before. */
void eng_kv_set_prefix(struct eng_kv *kv, uint64_t layer, uint64_t capacity, uint64_t count);

/* Keeps the first `rows` rows of every layer, the gap counted; of a gap that is cut, nothing. */
void eng_kv_truncate(struct eng_kv *kv, uint64_t rows);

/* Makes `to` hold the first `rows` rows of every layer of `from`, byte for byte; shapes and dtypes
 * are equal, `to` has room, and `from` has no gap. */
void eng_kv_copy(struct eng_kv *to, const struct eng_kv *from, uint64_t rows);

#endif
