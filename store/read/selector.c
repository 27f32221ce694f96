/* selector: loads one layer's selector keys of a match: probe rows and row tags, or quantised rows.
 *
 *   begin -> [block in a slot: up to three reads to one place]... -> copied -> next block ...
 *                                                    all rows done, or one failed -> on_ready, wait
 *
 * The completion of a block's last read verifies and copies it, returns its frame and starts more,
 * in any order. So a selector holds no frame while it waits for its caller. Quantised blocks need
 * no frame: they are read into the load's memory. Ranges in host memory are copied by a task, a few
 * per step, or by the waiting owner; those evicted by then are planned last and read to frames.
 *
 * A load takes its memory at begin and leaves it at end. Reads into it, completions that copy and
 * threads that read keys hold it too, so it is not reused before they have finished.
 *
 * Invariants: after end nobody reads the ranges, and late completions write nothing that a later
 * load reads. Nothing is allocated after open, nothing retried.
 * Threads: begin, demand, wait, end, close: the owner, one at a time; completions and on_ready: the
 * executor's. The lock of inflight is not held while verifying or copying. The pool's lock: rank
 * 61.
 * Tests: tests/unit/store/test_selector.c, test_selector_host.c, tests/fault/test_store_faults.c */
#include "store/read/selector.h"
#include "store/cache/inflight.h"
#include "store/read/scan_plan.h"

#include <string.h>

#define SLOTS         16u
#define TAKES_AT_ONCE 16u /* ranges per step: 0.2 to 2 MiB */

struct slot {
    struct sc_inflight_slot inflight;
    struct sc_store_selector_block block;
};

struct sc_store_selector {
    struct sc_inflight inflight; /* its lock guards what is in flight and what is planned */

    uint64_t rows_max, ranges_max;

    /* Guarded by inflight.lock. */
    struct sc_store_selector_memory memory;
    bool is_active, is_planned;
    bool has_block; /* plan.block has no slot yet */
    bool notifies;  /* on_ready is due */
    uint64_t row_count, rows_done;
    struct sc_store_selector_plan plan;
    struct sc_task ready;
    void (*on_ready)(struct sc_store_selector *selector, void *user);
    void *user;

    uint64_t *host_slab, *missed;                /* bits of ranges; NULL: no host tier */
    uint64_t take_range, take_row, missed_count; /* next range to examine; its first row */
    bool is_taking;                              /* the task is posted or running */
    struct sc_task take;

    _Atomic int32_t state;
};

/* ---- Client of inflight ---------------------------------------------------------------------- */

static struct sc_store_selector *selector_of(const struct sc_inflight *inflight)
{
    return (struct sc_store_selector *)(uintptr_t)inflight;
}

static bool is_pending(struct sc_store_selector *selector)
{
    return selector->is_active && atomic_load(&selector->state) == SPEC_PENDING;
}

static void load_fail(struct sc_store_selector *selector, spec_status status)
{
    atomic_store(&selector->state, status);
    sc_inflight_cancel(&selector->inflight);
}

/* Lock held. Plans the missed ranges once all else is planned. */
static void plan_again(struct sc_store_selector *selector)
{
    struct sc_store_selector_plan *plan = &selector->plan;
    if (!selector->is_planned || plan->is_again || selector->is_taking ||
        selector->missed_count == 0)
        return;
    plan->is_again = true;
    plan->range = plan->range_row = plan->row_next = plan->quant_at = plan->left = 0;
    selector->is_planned = false;
}

static enum sc_inflight_need selector_next(struct sc_inflight *inflight)
{
    struct sc_store_selector *selector = selector_of(inflight);
    if (is_pending(selector) && !selector->has_block)
        plan_again(selector);
    while (is_pending(selector) && !selector->has_block && !selector->is_planned) {
        uint64_t skipped;
        spec_status status = sc_store_selector_plan_next(&selector->plan, &skipped);
        selector->rows_done += skipped;
        selector->has_block = status == SPEC_PENDING;
        selector->is_planned = !selector->has_block;
        if (status == SPEC_E_CORRUPT)
            load_fail(selector, status);
        plan_again(selector);
    }
    if (!is_pending(selector) || !selector->has_block)
        return SC_INFLIGHT_NOTHING;
    bool has_area = selector->plan.is_quant && !selector->plan.is_again;
    return has_area ? SC_INFLIGHT_NO_FRAME : SC_INFLIGHT_FRAME;
}

