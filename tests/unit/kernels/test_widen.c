/* Widening: every 16-bit pattern, every rung that this machine has, any length and alignment,
 * against arithmetic of its own and against ref/, with guard words around the output. */
#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PATTERNS 65536u
#define GUARD    16u

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* IEEE 754 says what a half is worth; NaNs keep sign and payload and become quiet. */
static uint32_t expected_f16(uint32_t half)
{
    uint32_t sign = half >> 15, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31 && fraction != 0)
        return sign << 31 | 0x7fc00000u | fraction << 13;
    double value = exponent == 31  ? HUGE_VAL
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024.0 + fraction, (int)exponent - 25);
    return bits_of((float)(sign ? -value : value));
}

static void every_pattern_has_its_value_at_every_level(void **state)
{
    (void)state;
    uint16_t *src = malloc(PATTERNS * sizeof(*src));
    float *dst = malloc(PATTERNS * sizeof(*dst));
    assert_true(src != NULL && dst != NULL);
    for (uint32_t i = 0; i < PATTERNS; i++)
        src[i] = (uint16_t)i;
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
        const struct sc_kernels *kernels = sc_kernels_get(level);
        kernels->widen(dst, (const uint8_t *)src, PATTERNS, SC_KERNELS_F16);
        for (uint32_t i = 0; i < PATTERNS; i++)
            if (bits_of(dst[i]) != expected_f16(i))
                fail_msg("level %u: f16 %#x gives %#x, expected %#x", level, i, bits_of(dst[i]),
                         expected_f16(i));
        kernels->widen(dst, (const uint8_t *)src, PATTERNS, SC_KERNELS_BF16);
        for (uint32_t i = 0; i < PATTERNS; i++)
            if (bits_of(dst[i]) != i << 16)
                fail_msg("level %u: bf16 %#x gives %#x", level, i, bits_of(dst[i]));
    }
    free(src);
    free(dst);
}

/* Lengths and offsets that no step divides; nothing beside the output is written. */
static void any_length_and_alignment_equals_the_reference(void **state)
{
    (void)state;
    enum { LENGTHS = 100, OFFSETS = 17, WORDS = LENGTHS + OFFSETS + 2 * GUARD };
    uint32_t src[WORDS];
    float want[WORDS], got[WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        src[i] = i * 2654435761u + 77;
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
        for (uint32_t dtype = 0; dtype < SC_KERNELS_DTYPES; dtype++)
            for (uint32_t offset = 0; offset < OFFSETS; offset++)
                for (uint32_t count = 0; count < LENGTHS; count++) {
                    const struct sc_kernels *ref = sc_kernels_get(SC_KERNELS_REF);
                    const struct sc_kernels *mine = sc_kernels_get(level);
                    memset(want, 0xa5, sizeof(want));
                    memset(got, 0xa5, sizeof(got));
                    const uint8_t *from =
                        (const uint8_t *)src + (16 - offset) * sc_kernels_dtype_bytes(dtype);
                    ref->widen(want + GUARD + offset, from, count, dtype);
                    mine->widen(got + GUARD + offset, from, count, dtype);
                    assert_memory_equal(got, want, sizeof(want));
                    assert_int_equal(bits_of(got[GUARD + offset - 1]), 0xa5a5a5a5u);
                    assert_int_equal(bits_of(got[GUARD + offset + count]), 0xa5a5a5a5u);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_has_its_value_at_every_level),
        cmocka_unit_test(any_length_and_alignment_equals_the_reference),
    };
    print_message("best level: %d of %d\n", (int)sc_kernels_level_best(), SC_KERNELS_LEVELS - 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
