/* device_stream.h: begins and submits ring entries, and launches kernels. */
#include "plugin/device/device_stream.h"

/* Polls of some 2 microseconds each (estimate) before waiting for the interrupt: scores take a few
 * hundred microseconds, and waking a thread 50 to 100. */
#define POLLS 256u

bool sc_plugin_stream_begin(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream,
                            const struct sc_gpu_hold *hold)
{
    if (!sc_gpu_events_begin(device->gpu, own_stream))
        return false;
    bool is_held = sc_gpu_events_hold(own_stream, hold); /* a new entry has a free place */
    SC_ASSERT(device->params.poison, is_held);
    return true;
}

void sc_plugin_stream_begin_wait(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream,
                                 const struct sc_gpu_hold *hold)
{
    while (!sc_plugin_stream_begin(device, own_stream, hold))
        (void)sc_gpu_events_wait(device->gpu, own_stream, own_stream->event_ring.event_count - 1);
}

spec_status sc_plugin_stream_submit(struct sc_plugin_device *device,
                                    struct sc_gpu_stream *own_stream, spec_status status,
                                    struct spec_error *reterr)
{
    struct spec_error late = {.struct_size = sizeof(late)};
    spec_status submitted =
        sc_gpu_events_submit(device->gpu, own_stream, status == SPEC_OK ? reterr : &late);
    return status == SPEC_OK ? submitted : status;
}

static void completed(void *held, void *user)
{
    (void)user;
    atomic_store_explicit((_Atomic uint32_t *)held, 1, memory_order_release); /* may be freed now */
}

struct sc_gpu_hold sc_plugin_stream_hold(_Atomic uint32_t *over)
{
    return (struct sc_gpu_hold){.give = completed, .held = over};
}

void sc_plugin_stream_await(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream,
                            const _Atomic uint32_t *over)
{
    for (uint32_t i = 0; i < POLLS && atomic_load_explicit(over, memory_order_acquire) == 0; i++)
        (void)sc_gpu_events_reap(device->gpu, own_stream);
    while (atomic_load_explicit(over, memory_order_acquire) == 0) {
        uint64_t flying = sc_gpu_events_pending(own_stream);
        if (flying > 0)
            (void)sc_gpu_events_wait(device->gpu, own_stream, flying - 1);
    }
}

spec_status sc_plugin_stream_launch(struct sc_plugin_device *device, void *stream,
                                    enum sc_plugin_kernel kernel, bool fits,
                                    const struct sc_cuda_shape *shape, void *what,
                                    struct spec_error *reterr)
{
    if (!fits)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "a shape that no kernel takes");
    if (shape->grid[0] == 0)
        return SPEC_OK;
    const struct sc_gpu_grid grid = {.blocks_x = shape->grid[0],
                                     .blocks_y = shape->grid[1],
                                     .blocks_z = shape->grid[2],
                                     .threads = shape->block[0]};
    return sc_gpu_launch(device->gpu, stream, kernel, &grid, &what, reterr);
}
