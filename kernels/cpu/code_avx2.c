/* Coarse codes, 8 channels a step: half a unit of 16. Adds: AVX2, FMA, F16C. The shape is
 * code_avx512.c's: tiles of rows whose scales stay in registers; codes made by broadcast and shift.
 *
 * Threads: any. Tests: tests/unit/kernels/test_code.c */
#include "kernels/code.h"
#include "kernels/cpu/unroll.h"

#if defined(__x86_64__)
#include "kernels/cpu/reduce.h"

#include <immintrin.h>
#include <string.h>

#define UNIT       SC_KERNELS_CODE_UNIT
#define LANES      8u
#define TILE_STEPS 4u /* of 8 channels */
#define ROUND      (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define INLINE     static inline __attribute__((always_inline))

/* Bits [0, width) of each lane are 8 channels' bits of a plane; what stands above them is not. */
INLINE __m256i plane_of(const uint8_t *src, uint32_t width)
{
    int32_t word = 0;
    if (width == 8)
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)src));
    memcpy(&word, src, width); /* 8 channels are `width` bytes */
    __m256i shifts = width == 4   ? _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0)
                     : width == 2 ? _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0)
                                  : _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
}

/* code + 1/2 of 8 channels. low, high: their bits in the two planes; `bits` is a constant. */
INLINE __m256 halves_of(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    uint32_t width = bits >= 8 ? 8 : bits >= 4 ? 4 : 2, rest = bits - width;
    __m256i code = _mm256_and_si256(plane_of(low, width), _mm256_set1_epi32((1 << width) - 1));
    if (rest > 0) {
        __m256i mask = _mm256_set1_epi32((1 << rest) - 1);
        __m256i above = _mm256_and_si256(plane_of(high, rest), mask);
        code = _mm256_or_si256(code, _mm256_slli_epi32(above, (int)width));
    }
    code = _mm256_or_si256(code, _mm256_set1_epi32(0x4b000000)); /* + 2^23 */
    return _mm256_sub_ps(_mm256_castsi256_ps(code), _mm256_set1_ps(8388607.5f));
}

/* code + 1/2 of a unit. Codes of 2 bits are places in a register, which looks at no bit above. */
INLINE void unit_halves(const uint8_t *low, const uint8_t *high, uint32_t bits, __m256 *ret_first,
                        __m256 *ret_second)
{
    uint32_t width = bits >= 8 ? 8 : bits >= 4 ? 4 : 2, rest = bits - width;
    if (bits != 2) {
        *ret_first = halves_of(low, high, bits);
        *ret_second = halves_of(low + width, high + rest, bits);
        return;
    }
    int32_t word;
    memcpy(&word, low, sizeof(word));
    __m256i both = _mm256_set1_epi32(word);
    const __m256 halves = _mm256_set_ps(3.5f, 2.5f, 1.5f, 0.5f, 3.5f, 2.5f, 1.5f, 0.5f);
    const __m256i first = _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0);
    const __m256i second = _mm256_set_epi32(30, 28, 26, 24, 22, 20, 18, 16);
    *ret_first = _mm256_permutevar_ps(halves, _mm256_srlv_epi32(both, first));
    *ret_second = _mm256_permutevar_ps(halves, _mm256_srlv_epi32(both, second));
}

INLINE __m128i narrowed(__m256 value, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F16)
        return _mm256_cvtps_ph(value, ROUND);
    __m256i bits = _mm256_castps_si256(value);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    bits = _mm256_srli_epi32(bits, 16);
    bits = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08);
    return _mm256_castsi256_si128(bits);
}

INLINE void values_store(uint8_t *dst, __m256 values, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32)
        _mm256_storeu_ps((float *)(void *)dst, values);
    else
        _mm_storeu_si128((void *)dst, narrowed(values, dtype));
}

/* A unit. Whole registers: halves of them keep as many stores waiting for a line. */
INLINE void unit_store(uint8_t *dst, __m256 first, __m256 second, uint32_t dtype)
{
    if (dtype == SC_KERNELS_F32) {
        values_store(dst, first, dtype);
        values_store(dst + sizeof(first), second, dtype);
        return;
    }
    __m256i low = _mm256_castsi128_si256(narrowed(first, dtype));
    _mm256_storeu_si256((void *)dst, _mm256_inserti128_si256(low, narrowed(second, dtype), 1));
}

INLINE __m256 scale_at(const uint8_t *src)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)src));
}

