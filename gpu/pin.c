/* pin.h: registers and unregisters host memory. */
#include "gpu/pin.h"

#include "base/counter.h"
#include "gpu/library.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* Call inside a device entry. */
static spec_status range_register(struct sc_gpu_device *device, void *memory, uint64_t bytes,
                                  sc_cu_ptr *ret_device_at, struct spec_error *reterr)
{
    const struct sc_cu *cu = device->cu;
    char text[160];
    sc_cu_result code = cu->cuMemHostRegister(
        memory, bytes, SC_CU_HOSTREGISTER_PORTABLE | SC_CU_HOSTREGISTER_DEVICEMAP);
    if (code != SC_CU_OK)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%" PRIu64 " bytes cannot be pinned: %s", bytes,
                       sc_gpu_result_text(cu, code, text, sizeof(text)));
    code = cu->cuMemHostGetDevicePointer(ret_device_at, memory, 0);
    if (code == SC_CU_OK)
        return SPEC_OK;
    (void)cu->cuMemHostUnregister(memory);
    return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%" PRIu64 " pinned bytes have no address: %s",
                   bytes, sc_gpu_result_text(cu, code, text, sizeof(text)));
}

spec_status sc_gpu_pin(struct sc_gpu_device *device, void *memory, uint64_t bytes,
                       struct sc_gpu_pin *ret_pin, struct spec_error *reterr)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    if (memory == NULL || bytes == 0 || (uintptr_t)memory % page_bytes != 0 ||
        bytes % page_bytes != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "%" PRIu64 " bytes at %p are not whole pages", bytes,
                       memory);
    struct sc_gpu_entry entry;
    spec_status status = sc_gpu_enter(device, &entry, reterr);
    if (status != SPEC_OK)
        return sc_gpu_has_failed(device) ? SPEC_E_UNSUPPORTED : status;
    struct sc_gpu_pin pin = {.device = device, .at = memory, .bytes = bytes};
    if (madvise(memory, bytes, MADV_DONTFORK) != 0) {
        status = sc_fail_errno(reterr, SPEC_E_UNSUPPORTED, errno,
                               "%" PRIu64 " bytes cannot be kept from children", bytes);
    } else {
        status = range_register(device, memory, bytes, &pin.device_at, reterr);
        if (status != SPEC_OK)
            (void)madvise(memory, bytes, MADV_DOFORK);
    }
    sc_gpu_leave(device, &entry);
    if (status != SPEC_OK)
        return status;
    sc_count(&device->pins, 1);
    *ret_pin = pin;
    return SPEC_OK;
}

void sc_gpu_unpin(struct sc_gpu_pin *pin)
{
    struct sc_gpu_device *device = pin->device;
    if (device != NULL && !sc_gpu_is_forked(device)) {
        struct sc_gpu_entry entry;
        sc_gpu_enter_anyway(device, &entry);
        (void)device->cu->cuMemHostUnregister(pin->at);
        sc_gpu_leave(device, &entry);
        (void)madvise(pin->at, pin->bytes, MADV_DOFORK);
        sc_uncount(&device->pins, 1);
    }
    *pin = (struct sc_gpu_pin){0};
}

sc_cu_ptr sc_gpu_pin_address(const struct sc_gpu_pin *pin, const void *at)
{
    uint64_t from = (uint64_t)((const uint8_t *)at - pin->at);
    SC_ASSERT(pin->device->poison, from < pin->bytes);
    return pin->device_at + from;
}
