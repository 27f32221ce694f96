/* log_swap: writes a new log beside the present one and renames it into place.
 *
 *   log       takes every append until the swap
 *   log.new   written, synced, renamed over it
 *
 * Threads: one checkpoint at a time.
 * Tests: tests/unit/store/test_checkpoint.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_LOG_LOG_SWAP_H
#define SC_STORE_LOG_LOG_SWAP_H

#include "store/io/io.h"
#include "store/log/record.h"

struct sc_store;

struct sc_store_log_next {
    struct sc_io_file *file;
    struct sc_store_log_end end;
    struct sc_store_record_head head;
};

/* Creates an empty log.new. Errors: IO, NO_SPACE. */
spec_status sc_store_log_new(struct sc_store *store, struct sc_io_file **ret_file,
                             struct spec_error *reterr);
/* Removes what an interrupted checkpoint left. */
void sc_store_log_new_remove(struct sc_store *store);
/* Renames the complete, synced log.new over the log. SPEC_OK: next->file is the old log's file. Log
 * lock held. Errors: IO; the old log then stays. */
spec_status sc_store_log_swap(struct sc_store *store, struct sc_store_log_next *next,
                              struct spec_error *reterr);
/* Opens the log, of which an open one can only be appended to, to overwrite it later. */
spec_status sc_store_log_open_old(struct sc_store *store, struct sc_io_file **ret_file,
                                  struct spec_error *reterr);
/* Overwrites an unlinked log with zeros and syncs it. buffer: overwritten. */
spec_status sc_store_log_zero(struct sc_store *store, struct sc_io_file *file, uint8_t *buffer,
                              uint64_t buffer_bytes, struct spec_error *reterr);

#endif
