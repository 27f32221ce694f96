/* What others say to a writer (notify_file.c).
 *
 * Threads: open and close; posting and taking are store.h's.
 * Tests: tests/unit/store/test_notify.c */
#ifndef SC_STORE_LOG_NOTIFY_FILE_H
#define SC_STORE_LOG_NOTIFY_FILE_H

#include "store/io/io.h"

#define SC_STORE_NOTIFY_BYTES_MAX (16u << 10) /* of SC_STORE_FIXED_BYTES */
#define SC_STORE_NOTIFY_CUT_BYTES (8u << 10)  /* cut when it has grown so long */
#define SC_STORE_NOTIFY_FAMILIES  32u         /* whose epochs a cut keeps */

struct sc_store_notifybox { /* a writer's: one task at a time */
    struct sc_io_file *file;
    uint64_t taken; /* bytes of it */
};

struct sc_store;

/* What there is of a rank's own notification is a file, and ours. The writer's, at open. */
spec_status sc_store_notify_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_notify_close(struct sc_store *store);

#endif
