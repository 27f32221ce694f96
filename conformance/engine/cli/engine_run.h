/* engine_run: runs a prefix and a query to the first logits, then decodes greedily, with times.
 *
 *   |<------------- ttft ------------->|
 *   ids in hand -> begin -> passes ... -> first logits -> decode ... -> settle
 *                  (a source may match a part of the prefix and supply its rows by hooks)
 *
 * ttft starts with token ids and memory ready, and stops with the logits of the last prompt token.
 * A source's pending writes are awaited after it. Requests of one runner share a KV cache in turn,
 * so its pages are warm.
 * Threads: one at a time. Tests: tests/unit/engine/test_cli.c */
#ifndef CONFORMANCE_ENGINE_CLI_ENGINE_RUN_H
#define CONFORMANCE_ENGINE_CLI_ENGINE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/error.h"
#include "conformance/engine/model.h"

/* When a source is given hints: from the hidden state before a layer's attention, after it. */
enum eng_hint { ENG_HINT_NONE, ENG_HINT_BEFORE, ENG_HINT_AFTER, ENG_HINT_BOTH };

/* How a match's rows come: layer by layer, before each attention; or from its last row on, while
 * the first ones are computed, until both have met. */
enum eng_fill { ENG_LOAD_POLICY_LOAD, ENG_LOAD_POLICY_ENDS };

#define ENG_TIERS 4 /* gpu, host, disk, remote */

struct eng_request {
    uint64_t index; /* for progress and traces */
    const uint32_t *prefix, *query;
    uint64_t prefix_count, query_count;
    uint64_t max_new;     /* >= 1 */
    uint64_t pass_tokens; /* tokens a pass; 0: all at once */
    bool resident;        /* the prefix is already held: eng_run_hold */
    float *all_logits;    /* NULL, or [prefix + query][vocab] written */
    float *query_logits;  /* NULL, or [query][vocab] written: passes begin behind the prefix then */
};

struct eng_result {
    uint64_t matched_tokens; /* of the prompt, taken from the source (or held) */
    uint64_t new_tokens;     /* of the prompt, behind them: computed */
    /* Of the matched tokens, where the source has a front: those that were computed after all,
     * those whose rows came, and of the computed ones those that were to come and did not. */
    uint64_t front_tokens, tail_tokens, returned_tokens;
    uint64_t ttft_ns, lookup_ns, probe_ns, io_exposed_ns, compute_ns, decode_ns;
    uint64_t bytes_wanted, bytes_read, io_ops;
    uint64_t tier_hits[ENG_TIERS]; /* rows by the tier they came from */
    /* Summed over the layers that were asked for, in every pass of the prompt. */
    uint64_t layers_loaded, fallback_layers, dense_layers;
    uint64_t layers_ahead; /* whole ones that were asked for while the one below was computed */
    uint64_t rows_matched, rows_selected, rows_union, rows_prefetched, bytes_unused;
    uint64_t restarts; /* forwards begun again because promised rows were lost */
    float *logits;     /* [vocab]: of the last prompt token */
    uint32_t *tokens;  /* [token_count] generated, the first from `logits` */
    uint64_t token_count;
    bool ended; /* the last token is an end-of-sequence one */
};

/* Where a request's prefix may come from: a connector's driver. None but front may be NULL. */
struct eng_source {
    void *user;
    struct eng_hooks hooks; /* of every pass of the request, decoding too */
    /* The clock runs. ret_matched: leading tokens whose rows the hooks will supply, below
     * token_count. Called again after a pass that ended with ENG_E_RESTART. */
    eng_status (*begin)(void *user, const struct eng_request *request, const uint32_t *tokens,
                        uint64_t token_count, struct eng_result *result, uint64_t *ret_matched,
                        struct eng_error *reterr);
    /* NULL, or asked after begin until it gives 0: the next tokens of the match, from its first one
     * on, that are computed although they matched, in one pass, for which no hook is called. Their
     * rows come to stand in kv, as ever; with 0 it has put all others of the match there. */
    eng_status (*front)(void *user, struct eng_kv *kv, uint64_t *ret_count,
                        struct eng_error *reterr);
    /* After decoding, or after a failure: waits for what is still written, ends the request and
     * fills in what it cost. */
    eng_status (*settle)(void *user, struct eng_result *result, struct eng_error *reterr);
};

/* Called before each layer of a prompt's pass, e.g. to show progress; may be NULL. */
typedef void (*eng_progress)(void *user, uint64_t tokens_done, uint64_t tokens, uint64_t layer,
                             uint64_t layers);

struct eng_runner;

/* capacity: the longest prompt and what it generates. */
eng_status eng_runner_open(struct eng_model *model, enum eng_dtype kv_dtype, uint64_t capacity,
                           struct eng_runner **ret_runner, struct eng_error *reterr);
void eng_runner_close(struct eng_runner *runner);
void eng_runner_progress(struct eng_runner *runner, eng_progress progress, void *user);

/* One pass over the tokens, whose rows are forgotten: touches weights and memory. */
eng_status eng_run_warm(struct eng_runner *runner, const uint32_t *tokens, uint64_t count,
                        struct eng_error *reterr);

/* Computes the prefix and keeps its rows for requests that are `resident`. */
eng_status eng_run_hold(struct eng_runner *runner, const uint32_t *prefix, uint64_t count,
                        uint64_t pass_tokens, struct eng_error *reterr);

/* source may be NULL: everything is computed. ret_result is ended by eng_result_done, on success
 * only. */
eng_status eng_run(struct eng_runner *runner, const struct eng_request *request,
                   const struct eng_source *source, struct eng_result *ret_result,
                   struct eng_error *reterr);
void eng_result_done(struct eng_result *result);

/* Continuations of what the last request left in the cache, each from `position` on and each by
 * itself; the cache is afterwards as it was. Its capacity has room for all of them. */
struct eng_branch {
    const uint32_t *tokens; /* [count], count >= 1 */
    uint64_t count;
    float *logits; /* written: [count][vocab] */
};
eng_status eng_run_branches(struct eng_runner *runner, const struct eng_branch *branches,
                            uint64_t branch_count, uint64_t position, struct eng_error *reterr);

/* Drops the last `rows` rows that the last request left in the cache: decoded tokens, so that
 * branches continue behind its prompt. */
void eng_run_forget(struct eng_runner *runner, uint64_t rows);

/* The runner's cache, as the last request left it. */
const struct eng_kv *eng_runner_kv(const struct eng_runner *runner);

/* Nanoseconds of the monotonic clock. */
uint64_t eng_clock_ns(void);

#endif
