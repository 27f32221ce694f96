/* spec-engine: its command line, its inputs, its runner, and the program itself by exit status and
 * output files.
 *
 * Holds: programs run with their own folder of temporary files; nothing here looks at times.
 * Threads: one; models use two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/cli/input.h"
#include "conformance/engine/cli/options.h"
#include "conformance/engine/cli/select_text.h"
#include "conformance/engine/json.h"
#include "tests/unit/engine/make_model.h"

#define WORDS_MAX 24
#define RECALL    SC_SOURCE_DIR "/models/opt-recall"

/* Splits at spaces (into memory that lasts until the next call) and parses. */
static eng_status parse(const char *line, struct eng_options *options, struct eng_error *error)
{
    static char copy[512];
    static char *words[WORDS_MAX];
    int count = 0;
    (void)snprintf(copy, sizeof(copy), "spec-engine %s", line);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(count < WORDS_MAX - 1);
        words[count++] = word;
    }
    words[count] = NULL;
    return eng_options_parse(count, words, options, error);
}

static void takes_several_queries_behind_one_option(void **state)
{
    (void)state;
    struct eng_options options;
    struct eng_error error = {0};
    assert_int_equal(parse("--model m --prefix p --query a b --kv-dtype bf16 --query-ids 1,2 3 "
                           "--max-new 5 --threads 2",
                           &options, &error),
                     ENG_OK);
    assert_int_equal(options.query_count, 4);
    assert_string_equal(options.queries[1].argument, "b");
    assert_false(options.queries[1].ids);
    assert_string_equal(options.queries[3].argument, "3");
    assert_true(options.queries[3].ids);
    assert_int_equal(options.kv_dtype, ENG_BF16);
    assert_int_equal(options.max_new, 5);
    assert_int_equal(options.threads, 2);
    eng_options_done(&options);
    assert_int_equal(parse("--model m --tokenize", &options, &error), ENG_OK);
    assert_true(options.tokenize);
    eng_options_done(&options);
    assert_int_equal(parse("--model m --connector s --config {} --rho .25 --prefix p --trace t",
                           &options, &error),
                     ENG_OK);
    assert_true(options.rho == .25);
    eng_options_done(&options);
    assert_int_equal(parse("--model m --connector s --config {} --select {} --hint both "
                           "--probe-heads 2 --queries probe --prefix p",
                           &options, &error),
                     ENG_OK);
    assert_string_equal(options.select, "{}");
    assert_int_equal(options.hint, ENG_HINT_BOTH);
    assert_int_equal(options.probe_heads, 2);
    assert_true(options.probe_queries);
    eng_options_done(&options);
    assert_int_equal(
        parse("--model m --connector s --config {} --prefix p --load-policy bidirectional "
              "--bidirectional-tokens 17 --bidirectional-deadline-us 300",
              &options, &error),
        ENG_OK);
    assert_int_equal(options.fill, ENG_LOAD_POLICY_ENDS);
    assert_int_equal(options.fill_tokens, 17);
    assert_int_equal(options.fill_deadline_us, 300);
    eng_options_done(&options);
}

