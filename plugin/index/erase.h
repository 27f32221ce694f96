/* Erasing: what the connector does about it while the store's eraser overwrites (store/erase.h).
 *
 *   maintain ERASE, ERASE_SALT   intents for every rank; heard here before the call returns
 *   turn                         intents of other processes are heard
 *     heard   requests under the salt are STALE, what the index has of it goes
 *     lookup  promises nothing under the salt          store   takes nothing at all (the store's)
 *     attach  STALE
 *   job     a writer: overwrites, a part at a time, in the place of checkpoints
 *
 * Holds: from the moment that an intent is heard until it is carried out, nothing that it covers is
 * promised, delivered or stored here; who asks while there is none takes no lock.
 * Does not: touch a request: as with resets, a number moves that finds and loads look at. An
 * attached request whose salt nobody knows (its rows are an older version's) counts as covered.
 * Threads: per member and call, below.
 * Tests: tests/unit/plugin/test_erase.c, conformance abi_219_* */
#ifndef SC_PLUGIN_INDEX_ERASE_H
#define SC_PLUGIN_INDEX_ERASE_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sc_plugin_erase {
    pthread_mutex_t lock; /* rank 3: of who hears */
    spec_status status;   /* of hearing; a change is said once */

    /* The job's. */
    bool marks;        /* what is covered has to be looked for before the next step */
    uint64_t retry_ns; /* after a failure */
};

/* Hears what was put before this process came. Before the first lookup. */
spec_status sc_plugin_erase_open(spec_connector *conn, struct spec_error *reterr);
/* maintain's acts. salt: NULL for all. Errors: IO, NO_SPACE, BUSY. */
spec_status sc_plugin_erase_put(spec_connector *conn, const struct spec_bytes *salt,
                                struct spec_error *reterr);
void sc_plugin_erase_tick(spec_connector *conn);
/* Job, in the place of a checkpoint while something is to be erased. True: there is more. */
bool sc_plugin_erase_some(spec_connector *conn);

#endif
