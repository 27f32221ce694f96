/* importance: selects rows: column-sum importance, exact top-k, sets and votes.
 *
 *   queries [row][head]     keys of one KV head: [R prefix][rows' own]
 *        \                   /
 *         softmax, row by row, over the prefix and the new keys up to the row
 *                  |
 *         column sums [R] float32 -> top-k -> ascending row indexes
 *
 * Invariants: a set follows from scores by a total order, the same on every rung: higher score,
 * then lower index; NaN is lowest, -0 equals 0. Sums are float32, added in an order that depends on
 * the arguments only. Rungs may differ in a sum's last bits (tested to 1e-5 of the largest), never
 * in a set made from equal scores. Nothing is allocated: the caller passes scratch.
 * Threads: any. Tests: tests/unit/kernels/test_importance.c, test_topk.c */
#ifndef SC_KERNELS_IMPORTANCE_H
#define SC_KERNELS_IMPORTANCE_H

#include "kernels/codec.h"

struct sc_kernels_slab {                   /* quantised K of consecutive keys */
    struct sc_kernels_quantised quantised; /* rows: the keys */
    uint64_t key_first;            /* ascending from 0; a slab ends where the next begins */
};

/* K of `count` tokens; heads from memory.k_base: all KV heads, or the first of them. */
struct sc_kernels_keys {
    struct sc_kernels_memory memory;     /* v_base is unused; no slot of the keys is negative */
    const struct sc_kernels_slab *slabs; /* not NULL: keys are their decoded float32 values */
    uint64_t slab_count;                 /* > 0 when count is */
    uint64_t channels;                   /* channels of the slabs: all KV heads */
    uint64_t count;
    uint32_t dtype; /* enum sc_kernels_dtype; with slabs: of the rows before quantisation */
};

struct sc_kernels_queries {
    const uint8_t *data; /* q[i][g] at i * row_stride_bytes + g * head_stride_bytes */
    uint64_t row_stride_bytes, head_stride_bytes, row_count;
    uint32_t dtype;
};

struct sc_kernels_importance {
    const struct sc_kernels *kernels;
    uint64_t head_size;
    uint64_t group; /* query heads per KV head: h * group .. + group - 1 */
    float scale;    /* usually 1 / sqrt(head_size) */
    struct sc_kernels_queries queries;
    struct sc_kernels_keys prefix; /* the rows to score */
    /* count 0: only the prefix. Else >= row_count: row i sees fresh keys 0 .. count - row_count +
     * i. */
    struct sc_kernels_keys fresh;
    bool last_row; /* metric `last`: only the last query row */
};
/* Returns the scratch bytes (64-aligned) of any call with at most these counts. */
uint64_t sc_kernels_importance_scratch_bytes(uint64_t head_size, uint64_t prefix_count,
                                             uint64_t fresh_count);
/* imp[kv_head](j): the softmax of each query row and head of the group over the keys that it sees,
 * summed for each prefix key j. ret_sums [prefix.count] is written whole. Query rows are processed
 * in blocks, so scratch does not grow with them. */
void sc_kernels_importance(const struct sc_kernels_importance *what, uint64_t kv_head,
                           void *scratch, float *ret_sums);
/* Sums imp over KV heads [head_first, head_end) in order. With few queries quantised keys are read
 * once for several heads.
 *   one  [prefix.count] scratch;  ret_sums [prefix.count] written whole */
void sc_kernels_importance_sum(const struct sc_kernels_importance *what, uint64_t head_first,
                               uint64_t head_end, void *scratch, float *one, float *ret_sums);

/* Computes imp of each of KV heads [head_first, head_end), bit-identical to sc_kernels_importance.
 * With few queries the keys of several heads are read in one pass.
 *   ret_sums [head_end - head_first, prefix.count] written whole */
void sc_kernels_importance_heads(const struct sc_kernels_importance *what, uint64_t head_first,
                                 uint64_t head_end, void *scratch, float *ret_sums);

#define SC_KERNELS_WORDS(count) (((count) + 63) / 64) /* words of a set's bits */

/* Selects the k rows with the highest scores; ties select the lower index.
 *   ret_rows [k]  ascending;  1 <= k <= count <= UINT32_MAX */
void sc_kernels_topk(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                     uint64_t k, uint32_t *ret_rows);
/* The same set as bits: row j is bit j % 64 of word j / 64.
 *   ret_bits [SC_KERNELS_WORDS(count)]  written whole, 0 beyond count */
void sc_kernels_topk_bits(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                          uint64_t k, uint64_t *ret_bits);
/* The same set by descending score (ties: lower index first).
 *   scratch [2 * k] uint64 */
void sc_kernels_topk_ranked(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                            uint64_t k, uint64_t *scratch, uint32_t *ret_rows);
/* Returns the least k in 1 .. k_max whose top-k holds `share` (0 .. 1) of the sum of all scores,
 * else k_max. No score is negative; sums are in double. scratch [2 * k_max] uint64 */
uint64_t sc_kernels_mass_count(const struct sc_kernels *kernels, const float *scores,
                               uint64_t count, double share, uint64_t k_max, uint64_t *scratch);
/* Returns the sum over the rows of a set (bits), in double, ascending. */
double sc_kernels_mass_of(const float *scores, const uint64_t *bits, uint64_t count);

/* Returns |A and B| / |A or B| of sets of a_count and b_count rows, `both` shared; empty sets:
 * 1. */
double sc_kernels_jaccard(uint64_t both, uint64_t a_count, uint64_t b_count);
/* Returns the mean over all pairs of set_count sets of k rows each; 1 for one set.
 *   sets [set_count][SC_KERNELS_WORDS(count)] bits */
double sc_kernels_similarity(const struct sc_kernels *kernels, const uint64_t *sets,
                             uint64_t set_count, uint64_t count, uint64_t k);
/* t = j^alpha, j = (k/R) / (2 - k/R): IMPRESS section 4.3. */
double sc_kernels_threshold(uint64_t k, uint64_t row_total, double alpha);
struct sc_kernels_votes {
    const uint64_t *sets;
    uint64_t set_count, count;
    const float *scores; /* [count], e.g. sums over the probes */
};
/* Selects k rows by (number of sets with the row, then scores[row], then lower index), as bits.
 *   scratch [(set_count + 1) * SC_KERNELS_WORDS(count)] */
void sc_kernels_vote(const struct sc_kernels *kernels, const struct sc_kernels_votes *votes,
                     uint64_t k, uint64_t *scratch, uint64_t *ret_bits);
/* dst[j] += src[j] */
void sc_kernels_add(const struct sc_kernels *kernels, float *dst, const float *src, uint64_t count);

/* Sums the scores of each granule: `unit` positions of the absolute grid, where row 0 is at
 * `position`. Returns the number of granules written to ret_sums. */
uint64_t sc_kernels_granules(const float *scores, uint64_t count, uint64_t position, uint64_t unit,
                             float *ret_sums);

#endif
