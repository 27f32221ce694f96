/* bidirectional: loads of a match from its end. Contract: bidirectional.h.
 *
 *   block   whole ranges, from the last on down; one part per layer, read by one reader. Both sides
 *           wait for the last block, so a block is at most an eighth of what is left, but a chunk
 *   parts   [block, layer 0][block, layer 1] .. [next block, layer 0] ..    in turn on the readers
 *   claim   when a block's first rows are verified: back moves down to its first row, or to the
 *           front, if that is inside the block
 *   quant   a part of an item that wants quantised rows is read by a selector and decoded; its
 *           ranges without good quantised rows are read by the reader of the same turn
 *           (docs/decisions/0062) */
#include "plugin/load/bidirectional.h"

#include "plugin/args/args.h"
#include "plugin/args/dtype_table.h"
#include "plugin/args/handle.h"
#include "plugin/load/loads_end.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/layered.h"
#include "plugin/select/row_bits.h"
#include "plugin/select/scatter.h"
#include "plugin/select/select.h"
#include "plugin/select/submission.h"
#include "plugin/select/upper_bus.h"

#include <string.h>

#define BLOCK_SHARE 8u /* a block is at most 1 / 8 of the rows left */

_Static_assert(SC_PLUGIN_SELECTORS >= SC_PLUGIN_READERS, "a selector for each part in flight");

static uint64_t front_of(uint64_t ends)
{
    return ends >> 32;
}

static uint64_t back_of(uint64_t ends)
{
    return ends & UINT32_MAX;
}

static uint64_t ends_of(uint64_t front, uint64_t back)
{
    return front << 32 | back;
}

void sc_plugin_bidirectional_forget(struct sc_plugin_request *request)
{
    atomic_store(&request->ends, sc_plugin_row_total(request));
}

/* Moves the back; returns false if the front has passed it. Moving it up always succeeds. */
static bool back_move(struct sc_plugin_request *request, uint64_t back)
{
    uint64_t ends = atomic_load(&request->ends);
    do {
        if (front_of(ends) > back)
            return false;
    } while (!atomic_compare_exchange_weak(&request->ends, &ends, ends_of(front_of(ends), back)));
    return true;
}

/* ---- From the front ------------------------------------------------------------------------- */

/* Returns the end of the next range: on the chunk grid, unless the range were empty then. */
static uint64_t range_end(const spec_connector *conn, const struct sc_plugin_request *request,
                          uint64_t ends, uint64_t budget)
{
    uint64_t front = front_of(ends), left = back_of(ends) - front;
    uint64_t chunk = conn->config.chunk_tokens;
    if (budget >= left)
        return back_of(ends);
    uint64_t end = request->from_token + front + budget, even = end - end % chunk;
    end = even > request->from_token + front ? even : end;
    return end - request->from_token;
}

spec_status sc_plugin_next_chunk(spec_connector *conn, struct spec_next_chunk *chunk,
                                 struct spec_error *reterr)
{
    struct spec_next_chunk next;
    spec_status status =
        sc_plugin_args_read(&next, &sc_plugin_form_next_chunk, chunk, "next_chunk", reterr);
    if (status != SPEC_OK)
        return status;
    if (next.budget_tokens == 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "next_chunk: budget_tokens is 0, 1 or more expected");
    struct sc_plugin_request *request = sc_plugin_request_hold(conn, next.request);
    if (request == NULL)
        return sc_plugin_stale(next.request, reterr);
    if (!sc_plugin_request_is_current(conn, request)) {
        sc_plugin_request_unhold(request);
        return sc_plugin_stale(next.request, reterr);
    }
    uint64_t ends = atomic_load(&request->ends), end;
    do {
        end = range_end(conn, request, ends, next.budget_tokens);
    } while (!atomic_compare_exchange_weak(&request->ends, &ends, ends_of(end, back_of(ends))));
    for (uint32_t i = 0; i < SC_PLUGIN_READERS && end == back_of(ends); i++) {
        sc_store_reader_nudge(request->readers[i].reader); /* its rows were given out */
        if (conn->choice.can_select)
            sc_store_selector_nudge(request->selectors[i].selector);
    }
    next.first_token = request->from_token + front_of(ends);
    next.token_count = end - front_of(ends);
    sc_plugin_request_unhold(request);
    sc_count(&conn->stats.given_tokens, next.token_count);
    next.state = next.token_count > 0 ? SPEC_CHUNK_COMPUTE : SPEC_CHUNK_MET;
    sc_plugin_args_write(chunk, &next, sizeof(next));
    return SPEC_OK;
}

