/* inflight: keeps a load's reads in flight. Contract: store/cache/inflight.h. */
#include "store/cache/inflight.h"

#include "store/cache/host_tier.h"
#include "store/space/tier.h"

#define INFLIGHT_BYTES (16ull << 20) /* twice the device's in-flight target of 8 MiB */
#define PAUSE_NS     50000u        /* a load that has nothing in flight for this long has paused */

/* Limit of shared slots with frames: 64 GiB of usual frames, and 20 MiB of slots (touched if
 * used). */
#define COMMONS_FRAMES_MAX 65536u

/* ---- Slots ---------------------------------------------------------------------------------- */

static void list_add(struct sc_inflight *inflight, struct sc_inflight_slot *slot)
{
    slot->next = NULL;
    slot->prev = inflight->last;
    *(inflight->last != NULL ? &inflight->last->next : &inflight->first) = slot;
    inflight->last = slot;
    inflight->slot_count++;
    inflight->frame_count += slot->has_right || slot->is_spare ? 1 : 0;
}

static void list_remove(struct sc_inflight *inflight, struct sc_inflight_slot *slot)
{
    *(slot->prev != NULL ? &slot->prev->next : &inflight->first) = slot->next;
    *(slot->next != NULL ? &slot->next->prev : &inflight->last) = slot->prev;
    slot->prev = slot->next = NULL;
    inflight->slot_count--;
    inflight->frame_count -= slot->has_right || slot->is_spare ? 1 : 0;
}

static bool has_own_slot(const struct sc_inflight *inflight)
{
    return inflight->free_slots != NULL || inflight->slots_used < inflight->memory.slots_max;
}

/* Takes a free slot, or the next unused one. Most readers never touch most of theirs. */
static struct sc_inflight_slot *slot_pop(struct sc_inflight_slot **free, void *slots,
                                         uint64_t slot_bytes, uint32_t *used)
{
    struct sc_inflight_slot *slot = *free;
    if (slot != NULL)
        *free = slot->next;
    else
        slot = (void *)((uint8_t *)slots + (*used)++ * slot_bytes);
    return slot;
}

