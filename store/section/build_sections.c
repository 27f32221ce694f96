/* build_sections: builds derived sections (section.h) that stored extents lack.
 *
 *   LOOK -> (extent found) -> MAKE -> ... -> WRITE -> LOOK -> ... -> end
 *             window after window,     |  ^ its writes have ended,
 *             layer after layer        +--+ also after an abort
 *
 * A run walks the table of extents once for probe rows, then for quantised rows; or only for
 * quantised rows of newer extents. Permutations are built on request alone
 * (sc_store_build_permutation). Both copies of the rows exist until no load reads the older one
 * (permute_queue.h); each run checks that.
 *
 * A run is slow on purpose: one window in flight, in the lowest I/O class, then a pause to keep to
 * bytes_per_s. While it rests, it begins no extent and settles no permutation.
 *
 * Invariants: an extent with a row that is damaged or unreadable is skipped (a load will find it).
 * A step never waits.
 * Threads: start, stop: any; steps: the executor's, one at a time. */
#include "store/section/build_sections.h"

#include "store/load.h"
#include "store/section/permute_queue.h"
#include "store/section/section.h"
#include "store/space/quarantine.h"
#include "store/write/extent.h"

#include <string.h>

#define LOOKS       1024u         /* extents that a step looks at */
#define AGAIN_NS    100000000ull  /* without frames or objects, and while resting */
#define TRIES       16u           /* per extent */
#define WAIT_NS_MIN 1000000000ull /* for the write budget */

enum state { LOOK, MAKE, WRITE };

struct sc_store_build {
    struct sc_store *store;
    struct sc_task task;

    /* Guarded by the space lock. */
    bool runs, closing;
    bool again[SC_STORE_BUILDER_KINDS]; /* walks requested meanwhile */
    uint64_t rate;                      /* bytes per second; 0: no limit */
    uint64_t order_rate;                /* rate of permutations */
    bool order_wanted;                  /* builds permutations; else only settles them */
    bool rests;                         /* begins nothing */

    /* Used by the run, one step at a time. */
    enum state state;
    enum sc_store_builder_kind kind;
    uint64_t next, end;  /* ids of extents; end 0: not known yet */
    uint64_t missed;     /* oldest unquantised extent that a run may have passed; 0: none */
    uint64_t quant_from; /* older ones are quantised, or were skipped since the last start */
    uint64_t stopped;    /* extent at which space or memory was lacking, or 0 */
    uint64_t said;       /* extent for which that was logged */
    uint64_t extent_id;
    uint32_t tries;
    struct sc_store_desk desk;
    struct sc_store_builder builder;
    struct sc_store_range *ranges; /* [pieces_max] of a permutation */
    struct sc_store_permute_queue permute_queue;
    spec_status written;
};

/* ---- Which extents -------------------------------------------------------------------------- */

/* Returns true if the extent lacks a section of build->kind. Log lock held. */
static bool extent_lacks(const struct sc_store_build *build,
                         const struct sc_store_extent_entry *extent)
{
    const struct sc_store *store = build->store;
    if (extent == NULL || extent->live_count == 0 ||
        extent->space != atomic_load(&store->log.space_id))
        return false;
    if (build->kind == SC_STORE_BUILDER_QUANT)
        return store->params.codes.shape.bits_k != 0 && !atomic_load(&extent->is_quantising) &&
               atomic_load(&extent->held_quant) == NULL;
    if (build->kind == SC_STORE_BUILDER_PERMUTATION)
        return sc_store_permute_queue_lack(store, extent);
    return atomic_load(&extent->held_section) == NULL &&
           sc_store_probes_of(extent).row_bytes < store->params.probe_row_bytes;
}

/* Returns the next extent from build->next on; 0: none among LOOKS, or none at all. */
static uint64_t extent_next(struct sc_store_build *build)
{
    struct sc_store *store = build->store;
    uint64_t found = 0;
    pthread_mutex_lock(&store->log.lock);
    build->end = build->end > 0 ? build->end : store->table.extent_next;
    for (uint64_t i = 0; i < LOOKS && found == 0 && build->next < build->end; i++) {
        uint64_t id = sc_store_table_extent_from(&store->table, build->next);
        if (id < build->end && extent_lacks(build, sc_store_table_extent(&store->table, id)))
            found = id;
        build->next = id < build->end ? id + 1 : build->end;
    }
    pthread_mutex_unlock(&store->log.lock);
    return found;
}

