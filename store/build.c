/* Sections that extents lack, built from their rows: an annex each (docs/decisions/0008).
 *
 *   extent   [tags][pad][r r r r r r r r]   layer l: read in windows, verified by their tags
 *                        |-- window --|
 *   keys     [k k k k k k . .]              the first bytes of each row's K, of one layer
 *   annex    [probe rows][probe tags]       put when the layer is whole
 *
 *   LOOK -> (extent found) -> READ -> ... -> WRITE -> LOOK -> ... -> over
 *             window after window,     |  ^ all its writes ended
 *             layer after layer        +--+ also after an abort
 *
 * One run goes through the table once for probe rows, then for codes, or for codes of what was
 * stored since alone. It is slow on purpose: one window in flight, in the lowest lane, and a pause
 * after it so that bytes_per_s holds.
 *
 * Holds: keys come from rows that agree with their tags; an extent with a row that does not, or
 * that cannot be read, is passed over (what is wrong with it, its load will find); rows that no
 * live piece has are zeros in the annex, and nothing leads to them. A step waits for nothing.
 * Does not: move rows, drop pieces, start by itself.
 * Threads: start, stop: any; steps: the executor's, one at a time.
 * Tests: tests/unit/store/test_build.c, test_codes.c, tests/fault/test_store_faults.c */
#include "store/build.h"
#include "store/codes.h"
#include "store/extent.h"
#include "store/readback.h"
#include "store/tag.h"

#include <string.h>

#define LOOKS    1024u        /* extents that a step looks at */
#define AGAIN_NS 100000000ull /* after a lack of frames or objects */
#define TRIES    16u          /* of an extent that meets one */

enum state { LOOK, READ, WRITE };

struct span { /* rows that a live piece has, or none has */
    uint64_t first, count;
    const struct sc_store_piece_entry *piece;
    bool is_gap;
};

struct sc_store_build {
    struct sc_store *store;
    struct sc_task task;

    /* Guarded by the space lock. */
    bool runs, closing;
    bool again, again_codes; /* all of it, or what extents got since */
    uint64_t rate;           /* bytes a second; 0: as fast as it goes */

    /* The run's, one step after the other. */
    enum state state;
    bool is_codes;       /* codes are built: the second time through the table */
    uint64_t next, end;  /* ids of extents; end 0: the run has not looked yet */
    uint64_t missed;     /* the oldest that lacks codes, though a run may have passed it; 0: none */
    uint64_t codes_from; /* older ones have codes, or were passed over since the last start */
    uint64_t stopped;    /* at this one, for want of space or memory; 0: not */
    uint64_t said;       /* it was logged that a run stopped at this one */
    uint64_t extent_id, row_count, piece_count;
    uint32_t tries, layer;
    struct sc_store_extent *annex;
    struct sc_store_piece_plan *plans; /* [store->limits.pieces_max] */
    struct span *spans;                /* likewise */
    uint64_t span_count, span;
    uint64_t row, rows; /* the window: its first row, and how many */
    uint64_t rows_max;
    struct sc_store_readback back;
    uint8_t *keys; /* of a layer: [row_count][probe_row_bytes], or blocks of codes */
    uint64_t keys_bytes;
    spec_status written;
};

/* ---- Which extents -------------------------------------------------------------------------- */

/* Log lock held. */
static bool extent_lacks(const struct sc_store_build *build,
                         const struct sc_store_extent_entry *extent)
{
    const struct sc_store *store = build->store;
    if (extent == NULL || extent->live_count == 0 ||
        extent->space != atomic_load(&store->log.space_id) || atomic_load(&extent->coarse_ns) != 0)
        return false;
    if (build->is_codes)
        return store->params.codes.shape.bits_k != 0 && !atomic_load(&extent->is_coding) &&
               atomic_load(&extent->held_codes) == NULL;
    return atomic_load(&extent->held_annex) == NULL &&
           sc_store_probes_of(extent).row_bytes < store->params.probe_row_bytes;
}

/* The next one from build->next on; 0: none among LOOKS, or none at all. */
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

