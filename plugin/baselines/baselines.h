/* baselines: the papers' rankings of rows that do not read keys, behind one table of policies.
 *
 *   row_set.c, prefetch.c: layer of a match -> policy -> scores of all rows, or the rows
 *
 *     policy    selection (metric, select.identify)   prefetch (prefetch.predictor)
 *     random    any granules                          any rows
 *     sink                                            first and last rows in turn
 *     static    averages of what requests wanted      the same
 *     layer                                           the caller ranks by the layer below
 *
 *   prefetch.c: scores of a selection -> averages (memory) -> job, checkpoint, close -> store's log
 *               the store's open, or its following      -> averages
 *
 * Invariants: results depend on the match, the configuration and the averages alone. A reader gets
 * averages from its writer's log, and keeps those of its own requests in memory.
 * Threads: open and close by one; the others any.
 * Tests: tests/unit/plugin/test_baselines.c, test_average.c, test_prefetch.c, test_select.c,
 * test_layered.c */
#ifndef SC_PLUGIN_BASELINES_BASELINES_H
#define SC_PLUGIN_BASELINES_BASELINES_H

#include "base/config.h"
#include "base/log.h"
#include "store/load.h"

struct sc_baseline_averages;

struct sc_baseline {
    /* Set by the owner, constant after. */
    const struct sc_config *config;
    struct sc_log *log;
    struct sc_store *const *store; /* open before anything is scored or written */
    void (*on_write)(void *user);  /* writes other state with the averages, or NULL */
    void *user;

    struct sc_baseline_averages *averages; /* set by open, constant after; NULL: none */

    spec_status write_status; /* of the last write of averages; by its thread */
};

/* Opens the averages; a baseline without open learns nothing. */
spec_status sc_baseline_open(struct sc_baseline *baseline, struct sc_alloc *alloc,
                             uint32_t layer_count, struct spec_error *reterr);
void sc_baseline_averages_close(struct sc_baseline_averages *averages);

/* ---- Rankings ------------------------------------------------------------------------------- */

struct sc_baseline_ask { /* a layer of a match: rows are tokens [from_token, token_count) */
    const uint32_t *tokens;
    uint64_t from_token, token_count;
    const struct sc_store_range *ranges;
    uint64_t range_count;
    uint32_t layer;

    /* Prediction only (else 0): number of rows, their destination, a bit per row as scratch. */
    uint64_t k;
    uint32_t *ret_rows;
    uint64_t *bits;
};

enum sc_baseline_answer {
    SC_BASELINE_NOTHING,   /* nothing is known */
    SC_BASELINE_ORDER,     /* scores without weight, or a prediction's rows, best first */
    SC_BASELINE_IMPORTANCE /* scores of importance, as by queries */
};

/* Returns true if rows of this metric are selected without queries. */
static inline bool sc_baseline_is_blind(const struct sc_config *config, uint32_t metric)
{
    return metric == SPEC_METRIC_RANDOM || config->identify == SC_IDENTIFY_STATIC;
}
/* Returns true if the metric's scores are weights; random scores are not. */
static inline bool sc_baseline_weighs(uint32_t metric)
{
    return metric != SPEC_METRIC_RANDOM;
}
/* Returns true if sc_baseline_score selects rows of this metric; it may still know nothing of a
 * layer. */
bool sc_baseline_can_score(const struct sc_baseline *baseline, uint32_t metric);
/* ret_scores [rows] */
enum sc_baseline_answer sc_baseline_score(const struct sc_baseline *baseline,
                                          const struct sc_baseline_ask *ask, uint32_t metric,
                                          float *ret_scores);
/* Requests that must have scored a piece before its averages order its rows: later ones change
 * little (docs/decisions/0045). */
#define SC_BASELINE_ORDER_REQUESTS 2u
/* Requests that must have scored a row since its permutation was last judged, until it is judged
 * again: the averages are then mostly of these (docs/decisions/0045). */
#define SC_BASELINE_REPEAT_REQUESTS 16u
/* Returns how many requests scored a row of the ranges, on average. For background threads. */
uint64_t sc_baseline_order_requests(const struct sc_baseline *baseline,
                                    const struct sc_store_range *ranges, uint64_t range_count);
/* Writes scores of a layer's rows by those averages to ret_scores [rows]; returns how many rows
 * have one. For background threads. */
uint64_t sc_baseline_order_scores(const struct sc_baseline *baseline,
                                  const struct sc_store_range *ranges, uint64_t range_count,
                                  uint32_t layer, float *ret_scores);
/* Writes rows to prefetch to ask->ret_rows, or scores to rank them by to ret_scores [rows]. */
enum sc_baseline_answer sc_baseline_predict(const struct sc_baseline *baseline,
                                            const struct sc_baseline_ask *ask, float *ret_scores);
/* Returns true if a layer's ranking is the prediction of the next layer. */
bool sc_baseline_follows(const struct sc_baseline *baseline);

/* ---- Learning: each accepts averages NULL
 * ------------------------------------------------------- */

/* Scores of a layer's rows from one selection. */
struct sc_baseline_sample {
    const struct sc_store_range *ranges;
    uint64_t range_count;
    uint32_t layer;
    const float *sums; /* importance, row by row in the order of the ranges; 0: not scored */
    /* Returns true if the averages of a range shall include the sample; NULL: all do. */
    bool (*is_kept)(void *user, uint64_t range);
    void *user;
};
/* Adds a sample. Returns true, at the last layer only, if some averages are due to be written. */
bool sc_baseline_averages_note(struct sc_baseline_averages *averages,
                               const struct sc_baseline_sample *sample);
/* Loads an average from the store. */
void sc_baseline_averages_load(struct sc_baseline_averages *averages,
                               const struct sc_store_average *average);
/* Returns true if the log refused some averages: write again. */
bool sc_baseline_averages_refused(struct sc_baseline_averages *averages);
/* Writes averages to the log, in the background of a writer. write: a batch of what is due; true if
 * there is more. write_all: all that changed. */
bool sc_baseline_write(struct sc_baseline *baseline);
void sc_baseline_write_all(struct sc_baseline *baseline);

#endif
