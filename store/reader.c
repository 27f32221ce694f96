/* Loading: planned operations in flight, rows out in order, verified.
 *
 *   slots   fifo: [READY front][FLYING][FLYING][READY] ...    consumed in order
 *           not in the fifo: free, or flying for a load that was cancelled (its frame goes back
 *           when it completes; the generation tells)
 *   frame   counted when the operation is submitted, picked when a device takes it, so that what
 *           stands in queues keeps no memory from being used again while it is in cache
 *   slot    whole ranges: one operation, at most two reads
 *           picks: as many small reads as fit a frame, at most SLOT_READS, submitted together;
 *           [unit: picks of one read, or of a K and a V read][unit] ...   from a ring of units
 *
 * Completions pump: as long as slots, frames and the in-flight target allow, the next operations go
 * out without the caller, several at once: when half of the target is free. Without a frame the
 * reader waits in the pool's queue; a reader that is waited for, has nothing in flight and gets no
 * frame takes the store's spare frame, so that readers whose frames nobody consumes yet cannot stop
 * it.
 *
 * Holds: rows that leave were verified against namespace, piece, copy, layer, part and position;
 * after cancel nothing of the old load touches the next.
 * Does not: allocate after open, retry a failed operation.
 * Threads: begin, demand, next, cancel, close: the owner, one at a time; completions and the
 * frame waiter: the executor's. One lock a reader (rank 30), not held while verifying.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#include "store/reader.h"

#include <string.h>

#define FLIGHT_BYTES (16ull << 20) /* twice the device's in-flight target of 8 MiB */

/* Reads of a load of picks that may be queued or in flight. Half of them are planned anew when the
 * other half is left, of which as many slots as the back end's depth of 128 spans may be nearly
 * done: so the depth stays full. With 320 loads of 4 KiB rows took a tenth longer. */
#define READS      640u
#define SLOT_READS 64u

/* ---- Slots ---------------------------------------------------------------------------------- */

/* Lock held. */
static void slot_free(struct sc_store_reader *reader, struct sc_reader_slot *slot)
{
    struct sc_frames *frames = reader->store->frames;
    sc_io_release(reader->store->io, slot->held_bytes);
    slot->held_bytes = 0;
    if (slot->is_spare)
        sc_store_spare_put(reader->store);
    else if (slot->has_right) /* its operations may have failed before they had a frame */
        sc_frames_put(frames, slot->frame != NULL ? slot->frame : sc_frames_pick(frames));
    slot->frame = NULL;
    slot->is_spare = slot->has_right = false;
    slot->state = SC_READER_SLOT_FREE;
    slot->next = reader->free_slots;
    reader->free_slots = slot;
}

/* Lock held. Its reads are complete, and wait for the consumer. */
static void slot_hold(struct sc_reader_slot *slot)
{
    slot->held_bytes = slot->read_bytes;
    sc_io_hold(slot->reader->store->io, slot->held_bytes);
}

/* Lock held. The slot's reads are over. */
static void reads_put(struct sc_store_reader *reader, struct sc_reader_slot *slot)
{
    while (slot->reads != NULL) {
        struct sc_reader_read *read = slot->reads;
        slot->reads = read->next;
        read->next = reader->free_reads;
        reader->free_reads = read;
        reader->read_count--;
    }
}

static struct sc_reader_slot *fifo_front(const struct sc_store_reader *reader)
{
    return reader->fifo_count > 0 ? reader->fifo[reader->fifo_head] : NULL;
}

static void fifo_pop(struct sc_store_reader *reader)
{
    reader->fifo_head = (reader->fifo_head + 1) % SC_READER_SLOTS;
    reader->fifo_count--;
}

/* Operations gathered under the lock. */
struct batch {
    struct sc_io_op *ops[READS];
    uint64_t count;
};

static void on_read_done(struct sc_io_op *op);

static uint64_t op_bytes(const struct sc_store_pick_op *op)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->part_count; i++)
        bytes += op->parts[i].bytes;
    return bytes;
}

/* Lock held. Plans the next operation; false: there is none. */
static bool op_plan(struct sc_store_reader *reader)
{
    if (reader->is_planned)
        return false;
    reader->has_op = reader->is_picks
                         ? sc_store_pick_plan_next(&reader->pick_plan, &reader->pick_op)
                         : sc_store_plan_next(&reader->plan, &reader->op);
    reader->is_planned = !reader->has_op;
    return reader->has_op;
}

