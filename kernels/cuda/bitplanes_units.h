/* bitplanes_units: reads codes, scales and rotations of a unit of per-channel quantised rows.
 *
 * A run's bits of a plane are up to 8 consecutive bits in a row: two bytes, a shift and a mask. Two
 * products spread them to one byte each, and a byte permutation (PRMT) with the table's selector
 * assigns them to channels. That is 17 operations a run and plane, whatever the bits
 * (docs/decisions/0033-cuda-kernels.md).
 * Tests: tests/unit/kernels/test_cuda_bitplanes.c, test_cuda_importance.c */
#ifndef SC_KERNELS_CUDA_BITPLANES_UNITS_H
#define SC_KERNELS_CUDA_BITPLANES_UNITS_H

#include "kernels/cuda/decode.h"

#define FEW_PAIRS 4u

struct Table {
    const uint8_t *units, *planes; /* records of 16 bytes */
    uint32_t unit_count, row_bytes, turned, end;
};

struct Unit {
    uint32_t head, rope_kind;
    uint32_t first[2], count[2], to[2];
};

SC_DEVICE Table table_of(const sc_cuda_bitplanes_table *at)
{
    uint4 word = sc_load16(at);
    Table table;
    table.unit_count = word.x;
    table.row_bytes = word.y;
    table.turned = word.z;
    table.end = word.w;
    table.units = reinterpret_cast<const uint8_t *>(at) + sizeof(*at);
    table.planes = table.units + table.unit_count * 16ull;
    return table;
}

SC_DEVICE Unit unit_of(const Table &table, uint32_t unit)
{
    uint4 word = sc_load16(table.units + unit * 16ull);
    return Unit{word.x & 0xffff,
                word.y >> 16 & 0xff,
                {word.x >> 16 & 0xff, word.x >> 24},
                {word.y & 0xff, word.y >> 8 & 0xff},
                {word.z, word.w}};
}

/* Loads the two bytes that have a run's bits of a plane; one byte twice if it has them all. */
SC_DEVICE uint32_t run_load(const uint8_t *row, uint32_t where)
{
    uint32_t over = (where >> 4 & 7) + (where & 15) > 8 ? 1 : 0;
    const uint8_t *at = row + (where >> 8);
    return sc_load1(at) | (uint32_t)sc_load1(at + over) << 8;
}

/* Spreads the bits to one byte each and adds them, by the plane's weight, to the codes. */
SC_DEVICE void run_add(uint32_t bits, uint32_t where, uint32_t select, uint32_t weight,
                       uint32_t code[2])
{
    bits = bits >> (where >> 4 & 7) & ((1u << (where & 15)) - 1);
    uint32_t low = bits_spread(bits & 15), high = bits_spread(bits >> 4);
    code[0] += __byte_perm(low, high, select & 0xffff) * weight;
    code[1] += __byte_perm(low, high, select >> 16) * weight;
}

/* Does the same for 8 bits that are one byte, of 8 channels. */
SC_DEVICE void run_add_plain(uint32_t bits, uint32_t weight, uint32_t code[2])
{
    code[0] += bits_spread(bits & 15) * weight;
    code[1] += bits_spread(bits >> 4) * weight;
}

SC_DEVICE bool is_plain(uint32_t where, uint32_t select)
{
    return (where & 0xff) == 8 && select == 0x76543210u;
}

/* Adds a table's planes of a unit. All loads of a plane are issued before the first is used. */
SC_DEVICE void planes_add(const Table &table, uint32_t unit, const uint8_t *const row[SHARE_ROWS],
                          uint32_t code[SHARE_ROWS][4])
{
#pragma unroll 1
    for (uint32_t p = 0; p < table.end; p++) {
        uint4 word = sc_load16(table.planes + (p * (uint64_t)table.unit_count + unit) * 16);
        uint32_t bits[SHARE_ROWS][2], weight = 0x80u >> p;
        if (is_plain(word.x, word.z) && is_plain(word.y, word.w)) {
#pragma unroll
            for (uint32_t k = 0; k < SHARE_ROWS; k++) {
                bits[k][0] = sc_load1(row[k] + (word.x >> 8));
                bits[k][1] = sc_load1(row[k] + (word.y >> 8));
            }
#pragma unroll
            for (uint32_t k = 0; k < SHARE_ROWS; k++) {
                run_add_plain(bits[k][0], weight, code[k]);
                run_add_plain(bits[k][1], weight, code[k] + 2);
            }
            continue;
        }
#pragma unroll
        for (uint32_t k = 0; k < SHARE_ROWS; k++) {
            bits[k][0] = run_load(row[k], word.x);
            bits[k][1] = run_load(row[k], word.y);
        }
#pragma unroll
        for (uint32_t k = 0; k < SHARE_ROWS; k++) {
            run_add(bits[k][0], word.x, word.z, weight, code[k]);
            run_add(bits[k][1], word.y, word.w, weight, code[k] + 2);
        }
    }
}


