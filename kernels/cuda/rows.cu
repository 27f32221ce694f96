/* rows.cu: moves rows to their places in a memory and back; see spec.h.
 *
 * A warp moves a part of a row: 16 bytes a lane if both sides are aligned, else 8, 4, 2 or 1. Four
 * loads are in flight, since a row may be in host memory, microseconds away. Other strides, and
 * widening of unaligned rows, are done by element.
 * Tests: tests/unit/kernels/test_cuda_rows.c */
#include "kernels/cuda/numbers.h"

#define UNDER_WAY 4u

template <uint32_t BYTES> struct Piece;
#define PIECE(bytes, type)                                                                         \
    template <> struct Piece<bytes> {                                                              \
        typedef type Type;                                                                         \
        SC_DEVICE type load(const uint8_t *at)                                                     \
        {                                                                                          \
            return (type)sc_load##bytes(at);                                                       \
        }                                                                                          \
        SC_DEVICE void store(uint8_t *at, type value)                                              \
        {                                                                                          \
            sc_store##bytes(at, value);                                                            \
        }                                                                                          \
    };
PIECE(1, uint8_t)
PIECE(2, uint16_t)
PIECE(4, uint32_t)
PIECE(8, uint2)
PIECE(16, uint4)

struct Job {
    uint8_t *packed, *there;
    uint64_t head_stride, element_stride;
    uint32_t heads, elements;            /* contiguous heads are one */
    uint32_t element_bytes, there_bytes; /* bytes of an element on each side */
    uint32_t dtype, lane;
};

/* Copies BYTES at a time, a divisor of a head's bytes. */
template <uint32_t BYTES, bool PLACES> SC_DEVICE void job_copy(const Job &job)
{
    typedef typename Piece<BYTES>::Type Type;
    uint32_t each = job.elements * job.element_bytes / BYTES, count = each * job.heads;
    for (uint32_t first = job.lane; first < count; first += UNDER_WAY * SC_CUDA_WARP) {
        Type value[UNDER_WAY] = {};
        uint8_t *there[UNDER_WAY];
#pragma unroll
        for (uint32_t k = 0; k < UNDER_WAY; k++) {
            uint32_t i = first + k * SC_CUDA_WARP;
            there[k] = job.there + i / each * job.head_stride + (uint64_t)(i % each) * BYTES;
            if (i < count)
                value[k] = Piece<BYTES>::load(PLACES ? job.packed + (uint64_t)i * BYTES : there[k]);
        }
#pragma unroll
        for (uint32_t k = 0; k < UNDER_WAY; k++) {
            uint32_t i = first + k * SC_CUDA_WARP;
            if (i < count)
                Piece<BYTES>::store(PLACES ? there[k] : job.packed + (uint64_t)i * BYTES, value[k]);
        }
    }
}

/* Widens 8 16-bit elements a lane; both sides are 16-byte aligned. */
SC_DEVICE void job_widen(const Job &job)
{
    uint32_t each = job.elements / 8, count = each * job.heads;
    for (uint32_t i = job.lane; i < count; i += SC_CUDA_WARP) {
        uint4 from = sc_load16(job.packed + (uint64_t)i * 16);
        uint8_t *there = job.there + i / each * job.head_stride + (uint64_t)(i % each) * 32;
        sc_store16(there, uint4{widen(from.x & 0xffff, job.dtype), widen(from.x >> 16, job.dtype),
                                widen(from.y & 0xffff, job.dtype), widen(from.y >> 16, job.dtype)});
        sc_store16(there + 16,
                   uint4{widen(from.z & 0xffff, job.dtype), widen(from.z >> 16, job.dtype),
                         widen(from.w & 0xffff, job.dtype), widen(from.w >> 16, job.dtype)});
    }
}

