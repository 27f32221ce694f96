/* Layered delivery: every row as its codes' values, the chosen ones exactly.
 *
 *   codes of the layer (there, verified)        rows of the set (being read)
 *        \ decoded into the destination            |
 *         [c c . c c c . . c c c c . c c c]        | all there: each to its place, and its bit
 *         [c c E c c c E E c c c c E c c c]  <-----'  is set
 *
 * Holds: whatever becomes of the reads, nobody decodes when rows_deliver returns, and until then
 * the codes are lent: the item's failure ends nothing (request.c). A row that is wanted exactly is
 * decoded only after the reads have ended, if it did not come: nobody writes a row while another
 * does. A row's bit is set after its exact bytes stand in the destination, and rows without codes
 * are all there when the item is SPEC_OK; what a deadline leaves out stays coarse.
 * Does not: choose (row_set.c), read (issue_reads.c, scatter.c), verify (the store did).
 * Threads: the request's host thread; a worker of the executor's helps it to decode.
 * Tests: tests/unit/plugin/test_layered.c, test_ends.c, conformance (abi_150_* .. abi_156_*) */
#include "plugin/select/layered.h"
#include "plugin/args/provenance.h"
#include "plugin/quant/quant.h"
#include "plugin/select/delivery.h"
#include "plugin/select/item.h"
#include "plugin/select/row_bits.h"
#include "plugin/select/scatter.h"
#include "plugin/select/upper_bus.h"

#include <string.h>

#define DECODE_SHARED_BYTES (4ull << 20) /* less is decoded before a worker wakes */

struct worst { /* of the codes that were delivered */
    uint32_t bits_k, bits_v;
};

static uint32_t bits_fewer(uint32_t a, uint32_t b)
{
    return a == 0 || b < a ? b : a;
}

/* Slabs are decoded by whoever takes them: the caller, and a worker that has nothing better to do.
 * The caller waits for a worker that has begun, so nobody writes after the call. */
struct decoding {
    struct sc_task task;
    const spec_connector *conn;
    const struct sc_plugin_item *item;
    const uint64_t *exact;  /* rows that are not decoded */
    bool is_shared;         /* with the worker */
    _Atomic uint64_t next;  /* range */
    _Atomic uint32_t ended; /* the worker has */
};

/* skipped: rows that are not decoded */
static void slab_decode(const spec_connector *conn, const struct sc_plugin_placing *to,
                        const struct sc_plugin_item *item, uint64_t range, uint64_t row,
                        const uint64_t *skipped)
{
    uint64_t count = item->request->ranges[range].row_count;
    struct sc_store_slab slab;
    if (!sc_store_slab_of(sc_store_selector_keys(item->selector), range, &slab))
        return;
    const struct sc_kernels_quantised parts[2] = {
        sc_plugin_quant_k(conn, &slab, item->want.first_position + row, count),
        sc_plugin_quant_v(conn, &slab)};
    item->memory.target->place_quant(to, parts, count, row, skipped);
}

/* reader: NULL, or until all that it reads is there. */
static void decode_some(struct decoding *decoding, const struct sc_store_reader *reader)
{
    const struct sc_plugin_item *item = decoding->item;
    const struct sc_plugin_request *request = item->request;
    struct sc_plugin_placing to = sc_plugin_placing_of(decoding->conn, item);
    uint64_t at = 0, row = 0, range; /* the ranges that one takes ascend */
    while ((reader == NULL || !sc_store_reader_is_there(reader)) &&
           (range = atomic_fetch_add(&decoding->next, 1)) < request->range_count) {
        while (at < range)
            row += request->ranges[at++].row_count;
        slab_decode(decoding->conn, &to, item, range, row, decoding->exact);
    }
    (void)item->memory.target->fence(&item->memory, SC_FENCE_PLACED, NULL);
}

