/* Sketches: one layer's probe rows and row tags of a match, read, verified and copied out by
 * whoever completes the reads; or its codes, read to where they stay. Their parts: store/sketch.h.
 *
 *   begin -> [block in a slot: up to three reads to one place]... -> copied out -> next block ...
 *                                                    all rows done, or one failed -> on_ready, wait
 *
 * Blocks may come in any order and none waits for another. Who completes a block's last read
 * copies it out, gives its frame back and issues what follows; so a sketch holds no frame that
 * waits for its caller. A sketch that is waited for and gets no frame, because readers whose rows
 * nobody consumes hold them all, takes the store's spare one, and gives it back when the block is
 * copied: whoever waits progresses. A block of codes needs no frame: it is read into the load's
 * memory, where its codes stay.
 *
 * A load takes its memory when it is begun and leaves it when it ends; a read into it, a completion
 * that copies and a thread that reads keys hold it meanwhile, so it is nobody else's before they
 * are through.
 *
 * Holds: after end nobody looks at the ranges, and late completions write nothing that a later load
 * reads.
 * Does not: allocate after open, retry.
 * Threads: begin, demand, wait, end, close: the owner, one at a time; completions, the frame waiter
 * and on_ready: the executor's. One lock a sketch (rank 30), not held while verifying or copying;
 * the pool's (rank 36).
 * Tests: tests/unit/store/test_sketch.c, tests/fault/test_store_faults.c */
#include "store/sketch.h"
#include "store/plan.h"

#include <string.h>

#define SLOTS        16u
#define FLIGHT_BYTES (16ull << 20)

struct slot {
    struct sc_io_op ops[SC_STORE_SKETCH_SECTIONS];
    struct sc_store_sketch *sketch;
    struct slot *next; /* free list */
    uint8_t *frame; /* or the block's area; NULL: no read has begun */
    uint64_t generation;
    uint8_t *run;  /* the memory that it is read into, and holds; NULL: it has a frame */
    uint32_t left; /* operations that have not completed; 0: free, or being copied */
    bool is_spare, has_right;
    spec_status status;
    int32_t sys_errno;
    struct sc_store_sketch_block block;
};

struct sc_store_sketch {
    /* Set by open, constant after. */
    struct sc_store *store;
    struct slot *slots; /* [SLOTS] uninitialised from slots_used on */
    uint64_t rows_max;
    uint32_t flight_max;

    /* Guarded by lock (rank 30). */
    pthread_mutex_t lock;
    struct slot *free_slots;
    uint32_t slots_used, flying;
    uint32_t blocks_left; /* of the load, begun */
    uint32_t task_count;  /* ready tasks that are posted or run */
    uint64_t generation;
    struct sc_store_sketch_memory memory;
    bool is_active, is_planned;
    bool has_block;  /* plan.block has no slot yet */
    bool is_armed;   /* the waiter waits, or its task will run */
    bool is_awaited; /* somebody sleeps on word, or is about to */
    bool notifies;   /* on_ready is due */
    uint32_t lane;
    uint64_t row_count, rows_done;
    struct sc_store_sketch_plan plan;
    struct sc_frames_waiter waiter;
    struct sc_store_starved starved;
    struct sc_task ready;
    void (*on_ready)(struct sc_store_sketch *sketch, void *user);
    void *user;
    struct sc_store_read_cost cost;

    uint64_t failed_range; /* set before the state says IO; the owner's from then on */
    _Atomic int32_t state; /* spec_status */
    _Atomic uint32_t word;
};

/* ---- Blocks in flight ----------------------------------------------------------------------- */

struct batch {
    struct sc_io_op *ops[SLOTS * SC_STORE_SKETCH_SECTIONS];
    uint64_t count;
};

static bool is_wanted(const struct sc_store_sketch *sketch, const struct slot *slot)
{
    return sketch->is_active && slot->generation == sketch->generation &&
           atomic_load(&sketch->state) == SPEC_PENDING;
}

