/* readback: reads rows back and verifies them. Contract: store/cache/readback.h. */
#include "store/cache/readback.h"

#include "store/cache/written_frames.h"
#include "store/rows/tag.h"
#include "store/space/tier.h"

#include <stdlib.h>
#include <string.h>

#define PAGE         ((uint64_t)SC_IO_PAGE_BYTES)
#define GATHER_READS 64u
#define GAP_BYTES    (64u << 10) /* between rows that one read takes, as scan_plan.c */

uint64_t sc_store_stretch_bytes(const struct sc_store *store, uint64_t row_count)
{
    return sc_store_up(row_count * store->shape.row_bytes, PAGE) + 2 * PAGE +
           sc_store_up(row_count * store->shape.tags_per_row * 8, PAGE) + 2 * PAGE;
}

void sc_store_readback_leave(struct sc_store_readback *readback)
{
    (void)sc_store_readback_clear(readback);
    sc_alloc_free(readback->store->params.alloc, readback->memory);
    readback->memory = NULL;
}

bool sc_store_readback_take(struct sc_store_readback *readback, uint64_t bytes)
{
    sc_store_readback_leave(readback);
    readback->memory = sc_alloc_aligned(readback->store->params.alloc, bytes, PAGE);
    readback->memory_bytes = bytes;
    return readback->memory != NULL;
}

static void on_read(struct sc_io_op *op)
{
    struct sc_store_readback *readback = op->user;
    if (atomic_fetch_sub(&readback->flying, 1) == 1)
        sc_exec_post(readback->store->params.exec, readback->task, SC_IO_CLASS_BACKGROUND);
}

/* ---- Permuted rows --------------------------------------------------------------------------- */

static void gather_leave(const struct sc_store *store, struct sc_store_gather *gather)
{
    sc_alloc_free(store->params.alloc, gather->memory);
    *gather = (struct sc_store_gather){0};
}

static int by_start(const void *a, const void *b)
{
    const struct sc_store_gather_place *left = a, *right = b;
    return left->start < right->start ? -1 : left->start > right->start;
}

static int by_index(const void *a, const void *b)
{
    const struct sc_store_gather_place *left = a, *right = b;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* Sets the op of each place, in the order of their starts: a read continues over gaps up to
 * GAP_BYTES, while it has at most op_bytes, or one row. Returns how many reads there are.
 * ret_bytes: bytes of all. */
static uint32_t places_join(struct sc_store_gather_place *places, uint64_t count, uint64_t stride,
                            uint64_t op_bytes, uint64_t *ret_bytes)
{
    uint32_t ops = 0;
    uint64_t begin = 0, end = 0;
    *ret_bytes = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct sc_store_pages pages = sc_store_pages_of(places[i].start, places[i].start + stride);
        uint64_t last = pages.offset + pages.bytes;
        if (ops == 0 || pages.offset > end + GAP_BYTES || last - begin > op_bytes) {
            *ret_bytes += end - begin;
            begin = pages.offset;
            ops++;
        }
        end = last;
        places[i].op = ops - 1;
    }
    *ret_bytes += end - begin;
    return ops;
}

/* Plans the reads of places in the order of their starts. */
static void reads_plan(struct sc_store_readback *readback, struct sc_store_stretch *stretch,
                       const struct sc_store_slab_where *where, uint64_t count)
{
    struct sc_store_gather *gather = &stretch->gather;
    uint8_t *pages = gather->pages;
    for (uint64_t i = 0, next; i < count; i = next) {
        struct sc_store_gather_place *first = &gather->places[i];
        struct sc_io_op *op = &gather->ops[first->op];
        for (next = i + 1; next < count && gather->places[next].op == first->op;)
            next++;
        struct sc_store_pages all =
            sc_store_pages_of(first->start, gather->places[next - 1].start + where->stride);
        for (uint64_t at = i; at < next; at++)
            gather->places[at].bytes = pages + (gather->places[at].start - all.offset);
        *op = (struct sc_io_op){
            .buffer = pages, .io_class = SC_IO_CLASS_BACKGROUND, .done = on_read, .user = readback};
        pages += all.bytes;
        if (!sc_store_tier_aim_written(readback->store, op,
                                       (struct sc_store_where){where->segment, all.offset},
                                       all.bytes)) {
            op->status = stretch->rows.op.status = SPEC_E_DROPPED;
            continue;
        }
        gather->reads[gather->count++] = op;
        readback->read_bytes += all.bytes;
    }
}

