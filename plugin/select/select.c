/* select: selectors, sets, and reads of a set's rows. Contract and routes: select.h.
 *
 *   select_start    selector -> set -> prefetched rows narrowed to it, the rest read   (every item)
 *   select_finish   prefetched rows, then the rest -> destination                    (item by item)
 *     HEADS         all rows, or all K -> destination -> each head scored -> (V of the union)
 *                   -> each head's rows moved down in place
 *
 * Invariants: of a call's items only the one being finished draws on the demand share of frames
 * (load.c). A set is valid until the request's next selection. Prefetched rows count only if the
 * set has them. */
#include "plugin/select/select.h"
#include "plugin/args/provenance.h"
#include "plugin/args/request_memory.h"
#include "plugin/select/budget.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/keys_first.h"
#include "plugin/select/layered.h"
#include "plugin/select/per_head.h"
#include "plugin/select/prefetch.h"
#include "plugin/select/row_bits.h"
#include "plugin/select/row_set.h"
#include "plugin/select/scatter.h"
#include "plugin/select/scratch.h"
#include "plugin/select/submission.h"

#include <string.h>

bool sc_plugin_can_select(const spec_connector *conn)
{
    return sc_config_selects(&conn->config) || conn->choice.probe_heads > 0 ||
           conn->choice.reads_quant;
}

