/* journal: the log's file: scan of its valid records, and appends (journal.c).
 * Threads: the log lock; scans at open.
 * Tests: tests/unit/store/test_log.c */
#ifndef SC_STORE_LOG_JOURNAL_H
#define SC_STORE_LOG_JOURNAL_H

#include "store/io/io.h"
#include "store/log/record.h"

#define SC_STORE_WINDOW_BYTES (1ull << 20) /* bytes of the log read or appended at once */

struct sc_store_journal {
    struct sc_io_file *file;
    uint64_t end;      /* bytes of valid frames */
    uint64_t sequence; /* the last frame's */
    uint64_t chain;    /* the last frame's checksum */
    struct sc_store_record_head head;
    uint64_t synced_end;      /* end when last synced (checkpoint); 0: unknown */
    uint64_t kept_bytes;      /* bytes after the last checkpoint; 0: none since open */
    uint64_t pieces_read;     /* piece records then, or at open */
    uint64_t piece_next_read; /* and the next piece id then */
    uint64_t retry_ns;        /* executor's clock; no checkpoint before, after a failed one */
    bool is_short;            /* an append met ENOSPC although disk_bytes allows it */
    uint64_t damaged_count;   /* frames that the last scan restored */
    uint64_t damaged_offset;  /* the first of them */
    bool is_cut_short;        /* the scan ended before frames that cannot be believed */
    uint8_t *buffer;          /* records of one append, or a follower's input */
    uint64_t buffer_bytes;
};

struct sc_store;

spec_status sc_store_journal_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_journal_close(struct sc_store *store);
struct sc_store_payload {
    const uint8_t *at;
    uint64_t bytes;
    const struct sc_store_piece *piece; /* decoded piece of our version; NULL: the caller decodes */
    bool holds;                         /* result of params.piece_holds */
};
/* Calls on_payload for every valid record, restored ones included. Sets end, sequence, chain and
 * the damage members. ret_bytes: the file's size; if > end, a bad frame follows. */
typedef spec_status sc_store_on_payload(struct sc_store *store,
                                        const struct sc_store_payload *payload, void *user,
                                        struct spec_error *reterr);
spec_status sc_store_journal_scan(struct sc_store *store, sc_store_on_payload *on_payload,
                                  void *user, uint64_t *ret_bytes, struct spec_error *reterr);
/* One append: begin, a frame before each record, commit (one write). Log lock. */
struct sc_store_append {
    struct sc_store_writer writer;
    uint64_t sequence, chain, frame; /* frame: offset of the open frame */
    bool is_open;
};
void sc_store_append_begin(struct sc_store *store, struct sc_store_append *append);
void sc_store_append_frame(struct sc_store_append *append);
spec_status sc_store_append_commit(struct sc_store *store, struct sc_store_append *append,
                                   struct spec_error *reterr);

#endif
