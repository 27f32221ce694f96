/* d2h_batch.h: packs rows on the host's stream and copies them on ours. */
#include "plugin/device/d2h_batch.h"

#include "plugin/args/dtype_table.h"
#include "plugin/device/device_stream.h"

#include <string.h>

#define ALIGN     16u
#define BLOCKS_SM 4u /* blocks per multiprocessor */

spec_status sc_plugin_d2h_batches_open(struct sc_plugin_device *device, uint64_t host_bytes,
                                       struct spec_error *reterr)
{
    struct sc_plugin_d2h_batches *d2h_batches = &device->d2h_batches;
    struct sc_alloc *alloc = device->params.alloc;
    d2h_batches->host = device->host + host_bytes;
    d2h_batches->host_bytes = host_bytes;
    d2h_batches->all = sc_alloc_array(alloc, SC_PLUGIN_D2H_BATCHES, sizeof(*d2h_batches->all));
    if (d2h_batches->all == NULL ||
        !sc_gpu_staging_open(&d2h_batches->ring, alloc, device->params.poison,
                             device->range.at + host_bytes, device->params.store_bytes,
                             SC_PLUGIN_D2H_BATCHES))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what stores have on their way");
    for (uint32_t i = 0; i < SC_PLUGIN_D2H_BATCHES; i++) {
        d2h_batches->all[i].device = device;
        d2h_batches->all[i].next = d2h_batches->free;
        d2h_batches->free = &d2h_batches->all[i];
    }
    return SPEC_OK;
}

void sc_plugin_d2h_batches_close(struct sc_plugin_device *device)
{
    struct sc_plugin_d2h_batches *d2h_batches = &device->d2h_batches;
    bool is_forked = device->gpu != NULL && sc_gpu_is_forked(device->gpu);
    sc_gpu_staging_close(&d2h_batches->ring, is_forked);
    sc_alloc_free(device->params.alloc, d2h_batches->all);
    d2h_batches->all = d2h_batches->free = NULL;
}

static struct sc_plugin_d2h_batch *object_take(struct sc_plugin_d2h_batches *d2h_batches)
{
    pthread_mutex_lock(&d2h_batches->lock);
    struct sc_plugin_d2h_batch *d2h_batch = d2h_batches->free;
    if (d2h_batch != NULL)
        d2h_batches->free = d2h_batch->next;
    pthread_mutex_unlock(&d2h_batches->lock);
    return d2h_batch;
}

static void object_give(struct sc_plugin_d2h_batches *d2h_batches,
                        struct sc_plugin_d2h_batch *d2h_batch)
{
    pthread_mutex_lock(&d2h_batches->lock);
    d2h_batch->next = d2h_batches->free;
    d2h_batches->free = d2h_batch;
    pthread_mutex_unlock(&d2h_batches->lock);
}

