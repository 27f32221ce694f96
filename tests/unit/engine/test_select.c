/* Chosen rows, judged: the real plugin under the driver, beside the float64 reference on the very
 * inputs that the plugin was given, and the engine's own forward over the rows that it delivered.
 *
 *   prompt --driver--> get_important --> rows, positions --> logits
 *              \-- queries, keys --> select_rows.h: the same sets, but for near ties, counted
 *              \-- positions ------> the prefix from memory, those rows --> the same logits
 *
 * Holds: "equal" means byte for byte; rows that float32 may rank otherwise (1e-5) are counted, and
 *   at most one in a thousand.
 * Threads: one; the model uses two, the plugin its own.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

#include "abi/spec_connector.h"
#include "conformance/engine/cli/driver.h"
#include "conformance/engine/cli/selector_source.h"
#include "tests/unit/engine/make_model.h"

#define QUERY_COUNT 23u
#define PASSES_MAX  8u
#define LAYERS_MAX  32u
#define SHARED      SC_SHARED_DIR "/data/models/"

/* What the plugin delivered at one layer of one pass. */
struct record {
    uint32_t *rows; /* [lists][row_count] */
    uint64_t lists, row_count;
};

struct fixture {
    char folder[64];
    const char *model_dir;
    struct eng_model *model;
    const struct eng_config *config;
    enum eng_dtype dtype;
    struct eng_runner *holder, *runner;
    struct eng_selectr *chooser;
    uint32_t *tokens; /* [prefix + query] */
    uint64_t prefix;
    float *full; /* [vocab]: of every row */
    struct eng_select_rule rule;
    bool no_new_keys, ahead, settles;
    uint64_t refined_layers; /* of the last run */
    struct record records[PASSES_MAX][LAYERS_MAX];
    /* Counts over all runs. */
    uint64_t rows, exempt, sets, fallback_sets, similarity_exempt;
};

static void must(eng_status status, const struct eng_error *error)
{
    if (status != ENG_OK)
        fail_msg("%s", error->text);
}

/* ---- Judging a layer ---- */

static void forget_records(struct fixture *fx)
{
    for (uint64_t pass = 0; pass < PASSES_MAX; pass++)
        for (uint64_t layer = 0; layer < LAYERS_MAX; layer++)
            free(fx->records[pass][layer].rows);
    memset(fx->records, 0, sizeof(fx->records));
}

static void keep_record(struct fixture *fx, const struct eng_selection *selection)
{
    struct record *record = &fx->records[selection->pass][selection->view->layer];
    uint64_t count = selection->lists * selection->row_count;
    assert_true(selection->pass < PASSES_MAX && selection->view->layer < LAYERS_MAX);
    free(record->rows);
    *record = (struct record){.rows = malloc(count * sizeof(*record->rows)),
                              .lists = selection->lists,
                              .row_count = selection->row_count};
    assert_non_null(record->rows);
    memcpy(record->rows, selection->positions, count * sizeof(*record->rows));
}

static void check_ascending(const struct eng_selection *selection)
{
    for (uint64_t list = 0; list < selection->lists; list++) {
        const uint32_t *rows = selection->positions + list * selection->row_count;
        for (uint64_t i = 0; i < selection->row_count; i++)
            assert_true(rows[i] < selection->matched && (i == 0 || rows[i] > rows[i - 1]));
    }
}

/* The reference on the same inputs; where similarity and threshold are too near to tell, it follows
 * the plugin. */
static struct eng_choice judge(struct fixture *fx, const struct eng_selection *selection,
                               const struct eng_select_input *input)
{
    struct eng_select_rule rule = fx->rule;
    struct eng_choice choice;
    struct eng_error error;
    must(eng_select(fx->chooser, input, &rule, &choice, &error), &error);
    if (choice.fallback == selection->fallback)
        return choice;
    double slack =
        rule.similarity == ENG_SIMILARITY_MASS ? ENG_SELECT_NEAR : 2.0 / (double)choice.row_count;
    if (!(fabs(choice.similarity - choice.threshold) <= slack))
        fail_msg("layer %" PRIu64 ": similarity %.9g, threshold %.9g, but fallback is %d",
                 input->layer, choice.similarity, choice.threshold, selection->fallback);
    fx->similarity_exempt++;
    rule.per_head = selection->fallback;
    rule.one_set = !selection->fallback;
    must(eng_select(fx->chooser, input, &rule, &choice, &error), &error);
    return choice;
}

