/* Parcels: a layer of an extent's rows on their way from a device to whoever writes them.
 *
 *   the host's stream   ..its work | pack |  E0  | its next work, over the source too
 *                                             \
 *   a stream of ours                           '-> wait | copy | flight: the batch is there
 *   batch  device [rows, packed] --- copy ---> pinned host memory [rows][slots]
 *   ring    [ . | batch | batch | batch | . ]   on both sides: gpu/staging_arena.h
 *
 * Holds: the source is the host's again, in the order of its stream, when send returns; a batch's
 * memory is nobody else's until it is given back, and it is given back when nothing of the device's
 * touches it any more, on a device that failed too. What it says is there was copied whole.
 * Loads have memory of their own (pinned buffers): neither waits for the other's.
 * Does not: wait, but on an error; follow addresses of the device; know extents.
 * Threads: take, send any thread of the host's, inside its call; the rest any. Locks: of the slots
 * (29), of the free ones (58), then those of gpu/.
 * Tests: tests/unit/plugin/test_device_stores.c */
#ifndef SC_PLUGIN_DEVICE_D2H_BATCH_H
#define SC_PLUGIN_DEVICE_D2H_BATCH_H

#include "kernels/kernels.h"
#include "plugin/device/device_tables.h"

#define SC_PLUGIN_D2H_BATCHES 256u

struct sc_plugin_d2h_batch {
    struct sc_plugin_device *device; /* constant */

    /* Who took it; constant from send on. */
    struct sc_gpu_range range;
    uint8_t *rows;      /* [row_count][row_bytes], host memory */
    uint64_t row_count; /* of a row K comes first, then V, all heads */
    uint64_t row_bytes;
    bool is_sent;

    _Atomic uint32_t flies; /* 1: the device may still write to it */

    /* Who has it: a list, and what it is for. */
    struct sc_plugin_d2h_batch *next;
    void *to;
    uint32_t layer;
    uint64_t wait_until_ns; /* so long it waits there while staging is full; 0: not at all */
};

/* Of an attached device: with memory that was pinned, at host_bytes of it. Errors: NO_MEMORY. */
spec_status sc_plugin_d2h_batches_open(struct sc_plugin_device *device, uint64_t host_bytes,
                                       struct spec_error *reterr);
/* Takes half of what open made, or nothing. All were given back. */
void sc_plugin_d2h_batches_close(struct sc_plugin_device *device);

/* Room for so many rows; NULL: there is none now. The device is attached. Blocks: never. */
struct sc_plugin_d2h_batch *sc_plugin_d2h_batch_take(struct sc_plugin_device *device,
                                                     uint64_t row_count);
/* Once, when it is there, or was never sent. */
void sc_plugin_d2h_batch_give(struct sc_plugin_d2h_batch *d2h_batch);

/* Packs rows `first` and on of memory that was checked (sc_plugin_h2d_batch_check), behind what its
 * stream was given, and copies them to the batch's rows. seat: a number that spreads hosts'
 * streams over ours.
 * Errors: BUSY (as many fly as may), UNSUPPORTED (the device is closed; a shape that no kernel has;
 * a forked child), IO (the device is closed from now on), INVALID (the stream has changed since the
 * check). After an error the batch is the caller's, and nothing writes to it; the source may have
 * been read until then. Blocks: after IO alone, for what was enqueued. */
spec_status sc_plugin_d2h_batch_send(struct sc_plugin_d2h_batch *d2h_batch,
                                     const struct sc_kernels_move *how, void *stream,
                                     uint64_t first, uint64_t seat, struct spec_error *reterr);

/* What came by itself is noticed: nobody else tells. */
void sc_plugin_d2h_batches_reap(struct sc_plugin_device *device);
/* Nothing writes to it any more. */
bool sc_plugin_d2h_batch_is_there(const struct sc_plugin_d2h_batch *d2h_batch);
/* Of one that is there: whether its rows are what stood in the source.
 * Errors: IO, with the text of what the device failed with, which it may have done before. */
spec_status sc_plugin_d2h_batch_check(const struct sc_plugin_d2h_batch *d2h_batch,
                                      struct spec_error *reterr);

#endif
