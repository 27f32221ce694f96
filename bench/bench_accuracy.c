/* bench-accuracy: what answers cost when only some rows of a prefix are used. For every question of
 * an eval file the query's pass runs over the same stored prefix (16-bit KV) once for each
 * contender:
 *
 *   full          every row (as-like)
 *   impress@RHO   similarity-guided, three probe heads, alpha .6
 *   h2o@RHO       exact H2O, a set a head, from the keys of all heads (alpha 0)
 *   one@RHO       the probes' voted set, never a set a head (alpha 50)
 *   random@RHO    any rows
 *   mass@SHARE    impress with the fewest rows that hold the share of the importance, at most half
 *
 * --by plugin: rows come from the connector; each contender opens it anew over one store.
 * --by engine: the reference choice (choose.h), from memory.
 *
 * File: JSON lines {"id", "group", "prefix" | "prefix_ids", "queries": [{"query" | "query_ids",
 * "choices" | "choices_ids", "label"}]}. A choice's likelihood is the sum of its tokens' over what
 * the query's pass left in the cache. Prints a JSON line a question and contender; bench/run makes
 * tables of them.
 *
 * Holds: a prefix is computed once; the same choices' tokens are read in one forward.
 * Threads: the model's and the plugin's. Tests: none (a measurement). */
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/spec_connector.h"
#include "bench/bench.h"
#include "conformance/engine/cli/chooser_source.h"
#include "conformance/engine/cli/driver.h"
#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/cli/input.h"
#include "conformance/engine/json.h"

#define CONTENDERS_MAX 32u

struct question {
    struct eng_ids query;
    struct eng_ids *choices; /* [choice_count] */
    uint64_t choice_count;
    int64_t label;
    float *full; /* [vocab] log-probabilities of the first new token, by contender full */
};

struct entry {
    char id[64], group[64];
    struct eng_ids prefix;
    struct question *questions;
    uint64_t question_count;
};

struct contender {
    char name[32];
    char json[512]; /* the connector's configuration beside path and disk_bytes */
    struct eng_choose_rule rule;
};

/* Counts of one request. */
struct tally {
    uint64_t layers, fallback, dense, selected, matched, union_rows, wanted, read, ops;
    uint64_t probe_ns, exposed_ns;
};

struct state {
    int argc;
    char **argv;
    const char *dir, *store;
    struct eng_model *model;
    struct eng_tokenizer *tokenizer; /* NULL: ids only */
    const struct eng_config *config;
    bool bos;
    struct entry *entries;
    uint64_t entry_count;
    struct contender contenders[CONTENDERS_MAX];
    uint64_t contender_count;
    struct eng_runner *holder, *runner;
    uint64_t held; /* rows of the holder's prefix */
    uint64_t branch_tokens, longest;
    float *scratch; /* [branch_tokens][vocab] */
    struct tally tally;
};

static void must(eng_status status, const struct eng_error *error)
{
    if (status != ENG_OK)
        bench_die("%s", error->text);
}

static void *must_have(void *memory)
{
    if (memory == NULL)
        bench_die("no memory");
    return memory;
}

/* ---- Reading ---- */

static struct eng_ids ids_of(const struct state *state, struct json_object *value, bool bos)
{
    struct eng_ids ids = {0};
    struct eng_error error;
    if (json_object_is_type(value, json_type_array)) {
        ids.count = json_object_array_length(value);
        ids.ids = must_have(calloc(ids.count + 1, sizeof(*ids.ids)));
        for (uint64_t i = 0; i < ids.count; i++)
            ids.ids[i] = (uint32_t)json_object_get_uint64(json_object_array_get_idx(value, i));
        return ids;
    }
    if (!json_object_is_type(value, json_type_string))
        bench_die("the file holds neither text nor ids where it should");
    if (state->tokenizer == NULL)
        bench_die("the file holds text, and the model has no tokenizer");
    const char *text = json_object_get_string(value);
    must(eng_tokenizer_encode(state->tokenizer, text, strlen(text), &ids.ids, &ids.count, &error),
         &error);
    if (bos)
        must(eng_ids_put_first(&ids, state->config->bos, &error), &error);
    return ids;
}

/* The member `name`, or `name`_ids. */
static struct json_object *text_or_ids(struct json_object *object, const char *name)
{
    char ids[32];
    (void)snprintf(ids, sizeof(ids), "%s_ids", name);
    struct json_object *value = eng_json_member(object, ids);
    if (value == NULL)
        value = eng_json_member(object, name);
    if (value == NULL)
        bench_die("neither \"%s\" nor \"%s\" in a line of the file", name, ids);
    return value;
}

