/* device.h: attach and detach. */
#include "gpu/device.h"

#include "gpu/library.h"

#include <unistd.h>

#define LOG_BYTES 512u /* bytes of the driver's compiler log that are kept */

/* ---- Attach ---------------------------------------------------------------------------------- */

static spec_status refused(const struct sc_gpu_device *device, sc_cu_result code, const char *call,
                           struct spec_error *reterr)
{
    char text[160];
    return sc_fail(reterr, SPEC_E_UNSUPPORTED, "CUDA device %u: %s: %s", device->ordinal, call,
                   sc_gpu_result_text(device->cu, code, text, sizeof(text)));
}

static bool is_better(const struct sc_gpu_image *image, const struct sc_gpu_image *best)
{
    if (best == NULL || image->kind != best->kind)
        return best == NULL || image->kind < best->kind;
    return image->capability > best->capability;
}

const struct sc_gpu_image *sc_gpu_image_select(const struct sc_gpu_image *images, uint32_t count,
                                               uint32_t capability)
{
    const struct sc_gpu_image *best = NULL;
    for (uint32_t i = 0; i < count; i++) {
        bool fits = images[i].capability <= capability && images[i].byte_count > 0;
        if (images[i].kind == SC_GPU_CUBIN)
            fits = fits && images[i].capability / 10 == capability / 10;
        if (images[i].kind == SC_GPU_PTX) /* the driver reads up to the NUL */
            fits = fits && ((const char *)images[i].bytes)[images[i].byte_count - 1] == '\0';
        if (fits && is_better(&images[i], best))
            best = &images[i];
    }
    return best;
}

static spec_status device_find(struct sc_gpu_device *device, struct spec_error *reterr)
{
    const struct sc_cu *cu = device->cu;
    int count = 0, major = 0, minor = 0, multiprocessors = 0;
    sc_cu_result code = cu->cuDeviceGetCount(&count);
    if (code != SC_CU_OK)
        return refused(device, code, "cuDeviceGetCount", reterr);
    if (device->ordinal >= (uint32_t)count)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "no CUDA device %u, there are %d",
                       device->ordinal, count);
    code = cu->cuDeviceGet(&device->handle, (int)device->ordinal);
    if (code != SC_CU_OK)
        return refused(device, code, "cuDeviceGet", reterr);
    code = cu->cuDeviceGetName(device->name, sizeof(device->name), device->handle);
    if (code != SC_CU_OK)
        return refused(device, code, "cuDeviceGetName", reterr);
    const struct {
        int attribute, *value;
    } wanted[] = {{SC_CU_CAPABILITY_MAJOR, &major},
                  {SC_CU_CAPABILITY_MINOR, &minor},
                  {SC_CU_MULTIPROCESSORS, &multiprocessors}};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        code = cu->cuDeviceGetAttribute(wanted[i].value, wanted[i].attribute, device->handle);
        if (code != SC_CU_OK)
            return refused(device, code, "cuDeviceGetAttribute", reterr);
    }
    device->capability = (uint32_t)(10 * major + minor);
    device->multiprocessors = (uint32_t)multiprocessors;
    if (device->capability < SC_CU_CAPABILITY_MIN)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "CUDA device %u (%s) has capability %d.%d, needed is %u.%u", device->ordinal,
                       device->name, major, minor, SC_CU_CAPABILITY_MIN / 10,
                       SC_CU_CAPABILITY_MIN % 10);
    return SPEC_OK;
}

static spec_status module_load(struct sc_gpu_device *device, const struct sc_gpu_params *params,
                               struct spec_error *reterr)
{
    const struct sc_cu *cu = device->cu;
    device->image = sc_gpu_image_select(params->images, params->image_count, device->capability);
    if (device->image == NULL)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "CUDA device %u (%s): no kernels for capability %u.%u", device->ordinal,
                       device->name, device->capability / 10, device->capability % 10);
    char log[LOG_BYTES] = "";
    sc_cu_jit_option options[] = {SC_CU_JIT_ERROR_LOG_BUFFER, SC_CU_JIT_ERROR_LOG_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(sizeof(log) - 1)};
    sc_cu_result code =
        cu->cuModuleLoadDataEx(&device->module, device->image->bytes, 2, options, values);
    if (code != SC_CU_OK) {
        char text[160];
        device->module = NULL;
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "CUDA device %u: cuModuleLoadDataEx: %s; %s",
                       device->ordinal, sc_gpu_result_text(cu, code, text, sizeof(text)), log);
    }
    for (uint32_t i = 0; i < params->kernel_count; i++) {
        code = cu->cuModuleGetFunction(&device->functions[i], device->module, params->kernels[i]);
        if (code != SC_CU_OK)
            return refused(device, code, params->kernels[i], reterr);
    }
    device->kernel_count = params->kernel_count;
    return SPEC_OK;
}

