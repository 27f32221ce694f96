/* section: builds a derived section. Contract: section.h. */
#include "store/section/section.h"

#include "store/rows/quant_blocks.h"
#include "store/rows/row_permutation.h"
#include "store/rows/tag.h"

#include <string.h>

#define WAITS 5000u /* for frames; then the section is dropped */

/* A kind of section; one of the three below. */
struct sc_store_format {
    /* Bytes of a layer. */
    uint64_t (*layer_bytes)(const struct sc_store_builder *builder);
    /* Adds verified rows [row, row + count) of the span to the layer. */
    void (*take)(struct sc_store_builder *builder, const struct sc_store_span *span, uint64_t count,
                 const struct sc_store_back *back);
    bool is_whole; /* takes whole pieces, K and V; else any rows, K alone */
    bool is_raw;   /* the layer is written as it is; else its tags are made */
};

static const struct sc_store *store_of(const struct sc_store_builder *builder)
{
    return builder->desk->store;
}

/* ---- Probe rows ------------------------------------------------------------------------------ */

static uint64_t probes_layer_bytes(const struct sc_store_builder *builder)
{
    return builder->extent->row_count * store_of(builder)->params.probe_row_bytes;
}

static void probes_take(struct sc_store_builder *builder, const struct sc_store_span *span,
                        uint64_t count, const struct sc_store_back *back)
{
    uint64_t bytes = store_of(builder)->params.probe_row_bytes;
    (void)span;
    for (uint64_t i = 0; i < count; i++)
        memcpy(builder->desk->layer + (builder->row + i) * bytes,
               back->halves[0] + i * back->stride, bytes);
}

static const struct sc_store_format PROBES = {.layer_bytes = probes_layer_bytes,
                                              .take = probes_take};

/* ---- Codes ----------------------------------------------------------------------------------- */

static uint64_t quant_layer_bytes(const struct sc_store_builder *builder)
{
    const struct sc_store *store = store_of(builder);
    const struct sc_store_piece_entry *piece = NULL;
    for (uint64_t i = 0; piece == NULL; i++) /* there is one */
        piece = builder->spans[i].piece;
    return sc_store_quant_layer_bytes(store, &store->params.codes.shape,
                                      piece->first_position - piece->extent_row,
                                      builder->extent->row_count);
}

static void quant_take(struct sc_store_builder *builder, const struct sc_store_span *span,
                       uint64_t count, const struct sc_store_back *back)
{
    const struct sc_store *store = store_of(builder);
    struct sc_store_blocks blocks;
    const uint8_t *rows[SC_LIMIT_CHUNK_TOKENS];
    const uint8_t *v = store->shape.layout == SC_STORE_SPLIT
                           ? back->halves[1]
                           : back->halves[0] + store->shape.k_row_bytes;
    sc_store_quant_blocks(store, builder->extent, builder->derived->copy,
                          &store->params.codes.shape, span->piece, &blocks);
    SC_ASSERT(store->params.poison, blocks.row_count == count);
    uint8_t *layer = builder->desk->layer;
    for (uint32_t part = SC_STORE_PART_K; part <= SC_STORE_PART_V; part++) {
        bool is_k = part == SC_STORE_PART_K;
        for (uint64_t i = 0; i < count; i++)
            rows[i] = (is_k ? back->halves[0] : v) + i * back->stride;
        sc_store_block_make(store, &blocks, builder->layer, part, rows,
                            layer + (is_k ? blocks.k_at : blocks.v_at));
    }
}

static const struct sc_store_format CODES = {
    .layer_bytes = quant_layer_bytes, .take = quant_take, .is_whole = true, .is_raw = true};

/* ---- Rows in another order ------------------------------------------------------------------- */

static struct sc_store_place permutation_place(const struct sc_store_builder *builder)
{
    return sc_store_shape_place(&store_of(builder)->shape, builder->extent->probe_row_bytes,
                                builder->extent->row_count);
}

