/* Packing on the host's stream, copying on ours: see d2h_batch.h. */
#include "plugin/device/d2h_batch.h"

#include "plugin/args/dtype_table.h"
#include "plugin/device/device_stream.h"

#include <string.h>

#define ALIGN     16u
#define BLOCKS_SM 4u /* a multiprocessor */

/* ---- Open, close, take, give ---------------------------------------------------------------- */

spec_status sc_plugin_parcels_open(struct sc_plugin_device *device, uint64_t host_bytes,
                                   struct spec_error *reterr)
{
    struct sc_plugin_parcels *parcels = &device->parcels;
    struct sc_alloc *alloc = device->params.alloc;
    parcels->host = device->host + host_bytes;
    parcels->host_bytes = host_bytes;
    parcels->all = sc_alloc_array(alloc, SC_PLUGIN_PARCELS, sizeof(*parcels->all));
    if (parcels->all == NULL || !sc_gpu_stage_open(&parcels->ring, alloc, device->params.poison,
                                                   device->range.at + host_bytes,
                                                   device->params.store_bytes, SC_PLUGIN_PARCELS))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what stores have on their way");
    for (uint32_t i = 0; i < SC_PLUGIN_PARCELS; i++) {
        parcels->all[i].device = device;
        parcels->all[i].next = parcels->free;
        parcels->free = &parcels->all[i];
    }
    return SPEC_OK;
}

void sc_plugin_parcels_close(struct sc_plugin_device *device)
{
    struct sc_plugin_parcels *parcels = &device->parcels;
    bool is_forked = device->gpu != NULL && sc_gpu_is_forked(device->gpu);
    sc_gpu_stage_close(&parcels->ring, is_forked);
    sc_alloc_free(device->params.alloc, parcels->all);
    parcels->all = parcels->free = NULL;
}

static struct sc_plugin_parcel *object_take(struct sc_plugin_parcels *parcels)
{
    pthread_mutex_lock(&parcels->lock);
    struct sc_plugin_parcel *parcel = parcels->free;
    if (parcel != NULL)
        parcels->free = parcel->next;
    pthread_mutex_unlock(&parcels->lock);
    return parcel;
}

static void object_give(struct sc_plugin_parcels *parcels, struct sc_plugin_parcel *parcel)
{
    pthread_mutex_lock(&parcels->lock);
    parcel->next = parcels->free;
    parcels->free = parcel;
    pthread_mutex_unlock(&parcels->lock);
}

