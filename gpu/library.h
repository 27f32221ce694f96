/* library: loads libcuda.so.1 on first request, once per process, and fills the call table.
 *
 *   libcuda.so.1 --dlopen--> cuGetProcAddress_v2 --name, version--> struct sc_cu
 *
 * Invariants: OK means that every call of gpu/driver.h exists, the driver supports CUDA 12.0, and
 * cuInit succeeded. The table stays valid until the process ends, even if our library is unloaded
 * (RTLD_NODELETE). A failure is not remembered: the next request tries again. There is no
 * constructor.
 * Threads: any; one thread loads while others wait. A child forked after the first request gets
 * UNSUPPORTED and touches nothing, because a driver does not survive fork.
 * Tests: tests/unit/gpu/test_library.c */
#ifndef SC_GPU_LIBRARY_H
#define SC_GPU_LIBRARY_H

#include "base/status.h"
#include "gpu/driver.h"

/* Returns the driver's calls.
 *   path      NULL: libcuda.so.1 from the loader's search path. A second library is INVALID.
 *   ret_cu    owned by the process, constant
 * Errors: SPEC_E_UNSUPPORTED with the reason: no library, driver older than CUDA 12.0, missing
 * call, no device, or cuInit failed.
 * Blocks while the driver initialises, tens of milliseconds (estimate). */
spec_status sc_gpu_library_load(const char *path, const struct sc_cu **ret_cu,
                                struct spec_error *reterr);

/* Writes e.g. "CUDA 719 CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure" to text[text_bytes]
 * and returns text. */
const char *sc_gpu_result_text(const struct sc_cu *cu, sc_cu_result code, char *text,
                               uint64_t text_bytes);

#endif