static void selector_fill(struct sc_inflight_slot *slot, struct sc_inflight_batch *batch)
{
    struct sc_store_selector *selector = selector_of(slot->inflight);
    struct sc_store_selector_block *block = &((struct slot *)(void *)slot)->block;
    uint64_t *wanted_bytes = &selector->inflight.cost.wanted_bytes;
    *block = selector->plan.block;
    selector->has_block = false;
    *wanted_bytes += block->row_count * (block->wanted_bytes > 0 ? 8 : 0);
    *wanted_bytes += block->row_count * block->wanted_bytes + (block->tags.end - block->tags.start);
    if (block->range_count > 0)
        *wanted_bytes += block->probes.end - block->probes.start +
                         (block->probe_tags.end - block->probe_tags.start);
    for (uint32_t i = 0; i < block->part_count; i++) {
        struct sc_inflight_read *read = sc_inflight_read_add(
            slot, block->parts[i].where, block->parts[i].bytes, block->parts[i].at, batch);
        read->op.is_long = selector->plan.is_quant;
    }
}

/* Quantised rows are read to their final place; the slot holds it, as the load may end first. */
static void selector_place(struct sc_inflight_slot *slot)
{
    struct sc_store_selector *selector = selector_of(slot->inflight);
    slot->run = selector->memory.run;
    slot->frame = slot->run + ((struct slot *)(void *)slot)->block.area;
    sc_store_pool_hold(&selector->inflight.store->pool, slot->run);
}

/* No lock held; the memory is. */
static spec_status slot_copy(struct sc_store *store, const struct slot *slot,
                             const struct sc_store_selector_memory *memory)
{
    const struct sc_inflight_slot *inflight = &slot->inflight;
    return sc_store_selector_memory_came(store, &slot->block, inflight->frame, inflight->status,
                                         inflight->sys_errno, memory);
}

/* Copies a block. Releases the lock meanwhile; the load may end. */
static bool selector_completed(struct sc_inflight_slot *at)
{
    struct sc_store_selector *selector = selector_of(at->inflight);
    struct sc_inflight *inflight = &selector->inflight;
    struct slot *slot = (struct slot *)(void *)at;
    struct sc_store_pool *pool = &inflight->store->pool;
    const struct sc_store_selector_memory memory = selector->memory;
    sc_store_pool_hold(pool, memory.run);
    pthread_mutex_unlock(&inflight->lock);
    spec_status status = slot_copy(inflight->store, slot, &memory);
    pthread_mutex_lock(&inflight->lock);
    sc_store_pool_leave(pool, memory.run);
    if (!sc_inflight_is_wanted(at))
        return false;
    if (status == SPEC_OK)
        selector->rows_done += slot->block.row_count;
    else
        load_fail(selector, status);
    return false;
}

/* Completes the load; posts on_ready once when it is complete or failed. */
static void selector_pumped(struct sc_inflight *inflight)
{
    struct sc_store_selector *selector = selector_of(inflight);
    if (is_pending(selector) && selector->rows_done == selector->row_count &&
        inflight->slot_count == 0)
        atomic_store(&selector->state, SPEC_OK);
    if (!selector->is_active || is_pending(selector) || selector->notifies ||
        selector->on_ready == NULL)
        return;
    selector->notifies = true;
    inflight->task_count++;
    sc_exec_post(inflight->store->params.exec, &selector->ready,
                 (enum sc_io_class)inflight->io_class);
}

static const struct sc_inflight_client SELECTOR = {.next = selector_next,
                                                   .fill = selector_fill,
                                                   .place = selector_place,
                                                   .completed = selector_completed,
                                                   .pumped = selector_pumped};

static void ready_step(struct sc_task *task)
{
    struct sc_store_selector *selector =
        (struct sc_store_selector *)((char *)task - offsetof(struct sc_store_selector, ready));
    struct sc_inflight *inflight = &selector->inflight;
    pthread_mutex_lock(&inflight->lock);
    void (*on_ready)(struct sc_store_selector * selector, void *user) = NULL;
    void *user = selector->user;
    if (selector->is_active && selector->notifies) {
        on_ready = selector->on_ready;
        selector->on_ready = NULL;
    }
    pthread_mutex_unlock(&inflight->lock);
    if (on_ready != NULL)
        on_ready(selector, user);
    pthread_mutex_lock(&inflight->lock);
    inflight->task_count--;
    sc_inflight_signal(inflight);
    pthread_mutex_unlock(&inflight->lock);
}

