/* test_engine: the reference engine with a connector and alone; all bits of the results are equal.
 *
 *   alone      prefix + query computed                        -> logits, tokens, K and V
 *   first run  a process of its own: computed, prefix stored
 *   then       a new process image of the connector: prefix loaded, query computed
 *
 * Also bidirectionally, with any number of tokens per step. Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/engine/cli/driver.h"
#include "conformance/engine/cli/engine_run.h"

#define PREFIX   70u
#define QUERY    20u
#define MAX_NEW  6u
#define CAPACITY (PREFIX + QUERY + MAX_NEW + 64)

static const char *const OPT_MODELS[] = {"opt-gelu-new-fp16", "opt-postln-proj-fp32", NULL};
static const char *const LLAMA_MODELS[] = {"llama-gqa-bias-fp32", "llama-gqa-rope3-sharded-fp16",
                                           NULL};

struct engine {
    struct fixture *fx;
    char model_dir[4096];
    enum eng_dtype dtype;
    struct eng_model *model;
    struct eng_runner *runner;
    struct eng_error error;
    uint32_t tokens[PREFIX + QUERY];
};

static void must(struct engine *engine, eng_status status)
{
    if (status != ENG_OK)
        fail_msg("engine: %s", engine->error.text);
}

static void engine_open(struct engine *engine, struct fixture *fx, const char *model_dir,
                        enum eng_dtype dtype)
{
    engine->fx = fx;
    engine->dtype = dtype;
    (void)snprintf(engine->model_dir, sizeof(engine->model_dir), "%s", model_dir);
    must(engine, eng_model_open(model_dir, 1, &engine->model, &engine->error));
    must(engine, eng_runner_open(engine->model, dtype, CAPACITY, &engine->runner, &engine->error));
    uint64_t vocab = eng_model_config(engine->model)->vocab;
    for (uint64_t i = 0; i < PREFIX + QUERY; i++)
        engine->tokens[i] = (uint32_t)((i * 37 + i * i * 11 + 5) % (vocab - 4) + 4);
}

static void engine_close(struct engine *engine)
{
    eng_runner_close(engine->runner);
    eng_model_close(engine->model);
}

/* fill_tokens 0: layer by layer, else from both ends. */
static struct eng_driver *driver_open_as(struct engine *engine, uint64_t fill_tokens)
{
    char config[8192];
    struct eng_driver *driver = NULL;
    fixture_config(engine->fx, config, sizeof(config));
    struct eng_driver_params params = {.connector = conf_options.so,
                                       .config = config,
                                       .model_dir = engine->model_dir,
                                       .model = engine->model,
                                       .kv_dtype = engine->dtype,
                                       .fill = fill_tokens > 0 ? ENG_LOAD_POLICY_ENDS
                                                               : ENG_LOAD_POLICY_LOAD,
                                       .fill_tokens = fill_tokens,
                                       .store = true};
    must(engine, eng_driver_open(&params, &driver, &engine->error));
    return driver;
}

static struct eng_driver *driver_open(struct engine *engine)
{
    return driver_open_as(engine, 0);
}

static struct eng_result run(struct engine *engine, const struct eng_source *source,
                             const uint32_t *tokens, uint64_t prefix_count)
{
    struct eng_request request = {.prefix = tokens,
                                  .query = tokens + prefix_count,
                                  .prefix_count = prefix_count,
                                  .query_count = PREFIX + QUERY - prefix_count,
                                  .max_new = MAX_NEW,
                                  .pass_tokens = 33};
    const struct eng_kv *kv = eng_runner_kv(engine->runner);
    struct eng_result result;
    memset(kv->base, 0xa5,
           kv->base_bytes); /* rows of an earlier run are not taken for this one's */
    must(engine, eng_run(engine->runner, &request, source, &result, &engine->error));
    return result;
}

/* What a run left: its logits, tokens and cache, to be compared with another's. */
struct trace {
    struct eng_result result;
    uint8_t *cache;
    uint64_t cache_bytes;
};

static struct trace trace_source(struct engine *engine, const struct eng_source *source,
                                 const uint32_t *tokens, uint64_t prefix_count)
{
    struct trace trace = {.result = run(engine, source, tokens, prefix_count)};
    const struct eng_kv *kv = eng_runner_kv(engine->runner);
    uint64_t bytes = (PREFIX + QUERY) * kv->row_bytes;
    trace.cache_bytes = 2 * kv->layers * bytes;
    trace.cache = malloc(trace.cache_bytes);
    assert_non_null(trace.cache);
    for (uint64_t layer = 0; layer < kv->layers; layer++) {
        assert_true(kv->rows[layer] >= PREFIX + QUERY);
        memcpy(trace.cache + 2 * layer * bytes, eng_kv_k(kv, layer, 0), bytes);
        memcpy(trace.cache + (2 * layer + 1) * bytes, eng_kv_v(kv, layer, 0), bytes);
    }
    return trace;
}

