/* widen_rung: widens and narrows numbers, shared by the rungs. The reference handles tails and
 * types without a path here.
 * Requires v8.h or v16.h. Tests: tests/unit/kernels/test_widen.c */
#ifndef SC_KERNELS_CPU_WIDEN_RUNG_H
#define SC_KERNELS_CPU_WIDEN_RUNG_H

#include "kernels/kernels.h"

#define ROUND (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE bool is_own(uint32_t dtype)
{
    return dtype <= SC_KERNELS_BF16;
}

/* name(..., dtype) with `dtype`, which is_own, as a constant. */
#define BY_DTYPE(dtype, name, ...)                                                                 \
    ((dtype) == SC_KERNELS_F32   ? name(__VA_ARGS__, SC_KERNELS_F32)                               \
     : (dtype) == SC_KERNELS_F16 ? name(__VA_ARGS__, SC_KERNELS_F16)                               \
                                 : name(__VA_ARGS__, SC_KERNELS_BF16))

INLINE uint64_t element_bytes(uint32_t dtype)
{
    return dtype == SC_KERNELS_F32 ? 4 : 2;
}

INLINE floats halves_widened(halves x, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F16)
        return V(cvtph_ps)(x);
    return floats_of(V(slli_epi32)(V(cvtepu16_epi32)(x), 16));
}

/* Widens elements t .. t + LANES - 1 of a row; `dtype` is a constant after inlining. */
INLINE floats widened(const uint8_t *row, uint64_t t, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        return V(loadu_ps)((const float *)(const void *)(row + 4 * t));
    return halves_widened(halves_load(row + 2 * t), dtype);
}

/* Does the same for elements below `end`; the others are 0. */
INLINE floats widened_some(const uint8_t *row, uint64_t t, uint64_t end, uint32_t dtype)
{
    uint64_t left = t < end ? end - t : 0;
    if (dtype == SC_KERNELS_F32)
        return floats_of(words_load_some(row + 4 * t, left));
    return halves_widened(halves_load_some(row + 2 * t, left), dtype);
}

/* Rounds to bf16, ties to even, in the upper half of each lane; the lower half is undefined. */
INLINE words rounded_bf16(floats x)
{
    words bits = VI(castps)(x), odd = VI(and)(V(srli_epi32)(bits, 16), V(set1_epi32)(1));
    return V(add_epi32)(bits, V(add_epi32)(odd, V(set1_epi32)(0x7fff)));
}

/* Rounds to nearest, ties to even. */
INLINE halves narrowed(floats x, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F16)
        return V(cvtps_ph)(x, ROUND);
    return halves_low(V(srli_epi32)(rounded_bf16(x), 16));
}

INLINE void values_store(uint8_t *dst, floats values, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        V(storeu_ps)((float *)(void *)dst, values);
    else
        halves_store(dst, narrowed(values, dtype));
}

INLINE void all_widen(float *dst, const uint8_t *src, uint64_t count, uint32_t dtype)
{
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        V(storeu_ps)(dst + i, widened(src, i, dtype));
    sc_kernels_ref_widen(dst + i, src + i * element_bytes(dtype), count - i, dtype);
}

static void rung_widen(float *dst, const uint8_t *src, uint64_t count, uint32_t dtype)
{
    if (is_own(dtype))
        BY_DTYPE(dtype, all_widen, dst, src, count);
    else
        sc_kernels_ref_widen(dst, src, count, dtype);
}

#endif
