/* score_keys: loads keys of a tile, and queries, to shared memory as float32, for importance.cu.
 *
 *   keys  [key][stride]  channels of one head in order, padded with 0 to a multiple of 4
 *
 * stride / 4 is odd: 8 threads that load 16 bytes each of 8 rows use all banks. Quantised keys are
 * decoded once for all query vectors of a block.
 *
 * Invariants: only rows, codes, scales, rotations and tables of the tile's keys are read.
 * Tests: tests/unit/kernels/test_cuda_importance.c */
#ifndef SC_KERNELS_CUDA_SCORE_KEYS_H
#define SC_KERNELS_CUDA_SCORE_KEYS_H

#include "kernels/cuda/bitplanes_units.h"
#include "kernels/cuda/codec_units.h"

#define NO_ROW 0xffffffffu

SC_DEVICE uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Keys first .. first + count - 1 of the prefix or of the fresh keys. */
struct KeyTile {
    uint32_t first, count;
    bool is_fresh;
};

struct Lay {
    uint32_t keys;       /* of a tile */
    uint32_t channels;   /* of a head, rounded up to a multiple of 4 */
    uint32_t key_stride; /* floats */
};

SC_DEVICE Lay lay_of(const sc_cuda_score &what)
{
    Lay lay;
    bool is_long = what.head_size > SC_CUDA_SCORE_CHANNELS;
    lay.keys = is_long ? SC_CUDA_SCORE_KEYS / 2 : SC_CUDA_SCORE_KEYS;
    lay.channels = (what.head_size + 3) / 4 * 4;
    lay.key_stride = (lay.channels / 4 | 1) * 4;
    return lay;
}

SC_DEVICE uint32_t tiles_of(uint32_t keys, const Lay &lay)
{
    return keys / lay.keys + (keys % lay.keys != 0 ? 1 : 0);
}

SC_DEVICE KeyTile tile_of(const sc_cuda_score &what, const Lay &lay, uint32_t tile)
{
    uint32_t prefix_tiles = tiles_of(what.prefix.count, lay);
    KeyTile found;
    found.is_fresh = tile >= prefix_tiles;
    found.first = (found.is_fresh ? tile - prefix_tiles : tile) * lay.keys;
    uint32_t all = found.is_fresh ? what.fresh.count : what.prefix.count;
    found.count = lesser(all - found.first, lay.keys);
    return found;
}


SC_DEVICE void halves_widen(uint32_t word, uint32_t dtype, float *value)
{
    value[0] = __uint_as_float(widen(word & 0xffff, dtype));
    value[1] = __uint_as_float(widen(word >> 16, dtype));
}

/* Widens up to 8 elements, contiguous or strided, at any address; 0 beyond `count`. */
SC_DEVICE void run_widen(const uint8_t *at, uint64_t element_stride, uint32_t dtype, uint32_t count,
                         float value[SC_CUDA_RUN])
{
    uint32_t bytes = element_bytes_of(dtype);
    bool is_whole = count == SC_CUDA_RUN && element_stride == bytes && sc_off(at, 16) == 0;
    if (is_whole && bytes == 2) {
        uint4 word = sc_load16(at);
        halves_widen(word.x, dtype, value);
        halves_widen(word.y, dtype, value + 2);
        halves_widen(word.z, dtype, value + 4);
        halves_widen(word.w, dtype, value + 6);
        return;
    }
    if (is_whole) {
        uint4 low = sc_load16(at), high = sc_load16(at + 16);
        value[0] = __uint_as_float(low.x);
        value[1] = __uint_as_float(low.y);
        value[2] = __uint_as_float(low.z);
        value[3] = __uint_as_float(low.w);
        value[4] = __uint_as_float(high.x);
        value[5] = __uint_as_float(high.y);
        value[6] = __uint_as_float(high.z);
        value[7] = __uint_as_float(high.w);
        return;
    }
#pragma unroll 1
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++) { /* constant indexes only */
        uint32_t bits = c < count ? element_load_any(at + c * element_stride, bytes) : 0;
#pragma unroll
        for (uint32_t i = 0; i + 1 < SC_CUDA_RUN; i++)
            value[i] = value[i + 1];
        value[SC_CUDA_RUN - 1] = __uint_as_float(bytes == 2 ? widen(bits, dtype) : bits);
    }
}

