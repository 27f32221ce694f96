/* Rows of several pieces, read back and written once more as one piece (docs/decisions/0016).
 *
 *   pieces   [a][b][c] ...      one chunk's, each in an extent of its own, or beside others
 *   READ     layer l: windows of them, each with its tags; verified
 *   rows     [a b c ...]        of one layer, put when it is whole
 *   WRITE    after the last layer, or an abort, until all writes ended; then `done`
 *
 *   begin -> READ -> ... -> WRITE -> done(extent)      the caller's to commit or to discard
 *             window after window, layer after layer
 *
 * It is slow on purpose: one window in flight, in the lowest lane, and a pause after it so that
 * bytes_per_s holds.
 *
 * Holds: rows that are written agreed with the tags of the piece that they are read from, which
 * lived then; a step waits for nothing; memory is held while a merge runs.
 * Does not: choose what is merged, commit, drop (plugin/merge.c).
 * Threads: begin, stop: any; steps: the executor's, one at a time.
 * Tests: tests/unit/plugin/test_merge.c */
#include "store/extent.h"
#include "store/tag.h"
#include "store/where.h"

#include <stdio.h>
#include <string.h>

#define PAGE         ((uint64_t)SC_IO_PAGE_BYTES)
#define PIECES       16u            /* of a window */
#define WINDOW_BYTES (256ull << 10) /* of a window of several pieces, at most */

enum state { READ, WRITE };

/* A piece of the window. */
struct part {
    const struct sc_store_piece_entry *piece;
    struct sc_io_op ops[2];            /* rows, tags */
    const uint8_t *rows;               /* its first row, also one that is skipped, if split */
    const uint64_t *tags;              /* of the first row that is not skipped */
    uint64_t copy;                     /* of its extent */
    uint64_t row_count, at, row_bytes; /* that are not skipped; in the merged piece; read */
};

struct sc_store_merger {
    struct sc_store *store;
    struct sc_task task;
    bool runs, closing; /* space lock */

    /* The merge's, one step after the other. */
    struct sc_store_merge what; /* pieces: below */
    uint64_t ids[SC_LIMIT_CHUNK_TOKENS];
    enum state state;
    uint32_t layer;
    struct sc_store_extent *extent;
    uint64_t next, row; /* the piece that comes next, and its row in the merged one */
    struct part parts[PIECES];
    uint64_t part_count;
    uint8_t *rows; /* [plan.row_count] of a layer: rows, or all K, then all V */
    uint8_t *window;
    uint64_t window_bytes;
    _Atomic uint32_t flying;
    spec_status status; /* the first thing that went wrong; then what the writes said */
};

/* ---- Windows -------------------------------------------------------------------------------- */

static bool is_split(const struct sc_store *store)
{
    return store->shape.layout == SC_STORE_SPLIT;
}

/* What a piece takes of a window: rows and tags, each rounded out to pages. */
static uint64_t piece_bytes(const struct sc_store *store, uint64_t row_count)
{
    return sc_store_up(row_count * store->shape.row_bytes, PAGE) + 2 * PAGE +
           sc_store_up(row_count * store->shape.tags_per_row * 8, PAGE) + 2 * PAGE;
}

static void on_read(struct sc_io_op *op)
{
    struct sc_store_merger *merger = op->user;
    if (atomic_fetch_sub(&merger->flying, 1) == 1)
        sc_exec_post(merger->store->params.exec, &merger->task, SC_LANE_BACKGROUND);
}

/* Reads bytes [start, + bytes) of the segment, in whole pages, to `at`; returns the first of them.
 */
static const uint8_t *op_set(struct sc_store_merger *merger, struct sc_io_op *op, uint32_t segment,
                             uint64_t start, uint64_t bytes, uint8_t *at)
{
    uint64_t first = sc_store_down(start, PAGE), end = sc_store_up(start + bytes, PAGE);
    *op = (struct sc_io_op){.file = merger->store->segments[segment].file,
                            .buffer = at,
                            .offset = first,
                            .bytes = end - first,
                            .kind = SC_IO_READ,
                            .lane = SC_LANE_BACKGROUND,
                            .done = on_read,
                            .user = merger};
    sc_store_count(&merger->store->read_bytes, op->bytes);
    sc_store_count(&merger->store->read_ops, 1);
    return at + (start - first);
}

