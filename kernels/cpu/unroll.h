/* SC_UNROLL: the loop behind it is unrolled wholly, so that arrays of registers are registers.
 * Each compiler has its own word for it. With a sanitizer it stays a loop: every access is checked
 * in memory, and copies of the checks take minutes to compile.
 *
 * SC_ROLLED: it stays one, so that what it adds up is not put off, and spilled, until its end.
 *
 * Threads: any. Tests: none (it changes no result). */
#ifndef SC_KERNELS_CPU_UNROLL_H
#define SC_KERNELS_CPU_UNROLL_H

#if defined(SC_SANITIZED)
#define SC_UNROLL
#elif defined(__clang__)
#define SC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SC_UNROLL _Pragma("GCC unroll 24")
#endif

#if defined(__clang__)
#define SC_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define SC_ROLLED _Pragma("GCC unroll 1")
#endif

#endif
