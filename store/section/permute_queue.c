/* permute_queue: row permutations, and copies that wait for their records. Contract:
 * permute_queue.h. */
#include "store/section/permute_queue.h"

#include "store/load.h"
#include "store/rows/row_permutation.h"
#include "store/section/permute_extent.h"

#include <string.h>

#define JUDGE_ARRAYS 3u
#define JUDGE_WORDS  (SC_STORE_ROWS_MAX + 1u)

_Static_assert(SC_STORE_PERMUTATION_ROWS_MAX == SC_STORE_ROWS_MAX, "all rows of an extent");

/* Returns true if no older copy of the extent's rows is left on the disk. */
static bool may_repeat(const struct sc_store *store, const struct sc_store_extent_entry *extent)
{
    const struct sc_store_section *newest = atomic_load(&extent->permutation);
    return store->params.permutation.repeat_ppm != 0 && !extent->order_waits &&
           atomic_load(&extent->held_replaced) == NULL &&
           atomic_load(&extent->rows_state) == SC_STORE_ROWS_FREED && newest != NULL &&
           newest->permuted_at_ns < UINT64_MAX; /* the next one's is greater */
}

bool sc_store_permute_queue_lack(const struct sc_store *store,
                                 const struct sc_store_extent_entry *extent)
{
    bool lacks_quant = store->params.codes.shape.bits_k != 0 &&
                       (atomic_load(&extent->codes) == NULL || atomic_load(&extent->is_quantising));
    return store->params.permutation.span_rows != 0 && !lacks_quant &&
           (atomic_load(&extent->held_permutation) == NULL || may_repeat(store, extent)) &&
           extent->row_count > store->params.config->chunk_tokens &&
           sc_store_probes_of(extent).row_bytes >= store->params.probe_row_bytes;
}

static bool memory_take(struct sc_store_permute_queue *permute_queue, uint64_t words)
{
    struct sc_alloc *alloc = permute_queue->alloc;
    if (permute_queue->rows == NULL)
        permute_queue->rows =
            sc_alloc_array(alloc, SC_STORE_ROWS_MAX, sizeof(*permute_queue->rows));
    if (permute_queue->told == NULL)
        permute_queue->told =
            sc_alloc_array(alloc, SC_STORE_ROWS_MAX, sizeof(*permute_queue->told));
    if (permute_queue->scores == NULL)
        permute_queue->scores =
            sc_alloc_array(alloc, SC_STORE_ROWS_MAX, sizeof(*permute_queue->scores));
    if (permute_queue->judge == NULL)
        permute_queue->judge =
            sc_alloc_array(alloc, JUDGE_ARRAYS * JUDGE_WORDS, sizeof(*permute_queue->judge));
    if (permute_queue->words < words) {
        sc_alloc_free(alloc, permute_queue->slots);
        permute_queue->slots = sc_alloc_array(alloc, words, 8);
        permute_queue->words = permute_queue->slots != NULL ? words : 0;
    }
    return permute_queue->rows != NULL && permute_queue->judge != NULL &&
           permute_queue->told != NULL && permute_queue->scores != NULL &&
           permute_queue->slots != NULL;
}

void sc_store_permute_queue_leave(struct sc_store_permute_queue *permute_queue)
{
    sc_alloc_free(permute_queue->alloc, permute_queue->rows);
    sc_alloc_free(permute_queue->alloc, permute_queue->judge);
    sc_alloc_free(permute_queue->alloc, permute_queue->told);
    sc_alloc_free(permute_queue->alloc, permute_queue->scores);
    sc_alloc_free(permute_queue->alloc, permute_queue->slots);
    permute_queue->rows = permute_queue->slots = permute_queue->judge = NULL;
    permute_queue->told = permute_queue->scores = NULL;
    permute_queue->words = 0;
}

/* Copies the ranges' scores to the extent's rows; rows of no piece get 0. */
static void scores_place(struct sc_store_permute_queue *permute_queue,
                         const struct sc_store_extent_entry *extent,
                         const struct sc_store_range *ranges, uint64_t range_count)
{
    const float *told = permute_queue->told;
    memset(permute_queue->scores, 0, extent->row_count * sizeof(*permute_queue->scores));
    for (uint64_t i = 0; i < range_count; told += ranges[i++].row_count) {
        const struct sc_store_piece_entry *piece =
            sc_store_table_piece(&permute_queue->store->table, ranges[i].piece);
        memcpy(permute_queue->scores + piece->extent_row + ranges[i].row_first, told,
               ranges[i].row_count * sizeof(*told));
    }
}

/* ---- Whether to permute again ---------------------------------------------------------------- */

/* Returns true if enough requests scored the rows since that was last judged; an extent that was
 * never judged since open begins now. */
