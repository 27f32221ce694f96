/* inline_quant_task: quantises rows that are being stored (inline_quant_state.h). Contract:
 * store/write/inline_quant.h. */
#include "store/cache/written_frames.h"
#include "store/section/build_sections.h"
#include "store/section/section.h"
#include "store/write/extent.h"
#include "store/write/inline_quant_state.h"

#define STEPS_BYTES (1ull << 20) /* of rows that a step quantises */

/* ---- Jobs ------------------------------------------------------------------------------------ */

static void job_lose(struct sc_store_inline_quant_job *job)
{
    pthread_mutex_lock(&job->live->lock);
    job->is_lost = true;
    pthread_mutex_unlock(&job->live->lock);
}

static void on_written(struct sc_store_extent *derived, spec_status status, void *user)
{
    struct sc_store_inline_quant_job *job = user;
    (void)derived;
    pthread_mutex_lock(&job->live->lock);
    job->is_written = true;
    job->written = status;
    sc_store_inline_quant_wake(job->live);
    pthread_mutex_unlock(&job->live->lock);
}

/* Ends the extent's inline quantisation; if it failed, build_sections.c builds the rows later. */
static void hand_over(struct sc_store *store, uint64_t extent_id, bool has_quant)
{
    pthread_mutex_lock(&store->log.lock);
    atomic_store(&sc_store_table_extent(&store->table, extent_id)->is_quantising, false);
    pthread_mutex_unlock(&store->log.lock);
    if (!has_quant)
        sc_store_build_missed(store, extent_id);
}

/* Frees the slot of a job that has ended and whose extent was committed or discarded. */
static void job_ended(struct sc_store_inline_quant_job *job, bool has_quant)
{
    if (job->extent_id != 0)
        hand_over(job->live->store, job->extent_id, has_quant);
    pthread_mutex_lock(&job->live->lock);
    job->is_used = false;
    pthread_mutex_unlock(&job->live->lock);
}

/* Frees what the cache has of the extent: no layer will be made. */
static void job_done(struct sc_store_inline_quant_job *job)
{
    struct sc_store_inline_quant *live = job->live;
    if (live->current == job)
        sc_store_builder_leave(job->builder);
    live->current = live->current == job ? NULL : live->current;
    sc_store_cache_forget(live->store->cache, job->entry.copy, 0, UINT64_MAX);
}

/* Ends a job without a derived section. */
static void job_over(struct sc_store_inline_quant_job *job, bool has_quant)
{
    struct sc_store_inline_quant *live = job->live;
    job->state = SC_STORE_INLINE_QUANT_OVER;
    sc_store_inline_quant_due_give(job);
    pthread_mutex_lock(&live->lock);
    job->is_lost = true;
    bool is_left = job->is_left;
    pthread_mutex_unlock(&live->lock);
    job_done(job);
    job->builder->layer = 0; /* for the next job */
    if (is_left)             /* else sc_store_inline_quant_end wakes the task */
        job_ended(job, has_quant);
}

/* All writes of the section have ended. Unless the job is lost, the extent's id is known, too. */
static void job_written(struct sc_store_inline_quant_job *job)
{
    pthread_mutex_lock(&job->live->lock);
    bool good = !job->is_lost && job->written == SPEC_OK && job->extent_id != 0;
    uint64_t extent_id = job->extent_id;
    pthread_mutex_unlock(&job->live->lock);
    if (good)
        good = sc_store_section_commit(job->builder->derived, extent_id, NULL) == SPEC_OK;
    else
        sc_store_extent_discard(job->builder->derived);
    job->builder->derived = NULL;
    job_over(job, good);
}

