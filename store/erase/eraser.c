/* eraser: overwrites erased data with zeros, a part per step. Contract: store/erase.h.
 *
 *   MARK   extents that an intent covers are void; wait until none of them is being written
 *   LOG    a log without them replaces the old one; zeros over the old one
 *   ZERO   segment by segment: [read 1 MiB -> write zeros if it is not zeros] ... sync; again until
 *          a pass writes nothing: the device returns the zeros
 *   LATE   the same for pages of passes that were open under an erased salt, and still are
 *   DONE   the intents are removed
 *
 * The map of pages to overwrite (free ones, and those of erased extents) is made once. No write
 * begins while an intent exists (extent.c), so none of these pages gets an owner.
 *
 * Invariants: other pages are never written. A page is erased when it was read back as zeros after
 * a sync. After an error every page is written again: pages of a failed sync may read as zeros
 * without being zeros on the device.
 * Limits: holds no lock while it reads or writes; frees no space; ends no request.
 * Threads: one at a time, the executor's; blocks on the device. */
#include "store/erase/eraser.h"
#include "store/internal.h"
#include "store/replay/checkpoint.h"
#include "store/write/extent.h"

#include <string.h>

#define PAGE       ((uint64_t)SC_IO_PAGE_BYTES)
#define PART_BYTES (UINT64_C(1) << 20) /* read and written at once */
#define STEP_BYTES (UINT64_C(8) << 20) /* checked by one step */
#define PASSES_MAX 4u                  /* over one segment */

enum phase { MARK, ZERO, LATE };

struct sc_store_eraser {
    enum phase phase;
    uint64_t segment, page; /* of the next step */
    uint64_t passes;        /* over this segment */
    bool wrote;             /* in this pass */
    bool is_doubted;        /* a step failed: pages that read as zeros may not be zeros */
    uint8_t *bytes, *zeros; /* [PART_BYTES] */
    struct sc_store_space map;
    uint64_t count; /* intents being carried out */
    struct sc_store_erasure list[SC_STORE_ERASURES_MAX];
};

/* ---- Marking --------------------------------------------------------------------------------- */

static void extents_mark(struct sc_store *store)
{
    const struct sc_store_table *table = &store->table;
    pthread_mutex_lock(&store->log.lock);
    for (uint64_t id = 1; (id = sc_store_table_extent_from(table, id)) < table->extent_next; id++) {
        struct sc_store_extent_entry *extent = sc_store_table_extent(table, id);
        if (extent->row_count != 0 && !atomic_load(&extent->is_erased) &&
            sc_store_erases(store, &extent->salt))
            atomic_store(&extent->is_erased, true);
    }
    pthread_mutex_unlock(&store->log.lock);
}