/* ---- Ranges in host memory ------------------------------------------------------------------- */

/* Lock held. Returns the load's next range in host memory; false if there is none. */
static bool take_next(struct sc_store_selector *selector, struct sc_store_selector_take *ret_take)
{
    const struct sc_store_selector_plan *plan = &selector->plan;
    for (; is_pending(selector) && selector->take_range < plan->range_count;
         selector->take_range++) {
        uint64_t row = selector->take_row;
        selector->take_row += plan->ranges[selector->take_range].row_count;
        if (!sc_store_selector_bit(selector->host_slab, selector->take_range))
            continue;
        if (sc_store_selector_take_set(plan, selector->take_range, row, ret_take))
            return true;
        selector->missed[selector->take_range / 64] |= 1ull << (selector->take_range % 64);
        selector->missed_count++;
    }
    return false;
}

static uint64_t take_bytes(const struct sc_store *store, const struct sc_store_selector_take *take)
{
    const struct sc_store_section *codes = take->quantised != NULL ? take->quantised->codes : NULL;
    uint64_t bytes = sc_store_selector_tags_bytes(store, take->row_count);
    struct sc_store_blocks blocks;
    if (codes == NULL)
        return bytes + take->row_count * (take->wanted_bytes + (take->wanted_bytes > 0 ? 8 : 0));
    sc_store_quant_blocks(store, take->extent, codes->copy, &codes->codec_shape, take->piece,
                          &blocks);
    return bytes + blocks.k_bytes + (take->quantised->has_v ? blocks.v_bytes : 0);
}

/* Lock held, but released while a range is copied: another load may begin. Returns false at the
 * end. */
static bool take_some(struct sc_store_selector *selector)
{
    struct sc_inflight *inflight = &selector->inflight;
    struct sc_store *store = inflight->store;
    struct sc_store_selector_take take;
    for (uint32_t i = 0; i < TAKES_AT_ONCE; i++) {
        if (!take_next(selector, &take))
            return false;
        uint64_t generation = inflight->generation, range = selector->take_range++;
        const struct sc_store_selector_memory memory = selector->memory;
        sc_store_pool_hold(&store->pool, memory.run);
        pthread_mutex_unlock(&inflight->lock);
        bool is_taken = sc_store_selector_take(store, &take, &memory);
        pthread_mutex_lock(&inflight->lock);
        sc_store_pool_leave(&store->pool, memory.run);
        if (inflight->generation != generation)
            continue;
        if (is_taken) {
            selector->rows_done += take.row_count;
            inflight->cost.wanted_bytes += take_bytes(store, &take);
        } else {
            selector->missed[range / 64] |= 1ull << (range % 64);
            selector->missed_count++;
        }
    }
    return true;
}

/* Lock held. Copies a few ranges; posts the task again for the rest. */
static void take_run(struct sc_store_selector *selector, struct sc_inflight_batch *batch)
{
    struct sc_inflight *inflight = &selector->inflight;
    if (take_some(selector)) {
        sc_exec_post(inflight->store->params.exec, &selector->take,
                     (enum sc_io_class)inflight->io_class);
        return;
    }
    selector->is_taking = false;
    inflight->task_count--;
    sc_inflight_pump(inflight, batch);
    sc_inflight_signal(inflight);
}

static void take_step(struct sc_task *task)
{
    struct sc_store_selector *selector = SC_TASK_OWNER(task, struct sc_store_selector, take);
    struct sc_inflight_batch batch;
    batch.count = 0;
    pthread_mutex_lock(&selector->inflight.lock);
    take_run(selector, &batch);
    sc_inflight_submit(&selector->inflight, &batch);
    pthread_mutex_unlock(&selector->inflight.lock);
}

