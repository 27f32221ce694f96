/* write_through: copies what a pass writes to host memory. Contract:
 * store/write/write_through.h. */
#include "store/write/write_through.h"

#include "store/cache/host_tier_slab.h"

#include <string.h>

bool sc_store_write_through_open(struct sc_store *store)
{
    uint64_t each = store->limits.pieces_max * store->shape.layer_count;
    struct sc_store_extent *first = &store->writing.extents[0];
    if (store->host == NULL || store->params.config->host_write_through == 0)
        return true;
    first->kept =
        sc_alloc_array(store->params.alloc, store->writing.extent_max * each, sizeof(*first->kept));
    for (uint64_t i = 1; first->kept != NULL && i < store->writing.extent_max; i++)
        store->writing.extents[i].kept = first->kept + i * each;
    return first->kept != NULL;
}

void sc_store_write_through_close(struct sc_store *store)
{
    sc_alloc_free(store->params.alloc, store->writing.extents[0].kept);
}

void sc_store_write_through_layer_begin(struct sc_store_extent *extent)
{
    uint64_t count = (uint64_t)extent->piece_count * extent->store->shape.layer_count;
    extent->slabs = extent->kept;
    extent->keeps = extent->slabs != NULL;
    extent->is_heir = false;
    if (extent->keeps)
        memset(extent->slabs, 0, count * sizeof(*extent->slabs));
}

void sc_store_write_through_layer_inherit(struct sc_store_extent *extent,
                                          struct sc_host_tier_memory_slab **slabs)
{
    SC_ASSERT(extent->store->params.poison, extent->piece_count == 1);
    if (extent->keeps || slabs == NULL)
        return;
    extent->slabs = slabs;
    extent->keeps = extent->is_heir = true;
    memset(slabs, 0, extent->store->shape.layer_count * sizeof(*slabs));
}

static struct sc_host_tier_memory_slab **slab_of(const struct sc_store_extent *extent,
                                                 uint32_t piece, uint32_t layer)
{
    return &extent->slabs[(uint64_t)layer * extent->piece_count + piece];
}

void sc_store_write_through_layer_layer(struct sc_store_extent *extent, uint32_t layer)
{
    struct sc_host_tier_key key = {.copy = extent->copy, .layer = layer};
    if (!extent->keeps)
        return;
    if (extent->is_heir) {
        uint64_t rows = extent->row_count;
        struct sc_host_slab_fill fill = {0};
        if (extent->inherits &&
            sc_host_slab_slab_begin(extent->store, &fill, &key, 0, rows,
                                    sc_host_slab_bytes(&extent->store->shape, rows), 1))
            *slab_of(extent, 0, layer) = fill.slab;
        return;
    }
    for (uint32_t i = 0; i < extent->piece_count; i++) {
        uint64_t rows = extent->pieces[i].row_count;
        *slab_of(extent, i, layer) = sc_host_slab_begin_stored(extent->store, &key, rows);
        key.first += (uint32_t)rows;
    }
}

/* Copies bytes [at, + bytes) of the segment to dst, as far as the window has them. */
static void bytes_keep(const struct sc_store_write *write, uint64_t at, uint64_t bytes,
                       uint8_t *dst)
{
    uint64_t start = write->op.offset, end = start + write->op.bytes;
    uint64_t first = at > start ? at : start, last = at + bytes < end ? at + bytes : end;
    if (first < last)
        memcpy(dst + (first - at), write->op.buffer + (first - start), last - first);
}

static void layer_keep(const struct sc_store_extent *extent, const struct sc_store_write *write,
                       uint32_t layer, uint64_t layer_at)
{
    const struct sc_store *store = extent->store;
    const struct sc_store_shape *shape = &store->shape;
    uint64_t tag_bytes = 8ull * shape->tags_per_row, row = 0;
    for (uint32_t i = 0; i < extent->piece_count; row += extent->pieces[i++].row_count) {
        struct sc_host_tier_memory_slab *slab = *slab_of(extent, i, layer);
        uint64_t rows = extent->pieces[i].row_count;
        if (slab == NULL)
            continue;
        uint8_t *bytes = sc_host_tier_bytes(store->host, slab);
        uint64_t rows_at = sc_host_slab_bytes(shape, rows) - rows * shape->row_bytes;
        bytes_keep(write, layer_at + extent->place.tag_offset + row * tag_bytes, rows * tag_bytes,
                   bytes);
        bytes_keep(write, layer_at + extent->place.row_offset + row * shape->row_bytes,
                   rows * shape->row_bytes, bytes + rows_at);
    }
}

void sc_store_write_through_layer_window(struct sc_store_extent *extent,
                                         const struct sc_store_write *write)
{
    uint64_t start = write->op.offset, end = start + write->op.bytes;
    uint64_t stride = extent->place.stride;
    if (!extent->keeps || write->op.status != SPEC_OK)
        return;
    for (uint32_t p = 0; p < extent->part_count; p++) {
        const struct sc_store_part *part = &extent->parts[p];
        if (part->segment != write->segment || end <= part->offset ||
            start >= part->offset + part->layer_count * stride)
            continue;
        uint64_t from = start > part->offset ? (start - part->offset) / stride : 0;
        for (uint64_t l = from; l < part->layer_count && part->offset + l * stride < end; l++)
            layer_keep(extent, write, part->layer_first + (uint32_t)l, part->offset + l * stride);
    }
}

void sc_store_write_through_layer_end(struct sc_store_extent *extent, uint32_t piece_first,
                                      uint32_t skip, uint64_t first_id)
{
    const struct sc_store *store = extent->store;
    for (uint32_t layer = 0; extent->keeps && layer < store->shape.layer_count; layer++) {
        uint32_t row = 0;
        for (uint32_t i = 0; i < extent->piece_count; row += extent->pieces[i++].row_count) {
            struct sc_host_slab_fill fill = {
                .slab = *slab_of(extent, i, layer),
                .piece = first_id + i - piece_first,
                .key = {.copy = extent->copy, .first = row, .layer = layer}};
            bool is_found = first_id != 0 && i >= piece_first && (i > piece_first || skip == 0);
            sc_host_slab_end(store, &fill, is_found);
        }
    }
    extent->keeps = false;
}
