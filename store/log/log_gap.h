/* log_gap: how reading goes on behind bytes of the log that are not believed (log_gap.c).
 * Threads: any; blocks on reads.
 * Tests: tests/unit/store/test_log_damage.c, test_log_races.c */
#ifndef SC_STORE_LOG_LOG_GAP_H
#define SC_STORE_LOG_LOG_GAP_H

#include "store/log/journal.h"

enum sc_store_beyond {
    SC_STORE_BEYOND_NONE,     /* nothing behind is believed: the log ends */
    SC_STORE_BEYOND_NEXT,     /* the end moved to the next frame; nothing is missing */
    SC_STORE_BEYOND_RESTORED, /* a damaged frame was restored; the end is behind it */
    SC_STORE_BEYOND_GAP       /* the end moved to the next frame; records before it are lost */
};

struct sc_store_log_beyond {
    bool restores; /* set by the caller: false: damage gives NONE, because the file may be read
                      wrongly, or is still being written */
    bool appends;  /* set by the caller: it appends beside others: bytes behind the last frame are
                      torn, or not whole so far, and nothing is restored */
    bool is_found; /* result: a frame follows */
    uint32_t searches_left; /* the caller's, for damaged bytes */
    enum sc_store_gap gap;  /* result of GAP */
    bool is_spent;          /* set by the caller: too much is damaged: nothing more is restored */
    bool has_junk;          /* result of NONE: not all bytes behind are lost frames */
    bool is_doubtful;       /* result of NONE: the last record may have been a reset */
    struct sc_store_frame frame; /* result of RESTORED; its payload is in `scratch` */
    uint8_t *scratch;            /* freed by _done */
};

/* Decides about the frame at `at`, which check refused, in a file of so many bytes. Errors: IO,
 * NO_MEMORY. */
spec_status sc_store_log_beyond(struct sc_store *store, struct sc_io_file *file, uint64_t at,
                                uint64_t file_bytes, struct sc_store_log_end *end,
                                struct sc_store_log_beyond *beyond,
                                enum sc_store_beyond *ret_beyond, struct spec_error *reterr);
void sc_store_log_beyond_done(struct sc_store *store, struct sc_store_log_beyond *beyond);

#endif
