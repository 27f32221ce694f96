/* segment: segment files and the places of extents in them.
 *
 *   segments  [0: READY 64 MiB][1: READY 64 MiB][2: WANTED 64 MiB, file being made] ...
 *   space     a bitmap for each (store/space/page_map.h)
 *
 * Taking a place in a segment without a file wakes the maker task. Writes into it wait until the
 * file is reserved, or fail with it. log_room.c accounts disk_bytes.
 *
 * Rows are placed in claimed segments only (sc_io_file_claim). After a kill the rank's lock is free
 * at once, but the kernel may go on writing for the process; its claims last until that has ended.
 *
 * Invariants: bytes counted are <= disk_bytes_max after every take. A place has one extent. No file
 * is created under a lock. An open store never shrinks.
 * Threads: any, under the space lock; the maker task creates files.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#include "store/space/segment.h"
#include "store/internal.h"
#include "store/log/identity.h"
#include "store/log/where.h"
#include "store/space/tier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE ((uint64_t)SC_IO_PAGE_BYTES)
_Static_assert(PAGE == SC_STORE_SPACE_PAGE_BYTES, "one page size");
#define SEGMENT_PREFIX "seg-"
#define SEGMENT_SPARE  16u         /* indices for short segments and failed ones */
#define CLAIM_NS       50000000ull /* a claim that others have is asked for again then */
#define SEGMENTS_MAX   (1u << 20)

/* ---- Open ----------------------------------------------------------------------------------- */

void sc_store_segment_path(const struct sc_store *store, uint32_t number,
                           char ret_path[SC_LIMIT_PATH_BYTES + 64])
{
    (void)snprintf(ret_path, SC_LIMIT_PATH_BYTES + 64, "%s/" SEGMENT_PREFIX "%08" PRIx32,
                   store->dir, number);
}

/* Segment numbers in the directory: counted first, then collected. */
struct listing {
    uint32_t *numbers;
    uint64_t count, room;
};

static void listing_add(const char *name, void *user)
{
    struct listing *listing = user;
    if (strncmp(name, SEGMENT_PREFIX, 4) != 0 || strlen(name) != 12)
        return;
    uint32_t number = 0;
    for (const char *digit = name + 4; *digit != '\0'; digit++) {
        bool is_number = *digit >= '0' && *digit <= '9';
        if (!is_number && !(*digit >= 'a' && *digit <= 'f'))
            return;
        number = number << 4 | (uint32_t)(is_number ? *digit - '0' : *digit - 'a' + 10);
    }
    if (number >= SC_STORE_SEGMENT_NUMBERS)
        return;
    if (listing->count < listing->room)
        listing->numbers[listing->count] = number;
    listing->count++;
}

