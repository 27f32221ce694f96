/* Bypass: the connector steps aside for a while, and is not closed for it.
 *
 *   maintain BYPASS     until_ns
 *     lookup            promises nothing               attach  STALE
 *     store             takes no pass that begins      stage   ends, and brings nothing
 *     jobs, the store   begin no compaction, nothing that rows lack, no other order; no averages
 *   its deadline, or maintain once more: what rested goes on
 *
 * Holds: who asks whether there is one takes no lock, and reads no clock while there is none; what
 * was promised before is delivered, and a pass that had begun is stored.
 * Does not: outlive the connector, or reach another process.
 * Threads: any. The deadline counts from its moment on, for whoever asks; what rests goes on, and
 * the log says so, when the turn sees it (tick.c), so that no lookup has work of it.
 * Tests: tests/unit/plugin/test_bypass.c, tests/fault/test_bypass_races.c, conformance (abi_209_*)
 */
#ifndef SC_PLUGIN_INDEX_BYPASS_H
#define SC_PLUGIN_INDEX_BYPASS_H

#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>

struct sc_plugin_bypass {
    _Atomic uint64_t until_ns; /* the executor's clock; SC_EXEC_FOREVER: no deadline; 0: none */

    pthread_mutex_t lock; /* rank 15: of who begins or ends one; until_ns moves under it */

    /* Guarded by lock. */
    uint64_t lookups, chunks; /* as they were counted when it began */
};

void sc_plugin_bypass_open(spec_connector *conn);
void sc_plugin_bypass_close(spec_connector *conn);
bool sc_plugin_is_bypassed(const spec_connector *conn);
/* Begins one, or gives the one there is another deadline; spec_maintain_params.deadline_ns. */
void sc_plugin_bypass(spec_connector *conn, uint64_t deadline_ns);
/* The turn's: one whose deadline has passed ends. */
void sc_plugin_bypass_tick(spec_connector *conn);

#endif