/* Marks extents of passes. Those written in the background have no salt, and end soon. */
static void writing_mark(struct sc_store *store)
{
    pthread_mutex_lock(&store->disk.lock);
    for (uint64_t i = 0; i < store->writing.extent_max; i++) {
        struct sc_store_extent *extent = &store->writing.extents[i];
        if (extent->is_begun && !extent->is_background && sc_store_erases(store, &extent->salt))
            atomic_store(&extent->is_erased, true);
    }
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_erase_mark(struct sc_store *store,
                         void (*on_gone)(uint64_t piece, uint64_t mark, void *user), void *user)
{
    if (sc_store_erasures(store) == 0)
        return;
    if (sc_store_can_store(store))
        writing_mark(store); /* first: later commits are in the table */
    extents_mark(store);
    sc_store_pieces_erase(store, on_gone, user);
}

/* Returns true if nothing is written in the background, and no write of an erased pass is in
 * flight. */
static bool is_settled(struct sc_store *store)
{
    bool settled = true;
    pthread_mutex_lock(&store->disk.lock);
    for (uint64_t i = 0; i < store->writing.extent_max && settled; i++) {
        const struct sc_store_extent *extent = &store->writing.extents[i];
        settled = !extent->is_begun || (!extent->is_background &&
                                        (!extent->is_erased || atomic_load(&extent->pending) <= 1));
    }
    pthread_mutex_unlock(&store->disk.lock);
    return settled;
}

/* ---- What is overwritten --------------------------------------------------------------------- */

/* Frees in the map the pages of passes that are open under an erased salt; returns false if there
 * are none. Space lock held. */
static bool writing_free(struct sc_store *store, struct sc_store_space *map)
{
    bool found = false;
    for (uint64_t i = 0; i < store->writing.extent_max; i++) {
        const struct sc_store_extent *extent = &store->writing.extents[i];
        if (!extent->is_begun || !extent->is_erased)
            continue;
        for (uint32_t part = 0; part < extent->part_count; part++)
            sc_store_space_free(map, extent->parts[part].segment, extent->parts[part].offset / PAGE,
                                sc_store_part_pages(&extent->parts[part], extent->place.stride));
        found = true;
    }
    return found;
}

static void left_count(struct sc_store *store, const struct sc_store_space *map)
{
    uint64_t pages = 0;
    for (uint64_t i = 0; i < map->segment_max; i++)
        pages += map->segments[i].free_pages;
    atomic_store(&store->erasures.left_bytes, pages * PAGE);
}

/* late: only pages of open passes. *ret_any false: nothing to overwrite. */
static spec_status map_make(struct sc_store *store, struct sc_store_eraser *eraser, bool late,
                            bool *ret_any, struct spec_error *reterr)
{
    sc_store_space_done(&eraser->map);
    pthread_mutex_lock(&store->disk.lock);
    bool fits = late ? sc_store_space_copy(&store->disk.space, true, &eraser->map)
                     : sc_store_erased_map(store, &eraser->map);
    bool any = fits && writing_free(store, &eraser->map);
    pthread_mutex_unlock(&store->disk.lock);
    *ret_any = any || !late;
    eraser->segment = eraser->page = eraser->passes = 0;
    eraser->wrote = false;
    if (!fits)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a map of what is erased");
    left_count(store, &eraser->map);
    return SPEC_OK;
}

/* Returns a segment's file; NULL if nothing was ever written to it. */
static struct sc_io_file *segment_file(struct sc_store *store, uint64_t index)
{
    pthread_mutex_lock(&store->disk.lock);
    const struct sc_store_segment *segment = &store->disk.segments[index];
    struct sc_io_file *file = segment->state == SC_STORE_SEGMENT_READY ? segment->file : NULL;
    pthread_mutex_unlock(&store->disk.lock);
    return file;
}

/* Returns false while a process that was killed may still write into the segment. */
static bool segment_is_ours(struct sc_store *store, uint64_t index)
{
    pthread_mutex_lock(&store->disk.lock);
    bool is_ours = sc_store_segment_takes(store, index);
    pthread_mutex_unlock(&store->disk.lock);
    return is_ours;
}

/* ---- Overwriting ----------------------------------------------------------------------------- */

static spec_status part_zero(struct sc_store *store, struct sc_store_eraser *eraser,
                             struct sc_io_file *file, uint64_t at, uint64_t bytes,
                             struct spec_error *reterr)
{
    bool writes = eraser->is_doubted && eraser->passes == 0;
    spec_status status = SPEC_OK;
    if (!writes)
        status = sc_io_file_pread(store->io, file, eraser->bytes, bytes, at, reterr);
    writes = writes || (status == SPEC_OK && memcmp(eraser->bytes, eraser->zeros, bytes) != 0);
    if (status != SPEC_OK || !writes)
        return status;
    eraser->wrote = true;
    sc_store_count(&store->erasures.zeroed_bytes, bytes);
    return sc_io_file_pwrite(store->io, file, eraser->zeros, bytes, at, reterr);
}

static spec_status pass_end(struct sc_store *store, struct sc_store_eraser *eraser,
                            struct sc_io_file *file, struct spec_error *reterr)
{
    bool again = eraser->wrote;
    /* Also if all was zeros: their writer may have crashed before its sync. */
    spec_status status =
        again || eraser->passes == 0 ? sc_io_file_sync(store->io, file, reterr) : SPEC_OK;
    eraser->page = 0;
    eraser->wrote = false;
    if (status == SPEC_OK && again && ++eraser->passes == PASSES_MAX)
        status = sc_fail(reterr, SPEC_E_IO,
                         "%s: segment %" PRIu64 " is not zeros after %u times of writing them",
                         store->dir, eraser->segment, PASSES_MAX);
    if (status != SPEC_OK || again)
        return status;
    eraser->segment++;
    eraser->passes = 0;
    return SPEC_OK;
}

/* Does a step of ZERO or LATE. *ret_ended: all segments are zeros. */
static spec_status segments_zero(struct sc_store *store, struct sc_store_eraser *eraser,
                                 bool *ret_ended, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint64_t done = 0; status == SPEC_OK && done < STEP_BYTES;) {
        uint64_t page, pages = 0;
        struct sc_io_file *file = NULL;
        *ret_ended = eraser->segment >= eraser->map.segment_max;
        if (*ret_ended)
            break;
        if (eraser->map.segments[eraser->segment].free_pages > 0)
            file = segment_file(store, eraser->segment);
        if (file == NULL) {
            eraser->segment++;
            continue;
        }
        if (!segment_is_ours(store, eraser->segment))
            return sc_fail(reterr, SPEC_PENDING, "another process writes into segment %" PRIu64,
                           eraser->segment);
        pages = sc_store_space_run(&eraser->map, eraser->segment, eraser->page, PART_BYTES / PAGE,
                                   &page);
        if (pages > 0) {
            status = part_zero(store, eraser, file, page * PAGE, pages * PAGE, reterr);
            eraser->page = page + pages;
            done += pages * PAGE;
        } else {
            status = pass_end(store, eraser, file, reterr);
        }
    }
    return status;
}

/* ---- The steps ------------------------------------------------------------------------------- */

static void eraser_free(struct sc_store *store, struct sc_store_eraser *eraser)
{
    struct sc_alloc *alloc = store->params.alloc;
    if (eraser == NULL)
        return;
    sc_store_space_done(&eraser->map);
    sc_alloc_free(alloc, eraser->zeros);
    sc_alloc_free(alloc, eraser->bytes);
    sc_alloc_free(alloc, eraser);
}

