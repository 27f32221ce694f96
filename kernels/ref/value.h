/* value: reads and writes single values of rows and scales, for the references of quantisation. */
#ifndef SC_KERNELS_REF_VALUE_H
#define SC_KERNELS_REF_VALUE_H

#include "kernels/kernels.h"

#include <math.h>
#include <stdbool.h>

static inline float value_at(const uint8_t *row, uint64_t channel, uint32_t dtype)
{
    float value;
    sc_kernels_ref_widen(&value, row + channel * sc_kernels_dtype_bytes(dtype), 1, dtype);
    return value;
}

/* Writes `value` as f16. Returns false if it is not finite. */
static inline bool scale_put(uint8_t *dst, float value)
{
    sc_kernels_dtypes[SC_KERNELS_F16].narrow(dst, &value, 1);
    return fabsf(value_at(dst, 0, SC_KERNELS_F16)) < INFINITY;
}

#endif
