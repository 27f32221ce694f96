/* spec-engine: runs a model over a prefix and queries, and prints the cost of each request.
 *
 * Exit status: 2 for a wrong command line, 1 for other bad input, with one line on standard error.
 * Threads: the model's pool. Tests: tests/unit/engine/test_cli.c */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/engine/cli/driver.h"
#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/cli/input.h"
#include "conformance/engine/cli/options.h"
#include "conformance/engine/cli/report.h"
#include "conformance/engine/cli/select_text.h"

struct session {
    struct eng_options options;
    struct eng_model *model;
    struct eng_tokenizer *tokenizer; /* NULL: ids only, and the model has none */
    struct eng_ids prefix;
    struct eng_ids *queries; /* [request_count] */
    uint64_t request_count;
    struct eng_runner *runner;
    struct eng_report *report;
    struct eng_driver *driver; /* NULL: no connector */
    bool terminal;             /* progress is shown */
    bool progress_shown;
    uint64_t request; /* that runs */
};

static void show_progress(void *user, uint64_t tokens_done, uint64_t tokens, uint64_t layer,
                          uint64_t layers)
{
    struct session *session = user;
    (void)fprintf(stderr,
                  "\rrequest %" PRIu64 "/%" PRIu64 ": tokens %" PRIu64 " of %" PRIu64
                  ", layer %" PRIu64 "/%" PRIu64 "\033[K",
                  session->request + 1, session->request_count * session->options.repeat,
                  tokens_done, tokens, layer + 1, layers);
    session->progress_shown = true;
}

static void clear_progress(struct session *session)
{
    if (session->progress_shown)
        (void)fputs("\r\033[K", stderr);
    session->progress_shown = false;
}

static bool needs_text(const struct eng_options *options)
{
    bool text = options->has_prefix && !options->prefix.ids;
    for (uint64_t i = 0; i < options->query_count; i++)
        text |= !options->queries[i].ids;
    return text;
}

/* Texts need a tokenizer; ids only profit from one, so its absence is no error then. */
static eng_status open_tokenizer(struct session *session, struct eng_error *reterr)
{
    struct eng_error absent = {0};
    eng_status status = eng_tokenizer_open(session->options.model, &session->tokenizer, &absent);
    if (status == ENG_OK || !needs_text(&session->options))
        return ENG_OK;
    return eng_fail(reterr, status, "%s", absent.text);
}

static eng_status read_prompts(struct session *session, struct eng_error *reterr)
{
    const struct eng_options *options = &session->options;
    const struct eng_config *config = eng_model_config(session->model);
    bool bos = options->bos == ENG_BOS_ON;
    eng_status status = ENG_OK;
    if (options->has_prefix)
        status = eng_ids_read(&options->prefix, session->tokenizer, &session->prefix, reterr);
    if (status == ENG_OK && options->bos == ENG_BOS_AUTO)
        status = eng_bos_wanted(options->model, config, &bos, reterr);
    if (status == ENG_OK && bos && options->has_prefix && !options->prefix.ids)
        status = eng_ids_put_first(&session->prefix, config->bos, reterr);
    session->request_count = options->query_count == 0 ? 1 : options->query_count;
    session->queries = calloc(session->request_count, sizeof(*session->queries));
    if (status == ENG_OK && session->queries == NULL)
        status = eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for the queries");
    for (uint64_t i = 0; i < options->query_count && status == ENG_OK; i++)
        status =
            eng_ids_read(&options->queries[i], session->tokenizer, &session->queries[i], reterr);
    return status;
}

/* Every prompt must fit the model, and the cache the longest with what it generates. */
static eng_status open_runner(struct session *session, struct eng_error *reterr)
{
    const struct eng_config *config = eng_model_config(session->model);
    uint64_t longest = 0;
    for (uint64_t i = 0; i < session->request_count; i++) {
        uint64_t count = session->prefix.count + session->queries[i].count;
        if (count == 0)
            return eng_fail(reterr, ENG_E_INPUT, "request %" PRIu64 " has no tokens", i);
        if (count > config->positions)
            return eng_fail(reterr, ENG_E_INPUT,
                            "request %" PRIu64 " has %" PRIu64 " tokens, the model %" PRIu64
                            " positions",
                            i, count, config->positions);
        if (session->options.resident && session->queries[i].count == 0)
            return eng_fail(reterr, ENG_E_INPUT, "request %" PRIu64 " has an empty query", i);
        longest = count > longest ? count : longest;
    }
    uint64_t room = config->positions - longest;
    uint64_t capacity =
        longest + (session->options.max_new < room ? session->options.max_new : room);
    return eng_runner_open(session->model, session->options.kv_dtype, capacity, &session->runner,
                           reterr);
}

