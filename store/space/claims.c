/* claims: see claims.h.
 *
 * A member has at most its part of all segments: one in PART for all processes together, so that
 * those who come later find some; segments that it makes itself count too. It gives back those
 * without room, and takes those with the most. Rows are placed in a segment only after the log was
 * read on behind the claim: what its last claimer committed is known then.
 *
 * A member that can place nothing asks (hints.h): there are fewer segments than members, or a value
 * needs more than a part. The others then give back what they have had for a while, so few segments
 * go from hand to hand.
 *
 * Invariants: a segment with an extent that is being written here stays claimed (`users`). The sum
 * of all segments is checked on the state behind which its record stands, so the limit holds for
 * all processes together.
 * Threads: see claims.h. */
#include "store/space/claims.h"
#include "store/internal.h"
#include "store/log/identity.h"
#include "store/log/hints.h"
#include "store/log/members.h"
#include "store/log/where.h"

#include <errno.h>

#define PAGE       ((uint64_t)SC_IO_PAGE_BYTES)
#define PART       4u            /* claims of all processes together: one segment in 4 */
#define ALONE      2u            /* claims of one alone that lacks none: one in 2 */
#define LEAST      4u            /* claims of one, if there are twice as many for each */
#define AT_ONCE    64u           /* claims taken by a tick */
#define DUE_NS     200000000ull  /* claims are looked at, because others may have come */
#define REFUSED_NS 50000000ull   /* a claim that others have is asked for again then */
#define STUCK_NS   1000000000ull /* for so long after it found no place, a member asks others */
#define KEPT_NS    200000000ull  /* a claim is kept for so long although others ask, */
#define YIELDED_NS 150000000ull  /* and left to them for so long: they try each REFUSED_NS */
#define MAKER_NS   5000000000ull /* whoever recorded a segment has made its file then, or died */

/* ---- The list ------------------------------------------------------------------------------- */

spec_status sc_store_segments_list(struct sc_store *store, struct sc_store_segment_list *ret_list,
                                   struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    pthread_mutex_lock(&store->disk.lock);
    ret_list->count = 0;
    ret_list->list =
        sc_alloc_array(store->params.alloc, store->disk.segment_count + 1, sizeof(*ret_list->list));
    if (ret_list->list == NULL)
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "a list of segments");
    for (uint64_t i = 0; status == SPEC_OK && i < store->disk.segment_count; i++) {
        const struct sc_store_segment *segment = &store->disk.segments[i];
        bool is_there =
            segment->state == SC_STORE_SEGMENT_READY || segment->state == SC_STORE_SEGMENT_TOLD;
        if (!is_there && (segment->state != SC_STORE_SEGMENT_WANTED || !segment->is_told))
            continue;
        ret_list->list[ret_list->count].number = segment->number;
        ret_list->list[ret_list->count++].bytes = segment->bytes;
    }
    pthread_mutex_unlock(&store->disk.lock);
    return status;
}

/* ---- Files ---------------------------------------------------------------------------------- */

static spec_status told_file_open(struct sc_store *store, uint64_t index, bool creates,
                                  struct sc_io_file **ret_file, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    sc_store_segment_path(store, store->disk.segments[index].number, path);
    return sc_io_file_open(
        store->io, path, SC_IO_OPEN_WRITE | SC_IO_OPEN_DIRECT | (creates ? SC_IO_OPEN_CREATE : 0u),
        ret_file, reterr);
}

/* Makes it READY, unless it is already. */
static void told_file_set(struct sc_store *store, uint64_t index, struct sc_io_file *file)
{
    struct sc_store_segment *segment = &store->disk.segments[index];
    pthread_mutex_lock(&store->disk.lock);
    bool is_new = segment->state == SC_STORE_SEGMENT_TOLD;
    if (is_new) {
        segment->file = file;
        segment->state = SC_STORE_SEGMENT_READY;
    }
    pthread_mutex_unlock(&store->disk.lock);
    if (!is_new)
        sc_io_file_close(store->io, file);
}

