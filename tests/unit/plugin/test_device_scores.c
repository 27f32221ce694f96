/* Sums by the device are those of ref/ (1e-5 of the largest), whatever of what they are made of is
 * the host's or the device's, in every policy of the fake driver; the same bits each time.
 *
 *   keys: rows, or codes of even widths (those of free widths: test_device_queries.c)
 *   queries, new keys: of the host, or of the device, where its stream has yet to put them
 *
 * Holds: what does not fit into gpu.score_bytes is not taken; what has to wait for room gets it. */
#include "tests/unit/plugin/device_fixture.h"

#include "plugin/device/score.h"

#include <math.h>
#include <pthread.h>

#define TOLERANCE    1e-5
#define SLABS_MOST   64u
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum keys { ROWS, CODES };

struct question {
    enum keys keys;
    uint64_t count, heads, size, group, rows, fresh;
    uint32_t dtype, query_dtype, fresh_dtype;
    bool last_row, has_slots, is_total;
    uint64_t gap; /* behind each head of queries, bytes */
};

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

/* All of one, as the host has it. */
struct scene {
    const struct question *how;
    struct sc_kernels_importance what;
    uint8_t *keys, *queries, *fresh;
    uint64_t query_bytes, fresh_bytes;
    int64_t *slots;
    struct sc_kernels_slab slabs[SLABS_MOST];
    uint8_t *coded[2 * SLABS_MOST];
};

static void *numbers(uint64_t count, uint32_t dtype, uint64_t seed)
{
    uint8_t *made = malloc((count + 1) * sizeof(float));
    assert_non_null(made);
    for (uint64_t i = 0; i < count; i++) {
        float value = (float)(rig_mix(seed + i) % 2001) / 1000.0f - 1.0f;
        sc_kernels_dtypes[dtype].narrow(made + i * sc_kernels_dtype_bytes(dtype), &value, 1);
    }
    return made;
}

static uint64_t slabs_make(struct scene *scene)
{
    static const uint32_t WIDTHS[] = {4, 2, 5, 3, 8, 6};
    const struct question *how = scene->how;
    uint64_t channels = how->heads * how->size, count = 0;
    uint64_t row_bytes = channels * sc_kernels_dtype_bytes(how->dtype);
    for (uint64_t first = 0, end; first < how->count; first = end, count++) {
        const uint8_t *rows[SC_KERNELS_CODE_ROWS_MAX];
        uint32_t bits = WIDTHS[count % COUNT(WIDTHS)];
        struct sc_kernels_code code = {channels, bits, how->dtype};
        assert_true(count < SLABS_MOST);
        end = first + 1 + 37 * count % 200;
        end = end < how->count ? end : how->count;
        for (uint64_t i = first; i < end; i++)
            rows[i - first] = scene->keys + i * row_bytes;
        uint8_t *scales = malloc(sc_kernels_code_scale_bytes(channels));
        uint8_t *codes = malloc((end - first) * sc_kernels_code_row_bytes(channels, bits));
        assert_true(scales != NULL && codes != NULL);
        assert_true(scene->what.kernels->code_encode(&code, rows, end - first, scales, codes));
        scene->slabs[count] = (struct sc_kernels_slab){
            .coded = {.scales = scales, .codes = codes, .bits = bits}, .key_first = first};
        scene->coded[2 * count] = scales;
        scene->coded[2 * count + 1] = codes;
    }
    return count;
}

