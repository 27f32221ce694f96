/* Sketches: one layer's probe rows and row tags of a match, read, verified and copied out by
 * whoever completes the reads.
 *
 *   run      adjacent rows of one extent
 *   block    rows of a run: their probe rows, the tags of those, the rows' tags; one frame. The
 *            first two may lie in the extent's annex
 *   layer    [....pppp....][....tttt....][....TTTT....]   up to three reads, or one over small gaps
 *   memory   [probe rows][zeros to 64][row tags]    a run of the store's pool, for this load alone
 *            of a load of codes: [a struct coded a range][K, V block of each][row tags]
 *
 * A load of codes has blocks of codes (store/codes.h) in the place of probe rows, and those of V in
 * that of their tags; whole ones, of as many ranges as a frame takes. A range without good codes is
 * marked so and fails nothing.
 *
 * A block is complete in itself, so blocks may come in any order and none waits for another. Who
 * completes its last read copies it out, gives its frame back and issues what follows; so a sketch
 * holds no frame that waits for its caller. A sketch that is waited for and gets no frame, because
 * readers whose rows nobody consumes hold them all, takes the store's spare one, and gives it back
 * when the block is copied: whoever waits progresses.
 *
 * A load takes its memory when it is begun and leaves it when it ends; a completion that copies and
 * a thread that reads keys hold it meanwhile, so it is nobody else's before they are through.
 *
 * Holds: a probe row that is copied out agrees with its tag (namespace, piece, layer, position);
 * after end nobody looks at the ranges, and late completions write nothing that a later load
 * reads.
 * Does not: verify row tags (rows fail by them), allocate after open, retry.
 * Threads: begin, demand, wait, end, close: the owner, one at a time; completions, the frame waiter
 * and on_ready: the executor's. One lock a sketch (rank 30), not held while verifying or copying;
 * the pool's (rank 36).
 * Tests: tests/unit/store/test_sketch.c, tests/fault/test_store_faults.c */
#include "store/codes.h"
#include "store/plan.h"

#include "store/tag.h"

#include <string.h>

#define PAGE         ((uint64_t)SC_IO_PAGE_BYTES)
#define LINE         64u /* tags begin on a cache line */
#define SLOTS        16u
#define SECTIONS     3u
#define FLIGHT_BYTES (16ull << 20)
#define GAP_BYTES    (64ull << 10) /* read through rather than starting another operation */

struct section {
    uint64_t start, end; /* of the segment file */
    uint64_t at;         /* of start, in the frame */
    uint32_t segment;
};

/* All that a completion needs: the ranges may be gone by then. */
struct block {
    uint64_t extent_id, piece; /* of the first row */
    uint64_t extent_row, row_first, row_count;
    uint64_t probe_row_bytes, wanted_bytes; /* of each probe row: as it lies there; of it */
    uint32_t layer, part_count;
    uint64_t range_first, range_count;       /* of codes; 0, 0: it has none, or is of probe rows */
    uint64_t k_at, v_at;                     /* of the first range, in a layer of codes */
    struct section probes, probe_tags, tags; /* the first two are empty when nothing is wanted; of
                                              * codes, K's and V's blocks */
    struct {
        uint64_t offset, bytes, at; /* pages of the segment file, and of the frame */
        uint32_t segment;
    } parts[SECTIONS];
};

struct slot {
    struct sc_io_op ops[SECTIONS];
    struct sc_store_sketch *sketch;
    struct slot *next; /* free list */
    uint8_t *frame;
    uint64_t generation;
    uint32_t left; /* operations that have not completed; 0: free, or being copied */
    bool is_spare, has_right;
    spec_status status;
    int32_t sys_errno;
    struct block block;
};

struct coded { /* of a range, in memory */
    uint64_t piece;
    uint64_t k_at, v_at;                /* its blocks, behind the run's start */
    const struct sc_store_annex *codes; /* as they were when the load began; NULL: it has none */
    uint32_t row;                       /* of the coded rows, that the range begins with */
    bool is_good, has_v;
};

struct memory {       /* of a load */
    uint8_t *run;     /* of the pool; the keys; NULL: the load is of no rows, or none is begun */
    uint64_t tags_at; /* bytes behind the run's start */
};

struct sc_store_sketch {
    /* Set by open, constant after. */
    struct sc_store *store;
    struct slot *slots; /* [SLOTS] uninitialised from slots_used on */
    uint64_t rows_max;
    uint32_t flight_max;

    /* Guarded by lock (rank 30). */
    pthread_mutex_t lock;
    struct slot *free_slots;
    uint32_t slots_used, flying;
    uint32_t task_count; /* ready tasks that are posted or run */
    uint64_t generation;
    struct memory memory;
    bool is_active, is_planned, is_codes, k_alone;
    bool has_block;  /* block is planned and has no slot yet */
    bool is_armed;   /* the waiter waits, or its task will run */
    bool is_awaited; /* somebody sleeps on word, or is about to */
    bool notifies;   /* on_ready is due */
    uint32_t lane, layer;
    const struct sc_store_range *ranges;
    uint64_t range_count, wanted_bytes, row_count, rows_done;
    struct {
        uint64_t range, range_row, row_next; /* the next row */
        const struct sc_store_extent_entry *extent;
        struct sc_store_probes probes;
        uint64_t row, left, step; /* of the run: its next row, rows that are left, a block's rows */
    } cursor;
    struct block block;
    struct sc_frames_waiter waiter;
    struct sc_store_starved starved;
    struct sc_task ready;
    void (*on_ready)(struct sc_store_sketch *sketch, void *user);
    void *user;
    struct sc_store_read_cost cost;

    _Atomic int32_t state; /* spec_status */
    _Atomic uint32_t word;
};

/* ---- Memory --------------------------------------------------------------------------------- */

static uint64_t tags_at(uint64_t rows, uint64_t probe_row_bytes)
{
    return sc_store_up(rows * probe_row_bytes, LINE);
}