/* A device takes the operation: its slot gets a frame, unless another one of it has. */
static bool on_read_start(struct sc_io_op *op)
{
    struct sc_reader_read *read = op->user;
    struct sc_reader_slot *slot = read->slot;
    struct sc_store_reader *reader = slot->reader;
    pthread_mutex_lock(&reader->lock);
    bool is_wanted = slot->generation == reader->generation && !read->is_dropped;
    if (is_wanted) {
        if (slot->frame == NULL)
            slot->frame = sc_frames_pick(reader->store->frames);
        op->buffer = slot->frame + read->at;
        read->is_started = true;
    }
    pthread_mutex_unlock(&reader->lock);
    return is_wanted;
}

/* Lock held. */
static bool slot_is_free(const struct sc_store_reader *reader)
{
    return reader->free_slots != NULL || reader->slots_used < SC_READER_SLOTS;
}

/* Lock held. One is free. Memory of slots is first touched when they are first taken: most of many
 * readers never take most of theirs. */
static struct sc_reader_slot *slot_take(struct sc_store_reader *reader)
{
    struct sc_reader_slot *slot = reader->free_slots;
    if (slot != NULL) {
        reader->free_slots = slot->next;
        return slot;
    }
    slot = &reader->slots[reader->slots_used++];
    *slot = (struct sc_reader_slot){.reader = reader};
    return slot;
}

/* Lock held. One is free. */
static struct sc_reader_read *read_take(struct sc_store_reader *reader)
{
    struct sc_reader_read *read = reader->free_reads;
    reader->read_count++;
    if (read == NULL)
        return &reader->reads[reader->reads_used++];
    reader->free_reads = read->next;
    return read;
}

/* Lock held. A read of [offset, + bytes) into the slot's frame. */
static void slot_read(struct sc_reader_slot *slot, uint32_t segment, uint64_t offset,
                      uint64_t bytes, uint64_t at, struct batch *batch)
{
    struct sc_store_reader *reader = slot->reader;
    struct sc_reader_read *read = read_take(reader);
    *read = (struct sc_reader_read){.op = {.file = reader->store->segments[segment].file,
                                           .offset = offset,
                                           .bytes = bytes,
                                           .kind = SC_IO_READ,
                                           .lane = reader->lane,
                                           .done = on_read_done,
                                           .user = read,
                                           .start = on_read_start},
                                    .slot = slot,
                                    .at = at,
                                    .load = reader->load,
                                    .unit = reader->unit_next};
    *slot->reads_end = read;
    slot->reads_end = &read->next;
    slot->left++;
    slot->read_bytes += bytes;
    batch->ops[batch->count++] = &read->op;
    reader->cost.read_bytes += bytes;
    reader->cost.op_count++;
    sc_store_count(&reader->store->read_bytes, bytes);
    sc_store_count(&reader->store->read_ops, 1);
}

/* Lock held. The planned operation of whole ranges. */
static void slot_fill(struct sc_reader_slot *slot, struct batch *batch)
{
    struct sc_store_reader *reader = slot->reader;
    const struct sc_store_shape *shape = &reader->store->shape;
    const struct sc_store_plan_op *plan = &reader->op;
    reader->has_op = false;
    slot->plan = *plan;
    slot->status = plan->status;
    reader->cost.wanted_bytes +=
        plan->row_count * shape->row_bytes + plan->tag_count * shape->tags_per_row * 8;
    for (uint32_t i = 0; i < plan->part_count; i++)
        slot_read(slot, plan->segment, plan->parts[i].offset, plan->parts[i].bytes,
                  plan->parts[i].at, batch);
}

/* Lock held. Adds the planned picks as a unit of the slot, `used` bytes into its frame. */
static void unit_add(struct sc_reader_slot *slot, uint64_t used, struct batch *batch)
{
    struct sc_store_reader *reader = slot->reader;
    const struct sc_store_pick_op *plan = &reader->pick_op;
    uint64_t at = used;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        slot_read(slot, plan->segment, plan->parts[i].offset, plan->parts[i].bytes, at, batch);
        at += plan->parts[i].bytes;
    }
    reader->units[reader->unit_next] = (struct sc_reader_unit){
        .pick_first = (uint32_t)plan->pick_first,
        .pick_count = (uint32_t)plan->pick_count,
        .range = (uint32_t)plan->range,
        .range_first = (uint32_t)plan->range_first,
        .at = {(uint32_t)(used + plan->at[0]), (uint32_t)(used + plan->at[1])},
        .status = plan->status};
    reader->unit_next = (reader->unit_next + 1) % SC_READER_UNITS;
    slot->unit_count++;
    reader->cost.wanted_bytes += plan->pick_count * sc_reader_pick_bytes(reader);
    reader->cost.row_count += plan->pick_count;
    reader->has_op = false;
}

