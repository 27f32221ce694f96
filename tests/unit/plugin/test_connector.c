/* Opening and closing: what is refused and how; a failure leaves nothing; a full set of requests;
 * handles that are no more. */
#include "tests/unit/awaits.h"
#include "tests/unit/plugin/plugin_fixture.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>

static void check_refused(struct rig *rig, const struct spec_model *model, spec_status expected)
{
    rig->conn = (spec_connector *)rig; /* poison: an error must not write it */
    assert_int_equal(rig_try_open_model(rig, model), expected);
    assert_ptr_equal(rig->conn, rig);
    rig->conn = NULL;
    assert_int_equal(rig->error.code, expected);
    assert_true(rig->error.text[0] != 0);
    assert_int_equal(atomic_load(&rig->memory.live_blocks), 0);
}

static void models_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "");
    struct spec_model good = rig_model(&rig), m;
    m = good, m.struct_size = 0;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.layer_count = 0;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.layer_count = SC_LIMIT_LAYERS + 1;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.kv_head_count = 0;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.query_head_count = good.kv_head_count + 1;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.query_head_count = 0;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.head_size = SC_LIMIT_HEAD_SIZE + 1;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.kv_dtype = 0;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.kv_dtype = SPEC_DTYPE_BYTES + 1;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.rope_kind = 3;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.kv_layout = 1;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.tp_rank = 1;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.kv_scale_count = 1;
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.weights_id = (struct spec_bytes){NULL, 0};
    check_refused(&rig, &m, SPEC_E_INVALID);
    m = good, m.weights_path_count = 1;
    check_refused(&rig, &m, SPEC_E_INVALID);
    const float scale = 1;
    m = good, m.kv_scales = &scale, m.kv_scale_count = UINT64_MAX / 2;
    check_refused(&rig, &m, SPEC_E_INVALID);
    check_refused(&rig, NULL, SPEC_E_INVALID);
    rig_open(&rig); /* and the good one opens after all that */
    rig_done(&rig);
}

/* A row that no segment holds a chunk of. */
static void rows_beyond_a_segment_are_refused(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "");
    rig_shape(&rig, 1, SC_LIMIT_KV_HEADS, SC_LIMIT_HEAD_SIZE, SPEC_DTYPE_F32);
    struct spec_model model = rig_model(&rig);
    rig.conn = NULL;
    assert_true(rig_try_open_model(&rig, &model) != SPEC_OK);
    assert_null(rig.conn);
    assert_true(rig.error.text[0] != 0);
    assert_int_equal(atomic_load(&rig.memory.live_blocks), 0);
    rig_done(&rig);
}

static void params_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "");
    struct spec_model model = rig_model(&rig);
    char config[256];
    (void)snprintf(config, sizeof(config), "{\"path\": \"/proc/nowhere\"}");
    struct spec_alloc alloc = {
        .struct_size = sizeof(alloc), .alloc = rig_alloc, .free = rig_free, .user = &rig.memory};
    struct spec_open_params good = {
        .struct_size = sizeof(good), .config = config, .model = &model, .alloc = &alloc};
    spec_connector *conn = (spec_connector *)&rig;
    const struct {
        spec_status expected;
        struct spec_open_params params;
    } CASES[] = {
        {SPEC_E_INVALID, {.struct_size = 4, .config = config, .model = &model}},
        {SPEC_E_INVALID, {.struct_size = sizeof(good), .config = NULL, .model = &model}},
        {SPEC_E_INVALID, {.struct_size = sizeof(good), .config = config, .reserved = 1}},
        {SPEC_E_INVALID, {.struct_size = sizeof(good), .config = config, .role = 3}},
        {SPEC_E_INVALID, {.struct_size = sizeof(good), .config = config, .rank = 1}},
        {SPEC_E_INVALID,
         {.struct_size = sizeof(good), .config = config, .rank_count = SC_LIMIT_RANKS + 1}},
        {SPEC_E_CONFIG, {.struct_size = sizeof(good), .config = "{}", .model = &model}},
        {SPEC_E_CONFIG, {.struct_size = sizeof(good), .config = "{\"path\": 3}", .model = &model}},
        {SPEC_E_IO, {.struct_size = sizeof(good), .config = "/nowhere.json", .model = &model}},
    };
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        assert_int_equal(sc_plugin_open(&CASES[i].params, &conn, &error), CASES[i].expected);
        assert_ptr_equal(conn, &rig);
        assert_int_equal(error.code, CASES[i].expected);
    }
    assert_int_equal(sc_plugin_open(&good, NULL, NULL), SPEC_E_INVALID);
    alloc.free = NULL;
    assert_int_equal(sc_plugin_open(&good, &conn, NULL), SPEC_E_INVALID);
    alloc.free = rig_free, alloc.reserved = 1;
    assert_int_equal(sc_plugin_open(&good, &conn, NULL), SPEC_E_INVALID);
    assert_ptr_equal(conn, &rig);
    assert_int_equal(atomic_load(&rig.memory.live_blocks), 0);
    rig_done(&rig);
}

/* Each member that makes KV another KV makes another namespace and another family; what does not,
 * does not. */