/* Returns NULL if no slot is left, or if the rest is reserved for slots with frames. */
static struct sc_inflight_slot *commons_take(struct sc_inflight_commons *commons, bool has_frame)
{
    struct sc_inflight_slot *slot = NULL;
    if (commons == NULL)
        return NULL;
    pthread_mutex_lock(&commons->lock);
    uint32_t left = atomic_load_explicit(&commons->left, memory_order_relaxed);
    if (left > (has_frame ? 0 : commons->frame_count)) {
        slot = slot_pop(&commons->free, commons->slots, commons->slot_bytes, &commons->used);
        atomic_store_explicit(&commons->left, left - 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&commons->lock);
    return slot;
}

static void commons_put(struct sc_inflight_commons *commons, struct sc_inflight_slot *slot)
{
    pthread_mutex_lock(&commons->lock);
    slot->next = commons->free;
    commons->free = slot;
    atomic_fetch_add_explicit(&commons->left, 1, memory_order_relaxed);
    pthread_mutex_unlock(&commons->lock);
}

uint64_t sc_inflight_commons_count(const struct sc_store *store, uint64_t plain)
{
    uint64_t count = sc_staging_count(store->frames);
    return (count < COMMONS_FRAMES_MAX ? count : COMMONS_FRAMES_MAX) + plain;
}

void sc_inflight_commons_init(struct sc_inflight_commons *commons, const struct sc_store *store,
                              void *slots, uint64_t slot_bytes, uint64_t count)
{
    commons->slots = slots;
    commons->slot_bytes = slot_bytes;
    commons->slots_max = (uint32_t)count;
    commons->frame_count = (uint32_t)sc_inflight_commons_count(store, 0);
    atomic_store(&commons->left, commons->slots_max);
    pthread_mutex_init(&commons->lock, NULL);
}

void sc_inflight_commons_done(struct sc_inflight_commons *commons)
{
    pthread_mutex_destroy(&commons->lock);
}

uint64_t sc_inflight_slots_left(const struct sc_inflight *inflight)
{
    const struct sc_inflight_commons *commons = inflight->memory.commons;
    uint64_t left = inflight->memory.slots_max - inflight->own_count;
    if (commons != NULL)
        left += atomic_load_explicit(&commons->left, memory_order_relaxed);
    return left;
}

static struct sc_inflight_slot *slot_take(struct sc_inflight *inflight, bool has_frame)
{
    struct sc_inflight_memory *memory = &inflight->memory;
    bool is_common = !has_own_slot(inflight);
    struct sc_inflight_slot *slot = is_common ? commons_take(memory->commons, has_frame)
                                              : slot_pop(&inflight->free_slots, memory->slots,
                                                         memory->slot_bytes, &inflight->slots_used);
    if (slot != NULL)
        slot->is_common = is_common;
    inflight->own_count += is_common ? 0 : 1;
    return slot;
}

static void slot_give(struct sc_inflight *inflight, struct sc_inflight_slot *slot)
{
    if (slot->is_common) {
        commons_put(inflight->memory.commons, slot);
        return;
    }
    slot->next = inflight->free_slots;
    inflight->free_slots = slot;
    inflight->own_count--;
}

/* Returns the slot's memory; the slot is in no list. */
static void slot_put(struct sc_inflight_slot *slot)
{
    struct sc_inflight *inflight = slot->inflight;
    struct sc_staging *frames = inflight->store->frames;
    sc_store_tier_release(inflight->store, slot->held_bytes);
    if (slot->is_spare)
        sc_store_reserve_frame_put(inflight->store);
    else if (slot->has_right) /* its reads may have failed before they had a frame */
        sc_staging_put(frames, slot->frame != NULL ? slot->frame : sc_staging_candidate(frames));
    if (slot->run != NULL)
        sc_store_pool_leave(&inflight->store->pool, slot->run);
    if (slot->host != NULL)
        sc_host_tier_unpin(inflight->store->host, slot->host);
    slot_give(inflight, slot);
}

void sc_inflight_slot_free(struct sc_inflight_slot *slot)
{
    list_remove(slot->inflight, slot);
    slot_put(slot);
}

void sc_inflight_slot_drop(struct sc_inflight_slot *slot)
{
    list_remove(slot->inflight, slot);
    slot->generation--;
    if (slot->is_completed)
        slot_put(slot);
}

/* ---- Reads ---------------------------------------------------------------------------------- */

static void on_read_done(struct sc_io_op *op);

/* The device accepts the read: the slot gets its frame or memory, unless an earlier read got it. */
static bool on_read_start(struct sc_io_op *op)
{
    struct sc_inflight_read *read = op->user;
    struct sc_inflight_slot *slot = read->slot;
    struct sc_inflight *inflight = slot->inflight;
    pthread_mutex_lock(&inflight->lock);
    bool starts = sc_inflight_is_wanted(slot) && !read->is_dropped;
    if (starts && slot->frame == NULL && slot->has_right)
        slot->frame = sc_staging_candidate(inflight->store->frames);
    else if (starts && slot->frame == NULL)
        inflight->client->place(slot);
    if (starts) {
        op->buffer = slot->frame + read->at;
        read->is_started = true;
    }
    pthread_mutex_unlock(&inflight->lock);
    return starts;
}

static struct sc_inflight_read *read_take(struct sc_inflight *inflight)
{
    struct sc_inflight_read *read = inflight->free_reads;
    inflight->read_count++;
    if (read == NULL)
        return &inflight->memory.reads[inflight->reads_used++];
    inflight->free_reads = read->next;
    return read;
}

static void reads_put(struct sc_inflight_slot *slot)
{
    struct sc_inflight *inflight = slot->inflight;
    while (slot->reads != NULL) {
        struct sc_inflight_read *read = slot->reads;
        slot->reads = read->next;
        read->next = inflight->free_reads;
        inflight->free_reads = read;
        inflight->read_count--;
    }
}

struct sc_inflight_read *sc_inflight_read_add(struct sc_inflight_slot *slot,
                                              struct sc_store_where where, uint64_t bytes,
                                              uint64_t at, struct sc_inflight_batch *batch)
{
    struct sc_inflight *inflight = slot->inflight;
    struct sc_inflight_read *read = read_take(inflight);
    *read = (struct sc_inflight_read){.op = {.io_class = inflight->io_class,
                                             .done = on_read_done,
                                             .user = read,
                                             .start = on_read_start},
                                      .slot = slot,
                                      .at = at,
                                      .load = inflight->load};
    sc_store_tier_aim(inflight->store, &read->op, where, bytes);
    *slot->read_end = read;
    slot->read_end = &read->next;
    slot->left++;
    slot->read_bytes += bytes;
    batch->ops[batch->count++] = &read->op;
    inflight->cost.read_bytes += bytes;
    inflight->cost.op_count++;
    return read;
}

/* Undoes the counts of a read that never reached the device. */
static void read_uncount(struct sc_inflight *inflight, const struct sc_inflight_read *read)
{
    sc_store_tier_unread(inflight->store, &read->op);
    if (read->load != inflight->load)
        return;
    inflight->cost.read_bytes -= read->op.bytes;
    inflight->cost.op_count--;
}

static void read_fails(const struct sc_inflight_read *read)
{
    struct sc_inflight_slot *slot = read->slot;
    const struct sc_inflight_client *client = slot->inflight->client;
    if (!sc_inflight_is_wanted(slot) || read->is_dropped)
        return;
    slot->status = slot->status == SPEC_OK ? read->op.status : slot->status;
    slot->sys_errno = slot->sys_errno == 0 ? read->op.sys_errno : slot->sys_errno;
    if (client->read_failed != NULL)
        client->read_failed(read);
}

/* Counts the slot's bytes as timed, unless the load has paused. */
static void slot_time(const struct sc_inflight_slot *slot)
{
    struct sc_inflight *inflight = slot->inflight;
    if (inflight->has_paused || !sc_inflight_is_wanted(slot))
        return;
    inflight->cost.timed_bytes += slot->read_bytes;
    inflight->cost.last_ns = sc_exec_now_ns(inflight->store->params.exec);
}

static void slot_complete(struct sc_inflight_slot *slot)
{
    struct sc_inflight *inflight = slot->inflight;
    slot_time(slot);
    reads_put(slot);
    bool waits = sc_inflight_is_wanted(slot) && inflight->client->completed(slot);
    inflight->flying--;
    if (waits) {
        slot->is_completed = true;
        slot->held_bytes = slot->read_bytes;
        sc_store_tier_hold(inflight->store, slot->held_bytes);
    } else if (sc_inflight_is_wanted(slot)) {
        sc_inflight_slot_free(slot);
    } else {
        slot_put(slot);
    }
    if (!waits || slot == inflight->first)
        sc_inflight_signal(inflight);
}

static void on_read_done(struct sc_io_op *op)
{
    struct sc_inflight_read *read = op->user;
    struct sc_inflight_slot *slot = read->slot;
    struct sc_inflight *inflight = slot->inflight;
    const struct sc_inflight_client *client = inflight->client;
    struct sc_inflight_batch batch;
    batch.count = 0;
    pthread_mutex_lock(&inflight->lock);
    read->is_done = true;
    if (op->status == SPEC_E_DROPPED)
        read_uncount(inflight, read);
    else if (op->status != SPEC_OK)
        read_fails(read);
    if (--slot->left == 0) {
        slot_complete(slot);
        if (client->refills == NULL || client->refills(inflight))
            sc_inflight_pump(inflight, &batch);
    }
    sc_inflight_submit(inflight, &batch);
    pthread_mutex_unlock(&inflight->lock);
}

/* ---- Starting -------------------------------------------------------------------------------- */

/* Notes a pause of the load: nothing in flight although some slots have completed. */
static void pause_note(struct sc_inflight *inflight)
{
    if (inflight->flying == 0 && inflight->slot_count > 0 && inflight->cost.last_ns != 0)
        inflight->has_paused =
            inflight->has_paused ||
            sc_exec_now_ns(inflight->store->params.exec) - inflight->cost.last_ns > PAUSE_NS;
}

/* Starts the planned slot; `frame` is NULL if it needs none. */
static void slot_start(struct sc_inflight_slot *slot, struct sc_inflight *inflight, uint8_t *frame,
                       bool is_spare, struct sc_inflight_batch *batch)
{
    *slot = (struct sc_inflight_slot){.inflight = inflight,
                                      .frame = is_spare ? frame : NULL,
                                      .generation = inflight->generation,
                                      .is_common = slot->is_common,
                                      .is_spare = is_spare,
                                      .has_right = frame != NULL && !is_spare};
    slot->read_end = &slot->reads;
    pause_note(inflight);
    if (slot->has_right)
        sc_staging_lay(inflight->store->frames, frame);
    inflight->client->fill(slot, batch);
    list_add(inflight, slot);
    slot->is_completed = slot->left == 0;
    inflight->flying += slot->left > 0 ? 1 : 0;
}

static bool has_room(const struct sc_inflight *inflight)
{
    return inflight->flying < inflight->flying_max &&
           inflight->memory.reads_max - inflight->read_count >= inflight->slot_reads;
}

/* Takes *given or a frame of the pool. Returns NULL, and waits in the pool's queue, if there is
 * none. */
static uint8_t *frame_take(struct sc_inflight *inflight, uint8_t **given)
{
    struct sc_store *store = inflight->store;
    uint8_t *frame = *given;
    *given = NULL;
    if (frame != NULL || inflight->is_armed)
        return frame;
    frame = sc_staging_take_or_wait(store->frames, inflight->io_class, &inflight->waiter);
    if (frame == NULL) {
        inflight->is_armed = true;
        sc_store_count(&store->counts.stage_full, 1);
    }
    return frame;
}

/* given: a frame that was handed over, or NULL; the pool gets it back if it is not used. */
static void inflight_pump(struct sc_inflight *inflight, uint8_t *given,
                          struct sc_inflight_batch *batch)
{
    const struct sc_inflight_client *client = inflight->client;
    enum sc_inflight_need need;
    while (has_room(inflight) && (need = client->next(inflight)) != SC_INFLIGHT_NOTHING) {
        struct sc_inflight_slot *slot = slot_take(inflight, need == SC_INFLIGHT_FRAME);
        uint8_t *frame = NULL;
        if (slot == NULL)
            break;
        if (need == SC_INFLIGHT_FRAME && (frame = frame_take(inflight, &given)) == NULL) {
            slot_give(inflight, slot);
            break;
        }
        slot_start(slot, inflight, frame, false, batch);
    }
    if (given != NULL)
        sc_staging_put(inflight->store->frames, given);
    if (client->pumped != NULL)
        client->pumped(inflight);
}

void sc_inflight_pump(struct sc_inflight *inflight, struct sc_inflight_batch *batch)
{
    inflight_pump(inflight, NULL, batch);
}

void sc_inflight_submit(struct sc_inflight *inflight, struct sc_inflight_batch *batch)
{
    if (batch->count > 0)
        sc_store_tier_read(inflight->store, batch->ops, batch->count);
    batch->count = 0;
}

void sc_inflight_signal(struct sc_inflight *inflight)
{
    atomic_fetch_add(&inflight->word, 1);
    if (inflight->is_awaited)
        sc_exec_wake(inflight->store->params.exec, &inflight->word);
}

static void on_frame(struct sc_task *task)
{
    struct sc_staging_waiter *waiter =
        (struct sc_staging_waiter *)((char *)task - offsetof(struct sc_staging_waiter, task));
    struct sc_inflight *inflight =
        (struct sc_inflight *)((char *)waiter - offsetof(struct sc_inflight, waiter));
    struct sc_inflight_batch batch;
    batch.count = 0;
    pthread_mutex_lock(&inflight->lock);
    uint8_t *frame = waiter->frame;
    waiter->frame = NULL;
    inflight->is_armed = false;
    inflight_pump(inflight, frame, &batch);
    sc_inflight_signal(inflight);
    sc_inflight_submit(inflight, &batch);
    pthread_mutex_unlock(&inflight->lock);
}

/* ---- Loads ---------------------------------------------------------------------------------- */

void sc_inflight_init(struct sc_inflight *inflight, struct sc_store *store,
                      const struct sc_inflight_client *client,
                      const struct sc_inflight_memory *memory)
{
    uint64_t flying = (INFLIGHT_BYTES + store->limits.op_bytes - 1) / store->limits.op_bytes;
    inflight->store = store;
    inflight->client = client;
    inflight->memory = *memory;
    inflight->flying_max = flying < memory->slots_max ? (uint32_t)flying : memory->slots_max;
    inflight->waiter.task.step = on_frame;
    inflight->starved.word = &inflight->word;
    pthread_mutex_init(&inflight->lock, NULL);
}

static bool is_quiet(const struct sc_inflight *inflight)
{
    return inflight->flying == 0 && !inflight->is_armed && inflight->task_count == 0;
}

void sc_inflight_done(struct sc_inflight *inflight)
{
    struct sc_store *store = inflight->store;
    pthread_mutex_lock(&inflight->lock);
    while (!is_quiet(inflight)) {
        inflight->is_awaited = true;
        uint32_t word = atomic_load(&inflight->word);
        pthread_mutex_unlock(&inflight->lock);
        bool changed = sc_exec_wait(store->params.exec, &inflight->word, word, SC_EXEC_FOREVER);
        pthread_mutex_lock(&inflight->lock);
        if (!changed)
            break; /* the seeded loop has nothing left to run: asserted below */
    }
    bool quiet = is_quiet(inflight);
    pthread_mutex_unlock(&inflight->lock);
    SC_ASSERT(store->params.poison, quiet);
    pthread_mutex_destroy(&inflight->lock);
}

void sc_inflight_begin(struct sc_inflight *inflight, enum sc_io_class io_class, uint32_t slot_reads)
{
    inflight->load++;
    inflight->io_class = io_class;
    inflight->slot_reads = slot_reads;
    inflight->cost =
        (struct sc_store_read_cost){.first_ns = sc_exec_now_ns(inflight->store->params.exec)};
    inflight->has_paused = false;
}

void sc_inflight_disarm(struct sc_inflight *inflight)
{
    if (inflight->is_armed && sc_staging_wait_cancel(inflight->store->frames, &inflight->waiter))
        inflight->is_armed = false;
}

void sc_inflight_cancel(struct sc_inflight *inflight)
{
    while (inflight->first != NULL)
        sc_inflight_slot_drop(inflight->first);
    inflight->generation++;
    sc_inflight_disarm(inflight);
}

/* Takes the reserve frame if nothing of the load is in flight and the pool has no frame. */
static void starved_start(struct sc_inflight *inflight, struct sc_inflight_batch *batch)
{
    struct sc_store *store = inflight->store;
    if (!inflight->is_armed || inflight->first != NULL ||
        inflight->client->next(inflight) != SC_INFLIGHT_FRAME ||
        !sc_store_reserve_frame_take(store, &inflight->starved))
        return;
    struct sc_inflight_slot *slot = slot_take(inflight, true);
    if (slot != NULL && sc_staging_wait_cancel(store->frames, &inflight->waiter)) {
        inflight->is_armed = false;
        slot_start(slot, inflight, store->spare.frame, true, batch);
        return;
    }
    if (slot != NULL) /* a frame was handed over meanwhile */
        slot_give(inflight, slot);
    sc_store_reserve_frame_put(store);
}

bool sc_inflight_wait(struct sc_inflight *inflight, uint64_t deadline_ns,
                      struct sc_inflight_batch *batch)
{
    struct sc_exec *exec = inflight->store->params.exec;
    uint32_t word = atomic_load(&inflight->word); /* before starved_start(): its wake must not be
                                                   * lost */
    inflight->is_awaited = true;
    starved_start(inflight, batch);
    pthread_mutex_unlock(&inflight->lock);
    sc_inflight_submit(inflight, batch);
    uint64_t start_ns = sc_exec_now_ns(exec);
    bool changed = sc_exec_wait(exec, &inflight->word, word, deadline_ns);
    sc_store_starved_leave(inflight->store, &inflight->starved);
    uint64_t wait_ns = sc_exec_now_ns(exec) - start_ns;
    pthread_mutex_lock(&inflight->lock);
    inflight->is_awaited = false;
    inflight->cost.wait_ns += wait_ns;
    if (inflight->io_class == SC_IO_CLASS_DEMAND)
        sc_store_count(&inflight->store->counts.awaited_ns, wait_ns);
    return changed;
}

void sc_inflight_raise(struct sc_inflight *inflight)
{
    struct sc_io_op *ops[SC_INFLIGHT_READS_MAX];
    uint64_t count = 0;
    pthread_mutex_lock(&inflight->lock);
    bool was_lower = inflight->io_class != SC_IO_CLASS_DEMAND;
    inflight->io_class = SC_IO_CLASS_DEMAND;
    for (struct sc_inflight_slot *slot = inflight->first; was_lower && slot != NULL;
         slot = slot->next)
        for (struct sc_inflight_read *read = slot->reads; read != NULL; read = read->next)
            if (!read->is_started && !read->is_done) /* queued, or about to be */
                ops[count++] = &read->op;
    sc_store_tier_raise(inflight->store, ops, count,
                        SC_IO_CLASS_DEMAND); /* completes none under the lock */
    if (inflight->is_armed)
        sc_staging_wait_raise(inflight->store->frames, &inflight->waiter, SC_IO_CLASS_DEMAND);
    pthread_mutex_unlock(&inflight->lock);
}

void sc_inflight_cost(const struct sc_inflight *inflight, struct sc_store_read_cost *ret_cost)
{
    struct sc_inflight *mine = (struct sc_inflight *)(uintptr_t)inflight;
    pthread_mutex_lock(&mine->lock);
    *ret_cost = mine->cost;
    pthread_mutex_unlock(&mine->lock);
}