struct rows { /* those that have a place */
    const uint8_t *codes[SC_KERNELS_CODE_ROWS_MAX];
    uint8_t *dst[SC_KERNELS_CODE_ROWS_MAX];
    uint64_t count;
};

/* Steps [step, step + steps) of rows [first, end), one or an even number; dst of a row is where
 * dst_step stands. Through the caches, whatever streams says: here (measured on Zen 3) what is
 * computed waits for stores that go past them, and those that do not are a third faster. */
INLINE void tile_decode(const struct rows *rows, uint64_t first, uint64_t end,
                        const uint8_t *scales, uint64_t padded, uint64_t step, uint64_t dst_step,
                        uint32_t steps, uint32_t bits, uint32_t dtype, bool streams)
{
    uint64_t width = bits >= 8 ? 8 : bits >= 4 ? 4 : 2, rest = bits - width;
    uint64_t step_bytes = LANES * (dtype == SC_KERNELS_F32 ? 4 : 2);
    __m256 mins[TILE_STEPS], sizes[TILE_STEPS];
    (void)streams;
    SC_UNROLL
    for (uint32_t s = 0; s < steps; s++) {
        mins[s] = scale_at(scales + (step + s) * LANES * 2);
        sizes[s] = scale_at(scales + (padded + (step + s) * LANES) * 2);
    }
    for (uint64_t r = first; r < end; r++) {
        const uint8_t *low = rows->codes[r] + step * width;
        const uint8_t *high = rows->codes[r] + padded * width / 8 + step * rest;
        uint8_t *dst = rows->dst[r] + (step - dst_step) * step_bytes;
        if (steps == 1) {
            __m256 half = halves_of(low, high, bits);
            values_store(dst, _mm256_fmadd_ps(half, sizes[0], mins[0]), dtype);
            continue;
        }
        SC_UNROLL
        for (uint32_t s = 0; s < steps; s += 2) {
            __m256 even, odd;
            unit_halves(low + s * width, high + s * rest, bits, &even, &odd);
            unit_store(dst + s * step_bytes, _mm256_fmadd_ps(even, sizes[s], mins[s]),
                       _mm256_fmadd_ps(odd, sizes[s + 1], mins[s + 1]), dtype);
        }
    }
}

/* ---- Encoding ------------------------------------------------------------------------------- */

struct unit { /* 16 channels of all rows */
    float values[SC_KERNELS_CODE_ROWS_MAX][UNIT];
};