/* Lock held. The planned picks and as many of those that follow as have room in a frame. */
static void slot_fill_picks(struct sc_reader_slot *slot, struct batch *batch)
{
    struct sc_store_reader *reader = slot->reader;
    uint64_t frame_bytes = reader->store->op_bytes + SC_FRAMES_SLACK_BYTES, used = 0;
    slot->plan = (struct sc_store_plan_op){0};
    slot->unit_first = reader->unit_next;
    slot->unit_count = 0;
    slot->status = SPEC_OK;
    while (reader->has_op || op_plan(reader)) {
        const struct sc_store_pick_op *plan = &reader->pick_op;
        uint64_t bytes = op_bytes(plan);
        if (slot->unit_count > 0 && (plan->part_count == 0) != (slot->left == 0))
            break; /* what reads nothing stands alone: it needs no frame */
        if (used + bytes > frame_bytes || slot->left + plan->part_count > SLOT_READS ||
            slot->unit_count == SLOT_READS)
            break;
        unit_add(slot, used, batch);
        used += bytes;
    }
}

/* Lock held. Gives what is planned a slot and, unless it needs none, the frame. */
static void slot_start(struct sc_store_reader *reader, uint8_t *frame, bool is_spare,
                       struct batch *batch)
{
    struct sc_store *store = reader->store;
    struct sc_reader_slot *slot = slot_take(reader);
    slot->frame = is_spare ? frame : NULL;
    slot->is_spare = is_spare;
    slot->has_right = frame != NULL && !is_spare;
    if (slot->has_right)
        sc_frames_lay(store->frames, frame);
    slot->generation = reader->generation;
    slot->sys_errno = 0;
    slot->reads = NULL;
    slot->reads_end = &slot->reads;
    slot->left = 0;
    slot->read_bytes = 0;
    if (reader->is_picks)
        slot_fill_picks(slot, batch);
    else
        slot_fill(slot, batch);
    slot->state = slot->left > 0 ? SC_READER_SLOT_FLYING : SC_READER_SLOT_READY;
    reader->flying += slot->left > 0 ? 1 : 0;
    reader->fifo[(reader->fifo_head + reader->fifo_count++) % SC_READER_SLOTS] = slot;
}

/* Lock held. Units of the ring that are in use. */
static uint32_t units_used(const struct sc_store_reader *reader)
{
    const struct sc_reader_slot *front = fifo_front(reader);
    return front == NULL ? 0 : (reader->unit_next - front->unit_first) % SC_READER_UNITS;
}

/* Lock held. Another slot can be filled. */
static bool has_room(const struct sc_store_reader *reader)
{
    if (!slot_is_free(reader) || reader->fifo_count == SC_READER_SLOTS ||
        reader->flying >= reader->flight_max)
        return false;
    uint32_t reads = reader->is_picks ? SLOT_READS : 2;
    return READS - reader->read_count >= reads &&
           (!reader->is_picks || units_used(reader) < SC_READER_UNITS - SLOT_READS);
}

/* Lock held. Half of what may fly can be started, so that operations go out several in a batch. */
static bool wants_refill(const struct sc_store_reader *reader)
{
    uint32_t half = reader->flight_max / 2;
    if (reader->flying > half || SC_READER_SLOTS - reader->fifo_count < half)
        return false;
    return !reader->is_picks ||
           (reader->read_count <= READS / 2 && units_used(reader) <= SC_READER_UNITS / 2);
}

/* Lock held. Starts what slots, frames and the in-flight target allow. given: a frame that was
 * handed over, or NULL. */
static void pump(struct sc_store_reader *reader, uint8_t *given, struct batch *batch)
{
    struct sc_store *store = reader->store;
    while (reader->is_active && has_room(reader)) {
        if (!reader->has_op && !op_plan(reader))
            break;
        uint8_t *frame = given;
        if ((reader->is_picks ? reader->pick_op.part_count : reader->op.part_count) > 0) {
            given = NULL;
            if (frame == NULL && reader->is_armed)
                break;
            if (frame == NULL)
                frame = sc_frames_take_or_wait(store->frames, reader->lane, &reader->waiter);
            if (frame == NULL) {
                reader->is_armed = true;
                sc_store_count(&store->stage_full, 1);
                break;
            }
        } else {
            frame = NULL;
        }
        slot_start(reader, frame, false, batch);
    }
    if (given != NULL)
        sc_frames_put(store->frames, given);
}

/* Off the owner's thread the lock is held: what is in the fifo and flies was submitted, or will be
 * by the owner, who is the one that raises it. */
