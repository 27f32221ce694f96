/* Fits and cuts: lines through samples of one shape and of several, noise, samples that stand out,
 * change; cuts beside a dumb search over all of the grid. */
#include "plugin/load_or_compute/split.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY 32u

static void assert_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected)))
        fail_msg("%g, expected %g within %g", value, expected, share);
}

static double next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*seed >> 11) * 0x1p-53;
}

/* A pass over [first, first + count) of an engine that takes a + b x ns at position x. */
static void learn(struct sc_plugin_line *line, double a, double b, double first, double count,
                  double noise)
{
    double positions = count * (first + (count - 1) / 2);
    sc_plugin_line_learn(line, count, positions, (a * count + b * positions) * (1 + noise), MEMORY);
}

static void line_of_nothing_is_zero(void **state)
{
    (void)state;
    struct sc_plugin_line line = {0};
    double u = 1, v = 1;
    sc_plugin_line_solve(&line, &u, &v);
    assert_true(u == 0 && v == 0);
}

static void passes_of_several_shapes_tell_both_numbers(void **state)
{
    (void)state;
    struct sc_plugin_line line = {0};
    double a, b;
    for (uint32_t i = 0; i < 16; i++) /* chunks of a long prompt */
        learn(&line, 1e5, 3.2, 512.0 * i, 512, 0);
    sc_plugin_line_solve(&line, &a, &b);
    assert_near(a, 1e5, .01);
    assert_near(b, 3.2, .05);
}

static void passes_of_one_shape_tell_what_such_a_pass_takes(void **state)
{
    (void)state;
    struct sc_plugin_line line = {0};
    double a, b;
    for (uint32_t i = 0; i < 20; i++)
        learn(&line, 1e5, 3.2, 0, 4096, 0);
    sc_plugin_line_solve(&line, &a, &b);
    assert_true(a >= 0 && b >= 0);
    assert_near(a * 4096 + b * 4096 * 2047.5, 1e5 * 4096 + 3.2 * 4096 * 2047.5, 1e-3);
}

static void numbers_are_never_negative(void **state)
{
    (void)state;
    struct sc_plugin_line line = {0};
    double a, b;
    for (uint32_t i = 0; i < 16; i++) /* the later a chunk, the faster */
        sc_plugin_line_learn(&line, 512, 512 * (512.0 * i + 255.5), 6e7 - 1e6 * i, MEMORY);
    sc_plugin_line_solve(&line, &a, &b);
    assert_true(a > 0 && b == 0);
    memset(&line, 0, sizeof(line));
    for (uint32_t i = 1; i < 16; i++) /* as if a token cost less than nothing */
        sc_plugin_line_learn(&line, 512, 512 * (512.0 * i + 255.5), 1.5e6 * i * i, MEMORY);
    sc_plugin_line_solve(&line, &a, &b);
    assert_true(a == 0 && b > 0);
}

static void noise_averages_out(void **state)
{
    (void)state;
    struct sc_plugin_line line = {0};
    uint64_t seed = 7;
    double a, b;
    for (uint32_t i = 0; i < 200; i++)
        learn(&line, 1e5, 3.2, 512.0 * (i % 16), 512, .2 * (next(&seed) - .5));
    sc_plugin_line_solve(&line, &a, &b);
    assert_near(a * 512 + b * 512 * 4096, 1e5 * 512 + 3.2 * 512 * 4096, .03);
}

static void what_stands_out_is_held_back_until_it_stays(void **state)
{
    (void)state;
    struct sc_plugin_line line = {0};
    double a, b, c;
    for (uint32_t i = 0; i < 8; i++)
        sc_plugin_line_learn(&line, 1000, 0, 1000, MEMORY);
    sc_plugin_line_learn(&line, 1000, 0, 50000, MEMORY);
    sc_plugin_line_learn(&line, 1000, 0, 50000, MEMORY);
    sc_plugin_line_solve(&line, &a, &b);
    assert_near(a, 1, 1e-9);
    sc_plugin_line_learn(&line, 1000, 0, 20, MEMORY); /* another way: it begins anew to count */
    sc_plugin_line_learn(&line, 1000, 0, 50000, MEMORY);
    sc_plugin_line_learn(&line, 1000, 0, 50000, MEMORY);
    sc_plugin_line_solve(&line, &a, &c);
    assert_near(a, 1, 1e-9);
    sc_plugin_line_learn(&line, 1000, 0, 50000, MEMORY);
    sc_plugin_line_solve(&line, &a, &c);
    assert_near(a, 50, 1e-9);
}

