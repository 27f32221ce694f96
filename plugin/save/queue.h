/* queue: layers in flight from a device (plugin/device/d2h_batch.h), and the task that puts them
 * into their extents.
 *
 *   host's call   layer -> batch, packed on its stream -> queue     returns at once
 *   task          polls: arrived batch -> put_layer, tags from host memory -> batch freed
 *
 *   queue  [A 0][A 1][B 0][A 2] ..     each extent's layers in order; the first of an extent is put
 *                                      when it has arrived, whatever else waits before it
 *
 * An extent's producer is the host's thread while none of its layers is queued, else the task. So a
 * layer in host memory behind a queued one is copied and queued, too.
 *
 * Invariants: put_layer and abort of an extent never run concurrently, nor after its end. Abandoned
 * passes wait for nothing: their batches are detached and freed on arrival. A failed device's bytes
 * are not put; the save is lost with IO. A layer stays while its host waits for staging
 * (SPEC_STORE_WAIT).
 * Threads: the request's host thread; open (one) and the task (executor). Lock: saves.lock (20).
 * Tests: tests/unit/plugin/test_device_stores.c */
#ifndef SC_PLUGIN_SAVE_QUEUE_H
#define SC_PLUGIN_SAVE_QUEUE_H

#include "kernels/kernels.h"
#include "plugin/args/memory.h"
#include "plugin/save/saves.h"

/* A layer of a save, in checked memory. */
struct sc_plugin_layer {
    const struct sc_plugin_memory *memory;
    struct sc_kernels_move how;
    uint64_t first; /* the memory's token that is the save's first */
    uint32_t layer;
};

void sc_plugin_queue_open(spec_connector *conn);
/* Queues the request's layer. Errors: BUSY (gpu.store_bytes), those of sc_plugin_d2h_batch_send;
 * the save is unchanged. Blocks only as that does. */
spec_status sc_plugin_queue_put(spec_connector *conn, struct sc_plugin_request *request,
                                struct sc_plugin_save *save, const struct sc_plugin_layer *layer,
                                struct spec_error *reterr);

/* Ends the extent's production after the last layer or a failed one. Host thread. */
void sc_plugin_save_end(spec_connector *conn, struct sc_plugin_save *save);
/* Ends the save early with status `why`; SPEC_OK: the store's status. No effect if it has ended. */
void sc_plugin_save_give_up(spec_connector *conn, struct sc_plugin_save *save, spec_status why);
/* Does the same with saves.lock held. True: the caller aborts the extent, unlocked. */
bool sc_plugin_save_gives_up(spec_connector *conn, struct sc_plugin_save *save, spec_status why);
/* Puts a layer from the host thread. An error or the last layer ends the save. */
spec_status sc_plugin_save_put_layer(spec_connector *conn, struct sc_plugin_save *save,
                                     uint32_t layer, const struct sc_store_source *source,
                                     struct spec_error *reterr);

#endif
