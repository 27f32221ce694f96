/* attention: causal attention over a KV cache, for one layer of one or many requests' passes.
 *
 * Row i of a pass attends cache rows in ascending order: the prefix, other earlier rows, then the
 * pass's rows up to itself, whose K and V the caller has already stored.
 *
 *   cache rows   0 ... prefix_count - 1   gap   seen_first ...   gap   new_first ... new_first + i
 *   rank         0 ... prefix_count - 1         prefix_count ...      prefix_count + seen_count + i
 *
 * For one query head, with r the rank:
 *   s_r  = fused chain over 0 .. head_dim-1, ascending, of (q * scale) * k_r
 *   p_r  = e^(s_r - max s) ;  z = sum of p_r in lanes r mod 16, folded as in vecmath.h
 *   out  = (sum over blocks of ENG_ATTENTION_BLOCK ranks, ascending, of the fused chain over the
 *          block's ranks, ascending, of p_r * v_r) / z
 *
 * Invariants: an output row's bits depend on its query and the list of K and V by rank only: not on
 * the prefix's end, other rows or requests, threads or the CPU level. (For a NaN only its being one
 * holds.) Unattended K and V never touch it, NaN or not.
 * Threads: see pool.h. Tests: tests/unit/engine/test_attention.c */
#ifndef CONFORMANCE_ENGINE_ATTENTION_H
#define CONFORMANCE_ENGINE_ATTENTION_H

#include <stdint.h>

#include "conformance/engine/error.h"
#include "conformance/engine/halffloat.h"
#include "conformance/engine/pool.h"

#define ENG_ATTENTION_BLOCK 128u /* ranks of one chain of the weighted sum of V */

struct eng_attention_shape {
    uint64_t q_heads, kv_heads; /* query head h reads KV head h / (q_heads / kv_heads) */
    uint64_t head_dim;
    float scale;
    enum eng_dtype kv_dtype;
};

struct eng_attention_pass {
    const float *q; /* [new_count][q_heads][head_dim], rows q_stride floats apart */
    const void *k;  /* [cache row][kv_heads][head_dim] of kv_dtype, rows k_stride values apart */
    const void *v;  /* the same with v_stride */
    float *out;     /* [new_count][q_heads][head_dim], rows out_stride floats apart */
    uint64_t q_stride, k_stride, v_stride, out_stride;
    uint64_t prefix_count; /* rows [0, prefix_count) of the cache, seen by every row of the pass */
    uint64_t seen_first;   /* >= prefix_count; behind a gap; not looked at where seen_count is 0 */
    uint64_t seen_count;   /* rows that every row of the pass sees after the prefix */
    uint64_t new_first;    /* >= the end of both: the cache row of the pass's row 0 */
    uint64_t new_count;    /* 0 is allowed */
};

/* Writes `out` of every pass. Errors: ENG_E_INVALID (heads that do not divide, a zero, spans that
 * overlap), ENG_E_NO_MEMORY (scores: about 4 bytes x longest list x query heads of a group). */
eng_status eng_attention(struct eng_pool *pool, const struct eng_attention_shape *shape,
                         const struct eng_attention_pass *passes, uint64_t pass_count,
                         struct eng_error *reterr);

#endif
