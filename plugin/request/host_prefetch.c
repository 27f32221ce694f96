/* host_prefetch: prefetch_to_host ("stage"): reads a match into host memory ahead of its loads.
 *
 *   stage    a slot, a ticket, a hold on the request
 *              -> waits -> RUNS in the store (fetch_match.h): [selectors of all layers][rows of
 *                          layer 0][of 1] .. -> over
 *   lookup   of tokens that a stage covers: PENDING until it is over, or its deadline
 *   over     done, failed, no room | deadline | release | reset | bypass: the first is reported
 *   freed    when the store has ended, too: the slot is free, the request's hold ends
 *
 * One runs at a time, the one with the earliest deadline: two alternating ones would both be late.
 * Data is kept until its first use, or KEPT_NS after the end (not at all if the request was
 * released before). So a stage does not evict its own beginning, and an unused one costs memory
 * only briefly.
 *
 * Invariants: a ticket is reported once. The slot of the request whose ranges are read is not
 * reused meanwhile, also after its release. A piece that fails is void, as after a failed load.
 * Threads: stage, leave, reset, covers any; on_done, on_timer the executor's. */
#include "plugin/args/args.h"
#include "plugin/args/handle.h"
#include "plugin/connector.h"
#include "plugin/select/scatter.h"
#include "plugin/select/select.h"

#define KEPT_NS UINT64_C(10000000000)

/* ---- Slots: lock held ------------------------------------------------------------------------ */

static void moved(spec_connector *conn)
{
    atomic_fetch_add_explicit(&conn->stages.word, 1, memory_order_release);
    sc_exec_wake(conn->exec, &conn->stages.word);
}

/* Frees the slot; nothing of it runs. */
static void slot_free(spec_connector *conn, struct sc_plugin_host_prefetch *stage)
{
    struct sc_plugin_request *request = stage->request;
    stage->request = NULL;
    sc_plugin_request_unhold(request);
    moved(conn);
}

/* Ends the stage for its host; its slot is freed when the store has ended, too. */
static void stage_over(spec_connector *conn, struct sc_plugin_host_prefetch *stage,
                       spec_status status)
{
    if (stage->is_over)
        return;
    stage->is_over = true;
    stage->status = status;
    atomic_store(&stage->request->staged, 0);
    atomic_fetch_sub(&conn->stages.open, 1);
    if (stage->ticket != 0)
        sc_plugin_ticket_resolve(conn, stage->ticket, status);
    stage->ticket = 0;
    if (stage->runs)
        sc_store_match_fetch_cancel(conn->store);
    else
        slot_free(conn, stage);
}

static void timer_set(spec_connector *conn)
{
    struct sc_plugin_host_prefetches *stages = &conn->stages;
    uint64_t first_ns = SC_EXEC_FOREVER;
    for (uint32_t i = 0; i < SC_PLUGIN_HOST_PREFETCHES; i++)
        if (stages->slots[i].request != NULL && !stages->slots[i].is_over &&
            stages->slots[i].deadline_ns < first_ns)
            first_ns = stages->slots[i].deadline_ns;
    if (stages->timer_ns == first_ns)
        return;
    if (stages->timer_ns != 0 && !sc_exec_cancel(conn->exec, &stages->timer))
        return; /* its step waits for the lock, and sets it */
    stages->timer_ns = 0;
    if (first_ns == SC_EXEC_FOREVER)
        return;
    stages->timer_ns = first_ns;
    sc_exec_post_at(conn->exec, &stages->timer, SC_IO_CLASS_WRITER, first_ns);
}

static void on_done(const struct sc_store_match_fetched *staged, void *user);

/* Returns the waiting stage with the earliest deadline, of equals the oldest; NULL if none waits or
 * one runs. */
static struct sc_plugin_host_prefetch *stage_next(struct sc_plugin_host_prefetches *stages)
{
    struct sc_plugin_host_prefetch *next = NULL;
    for (uint32_t i = 0; i < SC_PLUGIN_HOST_PREFETCHES; i++) {
        struct sc_plugin_host_prefetch *stage = &stages->slots[i];
        if (stage->request == NULL)
            continue;
        if (stage->runs)
            return NULL;
        if (next == NULL || stage->deadline_ns < next->deadline_ns ||
            (stage->deadline_ns == next->deadline_ns && stage->number < next->number))
            next = stage;
    }
    return next;
}

