/* What is enqueued on a device, in order, and how it stands to the host's own work.
 *
 *   the host's stream   ...its work  E0                         E1 | its next work
 *                                     \                          ^
 *   kernels                            '-> wait   place  place --'      sc_gpu_begin .. sc_gpu_end
 *                                           ^ mark
 *   copies               copy  copy --------'                            sc_gpu_follow
 *
 * All of it is inside an entry of the device (gpu/device.h). Nothing blocks or allocates; a driver
 * whose queue is full may make a call wait for room.
 *
 * Holds: a stream of the host's that is captured, or that is another context's, is INVALID and
 * nothing was enqueued on it; what a call got and could not enqueue is an error, and closes the
 * device.
 * Does not: keep memory in place until the work is done (gpu/event_ring.h); start before it is
 * told.
 * Errors: SPEC_E_INVALID where said; SPEC_E_IO, the device is closed.
 * Threads: a slot's, who has it; a stream of the host's, the host's own thread, inside its call.
 * Tests: tests/unit/gpu/test_device.c, test_load.c */
#ifndef SC_GPU_WORK_H
#define SC_GPU_WORK_H

#include "gpu/device.h"

/* A stream of the host's: NULL, or a handle of CUDA's, also a legacy or per-thread one.
 * Errors: SPEC_E_INVALID (it is being captured; it is not one of this device's primary context). */
spec_status sc_gpu_stream_check(struct sc_gpu_device *device, sc_cu_stream stream,
                                struct spec_error *reterr);
/* Memory that a kernel of ours will follow: its first and last byte are on this device.
 * Errors: SPEC_E_INVALID (bytes 0; host memory, another device's, or no memory of CUDA's). */
spec_status sc_gpu_memory_check(struct sc_gpu_device *device, sc_cu_ptr at, uint64_t bytes,
                                struct spec_error *reterr);

enum sc_gpu_streams { SC_GPU_COPIES = 1, SC_GPU_KERNELS = 2 };

/* E0: what those lanes (a sum of enum sc_gpu_streams) get from now on comes behind what the host's
 * stream has been given so far. The stream is checked as by sc_gpu_stream_check. */
spec_status sc_gpu_begin(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                         sc_cu_stream stream, uint32_t lanes, struct spec_error *reterr);
/* What `own_stream` gets from now on comes behind what `first` has been given so far. */
spec_status sc_gpu_follow(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                          struct sc_gpu_stream *first, struct spec_error *reterr);
/* E1, in two halves, since the host's stream is the host's thread's: end is behind what the kernels
 * stream has been given so far (what copies wrote into a destination is followed first); what the
 * host's stream gets after end_wait comes behind the end. The stream is checked as by
 * sc_gpu_stream_check. */
spec_status sc_gpu_end(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                       struct spec_error *reterr);
spec_status sc_gpu_end_wait(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                            sc_cu_stream stream, struct spec_error *reterr);

/* Copies; host memory is pinned (gpu/pin.h), and stays as it is until the copy is done. */
spec_status sc_gpu_copy_in(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                           sc_cu_ptr to, const void *from, uint64_t bytes,
                           struct spec_error *reterr);
spec_status sc_gpu_copy_out(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                            void *to, sc_cu_ptr from, uint64_t bytes, struct spec_error *reterr);
/* `rows` pieces of row_bytes, so many bytes apart. */
spec_status sc_gpu_copy_rows_in(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                                sc_cu_ptr to, uint64_t to_stride_bytes, const void *from,
                                uint64_t from_stride_bytes, uint64_t row_bytes, uint64_t rows,
                                struct spec_error *reterr);

struct sc_gpu_grid {
    uint32_t blocks_x, blocks_y, blocks_z; /* 0: 1 */
    uint32_t threads;                      /* of a block, in one dimension */
    uint32_t shared_bytes;                 /* dynamic */
};

/* A kernel by its number in the params' names, on a stream of ours or of the host's (which was
 * checked). Arguments are copied: [as many as it has] pointers to them. */
spec_status sc_gpu_launch(struct sc_gpu_device *device, sc_cu_stream stream, uint32_t kernel,
                          const struct sc_gpu_grid *grid, void **arguments,
                          struct spec_error *reterr);

/* After an error, where no event can say it any more: what the stream was given touches nothing of
 * ours from now on. Blocks until then. The stream is checked as by sc_gpu_stream_check. */
void sc_gpu_stream_finish(struct sc_gpu_device *device, sc_cu_stream stream);

#endif
