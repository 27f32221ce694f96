/* scan_plan: joins ranges into runs of extents, and cuts these into reads. Contract:
 * store/read/scan_plan.h. */
#include "store/read/scan_plan.h"

#include <string.h>

#define PAGE ((uint64_t)SC_IO_PAGE_BYTES)

/* Longest gap that is read through: a device of 1 GB/s transfers it in one operation's latency. */
#define GAP_BYTES (64ull << 10)

/* A run of two latencies' bytes or more is split in two, for the two default I/O threads. Not while
 * other requests load (one other load may be the same request's next layer): on a busy device,
 * reads of 512 KiB had 85 % of the rate of 1 MiB. */
#define OTHER_LOADS  1u
#define PARTS_WANTED 2u
#define PART_BYTES   (256ull << 10)

void sc_store_plan_begin(struct sc_store_plan *plan, const struct sc_store *store, uint32_t layer,
                         const struct sc_store_range *ranges, uint64_t range_count,
                         uint32_t *slot_rows)
{
    *plan = (struct sc_store_plan){
        .store = store,
        .slot_rows = slot_rows,
        .ranges = ranges,
        .range_count = range_count,
        .layer = layer,
        .is_crowded =
            atomic_load_explicit(&store->counts.loads, memory_order_relaxed) > OTHER_LOADS};
}

/* Where the space is kept, a reset and an erasure drop pieces as an eviction does; leases end with
 * them. */
static bool has_lease(const struct sc_store *store, uint64_t id,
                      const struct sc_store_piece_entry *piece)
{
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    const struct sc_store_shape *shape = sc_store_space_of(&store->log.spaces, extent->space);
    return id >= atomic_load(&shape->void_end) && !atomic_load(&extent->is_erased);
}

static const struct sc_store_piece_entry *piece_find(const struct sc_store *store, uint64_t id)
{
    const struct sc_store_piece_entry *piece = sc_store_table_live(&store->table, id);
    if (piece != NULL || !sc_store_reads_leased(store))
        return piece;
    piece = sc_store_table_leased(&store->table, id);
    return piece != NULL && has_lease(store, id, piece) ? piece : NULL;
}

const struct sc_store_extent_entry *sc_store_range_find(const struct sc_store *store,
                                                        uint32_t layer,
                                                        const struct sc_store_range *range,
                                                        uint64_t *ret_extent_row)
{
    const struct sc_store_piece_entry *piece = piece_find(store, range->piece);
    if (piece == NULL || range->row_first > piece->row_count ||
        range->row_count > piece->row_count - range->row_first || layer >= store->shape.layer_count)
        return NULL;
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    if (extent->space != atomic_load(&store->log.space_id))
        return NULL;
    *ret_extent_row = (uint64_t)piece->extent_row + range->row_first;
    return extent;
}

bool sc_store_range_is_there(const struct sc_store *store, const struct sc_store_range *range)
{
    uint64_t row;
    return sc_store_range_find(store, 0, range, &row) != NULL;
}

static const struct sc_store_extent_entry *range_find(const struct sc_store_plan *plan,
                                                      const struct sc_store_range *range,
                                                      uint64_t *ret_extent_row)
{
    return sc_store_range_find(plan->store, plan->layer, range, ret_extent_row);
}

static void run_slots(struct sc_store_plan *plan)
{
    const uint16_t *slots = plan->where.slots;
    memset(plan->slot_rows, 0, plan->extent->row_count * sizeof(*plan->slot_rows));
    for (uint64_t i = 0; i < plan->run_count; i++)
        plan->slot_rows[slots[plan->run_first + i]] = (uint32_t)i + 1;
    plan->slot_next = 0;
}

/* Opens a run at plan->range and extends it over ranges that continue in the same extent. */
static bool run_open(struct sc_store_plan *plan)
{
    uint64_t row;
    const struct sc_store_extent_entry *extent = range_find(plan, &plan->ranges[plan->range], &row);
    if (extent == NULL)
        return false;
    plan->extent = extent;
    sc_store_slab_where(&plan->store->shape, extent, plan->layer,
                        sc_store_table_piece(&plan->store->table, plan->ranges[plan->range].piece),
                        &plan->where);
    plan->run_first = row;
    plan->run_count = plan->ranges[plan->range].row_count;
    plan->tags_planned = plan->rows_planned = 0;
    for (uint64_t i = plan->range + 1; i < plan->range_count; i++) {
        if (plan->ranges[i].row_count == 0)
            continue;
        if (range_find(plan, &plan->ranges[i], &row) != extent ||
            row != plan->run_first + plan->run_count ||
            sc_host_slab_has(plan->store, plan->layer, &plan->ranges[i], SC_STORE_WANT_ROWS))
            break;
        plan->run_count += plan->ranges[i].row_count;
    }
    if (plan->where.slots != NULL)
        run_slots(plan);
    return true;
}

