/* A model's keys and queries by arithmetic, and what importance says of them in float64.
 *
 *   key(position, layer, part, head, i) = n / 64,  query(row, head, i) = n / 16    n small integers
 *
 * so that every value is exact in float32, float16 and bfloat16. `agree` of 8 parts of a value are
 * the same for all heads: 8 makes their sets equal, 0 makes them as different as chance allows.
 *
 * Holds: the reference shares no code with the connector.
 * Threads: any, a world each. */
#ifndef SC_TESTS_UNIT_PLUGIN_SELECT_FIXTURE_H
#define SC_TESTS_UNIT_PLUGIN_SELECT_FIXTURE_H

#include "tests/unit/plugin/plugin_fixture.h"

#include <math.h>

#define FRESH_ROWS 5u /* tokens of the pass: behind the match */

struct world {
    struct rig rig;
    struct prompt prompt; /* matched tokens, then FRESH_ROWS */
    uint64_t matched;
    uint32_t group; /* query heads of a KV head */
    int64_t agree;
    float scale;    /* of queries; 0: the default */
    bool is_uneven; /* channels have ranges of their own: a value is 1, 1/2, 1/4 or 1/8 of n / 64 */
};

float world_kv(const struct world *world, uint64_t position, uint32_t layer, uint32_t part,
               uint64_t head, uint64_t i);
float world_query(const struct world *world, uint64_t position, uint32_t layer, uint64_t head,
                  uint64_t i);
void world_put(uint8_t *dst, uint32_t dtype, float value);

/* Tokens [first, first + count) of K and V in plain memory. */
struct area world_area(const struct world *world, uint64_t first, uint64_t count, uint32_t layer);

void world_store(struct world *world);
/* A world of float16 rows, whose matched, group, agree and is_uneven are set: its rig, which is not
 * open yet, and its prompt. */
void world_make(struct world *world, bool is_sim, const char *extra, uint32_t layers,
                uint32_t heads, uint32_t head_size, uint64_t prompt_seed);
/* Opens what world_make made, and stores the match. */
void world_open_stored(struct world *world);

void world_open(struct world *world, const char *extra, uint32_t heads, uint32_t group,
                uint32_t head_size, uint32_t dtype, uint64_t matched, int64_t agree);

/* A request that all of it is promised to. Threads may free slots behind the search for one, and
 * take those before it: then the lookup says that all are taken, and comes again. */
spec_request look(struct world *world, uint64_t from);

/* The averages of a layer of the whole match; returns how many rows have some. */
uint64_t world_averages(struct world *world, uint32_t layer, float *ret_scores);

void world_done(struct world *world);

/* Releases the world's only request, then world_done. */
void world_leave(struct world *world, spec_request request);

/* The pass's queries [row][query head] and new keys, as a host would have them. */
struct pass {
    uint8_t *queries;
    struct spec_queries q;
    struct area fresh;
};

struct pass world_pass(const struct world *world, uint32_t layer, uint32_t dtype);
void pass_free(struct pass *pass);

/* ---- The reference -------------------------------------------------------------------------- */

/* Importance of rows [from, matched) for one KV head. */
void reference_importance(const struct world *world, uint32_t layer, uint64_t from, uint64_t head,
                          bool with_fresh, bool last_row, double *ret_importance);

/* The k best rows as a map; *gap becomes the least relative distance at the border so far. */
void reference_top(const double *scores, const uint32_t *votes, uint64_t rows, uint64_t k,
                   bool *ret_in, double *gap);

double reference_jaccard(const bool *a, const bool *b, uint64_t rows);

#endif
