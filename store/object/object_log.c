/* object_log: the log of objects: open, replay, appends. Contract: object.h.
 *
 *   open    identity -> directory -> lock -> log -> segments -> staging -> replay
 *   replay  domain: on_domain; objects: claim pages, on_object; removal: on_removed; clear:
 *           on_cleared; head: the first record only
 *
 * Removals name copies; a table maps each copy to the caller's mark during replay. A record that a
 * checkpoint copied may name a copy that exists already, which is skipped.
 *
 * Invariants: a record that does not fit is counted and skipped. A failed open leaves an existing
 * store unchanged.
 * Threads: open; appends from any thread, under the log lock.
 * Tests: tests/unit/store/test_object_log.c, tests/fuzz/fuzz_objects.c */
#include "store/log/identity.h"
#include "store/log/log_swap.h"
#include "store/log/record_format.h"
#include "store/object/object_record.h"
#include "store/open.h"

#include <string.h>

#define PAGE           ((uint64_t)SC_IO_PAGE_BYTES)
#define FRAMES_LEAST   8u /* of staging */
#define OP_BYTES_LEAST (UINT64_C(64) << 10)
#define COPIES_LEAST   1024u

/* ---- Marks of copies
 * ---------------------------------------------------------------------------- */

struct copies { /* open addressing; mark 0: a free slot */
    struct sc_alloc *alloc;
    struct {
        uint64_t copy;
        uint32_t mark; /* GONE: removed */
        uint32_t reserved;
    } * slots;
    uint64_t mask, count;
};
#define GONE UINT32_MAX

static bool copies_make(struct copies *copies, uint64_t slots)
{
    copies->slots = sc_alloc_array(copies->alloc, slots, sizeof(*copies->slots));
    copies->mask = slots - 1;
    copies->count = 0;
    return copies->slots != NULL;
}

/* Returns the slot of a copy, or its free slot. Copies ascend from a random base. */
static uint64_t copies_find(const struct copies *copies, uint64_t copy)
{
    uint64_t at = (copy * 0x9E3779B97F4A7C15ull >> 20) & copies->mask;
    while (copies->slots[at].mark != 0 && copies->slots[at].copy != copy)
        at = (at + 1) & copies->mask;
    return at;
}

static bool copies_add(struct copies *copies, uint64_t copy, uint32_t mark)
{
    if ((copies->count + 1) * 2 > copies->mask) {
        struct copies old = *copies;
        if (!copies_make(copies, (old.mask + 1) * 2)) {
            *copies = old;
            return false;
        }
        for (uint64_t i = 0; i <= old.mask; i++)
            if (old.slots[i].mark != 0 && old.slots[i].mark != GONE) {
                copies->slots[copies_find(copies, old.slots[i].copy)] = old.slots[i];
                copies->count++;
            }
        sc_alloc_free(copies->alloc, old.slots);
    }
    uint64_t at = copies_find(copies, copy);
    copies->count += copies->slots[at].mark == 0;
    copies->slots[at].copy = copy;
    copies->slots[at].mark = mark;
    return true;
}

/* ---- Replay ---------------------------------------------------------------------------------- */

struct replay {
    const struct sc_store_objects_params *params;
    struct copies copies;
    struct sc_store_object_batch batch;
    uint64_t refused, lies;
};

static spec_status replay_objects(struct sc_store *store, struct replay *replay,
                                  struct spec_error *reterr)
{
    for (uint32_t i = 0; i < replay->batch.count; i++) {
        struct sc_store_object *object = &replay->batch.objects[i];
        uint32_t mark = 0,
                 known = replay->copies.slots[copies_find(&replay->copies, object->copy)].mark;
        if (known != 0 && known != GONE)
            continue;
        if (!sc_store_object_pages_claim(store, object->parts, object->part_count)) {
            replay->refused++;
            continue;
        }
        spec_status status = replay->params->on_object(object, &mark, replay->params->user, reterr);
        if (status == SPEC_OK && !copies_add(&replay->copies, object->copy, mark))
            return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " objects of the log",
                           replay->copies.count);
        if (status != SPEC_OK)
            sc_store_object_pages_free(store, object->parts, object->part_count);
        if (status != SPEC_OK && status != SPEC_E_BUSY)
            return status;
        replay->refused += status == SPEC_E_BUSY;
    }
    return SPEC_OK;
}

