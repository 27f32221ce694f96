/* exp2_terms: constants of exp2.h, for code without libc headers (kernels/cuda/).
 * Tests: tests/unit/kernels/test_importance.c, test_cuda_importance.c */
#ifndef SC_KERNELS_EXP2_TERMS_H
#define SC_KERNELS_EXP2_TERMS_H

#define SC_KERNELS_EXP2_LEAST (-125.0f)
#define SC_KERNELS_EXP2_P5    1.3276472e-3f
#define SC_KERNELS_EXP2_P4    9.67554133e-3f
#define SC_KERNELS_EXP2_P3    5.55071327e-2f
#define SC_KERNELS_EXP2_P2    2.40221197e-1f
#define SC_KERNELS_EXP2_P1    6.93146967e-1f
#define SC_KERNELS_EXP2_ROUND 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer */

#endif