/* Lock held. */
static void slot_free(struct sc_store_sketch *sketch, struct slot *slot)
{
    struct sc_frames *frames = sketch->store->frames;
    if (slot->is_spare)
        sc_store_spare_put(sketch->store);
    else if (slot->has_right)
        sc_frames_put(frames, slot->frame != NULL ? slot->frame : sc_frames_pick(frames));
    if (slot->run != NULL)
        sc_store_pool_leave(&sketch->store->pool, slot->run);
    slot->frame = slot->run = NULL;
    slot->is_spare = slot->has_right = false;
    slot->next = sketch->free_slots;
    sketch->free_slots = slot;
    sketch->flying--;
}

/* Lock held. Its first read begins: where to. */
static void slot_place(struct sc_store_sketch *sketch, struct slot *slot)
{
    if (slot->has_right) {
        slot->frame = sc_frames_pick(sketch->store->frames);
        return;
    }
    slot->run = sketch->memory.run;
    slot->frame = slot->run + slot->block.area;
    sc_store_pool_hold(&sketch->store->pool, slot->run); /* the load may end before the read does */
}

static bool on_read_start(struct sc_io_op *op)
{
    struct slot *slot = op->user;
    struct sc_store_sketch *sketch = slot->sketch;
    pthread_mutex_lock(&sketch->lock);
    bool starts = is_wanted(sketch, slot);
    if (starts && slot->frame == NULL)
        slot_place(sketch, slot);
    if (starts)
        op->buffer = slot->frame + slot->block.parts[op - slot->ops].at;
    pthread_mutex_unlock(&sketch->lock);
    return starts;
}

static void on_read_done(struct sc_io_op *op);

/* Lock held. One is free. */
static struct slot *slot_take(struct sc_store_sketch *sketch)
{
    struct slot *slot = sketch->free_slots;
    if (slot != NULL) {
        sketch->free_slots = slot->next;
        return slot;
    }
    slot = &sketch->slots[sketch->slots_used++];
    *slot = (struct slot){.sketch = sketch};
    return slot;
}

/* Lock held. Gives the planned block a slot and the frame; of codes NULL: they need none. */
static void slot_start(struct sc_store_sketch *sketch, uint8_t *frame, bool is_spare,
                       struct batch *batch)
{
    struct sc_store *store = sketch->store;
    struct slot *slot = slot_take(sketch);
    struct sc_store_sketch_block *block = &slot->block;
    *block = sketch->plan.block;
    sketch->has_block = false;
    slot->is_spare = is_spare;
    slot->has_right = frame != NULL && !is_spare;
    slot->frame = is_spare ? frame : NULL;
    if (slot->has_right)
        sc_frames_lay(store->frames, frame);
    slot->generation = sketch->generation;
    slot->status = SPEC_OK;
    slot->sys_errno = 0;
    slot->left = block->part_count;
    sketch->flying++;
    sketch->blocks_left++;
    sketch->cost.wanted_bytes += block->row_count * (block->wanted_bytes > 0 ? 8 : 0);
    sketch->cost.wanted_bytes +=
        block->row_count * block->wanted_bytes + (block->tags.end - block->tags.start);
    if (block->range_count > 0)
        sketch->cost.wanted_bytes += block->probes.end - block->probes.start +
                                     (block->probe_tags.end - block->probe_tags.start);
    for (uint32_t i = 0; i < block->part_count; i++) {
        slot->ops[i] =
            (struct sc_io_op){.file = store->segments[block->parts[i].segment].file,
                              .offset = block->parts[i].offset,
                              .bytes = block->parts[i].bytes,
                              .kind = SC_IO_READ,
                              .lane = sketch->lane,
                              .done = on_read_done,
                              .user = slot,
                              .start = on_read_start,
                              .is_long = sketch->plan.is_codes};
        batch->ops[batch->count++] = &slot->ops[i];
        sketch->cost.read_bytes += block->parts[i].bytes;
        sketch->cost.op_count++;
        sc_store_count(&store->read_bytes, block->parts[i].bytes);
        sc_store_count(&store->read_ops, 1);
    }
}

