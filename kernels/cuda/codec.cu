/* codec.cu: decodes uniformly quantised rows (codec.h) into a memory; see spec.h.
 * Tests: tests/unit/kernels/test_cuda_codec.c */
#include "kernels/cuda/codec_units.h"

/* Stores values of 8 channels from `channel` on, possibly of several heads. */
SC_DEVICE void channels_store(const sc_cuda_codec &what, const sc_cuda_part &part, uint8_t *row,
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

/* Stores a run of rows first, first + step .. of a block, `count` rows. whole: the run's offset in
 * a row if it is 8 values at a multiple of 16; else NO_PLACE. */
SC_DEVICE void rows_store(const sc_cuda_codec &what, const sc_cuda_part &part,
                          const uint64_t *places, uint32_t first, uint32_t step, uint32_t count,
                          uint32_t run, uint64_t whole, const RunScales &scales,
                          uint32_t code[RUN_ROWS][2])
{
    float value[SC_CUDA_RUN];
    if (whole != NO_PLACE) {
#pragma unroll
        for (uint32_t k = 0; k < RUN_ROWS; k++) {
            if (first + k * step >= count)
                break;
            uint64_t place = places[first + k * step];
            run_decode(code[k], scales, value);
            if (place != NO_PLACE)
                run_store_whole(part.base + place + whole, what.dst_dtype, value);
        }
        return;
    }
#pragma unroll 1
    for (uint32_t i = first; i < count && i < first + RUN_ROWS * step; i += step) {
        uint64_t place = places[i];
        run_decode(code[0], scales, value);
        if (place != NO_PLACE)
            channels_store(what, part, part.base + place, run * SC_CUDA_RUN,
                           words_of(what.dst_dtype, value));
#pragma unroll
        for (uint32_t k = 0; k + 1 < RUN_ROWS; k++) { /* constant indexes only */
            code[k][0] = code[k + 1][0];
            code[k][1] = code[k + 1][1];
        }
    }
}

/* Returns the run's offset if it is 8 values of one head at a multiple of 16; else NO_PLACE. */
SC_DEVICE uint64_t run_whole(const sc_cuda_codec &what, const sc_cuda_part &part, uint32_t run)
{
    uint32_t channel = run * SC_CUDA_RUN, bytes = element_bytes_of(what.dst_dtype);
    if (what.head_size % SC_CUDA_RUN != 0 || channel >= what.head_count * what.head_size ||
        !is_by_16(what.memory, part, bytes))
        return NO_PLACE;
    return channel / what.head_size * what.memory.head_stride_bytes +
           channel % what.head_size * bytes;
}

/* Concurrent blocks per multiprocessor: 32 warps with loads in flight. With rows of 4 loads
 * (RUN_ROWS) an H200 decodes faster than with 24 warps of 8. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define CODE_BESIDE 6u /* more would spill on 10.0 */
#else
#define CODE_BESIDE 8u
#endif

SC_KERNEL_BESIDE(sc_cuda_codec_decode, sc_cuda_codec, SC_CUDA_DECODE_THREADS, CODE_BESIDE)
{
    SC_SHARED(uint64_t, places, PLACE_ROWS);
    const sc_cuda_codec_slab slab = what.slabs[blockIdx.x];
    uint32_t units = (what.head_count * what.head_size + SC_CUDA_UNIT - 1) / SC_CUDA_UNIT;
    uint64_t padded = (uint64_t)units * SC_CUDA_UNIT, row_bytes = padded * slab.bits / 8;
    sc_cuda_part part = part_of(what.memory, slab.part);
    Share share = share_of(units * 2, SC_CUDA_TILE * 2, slab.row_count, what.rows_each);
    if (share.row_end == 0)
        return;
    RunScales scales = {};
    if (!share.is_none)
        scales = run_scales_of(slab.scales, padded, share.unit);
    uint64_t whole = run_whole(what, part, share.unit);
#pragma unroll 1
    for (uint32_t begin = share.row_begin; begin < share.row_end; begin += PLACE_ROWS) {
        uint32_t count = share.row_end - begin < PLACE_ROWS ? share.row_end - begin : PLACE_ROWS;
        if (begin > share.row_begin)
            __syncthreads(); /* the previous rows' offsets were read */
        places_make(what.memory, part, what.skipped, slab.token_first + begin, count, places);
        bool is_ready = false;
#pragma unroll 1
        for (uint32_t first = share.row; first < count || !is_ready;
             first += RUN_ROWS * share.step) {
            uint32_t code[RUN_ROWS][2] = {};
            bool is_there = first < count && !share.is_none;
            if (is_there)
                run_quant(slab.codes + (begin + first) * row_bytes, row_bytes, share.step,
                          (count - 1 - first) / share.step, padded, slab.bits, share.unit, code);
            if (!is_ready)
                __syncthreads();
            is_ready = true;
            if (is_there)
                rows_store(what, part, places, first, share.step, count, share.unit, whole, scales,
                           code);
        }
    }
}