static void a_slow_change_is_followed(void **state)
{
    (void)state;
    struct sc_plugin_line line = {0};
    double a, b, at = 1;
    for (uint32_t i = 0; i < 400; i++) {
        sc_plugin_line_learn(&line, 1000, 0, 1000 * at, 16);
        at *= 1.01;
    }
    sc_plugin_line_solve(&line, &a, &b);
    assert_near(a, at, .2);
}

static double byte_ns_of(const struct sc_plugin_line *line)
{
    double u, v;
    sc_plugin_line_solve(line, &u, &v);
    return u;
}

static void what_a_busy_host_saw_is_believed_a_half_at_most(void **state)
{
    (void)state;
    struct sc_plugin_line line = {0};
    sc_plugin_line_learn_within(&line, 1000, 0, 1000, 5000, MEMORY); /* nothing was believed */
    assert_near(byte_ns_of(&line), 1, 1e-9);
    sc_plugin_line_learn_within(&line, 1000, 0, 10, 900, MEMORY); /* no more than twice as fast */
    assert_near(byte_ns_of(&line), .75, 1e-9);
    sc_plugin_line_learn_within(&line, 1000, 0, 750, 750, MEMORY); /* as believed */
    assert_near(byte_ns_of(&line), .75, .02);
    for (uint32_t i = 0; i < 3; i++) /* the host waited for all of it: it is so fast */
        sc_plugin_line_learn_within(&line, 1000, 0, 10, 10, MEMORY);
    assert_near(byte_ns_of(&line), .01, 1e-9);
    for (uint32_t i = 0; i < 3; i++) /* slower is slower, whatever the host did */
        sc_plugin_line_learn_within(&line, 1000, 0, 100, 9000, MEMORY);
    assert_near(byte_ns_of(&line), .1, 1e-9);
}

/* ---- Cuts ----------------------------------------------------------------------------------- */

static double least_ns(const struct sc_plugin_cut *cut)
{
    double least = sc_plugin_cut_ns(cut, cut->end);
    uint64_t grid = cut->multiple > cut->grid ? cut->multiple : cut->grid;
    for (uint64_t n = 0; n <= cut->end; n += grid) {
        uint64_t at = n - (cut->multiple > 1 ? n % cut->multiple : 0);
        least = fmin(least, sc_plugin_cut_ns(cut, at > cut->from ? at : cut->from));
    }
    return least;
}