static int number_compare(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static spec_status segments_list(struct sc_store *store, struct listing *listing,
                                 struct spec_error *reterr)
{
    spec_status status = sc_io_list(store->io, store->dir, listing_add, listing, reterr);
    if (status != SPEC_OK || listing->count == 0)
        return status;
    listing->room = listing->count;
    listing->numbers = sc_alloc_array(store->params.alloc, listing->room, sizeof(uint32_t));
    if (listing->numbers == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " segment numbers", listing->room);
    listing->count = 0;
    status = sc_io_list(store->io, store->dir, listing_add, listing, reterr);
    listing->count = listing->count < listing->room ? listing->count : listing->room;
    qsort(listing->numbers, listing->count, sizeof(uint32_t), number_compare);
    return status;
}

static spec_status segment_open_file(struct sc_store *store, uint32_t number,
                                     struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_store_segment *segment = &store->disk.segments[store->disk.segment_count];
    uint64_t bytes;
    sc_store_segment_path(store, number, path);
    spec_status status = sc_io_file_open(store->io, path, SC_IO_OPEN_WRITE | SC_IO_OPEN_DIRECT,
                                         &segment->file, reterr);
    if (status != SPEC_OK)
        return status;
    store->disk.segment_count++; /* from here on, close closes the file */
    status = sc_io_file_size(store->io, segment->file, &bytes, reterr);
    segment->number = number;
    segment->state = SC_STORE_SEGMENT_READY;
    segment->bytes = sc_store_down(bytes, PAGE);
    store->disk.segment_bytes += sc_store_up(bytes, PAGE);
    store->disk.number_next = number + 1;
    return status;
}

/* Sets this rank's share of disk_bytes; default: half of the available space, at most 20 GiB. */
static spec_status disk_bytes_decide(struct sc_store *store, uint64_t segment_bytes,
                                     struct spec_error *reterr)
{
    uint64_t bytes = store->params.config->disk_bytes;
    if (bytes == 0) {
        uint64_t free_bytes;
        spec_status status = sc_io_free_bytes(store->io, store->dir, &free_bytes, reterr);
        if (status != SPEC_OK)
            return status;
        bytes = (free_bytes + segment_bytes + sc_store_counted(&store->counts.log_bytes)) / 2;
        bytes = bytes < SC_STORE_DEFAULT_BYTES ? bytes : SC_STORE_DEFAULT_BYTES;
    }
    bytes = sc_store_down(bytes / store->params.rank_count, PAGE);
    store->disk.bytes_max = bytes;
    return sc_store_log_share_decide(store, reterr);
}

/* disk_bytes was lowered, or the log needs more room: gives up the newest segments, and the end of
 * one. Replay then drops their pieces. Files stay until surplus_remove, so that a failed open
 * changes nothing; whole ones are listed behind segment_count. */
static void segments_give_up(struct sc_store *store)
{
    uint64_t others = sc_store_disk_beside(store), whole = store->disk.segment_bytes;
    while (store->disk.segment_count > 0 &&
           others + store->disk.segment_bytes > store->disk.bytes_max) {
        uint64_t excess = others + store->disk.segment_bytes - store->disk.bytes_max;
        struct sc_store_segment *segment = &store->disk.segments[store->disk.segment_count - 1];
        excess = sc_store_up(excess, PAGE);
        if (segment->bytes >= excess + SC_STORE_SEGMENT_MIN) {
            segment->bytes -= excess;
            store->disk.segment_bytes -= excess;
            store->disk.surplus_cuts = true;
            break;
        }
        store->disk.segment_count--;
        sc_io_file_close(store->io, segment->file);
        segment->file = NULL;
        segment->state = SC_STORE_SEGMENT_ABSENT;
        store->disk.segment_bytes -= sc_store_up(segment->bytes, PAGE);
        store->disk.surplus_count++;
    }
    if (store->disk.segment_bytes < whole)
        SC_LOG(store->params.log, 2,
               "%s: segments exceed disk_bytes less the room of the log, %" PRIu64 " bytes go",
               store->dir, whole - store->disk.segment_bytes);
}

/* After the replay: removes given-up files. Those that cannot be removed count. */
static void surplus_remove(struct sc_store *store)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    uint64_t bytes;
    if (store->disk.surplus_cuts) {
        const struct sc_store_segment *last = &store->disk.segments[store->disk.segment_count - 1];
        if (sc_io_file_truncate(store->io, last->file, last->bytes, NULL) != SPEC_OK &&
            sc_io_file_size(store->io, last->file, &bytes, NULL) == SPEC_OK)
            store->disk.segment_bytes += sc_store_up(bytes, PAGE) - last->bytes;
        store->disk.surplus_cuts = false;
    }
    for (; store->disk.surplus_count > 0; store->disk.surplus_count--) {
        struct sc_store_segment *segment =
            &store->disk.segments[store->disk.segment_count + store->disk.surplus_count - 1];
        sc_store_segment_path(store, segment->number, path);
        if (sc_io_unlink(store->io, path, NULL) != SPEC_OK)
            store->disk.segment_bytes += sc_store_up(segment->bytes, PAGE);
        *segment = (struct sc_store_segment){0};
    }
}

static void maker_step(struct sc_task *task);

/* Returns the bytes of all listed segments and sets the longest. */
static spec_status segments_measure(struct sc_store *store, const struct listing *listing,
                                    uint64_t *ret_bytes, uint64_t *longest,
                                    struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    spec_status status = SPEC_OK;
    *ret_bytes = 0;
    for (uint64_t i = 0; i < listing->count && status == SPEC_OK; i++) {
        struct sc_io_file *file;
        uint64_t bytes = 0;
        sc_store_segment_path(store, listing->numbers[i], path);
        status = sc_io_file_open(store->io, path, 0, &file, reterr);
        if (status != SPEC_OK)
            break;
        status = sc_io_file_size(store->io, file, &bytes, reterr);
        sc_io_file_close(store->io, file);
        *ret_bytes += sc_store_up(bytes, PAGE);
        *longest = bytes > *longest ? bytes : *longest;
    }
    return status;
}

