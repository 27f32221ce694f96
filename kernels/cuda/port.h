/* port: compiler differences of kernels/cuda/: nvcc, NVRTC, clang without a toolkit
 * (clang_device.h), and a C++ compiler after tests/cuda/emu/emu.h (SC_EMULATED). Includes no
 * headers of a toolkit or, except for stdint.h with nvcc, of libc.
 *
 * Loads (only of data that the kernel does not write) and stores are by size; `at` is aligned to
 * the size, which the emulation checks. Pointers read from memory have no known address space;
 * these loads make them LDG nevertheless.
 * Tests: tests/unit/kernels/test_cuda_*.c */
#ifndef SC_KERNELS_CUDA_PORT_H
#define SC_KERNELS_CUDA_PORT_H

#if defined(SC_EMULATED) /* emu.h was included first */
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
/* Shared memory, aligned for 16-byte accesses. */
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

#define SC_KERNEL(name, params, threads)                                                           \
    extern "C" __global__ void __launch_bounds__(threads) name(const params what)

/* The same with `blocks` concurrent blocks per multiprocessor, which limits registers. */
#define SC_KERNEL_BESIDE(name, params, threads, blocks)                                            \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const params what)

/* Returns 0 if aligned to `bytes`, a power of two. */
SC_DEVICE uint32_t sc_off(const void *at, uint32_t bytes)
{
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(at)) & (bytes - 1);
}

SC_DEVICE uint32_t sc_load2_any(const uint8_t *at)
{
    return sc_off(at, 2) == 0 ? sc_load2(at) : sc_load1(at) | (uint32_t)sc_load1(at + 1) << 8;
}

#endif