/* Lock held. Plans the next block; false: all is planned, or the load failed. */
static bool block_plan(struct sc_store_sketch *sketch)
{
    uint64_t skipped;
    spec_status status = sc_store_sketch_plan_next(&sketch->plan, &skipped);
    sketch->rows_done += skipped;
    if (status == SPEC_E_CORRUPT)
        atomic_store(&sketch->state, status);
    return status == SPEC_PENDING;
}

/* Lock held. Starts what slots, frames and the in-flight target allow, and submits it. given: a
 * frame that was handed over, or NULL. */
static void pump(struct sc_store_sketch *sketch, uint8_t *given)
{
    struct sc_store *store = sketch->store;
    struct batch batch = {.count = 0};
    while (sketch->is_active && atomic_load(&sketch->state) == SPEC_PENDING &&
           sketch->flying < sketch->flight_max) {
        if (!sketch->has_block) {
            sketch->is_planned = sketch->is_planned || !block_plan(sketch);
            if (sketch->is_planned)
                break;
            sketch->has_block = true;
        }
        if (sketch->plan.is_codes) {
            slot_start(sketch, NULL, false, &batch);
            continue;
        }
        uint8_t *frame = given;
        given = NULL;
        if (frame == NULL && sketch->is_armed)
            break;
        if (frame == NULL)
            frame = sc_frames_take_or_wait(store->frames, sketch->lane, &sketch->waiter);
        if (frame == NULL) {
            sketch->is_armed = true;
            sc_store_count(&store->stage_full, 1);
            break;
        }
        slot_start(sketch, frame, false, &batch);
    }
    if (given != NULL)
        sc_frames_put(store->frames, given);
    if (batch.count > 0)
        sc_io_submit(store->io, batch.ops, batch.count);
}

/* Lock held. */
static void sketch_signal(struct sc_store_sketch *sketch)
{
    atomic_fetch_add(&sketch->word, 1);
    if (sketch->is_awaited)
        sc_exec_wake(sketch->store->params.exec, &sketch->word);
}

/* Lock held. */
static void waiter_cancel(struct sc_store_sketch *sketch)
{
    if (sketch->is_armed && sc_frames_wait_cancel(sketch->store->frames, &sketch->waiter))
        sketch->is_armed = false;
}

/* Lock held. The load is there, or it failed: whoever asked is told, once. */
static void load_check(struct sc_store_sketch *sketch)
{
    if (!sketch->is_active)
        return;
    if (atomic_load(&sketch->state) == SPEC_PENDING && sketch->rows_done == sketch->row_count &&
        sketch->blocks_left == 0)
        atomic_store(&sketch->state, SPEC_OK);
    if (atomic_load(&sketch->state) == SPEC_PENDING)
        return;
    waiter_cancel(sketch);
    if (sketch->notifies || sketch->on_ready == NULL)
        return;
    sketch->notifies = true;
    sketch->task_count++;
    sc_exec_post(sketch->store->params.exec, &sketch->ready, (enum sc_exec_lane)sketch->lane);
}

/* No lock held; the memory is. */
static spec_status slot_copy(struct sc_store *store, const struct slot *slot,
                             const struct sc_store_sketch_memory *memory)
{
    const struct sc_store_sketch_block *block = &slot->block;
    if (slot->status == SPEC_OK)
        return sc_store_sketch_memory_fill(store, block, slot->frame, memory);
    sc_store_count(&store->io_errors, 1);
    SC_LOG(store->params.log, 1,
           "piece %" PRIu64 " layer %" PRIu32 " cannot be read (its sketch), errno %" PRId32,
           block->piece, block->layer, slot->sys_errno);
    return SPEC_E_IO;
}

