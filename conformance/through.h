/* through: forwards of the reference engine that load prefix rows from a connector and store new
 * ones.
 *
 * Several sequences run in one forward, each with its own request:
 *
 *   lookup each -> forward { begin_layer all; per sequence: get_important into its cache;
 *                            prefetch_next; store } -> wait, release each
 *
 * A failed call fails the test with the connector's text. The model has no thread beside the
 * caller's, so that a child may be forked.
 * Threads: one. Tests: see fixture.h. */
#ifndef CONFORMANCE_THROUGH_H
#define CONFORMANCE_THROUGH_H

#include "conformance/engine/model.h"
#include "conformance/fixture.h"

#define SEQUENCES_MAX 8u

struct sequence {
    const uint32_t *tokens;
    uint64_t count;      /* of tokens */
    uint64_t max_tokens; /* of the match; 0: count - 1 */
    uint64_t matched;    /* of the last forward */
    struct eng_kv kv;
    float *logits; /* [vocab] of the last token */
    spec_request request;
    spec_ticket ticket;
};

struct through {
    struct fixture *fx;
    struct eng_model *model;
    const struct eng_config *config;
    bool loads_only; /* stores nothing */
    uint64_t sequence_count;
    struct sequence sequences[SEQUENCES_MAX];
    struct eng_pass passes[SEQUENCES_MAX];
    struct eng_error error;
};

/* Opens the model, and caches of `capacity` tokens; sets the fixture's shape, opens no connector.
 * Skips where the directory is absent. */
void through_open(struct through *through, struct fixture *fx, const char *dir, uint64_t count,
                  uint64_t capacity, enum eng_dtype dtype);
void through_close(struct through *through);

/* Without a connector: tokens behind each cache's rows are computed over what it holds. */
void through_alone(struct through *through);
/* With it, from empty caches. Sequence i may match expected[i] tokens at most. */
void through_connector(struct through *through, const uint64_t *expected);
/* Fails unless logits and the first `count` rows of all layers are the same bytes. */
void through_expect_same(const struct through *have, const struct through *want, uint64_t index,
                         uint64_t count);

#endif
