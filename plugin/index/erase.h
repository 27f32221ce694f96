/* erase: voids what an erasure covers while the store's eraser overwrites it (store/erase.h).
 *
 *   maintain ERASE, ERASE_SALT   writes intents for every rank; noted here before the call returns
 *   tick                         notes intents of other processes
 *     noted   requests under the salt are STALE; the index drops their pieces
 *     lookup  promises nothing under the salt          store   refuses all passes (in the store)
 *     attach  STALE
 *   job     a writer: overwrites a part at a time, in place of checkpoints
 *
 * Invariants: from note to completion nothing covered is promised, delivered or stored here.
 * Requests are not modified: finds and loads compare a counter, as for resets. An attached request
 * with an unknown salt (rows of an older version) counts as covered. A test without intents takes
 * no lock.
 * Threads: per member and call. Tests: tests/unit/plugin/test_erase.c, conformance abi_219_* */
#ifndef SC_PLUGIN_INDEX_ERASE_H
#define SC_PLUGIN_INDEX_ERASE_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sc_plugin_erase {
    pthread_mutex_t lock; /* rank 3; held to note intents */
    spec_status status;   /* of reading intents; changes are logged once */

    /* The job's. */
    bool marks;        /* covered pieces must be marked before the next step */
    uint64_t retry_ns; /* earliest retry after a failure */
};

/* Notes intents put before this process started. Called before the first lookup. */
spec_status sc_plugin_erase_open(spec_connector *conn, struct spec_error *reterr);
/* Implements maintain's flags. salt: NULL for all. Errors: IO, NO_SPACE, BUSY. */
spec_status sc_plugin_erase_put(spec_connector *conn, const struct spec_bytes *salt,
                                struct spec_error *reterr);
void sc_plugin_erase_tick(spec_connector *conn);
/* Runs in place of a checkpoint while an erasure is pending. Returns true if there is more. */
bool sc_plugin_erase_some(spec_connector *conn);

#endif
