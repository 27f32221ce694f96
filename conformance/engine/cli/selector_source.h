/* selector_source: answers from memory as a connector with selection should.
 *
 * The prefix's KV is kept whole. A pass gets only the rows that select_rows.h, or the caller,
 * chooses in each layer. With the rows that a connector delivered, the logits equal those of the
 * connector's run, bit for bit.
 * Threads: one. Tests: tests/unit/engine/test_select_rows.c, test_select.c */
#ifndef CONFORMANCE_ENGINE_CLI_SELECTOR_SOURCE_H
#define CONFORMANCE_ENGINE_CLI_SELECTOR_SOURCE_H

#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/select_rows.h"

struct eng_selectr_source;

/* What was chosen at one layer of one pass; `input` is what it was chosen by. */
typedef eng_status (*eng_choice_seen)(void *user, const struct eng_attention_view *view,
                                      uint64_t pass, const struct eng_select_input *input,
                                      const struct eng_choice *choice, struct eng_error *reterr);

struct eng_selectr_source_params {
    struct eng_model *model;
    const struct eng_kv *held; /* of the prefix, whole; the caller's, may change between requests */
    const uint64_t *held_tokens; /* how many rows of it are the prefix */
    struct eng_select_rule rule;
    bool no_new_keys;
    eng_choice_seen seen; /* may be NULL */
    void *seen_user;
    /* Not NULL: chooses instead of the rule; ret_choice's rows are its own memory. */
    eng_status (*choose)(void *user, const struct eng_attention_view *view, uint64_t pass,
                         struct eng_choice *ret_choice, struct eng_error *reterr);
    void *select_user;
    /* Not NULL: what eng_hooks.hint asks for. */
    eng_status (*hint)(void *user, const struct eng_hint_view *view, struct eng_error *reterr);
    void *hint_user;
};

eng_status eng_selectr_source_open(const struct eng_selectr_source_params *params,
                                   struct eng_selectr_source **ret_source,
                                   struct eng_error *reterr);
/* Takes NULL. */
void eng_selectr_source_close(struct eng_selectr_source *source);
const struct eng_source *eng_selectr_source_get(const struct eng_selectr_source *source);

/* What the layer's choice is made from, out of a pass: prefix rows from `held`, new ones from the
 * cache, where the pass's own keys have been put from row `matched` + earlier rows on. */
struct eng_select_input eng_select_input_of(const struct eng_config *config,
                                            const struct eng_attention_view *view,
                                            const struct eng_kv *held, uint64_t matched,
                                            uint64_t fresh_count);

#endif
