/* The reference choice of rows: its parts by hand, the papers' worked examples, and a model run
 * over chosen rows from memory.
 *
 * Holds: "equal" means byte for byte.
 * Threads: one; the model uses two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

#include "conformance/engine/cli/selector_source.h"
#include "conformance/engine/select_rows.h"
#include "tests/unit/engine/make_model.h"

#define PREFIX 150u
#define QUERY  20u

static void assert_near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-12 * fabs(wanted)))
        fail_msg("%.17g, expected %.17g", value, wanted);
}

static void the_best_are_taken_lower_positions_first(void **state)
{
    static const double scores[8] = {1, 3, 3, 2, 3, -0.0, 0, 2 + 1e-6};
    static const uint32_t wanted[9][8] = {{0},
                                          {1},
                                          {1, 2},
                                          {1, 2, 4},
                                          {1, 2, 4, 7},
                                          {1, 2, 3, 4, 7},
                                          {0, 1, 2, 3, 4, 7},
                                          {0, 1, 2, 3, 4, 5, 7},
                                          {0, 1, 2, 3, 4, 5, 6, 7}};
    static const uint64_t near[9] = {0, 3, 3, 0, 2, 0, 0, 2, 0};
    uint32_t order[16], rows[8];
    (void)state;
    for (uint64_t k = 0; k <= 8; k++) {
        assert_int_equal(eng_select_top(scores, 8, k, order, rows), near[k]);
        assert_memory_equal(rows, wanted[k], k * sizeof(*rows));
    }
}

static void k_is_rounded_up_and_never_none(void **state)
{
    (void)state;
    assert_int_equal(eng_select_k(0, 250000), 0);
    assert_int_equal(eng_select_k(10, 0), 1);
    assert_int_equal(eng_select_k(10, 250000), 3);
    assert_int_equal(eng_select_k(12, 250000), 3);
    assert_int_equal(eng_select_k(1900, 1), 1);
    assert_int_equal(eng_select_k(7, 1000000), 7);
}

/* IMPRESS, section 4.3: two sets of four that share two; t at k / R = .25 and alpha .6. */
static void similarity_is_as_in_the_paper(void **state)
{
    static const uint32_t a[] = {1, 2, 5, 7}, b[] = {2, 3, 7, 9};
    (void)state;
    assert_int_equal(eng_select_overlap(a, 4, b, 4), 2);
    assert_near(eng_select_jaccard(a, 4, b, 4), 1.0 / 3);
    assert_near(eng_select_jaccard(a, 4, a, 4), 1);
    assert_near(eng_select_jaccard(a, 4, b, 0), 0);
    assert_near(eng_select_jaccard(a, 0, b, 0), 1);
}

/* One query head a KV head, head size 1, every query 1: the score of a row is its key. */
struct hand {
    float q[4], keys[24], fresh[2];
    struct eng_select_input input;
    struct eng_selectr *chooser;
};

static void hand_init(struct hand *hand, uint64_t heads, const double *weights, uint64_t rows)
{
    struct eng_error error;
    *hand = (struct hand){.q = {1, 1, 1, 1}};
    for (uint64_t i = 0; i < heads * rows; i++) /* given head by head, held row by row */
        hand->keys[i % rows * heads + i / rows] = (float)log(weights[i]);
    hand->input = (struct eng_select_input){.heads = heads,
                                            .kv_heads = heads,
                                            .head_dim = 1,
                                            .q = hand->q,
                                            .q_stride = heads,
                                            .rows = 1,
                                            .prefix = hand->keys,
                                            .prefix_count = rows};
    assert_int_equal(eng_selectr_open(&hand->chooser, &error), ENG_OK);
}

