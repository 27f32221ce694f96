/* dtype_table: the dtypes of the contract. Contract: dtype_table.h. */
#include "plugin/args/dtype_table.h"

#include "abi/spec_connector.h"
#include "kernels/dtype.h"

#include <stddef.h>

static const struct sc_plugin_dtype DTYPES[] = {
    [SPEC_DTYPE_F32] = {"float32", 4, SC_KERNELS_F32},
    [SPEC_DTYPE_F16] = {"float16", 2, SC_KERNELS_F16},
    [SPEC_DTYPE_BF16] = {"bfloat16", 2, SC_KERNELS_BF16},
    [SPEC_DTYPE_FP8_E4M3] = {"fp8_e4m3", 1, SC_PLUGIN_DTYPE_NONE},
    [SPEC_DTYPE_FP8_E5M2] = {"fp8_e5m2", 1, SC_PLUGIN_DTYPE_NONE},
    [SPEC_DTYPE_INT8] = {"int8", 1, SC_PLUGIN_DTYPE_NONE},
    [SPEC_DTYPE_BYTES] = {"bytes", 1, SC_PLUGIN_DTYPE_NONE},
};

const struct sc_plugin_dtype *sc_plugin_dtype_of(uint32_t dtype)
{
    bool is_one = dtype < sizeof(DTYPES) / sizeof(DTYPES[0]) && DTYPES[dtype].name != NULL;
    return is_one ? &DTYPES[dtype] : NULL;
}

uint32_t sc_plugin_dtype_bytes(uint32_t dtype)
{
    const struct sc_plugin_dtype *of = sc_plugin_dtype_of(dtype);
    return of != NULL ? of->bytes : 0;
}

uint32_t sc_plugin_kernels_dtype(uint32_t dtype)
{
    const struct sc_plugin_dtype *of = sc_plugin_dtype_of(dtype);
    return of != NULL ? of->kernels : SC_PLUGIN_DTYPE_NONE;
}

bool sc_plugin_dtype_is_scored(uint32_t dtype)
{
    return sc_plugin_kernels_dtype(dtype) != SC_PLUGIN_DTYPE_NONE;
}
