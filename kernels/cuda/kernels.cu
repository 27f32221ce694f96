/* kernels.cu: all kernels as one module, for the images and the emulating tests.
 * Tests: tests/unit/kernels/test_cuda_*.c */
#include "kernels/cuda/codec.cu"
#include "kernels/cuda/importance.cu"
#include "kernels/cuda/importance_tensor.cu"
#include "kernels/cuda/bitplanes.cu"
#include "kernels/cuda/rows.cu"
