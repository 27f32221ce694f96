/* What tests tell the fake CUDA driver, and ask it. The fake is a libcuda.so.1 whose streams run
 * when it hurts most, and which ends the process (exit code 78, the reason on stderr) where a real
 * driver would let wrong bytes pass.
 *
 * Holds, or the process ends: device memory is touched by operations alone (PROT_NONE for the host,
 * poisoned, a guard page behind); asynchronous copies name registered host memory; the source of a
 * host-to-device copy has, when the copy runs, the bytes that it had when it was enqueued; nothing
 * is enqueued on a stream that is being captured, nor an unsafe call made beside a capture by a
 * thread whose capture mode is not RELAXED; nothing uses what was destroyed, or has no context.
 * The target of a device-to-host copy is poisoned until the copy runs.
 * Does not: have weak memory, time (all takes a millisecond), or peer copies.
 * Threads: any, one at a time (one lock, under which kernels run too).
 * Tests: tests/unit/gpu/test_fake.c, and whoever links it. */
#ifndef TESTS_CUDA_FAKE_FAKE_H
#define TESTS_CUDA_FAKE_FAKE_H

#include "gpu/driver.h"

#ifdef __cplusplus
extern "C" {
#endif
#define FAKE_API      __attribute__((visibility("default")))
#define FAKE_EXIT     78   /* of a process that broke a rule */
#define FAKE_POISON   0xa5 /* device memory that nobody wrote */
#define FAKE_POISON_H 0x5a /* the target of a copy that has not run */
#define FAKE_DEVICES  2

enum fake_policy {
    FAKE_EAGER,  /* at once */
    FAKE_LAZY,   /* what somebody waits for, and no more */
    FAKE_STARVE, /* all but one stream at once, that one only when somebody waits for it */
    FAKE_RANDOM  /* some of what may run, in any order */
};

/* A kernel, run on the host's processor: a grid at a time. */
struct fake_kernel {
    const char *name;
    uint32_t threads_max; /* of a block */
    uint32_t argument_count;
    const size_t *argument_bytes; /* [argument_count] */
    /* seed 0: threads in order */
    void (*run)(void **arguments, const unsigned grid[3], const unsigned block[3],
                unsigned shared_bytes, uint64_t seed);
};

/* Whoever links the fake with kernels defines this in the same shared object; without it there are
 * the fake's own:
 *   fake_copy(sc_cu_ptr to, sc_cu_ptr from, uint64_t bytes)      from device or registered memory
 *   fake_fill(sc_cu_ptr to, uint64_t bytes, uint32_t byte) */
__attribute__((weak)) extern const struct fake_kernel *fake_kernels_linked(uint32_t *ret_count);

/* From now on; seed chooses the stream that starves, and orders. At first it is what SC_FAKE_CUDA
 * says (lazy:3 is FAKE_LAZY with seed 3), else FAKE_EAGER. */
FAKE_API void fake_policy(enum fake_policy policy, uint64_t seed);
/* The n-th call of that name from now (1: the next) fails once with code. n 0: none does. A call
 * that ends something (destroy, free, pop, unregister) does so all the same, as real ones that
 * answer with the error of earlier work. */
FAKE_API void fake_fault(const char *name, int n, int code);
FAKE_API int fake_fired(void); /* the fault was met */
/* 1, as at first: a query of an event may make its stream run. 0: who asks must wait in the end. */
FAKE_API void fake_done_by_asking(int on);
/* From now on every call that reaches the device answers code, and what was enqueued never runs: a
 * context after a kernel crashed. 0: a new process, so to speak. */
FAKE_API void fake_sticky(int code);
/* The same, as soon as n more operations were enqueued. */
FAKE_API void fake_crash(int n, int code);
FAKE_API void fake_capture(sc_cu_stream stream, int on);
/* What the stream was given and is given does not run, as behind a host function that does not
 * return; who waits for it (a free of memory does, too) ends the process. */
FAKE_API void fake_hold(sc_cu_stream stream, int on);
FAKE_API void fake_version(int version);       /* what cuDriverGetVersion says; 13000 at first */
FAKE_API void fake_capability(int capability); /* of all devices: 10 * major + minor */
FAKE_API void fake_devices(int count);         /* at most FAKE_DEVICES */
FAKE_API void fake_missing(const char *name);  /* a call that this driver lacks; NULL: none */
FAKE_API const void *fake_image(void);         /* the one that was loaded last */
FAKE_API uint64_t fake_calls(void);            /* of the driver, by any thread */
FAKE_API uint64_t fake_enqueued(void);         /* operations, on any stream */
FAKE_API uint64_t fake_bytes_in(void);         /* of copies from host memory that were enqueued */
FAKE_API int fake_depth(void);                 /* contexts pushed by this thread */
FAKE_API int fake_mode(void);                  /* this thread's capture mode */
/* What exists, as a text, NULL where nothing does: contexts, modules, streams, events, allocations,
 * registrations. Valid until the next call by this thread. */
FAKE_API const char *fake_leaks(void);
#ifdef __cplusplus
}
#endif
#endif
