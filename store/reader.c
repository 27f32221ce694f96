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
 * Holds: rows that leave were verified against namespace, piece, layer, part and position; after
 * cancel nothing of the old load touches the next.
 * Does not: allocate after open, retry a failed operation.
 * Threads: begin, demand, next, cancel, close: the owner, one at a time; completions and the
 * frame waiter: the executor's. One lock a reader (rank 30), not held while verifying.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#include "store/picks.h"
#include "store/plan.h"
#include "store/tag.h"

#include <string.h>

#define SLOTS        64u
#define FLIGHT_BYTES (16ull << 20) /* twice the device's in-flight target of 8 MiB */

/* Reads of a load of picks that may be queued or in flight: the back end's depth of 128 stays full
 * while a half of them is planned anew, a frame's worth at once. */
#define READS      320u
#define SLOT_READS 64u
#define UNITS      2048u /* a power of two: units of reads that were not consumed */

/* Every how many bites the clock is read: twice a bite it would cost a hundredth of the load. */
#define TIMED_BITES 8u

enum slot_state { SLOT_FREE, SLOT_FLYING, SLOT_READY };

struct read {
    struct sc_io_op op;
    struct slot *slot;
    struct read *next; /* of its slot, or free */
    uint64_t at;       /* in the frame */
    uint64_t load;     /* for which it was planned */
    uint32_t unit;     /* picks: for which it reads */
    bool is_started, is_done, is_dropped;
};

struct unit { /* picks that lie in one read */
    uint32_t pick_first, pick_count;
    uint32_t range, range_first; /* of the first pick: store/picks.h */
    uint32_t at[2];              /* its row, or K and V, in the frame */
    spec_status status;
};

struct slot {
    struct read *reads, **reads_end; /* in the order of submission */
    struct sc_store_reader *reader;
    struct slot *next; /* free list */
    uint8_t *frame;    /* NULL: none, or one was laid down for it */
    uint64_t generation;
    uint64_t read_bytes, held_bytes; /* of its reads; of them, complete and not consumed */
    uint32_t state, left;            /* operations that have not completed */
    bool is_spare;                   /* the frame is the store's spare one */
    bool has_right;                  /* to a frame of the pool */
    spec_status status;
    int32_t sys_errno;
    struct sc_store_plan_op plan;
    uint32_t unit_first, unit_count; /* picks */
};

struct sc_store_reader {
    /* Set by open, constant after. */
    struct sc_store *store;
    struct slot *slots; /* [SLOTS] uninitialised from slots_used on */
    struct read *reads; /* [READS] likewise */
    struct unit *units; /* [UNITS] a ring */
    uint64_t *tags;     /* of the run at the front: [SC_STORE_ROWS_MAX * tags_per_row] */
    uint8_t *rows;      /* split layout: K and V put together, SC_STORE_BITE_BYTES or a row */
    uint32_t flight_max;
    bool leaves; /* frames' lines: sc_frames_leave */

    /* Guarded by lock (rank 30). */
    pthread_mutex_t lock;
    struct slot *free_slots;
    struct read *free_reads;
    uint32_t slots_used, reads_used; /* at least once */
    uint32_t read_count;             /* not free */
    uint32_t unit_next;              /* of the ring */
    struct slot *fifo[SLOTS];
    uint32_t fifo_head, fifo_count, flying;
    uint64_t generation, load;  /* load: counts begins */
    bool is_active, is_planned; /* a load is begun; all of it is planned */
    bool has_op;                /* op is planned and has no slot yet */
    bool is_picks;              /* the load is one of picks */
    bool is_armed;              /* the waiter waits, or its task will run */
    bool is_awaited;            /* the consumer sleeps, or is about to */
    uint32_t lane;
    struct sc_store_plan plan;
    struct sc_store_plan_op op;
    struct sc_store_pick_plan pick_plan;
    struct sc_store_pick_op pick_op;
    struct sc_frames_waiter waiter;
    struct sc_store_read_cost cost;