/* Stores 8 channels from `channel`, a multiple of 8, up to `channels`, a multiple of 4. */
SC_DEVICE void run_keep(float *to, uint32_t channel, uint32_t channels,
                        const float value[SC_CUDA_RUN])
{
    sc_store16(to, uint4{__float_as_uint(value[0]), __float_as_uint(value[1]),
                         __float_as_uint(value[2]), __float_as_uint(value[3])});
    if (channel + 4 < channels)
        sc_store16(to + 4, uint4{__float_as_uint(value[4]), __float_as_uint(value[5]),
                                 __float_as_uint(value[6]), __float_as_uint(value[7])});
}

SC_DEVICE void rows_load(const sc_cuda_score &what, const Lay &lay, uint32_t head,
                         const KeyTile &tile, float *keys)
{
    sc_cuda_score_keys from = what.prefix;
    if (tile.is_fresh) /* avoids a second copy of the code */
        from = what.fresh;
    uint32_t runs = (lay.channels + SC_CUDA_RUN - 1) / SC_CUDA_RUN;
    sc_cuda_part part = part_of(from.memory, 0);
    part.base += head * from.memory.head_stride_bytes;
    for (uint32_t i = threadIdx.x; i < tile.count * runs; i += SC_CUDA_SCORE_THREADS) {
        uint32_t key = i / runs, channel = i % runs * SC_CUDA_RUN;
        const uint8_t *row = token_at(from.memory, part, tile.first + key);
        float value[SC_CUDA_RUN] = {};
        run_widen(row + channel * part.element_stride_bytes, part.element_stride_bytes, from.dtype,
                  lesser(what.head_size - channel, SC_CUDA_RUN), value);
        run_keep(keys + key * lay.key_stride + channel, channel, lay.channels, value);
    }
}

/* A tile's keys in a slab: its rows from `row` on. */
struct SlabRows {
    uint32_t row, count;
};

/* A thread's unit of `width` and rows of a tile, as decode.h's Share. */
struct TileShare {
    uint32_t unit, row, step;
    bool is_none;
};

SC_DEVICE TileShare tile_share(uint32_t width)
{
    TileShare share;
    share.step = SC_CUDA_SCORE_THREADS / width;
    share.unit = threadIdx.x % width;
    share.row = threadIdx.x / width;
    share.is_none = share.row >= share.step;
    return share;
}

/* Locates rows first, first + step .. of a tile in a slab; missing ones repeat the first. */
SC_DEVICE void quant_locate(const SlabRows &rows, const uint8_t *codes, uint64_t row_bytes,
                            uint32_t first, uint32_t step, uint32_t row[SHARE_ROWS],
                            const uint8_t *from[SHARE_ROWS])
{
#pragma unroll
    for (uint32_t k = 0; k < SHARE_ROWS; k++) {
        uint32_t i = first + k * step;
        row[k] = i < rows.count ? i : NO_ROW;
        from[k] = codes + (rows.row + (i < rows.count ? i : 0)) * row_bytes;
    }
}

/* keys: of the slab's first row in the tile. A run may begin before the head and end after it. */
SC_DEVICE void even_load(const sc_cuda_score &what, const sc_cuda_score_slab &slab, const Lay &lay,
                         uint32_t head, const SlabRows &rows, float *keys)
{
    uint32_t all = (what.code_heads * what.head_size + SC_CUDA_UNIT - 1) / SC_CUDA_UNIT;
    uint32_t head_first = head * what.head_size, unit_first = head_first / SC_CUDA_UNIT;
    uint32_t unit_end = (head_first + what.head_size + SC_CUDA_UNIT - 1) / SC_CUDA_UNIT;
    uint64_t padded = (uint64_t)all * SC_CUDA_UNIT, row_bytes = padded * slab.bits / 8;
    TileShare share = tile_share(unit_end - unit_first);
    if (share.is_none)
        return;
    uint32_t unit = unit_first + share.unit;
    Scales scales = scales_of(slab.scales, padded, unit);
    for (uint32_t first = share.row; first < rows.count; first += SHARE_ROWS * share.step) {
        uint32_t code[SHARE_ROWS][4] = {}, row[SHARE_ROWS];
        const uint8_t *from[SHARE_ROWS];
        quant_locate(rows, slab.codes, row_bytes, first, share.step, row, from);
        quant_of(from, padded, slab.bits, unit, code);
#pragma unroll 1
        for (uint32_t k = 0; k < SHARE_ROWS && row[0] != NO_ROW; k++, rows_shift(row, code)) {
#pragma unroll
            for (uint32_t run = 0; run < 2; run++) {
                uint32_t channel = unit * SC_CUDA_UNIT + run * SC_CUDA_RUN - head_first;
                float *to = keys + row[0] * lay.key_stride;
                float value[SC_CUDA_RUN];
                run_values(code[0], scales, run, value);
                if (channel % 4 == 0 && channel + SC_CUDA_RUN <= what.head_size &&
                    channel < what.head_size) {
                    run_keep(to + channel, channel, lay.channels, value);
                    continue;
                }
#pragma unroll
                for (uint32_t c = 0; c < SC_CUDA_RUN; c++)
                    if (channel + c < what.head_size) /* wraps if before the head */
                        to[channel + c] = value[c];
            }
        }
    }
}

