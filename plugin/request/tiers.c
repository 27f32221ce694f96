/* Where the rows of a match lie, and how long loading them from there takes.
 *
 *   match    [piece][piece][piece] ...
 *   a piece  its rows, in so many layers in host memory, in the others on the disk
 *
 * Holds: nothing is asked of the tiers that waits for a lock.
 * Does not: know what a selected load reads of it: all rows of all layers count.
 * Threads: any that holds the request's segments.
 * Tests: tests/unit/plugin/test_host_tier.c, conformance (abi_191_*) */
#include "plugin/connector.h"

/* Of host memory, until loads were measured: what one core moves and verifies. */
#define HOST_BYTES_PER_S UINT64_C(5000000000)
#define PIECES           64u /* that the tiers are asked for at a time */

/* Pieces that have rows of [first, end), so many at a time. */
struct part {
    uint64_t at; /* segment that is next */
    bool is_over;
    uint64_t count;
    uint64_t pieces[PIECES];
    uint64_t rows[PIECES];
    uint32_t hosted[PIECES];
};

static void part_next(const struct sc_plugin_request *request, uint64_t first, uint64_t end,
                      struct part *part)
{
    for (part->count = 0; part->count < PIECES && !part->is_over; part->at++) {
        const struct sc_radix_segment *segment = &request->segments[part->at];
        uint64_t last = segment->first + segment->count;
        uint64_t from = segment->first > first ? segment->first : first;
        part->is_over = last >= end;
        last = part->is_over ? end : last;
        if (last <= from)
            continue;
        part->pieces[part->count] = segment->value.piece;
        part->rows[part->count++] = last - from;
    }
}

void sc_plugin_tier_bytes(const spec_connector *conn, const struct sc_plugin_request *request,
                          uint64_t first, uint64_t end, uint64_t ret_bytes[SPEC_TIERS])
{
    uint64_t row_bytes = conn->dims.row_bytes + sizeof(uint64_t); /* with its tag */
    uint64_t layers = conn->dims.layer_count;
    for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
        ret_bytes[tier] = 0;
    struct part part = {.at = 0, .is_over = first >= end};
    while (!part.is_over) {
        part_next(request, first, end, &part);
        sc_store_pieces_host_layers(conn->store, part.pieces, part.count, part.hosted);
        for (uint64_t i = 0; i < part.count; i++) {
            uint64_t hosted = part.hosted[i] < layers ? part.hosted[i] : layers;
            ret_bytes[SPEC_TIER_HOST] += part.rows[i] * hosted * row_bytes;
            ret_bytes[SC_STORE_TIER] += part.rows[i] * (layers - hosted) * row_bytes;
        }
    }
}

static uint64_t took_ns(uint64_t bytes, uint64_t bytes_per_s)
{
    return (uint64_t)((double)bytes * 1e9 / (double)bytes_per_s);
}

uint64_t sc_plugin_load_ns(const spec_connector *conn, const uint64_t bytes[SPEC_TIERS])
{
    uint64_t disk = sc_counted(&conn->ahead.load_bytes_per_s);
    uint64_t host = sc_counted(&conn->ahead.host_bytes_per_s);
    if (bytes[SC_STORE_TIER] > 0 && disk == 0)
        return 0;
    return took_ns(bytes[SPEC_TIER_HOST], host > 0 ? host : HOST_BYTES_PER_S) +
           (bytes[SC_STORE_TIER] > 0 ? took_ns(bytes[SC_STORE_TIER], disk) : 0);
}