static void decode_step(struct sc_task *task)
{
    struct decoding *decoding = SC_TASK_OWNER(task, struct decoding, task);
    struct sc_exec *exec = decoding->conn->exec; /* ended: the caller's frame may be gone */
    _Atomic uint32_t *ended = &decoding->ended;
    decode_some(decoding, NULL);
    atomic_store(ended, 1);
    sc_exec_wake(exec, ended);
}

/* What nobody has decoded, where it is wanted; nobody decodes any more. */
static void decode_end(struct decoding *decoding, bool is_wanted)
{
    struct sc_exec *exec = decoding->conn->exec;
    if (is_wanted)
        decode_some(decoding, NULL);
    else
        atomic_store(&decoding->next, decoding->item->request->range_count);
    if (!decoding->is_shared || sc_exec_cancel(exec, &decoding->task))
        return;
    while (atomic_load(&decoding->ended) == 0)
        (void)sc_exec_wait(exec, &decoding->ended, 0, SC_EXEC_FOREVER);
}

/* Rows of the set that did not come become what the others are. set: which they are, in the end. */
static void decode_missing(const spec_connector *conn, const struct sc_plugin_item *item,
                           uint64_t *set)
{
    const struct sc_plugin_request *request = item->request;
    uint64_t words = sc_plugin_words_of(item), missing = 0;
    for (uint64_t w = 0; w < words; w++) {
        missing |= set[w] & ~item->placed[w];
        set[w] = ~set[w] | item->placed[w];
    }
    struct sc_plugin_placing to = sc_plugin_placing_of(conn, item);
    for (uint64_t i = 0, row = 0; missing != 0 && i < request->range_count; i++) {
        slab_decode(conn, &to, item, i, row, set);
        row += request->ranges[i].row_count;
    }
    (void)item->memory.target->fence(&item->memory, SC_FENCE_PLACED, NULL);
}

/* Every row that has codes, and has not come exactly, as its codes' values; the others exactly.
 * Each row is written once, so that it does not matter who is faster: the worker, or rows that the
 * caller places as soon as all are there. */
static spec_status rows_deliver(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    uint64_t *set = request->bits; /* select_set */
    struct decoding decoding = {.task.step = decode_step, .conn = conn, .item = item, .exact = set};
    decoding.is_shared = !sc_exec_is_loop(conn->exec) && !item->memory.target->decodes_elsewhere &&
                         item->want.row_total * conn->dims.row_bytes >= DECODE_SHARED_BYTES;
    request->lent = item->selector;
    if (decoding.is_shared)
        sc_exec_post(conn->exec, &decoding.task, SC_IO_CLASS_DEMAND);
    decode_some(&decoding, request->readers[SC_PLUGIN_REST].reader);
    spec_status status = sc_plugin_set_take(conn, item, reterr);
    bool is_wanted = status == SPEC_OK || status == SPEC_E_TIMEOUT;
    decode_end(&decoding, is_wanted);
    if (is_wanted)
        decode_missing(conn, item, set);
    request->lent = NULL;
    return status;
}

/* The fewest bits of what is delivered as codes. */
static struct worst worst_of(const struct sc_plugin_item *item)
{
    struct worst worst = {0};
    struct sc_store_slab slab;
    for (uint64_t i = 0; i < item->request->range_count; i++)
        if (sc_store_slab_of(sc_store_selector_keys(item->selector), i, &slab)) {
            worst.bits_k = bits_fewer(worst.bits_k, slab.bits_k);
            worst.bits_v = bits_fewer(worst.bits_v, slab.bits_v);
        }
    return worst;
}

/* Whether every row without codes stands in the destination. */
static bool has_forced(const struct sc_plugin_item *item)
{
    const struct sc_plugin_request *request = item->request;
    const uint8_t *codes = sc_store_selector_keys(item->selector);
    struct sc_store_slab slab;
    for (uint64_t i = 0, row = 0; i < request->range_count; row += request->ranges[i++].row_count)
        for (uint64_t j = row; j < row + request->ranges[i].row_count; j++)
            if (!sc_plugin_bit_get(item->placed, j) && !sc_store_slab_of(codes, i, &slab))
                return false;
    return true;
}

