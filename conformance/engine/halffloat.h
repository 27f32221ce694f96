/* halffloat: storage types of weights and of the KV cache, converted to and from float.
 *
 * Invariants: widening is exact (a signalling NaN in f16 becomes quiet). Narrowing rounds to
 * nearest, ties to even; overflow gives infinity; denormals are kept; a NaN stays a quiet NaN with
 * its sign and the upper bits of its payload. Every CPU level gives the same bits. Memory may be
 * unaligned.
 * Threads: any. Tests: tests/unit/engine/test_vecmath.c */
#ifndef CONFORMANCE_ENGINE_HALFFLOAT_H
#define CONFORMANCE_ENGINE_HALFFLOAT_H

#include <stdint.h>

enum eng_dtype { ENG_F32, ENG_F16, ENG_BF16, ENG_DTYPES };

/* 4, 2 or 2. */
uint64_t eng_dtype_bytes(enum eng_dtype dtype);

/* "f32", "f16", "bf16". */
const char *eng_dtype_name(enum eng_dtype dtype);

float eng_f16_to_f32(uint16_t bits);
float eng_bf16_to_f32(uint16_t bits);
uint16_t eng_f32_to_f16(float value);
uint16_t eng_f32_to_bf16(float value);

/* dst[i] = the float of src[i]. src: count values of dtype. */
void eng_widen(const void *src, enum eng_dtype dtype, uint64_t count, float *dst);

/* dst[i] = src[i] rounded to dtype. dst: count values of dtype. */
void eng_narrow(const float *src, enum eng_dtype dtype, uint64_t count, void *dst);

#endif
