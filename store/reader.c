/* Loading: planned operations in flight, rows out in order, verified.
 *
 *   slots   fifo: [READY front][FLYING][FLYING][READY] ...    consumed in order
 *           not in the fifo: free, or flying for a load that was cancelled (its frame goes back
 *           when it completes; the generation tells)
 *   frame   counted when the operation is submitted, picked when a device takes it, so that what
 *           stands in queues keeps no memory from being used again while it is in cache
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
#include "store/plan.h"

#include "store/tag.h"

#include <string.h>

#define SLOTS        64u
#define FLIGHT_BYTES (16ull << 20) /* twice the device's in-flight target of 8 MiB */
#define SUBMITS_MAX  (2 * SLOTS)

/* Every how many bites the clock is read: twice a bite it would cost a hundredth of the load. */
#define TIMED_BITES 8u

enum slot_state { SLOT_FREE, SLOT_FLYING, SLOT_READY };

struct slot {
    struct sc_io_op ops[2];
    struct sc_store_reader *reader;
    struct slot *next; /* free list */
    uint8_t *frame;    /* NULL: none, or one was laid down for it */
    uint64_t generation;
    uint32_t state, left; /* operations that have not completed */
    bool is_spare;        /* the frame is the store's spare one */
    bool has_right;       /* to a frame of the pool */
    spec_status status;
    int32_t sys_errno;
    struct sc_store_plan_op plan;
};

struct sc_store_reader {
    /* Set by open, constant after. */
    struct sc_store *store;
    struct slot *slots; /* [SLOTS] uninitialised from slots_used on */
    uint64_t *tags;     /* of the run at the front: [SC_STORE_ROWS_MAX * tags_per_row] */
    uint8_t *rows;      /* split layout: K and V put together, SC_STORE_BITE_BYTES or a row */
    uint32_t flight_max;

    /* Guarded by lock (rank 30). */
    pthread_mutex_t lock;
    struct slot *free_slots;
    uint32_t slots_used; /* at least once */
    struct slot *fifo[SLOTS];
    uint32_t fifo_head, fifo_count, flying;
    uint64_t generation;
    bool is_active, is_planned; /* a load is begun; all of it is planned */
    bool has_op;                /* op is planned and has no slot yet */
    bool is_armed;              /* the waiter waits, or its task will run */
    bool is_awaited;            /* the consumer sleeps, or is about to */
    uint32_t lane;
    struct sc_store_plan plan;
    struct sc_store_plan_op op;
    struct sc_frames_waiter waiter;
    struct sc_store_read_cost cost;

    /* The consumer's. */
    uint64_t range, range_row; /* of the next row to verify */
    struct slot *front;        /* ready, its tags taken: read without the lock; or NULL */
    uint64_t slot_row;         /* rows of it that were handed out */
    uint64_t bite_count;

    struct sc_store_starved starved;

    _Atomic uint32_t word; /* changes when the front may be ready, or something ended */
};

/* ---- Slots ---------------------------------------------------------------------------------- */

/* Lock held. */
static void slot_free(struct sc_store_reader *reader, struct slot *slot)
{
    struct sc_frames *frames = reader->store->frames;
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

static struct slot *fifo_front(struct sc_store_reader *reader)
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
    struct sc_io_op *ops[SUBMITS_MAX];
    uint64_t count;
};

static void on_read_done(struct sc_io_op *op);