/* `left` channels from `channel` on are there, at most 8 are read; the others are 0. */
INLINE __m256 values_at(const uint8_t *row, uint64_t channel, uint64_t left, uint32_t dtype)
{
    uint64_t size = dtype == SC_KERNELS_F32 ? 4 : 2;
    uint8_t some[LANES * 4] = {0};
    const uint8_t *src = row + channel * size;
    if (left < LANES) {
        memcpy(some, src, left * size);
        src = some;
    }
    if (dtype == SC_KERNELS_F32)
        return _mm256_loadu_ps((const float *)(const void *)src);
    __m128i half = _mm_loadu_si128((const void *)src);
    if (dtype == SC_KERNELS_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Not 0: some lane is infinite or not a number. */
INLINE int infinite(__m256 x)
{
    __m256 size = _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
    return _mm256_movemask_ps(_mm256_cmp_ps(size, _mm256_set1_ps(__builtin_inff()), _CMP_NLT_UQ));
}

/* Widens 8 channels, lane.. of a unit, and finds their scales; false: one is not finite. */
INLINE bool lanes_scale(const uint8_t *const *rows, uint64_t row_count, uint64_t channel,
                        uint64_t left, uint32_t bits, uint32_t dtype, struct unit *unit,
                        uint64_t lane, __m128i *ret_min, __m128i *ret_step)
{
    __m256 least = _mm256_set1_ps(__builtin_inff()), most = _mm256_set1_ps(-__builtin_inff());
    int bad = 0;
    for (uint64_t i = 0; i < row_count; i++) {
        __m256 x = values_at(rows[i], channel, left, dtype);
        _mm256_storeu_ps(unit->values[i] + lane, x);
        bad |= infinite(x);
        least = _mm256_min_ps(x, least);
        most = _mm256_max_ps(x, most);
    }
    float levels = (float)(1u << bits);
    __m256 step = _mm256_mul_ps(_mm256_sub_ps(most, least), _mm256_set1_ps(1 / levels));
    *ret_min = _mm256_cvtps_ph(least, ROUND);
    *ret_step = _mm256_cvtps_ph(step, ROUND);
    bad |= infinite(_mm256_cvtph_ps(*ret_min)) | infinite(_mm256_cvtph_ps(*ret_step));
    return bad == 0;
}

/* The codes of 8 lanes of a row, as int32. */
INLINE __m256i lanes_code(const struct unit *unit, uint64_t row, uint64_t lane, __m128i min16,
                          __m128i step16, float top)
{
    __m256 min = _mm256_cvtph_ps(min16), step = _mm256_cvtph_ps(step16);
    __m256 has_step = _mm256_cmp_ps(step, _mm256_setzero_ps(), _CMP_GT_OQ);
    __m256 at = _mm256_sub_ps(_mm256_loadu_ps(unit->values[row] + lane), min);
    at = _mm256_and_ps(_mm256_div_ps(at, step), has_step);
    at = _mm256_max_ps(at, _mm256_setzero_ps());
    return _mm256_cvttps_epi32(_mm256_min_ps(at, _mm256_set1_ps(top)));
}

INLINE __m128i bytes_of(__m256i low, __m256i high)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* 16 codes, a byte each. */
INLINE void codes_put(uint8_t *row, uint64_t padded, uint64_t channel, __m128i bytes, uint32_t bits)
{
    uint64_t width = bits >= 8 ? 8 : bits >= 4 ? 4 : 2, rest = bits - width;
    uint8_t *low = row + channel * width / 8, *high = row + (padded * width + channel * rest) / 8;
    __m128i kept = _mm_and_si128(bytes, _mm_set1_epi8((char)((1 << width) - 1)));
    __m128i above =
        _mm_and_si128(_mm_srli_epi16(bytes, (int)width), _mm_set1_epi8((char)((1 << rest) - 1)));
    if (width == 8)
        _mm_storeu_si128((void *)low, bytes);
    if (width == 4) {
        __m128i pairs = _mm_maddubs_epi16(kept, _mm_set1_epi16(0x1001));
        _mm_storel_epi64((void *)low, _mm_packus_epi16(pairs, pairs));
    }
    if (width == 2 || rest == 2) {
        __m128i two = _mm_maddubs_epi16(width == 2 ? kept : above, _mm_set1_epi16(0x0401));
        __m128i quads = _mm_madd_epi16(two, _mm_set1_epi32(0x100001));
        quads = _mm_packus_epi16(_mm_packus_epi32(quads, quads), quads);
        int32_t word = _mm_cvtsi128_si32(quads);
        memcpy(width == 2 ? low : high, &word, sizeof(word));
    }
    if (rest == 1) {
        uint16_t set = (uint16_t)_mm_movemask_epi8(_mm_slli_epi16(above, 7));
        memcpy(high, &set, sizeof(set));
    }
}

INLINE bool encode(const struct sc_kernels_code *code, const uint8_t *const *rows,
                   uint64_t row_count, uint8_t *scales, uint8_t *codes, uint32_t bits,
                   uint32_t dtype)
{
    uint64_t padded = sc_kernels_code_padded(code->channels);
    uint64_t row_bytes = sc_kernels_code_row_bytes(code->channels, bits);
    float top = (float)((1u << bits) - 1);
    struct unit unit;
    for (uint64_t c = 0; c < code->channels; c += UNIT) {
        uint64_t left = code->channels - c, more = left > LANES ? left - LANES : 0;
        __m128i min[2], step[2];
        if (!lanes_scale(rows, row_count, c, left, bits, dtype, &unit, 0, &min[0], &step[0]) ||
            !lanes_scale(rows, row_count, c + LANES, more, bits, dtype, &unit, LANES, &min[1],
                         &step[1]))
            return false;
        for (uint32_t half = 0; half < 2; half++) {
            _mm_storeu_si128((void *)(scales + (c + half * LANES) * 2), min[half]);
            _mm_storeu_si128((void *)(scales + (padded + c + half * LANES) * 2), step[half]);
        }
        for (uint64_t i = 0; i < row_count; i++) {
            __m256i low = lanes_code(&unit, i, 0, min[0], step[0], top);
            __m256i high = lanes_code(&unit, i, LANES, min[1], step[1], top);
            codes_put(codes + i * row_bytes, padded, c, bytes_of(low, high), bits);
        }
    }
    return true;
}

/* ---- Scores --------------------------------------------------------------------------------- */

#define CODE_STEP_VECTORS 4u
#define SIXTEEN(...)      _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))

/* Vectors that centred_of makes at once. */
INLINE uint32_t step_vectors(uint32_t bits)
{
    return bits == 8 ? 1 : CODE_STEP_VECTORS;
}

/* The same bit of a plane of single bits for each byte: 0 or `value`. bytes, bits: where it is. */
INLINE __m256i single_of(const uint8_t *src, __m256i bytes, __m256i bits, char value)
{
    int32_t word;
    memcpy(&word, src, sizeof(word));
    __m256i some = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), bytes), bits);
    return _mm256_and_si256(_mm256_cmpeq_epi8(some, bits), _mm256_set1_epi8(value));
}

