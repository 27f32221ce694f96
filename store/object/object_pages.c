/* object_pages: pages of objects: one run if possible, else the longest runs, in at most 16 parts.
 *
 *   segment 0  [a a a . . b b . c c c]     value of 3 pages: a run of 3 is taken first;
 *   segment 1  [d . . e . . . . f f .]     else new segments; else runs by length: 4, 2, 2 ...
 *
 * Invariants: bytes counted are <= disk_bytes after every take; a page has one owner.
 * Threads: any; the space lock.
 * Tests: tests/unit/store/test_object_log.c */
#include "store/internal.h"
#include "store/object/object.h"
#include "store/space/claims.h"

#define PAGE ((uint64_t)SC_IO_PAGE_BYTES)

/* Space lock held. A process that ended its storing has no map any more. */
static void pages_free(struct sc_store *store, const struct sc_store_object_part *parts,
                       uint32_t part_count)
{
    for (uint32_t i = 0; i < part_count && sc_store_keeps_space(store); i++) {
        sc_store_space_free(&store->disk.space, parts[i].segment, parts[i].page, parts[i].pages);
        store->disk.extent_bytes -= parts[i].pages * PAGE;
        sc_store_segment_leave(store, parts[i].segment);
    }
}

/* Space lock held. Segments that a put takes pages of stay claimed until it ends. */
static void users_add(struct sc_store *store, const struct sc_store_object_part *parts,
                      uint32_t part_count, int32_t by)
{
    for (uint32_t i = 0; i < part_count; i++)
        store->disk.segments[parts[i].segment].users += (uint32_t)by;
}

/* Space lock held. Takes a run of exactly `pages` in the segment. */
static bool run_take(struct sc_store *store, uint64_t index, uint64_t pages,
                     struct sc_store_object_part *part)
{
    uint64_t page;
    if (!sc_store_segment_takes(store, index) ||
        !sc_store_space_take(&store->disk.space, index, pages, &page))
        return false;
    *part = (struct sc_store_object_part){(uint32_t)index, (uint32_t)page, (uint32_t)pages};
    store->disk.extent_bytes += pages * PAGE;
    return true;
}

static bool whole_run_take(struct sc_store *store, uint64_t pages,
                           struct sc_store_object_part *part)
{
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        if (run_take(store, (store->disk.segment_begin + i) % store->disk.segment_count, pages,
                     part))
            return true;
    return false;
}

/* Space lock held. Returns the segment with the longest free run; segment_max if no page is free.
 * The map has upper bounds of the longest runs, and a scan makes one exact; so the segment with the
 * largest bound is scanned until its bound is exact. */
static uint64_t longest_run(struct sc_store *store, uint64_t *ret_pages)
{
    struct sc_store_space *space = &store->disk.space;
    for (;;) {
        uint64_t longest = store->disk.segment_max;
        *ret_pages = 0;
        for (uint64_t i = 0; i < store->disk.segment_count; i++) {
            const struct sc_store_space_segment *map = &space->segments[i];
            uint64_t run = map->run_max < map->free_pages ? map->run_max : map->free_pages;
            if (sc_store_segment_takes(store, i) && run > *ret_pages) {
                *ret_pages = run;
                longest = i;
            }
        }
        if (longest == store->disk.segment_max ||
            sc_store_space_run_max(space, longest) == *ret_pages)
            return longest;
    }
}

/* Space lock held. */
static bool parts_take(struct sc_store *store, uint64_t pages, struct sc_store_object_part *parts,
                       uint32_t *ret_part_count)
{
    uint64_t index, most = store->params.config->segment_bytes / PAGE;
    *ret_part_count = 0;
    while (pages > 0 && *ret_part_count < SC_STORE_OBJECT_PARTS_MAX) {
        struct sc_store_object_part *part = &parts[*ret_part_count];
        uint64_t some = pages < most ? pages : most, run;
        bool fits = whole_run_take(store, some, part);
        if (!fits && sc_store_segment_want(store, some, &index))
            fits = run_take(store, index, some, part);
        if (!fits && sc_store_segment_want(store, 1, &index)) /* the last one, which is shorter */
            continue;
        if (!fits && (index = longest_run(store, &run)) != store->disk.segment_max) {
            some = run < some ? run : some;
            fits = run_take(store, index, some, part);
        }
        if (!fits)
            break;
        pages -= some;
        ++*ret_part_count;
    }
    users_add(store, parts, *ret_part_count, 1);
    if (pages == 0) {
        store->disk.stuck_ns = 0;
        return true;
    }
    store->disk.claims_wanted = true; /* a member's: the next tick looks for more */
    users_add(store, parts, *ret_part_count, -1);
    pages_free(store, parts, *ret_part_count);
    *ret_part_count = 0;
    return false;
}