/* ---- From the back -------------------------------------------------------------------------- */

/* Ranges [range, range_end) of the match: its rows [row, row_end). Empty: no block. */
struct block {
    uint64_t range, range_end, row, row_end;
    bool is_quant; /* all ranges have quantised rows; else none has, or no item wants them */
};

struct part {
    struct block block;
    struct sc_store_selector *selector; /* reads its quantised rows; NULL: a reader, its rows */
};

struct quantised {             /* an item's rows that were delivered quantised */
    uint32_t rows, block_rows; /* of complete blocks; of the block being loaded */
    struct sc_plugin_worst worst;
};

struct tail {
    spec_connector *conn;
    struct sc_plugin_request *request;
    struct sc_plugin_item *work; /* [layers] */
    uint64_t layers;
    uint64_t rows_least; /* of a block while both ends are far apart */
    uint64_t deadline_ns;

    struct part parts[SC_PLUGIN_READERS]; /* in flight */
    struct block begun;                   /* next part to begin, and next to consume */
    uint64_t begun_layer, begun_count;
    struct block taken;
    uint64_t taken_layer, taken_count;
    bool is_claimed; /* `taken`: rows [first, row_end) are claimed */
    uint64_t first;  /* loaded or claimed down to here */
    bool is_met;     /* nothing is left to claim */
    uint64_t failed_range;
    uint32_t failed_tier;
    bool wants_quant;                       /* some item does */
    struct quantised quant[SC_LIMIT_BATCH]; /* [layers] */
};

static bool has_quant(const struct tail *tail, uint64_t range)
{
    return tail->wants_quant &&
           sc_store_range_has_quant(tail->conn->store, &tail->request->ranges[range]);
}

/* Returns the block whose ranges end at `end` and whose rows end at row_end. */
static struct block block_below(const struct tail *tail, uint64_t end, uint64_t row_end)
{
    const struct sc_store_range *ranges = tail->request->ranges;
    struct block block = {.range = end, .range_end = end, .row = row_end, .row_end = row_end};
    uint64_t front = front_of(atomic_load(&tail->request->ends));
    uint64_t least = front < row_end ? (row_end - front) / BLOCK_SHARE : 0;
    least = least < tail->rows_least ? least : tail->rows_least;
    least = least > tail->conn->config.chunk_tokens ? least : tail->conn->config.chunk_tokens;
    block.is_quant = end > 0 && has_quant(tail, end - 1);
    while (block.range > 0 && row_end - block.row < least &&
           has_quant(tail, block.range - 1) == block.is_quant)
        block.row -= ranges[--block.range].row_count;
    return block;
}

/* Returns true if the item's rows shall be quantised rows. */
static bool wants_quant(const struct sc_plugin_item *item)
{
    return item->want.row_count < item->want.row_total;
}

/* Returns the rows of a block of about one operation, quantised as they would be stored now. */
static uint64_t block_rows(const spec_connector *conn, bool are_quant)
{
    const struct sc_config *config = &conn->config;
    uint64_t bytes = conn->dims.row_bytes;
    uint64_t quarters =
        64 * sc_plugin_dtype_bytes(sc_plugin_shape_of(conn, 0)->dtype); /* K and V */
    if (are_quant)
        bytes = bytes * (config->quarters_k + config->quarters_v) / quarters;
    uint64_t rows = sc_store_op_bytes(conn->store) / (bytes > 0 ? bytes : 1);
    return rows > config->chunk_tokens ? rows : config->chunk_tokens;
}

static void part_begin(struct tail *tail, uint64_t at)
{
    struct sc_plugin_request *request = tail->request;
    const struct block *block = &tail->begun;
    struct part *part = &tail->parts[at];
    uint32_t layer = (uint32_t)tail->begun_layer;
    *part = (struct part){.block = *block};
    if (block->is_quant && wants_quant(&tail->work[layer]))
        part->selector = sc_plugin_quant_part_begin(tail->conn, request, (uint32_t)at, layer,
                                                    block->range, block->range_end);
    if (part->selector == NULL)
        sc_plugin_part_begin(request, &request->readers[at], layer, block->range, block->range_end);
}

