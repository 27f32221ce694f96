/* dtype: one table of the number types that are scored and quantised. A new type is a new row; code
 * without a special path for it uses the row's functions.
 *
 * Invariants: widening is exact. f16 NaNs become quiet and keep their payload, as in hardware; bf16
 * bits are kept. Narrowing rounds to nearest, ties to even, and takes no NaN.
 * Threads: any. Tests: tests/unit/kernels/test_widen.c, test_codec.c */
#ifndef SC_KERNELS_DTYPE_H
#define SC_KERNELS_DTYPE_H

#include <stdint.h>

enum sc_kernels_dtype { SC_KERNELS_F32, SC_KERNELS_F16, SC_KERNELS_BF16, SC_KERNELS_DTYPES };

struct sc_kernels_dtype_row {
    uint32_t bytes; /* bytes of an element */
    void (*widen)(float *dst, const uint8_t *src, uint64_t count);
    void (*narrow)(uint8_t *dst, const float *src, uint64_t count);
};
extern const struct sc_kernels_dtype_row sc_kernels_dtypes[]; /* [SC_KERNELS_DTYPES] */

static inline uint64_t sc_kernels_dtype_bytes(uint32_t dtype)
{
    return sc_kernels_dtypes[dtype].bytes;
}

#endif
