/* What all that goes over a device's lanes does alike: boarding a flight, departing, being awaited,
 * launching.
 *
 *   board -> copies, kernels (gpu/work.h) -> depart
 *
 * Holds: what a flight that boarded holds is given back once it has departed and landed, whether
 *   what lies between succeeded or not.
 * Threads: who has the slot's lock, inside an entry of the device.
 * Tests: tests/unit/plugin/test_device_loads.c, test_device_queries.c, test_device_faults.c */
#ifndef SC_PLUGIN_DEVICE_DEVICE_STREAM_H
#define SC_PLUGIN_DEVICE_DEVICE_STREAM_H

#include "gpu/work.h"
#include "plugin/device/device_tables.h"

/* The stream's next flight boards, with what is held. false: as many fly as there is room for, and
 * nothing is held. */
bool sc_plugin_stream_begin(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream,
                            const struct sc_gpu_hold *hold);
/* The same, waiting until one has landed. */
void sc_plugin_stream_begin_wait(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream,
                                 const struct sc_gpu_hold *hold);
/* It departs. status: of what was enqueued since it boarded; returns that, or if it was OK what
 * departing says. */
spec_status sc_plugin_stream_submit(struct sc_plugin_device *device,
                                    struct sc_gpu_stream *own_stream, spec_status status,
                                    struct spec_error *reterr);
/* What a flight holds whose landing somebody awaits: *over, 0 before, becomes 1 when it has landed,
 * and it does in any case; then nothing follows the pointer any more. */
struct sc_gpu_hold sc_plugin_stream_hold(_Atomic uint32_t *over);
/* Until it has. Without the lock. Asks a few hundred times, then waits in the driver for what the
 * stream's stream was given. */
void sc_plugin_stream_await(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream,
                            const _Atomic uint32_t *over);
/* A kernel with its one parameter, of a grid that kernels/cuda/launch.h made, or refused (fits).
 * Errors: UNSUPPORTED (it was refused); IO, the device is closed. */
spec_status sc_plugin_stream_launch(struct sc_plugin_device *device, void *stream,
                                    enum sc_plugin_kernel kernel, bool fits,
                                    const struct sc_cuda_shape *shape, void *what,
                                    struct spec_error *reterr);

#endif
