/* tensor: tensor core products: all their PTX, and the counterpart for tests/cuda/emu.
 *
 *   mma.sync.aligned.m16n8k16.row.col.f32.{f16|bf16}.{f16|bf16}.f32      capability 8.0, PTX 7.0
 *
 * D = A * B + C of a whole warp. A lane holds, with g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix
 * Fragments for mma.m16n8k16 with floating point type"):
 *
 *   A  16 rows x 16    word 0: row g,     2t and 2t + 1    word 2: row g,     2t + 8 and 2t + 9
 *                      word 1: row g + 8, 2t and 2t + 1    word 3: row g + 8, 2t + 8 and 2t + 9
 *   B  16 x 8 columns  word 0: 2t and 2t + 1 of column g   word 1: 2t + 8 and 2t + 9 of column g
 *   C  16 x 8          0, 1: row g, columns 2t and 2t + 1  2, 3: row g + 8, the same columns
 *
 * The lower half of a word is the first value. Products are exact. Additions depend on the device:
 * not to nearest, with few bits more than float32 (docs/decisions/0041).
 * Tests: tests/unit/kernels/test_cuda_tensor.c, test_cuda_emu.c */
#ifndef SC_KERNELS_CUDA_TENSOR_H
#define SC_KERNELS_CUDA_TENSOR_H

#include "kernels/cuda/port.h"

#if defined(SC_EMULATED)

#define sc_mma_f16(a, b_low, b_high, c)  emu::mma(__LINE__, emu::MMA_F16, a, b_low, b_high, c)
#define sc_mma_bf16(a, b_low, b_high, c) emu::mma(__LINE__, emu::MMA_BF16, a, b_low, b_high, c)
#define sc_pack_f16(low, high)           emu::pack_f16(low, high)

#else

#define SC_MMA(name, type)                                                                         \
    SC_DEVICE void name(const uint32_t a[4], uint32_t b_low, uint32_t b_high, float c[4])          \
    {                                                                                              \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));       \
    }
SC_MMA(sc_mma_f16, "f16")
SC_MMA(sc_mma_bf16, "bf16")
#undef SC_MMA

/* Rounds two float32 to nearest f16, in one word. */
SC_DEVICE uint32_t sc_pack_f16(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

#endif
#endif
