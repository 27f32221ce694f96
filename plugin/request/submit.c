/* submit: get_important in two halves: submit checks and begins, a thread of ours serves, wait
 * reports. Contract: submit.h.
 *
 *   submit   items checked, copied -> reads begun -> QUEUED ---> RUNS -> DONE
 *   thread                            (submit.threads) takes it -'        |
 *   wait     serves what no thread has begun, else sleeps ----------------'-> results written
 *
 *   word         [generation 32][state 32]
 *   spec_ticket  [generation 32][SC_LIMIT_TICKETS + slot + 1 32]: poll and wait know no such ticket
 *
 * Serving waits for reads, which the workers of the connector's executor complete. So it has an
 * executor of its own, whose workers may sleep (docs/decisions/0011). A waiting call serves a
 * submission that no thread has begun: at once if it waits for ever, else when its deadlines have
 * passed. So it ends in time even if all threads are busy.
 *
 * Invariants: from submit until it was served, a submission owns its requests' loads
 * (request->turn). Until it is reported, no other load of them begins. Release leaves their end to
 * the submission. State that other calls of a request read changes in host calls alone.
 * Limits: allocates nothing after open; submit does not wait. */
#include "plugin/request/submit.h"
#include "plugin/args/handle.h"
#include "plugin/load/load.h"
#include "plugin/request/requests.h"
#include "plugin/select/item.h"
#include "plugin/select/submission.h"

#define SUBMISSIONS_MAX 64u /* more requests are hardly loaded at one time */

enum { FREE, TAKEN, QUEUED, RUNS, DONE }; /* states; TAKEN: by a host call */

static bool state_move(struct sc_plugin_submission *submission, uint64_t generation, uint32_t from,
                       uint32_t to)
{
    uint64_t word = generation << 32 | from;
    return atomic_compare_exchange_strong(&submission->word, &word, generation << 32 | to);
}

/* ---- The work ------------------------------------------------------------------------------- */

/* Returns true if an earlier item has the same request. */
static bool is_again(const struct sc_plugin_item *work, uint64_t i)
{
    for (uint64_t j = 0; j < i; j++)
        if (work[j].request == work[i].request)
            return true;
    return false;
}

/* Serves the submission, which the caller has moved to RUNS. */
static void submission_run(struct sc_plugin_submission *submission)
{
    spec_connector *conn = submission->conn;
    struct sc_plugin_item *work = submission->work;
    uint64_t generation = atomic_load(&submission->word) >> 32;
    submission->error = (struct spec_error){.struct_size = sizeof(submission->error)};
    submission->status = sc_plugin_items_serve(conn, work, submission->count, &submission->error);
    for (uint64_t i = 0; i < submission->count; i++)
        if (!is_again(work, i) &&
            atomic_exchange(&work[i].request->turn, SC_OWNER_HOST) == SC_OWNER_WAITER)
            sc_plugin_request_end(conn, work[i].request);
    atomic_store(&submission->word, generation << 32 | DONE);
    atomic_fetch_add_explicit(&conn->submits.word, 1, memory_order_release);
    sc_exec_wake(conn->exec, &conn->submits.word);
}

static void run_step(struct sc_task *task)
{
    struct sc_plugin_submission *submission =
        SC_TASK_OWNER(task, struct sc_plugin_submission, task);
    uint64_t generation = atomic_load(&submission->word) >> 32;
    if (state_move(submission, generation, QUEUED, RUNS))
        submission_run(submission);
}

/* Serves the submission here, if no thread has begun it. */
static bool run_here(struct sc_plugin_submission *submission, uint64_t generation)
{
    struct sc_exec *exec = submission->conn->submits.exec;
    if ((exec != NULL && !sc_exec_cancel(exec, &submission->task)) ||
        !state_move(submission, generation, QUEUED, RUNS))
        return false;
    submission_run(submission);
    return true;
}

/* ---- Submit --------------------------------------------------------------------------------- */

static struct sc_plugin_submission *submission_take(spec_connector *conn, spec_ticket *ret_ticket)
{
    for (uint64_t i = 0; i < conn->submits.count; i++) {
        struct sc_plugin_submission *submission = &conn->submits.slots[i];
        uint64_t word = atomic_load(&submission->word);
        uint64_t generation = (word >> 32) + 1;
        if ((word & UINT32_MAX) != FREE ||
            !atomic_compare_exchange_strong(&submission->word, &word, generation << 32 | TAKEN))
            continue;
        *ret_ticket = generation << 32 | (SC_LIMIT_TICKETS + i + 1);
        return submission;
    }
    return NULL;
}

/* Fails because all submissions are in use; errors of the items come first, since they would
 * remain. */
static spec_status fail_busy(spec_connector *conn, struct sc_plugin_visit *visit,
                             struct spec_important *items, uint64_t count,
                             struct spec_error *reterr)
{
    spec_status status = sc_plugin_items_check(conn, visit, items, count, true, NULL, reterr);
    if (status != SPEC_OK)
        return status;
    return sc_fail(reterr, SPEC_E_BUSY,
                   "get_important_submit: %" PRIu32 " were submitted and not waited for",
                   conn->submits.count);
}

