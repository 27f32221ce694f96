/* h2d_batch.h: fills and submits pinned buffers; the target table of device memory. */
#include "plugin/device/h2d_batch.h"

#include "kernels/codec.h"
#include "plugin/args/dtype_table.h"
#include "plugin/device/device_stream.h"
#include "plugin/device/direct.h"

#include <string.h>

#define ALIGN       16u
#define UP(bytes)   (((bytes) + ALIGN - 1) / ALIGN * ALIGN)
#define EVEN_ROWS      16u /* rows of a slab per decoder block, uniform bits */
#define FREE_ROWS      32u /* the same, per-channel bits */
#define BLOCKS_SM      4u  /* blocks of rows per multiprocessor */
#define WORTH_ROWS     16u /* rows of a slab: a buffer with room for fewer is submitted first */
#define PINNED_WAIT_NS UINT64_C(1000000)
#define BITE_BYTES     (128u << 10) /* host tier bytes requested at a time, to limit calls */

/* Returns the bytes reserved in a pinned buffer for descriptors and slots of rows, written last. */
static uint64_t reserve_bytes(void)
{
    return UP(SC_PLUGIN_H2D_ROWS * (sizeof(uint64_t) + sizeof(int64_t))) +
           SC_PLUGIN_H2D_SLABS *
               (sizeof(struct sc_cuda_codec_slab) + sizeof(struct sc_cuda_bitplanes_slab)) +
           4 * ALIGN;
}

/* ---- Open and close ------------------------------------------------------------------------- */

uint64_t sc_plugin_h2d_batch_least(const struct sc_plugin_device *device)
{
    const struct sc_plugin_shape *shape = device->params.shape;
    uint64_t channels = (uint64_t)shape->kv_head_count * shape->head_size;
    uint64_t row = 2 * channels * sc_plugin_dtype_bytes(shape->dtype);
    uint64_t codes = sc_kernels_codec_scale_bytes(channels) + device->table_bytes;
    uint64_t quantised = channels + shape->head_size * sizeof(float); /* a row of 8 bits */
    return reserve_bytes() + UP(row) + UP(codes) + WORTH_ROWS * UP(quantised + ALIGN) + 8 * ALIGN;
}