static void importance_is_a_column_sum_of_softmaxes(void **state)
{
    static const double weights[4] = {4, 1, 2, 1};
    const double *importance = NULL;
    struct eng_error error;
    struct hand hand;
    (void)state;
    hand_init(&hand, 1, weights, 4);
    hand.input.rows = 2;
    hand.input.fresh = hand.fresh; /* keys 0: each weighs 1 */
    hand.input.fresh_count = 2;
    for (int last = 0; last < 2; last++) {
        assert_int_equal(
            eng_select_importance(hand.chooser, &hand.input, 1, last != 0, &importance, &error),
            ENG_OK);
        for (int j = 0; j < 4; j++) {
            double wanted = weights[j] / 10 + (last ? 0 : weights[j] / 9);
            assert_true(fabs(importance[j] - wanted) < 1e-6 * wanted);
        }
    }
    hand.input.fresh_count = 0;
    assert_int_equal(eng_select_importance(hand.chooser, &hand.input, 1, true, &importance, &error),
                     ENG_OK);
    assert_true(fabs(importance[0] - .5) < 1e-6);
    eng_selectr_close(hand.chooser);
}

static struct eng_choice choose(const struct hand *hand, const struct eng_select_rule *rule)
{
    struct eng_choice choice;
    struct eng_error error;
    assert_int_equal(eng_select(hand->chooser, &hand->input, rule, &choice, &error), ENG_OK);
    return choice;
}

static void probes_vote_or_each_head_has_its_own(void **state)
{
    /* Tops of two: {0, 1}, {0, 2}, {2, 3}, and head 3, no probe, {4, 5}: row 0 and row 2 have two
     * votes each; with k 3, tops {0,1,3}, {0,2,1}, {2,3,0} give 0 three votes and 1, 2, 3 two. */
    static const double weights[24] = {9, 8, 1, 2, 1, 1, 9, 3, 8, 1, 1, 1,
                                       2, 1, 8, 9, 1, 1, 1, 1, 1, 1, 8, 9};
    struct eng_select_rule rule = eng_select_rule_default(2.0 / 6);
    struct hand hand;
    (void)state;
    hand_init(&hand, 4, weights, 6);
    rule.retain_ppm = 333334;
    rule.count = 2;
    rule.one_set = true;
    struct eng_choice choice = choose(&hand, &rule);
    assert_false(choice.fallback);
    assert_int_equal(choice.row_count, 2);
    assert_memory_equal(choice.rows, ((const uint32_t[]){0, 2}), 8);
    assert_near(choice.similarity, (1.0 / 3 + 0 + 1.0 / 3) / 3);
    assert_near(choice.threshold, pow(.2, .6));
    rule.one_set = false;
    choice = choose(&hand, &rule);
    assert_true(choice.fallback);
    assert_int_equal(choice.lists, 4);
    assert_int_equal(choice.union_rows, 6);
    assert_memory_equal(choice.rows, ((const uint32_t[]){0, 1, 0, 2, 2, 3, 4, 5}), 32);
    rule.alpha = 50;
    assert_false(choose(&hand, &rule).fallback);
    rule.count = 3;
    choice = choose(&hand, &rule);
    assert_memory_equal(choice.rows, ((const uint32_t[]){0, 2, 3}), 12);
    rule.count = 2;
    rule.keep_last = 1;
    choice = choose(&hand, &rule);
    assert_memory_equal(choice.rows, ((const uint32_t[]){0, 5}), 8);
    rule.keep_last = 0;
    rule.similarity = ENG_SIMILARITY_MASS; /* {0, 2} catches 10/17, 17/17, 10/17 of the tops */
    choice = choose(&hand, &rule);
    assert_true(choice.fallback);
    assert_true(fabs(choice.similarity - 37.0 / 51) < 1e-6);
    rule.mass_threshold = .7;
    assert_false(choose(&hand, &rule).fallback);
    rule.keep_last = 1; /* {0, 5} catches all, all, and 3 of {3, 5}'s 10 */
    assert_true(fabs(choose(&hand, &rule).similarity - 2.3 / 3) < 1e-6);
    rule.dense_layers = 1;
    assert_int_equal(choose(&hand, &rule).row_count, 6);
    eng_selectr_close(hand.chooser);
}