static void span_add(struct sc_store_build *build, uint64_t first, uint64_t end,
                     const struct sc_store_piece_entry *piece)
{
    struct sc_store_piece_plan *plan = &build->plans[build->span_count];
    if (first == end)
        return;
    build->spans[build->span_count++] = (struct span){
        .first = first, .count = end - first, .piece = piece, .is_gap = piece == NULL};
    *plan = (struct sc_store_piece_plan){.row_count = (uint32_t)(end - first)};
    if (piece == NULL)
        return;
    plan->first_position = piece->first_position + (first - piece->extent_row);
    memcpy(plan->hash, piece->hash, sizeof(plan->hash));
    build->piece_count++;
}

/* The extent's rows, from the first to the last; false: too many pieces. */
static bool spans_make(struct sc_store_build *build)
{
    const struct sc_store *store = build->store;
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, build->extent_id);
    uint64_t row = 0;
    build->span_count = build->piece_count = 0;
    build->row_count = extent->row_count;
    for (uint64_t id = extent->piece_first; id <= extent->piece_last; id++) {
        const struct sc_store_piece_entry *piece = sc_store_table_live(&store->table, id);
        if (piece == NULL || piece->extent != build->extent_id)
            continue;
        if (build->span_count + 3 > store->limits.pieces_max)
            return false;
        uint64_t first = piece->extent_row + piece->skip;
        span_add(build, row, first, NULL);
        row = (uint64_t)piece->extent_row + piece->row_count;
        span_add(build, first, row, piece);
    }
    span_add(build, row, extent->row_count, NULL);
    return build->piece_count > 0;
}

/* ---- Memory --------------------------------------------------------------------------------- */

static void run_free(struct sc_store_build *build)
{
    struct sc_alloc *alloc = build->store->params.alloc;
    sc_alloc_free(alloc, build->keys);
    sc_store_readback_leave(&build->back);
    sc_alloc_free(alloc, build->spans);
    sc_alloc_free(alloc, build->plans);
    build->keys = NULL;
    build->spans = NULL;
    build->plans = NULL;
}

static bool run_alloc(struct sc_store_build *build)
{
    const struct sc_store *store = build->store;
    struct sc_alloc *alloc = store->params.alloc;
    uint64_t row_bytes = store->shape.row_bytes;
    uint64_t rows = store->limits.op_bytes / row_bytes > 0 ? store->limits.op_bytes / row_bytes : 1;
    if (rows < store->params.config->chunk_tokens) /* a slab is coded at once */
        rows = store->params.config->chunk_tokens;
    build->rows_max = rows < SC_STORE_ROWS_MAX ? rows : SC_STORE_ROWS_MAX;
    build->plans = sc_alloc_array(alloc, store->limits.pieces_max, sizeof(*build->plans));
    build->spans = sc_alloc_array(alloc, store->limits.pieces_max, sizeof(*build->spans));
    return sc_store_readback_take(&build->back, sc_store_stretch_bytes(store, build->rows_max)) &&
           build->plans != NULL && build->spans != NULL;
}

/* ---- Windows -------------------------------------------------------------------------------- */

static bool is_split(const struct sc_store *store)
{
    return store->shape.layout == SC_STORE_SPLIT;
}

/* Rows from build->row on that one read takes: of a paired layout also of several pieces. */
static void window_size(struct sc_store_build *build)
{
    const struct sc_store *store = build->store;
    const struct span *span = &build->spans[build->span];
    uint64_t end = span->first + span->count;
    for (uint64_t i = build->span + 1; !is_split(store) && i < build->span_count; i++) {
        if (build->spans[i].is_gap)
            break;
        end = build->spans[i].first + build->spans[i].count;
    }
    build->rows = end - build->row < build->rows_max ? end - build->row : build->rows_max;
    if (!build->is_codes || build->row + build->rows == end)
        return;
    end = span->first + span->count; /* whole pieces */
    for (uint64_t i = build->span + 1; i < build->span_count && !build->spans[i].is_gap; i++) {
        uint64_t next = build->spans[i].first + build->spans[i].count;
        if (next > build->row + build->rows_max)
            break;
        end = next;
    }
    build->rows = end - build->row;
}

