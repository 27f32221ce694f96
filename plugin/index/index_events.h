/* index_events: what index/ tells the layers above it.
 *
 *   epoch.c    the connector's epoch moves   -> epoch_moved
 *   bypass.c   a bypass begins               -> bypass_begun
 *   erase.c    an erasure is heard of        -> erasure_heard
 *
 * Each event makes work of the layers above void: connector.c names the functions that end it. They
 * are called when the new state can be seen: the epoch, the bypass, the erasure that was noted.
 *
 * Threads: any. epoch_moved may be called with index.lock (rank 10) held, bypass_begun with the
 * bypass's (15), erasure_heard with the eraser's (3): they take locks of higher ranks only.
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
