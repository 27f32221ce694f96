/* bidirectional: loads of a match from its end. Contract: bidirectional.h.
 *
 *   block   whole ranges, from the last on down; one part per layer, read by one reader. Both sides
 *           wait for the last block, so a block is at most an eighth of what is left, but a chunk
 *   parts   [block, layer 0][block, layer 1] .. [next block, layer 0] ..    in turn on the readers
 *   claim   when a block's first rows are verified: back moves down to its first row, or to the
 *           front, if that is inside the block */
#include "plugin/load/bidirectional.h"

#include "plugin/args/args.h"
#include "plugin/args/handle.h"
#include "plugin/load/loads_end.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/scatter.h"
#include "plugin/select/submission.h"
#include "plugin/select/upper_bus.h"

#include <string.h>

#define BLOCK_SHARE 8u /* a block is at most 1 / 8 of the rows left */

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
    for (uint32_t i = 0; i < SC_PLUGIN_READERS && end == back_of(ends); i++)
        sc_store_reader_nudge(request->readers[i].reader); /* its rows were given out */
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
};

struct tail {
    spec_connector *conn;
    struct sc_plugin_request *request;
    struct sc_plugin_item *work; /* [layers] */
    uint64_t layers;
    uint64_t rows_least; /* of a block while both ends are far apart */
    uint64_t deadline_ns;

    struct block parts[SC_PLUGIN_READERS]; /* block of each reader's part */
    struct block begun;                    /* next part to begin, and next to consume */
    uint64_t begun_layer, begun_count;
    struct block taken;
    uint64_t taken_layer, taken_count;
    bool is_claimed; /* `taken`: rows [first, row_end) are claimed */
    uint64_t first;  /* loaded or claimed down to here */
    bool is_met;     /* nothing is left to claim */
    uint64_t failed_range;
    uint32_t failed_tier;
};

/* Returns the block whose ranges end at `end` and whose rows end at row_end. */
static struct block block_below(const struct tail *tail, uint64_t end, uint64_t row_end)
{
    const struct sc_store_range *ranges = tail->request->ranges;
    struct block block = {.range = end, .range_end = end, .row = row_end, .row_end = row_end};
    uint64_t front = front_of(atomic_load(&tail->request->ends));
    uint64_t least = front < row_end ? (row_end - front) / BLOCK_SHARE : 0;
    least = least < tail->rows_least ? least : tail->rows_least;
    least = least > tail->conn->config.chunk_tokens ? least : tail->conn->config.chunk_tokens;
    while (block.range > 0 && row_end - block.row < least)
        block.row -= ranges[--block.range].row_count;
    return block;
}

static uint64_t block_rows(const spec_connector *conn)
{
    uint64_t rows = sc_store_op_bytes(conn->store) / conn->dims.row_bytes;
    return rows > conn->config.chunk_tokens ? rows : conn->config.chunk_tokens;
}

/* Begins one part per reader, none that the front has passed. */
static void parts_begin(struct tail *tail)
{
    struct sc_plugin_request *request = tail->request;
    while (tail->begun_count - tail->taken_count < SC_PLUGIN_READERS &&
           tail->begun.row < tail->begun.row_end &&
           front_of(atomic_load(&request->ends)) < tail->begun.row_end) {
        uint64_t at = tail->begun_count++ % SC_PLUGIN_READERS;
        struct sc_plugin_reader *reader = &request->readers[at];
        tail->parts[at] = tail->begun;
        sc_plugin_part_begin(request, reader, (uint32_t)tail->begun_layer, tail->begun.range,
                             tail->begun.range_end);
        if (++tail->begun_layer == tail->layers) {
            tail->begun_layer = 0;
            tail->begun = block_below(tail, tail->begun.range, tail->begun.row);
        }
    }
}

/* Waits for the part. Returns true if it has rows, has failed or is late; false if nothing is left
 * to load. */
