/* bench-accuracy: how much answers lose when only some rows of a prefix are used.
 *
 * For every question of an eval file the query's pass runs over the same stored prefix (16-bit KV),
 * once per contender:
 *
 *   full          every row (as-like)
 *   impress@RHO   similarity-guided, three probe heads, alpha 0.6
 *   impress:P@RHO the same with P probe heads, 1 to 3
 *   h2o@RHO       exact H2O, one set per head, from the keys of all heads (alpha 0)
 *   one@RHO       the probes' voted set, never one per head (alpha 50)
 *   random@RHO    any rows
 *   static@RHO    the rows of highest average importance over the earlier requests (plugin only):
 *                 the file's lessons, and the requests of contenders before it
 *   fp8           every row, rounded to fp8 (altered.h); half of the rows' bytes are counted
 *   stand@RHO     every row, but rows that exact H2O drops have the KV of a kept one (altered.h);
 *                 the bytes of all rows are counted
 *   alpha@A       impress with a quarter of the rows and the threshold's exponent A
 *   mass@SHARE    impress with the fewest rows that have this share of the importance, at most half
 *   layered:K+V@SHARE  K and V bits per quantised element, a share of the rows exact; 0 allowed
 *                 (plugin only)
 *   freeCHUNK:K+V@SHARE  the same with bits per channel, in chunks of CHUNK tokens; its own store
 *                 is filled in the file's order, after some text from which it calibrates
 *   /F-L after mass, layered or free: the first F and the last L rows are always included
 *   preset:NAME   the connector's preset of that name (plugin only)
 *
 * --by plugin: rows from the connector; each contender opens it anew over one store.
 *   --by engine: the reference choice (select_rows.h), from memory.
 *
 * File: eval_file.h. A choice's likelihood is the sum of its tokens'.
 *   --pass choice: each choice is a pass of its own after the query, and both select rows, as if a
 *                  harness asks a served model for likelihoods
 *   --pass query:  the query alone selects rows, and every choice is read over what its pass left
 *                  in the cache, as in decoding
 *   --pass both:   the two
 * KL, the most likely first token, counts of rows and bytes and decoded text are of the query
 * alone. forced_tokens of a question: full KV decodes so many. Every contender reads them behind
 * the query, over what its pass left: how many of them would it have decoded at their places, and
 * how many before the first difference (as many as free decoding has in common with full KV's).
 *
 * Prints one JSON line per question and contender; bench/run makes tables.
 *
 * A prefix is computed once; the same choices' tokens are read in one forward. free contenders
 * compute it again, after they have calibrated, because they quantise rows when they store them.
 * If the file has a text to calibrate from, those of 64-token chunks quantise a copy of the rows.
 * Threads: the model's and the plugin's. Tests: none (a measurement). */
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/spec_connector.h"
#include "bench/altered.h"
#include "bench/bench.h"
#include "bench/eval_file.h"
#include "conformance/engine/cli/driver.h"
#include "conformance/engine/cli/selector_source.h"

#define CONTENDERS_MAX 32u
/* Sets are compared here, also of short matches, which a host would get whole. */
#define TEACH_WINDOWS 8u
#define WITH_PROBES   "\"preset\": \"as-like\", \"select\": {\"probe_heads\": 3}"
#define ANY_LENGTH    "\"min_tokens\": 0, \"min_share_ppm\": 0"
static const char *const PROBES[] = {", \"probe_heads\": 1", ", \"probe_heads\": 2",
                                     ", \"probe_heads\": 3"};

struct contender {
    char name[32];
    char json[512];  /* the connector's configuration beside path and disk_bytes */
    char suffix[32]; /* of the store's path: codes of other bits are another store's */
    struct eng_select_rule rule;
    enum altered_kind altered;
    bool calibrates; /* bits per channel */
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
    struct eval_file file;
    struct contender contenders[CONTENDERS_MAX];
    uint64_t contender_count;
    struct eng_runner *holder, *runner;
    uint64_t held;  /* rows of the holder's prefix */
    float *scratch; /* [asked_tokens][vocab] */
    bool by_choice, by_query;
    struct tally tally;
};

