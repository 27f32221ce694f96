/* The log's file: its believed records, one after the other, and appends to it (journal.c).
 *
 * Threads: the log lock; scans at open.
 * Tests: tests/unit/store/test_log.c */
#ifndef SC_STORE_LOG_JOURNAL_H
#define SC_STORE_LOG_JOURNAL_H

#include "store/io/io.h"
#include "store/log/record.h"

#define SC_STORE_WINDOW_BYTES (1ull << 20) /* of the log, read or appended at once */

struct sc_store_journal {
    struct sc_io_file *file;
    uint64_t end;      /* bytes that are believed */
    uint64_t sequence; /* of the last frame */
    uint64_t chain;    /* its checksum */
    struct sc_store_record_head head;
    uint64_t synced_end;      /* nothing was appended since; 0: it is not known */
    uint64_t kept_bytes;      /* what the last checkpoint left; 0: there was none since open */
    uint64_t pieces_read;     /* piece records in it then, or at open, */
    uint64_t piece_next_read; /* and the id that came next */
    uint64_t retry_ns;        /* no checkpoint is due before: one failed */
    bool is_short;            /* an append found no space, though disk_bytes allows it */
    uint64_t damaged_count;   /* frames that the last scan restored, */
    uint64_t damaged_offset;  /* the first of them, */
    bool is_cut_short;        /* and whether it ended in front of frames that it cannot believe */
    uint8_t *buffer;          /* records of one append, or what a follower reads */
    uint64_t buffer_bytes;
};

struct sc_store;

spec_status sc_store_journal_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_journal_close(struct sc_store *store);
/* A believed record. */
struct sc_store_payload {
    const uint8_t *at;
    uint64_t bytes;
    const struct sc_store_piece *piece; /* decoded, of our version; NULL: that is the caller's */
    bool holds;                         /* the piece, by params.piece_holds */
};
/* Calls on_payload for every believed record from the start, those of damaged frames that can be
 * restored among them; leaves end, sequence and chain at the last one, and says what was damaged.
 * ret_bytes: of the file; more than end means that a bad frame follows. */
typedef spec_status sc_store_on_payload(struct sc_store *store,
                                        const struct sc_store_payload *payload, void *user,
                                        struct spec_error *reterr);
spec_status sc_store_journal_scan(struct sc_store *store, sc_store_on_payload *on_payload,
                                  void *user, uint64_t *ret_bytes, struct spec_error *reterr);
/* One append: begin, a frame before each record, commit (one write). Log lock. */
struct sc_store_append {
    struct sc_store_writer writer;
    uint64_t sequence, chain, frame; /* frame: where the one begins that is open */
    bool is_open;
};
void sc_store_append_begin(struct sc_store *store, struct sc_store_append *append);
void sc_store_append_frame(struct sc_store_append *append);
spec_status sc_store_append_commit(struct sc_store *store, struct sc_store_append *append,
                                   struct spec_error *reterr);

#endif