/* Space lock held. */
static uint64_t pages_most(struct sc_store *store)
{
    uint64_t room = sc_store_segment_room(store), whole = store->params.config->segment_bytes;
    uint64_t rest = room % whole;
    room -= rest < SC_STORE_SEGMENT_MIN ? rest : 0;
    return (store->disk.segment_bytes + room) / PAGE;
}

/* Takes a value's bytes from the write budget; returns false if it has less. */
static bool budget_take(struct sc_store *store, uint64_t bytes)
{
    if (store->day_budget.budget == 0)
        return true;
    uint64_t taken = sc_store_write_budget_take(store, bytes, bytes);
    if (taken < bytes)
        sc_store_write_budget_move(store, -(int64_t)taken);
    return taken >= bytes;
}

enum sc_store_object_lack sc_store_object_room_take(struct sc_store *store, uint64_t pages,
                                                    uint64_t log_bytes,
                                                    struct sc_store_object_part *parts,
                                                    uint32_t *ret_part_count)
{
    enum sc_store_object_lack lack = SC_STORE_LACK_NOTHING;
    uint64_t whole = store->params.config->segment_bytes / PAGE;
    pthread_mutex_lock(&store->disk.lock);
    if (pages > pages_most(store) || pages > whole * SC_STORE_OBJECT_PARTS_MAX)
        lack = SC_STORE_LACK_EVER;
    else if (sc_exec_now_ns(store->params.exec) < store->disk.retry_ns ||
             !budget_take(store, pages * PAGE))
        lack = SC_STORE_LACK_DEVICE;
    else if (!sc_store_log_take(store, log_bytes))
        lack = SC_STORE_LACK_LOG;
    else if (!parts_take(store, pages, parts, ret_part_count)) {
        store->share.reserved -= log_bytes;
        lack = SC_STORE_LACK_PAGES;
    }
    bool wakes = sc_store_maker_wake(store);
    pthread_mutex_unlock(&store->disk.lock);
    if (wakes)
        sc_exec_post(store->params.exec, &store->disk.maker, SC_IO_CLASS_WRITER);
    if (lack == SC_STORE_LACK_LOG || lack == SC_STORE_LACK_PAGES)
        sc_store_write_budget_move(store, -(int64_t)(pages * PAGE)); /* returned to the budget */
    return lack;
}

