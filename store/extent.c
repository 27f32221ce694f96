/* Writing: one pass's rows, packed into frames in file order, tagged on the way, committed by one
 * append to the log.
 *
 *   file      |--- layer 0 ---|--- layer 1 ---|--- layer 2 ...        a part: layers without gaps
 *             [tags|pad| rows |tags|pad| rows | ...                 probe rows in front of tags
 *   windows   [    0     |     1     |     2    | ...                 op_bytes of the file each
 *
 * Windows are op_bytes on op_bytes borders of the segment, cut at the part's ends. One is filled
 * after the other. Tags of rows stand before them and are known after them, so the windows that
 * hold a layer's tags (at most two: tags, those of probe rows too, are <= op_bytes) stay open until
 * the layer is packed. The last window stays open between layers, because the next layer begins in
 * the same page.
 *
 * An extent has `pending` references: one of its producer, one a write. on_written runs, on an
 * executor thread, when the last is gone: after put_layer of the last layer, after a put_layer that
 * failed, or after abort, and never before; so the producer's handle stays good.
 *
 * Holds: every byte of a part is written exactly once; no byte of an extent is in the log before
 * all its writes completed.
 * Does not: wait, allocate after open (but for table slabs in commit), order its writes.
 * Threads: one producer an extent; completions on the executor's.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#include "store/coding.h"
#include "store/device.h"

#include "store/tag.h"

#include <string.h>

#define PAGE         ((uint64_t)SC_IO_PAGE_BYTES)
#define READY        4u   /* windows that are queued by one call: half of what is in flight */
#define WINDOWS      4u   /* two with tags, the current one, one that a row straddles into */
#define TAGS_AT_ONCE 256u /* computed into a local array, then copied in */

struct window {
    struct sc_store_write *write;
    uint64_t start, end; /* bytes of the segment file */
};

struct sc_store_extent {
    /* Set by open, constant after. */
    struct sc_store *store;
    struct sc_store_piece_plan *pieces; /* [pieces_max] */
    struct sc_store_part *parts;        /* [layer_count] */
    struct sc_store_part *record_parts; /* likewise, with file numbers: for commit */
    uint8_t *bounce;                    /* a row that straddles two windows */
    struct sc_store_extent *next;       /* free list: space lock */

    /* Set by begin, constant until it is free again. */
    uint32_t piece_count, part_count;
    uint64_t row_count, probe_row_bytes, log_bytes;
    struct sc_store_place place;
    struct sc_store_provenance provenance;
    void *user;
    uint64_t annex_of; /* not 0: an annex to this extent: probe rows alone, or codes */
    struct sc_store_code_shape code_shape; /* of an annex; bits_k 0: probe rows */
    struct sc_store_coder *coder;          /* of rows; NULL: nobody codes them now */
    void (*written)(struct sc_store_extent *extent, spec_status status, void *user);

    /* The producer's. */
    uint32_t layer_next;
    bool ended; /* the producer's reference is gone */
    struct window windows[WINDOWS];
    uint32_t window_count;
    struct sc_store_write *ready[READY]; /* filled, to be queued together */
    uint32_t ready_count;

    /* Any thread. */
    _Atomic uint32_t pending;
    _Atomic int32_t status; /* the first failure */
    struct sc_task finish;
};

/* ---- Pools ---------------------------------------------------------------------------------- */

/* All extents' arrays, each kind in one piece; extent 0 has the first of each. */
static bool arrays_take(struct sc_store *store)
{
    struct sc_alloc *alloc = store->params.alloc;
    struct sc_store_extent *first = &store->extents[0];
    uint64_t pieces = store->pieces_max, layers = store->shape.layer_count;
    uint64_t bounce = sc_store_up(store->shape.row_bytes, 64); /* a cache line has one owner */
    first->pieces = sc_alloc_array(alloc, store->extent_max * pieces, sizeof(*first->pieces));
    first->parts = sc_alloc_array(alloc, store->extent_max * layers, sizeof(*first->parts));
    first->record_parts =
        sc_alloc_array(alloc, store->extent_max * layers, sizeof(*first->record_parts));
    first->bounce = sc_alloc_array(alloc, store->extent_max, bounce);
    if (first->pieces == NULL || first->parts == NULL || first->record_parts == NULL ||
        first->bounce == NULL)
        return false;
    for (uint64_t i = 1; i < store->extent_max; i++) {
        struct sc_store_extent *extent = &store->extents[i];
        extent->pieces = first->pieces + i * pieces;
        extent->parts = first->parts + i * layers;
        extent->record_parts = first->record_parts + i * layers;
        extent->bounce = first->bounce + i * bounce;
    }
    return true;
}

spec_status sc_store_extents_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    store->extents = sc_alloc_array(alloc, store->extent_max, sizeof(*store->extents));
    store->writes = sc_alloc_array(alloc, store->write_max, sizeof(*store->writes));
    if (store->extents == NULL || store->writes == NULL || !arrays_take(store))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "pool of extents being written");
    for (uint64_t i = 0; i < store->write_max; i++) {
        store->writes[i].next = store->writes_free;
        store->writes_free = &store->writes[i];
    }
    for (uint64_t i = 0; i < store->extent_max; i++) {
        store->extents[i].store = store;
        store->extents[i].next = store->extents_free;
        store->extents_free = &store->extents[i];
    }
    return SPEC_OK;
}

