/* Numeric kernels behind one table, chosen once at run time: ref/ plain C, cpu/ AVX2 and AVX-512.
 *
 *   packed row  [K: head 0 .. head H-1][V: head 0 .. head H-1]   head_size elements a head
 *   memory      slot -> base + (slot / block) * block stride + (slot % block) * token stride
 *                            + head * head stride                (struct spec_memory)
 *
 * Holds: every rung writes the same bits as ref/, and no byte outside its outputs.
 * Does not: check addresses (plugin/memory.c did), allocate, choose threads.
 * Threads: any.
 * Tests: tests/unit/kernels/test_rows.c, tests/unit/kernels/test_widen.c */
#ifndef SC_KERNELS_KERNELS_H
#define SC_KERNELS_KERNELS_H

#include <stdint.h>

/* Rungs of the ladder; a machine runs the highest that it has. */
enum sc_kernels_level { SC_KERNELS_REF, SC_KERNELS_AVX2, SC_KERNELS_AVX512, SC_KERNELS_LEVELS };

struct sc_kernels {
    /* dst[i] = (float)src[i], exact. f16 NaNs become quiet, payload kept, as hardware does it;
     * bf16 bits are kept as they are.  src, dst [count] */
    void (*widen_f16)(float *dst, const uint16_t *src, uint64_t count);
    void (*widen_bf16)(float *dst, const uint16_t *src, uint64_t count);
};

/* The highest level this machine and operating system run (CPUID, XGETBV; no static state). */
enum sc_kernels_level sc_kernels_level_best(void);
/* The table of a level; level <= sc_kernels_level_best(). Never NULL, static memory. */
const struct sc_kernels *sc_kernels_get(enum sc_kernels_level level);

/* A struct spec_memory that was checked, with what the copy loops need. */
struct sc_kernels_memory {
    uint8_t *k_base, *v_base;
    uint64_t token_stride_bytes, head_stride_bytes;
    uint64_t block_tokens, block_stride_bytes; /* block_tokens 0: no blocks */
    const int64_t *slots;                      /* NULL: identity */
};

/* Packs tokens [token_first, token_first + token_count) of the memory into consecutive rows.
 *   dst [token_count, 2, head_count, head_bytes]   written whole
 * No slot is negative. */
void sc_kernels_rows_pack(const struct sc_kernels_memory *memory, uint64_t token_first,
                          uint64_t token_count, uint64_t head_count, uint64_t head_bytes,
                          uint8_t *dst);

enum sc_kernels_widen { SC_KERNELS_SAME, SC_KERNELS_F16_TO_F32, SC_KERNELS_BF16_TO_F32 };

/* The way back: rows to tokens of the memory, widened when asked; negative slots are skipped.
 *   src [token_count, 2, head_count, head_size elements]   element_bytes each */
struct sc_kernels_unpack {
    const struct sc_kernels *kernels;
    uint64_t head_count, head_size, element_bytes; /* of the source */
    uint32_t widen;                                /* enum sc_kernels_widen */
};
void sc_kernels_rows_unpack(const struct sc_kernels_unpack *how,
                            const struct sc_kernels_memory *memory, uint64_t token_first,
                            uint64_t token_count, const uint8_t *src);
/* Asks for the cache lines that such an unpack will write: for a caller that has something to
 * compute before it, so that the two wait for memory together. No effect on memory. */
void sc_kernels_rows_prefetch(const struct sc_kernels_unpack *how,
                              const struct sc_kernels_memory *memory, uint64_t token_first,
                              uint64_t token_count);

/* The rungs, for the table and for tests. */
void sc_kernels_ref_widen_f16(float *dst, const uint16_t *src, uint64_t count);
void sc_kernels_ref_widen_bf16(float *dst, const uint16_t *src, uint64_t count);
void sc_kernels_avx2_widen_f16(float *dst, const uint16_t *src, uint64_t count);
void sc_kernels_avx2_widen_bf16(float *dst, const uint16_t *src, uint64_t count);
void sc_kernels_avx512_widen_f16(float *dst, const uint16_t *src, uint64_t count);
void sc_kernels_avx512_widen_bf16(float *dst, const uint16_t *src, uint64_t count);

#endif