/* ---- Contenders ---- */

/* The rows that are always chosen, by /F-L behind a name. */
struct kept {
    unsigned first, last;
};

static bool name_is_free(const char *name)
{
    return strncmp(name, "free", 4) == 0;
}

/* True if a copy of the stored rows has this contender's chunks. */
static bool has_default_chunks(const char *name)
{
    return !name_is_free(name) || strncmp(name, "free64:", 7) == 0;
}

/* Codes of free widths, which learn, and a store of its own. */
static bool learns(const char *name)
{
    return name_is_free(name) || strcmp(name, "preset:layered") == 0;
}

static struct kept kept_of(const char *name)
{
    struct kept kept = {0};
    const char *text = strchr(name, '/');
    bool may_keep =
        strncmp(name, "mass@", 5) == 0 || strncmp(name, "layered:", 8) == 0 || name_is_free(name);
    if (text != NULL && (!may_keep || sscanf(text, "/%u-%u", &kept.first, &kept.last) != 2))
        bench_die("--contenders: %s: mass or layered with /FIRST-LAST is expected", name);
    return kept;
}

static void set_layered(struct contender *contender, const char *name, double share,
                        struct kept kept)
{
    double bits_k, bits_v;
    const char *text = strchr(name, ':') + 1;
    bool is_free = name_is_free(name);
    unsigned chunk = 64;
    if (sscanf(text, "%lf+%lf@", &bits_k, &bits_v) != 2 || strchr(name, '@') == NULL ||
        !(share >= 0 && share <= 1) || !(bits_k >= 0 && bits_k < 10) ||
        !(bits_v >= 0 && bits_v < 10) || (is_free && sscanf(name, "free%u:", &chunk) != 1))
        bench_die("--contenders: %s: layered:K+V@SHARE or freeCHUNK:K+V@SHARE is expected, up to "
                  "9 bits and 1",
                  name);
    (void)snprintf(contender->suffix, sizeof(contender->suffix), "-%.*s",
                   (int)(strchr(name, '@') - name < 30 ? strchr(name, '@') - name : 30), name);
    (void)snprintf(contender->json, sizeof(contender->json),
                   "\"preset\": \"layered-uniform\", \"chunk_tokens\": %u, \"select\": {" ANY_LENGTH
                   "}, "
                   "\"layered\": {\"bits_k\": %g, \"bits_v\": %g, \"bit_allocation\": \"%s\", "
                   "\"exact_ppm\": %" PRIu64 ", \"keep_first\": %u, \"keep_last\": %u}",
                   chunk, bits_k, bits_v, is_free ? "per_channel" : "uniform",
                   (uint64_t)(share * 1e6 + .5), kept.first, kept.last);
}

/* A store of its own, because rows that are quantised once keep their bits. */
static void set_preset(struct contender *contender, const char *preset)
{
    (void)snprintf(contender->json, sizeof(contender->json), "\"preset\": \"%s\"", preset);
    (void)snprintf(contender->suffix, sizeof(contender->suffix), "-%.*s", 30,
                   contender->calibrates ? "free64:3+2" : preset);
}

static enum altered_kind altered_of(const char *name)
{
    if (strcmp(name, "fp8") == 0)
        return ALTERED_FP8;
    return strncmp(name, "stand@", 6) == 0 ? ALTERED_STAND_IN : ALTERED_NONE;
}