static void refuses_wrong_command_lines(void **state)
{
    static const struct {
        const char *line, *fragment;
    } cases[] = {
        {"", "--model DIR is missing"},
        {"--model m", "give --prefix or --query"},
        {"--model", "value is missing"},
        {"--frob", "--frob: not an option"},
        {"--model m extra --prefix p", "extra: expected an option"},
        {"--model m --prefix p q", "q: expected an option"},
        {"--model m --prefix p --prefix-ids 1", "more than one prefix"},
        {"--model m --prefix p --prefix-text t", "more than one prefix"},
        {"--model m --prefix p --kv-dtype f64", "f32, f16 or bf16"},
        {"--model m --prefix p --threads 0", "--threads is 0"},
        {"--model m --prefix p --threads 2x", "--threads is 2x"},
        {"--model m --prefix p --threads -1", "--threads is -1"},
        {"--model m --prefix p --max-new 0", "--max-new is 0"},
        {"--model m --prefix p --max-new 99999999999999999999", "--max-new"},
        {"--model m --prefix p --bos maybe", "auto, on or off"},
        {"--model m --prefix p --rho .5", "--rho belongs to --connector"},
        {"--model m --prefix p --connector s --config c --rho 0", "--rho is 0"},
        {"--model m --prefix p --connector s --config c --rho nan", "--rho is nan"},
        {"--model m --prefix p --connector s --config c --rho 1.5", "--rho is 1.5"},
        {"--model m --prefix p --connector s --config c --rho .5 --select {}", "give one"},
        {"--model m --prefix p --hint before", "belong to --connector"},
        {"--model m --prefix p --ahead", "belongs to --connector"},
        {"--model m --prefix p --connector c --config {} --ahead --hint before", "give one"},
        {"--model m --prefix p --load-policy bidirectional", "belongs to --connector"},
        {"--model m --prefix p --connector c --config {} --load-policy both",
         "load or bidirectional"},
        {"--model m --prefix p --connector c --config {} --load-policy bidirectional --rho .5",
         "whole rows"},
        {"--model m --prefix p --connector c --config {} --load-policy bidirectional --ahead",
         "whole rows"},
        {"--model m --prefix p --connector c --config {} --load-policy bidirectional --hint both",
         "whole rows"},
        {"--model m --prefix p --connector c --config {} --load-policy bidirectional "
         "--bidirectional-tokens "
         "0",
         "--bidirectional-tokens is 0"},
        {"--model m --prefix p --connector c --config {} --bidirectional-tokens 5",
         "belong to --load-policy bidirectional"},
        {"--model m --prefix p --connector c --config {} --load-policy load "
         "--bidirectional-deadline-us 5",
         "belong to --load-policy bidirectional"},
        {"--model m --prefix p --connector s --config c --hint soon", "none, before, after"},
        {"--model m --prefix p --connector s --config c --queries some", "all or probe"},
        {"--model m --prefix p --connector s", "needs --config"},
        {"--model m --prefix p --config c", "belongs to --connector"},
        {"--model m --prefix p --trace t", "--trace belongs to --connector"},
        {"--model m --prefix p --all", "--logits FILE"},
        {"--model m --prefix p --all --logits f --connector s --config c", "not with --connector"},
        {"--model m --prefix p --resident", "needs a prefix and a query"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct eng_options options;
        struct eng_error error = {0};
        assert_int_equal(parse(cases[i].line, &options, &error), ENG_E_INVALID);
        if (strstr(error.text, cases[i].fragment) == NULL)
            fail_msg("%s: \"%s\" is not in: %s", cases[i].line, cases[i].fragment, error.text);
        eng_options_done(&options);
    }
}

static void reads_selections(void **state)
{
    struct spec_select select = {0};
    struct eng_error error = {0};
    (void)state;
    assert_int_equal(eng_select_parse("{}", &select, &error), ENG_OK);
    assert_int_equal(select.struct_size, sizeof(select));
    assert_int_equal(select.given, 0);
    assert_int_equal(
        eng_select_parse("{\"budget\": \"mass\", \"mass_ppm\": 900000}", &select, &error), ENG_OK);
    assert_int_equal(select.given, SPEC_SELECT_BUDGET);
    assert_int_equal(select.budget, SPEC_BUDGET_MASS);
    assert_int_equal(select.mass_ppm, 900000);
    assert_int_equal(select.retain_ppm, 1000000);
    assert_int_equal(
        eng_select_parse("{\"metric\": \"random\", \"keep_last\": 4}", &select, &error), ENG_OK);
    assert_int_equal(select.given, SPEC_SELECT_METRIC | SPEC_SELECT_KEEP);
    assert_int_equal(select.metric, SPEC_METRIC_RANDOM);
    assert_int_equal(select.keep_last, 4);
    assert_int_equal(eng_select_ratio(.25).retain_ppm, 250000);
    assert_int_equal(eng_select_ratio(1e-9).retain_ppm, 1);
    assert_int_equal(eng_select_ratio(1).given, SPEC_SELECT_BUDGET);
    static const char *const wrong[] = {"",
                                        "[]",
                                        "{\"budget\": \"all\"}",
                                        "{\"retain\": 1}",
                                        "{\"retain_ppm\": 1000001}",
                                        "{\"metric\": 3}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_not_equal(eng_select_parse(wrong[i], &select, &error), ENG_OK);
        assert_non_null(strstr(error.text, "--select"));
    }
}

static void reads_lists_of_ids(void **state)
{
    (void)state;
    struct eng_ids ids = {0};
    struct eng_error error = {0};
    struct eng_source_text source = {.argument = "2,5, 4294967295\n7", .ids = true};
    assert_int_equal(eng_ids_read(&source, NULL, &ids, &error), ENG_OK);
    assert_int_equal(ids.count, 4);
    assert_int_equal(ids.ids[2], UINT32_MAX);
    assert_int_equal(ids.ids[3], 7);
    assert_int_equal(eng_ids_put_first(&ids, 9, &error), ENG_OK);
    assert_int_equal(ids.count, 5);
    assert_int_equal(ids.ids[0], 9);
    assert_int_equal(ids.ids[4], 7);
    eng_ids_done(&ids);
    source.argument = "lists/five.ids";
    assert_int_equal(eng_ids_read(&source, NULL, &ids, &error), ENG_E_INPUT);
    assert_non_null(strstr(error.text, "lists/five.ids: no such file"));
    static const char *const wrong[] = {"1,x", "-1", "4294967296", "1.5"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        source.argument = wrong[i];
        assert_int_equal(eng_ids_read(&source, NULL, &ids, &error), ENG_E_INPUT);
        assert_non_null(strstr(error.text, wrong[i]));
        assert_null(ids.ids);
    }
}

/* ---- the runner ---------------------------------------------------------------------------- */

#define PREFIX_TOKENS 70u
#define QUERY_TOKENS  9u

struct world {
    char folder[64];
    struct eng_model *model;
    struct eng_runner *runner;
    uint32_t prefix[PREFIX_TOKENS], query[QUERY_TOKENS];
    struct eng_request request;
    struct eng_result expected;
};

static void world_open(struct world *world)
{
    struct eng_error error = {0};
    struct recipe recipe = recipe_llama();
    (void)snprintf(world->folder, sizeof(world->folder), "/tmp/eng_cli_XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    make_model(world->folder, &recipe);
    assert_int_equal(eng_model_open(world->folder, 2, &world->model, &error), ENG_OK);
    assert_int_equal(eng_runner_open(world->model, ENG_F16, 100, &world->runner, &error), ENG_OK);
    for (uint32_t i = 0; i < PREFIX_TOKENS; i++)
        world->prefix[i] = (i * 37 + 5) % recipe.vocab;
    for (uint32_t i = 0; i < QUERY_TOKENS; i++)
        world->query[i] = (i * 11 + 3) % recipe.vocab;
    world->request = (struct eng_request){.prefix = world->prefix,
                                          .query = world->query,
                                          .prefix_count = PREFIX_TOKENS,
                                          .query_count = QUERY_TOKENS,
                                          .max_new = 8};
    assert_int_equal(eng_run(world->runner, &world->request, NULL, &world->expected, &error),
                     ENG_OK);
    assert_int_equal(world->expected.matched_tokens, 0);
    assert_int_equal(world->expected.new_tokens, PREFIX_TOKENS + QUERY_TOKENS);
}

static void world_close(struct world *world)
{
    eng_result_done(&world->expected);
    eng_runner_close(world->runner);
    eng_model_close(world->model);
    remove_model(world->folder);
}

static void assert_same_answer(const struct world *world, const struct eng_result *result)
{
    const struct eng_result *expected = &world->expected;
    uint64_t vocab = eng_model_config(world->model)->vocab;
    assert_memory_equal(result->logits, expected->logits, vocab * sizeof(float));
    assert_int_equal(result->token_count, expected->token_count);
    assert_memory_equal(result->tokens, expected->tokens, expected->token_count * sizeof(uint32_t));
    assert_true(result->ended == expected->ended);
}

/* A slip in a file's name is an error; which words are texts is said by the option. */
static void a_file_that_is_not_there_is_no_prompt(void **state)
{
    (void)state;
    static const char *const lacking[] = {"notes.txt", "a/b",          "/no/file",  "./x",
                                          "../x",      "README.mdx/y", "log.jsonl", "five.ids"};
    static const char *const texts[] = {
        "hello", "? June", "and/or what else", "see notes.txt", "e.g.", ".txt", ""};
    struct eng_tokenizer *tokenizer = NULL;
    struct eng_error error = {0};
    struct eng_ids ids = {0};
    assert_int_equal(eng_tokenizer_open(RECALL, &tokenizer, &error), ENG_OK);
    for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
        struct eng_source_text source = {.argument = lacking[i]};
        assert_int_equal(eng_ids_read(&source, tokenizer, &ids, &error), ENG_E_INPUT);
        assert_non_null(strstr(error.text, lacking[i]));
        assert_non_null(strstr(error.text, "--query-text"));
        source.form = ENG_FORM_TEXT;
        assert_int_equal(eng_ids_read(&source, tokenizer, &ids, &error), ENG_OK);
        assert_true(ids.count > 0);
        eng_ids_done(&ids);
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct eng_source_text source = {.argument = texts[i]};
        assert_int_equal(eng_ids_read(&source, tokenizer, &ids, &error), ENG_OK);
        eng_ids_done(&ids);
        source.form = ENG_FORM_FILE;
        assert_int_equal(eng_ids_read(&source, tokenizer, &ids, &error), ENG_E_INPUT);
        assert_non_null(strstr(error.text, "no such file"));
        assert_non_null(strstr(error.text, "--prefix-text"));
    }
    struct eng_source_text directory = {.argument = SC_SOURCE_DIR, .form = ENG_FORM_FILE};
    assert_int_equal(eng_ids_read(&directory, tokenizer, &ids, &error), ENG_E_INPUT);
    assert_non_null(strstr(error.text, "no regular file"));
    eng_tokenizer_close(tokenizer);
}

static void passes_and_a_resident_prefix_change_no_bit(void **state)
{
    (void)state;
    struct world world;
    struct eng_result result;
    struct eng_error error = {0};
    uint64_t vocab = 0;
    world_open(&world);
    vocab = eng_model_config(world.model)->vocab;
    float *all = calloc((PREFIX_TOKENS + QUERY_TOKENS) * vocab, sizeof(float));
    assert_non_null(all);
    world.request.pass_tokens = 7;
    world.request.all_logits = all;
    assert_int_equal(eng_run(world.runner, &world.request, NULL, &result, &error), ENG_OK);
    assert_same_answer(&world, &result);
    assert_memory_equal(all + (PREFIX_TOKENS + QUERY_TOKENS - 1) * vocab, result.logits,
                        vocab * sizeof(float));
    eng_result_done(&result);
    free(all);
    world.request.all_logits = NULL;
    world.request.resident = true;
    assert_int_equal(eng_run(world.runner, &world.request, NULL, &result, &error),
                     ENG_E_INVALID); /* nothing is held yet */
    assert_int_equal(eng_run_hold(world.runner, world.prefix, PREFIX_TOKENS, 0, &error), ENG_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(eng_run(world.runner, &world.request, NULL, &result, &error), ENG_OK);
        assert_int_equal(result.matched_tokens, PREFIX_TOKENS);
        assert_int_equal(result.new_tokens, QUERY_TOKENS);
        assert_same_answer(&world, &result);
        eng_result_done(&result);
    }
    world_close(&world);
}

/* A source that holds the prefix in memory, and loses a layer `losses` times. */
struct memory_source {
    struct eng_kv stored;
    uint64_t matched, losses, begins, settles;
    uint64_t fronts, front_total; /* of memory_front */
};

static eng_status memory_begin(void *user, const struct eng_request *request,
                               const uint32_t *tokens, uint64_t token_count,
                               struct eng_result *result, uint64_t *ret_matched,
                               struct eng_error *reterr)
{
    struct memory_source *source = user;
    (void)reterr;
    assert_int_equal(token_count, request->prefix_count + request->query_count);
    assert_int_equal(tokens[0], request->prefix[0]);
    source->begins++;
    result->lookup_ns += 1;
    *ret_matched = source->matched;
    return ENG_OK;
}

static eng_status memory_before_attention(void *user, const struct eng_attention_view *view,
                                          struct eng_error *reterr)
{
    struct memory_source *source = user;
    struct eng_kv *kv = view->pass->kv;
    uint64_t layer = view->layer;
    if (kv->rows[layer] != 0)
        return ENG_OK; /* a later pass, or decoding */
    if (layer == 1 && source->losses != 0) {
        source->losses--;
        source->matched -= 20; /* what was lost is not promised again */
        return eng_fail(reterr, ENG_E_RESTART, "rows are lost");
    }
    memcpy(eng_kv_k(kv, layer, 0), eng_kv_k(&source->stored, layer, 0),
           source->matched * kv->row_bytes);
    memcpy(eng_kv_v(kv, layer, 0), eng_kv_v(&source->stored, layer, 0),
           source->matched * kv->row_bytes);
    kv->rows[layer] = source->matched;
    return ENG_OK;
}

static eng_status memory_settle(void *user, struct eng_result *result, struct eng_error *reterr)
{
    struct memory_source *source = user;
    (void)reterr;
    source->settles++;
    result->bytes_read = 42;
    return ENG_OK;
}

static void a_source_supplies_the_prefix_and_may_lose_it(void **state)
{
    (void)state;
    struct world world;
    struct eng_error error = {0};
    world_open(&world);
    struct memory_source memory = {0};
    assert_int_equal(
        eng_kv_init(&memory.stored, eng_model_config(world.model), ENG_F16, 100, &error), ENG_OK);
    eng_kv_copy(&memory.stored, eng_runner_kv(world.runner), PREFIX_TOKENS);
    const struct eng_source source = {
        .user = &memory,
        .hooks = {.user = &memory, .before_attention = memory_before_attention},
        .begin = memory_begin,
        .settle = memory_settle};
    for (uint64_t losses = 0; losses <= 2; losses++) {
        struct eng_result result;
        memory.matched = PREFIX_TOKENS;
        memory.losses = losses;
        memory.begins = memory.settles = 0;
        assert_int_equal(eng_run(world.runner, &world.request, &source, &result, &error), ENG_OK);
        assert_int_equal(memory.begins, losses + 1);
        assert_int_equal(memory.settles, 1);
        assert_int_equal(result.restarts, losses);
        assert_int_equal(result.matched_tokens, PREFIX_TOKENS - 20 * losses);
        assert_int_equal(result.bytes_read, 42);
        assert_int_equal(result.lookup_ns, losses + 1);
        assert_same_answer(&world, &result);
        eng_result_done(&result);
    }
    struct eng_result result;
    memory.matched = PREFIX_TOKENS + QUERY_TOKENS; /* nothing would be left to compute */
    assert_int_equal(eng_run(world.runner, &world.request, &source, &result, &error),
                     ENG_E_INVALID);
    eng_kv_done(&memory.stored);
    world_close(&world);
}

/* Gives 20 tokens, then as many as make front_total, then the rest of the match itself. */
static eng_status memory_front(void *user, struct eng_kv *kv, uint64_t *ret_count,
                               struct eng_error *reterr)
{
    struct memory_source *source = user;
    const uint64_t counts[] = {20, source->front_total - 20, 0};
    (void)reterr;
    *ret_count = counts[source->fronts++];
    if (*ret_count > 0)
        return ENG_OK;
    for (uint64_t layer = 0; layer < kv->layers; layer++) {
        uint64_t row = source->front_total, rows = source->matched - row;
        assert_int_equal(kv->rows[layer], row);
        memcpy(eng_kv_k(kv, layer, row), eng_kv_k(&source->stored, layer, row),
               rows * kv->row_bytes);
        memcpy(eng_kv_v(kv, layer, row), eng_kv_v(&source->stored, layer, row),
               rows * kv->row_bytes);
        eng_kv_set_prefix(kv, layer, source->matched, source->matched);
    }
    return ENG_OK;
}

static eng_status none_of_the_match(void *user, uint64_t layer, uint64_t pass_index,
                                    const struct eng_pass *pass, struct eng_error *reterr)
{
    const struct memory_source *source = user;
    (void)layer;
    (void)pass_index;
    (void)reterr;
    assert_true(pass->first_position >= source->matched);
    return ENG_OK;
}

static void a_source_has_the_front_of_its_match_computed(void **state)
{
    static const uint64_t totals[] = {21, 50, PREFIX_TOKENS};
    (void)state;
    struct world world;
    struct eng_result result;
    struct eng_error error = {0};
    world_open(&world);
    struct memory_source memory = {.matched = PREFIX_TOKENS};
    assert_int_equal(
        eng_kv_init(&memory.stored, eng_model_config(world.model), ENG_F16, 100, &error), ENG_OK);
    eng_kv_copy(&memory.stored, eng_runner_kv(world.runner), PREFIX_TOKENS);
    const struct eng_source source = {.user = &memory,
                                      .hooks = {.user = &memory, .after_layer = none_of_the_match},
                                      .begin = memory_begin,
                                      .front = memory_front,
                                      .settle = memory_settle};
    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        memory.front_total = totals[i];
        memory.fronts = 0;
        assert_int_equal(eng_run(world.runner, &world.request, &source, &result, &error), ENG_OK);
        assert_int_equal(memory.fronts, 3);
        assert_int_equal(result.matched_tokens, PREFIX_TOKENS);
        assert_int_equal(result.new_tokens, QUERY_TOKENS);
        assert_same_answer(&world, &result);
        eng_result_done(&result);
    }
    memory.front_total = PREFIX_TOKENS + 1; /* more than matched */
    memory.fronts = 0;
    assert_int_equal(eng_run(world.runner, &world.request, &source, &result, &error),
                     ENG_E_INVALID);
    eng_kv_done(&memory.stored);
    world_close(&world);
}

