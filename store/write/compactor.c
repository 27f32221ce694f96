/* compactor: reads rows of several pieces back and writes them as one piece (decision 0016).
 *
 *   pieces   [a][b][c] ...      one chunk's, each in an extent of its own, or beside others
 *   READ     layer l: windows of pieces, each with its tags; verified
 *   rows     [a b c ...]        one layer's, packed when complete
 *   WRITE    after the last layer, or an abort, until all writes ended; then `done`
 *
 *   begin -> READ -> ... -> WRITE -> done(extent)      the caller commits or discards it
 *             window by window, layer by layer
 *
 * One window is in flight, in the lowest I/O class. A pause after it keeps bytes_per_s.
 *
 * Invariants: written rows agreed with the tags of their source piece, which was live then. A step
 * waits for nothing. Memory is held only while a compaction runs.
 * Threads: begin, stop: any; steps: the executor's, one at a time.
 * Tests: tests/unit/plugin/test_compaction.c */
#include "store/write/compactor.h"
#include "store/cache/host_tier_slab.h"
#include "store/cache/readback.h"
#include "store/rows/tag.h"
#include "store/space/tier.h"
#include "store/write/extent.h"
#include "store/write/write_through.h"

#include <string.h>

#define PIECES       SC_STORE_STRETCHES
#define WINDOW_BYTES (256ull << 10)     /* most bytes of a window with several pieces */

enum state { READ, WRITE };

struct part { /* a piece of the window; `back` has its stretch under the same number */
    const struct sc_store_piece_entry *piece;
    uint64_t at; /* row in the compacted piece of its first unskipped row */
};

struct sc_store_compactor {
    struct sc_store *store;
    struct sc_task task;
    bool runs, closing; /* guarded by the space lock */

    /* Owned by the steps, one at a time. */
    struct sc_store_compact what; /* pieces: ids */
    uint64_t ids[SC_LIMIT_CHUNK_TOKENS];
    enum state state;
    uint32_t layer;
    struct sc_store_extent *extent;
    uint64_t next, row; /* next piece; its row in the compacted piece */
    struct part parts[PIECES];
    uint32_t part_count;
    struct sc_store_readback back;
    struct sc_host_tier_memory_slab **slabs; /* [layer_count]; NULL: no host tier */
    uint8_t *rows;                     /* [plan.row_count] of a layer: rows, or all K, then all V */
    spec_status status; /* first error; then the result of the writes */
};

static bool is_split(const struct sc_store *store)
{
    return store->shape.layout == SC_STORE_SPLIT;
}

/* Adds a piece to the window. Returns false if it does not fit the plan. */
static bool part_add(struct sc_store_compactor *compactor, const struct sc_store_piece_entry *piece)
{
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&compactor->store->table, piece->extent);
    uint64_t first = (uint64_t)piece->extent_row + piece->skip;
    uint64_t end = (uint64_t)piece->extent_row + piece->row_count;
    if (extent == NULL ||
        piece->first_position + piece->skip !=
            compactor->what.plan.first_position + compactor->row ||
        end - first > compactor->what.plan.row_count - compactor->row)
        return false;
    const struct sc_store_stretch_rows rows = {.extent = extent,
                                               .layer = compactor->layer,
                                               .from = piece,
                                               .to = piece,
                                               .first = first,
                                               .end = end};
    sc_store_readback_add(&compactor->back, &rows);
    compactor->parts[compactor->part_count++] = (struct part){.piece = piece, .at = compactor->row};
    compactor->row += end - first;
    compactor->next++;
    return true;
}

/* Returns false if a piece is no longer live. */
static bool window_read(struct sc_store_compactor *compactor)
{
    while (compactor->part_count < PIECES && compactor->next < compactor->what.piece_count) {
        const struct sc_store_piece_entry *piece =
            sc_store_table_live(&compactor->store->table, compactor->ids[compactor->next]);
        if (piece == NULL)
            return false;
        if (sc_store_stretch_bytes(compactor->store, piece->row_count) >
            compactor->back.memory_bytes - compactor->back.used)
            break;
        if (!part_add(compactor, piece))
            return false;
    }
    if (compactor->part_count == 0)
        return false;
    if (!sc_store_readback_submit(&compactor->back))
        sc_exec_post(compactor->store->params.exec, &compactor->task, SC_IO_CLASS_BACKGROUND);
    return true;
}