static void batch_submit(struct sc_store *store, struct batch *batch)
{
    if (batch->count > 0)
        sc_io_submit(store->io, batch->ops, batch->count);
}

/* Lock held. */
static void reader_signal(struct sc_store_reader *reader)
{
    atomic_fetch_add(&reader->word, 1);
    if (reader->is_awaited)
        sc_exec_wake(reader->store->params.exec, &reader->word);
}

/* Lock held. The device never saw it. */
static void read_uncount(struct sc_store_reader *reader, const struct sc_reader_read *read)
{
    struct sc_store *store = reader->store;
    atomic_fetch_sub_explicit(&store->read_bytes, read->op.bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&store->read_ops, 1, memory_order_relaxed);
    if (read->load != reader->load)
        return;
    reader->cost.read_bytes -= read->op.bytes;
    reader->cost.op_count--;
}

/* Lock held. An error is the unit's alone: other rows of the frame may still be right. */
static void read_fails(struct sc_store_reader *reader, const struct sc_reader_read *read)
{
    struct sc_reader_slot *slot = read->slot;
    if (slot->generation != reader->generation || read->is_dropped)
        return;
    spec_status *status = reader->is_picks ? &reader->units[read->unit].status : &slot->status;
    *status = *status == SPEC_OK ? read->op.status : *status;
    slot->sys_errno = slot->sys_errno == 0 ? read->op.sys_errno : slot->sys_errno;
}

static void on_read_done(struct sc_io_op *op)
{
    struct sc_reader_read *read = op->user;
    struct sc_reader_slot *slot = read->slot;
    struct sc_store_reader *reader = slot->reader;
    struct sc_store *store = reader->store;
    struct batch batch;
    batch.count = 0;
    pthread_mutex_lock(&reader->lock);
    read->is_done = true;
    if (op->status == SPEC_E_DROPPED)
        read_uncount(reader, read);
    else if (op->status != SPEC_OK)
        read_fails(reader, read);
    if (--slot->left == 0) {
        reader->flying--;
        slot->state = SC_READER_SLOT_READY;
        reads_put(reader, slot);
        bool is_old = slot->generation != reader->generation;
        if (is_old)
            slot_free(reader, slot);
        else
            slot_hold(slot);
        if (wants_refill(reader))
            pump(reader, NULL, &batch);
        if (is_old || slot == fifo_front(reader))
            reader_signal(reader);
    }
    batch_submit(store, &batch);
    pthread_mutex_unlock(&reader->lock);
}

static void on_frame(struct sc_task *task)
{
    struct sc_frames_waiter *waiter =
        (struct sc_frames_waiter *)((char *)task - offsetof(struct sc_frames_waiter, task));
    struct sc_store_reader *reader =
        (struct sc_store_reader *)((char *)waiter - offsetof(struct sc_store_reader, waiter));
    struct sc_store *store = reader->store;
    struct batch batch;
    batch.count = 0;
    pthread_mutex_lock(&reader->lock);
    uint8_t *frame = waiter->frame;
    waiter->frame = NULL;
    reader->is_armed = false;
    pump(reader, frame, &batch);
    reader_signal(reader);
    batch_submit(store, &batch);
    pthread_mutex_unlock(&reader->lock);
}

/* ---- Open, close, begin, cancel ------------------------------------------------------------- */

static uint64_t rows_buffer_bytes(const struct sc_store *store)
{
    if (store->shape.layout != SC_STORE_SPLIT)
        return 0;
    return store->shape.row_bytes > SC_STORE_BITE_BYTES ? store->shape.row_bytes
                                                        : SC_STORE_BITE_BYTES;
}

static void reader_init(struct sc_store *store, struct sc_store_reader *reader)
{
    uint64_t flight = (FLIGHT_BYTES + store->op_bytes - 1) / store->op_bytes;
    reader->store = store;
    reader->flight_max = flight < SC_READER_SLOTS ? (uint32_t)flight : SC_READER_SLOTS;
    reader->leaves = sc_io_is_shallow(store->io);
    reader->waiter.task.step = on_frame;
    reader->starved.word = &reader->word;
    pthread_mutex_init(&reader->lock, NULL);
}

bool sc_store_is_shallow(const struct sc_store *store)
{
    return sc_io_is_shallow(store->io);
}

