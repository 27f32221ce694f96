/* numbers: type conversions of dtype.h and token addresses, for kernels/cuda/.
 *
 * Invariants: conversions use integers if an instruction would lose what ref/ keeps: cvt maps all
 * f16 NaNs to one.
 * Tests: tests/unit/kernels/test_cuda_*.c */
#ifndef SC_KERNELS_CUDA_NUMBERS_H
#define SC_KERNELS_CUDA_NUMBERS_H

#include "kernels/cuda/spec.h"

SC_DEVICE uint32_t element_bytes_of(uint32_t dtype)
{
    return dtype == SC_CUDA_F32 ? 4 : 2;
}

SC_DEVICE uint32_t widen_f16(uint32_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 0x1f)
        return sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 0x00400000u : 0);
    if (exponent == 0)
        return sign | __float_as_uint(__fmul_rn((float)fraction, 0x1p-24f));
    return sign | (exponent + 112) << 23 | fraction << 13;
}

SC_DEVICE uint32_t widen(uint32_t half, uint32_t dtype)
{
    return dtype == SC_CUDA_F16 ? widen_f16(half) : half << 16;
}

/* `value` is not NaN. */
SC_DEVICE uint32_t narrow_f16(float value)
{
    uint32_t bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x477ff000u)
        return sign | 0x7c00u;
    if (magnitude < 0x38800000u) { /* multiples of 2^-24: the ulp of 0.5 */
        float whole = __fadd_rn(__uint_as_float(magnitude), 0.5f);
        return sign | (__float_as_uint(whole) - __float_as_uint(0.5f));
    }
    return sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
}

SC_DEVICE uint32_t narrow_bf16(float value)
{
    uint32_t bits = __float_as_uint(value);
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

SC_DEVICE uint32_t narrow(float value, uint32_t dtype)
{
    return dtype == SC_CUDA_F16 ? narrow_f16(value) : narrow_bf16(value);
}

/* Converts two values to the 16-bit halves of a word, the first one lower, as narrow() does. The
 * instructions round to nearest, ties to even, support subnormals, and turn overflow into infinity.
 * They know one NaN, but decoded values are never NaN. The encoders (kernels/codec.h, bitplanes.h)
 * refuse rows with NaN, infinity or a non-finite scale, so values are far within float32. */
template <uint32_t DTYPE> SC_DEVICE uint32_t narrow_pair(float low, float high)
{
#if defined(SC_EMULATED)
    return DTYPE == SC_CUDA_F16 ? emu::pack_f16(low, high) : emu::pack_bf16(low, high);
#else
    uint32_t word;
    if (DTYPE == SC_CUDA_F16)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#endif
}

/* widen_f16 without NaN payloads (the instruction has one NaN): for scales and queries. */
SC_DEVICE float number_widen(uint32_t half)
{
#if defined(SC_EMULATED)
    return emu::unpack_f16(half);
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)half));
    return value;
#endif
}

SC_DEVICE void element_store(uint8_t *at, uint32_t value, uint32_t bytes)
{
    if (bytes == 2)
        sc_store2(at, value);
    else
        sc_store4(at, value);
}

/* Loads an element of 1, 2 or 4 bytes at any address. */
SC_DEVICE uint32_t element_load_any(const uint8_t *at, uint32_t bytes)
{
    uint32_t value = 0;
    if (bytes > 1 && sc_off(at, bytes) == 0)
        return bytes == 2 ? sc_load2(at) : sc_load4(at);
    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint32_t)sc_load1(at + i) << 8 * i;
    return value;
}

SC_DEVICE void element_store_any(uint8_t *at, uint32_t value, uint32_t bytes)
{
    if (bytes > 1 && sc_off(at, bytes) == 0)
        element_store(at, value, bytes);
    else
        for (uint32_t i = 0; i < bytes; i++)
            sc_store1(at + i, value >> 8 * i & 0xff);
}


SC_DEVICE sc_cuda_part part_of(const sc_cuda_memory &memory, uint32_t part)
{
    sc_cuda_part found; /* an index would put parameters on a stack */
    found.base = part == 0 ? memory.parts[0].base : memory.parts[1].base;
    found.token_stride_bytes =
        part == 0 ? memory.parts[0].token_stride_bytes : memory.parts[1].token_stride_bytes;
    found.element_stride_bytes =
        part == 0 ? memory.parts[0].element_stride_bytes : memory.parts[1].element_stride_bytes;
    return found;
}

SC_DEVICE uint64_t slot_offset(const sc_cuda_memory &memory, const sc_cuda_part &part,
                               uint64_t slot)
{
    uint64_t block;
    if (memory.block_tokens == 0)
        return slot * part.token_stride_bytes;
    if ((slot | memory.block_tokens) >> 32 == 0) /* a 64-bit division is a routine */
        block = (uint32_t)slot / (uint32_t)memory.block_tokens;
    else
        block = slot / memory.block_tokens;
    return block * memory.block_stride_bytes +
           (slot - block * memory.block_tokens) * part.token_stride_bytes;
}

/* Tells whether each 16-byte multiple of a row of this part is 16-byte aligned in memory. */
SC_DEVICE bool is_by_16(const sc_cuda_memory &memory, const sc_cuda_part &part,
                        uint32_t element_bytes)
{
    uint64_t all = reinterpret_cast<uint64_t>(part.base) | part.token_stride_bytes |
                   memory.head_stride_bytes |
                   (memory.block_tokens != 0 ? memory.block_stride_bytes : 0);
    return part.element_stride_bytes == element_bytes && (all & 15) == 0;
}

#define NO_PLACE (~(uint64_t)0)

/* Returns a token's offset from the part's base, or NO_PLACE. */
SC_DEVICE uint64_t token_offset(const sc_cuda_memory &memory, const sc_cuda_part &part,
                                uint64_t token)
{
    uint64_t slot = token;
    if (memory.slots != nullptr) {
        uint2 words = sc_load8(memory.slots + token);
        slot = (uint64_t)words.y << 32 | words.x;
    }
    return (int64_t)slot < 0 ? NO_PLACE : slot_offset(memory, part, slot);
}

/* Returns nullptr if the token has no slot. */
SC_DEVICE uint8_t *token_at(const sc_cuda_memory &memory, const sc_cuda_part &part, uint64_t token)
{
    uint64_t offset = token_offset(memory, part, token);
    return offset == NO_PLACE ? nullptr : part.base + offset;
}

#endif
