/* fetch_selectors: reads selector keys of pieces into host memory. Contract:
 * store/read/fetch_selectors.h. */
#include "store/read/fetch_selectors.h"

#include "store/read/scan_plan.h"
#include "store/space/tier.h"

#define PAGE       ((uint64_t)SC_IO_PAGE_BYTES)
#define PIECE_MORE 256u /* bytes of a piece beyond its slab's: its entry, rounding */

struct sc_store_selector_plan
sc_store_selector_fetch_plan(const struct sc_store *store,
                             const struct sc_store_match_fetch_wants *wants, uint32_t layer)
{
    return (struct sc_store_selector_plan){
        .store = store,
        .wanted_bytes = wants->is_quant ? 0 : wants->probe_row_bytes,
        .layer = layer,
        .is_quant = wants->is_quant,
        .k_alone = wants->k_alone,
    };
}

/* Returns an upper bound of the piece's memory: the slab twice (the read, and the copy of probe
 * rows or of blocks in parts), and pages of quantised reads. */
static uint64_t bytes_of(const struct sc_store_selector_plan *plan,
                         const struct sc_host_slab_wish *wish)
{
    uint64_t bite = sc_store_quant_frame_bytes(plan->store);
    uint64_t reads = plan->is_quant ? wish->bytes / bite + 1 : 0;
    return 2 * wish->bytes + PIECE_MORE + reads * SC_STORE_SELECTOR_SECTIONS * 2 * PAGE;
}

/* Returns the bytes beside the pieces: rounding of areas, and a frame. */
static uint64_t bytes_beside(const struct sc_store_selector_plan *plan)
{
    return 2 * PAGE + (plan->is_quant ? 0 : plan->store->limits.op_bytes + SC_STAGING_SLACK_BYTES);
}

uint64_t sc_store_selector_fetch_bytes(const struct sc_store *store,
                                       const struct sc_store_match_fetch_wants *wants,
                                       const struct sc_store_range *whole)
{
    struct sc_store_selector_plan plan = sc_store_selector_fetch_plan(store, wants, 0);
    struct sc_host_slab_wish wish;
    plan.ranges = whole;
    return sc_store_selector_wish(&plan, 0, &wish) ? bytes_beside(&plan) + bytes_of(&plan, &wish)
                                                   : 0;
}

void sc_store_selector_fetch_begin(struct sc_store_selector_fetch *fetch,
                                   const struct sc_store_match_fetch_wants *wants, uint32_t layer,
                                   uint8_t *bytes, uint64_t bytes_max)
{
    fetch->bytes = bytes;
    fetch->bytes_max = bytes_max;
    fetch->plan = sc_store_selector_fetch_plan(fetch->store, wants, layer);
    fetch->plan.ranges = fetch->ranges;
    fetch->bytes_wished = bytes_beside(&fetch->plan);
    fetch->count = fetch->block_count = 0;
    fetch->is_laid = fetch->is_planned = fetch->has_block = false;
}

bool sc_store_selector_fetch_wish(struct sc_store_selector_fetch *fetch,
                                  const struct sc_store_range *whole,
                                  struct sc_host_slab_wish *ret_wish)
{
    fetch->ranges[fetch->count] = *whole;
    return sc_store_selector_wish(&fetch->plan, fetch->count, ret_wish);
}

bool sc_store_selector_fetch_fits(const struct sc_store_selector_fetch *fetch,
                                  const struct sc_host_slab_wish *wish)
{
    return fetch->count == 0 ||
           fetch->bytes_wished + bytes_of(&fetch->plan, wish) <= fetch->bytes_max;
}

void sc_store_selector_fetch_add(struct sc_store_selector_fetch *fetch,
                                 const struct sc_host_slab_wish *wish)
{
    fetch->bytes_wished += bytes_of(&fetch->plan, wish);
    fetch->count++;
}

spec_status sc_store_selector_fetch_end(struct sc_store_selector_fetch *fetch, uint32_t i)
{
    bool is_there = fetch->fills[i].slab == NULL;
    sc_host_slab_end(fetch->store, &fetch->fills[i], false);
    return is_there || sc_store_range_is_there(fetch->store, &fetch->ranges[i]) ? SPEC_OK
                                                                                : SPEC_E_CORRUPT;
}

