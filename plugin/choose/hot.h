/* Hot blocks (docs/decisions/0028): which rows an extent's has, when one is read, and what it was
 * good for.
 *
 *   build   averages of a layer -> the rows wanted most (the store asks, in the background)
 *   ahead   sketch of layer l + 2 begins -> its hot rows too, if that is expected to pay
 *   set     rows of it that are there already need no read; how many there would have been is
 *           learnt whether it was read or not
 *   fails   the block is forgotten; its rows are read where they always were
 *
 * Holds: sets, exact bits and rows do not depend on it.
 * Does not: allocate after open.
 * Threads: the request's host thread, or whose turn its loads are; choose: the executor's.
 * Tests: tests/unit/plugin/test_hot.c, test_ahead_orders.c */
#ifndef SC_PLUGIN_HOT_H
#define SC_PLUGIN_HOT_H

#include "base/status.h"
#include "plugin/choose/predict.h"

struct sc_plugin_item;
struct sc_plugin_reader;
struct sc_plugin_request;
struct sc_store_range;
struct sc_store_reader;

/* What choices of a layer would have to read without a hot block, and beside it. Smoothed. */
struct sc_plugin_hot_trust {
    _Atomic uint32_t count;      /* choices; 0: nothing is known */
    _Atomic uint32_t rows, runs; /* of the set, in 16ths; a run is rows that follow each other */
    _Atomic uint32_t rest, rest_runs; /* of those of it that the block does not have */
};

struct sc_plugin_hot {
    /* Set by open, constant after. */
    uint64_t rows_max;                  /* of a request's layer, in blocks; 0: none are read */
    float *scores;                      /* choose's */
    struct sc_plugin_hot_trust *trusts; /* [layer_count + 1] the last: of all layers */
    struct sc_store_reader **readers;   /* [max_requests * SC_PLUGIN_SKETCHES] */

    struct sc_plugin_window window; /* that the host computes between two layers */
};

spec_status sc_plugin_hot_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_hot_close(spec_connector *conn);

/* sc_store_hot's. user: the connector. */
bool sc_plugin_hot_choose(void *user, const struct sc_store_range *ranges, uint64_t range_count,
                          uint32_t layer, uint64_t count, uint32_t *ret_rows);

/* The layer's sketch has been begun, and rows of it will be chosen: begins its hot rows, once. */
void sc_plugin_hot_start(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer);
/* The reader that has them; NULL: they are not read. */
struct sc_plugin_reader *sc_plugin_hot_reader(struct sc_plugin_request *request, uint32_t layer);
/* They are not wanted; returns what was read of them. */
uint64_t sc_plugin_hot_drop(spec_connector *conn, struct sc_plugin_request *request,
                            uint32_t layer);
/* A layer's set is chosen, ascending, and its bits are set; how much of it is hot. */
void sc_plugin_hot_learn(spec_connector *conn, const struct sc_plugin_item *item,
                         const uint32_t *set, uint64_t count);
/* Rows of the set that a block was to bring, but for those that stand in the destination, into
 * ret_rows, ascending; how many. */
uint64_t sc_plugin_hot_missing(const struct sc_plugin_item *item, const uint64_t *set_bits,
                               uint32_t *ret_rows);
/* The host is back with the next layer, and has got it. */
void sc_plugin_hot_asked(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                         uint64_t now_ns);
void sc_plugin_hot_served(struct sc_plugin_request *request, uint32_t layer, uint64_t now_ns);
/* Nothing of a request is read ahead any more; a new one has the slot. */
void sc_plugin_hot_end(spec_connector *conn, struct sc_plugin_request *request);

#define SC_PLUGIN_SPAN_ROWS 1024u /* reorder.scope span */

/* ---- order.c --------------------------------------------------------------------------------- */

/* sc_store_order's. user: the connector. */
bool sc_plugin_order_scores(void *user, const struct sc_store_range *ranges, uint64_t range_count,
                            uint32_t layer, float *ret_scores);
uint64_t sc_plugin_order_moment(void *user);
bool sc_plugin_order_is_quiet(void *user, uint64_t moment);
/* What is due by now. The turn's. */
void sc_plugin_order_turn(spec_connector *conn);

#endif
