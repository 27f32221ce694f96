/* How much is asked for: what was stored, or missed for want of room, lately (reserve.c).
 *
 * Threads: the space lock.
 * Tests: tests/unit/store/test_quarantine.c */
#ifndef SC_STORE_SPACE_RESERVE_H
#define SC_STORE_SPACE_RESERVE_H

#include "base/status.h"

#define SC_STORE_RESERVE_SLOTS 17u /* the newest, and those before it that span a lease's time */

struct sc_store_reserve { /* what was stored, or missed for want of room, lately */
    struct sc_store_reserve_slot {
        uint64_t bytes;
        uint64_t piece_first;       /* what was committed in it, and later, has no lower id */
    } slots[SC_STORE_RESERVE_SLOTS]; /* a ring, by their numbers */
    uint64_t slot;                  /* number of the newest: executor's time / its width */
    uint64_t piece_seen;            /* the next id, when somebody looked */
};

struct sc_store;

/* The log was read. */
void sc_store_reserve_open(struct sc_store *store);
/* Space lock held. An extent has a place of so many bytes; or gave it back, with nothing stored. */
void sc_store_reserve_add(struct sc_store *store, uint64_t bytes);
void sc_store_reserve_sub(struct sc_store *store, uint64_t bytes);
/* Likewise. demand_bytes and piece_new of sc_store_free_space; piece_next: the next id of the
 * table. */
void sc_store_reserve_look(struct sc_store *store, uint64_t piece_next, uint64_t *ret_bytes,
                           uint64_t *ret_piece_new);

#endif
