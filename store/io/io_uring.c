/* io_uring: the io_uring back end (docs/decisions/0006-io-uring.md): rings with their own threads.
 *
 *   submit -> queue[class] --fill--> slot + SQE --enter--> kernel --reap--> done
 *             shared         |       one ring, stepped by one thread at a time
 *                            while bytes and operations in flight over all rings stay below the
 *                            class's share, reduced for reads by bytes that wait for a consumer
 *
 * A step is reap, complete, fill, enter. Enter submits and waits for half of the ring's operations,
 * or for all if nothing new was submitted and another ring is idle. So a stream costs two enters
 * per target, the device does not run dry, and a hanging operation delays others by at most
 * WAIT_NS_MAX. Before a long `done`, queued operations are submitted without waiting, for devices
 * that complete in bursts. A ring without work is idle: its step has returned. Submit wakes one if
 * no ring is awake; an awake ring checks the queue before it sleeps.
 *
 * Registered: direct files (from open to close) and slices of staging memory. Pinning touches every
 * page, so a slice is pinned after some use or when the ring is idle. Others work by descriptor and
 * address. A ring that the kernel stops serving (a later seccomp filter) is dead: blocking calls
 * from then on.
 *
 * Invariants: a slot has at most one entry in the kernel. user_data is slot and generation; a
 * completion without a slot in flight is counted and ignored. inflight_bytes sums the operations
 * taken and not completed. While the queue is not empty, a ring is in flight or awake. An idle ring
 * has nothing in flight and no SQE. No SQPOLL, no allocation after open, no access in a forked
 * child.
 * Threads: a ring belongs to the thread that steps it. `lock` (rank 71): queue, lists, in-flight
 * sums; table_lock (rank 63): the file table.
 * Tests: tests/unit/store/test_io.c (one body for every back end), test_io_uring.c */
#include "store/io/io_uring.h"
#include "base/assert.h"

#include <errno.h>
#include <string.h>

#define QUIET_TARGETS   4u /* targets written since a read before writes get a whole target */
#define SLICE_BYTES     (16ull << 20) /* pinned at once: a few ms */
#define SLICE_BYTES_MAX (1ull << 30)  /* the kernel's limit for one buffer */
#define PIN_AFTER_OPS   64u /* on unpinned slices, before one is pinned in spite of load */
#define TRIES_MAX       16u
#define RETRY_NS        1000000u
#define WAIT_NS_MAX     50000000u /* longest delay by an operation that hangs */

