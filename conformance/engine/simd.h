/* simd: sixteen floats as one value, in three implementations: AVX-512, AVX2 and plain C.
 *
 *   v16:  AVX-512  one register | AVX2  lanes 0..7 and 8..15 | plain  an array
 *
 * Kernels (kernels_*.h) are written once over this and compiled per level, with the flags that
 * math.cmake gives each file; the compiler's macros select the implementation.
 *
 * Invariants: every operation gives the same bits in all three (NaN payloads aside): it is one IEEE
 * operation, rounded to nearest even, or moves bits. v_min and v_max define their result for equal
 * operands and NaN.
 * Threads: any. Tests: tests/unit/engine/test_vecmath.c and every other test of the kernels. */
#ifndef CONFORMANCE_ENGINE_SIMD_H
#define CONFORMANCE_ENGINE_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "conformance/engine/halffloat.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define ENG_INLINE static inline __attribute__((always_inline, unused))

/* One 16-bit value at any alignment: weights lie in files as they like. */
ENG_INLINE uint16_t half_get(const uint16_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof(bits));
    return bits;
}

ENG_INLINE void half_put(uint16_t *p, uint16_t bits)
{
    memcpy(p, &bits, sizeof(bits));
}

#if defined(SC_SANITIZED)
#define ENG_UNROLL
#elif defined(__clang__)
#define ENG_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ENG_UNROLL _Pragma("GCC unroll 32")
#endif

#define V_LANES 16u

#if defined(__AVX512F__)
#define ENG_LEVEL(name) name##_avx512

typedef __m512 v16;

ENG_INLINE v16 v_set1(float x)
{
    return _mm512_set1_ps(x);
}

ENG_INLINE v16 v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

ENG_INLINE void v_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}

/* The first n < 16 lanes; the others are +0. */
ENG_INLINE v16 v_load_part(const float *p, uint64_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
}

ENG_INLINE void v_store_part(float *p, uint64_t n, v16 a)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), a);
}

ENG_INLINE v16 v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

ENG_INLINE v16 v_load_bf16(const uint16_t *p)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

ENG_INLINE void v_store_f16(uint16_t *p, v16 a)
{
    __m256i bits = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)(void *)p, bits);
}

ENG_INLINE void v_store_bf16(uint16_t *p, v16 a)
{
    __m512i bits = _mm512_castps_si512(a);
    __m512i upper = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, is_nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(rounded));
}

ENG_INLINE v16 v_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

ENG_INLINE v16 v_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

ENG_INLINE v16 v_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

ENG_INLINE v16 v_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

ENG_INLINE v16 v_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

/* a < b ? a : b */
ENG_INLINE v16 v_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}

/* a > b ? a : b */
ENG_INLINE v16 v_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

/* p * 2^n, rounded once, for 0.5 < p < 2 and -150 <= n <= 130; `biased` is 1.5 * 2^23 + n. */
ENG_INLINE v16 v_scale(v16 p, v16 n, v16 biased)
{
    (void)biased;
    return _mm512_scalef_ps(p, n);
}

#elif defined(__AVX2__)
#define ENG_LEVEL(name) name##_avx2

typedef struct {
    __m256 lo, hi;
} v16;

ENG_INLINE v16 v_pair(__m256 lo, __m256 hi)
{
    v16 a = {lo, hi};
    return a;
}

ENG_INLINE v16 v_set1(float x)
{
    __m256 a = _mm256_set1_ps(x);
    return v_pair(a, a);
}