static void rows_advance(struct sc_store_plan *plan, uint64_t count)
{
    plan->rows_planned += count;
    plan->row_next += count;
    while (count > 0) {
        uint64_t left = plan->ranges[plan->range].row_count - plan->range_row;
        uint64_t now = left < count ? left : count;
        plan->range_row += now;
        count -= now;
        if (plan->range_row == plan->ranges[plan->range].row_count) {
            plan->range++;
            plan->range_row = 0;
        }
    }
    if (plan->rows_planned == plan->run_count)
        plan->run_count = 0;
}

/* Adds [start, end) of the segment file to the op, in whole pages. Returns start's frame offset. */
static uint64_t op_add(struct sc_store_plan_op *op, uint64_t start, uint64_t end)
{
    uint64_t at = op->part_count == 0 ? 0 : op->parts[0].at + op->parts[0].bytes;
    struct sc_store_pages pages = sc_store_pages_of(start, end);
    op->parts[op->part_count].offset = pages.offset;
    op->parts[op->part_count].bytes = pages.bytes;
    op->parts[op->part_count].at = at;
    op->part_count++;
    return at + pages.in;
}

static void plan_tags(struct sc_store_plan *plan, struct sc_store_plan_op *op)
{
    uint64_t tag_bytes = plan->where.tag_stride;
    uint64_t most = plan->store->limits.op_bytes / tag_bytes,
             left = plan->run_count - plan->tags_planned;
    op->tag_first = plan->tags_planned;
    op->tag_count = left < most ? left : most;
    uint64_t start = plan->where.tags + (plan->run_first + op->tag_first) * tag_bytes;
    op->tag_at = op_add(op, start, start + op->tag_count * tag_bytes);
    plan->tags_planned += op->tag_count;
}

/* Plans K rows and V rows of one piece, each up to half a frame. */
static void plan_split_rows(struct sc_store_plan *plan, struct sc_store_plan_op *op)
{
    const struct sc_store *store = plan->store;
    const struct sc_store_range *range = &plan->ranges[plan->range];
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    struct sc_store_slab_where where = plan->where; /* the copy whose tags are planned */
    sc_store_slab_move(&where, piece);
    /* Two halves, each rounded out at both ends, share op_bytes and the frame's two slack pages. */
    uint64_t most = (store->limits.op_bytes + SC_STAGING_SLACK_BYTES - 4 * PAGE) / 2 / where.stride;
    uint64_t left = range->row_count - plan->range_row;
    uint64_t row = piece->extent_row + range->row_first + plan->range_row;
    op->row_count = left < most ? left : most;
    uint64_t k_start = where.base[0] + row * where.stride;
    uint64_t v_start = where.base[1] + row * where.stride;
    op->row_at = op_add(op, k_start, k_start + op->row_count * where.stride);
    op->v_at = op_add(op, v_start, v_start + op->row_count * where.stride);
}

static uint64_t slot_first(const struct sc_store_plan *plan)
{
    uint64_t first = plan->slot_next;
    while (plan->slot_rows[first] == 0)
        first++;
    return first;
}

static struct sc_host_chunk chunk_of(const struct sc_store_plan *plan, uint64_t slot)
{
    return sc_host_chunk_of(plan->store, plan->layer, plan->where.slots_copy,
                            plan->extent->row_count, slot, SC_STORE_WANT_ROWS);
}

static bool chunk_is_in_host_tier(const struct sc_store_plan *plan, uint64_t slot)
{
    struct sc_host_chunk chunk;
    if (sc_host_tier_is_empty(plan->store->host))
        return false;
    chunk = chunk_of(plan, slot);
    return sc_host_chunk_has(plan->store, &chunk);
}

/* Returns the bytes from the run's first tag to its first slot if both fit one read; else 0. */
static uint64_t slots_lead(const struct sc_store_plan *plan)
{
    const struct sc_store_slab_where *where = &plan->where;
    uint64_t tags = where->tags + plan->run_first * where->tag_stride;
    uint64_t rows = where->base[0] + slot_first(plan) * where->stride, lead = rows - tags;
    bool is_near = where->half_count == 1 && rows > tags &&
                   lead - plan->run_count * where->tag_stride <= GAP_BYTES &&
                   lead + where->stride <= plan->store->limits.op_bytes;
    return plan->tags_planned == 0 && is_near && !chunk_is_in_host_tier(plan, slot_first(plan))
               ? lead
               : 0;
}