/* Lock held. Notes which of the plan's ranges are in host memory; false if none is. */
static bool host_slab_find(struct sc_store_selector *selector, struct sc_store_selector_plan *plan)
{
    uint64_t words = (plan->range_count + 63) / 64, row = 0, count = 0;
    struct sc_store_selector_take take;
    selector->take_range = selector->take_row = selector->missed_count = 0;
    if (selector->host_slab == NULL || plan->range_count > selector->ranges_max)
        return false;
    memset(selector->host_slab, 0, words * sizeof(*selector->host_slab));
    memset(selector->missed, 0, words * sizeof(*selector->missed));
    plan->host_slab = selector->host_slab;
    plan->missed = selector->missed;
    for (uint64_t i = 0; i < plan->range_count; row += plan->ranges[i++].row_count)
        if (sc_store_selector_take_set(plan, i, row, &take) &&
            sc_store_selector_take_has(plan->store, &take)) {
            selector->host_slab[i / 64] |= 1ull << (i % 64);
            count++;
        }
    return count > 0;
}

spec_status sc_store_selector_open(struct sc_store *store, uint64_t rows_max, uint64_t ranges_max,
                                   struct sc_store_selector **ret_selector,
                                   struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    const uint32_t reads_max = SLOTS * SC_STORE_SELECTOR_SECTIONS;
    struct sc_store_selector *selector = sc_alloc_zero(alloc, sizeof(*selector));
    struct slot *slots = sc_alloc(alloc, SLOTS * sizeof(*slots));
    struct sc_inflight_read *reads = sc_alloc(alloc, reads_max * sizeof(*reads));
    uint64_t words = store->host != NULL ? 2 * ((ranges_max + 63) / 64) : 0;
    uint64_t *bits = words > 0 ? sc_alloc(alloc, words * sizeof(*bits)) : NULL;
    if (selector == NULL || slots == NULL || reads == NULL || (words > 0 && bits == NULL)) {
        sc_alloc_free(alloc, bits);
        sc_alloc_free(alloc, reads);
        sc_alloc_free(alloc, slots);
        sc_alloc_free(alloc, selector);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "selector keys of %" PRIu64 " rows", rows_max);
    }
    selector->rows_max = rows_max;
    selector->ranges_max = ranges_max;
    selector->ready.step = ready_step;
    selector->take.step = take_step;
    selector->host_slab = bits;
    selector->missed = bits != NULL ? bits + words / 2 : NULL;
    atomic_store(&selector->state, SPEC_E_DROPPED);
    const struct sc_inflight_memory memory = {.slots = slots,
                                              .slot_bytes = sizeof(*slots),
                                              .reads = reads,
                                              .slots_max = SLOTS,
                                              .reads_max = reads_max};
    sc_inflight_init(&selector->inflight, store, &SELECTOR, &memory);
    *ret_selector = selector;
    return SPEC_OK;
}

void sc_store_selector_close(struct sc_store_selector *selector)
{
    if (selector == NULL)
        return;
    struct sc_alloc *alloc = selector->inflight.store->params.alloc;
    sc_store_selector_end(selector);
    sc_inflight_done(&selector->inflight);
    sc_alloc_free(alloc, selector->inflight.memory.reads);
    sc_alloc_free(alloc, selector->inflight.memory.slots);
    sc_alloc_free(alloc, selector->host_slab);
    sc_alloc_free(alloc, selector);
}

/* Lock held. Reads in flight and running copies finish by themselves. */
static void load_end(struct sc_store_selector *selector)
{
    struct sc_inflight *inflight = &selector->inflight;
    selector->is_active = selector->has_block = selector->notifies = false;
    selector->on_ready = NULL;
    atomic_store(&selector->state, SPEC_E_DROPPED);
    sc_inflight_cancel(inflight);
    if (inflight->task_count > 0 && sc_exec_cancel(inflight->store->params.exec, &selector->ready))
        inflight->task_count--;
    if (selector->is_taking && sc_exec_cancel(inflight->store->params.exec, &selector->take)) {
        selector->is_taking = false;
        inflight->task_count--;
    }
    if (selector->memory.run != NULL)
        sc_store_pool_leave(&inflight->store->pool, selector->memory.run);
    selector->memory = (struct sc_store_selector_memory){0};
}

void sc_store_selector_end(struct sc_store_selector *selector)
{
    pthread_mutex_lock(&selector->inflight.lock);
    load_end(selector);
    pthread_mutex_unlock(&selector->inflight.lock);
}