/* Returns how many segments the map has room for, beside those that are listed. */
static uint64_t segments_more(const struct sc_store *store)
{
    uint64_t made_max = store->params.config->disk_bytes / SC_STORE_SEGMENT_MIN;
    made_max = made_max > 0 ? made_max : SC_STORE_DEFAULT_BYTES / SC_STORE_SEGMENT_MIN;
    return made_max * SC_STORE_SEGMENT_MIN / store->params.config->segment_bytes + SEGMENT_SPARE;
}

static spec_status segments_table(struct sc_store *store, uint64_t listed, uint64_t table_min,
                                  struct spec_error *reterr)
{
    store->disk.maker.step = maker_step;
    store->disk.segment_max = listed + segments_more(store);
    if (store->disk.segment_max > SEGMENTS_MAX)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%" PRIu64 " segments: use larger ones",
                       store->disk.segment_max);
    uint64_t room = store->disk.segment_max > table_min ? store->disk.segment_max : table_min;
    store->disk.segments = sc_alloc_array(store->params.alloc, room, sizeof(*store->disk.segments));
    if (store->disk.segments == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "segment table");
    return SPEC_OK;
}

static spec_status map_open(struct sc_store *store, uint64_t longest, struct spec_error *reterr)
{
    if (!sc_store_space_init(&store->disk.space, store->params.alloc, store->params.poison,
                             store->disk.segment_max, longest / PAGE))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "space map");
    return SPEC_OK;
}

spec_status sc_store_segments_open(struct sc_store *store, struct spec_error *reterr)
{
    struct listing listing = {0};
    uint64_t log_bytes, longest = store->params.config->segment_bytes;
    spec_status status = sc_io_file_size(store->io, store->log.journal.file, &log_bytes, reterr);
    atomic_store(&store->counts.log_bytes, status == SPEC_OK ? log_bytes : 0);
    if (status == SPEC_OK)
        status = segments_list(store, &listing, reterr);
    if (status == SPEC_OK)
        status = segments_table(store, listing.count,
                                store->params.shares ? SC_STORE_FOLLOWED_SEGMENTS : 0, reterr);
    for (uint64_t i = 0; i < listing.count && status == SPEC_OK; i++)
        status = segment_open_file(store, listing.numbers[i], reterr);
    sc_alloc_free(store->params.alloc, listing.numbers);
    if (status == SPEC_OK)
        status = disk_bytes_decide(store, store->disk.segment_bytes, reterr);
    if (status != SPEC_OK)
        return status;
    segments_give_up(store);
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        longest = store->disk.segments[i].bytes > longest ? store->disk.segments[i].bytes : longest;
    status = map_open(store, longest, reterr);
    for (uint64_t i = 0; i < store->disk.segment_count && status == SPEC_OK; i++)
        sc_store_space_add(&store->disk.space, i, store->disk.segments[i].bytes / PAGE);
    return status;
}

/* ---- An heir's ------------------------------------------------------------------------------- */

spec_status sc_store_segments_heir_open(struct sc_store *store, struct spec_error *reterr)
{
    struct listing listing = {0};
    uint64_t bytes = 0, longest = store->params.config->segment_bytes;
    spec_status status = segments_list(store, &listing, reterr);
    if (status == SPEC_OK)
        status = segments_measure(store, &listing, &bytes, &longest, reterr);
    if (status == SPEC_OK)
        status = segments_table(store, listing.count, SC_STORE_FOLLOWED_SEGMENTS, reterr);
    sc_alloc_free(store->params.alloc, listing.numbers);
    if (status == SPEC_OK)
        status = disk_bytes_decide(store, bytes, reterr);
    if (status == SPEC_OK)
        status = map_open(store, longest, reterr);
    if (status == SPEC_OK && store->disk.segment_max < SC_STORE_FOLLOWED_SEGMENTS)
        store->disk.segment_max = SC_STORE_FOLLOWED_SEGMENTS; /* as a reader, until it takes over */
    return status;
}

/* Adds the segment with this index to the map. false: it does not fit there. */
static bool segment_map(struct sc_store *store, uint64_t index)
{
    const struct sc_store_segment *segment = &store->disk.segments[index];
    struct sc_store_space *map = &store->disk.space;
    if (index >= map->segment_max || segment->bytes / PAGE > map->segment_words * 64)
        return false;
    pthread_mutex_lock(&store->disk.lock);
    store->disk.segment_bytes += segment->bytes;
    sc_store_space_add(map, index, segment->bytes / PAGE);
    pthread_mutex_unlock(&store->disk.lock);
    return true;
}

