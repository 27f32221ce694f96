/* direct.h: registers the host tier's memory and holds slabs. */
#include "plugin/device/direct.h"

void sc_plugin_direct_open(struct sc_plugin_device *device)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t bytes = 0;
    uint8_t *memory = sc_host_tier_at(device->params.store, &bytes);
    if (memory != NULL &&
        sc_gpu_pin(device->gpu, memory, bytes, &device->direct, &error) != SPEC_OK)
        SC_LOG(device->params.log, SPEC_LOG_WARN,
               "rows of the host tier go to the device by way of gpu.staging_bytes: %s",
               error.text);
}

void sc_plugin_direct_close(struct sc_plugin_device *device)
{
    sc_gpu_unpin(&device->direct);
}

bool sc_plugin_direct_hold(struct sc_plugin_pinned *pinned, struct sc_host_tier_memory_slab *slab)
{
    if (pinned->slab_count > 0 && pinned->slabs[pinned->slab_count - 1] == slab)
        return true; /* rows mostly ascend; other slabs are held twice */
    if (pinned->slab_count == SC_PLUGIN_PINNED_SLABS)
        return false;
    sc_store_slab_hold(pinned->device->params.store, slab);
    pinned->slabs[pinned->slab_count++] = slab;
    return true;
}

void sc_plugin_direct_leave(struct sc_plugin_pinned *pinned)
{
    for (uint32_t i = 0; i < pinned->slab_count; i++)
        sc_store_slab_leave(pinned->device->params.store, pinned->slabs[i]);
    pinned->slab_count = 0;
}
