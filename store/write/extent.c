/* extent: begins extents, ends their writes, and ends or discards them.
 *
 *   free  --begin-->  taken, places reserved  --last reference-->  on_written  --commit, discard-->
 *   ^                                                                                             |
 *   +---------------------------------------------------------------------------------------------+
 *
 * Invariants: an object has its places from begin until it is committed or discarded. on_written
 * runs once per begin. Nothing is allocated.
 * Threads: one producer per extent; completions: the executor's.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#include "store/write/extent.h"

#include "store/log/identity.h"
#include "store/rows/quant_blocks.h"
#include "store/write/inline_quant.h"
#include "store/write/write_through.h"

#include <string.h>

#define LOOK_NS UINT64_C(1000000) /* polling interval of a wait for a frame */

struct sc_store_write *sc_store_write_await(struct sc_store_extent *extent, uint64_t leaves,
                                            uint64_t until_ns)
{
    struct sc_store *store = extent->store;
    struct sc_exec *exec = store->params.exec;
    struct sc_store_write *write = NULL;
    atomic_fetch_add(&store->writing.waiters, 1);
    while (write == NULL && atomic_load(&extent->status) == SPEC_OK) {
        uint32_t seen = atomic_load(&store->writing.word);
        uint64_t now_ns = sc_exec_now_ns(exec);
        write = sc_store_write_take(store, leaves);
        if (now_ns >= until_ns || (write == NULL && sc_store_write_queue_is_stuck(extent, leaves)))
            break;
        if (write == NULL) /* a load that returns a frame wakes nobody */
            (void)sc_exec_wait(exec, &store->writing.word, seen,
                               until_ns - now_ns < LOOK_NS ? until_ns : now_ns + LOOK_NS);
    }
    atomic_fetch_sub(&store->writing.waiters, 1);
    return write;
}

static void finish_step(struct sc_task *task)
{
    struct sc_store_extent *extent =
        (struct sc_store_extent *)((char *)task - offsetof(struct sc_store_extent, finish));
    struct sc_store *store = extent->store;
    sc_store_write_budget_move(store, -(int64_t)extent->due_bytes);
    extent->due_bytes = 0;
    if (extent->written != NULL)
        extent->written(extent, atomic_load(&extent->status), extent->user);
    else
        store->params.on_written(extent, atomic_load(&extent->status), extent->user,
                                 store->params.user);
    sc_store_busy_end(store);
}

void sc_store_write_done(struct sc_store_write *write)
{
    struct sc_store_extent *extent = write->extent;
    struct sc_store *store = extent->store;
    if (write->op.status != SPEC_OK) {
        sc_store_extent_fail(extent, write->op.status);
        sc_store_count(write->op.status == SPEC_E_NO_SPACE ? &store->counts.no_space
                                                           : &store->counts.io_errors,
                       1);
        if (write->op.status != SPEC_E_NO_SPACE || write->op.sys_errno != 0) {
            sc_store_pause(store, write->op.status, "writing a segment");
            sc_store_segment_avoid(store, write->segment);
        } /* else its file could not be created; it is not tried again */
    }
    bool is_queued = write->is_queued;
    uint64_t bytes = write->op.bytes;
    sc_store_write_through_layer_window(extent, write);
    sc_store_write_put(store, write);
    sc_store_extent_unref(extent);
    if (is_queued) {
        sc_store_write_queue_written(store, bytes);
        sc_store_write_queue_feed(store);
    }
    sc_store_busy_end(store);
}

uint64_t sc_store_op_bytes(const struct sc_store *store)
{
    return store->limits.op_bytes;
}

uint64_t sc_store_extent_rows_max(const struct sc_store *store)
{
    return store->limits.rows_max;
}

uint64_t sc_store_probe_row_bytes(const struct sc_store *store)
{
    return store->params.probe_row_bytes;
}

/* Checks the plan. Returns its rows and the most log bytes of its records. */
static spec_status plan_check(const struct sc_store *store, const struct sc_store_pass *pass,
                              uint64_t *ret_rows, uint64_t *ret_log_bytes,
                              struct spec_error *reterr)
{
    uint64_t rows = 0, log_bytes = 0;
    if (pass->piece_count == 0 || pass->piece_count > store->limits.pieces_max)
        return sc_fail(reterr, pass->piece_count == 0 ? SPEC_E_INVALID : SPEC_E_BUSY,
                       "%" PRIu64 " pieces, an extent takes 1 to %" PRIu64, pass->piece_count,
                       store->limits.pieces_max);
    for (uint64_t i = 0; i < pass->piece_count; i++) {
        const struct sc_store_piece_plan *piece = &pass->pieces[i];
        uint64_t lead = piece->first_position - piece->chunk_first;
        if (piece->row_count == 0 || piece->first_position > SC_STORE_POSITION_MAX ||
            piece->chunk_first > piece->first_position ||
            lead + piece->row_count > SC_STORE_ROWS_MAX ||
            (i > 0 && piece->first_position != piece[-1].first_position + piece[-1].row_count))
            return sc_fail(reterr, SPEC_E_INVALID, "piece %" PRIu64 " of a plan: rows or positions",
                           i);
        rows += piece->row_count;
        log_bytes += sc_store_record_bytes_piece(lead + piece->row_count, 0) + SC_STORE_DROP_BYTES;
    }
    if (rows > store->limits.rows_max)
        return sc_fail(reterr, SPEC_E_INVALID, "%" PRIu64 " rows, an extent takes %" PRIu64, rows,
                       store->limits.rows_max);
    *ret_rows = rows;
    *ret_log_bytes = log_bytes;
    return SPEC_OK;
}

