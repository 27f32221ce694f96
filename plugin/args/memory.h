/* memory: checks a struct spec_memory before any byte of it is accessed (ABI-008).
 *
 * Invariants: after a check, every address that pack or unpack forms for these tokens is inside
 * k_bytes and v_bytes, and no arithmetic overflows. The kind of memory is tested here only.
 * Threads: any. Tests: conformance (abi_008_*), conformance/test_layout.c */
#ifndef SC_PLUGIN_ARGS_MEMORY_H
#define SC_PLUGIN_ARGS_MEMORY_H

#include "base/status.h"
#include "kernels/kernels.h"

#include <stdbool.h>

struct sc_plugin_target;
struct sc_plugin_h2d_batch;
struct sc_plugin_memory;

struct sc_plugin_shape { /* one token's K and V in a layer */
    uint32_t kv_head_count;
    uint32_t head_size;
    uint32_t dtype;
    /* As in sc_kernels_move; 0: V's heads have K's size (row_bytes 0) or there is no V. */
    uint32_t head_size_v;
    uint64_t row_bytes;
};
/* Returns the part of a move that the shape determines; memory and kernels are not set. */
struct sc_kernels_move sc_plugin_move_of(const struct sc_plugin_shape *shape);
static inline uint32_t sc_plugin_head_size_v(const struct sc_plugin_shape *shape)
{
    return shape->row_bytes == 0 ? shape->head_size : shape->head_size_v;
}

enum sc_plugin_memory_use {
    SC_MEMORY_SOURCE,      /* store: the namespace's dtype, no negative slot */
    SC_MEMORY_DESTINATION, /* load: the namespace's dtype or float32; negative slots are skipped */
    SC_MEMORY_KEYS         /* K only, read; the shape's dtype, no negative slot */
};

/* Turns checked device memory into a destination (device/h2d_batch.h): checks what only the device
 * can, and sets target, batch and stream. May block once while a driver attaches. */
struct sc_plugin_memory_way {
    spec_status (*check)(void *user, const struct spec_memory *host,
                         struct sc_plugin_memory *memory, struct spec_error *reterr);
    void *user;
};

struct sc_plugin_memory_need {
    const char *name;
    enum sc_plugin_memory_use use;
    const struct sc_plugin_shape *shape;
    uint64_t token_count;
};

struct sc_plugin_memory {        /* result of a check */
    struct sc_kernels_memory at; /* a destination's: used by its target only */
    const struct sc_plugin_target *target;
    bool widens; /* rows are widened to float32 */
    bool has_negative_slot;
    struct sc_plugin_h2d_batch *batch; /* device memory's batch; else NULL */
    void *stream;                      /* device memory's host stream (CUstream); else NULL */
    spec_status begun;                 /* status of BEGIN; unless SPEC_OK, nothing is placed */
};

/* Reads and checks the host's description. Device memory is SPEC_E_UNSUPPORTED. */
spec_status sc_plugin_memory_check(const struct spec_memory *host,
                                   const struct sc_plugin_memory_need *need,
                                   struct sc_plugin_memory *ret_memory, struct spec_error *reterr);
/* Does the same for memory that may be a device's, unless `way` is NULL. */
spec_status sc_plugin_memory_check_on(const struct spec_memory *host,
                                      const struct sc_plugin_memory_need *need,
                                      const struct sc_plugin_memory_way *way,
                                      struct sc_plugin_memory *ret_memory,
                                      struct spec_error *reterr);
/* Returns a digest of all that places tokens, except the bases: it detects a changed layout. */
uint64_t sc_plugin_memory_digest(const struct sc_plugin_memory *memory, uint64_t token_count);

#endif
