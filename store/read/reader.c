/* reader: plans a load's reads, consumes completed slots in order, and returns verified rows.
 *
 *   list    [completed front][in flight][in flight][completed] ...    consumed in order
 *   slot    whole ranges: one operation of the plan, at most two reads
 *           gather: as many small reads as fit a frame, at most SLOT_READS, submitted together:
 *           [unit: gathered rows of one read, or of a K and a V read][unit] ...   in a ring
 *
 * Completions start several operations at once, when half of the in-flight target is free; so does
 * the consumer when it frees slots. Read-ahead is limited by the frames of its I/O class; readers
 * opened together share the slots for it.
 *
 * Invariants: returned rows were verified against namespace, piece, copy, layer, part and position.
 * After cancel the old load touches nothing of the next. A failed operation is not retried. Nothing
 * is allocated after open.
 * Threads: begin, demand, next, cancel, close: the owner, one at a time. The lock of inflight (rank
 * 30) is not held while verifying.
 * Tests: tests/unit/store/test_store.c, test_tiers_twin.c, tests/fault/test_store_faults.c */
#include "store/read/reader.h"

#include <string.h>

/* Reads of a gather, queued or in flight, refilled at half. Even if slots of 128 reads (the back
 * end's depth) are nearly done, the depth stays full. With 320, loads of 4 KiB rows took a tenth
 * longer. */
#define READS       SC_INFLIGHT_READS_MAX
#define SLOT_READS  64u
#define WHOLE_READS 2u

/* Shared slots for ranges in the host tier. They need no frame, and let reads behind them start
 * early. */
#define HOST_SLAB_SLOTS 1024u

/* ---- Client of inflight ---------------------------------------------------------------------- */

static struct sc_store_reader *reader_of(const struct sc_inflight *inflight)
{
    return (struct sc_store_reader *)(uintptr_t)inflight;
}

static struct sc_reader_slot *front_of(const struct sc_store_reader *reader)
{
    return sc_reader_slot_of(reader->inflight.first);
}

static uint64_t op_bytes(const struct sc_store_gather_op *op)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->part_count; i++)
        bytes += op->parts[i].bytes;
    return bytes;
}

static void op_drop(struct sc_store_reader *reader)
{
    struct sc_host_tier_memory_slab *slab =
        reader->is_gather ? reader->gather_op.host.slab : reader->op.host.slab;
    if (reader->has_op)
        sc_host_tier_unpin(reader->inflight.store->host, slab);
    reader->has_op = false;
}

/* Lock held. Plans the next operation (of a narrowed load: with a wanted row); false at the end. */
static bool op_plan(struct sc_store_reader *reader)
{
    const struct sc_store_gather_op *gather = &reader->gather_op;
    while (!reader->has_op && !reader->is_planned) {
        reader->has_op = reader->is_gather
                             ? sc_store_gather_plan_next(&reader->gather_plan, &reader->gather_op)
                             : sc_store_plan_next(&reader->plan, &reader->op);
        reader->is_planned = !reader->has_op;
        if (reader->has_op && reader->is_gather && reader->wanted_bits != NULL &&
            sc_reader_gather_wanted(reader, gather->gather_first, gather->gather_count, NULL) == 0)
            op_drop(reader);
    }
    return reader->has_op;
}

static uint32_t units_used(const struct sc_store_reader *reader)
{
    const struct sc_reader_slot *front = front_of(reader);
    return front == NULL ? 0 : (reader->unit_next - front->unit_first) % SC_READER_UNITS;
}

/* Lock held. Returns how many more operations with a frame the load may begin. A load that is
 * waited for keeps max(SC_READER_SLOTS, frames_raised): if its caller pauses, others find frames. A
 * load that is read ahead gets its share, at most half (the layer before it has the other half). */
static uint64_t frames_left(const struct sc_inflight *inflight)
{
    const struct sc_store *store = inflight->store;
    uint64_t loads = atomic_load_explicit(&store->counts.loads, memory_order_relaxed);
    uint64_t share = sc_staging_count(store->frames) / (loads > 2 ? loads : 2);
    uint64_t left = sc_inflight_slots_left(inflight), most = reader_of(inflight)->frames_raised;
    if (inflight->io_class != SC_IO_CLASS_DEMAND)
        most = share;
    most = most > SC_READER_SLOTS ? most : SC_READER_SLOTS;
    most = inflight->frame_count < most ? most - inflight->frame_count : 0;
    return left < most ? left : most;
}