static void counter_add(_Atomic uint64_t *counter)
{
    (void)atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ---- The queue ------------------------------------------------------------------------------ */

/* Bytes that may be in flight for a class. Reads share CPU caches with buffers that wait for their
 * consumer: together they get 5/4 of the target, but always half of it, so that consuming wakes no
 * ring and read-ahead continues. Writes get half while anybody reads, then all. */
static uint64_t share_of(const struct sc_uring *uring, uint32_t io_class)
{
    const uint64_t share = uring->share_bytes[io_class],
                   target = uring->share_bytes[SC_IO_CLASS_DEMAND];
    if (io_class == SC_IO_CLASS_WRITER && uring->quiet_bytes / QUIET_TARGETS >= target)
        return target;
    if (io_class != SC_IO_CLASS_DEMAND && io_class != SC_IO_CLASS_SPECULATIVE)
        return share;
    const uint64_t held = atomic_load_explicit(&uring->io->held_bytes, memory_order_relaxed);
    const uint64_t both = target + target / 4, least = target / 2;
    const uint64_t rest = held < both - least ? both - held : least;
    return share < rest ? share : rest;
}

/* Caller holds `lock`. Returns the highest class's oldest operation, or NULL: none may start. */
static struct sc_io_op *queue_front(const struct sc_uring *uring, uint32_t *ret_io_class)
{
    for (uint32_t io_class = 0; io_class < SC_IO_CLASSES; io_class++) {
        struct sc_io_op *op = uring->queue[io_class].head;
        if (op == NULL)
            continue;
        const uint64_t share = share_of(uring, io_class);
        const uint64_t inflight = uring->inflight_bytes;
        *ret_io_class = io_class;
        return inflight < share && uring->inflight_ops < uring->share_ops[io_class] ? op : NULL;
    }
    return NULL;
}

/* Caller holds `lock`. Takes at most `max` operations, linked. */
static struct sc_io_op *queue_take(struct sc_uring *uring, uint32_t max)
{
    struct sc_io_op *first = NULL, **link = &first, *op;
    uint32_t io_class = 0;
    for (; max > 0 && (op = queue_front(uring, &io_class)) != NULL; max--) {
        uring->queue[io_class].head = op->next;
        if (op->next == NULL)
            uring->queue[io_class].tail = NULL;
        op->next = NULL;
        *link = op;
        link = &op->next;
        uring->inflight_bytes += op->bytes;
        uring->inflight_ops++;
        uring->quiet_bytes = op->kind == SC_IO_READ ? 0 : uring->quiet_bytes + op->bytes;
    }
    if (uring->inflight_bytes > uring->inflight_bytes_max)
        uring->inflight_bytes_max = uring->inflight_bytes;
    return first;
}

/* Caller holds `lock`. Makes an idle ring awake; the caller posts it after unlocking. */
static struct sc_uring_ring *idle_take(struct sc_uring *uring)
{
    struct sc_uring_ring *ring = uring->idle;
    if (ring == NULL)
        return NULL;
    uring->idle = ring->next_idle;
    (void)atomic_fetch_sub(&uring->idle_count, 1);
    (void)atomic_fetch_add(&uring->awake_count, 1);
    return ring;
}

static void ring_post(struct sc_uring_ring *ring)
{
    if (ring != NULL)
        sc_exec_post(ring->uring->exec, &ring->task, SC_IO_CLASS_DEMAND);
}

static void queue_put(struct sc_uring *uring, struct sc_io_op *op)
{
    const uint32_t io_class = op->io_class < SC_IO_CLASSES ? op->io_class : SC_IO_CLASS_BACKGROUND;
    op->next = NULL;
    if (uring->queue[io_class].tail != NULL)
        uring->queue[io_class].tail->next = op;
    else
        uring->queue[io_class].head = op;
    uring->queue[io_class].tail = op;
}

/* Caller holds `lock`. false: it is not in its class's queue. */
static bool queue_remove(struct sc_uring *uring, const struct sc_io_op *op)
{
    const uint32_t io_class = op->io_class < SC_IO_CLASSES ? op->io_class : SC_IO_CLASS_BACKGROUND;
    struct sc_io_op *before = NULL, *at = uring->queue[io_class].head;
    for (; at != NULL && at != op; at = at->next)
        before = at;
    if (at == NULL)
        return false;
    if (before != NULL)
        before->next = at->next;
    else
        uring->queue[io_class].head = at->next;
    if (at->next == NULL)
        uring->queue[io_class].tail = before;
    return true;
}

/* Caller holds `lock`. Returns a ring to post after unlocking, or NULL: no ring is needed. */
static struct sc_uring_ring *ring_for_queue(struct sc_uring *uring)
{
    uint32_t io_class;
    if (atomic_load(&uring->awake_count) == 0 && queue_front(uring, &io_class) != NULL)
        return idle_take(uring);
    return NULL;
}

void sc_uring_submit(struct sc_io *io, struct sc_io_op *ops)
{
    struct sc_uring *uring = io->own;
    (void)pthread_mutex_lock(&uring->lock);
    for (struct sc_io_op *op = ops, *next; op != NULL; op = next) {
        next = op->next;
        queue_put(uring, op);
    }
    struct sc_uring_ring *ring = ring_for_queue(uring);
    (void)pthread_mutex_unlock(&uring->lock);
    ring_post(ring);
}

void sc_uring_raise(struct sc_io *io, struct sc_io_op *const *ops, uint64_t count,
                    uint32_t io_class)
{
    struct sc_uring *uring = io->own;
    (void)pthread_mutex_lock(&uring->lock);
    for (uint64_t i = 0; i < count; i++)
        if (io_class < ops[i]->io_class && queue_remove(uring, ops[i])) {
            ops[i]->io_class = io_class;
            queue_put(uring, ops[i]);
        }
    struct sc_uring_ring *ring = ring_for_queue(uring);
    (void)pthread_mutex_unlock(&uring->lock);
    ring_post(ring);
}

/* ---- Slots ---------------------------------------------------------------------------------- */

static uint64_t user_data_of(const struct sc_uring_ring *ring, const struct sc_uring_slot *slot)
{
    return (uint64_t)slot->generation << 32 | (uint64_t)(slot - ring->slots);
}

/* Returns the slot of a completion, or NULL. */
static struct sc_uring_slot *slot_match(const struct sc_uring_ring *ring, uint64_t user_data)
{
    const uint64_t i = user_data & UINT32_MAX;
    if (i >= ring->uring->slot_count)
        return NULL;
    struct sc_uring_slot *slot = &ring->slots[i];
    return slot->op != NULL && slot->generation == user_data >> 32 ? slot : NULL;
}

static uint32_t slice_of(struct sc_uring_ring *ring, const uint8_t *buffer, uint64_t bytes)
{
    const struct sc_uring_region *region = &ring->region;
    const uint64_t at = (uint64_t)((uintptr_t)buffer - (uintptr_t)region->base);
    if (!ring->pins || region->bytes == 0 || at >= region->bytes || bytes > region->bytes - at)
        return SC_URING_NONE;
    const uint64_t slice = at / region->slice_bytes;
    if (slice >= region->slice_count || at % region->slice_bytes + bytes > region->slice_bytes)
        return SC_URING_NONE;
    if (ring->pinned[slice])
        return (uint32_t)slice;
    ring->wanted_slice = (uint32_t)slice;
    ring->plain_ops++;
    return SC_URING_NONE;
}

/* Writes a submission entry for the remaining bytes of the slot's operation. */
static void slot_go(struct sc_uring_ring *ring, struct sc_uring_slot *slot)
{
    struct sc_io_op *op = slot->op;
    struct sc_io_file *file = op->file;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->ring);
    SC_ASSERT(NULL, sqe != NULL); /* as many entries as slots */
    uint8_t *buffer = op->buffer + op->moved_bytes;
    const uint64_t bytes = op->bytes - op->moved_bytes;
    /* the rest follows as a short transfer */
    const uint32_t n = bytes < (1u << 30) ? (uint32_t)bytes : 1u << 30;
    const uint64_t offset = op->offset + op->moved_bytes;
    const uint32_t slice = slice_of(ring, buffer, n);
    const bool is_fixed = file->table_place != 0;
    const int fd = is_fixed ? (int)(file->table_place - 1) : atomic_load(&file->fd);
    if (op->kind == SC_IO_READ && slice != SC_URING_NONE)
        io_uring_prep_read_fixed(sqe, fd, buffer, n, offset, (int)slice);
    else if (op->kind == SC_IO_READ)
        io_uring_prep_read(sqe, fd, buffer, n, offset);
    else if (slice != SC_URING_NONE)
        io_uring_prep_write_fixed(sqe, fd, buffer, n, offset, (int)slice);
    else
        io_uring_prep_write(sqe, fd, buffer, n, offset);
    sqe->flags |= is_fixed ? IOSQE_FIXED_FILE : 0;
    sqe->flags |= slot->tries > 0 ? IOSQE_ASYNC : 0; /* after EAGAIN: a kernel worker may block */
    slot->generation++;
    slot->was_direct = atomic_load_explicit(&file->is_direct, memory_order_relaxed);
    io_uring_sqe_set_data64(sqe, user_data_of(ring, slot));
}

