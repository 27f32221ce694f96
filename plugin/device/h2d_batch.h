/* What one request places on the device: rows and codes are copied into a pinned buffer as they are
 * verified, and go off when it is full, or when somebody waits for them.
 *
 *   pinned  [rows, codes, scales, tables, turns ..]  ..  [descriptors][slots]     16-byte aligned
 *           rows of the host tier are read by kernels from where they are (direct.h)
 *   flight  copies: pinned -> device       kernels: behind it, from that copy to their places
 *
 * Tokens of a pinned buffer are numbered by where their slot stands in it, so that blocks, negative
 * slots and tokens that are skipped are all one thing to a kernel: a slot, or none.
 *
 * Holds: what goes off was copied whole before, from bytes that were verified; the kernels' stream
 * does not write before what the host's stream had been given at BEGIN, and the host's stream goes
 * on behind the last of it at END. No token is written twice by what goes off together.
 * Does not: tell who places a call's rows twice; retry. What cannot be enqueued fails the item.
 * Threads: those that place for the request's item, one of its items at a time. One lock a batch
 * (rank 28).
 * Tests: tests/unit/plugin/test_device_loads.c, test_device_faults.c, test_pinned.c */
#ifndef SC_PLUGIN_DEVICE_H2D_BATCH_H
#define SC_PLUGIN_DEVICE_H2D_BATCH_H

#include "plugin/args/target.h"
#include "plugin/device/device_tables.h"

#define SC_PLUGIN_H2D_ROWS   1024u /* that go off together */
#define SC_PLUGIN_H2D_SCALES 8u    /* of slabs, that are remembered */
#define SC_PLUGIN_H2D_SLABS  256u  /* likewise, parts of slabs of each kind of codes */

struct sc_plugin_h2d_batch {
    /* Set by open, constant after. */
    struct sc_plugin_device *device;
    uint32_t slot; /* of the device, which other requests may use, too */

    pthread_mutex_t lock;
    struct sc_plugin_placing to;     /* of what is in the pinned buffer */
    struct sc_plugin_pinned *pinned; /* NULL: none */
    uint64_t used;               /* bytes of it */
    spec_status status;          /* of the item; the first that is not OK, with its text */
    char why[192];

    uint32_t row_count, row_parts; /* rows: at, slot; SC_CUDA_K, SC_CUDA_V or both */
    uint64_t row_at[SC_PLUGIN_H2D_ROWS];
    int64_t row_slots[SC_PLUGIN_H2D_ROWS];
    uint32_t even_count, even_rows; /* slabs; rows of the one with most */
    uint32_t free_count, free_rows, free_units;
    struct sc_cuda_codec_slab evens[SC_PLUGIN_H2D_SLABS];
    struct sc_cuda_bitplanes_slab frees[SC_PLUGIN_H2D_SLABS];
    const struct sc_kernels_bitplanes
        *tables_of[SC_PLUGIN_H2D_SLABS]; /* that are in the pinned buffer */
    const struct sc_kernels_rotary *tables_rope[SC_PLUGIN_H2D_SLABS];
    uint64_t tables_at[SC_PLUGIN_H2D_SLABS];
    uint32_t table_count;
    struct
    { /* slots that are in the pinned buffer: of these tokens, without those that are skipped */
        const uint64_t *skipped;
        uint64_t token, count, at; /* count 0: none are */
        bool is_any;
    } slots;
    const uint8_t *scales_of[SC_PLUGIN_H2D_SCALES]; /* likewise */
    uint64_t scales_at[SC_PLUGIN_H2D_SCALES];
    uint32_t scale_count;
};

/* Bytes of a pinned buffer that has room for the largest thing that goes into one. */
uint64_t sc_plugin_h2d_batch_least(const struct sc_plugin_device *device);
spec_status sc_plugin_h2d_batches_open(struct sc_plugin_device *device, struct spec_error *reterr);
/* Takes half of what open made, or nothing. */
void sc_plugin_h2d_batches_close(struct sc_plugin_device *device);
/* Takes a pinned buffer. If all are in use, waits for the device and sends off pinned buffers that
 * batches fill. The caller has no pinned buffer; it may hold the lock of a batch that has none. */
struct sc_plugin_pinned *sc_plugin_pinned_take(struct sc_plugin_device *device, uint32_t slot);

/* A struct sc_plugin_memory_way's (device_attach.c); user: a struct sc_plugin_device_seat. */
struct sc_plugin_device_seat {
    struct sc_plugin_device *device;
    uint64_t request; /* its number */
};
spec_status sc_plugin_h2d_batch_check(void *user, const struct spec_memory *host,
                                      struct sc_plugin_memory *memory, struct spec_error *reterr);

extern const struct sc_plugin_target sc_plugin_target_cuda;

#endif
