/* Which kernels are emulated: the product's, and with SC_WITH_BENCH those of bench cuda beside
 * them. C++. */
#ifndef SC_TESTS_CUDA_EMU_KERNELS_H
#define SC_TESTS_CUDA_EMU_KERNELS_H

#include "kernels/cuda/spec.h"

#if defined(SC_WITH_BENCH)
#include "bench/cuda/kernels.h"
#define SC_EMU_KERNELS(X) SC_CUDA_KERNELS(X) BENCH_CUDA_KERNELS(X)
#else
#define SC_EMU_KERNELS(X) SC_CUDA_KERNELS(X)
#endif

#endif
