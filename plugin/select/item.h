/* item: one item of a get_important and what it wants of its layer.
 *
 *   the host's struct spec_important -> item: want (which rows), scoring (by what), route (how)
 *
 * Threads: the item's call; for a submitted item its submission. */
#ifndef SC_PLUGIN_SELECT_ITEM_H
#define SC_PLUGIN_SELECT_ITEM_H

#include "kernels/importance.h"
#include "plugin/args/target.h"
#include "plugin/connector.h"

enum sc_plugin_route {
    SC_ROUTE_WHOLE,    /* every row, as asked */
    SC_ROUTE_DENSE,    /* every row, though fewer were asked for */
    SC_ROUTE_GATHER,   /* one set for all heads */
    SC_ROUTE_PER_HEAD, /* a set per head, known beforehand */
    SC_ROUTE_HEADS,    /* a set per head, from all keys in the destination */
    SC_ROUTE_LAYERED,  /* every row, those of the set exactly */
    SC_ROUTE_REFINE,   /* rows of the set that a delivery left quantised */
    SC_ROUTE_RECURRENT /* a recurrent state (args/recurrent.h) */
};

/* Wanted rows: the item's own struct spec_select over the configuration. */
struct sc_plugin_want {
    uint64_t row_total;                /* R: rows of the match, or of its sliding window */
    uint64_t row_count;                /* k; for SPEC_BUDGET_MASS the upper limit */
    uint64_t first_position;           /* position of row 0 */
    uint64_t keep_before, keep_from;   /* always selected: [0, before) and [from, R) */
    uint32_t budget, metric, mass_ppm; /* SPEC_BUDGET_*, SPEC_METRIC_* */
    bool selects;                      /* false: every row is wanted */
    bool is_short;                     /* because the match is short */
    bool is_scored;                    /* queries are needed */
    bool has_head_sets;                /* heads may get different rows */
    bool is_layered;                   /* row_count counts exact rows and may be 0 */
    bool is_known_only;                /* only rows that are selected without queries */
    bool is_cut;                       /* budget_bytes allows fewer than wanted */
};

/* Queries and new keys, checked. In device memory: `queries` and `fresh` are valid from
 * sc_plugin_scoring_fetch until the scratch is put. */
struct sc_plugin_scoring {
    struct sc_kernels_queries queries;
    struct sc_kernels_keys fresh;
    struct sc_plugin_afar queries_afar, fresh_afar;
    float scale; /* of scores */
    bool is_probes_only;
    spec_status lost; /* not OK: the copy from the device failed, and so does the item */
};

struct sc_plugin_item {
    struct spec_important in; /* copy of the host's structure */
    struct sc_plugin_request *request;
    uint32_t named_layer;           /* layer number in the call; in.layer: in the store */
    struct sc_plugin_memory memory; /* the destination */
    bool was_started;               /* the whole layer was being read before the call */
    bool is_late;                   /* an earlier item of the call uses the request's buffers */
    bool is_pieced;                 /* all rows: prefetched ones, and the rest beside them */
    bool keys_first;                /* HEADS: the probe heads are compared in the destination */
    bool has_one_set;               /* and agree */
    uint32_t route;                 /* enum sc_plugin_route */
    uint64_t row_count;             /* rows of the set, or of each head's */
    uint64_t set_count;             /* rows to read, in request->set */
    uint64_t covered_rows;          /* wanted rows that were prefetched */
    uint64_t used_rows;             /* prediction's wanted rows; planner `chunk`: their slabs' */
    uint64_t taken[SPEC_TIERS];     /* rows read, wanted or not, by source tier */
    uint64_t over_ns;               /* when the last rows have crossed the bus (upper_bus.h) */
    struct sc_store_selector *selector; /* the layer's, ready; NULL: not needed or not available */
    uint64_t *placed;                   /* bits of rows written to the destination, or NULL */
    uint64_t forced_rows;               /* layered: rows of the set without quantised rows */
    uint64_t deadline_ns;
    spec_status status;                  /* status of the selection */
    bool is_submitted;                   /* part of a submission */
    bool is_gone;                        /* the request was released meanwhile */
    struct spec_provenance delivered;    /* provenance of rows that were not all exact */
    spec_ticket ticket;                  /* of its submission, or 0 */
    struct sc_plugin_delivery *delivery; /* that it leaves or refines (delivery.h), or NULL */
    float *ranking;                      /* layered: destination of all rows' scores, or NULL */
    struct sc_plugin_want want;
    struct sc_plugin_scoring scoring;
};

/* Returns true for an item that is delivered before its queries; the first item that refines it
 * selects. */
static inline bool sc_plugin_is_ahead(const struct spec_important *in)
{
    return (in->flags & SPEC_ITEM_AHEAD) != 0;
}

/* Returns true if the item's queries rank the rows of a delivery again. */
static inline bool sc_plugin_rescores(const struct spec_important *in)
{
    return (in->flags & SPEC_ITEM_RESCORE) != 0;
}

/* Returns true for an item of a bidirectional load (load/bidirectional.h). */
static inline bool sc_plugin_is_tail(const struct spec_important *in)
{
    return (in->flags & SPEC_ITEM_BIDIRECTIONAL) != 0;
}

static inline uint64_t sc_plugin_row_total(const struct sc_plugin_request *request)
{
    return request->matched_tokens - request->from_token;
}

/* Returns true if the match has rows and no load of them has failed. */
static inline bool sc_plugin_has_loads(const struct sc_plugin_request *request)
{
    return request->range_count > 0 && request->failed_position == UINT64_MAX;
}

/* Writes the results of an item with every row at its place and the match's provenance. */
static inline void sc_plugin_tell_all(struct sc_plugin_item *item)
{
    uint64_t rows = item->want.row_total;
    item->in.row_count = item->in.union_rows = rows;
    item->in.provenance = item->request->provenance;
    for (uint64_t j = 0; item->in.positions != NULL && j < rows; j++)
        item->in.positions[j] = (uint32_t)(item->want.first_position + j);
}

/* Returns the baseline's description of the request's match at a layer. */
static inline struct sc_baseline_ask sc_plugin_baseline_ask(const struct sc_plugin_request *request,
                                                            uint32_t layer)
{
    return (struct sc_baseline_ask){.tokens = request->tokens,
                                    .from_token = request->from_token,
                                    .token_count = request->matched_tokens,
                                    .ranges = request->ranges,
                                    .range_count = request->range_count,
                                    .layer = layer};
}

static inline uint64_t sc_plugin_words_of(const struct sc_plugin_item *item)
{
    return (item->want.row_total + 63) / 64;
}

static inline uint64_t *sc_plugin_head_bits(const struct sc_plugin_item *item, uint64_t head)
{
    return item->request->bits + (2 + head) * sc_plugin_words_of(item);
}

#endif