static struct trace trace_run(struct engine *engine, const struct eng_driver *driver,
                              const uint32_t *tokens, uint64_t prefix_count)
{
    return trace_source(engine, driver == NULL ? NULL : eng_driver_source(driver), tokens,
                        prefix_count);
}

static void trace_free(struct trace *trace)
{
    eng_result_done(&trace->result);
    free(trace->cache);
}

static void expect_same(struct engine *engine, const struct trace *have, const struct trace *want)
{
    uint64_t vocab = eng_model_config(engine->model)->vocab;
    assert_memory_equal(have->result.logits, want->result.logits, vocab * sizeof(float));
    assert_int_equal(have->result.token_count, want->result.token_count);
    assert_memory_equal(have->result.tokens, want->result.tokens,
                        want->result.token_count * sizeof(uint32_t));
    assert_memory_equal(have->cache, want->cache, want->cache_bytes);
}

static void count_match(const struct trace *trace, uint64_t expected)
{
    struct spec_lookup_result found = {.state = trace->result.matched_tokens > 0 ? SPEC_LOOKUP_HIT
                                                                                 : SPEC_LOOKUP_MISS,
                                       .matched_tokens = trace->result.matched_tokens};
    expect_match(&found, expected);
    assert_int_equal(trace->result.restarts, 0);
}

/* ---- A fresh process ---- */

static void first_run(void *user)
{
    struct engine *engine = user;
    struct eng_driver *driver = driver_open(engine);
    struct eng_result result = run(engine, eng_driver_source(driver), engine->tokens, PREFIX);
    if (eng_driver_store_problem(driver) != NULL)
        fprintf(stderr, "engine: %s\n", eng_driver_store_problem(driver));
    eng_result_done(&result);
    eng_driver_close(driver);
}

static void check_model(struct fixture *fx, const char *model_dir)
{
    static const enum eng_dtype DTYPES[] = {ENG_F32, ENG_F16, ENG_BF16};
    for (size_t i = 0; i < 3; i++) {
        struct engine engine = {0};
        engine_open(&engine, fx, model_dir, DTYPES[i]);
        struct trace alone = trace_run(&engine, NULL, engine.tokens, PREFIX);
        int status = fixture_in_child(first_run, &engine);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        struct eng_driver *driver = driver_open(&engine);
        struct trace reused = trace_run(&engine, driver, engine.tokens, PREFIX);
        count_match(&reused, PREFIX);
        expect_same(&engine, &reused, &alone);
        trace_free(&reused);
        reused = trace_run(&engine, driver, engine.tokens, PREFIX); /* and once more */
        expect_same(&engine, &reused, &alone);
        trace_free(&reused);
        trace_free(&alone);
        eng_driver_close(driver);
        engine_close(&engine);
    }
}

static void check_models(struct fixture *fx, const char *const *names)
{
    if (conf_options.model_dir != NULL) {
        check_model(fx, conf_options.model_dir);
        return;
    }
    for (; *names != NULL; names++) {
        char dir[4096];
        (void)snprintf(dir, sizeof(dir), "%s/tests/data/golden/%s", SC_SOURCE_DIR, *names);
        if (access(dir, R_OK) != 0)
            conf_skip("the tree's models are absent");
        check_model(fx, dir);
    }
}

static void abi_051_opt_in_a_fresh_process_has_the_same_bits(void **state)
{
    check_models(*state, OPT_MODELS);
}

static void abi_051_llama_in_a_fresh_process_has_the_same_bits(void **state)
{
    check_models(*state, LLAMA_MODELS);
}

/* ---- Divergence at every offset of a chunk ---- */

static void check_divergence(struct fixture *fx, const char *name, enum eng_dtype dtype)
{
    struct engine engine = {0};
    char dir[4096];
    (void)snprintf(dir, sizeof(dir), "%s/tests/data/golden/%s", SC_SOURCE_DIR, name);
    if (access(dir, R_OK) != 0)
        conf_skip("the tree's models are absent");
    engine_open(&engine, fx, dir, dtype);
    struct eng_driver *driver = driver_open(&engine);
    struct trace first = trace_run(&engine, driver, engine.tokens, PREFIX);
    bool stored = eng_driver_store_problem(driver) == NULL;
    trace_free(&first);
    for (uint64_t at = 1; at <= 64; at++) {
        uint32_t tokens[PREFIX + QUERY];
        memcpy(tokens, engine.tokens, sizeof(tokens));
        tokens[at] ^= 1;
        struct trace alone = trace_run(&engine, NULL, tokens, at);
        struct trace reused = trace_run(&engine, driver, tokens, at); /* stores nothing new */
        count_match(&reused, stored ? at : 0);
        expect_same(&engine, &reused, &alone);
        trace_free(&alone);
        trace_free(&reused);
    }
    eng_driver_close(driver);
    engine_close(&engine);
}