spec_status sc_store_segment_follow(struct sc_store *store, uint32_t number, bool *ret_mapped,
                                    struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_store_segment *segment = &store->disk.segments[store->disk.segment_count];
    bool keeps = sc_store_keeps_space(store);
    uint64_t bytes;
    sc_store_segment_path(store, number, path);
    spec_status status =
        sc_io_file_open(store->io, path, SC_IO_OPEN_DIRECT | (keeps ? SC_IO_OPEN_WRITE : 0),
                        &segment->file, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_io_file_size(store->io, segment->file, &bytes, reterr);
    if (status != SPEC_OK) {
        sc_io_file_close(store->io, segment->file);
        segment->file = NULL;
        return status;
    }
    segment->number = number;
    segment->bytes = sc_store_down(bytes, PAGE);
    segment->state = SC_STORE_SEGMENT_READY;
    *ret_mapped = !keeps || segment_map(store, store->disk.segment_count);
    store->disk.segment_count++;
    return SPEC_OK;
}

uint64_t sc_store_segment_index(const struct sc_store *store, uint32_t number)
{
    uint64_t index = 0;
    while (index < store->disk.segment_count && store->disk.segments[index].number != number)
        index++;
    return index;
}

/* A segment that another writer removed when it opened was free, and is left out. */
static bool removed_leave(struct sc_store *store, uint64_t index)
{
    struct sc_store_segment *segment = &store->disk.segments[index];
    const struct sc_store_space_segment *map = &store->disk.space.segments[index];
    pthread_mutex_lock(&store->disk.lock);
    bool is_free = map->free_pages == map->page_count;
    if (is_free && segment->state == SC_STORE_SEGMENT_READY) {
        sc_store_space_remove(&store->disk.space, index);
        store->disk.segment_bytes -= segment->bytes;
        segment->state = SC_STORE_SEGMENT_FAILED; /* its file is closed with the store */
    }
    pthread_mutex_unlock(&store->disk.lock);
    return is_free;
}

static spec_status known_check(struct sc_store *store, const struct listing *listing,
                               struct spec_error *reterr)
{
    for (uint64_t i = 0; i < store->disk.segment_count; i++) {
        struct sc_store_segment *segment = &store->disk.segments[i];
        uint64_t bytes = 0;
        if (bsearch(&segment->number, listing->numbers, listing->count, sizeof(uint32_t),
                    number_compare) == NULL) {
            if (!removed_leave(store, i))
                return sc_fail(reterr, SPEC_E_STALE, "segment %" PRIu32 " was removed",
                               segment->number);
            continue;
        }
        spec_status status = sc_io_file_size(store->io, segment->file, &bytes, reterr);
        if (status == SPEC_OK && bytes < segment->bytes)
            status =
                sc_fail(reterr, SPEC_E_STALE, "segment %" PRIu32 " was shortened", segment->number);
        if (status != SPEC_OK)
            return status;
    }
    return SPEC_OK;
}

static spec_status unnamed_open(struct sc_store *store, const struct listing *listing,
                                struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint64_t i = 0; i < listing->count && status == SPEC_OK; i++) {
        bool is_mapped = true;
        if (sc_store_segment_index(store, listing->numbers[i]) < store->disk.segment_count)
            continue;
        if (store->disk.segment_count == store->disk.space.segment_max)
            return sc_fail(reterr, SPEC_E_STALE, "more segments than this process can map");
        status = sc_store_segment_follow(store, listing->numbers[i], &is_mapped, reterr);
        if (status == SPEC_OK && !is_mapped)
            status = sc_fail(reterr, SPEC_E_STALE, "a segment is longer than segment_bytes");
    }
    return status;
}