/* The next piece into the window at `used`; false: it is not there any more. */
static bool part_set(struct sc_store_merger *merger, struct part *part, uint64_t used)
{
    const struct sc_store *store = merger->store;
    const struct sc_store_piece_entry *piece =
        sc_store_table_live(&store->table, merger->ids[merger->next]);
    const struct sc_store_extent_entry *extent = NULL;
    if (piece != NULL)
        extent = sc_store_table_extent(&store->table, piece->extent);
    if (extent == NULL || atomic_load(&extent->coarse_ns) != 0 ||
        piece->first_position + piece->skip != merger->what.plan.first_position + merger->row ||
        piece->row_count > merger->what.plan.row_count - merger->row + piece->skip)
        return false;
    struct sc_store_where layer =
        sc_store_layer_where(extent->parts, extent->part_count, extent->stride, merger->layer);
    uint64_t row_bytes = store->shape.row_bytes, tag_bytes = 8ull * store->shape.tags_per_row;
    uint64_t first = piece->extent_row, skip = piece->skip, count = piece->row_count - skip;
    uint64_t read_first = is_split(store) ? first : first + skip; /* a slab is read whole */
    uint64_t read_count = is_split(store) ? piece->row_count : count;
    uint8_t *at = merger->window + used;
    *part =
        (struct part){.piece = piece, .copy = extent->copy, .row_count = count, .at = merger->row};
    part->rows = op_set(merger, &part->ops[0], layer.segment,
                        layer.offset + extent->row_offset + read_first * row_bytes,
                        read_count * row_bytes, at);
    part->tags = (const uint64_t *)(const void *)op_set(merger, &part->ops[1], layer.segment,
                                                        layer.offset + extent->tag_offset +
                                                            (first + skip) * tag_bytes,
                                                        count * tag_bytes, at + part->ops[0].bytes);
    return true;
}

/* False: a piece is not there any more. */
static bool window_read(struct sc_store_merger *merger)
{
    struct sc_io_op *ops[2 * PIECES];
    uint64_t used = 0;
    merger->part_count = 0;
    while (merger->part_count < PIECES && merger->next < merger->what.piece_count) {
        const struct sc_store_piece_entry *piece =
            sc_store_table_live(&merger->store->table, merger->ids[merger->next]);
        uint64_t bytes = piece != NULL ? piece_bytes(merger->store, piece->row_count) : 0;
        if (bytes > merger->window_bytes - used)
            break;
        struct part *part = &merger->parts[merger->part_count];
        if (piece == NULL || !part_set(merger, part, used))
            return false;
        ops[2 * merger->part_count] = &part->ops[0];
        ops[2 * merger->part_count + 1] = &part->ops[1];
        merger->part_count++;
        merger->next++;
        merger->row += part->row_count;
        used += bytes;
    }
    if (merger->part_count == 0)
        return false;
    atomic_store(&merger->flying, (uint32_t)(2 * merger->part_count));
    sc_io_submit(merger->store->io, ops, 2 * merger->part_count);
    return true;
}

/* Verifies a piece's rows, and takes them. */
static bool part_take(struct sc_store_merger *merger, const struct part *part)
{
    const struct sc_store *store = merger->store;
    uint64_t step = store->shape.tags_per_row, k_bytes = store->shape.k_row_bytes;
    uint64_t bytes = is_split(store) ? k_bytes : store->shape.row_bytes;
    uint64_t position = merger->what.plan.first_position + part->at;
    if (part->ops[0].status != SPEC_OK || part->ops[1].status != SPEC_OK)
        return false;
    for (uint32_t p = 0; p < step; p++) {
        uint32_t which = !is_split(store) ? SC_STORE_PART_ROW
                         : p == 0         ? SC_STORE_PART_K
                                          : SC_STORE_PART_V;
        const uint8_t *src = part->rows;
        if (is_split(store))
            src += (p * (uint64_t)part->piece->row_count + part->piece->skip) * k_bytes;
        uint64_t base = sc_store_tag_base(store->shape.digest, part->piece->hash, part->copy,
                                          merger->layer, which);
        if (sc_store_tag_verify(base, position, src, bytes, bytes, part->row_count, part->tags + p,
                                step) != part->row_count)
            return false;
        memcpy(merger->rows + (p * (uint64_t)merger->what.plan.row_count + part->at) * bytes, src,
               part->row_count * bytes);
    }
    return true;
}

/* What was read; returns its bytes, 0: something is not what it was. */
static uint64_t window_take(struct sc_store_merger *merger)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < merger->part_count; i++) {
        const struct part *part = &merger->parts[i];
        if (!part_take(merger, part))
            return 0;
        bytes += part->ops[0].bytes + part->ops[1].bytes;
    }
    merger->part_count = 0;
    return bytes;
}

/* ---- Layers --------------------------------------------------------------------------------- */

