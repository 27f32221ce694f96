/* pack: packs and tags the layers of an extent into frames, in file order; the producer's side.
 *
 *   file      |--- layer 0 ---|--- layer 1 ---|--- layer 2 ...        a part: layers without gaps
 *             [tags|pad| rows |tags|pad| rows | ...                 probe rows in front of tags
 *   windows   [    0     |     1     |     2    | ...                 a frame each
 *
 * Windows are filled in turn from the part's beginning. The last of a part is shorter, and so is
 * one that was cut because the device was idle. Tags precede their rows but are known after them.
 * So the windows with a layer's tags (at most two: tags are <= op_bytes) stay open until the layer
 * is packed. The last window stays open between layers, because the next layer begins in the same
 * page.
 *
 * Invariants: every byte of a part is written exactly once. Nothing is allocated.
 * Threads: one producer per extent; writes complete on the executor's (sc_store_write_done).
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#include "store/rows/tag.h"
#include "store/log/where.h"
#include "store/space/tier.h"
#include "store/write/extent.h"
#include "store/write/inline_quant.h"
#include "store/write/write_through.h"

#include <string.h>

#define PAGE         ((uint64_t)SC_IO_PAGE_BYTES)
#define CUT_LEAST    (16 * PAGE)
#define TAGS_AT_ONCE 256u /* made in a local array, then copied */

/* ---- Windows -------------------------------------------------------------------------------- */

static void on_write_done(struct sc_io_op *op)
{
    sc_store_write_done((struct sc_store_write *)op->user);
}

static void ready_submit(struct sc_store_extent *extent)
{
    if (extent->share != NULL)
        sc_store_write_queue_push(extent, extent->ready, extent->ready_count);
    else
        sc_store_tier_fail(sc_store_tier_write(extent->store, extent->ready, extent->ready_count));
    extent->ready_count = 0;
}

/* Ends the producer's part: submits filled windows, returns open ones. */
static void producer_end(struct sc_store_extent *extent)
{
    ready_submit(extent);
    sc_store_write_queue_end(extent); /* from here on nobody else returns its windows */
    for (uint32_t i = 0; i < extent->window_count; i++) {
        sc_store_write_put(extent->store, extent->windows[i].write);
        sc_store_write_queue_holds(extent, -1);
    }
    extent->window_count = 0;
    extent->ended = true;
    sc_store_extent_unref(extent);
}

struct layer_job {
    struct sc_store_extent *extent;
    const struct sc_store_part *part;
    uint64_t start, tags_start, tags_end; /* file offsets; includes the tags of probe rows */
    uint32_t layer;
    const struct sc_store_source *source;
};

static enum sc_store_write_budget_kind kind_of(const struct sc_store_extent *extent)
{
    if (extent->is_section)
        return extent->slots != NULL ? SC_STORE_WRITTEN_PERMUTED : SC_STORE_WRITTEN_QUANT;
    return extent->written != NULL ? SC_STORE_WRITTEN_COMPACTION : SC_STORE_WRITTEN_ROWS;
}

static void window_submit(struct sc_store_extent *extent, const struct sc_store_window *window,
                          uint32_t segment)
{
    struct sc_store_write *write = window->write;
    write->extent = extent;
    write->segment = segment;
    write->op.offset = window->start;
    write->op.bytes = window->end - window->start;
    write->op.done = on_write_done;
    write->op.user = write;
    atomic_fetch_add(&extent->pending, 1);
    if (extent->share == NULL) { /* otherwise counted when it is submitted to the device */
        sc_store_write_counted(extent->store, kind_of(extent), write->op.bytes, 1);
        extent->due_bytes -= write->op.bytes;
    }
    extent->ready[extent->ready_count++] = write;
    if (extent->ready_count == SC_STORE_EXTENT_READY)
        ready_submit(extent);
}

/* Submits windows that end at or before `filled`, except those with tags. */
static void windows_flush(struct sc_store_extent *extent, const struct layer_job *job,
                          uint64_t filled)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < extent->window_count; i++) {
        const struct sc_store_window *window = &extent->windows[i];
        bool tags = window->start < job->tags_end && window->end > job->tags_start;
        if (!tags && window->end <= filled)
            window_submit(extent, window, job->part->segment);
        else
            extent->windows[kept++] = *window;
    }
    extent->window_count = kept;
}