static void slot_end(struct sc_uring_ring *ring, struct sc_uring_slot *slot, int sys_errno);

static void slot_start(struct sc_uring_ring *ring, struct sc_io_op *op)
{
    struct sc_uring_slot *slot = &ring->slots[ring->free_slot];
    ring->free_slot = slot->next;
    ring->free_count--;
    slot->op = op;
    slot->tries = 0;
    ring->flying++;
    ring->flying_demand += op->io_class == SC_IO_CLASS_DEMAND;
    if (sc_io_op_start(op))
        slot_go(ring, slot);
    else
        slot_end(ring, slot, SC_IO_DROPPED);
}

static void slot_retry(struct sc_uring_ring *ring, struct sc_uring_slot *slot)
{
    slot->next = ring->retry_slot;
    ring->retry_slot = (uint32_t)(slot - ring->slots);
}

static void slot_end(struct sc_uring_ring *ring, struct sc_uring_slot *slot, int sys_errno)
{
    struct sc_io_op *op = slot->op;
    slot->op = NULL;
    slot->next = ring->free_slot;
    ring->free_slot = (uint32_t)(slot - ring->slots);
    ring->free_count++;
    ring->flying--;
    ring->flying_demand -= op->io_class == SC_IO_CLASS_DEMAND;
    ring->released_bytes += op->bytes;
    ring->released_ops++;
    counter_add(&ring->uring->ops);
    if (sys_errno == 0)
        sc_io_posix_moved(op->file, op->bytes, op->offset);
    op->state = (uint64_t)(int64_t)sys_errno;
    op->next = NULL;
    *ring->ended_tail = op;
    ring->ended_tail = &op->next;
}