bool sc_store_extents_idle(const struct sc_store *store)
{
    uint64_t free_count = 0;
    for (const struct sc_store_extent *extent = store->extents_free; extent != NULL;
         extent = extent->next)
        free_count++;
    return free_count == store->extent_max;
}

void sc_store_extents_close(struct sc_store *store)
{
    struct sc_alloc *alloc = store->params.alloc;
    if (store->extents != NULL) { /* the first of each is all of them */
        sc_alloc_free(alloc, store->extents[0].bounce);
        sc_alloc_free(alloc, store->extents[0].record_parts);
        sc_alloc_free(alloc, store->extents[0].parts);
        sc_alloc_free(alloc, store->extents[0].pieces);
    }
    sc_alloc_free(alloc, store->extents);
    sc_alloc_free(alloc, store->writes);
    store->extents = NULL;
    store->writes = NULL;
}

static struct sc_store_extent *extent_take(struct sc_store *store)
{
    pthread_mutex_lock(&store->space_lock);
    struct sc_store_extent *extent = store->extents_free;
    if (extent != NULL)
        store->extents_free = extent->next;
    pthread_mutex_unlock(&store->space_lock);
    return extent;
}

static void extent_put(struct sc_store_extent *extent)
{
    struct sc_store *store = extent->store;
    pthread_mutex_lock(&store->space_lock);
    extent->next = store->extents_free;
    store->extents_free = extent;
    pthread_mutex_unlock(&store->space_lock);
}

/* A frame with the operation that will carry it; NULL: staging is full. */
static struct sc_store_write *write_take(struct sc_store *store)
{
    uint8_t *frame = sc_store_coding_take(store);
    if (frame == NULL)
        return NULL;
    pthread_mutex_lock(&store->space_lock);
    struct sc_store_write *write = store->writes_free;
    if (write != NULL)
        store->writes_free = write->next;
    pthread_mutex_unlock(&store->space_lock);
    SC_ASSERT(store->params.poison, write != NULL); /* as many as frames */
    if (write == NULL) {
        sc_store_coding_put(store, frame);
        return NULL;
    }
    write->op = (struct sc_io_op){.buffer = frame, .kind = SC_IO_WRITE, .lane = SC_LANE_WRITER};
    return write;
}

static void write_put(struct sc_store *store, struct sc_store_write *write)
{
    sc_store_coding_put(store, write->op.buffer);
    pthread_mutex_lock(&store->space_lock);
    write->next = store->writes_free;
    store->writes_free = write;
    pthread_mutex_unlock(&store->space_lock);
}

/* ---- References ----------------------------------------------------------------------------- */

static void extent_fail(struct sc_store_extent *extent, spec_status status)
{
    int32_t none = SPEC_OK;
    (void)atomic_compare_exchange_strong(&extent->status, &none, status);
}

static void extent_unref(struct sc_store_extent *extent)
{
    struct sc_store *store = extent->store;
    if (atomic_fetch_sub(&extent->pending, 1) != 1)
        return;
    atomic_fetch_add(&store->busy, 1);
    sc_exec_post(store->params.exec, &extent->finish, SC_LANE_WRITER);
}

static void finish_step(struct sc_task *task)
{
    struct sc_store_extent *extent =
        (struct sc_store_extent *)((char *)task - offsetof(struct sc_store_extent, finish));
    struct sc_store *store = extent->store;
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
        extent_fail(extent, write->op.status);
        sc_store_count(write->op.status == SPEC_E_NO_SPACE ? &store->no_space : &store->io_errors,
                       1);
        sc_store_pause(store, write->op.status, "writing a segment");
        sc_store_segment_avoid(store, write->segment);
    }
    write_put(store, write);
    extent_unref(extent);
    sc_store_busy_end(store);
}

static void on_write_done(struct sc_io_op *op)
{
    sc_store_write_done((struct sc_store_write *)op->user);
}

static void ready_submit(struct sc_store_extent *extent)
{
    sc_store_writes_submit(extent->store, extent->ready, extent->ready_count);
    extent->ready_count = 0;
}

/* The producer is through: the windows that are still open are written, or given back. */
static void producer_end(struct sc_store_extent *extent)
{
    ready_submit(extent);
    for (uint32_t i = 0; i < extent->window_count; i++)
        write_put(extent->store, extent->windows[i].write);
    extent->window_count = 0;
    extent->ended = true;
    extent_unref(extent);
}

/* ---- Windows -------------------------------------------------------------------------------- */

struct layer_job {
    struct sc_store_extent *extent;
    const struct sc_store_part *part;
    uint64_t start, tags_start, tags_end; /* file offsets; the tags of probe rows too */
    uint32_t layer;
    sc_store_pack *pack;
    void *user;
};

static void window_submit(struct sc_store_extent *extent, const struct window *window,
                          uint32_t segment)
{
    struct sc_store *store = extent->store;
    struct sc_store_write *write = window->write;
    write->extent = extent;
    write->segment = segment;
    write->op.offset = window->start;
    write->op.bytes = window->end - window->start;
    write->op.done = on_write_done;
    write->op.user = write;
    atomic_fetch_add(&extent->pending, 1);
    sc_store_count(&store->write_bytes, write->op.bytes);
    sc_store_count(&store->write_ops, 1);
    extent->ready[extent->ready_count++] = write;
    if (extent->ready_count == READY)
        ready_submit(extent);
}