void sc_store_object_pages_free(struct sc_store *store, const struct sc_store_object_part *parts,
                                uint32_t part_count)
{
    pthread_mutex_lock(&store->disk.lock);
    pages_free(store, parts, part_count);
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_object_placed(struct sc_store *store, const struct sc_store_object_part *parts,
                            uint32_t part_count)
{
    pthread_mutex_lock(&store->disk.lock);
    users_add(store, parts, part_count, -1);
    pthread_mutex_unlock(&store->disk.lock);
}

bool sc_store_object_pages_keep(struct sc_store *store, const struct sc_store_object_part *parts,
                                uint32_t part_count)
{
    bool keeps = true;
    pthread_mutex_lock(&store->disk.lock);
    for (uint32_t i = 0; i < part_count && keeps; i++)
        keeps = sc_store_segment_takes(store, parts[i].segment);
    if (keeps)
        users_add(store, parts, part_count, 1);
    pthread_mutex_unlock(&store->disk.lock);
    return keeps;
}

bool sc_store_object_pages_take(struct sc_store *store, struct sc_store_object_part *parts,
                                uint32_t part_count)
{
    uint32_t taken = 0;
    pthread_mutex_lock(&store->disk.lock);
    while (taken < part_count && sc_store_space_take_at(&store->disk.space, parts[taken].segment,
                                                        parts[taken].page, parts[taken].pages)) {
        store->disk.extent_bytes += parts[taken].pages * PAGE;
        taken++;
    }
    if (taken < part_count)
        pages_free(store, parts, taken);
    pthread_mutex_unlock(&store->disk.lock);
    return taken == part_count;
}

bool sc_store_object_pages_claim(struct sc_store *store, struct sc_store_object_part *parts,
                                 uint32_t part_count)
{
    for (uint32_t i = 0; i < part_count; i++) {
        uint64_t index = sc_store_segment_find(store, parts[i].segment);
        if (index == store->disk.segment_max)
            return false;
        parts[i].segment = (uint32_t)index;
    }
    return sc_store_object_pages_take(store, parts, part_count);
}

uint64_t sc_store_object_pages_near(struct sc_store *store,
                                    const struct sc_store_object_part *parts, uint32_t part_count)
{
    uint64_t pages = 0;
    pthread_mutex_lock(&store->disk.lock);
    for (uint32_t i = 0; i < part_count; i++)
        if (sc_store_segment_may_take(store, parts[i].segment))
            pages += parts[i].pages;
    pthread_mutex_unlock(&store->disk.lock);
    return pages;
}

bool sc_store_object_may_place(struct sc_store *store)
{
    pthread_mutex_lock(&store->disk.lock);
    bool may = !sc_store_is_member(store) || sc_store_segment_room(store) >= SC_STORE_SEGMENT_MIN;
    for (uint64_t i = 0; !may && i < store->disk.segment_count; i++)
        may = sc_store_segment_may_take(store, i);
    pthread_mutex_unlock(&store->disk.lock);
    return may;
}

/* Returns the free pages of the segments that this process has claimed. */
static uint64_t pages_held(struct sc_store *store)
{
    uint64_t pages = 0;
    pthread_mutex_lock(&store->disk.lock);
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        if (sc_store_segment_takes(store, i))
            pages += store->disk.space.segments[i].free_pages;
    pthread_mutex_unlock(&store->disk.lock);
    return pages;
}

bool sc_store_object_room_claim(struct sc_store *store)
{
    if (!sc_store_is_member(store))
        return false;
    uint64_t before = pages_held(store);
    sc_store_claims_tick(store);
    return pages_held(store) > before;
}

void sc_store_object_room(struct sc_store *store, uint64_t *ret_free_pages, uint64_t *ret_pages)
{
    pthread_mutex_lock(&store->disk.lock);
    *ret_pages = pages_most(store);
    uint64_t used = store->disk.extent_bytes / PAGE;
    *ret_free_pages = used < *ret_pages ? *ret_pages - used : 0;
    pthread_mutex_unlock(&store->disk.lock);
}

/* ---- State of the store --------------------------------------------------------------------- */

struct sc_staging *sc_store_object_frames(const struct sc_store *store)
{
    return store->frames;
}

uint64_t sc_store_object_op_bytes(const struct sc_store *store)
{
    return store->limits.op_bytes;
}

void sc_store_object_sizes(struct sc_store *store, struct sc_store_object_sizes *ret_sizes)
{
    ret_sizes->log_bytes = sc_store_counted(&store->counts.log_bytes);
    ret_sizes->checkpoints = sc_store_counted(&store->counts.checkpoints);
    pthread_mutex_lock(&store->disk.lock);
    ret_sizes->disk_bytes_max = store->disk.bytes_max;
    ret_sizes->disk_bytes_used = SC_STORE_FIXED_BYTES + store->disk.segment_bytes +
                                 sc_store_up(ret_sizes->log_bytes, SC_IO_PAGE_BYTES);
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_object_write(struct sc_store *store, struct sc_store_write **writes, uint64_t count)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < count; i++)
        bytes += writes[i]->op.bytes;
    sc_store_count(&store->counts.write_ops, count);
    sc_store_write_budget_count(store, SC_STORE_WRITTEN_ROWS, bytes); /* taken with the pages */
    sc_store_tier_fail(sc_store_tier_write(store, writes, count));
}

void sc_store_object_written(struct sc_store *store)
{
    sc_store_busy_end(store);
}
