/* score_soft: softmax of a vector over splits of the keys, for importance.cu and
 * importance_tensor.cu: visibility of fresh keys and layout of statistics. Both ways to score write
 * the same statistics, so they share score_join and score_total.
 * Tests: tests/unit/kernels/test_cuda_importance.c, test_cuda_tensor.c */
#ifndef SC_KERNELS_CUDA_SCORE_SOFT_H
#define SC_KERNELS_CUDA_SCORE_SOFT_H

#include "kernels/cuda/score_keys.h"
#include "kernels/exp2_terms.h"

#define INFINITE  __uint_as_float(0x7f800000u) /* not every compiler has a header for it */
#define ALL_LANES 0xffffffffu
#define LOG2_E    1.44269504088896341f

/* exp2.h, for x <= 0 or NaN. */
SC_DEVICE float exp2_of(float x)
{
    float rounded = __fadd_rn(x, SC_KERNELS_EXP2_ROUND);
    float f = __fadd_rn(x, -__fadd_rn(rounded, -SC_KERNELS_EXP2_ROUND));
    float p = __fmaf_rn(SC_KERNELS_EXP2_P5, f, SC_KERNELS_EXP2_P4);
    p = __fmaf_rn(p, f, SC_KERNELS_EXP2_P3);
    p = __fmaf_rn(p, f, SC_KERNELS_EXP2_P2);
    p = __fmaf_rn(p, f, SC_KERNELS_EXP2_P1);
    p = __fmaf_rn(p, f, 1.0f);
    /* The lowest bits of `rounded` are an integer, those of 1.5 * 2^23 are 0. */
    float power = __uint_as_float(__float_as_uint(p) + (__float_as_uint(rounded) << 23));
    if (x < SC_KERNELS_EXP2_LEAST)
        return 0;
    return x <= 0 ? power : x;
}

/* Maximum so far, and sum of 2^(score - maximum). */
struct Soft {
    float best, sum;
};

/* Returns what is subtracted from scores: 0 if there are none. */
SC_DEVICE float base_of(float best)
{
    return best == -INFINITE ? 0.0f : best;
}

SC_DEVICE float greater(float a, float b) /* ignores NaN in b */
{
#if defined(SC_EMULATED)
    return b > a ? b : a;
#else
    float most;
    asm("max.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
#endif
}

/* Joins two splits; a's keys precede b's. */
SC_DEVICE Soft soft_join(const Soft &a, const Soft &b)
{
    Soft both;
    both.best = greater(a.best, b.best);
    float base = base_of(both.best);
    both.sum = __fadd_rn(__fmul_rn(a.sum, exp2_of(__fadd_rn(a.best, -base))),
                         __fmul_rn(b.sum, exp2_of(__fadd_rn(b.best, -base))));
    return both;
}

SC_DEVICE uint32_t vectors_of(const sc_cuda_score &what)
{
    return (what.queries.row_count - what.row_first) * what.group;
}

/* Returns how many fresh keys a query vector sees. */
SC_DEVICE uint32_t seen_of(const sc_cuda_score &what, uint32_t vector)
{
    return what.fresh.count - what.queries.row_count + what.row_first + vector / what.group + 1;
}

SC_DEVICE uint32_t splits_of(const sc_cuda_score &what, const Lay &lay)
{
    uint32_t tiles = tiles_of(what.prefix.count, lay) + tiles_of(what.fresh.count, lay);
    return (tiles + what.tiles_each - 1) / what.tiles_each;
}

/* Returns a split's statistics of a head of this launch; split `splits`: score_join's output. */
SC_DEVICE float *stats_of(const sc_cuda_score &what, uint32_t head, uint32_t splits, uint32_t split)
{
    return what.stats + (head * (splits + 1ull) + split) * vectors_of(what) * 2;
}

#endif
