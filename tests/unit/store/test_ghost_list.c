/* What is remembered of uses: what take gives is what put was given, once; a full bucket puts out
 * what is used least. */
#include "store/cache/ghost_list.h"
#include "tests/unit/cases.h"

static struct sc_use use_of(uint64_t heat)
{
    return (struct sc_use){.heat = heat, .count = (uint32_t)heat + 1, .importance = 7};
}

/* Names of one bucket: they differ in bits that no bucket is found by. */
static uint64_t name_of(uint64_t i)
{
    return 0xabcull << 20 | (i + 1);
}

static void a_use_is_remembered_once(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct sc_store_ghost past = {0};
    sc_alloc_init(&alloc);
    assert_true(sc_store_ghost_init(&past, &alloc, 100));
    for (uint64_t name = 0; name < 2; name++) { /* 0 is a name like others */
        struct sc_use use = use_of(50), none = {.stamp = 3}, found = {.stamp = 3, .bytes = 4};
        sc_store_ghost_take(&past, name, &none);
        assert_int_equal(none.heat, 0);
        sc_store_ghost_put(&past, name, &use);
        use = use_of(60);
        sc_store_ghost_put(&past, name, &use); /* once more: the later one stands */
        sc_store_ghost_take(&past, name, &found);
        assert_true(found.heat == 60 && found.count == 61 && found.importance == 7);
        assert_true(found.stamp == 3 && found.bytes == 4);
        sc_store_ghost_take(&past, name, &none);
        assert_int_equal(none.heat, 0);
    }
    sc_store_ghost_done(&past);
    assert_int_equal(atomic_load(&alloc.live_blocks), 0);
}

static void a_full_bucket_puts_out_the_least(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct sc_store_ghost past = {0};
    sc_alloc_init(&alloc);
    assert_true(sc_store_ghost_init(&past, &alloc, 4096));
    for (uint64_t i = 0; i <= SC_STORE_GHOST_WAYS; i++) {
        const struct sc_use use =
            use_of(i == 3 ? 1 : 100 + i); /* one more than there is room for */
        sc_store_ghost_put(&past, name_of(i), &use);
    }
    const struct sc_use cold = use_of(2);
    sc_store_ghost_put(&past, name_of(50), &cold); /* it is the least itself */
    for (uint64_t i = 0; i <= SC_STORE_GHOST_WAYS; i++) {
        struct sc_use found = {0};
        sc_store_ghost_take(&past, name_of(i), &found);
        assert_int_equal(found.heat, i == 3 ? 0 : 100 + i);
    }
    struct sc_use found = {0};
    sc_store_ghost_take(&past, name_of(50), &found);
    assert_int_equal(found.heat, 0);
    sc_store_ghost_done(&past);
}

static void a_bucket_is_nobody_elses(void **state)
{
    (void)state;
    const uint64_t buckets = 4, count = buckets * SC_STORE_GHOST_WAYS;
    struct sc_alloc alloc;
    struct sc_store_ghost past = {0};
    sc_alloc_init(&alloc);
    assert_true(sc_store_ghost_init(&past, &alloc, count));
    for (uint64_t i = 0; i < count; i++) {
        const struct sc_use use = use_of(i + 1);
        sc_store_ghost_put(&past, (i % buckets) << 20 | (i + 1), &use);
    }
    for (uint64_t i = 0; i < count; i++) { /* as many as there is room for: all are there */
        struct sc_use found = {0};
        sc_store_ghost_take(&past, (i % buckets) << 20 | (i + 1), &found);
        assert_int_equal(found.heat, i + 1);
    }
    sc_store_ghost_done(&past);
    assert_int_equal(atomic_load(&alloc.live_blocks), 0);
}

static void nothing_is_remembered_where_there_is_no_memory(void **state)
{
    (void)state;
    struct sc_store_ghost past = {0};
    struct sc_use use = use_of(5), found = {0};
    sc_store_ghost_put(&past, 1, &use);
    sc_store_ghost_take(&past, 1, &found);
    assert_int_equal(found.heat, 0);
    sc_store_ghost_done(&past);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_use_is_remembered_once),
        cmocka_unit_test(a_full_bucket_puts_out_the_least),
        cmocka_unit_test(a_bucket_is_nobody_elses),
        cmocka_unit_test(nothing_is_remembered_where_there_is_no_memory),
    };
    return cmocka_run_group_tests_name("past", tests, NULL, NULL);
}