/* value = fma(code, factor, base) */
struct Factors {
    float factor[SC_CUDA_UNIT], base[SC_CUDA_UNIT];
};

/* Gain and middle by the bits of a code (kernels/bitplanes.h). */
SC_DEVICE float gain_of(uint32_t to)
{
    return to == 2 ? 1.0625f : 1.0f;
}

SC_DEVICE float middle_of(uint32_t to)
{
    return to == 2 ? 26.0f : __uint_as_float((127u + 7 - to) << 23);
}

SC_DEVICE Factors factors_of(const uint8_t *scales, uint32_t head_count, uint32_t head_size,
                             const Unit &unit)
{
    Factors made;
#pragma unroll
    for (uint32_t i = 0; i < SC_CUDA_UNIT; i++) {
        uint32_t run = i / SC_CUDA_RUN, c = i % SC_CUDA_RUN, bits = unit.to[run] >> 4 * c & 15;
        const uint8_t *at = scales + 2ull * (unit.head * head_size + unit.first[run] + c);
        made.factor[i] = made.base[i] = 0;
        if (c >= unit.count[run])
            continue;
        float least = number_widen(sc_load2_any(at));
        float span = number_widen(sc_load2_any(at + 2ull * head_count * head_size));
        float step = __fmul_rn(span, 0x1p-8f);
        made.factor[i] = __fmul_rn(step, gain_of(bits));
        made.base[i] = __fmaf_rn(middle_of(bits), step, least);
    }
    return made;
}

SC_DEVICE void unit_values(const uint32_t code[4], const Factors &factors,
                           float value[SC_CUDA_UNIT])
{
#pragma unroll
    for (uint32_t i = 0; i < SC_CUDA_UNIT; i++)
        value[i] = __fmaf_rn(code_float(code[i / 4], i), factors.factor[i], factors.base[i]);
}

/* Loads up to 4 values of a row's cos or sin. SHARED: `at` is in shared memory. */
template <bool SHARED>
SC_DEVICE void rope_load(const float *at, uint32_t count, float rope_kind[FEW_PAIRS])
{
    if (count >= FEW_PAIRS && sc_off(at, 16) == 0) {
        uint4 word = SHARED ? sc_shared16(at) : sc_load16(at);
        rope_kind[0] = __uint_as_float(word.x);
        rope_kind[1] = __uint_as_float(word.y);
        rope_kind[2] = __uint_as_float(word.z);
        rope_kind[3] = __uint_as_float(word.w);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < FEW_PAIRS; i++)
        rope_kind[i] = i >= count ? 0 : SHARED ? at[i] : __uint_as_float(sc_load4(at + i));
}

SC_DEVICE void pair_rope(float *a, float *b, float cosine, float sine)
{
    float x = *a, y = *b;
    *a = __fmaf_rn(-y, sine, __fmul_rn(x, cosine));
    *b = __fmaf_rn(x, sine, __fmul_rn(y, cosine));
}

/* Rotates pairs `pair` .. + 3 of a row, `count` of which exist. step 1: a pair's values are
 * SC_CUDA_RUN apart; 2: adjacent. */
template <bool SHARED>
SC_DEVICE void pairs_rope(const float *rope_kind, uint32_t turned, uint32_t pair, uint32_t count,
                          uint32_t step, float *value)
{
    float cosine[FEW_PAIRS], sine[FEW_PAIRS];
    rope_load<SHARED>(rope_kind + pair, count, cosine);
    rope_load<SHARED>(rope_kind + turned / 2 + pair, count, sine);
#pragma unroll
    for (uint32_t i = 0; i < FEW_PAIRS; i++)
        if (step == 1)
            pair_rope(value + i, value + SC_CUDA_RUN + i, cosine[i], sine[i]);
        else
            pair_rope(value + 2 * i, value + 2 * i + 1, cosine[i], sine[i]);
}

template <bool SHARED>
SC_DEVICE void unit_rope(const Unit &unit, const float *rope_kind, uint32_t turned,
                         float value[SC_CUDA_UNIT])
{
    if (unit.rope_kind == SC_CUDA_HALF) {
        uint32_t count = unit.count[0];
        pairs_rope<SHARED>(rope_kind, turned, unit.first[0], count, 1, value);
        if (count > FEW_PAIRS)
            pairs_rope<SHARED>(rope_kind, turned, unit.first[0] + FEW_PAIRS, count - FEW_PAIRS, 1,
                               value + FEW_PAIRS);
        return;
    }
#pragma unroll
    for (uint32_t run = 0; run < 2; run++)
        if (unit.count[run] > 0)
            pairs_rope<SHARED>(rope_kind, turned, unit.first[run] / 2, unit.count[run] / 2, 2,
                               value + run * SC_CUDA_RUN);
}

#endif