spec_status sc_plugin_select_open(spec_connector *conn, struct spec_error *reterr)
{
    if (!conn->choice.can_select)
        return SPEC_OK;
    uint64_t count = conn->config.max_requests, tokens = conn->config.max_request_tokens;
    if (conn->config.layout == SC_STORE_SPLIT) {
        conn->choice.row_numbers = sc_alloc(&conn->alloc, tokens * sizeof(uint32_t));
        if (conn->choice.row_numbers == NULL)
            return sc_fail(reterr, SPEC_E_NO_MEMORY, "numbers of %" PRIu64 " rows", tokens);
    }
    for (uint64_t j = 0; conn->choice.row_numbers != NULL && j < tokens; j++)
        conn->choice.row_numbers[j] = (uint32_t)j;
    for (uint64_t i = 0; i < count * SC_PLUGIN_SELECTORS; i++) {
        struct sc_plugin_selector *selector =
            &conn->requests.slots[i / SC_PLUGIN_SELECTORS].selectors[i % SC_PLUGIN_SELECTORS];
        selector->layer = SC_PLUGIN_NO_LAYER;
        spec_status status = sc_store_selector_open(
            conn->store, tokens, sc_plugin_segments_of(conn, tokens), &selector->selector, reterr);
        if (status != SPEC_OK)
            return status;
    }
    spec_status status = sc_plugin_prefetches_open(conn, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_keys_first_open(conn, reterr);
    return status == SPEC_OK ? sc_plugin_scratches_open(conn, reterr) : status;
}

void sc_plugin_select_close(spec_connector *conn)
{
    sc_plugin_prefetches_close(conn); /* a task may still read a selector */
    for (uint32_t i = 0; conn->requests.slots != NULL && i < conn->config.max_requests; i++)
        for (uint32_t j = 0; j < SC_PLUGIN_SELECTORS; j++)
            sc_store_selector_close(conn->requests.slots[i].selectors[j].selector);
    sc_alloc_free(&conn->alloc, conn->choice.row_numbers);
    sc_plugin_keys_first_close(conn);
    sc_plugin_scratches_close(conn);
}

/* ---- Selectors ------------------------------------------------------------------------------- */

static void selector_end(spec_connector *conn, struct sc_plugin_request *request,
                         struct sc_plugin_selector *selector)
{
    if (selector->layer == SC_PLUGIN_NO_LAYER)
        return;
    SC_ASSERT(&conn->poison, selector->selector != request->lent);
    sc_store_selector_end(selector->selector);
    selector->layer = SC_PLUGIN_NO_LAYER;
}

void sc_plugin_selectors_end(spec_connector *conn, struct sc_plugin_request *request)
{
    for (uint32_t i = 0; i < SC_PLUGIN_SELECTORS && conn->choice.can_select; i++)
        selector_end(conn, request, &request->selectors[i]);
}

/* Returns what a selector reads: probe rows, or quantised rows (K alone without layered
 * delivery). */
static struct sc_store_selector_want want_of(const spec_connector *conn)
{
    bool is_quant = conn->choice.reads_quant;
    return (struct sc_store_selector_want){
        .probe_row_bytes = is_quant ? 0 : conn->choice.probe_row_bytes,
        .is_quant = is_quant,
        .k_alone = is_quant && conn->config.base == SC_BASE_NONE};
}

static struct sc_plugin_selector *selector_of(struct sc_plugin_request *request, uint32_t layer)
{
    return &request->selectors[layer % SC_PLUGIN_SELECTORS];
}

/* Returns the layer's selector, begun; NULL if it is not available. rows: those that it selects;
 * NULL: it must have probe keys. */
static struct sc_store_selector *selector_start(spec_connector *conn,
                                                struct sc_plugin_request *request, uint32_t layer,
                                                enum sc_io_class io_class,
                                                const struct sc_plugin_want *rows)
{
    struct sc_plugin_selector *selector = selector_of(request, layer);
    if (selector->layer == layer && !(rows == NULL && selector->keys_first)) {
        if (io_class == SC_IO_CLASS_DEMAND)
            sc_store_selector_demand(selector->selector);
        return selector->selector;
    }
    if (!sc_plugin_prefetch_leaves(conn, request, layer % SC_PLUGIN_SELECTORS,
                                   io_class == SC_IO_CLASS_DEMAND))
        return NULL;
    selector_end(conn, request, selector);
    struct sc_store_selector_want want = want_of(conn);
    bool keys_first = rows != NULL && sc_plugin_keys_go_first(conn, layer, rows);
    want.probe_row_bytes_least = want.probe_row_bytes; /* else DENSE in both orders [ABI-066] */
    want.probe_row_bytes = keys_first ? 0 : want.probe_row_bytes;
    want.layer = layer;
    want.io_class = io_class;
    want.ranges = request->ranges;
    want.range_count = request->range_count;
    want.on_ready = sc_plugin_prefetch_on_selector;
    want.user = request;
    sc_plugin_device_reap(&conn->device);
    if (!sc_store_selector_begin(selector->selector, &want))
        return NULL;
    selector->layer = layer;
    selector->is_counted = false;
    selector->keys_first = keys_first;
    return selector->selector;
}

struct sc_store_selector *sc_plugin_quant_part_begin(spec_connector *conn,
                                                     struct sc_plugin_request *request, uint32_t i,
                                                     uint32_t layer, uint64_t first, uint64_t end)
{
    struct sc_plugin_selector *selector = &request->selectors[i];
    struct sc_store_selector_want want = want_of(conn);
    want.layer = layer;
    want.io_class = SC_IO_CLASS_SPECULATIVE;
    want.ranges = request->ranges + first;
    want.range_count = end - first;
    (void)sc_plugin_prefetch_leaves(conn, request, i, true);
    selector_end(conn, request, selector);
    sc_plugin_device_reap(&conn->device);
    if (!sc_store_selector_begin(selector->selector, &want))
        return NULL;
    selector->layer = layer;
    return selector->selector;
}

static bool is_by_keys(const spec_connector *conn)
{
    return conn->config.identify == SC_IDENTIFY_KEYS &&
           !sc_baseline_is_blind(&conn->config, conn->config.metric);
}

/* ---- Reads of a set ------------------------------------------------------------------------- */

/* Drops reads of the layer that were begun in another way than `kept`, and counts them as
 * unused. */
static void prefetch_drop(spec_connector *conn, struct sc_plugin_item *item,
                          enum sc_plugin_load kept)
{
    uint64_t bytes = sc_plugin_prefetch_drop(conn, item->request, item->in.layer, kept);
    item->in.read_bytes += bytes;
    item->in.unused_bytes += bytes;
}

/* Narrows the prefetched rows to the set and begins to read the others. */
static void set_begin(spec_connector *conn, struct sc_plugin_item *item, enum sc_io_class io_class)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_reader *prediction = sc_plugin_prefetch_reader(request, item->in.layer);
    struct sc_plugin_reader *rest = &request->readers[SC_PLUGIN_REST];
    const uint64_t *tags = sc_store_selector_tags(item->selector);
    const uint32_t *rows = request->set;
    uint64_t count = item->set_count, words = sc_plugin_words_of(item);
    item->covered_rows = item->used_rows = 0;
    prefetch_drop(conn, item, SC_LOAD_GATHER);
    if (prediction != NULL) {
        uint64_t *wanted = request->bits, *covered = wanted + words;
        memset(wanted, 0, 2 * words * sizeof(*wanted));
        for (uint64_t i = 0; i < item->set_count; i++)
            sc_plugin_bit_set(wanted, request->set[i]);
        item->covered_rows = sc_store_reader_narrow(prediction->reader, wanted, covered);
        item->used_rows = prediction->gather.whole_slabs
                              ? sc_plugin_slabs_of(request, covered, NULL)
                              : item->covered_rows;
        sc_store_reader_tags(prediction->reader, tags);
        count = 0;
        for (uint64_t i = 0; i < item->set_count; i++)
            if (!sc_plugin_bit_get(covered, request->set[i]))
                rest->rows[count++] = request->set[i];
        rows = rest->rows;
    }
    if (count == 0) {
        sc_plugin_reader_drop(rest);
        return;
    }
    struct sc_store_gather_rows gather = sc_plugin_gather_of(conn, rows, count);
    sc_plugin_gather_begin(conn, request, rest, item->in.layer, &gather, io_class);
    sc_store_reader_tags(rest->reader, tags);
}