static uint64_t rows_bytes(const struct sc_plugin_d2h_batch *d2h_batch)
{
    return (d2h_batch->row_count * d2h_batch->row_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

struct sc_plugin_d2h_batch *sc_plugin_d2h_batch_take(struct sc_plugin_device *device,
                                                     uint64_t row_count)
{
    struct sc_plugin_d2h_batches *d2h_batches = &device->d2h_batches;
    const struct sc_plugin_shape *shape = device->params.shape;
    struct sc_plugin_d2h_batch *d2h_batch = object_take(d2h_batches);
    if (d2h_batch == NULL)
        return NULL;
    d2h_batch->row_count = row_count;
    d2h_batch->row_bytes =
        2ull * shape->kv_head_count * shape->head_size * sc_plugin_dtype_bytes(shape->dtype);
    d2h_batch->is_sent = false;
    d2h_batch->next = NULL;
    atomic_store_explicit(&d2h_batch->flies, 0, memory_order_relaxed);
    if (!sc_gpu_staging_take(&d2h_batches->ring,
                             rows_bytes(d2h_batch) + row_count * sizeof(int64_t),
                             &d2h_batch->range)) {
        object_give(d2h_batches, d2h_batch);
        return NULL;
    }
    d2h_batch->rows = d2h_batches->host + (d2h_batch->range.at - d2h_batches->ring.base);
    return d2h_batch;
}

void sc_plugin_d2h_batch_give(struct sc_plugin_d2h_batch *d2h_batch)
{
    struct sc_plugin_device *device = d2h_batch->device;
    SC_ASSERT(device->params.poison, sc_plugin_d2h_batch_is_there(d2h_batch));
    sc_gpu_staging_give(&device->d2h_batches.ring, &d2h_batch->range);
    object_give(&device->d2h_batches, d2h_batch);
}


static void d2h_batch_completed(void *held, void *user)
{
    struct sc_plugin_d2h_batch *d2h_batch = held;
    (void)user;
    atomic_store_explicit(&d2h_batch->flies, 0, memory_order_release);
}

/* Slots follow the rows in host memory, where the kernel reads them over the bus. They are 8 bytes
 * a row, too few to pay for a copy on the host's stream. The copy back does not touch them. */
static spec_status work_make(struct sc_plugin_d2h_batch *d2h_batch,
                             const struct sc_kernels_move *how, uint64_t first,
                             struct sc_cuda_rows *ret_work, struct sc_cuda_shape *ret_shape,
                             struct spec_error *reterr)
{
    const struct sc_plugin_device *device = d2h_batch->device;
    struct sc_cuda_rows work = {.rows = (uint8_t *)(uintptr_t)d2h_batch->range.at,
                                .row_stride_bytes = d2h_batch->row_bytes,
                                .token_first = first,
                                .row_count = (uint32_t)d2h_batch->row_count,
                                .head_count = (uint32_t)how->head_count,
                                .head_size = (uint32_t)how->head_size,
                                .parts = SC_CUDA_K | SC_CUDA_V,
                                .element_bytes = (uint32_t)how->element_bytes,
                                .there_bytes = (uint32_t)how->element_bytes};
    if (!sc_cuda_memory_of(how->memory, how->element_bytes, &work.memory) ||
        d2h_batch->row_count > UINT32_MAX ||
        !sc_cuda_rows_shape(&work, true, device->gpu->multiprocessors * BLOCKS_SM, ret_shape))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "a shape that no kernel takes");
    if (how->memory->slots != NULL) {
        uint8_t *slots = d2h_batch->rows + rows_bytes(d2h_batch);
        memcpy(slots, how->memory->slots + first, d2h_batch->row_count * sizeof(int64_t));
        work.memory.slots = (const int64_t *)(uintptr_t)sc_gpu_pin_address(&device->pin, slots);
        work.token_first = 0;
    }
    *ret_work = work;
    return SPEC_OK;
}

/* Slot locked, device entered: begins a ring entry that holds the batch, and returns its stream; 0:
 * both rings are full. */
static uint32_t stream_begin(struct sc_plugin_d2h_batch *d2h_batch, struct sc_gpu_slot *slot)
{
    const struct sc_gpu_hold hold = {.give = d2h_batch_completed, .held = d2h_batch};
    if (sc_plugin_stream_begin(d2h_batch->device, &slot->copies, &hold))
        return SC_GPU_COPIES;
    return sc_plugin_stream_begin(d2h_batch->device, &slot->kernels, &hold) ? SC_GPU_KERNELS : 0;
}

/* Slot locked, device entered, entry begun: enqueues the work and submits the entry. */
static spec_status enqueue(struct sc_plugin_d2h_batch *d2h_batch, struct sc_gpu_slot *slot,
                           uint32_t which, void *stream, struct sc_cuda_rows *work,
                           const struct sc_cuda_shape *shape, struct spec_error *reterr)
{
    struct sc_gpu_device *gpu = d2h_batch->device->gpu;
    struct sc_gpu_stream *own_stream = which == SC_GPU_COPIES ? &slot->copies : &slot->kernels;
    atomic_store_explicit(&d2h_batch->flies, 1, memory_order_relaxed);
    spec_status status = sc_plugin_stream_launch(
        d2h_batch->device, stream, SC_PLUGIN_KERNEL_sc_cuda_rows_pack, true, shape, work, reterr);
    if (status == SPEC_OK)
        status = sc_gpu_begin(gpu, slot, stream, which, reterr); /* E0, behind the kernel */
    if (status == SPEC_OK)
        status = sc_gpu_copy_out(gpu, own_stream, d2h_batch->rows, d2h_batch->range.at,
                                 d2h_batch->row_count * d2h_batch->row_bytes, reterr);
    status = sc_plugin_stream_submit(d2h_batch->device, own_stream, status, reterr);
    if (status == SPEC_OK)
        return SPEC_OK;
    sc_gpu_stream_finish(gpu, stream); /* the kernel may be enqueued with no event behind it */
    (void)sc_gpu_events_wait(gpu, own_stream, 0);
    return status;
}

/* Tries the slots of stores, beginning with the seat's, until one has room. */
static spec_status slots_try(struct sc_plugin_d2h_batch *d2h_batch, void *stream, uint64_t seat,
                             struct sc_cuda_rows *work, const struct sc_cuda_shape *shape,
                             struct spec_error *reterr)
{
    struct sc_plugin_device *device = d2h_batch->device;
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_STORES; i++) {
        uint32_t number = SC_PLUGIN_DEVICE_SLOTS + (uint32_t)((seat + i) % SC_PLUGIN_DEVICE_STORES);
        struct sc_gpu_slot *slot = &device->gpu->slots[number];
        spec_status status = SPEC_OK;
        pthread_mutex_lock(&device->slot_locks[number]);
        uint32_t which = stream_begin(d2h_batch, slot);
        if (which != 0)
            status = enqueue(d2h_batch, slot, which, stream, work, shape, reterr);
        pthread_mutex_unlock(&device->slot_locks[number]);
        if (which != 0)
            return status;
    }
    return sc_fail(reterr, SPEC_E_BUSY, "all flights of stores are in the air");
}