/* Returns when the last deadline passes, with the extra wait for quantised rows; of a tail, the
 * first. */
static uint64_t over_ns(const struct sc_plugin_item *work, uint64_t count)
{
    uint64_t over = sc_plugin_item_over_ns(work);
    for (uint64_t i = 1; i < count; i++) {
        uint64_t ns = sc_plugin_item_over_ns(&work[i]);
        over = (ns > over) != sc_plugin_is_tail(&work->in) ? ns : over;
    }
    return over;
}

static spec_status submit(spec_connector *conn, struct sc_plugin_visit *visit,
                          struct spec_important *items, uint64_t count, spec_ticket *ret_ticket,
                          struct spec_error *reterr)
{
    uint64_t begin_ns = sc_exec_now_ns(conn->exec);
    if (ret_ticket == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "get_important_submit: ret_ticket is NULL");
    spec_ticket ticket;
    struct sc_plugin_submission *submission = submission_take(conn, &ticket);
    if (submission == NULL)
        return fail_busy(conn, visit, items, count, reterr);
    struct sc_plugin_item *work = submission->work;
    spec_status status = sc_plugin_items_check(conn, visit, items, count, true, work, reterr);
    if (status != SPEC_OK) {
        atomic_store(&submission->word, ((ticket >> 32) - 1) << 32 | FREE); /* as if not taken */
        return status;
    }
    submission->items = items;
    submission->count = count;
    for (uint64_t i = 0; i < count; i++) {
        work[i].ticket = ticket;
        atomic_store(&work[i].request->submission,
                     (uint32_t)(submission - conn->submits.slots) + 1);
        atomic_store(&work[i].request->turn, SC_OWNER_SUBMITTED);
    }
    sc_plugin_items_begin(conn, work, count, begin_ns);
    *ret_ticket = ticket;
    atomic_store(&submission->over_ns, over_ns(work, count));
    atomic_store(&submission->word, ticket >> 32 << 32 | QUEUED);
    if (conn->submits.exec != NULL)
        sc_exec_post(conn->submits.exec, &submission->task, SC_IO_CLASS_DEMAND);
    return SPEC_OK;
}

spec_status sc_plugin_submit(spec_connector *conn, struct spec_important *items, uint64_t count,
                             spec_ticket *ret_ticket, struct spec_error *reterr)
{
    struct sc_plugin_visit visit = {NULL};
    spec_status status = submit(conn, &visit, items, count, ret_ticket, reterr);
    sc_plugin_visit_end(conn, &visit);
    return status;
}

/* ---- Wait ----------------------------------------------------------------------------------- */

/* Enters all requests of the submission that were not released. Errors: BUSY. */
static spec_status requests_enter(struct sc_plugin_submission *submission,
                                  struct sc_plugin_visit *visit, struct spec_error *reterr)
{
    for (uint64_t i = 0; i < submission->count; i++) {
        struct sc_plugin_item *item = &submission->work[i];
        struct sc_plugin_request *request;
        spec_status status = sc_plugin_request_enter_any(submission->conn, visit, item->in.request,
                                                         &request, reterr);
        if (status == SPEC_E_BUSY)
            return status;
        item->is_gone = status != SPEC_OK;
    }
    return SPEC_OK;
}

/* Reports a submission that the caller has moved to TAKEN. */
static spec_status submission_report(struct sc_plugin_submission *submission,
                                     struct sc_plugin_visit *visit, uint64_t generation,
                                     uint64_t begin_ns, struct spec_error *reterr)
{
    spec_connector *conn = submission->conn;
    struct sc_plugin_item *work = submission->work;
    uint64_t took_ns = (sc_exec_now_ns(conn->exec) - begin_ns) / submission->count;
    spec_status status = requests_enter(submission, visit, reterr);
    if (status != SPEC_OK) {
        atomic_store(&submission->word, generation << 32 | DONE); /* as it was */
        return status;
    }
    for (uint64_t i = 0; i < submission->count; i++)
        if (!work[i].is_gone) /* our threads served it: the host only waited */
            sc_plugin_load_policy_call(work[i].request, took_ns, took_ns);
    status = submission->status;
    if (status != SPEC_OK)
        (void)sc_fail_errno(reterr, status, submission->error.sys_errno, "%s",
                            submission->error.text);
    status =
        sc_plugin_items_report(conn, submission->items, work, submission->count, status, reterr);
    for (uint64_t i = 0; i < submission->count; i++)
        if (!work[i].is_gone)
            atomic_store(&work[i].request->submission, 0);
    atomic_store(&submission->word, generation << 32 | FREE);
    return status;
}