/* A device takes the operation: its slot gets a frame, unless its other one has fetched it. */
static bool on_read_start(struct sc_io_op *op)
{
    struct slot *slot = op->user;
    struct sc_store_reader *reader = slot->reader;
    pthread_mutex_lock(&reader->lock);
    if (slot->frame == NULL)
        slot->frame = sc_frames_pick(reader->store->frames);
    op->buffer = slot->frame + slot->plan.parts[op - slot->ops].at;
    pthread_mutex_unlock(&reader->lock);
    return true;
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

/* Lock held. Gives the planned operation a slot and, unless it needs none, the frame. */
static void slot_start(struct sc_store_reader *reader, uint8_t *frame, bool is_spare,
                       struct batch *batch)
{
    struct sc_store *store = reader->store;
    struct slot *slot = slot_take(reader);
    const struct sc_store_plan_op *plan = &reader->op;
    reader->has_op = false;
    slot->plan = *plan;
    slot->frame = is_spare ? frame : NULL;
    slot->is_spare = is_spare;
    slot->has_right = frame != NULL && !is_spare;
    if (slot->has_right)
        sc_frames_lay(store->frames, frame);
    slot->generation = reader->generation;
    slot->status = plan->status;
    slot->sys_errno = 0;
    slot->left = plan->part_count;
    slot->state = plan->part_count > 0 ? SLOT_FLYING : SLOT_READY;
    reader->flying += plan->part_count > 0 ? 1 : 0;
    reader->fifo[(reader->fifo_head + reader->fifo_count++) % SLOTS] = slot;
    uint64_t tag_bytes = plan->tag_count * store->shape.tags_per_row * 8;
    reader->cost.wanted_bytes += plan->row_count * store->shape.row_bytes + tag_bytes;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        slot->ops[i] = (struct sc_io_op){.file = store->segments[plan->segment].file,
                                         .offset = plan->parts[i].offset,
                                         .bytes = plan->parts[i].bytes,
                                         .kind = SC_IO_READ,
                                         .lane = reader->lane,
                                         .done = on_read_done,
                                         .user = slot,
                                         .start = on_read_start};
        batch->ops[batch->count++] = &slot->ops[i];
        reader->cost.read_bytes += plan->parts[i].bytes;
        reader->cost.op_count++;
        sc_store_count(&store->read_bytes, plan->parts[i].bytes);
        sc_store_count(&store->read_ops, 1);
    }
}

/* Lock held. Half of what may fly can be started, so that operations go out several in a batch. */
static bool wants_refill(const struct sc_store_reader *reader)
{
    uint32_t half = reader->flight_max / 2;
    return reader->flying <= half && SLOTS - reader->fifo_count >= half;
}

/* Lock held. Starts what slots, frames and the in-flight target allow. given: a frame that was
 * handed over, or NULL. */