/* 32 codes, a byte each. Byte 16 l + i is channel 2 i + l. */
INLINE __m256i fours_of(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    __m256i codes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)low));
    codes = _mm256_and_si256(_mm256_srlv_epi64(codes, _mm256_setr_epi64x(0, 0, 4, 4)),
                             _mm256_set1_epi8(15));
    if (bits == 5) {
        const __m256i bytes = SIXTEEN(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        const __m256i places =
            _mm256_setr_epi32(0x40100401, 0x40100401, 0x40100401, 0x40100401, (int32_t)0x80200802,
                              (int32_t)0x80200802, (int32_t)0x80200802, (int32_t)0x80200802);
        codes = _mm256_or_si256(codes, single_of(high, bytes, places, 16));
    } else if (bits == 6) {
        int64_t both;
        memcpy(&both, high, sizeof(both));
        __m256i twos = _mm256_srlv_epi64(_mm256_set1_epi64x(both), _mm256_setr_epi64x(0, 0, 2, 2));
        twos = _mm256_unpacklo_epi8(_mm256_slli_epi16(twos, 4), twos);
        codes = _mm256_or_si256(codes, _mm256_and_si256(twos, _mm256_set1_epi8(0x30)));
    }
    return codes;
}

/* The same of codes of 2 and 3 bits. Byte 8 j + i is channel 4 i + j. */
INLINE __m256i twos_of(const uint8_t *low, const uint8_t *high, uint32_t bits)
{
    int64_t all;
    memcpy(&all, low, sizeof(all));
    __m256i codes = _mm256_srlv_epi64(_mm256_set1_epi64x(all), _mm256_setr_epi64x(0, 2, 4, 6));
    codes = _mm256_and_si256(codes, _mm256_set1_epi8(3));
    if (bits == 3) {
        const __m256i bytes = SIXTEEN(0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3);
        const __m256i places =
            _mm256_setr_epi32(0x10011001, 0x10011001, 0x20022002, 0x20022002, 0x40044004,
                              0x40044004, (int32_t)0x80088008, (int32_t)0x80088008);
        codes = _mm256_or_si256(codes, single_of(high, bytes, places, 4));
    }
    return codes;
}

