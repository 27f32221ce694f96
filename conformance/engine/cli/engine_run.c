/* engine_run: runs requests. See engine_run.h. */
#include "conformance/engine/cli/engine_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conformance/engine/generate.h"

#define RESTARTS_MAX 16

struct eng_runner {
    struct eng_model *model;
    struct eng_kv kv;
    uint64_t held; /* rows of the resident prefix */
    eng_progress progress;
    void *progress_user;
    /* Of the pass that runs, for progress. */
    const struct eng_hooks *inner; /* the source's, or NULL */
    uint64_t tokens_done, tokens;
};

uint64_t eng_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

eng_status eng_runner_open(struct eng_model *model, enum eng_dtype kv_dtype, uint64_t capacity,
                           struct eng_runner **ret_runner, struct eng_error *reterr)
{
    struct eng_runner *runner = calloc(1, sizeof(*runner));
    if (runner == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a runner");
    runner->model = model;
    eng_status status =
        eng_kv_init(&runner->kv, eng_model_config(model), kv_dtype, capacity, reterr);
    if (status != ENG_OK) {
        free(runner);
        return status;
    }
    eng_kv_touch(&runner->kv);
    *ret_runner = runner;
    return ENG_OK;
}

void eng_runner_close(struct eng_runner *runner)
{
    if (runner == NULL)
        return;
    eng_kv_done(&runner->kv);
    free(runner);
}

void eng_runner_progress(struct eng_runner *runner, eng_progress progress, void *user)
{
    runner->progress = progress;
    runner->progress_user = user;
}

const struct eng_kv *eng_runner_kv(const struct eng_runner *runner)
{
    return &runner->kv;
}

/* Shows progress, then asks the source. */
static eng_status run_before_layer(void *user, uint64_t layer, struct eng_error *reterr)
{
    struct eng_runner *runner = user;
    const struct eng_hooks *inner = runner->inner;
    if (runner->progress != NULL)
        runner->progress(runner->progress_user, runner->tokens_done, runner->tokens, layer,
                         eng_model_config(runner->model)->layers);
    if (inner == NULL || inner->before_layer == NULL)
        return ENG_OK;
    return inner->before_layer(inner->user, layer, reterr);
}

static eng_status run_before_attention(void *user, const struct eng_attention_view *view,
                                       struct eng_error *reterr)
{
    const struct eng_hooks *inner = ((struct eng_runner *)user)->inner;
    if (inner == NULL || inner->before_attention == NULL)
        return ENG_OK;
    return inner->before_attention(inner->user, view, reterr);
}

static eng_status run_hint(void *user, const struct eng_hint_view *view, struct eng_error *reterr)
{
    const struct eng_hooks *inner = ((struct eng_runner *)user)->inner;
    return inner->hint(inner->user, view, reterr);
}

static eng_status run_after_attention(void *user, uint64_t layer, struct eng_error *reterr)
{
    const struct eng_hooks *inner = ((struct eng_runner *)user)->inner;
    if (inner == NULL || inner->after_attention == NULL)
        return ENG_OK;
    return inner->after_attention(inner->user, layer, reterr);
}

static eng_status run_after_layer(void *user, uint64_t layer, uint64_t pass_index,
                                  const struct eng_pass *pass, struct eng_error *reterr)
{
    const struct eng_hooks *inner = ((struct eng_runner *)user)->inner;
    if (inner == NULL || inner->after_layer == NULL)
        return ENG_OK;
    return inner->after_layer(inner->user, layer, pass_index, pass, reterr);
}

/* Computes tokens [from, count) in passes; logits: [vocab] of the last one, or NULL. */
static eng_status run_passes(struct eng_runner *runner, const uint32_t *tokens, uint64_t from,
                             uint64_t count, uint64_t pass_tokens, float *logits,
                             const struct eng_request *request, const struct eng_hooks *inner,
                             struct eng_error *reterr)
{
    float *all_logits = request == NULL ? NULL : request->all_logits;
    float *query_logits = request == NULL ? NULL : request->query_logits;
    uint64_t vocab = eng_model_config(runner->model)->vocab;
    struct eng_hooks hooks = {.user = runner,
                              .before_layer = run_before_layer,
                              .before_attention = run_before_attention,
                              .after_attention = run_after_attention,
                              .after_layer = run_after_layer};
    uint64_t step = pass_tokens == 0 ? count : pass_tokens;
    runner->inner = inner;
    runner->tokens = count;
    for (uint64_t first = from; first < count; first += step) {
        bool last = count - first <= step;
        struct eng_pass pass = {.kv = &runner->kv,
                                .tokens = tokens + first,
                                .count = last ? count - first : step,
                                .first_position = first,
                                .want = last && logits != NULL ? ENG_LOGITS_LAST : ENG_LOGITS_NONE,
                                .logits = logits};
        if (all_logits != NULL) {
            pass.want = ENG_LOGITS_ALL;
            pass.logits = all_logits + first * vocab;
        }
        if (inner != NULL) {
            hooks.hint = inner->hint == NULL ? NULL : run_hint;
            hooks.hint_heads = inner->hint_heads;
            hooks.hint_before = inner->hint_before;
            hooks.hint_after = inner->hint_after;
        }
        if (query_logits != NULL) {
            if (first < request->prefix_count)
                return eng_fail(reterr, ENG_E_INVALID,
                                "logits of the query alone, and %" PRIu64 " tokens of the prefix "
                                "are to be computed with it",
                                request->prefix_count - first);
            pass.want = ENG_LOGITS_ALL;
            pass.logits = query_logits + (first - request->prefix_count) * vocab;
        }
        runner->tokens_done = first;
        eng_status status = eng_forward(runner->model, &pass, 1, &hooks, reterr);
        if (status != ENG_OK)
            return status;
    }
    if (all_logits != NULL && logits != NULL)
        memcpy(logits, all_logits + (count - 1) * vocab, vocab * sizeof(float));
    if (query_logits != NULL && logits != NULL)
        memcpy(logits, query_logits + (count - 1 - request->prefix_count) * vocab,
               vocab * sizeof(float));
    return ENG_OK;
}

eng_status eng_run_warm(struct eng_runner *runner, const uint32_t *tokens, uint64_t count,
                        struct eng_error *reterr)
{
    uint64_t vocab = eng_model_config(runner->model)->vocab;
    float *logits = calloc(vocab, sizeof(*logits));
    if (logits == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for logits");
    runner->held = 0;
    eng_kv_truncate(&runner->kv, 0);
    eng_status status = run_passes(runner, tokens, 0, count, 0, logits, NULL, NULL, reterr);
    eng_kv_truncate(&runner->kv, 0);
    free(logits);
    return status;
}

eng_status eng_run_hold(struct eng_runner *runner, const uint32_t *prefix, uint64_t count,
                        uint64_t pass_tokens, struct eng_error *reterr)
{
    runner->held = 0;
    eng_kv_truncate(&runner->kv, 0);
    eng_status status = run_passes(runner, prefix, 0, count, pass_tokens, NULL, NULL, NULL, reterr);
    if (status == ENG_OK)
        runner->held = count;
    return status;
}

/* What a source that matched these tokens wants computed of them. */
static eng_status run_front(struct eng_runner *runner, const struct eng_source *source,
                            const uint32_t *tokens, uint64_t matched, struct eng_error *reterr)
{
    for (uint64_t first = 0;;) {
        uint64_t count = 0;
        eng_status status = source->front(source->user, &runner->kv, &count, reterr);
        if (status != ENG_OK || count == 0)
            return status;
        if (count > matched - first)
            return eng_fail(reterr, ENG_E_INVALID,
                            "a source that matched %" PRIu64 " tokens gave %" PRIu64
                            " to compute from %" PRIu64 " on",
                            matched, count, first);
        status = run_passes(runner, tokens, first, first + count, count, NULL, NULL, NULL, reterr);
        if (status != ENG_OK)
            return status;
        first += count;
    }
}

/* From ids to first logits. A source whose promised rows are lost is asked again, at last not. */
static eng_status run_prompt(struct eng_runner *runner, const struct eng_request *request,
                             const struct eng_source *source, const uint32_t *tokens,
                             uint64_t count, struct eng_result *result, struct eng_error *reterr)
{
    for (;;) {
        uint64_t matched = request->resident ? runner->held : 0;
        bool ask = source != NULL && result->restarts < RESTARTS_MAX;
        eng_status status = ENG_OK;
        eng_kv_truncate(&runner->kv, matched);
        if (ask)
            status = source->begin(source->user, request, tokens, count, result, &matched, reterr);
        if (status == ENG_OK && matched >= count)
            status = eng_fail(reterr, ENG_E_INVALID,
                              "a source matched %" PRIu64 " of %" PRIu64
                              " tokens, at least one must be left to compute",
                              matched, count);
        if (status != ENG_OK)
            return status;
        result->matched_tokens = matched;
        result->new_tokens = count - matched;
        if (ask && source->front != NULL)
            status = run_front(runner, source, tokens, matched, reterr);
        if (status == ENG_OK)
            status = run_passes(runner, tokens, matched, count, request->pass_tokens,
                                result->logits, request, ask ? &source->hooks : NULL, reterr);
        if (status != ENG_E_RESTART || !ask)
            return status;
        result->restarts++;
    }
}

static eng_status run_decode(struct eng_runner *runner, const struct eng_request *request,
                             const struct eng_source *source, uint64_t position,
                             struct eng_result *result, struct eng_error *reterr)
{
    uint64_t start = eng_clock_ns();
    eng_status status = eng_generate(runner->model, &runner->kv, position, result->logits,
                                     request->max_new, source == NULL ? NULL : &source->hooks,
                                     result->tokens, &result->token_count, reterr);
    result->decode_ns = eng_clock_ns() - start;
    if (status == ENG_OK)
        result->ended = eng_config_is_eos(eng_model_config(runner->model),
                                          result->tokens[result->token_count - 1]);
    return status;
}

eng_status eng_run_branches(struct eng_runner *runner, const struct eng_branch *branches,
                            uint64_t branch_count, uint64_t position, struct eng_error *reterr)
{
    struct eng_pass *passes = calloc(branch_count + 1, sizeof(*passes));
    if (passes == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for branches");
    uint64_t rows = runner->kv.rows[0]; /* the same in every layer, a gap counted */
    for (uint64_t i = 0; i < branch_count; i++)
        passes[i] = (struct eng_pass){.kv = &runner->kv,
                                      .tokens = branches[i].tokens,
                                      .count = branches[i].count,
                                      .first_position = position,
                                      .want = ENG_LOGITS_ALL,
                                      .logits = branches[i].logits,
                                      .branch = true};
    eng_status status =
        branch_count == 0 ? ENG_OK : eng_forward(runner->model, passes, branch_count, NULL, reterr);
    eng_kv_truncate(&runner->kv, rows);
    free(passes);
    return status;
}

void eng_run_forget(struct eng_runner *runner, uint64_t rows)
{
    eng_kv_truncate(&runner->kv, runner->kv.rows[0] - rows);
}

static eng_status run_memory(struct eng_runner *runner, const struct eng_request *request,
                             struct eng_result *result, uint32_t **ret_tokens,
                             struct eng_error *reterr)
{
    uint64_t count = request->prefix_count + request->query_count;
    uint32_t *tokens = calloc(count + 1, sizeof(*tokens));
    result->logits = calloc(eng_model_config(runner->model)->vocab, sizeof(float));
    result->tokens = calloc(request->max_new, sizeof(*result->tokens));
    if (tokens == NULL || result->logits == NULL || result->tokens == NULL) {
        free(tokens);
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a request");
    }
    if (request->prefix_count != 0)
        memcpy(tokens, request->prefix, request->prefix_count * sizeof(*tokens));
    if (request->query_count != 0)
        memcpy(tokens + request->prefix_count, request->query,
               request->query_count * sizeof(*tokens));
    *ret_tokens = tokens;
    return ENG_OK;
}

eng_status eng_run(struct eng_runner *runner, const struct eng_request *request,
                   const struct eng_source *source, struct eng_result *ret_result,
                   struct eng_error *reterr)
{
    uint64_t count = request->prefix_count + request->query_count;
    struct eng_result result = {0};
    uint32_t *tokens = NULL;
    if (count == 0 || request->max_new == 0)
        return eng_fail(reterr, ENG_E_INVALID, "a request needs a token and one to generate");
    if (request->resident && runner->held != request->prefix_count)
        return eng_fail(reterr, ENG_E_INVALID, "the prefix of a resident request is not held");
    if (!request->resident)
        runner->held = 0;
    eng_status status = run_memory(runner, request, &result, &tokens, reterr);
    if (status == ENG_OK) {
        uint64_t start = eng_clock_ns();
        status = run_prompt(runner, request, source, tokens, count, &result, reterr);
        result.ttft_ns = eng_clock_ns() - start;
    }
    if (status == ENG_OK)
        status = run_decode(runner, request, source, count, &result, reterr);
    if (source != NULL && tokens != NULL) {
        eng_status settled =
            source->settle(source->user, &result, status == ENG_OK ? reterr : NULL);
        status = status == ENG_OK ? settled : status;
    }
    free(tokens);
    if (status != ENG_OK) {
        eng_result_done(&result);
        return status;
    }
    uint64_t parts = result.lookup_ns + result.probe_ns + result.io_exposed_ns;
    result.compute_ns = result.ttft_ns > parts ? result.ttft_ns - parts : 0;
    *ret_result = result;
    return ENG_OK;
}

void eng_result_done(struct eng_result *result)
{
    free(result->logits);
    free(result->tokens);
    *result = (struct eng_result){0};
}
