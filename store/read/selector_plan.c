/* selector_plan: cuts one layer's ranges into blocks that a selector reads at once.
 *
 *   ranges   piece 7 rows 0..64 | piece 8 rows 0..64 | piece 3 rows 5..9
 *   runs     [ one extent, adjacent rows             ] [ another          ]
 *   blocks   [ rows 0..43 ][ 43..86 ][ 86..128 ]       [ 5..9 ]              equal sizes in a run
 *            quantised: [tags of rows 0..128][rows 0..64][64..128]   [tags][rows]
 *
 * Invariants: blocks cover every row once, in order; quantised, its tags in a block of their own. A
 * block is verified alone, unless the quantised rows of one range exceed a read. Nothing is
 * allocated.
 * Threads: the selector's lock.
 * Tests: tests/unit/store/test_selector.c, test_quant.c */
#include "store/read/scan_plan.h"
#include "store/read/selector.h"
#include "store/log/where.h"

#define PAGE      ((uint64_t)SC_IO_PAGE_BYTES)
#define GAP_BYTES (64ull << 10) /* longest gap that is read through */

/* Returns the rows per block: equal blocks that fit a frame with every section in pages of its
 * own. */
static uint64_t rows_even(const struct sc_store_selector_plan *plan,
                          const struct sc_store_probes *probes, uint64_t rows)
{
    uint64_t each = sc_store_selector_tags_bytes(plan->store, 1);
    if (plan->wanted_bytes > 0)
        each += probes->row_bytes + 8;
    uint64_t most = (plan->store->limits.op_bytes + SC_STAGING_SLACK_BYTES -
                     2 * SC_STORE_SELECTOR_SECTIONS * PAGE) /
                    each;
    if (most == 0)
        return 0;
    uint64_t blocks = (rows + most - 1) / most;
    return blocks > 0 ? (rows + blocks - 1) / blocks : 1;
}

/* Returns true if the range is in host memory, or only missed ranges are planned. */
static bool range_is_passed(const struct sc_store_selector_plan *plan, uint64_t range)
{
    if (plan->host_slab == NULL)
        return false;
    return plan->is_again ? !sc_store_selector_bit(plan->missed, range)
                          : sc_store_selector_bit(plan->host_slab, range);
}

static bool run_open(struct sc_store_selector_plan *plan)
{
    const struct sc_store *store = plan->store;
    const struct sc_store_range *ranges = plan->ranges;
    uint64_t i = plan->range, row, left = ranges[i].row_count;
    const struct sc_store_extent_entry *extent =
        sc_store_range_find(store, plan->layer, &ranges[i], &plan->row);
    if (extent == NULL)
        return false;
    while (++i < plan->range_count) {
        if (ranges[i].row_count == 0)
            continue;
        if (range_is_passed(plan, i) ||
            sc_store_range_find(store, plan->layer, &ranges[i], &row) != extent ||
            row != plan->row + left)
            break;
        left += ranges[i].row_count;
    }
    plan->extent = extent;
    plan->left = left;
    plan->probes = sc_store_probes_of(extent);
    plan->row_copy = sc_store_row_copy_of(extent);
    plan->step = rows_even(plan, &plan->probes, left);
    plan->tagged = 0;
    return plan->step > 0;
}

static void cursor_advance(struct sc_store_selector_plan *plan, uint64_t count)
{
    plan->row += count;
    plan->left -= count;
    plan->tagged -= count < plan->tagged ? count : plan->tagged;
    plan->row_next += count;
    while (count > 0) {
        uint64_t left = plan->ranges[plan->range].row_count - plan->range_row;
        uint64_t now = left < count ? left : count;
        plan->range_row += now;
        count -= now;
        if (now == left) {
            plan->range++;
            plan->range_row = 0;
        }
    }
}

