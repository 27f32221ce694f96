/* The tier's memory, registered, and slabs that boxes keep: see direct.h. */
#include "plugin/device/direct.h"

void sc_plugin_direct_open(struct sc_plugin_device *device)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t bytes = 0;
    uint8_t *memory = sc_store_host_at(device->params.store, &bytes);
    if (memory != NULL &&
        sc_gpu_pin(device->gpu, memory, bytes, &device->direct, &error) != SPEC_OK)
        SC_LOG(device->params.log, SPEC_LOG_WARN,
               "rows of the host tier go to the device by way of gpu.staging_bytes: %s", error.text);
}

void sc_plugin_direct_close(struct sc_plugin_device *device)
{
    sc_gpu_unpin(&device->direct);
}

bool sc_plugin_direct_hold(struct sc_plugin_box *box, struct sc_store_host_slab *slab)
{
    if (box->slab_count > 0 && box->slabs[box->slab_count - 1] == slab)
        return true; /* rows ascend, most of them: others are held twice */
    if (box->slab_count == SC_PLUGIN_BOX_SLABS)
        return false;
    sc_store_slab_hold(box->device->params.store, slab);
    box->slabs[box->slab_count++] = slab;
    return true;
}

void sc_plugin_direct_leave(struct sc_plugin_box *box)
{
    for (uint32_t i = 0; i < box->slab_count; i++)
        sc_store_slab_leave(box->device->params.store, box->slabs[i]);
    box->slab_count = 0;
}
