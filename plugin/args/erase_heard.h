/* erase_heard: the erasures that this process has heard of, and the requests that they cover.
 *
 *   ring   [intent n] [n + 1] .. [n + 63]   intent n at n mod 64
 *   request->erasures                       `heard`, when the request was made
 *
 * A request is covered if an intent since then names its salt, or if more intents came since then
 * than the ring remembers. plugin/index/erase.h hears of intents and carries them out.
 *
 * Threads: any; without a lock where nothing was heard since the request was made.
 * Tests: tests/unit/plugin/test_erase.c, conformance abi_219_* */
#ifndef SC_PLUGIN_ARGS_ERASE_HEARD_H
#define SC_PLUGIN_ARGS_ERASE_HEARD_H

#include "store/erase.h"

#include <pthread.h>

#define SC_PLUGIN_ERASED 64u /* intents that are remembered: a request that is older is stale */

struct sc_plugin_request;

struct sc_plugin_erasures {
    _Atomic uint64_t heard; /* intents that ever were; any thread */

    pthread_mutex_t ring_lock; /* rank 27: the ring */
    struct sc_store_erasure ring[SC_PLUGIN_ERASED];
};

/* Adds an intent: requests that it covers are stale from now on. */
void sc_plugin_erase_note(spec_connector *conn, const struct sc_store_erasure *what);
/* What a salt is in records and intents; UNKNOWN while there is no store. */
struct sc_store_salt sc_plugin_salt(const spec_connector *conn, const struct spec_bytes *salt);
/* Returns true if an intent that covers the request was heard of since it was made. Any thread. */
bool sc_plugin_erase_covers(spec_connector *conn, const struct sc_plugin_request *request);

#endif
