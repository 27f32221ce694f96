/* Coarse codes, 16 channels a step. Adds: AVX-512.
 *
 *   decode   four units of 16 channels, whose scales stay in registers, over some rows: a row
 *            of a tile is whole cache lines, and a scale is widened once for those rows
 *   codes    a plane's bits are broadcast and shifted into their lanes; "or the bits of 2^23, minus
 *            (2^23 - 1/2)" makes code + 1/2 of them without a conversion
 *   encode   a unit of all rows at a time: widened once, then scales, then codes
 *
 * Threads: any. Tests: tests/unit/kernels/test_code.c */
#include "kernels/code.h"
#include "kernels/cpu/unroll.h"

#if defined(__x86_64__)
#include "kernels/cpu/reduce.h"

#include <immintrin.h>
#include <string.h>

#define UNIT       SC_KERNELS_CODE_UNIT
#define TILE_UNITS 4u
#define ROUND      (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define INLINE     static inline __attribute__((always_inline))

INLINE int32_t word_at(const uint8_t *src)
{
    int32_t word;
    memcpy(&word, src, sizeof(word));
    return word;
}

/* Bits [0, width) of each lane are the unit's bits of a plane; what stands above them is not. */
INLINE __m512i plane_of(const uint8_t *src, uint32_t width)
{
    const __m512i twos =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i fours =
        _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    if (width == 8)
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)src));
    if (width == 2)
        return _mm512_srlv_epi32(_mm512_set1_epi32(word_at(src)), twos);
    __m512i both =
        _mm512_mask_set1_epi32(_mm512_set1_epi32(word_at(src)), 0xff00, word_at(src + 4));
    return _mm512_srlv_epi32(both, fours);
}

/* code + 1/2 of a unit. low, high: its bits in the two planes; `bits` is a constant. */
INLINE __m512 halves_of(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    uint32_t width = bits >= 8 ? 8 : bits >= 4 ? 4 : 2, rest = bits - width;
    const __m512i whole = _mm512_set1_epi32(0x4b000000); /* 2^23 */
    const __m512i mask = _mm512_set1_epi32((1 << width) - 1);
    __m512i code = _mm512_ternarylogic_epi32(plane_of(low, width), mask, whole, 0xea);
    if (rest == 2) {
        __m512i above = _mm512_and_si512(plane_of(high, 2), _mm512_set1_epi32(3));
        code = _mm512_or_si512(code, _mm512_slli_epi32(above, 4));
    } else if (rest == 1) {
        uint16_t set;
        memcpy(&set, high, sizeof(set));
        code = _mm512_mask_or_epi32(code, set, code, _mm512_set1_epi32(1 << width));
    }
    return _mm512_sub_ps(_mm512_castsi512_ps(code), _mm512_set1_ps(8388607.5f));
}

INLINE __m256i narrowed(__m512 value, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F16)
        return _mm512_cvtps_ph(value, ROUND);
    __m512i bits = _mm512_castps_si512(value);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}

INLINE void value_store(uint8_t *dst, __m512 value, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        _mm512_storeu_ps(dst, value);
    else
        _mm256_storeu_si256((void *)dst, narrowed(value, dtype));
}

/* A line, past the caches: one unit of float32, two of the others. */
INLINE void line_stream(uint8_t *dst, const __m512 *values, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32) {
        _mm512_stream_ps((float *)(void *)dst, values[0]);
        return;
    }
    __m512i low = _mm512_castsi256_si512(narrowed(values[0], dtype));
    _mm512_stream_si512((void *)dst, _mm512_inserti64x4(low, narrowed(values[1], dtype), 1));
}

INLINE __m512 scale_at(const uint8_t *src)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)src));
}

struct rows { /* those that have a place */
    const uint8_t *codes[SC_KERNELS_CODE_ROWS_MAX];
    uint8_t *dst[SC_KERNELS_CODE_ROWS_MAX];
    uint64_t count;
};

