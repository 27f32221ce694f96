/* tag: row tags and log checksums: the baseline rung, and the choice of a rung once per process.
 * Invariants, Threads: store/rows/tag.h.
 * Tests: tests/unit/store/test_tag.c */
#define TAG_RUNG sc_store_tag_base_rung
#include "store/rows/tag_rung.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#if defined(SC_STORE_HAS_WIDE)
#include <cpuid.h>

/* libgcc's __builtin_cpu_supports would add a static constructor. feature: bit of leaf 7's ebx;
 * saved: required XCR0 bits. */
static bool cpu_has(unsigned feature, unsigned saved)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0)
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    if ((low & saved) != saved)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & feature) != 0;
}
#endif

const struct sc_store_tag_rung *sc_store_tag_rung_at(uint32_t i)
{
    if (i == 0)
        return &sc_store_tag_base_rung;
#if defined(SC_STORE_HAS_WIDE)
    if (i == 1 && cpu_has(bit_AVX2, 0x6))
        return &sc_store_tag_avx2;
    if (i == 2 && cpu_has(bit_AVX2, 0x6) && cpu_has(bit_AVX512F, 0xe6))
        return &sc_store_tag_avx512;
#endif
    return NULL;
}

/* Cached, because cpuid traps in virtual machines (about 1 us). */
static const struct sc_store_tag_rung *rung_best(void)
{
    static const struct sc_store_tag_rung *_Atomic best;
    const struct sc_store_tag_rung *rung = atomic_load_explicit(&best, memory_order_acquire);
    if (rung != NULL)
        return rung;
    rung = sc_store_tag_rung_at(0);
    for (uint32_t i = 1; sc_store_tag_rung_at(i) != NULL; i++)
        rung = sc_store_tag_rung_at(i);
    atomic_store_explicit(&best, rung, memory_order_release);
    return rung;
}

static void tag_put(uint8_t *dst, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        dst[i] = (uint8_t)(value >> (8 * i));
}

uint64_t sc_store_tag_base(const uint8_t digest[16], const uint8_t piece_hash[16], uint64_t copy,
                           uint32_t layer, uint32_t part)
{
    uint8_t identity[48];
    memcpy(identity, digest, 16);
    memcpy(identity + 16, piece_hash, 16);
    tag_put(identity + 32, copy, 8);
    tag_put(identity + 40, layer, 4);
    tag_put(identity + 44, part, 4);
    return XXH3_64bits(identity, sizeof(identity));
}

void sc_store_tag_make(const struct sc_store_tag_rows *what, const uint8_t *rows,
                       uint64_t *ret_tags)
{
    rung_best()->make(what, rows, ret_tags);
}

uint64_t sc_store_tag_verify(const struct sc_store_tag_rows *what, const uint8_t *rows,
                             const uint64_t *tags)
{
    return rung_best()->verify(what, rows, tags);
}

uint64_t sc_store_tag_move(const struct sc_store_tag_rows *what, const uint8_t *rows,
                           const uint64_t *tags, const struct sc_store_tag_spans *to)
{
    return rung_best()->move(what, rows, tags, to);
}

void sc_store_tag_gather(const struct sc_store_tag_rows *what,
                         const struct sc_store_tag_spans *from, uint8_t *ret_rows,
                         uint64_t *ret_tags)
{
    rung_best()->gather(what, from, ret_rows, ret_tags);
}

uint64_t sc_store_checksum(const void *bytes, uint64_t count, uint64_t seed)
{
    return count <= XXH3_MIDSIZE_MAX ? XXH3_64bits_withSeed(bytes, count, seed)
                                     : rung_best()->hash(bytes, count, seed);
}