/* Writes the windows that end at or before `filled`, but for those that hold tags. */
static void windows_flush(struct sc_store_extent *extent, const struct layer_job *job,
                          uint64_t filled)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < extent->window_count; i++) {
        const struct window *window = &extent->windows[i];
        bool tags = window->start < job->tags_end && window->end > job->tags_start;
        if (!tags && window->end <= filled)
            window_submit(extent, window, job->part->segment);
        else
            extent->windows[kept++] = *window;
    }
    extent->window_count = kept;
}

static struct window *window_find(struct sc_store_extent *extent, uint64_t offset)
{
    for (uint32_t i = extent->window_count; i-- > 0;)
        if (extent->windows[i].start <= offset && offset < extent->windows[i].end)
            return &extent->windows[i];
    return NULL;
}

/* The window that holds the offset, opened if need be; NULL: staging is full. */
static struct window *window_at(struct sc_store_extent *extent, const struct sc_store_part *part,
                                uint64_t offset)
{
    struct sc_store *store = extent->store;
    struct window *window = window_find(extent, offset);
    if (window != NULL)
        return window;
    SC_ASSERT(store->params.poison, extent->window_count < WINDOWS);
    if (extent->window_count == WINDOWS)
        return NULL;
    uint64_t part_end = part->offset + sc_store_part_pages(part, extent->place.stride) * PAGE;
    uint64_t start = sc_store_down(offset, store->op_bytes);
    uint64_t end = start + store->op_bytes;
    struct sc_store_write *write = write_take(store);
    if (write == NULL) {
        sc_store_count(&store->stage_full, 1);
        return NULL;
    }
    window = &extent->windows[extent->window_count++];
    *window = (struct window){.write = write,
                              .start = start > part->offset ? start : part->offset,
                              .end = end < part_end ? end : part_end};
    sc_store_coder_window(extent->coder, write->op.buffer, part, window->start, window->end);
    return window;
}

static uint8_t *window_byte(const struct window *window, uint64_t offset)
{
    return window->write->op.buffer + (offset - window->start);
}

