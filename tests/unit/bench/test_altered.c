/* Rounding to fp8: values of e4m3 stay, values between two become the nearer one, half-way the even
 * one, and nothing exceeds 448. */
#include "bench/altered.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { CODES = 127 }; /* of one sign; the last pattern is NaN */

/* The value of a code as the format defines it: 4 bits of exponent, bias 7, 3 of mantissa. */
static float value_of(int code)
{
    int exponent = code >> 3;
    float mantissa = (float)(code & 7) / 8;
    return exponent == 0 ? ldexpf(mantissa, -6) : ldexpf(1 + mantissa, exponent - 7);
}

static void every_value_of_the_format_stays(void **state)
{
    (void)state;
    assert_true(value_of(CODES - 1) == 448.0f);
    for (int code = 0; code < CODES; code++) {
        assert_true(altered_e4m3(value_of(code)) == value_of(code));
        assert_true(altered_e4m3(-value_of(code)) == -value_of(code));
    }
}

static void others_go_to_the_nearest_and_half_way_to_the_even_one(void **state)
{
    (void)state;
    for (int code = 0; code + 1 < CODES; code++) {
        float low = value_of(code);
        float high = value_of(code + 1);
        float middle = (low + high) / 2;
        assert_true(altered_e4m3(middle) == (code % 2 == 0 ? low : high));
        assert_true(altered_e4m3(nextafterf(middle, 0)) == low);
        assert_true(altered_e4m3(nextafterf(middle, INFINITY)) == high);
    }
}

static void too_large_values_become_448_and_nan_stays(void **state)
{
    (void)state;
    assert_true(altered_e4m3(449) == 448.0f);
    assert_true(altered_e4m3(-1e30f) == -448.0f);
    assert_true(isnan(altered_e4m3(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_of_the_format_stays),
        cmocka_unit_test(others_go_to_the_nearest_and_half_way_to_the_even_one),
        cmocka_unit_test(too_large_values_become_448_and_nan_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
