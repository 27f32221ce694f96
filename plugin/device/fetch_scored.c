/* fetch_scored.h: copies queries, new keys and hints to host memory. */
#include "plugin/device/fetch_scored.h"

#include "plugin/device/device_stream.h"
#include "plugin/device/h2d_batch.h"

#include <string.h>

#define LINE_BYTES 64u
#define UP(bytes)  (((bytes) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES)
#define BLOCKS_SM  4u

spec_status sc_plugin_afar_check(struct sc_plugin_device *device, int32_t ordinal, void *stream,
                                 const void *base, uint64_t bytes, struct spec_error *reterr)
{
    struct sc_gpu_entry entry;
    spec_status status = sc_plugin_device_attach(device, ordinal, reterr);
    if (status == SPEC_OK)
        status = sc_gpu_enter(device->gpu, &entry, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_gpu_stream_check(device->gpu, stream, reterr);
    if (status == SPEC_OK && bytes > 0)
        status = sc_gpu_memory_check(device->gpu, (uintptr_t)base, bytes, reterr);
    sc_gpu_leave(device->gpu, &entry);
    return status;
}

spec_status sc_plugin_afar_memory_check(void *user, const struct spec_memory *host,
                                        struct sc_plugin_memory *memory, struct spec_error *reterr)
{
    memory->stream = host->stream;
    return sc_plugin_afar_check(user, host->device_index, host->stream, host->k_base, host->k_bytes,
                                reterr);
}

uint8_t *sc_plugin_afar_room(const struct sc_plugin_device *device, uint64_t room)
{
    return device->rooms + room * device->params.room_bytes;
}

static uint64_t row_bytes(const struct sc_plugin_afar *afar)
{
    return afar->head_count * afar->head_size * afar->at.element_bytes;
}

uint64_t sc_plugin_afar_bytes(const struct sc_plugin_afar *afar)
{
    return afar->device != NULL ? UP(afar->row_count * row_bytes(afar)) : 0;
}

void sc_plugin_afar_begin(struct sc_plugin_afar *afar)
{
    struct sc_plugin_device *device = afar->device;
    struct sc_gpu_entry entry;
    if (device == NULL)
        return;
    afar->begun = sc_gpu_enter(device->gpu, &entry, NULL);
    if (afar->begun != SPEC_OK)
        return;
    pthread_mutex_lock(&device->slot_locks[afar->slot]);
    afar->begun = sc_gpu_begin(device->gpu, &device->gpu->slots[afar->slot], afar->stream,
                               SC_GPU_KERNELS, NULL);
    pthread_mutex_unlock(&device->slot_locks[afar->slot]);
    sc_gpu_leave(device->gpu, &entry);
}

/* Rows fetched together, in pinned memory and as much on the device: [their slots][packed rows]. */
struct piece {
    const struct sc_plugin_afar *afar;
    uint8_t *host;
    uint64_t there;
    uint64_t first, count;
    uint64_t at;            /* offset of the packed rows */
    _Atomic uint32_t *over; /* 1: the device no longer uses that memory */
};

static struct piece piece_of(const struct sc_plugin_afar *afar,
                             const struct sc_plugin_pinned *pinned, uint64_t first)
{
    struct piece piece = {.afar = afar, .host = pinned->host, .there = pinned->at, .first = first};
    uint64_t most =
        (afar->device->pinned_buffer_bytes - LINE_BYTES) / (row_bytes(afar) + sizeof(int64_t));
    uint64_t left = afar->row_count - first;
    piece.count = left < most ? left : most;
    piece.at = afar->at.slots != NULL ? UP(piece.count * sizeof(int64_t)) : 0;
    return piece;
}

/* Slot locked, device entered. Packs on one of our streams, or on the host's. */
static spec_status piece_pack(const struct piece *piece, sc_cu_stream stream, const int64_t *slots,
                              struct spec_error *reterr)
{
    const struct sc_plugin_afar *afar = piece->afar;
    struct sc_gpu_device *gpu = afar->device->gpu;
    struct sc_cuda_rows rows = {.rows = (uint8_t *)(uintptr_t)(piece->there + piece->at),
                                .row_stride_bytes = row_bytes(afar),
                                .token_first = slots != NULL ? 0 : piece->first,
                                .row_count = (uint32_t)piece->count,
                                .head_count = (uint32_t)afar->head_count,
                                .head_size = (uint32_t)afar->head_size,
                                .parts = SC_CUDA_K,
                                .element_bytes = (uint32_t)afar->at.element_bytes,
                                .there_bytes = (uint32_t)afar->at.element_bytes,
                                .dtype = SC_CUDA_F32}; /* copied as bytes */
    struct sc_cuda_shape shape;
    bool fits = sc_cuda_memory_of(&afar->at, afar->at.element_bytes, &rows.memory) &&
                sc_cuda_rows_shape(&rows, true, gpu->multiprocessors * BLOCKS_SM, &shape);
    rows.memory.slots = slots;
    return sc_plugin_stream_launch(afar->device, stream, SC_PLUGIN_KERNEL_sc_cuda_rows_pack, fits,
                                   &shape, &rows, reterr);
}

static spec_status piece_copy(const struct piece *piece, struct sc_gpu_stream *own_stream,
                              struct spec_error *reterr)
{
    return sc_gpu_copy_out(piece->afar->device->gpu, own_stream, piece->host + piece->at,
                           piece->there + piece->at, piece->count * row_bytes(piece->afar), reterr);
}

/* Slot locked, device entered. */
static spec_status piece_send(const struct piece *piece, struct sc_gpu_stream *own_stream,
                              struct spec_error *reterr)
{
    const struct sc_plugin_afar *afar = piece->afar;
    struct sc_gpu_device *gpu = afar->device->gpu;
    const int64_t *slots = NULL;
    const struct sc_gpu_hold hold = sc_plugin_stream_hold(piece->over);
    spec_status status = SPEC_OK;
    sc_plugin_stream_begin_wait(afar->device, own_stream, &hold);
    if (afar->at.slots != NULL) {
        uint64_t bytes = piece->count * sizeof(int64_t);
        slots = (const int64_t *)(uintptr_t)piece->there;
        memcpy(piece->host, afar->at.slots + piece->first, bytes);
        status = sc_gpu_copy_in(gpu, own_stream, piece->there, piece->host, bytes, reterr);
    }
    if (status == SPEC_OK)
        status = piece_pack(piece, own_stream->stream, slots, reterr);
    if (status == SPEC_OK)
        status = piece_copy(piece, own_stream, reterr);
    return sc_plugin_stream_submit(afar->device, own_stream, status, reterr);
}

static spec_status piece_fetch(struct piece *piece, uint8_t *to, struct spec_error *reterr)
{
    _Atomic uint32_t over = 0;
    const struct sc_plugin_afar *afar = piece->afar;
    struct sc_plugin_device *device = afar->device;
    struct sc_gpu_stream *own_stream = &device->gpu->slots[afar->slot].kernels;
    struct sc_gpu_entry entry;
    spec_status status = sc_gpu_enter(device->gpu, &entry, reterr);
    if (status != SPEC_OK)
        return status;
    piece->over = &over;
    pthread_mutex_lock(&device->slot_locks[afar->slot]);
    status = piece_send(piece, own_stream, reterr);
    pthread_mutex_unlock(&device->slot_locks[afar->slot]);
    sc_gpu_leave(device->gpu, &entry);
    sc_plugin_stream_await(device, own_stream, &over);
    if (status == SPEC_OK && sc_gpu_has_failed(device->gpu)) /* possibly before the copy */
        status = sc_fail(reterr, SPEC_E_IO, "%s", device->gpu->failed_text);
    if (status == SPEC_OK)
        memcpy(to + piece->first * row_bytes(afar), piece->host + piece->at,
               piece->count * row_bytes(afar));
    return status;
}

spec_status sc_plugin_afar_fail(const struct sc_plugin_device *device, spec_status status,
                                struct spec_error *reterr)
{
    const char *why = status == SPEC_E_INVALID ? "the stream is not one to wait for"
                                               : "a shape that no kernel takes";
    if (sc_gpu_has_failed(device->gpu))
        why = device->gpu->failed_text;
    return sc_fail(reterr, status, "get_important: queries or new keys: %s", why);
}

spec_status sc_plugin_afar_fetch(const struct sc_plugin_afar *afar, uint8_t *to,
                                 struct spec_error *reterr)
{
    struct sc_plugin_device *device = afar->device;
    spec_status status = afar->begun;
    for (uint64_t first = 0; first < afar->row_count && status == SPEC_OK;) {
        struct sc_plugin_pinned *pinned = sc_plugin_pinned_take(device, afar->slot);
        struct piece piece = piece_of(afar, pinned, first);
        status = piece_fetch(&piece, to, reterr);
        sc_plugin_pinned_give(pinned);
        first += piece.count;
    }
    return status == SPEC_OK ? status : sc_plugin_afar_fail(device, status, reterr);
}


static struct sc_gpu_slot *hint_slot(const struct sc_plugin_afar *afar)
{
    return &afar->device->gpu->slots[sc_plugin_device_hint_slot(afar->slot)];
}

/* Slot locked, device entered. Never waits: the host's stream packs, then may reuse the hint. */
static bool hint_enqueue(const struct piece *piece)
{
    const struct sc_plugin_afar *afar = piece->afar;
    struct sc_gpu_device *gpu = afar->device->gpu;
    struct sc_gpu_slot *slot = hint_slot(afar);
    struct sc_gpu_stream *own_stream = &slot->kernels;
    const struct sc_gpu_hold hold = sc_plugin_stream_hold(piece->over);
    if (!sc_plugin_stream_begin(afar->device, own_stream, &hold))
        return false;
    atomic_store_explicit(piece->over, 0, memory_order_relaxed);
    spec_status status = piece_pack(piece, afar->stream, NULL, NULL);
    if (status == SPEC_OK)
        status = sc_gpu_begin(gpu, slot, afar->stream, SC_GPU_KERNELS, NULL);
    if (status == SPEC_OK)
        status = piece_copy(piece, own_stream, NULL);
    if (status != SPEC_OK)
        sc_gpu_stream_finish(gpu, afar->stream); /* the kernel may be enqueued, without event */
    return sc_plugin_stream_submit(afar->device, own_stream, status, NULL) == SPEC_OK;
}

bool sc_plugin_hint_send(const struct sc_plugin_afar *afar, struct sc_plugin_device_hint *hint)
{
    struct sc_plugin_device *device = afar->device;
    const struct piece piece = {.afar = afar,
                                .host = hint->host,
                                .there = hint->at,
                                .count = afar->row_count,
                                .over = &hint->over};
    struct sc_gpu_entry entry;
    uint32_t slot = sc_plugin_device_hint_slot(afar->slot);
    (void)sc_gpu_events_reap(device->gpu, &hint_slot(afar)->kernels);
    if (!sc_plugin_hint_is_over(hint) || sc_gpu_enter(device->gpu, &entry, NULL) != SPEC_OK)
        return false;
    pthread_mutex_lock(&device->slot_locks[slot]);
    bool is_sent = hint_enqueue(&piece);
    pthread_mutex_unlock(&device->slot_locks[slot]);
    sc_gpu_leave(device->gpu, &entry);
    return is_sent;
}

const uint8_t *sc_plugin_hint_look(const struct sc_plugin_afar *afar,
                                   const struct sc_plugin_device_hint *hint, bool *ret_is_over)
{
    struct sc_gpu_device *gpu = afar->device->gpu;
    (void)sc_gpu_events_reap(gpu, &hint_slot(afar)->kernels);
    *ret_is_over = sc_plugin_hint_is_over(hint);
    return *ret_is_over && !sc_gpu_has_failed(gpu) ? hint->host : NULL;
}

struct sc_plugin_afar sc_plugin_hint_afar(const struct sc_plugin_afar *afar,
                                          const struct sc_plugin_device_hint *hint)
{
    struct sc_plugin_afar there = *afar;
    uint64_t head_bytes = afar->head_size * afar->at.element_bytes;
    there.slot = sc_plugin_device_score_slot(afar->slot);
    there.at.k_base = there.at.v_base = (uint8_t *)(uintptr_t)hint->at;
    there.at.head_stride_bytes = head_bytes;
    there.at.token_stride_bytes = afar->head_count * head_bytes;
    there.begun = SPEC_OK;
    return there;
}
