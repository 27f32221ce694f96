/* What was delivered and may be refined: what refining needs to know of it, a ring a request.
 * Holds: a delivery that a call works at keeps its place; what another delivery wrote over is
 * refined no more.
 * Does not: allocate after open.
 * Threads: whose turn the request's loads are.
 * Tests: tests/unit/plugin/test_refine.c, test_rescore.c */
#ifndef SC_PLUGIN_SELECT_DELIVERY_H
#define SC_PLUGIN_SELECT_DELIVERY_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;

struct sc_plugin_delivery {
    uint64_t bytes;     /* of the ring, this head included */
    spec_ticket ticket; /* 0: nothing stands here */
    uint32_t layer;
    uint32_t busy;   /* items of the running call that hold it */
    bool is_void;    /* of no use any more */
    bool has_lost;   /* another one of its ticket is not kept */
    bool is_done;    /* it stands in the destination */
    bool is_whole;   /* all of it exactly */
    bool came_ahead; /* of its queries */
    bool is_ahead;   /* and its rows are ranked by what refines it first */
    uint32_t bits_k, bits_v;
    void *k_base, *v_base;
    uint64_t where; /* digest of the destination's description */
    uint64_t *tags; /* [rows * tags a row] */
    float *scores;  /* [rows] */
    uint64_t *bits; /* of rows that are exact */
};

struct sc_plugin_found {
    struct sc_plugin_delivery *delivery; /* or NULL, and why: */
    bool is_known;                       /* the ticket delivered something here */
    bool is_of_layer;                    /* this layer, among that */
    bool is_stale;                       /* what it was is not kept, or was written over */
};

spec_status sc_plugin_deliveries_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_deliveries_close(spec_connector *conn);
/* Empties the ring of a slot that a new request takes. */
void sc_plugin_deliveries_forget(struct sc_plugin_request *request);
/* Whether a request's share of layered.refine_bytes has room for what the item would leave. */
bool sc_plugin_delivery_fits(const spec_connector *conn, const struct sc_plugin_item *item);
/* Hold: what a refining item works at keeps its place; of all items of a call before the first
 * begin. Begin: what the item writes over is refined no more; what it leaves has room, if its call
 * has a ticket. layered: it stands in the destination, as item->placed says. End: after its status.
 */
void sc_plugin_delivery_hold(const struct sc_plugin_item *item);
void sc_plugin_delivery_begin(const spec_connector *conn, struct sc_plugin_item *item);
void sc_plugin_delivery_layered(const spec_connector *conn, const struct sc_plugin_item *item,
                                uint32_t bits_k, uint32_t bits_v);
void sc_plugin_delivery_end(const struct sc_plugin_item *item);
/* What the item, whose destination was checked, refines. */
struct sc_plugin_found sc_plugin_delivery_find(const spec_connector *conn,
                                               const struct sc_plugin_item *item);

#endif