static uint64_t rows_bytes(const struct sc_plugin_parcel *parcel)
{
    return (parcel->row_count * parcel->row_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

struct sc_plugin_parcel *sc_plugin_parcel_take(struct sc_plugin_device *device, uint64_t row_count)
{
    struct sc_plugin_parcels *parcels = &device->parcels;
    const struct sc_plugin_shape *shape = device->params.shape;
    struct sc_plugin_parcel *parcel = object_take(parcels);
    if (parcel == NULL)
        return NULL;
    parcel->row_count = row_count;
    parcel->row_bytes =
        2ull * shape->kv_head_count * shape->head_size * sc_plugin_dtype_bytes(shape->dtype);
    parcel->is_sent = false;
    parcel->next = NULL;
    atomic_store_explicit(&parcel->flies, 0, memory_order_relaxed);
    if (!sc_gpu_stage_take(&parcels->ring, rows_bytes(parcel) + row_count * sizeof(int64_t),
                           &parcel->range)) {
        object_give(parcels, parcel);
        return NULL;
    }
    parcel->rows = parcels->host + (parcel->range.at - parcels->ring.base);
    return parcel;
}

void sc_plugin_parcel_give(struct sc_plugin_parcel *parcel)
{
    struct sc_plugin_device *device = parcel->device;
    SC_ASSERT(device->params.poison, sc_plugin_parcel_is_there(parcel));
    sc_gpu_stage_give(&device->parcels.ring, &parcel->range);
    object_give(&device->parcels, parcel);
}

/* ---- Sending -------------------------------------------------------------------------------- */

static void parcel_landed(void *held, void *user)
{
    struct sc_plugin_parcel *parcel = held;
    (void)user;
    atomic_store_explicit(&parcel->flies, 0, memory_order_release);
}

/* Slots go behind the rows, where the kernel reads them over the bus: 8 bytes a row, for which a
 * copy on the host's stream would cost more than it saves. The way back leaves them alone. */
static spec_status work_make(struct sc_plugin_parcel *parcel, const struct sc_kernels_move *how,
                             uint64_t first, struct sc_cuda_rows *ret_work,
                             struct sc_cuda_shape *ret_shape, struct spec_error *reterr)
{
    const struct sc_plugin_device *device = parcel->device;
    struct sc_cuda_rows work = {.rows = (uint8_t *)(uintptr_t)parcel->range.at,
                                .row_stride_bytes = parcel->row_bytes,
                                .token_first = first,
                                .row_count = (uint32_t)parcel->row_count,
                                .head_count = (uint32_t)how->head_count,
                                .head_size = (uint32_t)how->head_size,
                                .parts = SC_CUDA_K | SC_CUDA_V,
                                .element_bytes = (uint32_t)how->element_bytes,
                                .there_bytes = (uint32_t)how->element_bytes};
    if (!sc_cuda_memory_of(how->memory, how->element_bytes, &work.memory) ||
        parcel->row_count > UINT32_MAX ||
        !sc_cuda_rows_shape(&work, true, device->gpu->multiprocessors * BLOCKS_SM, ret_shape))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "a shape that no kernel takes");
    if (how->memory->slots != NULL) {
        uint8_t *slots = parcel->rows + rows_bytes(parcel);
        memcpy(slots, how->memory->slots + first, parcel->row_count * sizeof(int64_t));
        work.memory.slots = (const int64_t *)(uintptr_t)sc_gpu_pin_address(&device->pin, slots);
        work.token_first = 0;
    }
    *ret_work = work;
    return SPEC_OK;
}

/* Slot locked, device entered: the own_stream of it whose next flight boards, with the parcel; 0: none
 * has room. */
static uint32_t stream_begin(struct sc_plugin_parcel *parcel, struct sc_gpu_slot *slot)
{
    const struct sc_gpu_hold hold = {.give = parcel_landed, .held = parcel};
    if (sc_plugin_stream_begin(parcel->device, &slot->copies, &hold))
        return SC_GPU_COPIES;
    return sc_plugin_stream_begin(parcel->device, &slot->kernels, &hold) ? SC_GPU_KERNELS : 0;
}

/* Slot locked, device entered, the flight boards. It departs. */
static spec_status enqueue(struct sc_plugin_parcel *parcel, struct sc_gpu_slot *slot,
                           uint32_t which, void *stream, struct sc_cuda_rows *work,
                           const struct sc_cuda_shape *shape, struct spec_error *reterr)
{
    struct sc_gpu_device *gpu = parcel->device->gpu;
    struct sc_gpu_stream *own_stream = which == SC_GPU_COPIES ? &slot->copies : &slot->kernels;
    atomic_store_explicit(&parcel->flies, 1, memory_order_relaxed);
    spec_status status = sc_plugin_stream_launch(
        parcel->device, stream, SC_PLUGIN_KERNEL_sc_cuda_rows_pack, true, shape, work, reterr);
    if (status == SPEC_OK)
        status = sc_gpu_begin(gpu, slot, stream, which, reterr); /* E0, behind the kernel */
    if (status == SPEC_OK)
        status = sc_gpu_copy_out(gpu, own_stream, parcel->rows, parcel->range.at,
                                 parcel->row_count * parcel->row_bytes, reterr);
    status = sc_plugin_stream_submit(parcel->device, own_stream, status, reterr);
    if (status == SPEC_OK)
        return SPEC_OK;
    sc_gpu_stream_finish(gpu, stream); /* the kernel may be there, and no event behind it */
    (void)sc_gpu_flights_wait(gpu, own_stream, 0);
    return status;
}

/* The slots of stores, from the seat's own on, until one has room. */
static spec_status slots_try(struct sc_plugin_parcel *parcel, void *stream, uint64_t seat,
                             struct sc_cuda_rows *work, const struct sc_cuda_shape *shape,
                             struct spec_error *reterr)
{
    struct sc_plugin_device *device = parcel->device;
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_STORES; i++) {
        uint32_t number = SC_PLUGIN_DEVICE_SLOTS + (uint32_t)((seat + i) % SC_PLUGIN_DEVICE_STORES);
        struct sc_gpu_slot *slot = &device->gpu->slots[number];
        spec_status status = SPEC_OK;
        pthread_mutex_lock(&device->slot_locks[number]);
        uint32_t which = stream_begin(parcel, slot);
        if (which != 0)
            status = enqueue(parcel, slot, which, stream, work, shape, reterr);
        pthread_mutex_unlock(&device->slot_locks[number]);
        if (which != 0)
            return status;
    }
    return sc_fail(reterr, SPEC_E_BUSY, "all flights of stores are in the air");
}

spec_status sc_plugin_parcel_send(struct sc_plugin_parcel *parcel,
                                  const struct sc_kernels_move *how, void *stream, uint64_t first,
                                  uint64_t seat, struct spec_error *reterr)
{
    struct sc_gpu_device *gpu = parcel->device->gpu;
    struct sc_cuda_rows work;
    struct sc_cuda_shape shape;
    struct sc_gpu_entry entry;
    spec_status status = work_make(parcel, how, first, &work, &shape, reterr);
    if (status == SPEC_OK)
        status = sc_gpu_enter(gpu, &entry, reterr);
    if (status != SPEC_OK)
        return status;
    parcel->is_sent = true;
    status = slots_try(parcel, stream, seat, &work, &shape, reterr);
    sc_gpu_leave(gpu, &entry);
    return status;
}

/* ---- Coming --------------------------------------------------------------------------------- */

void sc_plugin_parcels_reap(struct sc_plugin_device *device)
{
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_STORES; i++) {
        struct sc_gpu_slot *slot = &device->gpu->slots[SC_PLUGIN_DEVICE_SLOTS + i];
        (void)sc_gpu_flights_reap(device->gpu, &slot->copies);
        (void)sc_gpu_flights_reap(device->gpu, &slot->kernels);
    }
}

bool sc_plugin_parcel_is_there(const struct sc_plugin_parcel *parcel)
{
    return atomic_load_explicit(&parcel->flies, memory_order_acquire) == 0;
}

/* A flight that lands because its device has failed may have carried nothing. */
spec_status sc_plugin_parcel_check(const struct sc_plugin_parcel *parcel, struct spec_error *reterr)
{
    const struct sc_gpu_device *gpu = parcel->device->gpu;
    if (!parcel->is_sent || !sc_gpu_has_failed(gpu))
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_IO, "CUDA device %" PRIu32 " failed: %s", gpu->ordinal,
                   gpu->failed_text);
}