spec_status sc_plugin_d2h_batch_send(struct sc_plugin_d2h_batch *d2h_batch,
                                     const struct sc_kernels_move *how, void *stream,
                                     uint64_t first, uint64_t seat, struct spec_error *reterr)
{
    struct sc_gpu_device *gpu = d2h_batch->device->gpu;
    struct sc_cuda_rows work;
    struct sc_cuda_shape shape;
    struct sc_gpu_entry entry;
    spec_status status = work_make(d2h_batch, how, first, &work, &shape, reterr);
    if (status == SPEC_OK)
        status = sc_gpu_enter(gpu, &entry, reterr);
    if (status != SPEC_OK)
        return status;
    d2h_batch->is_sent = true;
    status = slots_try(d2h_batch, stream, seat, &work, &shape, reterr);
    sc_gpu_leave(gpu, &entry);
    return status;
}


void sc_plugin_d2h_batches_reap(struct sc_plugin_device *device)
{
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_STORES; i++) {
        struct sc_gpu_slot *slot = &device->gpu->slots[SC_PLUGIN_DEVICE_SLOTS + i];
        (void)sc_gpu_events_reap(device->gpu, &slot->copies);
        (void)sc_gpu_events_reap(device->gpu, &slot->kernels);
    }
}

bool sc_plugin_d2h_batch_is_there(const struct sc_plugin_d2h_batch *d2h_batch)
{
    return atomic_load_explicit(&d2h_batch->flies, memory_order_acquire) == 0;
}

/* An entry completed by a device failure may not have copied anything. */
spec_status sc_plugin_d2h_batch_check(const struct sc_plugin_d2h_batch *d2h_batch,
                                      struct spec_error *reterr)
{
    const struct sc_gpu_device *gpu = d2h_batch->device->gpu;
    if (!d2h_batch->is_sent || !sc_gpu_has_failed(gpu))
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_IO, "CUDA device %" PRIu32 " failed: %s", gpu->ordinal,
                   gpu->failed_text);
}
