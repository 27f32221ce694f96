/* device_tables: the CUDA device of loads and stores, with its streams, pinned buffers and tables.
 *
 *   memory  [pinned][pinned][pinned] ... [ring of stores, d2h_batch.h]   and as much on the device
 *   pinned  filled by a request's batch (h2d_batch.h) -> copied whole -> read by kernels -> free
 *   slot    two streams, shared by requests; separate ones for stores, hints, asks and scores
 *
 * Invariants: a connector has one device and attaches it once, when its memory is first named. The
 * reason of a failure is kept and reported to each item that names this device. Nothing is
 * allocated after attach. A pinned buffer has an owner until the device has read all of it, on a
 * failed device too. This module never waits for the host's stream.
 * Threads: any; open and close need exclusive use. Locks: attach (26), slots (29), pinned buffers
 * and batches (58), tables (59).
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

#define SC_PLUGIN_DEVICE_SLOTS  16u /* stream pairs of loads */
#define SC_PLUGIN_DEVICE_STORES 4u  /* next ones, of stores */
#define SC_PLUGIN_DEVICE_HINTS  8u  /* next ones, of hints: loads do not wait for a hint's stream */
#define SC_PLUGIN_DEVICE_ASKS   8u  /* of asks: scoring does not wait for a destination's stream */
#define SC_PLUGIN_DEVICE_SCORES 2u  /* of hints' scores: they wait for no stream of a host */
#define SC_PLUGIN_DEVICE_PAIRS                                                                     \
    (SC_PLUGIN_DEVICE_SLOTS + SC_PLUGIN_DEVICE_STORES + SC_PLUGIN_DEVICE_HINTS +                   \
     SC_PLUGIN_DEVICE_ASKS + SC_PLUGIN_DEVICE_SCORES)
#define SC_PLUGIN_PINNED_SLABS  256u /* host tier slabs that a pinned buffer references */
#define SC_PLUGIN_DEVICE_TABLES 64u  /* bit tables kept in device format */

/* A kernel's number is its index in the list of names. */
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
    uint64_t staging_bytes; /* of host memory, and again of the device's */
    uint64_t store_bytes;   /* for stores, additionally on both sides */
    uint64_t query_group;   /* query heads per KV head */
    uint64_t room_bytes;    /* host memory for queries and new keys of one scoring */
    uint64_t room_count;    /* concurrent scorings */
    uint64_t score_bytes;   /* device memory: scratch of scores */
    uint64_t hint_bytes;    /* bytes of one hint, pinned and on the device */
    uint64_t hint_count;
    struct sc_store *store; /* its host tier is read by the device: direct.h */
};

struct sc_plugin_d2h_batches {
    /* Set by attach, constant afterwards. */
    uint8_t *host;       /* pinned */
    uint64_t host_bytes; /* its offset in the pinned memory and in the range */
    struct sc_plugin_d2h_batch *all;

    struct sc_gpu_staging ring;    /* of device addresses; has its own lock */
    pthread_mutex_t lock;          /* rank 58 */
    struct sc_plugin_d2h_batch *free; /* guarded by lock */
};

struct sc_plugin_pinned {
    struct sc_plugin_device *device;
    uint8_t *host;                                         /* pinned */
    uint64_t at;                                           /* device address of as many bytes */
    struct sc_host_tier_memory_slab
        /* Slabs held because the buffer's kernels read them in place. */
        *slabs[SC_PLUGIN_PINNED_SLABS];
    uint32_t slab_count;
    _Atomic uint32_t left; /* ring entries that hold it */
    struct sc_plugin_pinned *next;
};

struct sc_plugin_device_hint { /* owned by the prediction that took it: [hint_bytes] */
    uint8_t *host;             /* pinned */
    uint64_t at;               /* device address of as many bytes */
    _Atomic uint32_t over;     /* 1: the device no longer uses either */
};

static inline bool sc_plugin_hint_is_over(const struct sc_plugin_device_hint *hint)
{
    return atomic_load_explicit(&hint->over, memory_order_acquire) != 0;
}

struct sc_plugin_device_table {
    const struct sc_kernels_bitplanes *of; /* NULL: unused */
    const struct sc_kernels_rotary *rotary;
    uint8_t *table; /* [table_bytes] */
    uint64_t bytes;
};

struct sc_plugin_device {
    /* Set by open, constant afterwards. */
    struct sc_plugin_device_params params;
    uint64_t pinned_buffer_bytes, table_bytes; /* table_bytes: of the largest table */

