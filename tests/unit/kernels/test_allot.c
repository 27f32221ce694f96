/* Widths of channels: rows have exactly their bytes and planes whole ones, heavier channels never
 * get fewer bits, no table of as many bytes has a smaller error (all are tried, of few channels),
 * and the same weights give the same widths. */
#include "kernels/allot.h"
#include "kernels/bitplanes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHANNELS_MAX 2048u
#define GUARD        0xa5
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t g_random, g_sorted;

/* libc's may allocate, and whoever learns holds a lock. */
void qsort(void *array, size_t count, size_t bytes, int (*compare)(const void *, const void *));
void qsort(void *array, size_t count, size_t bytes, int (*compare)(const void *, const void *))
{
    (void)array, (void)count, (void)bytes, (void)compare;
    g_sorted++;
}

static uint64_t random_below(uint64_t end)
{
    g_random = g_random * 6364136223846793005u + 1442695040888963407u;
    return (g_random >> 33) % end;
}

enum weights { ANY, STEEP, EQUAL, ZERO, FEW, SOME_ZERO, WEIGHTS };

static void weights_draw(enum weights kind, uint64_t channels, float *ret_weights)
{
    for (uint64_t c = 0; c < channels; c++) {
        float any = (float)(1 + random_below(1000)) / 100;
        ret_weights[c] = kind == ANY     ? any
                         : kind == STEEP ? ldexpf(any, (int)random_below(40) - 20)
                         : kind == EQUAL ? 3
                         : kind == ZERO  ? 0
                         : kind == FEW   ? (float)random_below(3)
                                         : (random_below(2) == 0 ? 0 : any);
    }
}

/* With guards around what is written. */
static void allot(const float *weights, uint64_t heads, uint64_t size, uint64_t row_bytes,
                  uint8_t *ret_to)
{
    static uint8_t to[64 + CHANNELS_MAX + 64];
    uint64_t channels = heads * size, bytes = sc_kernels_allot_scratch_bytes(channels);
    uint8_t *scratch = malloc(bytes); /* a sanitizer watches its end */
    assert_non_null(scratch);
    memset(to, GUARD, sizeof(to));
    memset(scratch, GUARD, bytes);
    sc_kernels_allot(weights, heads, size, row_bytes, scratch, to + 64);
    for (uint64_t i = 0; i < 64; i++) {
        assert_int_equal(to[i], GUARD);
        assert_int_equal(to[64 + channels + i], GUARD);
    }
    memcpy(ret_to, to + 64, channels);
    free(scratch);
}

static void heavier_get_no_fewer(const float *weights, uint64_t channels, uint64_t size,
                                 const uint8_t *to)
{
    for (uint64_t first = 0; first < channels; first += size)
        for (uint64_t a = 0; a < size; a++)
            for (uint64_t b = a / 64 * 64; b < size && b / 64 == a / 64; b++)
                if (weights[first + a] > weights[first + b] && to[first + a] < to[first + b])
                    fail_msg("channel %u of %g has %u bits, channel %u of %g has %u", (unsigned)a,
                             (double)weights[first + a], to[first + a], (unsigned)b,
                             (double)weights[first + b], to[first + b]);
}

static void rows_have_exactly_their_bytes(void **state)
{
    (void)state;
    static const uint64_t HEADS[] = {1, 2, 3, 8};
    static struct sc_kernels_bitplanes_group groups[CHANNELS_MAX / 8];
    static float weights[CHANNELS_MAX];
    static uint8_t to[CHANNELS_MAX], again[CHANNELS_MAX];
    for (uint64_t size = 8; size <= SC_KERNELS_BITPLANES_HEAD; size += size < 144 ? 8 : 56)
        for (uint32_t h = 0; h < COUNT(HEADS); h++)
            for (uint32_t kind = 0; kind < WEIGHTS; kind++) {
                uint64_t channels = HEADS[h] * size;
                const uint64_t rows[] = {0,
                                         1,
                                         channels / 4,
                                         channels * 5 / 16,
                                         channels / 2,
                                         random_below(channels + 1),
                                         channels - 1,
                                         channels};
                weights_draw(kind, channels, weights);
                for (uint32_t r = 0; r < COUNT(rows); r++) {
                    struct sc_kernels_bitplanes planes;
                    uint64_t bits = 0;
                    allot(weights, HEADS[h], size, rows[r], to);
                    for (uint64_t c = 0; c < channels; c++) {
                        assert_in_range(to[c], 0, 8);
                        bits += to[c];
                    }
                    assert_int_equal(bits, rows[r] * 8);
                    assert_true(sc_kernels_bitplanes_init(&planes, HEADS[h], size, to, groups));
                    assert_int_equal(planes.row_bytes, rows[r]);
                    heavier_get_no_fewer(weights, channels, size, to);
                    allot(weights, HEADS[h], size, rows[r], again);
                    assert_memory_equal(to, again, channels);
                }
            }
}