static bool part_await(struct tail *tail, struct sc_store_reader *reader)
{
    for (;;) {
        uint64_t ends = atomic_load(&tail->request->ends);
        if (front_of(ends) >= back_of(ends))
            return false;
        if (sc_store_reader_wait(reader, tail->deadline_ns, &tail->request->ends, ends))
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
    return true;
}

/* Places rows of the block, except those that the front has. */
static void rows_place(const struct tail *tail, const struct sc_plugin_item *item,
                       const struct sc_plugin_placing *to, const struct sc_store_rows *rows)
{
    uint64_t at = tail->taken.row + rows->row_first, end = at + rows->row_count;
    uint64_t from = at < tail->first ? tail->first - at : 0;
    if (end > tail->first)
        item->memory.target->place_rows(to, rows, from, rows->row_count - from, SC_STORE_WANT_ROWS,
                                        at + from);
}

static spec_status part_take(struct tail *tail, struct spec_error *reterr)
{
    spec_connector *conn = tail->conn;
    struct sc_plugin_item *item = &tail->work[tail->taken_layer];
    struct sc_plugin_request *request = tail->request;
    struct sc_store_reader *reader = request->readers[tail->taken_count % SC_PLUGIN_READERS].reader;
    const struct sc_plugin_target *target = item->memory.target;
    struct sc_plugin_placing to = sc_plugin_placing_of(conn, item);
    uint64_t row = tail->taken.row, total = sc_plugin_row_total(request);
    uint64_t bite = SC_STORE_BITE_BYTES / conn->dims.row_bytes;
    struct sc_store_rows rows = {0};
    struct sc_store_read_cost cost;
    spec_status status = SPEC_OK;
    sc_store_reader_demand(reader);
    if (!tail->is_claimed && !part_await(tail, reader)) {
        tail->is_met = true;
        return SPEC_OK;
    }
    for (;; row += rows.row_count) {
        uint64_t ahead = tail->taken.row_end - row;
        ahead = ahead < bite || bite == 0 ? ahead : bite;
        sc_store_reader_apart(reader, target->expect(&to, row, ahead, total));
        status = sc_store_reader_next(reader, tail->deadline_ns, NULL, &rows, reterr);
        if (status != SPEC_OK || rows.row_count == 0)
            break;
        tail->is_met = !tail->is_claimed && !block_claim(tail);
        if (tail->is_met)
            break;
        sc_plugin_bus_took(conn, item, rows.tier, rows.row_count, conn->dims.row_bytes);
        rows_place(tail, item, &to, &rows);
    }
    /* An incomplete part has an error: otherwise it would be reported as loaded. */
    SC_ASSERT(&conn->poison, status != SPEC_OK || tail->is_met || row == tail->taken.row_end);
    (void)target->fence(&item->memory, SC_FENCE_PLACED, NULL); /* SETTLED reports it */
    sc_store_reader_cost(reader, &cost);
    sc_plugin_cost_add(conn, item, &cost);
    tail->failed_range = tail->taken.range + rows.failed_range;
    tail->failed_tier = rows.tier;
    return status;
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
        tail->taken = tail->parts[tail->taken_count % SC_PLUGIN_READERS];
        status = part_take(tail, reterr);
        if (status != SPEC_OK || tail->is_met)
            return status;
        tail->taken_count++;
        if (++tail->taken_layer == tail->layers) {
            tail->taken_layer = 0;
            tail->is_claimed = false;
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
        struct spec_important *in = &tail->work[i].in;
        in->status = status;
        in->next_position = request->matched_tokens;
        in->failed_position = request->failed_position;
        in->row_count = in->union_rows = in->exact_rows = sc_plugin_row_total(request) - first;
        in->provenance = request->provenance;
        in->result_flags = is_late ? SPEC_IMPORTANT_PARTIAL : 0;
        sc_plugin_tiers_tell(&tail->work[i], in->row_count);
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
        memset(work[i].in.tier_rows, 0, sizeof(work[i].in.tier_rows));
        work[i].in.status = status;
    }
    return status;
}

spec_status sc_plugin_tail_serve(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                                 struct spec_error *reterr)
{
    struct tail tail = {.conn = conn,
                        .request = work->request,
                        .work = work,
                        .layers = count,
                        .rows_least = block_rows(conn),
                        .deadline_ns = work->deadline_ns,
                        .first = sc_plugin_row_total(work->request)};
    for (uint64_t i = 1; i < count; i++)
        if (work[i].deadline_ns < tail.deadline_ns)
            tail.deadline_ns = work[i].deadline_ns;
    tail.begun = block_below(&tail, work->request->range_count, tail.first);
    spec_status status = tail_load(&tail, reterr);
    bool is_late = status == SPEC_E_TIMEOUT;
    items_tell(&tail, is_late ? SPEC_OK : status, is_late);
    status = tail_fence(work, count, SC_FENCE_SETTLED, reterr);
    sc_count(&conn->stats.demanded_rows, count * work->in.row_count);
    return status;
}

spec_status sc_plugin_tail_end(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                               spec_status served, struct spec_error *reterr)
{
    uint64_t told = work->in.row_count;
    spec_status ended = tail_fence(work, count, SC_FENCE_END, reterr);
    sc_count(&conn->stats.tail_tokens, work->in.row_count);
    sc_uncount(&conn->stats.demanded_rows, count * (told - work->in.row_count));
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
