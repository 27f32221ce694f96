/* item: one item of a get_important, and what it wants of its layer.
 *
 *   the host's struct spec_important -> item: want (which rows), scoring (by what), route (how)
 *
 * Threads: the item's call has it; a submitted item its submission. */
#ifndef SC_PLUGIN_SELECT_ITEM_H
#define SC_PLUGIN_SELECT_ITEM_H

#include "kernels/importance.h"
#include "plugin/args/target.h"
#include "plugin/connector.h"

enum sc_plugin_route {
    SC_ROUTE_WHOLE,    /* every row, as asked */
    SC_ROUTE_DENSE,    /* every row, though fewer were asked for */
    SC_ROUTE_GATHER,   /* one set for all heads */
    SC_ROUTE_PER_HEAD, /* a set a head, known beforehand */
    SC_ROUTE_HEADS,    /* a set a head, of all keys in the destination */
    SC_ROUTE_LAYERED,  /* every row, those of the set exactly */
    SC_ROUTE_REFINE,   /* rows of the set that a delivery left coarse */
    SC_ROUTE_RECURRENT /* of a layer that keeps one (args/recurrent.h) */
};

/* What an item wants: its own struct spec_select over the configuration. */
struct sc_plugin_want {
    uint64_t row_total;                /* R: the match's, of a window's layer its last */
    uint64_t row_count;                /* k; of the budget mass: at most */
    uint64_t first_position;           /* of row 0 */
    uint64_t write_through_before, keep_from; /* rows [0, before) and [from, R) are always chosen */
    uint32_t budget, metric, mass_ppm; /* SPEC_BUDGET_*, SPEC_METRIC_* */
    bool selects;                      /* false: every row is wanted */
    bool is_short;                     /* so, because of the match's length */
    bool is_scored;                    /* queries are needed */
    bool has_head_sets;                /* heads may get rows of their own */
    bool is_layered;                   /* row_count is of the exact rows, 0 allowed */
    bool is_known_only;                /* and only of those that need no queries */
    bool is_cut;                       /* budget_bytes allows fewer than were asked for */
};

/* Queries and new keys, checked. What lies on a device is where `queries` and `fresh` say only once
 * it was brought (sc_plugin_scoring_fetch), until the scratch is put. */
struct sc_plugin_scoring {
    struct sc_kernels_queries queries;
    struct sc_kernels_keys fresh;
    struct sc_plugin_afar queries_afar, fresh_afar;
    float scale; /* of scores */
    bool is_probes_only;
    spec_status lost; /* not OK: what lies on a device could not be brought, and the item fails */
};

/* One item of a get_important. */
struct sc_plugin_item {
    struct spec_important in; /* the host's structure, as far as it reaches */
    struct sc_plugin_request *request;
    uint32_t named_layer;           /* as the call counts them; in.layer: the store's number */
    struct sc_plugin_memory memory; /* the destination */
    bool was_started;               /* its layer was being read whole before the call */
    bool is_late;                   /* an earlier item of the call has the request's buffers */
    bool is_pieced;                 /* all rows: a guess brings some, the rest is read beside it */
    uint32_t route;                 /* enum sc_plugin_route */
    uint64_t row_count;             /* of the set, or of each head's */
    uint64_t set_count;             /* PICKS, UNION: rows that are read, request->set */
    uint64_t covered_rows;          /* of the wanted rows, that were read ahead */
    uint64_t used_rows;             /* of the guess: these, or of planner `chunk` their slabs */
    uint64_t taken[SPEC_TIERS];     /* rows that came, wanted or not, by the tier they came from */
    uint64_t over_ns;               /* when those that came last are over the bus (upper_bus.h) */
    struct sc_store_selector *selector; /* of the layer, there; NULL: none was needed or had */
    uint64_t *placed;               /* bits of rows that stand in the destination; NULL: not kept */
    uint64_t forced_rows;           /* layered: of the set, because they have no codes */
    uint64_t deadline_ns;
    spec_status status;                  /* of choosing */
    bool is_submitted;                   /* its call is over, or in another thread */
    bool is_gone;                        /* the request was released meanwhile */
    struct spec_provenance delivered;    /* what rows that were not all exact are worth */
    spec_ticket ticket;                  /* of its submission; 0: it has none */
    struct sc_plugin_delivery *delivery; /* that it leaves, or refines (delivery.h); or NULL */
    float *ranking; /* layered: where the scores of all rows are kept; NULL: they are not */
    struct sc_plugin_want want;
    struct sc_plugin_scoring scoring;
};

/* It is delivered before there are queries; what refines it first chooses. */
static inline bool sc_plugin_is_ahead(const struct spec_important *in)
{
    return (in->flags & SPEC_ITEM_AHEAD) != 0;
}

/* Its queries rank the rows of a delivery anew. */
static inline bool sc_plugin_rescores(const struct spec_important *in)
{
    return (in->flags & SPEC_ITEM_RESCORE) != 0;
}

/* One of all layers of a request, loaded from the match's end on (load/bidirectional.h). */
static inline bool sc_plugin_is_tail(const struct spec_important *in)
{
    return (in->flags & SPEC_ITEM_BIDIRECTIONAL) != 0;
}

static inline uint64_t sc_plugin_row_total(const struct sc_plugin_request *request)
{
    return request->matched_tokens - request->from_token;
}

/* The request's match has rows, and no load of them has failed. */
static inline bool sc_plugin_has_loads(const struct sc_plugin_request *request)
{
    return request->range_count > 0 && request->failed_position == UINT64_MAX;
}

/* Every row stands in the destination, each at its place, and is worth what the match is. */
static inline void sc_plugin_tell_all(struct sc_plugin_item *item)
{
    uint64_t rows = item->want.row_total;
    item->in.row_count = item->in.union_rows = rows;
    item->in.provenance = item->request->provenance;
    for (uint64_t j = 0; item->in.positions != NULL && j < rows; j++)
        item->in.positions[j] = (uint32_t)(item->want.first_position + j);
}

/* A layer of the request's match, as the baseline is asked for it. */
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

/* Words of a bit a row. */
static inline uint64_t sc_plugin_words_of(const struct sc_plugin_item *item)
{
    return (item->want.row_total + 63) / 64;
}

/* A head's rows, as bits. */
static inline uint64_t *sc_plugin_head_bits(const struct sc_plugin_item *item, uint64_t head)
{
    return item->request->bits + (2 + head) * sc_plugin_words_of(item);
}

#endif