/* Returns the end of the slots that one read may take from `first` on: whole chunks, if a frame has
 * room for one, up to a chunk in the host tier. */
static uint64_t slots_end(const struct sc_store_plan *plan, uint64_t first, uint64_t lead)
{
    const struct sc_store *store = plan->store;
    uint64_t chunk = store->params.config->chunk_tokens;
    uint64_t most = (store->limits.op_bytes + SC_STAGING_SLACK_BYTES) / plan->where.half_count;
    uint64_t end = first + (most - 2 * PAGE - lead) / plan->where.stride;
    if (store->host == NULL)
        return end < plan->extent->row_count ? end : plan->extent->row_count;
    if (end - end % chunk > first)
        end -= end % chunk;
    end = end < plan->extent->row_count ? end : plan->extent->row_count;
    for (uint64_t next = first - first % chunk + chunk; next < end; next += chunk)
        if (chunk_is_in_host_tier(plan, next))
            return next;
    return end;
}

/* Plans the next slots with rows of the run, through small gaps. lead: bytes of the run's tags in
 * front. */
static void plan_slots(struct sc_store_plan *plan, struct sc_store_plan_op *op, uint64_t lead)
{
    const struct sc_store_slab_where *where = &plan->where;
    uint64_t stride = where->stride, first = slot_first(plan), end = slots_end(plan, first, lead);
    uint64_t last = first, start = where->base[0] + first * stride;
    op->row_count = 1;
    for (uint64_t slot = first + 1; slot < end && (slot - last - 1) * stride <= GAP_BYTES; slot++) {
        if (plan->slot_rows[slot] == 0)
            continue;
        last = slot;
        op->row_count++;
    }
    plan->slot_next = last + 1;
    op->slot_first = first;
    op->slot_count = last + 1 - first;
    op->tag_at = op_add(op, start - lead, where->base[0] + (last + 1) * stride);
    op->row_at = op->tag_at + lead;
    if (lead > 0)
        op->tag_count = plan->tags_planned = plan->run_count;
    if (where->half_count > 1)
        op->v_at =
            op_add(op, where->base[1] + first * stride, where->base[1] + (last + 1) * stride);
}

/* Takes the run's rows in the next slot's chunk from the host tier; false if it is not there. */
static bool plan_host_slab_slots(struct sc_store_plan *plan, struct sc_store_plan_op *op)
{
    if (plan->store->host == NULL)
        return false;
    uint64_t first = slot_first(plan);
    const struct sc_host_chunk chunk = chunk_of(plan, first);
    op->host = sc_host_chunk_get(plan->store, &chunk);
    if (op->host.slab == NULL)
        return false;
    uint64_t away = (first - chunk.first) * plan->where.stride;
    op->slot_first = first;
    op->slot_count = chunk.end - first;
    op->row_at = op->host.row_at + away;
    op->v_at = op->host.v_at + away;
    for (uint64_t slot = first; slot < chunk.end; slot++)
        op->row_count += plan->slot_rows[slot] != 0;
    plan->slot_next = chunk.end;
    return true;
}

/* Returns the bytes from the run's first tag to its first row. */
static uint64_t run_lead(const struct sc_store_plan *plan)
{
    const struct sc_store_slab_where *where = &plan->where;
    return where->base[0] - where->tags + plan->run_first * (where->stride - where->tag_stride);
}

/* Returns the rows per operation: op_bytes or less, so that a run's operations are equal. A short
 * run becomes several, which devices serve in parallel. lead: bytes that the first reads before its
 * rows; they may fill the frame's slack pages if nothing else does. */
static uint64_t rows_even(const struct sc_store_plan *plan, uint64_t lead)
{
    uint64_t row_bytes = plan->store->shape.row_bytes, most = plan->store->limits.op_bytes;
    bool is_spare = row_bytes % PAGE == 0 && plan->where.base[0] % PAGE == 0 &&
                    lead <= SC_STAGING_SLACK_BYTES && plan->run_first == 0 && most % row_bytes == 0;
    uint64_t counted = is_spare ? 0 : lead;
    uint64_t bytes = counted + plan->run_count * row_bytes;
    uint64_t count = (bytes + most - 1) / most, parts = bytes / PART_BYTES;
    uint64_t rows = plan->run_count;
    parts = parts < PARTS_WANTED ? parts : PARTS_WANTED;
    parts = plan->is_crowded ? 1 : parts;
    bool is_long = count > parts;
    count = is_long ? count : parts;
    if (plan->rows_planned > 0)
        counted = 0;
    if (plan->rows_planned > 0 && is_long) {
        rows -= plan->rows_planned;
        count = (rows * row_bytes + most - 1) / most;
    }
    uint64_t even = count > 0 ? (rows + count - 1) / count : 1;
    uint64_t fit = (most - counted) / row_bytes;
    return even < fit ? even : fit;
}

