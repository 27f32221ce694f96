/* Rows to columns, a line of a column at a time. Adds: AVX-512.
 *
 * Threads: any. Tests: tests/unit/kernels/test_columns.c */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#define TURN_NAME(name) sc_kernels_avx512_##name

#include "kernels/cpu/turn_rung.h"
#endif