static void replay_removal(struct replay *replay, const uint8_t *copies, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t copy = sc_store_le_get(copies + 8ull * i, 8);
        uint64_t at = copies_find(&replay->copies, copy);
        uint32_t mark = replay->copies.slots[at].mark;
        if (mark == 0 || mark == GONE)
            continue;
        replay->params->on_removed(mark, copy, replay->params->user);
        replay->copies.slots[at].mark = GONE;
    }
}

static spec_status version_check(struct sc_store *store, const struct sc_store_record *record,
                                 struct spec_error *reterr)
{
    bool is_known =
        record->type == SC_STORE_RECORD_HEAD ||
        (record->type >= SC_STORE_RECORD_DOMAIN && record->type <= SC_STORE_RECORD_CLEAR);
    if (is_known && record->version == SC_STORE_RECORD_VERSION)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_VERSION,
                   "%s/log record %" PRIu64 " has type %" PRIu64 " version %" PRIu64
                   ", this build reads types 6 and 11 to 14 version %u",
                   store->dir, store->log.journal.end.sequence + 1, record->type, record->version,
                   SC_STORE_RECORD_VERSION);
}

/* A removal may be among the records that are missing: its object must not come back, and later
 * ones may have its pages. Which one is not known. */
static void replay_gap(const struct replay *replay)
{
    replay->params->on_cleared(0, replay->params->user);
}

static spec_status replay_record(struct sc_store *store, const struct sc_store_payload *payload,
                                 void *user, struct spec_error *reterr)
{
    struct replay *replay = user;
    struct sc_store_record record = {0};
    const uint8_t *bytes;
    uint32_t count;
    if (payload->gap == SC_STORE_GAP_RESETS)
        replay_gap(replay);
    if (payload->at == NULL)
        return SPEC_OK;
    bool is_true = sc_store_record_peek(payload->at, payload->bytes, &record);
    spec_status status = is_true ? version_check(store, &record, reterr) : SPEC_OK;
    if (status != SPEC_OK)
        return status;
    if (is_true && record.type == SC_STORE_RECORD_HEAD) {
        is_true = store->log.journal.end.sequence == 0 &&
                  sc_store_record_decode(payload->at, payload->bytes, &record);
        if (is_true)
            store->log.journal.head = record.head;
    } else if (is_true && record.type == SC_STORE_RECORD_DOMAIN) {
        is_true = sc_store_record_get_domain(payload->at, payload->bytes, &bytes, &count) &&
                  record.id > 0 && record.id < SC_STORE_OBJECT_DOMAINS;
        if (is_true)
            status = replay->params->on_domain((uint32_t)record.id, bytes, count,
                                               replay->params->user, reterr);
    } else if (is_true && record.type == SC_STORE_RECORD_OBJECTS) {
        is_true = sc_store_record_get_objects(payload->at, payload->bytes, &replay->batch);
        if (is_true)
            status = replay_objects(store, replay, reterr);
    } else if (is_true && record.type == SC_STORE_RECORD_REMOVAL) {
        is_true = sc_store_record_get_removal(payload->at, payload->bytes, &bytes, &count);
        if (is_true)
            replay_removal(replay, bytes, count);
    } else if (is_true && record.id > 0 && record.id < SC_STORE_OBJECT_DOMAINS) {
        replay->params->on_cleared((uint32_t)record.id, replay->params->user);
    }
    replay->lies += !is_true;
    return status;
}

static void replay_tell(struct sc_store *store, const struct replay *replay,
                        struct sc_store_objects_found *found)
{
    const struct sc_store_journal *journal = &store->log.journal;
    found->refused = replay->refused;
    found->damaged = journal->damaged_count + replay->lies;
    found->wants_checkpoint = found->refused > 0 || found->damaged > 0 ||
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
    if (store->log.journal.end.sequence > 0)
        return SPEC_OK;
    store->log.journal.head = (struct sc_store_record_head){
        .numbering = sc_exec_wall_ns(store->params.exec), .piece_next = 1, .extent_next = 1};
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_head(&append.writer, &store->log.journal.head);
    return sc_store_append_commit(store, &append, reterr);
}

