/* rope: rotations by position for all requests and layers: a row of floats a position
 * (kernels/rotary.h), computed on first use.
 *
 * Invariants: rows that were returned do not change until close. Unused positions take only address
 * space, 8 bytes a channel of a head and position. If a quarter of the remaining address space is
 * less than needed, the capacity is halved until it fits. Keys beyond the capacity are not
 * quantised, and rotated codes of them are not read: their rows are loaded exactly.
 * Threads: any; a thread may wait for another's computation, some tens of microseconds.
 * Tests: tests/unit/plugin/test_quant.c */
#ifndef SC_PLUGIN_QUANT_ROPE_H
#define SC_PLUGIN_QUANT_ROPE_H

#include "abi/spec_connector.h"
#include "base/alloc.h"
#include "kernels/bitplanes.h"

struct sc_plugin_rope {
    struct sc_kernels_rotary rotary; /* turned 0: no rotation */
    double *frequencies;             /* [turned / 2] */
    float *rows;                     /* [capacity][turned] */
    float *tiles;                    /* the same, by sc_kernels_bitplanes_rope_tiles */
    _Atomic uint8_t *states;         /* [capacity / rows of a block] */
    uint64_t capacity;               /* positions */
};

/* Computes the model's frequencies. If its scaling is unknown, nothing is rotated and *ret_known is
 * false. count: positions of requests; the last chunk's rows may exceed it. Errors: NO_MEMORY. */
spec_status sc_plugin_rope_open(struct sc_plugin_rope *rope, struct sc_alloc *alloc,
                                const struct spec_model *model, uint64_t count, bool *ret_known,
                                struct spec_error *reterr);
void sc_plugin_rope_close(struct sc_plugin_rope *rope, struct sc_alloc *alloc);
/* Tells whether positions [first, + count) are below the capacity. */
static inline bool sc_plugin_rope_has(const struct sc_plugin_rope *rope, uint64_t first,
                                      uint64_t count)
{
    return first <= rope->capacity && count <= rope->capacity - first;
}
/* Returns rows of positions [first, + count); NULL: some exceed the capacity, or no rotation. */
const float *sc_plugin_rope_get(struct sc_plugin_rope *rope, uint64_t first, uint64_t count);

/* Returns the tiles of rows that get returned for `first`; NULL: not the start of a tile. */
const float *sc_plugin_rope_tiles(const struct sc_plugin_rope *rope, uint64_t first);

#endif