spec_status sc_store_readers_open(struct sc_store *store, uint64_t count,
                                  struct sc_store_reader **ret_readers, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    uint64_t tag_rows = (uint64_t)SC_STORE_ROWS_MAX * store->shape.tags_per_row;
    uint64_t tags_bytes = tag_rows * sizeof(uint64_t), rows_bytes = rows_buffer_bytes(store);
    struct sc_store_reader *readers = sc_alloc_array(alloc, count, sizeof(*readers));
    struct sc_reader_slot *slots = sc_alloc(alloc, count * SC_READER_SLOTS * sizeof(*slots));
    struct sc_reader_read *reads = sc_alloc(alloc, count * READS * sizeof(*reads));
    struct sc_reader_unit *units = sc_alloc(alloc, count * SC_READER_UNITS * sizeof(*units));
    uint64_t *tags = sc_alloc(alloc, count * tags_bytes);
    uint8_t *rows = sc_alloc(alloc, count * rows_bytes);
    if (readers == NULL || slots == NULL || reads == NULL || units == NULL || tags == NULL ||
        rows == NULL) {
        sc_alloc_free(alloc, units);
        sc_alloc_free(alloc, reads);
        sc_alloc_free(alloc, rows);
        sc_alloc_free(alloc, tags);
        sc_alloc_free(alloc, slots);
        sc_alloc_free(alloc, readers);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " readers", count);
    }
    for (uint64_t i = 0; i < count; i++) {
        readers[i].slots = slots + i * SC_READER_SLOTS;
        readers[i].reads = reads + i * READS;
        readers[i].units = units + i * SC_READER_UNITS;
        readers[i].tags = tags + i * tag_rows;
        readers[i].rows = rows + i * rows_bytes;
        reader_init(store, &readers[i]);
        ret_readers[i] = &readers[i];
    }
    return SPEC_OK;
}

spec_status sc_store_reader_open(struct sc_store *store, struct sc_store_reader **ret_reader,
                                 struct spec_error *reterr)
{
    return sc_store_readers_open(store, 1, ret_reader, reterr);
}

static void reader_done(struct sc_store_reader *reader)
{
    struct sc_store *store = reader->store;
    sc_store_reader_cancel(reader);
    pthread_mutex_lock(&reader->lock);
    while (reader->flying > 0 || reader->is_armed) {
        reader->is_awaited = true;
        uint32_t word = atomic_load(&reader->word);
        pthread_mutex_unlock(&reader->lock);
        bool changed = sc_exec_wait(store->params.exec, &reader->word, word, SC_EXEC_FOREVER);
        pthread_mutex_lock(&reader->lock);
        if (!changed)
            break; /* the seeded loop has nothing left to run: asserted below */
    }
    bool is_quiet = reader->flying == 0 && !reader->is_armed;
    pthread_mutex_unlock(&reader->lock);
    SC_ASSERT(store->params.poison, is_quiet);
    pthread_mutex_destroy(&reader->lock);
}

void sc_store_readers_close(struct sc_store_reader *first, uint64_t count)
{
    if (first == NULL)
        return;
    struct sc_alloc *alloc = first->store->params.alloc;
    for (uint64_t i = 0; i < count; i++)
        reader_done(&first[i]);
    sc_alloc_free(alloc, first->rows);
    sc_alloc_free(alloc, first->tags);
    sc_alloc_free(alloc, first->slots);
    sc_alloc_free(alloc, first->reads);
    sc_alloc_free(alloc, first->units);
    sc_alloc_free(alloc, first);
}

void sc_store_reader_close(struct sc_store_reader *reader)
{
    sc_store_readers_close(reader, 1);
}

/* Lock held. */
static void set_active(struct sc_store_reader *reader, bool is_active)
{
    _Atomic uint32_t *loads = &reader->store->loads;
    if (is_active && !reader->is_active)
        (void)atomic_fetch_add_explicit(loads, 1, memory_order_relaxed);
    else if (!is_active && reader->is_active)
        (void)atomic_fetch_sub_explicit(loads, 1, memory_order_relaxed);
    reader->is_active = is_active;
}

/* Lock held. The load is over; what flies is left to complete by itself. */
static void load_end(struct sc_store_reader *reader)
{
    reader->generation++;
    set_active(reader, false);
    reader->has_op = false;
    reader->front = NULL;
    reader->slot_row = 0;
    reader->slot_unit = 0;
    reader->last_bytes = 0;
    for (struct sc_reader_slot *slot = fifo_front(reader); slot != NULL;
         slot = fifo_front(reader)) {
        fifo_pop(reader);
        if (slot->state == SC_READER_SLOT_READY)
            slot_free(reader, slot);
    }
    if (reader->is_armed && sc_frames_wait_cancel(reader->store->frames, &reader->waiter))
        reader->is_armed = false;
}

void sc_store_reader_cancel(struct sc_store_reader *reader)
{
    pthread_mutex_lock(&reader->lock);
    load_end(reader);
    pthread_mutex_unlock(&reader->lock);
}

