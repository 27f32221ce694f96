/* tag_avx2: row tags with AVX2, about twice the baseline's (SSE2) rate. Compiled with -mavx2,
 * called only if the CPU has it.
 * row_move loads each line once, hashes it and stores it to its destination.
 * Invariants, Threads: store/rows/tag.h.
 * Tests: tests/unit/store/test_tag.c */
#define XXH_INLINE_ALL
#define XXH_PREFETCH_DIST 4096 /* DMA data is in no cache */
#include <immintrin.h>
#include <xxhash.h>

#include "store/rows/tag_lines.h"

#define BLOCK_STRIPES 16u /* then the accumulator is scrambled */
#define SECRET_LAST   (XXH_SECRET_DEFAULT_SIZE - TAG_LINE_BYTES)

struct acc { /* XXH3's eight words */
    __m256i low, high;
};

static inline __m256i half_add(__m256i acc, __m256i data, const uint8_t *secret)
{
    const __m256i keyed =
        _mm256_xor_si256(data, _mm256_loadu_si256((const __m256i *)(const void *)secret));
    const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    const __m256i swapped = _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
    return _mm256_add_epi64(product, _mm256_add_epi64(acc, swapped));
}

static inline __m256i half_scramble(__m256i acc, const uint8_t *secret)
{
    const __m256i prime = _mm256_set1_epi32((int)XXH_PRIME32_1);
    const __m256i mixed = _mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47));
    const __m256i keyed =
        _mm256_xor_si256(mixed, _mm256_loadu_si256((const __m256i *)(const void *)secret));
    const __m256i low = _mm256_mul_epu32(keyed, prime);
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(keyed, 32), prime);
    return _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
}

/* 16-byte stores, because malloc aligns to no more. */
static inline void half_stream(uint8_t *dst, __m256i data)
{
    _mm_stream_si128((__m128i *)(void *)dst, _mm256_castsi256_si128(data));
    _mm_stream_si128((__m128i *)(void *)dst + 1, _mm256_extracti128_si256(data, 1));
}

static inline struct acc line_move(struct acc acc, const uint8_t *at, const uint8_t *secret,
                                   uint8_t *dst)
{
    const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)at);
    const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)at + 1);
    _mm_prefetch((const char *)(uintptr_t)at + XXH_PREFETCH_DIST, _MM_HINT_T0);
    half_stream(dst, low);
    half_stream(dst + 32, high);
    return (struct acc){.low = half_add(acc.low, low, secret),
                        .high = half_add(acc.high, high, secret + 32)};
}

static uint64_t merge(struct acc acc, const uint8_t *secret, uint64_t bytes)
{
    uint64_t words[8];
    _mm256_storeu_si256((__m256i *)(void *)words, acc.low);
    _mm256_storeu_si256((__m256i *)(void *)words + 1, acc.high);
    return XXH3_mergeAccs(words, secret + XXH_SECRET_MERGEACCS_START, bytes * XXH_PRIME64_1);
}

/* Returns XXH3_64bits_withSeed of what it copies. */
static uint64_t row_move(struct tag_lines *lines, uint64_t seed)
{
    XXH_ALIGN(64) uint8_t secret[XXH_SECRET_DEFAULT_SIZE];
    struct acc acc = {.low = _mm256_set_epi64x((long long)XXH_PRIME64_3, (long long)XXH_PRIME64_2,
                                               (long long)XXH_PRIME64_1, (long long)XXH_PRIME32_3),
                      .high =
                          _mm256_set_epi64x((long long)XXH_PRIME32_1, (long long)XXH_PRIME64_5,
                                            (long long)XXH_PRIME32_2, (long long)XXH_PRIME64_4)};
    uint64_t left = lines->span_count;
    XXH3_initCustomSecret(secret, seed);
    for (uint64_t i = 0, stripe = 0; i + 1 < lines->count; i++, tag_lines_next(lines, &left)) {
        acc = line_move(acc, lines->src, secret + stripe * 8, lines->dst);
        if (++stripe == BLOCK_STRIPES) {
            acc.low = half_scramble(acc.low, secret + SECRET_LAST);
            acc.high = half_scramble(acc.high, secret + SECRET_LAST + 32);
            stripe = 0;
        }
    }
    acc = line_move(acc, lines->src, secret + SECRET_LAST - XXH_SECRET_LASTACC_START, lines->dst);
    return merge(acc, secret, lines->count * TAG_LINE_BYTES);
}

#define TAG_RUNG               sc_store_tag_avx2
#define TAG_HASH(row, b, seed) XXH3_64bits_withSeed((row), (b), (seed))
#define TAG_MOVE(lines, seed)  row_move((lines), (seed))
#include "store/rows/tag_rung.h"