/* Byte 0 or 1 of code - levels / 2 + 1/2 in bfloat16, for each code of up to 4 bits. */
INLINE __m256i table_of(uint32_t bits, uint32_t byte)
{
    if (bits == 2)
        return byte == 0 ? SIXTEEN(-64, 0, 0, -64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
                         : SIXTEEN(-65, -65, 63, 63, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    if (bits == 3)
        return byte == 0 ? SIXTEEN(96, 32, -64, 0, 0, -64, 32, 96, 0, 0, 0, 0, 0, 0, 0, 0)
                         : SIXTEEN(-64, -64, -65, -65, 63, 63, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0);
    return byte == 0
               ? SIXTEEN(-16, -48, -80, -112, 96, 32, -64, 0, 0, -64, 32, 96, -112, -80, -48, -16)
               : SIXTEEN(-64, -64, -64, -64, -64, -64, -65, -65, 63, 63, 64, 64, 64, 64, 64, 64);
}

/* code - levels / 2 + 1/2 of 32 channels (8 bits: of 8), in the order of in_order. Up to 6 bits
 * they are exact in bfloat16, the upper half of a float32: its two bytes are looked up, or are 0x43
 * and the code, which is 128 + code. What 8 channels cost is a fourth of the bytes' making, half an
 * unpacking, and a shift or a mask. */
INLINE void centred_of(const uint8_t *low, const uint8_t *high, uint32_t bits, __m256 *ret_values)
{
    if (bits == 8) {
        __m256 code = _mm256_cvtepi32_ps(plane_of(low, 8));
        ret_values[0] = _mm256_sub_ps(code, _mm256_set1_ps(127.5f));
        return;
    }
    __m256i codes = bits < 4 ? twos_of(low, high, bits) : fours_of(low, high, bits);
    __m256i above = _mm256_set1_epi8(0x43);
    if (bits <= 4) {
        above = _mm256_shuffle_epi8(table_of(bits, 1), codes);
        codes = _mm256_shuffle_epi8(table_of(bits, 0), codes);
    }
    const __m256i odd = _mm256_set1_epi32((int32_t)0xffff0000);
    __m256i pairs[2] = {_mm256_unpacklo_epi8(codes, above), _mm256_unpackhi_epi8(codes, above)};
    SC_UNROLL
    for (uint32_t i = 0; i < CODE_STEP_VECTORS; i++) {
        __m256i wide =
            i % 2 == 0 ? _mm256_slli_epi32(pairs[i / 2], 16) : _mm256_and_si256(pairs[i / 2], odd);
        ret_values[i] = _mm256_castsi256_ps(wide);
        if (bits > 4)
            ret_values[i] =
                _mm256_sub_ps(ret_values[i], _mm256_set1_ps(127.5f + (float)(1u << bits) / 2));
    }
}

/* Values of as many channels as centred_of takes become ordered as it has them. */
INLINE void in_order(__m256 *values, uint32_t bits)
{
    if (bits == 8)
        return;
    if (bits >= 4) { /* of 16: 0 4 8 12 1 5 9 13, and these + 2 */
        const __m256i places = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
        SC_UNROLL
        for (uint32_t i = 0; i < CODE_STEP_VECTORS; i += 2) {
            __m256d a = _mm256_castps_pd(_mm256_permutevar8x32_ps(values[i], places));
            __m256d b = _mm256_castps_pd(_mm256_permutevar8x32_ps(values[i + 1], places));
            values[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            values[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
        return;
    }
    /* 0 8 16 24 2 10 18 26, these + 4, + 1, + 5 */
    const __m256i places = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    __m256 v[CODE_STEP_VECTORS];
    SC_UNROLL
    for (uint32_t i = 0; i < CODE_STEP_VECTORS; i++) /* channels 0 2 4 6 of 8, then 1 3 5 7 */
        v[i] = _mm256_permutevar8x32_ps(values[i], places);
    /* places 0 2 | 1 3 */
    __m256d ab = _mm256_castps_pd(_mm256_unpacklo_ps(v[0], v[1]));
    __m256d cd = _mm256_castps_pd(_mm256_unpacklo_ps(v[2], v[3]));
    __m256d ab4 = _mm256_castps_pd(_mm256_unpackhi_ps(v[0], v[1]));
    __m256d cd4 = _mm256_castps_pd(_mm256_unpackhi_ps(v[2], v[3]));
    __m256 all[CODE_STEP_VECTORS] = {/* channel | channel of each 8 */
                                     _mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)),   /* 0 | 1 */
                                     _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)),   /* 2 | 3 */
                                     _mm256_castpd_ps(_mm256_unpacklo_pd(ab4, cd4)), /* 4 | 5 */
                                     _mm256_castpd_ps(_mm256_unpackhi_pd(ab4, cd4))};
    values[0] = _mm256_permute2f128_ps(all[0], all[1], 0x20);
    values[1] = _mm256_permute2f128_ps(all[2], all[3], 0x20);
    values[2] = _mm256_permute2f128_ps(all[0], all[1], 0x31);
    values[3] = _mm256_permute2f128_ps(all[2], all[3], 0x31);
}

INLINE __m256 product_add(__m256 a, __m256 b, __m256 sum)
{
    return _mm256_fmadd_ps(a, b, sum);
}

#define CODE_NAME(name) sc_kernels_avx2_code_##name
#define CODE_LANES      LANES
#define CODE_TILE       TILE_STEPS
#define CODE_TILE_ROWS  4u /* rows are often a multiple of 4 KiB apart: 8 lines of L1 for them all \
                            */
#define CODE_STREAMS  false
#define CODE_VECTOR   __m256
#define CODE_SUMS     8u
#define CODE_SET      _mm256_set1_ps
#define CODE_LOAD     _mm256_loadu_ps
#define CODE_STORE    _mm256_storeu_ps
#define CODE_ADD      _mm256_add_ps
#define CODE_MULTIPLY _mm256_mul_ps
#define sums_of       sc_kernels_reduce8
#include "kernels/cpu/code_rung.h"
#endif
