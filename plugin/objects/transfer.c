/* transfer: moves a value's bytes between the host's memory and pages of the disk.
 *
 *   value    [piece 0 .......][piece 1 .......]        pages 0 .. n, the last one zero-padded
 *   disk     [part 0: pages 0 .. 5][part 1: 6 .. n]
 *   ops      at most io.op_bytes, inside one part; direct if the memory is page-aligned and the
 *            range has whole pages of one piece, else through a staging frame
 *
 * Transfers whose memory the device refuses (EINVAL, EFAULT) are repeated through frames. A piece
 * is written only inside its bytes. After a transfer's last operation the device does not touch its
 * memory.
 * Threads: issue by the queue's task; completions on the back end's threads.
 * Tests: conformance/objects, tests/unit/plugin/test_objects_io.c */
#include "plugin/objects/objects.h"

#include <errno.h>
#include <string.h>

#define PAGE         ((uint64_t)SC_IO_PAGE_BYTES)
#define ROUTED_BYTES (64ull << 10) /* shorter values take no measurable time */

/* ---- Pieces --------------------------------------------------------------------------------- */

static uint8_t *piece_at(const struct sc_object_transfer *transfer, uint32_t piece,
                         uint64_t *ret_bytes)
{
    const struct sc_object_job *job = transfer->job;
    uint64_t i = (uint64_t)transfer->index * job->pieces + piece;
    *ret_bytes = job->sizes != NULL ? job->sizes[i] : job->piece_bytes;
    return (uint8_t *)(uintptr_t)job->addresses[i];
}

static void pieces_of(const struct sc_object_transfer *transfer,
                      const uint8_t *ret_pieces[SPEC_PIECES_MAX],
                      uint64_t ret_bytes[SPEC_PIECES_MAX])
{
    for (uint32_t i = 0; i < transfer->job->pieces; i++)
        ret_pieces[i] = piece_at(transfer, i, &ret_bytes[i]);
}

uint64_t sc_objects_pieces_bytes(const struct sc_object_transfer *transfer)
{
    uint64_t sum = 0, bytes;
    for (uint32_t i = 0; i < transfer->job->pieces; i++) {
        (void)piece_at(transfer, i, &bytes);
        sum += bytes;
    }
    return sum;
}

uint64_t sc_objects_tag(const struct sc_object_transfer *transfer, uint64_t copy)
{
    const uint8_t *pieces[SPEC_PIECES_MAX];
    uint64_t bytes[SPEC_PIECES_MAX];
    struct sc_store_object_name name = {.copy = copy,
                                        .bytes = transfer->bytes,
                                        .key = transfer->key,
                                        .key_bytes = transfer->key_bytes};
    memcpy(name.domain, transfer->job->domain->digest, sizeof(name.domain));
    pieces_of(transfer, pieces, bytes);
    return sc_store_object_tag(&name, pieces, bytes, transfer->job->pieces);
}

/* Returns byte `first` of the value, its piece, and what is left of that. */
static uint8_t *piece_find(const struct sc_object_transfer *transfer, uint64_t first,
                           uint32_t *ret_piece, uint64_t *ret_left)
{
    uint64_t bytes;
    for (uint32_t i = 0;; i++) {
        uint8_t *memory = piece_at(transfer, i, &bytes);
        if (first < bytes) {
            *ret_piece = i;
            *ret_left = bytes - first;
            return memory + first;
        }
        first -= bytes;
    }
}

/* Copies [first, first + bytes) of the value between its pieces and a frame. */
static void pieces_copy(const struct sc_object_transfer *transfer, uint64_t first, uint64_t bytes,
                        uint8_t *frame, bool to_frame)
{
    uint32_t piece;
    uint64_t left;
    uint8_t *memory = piece_find(transfer, first, &piece, &left);
    for (;;) {
        uint64_t some = left < bytes ? left : bytes;
        memcpy(to_frame ? frame : memory, to_frame ? memory : frame, some);
        frame += some;
        bytes -= some;
        if (bytes == 0)
            return;
        memory = piece_at(transfer, ++piece, &left);
    }
}

/* ---- Completions ---------------------------------------------------------------------------- */

bool sc_objects_ops_open(spec_objects *objects, struct sc_object_ops *ops, uint32_t count)
{
    ops->all = sc_alloc_array(&objects->alloc, count, sizeof(*ops->all));
    if (ops->all == NULL)
        return false;
    for (uint32_t i = count; i-- > 0;) {
        ops->all[i].objects = objects;
        ops->all[i].next = ops->free;
        ops->free = &ops->all[i];
    }
    return true;
}

/* `lock` held. Wakes queues that stopped for lack of operations or frames. */
static void ops_came(spec_objects *objects)
{
    if (objects->reads.is_waited_for) {
        objects->reads.is_waited_for = false;
        sc_objects_queue_wake(objects, &objects->gets, SC_IO_CLASS_DEMAND);
    }
    if (objects->writes.is_waited_for) {
        objects->writes.is_waited_for = false;
        sc_objects_queue_wake(objects, &objects->puts, SC_IO_CLASS_WRITER);
    }
}