/* Plans the reads of the stretch's rows. Without memory they cannot be read. */
static void gather_add(struct sc_store_readback *readback, struct sc_store_stretch *stretch,
                       const struct sc_store_slab_where *where)
{
    struct sc_alloc *alloc = readback->store->params.alloc;
    struct sc_store_gather *gather = &stretch->gather;
    const struct sc_store_stretch_rows *what = &stretch->what;
    uint64_t rows = what->end - what->first, halves = what->k_alone ? 1 : where->half_count;
    uint64_t count = rows * halves, read_bytes = 0;
    struct sc_store_gather_place *places = sc_alloc_array(alloc, count, sizeof(*places));
    *gather = (struct sc_store_gather){.halves = (uint32_t)halves};
    stretch->rows.op.status = SPEC_E_NO_MEMORY;
    if (places == NULL)
        return;
    for (uint64_t i = 0; i < count; i++)
        places[i] = (struct sc_store_gather_place){
            .start =
                where->base[i % halves] + where->slots[what->first + i / halves] * where->stride,
            .index = (uint32_t)i};
    qsort(places, count, sizeof(*places), by_start);
    uint32_t ops =
        places_join(places, count, where->stride, readback->store->limits.op_bytes, &read_bytes);
    uint64_t places_bytes = count * sizeof(*places);
    uint64_t at =
        sc_store_up(places_bytes + ops * (sizeof(*gather->ops) + sizeof(*gather->reads)), PAGE);
    gather->memory = sc_alloc_aligned(alloc, at + read_bytes + count * where->stride, PAGE);
    if (gather->memory != NULL) {
        stretch->rows.op.status = SPEC_OK;
        gather->places = memcpy(gather->memory, places, places_bytes);
        gather->ops = (struct sc_io_op *)(void *)(gather->memory + places_bytes);
        gather->reads = (struct sc_io_op **)(void *)(gather->ops + ops);
        gather->pages = gather->memory + at;
        gather->rows = gather->pages + read_bytes;
        reads_plan(readback, stretch, where, count);
        qsort(gather->places, count, sizeof(*gather->places), by_index);
    }
    sc_alloc_free(alloc, places);
}

/* Copies extent rows [first, + count) next to each other. Returns false if one was not read. */
static bool gather_rows(const struct sc_store_stretch *stretch,
                        const struct sc_store_slab_where *where, uint64_t first, uint64_t count,
                        const uint8_t *ret_halves[2])
{
    const struct sc_store_gather *gather = &stretch->gather;
    uint64_t at = first - stretch->what.first, rows = stretch->what.end - stretch->what.first;
    if (gather->memory == NULL)
        return false;
    for (uint32_t half = 0; half < gather->halves; half++) {
        uint8_t *to = gather->rows + (half * rows + at) * where->stride;
        ret_halves[half] = to;
        for (uint64_t i = 0; i < count; i++, to += where->stride) {
            const struct sc_store_gather_place *place =
                &gather->places[(at + i) * gather->halves + half];
            if (gather->ops[place->op].status != SPEC_OK)
                return false;
            memcpy(to, place->bytes, where->stride);
        }
    }
    return true;
}

/* ---- Rows as they were stored ---------------------------------------------------------------- */

struct place {
    const struct sc_store_stretch_rows *rows;
    struct sc_store_where where;
    uint64_t at;    /* offset in the extent */
    bool is_stored; /* in stored order, so the cache may have it */
};

/* Plans a read into the window's memory. Copies leading and trailing bytes from the cache: their
 * pages may not be on disk yet. */