static spec_status fail_unknown(spec_ticket ticket, struct spec_error *reterr)
{
    return sc_fail(reterr, SPEC_E_INVALID,
                   "get_important_wait: ticket %#" PRIx64
                   " is no submission's, or was reported before",
                   ticket);
}

static spec_status submit_wait(spec_connector *conn, struct sc_plugin_visit *visit,
                               spec_ticket ticket, uint64_t timeout_ns, struct spec_error *reterr)
{
    uint64_t slot = (ticket & UINT32_MAX) - SC_LIMIT_TICKETS - 1, generation = ticket >> 32;
    if (slot >= conn->submits.count)
        return fail_unknown(ticket, reterr);
    struct sc_plugin_submission *submission = &conn->submits.slots[slot];
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    bool is_bounded = timeout_ns <= SC_EXEC_FOREVER - now_ns, in_time = true;
    uint64_t deadline_ns = is_bounded ? now_ns + timeout_ns : SC_EXEC_FOREVER;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&conn->submits.word, memory_order_acquire);
        uint64_t word = atomic_load(&submission->word);
        uint32_t state = (uint32_t)word;
        if (word >> 32 != generation || state == FREE || state == TAKEN)
            return fail_unknown(ticket, reterr);
        if (state == DONE && !state_move(submission, generation, DONE, TAKEN))
            continue; /* another waiter reports it, and notifies nobody */
        if (state == DONE)
            return submission_report(submission, visit, generation, now_ns, reterr);
        uint64_t end_ns = state == QUEUED ? atomic_load(&submission->over_ns) : SC_EXEC_FOREVER;
        bool is_over = end_ns <= sc_exec_now_ns(conn->exec);
        bool may_run = conn->submits.exec == NULL || !is_bounded || is_over;
        if (state == QUEUED && may_run && run_here(submission, generation))
            continue;
        if (!in_time)
            return sc_fail(reterr, SPEC_E_TIMEOUT,
                           "get_important_wait: ticket %#" PRIx64 " is not done", ticket);
        bool wakes = end_ns < deadline_ns && !is_over;
        bool moved =
            sc_exec_wait(conn->exec, &conn->submits.word, seen, wakes ? end_ns : deadline_ns);
        in_time = moved || wakes;
    }
}

spec_status sc_plugin_submit_wait(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                  struct spec_error *reterr)
{
    struct sc_plugin_visit visit = {NULL};
    spec_status status = submit_wait(conn, &visit, ticket, timeout_ns, reterr);
    sc_plugin_visit_end(conn, &visit);
    return status;
}

/* ---- Open and close ------------------------------------------------------------------------- */

spec_status sc_plugin_submit_open(spec_connector *conn, struct spec_error *reterr)
{
    const struct sc_config *config = &conn->config;
    uint32_t count =
        config->max_requests < SUBMISSIONS_MAX ? config->max_requests : SUBMISSIONS_MAX;
    conn->submits.slots = sc_alloc_array(&conn->alloc, count, sizeof(*conn->submits.slots));
    struct sc_plugin_item *work =
        sc_alloc(&conn->alloc, (uint64_t)count * SC_LIMIT_BATCH * sizeof(*work));
    if (conn->submits.slots == NULL || work == NULL) {
        sc_alloc_free(&conn->alloc, work);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu32 " submissions", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        conn->submits.slots[i].conn = conn;
        conn->submits.slots[i].work = work + (uint64_t)i * SC_LIMIT_BATCH;
        conn->submits.slots[i].task.step = run_step;
    }
    conn->submits.count = count;
    struct sc_exec_params params = {.alloc = &conn->alloc,
                                    .thread_count = config->submit_threads,
                                    .name = "spec-get",
                                    .poison = &conn->poison};
    if (sc_exec_is_loop(conn->exec) || params.thread_count == 0)
        return SPEC_OK; /* a loop has no other thread */
    return sc_exec_open(&params, &conn->submits.exec, reterr);
}

void sc_plugin_submit_end(spec_connector *conn)
{
    atomic_store(&conn->submits.closing, 1);
    for (uint32_t i = 0; i < conn->submits.count; i++) {
        struct sc_plugin_submission *submission = &conn->submits.slots[i];
        for (;;) {
            uint32_t seen = atomic_load_explicit(&conn->submits.word, memory_order_acquire);
            uint64_t word = atomic_load(&submission->word);
            if ((uint32_t)word != QUEUED && (uint32_t)word != RUNS)
                break;
            if ((uint32_t)word == QUEUED && run_here(submission, word >> 32))
                continue; /* closing: it ends at once */
            (void)sc_exec_wait(conn->exec, &conn->submits.word, seen, SC_EXEC_FOREVER);
        }
    }
}

void sc_plugin_submit_close(spec_connector *conn)
{
    sc_exec_close(conn->submits.exec);
    if (conn->submits.slots != NULL) /* slot 0 owns the memory of all */
        sc_alloc_free(&conn->alloc, conn->submits.slots[0].work);
    sc_alloc_free(&conn->alloc, conn->submits.slots);
}
