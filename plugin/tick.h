/* tick: periodic work, every 25 ms: other processes' logs, end of a bypass, grace entries, epochs,
 * notifications, intents to erase, old roots. Requested work is a job (index/jobs.h).
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
/* After it no tick runs. */
void sc_plugin_tick_stop(spec_connector *conn);

#endif