static eng_status run_request(struct session *session, uint64_t index, struct eng_error *reterr)
{
    const struct eng_options *options = &session->options;
    const struct eng_ids *query = &session->queries[index];
    uint64_t vocab = eng_model_config(session->model)->vocab;
    struct eng_request request = {.index = session->request,
                                  .prefix = session->prefix.ids,
                                  .query = query->ids,
                                  .prefix_count = session->prefix.count,
                                  .query_count = query->count,
                                  .max_new = options->max_new,
                                  .pass_tokens = options->pass_tokens,
                                  .resident = options->resident};
    struct eng_result result = {0};
    uint64_t count = request.prefix_count + request.query_count;
    if (options->all)
        request.all_logits = calloc(count * vocab, sizeof(float));
    if (options->all && request.all_logits == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for the logits of every position");
    const struct eng_source *source =
        session->driver == NULL ? NULL : eng_driver_source(session->driver);
    eng_status status = eng_run(session->runner, &request, source, &result, reterr);
    clear_progress(session);
    if (status == ENG_OK)
        status = eng_report_add(session->report, &request, &result, reterr);
    if (status == ENG_OK && options->all)
        status = eng_report_logits(session->report, request.all_logits, count * vocab, reterr);
    else if (status == ENG_OK)
        status = eng_report_logits(session->report, result.logits, vocab, reterr);
    free(request.all_logits);
    eng_result_done(&result);
    if (status == ENG_OK && session->driver != NULL &&
        eng_driver_store_problem(session->driver) != NULL)
        return eng_fail(reterr, ENG_E_SYSTEM, "connector: %s",
                        eng_driver_store_problem(session->driver));
    return status;
}

static eng_status run_requests(struct session *session, struct eng_error *reterr)
{
    const struct eng_options *options = &session->options;
    const struct eng_ids *warm =
        session->queries[0].count == 0 ? &session->prefix : &session->queries[0];
    eng_status status =
        eng_run_warm(session->runner, warm->ids, warm->count < 64 ? warm->count : 64, reterr);
    if (session->terminal)
        eng_runner_progress(session->runner, show_progress, session);
    if (status == ENG_OK && options->resident)
        status = eng_run_hold(session->runner, session->prefix.ids, session->prefix.count,
                              options->pass_tokens, reterr);
    for (uint64_t round = 0; round < options->repeat; round++) {
        for (uint64_t i = 0; i < session->request_count && status == ENG_OK; i++) {
            status = run_request(session, i, reterr);
            session->request++;
        }
    }
    clear_progress(session);
    return status;
}

/* The plugin's lines reach the terminal on this thread, inside its calls. */
static void show_log(int32_t level, const char *line, void *user)
{
    (void)level;
    clear_progress(user);
    (void)fprintf(stderr, "connector: %s\n", line);
}

static eng_status open_driver(struct session *session, struct eng_error *reterr)
{
    const struct eng_options *options = &session->options;
    struct spec_select select = {0};
    eng_status status = ENG_OK;
    if (options->select != NULL)
        status = eng_select_parse(options->select, &select, reterr);
    else if (options->has_rho)
        select = eng_select_ratio(options->rho);
    if (status != ENG_OK)
        return status;
    struct eng_driver_params params = {.connector = options->connector,
                                       .config = options->config,
                                       .model_dir = options->model,
                                       .model = session->model,
                                       .kv_dtype = options->kv_dtype,
                                       .store = !options->no_store,
                                       .store_query = options->store_query,
                                       .settle = options->settle,
                                       .report = session->report,
                                       .select = select.struct_size == 0 ? NULL : &select,
                                       .ahead = options->ahead,
                                       .hint = options->hint,
                                       .fill = options->fill,
                                       .fill_tokens = options->fill_tokens,
                                       .fill_deadline_ns = options->fill_deadline_us * 1000,
                                       .probe_heads = options->probe_heads,
                                       .probe_queries = options->probe_queries,
                                       .log = show_log,
                                       .log_user = session};
    return eng_driver_open(&params, &session->driver, reterr);
}

static eng_status run_session(struct session *session, struct eng_error *reterr)
{
    struct eng_options *options = &session->options;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (options->threads == 0)
        options->threads = processors > 0 && processors < 64 ? (uint32_t)processors : 64;
    session->terminal = isatty(STDERR_FILENO) != 0;
    eng_status status = eng_model_open(options->model, options->threads, &session->model, reterr);
    if (status == ENG_OK)
        status = open_tokenizer(session, reterr);
    if (status == ENG_OK)
        status = read_prompts(session, reterr);
    if (status == ENG_OK)
        status = open_runner(session, reterr);
    if (status == ENG_OK)
        status = eng_report_open(options, session->tokenizer, &session->report, reterr);
    if (status == ENG_OK && options->connector != NULL)
        status = open_driver(session, reterr);
    if (status == ENG_OK)
        status = run_requests(session, reterr);
    eng_status closed =
        eng_report_close(session->report, status == ENG_OK, status == ENG_OK ? reterr : NULL);
    return status == ENG_OK ? closed : status;
}

static void session_done(struct session *session)
{
    eng_driver_close(session->driver);
    eng_runner_close(session->runner);
    for (uint64_t i = 0; session->queries != NULL && i < session->request_count; i++)
        eng_ids_done(&session->queries[i]);
    free(session->queries);
    eng_ids_done(&session->prefix);
    eng_tokenizer_close(session->tokenizer);
    eng_model_close(session->model);
    eng_options_done(&session->options);
}

static eng_status run_tokenize(const struct eng_options *options, struct eng_error *reterr)
{
    struct eng_tokenizer *tokenizer = NULL;
    eng_status status = eng_tokenizer_open(options->model, &tokenizer, reterr);
    if (status == ENG_OK)
        status = eng_tokenize_lines(tokenizer, stdin, stdout, reterr);
    eng_tokenizer_close(tokenizer);
    return status;
}

int main(int argc, char **argv)
{
    struct session session = {0};
    struct eng_error error = {0};
    if (eng_options_parse(argc, argv, &session.options, &error) != ENG_OK) {
        (void)fprintf(stderr, "spec-engine: %s\n", error.text);
        session_done(&session);
        return 2;
    }
    eng_status status = ENG_OK;
    if (session.options.help)
        (void)fputs(eng_options_usage(), stdout);
    else if (session.options.version)
        (void)puts("spec-engine " SC_VERSION_TEXT);
    else if (session.options.tokenize)
        status = run_tokenize(&session.options, &error);
    else
        status = run_session(&session, &error);
    session_done(&session);
    if (status != ENG_OK)
        (void)fprintf(stderr, "spec-engine: %s\n", error.text);
    return status == ENG_OK ? 0 : 1;
}
