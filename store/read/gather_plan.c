/* gather_plan: groups gathered rows into reads of pages. Contract: store/read/gather_plan.h. */
#include "store/read/gather_plan.h"

#include "store/read/scan_plan.h"

#include <string.h>

#define PAGE ((uint64_t)SC_IO_PAGE_BYTES)

/* Gaps may be a sixth of the rows. Without this limit, a random quarter of rows of 8 KiB or more is
 * read 1.2 to 2 times if operations are expensive. */
#define GAP_SHARE 6u

#define GAP_BYTES_MAX (64ull << 10) /* longer gaps always start another operation */

uint64_t sc_store_device_gap(const struct sc_store_device *device)
{
    double bytes = (double)device->op_ns * (double)device->bytes_per_s / 1e9;
    return bytes < (double)GAP_BYTES_MAX ? (uint64_t)bytes : GAP_BYTES_MAX;
}

static void turns_make(struct sc_store_gather_plan *plan, struct sc_store_slot_memory *memory);

void sc_store_gather_plan_begin(struct sc_store_gather_plan *plan, const struct sc_store *store,
                                uint32_t layer, const struct sc_store_range *ranges,
                                uint64_t range_count, const struct sc_store_gather_rows *gather,
                                struct sc_store_slot_memory *memory)
{
    plan->store = store;
    plan->ranges = ranges;
    plan->range_count = range_count;
    plan->layer = layer;
    plan->gather = *gather;
    plan->gather.count = range_count > 0 ? gather->count : 0;
    plan->gathered = plan->range = plan->range_first = 0;
    plan->slab_next = plan->slab_end = plan->mark_stride = 0;
    plan->row_bytes = plan->gap_bytes = 0;
    plan->is_open = false;
    plan->gather.turn = memory->turn;
    plan->gather.turn_count = 0;
    turns_make(plan, memory);
}

static void marks_make(struct sc_store_gather_plan *plan)
{
    uint64_t row = 0;
    plan->mark_stride = plan->range_count / SC_STORE_GATHER_MARKS + 1;
    for (uint64_t i = 0; i < plan->range_count; i++) {
        if (i % plan->mark_stride == 0)
            plan->marks[i / plan->mark_stride] = row;
        row += plan->ranges[i].row_count;
    }
}

