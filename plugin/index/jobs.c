/* jobs: requested background work.
 *
 *   kick -> QUEUED -> RUNNING -> IDLE
 *              ^         |  ^ kick: AGAIN
 *              +---------+
 *                more to do
 *
 * A step does bounded work and posts itself again, so that higher I/O classes run first. A job is
 * posted or runs once at a time; a kick during a step causes another step. No step runs after
 * jobs_close. A kick never waits. */
#include "plugin/index/jobs.h"
#include "plugin/connector.h"

enum job_state { JOB_IDLE, JOB_QUEUED, JOB_RUNNING, JOB_AGAIN };

void sc_plugin_lock(spec_connector *conn, pthread_mutex_t *lock)
{
    if (pthread_mutex_trylock(lock) == 0)
        return;
    sc_count(&conn->stats.lock_waits, 1);
    pthread_mutex_lock(lock);
}

static void job_step(struct sc_task *task)
{
    struct sc_plugin_job *job = SC_TASK_OWNER(task, struct sc_plugin_job, task);
    spec_connector *conn = job->conn;
    pthread_mutex_lock(&conn->jobs.lock);
    job->state = JOB_RUNNING;
    bool runs = !conn->jobs.closed;
    pthread_mutex_unlock(&conn->jobs.lock);
    bool more = runs && atomic_load(&conn->poison.broken) == 0 && job->run(conn);
    pthread_mutex_lock(&conn->jobs.lock);
    more = (more || job->state == JOB_AGAIN) && !conn->jobs.closed;
    job->state = more ? JOB_QUEUED : JOB_IDLE;
    if (more)
        sc_exec_post(conn->exec, task, SC_IO_CLASS_BACKGROUND);
    atomic_fetch_add(&conn->jobs.word, 1);
    sc_exec_wake(conn->exec, &conn->jobs.word); /* under the lock, which close takes afterwards */
    pthread_mutex_unlock(&conn->jobs.lock);
}

void sc_plugin_jobs_open(spec_connector *conn, bool (*const runs[SC_JOBS])(spec_connector *))
{
    for (uint32_t i = 0; i < SC_JOBS; i++)
        conn->jobs.slots[i] = (struct sc_plugin_job){
            .task = {.step = job_step}, .conn = conn, .run = runs[i], .state = JOB_IDLE};
}

void sc_plugin_kick(spec_connector *conn, enum sc_plugin_job_kind kind)
{
    struct sc_plugin_job *job = &conn->jobs.slots[kind];
    pthread_mutex_lock(&conn->jobs.lock);
    if (!conn->jobs.closed && job->state == JOB_IDLE) {
        job->state = JOB_QUEUED;
        sc_exec_post(conn->exec, &job->task, SC_IO_CLASS_BACKGROUND);
    } else if (job->state == JOB_RUNNING) {
        job->state = JOB_AGAIN;
    }
    pthread_mutex_unlock(&conn->jobs.lock);
}

/* Cancels queued jobs. Returns true if none runs. */
static bool jobs_end(spec_connector *conn)
{
    bool idle = true;
    pthread_mutex_lock(&conn->jobs.lock);
    conn->jobs.closed = true;
    for (uint32_t i = 0; i < SC_JOBS; i++) {
        struct sc_plugin_job *job = &conn->jobs.slots[i];
        if (job->state == JOB_QUEUED && sc_exec_cancel(conn->exec, &job->task))
            job->state = JOB_IDLE;
        idle = idle && job->state == JOB_IDLE;
    }
    pthread_mutex_unlock(&conn->jobs.lock);
    return idle;
}

void sc_plugin_jobs_close(spec_connector *conn)
{
    for (;;) {
        uint32_t seen = atomic_load(&conn->jobs.word);
        if (jobs_end(conn))
            return;
        (void)sc_exec_wait(conn->exec, &conn->jobs.word, seen, SC_EXEC_FOREVER);
    }
}
