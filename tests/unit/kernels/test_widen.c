/* Widening to float32: every 16-bit value is exact, and every rung gives the reference's bits at
 * every length and alignment and writes nothing beside its output. A rung that the processor lacks
 * is skipped. */
#include "kernels/kernels.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VALUES 65536u
#define GUARD  0xa5a5a5a5u

static uint16_t all_values[VALUES];

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* What a binary16 value is, from its definition. */
static uint32_t wanted_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half >> 15) << 31, fraction = half & 0x3ffu;
    int exponent = half >> 10 & 0x1f;
    if (exponent == 31 && fraction == 0)
        return sign | bits_of(INFINITY);
    if (exponent == 31)
        return sign | 0x7fc00000u | fraction << 13;
    double magnitude =
        exponent == 0 ? ldexp(fraction, -24) : ldexp(1024.0 + fraction, exponent - 25);
    return sign | bits_of((float)magnitude);
}

static void the_reference_widens_every_value_exactly(void **state)
{
    static float found[VALUES];
    (void)state;
    sc_kernels_ref_widen_f16(found, all_values, VALUES);
    for (uint32_t i = 0; i < VALUES; i++)
        assert_int_equal(bits_of(found[i]), wanted_f16((uint16_t)i));
    sc_kernels_ref_widen_bf16(found, all_values, VALUES);
    for (uint32_t i = 0; i < VALUES; i++)
        assert_int_equal(bits_of(found[i]), i << 16);
}

/* Runs one widening beside the reference, over [count] values from `first` on, between guards. */
static void compare(void (*widen)(float *, const uint16_t *, uint64_t),
                    void (*reference)(float *, const uint16_t *, uint64_t), uint32_t first,
                    uint32_t count, uint32_t shift)
{
    static uint32_t found[VALUES + 64], wanted[VALUES + 64];
    for (uint32_t i = 0; i < count + 64; i++)
        found[i] = wanted[i] = GUARD;
    widen((float *)(void *)(found + shift), all_values + first, count);
    reference((float *)(void *)(wanted + shift), all_values + first, count);
    if (memcmp(found, wanted, (count + 64) * sizeof(found[0])) != 0)
        fail_msg("%" PRIu32 " values from %" PRIu32 " on, shifted by %" PRIu32 ", differ", count,
                 first, shift);
}

static void rung_equals_the_reference(enum sc_kernels_level level, const char *name)
{
    static const uint32_t counts[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 1000};
    if (sc_kernels_level_best() < level) {
        print_message("skipped: this CPU lacks %s\n", name);
        skip();
    }
    const struct sc_kernels *rung = sc_kernels_get(level);
    compare(rung->widen_f16, sc_kernels_ref_widen_f16, 0, VALUES, 0);
    compare(rung->widen_bf16, sc_kernels_ref_widen_bf16, 0, VALUES, 0);
    for (uint32_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        for (uint32_t shift = 0; shift < 17; shift++) {
            uint32_t first = 31 * 1024 - 500 + 3 * shift; /* the largest numbers, infinity, NaNs */
            compare(rung->widen_f16, sc_kernels_ref_widen_f16, first, counts[c], shift);
            compare(rung->widen_bf16, sc_kernels_ref_widen_bf16, first, counts[c], shift);
        }
}

static void avx2_equals_the_reference(void **state)
{
    (void)state;
    rung_equals_the_reference(SC_KERNELS_AVX2, "AVX2");
}

static void avx512_equals_the_reference(void **state)
{
    (void)state;
    rung_equals_the_reference(SC_KERNELS_AVX512, "AVX-512");
}

static void every_level_that_runs_has_its_table(void **state)
{
    (void)state;
    for (int level = SC_KERNELS_REF; level <= (int)sc_kernels_level_best(); level++) {
        const struct sc_kernels *table = sc_kernels_get((enum sc_kernels_level)level);
        assert_non_null(table->widen_f16);
        assert_non_null(table->widen_bf16);
    }
    assert_true(sc_kernels_get(SC_KERNELS_REF)->widen_f16 == sc_kernels_ref_widen_f16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_widens_every_value_exactly),
        cmocka_unit_test(avx2_equals_the_reference),
        cmocka_unit_test(avx512_equals_the_reference),
        cmocka_unit_test(every_level_that_runs_has_its_table),
    };
    for (uint32_t i = 0; i < VALUES; i++)
        all_values[i] = (uint16_t)i;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
