/* journal: the log's file: scan of its valid records, and appends (journal.c).
 * Threads: the log lock; scans at open.
 * Tests: tests/unit/store/test_log.c */
#ifndef SC_STORE_LOG_JOURNAL_H
#define SC_STORE_LOG_JOURNAL_H

#include "store/io/io.h"
#include "store/log/record.h"

#define SC_STORE_WINDOW_BYTES (1ull << 20) /* bytes of the log read or appended at once */

enum sc_store_gap {
    SC_STORE_GAP_NONE,
    SC_STORE_GAP_RECORDS, /* some records are missing */
    SC_STORE_GAP_RESETS   /* a reset may be among them */
};

struct sc_store_journal {
    struct sc_io_file *file;
    struct sc_store_log_end end;
    uint64_t file_end; /* bytes of the file; those behind `end` are not believed */
    struct sc_store_record_head head;
    uint64_t synced_end;     /* end.offset when last synced (checkpoint); 0: unknown */
    uint64_t kept_bytes;     /* bytes after the last checkpoint; 0: none since open */
    uint64_t pieces_read;    /* piece records in the log */
    uint64_t retry_ns;       /* executor's clock; no checkpoint before, after a failed one */
    bool is_short;           /* an append met ENOSPC although disk_bytes allows it */
    uint64_t damaged_count;  /* frames restored, and damaged ranges skipped, by the last scan */
    uint64_t damaged_offset; /* the first of them */
    uint64_t gap_count;      /* damaged ranges among them: their records are lost */
    uint64_t gap_digest;     /* of their places (sc_store_gap_digest) */
    bool ends_in_doubt;      /* one of them is behind the end: the next append ends it */
    bool is_torn;            /* behind the last frame are bytes that are no frame */
    enum sc_store_gap gap;   /* what is missing before the next record */
    uint8_t *buffer;         /* records of one append, or a follower's input */
    uint64_t buffer_bytes;
};

struct sc_store;

spec_status sc_store_journal_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_journal_close(struct sc_store *store);
/* A record, or (at NULL) a log's end behind which a reset may be lost. */
struct sc_store_payload {
    const uint8_t *at;
    uint64_t bytes;
    const struct sc_store_piece *piece; /* decoded piece of our version; NULL: the caller decodes */
    bool holds;                         /* result of params.piece_holds */
    enum sc_store_gap gap;              /* before this record */
};
/* Calls on_payload for every believed record, restored ones included. Sets end, file_end and the
 * damage members. */
typedef spec_status sc_store_on_payload(struct sc_store *store,
                                        const struct sc_store_payload *payload, void *user,
                                        struct spec_error *reterr);
spec_status sc_store_journal_scan(struct sc_store *store, sc_store_on_payload *on_payload,
                                  void *user, struct spec_error *reterr);
/* The log is read from its start, or was written anew: nothing of it is known to be damaged. */
void sc_store_journal_undamaged(struct sc_store_journal *journal);
/* Notes that the records between the journal's end and `to` are lost. */
void sc_store_journal_gap(struct sc_store_journal *journal, enum sc_store_gap gap, uint64_t to);
/* Adds a damaged range to the digest of those before it. */
static inline uint64_t sc_store_gap_digest(uint64_t digest, uint64_t from, uint64_t to)
{
    return ((digest ^ from) * UINT64_C(0x9E3779B97F4A7C15) ^ to) * UINT64_C(0xBF58476D1CE4E5B9);
}
/* One append: begin, a frame before each record, commit (one write). Log lock. */
struct sc_store_append {
    struct sc_store_writer writer;
    struct sc_store_log_end end; /* behind its whole frames */
    uint64_t frame;              /* offset of the open frame in the writer */
    bool is_open, resets;        /* resets: the open frame voids what is before it */
};
void sc_store_append_begin(struct sc_store *store, struct sc_store_append *append);
void sc_store_append_frame(struct sc_store_append *append);
/* The same for a record that voids what is before it, and must not be lost: an epoch; a removal or
 * a clear of objects. */
void sc_store_append_reset(struct sc_store_append *append);
/* On an error nothing was appended. */
spec_status sc_store_append_commit(struct sc_store *store, struct sc_store_append *append,
                                   struct spec_error *reterr);

#endif