/* Lock held, and given up: the plan is begun. */
static void load_begin(struct sc_store_reader *reader, enum sc_exec_lane lane, bool is_picks)
{
    struct batch batch;
    batch.count = 0;
    reader->load++;
    set_active(reader, true);
    reader->is_picks = is_picks;
    reader->is_planned = false;
    reader->lane = lane;
    reader->cost = (struct sc_store_read_cost){0};
    reader->range = reader->range_row = 0;
    pump(reader, NULL, &batch);
    pthread_mutex_unlock(&reader->lock);
    batch_submit(reader->store, &batch);
}

void sc_store_reader_begin(struct sc_store_reader *reader, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           enum sc_exec_lane lane)
{
    pthread_mutex_lock(&reader->lock);
    load_end(reader);
    sc_store_plan_begin(&reader->plan, reader->store, layer, ranges, range_count);
    load_begin(reader, lane, false);
}

void sc_store_reader_begin_picks(struct sc_store_reader *reader, uint32_t layer,
                                 const struct sc_store_range *ranges, uint64_t range_count,
                                 const struct sc_store_picks *picks, enum sc_exec_lane lane)
{
    pthread_mutex_lock(&reader->lock);
    load_end(reader);
    sc_store_plan_begin(&reader->plan, reader->store, layer, ranges, range_count);
    sc_store_pick_plan_begin(&reader->pick_plan, reader->store, layer, ranges, range_count, picks);
    reader->pick_tags = NULL;
    reader->wanted_bits = NULL;
    reader->bases.range = UINT64_MAX;
    load_begin(reader, lane, true);
}

void sc_store_reader_tags(struct sc_store_reader *reader, const uint64_t *tags)
{
    reader->pick_tags = tags;
}

void sc_store_reader_demand(struct sc_store_reader *reader)
{
    struct sc_io_op *ops[READS];
    uint64_t count = 0;
    pthread_mutex_lock(&reader->lock);
    bool was_lower = reader->lane != SC_LANE_DEMAND;
    reader->lane = SC_LANE_DEMAND;
    for (uint32_t i = 0; was_lower && i < reader->fifo_count; i++) {
        struct sc_reader_slot *slot = reader->fifo[(reader->fifo_head + i) % SC_READER_SLOTS];
        for (struct sc_reader_read *read = slot->reads; read != NULL; read = read->next)
            if (!read->is_started && !read->is_done) /* it stands in a queue, or is about to */
                ops[count++] = &read->op;
    }
    sc_io_raise(reader->store->io, ops, count, SC_LANE_DEMAND); /* none ends under the lock */
    if (reader->is_armed)
        sc_frames_wait_raise(reader->store->frames, &reader->waiter, SC_LANE_DEMAND);
    pthread_mutex_unlock(&reader->lock);
}

bool sc_store_reader_is_idle(const struct sc_store_reader *reader)
{
    struct sc_store_reader *mine = (struct sc_store_reader *)(uintptr_t)reader;
    pthread_mutex_lock(&mine->lock);
    bool is_idle = !mine->is_active;
    pthread_mutex_unlock(&mine->lock);
    return is_idle;
}

bool sc_store_reader_is_there(const struct sc_store_reader *reader)
{
    struct sc_store_reader *mine = (struct sc_store_reader *)(uintptr_t)reader;
    pthread_mutex_lock(&mine->lock);
    bool is_there = !mine->is_active || (mine->is_planned && !mine->has_op);
    for (uint32_t i = 0; mine->is_active && is_there && i < mine->fifo_count; i++)
        is_there =
            mine->fifo[(mine->fifo_head + i) % SC_READER_SLOTS]->state == SC_READER_SLOT_READY;
    pthread_mutex_unlock(&mine->lock);
    return is_there;
}

void sc_store_reader_cost(const struct sc_store_reader *reader, struct sc_store_read_cost *ret_cost)
{
    struct sc_store_reader *mine = (struct sc_store_reader *)(uintptr_t)reader;
    pthread_mutex_lock(&mine->lock);
    *ret_cost = mine->cost;
    pthread_mutex_unlock(&mine->lock);
}

