/* job: calls of get and put, with a transfer per key; deadlines; completions.
 *
 *   waiting call     arrays are the host's; it waits on the job's word
 *   submitted call   arrays are copied behind the transfers; poll takes its completion
 *
 * A job completes when each key has its status, and the device no longer uses its memory.
 * Threads: any; `lock`. Tests: conformance/objects */
#include "plugin/objects/objects.h"

#include <string.h>

/* ---- Making --------------------------------------------------------------------------------- */

static uint32_t key_bytes_of(const struct spec_keys *keys, uint32_t i)
{
    return keys->lengths != NULL ? keys->lengths[i] : keys->key_bytes;
}

/* Copies into the next bytes of the memory behind the transfers. */
static void *room_next(uint8_t **room, const void *source, uint64_t bytes)
{
    void *memory = *room;
    if (bytes > 0)
        memcpy(memory, source, bytes);
    *room += (bytes + 7) / 8 * 8;
    return memory;
}

static uint64_t deadline_of(const spec_objects *objects, uint64_t timeout_ns)
{
    uint64_t now_ns = sc_exec_now_ns(objects->exec);
    if (timeout_ns == SPEC_TIMEOUT_CONFIGURED)
        timeout_ns = objects->config.objects_timeout_ms * 1000000;
    return timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
}

/* `lock` held. Assigns an operation to a job; false: objects.submitted_max. */
static bool operation_take(spec_objects *objects, struct sc_object_job *job)
{
    uint32_t most = objects->config.objects_submitted_max;
    for (uint32_t n = 0; n < most; n++) {
        uint32_t slot = (objects->job_hint + n) % most;
        if (objects->jobs[slot] != NULL)
            continue;
        objects->jobs[slot] = job;
        objects->job_hint = (slot + 1) % most;
        job->operation = ++objects->job_generations[slot] << 16 | slot;
        return true;
    }
    return false;
}

/* `lock` held. */
static void operation_give(spec_objects *objects, const struct sc_object_job *job)
{
    objects->jobs[job->operation & 0xFFFF] = NULL;
}

/* Allocates a job with transfers; if submitted, with copies of the arrays. NULL: no memory. */
static struct sc_object_job *job_alloc(spec_objects *objects, const struct sc_object_call *call,
                                       bool is_submitted)
{
    const struct spec_pieces *pieces = call->pieces;
    uint64_t count = call->keys->count, all = count * pieces->pieces, key_bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        key_bytes += key_bytes_of(call->keys, i);
    uint64_t bytes = sizeof(struct sc_object_job) + count * sizeof(struct sc_object_transfer);
    uint64_t copied = is_submitted ? key_bytes + 8 + all * 16 : 0;
    struct sc_object_job *job = sc_alloc(&objects->alloc, bytes + copied);
    if (job == NULL)
        return NULL;
    memset(job, 0, bytes);
    const uint8_t *key = call->keys->data;
    job->addresses = pieces->addresses;
    job->sizes = pieces->sizes;
    if (is_submitted) {
        uint8_t *room = (uint8_t *)job + bytes;
        key = room_next(&room, key, key_bytes);
        job->addresses = room_next(&room, pieces->addresses, all * 8);
        if (pieces->sizes != NULL)
            job->sizes = room_next(&room, pieces->sizes, all * 8);
    }
    for (uint32_t i = 0; i < count; i++) {
        job->transfers[i].job = job;
        job->transfers[i].index = i;
        job->transfers[i].key = key;
        job->transfers[i].key_bytes = key_bytes_of(call->keys, i);
        key += job->transfers[i].key_bytes;
    }
    return job;
}