static void on_read(struct sc_io_op *op)
{
    struct sc_store_selector_fetch *fetch = op->user;
    if (atomic_fetch_sub(&fetch->flying, 1) == 1)
        sc_exec_post(fetch->store->params.exec, fetch->task, SC_IO_CLASS_BACKGROUND);
}

/* Returns false if it does not fit, because quantised rows were added since begin. */
static bool memory_lay(struct sc_store_selector_fetch *fetch)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < fetch->count; i++)
        rows += fetch->ranges[i].row_count;
    fetch->plan.range_count = fetch->count;
    uint64_t bytes = sc_store_selector_memory_lay(fetch->store, &fetch->plan, rows, &fetch->memory);
    fetch->memory.run = fetch->bytes;
    fetch->memory.fills = fetch->fills;
    fetch->memory.fill_count = fetch->count;
    fetch->frames_at = sc_store_up(bytes, PAGE);
    if (bytes > fetch->bytes_max ||
        !sc_store_selector_memory_begin(fetch->store, &fetch->plan, &fetch->memory))
        return false;
    fetch->plan.run = fetch->memory.run;
    fetch->plan.area = fetch->memory.area;
    fetch->plan.area_end = fetch->memory.area_end;
    return true;
}

static void blocks_take(struct sc_store_selector_fetch *fetch)
{
    for (uint32_t b = 0; b < fetch->block_count; b++) {
        const struct sc_store_selector_fetch_block *at = &fetch->blocks[b];
        const struct sc_store_selector_block *block = &at->block;
        const struct sc_io_op *worst = &at->reads[0];
        for (uint32_t i = 1; i < block->part_count && worst->status == SPEC_OK; i++)
            worst = &at->reads[i];
        (void)sc_store_selector_memory_came(fetch->store, block, at->frame, worst->status,
                                            worst->sys_errno, &fetch->memory);
    }
    fetch->block_count = 0;
}

/* Gives the planned block memory from *at on. Returns false if there is none yet. */
static bool block_place(struct sc_store_selector_fetch *fetch, uint64_t *at,
                        struct sc_io_op **ret_reads, uint32_t *count)
{
    struct sc_store_selector_fetch_block *to = &fetch->blocks[fetch->block_count];
    const struct sc_store_selector_block *block = &fetch->plan.block;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < block->part_count; i++)
        bytes += block->parts[i].bytes;
    if (!fetch->plan.is_quant && *at + bytes > fetch->bytes_max)
        return false;
    to->block = *block;
    to->frame = fetch->bytes + (fetch->plan.is_quant ? block->area : *at);
    *at += fetch->plan.is_quant ? 0 : bytes;
    for (uint32_t i = 0; i < block->part_count; i++) {
        to->reads[i] = (struct sc_io_op){.buffer = to->frame + block->parts[i].at,
                                         .io_class = SC_IO_CLASS_BACKGROUND,
                                         .done = on_read,
                                         .user = fetch};
        sc_store_tier_aim(fetch->store, &to->reads[i], block->parts[i].where,
                          block->parts[i].bytes);
        ret_reads[(*count)++] = &to->reads[i];
    }
    fetch->block_count++;
    return true;
}

bool sc_store_selector_fetch_next(struct sc_store_selector_fetch *fetch)
{
    struct sc_io_op *reads[SC_STORE_SELECTOR_FETCH_BLOCKS * SC_STORE_SELECTOR_SECTIONS];
    struct sc_store *store = fetch->store;
    uint64_t skipped;
    uint32_t count = 0;
    blocks_take(fetch);
    if (!fetch->is_laid && !fetch->is_planned) {
        fetch->is_laid = memory_lay(fetch);
        fetch->is_planned = !fetch->is_laid;
    }
    uint64_t at = fetch->frames_at;
    while (!fetch->is_planned && fetch->block_count < SC_STORE_SELECTOR_FETCH_BLOCKS) {
        if (!fetch->has_block)
            fetch->has_block = sc_store_selector_plan_next(&fetch->plan, &skipped) == SPEC_PENDING;
        fetch->is_planned = !fetch->has_block;
        if (!fetch->has_block || !block_place(fetch, &at, reads, &count))
            break;
        fetch->has_block = false;
    }
    if (count == 0)
        return false; /* all was read, or the rest has no room */
    atomic_store(&fetch->flying, count);
    sc_store_tier_read(store, reads, count);
    return true;
}
