/* device.h: enter, leave, and closing the device after a failed driver call. */
#include "gpu/device.h"

#include "gpu/library.h"

#include <stdio.h>
#include <unistd.h>

bool sc_gpu_has_failed(const struct sc_gpu_device *device)
{
    return atomic_load_explicit(&device->failed, memory_order_acquire) != 0;
}

bool sc_gpu_is_forked(const struct sc_gpu_device *device)
{
    return device->owner != getpid();
}

spec_status sc_gpu_check(struct sc_gpu_device *device, sc_cu_result code, const char *call,
                         struct spec_error *reterr)
{
    if (code == SC_CU_OK)
        return SPEC_OK;
    char result[160], text[sizeof(device->failed_text)];
    sc_gpu_result_text(device->cu, code, result, sizeof(result));
    snprintf(text, sizeof(text), "%s: %s", call, result);
    pthread_mutex_lock(&device->lock);
    if (!sc_gpu_has_failed(device)) {
        snprintf(device->failed_text, sizeof(device->failed_text), "%s", text);
        atomic_store_explicit(&device->failed, 1, memory_order_release);
    }
    pthread_mutex_unlock(&device->lock);
    return sc_fail(reterr, SPEC_E_IO, "%s", text);
}

void sc_gpu_relax(struct sc_gpu_device *device, struct sc_gpu_entry *ret_entry)
{
    *ret_entry = (struct sc_gpu_entry){.mode = SC_CU_CAPTURE_MODE_RELAXED};
    sc_cu_result code = device->cu->cuThreadExchangeStreamCaptureMode(&ret_entry->mode);
    ret_entry->is_swapped = code == SC_CU_OK;
    (void)sc_gpu_check(device, code, "cuThreadExchangeStreamCaptureMode", NULL);
}

void sc_gpu_enter_anyway(struct sc_gpu_device *device, struct sc_gpu_entry *ret_entry)
{
    SC_ASSERT(device->poison, !sc_gpu_is_forked(device));
    sc_gpu_relax(device, ret_entry);
    sc_cu_result code = device->cu->cuCtxPushCurrent(device->context);
    ret_entry->is_pushed = code == SC_CU_OK;
    (void)sc_gpu_check(device, code, "cuCtxPushCurrent", NULL);
}

spec_status sc_gpu_enter(struct sc_gpu_device *device, struct sc_gpu_entry *ret_entry,
                         struct spec_error *reterr)
{
    if (sc_gpu_is_forked(device))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "CUDA device %u was attached before fork",
                       device->ordinal);
    if (sc_gpu_has_failed(device))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "CUDA device %u is closed since %s",
                       device->ordinal, device->failed_text);
    sc_gpu_enter_anyway(device, ret_entry);
    if (ret_entry->is_pushed && ret_entry->is_swapped)
        return SPEC_OK;
    sc_gpu_leave(device, ret_entry);
    return sc_fail(reterr, SPEC_E_IO, "CUDA device %u cannot be entered: %s", device->ordinal,
                   device->failed_text);
}

/* Tries twice to restore the mode. The pop is not retried: its error may stem from earlier work,
 * and a second pop would remove the host's own context. */
void sc_gpu_leave(struct sc_gpu_device *device, const struct sc_gpu_entry *entry)
{
    sc_cu_result code = SC_CU_OK;
    if (entry->is_pushed) {
        sc_cu_context context;
        code = device->cu->cuCtxPopCurrent(&context);
        (void)sc_gpu_check(device, code, "cuCtxPopCurrent", NULL);
    }
    code = SC_CU_NOT_READY;
    for (int i = 0; entry->is_swapped && code != SC_CU_OK && i < 2; i++) {
        sc_cu_capture_mode mode = entry->mode;
        code = device->cu->cuThreadExchangeStreamCaptureMode(&mode);
        (void)sc_gpu_check(device, code, "cuThreadExchangeStreamCaptureMode", NULL);
    }
}
