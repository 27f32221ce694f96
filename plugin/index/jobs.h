/* jobs: requested background work (jobs.c), and what each job does (maintain.c). Periodic: tick.h.
 * Threads: any; what a job calls: its own. Tests: tests/unit/plugin/test_maintain.c */
#ifndef SC_PLUGIN_INDEX_JOBS_H
#define SC_PLUGIN_INDEX_JOBS_H

#include "base/exec.h"
#include "base/status.h"

#include <pthread.h>

enum sc_plugin_job_kind {
    SC_JOB_TIDY,
    SC_JOB_EVICT,
    SC_JOB_CHECKPOINT,
    SC_JOB_SPARE,
    SC_JOB_BASELINE,
    SC_JOB_COMPACT,
    SC_JOBS
};

struct sc_plugin_job {
    struct sc_task task;
    spec_connector *conn;
    bool (*run)(spec_connector *conn); /* returns true if there is more */
    uint32_t state;                    /* guarded by jobs.lock; 0: idle */
};

struct sc_plugin_jobs {
    pthread_mutex_t lock; /* rank 25 */
    struct sc_plugin_job slots[SC_JOBS];
    bool closed;
    _Atomic uint32_t word; /* incremented when a step ends */
};

void sc_plugin_jobs_open(spec_connector *conn, bool (*const runs[SC_JOBS])(spec_connector *));
/* After it no step runs. */
void sc_plugin_jobs_close(spec_connector *conn);
/* Starts the job soon; again if it runs now. Any thread; never blocks. */
void sc_plugin_kick(spec_connector *conn, enum sc_plugin_job_kind kind);
/* Takes a lock in a host call; counts a wait (stats.lock_waits). */
void sc_plugin_lock(spec_connector *conn, pthread_mutex_t *lock);

void sc_plugin_maintain_open(spec_connector *conn); /* the jobs */
spec_status sc_plugin_maintain(spec_connector *conn, const struct spec_maintain_params *params,
                               struct spec_error *reterr);

#endif
