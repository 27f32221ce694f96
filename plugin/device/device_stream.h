/* device_stream: what all transfers on a device's streams share: ring entries, waiting, launches.
 *
 *   begin -> copies, kernels (gpu/work.h) -> submit
 *
 * Invariants: the holds of a begun entry are given back once it is submitted and completed, even if
 * work in between failed.
 * Threads: the holder of the slot's lock, inside a device entry.
 * Tests: tests/unit/plugin/test_device_loads.c, test_device_queries.c, test_device_faults.c */
#ifndef SC_PLUGIN_DEVICE_DEVICE_STREAM_H
#define SC_PLUGIN_DEVICE_DEVICE_STREAM_H

#include "gpu/work.h"
#include "plugin/device/device_tables.h"

/* Begins the next ring entry with `hold`. Returns false, holding nothing, if the ring is full. */
bool sc_plugin_stream_begin(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream,
                            const struct sc_gpu_hold *hold);
/* Does the same, waiting for a free entry. */
void sc_plugin_stream_begin_wait(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream,
                                 const struct sc_gpu_hold *hold);
/* Submits the entry. status: of the work enqueued since begin. Returns it, or if it is OK, the
 * result of submitting. */
spec_status sc_plugin_stream_submit(struct sc_plugin_device *device,
                                    struct sc_gpu_stream *own_stream, spec_status status,
                                    struct spec_error *reterr);
/* Returns a hold for a caller that waits: *over, initially 0, becomes 1 when the entry has
 * completed, in any case. The pointer is not used afterwards. */
struct sc_gpu_hold sc_plugin_stream_hold(_Atomic uint32_t *over);
/* Waits for *over, without the slot's lock. Polls a few hundred times, then waits in the driver for
 * all work on the stream. */
void sc_plugin_stream_await(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream,
                            const _Atomic uint32_t *over);
/* Launches a kernel with its parameter; grid and `fits` are those of kernels/cuda/launch.h.
 * Errors: UNSUPPORTED (not fits); IO, the device is closed. */
spec_status sc_plugin_stream_launch(struct sc_plugin_device *device, void *stream,
                                    enum sc_plugin_kernel kernel, bool fits,
                                    const struct sc_cuda_shape *shape, void *what,
                                    struct spec_error *reterr);

#endif
