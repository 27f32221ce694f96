/* refine: reads more exact rows into a destination that a submission has filled. Contract:
 * refine.h.
 *
 *   refine    scores -> the k best rows -> those not exact yet -> (as many as the budget allows)
 *             -> read over the decoded values, and their bits set
 *   ahead     [decoded values, no scores] -> the first item with queries scores and selects
 *             (docs/decisions/0012) -> refine
 *   rescore   [some rows exact] -> the item's queries score and select -> refine; exact rows stay
 *
 * Scores are those that selected the delivery's own set, so a longer set begins with the same rows:
 * the destination becomes what a delivery with this share would have been. Quantised rows are
 * needed only if an item ranks (ahead, rescore).
 *
 * Invariants: a row's bit is set after its exact bytes were written. A delivery that a call works
 * on keeps its place; one that was written over is not refined.
 * Limits: allocates nothing after open; ranks again only if asked; keeps no queries and no rows. */
#include "plugin/load/refine.h"
#include "plugin/select/delivery.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/layered.h"
#include "plugin/select/row_bits.h"
#include "plugin/select/scatter.h"
#include "plugin/select/scratch.h"
#include "plugin/select/select.h"
#include "plugin/select/submission.h"

#include <float.h>
#include <math.h>
#include <string.h>

spec_status sc_plugin_refine_check(spec_connector *conn, struct sc_plugin_item *item,
                                   struct spec_error *reterr)
{
    spec_ticket ticket = item->in.refine_of;
    struct sc_plugin_found found = sc_plugin_delivery_find(conn, item);
    item->delivery = found.delivery;
    if (found.delivery != NULL)
        return SPEC_OK;
    if (found.is_known && !found.is_stale)
        return sc_fail(
            reterr, SPEC_E_INVALID,
            "get_important: refine_of: ticket %#" PRIx64 " delivered layer %" PRIu32 " %s", ticket,
            item->in.layer, found.is_of_layer ? "to another destination" : "to nowhere");
    if (!found.is_known && !sc_plugin_submit_knows(conn, ticket))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: refine_of: %#" PRIx64 " is no submission's ticket", ticket);
    return sc_fail(reterr, SPEC_E_STALE,
                   "get_important: refine_of: of ticket %#" PRIx64
                   " this request keeps no delivery of layer %" PRIu32,
                   ticket, item->in.layer);
}

bool sc_plugin_refine_came_ahead(const struct sc_plugin_item *item)
{
    return item->delivery->came_ahead;
}

bool sc_plugin_refine_chooses(const struct sc_plugin_item *item)
{
    return (item->delivery->is_ahead || sc_plugin_rescores(&item->in)) && !item->delivery->is_whole;
}

/* Keeps the best of `rows`, as many as the budget allows; returns how many. */
static uint64_t rows_cut(spec_connector *conn, struct sc_plugin_item *item, uint64_t count,
                         uint32_t *rows)
{
    uint64_t most = item->in.budget_bytes / conn->dims.row_bytes;
    if (item->in.budget_bytes == 0 || count <= most)
        return count;
    item->want.is_cut = true;
    struct sc_plugin_scratch *scratch = most > 0 ? sc_plugin_scratch_take_for(conn, item) : NULL;
    if (scratch == NULL) /* the deadline passed */
        return 0;
    for (uint64_t row = 0; row < item->want.row_total; row++)
        scratch->scores[row] = -INFINITY;
    for (uint64_t i = 0; i < count; i++) /* above all other rows */
        scratch->scores[rows[i]] = fmaxf(item->delivery->scores[rows[i]], -FLT_MAX);
    sc_kernels_topk(conn->kernels, scratch->scores, item->want.row_total, most, rows);
    sc_plugin_scratch_put(scratch);
    return most;
}

/* Selects by the item's queries; the scores become the delivery's ranking. Without quantised rows
 * there is none: a delivery ahead still waits for one, another keeps its own. */
