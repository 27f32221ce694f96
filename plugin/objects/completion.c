/* completion: the status of a key and of a job, and the clock for deadlines. A status is written
 * before its job completes; the host's eventfd counts each completion once.
 * Threads: `lock`. Tests: conformance/objects */
#include "plugin/objects/objects.h"

#include <poll.h>
#include <unistd.h>

static void event_fd_add(int32_t fd)
{
    const uint64_t one = 1;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    /* Writing to a full counter would block with `lock` held. */
    if (fd < 0 || poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT)
        return;
    if (write(fd, &one, sizeof(one)) < 0) {
        /* the counter is full or closed: the host polls */
    }
}

void sc_objects_event_fd_set(spec_objects *objects, struct sc_object_domain *domain, int32_t fd)
{
    pthread_mutex_lock(&objects->lock);
    domain->event_fd = fd;
    for (const struct sc_object_job *job = domain->completed; job != NULL; job = job->next)
        event_fd_add(fd);
    pthread_mutex_unlock(&objects->lock);
}

/* `lock` held. */
static void job_complete(spec_objects *objects, struct sc_object_job *job)
{
    struct sc_object_domain *domain = job->domain;
    if (job->next != NULL)
        job->next->prev = job->prev;
    if (job->prev != NULL)
        job->prev->next = job->next;
    else
        objects->active = job->next;
    job->next = job->prev = NULL;
    objects->job_count--;
    domain->job_count--;
    if (job->operation != 0) {
        if (domain->completed_last != NULL)
            domain->completed_last->next = job;
        else
            domain->completed = job;
        domain->completed_last = job;
        event_fd_add(domain->event_fd);
        atomic_fetch_add(&domain->word, 1);
        sc_exec_wake(objects->exec, &domain->word);
    }
    atomic_store(&job->word, 1);
    sc_exec_wake(objects->exec, &job->word);
    atomic_fetch_add(&objects->job_word, 1);
    sc_exec_wake(objects->exec, &objects->job_word);
}

void sc_objects_finish(spec_objects *objects, struct sc_object_transfer *transfer, int32_t status)
{
    struct sc_object_job *job = transfer->job;
    transfer->state = SC_OBJECT_FINISHED;
    job->ret_status[transfer->index] = status;
    job->done_count += status == SPEC_KEY_DONE || status == SPEC_KEY_STORED;
    if (job->is_put && status == SPEC_E_NO_SPACE)
        SC_OBJECT_COUNT(objects, job->domain, put_no_space, 1);
    if (job->is_put && status == SPEC_E_TIMEOUT)
        SC_OBJECT_COUNT(objects, job->domain, put_timeouts, 1);
    if (--job->left == 0)
        job_complete(objects, job);
}

void sc_objects_clock_set(spec_objects *objects, uint64_t due_ns)
{
    if (objects->is_closing || (objects->clock_armed && objects->clock_ns <= due_ns))
        return;
    if (objects->clock_armed) {
        if (!sc_exec_cancel(objects->exec, &objects->clock))
            return; /* it runs now, and examines everything */
        atomic_fetch_sub(&objects->tasks, 1);
    }
    objects->clock_armed = true;
    objects->clock_ns = due_ns;
    atomic_fetch_add(&objects->tasks, 1);
    sc_exec_post_at(objects->exec, &objects->clock, SC_IO_CLASS_DEMAND, due_ns);
}