static uint64_t permutation_layer_bytes(const struct sc_store_builder *builder)
{
    return permutation_place(builder).row_offset +
           builder->extent->row_count * store_of(builder)->shape.row_bytes;
}

/* Copies row tags, which do not depend on the place; makes those of probe rows again. */
static void order_take(struct sc_store_builder *builder, const struct sc_store_span *span,
                       uint64_t count, const struct sc_store_back *back)
{
    const struct sc_store_shape *shape = &store_of(builder)->shape;
    const struct sc_store_extent_entry *extent = builder->extent;
    const struct sc_store_place *place = &builder->place;
    uint32_t halves = shape->layout == SC_STORE_SPLIT ? 2 : 1;
    uint64_t bytes = shape->row_bytes / halves, tag_bytes = 8ull * shape->tags_per_row;
    uint64_t probe_bytes = extent->probe_row_bytes, first = builder->row;
    const uint16_t *slots = sc_store_permutation_of((uint16_t *)(uintptr_t)builder->slots,
                                                    extent->row_count, builder->layer);
    uint8_t *layer = builder->desk->layer, *probes = layer + first * probe_bytes;
    memcpy(layer + place->tag_offset + first * tag_bytes, back->tags, count * tag_bytes);
    for (uint64_t i = 0; i < count; i++) {
        for (uint32_t half = 0; half < halves; half++)
            memcpy(layer + place->row_offset +
                       (half * extent->row_count + slots[first + i]) * bytes,
                   back->halves[half] + i * back->stride, bytes);
        memcpy(probes + i * probe_bytes, back->halves[0] + i * back->stride, probe_bytes);
    }
    const struct sc_store_tag_rows tagged = {
        .base = sc_store_tag_base(shape->digest, span->piece->hash, extent->copy, builder->layer,
                                  SC_STORE_PART_PROBE),
        .position_first = span->piece->first_position + (first - span->piece->extent_row),
        .row_bytes = probe_bytes,
        .count = count,
        .tag_step = 1};
    if (probe_bytes > 0)
        sc_store_tag_make(&tagged, probes,
                          (uint64_t *)(void *)(layer + place->probe_tag_offset + first * 8));
}

static const struct sc_store_format ORDER = {
    .layer_bytes = permutation_layer_bytes, .take = order_take, .is_whole = true, .is_raw = true};

/* ---- The desk -------------------------------------------------------------------------------- */

bool sc_store_desk_take(struct sc_store_desk *desk, uint64_t rows_max)
{
    desk->rows_max = rows_max < SC_STORE_ROWS_MAX ? rows_max : SC_STORE_ROWS_MAX;
    return sc_store_readback_take(&desk->back, sc_store_stretch_bytes(desk->store, desk->rows_max));
}

void sc_store_desk_leave(struct sc_store_desk *desk)
{
    sc_store_readback_leave(&desk->back);
    sc_alloc_free(desk->store->params.alloc, desk->layer);
    desk->layer = NULL;
    desk->layer_bytes = 0;
}

/* ---- Beginning ------------------------------------------------------------------------------- */

void sc_store_builder_set(struct sc_store_builder *builder,
                          const struct sc_store_extent_entry *extent,
                          enum sc_store_builder_kind kind)
{
    static const struct sc_store_format *const FORMATS[SC_STORE_BUILDER_KINDS] = {
        [SC_STORE_BUILDER_PROBES] = &PROBES,
        [SC_STORE_BUILDER_QUANT] = &CODES,
        [SC_STORE_BUILDER_PERMUTATION] = &ORDER};
    *builder = (struct sc_store_builder){.desk = builder->desk,
                                         .format = FORMATS[kind],
                                         .extent = extent,
                                         .plans = builder->plans,
                                         .spans = builder->spans};
}

