/* pin: registers ranges of host memory with the driver, for asynchronous copies and kernel access.
 *
 * Invariants: whole pages are registered. While they are, a forked child does not have them
 * (MADV_DONTFORK). Otherwise copy-on-write could move a page away from the device. The module
 * neither allocates the memory nor waits for the device.
 * Threads: any. Tests: tests/unit/gpu/test_pin.c */
#ifndef SC_GPU_PIN_H
#define SC_GPU_PIN_H

#include "gpu/device.h"

/* A registered range. Zero: none. */
struct sc_gpu_pin {
    struct sc_gpu_device *device;
    uint8_t *at;
    uint64_t bytes;
    sc_cu_ptr device_at; /* the range's device address */
};

/* Registers [memory, memory + bytes), whole pages, which the caller keeps until unpin. A range is
 * registered once per process, by one device. On an error *ret_pin is unchanged, nothing is
 * registered and the device stays open.
 * Errors: SPEC_E_INVALID (not whole pages), SPEC_E_UNSUPPORTED with the reason (no memory to lock,
 * already registered, closed device, forked child).
 * Blocks while the system locks the pages: 256 MiB take tens of milliseconds (estimate). */
spec_status sc_gpu_pin(struct sc_gpu_device *device, void *memory, uint64_t bytes,
                       struct sc_gpu_pin *ret_pin, struct spec_error *reterr);
/* Unregisters a range that no work in flight uses, and zeroes *pin. Works on a closed device; does
 * nothing in a forked child. Accepts a zero pin. */
void sc_gpu_unpin(struct sc_gpu_pin *pin);
/* Returns the device address of a byte of the range. */
sc_cu_ptr sc_gpu_pin_address(const struct sc_gpu_pin *pin, const void *at);

#endif
