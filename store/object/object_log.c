/* object_log: the log of objects: open, appends. Contract: object.h.
 *
 *   alone    identity -> directory -> lock -> log -> segments -> staging -> replay
 *   beside   lock, shared -> segments -> staging -> log, followed to its end (object_member.c)
 *
 * Invariants: a failed open leaves an existing store unchanged.
 * Threads: open; appends from any thread, under the log lock.
 * Tests: tests/unit/store/test_object_log.c, tests/fuzz/fuzz_objects.c */
#include "store/log/identity.h"
#include "store/log/log_swap.h"
#include "store/log/members.h"
#include "store/log/record_format.h"
#include "store/object/object_member.h"
#include "store/object/object_replay.h"
#include "store/open.h"
#include "store/replay/replay.h"

#include <string.h>

#define PAGE           ((uint64_t)SC_IO_PAGE_BYTES)
#define FRAMES_LEAST   8u /* of staging */
#define OP_BYTES_LEAST (UINT64_C(64) << 10)
#define OPENS_NS       10000000000ull /* the longest wait for a process that opens it alone */
#define RETRY_NS       5000000ull

/* ---- Replay ---------------------------------------------------------------------------------- */

static void replay_tell(struct sc_store *store, struct sc_store_objects_found *found)
{
    const struct sc_store_journal *journal = &store->log.journal;
    sc_store_object_replay_tell(store, found);
    found->needs_checkpoint = store->params.shares && sc_store_segments_differ(store);
    found->wants_checkpoint = found->refused > 0 || found->damaged > 0 || found->needs_checkpoint ||
                              sc_store_disk_used(store) > store->disk.bytes_max;
    sc_store_count(&store->counts.corrupt_records, found->damaged);
    if (found->damaged > 0 || found->refused > 0)
        SC_LOG(store->params.log, SPEC_LOG_WARN,
               "%s/log: %" PRIu64 " records were damaged, %" PRIu64
               " objects have no place and are dropped",
               store->dir, found->damaged, found->refused);
    if (!journal->is_torn)
        return;
    sc_store_count(&store->counts.corrupt_records, 1);
    SC_LOG(store->params.log, SPEC_LOG_WARN,
           "%s/log ends at byte %" PRIu64 " of %" PRIu64 ": the last record is not complete",
           store->dir, journal->end.offset, journal->file_end);
}

static spec_status log_begin(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_append append;
    sc_store_object_head_make(store);
    if (store->log.journal.end.sequence > 0)
        return SPEC_OK;
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_head(&append.writer, &store->log.journal.head);
    return sc_store_append_commit(store, &append, reterr);
}

static spec_status replay_log(struct sc_store *store, struct sc_store_objects_found *found,
                              struct spec_error *reterr)
{
    spec_status status = sc_store_journal_scan(store, sc_store_object_replay_record, NULL, reterr);
    if (status == SPEC_OK)
        replay_tell(store, found);
    atomic_store(&store->counts.log_bytes, store->log.journal.file_end);
    if (status == SPEC_OK)
        status = log_begin(store, reterr);
    if (status == SPEC_OK) {
        sc_store_log_new_remove_all(store);
        sc_store_write_budget_file_remove(store);
        sc_store_segments_trim(store);
    }
    return status;
}

/* ---- Open and close -------------------------------------------------------------------------- */

static spec_status staging_open(struct sc_store *store, struct spec_error *reterr)
{
    const struct sc_config *config = store->params.config;
    uint64_t bytes = config->io_op_bytes;
    while (bytes > OP_BYTES_LEAST &&
           (bytes + SC_STAGING_SLACK_BYTES) * FRAMES_LEAST > config->staging_bytes)
        bytes /= 2;
    store->limits.op_bytes = sc_store_down(bytes, PAGE);
    struct sc_staging_params frames = {.alloc = store->params.alloc,
                                       .exec = store->params.exec,
                                       .poison = store->params.poison,
                                       .staging_bytes = config->staging_bytes,
                                       .op_bytes = store->limits.op_bytes};
    spec_status status = sc_staging_open(&frames, &store->frames, reterr);
    if (status == SPEC_OK)
        sc_io_buffers(store->io, sc_staging_memory(store->frames), sc_staging_bytes(store->frames),
                      sc_staging_frame_bytes(store->frames));
    return status;
}

static void store_free(struct sc_store *store)
{
    if (store->io != NULL)
        sc_io_buffers(store->io, NULL, 0, 0);
    sc_staging_close(store->frames);
    sc_store_object_replay_close(store);
    sc_store_base_free(store);
}