/* Continues or ends the operation by the kernel's result. */
static void slot_result(struct sc_uring_ring *ring, struct sc_uring_slot *slot, int32_t result)
{
    struct sc_io_op *op = slot->op;
    if (result == -EINTR || (result == -EAGAIN && slot->tries < TRIES_MAX)) {
        slot->tries += result == -EAGAIN;
        slot_retry(ring, slot);
        return;
    }
    if (result == -EINVAL && sc_io_posix_goes_buffered(op->file, slot->was_direct)) {
        slot_retry(ring, slot);
        return;
    }
    if (result <= 0) {
        slot_end(ring, slot, result == 0 ? EIO : -result); /* 0: end of the file */
        return;
    }
    op->moved_bytes += (uint64_t)result;
    if (op->moved_bytes >= op->bytes) {
        slot_end(ring, slot, 0);
        return;
    }
    counter_add(&ring->uring->short_ops);
    if (op->kind == SC_IO_READ && sc_io_posix_is_end(op->file, op->moved_bytes))
        slot_end(ring, slot, EIO);
    else
        slot_retry(ring, slot);
}

static void ring_reap(struct sc_uring_ring *ring)
{
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    io_uring_for_each_cqe(&ring->ring, head, cqe)
    {
        struct sc_uring_slot *slot = slot_match(ring, cqe->user_data);
        const int32_t result = cqe->res;
        seen++;
        if (slot != NULL)
            slot_result(ring, slot, result);
        else
            counter_add(&ring->uring->late);
    }
    io_uring_cq_advance(&ring->ring, seen);
}

/* ---- Registered memory ---------------------------------------------------------------------- */

/* Pins the slice that was missed last. Operations arriving meanwhile wait for one slice at most. */
static void slice_pin(struct sc_uring_ring *ring)
{
    const struct sc_uring_region *region = &ring->region;
    const uint32_t slice = ring->wanted_slice;
    ring->wanted_slice = SC_URING_NONE;
    ring->plain_ops = 0;
    if (slice >= region->slice_count || ring->pinned[slice])
        return;
    int result = 0;
    if (!ring->has_table)
        result = io_uring_register_buffers_sparse(&ring->ring, region->slice_count);
    if (result == 0) {
        const uint64_t at = slice * region->slice_bytes;
        const uint64_t rest = region->bytes - at;
        const struct iovec memory = {
            .iov_base = (void *)((uintptr_t)region->base + at),
            .iov_len = (size_t)(rest < region->slice_bytes ? rest : region->slice_bytes)};
        const __u64 tag = 0;
        ring->has_table = true;
        result = io_uring_register_buffers_update_tag(&ring->ring, slice, &memory, &tag, 1);
    }
    if (result >= 0) {
        ring->pinned[slice] = 1;
        return;
    }
    ring->pins = false;
    struct sc_uring *uring = ring->uring;
    char reason[96];
    if (atomic_exchange(&uring->said_plain, 1) == 0)
        SC_LOG(uring->io->log, 2, "staging memory is not registered with io_uring: %s%s",
               strerror_r(-result, reason, sizeof(reason)),
               result == -ENOMEM ? " (RLIMIT_MEMLOCK)" : "");
}