static spec_status event_create(struct sc_gpu_device *device, sc_cu_event *ret_event,
                                struct spec_error *reterr)
{
    sc_cu_result code = device->cu->cuEventCreate(ret_event, SC_CU_EVENT_DISABLE_TIMING |
                                                                 SC_CU_EVENT_BLOCKING_SYNC);
    if (code == SC_CU_OK)
        return SPEC_OK;
    *ret_event = NULL;
    return refused(device, code, "cuEventCreate", reterr);
}

static spec_status stream_open(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                               int priority, const struct sc_gpu_params *params,
                               struct spec_error *reterr)
{
    sc_cu_result code = device->cu->cuStreamCreateWithPriority(&own_stream->stream,
                                                               SC_CU_STREAM_NON_BLOCKING, priority);
    if (code != SC_CU_OK) {
        own_stream->stream = NULL;
        return refused(device, code, "cuStreamCreateWithPriority", reterr);
    }
    spec_status status = event_create(device, &own_stream->mark, reterr);
    if (status == SPEC_OK)
        status = sc_gpu_events_open(device, &own_stream->event_ring, params->event_count,
                                    params->hold_max, reterr);
    return status;
}

static spec_status slots_open(struct sc_gpu_device *device, const struct sc_gpu_params *params,
                              struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    int least = 0, greatest = 0;
    sc_cu_result code = device->cu->cuCtxGetStreamPriorityRange(&least, &greatest);
    if (code != SC_CU_OK)
        return refused(device, code, "cuCtxGetStreamPriorityRange", reterr);
    for (uint32_t i = 0; i < device->slot_count && status == SPEC_OK; i++) {
        struct sc_gpu_slot *slot = &device->slots[i];
        int priority = device->slot_count - i <= params->urgent_count ? greatest : 0;
        status = stream_open(device, &slot->copies, priority, params, reterr);
        if (status == SPEC_OK)
            status = stream_open(device, &slot->kernels, priority, params, reterr);
        if (status == SPEC_OK)
            status = event_create(device, &slot->begin, reterr);
        if (status == SPEC_OK)
            status = event_create(device, &slot->end, reterr);
    }
    return status;
}

static spec_status stage_open(struct sc_gpu_device *device, const struct sc_gpu_params *params,
                              struct spec_error *reterr)
{
    if (params->staging_bytes > 0) {
        sc_cu_result code = device->cu->cuMemAlloc(&device->staging_base, params->staging_bytes);
        if (code != SC_CU_OK) {
            device->staging_base = 0;
            return refused(device, code, "cuMemAlloc", reterr);
        }
    }
    if (!sc_gpu_staging_open(&device->staging, device->alloc, device->poison, device->staging_base,
                             params->staging_bytes, params->stage_ranges))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "ranges of CUDA staging");
    return SPEC_OK;
}

static spec_status context_fill(struct sc_gpu_device *device, const struct sc_gpu_params *params,
                                struct spec_error *reterr)
{
    struct sc_gpu_entry entry;
    if (sc_gpu_enter(device, &entry, NULL) != SPEC_OK)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "CUDA device %u cannot be entered: %s",
                       device->ordinal, device->failed_text);
    spec_status status = module_load(device, params, reterr);
    if (status == SPEC_OK)
        status = slots_open(device, params, reterr);
    if (status == SPEC_OK)
        status = stage_open(device, params, reterr);
    sc_gpu_leave(device, &entry);
    return status;
}

/* Opens the context and its contents; on an error the caller undoes what was created. */
static spec_status context_open(struct sc_gpu_device *device, const struct sc_gpu_params *params,
                                struct spec_error *reterr)
{
    struct sc_gpu_entry half;
    sc_gpu_relax(device, &half);
    spec_status status = SPEC_OK;
    sc_cu_result code = device->cu->cuDevicePrimaryCtxRetain(&device->context, device->handle);
    if (code != SC_CU_OK) {
        device->context = NULL;
        status = refused(device, code, "cuDevicePrimaryCtxRetain", reterr);
    }
    if (status == SPEC_OK)
        status = context_fill(device, params, reterr);
    sc_gpu_leave(device, &half);
    if (status == SPEC_OK && sc_gpu_has_failed(device))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "CUDA device %u cannot be left: %s",
                       device->ordinal, device->failed_text);
    return status;
}

static spec_status device_new(const struct sc_gpu_params *params, const struct sc_cu *cu,
                              struct sc_gpu_device **ret_device, struct spec_error *reterr)
{
    struct sc_gpu_device *device = sc_alloc_zero(params->alloc, sizeof(*device));
    if (device == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "CUDA device");
    device->alloc = params->alloc;
    device->poison = params->poison;
    device->cu = cu;
    device->owner = getpid();
    device->ordinal = params->ordinal;
    pthread_mutex_init(&device->lock, NULL); /* cannot fail without attributes */
    device->functions =
        sc_alloc_array(params->alloc, params->kernel_count, sizeof(*device->functions));
    device->slots = sc_alloc_array(params->alloc, params->slot_count, sizeof(*device->slots));
    device->slot_count = device->slots != NULL ? params->slot_count : 0;
    *ret_device = device;
    return device->functions != NULL && device->slots != NULL
               ? SPEC_OK
               : sc_fail(reterr, SPEC_E_NO_MEMORY, "CUDA device's tables");
}

