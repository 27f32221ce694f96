/* tiers: rows and bytes of a match by tier. Contract: tiers.h. */
#include "plugin/load_or_compute/tiers.h"

#include "plugin/connector.h"

/* Host memory before any measurement: what one core moves and verifies. */
#define HOST_BYTES_PER_S UINT64_C(5000000000)

/* Returns the rows of [from, from + rows) that window layers read for a match ending at `end`. */
static uint64_t windows_rows(const spec_connector *conn, uint64_t from, uint64_t rows, uint64_t end)
{
    uint64_t sum = 0;
    if (from + rows <=
        sc_store_window_first(conn->dims.window_most, end)) /* most of a long match */
        return 0;
    for (uint32_t l = 0; l < conn->dims.layer_count; l++) {
        uint64_t first = sc_store_window_first(conn->windows[l], end);
        uint64_t unseen = first > from ? first - from : 0;
        sum += conn->windows[l] > 0 && rows > unseen ? rows - unseen : 0;
    }
    return sum;
}

/* Some layers: how many are in host memory or above, and how many of those above. */
struct in_host_tier {
    uint32_t layers, in_host_tier, risen;
};

/* Adds rows that those layers read in total, taken as equal for each layer. */
static void rows_add(uint64_t rows, struct in_host_tier of, uint64_t bytes[SPEC_TIERS])
{
    uint32_t in_host_tier = of.in_host_tier < of.layers ? of.in_host_tier : of.layers;
    uint32_t risen = of.risen < in_host_tier ? of.risen : in_host_tier;
    uint64_t there = of.layers > 0 ? rows * in_host_tier / of.layers : 0;
    uint64_t above = of.layers > 0 ? rows * risen / of.layers : 0;
    bytes[SPEC_TIER_UPPER] += above;
    bytes[SPEC_TIER_HOST] += there - above;
    bytes[SC_STORE_TIER] += rows - there;
}

/* Adds rows [from, from + count) of a piece, in all layers that a match ending at `end` needs. */
static void piece_add(const spec_connector *conn, uint64_t piece, uint64_t from, uint64_t count,
                      uint64_t end, uint64_t bytes[SPEC_TIERS])
{
    struct in_host_tier full = {.layers = conn->dims.layer_count}, narrow = {0};
    full.in_host_tier = sc_store_piece_host_layers(conn->store, piece, &full.risen);
    if (conn->windows != NULL) {
        narrow.layers = full.layers - conn->dims.full_layers;
        full.layers = conn->dims.full_layers;
        if (full.in_host_tier > 0)
            narrow.in_host_tier = sc_store_piece_host_windowed(conn->store, piece, &narrow.risen);
        full.in_host_tier -=
            narrow.in_host_tier < full.in_host_tier ? narrow.in_host_tier : full.in_host_tier;
        full.risen -= narrow.risen < full.risen ? narrow.risen : full.risen;
        rows_add(windows_rows(conn, from, count, end), narrow, bytes);
    }
    rows_add(count * full.layers, full, bytes);
}

void sc_plugin_tier_bytes(const spec_connector *conn, const struct sc_plugin_request *request,
                          uint64_t first, uint64_t end, uint64_t ret_bytes[SPEC_TIERS])
{
    uint64_t row_bytes = conn->dims.row_bytes + sizeof(uint64_t); /* with its tag */
    for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
        ret_bytes[tier] = 0;
    for (uint64_t i = 0, at = 0; at < end; i++) {
        const struct sc_radix_segment *segment = &request->segments[i];
        uint64_t last = segment->first + segment->count;
        uint64_t from = segment->first > first ? segment->first : first;
        uint64_t until = last < end ? last : end;
        if (until > from)
            piece_add(conn, segment->value.piece, from, until - from, end, ret_bytes);
        at = last;
    }
    for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
        ret_bytes[tier] *= row_bytes;
}

static uint64_t took_ns(uint64_t bytes, uint64_t bytes_per_s)
{
    return (uint64_t)((double)bytes * 1e9 / (double)bytes_per_s);
}

uint64_t sc_plugin_load_ns(const spec_connector *conn, const uint64_t bytes[SPEC_TIERS])
{
    uint64_t disk = sc_counted(&conn->ahead.load_bytes_per_s);
    uint64_t host = sc_counted(&conn->ahead.host_bytes_per_s);
    uint64_t memory = bytes[SPEC_TIER_UPPER] + bytes[SPEC_TIER_HOST];
    if (bytes[SC_STORE_TIER] > 0 && disk == 0)
        return 0;
    return took_ns(memory, host > 0 ? host : HOST_BYTES_PER_S) +
           (bytes[SC_STORE_TIER] > 0 ? took_ns(bytes[SC_STORE_TIER], disk) : 0);
}