ENG_INLINE v16 v_load(const float *p)
{
    return v_pair(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}

ENG_INLINE void v_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

/* The first n < 16 lanes; the others are +0. */
ENG_INLINE v16 v_load_part(const float *p, uint64_t n)
{
    float lanes[V_LANES] = {0};
    memcpy(lanes, p, n * sizeof(*p)); /* maskload past the end is legal but upsets checkers */
    return v_load(lanes);
}

ENG_INLINE void v_store_part(float *p, uint64_t n, v16 a)
{
    float lanes[V_LANES];
    v_store(lanes, a);
    memcpy(p, lanes, n * sizeof(*p));
}

ENG_INLINE __m128i v_load_8_halves(const uint16_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

ENG_INLINE v16 v_load_f16(const uint16_t *p)
{
    return v_pair(_mm256_cvtph_ps(v_load_8_halves(p)), _mm256_cvtph_ps(v_load_8_halves(p + 8)));
}

ENG_INLINE __m256 v_widen_bf16(__m128i bits)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

ENG_INLINE v16 v_load_bf16(const uint16_t *p)
{
    return v_pair(v_widen_bf16(v_load_8_halves(p)), v_widen_bf16(v_load_8_halves(p + 8)));
}

ENG_INLINE void v_store_f16(uint16_t *p, v16 a)
{
    __m128i *q = (__m128i *)(void *)p;
    _mm_storeu_si128(q, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

ENG_INLINE __m256i v_round_bf16(__m256 a)
{
    __m256i bits = _mm256_castps_si256(a);
    __m256i upper = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

ENG_INLINE void v_store_bf16(uint16_t *p, v16 a)
{
    __m256i mixed = _mm256_packus_epi32(v_round_bf16(a.lo), v_round_bf16(a.hi));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(mixed, 0xd8));
}

ENG_INLINE v16 v_fma(v16 a, v16 b, v16 c)
{
    return v_pair(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}

ENG_INLINE v16 v_add(v16 a, v16 b)
{
    return v_pair(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi));
}

ENG_INLINE v16 v_sub(v16 a, v16 b)
{
    return v_pair(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi));
}

ENG_INLINE v16 v_mul(v16 a, v16 b)
{
    return v_pair(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi));
}

ENG_INLINE v16 v_div(v16 a, v16 b)
{
    return v_pair(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi));
}

/* a < b ? a : b */
ENG_INLINE v16 v_min(v16 a, v16 b)
{
    return v_pair(_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi));
}

/* a > b ? a : b */
ENG_INLINE v16 v_max(v16 a, v16 b)
{
    return v_pair(_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi));
}

/* Two factors 2^(n/2) and 2^(n - n/2): neither leaves the range, and the first product is exact. */
ENG_INLINE __m256 v_scale_half(__m256 p, __m256 biased)
{
    __m256i n = _mm256_sub_epi32(_mm256_castps_si256(biased), _mm256_set1_epi32(0x4b400000));
    __m256i n1 = _mm256_srai_epi32(n, 1);
    __m256i n2 = _mm256_sub_epi32(n, n1);
    __m256i one = _mm256_set1_epi32(127);
    __m256 s1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n1, one), 23));
    __m256 s2 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n2, one), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, s1), s2);
}

/* p * 2^n, rounded once, for 0.5 < p < 2 and -150 <= n <= 130; `biased` is 1.5 * 2^23 + n. */
ENG_INLINE v16 v_scale(v16 p, v16 n, v16 biased)
{
    (void)n;
    return v_pair(v_scale_half(p.lo, biased.lo), v_scale_half(p.hi, biased.hi));
}

#else
#define ENG_LEVEL(name) name##_plain

typedef struct {
    float lane[V_LANES];
} v16;

ENG_INLINE v16 v_set1(float x)
{
    v16 a;
    for (unsigned i = 0; i < V_LANES; i++)
        a.lane[i] = x;
    return a;
}

ENG_INLINE v16 v_load(const float *p)
{
    v16 a;
    memcpy(a.lane, p, sizeof(a.lane));
    return a;
}

ENG_INLINE void v_store(float *p, v16 a)
{
    memcpy(p, a.lane, sizeof(a.lane));
}

/* The first n < 16 lanes; the others are +0. */
ENG_INLINE v16 v_load_part(const float *p, uint64_t n)
{
    v16 a = {{0}};
    memcpy(a.lane, p, n * sizeof(*p));
    return a;
}