static eng_status observe(void *user, const struct eng_selection *selection,
                          struct eng_error *reterr)
{
    struct fixture *fx = user;
    const struct eng_attention_view *view = selection->view;
    const struct eng_kv *kv = view->pass->kv;
    uint64_t fresh = kv->rows[view->layer] - selection->matched + view->pass->count;
    const struct eng_select_input input =
        eng_select_input_of(fx->config, view, eng_runner_kv(fx->holder), selection->matched,
                            fx->no_new_keys ? 0 : fresh);
    (void)reterr;
    check_ascending(selection);
    keep_record(fx, selection);
    if (selection->dense) /* every row; nothing was chosen */
        return ENG_OK;
    struct eng_choice choice = judge(fx, selection, &input);
    if (choice.row_count != selection->row_count || choice.lists != selection->lists)
        fail_msg("layer %" PRIu64 ": %" PRIu64 " rows in %" PRIu64 " sets, expected %" PRIu64
                 " in %" PRIu64,
                 view->layer, selection->row_count, selection->lists, choice.row_count,
                 choice.lists);
    uint64_t k = choice.row_count;
    uint64_t differ = 0;
    for (uint64_t list = 0; list < choice.lists; list++)
        differ +=
            k - eng_select_overlap(choice.rows + list * k, k, selection->positions + list * k, k);
    if (differ > choice.near)
        fail_msg("pass %" PRIu64 " layer %" PRIu64 ": %" PRIu64 " rows differ, %" PRIu64
                 " are near ties",
                 selection->pass, view->layer, differ, choice.near);
    if (differ == 0)
        assert_int_equal(selection->union_rows, choice.union_rows);
    fx->rows += k * choice.lists;
    fx->exempt += differ;
    fx->sets++;
    fx->fallback_sets += choice.fallback;
    return ENG_OK;
}

/* ---- Running ---- */

static struct eng_result run(struct fixture *fx, const struct eng_source *source,
                             uint64_t pass_tokens)
{
    struct eng_error error;
    struct eng_result result;
    struct eng_request request = {.prefix = fx->tokens,
                                  .query = fx->tokens + fx->prefix,
                                  .prefix_count = fx->prefix,
                                  .query_count = QUERY_COUNT,
                                  .max_new = 3,
                                  .pass_tokens = pass_tokens};
    must(eng_run(fx->runner, &request, source, &result, &error), &error);
    return result;
}

/* The members, with rows chosen of matches of any length: the prompts here are short. */
static const char *with_short(const char *members, char *text, uint64_t capacity)
{
    static const char GROUP[] = "\"select\": {", ANY[] = "\"min_tokens\": 0, \"min_share_ppm\": 0";
    const char *group = strstr(members, GROUP);
    if (group == NULL)
        (void)snprintf(text, capacity, "%s, %s%s}", members, GROUP, ANY);
    else
        (void)snprintf(text, capacity, "%.*s%s%s, %s", (int)(group - members), members, GROUP, ANY,
                       group + strlen(GROUP));
    return text;
}

/* A run through the plugin with these members of its configuration (beside the path). */
static struct eng_result run_plugin(struct fixture *fx, const char *members, bool store,
                                    uint64_t pass_tokens, const struct spec_select *select,
                                    enum eng_hint hint)
{
    char config[1024], text[900];
    struct eng_error error;
    struct eng_driver *driver = NULL;
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"%s/store\", \"load_policy\": \"load\", %s}", fx->folder,
                   with_short(members, text, sizeof(text)));
    struct eng_driver_params params = {.connector = SC_BINARY_DIR "/lib/libspec_connector.so",
                                       .config = config,
                                       .model_dir = fx->model_dir,
                                       .model = fx->model,
                                       .kv_dtype = fx->dtype,
                                       .store = store,
                                       .select = select,
                                       .ahead = fx->ahead,
                                       .settle = fx->settles,
                                       .hint = hint,
                                       .no_new_keys = fx->no_new_keys,
                                       .observe = store ? NULL : observe,
                                       .observe_user = fx};
    must(eng_driver_open(&params, &driver, &error), &error);
    struct eng_result result = run(fx, eng_driver_source(driver), pass_tokens);
    if (eng_driver_store_problem(driver) != NULL)
        fail_msg("%s", eng_driver_store_problem(driver));
    assert_int_equal(result.restarts, 0);
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    must(eng_driver_stats(driver, &stats, &error), &error);
    fx->refined_layers = stats.refined_layers;
    eng_driver_close(driver);
    return result;
}