spec_status sc_store_segments_take_over(struct sc_store *store, struct spec_error *reterr)
{
    struct listing listing = {0};
    spec_status status = segments_list(store, &listing, reterr);
    if (status == SPEC_OK)
        status = known_check(store, &listing, reterr);
    if (status == SPEC_OK)
        status = unnamed_open(store, &listing, reterr);
    for (uint64_t i = 0; i < listing.count && listing.numbers != NULL; i++) /* NULL: no memory */
        if (listing.numbers[i] >= store->disk.number_next)
            store->disk.number_next = listing.numbers[i] + 1;
    sc_alloc_free(store->params.alloc, listing.numbers);
    pthread_mutex_lock(&store->disk.lock);
    uint64_t used = sc_store_disk_used(store);
    pthread_mutex_unlock(&store->disk.lock);
    if (status == SPEC_OK && used > store->disk.bytes_max)
        status =
            sc_fail(reterr, SPEC_E_STALE,
                    "the store has %" PRIu64 " bytes, disk_bytes of this process allows %" PRIu64,
                    used, store->disk.bytes_max);
    return status;
}

void sc_store_segments_close(struct sc_store *store)
{
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        if (store->disk.segments[i].file != NULL)
            sc_io_file_close(store->io, store->disk.segments[i].file);
    sc_store_space_done(&store->disk.space);
    sc_alloc_free(store->params.alloc, store->disk.segments);
    store->disk.segments = NULL;
    store->disk.segment_count = 0;
}