/* Units [unit, unit + units) of rows [first, end); dst of a row is where dst_unit stands. */
INLINE void tile_decode(const struct rows *rows, uint64_t first, uint64_t end,
                        const uint8_t *scales, uint64_t padded, uint64_t unit, uint64_t dst_unit,
                        uint32_t units, uint32_t bits, uint32_t dtype, bool streams)
{
    uint64_t width = bits >= 8 ? 8 : bits >= 4 ? 4 : 2, rest = bits - width;
    uint64_t unit_bytes = UNIT * (dtype == SC_KERNELS_F32 ? 4 : 2);
    __m512 min[TILE_UNITS], step[TILE_UNITS];
    SC_UNROLL
    for (uint32_t u = 0; u < units; u++) {
        min[u] = scale_at(scales + (unit + u) * UNIT * 2);
        step[u] = scale_at(scales + (padded + (unit + u) * UNIT) * 2);
    }
    for (uint64_t r = first; r < end; r++) {
        const uint8_t *low = rows->codes[r] + unit * width * 2;
        const uint8_t *high = rows->codes[r] + padded * width / 8 + unit * rest * 2;
        uint8_t *dst = rows->dst[r] + (unit - dst_unit) * unit_bytes;
        __m512 values[TILE_UNITS];
        SC_UNROLL
        for (uint32_t u = 0; u < units; u++) {
            __m512 half = halves_of(low + u * width * 2, high + u * rest * 2, bits);
            values[u] = _mm512_fmadd_ps(half, step[u], min[u]);
            if (!streams)
                value_store(dst + u * unit_bytes, values[u], dtype);
        }
        SC_UNROLL
        for (uint32_t u = 0; streams && u < units; u += dtype == SC_KERNELS_F32 ? 1 : 2)
            line_stream(dst + u * unit_bytes, values + u, dtype);
    }
}

/* ---- Encoding ------------------------------------------------------------------------------- */

struct unit { /* 16 channels of all rows */
    float values[SC_KERNELS_CODE_ROWS_MAX][UNIT];
};

INLINE __m512 values_at(const uint8_t *row, uint64_t channel, __mmask16 live, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        return _mm512_maskz_loadu_ps(live, row + channel * 4);
    __m256i half = _mm256_maskz_loadu_epi16(live, row + channel * 2);
    if (dtype == SC_KERNELS_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Lanes that are infinite or not a number. */
INLINE __mmask16 infinite(__m512 x)
{
    return _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(__builtin_inff()), _CMP_NLT_UQ);
}

/* Widens a unit and finds its scales; false: one is not finite. */
INLINE bool unit_scale(const uint8_t *const *rows, uint64_t row_count, uint64_t channel,
                       __mmask16 live, uint32_t bits, uint32_t dtype, struct unit *unit,
                       __m256i *ret_min, __m256i *ret_step)
{
    __m512 least = _mm512_set1_ps(__builtin_inff()), most = _mm512_set1_ps(-__builtin_inff());
    __mmask16 bad = 0;
    for (uint64_t i = 0; i < row_count; i++) {
        __m512 x = values_at(rows[i], channel, live, dtype);
        _mm512_storeu_ps(unit->values[i], x);
        bad |= infinite(x);
        least = _mm512_min_ps(x, least);
        most = _mm512_max_ps(x, most);
    }
    float levels = (float)(1u << bits);
    __m512 step = _mm512_mul_ps(_mm512_sub_ps(most, least), _mm512_set1_ps(1 / levels));
    *ret_min = _mm512_cvtps_ph(least, ROUND);
    *ret_step = _mm512_cvtps_ph(step, ROUND);
    bad |= infinite(_mm512_cvtph_ps(*ret_min)) | infinite(_mm512_cvtph_ps(*ret_step));
    return bad == 0;
}

INLINE void codes_put(uint8_t *row, uint64_t padded, uint64_t channel, __m512i code, uint32_t bits)
{
    uint64_t width = bits >= 8 ? 8 : bits >= 4 ? 4 : 2, rest = bits - width;
    uint8_t *low = row + channel * width / 8, *high = row + (padded * width + channel * rest) / 8;
    const __m128i ones_fours = _mm_set1_epi16(0x0401), ones_sixteens = _mm_set1_epi16(0x1001);
    __m512i kept = _mm512_and_si512(code, _mm512_set1_epi32((1 << width) - 1));
    __m512i above = _mm512_srli_epi32(code, (unsigned)width);
    __m128i bytes = _mm512_cvtepi32_epi8(width == 2 ? code : kept);
    if (width == 8)
        _mm_storeu_si128((void *)low, bytes);
    if (width == 4) {
        __m128i pairs = _mm_maddubs_epi16(bytes, ones_sixteens);
        _mm_storel_epi64((void *)low, _mm_packus_epi16(pairs, pairs));
    }
    if (width == 2 || rest == 2) {
        __m128i two = _mm512_cvtepi32_epi8(width == 2 ? kept : above);
        __m128i quads =
            _mm_madd_epi16(_mm_maddubs_epi16(two, ones_fours), _mm_set1_epi32(0x100001));
        int32_t word = _mm_cvtsi128_si32(_mm_cvtepi32_epi8(quads));
        memcpy(width == 2 ? low : high, &word, sizeof(word));
    }
    if (rest == 1) {
        uint16_t set = _mm512_test_epi32_mask(above, _mm512_set1_epi32(1));
        memcpy(high, &set, sizeof(set));
    }
}

INLINE bool encode(const struct sc_kernels_code *code, const uint8_t *const *rows,
                   uint64_t row_count, uint8_t *scales, uint8_t *codes, uint32_t bits,
                   uint32_t dtype)
{
    uint64_t padded = sc_kernels_code_padded(code->channels);
    uint64_t row_bytes = sc_kernels_code_row_bytes(code->channels, bits);
    const __m512 top = _mm512_set1_ps((float)((1u << bits) - 1));
    struct unit unit;
    for (uint64_t c = 0; c < code->channels; c += UNIT) {
        uint64_t left = code->channels - c;
        __mmask16 live = left >= UNIT ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
        __m256i min16, step16;
        if (!unit_scale(rows, row_count, c, live, bits, dtype, &unit, &min16, &step16))
            return false;
        _mm256_storeu_si256((void *)(scales + c * 2), min16);
        _mm256_storeu_si256((void *)(scales + (padded + c) * 2), step16);
        __m512 min = _mm512_cvtph_ps(min16), step = _mm512_cvtph_ps(step16);
        __mmask16 has_step = _mm512_cmp_ps_mask(step, _mm512_setzero_ps(), _CMP_GT_OQ);
        for (uint64_t i = 0; i < row_count; i++) {
            __m512 at = _mm512_sub_ps(_mm512_loadu_ps(unit.values[i]), min);
            at = _mm512_max_ps(_mm512_maskz_div_ps(has_step, at, step), _mm512_setzero_ps());
            at = _mm512_min_ps(at, top);
            codes_put(codes + i * row_bytes, padded, c, _mm512_cvttps_epi32(at), bits);
        }
    }
    return true;
}

/* ---- Scores --------------------------------------------------------------------------------- */

/* code - levels / 2 + 1/2 of a unit, in the order of in_order. Codes of 4 and 2 bits are indexes of
 * a table in a register: what stands above them in a lane is their neighbours', and so is not
 * looked at or looked up alike. */
INLINE __m512 unit_centred(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    if (bits != 4 && bits != 2)
        return _mm512_sub_ps(halves_of(low, high, bits), _mm512_set1_ps((float)(1u << bits) / 2));
    if (bits == 2) {
        const __m512i twos =
            _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        const __m512 values = _mm512_setr_ps(-1.5f, -0.5f, 0.5f, 1.5f, -1.5f, -0.5f, 0.5f, 1.5f,
                                             -1.5f, -0.5f, 0.5f, 1.5f, -1.5f, -0.5f, 0.5f, 1.5f);
        return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi32(word_at(low)), twos),
                                     values);
    }
    int64_t both;
    memcpy(&both, low, sizeof(both));
    const __m512i fours = /* lane 2 i: channel i, lane 2 i + 1: channel 8 + i */
        _mm512_set_epi32(28, 28, 24, 24, 20, 20, 16, 16, 12, 12, 8, 8, 4, 4, 0, 0);
    const __m512 values = _mm512_setr_ps(-7.5f, -6.5f, -5.5f, -4.5f, -3.5f, -2.5f, -1.5f, -0.5f,
                                         0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f, 7.5f);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi64(both), fours), values);
}

