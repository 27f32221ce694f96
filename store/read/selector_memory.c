/* selector_memory: lays out a load's memory, and copies or verifies blocks in it.
 *
 *   probe rows   [row 0][row 1]...[zeros to 64][row tags]
 *   quantised    [struct sc_store_quant_range 0, 1 ...][area 0][area 1]...[K, V ...][row tags]
 *   area         [K 0][K 1].. [V 0][V 1]..    one block, pages as read; they stay there
 *                [tags]                       a block of tags; copied to the row tags
 *   K, V         of a range that is read in parts: joined here
 *
 * Invariants: a copied probe row agrees with its tag (namespace, piece, copy, layer, position). A
 * range is good when its quantised blocks are complete and verified. Row tags are not verified
 * here: rows fail by them.
 * Threads: any that holds the memory in the pool.
 * Tests: tests/unit/store/test_selector.c, test_quant.c */
#include "store/read/selector.h"

#include "store/rows/tag.h"

#include <string.h>

#define LINE  64u /* tags begin on a cache line */
#define TRIES 4u  /* attempts to lay out quantised rows while more are added */

static uint64_t tags_at(uint64_t rows, uint64_t probe_row_bytes)
{
    return sc_store_up(rows * probe_row_bytes, LINE);
}

uint64_t sc_store_selector_bytes(uint64_t row_count, uint64_t probe_row_bytes, uint32_t layout)
{
    uint64_t tags_bytes = row_count * (layout == SC_STORE_SPLIT ? 16 : 8);
    return sc_store_up(tags_at(row_count, probe_row_bytes) + tags_bytes, SC_STORE_POOL_BLOCK_BYTES);
}

bool sc_store_selector_memory_take(struct sc_store *store, uint64_t rows, uint64_t probe_row_bytes,
                                   struct sc_store_selector_memory *ret_memory)
{
    uint64_t bytes = sc_store_selector_bytes(rows, probe_row_bytes, store->shape.layout);
    struct sc_store_selector_memory memory = {.tags_at = tags_at(rows, probe_row_bytes)};
    if (rows > 0)
        memory.run = sc_store_pool_take(&store->pool, bytes);
    *ret_memory = memory;
    return rows == 0 || memory.run != NULL;
}

/* Describes each range's quantised rows before they are read, in ret_quantised; NULL: only counts.
 * Returns the bytes, from `at` on, of blocks read in parts or from host memory. */
static uint64_t quantised_lay(const struct sc_store *store,
                              const struct sc_store_selector_plan *plan, uint64_t at,
                              struct sc_store_quant_range *ret_quantised)
{
    uint64_t start = at, rows = 0;
    for (uint64_t i = 0; i < plan->range_count; i++) {
        const struct sc_store_range *range = &plan->ranges[i];
        struct sc_store_blocks blocks;
        struct sc_store_quant_range quantised = {
            .piece = range->piece,
            .row_first = rows,
            .row_count = range->row_count,
            .codes = sc_store_selector_quant_of(store, range, &blocks)};
        bool is_in_host_tier = plan->host_slab != NULL && sc_store_selector_bit(plan->host_slab, i);
        rows += range->row_count;
        if (quantised.codes != NULL) {
            const struct sc_store_extent_entry *extent;
            uint64_t reads = sc_store_selector_reads(store, &blocks, plan->k_alone);
            quantised.row =
                range->row_first - sc_store_quant_piece(store, quantised.piece, &extent)->skip;
            quantised.has_v = !plan->k_alone;
            atomic_init(&quantised.left, (uint32_t)reads + 1); /* + its tags */
            if (reads > 1 || is_in_host_tier) {
                quantised.k_at = at;
                quantised.v_at = at + sc_store_up(blocks.k_bytes, LINE);
                at = quantised.v_at + (plan->k_alone ? 0 : sc_store_up(blocks.v_bytes, LINE));
            }
        }
        if (ret_quantised != NULL)
            ret_quantised[i] = quantised;
    }
    return at - start;
}

uint64_t sc_store_selector_memory_lay(const struct sc_store *store,
                                      const struct sc_store_selector_plan *plan, uint64_t rows,
                                      struct sc_store_selector_memory *ret_memory)
{
    struct sc_store_selector_memory memory = {.tags_at = tags_at(rows, plan->wanted_bytes)};
    if (plan->is_quant) {
        memory.area =
            sc_store_up(plan->range_count * sizeof(struct sc_store_quant_range), SC_IO_PAGE_BYTES);
        memory.area_end = sc_store_selector_plan_areas(plan, NULL, memory.area);
        memory.tags_at =
            sc_store_up(memory.area_end + quantised_lay(store, plan, memory.area_end, NULL), LINE);
    }
    *ret_memory = memory;
    return memory.tags_at + sc_store_selector_tags_bytes(store, rows);
}

