/* Codes of free widths (planes.h) to values in a memory: see spec.h. Adds to ref/: the device.
 *
 * Tests: tests/unit/kernels/test_cuda_planes.c */
#include "kernels/cuda/planes_units.h"

#define PLANES_BESIDE 4u   /* blocks that a multiprocessor shall have at once */
#define TURNED_MAX    256u /* channels of a head, at most: SC_KERNELS_PLANES_HEAD */

/* Where a unit's runs are in a row. */
struct Runs {
    uint64_t at[2];
    bool is_whole; /* both are 8 values at a multiple of 16, or there is none */
};

SC_DEVICE Runs runs_of(const sc_cuda_planes &what, const sc_cuda_part &part, const Unit &unit)
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

SC_DEVICE void row_store(const sc_cuda_planes &what, const sc_cuda_part &part, uint8_t *row,
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

/* Where finer codes of rows first .. first + count - 1 are; rows that have none are not written. */
SC_DEVICE void finer_make(const sc_cuda_planes_slab &slab, uint32_t first, uint32_t count,
                          uint64_t *places)
{
    for (uint32_t i = threadIdx.x; i < count && slab.finer != nullptr;
         i += SC_CUDA_DECODE_THREADS) { /* the thread that made this place */
        uint2 word = sc_load8(slab.finer_codes + first + i);
        if ((word.x | word.y) == 0)
            places[i] = NO_PLACE;
    }
}

/* cos and sin of rows first .. first + count - 1. */
SC_DEVICE void turns_keep(const float *from, uint32_t turned, uint32_t count, float *turns)
{
    uint32_t all = count * turned, done = 0;
    if (sc_off(from, 16) == 0) {
        done = all / 4 * 4;
        for (uint32_t i = threadIdx.x * 4; i < done; i += SC_CUDA_DECODE_THREADS * 4)
            sc_store16(turns + i, sc_load16(from + i));
    }
    for (uint32_t i = done + threadIdx.x; i < all; i += SC_CUDA_DECODE_THREADS)
        turns[i] = __uint_as_float(sc_load4(from + i));
}

/* The rows that are under way. */
struct Rows {
    const uint8_t *codes[SHARE_ROWS]; /* of one that is not there: the last one's */
    const uint8_t *finer[SHARE_ROWS]; /* nullptr: none, as of each that is not written */
};

SC_DEVICE Rows rows_of(const sc_cuda_planes_slab &slab, const Share &share, uint32_t begin,
                       uint32_t first, uint32_t count, uint32_t row_bytes)
{
    Rows rows;
    const uint8_t *codes = slab.codes + (uint64_t)(begin + first) * row_bytes;
#pragma unroll
    for (uint32_t k = 0; k < SHARE_ROWS; k++) {
        uint32_t i = first + k * share.step;
        rows.codes[k] = codes;
        codes += i + share.step < count ? (uint64_t)row_bytes * share.step : 0;
        rows.finer[k] = nullptr;
    }
    return rows;
}

SC_DEVICE void rows_finer(const sc_cuda_planes_slab &slab, const Share &share, uint32_t begin,
                          uint32_t first, uint32_t count, const uint64_t *places, Rows &rows)
{
#pragma unroll
    for (uint32_t k = 0; k < SHARE_ROWS; k++) {
        uint32_t i = first + k * share.step;
        if (i >= count || places[i] == NO_PLACE)
            continue;
        uint2 word = sc_load8(slab.finer_codes + begin + i);
        rows.finer[k] = reinterpret_cast<const uint8_t *>((uint64_t)word.y << 32 | word.x);
    }
}

SC_KERNEL_BESIDE(sc_cuda_planes_decode, sc_cuda_planes, SC_CUDA_DECODE_THREADS, PLANES_BESIDE)
{
    SC_SHARED(uint64_t, places, PLACE_ROWS);
    SC_SHARED(float, turns, PLACE_ROWS *TURNED_MAX);
    const sc_cuda_planes_slab slab = what.slabs[blockIdx.x];
    Table table = table_of(slab.table), finer = table;
    sc_cuda_part part = part_of(what.memory, slab.part);
    Share share = share_of(table.unit_count, SC_CUDA_TILE, slab.row_count, what.rows_each);
    if (share.row_end == 0)
        return;
    Unit unit = unit_of(table, share.unit);
    uint32_t to[2] = {unit.to[0], unit.to[1]};
    if (slab.finer != nullptr) {
        finer = table_of(slab.finer);
        Unit wider = unit_of(finer, share.unit);
        to[0] = wider.to[0];
        to[1] = wider.to[1];
    }
    Factors factors = factors_of(slab.scales, what.head_count, what.head_size, unit, to);
    Runs runs = runs_of(what, part, unit);
#pragma unroll 1
    for (uint32_t begin = share.row_begin; begin < share.row_end; begin += PLACE_ROWS) {
        uint32_t count = share.row_end - begin < PLACE_ROWS ? share.row_end - begin : PLACE_ROWS;
        if (begin > share.row_begin)
            __syncthreads(); /* places and turns of the rows before were read */
        places_make(what.memory, part, what.skipped, slab.token_first + begin, count, places);
        finer_make(slab, begin, count, places);
        turns_keep(slab.turns + (uint64_t)begin * table.turned, table.turned, count, turns);
        bool is_ready = false;
#pragma unroll 1
        for (uint32_t first = share.row; first < count || !is_ready;
             first += SHARE_ROWS * share.step) {
            uint32_t code[SHARE_ROWS][4] = {};
            bool is_there = first < count && !share.is_none;
            Rows rows = rows_of(slab, share, begin, first, count, table.row_bytes);
            if (is_there)
                planes_add<true>(table, share.unit, rows.codes, code);
            if (!is_ready)
                __syncthreads();
            is_ready = true;
            if (!is_there)
                continue;
            if (slab.finer != nullptr) {
                rows_finer(slab, share, begin, first, count, places, rows);
                planes_add<false>(finer, share.unit, rows.finer, code);
            }
#pragma unroll 1
            for (uint32_t k = 0; k < SHARE_ROWS; k++, codes_shift(code)) {
                uint32_t i = first + k * share.step;
                float value[SC_CUDA_UNIT];
                if (i >= count || places[i] == NO_PLACE)
                    continue;
                unit_values(code[0], factors, value);
                if (unit.turn != SC_CUDA_STILL)
                    unit_turn<true>(unit, turns + i * table.turned, table.turned, value);
                row_store(what, part, part.base + places[i], unit, runs, value);
            }
        }
    }
}
