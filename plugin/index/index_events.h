/* index_events: calls from index/ to the layers above it.
 *
 *   epoch.c    the epoch changes             -> epoch_moved
 *   bypass.c   a bypass begins               -> bypass_begun
 *   erase.c    an erasure is noted           -> erasure_heard
 *
 * Each event voids work of higher layers; connector.c sets the functions that end it. They are
 * called once the new state is visible.
 * Threads: any. Held locks:
 *   epoch_moved     a reader: none; a writer: the commit lock; at open also index.lock (rank 10)
 *   bypass_begun    the bypass's (rank 15)
 *   erasure_heard   the eraser's (rank 3)
 * The functions take higher ranks only.
 * Tests: tests/unit/plugin/test_host_prefetch_meanwhile.c, test_bypass.c, test_erase.c */
#ifndef SC_PLUGIN_INDEX_INDEX_EVENTS_H
#define SC_PLUGIN_INDEX_INDEX_EVENTS_H

#include "base/status.h"

struct sc_plugin_index_events {
    void (*epoch_moved)(spec_connector *conn);
    void (*bypass_begun)(spec_connector *conn);
    void (*erasure_heard)(spec_connector *conn);
};

#endif