void sc_uring_buffers(struct sc_io *io, const void *base, uint64_t bytes, uint64_t piece_bytes)
{
    struct sc_uring *uring = io->own;
    struct sc_uring_region region = {.base = base, .bytes = bytes};
    if (sc_uring_is_child(uring))
        return; /* another thread may have held the lock at the fork */
    if (bytes > 0) {
        uint64_t slice_bytes =
            bytes / SC_URING_SLICES_MAX > SLICE_BYTES ? bytes / SC_URING_SLICES_MAX : SLICE_BYTES;
        slice_bytes = (slice_bytes + piece_bytes - 1) / piece_bytes * piece_bytes;
        if (slice_bytes > SLICE_BYTES_MAX)
            slice_bytes = SLICE_BYTES_MAX / piece_bytes * piece_bytes;
        const uint64_t slices = slice_bytes == 0 ? 0 : (bytes + slice_bytes - 1) / slice_bytes;
        region.slice_bytes = slice_bytes;
        region.slice_count =
            (uint32_t)(slices < SC_URING_SLICES_MAX ? slices : SC_URING_SLICES_MAX);
        region.bytes = slice_bytes == 0 ? 0 : bytes;
    }
    (void)pthread_mutex_lock(&uring->lock);
    /* One region per back end: pinned slices stay pinned. */
    if (bytes == 0 || uring->region.base == NULL)
        uring->region = region;
    (void)pthread_mutex_unlock(&uring->lock);
}

/* ---- A ring's step -------------------------------------------------------------------------- */

enum step { STEP_ENTER, STEP_AGAIN, STEP_PIN, STEP_IDLE };

/* Caller holds `lock`; nothing is in flight. Afterwards the ring is not this thread's. */
static void ring_rests(struct sc_uring_ring *ring)
{
    struct sc_uring *uring = ring->uring;
    ring->next_idle = uring->idle;
    uring->idle = ring;
    (void)atomic_fetch_sub(&uring->awake_count, 1);
    (void)atomic_fetch_add(&uring->idle_count, 1);
    if (uring->is_closing)
        sc_exec_wake(uring->exec, &uring->idle_count);
}

/* Caller holds `lock`. Returns how many completions the next enter waits for. */
static uint32_t wait_count_of(const struct sc_uring_ring *ring, uint32_t flying,
                              uint32_t flying_demand, bool has_new)
{
    const bool is_alone = atomic_load(&ring->uring->idle_count) == 0;
    if (is_alone && flying_demand == 0)
        return 1; /* a demand operation submitted meanwhile would wait for it */
    if (is_alone || has_new)
        return flying > 1 ? flying / 2 : 1;
    return flying;
}

/* Caller holds `lock`. */
static void ring_release(struct sc_uring_ring *ring)
{
    struct sc_uring *uring = ring->uring;
    SC_ASSERT(NULL, uring->inflight_bytes >= ring->released_bytes);
    SC_ASSERT(NULL, uring->inflight_ops >= ring->released_ops);
    uring->inflight_bytes -= ring->released_bytes;
    uring->inflight_ops -= ring->released_ops;
    ring->released_bytes = 0;
    ring->released_ops = 0;
}

/* Writes entries. STEP_AGAIN: the new operations were dropped and nothing else is in flight. */
static enum step ring_start(struct sc_uring_ring *ring, struct sc_io_op *ops, uint32_t *wait_count)
{
    while (ring->retry_slot != SC_URING_NONE) {
        struct sc_uring_slot *slot = &ring->slots[ring->retry_slot];
        ring->retry_slot = slot->next;
        slot_go(ring, slot);
    }
    while (ops != NULL) {
        struct sc_io_op *op = ops;
        ops = op->next;
        slot_start(ring, op);
    }
    *wait_count = *wait_count < ring->flying ? *wait_count : ring->flying;
    return ring->flying > 0 ? STEP_ENTER : STEP_AGAIN;
}

