/* The dtypes of the contract (SPEC_DTYPE_*), and what is known of each, in one table.
 *
 *   scored   numbers to us: rows are chosen by them, coded, and widened
 *   others   bytes: stored and delivered as they are, never looked at (ABI-180)
 *
 * Holds: every dtype that comes in is refused by this table: the model's at open, memory's,
 * queries' and hints' at their call.
 * Threads: any.
 * Tests: tests/unit/plugin/test_memory.c, test_bytes.c */
#ifndef SC_PLUGIN_ARGS_DTYPE_TABLE_H
#define SC_PLUGIN_ARGS_DTYPE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#define SC_PLUGIN_DTYPE_NONE UINT32_MAX

struct sc_plugin_dtype {
    const char *name;
    uint32_t bytes;   /* of one element */
    uint32_t kernels; /* enum sc_kernels_dtype; SC_PLUGIN_DTYPE_NONE: not scored */
};

/* NULL: not a dtype. */
const struct sc_plugin_dtype *sc_plugin_dtype_of(uint32_t dtype);
/* Bytes of one element; 0: not a dtype. */
uint32_t sc_plugin_dtype_bytes(uint32_t dtype);
/* As kernels have it; SC_PLUGIN_DTYPE_NONE: not a dtype, or one that is not scored. */
uint32_t sc_plugin_kernels_dtype(uint32_t dtype);
bool sc_plugin_dtype_is_scored(uint32_t dtype);

#endif
