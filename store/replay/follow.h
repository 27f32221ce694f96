/* follow: follows another process's log (follow.c, follow_places.c).
 * Threads: the thread that follows; known times: any.
 * Tests: tests/unit/store/test_follow.c, tests/fuzz/fuzz_follow.c */
#ifndef SC_STORE_REPLAY_FOLLOW_H
#define SC_STORE_REPLAY_FOLLOW_H

#include "store/log/record.h"

/* A reader's or peer's position in the log. Used by the thread that follows. */
struct sc_store_follow {
    bool has_identity, is_over;    /* over: an unknown version, which was reported */
    bool rereads;                  /* reading from the start; what is not found again is void */
    bool lacks_pages;              /* something in it has pages of what is not found again */
    bool is_second;                /* reading it once more, all pages taken anew */
    bool holds_places;             /* a member reads from the start: it places no rows */
    uint64_t forgot_ns;            /* executor's clock: the last such reading began; 0: none */
    uint64_t frame_offset;         /* of the last accepted frame */
    uint64_t frame_checksum;       /* checksum field of that frame; 0: none was accepted */
    uint64_t refused_bytes;        /* log size at which the next frame could not be restored */
    bool is_doubtful;              /* and may have been a reset: nothing is promised */
    uint32_t searches_left;        /* for damaged bytes */
    uint64_t bytes_seen, end_seen; /* log size and accepted bytes of the last call */
    uint64_t segment_last;         /* index found last */
    _Atomic uint64_t known_ns;     /* sc_store_follow_ns; any thread */
    _Atomic uint64_t known_now_ns; /* sc_store_follow_now_ns; any thread */
};

struct sc_store;

/* The hooks of a member (store/internal.h). */
void sc_store_follow_members(struct sc_store *store);
spec_status sc_store_follow_open(struct sc_store *store, struct spec_error *reterr);
/* Nobody appends any more, and the last calls found nothing: what was applied is the whole log,
 * whatever bytes are behind it. */
void sc_store_follow_end(struct sc_store *store);
/* An heir read a log again that gives pages to something, and only at its end, or not at all, was
 * known that what had them before is gone: begins to read it once more, with no page taken, and
 * returns true. */
bool sc_store_follow_again(struct sc_store *store);
/* Opens the segments of parts[0 .. count) on demand, and turns their numbers into indices. Returns
 * false if a segment cannot be opened or is too short. */
bool sc_store_follow_places(struct sc_store *store, struct sc_store_part *parts, uint32_t count,
                            uint64_t stride);

#endif