static struct scene *scene_make(const struct question *how)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    assert_non_null(scene);
    uint64_t query_element = sc_kernels_dtype_bytes(how->query_dtype);
    uint64_t head_stride = how->size * query_element + how->gap / query_element * query_element;
    uint64_t query_heads = how->heads * how->group;
    scene->how = how;
    scene->keys = numbers(how->count * how->heads * how->size, how->dtype, 1);
    scene->query_bytes = how->rows * query_heads * head_stride;
    scene->queries = numbers(scene->query_bytes / query_element, how->query_dtype, 2);
    scene->what =
        (struct sc_kernels_importance){.kernels = sc_kernels_get(SC_KERNELS_REF),
                                       .head_size = how->size,
                                       .group = how->group,
                                       .scale = 1.0f / sqrtf((float)how->size),
                                       .queries = {scene->queries, query_heads * head_stride,
                                                   head_stride, how->rows, how->query_dtype},
                                       .last_row = how->last_row};
    uint64_t head_bytes = how->size * sc_kernels_dtype_bytes(how->dtype);
    scene->what.prefix =
        (struct sc_kernels_keys){.memory = {.k_base = scene->keys,
                                            .v_base = scene->keys,
                                            .token_stride_bytes = how->heads * head_bytes,
                                            .head_stride_bytes = head_bytes,
                                            .element_bytes = sc_kernels_dtype_bytes(how->dtype)},
                                 .count = how->count,
                                 .dtype = how->dtype};
    if (how->keys == CODES) {
        scene->what.prefix.slab_count = slabs_make(scene);
        scene->what.prefix.slabs = scene->slabs;
        scene->what.prefix.channels = how->heads * how->size;
    }
    if (how->fresh == 0)
        return scene;
    uint64_t element = sc_kernels_dtype_bytes(how->fresh_dtype);
    scene->fresh_bytes = how->fresh * how->heads * how->size * element;
    scene->fresh = numbers(how->fresh * how->heads * how->size, how->fresh_dtype, 3);
    scene->slots = malloc(how->fresh * sizeof(int64_t));
    assert_non_null(scene->slots);
    for (uint64_t i = 0; i < how->fresh; i++)
        scene->slots[i] = (int64_t)(how->fresh - 1 - i);
    scene->what.fresh =
        (struct sc_kernels_keys){.memory = {.k_base = scene->fresh,
                                            .v_base = scene->fresh,
                                            .token_stride_bytes = how->heads * how->size * element,
                                            .head_stride_bytes = how->size * element,
                                            .slots = how->has_slots ? scene->slots : NULL,
                                            .element_bytes = element},
                                 .count = how->fresh,
                                 .dtype = how->fresh_dtype};
    return scene;
}

static void scene_free(struct scene *scene)
{
    for (uint32_t i = 0; i < 2 * SLABS_MOST; i++)
        free(scene->coded[i]);
    free(scene->keys);
    free(scene->queries);
    free(scene->fresh);
    free(scene->slots);
    free(scene);
}

static uint64_t sum_count(const struct question *how)
{
    return (how->is_total ? 1 : how->heads) * how->count;
}

static float *ref_sums(const struct scene *scene)
{
    const struct question *how = scene->how;
    float *sums = calloc(sum_count(how) + how->count, sizeof(float));
    void *scratch =
        aligned_alloc(64, sc_kernels_importance_scratch_bytes(how->size, how->count, how->fresh));
    assert_true(sums != NULL && scratch != NULL);
    if (how->is_total)
        sc_kernels_importance_sum(&scene->what, 0, how->heads, scratch, sums + how->count, sums);
    for (uint64_t h = 0; h < how->heads && !how->is_total; h++)
        sc_kernels_importance(&scene->what, h, scratch, sums + h * how->count);
    free(scratch);
    return sums;
}

static void sums_compare(const float *found, const float *expected, uint64_t count)
{
    double most = 0;
    for (uint64_t j = 0; j < count; j++)
        most = (double)expected[j] > most ? (double)expected[j] : most;
    assert_true(most > 0);
    for (uint64_t j = 0; j < count; j++)
        if (!(fabs((double)found[j] - (double)expected[j]) <= TOLERANCE * most))
            fail_msg("key %u: found %.9g, expected %.9g (largest %.9g)", (unsigned)j,
                     (double)found[j], (double)expected[j], most);
}

/* ---- Scores --------------------------------------------------------------------------------- */

struct stand { /* a connector with a device, and its host */
    struct device_host host;
    struct rig rig;
};

static void stand_open(struct stand *stand, bool is_sim, const char *score_bytes)
{
    char extra[160];
    (void)snprintf(extra, sizeof(extra),
                   "\"preset\": \"layered-even\", \"gpu\": {\"device\": 0, \"score_bytes\": %s}",
                   score_bytes);
    device_host_open(&stand->host, 0);
    rig_init(&stand->rig, is_sim, extra);
    rig_shape(&stand->rig, 2, 3, 16, SPEC_DTYPE_F16);
    rig_open(&stand->rig);
}

