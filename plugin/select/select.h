/* Choosing rows of a layer: what an item wants, what its scores say, which rows are read for it.
 *
 *   item --budget.c--> want (k of R rows)      selector: probe rows, row tags   (two layers ahead)
 *                        \                        /
 *             row_scores.c: sums of importance; row_set.c: ranks -> sets -> one set, or one a head
 *                                  /                        \
 *           PICKS: rows of the set are read      HEADS: all rows come into the destination (of a
 *           (what a guess read ahead counts)     split layout K, then V of the union), each head is
 *                                                scored there and keeps its own
 *           UNION: a set a head, where all heads are probes: the union's rows are read, as of a set
 *           LAYERED: all rows as codes decode, the set's exactly (layered.c)
 *
 * Holds: what is chosen follows from the item's rows, its queries and the configuration alone; a
 * doubt (no selector, a damaged one, no memory for it) is DENSE: every row.
 * Does not: allocate after open; verify rows (the store does).
 * Threads: calls for one request do not overlap; a scratch is held while scores are computed.
 * Tests: tests/unit/plugin/test_select.c, test_prediction.c, conformance (abi_061_* .. abi_069_*)
 * */
#ifndef SC_PLUGIN_SELECT_H
#define SC_PLUGIN_SELECT_H

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

/* Memory to compute in; a few are made at open. */
struct sc_plugin_scratch {
    spec_connector *conn;
    uint8_t *importance; /* sc_kernels_importance's */
    float *sums;         /* [at least probe_heads + 1][rows]: each probe head's, then their sum, or
                          * those of a few heads */
    float *scores;       /* [rows] sums as they are ranked */
    float *granules;     /* [rows] */
    uint64_t *sets;      /* [2 * probe_heads + 2] sets of rows, as bits: each probe head's, the
                          * voted one, and what voting needs */
    uint64_t *ranked;    /* [2 * rows] */
    struct sc_kernels_slab *slabs; /* [segments of so many rows] where codes are read */
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

/* budget.c: SPEC_E_INVALID where the host's structures are wrong. */
spec_status sc_plugin_want_resolve(const spec_connector *conn, struct sc_plugin_item *item,
                                   struct spec_error *reterr);
/* The same without an item: whether the configuration chooses rows of this layer. */
bool sc_plugin_wants_some(const spec_connector *conn, const struct sc_plugin_request *request,
                          uint32_t layer);
/* k and R of a layer as the configuration has them. */
struct sc_plugin_want sc_plugin_want_usual(const spec_connector *conn,
                                           const struct sc_plugin_request *request, uint32_t layer);
/* The host's structure; SPEC_E_INVALID: reserved. */
spec_status sc_plugin_queries_read(const struct spec_queries *host, const char *name,
                                   struct spec_queries *ret_queries, struct spec_error *reterr);
/* What scores by them are multiplied by. */
float sc_plugin_queries_scale(const spec_connector *conn, const struct spec_queries *queries);
/* SPEC_E_INVALID: a member is wrong, or rows reach beyond byte_count. Of CUDA memory as
 * sc_plugin_afar_check. */
spec_status sc_plugin_queries_check(spec_connector *conn, const struct spec_queries *queries,
                                    const char *name, struct spec_error *reterr);
/* Whether the item can be scored as it wants; its scoring. */
spec_status sc_plugin_scoring_check(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr);
/* The host's call: what lies on a device is read behind what the host did to it before. */
void sc_plugin_scoring_begin(struct sc_plugin_item *item);
/* The slot of a device that the request is scored on. */
uint32_t sc_plugin_request_slot(const spec_connector *conn,
                                const struct sc_plugin_request *request);
/* What lies on a device to the scratch's room, for this processor to score it. Waits for the host's
 * streams. Not OK: scoring.lost, which fail tells again, too. */
spec_status sc_plugin_scoring_fetch(const struct sc_plugin_scratch *scratch,
                                    struct sc_plugin_item *item, struct spec_error *reterr);
/* Of queries in CUDA memory of this request, checked: as they lie there; else zero. */
struct sc_plugin_afar sc_plugin_queries_afar(spec_connector *conn,
                                             const struct sc_plugin_request *request,
                                             const struct spec_queries *queries);
/* Each step-th row of its queries, from the first on, in host memory until the scratch is put or
 * brings others. Waits and fails as bring does. */
spec_status sc_plugin_scoring_sample(const struct sc_plugin_scratch *scratch,
                                     struct sc_plugin_item *item, uint64_t step,
                                     struct sc_kernels_queries *ret_queries,
                                     struct spec_error *reterr);
spec_status sc_plugin_scoring_fail(const spec_connector *conn, const struct sc_plugin_item *item,
                                   struct spec_error *reterr);

/* row_set.c */
uint32_t sc_plugin_scratch_count(const spec_connector *conn); /* that open makes */
spec_status sc_plugin_scratches_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_scratches_close(spec_connector *conn);
/* rows: of the match, or of new keys that it is scored with, whichever are more. NULL: the deadline
 * came first. */
struct sc_plugin_scratch *sc_plugin_scratch_take(spec_connector *conn, uint64_t rows,
                                                 uint64_t deadline_ns);
/* For an item whose queries are checked. */
struct sc_plugin_scratch *sc_plugin_scratch_take_for(spec_connector *conn,
                                                     const struct sc_plugin_item *item);
void sc_plugin_scratch_put(const struct sc_plugin_scratch *scratch);
/* By probes; keys [R][probe row]. Sets item->row_count, similarity, threshold. *ret_agree: one set
 * for all heads, in ret_rows [R], ascending; else heads differ. Errors: as scoring_bring. */
spec_status sc_plugin_select_by_probes(struct sc_plugin_scratch *scratch,
                                       struct sc_plugin_item *item, const uint8_t *keys,
                                       uint32_t *ret_rows, bool *ret_agree,
                                       struct spec_error *reterr);
/* By codes of all heads' keys: one set. Rows without codes are in it, item->forced_rows of them.
 * Errors: as scoring_bring. */
spec_status sc_plugin_select_by_quant(struct sc_plugin_scratch *scratch,
                                      struct sc_plugin_item *item, uint32_t *ret_rows,
                                      struct spec_error *reterr);
/* Layered without scores: rows without codes, those that are always kept, then the lowest. */
void sc_plugin_select_kept(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                           uint32_t *ret_rows);
/* Without keys (sc_baseline_can_score); false: the baseline knows nothing. */
bool sc_plugin_select_by_baseline(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                                  uint32_t *ret_rows);
/* Every head's set of row_count rows, where all are probes, into scratch->sets. Errors: as
 * scoring_bring. */
spec_status sc_plugin_select_by_all(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                                    const uint8_t *keys, struct spec_error *reterr);
/* How many rows each head gets, of all heads' keys in the destination. */
uint64_t sc_plugin_select_count(struct sc_plugin_scratch *scratch,
                                const struct sc_plugin_item *item);
/* One head's rows, of its keys in the destination. Heads are asked for in ascending order from 0,
 * and nothing else uses the scratch's sums between: several are scored in one pass. */
void sc_plugin_select_head(struct sc_plugin_scratch *scratch, const struct sc_plugin_item *item,
                           uint64_t head, uint32_t *ret_rows);

/* The first k rows by sums of importance, best first. Uses ranked, scores, granules. */
void sc_plugin_rank(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                    const float *sums, uint64_t k, uint32_t *ret_rows);
/* Whether the probe heads' sets of k rows, of the sums that probe_sums left, would stand for all
 * heads; else the layer is read whole. Uses all of the scratch but sums. */
bool sc_plugin_probes_agree(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                            uint64_t k);

/* row_scores.c: whose queries `what` has: an item's, some of which may lie on a device; or, item
 * NULL, a hint's, on a worker, which may lie there as well. */
struct sc_plugin_asker {
    struct sc_plugin_item *item;
    const struct sc_plugin_afar *hint;
};
/* Sums of importance over all heads; of rows without codes 0. In the scratch's sums. `what` is
 * without its prefix. Errors: as scoring_bring, of an item; of a hint, IO.
 *   codes  of the request's ranges (sc_store_selector_keys) */
spec_status sc_plugin_quant_scores(struct sc_plugin_scratch *scratch,
                                   const struct sc_plugin_asker *asker,
                                   struct sc_kernels_importance *what,
                                   const struct sc_plugin_request *request, const uint8_t *codes,
                                   const float **ret_sums, struct spec_error *reterr);
/* Over the probe heads, behind each head's own, in the scratch's sums; keys [R][probe row]. */
spec_status sc_plugin_probe_sums(struct sc_plugin_scratch *scratch,
                                 const struct sc_plugin_asker *asker,
                                 struct sc_kernels_importance *what, const uint8_t *keys,
                                 uint64_t row_total, const float **ret_total,
                                 struct spec_error *reterr);

/* prefetch.c */
uint64_t sc_plugin_hint_bytes(const spec_connector *conn); /* of one at most; 0: none is taken */
/* How many there are at one time, at most: a layer that finds none is not guessed. */
uint64_t sc_plugin_hint_count(const spec_connector *conn);
spec_status sc_plugin_prefetches_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_prefetches_close(spec_connector *conn);
void sc_plugin_prefetch_forget(struct sc_plugin_request *request); /* a new request has the slot */
/* prefetch_next: ranks rows of `layer` and begins reading them, now or when the hint is ranked. */
void sc_plugin_prefetch_ask(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            const struct spec_queries *hint);
/* A layer that is read in another way than kept_load: what was read ahead of it counts as unused;
 * returns how many bytes. */
uint64_t sc_plugin_prefetch_drop(spec_connector *conn, struct sc_plugin_request *request,
                                 uint32_t layer, uint32_t kept_load);
/* The reader of the layer's parity becomes the host's: no task begins anything with it. */
void sc_plugin_prefetch_yield(struct sc_plugin_request *request, uint32_t layer);
/* The layer is needed: nothing is begun any more, and the window ends. */
void sc_plugin_prefetch_end(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            uint64_t now_ns);
/* The layer's set is known. sums: importance by which it was chosen; NULL: by none. */
void sc_plugin_prefetch_learn(spec_connector *conn, struct sc_plugin_scratch *scratch,
                              const struct sc_plugin_item *item, const uint64_t *bits,
                              const float *sums);
/* A selector of this number came; user: the request. */
void sc_plugin_prefetch_on_selector(struct sc_store_selector *selector, void *user);
/* The selector is being read by a task that ranks: false, or (waits) none is any more: true. */
bool sc_plugin_prefetch_leaves(spec_connector *conn, struct sc_plugin_request *request,
                               uint32_t selector, bool waits);

/* select.c */
/* Some layer may be delivered with fewer than all rows. Once the configuration and the shape are
 * known. */
bool sc_plugin_can_select(const spec_connector *conn);
spec_status sc_plugin_select_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_select_close(spec_connector *conn);
/* Starts what the layer will certainly need: its selector where the configuration chooses rows; all
 * rows where it does not, or where all heads' keys are needed (with_rows). */
void sc_plugin_select_ahead(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            bool with_rows);
/* What loads of the request's match read, as the configuration has it. */
struct sc_store_match_fetch_wants
sc_plugin_host_prefetch_wants(const spec_connector *conn, const struct sc_plugin_request *request);
/* Decides item->route and starts its reads; row sets are computed here. An error is SPEC_E_TIMEOUT:
 * nothing was begun. */
spec_status sc_plugin_select_start(spec_connector *conn, struct sc_plugin_item *item,
                                   enum sc_io_class io_class, struct spec_error *reterr);
/* DENSE: every row into its place, and how many of them were there or on the way. */
spec_status sc_plugin_select_all(spec_connector *conn, struct sc_plugin_item *item,
                                 struct spec_error *reterr);
/* Consumes what was started (PICKS, HEADS) and writes the results. */
spec_status sc_plugin_select_finish(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr);

/* scatter.c */
/* The range cannot be read, or is not what it was: its piece is void, or, where host memory had it
 * wrong, only that is. Changes nothing of the request: any thread that holds it. */
void sc_plugin_range_fail(spec_connector *conn, const struct sc_plugin_request *request,
                          uint64_t range, spec_status why, uint32_t tier);
/* The request's range failed: it is void from there on, and in the log, if that still says so.
 * tier: SPEC_TIER_*, where it did; rows that host memory had wrong stay on the disk. */
void sc_plugin_request_fail(spec_connector *conn, struct sc_plugin_request *request, uint64_t range,
                            spec_status why, uint32_t tier);
/* How the item's rows get into its destination, by the functions of item->memory.target. */
struct sc_plugin_placing sc_plugin_placing_of(const spec_connector *conn,
                                              const struct sc_plugin_item *item);
static inline bool sc_plugin_is_memory(uint32_t tier)
{
    return tier == SPEC_TIER_UPPER || tier == SPEC_TIER_HOST;
}
/* Of its rows, those that were in memory. */
static inline uint64_t sc_plugin_scattern_hosted(const struct sc_plugin_item *item)
{
    return item->taken[SPEC_TIER_UPPER] + item->taken[SPEC_TIER_HOST];
}
/* Tells the host from where `count` delivered rows came: as those that were taken did. */
void sc_plugin_tiers_tell(struct sc_plugin_item *item, uint64_t count);
/* What a load cost that is over, to the item, its request and the connector. */
void sc_plugin_cost_add(spec_connector *conn, struct sc_plugin_item *item,
                        const struct sc_store_read_cost *cost);
/* Consumes a reader into tokens of the item's memory: row i of the layer to token i, or, with a
 * set, to the rank of its row there. Adds its cost to the results. */
spec_status sc_plugin_reader_take(spec_connector *conn, struct sc_plugin_item *item,
                                  struct sc_plugin_reader *reader, const uint32_t *set,
                                  uint64_t set_count, struct spec_error *reterr);
/* Consumes the rows of the set that a guess brings, then the others: each to its rank in the set,
 * or of a layered item to its own place. */
spec_status sc_plugin_set_take(spec_connector *conn, struct sc_plugin_item *item,
                               struct spec_error *reterr);
/* The rows of the rest alone, each to its own place. */
spec_status sc_plugin_rest_take(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr);
/* Every row, each to its own place. */
spec_status sc_plugin_all_take(spec_connector *conn, struct sc_plugin_item *item,
                               struct spec_error *reterr);

/* layered.c */
spec_status sc_plugin_layered_finish(spec_connector *conn, struct sc_plugin_item *item,
                                     struct spec_error *reterr);
/* Some rows are codes of so many bits: the item says so, and so does what a pass stores after it.
 */
void sc_plugin_layered_worth(struct sc_plugin_item *item, uint32_t bits_k, uint32_t bits_v);

static inline uint64_t sc_plugin_row_total(const struct sc_plugin_request *request)
{
    return request->matched_tokens - request->from_token;
}

/* issue_reads.c: rows of the match, from from_token on, before this one are not needed in this
 * layer: what comes after the match does not see them. At most sc_plugin_row_total, the whole
 * match's. */
uint64_t sc_plugin_row_first(const spec_connector *conn, const struct sc_plugin_request *request,
                             uint32_t layer);

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

static inline void sc_plugin_bit_set(uint64_t *bits, uint64_t row)
{
    bits[row / 64] |= UINT64_C(1) << (row % 64);
}

static inline bool sc_plugin_bit_get(const uint64_t *bits, uint64_t row)
{
    return (bits[row / 64] >> (row % 64) & 1) != 0;
}

/* Whether one of [first, end) is set. */
static inline bool sc_plugin_bits_any(const uint64_t *bits, uint64_t first, uint64_t end)
{
    while (first < end) {
        uint64_t word = bits[first / 64] >> (first % 64), left = 64 - first % 64;
        if (end - first < left)
            word &= (UINT64_C(1) << (end - first)) - 1;
        if (word != 0)
            return true;
        first += left;
    }
    return false;
}

/* Sets those of `count` rows, and clears the rest of the last word. */
static inline void sc_plugin_bits_all(uint64_t *bits, uint64_t count)
{
    for (uint64_t w = 0; w < (count + 63) / 64; w++)
        bits[w] = count - 64 * w < 64 ? (UINT64_C(1) << (count - 64 * w)) - 1 : UINT64_MAX;
}

/* Bits to ascending rows; returns how many. */
static inline uint64_t sc_plugin_rows_of(const uint64_t *bits, uint64_t words, uint32_t *ret_rows)
{
    uint64_t count = 0;
    for (uint64_t w = 0; w < words; w++)
        for (uint64_t left = bits[w]; left != 0; left &= left - 1)
            ret_rows[count++] = (uint32_t)(w * 64 + (uint64_t)__builtin_ctzll(left));
    return count;
}

/* per_head.c: a set a head, of the selector */
static inline bool sc_plugin_probes_are_all(const spec_connector *conn)
{
    return conn->choice.probe_heads == conn->shape.kv_head_count;
}
/* The heads' sets, as bits: the item's set becomes their union, its route UNION. */
void sc_plugin_per_head_of(const spec_connector *conn, const uint64_t *sets,
                           struct sc_plugin_item *item);
/* The union's rows stand in the destination: each head keeps its own. */
void sc_plugin_per_head_part(const spec_connector *conn, struct sc_plugin_item *item);

/* budget.c: what a refining item wants: its row_count of the delivery's ranking, or of its own.
 * came_ahead, chooses: sc_plugin_refine_came_ahead, _chooses of it. */
spec_status sc_plugin_want_refine(const spec_connector *conn, struct sc_plugin_item *item,
                                  bool came_ahead, bool chooses, struct spec_error *reterr);
/* A delivery ahead (SPEC_ITEM_AHEAD) has what is known to be exact without queries. */
void sc_plugin_want_ahead(struct sc_plugin_item *item);
/* Its rows may be refined: they are ranked by its queries, if it has such, however few it wants. */
void sc_plugin_want_ranked(spec_connector *conn, struct sc_plugin_item *item);

/* select.c: the set by the item's queries, item->row_count rows, into the request's, and the scores
 * of all to item->ranking; where codes cannot be had any more, every row that there is. false: the
 * deadline came first. */
bool sc_plugin_set_select(spec_connector *conn, struct sc_plugin_item *item);

/* refine.c */
/* Finds the delivery. Its destination was checked. */
spec_status sc_plugin_refine_check(spec_connector *conn, struct sc_plugin_item *item,
                                   struct spec_error *reterr);
/* It was SPEC_ITEM_AHEAD: whoever refines it may bring what a choice takes. */
bool sc_plugin_refine_came_ahead(const struct sc_plugin_item *item);
/* Its rows are not ranked yet, or shall be ranked anew: the item's queries do that. */
bool sc_plugin_refine_chooses(const struct sc_plugin_item *item);
spec_status sc_plugin_refine_start(spec_connector *conn, struct sc_plugin_item *item,
                                   enum sc_io_class io_class, struct spec_error *reterr);
/* After an error too, what stands in the destination is told. */
spec_status sc_plugin_refine_finish(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr);
/* The same where nothing is begun, because the match is void. */
void sc_plugin_refine_tell(struct sc_plugin_item *item);

/* batch.c: room for SC_LIMIT_BATCH items. More than a few at one time wait for one another. */
#define SC_PLUGIN_ITEMS_FEW 8u /* of a call, that stand on its stack: 6 KiB */
struct sc_plugin_item *sc_plugin_batch_take(spec_connector *conn);
void sc_plugin_batch_put(spec_connector *conn, const struct sc_plugin_item *items);

/* load.c: a get_important in four parts; the second never waits, the third may be another thread's
 */
/* ret_work: NULL, or [count]. The call has the items' requests until the visit ends. Changes
 * nothing else. */
spec_status sc_plugin_items_check(spec_connector *conn, struct sc_plugin_visit *visit,
                                  struct spec_important *items, uint64_t count, bool is_submitted,
                                  struct sc_plugin_item *ret_work, struct spec_error *reterr);
/* begin_ns: when the call began; deadlines count from there. */
void sc_plugin_items_begin(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                           uint64_t begin_ns);
/* Delivers; statuses and results stand in the items. Returns the first that is not SPEC_OK. */
spec_status sc_plugin_items_serve(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                                  struct spec_error *reterr);
/* Results to the host, and to the requests what was delivered to them. served: the call's status
 * until now; returns what it is, of the first item that fails. */
spec_status sc_plugin_items_report(spec_connector *conn, struct spec_important *items,
                                   struct sc_plugin_item *work, uint64_t count, spec_status served,
                                   struct spec_error *reterr);

#endif
