/* cpuid: detects the CPU level by cpuid and xgetbv. See cpuid.h.
 *
 * The build sets ENG_HAVE_AVX2 and ENG_HAVE_AVX512 for linked variants; only those levels are
 * returned. */
#include "conformance/engine/cpuid.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(ENG_HAVE_AVX2)
#include <cpuid.h>

static bool has_bits(uint32_t word, uint32_t bits)
{
    return (word & bits) == bits;
}

static uint64_t saved_registers(void)
{
    uint32_t low = 0;
    uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static enum eng_cpu_level detect(void)
{
    uint32_t a = 0;
    uint32_t b = 0;
    uint32_t c = 0;
    uint32_t d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 ||
        !has_bits(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
        return ENG_CPU_PLAIN;
    uint64_t saved = saved_registers();
    if ((saved & 0x6u) != 0x6u) /* XMM and YMM */
        return ENG_CPU_PLAIN;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || !has_bits(b, bit_AVX2))
        return ENG_CPU_PLAIN;
#ifdef ENG_HAVE_AVX512
    uint32_t wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if ((saved & 0xe6u) == 0xe6u && has_bits(b, wanted)) /* opmask and both ZMM halves too */
        return ENG_CPU_AVX512;
#endif
    return ENG_CPU_AVX2;
}
#else
static enum eng_cpu_level detect(void)
{
    return ENG_CPU_PLAIN;
}
#endif

static atomic_int best_level = -1; /* -1: not asked yet; every thread would find the same */
static atomic_int used_level = -1;

enum eng_cpu_level eng_cpu_best(void)
{
    int level = atomic_load_explicit(&best_level, memory_order_relaxed);
    if (level < 0) {
        level = (int)detect();
        atomic_store_explicit(&best_level, level, memory_order_relaxed);
    }
    return (enum eng_cpu_level)level;
}

enum eng_cpu_level eng_cpu_get(void)
{
    int level = atomic_load_explicit(&used_level, memory_order_relaxed);
    return level < 0 ? eng_cpu_best() : (enum eng_cpu_level)level;
}

enum eng_cpu_level eng_cpu_force(enum eng_cpu_level level)
{
    enum eng_cpu_level best = eng_cpu_best();
    if (level > best)
        level = best;
    atomic_store_explicit(&used_level, (int)level, memory_order_relaxed);
    return level;
}

const char *eng_cpu_name(enum eng_cpu_level level)
{
    switch (level) {
    case ENG_CPU_AVX512:
        return "avx512";
    case ENG_CPU_AVX2:
        return "avx2";
    default:
        return "plain";
    }
}
