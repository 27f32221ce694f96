/* load_recurrent: matches of recurrent states, and their loads. Contract: load_recurrent.h. */
#include "plugin/load/load_recurrent.h"

#include "plugin/args/provenance.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/scatter.h"

#include <string.h>

/* Rounds of queries to all ranks before a match is given up; each is a match in every index. All
 * ranks go through the same rounds, since the answers to one number determine the next. */
#define ROUNDS_MAX 32u

/* Allocates for each request and peek the segments of a branch, and its ranges. */
spec_status sc_plugin_recurrent_loads_open(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t slots = (uint64_t)conn->config.max_requests + SC_PLUGIN_PEEKS;
    uint64_t each = sc_plugin_recurrent_rows(conn) / conn->config.chunk_tokens + 2;
    conn->states.segments_max = each;
    if (conn->states.count == 0)
        return SPEC_OK;
    struct sc_plugin_request *first = &conn->requests.slots[0];
    first->branch.segments = sc_alloc(&conn->alloc, slots * each * sizeof(*first->branch.segments));
    first->branch.ranges = sc_alloc(&conn->alloc, slots * each * sizeof(*first->branch.ranges));
    if (first->branch.segments == NULL || first->branch.ranges == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " requests with states", slots);
    for (uint64_t i = 1; i < slots; i++) {
        conn->requests.slots[i].branch.segments = first->branch.segments + i * each;
        conn->requests.slots[i].branch.ranges = first->branch.ranges + i * each;
    }
    return SPEC_OK;
}

void sc_plugin_recurrent_loads_close(spec_connector *conn)
{
    if (conn->requests.slots == NULL)
        return;
    sc_alloc_free(&conn->alloc, conn->requests.slots[0].branch.segments);
    sc_alloc_free(&conn->alloc, conn->requests.slots[0].branch.ranges);
}

static struct sc_radix_branch branch_of(const spec_connector *conn,
                                        const struct sc_radix_query *query, uint64_t above,
                                        uint64_t most)
{
    return (struct sc_radix_branch){.token = SC_PLUGIN_RECURRENT_TOKEN,
                                    .end_token = SC_PLUGIN_RECURRENT_TOKEN_END,
                                    .count = sc_plugin_recurrent_rows(conn),
                                    .mark = conn->states.mark,
                                    .above = above,
                                    .most = most,
                                    .flags_end = query->flags_end,
                                    .hint = query->hint};
}

/* ---- Matches --------------------------------------------------------------------------------- */

uint64_t sc_plugin_recurrent_cut(spec_connector *conn, struct sc_plugin_request *request,
                                 const struct sc_radix_query *query, uint64_t end,
                                 uint64_t multiple_of)
{
    struct sc_plugin_recurrent_match *state = &request->branch;
    struct sc_radix_branch branch = branch_of(conn, query, request->from_token, end);
    struct sc_radix_match match;
    branch.multiple_of = multiple_of;
    for (uint32_t round = 0; round < ROUNDS_MAX && branch.most > branch.above; round++) {
        if (!sc_radix_branch_pin(conn->radix, request->pinned, &branch, state->segments,
                                 conn->states.segments_max, &match))
            break;
        struct spec_provenance worst = request->provenance;
        uint64_t least = match.token_count;
        if (sc_plugin_peers_branch(conn, query, &branch, &least, &worst)) {
            request->provenance = worst;
            state->pinned = match.last;
            state->segment_count = match.segment_count;
            sc_plugin_uses_add(conn, request, SC_PLUGIN_USE_BRANCH,
                               state->segments[match.segment_count - 1].value.piece);
            return least;
        }
        sc_radix_unpin(conn->radix, match.last);
        branch.most = least;
    }
    return request->from_token;
}

void sc_plugin_recurrent_unpin(spec_connector *conn, struct sc_plugin_request *request)
{
    if (conn->states.count == 0)
        return;
    sc_radix_unpin(conn->radix, request->branch.pinned);
    request->branch.pinned = (struct sc_radix_ref){0};
    request->branch.segment_count = 0;
}

uint64_t sc_plugin_recurrent_worth(const spec_connector *conn,
                                   const struct sc_plugin_request *request,
                                   struct spec_provenance *worst)
{
    const struct sc_plugin_recurrent_match *state = &request->branch;
    uint64_t last = 0;
    for (uint64_t i = 0; i < state->segment_count; i++) {
        const struct sc_radix_value *value = &state->segments[i].value;
        last = value->piece > last ? value->piece : last;
        if (value->flags != SPEC_PROVENANCE_EXACT)
            sc_plugin_provenance_add_piece(worst, conn->store, value->piece);
    }
    return last;
}

