/* images: the compiled kernels of kernels/cuda/kernels.cu, embedded for the driver.
 *
 *   builder  images                                      (cmake/CudaImages.cmake: first found)
 *   nvcc     one fatbin: sm_80, sm_90, sm_100 and PTX of compute_80
 *   NVRTC    a cubin for each of sm_80, sm_90, sm_100, sm_120 that it knows, and that PTX
 *   clang    PTX of sm_80, ISA 7.0
 *   none     nothing: "built without kernels"
 *
 * Invariants: each image has every kernel of SC_CUDA_KERNELS. PTX ends with a 0 byte that is not
 * counted.
 * Threads: any. Tests: tests/unit/kernels/test_cuda_images.c, test_cuda_ptxas.py */
#ifndef SC_KERNELS_CUDA_IMAGES_H
#define SC_KERNELS_CUDA_IMAGES_H

#include <stdint.h>

enum sc_cuda_image_kind { SC_CUDA_IMAGE_FATBIN, SC_CUDA_IMAGE_CUBIN, SC_CUDA_IMAGE_PTX };

struct sc_cuda_image {
    const uint8_t *bytes; /* 64-byte aligned */
    uint64_t size;        /* bytes */
    /* 10 * major + minor. Cubin: its own, which later minors of the same major run too; else the
     * least that runs it. */
    uint32_t capability;
    uint32_t kind;        /* enum sc_cuda_image_kind */
};

/* Returns static images in the order to try them. 0 of them: built without kernels. */
const struct sc_cuda_image *sc_cuda_images(uint32_t *ret_count);

#endif