static bool part_take(struct sc_store_compactor *compactor, uint32_t i)
{
    const struct part *part = &compactor->parts[i];
    uint64_t first = (uint64_t)part->piece->extent_row + part->piece->skip;
    uint64_t count = part->piece->row_count - part->piece->skip;
    struct sc_store_back back;
    if (!sc_store_readback_rows(&compactor->back, i, part->piece, first, count, &back))
        return false;
    for (uint32_t h = 0; h < (is_split(compactor->store) ? 2 : 1); h++)
        memcpy(compactor->rows +
                   (h * (uint64_t)compactor->what.plan.row_count + part->at) * back.stride,
               back.halves[h], count * back.stride);
    return true;
}

/* Copies the window's rows. Returns false if some fail. ret_bytes: bytes read from disk. */
static bool window_take(struct sc_store_compactor *compactor, uint64_t *ret_bytes)
{
    bool good = true;
    for (uint32_t i = 0; i < compactor->part_count && good; i++)
        good = part_take(compactor, i);
    compactor->part_count = 0;
    *ret_bytes = sc_store_readback_clear(&compactor->back);
    return good;
}

static void rows_pack(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                      uint8_t *dst)
{
    const struct sc_store_compactor *compactor = user;
    const struct sc_store *store = compactor->store;
    uint64_t k_bytes = store->shape.k_row_bytes;
    uint64_t bytes = is_split(store) ? k_bytes : store->shape.row_bytes;
    const uint8_t *rows = compactor->rows + row_first * bytes;
    if (part == SC_STORE_PART_V)
        rows += compactor->what.plan.row_count * k_bytes;
    if (part != SC_STORE_PART_PROBE) {
        memcpy(dst, rows, row_count * bytes);
        return;
    }
    uint64_t probe_bytes = store->params.probe_row_bytes;
    for (uint64_t i = 0; i < row_count; i++)
        memcpy(dst + i * probe_bytes, rows + i * bytes, probe_bytes);
}

static bool layer_is_in_host_tier(const struct sc_store_compactor *compactor)
{
    const struct sc_store *store = compactor->store;
    bool is_in_host_tier = compactor->slabs != NULL;
    for (uint64_t i = 0; i < compactor->what.piece_count && is_in_host_tier; i++) {
        const struct sc_store_piece_entry *piece =
            sc_store_table_live(&store->table, compactor->ids[i]);
        struct sc_store_range range = {.piece = compactor->ids[i]};
        if (piece == NULL)
            return false;
        range.row_first = piece->skip;
        range.row_count = (uint32_t)(piece->row_count - piece->skip);
        is_in_host_tier = sc_host_slab_has(store, compactor->layer, &range, SC_STORE_WANT_ROWS);
    }
    return is_in_host_tier;
}

/* Returns false if it was the last layer, or failed; the next step may run already then. */
static bool layer_put(struct sc_store_compactor *compactor)
{
    bool last = compactor->layer + 1 == compactor->store->shape.layer_count;
    compactor->state = WRITE;
    compactor->extent->inherits = layer_is_in_host_tier(compactor);
    const struct sc_store_source source = {.pack = rows_pack, .user = compactor};
    spec_status status =
        sc_store_extent_put_layer(compactor->extent, compactor->layer, &source, NULL);
    if (status != SPEC_OK || last)
        return false;
    compactor->state = READ;
    compactor->layer++;
    compactor->next = compactor->row = 0;
    return true;
}

static void on_written(struct sc_store_extent *extent, spec_status status, void *user)
{
    struct sc_store_compactor *compactor = user;
    SC_ASSERT(compactor->store->params.poison, extent == compactor->extent);
    if (compactor->status == SPEC_OK)
        compactor->status = status;
    sc_exec_post(compactor->store->params.exec, &compactor->task, SC_IO_CLASS_BACKGROUND);
}