    /* The consumer's. */
    uint64_t range, range_row; /* of the next row to verify */
    struct slot *front;        /* ready, its tags taken: read without the lock; or NULL */
    uint64_t slot_row;         /* rows of it that were handed out; of picks: of its unit */
    uint32_t slot_unit;        /* units of it that were handed out whole */
    const uint8_t *last[2];    /* what was handed out last: read until the caller asks for more */
    uint64_t last_bytes;       /* of each */
    uint64_t bite_count;
    const uint64_t *pick_tags;
    const uint64_t *wanted_bits; /* NULL: all picks are wanted */
    struct {                     /* what the tags of a piece's rows are made with */
        uint64_t range;          /* UINT64_MAX: none */
        uint64_t position, base[2];
    } bases;

    struct sc_store_starved starved;

    _Atomic uint32_t word; /* changes when the front may be ready, or something ended */
};

/* ---- Slots ---------------------------------------------------------------------------------- */

/* Lock held. */
static void slot_free(struct sc_store_reader *reader, struct slot *slot)
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
    slot->state = SLOT_FREE;
    slot->next = reader->free_slots;
    reader->free_slots = slot;
}

/* Lock held. Its reads are complete, and wait for the consumer. */
static void slot_hold(struct slot *slot)
{
    slot->held_bytes = slot->read_bytes;
    sc_io_hold(slot->reader->store->io, slot->held_bytes);
}

/* Lock held. The slot's reads are over. */
static void reads_put(struct sc_store_reader *reader, struct slot *slot)
{
    while (slot->reads != NULL) {
        struct read *read = slot->reads;
        slot->reads = read->next;
        read->next = reader->free_reads;
        reader->free_reads = read;
        reader->read_count--;
    }
}

static struct slot *fifo_front(const struct sc_store_reader *reader)
{
    return reader->fifo_count > 0 ? reader->fifo[reader->fifo_head] : NULL;
}

static void fifo_pop(struct sc_store_reader *reader)
{
    reader->fifo_head = (reader->fifo_head + 1) % SLOTS;
    reader->fifo_count--;
}

/* Operations gathered under the lock. */
struct batch {
    struct sc_io_op *ops[READS];
    uint64_t count;
};

static void on_read_done(struct sc_io_op *op);

/* Bytes of a picked row that are wanted. */
static uint64_t pick_bytes(const struct sc_store_reader *reader)
{
    const struct sc_store_shape *shape = &reader->store->shape;
    return reader->pick_plan.picks.wanted == SC_STORE_WANT_ROWS ? shape->row_bytes
                                                                : shape->k_row_bytes;
}

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
    struct read *read = op->user;
    struct slot *slot = read->slot;
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
    return reader->free_slots != NULL || reader->slots_used < SLOTS;
}

/* Lock held. One is free. Memory of slots is first touched when they are first taken: most of many
 * readers never take most of theirs. */
static struct slot *slot_take(struct sc_store_reader *reader)
{
    struct slot *slot = reader->free_slots;
    if (slot != NULL) {
        reader->free_slots = slot->next;
        return slot;
    }
    slot = &reader->slots[reader->slots_used++];
    *slot = (struct slot){.reader = reader};
    return slot;
}

/* Lock held. One is free. */
static struct read *read_take(struct sc_store_reader *reader)
{
    struct read *read = reader->free_reads;
    reader->read_count++;
    if (read == NULL)
        return &reader->reads[reader->reads_used++];
    reader->free_reads = read->next;
    return read;
}

