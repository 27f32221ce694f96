/* Which order rows get, and what waits for its records.
 *
 * Holds, Threads, Tests: store/section/permute_queue.h. */
#include "store/section/permute_queue.h"

#include "store/load.h"
#include "store/rows/row_permutation.h"
#include "store/section/permute_extent.h"

#include <string.h>

_Static_assert(SC_STORE_PERMUTATION_ROWS_MAX == SC_STORE_ROWS_MAX, "all rows of an extent");

bool sc_store_permute_queue_lack(const struct sc_store *store,
                                 const struct sc_store_extent_entry *extent)
{
    bool lacks_quant = store->params.codes.shape.bits_k != 0 &&
                       (atomic_load(&extent->codes) == NULL || atomic_load(&extent->is_quantising));
    return store->params.permutation.span_rows != 0 && !lacks_quant &&
           atomic_load(&extent->held_permutation) == NULL &&
           extent->row_count > store->params.config->chunk_tokens &&
           sc_store_probes_of(extent).row_bytes >= store->params.probe_row_bytes;
}

static bool memory_take(struct sc_store_permute_queue *orders, uint64_t words)
{
    struct sc_alloc *alloc = orders->alloc;
    if (orders->rows == NULL)
        orders->rows = sc_alloc_array(alloc, SC_STORE_ROWS_MAX, sizeof(*orders->rows));
    if (orders->told == NULL)
        orders->told = sc_alloc_array(alloc, SC_STORE_ROWS_MAX, sizeof(*orders->told));
    if (orders->scores == NULL)
        orders->scores = sc_alloc_array(alloc, SC_STORE_ROWS_MAX, sizeof(*orders->scores));
    if (orders->words < words) {
        sc_alloc_free(alloc, orders->slots);
        orders->slots = sc_alloc_array(alloc, words, 8);
        orders->words = orders->slots != NULL ? words : 0;
    }
    return orders->rows != NULL && orders->told != NULL && orders->scores != NULL &&
           orders->slots != NULL;
}

void sc_store_permute_queue_leave(struct sc_store_permute_queue *orders)
{
    sc_alloc_free(orders->alloc, orders->rows);
    sc_alloc_free(orders->alloc, orders->told);
    sc_alloc_free(orders->alloc, orders->scores);
    sc_alloc_free(orders->alloc, orders->slots);
    orders->rows = orders->slots = NULL;
    orders->told = orders->scores = NULL;
    orders->words = 0;
}

/* Scores of the ranges as scores of the extent's rows; those of no piece come last. */
static void scores_place(struct sc_store_permute_queue *orders,
                         const struct sc_store_extent_entry *extent,
                         const struct sc_store_range *ranges, uint64_t range_count)
{
    const float *told = orders->told;
    memset(orders->scores, 0, extent->row_count * sizeof(*orders->scores));
    for (uint64_t i = 0; i < range_count; told += ranges[i++].row_count) {
        const struct sc_store_piece_entry *piece =
            sc_store_table_piece(&orders->store->table, ranges[i].piece);
        memcpy(orders->scores + piece->extent_row + ranges[i].row_first, told,
               ranges[i].row_count * sizeof(*told));
    }
}

spec_status sc_store_permute_queue_next(struct sc_store_permute_queue *orders,
                                        const struct sc_store_extent_entry *extent,
                                        const struct sc_store_range *ranges, uint64_t range_count,
                                        const uint16_t **ret_slots, struct spec_error *reterr)
{
    const struct sc_store *store = orders->store;
    const struct sc_store_permutation *permutation = &store->params.permutation;
    uint64_t rows = extent->row_count, words = sc_store_permutation_words(rows);
    uint32_t layers = store->shape.layer_count;
    if (range_count == 0 || rows * store->shape.row_bytes > permutation->bytes_max)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "no rows, or too many");
    if (!memory_take(orders, words * layers))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "the row permutation of %" PRIu64 " rows", rows);
    for (uint32_t layer = 0; layer < layers; layer++) {
        if (!permutation->scores(permutation->user, ranges, range_count, layer, orders->told))
            return sc_fail(reterr, SPEC_E_UNSUPPORTED, "it is not known which rows");
        scores_place(orders, extent, ranges, range_count);
        sc_store_permutation_make(orders->scores, rows, permutation->span_rows, orders->rows,
                                  sc_store_permutation_of(orders->slots, rows, layer));
    }
    *ret_slots = orders->slots;
    return SPEC_OK;
}

void sc_store_permute_queue_add(struct sc_store_permute_queue *orders, uint64_t extent_id)
{
    struct sc_store *store = orders->store;
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, extent_id);
    extent->order_moment = store->params.permutation.moment(store->params.permutation.user);
    extent->order_next = orders->first;
    orders->first = (uint32_t)extent_id;
    sc_store_count(&store->counts.permutations_waiting, 1);
}

void sc_store_permute_queue_settle(struct sc_store_permute_queue *orders)
{
    struct sc_store *store = orders->store;
    const struct sc_store_permutation *permutation = &store->params.permutation;
    uint32_t id = orders->first, next;
    orders->first = 0;
    for (; id != 0; id = next) {
        struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
        struct spec_error error = {.struct_size = sizeof(error)};
        spec_status status = SPEC_E_BUSY;
        next = extent->order_next;
        if (permutation->is_quiet(permutation->user, extent->order_moment))
            status = sc_store_permutation_commit(store, id, &error);
        if (status == SPEC_OK || status == SPEC_E_DROPPED) {
            atomic_fetch_sub_explicit(&store->counts.permutations_waiting, 1, memory_order_relaxed);
            orders->has_told = false;
            continue;
        }
        if (status != SPEC_E_BUSY && !orders->has_told) {
            orders->has_told = true;
            SC_LOG(store->params.log, 1, "extent %" PRIu32 " stands twice, others may: %s", id,
                   error.text);
        }
        extent->order_next = orders->first;
        orders->first = id;
    }
}
