/* tick: background work that nobody asks for, every 25 ms (tick.c).
 *
 * The tick calls the periodic work of every folder, so it is above all of them, beside connector.c,
 * which starts and stops it. Work that is asked for is a job (plugin/index/jobs.h).
 *
 * Threads: start and stop by one; the tick on an executor thread.
 * Tests: tests/unit/plugin/test_peers.c, tests/fault/test_processes.c */
#ifndef SC_PLUGIN_TICK_H
#define SC_PLUGIN_TICK_H

#include "base/exec.h"
#include "base/status.h"

struct sc_plugin_tick {
    struct sc_task task;
    bool is_started;
    _Atomic uint32_t closing, ended;
};

void sc_plugin_tick_start(spec_connector *conn);
/* No tick runs or will run. */
void sc_plugin_tick_stop(spec_connector *conn);

#endif
