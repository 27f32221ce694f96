/* The device that loads go to and stores come from: attached when memory on it is first named, and
 * what carries rows and codes there.
 *
 *   stage   [pinned][pinned][pinned] ... [ring of stores, d2h_batch.h]   and as much on the device
 *   pinned  filled by a request's batch (h2d_batch.h) -> copied whole -> read by kernels -> free
 *   slot    two streams; requests share a few, and others for what they are asked with, for hints
 *
 * Holds: a connector has one device at a time, and attaches once: why it could not is remembered,
 * and told to each item that asks for the same one. From then on nothing is allocated. A pinned
 * buffer is somebody's until the device has read all of it, on a device that failed too.
 * Does not: read, verify, choose, or wait for the host's stream.
 * Threads: any; open and close one. Locks: attach (26), slots (29), pinned buffers and batches
 * (58), tables (59).
 * Tests: tests/unit/plugin/test_device_loads.c, test_device_faults.c, test_pinned.c */
#ifndef SC_PLUGIN_DEVICE_DEVICE_TABLES_H
#define SC_PLUGIN_DEVICE_DEVICE_TABLES_H

#include "base/exec.h"
#include "base/log.h"
#include "gpu/device.h"
#include "gpu/pin.h"
#include "gpu/staging_arena.h"
#include "kernels/bitplanes.h"
#include "kernels/cuda/launch.h"
#include "plugin/args/memory.h"
#include "store/load.h"

#define SC_PLUGIN_DEVICE_SLOTS  16u /* pairs of streams, of loads */
#define SC_PLUGIN_DEVICE_STORES 4u  /* behind them, of stores */
#define SC_PLUGIN_DEVICE_HINTS  8u  /* more of them, of hints: a load waits for no hint's stream */
#define SC_PLUGIN_DEVICE_ASKS                                                                      \
    8u /* and of what items are asked with: who scores waits for no destination's stream */
#define SC_PLUGIN_DEVICE_SCORES                                                                    \
    2u /* and more, of hints' scores: they wait for no stream of a host's */
#define SC_PLUGIN_DEVICE_PAIRS                                                                     \
    (SC_PLUGIN_DEVICE_SLOTS + SC_PLUGIN_DEVICE_STORES + SC_PLUGIN_DEVICE_HINTS +                   \
     SC_PLUGIN_DEVICE_ASKS + SC_PLUGIN_DEVICE_SCORES)
#define SC_PLUGIN_PINNED_SLABS  256u /* of the host tier, that a pinned buffer reads */
#define SC_PLUGIN_DEVICE_TABLES 64u  /* of widths, as the device reads them, that are kept */

/* A kernel's number is its place in the list of names. */
enum sc_plugin_kernel {
#define SC_PLUGIN_KERNEL(name, params, threads) SC_PLUGIN_KERNEL_##name,
    SC_CUDA_KERNELS(SC_PLUGIN_KERNEL)
#undef SC_PLUGIN_KERNEL
};

enum sc_plugin_device_state {
    SC_PLUGIN_DEVICE_NONE,
    SC_PLUGIN_DEVICE_ATTACHED,
    SC_PLUGIN_DEVICE_REFUSED
};

struct sc_plugin_h2d_batch;
struct sc_plugin_d2h_batch;

struct sc_plugin_device_params {
    struct sc_alloc *alloc;
    struct sc_exec *exec;
    struct sc_log *log;
    struct sc_poison *poison;
    const struct sc_plugin_shape *shape;
    uint64_t request_count;
    uint64_t staging_bytes; /* of host memory, and of the device's */
    uint64_t store_bytes; /* beside them, likewise */
    uint64_t query_group; /* query heads of a KV head */
    uint64_t room_bytes;  /* of host memory, that queries and new keys of one scoring come to */
    uint64_t room_count;  /* scorings side by side */
    uint64_t score_bytes; /* of the device's: what scores stand in while they are made */
    uint64_t hint_bytes;  /* pinned, and of the device's: of one hint */
    uint64_t hint_count;
    struct sc_store *store; /* whose host tier the device reads: direct.h */
};

/* What stores have on their way: d2h_batch.h. */
struct sc_plugin_d2h_batches {
    /* Set by attach, constant after. */
    uint8_t *host;       /* pinned */
    uint64_t host_bytes; /* where it begins in what is pinned: at as many bytes of the range */
    struct sc_plugin_d2h_batch *all;

    struct sc_gpu_staging ring;    /* of addresses of the device; its own lock */
    pthread_mutex_t lock;          /* rank 58 */
    struct sc_plugin_d2h_batch *free; /* guarded by it */
};

struct sc_plugin_pinned {
    struct sc_plugin_device *device;
    uint8_t *host;                                         /* pinned */
    uint64_t at;                                           /* where the device has as many bytes */
    struct sc_host_tier_memory_slab
        *slabs[SC_PLUGIN_PINNED_SLABS]; /* held: its kernels read them there */
    uint32_t slab_count;
    _Atomic uint32_t left; /* flights that hold it */
    struct sc_plugin_pinned *next;
};

struct sc_plugin_device_hint { /* of the guess that took it: [hint_bytes] */
    uint8_t *host;             /* pinned */
    uint64_t at;               /* where the device has as many bytes */
    _Atomic uint32_t over;     /* 1: the device is through with both */
};