/* Sets the spans of the extent's rows; returns false if it has too many pieces, or none. */
static bool spans_make(struct sc_store_build *build)
{
    const struct sc_store *store = build->store;
    struct sc_store_builder *builder = &build->builder;
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, build->extent_id);
    uint64_t row = 0;
    sc_store_builder_set(builder, extent, build->kind);
    for (uint64_t id = extent->piece_first; id <= extent->piece_last; id++) {
        const struct sc_store_piece_entry *piece = sc_store_table_live(&store->table, id);
        if (piece == NULL || piece->extent != build->extent_id)
            continue;
        if (builder->span_count + 3 > store->limits.pieces_max)
            return false;
        uint64_t first = piece->extent_row + piece->skip;
        sc_store_builder_span(builder, row, first, NULL);
        row = (uint64_t)piece->extent_row + piece->row_count;
        sc_store_builder_span(builder, first, row, piece);
    }
    sc_store_builder_span(builder, row, extent->row_count, NULL);
    return builder->piece_count > 0;
}

/* ---- Which rows ----------------------------------------------------------------------------- */

/* Writes the extent's live rows as ranges; returns how many, or 0 if too many. */
static uint64_t live_ranges(struct sc_store_build *build)
{
    const struct sc_store_extent_entry *extent = build->builder.extent;
    uint64_t count = 0;
    for (uint64_t id = extent->piece_first; id <= extent->piece_last; id++) {
        const struct sc_store_piece_entry *piece = sc_store_table_live(&build->store->table, id);
        if (piece == NULL || piece->extent != build->extent_id || piece->row_count == piece->skip)
            continue;
        if (count == build->store->limits.pieces_max)
            return 0;
        build->ranges[count++] =
            (struct sc_store_range){.piece = id,
                                    .row_first = piece->skip,
                                    .row_count = (uint32_t)piece->row_count - piece->skip};
    }
    return count;
}

static spec_status permutation_choose(struct sc_store_build *build, struct spec_error *reterr)
{
    struct sc_store_extent_entry *extent =
        sc_store_table_extent(&build->store->table, build->extent_id);
    return sc_store_permute_queue_next(&build->permute_queue, extent, build->ranges,
                                       live_ranges(build), &build->builder.slots, reterr);
}

/* ---- Memory --------------------------------------------------------------------------------- */

static void run_free(struct sc_store_build *build)
{
    struct sc_alloc *alloc = build->store->params.alloc;
    sc_store_desk_leave(&build->desk);
    sc_alloc_free(alloc, build->builder.spans);
    sc_alloc_free(alloc, build->builder.plans);
    sc_alloc_free(alloc, build->ranges);
    build->builder.spans = NULL;
    build->builder.plans = NULL;
    build->ranges = NULL;
    sc_store_permute_queue_leave(&build->permute_queue);
}

static bool run_alloc(struct sc_store_build *build)
{
    const struct sc_store *store = build->store;
    struct sc_alloc *alloc = store->params.alloc;
    uint64_t pieces = store->limits.pieces_max, row_bytes = store->shape.row_bytes;
    uint64_t rows = store->limits.op_bytes / row_bytes > 0 ? store->limits.op_bytes / row_bytes : 1;
    if (rows < store->params.config->chunk_tokens) /* a slab is quantised at once */
        rows = store->params.config->chunk_tokens;
    run_free(build);
    build->builder.plans = sc_alloc_array(alloc, pieces, sizeof(*build->builder.plans));
    build->builder.spans = sc_alloc_array(alloc, pieces, sizeof(*build->builder.spans));
    build->ranges = sc_alloc_array(alloc, pieces, sizeof(*build->ranges));
    return build->ranges != NULL && sc_store_desk_take(&build->desk, rows) &&
           build->builder.plans != NULL && build->builder.spans != NULL;
}

/* ---- The run -------------------------------------------------------------------------------- */

static void on_written(struct sc_store_extent *derived, spec_status status, void *user)
{
    struct sc_store_build *build = user;
    SC_ASSERT(build->store->params.poison, derived == build->builder.derived);
    build->written = status;
    build->state = WRITE;
    sc_exec_post(build->store->params.exec, &build->task, SC_IO_CLASS_BACKGROUND);
}

static bool is_closing(struct sc_store_build *build)
{
    pthread_mutex_lock(&build->store->disk.lock);
    bool closing = build->closing;
    pthread_mutex_unlock(&build->store->disk.lock);
    return closing;
}