void sc_store_builder_span(struct sc_store_builder *builder, uint64_t first, uint64_t end,
                           const struct sc_store_piece_entry *piece)
{
    struct sc_store_piece_plan *plan = &builder->plans[builder->span_count];
    if (first == end)
        return;
    builder->spans[builder->span_count++] =
        (struct sc_store_span){.first = first, .count = end - first, .piece = piece};
    *plan = (struct sc_store_piece_plan){.row_count = (uint32_t)(end - first)};
    if (piece == NULL)
        return;
    plan->first_position = piece->first_position + (first - piece->extent_row);
    memcpy(plan->hash, piece->hash, sizeof(plan->hash));
    builder->piece_count++;
}

uint64_t sc_store_builder_frames(const struct sc_store_builder *builder)
{
    return builder->format->layer_bytes(builder) / store_of(builder)->limits.op_bytes + 3;
}

uint64_t sc_store_builder_frames_most(const struct sc_store *store)
{
    return sc_staging_count(store->frames) / 8 * 5;
}

spec_status sc_store_builder_begin(struct sc_store_builder *builder, sc_store_written *written,
                                   void *user, struct spec_error *reterr)
{
    const struct sc_store_pass pass = {
        .pieces = builder->plans, .piece_count = builder->span_count, .user = user};
    builder->layer_bytes = builder->format->layer_bytes(builder);
    if (builder->slots != NULL)
        builder->place = permutation_place(builder);
    const struct sc_store_section_form form = {
        .raw_bytes = builder->format->is_raw ? builder->layer_bytes : 0,
        .slots = builder->slots,
        .place = builder->place};
    return sc_store_section_begin(builder->desk->store, &pass, &form, written, &builder->derived,
                                  reterr);
}

/* ---- Windows --------------------------------------------------------------------------------- */

/* Sets the rows of the window at `row`; in a paired layout it may span pieces. */
static void window_size(struct sc_store_builder *builder)
{
    const struct sc_store_span *span = &builder->spans[builder->span];
    uint64_t most = builder->row + builder->desk->rows_max, end = span->first + span->count;
    bool is_split = store_of(builder)->shape.layout == SC_STORE_SPLIT;
    if (!builder->format->is_whole && end > most)
        end = most;
    for (uint64_t i = builder->span + 1; !is_split && i < builder->span_count && end < most; i++) {
        uint64_t next = builder->spans[i].first + builder->spans[i].count;
        if (builder->spans[i].piece == NULL || (builder->format->is_whole && next > most))
            break;
        end = next < most ? next : most;
    }
    builder->rows = end - builder->row;
}

/* Begins the window at `row`, which is in no gap. Returns true if it is being read; the task is
 * posted then. */
static bool window_have(struct sc_store_builder *builder)
{
    const struct sc_store_span *from = &builder->spans[builder->span], *to = from;
    window_size(builder);
    uint64_t end = builder->row + builder->rows;
    while (to->first + to->count < end)
        to++;
    const struct sc_store_stretch_rows rows = {.extent = builder->extent,
                                               .layer = builder->layer,
                                               .from = from->piece,
                                               .to = to->piece,
                                               .first = builder->row,
                                               .end = end,
                                               .k_alone = !builder->format->is_whole};
    sc_store_readback_add(&builder->desk->back, &rows);
    return sc_store_readback_submit(&builder->desk->back);
}

/* Adds the window to the layer. Returns false if rows are unreadable or failed their tags. */
static bool window_take(struct sc_store_builder *builder)
{
    uint64_t end = builder->row + builder->rows;
    while (builder->row < end) {
        const struct sc_store_span *span = &builder->spans[builder->span];
        uint64_t span_end = span->first + span->count;
        uint64_t count = (span_end < end ? span_end : end) - builder->row;
        struct sc_store_back back;
        if (!sc_store_readback_rows(&builder->desk->back, 0, span->piece, builder->row, count,
                                    &back))
            return false;
        builder->format->take(builder, span, count, &back);
        builder->row += count;
        builder->span += builder->row == span_end;
    }
    return true;
}