/* Reads the window at build->row, which is in no gap. */
static void window_read(struct sc_store_build *build)
{
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&build->store->table, build->extent_id);
    const struct span *from = &build->spans[build->span], *to = from;
    window_size(build);
    uint64_t end = build->row + build->rows;
    while (to->first + to->count < end)
        to++;
    const struct sc_store_stretch_rows rows = {.extent = extent,
                                               .layer = build->layer,
                                               .from = from->piece,
                                               .to = to->piece,
                                               .first = build->row,
                                               .end = end,
                                               .k_alone = !build->is_codes};
    sc_store_readback_add(&build->back, &rows);
    sc_store_readback_submit(&build->back);
}

/* Codes the verified rows of a piece. */
static void slab_code(struct sc_store_build *build, const struct sc_store_piece_entry *piece,
                      const struct sc_store_back *back)
{
    const struct sc_store *store = build->store;
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, build->extent_id);
    struct sc_store_blocks blocks;
    sc_store_codes_blocks(store, extent, build->annex->copy, &store->params.codes.shape, piece,
                          &blocks);
    const uint8_t *rows[SC_LIMIT_CHUNK_TOKENS];
    const uint8_t *v =
        is_split(store) ? back->halves[1] : back->halves[0] + store->shape.k_row_bytes;
    for (uint64_t i = 0; i < blocks.row_count; i++)
        rows[i] = back->halves[0] + i * back->stride;
    sc_store_block_make(store, &blocks, build->layer, SC_STORE_PART_K, rows,
                        build->keys + blocks.k_at);
    for (uint64_t i = 0; i < blocks.row_count; i++)
        rows[i] = v + i * back->stride;
    sc_store_block_make(store, &blocks, build->layer, SC_STORE_PART_V, rows,
                        build->keys + blocks.v_at);
}

/* Verifies `count` rows of the span, from build->row on, and takes their keys, or codes them. */
static bool span_take(struct sc_store_build *build, const struct span *span, uint64_t count)
{
    uint64_t keys_bytes = build->store->params.probe_row_bytes;
    struct sc_store_back back;
    if (!sc_store_readback_rows(&build->back, 0, span->piece, build->row, count, &back))
        return false;
    if (build->is_codes)
        slab_code(build, span->piece, &back);
    for (uint64_t i = 0; i < count && !build->is_codes; i++)
        memcpy(build->keys + (build->row + i) * keys_bytes, back.halves[0] + i * back.stride,
               keys_bytes);
    return true;
}

/* What was read; false: it cannot be had, or is not what it was. */
static bool window_take(struct sc_store_build *build)
{
    uint64_t end = build->row + build->rows;
    while (build->row < end) {
        const struct span *span = &build->spans[build->span];
        uint64_t span_end = span->first + span->count;
        uint64_t count = (span_end < end ? span_end : end) - build->row;
        if (!span_take(build, span, count))
            return false;
        build->row += count;
        build->span += build->row == span_end;
    }
    return true;
}

/* Rows that no piece has. */
static void gap_take(struct sc_store_build *build)
{
    while (build->span < build->span_count && build->spans[build->span].is_gap) {
        const struct span *span = &build->spans[build->span++];
        uint64_t bytes = build->is_codes ? 0 : build->store->params.probe_row_bytes;
        memset(build->keys + span->first * bytes, 0, span->count * bytes);
        build->row = span->first + span->count;
    }
}

/* ---- Layers --------------------------------------------------------------------------------- */

static void pack_keys(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                      uint8_t *dst)
{
    const struct sc_store_build *build = user;
    uint64_t bytes = part == SC_STORE_PART_PROBE ? build->store->params.probe_row_bytes : 1;
    memcpy(dst, build->keys + row_first * bytes, row_count * bytes);
}

static void layer_begin(struct sc_store_build *build)
{
    build->row = build->span = 0;
    if (build->is_codes) /* blocks of pieces that are gone */
        memset(build->keys, 0, build->keys_bytes);
    gap_take(build);
}

/* False: the put was the last, or failed. Then the next step may run already. */
static bool layer_put(struct sc_store_build *build)
{
    bool last = build->layer + 1 == build->store->shape.layer_count;
    const struct sc_store_source source = {.pack = pack_keys, .user = build};
    build->state = WRITE;
    spec_status status = sc_store_extent_put_layer(build->annex, build->layer, &source, NULL);
    if (status != SPEC_OK || last)
        return false;
    build->state = READ;
    build->layer++;
    layer_begin(build);
    return true;
}