static enum sc_inflight_need reader_next(struct sc_inflight *inflight)
{
    struct sc_store_reader *reader = reader_of(inflight);
    if (!reader->is_active ||
        (reader->is_gather && units_used(reader) >= SC_READER_UNITS - SLOT_READS) ||
        !op_plan(reader))
        return SC_INFLIGHT_NOTHING;
    uint32_t parts = reader->is_gather ? reader->gather_op.part_count : reader->op.part_count;
    if (parts == 0)
        return SC_INFLIGHT_NO_FRAME;
    return frames_left(inflight) > 0 ? SC_INFLIGHT_FRAME : SC_INFLIGHT_NOTHING;
}

/* Lock held. Fills the slot with the planned operation of whole ranges. */
static void slot_fill(struct sc_reader_slot *slot, struct sc_inflight_batch *batch)
{
    struct sc_store_reader *reader = reader_of(slot->inflight.inflight);
    const struct sc_store_shape *shape = &reader->inflight.store->shape;
    const struct sc_store_plan_op *plan = &reader->op;
    reader->has_op = false;
    slot->plan = *plan;
    slot->serial = ++reader->serials;
    atomic_init(&slot->check, SC_READER_UNCHECKED);
    slot->inflight.status = plan->status;
    if (plan->host.slab != NULL) {
        slot->inflight.host = plan->host.slab;
        slot->inflight.frame = plan->host.bytes;
        slot->tier = plan->host.tier;
    }
    reader->inflight.cost.wanted_bytes +=
        plan->row_count * shape->row_bytes + plan->tag_count * shape->tags_per_row * 8;
    for (uint32_t i = 0; i < plan->part_count; i++)
        (void)sc_inflight_read_add(&slot->inflight,
                                   (struct sc_store_where){plan->segment, plan->parts[i].offset},
                                   plan->parts[i].bytes, plan->parts[i].at, batch);
}

/* Lock held. Adds the planned rows as a unit, `used` bytes into the slot's frame. */
static void unit_add(struct sc_reader_slot *slot, uint64_t used, struct sc_inflight_batch *batch)
{
    struct sc_store_reader *reader = reader_of(slot->inflight.inflight);
    const struct sc_store_gather_op *plan = &reader->gather_op;
    uint64_t at = used;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        struct sc_inflight_read *read = sc_inflight_read_add(
            &slot->inflight, (struct sc_store_where){plan->segment, plan->parts[i].offset},
            plan->parts[i].bytes, at, batch);
        read->unit = reader->unit_next;
        at += plan->parts[i].bytes;
    }
    struct sc_store_gather_slab slab = plan->slab;
    for (uint32_t i = 0; i < 2; i++)
        slab.at[i] += (uint32_t)used;
    reader->units[reader->unit_next] = (struct sc_reader_unit){
        .gather_first = (uint32_t)plan->gather_first,
        .gather_count = (uint32_t)plan->gather_count,
        .range = (uint32_t)plan->range,
        .range_first = (uint32_t)plan->range_first,
        .at = {(uint32_t)(used + plan->at[0]), (uint32_t)(used + plan->at[1])},
        .status = plan->status,
        .slab = slab,
        .slots = plan->slots,
        .slots_copy = plan->slots_copy,
        .shift = plan->shift};
    reader->unit_next = (reader->unit_next + 1) % SC_READER_UNITS;
    slot->unit_count++;
    uint64_t wanted = sc_reader_gather_wanted(reader, plan->gather_first, plan->gather_count, NULL);
    reader->inflight.cost.wanted_bytes += wanted * sc_reader_gather_bytes(reader);
    reader->inflight.cost.row_count += plan->gather_count;
    reader->has_op = false;
}

/* Lock held. Fills the slot with the planned rows and those that follow, as far as the frame has
 * room. */