static struct sc_store_window *window_find(struct sc_store_extent *extent, uint64_t offset)
{
    for (uint32_t i = extent->window_count; i-- > 0;)
        if (extent->windows[i].start <= offset && offset < extent->windows[i].end)
            return &extent->windows[i];
    return NULL;
}

/* Takes a frame, if necessary by cancelling another extent. */
static struct sc_store_write *frame_take(struct sc_store_extent *extent)
{
    uint64_t leaves = sc_store_write_queue_leaves(extent);
    struct sc_store_write *write;
    do {
        if (atomic_load(&extent->status) != SPEC_OK) /* it was cancelled, or a write failed */
            return NULL;
        write = sc_store_write_take(extent->store, leaves);
        if (write == NULL && extent->wait_until_ns > 0)
            write = sc_store_write_await(extent, leaves, extent->wait_until_ns);
    } while (write == NULL && sc_store_write_queue_make_room(extent));
    if (write != NULL)
        sc_store_write_queue_holds(extent, 1);
    return write;
}

/* Returns the window of the offset, opened if necessary; NULL if staging is full. */
static struct sc_store_window *window_at(struct sc_store_extent *extent,
                                         const struct sc_store_part *part, uint64_t offset)
{
    struct sc_store *store = extent->store;
    struct sc_store_window *window = window_find(extent, offset);
    if (window != NULL)
        return window;
    SC_ASSERT(store->params.poison, extent->window_count < SC_STORE_EXTENT_WINDOWS);
    if (extent->window_count == SC_STORE_EXTENT_WINDOWS)
        return NULL;
    uint64_t part_end = part->offset + sc_store_part_pages(part, extent->place.stride) * PAGE;
    uint64_t bytes = sc_staging_frame_bytes(store->frames);
    uint64_t start = extent->windows_base + (offset - extent->windows_base) / bytes * bytes;
    uint64_t end = start + bytes;
    struct sc_store_write *write = frame_take(extent);
    if (write == NULL) {
        sc_store_count(&store->counts.stage_full, 1);
        return NULL;
    }
    window = &extent->windows[extent->window_count++];
    *window = (struct sc_store_window){
        .write = write, .start = start, .end = end < part_end ? end : part_end};
    sc_store_inline_quant_window(extent->live, write->op.buffer, part, window->start, window->end);
    return window;
}

static uint8_t *window_byte(const struct sc_store_window *window, uint64_t offset)
{
    return window->write->op.buffer + (offset - window->start);
}

/* Copies bytes (NULL: zeros) to a file offset, across windows. */
static bool windows_copy(struct sc_store_extent *extent, const struct sc_store_part *part,
                         uint64_t offset, const uint8_t *bytes, uint64_t count)
{
    while (count > 0) {
        struct sc_store_window *window = window_at(extent, part, offset);
        if (window == NULL)
            return false;
        uint64_t now = window->end - offset < count ? window->end - offset : count;
        if (bytes != NULL)
            memcpy(window_byte(window, offset), bytes, now);
        else
            memset(window_byte(window, offset), 0, now);
        bytes = bytes != NULL ? bytes + now : NULL;
        offset += now;
        count -= now;
    }
    return true;
}

/* ---- Packing a layer ------------------------------------------------------------------------ */

/* Items of a piece: contiguous, with a tag every tag_step bytes. */
struct items {
    uint32_t part;
    uint64_t bytes, at, tags, tag_step; /* bytes per item; file offsets of the piece's first */
};

static bool tags_put(const struct layer_job *job, const struct items *items, const uint64_t *tags,
                     uint64_t item_first, uint64_t count)
{
    uint64_t at = items->tags + item_first * items->tag_step;
    if (items->tag_step == 8)
        return windows_copy(job->extent, job->part, at, (const uint8_t *)tags, count * 8);
    for (uint64_t i = 0; i < count; i++)
        if (!windows_copy(job->extent, job->part, at + i * items->tag_step,
                          (const uint8_t *)&tags[i], 8))
            return false;
    return true;
}

/* Consecutive items from the extent's row `row` on, packed to dst; `tagged` describes them. */
struct pack_run {
    struct sc_store_tag_rows tagged;
    uint64_t row;
    uint8_t *dst;
};