static void bytes_read(struct sc_store_readback *readback, struct sc_store_stretch_bytes *what,
                       const struct place *place, uint64_t bytes)
{
    struct sc_store_where where = place->where;
    struct sc_store_pages all = sc_store_pages_of(where.offset, where.offset + bytes), pages;
    uint8_t *memory = readback->memory + readback->used;
    uint64_t from = 0, to = bytes;
    if (readback->store->cache != NULL && place->is_stored)
        sc_store_cache_edges(readback->store->cache, place->rows->extent->copy, place->at, bytes,
                             memory + all.in, &from, &to);
    what->bytes = memory + all.in;
    readback->used += all.bytes;
    if (from == to)
        return;
    pages = sc_store_pages_of(where.offset + from, where.offset + to);
    what->op = (struct sc_io_op){.buffer = memory + (pages.offset - all.offset),
                                 .io_class = SC_IO_CLASS_BACKGROUND,
                                 .done = on_read,
                                 .user = readback};
    where.offset = pages.offset;
    if (!sc_store_tier_aim_written(readback->store, &what->op, where, pages.bytes)) {
        what->op.status = SPEC_E_DROPPED;
        return;
    }
    readback->reads[readback->read_count++] = &what->op;
    readback->read_bytes += pages.bytes;
}

/* Takes the bytes from the cache if it has all, else reads them. in: offset in the layer. */
static void bytes_add(struct sc_store_readback *readback, struct sc_store_stretch_bytes *what,
                      const struct sc_store_stretch_rows *rows, struct sc_store_where layer,
                      uint64_t in, uint64_t bytes, bool is_stored)
{
    struct sc_store_cache *cache = is_stored ? readback->store->cache : NULL;
    const struct place place = {.rows = rows,
                                .where = {layer.segment, layer.offset + in},
                                .at = rows->layer * rows->extent->stride + in,
                                .is_stored = is_stored};
    *what = (struct sc_store_stretch_bytes){0};
    if (cache != NULL)
        what->bytes = sc_store_cache_get(cache, rows->extent->copy, place.at, bytes,
                                         readback->memory + readback->used, &what->pin);
    if (what->bytes != NULL && what->pin != NULL && !readback->pins) {
        memcpy(readback->memory + readback->used, what->bytes, bytes);
        sc_store_cache_unpin(cache, what->pin);
        what->bytes = readback->memory + readback->used;
        what->pin = NULL;
    }
    if (what->bytes == NULL)
        bytes_read(readback, what, &place, bytes);
    else if (what->pin == NULL)
        readback->used += sc_store_up(bytes, PAGE);
}

void sc_store_readback_add(struct sc_store_readback *readback,
                           const struct sc_store_stretch_rows *what)
{
    const struct sc_store *store = readback->store;
    const struct sc_store_extent_entry *extent = what->extent;
    struct sc_store_stretch *stretch = &readback->stretches[readback->stretch_count++];
    struct sc_store_slab_where from, to;
    sc_store_slab_where(&store->shape, extent, what->layer, what->from, &from);
    to = from; /* the same copy; another one may be published at any moment */
    sc_store_slab_move(&to, what->to);
    uint32_t last = what->k_alone ? 0 : to.half_count - 1;
    stretch->what = *what;
    stretch->from = from;
    stretch->gather = (struct sc_store_gather){0};
    if (from.slots != NULL) {
        const struct sc_store_where start = {from.segment, 0};
        stretch->tags_at = from.tags + what->first * from.tag_stride;
        stretch->rows = (struct sc_store_stretch_bytes){0};
        bytes_add(readback, &stretch->tags, what, start, stretch->tags_at,
                  (what->end - what->first) * from.tag_stride, false);
        gather_add(readback, stretch, &from);
        return;
    }
    struct sc_store_where layer =
        sc_store_layer_where(extent->parts, extent->part_count, extent->stride, what->layer);
    stretch->rows_at = from.base[0] + what->first * from.stride;
    stretch->tags_at = from.tags + what->first * from.tag_stride;
    bytes_add(readback, &stretch->rows, what, layer, stretch->rows_at - layer.offset,
              to.base[last] + what->end * to.stride - stretch->rows_at, true);
    bytes_add(readback, &stretch->tags, what, layer, stretch->tags_at - layer.offset,
              (what->end - what->first) * from.tag_stride, true);
    SC_ASSERT(store->params.poison, readback->used <= readback->memory_bytes);
}