static void stand_close(struct stand *stand)
{
    struct sc_plugin_device *device = &stand->rig.conn->device;
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_PAIRS; i++) { /* boxes of what went up come back */
        (void)sc_gpu_flights_wait(device->gpu, &device->gpu->slots[i].copies, 0);
        assert_int_equal(sc_gpu_flights_flying(&device->gpu->slots[i].kernels), 0);
    }
    assert_int_equal(sc_gpu_stage_used(&device->scores), 0);
    uint64_t boxes = 0;
    for (const struct sc_plugin_box *box = device->free; box != NULL; box = box->next)
        boxes++;
    assert_int_equal(boxes, device->box_count);
    rig_close(&stand->rig);
    rig_done(&stand->rig);
    device_host_close(&stand->host);
    device_assert_clean("scores");
}

/* where: bits: queries, new keys. */
static void score(struct stand *stand, const struct scene *scene, uint32_t where, float *ret_sums)
{
    struct sc_plugin_device *device = &stand->rig.conn->device;
    bool has_fresh = (where & 2) != 0 && scene->fresh_bytes > 0;
    struct sc_plugin_afar queries = {.device = NULL}, fresh = {.device = NULL};
    struct plain_there there[2];
    struct sc_kernels_importance what = scene->what;
    if ((where & 1) != 0) {
        there[0] = plain_there_make(&stand->host, scene->queries, scene->query_bytes);
        plain_there_spoil(&there[0]);
        plain_there_put(&there[0]);
        what.queries.data = NULL;
        queries = (struct sc_plugin_afar){
            .device = device,
            .slot = 3,
            .at = {.k_base = (uint8_t *)(uintptr_t)there[0].at,
                   .v_base = (uint8_t *)(uintptr_t)there[0].at,
                   .token_stride_bytes = what.queries.row_stride_bytes,
                   .head_stride_bytes = what.queries.head_stride_bytes,
                   .element_bytes = sc_kernels_dtype_bytes(what.queries.dtype)},
            .row_count = what.queries.row_count,
            .head_count = scene->how->heads * what.group,
            .head_size = what.head_size,
            .stream = stand->host.stream};
    }
    if (has_fresh) {
        there[1] = plain_there_make(&stand->host, scene->fresh, scene->fresh_bytes);
        plain_there_spoil(&there[1]);
        plain_there_put(&there[1]);
        what.fresh.memory.k_base = what.fresh.memory.v_base = (uint8_t *)(uintptr_t)there[1].at;
        fresh = (struct sc_plugin_afar){.device = device,
                                        .slot = 3,
                                        .at = what.fresh.memory,
                                        .row_count = what.fresh.count,
                                        .head_count = scene->how->heads,
                                        .head_size = what.head_size,
                                        .stream = stand->host.stream};
    }
    sc_plugin_afar_begin(&queries);
    sc_plugin_afar_begin(&fresh);
    const struct sc_plugin_score asked = {.device = device,
                                          .slot = 3,
                                          .what = &what,
                                          .queries = &queries,
                                          .fresh = &fresh,
                                          .head_count = scene->how->heads,
                                          .is_total = scene->how->is_total};
    assert_true(sc_plugin_score_takes(&asked));
    assert_int_equal(sc_plugin_score_sum(&asked, ret_sums, NULL), SPEC_OK);
    if ((where & 1) != 0) {
        plain_there_spoil(&there[0]); /* it is the host's again */
        plain_there_free(&there[0]);
    }
    if (has_fresh) {
        plain_there_spoil(&there[1]);
        plain_there_free(&there[1]);
    }
}

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
            stand_open(&stand, true, "\"8MiB\"");
            for (uint32_t where = 0; where < 4; where++) {
                if (scene->how->count > 1000 && where + 1 != policy)
                    continue; /* each policy and place once: they are slow */
                memset(found, 0x77, (count + 1) * sizeof(float));
                score(&stand, scene, where, found);
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

static bool takes(struct stand *stand, const struct scene *scene)
{
    struct sc_plugin_afar none = {.device = NULL};
    const struct sc_plugin_score asked = {.device = &stand->rig.conn->device,
                                          .what = &scene->what,
                                          .queries = &none,
                                          .fresh = &none,
                                          .head_count = scene->how->heads,
                                          .is_total = scene->how->is_total};
    return sc_plugin_score_takes(&asked);
}

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
    static const char *const BYTES[] = {"0", "\"1MiB\"", "\"8MiB\""};
    for (uint32_t i = 0; i < COUNT(BYTES); i++) {
        struct stand stand;
        fake_policy(FAKE_LAZY, 1);
        stand_open(&stand, true, BYTES[i]);
        assert_int_equal(takes(&stand, small), i >= 1);
        assert_int_equal(takes(&stand, large), i >= 2);
        assert_false(takes(&stand, wide));
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
    struct sc_plugin_box *taken = NULL, *box;
    struct sc_plugin_afar none = {.device = NULL};
    const struct sc_plugin_score asked = {.device = device,
                                          .slot = sc_plugin_device_score_slot(0),
                                          .what = &scene->what,
                                          .queries = &none,
                                          .fresh = &none,
                                          .head_count = scene->how->heads,
                                          .is_total = scene->how->is_total,
                                          .never_waits = true};
    for (uint64_t i = left; i < device->box_count; i++) {
        box = sc_plugin_box_try(device);
        assert_non_null(box);
        box->next = taken;
        taken = box;
    }
    spec_status status = sc_plugin_score_sum(&asked, ret_sums, NULL);
    while ((box = taken) != NULL) {
        taken = box->next;
        sc_plugin_box_give(box);
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
    stand_open(&stand, true, "\"8MiB\"");
    struct sc_plugin_device *device = &stand.rig.conn->device;
    assert_true(sc_gpu_stage_take(&device->scores, device->params.score_bytes, &range));
    assert_int_equal(score_with(&stand, scene, device->box_count, found), SPEC_E_BUSY);
    sc_gpu_stage_give(&device->scores, &range);
    for (uint64_t left = 0; left < 3; left++) /* it takes three, none of which comes back before */
        assert_int_equal(score_with(&stand, scene, left, found), SPEC_E_BUSY);
    assert_int_equal(score_with(&stand, scene, device->box_count, found), SPEC_OK);
    sums_compare(found, right, count);
    stand_close(&stand);
    free(found);
    free(right);
    scene_free(scene);
}

struct asker {
    struct stand stand; /* its rig is a copy */
    const struct scene *scene;
    const float *right;
};

static void *ask(void *user)
{
    struct asker *asker = user;
    uint64_t count = sum_count(asker->scene->how);
    float *found = malloc(count * sizeof(float));
    assert_non_null(found);
    device_host_open(&asker->stand.host, 0);
    for (uint32_t i = 0; i < 3; i++) {
        score(&asker->stand, asker->scene, i % 2, found);
        sums_compare(found, asker->right, count);
    }
    device_host_close(&asker->stand.host);
    free(found);
    return NULL;
}

/* One of four has room at a time (160 KiB; each needs more than half). */
static void who_finds_no_room_waits(void **state)
{
    (void)state;
    enum { ASKERS = 4 };
    struct scene *scene = scene_make(&QUESTIONS[4]);
    float *right = ref_sums(scene);
    struct stand half;
    fake_policy(FAKE_EAGER, 1);
    stand_open(&half, true, "\"80KiB\"");
    assert_false(takes(&half, scene));
    stand_close(&half);
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy += 3) {
        struct stand stand;
        struct asker askers[ASKERS];
        pthread_t threads[ASKERS];
        fake_policy((enum fake_policy)policy, 1);
        stand_open(&stand, false, "\"160KiB\"");
        sc_alloc_seal(&stand.rig.conn->alloc); /* nothing is allocated */
        for (uint32_t i = 0; i < ASKERS; i++) {
            askers[i] = (struct asker){stand, scene, right};
            assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
        }
        for (uint32_t i = 0; i < ASKERS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
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