/* Packs a bite at a time, so that items are cached when their tags are computed. */
static void items_pack(const struct layer_job *job, const struct items *items,
                       const struct pack_run *run, uint64_t *ret_tags)
{
    const struct sc_store_source *source = job->source;
    uint64_t bite = SC_STORE_BITE_BYTES / items->bytes > 0 ? SC_STORE_BITE_BYTES / items->bytes : 1;
    bite = bite > source->rows_least ? bite : source->rows_least;
    struct sc_store_tag_rows tagged = run->tagged;
    for (uint64_t done = 0; done < run->tagged.count; done += tagged.count) {
        uint64_t left = run->tagged.count - done;
        uint8_t *dst = run->dst + done * items->bytes;
        tagged.count = left < bite ? left : bite;
        tagged.position_first = run->tagged.position_first + done;
        source->pack(source->user, items->part, run->row + done, tagged.count, dst);
        sc_store_tag_make(&tagged, dst, ret_tags + done);
    }
}

/* Packs rows from spans: copies and tags them in one pass. */
static void items_gather(const struct layer_job *job, const struct items *items,
                         const struct pack_run *run, uint64_t *ret_tags)
{
    uint8_t *spans[SC_STORE_SPANS_MAX];
    const struct sc_store_source *source = job->source;
    uint64_t row_spans = job->extent->store->shape.row_bytes / source->span_bytes;
    uint64_t most = SC_STORE_SPANS_MAX / row_spans;
    const struct sc_store_tag_spans from = {
        .at = spans + (items->part == SC_STORE_PART_V ? row_spans / 2 : 0),
        .bytes = source->span_bytes,
        .step = row_spans};
    struct sc_store_tag_rows tagged = run->tagged;
    for (uint64_t done = 0; done < run->tagged.count; done += tagged.count) {
        uint64_t left = run->tagged.count - done;
        tagged.count = left < most ? left : most;
        tagged.position_first = run->tagged.position_first + done;
        source->spans(source->user, run->row + done, tagged.count, spans);
        sc_store_tag_gather(&tagged, &from, run->dst + done * items->bytes, ret_tags + done);
    }
}

/* Packs whole items into their window, and one that straddles through the bounce buffer. */
static bool pack_items(const struct layer_job *job, const struct sc_store_piece_plan *piece,
                       uint64_t extent_row, const struct items *items)
{
    struct sc_store_extent *extent = job->extent;
    uint64_t tags[TAGS_AT_ONCE];
    struct pack_run run = {
        .tagged = {.base = sc_store_tag_base(extent->store->shape.digest, piece->hash, extent->copy,
                                             job->layer, items->part),
                   .row_bytes = items->bytes,
                   .tag_step = 1}};
    bool gathers = items->part != SC_STORE_PART_PROBE && job->source->spans != NULL;
    for (uint64_t row = 0; row < piece->row_count;) {
        uint64_t offset = items->at + row * items->bytes;
        windows_flush(extent, job, offset);
        struct sc_store_window *window = window_at(extent, job->part, offset);
        if (window == NULL)
            return false;
        uint64_t left = piece->row_count - row, fit = (window->end - offset) / items->bytes;
        bool straddles = fit == 0;
        uint64_t count = straddles ? 1 : fit < left ? fit : left;
        count = count < TAGS_AT_ONCE ? count : TAGS_AT_ONCE;
        run.tagged.position_first = piece->first_position + row;
        run.tagged.count = count;
        run.row = extent_row + row;
        run.dst = straddles ? extent->bounce : window_byte(window, offset);
        (gathers ? items_gather : items_pack)(job, items, &run, tags);
        if (straddles && !windows_copy(extent, job->part, offset, run.dst, items->bytes))
            return false;
        if (!tags_put(job, items, tags, row, count))
            return false;
        row += count;
    }
    return true;
}

static bool pack_probes(const struct layer_job *job)
{
    struct sc_store_extent *extent = job->extent;
    const struct sc_store_place *place = &extent->place;
    uint64_t bytes = extent->probe_row_bytes, extent_row = 0;
    for (uint32_t i = 0; i < extent->piece_count; i++) {
        const struct items probes = {.part = SC_STORE_PART_PROBE,
                                     .bytes = bytes,
                                     .at = job->start + extent_row * bytes,
                                     .tags = job->start + place->probe_tag_offset + extent_row * 8,
                                     .tag_step = 8};
        if (!pack_items(job, &extent->pieces[i], extent_row, &probes))
            return false;
        extent_row += extent->pieces[i].row_count;
    }
    uint64_t end = extent->row_count * bytes;
    windows_flush(extent, job, job->start + end);
    return windows_copy(extent, job->part, job->start + end, NULL, place->probe_tag_offset - end);
}