static void pack(void *user, uint32_t part, uint64_t row_first, uint64_t row_count, uint8_t *dst)
{
    const struct sc_store_merger *merger = user;
    const struct sc_store *store = merger->store;
    uint64_t k_bytes = store->shape.k_row_bytes;
    uint64_t bytes = is_split(store) ? k_bytes : store->shape.row_bytes;
    const uint8_t *rows = merger->rows + row_first * bytes;
    if (part == SC_STORE_PART_V)
        rows += merger->what.plan.row_count * k_bytes;
    if (part != SC_STORE_PART_PROBE) {
        memcpy(dst, rows, row_count * bytes);
        return;
    }
    uint64_t probe_bytes = store->params.probe_row_bytes;
    for (uint64_t i = 0; i < row_count; i++)
        memcpy(dst + i * probe_bytes, rows + i * bytes, probe_bytes);
}

/* False: the put was the last, or failed. Then the next step may run already. */
static bool layer_put(struct sc_store_merger *merger)
{
    bool last = merger->layer + 1 == merger->store->shape.layer_count;
    merger->state = WRITE;
    const struct sc_store_source source = {.pack = pack, .user = merger};
    spec_status status = sc_store_extent_put_layer(merger->extent, merger->layer, &source, NULL);
    if (status != SPEC_OK || last)
        return false;
    merger->state = READ;
    merger->layer++;
    merger->next = merger->row = 0;
    return true;
}

static void on_written(struct sc_store_extent *extent, spec_status status, void *user)
{
    struct sc_store_merger *merger = user;
    SC_ASSERT(merger->store->params.poison, extent == merger->extent);
    if (merger->status == SPEC_OK)
        merger->status = status;
    sc_exec_post(merger->store->params.exec, &merger->task, SC_LANE_BACKGROUND);
}

/* ---- The merge ------------------------------------------------------------------------------ */

static void memory_free(struct sc_store_merger *merger)
{
    sc_alloc_free(merger->store->params.alloc, merger->rows);
    sc_alloc_free(merger->store->params.alloc, merger->window);
    merger->rows = merger->window = NULL;
}

static void give_up(struct sc_store_merger *merger, spec_status why)
{
    merger->state = WRITE;
    merger->status = why;
    sc_store_extent_abort(merger->extent);
}

/* All writes ended. Nothing of it is touched afterwards: `done` may begin the next. */
static void merge_end(struct sc_store_merger *merger, bool closing)
{
    struct sc_store *store = merger->store;
    struct sc_store_extent *extent = merger->extent;
    const struct sc_store_merge what = merger->what;
    spec_status status = closing ? SPEC_E_DROPPED : merger->status;
    memory_free(merger);
    merger->extent = NULL;
    if (status != SPEC_OK) {
        sc_store_extent_discard(extent);
        extent = NULL;
    }
    pthread_mutex_lock(&store->space_lock);
    merger->runs = false;
    pthread_mutex_unlock(&store->space_lock);
    if (!closing)
        what.done(extent, status, what.user);
    sc_store_busy_end(store);
}

/* The window is there, or the pause after it is over. */
static void read_on(struct sc_store_merger *merger)
{
    struct sc_exec *exec = merger->store->params.exec;
    uint64_t bytes = 0;
    if (merger->part_count > 0) {
        bytes = window_take(merger);
        if (bytes == 0) {
            give_up(merger, SPEC_E_CORRUPT);
            return;
        }
    }
    if (merger->row == merger->what.plan.row_count && !layer_put(merger))
        return;
    pthread_mutex_lock(&merger->store->space_lock); /* stop cancels what is posted under it */
    uint64_t rate = merger->closing ? 0 : merger->what.bytes_per_s;
    uint64_t due_ns =
        sc_exec_now_ns(exec) + (rate > 0 ? (uint64_t)((double)bytes * 1e9 / (double)rate) : 0);
    if (bytes > 0 && rate > 0)
        sc_exec_post_at(exec, &merger->task, SC_LANE_BACKGROUND, due_ns);
    pthread_mutex_unlock(&merger->store->space_lock);
    if ((bytes == 0 || rate == 0) && !window_read(merger))
        give_up(merger, SPEC_E_DROPPED);
}

static void merge_step(struct sc_task *task)
{
    struct sc_store_merger *merger =
        (struct sc_store_merger *)((char *)task - offsetof(struct sc_store_merger, task));
    pthread_mutex_lock(&merger->store->space_lock);
    bool closing = merger->closing;
    pthread_mutex_unlock(&merger->store->space_lock);
    if (merger->state == WRITE)
        merge_end(merger, closing);
    else if (closing)
        give_up(merger, SPEC_E_DROPPED);
    else
        read_on(merger);
}

/* ---- Begin and stop ------------------------------------------------------------------------- */

