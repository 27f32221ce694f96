/* tag_avx512: row tags with AVX-512: XXH3's long hash with one 512-bit accumulator.
 *
 *   XXH3    derives 192 secret bytes from the seed, stores them, and reads 64 of them per stripe
 *   here    a stripe's secret is the constant's 64 bytes plus (+seed, -seed, ...), in a register
 *
 * Every row has its own seed, so XXH3 derives a secret per row, and its 64-byte reads at multiples
 * of 8 cross cache lines. Rows of 768 bytes hash 1.5 times as fast as by XXH3's AVX-512 and 1.8
 * times as by its AVX2. row_move loads each line once, hashes it and stores it to its destination.
 * Compiled with -mavx512f, called only if CPU and system have it.
 *
 * Invariants, Threads: store/rows/tag.h.
 * Tests: tests/unit/store/test_tag.c (same tags as the other rungs, bit for bit) */
#define XXH_INLINE_ALL
#include <immintrin.h>
#include <xxhash.h>

#include "store/rows/tag.h"
#include "store/rows/tag_lines.h"

#define STRIPE_BYTES    64u
#define BLOCK_STRIPES   16u /* then the accumulator is scrambled */
#define BLOCK_BYTES     (BLOCK_STRIPES * STRIPE_BYTES)
#define SHORT_BYTES_MAX 240u
#define SCRAMBLE_WORD   16u /* secret words before its last 64 bytes */

/* Prefetch distance: DMA data is in no cache. */
#define AHEAD_BYTES 4096u

struct seeds {
    __m512i even, odd; /* added to words i .. i + 7 of the constant, by i's parity */
};

/* Returns words i .. i + 7 of the seed's secret. */
static inline __m512i secret_words(const struct seeds *seeds, uint32_t i)
{
    return _mm512_add_epi64(_mm512_loadu_si512(XXH3_kSecret + 8 * (size_t)i),
                            i % 2 == 0 ? seeds->even : seeds->odd);
}

/* Its 64 bytes that begin `bytes` (1 .. 7) into word i. */
#define SECRET_INSIDE(seeds, i, bytes)                                                             \
    _mm512_or_si512(_mm512_srli_epi64(secret_words((seeds), (i)), 8 * (bytes)),                    \
                    _mm512_slli_epi64(secret_words((seeds), (i) + 1), 64 - 8 * (bytes)))

static inline __m512i data_add(__m512i acc, __m512i data, __m512i secret)
{
    const __m512i keyed = _mm512_xor_si512(data, secret);
    const __m512i product = _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32));
    const __m512i swapped = _mm512_shuffle_epi32(data, (_MM_PERM_ENUM)_MM_SHUFFLE(1, 0, 3, 2));
    return _mm512_add_epi64(product, _mm512_add_epi64(acc, swapped));
}

static inline __m512i stripe_add(__m512i acc, const uint8_t *at, __m512i secret)
{
    return data_add(acc, _mm512_loadu_si512(at), secret);
}

static inline __m512i scramble(__m512i acc, __m512i secret)
{
    const __m512i prime = _mm512_set1_epi32((int)XXH_PRIME32_1);
    const __m512i keyed =
        _mm512_xor_si512(_mm512_xor_si512(acc, _mm512_srli_epi64(acc, 47)), secret);
    const __m512i low = _mm512_mul_epu32(keyed, prime);
    const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(keyed, 32), prime);
    return _mm512_add_epi64(low, _mm512_slli_epi64(high, 32));
}

static inline void prefetch(const uint8_t *at)
{
    _mm_prefetch((const char *)(uintptr_t)at + AHEAD_BYTES, _MM_HINT_T0);
}

/* Adds whole blocks, with their secrets in registers. */
static __m512i blocks_add(__m512i acc, const struct seeds *seeds, const uint8_t *row,
                          uint64_t block_count)
{
    __m512i secrets[BLOCK_STRIPES];
    for (uint32_t i = 0; i < BLOCK_STRIPES; i++)
        secrets[i] = secret_words(seeds, i);
    const __m512i last = secret_words(seeds, SCRAMBLE_WORD);
    for (uint64_t block = 0; block < block_count; block++, row += BLOCK_BYTES) {
        for (uint32_t i = 0; i < BLOCK_STRIPES; i++) {
            prefetch(row + i * STRIPE_BYTES);
            acc = stripe_add(acc, row + i * STRIPE_BYTES, secrets[i]);
        }
        acc = scramble(acc, last);
    }
    return acc;
}