/* Of 128 values of a normal distribution, by docs/decisions/0030. */
static double share(uint32_t bits)
{
    static const double SHARES[9] = {.444,       .172,       .061,        1.0 / 64,   1.0 / 256,
                                     1.0 / 1024, 1.0 / 4096, 1.0 / 16384, 1.0 / 65536};
    return SHARES[bits];
}

static void the_error_is_a_sum_of_shares(void **state)
{
    (void)state;
    static float weights[64];
    static uint8_t to[64];
    for (uint32_t round = 0; round < 20; round++) {
        double sum = 0;
        weights_draw(round % WEIGHTS, 64, weights);
        for (uint64_t c = 0; c < 64; c++) {
            to[c] = (uint8_t)random_below(9);
            sum += (double)weights[c] * share(to[c]);
        }
        assert_true(fabs(sc_kernels_allot_error(weights, 64, to) - sum) <= 1e-12 * sum);
    }
    assert_true(sc_kernels_allot_error(weights, 0, to) == 0);
}

/* The least error of all tables of a head of 16 channels: which 8 have which of two widths. */
static double least_of_16(const float *weights, uint64_t row_bytes)
{
    double least = INFINITY;
    for (uint32_t set = 0; set < 1u << 16; set++) {
        double in = 0, out = 0;
        if (__builtin_popcount(set) != 8)
            continue;
        for (uint32_t c = 0; c < 16; c++)
            *((set >> c & 1) != 0 ? &in : &out) += (double)weights[c];
        for (uint32_t bits = 0; bits <= 8 && bits <= row_bytes; bits++)
            if (row_bytes - bits <= 8)
                least = fmin(least, in * share(bits) + out * share((uint32_t)row_bytes - bits));
    }
    return least;
}

static void no_table_of_a_head_has_a_smaller_error(void **state)
{
    (void)state;
    float weights[16];
    uint8_t to[16];
    for (uint32_t kind = 0; kind < WEIGHTS; kind++)
        for (uint64_t row_bytes = 0; row_bytes <= 16; row_bytes++) {
            weights_draw(kind, 16, weights);
            allot(weights, 1, 16, row_bytes, to);
            double found = sc_kernels_allot_error(weights, 16, to);
            double least = least_of_16(weights, row_bytes);
            if (!(found <= least * (1 + 1e-12)))
                fail_msg("weights %u, %u bytes: %.9g, there is %.9g", kind, (unsigned)row_bytes,
                         found, least);
        }
}

/* Of heads of 8 channels, which have one width each. */
static void no_table_of_heads_has_a_smaller_error(void **state)
{
    (void)state;
    float weights[32], heads[4];
    uint8_t to[32];
    for (uint32_t round = 0; round < 60; round++) {
        uint64_t row_bytes = random_below(33);
        double least = INFINITY;
        weights_draw(round % WEIGHTS, 32, weights);
        memset(heads, 0, sizeof(heads));
        for (uint32_t c = 0; c < 32; c++)
            heads[c / 8] += weights[c];
        for (uint32_t n = 0; n < 9 * 9 * 9 * 9; n++) {
            const uint32_t bits[4] = {n % 9, n / 9 % 9, n / 81 % 9, n / 729};
            double sum = 0;
            for (uint32_t h = 0; h < 4; h++)
                sum += (double)heads[h] * share(bits[h]);
            if (bits[0] + bits[1] + bits[2] + bits[3] == row_bytes)
                least = fmin(least, sum);
        }
        allot(weights, 4, 8, row_bytes, to);
        assert_true(sc_kernels_allot_error(weights, 32, to) <= least * (1 + 1e-6));
    }
}

/* Planes above go first, then lower channels: of equal weights the widths are as even as bytes
 * allow. */
static void equal_weights_give_uniform_bits(void **state)
{
    (void)state;
    static float weights[2 * 128];
    static uint8_t to[2 * 128];
    for (uint32_t kind = EQUAL; kind <= ZERO; kind++)
        for (uint64_t row_bytes = 0; row_bytes <= 256; row_bytes++) {
            weights_draw(kind, 256, weights);
            allot(weights, 2, 128, row_bytes, to);
            for (uint64_t c = 0; c < 256; c++) /* 32 units */
                assert_int_equal(to[c], row_bytes / 32 + (c / 8 < row_bytes % 32));
        }
}

