/* follow: follows another process's log (follow.c, follow_places.c).
 * Threads: the thread that follows; known times: any.
 * Tests: tests/unit/store/test_follow.c, tests/fuzz/fuzz_follow.c */
#ifndef SC_STORE_REPLAY_FOLLOW_H
#define SC_STORE_REPLAY_FOLLOW_H

#include "store/log/record.h"
#include "store/log/watch.h"

struct sc_store_follow_calls;

/* A reader's or peer's position in the log. Used by the thread that follows. */
struct sc_store_follow {
    const struct sc_store_follow_calls *calls; /* constant after open */
    bool has_identity, is_over;                /* over: an unknown version, which was reported */
    bool rereads;                  /* reading from the start; what is not found again is void */
    bool lacks_pages;              /* something in it has pages of what is not found again */
    bool is_second;                /* reading it once more, all pages taken anew */
    bool holds_places;             /* a member reads from the start: it places no rows */
    uint32_t lock_asks;            /* an heir's, since it opened the writer's lock file */
    uint64_t forgot_ns;            /* executor's clock: the last such reading began; 0: none */
    uint64_t frame_offset;         /* of the last accepted frame */
    uint64_t frame_checksum;       /* checksum field of that frame; 0: none was accepted */
    uint64_t refused_bytes;        /* log size at which the next frame could not be restored */
    bool is_doubtful;              /* and may have been a reset: nothing is promised */
    uint32_t searches_left;        /* for damaged bytes */
    uint64_t bytes_seen, end_seen; /* log size and accepted bytes of the last call */
    uint64_t segment_last;         /* index found last */
    struct sc_store_watch watch;   /* for the log */
    bool is_at_end;                /* the last look left nothing unread */
    _Atomic uint64_t known_ns;     /* sc_store_follow_ns; any thread */
    _Atomic uint64_t known_now_ns; /* sc_store_follow_now_ns; any thread */
};

struct sc_store;
struct sc_store_payload;

/* What following applies records to: rows (follow.c), or objects by key. */
struct sc_store_follow_calls {
    spec_status (*open)(struct sc_store *store, struct spec_error *reterr);
    /* The log is read from its start; what is known stays until it is not found again. */
    void (*restart)(struct sc_store *store);
    /* Errors: NO_MEMORY, nothing was applied; VERSION, an unknown type or version. */
    spec_status (*apply)(struct sc_store *store, const struct sc_store_payload *payload, void *user,
                         struct spec_error *reterr);
    /* The whole log was applied. */
    void (*caught_up)(struct sc_store *store);
    /* The log goes on in another file, behind a seal. */
    void (*sealed)(struct sc_store *store);
    /* Another store is at the path. */
    void (*forget)(struct sc_store *store);
    /* A member appended something itself. Log lock held. */
    void (*appended)(struct sc_store *store);
};

/* The hooks of a member (store/internal.h). */
void sc_store_follow_members(struct sc_store *store);
/* Begins to follow rows. */
spec_status sc_store_follow_open(struct sc_store *store, struct spec_error *reterr);
/* Begins to follow something else. */
spec_status sc_store_follow_open_as(struct sc_store *store,
                                    const struct sc_store_follow_calls *calls,
                                    struct spec_error *reterr);
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