bool sc_store_readback_submit(struct sc_store_readback *readback)
{
    uint32_t count = readback->read_count, all = count, stretches = readback->stretch_count;
    struct sc_store *store = readback->store;
    readback->read_count = 0; /* the task may run on another thread and begin a window */
    for (uint32_t i = 0; i < stretches; i++)
        all += readback->stretches[i].gather.count;
    if (all == 0)
        return false;
    atomic_store(&readback->flying, all + 1);
    for (uint32_t i = 0; i < stretches; i++)
        for (uint32_t at = 0, now; at < readback->stretches[i].gather.count; at += now) {
            now = readback->stretches[i].gather.count - at;
            now = now < GATHER_READS ? now : GATHER_READS;
            sc_store_tier_read(store, readback->stretches[i].gather.reads + at, now);
        }
    if (count > 0)
        sc_store_tier_read(store, readback->reads, count);
    if (atomic_fetch_sub(&readback->flying, 1) == 1)
        sc_exec_post(store->params.exec, readback->task, SC_IO_CLASS_BACKGROUND);
    return true;
}

uint64_t sc_store_readback_clear(struct sc_store_readback *readback)
{
    uint64_t bytes = readback->read_bytes;
    for (uint32_t i = 0; i < readback->stretch_count; i++) {
        sc_store_cache_unpin(readback->store->cache, readback->stretches[i].rows.pin);
        sc_store_cache_unpin(readback->store->cache, readback->stretches[i].tags.pin);
        gather_leave(readback->store, &readback->stretches[i].gather);
    }
    readback->used = readback->read_bytes = 0;
    readback->stretch_count = readback->read_count = 0;
    return bytes;
}

bool sc_store_readback_rows(const struct sc_store_readback *readback, uint32_t i,
                            const struct sc_store_piece_entry *piece, uint64_t first,
                            uint64_t count, struct sc_store_back *ret_back)
{
    const struct sc_store *store = readback->store;
    const struct sc_store_shape *shape = &store->shape;
    const struct sc_store_stretch *stretch = &readback->stretches[i];
    /* copy chosen when the stretch was added; the extent may have a permuted one by now */
    struct sc_store_slab_where where = stretch->from;
    bool is_gathered = where.slots != NULL;
    sc_store_slab_move(&where, piece);
    if (stretch->rows.op.status != SPEC_OK || stretch->tags.op.status != SPEC_OK)
        return false;
    const uint64_t *tags =
        (const uint64_t *)(const void *)(stretch->tags.bytes + where.tags +
                                         first * where.tag_stride - stretch->tags_at);
    struct sc_store_tag_rows tagged = {.position_first =
                                           piece->first_position + (first - piece->extent_row),
                                       .row_bytes = where.stride,
                                       .count = count,
                                       .tag_step = shape->tags_per_row};
    uint32_t halves = stretch->what.k_alone ? 1 : where.half_count;
    ret_back->stride = where.stride;
    ret_back->tags = tags;
    if (is_gathered && !gather_rows(stretch, &where, first, count, ret_back->halves))
        return false;
    for (uint32_t h = 0; h < halves; h++) {
        uint32_t part = where.half_count == 1 ? SC_STORE_PART_ROW : SC_STORE_PART_K + h;
        const uint8_t *rows =
            is_gathered
                ? ret_back->halves[h]
                : stretch->rows.bytes + (where.base[h] + first * where.stride - stretch->rows_at);
        tagged.base = sc_store_tag_base(shape->digest, piece->hash, stretch->what.extent->copy,
                                        stretch->what.layer, part);
        if (sc_store_tag_verify(&tagged, rows, tags + h) != count)
            return false;
        ret_back->halves[h] = rows;
    }
    return true;
}

spec_status sc_store_readback_why(const struct sc_store_readback *readback, uint32_t i)
{
    const struct sc_store_stretch *stretch = &readback->stretches[i];
    bool came = stretch->rows.op.status == SPEC_OK && stretch->tags.op.status == SPEC_OK;
    if (stretch->rows.op.status == SPEC_E_NO_MEMORY)
        return SPEC_E_NO_MEMORY;
    for (uint32_t at = 0; at < stretch->gather.count; at++)
        came = came && stretch->gather.reads[at]->status == SPEC_OK;
    return came ? SPEC_E_CORRUPT : SPEC_E_IO;
}