static void next_begin(spec_connector *conn)
{
    struct sc_plugin_host_prefetch *stage;
    while ((stage = stage_next(&conn->stages)) != NULL) {
        const struct sc_store_match_fetch what = {.ranges = stage->request->ranges,
                                                  .range_count = stage->request->range_count,
                                                  .wants = stage->wants,
                                                  .keeper = stage->number,
                                                  .done = on_done,
                                                  .user = stage};
        spec_status status = sc_store_match_fetch_begin(conn->store, &what, NULL);
        stage->runs = status == SPEC_OK;
        if (status == SPEC_OK)
            break;
        stage_over(conn, stage, status);
    }
    timer_set(conn);
}

/* ---- What ends one --------------------------------------------------------------------------- */

/* The store has ended. A piece that failed ends as for a load, without a lock. */
static void on_done(const struct sc_store_match_fetched *staged, void *user)
{
    struct sc_plugin_host_prefetch *stage = user;
    spec_connector *conn = stage->conn;
    bool fails = staged->status == SPEC_E_CORRUPT || staged->status == SPEC_E_IO;
    spec_status status = staged->status;
    sc_count(&conn->stats.host_prefetched_bytes, staged->bytes);
    pthread_mutex_lock(&conn->stages.lock);
    if (fails && !sc_plugin_epoch_is_current(conn, stage->request))
        status = SPEC_E_DROPPED; /* a reset made it void: no failure */
    fails = fails && !stage->is_over && status != SPEC_E_DROPPED;
    pthread_mutex_unlock(&conn->stages.lock);
    if (fails)
        sc_plugin_range_fail(conn, stage->request, staged->failed_range, staged->status,
                             SC_STORE_TIER);
    pthread_mutex_lock(&conn->stages.lock);
    stage->runs = false; /* first: there is nothing to cancel */
    uint64_t number = stage->number;
    if (stage->is_over)
        slot_free(conn, stage);
    else
        stage_over(conn, stage, status);
    bool is_kept = stage->status != SPEC_E_DROPPED;
    sc_store_match_fetch_let_go(conn->store, number,
                                is_kept ? sc_exec_now_ns(conn->exec) + KEPT_NS : 0);
    next_begin(conn);
    moved(conn);
    pthread_mutex_unlock(&conn->stages.lock);
}

static void on_timer(struct sc_task *task)
{
    spec_connector *conn = SC_TASK_OWNER(task, spec_connector, stages.timer);
    struct sc_plugin_host_prefetches *stages = &conn->stages;
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    pthread_mutex_lock(&stages->lock);
    stages->timer_ns = 0;
    for (uint32_t i = 0; i < SC_PLUGIN_HOST_PREFETCHES; i++)
        if (stages->slots[i].request != NULL && stages->slots[i].deadline_ns <= now_ns)
            stage_over(conn, &stages->slots[i], SPEC_E_TIMEOUT);
    next_begin(conn);
    moved(conn);
    pthread_mutex_unlock(&stages->lock);
}

void sc_plugin_host_prefetch_leave(spec_connector *conn, const struct sc_plugin_request *request)
{
    uint32_t slot = atomic_load(&request->staged);
    if (slot == 0)
        return;
    pthread_mutex_lock(&conn->stages.lock);
    struct sc_plugin_host_prefetch *stage = &conn->stages.slots[slot - 1];
    if (stage->request == request)
        stage_over(conn, stage, SPEC_E_DROPPED);
    next_begin(conn);
    pthread_mutex_unlock(&conn->stages.lock);
}

/* Ends those of other epochs; UINT64_MAX: all. */
static void stages_end_others(spec_connector *conn, uint64_t epoch)
{
    pthread_mutex_lock(&conn->stages.lock);
    for (uint32_t i = 0; i < SC_PLUGIN_HOST_PREFETCHES; i++)
        if (conn->stages.slots[i].request != NULL && conn->stages.slots[i].request->epoch != epoch)
            stage_over(conn, &conn->stages.slots[i], SPEC_E_DROPPED);
    next_begin(conn);
    pthread_mutex_unlock(&conn->stages.lock);
}

void sc_plugin_host_prefetches_reset(spec_connector *conn)
{
    if (atomic_load(&conn->stages.open) > 0) /* one that begins now checks its request again */
        stages_end_others(conn, atomic_load(&conn->epoch));
}

/* Takes the lock even if none is open: its holder may not have seen the bypass. */
void sc_plugin_host_prefetches_drop(spec_connector *conn)
{
    stages_end_others(conn, UINT64_MAX);
}

/* ---- Whether a match is being staged
 * ---------------------------------------------------------- */

static bool ranges_have(const struct sc_plugin_request *request, uint64_t piece)
{
    for (uint64_t i = 0; i < request->range_count; i++)
        if (request->ranges[i].piece == piece)
            return true;
    return false;
}