static void slot_fill_gather(struct sc_reader_slot *slot, struct sc_inflight_batch *batch)
{
    struct sc_store_reader *reader = reader_of(slot->inflight.inflight);
    uint64_t frame_bytes = sc_staging_frame_bytes(reader->inflight.store->frames), used = 0;
    slot->plan = (struct sc_store_plan_op){0};
    slot->unit_first = reader->unit_next;
    slot->unit_count = 0;
    while (op_plan(reader)) {
        const struct sc_store_gather_op *plan = &reader->gather_op;
        uint64_t bytes = op_bytes(plan);
        bool is_in_host_tier = plan->host.slab != NULL;
        if (slot->unit_count > 0 && (is_in_host_tier || slot->inflight.host != NULL ||
                                     (plan->part_count == 0) != (slot->inflight.left == 0)))
            break; /* an op without reads gets its own slot: it has its own memory, or none */
        if (is_in_host_tier) {
            slot->inflight.host = plan->host.slab;
            slot->inflight.frame = plan->host.bytes;
            slot->tier = plan->host.tier;
        }
        if (used + bytes > frame_bytes || slot->inflight.left + plan->part_count > SLOT_READS ||
            slot->unit_count == SLOT_READS)
            break;
        unit_add(slot, used, batch);
        used += bytes;
    }
}

static void reader_fill(struct sc_inflight_slot *slot, struct sc_inflight_batch *batch)
{
    if (reader_of(slot->inflight)->is_gather)
        slot_fill_gather(sc_reader_slot_of(slot), batch);
    else
        slot_fill(sc_reader_slot_of(slot), batch);
}

/* Sets the error of the unit only: other rows of the frame may be right. */
static void reader_read_failed(const struct sc_inflight_read *read)
{
    struct sc_store_reader *reader = reader_of(read->slot->inflight);
    spec_status *status = &reader->units[read->unit].status;
    if (reader->is_gather && *status == SPEC_OK)
        *status = read->op.status;
}

static bool reader_completed(struct sc_inflight_slot *slot)
{
    (void)slot;
    return true;
}

/* Returns true if half of the in-flight limit is free, so that operations are submitted in batches;
 * or if frames allow less, when nothing is in flight. */
static bool reader_refills(const struct sc_inflight *inflight)
{
    const struct sc_store_reader *reader = reader_of(inflight);
    uint32_t half = inflight->flying_max / 2;
    if (inflight->flying > half || (inflight->flying > 0 && frames_left(inflight) < half))
        return false;
    return !reader->is_gather ||
           (inflight->read_count <= READS / 2 && units_used(reader) <= SC_READER_UNITS / 2);
}

static const struct sc_inflight_client READER = {.next = reader_next,
                                                 .fill = reader_fill,
                                                 .read_failed = reader_read_failed,
                                                 .completed = reader_completed,
                                                 .refills = reader_refills};

/* ---- Open, close, begin, cancel ------------------------------------------------------------- */

static uint64_t rows_buffer_bytes(const struct sc_store *store)
{
    if (store->shape.layout != SC_STORE_SPLIT)
        return 0;
    return store->shape.row_bytes > SC_STORE_BITE_BYTES ? store->shape.row_bytes
                                                        : SC_STORE_BITE_BYTES;
}

bool sc_store_is_shallow(const struct sc_store *store)
{
    return sc_io_is_shallow(store->io);
}

static void group_free(struct sc_reader_group *group)
{
    struct sc_alloc *alloc = group->alloc;
    sc_alloc_free(alloc, group->units);
    sc_alloc_free(alloc, group->slot_rows);
    sc_alloc_free(alloc, group->slot_memory);
    sc_alloc_free(alloc, group->reads);
    sc_alloc_free(alloc, group->rows);
    sc_alloc_free(alloc, group->tags);
    sc_alloc_free(alloc, group->slots);
    sc_alloc_free(alloc, group->readers);
    sc_alloc_free(alloc, group);
}

static struct sc_reader_group *group_make(const struct sc_store *store, uint64_t count,
                                          uint64_t slot_count)
{
    struct sc_alloc *alloc = store->params.alloc;
    uint64_t tag_bytes = (uint64_t)SC_STORE_ROWS_MAX * store->shape.tags_per_row * 8;
    struct sc_reader_group *group = sc_alloc_zero(alloc, sizeof(*group));
    if (group == NULL)
        return NULL;
    group->alloc = alloc;
    group->readers = sc_alloc_array(alloc, count, sizeof(*group->readers));
    group->slots = sc_alloc(alloc, slot_count * sizeof(*group->slots));
    group->reads = sc_alloc(alloc, count * READS * sizeof(*group->reads));
    group->units = sc_alloc(alloc, count * SC_READER_UNITS * sizeof(*group->units));
    group->tags = sc_alloc(alloc, count * tag_bytes);
    group->rows = sc_alloc(alloc, count * rows_buffer_bytes(store));
    group->slot_memory = sc_alloc(alloc, count * sizeof(*group->slot_memory));
    group->slot_rows = sc_alloc(alloc, count * SC_STORE_ROWS_MAX * sizeof(*group->slot_rows));
    if (group->readers != NULL && group->slots != NULL && group->reads != NULL &&
        group->units != NULL && group->tags != NULL && group->rows != NULL &&
        group->slot_memory != NULL && group->slot_rows != NULL)
        return group;
    group_free(group);
    return NULL;
}

