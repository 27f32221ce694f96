/* dtype_table: the dtypes of the contract (SPEC_DTYPE_*) and their properties.
 *
 *   scored   numbers: rows are selected by them, quantised and widened
 *   others   bytes: stored and delivered uninterpreted (ABI-180)
 *
 * Every dtype that the host passes is checked against this table: at open or at its call.
 * Threads: any. Tests: tests/unit/plugin/test_memory.c, test_bytes.c */
#ifndef SC_PLUGIN_ARGS_DTYPE_TABLE_H
#define SC_PLUGIN_ARGS_DTYPE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#define SC_PLUGIN_DTYPE_NONE UINT32_MAX

struct sc_plugin_dtype {
    const char *name;
    uint32_t bytes;   /* bytes of one element */
    uint32_t kernels; /* enum sc_kernels_dtype, or SC_PLUGIN_DTYPE_NONE if not scored */
};

/* Returns NULL if it is not a dtype. */
const struct sc_plugin_dtype *sc_plugin_dtype_of(uint32_t dtype);
uint32_t sc_plugin_dtype_bytes(uint32_t dtype);
/* Returns enum sc_kernels_dtype; SC_PLUGIN_DTYPE_NONE if it is not a dtype or not scored. */
uint32_t sc_plugin_kernels_dtype(uint32_t dtype);
bool sc_plugin_dtype_is_scored(uint32_t dtype);

#endif