static void on_written(struct sc_store_extent *annex, spec_status status, void *user)
{
    struct sc_store_build *build = user;
    SC_ASSERT(build->store->params.poison, annex == build->annex);
    build->written = status;
    sc_exec_post(build->store->params.exec, &build->task, SC_LANE_BACKGROUND);
}

/* ---- The run -------------------------------------------------------------------------------- */

static bool is_closing(struct sc_store_build *build)
{
    pthread_mutex_lock(&build->store->disk.lock);
    bool closing = build->closing;
    pthread_mutex_unlock(&build->store->disk.lock);
    return closing;
}

static void post_after(struct sc_store_build *build, uint64_t wait_ns)
{
    struct sc_exec *exec = build->store->params.exec;
    pthread_mutex_lock(&build->store->disk.lock); /* stop cancels what is posted under it */
    if (wait_ns == 0 || build->closing)
        sc_exec_post(exec, &build->task, SC_LANE_BACKGROUND);
    else
        sc_exec_post_at(exec, &build->task, SC_LANE_BACKGROUND, sc_exec_now_ns(exec) + wait_ns);
    pthread_mutex_unlock(&build->store->disk.lock);
}

/* Space lock held. Once through the table from here on. */
static void run_begin(struct sc_store_build *build, bool is_codes)
{
    build->is_codes = is_codes;
    build->next = is_codes ? build->codes_from : 1;
    build->end = build->stopped = 0;
    build->again_codes = build->again_codes && !is_codes;
    if (is_codes && build->missed != 0 && build->missed < build->next)
        build->next = build->missed;
    if (is_codes)
        build->missed = 0;
    if (is_codes)
        return;
    build->codes_from = 1; /* what was passed over is tried again */
    build->again = false;
}

/* Nothing of it is touched afterwards. */
static void run_end(struct sc_store_build *build)
{
    struct sc_store *store = build->store;
    run_free(build);
    pthread_mutex_lock(&store->disk.lock);
    bool goes_on = !build->is_codes && store->params.codes.shape.bits_k != 0;
    bool again = (goes_on || build->again || build->again_codes) && !build->closing;
    if (build->is_codes && build->end > 0)
        build->codes_from = build->stopped > 0 ? build->stopped : build->end;
    build->runs = again;
    if (again)
        run_begin(build, goes_on || !build->again);
    if (again)
        sc_exec_post(store->params.exec, &build->task, SC_LANE_BACKGROUND);
    pthread_mutex_unlock(&store->disk.lock);
    if (!again)
        sc_store_busy_end(store);
}

/* Of a layer of the extent. */
static uint64_t codes_bytes(const struct sc_store_build *build)
{
    const struct sc_store_piece_entry *piece = NULL;
    for (uint64_t i = 0; piece == NULL; i++) /* there is one */
        piece = build->spans[i].piece;
    return sc_store_codes_layer_bytes(build->store, &build->store->params.codes.shape,
                                      piece->first_position - piece->extent_row, build->row_count);
}

/* Begins the annex of build->extent_id. */
static spec_status extent_begin(struct sc_store_build *build, struct spec_error *reterr)
{
    struct sc_store *store = build->store;
    if (build->back.memory == NULL && !run_alloc(build))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "buffers of a build");
    if (!spans_make(build))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "too many pieces, or none");
    sc_alloc_free(store->params.alloc, build->keys);
    build->keys_bytes = build->row_count * store->params.probe_row_bytes;
    if (build->is_codes)
        build->keys_bytes = codes_bytes(build);
    build->keys = sc_alloc(store->params.alloc, build->keys_bytes);
    if (build->keys == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%s of %" PRIu64 " rows",
                       build->is_codes ? "codes" : "keys", build->row_count);
    return sc_store_annex_begin(store, build->extent_id, build->plans, build->span_count,
                                build->is_codes ? build->keys_bytes : 0, on_written, build,
                                &build->annex, reterr);
}

