/* object_member: see object_member.h.
 *
 *   first    lock -> replay -> a new log, if the old one does not tell of all segments -> share
 *   later    lock, shared -> log, followed to its end -> stores
 *
 * The first process keeps what it read: it becomes a member where it stands, and only then do
 * others get the lock.
 * Invariants: whoever shares the lock finds a log that tells of the segments and their limit. */
#include "store/object/object_member.h"
#include "store/internal.h"
#include "store/log/hints.h"
#include "store/log/identity.h"
#include "store/log/members.h"
#include "store/object/object_replay.h"
#include "store/replay/replay.h"
#include "store/space/claims.h"

#include <stdio.h>

static spec_status places_check(const struct sc_store *store, struct spec_error *reterr)
{
    if (store->members != NULL)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_BUSY, "%s: %u processes store here, and no more can", store->dir,
                   SC_STORE_MEMBERS_MAX);
}

/* Nobody has the lock any more: the caller opens the store alone. */
static spec_status somebody_check(struct sc_store *store, struct spec_error *reterr)
{
    if (sc_io_file_claim(store->io, store->lock_file, NULL) != SPEC_OK)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_LOCKED, "%s: whoever had it has just ended", store->dir);
}

void sc_store_object_head_make(struct sc_store *store)
{
    if (store->log.journal.head.piece_next == 0)
        store->log.journal.head = (struct sc_store_record_head){
            .numbering = sc_exec_wall_ns(store->params.exec), .piece_next = 1, .extent_next = 1};
}

spec_status sc_store_object_join(struct sc_store *store, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/lock", store->dir);
    spec_status status = sc_io_dir_keep(store->io, store->dir, reterr);
    if (status == SPEC_OK)
        status = sc_io_file_open(store->io, path, SC_IO_OPEN_WRITE, &store->lock_file, reterr);
    if (status == SPEC_OK)
        status = sc_io_file_lock_shared(store->io, store->lock_file, reterr);
    if (status == SPEC_OK)
        status = somebody_check(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_members_join(store, reterr);
    return status == SPEC_OK ? places_check(store, reterr) : status;
}

static void begin(struct sc_store *store)
{
    sc_store_hints_open(store);
    sc_store_claims_tick(store);
}

spec_status sc_store_object_joined(struct sc_store *store, struct spec_error *reterr)
{
    sc_store_follow_members(store);
    spec_status status = sc_store_take_over_log(store, reterr);
    if (status == SPEC_OK && !sc_store_keeps_space(store))
        status = sc_fail(reterr, SPEC_E_UNSUPPORTED,
                         "%s: this process cannot store beside the others, the log says why",
                         store->dir);
    if (status == SPEC_OK && sc_store_segments_differ(store))
        status = sc_fail(reterr, SPEC_E_LOCKED, "%s: its log is one writer's", store->dir);
    if (status != SPEC_OK)
        return status;
    sc_store_object_head_make(store);
    sc_store_write_budget_take_over(store);
    pthread_mutex_lock(&store->disk.lock);
    store->disk.segment_max = store->disk.space.segment_max;
    pthread_mutex_unlock(&store->disk.lock);
    atomic_store_explicit(&store->can_store, true, memory_order_release);
    begin(store);
    return SPEC_OK;
}

spec_status sc_store_objects_share(struct sc_store *store, struct spec_error *reterr)
{
    if (!store->params.shares || sc_store_is_member(store))
        return SPEC_OK;
    spec_status status = places_check(store, reterr);
    if (status == SPEC_OK && sc_store_segments_differ(store))
        status = sc_fail(reterr, SPEC_E_IO,
                         "%s/log could not be written anew, so others cannot join", store->dir);
    if (status != SPEC_OK)
        return status;
    store->follow.calls = &sc_store_object_follow_calls;
    store->follow.has_identity = true;
    store->follow.searches_left = SC_STORE_SEARCHES_MAX;
    sc_store_follow_members(store);
    store->params.role = SC_STORE_HEIR;
    status = sc_io_file_lock_shared(store->io, store->lock_file, reterr);
    if (status == SPEC_OK)
        begin(store);
    return status;
}

spec_status sc_store_objects_alone(struct sc_store *store, struct spec_error *reterr)
{
    if (!sc_store_is_member(store))
        return SPEC_OK;
    if (sc_io_file_claim(store->io, store->lock_file, NULL) != SPEC_OK)
        return sc_fail(reterr, SPEC_E_BUSY, "%s: other processes store here", store->dir);
    return SPEC_OK;
}

void sc_store_objects_alone_end(struct sc_store *store)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_store_is_member(store) &&
        sc_io_file_lock_shared(store->io, store->lock_file, &error) != SPEC_OK)
        SC_LOG(store->params.log, SPEC_LOG_WARN, "%s: other processes cannot join: %s", store->dir,
               error.text);
}