/* Returns the rows of the ranges; UINT64_MAX if one is not live or its probe rows are too short. */
static uint64_t rows_count(const struct sc_store_selector *selector, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           uint64_t probe_row_bytes)
{
    uint64_t rows = 0, row;
    for (uint64_t i = 0; i < range_count; i++) {
        if (ranges[i].row_count == 0)
            continue;
        const struct sc_store_extent_entry *extent =
            sc_store_range_find(selector->inflight.store, layer, &ranges[i], &row);
        if (extent == NULL || sc_store_probes_of(extent).row_bytes < probe_row_bytes)
            return UINT64_MAX;
        rows += ranges[i].row_count;
    }
    return rows;
}

static struct sc_store_selector_plan plan_of(const struct sc_store *store,
                                             const struct sc_store_selector_want *want)
{
    return (struct sc_store_selector_plan){.store = store,
                                           .ranges = want->ranges,
                                           .range_count = want->range_count,
                                           .wanted_bytes =
                                               want->is_quant ? 0 : want->probe_row_bytes,
                                           .layer = want->layer,
                                           .is_quant = want->is_quant,
                                           .k_alone = want->k_alone};
}

/* Lock held; the memory is taken. */
static void load_start(struct sc_store_selector *selector,
                       const struct sc_store_selector_want *want,
                       const struct sc_store_selector_plan *plan, uint64_t rows, bool takes)
{
    struct sc_inflight_batch batch;
    batch.count = 0;
    selector->is_active = true;
    selector->is_planned = false;
    selector->row_count = rows;
    selector->rows_done = 0;
    selector->plan = *plan;
    selector->plan.run = selector->memory.run;
    selector->plan.area = selector->memory.area;
    selector->plan.area_end = selector->memory.area_end;
    selector->on_ready = want->on_ready;
    selector->user = want->user;
    atomic_store(&selector->state, SPEC_PENDING);
    sc_inflight_begin(&selector->inflight, want->io_class, SC_STORE_SELECTOR_SECTIONS);
    if (!takes)
        selector->take_range = UINT64_MAX;
    if (takes && !selector->is_taking) { /* otherwise it runs for an ended load, and continues */
        selector->is_taking = true;
        selector->inflight.task_count++;
        sc_exec_post(selector->inflight.store->params.exec, &selector->take, want->io_class);
    }
    sc_inflight_pump(&selector->inflight, &batch);
    sc_inflight_submit(&selector->inflight, &batch);
}

/* Lock held. Returns false if the pool has no such run. */
static bool memory_take(struct sc_store_selector *selector,
                        const struct sc_store_selector_plan *plan, uint64_t rows)
{
    struct sc_store *store = selector->inflight.store;
    if (plan->is_quant)
        return sc_store_selector_memory_take_quant(store, plan, rows, &selector->memory);
    return sc_store_selector_memory_take(store, rows, plan->wanted_bytes, &selector->memory);
}

bool sc_store_selector_begin(struct sc_store_selector *selector,
                             const struct sc_store_selector_want *want)
{
    struct sc_store *store = selector->inflight.store;
    struct sc_store_selector_plan plan = plan_of(store, want);
    uint64_t least = want->probe_row_bytes_least;
    least = least > plan.wanted_bytes ? least : plan.wanted_bytes;
    uint64_t rows = rows_count(selector, want->layer, want->ranges, want->range_count, least);
    pthread_mutex_lock(&selector->inflight.lock);
    load_end(selector);
    bool begins = rows <= selector->rows_max;
    begins =
        begins && (want->is_quant ? rows > 0 : plan.wanted_bytes <= store->params.probe_row_bytes);
    bool takes = begins && store->host != NULL && host_slab_find(selector, &plan);
    if (takes && plan.is_quant && !memory_take(selector, &plan, rows)) {
        takes = false; /* blocks beside host-tier ranges round to more pages */
        memset(selector->host_slab, 0, (plan.range_count + 63) / 64 * sizeof(*selector->host_slab));
    }
    if (begins && selector->memory.run == NULL)
        begins = memory_take(selector, &plan, rows);
    if (begins)
        load_start(selector, want, &plan, rows, takes);
    pthread_mutex_unlock(&selector->inflight.lock);
    return begins;
}

