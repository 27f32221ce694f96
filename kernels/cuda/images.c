/* images.h: embeds the images. The assembler adds files and table, because only it knows their
 * sizes; CMake writes the list (sc_cuda_image_files.h in the build folder). A program with its own
 * kernels compiles this file again with its own list and function name.
 * Threads: any. Tests: tests/unit/kernels/test_cuda_images.c */
#include "kernels/cuda/images.h"

#include <sc_cuda_image_files.h>
#include <stddef.h>

#if !defined(SC_CUDA_IMAGES)
#define SC_CUDA_IMAGES sc_cuda_images
#endif
#define JOINED(a, b)  a##b
#define JOIN(a, b)    JOINED(a, b)
#define WRITTEN(name) #name
#define WRITE(name)   WRITTEN(name)
#define ROWS          JOIN(SC_CUDA_IMAGES, _rows)

_Static_assert(SC_CUDA_IMAGE_FATBIN == 0 && SC_CUDA_IMAGE_CUBIN == 1 && SC_CUDA_IMAGE_PTX == 2,
               "as cmake/CudaImages.cmake writes them");
_Static_assert(offsetof(struct sc_cuda_image, bytes) == 0 &&
                   offsetof(struct sc_cuda_image, size) == 8 &&
                   offsetof(struct sc_cuda_image, capability) == 16 &&
                   offsetof(struct sc_cuda_image, kind) == 20 && sizeof(struct sc_cuda_image) == 24,
               "as the rows below");

#define BYTES(name, capability, kind, path)                                                        \
    ".balign 64\nsc_cuda_image_" #name ":\n.incbin \"" path "\"\nsc_cuda_image_" #name             \
    "_end:\n.byte 0\n"
#define ROW(name, capability, kind, path)                                                          \
    ".quad sc_cuda_image_" #name "\n.quad sc_cuda_image_" #name "_end - sc_cuda_image_" #name      \
    "\n.long " #capability "\n.long " #kind "\n"
#define ONE(name, capability, kind, path) +1

__asm__(".pushsection .rodata\n" SC_CUDA_IMAGE_FILES(
    BYTES) ".popsection\n"
           ".pushsection .data.rel.ro, \"aw\"\n.balign 8\n"
           ".globl " WRITE(ROWS) "\n.hidden " WRITE(ROWS) "\n" WRITE(ROWS) ":\n" /* */
        SC_CUDA_IMAGE_FILES(ROW) ".quad 0\n.popsection\n");

extern const struct sc_cuda_image ROWS[] __attribute__((visibility("hidden")));

const struct sc_cuda_image *SC_CUDA_IMAGES(uint32_t *ret_count);
const struct sc_cuda_image *SC_CUDA_IMAGES(uint32_t *ret_count)
{
    *ret_count = 0 SC_CUDA_IMAGE_FILES(ONE);
    return ROWS;
}