static void gaps_pass(struct sc_store_builder *builder)
{
    while (builder->span < builder->span_count && builder->spans[builder->span].piece == NULL)
        builder->row += builder->spans[builder->span++].count;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static void layer_pack(void *user, uint32_t part, uint64_t first, uint64_t count, uint8_t *dst)
{
    const struct sc_store_builder *builder = user;
    uint64_t bytes = part == SC_STORE_PART_PROBE ? store_of(builder)->params.probe_row_bytes : 1;
    memcpy(dst, builder->desk->layer + first * bytes, count * bytes);
}

/* Opens the layer. Returns false without memory. */
static bool layer_open(struct sc_store_builder *builder)
{
    struct sc_store_desk *desk = builder->desk;
    struct sc_alloc *alloc = desk->store->params.alloc;
    uint64_t end = builder->layer_bytes > 64 ? builder->layer_bytes - 64 : 0;
    if (desk->layer_bytes < builder->layer_bytes) {
        sc_alloc_free(alloc, desk->layer);
        desk->layer = sc_alloc(alloc, builder->layer_bytes);
        desk->layer_bytes = desk->layer != NULL ? builder->layer_bytes : 0;
    }
    if (desk->layer == NULL)
        return false;
    bool has_gaps = builder->piece_count < builder->span_count; /* else only the end may be blank */
    has_gaps = has_gaps || builder->slots != NULL;              /* or between sections */
    memset(desk->layer + (has_gaps ? 0 : end), 0, builder->layer_bytes - (has_gaps ? 0 : end));
    builder->row = builder->span = 0;
    builder->waits = 0;
    builder->is_open = true;
    gaps_pass(builder);
    return true;
}

static enum sc_store_builder_next layer_put(struct sc_store_builder *builder)
{
    const struct sc_store *store = store_of(builder);
    struct sc_store_extent *derived = builder->derived;
    uint64_t frames = sc_store_builder_frames(builder), most = sc_store_builder_frames_most(store);
    const struct sc_store_source source = {.pack = layer_pack, .user = builder};
    uint32_t layer = builder->layer;
    bool is_last = layer + 1 == store->shape.layer_count;
    if (frames <= most && sc_staging_used(store->frames) + frames > most) {
        if (++builder->waits <= WAITS)
            return SC_STORE_BUILDER_ROOM;
        sc_store_extent_abort(derived);
        return SC_STORE_BUILDER_OVER;
    }
    builder->layer++;
    builder->is_open = false;
    bool good = sc_store_extent_put_layer(derived, layer, &source, NULL) == SPEC_OK;
    return good && !is_last ? SC_STORE_BUILDER_LAYER : SC_STORE_BUILDER_OVER;
}

enum sc_store_builder_next sc_store_builder_step(struct sc_store_builder *builder,
                                                 uint64_t *ret_bytes)
{
    *ret_bytes = 0;
    if (!builder->is_open && !layer_open(builder)) {
        sc_store_extent_abort(builder->derived);
        return SC_STORE_BUILDER_OVER;
    }
    if (builder->rows == 0 && builder->row == builder->extent->row_count)
        return layer_put(builder);
    if (builder->rows == 0)
        return window_have(builder) ? SC_STORE_BUILDER_READ : SC_STORE_BUILDER_STEP;
    builder->is_bad = !window_take(builder);
    *ret_bytes = sc_store_readback_clear(&builder->desk->back);
    builder->rows = 0;
    gaps_pass(builder);
    if (!builder->is_bad)
        return SC_STORE_BUILDER_STEP;
    sc_store_extent_abort(builder->derived);
    return SC_STORE_BUILDER_OVER;
}

void sc_store_builder_leave(struct sc_store_builder *builder)
{
    (void)sc_store_readback_clear(&builder->desk->back);
    builder->rows = 0;
}

uint64_t sc_store_builder_rows_at(const struct sc_store_builder *builder)
{
    return builder->layer * builder->extent->stride + builder->extent->row_offset;
}

uint64_t sc_store_builder_at(const struct sc_store_builder *builder)
{
    return sc_store_builder_rows_at(builder) + builder->row * store_of(builder)->shape.row_bytes;
}
