/* The spare frame (reserve_frame.c).
 *
 * Threads: any.
 * Tests: tests/unit/store/test_store.c, test_selector.c */
#ifndef SC_STORE_CACHE_RESERVE_FRAME_H
#define SC_STORE_CACHE_RESERVE_FRAME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sc_store_starved {   /* a load that the spare frame may serve: the spare's lock */
    _Atomic uint32_t *word; /* changes when the frame came back; constant */
    struct sc_store_starved *next;
    bool is_queued;
};

/* A frame that only a starved load uses, so that one that is waited for always progresses. Guarded
 * by its lock (rank 35). */
struct sc_store_reserve_frame {
    pthread_mutex_t lock;
    uint8_t *frame;                   /* constant after open */
    struct sc_store_starved *owner;   /* NULL: nobody has it */
    struct sc_store_starved *starved; /* wait for it */
};

struct sc_store;

/* true: it is the caller's until put. false: the word changes when it may be had. */
bool sc_store_reserve_frame_take(struct sc_store *store, struct sc_store_starved *starved);
void sc_store_reserve_frame_put(struct sc_store *store);
/* Waits for it no more. */
void sc_store_starved_leave(struct sc_store *store, struct sc_store_starved *starved);

#endif