void sc_objects_unref(spec_objects *objects, struct sc_object_transfer *transfer)
{
    if (atomic_fetch_sub(&transfer->pending, 1) != 1)
        return;
    transfer->ended(objects, transfer);
}

static void op_failed(spec_objects *objects, const struct sc_object_op *op)
{
    struct sc_object_transfer *transfer = op->transfer;
    const struct sc_io_op *io = &op->write.op;
    int32_t none = SPEC_OK;
    if (op->frame == NULL && (io->sys_errno == EINVAL || io->sys_errno == EFAULT)) {
        atomic_store(&transfer->wants_bounce, true);
        return;
    }
    (void)atomic_compare_exchange_strong(
        &transfer->status, &none, io->status == SPEC_E_NO_SPACE ? SPEC_E_NO_SPACE : SPEC_E_IO);
    SC_OBJECT_COUNT(objects, transfer->job->domain, io_errors, 1);
    if (transfer->job->is_put)
        sc_store_segment_avoid(objects->store, op->write.segment);
}

static void op_done(struct sc_io_op *io)
{
    struct sc_object_op *op = io->user;
    struct sc_object_transfer *transfer = op->transfer;
    spec_objects *objects = op->objects;
    bool is_put = transfer->job->is_put;
    if (io->status != SPEC_OK)
        op_failed(objects, op);
    else if (op->frame != NULL && !is_put)
        pieces_copy(transfer, op->first, op->bytes, op->frame, false);
    sc_staging_put(objects->frames, op->frame);
    struct sc_object_ops *ops = is_put ? &objects->writes : &objects->reads;
    pthread_mutex_lock(&objects->lock);
    objects->inflight_bytes -= io->bytes;
    op->next = ops->free;
    ops->free = op;
    ops_came(objects);
    pthread_mutex_unlock(&objects->lock);
    sc_objects_unref(objects, transfer); /* close waits for it */
    if (is_put)
        sc_store_object_written(objects->store);
}

/* ---- Runs ----------------------------------------------------------------------------------- */

/* Returns true if the device may access the transfer's memory directly. */
static bool is_page_aligned(const struct sc_object_transfer *transfer)
{
    uint64_t bytes;
    for (uint32_t i = 0; i < transfer->job->pieces; i++) {
        uintptr_t at = (uintptr_t)piece_at(transfer, i, &bytes);
        if (at % PAGE != 0 || (bytes % PAGE != 0 && i + 1 < transfer->job->pieces))
            return false;
    }
    return true;
}

void sc_objects_run_begin(spec_objects *objects, struct sc_object_transfer *transfer,
                          uint32_t pending)
{
    struct sc_object_domain *domain = transfer->job->domain;
    struct sc_object_route *route = &domain->routes[transfer->job->is_put ? 1 : 0];
    transfer->is_routed =
        !transfer->bounces && transfer->bytes >= ROUTED_BYTES && is_page_aligned(transfer);
    transfer->stages = transfer->bounces;
    if (transfer->is_routed) {
        transfer->stages = sc_objects_route_begin(objects, route, sc_exec_now_ns(objects->exec));
    }
    transfer->issued = 0;
    atomic_store(&transfer->pending, pending);
    atomic_store(&transfer->status, SPEC_OK);
    atomic_store(&transfer->wants_bounce, false);
}

void sc_objects_run_end(spec_objects *objects, struct sc_object_transfer *transfer)
{
    struct sc_object_domain *domain = transfer->job->domain;
    if (transfer->is_routed)
        sc_objects_route_end(objects, &domain->routes[transfer->job->is_put ? 1 : 0],
                             transfer->stages, transfer->bytes, sc_exec_now_ns(objects->exec));
    transfer->is_routed = false;
}

/* ---- Issue ---------------------------------------------------------------------------------- */

/* Returns the pages from byte `first` of the value on, inside one part. */
static void place_of(const struct sc_object *object, uint64_t first, uint32_t *ret_segment,
                     uint64_t *ret_offset, uint64_t *ret_bytes)
{
    const struct sc_store_object_part *part = object->parts;
    for (; first >= part->pages * PAGE; part++)
        first -= part->pages * PAGE;
    *ret_segment = part->segment;
    *ret_offset = part->page * PAGE + first;
    *ret_bytes = part->pages * PAGE - first;
}