static uint64_t segment_last(const struct sc_plugin_request *request)
{
    uint64_t last = 0;
    while (request->segments[last].first + request->segments[last].count < request->matched_tokens)
        last++;
    return last;
}

static bool match_has(const struct sc_plugin_request *request, uint64_t last, uint64_t piece)
{
    for (uint64_t i = 0; i <= last; i++)
        if (request->segments[i].value.piece == piece)
            return true;
    return false;
}

/* A piece belongs to one prefix, so one of the two matches continues the other. */
static bool covers(const struct sc_plugin_request *staged, const struct sc_plugin_request *request,
                   uint64_t last)
{
    uint64_t end = request->segments[last].value.piece;
    uint64_t staged_end = staged->ranges[staged->range_count - 1].piece;
    return (request->from_token >= staged->from_token && ranges_have(staged, end)) ||
           match_has(request, last, staged_end);
}

/* Returns true if host memory lacks something that is staged of the match up to segment `last`. */
static bool is_missing(const spec_connector *conn, const struct sc_plugin_request *request,
                       uint64_t last, const struct sc_store_match_fetch_wants *wants)
{
    struct sc_store_match_fetch_wants own =
        *wants;                        /* a match with another end has other windows: */
    own.end = request->matched_tokens; /* rows not staged for it are not awaited */
    for (uint64_t i = 0; i <= last; i++) {
        uint64_t piece = request->segments[i].value.piece;
        if (request->segments[i].first + request->segments[i].count > request->from_token &&
            !sc_store_match_fetch_has(conn->store, wants, piece) &&
            !sc_store_match_fetch_has(conn->store, &own, piece))
            return true;
    }
    return false;
}

bool sc_plugin_host_prefetch_covers(spec_connector *conn, const struct sc_plugin_request *request)
{
    struct sc_plugin_host_prefetches *stages = &conn->stages;
    if (atomic_load(&stages->open) == 0 || request->matched_tokens <= request->from_token)
        return false;
    uint64_t now_ns = sc_exec_now_ns(conn->exec), last = segment_last(request);
    bool waits = false;
    for (uint32_t i = 0; i < SC_PLUGIN_HOST_PREFETCHES && !waits; i++) {
        const struct sc_plugin_host_prefetch *stage = &stages->slots[i];
        pthread_mutex_lock(&stages->lock);
        bool is_covered = stage->request != NULL && !stage->is_over &&
                          stage->deadline_ns > now_ns && stage->request->epoch == request->epoch &&
                          covers(stage->request, request, last);
        struct sc_store_match_fetch_wants wants = stage->wants;
        pthread_mutex_unlock(&stages->lock);
        waits = is_covered && is_missing(conn, request, last, &wants);
    }
    return waits;
}

/* ---- The call -------------------------------------------------------------------------------- */

/* Returns a free slot or NULL. Lock held. */
static struct sc_plugin_host_prefetch *slot_find(struct sc_plugin_host_prefetches *stages)
{
    for (uint32_t i = 0; i < SC_PLUGIN_HOST_PREFETCHES; i++)
        if (stages->slots[i].request == NULL)
            return &stages->slots[i];
    return NULL;
}

/* Adds a stage of a held request. Errors: BUSY; STALE (released or reset: checked after
 * request->staged is set, so that a later one ends the stage); DROPPED (bypassed: checked under the
 * lock, so that a bypass that begins now ends the stage). */
static spec_status stage_add(spec_connector *conn, spec_request handle,
                             struct sc_plugin_request *request, uint64_t deadline_ns,
                             spec_ticket ticket, struct spec_error *reterr)
{
    struct sc_plugin_host_prefetches *stages = &conn->stages;
    spec_status status = SPEC_OK;
    pthread_mutex_lock(&stages->lock);
    struct sc_plugin_host_prefetch *stage = slot_find(stages);
    if (stage == NULL || atomic_load(&request->staged) != 0) {
        status = stage != NULL
                     ? sc_fail(reterr, SPEC_E_BUSY, "stage: the request's match is being staged")
                     : sc_fail(reterr, SPEC_E_BUSY, "stage: %u matches are being staged",
                               SC_PLUGIN_HOST_PREFETCHES);
    } else if (sc_plugin_is_bypassed(conn)) {
        status = SPEC_E_DROPPED;
    } else {
        *stage =
            (struct sc_plugin_host_prefetch){.conn = conn,
                                             .request = request,
                                             .ticket = ticket,
                                             .number = ++stages->number,
                                             .deadline_ns = deadline_ns,
                                             .wants = sc_plugin_host_prefetch_wants(conn, request)};
        atomic_store(&request->staged, (uint32_t)(stage - stages->slots) + 1);
        atomic_fetch_add(&stages->open, 1);
        if (sc_plugin_request_find(conn, handle) == request) {
            next_begin(conn);
        } else {
            stage->request = NULL;
            atomic_store(&request->staged, 0);
            atomic_fetch_sub(&stages->open, 1);
            status = sc_plugin_stale(handle, reterr);
        }
    }
    pthread_mutex_unlock(&stages->lock);
    return status;
}