static void abi_020_opt_that_parts_at_any_offset_has_the_same_bits(void **state)
{
    check_divergence(*state, OPT_MODELS[0], ENG_F16);
}

static void abi_020_llama_that_parts_at_any_offset_has_the_same_bits(void **state)
{
    check_divergence(*state, LLAMA_MODELS[0], ENG_F32);
}

/* ---- Both ends ---- */

/* A driver's source that leaves the loading side a moment after the first range, so that it has
 * something to do; nothing is asked of how far it comes. */
struct slow {
    struct eng_source source;
    const struct eng_source *inner;
    bool is_first;
};

static eng_status slow_begin(void *user, const struct eng_request *request, const uint32_t *tokens,
                             uint64_t token_count, struct eng_result *result, uint64_t *ret_matched,
                             struct eng_error *reterr)
{
    struct slow *slow = user;
    slow->is_first = true;
    return slow->inner->begin(slow->inner->user, request, tokens, token_count, result, ret_matched,
                              reterr);
}

static eng_status slow_front(void *user, struct eng_kv *kv, uint64_t *ret_count,
                             struct eng_error *reterr)
{
    uint32_t tries = 0;
    struct slow *slow = user;
    if (!slow->is_first)
        (void)conf_wait(&tries);
    slow->is_first = false;
    return slow->inner->front(slow->inner->user, kv, ret_count, reterr);
}

static eng_status slow_settle(void *user, struct eng_result *result, struct eng_error *reterr)
{
    const struct slow *slow = user;
    return slow->inner->settle(slow->inner->user, result, reterr);
}

static const struct eng_source *slow_make(struct slow *slow, const struct eng_source *inner)
{
    *slow = (struct slow){.source = *inner, .inner = inner};
    slow->source.user = slow;
    slow->source.begin = slow_begin;
    slow->source.front = slow_front;
    slow->source.settle = slow_settle;
    return &slow->source;
}

static void check_ends(struct fixture *fx, const char *name)
{
    static const enum eng_dtype DTYPES[] = {ENG_F32, ENG_F16, ENG_BF16};
    static const uint64_t TOKENS[] = {1, 17, 64, 512};
    char dir[4096];
    (void)snprintf(dir, sizeof(dir), "%s/tests/data/golden/%s", SC_SOURCE_DIR, name);
    if (access(dir, R_OK) != 0)
        conf_skip("the tree's models are absent");
    for (size_t i = 0; i < 3; i++) {
        struct engine engine = {0};
        engine_open(&engine, fx, dir, DTYPES[i]);
        struct trace alone = trace_run(&engine, NULL, engine.tokens, PREFIX);
        struct eng_driver *driver = driver_open(&engine);
        struct trace first = trace_run(&engine, driver, engine.tokens, PREFIX);
        bool stored = eng_driver_store_problem(driver) == NULL;
        trace_free(&first);
        eng_driver_close(driver);
        for (size_t t = 0; t < 4; t++) {
            driver = driver_open_as(&engine, TOKENS[t]);
            for (int again = 0; again < 2; again++) {
                struct slow slow;
                const struct eng_source *source = eng_driver_source(driver);
                if (again > 0)
                    source = slow_make(&slow, source);
                struct trace met = trace_source(&engine, source, engine.tokens, PREFIX);
                count_match(&met, stored ? PREFIX : 0);
                assert_int_equal(met.result.front_tokens + met.result.tail_tokens,
                                 met.result.matched_tokens);
                expect_same(&engine, &met, &alone);
                trace_free(&met);
            }
            eng_driver_close(driver);
        }
        trace_free(&alone);
        engine_close(&engine);
    }
}

static void abi_132_opt_from_both_ends_has_the_same_bits(void **state)
{
    check_ends(*state, OPT_MODELS[0]);
}

static void abi_132_llama_from_both_ends_has_the_same_bits(void **state)
{
    check_ends(*state, LLAMA_MODELS[0]);
}

const struct conf_test CONF_ENGINE[] = {
    BARE(abi_051_opt_in_a_fresh_process_has_the_same_bits),
    BARE(abi_051_llama_in_a_fresh_process_has_the_same_bits),
    BARE(abi_020_opt_that_parts_at_any_offset_has_the_same_bits),
    BARE(abi_020_llama_that_parts_at_any_offset_has_the_same_bits),
    BARE(abi_132_opt_from_both_ends_has_the_same_bits),
    BARE(abi_132_llama_from_both_ends_has_the_same_bits),
    END,
};