bool sc_store_selector_memory_begin(const struct sc_store *store,
                                    const struct sc_store_selector_plan *plan,
                                    const struct sc_store_selector_memory *memory)
{
    if (!plan->is_quant)
        return true;
    uint64_t parts = quantised_lay(store, plan, memory->area_end,
                                   (struct sc_store_quant_range *)(void *)memory->run);
    return sc_store_selector_plan_areas(plan, memory->run, memory->area) <= memory->area_end &&
           memory->area_end + parts <= memory->tags_at;
}

bool sc_store_selector_memory_take_quant(struct sc_store *store,
                                         const struct sc_store_selector_plan *plan, uint64_t rows,
                                         struct sc_store_selector_memory *ret_memory)
{
    struct sc_store_selector_memory memory;
    for (uint32_t i = 0; i < TRIES; i++) {
        uint64_t bytes = sc_store_selector_memory_lay(store, plan, rows, &memory);
        memory.run = sc_store_pool_take(&store->pool, bytes);
        if (memory.run == NULL)
            break;
        if (sc_store_selector_memory_begin(store, plan, &memory)) {
            *ret_memory = memory;
            return true;
        }
        /* An extent got quantised rows since they were counted. */
        sc_store_pool_leave(&store->pool, memory.run);
    }
    *ret_memory = (struct sc_store_selector_memory){0};
    return false;
}

bool sc_store_slab_of(const uint8_t *keys, uint64_t range, struct sc_store_slab *ret_slab)
{
    const struct sc_store_quant_range *quantised = sc_store_quant_range_of(keys, range);
    if (!quantised->is_good)
        return false;
    const struct sc_store_codec_shape *shape = &quantised->codes->codec_shape;
    *ret_slab =
        (struct sc_store_slab){.bits_k = shape->bits_k,
                               .tier = quantised->is_in_host_tier ? SPEC_TIER_HOST : SC_STORE_TIER,
                               .shape = shape};
    ret_slab->k_table = keys + quantised->k_at + SC_STORE_BLOCK_HEAD_BYTES;
    ret_slab->k_scales = ret_slab->k_table + sc_store_quant_table_bytes(shape, true);
    ret_slab->k_quant =
        ret_slab->k_scales + shape->scale_bytes + quantised->row * shape->k_row_bytes;
    if (!quantised->has_v)
        return true;
    ret_slab->bits_v = shape->bits_v;
    ret_slab->v_table = keys + quantised->v_at + SC_STORE_BLOCK_HEAD_BYTES;
    ret_slab->v_scales = ret_slab->v_table + sc_store_quant_table_bytes(shape, false);
    ret_slab->v_quant =
        ret_slab->v_scales + shape->scale_bytes + quantised->row * shape->v_row_bytes;
    return true;
}

/* Verifies and copies probe rows. No lock held. Returns false if a row fails. */
static bool probes_take(const struct sc_store *store, const struct sc_store_selector_block *block,
                        const uint8_t *frame, uint8_t *keys)
{
    uint64_t bytes = block->probe_row_bytes, wanted = block->wanted_bytes;
    const uint8_t *rows = frame + block->probes.at;
    const uint64_t *tags = (const uint64_t *)(const void *)(frame + block->probe_tags.at);
    uint8_t *dst = keys + block->row_first * wanted;
    uint64_t id = block->piece;
    for (uint64_t done = 0; done < block->row_count;) {
        uint64_t row = block->extent_row + done, left = block->row_count - done;
        const struct sc_store_piece_entry *piece =
            sc_store_selector_piece_with(store, block, &id, row);
        if (piece == NULL)
            return false;
        uint64_t skip = row - piece->extent_row, count = piece->row_count - skip;
        uint64_t bite = SC_STORE_BITE_BYTES / bytes > 0 ? SC_STORE_BITE_BYTES / bytes : 1;
        count = count < left ? count : left;
        count = count < bite ? count : bite;
        const struct sc_store_tag_rows tagged = {
            .base = sc_store_tag_base(store->shape.digest, piece->hash, block->copy, block->layer,
                                      SC_STORE_PART_PROBE),
            .position_first = piece->first_position + skip,
            .row_bytes = bytes,
            .count = count,
            .tag_step = 1};
        if (sc_store_tag_verify(&tagged, rows + done * bytes, tags + done) != count) {
            SC_LOG(store->params.log, 1,
                   "piece %" PRIu64 " layer %" PRIu32 " fails verification of its probe keys", id,
                   block->layer);
            return false;
        }
        if (bytes == wanted)
            memcpy(dst + done * wanted, rows + done * bytes, count * bytes);
        for (uint64_t i = done; i < done + count && bytes != wanted; i++)
            memcpy(dst + i * wanted, rows + i * bytes, wanted);
        done += count;
    }
    return true;
}

