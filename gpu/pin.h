/* Host memory that the device reads and writes: ranges that exist are registered with the driver,
 * as they are, so that copies run beside us and kernels may follow addresses into them.
 *
 * A child that is forked does not get the pages (MADV_DONTFORK): with them, a page that either side
 * writes to could be copied away from under the device.
 *
 * Holds: pages are registered whole; while they are, a forked child has no such memory.
 * Does not: allocate or free the memory, or wait for the device.
 * Threads: any.
 * Tests: tests/unit/gpu/test_pin.c */
#ifndef SC_GPU_PIN_H
#define SC_GPU_PIN_H

#include "gpu/device.h"

/* A range that is registered. Zero: none. */
struct sc_gpu_pin {
    struct sc_gpu_device *device;
    uint8_t *at;
    uint64_t bytes;
    sc_cu_ptr device_at; /* where the device sees it */
};

/* Registers [memory, memory + bytes), whole pages, which the caller keeps until unpin. A range is
 * registered once a process, by one device. On an error *ret_pin is as it was, nothing is
 * registered, and the device is not closed.
 * Errors: SPEC_E_INVALID (no whole pages), SPEC_E_UNSUPPORTED (refused, with the reason: no memory
 * to lock, registered by somebody else; the device is closed; a forked child).
 * Blocks: for the system to lock the pages: 256 MiB take tens of milliseconds (lead). */
spec_status sc_gpu_pin(struct sc_gpu_device *device, void *memory, uint64_t bytes,
                       struct sc_gpu_pin *ret_pin, struct spec_error *reterr);
/* Nothing of the range is in flight. On a closed device too; in a forked child it touches nothing.
 * Takes a pin of zeros; the pin is zero after. */
void sc_gpu_unpin(struct sc_gpu_pin *pin);
/* Where the device sees a byte of the range. */
sc_cu_ptr sc_gpu_pin_address(const struct sc_gpu_pin *pin, const void *at);

#endif