void sc_store_selector_demand(struct sc_store_selector *selector)
{
    sc_inflight_raise(&selector->inflight);
}

/* ---- Waiting and reading --------------------------------------------------------------------- */

spec_status sc_store_selector_state(const struct sc_store_selector *selector)
{
    return atomic_load(&selector->state);
}

bool sc_store_selector_await(struct sc_store_selector *selector, uint64_t deadline_ns,
                             const _Atomic uint64_t *word, uint64_t seen)
{
    struct sc_inflight_batch batch;
    batch.count = 0;
    bool in_time = true, is_pending = true;
    pthread_mutex_lock(&selector->inflight.lock);
    while ((is_pending = atomic_load(&selector->state) == SPEC_PENDING) && in_time &&
           atomic_load(word) == seen) {
        struct sc_exec *exec = selector->inflight.store->params.exec;
        if (selector->is_taking && sc_exec_cancel(exec, &selector->take)) {
            take_run(selector, &batch); /* instead of waiting for a worker */
            in_time = sc_exec_now_ns(exec) < deadline_ns;
        } else {
            in_time = sc_inflight_wait(&selector->inflight, deadline_ns, &batch);
        }
    }
    pthread_mutex_unlock(&selector->inflight.lock);
    sc_inflight_submit(&selector->inflight, &batch);
    return !is_pending || !in_time;
}

spec_status sc_store_selector_wait(struct sc_store_selector *selector, uint64_t deadline_ns)
{
    const _Atomic uint64_t none = 0;
    (void)sc_store_selector_await(selector, deadline_ns, &none, 0);
    spec_status status = atomic_load(&selector->state);
    return status == SPEC_PENDING ? SPEC_E_TIMEOUT : status;
}

void sc_store_selector_nudge(struct sc_store_selector *selector)
{
    pthread_mutex_lock(&selector->inflight.lock);
    sc_inflight_signal(&selector->inflight);
    pthread_mutex_unlock(&selector->inflight.lock);
}

bool sc_store_range_has_quant(const struct sc_store *store, const struct sc_store_range *range)
{
    struct sc_store_blocks blocks;
    return sc_store_range_is_there(store, range) &&
           sc_store_selector_quant_of(store, range, &blocks) != NULL;
}

const uint8_t *sc_store_selector_keys(const struct sc_store_selector *selector)
{
    return selector->memory.run;
}

const uint64_t *sc_store_selector_tags(const struct sc_store_selector *selector)
{
    const struct sc_store_selector_memory *memory = &selector->memory;
    return (const uint64_t *)(const void *)(memory->run != NULL ? memory->run + memory->tags_at
                                                                : NULL);
}

bool sc_store_selector_is_in_host_tier(struct sc_store_selector *selector, uint64_t range)
{
    pthread_mutex_lock(&selector->inflight.lock);
    const struct sc_store_selector_plan *plan = &selector->plan;
    bool is_in_host_tier = selector->is_active && plan->host_slab != NULL &&
                           range < plan->range_count &&
                           sc_store_selector_bit(plan->host_slab, range) &&
                           !sc_store_selector_bit(plan->missed, range);
    pthread_mutex_unlock(&selector->inflight.lock);
    return is_in_host_tier;
}

const uint8_t *sc_store_selector_keys_hold(struct sc_store_selector *selector)
{
    pthread_mutex_lock(&selector->inflight.lock);
    bool is_there = atomic_load(&selector->state) == SPEC_OK;
    const uint8_t *keys = is_there ? selector->memory.run : NULL;
    if (keys != NULL)
        sc_store_pool_hold(&selector->inflight.store->pool, keys);
    pthread_mutex_unlock(&selector->inflight.lock);
    return keys;
}

void sc_store_selector_keys_leave(struct sc_store_selector *selector, const uint8_t *keys)
{
    sc_store_pool_leave(&selector->inflight.store->pool, keys);
}

void sc_store_selector_cost(const struct sc_store_selector *selector,
                            struct sc_store_read_cost *ret)
{
    sc_inflight_cost(&selector->inflight, ret);
}

uint64_t sc_store_selector_bytes_used(const struct sc_store *store)
{
    return sc_store_counted(&store->pool.used_bytes);
}
