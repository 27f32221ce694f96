/* gpu/ in a shared object of its own, as the plugin will have it: to be loaded, used and unloaded.
 */
#include "gpu/work.h"

/* 0, or the status of what failed. */
__attribute__((visibility("default"))) int gpu_guest(struct sc_alloc *alloc,
                                                     const char *library_path);

static const char ptx[] = "// PTX, so to speak";

int gpu_guest(struct sc_alloc *alloc, const char *library_path)
{
    static const struct sc_gpu_image image = {75, SC_GPU_PTX, ptx, sizeof(ptx)};
    static const char *const kernel = "fake_copy";
    const struct sc_gpu_params params = {.alloc = alloc,
                                         .library_path = library_path,
                                         .images = &image,
                                         .image_count = 1,
                                         .kernels = &kernel,
                                         .kernel_count = 1,
                                         .slot_count = 1,
                                         .event_count = 2,
                                         .hold_max = 1,
                                         .staging_bytes = 4096,
                                         .stage_ranges = 2};
    struct sc_gpu_device *device;
    struct sc_gpu_entry entry;
    spec_status status = sc_gpu_device_attach(&params, &device, NULL);
    if (status != SPEC_OK)
        return status;
    status = sc_gpu_enter(device, &entry, NULL);
    if (status == SPEC_OK) {
        status = sc_gpu_end(device, &device->slots[0], NULL);
        sc_gpu_leave(device, &entry);
    }
    sc_gpu_device_detach(device);
    return status;
}