/* ---- the program --------------------------------------------------------------------------- */

#define GOLDEN SC_SOURCE_DIR "/tests/data/golden/opt-gelu-new-fp16"

static char folder[] = "/tmp/eng_program_XXXXXX";

/* Runs spec-engine with the arguments; its standard error goes into `message`. */
static int program(const char *arguments, char *message, size_t message_bytes)
{
    char command[2048];
    (void)snprintf(command, sizeof(command), "cd %s && %s/bin/spec-engine 2>&1 >out </dev/null %s",
                   folder, SC_BINARY_DIR, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t bytes = fread(message, 1, message_bytes - 1, pipe);
    message[bytes] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status)); /* never by a signal */
    return WEXITSTATUS(status);
}

static uint64_t file_read(const char *name, uint8_t *bytes, uint64_t bytes_max)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint64_t count = fread(bytes, 1, bytes_max, file);
    (void)fclose(file);
    return count;
}

static void the_program_writes_logits_and_json(void **state)
{
    (void)state;
    static uint8_t last[2][1 << 16];
    static uint8_t all[1 << 16];
    char message[512];
    const uint64_t row = 512 * sizeof(float);
    const char *common = "--model " GOLDEN " --prefix-ids 5,6,7,8 --query-ids 9,10 11,12";
    char line[512];
    (void)snprintf(line, sizeof(line), "%s --logits last --json json --max-new 3", common);
    assert_int_equal(program(line, message, sizeof(message)), 0);
    assert_string_equal(message, "");
    assert_int_equal(file_read("last", last[0], sizeof(last[0])), 2 * row);
    (void)snprintf(line, sizeof(line), "%s --logits all --all --pass-tokens 1", common);
    assert_int_equal(program(line, message, sizeof(message)), 0);
    assert_int_equal(file_read("all", all, sizeof(all)), 2 * 6 * row);
    assert_memory_equal(all + 5 * row, last[0], row);
    assert_memory_equal(all + 11 * row, last[0] + row, row);
    (void)snprintf(line, sizeof(line), "%s --logits last --resident --threads 1", common);
    assert_int_equal(program(line, message, sizeof(message)), 0);
    assert_int_equal(file_read("last", last[1], sizeof(last[1])), 2 * row);
    assert_memory_equal(last[0], last[1], 2 * row);

    char path[128];
    struct json_object *json = NULL;
    struct eng_error error = {0};
    (void)snprintf(path, sizeof(path), "%s/json", folder);
    assert_int_equal(eng_json_load(path, &json, &error), ENG_OK);
    struct json_object *requests = eng_json_member(json, "requests");
    assert_true(json_object_object_get_ex(json, "connector", NULL));
    assert_int_equal(json_object_array_length(requests), 2);
    static const char *const names[] = {
        "matched_tokens", "new_tokens",   "ttft_ns",    "lookup_ns", "probe_ns",  "io_exposed_ns",
        "compute_ns",     "bytes_wanted", "bytes_read", "io_ops",    "tier_hits", "token"};
    struct json_object *request = json_object_array_get_idx(requests, 1);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_non_null(eng_json_member(request, names[i]));
    assert_true(json_object_object_get_ex(request, "text", NULL));
    assert_int_equal(json_object_get_uint64(eng_json_member(request, "new_tokens")), 6);
    json_object_put(json);
}

