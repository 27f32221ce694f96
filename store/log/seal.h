/* seal: the last record of a log that a member wrote anew (seal.c).
 *
 *   log             [ .... | seal: "7-2" goes on at its byte b ]   nothing behind it is believed
 *   log.new-7-2     [ head | live records | the rest ]             complete and synced before
 *
 * Threads: the turn is held.
 * Tests: tests/unit/store/test_many_writers.c */
#ifndef SC_STORE_LOG_SEAL_H
#define SC_STORE_LOG_SEAL_H

#include "store/io/io.h"
#include "store/log/record.h"

struct sc_store;

struct sc_store_seal {
    struct sc_store_record_seal record; /* valid if is_set */
    bool is_set;                        /* the log that is open was sealed */
    bool is_over;           /* the file that goes on is not found: this process appends no more */
    uint64_t passed;        /* seals passed since open */
    bool keeps_old;         /* a checkpoint reads the log that is open */
    struct sc_io_file *old; /* kept for it; or NULL */
};

/* Appends the seal that ends the old log for all members. PENDING: one of them appended to it.
 * Log lock held. */
spec_status sc_store_seal_append(struct sc_store *store, struct sc_io_file *file,
                                 const struct sc_store_log_end *end, uint64_t pieces,
                                 const struct sc_store_record_head *head,
                                 struct spec_error *reterr);
/* Reads the checksum of a log's first frame, which no other log has. */
spec_status sc_store_seal_first(struct sc_store *store, struct sc_io_file *file,
                                uint64_t *ret_first, struct spec_error *reterr);
/* Gives the file that the seal names the log's name, unless another member has. */
spec_status sc_store_seal_name(struct sc_store *store, struct spec_error *reterr);
/* Goes on in the file that the seal names, after giving it the log's name if nobody has.
 * *ret_again: that one was replaced too; the present log is open, to be read from its start. */
spec_status sc_store_seal_pass(struct sc_store *store, bool *ret_again, struct spec_error *reterr);
/* A checkpoint has ended: closes the log that it read. */
void sc_store_seal_old_close(struct sc_store *store);
/* This process appends no more; it follows on as a reader. Logged. */
void sc_store_seal_over(struct sc_store *store, const char *why);

#endif