static uint64_t merge(__m512i acc, const struct seeds *seeds, uint64_t bytes)
{
    uint64_t words[8];
    uint64_t result = bytes * XXH_PRIME64_1;
    _mm512_storeu_si512(words, _mm512_xor_si512(acc, SECRET_INSIDE(seeds, 1, 3)));
    for (uint32_t i = 0; i < 8; i += 2)
        result += XXH3_mul128_fold64(words[i], words[i + 1]);
    return XXH3_avalanche(result);
}

static inline struct seeds seeds_of(uint64_t seed)
{
    const __m512i all = _mm512_set1_epi64((long long)seed);
    const __m512i none = _mm512_setzero_si512();
    return (struct seeds){.even = _mm512_mask_sub_epi64(all, 0xaa, none, all),
                          .odd = _mm512_mask_sub_epi64(all, 0x55, none, all)};
}

static inline __m512i acc_begin(void)
{
    return _mm512_set_epi64(XXH_PRIME32_1, (long long)XXH_PRIME64_5, XXH_PRIME32_2,
                            (long long)XXH_PRIME64_4, (long long)XXH_PRIME64_3,
                            (long long)XXH_PRIME64_2, (long long)XXH_PRIME64_1, XXH_PRIME32_3);
}

static uint64_t row_hash(const uint8_t *row, uint64_t bytes, uint64_t seed)
{
    if (bytes <= SHORT_BYTES_MAX)
        return XXH3_64bits_withSeed(row, bytes, seed);
    const struct seeds seeds = seeds_of(seed);
    __m512i acc = acc_begin();
    const uint64_t block_count = (bytes - 1) / BLOCK_BYTES;
    const uint64_t stripe_count = (bytes - 1) % BLOCK_BYTES / STRIPE_BYTES;
    if (block_count > 0)
        acc = blocks_add(acc, &seeds, row, block_count);
    const uint8_t *at = row + block_count * BLOCK_BYTES;
    for (uint32_t i = 0; i < stripe_count; i++, at += STRIPE_BYTES) {
        prefetch(at);
        acc = stripe_add(acc, at, secret_words(&seeds, i));
    }
    acc = stripe_add(acc, row + bytes - STRIPE_BYTES, SECRET_INSIDE(&seeds, 15, 1));
    return merge(acc, &seeds, bytes);
}

/* dst: a multiple of 16; malloc aligns to no more. */
static inline void line_stream(uint8_t *dst, __m512i data)
{
    __m128i *parts = (void *)dst;
    if ((uintptr_t)dst % STRIPE_BYTES == 0) {
        _mm512_stream_si512((void *)dst, data);
        return;
    }
    _mm_stream_si128(parts, _mm512_castsi512_si128(data));
    _mm_stream_si128(parts + 1, _mm512_extracti32x4_epi32(data, 1));
    _mm_stream_si128(parts + 2, _mm512_extracti32x4_epi32(data, 2));
    _mm_stream_si128(parts + 3, _mm512_extracti32x4_epi32(data, 3));
}

static inline __m512i line_move(__m512i acc, const uint8_t *at, __m512i secret, uint8_t *dst)
{
    const __m512i data = _mm512_loadu_si512(at);
    prefetch(at);
    line_stream(dst, data);
    return data_add(acc, data, secret);
}

/* Returns XXH3_64bits_withSeed of what it copies. */
static uint64_t row_move(struct tag_lines *lines, uint64_t seed)
{
    const struct seeds seeds = seeds_of(seed);
    __m512i acc = acc_begin();
    uint64_t left = lines->span_count;
    uint32_t stripe = 0;
    for (uint64_t i = 0; i + 1 < lines->count; i++, tag_lines_next(lines, &left)) {
        acc = line_move(acc, lines->src, secret_words(&seeds, stripe), lines->dst);
        if (++stripe == BLOCK_STRIPES) {
            acc = scramble(acc, secret_words(&seeds, SCRAMBLE_WORD));
            stripe = 0;
        }
    }
    acc = line_move(acc, lines->src, SECRET_INSIDE(&seeds, 15, 1), lines->dst);
    return merge(acc, &seeds, lines->count * STRIPE_BYTES);
}

#define TAG_RUNG               sc_store_tag_avx512
#define TAG_HASH(row, b, seed) row_hash((row), (b), (seed))
#define TAG_MOVE(lines, seed)  row_move((lines), (seed))
#include "store/rows/tag_rung.h"