static eng_status replay(void *user, const struct eng_attention_view *view, uint64_t pass,
                         struct eng_choice *ret_choice, struct eng_error *reterr)
{
    const struct fixture *fx = user;
    const struct record *record = &fx->records[pass][view->layer];
    if (record->rows == NULL)
        return eng_fail(reterr, ENG_E_INVALID, "the plugin was not asked in pass %" PRIu64, pass);
    *ret_choice = (struct eng_choice){
        .row_count = record->row_count, .lists = record->lists, .rows = record->rows};
    return ENG_OK;
}

/* The logits of the rows that the plugin delivered, from memory. */
static struct eng_result run_replay(struct fixture *fx, uint64_t pass_tokens)
{
    struct eng_error error;
    struct eng_selectr_source *source = NULL;
    const struct eng_selectr_source_params params = {.model = fx->model,
                                                     .held = eng_runner_kv(fx->holder),
                                                     .held_tokens = &fx->prefix,
                                                     .choose = replay,
                                                     .select_user = fx};
    must(eng_selectr_source_open(&params, &source, &error), &error);
    struct eng_result result = run(fx, eng_selectr_source_get(source), pass_tokens);
    eng_selectr_source_close(source);
    return result;
}

static void assert_same_answer(const struct fixture *fx, const struct eng_result *a,
                               const struct eng_result *b)
{
    assert_memory_equal(a->logits, b->logits, fx->config->vocab * sizeof(float));
    assert_int_equal(a->token_count, b->token_count);
    assert_memory_equal(a->tokens, b->tokens, a->token_count * sizeof(*a->tokens));
}

/* One configuration: sets as the reference has them, logits as those rows give. */
static void check(struct fixture *fx, const char *members, const struct eng_select_rule *rule,
                  uint64_t pass_tokens, const struct spec_select *select)
{
    fx->rule = *rule;
    forget_records(fx);
    struct eng_result result = run_plugin(fx, members, false, pass_tokens, select, ENG_HINT_NONE);
    assert_int_equal(result.matched_tokens, fx->prefix);
    struct eng_result again = run_replay(fx, pass_tokens);
    assert_same_answer(fx, &result, &again);
    eng_result_done(&result);
    eng_result_done(&again);
}

/* ---- Fixtures ---- */

static void open_model(struct fixture *fx, const char *dir, enum eng_dtype dtype, uint64_t prefix)
{
    struct eng_error error;
    fx->model_dir = dir;
    fx->dtype = dtype;
    fx->prefix = prefix;
    must(eng_model_open(dir, 2, &fx->model, &error), &error);
    fx->config = eng_model_config(fx->model);
    uint64_t capacity = prefix + QUERY_COUNT + 4;
    must(eng_runner_open(fx->model, dtype, capacity, &fx->holder, &error), &error);
    must(eng_runner_open(fx->model, dtype, capacity, &fx->runner, &error), &error);
    must(eng_selectr_open(&fx->chooser, &error), &error);
    fx->tokens = malloc(capacity * sizeof(*fx->tokens));
    assert_non_null(fx->tokens);
    uint32_t seed = 7;
    for (uint64_t i = 0; i < capacity; i++) {
        seed = seed * 1664525u + 1013904223u;
        fx->tokens[i] = 16 + (seed >> 8) % (uint32_t)(fx->config->vocab - 16);
    }
    must(eng_run_hold(fx->holder, fx->tokens, prefix, 0, &error), &error);
    struct eng_result full = run(fx, NULL, 0);
    fx->full = full.logits;
    full.logits = NULL;
    eng_result_done(&full);
    struct eng_result stored =
        run_plugin(fx, "\"preset\": \"impress-itf\"", true, 0, NULL, ENG_HINT_NONE);
    assert_int_equal(stored.matched_tokens, 0);
    eng_result_done(&stored);
}