static void cuts_are_as_good_as_any_on_the_grid(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (uint32_t i = 0; i < 20000; i++) {
        struct sc_plugin_estimate estimate = {.token_ns = exp(next(&seed) * 10),
                                              .position_ns = next(&seed) < .5 ? 0 : next(&seed),
                                              .byte_ns = exp(next(&seed) * 10 - 5),
                                              .is_apart = next(&seed) < .2};
        uint64_t total = 2 + (uint64_t)(next(&seed) * 20000);
        struct sc_plugin_cut cut = {
            .estimate = &estimate, .total = total, .grid = 64, .layers = 24};
        estimate.row_bytes[SC_LOAD_ALL_ROWS] = 100;
        estimate.row_bytes[SC_LOAD_SELECTED_ROWS] = 100 * next(&seed);
        estimate.host_ns[SC_LOAD_ALL_ROWS] = next(&seed) < .5 ? 0 : exp(next(&seed) * 10);
        estimate.host_ns[SC_LOAD_SELECTED_ROWS] = estimate.host_ns[SC_LOAD_ALL_ROWS] * next(&seed);
        estimate.pass_tokens = next(&seed) < .7 ? 0 : 512;
        cut.end = 1 + (uint64_t)(next(&seed) * (double)(total - 2));
        cut.from = next(&seed) < .5 ? 0 : (uint64_t)(next(&seed) * (double)cut.end);
        cut.multiple = next(&seed) < .5 ? 0 : 1 + (uint64_t)(next(&seed) * 100);
        cut.whole_end = next(&seed) < .5 ? 0 : cut.from + (uint64_t)(next(&seed) * 9000);
        uint64_t n = sc_plugin_cut_find(&cut);
        assert_in_range(n, cut.from, cut.end);
        assert_true(n == cut.end || n == cut.from || cut.multiple <= 1 || n % cut.multiple == 0);
        if (!(sc_plugin_cut_ns(&cut, n) <= least_ns(&cut) * 1.0201))
            fail_msg("%u: %llu of %llu: %g, the least is %g", i, (unsigned long long)n,
                     (unsigned long long)cut.end, sc_plugin_cut_ns(&cut, n), least_ns(&cut));
    }
}

/* Cake's numbers: 1.003e-4 n + 1.615e-9 n^2 s, 512 KiB a token. */
static void cuts_of_the_papers_numbers(void **state)
{
    (void)state;
    struct sc_plugin_estimate estimate = {.token_ns = 1.003e5, .position_ns = 3.23};
    struct sc_plugin_cut cut = {
        .estimate = &estimate, .end = 32000, .total = 32064, .grid = 64, .layers = 32};
    estimate.row_bytes[SC_LOAD_ALL_ROWS] = 512 << 10;
    double all_ns = sc_plugin_cut_ns(&cut, 0);
    for (double rate = .02; rate < 60; rate *= 1.3) { /* of loading all beside computing all */
        estimate.byte_ns = all_ns / (32000.0 * (512 << 10)) / rate;
        double ns = sc_plugin_cut_ns(&cut, sc_plugin_cut_find(&cut));
        assert_true(ns <= 1.001 * all_ns);
        assert_true(ns <= 1.021 * sc_plugin_cut_ns(&cut, 32000));
    }
    estimate.byte_ns = 1e9; /* a disk that stands still */
    assert_int_equal(sc_plugin_cut_find(&cut), 0);
    estimate.byte_ns = 1e-9;
    assert_int_equal(sc_plugin_cut_find(&cut), 32000);
    cut.host_slab_rows = 32000; /* all of it lies in memory */
    estimate.byte_ns = 1e9;
    assert_int_equal(sc_plugin_cut_find(&cut), 32000);
}

/* A volume of so many bytes a second, that gives what it saved up at the device's own speed. */
struct bucket {
    double byte_ns, device_byte_ns, saved_most, saved, now_ns;
};

/* When bytes that were asked for at `from_ns` have come. */
static double bucket_read(struct bucket *bucket, double from_ns, double bytes)
{
    double saved = bucket->saved + (from_ns - bucket->now_ns) / bucket->byte_ns;
    saved = fmin(saved, bucket->saved_most);
    double most_ns = fmax((bytes - saved) * bucket->byte_ns, bytes * bucket->device_byte_ns);
    bucket->now_ns = from_ns + most_ns;
    bucket->saved = fmin(saved + most_ns / bucket->byte_ns - bytes, bucket->saved_most);
    return bucket->now_ns;
}

/* A request of which n tokens are loaded, a layer while the one before is computed; 10 ms of rest
 * after it. Teaches the line, if there is one, as a connector does. TTFT. */