spec_status sc_store_readers_open(struct sc_store *store, uint64_t count,
                                  struct sc_store_reader **ret_readers, struct spec_error *reterr)
{
    uint64_t tag_rows = (uint64_t)SC_STORE_ROWS_MAX * store->shape.tags_per_row;
    uint64_t own = count * SC_READER_SLOTS;
    uint64_t common = sc_inflight_commons_count(store, store->host != NULL ? HOST_SLAB_SLOTS : 0);
    struct sc_reader_group *group = group_make(store, count, own + common);
    if (group == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " readers", count);
    sc_inflight_commons_init(&group->commons, store, group->slots + own, sizeof(*group->slots),
                             common);
    for (uint64_t i = 0; i < count; i++) {
        struct sc_store_reader *reader = &group->readers[i];
        reader->group = group;
        reader->units = group->units + i * SC_READER_UNITS;
        reader->tags = group->tags + i * tag_rows;
        reader->rows = group->rows + i * rows_buffer_bytes(store);
        reader->slot_memory = group->slot_memory + i;
        reader->slot_rows = group->slot_rows + i * SC_STORE_ROWS_MAX;
        reader->leaves = sc_io_is_shallow(store->io);
        const struct sc_inflight_memory memory = {.commons = &group->commons,
                                                  .slots = group->slots + i * SC_READER_SLOTS,
                                                  .slot_bytes = sizeof(*group->slots),
                                                  .reads = group->reads + i * READS,
                                                  .slots_max = SC_READER_SLOTS,
                                                  .reads_max = READS};
        sc_inflight_init(&reader->inflight, store, &READER, &memory);
        sc_reader_helpers_init(reader);
        ret_readers[i] = reader;
    }
    return SPEC_OK;
}

void sc_store_readers_close(struct sc_store_reader *first, uint64_t count)
{
    if (first == NULL)
        return;
    struct sc_reader_group *group = first->group;
    for (uint64_t i = 0; i < count; i++) {
        sc_store_reader_cancel(&first[i]);
        sc_inflight_done(&first[i].inflight);
    }
    sc_inflight_commons_done(&group->commons);
    group_free(group);
}

/* Lock held. */
static void set_active(struct sc_store_reader *reader, bool is_active)
{
    _Atomic uint32_t *loads = &reader->inflight.store->counts.loads;
    if (is_active && !reader->is_active)
        (void)atomic_fetch_add_explicit(loads, 1, memory_order_relaxed);
    else if (!is_active && reader->is_active)
        (void)atomic_fetch_sub_explicit(loads, 1, memory_order_relaxed);
    reader->is_active = is_active;
}

/* Lock held. */
static void load_end(struct sc_store_reader *reader)
{
    set_active(reader, false);
    sc_host_slab_end(reader->inflight.store, &reader->fill, false);
    op_drop(reader);
    reader->rows_due = reader->rows_gone = 0;
    reader->front = NULL;
    reader->slot_row = 0;
    reader->slot_unit = 0;
    reader->last_bytes = 0;
    sc_inflight_cancel(&reader->inflight);
}

void sc_store_reader_cancel(struct sc_store_reader *reader)
{
    pthread_mutex_lock(&reader->inflight.lock);
    load_end(reader);
    pthread_mutex_unlock(&reader->inflight.lock);
}

/* Lock held, and released. The plan has begun. */
static void load_begin(struct sc_store_reader *reader, enum sc_io_class io_class, bool is_gather)
{
    struct sc_inflight_batch batch;
    batch.count = 0;
    set_active(reader, true);
    reader->is_gather = is_gather;
    reader->is_planned = false;
    reader->frames_raised = 0;
    reader->range = reader->range_row = 0;
    sc_inflight_begin(&reader->inflight, io_class, is_gather ? SLOT_READS : WHOLE_READS);
    sc_inflight_pump(&reader->inflight, &batch);
    pthread_mutex_unlock(&reader->inflight.lock);
    sc_inflight_submit(&reader->inflight, &batch);
}