uint64_t sc_store_segment_find(const struct sc_store *store, uint32_t number)
{
    uint64_t low = 0, high = store->disk.segment_count; /* sorted by number at open */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (store->disk.segments[middle].number == number)
            return middle;
        if (store->disk.segments[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return store->disk.segment_max;
}

/* Removes the file of a free segment. */
static void segment_remove(struct sc_store *store, uint64_t index)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_store_segment *segment = &store->disk.segments[index];
    sc_store_segment_path(store, segment->number, path);
    if (sc_io_unlink(store->io, path, NULL) != SPEC_OK)
        return;
    sc_io_file_close(store->io, segment->file);
    store->disk.segment_bytes -= segment->bytes;
    if (store->disk.space.segments[index].page_count > 0)
        sc_store_space_remove(&store->disk.space, index);
    *segment = (struct sc_store_segment){0};
}

/* Their makers died, or the power went, before they had any space. A log cannot tell of them;
 * so members would give their numbers again. */
static void empty_remove(struct sc_store *store)
{
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        if (store->disk.segments[i].state == SC_STORE_SEGMENT_READY &&
            store->disk.segments[i].bytes == 0)
            segment_remove(store, i);
}

void sc_store_segments_trim(struct sc_store *store)
{
    surplus_remove(store);
    empty_remove(store);
    for (uint64_t i = store->disk.segment_count; i-- > 0;) {
        struct sc_store_segment *segment = &store->disk.segments[i];
        struct sc_store_space_segment *map = &store->disk.space.segments[i];
        if (sc_store_disk_used(store) <= store->disk.bytes_max)
            return;
        if (segment->state != SC_STORE_SEGMENT_READY || map->free_pages != map->page_count)
            continue;
        segment_remove(store, i);
    }
}

/* ---- Space ---------------------------------------------------------------------------------- */

bool sc_store_segment_want(struct sc_store *store, uint64_t pages, uint64_t *ret_index)
{
    uint64_t room = sc_store_segment_room(store), bytes = store->params.config->segment_bytes;
    uint64_t longest = sc_store_down(sc_io_file_limit(), PAGE);
    bytes = bytes < room ? bytes : room;
    bytes = bytes < longest ? bytes : longest;
    if (bytes < SC_STORE_SEGMENT_MIN || bytes / PAGE < pages)
        return false;
    uint64_t index = 0;
    while (index < store->disk.segment_count &&
           store->disk.segments[index].state != SC_STORE_SEGMENT_ABSENT)
        index++;
    if (index == store->disk.segment_max || store->disk.number_next == SC_STORE_SEGMENT_NUMBERS)
        return false;
    if (index == store->disk.segment_count)
        store->disk.segment_count++;
    uint32_t number = SC_STORE_SEGMENT_NUMBERS; /* a member's has one with its record */
    if (!sc_store_is_member(store))
        number = store->disk.number_next++;
    store->disk.segments[index] = (struct sc_store_segment){
        .number = number, .state = SC_STORE_SEGMENT_WANTED, .bytes = bytes};
    store->disk.segment_bytes += bytes;
    sc_store_space_add(&store->disk.space, index, bytes / PAGE);
    *ret_index = index;
    return true;
}

bool sc_store_segment_takes(struct sc_store *store, uint64_t index)
{
    struct sc_store_segment *segment = &store->disk.segments[index];
    if (sc_store_is_member(store)) /* claims.c has claimed it ahead */
        return segment->state == SC_STORE_SEGMENT_WANTED ||
               (segment->state == SC_STORE_SEGMENT_READY && segment->is_claimed &&
                !segment->is_stale && !segment->is_yielding);
    if (segment->state != SC_STORE_SEGMENT_READY || segment->is_claimed)
        return segment->state == SC_STORE_SEGMENT_READY ||
               segment->state == SC_STORE_SEGMENT_WANTED;
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    if (now_ns < segment->claim_ns)
        return false;
    segment->is_claimed = sc_io_file_claim(store->io, segment->file, NULL) == SPEC_OK;
    segment->claim_ns = now_ns + CLAIM_NS;
    return segment->is_claimed;
}

/* Space lock held. Takes one run for at least layers_min layers from layer_first on; 0: none. */
static uint32_t place_in(struct sc_store *store, uint64_t index, uint64_t stride,
                         uint32_t layer_first, uint32_t layers_min, struct sc_store_part *part)
{
    struct sc_store_space_segment *map = &store->disk.space.segments[index];
    uint32_t layers = store->shape.layer_count - layer_first;
    uint64_t page, pages = (layers * stride + PAGE - 1) / PAGE;
    if (map->run_max * PAGE < layers_min * stride || map->free_pages * PAGE < layers_min * stride ||
        !sc_store_segment_takes(store, index))
        return 0;
    if (!sc_store_space_take(&store->disk.space, index, pages, &page)) {
        uint64_t fit = sc_store_space_run_max(&store->disk.space, index) * PAGE / stride;
        layers = fit < layers ? (uint32_t)fit : layers;
        pages = (layers * stride + PAGE - 1) / PAGE;
        if (layers == 0 || layers < layers_min ||
            !sc_store_space_take(&store->disk.space, index, pages, &page))
            return 0;
    }
    *part = (struct sc_store_part){.offset = page * PAGE,
                                   .segment = (uint32_t)index,
                                   .layer_first = layer_first,
                                   .layer_count = layers};
    store->disk.extent_bytes += pages * PAGE;
    return layers;
}

void sc_store_segment_leave(struct sc_store *store, uint64_t index)
{
    struct sc_store_segment *segment = &store->disk.segments[index];
    struct sc_store_space_segment *map = &store->disk.space.segments[index];
    if (segment->state != SC_STORE_SEGMENT_FAILED || segment->file != NULL ||
        map->free_pages != map->page_count)
        return;
    sc_store_space_remove(&store->disk.space, index);
    store->disk.segment_bytes -= segment->bytes;
    *segment = (struct sc_store_segment){0};
}

void sc_store_parts_free(struct sc_store *store, const struct sc_store_part *parts,
                         uint32_t part_count, uint64_t stride)
{
    for (uint32_t i = 0; i < part_count; i++) {
        uint64_t pages = sc_store_part_pages(&parts[i], stride);
        sc_store_space_free(&store->disk.space, parts[i].segment, parts[i].offset / PAGE, pages);
        store->disk.extent_bytes -= pages * PAGE;
        sc_store_segment_leave(store, parts[i].segment);
    }
}

/* Space lock held. Returns the i-th segment to search. */
static uint64_t segment_at(const struct sc_store *store, uint64_t i)
{
    return (store->disk.segment_begin + i) % store->disk.segment_count;
}

/* Prefers one run for all layers, then runs of whole layers, then new segments. */
bool sc_store_parts_take(struct sc_store *store, uint64_t stride, struct sc_store_part *parts,
                         uint32_t *ret_part_count)
{
    uint32_t layer_count = store->shape.layer_count, layer = 0, count = 0;
    uint64_t index, whole = (layer_count * stride + PAGE - 1) / PAGE;
    for (uint64_t i = 0; i < store->disk.segment_count && layer == 0; i++)
        layer = place_in(store, segment_at(store, i), stride, 0, layer_count, &parts[0]);
    if (layer == 0 && sc_store_segment_want(store, whole, &index))
        layer = place_in(store, index, stride, 0, layer_count, &parts[0]);
    count = layer > 0 ? 1 : 0;
    for (uint64_t i = 0; layer < layer_count && i < store->disk.segment_count;) {
        uint32_t got = place_in(store, segment_at(store, i), stride, layer, 1, &parts[count]);
        count += got > 0 ? 1 : 0;
        i += got > 0 ? 0 : 1; /* a segment may have more runs */
        layer += got;
    }
    while (layer < layer_count &&
           sc_store_segment_want(store, (stride + PAGE - 1) / PAGE, &index)) {
        uint32_t got = place_in(store, index, stride, layer, 1, &parts[count]);
        SC_ASSERT(store->params.poison, got > 0);
        count += got > 0 ? 1 : 0;
        layer += got;
    }
    *ret_part_count = count;
    if (layer == layer_count) {
        store->disk.stuck_ns = 0;
        return true;
    }
    store->disk.claims_wanted = true; /* a member's: the next tick looks for more */
    sc_store_parts_free(store, parts, count, stride);
    return false;
}

bool sc_store_maker_wake(struct sc_store *store)
{
    if (store->disk.maker_posted)
        return false;
    for (uint64_t i = 0; i < store->disk.segment_count; i++) {
        if (store->disk.segments[i].state == SC_STORE_SEGMENT_WANTED) {
            store->disk.maker_posted = true;
            atomic_fetch_add(&store->busy, 1);
            return true;
        }
    }
    return false;
}

void sc_store_pause(struct sc_store *store, spec_status status, const char *what)
{
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    pthread_mutex_lock(&store->disk.lock);
    bool says = now_ns >= store->disk.retry_ns;
    if (store->disk.retry_ns != UINT64_MAX) /* else a member reads its log from the start */
        store->disk.retry_ns = now_ns + SC_STORE_RETRY_NS;
    pthread_mutex_unlock(&store->disk.lock);
    if (says)
        SC_LOG(store->params.log, 1, "nothing is stored for %llu s: %s, %s",
               SC_STORE_RETRY_NS / 1000000000u, sc_status_name(status), what);
}

/* ---- Creating files, queueing writes --------------------------------------------------------- */

void sc_store_busy_end(struct sc_store *store)
{
    pthread_mutex_lock(&store->disk.lock); /* close takes it before it frees the store */
    if (atomic_fetch_sub(&store->busy, 1) == 1)
        sc_exec_wake(store->params.exec, &store->busy);
    pthread_mutex_unlock(&store->disk.lock);
}

static spec_status segment_make(struct sc_store *store, uint32_t number, uint64_t bytes,
                                struct sc_io_file **ret_file)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct spec_error error = {.struct_size = sizeof(error)};
    sc_store_segment_path(store, number, path);
    spec_status status = sc_store_is_ours(store, &error);
    if (status == SPEC_OK) /* an existing file is another writer's */
        status = sc_io_file_open(store->io, path,
                                 SC_IO_OPEN_CREATE | SC_IO_OPEN_EXCLUSIVE | SC_IO_OPEN_WRITE |
                                     SC_IO_OPEN_DIRECT,
                                 ret_file, &error);
    if (status == SPEC_OK) {
        status = sc_io_file_claim(store->io, *ret_file, &error);
        if (status == SPEC_OK)
            status = sc_io_file_reserve(store->io, *ret_file, bytes, &error);
        if (status == SPEC_OK)
            status = sc_store_log_fits_device(store, bytes, &error);
        if (status == SPEC_OK)
            return SPEC_OK;
        sc_io_file_close(store->io, *ret_file);
        if (!sc_store_is_member(store)) /* else another may have claimed it, and stores there */
            (void)sc_io_unlink(store->io, path, NULL);
    }
    *ret_file = NULL;
    if (sc_store_is_member(store) && (status == SPEC_E_LOCKED || error.sys_errno == EEXIST))
        return SPEC_E_NO_SPACE; /* we were so slow that another has made it */
    sc_store_count(status == SPEC_E_NO_SPACE ? &store->counts.no_space : &store->counts.io_errors,
                   1);
    if (status == SPEC_E_NO_SPACE) /* existing segments are still filled */
        sc_store_device_is_full(store, error.text);
    else
        sc_store_pause(store, status, error.text);
    return status;
}

