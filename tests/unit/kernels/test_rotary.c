/* cos and sin of positions: against libm, to the bit against vectors, and by what they must be at
 * places where they are known. */
#include "kernels/rotary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define TURNED 128u

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Of float32, at the size of `value`. */
static double last_place_of(double value)
{
    float size = fabsf((float)value);
    return (double)(nextafterf(size, INFINITY) - size);
}

static void turn_check(uint64_t position, const double *frequencies)
{
    float row[TURNED];
    sc_kernels_rope_row(position, frequencies, TURNED, row);
    for (uint32_t i = 0; i < TURNED / 2; i++) {
        double angle = (double)position * frequencies[i];
        double off[2] = {fabs((double)row[i] - cos(angle)),
                         fabs((double)row[TURNED / 2 + i] - sin(angle))};
        if (!(off[0] <= last_place_of(cos(angle)) && off[1] <= last_place_of(sin(angle))))
            fail_msg("position %u, frequency %.17g: cos %.9g, sin %.9g, off by %g and %g",
                     (unsigned)position, frequencies[i], (double)row[i],
                     (double)row[TURNED / 2 + i], off[0], off[1]);
    }
}

static void cos_and_sin_are_within_a_last_place_of_libms(void **state)
{
    (void)state;
    static const double BASES[] = {1e4, 5e5, 1e6};
    double frequencies[TURNED / 2];
    uint64_t seed = 1;
    for (uint32_t b = 0; b < 3; b++) {
        for (uint32_t i = 0; i < TURNED / 2; i++)
            frequencies[i] = pow(BASES[b], -2.0 * i / TURNED);
        for (uint64_t position = 0; position < 4096; position++)
            turn_check(position, frequencies);
        for (uint32_t n = 0; n < 4096; n++)
            turn_check(draw(&seed) % (SC_KERNELS_ROTARY_POSITIONS + 1), frequencies);
        turn_check(SC_KERNELS_ROTARY_POSITIONS, frequencies);
    }
    for (uint32_t n = 0; n < 1024; n++) { /* any frequency from 0 to 1 */
        for (uint32_t i = 0; i < TURNED / 2; i++)
            frequencies[i] = (double)draw(&seed) / 0x1p31;
        turn_check(draw(&seed) % SC_KERNELS_ROTARY_POSITIONS, frequencies);
    }
}

/* Angles as near to multiples of pi / 2 as a position can bring them: little is left of them. */
static void what_is_left_of_a_quarter_is_exact(void **state)
{
    (void)state;
    double frequencies[TURNED / 2];
    uint64_t seed = 2;
    for (uint64_t position = 1; position <= SC_KERNELS_ROTARY_POSITIONS; position *= 2)
        for (uint32_t n = 0; n < 64; n++) {
            for (uint32_t i = 0; i < TURNED / 2; i++) {
                double most = (double)position * 2 / M_PI;
                double quarter = floor((double)draw(&seed) / 0x1p31 * most);
                frequencies[i] = quarter * M_PI_2 / (double)position;
            }
            turn_check(position, frequencies);
        }
}

static void known_turns_have_known_bits(void **state)
{
    (void)state;
    static const struct {
        uint64_t position;
        double frequency;
        uint32_t cos, sin;
    } KNOWN[] = {
        {0, 1, 0x3f800000, 0x00000000},
        {1, 1, 0x3f0a5140, 0x3f576aa4},
        {355, 1, 0xbf800000, 0xb7fcde82},
        {4096, 0.01, 0xbf7e2e38, 0xbdf3bcf5},
        {16777216, 1, 0x3f2056b4, 0xbf47917c},
        {131071, 0.75, 0xbf728a15, 0x3ea3d64b},
        {9999999, 0x1p-24, 0x3f53db13, 0x3f0fb646},
    };
    for (uint32_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        float row[2];
        uint32_t bits[2];
        sc_kernels_rope_row(KNOWN[i].position, &KNOWN[i].frequency, 2, row);
        memcpy(bits, row, sizeof(bits));
        if (bits[0] != KNOWN[i].cos || bits[1] != KNOWN[i].sin)
            fail_msg("position %u: cos 0x%08x, sin 0x%08x", (unsigned)KNOWN[i].position, bits[0],
                     bits[1]);
    }
}

static void partners_are_each_others(void **state)
{
    (void)state;
    for (uint32_t pairs = 0; pairs < 2; pairs++) {
        struct sc_kernels_rotary rotary = {pairs, TURNED};
        for (uint64_t c = 0; c < TURNED; c++) {
            uint64_t pair, other_pair;
            float sign, other_sign;
            uint64_t other = sc_kernels_rotary_partner(&rotary, c, &pair, &sign);
            assert_int_equal(sc_kernels_rotary_partner(&rotary, other, &other_pair, &other_sign),
                             c);
            assert_int_equal(pair, other_pair);
            assert_true(sign == -other_sign && (sign < 0) == (c < other));
            assert_int_equal(pair, pairs == SC_KERNELS_ROTARY_HALF ? c % (TURNED / 2) : c / 2);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cos_and_sin_are_within_a_last_place_of_libms),
        cmocka_unit_test(what_is_left_of_a_quarter_is_exact),
        cmocka_unit_test(known_turns_have_known_bits),
        cmocka_unit_test(partners_are_each_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
