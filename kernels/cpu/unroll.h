/* unroll: SC_UNROLL unrolls the next loop completely, so that arrays of vectors are registers. With
 * a sanitizer it remains a loop: checks of unrolled accesses take minutes to compile. SC_ROLLED
 * prevents unrolling, so that sums are not deferred, and spilled, until the loop's end.
 * Tests: none (results do not change). */
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
