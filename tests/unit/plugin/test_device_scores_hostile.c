/* Scorings on a device as somebody would break them: shapes at every border and numbers that are
 * none, rooms and boxes of which there is exactly one, children that are forked while one waits for
 * room, ends of all kinds (deadlines, release, reset, close, a device that fails) in the middle of
 * one.
 *
 *   who scores   .. finds no room: waits | the end comes | room comes free -> right, or a status
 *
 * Holds: a set is the one that plain memory chooses, or there is a status; what waited goes on or
 * ends, and rooms, boxes and flights come back in the end. */
#include "tests/unit/plugin/score_desk.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Boxes ---------------------------------------------------------------------------------- */

static const struct question SMALL = {.keys = CODES,
                                      .count = 130,
                                      .heads = 3,
                                      .size = 16,
                                      .group = 2,
                                      .rows = 5,
                                      .fresh = 5,
                                      .dtype = SC_KERNELS_F16,
                                      .query_dtype = SC_KERNELS_F16,
                                      .fresh_dtype = SC_KERNELS_F16,
                                      .is_total = true};
/* 4.6 MB: three boxes. */
__attribute__((unused)) static const struct question LARGE = {.keys = ROWS,
                                                              .count = 4500,
                                                              .heads = 2,
                                                              .size = 128,
                                                              .group = 1,
                                                              .rows = 2,
                                                              .dtype = SC_KERNELS_F32,
                                                              .query_dtype = SC_KERNELS_F16,
                                                              .is_total = true};

/* Nobody but hints asks, and no hint waits: what earlier ones sent off is free once it has landed,
 * though nobody looks. */
static void a_hint_finds_the_boxes_of_those_before_it(void **state)
{
    (void)state;
    struct scene *scene = scene_make(&SMALL);
    uint64_t count = sum_count(scene->how);
    float *right = ref_sums(scene), *found = malloc(count * sizeof(float));
    struct stand stand;
    assert_non_null(found);
    fake_policy(FAKE_EAGER, 1);
    stand_open(&stand, true, "\"stage_bytes\": \"1MiB\"");
    for (uint32_t i = 0; i < 50; i++) {
        spec_status status = stand_hint(&stand, scene, found);
        if (status != SPEC_OK)
            fail_msg("hint %" PRIu32 " of %" PRIu64 " boxes: %s", i,
                     stand.rig.conn->device.box_count, sc_status_name(status));
        sums_compare(found, right, count);
    }
    stand_close(&stand);
    free(found);
    free(right);
    scene_free(scene);
}

/* ---- Shapes --------------------------------------------------------------------------------- */

#define SHAPE(keys, count, heads, size, group, rows, fresh, types, last, slots, total, gap)        \
    {                                                                                              \
        keys, count, heads, size, group, rows, fresh, types, last, slots, total, gap               \
    }
#define F16S   SC_KERNELS_F16, SC_KERNELS_F16, SC_KERNELS_F16
#define BF16S  SC_KERNELS_BF16, SC_KERNELS_BF16, SC_KERNELS_BF16
#define F32S   SC_KERNELS_F32, SC_KERNELS_F32, SC_KERNELS_F32
#define MIXED  SC_KERNELS_F16, SC_KERNELS_BF16, SC_KERNELS_F32
#define MIXED2 SC_KERNELS_BF16, SC_KERNELS_F32, SC_KERNELS_F16

static const struct question BORDERS[] = {
    SHAPE(CODES, 1, 1, 1, 1, 1, 1, F16S, false, false, true, 0),
    SHAPE(ROWS, 1, 1, 1, 1, 1, 0, BF16S, true, false, false, 0),
    SHAPE(CODES, 2, 5, 3, 1, 2, 2, MIXED, false, true, true, 2),
    SHAPE(CODES, 63, 7, 9, 3, 1, 1, BF16S, true, false, true, 2),
    SHAPE(CODES, 64, 3, 17, 5, 3, 9, F16S, true, true, false, 6),
    SHAPE(CODES, 65, 1, 31, 1, 16, 16, F16S, false, true, true, 2),
    SHAPE(ROWS, 63, 3, 33, 7, 2, 3, F16S, false, true, true, 10),
    SHAPE(ROWS, 64, 1, 127, 1, 17, 64, BF16S, false, false, true, 2),
    SHAPE(ROWS, 65, 1, 129, 2, 2, 65, F16S, false, true, true, 4),
    SHAPE(CODES, 129, 1, 255, 1, 2, 33, BF16S, false, true, true, 2),
    SHAPE(ROWS, 33, 1, 256, 1, 2, 31, F32S, false, true, false, 4),
    SHAPE(CODES, 33, 2, 256, 1, 2, 32, F16S, false, false, true, 0),
    SHAPE(CODES, 97, 1, 40, 64, 2, 2, F16S, false, false, true, 0), /* a group of 64 */
    SHAPE(ROWS, 97, 1, 16, 71, 1, 7, MIXED2, false, true, true, 4),
    SHAPE(CODES, 70, 13, 7, 1, 1, 0, MIXED2, false, false, false, 0),
    SHAPE(ROWS, 3, 1, 8, 1, 1, 300, F16S, true, true, true, 0), /* more new keys than old ones */
    SHAPE(CODES, 700, 1, 8, 1, 1, 1, F16S, false, false, true, 0),
};

