/* bypass: suspends the connector for a while, without closing it.
 *
 *   maintain BYPASS     sets until_ns
 *     lookup            promises nothing               attach  STALE
 *     store             refuses new passes             prefetch to host   ends without data
 *     jobs, the store   begin no compaction, derived section, row permutation; write no averages
 *   deadline, or maintain again: suspended work continues
 *
 * Earlier promises are kept; passes that had begun are stored. Other processes are not affected.
 * The test for a bypass takes no lock, and reads no clock if there is none.
 * Threads: any. The deadline takes effect at its time; the next tick resumes work and logs the end.
 * Tests: test_bypass.c, tests/fault/test_bypass_races.c, conformance (abi_209_*) */
#ifndef SC_PLUGIN_INDEX_BYPASS_H
#define SC_PLUGIN_INDEX_BYPASS_H

#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>

struct sc_plugin_bypass {
    _Atomic uint64_t until_ns; /* executor's clock; SC_EXEC_FOREVER: no deadline; 0: no bypass */

    pthread_mutex_t lock; /* rank 15; held to begin or end a bypass and to change until_ns */

    /* Guarded by lock. */
    uint64_t lookups, chunks; /* counters when it began */
};

void sc_plugin_bypass_open(spec_connector *conn);
void sc_plugin_bypass_close(spec_connector *conn);
bool sc_plugin_is_bypassed(const spec_connector *conn);
/* Begins a bypass or changes its deadline (spec_maintain_params.deadline_ns). */
void sc_plugin_bypass(spec_connector *conn, uint64_t deadline_ns);
/* Ends a bypass whose deadline has passed. Tick. */
void sc_plugin_bypass_tick(spec_connector *conn);

#endif