static void threshold_and_mass_are_as_written(void **state)
{
    static const double weights[8] = {40, 1, 30, 2, 20, 3, 3, 1};
    struct eng_select_rule rule = eng_select_rule_default(.25);
    struct hand hand;
    (void)state;
    hand_init(&hand, 1, weights, 8);
    struct eng_choice choice = choose(&hand, &rule);
    assert_true(fabs(choice.threshold - .311) < 5e-4);
    assert_near(choice.similarity, 1);
    rule.retain_ppm = 1000000;
    rule.mass = .89;
    choice = choose(&hand, &rule);
    assert_int_equal(choice.row_count, 3);
    assert_memory_equal(choice.rows, ((const uint32_t[]){0, 2, 4}), 12);
    rule.keep_first = 2;
    choice = choose(&hand, &rule);
    assert_int_equal(choice.row_count, 4);
    assert_memory_equal(choice.rows, ((const uint32_t[]){0, 1, 2, 4}), 16);
    rule.keep_first = 0;
    rule.unit = 2;
    choice = choose(&hand, &rule);
    assert_int_equal(choice.row_count, 6); /* pairs of 41, 32, 23 and 4 of 100 */
    rule.mass = .7;
    choice = choose(&hand, &rule);
    assert_memory_equal(choice.rows, ((const uint32_t[]){0, 1, 2, 3}), 16);
    rule.unit = 1;
    rule.retain_ppm = 250000;
    assert_int_equal(choose(&hand, &rule).row_count, 2);
    rule.mass = 0;
    rule.metric = ENG_METRIC_RANDOM;
    struct eng_choice first = choose(&hand, &rule);
    uint32_t rows[2] = {first.rows[0], first.rows[1]};
    assert_true(rows[0] < rows[1] && rows[1] < 8);
    assert_memory_equal(choose(&hand, &rule).rows, rows, sizeof(rows));
    eng_selectr_close(hand.chooser);
}

/* ---- A model over chosen rows ---- */

struct fixture {
    struct eng_model *model;
    struct eng_runner *prefix, *runner;
    uint32_t tokens[PREFIX + QUERY];
    uint64_t prefix_count;
};

static void must(eng_status status, const struct eng_error *error)
{
    if (status != ENG_OK)
        fail_msg("%s", error->text);
}

static void fixture_init(struct fixture *fx, bool llama)
{
    struct eng_error error;
    struct recipe recipe = llama ? recipe_llama() : recipe_opt();
    char folder[] = "/tmp/spec-choose-XXXXXX";
    assert_non_null(mkdtemp(folder));
    make_model(folder, &recipe);
    must(eng_model_open(folder, 2, &fx->model, &error), &error);
    remove_model(folder);
    must(eng_runner_open(fx->model, ENG_F16, PREFIX + QUERY, &fx->prefix, &error), &error);
    must(eng_runner_open(fx->model, ENG_F16, PREFIX + QUERY, &fx->runner, &error), &error);
    fx->prefix_count = PREFIX;
    for (uint32_t i = 0; i < PREFIX + QUERY; i++)
        fx->tokens[i] = (i * i * 7 + i * 37 + 5) % (uint32_t)recipe.vocab;
    must(eng_run_hold(fx->prefix, fx->tokens, PREFIX, 0, &error), &error);
}

static void fixture_done(struct fixture *fx)
{
    eng_runner_close(fx->prefix);
    eng_runner_close(fx->runner);
    eng_model_close(fx->model);
}

static struct eng_result run(struct fixture *fx, const struct eng_source *source,
                             uint64_t pass_tokens)
{
    struct eng_error error;
    struct eng_result result;
    struct eng_request request = {.prefix = fx->tokens,
                                  .query = fx->tokens + PREFIX,
                                  .prefix_count = PREFIX,
                                  .query_count = QUERY,
                                  .max_new = 1,
                                  .pass_tokens = pass_tokens};
    must(eng_run(fx->runner, &request, source, &result, &error), &error);
    return result;
}

static struct eng_result run_rule(struct fixture *fx, const struct eng_select_rule *rule,
                                  uint64_t pass_tokens)
{
    struct eng_error error;
    struct eng_selectr_source *source = NULL;
    struct eng_selectr_source_params params = {.model = fx->model,
                                               .held = eng_runner_kv(fx->prefix),
                                               .held_tokens = &fx->prefix_count,
                                               .rule = *rule};
    must(eng_selectr_source_open(&params, &source, &error), &error);
    struct eng_result result = run(fx, eng_selectr_source_get(source), pass_tokens);
    assert_int_equal(result.matched_tokens, PREFIX);
    eng_selectr_source_close(source);
    return result;
}

