/* Layers whose bytes are still on their way (plugin/device/d2h_batch.h), and the task that puts
 * them into their extents once they are there.
 *
 *   host's call   layer -> batch, packed behind its stream -> queue     returns at once
 *   task          looks: what came -> put_layer, tags from host memory -> the batch is free
 *
 *   queue  [A 0][A 1][B 0][A 2] ..     of each extent one after the other; what is at the front of
 *                                      its extent goes when it is there, whoever's waits before it
 *
 * An extent's producer is the host's thread while none of its layers is queued, and the task else:
 * a layer of host memory that comes behind one that is queued is copied, and queues too.
 *
 * Holds: put_layer and abort of an extent are never called beside each other, nor after its end; a
 * pass that is given up waits for nothing: what it has under way becomes nobody's, and comes back
 * when it is there. Bytes of a device that failed are not put: the save is lost, with IO. A layer
 * whose host waits for staging (SPEC_STORE_WAIT) stays in the queue until there is room for it.
 * Does not: wait for a stream; know how rows lie at the device.
 * Threads: the request's host thread, but open (one) and the task (an executor's). Locks:
 * saves.lock (20), and below it nothing.
 * Tests: tests/unit/plugin/test_device_stores.c */
#ifndef SC_PLUGIN_SAVE_QUEUE_H
#define SC_PLUGIN_SAVE_QUEUE_H

#include "kernels/kernels.h"
#include "plugin/args/memory.h"
#include "plugin/save/saves.h"

/* A layer of a save, in memory that was checked. */
struct sc_plugin_layer {
    const struct sc_plugin_memory *memory;
    struct sc_kernels_move how;
    uint64_t first; /* token of the memory that is the save's first */
    uint32_t layer;
};

void sc_plugin_queue_open(spec_connector *conn);
/* The request's layer. Errors: BUSY (no room: gpu.store_bytes), those of sc_plugin_d2h_batch_send;
 * the save is as it was. Blocks: never, but as that one does. */
spec_status sc_plugin_queue_put(spec_connector *conn, struct sc_plugin_request *request,
                                struct sc_plugin_save *save, const struct sc_plugin_layer *layer,
                                struct spec_error *reterr);

/* The host's thread has put the last layer, or one that failed: the extent has no producer. */
void sc_plugin_save_end(spec_connector *conn, struct sc_plugin_save *save);
/* It ends without its other layers, soon; with this status, or where that is OK, the store's own.
 * Nothing where it has ended. */
void sc_plugin_save_give_up(spec_connector *conn, struct sc_plugin_save *save, spec_status why);
/* The same; saves.lock is held. True: the caller aborts the extent, without the lock. */
bool sc_plugin_save_gives_up(spec_connector *conn, struct sc_plugin_save *save, spec_status why);
/* A layer of the extent, now, by the host: after an error, or the last one, the save has ended. */
spec_status sc_plugin_save_put_layer(spec_connector *conn, struct sc_plugin_save *save,
                                     uint32_t layer, const struct sc_store_source *source,
                                     struct spec_error *reterr);

#endif