/* Returns true if reading only the rows that were not prefetched, with one more operation per gap,
 * costs less than reading the layer in one run. */
static bool pieces_save(const spec_connector *conn, const uint64_t *covered, uint64_t row_total)
{
    struct sc_store_gather_rows gather = sc_plugin_gather_of(conn, NULL, 0);
    uint64_t gap_bytes = gather.gap_bytes > SC_IO_PAGE_BYTES ? gather.gap_bytes : SC_IO_PAGE_BYTES;
    uint64_t bytes = 0;
    for (uint64_t row = 0; row < row_total; row++)
        if (!sc_plugin_bit_get(covered, row))
            bytes += conn->dims.row_bytes +
                     (row > 0 && sc_plugin_bit_get(covered, row - 1) ? gap_bytes : 0);
    return bytes + gap_bytes <= row_total * conn->dims.row_bytes;
}

/* Begins to read the rows that were not prefetched, if that is cheaper than all rows; returns true
 * if so. part: what is read of them. */
static bool pieces_begin(spec_connector *conn, struct sc_plugin_item *item,
                         enum sc_store_part_wanted part, enum sc_io_class io_class)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_reader *prediction = sc_plugin_prefetch_reader(request, item->in.layer);
    struct sc_plugin_reader *rest = &request->readers[SC_PLUGIN_REST];
    uint64_t words = sc_plugin_words_of(item), total = item->want.row_total, count = 0;
    if (prediction == NULL || item->selector == NULL)
        return false;
    uint64_t *wanted = request->bits, *covered = wanted + words;
    memset(wanted, 0xff, words * sizeof(*wanted));
    memset(covered, 0, words * sizeof(*covered));
    item->covered_rows = sc_store_reader_narrow(prediction->reader, wanted, covered);
    item->used_rows = item->covered_rows;
    item->is_pieced = pieces_save(conn, covered, total);
    if (!item->is_pieced)
        return false;
    for (uint64_t row = 0; row < total; row++)
        if (!sc_plugin_bit_get(covered, row))
            rest->rows[count++] = (uint32_t)row;
    struct sc_store_gather_rows gather = sc_plugin_gather_of(conn, rest->rows, count);
    gather.whole_slabs = false;
    gather.wanted = part;
    sc_plugin_gather_begin(conn, request, rest, item->in.layer, &gather, io_class);
    sc_store_reader_tags(prediction->reader, sc_store_selector_tags(item->selector));
    sc_store_reader_tags(rest->reader, sc_store_selector_tags(item->selector));
    return true;
}

/* Begins to read every row; uses prefetched rows if that is cheaper. */
static void all_begin(spec_connector *conn, struct sc_plugin_item *item, enum sc_io_class io_class)
{
    if (pieces_begin(conn, item, SC_STORE_WANT_ROWS, io_class))
        return;
    prefetch_drop(conn, item, SC_LOAD_WHOLE);
    item->was_started = sc_plugin_layer_start(conn, item->request, item->in.layer, io_class);
}

/* Split layout: begins to read every key; uses prefetched rows if that is cheaper. */
static void keys_begin(spec_connector *conn, struct sc_plugin_item *item, enum sc_io_class io_class)
{
    if (pieces_begin(conn, item, SC_STORE_WANT_K, io_class))
        return;
    prefetch_drop(conn, item, SC_LOAD_KEYS);
    item->was_started = sc_plugin_heads_start(conn, item->request, item->in.layer, io_class);
}

/* Returns true if selection uses a selector; otherwise the keys of all heads are read. */
static bool has_selector(const spec_connector *conn)
{
    return !is_by_keys(conn) || sc_plugin_probes_are_all(conn) ||
           conn->config.layout == SC_STORE_SPLIT;
}