static bool pack_piece(const struct layer_job *job, const struct sc_store_piece_plan *piece,
                       uint64_t extent_row)
{
    const struct sc_store_extent *extent = job->extent;
    const struct sc_store_shape *shape = &extent->store->shape;
    uint64_t slab = job->start + extent->place.row_offset + extent_row * shape->row_bytes;
    uint64_t tag_bytes = 8ull * shape->tags_per_row;
    uint64_t tags = job->start + extent->place.tag_offset + extent_row * tag_bytes;
    struct items items = {SC_STORE_PART_ROW, shape->row_bytes, slab, tags, tag_bytes};
    if (shape->layout != SC_STORE_SPLIT)
        return pack_items(job, piece, extent_row, &items);
    items.part = SC_STORE_PART_K;
    items.bytes = shape->k_row_bytes;
    if (!pack_items(job, piece, extent_row, &items))
        return false;
    items.part = SC_STORE_PART_V;
    items.at += piece->row_count * items.bytes;
    items.tags += 8;
    return pack_items(job, piece, extent_row, &items);
}

/* 0 in a derived section. */
static uint64_t row_bytes_of(const struct sc_store_extent *extent)
{
    return extent->is_section ? 0 : extent->store->shape.row_bytes;
}

static uint64_t tag_bytes_of(const struct sc_store_extent *extent)
{
    return extent->is_section ? 0 : 8ull * extent->store->shape.tags_per_row;
}

static bool pack_rows(const struct layer_job *job)
{
    struct sc_store_extent *extent = job->extent;
    uint64_t extent_row = 0;
    for (uint32_t i = 0; i < extent->piece_count && !extent->is_section; i++) {
        if (!pack_piece(job, &extent->pieces[i], extent_row))
            return false;
        extent_row += extent->pieces[i].row_count;
    }
    return true;
}

/* Packs a raw section (quantised rows, or a permuted copy): a layer's bytes as they are. */
static bool pack_raw(const struct layer_job *job)
{
    struct sc_store_extent *extent = job->extent;
    uint64_t bytes = extent->place.row_offset;
    for (uint64_t done = 0, now; done < bytes; done += now) {
        windows_flush(extent, job, job->start + done);
        struct sc_store_window *window = window_at(extent, job->part, job->start + done);
        if (window == NULL)
            return false;
        now = window->end - (job->start + done);
        now = now < bytes - done ? now : bytes - done;
        job->source->pack(job->source->user, SC_STORE_PART_K_QUANT, done, now,
                          window_byte(window, job->start + done));
    }
    return true;
}

static bool pack_layer(const struct layer_job *job)
{
    struct sc_store_extent *extent = job->extent;
    const struct sc_store_place *place = &extent->place;
    if (extent->is_raw && !pack_raw(job))
        return false;
    uint64_t rows = job->start + place->row_offset;
    uint64_t rows_end = rows + extent->row_count * row_bytes_of(extent);
    if (extent->probe_row_bytes > 0 && !pack_probes(job))
        return false;
    if (!windows_copy(extent, job->part, job->tags_end, NULL, rows - job->tags_end) ||
        !pack_rows(job))
        return false;
    windows_flush(extent, job, rows_end);
    uint64_t end = job->start + place->stride;
    uint64_t part_end = job->part->offset + sc_store_part_pages(job->part, place->stride) * PAGE;
    bool last = job->layer + 1 == job->part->layer_first + job->part->layer_count;
    end = last ? part_end : end;
    if (!windows_copy(extent, job->part, rows_end, NULL, end - rows_end))
        return false;
    struct layer_job done = *job;
    done.tags_end = 0;
    windows_flush(extent, &done, end);
    return true;
}