spec_status sc_store_segment_told_open(struct sc_store *store, uint64_t index,
                                       struct spec_error *reterr)
{
    struct sc_io_file *file = NULL;
    uint64_t bytes = 0;
    spec_status status = told_file_open(store, index, false, &file, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_io_file_size(store->io, file, &bytes, reterr);
    if (status == SPEC_OK && bytes < store->disk.segments[index].bytes)
        status = sc_fail(reterr, SPEC_E_CORRUPT, "segment %" PRIu32 " was shortened",
                         store->disk.segments[index].number);
    if (status == SPEC_OK)
        told_file_set(store, index, file);
    else
        sc_io_file_close(store->io, file);
    return status;
}

/* ---- Claims --------------------------------------------------------------------------------- */

static bool is_there(const struct sc_store_segment *segment)
{
    return segment->state == SC_STORE_SEGMENT_READY || segment->state == SC_STORE_SEGMENT_TOLD;
}

bool sc_store_segment_may_take(struct sc_store *store, uint64_t index)
{
    const struct sc_store_segment *segment = &store->disk.segments[index];
    if (sc_store_segment_takes(store, index))
        return true;
    return sc_store_is_member(store) && is_there(segment) &&
           (segment->is_claimed ? !segment->is_yielding
                                : sc_exec_now_ns(store->params.exec) >= segment->claim_ns);
}

/* Space lock held. Returns the longest free run of the segment, in pages. */
static uint64_t room_of(struct sc_store *store, uint64_t index)
{
    struct sc_store_space_segment *map = &store->disk.space.segments[index];
    return map->free_pages > 0 ? sc_store_space_run_max(&store->disk.space, index) : 0;
}

/* Space lock held. Returns how many segments this process has claimed. */
static uint64_t held_count(const struct sc_store *store, uint64_t *ret_segments)
{
    uint64_t held = 0, segments = 0;
    for (uint64_t i = 0; i < store->disk.segment_count; i++) {
        const struct sc_store_segment *segment = &store->disk.segments[i];
        held += segment->state == SC_STORE_SEGMENT_READY && segment->is_claimed;
        segments += is_there(segment) || segment->state == SC_STORE_SEGMENT_WANTED;
    }
    *ret_segments = segments;
    return held;
}

/* Space lock held. Returns the claimed segment with the least room that nothing is being written
 * to; segment_count: none. */
static uint64_t fullest_held(struct sc_store *store)
{
    uint64_t found = store->disk.segment_count, least = UINT64_MAX;
    for (uint64_t i = 0; i < store->disk.segment_count; i++) {
        const struct sc_store_segment *segment = &store->disk.segments[i];
        if (segment->state != SC_STORE_SEGMENT_READY || !segment->is_claimed || segment->users > 0)
            continue;
        uint64_t room = store->disk.space.segments[i].free_pages;
        if (room < least) {
            least = room;
            found = i;
        }
    }
    return found;
}

/* Space lock held. */
static void claim_give(struct sc_store *store, uint64_t index)
{
    struct sc_store_segment *segment = &store->disk.segments[index];
    segment->is_claimed = segment->is_stale = segment->is_yielding = false;
    segment->claim_ns = sc_exec_now_ns(store->params.exec);
    segment->claim_ns += store->disk.is_shared ? REFUSED_NS : 0; /* others first */
    sc_io_file_unclaim(store->io, segment->file);
}

/* Returns the bytes of a chunk's layer; of objects, a page. */
static uint64_t chunk_bytes(const struct sc_store *store)
{
    if (store->params.is_objects)
        return PAGE;
    return sc_store_shape_place(&store->shape, store->params.probe_row_bytes,
                                store->params.config->chunk_tokens)
        .stride;
}

/* Space lock held. Gives back what has no room for a chunk's layer, and what is above the limit;
 * with lacks also one that has some. */
static void claims_give(struct sc_store *store, uint64_t limit, bool lacks)
{
    uint64_t segments, held = held_count(store, &segments);
    uint64_t chunk = chunk_bytes(store);
    for (uint64_t i = 0; i < store->disk.segment_count; i++) {
        const struct sc_store_segment *segment = &store->disk.segments[i];
        if (segment->state == SC_STORE_SEGMENT_READY && segment->is_claimed &&
            segment->users == 0 && room_of(store, i) * PAGE < chunk) {
            claim_give(store, i);
            held--;
        }
    }
    uint64_t most = lacks && held >= limit ? limit - (limit + 3) / 4 : limit;
    for (uint64_t i; held > most && (i = fullest_held(store)) < store->disk.segment_count; held--)
        claim_give(store, i);
}

/* Space lock held. Another member can place nothing: gives it what this one has had for a while.
 * Returns true if some are given later, because they are being written to. */
static bool claims_yield(struct sc_store *store, bool is_asked, uint64_t now_ns)
{
    bool later = false;
    for (uint64_t i = 0; i < store->disk.segment_count; i++) {
        struct sc_store_segment *segment = &store->disk.segments[i];
        if (segment->state != SC_STORE_SEGMENT_READY || !segment->is_claimed)
            continue;
        segment->is_yielding = is_asked && now_ns >= segment->claim_ns + KEPT_NS;
        later = later || segment->is_yielding;
        if (!segment->is_yielding || segment->users > 0)
            continue;
        claim_give(store, i);
        segment->claim_ns = now_ns + YIELDED_NS;
    }
    return later;
}

/* Space lock held. Returns the segment to claim next: that with the most room; segment_count:
 * none. */
static uint64_t emptiest_other(struct sc_store *store, uint64_t now_ns)
{
    uint64_t found = store->disk.segment_count, most = 0;
    for (uint64_t i = 0; i < store->disk.segment_count; i++) {
        const struct sc_store_segment *segment = &store->disk.segments[i];
        uint64_t room = store->disk.space.segments[i].free_pages;
        if (is_there(segment) && !segment->is_claimed && now_ns >= segment->claim_ns &&
            room > most) {
            most = room;
            found = i;
        }
    }
    return found;
}

/* Opens the file of a told segment and, if its maker died before, finishes it. It is claimed on
 * return. */
static spec_status told_finish(struct sc_store *store, uint64_t index, uint64_t now_ns,
                               struct spec_error *reterr)
{
    const struct sc_store_segment *segment = &store->disk.segments[index];
    struct sc_io_file *file = NULL;
    bool creates = now_ns >= segment->told_ns + MAKER_NS;
    uint64_t bytes = 0;
    spec_status status = sc_store_is_ours(store, reterr);
    if (status == SPEC_OK)
        status = told_file_open(store, index, creates, &file, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_io_file_size(store->io, file, &bytes, reterr);
    if (status == SPEC_OK && bytes < segment->bytes && !creates)
        status = sc_fail(reterr, SPEC_E_BUSY, "a segment is being made"); /* and claimed first */
    if (status == SPEC_OK)
        status = sc_io_file_claim(store->io, file, reterr);
    if (status == SPEC_OK && bytes < segment->bytes)
        status = sc_io_file_reserve(store->io, file, segment->bytes, reterr);
    if (status == SPEC_OK)
        told_file_set(store, index, file);
    else
        sc_io_file_close(store->io, file);
    return status;
}

/* Turn held, no lock. Returns false if nothing more can be claimed. */
static bool claim_one(struct sc_store *store, uint64_t limit, bool *ret_claimed)
{
    uint64_t now_ns = sc_exec_now_ns(store->params.exec), segments;
    spec_status status = SPEC_OK;
    pthread_mutex_lock(&store->disk.lock);
    uint64_t index = emptiest_other(store, now_ns);
    bool goes_on = index < store->disk.segment_count && held_count(store, &segments) < limit;
    bool is_told = goes_on && store->disk.segments[index].state == SC_STORE_SEGMENT_TOLD;
    if (goes_on && !is_told)
        status = sc_io_file_claim(store->io, store->disk.segments[index].file, NULL);
    pthread_mutex_unlock(&store->disk.lock);
    if (is_told)
        status = told_finish(store, index, now_ns, NULL);
    if (!goes_on)
        return false;
    pthread_mutex_lock(&store->disk.lock);
    struct sc_store_segment *segment = &store->disk.segments[index];
    bool is_claimed = status == SPEC_OK && segment->state == SC_STORE_SEGMENT_READY;
    segment->is_claimed = segment->is_stale = is_claimed;
    segment->claim_ns = is_claimed ? now_ns : now_ns + REFUSED_NS;
    *ret_claimed = *ret_claimed || is_claimed;
    pthread_mutex_unlock(&store->disk.lock);
    return true;
}

/* Turn held, no lock. The log was read on behind the claims. */
static void claims_begin(struct sc_store *store)
{
    if (sc_store_turn_read(store, NULL) != SPEC_OK)
        return; /* the next tick tries again */
    pthread_mutex_lock(&store->disk.lock);
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        store->disk.segments[i].is_stale = false;
    pthread_mutex_unlock(&store->disk.lock);
}

/* Space lock held. */
static uint64_t limit_of(struct sc_store *store, uint32_t members)
{
    uint64_t segments;
    (void)held_count(store, &segments);
    uint64_t part = members > 1 ? segments / PART / members : segments / ALONE;
    uint64_t least = segments / members / ALONE; /* of few segments */
    least = least > LEAST ? LEAST : least;
    least = least > 0 ? least : 1;
    return part > least ? part : least;
}

void sc_store_claims_stuck(struct sc_store *store)
{
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    if (!sc_store_is_member(store))
        return;
    pthread_mutex_lock(&store->disk.lock);
    store->disk.stuck_ns = now_ns + STUCK_NS;
    pthread_mutex_unlock(&store->disk.lock);
}

/* Space lock held. Returns true if a tick has something to do. */
static bool tick_begin(struct sc_store *store, uint64_t now_ns, bool *ret_lacks, bool *ret_stuck)
{
    struct sc_store_disk *disk = &store->disk;
    *ret_lacks = disk->claims_wanted;
    *ret_stuck = now_ns < disk->stuck_ns;
    disk->claims_wanted = false;
    bool is_asked = sc_store_claims_asked(store, *ret_stuck);
    bool is_due = *ret_lacks || *ret_stuck || is_asked || now_ns >= disk->claims_ns;
    if (is_due)
        disk->claims_ns = claims_yield(store, is_asked, now_ns) ? now_ns : now_ns + DUE_NS;
    return is_due;
}

/* Space lock held. It found no place, could claim nothing, and has nothing: it asks. */
static void tick_end(struct sc_store *store, uint64_t now_ns, bool lacks, bool is_stuck)
{
    uint64_t segments;
    if (lacks && held_count(store, &segments) == 0)
        store->disk.stuck_ns = now_ns + STUCK_NS;
    if (is_stuck && store->disk.stuck_ns != 0)
        sc_store_claims_ask(store);
}

bool sc_store_claims_tick(struct sc_store *store)
{
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    bool claimed = false, lacks, is_stuck;
    if (!sc_store_is_member(store) || !sc_store_can_store(store))
        return false;
    pthread_mutex_lock(&store->disk.lock);
    bool is_due = tick_begin(store, now_ns, &lacks, &is_stuck);
    pthread_mutex_unlock(&store->disk.lock);
    if (!is_due)
        return false;
    uint32_t members = sc_store_members_count(store);
    sc_store_turn_begin(store);
    pthread_mutex_lock(&store->disk.lock);
    store->disk.is_shared = members > 1;
    bool takes_all = is_stuck || (lacks && members == 1);
    uint64_t limit = takes_all ? UINT64_MAX : limit_of(store, members);
    claims_give(store, limit, lacks);
    pthread_mutex_unlock(&store->disk.lock);
    for (uint32_t i = 0; i < AT_ONCE && claim_one(store, limit, &claimed); i++)
        ;
    if (claimed)
        claims_begin(store);
    sc_store_turn_end(store);
    if (!claimed) {
        pthread_mutex_lock(&store->disk.lock);
        tick_end(store, now_ns, lacks, is_stuck);
        pthread_mutex_unlock(&store->disk.lock);
    }
    return claimed;
}
