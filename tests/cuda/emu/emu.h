/* CUDA C++, as far as our kernels use it, on the CPU: a .cu file is compiled by g++ or clang++ with
 * this header in front (-x c++ -include tests/cuda/emu/emu.h). Every thread of a block is a fiber;
 * blocks run one after the other.
 *
 *   fiber    runs until a barrier, a warp collective or its end; then a seed says who runs
 *   barrier  every thread of the block, at the same line
 *   warp     every lane of the mask, at the same line and with the same mask; products of matrices
 *            by all 32, whose fragments lie as the PTX ISA has them (kernels/cuda/tensor.h)
 *   shared   SC_SHARED arrays: heap blocks of their own (ASan sees their ends), poisoned per block
 *   TSan     each thread is a TSan fiber: barriers and __syncwarp are the only happens-before, so
 * it is a check for races inside a block, and between blocks, which have no order at all
 *
 * Holds: what breaks a rule above, an access of 2 to 16 bytes that is not aligned (port.h), and
 *   more than 227 KiB of shared memory end the process, with line, block and thread.
 * Does not: model weak memory, bank conflicts, occupancy, or instructions that differ from C.
 * Threads: one. Tests: tests/unit/kernels/test_cuda_emu.c */
#ifndef SC_TESTS_CUDA_EMU_EMU_H
#define SC_TESTS_CUDA_EMU_EMU_H

#include "tests/cuda/emu/run.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#define SC_EMULATED 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};

namespace emu
{
struct Thread {
    dim3 index;
    unsigned linear;
};
extern Thread *current;
extern dim3 block_index, block_dim, grid_dim;

enum Collective { IDX, UP, DOWN, XOR, BALLOT, SYNCWARP, MMA_F16, MMA_BF16 };
enum Joined { ANY, ALL, COUNT };

int sync(int line, int predicate, Joined joined);
uint64_t warp(int line, unsigned mask, uint64_t value, Collective what, unsigned argument);
void *shared(int id, size_t bytes, int line);
void *shared_dynamic();
[[noreturn]] void fail(const char *what, int line);

/* Aligned as a device wants it. */
template <class T> inline void check(const void *at, int line)
{
    if (reinterpret_cast<uintptr_t>(at) % sizeof(T) != 0)
        fail("an access is not aligned to its size", line);
}

/* A lane's part of a product of matrices, as kernels/cuda/tensor.h has it. */
struct Matrices {
    unsigned a[4], b[2];
    float c[4];
};

/* c += a * b. */
inline void mma(int line, Collective what, const unsigned a[4], unsigned b_low, unsigned b_high,
                float c[4])
{
    Matrices own = {{a[0], a[1], a[2], a[3]}, {b_low, b_high}, {c[0], c[1], c[2], c[3]}};
    (void)warp(line, 0xffffffffu, reinterpret_cast<uintptr_t>(&own), what, 0);
    memcpy(c, own.c, sizeof(own.c));
}

unsigned pack_f16(float low, float high);  /* cvt.rn.f16x2.f32 */
unsigned pack_bf16(float low, float high); /* cvt.rn.bf16x2.f32 */
float unpack_f16(unsigned half);           /* cvt.f32.f16 */

template <class T>
inline T shuffle(int line, unsigned mask, T value, Collective what, unsigned argument)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "one word");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof(T));
    word = warp(line, mask, word, what, argument);
    memcpy(&value, &word, sizeof(T));
    return value;
}
} // namespace emu

#define SC_SHARED(T, name, n)                                                                      \
    T *name = static_cast<T *>(emu::shared(__COUNTER__, sizeof(T) * (n), __LINE__))
#define SC_SHARED_DYNAMIC(T, name) T *name = static_cast<T *>(emu::shared_dynamic())

#define threadIdx                 (emu::current->index)
#define blockIdx                  (emu::block_index)
#define blockDim                  (emu::block_dim)
#define gridDim                   (emu::grid_dim)
#define __syncthreads()           ((void)emu::sync(__LINE__, 0, emu::COUNT))
#define __syncthreads_count(p)    emu::sync(__LINE__, (p), emu::COUNT)
#define __syncthreads_or(p)       emu::sync(__LINE__, (p), emu::ANY)
#define __syncthreads_and(p)      emu::sync(__LINE__, (p), emu::ALL)
#define __syncwarp(...)           emu_syncwarp(__LINE__, emu_mask(__VA_ARGS__))
#define __shfl_sync(m, v, l)      emu::shuffle(__LINE__, (m), (v), emu::IDX, (unsigned)(l))
#define __shfl_up_sync(m, v, d)   emu::shuffle(__LINE__, (m), (v), emu::UP, (unsigned)(d))
#define __shfl_down_sync(m, v, d) emu::shuffle(__LINE__, (m), (v), emu::DOWN, (unsigned)(d))
#define __shfl_xor_sync(m, v, d)  emu::shuffle(__LINE__, (m), (v), emu::XOR, (unsigned)(d))
#define __ballot_sync(m, p)       ((unsigned)emu::warp(__LINE__, (m), (p) ? 1 : 0, emu::BALLOT, 0))
#define __any_sync(m, p)          (__ballot_sync(m, p) != 0)
#define __all_sync(m, p)          (__ballot_sync(m, !(p)) == 0)

static inline unsigned emu_mask(unsigned mask = 0xffffffffu)
{
    return mask;
}

static inline void emu_syncwarp(int line, unsigned mask)
{
    (void)emu::warp(line, mask, 0, emu::SYNCWARP, 0);
}

/* A fiber is never interrupted inside an atomic; TSan is told that it is one. */
template <class T> static inline T atomicAdd(T *at, T value)
{
    static_assert(std::is_integral<T>::value, "floats are not summed in the order they come");
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
template <class T> static inline T atomicOr(T *at, T value)
{
    return __atomic_fetch_or(at, value, __ATOMIC_RELAXED);
}
template <class T> static inline T atomicMax(T *at, T value)
{
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    if (value > old)
        __atomic_store_n(at, value, __ATOMIC_RELAXED);
    return old;
}

static inline void __threadfence()
{
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
/* Of the bytes 0 .. 3 of x and 4 .. 7 of y those that the nibbles of `select` name. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned select)
{
    uint64_t both = static_cast<uint64_t>(y) << 32 | x;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; i++)
        result |= static_cast<unsigned>(both >> (select >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return result;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __uint_as_float(unsigned bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
static inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}
template <class T> static inline T __ldg(const T *at)
{
    return *at;
}
#endif