static void job_give_up(struct sc_store_inline_quant_job *job)
{
    if (job->builder->derived == NULL) {
        job_over(job, false);
        return;
    }
    job_done(job);
    job->state = SC_STORE_INLINE_QUANT_WRITING;
    sc_store_extent_abort(job->builder->derived);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

/* Begins the section. Returns false if a layer can never get its frames, or no object is free. */
static bool derived_begin(struct sc_store_inline_quant_job *job)
{
    struct sc_store_builder *builder = job->builder;
    const struct sc_store *store = job->live->store;
    uint64_t row = 0;
    sc_store_builder_set(builder, &job->entry, SC_STORE_BUILDER_QUANT);
    for (uint64_t i = 0; row < job->entry.row_count; row += job->pieces[i++].row_count)
        sc_store_builder_span(builder, row, row + job->pieces[i].row_count, &job->pieces[i]);
    bool good = sc_store_builder_frames(builder) <= sc_store_builder_frames_most(store) &&
                sc_store_builder_begin(builder, on_written, job, NULL) == SPEC_OK;
    sc_store_inline_quant_due_give(job);
    builder->derived = good ? builder->derived : NULL;
    return good;
}

/* Makes the job's next layer current. Returns false without memory or a derived section. */
static bool job_start(struct sc_store_inline_quant_job *job)
{
    struct sc_store_inline_quant *live = job->live;
    bool good = live->desk->back.memory != NULL ||
                sc_store_desk_take(live->desk, live->store->params.config->chunk_tokens);
    good = good && (job->builder->derived != NULL || derived_begin(job));
    live->current = good ? job : NULL;
    return good;
}

/* Quantises some rows, or puts the layer. The cache forgets rows that were quantised. */
static enum sc_store_builder_next layer_make(struct sc_store_inline_quant_job *job)
{
    struct sc_store_inline_quant *live = job->live;
    struct sc_store_cache *cache = live->store->cache;
    uint64_t begin = sc_store_builder_at(job->builder), read_bytes;
    enum sc_store_builder_next next;
    do {
        next = sc_store_builder_step(job->builder, &read_bytes);
    } while (next == SC_STORE_BUILDER_STEP &&
             (job->builder->rows > 0 || sc_store_builder_at(job->builder) - begin < STEPS_BYTES));
    if (next == SC_STORE_BUILDER_READ)
        return next; /* the task may run already */
    if (next == SC_STORE_BUILDER_OVER) {
        bool is_whole = job->builder->layer == live->store->shape.layer_count;
        job->state = SC_STORE_INLINE_QUANT_WRITING;
        if (!is_whole)
            job_lose(job);
        job_done(job);
    } else if (next == SC_STORE_BUILDER_LAYER) {
        live->current = NULL;
        sc_store_cache_forget(cache, job->entry.copy, 0, job->builder->layer * job->entry.stride);
    } else { /* tags precede rows, and are needed to the layer's end */
        sc_store_cache_forget(cache, job->entry.copy, sc_store_builder_rows_at(job->builder),
                              sc_store_builder_at(job->builder));
    }
    return next;
}

/* ---- The task -------------------------------------------------------------------------------- */

/* Returns true if the job can be stepped. Lock held. */
static bool has_work(const struct sc_store_inline_quant_job *job)
{
    if (!job->is_used)
        return false;
    if (job->state == SC_STORE_INLINE_QUANT_OVER)
        return job->is_left;
    if (job->state == SC_STORE_INLINE_QUANT_WRITING)
        return job->is_written && (job->is_left || job->is_lost);
    return job->is_lost || job->builder->layer < job->packed;
}

/* Returns the job within a layer, else the oldest with work, or NULL. Lock held. */
static struct sc_store_inline_quant_job *job_next(struct sc_store_inline_quant *live)
{
    struct sc_store_inline_quant_job *found = live->current;
    for (uint32_t i = 0; i < SC_STORE_INLINE_QUANT_MAX; i++) {
        struct sc_store_inline_quant_job *job = &live->jobs[i];
        job->is_lost = job->is_lost || (job->is_used && live->is_closing);
        if (live->current == NULL && has_work(job) && (found == NULL || job->order < found->order))
            found = job;
    }
    return found;
}

/* Returns what the task waits for: ROOM, READ; else STEP. */
static enum sc_store_builder_next job_step(struct sc_store_inline_quant_job *job, bool is_lost)
{
    if (job->state == SC_STORE_INLINE_QUANT_OVER)
        job_ended(job, false);
    else if (job->state == SC_STORE_INLINE_QUANT_WRITING)
        job_written(job);
    else if (is_lost)
        job_give_up(job);
    else if (job->live->current == NULL && !job_start(job))
        job_lose(job);
    else
        return layer_make(job);
    return SC_STORE_BUILDER_STEP;
}

static bool is_idle(const struct sc_store_inline_quant *live)
{
    for (uint32_t i = 0; i < SC_STORE_INLINE_QUANT_MAX; i++)
        if (live->jobs[i].is_used)
            return false;
    return true;
}

static void inline_quant_step(struct sc_task *task)
{
    struct sc_store_inline_quant *live =
        (struct sc_store_inline_quant *)((char *)task -
                                         offsetof(struct sc_store_inline_quant, task));
    struct sc_exec *exec = live->store->params.exec;
    pthread_mutex_lock(&live->lock);
    struct sc_store_inline_quant_job *job = job_next(live);
    bool is_lost = job != NULL && job->is_lost;
    if (job == NULL && is_idle(live)) /* before a job begins */
        sc_store_desk_leave(live->desk);
    live->is_posted = job != NULL;
    pthread_mutex_unlock(&live->lock);
    if (job == NULL) {
        sc_store_busy_end(live->store);
        return;
    }
    enum sc_store_builder_next next = job_step(job, is_lost);
    if (next == SC_STORE_BUILDER_READ)
        return;                      /* the read posts the task, which may run already */
    pthread_mutex_lock(&live->lock); /* stop cancels posts under it */
    if (next == SC_STORE_BUILDER_ROOM && !live->is_closing)
        sc_exec_post_at(exec, &live->task, sc_store_inline_quant_io_class(live->store),
                        sc_exec_now_ns(exec) + SC_STORE_BUILDER_ROOM_NS);
    else
        sc_exec_post(exec, &live->task, sc_store_inline_quant_io_class(live->store));
    pthread_mutex_unlock(&live->lock);
}

/* ---- Open and close -------------------------------------------------------------------------- */

/* Allocates the jobs' arrays, one allocation per kind; job 0 has the first of each. */
static bool arrays_take(struct sc_store_inline_quant *live)
{
    const struct sc_store *store = live->store;
    struct sc_alloc *alloc = store->params.alloc;
    const uint64_t jobs = SC_STORE_INLINE_QUANT_MAX;
    uint64_t pieces = store->limits.pieces_max, layers = store->shape.layer_count;
    struct sc_store_inline_quant_job *first = &live->jobs[0];
    live->desk = sc_alloc_zero(alloc, sizeof(*live->desk));
    first->pieces = sc_alloc_array(alloc, jobs * pieces, sizeof(*first->pieces));
    first->parts = sc_alloc_array(alloc, jobs * layers, sizeof(*first->parts));
    first->builder = sc_alloc_array(alloc, jobs, sizeof(*first->builder));
    if (live->desk == NULL || first->pieces == NULL || first->parts == NULL ||
        first->builder == NULL)
        return false;
    first->builder->plans = sc_alloc_array(alloc, jobs * pieces, sizeof(*first->builder->plans));
    first->builder->spans = sc_alloc_array(alloc, jobs * pieces, sizeof(*first->builder->spans));
    if (first->builder->plans == NULL || first->builder->spans == NULL)
        return false;
    for (uint64_t i = 0; i < jobs; i++) {
        struct sc_store_inline_quant_job *job = &live->jobs[i];
        job->live = live;
        job->pieces = first->pieces + i * pieces;
        job->parts = first->parts + i * layers;
        job->builder = first->builder + i;
        job->builder->desk = live->desk;
        job->builder->plans = first->builder->plans + i * pieces;
        job->builder->spans = first->builder->spans + i * pieces;
    }
    return true;
}

spec_status sc_store_inline_quant_open(struct sc_store *store, struct spec_error *reterr)
{
    if (store->params.codes.shape.bits_k == 0 || !store->params.codes.with_rows)
        return SPEC_OK;
    store->live = sc_alloc_zero(store->params.alloc, sizeof(*store->live));
    if (store->live == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what codes rows");
    struct sc_store_inline_quant *live = store->live;
    live->store = store;
    live->task.step = inline_quant_step;
    pthread_mutex_init(&live->lock, NULL);
    if (!arrays_take(live))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what codes rows");
    live->desk->store = live->desk->back.store = store;
    live->desk->back.task = &live->task;
    live->desk->back.pins = true;
    return sc_store_cache_open(store->params.alloc, store->frames,
                               sc_staging_frame_bytes(store->frames), &store->cache, reterr);
}

bool sc_store_inline_quant_runs(struct sc_store *store)
{
    struct sc_store_inline_quant *live = store->live;
    bool runs = false;
    if (live == NULL)
        return false;
    pthread_mutex_lock(&live->lock);
    for (uint32_t i = 0; i < SC_STORE_INLINE_QUANT_MAX; i++)
        runs = runs || (live->jobs[i].is_used && live->jobs[i].extent_id != 0);
    pthread_mutex_unlock(&live->lock);
    return runs;
}

void sc_store_inline_quant_stop(struct sc_store *store)
{
    struct sc_store_inline_quant *live = store->live;
    if (live == NULL)
        return;
    pthread_mutex_lock(&live->lock);
    live->is_closing = true;
    if (sc_exec_cancel(store->params.exec, &live->task)) /* ends a wait for frames */
        sc_exec_post(store->params.exec, &live->task, sc_store_inline_quant_io_class(store));
    sc_store_inline_quant_wake(live);
    pthread_mutex_unlock(&live->lock);
}

void sc_store_inline_quant_close(struct sc_store *store)
{
    struct sc_store_inline_quant *live = store->live;
    struct sc_alloc *alloc = store->params.alloc;
    SC_ASSERT(store->params.poison, store->disk.quant_due == 0); /* else rows are refused */
    sc_store_cache_close(store->cache);
    store->cache = NULL;
    if (live == NULL)
        return;
    if (live->desk != NULL && live->desk->store != NULL)
        sc_store_desk_leave(live->desk);
    if (live->jobs[0].builder != NULL) {
        sc_alloc_free(alloc, live->jobs[0].builder->spans);
        sc_alloc_free(alloc, live->jobs[0].builder->plans);
    }
    sc_alloc_free(alloc, live->jobs[0].builder);
    sc_alloc_free(alloc, live->jobs[0].parts);
    sc_alloc_free(alloc, live->jobs[0].pieces);
    sc_alloc_free(alloc, live->desk);
    pthread_mutex_destroy(&live->lock);
    sc_alloc_free(alloc, live);
    store->live = NULL;
}