/* Copies bytes (NULL: zeros) to a file offset, through as many windows as it takes. */
static bool windows_copy(struct sc_store_extent *extent, const struct sc_store_part *part,
                         uint64_t offset, const uint8_t *bytes, uint64_t count)
{
    while (count > 0) {
        struct window *window = window_at(extent, part, offset);
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

/* What is packed of a piece: items one behind the other, their tags every tag_step bytes. */
struct items {
    uint32_t part;                      /* enum sc_store_tag_part */
    uint64_t bytes, at, tags, tag_step; /* of an item; file offsets of the piece's first */
};

/* Tags of `count` items at src, item_first and on. */
static bool tags_put(const struct layer_job *job, const struct items *items, uint64_t base,
                     uint64_t position, const uint8_t *src, uint64_t item_first, uint64_t count)
{
    uint64_t tags[TAGS_AT_ONCE];
    for (uint64_t done = 0; done < count;) {
        uint64_t now = count - done < TAGS_AT_ONCE ? count - done : TAGS_AT_ONCE;
        sc_store_tag_make(base, position + done, src + done * items->bytes, items->bytes,
                          items->bytes, now, tags, 1);
        uint64_t at = items->tags + (item_first + done) * items->tag_step;
        if (items->tag_step == 8) {
            if (!windows_copy(job->extent, job->part, at, (const uint8_t *)tags, now * 8))
                return false;
        } else {
            for (uint64_t i = 0; i < now; i++)
                if (!windows_copy(job->extent, job->part, at + i * items->tag_step,
                                  (const uint8_t *)&tags[i], 8))
                    return false;
        }
        done += now;
    }
    return true;
}

/* Whole items go straight into their window; one that straddles goes through the bounce buffer. */
static bool pack_items(const struct layer_job *job, const struct sc_store_piece_plan *piece,
                       uint64_t extent_row, const struct items *items)
{
    struct sc_store_extent *extent = job->extent;
    uint64_t base =
        sc_store_tag_base(extent->store->shape.digest, piece->hash, job->layer, items->part);
    uint64_t bite = SC_STORE_BITE_BYTES / items->bytes > 0 ? SC_STORE_BITE_BYTES / items->bytes : 1;
    for (uint64_t row = 0; row < piece->row_count;) {
        uint64_t offset = items->at + row * items->bytes;
        windows_flush(extent, job, offset);
        struct window *window = window_at(extent, job->part, offset);
        if (window == NULL)
            return false;
        uint64_t left = piece->row_count - row, fit = (window->end - offset) / items->bytes;
        uint64_t count = fit < left ? fit : left;
        count = count < bite ? count : bite;
        uint8_t *rows = count > 0 ? window_byte(window, offset) : extent->bounce;
        bool straddles = count == 0;
        count = straddles ? 1 : count;
        job->pack(job->user, items->part, extent_row + row, count, rows);
        if (straddles && !windows_copy(extent, job->part, offset, rows, items->bytes))
            return false;
        if (!tags_put(job, items, base, piece->first_position + row, rows, row, count))
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

/* An annex has none. */
static uint64_t row_bytes_of(const struct sc_store_extent *extent)
{
    return extent->annex_of != 0 ? 0 : extent->store->shape.row_bytes;
}

static uint64_t tag_bytes_of(const struct sc_store_extent *extent)
{
    return extent->annex_of != 0 ? 0 : 8ull * extent->store->shape.tags_per_row;
}

static bool pack_rows(const struct layer_job *job)
{
    struct sc_store_extent *extent = job->extent;
    uint64_t extent_row = 0;
    for (uint32_t i = 0; i < extent->piece_count && extent->annex_of == 0; i++) {
        if (!pack_piece(job, &extent->pieces[i], extent_row))
            return false;
        extent_row += extent->pieces[i].row_count;
    }
    return true;
}

/* An annex of codes: its layer's bytes as they are. */
static bool pack_codes(const struct layer_job *job)
{
    struct sc_store_extent *extent = job->extent;
    uint64_t bytes = extent->place.row_offset;
    for (uint64_t done = 0, now; done < bytes; done += now) {
        windows_flush(extent, job, job->start + done);
        struct window *window = window_at(extent, job->part, job->start + done);
        if (window == NULL)
            return false;
        now = window->end - (job->start + done);
        now = now < bytes - done ? now : bytes - done;
        job->pack(job->user, SC_STORE_PART_K_CODES, done, now,
                  window_byte(window, job->start + done));
    }
    return true;
}

static bool pack_layer(const struct layer_job *job)
{
    struct sc_store_extent *extent = job->extent;
    const struct sc_store_place *place = &extent->place;
    if (extent->code_shape.bits_k != 0 && !pack_codes(job))
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
    done.tags_end = 0; /* all tags are there */
    windows_flush(extent, &done, end);
    return true;
}

spec_status sc_store_extent_put_layer(struct sc_store_extent *extent, uint32_t layer,
                                      sc_store_pack *pack, void *user, struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    SC_ASSERT(store->params.poison, !extent->ended);
    if (layer != extent->layer_next) {
        uint32_t expected = extent->layer_next;
        extent_fail(extent, SPEC_E_DROPPED);
        producer_end(extent); /* the handle may be another's from here on */
        return sc_fail(reterr, SPEC_E_INVALID, "layer %" PRIu32 ", expected %" PRIu32, layer,
                       expected);
    }
    const struct sc_store_part *part = sc_store_part_of(extent->parts, extent->part_count, layer);
    struct layer_job job = {.extent = extent,
                            .part = part,
                            .start =
                                part->offset + (layer - part->layer_first) * extent->place.stride,
                            .layer = layer,
                            .pack = pack,
                            .user = user};
    job.tags_end = job.start + extent->place.tag_offset + extent->row_count * tag_bytes_of(extent);
    job.tags_start = job.start + (extent->probe_row_bytes > 0 ? extent->place.probe_tag_offset
                                                              : extent->place.tag_offset);
    spec_status status = atomic_load(&extent->status);
    if (status == SPEC_OK && !pack_layer(&job)) {
        extent_fail(extent, SPEC_E_DROPPED);
        producer_end(extent);
        return sc_fail(reterr, SPEC_E_BUSY, "staging is full (stage_bytes %" PRIu64 ")",
                       store->params.config->stage_bytes);
    }
    ready_submit(extent);
    if (status == SPEC_OK)
        sc_store_coder_packed(extent->coder);
    extent->layer_next++;
    if (status != SPEC_OK || extent->layer_next == store->shape.layer_count)
        producer_end(extent);
    return status == SPEC_OK ? SPEC_OK
                             : sc_fail(reterr, status, "an earlier write of this extent failed");
}

void sc_store_extent_abort(struct sc_store_extent *extent)
{
    SC_ASSERT(extent->store->params.poison, !extent->ended);
    extent_fail(extent, SPEC_E_DROPPED);
    producer_end(extent);
}

/* ---- Begin and end -------------------------------------------------------------------------- */

uint64_t sc_store_extent_rows_max(const struct sc_store *store)
{
    return store->rows_max;
}

uint64_t sc_store_probe_row_bytes(const struct sc_store *store)
{
    return store->params.probe_row_bytes;
}

/* Checks the plan; its rows are counted, and the log bytes that its records may take. */
static spec_status plan_check(const struct sc_store *store,
                              const struct sc_store_piece_plan *pieces, uint64_t piece_count,
                              uint64_t *ret_rows, uint64_t *ret_log_bytes,
                              struct spec_error *reterr)
{
    uint64_t rows = 0, log_bytes = 0;
    if (piece_count == 0 || piece_count > store->pieces_max)
        return sc_fail(reterr, piece_count == 0 ? SPEC_E_INVALID : SPEC_E_BUSY,
                       "%" PRIu64 " pieces, an extent takes 1 to %" PRIu64, piece_count,
                       store->pieces_max);
    for (uint64_t i = 0; i < piece_count; i++) {
        const struct sc_store_piece_plan *piece = &pieces[i];
        uint64_t lead = piece->first_position - piece->chunk_first;
        if (piece->row_count == 0 || piece->first_position > SC_STORE_POSITION_MAX ||
            piece->chunk_first > piece->first_position ||
            lead + piece->row_count > SC_STORE_ROWS_MAX ||
            (i > 0 &&
             piece->first_position != pieces[i - 1].first_position + pieces[i - 1].row_count))
            return sc_fail(reterr, SPEC_E_INVALID, "piece %" PRIu64 " of a plan: rows or positions",
                           i);
        rows += piece->row_count;
        log_bytes +=
            sc_store_record_bytes_piece(lead + piece->row_count, 0) + sc_store_record_bytes_drop();
    }
    if (rows > store->rows_max)
        return sc_fail(reterr, SPEC_E_INVALID, "%" PRIu64 " rows, an extent takes %" PRIu64, rows,
                       store->rows_max);
    *ret_rows = rows;
    *ret_log_bytes = log_bytes;
    return SPEC_OK;
}

/* Takes an object and its places: the object's members say which. On failure it is free again. */
static spec_status extent_start(struct sc_store *store, struct sc_store_extent *extent,
                                const struct sc_store_piece_plan *pieces, uint64_t piece_count,
                                struct spec_error *reterr)
{
    spec_status status = sc_store_place_take(store, extent->place.stride, extent->log_bytes,
                                             extent->parts, &extent->part_count, reterr);
    if (status != SPEC_OK) {
        extent_put(extent);
        return status;
    }
    memcpy(extent->pieces, pieces, piece_count * sizeof(*pieces));
    extent->piece_count = (uint32_t)piece_count;
    extent->layer_next = 0;
    extent->ended = false;
    extent->window_count = extent->ready_count = 0;
    extent->finish = (struct sc_task){.step = finish_step};
    atomic_store(&extent->pending, 1);
    atomic_store(&extent->status, SPEC_OK);
    return SPEC_OK;
}

static spec_status object_take(struct sc_store *store, struct sc_store_extent **ret_extent,
                               struct spec_error *reterr)
{
    *ret_extent = extent_take(store);
    if (*ret_extent == NULL)
        return sc_fail(reterr, SPEC_E_BUSY, "%" PRIu64 " extents are being written already",
                       store->extent_max);
    (*ret_extent)->annex_of = 0;
    (*ret_extent)->code_shape = (struct sc_store_code_shape){0};
    (*ret_extent)->written = NULL;
    (*ret_extent)->coder = NULL;
    return SPEC_OK;
}

spec_status sc_store_extent_begin(struct sc_store *store, const struct sc_store_piece_plan *pieces,
                                  uint64_t piece_count,
                                  const struct sc_store_provenance *provenance, void *extent_user,
                                  struct sc_store_extent **ret_extent, struct spec_error *reterr)
{
    struct sc_store_extent *extent = NULL;
    uint64_t rows = 0, log_bytes = 0;
    if (store->params.role != SC_STORE_WRITER)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s is another's: only its writer stores",
                       store->dir);
    spec_status status = plan_check(store, pieces, piece_count, &rows, &log_bytes, reterr);
    if (status == SPEC_OK)
        status = object_take(store, &extent, reterr);
    if (status != SPEC_OK)
        return status;
    log_bytes += sc_store_record_bytes_space(strlen(store->params.space.descriptor)) +
                 sc_store_record_bytes_extent(store->shape.layer_count);
    extent->probe_row_bytes = store->params.probe_row_bytes;
    extent->place = sc_store_shape_place(&store->shape, extent->probe_row_bytes, rows);
    extent->row_count = rows;
    extent->log_bytes = log_bytes;
    extent->provenance = *provenance;
    extent->user = extent_user;
    status = extent_start(store, extent, pieces, piece_count, reterr);
    if (status != SPEC_OK)
        return status;
    const struct sc_store_coder_plan plan = {.pieces = extent->pieces,
                                             .parts = extent->parts,
                                             .place = extent->place,
                                             .piece_count = piece_count,
                                             .part_count = extent->part_count,
                                             .row_count = rows};
    extent->coder = sc_store_coder_begin(store, &plan);
    *ret_extent = extent;
    return SPEC_OK;
}

spec_status
sc_store_annex_begin(struct sc_store *store, uint64_t extent_id,
                     const struct sc_store_piece_plan *pieces, uint64_t piece_count,
                     uint64_t code_bytes,
                     void (*written)(struct sc_store_extent *annex, spec_status status, void *user),
                     void *user, struct sc_store_extent **ret_annex, struct spec_error *reterr)
{
    struct sc_store_extent *annex = NULL;
    uint64_t rows = 0;
    for (uint64_t i = 0; i < piece_count; i++)
        rows += pieces[i].row_count;
    if (piece_count > store->pieces_max)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%" PRIu64 " pieces, at most %" PRIu64,
                       piece_count, store->pieces_max);
    spec_status status = object_take(store, &annex, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t bytes = store->params.probe_row_bytes, end = sc_store_up(rows * bytes, 8) + rows * 8;
    if (code_bytes > 0) {
        end = code_bytes;
        annex->code_shape = store->params.codes.shape;
    }
    annex->probe_row_bytes = code_bytes > 0 ? 0 : bytes;
    annex->place = (struct sc_store_place){.probe_tag_offset = end - rows * 8,
                                           .tag_offset = end,
                                           .row_offset = end,
                                           .stride = sc_store_up(end, 64)};
    if (code_bytes > 0)
        annex->place.probe_tag_offset = 0;
    annex->row_count = rows;
    annex->log_bytes = sc_store_record_bytes_annex(store->shape.layer_count);
    annex->annex_of = extent_id;
    annex->written = written;
    annex->user = user;
    status = extent_start(store, annex, pieces, piece_count, reterr);
    if (status == SPEC_OK)
        *ret_annex = annex;
    return status;
}

void sc_store_extent_discard(struct sc_store_extent *extent)
{
    SC_ASSERT(extent->store->params.poison, extent->ended && atomic_load(&extent->pending) == 0);
    sc_store_coder_end(extent->coder, 0);
    sc_store_place_free(extent->store, extent->parts, extent->part_count, extent->place.stride,
                        extent->log_bytes);
    extent_put(extent);
}

/* ---- Commit --------------------------------------------------------------------------------- */

/* Marks of the prompt that lie in [first, end). */
static const struct sc_store_mark *marks_in(const struct sc_store_commit *commit, uint64_t first,
                                            uint64_t end, uint32_t *ret_count)
{
    uint64_t low = 0;
    while (low < commit->mark_count && commit->marks[low].token < first)
        low++;
    uint64_t high = low;
    while (high < commit->mark_count && commit->marks[high].token < end)
        high++;
    *ret_count = (uint32_t)(high - low);
    return high > low ? &commit->marks[low] : NULL;
}

/* The record of piece i; its ids are set by the caller. */
static struct sc_store_piece piece_of(const struct sc_store_extent *extent,
                                      const struct sc_store_commit *commit, uint32_t i,
                                      uint64_t extent_row)
{
    const struct sc_store_piece_plan *plan = &extent->pieces[i];
    struct sc_store_piece piece = {.first_position = plan->first_position,
                                   .chunk_first = plan->chunk_first,
                                   .extent_row = (uint32_t)extent_row,
                                   .row_count = plan->row_count,
                                   .skip = i == commit->piece_first ? commit->skip : 0,
                                   .tokens = commit->tokens + plan->chunk_first};
    memcpy(piece.root, commit->root, SC_STORE_HASH_BYTES);
    memcpy(piece.chunk_hash, plan->chunk_hash, SC_STORE_HASH_BYTES);
    memcpy(piece.hash, plan->hash, SC_STORE_HASH_BYTES);
    piece.marks = marks_in(commit, plan->chunk_first, plan->first_position + plan->row_count,
                           &piece.mark_count);
    return piece;
}

static const struct sc_store_provenance *provenance_of(const struct sc_store_extent *extent,
                                                       const struct sc_store_commit *commit)
{
    return commit->provenance != NULL ? commit->provenance : &extent->provenance;
}

/* Log lock held. Appends namespace (when new), extent and pieces: one write. */
static spec_status commit_append(struct sc_store_extent *extent,
                                 const struct sc_store_commit *commit, struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    struct sc_store_append append;
    uint32_t space_id = atomic_load(&store->space_id);
    struct sc_store_record_extent record = {.space =
                                                space_id != 0 ? space_id : store->space_count + 1,
                                            .row_count = extent->row_count,
                                            .probe_tag_offset = extent->place.probe_tag_offset,
                                            .tag_offset = extent->place.tag_offset,
                                            .row_offset = extent->place.row_offset,
                                            .probe_row_bytes = extent->probe_row_bytes,
                                            .stride = extent->place.stride,
                                            .provenance = *provenance_of(extent, commit),
                                            .part_count = extent->part_count,
                                            .parts = extent->record_parts};
    for (uint32_t i = 0; i < extent->part_count; i++) {
        record.parts[i] = extent->parts[i];
        record.parts[i].segment = store->segments[extent->parts[i].segment].number;
    }
    sc_store_append_begin(store, &append);
    if (space_id == 0) {
        sc_store_append_frame(&append);
        sc_store_record_put_space(&append.writer, record.space, &store->params.space);
        sc_store_append_frame_end(&append);
    }
    sc_store_append_frame(&append);
    sc_store_record_put_extent(&append.writer, store->table.extent_next, &record);
    sc_store_append_frame_end(&append);
    uint64_t extent_row = 0;
    for (uint32_t i = 0; i < extent->piece_count; i++) {
        struct sc_store_piece piece = piece_of(extent, commit, i, extent_row);
        extent_row += piece.row_count;
        if (i < commit->piece_first)
            continue;
        piece.id = store->table.piece_next + (i - commit->piece_first);
        piece.extent = store->table.extent_next;
        sc_store_append_frame(&append);
        sc_store_record_put_piece(&append.writer, &piece);
        sc_store_append_frame_end(&append);
    }
    return sc_store_append_commit(store, &append, reterr);
}

/* Log lock held, records are in the log, room was reserved. Returns the extent's id. */
static uint64_t commit_publish(struct sc_store_extent *extent, const struct sc_store_commit *commit)
{
    struct sc_store *store = extent->store;
    struct sc_store_table *table = &store->table;
    if (atomic_load(&store->space_id) == 0) {
        struct sc_store_shape *shape = &store->spaces[store->space_count++];
        *shape = store->shape;
        shape->id = (uint32_t)store->space_count;
        atomic_store(&store->space_id, shape->id);
    }
    uint64_t extent_id = table->extent_next++, extent_row = 0;
    struct sc_store_extent_entry *entry = sc_store_table_extent(table, extent_id);
    *entry = (struct sc_store_extent_entry){
        .parts = sc_store_table_parts(table, extent->part_count),
        .row_offset = extent->place.row_offset,
        .stride = extent->place.stride,
        .probe_tag_offset = extent->place.probe_tag_offset,
        .tag_offset = extent->place.tag_offset,
        .probe_row_bytes = (uint32_t)extent->probe_row_bytes,
        .part_count = extent->part_count,
        .row_count = (uint32_t)extent->row_count,
        .space = atomic_load(&store->space_id),
        .is_coding = extent->coder != NULL && commit->skip == 0,
        .provenance = *provenance_of(extent, commit),
        .live_count = extent->piece_count - commit->piece_first,
        .piece_first = table->piece_next,
        .piece_last = table->piece_next + extent->piece_count - commit->piece_first - 1};
    memcpy(entry->parts, extent->parts, extent->part_count * sizeof(*extent->parts));
    for (uint32_t i = 0; i < extent->piece_count; i++) {
        const struct sc_store_piece_plan *plan = &extent->pieces[i];
        if (i >= commit->piece_first) {
            struct sc_store_piece_entry *piece = sc_store_table_piece(table, table->piece_next++);
            memcpy(piece->hash, plan->hash, sizeof(piece->hash));
            piece->first_position = plan->first_position;
            piece->extent = (uint32_t)extent_id;
            piece->extent_row = (uint16_t)extent_row;
            piece->row_count = (uint16_t)plan->row_count;
            piece->skip = (uint16_t)(i == commit->piece_first ? commit->skip : 0);
            atomic_store_explicit(&piece->state, SC_STORE_PIECE_LIVE, memory_order_release);
        }
        extent_row += plan->row_count;
    }
    sc_store_count(&store->extent_count, 1);
    sc_store_count(&store->piece_count, entry->live_count);
    return extent_id;
}

/* Log bytes that marks take: begin did not know of them. SPEC_E_BUSY: too many in one piece. */
static spec_status commit_marks(const struct sc_store_extent *extent,
                                const struct sc_store_commit *commit, uint64_t *ret_bytes,
                                struct spec_error *reterr)
{
    uint64_t bytes = 0;
    for (uint32_t i = commit->piece_first; i < extent->piece_count && commit->mark_count > 0; i++) {
        struct sc_store_piece piece = piece_of(extent, commit, i, 0);
        if (piece.mark_count > SC_STORE_MARKS_MAX)
            return sc_fail(reterr, SPEC_E_BUSY, "%" PRIu32 " extra keys in one chunk, at most %u",
                           piece.mark_count, (unsigned)SC_STORE_MARKS_MAX);
        bytes += sc_store_record_bytes_piece(0, piece.mark_count);
    }
    *ret_bytes = bytes;
    return SPEC_OK;
}

static spec_status commit_run(struct sc_store_extent *extent, const struct sc_store_commit *commit,
                              uint64_t *ret_first_id, struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    uint64_t count = extent->piece_count - commit->piece_first, marks_bytes = 0, extent_id = 0;
    spec_status status = commit_marks(extent, commit, &marks_bytes, reterr), failed = SPEC_OK;
    if (status == SPEC_OK && !sc_store_log_reserve(store, marks_bytes))
        status =
            sc_fail(reterr, SPEC_E_NO_SPACE, "%s: no room for the log in disk_bytes", store->dir);
    if (status != SPEC_OK)
        return status;
    extent->log_bytes += marks_bytes;
    pthread_mutex_lock(&store->log_lock);
    if (!sc_store_table_reserve(&store->table, count, 1, extent->part_count))
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "table of pieces");
    else if (store->space_count == SC_STORE_SPACES_MAX && atomic_load(&store->space_id) == 0)
        status = sc_fail(reterr, SPEC_E_BUSY, "%u namespaces in %s already", SC_STORE_SPACES_MAX,
                         store->dir);
    if (status == SPEC_OK) {
        status = commit_append(extent, commit, reterr);
        failed = status;
    }
    if (status == SPEC_OK) {
        *ret_first_id = store->table.piece_next;
        extent_id = commit_publish(extent, commit);
    }
    pthread_mutex_unlock(&store->log_lock);
    if (status == SPEC_OK) {
        sc_store_extent_trim(store, extent_id);
        /* Rows that are skipped are not coded: the first slab is another. */
        sc_store_coder_end(extent->coder, commit->skip == 0 ? extent_id : 0);
    }
    if (failed != SPEC_OK)
        sc_store_pause(store, failed, "writing the log");
    return status;
}

spec_status sc_store_extent_commit(struct sc_store_extent *extent,
                                   const struct sc_store_commit *commit, uint64_t *ret_first_id,
                                   struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    SC_ASSERT(store->params.poison, extent->ended && atomic_load(&extent->pending) == 0);
    spec_status status = atomic_load(&extent->status);
    uint64_t first_id = 0;
    if (status != SPEC_OK)
        status = sc_fail(reterr, status, "the extent was not written");
    else if (commit->piece_first > extent->piece_count ||
             (commit->piece_first < extent->piece_count &&
              commit->skip >= extent->pieces[commit->piece_first].row_count))
        status = sc_fail(reterr, SPEC_E_INVALID,
                         "piece_first %" PRIu32 " of %" PRIu32 " pieces, skip %" PRIu32,
                         commit->piece_first, extent->piece_count, commit->skip);
    else if (commit->piece_first < extent->piece_count)
        status = commit_run(extent, commit, &first_id, reterr);
    if (status != SPEC_OK || first_id == 0) { /* failed, or everything is present elsewhere */
        sc_store_extent_discard(extent);
        *ret_first_id = status == SPEC_OK ? 0 : *ret_first_id;
        return status;
    }
    uint64_t kept = (extent->piece_count - commit->piece_first) * sc_store_record_bytes_drop();
    sc_store_log_unreserve(store, extent->log_bytes - kept);
    extent_put(extent);
    *ret_first_id = first_id;
    sc_store_device_want(store);
    return SPEC_OK;
}

/* ---- An annex' commit ------------------------------------------------------------------------ */

/* Log lock held. One record; the annex is found from then on. */
static spec_status annex_append(struct sc_store_extent *extent, struct sc_store_annex *annex,
                                struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    struct sc_store_extent_entry *entry = sc_store_table_extent(&store->table, extent->annex_of);
    struct sc_store_annex *_Atomic *place =
        annex->code_shape.bits_k != 0 ? &entry->codes : &entry->annex;
    struct sc_store_record_extent record = {.probe_row_bytes = annex->probe_row_bytes,
                                            .code_shape = annex->code_shape,
                                            .probe_tag_offset = annex->probe_tag_offset,
                                            .stride = annex->stride,
                                            .part_count = annex->part_count,
                                            .parts = extent->record_parts};
    struct sc_store_append append;
    if (entry->live_count == 0)
        return sc_fail(reterr, SPEC_E_DROPPED, "its pieces are void");
    for (uint32_t i = 0; i < annex->part_count; i++) {
        record.parts[i] = annex->parts[i];
        record.parts[i].segment = store->segments[annex->parts[i].segment].number;
    }
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_put_annex(&append.writer, extent->annex_of, &record);
    sc_store_append_frame_end(&append);
    spec_status status = sc_store_append_commit(store, &append, reterr);
    if (status == SPEC_OK)
        atomic_store_explicit(place, annex, memory_order_release);
    return status;
}

spec_status sc_store_annex_commit(struct sc_store_extent *extent, struct spec_error *reterr)
{
    struct sc_store *store = extent->store;
    SC_ASSERT(store->params.poison, extent->ended && atomic_load(&extent->pending) == 0);
    spec_status status = atomic_load(&extent->status);
    struct sc_store_annex *annex = NULL;
    if (status == SPEC_OK) {
        pthread_mutex_lock(&store->log_lock);
        annex = sc_store_table_annex(&store->table, extent->part_count);
        pthread_mutex_unlock(&store->log_lock);
        status = annex != NULL ? SPEC_OK : SPEC_E_NO_MEMORY;
    }
    if (annex != NULL) {
        annex->stride = extent->place.stride;
        annex->probe_tag_offset = extent->place.probe_tag_offset;
        annex->probe_row_bytes = (uint32_t)extent->probe_row_bytes;
        annex->code_shape = extent->code_shape;
        memcpy(annex->parts, extent->parts, extent->part_count * sizeof(*extent->parts));
        status = sc_store_annex_hold(store, extent->annex_of, annex) ? SPEC_OK : SPEC_E_DROPPED;
    }
    if (status != SPEC_OK) {
        sc_store_extent_discard(extent);
        return sc_fail(reterr, status, "the annex was not written, or its extent has gone");
    }
    /* Its pages are the extent's now: without a record they are held until the extent goes. */
    pthread_mutex_lock(&store->log_lock);
    status = annex_append(extent, annex, reterr);
    pthread_mutex_unlock(&store->log_lock);
    if (status != SPEC_OK && status != SPEC_E_DROPPED)
        sc_store_pause(store, status, "writing the log");
    sc_store_log_unreserve(store, extent->log_bytes);
    extent_put(extent);
    return status;
}

spec_status sc_store_annex_commit_to(struct sc_store_extent *extent, uint64_t extent_id,
                                     struct spec_error *reterr)
{
    extent->annex_of = extent_id;
    return sc_store_annex_commit(extent, reterr);
}

void sc_store_piece_set_mark(struct sc_store *store, uint64_t piece, uint64_t mark)
{
    struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    if (entry != NULL)
        atomic_store_explicit(&entry->mark, mark, memory_order_relaxed);
}

uint64_t sc_store_piece_mark(const struct sc_store *store, uint64_t piece)
{
    struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    return entry != NULL ? atomic_load_explicit(&entry->mark, memory_order_relaxed) : 0;
}
