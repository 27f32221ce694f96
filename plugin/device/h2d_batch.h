/* h2d_batch: copies one request's KV to a CUDA device in batches.
 *
 * Verified rows and quantised rows are copied into a pinned buffer, which is submitted when it is
 * full or when a caller waits.
 *
 *   pinned   [rows, codes, scales, tables, ropes ..]  ..  [descriptors][slots]    16-byte aligned
 *            kernels read rows of the host tier in place (direct.h)
 *   streams  copies: pinned -> device       kernels: after the copy, from there to their places
 *
 * A token's number in a batch is the index of its slot in the buffer. Thus blocks, negative slots
 * and skipped tokens are alike for kernels: a slot, or none.
 *
 * Invariants: a batch contains verified bytes only. Kernels write only behind the host stream's
 * work at BEGIN, and the host's stream continues behind the last of them at END. A batch writes a
 * token twice only if the caller places it twice, which is not checked.
 * Errors: work that cannot be enqueued fails the item; nothing is retried.
 * Threads: those that place rows of the request's item, one item at a time. `lock` has rank 28.
 * Tests: tests/unit/plugin/test_device_loads.c, test_device_faults.c, test_pinned.c */
#ifndef SC_PLUGIN_DEVICE_H2D_BATCH_H
#define SC_PLUGIN_DEVICE_H2D_BATCH_H

#include "plugin/args/target.h"
#include "plugin/device/device_tables.h"

#define SC_PLUGIN_H2D_ROWS   1024u /* maximum rows of a batch */
#define SC_PLUGIN_H2D_SCALES 8u    /* slabs whose scales are remembered */
#define SC_PLUGIN_H2D_SLABS  256u  /* maximum parts of slabs of each format */

struct sc_plugin_h2d_batch {
    /* Set by open, constant afterwards. */
    struct sc_plugin_device *device;
    uint32_t slot; /* of the device, shared with other requests */

    pthread_mutex_t lock;
    struct sc_plugin_placing to;     /* destination of the pinned buffer's rows */
    struct sc_plugin_pinned *pinned; /* NULL: none */
    uint64_t used;                   /* bytes of it in use */
    spec_status status;              /* the item's first error, with its text in why */
    char why[192];

    uint32_t row_count, row_parts; /* rows; SC_CUDA_K, SC_CUDA_V or both */
    uint64_t row_at[SC_PLUGIN_H2D_ROWS];
    int64_t row_slots[SC_PLUGIN_H2D_ROWS];
    uint32_t even_count, even_rows; /* slabs; rows of the largest */
    uint32_t free_count, free_rows, free_units;
    struct sc_cuda_codec_slab evens[SC_PLUGIN_H2D_SLABS];
    struct sc_cuda_bitplanes_slab frees[SC_PLUGIN_H2D_SLABS];
    const struct sc_kernels_bitplanes
        /* Tables in the pinned buffer. */
        *tables_of[SC_PLUGIN_H2D_SLABS];
    const struct sc_kernels_rotary *tables_rope[SC_PLUGIN_H2D_SLABS];
    uint64_t tables_at[SC_PLUGIN_H2D_SLABS];
    uint32_t table_count;
    struct { /* slots in the buffer: of these tokens, negative if skipped */
        const uint64_t *skipped;
        uint64_t token, count, at; /* count 0: none */
        bool is_any;
    } slots;
    const uint8_t *scales_of[SC_PLUGIN_H2D_SCALES]; /* scales in the buffer */
    uint64_t scales_at[SC_PLUGIN_H2D_SCALES];
    uint32_t scale_count;
};

/* Returns the bytes of a pinned buffer that fits the largest single entry. */
uint64_t sc_plugin_h2d_batch_least(const struct sc_plugin_device *device);
spec_status sc_plugin_h2d_batches_open(struct sc_plugin_device *device, struct spec_error *reterr);
/* Closes a full or partial open. */
void sc_plugin_h2d_batches_close(struct sc_plugin_device *device);
/* Takes a pinned buffer. If all are in use, waits for the device and submits buffers that other
 * batches fill. The caller has no pinned buffer; it may hold the lock of a batch without one. */
struct sc_plugin_pinned *sc_plugin_pinned_take(struct sc_plugin_device *device, uint32_t slot);

/* For struct sc_plugin_memory_way (device_attach.c); user: a struct sc_plugin_device_seat. */
struct sc_plugin_device_seat {
    struct sc_plugin_device *device;
    uint64_t request;
};
spec_status sc_plugin_h2d_batch_check(void *user, const struct spec_memory *host,
                                      struct sc_plugin_memory *memory, struct spec_error *reterr);

extern const struct sc_plugin_target sc_plugin_target_cuda;

#endif
