/* Jobs: work in the background that nobody waits for, and the call that asks for it.
 *
 *   kick -> QUEUED -> RUNNING -> IDLE           tidy        records of failed pieces; what waited
 *              ^         |  ^ kick: AGAIN                   for pins
 *              +---------+                      evict       evict.c
 *                more to do                     checkpoint  a shorter log
 *                                               average     averages that changed (learn.c)
 *                                               merge       chunks of many pieces (merge.c)
 *                                               spare       memory that the index needs next
 *
 * What extents lack is built by the store itself (store/build.c), when it is asked to.
 *
 * A step does a bounded piece of work and posts itself again, so that the lanes above go first.
 *
 * Holds: a job is posted or runs once at a time; a kick during a step is followed by another step;
 * after jobs_close no step runs or will.
 * Does not: wait in a kick, whoever calls it.
 * Threads: kick and maintain any; steps on the executor's; open and close by one.
 * Tests: conformance (abi_135_*), tests/unit/plugin/test_maintain.c */
#include "plugin/args.h"
#include "plugin/connector.h"

#define MAINTAIN_FLAGS                                                                             \
    (SPEC_MAINTAIN_REORDER | SPEC_MAINTAIN_CHECKPOINT | SPEC_MAINTAIN_EVICT |                      \
     SPEC_MAINTAIN_BYPASS | SPEC_MAINTAIN_BUILD)

void sc_plugin_lock(spec_connector *conn, pthread_mutex_t *lock)
{
    if (pthread_mutex_trylock(lock) == 0)
        return;
    atomic_fetch_add_explicit(&conn->stats.lock_waits, 1, memory_order_relaxed);
    pthread_mutex_lock(lock);
}

enum job_state { JOB_IDLE, JOB_QUEUED, JOB_RUNNING, JOB_AGAIN };

static bool checkpoint_run(spec_connector *conn)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    sc_plugin_averages_write_all(conn); /* the newest of each piece is what a checkpoint keeps */
    if (sc_store_checkpoint(conn->store, &error) != SPEC_OK)
        SC_LOG(&conn->log, SPEC_LOG_WARN, "checkpoint: %s", error.text);
    if (atomic_load(&conn->merges_waiting) > 0) /* one may have come while the log was copied */
        sc_plugin_kick(conn, SC_JOB_MERGE);
    return false;
}

static void job_step(struct sc_task *task)
{
    struct sc_plugin_job *job =
        (struct sc_plugin_job *)(void *)((uint8_t *)task - offsetof(struct sc_plugin_job, task));
    spec_connector *conn = job->conn;
    pthread_mutex_lock(&conn->job_lock);
    job->state = JOB_RUNNING;
    bool runs = !conn->jobs_closed;
    pthread_mutex_unlock(&conn->job_lock);
    bool more = runs && atomic_load(&conn->poison.broken) == 0 && job->run(conn);
    pthread_mutex_lock(&conn->job_lock);
    more = (more || job->state == JOB_AGAIN) && !conn->jobs_closed;
    job->state = more ? JOB_QUEUED : JOB_IDLE;
    if (more)
        sc_exec_post(conn->exec, task, SC_LANE_BACKGROUND);
    atomic_fetch_add(&conn->job_word, 1);
    sc_exec_wake(conn->exec, &conn->job_word); /* under the lock: whoever closes takes it after */
    pthread_mutex_unlock(&conn->job_lock);
}

void sc_plugin_jobs_open(spec_connector *conn)
{
    static bool (*const RUNS[SC_JOBS])(spec_connector *) = {
        [SC_JOB_TIDY] = sc_plugin_tidy,
        [SC_JOB_EVICT] = sc_plugin_evict_some,
        [SC_JOB_CHECKPOINT] = checkpoint_run,
        [SC_JOB_SPARE] = sc_plugin_index_spare,
        [SC_JOB_AVERAGE] = sc_plugin_averages_write,
        [SC_JOB_MERGE] = sc_plugin_merge_some,
    };
    for (uint32_t i = 0; i < SC_JOBS; i++)
        conn->jobs[i] = (struct sc_plugin_job){
            .task = {.step = job_step}, .conn = conn, .run = RUNS[i], .state = JOB_IDLE};
}

void sc_plugin_kick(spec_connector *conn, enum sc_plugin_job_kind kind)
{
    struct sc_plugin_job *job = &conn->jobs[kind];
    pthread_mutex_lock(&conn->job_lock);
    if (!conn->jobs_closed && job->state == JOB_IDLE) {
        job->state = JOB_QUEUED;
        sc_exec_post(conn->exec, &job->task, SC_LANE_BACKGROUND);
    } else if (job->state == JOB_RUNNING) {
        job->state = JOB_AGAIN;
    }
    pthread_mutex_unlock(&conn->job_lock);
}

/* Ends those that wait; true: none runs. */
static bool jobs_end(spec_connector *conn)
{
    bool idle = true;
    pthread_mutex_lock(&conn->job_lock);
    conn->jobs_closed = true;
    for (uint32_t i = 0; i < SC_JOBS; i++) {
        struct sc_plugin_job *job = &conn->jobs[i];
        if (job->state == JOB_QUEUED && sc_exec_cancel(conn->exec, &job->task))
            job->state = JOB_IDLE;
        idle = idle && job->state == JOB_IDLE;
    }
    pthread_mutex_unlock(&conn->job_lock);
    return idle;
}

void sc_plugin_jobs_close(spec_connector *conn)
{
    for (;;) {
        uint32_t seen = atomic_load(&conn->job_word);
        if (jobs_end(conn))
            return;
        (void)sc_exec_wait(conn->exec, &conn->job_word, seen, SC_EXEC_FOREVER);
    }
}

spec_status sc_plugin_maintain(spec_connector *conn, const struct spec_maintain_params *host_params,
                               struct spec_error *reterr)
{
    struct spec_maintain_params params;
    spec_status status = sc_plugin_args_read(&params, &sc_plugin_form_maintain, host_params,
                                             "maintain: params", reterr);
    if (status != SPEC_OK)
        return status;
    if (params.flags == 0 || (params.flags & ~MAINTAIN_FLAGS) != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "maintain: flags are %#" PRIx32 ", expected some of %#x", params.flags,
                       MAINTAIN_FLAGS);
    if ((params.flags & (SPEC_MAINTAIN_REORDER | SPEC_MAINTAIN_BYPASS)) != 0)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "maintain: version %u.%u neither reorders nor "
                       "bypasses",
                       SPEC_ABI_MAJOR, SPEC_ABI_MINOR);
    if (conn->role == SPEC_ROLE_READER)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "maintain: this process is a reader");
    if ((params.flags & SPEC_MAINTAIN_CHECKPOINT) != 0)
        sc_plugin_kick(conn, SC_JOB_CHECKPOINT);
    if ((params.flags & SPEC_MAINTAIN_EVICT) != 0)
        sc_plugin_evict_ask_least(conn);
    if ((params.flags & SPEC_MAINTAIN_BUILD) != 0)
        sc_store_build_start(conn->store, conn->config.maintain_bytes_per_s);
    return SPEC_OK;
}