/* Sets the block's reads. Gaps up to gap_bytes are read through while frame_bytes have room. */
static void block_parts(struct sc_store_selector_block *block, uint64_t frame_bytes,
                        uint64_t gap_bytes)
{
    struct sc_store_selector_section *const sections[SC_STORE_SELECTOR_SECTIONS] = {
        &block->probes, &block->probe_tags, &block->tags};
    uint64_t room = frame_bytes, at = 0, begin = 0, end = 0;
    block->part_count = 0;
    for (uint32_t i = 0; i < SC_STORE_SELECTOR_SECTIONS; i++)
        if (sections[i]->start < sections[i]->end)
            room -= sc_store_up(sections[i]->end, PAGE) - sc_store_down(sections[i]->start, PAGE);
    for (uint32_t i = 0; i < SC_STORE_SELECTOR_SECTIONS; i++) {
        struct sc_store_selector_section *section = sections[i];
        uint64_t first = sc_store_down(section->start, PAGE);
        uint64_t last = sc_store_up(section->end, PAGE);
        if (section->start >= section->end)
            continue;
        uint64_t gap = first > end ? first - end : 0;
        bool is_near = block->part_count > 0 && first >= begin && gap <= gap_bytes && gap <= room &&
                       block->parts[block->part_count - 1].where.segment == section->segment;
        if (!is_near) {
            begin = first;
            end = 0;
            block->parts[block->part_count].where =
                (struct sc_store_where){section->segment, first};
            block->parts[block->part_count].at = at;
            block->part_count++;
        } else {
            room -= gap;
        }
        uint32_t p = block->part_count - 1;
        end = last > end ? last : end;
        block->parts[p].bytes = end - block->parts[p].where.offset;
        section->at = block->parts[p].at + section->start - block->parts[p].where.offset;
        at = block->parts[p].at + block->parts[p].bytes;
    }
}

static struct sc_store_selector_section section_of(struct sc_store_where layer, uint64_t offset,
                                                   uint64_t row_bytes, uint64_t row, uint64_t count)
{
    uint64_t start = layer.offset + offset;
    return (struct sc_store_selector_section){.start = start + row * row_bytes,
                                              .end = start + (row + count) * row_bytes,
                                              .segment = layer.segment};
}

/* Sets the sections of K's and V's blocks, from block->k_at and v_at on. */
static void quant_sections(struct sc_store_selector_plan *plan,
                           const struct sc_store_section *derived, uint64_t k_bytes,
                           uint64_t v_bytes)
{
    struct sc_store_selector_block *block = &plan->block;
    struct sc_store_where layer =
        sc_store_layer_where(derived->parts, derived->part_count, derived->stride, plan->layer);
    block->probes = section_of(layer, 0, 1, block->k_at, k_bytes);
    block->probe_tags = section_of(layer, 0, 1, block->v_at, v_bytes);
}

const struct sc_store_piece_entry *
sc_store_selector_piece_with(const struct sc_store *store,
                             const struct sc_store_selector_block *block, uint64_t *id,
                             uint64_t row)
{
    for (uint64_t end = *id + 2; *id < end; (*id)++) {
        const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, *id);
        if (piece != NULL && piece->extent == block->extent_id && row >= piece->extent_row &&
            row - piece->extent_row < piece->row_count)
            return piece;
    }
    return NULL;
}

const struct sc_store_section *sc_store_selector_quant_of(const struct sc_store *store,
                                                          const struct sc_store_range *range,
                                                          struct sc_store_blocks *ret_blocks)
{
    const struct sc_store_extent_entry *extent;
    const struct sc_store_piece_entry *piece = sc_store_quant_piece(store, range->piece, &extent);
    const struct sc_store_section *derived =
        atomic_load_explicit(&extent->codes, memory_order_acquire);
    *ret_blocks = (struct sc_store_blocks){0};
    if (derived == NULL || range->row_count == 0 || range->row_first < piece->skip)
        return NULL;
    sc_store_quant_blocks(store, extent, derived->copy, &derived->codec_shape, piece, ret_blocks);
    return sc_store_quant_fit(derived, ret_blocks) ? derived : NULL;
}

static const struct sc_store_section *derived_of(const struct sc_store_selector_plan *plan,
                                                 uint64_t range)
{
    struct sc_store_blocks blocks;
    if (plan->run != NULL)
        return sc_store_quant_range_of(plan->run, range)->codes;
    return sc_store_selector_quant_of(plan->store, &plan->ranges[range], &blocks);
}

/* Plans a part of one range's blocks if they exceed a read: the next bytes of K's block, then of
 * V's. The last part counts the range's rows. Returns false if one read is enough. */
