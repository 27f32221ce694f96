/* selector_host: stores a piece's selector keys of one layer in slabs of host memory, and reads
 * them.
 *
 *   slab    [head 64][tags of its rows | pad to 64][a | pad to 64][b]
 *   head    checksum of the tags u64, rows that have tags u32, 1 if b is present u32
 *   a, b    quantised: K's block, V's block (none if K alone was read); probe rows: their tags, the
 *           rows; tags alone: nothing. A load of tags alone also takes those of probe rows' slabs
 *
 * Invariants: a load gets only bytes that agree with a checksum. Blocks and probe rows have their
 * own. Row tags have one here, so that bad memory is not taken for a bad disk (on disk they are
 * proven by their rows). A slab has all readable rows of its piece.
 * Threads: any; a copier holds the load's memory.
 * Tests: tests/unit/store/test_selector_host.c */
#include "store/read/selector.h"

#include "store/rows/tag.h"

#include <string.h>

#define LINE 64u

struct head {
    uint64_t sum;
    uint32_t tag_rows, has_b;
};

struct lay { /* layout of a slab, in bytes */
    uint64_t rows, tag_bytes, a_at, a_bytes, b_at, b_bytes, bytes;
};

static struct lay lay_of(const struct sc_store *store, uint64_t rows, uint64_t a_bytes,
                         uint64_t b_bytes)
{
    struct lay lay = {.rows = rows,
                      .tag_bytes = sc_store_selector_tags_bytes(store, rows),
                      .a_bytes = a_bytes,
                      .b_bytes = b_bytes};
    lay.a_at = LINE + sc_store_up(lay.tag_bytes, LINE);
    lay.b_at = lay.a_at + sc_store_up(a_bytes, LINE);
    lay.bytes = lay.b_at + b_bytes;
    return lay;
}

/* Returns the tags' checksum, seeded by piece and layer so that slabs cannot be confused. */
static uint64_t tags_sum(const struct sc_host_tier_key *key, const uint8_t *tags, uint64_t bytes)
{
    uint64_t seed = key->copy * UINT64_C(0x9e3779b97f4a7c15) + key->first;
    return sc_store_checksum(tags, bytes, seed * UINT64_C(0x9e3779b97f4a7c15) + key->layer);
}

static uint64_t rows_of(const struct sc_store_piece_entry *piece)
{
    return (uint64_t)piece->row_count - piece->skip;
}

static struct sc_host_tier_key key_of(const struct sc_store_piece_entry *piece, uint64_t copy,
                                      uint32_t layer, enum sc_host_tier_kind kind)
{
    return (struct sc_host_tier_key){.copy = copy,
                                     .first = (uint32_t)piece->extent_row + piece->skip,
                                     .layer = layer,
                                     .kind = kind};
}

static bool slab_is_there(const struct sc_store *store, const struct sc_host_tier_key *key)
{
    return sc_host_tier_layers(store->host, key, NULL) > 0 && sc_host_tier_has(store->host, key);
}

/* Returns true if host memory has the piece's row tags beside its probe rows alone. */
static bool tags_are_with_probes(const struct sc_store *store,
                                 const struct sc_store_piece_entry *piece,
                                 const struct sc_store_extent_entry *extent, uint32_t layer)
{
    const struct sc_store_probes probes = sc_store_probes_of(extent);
    const struct sc_host_tier_key tags = key_of(piece, extent->copy, layer, SC_STORE_HOST_TAGS);
    const struct sc_host_tier_key both = key_of(piece, probes.copy, layer, SC_STORE_HOST_PROBES);
    return probes.row_bytes > 0 && slab_is_there(store, &both) && !slab_is_there(store, &tags);
}