/* The steps of the one writer. */
static spec_status open_alone(struct sc_store *store, struct sc_store_objects_found *found,
                              struct spec_error *reterr)
{
    spec_status status = sc_store_identity_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_kind_check(store, SC_STORE_ROWS_PREFIX, "rows", reterr);
    if (status == SPEC_OK)
        status = sc_store_dir_open(store, reterr);
    if (status == SPEC_OK && store->params.shares)
        status = sc_store_members_join(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_journal_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_write_budget_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_segments_open(store, reterr);
    if (status == SPEC_OK)
        status = staging_open(store, reterr);
    return status == SPEC_OK ? replay_log(store, found, reterr) : status;
}

/* The steps of a process that joins others: it reads their log, and appends behind it. */
static spec_status open_beside(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = sc_store_object_join(store, reterr);
    if (status != SPEC_OK)
        return status;
    sc_store_write_budget_heir_open(store);
    status = sc_store_segments_heir_open(store, reterr);
    if (status == SPEC_OK)
        status = staging_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_follow_open_as(store, &sc_store_object_follow_calls, reterr);
    return status == SPEC_OK ? sc_store_object_joined(store, reterr) : status;
}

static spec_status open_as(const struct sc_store_objects_params *params, uint32_t role,
                           struct sc_store **ret_store, struct sc_store_objects_found *found,
                           struct spec_error *reterr)
{
    struct sc_store_params base = params->store;
    base.role = role;
    base.is_objects = true;
    struct sc_store *store = sc_store_base_make(&base);
    if (store == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "store handle");
    *found = (struct sc_store_objects_found){0};
    *ret_store = store; /* callbacks of the replay free pages */
    spec_status status = sc_store_io_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_dir_name(store, SC_STORE_OBJECTS_PREFIX, reterr);
    if (status == SPEC_OK)
        status = sc_store_copies_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_object_replay_open(store, params, reterr);
    if (status == SPEC_OK)
        status =
            role == SC_STORE_WRITER ? open_alone(store, found, reterr) : open_beside(store, reterr);
    if (status == SPEC_OK)
        return SPEC_OK;
    if (status == SPEC_E_LOCKED && params->on_restart != NULL) /* the caller tries again */
        params->on_restart(params->user);
    store_free(store);
    *ret_store = NULL;
    return status;
}

spec_status sc_store_objects_open(const struct sc_store_objects_params *params,
                                  struct sc_store **ret_store,
                                  struct sc_store_objects_found *ret_found,
                                  struct spec_error *reterr)
{
    struct sc_exec *exec = params->store.exec;
    const uint64_t until_ns = sc_exec_now_ns(exec) + OPENS_NS;
    struct spec_error error;
    _Atomic uint32_t word = 0;
    for (;;) {
        error = (struct spec_error){.struct_size = sizeof(error)};
        spec_status status = open_as(params, SC_STORE_WRITER, ret_store, ret_found, &error);
        if (status == SPEC_E_LOCKED && params->store.shares)
            status = open_as(params, SC_STORE_HEIR, ret_store, ret_found, &error);
        uint64_t now_ns = sc_exec_now_ns(exec);
        if (status == SPEC_OK)
            return SPEC_OK;
        if (status != SPEC_E_LOCKED || !params->store.shares || now_ns >= until_ns)
            return sc_fail_errno(reterr, status == SPEC_E_BUSY ? SPEC_E_LOCKED : status,
                                 error.sys_errno, "%s", error.text);
        (void)sc_exec_wait(exec, &word, 0, now_ns + RETRY_NS); /* it opens the store alone */
    }
}

void sc_store_objects_close(struct sc_store *store)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (store == NULL)
        return;
    sc_store_base_wait(store);
    pthread_mutex_lock(&store->disk.lock); /* until the last writer has left it */
    pthread_mutex_unlock(&store->disk.lock);
    struct sc_store_journal *journal = &store->log.journal;
    if (journal->end.offset != journal->synced_end &&
        sc_io_file_sync(store->io, journal->file, &error) != SPEC_OK)
        SC_LOG(store->params.log, SPEC_LOG_WARN, "%s/log is not synced: %s", store->dir,
               error.text);
    store_free(store);
}

/* ---- Appends --------------------------------------------------------------------------------- */

/* Reserves bytes before an append. They count twice: in the log and in the next one. */
static spec_status log_reserve(struct sc_store *store, uint64_t bytes, struct spec_error *reterr)
{
    if (sc_store_log_reserve_epoch(store, bytes))
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_NO_SPACE, "%s/log: no room for %" PRIu64 " bytes", store->dir,
                   bytes);
}