spec_status sc_objects_job_make(spec_objects *objects, const struct sc_object_call *call,
                                bool is_submitted, struct sc_object_job **ret_job,
                                struct spec_error *reterr)
{
    struct sc_object_job *job = job_alloc(objects, call, is_submitted);
    if (job == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "an operation of %" PRIu32 " keys",
                       call->keys->count);
    job->objects = objects;
    job->domain = call->domain;
    job->user = call->params->user;
    job->ret_status = call->params->ret_status;
    job->piece_bytes = call->pieces->piece_bytes;
    job->pieces = call->pieces->pieces;
    job->count = job->left = call->keys->count;
    job->is_put = call->is_put;
    job->deadline_ns = deadline_of(objects, call->params->timeout_ns);
    pthread_mutex_lock(&objects->lock);
    if (is_submitted && !operation_take(objects, job)) {
        pthread_mutex_unlock(&objects->lock);
        sc_alloc_free(&objects->alloc, job);
        return sc_fail(reterr, SPEC_E_BUSY,
                       "%" PRIu32 " operations are submitted (objects.submitted_max)",
                       objects->config.objects_submitted_max);
    }
    for (uint32_t i = 0; i < job->count; i++)
        job->ret_status[i] = SPEC_KEY_PENDING;
    job->next = objects->active;
    if (job->next != NULL)
        job->next->prev = job;
    objects->active = job;
    objects->job_count++;
    job->domain->job_count++;
    if (is_submitted)
        *call->ret_operation = job->operation;
    else
        *ret_job = job;
    if (job->is_put)
        sc_objects_put_begin(objects, job);
    else
        sc_objects_get_begin(objects, job);
    if (job->left > 0 && job->deadline_ns != UINT64_MAX)
        sc_objects_clock_set(objects, job->deadline_ns);
    pthread_mutex_unlock(&objects->lock);
    return SPEC_OK;
}

/* ---- Completion ----------------------------------------------------------------------------- */

void sc_objects_job_wait(spec_objects *objects, struct sc_object_job *job)
{
    while (atomic_load(&job->word) == 0)
        (void)sc_exec_wait(objects->exec, &job->word, 0, SC_EXEC_FOREVER);
    pthread_mutex_lock(&objects->lock); /* waits until the completing thread has left */
    pthread_mutex_unlock(&objects->lock);
    sc_alloc_free(&objects->alloc, job);
}

static struct spec_completion completion_of(const struct sc_object_job *job)
{
    struct spec_completion completion = {.operation = job->operation,
                                         .user = job->user,
                                         .done_count = job->done_count,
                                         .status = SPEC_OK};
    for (uint32_t i = 0; i < job->count && completion.status >= SPEC_OK; i++) {
        if (job->ret_status[i] < 0)
            completion.status = job->ret_status[i];
        else if (job->ret_status[i] == SPEC_KEY_ABSENT)
            completion.status = SPEC_PENDING;
    }
    return completion;
}

/* Takes the oldest completion of a domain; NULL: none. */
static struct sc_object_job *completed_take(spec_objects *objects, struct sc_object_domain *domain)
{
    pthread_mutex_lock(&objects->lock);
    struct sc_object_job *job = domain->completed;
    if (job != NULL) {
        domain->completed = job->next;
        if (domain->completed == NULL)
            domain->completed_last = NULL;
        operation_give(objects, job);
    }
    pthread_mutex_unlock(&objects->lock);
    return job;
}

spec_status sc_objects_poll(spec_objects *objects, struct sc_object_domain *domain,
                            struct spec_completion *ret_completions, uint64_t capacity,
                            uint64_t timeout_ns, uint64_t *ret_count)
{
    struct sc_object_job *job;
    uint64_t count = 0, now_ns = sc_exec_now_ns(objects->exec);
    uint64_t end_ns = timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : SC_EXEC_FOREVER;
    for (;;) {
        uint32_t word = atomic_load(&domain->word);
        while (count < capacity && (job = completed_take(objects, domain)) != NULL) {
            ret_completions[count++] = completion_of(job);
            sc_alloc_free(&objects->alloc, job);
        }
        if (count > 0 || timeout_ns == 0 || sc_exec_now_ns(objects->exec) >= end_ns)
            break;
        (void)sc_exec_wait(objects->exec, &domain->word, word, end_ns);
    }
    *ret_count = count;
    return SPEC_OK;
}

/* ---- Cancel, deadlines, ends ---------------------------------------------------------------- */

