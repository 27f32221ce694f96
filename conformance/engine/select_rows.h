/* select_rows: chooses rows as the connector must, in float64; the reference that judges it.
 *
 *   queries [rows][heads]   keys of a prefix [R] and new keys [F]
 *        |  softmax of each row over the prefix and the new keys up to it
 *   imp[h][R]   column sums over the rows and over the query heads of KV head h
 *        |  the k best of each probe head       similarity of these sets > threshold?
 *   one set by votes (yes), or each KV head its own k best (no: fallback)
 *
 *   imp[h](j) = sum over g of h, over rows i, of softmax_j(q[g,i] . k[h,j] * scale)
 *   t = j^alpha, j = (k / R) / (2 - k / R); votes, then summed importance, then lower position
 *
 * Plain float64 loops; a set follows from scores by a total order. `near` of a set counts the rows
 * that a connector, which sums in float32, may decide otherwise.
 * Threads: any; a chooser's memory is one thread's at a time.
 * Tests: tests/unit/engine/test_select_rows.c */
#ifndef CONFORMANCE_ENGINE_SELECT_ROWS_H
#define CONFORMANCE_ENGINE_SELECT_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/error.h"
#include "conformance/engine/halffloat.h"

/* Relative distance of two scores that float32 sums may order otherwise. */
#define ENG_SELECT_NEAR 1e-5

enum eng_metric { ENG_METRIC_H2O, ENG_METRIC_LAST, ENG_METRIC_RANDOM };
enum eng_similarity { ENG_SIMILARITY_JACCARD, ENG_SIMILARITY_MASS };

struct eng_select_rule {
    enum eng_metric metric;
    uint64_t retain_ppm; /* k = max(1, ceil(R x ppm / 10^6)) */
    uint64_t count;      /* not 0: k = min(R, count) instead */
    double mass;         /* not 0: the fewest rows that hold this share, at most k */
    uint64_t probe_heads;
    bool per_head; /* always fall back: exact H2O */
    bool one_set;  /* never */
    enum eng_similarity similarity;
    double alpha;          /* jaccard's threshold */
    double mass_threshold; /* similarity mass: below it, fall back */
    uint64_t keep_first, keep_last;
    uint64_t dense_layers; /* the first layers come whole */
    uint64_t unit;         /* rows that are chosen together, on the prefix's grid; 0 reads as 1 */
};

/* As the connector's defaults: IMPRESS with three probe heads and alpha .6. */
struct eng_select_rule eng_select_rule_default(double rho);

struct eng_select_input {
    uint64_t heads, kv_heads, head_dim;
    enum eng_dtype dtype; /* of keys */
    const float *q;       /* [rows][heads][head_dim], rows q_stride floats apart */
    uint64_t q_stride, rows;
    const void *prefix; /* [prefix_count][kv_heads][head_dim] */
    uint64_t prefix_count;
    const void *fresh; /* the same; row i sees fresh_count - rows + i + 1 of them */
    uint64_t fresh_count;
    uint64_t layer, salt; /* metric random: what the draw depends on */
};

/* What was chosen; memory is the chooser's until its next call. */
struct eng_choice {
    uint64_t row_count;   /* k */
    uint64_t lists;       /* 1, or kv_heads */
    const uint32_t *rows; /* [lists][row_count], ascending */
    bool fallback;
    double similarity, threshold;
    uint64_t union_rows;
    /* Rows that float32 sums may have put on the other side, of all lists: a set may differ from
     * these by so many. */
    uint64_t near;
};

struct eng_selectr;

eng_status eng_selectr_open(struct eng_selectr **ret_chooser, struct eng_error *reterr);
void eng_selectr_close(struct eng_selectr *chooser);

/* Importance of KV heads [0, heads): [heads][prefix_count], until the next call of any kind. */
eng_status eng_select_importance(struct eng_selectr *chooser, const struct eng_select_input *input,
                                 uint64_t kv_heads, bool last_row, const double **ret_importance,
                                 struct eng_error *reterr);

/* Errors: ENG_E_NO_MEMORY. */
eng_status eng_select(struct eng_selectr *chooser, const struct eng_select_input *input,
                      const struct eng_select_rule *rule, struct eng_choice *ret_choice,
                      struct eng_error *reterr);

/* k by ratio: max(1, ceil(total x ppm / 10^6)), 0 of 0. */
uint64_t eng_select_k(uint64_t total, uint64_t ppm);

/* The k best of scores, ascending; ties to the lower index. order [2 * count] is scratch,
 * afterwards its first half are all indexes from the best on.  Returns how many rows stand so near
 * the border that float32 may swap them. */
uint64_t eng_select_top(const double *scores, uint64_t count, uint64_t k, uint32_t *order,
                        uint32_t *ret_rows);

/* |A and B| of ascending sets, and Jaccard. */
uint64_t eng_select_overlap(const uint32_t *a, uint64_t a_count, const uint32_t *b,
                            uint64_t b_count);
double eng_select_jaccard(const uint32_t *a, uint64_t a_count, const uint32_t *b, uint64_t b_count);

#endif