static struct question read_question(const struct state *state, struct json_object *object)
{
    struct question question = {.query = ids_of(state, text_or_ids(object, "query"), false)};
    struct json_object *choices = text_or_ids(object, "choices");
    question.choice_count = json_object_array_length(choices);
    question.choices = must_have(calloc(question.choice_count + 1, sizeof(*question.choices)));
    for (uint64_t i = 0; i < question.choice_count; i++)
        question.choices[i] = ids_of(state, json_object_array_get_idx(choices, i), false);
    question.label = json_object_get_int64(eng_json_member(object, "label"));
    return question;
}

static void read_entry(struct state *state, const char *line, uint64_t questions_max)
{
    struct eng_error error;
    struct json_object *object = NULL;
    const char *id = "", *group = "";
    must(eng_json_parse("--eval", line, strlen(line), &object, &error), &error);
    must(eng_json_get_string("--eval", object, "id", &id, &error), &error);
    must(eng_json_get_string("--eval", object, "group", &group, &error), &error);
    state->entries =
        must_have(reallocarray(state->entries, state->entry_count + 1, sizeof(*state->entries)));
    struct entry *entry = &state->entries[state->entry_count++];
    *entry = (struct entry){.prefix = ids_of(state, text_or_ids(object, "prefix"), state->bos)};
    (void)snprintf(entry->id, sizeof(entry->id), "%s", id);
    (void)snprintf(entry->group, sizeof(entry->group), "%s", group);
    struct json_object *queries = eng_json_member(object, "queries");
    uint64_t count = queries == NULL ? 0 : json_object_array_length(queries);
    entry->question_count = count < questions_max ? count : questions_max;
    entry->questions = must_have(calloc(count + 1, sizeof(*entry->questions)));
    for (uint64_t i = 0; i < entry->question_count; i++) {
        struct question *question = &entry->questions[i];
        *question = read_question(state, json_object_array_get_idx(queries, i));
        uint64_t tokens = 0;
        for (uint64_t c = 0; c < question->choice_count; c++)
            tokens += question->choices[c].count;
        uint64_t whole = entry->prefix.count + question->query.count + tokens;
        state->branch_tokens = tokens > state->branch_tokens ? tokens : state->branch_tokens;
        state->longest = whole > state->longest ? whole : state->longest;
    }
    json_object_put(object);
}

static void read_file(struct state *state)
{
    const char *path = bench_option(state->argc, state->argv, "--eval", NULL);
    uint64_t questions = bench_option_u64(state->argc, state->argv, "--questions", UINT64_MAX);
    char *line = NULL;
    size_t bytes = 0;
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    if (file == NULL)
        bench_die("--eval %s: cannot be read", path == NULL ? "" : path);
    while (getline(&line, &bytes, file) > 0)
        read_entry(state, line, questions);
    free(line);
    (void)fclose(file);
    if (state->entry_count == 0)
        bench_die("--eval %s: holds nothing", path);
}

/* ---- Contenders ---- */

static void set_contender(struct contender *contender, const char *name)
{
    const char *at = strchr(name, '@');
    double value = at == NULL ? 1 : strtod(at + 1, NULL);
    uint64_t length = at == NULL ? strlen(name) : (uint64_t)(at - name);
    uint64_t ppm = (uint64_t)(value * 1e6 + .5);
    const char *json = NULL;
    contender->rule = eng_choose_rule_default(value);
    if (!(value > 0 && value <= 1))
        bench_die("--contenders: %s: a share above 0 up to 1 is expected", name);
    (void)snprintf(contender->name, sizeof(contender->name), "%s", name);
    if (strcmp(name, "full") == 0) {
        (void)snprintf(contender->json, sizeof(contender->json), "\"preset\": \"as-like\"");
        return;
    }
    if (strncmp(name, "impress", length) == 0) {
        json = "";
    } else if (strncmp(name, "h2o", length) == 0) {
        json = ", \"alpha_milli\": 0";
        contender->rule.per_head = true;
    } else if (strncmp(name, "one", length) == 0) {
        json = ", \"alpha_milli\": 50000";
        contender->rule.one_set = true;
    } else if (strncmp(name, "random", length) == 0) {
        json = ", \"metric\": \"random\"";
        contender->rule.metric = ENG_METRIC_RANDOM;
    } else if (strncmp(name, "mass", length) == 0) {
        contender->rule.mass = value;
        contender->rule.retain_ppm = 500000;
        (void)snprintf(contender->json, sizeof(contender->json),
                       "\"preset\": \"impress+range\", \"select\": {\"budget\": \"mass\", "
                       "\"mass_ppm\": %" PRIu64 ", \"retain_ppm\": 500000}",
                       ppm);
        return;
    } else {
        bench_die("--contenders: %s is not known", name);
    }
    (void)snprintf(contender->json, sizeof(contender->json),
                   "\"preset\": \"impress+range\", \"select\": {\"retain_ppm\": %" PRIu64 "%s}",
                   ppm, json);
}