static bool quant_plan_part(struct sc_store_selector_plan *plan,
                            const struct sc_store_section *derived)
{
    const struct sc_store_range *range = &plan->ranges[plan->range];
    struct sc_store_selector_block *block = &plan->block;
    const struct sc_store_extent_entry *same;
    struct sc_store_blocks blocks;
    sc_store_quant_blocks(plan->store, plan->extent, derived->copy, &derived->codec_shape,
                          sc_store_quant_piece(plan->store, range->piece, &same), &blocks);
    if (sc_store_selector_reads(plan->store, &blocks, plan->k_alone) == 1)
        return false;
    uint64_t k = blocks.k_bytes, all = k + (plan->k_alone ? 0 : blocks.v_bytes);
    uint64_t from = plan->quant_at, to = from + sc_store_quant_frame_bytes(plan->store);
    to = to < all ? to : all;
    block->k_at = blocks.k_at + (from < k ? from : k);
    block->v_at = blocks.v_at + (from > k ? from - k : 0);
    quant_sections(plan, derived, from < k ? (to < k ? to : k) - from : 0,
                   to > k ? to - (from > k ? from : k) : 0);
    block->range_first = plan->range;
    block->range_count = 1;
    block->row_count = to == all ? range->row_count : 0;
    plan->quant_at = to == all ? 0 : to;
    return true;
}

/* Plans the block at the cursor: ranges adjacent in one extent, all quantised or all not, that
 * fit. */
static void quant_plan(struct sc_store_selector_plan *plan)
{
    const struct sc_store *store = plan->store;
    const struct sc_store_range *ranges = plan->ranges;
    struct sc_store_selector_block *block = &plan->block;
    uint64_t first = plan->range, i = first, k_end = 0, v_end = 0, rows = 0;
    uint64_t most = sc_store_quant_frame_bytes(store);
    const struct sc_store_extent_entry *extent = plan->extent;
    const struct sc_store_section *derived = derived_of(plan, first);
    if (derived != NULL && quant_plan_part(plan, derived))
        return;
    for (; i < plan->range_count && rows < plan->tagged; i++) {
        struct sc_store_blocks blocks = {0};
        if (ranges[i].row_count > 0 && derived_of(plan, i) != derived)
            break; /* none, or of a follower that has read its log again */
        if (derived != NULL && ranges[i].row_count > 0) {
            const struct sc_store_extent_entry *same;
            sc_store_quant_blocks(store, extent, derived->copy, &derived->codec_shape,
                                  sc_store_quant_piece(store, ranges[i].piece, &same), &blocks);
        }
        uint64_t k_at = i == first ? blocks.k_at : block->k_at;
        uint64_t v_at = i == first ? blocks.v_at : block->v_at;
        uint64_t bytes = blocks.k_at + blocks.k_bytes - k_at;
        bytes += plan->k_alone ? 0 : blocks.v_at + blocks.v_bytes - v_at;
        if (i > first && ranges[i].row_count > 0 && bytes > most)
            break;
        block->k_at = k_at;
        block->v_at = v_at;
        k_end = blocks.k_at + blocks.k_bytes > k_end ? blocks.k_at + blocks.k_bytes : k_end;
        v_end = blocks.v_at + blocks.v_bytes > v_end ? blocks.v_at + blocks.v_bytes : v_end;
        rows += ranges[i].row_count;
    }
    block->row_count = rows;
    block->range_first = first;
    block->range_count = derived != NULL ? i - first : 0;
    if (derived != NULL)
        quant_sections(plan, derived, k_end - block->k_at, plan->k_alone ? 0 : v_end - block->v_at);
}

/* Plans the tags of as many ranges as one read takes, in a block of their own. Quantised wide rows
 * need a block per page of tags or less; narrow rows are one block, and tags are a second read
 * anyway. */
static void tags_plan(struct sc_store_selector_plan *plan)
{
    struct sc_store_selector_block *block = &plan->block;
    uint64_t most = sc_store_quant_frame_bytes(plan->store);
    uint64_t i = plan->range, rows = plan->ranges[i].row_count;
    while (++i < plan->range_count && rows < plan->left &&
           sc_store_selector_tags_bytes(plan->store, rows + plan->ranges[i].row_count) <= most)
        rows += plan->ranges[i].row_count;
    plan->tagged = rows;
    block->tag_count = rows;
    block->row_count = 0; /* counted with their quantised rows */
    block->range_first = plan->range;
    block->range_count = i - plan->range;
}

