/* Checking a struct spec_memory before a byte of it is touched (ABI-008).
 *
 * Holds: after a check, every address that pack or unpack forms for these tokens lies inside
 * k_bytes and v_bytes; arithmetic cannot wrap. What kind of memory it is was asked here, once.
 * Threads: any.
 * Tests: conformance (abi_008_*), conformance/test_layout.c */
#ifndef SC_PLUGIN_ARGS_MEMORY_H
#define SC_PLUGIN_ARGS_MEMORY_H

#include "base/status.h"
#include "kernels/kernels.h"

#include <stdbool.h>

struct sc_plugin_target;
struct sc_plugin_h2d_batch;
struct sc_plugin_memory;

struct sc_plugin_shape { /* of one token's K and V in a layer */
    uint32_t kv_head_count;
    uint32_t head_size;
    uint32_t dtype;
    /* As in sc_kernels_move: both 0: V's heads are K's size; row_bytes alone: there is no V. */
    uint32_t head_size_v;
    uint64_t row_bytes; /* as stored */
};
/* How rows of that shape move, but from where to where, and by whom. */
struct sc_kernels_move sc_plugin_move_of(const struct sc_plugin_shape *shape);
static inline uint32_t sc_plugin_head_size_v(const struct sc_plugin_shape *shape)
{
    return shape->row_bytes == 0 ? shape->head_size : shape->head_size_v;
}

enum sc_plugin_memory_use {
    SC_MEMORY_SOURCE,      /* store: the namespace's dtype, no negative slot */
    SC_MEMORY_DESTINATION, /* load: the namespace's dtype or wider, negative slots skip */
    SC_MEMORY_KEYS         /* K alone, to be read; the shape's dtype, no negative slot */
};

/* How memory of a device becomes a destination (device/h2d_batch.h): checks what is the device's to
 * check, of memory that is right otherwise, and sets target, batch and stream. May block once, for
 * as long as a driver takes to attach. */
struct sc_plugin_memory_way {
    spec_status (*check)(void *user, const struct spec_memory *host,
                         struct sc_plugin_memory *memory, struct spec_error *reterr);
    void *user;
};

/* What a description is needed for. */
struct sc_plugin_memory_need {
    const char *name; /* for the error text */
    enum sc_plugin_memory_use use;
    const struct sc_plugin_shape *shape;
    uint64_t token_count;
};

struct sc_plugin_memory {                  /* that was checked */
    struct sc_kernels_memory at;           /* of a destination nobody follows it but its target */
    const struct sc_plugin_target *target; /* target.h */
    bool widens;                           /* what comes becomes float32 */
    bool has_negative_slot;
    struct sc_plugin_h2d_batch *batch; /* of a device's; else NULL */
    void *stream;                    /* likewise: the host's CUstream */
    spec_status begun;               /* what BEGIN said: if it is not OK, nothing is placed */
};

/* Reads and checks the host's description. Memory of a device is SPEC_E_UNSUPPORTED. */
spec_status sc_plugin_memory_check(const struct spec_memory *host,
                                   const struct sc_plugin_memory_need *need,
                                   struct sc_plugin_memory *ret_memory, struct spec_error *reterr);
/* The same, of memory that may be a device's. */
spec_status sc_plugin_memory_check_on(const struct spec_memory *host,
                                      const struct sc_plugin_memory_need *need,
                                      const struct sc_plugin_memory_way *way,
                                      struct sc_plugin_memory *ret_memory,
                                      struct spec_error *reterr);
/* Of all that says where tokens lie, but the bases: of memory that is described anew it tells
 * whether it is the same. */
uint64_t sc_plugin_memory_digest(const struct sc_plugin_memory *memory, uint64_t token_count);

#endif
