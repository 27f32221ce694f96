/* model: weights in memory and the forward pass over a batch of sequences.
 *
 *   tokens -> embedding -> [ norm -> q k v -> (rotary) -> round K, V to the cache's dtype
 *                            -> before_attention hook -> append -> attention -> output
 *                            -> norm -> feed-forward -> after_layer hook ] x layers
 *          -> final norm -> head -> logits of the rows asked for
 *
 * Invariants: a token's K, V and logits depend on the tokens and cache rows before it, the cache's
 * dtype and the weights, bit for bit. They do not depend on passes, neighbours, the place in a
 * batch or threads. K and V are rounded to the cache's dtype when made; attention reads the rounded
 * values.
 * Threads: one forward at a time per model, on the model's pool; hooks run on the caller's thread.
 * Tests: tests/unit/engine/test_model.c, test_golden.c */
#ifndef CONFORMANCE_ENGINE_MODEL_H
#define CONFORMANCE_ENGINE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/config.h"
#include "conformance/engine/error.h"
#include "conformance/engine/kv.h"

struct eng_model;

/* Opens dir/config.json and the weights beside it. threads >= 1, the caller's included. */
eng_status eng_model_open(const char *dir, uint32_t threads, struct eng_model **ret_model,
                          struct eng_error *reterr);
void eng_model_close(struct eng_model *model);

const struct eng_config *eng_model_config(const struct eng_model *model);

/* Bytes of weights that a decode step streams (the token table's other rows not included). */
uint64_t eng_model_weight_bytes(const struct eng_model *model);

enum eng_logits { ENG_LOGITS_NONE, ENG_LOGITS_LAST, ENG_LOGITS_ALL };

/* One sequence's share of a forward: new tokens over a cache. The passes of one forward have
 * caches of their own, all of one dtype; but branches of one sequence may share one: each sees what
 * the cache held before the forward, and itself, and they come to stand one behind the other. */
struct eng_pass {
    struct eng_kv *kv;
    const uint32_t *tokens; /* [count], count >= 1 */
    uint64_t count;
    uint64_t first_position; /* of tokens[0]; the others follow */
    enum eng_logits want;
    float *logits; /* written: [vocab] for last, [count][vocab] for all */
    bool branch;
};

/* What before_attention sees. A hook may append prefix rows to pass->kv in this layer (write them
 * at eng_kv_k / eng_kv_v from row kv->rows[layer] on, then raise kv->rows[layer]), or write the
 * layer's first rows and call eng_kv_set_prefix; the new rows are appended behind them when it
 * returns. */
struct eng_attention_view {
    uint64_t layer, pass_index;
    const struct eng_pass *pass;
    const float *q; /* [count][heads][head_dim], after the rotary turn, not scaled */
    const void *k;  /* [count][kv_heads][head_dim] of the cache's dtype, after the rotary turn */
    const void *v;
};

/* Approximate queries of a layer that has not begun: its norm, W_q and rotary turn on the hidden
 * state that there is one layer earlier. */
struct eng_hint_view {
    uint64_t layer; /* whose queries they are like */
    bool after;     /* after the attention of layer - 1; else from that layer's input */
    uint64_t pass_index;
    const struct eng_pass *pass;
    const float *q; /* [count][query_heads][head_dim], rows q_stride floats apart */
    uint64_t q_stride, query_heads;
};

/* Every member may be NULL. A hook that fails ends the forward with its status. */
struct eng_hooks {
    void *user;
    /* For the first hint_heads query heads (0: all), before or after each layer's attention. */
    eng_status (*hint)(void *user, const struct eng_hint_view *view, struct eng_error *reterr);
    uint64_t hint_heads;
    bool hint_before, hint_after;
    eng_status (*before_layer)(void *user, uint64_t layer, struct eng_error *reterr);
    eng_status (*before_attention)(void *user, const struct eng_attention_view *view,
                                   struct eng_error *reterr);
    eng_status (*after_attention)(void *user, uint64_t layer, struct eng_error *reterr);
    /* The layer's rows are final: the last pass->count rows of pass->kv in this layer are new. */
    eng_status (*after_layer)(void *user, uint64_t layer, uint64_t pass_index,
                              const struct eng_pass *pass, struct eng_error *reterr);
};

/* Computes passes [pass_count]; hooks may be NULL. On success every layer of each cache has grown
 * by the pass's count. On failure the caches' rows are what they were, save for rows that hooks
 * appended: truncate before trying again. */
eng_status eng_forward(struct eng_model *model, const struct eng_pass *passes, uint64_t pass_count,
                       const struct eng_hooks *hooks, struct eng_error *reterr);

#endif
