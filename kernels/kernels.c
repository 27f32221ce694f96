/* kernels.h: selects the table of a level. CPUID is read at each call (one per connector): libgcc's
 * __builtin_cpu_supports would add a static constructor to the .so.
 * Tests: tests/unit/kernels/test_widen.c */
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

static const struct sc_kernels REF = SC_KERNELS_TABLE(sc_kernels_ref, 1, 16);
static const struct sc_kernels *const TABLES[SC_KERNELS_LEVELS] = {
    [SC_KERNELS_REF] = &REF,
#if defined(__x86_64__)
    [SC_KERNELS_AVX2] = &sc_kernels_avx2,
    [SC_KERNELS_AVX512] = &sc_kernels_avx512,
#endif
};

const struct sc_kernels *sc_kernels_get(enum sc_kernels_level level)
{
    return TABLES[level];
}
