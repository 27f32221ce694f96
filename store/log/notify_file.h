/* notify_file: messages from readers and other ranks to a rank's writer (notify_file.c).
 * Threads: open and close; posting and taking: store.h.
 * Tests: tests/unit/store/test_notify.c */
#ifndef SC_STORE_LOG_NOTIFY_FILE_H
#define SC_STORE_LOG_NOTIFY_FILE_H

#include "store/io/io.h"

#define SC_STORE_NOTIFY_BYTES_MAX (16u << 10) /* part of SC_STORE_FIXED_BYTES */
#define SC_STORE_NOTIFY_CUT_BYTES (8u << 10)  /* length from which it is cut */
#define SC_STORE_NOTIFY_FAMILIES  32u         /* whose epochs a cut keeps */

struct sc_store_notifybox {  /* a writer's; one task at a time */
    struct sc_io_file *file; /* NULL: there is none so far */
    uint64_t taken;          /* bytes taken */
};

struct sc_store;

/* Checks that existing files are regular and ours. Writer, at open. */
spec_status sc_store_notify_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_notify_close(struct sc_store *store);

#endif
