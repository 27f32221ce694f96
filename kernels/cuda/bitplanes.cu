/* bitplanes.cu: decodes per-channel quantised rows (bitplanes.h) into a memory; see spec.h.
 * Tests: tests/unit/kernels/test_cuda_bitplanes.c */
#include "kernels/cuda/bitplanes_units.h"

#define PLANES_BESIDE 4u   /* concurrent blocks per multiprocessor */
#define TURNED_MAX    256u /* maximum channels of a head: SC_KERNELS_BITPLANES_HEAD */

struct Runs {
    uint64_t at[2];
    bool is_whole; /* each run is 8 values at a multiple of 16, or empty */
};

SC_DEVICE Runs runs_of(const sc_cuda_bitplanes &what, const sc_cuda_part &part, const Unit &unit)
{
    Runs runs;
    runs.is_whole = is_by_16(what.memory, part, element_bytes_of(what.dst_dtype));
#pragma unroll
    for (uint32_t run = 0; run < 2; run++) {
        runs.at[run] =
            unit.head * what.memory.head_stride_bytes + unit.first[run] * part.element_stride_bytes;
        runs.is_whole &= unit.first[run] % SC_CUDA_RUN == 0 && unit.count[run] % SC_CUDA_RUN == 0;
    }
    return runs;
}

SC_DEVICE void row_store(const sc_cuda_bitplanes &what, const sc_cuda_part &part, uint8_t *row,
                         const Unit &unit, const Runs &runs, const float value[SC_CUDA_UNIT])
{
#pragma unroll
    for (uint32_t run = 0; run < 2; run++) {
        if (unit.count[run] == 0)
            continue;
        if (runs.is_whole)
            run_store_whole(row + runs.at[run], what.dst_dtype, value + run * SC_CUDA_RUN);
        else
            run_store(row + runs.at[run], part.element_stride_bytes,
                      element_bytes_of(what.dst_dtype), unit.count[run],
                      words_of(what.dst_dtype, value + run * SC_CUDA_RUN));
    }
}

SC_DEVICE void rope_keep(const float *from, uint32_t turned, uint32_t count, float *rope)
{
    uint32_t all = count * turned, done = 0;
    if (sc_off(from, 16) == 0) {
        done = all / 4 * 4;
        for (uint32_t i = threadIdx.x * 4; i < done; i += SC_CUDA_DECODE_THREADS * 4)
            sc_store16(rope + i, sc_load16(from + i));
    }
    for (uint32_t i = done + threadIdx.x; i < all; i += SC_CUDA_DECODE_THREADS)
        rope[i] = __uint_as_float(sc_load4(from + i));
}

/* Locates the codes of the rows in flight; missing ones repeat the last. */
SC_DEVICE void quant_of(const sc_cuda_bitplanes_slab &slab, const Share &share, uint32_t begin,
                        uint32_t first, uint32_t count, uint32_t row_bytes,
                        const uint8_t *row[SHARE_ROWS])
{
    const uint8_t *codes = slab.codes + (uint64_t)(begin + first) * row_bytes;
#pragma unroll
    for (uint32_t k = 0; k < SHARE_ROWS; k++) {
        uint32_t i = first + k * share.step;
        row[k] = codes;
        codes += i + share.step < count ? (uint64_t)row_bytes * share.step : 0;
    }
}

SC_KERNEL_BESIDE(sc_cuda_bitplanes_decode, sc_cuda_bitplanes, SC_CUDA_DECODE_THREADS, PLANES_BESIDE)
{
    SC_SHARED(uint64_t, places, PLACE_ROWS);
    SC_SHARED(float, rope, PLACE_ROWS *TURNED_MAX);
    const sc_cuda_bitplanes_slab slab = what.slabs[blockIdx.x];
    Table table = table_of(slab.table);
    sc_cuda_part part = part_of(what.memory, slab.part);
    Share share = share_of(table.unit_count, SC_CUDA_TILE, slab.row_count, what.rows_each);
    if (share.row_end == 0)
        return;
    Unit unit = unit_of(table, share.unit);
    Factors factors = factors_of(slab.scales, what.head_count, what.head_size, unit);
    Runs runs = runs_of(what, part, unit);
#pragma unroll 1
    for (uint32_t begin = share.row_begin; begin < share.row_end; begin += PLACE_ROWS) {
        uint32_t count = share.row_end - begin < PLACE_ROWS ? share.row_end - begin : PLACE_ROWS;
        if (begin > share.row_begin)
            __syncthreads(); /* the previous rows' offsets and rotations were read */
        places_make(what.memory, part, what.skipped, slab.token_first + begin, count, places);
        rope_keep(slab.rope + (uint64_t)begin * table.turned, table.turned, count, rope);
        bool is_ready = false;
#pragma unroll 1
        for (uint32_t first = share.row; first < count || !is_ready;
             first += SHARE_ROWS * share.step) {
            uint32_t code[SHARE_ROWS][4] = {};
            bool is_there = first < count && !share.is_none;
            const uint8_t *row[SHARE_ROWS];
            quant_of(slab, share, begin, first, count, table.row_bytes, row);
            if (is_there)
                planes_add(table, share.unit, row, code);
            if (!is_ready)
                __syncthreads();
            is_ready = true;
            if (!is_there)
                continue;
#pragma unroll 1
            for (uint32_t k = 0; k < SHARE_ROWS; k++, quant_shift(code)) {
                uint32_t i = first + k * share.step;
                float value[SC_CUDA_UNIT];
                if (i >= count || places[i] == NO_PLACE)
                    continue;
                unit_values(code[0], factors, value);
                if (unit.rope_kind != SC_CUDA_STILL)
                    unit_rope<true>(unit, rope + i * table.turned, table.turned, value);
                row_store(what, part, part.base + places[i], unit, runs, value);
            }
        }
    }
}
