/* delivery: what refining needs to know of a layer that was delivered; a ring per request.
 *
 *   ring       [delivery | delivery | ...          ]   the oldest are overwritten
 *   delivery   ticket, layer, destination; if layered: [tags][scores][exact bits]
 *
 * Invariants: a delivery that a call works on keeps its place. A delivery whose destination was
 * written over cannot be refined.
 * Limits: allocates nothing after open.
 * Threads: the owner of the request's loads.
 * Tests: tests/unit/plugin/test_refine.c, test_rescore.c */
#ifndef SC_PLUGIN_SELECT_DELIVERY_H
#define SC_PLUGIN_SELECT_DELIVERY_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;

struct sc_plugin_delivery {
    uint64_t bytes;     /* in the ring, with this header */
    spec_ticket ticket; /* 0: no delivery */
    uint32_t layer;
    uint32_t busy;   /* items of the running call that hold it */
    bool is_void;    /* cannot be refined */
    bool has_lost;   /* another delivery of its ticket is not kept */
    bool is_done;    /* it is in the destination */
    bool is_whole;   /* every row is exact */
    bool came_ahead; /* delivered before its queries */
    bool is_ahead;   /* not ranked yet: the first item with queries ranks it */
    uint32_t bits_k, bits_v;
    void *k_base, *v_base;
    uint64_t where; /* digest of the destination's description */
    uint64_t *tags; /* [rows * tags a row] */
    float *scores;  /* [rows] */
    uint64_t *bits; /* exact rows */
};

struct sc_plugin_found {
    struct sc_plugin_delivery *delivery; /* NULL: the flags say why */
    bool is_known;                       /* the ticket delivered to this request */
    bool is_of_layer;                    /* and to this layer */
    bool is_stale;                       /* the delivery is not kept, or was written over */
};

spec_status sc_plugin_deliveries_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_deliveries_close(spec_connector *conn);
/* Empties the ring of a slot for a new request. */
void sc_plugin_deliveries_forget(struct sc_plugin_request *request);
/* Returns true if the item's delivery fits into the request's share of layered.refine_bytes. */
bool sc_plugin_delivery_fits(const spec_connector *conn, const struct sc_plugin_item *item);
/* Steps of an item's delivery:
 *   hold      keeps what the item refines; for all items of a call, before the first begin
 *   begin     invalidates what the item writes over; allocates a delivery if the call has a ticket
 *   layered   records the tags, and item->placed as the exact rows
 *   end       after the item's status was set */
void sc_plugin_delivery_hold(const struct sc_plugin_item *item);
void sc_plugin_delivery_begin(const spec_connector *conn, struct sc_plugin_item *item);
void sc_plugin_delivery_layered(const spec_connector *conn, const struct sc_plugin_item *item,
                                uint32_t bits_k, uint32_t bits_v);
void sc_plugin_delivery_end(const struct sc_plugin_item *item);
/* Finds the delivery that the item refines. The item's destination was checked. */
struct sc_plugin_found sc_plugin_delivery_find(const spec_connector *conn,
                                               const struct sc_plugin_item *item);

#endif
