/* Intents to erase: files that say what of a rank's directory is void and has to be overwritten
 * (erasures.c). Contract: store/erase.h.
 *
 * Threads: per member.
 * Tests: tests/unit/store/test_erase.c */
#ifndef SC_STORE_LOG_ERASURES_H
#define SC_STORE_LOG_ERASURES_H

#include "store/erase.h"

#include <pthread.h>

#define SC_STORE_ERASE_DIR "erase"

struct sc_store_erasures {
    _Atomic uint32_t count; /* of the list; any thread */

    pthread_mutex_t lock; /* rank 59: the list */
    struct sc_store_erasure list[SC_STORE_ERASURES_MAX];
    bool is_over; /* there are more than the list holds: everything is covered */

    /* Statistics. Any thread, relaxed. */
    _Atomic uint64_t erased, failures, zeroed_bytes, left_bytes;
};

struct sc_store;

/* A new extent would have to wait: something is being erased. Any thread. */
bool sc_store_erasures_pend(const struct sc_store *store);
/* Takes away the intents that were carried out, durably, and those of the list with them. */
spec_status sc_store_erasures_done(struct sc_store *store, const struct sc_store_erasure *what,
                                   uint64_t count, struct spec_error *reterr);

#endif