void sc_store_eraser_close(struct sc_store *store)
{
    eraser_free(store, store->eraser);
    store->eraser = NULL;
}

static spec_status eraser_make(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    struct sc_store_eraser *eraser = store->eraser;
    if (eraser != NULL)
        return SPEC_OK;
    eraser = sc_alloc_zero(alloc, sizeof(*eraser));
    if (eraser != NULL) {
        eraser->bytes = sc_alloc_aligned(alloc, PART_BYTES, PAGE);
        eraser->zeros = sc_alloc_aligned(alloc, PART_BYTES, PAGE);
    }
    if (eraser == NULL || eraser->bytes == NULL || eraser->zeros == NULL) {
        eraser_free(store, eraser);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "buffers of an erasure");
    }
    memset(eraser->zeros, 0, PART_BYTES);
    store->eraser = eraser;
    return SPEC_OK;
}

/* Takes the intents known now; later ones wait for the next run. */
static void list_take(struct sc_store *store, struct sc_store_eraser *eraser)
{
    pthread_mutex_lock(&store->erasures.lock);
    eraser->count = atomic_load(&store->erasures.count);
    memcpy(eraser->list, store->erasures.list, eraser->count * sizeof(*eraser->list));
    pthread_mutex_unlock(&store->erasures.lock);
}

static spec_status log_erase(struct sc_store *store, struct sc_store_eraser *eraser,
                             struct spec_error *reterr)
{
    bool any;
    spec_status status = sc_store_checkpoint_erase(store, reterr);
    if (status == SPEC_OK)
        status = map_make(store, eraser, false, &any, reterr);
    if (status == SPEC_OK)
        eraser->phase = ZERO;
    return status;
}

/* All pages are zeros. Looks once more for pages that host calls wrote since, of open passes. */
static spec_status phase_next(struct sc_store *store, struct sc_store_eraser *eraser,
                              bool *ret_more, struct spec_error *reterr)
{
    bool any = false;
    spec_status status = SPEC_OK;
    if (eraser->phase == ZERO)
        status = map_make(store, eraser, true, &any, reterr);
    *ret_more = any;
    eraser->phase = LATE;
    if (status != SPEC_OK || any)
        return status;
    status = sc_store_erasures_done(store, eraser->list, eraser->count, reterr);
    if (status != SPEC_OK)
        return status;
    atomic_store(&store->erasures.left_bytes, 0);
    sc_store_eraser_close(store);
    return SPEC_OK;
}

static spec_status step(struct sc_store *store, bool *ret_more, struct spec_error *reterr)
{
    bool is_ended = false;
    spec_status status = eraser_make(store, reterr);
    struct sc_store_eraser *eraser = store->eraser;
    if (status == SPEC_OK && eraser->phase == MARK) {
        *ret_more = is_settled(store);
        if (!*ret_more)
            return SPEC_PENDING;
        list_take(store, eraser);
        return log_erase(store, eraser, reterr);
    }
    if (status == SPEC_OK)
        status = segments_zero(store, eraser, &is_ended, reterr);
    *ret_more = status == SPEC_OK && !is_ended;
    return is_ended && status == SPEC_OK ? phase_next(store, eraser, ret_more, reterr) : status;
}

/* A member overwrites while no other process stores: their lock on the store is refused until then.
 * LOCKED: others do store. */
static spec_status alone_begin(struct sc_store *store, struct spec_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (!sc_store_is_member(store) || atomic_load(&store->erasures.is_alone))
        return SPEC_OK;
    spec_status status = sc_io_file_lock(store->io, store->lock_file, &error);
    atomic_store(&store->erasures.is_alone, status == SPEC_OK);
    return status == SPEC_OK ? status
                             : sc_fail_errno(reterr, status, error.sys_errno,
                                             "rows are overwritten when one process has the store "
                                             "alone: %s",
                                             error.text);
}

static void alone_end(struct sc_store *store)
{
    if (atomic_load(&store->erasures.is_alone))
        (void)sc_io_file_lock_shared(store->io, store->lock_file, NULL);
    atomic_store(&store->erasures.is_alone, false);
}

spec_status sc_store_erase_step(struct sc_store *store, bool *ret_more, struct spec_error *reterr)
{
    *ret_more = false;
    if (!sc_store_can_store(store))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "overwriting is the writer's");
    if (sc_store_erasures(store) == 0 && store->eraser == NULL)
        return SPEC_OK;
    spec_status status = alone_begin(store, reterr);
    if (status == SPEC_OK)
        status = step(store, ret_more, reterr);
    if (store->eraser == NULL || (status != SPEC_OK && status != SPEC_PENDING))
        alone_end(store);
    if (status == SPEC_OK || status == SPEC_PENDING)
        return status;
    *ret_more = false;
    sc_store_count(&store->erasures.failures, 1);
    if (store->eraser != NULL) {
        store->eraser->phase = MARK;
        store->eraser->is_doubted = true;
    }
    return status;
}
