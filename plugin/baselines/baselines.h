/* Baselines: how the papers rank rows without reading their keys, behind one table. Callers ask
 * here and have no branch of their own for a policy.
 *
 *   row_set.c, prefetch.c: layer of a match -> policy -> scores of all rows, or the rows
 *
 *     policy    a choice (metric, select.identify)    rows read ahead (prefetch.predictor)
 *     random    any granules                          any rows
 *     sink                                            first and last ones in turn
 *     static    averages of what requests wanted      the same
 *     layer                                           who asks ranks them by the layer below
 *
 *   prefetch.c: scores of a choice -> averages (memory) -> job, checkpoint, close -> store's log
 *               the store's open, or its following      -> averages
 *
 * Holds: what it says of a layer follows from the match, the configuration and the averages. A
 * reader learns from its writer's log, and keeps what its own requests add in memory.
 * Does not: know the plugin, or look at a key.
 * Threads: open and close by one; the others any.
 * Tests: tests/unit/plugin/test_baselines.c, test_average.c, test_prediction.c, test_select.c,
 * test_layered.c
 */
#ifndef SC_PLUGIN_BASELINES_BASELINES_H
#define SC_PLUGIN_BASELINES_BASELINES_H

#include "base/config.h"
#include "base/log.h"
#include "store/load.h"

struct sc_baseline_averages;

struct sc_baseline {
    /* Set by whoever has it, constant after. */
    const struct sc_config *config;
    struct sc_log *log;
    struct sc_store *const *store; /* there before anything is asked or written */
    void (*on_write)(void *user);  /* NULL, or who else learns: writes it when averages are */
    void *user;

    struct sc_baseline_averages *averages; /* set by open, constant after; NULL: none are kept */

    spec_status write_status; /* of the averages that were written last; whoever writes */
};

/* Averages are kept; a baseline that was not opened learns nothing. */
spec_status sc_baseline_open(struct sc_baseline *baseline, struct sc_alloc *alloc,
                             uint32_t layer_count, struct spec_error *reterr);
void sc_baseline_averages_close(struct sc_baseline_averages *averages);

/* ---- Rankings ------------------------------------------------------------------------------- */

struct sc_baseline_ask { /* a layer of a match; its rows are tokens [from_token, token_count) */
    const uint32_t *tokens;
    uint64_t from_token, token_count;
    const struct sc_store_range *ranges;
    uint64_t range_count;
    uint32_t layer;

    /* Of a guess (of a choice 0): how many rows, where to; memory for a bit a row. */
    uint64_t k;
    uint32_t *ret_rows;
    uint64_t *bits;
};

enum sc_baseline_answer {
    SC_BASELINE_NOTHING, /* it does not know */
    SC_BASELINE_ORDER,   /* as it is: scores that weigh nothing; of a guess the rows, best first */
    SC_BASELINE_IMPORTANCE /* scores of importance, as those by queries are */
};

/* Rows of this metric are chosen without queries, so configured. */
static inline bool sc_baseline_is_blind(const struct sc_config *config, uint32_t metric)
{
    return metric == SPEC_METRIC_RANDOM || config->identify == SC_IDENTIFY_STATIC;
}
/* Rows of this metric have a share of something; else they are as good as any others. */
static inline bool sc_baseline_weighs(uint32_t metric)
{
    return metric != SPEC_METRIC_RANDOM;
}
/* Such rows are asked for here (sc_baseline_score, which may still know nothing of a layer). */
bool sc_baseline_can_score(const struct sc_baseline *baseline, uint32_t metric);
/* ret_scores [rows] */
enum sc_baseline_answer sc_baseline_score(const struct sc_baseline *baseline,
                                          const struct sc_baseline_ask *ask, uint32_t metric,
                                          float *ret_scores);
/* So many requests must have scored a piece before its averages say in which order its rows stand:
 * they say nearly as much then as later (docs/decisions/0045). */
#define SC_BASELINE_ORDER_REQUESTS 2u
/* Scores of a layer's rows by those averages, into ret_scores [rows]; returns how many rows have
 * one. In the background. */
uint64_t sc_baseline_order_scores(const struct sc_baseline *baseline,
                                  const struct sc_store_range *ranges, uint64_t range_count,
                                  uint32_t layer, float *ret_scores);
/* Rows to read ahead, in ask->ret_rows, or ret_scores [rows] to rank them by. */
enum sc_baseline_answer sc_baseline_predict(const struct sc_baseline *baseline,
                                            const struct sc_baseline_ask *ask, float *ret_scores);
/* The ranking of a layer is the guess at the next one. */
bool sc_baseline_follows(const struct sc_baseline *baseline);

/* ---- Learning: averages NULL is taken by each ------------------------------------------------ */

/* What one choice made of a layer's rows. */
struct sc_baseline_sample {
    const struct sc_store_range *ranges;
    uint64_t range_count;
    uint32_t layer;
    const float *sums; /* of importance, row by row in the order of the ranges; 0: not scored */
    /* Whether the averages of a range's rows follow the sample; NULL: all do. */
    bool (*is_kept)(void *user, uint64_t range);
    void *user;
};
/* true: some of it is worth writing soon (said at the last layer only). */
bool sc_baseline_averages_note(struct sc_baseline_averages *averages,
                               const struct sc_baseline_sample *sample);
/* What the store tells. */
void sc_baseline_averages_load(struct sc_baseline_averages *averages,
                               const struct sc_store_average *average);
/* The log did not take some: write once more. */
bool sc_baseline_averages_refused(struct sc_baseline_averages *averages);
/* A writer's, in the background: what is due, to the log. write: a part of it; true: there is more.
 * write_all: whatever changed. */
bool sc_baseline_write(struct sc_baseline *baseline);
void sc_baseline_write_all(struct sc_baseline *baseline);

#endif