spec_status sc_store_object_domain_put(struct sc_store *store, uint32_t id, const uint8_t *identity,
                                       uint32_t bytes, struct spec_error *reterr)
{
    struct sc_store_append append;
    const uint64_t log_bytes = SC_STORE_FRAME_BYTES + 64 + bytes;
    spec_status status = log_reserve(store, log_bytes, reterr);
    if (status != SPEC_OK)
        return status;
    pthread_mutex_lock(&store->log.lock);
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_domain(&append.writer, id, identity, bytes);
    status = sc_store_append_commit(store, &append, reterr);
    pthread_mutex_unlock(&store->log.lock);
    sc_store_log_unreserve(store, log_bytes);
    return status;
}

void sc_store_object_parts_number(struct sc_store *store, struct sc_store_object *objects,
                                  uint32_t count)
{
    pthread_mutex_lock(&store->disk.lock);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t p = 0; p < objects[i].part_count; p++)
            objects[i].parts[p].segment = store->disk.segments[objects[i].parts[p].segment].number;
    pthread_mutex_unlock(&store->disk.lock);
}

spec_status sc_store_objects_put(struct sc_store *store, struct sc_store_object *objects,
                                 uint32_t count, struct spec_error *reterr)
{
    struct sc_store_append append;
    SC_ASSERT(store->params.poison, count > 0 && count <= SC_STORE_OBJECT_BATCH);
    spec_status status = sc_store_object_log_room(store, count, reterr);
    if (status != SPEC_OK)
        return status;
    sc_store_object_parts_number(store, objects, count);
    pthread_mutex_lock(&store->log.lock);
    sc_store_append_begin(store, &append);
    for (uint32_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && objects[end].domain == objects[i].domain; end++)
            ;
        sc_store_append_frame(&append);
        sc_store_record_encode_objects(&append.writer, &objects[i], end - i);
    }
    status = sc_store_append_commit(store, &append, reterr);
    pthread_mutex_unlock(&store->log.lock);
    if (status == SPEC_OK)
        sc_store_object_logged(store, objects, count);
    else if (status != SPEC_PENDING && sc_store_turn_read(store, NULL) != SPEC_OK)
        sc_store_seal_over(store, "its last append failed, and cannot be read");
    return status;
}

static spec_status removal_append(struct sc_store *store, const uint64_t *copies, uint32_t count,
                                  struct spec_error *reterr)
{
    struct sc_store_append append;
    spec_status status;
    sc_store_log_enter(store);
    do {
        sc_store_append_begin(store, &append);
        sc_store_append_reset(&append);
        sc_store_record_encode_removal(&append.writer, copies, count);
        status = sc_store_append_commit(store, &append, reterr);
    } while (sc_store_log_again(store, &status, reterr));
    sc_store_log_leave(store);
    return status;
}

spec_status sc_store_objects_remove(struct sc_store *store, const uint64_t *copies, uint64_t count,
                                    struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint64_t first = 0, some; first < count && status == SPEC_OK; first += some) {
        some = count - first < SC_STORE_REMOVAL_BATCH ? count - first : SC_STORE_REMOVAL_BATCH;
        uint64_t log_bytes = SC_STORE_FRAME_BYTES + 64 + 8 * some;
        status = log_reserve(store, log_bytes, reterr);
        if (status != SPEC_OK)
            return status;
        status = removal_append(store, copies + first, (uint32_t)some, reterr);
        sc_store_log_unreserve(store, log_bytes);
        if (status == SPEC_OK)
            sc_store_object_unlogged(store, copies + first, some);
    }
    return status;
}

spec_status sc_store_objects_clear(struct sc_store *store, uint32_t domain,
                                   struct spec_error *reterr)
{
    struct sc_store_append append;
    const uint64_t log_bytes = SC_STORE_FRAME_BYTES + 64;
    spec_status status = log_reserve(store, log_bytes, reterr);
    if (status != SPEC_OK)
        return status;
    sc_store_log_enter(store);
    do {
        sc_store_append_begin(store, &append);
        sc_store_append_reset(&append);
        sc_store_record_encode_clear(&append.writer, domain);
        status = sc_store_append_commit(store, &append, reterr);
    } while (sc_store_log_again(store, &status, reterr));
    sc_store_log_leave(store);
    sc_store_log_unreserve(store, log_bytes);
    return status;
}

void sc_store_objects_log_bytes(struct sc_store *store, uint64_t *ret_bytes, uint64_t *ret_most)
{
    pthread_mutex_lock(&store->disk.lock);
    uint64_t used = sc_store_disk_used(store), most = store->disk.bytes_max;
    *ret_bytes = sc_store_counted(&store->counts.log_bytes);
    *ret_most = *ret_bytes + (used < most ? (most - used) / 2 : 0);
    pthread_mutex_unlock(&store->disk.lock);
}
