/* The table of kernels and the choice of a level. CPUID is asked each time (it is asked once a
 * connector): libgcc's __builtin_cpu_supports would bring a static constructor into the .so.
 *
 * Threads: any. Tests: tests/unit/kernels/test_widen.c */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t xgetbv0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

enum sc_kernels_level sc_kernels_level_best(void)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_F16C) ||
        !(c & bit_FMA) || !(c & bit_POPCNT))
        return SC_KERNELS_REF;
    uint64_t saved = xgetbv0();
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2) ||
        !(b & bit_BMI2))
        return SC_KERNELS_REF;
    uint32_t wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if ((saved & 0xe6) != 0xe6 || (b & wanted) != wanted)
        return SC_KERNELS_AVX2;
    return SC_KERNELS_AVX512;
}
#else
enum sc_kernels_level sc_kernels_level_best(void)
{
    return SC_KERNELS_REF;
}
#endif

#define RUNG(rung, unit, most)                                                                     \
    {                                                                                              \
        .widen_f16 = sc_kernels_##rung##_widen_f16, .widen_bf16 = sc_kernels_##rung##_widen_bf16,  \
        .turn16 = sc_kernels_##rung##_turn16, .turn32 = sc_kernels_##rung##_turn32,                \
        .lane_unit = (unit), .lane_most = (most), .rows_widen = sc_kernels_##rung##_rows_widen,    \
        .lanes_score = sc_kernels_##rung##_lanes_score,                                            \
        .lanes_soften = sc_kernels_##rung##_lanes_soften,                                          \
        .lanes_weigh = sc_kernels_##rung##_lanes_weigh,                                            \
        .lanes_fold = sc_kernels_##rung##_lanes_fold,                                              \
        .rows_score = sc_kernels_##rung##_rows_score, .few_best = sc_kernels_##rung##_few_best,    \
        .few_soften = sc_kernels_##rung##_few_soften,                                              \
        .accumulate = sc_kernels_##rung##_accumulate,                                              \
        .order_sift = sc_kernels_##rung##_order_sift,                                              \
        .order_ranks = sc_kernels_##rung##_order_ranks,                                            \
        .order_mark = sc_kernels_##rung##_order_mark, .bits_rows = sc_kernels_##rung##_bits_rows,  \
        .bits_both = sc_kernels_##rung##_bits_both,                                                \
        .code_encode = sc_kernels_##rung##_code_encode,                                            \
        .code_decode = sc_kernels_##rung##_code_decode,                                            \
        .code_score = sc_kernels_##rung##_code_score,                                              \
    }
static const struct sc_kernels TABLE[SC_KERNELS_LEVELS] = {
    [SC_KERNELS_REF] = RUNG(ref, 1, 16),
#if defined(__x86_64__)
    [SC_KERNELS_AVX2] = RUNG(avx2, 8, 24),
    [SC_KERNELS_AVX512] = RUNG(avx512, 16, 48),
#endif
};

const struct sc_kernels *sc_kernels_get(enum sc_kernels_level level)
{
    return &TABLE[level];
}
