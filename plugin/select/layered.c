/* layered: every row decoded from its quantised row, the selected rows exactly. Contract:
 * layered.h.
 *
 *   quantised rows (available, verified)        rows of the set (being read)
 *        \ decoded into the destination            |
 *         [q q . q q q . . q q q q . q q q]        | when all are read: each to its place,
 *         [q q E q q q E E q q q q E q q q]  <-----'  and its bit is set
 *
 * Invariants: when rows_deliver returns, no thread decodes, even if reads failed; until then `lent`
 * protects the selector (request.c). A row of the set that was not read is decoded only after the
 * reads have ended, so each row has one writer. A row's bit is set after its exact bytes were
 * written. If the item is SPEC_OK, all rows without quantised rows were delivered; a deadline
 * leaves others quantised. */
#include "plugin/select/layered.h"
#include "plugin/args/provenance.h"
#include "plugin/quant/quant.h"
#include "plugin/select/delivery.h"
#include "plugin/select/item.h"
#include "plugin/select/row_bits.h"
#include "plugin/select/scatter.h"
#include "plugin/select/upper_bus.h"

#include <string.h>

#define DECODE_SHARED_BYTES (4ull << 20) /* less: no worker wakes */

void sc_plugin_worst_add(struct sc_plugin_worst *worst, uint32_t bits_k, uint32_t bits_v)
{
    worst->bits_k = worst->bits_k == 0 || bits_k < worst->bits_k ? bits_k : worst->bits_k;
    worst->bits_v = worst->bits_v == 0 || bits_v < worst->bits_v ? bits_v : worst->bits_v;
}

/* Decoding of slabs by the caller and, if one is idle, a worker. The caller waits for a worker that
 * has begun, so nobody writes after the call. */
struct decoding {
    struct sc_task task;
    const spec_connector *conn;
    const struct sc_plugin_item *item;
    const uint64_t *exact;  /* rows not to decode */
    bool is_shared;         /* posted to a worker */
    _Atomic uint64_t next;  /* next range */
    _Atomic uint32_t ended; /* 1: the worker has */
};

void sc_plugin_slab_decode(const spec_connector *conn, const struct sc_plugin_placing *to,
                           const struct sc_plugin_item *item, const struct sc_store_slab *slab,
                           uint64_t row, uint64_t count, const uint64_t *skipped)
{
    const struct sc_kernels_quantised parts[2] = {
        sc_plugin_quant_k(conn, slab, item->want.first_position + row, count),
        sc_plugin_quant_v(conn, slab)};
    item->memory.target->place_quant(to, parts, count, row, skipped);
}

static void slab_decode(const spec_connector *conn, const struct sc_plugin_placing *to,
                        const struct sc_plugin_item *item, uint64_t range, uint64_t row,
                        const uint64_t *skipped)
{
    uint64_t count = item->request->ranges[range].row_count;
    struct sc_store_slab slab;
    if (!sc_store_slab_of(sc_store_selector_keys(item->selector), range, &slab))
        return;
    sc_plugin_slab_decode(conn, to, item, &slab, row, count, skipped);
}

/* Decodes slabs until none is left or the reader (or NULL) has read everything. */
static void decode_some(struct decoding *decoding, const struct sc_store_reader *reader)
{
    const struct sc_plugin_item *item = decoding->item;
    const struct sc_plugin_request *request = item->request;
    struct sc_plugin_placing to = sc_plugin_placing_of(decoding->conn, item);
    uint64_t at = 0, row = 0, range; /* each thread's ranges ascend */
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
    struct sc_exec *exec = decoding->conn->exec; /* frame is invalid once ended */
    _Atomic uint32_t *ended = &decoding->ended;
    decode_some(decoding, NULL);
    atomic_store(ended, 1);
    sc_exec_wake(exec, ended);
}

/* Decodes the slabs that are left, if wanted; on return no thread decodes. */
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

/* Decodes rows of the set that were not read. Overwrites `set`. */
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

/* Decodes every row that has a quantised row and is not read exactly; reads the others. Each row is
 * written once, so it does not matter who is faster, the worker or the caller. */
static spec_status rows_deliver(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    uint64_t *set = request->bits; /* made by select_set */
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

static struct sc_plugin_worst worst_of(const struct sc_plugin_item *item)
{
    struct sc_plugin_worst worst = {0};
    struct sc_store_slab slab;
    for (uint64_t i = 0; i < item->request->range_count; i++)
        if (sc_store_slab_of(sc_store_selector_keys(item->selector), i, &slab))
            sc_plugin_worst_add(&worst, slab.bits_k, slab.bits_v);
    return worst;
}

/* Returns true if every row without quantised rows is in the destination. */
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

/* Counts the source tiers of rows that were delivered quantised. */
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
        if (has_quant) /* decoded in host memory */
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
    struct spec_provenance lossy = {
        .kind = SPEC_PROVENANCE_LOSSY,
        .computed_on = SPEC_PROVENANCE_LOSSY,
        .bits_k = bits_k,
        .bits_v = bits_v,
        .exact_ppm = (uint32_t)(item->in.exact_rows * 1000000 / item->in.row_count),
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
    item->placed = request->bits + 2 * words; /* after those of the set and the prediction */
    memset(item->placed, 0, words * sizeof(*item->placed));
    struct sc_plugin_worst worst = worst_of(item);
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