bool sc_store_selector_take_set(const struct sc_store_selector_plan *plan, uint64_t range,
                                uint64_t row_first, struct sc_store_selector_take *ret_take)
{
    const struct sc_store *store = plan->store;
    const struct sc_store_range *wanted = &plan->ranges[range];
    struct sc_store_selector_take take = {
        .row_first = row_first, .row_count = wanted->row_count, .wanted_bytes = plan->wanted_bytes};
    take.piece = sc_store_quant_piece(store, wanted->piece, &take.extent);
    const struct sc_store_probes probes = sc_store_probes_of(take.extent);
    const struct sc_store_section *codes = NULL;
    struct sc_store_blocks blocks;
    enum sc_host_tier_kind kind = SC_STORE_HOST_TAGS;
    uint64_t copy = take.extent->copy;
    if (plan->is_quant && plan->run != NULL) {
        take.quantised = &((struct sc_store_quant_range *)(uintptr_t)plan->run)[range];
        codes = take.quantised->codes;
    } else if (plan->is_quant) {
        codes = sc_store_selector_quant_of(store, wanted, &blocks);
    }
    if (plan->is_quant) {
        kind = SC_STORE_HOST_QUANT;
        copy = codes != NULL ? codes->copy : 0;
    } else if (plan->wanted_bytes > 0 ||
               tags_are_with_probes(store, take.piece, take.extent, plan->layer)) {
        kind = SC_STORE_HOST_PROBES;
        copy = probes.copy;
        take.probe_row_bytes = probes.row_bytes;
    }
    take.row = wanted->row_first - take.piece->skip;
    take.key = key_of(take.piece, copy, plan->layer, kind);
    *ret_take = take;
    return wanted->row_count > 0 && wanted->row_first >= take.piece->skip &&
           (kind != SC_STORE_HOST_QUANT || codes != NULL) &&
           take.probe_row_bytes >= plan->wanted_bytes;
}

bool sc_store_selector_take_has(const struct sc_store *store,
                                const struct sc_store_selector_take *take)
{
    return slab_is_there(store, &take->key);
}

bool sc_store_selector_wish(const struct sc_store_selector_plan *plan, uint64_t range,
                            struct sc_host_slab_wish *ret_wish)
{
    const struct sc_store *store = plan->store;
    struct sc_store_selector_take take;
    struct sc_store_blocks blocks = {0};
    if (!sc_store_selector_take_set(plan, range, 0, &take))
        return false;
    const struct sc_store_section *codes = NULL;
    if (plan->is_quant)
        codes = sc_store_selector_quant_of(store, &plan->ranges[range], &blocks);
    if (plan->is_quant && (codes == NULL || codes->copy != take.key.copy))
        return false;
    uint64_t rows = rows_of(take.piece);
    uint64_t a = plan->is_quant ? blocks.k_bytes : take.probe_row_bytes > 0 ? rows * 8 : 0;
    uint64_t b = rows * take.probe_row_bytes + (plan->k_alone ? 0 : blocks.v_bytes);
    *ret_wish = (struct sc_host_slab_wish){.key = take.key,
                                           .piece = plan->ranges[range].piece,
                                           .row_count = (uint32_t)rows,
                                           .bytes = lay_of(store, rows, a, b).bytes,
                                           .ops = 1u + (plan->is_quant && b > 0 ? 1 : 0) +
                                                  (a > 0 ? 1 : 0)};
    return true;
}

static bool tags_take(const struct sc_store *store, const struct sc_store_selector_take *take,
                      const struct lay *lay, const uint8_t *slab,
                      const struct sc_store_selector_memory *memory)
{
    struct head head;
    memcpy(&head, slab, sizeof(head));
    const uint8_t *tags = slab + LINE;
    if (head.tag_rows != lay->rows || tags_sum(&take->key, tags, lay->tag_bytes) != head.sum)
        return false;
    memcpy(memory->run + memory->tags_at + sc_store_selector_tags_bytes(store, take->row_first),
           tags + sc_store_selector_tags_bytes(store, take->row),
           sc_store_selector_tags_bytes(store, take->row_count));
    return true;
}

static bool quant_take(const struct sc_store *store, const struct sc_store_selector_take *take,
                       const uint8_t *slab, const struct sc_store_selector_memory *memory)
{
    struct sc_store_quant_range *quantised = take->quantised;
    struct sc_store_blocks blocks;
    struct head head;
    memcpy(&head, slab, sizeof(head));
    sc_store_quant_blocks(store, take->extent, quantised->codes->copy,
                          &quantised->codes->codec_shape, take->piece, &blocks);
    const struct lay lay = lay_of(store, rows_of(take->piece), blocks.k_bytes, blocks.v_bytes);
    if ((quantised->has_v && head.has_b == 0) || !tags_take(store, take, &lay, slab, memory))
        return false;
    memcpy(memory->run + quantised->k_at, slab + lay.a_at, lay.a_bytes);
    if (quantised->has_v)
        memcpy(memory->run + quantised->v_at, slab + lay.b_at, lay.b_bytes);
    enum sc_store_block_state state = sc_store_blocks_check(
        store, &blocks, &quantised->codes->codec_shape, take->key.layer,
        memory->run + quantised->k_at, quantised->has_v ? memory->run + quantised->v_at : NULL);
    quantised->is_good = state == SC_STORE_BLOCK_QUANTISED;
    quantised->is_in_host_tier = state != SC_STORE_BLOCK_BAD;
    return quantised->is_in_host_tier;
}