spec_status sc_plugin_h2d_batches_open(struct sc_plugin_device *device, struct spec_error *reterr)
{
    uint64_t count = device->params.request_count;
    device->batches = sc_alloc_array(device->params.alloc, count, sizeof(*device->batches));
    if (device->batches == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what %" PRIu64 " requests place", count);
    for (uint64_t i = 0; i < count; i++) {
        device->batches[i].device = device;
        device->batches[i].slot = sc_plugin_device_slot(i);
        pthread_mutex_init(&device->batches[i].lock, NULL);
    }
    return SPEC_OK;
}

void sc_plugin_h2d_batches_close(struct sc_plugin_device *device)
{
    for (uint64_t i = 0; device->batches != NULL && i < device->params.request_count; i++)
        pthread_mutex_destroy(&device->batches[i].lock);
    sc_alloc_free(device->params.alloc, device->batches);
    device->batches = NULL;
}

/* ---- Submit -------------------------------------------------------------------------------- */

static void batch_fail(struct sc_plugin_h2d_batch *batch, spec_status status,
                       const struct spec_error *error)
{
    if (batch->status != SPEC_OK || status == SPEC_OK)
        return;
    batch->status = status;
    memcpy(batch->why, error->text, sizeof(batch->why) - 1);
}

/* Lock held. Allocates bytes of the pinned buffer, which has room. */
static uint64_t pinned_buffer_bytes(struct sc_plugin_h2d_batch *batch, uint64_t bytes)
{
    uint64_t at = batch->used;
    batch->used += UP(bytes);
    return at;
}

static uint64_t pinned_put(struct sc_plugin_h2d_batch *batch, const void *from, uint64_t bytes)
{
    uint64_t at = pinned_buffer_bytes(batch, bytes);
    memcpy(batch->pinned->host + at, from, bytes);
    return at;
}

/* Lock held. Discards the contents of the pinned buffer. */
static void batch_clear(struct sc_plugin_h2d_batch *batch)
{
    batch->used = 0;
    batch->row_count = batch->even_count = batch->free_count = batch->table_count = 0;
    batch->even_rows = batch->free_rows = batch->free_units = batch->scale_count = 0;
    batch->slots.count = 0;
}

static bool is_empty(const struct sc_plugin_h2d_batch *batch)
{
    return batch->row_count == 0 && batch->even_count == 0 && batch->free_count == 0;
}

/* Returns the destination, with slots in the pinned buffer. */
static struct sc_cuda_memory memory_of(const struct sc_plugin_h2d_batch *batch)
{
    struct sc_cuda_memory memory = {.head_stride_bytes = 0};
    (void)sc_cuda_memory_of(batch->to.how.memory, batch->to.how.memory->element_bytes, &memory);
    memory.slots = (const int64_t *)(uintptr_t)batch->pinned->at;
    return memory;
}

static uint32_t dtype_there(const struct sc_plugin_placing *to)
{
    return to->how.widens ? (uint32_t)SC_CUDA_F32 : to->how.dtype;
}

static spec_status launch(struct sc_plugin_h2d_batch *batch, enum sc_plugin_kernel kernel,
                          bool fits, const struct sc_cuda_shape *shape, void *what,
                          struct spec_error *reterr)
{
    void *stream = batch->device->gpu->slots[batch->slot].kernels.stream;
    return sc_plugin_stream_launch(batch->device, stream, kernel, fits, shape, what, reterr);
}

/* Kernel parameters, all placed in the pinned buffer before the first launch. */
struct work {
    struct sc_cuda_codec evens;
    struct sc_cuda_bitplanes frees;
    struct sc_cuda_rows rows;
};

/* Lock held. Writes descriptors and slots to the reserve of the pinned buffer. */
static struct work work_make(struct sc_plugin_h2d_batch *batch)
{
    const struct sc_kernels_move *how = &batch->to.how;
    const struct sc_cuda_memory memory = memory_of(batch);
    uint64_t base = batch->pinned->at;
    struct work work = {.evens = {.memory = memory,
                                  .head_count = (uint32_t)how->head_count,
                                  .head_size = (uint32_t)how->head_size,
                                  .dst_dtype = dtype_there(&batch->to),
                                  .rows_each = EVEN_ROWS},
                        .frees = {.memory = memory,
                                  .head_count = (uint32_t)how->head_count,
                                  .head_size = (uint32_t)how->head_size,
                                  .dst_dtype = dtype_there(&batch->to),
                                  .rows_each = FREE_ROWS},
                        .rows = {.memory = memory,
                                 .row_count = batch->row_count,
                                 .head_count = (uint32_t)how->head_count,
                                 .head_size = (uint32_t)how->head_size,
                                 .parts = batch->row_parts,
                                 .element_bytes = (uint32_t)how->element_bytes,
                                 .there_bytes = (uint32_t)how->memory->element_bytes,
                                 .dtype = how->dtype}};
    work.evens.slabs =
        (const void *)(uintptr_t)(base + pinned_put(batch, batch->evens,
                                                    batch->even_count * sizeof(batch->evens[0])));
    work.frees.slabs =
        (const void *)(uintptr_t)(base + pinned_put(batch, batch->frees,
                                                    batch->free_count * sizeof(batch->frees[0])));
    work.rows.at = (uint8_t *const *)(uintptr_t)(base + pinned_put(batch, batch->row_at,
                                                                   batch->row_count *
                                                                       sizeof(batch->row_at[0])));
    work.rows.token_first =
        pinned_put(batch, batch->row_slots, batch->row_count * sizeof(batch->row_slots[0])) /
        sizeof(int64_t);
    return work;
}

static spec_status kernels_launch(struct sc_plugin_h2d_batch *batch, struct work *work,
                                  struct spec_error *reterr)
{
    struct sc_gpu_device *gpu = batch->device->gpu;
    struct sc_cuda_shape evens, frees, rows;
    spec_status status = SPEC_OK;
    /* Only used kernels need a shape: 1-byte elements have no decoder. */
    bool fits = sc_cuda_codec_shape(&work->evens, batch->even_count, batch->even_rows, &evens);
    if (batch->even_count > 0)
        status = launch(batch, SC_PLUGIN_KERNEL_sc_cuda_codec_decode, fits, &evens, &work->evens,
                        reterr);
    fits = sc_cuda_bitplanes_shape(&work->frees, batch->free_units, batch->free_count,
                                   batch->free_rows, &frees);
    if (status == SPEC_OK && batch->free_count > 0)
        status = launch(batch, SC_PLUGIN_KERNEL_sc_cuda_bitplanes_decode, fits, &frees,
                        &work->frees, reterr);
    if (status != SPEC_OK || batch->row_count == 0)
        return status;
    fits = sc_cuda_rows_shape(&work->rows, false, gpu->multiprocessors * BLOCKS_SM, &rows);
    return launch(batch, SC_PLUGIN_KERNEL_sc_cuda_rows_place, fits, &rows, &work->rows, reterr);
}

/* Slot locked, device entered. The ring entries own the pinned buffer from here on. */
static spec_status pinned_send(struct sc_plugin_h2d_batch *batch, struct work *work,
                               struct spec_error *reterr)
{
    struct sc_gpu_device *gpu = batch->device->gpu;
    struct sc_gpu_stream *copies = &gpu->slots[batch->slot].copies;
    struct sc_gpu_stream *kernels = &gpu->slots[batch->slot].kernels;
    const struct sc_gpu_hold hold = {.give = sc_plugin_pinned_completed, .held = batch->pinned};
    atomic_store(&batch->pinned->left, 2);
    sc_plugin_stream_begin_wait(batch->device, copies, &hold);
    spec_status status =
        sc_gpu_copy_in(gpu, copies, batch->pinned->at, batch->pinned->host, batch->used, reterr);
    status = sc_plugin_stream_submit(batch->device, copies, status, reterr);
    sc_plugin_stream_begin_wait(batch->device, kernels, &hold);
    if (status == SPEC_OK)
        status = sc_gpu_follow(gpu, kernels, copies, reterr);
    if (status == SPEC_OK)
        status = kernels_launch(batch, work, reterr);
    return sc_plugin_stream_submit(batch->device, kernels, status, reterr);
}

/* Lock held. Submits the pinned buffer, or discards it after an error. */
static void batch_flush(struct sc_plugin_h2d_batch *batch)
{
    struct sc_plugin_device *device = batch->device;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_gpu_entry entry;
    spec_status status = SPEC_OK;
    if (batch->pinned == NULL)
        return;
    bool goes = !is_empty(batch) && batch->status == SPEC_OK;
    if (goes)
        status = sc_gpu_enter(device->gpu, &entry, &error);
    if (goes && status == SPEC_OK) {
        struct work work = work_make(batch);
        pthread_mutex_lock(&device->slot_locks[batch->slot]);
        status = pinned_send(batch, &work, &error);
        pthread_mutex_unlock(&device->slot_locks[batch->slot]);
        sc_gpu_leave(device->gpu, &entry);
    } else {
        sc_plugin_pinned_give(batch->pinned); /* nothing of it was enqueued */
    }
    batch->pinned = NULL;
    batch_clear(batch);
    batch_fail(batch, status, &error);
}

/* Submits the pinned buffer of the first unlocked batch that has one; false: there is none. The
 * caller may hold a batch's lock; that batch has no pinned buffer. */
static bool batches_send(struct sc_plugin_device *device)
{
    bool is_sent = false;
    for (uint64_t i = 0; i < device->params.request_count && !is_sent; i++) {
        struct sc_plugin_h2d_batch *batch = &device->batches[i];
        if (pthread_mutex_trylock(&batch->lock) != 0)
            continue;
        is_sent = batch->pinned != NULL;
        batch_flush(batch);
        pthread_mutex_unlock(&batch->lock);
    }
    return is_sent;
}

/* Waits for the stream's oldest ring entry; false: none is pending. */
static bool oldest_await(struct sc_plugin_device *device, struct sc_gpu_stream *own_stream)
{
    uint64_t flying = sc_gpu_events_pending(own_stream);
    return flying > 0 && sc_gpu_events_wait(device->gpu, own_stream, flying - 1) > 0;
}

/* If no pinned buffer is in flight, other batches fill them. Their threads may wait for the disk,
 * and so for workers that wait here or for a batch's lock. Therefore their buffers are submitted as
 * they are. A batch that is locked at that time is making progress. */
struct sc_plugin_pinned *sc_plugin_pinned_take(struct sc_plugin_device *device, uint32_t slot)
{
    struct sc_gpu_slot *own = &device->gpu->slots[slot];
    for (;;) {
        uint32_t seen = atomic_load_explicit(&device->pinned_word, memory_order_acquire);
        struct sc_plugin_pinned *pinned = sc_plugin_pinned_try(device);
        if (pinned != NULL)
            return pinned;
        if (!oldest_await(device, &own->kernels) && !oldest_await(device, &own->copies) &&
            !batches_send(device))
            (void)sc_exec_wait(device->params.exec, &device->pinned_word, seen,
                               sc_exec_now_ns(device->params.exec) + PINNED_WAIT_NS);
    }
}

/* ---- Fill ---------------------------------------------------------------------------------- */

/* Lock held. Returns the free bytes of the pinned buffer. */
static uint64_t room_of(const struct sc_plugin_h2d_batch *batch)
{
    uint64_t most = batch->device->pinned_buffer_bytes - reserve_bytes();
    return batch->pinned == NULL || batch->used > most ? 0 : most - batch->used;
}

/* Lock held. Ensures `bytes` in the pinned buffer, with a new one if necessary. */
static void room_make(struct sc_plugin_h2d_batch *batch, uint64_t bytes)
{
    if (room_of(batch) >= bytes)
        return;
    batch_flush(batch);
    batch->pinned = sc_plugin_pinned_take(batch->device, batch->slot);
}

/* Lock held. Sets the destination; false: BEGIN failed, so the host's work is not ordered. */
static bool batch_target_set(struct sc_plugin_h2d_batch *batch, const struct sc_plugin_placing *to)
{
    if (batch->to.memory != to->memory)
        batch_flush(batch);
    batch->to = *to;
    return to->memory->begun == SPEC_OK;
}

static int64_t slot_of(const struct sc_plugin_placing *to, uint64_t token)
{
    return sc_kernels_slot_of(to->how.memory, token);
}

struct rows_from {
    const struct sc_store_rows *rows;
    uint64_t part_bytes, bytes; /* of a row */
    bool is_direct, is_both;
};

/* is_direct: the kernel reads rows in place, over the bus; K and V are contiguous. */
static struct rows_from rows_from_of(const struct sc_plugin_h2d_batch *batch,
                                     const struct sc_plugin_placing *to,
                                     const struct sc_store_rows *rows, uint32_t wanted)
{
    uint64_t part_bytes = to->how.head_count * to->how.head_size * to->how.element_bytes;
    bool is_both = wanted == SC_STORE_WANT_ROWS;
    struct rows_from from = {.rows = rows,
                             .part_bytes = part_bytes,
                             .bytes = part_bytes * (is_both ? 2 : 1),
                             .is_both = is_both};
    from.is_direct = sc_plugin_direct_has(batch->device, rows) &&
                     (!is_both || rows->v == rows->rows + part_bytes);
    return from;
}

/* Lock held. Ensures room for a row, and holds its slab if direct. */
static void row_room(struct sc_plugin_h2d_batch *batch, const struct rows_from *from)
{
    room_make(batch, from->is_direct ? ALIGN : UP(from->bytes));
    if (!from->is_direct || sc_plugin_direct_hold(batch->pinned, from->rows->slab))
        return;
    batch_flush(batch);
    room_make(batch, ALIGN);
    (void)sc_plugin_direct_hold(batch->pinned, from->rows->slab); /* its first */
}

/* Lock held, room ensured. Returns the row's device address. */
static uint64_t row_put(struct sc_plugin_h2d_batch *batch, const struct rows_from *from,
                        uint64_t row)
{
    const uint8_t *k = from->rows->rows + row * from->rows->stride;
    if (from->is_direct)
        return sc_gpu_pin_address(&batch->device->direct, k);
    uint64_t place = pinned_buffer_bytes(batch, from->bytes);
    memcpy(batch->pinned->host + place, k, from->part_bytes);
    if (from->is_both)
        memcpy(batch->pinned->host + place + from->part_bytes,
               from->rows->v + row * from->rows->stride, from->part_bytes);
    return batch->pinned->at + place;
}

static void cuda_place_rows(const struct sc_plugin_placing *to, const struct sc_store_rows *rows,
                            uint64_t from, uint64_t count, uint32_t wanted, uint64_t at)
{
    struct sc_plugin_h2d_batch *batch = to->memory->batch;
    const struct rows_from what = rows_from_of(batch, to, rows, wanted);
    uint32_t parts = what.is_both                ? SC_CUDA_K | SC_CUDA_V
                     : wanted == SC_STORE_WANT_V ? SC_CUDA_V
                                                 : SC_CUDA_K;
    pthread_mutex_lock(&batch->lock);
    bool goes = batch_target_set(batch, to);
    for (uint64_t i = 0; goes && i < count && batch->status == SPEC_OK; i++) {
        int64_t slot = slot_of(to, at + i);
        if (slot < 0)
            continue;
        if (batch->row_count == SC_PLUGIN_H2D_ROWS ||
            (batch->row_count > 0 && batch->row_parts != parts))
            batch_flush(batch);
        row_room(batch, &what);
        batch->row_parts = parts;
        batch->row_at[batch->row_count] = row_put(batch, &what, from + i);
        batch->row_slots[batch->row_count++] = slot;
    }
    pthread_mutex_unlock(&batch->lock);
}

/* Lock held. Returns the table's device address; 0: unsupported. */
static uint64_t table_at(struct sc_plugin_h2d_batch *batch,
                         const struct sc_kernels_bitplanes *planes,
                         const struct sc_kernels_rotary *rotary)
{
    for (uint32_t i = 0; i < batch->table_count; i++)
        if (batch->tables_of[i] == planes && batch->tables_rope[i] == rotary)
            return batch->tables_at[i];
    uint8_t *to = batch->pinned->host + batch->used;
    uint64_t bytes = sc_plugin_device_table(batch->device, planes, rotary, to);
    uint64_t at = batch->pinned->at + pinned_buffer_bytes(batch, bytes);
    if (bytes == 0)
        return 0;
    const struct sc_cuda_bitplanes_table *table = (const void *)to;
    if (table->unit_count > batch->free_units)
        batch->free_units = table->unit_count;
    if (batch->table_count < SC_PLUGIN_H2D_SLABS) {
        batch->tables_of[batch->table_count] = planes;
        batch->tables_rope[batch->table_count] = rotary;
        batch->tables_at[batch->table_count++] = at;
    }
    return at;
}

struct quantised_rows {
    const struct sc_kernels_quantised *quantised;
    uint64_t first, count; /* among the quantised rows */
    uint64_t token;        /* of the first row */
    const uint64_t *skipped;
    uint32_t part;
    /* Bytes: once per slab, and per row. */
    uint64_t scale_bytes, row_bytes, turn_bytes;
};

static struct quantised_rows quantised_rows_of(const struct sc_plugin_placing *to,
                                               const struct sc_kernels_quantised *quantised,
                                               uint32_t part)
{
    uint64_t channels = to->how.head_count * to->how.head_size;
    struct quantised_rows rows = {.quantised = quantised, .part = part};
    if (quantised->planes == NULL) {
        rows.scale_bytes = sc_kernels_codec_scale_bytes(channels);
        rows.row_bytes = sc_kernels_codec_row_bytes(channels, quantised->bits);
        return rows;
    }
    rows.scale_bytes = sc_kernels_bitplanes_scale_bytes(quantised->planes);
    rows.row_bytes = quantised->planes->row_bytes;
    rows.turn_bytes = quantised->rotary != NULL ? quantised->rotary->turned * sizeof(float) : 0;
    return rows;
}

/* Lock held. Returns the scales' device address: many short runs share scales. */
static const uint8_t *scales_at(struct sc_plugin_h2d_batch *batch,
                                const struct quantised_rows *rows)
{
    const uint8_t *scales = rows->quantised->scales;
    for (uint32_t i = 0; i < batch->scale_count; i++)
        if (batch->scales_of[i] == scales)
            return (const uint8_t *)(uintptr_t)batch->scales_at[i];
    uint64_t at = batch->pinned->at + pinned_put(batch, scales, rows->scale_bytes);
    uint32_t i =
        batch->scale_count < SC_PLUGIN_H2D_SCALES ? batch->scale_count++ : SC_PLUGIN_H2D_SCALES - 1;
    batch->scales_of[i] = scales;
    batch->scales_at[i] = at;
    return (const uint8_t *)(uintptr_t)at;
}

static const uint8_t *quant_put(struct sc_plugin_h2d_batch *batch,
                                const struct quantised_rows *rows)
{
    uint64_t at = pinned_put(batch, rows->quantised->codes + rows->first * rows->row_bytes,
                             rows->count * rows->row_bytes);
    return (const uint8_t *)(uintptr_t)(batch->pinned->at + at);
}

/* Lock held. Writes the rows' slots, negative if skipped, and returns the first one's token.
 * Returns false, writing nothing, if all are skipped. */
static bool slots_put(struct sc_plugin_h2d_batch *batch, const struct quantised_rows *rows,
                      uint64_t *ret_token)
{
    if (batch->slots.count == rows->count && batch->slots.token == rows->token &&
        batch->slots.skipped == rows->skipped) { /* K's slots serve V */
        *ret_token = batch->slots.at;
        return batch->slots.is_any;
    }
    uint64_t before = batch->used, at = pinned_buffer_bytes(batch, rows->count * sizeof(int64_t));
    int64_t *slots = (int64_t *)(void *)(batch->pinned->host + at);
    bool is_any = false;
    for (uint64_t i = 0; i < rows->count; i++) {
        uint64_t token = rows->token + i;
        bool is_skipped =
            rows->skipped != NULL && (rows->skipped[token / 64] >> (token % 64) & 1) != 0;
        slots[i] = is_skipped ? -1 : slot_of(&batch->to, token);
        is_any = is_any || slots[i] >= 0;
    }
    *ret_token = batch->slots.at = at / sizeof(int64_t);
    batch->slots.skipped = rows->skipped;
    batch->slots.token = rows->token;
    batch->slots.count = rows->count;
    batch->slots.is_any = is_any;
    if (!is_any)
        batch->used = before;
    return is_any;
}

/* Lock held, room ensured. */
static void free_put(struct sc_plugin_h2d_batch *batch, const struct quantised_rows *rows,
                     uint64_t token)
{
    const struct sc_kernels_quantised *quantised = rows->quantised;
    uint64_t base = batch->pinned->at;
    struct sc_cuda_bitplanes_slab slab = {
        .table = (const void *)(uintptr_t)table_at(batch, quantised->planes, quantised->rotary),
        .scales = scales_at(batch, rows),
        .codes = quant_put(batch, rows),
        .token_first = token,
        .row_count = (uint32_t)rows->count,
        .part = rows->part};
    if (rows->turn_bytes > 0)
        slab.rope =
            (const float *)(uintptr_t)(base +
                                       pinned_put(batch,
                                                  sc_kernels_quantised_rope(quantised, rows->first),
                                                  rows->count * rows->turn_bytes));
    if (slab.table == NULL) {
        struct spec_error error = {.struct_size = sizeof(error)};
        batch_fail(batch, sc_fail(&error, SPEC_E_UNSUPPORTED, "widths that no table holds"),
                   &error);
        return;
    }
    batch->frees[batch->free_count++] = slab;
    if (batch->free_rows < rows->count)
        batch->free_rows = (uint32_t)rows->count;
}

static void even_put(struct sc_plugin_h2d_batch *batch, const struct quantised_rows *rows,
                     uint64_t token)
{
    struct sc_cuda_codec_slab slab = {.scales = scales_at(batch, rows),
                                      .codes = quant_put(batch, rows),
                                      .token_first = token,
                                      .row_count = (uint32_t)rows->count,
                                      .part = (uint16_t)rows->part,
                                      .bits = (uint16_t)rows->quantised->bits};
    batch->evens[batch->even_count++] = slab;
    if (batch->even_rows < rows->count)
        batch->even_rows = (uint32_t)rows->count;
}

/* Lock held. Returns how many of `left` rows fit in the pinned buffer, or in a new one. */
static uint64_t rows_room(struct sc_plugin_h2d_batch *batch, const struct quantised_rows *rows,
                          uint64_t left)
{
    uint64_t once = UP(rows->scale_bytes) + 8 * ALIGN;
    uint64_t each = sizeof(int64_t) + rows->row_bytes + rows->turn_bytes;
    if (rows->quantised->planes != NULL)
        once += batch->device->table_bytes;
    uint64_t worth = left < WORTH_ROWS ? left : WORTH_ROWS;
    room_make(batch, once + worth * each);
    uint64_t count = (room_of(batch) - once) / each;
    return count < left ? count : left;
}

static void part_place(struct sc_plugin_h2d_batch *batch, struct quantised_rows rows,
                       uint64_t count, uint64_t at)
{
    for (uint64_t done = 0; done < count && batch->status == SPEC_OK; done += rows.count) {
        uint64_t token;
        if (batch->even_count == SC_PLUGIN_H2D_SLABS || batch->free_count == SC_PLUGIN_H2D_SLABS)
            batch_flush(batch);
        rows.count = rows_room(batch, &rows, count - done);
        rows.first = done;
        rows.token = at + done;
        if (!slots_put(batch, &rows, &token))
            continue;
        if (rows.quantised->planes != NULL)
            free_put(batch, &rows, token);
        else
            even_put(batch, &rows, token);
    }
}

static void cuda_place_quant(const struct sc_plugin_placing *to,
                             const struct sc_kernels_quantised parts[2], uint64_t count,
                             uint64_t at, const uint64_t *skipped)
{
    struct sc_plugin_h2d_batch *batch = to->memory->batch;
    pthread_mutex_lock(&batch->lock);
    bool goes = batch_target_set(batch, to);
    batch->slots.count = 0; /* `skipped` may have changed */
    for (uint32_t part = 0; goes && part < 2; part++) {
        struct quantised_rows rows = quantised_rows_of(to, &parts[part], part);
        rows.skipped = skipped;
        part_place(batch, rows, count, at);
    }
    pthread_mutex_unlock(&batch->lock);
}

/* ---- Target table -------------------------------------------------------------------------- */

/* Requests many rows at once if the device reads the host tier directly. */
static uint64_t cuda_expect(const struct sc_plugin_placing *to, uint64_t row, uint64_t ahead,
                            uint64_t count)
{
    const struct sc_plugin_device *device = to->memory->batch->device;
    uint64_t part_bytes = to->how.head_count * to->how.head_size * to->how.element_bytes;
    (void)row;
    (void)ahead;
    (void)count;
    return device->direct.device != NULL ? BITE_BYTES / (2 * part_bytes) : 0;
}

/* No sink: rows are verified in place, then copied, so a failure reaches nothing. */
static struct sc_store_sink cuda_sink(struct sc_plugin_placing *to)
{
    (void)to;
    return (struct sc_store_sink){.span_bytes = 0};
}

/* Slot locked, device entered. */
static spec_status order(struct sc_plugin_h2d_batch *batch, const struct sc_plugin_memory *memory,
                         enum sc_plugin_fence when, struct spec_error *reterr)
{
    struct sc_gpu_device *gpu = batch->device->gpu;
    struct sc_gpu_slot *slot = &gpu->slots[batch->slot];
    if (when == SC_FENCE_BEGIN) { /* releases slabs of completed loads */
        (void)sc_gpu_events_reap(gpu, &slot->copies);
        (void)sc_gpu_events_reap(gpu, &slot->kernels);
        return sc_gpu_begin(gpu, slot, memory->stream, SC_GPU_KERNELS, reterr);
    }
    spec_status status = sc_gpu_end(gpu, slot, reterr);
    return status == SPEC_OK ? sc_gpu_end_wait(gpu, slot, memory->stream, reterr) : status;
}

static spec_status stream_order(struct sc_plugin_h2d_batch *batch,
                                const struct sc_plugin_memory *memory, enum sc_plugin_fence when,
                                struct spec_error *reterr)
{
    struct sc_plugin_device *device = batch->device;
    struct sc_gpu_entry entry;
    spec_status status = sc_gpu_enter(device->gpu, &entry, reterr);
    if (status != SPEC_OK)
        return status;
    pthread_mutex_lock(&device->slot_locks[batch->slot]);
    status = order(batch, memory, when, reterr);
    pthread_mutex_unlock(&device->slot_locks[batch->slot]);
    sc_gpu_leave(device->gpu, &entry);
    return status;
}

/* Orders the host's stream behind the load. If that fails, waits for the load: writes in flight
 * would overwrite the host's next work. */
static spec_status load_end(struct sc_plugin_h2d_batch *batch,
                            const struct sc_plugin_memory *memory, struct spec_error *reterr)
{
    struct sc_gpu_device *gpu = batch->device->gpu;
    spec_status status = stream_order(batch, memory, SC_FENCE_END, reterr);
    if (status != SPEC_OK)
        (void)sc_gpu_events_wait(gpu, &gpu->slots[batch->slot].kernels, 0);
    return status;
}

static spec_status fail_begun(const struct sc_plugin_h2d_batch *batch, spec_status begun,
                              struct spec_error *reterr)
{
    const struct sc_gpu_device *gpu = batch->device->gpu;
    return sc_fail(reterr, begun, "the load could not be put behind the stream: %s",
                   sc_gpu_has_failed(gpu) ? gpu->failed_text : "it is not one to wait for");
}

static spec_status cuda_fence(const struct sc_plugin_memory *memory, enum sc_plugin_fence when,
                              struct spec_error *reterr)
{
    struct sc_plugin_h2d_batch *batch = memory->batch;
    if (when == SC_FENCE_END)
        return load_end(batch, memory, reterr);
    if (when == SC_FENCE_BEGIN)
        return stream_order(batch, memory, when, reterr);
    pthread_mutex_lock(&batch->lock);
    batch_flush(batch);
    spec_status status = batch->status;
    if (when == SC_FENCE_SETTLED && status != SPEC_OK)
        status = sc_fail(reterr, status, "%s", batch->why);
    if (when == SC_FENCE_SETTLED)
        batch->status = SPEC_OK; /* the next item starts without errors */
    pthread_mutex_unlock(&batch->lock);
    if (when == SC_FENCE_SETTLED && memory->begun != SPEC_OK)
        return fail_begun(batch, memory->begun, reterr);
    return status;
}

const struct sc_plugin_target sc_plugin_target_cuda = {.expect = cuda_expect,
                                                       .sink = cuda_sink,
                                                       .place_rows = cuda_place_rows,
                                                       .place_quant = cuda_place_quant,
                                                       .decodes_elsewhere = true,
                                                       .fence = cuda_fence};
