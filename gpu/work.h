/* work: enqueues copies and kernels on a device, ordered relative to the host's own stream.
 *
 *   host's stream   ..earlier work  E0                          E1 | later work
 *                                   \                           ^
 *   kernels                          '-> wait   place  place ---'      sc_gpu_begin .. sc_gpu_end
 *                                          ^ mark
 *   copies              copy  copy --------'                           sc_gpu_follow
 *
 * All calls need a device entry (gpu/device.h). None blocks or allocates, except that a driver with
 * a full queue may make a call wait. The caller keeps memory in place until the work is done
 * (gpu/event_ring.h).
 *
 * Errors: SPEC_E_INVALID if the host's stream is captured or of another context; then nothing was
 * enqueued on it. SPEC_E_IO if the driver could not enqueue; the device is closed.
 * Threads: the slot's holder; for the host's stream the host's own thread, inside its call.
 * Tests: tests/unit/gpu/test_device.c, test_load.c */
#ifndef SC_GPU_WORK_H
#define SC_GPU_WORK_H

#include "gpu/device.h"

/* Checks the host's stream: NULL or a CUDA handle, also a legacy or per-thread one.
 * Errors: SPEC_E_INVALID (being captured; not of this device's primary context). */
spec_status sc_gpu_stream_check(struct sc_gpu_device *device, sc_cu_stream stream,
                                struct spec_error *reterr);
/* Checks that the first and last byte of memory that our kernels access are on this device.
 * Errors: SPEC_E_INVALID (0 bytes; host memory, another device's, or memory unknown to CUDA). */
spec_status sc_gpu_memory_check(struct sc_gpu_device *device, sc_cu_ptr at, uint64_t bytes,
                                struct spec_error *reterr);

enum sc_gpu_streams { SC_GPU_COPIES = 1, SC_GPU_KERNELS = 2 };

/* E0: orders later work of those streams (a sum of enum sc_gpu_streams) behind the work enqueued on
 * the host's stream so far. Checks the stream as sc_gpu_stream_check does. */
spec_status sc_gpu_begin(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                         sc_cu_stream stream, uint32_t lanes, struct spec_error *reterr);
/* Orders later work of `own_stream` behind the work enqueued on `first` so far. */
spec_status sc_gpu_follow(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                          struct sc_gpu_stream *first, struct spec_error *reterr);
/* E1, in two halves, because only the host's thread may use its stream. end records an event behind
 * the work of the kernels stream; if copies wrote to the destination, call sc_gpu_follow first.
 * end_wait orders later work of the host's stream behind that event, and checks it as
 * sc_gpu_stream_check does. */
spec_status sc_gpu_end(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                       struct spec_error *reterr);
spec_status sc_gpu_end_wait(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                            sc_cu_stream stream, struct spec_error *reterr);

/* Copies; host memory is pinned (gpu/pin.h) and unchanged until the copy is done. */
spec_status sc_gpu_copy_in(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                           sc_cu_ptr to, const void *from, uint64_t bytes,
                           struct spec_error *reterr);
spec_status sc_gpu_copy_out(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                            void *to, sc_cu_ptr from, uint64_t bytes, struct spec_error *reterr);
/* Copies `rows` rows of row_bytes with a stride on each side. */
spec_status sc_gpu_copy_rows_in(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                                sc_cu_ptr to, uint64_t to_stride_bytes, const void *from,
                                uint64_t from_stride_bytes, uint64_t row_bytes, uint64_t rows,
                                struct spec_error *reterr);

struct sc_gpu_grid {
    uint32_t blocks_x, blocks_y, blocks_z; /* 0 means 1 */
    uint32_t threads;                      /* per block, one dimension */
    uint32_t shared_bytes;                 /* dynamic */
};

/* Launches kernel number `kernel` of the params' names on one of our streams, or on a checked
 * stream of the host. Arguments are an array of pointers, copied by the driver. */
spec_status sc_gpu_launch(struct sc_gpu_device *device, sc_cu_stream stream, uint32_t kernel,
                          const struct sc_gpu_grid *grid, void **arguments,
                          struct spec_error *reterr);

/* Blocks until the work on the stream no longer uses our memory: after an error, when no event can
 * report it. Checked stream only. */
void sc_gpu_stream_finish(struct sc_gpu_device *device, sc_cu_stream stream);

#endif