static bool is_resting(struct sc_store_build *build)
{
    pthread_mutex_lock(&build->store->disk.lock);
    bool rests = build->rests;
    pthread_mutex_unlock(&build->store->disk.lock);
    return rests;
}

static void post_after(struct sc_store_build *build, uint64_t wait_ns)
{
    struct sc_exec *exec = build->store->params.exec;
    pthread_mutex_lock(&build->store->disk.lock); /* stop cancels posts under it */
    if (wait_ns == 0 || build->closing)
        sc_exec_post(exec, &build->task, SC_IO_CLASS_BACKGROUND);
    else
        sc_exec_post_at(exec, &build->task, SC_IO_CLASS_BACKGROUND, sc_exec_now_ns(exec) + wait_ns);
    pthread_mutex_unlock(&build->store->disk.lock);
}

/* Begins a walk through the table. Space lock held. */
static void run_begin(struct sc_store_build *build, enum sc_store_builder_kind kind)
{
    build->kind = kind;
    build->next = 1;
    build->end = build->stopped = 0;
    build->again[kind] = false;
    if (kind == SC_STORE_BUILDER_QUANT) {
        build->next = build->quant_from;
        if (build->missed != 0 && build->missed < build->next)
            build->next = build->missed;
        build->missed = 0;
    } else if (kind == SC_STORE_BUILDER_PERMUTATION) {
        build->end = build->order_wanted ? 0 : 1; /* only settles */
        build->order_wanted = false;
    } else {
        build->quant_from = 1; /* skipped ones are tried again */
    }
}

/* Returns the kind of the next walk, or KINDS. Space lock held. */
static enum sc_store_builder_kind kind_next(const struct sc_store_build *build)
{
    enum sc_store_builder_kind next = SC_STORE_BUILDER_PROBES;
    if (build->closing)
        return SC_STORE_BUILDER_KINDS;
    if (build->kind == SC_STORE_BUILDER_PROBES && build->store->params.codes.shape.bits_k != 0)
        return SC_STORE_BUILDER_QUANT;
    while (next < SC_STORE_BUILDER_KINDS && !build->again[next])
        next = (enum sc_store_builder_kind)(next + 1);
    return next;
}

/* Ends the walk. `build` may not be used afterwards. */
static void run_end(struct sc_store_build *build)
{
    struct sc_store *store = build->store;
    run_free(build);
    pthread_mutex_lock(&store->disk.lock);
    if (build->kind == SC_STORE_BUILDER_QUANT && build->end > 0)
        build->quant_from = build->stopped > 0 ? build->stopped : build->end;
    enum sc_store_builder_kind next = kind_next(build);
    build->runs = next < SC_STORE_BUILDER_KINDS;
    bool again = build->runs;
    if (again)
        run_begin(build, next);
    if (again)
        sc_exec_post(store->params.exec, &build->task, SC_IO_CLASS_BACKGROUND);
    pthread_mutex_unlock(&store->disk.lock);
    if (!again)
        sc_store_busy_end(store);
}

static spec_status extent_begin(struct sc_store_build *build, struct spec_error *reterr)
{
    if (build->desk.back.memory == NULL && !run_alloc(build))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "buffers of a build");
    if (!spans_make(build))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "too many pieces, or none");
    spec_status status =
        build->kind == SC_STORE_BUILDER_PERMUTATION ? permutation_choose(build, reterr) : SPEC_OK;
    if (status != SPEC_OK)
        return status;
    return sc_store_builder_begin(&build->builder, on_written, build, reterr);
}

/* Makes windows until one is being read, a pause is due, or the layer waits for frames. */
static void make_on(struct sc_store_build *build)
{
    enum sc_store_builder_next next;
    uint64_t bytes;
    pthread_mutex_lock(&build->store->disk.lock);
    uint64_t rate = build->kind == SC_STORE_BUILDER_PERMUTATION ? build->order_rate : build->rate;
    pthread_mutex_unlock(&build->store->disk.lock);
    build->state = MAKE;
    do {
        next = sc_store_builder_step(&build->builder, &bytes);
        if (next == SC_STORE_BUILDER_OVER || next == SC_STORE_BUILDER_READ)
            return; /* the next step may run already */
    } while (next != SC_STORE_BUILDER_ROOM && (rate == 0 || bytes == 0));
    post_after(build, next == SC_STORE_BUILDER_ROOM
                          ? SC_STORE_BUILDER_ROOM_NS
                          : (uint64_t)((double)bytes * 1e9 / (double)rate));
}