/* `lock` held. Ends keys not handed to the device with this status. The last may complete the job,
 * which stays until the lock is released. */
static void job_give_up(spec_objects *objects, struct sc_object_job *job, int32_t status)
{
    for (uint32_t i = 0, count = job->count; i < count; i++) {
        struct sc_object_transfer *transfer = &job->transfers[i];
        bool is_waiting =
            transfer->state == SC_OBJECT_QUEUED || transfer->state == SC_OBJECT_FOLLOWING;
        if (!is_waiting)
            continue;
        if (job->is_put) {
            sc_objects_put_give_up(objects, transfer, status);
            continue;
        }
        sc_objects_queue_remove(&objects->gets, transfer);
        sc_catalog_unpin(objects, transfer->entry);
        sc_objects_finish(objects, transfer, status);
    }
}

spec_status sc_objects_cancel(spec_objects *objects, spec_operation operation,
                              struct spec_error *reterr)
{
    uint64_t slot = operation & 0xFFFF;
    spec_status status = SPEC_OK;
    pthread_mutex_lock(&objects->lock);
    struct sc_object_job *job =
        slot < objects->config.objects_submitted_max ? objects->jobs[slot] : NULL;
    if (operation == 0 || job == NULL || job->operation != operation)
        status = sc_fail(reterr, SPEC_E_STALE, "cancel: operation %" PRIu64 " is not submitted",
                         operation);
    else
        job_give_up(objects, job, SPEC_E_DROPPED);
    pthread_mutex_unlock(&objects->lock);
    return status;
}

static void clock_step(struct sc_task *task)
{
    spec_objects *objects = SC_TASK_OWNER(task, spec_objects, clock);
    uint64_t now_ns = sc_exec_now_ns(objects->exec), next_ns = UINT64_MAX;
    struct sc_object_job *next;
    pthread_mutex_lock(&objects->lock);
    objects->clock_armed = false;
    for (struct sc_object_job *job = objects->active; job != NULL; job = next) {
        next = job->next;
        if (job->given_up != 0)
            continue;
        if (job->deadline_ns <= now_ns) {
            job->given_up = SPEC_E_TIMEOUT;
            job_give_up(objects, job, SPEC_E_TIMEOUT); /* ends no other job */
        } else if (job->deadline_ns < next_ns) {
            next_ns = job->deadline_ns;
        }
    }
    if (objects->put_waits && objects->put_wake_ns <= now_ns)
        sc_objects_queue_wake(objects, &objects->puts, SC_IO_CLASS_WRITER);
    else if (objects->put_waits && objects->put_wake_ns < next_ns)
        next_ns = objects->put_wake_ns;
    if (next_ns != UINT64_MAX)
        sc_objects_clock_set(objects, next_ns);
    pthread_mutex_unlock(&objects->lock);
    sc_objects_task_end(objects);
}

void sc_objects_jobs_end(spec_objects *objects, struct sc_object_domain *domain)
{
    struct sc_object_job *next;
    for (;;) {
        pthread_mutex_lock(&objects->lock);
        for (struct sc_object_job *job = objects->active; job != NULL; job = next) {
            next = job->next;
            if (domain != NULL && job->domain != domain)
                continue;
            if (job->given_up == 0) {
                job->given_up = SPEC_E_DROPPED;
                job_give_up(objects, job, SPEC_E_DROPPED);
            }
        }
        uint32_t word = atomic_load(&objects->job_word);
        uint32_t count = domain != NULL ? domain->job_count : objects->job_count;
        pthread_mutex_unlock(&objects->lock);
        if (count == 0)
            break;
        (void)sc_exec_wait(objects->exec, &objects->job_word, word, SC_EXEC_FOREVER);
    }
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++) {
        struct sc_object_job *job;
        if (domain != NULL && domain != &objects->domains[i])
            continue;
        while ((job = completed_take(objects, &objects->domains[i])) != NULL)
            sc_alloc_free(&objects->alloc, job);
    }
}

void sc_objects_jobs_open(spec_objects *objects)
{
    objects->clock.step = clock_step;
}
