/* Flights: what must stay as it is until the device has done what it was told. A flight is an event
 * and what it holds: frames of the host's memory, a range of staging. A stream has a ring of them.
 *
 *   stream   copy copy copy EVENT  copy EVENT  copy copy ...        what was enqueued, in order
 *           \____ flight 4 ___/  \ flight 5/  \ boarding: flight 6, not departed
 *   ring   [ . | 4 | 5 | 6 | . ]    landed = 4, departed = 6
 *
 * How: begin; hold what the next calls will use, then enqueue them; depart. In that order, so that
 * what was enqueued is held even where a call in between failed: depart comes in any case.
 *
 * Holds: what a flight holds is given back exactly once, when the stream has done all that it was
 * given before depart, and not sooner; in the order of departure. On a device that has failed it
 * is given back after a wait for the stream's stream (where that fails too, for the context: one
 * that has crashed does nothing more). Nothing is allocated after open.
 * Does not: know what a frame is; wait, unless told to.
 * Threads: begin, hold and depart are who has the slot's; reap and wait any thread's, beside them
 * and each other. What a flight holds is given back on the thread that reaps or waits, under the
 * stream's lock (rank 56): `give` may take locks above it (frames have 60), and must not come back
 * here.
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

/* Something to be given back. */
struct sc_gpu_hold {
    void (*give)(void *held, void *user);
    void *held, *user;
};

struct sc_gpu_event_ring {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_gpu_events {
        sc_cu_event event;
        uint32_t hold_count;
        bool is_recorded; /* false: it could not be, and the stream was waited for instead */
        struct sc_gpu_range range; /* zero: none */
    } * ring;                      /* [flight_count] */
    struct sc_gpu_hold *holds;     /* [flight_count, hold_max] */
    uint32_t event_count, hold_max;

    /* Who has the slot. */
    bool is_boarding;
    _Atomic uint64_t departed; /* ever; release: what the flight holds was written before */

    pthread_mutex_t lock;    /* rank 56: who looks whether flights have landed */
    _Atomic uint64_t completed; /* ever; written under lock, release: their places are free */
};

/* Memory and events of a stream's ring, inside an entry. Attach and detach of a device call these.
 * Errors of open: SPEC_E_NO_MEMORY; SPEC_E_UNSUPPORTED, the driver refuses. A half may be closed.
 * Before close all has landed, or is_forked. */
spec_status sc_gpu_events_open(struct sc_gpu_device *device, struct sc_gpu_event_ring *event_ring,
                               uint32_t event_count, uint32_t hold_max, struct spec_error *reterr);
void sc_gpu_events_close(struct sc_gpu_device *device, struct sc_gpu_event_ring *event_ring,
                         bool is_forked);

/* The stream's next flight is boarding; the one before has departed (asserted). false: as many fly
 * as the ring has; reap or wait, then again. Blocks: never. */
bool sc_gpu_events_begin(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream);
/* The boarding flight holds this too. false: it holds as many as it can, and this one is not held.
 * NULL give: only asks whether there is a place. */
bool sc_gpu_events_hold(struct sc_gpu_stream *own_stream, const struct sc_gpu_hold *hold);
/* The same for a range of the device's staging, one a flight: false where it has one. */
bool sc_gpu_events_hold_range(struct sc_gpu_stream *own_stream, const struct sc_gpu_range *range);
/* It departs: behind all that the stream has been given so far. Inside an entry.
 * Errors: SPEC_E_IO, the device is closed; the flight has departed all the same. Blocks: on an
 * error alone, for what the stream still does. */
spec_status sc_gpu_events_submit(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                                 struct spec_error *reterr);

/* Gives back what has landed; how many flights that were. Returns 0 at once where somebody else is
 * at it. On a device that has failed too; in a forked child nothing is given back. Enters the
 * device itself. Blocks: never, but after an error for what the stream still does. */
uint64_t sc_gpu_events_reap(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream);
/* The same, waiting until at most left_max fly. Sleeps in the driver. */
uint64_t sc_gpu_events_wait(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                            uint64_t left_max);
/* How many have departed and not landed. Any thread; may change at once. */
uint64_t sc_gpu_events_pending(const struct sc_gpu_stream *own_stream);

#endif
