/* Editions in another order under test: a caller that has scores for every row and says when it is
 * quiet; reads of an edition, whole and of picks, whose every row is what was stored.
 *
 * Threads: one test thread beside the executor's. */
#ifndef SC_TESTS_UNIT_STORE_PERMUTATION_CHECK_H
#define SC_TESTS_UNIT_STORE_PERMUTATION_CHECK_H

#include "tests/unit/store/build_trial.h"
#include "tests/unit/store/quant_check.h"

/* What the caller knows, and when it is quiet. */
struct order_host {
    uint64_t known_from, moments, asked;
    uint64_t turn, noise; /* other scores; a little other */
    uint64_t requests;    /* that scored each row */
    bool is_loud;
};
extern struct order_host order_host; /* zero after orders_on, but for two requests */

float score_of(uint64_t row, uint32_t layer);

/* The world, once it is opened, puts rows in order in spans of so many. */
void orders_on(struct world *world, uint64_t span);
/* NULL: the machine has no such back end. */
struct world *world_ordered(const struct world_setup *setup, uint64_t seed, uint64_t span);
/* Whatever can be put in order is, and has its records if it is quiet. */
void order_all(struct world *world);
/* Rows whose scores have moved are put in order again, from the world's next open on; */
void orders_again(struct world *world);
/* and are so now, after requests enough, if it is quiet. */
void order_again(struct world *world);
/* Rows of the key in layers that are in the order of the present scores, all extents whole. */
uint64_t rows_by_turn(struct world *world, uint64_t key);
/* Keys 1 (of two extents) and 2 in order, and 3 as it was stored. */
void order_some(struct world *world);

struct sc_store_extent_entry *extent_of(struct world *world, uint64_t piece);
/* A bit changes on the simulated disk: of a row of the edition of the piece's extent. */
void slot_damage(struct world *world, uint64_t piece, uint32_t layer, uint64_t row);

void row_check(const struct world *world, const struct match *match, uint32_t layer, uint64_t row,
               const uint8_t *k, const uint8_t *v);

struct picked {
    uint64_t count;
    struct sc_store_read_cost cost;
};
/* Reads picks of the match: each comes once, and is what was stored. wanted: NULL, or bits. */
struct picked gather_load(struct world *world, const struct match *match, uint32_t layer,
                          struct sc_store_gather_rows *picks, const uint64_t *wanted);
/* Parts of at most 12 pieces, some of them one behind the other. */
struct match any_match(struct world *world, uint64_t *random);
/* Parts of any pieces of the world, in any order, are read whole and as picks of one kind or
 * another, by the round. */
void any_parts_ok(struct world *world, uint32_t round, uint64_t *random);

#endif