/* Lock held. Wanted rows of a slot; its reads that have not started and hold none are dropped. */
static uint64_t slot_narrow(struct sc_store_reader *reader, struct sc_reader_slot *slot,
                            uint64_t *covered_bits)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < slot->unit_count; i++) {
        uint64_t from = 0;
        if (slot == reader->front && i <= reader->slot_unit)
            from = i < reader->slot_unit ? UINT64_MAX : reader->slot_row;
        struct sc_reader_unit *unit = sc_reader_unit_of(reader, slot, i);
        uint64_t count = sc_reader_unit_covered(reader, unit, from, covered_bits);
        total += count;
        bool is_dropped = false;
        for (struct sc_reader_read *read = slot->reads; read != NULL && count == 0;
             read = read->next)
            if (!read->is_started && read->unit == (slot->unit_first + i) % SC_READER_UNITS)
                is_dropped = read->is_dropped = true;
        reader->cost.row_count -= is_dropped ? unit->pick_count : 0;
    }
    return total;
}

uint64_t sc_store_reader_narrow(struct sc_store_reader *reader, const uint64_t *wanted_bits,
                                uint64_t *ret_covered_bits)
{
    uint64_t total = 0;
    pthread_mutex_lock(&reader->lock);
    SC_ASSERT(reader->store->params.poison, !reader->is_active || reader->is_picks);
    uint32_t count = reader->is_active && reader->is_picks ? reader->fifo_count : 0;
    if (reader->is_active && reader->is_picks) {
        reader->wanted_bits = wanted_bits;
        reader->is_planned = true;
        reader->has_op = false;
        if (reader->is_armed && sc_frames_wait_cancel(reader->store->frames, &reader->waiter))
            reader->is_armed = false;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sc_reader_slot *slot = fifo_front(reader);
        fifo_pop(reader);
        uint64_t covered = slot_narrow(reader, slot, ret_covered_bits);
        total += covered;
        if (covered > 0) {
            reader->fifo[(reader->fifo_head + reader->fifo_count++) % SC_READER_SLOTS] = slot;
            continue;
        }
        if (slot == reader->front)
            reader->front = NULL;
        slot->generation = reader->generation - 1; /* nobody's any more */
        if (slot->state == SC_READER_SLOT_READY)
            slot_free(reader, slot);
    }
    pthread_mutex_unlock(&reader->lock);
    return total;
}

/* The load fails at the consumer's range. */
static spec_status load_fail(struct sc_store_reader *reader, spec_status status, int32_t sys_errno,
                             struct sc_store_rows *ret_rows, struct spec_error *reterr)
{
    struct sc_store *store = reader->store;
    const struct sc_store_range *ranges = reader->plan.ranges;
    while (reader->range < reader->plan.range_count && ranges[reader->range].row_count == 0)
        reader->range++;
    uint64_t range = reader->range, piece = ranges[range].piece;
    *ret_rows = (struct sc_store_rows){.failed_range = range};
    sc_store_reader_cancel(reader);
    if (status == SPEC_E_CORRUPT) {
        sc_store_count(&store->corrupt_rows, 1);
        SC_LOG(store->params.log, 1, "piece %" PRIu64 " layer %" PRIu32 " fails verification",
               piece, reader->plan.layer);
        return sc_fail(reterr, SPEC_E_CORRUPT,
                       "piece %" PRIu64 " layer %" PRIu32 " fails verification", piece,
                       reader->plan.layer);
    }
    sc_store_count(&store->io_errors, 1);
    SC_LOG(store->params.log, 1, "piece %" PRIu64 " layer %" PRIu32 " cannot be read", piece,
           reader->plan.layer);
    return sc_fail_errno(reterr, SPEC_E_IO, sys_errno,
                         "piece %" PRIu64 " layer %" PRIu32 " cannot be read", piece,
                         reader->plan.layer);
}

/* The front slot is complete: its tags are taken, and it is the consumer's. */
static spec_status front_open(struct sc_store_reader *reader, struct sc_reader_slot *slot,
                              struct sc_store_rows *ret_rows, struct spec_error *reterr)
{
    const struct sc_store_plan_op *plan = &slot->plan;
    uint64_t per_row = reader->store->shape.tags_per_row;
    reader->front = slot;
    reader->slot_row = 0;
    reader->slot_unit = 0;
    if (reader->is_picks)
        return SPEC_OK;
    if (slot->status != SPEC_OK)
        return load_fail(reader, slot->status, slot->sys_errno, ret_rows, reterr);
    memcpy(reader->tags + plan->tag_first * per_row, slot->frame + plan->tag_at,
           plan->tag_count * per_row * 8);
    return SPEC_OK;
}

/* Lock held. Nothing flies and no frame comes: takes the spare one, if nobody has it. */
static void starved_start(struct sc_store_reader *reader, struct batch *batch)
{
    struct sc_store *store = reader->store;
    if (!reader->is_armed || !reader->has_op || reader->fifo_count > 0 ||
        !sc_store_spare_take(store, &reader->starved))
        return;
    if (sc_frames_wait_cancel(store->frames, &reader->waiter)) {
        reader->is_armed = false;
        slot_start(reader, store->spare_frame, true, batch);
    } else {
        sc_store_spare_put(store); /* a frame was handed over after all */
    }
}

