/* erase_heard: the erasures known to this process, and the test whether one covers a request.
 *
 *   ring   [intent n] [n + 1] .. [n + 63]   intent n at n mod 64
 *
 * A request is covered if an intent noted after it names its salt, or if more intents followed than
 * the ring holds. plugin/index/erase.h receives intents and carries them out.
 * Threads: any; no lock is taken if no intent followed the request.
 * Tests: tests/unit/plugin/test_erase.c, conformance abi_219_* */
#ifndef SC_PLUGIN_ARGS_ERASE_HEARD_H
#define SC_PLUGIN_ARGS_ERASE_HEARD_H

#include "store/erase.h"

#include <pthread.h>

#define SC_PLUGIN_ERASED 64u /* intents in the ring; requests older than these are stale */

struct sc_plugin_request;

struct sc_plugin_erasures {
    _Atomic uint64_t heard; /* intents noted since open; any thread */

    pthread_mutex_t ring_lock; /* rank 27; guards `ring` */
    struct sc_store_erasure ring[SC_PLUGIN_ERASED];
};

/* Adds an intent: requests that it covers are stale from now on. */
void sc_plugin_erase_note(spec_connector *conn, const struct sc_store_erasure *what);
/* Returns a salt as records and intents have it; UNKNOWN while there is no store. */
struct sc_store_salt sc_plugin_salt(const spec_connector *conn, const struct spec_bytes *salt);
/* Returns true if an intent noted after the request was made covers it. Any thread. */
bool sc_plugin_erase_covers(spec_connector *conn, const struct sc_plugin_request *request);

#endif
