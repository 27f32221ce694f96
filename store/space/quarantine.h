/* Dropped pieces, until leases on them have ended (quarantine.c).
 *
 * Threads: per call, below.
 * Tests: tests/unit/store/test_quarantine.c */
#ifndef SC_STORE_SPACE_QUARANTINE_H
#define SC_STORE_SPACE_QUARANTINE_H

#include "base/status.h"

#define SC_STORE_BUCKETS     64u
#define SC_STORE_RELEASE_MAX 1024u /* pieces freed in a host's call: a bounded wait */

struct sc_store_bucket {       /* quarantined pieces of about one time, linked by their entries */
    uint64_t begin_ns, due_ns; /* executor's clock; due: of the last of them */
    uint32_t head, tail;
};

/* Pages that only dropped pieces hold. Guarded by the space lock. */
struct sc_store_quarantine {
    uint64_t bytes;
    struct sc_store_bucket buckets[SC_STORE_BUCKETS]; /* a ring, by due time */
    uint32_t bucket_first, bucket_count;
    uint32_t rows_first, rows_last; /* extents whose rows wait, by time; 0: none */
    _Atomic uint64_t evict_next; /* any thread: older pieces were looked at by evict_unreachable */
};

struct sc_store;
struct sc_store_section;

/* An extent's pieces are in the table, and it holds all its pages: gives back those of rows that no
 * piece covers, all when there is no piece. Once for each extent; no lock held. */
void sc_store_extent_trim(struct sc_store *store, uint64_t extent);
/* DROPPED pieces that are void in the log since then: their pages are held until lease_ns_max after
 * that time (a time to come counts as now), lease_ns_max 0: freed at once. Returns the bytes that
 * they will give back. The caller has counted them out of live_count, piece_count and
 * share.reserved. No lock held; allocates nothing. A follower has no space: no effect. */
uint64_t sc_store_quarantine_add(struct sc_store *store, const uint64_t *pieces, uint64_t count,
                                 uint64_t dropped_wall_ns);
/* The rows of an extent that has another copy of the rows, and a piece that lives, are void in the
 * log where they were stored first: all its pages but its derived sections' wait likewise. Returns
 * their bytes. No lock held; a follower: 0. */
uint64_t sc_store_rows_quarantine(struct sc_store *store, uint64_t extent,
                                  uint64_t dropped_wall_ns);
/* The same from now on, of rows that the log has just said are void: not before that stays,
 * whatever becomes of the machine, since what is written over them may. Where it cannot be made to
 * stay, they stay too, until a later open finds out. Blocks. */
void sc_store_rows_leave(struct sc_store *store, uint64_t extent);
/* Frees what is due at now_ns, executor's clock (UINT64_MAX: all); returns how many pieces, rows
 * alone likewise. No lock held. */
uint64_t sc_store_quarantine_release(struct sc_store *store, uint64_t now_ns);
/* The same with the space lock held, until count_max pieces were; rows of an extent go at once, and
 * count as its pieces. */
uint64_t sc_store_quarantine_release_some(struct sc_store *store, uint64_t now_ns,
                                          uint64_t count_max);
/* sc_store_pieces_drop; returns the bytes that it will give back. */
uint64_t sc_store_pieces_drop_bytes(struct sc_store *store, const uint64_t *pieces, uint64_t count);
/* Makes every LIVE piece (in a replay DOOMED ones too) of the namespace record `space` with an id
 * below piece_end void, without records: the log has said so at wall_ns in its own way. Returns how
 * many. No lock held. */
uint64_t sc_store_pieces_void(struct sc_store *store, uint32_t space, uint64_t piece_end,
                              uint64_t wall_ns);

/* Makes every LIVE piece of an extent that is erased (store/erase.h) void, without records: a log
 * without it is about to be written. In a follower those that were dropped, too: no lease reads
 * them any more. on_gone: of those that were LIVE and of the store's own namespace. No lock held.
 */
void sc_store_pieces_erase(struct sc_store *store,
                           void (*on_gone)(uint64_t piece, uint64_t mark, void *user), void *user);
/* Space lock held. A map of its own in which all is free that is free now, or that such extents
 * hold. false: no memory. */
struct sc_store_space;
bool sc_store_erased_map(struct sc_store *store, struct sc_store_space *ret_map);

/* Its pages are the extent's from now on, and go with its last piece; false: the extent holds
 * nothing that lives, or has one. No lock held. */
bool sc_store_section_hold(struct sc_store *store, uint64_t id, struct sc_store_section *derived);
bool sc_store_section_is_held(struct sc_store *store, uint64_t id);

#endif
