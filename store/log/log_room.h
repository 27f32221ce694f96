/* Room for two logs (log_room.c; docs/decisions/0015).
 *
 * Threads: per call, below.
 * Tests: tests/unit/store/test_free_space.c, test_checkpoint.c */
#ifndef SC_STORE_LOG_LOG_ROOM_H
#define SC_STORE_LOG_LOG_ROOM_H

#include "base/status.h"

/* What of disk_bytes is kept for the log, and for the one after it. Guarded by the space lock. */
struct sc_store_log_share {
    uint64_t bytes, pages; /* constant after open: log bytes for so many bytes of pages */
    uint64_t reserved;     /* for commits to come and a drop of each live piece */
    uint64_t asked;        /* the most that found no room in the log lately */
};

struct sc_store;

/* disk_bytes_max is known: what segments leave to the log. NO_SPACE: disk_bytes is too small for a
 * segment beside it; the text says what is needed. */
spec_status sc_store_log_share_decide(struct sc_store *store, struct spec_error *reterr);
/* What counts under disk_bytes. Space lock held, or open. */
uint64_t sc_store_disk_used(struct sc_store *store);
/* The same without segments, and with at least the log's share. */
uint64_t sc_store_disk_beside(struct sc_store *store);
/* Space lock held. Bytes of segments that may still be made. */
uint64_t sc_store_segment_room(struct sc_store *store);
/* Promises so many bytes of the log, and of its successor; false: there is no room. Space lock
 * held. */
bool sc_store_log_take(struct sc_store *store, uint64_t bytes);
/* The same with no lock held. For a reset some room is always kept. */
bool sc_store_log_reserve(struct sc_store *store, uint64_t bytes);
bool sc_store_log_reserve_epoch(struct sc_store *store, uint64_t bytes);
/* Takes a promise back. No lock held. */
void sc_store_log_unreserve(struct sc_store *store, uint64_t bytes);
/* Whether the file system still has the room of the log, with a segment that was just made. */
spec_status sc_store_log_fits_device(struct sc_store *store, uint64_t segment_bytes,
                                     struct spec_error *reterr);
/* A segment found no space: for a while only such are made as fit. No lock held. */
void sc_store_device_is_full(struct sc_store *store, const char *what);
/* How many pieces, the oldest ones, shall go so that the log has room. No lock held. */
uint64_t sc_store_log_pieces_over(struct sc_store *store);
/* The log has little room left, and a checkpoint would make some. No lock held. */
bool sc_store_log_is_tight(struct sc_store *store);
/* Log lock held. Piece records in the log. */
uint64_t sc_store_log_pieces(const struct sc_store *store);

#endif