/* Begins one part per reader, none that the front has passed. */
static void parts_begin(struct tail *tail)
{
    struct sc_plugin_request *request = tail->request;
    while (tail->begun_count - tail->taken_count < SC_PLUGIN_READERS &&
           tail->begun.row < tail->begun.row_end &&
           front_of(atomic_load(&request->ends)) < tail->begun.row_end) {
        part_begin(tail, tail->begun_count++ % SC_PLUGIN_READERS);
        if (++tail->begun_layer == tail->layers) {
            tail->begun_layer = 0;
            tail->begun = block_below(tail, tail->begun.range, tail->begun.row);
        }
    }
}

/* Waits for the selector or, without one, for the reader. Returns true if it has rows, has failed
 * or is late; false if nothing is left to load. */
static bool part_await(struct tail *tail, struct sc_store_reader *reader,
                       struct sc_store_selector *selector)
{
    const _Atomic uint64_t *word = &tail->request->ends;
    for (;;) {
        uint64_t ends = atomic_load(word);
        if (front_of(ends) >= back_of(ends))
            return false;
        if (selector != NULL ? sc_store_selector_await(selector, tail->deadline_ns, word, ends)
                             : sc_store_reader_wait(reader, tail->deadline_ns, word, ends))
            return true;
    }
}

/* Claims what the front has left of the block, whose first rows are verified. */
static bool block_claim(struct tail *tail)
{
    uint64_t ends = atomic_load(&tail->request->ends), first;
    do {
        first = front_of(ends) > tail->taken.row ? front_of(ends) : tail->taken.row;
        if (first >= back_of(ends))
            return false;
    } while (
        !atomic_compare_exchange_weak(&tail->request->ends, &ends, ends_of(front_of(ends), first)));
    tail->first = first;
    tail->is_claimed = true;
    for (uint64_t row = tail->taken.row; tail->wants_quant && row < first; row++)
        sc_plugin_bit_set(tail->request->bits, row);
    return true;
}

/* Places rows of a reader's part, which begins at row `first`, except those that the front has. */
static void rows_place(const struct tail *tail, const struct sc_plugin_item *item,
                       const struct sc_plugin_placing *to, const struct sc_store_rows *rows,
                       uint64_t first)
{
    uint64_t at = first + rows->row_first, end = at + rows->row_count;
    uint64_t from = at < tail->first ? tail->first - at : 0;
    if (end > tail->first)
        item->memory.target->place_rows(to, rows, from, rows->row_count - from, SC_STORE_WANT_ROWS,
                                        at + from);
}

/* Loads ranges [range, ..) of the taken block, its rows [row, row_end), by a reader that has begun
 * with them. */
static spec_status rows_take(struct tail *tail, struct sc_store_reader *reader, uint64_t range,
                             uint64_t row, uint64_t row_end, struct spec_error *reterr)
{
    spec_connector *conn = tail->conn;
    struct sc_plugin_item *item = &tail->work[tail->taken_layer];
    const struct sc_plugin_target *target = item->memory.target;
    struct sc_plugin_placing to = sc_plugin_placing_of(conn, item);
    uint64_t first = row, total = sc_plugin_row_total(tail->request);
    uint64_t bite = SC_STORE_BITE_BYTES / conn->dims.row_bytes;
    struct sc_store_rows rows = {0};
    struct sc_store_read_cost cost;
    spec_status status = SPEC_OK;
    sc_store_reader_demand(reader);
    if (!tail->is_claimed && !part_await(tail, reader, NULL)) {
        tail->is_met = true;
        return SPEC_OK;
    }
    for (;; row += rows.row_count) {
        uint64_t ahead = row_end - row;
        ahead = ahead < bite || bite == 0 ? ahead : bite;
        sc_store_reader_apart(reader, target->expect(&to, row, ahead, total));
        status = sc_store_reader_next(reader, tail->deadline_ns, NULL, &rows, reterr);
        if (status != SPEC_OK || rows.row_count == 0)
            break;
        tail->is_met = !tail->is_claimed && !block_claim(tail);
        if (tail->is_met)
            break;
        sc_plugin_bus_took(conn, item, rows.tier, rows.row_count, conn->dims.row_bytes);
        rows_place(tail, item, &to, &rows, first);
    }
    /* An incomplete part has an error: otherwise it would be reported as loaded. */
    SC_ASSERT(&conn->poison, status != SPEC_OK || tail->is_met || row == row_end);
    (void)target->fence(&item->memory, SC_FENCE_PLACED, NULL); /* SETTLED reports it */
    sc_store_reader_cost(reader, &cost);
    sc_plugin_cost_add(conn, item, &cost);
    tail->failed_range = range + rows.failed_range;
    tail->failed_tier = rows.tier;
    return status;
}