static spec_status replay_log(struct sc_store *store, const struct sc_store_objects_params *params,
                              struct sc_store_objects_found *found, struct spec_error *reterr)
{
    struct replay *replay = sc_alloc_zero(store->params.alloc, sizeof(*replay));
    if (replay == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "replay buffers");
    replay->params = params;
    replay->copies.alloc = store->params.alloc;
    spec_status status = SPEC_OK;
    if (!copies_make(&replay->copies, COPIES_LEAST))
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "replay buffers");
    if (status == SPEC_OK)
        status = sc_store_journal_scan(store, replay_record, replay, reterr);
    if (status == SPEC_OK)
        replay_tell(store, replay, found);
    atomic_store(&store->counts.log_bytes, store->log.journal.file_end);
    if (status == SPEC_OK)
        status = log_begin(store, reterr);
    if (status == SPEC_OK) {
        sc_store_log_new_remove_all(store);
        sc_store_write_budget_file_remove(store);
        sc_store_segments_trim(store);
    }
    sc_alloc_free(store->params.alloc, replay->copies.slots);
    sc_alloc_free(store->params.alloc, replay);
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
    sc_store_base_free(store);
}

spec_status sc_store_objects_open(const struct sc_store_objects_params *params,
                                  struct sc_store **ret_store,
                                  struct sc_store_objects_found *ret_found,
                                  struct spec_error *reterr)
{
    struct sc_store *store = sc_store_base_make(&params->store);
    if (store == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "store handle");
    store->params.role = SC_STORE_WRITER;
    store->params.is_objects = true;
    *ret_found = (struct sc_store_objects_found){0};
    spec_status status = sc_store_io_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_dir_name(store, SC_STORE_OBJECTS_PREFIX, reterr);
    if (status == SPEC_OK)
        status = sc_store_identity_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_kind_check(store, SC_STORE_ROWS_PREFIX, "rows", reterr);
    if (status == SPEC_OK)
        status = sc_store_dir_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_journal_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_write_budget_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_segments_open(store, reterr);
    if (status == SPEC_OK)
        status = staging_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_copies_open(store, reterr);
    *ret_store = store; /* callbacks of the replay free pages */
    if (status == SPEC_OK)
        status = replay_log(store, params, ret_found, reterr);
    if (status == SPEC_OK)
        return SPEC_OK;
    store_free(store);
    *ret_store = NULL;
    return status;
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
    uint64_t log_bytes = SC_STORE_FRAME_BYTES + 64 + bytes;
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
                                 uint32_t count, uint64_t log_bytes, struct spec_error *reterr)
{
    struct sc_store_append append;
    SC_ASSERT(store->params.poison, count > 0 && count <= SC_STORE_OBJECT_BATCH);
    sc_store_object_parts_number(store, objects, count);
    pthread_mutex_lock(&store->log.lock);
    sc_store_append_begin(store, &append);
    for (uint32_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && objects[end].domain == objects[i].domain; end++)
            ;
        sc_store_append_frame(&append);
        sc_store_record_encode_objects(&append.writer, &objects[i], end - i);
    }
    spec_status status = sc_store_append_commit(store, &append, reterr);
    pthread_mutex_unlock(&store->log.lock);
    sc_store_log_unreserve(store, log_bytes);
    return status;
}

spec_status sc_store_objects_remove(struct sc_store *store, const uint64_t *copies, uint64_t count,
                                    struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint64_t first = 0, some; first < count && status == SPEC_OK; first += some) {
        struct sc_store_append append;
        some = count - first < SC_STORE_REMOVAL_BATCH ? count - first : SC_STORE_REMOVAL_BATCH;
        uint64_t log_bytes = SC_STORE_FRAME_BYTES + 64 + 8 * some;
        status = log_reserve(store, log_bytes, reterr);
        if (status != SPEC_OK)
            return status;
        pthread_mutex_lock(&store->log.lock);
        sc_store_append_begin(store, &append);
        sc_store_append_reset(&append);
        sc_store_record_encode_removal(&append.writer, copies + first, (uint32_t)some);
        status = sc_store_append_commit(store, &append, reterr);
        pthread_mutex_unlock(&store->log.lock);
        sc_store_log_unreserve(store, log_bytes);
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
    pthread_mutex_lock(&store->log.lock);
    sc_store_append_begin(store, &append);
    sc_store_append_reset(&append);
    sc_store_record_encode_clear(&append.writer, domain);
    status = sc_store_append_commit(store, &append, reterr);
    pthread_mutex_unlock(&store->log.lock);
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