void sc_store_reader_begin(struct sc_store_reader *reader, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           enum sc_io_class io_class)
{
    pthread_mutex_lock(&reader->inflight.lock);
    load_end(reader);
    sc_store_plan_begin(&reader->plan, reader->inflight.store, layer, ranges, range_count,
                        reader->slot_memory->at);
    for (uint64_t i = 0; i < range_count; i++)
        reader->rows_due += ranges[i].row_count;
    load_begin(reader, io_class, false);
}

void sc_store_reader_begin_gather(struct sc_store_reader *reader, uint32_t layer,
                                  const struct sc_store_range *ranges, uint64_t range_count,
                                  const struct sc_store_gather_rows *gather,
                                  enum sc_io_class io_class)
{
    struct sc_store *store = reader->inflight.store;
    pthread_mutex_lock(&reader->inflight.lock);
    load_end(reader);
    sc_store_plan_begin(&reader->plan, store, layer, ranges, range_count, NULL);
    sc_store_gather_plan_begin(&reader->gather_plan, store, layer, ranges, range_count, gather,
                               reader->slot_memory);
    reader->gather_tags = NULL;
    reader->wanted_bits = NULL;
    reader->bases.range = UINT64_MAX;
    reader->rows_due = reader->gather_plan.gather.count;
    load_begin(reader, io_class, true);
}

void sc_store_reader_tags(struct sc_store_reader *reader, const uint64_t *tags)
{
    reader->gather_tags = tags;
}

void sc_store_reader_demand(struct sc_store_reader *reader)
{
    struct sc_inflight *inflight = &reader->inflight;
    struct sc_inflight_batch batch;
    batch.count = 0;
    sc_inflight_raise(inflight);
    pthread_mutex_lock(&inflight->lock);
    if (reader->is_active && reader->frames_raised == 0) {
        reader->frames_raised = inflight->frame_count + inflight->flying_max;
        sc_inflight_pump(inflight, &batch);
    }
    pthread_mutex_unlock(&inflight->lock);
    sc_inflight_submit(inflight, &batch);
}

bool sc_store_reader_is_idle(const struct sc_store_reader *reader)
{
    struct sc_store_reader *mine = (struct sc_store_reader *)(uintptr_t)reader;
    pthread_mutex_lock(&mine->inflight.lock);
    bool is_idle = !mine->is_active;
    pthread_mutex_unlock(&mine->inflight.lock);
    return is_idle;
}

bool sc_store_reader_is_there(const struct sc_store_reader *reader)
{
    struct sc_store_reader *mine = (struct sc_store_reader *)(uintptr_t)reader;
    pthread_mutex_lock(&mine->inflight.lock);
    bool is_there = !mine->is_active || (mine->is_planned && !mine->has_op);
    for (const struct sc_inflight_slot *slot = mine->inflight.first;
         mine->is_active && is_there && slot != NULL; slot = slot->next)
        is_there = slot->is_completed;
    pthread_mutex_unlock(&mine->inflight.lock);
    return is_there;
}

void sc_store_reader_cost(const struct sc_store_reader *reader, struct sc_store_read_cost *ret_cost)
{
    sc_inflight_cost(&reader->inflight, ret_cost);
}

/* Lock held. Returns the slot's wanted rows. Drops unstarted reads without a wanted row. */
static uint64_t slot_narrow(struct sc_store_reader *reader, struct sc_reader_slot *slot,
                            bool is_first, uint64_t *covered_bits)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < slot->unit_count; i++) {
        uint64_t from = 0;
        struct sc_reader_unit *unit = sc_reader_unit_of(reader, slot, i);
        if (slot == reader->front && i <= reader->slot_unit)
            from = i < reader->slot_unit ? unit->gather_count : reader->slot_row;
        uint64_t left = unit->gather_count > from ? unit->gather_count - from : 0;
        uint64_t count =
            sc_reader_gather_wanted(reader, unit->gather_first + from, left, covered_bits);
        total += count;
        bool is_dropped = false;
        for (struct sc_inflight_read *read = slot->inflight.reads; read != NULL && count == 0;
             read = read->next)
            if (!read->is_started && !read->is_dropped &&
                read->unit == (slot->unit_first + i) % SC_READER_UNITS)
                is_dropped = read->is_dropped = true;
        if (is_dropped) {
            reader->inflight.cost.row_count -= unit->gather_count;
            unit->slab.count = 0; /* it cannot be kept */
        }
        if (is_first)
            reader->inflight.cost.wanted_bytes -= (left - count) * sc_reader_gather_bytes(reader);
    }
    return total;
}