static spec_status object_take(struct sc_store *store, const struct sc_store_pass *pass,
                               struct sc_store_extent **ret_extent, struct spec_error *reterr)
{
    /* Beside other members an erasure waits, and covers what is stored until it has run. */
    if (sc_store_erasures_pend(store) ||
        (sc_store_is_member(store) && sc_store_erases(store, &pass->salt)))
        return sc_fail(reterr, SPEC_E_BUSY, "%s: an erasure runs", store->dir);
    struct sc_store_extent *extent = sc_store_extent_take(store, pass->order == 0);
    if (extent == NULL)
        return sc_fail(reterr, SPEC_E_BUSY, "%" PRIu64 " extents are being written already",
                       store->writing.extent_max);
    extent->copy = sc_store_copy_next(store);
    extent->provenance = pass->provenance;
    extent->salt = pass->salt;
    extent->is_background = pass->is_background;
    extent->user = pass->user;
    extent->share = pass->share;
    extent->order = pass->order;
    extent->is_part = pass->is_part;
    extent->is_firm = pass->is_firm;
    extent->queued = (struct sc_store_queued){0};
    extent->is_section = extent->is_raw = false;
    extent->quant_stride = 0;
    extent->codec_shape = (struct sc_store_codec_shape){0};
    extent->slots = NULL;
    extent->written = NULL;
    extent->keeps = extent->is_heir = extent->inherits = false; /* left by the previous user */
    extent->slabs = NULL;
    extent->live = NULL;
    memcpy(extent->pieces, pass->pieces, pass->piece_count * sizeof(*pass->pieces));
    extent->piece_count = (uint32_t)pass->piece_count;
    *ret_extent = extent;
    return SPEC_OK;
}

/* Sets is_begun unless an erasure has begun since object_take. Later erasures prevent the
 * commit. */
static bool extent_is_begun(struct sc_store *store, struct sc_store_extent *extent)
{
    pthread_mutex_lock(&store->disk.lock);
    bool begins = !sc_store_erasures_pend(store);
    extent->is_begun = begins;
    atomic_store(&extent->is_erased, false);
    pthread_mutex_unlock(&store->disk.lock);
    return begins;
}

/* Reserves the object's places. On failure it is free again. */
static spec_status extent_start(struct sc_store *store, struct sc_store_extent *extent,
                                struct spec_error *reterr)
{
    spec_status status =
        sc_store_extent_alloc(store, extent->place.stride, extent->log_bytes, extent->quant_stride,
                              extent->parts, &extent->part_count, reterr);
    extent->is_placed = status == SPEC_OK;
    if (status == SPEC_OK && !extent_is_begun(store, extent)) {
        sc_store_extent_leave(extent);
        sc_store_extent_free(store, extent->parts, extent->part_count, extent->place.stride,
                             extent->log_bytes);
        sc_store_quant_due_give(store, extent->quant_stride);
        status = sc_fail(reterr, SPEC_E_BUSY, "%s: an erasure runs", store->dir);
    }
    if (status != SPEC_OK) {
        sc_store_extent_put(extent);
        return status;
    }
    extent->due_bytes =
        sc_store_parts_bytes(extent->parts, extent->part_count, extent->place.stride);
    sc_store_write_budget_move(store, (int64_t)extent->due_bytes);
    extent->layer_next = 0;
    extent->ended = false;
    extent->window_count = extent->ready_count = 0;
    extent->finish = (struct sc_task){.step = finish_step};
    atomic_store(&extent->pending, 1);
    atomic_store(&extent->status, SPEC_OK);
    return SPEC_OK;
}