static bool range_is_good(const uint8_t *keys, uint64_t range, struct sc_store_slab *ret_slab)
{
    return keys != NULL && sc_store_slab_of(keys, range, ret_slab);
}

/* Decodes the good range's rows from `row` on, except those that the front has. */
static void slab_take(struct tail *tail, const struct sc_store_slab *slab, uint64_t row,
                      uint64_t count)
{
    struct sc_plugin_item *item = &tail->work[tail->taken_layer];
    struct quantised *quant = &tail->quant[tail->taken_layer];
    const struct sc_plugin_placing to = sc_plugin_placing_of(tail->conn, item);
    uint64_t given = row < tail->first ? tail->first - row : 0;
    if (given >= count)
        return;
    sc_plugin_slab_decode(tail->conn, &to, item, slab, row, count, tail->request->bits);
    sc_plugin_bus_took(tail->conn, item, slab->tier, count - given, tail->conn->dims.row_bytes);
    sc_plugin_worst_add(&quant->worst, slab->bits_k, slab->bits_v);
    quant->block_rows += (uint32_t)(count - given);
}

/* Reads ranges [range, end) exactly, whose rows are [row, row_end). */
static spec_status forced_take(struct tail *tail, uint64_t range, uint64_t end, uint64_t row,
                               uint64_t row_end, struct spec_error *reterr)
{
    struct sc_plugin_request *request = tail->request;
    struct sc_plugin_reader *reader = &request->readers[tail->taken_count % SC_PLUGIN_READERS];
    if (tail->is_claimed && tail->first >= row_end)
        return SPEC_OK; /* the front has them */
    sc_plugin_part_begin(request, reader, (uint32_t)tail->taken_layer, range, end);
    return rows_take(tail, reader->reader, range, row, row_end, reterr);
}

/* Delivers the part from its selector, which is ready or has failed; ranges without good quantised
 * rows exactly. */
static spec_status ranges_take(struct tail *tail, struct sc_store_selector *selector,
                               struct spec_error *reterr)
{
    const struct sc_plugin_item *item = &tail->work[tail->taken_layer];
    const struct sc_store_range *ranges = tail->request->ranges;
    const struct block *block = &tail->taken;
    bool is_ready = sc_store_selector_state(selector) == SPEC_OK;
    const uint8_t *keys = is_ready ? sc_store_selector_keys(selector) : NULL;
    uint64_t row = block->row, row_end = row, end;
    struct sc_store_slab slab;
    spec_status status = SPEC_OK;
    for (uint64_t i = block->range; i < block->range_end && status == SPEC_OK; i = end) {
        for (end = i; end < block->range_end && !range_is_good(keys, end - block->range, &slab);)
            row_end += ranges[end++].row_count;
        if (row < row_end)
            status = forced_take(tail, i, end, row, row_end, reterr);
        if (status != SPEC_OK || tail->is_met || end == block->range_end)
            break;
        tail->is_met = !tail->is_claimed && !block_claim(tail);
        if (tail->is_met)
            break;
        slab_take(tail, &slab, row_end, ranges[end].row_count);
        row = row_end += ranges[end++].row_count;
    }
    (void)item->memory.target->fence(&item->memory, SC_FENCE_PLACED, NULL); /* SETTLED reports it */
    return status;
}

static spec_status quant_take(struct tail *tail, struct sc_store_selector *selector,
                              struct spec_error *reterr)
{
    spec_connector *conn = tail->conn;
    struct sc_plugin_item *item = &tail->work[tail->taken_layer];
    struct sc_store_read_cost cost = {0};
    sc_store_selector_demand(selector);
    if (tail->is_claimed)
        (void)sc_store_selector_wait(selector, tail->deadline_ns);
    else if (!part_await(tail, NULL, selector))
        tail->is_met = true;
    sc_store_selector_cost(selector, &cost);
    sc_plugin_cost_add(conn, item, &cost);
    sc_count(&conn->stats.selector_read_bytes, cost.read_bytes);
    if (tail->is_met)
        return SPEC_OK;
    if (sc_store_selector_state(selector) == SPEC_PENDING)
        return sc_fail(reterr, SPEC_E_TIMEOUT,
                       "get_important: quantised rows did not come before the deadline");
    return ranges_take(tail, selector, reterr);
}