spec_status sc_gpu_device_attach(const struct sc_gpu_params *params,
                                 struct sc_gpu_device **ret_device, struct spec_error *reterr)
{
    if (params->slot_count == 0 || params->event_count == 0)
        return sc_fail(reterr, SPEC_E_INVALID, "slot_count %u, flight_count %u", params->slot_count,
                       params->event_count);
    if (params->image_count == 0)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "built without kernels for CUDA");
    const struct sc_cu *cu;
    spec_status status = sc_gpu_library_load(params->library_path, &cu, reterr);
    if (status != SPEC_OK)
        return status;
    struct sc_gpu_device *device = NULL;
    status = device_new(params, cu, &device, reterr);
    if (status == SPEC_OK)
        status = device_find(device, reterr);
    if (status == SPEC_OK)
        status = context_open(device, params, reterr);
    if (status != SPEC_OK) {
        sc_gpu_device_detach(device);
        return status;
    }
    *ret_device = device;
    return SPEC_OK;
}

/* ---- Detach ---------------------------------------------------------------------------------- */

/* Waits until our streams are idle, one by one: waiting for the context would break a capture in
 * it. The context is waited for only if a stream cannot be. */
static void streams_finish(struct sc_gpu_device *device)
{
    const struct sc_cu *cu = device->cu;
    bool is_done = true;
    for (uint32_t i = 0; i < device->slot_count; i++) {
        sc_cu_stream streams[] = {device->slots[i].copies.stream, device->slots[i].kernels.stream};
        for (size_t j = 0; j < 2; j++)
            if (streams[j] != NULL && cu->cuStreamSynchronize(streams[j]) != SC_CU_OK)
                is_done = false;
    }
    if (!is_done)
        (void)cu->cuCtxSynchronize();
}

/* Gives back everything in flight; submits a begun entry first. */
static void stream_complete(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream)
{
    SC_ASSERT(device->poison, !own_stream->event_ring.is_begun);
    if (own_stream->event_ring.is_begun)
        (void)sc_gpu_events_submit(device, own_stream, NULL);
    (void)sc_gpu_events_wait(device, own_stream, 0);
}

static void stream_close(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream)
{
    const struct sc_cu *cu = device->cu;
    sc_gpu_events_close(device, &own_stream->event_ring, false);
    if (own_stream->mark != NULL)
        (void)cu->cuEventDestroy(own_stream->mark);
    if (own_stream->stream != NULL)
        (void)cu->cuStreamDestroy(own_stream->stream);
}

/* Results are ignored: what cannot be freed on a failed device is freed with its context. */
static void context_empty(struct sc_gpu_device *device)
{
    const struct sc_cu *cu = device->cu;
    struct sc_gpu_entry entry, half;
    sc_gpu_relax(device, &half);
    sc_gpu_enter_anyway(device, &entry);
    streams_finish(device);
    for (uint32_t i = 0; i < device->slot_count; i++) {
        struct sc_gpu_slot *slot = &device->slots[i];
        stream_complete(device, &slot->copies);
        stream_complete(device, &slot->kernels);
        stream_close(device, &slot->copies);
        stream_close(device, &slot->kernels);
        if (slot->begin != NULL)
            (void)cu->cuEventDestroy(slot->begin);
        if (slot->end != NULL)
            (void)cu->cuEventDestroy(slot->end);
    }
    if (device->staging_base != 0)
        (void)cu->cuMemFree(device->staging_base);
    if (device->module != NULL)
        (void)cu->cuModuleUnload(device->module);
    sc_gpu_leave(device, &entry);
    (void)cu->cuDevicePrimaryCtxRelease(device->handle);
    sc_gpu_leave(device, &half);
}

void sc_gpu_device_detach(struct sc_gpu_device *device)
{
    if (device == NULL)
        return;
    bool is_forked = sc_gpu_is_forked(device);
    if (!is_forked) {
        SC_ASSERT(device->poison, atomic_load(&device->pins) == 0);
        if (device->context != NULL)
            context_empty(device);
        pthread_mutex_destroy(&device->lock);
    }
    for (uint32_t i = 0; is_forked && i < device->slot_count; i++) {
        sc_gpu_events_close(device, &device->slots[i].copies.event_ring, true);
        sc_gpu_events_close(device, &device->slots[i].kernels.event_ring, true);
    }
    sc_gpu_staging_close(&device->staging, is_forked);
    sc_alloc_free(device->alloc, device->slots);
    sc_alloc_free(device->alloc, device->functions);
    sc_alloc_free(device->alloc, device);
}