static void open_fixture(struct fixture *fx, bool llama, enum eng_dtype dtype)
{
    struct recipe recipe = llama ? recipe_llama() : recipe_opt();
    *fx = (struct fixture){0};
    strcpy(fx->folder, "/tmp/spec-select-XXXXXX");
    assert_non_null(mkdtemp(fx->folder));
    make_model(fx->folder, &recipe);
    open_model(fx, fx->folder, dtype, 200);
}

static void close_fixture(struct fixture *fx)
{
    char command[128];
    forget_records(fx);
    eng_selectr_close(fx->chooser);
    eng_runner_close(fx->holder);
    eng_runner_close(fx->runner);
    eng_model_close(fx->model);
    free(fx->tokens);
    free(fx->full);
    if (fx->rows > 0) {
        print_message("%" PRIu64 " sets, %" PRIu64 " a head, %" PRIu64 " rows, exempt %" PRIu64
                      " rows and %" PRIu64 " similarities\n",
                      fx->sets, fx->fallback_sets, fx->rows, fx->exempt, fx->similarity_exempt);
        assert_true(fx->exempt * 1000 <= fx->rows);
        assert_true(fx->similarity_exempt * 1000 <= fx->sets);
    }
    (void)snprintf(command, sizeof(command), "rm -rf %s", fx->folder);
    assert_int_equal(system(command), 0);
}

/* ---- Tests ---- */

struct variant {
    const char *members; /* of select */
    struct eng_select_rule rule;
};

static void check_variants(struct fixture *fx, uint64_t pass_tokens)
{
    const struct eng_select_rule quarter = eng_select_rule_default(.25);
    struct variant variants[] = {
        {"\"retain_ppm\": 250000", quarter},
        {"\"retain_ppm\": 50000", eng_select_rule_default(.05)},
        {"\"retain_ppm\": 250000, \"alpha_milli\": 0", quarter},
        {"\"retain_ppm\": 250000, \"alpha_milli\": 50000", quarter},
        {"\"retain_ppm\": 250000, \"similarity\": \"mass\", \"similarity_mass_ppm\": 800000",
         quarter},
        {"\"budget\": \"count\", \"count\": 33", quarter},
        {"\"budget\": \"mass\", \"mass_ppm\": 700000, \"retain_ppm\": 900000",
         eng_select_rule_default(.9)},
        {"\"retain_ppm\": 100000, \"keep_first\": 4, \"keep_last\": 8",
         eng_select_rule_default(.1)},
        {"\"retain_ppm\": 250000, \"metric\": \"last\"", quarter},
        {"\"retain_ppm\": 250000, \"dense_layers\": 1", quarter},
        {"\"retain_ppm\": 250000, \"unit\": 16", quarter},
    };
    variants[2].rule.per_head = true;
    variants[3].rule.one_set = true;
    variants[4].rule.similarity = ENG_SIMILARITY_MASS;
    variants[4].rule.mass_threshold = .8;
    variants[5].rule.count = 33;
    variants[6].rule.mass = .7;
    variants[7].rule.keep_first = 4;
    variants[7].rule.keep_last = 8;
    variants[8].rule.metric = ENG_METRIC_LAST;
    variants[9].rule.dense_layers = 1;
    variants[10].rule.unit = 16;
    for (uint64_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        char members[512];
        (void)snprintf(members, sizeof(members), "\"preset\": \"impress-itf%s\", \"select\": {%s}",
                       i % 2 == 0 ? "" : "+range", variants[i].members);
        check(fx, members, &variants[i].rule, pass_tokens, NULL);
    }
}