/* Space lock held. Moves writes to a segment without a file to its waiting list and failed ones to
 * *ret_failed. Returns how many are ready, at the front of `writes`. */
static uint64_t writes_sort(struct sc_store *store, struct sc_store_write **writes, uint64_t count,
                            struct sc_store_write **ret_failed)
{
    uint64_t ready = 0;
    *ret_failed = NULL;
    for (uint64_t i = 0; i < count; i++) {
        struct sc_store_write *write = writes[i];
        struct sc_store_segment *segment = &store->disk.segments[write->segment];
        write->op.file = segment->file;
        atomic_fetch_add(&store->busy, 1);
        if (segment->state == SC_STORE_SEGMENT_READY) {
            writes[ready++] = write;
        } else if (segment->state == SC_STORE_SEGMENT_WANTED) {
            write->next = segment->waiting;
            segment->waiting = write;
        } else {
            write->next = *ret_failed;
            *ret_failed = write;
        }
    }
    return ready;
}

/* count <= SC_STORE_WRITES_AT_ONCE. */
static void ops_submit(struct sc_store *store, struct sc_store_write *const *writes, uint64_t count)
{
    struct sc_io_op *ops[SC_STORE_WRITES_AT_ONCE];
    for (uint64_t i = 0; i < count; i++)
        ops[i] = &writes[i]->op;
    if (count > 0)
        sc_io_submit(store->io, ops, count);
}

