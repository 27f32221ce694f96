/* Scenes and stands: see score_desk.h. */
#include "tests/unit/plugin/score_desk.h"
#include "tests/unit/awaits.h"
#include "tests/unit/threads.h"

#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

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

static uint8_t *bytes_new(uint64_t bytes)
{
    uint8_t *made = calloc(bytes + SC_KERNELS_BITPLANES_AHEAD, 1);
    assert_non_null(made);
    return made;
}

/* Runs of eight channels have 2 to 5 bits, begun elsewhere in each table. */
static const struct sc_kernels_bitplanes *planes_of(struct scene *scene, uint64_t table)
{
    const struct question *how = scene->how;
    uint64_t channels = how->heads * how->size;
    uint64_t groups = how->heads * sc_kernels_bitplanes_head_groups(how->size);
    struct sc_kernels_bitplanes *planes = &scene->planes[table];
    if (scene->bit_counts[table] != NULL)
        return planes;
    scene->bit_counts[table] = bytes_new(channels);
    for (uint64_t c = 0; c < channels; c++)
        scene->bit_counts[table][c] = (uint8_t)(2 + (c / 8 + table) % 4);
    scene->groups[table] = calloc(groups, sizeof(*scene->groups[table]));
    assert_non_null(scene->groups[table]);
    assert_true(sc_kernels_bitplanes_init(planes, how->heads, how->size, scene->bit_counts[table],
                                          scene->groups[table]));
    return planes;
}

/* Of those rows, and the codes' and scales' memory. */
static void slab_encode(struct scene *scene, uint64_t number, const uint8_t *const *rows,
                        uint64_t row_count)
{
    static const uint32_t WIDTHS[] = {4, 2, 5, 3, 8, 6};
    const struct question *how = scene->how;
    const struct sc_kernels *kernels = scene->what.kernels;
    uint64_t channels = how->heads * how->size;
    struct sc_kernels_quantised *quantised = &scene->slabs[number].quantised;
    struct sc_kernels_codec code = {channels, WIDTHS[number % COUNT(WIDTHS)], how->dtype};
    uint64_t scale_bytes = sc_kernels_codec_scale_bytes(channels);
    uint64_t quantised_bytes = row_count * sc_kernels_codec_row_bytes(channels, code.bits);
    bool is_free = how->keys == FREE, is_quantised;
    if (is_free) {
        quantised->planes = planes_of(scene, number % SCENE_TABLES);
        scale_bytes = sc_kernels_bitplanes_scale_bytes(quantised->planes);
        quantised_bytes = row_count * quantised->planes->row_bytes;
    } else {
        quantised->bits = code.bits;
    }
    uint8_t *scales = scene->quantised[2 * number] = bytes_new(scale_bytes);
    uint8_t *codes = scene->quantised[2 * number + 1] = bytes_new(quantised_bytes);
    const struct sc_kernels_bitplanes_encode free_ones = {.planes = quantised->planes,
                                                          .rows = rows,
                                                          .row_count = row_count,
                                                          .dtype = how->dtype,
                                                          .scales = scales,
                                                          .codes = codes};
    is_quantised = is_free ? kernels->bitplanes_encode(&free_ones)
                           : kernels->codec_encode(&code, rows, row_count, scales, codes);
    assert_true(is_quantised);
    quantised->scales = scales;
    quantised->codes = codes;
}

static uint64_t slabs_make(struct scene *scene)
{
    const struct question *how = scene->how;
    uint64_t count = 0;
    uint64_t row_bytes = how->heads * how->size * sc_kernels_dtype_bytes(how->dtype);
    for (uint64_t first = 0, end; first < how->count; first = end, count++) {
        const uint8_t *rows[SC_KERNELS_CODEC_ROWS_MAX];
        assert_true(count < SCENE_SLABS);
        end = first + 1 + (how->keys == FREE ? count % 7 : 37 * count % 200);
        end = end < how->count ? end : how->count;
        for (uint64_t i = first; i < end; i++)
            rows[i - first] = scene->keys + i * row_bytes;
        slab_encode(scene, count, rows, end - first);
        scene->slabs[count].key_first = first;
    }
    return count;
}