/* Where the codes came from of rows that are delivered as these. */
static void quantised_tell(spec_connector *conn, struct sc_plugin_item *item)
{
    const struct sc_plugin_request *request = item->request;
    const uint8_t *codes = sc_store_selector_keys(item->selector);
    struct sc_store_slab slab;
    for (uint64_t i = 0, row = 0; i < request->range_count; i++) {
        bool has_quant = sc_store_slab_of(codes, i, &slab);
        uint64_t count = 0;
        for (uint64_t end = row + request->ranges[i].row_count; row < end; row++)
            if (has_quant && !sc_plugin_bit_get(item->placed, row))
                count++;
        if (has_quant) /* they are decoded in host memory */
            sc_plugin_bus_took(conn, item, slab.tier, count, conn->dims.row_bytes);
    }
}

static void delivery_count(spec_connector *conn, const struct sc_plugin_item *item)
{
    struct sc_plugin_stats *stats = &conn->stats;
    uint64_t exact = item->in.exact_rows, total = item->want.row_total;
    uint64_t covered = item->covered_rows < exact ? item->covered_rows : exact;
    bool is_partial = (item->in.result_flags & SPEC_IMPORTANT_PARTIAL) != 0;
    sc_count(&stats->quantised_layers, 1);
    sc_count(&stats->quantised_rows, total);
    sc_count(&stats->layered_exact_rows, exact);
    sc_count(&stats->layered_forced_rows, item->forced_rows);
    sc_count(&stats->partial_layers, is_partial);
    sc_count(&stats->prefetched_rows, covered);
    sc_count(&stats->demanded_rows, exact - covered);
}

void sc_plugin_layered_worth(struct sc_plugin_item *item, uint32_t bits_k, uint32_t bits_v)
{
    struct spec_provenance *provenance = &item->in.provenance;
    uint64_t total = item->want.row_total;
    struct spec_provenance lossy = {
        .kind = SPEC_PROVENANCE_LOSSY,
        .computed_on = SPEC_PROVENANCE_LOSSY,
        .bits_k = bits_k,
        .bits_v = bits_v,
        .exact_ppm = (uint32_t)(item->in.exact_rows * 1000000 / total),
    };
    sc_plugin_provenance_add(provenance, &lossy);
    sc_plugin_provenance_add(&item->delivered, &lossy);
}

spec_status sc_plugin_layered_finish(spec_connector *conn, struct sc_plugin_item *item,
                                     struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct spec_important *in = &item->in;
    uint64_t words = sc_plugin_words_of(item), total = item->want.row_total;
    item->placed = request->bits + 2 * words; /* behind the set's and the guess's */
    memset(item->placed, 0, words * sizeof(*item->placed));
    struct worst worst = worst_of(item);
    spec_status status = rows_deliver(conn, item, reterr);
    bool is_late = status == SPEC_E_TIMEOUT && has_forced(item);
    if (status != SPEC_OK && !is_late)
        return status;
    for (uint64_t w = 0; w < words; w++)
        in->exact_rows += (uint64_t)__builtin_popcountll(item->placed[w]);
    if (in->exact_bits != NULL)
        memcpy(in->exact_bits, item->placed, words * sizeof(*item->placed));
    sc_plugin_tell_all(item);
    if (is_late || item->want.is_cut)
        in->result_flags |= SPEC_IMPORTANT_PARTIAL;
    quantised_tell(conn, item);
    sc_plugin_tiers_tell(item, total);
    in->prefetched_rows = item->covered_rows;
    if (in->exact_rows < total)
        sc_plugin_layered_worth(item, worst.bits_k, worst.bits_v);
    sc_plugin_delivery_layered(conn, item, worst.bits_k, worst.bits_v);
    delivery_count(conn, item);
    return SPEC_OK;
}
