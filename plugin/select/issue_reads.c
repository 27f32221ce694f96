/* issue_reads: begins reads of whole layers, sets, predicted rows and keys. Contract:
 * issue_reads.h. */
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/row_bits.h"

#include <string.h>

uint64_t sc_plugin_row_first(const spec_connector *conn, const struct sc_plugin_request *request,
                             uint32_t layer)
{
    uint64_t window = conn->windows != NULL ? conn->windows[layer] : 0;
    uint64_t first = sc_store_window_first(window, request->matched_tokens);
    return first > request->from_token ? first - request->from_token : 0;
}

/* Begins to read the layer's rows from the match's row `first` on; there is at least one. */
static void whole_begin(const struct sc_plugin_request *request, struct sc_plugin_reader *reader,
                        uint64_t first, enum sc_io_class io_class)
{
    const struct sc_store_range *ranges = request->ranges;
    uint64_t i = 0;
    for (; i < request->range_count && first >= ranges[i].row_count; i++)
        first -= ranges[i].row_count;
    uint64_t count = request->range_count - i;
    reader->range_first = i;
    if (i > 0 || first > 0) {
        memcpy(reader->window, ranges + i, count * sizeof(*ranges));
        reader->window[0].row_first += (uint32_t)first;
        reader->window[0].row_count -= (uint32_t)first;
        ranges = reader->window;
    }
    sc_store_reader_begin(reader->reader, reader->layer, ranges, count, io_class);
}

bool sc_plugin_layer_start(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                           enum sc_io_class io_class)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_AHEAD];
    if (reader->layer == layer && reader->load == SC_LOAD_WHOLE) {
        if (io_class == SC_IO_CLASS_DEMAND)
            sc_store_reader_demand(reader->reader);
        return true;
    }
    uint64_t first = sc_plugin_row_first(conn, request, layer);
    if (first == sc_plugin_row_total(request))
        return false; /* no row: nobody would consume the read */
    sc_store_reader_cancel(reader->reader);
    reader->layer = layer;
    reader->load = SC_LOAD_WHOLE;
    reader->begin_ns = sc_exec_now_ns(conn->exec);
    whole_begin(request, reader, first, io_class);
    return false;
}

void sc_plugin_part_begin(const struct sc_plugin_request *request, struct sc_plugin_reader *reader,
                          uint32_t layer, uint64_t first, uint64_t end)
{
    sc_plugin_reader_drop(reader); /* no other load can continue it */
    reader->range_first = 0;       /* the caller knows the range */
    sc_store_reader_begin(reader->reader, layer, request->ranges + first, end - first,
                          SC_IO_CLASS_SPECULATIVE);
}

struct sc_store_gather_rows sc_plugin_gather_of(const spec_connector *conn, const uint32_t *rows,
                                                uint64_t count)
{
    struct sc_store_device device;
    sc_store_device(conn->store, &device);
    uint64_t gap_bytes =
        conn->config.gap_bytes > 0 ? conn->config.gap_bytes : sc_store_device_gap(&device);
    return (struct sc_store_gather_rows){.rows = rows,
                                         .count = count,
                                         .wanted = SC_STORE_WANT_ROWS,
                                         .whole_slabs = conn->config.planner == SC_PLANNER_CHUNK,
                                         .gap_bytes = gap_bytes};
}

void sc_plugin_gather_begin(spec_connector *conn, struct sc_plugin_request *request,
                            struct sc_plugin_reader *reader, uint32_t layer,
                            const struct sc_store_gather_rows *gather, enum sc_io_class io_class)
{
    sc_store_reader_cancel(reader->reader);
    reader->layer = layer;
    reader->load = SC_LOAD_GATHER;
    reader->range_first = 0;
    reader->begin_ns = sc_exec_now_ns(conn->exec);
    reader->gather = *gather;
    sc_store_reader_begin_gather(reader->reader, layer, request->ranges, request->range_count,
                                 &reader->gather, io_class);
}

bool sc_plugin_heads_start(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                           enum sc_io_class io_class)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_AHEAD];
    if (conn->config.layout == SC_STORE_PAIRED)
        return sc_plugin_layer_start(conn, request, layer, io_class);
    if (reader->layer == layer && reader->load == SC_LOAD_KEYS) {
        if (io_class == SC_IO_CLASS_DEMAND)
            sc_store_reader_demand(reader->reader);
        return true;
    }
    struct sc_store_gather_rows gather =
        sc_plugin_gather_of(conn, conn->choice.row_numbers, sc_plugin_row_total(request));
    gather.wanted = SC_STORE_WANT_K;
    sc_plugin_gather_begin(conn, request, reader, layer, &gather, io_class);
    reader->load = SC_LOAD_KEYS;
    return false;
}

void sc_plugin_rest_begin(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                          uint64_t count, const uint64_t *tags, enum sc_io_class io_class)
{
    struct sc_plugin_reader *rest = &request->readers[SC_PLUGIN_REST];
    struct sc_store_gather_rows gather = sc_plugin_gather_of(conn, rest->rows, count);
    sc_plugin_gather_begin(conn, request, rest, layer, &gather, io_class);
    sc_store_reader_tags(rest->reader, tags);
}

struct sc_plugin_reader *sc_plugin_prefetch_reader(struct sc_plugin_request *request,
                                                   uint32_t layer)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_AHEAD];
    return reader->layer == layer && reader->load == SC_LOAD_GATHER ? reader : NULL;
}

