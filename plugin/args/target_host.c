/* target_host: destinations in host memory, by kernels/rows.c, codec.c, importance.c. */
#include "base/nt_copy.h"
#include "kernels/columns.h"
#include "plugin/args/target.h"

static uint32_t dtype_there(const struct sc_plugin_placing *to)
{
    return to->how.widens ? (uint32_t)SC_KERNELS_F32 : to->how.dtype;
}

/* Returns how many rows of a column layout end a line. */
static uint64_t host_expect(const struct sc_plugin_placing *to, uint64_t row, uint64_t ahead,
                            uint64_t count)
{
    const struct sc_kernels_memory *at = to->how.memory;
    uint64_t together = sc_kernels_rows_together(at);
    if (ahead > 0)
        sc_kernels_rows_prefetch(&to->how, row, ahead);
    if (together == 0 || row >= count)
        return together;
    uint64_t slot = at->slots != NULL ? (uint64_t)at->slots[row] : row;
    uint64_t left = together - slot % together;
    return left < together / 2 ? left + together : left;
}

static void host_spans(void *user, uint64_t row, uint64_t count, uint8_t **ret_spans)
{
    const struct sc_plugin_placing *to = user;
    sc_kernels_rows_spans(&to->how, row, count, ret_spans);
}

static struct sc_store_sink host_sink(struct sc_plugin_placing *to)
{
    uint64_t row_bytes = 2 * to->how.head_count * to->how.head_size * to->how.element_bytes;
    uint64_t span_bytes = to->how.streams ? sc_kernels_spans_bytes(&to->how) : 0;
    bool fits = span_bytes > 0 && row_bytes / span_bytes <= SC_STORE_SPANS_MAX;
    return (struct sc_store_sink){host_spans, to, fits ? span_bytes : 0};
}

static void host_place_rows(const struct sc_plugin_placing *to, const struct sc_store_rows *rows,
                            uint64_t from, uint64_t count, uint32_t wanted, uint64_t at)
{
    const uint8_t *src = rows->rows + from * rows->stride;
    bool is_whole = !sc_kernels_is_columns(to->how.memory) || to->how.row_bytes != 0;
    if (wanted == SC_STORE_WANT_ROWS && is_whole) {
        sc_kernels_rows_unpack(&to->how, at, count, src);
        return;
    }
    sc_kernels_part_unpack(&to->how, wanted == SC_STORE_WANT_V ? 1 : 0, at, count, src,
                           rows->stride);
    if (wanted == SC_STORE_WANT_ROWS)
        sc_kernels_part_unpack(&to->how, 1, at, count, rows->v + from * rows->stride, rows->stride);
}

static void host_place_quant(const struct sc_plugin_placing *to,
                             const struct sc_kernels_quantised parts[2], uint64_t count,
                             uint64_t at, const uint64_t *skipped)
{
    struct sc_kernels_decode how = {.kernels = to->how.kernels,
                                    .memory = to->how.memory,
                                    .head_count = to->how.head_count,
                                    .head_size = to->how.head_size,
                                    .dst_dtype = dtype_there(to),
                                    .streams = to->how.streams,
                                    .skipped = skipped};
    for (uint32_t part = 0; part < 2; part++) {
        how.quantised = parts[part];
        sc_kernels_part_decode(&how, part, at, count);
    }
}

/* Orders non-temporal stores; ordinary stores are ordered already. */
static spec_status host_fence(const struct sc_plugin_memory *memory, enum sc_plugin_fence when,
                              struct spec_error *reterr)
{
    (void)memory;
    (void)reterr;
    if (when == SC_FENCE_PLACED)
        sc_nt_copy_end();
    return SPEC_OK;
}

static void host_score(const struct sc_plugin_placing *to, const struct sc_kernels_importance *what,
                       uint64_t head_first, uint64_t head_end, void *scratch, float *ret_sums)
{
    struct sc_kernels_importance all = *what;
    all.prefix.memory = *to->how.memory;
    all.prefix.dtype = dtype_there(to);
    sc_kernels_importance_heads(&all, head_first, head_end, scratch, ret_sums);
}

static void host_compact(const struct sc_plugin_placing *to, uint64_t head, const uint32_t *rows,
                         uint64_t count)
{
    sc_kernels_rows_compact(&to->how, head, rows, count);
}

const struct sc_plugin_target sc_plugin_target_host = {.expect = host_expect,
                                                       .sink = host_sink,
                                                       .place_rows = host_place_rows,
                                                       .place_quant = host_place_quant,
                                                       .fence = host_fence,
                                                       .score = host_score,
                                                       .compact = host_compact};
