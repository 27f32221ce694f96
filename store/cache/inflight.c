/* Operations in flight.
 *
 * Holds, Does not, Threads, Tests: store/cache/inflight.h. */
#include "store/cache/inflight.h"

#include "store/cache/host_tier.h"
#include "store/space/tier.h"

#define FLIGHT_BYTES (16ull << 20) /* twice the device's in-flight target of 8 MiB */
#define PAUSE_NS     50000u        /* nothing flies for so long although more is wanted */

/* Frames beyond that have no slots of their own in the commons: 64 GiB of the usual ones, and 20
 * MiB of slots that are not touched until they are needed. */
#define COMMONS_FRAMES_MAX 65536u

/* ---- Slots ---------------------------------------------------------------------------------- */

static void list_add(struct sc_flight *flight, struct sc_flight_slot *slot)
{
    slot->next = NULL;
    slot->prev = flight->last;
    *(flight->last != NULL ? &flight->last->next : &flight->first) = slot;
    flight->last = slot;
    flight->slot_count++;
    flight->frame_count += slot->has_right || slot->is_spare ? 1 : 0;
}

static void list_remove(struct sc_flight *flight, struct sc_flight_slot *slot)
{
    *(slot->prev != NULL ? &slot->prev->next : &flight->first) = slot->next;
    *(slot->next != NULL ? &slot->next->prev : &flight->last) = slot->prev;
    slot->prev = slot->next = NULL;
    flight->slot_count--;
    flight->frame_count -= slot->has_right || slot->is_spare ? 1 : 0;
}

static bool has_own_slot(const struct sc_flight *flight)
{
    return flight->free_slots != NULL || flight->slots_used < flight->memory.slots_max;
}

/* Takes one, or (NULL: none was there) a new one of the memory, whose first touch is then: most of
 * many readers never take most of theirs. */
static struct sc_flight_slot *slot_pop(struct sc_flight_slot **free, void *slots,
                                       uint64_t slot_bytes, uint32_t *used)
{
    struct sc_flight_slot *slot = *free;
    if (slot != NULL)
        *free = slot->next;
    else
        slot = (void *)((uint8_t *)slots + (*used)++ * slot_bytes);
    return slot;
}