/* Ends the extent and returns its failure. */
static spec_status put_failed(struct sc_store_extent *extent, struct spec_error *reterr)
{
    spec_status status = atomic_load(&extent->status);
    uint64_t staging_bytes = extent->store->params.config->staging_bytes;
    producer_end(extent); /* the handle may be reused from here on */
    if (status == SPEC_E_BUSY)
        return sc_fail(reterr, status, "staging is full (staging_bytes %" PRIu64 ")",
                       staging_bytes);
    return sc_fail(reterr, status, "an earlier write of this extent failed");
}

/* Between layers of a large pass, if the device is idle: writes the whole pages of the last window.
 * The page in which the next layer begins moves to a new window. */
static void last_window_cut(const struct layer_job *job)
{
    struct sc_store_extent *extent = job->extent;
    struct sc_store *store = extent->store;
    struct sc_store_window *window = &extent->windows[0], first = *window;
    uint64_t filled = job->start + extent->place.stride, cut = sc_store_down(filled, PAGE);
    if (!extent->is_part || extent->window_count != 1 || cut < first.start + CUT_LEAST ||
        cut >= first.end || !sc_store_write_queue_is_idle(store))
        return;
    struct sc_store_write *write = sc_store_write_take(store, sc_store_write_queue_leaves(extent));
    if (write == NULL)
        return;
    sc_store_write_queue_holds(extent, 1);
    memcpy(write->op.buffer, window_byte(&first, cut), filled - cut);
    window->write = write;
    window->start = extent->windows_base = cut;
    uint64_t part_end =
        job->part->offset + sc_store_part_pages(job->part, extent->place.stride) * PAGE;
    window->end = cut + sc_staging_frame_bytes(store->frames);
    window->end = window->end < part_end ? window->end : part_end;
    sc_store_inline_quant_window_cut(extent->live, first.write->op.buffer, cut - first.start);
    sc_store_inline_quant_window(extent->live, write->op.buffer, job->part, cut, window->end);
    first.end = cut;
    window_submit(extent, &first, job->part->segment);
}

spec_status sc_store_extent_put_layer(struct sc_store_extent *extent, uint32_t layer,
                                      const struct sc_store_source *source,
                                      struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    SC_ASSERT(store->params.poison, !extent->ended);
    if (layer != extent->layer_next) {
        uint32_t expected = extent->layer_next;
        sc_store_extent_fail(extent, SPEC_E_DROPPED);
        producer_end(extent);
        return sc_fail(reterr, SPEC_E_INVALID, "layer %" PRIu32 ", expected %" PRIu32, layer,
                       expected);
    }
    const struct sc_store_part *part = sc_store_part_of(extent->parts, extent->part_count, layer);
    struct layer_job job = {.extent = extent,
                            .part = part,
                            .start = sc_store_part_at(part, extent->place.stride, layer),
                            .layer = layer,
                            .source = source};
    job.tags_end = job.start + extent->place.tag_offset + extent->row_count * tag_bytes_of(extent);
    job.tags_start = job.start + (extent->probe_row_bytes > 0 ? extent->place.probe_tag_offset
                                                              : extent->place.tag_offset);
    extent->wait_until_ns = source->wait_until_ns;
    if (layer == part->layer_first)
        extent->windows_base = part->offset;
    if (!sc_store_write_queue_layer_begin(extent))
        return put_failed(extent, reterr);
    spec_status status = atomic_load(&extent->status);
    if (status == SPEC_OK)
        sc_store_write_through_layer_layer(extent, layer);
    bool is_packed = status == SPEC_OK && pack_layer(&job);
    if (status == SPEC_OK && !is_packed) /* keeps an earlier failure or cancel */
        sc_store_extent_fail(extent, SPEC_E_BUSY);
    if (is_packed) {
        last_window_cut(&job);
        ready_submit(extent);
    }
    bool is_last = layer + 1 == store->shape.layer_count;
    if (!sc_store_write_queue_layer_end(extent, is_packed && is_last) || !is_packed)
        return put_failed(extent, reterr);
    sc_store_inline_quant_packed(extent->live);
    extent->layer_next++;
    if (is_last)
        producer_end(extent);
    return SPEC_OK;
}

void sc_store_extent_abort(struct sc_store_extent *extent)
{
    SC_ASSERT(extent->store->params.poison, !extent->ended);
    sc_store_extent_fail(extent, SPEC_E_DROPPED);
    producer_end(extent);
}