static void pump(struct sc_store_reader *reader, uint8_t *given, struct batch *batch)
{
    struct sc_store *store = reader->store;
    while (reader->is_active && slot_is_free(reader) && reader->fifo_count < SLOTS &&
           reader->flying < reader->flight_max) {
        if (!reader->has_op) {
            reader->is_planned =
                reader->is_planned || !sc_store_plan_next(&reader->plan, &reader->op);
            if (reader->is_planned)
                break;
            reader->has_op = true;
        }
        uint8_t *frame = given;
        if (reader->op.part_count > 0) {
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

static void on_read_done(struct sc_io_op *op)
{
    struct slot *slot = op->user;
    struct sc_store_reader *reader = slot->reader;
    struct sc_store *store = reader->store;
    struct batch batch = {.count = 0};
    pthread_mutex_lock(&reader->lock);
    if (op->status != SPEC_OK && slot->status == SPEC_OK) {
        slot->status = op->status;
        slot->sys_errno = op->sys_errno;
    }
    if (--slot->left == 0) {
        reader->flying--;
        slot->state = SLOT_READY;
        bool is_old = slot->generation != reader->generation;
        if (is_old)
            slot_free(reader, slot);
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
    struct batch batch = {.count = 0};
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
    reader->waiter.task.step = on_frame;
    reader->starved.word = &reader->word;
    pthread_mutex_init(&reader->lock, NULL);
}

spec_status sc_store_readers_open(struct sc_store *store, uint64_t count,
                                  struct sc_store_reader **ret_readers, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    uint64_t tag_rows = (uint64_t)SC_STORE_ROWS_MAX * store->shape.tags_per_row;
    uint64_t tags_bytes = tag_rows * sizeof(uint64_t), rows_bytes = rows_buffer_bytes(store);
    struct sc_store_reader *readers = sc_alloc_array(alloc, count, sizeof(*readers));
    struct slot *slots = sc_alloc(alloc, count * SLOTS * sizeof(*slots));
    uint64_t *tags = sc_alloc(alloc, count * tags_bytes);
    uint8_t *rows = sc_alloc(alloc, count * rows_bytes);
    if (readers == NULL || slots == NULL || tags == NULL || rows == NULL) {
        sc_alloc_free(alloc, rows);
        sc_alloc_free(alloc, tags);
        sc_alloc_free(alloc, slots);
        sc_alloc_free(alloc, readers);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " readers", count);
    }
    for (uint64_t i = 0; i < count; i++) {
        readers[i].slots = slots + i * SLOTS;
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
    sc_alloc_free(alloc, first);
}

void sc_store_reader_close(struct sc_store_reader *reader)
{
    sc_store_readers_close(reader, 1);
}

/* Lock held. The load is over; what flies is left to complete by itself. */
static void load_end(struct sc_store_reader *reader)
{
    reader->generation++;
    reader->is_active = false;
    reader->has_op = false;
    reader->front = NULL;
    reader->slot_row = 0;
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

void sc_store_reader_begin(struct sc_store_reader *reader, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           enum sc_exec_lane lane)
{
    struct batch batch = {.count = 0};
    pthread_mutex_lock(&reader->lock);
    load_end(reader);
    sc_store_plan_begin(&reader->plan, reader->store, layer, ranges, range_count);
    reader->is_active = true;
    reader->is_planned = false;
    reader->lane = lane;
    reader->cost = (struct sc_store_read_cost){0};
    reader->range = reader->range_row = 0;
    pump(reader, NULL, &batch);
    pthread_mutex_unlock(&reader->lock);
    batch_submit(reader->store, &batch);
}

void sc_store_reader_demand(struct sc_store_reader *reader)
{
    struct sc_io_op *ops[SUBMITS_MAX];
    uint64_t count = 0;
    pthread_mutex_lock(&reader->lock);
    bool was_lower = reader->lane != SC_LANE_DEMAND;
    reader->lane = SC_LANE_DEMAND;
    for (uint32_t i = 0; was_lower && i < reader->fifo_count; i++) {
        struct slot *slot = reader->fifo[(reader->fifo_head + i) % SLOTS];
        for (uint32_t j = 0; slot->state == SLOT_FLYING && j < slot->plan.part_count; j++)
            ops[count++] = &slot->ops[j];
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
    reader->slot_row += count;
    return SPEC_OK;
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
    if (slot->status != SPEC_OK)
        return load_fail(reader, slot->status, slot->sys_errno, ret_rows, reterr);
    memcpy(reader->tags + plan->tag_first * per_row, slot->frame + plan->tag_at,
           plan->tag_count * per_row * 8);
    reader->front = slot;
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
    if (slot == NULL || reader->slot_row < slot->plan.row_count)
        return;
    fifo_pop(reader);
    reader->front = NULL;
    reader->slot_row = 0;
    slot_free(reader, slot);
    if (wants_refill(reader))
        pump(reader, NULL, batch);
}

enum front { FRONT_NONE, FRONT_READY, FRONT_LATE };

/* Waits for the front slot. FRONT_NONE: no load, or it is complete. FRONT_LATE: the time is up. */
static enum front front_await(struct sc_store_reader *reader, uint64_t deadline_ns,
                              struct slot **ret_slot)
{
    struct batch batch = {.count = 0};
    enum front front = FRONT_NONE;
    bool in_time = true;
    pthread_mutex_lock(&reader->lock);
    while (reader->is_active) {
        front_release(reader, &batch);
        *ret_slot = fifo_front(reader);
        if (*ret_slot == NULL && reader->is_planned && !reader->has_op) {
            reader->is_active = false; /* complete */
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
    for (;;) {
        if (reader->front != NULL && reader->slot_row < reader->front->plan.row_count)
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
    spec_status status = bite_take(reader, reader->front, ret_rows);
    return status == SPEC_OK ? SPEC_OK : load_fail(reader, status, 0, ret_rows, reterr);
}
