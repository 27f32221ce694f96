/* reserve_frame: a staging frame for loads that are waited for and get none from the pool.
 *
 * So such a load progresses even if others hold all frames of the pool. One load has it at a time,
 * for one operation, and returns it when the operation is consumed or dropped. The others are
 * linked, and woken when it is returned.
 *
 * Threads: any; one lock (rank 35).
 * Tests: tests/unit/store/test_store.c, test_selector.c */
#ifndef SC_STORE_CACHE_RESERVE_FRAME_H
#define SC_STORE_CACHE_RESERVE_FRAME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sc_store_starved {   /* a starved load; guarded by the frame's lock */
    _Atomic uint32_t *word; /* changes when the frame is returned; constant */
    struct sc_store_starved *next;
    bool is_queued;
};

/* Guarded by its lock (rank 35). */
struct sc_store_reserve_frame {
    pthread_mutex_t lock;
    uint8_t *frame;
    struct sc_store_starved *owner;   /* NULL: available */
    struct sc_store_starved *starved; /* loads that wait for it */
};

struct sc_store;

/* Returns true if the frame is the caller's until put; else the word changes when it is
 * returned. */
bool sc_store_reserve_frame_take(struct sc_store *store, struct sc_store_starved *starved);
void sc_store_reserve_frame_put(struct sc_store *store);
void sc_store_starved_leave(struct sc_store *store, struct sc_store_starved *starved);

#endif