/* A step is a unit. */
#define CODE_STEP_VECTORS 1u
INLINE uint32_t step_vectors(uint32_t bits)
{
    (void)bits;
    return 1;
}

INLINE void centred_of(const uint8_t *low, const uint8_t *high, uint32_t bits, __m512 *ret_values)
{
    *ret_values = unit_centred(low, high, bits);
}

/* 16 values of channels as centred_of has them. */
INLINE void in_order(__m512 *values, uint32_t bits)
{
    const __m512i places = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    if (bits == 4)
        *values = _mm512_permutexvar_ps(places, *values);
}

INLINE __m512 product_add(__m512 a, __m512 b, __m512 sum)
{
    return _mm512_fmadd_ps(a, b, sum);
}

#define CODE_NAME(name) sc_kernels_avx512_code_##name
#define CODE_LANES      UNIT
#define CODE_TILE_ROWS  8u
#define CODE_STREAMS    true
#define CODE_TILE       TILE_UNITS
#define CODE_VECTOR     __m512
#define CODE_SUMS       16u
#define CODE_SET        _mm512_set1_ps
#define CODE_LOAD       _mm512_loadu_ps
#define CODE_STORE      _mm512_storeu_ps
#define CODE_ADD        _mm512_add_ps
#define CODE_MULTIPLY   _mm512_mul_ps
#define sums_of         sc_kernels_reduce16
#include "kernels/cpu/code_rung.h"
#endif