uint64_t sc_store_sketch_bytes(uint64_t row_count, uint64_t probe_row_bytes, uint32_t layout)
{
    uint64_t tags_bytes = row_count * (layout == SC_STORE_SPLIT ? 16 : 8);
    return sc_store_up(tags_at(row_count, probe_row_bytes) + tags_bytes, SC_STORE_POOL_BLOCK_BYTES);
}

/* false: the pool has no such run. */
static bool memory_take(struct sc_store *store, uint64_t rows, uint64_t probe_row_bytes,
                        struct memory *ret_memory)
{
    uint64_t bytes = sc_store_sketch_bytes(rows, probe_row_bytes, store->shape.layout);
    struct memory memory = {.tags_at = tags_at(rows, probe_row_bytes)};
    if (rows > 0)
        memory.run = sc_store_pool_take(&store->pool, bytes);
    *ret_memory = memory;
    return rows == 0 || memory.run != NULL;
}

/* ---- Codes: memory -------------------------------------------------------------------------- */

static struct coded *coded_of(uint8_t *run, uint64_t range)
{
    return &((struct coded *)(void *)run)[range];
}

/* Of a piece whose state is such that its extent and rows are constant. */
static const struct sc_store_piece_entry *piece_of(const struct sc_store *store, uint64_t id,
                                                   const struct sc_store_extent_entry **ret_extent)
{
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    *ret_extent = sc_store_table_extent(&store->table, piece->extent);
    return piece;
}

/* What codes the range has, if they fit a frame; NULL: none. */
static const struct sc_store_annex *codes_find(const struct sc_store_sketch *sketch,
                                               const struct sc_store_range *range,
                                               struct sc_store_blocks *ret_blocks)
{
    const struct sc_store *store = sketch->store;
    const struct sc_store_extent_entry *extent;
    const struct sc_store_piece_entry *piece = piece_of(store, range->piece, &extent);
    const struct sc_store_annex *annex = atomic_load_explicit(&extent->codes, memory_order_acquire);
    *ret_blocks = (struct sc_store_blocks){0};
    if (annex == NULL || range->row_count == 0 || range->row_first < piece->skip)
        return NULL;
    sc_store_codes_blocks(store, extent, &annex->code_shape, piece, ret_blocks);
    return sc_store_codes_fit(store, annex, ret_blocks, range->row_count) ? annex : NULL;
}

/* Lays the ranges' codes out behind `run`, or (NULL) counts: bytes up to the tags. What would end
 * behind `most`, because codes came meanwhile, is left out. */
static uint64_t codes_lay(const struct sc_store_sketch *sketch, const struct sc_store_range *ranges,
                          uint64_t range_count, bool k_alone, uint8_t *run, uint64_t most)
{
    uint64_t at = sc_store_up(range_count * sizeof(struct coded), LINE);
    for (uint64_t i = 0; i < range_count; i++) {
        struct sc_store_blocks blocks;
        struct coded coded = {.piece = ranges[i].piece,
                              .codes = codes_find(sketch, &ranges[i], &blocks)};
        uint64_t bytes = sc_store_up(blocks.k_bytes, LINE);
        bytes += k_alone ? 0 : sc_store_up(blocks.v_bytes, LINE);
        if (bytes > most - at)
            coded.codes = NULL;
        if (coded.codes != NULL) {
            const struct sc_store_extent_entry *extent;
            coded.row = ranges[i].row_first - piece_of(sketch->store, coded.piece, &extent)->skip;
            coded.k_at = at;
            coded.v_at = at + sc_store_up(blocks.k_bytes, LINE);
            at += bytes;
            coded.has_v = !k_alone;
        }
        if (run != NULL)
            *coded_of(run, i) = coded;
    }
    return at;
}

bool sc_store_slab_of(const uint8_t *keys, uint64_t range, struct sc_store_slab *ret_slab)
{
    const struct coded *coded = &((const struct coded *)(const void *)keys)[range];
    if (!coded->is_good)
        return false;
    const struct sc_store_code_shape *shape = &coded->codes->code_shape;
    *ret_slab = (struct sc_store_slab){.bits_k = shape->bits_k};
    ret_slab->k_scales = keys + coded->k_at + SC_STORE_BLOCK_HEAD_BYTES;
    ret_slab->k_codes = ret_slab->k_scales + shape->scale_bytes + coded->row * shape->k_row_bytes;
    if (!coded->has_v)
        return true;
    ret_slab->bits_v = shape->bits_v;
    ret_slab->v_scales = keys + coded->v_at + SC_STORE_BLOCK_HEAD_BYTES;
    ret_slab->v_codes = ret_slab->v_scales + shape->scale_bytes + coded->row * shape->v_row_bytes;
    return true;
}

/* ---- Planning ------------------------------------------------------------------------------- */

static uint64_t tags_bytes_of(const struct sc_store *store, uint64_t rows)
{
    return rows * store->shape.tags_per_row * 8;
}

/* Rows of a run that a block takes: as many as fit a frame with every section read apart, each
 * rounded out to pages, in blocks of one size. */
static uint64_t rows_even(const struct sc_store_sketch *sketch,
                          const struct sc_store_probes *probes, uint64_t rows)
{
    uint64_t each = tags_bytes_of(sketch->store, 1);
    if (sketch->wanted_bytes > 0)
        each += probes->row_bytes + 8;
    uint64_t most = (sketch->store->op_bytes + SC_FRAMES_SLACK_BYTES - 2 * SECTIONS * PAGE) / each;
    if (most == 0)
        return 0;
    uint64_t blocks = (rows + most - 1) / most;
    return blocks > 0 ? (rows + blocks - 1) / blocks : 1;
}