struct sc_store_match_fetch_wants
sc_plugin_host_prefetch_wants(const spec_connector *conn, const struct sc_plugin_request *request)
{
    const struct sc_store_selector_want want = want_of(conn);
    uint32_t layers = conn->dims.layer_count, first = 0, end = layers;
    while (first < layers && (!has_selector(conn) || !sc_plugin_wants_some(conn, request, first)))
        first++;
    while (end > first && sc_plugin_want_usual(conn, request, end - 1).row_count == 0)
        end--;
    return (struct sc_store_match_fetch_wants){.probe_row_bytes = want.probe_row_bytes,
                                               .is_quant = want.is_quant,
                                               .k_alone = want.k_alone,
                                               .choice_from = first,
                                               .rows_end = end,
                                               .windows = conn->windows,
                                               .end = request->matched_tokens};
}

void sc_plugin_select_ahead(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            bool with_rows)
{
    const struct sc_plugin_want want = sc_plugin_want_usual(conn, request, layer);
    bool needs_probes = atomic_load_explicit(&conn->ahead.needs_probes, memory_order_relaxed);
    bool some = conn->choice.can_select && want.selects;
    bool by_keys = some && is_by_keys(conn), has_all = sc_plugin_probes_are_all(conn);
    bool keys_first = some && has_selector(conn) &&
                      selector_start(conn, request, layer, SC_IO_CLASS_SPECULATIVE,
                                     needs_probes ? NULL : &want) != NULL &&
                      selector_of(request, layer)->keys_first;
    keys_first = keys_first && sc_plugin_prefetch_reader(request, layer) == NULL; /* else is used */
    if (((by_keys && !has_all) || keys_first) && with_rows)
        (void)sc_plugin_heads_start(conn, request, layer, SC_IO_CLASS_SPECULATIVE);
    else if (!some && with_rows) {
        sc_plugin_prefetch_yield(request, layer);
        (void)sc_plugin_layer_start(conn, request, layer, SC_IO_CLASS_SPECULATIVE);
    }
}

/* ---- Choosing ------------------------------------------------------------------------------- */

/* Returns true if the item's queries and destination allow a set per head. */
static bool takes_head_sets(const struct sc_plugin_item *item)
{
    return !item->scoring.is_probes_only && !item->memory.has_negative_slot &&
           item->memory.target->score != NULL;
}

/* Returns true if keys may go first. A device adds in another order than the CPU, which scores rows
 * in the destination: who scores must not depend on the order of reads. */
static bool takes_keys_first(const struct sc_plugin_item *item)
{
    return takes_head_sets(item) && item->scoring.queries_afar.device == NULL &&
           item->scoring.fresh_afar.device == NULL;
}

static struct sc_store_selector *item_selector_start(spec_connector *conn,
                                                     const struct sc_plugin_item *item,
                                                     enum sc_io_class io_class)
{
    bool takes_keys = takes_keys_first(item);
    atomic_store_explicit(&conn->ahead.needs_probes, !takes_keys, memory_order_relaxed);
    return selector_start(conn, item->request, item->in.layer, io_class,
                          takes_keys ? &item->want : NULL);
}

void sc_plugin_select_item_ahead(spec_connector *conn, const struct sc_plugin_item *item)
{
    if (sc_plugin_wants_some(conn, item->request, item->in.layer) && has_selector(conn))
        (void)item_selector_start(conn, item, SC_IO_CLASS_SPECULATIVE);
}

static void count_identify(spec_connector *conn, struct sc_plugin_item *item, uint64_t begin_ns)
{
    uint64_t took_ns = sc_exec_now_ns(conn->exec) - begin_ns;
    item->in.probe_ns += took_ns;
    sc_count(&conn->stats.identify_ns, took_ns);
}

static spec_status fail_late(struct spec_error *reterr)
{
    return sc_fail(reterr, SPEC_E_TIMEOUT, "get_important: the deadline came before the rows");
}

