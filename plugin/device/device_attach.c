/* device_tables.h: attaches the device and checks its memory.
 *
 *   open      computes sizes
 *   attach    once, when device memory is first named: streams, pinned memory, pinned buffers
 *   close     waits for the device */
#include "plugin/device/device_tables.h"

#include "gpu/work.h"
#include "plugin/device/d2h_batch.h"
#include "plugin/device/direct.h"
#include "plugin/device/h2d_batch.h"
#include "plugin/device/images.h"

#include <string.h>

#define PINNED_BYTES     (2ull << 20)
#define PINNED_COUNT_MIN 4u
#define FLIGHTS          32u /* ring entries of a stream */
#define ALIGN_BYTES 256u
#define PAGE_BYTES  4096u /* whole pages are pinned */
#define LINE_BYTES       64u   /* alignment of a room: any number type */

static const char *const KERNELS[] = {
#define NAME(name, params, threads) #name,
    SC_CUDA_KERNELS(NAME)
#undef NAME
};

void sc_plugin_device_open(struct sc_plugin_device *device,
                           const struct sc_plugin_device_params *params)
{
    const struct sc_plugin_shape *shape = params->shape;
    uint64_t channels = (uint64_t)shape->kv_head_count * shape->head_size;
    device->params = *params;
    device->params.room_bytes = (params->room_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    device->params.score_bytes = params->score_bytes / ALIGN_BYTES * ALIGN_BYTES;
    device->params.store_bytes = (params->store_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    pthread_mutex_init(&device->attach_lock, NULL);
    pthread_mutex_init(&device->pinned_lock, NULL);
    pthread_mutex_init(&device->table_lock, NULL);
    pthread_mutex_init(&device->d2h_batches.lock, NULL);
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_PAIRS; i++)
        pthread_mutex_init(&device->slot_locks[i], NULL);
    /* Two runs a unit; one may be short at each border of a head's groups. */
    uint64_t units = channels / SC_CUDA_RUN + 8ull * shape->kv_head_count;
    device->table_bytes = sizeof(struct sc_cuda_bitplanes_table) +
                          units * (sizeof(struct sc_cuda_unit) +
                                   SC_KERNELS_BITPLANES * sizeof(struct sc_cuda_unit_plane));
    device->table_bytes = (device->table_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    uint64_t least = sc_plugin_h2d_batch_least(device);
    uint64_t query_row = channels * params->query_group * sizeof(float);
    least = least > query_row + PAGE_BYTES ? least : query_row + PAGE_BYTES;
    device->pinned_buffer_bytes = PINNED_BYTES > least ? PINNED_BYTES : least;
    device->pinned_buffer_bytes =
        (device->pinned_buffer_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}


static void detach(struct sc_plugin_device *device)
{
    struct sc_alloc *alloc = device->params.alloc;
    sc_plugin_d2h_batches_close(device);
    sc_gpu_unpin(&device->pin);
    sc_gpu_staging_close(&device->scores, device->gpu != NULL && sc_gpu_is_forked(device->gpu));
    if (device->gpu != NULL) {
        sc_gpu_staging_give(&device->gpu->staging, &device->score_range);
        sc_gpu_staging_give(&device->gpu->staging, &device->range);
    }
    sc_plugin_direct_close(device);
    sc_gpu_device_detach(device->gpu);
    sc_plugin_h2d_batches_close(device);
    sc_alloc_free(alloc, device->hints);
    sc_alloc_free(alloc, device->rooms);
    sc_alloc_free(alloc, device->tables_memory);
    sc_alloc_free(alloc, device->pinned_buffers);
    sc_alloc_free(alloc, device->host);
    device->gpu = NULL;
    device->range = device->score_range = (struct sc_gpu_range){0};
    device->scores = (struct sc_gpu_staging){0};
    device->tables_memory = device->host = device->rooms = NULL;
    device->pinned_buffers = device->free = NULL;
    device->hints = NULL;
}

static uint64_t hint_stride(const struct sc_plugin_device *device)
{
    return (device->params.hint_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Offset after the pinned buffers and the memory of stores: whole pages. */
static uint64_t hints_first(const struct sc_plugin_device *device)
{
    return device->pinned_count * device->pinned_buffer_bytes + device->params.store_bytes;
}

static uint64_t pinned_bytes(const struct sc_plugin_device *device)
{
    uint64_t hints = device->params.hint_count * hint_stride(device);
    return hints_first(device) + (hints + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static void share_out(struct sc_plugin_device *device)
{
    uint64_t behind = hints_first(device);
    for (uint64_t i = 0; i < device->pinned_count; i++) {
        struct sc_plugin_pinned *pinned = &device->pinned_buffers[i];
        pinned->device = device;
        pinned->host = device->host + i * device->pinned_buffer_bytes;
        pinned->at = device->range.at + i * device->pinned_buffer_bytes;
        pinned->next = device->free;
        device->free = pinned;
    }
    for (uint64_t i = 0; i < device->params.hint_count; i++) {
        struct sc_plugin_device_hint *hint = &device->hints[i];
        hint->host = device->host + behind + i * hint_stride(device);
        hint->at = device->range.at + behind + i * hint_stride(device);
        atomic_init(&hint->over, 1);
    }
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_TABLES; i++)
        device->tables[i].table = device->tables_memory + i * device->table_bytes;
}

static spec_status scores_open(struct sc_plugin_device *device, struct spec_error *reterr)
{
    const struct sc_plugin_device_params *params = &device->params;
    if (params->score_bytes > 0 &&
        !sc_gpu_staging_take(&device->gpu->staging, params->score_bytes, &device->score_range))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "no staging on the device");
    if (!sc_gpu_staging_open(&device->scores, params->alloc, params->poison, device->score_range.at,
                             params->score_bytes, params->room_count))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what %" PRIu64 " scorings stand in",
                       params->room_count);
    return SPEC_OK;
}

static spec_status make_memory(struct sc_plugin_device *device, struct spec_error *reterr)
{
    struct sc_alloc *alloc = device->params.alloc;
    uint64_t bytes = pinned_bytes(device), hint_count = device->params.hint_count;
    device->host = sc_alloc_huge(alloc, bytes);
    device->pinned_buffers =
        sc_alloc_array(alloc, device->pinned_count, sizeof(*device->pinned_buffers));
    device->tables_memory =
        sc_alloc_aligned(alloc, SC_PLUGIN_DEVICE_TABLES * device->table_bytes, ALIGN_BYTES);
    if (device->host == NULL || device->pinned_buffers == NULL || device->tables_memory == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY,
                       "gpu.staging_bytes, gpu.store_bytes: %" PRIu64 " bytes", bytes);
    if (hint_count > 0)
        device->hints = sc_alloc_array(alloc, hint_count, sizeof(*device->hints));
    if (hint_count > 0 && device->hints == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " hints", hint_count);
    uint64_t rooms_bytes = device->params.room_count * device->params.room_bytes;
    device->rooms = rooms_bytes > 0 ? sc_alloc_huge(alloc, rooms_bytes) : NULL;
    if (device->rooms == NULL && rooms_bytes > 0)
        return sc_fail(reterr, SPEC_E_NO_MEMORY,
                       "gpu.query_bytes: %" PRIu64 " bytes for %" PRIu64 " scorings", rooms_bytes,
                       device->params.room_count);
    spec_status status = sc_plugin_h2d_batches_open(device, reterr);
    if (status == SPEC_OK)
        status = sc_gpu_pin(device->gpu, device->host, bytes, &device->pin, reterr);
    if (status == SPEC_OK && !sc_gpu_staging_take(&device->gpu->staging, bytes, &device->range))
        status = sc_fail(reterr, SPEC_E_UNSUPPORTED, "no staging on the device");
    if (status == SPEC_OK)
        status = sc_plugin_d2h_batches_open(
            device, device->pinned_count * device->pinned_buffer_bytes, reterr);
    if (status == SPEC_OK)
        status = scores_open(device, reterr);
    if (status == SPEC_OK) {
        sc_plugin_direct_open(device);
        share_out(device);
    }
    return status;
}

/* Lock held. */
static spec_status attach(struct sc_plugin_device *device, uint32_t ordinal,
                          struct spec_error *reterr)
{
    struct sc_gpu_image images[SC_PLUGIN_IMAGES];
    device->pinned_count = device->params.staging_bytes / device->pinned_buffer_bytes;
    device->pinned_count =
        device->pinned_count > PINNED_COUNT_MIN ? device->pinned_count : PINNED_COUNT_MIN;
    const struct sc_gpu_params params = {
        .alloc = device->params.alloc,
        .poison = device->params.poison,
        .ordinal = ordinal,
        .images = images,
        .image_count = sc_plugin_images(images),
        .kernels = KERNELS,
        .kernel_count = sizeof(KERNELS) / sizeof(KERNELS[0]),
        .slot_count = SC_PLUGIN_DEVICE_PAIRS,
        .urgent_count = SC_PLUGIN_DEVICE_ASKS + SC_PLUGIN_DEVICE_SCORES,
        .event_count = FLIGHTS,
        .hold_max = 1,
        .staging_bytes = pinned_bytes(device) + ALIGN_BYTES + device->params.score_bytes,
        .stage_ranges = 2};
    spec_status status = sc_gpu_device_attach(&params, &device->gpu, reterr);
    if (status == SPEC_OK)
        status = make_memory(device, reterr);
    if (status == SPEC_OK && sc_gpu_has_failed(device->gpu)) /* possibly while leaving it */
        status = sc_fail(reterr, SPEC_E_UNSUPPORTED, "CUDA device %" PRIu32 " is closed since %s",
                         ordinal, device->gpu->failed_text);
    if (status != SPEC_OK)
        detach(device);
    return status;
}

static spec_status attach_once(struct sc_plugin_device *device, int32_t ordinal,
                               struct spec_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint32_t state = atomic_load_explicit(&device->state, memory_order_acquire);
    if (state == SC_PLUGIN_DEVICE_ATTACHED)
        return SPEC_OK;
    if (state == SC_PLUGIN_DEVICE_REFUSED && device->refused == ordinal)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s", device->why);
    spec_status status = attach(device, (uint32_t)ordinal, &error);
    if (status == SPEC_OK) {
        atomic_store_explicit(&device->state, SC_PLUGIN_DEVICE_ATTACHED, memory_order_release);
        SC_LOG(device->params.log, SPEC_LOG_INFO, "device %" PRId32 " is attached: %s", ordinal,
               device->gpu->name);
        return SPEC_OK;
    }
    if (status == SPEC_E_UNSUPPORTED) { /* a retry would fail too */
        memcpy(device->why, error.text,
               sizeof(error.text) < sizeof(device->why) ? sizeof(error.text)
                                                        : sizeof(device->why) - 1);
        device->refused = ordinal;
        atomic_store_explicit(&device->state, SC_PLUGIN_DEVICE_REFUSED, memory_order_release);
        SC_LOG(device->params.log, SPEC_LOG_WARN, "no CUDA memory: %s", error.text);
    }
    return sc_fail(reterr, status, "%s", error.text);
}

spec_status sc_plugin_device_attach(struct sc_plugin_device *device, int32_t ordinal,
                                    struct spec_error *reterr)
{
    if (ordinal < 0)
        return sc_fail(reterr, SPEC_E_INVALID, "device_index is %" PRId32, ordinal);
    spec_status status = SPEC_OK;
    if (atomic_load_explicit(&device->state, memory_order_acquire) != SC_PLUGIN_DEVICE_ATTACHED) {
        pthread_mutex_lock(&device->attach_lock);
        status = attach_once(device, ordinal, reterr);
        pthread_mutex_unlock(&device->attach_lock);
    }
    if (status == SPEC_OK && device->gpu->ordinal != (uint32_t)ordinal)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "device_index is %" PRId32 ", this connector's device is %" PRIu32, ordinal,
                       device->gpu->ordinal);
    return status;
}

void sc_plugin_device_close(struct sc_plugin_device *device)
{
    if (device->params.alloc == NULL)
        return; /* not opened */
    if (atomic_load(&device->state) == SC_PLUGIN_DEVICE_ATTACHED && !sc_gpu_is_forked(device->gpu))
        for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_PAIRS; i++) {
            (void)sc_gpu_events_wait(device->gpu, &device->gpu->slots[i].copies, 0);
            (void)sc_gpu_events_wait(device->gpu, &device->gpu->slots[i].kernels, 0);
        }
    detach(device);
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_PAIRS; i++)
        pthread_mutex_destroy(&device->slot_locks[i]);
    pthread_mutex_destroy(&device->d2h_batches.lock);
    pthread_mutex_destroy(&device->table_lock);
    pthread_mutex_destroy(&device->pinned_lock);
    pthread_mutex_destroy(&device->attach_lock);
}


spec_status sc_plugin_h2d_batch_check(void *user, const struct spec_memory *host,
                                      struct sc_plugin_memory *memory, struct spec_error *reterr)
{
    const struct sc_plugin_device_seat *seat = user;
    struct sc_plugin_device *device = seat->device;
    struct sc_cuda_memory there;
    struct sc_gpu_entry entry;
    if (device->params.shape->row_bytes != 0)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "device memory of a model whose layers, or K and V, are not all alike");
    spec_status status = sc_plugin_device_attach(device, host->device_index, reterr);
    if (status == SPEC_OK && !sc_cuda_memory_of(&memory->at, memory->at.element_bytes, &there))
        status =
            sc_fail(reterr, SPEC_E_UNSUPPORTED, "device memory with elements of %" PRIu64 " bytes",
                    memory->at.element_bytes);
    if (status == SPEC_OK)
        status = sc_gpu_enter(device->gpu, &entry, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_gpu_stream_check(device->gpu, host->stream, reterr);
    /* 0 bytes: a destination of a request without a match. */
    if (status == SPEC_OK && host->k_bytes > 0)
        status = sc_gpu_memory_check(device->gpu, (uintptr_t)host->k_base, host->k_bytes, reterr);
    if (status == SPEC_OK && host->v_bytes > 0)
        status = sc_gpu_memory_check(device->gpu, (uintptr_t)host->v_base, host->v_bytes, reterr);
    sc_gpu_leave(device->gpu, &entry);
    memory->target = &sc_plugin_target_cuda;
    memory->batch = &device->batches[seat->request];
    memory->stream = host->stream;
    return status;
}