static spec_status part_take(struct tail *tail, struct spec_error *reterr)
{
    uint64_t at = tail->taken_count % SC_PLUGIN_READERS;
    struct sc_store_selector *selector = tail->parts[at].selector;
    if (selector != NULL)
        return quant_take(tail, selector, reterr);
    return rows_take(tail, tail->request->readers[at].reader, tail->taken.range, tail->taken.row,
                     tail->taken.row_end, reterr);
}

/* Ends the taken block: it is loaded in all layers. */
static void block_end(struct tail *tail)
{
    for (uint64_t i = 0; i < tail->layers; i++) {
        tail->quant[i].rows += tail->quant[i].block_rows;
        tail->quant[i].block_rows = 0;
    }
    tail->taken_layer = 0;
    tail->is_claimed = false;
}

static spec_status parts_take(struct tail *tail, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (;;) {
        parts_begin(tail);
        if (tail->begun_count == tail->taken_count)
            return SPEC_OK; /* the ends have met, or nothing else can be loaded */
        if (sc_plugin_item_is_over(tail->conn, tail->work))
            return sc_plugin_stale(tail->work->in.request, reterr);
        tail->taken = tail->parts[tail->taken_count % SC_PLUGIN_READERS].block;
        status = part_take(tail, reterr);
        if (status != SPEC_OK || tail->is_met)
            return status;
        tail->taken_count++;
        if (++tail->taken_layer == tail->layers) {
            block_end(tail);
            if (tail->first > tail->taken.row)
                return SPEC_OK; /* the front has the rest of the block */
        }
    }
}

static void items_tell(const struct tail *tail, spec_status status, bool is_late)
{
    const struct sc_plugin_request *request = tail->request;
    /* A block that is still claimed is incomplete in some layer. */
    uint64_t first = tail->is_claimed ? tail->taken.row_end : tail->first;
    for (uint64_t i = 0; i < tail->layers; i++) {
        const struct quantised *quant = &tail->quant[i];
        struct spec_important *in = &tail->work[i].in;
        in->status = status;
        in->next_position = request->matched_tokens;
        in->failed_position = request->failed_position;
        in->row_count = in->union_rows = sc_plugin_row_total(request) - first;
        in->exact_rows = in->row_count - quant->rows;
        in->provenance = request->provenance;
        in->result_flags = is_late ? SPEC_IMPORTANT_PARTIAL : 0;
        sc_plugin_tiers_tell(&tail->work[i], in->row_count);
        if (quant->rows > 0) /* bits: also those of a block that was given back */
            sc_plugin_layered_worth(&tail->work[i], quant->worst.bits_k, quant->worst.bits_v);
    }
}

static spec_status tail_load(struct tail *tail, struct spec_error *reterr)
{
    struct sc_plugin_request *request = tail->request;
    spec_request handle = tail->work->in.request;
    if (request->failed_position != UINT64_MAX)
        return sc_fail(reterr, request->failed_status,
                       "request %#" PRIx64 " is void from token %" PRIu64 " on", handle,
                       (uint64_t)request->failed_position);
    spec_status status = parts_take(tail, reterr);
    for (uint32_t i = 0; i < SC_PLUGIN_READERS; i++)
        sc_plugin_reader_drop(&request->readers[i]);
    if (tail->wants_quant)
        sc_plugin_selectors_end(tail->conn, request);
    if (status != SPEC_E_CORRUPT && status != SPEC_E_IO)
        return status;
    sc_plugin_request_fail(tail->conn, request, tail->failed_range, status, tail->failed_tier);
    sc_plugin_loads_end(tail->conn, request);
    return request->failed_status == SPEC_E_STALE ? sc_plugin_stale(handle, reterr) : status;
}

/* Checks that every destination has its rows. If one has not, none counts, since a token is loaded
 * in all layers or in none. Returns the status of all. */
