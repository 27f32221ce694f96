/* The kernels as a driver loads them: what CMake built of kernels/cuda/kernels.cu, in this object.
 *
 *   builder  images                                       (cmake/CudaImages.cmake takes the first)
 *   nvcc     one fatbin: sm_80, sm_90, sm_100 and PTX of compute_80
 *   NVRTC    a cubin each of sm_80, sm_90, sm_100, sm_120 as far as it knows them, and that PTX
 *   clang    PTX of sm_80, ISA 7.0
 *   none     nothing: "built without kernels"
 *
 * Holds: each has every kernel of SC_CUDA_KERNELS. Bytes of PTX end with a 0 that is not counted.
 * Does not: choose. Threads: any. Tests: tests/unit/kernels/test_cuda_images.c, test_cuda_ptxas.py
 */
#ifndef SC_KERNELS_CUDA_IMAGES_H
#define SC_KERNELS_CUDA_IMAGES_H

#include <stdint.h>

enum sc_cuda_image_kind { SC_CUDA_IMAGE_FATBIN, SC_CUDA_IMAGE_CUBIN, SC_CUDA_IMAGE_PTX };

struct sc_cuda_image {
    const uint8_t *bytes; /* at a multiple of 64 */
    uint64_t size;        /* bytes */
    uint32_t capability;  /* 10 * major + minor: of a cubin its own, which runs on later minors of
                           * the  same major; else the least that it runs on */
    uint32_t kind;        /* enum sc_cuda_image_kind */
};

/* In the order in which they are to be tried. 0 of them: built without kernels. Static memory. */
const struct sc_cuda_image *sc_cuda_images(uint32_t *ret_count);

#endif