/* Lock held. A read of [offset, + bytes) into the slot's frame. */
static void slot_read(struct slot *slot, uint32_t segment, uint64_t offset, uint64_t bytes,
                      uint64_t at, struct batch *batch)
{
    struct sc_store_reader *reader = slot->reader;
    struct read *read = read_take(reader);
    *read = (struct read){.op = {.file = reader->store->segments[segment].file,
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
static void slot_fill(struct slot *slot, struct batch *batch)
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
static void unit_add(struct slot *slot, uint64_t used, struct batch *batch)
{
    struct sc_store_reader *reader = slot->reader;
    const struct sc_store_pick_op *plan = &reader->pick_op;
    uint64_t at = used;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        slot_read(slot, plan->segment, plan->parts[i].offset, plan->parts[i].bytes, at, batch);
        at += plan->parts[i].bytes;
    }
    reader->units[reader->unit_next] =
        (struct unit){.pick_first = (uint32_t)plan->pick_first,
                      .pick_count = (uint32_t)plan->pick_count,
                      .range = (uint32_t)plan->range,
                      .range_first = (uint32_t)plan->range_first,
                      .at = {(uint32_t)(used + plan->at[0]), (uint32_t)(used + plan->at[1])},
                      .status = plan->status};
    reader->unit_next = (reader->unit_next + 1) % UNITS;
    slot->unit_count++;
    reader->cost.wanted_bytes += plan->pick_count * pick_bytes(reader);
    reader->cost.row_count += plan->pick_count;
    reader->has_op = false;
}

/* Lock held. The planned picks and as many of those that follow as have room in a frame. */
static void slot_fill_picks(struct slot *slot, struct batch *batch)
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
    struct slot *slot = slot_take(reader);
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
    slot->state = slot->left > 0 ? SLOT_FLYING : SLOT_READY;
    reader->flying += slot->left > 0 ? 1 : 0;
    reader->fifo[(reader->fifo_head + reader->fifo_count++) % SLOTS] = slot;
}

/* Lock held. Units of the ring that are in use. */
static uint32_t units_used(const struct sc_store_reader *reader)
{
    const struct slot *front = fifo_front(reader);
    return front == NULL ? 0 : (reader->unit_next - front->unit_first) % UNITS;
}

/* Lock held. Another slot can be filled. */
static bool has_room(const struct sc_store_reader *reader)
{
    if (!slot_is_free(reader) || reader->fifo_count == SLOTS ||
        reader->flying >= reader->flight_max)
        return false;
    uint32_t reads = reader->is_picks ? SLOT_READS : 2;
    return READS - reader->read_count >= reads &&
           (!reader->is_picks || units_used(reader) < UNITS - SLOT_READS);
}

/* Lock held. Half of what may fly can be started, so that operations go out several in a batch. */
static bool wants_refill(const struct sc_store_reader *reader)
{
    uint32_t half = reader->flight_max / 2;
    if (reader->flying > half || SLOTS - reader->fifo_count < half)
        return false;
    return !reader->is_picks ||
           (reader->read_count <= READS / 2 && units_used(reader) <= UNITS / 2);
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
static void read_uncount(struct sc_store_reader *reader, const struct read *read)
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
static void read_fails(struct sc_store_reader *reader, const struct read *read)
{
    struct slot *slot = read->slot;
    if (slot->generation != reader->generation || read->is_dropped)
        return;
    spec_status *status = reader->is_picks ? &reader->units[read->unit].status : &slot->status;
    *status = *status == SPEC_OK ? read->op.status : *status;
    slot->sys_errno = slot->sys_errno == 0 ? read->op.sys_errno : slot->sys_errno;
}

static void on_read_done(struct sc_io_op *op)
{
    struct read *read = op->user;
    struct slot *slot = read->slot;
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
        slot->state = SLOT_READY;
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
    reader->flight_max = flight < SLOTS ? (uint32_t)flight : SLOTS;
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
    struct slot *slots = sc_alloc(alloc, count * SLOTS * sizeof(*slots));
    struct read *reads = sc_alloc(alloc, count * READS * sizeof(*reads));
    struct unit *units = sc_alloc(alloc, count * UNITS * sizeof(*units));
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
        readers[i].slots = slots + i * SLOTS;
        readers[i].reads = reads + i * READS;
        readers[i].units = units + i * UNITS;
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
    for (struct slot *slot = fifo_front(reader); slot != NULL; slot = fifo_front(reader)) {
        fifo_pop(reader);
        if (slot->state == SLOT_READY)
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
        struct slot *slot = reader->fifo[(reader->fifo_head + i) % SLOTS];
        for (struct read *read = slot->reads; read != NULL; read = read->next)
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

void sc_store_reader_cost(const struct sc_store_reader *reader, struct sc_store_read_cost *ret_cost)
{
    struct sc_store_reader *mine = (struct sc_store_reader *)(uintptr_t)reader;
    pthread_mutex_lock(&mine->lock);
    *ret_cost = mine->cost;
    pthread_mutex_unlock(&mine->lock);
}

/* ---- Rows ----------------------------------------------------------------------------------- */

/* Verifies `count` rows of one piece at the front slot, row `at` of the operation, and for a split
 * layout puts K and V together at dst. False: the row after *ret_good is not what it should be. */
static bool rows_verify(struct sc_store_reader *reader, const struct slot *slot, uint64_t at,
                        uint64_t count, uint8_t *dst)
{
    const struct sc_store *store = reader->store;
    const struct sc_store_shape *shape = &store->shape;
    const struct sc_store_range *range = &reader->plan.ranges[reader->range];
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    uint64_t position = piece->first_position + range->row_first + reader->range_row;
    const uint64_t *tags = reader->tags + (slot->plan.run_row + at) * shape->tags_per_row;
    uint32_t layer = reader->plan.layer;
    if (shape->layout == SC_STORE_PAIRED) {
        uint64_t base = sc_store_tag_base(shape->digest, piece->hash, layer, SC_STORE_PART_ROW);
        const uint8_t *rows = slot->frame + slot->plan.row_at + at * shape->row_bytes;
        return sc_store_tag_verify(base, position, rows, shape->row_bytes, shape->row_bytes, count,
                                   tags, 1) == count;
    }
    const uint8_t *k = slot->frame + slot->plan.row_at + at * shape->k_row_bytes;
    const uint8_t *v = slot->frame + slot->plan.v_at + at * shape->k_row_bytes;
    uint64_t k_base = sc_store_tag_base(shape->digest, piece->hash, layer, SC_STORE_PART_K);
    uint64_t v_base = sc_store_tag_base(shape->digest, piece->hash, layer, SC_STORE_PART_V);
    if (sc_store_tag_verify(k_base, position, k, shape->k_row_bytes, shape->k_row_bytes, count,
                            tags, 2) != count ||
        sc_store_tag_verify(v_base, position, v, shape->k_row_bytes, shape->k_row_bytes, count,
                            tags + 1, 2) != count)
        return false;
    for (uint64_t i = 0; i < count; i++, dst += shape->row_bytes) {
        memcpy(dst, k + i * shape->k_row_bytes, shape->k_row_bytes);
        memcpy(dst + shape->k_row_bytes, v + i * shape->k_row_bytes, shape->k_row_bytes);
    }
    return true;
}

/* Bytes of frames that the caller, or the copy it got, comes from. v: NULL, or a second place. */
static void last_set(struct sc_store_reader *reader, const uint8_t *at, const uint8_t *v,
                     uint64_t bytes)
{
    reader->last[0] = at;
    reader->last[1] = v;
    reader->last_bytes = bytes;
}

/* The caller is through with what it got last. */
static void last_leave(struct sc_store_reader *reader)
{
    for (uint32_t i = 0; i < 2 && reader->leaves && reader->last_bytes > 0; i++)
        if (reader->last[i] != NULL)
            sc_frames_leave(reader->last[i], reader->last_bytes);
    reader->last_bytes = 0;
}

/* Takes the next bite of the front slot: verified rows. */
static spec_status bite_take(struct sc_store_reader *reader, const struct slot *slot,
                             struct sc_store_rows *ret_rows)
{
    struct sc_store *store = reader->store;
    const struct sc_store_shape *shape = &store->shape;
    uint64_t most = SC_STORE_BITE_BYTES / shape->row_bytes, at = reader->slot_row;
    uint64_t count = slot->plan.row_count - at;
    most = most > 0 ? most : 1;
    count = count < most ? count : most;
    bool is_timed = reader->bite_count++ % TIMED_BITES == 0;
    uint64_t start_ns = is_timed ? sc_exec_now_ns(store->params.exec) : 0;
    spec_status status = SPEC_OK;
    for (uint64_t done = 0; done < count && status == SPEC_OK;) {
        const struct sc_store_range *range = &reader->plan.ranges[reader->range];
        uint64_t left = range->row_count - reader->range_row;
        uint64_t now = left < count - done ? left : count - done;
        if (now > 0 &&
            !rows_verify(reader, slot, at + done, now, reader->rows + done * shape->row_bytes)) {
            status = SPEC_E_CORRUPT;
            break;
        }
        done += now;
        reader->range_row += now;
        if (reader->range_row == range->row_count) {
            reader->range++;
            reader->range_row = 0;
        }
    }
    if (is_timed)
        sc_store_count(&store->verify_ns,
                       (sc_exec_now_ns(store->params.exec) - start_ns) * TIMED_BITES);
    if (status != SPEC_OK)
        return status;
    ret_rows->rows = shape->layout == SC_STORE_SPLIT
                         ? reader->rows
                         : slot->frame + slot->plan.row_at + at * shape->row_bytes;
    ret_rows->row_first = slot->plan.row_first + at;
    ret_rows->row_count = count;
    uint64_t stride = shape->layout == SC_STORE_SPLIT ? shape->k_row_bytes : shape->row_bytes;
    last_set(reader, slot->frame + slot->plan.row_at + at * stride,
             shape->layout == SC_STORE_SPLIT ? slot->frame + slot->plan.v_at + at * stride : NULL,
             count * stride);
    reader->slot_row += count;
    return SPEC_OK;
}

/* ---- Picked rows ---------------------------------------------------------------------------- */

static bool bit_of(const uint64_t *bits, uint64_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

static bool pick_is_wanted(const struct sc_store_reader *reader, uint64_t pick)
{
    return reader->wanted_bits == NULL ||
           bit_of(reader->wanted_bits, sc_store_pick_row(&reader->pick_plan.picks, pick));
}

static struct unit *unit_of(const struct sc_store_reader *reader, const struct slot *slot,
                            uint32_t i)
{
    return &reader->units[(slot->unit_first + i) % UNITS];
}

/* Whether the front slot holds a row that is still to be handed out; of picks, slot_unit and
 * slot_row say which. */
static bool front_has_rows(struct sc_store_reader *reader)
{
    const struct slot *slot = reader->front;
    if (!reader->is_picks)
        return reader->slot_row < slot->plan.row_count;
    for (; reader->slot_unit < slot->unit_count; reader->slot_unit++) {
        const struct unit *unit = unit_of(reader, slot, reader->slot_unit);
        for (; reader->slot_row < unit->pick_count; reader->slot_row++)
            if (pick_is_wanted(reader, unit->pick_first + reader->slot_row))
                return true;
        reader->slot_row = 0;
    }
    return false;
}

/* Puts the consumer's range at that of a logical row, which it is not behind. */
static void range_seek(struct sc_store_reader *reader, uint64_t row, uint64_t *range_first)
{
    const struct sc_store_range *ranges = reader->plan.ranges;
    while (reader->range + 1 < reader->plan.range_count &&
           row - *range_first >= ranges[reader->range].row_count)
        *range_first += ranges[reader->range++].row_count;
}

static void bases_set(struct sc_store_reader *reader)
{
    if (reader->bases.range == reader->range)
        return;
    const struct sc_store *store = reader->store;
    const struct sc_store_range *range = &reader->plan.ranges[reader->range];
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    bool is_paired = store->shape.layout == SC_STORE_PAIRED;
    reader->bases.range = reader->range;
    reader->bases.position = piece->first_position + range->row_first;
    for (uint32_t i = 0; i < 2; i++)
        reader->bases.base[i] =
            sc_store_tag_base(store->shape.digest, piece->hash, reader->plan.layer,
                              is_paired ? SC_STORE_PART_ROW : SC_STORE_PART_K + i);
}

/* Verifies `count` rows of one range, from logical row `row` on, one half of them. */
static bool picks_verify(const struct sc_store_reader *reader, uint64_t row, uint64_t range_first,
                         uint64_t count, uint32_t part, const uint8_t *rows)
{
    const struct sc_store_shape *shape = &reader->store->shape;
    bool is_paired = shape->layout == SC_STORE_PAIRED;
    uint64_t bytes = is_paired ? shape->row_bytes : shape->k_row_bytes;
    return sc_store_tag_verify(reader->bases.base[part],
                               reader->bases.position + (row - range_first), rows, bytes, bytes,
                               count, reader->pick_tags + row * shape->tags_per_row + part,
                               shape->tags_per_row) == count;
}

/* How many picks from `pick` on, of a unit that ends at `end`, are wanted rows in succession. */
static uint64_t run_count(const struct sc_store_reader *reader, uint64_t pick, uint64_t end,
                          uint64_t most)
{
    const struct sc_store_picks *picks = &reader->pick_plan.picks;
    uint64_t row = sc_store_pick_row(picks, pick), count = 1;
    while (count < most && pick + count < end &&
           sc_store_pick_row(picks, pick + count) == row + count &&
           pick_is_wanted(reader, pick + count))
        count++;
    return count;
}

/* Verifies a run of rows of one unit; for both halves of a split layout, puts them together. */
static spec_status run_take(struct sc_store_reader *reader, const struct slot *slot,
                            const struct unit *unit, uint64_t count, const uint8_t **ret_rows)
{
    const struct sc_store_shape *shape = &reader->store->shape;
    const struct sc_store_picks *picks = &reader->pick_plan.picks;
    bool is_paired = shape->layout == SC_STORE_PAIRED;
    bool is_both = !is_paired && picks->wanted == SC_STORE_WANT_ROWS;
    uint64_t stride = is_paired ? shape->row_bytes : shape->k_row_bytes;
    uint64_t first = sc_store_pick_row(picks, unit->pick_first), range_first = unit->range_first;
    uint64_t row = sc_store_pick_row(picks, unit->pick_first + reader->slot_row);
    const uint8_t *at = slot->frame + unit->at[0] + (row - first) * stride;
    const uint8_t *v = slot->frame + unit->at[1] + (row - first) * stride;
    uint32_t part = !is_paired && picks->wanted == SC_STORE_WANT_V ? 1 : 0;
    *ret_rows = is_both ? reader->rows : at;
    reader->range = unit->range;
    for (uint64_t done = 0; done < count;) {
        range_seek(reader, row + done, &range_first);
        bases_set(reader);
        uint64_t left = range_first + reader->plan.ranges[reader->range].row_count - (row + done);
        uint64_t now = left < count - done ? left : count - done;
        if (!picks_verify(reader, row + done, range_first, now, part, at + done * stride) ||
            (is_both && !picks_verify(reader, row + done, range_first, now, 1, v + done * stride)))
            return SPEC_E_CORRUPT;
        done += now;
    }
    last_set(reader, at, is_both ? v : NULL, count * stride);
    uint8_t *dst = reader->rows;
    for (uint64_t i = 0; is_both && i < count; i++, dst += 2 * stride) {
        memcpy(dst, at + i * stride, stride);
        memcpy(dst + stride, v + i * stride, stride);
    }
    return SPEC_OK;
}

/* Takes the next run of picked rows of the front slot. */
static spec_status picks_take(struct sc_store_reader *reader, const struct slot *slot,
                              struct sc_store_rows *ret_rows)
{
    struct sc_store *store = reader->store;
    const struct unit *unit = unit_of(reader, slot, reader->slot_unit);
    uint64_t pick = unit->pick_first + reader->slot_row;
    uint64_t most = SC_STORE_BITE_BYTES / pick_bytes(reader);
    uint64_t count =
        run_count(reader, pick, unit->pick_first + unit->pick_count, most > 0 ? most : 1);
    bool is_timed = reader->bite_count++ % TIMED_BITES == 0;
    uint64_t start_ns = is_timed ? sc_exec_now_ns(store->params.exec) : 0;
    const uint8_t *rows = NULL;
    uint64_t range_first = unit->range_first;
    SC_ASSERT(store->params.poison, reader->pick_tags != NULL);
    reader->range = unit->range;
    range_seek(reader, sc_store_pick_row(&reader->pick_plan.picks, pick), &range_first);
    spec_status status = reader->pick_tags == NULL ? SPEC_E_CORRUPT : unit->status;
    if (status == SPEC_OK)
        status = run_take(reader, slot, unit, count, &rows);
    if (is_timed)
        sc_store_count(&store->verify_ns,
                       (sc_exec_now_ns(store->params.exec) - start_ns) * TIMED_BITES);
    if (status != SPEC_OK)
        return status;
    ret_rows->rows = rows;
    ret_rows->row_first = pick;
    ret_rows->row_count = count;
    reader->slot_row += count;
    return SPEC_OK;
}

/* Lock held. What the unit has of wanted rows that were not handed out: told in covered_bits. */
static uint64_t unit_covered(const struct sc_store_reader *reader, const struct unit *unit,
                             uint64_t from, uint64_t *covered_bits)
{
    uint64_t count = 0;
    for (uint64_t i = from; i < unit->pick_count; i++) {
        uint64_t row = sc_store_pick_row(&reader->pick_plan.picks, unit->pick_first + i);
        if (!bit_of(reader->wanted_bits, row))
            continue;
        covered_bits[row / 64] |= 1ull << (row % 64);
        count++;
    }
    return count;
}

/* Lock held. Wanted rows of a slot; its reads that have not started and hold none are dropped. */
static uint64_t slot_narrow(struct sc_store_reader *reader, struct slot *slot,
                            uint64_t *covered_bits)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < slot->unit_count; i++) {
        uint64_t from = 0;
        if (slot == reader->front && i <= reader->slot_unit)
            from = i < reader->slot_unit ? UINT64_MAX : reader->slot_row;
        struct unit *unit = unit_of(reader, slot, i);
        uint64_t count = unit_covered(reader, unit, from, covered_bits);
        total += count;
        bool is_dropped = false;
        for (struct read *read = slot->reads; read != NULL && count == 0; read = read->next)
            if (!read->is_started && read->unit == (slot->unit_first + i) % UNITS)
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
        struct slot *slot = fifo_front(reader);
        fifo_pop(reader);
        uint64_t covered = slot_narrow(reader, slot, ret_covered_bits);
        total += covered;
        if (covered > 0) {
            reader->fifo[(reader->fifo_head + reader->fifo_count++) % SLOTS] = slot;
            continue;
        }
        if (slot == reader->front)
            reader->front = NULL;
        slot->generation = reader->generation - 1; /* nobody's any more */
        if (slot->state == SLOT_READY)
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
static spec_status front_open(struct sc_store_reader *reader, struct slot *slot,
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
    struct slot *slot = reader->front;
    if (slot == NULL || front_has_rows(reader))
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
                              struct slot **ret_slot)
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
        front = *ret_slot != NULL && (*ret_slot)->state == SLOT_READY ? FRONT_READY : FRONT_LATE;
        if (front == FRONT_READY || !in_time)
            break;
        in_time = front_wait(reader, deadline_ns, &batch);
        front = FRONT_NONE;
    }
    pthread_mutex_unlock(&reader->lock);
    batch_submit(reader->store, &batch);
    return front;
}

spec_status sc_store_reader_next(struct sc_store_reader *reader, uint64_t deadline_ns,
                                 struct sc_store_rows *ret_rows, struct spec_error *reterr)
{
    struct slot *slot = NULL;
    *ret_rows = (struct sc_store_rows){0};
    last_leave(reader);
    for (;;) {
        if (reader->front != NULL && front_has_rows(reader))
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
    spec_status status = reader->is_picks ? picks_take(reader, reader->front, ret_rows)
                                          : bite_take(reader, reader->front, ret_rows);
    return status == SPEC_OK ? SPEC_OK : load_fail(reader, status, sys_errno, ret_rows, reterr);
}