static spec_status tail_fence(struct sc_plugin_item *work, uint64_t count,
                              enum sc_plugin_fence when, struct spec_error *reterr)
{
    spec_status status = work->in.status, lost = SPEC_OK;
    for (uint64_t i = 0; i < count; i++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        spec_status fenced = work[i].memory.target->fence(&work[i].memory, when, &error);
        if (fenced != SPEC_OK && lost == SPEC_OK && status == SPEC_OK)
            status = sc_fail(reterr, fenced, "get_important: destination: %s", error.text);
        lost = lost == SPEC_OK ? fenced : lost;
    }
    for (uint64_t i = 0; i < count && lost != SPEC_OK; i++) {
        work[i].in.row_count = work[i].in.union_rows = work[i].in.exact_rows = 0;
        if (!work[i].is_gone)
            work[i].in.provenance = work[i].request->provenance;
        work[i].delivered = (struct spec_provenance){0};
        memset(work[i].in.tier_rows, 0, sizeof(work[i].in.tier_rows));
        work[i].in.status = status;
    }
    return status;
}

static uint64_t exact_rows_of(const struct sc_plugin_item *work, uint64_t count)
{
    uint64_t rows = 0;
    for (uint64_t i = 0; i < count; i++)
        rows += work[i].in.exact_rows;
    return rows;
}

spec_status sc_plugin_tail_serve(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                                 struct spec_error *reterr)
{
    struct tail tail = {.conn = conn,
                        .request = work->request,
                        .work = work,
                        .layers = count,
                        .deadline_ns = work->deadline_ns,
                        .first = sc_plugin_row_total(work->request)};
    for (uint64_t i = 0; i < count; i++) {
        tail.wants_quant = tail.wants_quant || wants_quant(&work[i]);
        if (work[i].deadline_ns < tail.deadline_ns)
            tail.deadline_ns = work[i].deadline_ns;
    }
    tail.rows_least = block_rows(conn, tail.wants_quant);
    if (tail.wants_quant) /* rows that the front has */
        memset(work->request->bits, 0, sc_plugin_words_of(work) * sizeof(*work->request->bits));
    tail.begun = block_below(&tail, work->request->range_count, tail.first);
    spec_status status = tail_load(&tail, reterr);
    bool is_late = status == SPEC_E_TIMEOUT;
    items_tell(&tail, is_late ? SPEC_OK : status, is_late);
    status = tail_fence(work, count, SC_FENCE_SETTLED, reterr);
    sc_count(&conn->stats.demanded_rows, exact_rows_of(work, count));
    return status;
}

static void tail_count(spec_connector *conn, const struct sc_plugin_item *work, uint64_t count)
{
    struct sc_plugin_stats *stats = &conn->stats;
    sc_count(&stats->tail_tokens, work->in.row_count);
    for (uint64_t i = 0; i < count; i++) {
        const struct spec_important *in = &work[i].in;
        if (!wants_quant(&work[i]) || in->row_count == 0)
            continue;
        sc_count(&stats->quantised_layers, 1);
        sc_count(&stats->quantised_rows, in->row_count);
        sc_count(&stats->layered_exact_rows, in->exact_rows);
        sc_count(&stats->layered_forced_rows, in->exact_rows);
    }
}

spec_status sc_plugin_tail_end(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                               spec_status served, struct spec_error *reterr)
{
    uint64_t told = exact_rows_of(work, count);
    spec_status ended = tail_fence(work, count, SC_FENCE_END, reterr);
    sc_uncount(&conn->stats.demanded_rows, told - exact_rows_of(work, count));
    tail_count(conn, work, count);
    if (!work->is_gone)
        (void)back_move(work->request, sc_plugin_row_total(work->request) - work->in.row_count);
    return served != SPEC_OK ? served : ended;
}

void sc_plugin_tail_begin(struct sc_plugin_request *request)
{
    (void)back_move(request, sc_plugin_row_total(request));
}

spec_status sc_plugin_tail_check(const spec_connector *conn, const struct spec_important *first,
                                 const struct spec_important *in, uint64_t i, uint64_t count,
                                 struct spec_error *reterr)
{
    if (!sc_plugin_is_tail(in) && !sc_plugin_is_tail(first))
        return SPEC_OK;
    if (in->flags != SPEC_ITEM_BIDIRECTIONAL || first->flags != SPEC_ITEM_BIDIRECTIONAL ||
        in->request != first->request || count != conn->dims.layer_count || in->layer != i)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important_submit: items[%" PRIu64
                       "]: SPEC_ITEM_BIDIRECTIONAL: layer %" PRIu32 " of a call of %" PRIu64
                       ", expected each of %" PRIu32
                       " layers of one request, in order, and no other flag",
                       i, in->layer, count, conn->dims.layer_count);
    return SPEC_OK;
}