static void extent_look(struct sc_store_build *build)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t wait_ns = sc_store_write_budget_wait_ns(build->store);
    if (build->extent_id == 0) /* frees pages, so no budget applies */
        sc_store_permute_queue_settle(&build->permute_queue);
    if (build->kind == SC_STORE_BUILDER_PERMUTATION) /* older copies, which hinder newer ones */
        (void)sc_store_quarantine_release(build->store, sc_exec_now_ns(build->store->params.exec));
    if (build->permute_queue.first != 0 && wait_ns > WAIT_NS_MIN)
        wait_ns = WAIT_NS_MIN;
    bool is_settled = build->extent_id == 0 && build->end > 0 && build->next >= build->end;
    if (wait_ns > 0 && !is_settled) { /* passes are written first */
        post_after(build, wait_ns < WAIT_NS_MIN ? WAIT_NS_MIN : wait_ns);
        return;
    }
    if (build->extent_id == 0)
        build->extent_id = extent_next(build);
    if (build->extent_id == 0 && build->next < build->end) {
        post_after(build, 0);
        return;
    }
    spec_status status = build->extent_id != 0 ? extent_begin(build, &error) : SPEC_OK;
    if (build->extent_id == 0 || (status != SPEC_OK && status != SPEC_E_UNSUPPORTED &&
                                  (status != SPEC_E_BUSY || build->tries >= TRIES))) {
        if (status != SPEC_OK && build->extent_id != build->said)
            SC_LOG(build->store->params.log, 1, "selector keys are not built: %s", error.text);
        build->said = build->stopped = build->extent_id;
        build->extent_id = build->tries = 0;
        run_end(build);
        return;
    }
    if (status == SPEC_OK) {
        make_on(build);
    } else {
        build->tries += status == SPEC_E_BUSY;
        build->extent_id = status == SPEC_E_BUSY ? build->extent_id : 0;
        post_after(build, status == SPEC_E_BUSY ? AGAIN_NS : 0);
    }
}

/* All writes of the section have ended. */
static void write_end(struct sc_store_build *build, bool closing)
{
    struct sc_store *store = build->store;
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t wait_ns = 0;
    if (build->written == SPEC_OK && !closing) {
        spec_status status =
            sc_store_section_commit(build->builder.derived, build->extent_id, &error);
        if (status == SPEC_OK && build->kind == SC_STORE_BUILDER_PERMUTATION) {
            sc_store_permute_queue_add(&build->permute_queue, build->extent_id);
            sc_store_count(&store->counts.permuted_pieces, build->builder.piece_count);
            if (build->builder.extent->older_permutation != NULL)
                sc_store_count(&store->counts.permuted_again, build->builder.piece_count);
        }
        sc_store_count(&store->counts.built_pieces,
                       status == SPEC_OK ? build->builder.piece_count : 0);
        sc_store_count(&store->counts.built_bytes,
                       status == SPEC_OK ? build->builder.layer_bytes * store->shape.layer_count
                                         : 0);
        build->extent_id = build->tries = 0;
    } else {
        sc_store_extent_discard(build->builder.derived);
        if (build->builder.is_bad)
            SC_LOG(store->params.log, 1,
                   "extent %" PRIu64 " layer %" PRIu32
                   " gets no selector keys: its rows cannot be read",
                   build->extent_id, build->builder.layer);
        if (build->builder.is_bad || ++build->tries > TRIES) /* skipped */
            build->extent_id = build->tries = 0;
        else
            wait_ns = AGAIN_NS;
    }
    build->builder.derived = NULL;
    build->state = LOOK;
    post_after(build, wait_ns);
}

static void build_step(struct sc_task *task)
{
    struct sc_store_build *build =
        (struct sc_store_build *)((char *)task - offsetof(struct sc_store_build, task));
    bool closing = is_closing(build);
    if (build->state == WRITE) {
        write_end(build, closing);
    } else if (closing && build->state == MAKE) {
        sc_store_builder_leave(&build->builder);
        sc_store_extent_abort(build->builder.derived);
    } else if (closing) {
        build->extent_id = 0;
        run_end(build);
    } else if (build->state == LOOK && is_resting(build)) {
        post_after(build, AGAIN_NS);
    } else if (build->state == LOOK) {
        extent_look(build);
    } else {
        make_on(build);
    }
}