static void cursor_back(struct sc_store_gather_plan *plan, uint64_t row)
{
    if (plan->mark_stride == 0)
        marks_make(plan);
    uint64_t low = 0, high = (plan->range_count - 1) / plan->mark_stride;
    while (low < high) {
        uint64_t middle = (low + high + 1) / 2;
        if (plan->marks[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    plan->range = low * plan->mark_stride;
    plan->range_first = plan->marks[low];
    plan->is_open = false;
}

/* Moves the cursor to the range of a logical row; false if there is none. */
static bool cursor_seek(struct sc_store_gather_plan *plan, uint64_t row)
{
    if (row < plan->range_first)
        cursor_back(plan, row);
    while (plan->range < plan->range_count &&
           row - plan->range_first >= plan->ranges[plan->range].row_count) {
        plan->range_first += plan->ranges[plan->range++].row_count;
        plan->is_open = false;
    }
    return plan->range < plan->range_count;
}

/* Sets `place` for the cursor's range. Returns false if the range is not readable. */
static bool place_open(struct sc_store_gather_plan *plan)
{
    if (plan->is_open)
        return true;
    const struct sc_store *store = plan->store;
    const struct sc_store_range *range = &plan->ranges[plan->range];
    uint64_t row;
    const struct sc_store_extent_entry *extent =
        sc_store_range_find(store, plan->layer, range, &row);
    if (extent == NULL)
        return false;
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    struct sc_store_gather_place *place = &plan->place;
    *place = (struct sc_store_gather_place){
        .extent = extent,
        .shift = row - plan->range_first,
        .slab_first = piece->extent_row,
        .slab_end = (uint64_t)piece->extent_row + piece->row_count,
    };
    sc_store_slab_where(&store->shape, extent, plan->layer, piece, &place->where);
    if (place->where.slots != NULL)
        place->slab_first = place->slab_end = 0;
    if (plan->gather.wanted == SC_STORE_WANT_V)
        place->where.base[0] = place->where.base[1];
    if (plan->gather.wanted != SC_STORE_WANT_ROWS)
        place->where.half_count = 1;
    plan->is_open = true;
    return true;
}

static bool places_join(const struct sc_store_gather_plan *plan,
                        const struct sc_store_gather_place *a,
                        const struct sc_store_gather_place *b)
{
    return a->extent == b->extent && a->shift == b->shift && a->where.slots == b->where.slots &&
           (plan->store->shape.layout == SC_STORE_PAIRED || a->slab_first == b->slab_first);
}

static uint64_t file_at(const struct sc_store_gather_place *place, uint32_t half, uint64_t slot)
{
    return place->where.base[half] + slot * place->where.stride;
}

static uint64_t slot_of(const struct sc_store_gather_place *place, uint64_t row)
{
    return sc_store_slot_of(&place->where, row + place->shift);
}

/* ---- Read order ------------------------------------------------------------------------------ */

/* Sorts rows [first, end), ascending in one extent with a permuted copy, by slot; those in the host
 * tier are last, in their order. */
static void turns_sort(struct sc_store_gather_plan *plan, struct sc_store_slot_memory *memory,
                       uint64_t first, uint64_t end)
{
    uint64_t rows = plan->place.extent->row_count, at = first, host_slab_range = UINT64_MAX;
    const struct sc_store_gather_place place = plan->place;
    bool is_in_host_tier = false;
    memset(memory->at, 0, rows * sizeof(*memory->at));
    for (uint64_t i = first; i < end; i++) {
        uint64_t row = sc_store_gather_row(&plan->gather, i);
        (void)cursor_seek(plan, row);
        if (host_slab_range != plan->range)
            is_in_host_tier = sc_host_slab_has(plan->store, plan->layer, &plan->ranges[plan->range],
                                               plan->gather.wanted);
        host_slab_range = plan->range;
        memory->turn[i] = is_in_host_tier ? (uint32_t)i : UINT32_MAX;
        if (!is_in_host_tier)
            memory->at[slot_of(&place, row)] = (uint32_t)i + 1;
    }
    /* Rows in the host tier move to the end, last one first: nothing is overwritten before it is
     * read. */
    uint64_t tail = end;
    for (uint64_t i = end; i-- > first;)
        if (memory->turn[i] != UINT32_MAX)
            memory->turn[--tail] = memory->turn[i];
    for (uint64_t slot = 0; slot < rows; slot++)
        if (memory->at[slot] != 0)
            memory->turn[at++] = memory->at[slot] - 1;
    SC_ASSERT(plan->store->params.poison, at == tail);
}

/* Sets the read order as far as the scratch memory reaches; turn_count 0: the caller's order. */
static void turns_make(struct sc_store_gather_plan *plan, struct sc_store_slot_memory *memory)
{
    uint64_t most = SC_STORE_ROWS_MAX, first = 0;
    if (atomic_load_explicit(&plan->store->counts.permute_queue, memory_order_relaxed) == 0)
        return;
    most = plan->gather.count < most ? plan->gather.count : most;
    while (first < most) {
        uint64_t row = sc_store_gather_row(&plan->gather, first), end = first, last = row;
        if (!cursor_seek(plan, row) || !place_open(plan)) {
            memory->turn[first] = (uint32_t)first;
            first++; /* the plan reports the error at this row */
            continue;
        }
        const struct sc_store_gather_place place = plan->place;
        do {
            memory->turn[end] = (uint32_t)end;
            last = row;
            row = ++end < most ? sc_store_gather_row(&plan->gather, end) : 0;
        } while (end < most && row > last && cursor_seek(plan, row) && place_open(plan) &&
                 plan->place.extent == place.extent && plan->place.shift == place.shift);
        if (place.where.slots != NULL) {
            plan->is_open = false;
            (void)cursor_seek(plan, sc_store_gather_row(&plan->gather, first));
            if (place_open(plan) && plan->place.where.slots == place.where.slots)
                turns_sort(plan, memory, first, end);
        }
        first = end;
    }
    plan->gather.turn_count = first;
    plan->range = plan->range_first = 0;
    plan->is_open = false;
}

/* ---- Operations ----------------------------------------------------------------------------- */

static uint64_t pages_of(const struct sc_store_gather_place *place, uint64_t first, uint64_t end)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < place->where.half_count; i++)
        bytes += sc_store_pages_of(file_at(place, i, first), file_at(place, i, end)).bytes;
    return bytes;
}

/* Returns the unwanted page bytes between the last slot of a read and a later slot. */
static uint64_t gap_of(const struct sc_store_gather_place *place, uint64_t last, uint64_t slot)
{
    uint64_t end = sc_store_up(file_at(place, 0, last + 1), PAGE);
    uint64_t start = sc_store_down(file_at(place, 0, slot), PAGE);
    return start > end ? start - end : 0;
}

/* Returns true if the slot joins the read of [first, last]; counts its gap. */
static bool slot_joins(struct sc_store_gather_plan *plan, const struct sc_store_gather_place *place,
                       uint64_t first, uint64_t last, uint64_t slot)
{
    uint64_t gap = gap_of(place, last, slot);
    uint64_t gaps = plan->gap_bytes + gap * place->where.half_count;
    if (gap > plan->gather.gap_bytes || (gap > 0 && gaps > plan->row_bytes / GAP_SHARE) ||
        pages_of(place, first, slot + 1) > plan->store->limits.op_bytes + SC_STAGING_SLACK_BYTES)
        return false;
    plan->gap_bytes = gaps;
    return true;
}

/* Takes ascending rows below slot `end` into one read of slots [first, *last], but none of a range
 * in the host tier. is_whole: all slots are read, so gaps do not matter. */
static void gather_take(struct sc_store_gather_plan *plan,
                        const struct sc_store_gather_place *place, uint64_t first, uint64_t end,
                        bool is_whole, uint64_t *last)
{
    uint64_t row_bytes = sc_store_up(place->where.stride, PAGE) * place->where.half_count;
    uint64_t range = plan->range;
    for (plan->row_bytes += row_bytes; plan->gathered < plan->gather.count;
         plan->row_bytes += row_bytes) {
        uint64_t row = sc_store_gather_row(&plan->gather, plan->gathered);
        if ((place->where.slots == NULL && row <= *last - place->shift) ||
            !cursor_seek(plan, row) || !place_open(plan) || !places_join(plan, place, &plan->place))
            return;
        uint64_t slot = slot_of(place, row);
        bool is_in_host_tier = plan->range != range &&
                               sc_host_slab_has(plan->store, plan->layer,
                                                &plan->ranges[plan->range], plan->gather.wanted);
        if (slot <= *last || slot >= end || is_in_host_tier ||
            (!is_whole && !slot_joins(plan, place, first, *last, slot)))
            return;
        range = plan->range;
        *last = slot;
        plan->gathered++;
    }
}

/* Sets the reads of slots [first, end); op->at is of `slot`. */
static void op_parts(const struct sc_store_gather_place *place, uint64_t first, uint64_t end,
                     uint64_t slot, struct sc_store_gather_op *op)
{
    uint64_t before = 0;
    op->slots = place->where.slots;
    op->slots_copy = place->where.slots_copy;
    op->shift = place->shift;
    op->segment = place->where.segment;
    op->part_count = place->where.half_count;
    for (uint32_t i = 0; i < place->where.half_count; i++) {
        struct sc_store_pages pages =
            sc_store_pages_of(file_at(place, i, first), file_at(place, i, end));
        op->parts[i].offset = pages.offset;
        op->parts[i].bytes = pages.bytes;
        op->at[i] = before + (file_at(place, i, slot) - pages.offset);
        before += pages.bytes;
    }
}

static struct sc_host_chunk chunk_of(const struct sc_store_gather_plan *plan,
                                     const struct sc_store_gather_place *place)
{
    uint64_t slot = slot_of(place, sc_store_gather_row(&plan->gather, plan->gathered));
    return sc_host_chunk_of(plan->store, plan->layer, place->where.slots_copy,
                            place->extent->row_count, slot, plan->gather.wanted);
}

/* Opens a slab. Its operations have about equal sizes that fit a frame with any rounding. */
static void slab_open(struct sc_store_gather_plan *plan)
{
    const struct sc_store_gather_place *place = &plan->place;
    uint64_t frame_bytes = plan->store->limits.op_bytes + SC_STAGING_SLACK_BYTES;
    uint64_t most = (frame_bytes / place->where.half_count - 2 * PAGE) / place->where.stride;
    most = most > 0 ? most : 1;
    uint64_t first = place->slab_first, end = place->slab_end;
    if (place->where.slots != NULL) { /* the chunk has rows of other pieces too */
        struct sc_host_chunk chunk = chunk_of(plan, place);
        first = chunk.first;
        end = chunk.end;
    }
    uint64_t rows = end - first, count = (rows + most - 1) / most;
    plan->slab = *place;
    plan->slab_range = plan->range;
    plan->slab_range_first = plan->range_first;
    plan->slab_next = first;
    plan->slab_end = end;
    plan->slab_rows = (rows + count - 1) / count;
}

/* Sets the slab's next op, with the gathered rows in it. */
static void slab_next(struct sc_store_gather_plan *plan, struct sc_store_gather_op *op)
{
    const struct sc_store_gather_place slab = plan->slab;
    uint64_t first = plan->slab_next, end = first + plan->slab_rows, slot = first;
    end = end < plan->slab_end ? end : plan->slab_end;
    plan->slab_next = end;
    op->range = plan->range;
    op->range_first = plan->range_first;
    if (plan->gathered < plan->gather.count &&
        cursor_seek(plan, sc_store_gather_row(&plan->gather, plan->gathered)) && place_open(plan) &&
        places_join(plan, &slab, &plan->place)) {
        slot = slot_of(&slab, sc_store_gather_row(&plan->gather, plan->gathered));
        if (slot >= first && slot < end) {
            uint64_t last = slot;
            op->range = plan->range;
            op->range_first = plan->range_first;
            plan->gathered++;
            gather_take(plan, &slab, first, end, true, &last);
        } else {
            slot = first;
        }
    }
    op->gather_count = plan->gathered - op->gather_first;
    op_parts(&slab, first, end, slot, op);
    op->slab = (struct sc_store_gather_slab){.range = (uint32_t)plan->slab_range,
                                             .range_first = (uint32_t)plan->slab_range_first,
                                             .first = (uint32_t)first,
                                             .count = (uint32_t)(end - first)};
    for (uint32_t i = 0; i < op->part_count; i++)
        op->slab.at[i] = (uint32_t)(op->at[i] - (slot - first) * slab.where.stride);
}

/* Takes rows of the cursor's range from the host tier, from the next row on. */
static bool host_slab_next(struct sc_store_gather_plan *plan, struct sc_store_gather_op *op)
{
    const struct sc_store_range *range = &plan->ranges[plan->range];
    const struct sc_store_shape *shape = &plan->store->shape;
    uint64_t stride = shape->layout == SC_STORE_SPLIT ? shape->k_row_bytes : shape->row_bytes;
    uint64_t first = sc_store_gather_row(&plan->gather, plan->gathered) - plan->range_first,
             last = first;
    if (plan->place.where.slots != NULL && /* its chunk is looked up next, and counts the miss */
        !sc_host_slab_has(plan->store, plan->layer, range, plan->gather.wanted))
        return false;
    op->host = sc_host_slab_get(plan->store, plan->layer, range, plan->gather.wanted);
    if (op->host.slab == NULL)
        return false;
    op->at[0] = op->host.row_at + first * stride;
    op->at[1] = op->host.v_at + first * stride;
    if (plan->gather.wanted == SC_STORE_WANT_V)
        op->at[0] = op->at[1];
    for (plan->gathered++; plan->gathered < plan->gather.count; plan->gathered++) {
        uint64_t row = sc_store_gather_row(&plan->gather, plan->gathered) - plan->range_first;
        if (row <= last || row >= range->row_count) /* also before the range, modulo 2^64 */
            break;
        last = row;
    }
    op->gather_count = plan->gathered - op->gather_first;
    return true;
}

/* Takes rows whose slots are in the next row's chunk from the host tier. */
static bool host_slab_chunk_next(struct sc_store_gather_plan *plan, struct sc_store_gather_op *op)
{
    const struct sc_store_gather_place place = plan->place;
    if (place.where.slots == NULL || plan->store->host == NULL)
        return false;
    const struct sc_host_chunk chunk = chunk_of(plan, &place);
    op->host = sc_host_chunk_get(plan->store, &chunk);
    if (op->host.slab == NULL)
        return false;
    uint64_t slot = slot_of(&place, sc_store_gather_row(&plan->gather, plan->gathered)),
             last = slot;
    uint64_t away = (slot - chunk.first) * place.where.stride, row_bytes = plan->row_bytes;
    op->slots = place.where.slots;
    op->slots_copy = place.where.slots_copy;
    op->shift = place.shift;
    op->at[0] = op->host.row_at + away;
    op->at[1] = op->host.v_at + away;
    if (plan->gather.wanted == SC_STORE_WANT_V)
        op->at[0] = op->at[1];
    plan->gathered++;
    gather_take(plan, &place, slot, chunk.end, true, &last);
    plan->row_bytes = row_bytes; /* these rows are not read */
    op->gather_count = plan->gathered - op->gather_first;
    return true;
}

uint64_t sc_store_gather_plan_end(struct sc_store_gather_plan *plan)
{
    uint64_t end = plan->gathered;
    for (bool is_in = plan->slab_next < plan->slab_end; is_in && end < plan->gather.count;
         end += is_in) {
        uint64_t row = sc_store_gather_row(&plan->gather, end);
        is_in = cursor_seek(plan, row) && place_open(plan) &&
                places_join(plan, &plan->slab, &plan->place) &&
                slot_of(&plan->slab, row) >= plan->slab_next &&
                slot_of(&plan->slab, row) < plan->slab_end;
    }
    plan->gather.count = end;
    return end;
}

bool sc_store_gather_plan_next(struct sc_store_gather_plan *plan, struct sc_store_gather_op *ret_op)
{
    *ret_op = (struct sc_store_gather_op){.gather_first = plan->gathered};
    if (plan->slab_next < plan->slab_end) {
        slab_next(plan, ret_op);
        return true;
    }
    if (plan->gathered == plan->gather.count)
        return false;
    uint64_t row = sc_store_gather_row(&plan->gather, plan->gathered);
    bool is_found = cursor_seek(plan, row) && place_open(plan);
    ret_op->range = plan->range < plan->range_count ? plan->range : plan->range_count - 1;
    ret_op->range_first = plan->range_first;
    if (!is_found) {
        ret_op->status = SPEC_E_CORRUPT;
        ret_op->gather_count = 1;
        plan->gathered++; /* the load fails here only if the row is still wanted */
        return true;
    }
    if (host_slab_next(plan, ret_op) || host_slab_chunk_next(plan, ret_op))
        return true;
    if (plan->gather.whole_slabs) {
        slab_open(plan);
        slab_next(plan, ret_op);
        return true;
    }
    const struct sc_store_gather_place place = plan->place;
    uint64_t first = slot_of(&place, row), last = first;
    plan->gathered++;
    gather_take(plan, &place, first, UINT64_MAX, false, &last);
    ret_op->gather_count = plan->gathered - ret_op->gather_first;
    op_parts(&place, first, last + 1, first, ret_op);
    return true;
}
