/* where: see where.h. */
#include "store/log/where.h"

#include "store/internal.h"
#include "store/rows/row_permutation.h"

#include <string.h>

#define PAGE           ((uint64_t)SC_IO_PAGE_BYTES)
#define ROW_ALIGN      64u
#define PAGE_ROWS_SIZE (64u << 10) /* smaller layers: page alignment would waste over 1/16 */

void sc_store_shape_set(struct sc_store_shape *shape, const struct sc_store_namespace *space)
{
    *shape = (struct sc_store_shape){.layer_count = space->layer_count,
                                     .layout = space->layout,
                                     .k_row_bytes = space->k_row_bytes,
                                     .row_bytes = 2 * space->k_row_bytes,
                                     .tags_per_row = space->layout == SC_STORE_SPLIT ? 2 : 1};
    memcpy(shape->digest, space->digest, sizeof(shape->digest));
    memcpy(shape->family, space->family, sizeof(shape->family));
}

struct sc_store_place sc_store_shape_place(const struct sc_store_shape *shape,
                                           uint64_t probe_row_bytes, uint64_t row_count)
{
    struct sc_store_place place = {0};
    uint64_t rows = row_count * shape->row_bytes;
    bool pages = shape->row_bytes % PAGE == 0 && rows >= PAGE_ROWS_SIZE;
    uint64_t align = pages ? PAGE : ROW_ALIGN;
    if (probe_row_bytes > 0) {
        place.probe_tag_offset = sc_store_up(row_count * probe_row_bytes, 8);
        place.tag_offset = place.probe_tag_offset + row_count * 8;
    }
    place.row_offset = sc_store_up(place.tag_offset + row_count * shape->tags_per_row * 8, align);
    place.stride = sc_store_up(place.row_offset + rows, align);
    return place;
}

uint64_t sc_store_part_pages(const struct sc_store_part *part, uint64_t stride)
{
    return (part->layer_count * stride + PAGE - 1) / PAGE;
}

const struct sc_store_part *sc_store_part_of(const struct sc_store_part *parts, uint32_t part_count,
                                             uint32_t layer)
{
    uint32_t low = 0, high = part_count; /* parts[low] begins at or before layer */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (parts[middle].layer_first <= layer)
            low = middle;
        else
            high = middle;
    }
    return &parts[low];
}

struct sc_store_where sc_store_layer_where(const struct sc_store_part *parts, uint32_t part_count,
                                           uint64_t stride, uint32_t layer)
{
    const struct sc_store_part *part = sc_store_part_of(parts, part_count, layer);
    return (struct sc_store_where){part->segment, sc_store_part_at(part, stride, layer)};
}

void sc_store_slab_where(const struct sc_store_shape *shape,
                         const struct sc_store_extent_entry *extent, uint32_t layer,
                         const struct sc_store_piece_entry *piece,
                         struct sc_store_slab_where *ret_where)
{
    const struct sc_store_row_copy row_copy = sc_store_row_copy_of(extent);
    struct sc_store_where where =
        sc_store_layer_where(row_copy.parts, row_copy.part_count, row_copy.stride, layer);
    uint64_t rows = where.offset + row_copy.row_offset, k_bytes = shape->k_row_bytes;
    *ret_where = (struct sc_store_slab_where){.segment = where.segment,
                                              .half_count = 1,
                                              .rows = rows,
                                              .base = {rows, rows + k_bytes},
                                              .stride = shape->row_bytes,
                                              .tags = where.offset + row_copy.tag_offset,
                                              .tag_stride = 8ull * shape->tags_per_row};
    if (row_copy.derived != NULL) {
        ret_where->slots =
            sc_store_permutation_of(row_copy.derived->slots, extent->row_count, layer);
        ret_where->slots_copy = row_copy.derived->copy;
    }
    if (shape->layout != SC_STORE_SPLIT)
        return;
    ret_where->half_count = 2;
    ret_where->base[1] = rows + extent->row_count * k_bytes; /* K of all rows, then V */
    ret_where->stride = k_bytes;
    sc_store_slab_move(ret_where, piece);
}

void sc_store_slab_move(struct sc_store_slab_where *where, const struct sc_store_piece_entry *piece)
{
    if (where->half_count == 1 || where->slots != NULL)
        return;
    /* A slab is its K rows, then its V rows, from its first row's place on. */
    where->base[0] = where->rows + piece->extent_row * where->stride;
    where->base[1] = where->base[0] + piece->row_count * where->stride;
}