/* Copies the part of a block [at, at + bytes) that is in the section, which begins at `from`. */
static void section_copy(const struct sc_store_selector_section *section, uint64_t from,
                         const uint8_t *frame, uint64_t at, uint64_t bytes, uint8_t *dst)
{
    uint64_t end = from + (section->end - section->start);
    uint64_t first = at > from ? at : from, last = at + bytes < end ? at + bytes : end;
    if (first < last)
        memcpy(dst + (first - at), frame + section->at + (first - from), last - first);
}

/* Verifies a range whose blocks and tags were all read. */
static void quantised_end(struct sc_store *store, struct sc_store_quant_range *quantised,
                          const struct sc_store_blocks *blocks, uint32_t layer,
                          const struct sc_store_selector_memory *memory)
{
    enum sc_store_block_state state = sc_store_blocks_check(
        store, blocks, &quantised->codes->codec_shape, layer, memory->run + quantised->k_at,
        quantised->has_v ? memory->run + quantised->v_at : NULL);
    quantised->is_good = state == SC_STORE_BLOCK_QUANTISED;
    if (state != SC_STORE_BLOCK_BAD) {
        sc_store_selector_give_quant(store, quantised, blocks, layer, memory);
        return;
    }
    sc_store_count(&store->counts.bad_blocks, 1);
    SC_LOG(store->params.log, 1,
           "piece %" PRIu64 " layer %" PRIu32 " fails verification of its codes", quantised->piece,
           layer);
}

/* Takes blocks of the ranges, or their tags (copied before). The last of a range verifies it. */
static void quant_take(struct sc_store *store, const struct sc_store_selector_block *block,
                       const uint8_t *area, const struct sc_store_selector_memory *memory)
{
    uint8_t *run = memory->run;
    for (uint64_t i = block->range_first; i < block->range_first + block->range_count; i++) {
        struct sc_store_quant_range *quantised = &((struct sc_store_quant_range *)(void *)run)[i];
        const struct sc_store_extent_entry *extent;
        const struct sc_store_piece_entry *piece =
            sc_store_quant_piece(store, quantised->piece, &extent);
        struct sc_store_blocks blocks;
        if (quantised->codes == NULL)
            continue;
        sc_store_quant_blocks(store, extent, quantised->codes->copy, &quantised->codes->codec_shape,
                              piece, &blocks);
        const struct sc_store_selector_section *k = &block->probes, *v = &block->probe_tags;
        if (block->tag_count > 0) {
            /* tags were copied; quantised rows may be complete already */
        } else if (quantised->k_at == 0) { /* whole blocks stay where they were read */
            quantised->k_at = (uint64_t)(area - run) + k->at + (blocks.k_at - block->k_at);
            quantised->v_at = (uint64_t)(area - run) + v->at + (blocks.v_at - block->v_at);
        } else {
            section_copy(k, block->k_at, area, blocks.k_at, blocks.k_bytes, run + quantised->k_at);
            if (quantised->has_v)
                section_copy(v, block->v_at, area, blocks.v_at, blocks.v_bytes,
                             run + quantised->v_at);
        }
        if (atomic_fetch_sub(&quantised->left, 1) == 1)
            quantised_end(store, quantised, &blocks, block->layer, memory);
    }
}

static spec_status memory_fill(struct sc_store *store, const struct sc_store_selector_block *block,
                               const uint8_t *frame, const struct sc_store_selector_memory *memory)
{
    if (block->tag_count > 0)
        memcpy(memory->run + memory->tags_at +
                   sc_store_selector_tags_bytes(store, block->row_first),
               frame + block->tags.at, sc_store_selector_tags_bytes(store, block->tag_count));
    quant_take(store, block, frame, memory);
    if (block->wanted_bytes == 0 || probes_take(store, block, frame, memory->run)) {
        sc_store_selector_give_block(store, block, frame, memory);
        return SPEC_OK;
    }
    sc_store_count(&store->counts.corrupt_rows, 1);
    return SPEC_E_CORRUPT;
}

spec_status sc_store_selector_memory_came(struct sc_store *store,
                                          const struct sc_store_selector_block *block,
                                          const uint8_t *frame, spec_status status,
                                          int32_t sys_errno,
                                          const struct sc_store_selector_memory *memory)
{
    if (status == SPEC_OK)
        return memory_fill(store, block, frame, memory);
    sc_store_count(&store->counts.io_errors, 1);
    SC_LOG(store->params.log, 1,
           "piece %" PRIu64 " layer %" PRIu32 " cannot be read (its selector keys), errno %" PRId32,
           block->piece, block->layer, sys_errno);
    return SPEC_E_IO;
}
