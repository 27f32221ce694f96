/* quant_blocks: blocks of quantised rows.
 * Invariants, Threads: store/rows/quant_blocks.h.
 * Tests: tests/unit/store/test_quant.c */
#include "store/rows/quant_blocks.h"

#include "store/load.h"
#include "store/rows/tag.h"

#include <string.h>

static uint64_t chunk_of(const struct sc_store *store, uint64_t position)
{
    return position / store->params.config->chunk_tokens;
}

static uint64_t piece_slots(const struct sc_store *store, uint64_t position, uint64_t row_count)
{
    return chunk_of(store, position + row_count - 1) - chunk_of(store, position) + 1;
}

/* Bytes of a block without its rows' codes. */
static uint64_t fixed_bytes(const struct sc_store_codec_shape *shape, bool is_k)
{
    return SC_STORE_BLOCK_BYTES + sc_store_quant_table_bytes(shape, is_k) + shape->scale_bytes;
}

uint64_t sc_store_quant_layer_bytes(const struct sc_store *store,
                                    const struct sc_store_codec_shape *shape, uint64_t position,
                                    uint64_t row_count)
{
    uint64_t fixed = fixed_bytes(shape, true) + fixed_bytes(shape, false);
    return sc_store_up(piece_slots(store, position, row_count) * fixed +
                           row_count * (shape->k_row_bytes + shape->v_row_bytes),
                       64);
}

uint64_t sc_store_quant_layer_new(const struct sc_store *store, uint64_t position,
                                  uint64_t row_count)
{
    const struct sc_store_codec_shape *shape = &store->params.codes.shape;
    if (shape->bits_k == 0 || row_count == 0)
        return 0;
    return sc_store_quant_layer_bytes(store, shape, position, row_count);
}

void sc_store_quant_blocks(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                           uint64_t copy, const struct sc_store_codec_shape *shape,
                           const struct sc_store_piece_entry *piece,
                           struct sc_store_blocks *ret_blocks)
{
    uint64_t first = piece->first_position - piece->extent_row;
    uint64_t fixed_k = fixed_bytes(shape, true);
    uint64_t fixed_v = fixed_bytes(shape, false);
    uint64_t number = chunk_of(store, piece->first_position) - chunk_of(store, first);
    uint64_t slots = piece_slots(store, first, extent->row_count);
    uint64_t row = (uint64_t)piece->extent_row + piece->skip, rows = piece->row_count - piece->skip;
    *ret_blocks =
        (struct sc_store_blocks){.k_at = number * fixed_k + row * shape->k_row_bytes,
                                 .v_at = slots * fixed_k + extent->row_count * shape->k_row_bytes +
                                         number * fixed_v + row * shape->v_row_bytes,
                                 .k_bytes = fixed_k + rows * shape->k_row_bytes,
                                 .v_bytes = fixed_v + rows * shape->v_row_bytes,
                                 .position = piece->first_position + piece->skip,
                                 .row_count = rows,
                                 .copy = copy,
                                 .piece_hash = piece->hash};
}

uint64_t sc_store_quant_frame_bytes(const struct sc_store *store)
{
    return store->limits.op_bytes + SC_STAGING_SLACK_BYTES - SC_STORE_SELECTOR_SLACK_BYTES;
}

static uint64_t checksum(const struct sc_store *store, const struct sc_store_blocks *blocks,
                         uint32_t layer, uint32_t part, const uint8_t *block)
{
    bool is_k = part == SC_STORE_PART_K;
    uint64_t bytes = (is_k ? blocks->k_bytes : blocks->v_bytes) - 8, sum;
    const struct sc_store_tag_rows one = {
        .base = sc_store_tag_base(store->shape.digest, blocks->piece_hash, blocks->copy, layer,
                                  is_k ? SC_STORE_PART_K_QUANT : SC_STORE_PART_V_QUANT),
        .position_first = blocks->position,
        .row_bytes = bytes,
        .count = 1};
    sc_store_tag_make(&one, block, &sum);
    return sum;
}