/* Takes operations into slots and entries. After STEP_IDLE the ring is not this thread's. */
static enum step ring_fill(struct sc_uring_ring *ring, uint32_t *ret_wait_count)
{
    struct sc_uring *uring = ring->uring;
    struct sc_uring_ring *other = NULL;
    enum step step = STEP_ENTER;
    uint32_t io_class, taken = 0, taken_demand = 0;
    const bool has_retries = ring->retry_slot != SC_URING_NONE;
    (void)pthread_mutex_lock(&uring->lock);
    ring_release(ring);
    ring->region = uring->region;
    struct sc_io_op *ops = queue_take(uring, ring->free_count);
    for (const struct sc_io_op *op = ops; op != NULL; op = op->next) {
        taken++;
        taken_demand += op->io_class == SC_IO_CLASS_DEMAND;
    }
    if (ring->flying + taken > 0) {
        *ret_wait_count =
            wait_count_of(ring, ring->flying + taken, ring->flying_demand + taken_demand,
                          taken > 0 || has_retries);
        (void)atomic_fetch_sub(&uring->awake_count, 1);
        if (queue_front(uring, &io_class) != NULL) /* more than this ring has slots */
            other = idle_take(uring);
    } else if (ring->wanted_slice != SC_URING_NONE && ring->pins && ring->region.bytes > 0) {
        step = STEP_PIN; /* slow: another ring checks the queue meanwhile */
        (void)atomic_fetch_sub(&uring->awake_count, 1);
    } else {
        step = STEP_IDLE;
        ring_rests(ring);
    }
    (void)pthread_mutex_unlock(&uring->lock);
    ring_post(other);
    return step == STEP_ENTER ? ring_start(ring, ops, ret_wait_count) : step;
}

/* Submits queued operations without waiting, if half of the target is free. */
static void ring_refill(struct sc_uring_ring *ring)
{
    struct sc_uring *uring = ring->uring;
    uint32_t io_class, none = 0;
    struct sc_io_op *ops = NULL;
    (void)pthread_mutex_lock(&uring->lock);
    ring_release(ring);
    if (uring->inflight_bytes <= uring->share_bytes[SC_IO_CLASS_DEMAND] / 2 &&
        queue_front(uring, &io_class) != NULL)
        ops = queue_take(uring, ring->free_count);
    (void)pthread_mutex_unlock(&uring->lock);
    if (ops == NULL)
        return;
    (void)ring_start(ring, ops, &none);
    if (io_uring_submit(&ring->ring) >= 0) /* on an error they wait for the next enter */
        counter_add(&uring->enters);
}

/* Runs the done functions of completed operations, which may submit. */
static void ring_complete(struct sc_uring_ring *ring)
{
    while (ring->ended != NULL) {
        struct sc_io_op *op = ring->ended;
        if (op->is_long && !ring->is_dead)
            ring_refill(ring);
        ring->ended = op->next;
        if (ring->ended == NULL)
            ring->ended_tail = &ring->ended;
        sc_io_op_complete(op, (int)(int64_t)op->state);
    }
}

/* Marks the ring dead; entries that the kernel has not taken become retries. */
static void ring_dies(struct sc_uring_ring *ring, int sys_errno)
{
    struct sc_uring *uring = ring->uring;
    struct io_uring_sq *sq = &ring->ring.sq;
    ring->is_dead = true;
    for (unsigned at = *sq->khead; at != sq->sqe_tail; at++) {
        struct sc_uring_slot *slot = slot_match(ring, sq->sqes[at & sq->ring_mask].user_data);
        if (slot != NULL)
            slot_retry(ring, slot);
    }
    char reason[96];
    if (atomic_exchange(&uring->said_dead, 1) == 0)
        SC_LOG(uring->io->log, 1, "io_uring_enter: %s, going on with blocking calls",
               strerror_r(sys_errno, reason, sizeof(reason)));
}

