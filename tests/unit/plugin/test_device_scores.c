/* Sums by the device are those of ref/ (1e-5 of the largest), whatever of what they are made of is
 * the host's or the device's, in every policy of the fake driver; the same bits each time.
 *
 *   keys: rows, or codes of even widths (those of free widths: test_device_queries.c)
 *   queries, new keys: of the host, or of the device, where its stream has yet to put them
 *
 * Holds: what does not fit into gpu.score_bytes is not taken; what has to wait for room gets it. */
#include "tests/unit/plugin/score_desk.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct question QUESTIONS[] = {
    {ROWS, 1, 1, 16, 1, 1, 0, SC_KERNELS_F16, SC_KERNELS_F16, 0, false, false, false, 0},
    {ROWS, 130, 3, 16, 2, 5, 7, SC_KERNELS_F16, SC_KERNELS_F32, SC_KERNELS_F16, false, false, false,
     0},
    {ROWS, 70, 2, 40, 2, 3, 4, SC_KERNELS_BF16, SC_KERNELS_BF16, SC_KERNELS_F32, true, true, true,
     6},
    {CODES, 130, 3, 16, 2, 5, 5, SC_KERNELS_F16, SC_KERNELS_F16, SC_KERNELS_F16, false, true, true,
     2},
    {CODES, 600, 2, 64, 4, 9, 0, SC_KERNELS_BF16, SC_KERNELS_F32, 0, false, false, true, 0},
    {CODES, 600, 2, 64, 4, 9, 9, SC_KERNELS_BF16, SC_KERNELS_F32, SC_KERNELS_BF16, true, false,
     false, 4},
    {ROWS, 4500, 2, 128, 1, 2, 0, SC_KERNELS_F32, SC_KERNELS_F16, 0, false, false, true, 0}, /* 4.6
                                                                                   MB: boxes */
};

/* ---- Scores --------------------------------------------------------------------------------- */

static void sums_are_the_hosts(void **state)
{
    (void)state;
    for (uint32_t q = 0; q < COUNT(QUESTIONS); q++) {
        struct scene *scene = scene_make(&QUESTIONS[q]);
        uint64_t count = sum_count(scene->how);
        float *right = ref_sums(scene), *found = malloc((count + 1) * sizeof(float)), *first = NULL;
        assert_non_null(found);
        for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
            struct stand stand;
            fake_policy((enum fake_policy)policy, q + 1);
            stand_open(&stand, true, "\"score_bytes\": \"8MiB\"");
            for (uint32_t where = 0; where < 4; where++) {
                if (scene->how->count > 1000 && where + 1 != policy)
                    continue; /* each policy and place once: they are slow */
                memset(found, 0x77, (count + 1) * sizeof(float));
                stand_score(&stand, scene, where, found);
                sums_compare(found, right, count);
                if (first == NULL) {
                    first = malloc(count * sizeof(float));
                    assert_non_null(first);
                    memcpy(first, found, count * sizeof(float));
                }
                assert_memory_equal(first, found, count * sizeof(float));
                assert_int_equal(((const uint8_t *)(found + count))[0], 0x77);
            }
            stand_close(&stand);
        }
        free(first);
        free(found);
        free(right);
        scene_free(scene);
    }
}

/* ---- Room ----------------------------------------------------------------------------------- */

static void what_no_room_holds_is_not_taken(void **state)
{
    (void)state;
    static const struct question WIDE = {.keys = ROWS,
                                         .count = 3,
                                         .heads = 1,
                                         .size = 272,
                                         .group = 1,
                                         .rows = 1,
                                         .dtype = SC_KERNELS_F16,
                                         .query_dtype = SC_KERNELS_F16,
                                         .is_total = true};
    struct scene *small = scene_make(&QUESTIONS[3]), *large = scene_make(&QUESTIONS[6]);
    struct scene *wide = scene_make(&WIDE);
    static const char *const BYTES[] = {"\"score_bytes\": 0", "\"score_bytes\": \"1MiB\"",
                                        "\"score_bytes\": \"8MiB\""};
    for (uint32_t i = 0; i < COUNT(BYTES); i++) {
        struct stand stand;
        fake_policy(FAKE_LAZY, 1);
        stand_open(&stand, true, BYTES[i]);
        assert_int_equal(stand_takes(&stand, small), i >= 1);
        assert_int_equal(stand_takes(&stand, large), i >= 2);
        assert_false(stand_takes(&stand, wide));
        stand_close(&stand);
    }
    scene_free(small);
    scene_free(large);
    scene_free(wide);
}

/* With all boxes but `left` taken, in an order of the host's stream. */
static spec_status score_with(struct stand *stand, const struct scene *scene, uint64_t left,
                              float *ret_sums)
{
    struct sc_plugin_device *device = &stand->rig.conn->device;
    struct sc_plugin_pinned *taken = NULL, *box;
    for (uint64_t i = left; i < device->pinned_count; i++) {
        box = sc_plugin_pinned_try(device);
        assert_non_null(box);
        box->next = taken;
        taken = box;
    }
    spec_status status = stand_hint(stand, scene, ret_sums);
    while ((box = taken) != NULL) {
        taken = box->next;
        sc_plugin_pinned_give(box);
    }
    return status;
}

static void what_never_waits_is_told_at_once(void **state)
{
    (void)state;
    struct scene *scene = scene_make(&QUESTIONS[6]);
    uint64_t count = sum_count(scene->how);
    float *right = ref_sums(scene), *found = malloc(count * sizeof(float));
    struct stand stand;
    struct sc_gpu_range range;
    assert_non_null(found);
    fake_policy(FAKE_LAZY, 1);
    stand_open(&stand, true, "\"score_bytes\": \"8MiB\"");
    struct sc_plugin_device *device = &stand.rig.conn->device;
    assert_true(sc_gpu_staging_take(&device->scores, device->params.score_bytes, &range));
    assert_int_equal(score_with(&stand, scene, device->pinned_count, found), SPEC_E_BUSY);
    sc_gpu_staging_give(&device->scores, &range);
    for (uint64_t left = 0; left < 3; left++) /* it takes three, none of which comes back before */
        assert_int_equal(score_with(&stand, scene, left, found), SPEC_E_BUSY);
    assert_int_equal(score_with(&stand, scene, device->pinned_count, found), SPEC_OK);
    sums_compare(found, right, count);
    stand_close(&stand);
    free(found);
    free(right);
    scene_free(scene);
}

/* One of four has room at a time (160 KiB; each needs more than half). */
static void who_finds_no_room_waits(void **state)
{
    (void)state;
    struct scene *scene = scene_make(&QUESTIONS[4]);
    float *right = ref_sums(scene);
    struct stand half;
    fake_policy(FAKE_EAGER, 1);
    stand_open(&half, true, "\"score_bytes\": \"80KiB\"");
    assert_false(stand_takes(&half, scene));
    stand_close(&half);
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy += 3) {
        struct stand stand;
        fake_policy((enum fake_policy)policy, 1);
        stand_open(&stand, false, "\"score_bytes\": \"160KiB\"");
        sc_alloc_seal(&stand.rig.conn->alloc); /* nothing is allocated */
        stand_score_beside(&stand, scene, right, 4, 0, 3);
        sc_alloc_unseal(&stand.rig.conn->alloc);
        stand_close(&stand);
    }
    free(right);
    scene_free(scene);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_hosts),
        cmocka_unit_test(what_no_room_holds_is_not_taken),
        cmocka_unit_test(what_never_waits_is_told_at_once),
        cmocka_unit_test(who_finds_no_room_waits),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