SC_DEVICE void free_load(const sc_cuda_score &what, const sc_cuda_score_slab &slab, const Lay &lay,
                         uint32_t head, const SlabRows &rows, float *keys)
{
    Table table = table_of(slab.table);
    uint32_t each = table.unit_count / what.code_heads; /* a head has fewer units than threads */
    TileShare share = tile_share(each);
    if (share.is_none)
        return;
    uint32_t number = head * each + share.unit;
    Unit unit = unit_of(table, number);
    Factors factors = factors_of(slab.scales, what.code_heads, what.head_size, unit);
    for (uint32_t first = share.row; first < rows.count; first += SHARE_ROWS * share.step) {
        uint32_t code[SHARE_ROWS][4] = {}, row[SHARE_ROWS];
        const uint8_t *from[SHARE_ROWS];
        quant_locate(rows, slab.codes, table.row_bytes, first, share.step, row, from);
        planes_add(table, number, from, code);
#pragma unroll 1
        for (uint32_t k = 0; k < SHARE_ROWS && row[0] != NO_ROW; k++, rows_shift(row, code)) {
            float value[SC_CUDA_UNIT], *to = keys + row[0] * lay.key_stride;
            unit_values(code[0], factors, value);
            if (unit.rope_kind != SC_CUDA_STILL)
                unit_rope<false>(unit, slab.rope + (uint64_t)(rows.row + row[0]) * table.turned,
                                 table.turned, value);
#pragma unroll
            for (uint32_t run = 0; run < 2; run++)
                if (unit.count[run] > 0)
                    run_store(reinterpret_cast<uint8_t *>(to + unit.first[run]), 4, 4,
                              unit.count[run], words_of(SC_CUDA_F32, value + run * SC_CUDA_RUN));
        }
    }
}

SC_DEVICE uint32_t slab_find(const sc_cuda_score &what, uint32_t key)
{
    uint32_t low = 0, high = what.slab_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (what.slabs[middle].key_first <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}

SC_DEVICE void quant_load(const sc_cuda_score &what, const Lay &lay, uint32_t head,
                          const KeyTile &tile, float *keys)
{
    uint32_t end = tile.first + tile.count, key = tile.first;
    for (uint32_t i = threadIdx.x; i < tile.count && what.head_size < lay.channels;
         i += SC_CUDA_SCORE_THREADS)
        for (uint32_t c = what.head_size; c < lay.channels; c++)
            keys[i * lay.key_stride + c] = 0;
#pragma unroll 1
    for (uint32_t s = slab_find(what, key); key < end; s++) {
        const sc_cuda_score_slab slab = what.slabs[s];
        uint32_t stop = s + 1 < what.slab_count ? lesser(what.slabs[s + 1].key_first, end) : end;
        SlabRows rows = {key - slab.key_first, stop - key};
        float *to = keys + (key - tile.first) * lay.key_stride;
        if (slab.table != nullptr)
            free_load(what, slab, lay, head, rows, to);
        else
            even_load(what, slab, lay, head, rows, to);
        key = stop;
    }
}

/* head: index among all KV heads */
SC_DEVICE void tile_load(const sc_cuda_score &what, const Lay &lay, uint32_t head,
                         const KeyTile &tile, float *keys)
{
    if (tile.is_fresh || what.slab_count == 0)
        rows_load(what, lay, head, tile, keys);
    else
        quant_load(what, lay, head, tile, keys);
}

#endif
