/* What the rungs that widen and narrow 16-bit floats share: the tail is the reference's.
 *
 * Written in the words of v8.h or v16.h, one of which is included before it.
 *
 * Threads: any. Tests: tests/unit/kernels/test_widen.c */
#ifndef SC_KERNELS_CPU_WIDEN_RUNG_H
#define SC_KERNELS_CPU_WIDEN_RUNG_H

#include "kernels/kernels.h"

#define ROUND (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* name(..., dtype) with `dtype` as a constant. */
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

/* Elements t .. t + LANES - 1 of a row; `dtype` is a constant where it is inlined. */
INLINE floats widened(const uint8_t *row, uint64_t t, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        return V(loadu_ps)((const float *)(const void *)(row + 4 * t));
    return halves_widened(halves_load(row + 2 * t), dtype);
}

/* The same of those below `end`; the others are 0. */
INLINE floats widened_some(const uint8_t *row, uint64_t t, uint64_t end, uint32_t dtype)
{
    uint64_t left = t < end ? end - t : 0;
    if (dtype == SC_KERNELS_F32)
        return floats_of(words_load_some(row + 4 * t, left));
    return halves_widened(halves_load_some(row + 2 * t, left), dtype);
}

/* The nearest, ties to even. */
INLINE halves narrowed(floats x, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F16)
        return V(cvtps_ph)(x, ROUND);
    words bits = VI(castps)(x), odd = VI(and)(V(srli_epi32)(bits, 16), V(set1_epi32)(1));
    bits = V(add_epi32)(bits, V(add_epi32)(odd, V(set1_epi32)(0x7fff)));
    return halves_low(V(srli_epi32)(bits, 16));
}

static void rung_widen_f16(float *dst, const uint16_t *src, uint64_t count)
{
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        V(storeu_ps)(dst + i, halves_widened(halves_load(src + i), SC_KERNELS_F16));
    sc_kernels_ref_widen_f16(dst + i, src + i, count - i);
}

static void rung_widen_bf16(float *dst, const uint16_t *src, uint64_t count)
{
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        V(storeu_ps)(dst + i, halves_widened(halves_load(src + i), SC_KERNELS_BF16));
    sc_kernels_ref_widen_bf16(dst + i, src + i, count - i);
}

#endif
