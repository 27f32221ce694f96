/* Emulated kernels, as a driver launches them: by name, arguments by address. C and C++.
 *
 * Holds: a launch ends before it returns. What a kernel does wrong (emu.h says what is seen) ends
 *   the process with EMU_EXIT and a line on stderr, since no assertion of a caller can be unwound
 *   to from a fiber.
 * Does not: know streams, device memory or a driver's errors beside a launch's shape.
 * Threads: one at a time. Tests: tests/unit/kernels/test_cuda_emu.c, test_cuda_*.c */
#ifndef SC_TESTS_CUDA_EMU_RUN_H
#define SC_TESTS_CUDA_EMU_RUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMU_EXIT         70
#define EMU_INVALID      1 /* CUDA_ERROR_INVALID_VALUE */
#define EMU_THREADS_MAX  1024u
#define EMU_SHARED_BYTES (227u << 10)

struct emu_kernel {
    const char *name;
    void (*body)(void *const *params); /* of one thread */
    uint32_t param_count;
    uint64_t param_bytes[2]; /* [param_count] */
    uint32_t threads_max;    /* as the kernel's launch bounds say */
};

/* One launch. params [param_count]: where each argument is, read before the first thread runs by
 *   nobody: they stay as they are until this returns.
 * seed: 0: threads and blocks in order; else blocks backwards, and of threads that could go on one
 *   is drawn.
 * Returns 0, or EMU_INVALID: no such grid or block, or more shared memory than there is. */
int emu_run(const struct emu_kernel *kernel, void *const *params, const uint32_t grid[3],
            const uint32_t block[3], uint64_t shared_bytes, uint64_t seed);

/* How products of matrices (tensor cores) are added; EMU_MMA_NEAREST until another one is set.
 *   NEAREST   in float32, one after the other
 *   TRUNCATED in steps of 8, each aligned to the greatest of its terms and cut to 24 bits, sum too:
 *             no better than any tensor core of capability 8.0 or more is found to be */
enum emu_mma { EMU_MMA_NEAREST, EMU_MMA_TRUNCATED };
void emu_mma_set(enum emu_mma how);

/* The product's kernels (kernels/cuda/spec.h); NULL: none of that name. */
const struct emu_kernel *emu_kernel_find(const char *name);

/* Since the process began: what a test of the emulation itself, or of cost, looks at. */
struct emu_counts {
    uint64_t launches, blocks, threads, switches;
};
struct emu_counts emu_counts_get(void);

#ifdef __cplusplus
}
#endif
#endif