static void every_member_of_the_model_is_in_the_namespace(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "");
    struct spec_model models[20], base = rig_model(&rig);
    uint32_t count = 0;
    models[count++] = base;
    models[count] = base, models[count++].head_size = 16;
    models[count] = base, models[count++].kv_dtype = SPEC_DTYPE_BF16;
    models[count] = base, models[count++].rope_kind = SPEC_ROPE_HALF;
    models[count] = base, models[count++].rope_kind = SPEC_ROPE_INTERLEAVED;
    models[count] = base, models[count++].rope_theta = 10000;
    models[count] = base, models[count++].rope_theta = NAN;
    models[count] = base, models[count++].rope_scaling[7] = 8;
    models[count] = base, models[count++].rope_scaling[0] = 8;
    models[count] = base, models[count++].rope_scaling_kind = "llama3";
    models[count] = base, models[count++].tp_size = 2;
    models[count] = base, models[count++].revision = "main";
    models[count] = base, models[count++].weights_id = (struct spec_bytes){"rih", 3};
    struct sc_hash digests[20], families[20];
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(rig_try_open_model(&rig, &models[i]), SPEC_OK);
        digests[i] = rig.conn->name_space;
        families[i] = rig.conn->family;
        rig_close(&rig);
        for (uint32_t j = 0; j < i; j++) {
            assert_false(sc_hash_equal(digests[i], digests[j]));
            assert_false(sc_hash_equal(families[i], families[j]));
        }
    }
    base.tp_size = 1;
    base.revision = "";
    base.rope_scaling_kind = "";
    base.rope_theta = -0.0;
    assert_int_equal(rig_try_open_model(&rig, &base), SPEC_OK); /* the defaults, written out */
    assert_true(sc_hash_equal(rig.conn->name_space, digests[0]));
    assert_true(sc_hash_equal(rig.conn->family, families[0]));
    rig_done(&rig);
}

/* What parts the ranks of one model parts their namespaces, and leaves their chains comparable. */
static void ranks_of_one_model_are_one_family(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, "");
    const float scales[2] = {1, 2};
    struct spec_model models[8], base = rig_model(&rig);
    base.tp_size = 4;
    uint32_t count = 0;
    models[count++] = base;
    models[count] = base, models[count++].tp_rank = 1;
    models[count] = base, models[count++].layer_count = 4;
    models[count] = base, models[count++].query_head_count = 4;
    models[count] = base, models[count].kv_head_count = 1, models[count++].query_head_count = 2;
    models[count] = base, models[count].kv_scales = scales, models[count++].kv_scale_count = 1;
    models[count] = base, models[count].kv_scales = scales, models[count++].kv_scale_count = 2;
    struct sc_hash digests[8], family = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(rig_try_open_model(&rig, &models[i]), SPEC_OK);
        digests[i] = rig.conn->name_space;
        family = i == 0 ? rig.conn->family : family;
        assert_true(sc_hash_equal(rig.conn->family, family));
        assert_false(sc_hash_equal(rig.conn->family, digests[i]));
        rig_close(&rig);
        for (uint32_t j = 0; j < i; j++)
            assert_false(sc_hash_equal(digests[i], digests[j]));
    }
    rig_done(&rig);
}

static void requests_are_bounded_and_come_back(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"max_requests\": 3, \"max_request_tokens\": 100");
    struct prompt prompt = rig_prompt(1, 0, 0, 100);
    struct spec_lookup_result result;
    spec_request seen[30];
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            seen[round * 3 + i] = rig_lookup(&rig, &prompt).request;
            for (uint32_t j = 0; j < round * 3 + i; j++)
                assert_true(seen[j] != seen[round * 3 + i]);
        }
        assert_int_equal(rig_try_lookup(&rig, &prompt, 0, 0, &result), SPEC_E_BUSY);
        for (uint32_t i = 0; i < 3; i++)
            rig_release(&rig, seen[round * 3 + i]);
        for (uint32_t j = 0; j < round * 3 + 3; j++)
            assert_int_equal(sc_plugin_release(rig.conn, seen[j], NULL), SPEC_E_STALE);
    }
    const spec_request never[] = {0, 1, 4, UINT64_MAX, UINT32_MAX, seen[0] & UINT32_MAX};
    for (uint32_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        assert_int_equal(sc_plugin_store_abort(rig.conn, never[i], 0, NULL), SPEC_E_STALE);
        assert_int_equal(sc_plugin_begin_layer(rig.conn, &never[i], 1, 0, NULL), SPEC_E_STALE);
        assert_int_equal(sc_plugin_prefetch_next(rig.conn, never[i], 0, NULL, NULL), SPEC_E_STALE);
    }
    rig_end(&rig, &prompt);
}

