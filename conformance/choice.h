/* choice: computes in float64 what get_important shall deliver with k < R, independently.
 *
 *   scene    a prompt of numbers, [0, matched) stored; queries are numbers too
 *   ask      an item: layer, query rows, budget, metric, ...
 *   verdict  k, each head's k rows, the probes' similarity, one voted set
 *   answer   what the connector delivered, compared with the verdict and with the truth of the rows
 *
 * A verdict is sure if nothing depends on less than 1e-5 of a score, or on 2 / k of a similarity.
 * Only sure sets are compared; the rows of every answer are. DENSE is always allowed, as a miss is,
 * unless hits are required.
 *
 * Threads: one. Tests: see fixture.h. */
#ifndef CONFORMANCE_CHOICE_H
#define CONFORMANCE_CHOICE_H

#include "conformance/fixture.h"

#define FRESH 6u /* tokens behind the match */

struct scene {
    struct fixture *fx;
    struct prompt prompt; /* matched tokens, then FRESH */
    uint64_t matched;
    uint32_t probes, group; /* KV heads that are looked at first; query heads of one */
    bool is_still;          /* every query is 0: all scores are equal */
    uint32_t turn;          /* other queries, so other scores of the same rows */
    uint64_t asked, sure;   /* answers compared; those whose set was */
};

struct ask {
    uint32_t layer;
    uint32_t heads;       /* SPEC_QUERIES_* */
    uint64_t from;        /* of the lookup */
    uint64_t first, rows; /* query rows: of positions matched + first .. */
    float scale;          /* of the queries; 0: the default */
    bool lacks_new_keys, has_negative_slot, lacks_queries;
    bool may_be_dense; /* also where hits are required */
    struct spec_select select;
};

struct answer {
    struct spec_important item;
    struct area area;
    uint32_t *positions;

    /* What the item points to. */
    struct spec_queries queries;
    struct spec_select select;
    struct area new_keys;
    float *query_numbers;
};

/* Closes, opens with members of the configuration for selection beside the command line's; skips
 * where that sets them. probes: keys of so many heads are kept for it. members: more of "select",
 * or
 * "". store: members of "store", or "". */
void scene_configure(struct fixture *fx, uint32_t probes, const char *members, const char *store);
/* Opens and stores: heads share `agree` of 8 parts of every number. */
struct scene scene_open(struct fixture *fx, struct shape shape, uint32_t probes, uint32_t agree,
                        uint64_t seed, uint64_t matched);
void scene_close(struct scene *scene);
struct spec_lookup_result scene_find(struct scene *scene, uint64_t from);

struct ask ask_ratio(uint32_t layer, uint32_t retain_ppm);
/* What scores are multiplied by. */
double ask_scale(const struct ask *ask, const struct shape *shape);

/* What an item needs; get_important is the caller's, with the item that answer_item gives. */
struct answer answer_make(const struct scene *scene, const struct ask *ask,
                          const struct spec_lookup_result *found);
struct spec_important answer_item(const struct ask *ask, struct answer *answer);
void answer_free(struct answer *answer);
/* After the call. */
void answer_expect(struct scene *scene, const struct ask *ask, const struct answer *answer);
/* Both gave the same rows in the same way. */
void answer_expect_same(const struct scene *scene, const struct answer *one,
                        const struct answer *other);
/* lookup, the one item, compared, release; returns result_flags. */
uint32_t scene_ask(struct scene *scene, const struct ask *ask);

#endif