template <bool PLACES> SC_DEVICE void job_elements(const Job &job)
{
    uint32_t count = job.heads * job.elements;
    for (uint32_t i = job.lane; i < count; i += SC_CUDA_WARP) {
        uint8_t *there =
            job.there + i / job.elements * job.head_stride + i % job.elements * job.element_stride;
        uint8_t *packed = job.packed + (uint64_t)i * job.element_bytes;
        uint32_t value = element_load_any(PLACES ? packed : there, job.element_bytes);
        if (job.there_bytes != job.element_bytes)
            value = widen(value, job.dtype);
        element_store_any(PLACES ? there : packed, value, job.there_bytes);
    }
}

template <bool PLACES> SC_DEVICE void job_run(const Job &job)
{
    uint64_t there = reinterpret_cast<uint64_t>(job.there);
    if (job.heads > 1)
        there |= job.head_stride;
    uint64_t head_bytes = (uint64_t)job.elements * job.element_bytes;
    uint32_t both = (uint32_t)(reinterpret_cast<uint64_t>(job.packed) | there | head_bytes);
    bool is_dense = job.element_stride == job.there_bytes;
    if (is_dense && job.there_bytes != job.element_bytes && both % 16 == 0)
        job_widen(job);
    else if (!is_dense || job.there_bytes != job.element_bytes)
        job_elements<PLACES>(job);
    else if (both % 16 == 0)
        job_copy<16, PLACES>(job);
    else if (both % 8 == 0)
        job_copy<8, PLACES>(job);
    else if (both % 4 == 0)
        job_copy<4, PLACES>(job);
    else if (both % 2 == 0)
        job_copy<2, PLACES>(job);
    else
        job_copy<1, PLACES>(job);
}

/* nullptr in `there`: the token has no slot */
SC_DEVICE Job job_of(const sc_cuda_rows &what, uint64_t row, uint32_t part)
{
    Job job;
    sc_cuda_part there = part_of(what.memory, part);
    uint64_t token = what.tokens != nullptr ? sc_load4(what.tokens + row) : what.token_first + row;
    job.dtype = what.dtype;
    job.element_bytes = what.element_bytes;
    job.there_bytes = what.there_bytes;
    job.head_stride = what.memory.head_stride_bytes;
    job.element_stride = there.element_stride_bytes;
    job.heads = what.head_count;
    job.elements = what.head_size;
    if (job.head_stride == job.elements * job.element_stride) {
        job.elements *= job.heads;
        job.heads = 1;
    }
    if (what.at == nullptr) {
        job.packed = what.rows + row * what.row_stride_bytes;
    } else {
        uint2 words = sc_load8(what.at + row);
        job.packed = reinterpret_cast<uint8_t *>((uint64_t)words.y << 32 | words.x);
    }
    if (part == 1 && (what.parts & SC_CUDA_K) != 0)
        job.packed += (uint64_t)what.head_count * what.head_size * job.element_bytes;
    job.there = token_at(what.memory, there, token);
    job.lane = threadIdx.x % SC_CUDA_WARP;
    return job;
}

template <bool PLACES> SC_DEVICE void rows_run(const sc_cuda_rows &what)
{
    uint32_t block_warps = blockDim.x / SC_CUDA_WARP, warps = gridDim.x * block_warps;
    uint32_t both = what.parts == (SC_CUDA_K | SC_CUDA_V) ? 2 : 1;
    uint64_t count = (uint64_t)what.row_count * both;
    for (uint64_t i = blockIdx.x * block_warps + threadIdx.x / SC_CUDA_WARP; i < count;
         i += warps) {
        uint32_t part = both == 2 ? (uint32_t)(i & 1) : what.parts >> 1;
        Job job = job_of(what, i / both, part);
        if (job.there != nullptr)
            job_run<PLACES>(job);
    }
}

SC_KERNEL(sc_cuda_rows_place, sc_cuda_rows, SC_CUDA_ROWS_THREADS)
{
    rows_run<true>(what);
}

SC_KERNEL(sc_cuda_rows_pack, sc_cuda_rows, SC_CUDA_ROWS_THREADS)
{
    rows_run<false>(what);
}