static void memory_free(struct sc_store_compactor *compactor)
{
    sc_alloc_free(compactor->store->params.alloc, compactor->rows);
    sc_store_readback_leave(&compactor->back);
    compactor->rows = NULL;
}

static void give_up(struct sc_store_compactor *compactor, spec_status why)
{
    compactor->state = WRITE;
    compactor->status = why;
    sc_store_extent_abort(compactor->extent);
}

/* Ends the compaction after its last write, then touches nothing: `done` may begin the next. */
static void compact_end(struct sc_store_compactor *compactor, bool closing)
{
    struct sc_store *store = compactor->store;
    struct sc_store_extent *extent = compactor->extent;
    const struct sc_store_compact what = compactor->what;
    spec_status status = closing ? SPEC_E_DROPPED : compactor->status;
    memory_free(compactor);
    compactor->extent = NULL;
    if (status != SPEC_OK) {
        sc_store_extent_discard(extent);
        extent = NULL;
    }
    pthread_mutex_lock(&store->disk.lock);
    compactor->runs = false;
    pthread_mutex_unlock(&store->disk.lock);
    if (!closing)
        what.done(extent, status, what.user);
    sc_store_busy_end(store);
}

/* Continues after a window's reads, or after the pause. */
static void read_on(struct sc_store_compactor *compactor)
{
    struct sc_exec *exec = compactor->store->params.exec;
    uint64_t bytes = 0;
    if (compactor->part_count > 0 && !window_take(compactor, &bytes)) {
        give_up(compactor, SPEC_E_CORRUPT);
        return;
    }
    if (compactor->row == compactor->what.plan.row_count && !layer_put(compactor))
        return;
    pthread_mutex_lock(&compactor->store->disk.lock); /* under which stop cancels posted tasks */
    uint64_t rate = compactor->closing ? 0 : compactor->what.bytes_per_s;
    uint64_t due_ns =
        sc_exec_now_ns(exec) + (rate > 0 ? (uint64_t)((double)bytes * 1e9 / (double)rate) : 0);
    if (bytes > 0 && rate > 0)
        sc_exec_post_at(exec, &compactor->task, SC_IO_CLASS_BACKGROUND, due_ns);
    pthread_mutex_unlock(&compactor->store->disk.lock);
    if ((bytes == 0 || rate == 0) && !window_read(compactor))
        give_up(compactor, SPEC_E_DROPPED);
}

static void compact_step(struct sc_task *task)
{
    struct sc_store_compactor *compactor =
        (struct sc_store_compactor *)((char *)task - offsetof(struct sc_store_compactor, task));
    pthread_mutex_lock(&compactor->store->disk.lock);
    bool closing = compactor->closing;
    pthread_mutex_unlock(&compactor->store->disk.lock);
    if (compactor->state == WRITE)
        compact_end(compactor, closing);
    else if (closing)
        give_up(compactor, SPEC_E_DROPPED);
    else
        read_on(compactor);
}

static spec_status memory_take(struct sc_store_compactor *compactor, struct spec_error *reterr)
{
    const struct sc_store *store = compactor->store;
    uint64_t rows = compactor->what.plan.row_count;
    uint64_t most = sc_store_stretch_bytes(store, rows);
    /* Rows before the wanted ones are read too in a split layout. */
    for (uint64_t i = 0; i < compactor->what.piece_count; i++) {
        uint64_t bytes =
            sc_store_stretch_bytes(store, sc_store_piece_rows(store, compactor->ids[i]));
        most = bytes > most ? bytes : most;
    }
    compactor->rows = sc_alloc(store->params.alloc, rows * store->shape.row_bytes);
    if (sc_store_readback_take(&compactor->back, most < WINDOW_BYTES ? WINDOW_BYTES : most) &&
        compactor->rows != NULL)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_NO_MEMORY, "buffers of a compaction of %" PRIu64 " rows", rows);
}