/* Fills the transfer's next operation. Returns false if it needs a frame and there is none. */
static bool op_fill(spec_objects *objects, struct sc_object_transfer *transfer,
                    struct sc_object_op *op)
{
    const struct sc_object *object = sc_object_of(objects, transfer->entry);
    const bool is_put = transfer->job->is_put;
    uint64_t first = transfer->issued, left, offset, bytes, most = objects->op_bytes;
    uint32_t piece;
    uint8_t *memory = piece_find(transfer, first, &piece, &left);
    place_of(object, first, &op->write.segment, &offset, &bytes);
    bytes = bytes < most ? bytes : most;
    bool is_direct = !transfer->stages && (uintptr_t)memory % PAGE == 0 && left >= PAGE;
    if (is_direct) /* whole pages; the piece's rest uses a frame */
        bytes = left / PAGE * PAGE < bytes ? left / PAGE * PAGE : bytes;
    op->transfer = transfer;
    op->first = first;
    op->bytes = bytes < transfer->bytes - first ? bytes : transfer->bytes - first;
    op->frame = NULL;
    if (!is_direct) {
        op->frame =
            sc_staging_take(objects->frames, is_put ? SC_IO_CLASS_WRITER : SC_IO_CLASS_DEMAND);
        if (op->frame == NULL)
            return false;
        SC_OBJECT_COUNT(objects, transfer->job->domain, bounce_bytes, op->bytes);
    }
    bytes = (op->bytes + PAGE - 1) / PAGE * PAGE;
    if (op->frame != NULL && is_put) {
        pieces_copy(transfer, first, op->bytes, op->frame, true);
        memset(op->frame + op->bytes, 0, bytes - op->bytes);
    }
    op->write.op = (struct sc_io_op){.buffer = op->frame != NULL ? op->frame : memory,
                                     .offset = offset,
                                     .bytes = bytes,
                                     .kind = is_put ? SC_IO_WRITE : SC_IO_READ,
                                     .io_class = is_put ? SC_IO_CLASS_WRITER : SC_IO_CLASS_DEMAND,
                                     .done = op_done,
                                     .user = op,
                                     .is_long = !is_put};
    transfer->issued += op->bytes;
    return true;
}

/* Takes an operation; NULL: none is free, and the queue's task is posted when one is. */
static struct sc_object_op *op_take(spec_objects *objects, struct sc_object_ops *ops)
{
    pthread_mutex_lock(&objects->lock);
    struct sc_object_op *op = ops->free;
    if (op != NULL)
        ops->free = op->next;
    else
        ops->is_waited_for = true;
    pthread_mutex_unlock(&objects->lock);
    return op;
}

/* Returns an operation for lack of a frame. True: one is free by now, and the caller continues. */
static bool op_put_back(spec_objects *objects, struct sc_object_ops *ops, struct sc_object_op *op,
                        enum sc_io_class io_class)
{
    pthread_mutex_lock(&objects->lock);
    op->next = ops->free;
    ops->free = op;
    ops->is_waited_for = true; /* from here on a completion wakes the task */
    uint8_t *frame = sc_staging_take(objects->frames, io_class);
    bool goes_on = frame != NULL;
    if (goes_on)
        ops->is_waited_for = false;
    pthread_mutex_unlock(&objects->lock);
    sc_staging_put(objects->frames, frame);
    return goes_on;
}

static void ops_submit(spec_objects *objects, struct sc_object_op **taken, uint64_t count,
                       bool is_put)
{
    struct sc_store_write *writes[SC_OBJECT_OPS_AT_ONCE];
    struct sc_io_op *reads[SC_OBJECT_OPS_AT_ONCE];
    uint64_t bytes = 0;
    if (count == 0)
        return;
    for (uint64_t i = 0; i < count; i++) {
        struct sc_io_op *io = &taken[i]->write.op;
        bytes += io->bytes;
        writes[i] = &taken[i]->write;
        reads[i] = io;
        if (!is_put)
            sc_store_tier_aim(
                objects->store, io,
                (struct sc_store_where){.offset = io->offset, .segment = taken[i]->write.segment},
                io->bytes);
    }
    pthread_mutex_lock(&objects->lock);
    objects->inflight_bytes += bytes;
    pthread_mutex_unlock(&objects->lock);
    if (is_put)
        sc_store_object_write(objects->store, writes, count);
    else
        sc_store_tier_read(objects->store, reads, count);
}

bool sc_objects_issue(spec_objects *objects, struct sc_object_transfer *transfer,
                      struct sc_object_ops *ops)
{
    struct sc_object_op *taken[SC_OBJECT_OPS_AT_ONCE];
    const bool is_put = transfer->job->is_put;
    uint64_t count = 0;
    bool has_all = true;
    while (has_all && transfer->issued < transfer->bytes &&
           atomic_load(&transfer->status) == SPEC_OK) {
        struct sc_object_op *op = op_take(objects, ops);
        has_all = op != NULL;
        if (op != NULL && !op_fill(objects, transfer, op)) {
            has_all =
                op_put_back(objects, ops, op, is_put ? SC_IO_CLASS_WRITER : SC_IO_CLASS_DEMAND);
            op = NULL;
        }
        if (op != NULL) {
            atomic_fetch_add(&transfer->pending, 1);
            taken[count++] = op;
        }
        if (count == SC_OBJECT_OPS_AT_ONCE) {
            ops_submit(objects, taken, count, is_put);
            count = 0;
        }
    }
    ops_submit(objects, taken, count, is_put);
    return has_all;
}