static spec_status memory_take(struct sc_store_merger *merger, struct spec_error *reterr)
{
    const struct sc_store *store = merger->store;
    uint64_t rows = merger->what.plan.row_count;
    uint64_t most = piece_bytes(store, rows);
    /* A piece may have rows before those that are wanted, which a split layout reads too. */
    for (uint64_t i = 0; i < merger->what.piece_count; i++) {
        uint64_t bytes = piece_bytes(store, sc_store_piece_rows(store, merger->ids[i]));
        most = bytes > most ? bytes : most;
    }
    merger->window_bytes = most < WINDOW_BYTES ? WINDOW_BYTES : most;
    merger->rows = sc_alloc(store->params.alloc, rows * store->shape.row_bytes);
    merger->window = sc_alloc_aligned(store->params.alloc, merger->window_bytes, PAGE);
    if (merger->rows != NULL && merger->window != NULL)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_NO_MEMORY, "buffers of a merge of %" PRIu64 " rows", rows);
}

static spec_status take(struct sc_store_merger *merger, struct spec_error *reterr)
{
    struct sc_store *store = merger->store;
    pthread_mutex_lock(&store->space_lock);
    bool takes = !merger->runs && !merger->closing;
    merger->runs = merger->runs || takes;
    pthread_mutex_unlock(&store->space_lock);
    return takes ? SPEC_OK : sc_fail(reterr, SPEC_E_BUSY, "a merge runs, or the store closes");
}

spec_status sc_store_merge_begin(struct sc_store *store, const struct sc_store_merge *what,
                                 struct spec_error *reterr)
{
    struct sc_store_merger *merger = store->merger;
    if (merger == NULL)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s is another's: only its writer merges",
                       store->dir);
    if (what->piece_count == 0 || what->piece_count > SC_LIMIT_CHUNK_TOKENS)
        return sc_fail(reterr, SPEC_E_INVALID, "a merge of %" PRIu64 " pieces", what->piece_count);
    spec_status status = take(merger, reterr);
    if (status != SPEC_OK)
        return status;
    merger->what = *what;
    memcpy(merger->ids, what->pieces, what->piece_count * sizeof(*merger->ids));
    merger->what.pieces = merger->ids;
    merger->layer = 0;
    merger->next = merger->row = merger->part_count = 0;
    merger->state = READ;
    merger->status = SPEC_OK;
    status = memory_take(merger, reterr);
    if (status == SPEC_OK)
        status = sc_store_extent_begin(store, &what->plan, 1, &what->provenance, NULL,
                                       &merger->extent, reterr);
    if (status != SPEC_OK) {
        memory_free(merger);
        pthread_mutex_lock(&store->space_lock);
        merger->runs = false;
        pthread_mutex_unlock(&store->space_lock);
        return status;
    }
    merger->extent->written = on_written;
    merger->extent->user = merger;
    atomic_fetch_add(&store->busy, 1);
    sc_exec_post(store->params.exec, &merger->task, SC_LANE_BACKGROUND);
    return SPEC_OK;
}

spec_status sc_store_merger_open(struct sc_store *store, struct spec_error *reterr)
{
    store->merger = sc_alloc_zero(store->params.alloc, sizeof(*store->merger));
    if (store->merger == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what merges pieces");
    store->merger->store = store;
    store->merger->task.step = merge_step;
    return SPEC_OK;
}

void sc_store_merger_stop(struct sc_store *store)
{
    struct sc_store_merger *merger = store->merger;
    if (merger == NULL)
        return;
    pthread_mutex_lock(&store->space_lock);
    merger->closing = true;
    if (sc_exec_cancel(store->params.exec, &merger->task)) /* in a pause: it ends now */
        sc_exec_post(store->params.exec, &merger->task, SC_LANE_BACKGROUND);
    pthread_mutex_unlock(&store->space_lock);
}

void sc_store_merger_close(struct sc_store *store)
{
    sc_alloc_free(store->params.alloc, store->merger);
    store->merger = NULL;
}

spec_status sc_store_extent_sync(struct sc_store_extent *extent, struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    spec_status status = SPEC_OK;
    for (uint32_t i = 0; i < extent->part_count && status == SPEC_OK; i++)
        if (i == 0 || extent->parts[i].segment != extent->parts[i - 1].segment)
            status =
                sc_io_file_sync(store->io, store->segments[extent->parts[i].segment].file, reterr);
    return status;
}

/* By a handle of its own: a checkpoint may put another log in place meanwhile, which is synced,
 * too, with all that this one had by then. */
spec_status sc_store_log_sync(struct sc_store *store, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_io_file *file;
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    spec_status status = sc_io_file_open(store->io, path, 0, &file, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_io_file_sync(store->io, file, reterr);
    sc_io_file_close(store->io, file);
    return status;
}
