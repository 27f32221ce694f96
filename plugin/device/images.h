/* images: converts the built kernel images to gpu/'s form, so that neither depends on the other.
 * Threads: any. Tests: tests/unit/plugin/test_device_loads.c */
#ifndef SC_PLUGIN_DEVICE_IMAGES_H
#define SC_PLUGIN_DEVICE_IMAGES_H

#include "gpu/device.h"
#include "kernels/cuda/images.h"

#define SC_PLUGIN_IMAGES 8u /* maximum images of one build */

/* Converts the first SC_PLUGIN_IMAGES images; returns their number. */
static inline uint32_t sc_plugin_images_of(const struct sc_cuda_image *images, uint32_t count,
                                           struct sc_gpu_image ret_images[SC_PLUGIN_IMAGES])
{
    static const uint32_t KINDS[] = {[SC_CUDA_IMAGE_FATBIN] = SC_GPU_FATBIN,
                                     [SC_CUDA_IMAGE_CUBIN] = SC_GPU_CUBIN,
                                     [SC_CUDA_IMAGE_PTX] = SC_GPU_PTX};
    count = count < SC_PLUGIN_IMAGES ? count : SC_PLUGIN_IMAGES;
    for (uint32_t i = 0; i < count; i++)
        ret_images[i] = (struct sc_gpu_image){
            .capability = images[i].capability,
            .kind = KINDS[images[i].kind],
            .bytes = images[i].bytes,
            .byte_count = images[i].size + (images[i].kind == SC_CUDA_IMAGE_PTX ? 1 : 0)};
    return count;
}

static inline uint32_t sc_plugin_images(struct sc_gpu_image ret_images[SC_PLUGIN_IMAGES])
{
    uint32_t count;
    const struct sc_cuda_image *images = sc_cuda_images(&count);
    return sc_plugin_images_of(images, count, ret_images);
}

#endif