uint32_t *sc_plugin_prefetch_rows(struct sc_plugin_request *request, uint32_t layer)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_AHEAD];
    if (reader->layer == layer)
        return NULL; /* already being read */
    sc_plugin_reader_drop(reader);
    return reader->rows;
}

/* Merges the first `count` rows of a ranking with ascending deciles into one ascending list. */
static void deciles_merge(const uint32_t *rows, uint64_t ranked, uint64_t count, uint32_t *ret_rows)
{
    uint64_t at[SC_PLUGIN_DECILES], end[SC_PLUGIN_DECILES];
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++) {
        at[d] = d > 0 ? sc_plugin_decile_end(ranked, d - 1) : 0;
        end[d] = sc_plugin_decile_end(ranked, d);
        end[d] = end[d] < count ? end[d] : count;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t least = 0;
        for (uint32_t d = 1; d < SC_PLUGIN_DECILES; d++)
            if (at[d] < end[d] && (at[least] >= end[least] || rows[at[d]] < rows[at[least]]))
                least = d;
        ret_rows[i] = rows[at[least]++];
    }
}

void sc_plugin_prefetch_begin(spec_connector *conn, struct sc_plugin_request *request,
                              uint32_t layer, uint64_t ranked, uint64_t count)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_AHEAD];
    struct sc_store_gather_rows gather = sc_plugin_gather_of(conn, reader->rows, count);
    uint64_t all_bytes = sc_plugin_row_total(request) * conn->dims.row_bytes;
    uint64_t apart_bytes = all_bytes / (ranked / SC_PLUGIN_DECILES + 1);
    if (apart_bytes <= 2 * gather.gap_bytes) {
        /* through its gaps, each decile would read rows of the next one */
        uint32_t *merged = reader->rows + SC_PLUGIN_AHEAD * request->list_rows;
        deciles_merge(reader->rows, ranked, count, merged);
        gather.rows = merged;
    }
    sc_plugin_gather_begin(conn, request, reader, layer, &gather, SC_IO_CLASS_SPECULATIVE);
}

uint64_t sc_plugin_slabs_of(const struct sc_plugin_request *request, const uint64_t *bits,
                            uint64_t *ret_bits)
{
    uint64_t count = 0;
    for (uint64_t i = 0, end, first = 0; i < request->range_count; i++, first = end) {
        end = first + request->ranges[i].row_count;
        if (!sc_plugin_bits_any(bits, first, end))
            continue;
        count += end - first;
        for (uint64_t row = first; ret_bits != NULL && row < end; row++)
            sc_plugin_bit_set(ret_bits, row);
    }
    return count;
}

void sc_plugin_prefetch_begin_slabs(spec_connector *conn, struct sc_plugin_request *request,
                                    uint32_t layer, uint64_t ranked, uint64_t count, uint64_t bytes,
                                    uint64_t *bits)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_AHEAD];
    uint32_t *rows = reader->rows + SC_PLUGIN_AHEAD * request->list_rows;
    uint64_t left = bytes / conn->dims.row_bytes, taken = 0, i = 0;
    memset(bits, 0, (sc_plugin_row_total(request) + 63) / 64 * sizeof(*bits));
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES && i < count; d++) {
        const struct sc_store_range *range = request->ranges;
        uint64_t end = sc_plugin_decile_end(ranked, d), first = 0;
        for (; i < end && i < count; i++) {
            for (; reader->rows[i] - first >= range->row_count; range++)
                first += range->row_count;
            if (sc_plugin_bit_get(bits, first))
                continue;
            if (range->row_count > left - taken) {
                count = i; /* the limit is reached */
                break;
            }
            sc_plugin_bit_set(bits, first); /* marks the slab by its first row */
            for (uint64_t row = 0; row < range->row_count; row++)
                rows[taken++] = (uint32_t)(first + row);
        }
    }
    struct sc_store_gather_rows gather = sc_plugin_gather_of(conn, rows, taken);
    if (taken > 0)
        sc_plugin_gather_begin(conn, request, reader, layer, &gather, SC_IO_CLASS_SPECULATIVE);
}

/* Rounds down to the end of a slab, if slabs are what is read later. */
static uint64_t slab_down(const spec_connector *conn, const struct sc_plugin_request *request,
                          uint64_t count)
{
    uint64_t first = 0;
    for (uint64_t i = 0; conn->config.planner == SC_PLANNER_CHUNK && i < request->range_count;
         first += request->ranges[i++].row_count)
        if (first + request->ranges[i].row_count > count)
            return first;
    return count;
}

void sc_plugin_prefetch_begin_run(spec_connector *conn, struct sc_plugin_request *request,
                                  uint32_t layer, uint64_t count)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_AHEAD];
    bool is_split = conn->config.layout == SC_STORE_SPLIT;
    count = slab_down(conn, request, count);
    struct sc_store_gather_rows gather = sc_plugin_gather_of(conn, NULL, count);
    gather.whole_slabs = false;
    if (is_split && count == sc_plugin_row_total(request))
        (void)sc_plugin_heads_start(conn, request, layer, SC_IO_CLASS_SPECULATIVE);
    else if (!is_split && count > 0)
        sc_plugin_gather_begin(conn, request, reader, layer, &gather, SC_IO_CLASS_SPECULATIVE);
}