static spec_status selector_await(spec_connector *conn, struct sc_plugin_item *item,
                                  uint64_t deadline_ns, struct spec_error *reterr)
{
    uint64_t begin_ns = sc_exec_now_ns(conn->exec);
    struct sc_plugin_selector *slot = selector_of(item->request, item->in.layer);
    struct sc_store_selector *selector = item_selector_start(conn, item, SC_IO_CLASS_DEMAND);
    item->selector = NULL;
    if (selector == NULL)
        return SPEC_OK;
    spec_status status = sc_store_selector_wait(selector, deadline_ns);
    uint64_t wait_ns = sc_exec_now_ns(conn->exec) - begin_ns;
    item->in.io_exposed_ns += wait_ns;
    sc_count(&item->request->awaited_ns, wait_ns);
    sc_count(&conn->stats.exposed_ns, wait_ns);
    if (status == SPEC_E_TIMEOUT)
        return fail_late(reterr);
    struct sc_store_read_cost cost = {0};
    if (item->route != SC_ROUTE_REFINE || !slot->is_counted) /* else counted already */
        sc_store_selector_cost(selector, &cost);
    slot->is_counted = true;
    sc_plugin_load_policy_read(item->request, &cost);
    item->in.wanted_bytes += cost.wanted_bytes;
    item->in.read_bytes += cost.read_bytes;
    item->in.io_ops += cost.op_count;
    sc_count(&conn->stats.wanted_bytes, cost.wanted_bytes);
    sc_count(&conn->stats.selector_read_bytes, cost.read_bytes);
    if (status == SPEC_OK)
        item->selector = selector;
    return SPEC_OK;
}

enum choice { BY_PROBES, BY_KEYS, BY_QUANT, BY_BASELINE, BY_PLACE };

/* Selects into the request's set or, with *ret_one_set false, into the scratch's sets, one per
 * head. */
static spec_status select_by(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                             enum choice choice, bool *ret_one_set, struct spec_error *reterr)
{
    uint32_t *set = item->request->set;
    *ret_one_set = choice != BY_KEYS;
    switch (choice) {
    case BY_PLACE:
        sc_plugin_select_kept(scratch, item, set);
        return SPEC_OK;
    case BY_BASELINE:
        *ret_one_set = sc_plugin_select_by_baseline(scratch, item, set);
        return SPEC_OK;
    case BY_QUANT:
        return sc_plugin_select_by_quant(scratch, item, set, reterr);
    case BY_KEYS:
        return sc_plugin_select_by_all(scratch, item, sc_store_selector_keys(item->selector),
                                       reterr);
    case BY_PROBES:
        break;
    }
    return sc_plugin_select_by_probes(scratch, item, sc_store_selector_keys(item->selector), set,
                                      ret_one_set, reterr);
}

/* Selects the item's set and sets its route. The selector is ready or not needed. */
static spec_status select_set(spec_connector *conn, struct sc_plugin_item *item, enum choice choice,
                              bool may_part, struct spec_error *reterr)
{
    struct sc_plugin_scratch *scratch = sc_plugin_scratch_take_for(conn, item);
    if (scratch == NULL)
        return fail_late(reterr);
    const float *sums = NULL;
    uint64_t *bits = item->request->bits;
    uint32_t *set = item->request->set;
    bool one_set, has_sums = choice == BY_PROBES || choice == BY_KEYS;
    spec_status status = select_by(scratch, item, choice, &one_set, reterr);
    if (status != SPEC_OK) {
        sc_plugin_scratch_put(scratch);
        return status;
    }
    if (choice == BY_BASELINE)
        may_part = one_set;
    if (has_sums) /* behind each head's sums (sc_plugin_probe_sums) */
        sums = scratch->sums + conn->choice.probe_heads * item->want.row_total;
    else if (choice == BY_QUANT)
        sums = scratch->sums + item->want.row_total;
    if (choice == BY_BASELINE && !one_set && item->want.is_layered) { /* no scores */
        sc_plugin_select_kept(scratch, item, set);
        one_set = true;
    }
    if (one_set) {
        memset(bits, 0, sc_plugin_words_of(item) * sizeof(*bits));
        for (uint64_t i = 0; i < item->row_count; i++)
            sc_plugin_bit_set(bits, set[i]);
        item->route = item->want.is_layered ? SC_ROUTE_LAYERED : SC_ROUTE_GATHER;
        item->set_count = item->row_count;
    } else if (may_part && sc_plugin_probes_are_all(conn)) {
        sc_plugin_per_head_of(conn, scratch->sets, item);
    } else if (may_part) {
        item->route = SC_ROUTE_HEADS;
    }
    bool is_known = one_set || item->route == SC_ROUTE_PER_HEAD;
    if ((is_known || sums != NULL) && !sc_plugin_is_ahead(&item->in)) /* a hint teaches nothing */
        sc_plugin_prefetch_learn(conn, scratch, item, is_known ? bits : NULL, sums);
    sc_plugin_scratch_put(scratch);
    return SPEC_OK;
}

