/* SC_UNROLL: the loop behind it is unrolled wholly, so that arrays of registers are registers.
 * Each compiler has its own word for it.
 *
 * Threads: any. Tests: none (it changes no result). */
#ifndef SC_KERNELS_CPU_UNROLL_H
#define SC_KERNELS_CPU_UNROLL_H

#if defined(__clang__)
#define SC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SC_UNROLL _Pragma("GCC unroll 24")
#endif

#endif