static void sets_are_those_of_the_reference_for_every_rule_and_dtype(void **state)
{
    (void)state;
    for (int llama = 0; llama < 2; llama++)
        for (int dtype = 0; dtype < ENG_DTYPES; dtype++) {
            struct fixture fx;
            open_fixture(&fx, llama != 0, (enum eng_dtype)dtype);
            check_variants(&fx, 0);
            close_fixture(&fx);
        }
}

/* Each pass of a prompt chooses anew, with the keys of the passes before it. */
static void each_pass_of_a_prompt_chooses_anew(void **state)
{
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        struct fixture fx;
        open_fixture(&fx, llama != 0, ENG_F16);
        check_variants(&fx, 7);
        close_fixture(&fx);
    }
}

static void scores_may_run_over_the_prefix_alone(void **state)
{
    struct fixture fx;
    (void)state;
    open_fixture(&fx, true, ENG_F16);
    fx.no_new_keys = true;
    check_variants(&fx, 0);
    close_fixture(&fx);
}

/* Llama's and OPT's trained models have heads that agree and heads that do not. */
static void trained_models_choose_as_the_reference_does(void **state)
{
    static const struct {
        const char *dir;
        uint64_t prefix;
    } models[] = {{SC_SOURCE_DIR "/models/opt-recall", 900},
                  {SC_SOURCE_DIR "/models/stories260K", 400},
                  {SHARED "tinychat-opt", 200}};
    uint64_t checked = 0;
    (void)state;
    for (uint64_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct fixture fx = {0};
        if (access(models[i].dir, R_OK) != 0) {
            print_message("%s is absent: skipped\n", models[i].dir);
            continue;
        }
        strcpy(fx.folder, "/tmp/spec-select-XXXXXX");
        assert_non_null(mkdtemp(fx.folder));
        open_model(&fx, models[i].dir, ENG_F16, models[i].prefix);
        check_variants(&fx, 0);
        close_fixture(&fx);
        checked++;
    }
    assert_true(checked > 0);
}

static void select_of_a_call_changes_what_is_configured(void **state)
{
    struct fixture fx;
    struct eng_select_rule rule = eng_select_rule_default(.1);
    struct spec_select select = {.struct_size = sizeof(select),
                                 .given = SPEC_SELECT_BUDGET | SPEC_SELECT_KEEP,
                                 .budget = SPEC_BUDGET_RATIO,
                                 .retain_ppm = 100000,
                                 .keep_first = 3};
    (void)state;
    open_fixture(&fx, true, ENG_F16);
    rule.keep_first = 3;
    check(&fx, "\"preset\": \"impress-itf\", \"select\": {\"keep_last\": 9}", &rule, 0, &select);
    select = (struct spec_select){
        .struct_size = sizeof(select), .given = SPEC_SELECT_METRIC, .metric = SPEC_METRIC_LAST};
    rule = eng_select_rule_default(.25);
    rule.metric = ENG_METRIC_LAST;
    check(&fx, "\"preset\": \"impress-itf\"", &rule, 0, &select);
    close_fixture(&fx);
}

/* Every row asked for: the logits of a prefix that was computed. */
static void all_rows_are_the_lossless_answer(void **state)
{
    static const char *const members[] = {
        "\"preset\": \"as-like\", \"store\": {\"layout\": \"split\"}",
        "\"preset\": \"impress-itf\", \"select\": {\"retain_ppm\": 1000000}",
        "\"preset\": \"impress-itf\", \"select\": {\"retain_ppm\": 999999}",
        "\"preset\": \"impress-itf\", \"select\": {\"budget\": \"count\", \"count\": 200}"};
    (void)state;
    for (int llama = 0; llama < 2; llama++)
        for (uint64_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
            struct fixture fx;
            open_fixture(&fx, llama != 0, ENG_F16);
            fx.rule = eng_select_rule_default(1);
            struct eng_result result =
                run_plugin(&fx, members[i], false, llama != 0 ? 7 : 0, NULL, ENG_HINT_NONE);
            assert_memory_equal(result.logits, fx.full, fx.config->vocab * sizeof(float));
            assert_int_equal(result.fallback_layers + result.dense_layers, 0);
            eng_result_done(&result);
            close_fixture(&fx);
        }
}

