/* Another process's log, followed (follow.c, follow_places.c).
 *
 * Threads: the one that follows, but for known times: any.
 * Tests: tests/unit/store/test_follow.c */
#ifndef SC_STORE_REPLAY_FOLLOW_H
#define SC_STORE_REPLAY_FOLLOW_H

#include "store/log/record.h"

/* A reader's or peer's place in another's log (follow.c). The thread that follows. */
struct sc_store_follow {
    bool has_identity, is_over;    /* over: its version is not ours, which was said */
    bool rereads;                  /* from the start; what does not come again is void */
    uint64_t frame_offset;         /* of the last believed frame, */
    uint64_t frame_checksum;       /* and what stands in its checksum field */
    uint64_t refused_bytes;        /* the log's size when the frame behind could not be restored */
    uint32_t searches_left;        /* for wrong bytes of damaged frames */
    uint64_t bytes_seen, end_seen; /* the log's size, and how much was believed, by the last call */
    uint64_t segment_last;         /* index that was found last */
    _Atomic uint64_t known_ns;     /* any thread: sc_store_follow_ns, */
    _Atomic uint64_t known_now_ns; /* and sc_store_follow_now_ns */
};

struct sc_store;

spec_status sc_store_follow_open(struct sc_store *store, struct spec_error *reterr);
/* Segments of parts[0 .. count): opened on demand; their numbers become indices. */
bool sc_store_follow_places(struct sc_store *store, struct sc_store_part *parts, uint32_t count,
                            uint64_t stride);

#endif