spec_status sc_store_extent_begin(struct sc_store *store, const struct sc_store_pass *pass,
                                  struct sc_store_extent **ret_extent, struct spec_error *reterr)
{
    struct sc_store_extent *extent = NULL;
    uint64_t rows = 0, log_bytes = 0;
    if (!sc_store_can_store(store))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s is another's: only its writer stores",
                       store->dir);
    spec_status status = plan_check(store, pass, &rows, &log_bytes, reterr);
    if (status == SPEC_OK)
        status = object_take(store, pass, &extent, reterr);
    if (status != SPEC_OK)
        return status;
    extent->probe_row_bytes = store->params.probe_row_bytes;
    extent->place = sc_store_shape_place(&store->shape, extent->probe_row_bytes, rows);
    extent->row_count = rows;
    extent->log_bytes = log_bytes +
                        sc_store_record_bytes_space(strlen(store->params.space.descriptor)) +
                        sc_store_record_bytes_parts(store->shape.layer_count);
    extent->quant_stride = sc_store_quant_layer_new(store, pass->pieces[0].first_position, rows);
    status = extent_start(store, extent, reterr);
    if (status != SPEC_OK)
        return status;
    sc_store_write_through_layer_begin(extent);
    extent->live = sc_store_inline_quant_begin(store, extent);
    if (extent->share != NULL)
        sc_store_write_queue_begin(extent);
    *ret_extent = extent;
    return SPEC_OK;
}

spec_status sc_store_section_begin(struct sc_store *store, const struct sc_store_pass *pass,
                                   const struct sc_store_section_form *form,
                                   sc_store_written *written, struct sc_store_extent **ret_section,
                                   struct spec_error *reterr)
{
    struct sc_store_extent *derived = NULL;
    uint64_t rows = 0, raw_bytes = form->raw_bytes;
    for (uint64_t i = 0; i < pass->piece_count; i++)
        rows += pass->pieces[i].row_count;
    if (pass->piece_count > store->limits.pieces_max)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%" PRIu64 " pieces, at most %" PRIu64,
                       pass->piece_count, store->limits.pieces_max);
    spec_status status = object_take(store, pass, &derived, reterr);
    if (status != SPEC_OK)
        return status;
    derived->is_section = true;
    derived->is_raw = raw_bytes > 0;
    derived->slots = form->slots;
    uint64_t bytes = store->params.probe_row_bytes, end = sc_store_up(rows * bytes, 8) + rows * 8;
    if (derived->is_raw)
        end = raw_bytes;
    if (derived->is_raw && form->slots == NULL)
        derived->codec_shape = store->params.codes.shape;
    derived->probe_row_bytes = derived->is_raw ? 0 : bytes;
    derived->place =
        (struct sc_store_place){.probe_tag_offset = derived->is_raw ? 0 : end - rows * 8,
                                .tag_offset = end,
                                .row_offset = end,
                                .stride = sc_store_up(end, 64)};
    derived->row_count = rows;
    derived->log_bytes = sc_store_record_bytes_parts(store->shape.layer_count);
    if (form->slots != NULL) {
        derived->permutation_place = form->place;
        derived->place.stride = form->place.stride;
        derived->log_bytes += sc_store_record_bytes_permutation(rows, store->shape.layer_count);
    }
    derived->written = written;
    derived->is_background = true;
    status = extent_start(store, derived, reterr);
    if (status == SPEC_OK)
        *ret_section = derived;
    return status;
}

void sc_store_extent_discard(struct sc_store_extent *extent)
{
    SC_ASSERT(extent->store->params.poison, extent->ended && atomic_load(&extent->pending) == 0);
    sc_store_write_through_layer_end(extent, 0, 0, 0);
    sc_store_inline_quant_end(extent->live, 0);
    sc_store_extent_leave(extent);
    sc_store_extent_free(extent->store, extent->parts, extent->is_handed ? 0 : extent->part_count,
                         extent->place.stride, extent->log_bytes);
    sc_store_extent_put(extent);
}

bool sc_store_extent_hand(struct sc_store *store, uint64_t copy)
{
    bool is_found = false;
    pthread_mutex_lock(&store->disk.lock);
    for (uint64_t i = 0; i < store->writing.extent_max && !is_found; i++) {
        struct sc_store_extent *extent = &store->writing.extents[i];
        is_found = extent->is_begun && !extent->is_section && extent->copy == copy;
        extent->is_handed = extent->is_handed || is_found;
    }
    pthread_mutex_unlock(&store->disk.lock);
    return is_found;
}

void sc_store_extents_retake(struct sc_store *store)
{
    for (uint64_t i = 0; i < store->writing.extent_max; i++) {
        const struct sc_store_extent *extent = &store->writing.extents[i];
        for (uint32_t part = 0; extent->is_placed && part < extent->part_count; part++) {
            uint64_t pages = sc_store_part_pages(&extent->parts[part], extent->place.stride);
            bool fits =
                sc_store_space_take_at(&store->disk.space, extent->parts[part].segment,
                                       extent->parts[part].offset / SC_IO_PAGE_BYTES, pages);
            SC_ASSERT(store->params.poison, fits);
            store->disk.extent_bytes += fits ? pages * SC_IO_PAGE_BYTES : 0;
        }
    }
}