/* Lock held. Ends planning, but for the rest of a slab that is partly read: reading its missing
 * rows later would read all of it again. Returns the wanted rows of that rest. */
static uint64_t plan_narrow(struct sc_store_reader *reader, uint64_t *covered_bits)
{
    struct sc_store_gather_plan *plan = &reader->gather_plan;
    uint64_t from = reader->has_op ? reader->gather_op.gather_first : plan->gathered;
    if (plan->gather.whole_slabs && !reader->is_planned) {
        uint64_t end = sc_store_gather_plan_end(plan);
        uint64_t count = sc_reader_gather_wanted(reader, from, end - from, covered_bits);
        if (count > 0)
            return count;
    }
    reader->is_planned = true;
    op_drop(reader);
    sc_inflight_disarm(&reader->inflight);
    return 0;
}

uint64_t sc_store_reader_narrow(struct sc_store_reader *reader, const uint64_t *wanted_bits,
                                uint64_t *ret_covered_bits)
{
    struct sc_inflight *inflight = &reader->inflight;
    struct sc_inflight_batch batch;
    uint64_t total = 0;
    batch.count = 0;
    pthread_mutex_lock(&inflight->lock);
    SC_ASSERT(inflight->store->params.poison, !reader->is_active || reader->is_gather);
    bool narrows = reader->is_active && reader->is_gather;
    bool is_first = narrows && reader->wanted_bits == NULL;
    if (narrows) {
        reader->wanted_bits = wanted_bits;
        total = plan_narrow(reader, ret_covered_bits);
    }
    for (struct sc_inflight_slot *next, *at = narrows ? inflight->first : NULL; at != NULL;
         at = next) {
        struct sc_reader_slot *slot = sc_reader_slot_of(at);
        next = at->next;
        uint64_t covered = slot_narrow(reader, slot, is_first, ret_covered_bits);
        total += covered;
        if (covered > 0)
            continue;
        if (slot == reader->front)
            reader->front = NULL;
        sc_inflight_slot_drop(at);
    }
    if (narrows)
        reader->rows_due = reader->rows_gone + total;
    if (narrows && op_plan(reader))
        sc_inflight_pump(inflight, &batch);
    pthread_mutex_unlock(&inflight->lock);
    sc_inflight_submit(inflight, &batch);
    return total;
}

static uint32_t front_tier(const struct sc_store_reader *reader)
{
    return reader->front->inflight.host != NULL ? reader->front->tier : SC_STORE_TIER;
}

/* Fails the load at the consumer's range. */
static spec_status load_fail(struct sc_store_reader *reader, spec_status status, int32_t sys_errno,
                             struct sc_store_rows *ret_rows, struct spec_error *reterr)
{
    uint32_t tier = front_tier(reader);
    struct sc_store *store = reader->inflight.store;
    const struct sc_store_range *ranges = reader->plan.ranges;
    while (reader->range < reader->plan.range_count && ranges[reader->range].row_count == 0)
        reader->range++;
    uint64_t range = reader->range, piece = ranges[range].piece;
    *ret_rows = (struct sc_store_rows){.failed_range = range, .tier = tier};
    if (reader->front->inflight.host != NULL)
        sc_host_tier_forget_pinned(store->host, reader->front->inflight.host);
    sc_store_reader_cancel(reader);
    sc_host_slab_forget(store, reader->plan.layer, &ranges[range]);
    if (reader->is_gather) /* the tags are the selector's, maybe from host memory */
        sc_host_slab_forget_tags(store, reader->plan.layer, &ranges[range]);
    if (status == SPEC_E_CORRUPT) {
        sc_store_count(&store->counts.corrupt_rows, 1);
        SC_LOG(store->params.log, 1, "piece %" PRIu64 " layer %" PRIu32 " fails verification",
               piece, reader->plan.layer);
        return sc_fail(reterr, SPEC_E_CORRUPT,
                       "piece %" PRIu64 " layer %" PRIu32 " fails verification", piece,
                       reader->plan.layer);
    }
    sc_store_count(&store->counts.io_errors, 1);
    SC_LOG(store->params.log, 1, "piece %" PRIu64 " layer %" PRIu32 " cannot be read", piece,
           reader->plan.layer);
    return sc_fail_errno(reterr, SPEC_E_IO, sys_errno,
                         "piece %" PRIu64 " layer %" PRIu32 " cannot be read", piece,
                         reader->plan.layer);
}