/* NULL: those that are left are for slots with frames, or there are none. */
static struct sc_flight_slot *commons_take(struct sc_flight_commons *commons, bool has_frame)
{
    struct sc_flight_slot *slot = NULL;
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

static void commons_put(struct sc_flight_commons *commons, struct sc_flight_slot *slot)
{
    pthread_mutex_lock(&commons->lock);
    slot->next = commons->free;
    commons->free = slot;
    atomic_fetch_add_explicit(&commons->left, 1, memory_order_relaxed);
    pthread_mutex_unlock(&commons->lock);
}

uint64_t sc_flight_commons_count(const struct sc_store *store, uint64_t plain)
{
    uint64_t count = sc_frames_count(store->frames);
    return (count < COMMONS_FRAMES_MAX ? count : COMMONS_FRAMES_MAX) + plain;
}

void sc_flight_commons_init(struct sc_flight_commons *commons, const struct sc_store *store,
                            void *slots, uint64_t slot_bytes, uint64_t count)
{
    commons->slots = slots;
    commons->slot_bytes = slot_bytes;
    commons->slots_max = (uint32_t)count;
    commons->frame_count = (uint32_t)sc_flight_commons_count(store, 0);
    atomic_store(&commons->left, commons->slots_max);
    pthread_mutex_init(&commons->lock, NULL);
}

void sc_flight_commons_done(struct sc_flight_commons *commons)
{
    pthread_mutex_destroy(&commons->lock);
}

uint64_t sc_flight_slots_left(const struct sc_flight *flight)
{
    const struct sc_flight_commons *commons = flight->memory.commons;
    uint64_t left = flight->memory.slots_max - flight->own_count;
    if (commons != NULL)
        left += atomic_load_explicit(&commons->left, memory_order_relaxed);
    return left;
}

/* NULL: there is none. */
static struct sc_flight_slot *slot_take(struct sc_flight *flight, bool has_frame)
{
    struct sc_flight_memory *memory = &flight->memory;
    bool is_common = !has_own_slot(flight);
    struct sc_flight_slot *slot = is_common ? commons_take(memory->commons, has_frame)
                                            : slot_pop(&flight->free_slots, memory->slots,
                                                       memory->slot_bytes, &flight->slots_used);
    if (slot != NULL)
        slot->is_common = is_common;
    flight->own_count += is_common ? 0 : 1;
    return slot;
}

static void slot_give(struct sc_flight *flight, struct sc_flight_slot *slot)
{
    if (slot->is_common) {
        commons_put(flight->memory.commons, slot);
        return;
    }
    slot->next = flight->free_slots;
    flight->free_slots = slot;
    flight->own_count--;
}

/* Its memory goes back; it is in no list. */
static void slot_put(struct sc_flight_slot *slot)
{
    struct sc_flight *flight = slot->flight;
    struct sc_frames *frames = flight->store->frames;
    sc_store_tier_release(flight->store, slot->held_bytes);
    if (slot->is_spare)
        sc_store_spare_put(flight->store);
    else if (slot->has_right) /* its reads may have failed before they had a frame */
        sc_frames_put(frames, slot->frame != NULL ? slot->frame : sc_frames_pick(frames));
    if (slot->run != NULL)
        sc_store_pool_leave(&flight->store->pool, slot->run);
    if (slot->host != NULL)
        sc_store_host_unpin(flight->store->host, slot->host);
    slot_give(flight, slot);
}

void sc_flight_slot_free(struct sc_flight_slot *slot)
{
    list_remove(slot->flight, slot);
    slot_put(slot);
}

void sc_flight_slot_drop(struct sc_flight_slot *slot)
{
    list_remove(slot->flight, slot);
    slot->generation--;
    if (slot->is_landed)
        slot_put(slot);
}

/* ---- Reads ---------------------------------------------------------------------------------- */

static void on_read_done(struct sc_io_op *op);

/* A device takes the read: its slot gets its memory, unless another read of it has. */
static bool on_read_start(struct sc_io_op *op)
{
    struct sc_flight_read *read = op->user;
    struct sc_flight_slot *slot = read->slot;
    struct sc_flight *flight = slot->flight;
    pthread_mutex_lock(&flight->lock);
    bool starts = sc_flight_is_wanted(slot) && !read->is_dropped;
    if (starts && slot->frame == NULL && slot->has_right)
        slot->frame = sc_frames_pick(flight->store->frames);
    else if (starts && slot->frame == NULL)
        flight->client->place(slot);
    if (starts) {
        op->buffer = slot->frame + read->at;
        read->is_started = true;
    }
    pthread_mutex_unlock(&flight->lock);
    return starts;
}

/* One is free. */
static struct sc_flight_read *read_take(struct sc_flight *flight)
{
    struct sc_flight_read *read = flight->free_reads;
    flight->read_count++;
    if (read == NULL)
        return &flight->memory.reads[flight->reads_used++];
    flight->free_reads = read->next;
    return read;
}

/* The slot's reads are over. */
static void reads_put(struct sc_flight_slot *slot)
{
    struct sc_flight *flight = slot->flight;
    while (slot->reads != NULL) {
        struct sc_flight_read *read = slot->reads;
        slot->reads = read->next;
        read->next = flight->free_reads;
        flight->free_reads = read;
        flight->read_count--;
    }
}

struct sc_flight_read *sc_flight_read_add(struct sc_flight_slot *slot, struct sc_store_where where,
                                          uint64_t bytes, uint64_t at,
                                          struct sc_flight_batch *batch)
{
    struct sc_flight *flight = slot->flight;
    struct sc_flight_read *read = read_take(flight);
    *read = (struct sc_flight_read){
        .op = {.lane = flight->lane, .done = on_read_done, .user = read, .start = on_read_start},
        .slot = slot,
        .at = at,
        .load = flight->load};
    sc_store_tier_aim(flight->store, &read->op, where, bytes);
    *slot->read_end = read;
    slot->read_end = &read->next;
    slot->left++;
    slot->read_bytes += bytes;
    batch->ops[batch->count++] = &read->op;
    flight->cost.read_bytes += bytes;
    flight->cost.op_count++;
    return read;
}

/* The device never saw it. */
static void read_uncount(struct sc_flight *flight, const struct sc_flight_read *read)
{
    sc_store_tier_unread(flight->store, &read->op);
    if (read->load != flight->load)
        return;
    flight->cost.read_bytes -= read->op.bytes;
    flight->cost.op_count--;
}

static void read_fails(const struct sc_flight_read *read)
{
    struct sc_flight_slot *slot = read->slot;
    const struct sc_flight_client *client = slot->flight->client;
    if (!sc_flight_is_wanted(slot) || read->is_dropped)
        return;
    slot->status = slot->status == SPEC_OK ? read->op.status : slot->status;
    slot->sys_errno = slot->sys_errno == 0 ? read->op.sys_errno : slot->sys_errno;
    if (client->read_failed != NULL)
        client->read_failed(read);
}

/* What it read came in the time that the device takes. */
static void slot_time(const struct sc_flight_slot *slot)
{
    struct sc_flight *flight = slot->flight;
    if (flight->has_paused || !sc_flight_is_wanted(slot))
        return;
    flight->cost.timed_bytes += slot->read_bytes;
    flight->cost.last_ns = sc_exec_now_ns(flight->store->params.exec);
}

/* All reads of the slot have ended. */
static void slot_land(struct sc_flight_slot *slot)
{
    struct sc_flight *flight = slot->flight;
    slot_time(slot);
    reads_put(slot);
    bool waits = sc_flight_is_wanted(slot) && flight->client->landed(slot);
    flight->flying--;
    if (waits) {
        slot->is_landed = true;
        slot->held_bytes = slot->read_bytes;
        sc_store_tier_hold(flight->store, slot->held_bytes);
    } else if (sc_flight_is_wanted(slot)) {
        sc_flight_slot_free(slot);
    } else {
        slot_put(slot);
    }
    if (!waits || slot == flight->first)
        sc_flight_signal(flight);
}

static void on_read_done(struct sc_io_op *op)
{
    struct sc_flight_read *read = op->user;
    struct sc_flight_slot *slot = read->slot;
    struct sc_flight *flight = slot->flight;
    const struct sc_flight_client *client = flight->client;
    struct sc_flight_batch batch;
    batch.count = 0;
    pthread_mutex_lock(&flight->lock);
    read->is_done = true;
    if (op->status == SPEC_E_DROPPED)
        read_uncount(flight, read);
    else if (op->status != SPEC_OK)
        read_fails(read);
    if (--slot->left == 0) {
        slot_land(slot);
        if (client->refills == NULL || client->refills(flight))
            sc_flight_pump(flight, &batch);
    }
    sc_flight_submit(flight, &batch);
    pthread_mutex_unlock(&flight->lock);
}

/* ---- Starting ------------------------------------------------------------------------------- */

/* Something is about to be read: the load has paused if nothing flew although some has come. */
static void pause_note(struct sc_flight *flight)
{
    if (flight->flying == 0 && flight->slot_count > 0 && flight->cost.last_ns != 0)
        flight->has_paused =
            flight->has_paused ||
            sc_exec_now_ns(flight->store->params.exec) - flight->cost.last_ns > PAUSE_NS;
}

/* What is planned gets the slot and, unless it needs none, the frame. */
static void slot_start(struct sc_flight_slot *slot, struct sc_flight *flight, uint8_t *frame,
                       bool is_spare, struct sc_flight_batch *batch)
{
    *slot = (struct sc_flight_slot){.flight = flight,
                                    .frame = is_spare ? frame : NULL,
                                    .generation = flight->generation,
                                    .is_common = slot->is_common,
                                    .is_spare = is_spare,
                                    .has_right = frame != NULL && !is_spare};
    slot->read_end = &slot->reads;
    pause_note(flight);
    if (slot->has_right)
        sc_frames_lay(flight->store->frames, frame);
    flight->client->fill(slot, batch);
    list_add(flight, slot);
    slot->is_landed = slot->left == 0;
    flight->flying += slot->left > 0 ? 1 : 0;
}

static bool has_room(const struct sc_flight *flight)
{
    return flight->flying < flight->flying_max &&
           flight->memory.reads_max - flight->read_count >= flight->slot_reads;
}

/* given: a frame that was handed over, or NULL. NULL: none is to be had, and the flight waits. */
static uint8_t *frame_take(struct sc_flight *flight, uint8_t **given)
{
    struct sc_store *store = flight->store;
    uint8_t *frame = *given;
    *given = NULL;
    if (frame != NULL || flight->is_armed)
        return frame;
    frame = sc_frames_take_or_wait(store->frames, flight->lane, &flight->waiter);
    if (frame == NULL) {
        flight->is_armed = true;
        sc_store_count(&store->counts.stage_full, 1);
    }
    return frame;
}

/* given: as above. */
static void flight_pump(struct sc_flight *flight, uint8_t *given, struct sc_flight_batch *batch)
{
    const struct sc_flight_client *client = flight->client;
    enum sc_flight_need need;
    while (has_room(flight) && (need = client->next(flight)) != SC_FLIGHT_NOTHING) {
        struct sc_flight_slot *slot = slot_take(flight, need == SC_FLIGHT_FRAME);
        uint8_t *frame = NULL;
        if (slot == NULL)
            break;
        if (need == SC_FLIGHT_FRAME && (frame = frame_take(flight, &given)) == NULL) {
            slot_give(flight, slot);
            break;
        }
        slot_start(slot, flight, frame, false, batch);
    }
    if (given != NULL)
        sc_frames_put(flight->store->frames, given);
    if (client->pumped != NULL)
        client->pumped(flight);
}

void sc_flight_pump(struct sc_flight *flight, struct sc_flight_batch *batch)
{
    flight_pump(flight, NULL, batch);
}

void sc_flight_submit(struct sc_flight *flight, struct sc_flight_batch *batch)
{
    if (batch->count > 0)
        sc_store_tier_read(flight->store, batch->ops, batch->count);
    batch->count = 0;
}

void sc_flight_signal(struct sc_flight *flight)
{
    atomic_fetch_add(&flight->word, 1);
    if (flight->is_awaited)
        sc_exec_wake(flight->store->params.exec, &flight->word);
}

static void on_frame(struct sc_task *task)
{
    struct sc_frames_waiter *waiter =
        (struct sc_frames_waiter *)((char *)task - offsetof(struct sc_frames_waiter, task));
    struct sc_flight *flight =
        (struct sc_flight *)((char *)waiter - offsetof(struct sc_flight, waiter));
    struct sc_flight_batch batch;
    batch.count = 0;
    pthread_mutex_lock(&flight->lock);
    uint8_t *frame = waiter->frame;
    waiter->frame = NULL;
    flight->is_armed = false;
    flight_pump(flight, frame, &batch);
    sc_flight_signal(flight);
    sc_flight_submit(flight, &batch);
    pthread_mutex_unlock(&flight->lock);
}

/* ---- Loads ---------------------------------------------------------------------------------- */

void sc_flight_init(struct sc_flight *flight, struct sc_store *store,
                    const struct sc_flight_client *client, const struct sc_flight_memory *memory)
{
    uint64_t flying = (FLIGHT_BYTES + store->limits.op_bytes - 1) / store->limits.op_bytes;
    flight->store = store;
    flight->client = client;
    flight->memory = *memory;
    flight->flying_max = flying < memory->slots_max ? (uint32_t)flying : memory->slots_max;
    flight->waiter.task.step = on_frame;
    flight->starved.word = &flight->word;
    pthread_mutex_init(&flight->lock, NULL);
}

static bool is_quiet(const struct sc_flight *flight)
{
    return flight->flying == 0 && !flight->is_armed && flight->task_count == 0;
}

void sc_flight_done(struct sc_flight *flight)
{
    struct sc_store *store = flight->store;
    pthread_mutex_lock(&flight->lock);
    while (!is_quiet(flight)) {
        flight->is_awaited = true;
        uint32_t word = atomic_load(&flight->word);
        pthread_mutex_unlock(&flight->lock);
        bool changed = sc_exec_wait(store->params.exec, &flight->word, word, SC_EXEC_FOREVER);
        pthread_mutex_lock(&flight->lock);
        if (!changed)
            break; /* the seeded loop has nothing left to run: asserted below */
    }
    bool quiet = is_quiet(flight);
    pthread_mutex_unlock(&flight->lock);
    SC_ASSERT(store->params.poison, quiet);
    pthread_mutex_destroy(&flight->lock);
}

void sc_flight_begin(struct sc_flight *flight, enum sc_exec_lane lane, uint32_t slot_reads)
{
    flight->load++;
    flight->lane = lane;
    flight->slot_reads = slot_reads;
    flight->cost =
        (struct sc_store_read_cost){.first_ns = sc_exec_now_ns(flight->store->params.exec)};
    flight->has_paused = false;
}

void sc_flight_disarm(struct sc_flight *flight)
{
    if (flight->is_armed && sc_frames_wait_cancel(flight->store->frames, &flight->waiter))
        flight->is_armed = false;
}

void sc_flight_cancel(struct sc_flight *flight)
{
    while (flight->first != NULL)
        sc_flight_slot_drop(flight->first);
    flight->generation++;
    sc_flight_disarm(flight);
}

/* Nothing of the load is in flight and no frame comes: takes the spare one, if nobody has it. */
static void starved_start(struct sc_flight *flight, struct sc_flight_batch *batch)
{
    struct sc_store *store = flight->store;
    if (!flight->is_armed || flight->first != NULL ||
        flight->client->next(flight) != SC_FLIGHT_FRAME ||
        !sc_store_spare_take(store, &flight->starved))
        return;
    struct sc_flight_slot *slot = slot_take(flight, true);
    if (slot != NULL && sc_frames_wait_cancel(store->frames, &flight->waiter)) {
        flight->is_armed = false;
        slot_start(slot, flight, store->spare.frame, true, batch);
        return;
    }
    if (slot != NULL) /* a frame was handed over after all */
        slot_give(flight, slot);
    sc_store_spare_put(store);
}

bool sc_flight_wait(struct sc_flight *flight, uint64_t deadline_ns, struct sc_flight_batch *batch)
{
    struct sc_exec *exec = flight->store->params.exec;
    uint32_t word = atomic_load(&flight->word); /* before spare_take: its wake must not be lost */
    flight->is_awaited = true;
    starved_start(flight, batch);
    pthread_mutex_unlock(&flight->lock);
    sc_flight_submit(flight, batch);
    uint64_t start_ns = sc_exec_now_ns(exec);
    bool changed = sc_exec_wait(exec, &flight->word, word, deadline_ns);
    sc_store_starved_leave(flight->store, &flight->starved);
    uint64_t wait_ns = sc_exec_now_ns(exec) - start_ns;
    pthread_mutex_lock(&flight->lock);
    flight->is_awaited = false;
    flight->cost.wait_ns += wait_ns;
    if (flight->lane == SC_LANE_DEMAND)
        sc_store_count(&flight->store->counts.awaited_ns, wait_ns);
    return changed;
}

void sc_flight_raise(struct sc_flight *flight)
{
    struct sc_io_op *ops[SC_FLIGHT_READS_MAX];
    uint64_t count = 0;
    pthread_mutex_lock(&flight->lock);
    bool was_lower = flight->lane != SC_LANE_DEMAND;
    flight->lane = SC_LANE_DEMAND;
    for (struct sc_flight_slot *slot = flight->first; was_lower && slot != NULL; slot = slot->next)
        for (struct sc_flight_read *read = slot->reads; read != NULL; read = read->next)
            if (!read->is_started && !read->is_done) /* it stands in a queue, or is about to */
                ops[count++] = &read->op;
    sc_store_tier_raise(flight->store, ops, count, SC_LANE_DEMAND); /* none ends under the lock */
    if (flight->is_armed)
        sc_frames_wait_raise(flight->store->frames, &flight->waiter, SC_LANE_DEMAND);
    pthread_mutex_unlock(&flight->lock);
}

void sc_flight_cost(const struct sc_flight *flight, struct sc_store_read_cost *ret_cost)
{
    struct sc_flight *mine = (struct sc_flight *)(uintptr_t)flight;
    pthread_mutex_lock(&mine->lock);
    *ret_cost = mine->cost;
    pthread_mutex_unlock(&mine->lock);
}
