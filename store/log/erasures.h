/* erasures: intents of a rank to erase data (erasures.c). Contract: store/erase.h.
 * Tests: tests/unit/store/test_erase.c */
#ifndef SC_STORE_LOG_ERASURES_H
#define SC_STORE_LOG_ERASURES_H

#include "store/erase.h"
#include "store/log/watch.h"

#include <pthread.h>

#define SC_STORE_ERASE_DIR "erase"

struct sc_store_erasures {
    _Atomic uint32_t count; /* entries of list; any thread */

    pthread_mutex_t lock; /* rank 59: list, is_over */
    struct sc_store_erasure list[SC_STORE_ERASURES_MAX];
    _Atomic bool is_alone;       /* a member overwrites: no other process stores. Any thread */
    bool is_over;                /* more intents than the list holds: everything is covered */
    struct sc_store_watch watch; /* the tick's */

    /* Counters. Any thread, relaxed. */
    _Atomic uint64_t erased, failures, zeroed_bytes, left_bytes;
};

struct sc_store;

/* Returns true if an erasure is pending: new extents must wait. Any thread. */
bool sc_store_erasures_pend(const struct sc_store *store);
/* Removes completed intents durably. */
spec_status sc_store_erasures_done(struct sc_store *store, const struct sc_store_erasure *what,
                                   uint64_t count, struct spec_error *reterr);

#endif
