/* Choosing: column-sum importance, exact top-k, sets and votes, moving chosen rows together.
 *
 *   queries [row][head]     keys of one KV head: [R prefix][rows' own]
 *        \                   /
 *         softmax, row by row, over the prefix and the new keys up to the row
 *                  |
 *         column sums [R] float32 -> top-k -> ascending row indexes
 *
 * Holds: a set follows from scores by a total order (higher score, then lower index; NaN is lowest,
 * -0 equals 0), the same on every rung; sums are float32, each made in one order that depends on
 * the arguments only. Rungs may differ in the last bits of a sum (kernels_test: 1e-5 relative to
 * the largest), never in a set made from equal scores.
 * Does not: check addresses, allocate (scratch is the caller's), choose threads.
 * Threads: any.
 * Tests: tests/unit/kernels/test_importance.c, test_topk.c */
#ifndef SC_KERNELS_IMPORTANCE_H
#define SC_KERNELS_IMPORTANCE_H

#include "kernels/codec.h"

struct sc_kernels_slab {           /* coarse K of consecutive keys */
    struct sc_kernels_quantised quantised; /* rows: the keys */
    uint64_t key_first;            /* ascending from 0; a slab ends where the next begins */
};

struct sc_kernels_keys { /* K of `count` tokens, all (or the first) KV heads, as memory.k_base says
                          */
    struct sc_kernels_memory memory;     /* v_base is not used; no slot of theirs is negative */
    const struct sc_kernels_slab *slabs; /* not NULL: the keys are their decoded values, float32 */
    uint64_t slab_count;                 /* > 0 when count is */
    uint64_t channels;                   /* of the slabs: all KV heads */
    uint64_t count;
    uint32_t dtype; /* enum sc_kernels_dtype; of slabs: what was coded */
};

struct sc_kernels_queries {
    const uint8_t *data; /* q[i][g] at i * row_stride_bytes + g * head_stride_bytes */
    uint64_t row_stride_bytes, head_stride_bytes, row_count;
    uint32_t dtype;
};

struct sc_kernels_importance {
    const struct sc_kernels *kernels;
    uint64_t head_size;
    uint64_t group; /* query heads of a KV head: h * group .. + group - 1 */
    float scale;    /* usually 1 / sqrt(head_size) */
    struct sc_kernels_queries queries;
    struct sc_kernels_keys prefix; /* the rows that are scored */
    struct sc_kernels_keys fresh;  /* count 0: softmax over the prefix alone; else >= row_count:
                                    * row i sees fresh keys 0 .. count - row_count + i */
    bool last_row;                 /* metric `last`: the last query row alone */
};
/* Bytes of scratch, 64-aligned, for any call with at most these counts. */
uint64_t sc_kernels_importance_scratch_bytes(uint64_t head_size, uint64_t prefix_count,
                                             uint64_t fresh_count);
/* imp[kv_head](j): for each query row and head of the group a softmax over the keys that it sees,
 * summed over them per prefix key j.  ret_sums [prefix.count] written whole. Blocked over
 * query rows, so that scratch does not grow with them. */
void sc_kernels_importance(const struct sc_kernels_importance *what, uint64_t kv_head,
                           void *scratch, float *ret_sums);
/* The sum of imp over KV heads [head_first, head_end), added in their order: a few queries read
 * coarse keys once for several heads.
 *   one  [prefix.count] scratch;  ret_sums [prefix.count] written whole */
void sc_kernels_importance_sum(const struct sc_kernels_importance *what, uint64_t head_first,
                               uint64_t head_end, void *scratch, float *one, float *ret_sums);

/* imp of each of KV heads [head_first, head_end), as sc_kernels_importance has it, bit by bit: a
 * few queries read keys of several heads, which mostly lie side by side, in one pass. ret_sums
 * [head_end - head_first, prefix.count]  written whole */
void sc_kernels_importance_heads(const struct sc_kernels_importance *what, uint64_t head_first,
                                 uint64_t head_end, void *scratch, float *ret_sums);

#define SC_KERNELS_WORDS(count) (((count) + 63) / 64) /* of a set as bits */

/* The k rows of highest score, ties to the lower index.
 *   ret_rows [k]  ascending;  1 <= k <= count <= UINT32_MAX */
void sc_kernels_topk(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                     uint64_t k, uint32_t *ret_rows);
/* The same set as bits: row j is bit j % 64 of word j / 64.
 *   ret_bits [SC_KERNELS_WORDS(count)]  written whole, 0 behind count */
void sc_kernels_topk_bits(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                          uint64_t k, uint64_t *ret_bits);
/* The same set in descending order of score (ties to the lower index): for what goes out first.
 *   scratch [2 * k] uint64 */
void sc_kernels_topk_ranked(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                            uint64_t k, uint64_t *scratch, uint32_t *ret_rows);
/* The least k whose top-k holds `share` (0 .. 1) of the sum of all scores (none negative, sums in
 * double), at least 1, at most k_max.  scratch [2 * k_max] uint64 */
uint64_t sc_kernels_mass_count(const struct sc_kernels *kernels, const float *scores,
                               uint64_t count, double share, uint64_t k_max, uint64_t *scratch);
/* Sum over rows of a set (bits), in double, ascending. */
double sc_kernels_mass_of(const float *scores, const uint64_t *bits, uint64_t count);

/* |A and B| / |A or B| of two sets of a_count and b_count rows that share `both`; of two empty sets
 * 1. */
double sc_kernels_jaccard(uint64_t both, uint64_t a_count, uint64_t b_count);
/* Mean over all pairs of set_count sets of k rows each; of one set 1.
 *   sets [set_count][SC_KERNELS_WORDS(count)] bits */
double sc_kernels_similarity(const struct sc_kernels *kernels, const uint64_t *sets,
                             uint64_t set_count, uint64_t count, uint64_t k);
/* t = j^alpha, j = (k/R) / (2 - k/R): IMPRESS section 4.3. */
double sc_kernels_threshold(uint64_t k, uint64_t row_total, double alpha);
struct sc_kernels_votes {
    const uint64_t *sets; /* [set_count][SC_KERNELS_WORDS(count)] bits */
    uint64_t set_count, count;
    const float *scores; /* [count], e.g. summed over the probes */
};
/* k rows by (number of sets that hold the row, then scores[row], then lower index), as bits.
 *   scratch [(set_count + 1) * SC_KERNELS_WORDS(count)] */
void sc_kernels_vote(const struct sc_kernels *kernels, const struct sc_kernels_votes *votes,
                     uint64_t k, uint64_t *scratch, uint64_t *ret_bits);
/* dst[j] += src[j] */
void sc_kernels_add(const struct sc_kernels *kernels, float *dst, const float *src, uint64_t count);

/* Scores of granules: sums over rows of one granule of `unit` positions of the absolute grid; row 0
 * stands at `position`.  ret_sums [granules] ; returns how many there are. */
uint64_t sc_kernels_granules(const float *scores, uint64_t count, uint64_t position, uint64_t unit,
                             float *ret_sums);

#endif
