/* Ranges of the staging arena, beside a dumb twin that marks each byte with who has it. */
#include "base/fault.h"
#include "gpu/staging_arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BASE   (1ull << 40) /* only an address */
#define BYTES  (64u << 10)
#define RANGES 24u

struct bench {
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_gpu_staging stage;
};

static void bench_open(struct bench *bench, uint64_t bytes, uint64_t ranges)
{
    memset(bench, 0, sizeof(*bench));
    sc_alloc_init(&bench->alloc);
    assert_true(
        sc_gpu_staging_open(&bench->stage, &bench->alloc, &bench->poison, BASE, bytes, ranges));
}

static void bench_close(struct bench *bench)
{
    sc_gpu_staging_close(&bench->stage, false);
    sc_gpu_staging_close(&bench->stage, false); /* again is fine */
    assert_int_equal(atomic_load(&bench->alloc.live_blocks), 0);
}

static void a_stage_of_nothing_gives_nothing(void **state)
{
    (void)state;
    struct bench bench;
    struct sc_gpu_range range = {.at = 7};
    bench_open(&bench, 255, RANGES);
    assert_false(sc_gpu_staging_take(&bench.stage, 1, &range));
    assert_int_equal(range.at, 7);
    bench_close(&bench);
    bench_open(&bench, BYTES, 0);
    assert_false(sc_gpu_staging_take(&bench.stage, 1, &range));
    assert_int_equal(atomic_load(&bench.stage.refused), 1);
    bench_close(&bench);
}

static void a_stage_without_memory_may_be_closed(void **state)
{
    (void)state;
    struct bench bench = {0};
    struct sc_fault fault;
    sc_fault_init(&fault);
    sc_fault_arm(&fault, SC_FAULT_ALLOC, 0);
    sc_alloc_init(&bench.alloc);
    bench.alloc.fault = &fault;
    assert_false(
        sc_gpu_staging_open(&bench.stage, &bench.alloc, &bench.poison, BASE, BYTES, RANGES));
    bench_close(&bench);
}

static void the_whole_stage_is_one_range(void **state)
{
    (void)state;
    struct bench bench;
    struct sc_gpu_range range = {0}, none = {0};
    bench_open(&bench, BYTES + 100, RANGES);
    for (int i = 0; i < 3; i++) { /* wherever head stands */
        assert_false(sc_gpu_staging_take(&bench.stage, BYTES + 1, &range));
        assert_true(sc_gpu_staging_take(&bench.stage, BYTES, &range));
        assert_int_equal(range.at, BASE);
        assert_int_equal(range.bytes, BYTES);
        assert_false(sc_gpu_staging_take(&bench.stage, 1, &none));
        sc_gpu_staging_give(&bench.stage, &range);
        assert_true(sc_gpu_staging_take(&bench.stage, 1000, &range));
        sc_gpu_staging_give(&bench.stage, &range);
    }
    sc_gpu_staging_give(&bench.stage, &none); /* zeros: nothing */
    bench_close(&bench);
}

static void ranges_come_free_in_their_order(void **state)
{
    (void)state;
    struct bench bench;
    struct sc_gpu_range a = {0}, b = {0}, c = {0};
    bench_open(&bench, BYTES, RANGES);
    assert_true(sc_gpu_staging_take(&bench.stage, BYTES / 2, &a));
    assert_true(sc_gpu_staging_take(&bench.stage, BYTES / 2, &b));
    sc_gpu_staging_give(&bench.stage, &b);
    assert_int_equal(sc_gpu_staging_used(&bench.stage), 2);
    assert_false(sc_gpu_staging_take(&bench.stage, 256, &c)); /* b waits for a */
    sc_gpu_staging_give(&bench.stage, &a);
    assert_int_equal(sc_gpu_staging_used(&bench.stage), 0);
    assert_true(sc_gpu_staging_take(&bench.stage, BYTES, &c));
    sc_gpu_staging_give(&bench.stage, &c);
    bench_close(&bench);
}

struct twin {
    uint8_t owner[BYTES / SC_GPU_STAGING_ALIGN_BYTES]; /* 0: nobody */
    struct sc_gpu_range ranges[RANGES];              /* bytes 0: none */
};

static void twin_mark(struct twin *twin, const struct sc_gpu_range *range, uint8_t from, uint8_t to)
{
    assert_true(range->at % SC_GPU_STAGING_ALIGN_BYTES == 0 && range->at >= BASE);
    assert_true(range->at + range->bytes <= BASE + BYTES);
    uint64_t first = (range->at - BASE) / SC_GPU_STAGING_ALIGN_BYTES;
    uint64_t last = (range->at - BASE + range->bytes - 1) / SC_GPU_STAGING_ALIGN_BYTES;
    for (uint64_t i = first; i <= last; i++) {
        assert_int_equal(twin->owner[i], from);
        twin->owner[i] = to;
    }
}

static void no_two_ranges_share_a_byte(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct bench bench;
        struct twin twin = {0};
        unsigned random = seed, taken = 0;
        bench_open(&bench, BYTES, RANGES);
        for (int step = 0; step < 2000; step++) {
            unsigned i = (unsigned)rand_r(&random) % RANGES;
            struct sc_gpu_range *range = &twin.ranges[i];
            if (range->bytes > 0) {
                twin_mark(&twin, range, (uint8_t)(i + 1), 0);
                sc_gpu_staging_give(&bench.stage, range);
                *range = (struct sc_gpu_range){0};
            } else if (sc_gpu_staging_take(&bench.stage, 1 + (unsigned)rand_r(&random) % 9000,
                                           range)) {
                twin_mark(&twin, range, 0, (uint8_t)(i + 1));
                taken++;
            }
        }
        assert_true(taken > 100);
        for (unsigned i = 0; i < RANGES; i++)
            sc_gpu_staging_give(&bench.stage, &twin.ranges[i]);
        bench_close(&bench);
        assert_int_equal(atomic_load(&bench.poison.broken), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_of_nothing_gives_nothing),
        cmocka_unit_test(a_stage_without_memory_may_be_closed),
        cmocka_unit_test(the_whole_stage_is_one_range),
        cmocka_unit_test(ranges_come_free_in_their_order),
        cmocka_unit_test(no_two_ranges_share_a_byte),
    };
    if (argc > 1) /* for the mutants */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