/* Notes the use of the host tier's slab whose rows are returned next. */
static void front_seen(const struct sc_store_reader *reader, const struct sc_reader_slot *slot)
{
    uint64_t rows = reader->is_gather ? 0 : slot->plan.row_count;
    for (uint32_t i = 0; reader->is_gather && i < slot->unit_count; i++) {
        const struct sc_reader_unit *unit = sc_reader_unit_of(reader, slot, i);
        rows += sc_reader_gather_wanted(reader, unit->gather_first, unit->gather_count, NULL);
    }
    if (rows > 0)
        sc_host_tier_touch(reader->inflight.store->host, slot->inflight.host, rows);
}

/* Makes the completed front slot the consumer's; copies its tags. */
static spec_status front_open(struct sc_store_reader *reader, struct sc_reader_slot *slot,
                              struct sc_store_rows *ret_rows, struct spec_error *reterr)
{
    const struct sc_store_plan_op *plan = &slot->plan;
    uint64_t per_row = reader->inflight.store->shape.tags_per_row;
    reader->front = slot;
    reader->slot_row = 0;
    reader->slot_unit = 0;
    if (slot->inflight.host != NULL)
        front_seen(reader, slot);
    if (reader->is_gather)
        return SPEC_OK;
    bool is_ahead = slot->inflight.host != NULL && plan->slots == NULL && reader->rows_least > 0;
    if (is_ahead)
        sc_reader_help(reader);
    reader->is_front_good = is_ahead && sc_reader_is_good(slot);
    sc_reader_rows_open(reader, slot);
    if (slot->inflight.status != SPEC_OK)
        return load_fail(reader, slot->inflight.status, slot->inflight.sys_errno, ret_rows, reterr);
    memcpy(reader->tags + plan->tag_first * per_row, slot->inflight.frame + plan->tag_at,
           plan->tag_count * per_row * 8);
    return SPEC_OK;
}

/* Lock held. Frees the front slot if all of it was returned, and starts more reads. */
static void front_release(struct sc_store_reader *reader, struct sc_inflight_batch *batch)
{
    if (reader->front == NULL || sc_reader_rows_left(reader))
        return;
    sc_inflight_slot_free(&reader->front->inflight);
    reader->front = NULL;
    if (reader_refills(&reader->inflight))
        sc_inflight_pump(&reader->inflight, batch);
}

enum front { FRONT_NONE, FRONT_READY, FRONT_LATE };

struct word { /* ends a wait when *at differs from `seen`; at NULL: never */
    const _Atomic uint64_t *at;
    uint64_t seen;
};

/* Lock held. Returns the first gathered row of a slot in the host tier, or NULL. */
static const uint8_t *first_row_of(const struct sc_store_reader *reader,
                                   struct sc_inflight_slot *at)
{
    struct sc_reader_slot *slot = at != NULL ? sc_reader_slot_of(at) : NULL;
    if (slot == NULL || !reader->is_gather || !at->is_completed || at->host == NULL ||
        slot->unit_count == 0)
        return NULL;
    return at->frame + sc_reader_unit_of(reader, slot, 0)->at[0];
}

/* Waits for the front slot. NONE: no load, or complete. LATE: the deadline passed, or the word
 * changed. */
