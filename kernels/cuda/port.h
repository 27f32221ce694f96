/* What kernels/cuda/ needs of a compiler, so that one source has four: nvcc, NVRTC, clang without a
 * toolkit (clang_device.h), and a C++ compiler with tests/cuda/emu/emu.h in front (SC_EMULATED).
 *
 * Loads of what the kernel itself does not write, and stores, by size: `at` is aligned to it, which
 * the emulation checks. Pointers that are read from memory have no address space that a compiler
 * knows: through these loads they become LDG all the same.
 *
 * Does not: include a header of a toolkit or of libc. Tests: tests/unit/kernels/test_cuda_*.c */
#ifndef SC_KERNELS_CUDA_PORT_H
#define SC_KERNELS_CUDA_PORT_H

#if defined(SC_EMULATED) /* emu.h stands in front */
#define SC_DEVICE static inline
template <class T> static inline T sc_load(const void *at, int line)
{
    emu::check<T>(at, line);
    T value;
    memcpy(&value, at, sizeof(T));
    return value;
}
template <class T> static inline void sc_store(void *at, T value, int line)
{
    emu::check<T>(at, line);
    memcpy(at, &value, sizeof(T));
}
#define sc_load1(at)        sc_load<uint8_t>((at), __LINE__)
#define sc_load2(at)        sc_load<uint16_t>((at), __LINE__)
#define sc_load4(at)        sc_load<uint32_t>((at), __LINE__)
#define sc_load8(at)        sc_load<uint2>((at), __LINE__)
#define sc_load16(at)       sc_load<uint4>((at), __LINE__)
#define sc_store1(at, ...)  sc_store<uint8_t>((at), (uint8_t)(__VA_ARGS__), __LINE__)
#define sc_store2(at, ...)  sc_store<uint16_t>((at), (uint16_t)(__VA_ARGS__), __LINE__)
#define sc_store4(at, ...)  sc_store<uint32_t>((at), __VA_ARGS__, __LINE__)
#define sc_store8(at, ...)  sc_store<uint2>((at), __VA_ARGS__, __LINE__)
#define sc_store16(at, ...) sc_store<uint4>((at), __VA_ARGS__, __LINE__)
#define sc_shared16(at)     sc_load<uint4>((at), __LINE__)
#else
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
#if defined(__CUDACC_RTC__) || defined(__clang__) /* no headers there */
typedef unsigned long uint64_t;
typedef long int64_t;
#else
#include <stdint.h>
#endif
#if defined(__clang__) && !defined(__NVCC__) && !defined(__CUDACC_RTC__)
#include "kernels/cuda/clang_device.h"
#endif
#define SC_DEVICE             static __device__ __forceinline__
/* For accesses of 16 bytes, whatever T is. */
#define SC_SHARED(T, name, n) alignas(16) __shared__ T name[n]
SC_DEVICE uint32_t sc_load1(const void *at)
{
    return __ldg(static_cast<const uint8_t *>(at));
}
SC_DEVICE uint32_t sc_load2(const void *at)
{
    return __ldg(static_cast<const uint16_t *>(at));
}
SC_DEVICE uint32_t sc_load4(const void *at)
{
    return __ldg(static_cast<const uint32_t *>(at));
}
SC_DEVICE uint2 sc_load8(const void *at)
{
    return __ldg(static_cast<const uint2 *>(at));
}
SC_DEVICE uint4 sc_load16(const void *at)
{
    return __ldg(static_cast<const uint4 *>(at));
}
/* Of shared memory. */
SC_DEVICE uint4 sc_shared16(const void *at)
{
    return *static_cast<const uint4 *>(at);
}
SC_DEVICE void sc_store1(void *at, uint32_t value)
{
    *static_cast<uint8_t *>(at) = static_cast<uint8_t>(value);
}
SC_DEVICE void sc_store2(void *at, uint32_t value)
{
    *static_cast<uint16_t *>(at) = static_cast<uint16_t>(value);
}
SC_DEVICE void sc_store4(void *at, uint32_t value)
{
    *static_cast<uint32_t *>(at) = value;
}
SC_DEVICE void sc_store8(void *at, uint2 value)
{
    *static_cast<uint2 *>(at) = value;
}
SC_DEVICE void sc_store16(void *at, uint4 value)
{
    *static_cast<uint4 *>(at) = value;
}
#endif

/* A kernel: found by its name, of at most so many threads a block. */
#define SC_KERNEL(name, params, threads)                                                           \
    extern "C" __global__ void __launch_bounds__(threads) name(const params what)

/* Of which a multiprocessor shall have `blocks` at once: so many registers each may take. */
#define SC_KERNEL_BESIDE(name, params, threads, blocks)                                            \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const params what)

/* 0: aligned to `bytes`, a power of two. */
SC_DEVICE uint32_t sc_off(const void *at, uint32_t bytes)
{
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(at)) & (bytes - 1);
}

/* 2 bytes wherever they are. */
SC_DEVICE uint32_t sc_load2_any(const uint8_t *at)
{
    return sc_off(at, 2) == 0 ? sc_load2(at) : sc_load1(at) | (uint32_t)sc_load1(at + 1) << 8;
}

#endif