static void extent_look(struct sc_store_build *build)
{
    struct spec_error error = {.struct_size = sizeof(error)};
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
            SC_LOG(build->store->params.log, 1, "sketches are not built: %s", error.text);
        build->said = build->stopped = build->extent_id;
        build->extent_id = build->tries = 0;
        run_end(build);
        return;
    }
    if (status == SPEC_OK) {
        build->state = READ;
        build->layer = 0;
        layer_begin(build);
        window_read(build);
    } else {
        build->tries += status == SPEC_E_BUSY;
        build->extent_id = status == SPEC_E_BUSY ? build->extent_id : 0;
        post_after(build, status == SPEC_E_BUSY ? AGAIN_NS : 0);
    }
}

/* The window is there, or the pause after it is over (rows 0). */
static void read_on(struct sc_store_build *build)
{
    bool good = build->rows == 0 || window_take(build);
    uint64_t bytes = sc_store_readback_clear(&build->back);
    if (!good) {
        SC_LOG(build->store->params.log, 1,
               "extent %" PRIu64 " layer %" PRIu32 " gets no sketch: its rows cannot be had",
               build->extent_id, build->layer);
        build->state = WRITE;
        build->tries = TRIES;
        sc_store_extent_abort(build->annex);
        return;
    }
    build->rows = 0;
    gap_take(build);
    if (build->row == build->row_count && !layer_put(build))
        return;
    pthread_mutex_lock(&build->store->disk.lock);
    uint64_t rate = build->rate;
    pthread_mutex_unlock(&build->store->disk.lock);
    if (rate > 0 && bytes > 0)
        post_after(build, (uint64_t)((double)bytes * 1e9 / (double)rate));
    else
        window_read(build);
}

/* All writes ended. */
static void write_end(struct sc_store_build *build, bool closing)
{
    struct sc_store *store = build->store;
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t wait_ns = 0;
    if (build->written == SPEC_OK && !closing) {
        spec_status status = sc_store_annex_commit(build->annex, &error);
        sc_store_count(&store->counts.built_pieces, status == SPEC_OK ? build->piece_count : 0);
        sc_store_count(&store->counts.built_bytes,
                       status == SPEC_OK ? build->keys_bytes * store->shape.layer_count : 0);
        build->extent_id = build->tries = 0;
    } else {
        sc_store_extent_discard(build->annex);
        if (++build->tries > TRIES) /* it is passed over */
            build->extent_id = build->tries = 0;
        else
            wait_ns = AGAIN_NS;
    }
    build->annex = NULL;
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
    } else if (closing && build->state == READ) {
        build->state = WRITE;
        sc_store_extent_abort(build->annex);
    } else if (closing) {
        build->extent_id = 0;
        run_end(build);
    } else if (build->state == LOOK) {
        extent_look(build);
    } else {
        read_on(build);
    }
}

/* ---- Start and stop ------------------------------------------------------------------------- */

spec_status sc_store_build_open(struct sc_store *store, struct spec_error *reterr)
{
    store->build = sc_alloc_zero(store->params.alloc, sizeof(*store->build));
    if (store->build == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what builds sketches");
    store->build->store = store;
    store->build->task.step = build_step;
    store->build->back.store = store;
    store->build->back.task = &store->build->task;
    store->build->next = store->build->codes_from = 1;
    store->codes_missed = sc_store_build_missed;
    return SPEC_OK;
}

/* Space lock held. */
static void run_start(struct sc_store_build *build, bool is_codes)
{
    struct sc_store *store = build->store;
    build->runs = true;
    run_begin(build, is_codes);
    atomic_fetch_add(&store->busy, 1);
    sc_exec_post(store->params.exec, &build->task, SC_LANE_BACKGROUND);
}

void sc_store_build_codes(struct sc_store *store)
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
        build->again_codes = true;
    } else if (!build->closing) {
        build->rate = 0;
        run_start(build, true);
    }
    pthread_mutex_unlock(&store->disk.lock);
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
        build->again = true;
    else if (!build->closing)
        run_start(build, false);
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
    if (sc_exec_cancel(store->params.exec, &build->task)) /* in a pause: it ends now */
        sc_exec_post(store->params.exec, &build->task, SC_LANE_BACKGROUND);
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_build_close(struct sc_store *store)
{
    sc_alloc_free(store->params.alloc, store->build);
    store->build = NULL;
}