static bool has_all_quant(const struct sc_plugin_item *item)
{
    struct sc_store_slab slab;
    for (uint64_t i = 0; i < item->request->range_count; i++)
        if (item->request->ranges[i].row_count > 0 &&
            !sc_store_slab_of(sc_store_selector_keys(item->selector), i, &slab))
            return false;
    return true;
}

/* Returns what selects a set if the selector has quantised rows. */
static enum choice choice_of(const spec_connector *conn, const struct sc_plugin_want *want)
{
    bool by_baseline = sc_baseline_can_score(&conn->baseline, want->metric);
    return want->is_scored ? BY_QUANT : by_baseline ? BY_BASELINE : BY_PLACE;
}

static spec_status select_by_quant(spec_connector *conn, struct sc_plugin_item *item,
                                   struct spec_error *reterr)
{
    const struct sc_plugin_want *want = &item->want;
    spec_status status = selector_await(conn, item, sc_plugin_item_over_ns(item), reterr);
    if (status != SPEC_OK || item->selector == NULL || (!want->is_layered && !has_all_quant(item)))
        return status;
    return select_set(conn, item, choice_of(conn, want), false, reterr);
}

static void select_all_rows(struct sc_plugin_item *item)
{
    item->ranking = NULL;
    item->row_count = item->want.row_total;
    for (uint64_t row = 0; row < item->row_count; row++)
        item->request->set[row] = (uint32_t)row;
}

bool sc_plugin_set_select(spec_connector *conn, struct sc_plugin_item *item)
{
    uint64_t begin_ns = sc_exec_now_ns(conn->exec);
    spec_status status = selector_await(conn, item, item->deadline_ns, NULL);
    if (status == SPEC_OK && item->selector != NULL)
        status = select_set(conn, item, choice_of(conn, &item->want), false, NULL);
    else if (status == SPEC_OK)
        select_all_rows(item);
    count_identify(conn, item, begin_ns);
    item->route = SC_ROUTE_REFINE;
    return status == SPEC_OK;
}

/* Sets item->route and, for GATHER, PER_HEAD and LAYERED, the set. */
static spec_status item_select(spec_connector *conn, struct sc_plugin_item *item,
                               struct spec_error *reterr)
{
    uint32_t identify = conn->config.identify;
    bool by_baseline = sc_baseline_can_score(&conn->baseline, item->want.metric);
    bool may_part = takes_head_sets(item);
    bool by_keys = !by_baseline && identify == SC_IDENTIFY_KEYS;
    bool by_probes = !by_baseline && identify == SC_IDENTIFY_PROBES && conn->choice.probe_heads > 0;
    bool is_split = conn->config.layout == SC_STORE_SPLIT;
    bool wants_selector = !by_keys || is_split || sc_plugin_probes_are_all(conn);
    item->route = SC_ROUTE_DENSE;
    if (conn->choice.reads_quant)
        return select_by_quant(conn, item, reterr);
    if (!conn->choice.can_select || !(by_baseline || by_probes || (by_keys && may_part)))
        return SPEC_OK;
    spec_status status =
        wants_selector ? selector_await(conn, item, item->deadline_ns, reterr) : SPEC_OK;
    if (status != SPEC_OK || (item->selector == NULL && (!by_keys || is_split)))
        return status;
    bool by_selector = item->selector != NULL && sc_plugin_probes_are_all(conn);
    item->keys_first = by_probes && selector_of(item->request, item->in.layer)->keys_first;
    if ((by_keys && !by_selector) || item->keys_first) {
        item->route = SC_ROUTE_HEADS;
        return SPEC_OK;
    }
    enum choice choice = by_baseline ? BY_BASELINE : by_keys ? BY_KEYS : BY_PROBES;
    return select_set(conn, item, choice, may_part, reterr);
}

spec_status sc_plugin_select_start(spec_connector *conn, struct sc_plugin_item *item,
                                   enum sc_io_class io_class, struct spec_error *reterr)
{
    uint64_t begin_ns = sc_exec_now_ns(conn->exec);
    spec_status status = item_select(conn, item, reterr);
    count_identify(conn, item, begin_ns);
    if (status != SPEC_OK)
        return status;
    if (item->route == SC_ROUTE_GATHER || item->route == SC_ROUTE_PER_HEAD ||
        item->route == SC_ROUTE_LAYERED) {
        set_begin(conn, item, io_class);
    } else if (item->route == SC_ROUTE_HEADS && conn->config.layout == SC_STORE_SPLIT) {
        keys_begin(conn, item, io_class);
    } else {
        all_begin(conn, item, io_class);
    }
    return SPEC_OK;
}