static spec_status request_host_prefetch(spec_connector *conn,
                                         const struct spec_prefetch_to_host_params *params,
                                         struct sc_plugin_request *request, spec_ticket ticket,
                                         struct spec_error *reterr)
{
    uint64_t now_ns = sc_exec_now_ns(conn->exec), in_ns = params->deadline_ns;
    if (request->range_count == 0) {
        if (ticket != 0)
            sc_plugin_ticket_resolve(conn, ticket, SPEC_OK); /* nothing to read */
        sc_plugin_request_unhold(request);
        return SPEC_OK;
    }
    uint64_t deadline_ns =
        in_ns == 0 || in_ns >= SC_EXEC_FOREVER - now_ns ? SC_EXEC_FOREVER : now_ns + in_ns;
    spec_status status = stage_add(conn, params->request, request, deadline_ns, ticket, reterr);
    if (status != SPEC_OK)
        sc_plugin_request_unhold(request);
    if (status == SPEC_E_DROPPED && ticket != 0)
        sc_plugin_ticket_resolve(conn, ticket, status);
    return status == SPEC_E_DROPPED ? SPEC_OK : status;
}

spec_status sc_plugin_host_prefetch(spec_connector *conn,
                                    const struct spec_prefetch_to_host_params *host_params,
                                    spec_ticket *ret_ticket, struct spec_error *reterr)
{
    struct spec_prefetch_to_host_params params;
    spec_status status = sc_plugin_args_read(&params, &sc_plugin_form_prefetch_to_host, host_params,
                                             "stage: params", reterr);
    if (status != SPEC_OK)
        return status;
    if (params.reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "stage: reserved must be 0");
    if (!sc_store_can_fetch_match(conn->store))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "stage: there is no host memory to stage into (host_bytes is 0, less than a "
                       "page, or was not to be had)");
    struct sc_plugin_request *request = sc_plugin_request_hold(conn, params.request);
    if (request == NULL)
        return sc_plugin_stale(params.request, reterr);
    spec_ticket ticket = ret_ticket != NULL ? sc_plugin_ticket_take(conn, 1) : 0;
    if (ret_ticket != NULL && ticket == 0) {
        sc_plugin_request_unhold(request);
        return sc_fail(reterr, SPEC_E_BUSY, "stage: all %u tickets are open", SC_LIMIT_TICKETS);
    }
    status = request_host_prefetch(conn, &params, request, ticket, reterr);
    if (status == SPEC_OK && ret_ticket != NULL)
        *ret_ticket = ticket;
    if (status != SPEC_OK && ticket != 0) {
        sc_plugin_ticket_resolve(conn, ticket, SPEC_OK);
        sc_plugin_ticket_forget(conn, ticket);
    }
    return status;
}

/* ---- Open and close -------------------------------------------------------------------------- */

void sc_plugin_host_prefetches_open(spec_connector *conn)
{
    pthread_mutex_init(&conn->stages.lock, NULL);
    conn->stages.timer.step = on_timer;
}

/* Ends all stages. Returns true if none runs or will run. */
static bool stages_end(spec_connector *conn)
{
    struct sc_plugin_host_prefetches *stages = &conn->stages;
    bool is_idle = true;
    pthread_mutex_lock(&stages->lock);
    for (uint32_t i = 0; i < SC_PLUGIN_HOST_PREFETCHES; i++) {
        if (stages->slots[i].request != NULL)
            stage_over(conn, &stages->slots[i], SPEC_E_DROPPED);
        is_idle = is_idle && stages->slots[i].request == NULL;
    }
    timer_set(conn);
    is_idle = is_idle && stages->timer_ns == 0;
    pthread_mutex_unlock(&stages->lock);
    return is_idle;
}

void sc_plugin_host_prefetches_close(spec_connector *conn)
{
    for (;;) {
        uint32_t seen = atomic_load(&conn->stages.word);
        if (stages_end(conn))
            return;
        (void)sc_exec_wait(conn->exec, &conn->stages.word, seen, SC_EXEC_FOREVER);
    }
}