static void set_contender(struct contender *contender, const char *name)
{
    const char *at = strchr(name, '@');
    double value = at == NULL ? 1 : strtod(at + 1, NULL);
    uint64_t length = at == NULL ? strlen(name) : (uint64_t)(at - name);
    uint64_t ppm = (uint64_t)(value * 1e6 + .5);
    const char *json = "";
    contender->rule = eng_select_rule_default(value);
    contender->calibrates = learns(name);
    (void)snprintf(contender->name, sizeof(contender->name), "%s", name);
    if (strncmp(name, "preset:", 7) == 0) {
        set_preset(contender, name + 7);
        return;
    }
    struct kept kept = kept_of(name);
    if (strncmp(name, "layered:", 8) == 0 || name_is_free(name)) {
        set_layered(contender, name, value, kept);
        return;
    }
    bool is_alpha = strncmp(name, "alpha@", 6) == 0;
    if (is_alpha ? !(value >= 0 && value <= 50) : !(value > 0 && value <= 1))
        bench_die("--contenders: %s: a share above 0 up to 1 is expected, or alpha up to 50", name);
    contender->altered = altered_of(name);
    if (strcmp(name, "full") == 0 || contender->altered != ALTERED_NONE) {
        contender->rule.per_head = true;
        (void)snprintf(contender->json, sizeof(contender->json), "\"preset\": \"as-like\"");
        return;
    }
    if (strncmp(name, "impress:", 8) == 0 && length == 9 && name[8] >= '1' && name[8] <= '3') {
        contender->rule.probe_heads = (uint64_t)(name[8] - '0');
        json = PROBES[contender->rule.probe_heads - 1];
    } else if (strncmp(name, "h2o", length) == 0) {
        json = ", \"alpha_milli\": 0";
        contender->rule.per_head = true;
    } else if (strncmp(name, "one", length) == 0) {
        json = ", \"alpha_milli\": 50000";
        contender->rule.one_set = true;
    } else if (strncmp(name, "static", length) == 0) {
        json = ", \"identify\": \"static\"";
    } else if (is_alpha) {
        contender->rule = eng_select_rule_default(.25);
        contender->rule.alpha = value;
        (void)snprintf(contender->json, sizeof(contender->json),
                       "\"preset\": \"impress-itf+range\", \"select\": {" ANY_LENGTH
                       ", \"retain_ppm\": 250000, \"alpha_milli\": %" PRIu64 "}",
                       (uint64_t)(value * 1e3 + .5));
        return;
    } else if (strncmp(name, "random", length) == 0) {
        json = ", \"metric\": \"random\"";
        contender->rule.metric = ENG_METRIC_RANDOM;
    } else if (strncmp(name, "mass", length) == 0) {
        contender->rule.mass = value;
        contender->rule.retain_ppm = 500000;
        contender->rule.keep_first = kept.first;
        contender->rule.keep_last = kept.last;
        (void)snprintf(contender->json, sizeof(contender->json),
                       "\"preset\": \"impress-itf+range\", \"select\": {" ANY_LENGTH
                       ", \"budget\": \"mass\", "
                       "\"mass_ppm\": %" PRIu64 ", \"retain_ppm\": 500000, "
                       "\"keep_first\": %u, \"keep_last\": %u}",
                       ppm, kept.first, kept.last);
        return;
    } else if (strncmp(name, "impress", length) != 0) {
        bench_die("--contenders: %s is not known", name);
    }
    (void)snprintf(contender->json, sizeof(contender->json),
                   "\"preset\": \"impress-itf+range\", \"select\": {" ANY_LENGTH
                   ", \"retain_ppm\": %" PRIu64 "%s}",
                   ppm, json);
}