/* One of each in a policy and places of its own; both kinds of kernels. */
static void shapes_at_the_borders(void **state)
{
    (void)state;
    static const uint32_t CAPABILITIES[] = {75, 80, 90};
    for (uint32_t c = 0; c < COUNT(CAPABILITIES); c++) {
        struct stand stand;
        fake_policy((enum fake_policy)(FAKE_LAZY + c), c + 1);
        stand_open(&stand, true, "\"stage_bytes\": \"1MiB\", \"score_bytes\": \"2MiB\"");
        stand.rig.conn->device.gpu->capability = CAPABILITIES[c]; /* images begin at 8.0 */
        for (uint32_t q = 0; q < COUNT(BORDERS); q++) {
            struct scene *scene = scene_make(&BORDERS[q]);
            uint64_t count = sum_count(scene->how);
            float *right = ref_sums(scene), *found = malloc((count + 1) * sizeof(float));
            float *again = malloc(count * sizeof(float));
            assert_true(found != NULL && again != NULL);
            memset(found, 0x77, (count + 1) * sizeof(float));
            stand_score(&stand, scene, (q + c) % 4, found);
            sums_compare(found, right, count);
            assert_int_equal(((const uint8_t *)(found + count))[0], 0x77);
            stand_score(&stand, scene, (q + c + 1) % 4, again);
            assert_memory_equal(found, again, count * sizeof(float));
            free(again);
            free(found);
            free(right);
            scene_free(scene);
        }
        stand_close(&stand);
    }
}

/* ---- Numbers -------------------------------------------------------------------------------- */

/* What stands at one place of a scene's queries, keys or new keys. */
static const float STRANGE[] = {NAN,      INFINITY,  -INFINITY, -0.0f,    FLT_MIN / 4,
                                65504.0f, -65504.0f, FLT_MAX,   -FLT_MAX, 6e-8f};

static void strange_put(uint8_t *to, uint32_t dtype, float value)
{
    sc_kernels_dtypes[dtype].narrow(to, &value, 1);
}

/* Numbers where ref/ has numbers, none where it has none; of scores of thousands, which float32 has
 * to some thousandths, no more is said. */
static void strange_compare(const char *what, float value, const float *found,
                            const float *expected, uint64_t count)
{
    double most = 0;
    for (uint64_t j = 0; j < count; j++)
        most = isfinite(expected[j]) ? fmax(most, (double)expected[j]) : most;
    for (uint64_t j = 0; j < count; j++) {
        bool is_same = isnan(expected[j]) == isnan(found[j]) &&
                       (!(fabsf(value) < 1000) || isnan(found[j]) ||
                        fabs((double)found[j] - (double)expected[j]) <= SCENE_TOLERANCE * most);
        if (!is_same)
            fail_msg("%g in %s: key %" PRIu64 ": found %g, expected %g", (double)value, what, j,
                     (double)found[j], (double)expected[j]);
    }
}

static void strange_ask(struct stand *stand, const struct question *how, uint32_t where,
                        uint32_t part, float value)
{
    static const char *const NAMES[] = {"queries", "keys", "new keys"};
    struct scene *scene = scene_make(how);
    uint64_t count = sum_count(how);
    float *found = malloc(count * sizeof(float));
    assert_non_null(found);
    if (part == 0)
        strange_put(scene->queries, how->query_dtype, value);
    else if (part == 1)
        strange_put(scene->keys, how->dtype, value);
    else
        strange_put(scene->fresh, how->fresh_dtype, value);
    float *right = ref_sums(scene);
    stand_score(stand, scene, where, found);
    strange_compare(NAMES[part], value, found, right, count);
    free(right);
    free(found);
    scene_free(scene);
}

static void numbers_of_all_kinds(void **state)
{
    (void)state;
    static const struct question ASKED[] = {
        SHAPE(CODES, 70, 2, 20, 2, 2, 2, F16S, false, false, true, 0),
        SHAPE(CODES, 70, 2, 20, 2, 2, 2, F32S, false, false, false, 0),
        SHAPE(ROWS, 70, 2, 20, 2, 2, 2, BF16S, false, false, false, 0),
        SHAPE(ROWS, 70, 2, 20, 2, 2, 2, F32S, false, false, true, 0),
    };
    for (uint32_t capability = 75; capability <= 80; capability += 5) {
        struct stand stand;
        fake_policy(FAKE_LAZY, 1);
        stand_open(&stand, true, "\"stage_bytes\": \"1MiB\", \"score_bytes\": \"1MiB\"");
        stand.rig.conn->device.gpu->capability = capability;
        for (uint32_t q = 0; q < COUNT(ASKED); q++)
            for (uint32_t n = 0; n < COUNT(STRANGE); n++)
                for (uint32_t part = 0; part < 3; part++)
                    if (part != 1 || ASKED[q].keys == ROWS) /* codes are made of numbers */
                        strange_ask(&stand, &ASKED[q], n % 4, part, STRANGE[n]);
        stand_close(&stand);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hint_finds_the_boxes_of_those_before_it),
        cmocka_unit_test(shapes_at_the_borders),
        cmocka_unit_test(numbers_of_all_kinds),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