static enum front front_await(struct sc_store_reader *reader, uint64_t deadline_ns,
                              const struct word *word, struct sc_reader_slot **ret_slot)
{
    struct sc_inflight *inflight = &reader->inflight;
    struct sc_inflight_batch batch;
    batch.count = 0;
    enum front front = FRONT_NONE;
    bool in_time = true;
    pthread_mutex_lock(&inflight->lock);
    while (reader->is_active) {
        front_release(reader, &batch);
        *ret_slot = front_of(reader);
        if (*ret_slot == NULL && reader->is_planned && !reader->has_op) {
            set_active(reader, false); /* complete; an unfinished slab is abandoned */
            sc_host_slab_end(inflight->store, &reader->fill, false);
            break;
        }
        front = *ret_slot != NULL && (*ret_slot)->inflight.is_completed ? FRONT_READY : FRONT_LATE;
        bool is_off = word->at != NULL && atomic_load(word->at) != word->seen;
        if (front == FRONT_READY)
            reader->behind_front = first_row_of(reader, (*ret_slot)->inflight.next);
        if (front == FRONT_READY || !in_time || is_off)
            break;
        in_time = sc_inflight_wait(inflight, deadline_ns, &batch);
        front = FRONT_NONE;
    }
    pthread_mutex_unlock(&inflight->lock);
    sc_inflight_submit(inflight, &batch);
    return front;
}

/* Consumes reads of tags only meanwhile. */
bool sc_store_reader_wait(struct sc_store_reader *reader, uint64_t deadline_ns,
                          const _Atomic uint64_t *word, uint64_t seen)
{
    const struct word until = {word, seen};
    struct sc_reader_slot *slot = NULL;
    struct sc_store_rows none;
    while (reader->front == NULL || !sc_reader_rows_left(reader)) {
        enum front front = front_await(reader, deadline_ns, &until, &slot);
        if (front != FRONT_READY)
            return front == FRONT_NONE || atomic_load(word) == seen;
        if (slot->inflight.status != SPEC_OK || front_open(reader, slot, &none, NULL) != SPEC_OK)
            break; /* reader_next reports it */
    }
    return true;
}

void sc_store_reader_nudge(struct sc_store_reader *reader)
{
    pthread_mutex_lock(&reader->inflight.lock);
    sc_inflight_signal(&reader->inflight);
    pthread_mutex_unlock(&reader->inflight.lock);
}

void sc_store_reader_apart(struct sc_store_reader *reader, uint64_t rows_least)
{
    reader->rows_least = rows_least;
}

spec_status sc_store_reader_next(struct sc_store_reader *reader, uint64_t deadline_ns,
                                 const struct sc_store_sink *sink, struct sc_store_rows *ret_rows,
                                 struct spec_error *reterr)
{
    const struct word none = {NULL, 0};
    struct sc_reader_slot *slot = NULL;
    *ret_rows = (struct sc_store_rows){0};
    sc_reader_rows_leave(reader);
    while (reader->front == NULL || !sc_reader_rows_left(reader)) { /* rarely true: no lock */
        enum front front = front_await(reader, deadline_ns, &none, &slot);
        if (front == FRONT_NONE) { /* an incomplete load must not look complete */
            SC_ASSERT(reader->inflight.store->params.poison, reader->rows_gone == reader->rows_due);
            return SPEC_OK;
        }
        if (front == FRONT_LATE)
            return sc_fail(reterr, SPEC_E_TIMEOUT, "rows did not come before the deadline");
        spec_status status = front_open(reader, slot, ret_rows, reterr);
        if (status != SPEC_OK)
            return status;
    }
    int32_t sys_errno = reader->front->inflight.sys_errno;
    SC_ASSERT(reader->inflight.store->params.poison, sink == NULL || !reader->is_gather);
    spec_status status = reader->is_gather
                             ? sc_reader_gather_take(reader, reader->front, ret_rows)
                             : sc_reader_rows_take(reader, reader->front, sink, ret_rows);
    if (status != SPEC_OK)
        return load_fail(reader, status, sys_errno, ret_rows, reterr);
    ret_rows->tier = front_tier(reader);
    if (sink == NULL && ret_rows->rows != reader->rows) /* the rows are in the slab itself */
        ret_rows->slab = reader->front->inflight.host;
    reader->rows_gone += ret_rows->row_count;
    return SPEC_OK;
}

uint8_t *sc_host_tier_at(const struct sc_store *store, uint64_t *ret_bytes)
{
    return sc_host_tier_memory(store->host, ret_bytes);
}

void sc_store_slab_hold(struct sc_store *store, struct sc_host_tier_memory_slab *slab)
{
    sc_host_tier_pin(store->host, slab);
}

void sc_store_slab_leave(struct sc_store *store, struct sc_host_tier_memory_slab *slab)
{
    sc_host_tier_unpin(store->host, slab);
}
