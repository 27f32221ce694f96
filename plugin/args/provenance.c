/* provenance: how KV was computed (struct spec_provenance), combined as the worst of its parts.
 *
 *   piece   computed_on: fixed when the piece is stored, the worst that its request used
 *   match   worst of its pieces; request: worst of its match and of what was delivered
 *   ahead   a layer delivered ahead of its queries counts once that layer is stored unrefined: the
 *           host has computed on it
 *
 * Each member is the worst of all inexact parts: the largest kind, computed_on and metric, the
 * fewest bits, the smallest shares. 0 bits mean exact rows. So a match may be reported worse than
 * each of its pieces, never better. Parts may be added in any order. */
#include "plugin/args/provenance.h"
#include "plugin/connector.h"

static uint32_t member_larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Returns the smaller of those counts that apply; 0 if none does. */
static uint32_t smaller_of(uint32_t a, bool a_counts, uint32_t b, bool b_counts)
{
    if (!a_counts || !b_counts)
        return a_counts ? a : b_counts ? b : 0;
    return a < b ? a : b;
}

static bool is_lossy(const struct spec_provenance *of)
{
    return of->computed_on == SPEC_PROVENANCE_LOSSY || of->kind == SPEC_PROVENANCE_LOSSY ||
           of->bits_k != 0 || of->bits_v != 0;
}

static bool is_pruned(const struct spec_provenance *of)
{
    return of->computed_on == SPEC_PROVENANCE_PRUNED || of->kind == SPEC_PROVENANCE_PRUNED;
}

void sc_plugin_provenance_add(struct spec_provenance *worst, const struct spec_provenance *more)
{
    bool lossy = is_lossy(worst), more_lossy = is_lossy(more);
    bool pruned = is_pruned(worst), more_pruned = is_pruned(more);
    *worst = (struct spec_provenance){
        .kind = member_larger(worst->kind, more->kind),
        .computed_on = member_larger(worst->computed_on, more->computed_on),
        .bits_k = smaller_of(worst->bits_k, worst->bits_k != 0, more->bits_k, more->bits_k != 0),
        .bits_v = smaller_of(worst->bits_v, worst->bits_v != 0, more->bits_v, more->bits_v != 0),
        .exact_ppm = smaller_of(worst->exact_ppm, lossy, more->exact_ppm, more_lossy),
        .retain_ppm = smaller_of(worst->retain_ppm, pruned, more->retain_ppm, more_pruned),
        .metric = member_larger(pruned ? worst->metric : 0, more_pruned ? more->metric : 0),
    };
}

void sc_plugin_provenance_add_piece(struct spec_provenance *worst, const struct sc_store *store,
                                    uint64_t piece)
{
    struct sc_store_provenance of;
    if (!sc_store_piece_provenance(store, piece, &of))
        return;
    struct spec_provenance more = {.kind = of.computed_on,
                                   .computed_on = of.computed_on,
                                   .bits_k = of.bits_k,
                                   .bits_v = of.bits_v,
                                   .exact_ppm = of.exact_ppm,
                                   .retain_ppm = of.retain_ppm,
                                   .metric = of.metric};
    sc_plugin_provenance_add(worst, &more);
}

/* Returns the provenance of rows stored now: computed on the worst that was delivered. */
struct sc_store_provenance sc_plugin_provenance_stored(const struct spec_provenance *worst)
{
    return (struct sc_store_provenance){.computed_on = worst->kind,
                                        .bits_k = worst->bits_k,
                                        .bits_v = worst->bits_v,
                                        .exact_ppm = worst->exact_ppm,
                                        .retain_ppm = worst->retain_ppm,
                                        .metric = worst->metric};
}

void sc_plugin_provenance_ahead(struct sc_plugin_request *request, uint32_t layer,
                                const struct spec_provenance *worth)
{
    uint64_t bit = UINT64_C(1) << (layer % 64);
    request->unrefined[layer / 64] &= ~bit;
    if (worth == NULL)
        return;
    request->unrefined[layer / 64] |= bit;
    sc_plugin_provenance_add(&request->ahead, worth);
}

void sc_plugin_provenance_computed(const struct sc_plugin_request *request, uint32_t layer,
                                   struct spec_provenance *worst)
{
    if (request->unrefined[layer / 64] >> (layer % 64) & 1)
        sc_plugin_provenance_add(worst, &request->ahead);
}

struct spec_provenance sc_plugin_provenance_so_far(const struct sc_plugin_request *request)
{
    struct spec_provenance worst = request->provenance;
    sc_plugin_provenance_add(&worst, &request->delivered);
    return worst;
}

bool sc_plugin_provenance_may_be_stored(const spec_connector *conn, uint32_t kind)
{
    return kind == SPEC_PROVENANCE_EXACT ||
           (kind == SPEC_PROVENANCE_LOSSY ? conn->config.store_lossy : conn->config.store_pruned);
}
