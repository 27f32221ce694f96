/* Codes of even widths (code.h) to values in a memory: see spec.h. Adds to ref/: the device.
 *
 * Tests: tests/unit/kernels/test_cuda_code.c */
#include "kernels/cuda/code_units.h"

/* Values of 8 channels from `channel` on, which may be of several heads. */
SC_DEVICE void channels_store(const sc_cuda_code &what, const sc_cuda_part &part, uint8_t *row,
                              uint32_t channel, Words made)
{
    uint32_t channels = what.head_count * what.head_size, bytes = element_bytes_of(what.dst_dtype);
    uint32_t head = channel / what.head_size, first = channel % what.head_size;
    uint32_t count = what.head_size - first < SC_CUDA_RUN ? what.head_size - first : SC_CUDA_RUN;
#pragma unroll 1
    for (uint32_t done = 0; done < SC_CUDA_RUN && channel + done < channels; done += count) {
        if (done > 0) { /* the next head, from its first channel on */
#pragma unroll 1
            for (uint32_t c = 0; c < count; c++)
#pragma unroll
                for (uint32_t i = 0; i + 1 < SC_CUDA_RUN; i++)
                    made.word[i] = made.word[i + 1];
            head++;
            first = 0;
            count = SC_CUDA_RUN - done < what.head_size ? SC_CUDA_RUN - done : what.head_size;
        }
        run_store(row + head * what.memory.head_stride_bytes + first * part.element_stride_bytes,
                  part.element_stride_bytes, bytes, count, made);
    }
}

SC_DEVICE void row_store(const sc_cuda_code &what, const sc_cuda_part &part, uint8_t *row,
                         uint32_t unit, const uint32_t code[4], const Scales &scales)
{
#pragma unroll
    for (uint32_t run = 0; run < 2; run++) {
        float value[SC_CUDA_RUN];
        run_values(code, scales, run, value);
        channels_store(what, part, row, unit * SC_CUDA_UNIT + run * SC_CUDA_RUN,
                       words_of(what.dst_dtype, value));
    }
}

SC_KERNEL(sc_cuda_code_decode, sc_cuda_code, SC_CUDA_DECODE_THREADS)
{
    const sc_cuda_code_slab slab = what.slabs[blockIdx.x];
    uint32_t units = (what.head_count * what.head_size + SC_CUDA_UNIT - 1) / SC_CUDA_UNIT;
    uint64_t padded = (uint64_t)units * SC_CUDA_UNIT, row_bytes = padded * slab.bits / 8;
    sc_cuda_part part = part_of(what.memory, slab.part);
    Share share = share_of(units, slab.row_count, what.rows_each);
    if (share.is_none)
        return;
    Scales scales = scales_of(slab.scales, padded, share.unit);
    for (uint32_t first = share.row; first < share.end; first += SHARE_ROWS * share.step) {
        uint8_t *row[SHARE_ROWS];
        const uint8_t *from[SHARE_ROWS];
        uint32_t code[SHARE_ROWS][4] = {};
#pragma unroll
        for (uint32_t k = 0; k < SHARE_ROWS; k++) {
            uint32_t i = first + k * share.step;
            uint64_t token = slab.token_first + i;
            row[k] = nullptr;
            if (i < share.end && !is_skipped(what.skipped, token))
                row[k] = token_at(what.memory, part, token);
            from[k] = row[k] != nullptr ? slab.codes + i * row_bytes : slab.codes;
        }
        codes_of(from, padded, slab.bits, share.unit, code);
#pragma unroll 1
        for (uint32_t k = 0; k < SHARE_ROWS; k++) {
            if (row[0] != nullptr)
                row_store(what, part, row[0], share.unit, code[0], scales);
            rows_shift(row, code);
        }
    }
}
