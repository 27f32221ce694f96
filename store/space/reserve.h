/* reserve: measures recent demand for space (reserve.c).
 * Threads: the space lock.
 * Tests: tests/unit/store/test_quarantine.c */
#ifndef SC_STORE_SPACE_RESERVE_H
#define SC_STORE_SPACE_RESERVE_H

#include "base/status.h"

#define SC_STORE_RESERVE_SLOTS 17u /* the newest, and a lease time before it */

struct sc_store_reserve {
    struct sc_store_reserve_slot {
        uint64_t bytes;
        uint64_t piece_first;        /* lower bound of ids committed in it or later */
    } slots[SC_STORE_RESERVE_SLOTS]; /* ring, by slot number */
    uint64_t slot;                   /* newest slot's number: executor's time / slot width */
    uint64_t piece_seen;             /* next id at the last look */
};

struct sc_store;

/* Call after the replay. */
void sc_store_reserve_open(struct sc_store *store);
/* Space lock held. Count an extent's bytes; subtract them if it was given back unused. */
void sc_store_reserve_add(struct sc_store *store, uint64_t bytes);
void sc_store_reserve_sub(struct sc_store *store, uint64_t bytes);
/* Space lock held. Returns demand_bytes and piece_new of sc_store_free_space. */
void sc_store_reserve_look(struct sc_store *store, uint64_t piece_next, uint64_t *ret_bytes,
                           uint64_t *ret_piece_new);

#endif