/* Predictors, hints and workers decide what is read ahead, not what comes. */
static void what_is_read_ahead_changes_nothing(void **state)
{
    static const struct {
        const char *members;
        enum eng_hint hint;
    } runs[] = {
        {"\"preset\": \"impress-itf\"", ENG_HINT_NONE},
        {"\"preset\": \"impress-itf+range\", \"io\": {\"threads\": 1}", ENG_HINT_NONE},
        {"\"preset\": \"spec-itf\", \"io\": {\"threads\": 4}", ENG_HINT_NONE},
        {"\"preset\": \"spec-itf+range\", \"prefetch\": {\"predictor\": \"hint\"}",
         ENG_HINT_BEFORE},
        {"\"preset\": \"spec-itf\", \"prefetch\": {\"predictor\": \"hint\"}", ENG_HINT_AFTER},
        {"\"preset\": \"spec-itf+range\", \"prefetch\": {\"predictor\": \"hint\"}", ENG_HINT_BOTH},
        {"\"preset\": \"random+range\"", ENG_HINT_NONE},
        {"\"preset\": \"impress-itf\", \"io\": {\"backend\": \"pread\"}", ENG_HINT_BOTH}};
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        struct fixture fx;
        struct eng_result first = {0};
        open_fixture(&fx, llama != 0, ENG_BF16);
        fx.rule = eng_select_rule_default(.25);
        for (uint64_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
            struct eng_result result =
                run_plugin(&fx, runs[i].members, false, 0, NULL, runs[i].hint);
            if (i > 0)
                assert_same_answer(&fx, &result, &first);
            if (i > 0)
                eng_result_done(&result);
            else
                first = result;
        }
        eng_result_done(&first);
        close_fixture(&fx);
    }
}

/* Over the fixture's store, which preset impress-itf filled. */
#define UNIFORM "\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"split\"}"

/* Layers whose places were told before their queries are those of one call, in an engine too. */
static void what_comes_ahead_changes_nothing(void **state)
{
    static const char *const members[] = {
        UNIFORM, UNIFORM ", \"submit\": {\"threads\": 0}",
        UNIFORM ", \"layered\": {\"exact_ppm\": 300000, \"refine_bytes\": 0}",
        UNIFORM ", \"layered\": {\"exact_ppm\": 1000000}"};
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        struct fixture fx;
        open_fixture(&fx, llama != 0, llama != 0 ? ENG_F32 : ENG_F16);
        fx.rule = eng_select_rule_default(1);
        fx.settles = true; /* codes are made of what is stored */
        struct eng_result result = run_plugin(&fx, members[0], false, 0, NULL, ENG_HINT_NONE);
        eng_result_done(&result);
        for (uint64_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
            fx.ahead = false;
            struct eng_result once = run_plugin(&fx, members[i], false, 0, NULL, ENG_HINT_NONE);
            assert_int_equal(fx.refined_layers, 0);
            fx.ahead = true;
            result = run_plugin(&fx, members[i], false, 0, NULL, ENG_HINT_NONE);
            assert_int_equal(fx.refined_layers, i == 2 ? 0 : fx.config->layers - 1);
            assert_same_answer(&fx, &result, &once);
            assert_int_equal(result.bytes_wanted, once.bytes_wanted);
            bool is_full = memcmp(result.logits, fx.full, fx.config->vocab * sizeof(float)) == 0;
            assert_int_equal(is_full, i == 3); /* else codes were used */
            eng_result_done(&once);
            eng_result_done(&result);
        }
        close_fixture(&fx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_those_of_the_reference_for_every_rule_and_dtype),
        cmocka_unit_test(each_pass_of_a_prompt_chooses_anew),
        cmocka_unit_test(scores_may_run_over_the_prefix_alone),
        cmocka_unit_test(trained_models_choose_as_the_reference_does),
        cmocka_unit_test(select_of_a_call_changes_what_is_configured),
        cmocka_unit_test(all_rows_are_the_lossless_answer),
        cmocka_unit_test(what_is_read_ahead_changes_nothing),
        cmocka_unit_test(what_comes_ahead_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