static bool requests_suffice(const struct sc_store *store, struct sc_store_extent_entry *extent,
                             const struct sc_store_range *ranges, uint64_t range_count)
{
    const struct sc_store_permutation *permutation = &store->params.permutation;
    uint64_t requests = permutation->requests(permutation->user, ranges, range_count);
    bool is_known = extent->order_requests != 0 && requests >= extent->order_requests;
    bool is_permuted = atomic_load(&extent->permutation) != NULL;
    if (is_known && is_permuted && requests - extent->order_requests < permutation->repeat_requests)
        return false;
    extent->order_requests = requests;
    return is_known || !is_permuted;
}

struct judged {
    uint64_t best, outside; /* rows, of all layers */
};

/* Adds a layer: its best rows, and those that the present permutation has apart. */
static void layer_judge(struct sc_store_permute_queue *permute_queue,
                        const struct sc_store_section *present, uint64_t rows, uint32_t layer,
                        struct judged *judged)
{
    uint16_t *best = permute_queue->judge, *scratch = best + JUDGE_WORDS;
    uint16_t *counts = scratch + JUDGE_WORDS;
    uint64_t count = 0;
    for (uint64_t row = 0; row < rows; row++)
        count += permute_queue->scores[row] > 0;
    count = count < (rows + 3) / 4 ? count : (rows + 3) / 4;
    sc_store_permutation_make(permute_queue->scores, rows, rows, best, scratch);
    judged->best += count;
    judged->outside += sc_store_permutation_outside(
        sc_store_permutation_of(present->slots, rows, layer),
        sc_store_permutation_of(permute_queue->slots, rows, layer), best, count, rows,
        permute_queue->store->params.config->chunk_tokens, counts, scratch);
}

/* ---- The next permutation -------------------------------------------------------------------- */

spec_status sc_store_permute_queue_next(struct sc_store_permute_queue *permute_queue,
                                        struct sc_store_extent_entry *extent,
                                        const struct sc_store_range *ranges, uint64_t range_count,
                                        const uint16_t **ret_slots, struct spec_error *reterr)
{
    const struct sc_store *store = permute_queue->store;
    const struct sc_store_permutation *permutation = &store->params.permutation;
    const struct sc_store_section *present = atomic_load(&extent->permutation);
    uint64_t rows = extent->row_count, words = sc_store_permutation_words(rows);
    uint32_t layers = store->shape.layer_count;
    struct judged judged = {0};
    if (range_count == 0 || rows * store->shape.row_bytes > permutation->bytes_max)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "no rows, or too many");
    if (!memory_take(permute_queue, words * layers))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "the row permutation of %" PRIu64 " rows", rows);
    if (permutation->repeat_ppm != 0 && !requests_suffice(store, extent, ranges, range_count))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "too few requests since it was permuted");
    for (uint32_t layer = 0; layer < layers; layer++) {
        if (!permutation->scores(permutation->user, ranges, range_count, layer,
                                 permute_queue->told))
            return sc_fail(reterr, SPEC_E_UNSUPPORTED, "it is not known which rows");
        scores_place(permute_queue, extent, ranges, range_count);
        sc_store_permutation_make(permute_queue->scores, rows, permutation->span_rows,
                                  permute_queue->rows,
                                  sc_store_permutation_of(permute_queue->slots, rows, layer));
        if (present != NULL)
            layer_judge(permute_queue, present, rows, layer, &judged);
    }
    if (present != NULL &&
        judged.outside * UINT64_C(1000000) < permutation->repeat_ppm * judged.best)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "its permutation is good enough");
    *ret_slots = permute_queue->slots;
    return SPEC_OK;
}

void sc_store_permute_queue_add(struct sc_store_permute_queue *permute_queue, uint64_t extent_id)
{
    struct sc_store *store = permute_queue->store;
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, extent_id);
    extent->permutation_moment = store->params.permutation.moment(store->params.permutation.user);
    extent->order_next = permute_queue->first;
    extent->order_waits = true;
    permute_queue->first = (uint32_t)extent_id;
    sc_store_count(&store->counts.permutations_waiting, 1);
}

void sc_store_permute_queue_settle(struct sc_store_permute_queue *permute_queue)
{
    struct sc_store *store = permute_queue->store;
    const struct sc_store_permutation *permutation = &store->params.permutation;
    uint32_t id = permute_queue->first, next;
    permute_queue->first = 0;
    for (; id != 0; id = next) {
        struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
        struct spec_error error = {.struct_size = sizeof(error)};
        spec_status status = SPEC_E_BUSY;
        next = extent->order_next;
        if (permutation->is_quiet(permutation->user, extent->permutation_moment))
            status = sc_store_permutation_commit(store, id, &error);
        if (status == SPEC_OK || status == SPEC_E_DROPPED) {
            atomic_fetch_sub_explicit(&store->counts.permutations_waiting, 1, memory_order_relaxed);
            permute_queue->has_told = false;
            extent->order_waits = false;
            continue;
        }
        if (status != SPEC_E_BUSY && !permute_queue->has_told) {
            permute_queue->has_told = true;
            SC_LOG(store->params.log, 1, "extent %" PRIu32 " stands twice, others may: %s", id,
                   error.text);
        }
        extent->order_next = permute_queue->first;
        permute_queue->first = id;
    }
}