static void the_program_tokenizes_json_lines(void **state)
{
    (void)state;
    static uint8_t out[256];
    char message[512], path[128];
    (void)snprintf(path, sizeof(path), "%s/lines", folder);
    FILE *lines = fopen(path, "w");
    assert_non_null(lines);
    (void)fputs("{\"text\": \"A \\ud83d\\ude00\"}\n\n{\"text\": \"\"}\n", lines);
    assert_int_equal(fclose(lines), 0);
    const char *arguments = "--model " SC_SOURCE_DIR "/tests/data/bpe/gpt2 --tokenize <lines";
    assert_int_equal(program(arguments, message, sizeof(message)), 0);
    out[file_read("out", out, sizeof(out) - 1)] = '\0';
    assert_string_equal(out, "{\"ids\":[32,220,172,253,246,222]}\n{\"ids\":[]}\n");
}

/* One line a layer of the passes that took rows from the connector. */
static void the_program_traces_layers_of_a_hit(void **state)
{
    (void)state;
    static uint8_t trace[8192];
    static const char *const names[] = {"request",    "pass",      "layer",    "k",
                                        "similarity", "threshold", "fallback", "positions",
                                        "prefetched", "missing"};
    char message[512];
    const char *arguments = "--model " GOLDEN " --prefix-ids 5,6,7,8 --query-ids 9,10 11,12 "
                            "--connector " SC_BINARY_DIR "/lib/libspec_connector.so "
                            "--config '{\"path\": \"store\", \"load_policy\": \"load\"}' "
                            "--trace trace --max-new 3";
    assert_int_equal(program(arguments, message, sizeof(message)), 0);
    assert_string_equal(message, "");
    trace[file_read("trace", trace, sizeof(trace) - 1)] = '\0';
    uint64_t layer = 0;
    char *rest = NULL;
    for (char *line = strtok_r((char *)trace, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest), layer++) {
        struct json_object *row = NULL;
        assert_int_equal(eng_json_parse("trace", line, strlen(line), &row, NULL), ENG_OK);
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            assert_non_null(eng_json_member(row, names[i]));
        assert_int_equal(json_object_get_uint64(eng_json_member(row, "request")), 1);
        assert_int_equal(json_object_get_uint64(eng_json_member(row, "layer")), layer);
        assert_int_equal(json_object_get_uint64(eng_json_member(row, "k")), 4);
        assert_int_equal(json_object_array_length(eng_json_member(row, "positions")), 4);
        assert_int_equal(json_object_get_uint64(eng_json_member(row, "prefetched")) +
                             json_object_get_uint64(eng_json_member(row, "missing")),
                         4);
        json_object_put(row);
    }
    assert_int_equal(layer, 3); /* of the model */
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -r %s/store", folder);
    assert_int_equal(system(command), 0);
}

