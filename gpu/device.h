/* device: attaches one CUDA device and owns its context, kernels, streams, events and staging.
 *
 *   struct sc_gpu_device   primary context, module, staging
 *     slots[]              one submission each, used by one thread at a time
 *       copies, kernels    two streams, each with an event ring
 *       begin, end         events: after the host's earlier work, before its later work
 *
 * gpu/work.h enqueues work, gpu/event_ring.h holds memory in flight, gpu/pin.h pins host memory.
 *
 * Invariants: the context is the primary one, which engines use too. Only between enter and leave
 * is it current on a thread, with the thread's capture mode RELAXED. So our calls neither change
 * the host's context nor break its captures. Nothing is allocated between attach and detach.
 * Errors: a failed driver call closes the device permanently and its text is kept. After that enter
 * returns UNSUPPORTED with this text, and memory in flight is given back after one last wait.
 * attach undoes a partial attach; detach frees everything on the device, failed or not.
 * Threads: attach and detach need exclusive use of the device; all other calls any thread. In a
 * child forked after attach, enter returns UNSUPPORTED; detach frees host memory and calls no
 * driver.
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

/* One compiled form of our kernels. A device uses the cubin of its major capability with the
 * highest minor not above its own. Without one: a fatbin, from which the driver chooses
 * (`capability` is the lowest it serves); then the PTX of the highest capability not above the
 * device's. */
enum sc_gpu_image_kind { SC_GPU_CUBIN, SC_GPU_FATBIN, SC_GPU_PTX };

struct sc_gpu_image {
    uint32_t capability; /* 10 * major + minor */
    uint32_t kind;       /* enum sc_gpu_image_kind */
    const void *bytes;   /* static: the driver may read it until detach; PTX ends with a NUL */
    uint64_t byte_count; /* PTX: including its NUL */
};

struct sc_gpu_params {
    struct sc_alloc *alloc;
    struct sc_poison *poison;          /* NULL: failed asserts poison nothing */
    const char *library_path;          /* NULL: libcuda.so.1 */
    uint32_t ordinal;                  /* among the devices visible to the process */
    const struct sc_gpu_image *images; /* [image_count]; 0: built without kernels */
    uint32_t image_count;
    const char *const *kernels; /* [kernel_count] names; gpu/work.h launches by number */
    uint32_t kernel_count;
    uint32_t slot_count;  /* >= 1: concurrent submissions */
    uint32_t event_count; /* >= 1: ring entries in flight per stream */
    uint32_t hold_max;    /* holds per ring entry, besides its range */
    /* Number of slots, counted from the last, whose streams have the greatest priority, because
     * a host thread waits for their work. A driver maps the streams of one priority to few
     * hardware queues, where a waiting stream blocks others; streams of another priority are not
     * affected. */
    uint32_t urgent_count;
    uint64_t staging_bytes; /* device memory for staging; 0: none */
    uint64_t stage_ranges;  /* concurrent ranges of staging */
};

/* One of our CUDA streams, used by the slot's holder. */
struct sc_gpu_stream {
    sc_cu_stream stream;
    sc_cu_event mark; /* event at which another stream waits for this one */
    struct sc_gpu_event_ring event_ring;
};

struct sc_gpu_slot {
    struct sc_gpu_stream copies, kernels;
    sc_cu_event begin, end;
};

struct sc_gpu_device {
    /* Set by attach, constant afterwards. */
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    const struct sc_cu *cu;
    const struct sc_gpu_image *image; /* the selected one */
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

    /* Any thread. failed_text is written once under lock (rank 84), before failed is set. */
    pthread_mutex_t lock;
    char failed_text[192];
    _Atomic uint32_t failed;
    _Atomic uint64_t pins; /* registered ranges of host memory */
};

/* Returns the image for a device of `capability`, or NULL. */
const struct sc_gpu_image *sc_gpu_image_select(const struct sc_gpu_image *images, uint32_t count,
                                               uint32_t capability);

/* Attaches a device. The caller detaches *ret_device.
 * Errors: SPEC_E_UNSUPPORTED with the reason (those of gpu/library.h; built without kernels; no
 * such device; capability below 7.5; no suitable image; a driver refusal, out of memory included),
 * SPEC_E_INVALID (no slot or no event), SPEC_E_NO_MEMORY (host memory). An error leaves nothing
 * behind.
 * Blocks while the driver works: 50 to 150 ms, or seconds if PTX is compiled (estimates). */
spec_status sc_gpu_device_attach(const struct sc_gpu_params *params,
                                 struct sc_gpu_device **ret_device, struct spec_error *reterr);
/* Waits for our streams, gives back what was in flight, then frees everything. All pinned memory
 * must have been unpinned (asserted). Accepts NULL. */
void sc_gpu_device_detach(struct sc_gpu_device *device);

struct sc_gpu_entry {
    sc_cu_capture_mode mode;
    bool is_pushed, is_swapped;
};

/* Makes the context current and the thread's capture mode RELAXED until leave. Entries nest.
 * Errors: SPEC_E_UNSUPPORTED (closed by an earlier error, whose text is repeated; a forked child),
 * SPEC_E_IO (the driver refuses; the device is closed). After an error do not call leave. Never
 * blocks or allocates. */
spec_status sc_gpu_enter(struct sc_gpu_device *device, struct sc_gpu_entry *ret_entry,
                         struct spec_error *reterr);
/* Restores the context and capture mode from before enter. */
void sc_gpu_leave(struct sc_gpu_device *device, const struct sc_gpu_entry *entry);
/* Enters a failed device too, to give back what it holds. Not in a forked child (asserted). */
void sc_gpu_enter_anyway(struct sc_gpu_device *device, struct sc_gpu_entry *ret_entry);

/* Makes the capture mode RELAXED until leave, without a current context. Needed for the calls that
 * retain or release the context. */
void sc_gpu_relax(struct sc_gpu_device *device, struct sc_gpu_entry *ret_entry);

/* Converts a driver call's result: SPEC_OK, or SPEC_E_IO with "cuName: CUDA 719 ...", which also
 * closes the device. */
spec_status sc_gpu_check(struct sc_gpu_device *device, sc_cu_result code, const char *call,
                         struct spec_error *reterr);
bool sc_gpu_has_failed(const struct sc_gpu_device *device);
/* Returns true in a child of the process that attached: it must not use the device. */
bool sc_gpu_is_forked(const struct sc_gpu_device *device);

#endif
