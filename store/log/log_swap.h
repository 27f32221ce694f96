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

#define SC_STORE_LOG_NEW "log.new"

/* Sets the first name of the log that checkpoint `number` writes, by the member with that place. */
void sc_store_log_new_path(const struct sc_store *store, uint64_t number, uint64_t place,
                           char ret_path[SC_LIMIT_PATH_BYTES + 64]);
/* Creates an empty log.new. Errors: IO, NO_SPACE. */
spec_status sc_store_log_new(struct sc_store *store, uint64_t number, struct sc_io_file **ret_file,
                             struct spec_error *reterr);
/* A member writes a new log alone, because two logs are counted. *ret_file: holds the lock until it
 * is closed; NULL: none is needed. BUSY: another member has it. */
spec_status sc_store_log_new_lock(struct sc_store *store, struct sc_io_file **ret_file,
                                  struct spec_error *reterr);
/* Removes the log that this process's checkpoint `number` wrote in vain. */
void sc_store_log_new_remove(struct sc_store *store, uint64_t number);
/* Nobody else has the store: removes what interrupted checkpoints left. */
void sc_store_log_new_remove_all(struct sc_store *store);
/* A member: the same, of checkpoints up to the one that wrote the present log. No seal names them
 * any more. */
void sc_store_log_new_remove_old(struct sc_store *store);
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
