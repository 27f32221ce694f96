/* Codes of free widths (planes.h) to values in a memory: see spec.h. Adds to ref/: the device.
 *
 * Tests: tests/unit/kernels/test_cuda_planes.c */
#include "kernels/cuda/planes_units.h"

SC_DEVICE void row_store(const sc_cuda_planes &what, const sc_cuda_part &part, uint8_t *row,
                         const Unit &unit, const float value[SC_CUDA_UNIT])
{
#pragma unroll
    for (uint32_t run = 0; run < 2; run++)
        if (unit.count[run] > 0)
            run_store(row + unit.head * what.memory.head_stride_bytes +
                          unit.first[run] * part.element_stride_bytes,
                      part.element_stride_bytes, element_bytes_of(what.dst_dtype), unit.count[run],
                      words_of(what.dst_dtype, value + run * SC_CUDA_RUN));
}

/* The rows that are under way. */
struct Rows {
    uint8_t *dst[SHARE_ROWS];         /* nullptr: not written */
    const uint8_t *codes[SHARE_ROWS]; /* of one that is not written: another's */
    const uint8_t *finer[SHARE_ROWS]; /* nullptr: none, as of each that is not written */
    bool is_none;                     /* no row is written */
};

SC_DEVICE Rows rows_of(const sc_cuda_planes &what, const sc_cuda_planes_slab &slab,
                       const sc_cuda_part &part, const Share &share, uint32_t first,
                       uint32_t row_bytes)
{
    Rows rows;
    rows.is_none = true;
#pragma unroll
    for (uint32_t k = 0; k < SHARE_ROWS; k++) {
        uint32_t i = first + k * share.step;
        uint64_t token = slab.token_first + i;
        rows.dst[k] = nullptr;
        rows.codes[k] = slab.codes;
        rows.finer[k] = nullptr;
        if (i >= share.end || is_skipped(what.skipped, token))
            continue;
        if (slab.finer != nullptr) {
            uint2 words = sc_load8(slab.finer_codes + i);
            rows.finer[k] = reinterpret_cast<const uint8_t *>((uint64_t)words.y << 32 | words.x);
            if (rows.finer[k] == nullptr)
                continue;
        }
        rows.dst[k] = token_at(what.memory, part, token);
        if (rows.dst[k] == nullptr) {
            rows.finer[k] = nullptr;
            continue;
        }
        rows.codes[k] = slab.codes + (uint64_t)i * row_bytes;
        rows.is_none = false;
    }
    return rows;
}

SC_KERNEL(sc_cuda_planes_decode, sc_cuda_planes, SC_CUDA_DECODE_THREADS)
{
    const sc_cuda_planes_slab slab = what.slabs[blockIdx.x];
    Table table = table_of(slab.table), finer = table;
    sc_cuda_part part = part_of(what.memory, slab.part);
    Share share = share_of(table.unit_count, slab.row_count, what.rows_each);
    if (share.is_none)
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
    for (uint32_t first = share.row; first < share.end; first += SHARE_ROWS * share.step) {
        uint32_t code[SHARE_ROWS][4] = {};
        Rows rows = rows_of(what, slab, part, share, first, table.row_bytes);
        if (rows.is_none)
            continue;
        planes_add<true>(table, share.unit, rows.codes, code);
        if (slab.finer != nullptr)
            planes_add<false>(finer, share.unit, rows.finer, code);
#pragma unroll 1
        for (uint32_t k = 0; k < SHARE_ROWS; k++, rows_shift(rows.dst, code)) {
            float value[SC_CUDA_UNIT];
            if (rows.dst[0] == nullptr)
                continue;
            unit_values(code[0], factors, value);
            if (unit.turn != SC_CUDA_STILL)
                unit_turn(unit, slab.turns + (uint64_t)(first + k * share.step) * table.turned,
                          table.turned, value);
            row_store(what, part, rows.dst[0], unit, value);
        }
    }
}