static void read_contenders(struct state *state)
{
    char *names = must_have(strdup(bench_option(state->argc, state->argv, "--contenders",
                                                "full,impress@.25,h2o@.25,random@.25,mass@.9")));
    char *rest = names;
    for (char *name = strsep(&rest, ","); name != NULL; name = strsep(&rest, ",")) {
        if (state->contender_count == CONTENDERS_MAX)
            bench_die("more than %u contenders", CONTENDERS_MAX);
        set_contender(&state->contenders[state->contender_count++], name);
    }
    free(names);
    if (strcmp(state->contenders[0].name, "full") != 0)
        bench_die("--contenders: the first one is full, to compare with");
}

/* ---- One question ---- */

/* x [count] becomes log-probabilities. */
static void log_softmax(float *x, uint64_t count)
{
    double largest = -INFINITY;
    double total = 0;
    for (uint64_t i = 0; i < count; i++)
        largest = fmax(largest, (double)x[i]);
    for (uint64_t i = 0; i < count; i++)
        total += exp((double)x[i] - largest);
    double shift = largest + log(total);
    for (uint64_t i = 0; i < count; i++)
        x[i] = (float)((double)x[i] - shift);
}

static double divergence(const float *full, const float *other, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        if (full[i] > -80) /* e^-80 of the mass weighs nothing */
            sum += exp((double)full[i]) * ((double)full[i] - (double)other[i]);
    return sum;
}

static uint64_t best_of(const float *x, uint64_t count)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < count; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Log-likelihood of every choice; first [vocab] are the query's log-probabilities. */
static void score_choices(struct state *state, const struct question *question, uint64_t position,
                          const float *first, double *ret_scores)
{
    uint64_t vocab = state->config->vocab;
    struct eng_branch *branches = must_have(calloc(question->choice_count + 1, sizeof(*branches)));
    struct eng_error error;
    uint64_t count = 0;
    float *logits = state->scratch;
    for (uint64_t c = 0; c < question->choice_count; c++) {
        const struct eng_ids *choice = &question->choices[c];
        if (choice->count < 2)
            continue;
        branches[count++] = (struct eng_branch){choice->ids, choice->count - 1, logits};
        logits += (choice->count - 1) * vocab;
    }
    must(eng_run_branches(state->runner, branches, count, position, &error), &error);
    count = 0;
    for (uint64_t c = 0; c < question->choice_count; c++) {
        const struct eng_ids *choice = &question->choices[c];
        ret_scores[c] = choice->count == 0 ? 0 : (double)first[choice->ids[0]];
        for (uint64_t t = 1; t < choice->count; t++) {
            float *row = branches[count].logits + (t - 1) * vocab;
            log_softmax(row, vocab);
            ret_scores[c] += (double)row[choice->ids[t]];
        }
        count += choice->count >= 2;
    }
    free(branches);
}

static void print_answer(const struct state *state, const struct entry *entry, uint64_t number,
                         const struct contender *contender, const double *scores, double kl,
                         bool same_first)
{
    const struct question *question = &entry->questions[number];
    const struct tally *tally = &state->tally;
    printf("{\"contender\": \"%s\", \"id\": \"%s\", \"group\": \"%s\", \"question\": %" PRIu64
           ", \"prefix_tokens\": %" PRIu64 ", \"label\": %" PRId64 ", \"kl\": %.9g, \"top1\": %d",
           contender->name, entry->id, entry->group, number, entry->prefix.count, question->label,
           kl, same_first);
    printf(", \"layers\": %" PRIu64 ", \"fallback\": %" PRIu64 ", \"dense\": %" PRIu64
           ", \"selected\": %" PRIu64 ", \"matched\": %" PRIu64 ", \"union\": %" PRIu64,
           tally->layers, tally->fallback, tally->dense, tally->selected, tally->matched,
           tally->union_rows);
    printf(", \"wanted_bytes\": %" PRIu64 ", \"read_bytes\": %" PRIu64 ", \"ops\": %" PRIu64
           ", \"probe_ns\": %" PRIu64 ", \"exposed_ns\": %" PRIu64,
           tally->wanted, tally->read, tally->ops, tally->probe_ns, tally->exposed_ns);
    printf(", \"scores\": [");
    for (uint64_t c = 0; c < question->choice_count; c++)
        printf("%s%.7g", c == 0 ? "" : ", ", scores[c]);
    printf("], \"tokens\": [");
    for (uint64_t c = 0; c < question->choice_count; c++)
        printf("%s%" PRIu64, c == 0 ? "" : ", ", question->choices[c].count);
    printf("]}\n");
    (void)fflush(stdout);
}

