/* d2h_batch: copies a layer of an extent's rows from a CUDA device to pinned memory for a store.
 *
 *   host's stream   ..its work | pack |  E0  | its next work, may overwrite the source
 *                                        \
 *   our stream                            '-> wait | copy | event: the batch is complete
 *   batch  device [rows, packed] --- copy ---> pinned host memory [rows][slots]
 *   ring   [ . | batch | batch | batch | . ]   on both sides: gpu/staging_arena.h
 *
 * Invariants: when send returns, the host may overwrite the source, in the order of its stream. A
 * batch's memory is exclusive until it is given back, which requires that the device no longer
 * accesses it; this holds on a failed device too. A batch whose check succeeds was copied whole.
 * Loads use other memory (pinned buffers), so neither waits for the other.
 * Threads: take and send: any thread of the host, inside its call; the rest any. Locks: slots (29),
 * then free batches (58), then those of gpu/.
 * Tests: tests/unit/plugin/test_device_stores.c */
#ifndef SC_PLUGIN_DEVICE_D2H_BATCH_H
#define SC_PLUGIN_DEVICE_D2H_BATCH_H

#include "kernels/kernels.h"
#include "plugin/device/device_tables.h"

#define SC_PLUGIN_D2H_BATCHES 256u

struct sc_plugin_d2h_batch {
    struct sc_plugin_device *device; /* constant */

    /* Written by the owner; constant from send on. */
    struct sc_gpu_range range;
    uint8_t *rows;      /* [row_count][row_bytes], host memory */
    uint64_t row_count; /* rows: K, then V, all heads */
    uint64_t row_bytes;
    bool is_sent;

    _Atomic uint32_t flies; /* 1: the device may still write to it */

    /* Owner's: a list link, and the batch's purpose. */
    struct sc_plugin_d2h_batch *next;
    void *to;
    uint32_t layer;
    uint64_t wait_until_ns; /* deadline for waiting while staging is full; 0: no wait */
};

/* Opens an attached device's batches, at host_bytes in its pinned memory. Errors: NO_MEMORY. */
spec_status sc_plugin_d2h_batches_open(struct sc_plugin_device *device, uint64_t host_bytes,
                                       struct spec_error *reterr);
/* Closes a full or partial open. All batches were given back. */
void sc_plugin_d2h_batches_close(struct sc_plugin_device *device);

/* Takes a batch for row_count rows of an attached device; NULL: no room now. Never blocks. */
struct sc_plugin_d2h_batch *sc_plugin_d2h_batch_take(struct sc_plugin_device *device,
                                                     uint64_t row_count);
/* Gives a batch back, once, when it is complete or was never sent. */
void sc_plugin_d2h_batch_give(struct sc_plugin_d2h_batch *d2h_batch);

/* Packs rows from `first` on of checked memory (sc_plugin_h2d_batch_check), behind the work on its
 * stream, and copies them to the batch's rows. seat: distributes the hosts' streams over ours.
 * Errors: BUSY (too many in flight), UNSUPPORTED (closed device, unsupported shape, forked child),
 * IO (the device is now closed), INVALID (the stream changed since the check). After an error
 * nothing writes to the batch, which remains the caller's; the source may have been read. Blocks
 * only after IO, for enqueued work. */
spec_status sc_plugin_d2h_batch_send(struct sc_plugin_d2h_batch *d2h_batch,
                                     const struct sc_kernels_move *how, void *stream,
                                     uint64_t first, uint64_t seat, struct spec_error *reterr);

/* Detects completed batches; nothing else does. */
void sc_plugin_d2h_batches_reap(struct sc_plugin_device *device);
/* Returns true if the device no longer writes to the batch. */
bool sc_plugin_d2h_batch_is_there(const struct sc_plugin_d2h_batch *d2h_batch);
/* Tells whether a complete batch has the rows of the source.
 * Errors: IO, with the text of the device's failure, which may have happened before the copy. */
spec_status sc_plugin_d2h_batch_check(const struct sc_plugin_d2h_batch *d2h_batch,
                                      struct spec_error *reterr);

#endif
