/* Rows of pieces, read back and verified.
 *
 * Holds, Does not, Threads, Tests: store/readback.h. */
#include "store/readback.h"

#include "store/tag.h"

#define PAGE ((uint64_t)SC_IO_PAGE_BYTES)

/* ---- Memory --------------------------------------------------------------------------------- */

uint64_t sc_store_stretch_bytes(const struct sc_store *store, uint64_t row_count)
{
    return sc_store_up(row_count * store->shape.row_bytes, PAGE) + 2 * PAGE +
           sc_store_up(row_count * store->shape.tags_per_row * 8, PAGE) + 2 * PAGE;
}

void sc_store_readback_leave(struct sc_store_readback *readback)
{
    sc_alloc_free(readback->store->params.alloc, readback->memory);
    readback->memory = NULL;
}

bool sc_store_readback_take(struct sc_store_readback *readback, uint64_t bytes)
{
    sc_store_readback_leave(readback);
    readback->memory = sc_alloc_aligned(readback->store->params.alloc, bytes, PAGE);
    readback->memory_bytes = bytes;
    readback->used = readback->stretch_count = 0;
    return readback->memory != NULL;
}

/* ---- Reads ---------------------------------------------------------------------------------- */

static void on_read(struct sc_io_op *op)
{
    struct sc_store_readback *readback = op->user;
    if (atomic_fetch_sub(&readback->flying, 1) == 1)
        sc_exec_post(readback->store->params.exec, readback->task, SC_LANE_BACKGROUND);
}

/* An operation for bytes [start, end) of the segment, to where the window is used up to. */
static void op_set(struct sc_store_readback *readback, struct sc_io_op *op, uint32_t segment,
                   uint64_t start, uint64_t end)
{
    struct sc_store *store = readback->store;
    struct sc_store_pages pages = sc_store_pages_of(start, end);
    *op = (struct sc_io_op){.file = store->disk.segments[segment].file,
                            .buffer = readback->memory + readback->used,
                            .offset = pages.offset,
                            .bytes = pages.bytes,
                            .kind = SC_IO_READ,
                            .lane = SC_LANE_BACKGROUND,
                            .done = on_read,
                            .user = readback};
    readback->used += pages.bytes;
    sc_store_count(&store->counts.read_bytes, pages.bytes);
    sc_store_count(&store->counts.read_ops, 1);
}

void sc_store_readback_add(struct sc_store_readback *readback,
                           const struct sc_store_stretch_rows *what)
{
    struct sc_store *store = readback->store;
    struct sc_store_stretch *stretch = &readback->stretches[readback->stretch_count++];
    struct sc_store_slab_where from, to;
    sc_store_slab_where(&store->shape, what->extent, what->layer, what->from, &from);
    sc_store_slab_where(&store->shape, what->extent, what->layer, what->to, &to);
    uint32_t last = what->k_alone ? 0 : to.half_count - 1;
    stretch->what = *what;
    op_set(readback, &stretch->rows, from.segment, from.base[0] + what->first * from.stride,
           to.base[last] + what->end * to.stride);
    op_set(readback, &stretch->tags, from.segment, from.tags + what->first * from.tag_stride,
           from.tags + what->end * from.tag_stride);
    SC_ASSERT(store->params.poison, readback->used <= readback->memory_bytes);
}

void sc_store_readback_submit(struct sc_store_readback *readback)
{
    struct sc_io_op *ops[2 * SC_STORE_STRETCHES];
    uint64_t count = 0;
    for (uint32_t i = 0; i < readback->stretch_count; i++) {
        ops[count++] = &readback->stretches[i].rows;
        ops[count++] = &readback->stretches[i].tags;
    }
    atomic_store(&readback->flying, (uint32_t)count);
    sc_io_submit(readback->store->io, ops, count);
}

uint64_t sc_store_readback_clear(struct sc_store_readback *readback)
{
    uint64_t bytes = readback->used;
    readback->used = readback->stretch_count = 0;
    return bytes;
}

/* ---- Rows ----------------------------------------------------------------------------------- */

bool sc_store_readback_rows(const struct sc_store_readback *readback, uint32_t i,
                            const struct sc_store_piece_entry *piece, uint64_t first,
                            uint64_t count, struct sc_store_back *ret_back)
{
    const struct sc_store *store = readback->store;
    const struct sc_store_shape *shape = &store->shape;
    const struct sc_store_stretch *stretch = &readback->stretches[i];
    struct sc_store_slab_where where;
    sc_store_slab_where(shape, stretch->what.extent, stretch->what.layer, piece, &where);
    if (stretch->rows.status != SPEC_OK || stretch->tags.status != SPEC_OK)
        return false;
    const uint64_t *tags =
        (const uint64_t *)(const void *)(stretch->tags.buffer + where.tags +
                                         first * where.tag_stride - stretch->tags.offset);
    uint64_t position = piece->first_position + (first - piece->extent_row);
    uint32_t halves = stretch->what.k_alone ? 1 : where.half_count;
    ret_back->stride = where.stride;
    for (uint32_t h = 0; h < halves; h++) {
        uint32_t part = where.half_count == 1 ? SC_STORE_PART_ROW : SC_STORE_PART_K + h;
        const uint8_t *rows =
            stretch->rows.buffer + (where.base[h] + first * where.stride - stretch->rows.offset);
        uint64_t base = sc_store_tag_base(shape->digest, piece->hash, stretch->what.extent->copy,
                                          stretch->what.layer, part);
        if (sc_store_tag_verify(base, position, rows, where.stride, where.stride, count, tags + h,
                                shape->tags_per_row) != count)
            return false;
        ret_back->halves[h] = rows;
    }
    return true;
}