static void ask(struct state *state, struct entry *entry, uint64_t number,
                const struct contender *contender, const struct eng_source *source)
{
    struct question *question = &entry->questions[number];
    struct eng_error error;
    struct eng_result result;
    uint64_t vocab = state->config->vocab;
    const struct eng_request request = {.index = number,
                                        .prefix = entry->prefix.ids,
                                        .query = question->query.ids,
                                        .prefix_count = entry->prefix.count,
                                        .query_count = question->query.count,
                                        .max_new = 1};
    state->tally = (struct tally){0};
    must(eng_run(state->runner, &request, source, &result, &error), &error);
    if (result.matched_tokens != entry->prefix.count)
        bench_die("%s: %" PRIu64 " of %" PRIu64 " prefix tokens matched", entry->id,
                  result.matched_tokens, entry->prefix.count);
    state->tally.wanted = result.bytes_wanted;
    state->tally.read = result.bytes_read;
    state->tally.ops = result.io_ops;
    state->tally.probe_ns = result.probe_ns;
    state->tally.exposed_ns = result.io_exposed_ns;
    log_softmax(result.logits, vocab);
    if (question->full == NULL) {
        question->full = must_have(calloc(vocab, sizeof(float)));
        memcpy(question->full, result.logits, vocab * sizeof(float));
    }
    double *scores = must_have(calloc(question->choice_count + 1, sizeof(*scores)));
    score_choices(state, question, entry->prefix.count + question->query.count, result.logits,
                  scores);
    print_answer(state, entry, number, contender, scores,
                 divergence(question->full, result.logits, vocab),
                 best_of(question->full, vocab) == best_of(result.logits, vocab));
    free(scores);
    eng_result_done(&result);
}

/* ---- By the engine: prefix by prefix ---- */

static eng_status see_choice(void *user, const struct eng_attention_view *view, uint64_t pass,
                             const struct eng_choose_input *input, const struct eng_choice *choice,
                             struct eng_error *reterr)
{
    struct tally *tally = &((struct state *)user)->tally;
    (void)view;
    (void)pass;
    (void)reterr;
    tally->layers++;
    tally->fallback += choice->fallback;
    tally->selected += choice->row_count;
    tally->matched += input->prefix_count;
    tally->union_rows += choice->union_rows;
    return ENG_OK;
}

static void run_by_engine(struct state *state)
{
    struct eng_error error;
    for (uint64_t e = 0; e < state->entry_count; e++) {
        struct entry *entry = &state->entries[e];
        (void)fprintf(stderr, "prefix %" PRIu64 " of %" PRIu64 "\n", e + 1, state->entry_count);
        state->held = entry->prefix.count;
        must(eng_run_hold(state->holder, entry->prefix.ids, entry->prefix.count, 0, &error),
             &error);
        for (uint64_t c = 0; c < state->contender_count; c++) {
            struct eng_chooser_source *source = NULL;
            const struct eng_chooser_source_params params = {
                .model = state->model,
                .held = eng_runner_kv(state->holder),
                .held_tokens = &state->held,
                .rule = state->contenders[c].rule,
                .seen = see_choice,
                .seen_user = state,
            };
            must(eng_chooser_source_open(&params, &source, &error), &error);
            for (uint64_t q = 0; q < entry->question_count; q++)
                ask(state, entry, q, &state->contenders[c], eng_chooser_source_get(source));
            eng_chooser_source_close(source);
        }
    }
}

/* ---- By the plugin: contender by contender, over one store ---- */

static eng_status see_selection(void *user, const struct eng_selection *selection,
                                struct eng_error *reterr)
{
    struct tally *tally = &((struct state *)user)->tally;
    (void)reterr;
    tally->layers++;
    tally->fallback += selection->fallback;
    tally->dense += selection->dense;
    tally->selected += selection->row_count;
    tally->matched += selection->matched;
    tally->union_rows += selection->union_rows;
    return ENG_OK;
}

