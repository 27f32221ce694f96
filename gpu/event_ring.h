/* event_ring: keeps memory in place until the device has finished the work that uses it.
 *
 * An entry is an event and what it holds: buffers of host memory and a range of staging. Each
 * stream has a ring of entries.
 *
 *   stream   copy copy copy EVENT  copy EVENT  copy copy ...      enqueued work, in order
 *            \____ entry 4 _____/  \ entry 5/  \ entry 6: begun, not submitted
 *   ring    [ . | 4 | 5 | 6 | . ]   completed = 4, departed (submitted) = 6
 *
 * Use: begin; hold what the next calls will use, then enqueue them; submit, even if a call failed.
 * Thus everything that was enqueued is held.
 *
 * Invariants: an entry's holds are given back exactly once, in submission order. They are given
 * back when the stream has done all work enqueued before submit, and not earlier. On a failed
 * device they are given back after a wait for the stream. If that wait fails, the context is waited
 * for: a crashed context does nothing more. Nothing is allocated after open.
 * Threads: the slot's holder calls begin, hold and submit. Any thread calls reap and wait,
 * concurrently with these. Holds are given back on the thread that reaps or waits, under the ring's
 * lock (rank 56): `give` may take locks of higher rank (frames: 60) and must not call this module.
 * Tests: tests/unit/gpu/test_event_ring.c, test_load.c, and the mutants gpu-* of
 * tests/unit/mutants/ */
#ifndef SC_GPU_EVENT_RING_H
#define SC_GPU_EVENT_RING_H

#include "base/alloc.h"
#include "base/status.h"
#include "gpu/driver.h"
#include "gpu/staging_arena.h"

#include <pthread.h>
#include <stdatomic.h>

struct sc_gpu_device;
struct sc_gpu_stream;

struct sc_gpu_hold {
    void (*give)(void *held, void *user);
    void *held, *user;
};

struct sc_gpu_event_ring {
    /* Set by open, constant afterwards. */
    struct sc_alloc *alloc;
    struct sc_gpu_events {
        sc_cu_event event;
        uint32_t hold_count;
        bool is_recorded; /* false: recording failed, and the stream was waited for instead */
        struct sc_gpu_range range; /* zero: none */
    } * ring;                      /* [event_count] */
    struct sc_gpu_hold *holds;     /* [event_count, hold_max] */
    uint32_t event_count, hold_max;

    /* Written by the slot's holder. */
    bool is_begun;
    _Atomic uint64_t submitted; /* entries ever submitted; release: after the entry's holds */

    pthread_mutex_t lock;       /* rank 56: serialises completion */
    _Atomic uint64_t completed; /* entries ever completed; under lock; release: places are free */
};

/* Opens and closes the memory and events of a stream's ring, inside a device entry. Attach and
 * detach call these.
 * Errors of open: SPEC_E_NO_MEMORY; SPEC_E_UNSUPPORTED, the driver refuses. A ring that failed to
 * open may be closed. Before close all entries have completed, unless is_forked. */
spec_status sc_gpu_events_open(struct sc_gpu_device *device, struct sc_gpu_event_ring *event_ring,
                               uint32_t event_count, uint32_t hold_max, struct spec_error *reterr);
void sc_gpu_events_close(struct sc_gpu_device *device, struct sc_gpu_event_ring *event_ring,
                         bool is_forked);

/* Begins the stream's next entry; the previous one was submitted (asserted). Returns false if the
 * ring is full: reap or wait, then retry. Never blocks. */
bool sc_gpu_events_begin(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream);
/* Adds a hold to the begun entry. Returns false, without holding it, if the entry is full. With a
 * NULL `give` it only reports whether there is a free place. */
bool sc_gpu_events_hold(struct sc_gpu_stream *own_stream, const struct sc_gpu_hold *hold);
/* Adds a staging range to the begun entry. Returns false if it has one already. */
bool sc_gpu_events_hold_range(struct sc_gpu_stream *own_stream, const struct sc_gpu_range *range);
/* Submits the begun entry, behind all work enqueued on the stream so far. Call inside a device
 * entry.
 * Errors: SPEC_E_IO, the device is closed; the entry is submitted nevertheless. Blocks only on an
 * error, until the stream has finished. */
spec_status sc_gpu_events_submit(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                                 struct spec_error *reterr);

/* Gives back the holds of completed entries and returns the number of these entries. Returns 0 at
 * once if another thread is doing so, or in a forked child. Enters the device itself, a failed one
 * too. Blocks only after an error, until the stream has finished. */
uint64_t sc_gpu_events_reap(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream);
/* Does the same, waiting in the driver until at most left_max entries are pending. */
uint64_t sc_gpu_events_wait(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                            uint64_t left_max);
/* Returns the number of submitted, not completed entries. Any thread; the value may be outdated. */
uint64_t sc_gpu_events_pending(const struct sc_gpu_stream *own_stream);

#endif