static void all_rows_give_the_logits_of_computing(void **state)
{
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        struct fixture fx;
        fixture_init(&fx, llama != 0);
        uint64_t bytes = eng_model_config(fx.model)->vocab * sizeof(float);
        struct eng_select_rule rule = eng_select_rule_default(1);
        struct eng_result computed = run(&fx, NULL, 0);
        for (uint64_t pass_tokens = 0; pass_tokens < 12; pass_tokens += 6) {
            struct eng_result chosen = run_rule(&fx, &rule, pass_tokens);
            assert_memory_equal(chosen.logits, computed.logits, bytes);
            eng_result_done(&chosen);
        }
        rule.retain_ppm = 100000;
        struct eng_result few = run_rule(&fx, &rule, 0);
        assert_memory_not_equal(few.logits, computed.logits, bytes);
        eng_result_done(&few);
        eng_result_done(&computed);
        fixture_done(&fx);
    }
}

/* Continuations read together are what each gives behind the prompt, and leave no trace. Tokens
 * that were decoded behind it do not matter once they are forgotten. */
static void branches_of_a_request_are_its_continuations(void **state)
{
    static const uint64_t lengths[3] = {3, 1, 4};
    struct fixture fx;
    struct eng_error error;
    struct eng_branch branches[3];
    (void)state;
    fixture_init(&fx, true);
    uint64_t vocab = eng_model_config(fx.model)->vocab;
    float *logits = calloc(8 * vocab, sizeof(*logits));
    float *all = calloc(PREFIX * vocab, sizeof(*all));
    assert_true(logits != NULL && all != NULL);
    struct eng_request request = {.prefix = fx.tokens, .prefix_count = 100, .max_new = 4};
    struct eng_result result;
    must(eng_run(fx.runner, &request, NULL, &result, &error), &error);
    assert_int_equal(eng_runner_kv(fx.runner)->rows[0], 100 + result.token_count - 1);
    eng_run_forget(fx.runner, result.token_count - 1);
    request.max_new = 1;
    eng_result_done(&result);
    uint64_t at = 0;
    for (int i = 0; i < 3; at += lengths[i], i++)
        branches[i] = (struct eng_branch){fx.tokens + 100 + at, lengths[i], logits + at * vocab};
    must(eng_run_branches(fx.runner, branches, 3, 100, &error), &error);
    assert_int_equal(eng_runner_kv(fx.runner)->rows[0], 100);
    must(eng_run_branches(fx.runner, branches, 0, 100, &error), &error);
    for (int i = 0; i < 3; i++) {
        request.query = branches[i].tokens;
        request.query_count = branches[i].count;
        request.all_logits = all;
        request.query_logits = NULL;
        must(eng_run(fx.runner, &request, NULL, &result, &error), &error);
        assert_memory_equal(branches[i].logits, all + 100 * vocab,
                            branches[i].count * vocab * sizeof(float));
        eng_result_done(&result);
    }
    request.all_logits = NULL;
    request.query_logits = all; /* the prefix is to be there, and is not */
    assert_int_equal(eng_run(fx.runner, &request, NULL, &result, &error), ENG_E_INVALID);
    must(eng_run_hold(fx.runner, fx.tokens, 100, 0, &error), &error);
    request.resident = true;
    must(eng_run(fx.runner, &request, NULL, &result, &error), &error);
    assert_memory_equal(branches[2].logits, all, lengths[2] * vocab * sizeof(float));
    assert_memory_equal(result.logits, all + (lengths[2] - 1) * vocab, vocab * sizeof(float));
    eng_result_done(&result);
    free(logits);
    free(all);
    fixture_done(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_are_taken_lower_positions_first),
        cmocka_unit_test(k_is_rounded_up_and_never_none),
        cmocka_unit_test(similarity_is_as_in_the_paper),
        cmocka_unit_test(importance_is_a_column_sum_of_softmaxes),
        cmocka_unit_test(probes_vote_or_each_head_has_its_own),
        cmocka_unit_test(threshold_and_mass_are_as_written),
        cmocka_unit_test(all_rows_give_the_logits_of_computing),
        cmocka_unit_test(branches_of_a_request_are_its_continuations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