/* Completes a list of writes with the status. */
static void writes_fail(struct sc_store_write *writes, spec_status status)
{
    while (writes != NULL) {
        struct sc_store_write *write = writes;
        writes = write->next;
        write->op.status = status;
        write->op.done(&write->op);
    }
}

/* Submits a list of writes that waited for the file. */
static void writes_go(struct sc_store *store, struct sc_store_write *writes,
                      struct sc_io_file *file)
{
    struct sc_store_write *batch[SC_STORE_WRITES_AT_ONCE];
    while (writes != NULL) {
        uint64_t count = 0;
        for (; writes != NULL && count < SC_STORE_WRITES_AT_ONCE; writes = writes->next) {
            writes->op.file = file;
            batch[count++] = writes;
        }
        ops_submit(store, batch, count);
    }
}

/* Creates the file of one WANTED segment; submits or fails its writes. */
static void maker_step(struct sc_task *task)
{
    struct sc_store *store =
        (struct sc_store *)((char *)task - offsetof(struct sc_store, disk.maker));
    uint64_t index = 0;
    pthread_mutex_lock(&store->disk.lock);
    while (store->disk.segments[index].state != SC_STORE_SEGMENT_WANTED)
        index++; /* it woke this task, which alone ends the state */
    struct sc_store_segment *segment = &store->disk.segments[index];
    uint64_t bytes = segment->bytes;
    pthread_mutex_unlock(&store->disk.lock);

    struct sc_io_file *file = NULL;
    spec_status status = SPEC_OK;
    if (sc_store_is_member(store))
        status = sc_store_segment_record(store, index, NULL);
    if (status == SPEC_OK)
        status = segment_make(store, segment->number, bytes, &file);

    pthread_mutex_lock(&store->disk.lock);
    struct sc_store_write *waiting = segment->waiting;
    segment->waiting = NULL;
    segment->file = file;
    segment->state = status == SPEC_OK ? SC_STORE_SEGMENT_READY : SC_STORE_SEGMENT_FAILED;
    segment->is_claimed = status == SPEC_OK;
    if (status != SPEC_OK && segment->is_told) { /* any member finishes it later */
        segment->state = SC_STORE_SEGMENT_TOLD;
        segment->told_ns = sc_exec_now_ns(store->params.exec);
    }
    if (status != SPEC_OK)
        sc_store_segment_leave(store, index);
    store->disk.maker_posted = false;
    bool wakes = sc_store_maker_wake(store);
    pthread_mutex_unlock(&store->disk.lock);
    if (wakes)
        sc_exec_post(store->params.exec, &store->disk.maker, SC_IO_CLASS_WRITER);
    if (status == SPEC_OK)
        writes_go(store, waiting, file);
    else
        writes_fail(waiting, status);
    sc_store_busy_end(store);
}

struct sc_store_write *sc_store_tier_write(struct sc_store *store, struct sc_store_write **writes,
                                           uint64_t count)
{
    struct sc_store_write *failed = NULL;
    SC_ASSERT(store->params.poison, count <= SC_STORE_WRITES_AT_ONCE);
    if (count == 0)
        return NULL;
    pthread_mutex_lock(&store->disk.lock);
    uint64_t ready = writes_sort(store, writes, count, &failed);
    pthread_mutex_unlock(&store->disk.lock);
    ops_submit(store, writes, ready);
    return failed;
}

void sc_store_tier_fail(struct sc_store_write *writes)
{
    writes_fail(writes, SPEC_E_NO_SPACE);
}