struct scene *scene_make(const struct question *how)
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
    if (how->keys != ROWS) {
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

void scene_free(struct scene *scene)
{
    for (uint32_t i = 0; i < 2 * SCENE_SLABS; i++)
        free(scene->quantised[i]);
    for (uint32_t i = 0; i < SCENE_TABLES; i++) {
        free(scene->groups[i]);
        free(scene->bit_counts[i]);
    }
    free(scene->keys);
    free(scene->queries);
    free(scene->fresh);
    free(scene->slots);
    free(scene);
}

uint64_t sum_count(const struct question *how)
{
    return (how->is_total ? 1 : how->heads) * how->count;
}

float *ref_sums(const struct scene *scene)
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

void sums_compare(const float *found, const float *expected, uint64_t count)
{
    double most = 0;
    for (uint64_t j = 0; j < count; j++)
        most = (double)expected[j] > most ? (double)expected[j] : most;
    assert_true(most > 0);
    for (uint64_t j = 0; j < count; j++)
        if (!(fabs((double)found[j] - (double)expected[j]) <= SCENE_TOLERANCE * most))
            fail_msg("key %u: found %.9g, expected %.9g (largest %.9g)", (unsigned)j,
                     (double)found[j], (double)expected[j], most);
}

void stand_open(struct stand *stand, bool is_sim, const char *gpu)
{
    char extra[256];
    (void)snprintf(extra, sizeof(extra),
                   "\"preset\": \"layered-uniform\", \"gpu\": {\"device\": 0%s%s}",
                   gpu[0] != 0 ? ", " : "", gpu);
    device_host_open(&stand->host, 0);
    rig_begin_shape(&stand->rig, is_sim, extra, 2, 3, 16, SPEC_DTYPE_F16);
}

void stand_assert_idle(spec_connector *conn)
{
    struct sc_plugin_device *device = &conn->device;
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_PAIRS; i++) { /* boxes of what went up come back */
        (void)sc_gpu_events_wait(device->gpu, &device->gpu->slots[i].copies, 0);
        (void)sc_gpu_events_wait(device->gpu, &device->gpu->slots[i].kernels, 0);
    }
    /* A task that reaped a flight may be giving its room back now. */
    for (uint32_t looks = 0; sc_gpu_staging_used(&device->scores) != 0;)
        await_or_fail(&looks, "room for scores");
    uint64_t boxes = 0;
    for (const struct sc_plugin_pinned *box = device->free; box != NULL; box = box->next)
        boxes++;
    assert_int_equal(boxes, device->pinned_count);
    assert_int_equal(atomic_load(&conn->poison.broken), 0);
}

void stand_close(struct stand *stand)
{
    struct sc_plugin_device *device = &stand->rig.conn->device;
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_PAIRS; i++)
        assert_int_equal(sc_gpu_events_pending(&device->gpu->slots[i].kernels), 0);
    stand_assert_idle(stand->rig.conn);
    rig_close(&stand->rig);
    rig_done(&stand->rig);
    device_host_end(&stand->host, "scores");
}

/* Of the host's alone. */
static struct sc_plugin_score asked_of(struct stand *stand, const struct scene *scene,
                                       const struct sc_plugin_afar *none)
{
    return (struct sc_plugin_score){.device = &stand->rig.conn->device,
                                    .slot = sc_plugin_device_score_slot(0),
                                    .what = &scene->what,
                                    .queries = none,
                                    .fresh = none,
                                    .head_count = scene->how->heads,
                                    .is_total = scene->how->is_total,
                                    .never_waits = true};
}

bool stand_takes(struct stand *stand, const struct scene *scene)
{
    const struct sc_plugin_afar none = {.device = NULL};
    const struct sc_plugin_score asked = asked_of(stand, scene, &none);
    return sc_plugin_score_takes(&asked);
}

spec_status stand_hint(struct stand *stand, const struct scene *scene, float *ret_sums)
{
    const struct sc_plugin_afar none = {.device = NULL};
    const struct sc_plugin_score asked = asked_of(stand, scene, &none);
    return sc_plugin_score_sum(&asked, ret_sums, NULL);
}

void stand_score(struct stand *stand, const struct scene *scene, uint32_t where, float *ret_sums)
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

struct asker {
    struct stand stand; /* its rig is a copy */
    const struct scene *scene;
    const float *right;
    uint32_t where, turns;
};

static void *ask(void *user)
{
    struct asker *asker = user;
    uint64_t count = sum_count(asker->scene->how);
    float *found = malloc(count * sizeof(float));
    assert_non_null(found);
    device_host_open(&asker->stand.host, 0);
    for (uint32_t i = 0; i < asker->turns; i++) {
        stand_score(&asker->stand, asker->scene, (asker->where + i) % 2, found);
        sums_compare(found, asker->right, count);
    }
    device_host_close(&asker->stand.host);
    free(found);
    return NULL;
}

void stand_score_beside(const struct stand *stand, const struct scene *scene, const float *right,
                        uint32_t threads, uint32_t where, uint32_t turns)
{
    struct asker *askers = calloc(threads, sizeof(*askers));
    assert_non_null(askers);
    for (uint32_t i = 0; i < threads; i++)
        askers[i] = (struct asker){*stand, scene, right, where, turns};
    threads_run(ask, askers, sizeof(askers[0]), threads);
    free(askers);
}