static void head_make(const struct sc_store_codec_shape *shape, uint32_t part, uint64_t rows,
                      bool is_raw, uint8_t ret_head[SC_STORE_BLOCK_HEAD_BYTES])
{
    bool is_k = part == SC_STORE_PART_K;
    uint32_t form = is_k ? shape->form & (SC_STORE_FORM_K_PER_CHANNEL | SC_STORE_FORM_K_TURNED)
                         : (shape->form & SC_STORE_FORM_V_PER_CHANNEL) != 0;
    const uint8_t head[SC_STORE_BLOCK_HEAD_BYTES] = {
        is_k ? 3 : 4,
        (uint8_t)(is_k ? shape->bits_k : shape->bits_v),
        (uint8_t)form,
        is_raw,
        (uint8_t)rows,
        (uint8_t)(rows >> 8),
        0,
        0};
    memcpy(ret_head, head, sizeof(head));
}

void sc_store_block_make(const struct sc_store *store, const struct sc_store_blocks *blocks,
                         uint32_t layer, uint32_t part, const uint8_t *const *rows, uint8_t *block)
{
    const struct sc_store_quant *codes = &store->params.codes;
    const struct sc_store_codec_shape *shape = &codes->shape;
    bool is_k = part == SC_STORE_PART_K;
    uint8_t *table = block + SC_STORE_BLOCK_HEAD_BYTES;
    uint8_t *scales = table + sc_store_quant_table_bytes(shape, is_k);
    const struct sc_store_encode what = {.layer = layer,
                                         .part = part,
                                         .position = blocks->position,
                                         .rows = rows,
                                         .row_count = blocks->row_count,
                                         .table = table,
                                         .scales = scales,
                                         .codes = scales + shape->scale_bytes};
    head_make(shape, part, blocks->row_count, !codes->encode(codes->user, &what), block);
    uint64_t sum = checksum(store, blocks, layer, part, block);
    memcpy(block + (is_k ? blocks->k_bytes : blocks->v_bytes) - 8, &sum, 8);
}

static enum sc_store_block_state block_check(const struct sc_store *store,
                                             const struct sc_store_blocks *blocks,
                                             const struct sc_store_codec_shape *shape,
                                             uint32_t layer, uint32_t part, const uint8_t *block)
{
    const struct sc_store_quant *codes = &store->params.codes;
    bool is_k = part == SC_STORE_PART_K;
    uint8_t head[SC_STORE_BLOCK_HEAD_BYTES];
    uint64_t sum;
    memcpy(&sum, block + (is_k ? blocks->k_bytes : blocks->v_bytes) - 8, 8);
    if (checksum(store, blocks, layer, part, block) != sum)
        return SC_STORE_BLOCK_BAD;
    head_make(shape, part, blocks->row_count, false, head);
    if (memcmp(head, block, sizeof(head)) != 0)
        return SC_STORE_BLOCK_OTHER;
    bool is_read = codes->reads == NULL || sc_store_quant_table_bytes(shape, is_k) == 0 ||
                   codes->reads(codes->user, part, shape, block + SC_STORE_BLOCK_HEAD_BYTES,
                                blocks->position, blocks->row_count);
    return is_read ? SC_STORE_BLOCK_QUANTISED : SC_STORE_BLOCK_OTHER;
}

enum sc_store_block_state sc_store_blocks_check(const struct sc_store *store,
                                                const struct sc_store_blocks *blocks,
                                                const struct sc_store_codec_shape *shape,
                                                uint32_t layer, const uint8_t *k, const uint8_t *v)
{
    enum sc_store_block_state k_state, v_state = SC_STORE_BLOCK_QUANTISED;
    k_state = block_check(store, blocks, shape, layer, SC_STORE_PART_K, k);
    if (v != NULL)
        v_state = block_check(store, blocks, shape, layer, SC_STORE_PART_V, v);
    return k_state > v_state ? k_state : v_state;
}