/* ---- Loads ----------------------------------------------------------------------------------- */

/* Writes rows [first, first + count) of the branch as ranges; returns how many. */
static uint64_t ranges_make(struct sc_plugin_recurrent_match *state, uint64_t first, uint64_t count,
                            uint64_t *ret_segment_first)
{
    uint64_t end = first + count, at = 0, ranges = 0;
    for (uint64_t i = 0; i < state->segment_count && at < end; i++) {
        const struct sc_radix_segment *segment = &state->segments[i];
        uint64_t from = first > at ? first - at : 0;
        uint64_t to = end - at < segment->count ? end - at : segment->count;
        at += segment->count;
        if (from >= to)
            continue;
        if (ranges == 0)
            *ret_segment_first = i;
        state->ranges[ranges++] =
            (struct sc_store_range){.piece = segment->value.piece,
                                    .row_first = (uint32_t)(segment->value.row_first + from),
                                    .row_count = (uint32_t)(to - from)};
    }
    return ranges;
}

/* Voids the whole match: its rows are of no use without the state. */
static void state_fail(spec_connector *conn, struct sc_plugin_request *request, uint64_t at,
                       spec_status why, uint32_t tier)
{
    const struct sc_radix_segment *segment = &request->branch.segments[at];
    bool is_outrun = !sc_plugin_epoch_is_current(conn, request);
    request->failed_status = is_outrun ? SPEC_E_STALE : why;
    request->failed_position = request->from_token;
    if (is_outrun)
        return;
    sc_count(&conn->stats.corrupt_ranges, 1);
    SC_LOG(&conn->log, SPEC_LOG_WARN,
           "piece %" PRIu64 " of the state at token %" PRIu64 " failed (%s)%s",
           segment->value.piece, request->matched_tokens, sc_status_name(why),
           sc_plugin_is_memory(tier) ? " in host memory" : ", dropped");
    if (sc_plugin_is_memory(tier))
        return;
    sc_plugin_failed_tell(conn, segment->value.piece);
    sc_plugin_piece_fail(conn, segment->node, segment->value.piece);
}

static void rows_place(const spec_connector *conn, const struct sc_store_rows *rows, uint8_t *dst,
                       uint64_t bytes)
{
    uint64_t row_bytes = conn->dims.row_bytes;
    for (uint64_t i = 0; i < rows->row_count; i++) {
        uint64_t at = (rows->row_first + i) * row_bytes;
        uint64_t count = at < bytes ? bytes - at : 0;
        memcpy(dst + at, rows->rows + i * rows->stride, count < row_bytes ? count : row_bytes);
    }
}

spec_status sc_plugin_recurrent_load(spec_connector *conn, struct sc_plugin_item *item,
                                     struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct sc_plugin_reader *reader = &request->readers[SC_PLUGIN_REST];
    uint32_t number = sc_plugin_recurrent_number(conn, item->named_layer);
    uint64_t bytes = conn->states.forms[item->named_layer].state_bytes, segment_first = 0;
    uint64_t count = (bytes + conn->dims.row_bytes - 1) / conn->dims.row_bytes;
    uint64_t ranges =
        ranges_make(&request->branch, number % conn->states.together * conn->states.rows_each,
                    count, &segment_first);
    struct sc_store_rows rows = {0};
    uint32_t tier = SC_STORE_TIER; /* of the last rows */
    spec_status status;
    sc_plugin_reader_drop(reader);
    sc_store_reader_begin(reader->reader, (uint32_t)(number / conn->states.together),
                          request->branch.ranges, ranges, SC_IO_CLASS_DEMAND);
    for (;;) {
        status = sc_store_reader_next(reader->reader, item->deadline_ns, NULL, &rows, reterr);
        if (status != SPEC_OK || rows.row_count == 0)
            break;
        tier = rows.tier;
        rows_place(conn, &rows, item->memory.at.k_base, bytes);
    }
    struct sc_store_read_cost cost;
    sc_store_reader_cost(reader->reader, &cost);
    sc_plugin_cost_add(conn, item, &cost);
    if (status == SPEC_E_TIMEOUT)
        sc_store_reader_cancel(reader->reader);
    else if (status != SPEC_OK)
        state_fail(conn, request, segment_first + rows.failed_range, status, rows.tier);
    if (status != SPEC_OK)
        return status;
    item->want.first_position = request->matched_tokens - 1;
    sc_plugin_tell_all(item);
    item->in.exact_rows = item->in.tier_rows[tier] = 1;
    if (item->in.exact_bits != NULL)
        item->in.exact_bits[0] = 1;
    return SPEC_OK;
}
