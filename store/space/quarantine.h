/* quarantine: dropped pieces until leases on them have ended (quarantine.c).
 * Tests: tests/unit/store/test_quarantine.c */
#ifndef SC_STORE_SPACE_QUARANTINE_H
#define SC_STORE_SPACE_QUARANTINE_H

#include "base/status.h"

#define SC_STORE_BUCKETS     64u
#define SC_STORE_RELEASE_MAX 1024u /* pieces freed in a host's call, to bound its wait */

struct sc_store_bucket {       /* quarantined pieces of similar due time, linked */
    uint64_t begin_ns, due_ns; /* executor's clock; due_ns: the latest */
    uint32_t head, tail;
};

/* Pages held only by dropped pieces. Guarded by the space lock. */
struct sc_store_quarantine {
    uint64_t bytes;
    struct sc_store_bucket buckets[SC_STORE_BUCKETS]; /* ring, by due time */
    uint32_t bucket_first, bucket_count;
    uint32_t rows_first, rows_last; /* extents with a void copy of their rows, by time; 0: none */
    /* Any thread: evict_unreachable has examined older ones while these models lived. */
    _Atomic uint64_t evict_next, evict_living;
};

struct sc_store;
struct sc_store_section;

/* Frees pages of rows without a piece. Once per extent, with its pieces in the table. No lock
 * held. */
void sc_store_extent_trim(struct sc_store *store, uint64_t extent);
/* Quarantines DROPPED pieces: pages are held until lease_ns_max after dropped_wall_ns (a future
 * time counts as now); lease_ns_max 0: freed at once. Returns the bytes to be freed. The caller has
 * updated live_count, piece_count and share.reserved. No lock held. Follower: no effect. */
uint64_t sc_store_quarantine_add(struct sc_store *store, const uint64_t *pieces, uint64_t count,
                                 uint64_t dropped_wall_ns);
/* Quarantines the copy of an extent's rows that is void in the log since a newer permuted copy
 * exists: its original pages, or an earlier permuted copy's. Returns their bytes; followers: 0. No
 * lock held. */
uint64_t sc_store_rows_quarantine(struct sc_store *store, uint64_t extent,
                                  uint64_t dropped_wall_ns);
/* The same now, after the log is synced, because the pages will be overwritten. If the sync fails,
 * the rows stay until a later open. Blocks. */
void sc_store_rows_leave(struct sc_store *store, uint64_t extent);
/* Frees what is due at now_ns (executor's clock; UINT64_MAX: all). Returns the number of pieces;
 * copies of rows count as their pieces. No lock held. */
uint64_t sc_store_quarantine_release(struct sc_store *store, uint64_t now_ns);
/* The same with the space lock held, until count_max pieces are freed. */
uint64_t sc_store_quarantine_release_some(struct sc_store *store, uint64_t now_ns,
                                          uint64_t count_max);
/* Returns when the oldest pieces or copies of rows are due; UINT64_MAX: none wait. No lock held. */
uint64_t sc_store_quarantine_oldest_ns(struct sc_store *store);
/* As sc_store_pieces_drop; returns the bytes to be freed. */
uint64_t sc_store_pieces_drop_bytes(struct sc_store *store, const uint64_t *pieces, uint64_t count);
/* Voids every LIVE piece (in a replay also DOOMED) of namespace `space` with an id below piece_end,
 * without records: an epoch record of wall_ns voids them. Returns their number. No lock held. */
uint64_t sc_store_pieces_void(struct sc_store *store, uint32_t space, uint64_t piece_end,
                              uint64_t wall_ns);

/* Voids every LIVE piece of an erased extent (store/erase.h) without records, because a log without
 * it follows; in a follower also dropped ones, which leases then no longer read. on_gone: LIVE
 * pieces of the store's own namespace. No lock held. */
void sc_store_pieces_erase(struct sc_store *store,
                           void (*on_gone)(uint64_t piece, uint64_t mark, void *user), void *user);
/* Space lock held. Makes a map where pages of erased extents are free too. false: no memory. */
struct sc_store_space;
bool sc_store_erased_map(struct sc_store *store, struct sc_store_space *ret_map);

/* An heir: gives all pages back. Each extent that the log still has, and each of its sections,
 * takes its own again when its record is read next; quarantined pieces hold none any more. No lock
 * held. */
void sc_store_pages_forget(struct sc_store *store);
/* The same for an extent of which no piece, or not all, was read. */
void sc_store_extent_unplace(struct sc_store *store, uint64_t extent);
/* The extent has taken its own. No lock held; no effect on one that holds them already. */
void sc_store_extent_placed(struct sc_store *store, uint64_t extent);
/* Returns true if the log has a piece of the extent that it has not dropped. In an heir the piece
 * may have failed. */
bool sc_store_extent_is_live(const struct sc_store *store, uint64_t extent);
/* Gives a derived section's pages to the extent, freed with its last piece. false: no live piece,
 * or it has such a section. A permuted copy may follow another; then that one is held until it is
 * quarantined. No lock held. */
bool sc_store_section_hold(struct sc_store *store, uint64_t id, struct sc_store_section *derived);
bool sc_store_section_is_held(struct sc_store *store, uint64_t id);
/* State on disk of an extent's permuted copy, by the record with its number. */
enum sc_store_permutation_state {
    SC_STORE_PERMUTATION_UNKNOWN, /* it was never valid */
    SC_STORE_PERMUTATION_HELD,    /* the copy's pages are held */
    SC_STORE_PERMUTATION_FREED    /* they were freed; so were the original pages before */
};
enum sc_store_permutation_state sc_store_permutation_state(struct sc_store *store, uint64_t id,
                                                           uint64_t copy);
/* Returns when a permuted copy that is replaced now is in no plan of a load any more (executor's
 * clock), so that its memory can be reused. */
uint64_t sc_store_permutation_reusable_ns(const struct sc_store *store);

#endif