/* Submits the batch and waits until the front may be ready; false: the deadline passed. Lock held,
 * given up meanwhile. */
static bool front_wait(struct sc_store_reader *reader, uint64_t deadline_ns, struct batch *batch)
{
    struct sc_exec *exec = reader->store->params.exec;
    uint32_t word = atomic_load(&reader->word); /* before spare_take: its wake must not be lost */
    reader->is_awaited = true;
    starved_start(reader, batch);
    pthread_mutex_unlock(&reader->lock);
    batch_submit(reader->store, batch);
    batch->count = 0;
    uint64_t start_ns = sc_exec_now_ns(exec);
    bool changed = sc_exec_wait(exec, &reader->word, word, deadline_ns);
    sc_store_starved_leave(reader->store, &reader->starved);
    uint64_t wait_ns = sc_exec_now_ns(exec) - start_ns;
    pthread_mutex_lock(&reader->lock);
    reader->is_awaited = false;
    reader->cost.wait_ns += wait_ns;
    return changed;
}

/* Lock held. Frees the front slot when it was handed out whole; what it held back goes out. */
static void front_release(struct sc_store_reader *reader, struct batch *batch)
{
    struct sc_reader_slot *slot = reader->front;
    if (slot == NULL || sc_reader_rows_left(reader))
        return;
    fifo_pop(reader);
    reader->front = NULL;
    slot_free(reader, slot);
    if (wants_refill(reader))
        pump(reader, NULL, batch);
}

enum front { FRONT_NONE, FRONT_READY, FRONT_LATE };

/* Waits for the front slot. FRONT_NONE: no load, or it is complete. FRONT_LATE: the time is up. */
static enum front front_await(struct sc_store_reader *reader, uint64_t deadline_ns,
                              struct sc_reader_slot **ret_slot)
{
    struct batch batch;
    batch.count = 0;
    enum front front = FRONT_NONE;
    bool in_time = true;
    pthread_mutex_lock(&reader->lock);
    while (reader->is_active) {
        front_release(reader, &batch);
        *ret_slot = fifo_front(reader);
        if (*ret_slot == NULL && reader->is_planned && !reader->has_op) {
            set_active(reader, false); /* complete */
            break;
        }
        front = *ret_slot != NULL && (*ret_slot)->state == SC_READER_SLOT_READY ? FRONT_READY
                                                                                : FRONT_LATE;
        if (front == FRONT_READY || !in_time)
            break;
        in_time = front_wait(reader, deadline_ns, &batch);
        front = FRONT_NONE;
    }
    pthread_mutex_unlock(&reader->lock);
    batch_submit(reader->store, &batch);
    return front;
}

void sc_store_reader_apart(struct sc_store_reader *reader, uint64_t rows_least)
{
    reader->rows_least = rows_least;
}

spec_status sc_store_reader_next(struct sc_store_reader *reader, uint64_t deadline_ns,
                                 struct sc_store_rows *ret_rows, struct spec_error *reterr)
{
    return sc_store_reader_move(reader, deadline_ns, NULL, ret_rows, reterr);
}

spec_status sc_store_reader_move(struct sc_store_reader *reader, uint64_t deadline_ns,
                                 const struct sc_store_sink *sink, struct sc_store_rows *ret_rows,
                                 struct spec_error *reterr)
{
    struct sc_reader_slot *slot = NULL;
    *ret_rows = (struct sc_store_rows){0};
    sc_reader_rows_leave(reader);
    for (;;) {
        if (reader->front != NULL && sc_reader_rows_left(reader))
            break; /* the usual case: no lock */
        enum front front = front_await(reader, deadline_ns, &slot);
        if (front == FRONT_NONE)
            return SPEC_OK;
        if (front == FRONT_LATE)
            return sc_fail(reterr, SPEC_E_TIMEOUT, "rows did not come before the deadline");
        spec_status status = front_open(reader, slot, ret_rows, reterr);
        if (status != SPEC_OK)
            return status;
    }
    int32_t sys_errno = reader->front->sys_errno;
    SC_ASSERT(reader->store->params.poison, sink == NULL || !reader->is_picks);
    spec_status status = reader->is_picks
                             ? sc_reader_picks_take(reader, reader->front, ret_rows)
                             : sc_reader_rows_take(reader, reader->front, sink, ret_rows);
    return status == SPEC_OK ? SPEC_OK : load_fail(reader, status, sys_errno, ret_rows, reterr);
}