/* false: the ring's task was posted for later, and the ring is not this thread's. */
static bool ring_enter(struct sc_uring_ring *ring, uint32_t wait_count)
{
    struct sc_uring *uring = ring->uring;
    struct __kernel_timespec limit = {.tv_nsec = WAIT_NS_MAX};
    struct io_uring_cqe *cqe = NULL; /* not used */
    const int result =
        io_uring_submit_and_wait_timeout(&ring->ring, &cqe, wait_count, &limit, NULL);
    counter_add(&uring->enters);
    (void)atomic_fetch_add(&uring->awake_count, 1);
    if (result >= 0 || result == -EINTR || result == -ETIME)
        return true;
    if (result == -EAGAIN || result == -EBUSY || result == -ENOMEM) { /* kernel resources */
        const uint64_t due_ns = sc_exec_now_ns(uring->exec) + RETRY_NS;
        sc_exec_post_at(uring->exec, &ring->task, SC_IO_CLASS_DEMAND, due_ns);
        return false;
    }
    ring_dies(ring, -result);
    return true;
}

/* One operation by blocking calls. false: as ring_enter, or the ring is idle. */
static bool dead_turn(struct sc_uring_ring *ring)
{
    struct sc_uring *uring = ring->uring;
    struct sc_uring_slot *slot = NULL;
    if (ring->retry_slot != SC_URING_NONE) {
        slot = &ring->slots[ring->retry_slot];
        ring->retry_slot = slot->next;
    } else {
        (void)pthread_mutex_lock(&uring->lock);
        ring_release(ring);
        struct sc_io_op *op = ring->free_count > 0 ? queue_take(uring, 1) : NULL;
        const bool rests = op == NULL && ring->flying == 0;
        if (rests)
            ring_rests(ring);
        (void)pthread_mutex_unlock(&uring->lock);
        if (rests)
            return false;
        if (op == NULL) { /* the kernel still has some, which may complete */
            const uint64_t due_ns = sc_exec_now_ns(uring->exec) + RETRY_NS;
            sc_exec_post_at(uring->exec, &ring->task, SC_IO_CLASS_DEMAND, due_ns);
            return false;
        }
        slot = &ring->slots[ring->free_slot];
        ring->free_slot = slot->next;
        ring->free_count--;
        slot->op = op;
        ring->flying++;
        ring->flying_demand += op->io_class == SC_IO_CLASS_DEMAND;
        if (!sc_io_op_start(op)) {
            slot_end(ring, slot, SC_IO_DROPPED);
            return true;
        }
    }
    struct sc_io_op *op = slot->op;
    uint8_t *buffer = op->buffer + op->moved_bytes;
    const uint64_t bytes = op->bytes - op->moved_bytes, offset = op->offset + op->moved_bytes;
    slot->generation++;
    slot_end(ring, slot,
             op->kind == SC_IO_READ ? sc_io_posix_read(op->file, buffer, bytes, offset)
                                    : sc_io_posix_write(op->file, buffer, bytes, offset));
    return true;
}

void sc_uring_step(struct sc_task *task)
{
    struct sc_uring_ring *ring =
        (struct sc_uring_ring *)((char *)task - offsetof(struct sc_uring_ring, task));
    for (;;) {
        uint32_t wait_count = 0;
        ring_reap(ring);
        ring_complete(ring);
        if (ring->is_dead) {
            if (!dead_turn(ring))
                return;
            ring_complete(ring);
            continue;
        }
        if (ring->plain_ops >= PIN_AFTER_OPS)
            slice_pin(ring);
        switch (ring_fill(ring, &wait_count)) {
        case STEP_IDLE:
            return;
        case STEP_PIN:
            slice_pin(ring);
            (void)atomic_fetch_add(&ring->uring->awake_count, 1);
            break;
        case STEP_AGAIN:
            (void)atomic_fetch_add(&ring->uring->awake_count, 1);
            break;
        default:
            ring_complete(ring); /* dropped operations */
            if (!ring_enter(ring, wait_count))
                return;
        }
    }
}
