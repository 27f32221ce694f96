/* The CUDA driver's library: found by dlopen, once a process, when it is first asked for and never
 * before; its calls in a table.
 *
 *   libcuda.so.1 --dlopen--> cuGetProcAddress_v2 --name, version--> struct sc_cu
 *
 * Holds: an answer of OK has every call of gpu/driver.h, a driver that speaks CUDA 12.0, and was
 * initialised (cuInit); it stays valid until the process ends, past any unloading of ours too
 * (RTLD_NODELETE). What could not be used is not remembered: the next one who asks tries again.
 * Does not: run anything when we are loaded (no constructor); print; look at devices.
 * Threads: any, one loads while others wait. In a child forked after somebody asked it answers
 * UNSUPPORTED and touches nothing, since a driver does not live through fork.
 * Tests: tests/unit/gpu/test_library.c */
#ifndef SC_GPU_LIBRARY_H
#define SC_GPU_LIBRARY_H

#include "base/status.h"
#include "gpu/driver.h"

/* The library's calls.
 *   path      NULL: libcuda.so.1, where the loader finds it. A process has one: asked by another
 *             path after one was loaded, the answer is INVALID
 *   ret_cu    owned by the process, constant
 * Errors: SPEC_E_UNSUPPORTED (no library; a driver older than CUDA 12.0; a call that is missing; no
 * device; cuInit fails), each with its reason as a text.
 * Blocks: for as long as the driver takes to initialise, tens of milliseconds (lead). Allocates
 * what the loader and the driver do. */
spec_status sc_gpu_library_load(const char *path, const struct sc_cu **ret_cu,
                                struct spec_error *reterr);

/* "CUDA 719 CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure" into text[text_bytes]. Returns
 * text. */
const char *sc_gpu_result_text(const struct sc_cu *cu, sc_cu_result code, char *text,
                               uint64_t text_bytes);

#endif