/* Both ends: the logits are those without a connector, and the counts add up to the match. */
static void the_program_drives_both_ends(void **state)
{
    static uint8_t logits[2][1 << 16];
    static const char *const budgets[] = {"1", "17", "64", "512"};
    const char *common = "--model " GOLDEN " --prefix-ids 5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,"
                         "20,21,22,23,24 --query-ids 9,10 --max-new 3";
    const char *connector = "--connector " SC_BINARY_DIR "/lib/libspec_connector.so "
                            "--config '{\"path\": \"store\", \"preset\": \"cake\"}'";
    char message[512], line[1024], path[128];
    (void)state;
    (void)snprintf(line, sizeof(line), "%s --logits last", common);
    assert_int_equal(program(line, message, sizeof(message)), 0);
    uint64_t bytes = file_read("last", logits[0], sizeof(logits[0]));
    (void)snprintf(line, sizeof(line), "%s %s", common, connector);
    assert_int_equal(program(line, message, sizeof(message)), 0);
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        struct json_object *json = NULL;
        struct eng_error error = {0};
        (void)snprintf(
            line, sizeof(line),
            "%s %s --load-policy bidirectional --bidirectional-tokens %s --logits last --json "
            "json --trace trace",
            common, connector, budgets[i]);
        assert_int_equal(program(line, message, sizeof(message)), 0);
        assert_string_equal(message, "");
        assert_int_equal(file_read("last", logits[1], sizeof(logits[1])), bytes);
        assert_memory_equal(logits[0], logits[1], bytes);
        (void)snprintf(path, sizeof(path), "%s/json", folder);
        assert_int_equal(eng_json_load(path, &json, &error), ENG_OK);
        struct json_object *request =
            json_object_array_get_idx(eng_json_member(json, "requests"), 0);
        assert_int_equal(json_object_get_uint64(eng_json_member(request, "matched_tokens")), 20);
        assert_int_equal(json_object_get_uint64(eng_json_member(request, "match_computed")) +
                             json_object_get_uint64(eng_json_member(request, "match_loaded")),
                         20);
        assert_int_equal(json_object_get_uint64(eng_json_member(request, "match_given_back")), 0);
        json_object_put(json);
        logits[1][file_read("out", logits[1], sizeof(logits[1]) - 1)] = '\0';
        assert_non_null(strstr((char *)logits[1], "of 20 matched "));
    }
    (void)snprintf(line, sizeof(line), "rm -r %s/store", folder);
    assert_int_equal(system(line), 0);
}