/* A head of its own scale takes from the others. */
static void bits_go_from_head_to_head(void **state)
{
    (void)state;
    float weights[3 * 64];
    uint8_t to[3 * 64];
    for (uint64_t c = 0; c < 3 * 64; c++)
        weights[c] = c / 64 == 1 ? 256 : 1;
    allot(weights, 3, 64, 3 * 64 / 2, to);
    for (uint64_t c = 0; c < 3 * 64; c++)
        assert_true(c / 64 == 1 ? to[c] > 4 : to[c] < 4);
}

/* One byte of a row after another, to the unit that gains most, looked for among all. */
static void allot_plainly(const float *weights, uint64_t heads, uint64_t size, uint64_t row_bytes,
                          uint8_t *ret_to)
{
    static const double SHARES[] = {.444, .172, .061};
    static uint64_t order[CHANNELS_MAX];
    double shares[9];
    uint64_t channels = heads * size;
    for (uint32_t bits = 0; bits < 9; bits++)
        shares[bits] = bits < 3 ? SHARES[bits] : ldexp(1, -2 * (int)bits);
    for (uint64_t c = 0; c < channels; c++) {
        uint64_t begin = c - c % size % 64, before = 0;
        uint64_t end = begin - begin % size + size;
        for (uint64_t i = begin; i < begin + 64 && i < end; i++)
            before += weights[i] > weights[c] || (weights[i] == weights[c] && i < c);
        order[begin + before] = c;
    }
    memset(ret_to, 0, channels);
    for (uint64_t byte = 0; byte < row_bytes; byte++) {
        uint64_t best = UINT64_MAX;
        double best_gain = -1;
        for (uint64_t unit = 0; unit < channels / 8; unit++) {
            uint32_t bits = ret_to[order[unit * 8]];
            double sum = 0;
            for (uint64_t c = 0; c < 8; c++)
                sum += (double)weights[order[unit * 8 + c]];
            double gain = bits < 8 ? sum * (shares[bits] - shares[bits + 1]) : -1;
            if (gain > best_gain ||
                (gain == best_gain && bits < 8 && bits < ret_to[order[best * 8]])) {
                best = unit;
                best_gain = gain;
            }
        }
        for (uint64_t c = 0; c < 8; c++)
            ret_to[order[best * 8 + c]]++;
    }
}

static void ties_go_to_the_plane_above_and_then_to_lower_channels(void **state)
{
    (void)state;
    static const uint64_t SHAPES[][2] = {{1, 8}, {2, 16}, {3, 24}, {2, 72}, {4, 64}, {1, 256}};
    float weights[CHANNELS_MAX];
    uint8_t to[CHANNELS_MAX], expected[CHANNELS_MAX];
    for (uint32_t s = 0; s < COUNT(SHAPES); s++)
        for (enum weights kind = 0; kind < WEIGHTS; kind++) {
            uint64_t channels = SHAPES[s][0] * SHAPES[s][1];
            weights_draw(kind, channels, weights);
            for (uint64_t bytes = 0; bytes <= channels; bytes += 1 + random_below(channels / 4)) {
                allot(weights, SHAPES[s][0], SHAPES[s][1], bytes, to);
                allot_plainly(weights, SHAPES[s][0], SHAPES[s][1], bytes, expected);
                assert_memory_equal(to, expected, channels);
            }
        }
}

static void libcs_sort_is_not_called(void **state)
{
    (void)state;
    float weights[CHANNELS_MAX];
    uint8_t to[CHANNELS_MAX];
    weights_draw(ANY, CHANNELS_MAX, weights);
    g_sorted = 0;
    allot(weights, CHANNELS_MAX / 128, 128, CHANNELS_MAX / 2, to);
    assert_int_equal(g_sorted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_exactly_their_bytes),
        cmocka_unit_test(the_error_is_a_sum_of_shares),
        cmocka_unit_test(no_table_of_a_head_has_a_smaller_error),
        cmocka_unit_test(no_table_of_heads_has_a_smaller_error),
        cmocka_unit_test(equal_weights_give_uniform_bits),
        cmocka_unit_test(bits_go_from_head_to_head),
        cmocka_unit_test(ties_go_to_the_plane_above_and_then_to_lower_channels),
        cmocka_unit_test(libcs_sort_is_not_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