static bool probes_take(const struct sc_store *store, const struct sc_store_selector_take *take,
                        const uint8_t *slab, const struct sc_store_selector_memory *memory)
{
    uint64_t rows = rows_of(take->piece), bytes = take->probe_row_bytes;
    const struct lay lay = lay_of(store, rows, rows * 8, rows * bytes);
    const struct sc_store_tag_rows tagged = {
        .base = sc_store_tag_base(store->shape.digest, take->piece->hash, take->key.copy,
                                  take->key.layer, SC_STORE_PART_PROBE),
        .position_first = take->piece->first_position + take->piece->skip + take->row,
        .row_bytes = bytes,
        .count = take->row_count,
        .tag_step = 1};
    const uint64_t *tags = (const uint64_t *)(const void *)(slab + lay.a_at);
    const uint8_t *probes = slab + lay.b_at + take->row * bytes;
    uint8_t *dst = memory->run + take->row_first * take->wanted_bytes;
    if (!tags_take(store, take, &lay, slab, memory))
        return false;
    if (take->wanted_bytes == 0)
        return true;
    if (sc_store_tag_verify(&tagged, probes, tags + take->row) != take->row_count)
        return false;
    if (bytes == take->wanted_bytes)
        memcpy(dst, probes, take->row_count * bytes);
    for (uint64_t i = 0; i < take->row_count && bytes != take->wanted_bytes; i++)
        memcpy(dst + i * take->wanted_bytes, probes + i * bytes, take->wanted_bytes);
    return true;
}

bool sc_store_selector_take(const struct sc_store *store, const struct sc_store_selector_take *take,
                            const struct sc_store_selector_memory *memory)
{
    struct sc_host_tier_memory_slab *slab = sc_host_tier_get(store->host, &take->key);
    if (slab == NULL)
        return false;
    const uint8_t *bytes = sc_host_tier_bytes(store->host, slab);
    bool is_right;
    if (take->key.kind == SC_STORE_HOST_QUANT) {
        is_right = quant_take(store, take, bytes, memory);
    } else if (take->key.kind == SC_STORE_HOST_PROBES) {
        is_right = probes_take(store, take, bytes, memory);
    } else {
        const struct lay lay = lay_of(store, rows_of(take->piece), 0, 0);
        is_right = tags_take(store, take, &lay, bytes, memory);
    }
    if (!is_right) /* it is damaged, or has less than this load wants */
        sc_host_tier_forget(store->host, &take->key);
    sc_host_tier_unpin(store->host, slab);
    return is_right;
}

struct parts {
    uint64_t piece, row, row_count;
    const uint8_t *tags, *a, *b; /* a, b NULL: none */
    uint32_t ops;
};

static struct sc_host_slab_fill *fill_find(const struct sc_store_selector_memory *memory,
                                           const struct sc_host_tier_key *key)
{
    for (uint64_t i = 0; i < memory->fill_count; i++) {
        const struct sc_host_tier_key *begun = &memory->fills[i].key;
        if (memory->fills[i].slab != NULL && begun->copy == key->copy &&
            begun->first == key->first && begun->layer == key->layer && begun->kind == key->kind)
            return &memory->fills[i];
    }
    return NULL;
}

static uint64_t share_of(const struct lay *lay, uint64_t bytes, uint64_t rows)
{
    return bytes * rows / lay->rows;
}

/* Fills a slab. Blocks may end inside a piece: then only a slab begun for it is filled, by
 * several. */