/* ---- Finishing ------------------------------------------------------------------------------ */

static spec_status finish_gather(spec_connector *conn, struct sc_plugin_item *item,
                                 struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    spec_status status = sc_plugin_set_take(conn, item, reterr);
    item->in.union_rows = item->set_count;
    if (status == SPEC_OK && item->route == SC_ROUTE_PER_HEAD)
        sc_plugin_per_head_part(conn, item);
    else if (status == SPEC_OK && item->in.positions != NULL)
        for (uint64_t i = 0; i < item->set_count; i++)
            item->in.positions[i] = (uint32_t)(request->from_token + request->set[i]);
    return status;
}

spec_status sc_plugin_select_all(spec_connector *conn, struct sc_plugin_item *item,
                                 struct spec_error *reterr)
{
    if (!item->is_pieced)
        item->covered_rows = item->was_started ? item->want.row_total : 0;
    return sc_plugin_all_take(conn, item, reterr);
}

/* Adds the set to a head's bits and to the union (the first bits). */
static void head_takes_set(struct sc_plugin_item *item, uint64_t head)
{
    uint64_t *any = item->request->bits, *bits = sc_plugin_head_bits(item, head);
    for (uint64_t i = 0; i < item->row_count; i++)
        sc_plugin_bit_set(bits, item->request->set[i]);
    for (uint64_t w = 0; w < sc_plugin_words_of(item); w++)
        any[w] |= bits[w];
}

/* Compares the probe heads; returns true if one set is selected, which the request then has. */
static bool probes_select(spec_connector *conn, struct sc_plugin_scratch *scratch,
                          struct sc_plugin_item *item)
{
    const float *sums = scratch->sums + conn->choice.probe_heads * item->want.row_total;
    bool agree = sc_plugin_select_by_probes_here(scratch, item, item->request->set);
    if (agree) {
        head_takes_set(item, 0);
        item->set_count = item->row_count;
    }
    sc_plugin_prefetch_learn(conn, scratch, item, agree ? item->request->bits : NULL, sums);
    return agree;
}

/* All keys are in the destination: selects each head's rows, or one set for all. */
static spec_status select_heads(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_scratch *scratch = sc_plugin_scratch_take_for(conn, item);
    if (scratch == NULL)
        return fail_late(reterr);
    spec_status status = sc_plugin_scoring_fetch(scratch, item, reterr);
    if (status != SPEC_OK) {
        sc_plugin_scratch_put(scratch);
        return status;
    }
    uint64_t begin_ns = sc_exec_now_ns(conn->exec), words = sc_plugin_words_of(item);
    uint64_t *any = request->bits;
    memset(any, 0, (2 + conn->shape.kv_head_count) * words * sizeof(*any));
    if (conn->config.identify == SC_IDENTIFY_KEYS)
        item->row_count = sc_plugin_select_count(scratch, item);
    item->has_one_set = item->keys_first && probes_select(conn, scratch, item);
    for (uint64_t head = 0; !item->has_one_set && head < conn->shape.kv_head_count; head++) {
        sc_plugin_select_head(scratch, item, head, request->set);
        head_takes_set(item, head);
    }
    sc_plugin_scratch_put(scratch);
    for (uint64_t w = 0; w < words; w++)
        item->in.union_rows += (uint64_t)__builtin_popcountll(any[w]);
    count_identify(conn, item, begin_ns);
    return SPEC_OK;
}

/* Makes a head's rows the request's set, and reports their positions. */
static void set_tell(const struct sc_plugin_item *item, uint64_t head)
{
    const struct sc_plugin_request *request = item->request;
    uint64_t count = item->row_count;
    (void)sc_plugin_rows_of(sc_plugin_head_bits(item, head), sc_plugin_words_of(item),
                            request->set);
    for (uint64_t i = 0; item->in.positions != NULL && i < count; i++)
        item->in.positions[head * count + i] = (uint32_t)(request->from_token + request->set[i]);
}

/* Moves each head's rows to the front of the destination. */
static void keep_heads(const spec_connector *conn, struct sc_plugin_item *item)
{
    struct sc_plugin_request *request = item->request;
    uint64_t heads = conn->shape.kv_head_count, count = item->row_count;
    struct sc_plugin_placing to = sc_plugin_placing_of(conn, item);
    for (uint64_t head = 0; head < heads; head++) {
        if (head == 0 || !item->has_one_set)
            set_tell(item, head);
        item->memory.target->compact(&to, head, request->set, count);
    }
    item->in.result_flags |= item->has_one_set ? 0 : SPEC_IMPORTANT_FALLBACK;
}