static void read_contenders(struct state *state)
{
    char *names = eval_must_have(strdup(bench_option(
        state->argc, state->argv, "--contenders", "full,impress@.25,h2o@.25,random@.25,mass@.9")));
    char *rest = names;
    for (char *name = strsep(&rest, ","); name != NULL; name = strsep(&rest, ",")) {
        if (state->contender_count == CONTENDERS_MAX)
            bench_die("more than %u contenders", CONTENDERS_MAX);
        set_contender(&state->contenders[state->contender_count++], name);
    }
    free(names);
    if (strcmp(state->contenders[0].name, "full") != 0)
        bench_die("--contenders: the first one is full, to compare with");
    bool by_plugin =
        strcmp(bench_option(state->argc, state->argv, "--by", "plugin"), "plugin") == 0;
    for (uint64_t c = 0; c < state->contender_count; c++)
        if (!by_plugin && (strncmp(state->contenders[c].name, "static", 6) == 0 ||
                           state->contenders[c].altered != ALTERED_NONE ||
                           strncmp(state->contenders[c].name, "layered:", 8) == 0 ||
                           strncmp(state->contenders[c].name, "preset:", 7) == 0))
            bench_die("--contenders: %s needs --by plugin: the engine keeps no averages and knows "
                      "no presets",
                      state->contenders[c].name);
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

/* What a question gave over one contender's rows. */
struct answer {
    double *by_query, *by_choice; /* [choice_count] log-likelihoods */
    double kl;
    bool same_first;
    char *text;                        /* NULL: nothing was decoded */
    uint64_t forced_equal, forced_run; /* of question.said: all places, up to the first other one */
};

/* Log-likelihood of every choice; first [vocab] are the query's log-probabilities. */
static void score_choices(struct state *state, const struct eval_question *question,
                          uint64_t position, const float *first, double *ret_scores)
{
    uint64_t vocab = state->file.config->vocab;
    struct eng_branch *branches =
        eval_must_have(calloc(question->choice_count + 1, sizeof(*branches)));
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
    eval_must(eng_run_branches(state->runner, branches, count, position, &error), &error);
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

/* How many of full KV's tokens the contender would have decoded, each behind those before it. */
static void read_forced(struct state *state, const struct eval_question *question,
                        uint64_t position, const float *first, struct answer *answer)
{
    const struct eng_ids *said = &question->said;
    uint64_t vocab = state->file.config->vocab;
    struct eng_error error;
    const struct eng_branch branch = {said->ids, said->count - 1, state->scratch};
    eval_must(eng_run_branches(state->runner, &branch, said->count > 1, position, &error), &error);
    for (uint64_t t = 0; t < said->count; t++) {
        const float *row = t == 0 ? first : state->scratch + (t - 1) * vocab;
        bool equal = best_of(row, vocab) == said->ids[t];
        answer->forced_run += equal && answer->forced_run == t;
        answer->forced_equal += equal;
    }
}

/* The same as score_choices, each choice behind the query in a pass that chooses rows by both. */
static void score_passes(struct state *state, const struct eval_entry *entry,
                         const struct eval_question *question, const struct eng_source *source,
                         double *ret_scores)
{
    uint64_t vocab = state->file.config->vocab;
    uint64_t asked = question->query.count;
    uint32_t *tokens = eval_must_have(calloc(state->file.longest, sizeof(*tokens)));
    struct eng_error error;
    memcpy(tokens, question->query.ids, asked * sizeof(*tokens));
    for (uint64_t c = 0; c < question->choice_count; c++) {
        const struct eng_ids *choice = &question->choices[c];
        struct eng_result result;
        ret_scores[c] = 0;
        if (choice->count == 0)
            continue;
        memcpy(tokens + asked, choice->ids, (choice->count - 1) * sizeof(*tokens));
        const struct eng_request request = {.index = c,
                                            .prefix = entry->prefix.ids,
                                            .query = tokens,
                                            .prefix_count = entry->prefix.count,
                                            .query_count = asked + choice->count - 1,
                                            .max_new = 1,
                                            .query_logits = state->scratch};
        eval_must(eng_run(state->runner, &request, source, &result, &error), &error);
        eng_result_done(&result);
        for (uint64_t t = 0; t < choice->count; t++) {
            float *row = state->scratch + (asked - 1 + t) * vocab;
            log_softmax(row, vocab);
            ret_scores[c] += (double)row[choice->ids[t]];
        }
    }
    free(tokens);
}

static void print_list(const char *name, const double *values, uint64_t count)
{
    printf(", \"%s\": [", name);
    for (uint64_t i = 0; i < count; i++)
        printf("%s%.7g", i == 0 ? "" : ", ", values[i]);
    printf("]");
}

static void print_text(const char *text)
{
    struct json_object *value = eval_must_have(json_object_new_string(text));
    printf(", \"text\": %s", json_object_to_json_string(value));
    json_object_put(value);
}

static void print_answer(const struct state *state, const struct eval_entry *entry, uint64_t number,
                         const struct contender *contender, const struct answer *answer)
{
    const struct eval_question *question = &entry->questions[number];
    const struct tally *tally = &state->tally;
    printf("{\"contender\": \"%s\", \"id\": \"%s\", \"group\": \"%s\", \"question\": %" PRIu64
           ", \"prefix_tokens\": %" PRIu64 ", \"label\": %" PRId64 ", \"kl\": %.9g, \"top1\": %d",
           contender->name, entry->id, entry->group, number, entry->prefix.count, question->label,
           answer->kl, answer->same_first);
    printf(", \"layers\": %" PRIu64 ", \"fallback\": %" PRIu64 ", \"dense\": %" PRIu64
           ", \"selected\": %" PRIu64 ", \"matched\": %" PRIu64 ", \"union\": %" PRIu64,
           tally->layers, tally->fallback, tally->dense, tally->selected, tally->matched,
           tally->union_rows);
    printf(", \"wanted_bytes\": %" PRIu64 ", \"read_bytes\": %" PRIu64 ", \"ops\": %" PRIu64
           ", \"probe_ns\": %" PRIu64 ", \"exposed_ns\": %" PRIu64,
           tally->wanted, tally->read, tally->ops, tally->probe_ns, tally->exposed_ns);
    if (state->by_query)
        print_list("by_query", answer->by_query, question->choice_count);
    if (state->by_choice)
        print_list("by_choice", answer->by_choice, question->choice_count);
    if (answer->text != NULL)
        print_text(answer->text);
    if (question->said.count != 0)
        printf(", \"said\": %" PRIu64 ", \"forced_equal\": %" PRIu64 ", \"forced_run\": %" PRIu64,
               question->said.count, answer->forced_equal, answer->forced_run);
    printf(", \"tokens\": [");
    for (uint64_t c = 0; c < question->choice_count; c++)
        printf("%s%" PRIu64, c == 0 ? "" : ", ", question->choices[c].count);
    printf("]}\n");
    (void)fflush(stdout);
}

/* Likelihoods, and the text that was decoded; result is of the query's pass, which the cache holds.
 */
static void read_answer(struct state *state, const struct eval_entry *entry, uint64_t number,
                        const struct contender *contender, const struct eng_source *source,
                        const struct eng_result *result, struct answer *answer)
{
    const struct eval_question *question = &entry->questions[number];
    uint64_t count = question->choice_count;
    const struct tally tally = state->tally;
    struct eng_error error;
    answer->by_query = eval_must_have(calloc(count + 1, sizeof(double)));
    answer->by_choice = eval_must_have(calloc(count + 1, sizeof(double)));
    if (question->new_tokens > 1 && state->file.tokenizer == NULL)
        bench_die("%s: text is asked for, and the model has no tokenizer", entry->id);
    uint64_t shown =
        result->token_count < question->new_tokens ? result->token_count : question->new_tokens;
    if (question->new_tokens > 1)
        eval_must(eng_tokenizer_decode(state->file.tokenizer, result->tokens, shown, &answer->text,
                                       NULL, &error),
                  &error);
    eng_run_forget(state->runner, result->token_count - 1);
    if (question->said.count != 0)
        read_forced(state, question, entry->prefix.count + question->query.count, result->logits,
                    answer);
    if (count == 0)
        return;
    /* Over every row both ways give the same bits: a row's depend on what it attends alone. */
    bool is_full = strcmp(contender->name, "full") == 0;
    if (state->by_query || is_full)
        score_choices(state, question, entry->prefix.count + question->query.count, result->logits,
                      answer->by_query);
    if (is_full)
        memcpy(answer->by_choice, answer->by_query, count * sizeof(double));
    else if (state->by_choice)
        score_passes(state, entry, question, source, answer->by_choice);
    state->tally = tally;
}

static uint64_t tokens_to_decode(const struct eval_question *question,
                                 const struct contender *contender)
{
    bool forced = strcmp(contender->name, "full") == 0;
    return forced && question->forced_tokens > question->new_tokens ? question->forced_tokens
                                                                    : question->new_tokens;
}

/* The first tokens that full KV decodes are those that every contender is given. */
static void keep_said(struct eval_question *question, const struct contender *contender,
                      const struct eng_result *result)
{
    struct eng_ids *said = &question->said;
    if (question->forced_tokens == 0 || said->ids != NULL || strcmp(contender->name, "full") != 0)
        return;
    said->count = result->token_count < question->forced_tokens ? result->token_count
                                                                : question->forced_tokens;
    said->ids = eval_must_have(calloc(said->count + 1, sizeof(*said->ids)));
    memcpy(said->ids, result->tokens, said->count * sizeof(*said->ids));
}

static void ask(struct state *state, struct eval_entry *entry, uint64_t number,
                const struct contender *contender, const struct eng_source *source)
{
    struct eval_question *question = &entry->questions[number];
    struct eng_error error;
    struct eng_result result;
    uint64_t vocab = state->file.config->vocab;
    const struct eng_request request = {.index = number,
                                        .prefix = entry->prefix.ids,
                                        .query = question->query.ids,
                                        .prefix_count = entry->prefix.count,
                                        .query_count = question->query.count,
                                        .max_new = tokens_to_decode(question, contender)};
    state->tally = (struct tally){0};
    eval_must(eng_run(state->runner, &request, source, &result, &error), &error);
    if (result.matched_tokens != entry->prefix.count)
        bench_die("%s: %" PRIu64 " of %" PRIu64 " prefix tokens matched, after %" PRIu64
                  " ranges that could not be read",
                  entry->id, result.matched_tokens, entry->prefix.count, result.restarts);
    keep_said(question, contender, &result);
    state->tally.wanted = result.bytes_wanted;
    if (contender->altered == ALTERED_FP8)
        state->tally.wanted -= state->tally.matched * eng_runner_kv(state->runner)->row_bytes;
    state->tally.read = result.bytes_read;
    state->tally.ops = result.io_ops;
    state->tally.probe_ns = result.probe_ns;
    state->tally.exposed_ns = result.io_exposed_ns;
    log_softmax(result.logits, vocab);
    if (question->full == NULL) {
        question->full = eval_must_have(calloc(vocab, sizeof(float)));
        memcpy(question->full, result.logits, vocab * sizeof(float));
    }
    struct answer answer = {
        .kl = divergence(question->full, result.logits, vocab),
        .same_first = best_of(question->full, vocab) == best_of(result.logits, vocab),
    };
    read_answer(state, entry, number, contender, source, &result, &answer);
    print_answer(state, entry, number, contender, &answer);
    free(answer.by_query);
    free(answer.by_choice);
    free(answer.text);
    eng_result_done(&result);
}

/* ---- By the engine: prefix by prefix ---- */

static eng_status see_choice(void *user, const struct eng_attention_view *view, uint64_t pass,
                             const struct eng_select_input *input, const struct eng_choice *choice,
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
    for (uint64_t e = 0; e < state->file.entry_count; e++) {
        struct eval_entry *entry = &state->file.entries[e];
        (void)fprintf(stderr, "prefix %" PRIu64 " of %" PRIu64 "\n", e + 1,
                      state->file.entry_count);
        state->held = entry->prefix.count;
        eval_must(eng_run_hold(state->holder, entry->prefix.ids, entry->prefix.count, 0, &error),
                  &error);
        for (uint64_t c = 0; c < state->contender_count; c++) {
            struct eng_selectr_source *source = NULL;
            const struct eng_selectr_source_params params = {
                .model = state->file.model,
                .held = eng_runner_kv(state->holder),
                .held_tokens = &state->held,
                .rule = state->contenders[c].rule,
                .seen = see_choice,
                .seen_user = state,
            };
            eval_must(eng_selectr_source_open(&params, &source, &error), &error);
            for (uint64_t q = 0; q < entry->question_count; q++)
                ask(state, entry, q, &state->contenders[c], eng_selectr_source_get(source));
            eng_selectr_source_close(source);
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

static struct eng_driver *open_driver(struct state *state, const char *suffix, const char *json,
                                      bool store)
{
    char config[8192];
    struct eng_driver *driver = NULL;
    struct eng_error error;
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"%s%s\", \"load_policy\": \"load\", \"host_bytes\": 0, "
                   "\"disk_bytes\": \"%s\", "
                   "\"staging_bytes\": \"512MiB\", %s}",
                   state->store, suffix,
                   bench_option(state->argc, state->argv, "--disk-bytes", "16GiB"), json);
    const struct eng_driver_params params = {
        .connector =
            bench_option(state->argc, state->argv, "--connector", "build/lib/libspec_connector.so"),
        .config = config,
        .model_dir = state->dir,
        .model = state->file.model,
        .kv_dtype = ENG_F16,
        .store = store,
        .observe = see_selection,
        .observe_user = state};
    eval_must(eng_driver_open(&params, &driver, &error), &error);
    return driver;
}

static void run_request(struct state *state, struct eng_driver *driver,
                        const struct eng_request *request)
{
    struct eng_error error;
    struct eng_result result;
    eval_must(eng_run(state->runner, request, eng_driver_source(driver), &result, &error), &error);
    if (eng_driver_store_problem(driver) != NULL)
        bench_die("%s", eng_driver_store_problem(driver));
    eng_result_done(&result);
}

/* Shows a connector that learns of queries half of a text (the file's, or the first prefix), and
 * windows of the other half that read it. They are text, no questions. */
static void teach(struct state *state, struct eng_driver *driver)
{
    const struct eval_entry *entry = &state->file.entries[0];
    const struct eng_ids *text = entry->taught.ids != NULL ? &entry->taught : &entry->prefix;
    uint64_t half = text->count / 2;
    for (uint64_t i = 0; i < TEACH_WINDOWS; i++)
        run_request(state, driver,
                    &(struct eng_request){.prefix = text->ids + 1,
                                          .query = text->ids + half + i * (half / TEACH_WINDOWS),
                                          .prefix_count = half - 1,
                                          .query_count = half / TEACH_WINDOWS,
                                          .max_new = 1});
}

/* Every prefix with its probe rows; one query token ends the pass. A match of a few tokens is
 * loaded whole: what is computed on chosen rows would not be stored. */
static void fill_store(struct state *state, const char *suffix, const char *json, bool teaches)
{
    struct eng_driver *driver = open_driver(state, suffix, json, true);
    if (teaches)
        teach(state, driver);
    for (uint64_t e = 0; e < state->file.entry_count; e++) {
        struct eval_entry *entry = &state->file.entries[e];
        const struct eng_request request = {.prefix = entry->prefix.ids,
                                            .query = entry->questions[0].query.ids,
                                            .prefix_count = entry->prefix.count,
                                            .query_count = 1,
                                            .max_new = 1};
        (void)fprintf(stderr, "storing prefix %" PRIu64 " of %" PRIu64 "\n", e + 1,
                      state->file.entry_count);
        run_request(state, driver, &request);
    }
    eng_driver_close(driver);
}

/* Lessons, so that the connector has averages of what mattered to earlier questions. */
static void give_lessons(struct state *state)
{
    struct contender guided;
    struct eng_error error;
    set_contender(&guided, "impress@.25");
    struct eng_driver *driver = open_driver(state, "", guided.json, false);
    for (uint64_t e = 0; e < state->file.entry_count; e++) {
        const struct eval_entry *entry = &state->file.entries[e];
        for (uint64_t q = 0; q < entry->lesson_count; q++) {
            struct eng_result result;
            const struct eng_request request = {.prefix = entry->prefix.ids,
                                                .query = entry->lessons[q].query.ids,
                                                .prefix_count = entry->prefix.count,
                                                .query_count = entry->lessons[q].query.count,
                                                .max_new = 1};
            eval_must(eng_run(state->runner, &request, eng_driver_source(driver), &result, &error),
                      &error);
            eng_result_done(&result);
        }
    }
    eng_driver_close(driver);
}

/* A copy of the filled store, for codes of its own, unless an earlier contender made it. */
static void copy_store(const struct state *state, const char *suffix)
{
    char command[2 * 4096 + 128];
    (void)snprintf(command, sizeof(command), "[ -e '%s%s' ] || cp -a '%s' '%s%s'", state->store,
                   suffix, state->store, state->store, suffix);
    if (suffix[0] != 0 && system(command) != 0)
        bench_die("%s%s: the store could not be copied", state->store, suffix);
}

/* Every question, over what the contender's store has. */
static void ask_all(struct state *state, const struct contender *contender)
{
    struct eng_driver *driver = open_driver(state, contender->suffix, contender->json, false);
    const struct eng_source *source = eng_driver_source(driver);
    struct altered *altered = NULL;
    struct eng_error error;
    const struct altered_params params = {contender->altered, source, state->file.model,
                                          contender->rule};
    if (contender->altered != ALTERED_NONE) {
        eval_must(altered_open(&params, &altered, &error), &error);
        source = altered_source(altered);
    }
    eng_driver_settle(driver);
    (void)fprintf(stderr, "%s\n", contender->name);
    for (uint64_t e = 0; e < state->file.entry_count; e++)
        for (uint64_t q = 0; q < state->file.entries[e].question_count; q++)
            ask(state, &state->file.entries[e], q, contender, source);
    altered_close(altered);
    eng_driver_close(driver);
}

/* The contender's codes, from a copy of the rows: it calibrates, and builds them. */
static void build_from_copy(struct state *state, const struct contender *contender)
{
    struct eng_error error;
    copy_store(state, contender->suffix);
    struct eng_driver *driver = open_driver(state, contender->suffix, contender->json, true);
    teach(state, driver);
    eng_driver_settle(driver);
    eval_must(eng_driver_maintain(driver, SPEC_MAINTAIN_BUILD, &error), &error);
    eng_driver_settle(driver);
    eng_driver_close(driver);
}

static bool already_made(const struct state *state, uint64_t number)
{
    for (uint64_t c = 0; c < number; c++)
        if (strcmp(state->contenders[c].suffix, state->contenders[number].suffix) == 0)
            return true;
    return false;
}

static void run_by_plugin(struct state *state)
{
    fill_store(state, "", WITH_PROBES, false); /* one store has rows of both layouts */
    fill_store(state, "", WITH_PROBES ", \"store\": {\"layout\": \"split\"}", false);
    give_lessons(state);
    bool can_copy = state->file.entries[0].taught.ids != NULL;
    for (uint64_t c = 0; c < state->contender_count; c++) {
        const struct contender *contender = &state->contenders[c];
        if (!contender->calibrates)
            copy_store(state, contender->suffix);
        else if (!already_made(state, c) && can_copy && has_default_chunks(contender->name))
            build_from_copy(state, contender);
        else if (!already_made(state, c))
            fill_store(state, contender->suffix, contender->json, true);
        ask_all(state, contender);
    }
}

/* ---- ---- */

static void close_state(struct state *state)
{
    free(state->scratch);
    eng_runner_close(state->holder);
    eng_runner_close(state->runner);
    eval_close(&state->file);
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
    read_contenders(&state);
    const char *pass = bench_option(argc, argv, "--pass", "query");
    state.by_choice = strcmp(pass, "query") != 0;
    state.by_query = strcmp(pass, "choice") != 0;
    eval_open(&state.file, argc, argv);
    state.scratch = eval_must_have(
        calloc((state.file.asked_tokens + 1) * state.file.config->vocab, sizeof(float)));
    eval_must(
        eng_runner_open(state.file.model, ENG_F16, state.file.longest + 1, &state.runner, &error),
        &error);
    if (by_plugin) {
        run_by_plugin(&state);
    } else {
        eval_must(eng_runner_open(state.file.model, ENG_F16, state.file.longest + 1, &state.holder,
                                  &error),
                  &error);
        run_by_engine(&state);
    }
    close_state(&state);
    return 0;
}