static double bucket_request(struct bucket *bucket, const struct sc_plugin_cut *cut, uint64_t n,
                             struct sc_plugin_line *line)
{
    double layers = (double)cut->layers, bytes = (double)n * cut->estimate->row_bytes[0] / layers;
    double compute_ns = cut->estimate->token_ns * (double)(cut->total - n) / layers;
    double begin_ns = bucket->now_ns + 1e7, host_ns = begin_ns, asked_ns = begin_ns, busy_ns = 0;
    for (double layer = 0; layer < layers; layer++) {
        double from_ns = fmax(asked_ns, bucket->now_ns),
               come_ns = bucket_read(bucket, from_ns, bytes);
        busy_ns += come_ns - from_ns;
        asked_ns = fmax(host_ns, come_ns); /* the next one, while this one is computed */
        host_ns = asked_ns + compute_ns;
    }
    if (line != NULL && n > 0)
        sc_plugin_line_learn_within(line, bytes * layers, 0, busy_ns, host_ns - begin_ns, 16);
    bucket->now_ns = host_ns;
    bucket->saved =
        fmin(bucket->saved + (host_ns - asked_ns) / bucket->byte_ns, bucket->saved_most);
    return host_ns - begin_ns;
}

/* Loads that are spread over what the host computes look as fast as the device; loads that are all
 * there is to do get what the volume gives. */
static void a_volume_with_a_budget_is_not_taken_for_its_device(void **state)
{
    (void)state;
    for (double rate = .5; rate < 20; rate *= 1.5) { /* of loading all beside computing all */
        struct sc_plugin_estimate estimate = {.token_ns = 1.7e6, .row_bytes = {23400}};
        struct sc_plugin_cut cut = {
            .estimate = &estimate, .end = 2215, .total = 2225, .grid = 64, .layers = 30};
        double all_ns = 1.7e6 * 2225, byte_ns = all_ns / (2215 * 23400.0) / rate, sum_ns = 0;
        struct bucket bucket = {
            .byte_ns = byte_ns, .device_byte_ns = byte_ns / 12, .saved_most = 1e8 / byte_ns};
        struct sc_plugin_line line = {0};
        double load_ns = bucket_request(&bucket, &cut, 2215, &line);
        for (uint32_t i = 0; i < 300; i++) {
            estimate.byte_ns = byte_ns_of(&line);
            double ns = bucket_request(&bucket, &cut, sc_plugin_cut_find(&cut), &line);
            sum_ns += i < 20 ? 0 : ns;
        }
        double mean_ns = sum_ns / 280, better_ns = fmin(all_ns, load_ns);
        if (mean_ns > 1.05 * better_ns)
            fail_msg("rate %g: %g ns, the better of both %g", rate, mean_ns, better_ns);
    }
}

static void hosts_that_load_first_get_all_or_nothing(void **state)
{
    (void)state;
    struct sc_plugin_estimate estimate = {.token_ns = 100, .byte_ns = 1, .is_apart = true};
    struct sc_plugin_cut cut = {
        .estimate = &estimate, .end = 4096, .total = 4100, .grid = 64, .layers = 32};
    estimate.row_bytes[SC_LOAD_ALL_ROWS] = 90;
    assert_int_equal(sc_plugin_cut_find(&cut), 4096);
    estimate.row_bytes[SC_LOAD_ALL_ROWS] = 110;
    assert_int_equal(sc_plugin_cut_find(&cut), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_of_nothing_is_zero),
        cmocka_unit_test(passes_of_several_shapes_tell_both_numbers),
        cmocka_unit_test(passes_of_one_shape_tell_what_such_a_pass_takes),
        cmocka_unit_test(numbers_are_never_negative),
        cmocka_unit_test(noise_averages_out),
        cmocka_unit_test(what_stands_out_is_held_back_until_it_stays),
        cmocka_unit_test(a_slow_change_is_followed),
        cmocka_unit_test(what_a_busy_host_saw_is_believed_a_half_at_most),
        cmocka_unit_test(cuts_are_as_good_as_any_on_the_grid),
        cmocka_unit_test(cuts_of_the_papers_numbers),
        cmocka_unit_test(a_volume_with_a_budget_is_not_taken_for_its_device),
        cmocka_unit_test(hosts_that_load_first_get_all_or_nothing),
    };
    return cmocka_run_group_tests_name("plugin_fit", tests, NULL, NULL);
}