static void slab_make(const struct sc_store *store, const struct sc_store_selector_memory *memory,
                      const struct sc_host_tier_key *key, const struct lay *lay,
                      const struct parts *parts)
{
    uint64_t row = parts->row, count = parts->row_count;
    struct sc_host_slab_fill own, *begun = fill_find(memory, key);
    if (begun == NULL &&
        (count < lay->rows || !sc_host_slab_slab_begin(store, &own, key, parts->piece, lay->rows,
                                                       lay->bytes, parts->ops)))
        return;
    struct sc_host_slab_fill *fill = begun != NULL ? begun : &own;
    struct head head = {.has_b = parts->b != NULL};
    memcpy(fill->bytes + LINE + share_of(lay, lay->tag_bytes, row), parts->tags,
           share_of(lay, lay->tag_bytes, count));
    if (parts->a != NULL)
        memcpy(fill->bytes + lay->a_at + share_of(lay, lay->a_bytes, row), parts->a,
               share_of(lay, lay->a_bytes, count));
    if (parts->b != NULL)
        memcpy(fill->bytes + lay->b_at + share_of(lay, lay->b_bytes, row), parts->b,
               share_of(lay, lay->b_bytes, count));
    fill->rows_given += count;
    if (fill->rows_given < lay->rows)
        return;
    head.tag_rows = (uint32_t)lay->rows;
    head.sum = tags_sum(key, fill->bytes + LINE, lay->tag_bytes);
    memcpy(fill->bytes, &head, sizeof(head));
    sc_host_slab_end(store, fill, true);
}

void sc_store_selector_give_quant(const struct sc_store *store,
                                  const struct sc_store_quant_range *quantised,
                                  const struct sc_store_blocks *blocks, uint32_t layer,
                                  const struct sc_store_selector_memory *memory)
{
    const struct sc_store_extent_entry *extent;
    const struct sc_store_piece_entry *piece =
        sc_store_quant_piece(store, quantised->piece, &extent);
    if (store->host == NULL || quantised->row != 0 || quantised->row_count != rows_of(piece))
        return;
    const struct sc_host_tier_key key =
        key_of(piece, quantised->codes->copy, layer, SC_STORE_HOST_QUANT);
    uint64_t v_bytes = quantised->has_v ? blocks->v_bytes : 0;
    const struct lay lay = lay_of(store, rows_of(piece), blocks->k_bytes, v_bytes);
    const uint8_t *tags =
        memory->run + memory->tags_at + sc_store_selector_tags_bytes(store, quantised->row_first);
    const struct parts parts = {.piece = quantised->piece,
                                .row_count = lay.rows,
                                .tags = tags,
                                .a = memory->run + quantised->k_at,
                                .b = quantised->has_v ? memory->run + quantised->v_at : NULL,
                                .ops = 2u + (quantised->has_v ? 1 : 0)};
    slab_make(store, memory, &key, &lay, &parts);
}

/* Copies rows [at, at + count) of the block to the piece's slab, from parts.row on. */
static void piece_give(const struct sc_store *store, const struct sc_store_selector_block *block,
                       const uint8_t *frame, const struct sc_store_selector_memory *memory,
                       const struct sc_store_piece_entry *piece, uint64_t at, struct parts parts)
{
    uint64_t rows = rows_of(piece), bytes = block->probe_row_bytes;
    parts.tags = frame + block->tags.at + sc_store_selector_tags_bytes(store, at);
    if (block->wanted_bytes == 0) {
        const struct sc_host_tier_key key =
            key_of(piece, sc_store_table_extent(&store->table, piece->extent)->copy, block->layer,
                   SC_STORE_HOST_TAGS);
        const struct lay lay = lay_of(store, rows, 0, 0);
        parts.ops = 1;
        slab_make(store, memory, &key, &lay, &parts);
    } else {
        const struct sc_host_tier_key key =
            key_of(piece, block->copy, block->layer, SC_STORE_HOST_PROBES);
        const struct lay lay = lay_of(store, rows, rows * 8, rows * bytes);
        parts.a = frame + block->probe_tags.at + at * 8;
        parts.b = frame + block->probes.at + at * bytes;
        parts.ops = 2;
        slab_make(store, memory, &key, &lay, &parts);
    }
}

void sc_store_selector_give_block(const struct sc_store *store,
                                  const struct sc_store_selector_block *block, const uint8_t *frame,
                                  const struct sc_store_selector_memory *memory)
{
    uint64_t id = block->piece;
    if (store->host == NULL || block->is_quant)
        return;
    for (uint64_t at = 0, rows; at < block->row_count; at += rows) {
        uint64_t row = block->extent_row + at, left = block->row_count - at;
        const struct sc_store_piece_entry *piece =
            sc_store_selector_piece_with(store, block, &id, row);
        if (piece == NULL)
            return;
        uint64_t first = (uint64_t)piece->extent_row + piece->skip;
        rows = piece->extent_row + (uint64_t)piece->row_count - row;
        rows = rows < left ? rows : left;
        if (row >= first)
            piece_give(store, block, frame, memory, piece, at,
                       (struct parts){.piece = id, .row = row - first, .row_count = rows});
    }
}