/* Lock held. Opens a run at the cursor and stretches it over the ranges that go on in it. */
static bool run_open(struct sc_store_sketch *sketch)
{
    const struct sc_store *store = sketch->store;
    const struct sc_store_range *ranges = sketch->ranges;
    uint64_t i = sketch->cursor.range, row, left = ranges[i].row_count;
    const struct sc_store_extent_entry *extent =
        sc_store_range_find(store, sketch->layer, &ranges[i], &sketch->cursor.row);
    if (extent == NULL)
        return false;
    while (++i < sketch->range_count) {
        if (ranges[i].row_count == 0)
            continue;
        if (sc_store_range_find(store, sketch->layer, &ranges[i], &row) != extent ||
            row != sketch->cursor.row + left ||
            ranges[i].is_coarse != ranges[sketch->cursor.range].is_coarse)
            break;
        left += ranges[i].row_count;
    }
    sketch->cursor.extent = extent;
    sketch->cursor.left = left;
    sketch->cursor.probes = sc_store_probes_of(extent);
    sketch->cursor.step = rows_even(sketch, &sketch->cursor.probes, left);
    return sketch->cursor.step > 0;
}

static void cursor_advance(struct sc_store_sketch *sketch, uint64_t count)
{
    sketch->cursor.row += count;
    sketch->cursor.left -= count;
    sketch->cursor.row_next += count;
    while (count > 0) {
        uint64_t left = sketch->ranges[sketch->cursor.range].row_count - sketch->cursor.range_row;
        uint64_t now = left < count ? left : count;
        sketch->cursor.range_row += now;
        count -= now;
        if (now == left) {
            sketch->cursor.range++;
            sketch->cursor.range_row = 0;
        }
    }
}

/* The sections as reads of whole pages, small gaps read through while the frame has room. */
static void block_parts(struct block *block, uint64_t frame_bytes)
{
    struct section *const sections[SECTIONS] = {&block->probes, &block->probe_tags, &block->tags};
    uint64_t room = frame_bytes, at = 0, begin = 0, end = 0;
    block->part_count = 0;
    for (uint32_t i = 0; i < SECTIONS; i++)
        if (sections[i]->start < sections[i]->end)
            room -= sc_store_up(sections[i]->end, PAGE) - sc_store_down(sections[i]->start, PAGE);
    for (uint32_t i = 0; i < SECTIONS; i++) {
        struct section *section = sections[i];
        uint64_t first = sc_store_down(section->start, PAGE);
        uint64_t last = sc_store_up(section->end, PAGE);
        if (section->start >= section->end)
            continue;
        uint64_t gap = first > end ? first - end : 0;
        bool is_near = block->part_count > 0 && first >= begin && gap <= GAP_BYTES && gap <= room &&
                       block->parts[block->part_count - 1].segment == section->segment;
        if (!is_near) {
            begin = first;
            end = 0;
            block->parts[block->part_count].segment = section->segment;
            block->parts[block->part_count].offset = first;
            block->parts[block->part_count].at = at;
            block->part_count++;
        } else {
            room -= gap;
        }
        uint32_t p = block->part_count - 1;
        end = last > end ? last : end;
        block->parts[p].bytes = end - block->parts[p].offset;
        section->at = block->parts[p].at + section->start - block->parts[p].offset;
        at = block->parts[p].at + block->parts[p].bytes;
    }
}

/* Rows of a section that begins `offset` behind the start of each layer. */
static struct section section_of(const struct sc_store_part *part, uint64_t stride, uint32_t layer,
                                 uint64_t offset, uint64_t row_bytes, uint64_t row, uint64_t count)
{
    uint64_t start = part->offset + (layer - part->layer_first) * stride + offset;
    return (struct section){.start = start + row * row_bytes,
                            .end = start + (row + count) * row_bytes,
                            .segment = part->segment};
}

/* Lock held. The block at the cursor, of codes: ranges as long as they follow each other in one
 * extent, have codes all or have none all, and fit. */
