/* log_room: space for the log and its successor (log_room.c; docs/decisions/0015).
 * Tests: tests/unit/store/test_free_space.c, test_checkpoint.c */
#ifndef SC_STORE_LOG_LOG_ROOM_H
#define SC_STORE_LOG_LOG_ROOM_H

#include "base/status.h"

/* The part of disk_bytes kept for the log and its successor. Guarded by the space lock. */
struct sc_store_log_share {
    uint64_t bytes, pages; /* constant after open: log bytes per bytes of pages */
    uint64_t reserved;     /* bytes for pending commits, and a drop of each live piece */
    uint64_t asked;        /* largest recent request that was refused */
};

struct sc_store;

/* Computes the log's share once disk_bytes_max is known. NO_SPACE: too small for a segment beside
 * it; the text says what is needed. */
spec_status sc_store_log_share_decide(struct sc_store *store, struct spec_error *reterr);
/* Returns the bytes that count under disk_bytes. Space lock held, or open. */
uint64_t sc_store_disk_used(struct sc_store *store);
/* The same without segments, and with at least the log's share. */
uint64_t sc_store_disk_beside(struct sc_store *store);
/* Returns the bytes of segments that may still be created. Space lock held. */
uint64_t sc_store_segment_room(struct sc_store *store);
/* Reserves bytes in the log and its successor; false: no room. Space lock held. */
bool sc_store_log_take(struct sc_store *store, uint64_t bytes);
/* The same without a lock held. Some room is always kept for resets (_epoch). */
bool sc_store_log_reserve(struct sc_store *store, uint64_t bytes);
bool sc_store_log_reserve_epoch(struct sc_store *store, uint64_t bytes);
/* Returns a reservation. No lock held. */
void sc_store_log_unreserve(struct sc_store *store, uint64_t bytes);
/* Checks that the file system still has room for the log beside a segment just created. */
spec_status sc_store_log_fits_device(struct sc_store *store, uint64_t segment_bytes,
                                     struct spec_error *reterr);
/* Records ENOSPC of a segment: for a while segments are limited to what fits. No lock held. */
void sc_store_device_is_full(struct sc_store *store, const char *what);
/* Returns how many of the oldest pieces must be evicted for the log. No lock held. */
uint64_t sc_store_log_pieces_over(struct sc_store *store);
/* Returns true if the log is nearly full and a checkpoint would free space. No lock held. */
bool sc_store_log_is_tight(struct sc_store *store);
/* Returns the piece records in the log. Log lock held. */
uint64_t sc_store_log_pieces(const struct sc_store *store);

#endif
