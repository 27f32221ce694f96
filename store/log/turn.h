/* turn: appending beside other processes (turn.c). In a store that one process writes, the log lock
 * alone does.
 *
 *   sc_store_log_enter(store);
 *   do {
 *       status = ... build records on the present state, append ...
 *   } while (sc_store_log_again(store, &status, reterr));
 *   sc_store_log_leave(store);
 *
 * Threads: any, but not from a callback of sc_store_follow, except sc_store_turn_is_reading.
 * Tests: tests/unit/store/test_many_writers.c */
#ifndef SC_STORE_LOG_TURN_H
#define SC_STORE_LOG_TURN_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sc_store;

/* What following does in a turn (store/replay/follow.c). */
struct sc_store_turn_calls {
    /* Reads the log on to its end. */
    spec_status (*read_on)(struct sc_store *store, struct spec_error *reterr);
    /* Log lock held: this process appended something; an extent and its pieces, with the next ids;
     * a namespace. */
    void (*appended)(struct sc_store *store);
    void (*extent_appended)(struct sc_store *store, uint64_t extent_next, uint64_t piece_next);
    void (*space_appended)(struct sc_store *store, uint64_t space);
    /* No log or space lock held: the turn ends. */
    void (*ends)(struct sc_store *store);
};

struct sc_store_turn {
    pthread_mutex_t lock;  /* rank 7, recursive; guards the rest */
    uint32_t depth;       /* of the holder's turns within turns */
    bool is_reading;       /* its holder reads the log */
    uint32_t tries;        /* of the present append */
    bool has_torn;         /* an append of this process was torn: read what is whole of it */
    uint64_t extent_ended; /* to be trimmed; 0: none */
};

/* Takes the turn, reads the log on to its end if others may have appended, and takes the log
 * lock. */
void sc_store_log_enter(struct sc_store *store);
/* After an append. PENDING: another process was faster, and nothing was appended; reads on, and
 * returns true: build the records again. Else, and after too many tries (BUSY), returns false. The
 * log lock is held before and after, and released meanwhile. */
bool sc_store_log_again(struct sc_store *store, spec_status *status, struct spec_error *reterr);
void sc_store_log_leave(struct sc_store *store);
/* Returns true if the caller is called back while this thread reads the log: it must not append.
 * The log lock may be held. */
bool sc_store_turn_is_reading(const struct sc_store *store);
/* The turn is held. Reads on. */
spec_status sc_store_turn_read(struct sc_store *store, struct spec_error *reterr);

#endif