static inline bool sc_plugin_hint_is_over(const struct sc_plugin_device_hint *hint)
{
    return atomic_load_explicit(&hint->over, memory_order_acquire) != 0;
}

struct sc_plugin_device_table {
    const struct sc_kernels_bitplanes *of; /* NULL: none yet */
    const struct sc_kernels_rotary *rotary;
    uint8_t *table; /* [table_bytes] */
    uint64_t bytes;
};

struct sc_plugin_device {
    /* Set by open, constant after. */
    struct sc_plugin_device_params params;
    uint64_t pinned_buffer_bytes, table_bytes; /* the largest of these */

    pthread_mutex_t attach_lock;
    _Atomic uint32_t state; /* enum sc_plugin_device_state */
    char why[192];          /* it could not be; guarded by attach_lock */
    int32_t refused;        /* likewise: which one */
    /* Set by attach, constant after. */
    struct sc_gpu_device *gpu;
    struct sc_gpu_pin pin;
    struct sc_gpu_range range;
    uint8_t *host, *tables_memory;
    struct sc_plugin_pinned *pinned_buffers;
    uint64_t pinned_count;
    struct sc_plugin_h2d_batch *batches;      /* [request_count] */
    struct sc_plugin_d2h_batches d2h_batches; /* of stores */
    struct sc_gpu_pin
        direct; /* of the host tier's memory: direct.h; zero: pinned buffers have its rows */
    uint8_t *rooms;           /* [room_count][room_bytes, whole lines] */
    struct sc_plugin_device_hint *hints; /* [hint_count] */
    struct sc_gpu_range score_range;
    struct sc_gpu_staging scores; /* of its addresses; its own lock */
    _Atomic uint32_t score_word; /* moves when some of it comes free */
    /* Of each: who enqueues, and what flies. */
    pthread_mutex_t slot_locks[SC_PLUGIN_DEVICE_PAIRS];

    pthread_mutex_t pinned_lock;
    struct sc_plugin_pinned *free;
    _Atomic uint32_t pinned_word; /* moves when a pinned buffer comes free */

    pthread_mutex_t table_lock;
    struct sc_plugin_device_table tables[SC_PLUGIN_DEVICE_TABLES];
    uint32_t table_next;
};

/* The slot of a request, which others may have too. */
static inline uint32_t sc_plugin_device_slot(uint64_t request)
{
    return (uint32_t)(request % SC_PLUGIN_DEVICE_SLOTS);
}

/* Where what a request is asked with is scored, or brought from. */
static inline uint32_t sc_plugin_device_ask_slot(uint64_t request)
{
    return SC_PLUGIN_DEVICE_PAIRS - SC_PLUGIN_DEVICE_SCORES - SC_PLUGIN_DEVICE_ASKS +
           (uint32_t)(request % SC_PLUGIN_DEVICE_ASKS);
}

/* Of the hints of requests that have this slot. */
static inline uint32_t sc_plugin_device_hint_slot(uint32_t slot)
{
    return SC_PLUGIN_DEVICE_SLOTS + SC_PLUGIN_DEVICE_STORES + slot % SC_PLUGIN_DEVICE_HINTS;
}

/* Where those are scored, once they have landed. */
static inline uint32_t sc_plugin_device_score_slot(uint32_t slot)
{
    return SC_PLUGIN_DEVICE_PAIRS - SC_PLUGIN_DEVICE_SCORES + slot % SC_PLUGIN_DEVICE_SCORES;
}

/* ---- Attaching (device_attach.c) ------------------------------------------------------------- */

/* Attaches nothing. */
void sc_plugin_device_open(struct sc_plugin_device *device,
                           const struct sc_plugin_device_params *params);
/* Nobody loads any more. Waits for what the device still does. */
void sc_plugin_device_close(struct sc_plugin_device *device);

/* The device of that number is attached, by this call if none was. Blocks for as long as the driver
 * takes then, 50 to 150 ms (lead).
 * Errors: SPEC_E_UNSUPPORTED (with the reason: no driver, no such device, built without kernels, it
 * failed since), SPEC_E_INVALID (the connector has another device), SPEC_E_NO_MEMORY. */
spec_status sc_plugin_device_attach(struct sc_plugin_device *device, int32_t ordinal,
                                    struct spec_error *reterr);

/* ---- Boxes and tables (device_tables.c) ------------------------------------------------------ */

/* A pinned buffer, the caller's. NULL: none is free, nor one of those that went off and have
 * landed. Waiting for one: sc_plugin_pinned_take (h2d_batch.h). */
struct sc_plugin_pinned *sc_plugin_pinned_try(struct sc_plugin_device *device);
/* Nothing of it was enqueued, or all that was is done. The slabs it holds are let go. */
void sc_plugin_pinned_give(struct sc_plugin_pinned *pinned);
/* One of the flights that hold it has landed: a struct sc_gpu_hold's. */
void sc_plugin_pinned_completed(void *pinned, void *user);
/* Slabs that the device is through with are let go: before memory for more is asked for. Device
 * open. */
void sc_plugin_device_reap(struct sc_plugin_device *device);

/* The table of these widths, as kernels/cuda has it, into `to` [table_bytes], 16-byte aligned;
 * returns how many bytes it has; 0: there is no such table. planes are constant until close. */
uint64_t sc_plugin_device_table(struct sc_plugin_device *device,
                                const struct sc_kernels_bitplanes *planes,
                                const struct sc_kernels_rotary *rotary, uint8_t *to);

#endif