/* A lookup that fails late (the keys are read last) gives its request back. */
static void a_refused_lookup_keeps_no_request(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"max_requests\": 1");
    struct prompt prompt = rig_prompt(1, 0, 0, 400);
    static struct spec_extra_key keys[SC_PLUGIN_MARKS + 1];
    for (uint64_t i = 0; i <= SC_PLUGIN_MARKS; i++)
        keys[i] = (struct spec_extra_key){
            .struct_size = sizeof(keys[i]), .first_token = i, .value = {"x", 1}};
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = prompt.tokens,
                                        .token_count = prompt.count,
                                        .extra_keys = keys,
                                        .extra_key_count = SC_PLUGIN_MARKS + 1};
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    for (uint32_t round = 0; round < 3; round++) {
        params.extra_key_count = SC_PLUGIN_MARKS + 1;
        keys[3].first_token = 1; /* not ascending */
        assert_int_equal(sc_plugin_lookup(rig.conn, &params, &result, NULL), SPEC_E_INVALID);
        keys[3].first_token = 3;
        keys[5].struct_size = sizeof(keys[5]) + 8;
        assert_int_equal(sc_plugin_lookup(rig.conn, &params, &result, NULL), SPEC_E_INVALID);
        keys[5].struct_size = sizeof(keys[5]);
        params.extra_key_count = SC_PLUGIN_MARKS;
        assert_int_equal(sc_plugin_lookup(rig.conn, &params, &result, NULL), SPEC_OK);
        assert_int_equal(atomic_load(&rig.conn->stats.requests_open), 1);
        rig_release(&rig, result.request);
        assert_int_equal(atomic_load(&rig.conn->stats.requests_open), 0);
    }
    rig_end(&rig, &prompt);
}

static uint64_t count_entries(const char *path)
{
    uint64_t count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    (void)closedir(dir);
    return count;
}

static void *stand(void *user)
{
    pthread_mutex_t *lock = user;
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* How many there are while no connector is open: counted beside one that stands still, with which a
 * sanitizer's own begins, and before any was joined. */
static uint64_t count_threads(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    pthread_mutex_lock(&lock);
    assert_int_equal(pthread_create(&thread, NULL, stand, &lock), 0);
    uint64_t count = count_entries("/proc/self/task") - 1;
    pthread_mutex_unlock(&lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return count;
}

/* A thread that was joined may stand in /proc a moment longer; one that was not stays. */
static void await_threads(uint64_t count)
{
    uint32_t looks = 0;
    while (count_entries("/proc/self/task") > count)
        await_or_fail(&looks, "the last thread is gone");
}

/* Opened, used and closed again and again, with passes left open: no thread, descriptor or block
 * stays. */
static void closing_leaves_no_thread_and_no_descriptor(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, false, "");
    uint64_t threads = count_threads();
    rig_open(&rig);
    rig_close(&rig);
    uint64_t files = count_entries("/proc/self/fd");
    for (uint32_t round = 0; round < 10; round++) {
        rig_open(&rig);
        assert_true(count_entries("/proc/self/task") > threads);
        struct prompt prompt = rig_prompt(round, 0, 0, 300);
        spec_ticket ticket;
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        (void)rig_store(&rig, result.request, &prompt, 0, 200); /* nobody waits for it */
        assert_int_equal(rig_store_layer(&rig, result.request, &prompt, 200, 100, 0, &ticket),
                         SPEC_OK);
        rig_close(&rig);
        await_threads(threads);
        assert_int_equal(count_entries("/proc/self/fd"), files);
        rig_open(&rig);
        assert_int_equal(rig_read(&rig, &prompt, NULL), 200); /* submitted ones were waited for */
        rig_close(&rig);
        rig_prompt_free(&prompt);
    }
    rig_done(&rig);
}

/* What open asks the host for, with all defaults, of a model whose rows are 16 KiB: so much must be
 * had under strict overcommit, or from an allocator that hands out touched memory. */
static void defaults_ask_for_a_bounded_amount_of_memory(void **state)
{
    (void)state;
    static const char *const PRESETS[] = {"as-like", "impress-itf", "spec-itf"};
    for (uint32_t i = 0; i < 3; i++) {
        struct rig rig;
        char extra[64];
        (void)snprintf(extra, sizeof(extra), "\"preset\": \"%s\"", PRESETS[i]);
        rig_init(&rig, true, extra);
        rig.stage = "256MiB";
        rig_shape(&rig, 32, 32, 128, SPEC_DTYPE_F16);
        rig_open(&rig);
        uint64_t bytes = atomic_load(&rig.memory.live_bytes);
        print_message("%s: %" PRIu64 " MiB\n", PRESETS[i], bytes >> 20);
        assert_true(bytes < UINT64_C(5) << 28); /* before selectors shared a pool: 20 GiB */
        rig_done(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_that_cannot_be_are_refused),
        cmocka_unit_test(rows_beyond_a_segment_are_refused),
        cmocka_unit_test(params_that_cannot_be_are_refused),
        cmocka_unit_test(every_member_of_the_model_is_in_the_namespace),
        cmocka_unit_test(ranks_of_one_model_are_one_family),
        cmocka_unit_test(requests_are_bounded_and_come_back),
        cmocka_unit_test(a_refused_lookup_keeps_no_request),
        cmocka_unit_test(closing_leaves_no_thread_and_no_descriptor),
        cmocka_unit_test(defaults_ask_for_a_bounded_amount_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