/* Lock held, given up meanwhile. The last read of the slot has ended. */
static void slot_finish(struct sc_store_sketch *sketch, struct slot *slot)
{
    if (is_wanted(sketch, slot)) {
        struct sc_store_pool *pool = &sketch->store->pool;
        const struct sc_store_sketch_memory memory = sketch->memory;
        sc_store_pool_hold(pool, memory.run); /* the load may end meanwhile */
        pthread_mutex_unlock(&sketch->lock);
        spec_status status = slot_copy(sketch->store, slot, &memory);
        pthread_mutex_lock(&sketch->lock);
        sc_store_pool_leave(pool, memory.run);
        if (is_wanted(sketch, slot) && status != SPEC_OK) {
            sketch->failed_range = slot->block.range_first;
            atomic_store(&sketch->state, status);
        } else if (is_wanted(sketch, slot)) {
            sketch->rows_done += slot->block.row_count;
            sketch->blocks_left--;
        }
    }
    slot_free(sketch, slot);
}

static void on_read_done(struct sc_io_op *op)
{
    struct slot *slot = op->user;
    struct sc_store_sketch *sketch = slot->sketch;
    pthread_mutex_lock(&sketch->lock);
    if (op->status != SPEC_OK && slot->status == SPEC_OK) {
        slot->status = op->status;
        slot->sys_errno = op->sys_errno;
    }
    if (--slot->left == 0) {
        slot_finish(sketch, slot);
        pump(sketch, NULL);
        load_check(sketch);
        sketch_signal(sketch);
    }
    pthread_mutex_unlock(&sketch->lock);
}

static void on_frame(struct sc_task *task)
{
    struct sc_frames_waiter *waiter =
        (struct sc_frames_waiter *)((char *)task - offsetof(struct sc_frames_waiter, task));
    struct sc_store_sketch *sketch =
        (struct sc_store_sketch *)((char *)waiter - offsetof(struct sc_store_sketch, waiter));
    pthread_mutex_lock(&sketch->lock);
    uint8_t *frame = waiter->frame;
    waiter->frame = NULL;
    sketch->is_armed = false;
    pump(sketch, frame);
    load_check(sketch);
    sketch_signal(sketch);
    pthread_mutex_unlock(&sketch->lock);
}

static void ready_step(struct sc_task *task)
{
    struct sc_store_sketch *sketch =
        (struct sc_store_sketch *)((char *)task - offsetof(struct sc_store_sketch, ready));
    pthread_mutex_lock(&sketch->lock);
    void (*on_ready)(struct sc_store_sketch * sketch, void *user) = NULL;
    void *user = sketch->user;
    if (sketch->is_active && sketch->notifies) {
        on_ready = sketch->on_ready;
        sketch->on_ready = NULL; /* once */
    }
    pthread_mutex_unlock(&sketch->lock);
    if (on_ready != NULL)
        on_ready(sketch, user);
    pthread_mutex_lock(&sketch->lock);
    sketch->task_count--;
    sketch_signal(sketch);
    pthread_mutex_unlock(&sketch->lock);
}

/* ---- Open, close, begin, end ---------------------------------------------------------------- */

static void sketch_free(struct sc_store_sketch *sketch)
{
    struct sc_alloc *alloc = sketch->store->params.alloc;
    sc_alloc_free(alloc, sketch->slots);
    sc_alloc_free(alloc, sketch);
}