ENG_INLINE void v_store_part(float *p, uint64_t n, v16 a)
{
    memcpy(p, a.lane, n * sizeof(*p));
}

ENG_INLINE v16 v_load_f16(const uint16_t *p)
{
    v16 a;
    for (unsigned i = 0; i < V_LANES; i++)
        a.lane[i] = eng_f16_to_f32(half_get(p + i));
    return a;
}

ENG_INLINE v16 v_load_bf16(const uint16_t *p)
{
    v16 a;
    for (unsigned i = 0; i < V_LANES; i++)
        a.lane[i] = eng_bf16_to_f32(half_get(p + i));
    return a;
}

ENG_INLINE void v_store_f16(uint16_t *p, v16 a)
{
    for (unsigned i = 0; i < V_LANES; i++)
        half_put(p + i, eng_f32_to_f16(a.lane[i]));
}

ENG_INLINE void v_store_bf16(uint16_t *p, v16 a)
{
    for (unsigned i = 0; i < V_LANES; i++)
        half_put(p + i, eng_f32_to_bf16(a.lane[i]));
}

ENG_INLINE v16 v_fma(v16 a, v16 b, v16 c)
{
    for (unsigned i = 0; i < V_LANES; i++)
        c.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
    return c;
}

ENG_INLINE v16 v_add(v16 a, v16 b)
{
    for (unsigned i = 0; i < V_LANES; i++)
        a.lane[i] += b.lane[i];
    return a;
}

ENG_INLINE v16 v_sub(v16 a, v16 b)
{
    for (unsigned i = 0; i < V_LANES; i++)
        a.lane[i] -= b.lane[i];
    return a;
}

ENG_INLINE v16 v_mul(v16 a, v16 b)
{
    for (unsigned i = 0; i < V_LANES; i++)
        a.lane[i] *= b.lane[i];
    return a;
}

ENG_INLINE v16 v_div(v16 a, v16 b)
{
    for (unsigned i = 0; i < V_LANES; i++)
        a.lane[i] /= b.lane[i];
    return a;
}

/* a < b ? a : b */
ENG_INLINE v16 v_min(v16 a, v16 b)
{
    for (unsigned i = 0; i < V_LANES; i++)
        a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}

/* a > b ? a : b */
ENG_INLINE v16 v_max(v16 a, v16 b)
{
    for (unsigned i = 0; i < V_LANES; i++)
        a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}

/* p * 2^n, rounded once, for 0.5 < p < 2 and -150 <= n <= 130; `biased` is 1.5 * 2^23 + n.
 * Two factors 2^(n/2) and 2^(n - n/2): neither leaves the range, and the first product is exact. */
ENG_INLINE v16 v_scale(v16 p, v16 whole, v16 biased)
{
    (void)whole;
    for (unsigned i = 0; i < V_LANES; i++) {
        uint32_t bits;
        memcpy(&bits, &biased.lane[i], sizeof(bits));
        uint32_t n = bits - 0x4b400000u; /* two's complement; NaN gives some number, no more */
        uint32_t n1 = (n >> 1) | (n & 0x80000000u);
        uint32_t s1_bits = (n1 + 127u) << 23;
        uint32_t s2_bits = (n - n1 + 127u) << 23;
        float s1;
        float s2;
        memcpy(&s1, &s1_bits, sizeof(s1));
        memcpy(&s2, &s2_bits, sizeof(s2));
        p.lane[i] = p.lane[i] * s1 * s2;
    }
    return p;
}
#endif

ENG_INLINE v16 v_zero(void)
{
    return v_set1(0.0f);
}

/* Sixteen values of a storage type as floats. */
ENG_INLINE v16 v_load_as(const void *p, uint64_t index, enum eng_dtype dtype)
{
    if (dtype == ENG_F32)
        return v_load((const float *)p + index);
    if (dtype == ENG_F16)
        return v_load_f16((const uint16_t *)p + index);
    return v_load_bf16((const uint16_t *)p + index);
}

#endif