static void codes_plan(struct sc_store_sketch *sketch)
{
    const struct sc_store *store = sketch->store;
    const struct sc_store_range *ranges = sketch->ranges;
    struct block *block = &sketch->block;
    uint64_t first = sketch->cursor.range, i = first, k_end = 0, v_end = 0, rows = 0;
    uint64_t most = store->op_bytes + SC_FRAMES_SLACK_BYTES - 2 * SECTIONS * PAGE;
    const struct sc_store_extent_entry *extent = sketch->cursor.extent;
    const struct sc_store_annex *annex = coded_of(sketch->memory.run, first)->codes;
    for (; i < sketch->range_count && rows < sketch->cursor.left; i++) {
        struct sc_store_blocks blocks = {0};
        if (ranges[i].row_count > 0 && coded_of(sketch->memory.run, i)->codes != annex)
            break; /* none, or those of a follower that has read its log anew */
        if (annex != NULL && ranges[i].row_count > 0) {
            const struct sc_store_extent_entry *same;
            sc_store_codes_blocks(store, extent, &annex->code_shape,
                                  piece_of(store, ranges[i].piece, &same), &blocks);
        }
        uint64_t k_at = i == first ? blocks.k_at : block->k_at;
        uint64_t v_at = i == first ? blocks.v_at : block->v_at;
        uint64_t bytes = blocks.k_at + blocks.k_bytes - k_at;
        bytes += sketch->k_alone ? 0 : blocks.v_at + blocks.v_bytes - v_at;
        bytes += tags_bytes_of(store, rows + ranges[i].row_count);
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
    block->range_count = annex != NULL ? i - first : 0;
    if (annex == NULL)
        return;
    const struct sc_store_part *part =
        sc_store_part_of(annex->parts, annex->part_count, sketch->layer);
    block->probes =
        section_of(part, annex->stride, sketch->layer, 0, 1, block->k_at, k_end - block->k_at);
    if (!sketch->k_alone)
        block->probe_tags =
            section_of(part, annex->stride, sketch->layer, 0, 1, block->v_at, v_end - block->v_at);
}

/* Lock held. The next block, maybe one of which nothing is to be read; false: all is planned, or
 * the load failed. */
static bool block_next(struct sc_store_sketch *sketch)
{
    struct block *block = &sketch->block;
    while (sketch->cursor.range < sketch->range_count &&
           sketch->ranges[sketch->cursor.range].row_count == sketch->cursor.range_row)
        sketch->cursor.range++; /* empty ones */
    if (sketch->cursor.range == sketch->range_count)
        return false;
    if (sketch->cursor.left == 0 && !run_open(sketch)) {
        atomic_store(&sketch->state, SPEC_E_CORRUPT); /* dropped since begin */
        return false;
    }
    const struct sc_store_extent_entry *extent = sketch->cursor.extent;
    const struct sc_store_part *part =
        sc_store_part_of(extent->parts, extent->part_count, sketch->layer);
    const struct sc_store_probes *probes = &sketch->cursor.probes;
    uint64_t row = sketch->cursor.row, count = sketch->cursor.left, piece;
    count = count < sketch->cursor.step ? count : sketch->cursor.step;
    piece = sketch->ranges[sketch->cursor.range].piece;
    *block =
        (struct block){.extent_id = sc_store_table_piece(&sketch->store->table, piece)->extent,
                       .piece = piece,
                       .extent_row = row,
                       .row_first = sketch->cursor.row_next,
                       .row_count = count,
                       .probe_row_bytes = probes->row_bytes,
                       .wanted_bytes = sketch->wanted_bytes,
                       .layer = sketch->layer,
                       .tags = section_of(part, extent->stride, sketch->layer, extent->tag_offset,
                                          tags_bytes_of(sketch->store, 1), row, count)};
    if (sketch->is_codes) {
        codes_plan(sketch);
        count = block->row_count;
        block->tags = section_of(part, extent->stride, sketch->layer, extent->tag_offset,
                                 tags_bytes_of(sketch->store, 1), row, count);
    }
    if (sketch->wanted_bytes > 0) {
        part = sc_store_part_of(probes->parts, probes->part_count, sketch->layer);
        block->probes = section_of(part, probes->stride, sketch->layer, probes->offset,
                                   probes->row_bytes, row, count);
        block->probe_tags =
            section_of(part, probes->stride, sketch->layer, probes->tag_offset, 8, row, count);
    }
    if (sketch->ranges[sketch->cursor.range].is_coarse != 0)
        block->tags.end = block->tags.start;
    block_parts(block, sketch->store->op_bytes + SC_FRAMES_SLACK_BYTES);
    cursor_advance(sketch, count);
    return true;
}

/* Lock held. The next block that has something to read; false: there is none. */
static bool block_plan(struct sc_store_sketch *sketch)
{
    while (block_next(sketch)) {
        if (sketch->block.part_count > 0)
            return true;
        sketch->rows_done += sketch->block.row_count; /* coarse rows without codes */
    }
    return false;
}

/* ---- Blocks in flight ----------------------------------------------------------------------- */

struct batch {
    struct sc_io_op *ops[SLOTS * SECTIONS];
    uint64_t count;
};

static bool is_wanted(const struct sc_store_sketch *sketch, const struct slot *slot)
{
    return sketch->is_active && slot->generation == sketch->generation &&
           atomic_load(&sketch->state) == SPEC_PENDING;
}

/* Lock held. */
static void slot_free(struct sc_store_sketch *sketch, struct slot *slot)
{
    struct sc_frames *frames = sketch->store->frames;
    if (slot->is_spare)
        sc_store_spare_put(sketch->store);
    else if (slot->has_right)
        sc_frames_put(frames, slot->frame != NULL ? slot->frame : sc_frames_pick(frames));
    slot->frame = NULL;
    slot->is_spare = slot->has_right = false;
    slot->next = sketch->free_slots;
    sketch->free_slots = slot;
    sketch->flying--;
}

static bool on_read_start(struct sc_io_op *op)
{
    struct slot *slot = op->user;
    struct sc_store_sketch *sketch = slot->sketch;
    pthread_mutex_lock(&sketch->lock);
    bool starts = is_wanted(sketch, slot);
    if (starts && slot->frame == NULL)
        slot->frame = sc_frames_pick(sketch->store->frames);
    if (starts)
        op->buffer = slot->frame + slot->block.parts[op - slot->ops].at;
    pthread_mutex_unlock(&sketch->lock);
    return starts;
}

static void on_read_done(struct sc_io_op *op);

/* Lock held. One is free. */
static struct slot *slot_take(struct sc_store_sketch *sketch)
{
    struct slot *slot = sketch->free_slots;
    if (slot != NULL) {
        sketch->free_slots = slot->next;
        return slot;
    }
    slot = &sketch->slots[sketch->slots_used++];
    *slot = (struct slot){.sketch = sketch};
    return slot;
}

/* Lock held. Gives the planned block a slot and the frame. */
static void slot_start(struct sc_store_sketch *sketch, uint8_t *frame, bool is_spare,
                       struct batch *batch)
{
    struct sc_store *store = sketch->store;
    struct slot *slot = slot_take(sketch);
    struct block *block = &slot->block;
    *block = sketch->block;
    sketch->has_block = false;
    slot->frame = is_spare ? frame : NULL;
    slot->is_spare = is_spare;
    slot->has_right = !is_spare;
    if (slot->has_right)
        sc_frames_lay(store->frames, frame);
    slot->generation = sketch->generation;
    slot->status = SPEC_OK;
    slot->sys_errno = 0;
    slot->left = block->part_count;
    sketch->flying++;
    sketch->cost.wanted_bytes += block->row_count * (block->wanted_bytes > 0 ? 8 : 0);
    sketch->cost.wanted_bytes +=
        block->row_count * block->wanted_bytes + (block->tags.end - block->tags.start);
    if (block->range_count > 0)
        sketch->cost.wanted_bytes += block->probes.end - block->probes.start +
                                     (block->probe_tags.end - block->probe_tags.start);
    for (uint32_t i = 0; i < block->part_count; i++) {
        slot->ops[i] = (struct sc_io_op){.file = store->segments[block->parts[i].segment].file,
                                         .offset = block->parts[i].offset,
                                         .bytes = block->parts[i].bytes,
                                         .kind = SC_IO_READ,
                                         .lane = sketch->lane,
                                         .done = on_read_done,
                                         .user = slot,
                                         .start = on_read_start};
        batch->ops[batch->count++] = &slot->ops[i];
        sketch->cost.read_bytes += block->parts[i].bytes;
        sketch->cost.op_count++;
        sc_store_count(&store->read_bytes, block->parts[i].bytes);
        sc_store_count(&store->read_ops, 1);
    }
}

/* Lock held. Starts what slots, frames and the in-flight target allow, and submits it. given: a
 * frame that was handed over, or NULL. */
static void pump(struct sc_store_sketch *sketch, uint8_t *given)
{
    struct sc_store *store = sketch->store;
    struct batch batch = {.count = 0};
    while (sketch->is_active && atomic_load(&sketch->state) == SPEC_PENDING &&
           sketch->flying < sketch->flight_max) {
        if (!sketch->has_block) {
            sketch->is_planned = sketch->is_planned || !block_plan(sketch);
            if (sketch->is_planned)
                break;
            sketch->has_block = true;
        }
        uint8_t *frame = given;
        given = NULL;
        if (frame == NULL && sketch->is_armed)
            break;
        if (frame == NULL)
            frame = sc_frames_take_or_wait(store->frames, sketch->lane, &sketch->waiter);
        if (frame == NULL) {
            sketch->is_armed = true;
            sc_store_count(&store->stage_full, 1);
            break;
        }
        slot_start(sketch, frame, false, &batch);
    }
    if (given != NULL)
        sc_frames_put(store->frames, given);
    if (batch.count > 0)
        sc_io_submit(store->io, batch.ops, batch.count);
}

/* Lock held. */
static void sketch_signal(struct sc_store_sketch *sketch)
{
    atomic_fetch_add(&sketch->word, 1);
    if (sketch->is_awaited)
        sc_exec_wake(sketch->store->params.exec, &sketch->word);
}

/* Lock held. */
static void waiter_cancel(struct sc_store_sketch *sketch)
{
    if (sketch->is_armed && sc_frames_wait_cancel(sketch->store->frames, &sketch->waiter))
        sketch->is_armed = false;
}

/* Lock held. The load is there, or it failed: whoever asked is told, once. */
static void load_check(struct sc_store_sketch *sketch)
{
    if (!sketch->is_active)
        return;
    if (atomic_load(&sketch->state) == SPEC_PENDING && sketch->rows_done == sketch->row_count)
        atomic_store(&sketch->state, SPEC_OK);
    if (atomic_load(&sketch->state) == SPEC_PENDING)
        return;
    waiter_cancel(sketch);
    if (sketch->notifies || sketch->on_ready == NULL)
        return;
    sketch->notifies = true;
    sketch->task_count++;
    sc_exec_post(sketch->store->params.exec, &sketch->ready, (enum sc_exec_lane)sketch->lane);
}

/* ---- Copying out ---------------------------------------------------------------------------- */

/* The piece from `id` on that has the row; NULL: none near. Pieces of adjacent rows have ids in a
 * row, as their commit gave them. */
static const struct sc_store_piece_entry *
piece_with(const struct sc_store *store, const struct block *block, uint64_t *id, uint64_t row)
{
    for (uint64_t end = *id + 2; *id < end; (*id)++) {
        const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, *id);
        if (piece != NULL && piece->extent == block->extent_id && row >= piece->extent_row &&
            row - piece->extent_row < piece->row_count)
            return piece;
    }
    return NULL;
}