spec_status sc_store_sketch_open(struct sc_store *store, uint64_t rows_max,
                                 struct sc_store_sketch **ret_sketch, struct spec_error *reterr)
{
    struct sc_store_sketch *sketch = sc_alloc_zero(store->params.alloc, sizeof(*sketch));
    if (sketch == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a sketch");
    sketch->store = store;
    sketch->rows_max = rows_max;
    sketch->slots = sc_alloc(store->params.alloc, SLOTS * sizeof(*sketch->slots));
    if (sketch->slots == NULL) {
        sketch_free(sketch);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a sketch of %" PRIu64 " rows", rows_max);
    }
    uint64_t flight = (FLIGHT_BYTES + store->op_bytes - 1) / store->op_bytes;
    sketch->flight_max = flight < SLOTS ? (uint32_t)flight : SLOTS;
    sketch->waiter.task.step = on_frame;
    sketch->ready.step = ready_step;
    sketch->starved.word = &sketch->word;
    atomic_store(&sketch->state, SPEC_E_DROPPED);
    pthread_mutex_init(&sketch->lock, NULL);
    *ret_sketch = sketch;
    return SPEC_OK;
}

void sc_store_sketch_close(struct sc_store_sketch *sketch)
{
    if (sketch == NULL)
        return;
    struct sc_store *store = sketch->store;
    sc_store_sketch_end(sketch);
    pthread_mutex_lock(&sketch->lock);
    while (sketch->flying > 0 || sketch->is_armed || sketch->task_count > 0) {
        sketch->is_awaited = true;
        uint32_t word = atomic_load(&sketch->word);
        pthread_mutex_unlock(&sketch->lock);
        bool changed = sc_exec_wait(store->params.exec, &sketch->word, word, SC_EXEC_FOREVER);
        pthread_mutex_lock(&sketch->lock);
        if (!changed)
            break; /* the seeded loop has nothing left to run: asserted below */
    }
    bool is_quiet = sketch->flying == 0 && !sketch->is_armed && sketch->task_count == 0;
    pthread_mutex_unlock(&sketch->lock);
    SC_ASSERT(store->params.poison, is_quiet);
    pthread_mutex_destroy(&sketch->lock);
    sketch_free(sketch);
}

/* Lock held. What flies completes by itself, and what is copied now is copied to the end. */
static void load_end(struct sc_store_sketch *sketch)
{
    sketch->generation++;
    sketch->is_active = sketch->has_block = sketch->notifies = false;
    sketch->on_ready = NULL;
    atomic_store(&sketch->state, SPEC_E_DROPPED);
    waiter_cancel(sketch);
    if (sketch->task_count > 0 && sc_exec_cancel(sketch->store->params.exec, &sketch->ready))
        sketch->task_count--;
    if (sketch->memory.run != NULL)
        sc_store_pool_leave(&sketch->store->pool, sketch->memory.run);
    sketch->memory = (struct sc_store_sketch_memory){0};
}

void sc_store_sketch_end(struct sc_store_sketch *sketch)
{
    pthread_mutex_lock(&sketch->lock);
    load_end(sketch);
    pthread_mutex_unlock(&sketch->lock);
}

/* Rows of the ranges; UINT64_MAX: one has no probe rows that are long enough, or is not live. */
static uint64_t rows_count(const struct sc_store_sketch *sketch, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           uint64_t probe_row_bytes)
{
    uint64_t rows = 0, row;
    for (uint64_t i = 0; i < range_count; i++) {
        if (ranges[i].row_count == 0)
            continue;
        const struct sc_store_extent_entry *extent =
            sc_store_range_find(sketch->store, layer, &ranges[i], &row);
        if (extent == NULL || sc_store_probes_of(extent).row_bytes < probe_row_bytes)
            return UINT64_MAX;
        rows += ranges[i].row_count;
    }
    return rows;
}

/* What a load is of. */
struct load {
    uint32_t layer;
    enum sc_exec_lane lane;
    const struct sc_store_range *ranges;
    uint64_t range_count, rows, wanted_bytes;
    bool is_codes, k_alone;
    void (*on_ready)(struct sc_store_sketch *sketch, void *user);
    void *user;
};

static struct sc_store_sketch_plan plan_of(const struct sc_store *store, const struct load *load)
{
    return (struct sc_store_sketch_plan){.store = store,
                                         .ranges = load->ranges,
                                         .range_count = load->range_count,
                                         .wanted_bytes = load->wanted_bytes,
                                         .layer = load->layer,
                                         .is_codes = load->is_codes,
                                         .k_alone = load->k_alone};
}

/* Lock held. Its memory is taken. */
static void load_start(struct sc_store_sketch *sketch, const struct load *load)
{
    sketch->is_active = true;
    sketch->is_planned = false;
    sketch->lane = load->lane;
    sketch->row_count = load->rows;
    sketch->rows_done = 0;
    sketch->blocks_left = 0;
    sketch->plan = plan_of(sketch->store, load);
    sketch->plan.run = sketch->memory.run;
    sketch->plan.area = sketch->memory.area;
    sketch->plan.area_end = sketch->memory.area_end;
    sketch->cost = (struct sc_store_read_cost){0};
    sketch->on_ready = load->on_ready;
    sketch->user = load->user;
    atomic_store(&sketch->state, SPEC_PENDING);
    pump(sketch, NULL);
    load_check(sketch);
}

bool sc_store_sketch_begin(struct sc_store_sketch *sketch, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           uint64_t probe_row_bytes, enum sc_exec_lane lane,
                           void (*on_ready)(struct sc_store_sketch *sketch, void *user), void *user)
{
    struct sc_store *store = sketch->store;
    struct load load = {.layer = layer,
                        .lane = lane,
                        .ranges = ranges,
                        .range_count = range_count,
                        .wanted_bytes = probe_row_bytes,
                        .on_ready = on_ready,
                        .user = user};
    load.rows = rows_count(sketch, layer, ranges, range_count, probe_row_bytes);
    pthread_mutex_lock(&sketch->lock);
    load_end(sketch);
    bool begins = load.rows <= sketch->rows_max &&
                  probe_row_bytes <= store->params.probe_row_bytes &&
                  sc_store_sketch_memory_take(store, load.rows, probe_row_bytes, &sketch->memory);
    if (begins)
        load_start(sketch, &load);
    pthread_mutex_unlock(&sketch->lock);
    return begins;
}

bool sc_store_sketch_begin_codes(struct sc_store_sketch *sketch, uint32_t layer,
                                 const struct sc_store_range *ranges, uint64_t range_count,
                                 bool k_alone, enum sc_exec_lane lane,
                                 void (*on_ready)(struct sc_store_sketch *sketch, void *user),
                                 void *user)
{
    struct sc_store *store = sketch->store;
    struct load load = {.layer = layer,
                        .lane = lane,
                        .ranges = ranges,
                        .range_count = range_count,
                        .is_codes = true,
                        .k_alone = k_alone,
                        .on_ready = on_ready,
                        .user = user};
    load.rows = rows_count(sketch, layer, ranges, range_count, 0);
    const struct sc_store_sketch_plan plan = plan_of(store, &load);
    pthread_mutex_lock(&sketch->lock);
    load_end(sketch);
    bool begins = load.rows > 0 && load.rows <= sketch->rows_max &&
                  sc_store_sketch_memory_take_codes(store, &plan, load.rows, &sketch->memory);
    if (begins)
        load_start(sketch, &load);
    pthread_mutex_unlock(&sketch->lock);
    return begins;
}

void sc_store_sketch_demand(struct sc_store_sketch *sketch)
{
    struct sc_io_op *ops[SLOTS * SC_STORE_SKETCH_SECTIONS];
    uint64_t count = 0;
    pthread_mutex_lock(&sketch->lock);
    bool was_lower = sketch->is_active && sketch->lane != SC_LANE_DEMAND;
    sketch->lane = SC_LANE_DEMAND;
    for (uint32_t i = 0; was_lower && i < sketch->slots_used; i++) {
        struct slot *slot = &sketch->slots[i];
        for (uint32_t j = 0; slot->left > 0 && j < slot->block.part_count; j++)
            if (slot->generation == sketch->generation)
                ops[count++] = &slot->ops[j];
    }
    sc_io_raise(sketch->store->io, ops, count, SC_LANE_DEMAND); /* none ends under the lock */
    if (sketch->is_armed)
        sc_frames_wait_raise(sketch->store->frames, &sketch->waiter, SC_LANE_DEMAND);
    pthread_mutex_unlock(&sketch->lock);
}

/* ---- Waiting and looking -------------------------------------------------------------------- */

uint64_t sc_store_sketch_failed_range(const struct sc_store_sketch *sketch)
{
    return sketch->failed_range;
}

spec_status sc_store_sketch_state(const struct sc_store_sketch *sketch)
{
    return atomic_load(&sketch->state);
}

/* Lock held. Nothing flies and no frame comes: takes the spare one, if nobody has it. */
static void starved_start(struct sc_store_sketch *sketch)
{
    struct sc_store *store = sketch->store;
    struct batch batch = {.count = 0};
    if (!sketch->is_armed || !sketch->has_block || sketch->flying > 0 ||
        !sc_store_spare_take(store, &sketch->starved))
        return;
    if (sc_frames_wait_cancel(store->frames, &sketch->waiter)) {
        sketch->is_armed = false;
        slot_start(sketch, store->spare_frame, true, &batch);
        sc_io_submit(store->io, batch.ops, batch.count);
    } else {
        sc_store_spare_put(store); /* a frame was handed over after all */
    }
}

spec_status sc_store_sketch_wait(struct sc_store_sketch *sketch, uint64_t deadline_ns)
{
    struct sc_exec *exec = sketch->store->params.exec;
    bool in_time = true;
    pthread_mutex_lock(&sketch->lock);
    while (atomic_load(&sketch->state) == SPEC_PENDING && in_time) {
        uint32_t word = atomic_load(&sketch->word); /* before the spare frame's wake */
        sketch->is_awaited = true;
        starved_start(sketch);
        pthread_mutex_unlock(&sketch->lock);
        uint64_t start_ns = sc_exec_now_ns(exec);
        in_time = sc_exec_wait(exec, &sketch->word, word, deadline_ns);
        uint64_t wait_ns = sc_exec_now_ns(exec) - start_ns;
        sc_store_starved_leave(sketch->store, &sketch->starved);
        pthread_mutex_lock(&sketch->lock);
        sketch->is_awaited = false;
        sketch->cost.wait_ns += wait_ns;
    }
    spec_status status = atomic_load(&sketch->state);
    pthread_mutex_unlock(&sketch->lock);
    return status == SPEC_PENDING ? SPEC_E_TIMEOUT : status;
}

const uint8_t *sc_store_sketch_keys(const struct sc_store_sketch *sketch)
{
    return sketch->memory.run;
}

const uint64_t *sc_store_sketch_tags(const struct sc_store_sketch *sketch)
{
    const struct sc_store_sketch_memory *memory = &sketch->memory;
    return (const uint64_t *)(const void *)(memory->run != NULL ? memory->run + memory->tags_at
                                                                : NULL);
}

const uint8_t *sc_store_sketch_keys_hold(struct sc_store_sketch *sketch)
{
    pthread_mutex_lock(&sketch->lock);
    bool is_there = atomic_load(&sketch->state) == SPEC_OK;
    const uint8_t *keys = is_there ? sketch->memory.run : NULL;
    if (keys != NULL)
        sc_store_pool_hold(&sketch->store->pool, keys);
    pthread_mutex_unlock(&sketch->lock);
    return keys;
}

void sc_store_sketch_keys_leave(struct sc_store_sketch *sketch, const uint8_t *keys)
{
    sc_store_pool_leave(&sketch->store->pool, keys);
}

void sc_store_sketch_cost(const struct sc_store_sketch *sketch, struct sc_store_read_cost *ret)
{
    struct sc_store_sketch *mine = (struct sc_store_sketch *)(uintptr_t)sketch;
    pthread_mutex_lock(&mine->lock);
    *ret = mine->cost;
    pthread_mutex_unlock(&mine->lock);
}

uint64_t sc_store_sketch_bytes_used(const struct sc_store *store)
{
    return sc_store_counted(&store->pool.used_bytes);
}