static void the_program_says_its_version(void **state)
{
    char message[256], product[32];
    uint8_t out[256] = {0};
    unsigned major, minor, format;
    int end = 0;
    (void)state;
    assert_int_equal(program("--version", message, sizeof(message)), 0);
    assert_string_equal(message, "");
    assert_true(file_read("out", out, sizeof(out) - 1) > 0);
    assert_int_equal(sscanf((char *)out, "spec-engine %31[0-9.], ABI %u.%u, store format %u%n",
                            product, &major, &minor, &format, &end),
                     4);
    assert_string_equal((char *)out + end, "\n");
    assert_int_equal(major, SPEC_ABI_MAJOR);
    assert_int_equal(minor, SPEC_ABI_MINOR);
}

static void the_program_answers_bad_input_with_one_line(void **state)
{
    static const struct {
        const char *arguments, *fragment;
        int exit;
    } cases[] = {
        {"--frob", "not an option", 2},
        {"--model nowhere --prefix-ids 1", "nowhere/config.json: cannot open", 1},
        {"--model " GOLDEN " --prefix-text hello", "json", 1}, /* no tokenizer is there */
        {"--model " RECALL " --prefix FILE", "FILE: no such file", 1},
        {"--model " RECALL " --prefix-ids 1 --query no.txt", "no.txt: no such file", 1},
        {"--model " GOLDEN " --prefix-ids 1,x", "expected ids", 1},
        {"--model " GOLDEN " --prefix-ids 512", "token 512 at 0", 1},
        {"--model " GOLDEN " --prefix-ids ,", "has no tokens", 1},
        {"--model " GOLDEN " --prefix-ids 1 --json no/where", "no/where: cannot write", 1},
        {"--model " GOLDEN " --prefix-ids 1 --logits /dev/full", "/dev/full: cannot write", 1},
        {"--model " GOLDEN " --prefix-ids 1 >/dev/full", "standard output: cannot write", 1},
        {"--model " GOLDEN " --tokenize", "json", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char message[1024];
        int status = program(cases[i].arguments, message, sizeof(message));
        const char *line_end = strchr(message, '\n');
        if (status != cases[i].exit || strstr(message, cases[i].fragment) == NULL ||
            line_end == NULL || line_end[1] != '\0')
            fail_msg("%s: exit status %d, \"%s\" expected in: %s", cases[i].arguments, status,
                     cases[i].fragment, message);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"out", "last", "all", "json", "lines", "trace"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_several_queries_behind_one_option),
        cmocka_unit_test(refuses_wrong_command_lines),
        cmocka_unit_test(reads_selections),
        cmocka_unit_test(reads_lists_of_ids),
        cmocka_unit_test(a_file_that_is_not_there_is_no_prompt),
        cmocka_unit_test(passes_and_a_resident_prefix_change_no_bit),
        cmocka_unit_test(a_source_supplies_the_prefix_and_may_lose_it),
        cmocka_unit_test(a_source_has_the_front_of_its_match_computed),
        cmocka_unit_test(the_program_writes_logits_and_json),
        cmocka_unit_test(the_program_tokenizes_json_lines),
        cmocka_unit_test(the_program_traces_layers_of_a_hit),
        cmocka_unit_test(the_program_drives_both_ends),
        cmocka_unit_test(the_program_says_its_version),
        cmocka_unit_test(the_program_answers_bad_input_with_one_line),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