/* ---- Start and stop ------------------------------------------------------------------------- */

spec_status sc_store_build_open(struct sc_store *store, struct spec_error *reterr)
{
    store->build = sc_alloc_zero(store->params.alloc, sizeof(*store->build));
    if (store->build == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "the builder of selector keys");
    store->build->store = store;
    store->build->task.step = build_step;
    store->build->desk.store = store->build->desk.back.store = store;
    store->build->desk.back.task = &store->build->task;
    store->build->builder.desk = &store->build->desk;
    store->build->permute_queue.store = store;
    store->build->permute_queue.alloc = store->params.alloc;
    store->build->next = store->build->quant_from = 1;
    store->quant_missed = sc_store_build_missed;
    return SPEC_OK;
}

/* Space lock held. */
static void run_start(struct sc_store_build *build, enum sc_store_builder_kind kind)
{
    struct sc_store *store = build->store;
    build->runs = true;
    run_begin(build, kind);
    atomic_fetch_add(&store->busy, 1);
    sc_exec_post(store->params.exec, &build->task, SC_IO_CLASS_BACKGROUND);
}

void sc_store_build_quant(struct sc_store *store)
{
    sc_store_build_missed(store, 0);
}

void sc_store_build_missed(struct sc_store *store, uint64_t extent_id)
{
    struct sc_store_build *build = store->build;
    if (build == NULL || store->params.codes.shape.bits_k == 0)
        return;
    pthread_mutex_lock(&store->disk.lock);
    if (extent_id != 0 && (build->missed == 0 || extent_id < build->missed))
        build->missed = extent_id;
    if (build->runs) {
        build->again[SC_STORE_BUILDER_QUANT] = true;
    } else if (!build->closing) {
        build->rate = 0;
        run_start(build, SC_STORE_BUILDER_QUANT);
    }
    pthread_mutex_unlock(&store->disk.lock);
}

/* wanted: for all extents; else settles those that wait. */
static void permutation_start(struct sc_store *store, bool wanted, uint64_t bytes_per_s)
{
    struct sc_store_build *build = store->build;
    if (build == NULL || store->params.permutation.span_rows == 0 || sc_store_is_member(store))
        return;
    pthread_mutex_lock(&store->disk.lock);
    build->order_wanted = build->order_wanted || wanted;
    build->order_rate = wanted ? bytes_per_s : build->order_rate;
    if (build->runs)
        build->again[SC_STORE_BUILDER_PERMUTATION] = true;
    else if (!build->closing)
        run_start(build, SC_STORE_BUILDER_PERMUTATION);
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_build_permutation(struct sc_store *store, uint64_t bytes_per_s)
{
    permutation_start(store, true, bytes_per_s);
}

void sc_store_build_settle(struct sc_store *store)
{
    if (atomic_load_explicit(&store->counts.permutations_waiting, memory_order_relaxed) > 0)
        permutation_start(store, false, 0);
}

void sc_store_build_start(struct sc_store *store, uint64_t bytes_per_s)
{
    struct sc_store_build *build = store->build;
    if (build == NULL ||
        (store->params.probe_row_bytes == 0 && store->params.codes.shape.bits_k == 0))
        return;
    pthread_mutex_lock(&store->disk.lock);
    build->rate = bytes_per_s;
    if (build->runs)
        build->again[SC_STORE_BUILDER_PROBES] = true;
    else if (!build->closing)
        run_start(build, SC_STORE_BUILDER_PROBES);
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_build_rest(struct sc_store *store, bool rests)
{
    struct sc_store_build *build = store->build;
    if (build == NULL)
        return;
    pthread_mutex_lock(&store->disk.lock);
    build->rests = rests;
    pthread_mutex_unlock(&store->disk.lock);
}

bool sc_store_build_runs(const struct sc_store *store)
{
    return store->build->runs;
}

void sc_store_build_stop(struct sc_store *store)
{
    struct sc_store_build *build = store->build;
    if (build == NULL)
        return;
    pthread_mutex_lock(&store->disk.lock);
    build->closing = true;
    if (sc_exec_cancel(store->params.exec, &build->task)) /* in a pause: ends it */
        sc_exec_post(store->params.exec, &build->task, SC_IO_CLASS_BACKGROUND);
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_build_close(struct sc_store *store)
{
    sc_alloc_free(store->params.alloc, store->build);
    store->build = NULL;
}