static struct eng_driver *open_driver(struct state *state, const char *json, bool store)
{
    char config[8192];
    struct eng_driver *driver = NULL;
    struct eng_error error;
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"%s\", \"disk_bytes\": \"%s\", \"stage_bytes\": \"512MiB\", %s}",
                   state->store, bench_option(state->argc, state->argv, "--disk-bytes", "8GiB"),
                   json);
    const struct eng_driver_params params = {
        .connector =
            bench_option(state->argc, state->argv, "--connector", "build/lib/libspec_connector.so"),
        .config = config,
        .model_dir = state->dir,
        .model = state->model,
        .kv_dtype = ENG_F16,
        .store = store,
        .observe = see_selection,
        .observe_user = state};
    must(eng_driver_open(&params, &driver, &error), &error);
    return driver;
}

/* Every prefix with its probe rows; one query token ends the pass. */
static void fill_store(struct state *state)
{
    struct eng_error error;
    struct eng_driver *driver = open_driver(state, "\"preset\": \"impress+range\"", true);
    for (uint64_t e = 0; e < state->entry_count; e++) {
        struct entry *entry = &state->entries[e];
        struct eng_result result;
        const struct eng_request request = {.prefix = entry->prefix.ids,
                                            .query = entry->questions[0].query.ids,
                                            .prefix_count = entry->prefix.count,
                                            .query_count = 1,
                                            .max_new = 1};
        (void)fprintf(stderr, "storing prefix %" PRIu64 " of %" PRIu64 "\n", e + 1,
                      state->entry_count);
        must(eng_run(state->runner, &request, eng_driver_source(driver), &result, &error), &error);
        if (eng_driver_store_problem(driver) != NULL)
            bench_die("%s", eng_driver_store_problem(driver));
        eng_result_done(&result);
    }
    eng_driver_close(driver);
}

static void run_by_plugin(struct state *state)
{
    fill_store(state);
    for (uint64_t c = 0; c < state->contender_count; c++) {
        struct eng_driver *driver = open_driver(state, state->contenders[c].json, false);
        (void)fprintf(stderr, "%s\n", state->contenders[c].name);
        for (uint64_t e = 0; e < state->entry_count; e++)
            for (uint64_t q = 0; q < state->entries[e].question_count; q++)
                ask(state, &state->entries[e], q, &state->contenders[c], eng_driver_source(driver));
        eng_driver_close(driver);
    }
}

/* ---- ---- */

static void close_state(struct state *state)
{
    for (uint64_t e = 0; e < state->entry_count; e++) {
        struct entry *entry = &state->entries[e];
        for (uint64_t q = 0; q < entry->question_count; q++) {
            for (uint64_t c = 0; c < entry->questions[q].choice_count; c++)
                eng_ids_done(&entry->questions[q].choices[c]);
            free(entry->questions[q].choices);
            eng_ids_done(&entry->questions[q].query);
            free(entry->questions[q].full);
        }
        free(entry->questions);
        eng_ids_done(&entry->prefix);
    }
    free(state->entries);
    free(state->scratch);
    eng_runner_close(state->holder);
    eng_runner_close(state->runner);
    eng_tokenizer_close(state->tokenizer);
    eng_model_close(state->model);
}

int main(int argc, char **argv)
{
    static struct state state;
    struct eng_error error;
    state.argc = argc;
    state.argv = argv;
    state.dir = bench_option(argc, argv, "--model", "models/opt-recall");
    state.store = bench_option(argc, argv, "--store", "build/bench-store");
    bool by_plugin = strcmp(bench_option(argc, argv, "--by", "plugin"), "plugin") == 0;
    must(eng_model_open(state.dir, (uint32_t)bench_option_u64(argc, argv, "--threads", 2),
                        &state.model, &error),
         &error);
    state.config = eng_model_config(state.model);
    (void)eng_tokenizer_open(state.dir, &state.tokenizer, &error);
    must(eng_bos_wanted(state.dir, state.config, &state.bos, &error), &error);
    read_contenders(&state);
    read_file(&state);
    state.scratch =
        must_have(calloc((state.branch_tokens + 1) * state.config->vocab, sizeof(float)));
    must(eng_runner_open(state.model, ENG_F16, state.longest + 1, &state.runner, &error), &error);
    if (by_plugin) {
        run_by_plugin(&state);
    } else {
        must(eng_runner_open(state.model, ENG_F16, state.longest + 1, &state.holder, &error),
             &error);
        run_by_engine(&state);
    }
    close_state(&state);
    return 0;
}