/* Lists the union's rows that were not prefetched in the rest's rows; returns how many. */
static uint64_t union_rest(const struct sc_plugin_item *item)
{
    struct sc_plugin_reader *rest = &item->request->readers[SC_PLUGIN_REST];
    uint64_t count = 0;
    if (!item->is_pieced)
        return sc_plugin_rows_of(item->request->bits, sc_plugin_words_of(item), rest->rows);
    for (uint64_t i = 0; i < rest->gather.count; i++)
        if (sc_plugin_bit_get(item->request->bits, rest->rows[i]))
            rest->rows[count++] = rest->rows[i];
    return count;
}

/* Split layout: reads V of `count` rows of the rest, each to its own place. */
static spec_status take_values(spec_connector *conn, struct sc_plugin_item *item, uint64_t count,
                               struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_reader *rest = &request->readers[SC_PLUGIN_REST];
    if (count == 0)
        return SPEC_OK;
    struct sc_store_gather_rows gather = sc_plugin_gather_of(conn, rest->rows, count);
    gather.wanted = SC_STORE_WANT_V;
    sc_plugin_gather_begin(conn, request, rest, item->in.layer, &gather, SC_IO_CLASS_DEMAND);
    sc_store_reader_tags(rest->reader, sc_store_selector_tags(item->selector));
    return sc_plugin_reader_take(conn, item, rest, NULL, 0, reterr);
}

static spec_status finish_heads(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_reader *reader = &request->readers[item->in.layer % SC_PLUGIN_AHEAD];
    bool is_split = conn->config.layout == SC_STORE_SPLIT;
    spec_status status = SPEC_OK;
    uint64_t rest_count = 0;
    if (is_split && !item->is_pieced) {
        (void)sc_plugin_heads_start(conn, request, item->in.layer, SC_IO_CLASS_DEMAND);
        sc_store_reader_tags(reader->reader, sc_store_selector_tags(item->selector));
        status = sc_plugin_reader_take(conn, item, reader, NULL, 0, reterr);
    } else {
        status = sc_plugin_all_take(conn, item, reterr);
    }
    if (status == SPEC_OK)
        status = select_heads(conn, item, reterr);
    if (status == SPEC_OK && (is_split || item->is_pieced))
        rest_count = union_rest(item);
    if (status == SPEC_OK && is_split)
        status = take_values(conn, item, rest_count, reterr);
    if (status == SPEC_OK)
        keep_heads(conn, item);
    if (!item->is_pieced)
        item->covered_rows = item->was_started ? item->in.union_rows : 0;
    else if (status == SPEC_OK)
        item->covered_rows = item->in.union_rows - rest_count;
    return status;
}

/* Records fewer than all rows in the item's provenance, and for what passes store after it. */
static void note_pruned(spec_connector *conn, struct sc_plugin_item *item)
{
    uint64_t total = item->want.row_total;
    uint32_t ppm = (uint32_t)((item->row_count * 1000000 + total - 1) / total);
    item->in.provenance.kind = item->in.provenance.computed_on = SPEC_PROVENANCE_PRUNED;
    item->in.provenance.retain_ppm = ppm;
    item->in.provenance.metric = item->want.metric;
    sc_plugin_provenance_add(&item->delivered, &item->in.provenance);
    bool parted = (item->in.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    sc_count(&conn->stats.selected_layers, 1);
    sc_count(&conn->stats.fallback_layers, parted);
    sc_count(&conn->stats.selected_rows, item->row_count);
    sc_count(&conn->stats.selected_from_rows, total);
}

spec_status sc_plugin_select_finish(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr)
{
    if (item->route == SC_ROUTE_LAYERED)
        return sc_plugin_layered_finish(conn, item, reterr);
    spec_status status = item->route == SC_ROUTE_HEADS ? finish_heads(conn, item, reterr)
                                                       : finish_gather(conn, item, reterr);
    if (status != SPEC_OK)
        return status;
    item->in.row_count = item->in.exact_rows = item->row_count;
    sc_plugin_tiers_tell(item, item->in.union_rows);
    item->in.prefetched_rows = item->covered_rows;
    item->in.provenance = item->request->provenance;
    if (item->row_count < item->want.row_total)
        note_pruned(conn, item);
    sc_count(&conn->stats.prefetched_rows, item->covered_rows);
    sc_count(&conn->stats.demanded_rows, item->in.union_rows - item->covered_rows);
    return SPEC_OK;
}