static spec_status compactor_take(struct sc_store_compactor *compactor, struct spec_error *reterr)
{
    struct sc_store *store = compactor->store;
    pthread_mutex_lock(&store->disk.lock);
    bool takes = !compactor->runs && !compactor->closing;
    compactor->runs = compactor->runs || takes;
    pthread_mutex_unlock(&store->disk.lock);
    return takes ? SPEC_OK : sc_fail(reterr, SPEC_E_BUSY, "a compaction runs, or the store closes");
}

spec_status sc_store_compact_begin(struct sc_store *store, const struct sc_store_compact *what,
                                   struct spec_error *reterr)
{
    struct sc_store_compactor *compactor = store->compactor;
    if (compactor == NULL)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s is another's: only its writer merges",
                       store->dir);
    if (what->piece_count == 0 || what->piece_count > SC_LIMIT_CHUNK_TOKENS)
        return sc_fail(reterr, SPEC_E_INVALID, "a compaction of %" PRIu64 " pieces",
                       what->piece_count);
    spec_status status = compactor_take(compactor, reterr);
    if (status != SPEC_OK)
        return status;
    compactor->what = *what;
    memcpy(compactor->ids, what->pieces, what->piece_count * sizeof(*compactor->ids));
    compactor->what.pieces = compactor->ids;
    compactor->layer = 0;
    compactor->next = compactor->row = compactor->part_count = 0;
    compactor->state = READ;
    compactor->status = SPEC_OK;
    const struct sc_store_pass pass = {.pieces = &what->plan,
                                       .piece_count = 1,
                                       .provenance = what->provenance,
                                       .is_background = true,
                                       .user = compactor};
    status = memory_take(compactor, reterr);
    if (status == SPEC_OK)
        status = sc_store_extent_begin(store, &pass, &compactor->extent, reterr);
    if (status != SPEC_OK) {
        memory_free(compactor);
        pthread_mutex_lock(&store->disk.lock);
        compactor->runs = false;
        pthread_mutex_unlock(&store->disk.lock);
        return status;
    }
    compactor->extent->written = on_written;
    sc_store_write_through_layer_inherit(compactor->extent, compactor->slabs);
    atomic_fetch_add(&store->busy, 1);
    sc_exec_post(store->params.exec, &compactor->task, SC_IO_CLASS_BACKGROUND);
    return SPEC_OK;
}

spec_status sc_store_compactor_open(struct sc_store *store, struct spec_error *reterr)
{
    store->compactor = sc_alloc_zero(store->params.alloc, sizeof(*store->compactor));
    if (store->compactor == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what merges pieces");
    store->compactor->store = store;
    if (store->host != NULL)
        store->compactor->slabs = sc_alloc_array(store->params.alloc, store->shape.layer_count,
                                                 sizeof(struct sc_host_tier_memory_slab *));
    if (store->host != NULL && store->compactor->slabs == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what merges pieces");
    store->compactor->task.step = compact_step;
    store->compactor->back.store = store;
    store->compactor->back.task = &store->compactor->task;
    return SPEC_OK;
}

void sc_store_compactor_stop(struct sc_store *store)
{
    struct sc_store_compactor *compactor = store->compactor;
    if (compactor == NULL)
        return;
    pthread_mutex_lock(&store->disk.lock);
    compactor->closing = true;
    if (sc_exec_cancel(store->params.exec, &compactor->task)) /* ends a pause */
        sc_exec_post(store->params.exec, &compactor->task, SC_IO_CLASS_BACKGROUND);
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_compactor_close(struct sc_store *store)
{
    if (store->compactor != NULL)
        sc_alloc_free(store->params.alloc, store->compactor->slabs);
    sc_alloc_free(store->params.alloc, store->compactor);
    store->compactor = NULL;
}

spec_status sc_store_extent_sync(struct sc_store_extent *extent, struct spec_error *reterr)
{
    return sc_store_tier_sync(extent->store, extent->parts, extent->part_count, reterr);
}