    pthread_mutex_t attach_lock;
    _Atomic uint32_t state; /* enum sc_plugin_device_state */
    char why[192];          /* reason of a refusal; guarded by attach_lock */
    int32_t refused;        /* ordinal refused; guarded by attach_lock */
    /* Set by attach, constant afterwards. */
    struct sc_gpu_device *gpu;
    struct sc_gpu_pin pin;
    struct sc_gpu_range range;
    uint8_t *host, *tables_memory;
    struct sc_plugin_pinned *pinned_buffers;
    uint64_t pinned_count;
    struct sc_plugin_h2d_batch *batches;      /* [request_count] */
    struct sc_plugin_d2h_batches d2h_batches;
    struct sc_gpu_pin
        /* The host tier's registered memory (direct.h); zero: its rows use pinned buffers. */
        direct;
    uint8_t *rooms;           /* [room_count][room_bytes, whole lines] */
    struct sc_plugin_device_hint *hints; /* [hint_count] */
    struct sc_gpu_range score_range;
    struct sc_gpu_staging scores; /* of its addresses; has its own lock */
    _Atomic uint32_t score_word;  /* changes when scratch becomes free */
    /* Per slot: serialise enqueuing and ring entries. */
    pthread_mutex_t slot_locks[SC_PLUGIN_DEVICE_PAIRS];

    pthread_mutex_t pinned_lock;
    struct sc_plugin_pinned *free;
    _Atomic uint32_t pinned_word; /* changes when a pinned buffer becomes free */

    pthread_mutex_t table_lock;
    struct sc_plugin_device_table tables[SC_PLUGIN_DEVICE_TABLES];
    uint32_t table_next;
};

/* Returns a request's slot, which it shares with others. */
static inline uint32_t sc_plugin_device_slot(uint64_t request)
{
    return (uint32_t)(request % SC_PLUGIN_DEVICE_SLOTS);
}

/* Returns the slot for a request's asks: queries and new keys to score or fetch. */
static inline uint32_t sc_plugin_device_ask_slot(uint64_t request)
{
    return SC_PLUGIN_DEVICE_PAIRS - SC_PLUGIN_DEVICE_SCORES - SC_PLUGIN_DEVICE_ASKS +
           (uint32_t)(request % SC_PLUGIN_DEVICE_ASKS);
}

/* Returns the slot for hints of requests with this slot. */
static inline uint32_t sc_plugin_device_hint_slot(uint32_t slot)
{
    return SC_PLUGIN_DEVICE_SLOTS + SC_PLUGIN_DEVICE_STORES + slot % SC_PLUGIN_DEVICE_HINTS;
}

/* Returns the slot that scores those hints once they are complete. */
static inline uint32_t sc_plugin_device_score_slot(uint32_t slot)
{
    return SC_PLUGIN_DEVICE_PAIRS - SC_PLUGIN_DEVICE_SCORES + slot % SC_PLUGIN_DEVICE_SCORES;
}

/* Computes sizes and initialises locks; attaches nothing. */
void sc_plugin_device_open(struct sc_plugin_device *device,
                           const struct sc_plugin_device_params *params);
/* Closes after the last load; waits for the device. */
void sc_plugin_device_close(struct sc_plugin_device *device);

/* Attaches the device on first use, which blocks 50 to 150 ms (estimate).
 * Errors: SPEC_E_UNSUPPORTED with the reason (no driver, no such device, built without kernels,
 * failed since), SPEC_E_INVALID (the connector has another device), SPEC_E_NO_MEMORY. */
spec_status sc_plugin_device_attach(struct sc_plugin_device *device, int32_t ordinal,
                                    struct spec_error *reterr);

/* Takes a free or completed pinned buffer, or NULL. sc_plugin_pinned_take (h2d_batch.h) waits. */
struct sc_plugin_pinned *sc_plugin_pinned_try(struct sc_plugin_device *device);
/* Gives a buffer back when its work is done or was never enqueued. Releases its slabs. */
void sc_plugin_pinned_give(struct sc_plugin_pinned *pinned);
/* Completes one of the ring entries that hold the buffer: a struct sc_gpu_hold's `give`. */
void sc_plugin_pinned_completed(void *pinned, void *user);
/* Releases slabs that the device no longer reads: call before allocating more. Device open. */
void sc_plugin_device_reap(struct sc_plugin_device *device);

/* Writes the table in kernels/cuda's format to `to` [table_bytes], 16-byte aligned. Returns its
 * bytes; 0: unsupported. planes must not change until close. */
uint64_t sc_plugin_device_table(struct sc_plugin_device *device,
                                const struct sc_kernels_bitplanes *planes,
                                const struct sc_kernels_rotary *rotary, uint8_t *to);

#endif