/* No lock held: of the block and of tables only. False: a probe row fails. */
static bool probes_take(const struct sc_store *store, const struct slot *slot, uint8_t *keys)
{
    const struct block *block = &slot->block;
    uint64_t bytes = block->probe_row_bytes, wanted = block->wanted_bytes;
    const uint8_t *rows = slot->frame + block->probes.at;
    const uint64_t *tags = (const uint64_t *)(const void *)(slot->frame + block->probe_tags.at);
    uint8_t *dst = keys + block->row_first * wanted;
    uint64_t id = block->piece;
    for (uint64_t done = 0; done < block->row_count;) {
        uint64_t row = block->extent_row + done, left = block->row_count - done;
        const struct sc_store_piece_entry *piece = piece_with(store, block, &id, row);
        if (piece == NULL)
            return false;
        uint64_t skip = row - piece->extent_row, count = piece->row_count - skip;
        uint64_t bite = SC_STORE_BITE_BYTES / bytes > 0 ? SC_STORE_BITE_BYTES / bytes : 1;
        count = count < left ? count : left;
        count = count < bite ? count : bite;
        uint64_t base =
            sc_store_tag_base(store->shape.digest, piece->hash, block->layer, SC_STORE_PART_PROBE);
        if (sc_store_tag_verify(base, piece->first_position + skip, rows + done * bytes, bytes,
                                bytes, count, tags + done, 1) != count) {
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

/* One block of codes into memory; false: it is not what it should be, or says that it has none. */
static bool codes_copy(struct sc_store *store, const struct coded *coded, uint32_t layer,
                       uint32_t part, const struct sc_store_blocks *blocks,
                       const uint8_t *piece_hash, const uint8_t *src, uint8_t *dst)
{
    uint64_t bytes = part == SC_STORE_PART_K ? blocks->k_bytes : blocks->v_bytes;
    bool is_bad;
    bool holds = sc_store_block_holds(store, &coded->codes->code_shape, piece_hash, layer, part,
                                      blocks, src, &is_bad);
    if (is_bad) {
        sc_store_count(&store->bad_blocks, 1);
        SC_LOG(store->params.log, 1,
               "piece %" PRIu64 " layer %" PRIu32 " fails verification of its codes", coded->piece,
               layer);
    }
    if (holds)
        memcpy(dst, src, bytes);
    return holds;
}

/* Codes of the block's ranges. The memory is held. */
static void codes_take(struct sc_store *store, const struct slot *slot, uint8_t *run)
{
    const struct block *block = &slot->block;
    for (uint64_t i = block->range_first; i < block->range_first + block->range_count; i++) {
        struct coded *coded = coded_of(run, i);
        const struct sc_store_extent_entry *extent;
        const struct sc_store_piece_entry *piece = piece_of(store, coded->piece, &extent);
        struct sc_store_blocks blocks;
        if (coded->codes == NULL)
            continue; /* of no rows */
        sc_store_codes_blocks(store, extent, &coded->codes->code_shape, piece, &blocks);
        coded->is_good =
            codes_copy(store, coded, block->layer, SC_STORE_PART_K, &blocks, piece->hash,
                       slot->frame + block->probes.at + (blocks.k_at - block->k_at),
                       run + coded->k_at) &&
            (!coded->has_v ||
             codes_copy(store, coded, block->layer, SC_STORE_PART_V, &blocks, piece->hash,
                        slot->frame + block->probe_tags.at + (blocks.v_at - block->v_at),
                        run + coded->v_at));
    }
}

/* The same. The memory is held. */
static spec_status block_take(struct sc_store *store, const struct slot *slot,
                              const struct memory *memory)
{
    const struct block *block = &slot->block;
    if (slot->status != SPEC_OK) {
        sc_store_count(&store->io_errors, 1);
        SC_LOG(store->params.log, 1,
               "piece %" PRIu64 " layer %" PRIu32 " cannot be read (its sketch), errno %" PRId32,
               block->piece, block->layer, slot->sys_errno);
        return SPEC_E_IO;
    }
    if (block->tags.end > block->tags.start)
        memcpy(memory->run + memory->tags_at + tags_bytes_of(store, block->row_first),
               slot->frame + block->tags.at, tags_bytes_of(store, block->row_count));
    codes_take(store, slot, memory->run);
    if (block->wanted_bytes == 0 || probes_take(store, slot, memory->run))
        return SPEC_OK;
    sc_store_count(&store->corrupt_rows, 1);
    return SPEC_E_CORRUPT;
}

/* Lock held, given up meanwhile. The last read of the slot has ended. */
static void slot_finish(struct sc_store_sketch *sketch, struct slot *slot)
{
    if (is_wanted(sketch, slot)) {
        struct sc_store_pool *pool = &sketch->store->pool;
        const struct memory memory = sketch->memory;
        sc_store_pool_hold(pool, memory.run); /* the load may end meanwhile */
        pthread_mutex_unlock(&sketch->lock);
        spec_status status = block_take(sketch->store, slot, &memory);
        pthread_mutex_lock(&sketch->lock);
        sc_store_pool_leave(pool, memory.run);
        if (is_wanted(sketch, slot) && status != SPEC_OK)
            atomic_store(&sketch->state, status);
        else if (is_wanted(sketch, slot))
            sketch->rows_done += slot->block.row_count;
    }
    slot_free(sketch, slot);
}

static void on_read_done(struct sc_io_op *op)
{
    struct slot *slot = op->user;
    struct sc_store_sketch *sketch = slot->sketch;
    pthread_mutex_lock(&sketch->lock);
    if (op->status != SPEC_OK && slot->status == SPEC_OK) {
        slot->status = op->status;
        slot->sys_errno = op->sys_errno;
    }
    if (--slot->left == 0) {
        slot_finish(sketch, slot);
        pump(sketch, NULL);
        load_check(sketch);
        sketch_signal(sketch);
    }
    pthread_mutex_unlock(&sketch->lock);
}

static void on_frame(struct sc_task *task)
{
    struct sc_frames_waiter *waiter =
        (struct sc_frames_waiter *)((char *)task - offsetof(struct sc_frames_waiter, task));
    struct sc_store_sketch *sketch =
        (struct sc_store_sketch *)((char *)waiter - offsetof(struct sc_store_sketch, waiter));
    pthread_mutex_lock(&sketch->lock);
    uint8_t *frame = waiter->frame;
    waiter->frame = NULL;
    sketch->is_armed = false;
    pump(sketch, frame);
    load_check(sketch);
    sketch_signal(sketch);
    pthread_mutex_unlock(&sketch->lock);
}

static void ready_step(struct sc_task *task)
{
    struct sc_store_sketch *sketch =
        (struct sc_store_sketch *)((char *)task - offsetof(struct sc_store_sketch, ready));
    pthread_mutex_lock(&sketch->lock);
    void (*on_ready)(struct sc_store_sketch * sketch, void *user) = NULL;
    void *user = sketch->user;
    if (sketch->is_active && sketch->notifies) {
        on_ready = sketch->on_ready;
        sketch->on_ready = NULL; /* once */
    }
    pthread_mutex_unlock(&sketch->lock);
    if (on_ready != NULL)
        on_ready(sketch, user);
    pthread_mutex_lock(&sketch->lock);
    sketch->task_count--;
    sketch_signal(sketch);
    pthread_mutex_unlock(&sketch->lock);
}

/* ---- Open, close, begin, end ---------------------------------------------------------------- */

static void sketch_free(struct sc_store_sketch *sketch)
{
    struct sc_alloc *alloc = sketch->store->params.alloc;
    sc_alloc_free(alloc, sketch->slots);
    sc_alloc_free(alloc, sketch);
}

spec_status sc_store_sketch_open(struct sc_store *store, uint64_t rows_max,
                                 struct sc_store_sketch **ret_sketch, struct spec_error *reterr)
{
    struct sc_store_sketch *sketch = sc_alloc_zero(store->params.alloc, sizeof(*sketch));
    if (sketch == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a sketch");
    sketch->store = store;
    sketch->rows_max = rows_max;
    sketch->slots = sc_alloc(store->params.alloc, SLOTS * sizeof(*sketch->slots));
    if (sketch->slots == NULL) {
        sketch_free(sketch);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a sketch of %" PRIu64 " rows", rows_max);
    }
    uint64_t flight = (FLIGHT_BYTES + store->op_bytes - 1) / store->op_bytes;
    sketch->flight_max = flight < SLOTS ? (uint32_t)flight : SLOTS;
    sketch->waiter.task.step = on_frame;
    sketch->ready.step = ready_step;
    sketch->starved.word = &sketch->word;
    atomic_store(&sketch->state, SPEC_E_DROPPED);
    pthread_mutex_init(&sketch->lock, NULL);
    *ret_sketch = sketch;
    return SPEC_OK;
}

void sc_store_sketch_close(struct sc_store_sketch *sketch)
{
    if (sketch == NULL)
        return;
    struct sc_store *store = sketch->store;
    sc_store_sketch_end(sketch);
    pthread_mutex_lock(&sketch->lock);
    while (sketch->flying > 0 || sketch->is_armed || sketch->task_count > 0) {
        sketch->is_awaited = true;
        uint32_t word = atomic_load(&sketch->word);
        pthread_mutex_unlock(&sketch->lock);
        bool changed = sc_exec_wait(store->params.exec, &sketch->word, word, SC_EXEC_FOREVER);
        pthread_mutex_lock(&sketch->lock);
        if (!changed)
            break; /* the seeded loop has nothing left to run: asserted below */
    }
    bool is_quiet = sketch->flying == 0 && !sketch->is_armed && sketch->task_count == 0;
    pthread_mutex_unlock(&sketch->lock);
    SC_ASSERT(store->params.poison, is_quiet);
    pthread_mutex_destroy(&sketch->lock);
    sketch_free(sketch);
}

/* Lock held. What flies completes by itself, and what is copied now is copied to the end. */
static void load_end(struct sc_store_sketch *sketch)
{
    sketch->generation++;
    sketch->is_active = sketch->has_block = sketch->notifies = false;
    sketch->on_ready = NULL;
    atomic_store(&sketch->state, SPEC_E_DROPPED);
    waiter_cancel(sketch);
    if (sketch->task_count > 0 && sc_exec_cancel(sketch->store->params.exec, &sketch->ready))
        sketch->task_count--;
    if (sketch->memory.run != NULL)
        sc_store_pool_leave(&sketch->store->pool, sketch->memory.run);
    sketch->memory = (struct memory){0};
}

void sc_store_sketch_end(struct sc_store_sketch *sketch)
{
    pthread_mutex_lock(&sketch->lock);
    load_end(sketch);
    pthread_mutex_unlock(&sketch->lock);
}

/* Rows of the ranges; UINT64_MAX: one has no probe rows that are long enough, or is not live. */
static uint64_t rows_count(const struct sc_store_sketch *sketch, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           uint64_t probe_row_bytes)
{
    uint64_t rows = 0, row;
    for (uint64_t i = 0; i < range_count; i++) {
        if (ranges[i].row_count == 0)
            continue;
        const struct sc_store_extent_entry *extent =
            sc_store_range_find(sketch->store, layer, &ranges[i], &row);
        if (extent == NULL || sc_store_probes_of(extent).row_bytes < probe_row_bytes)
            return UINT64_MAX;
        rows += ranges[i].row_count;
    }
    return rows;
}

/* What a load is of. */
struct load {
    uint32_t layer;
    enum sc_exec_lane lane;
    const struct sc_store_range *ranges;
    uint64_t range_count, rows, wanted_bytes;
    bool is_codes, k_alone;
    void (*on_ready)(struct sc_store_sketch *sketch, void *user);
    void *user;
};

/* Lock held. Its memory is taken. */
static void load_start(struct sc_store_sketch *sketch, const struct load *load)
{
    sketch->is_active = true;
    sketch->is_planned = false;
    sketch->lane = load->lane;
    sketch->layer = load->layer;
    sketch->ranges = load->ranges;
    sketch->range_count = load->range_count;
    sketch->wanted_bytes = load->wanted_bytes;
    sketch->is_codes = load->is_codes;
    sketch->k_alone = load->k_alone;
    sketch->row_count = load->rows;
    sketch->rows_done = 0;
    memset(&sketch->cursor, 0, sizeof(sketch->cursor));
    sketch->cost = (struct sc_store_read_cost){0};
    sketch->on_ready = load->on_ready;
    sketch->user = load->user;
    atomic_store(&sketch->state, SPEC_PENDING);
    pump(sketch, NULL);
    load_check(sketch);
}

bool sc_store_sketch_begin(struct sc_store_sketch *sketch, uint32_t layer,
                           const struct sc_store_range *ranges, uint64_t range_count,
                           uint64_t probe_row_bytes, enum sc_exec_lane lane,
                           void (*on_ready)(struct sc_store_sketch *sketch, void *user), void *user)
{
    struct sc_store *store = sketch->store;
    struct load load = {.layer = layer,
                        .lane = lane,
                        .ranges = ranges,
                        .range_count = range_count,
                        .wanted_bytes = probe_row_bytes,
                        .on_ready = on_ready,
                        .user = user};
    load.rows = rows_count(sketch, layer, ranges, range_count, probe_row_bytes);
    pthread_mutex_lock(&sketch->lock);
    load_end(sketch);
    bool begins = load.rows <= sketch->rows_max &&
                  probe_row_bytes <= store->params.probe_row_bytes &&
                  memory_take(store, load.rows, probe_row_bytes, &sketch->memory);
    if (begins)
        load_start(sketch, &load);
    pthread_mutex_unlock(&sketch->lock);
    return begins;
}

bool sc_store_sketch_begin_codes(struct sc_store_sketch *sketch, uint32_t layer,
                                 const struct sc_store_range *ranges, uint64_t range_count,
                                 bool k_alone, enum sc_exec_lane lane,
                                 void (*on_ready)(struct sc_store_sketch *sketch, void *user),
                                 void *user)
{
    struct sc_store *store = sketch->store;
    struct load load = {.layer = layer,
                        .lane = lane,
                        .ranges = ranges,
                        .range_count = range_count,
                        .is_codes = true,
                        .k_alone = k_alone,
                        .on_ready = on_ready,
                        .user = user};
    load.rows = rows_count(sketch, layer, ranges, range_count, 0);
    pthread_mutex_lock(&sketch->lock);
    load_end(sketch);
    bool begins = load.rows > 0 && load.rows <= sketch->rows_max;
    if (begins) {
        struct memory memory = {0};
        memory.tags_at =
            sc_store_up(codes_lay(sketch, ranges, range_count, k_alone, NULL, UINT64_MAX), LINE);
        memory.run =
            sc_store_pool_take(&store->pool, memory.tags_at + tags_bytes_of(store, load.rows));
        begins = memory.run != NULL;
        sketch->memory = memory;
    }
    if (begins) {
        (void)codes_lay(sketch, ranges, range_count, k_alone, sketch->memory.run,
                        sketch->memory.tags_at);
        load_start(sketch, &load);
    }
    pthread_mutex_unlock(&sketch->lock);
    return begins;
}

void sc_store_sketch_demand(struct sc_store_sketch *sketch)
{
    struct sc_io_op *ops[SLOTS * SECTIONS];
    uint64_t count = 0;
    pthread_mutex_lock(&sketch->lock);
    bool was_lower = sketch->is_active && sketch->lane != SC_LANE_DEMAND;
    sketch->lane = SC_LANE_DEMAND;
    for (uint32_t i = 0; was_lower && i < sketch->slots_used; i++) {
        struct slot *slot = &sketch->slots[i];
        for (uint32_t j = 0; slot->left > 0 && j < slot->block.part_count; j++)
            if (slot->generation == sketch->generation)
                ops[count++] = &slot->ops[j];
    }
    sc_io_raise(sketch->store->io, ops, count, SC_LANE_DEMAND); /* none ends under the lock */
    if (sketch->is_armed)
        sc_frames_wait_raise(sketch->store->frames, &sketch->waiter, SC_LANE_DEMAND);
    pthread_mutex_unlock(&sketch->lock);
}

/* ---- Waiting and looking -------------------------------------------------------------------- */

spec_status sc_store_sketch_state(const struct sc_store_sketch *sketch)
{
    return atomic_load(&sketch->state);
}

/* Lock held. Nothing flies and no frame comes: takes the spare one, if nobody has it. */
static void starved_start(struct sc_store_sketch *sketch)
{
    struct sc_store *store = sketch->store;
    struct batch batch = {.count = 0};
    if (!sketch->is_armed || !sketch->has_block || sketch->flying > 0 ||
        !sc_store_spare_take(store, &sketch->starved))
        return;
    if (sc_frames_wait_cancel(store->frames, &sketch->waiter)) {
        sketch->is_armed = false;
        slot_start(sketch, store->spare_frame, true, &batch);
        sc_io_submit(store->io, batch.ops, batch.count);
    } else {
        sc_store_spare_put(store); /* a frame was handed over after all */
    }
}

spec_status sc_store_sketch_wait(struct sc_store_sketch *sketch, uint64_t deadline_ns)
{
    struct sc_exec *exec = sketch->store->params.exec;
    bool in_time = true;
    pthread_mutex_lock(&sketch->lock);
    while (atomic_load(&sketch->state) == SPEC_PENDING && in_time) {
        uint32_t word = atomic_load(&sketch->word); /* before the spare frame's wake */
        sketch->is_awaited = true;
        starved_start(sketch);
        pthread_mutex_unlock(&sketch->lock);
        uint64_t start_ns = sc_exec_now_ns(exec);
        in_time = sc_exec_wait(exec, &sketch->word, word, deadline_ns);
        uint64_t wait_ns = sc_exec_now_ns(exec) - start_ns;
        sc_store_starved_leave(sketch->store, &sketch->starved);
        pthread_mutex_lock(&sketch->lock);
        sketch->is_awaited = false;
        sketch->cost.wait_ns += wait_ns;
    }
    spec_status status = atomic_load(&sketch->state);
    pthread_mutex_unlock(&sketch->lock);
    return status == SPEC_PENDING ? SPEC_E_TIMEOUT : status;
}

const uint8_t *sc_store_sketch_keys(const struct sc_store_sketch *sketch)
{
    return sketch->memory.run;
}

const uint64_t *sc_store_sketch_tags(const struct sc_store_sketch *sketch)
{
    const struct memory *memory = &sketch->memory;
    return (const uint64_t *)(const void *)(memory->run != NULL ? memory->run + memory->tags_at
                                                                : NULL);
}

const uint8_t *sc_store_sketch_keys_hold(struct sc_store_sketch *sketch)
{
    pthread_mutex_lock(&sketch->lock);
    bool is_there = atomic_load(&sketch->state) == SPEC_OK;
    const uint8_t *keys = is_there ? sketch->memory.run : NULL;
    if (keys != NULL)
        sc_store_pool_hold(&sketch->store->pool, keys);
    pthread_mutex_unlock(&sketch->lock);
    return keys;
}

void sc_store_sketch_keys_leave(struct sc_store_sketch *sketch, const uint8_t *keys)
{
    sc_store_pool_leave(&sketch->store->pool, keys);
}

void sc_store_sketch_cost(const struct sc_store_sketch *sketch, struct sc_store_read_cost *ret)
{
    struct sc_store_sketch *mine = (struct sc_store_sketch *)(uintptr_t)sketch;
    pthread_mutex_lock(&mine->lock);
    *ret = mine->cost;
    pthread_mutex_unlock(&mine->lock);
}

uint64_t sc_store_sketch_bytes_used(const struct sc_store *store)
{
    return sc_store_counted(&store->pool.used_bytes);
}