/* Plans paired rows; with all tags of the run in front if that is one operation. */
static void plan_paired(struct sc_store_plan *plan, struct sc_store_plan_op *op)
{
    const struct sc_store *store = plan->store;
    uint64_t row_bytes = store->shape.row_bytes, left = plan->run_count - plan->rows_planned;
    uint64_t tag_bytes = plan->where.tag_stride;
    uint64_t tags = plan->where.tags + plan->run_first * tag_bytes;
    uint64_t rows = plan->where.base[0] + (plan->run_first + plan->rows_planned) * row_bytes;
    uint64_t start = rows, lead = run_lead(plan);
    bool is_apart =
        lead - plan->run_count * tag_bytes > GAP_BYTES || lead + row_bytes > store->limits.op_bytes;
    if (plan->tags_planned == 0) {
        if (is_apart) {
            plan_tags(plan, op);
            return;
        }
        start = tags;
        op->tag_count = plan->tags_planned = plan->run_count;
    }
    uint64_t most = rows_even(plan, is_apart ? 0 : lead);
    op->row_count = left < most ? left : most;
    uint64_t at = op_add(op, start, rows + op->row_count * row_bytes);
    op->tag_at = at; /* valid if tag_count > 0 */
    op->row_at = at + (rows - start);
}

/* Plans tags, then slots, of a permuted copy. The cursor moves when all are planned. */
static void plan_ordered(struct sc_store_plan *plan, struct sc_store_plan_op *op)
{
    uint64_t lead = slots_lead(plan);
    if (plan->tags_planned < plan->run_count && lead == 0)
        plan_tags(plan, op);
    else if (lead > 0 || !plan_host_slab_slots(plan, op))
        plan_slots(plan, op, lead);
    op->slots = plan->where.slots;
    op->slots_copy = plan->where.slots_copy;
    op->run_first = plan->run_first;
    op->run_count = plan->run_count;
    plan->rows_planned += op->row_count;
    if (plan->rows_planned < plan->run_count)
        return;
    plan->rows_planned = 0;
    rows_advance(plan, plan->run_count);
}

static bool plan_host_slab(struct sc_store_plan *plan, struct sc_store_plan_op *op)
{
    const struct sc_store_range *range = &plan->ranges[plan->range];
    uint64_t row;
    const struct sc_store_extent_entry *extent =
        plan->store->host != NULL ? range_find(plan, range, &row) : NULL;
    if (extent == NULL)
        return false;
    if (atomic_load_explicit(&extent->permutation, memory_order_acquire) != NULL &&
        !sc_host_slab_has(plan->store, plan->layer, range, SC_STORE_WANT_ROWS))
        return false; /* chunks are looked up then, and count the misses */
    op->host = sc_host_slab_get(plan->store, plan->layer, range, SC_STORE_WANT_ROWS);
    if (op->host.slab == NULL)
        return false;
    op->tag_count = op->row_count = range->row_count;
    op->tag_at = op->host.tag_at;
    op->row_at = op->host.row_at;
    op->v_at = op->host.v_at;
    plan->row_next += range->row_count;
    plan->range++;
    return true;
}

bool sc_store_plan_next(struct sc_store_plan *plan, struct sc_store_plan_op *ret_op)
{
    const struct sc_store_shape *shape = &plan->store->shape;
    while (plan->range < plan->range_count && plan->ranges[plan->range].row_count == 0)
        plan->range++;
    if (plan->range == plan->range_count)
        return false;
    *ret_op = (struct sc_store_plan_op){
        .range = plan->range, .range_row = plan->range_row, .row_first = plan->row_next};
    if (plan->run_count == 0 && plan_host_slab(plan, ret_op))
        return true;
    if (plan->run_count == 0 && !run_open(plan)) {
        ret_op->status = SPEC_E_CORRUPT;
        plan->range = plan->range_count;
        return true;
    }
    ret_op->segment = plan->where.segment;
    ret_op->run_row = plan->rows_planned;
    if (plan->where.slots != NULL) {
        plan_ordered(plan, ret_op);
        return true;
    }
    if (plan->tags_planned > 0 && plan->tags_planned < plan->run_count)
        plan_tags(plan, ret_op);
    else if (shape->layout == SC_STORE_PAIRED)
        plan_paired(plan, ret_op);
    else if (plan->tags_planned == 0)
        plan_tags(plan, ret_op);
    else
        plan_split_rows(plan, ret_op);
    if (ret_op->row_count > 0)
        rows_advance(plan, ret_op->row_count);
    return true;
}
