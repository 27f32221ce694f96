/* One device, attached: its context, our kernels, streams, events and staging. What is enqueued on
 * it is gpu/work.h; what must not be touched until that is done, gpu/event_ring.h; host memory that
 * it reads and writes, gpu/pin.h.
 *
 *   struct sc_gpu_device   primary context, module, staging
 *     slots[]              a submission each, used by one thread at a time
 *       copies, kernels    two lanes: a stream each, and what flies on it, in order
 *       begin, end         events: behind the host's earlier work, before its later work
 *
 * The context is the primary one, which engines use too. It is current on a thread, and the
 * thread's capture mode RELAXED, between enter and leave alone: so our calls neither disturb the
 * host's context nor break a capture of its.
 *
 * Holds: a call of the driver that failed closes the device for good, with the first one's text;
 * from then on enter answers UNSUPPORTED with it, and what flies comes back after a last wait.
 * attach undoes all of a half; detach leaves nothing behind on the device, failed or not; between
 * them nothing is allocated.
 * Does not: choose what is done on a device; reset one, or try again.
 * Threads: attach and detach one, with nobody else in the device; all other calls any. In a child
 * forked after attach enter answers UNSUPPORTED, and detach frees host memory and calls no driver.
 * Tests: tests/unit/gpu/test_device.c, test_faults.c */
#ifndef SC_GPU_DEVICE_H
#define SC_GPU_DEVICE_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/status.h"
#include "gpu/driver.h"
#include "gpu/event_ring.h"
#include "gpu/staging_arena.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Our kernels, compiled. Which one a device gets: of cubins the one of its major capability with
 * the highest minor that is not above its own; else a fatbin, out of which the driver chooses (its
 * capability is the least that it serves); else the PTX of the highest capability not above it. */
enum sc_gpu_image_kind { SC_GPU_CUBIN, SC_GPU_FATBIN, SC_GPU_PTX };

struct sc_gpu_image {
    uint32_t capability; /* 10 * major + minor */
    uint32_t kind;       /* enum sc_gpu_image_kind */
    const void *bytes;   /* static: the driver may read it until detach; PTX ends with a NUL */
    uint64_t byte_count; /* PTX: with its NUL */
};

struct sc_gpu_params {
    struct sc_alloc *alloc;
    struct sc_poison *poison;          /* NULL: only asserts */
    const char *library_path;          /* NULL: libcuda.so.1 */
    uint32_t ordinal;                  /* among the devices that the process sees */
    const struct sc_gpu_image *images; /* [image_count]; 0: built without kernels */
    uint32_t image_count;
    const char *const *kernels; /* [kernel_count] names; gpu/work.h launches by number */
    uint32_t kernel_count;
    uint32_t slot_count;   /* >= 1: submissions at a time */
    uint32_t event_count;  /* >= 1: flights of a stream at a time */
    uint32_t hold_max;     /* what a flight may hold beside a range */
    /* So many slots, the last ones, have streams of the greatest priority: their work is waited for
     * by a host thread. A driver gives streams of one priority a few hardware queues, in which one
     * that waits holds up the others; those of another priority are not among them. */
    uint32_t urgent_count;
    uint64_t staging_bytes; /* device memory for staging; 0: none */
    uint64_t stage_ranges; /* of it in use at a time */
};

/* A stream of ours. Who has the slot uses it. */
struct sc_gpu_stream {
    sc_cu_stream stream;
    sc_cu_event mark; /* where another stream waits for this one */
    struct sc_gpu_event_ring event_ring;
};

struct sc_gpu_slot {
    struct sc_gpu_stream copies, kernels;
    sc_cu_event begin, end;
};

struct sc_gpu_device {
    /* Set by attach, constant after. */
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    const struct sc_cu *cu;
    const struct sc_gpu_image *image; /* the one that was chosen */
    pid_t owner;
    uint32_t ordinal, capability, multiprocessors;
    char name[96];
    sc_cu_device handle;
    sc_cu_context context;
    sc_cu_module module;
    sc_cu_function *functions; /* [kernel_count] */
    uint32_t kernel_count, slot_count;
    struct sc_gpu_slot *slots; /* [slot_count] */
    sc_cu_ptr staging_base;
    struct sc_gpu_staging staging;

    /* Any thread. failed_text is written under lock (rank 84) before failed is set, once. */
    pthread_mutex_t lock;
    char failed_text[192];
    _Atomic uint32_t failed;
    _Atomic uint64_t pins; /* ranges of host memory that are registered */
};

/* The image that a device of that capability gets; NULL: none fits. */
const struct sc_gpu_image *sc_gpu_image_select(const struct sc_gpu_image *images, uint32_t count,
                                               uint32_t capability);

/* Attaches. *ret_device is the caller's, to detach.
 * Errors: SPEC_E_UNSUPPORTED with the reason (those of gpu/library.h; built without kernels; no
 * such device; a capability below 7.5; no image that fits; what the driver refused, out of memory
 * too), SPEC_E_INVALID (no slot, no flight), SPEC_E_NO_MEMORY (the host's). An error leaves nothing
 * behind. Blocks: for as long as the driver takes, 50 to 150 ms and seconds where PTX is compiled
 * (lead).
 */
spec_status sc_gpu_device_attach(const struct sc_gpu_params *params,
                                 struct sc_gpu_device **ret_device, struct spec_error *reterr);
/* Waits for all that our streams still do, gives back what flew, then frees it all. Memory that was
 * pinned was unpinned (asserted). Takes NULL. */
void sc_gpu_device_detach(struct sc_gpu_device *device);

/* What was current before enter. */
struct sc_gpu_entry {
    sc_cu_capture_mode mode;
    bool is_pushed, is_swapped;
};

/* The context becomes current, and this thread's capture mode RELAXED, until leave. Entries nest.
 * Errors: SPEC_E_UNSUPPORTED (the device was closed by an error, whose text is repeated; a forked
 * child), SPEC_E_IO (the driver refuses; the device is closed). On an error there is nothing to
 * leave. Blocks: never. Allocates nothing. */
spec_status sc_gpu_enter(struct sc_gpu_device *device, struct sc_gpu_entry *ret_entry,
                         struct spec_error *reterr);
/* Context and capture mode are as they were before enter. */
void sc_gpu_leave(struct sc_gpu_device *device, const struct sc_gpu_entry *entry);
/* The same as enter on a device that has failed too, for what must be given back. Not in a forked
 * child (asserted). */
void sc_gpu_enter_anyway(struct sc_gpu_device *device, struct sc_gpu_entry *ret_entry);

/* Half an entry: the thread's capture mode is RELAXED until leave, and no context becomes current.
 * For the calls that retain or release the context itself. */
void sc_gpu_relax(struct sc_gpu_device *device, struct sc_gpu_entry *ret_entry);

/* A driver call's result: SPEC_OK, or SPEC_E_IO with "cuName: CUDA 719 ..." and the device is
 * closed from now on. */
spec_status sc_gpu_check(struct sc_gpu_device *device, sc_cu_result code, const char *call,
                         struct spec_error *reterr);
bool sc_gpu_has_failed(const struct sc_gpu_device *device);
/* This process is a child of the one that attached: nothing of the device may be touched. */
bool sc_gpu_is_forked(const struct sc_gpu_device *device);

#endif