static uint64_t set_select(spec_connector *conn, struct sc_plugin_item *item)
{
    item->ranking = item->delivery->scores;
    if (!sc_plugin_set_select(conn, item)) { /* late: the delivery stays as it is */
        item->want.is_cut = true;
        return 0;
    }
    item->delivery->is_ahead = item->delivery->is_ahead && item->ranking == NULL;
    return item->row_count;
}

/* Selects the rows that shall be exact into the request's set; returns how many. */
static uint64_t set_of(spec_connector *conn, struct sc_plugin_item *item)
{
    uint64_t k = item->want.row_count, total = item->want.row_total;
    if (k == 0)
        return 0;
    bool is_open = item->delivery->is_ahead && k < total;
    if (is_open || sc_plugin_rescores(&item->in)) /* else no ranking is needed, or there is one */
        return set_select(conn, item);
    sc_kernels_topk(conn->kernels, item->delivery->scores, total, k, item->request->set);
    return k;
}

spec_status sc_plugin_refine_start(spec_connector *conn, struct sc_plugin_item *item,
                                   enum sc_io_class io_class, struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    const struct sc_plugin_delivery *delivery = item->delivery;
    uint32_t *rows = request->readers[SC_PLUGIN_REST].rows;
    uint64_t count = 0;
    item->set_count = 0;
    if (delivery->is_void)
        return sc_fail(reterr, SPEC_E_STALE,
                       "get_important: refine_of: an item of the same call delivers layer %" PRIu32
                       " anew",
                       item->in.layer);
    if (delivery->is_whole)
        return SPEC_OK;
    uint64_t k = set_of(conn, item);
    for (uint64_t i = 0; i < k; i++)
        if (!sc_plugin_bit_get(delivery->bits, request->set[i]))
            rows[count++] = request->set[i];
    item->set_count = rows_cut(conn, item, count, rows);
    if (item->set_count > 0)
        sc_plugin_rest_begin(conn, request, item->in.layer, item->set_count, delivery->tags,
                             io_class);
    return SPEC_OK;
}

static uint64_t exact_rows(const struct sc_plugin_item *item)
{
    uint64_t count = 0, words = sc_plugin_words_of(item);
    if (item->delivery->is_whole)
        return item->want.row_total;
    for (uint64_t w = 0; w < words; w++)
        count += (uint64_t)__builtin_popcountll(item->delivery->bits[w]);
    return count;
}

void sc_plugin_refine_tell(struct sc_plugin_item *item)
{
    struct spec_important *in = &item->in;
    const struct sc_plugin_delivery *delivery = item->delivery;
    uint64_t total = item->want.row_total;
    if (delivery->is_void)
        return;
    sc_plugin_tell_all(item);
    in->exact_rows = exact_rows(item);
    if (in->exact_bits != NULL && delivery->is_whole)
        sc_plugin_bits_all(in->exact_bits, total);
    else if (in->exact_bits != NULL)
        memcpy(in->exact_bits, delivery->bits, sc_plugin_words_of(item) * sizeof(*delivery->bits));
    if (in->exact_rows < total)
        sc_plugin_layered_worth(item, delivery->bits_k, delivery->bits_v);
}

spec_status sc_plugin_refine_finish(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr)
{
    uint64_t before = exact_rows(item);
    spec_status status = SPEC_OK;
    item->placed = item->delivery->bits;
    if (item->set_count > 0)
        status = sc_plugin_rest_take(conn, item, reterr);
    bool is_late = status == SPEC_E_TIMEOUT;
    sc_plugin_refine_tell(item);
    uint64_t more = item->in.exact_rows - before;
    sc_plugin_tiers_tell(item, more);
    if (item->in.exact_rows == item->want.row_total)
        item->delivery->is_ahead = false; /* nothing is left to select */
    if (is_late || item->want.is_cut)
        item->in.result_flags |= SPEC_IMPORTANT_PARTIAL;
    sc_count(&conn->stats.refined_layers, 1);
    sc_count(&conn->stats.refined_rows, more);
    return is_late ? SPEC_OK : status;
}
