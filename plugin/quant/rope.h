/* How keys are turned by their position, kept for all requests and layers: a row of floats a
 * position (kernels/rotary.h), made when it is first wanted.
 *
 * Holds: what get returned never changes, until close.
 * Does not: hold memory for positions that nobody wanted (address space alone, 8 bytes a channel of
 *   a head and position). Where a quarter of the address space that the process has left is less
 *   than that, fewer positions have turns, half or a quarter and so on: keys behind them get no
 *   codes, and turned codes of them are not read here, their rows come exactly.
 * Threads: any; who wants what another is making waits for him, some tens of microseconds.
 * Tests: tests/unit/plugin/test_quant.c */
#ifndef SC_PLUGIN_QUANT_ROPE_H
#define SC_PLUGIN_QUANT_ROPE_H

#include "abi/spec_connector.h"
#include "base/alloc.h"
#include "kernels/bitplanes.h"

struct sc_plugin_rope {
    struct sc_kernels_rotary rotary; /* turned 0: nothing is turned */
    double *frequencies;             /* [turned / 2] */
    float *rows;                     /* [capacity][turned] */
    float *tiles;                    /* the same, by sc_kernels_bitplanes_rope_tiles */
    _Atomic uint8_t *states;         /* [capacity / a block's rows] */
    uint64_t capacity;               /* positions */
};

/* Frequencies as the model says; of a scaling that is not known nothing is turned, and *ret_known
 * is false. count: positions that requests may have; what is coded with the last of them, some rows
 * of a chunk, may be behind. Errors: NO_MEMORY. */
spec_status sc_plugin_rope_open(struct sc_plugin_rope *rope, struct sc_alloc *alloc,
                                const struct spec_model *model, uint64_t count, bool *ret_known,
                                struct spec_error *reterr);
void sc_plugin_rope_close(struct sc_plugin_rope *rope, struct sc_alloc *alloc);
/* Whether all of the positions [first, + count) are below the capacity. */
static inline bool sc_plugin_rope_has(const struct sc_plugin_rope *rope, uint64_t first,
                                      uint64_t count)
{
    return first <= rope->capacity && count <= rope->capacity - first;
}
/* Rows of positions [first, + count); NULL: not all are below the capacity, or nothing is turned.
 */
const float *sc_plugin_rope_get(struct sc_plugin_rope *rope, uint64_t first, uint64_t count);

/* Tiles of the same, of what get returned for that first position; NULL: it begins no tile. */
const float *sc_plugin_rope_tiles(const struct sc_plugin_rope *rope, uint64_t first);

#endif