/* Returns at most `most` rows, up to a range's end if possible: host memory keeps whole pieces. */
static uint64_t rows_to_border(const struct sc_store_selector_plan *plan, uint64_t most)
{
    uint64_t rows = 0, left = plan->ranges[plan->range].row_count - plan->range_row;
    for (uint64_t i = plan->range + 1; rows + left <= most; i++) {
        rows += left;
        if (rows == most || i == plan->range_count)
            break;
        left = plan->ranges[i].row_count;
    }
    return rows > 0 ? rows : most;
}

/* Takes the block's pages after those of earlier blocks. Returns false if fewer were counted. (A
 * range dropped since makes blocks shorter, never longer.) */
static bool area_take(struct sc_store_selector_plan *plan)
{
    struct sc_store_selector_block *block = &plan->block;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < block->part_count; i++)
        bytes += block->parts[i].bytes;
    block->area = plan->area;
    if (bytes > plan->area_end - plan->area)
        return false;
    plan->area += bytes;
    return true;
}

/* Makes the next block, which may have nothing to read. */
static spec_status block_next(struct sc_store_selector_plan *plan)
{
    struct sc_store_selector_block *block = &plan->block;
    for (; plan->range < plan->range_count && plan->range_row == 0; plan->range++) {
        uint64_t rows = plan->ranges[plan->range].row_count;
        if (rows > 0 && !range_is_passed(plan, plan->range))
            break;
        plan->row_next += rows;
    }
    if (plan->range == plan->range_count)
        return SPEC_OK;
    if (plan->left == 0 && !run_open(plan))
        return SPEC_E_CORRUPT;
    const struct sc_store_row_copy *row_copy = &plan->row_copy;
    struct sc_store_where tags =
        sc_store_layer_where(row_copy->parts, row_copy->part_count, row_copy->stride, plan->layer);
    const struct sc_store_probes *probes = &plan->probes;
    uint64_t row = plan->row, count = plan->left, piece;
    count = count < plan->step ? count : plan->step;
    if (plan->host_slab != NULL && !plan->is_quant)
        count = rows_to_border(plan, count);
    piece = plan->ranges[plan->range].piece;
    *block = (struct sc_store_selector_block){
        .extent_id = sc_store_table_piece(&plan->store->table, piece)->extent,
        .piece = piece,
        .copy = probes->copy,
        .extent_row = row,
        .row_first = plan->row_next,
        .row_count = count,
        .tag_count = count,
        .probe_row_bytes = probes->row_bytes,
        .wanted_bytes = plan->wanted_bytes,
        .layer = plan->layer,
        .is_quant = plan->is_quant};
    if (plan->is_quant && plan->tagged == 0) {
        tags_plan(plan);
    } else if (plan->is_quant) {
        block->tag_count = 0;
        quant_plan(plan);
    }
    count = block->row_count;
    if (plan->wanted_bytes > 0) {
        struct sc_store_where layer =
            sc_store_layer_where(probes->parts, probes->part_count, probes->stride, plan->layer);
        block->probes = section_of(layer, probes->offset, probes->row_bytes, row, count);
        block->probe_tags = section_of(layer, probes->tag_offset, 8, row, count);
    }
    block->tags = section_of(tags, row_copy->tag_offset,
                             sc_store_selector_tags_bytes(plan->store, 1), row, block->tag_count);
    /* A gap between quantised blocks would stay in the load's memory. */
    block_parts(block, plan->store->limits.op_bytes + SC_STAGING_SLACK_BYTES,
                plan->is_quant ? 0 : GAP_BYTES);
    cursor_advance(plan, count);
    bool has_area = plan->is_quant && !plan->is_again;
    return !has_area || area_take(plan) ? SPEC_PENDING : SPEC_E_CORRUPT;
}

spec_status sc_store_selector_plan_next(struct sc_store_selector_plan *plan, uint64_t *ret_skipped)
{
    spec_status status;
    *ret_skipped = 0;
    while ((status = block_next(plan)) == SPEC_PENDING && plan->block.part_count == 0)
        *ret_skipped += plan->block.row_count;
    return status;
}

uint64_t sc_store_selector_plan_areas(const struct sc_store_selector_plan *plan, const uint8_t *run,
                                      uint64_t area)
{
    struct sc_store_selector_plan walked = *plan;
    walked.run = run;
    walked.area = area;
    walked.area_end = UINT64_MAX;
    while (block_next(&walked) == SPEC_PENDING)
        ;
    return walked.area;
}
