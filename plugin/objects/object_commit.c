/* object_commit: appends records of written puts and publishes their objects.
 *
 *   turn [ commit_lock [ lock: take up to 64 | append one record per domain | lock: publish,
 *   answer ] ]
 *
 * If another process appended first (store/log/turn.h), what it appended is read, puts of keys that
 * it has stored end, and the others are appended behind it.
 *
 * A status is DONE after the record was appended and the entry is LIVE. A copy's record precedes
 * that of its removal. Threads: the committer task, one at a time. Tests: conformance/objects */
#include "plugin/objects/objects.h"

#include <string.h>

struct sc_object_commit { /* the committer's, under commit_lock */
    struct sc_object_transfer *transfers[SC_STORE_OBJECT_BATCH];
    struct sc_store_object objects[SC_STORE_OBJECT_BATCH];
    struct sc_store_object_part parts[SC_STORE_OBJECT_BATCH][SC_STORE_OBJECT_PARTS_MAX];
    uint32_t count;
    uint64_t log_bytes;
    bool is_appending; /* its copies may be found in the log */
};

static void batch_add(spec_objects *objects, struct sc_object_commit *batch,
                      struct sc_object_transfer *transfer)
{
    struct sc_object *object = sc_object_of(objects, transfer->entry);
    object->copy = transfer->copy;
    object->tag = transfer->tag;
    memcpy(batch->parts[batch->count], object->parts, object->part_count * sizeof(*object->parts));
    batch->objects[batch->count] =
        (struct sc_store_object){.copy = object->copy,
                                 .bytes = object->bytes,
                                 .tag = object->tag,
                                 .key = transfer->key,
                                 .key_bytes = transfer->key_bytes,
                                 .domain = objects->domains[object->domain].log_id,
                                 .part_count = object->part_count,
                                 .mark = transfer->entry,
                                 .parts = batch->parts[batch->count]};
    batch->log_bytes += transfer->log_bytes;
    batch->transfers[batch->count++] = transfer;
}

/* Takes written puts. Returns false if there are none; then the task is not posted any more. */
static bool batch_take(spec_objects *objects, struct sc_object_commit *batch)
{
    uint64_t dropped_bytes = 0;
    batch->count = 0;
    batch->log_bytes = 0;
    pthread_mutex_lock(&objects->lock);
    while (objects->commits != NULL && batch->count < SC_STORE_OBJECT_BATCH) {
        struct sc_object_transfer *transfer = objects->commits;
        objects->commits = transfer->next;
        if (objects->commits == NULL)
            objects->commits_last = NULL;
        transfer->next = NULL;
        if (transfer->ends_as != 0) {
            dropped_bytes += transfer->log_bytes;
            sc_objects_put_failed(objects, transfer, transfer->ends_as);
        } else {
            batch_add(objects, batch, transfer);
        }
    }
    bool has_some = batch->count > 0 || objects->commits != NULL;
    objects->commits_posted = has_some;
    pthread_mutex_unlock(&objects->lock);
    if (dropped_bytes > 0)
        sc_store_log_unreserve(objects->store, dropped_bytes);
    return has_some;
}

/* `lock` held; the record is logged. */
static void put_publish(spec_objects *objects, struct sc_object_transfer *transfer)
{
    uint32_t id = transfer->entry;
    struct sc_object *object = sc_object_of(objects, id);
    struct sc_object_domain *domain = transfer->job->domain;
    sc_store_object_placed(objects->store, object->parts, object->part_count);
    object->is_placed = false;
    if (transfer->ends_as != 0) { /* removed since: needs a record of its removal */
        object->put = NULL;
        sc_catalog_removal_add(objects, id);
        sc_objects_finish(objects, transfer, transfer->ends_as);
        return;
    }
    SC_OBJECT_COUNT(objects, domain, put_stored, 1);
    SC_OBJECT_COUNT(objects, domain, put_bytes, object->bytes);
    sc_catalog_publish(objects, id, sc_object_tick(objects));
    sc_objects_event_add(objects, object->domain, id, SPEC_EVENT_STORED, 0);
    struct sc_object_transfer *next = transfer->followers;
    transfer->followers = transfer->followers_last = NULL;
    while (next != NULL) {
        struct sc_object_transfer *follower = next;
        next = follower->next;
        follower->next = follower->prev = NULL;
        follower->entry = 0;
        sc_objects_finish(objects, follower, SPEC_KEY_STORED);
    }
    sc_objects_finish(objects, transfer, SPEC_KEY_DONE);
}

/* Builds the batch again, without puts that what other processes appended has ended. */
static void batch_again(spec_objects *objects, struct sc_object_commit *batch)
{
    uint64_t ended_bytes = 0;
    const uint32_t count = batch->count;
    batch->count = 0;
    batch->log_bytes = 0;
    pthread_mutex_lock(&objects->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct sc_object_transfer *transfer = batch->transfers[i];
        if (transfer->ends_as == 0) {
            batch_add(objects, batch, transfer);
            continue;
        }
        ended_bytes += transfer->log_bytes;
        sc_objects_put_failed(objects, transfer, transfer->ends_as);
    }
    pthread_mutex_unlock(&objects->lock);
    sc_store_log_unreserve(objects->store, ended_bytes);
}

/* Turn held. Logs domains that another process has forgotten since they were opened. */
static spec_status domains_tell(spec_objects *objects, struct sc_object_commit *batch,
                                struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint32_t i = 0; i < batch->count && status == SPEC_OK; i++)
        if (batch->objects[i].domain == 0)
            status = sc_objects_domain_tell(objects, batch->transfers[i]->job->domain,
                                            &batch->objects[i].domain, reterr);
    return status;
}

/* Turn held. Appends the batch; or less of it, if other processes were faster. */
static spec_status batch_append(spec_objects *objects, struct sc_object_commit *batch,
                                struct spec_error *reterr)
{
    spec_status status = SPEC_PENDING;
    for (uint32_t i = 0; status == SPEC_PENDING && i < SC_OBJECT_TRIES; i++) {
        status = i > 0 ? sc_store_turn_read(objects->store, reterr) : SPEC_OK;
        if (status == SPEC_OK && i > 0)
            batch_again(objects, batch);
        if (status == SPEC_OK)
            status = domains_tell(objects, batch, reterr);
        if (status == SPEC_OK && batch->count > 0)
            status = sc_store_objects_put(objects->store, batch->objects, batch->count, reterr);
    }
    return status == SPEC_PENDING
               ? sc_fail(reterr, SPEC_E_BUSY, "other processes append all the time")
               : status;
}

/* Turn held. */
static void batch_commit(spec_objects *objects, struct sc_object_commit *batch)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    /* A key's new object comes after the removal of its old one. */
    if (objects->shares && sc_objects_has_removals(objects)) {
        (void)sc_objects_append_removals_first(objects, NULL);
        batch_again(objects, batch); /* that may have read on */
    }
    batch->is_appending = true;
    spec_status status = batch_append(objects, batch, &error);
    batch->is_appending = false;
    if (status != SPEC_OK)
        SC_LOG(&objects->log, SPEC_LOG_WARN, "%" PRIu32 " objects are not stored: %s", batch->count,
               error.text);
    if (status != SPEC_OK && !sc_store_stores(objects->store))
        status = SPEC_E_NO_SPACE; /* as for all puts from here on */
    else if (status == SPEC_E_BUSY)
        status = SPEC_E_IO;
    sc_store_log_unreserve(objects->store, batch->log_bytes);
    pthread_mutex_lock(&objects->lock);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct sc_object_transfer *transfer = batch->transfers[i];
        if (status == SPEC_OK || transfer->is_logged)
            put_publish(objects, transfer);
        else
            sc_objects_put_failed(objects, transfer,
                                  transfer->ends_as != 0 ? transfer->ends_as : status);
    }
    sc_objects_upkeep_wake(objects);
    pthread_mutex_unlock(&objects->lock);
}

bool sc_objects_commit_found(spec_objects *objects, uint64_t copy, uint32_t *ret_id)
{
    struct sc_object_commit *batch = objects->batch;
    for (uint32_t i = 0; batch->is_appending && i < batch->count; i++)
        if (batch->objects[i].copy == copy) {
            batch->transfers[i]->is_logged = true;
            *ret_id = batch->transfers[i]->entry;
            return true;
        }
    return false;
}

static void committer_step(struct sc_task *task)
{
    spec_objects *objects = SC_TASK_OWNER(task, spec_objects, committer);
    bool has_some = true;
    while (has_some) {
        sc_store_turn_begin(objects->store);
        pthread_mutex_lock(&objects->commit_lock);
        has_some = batch_take(objects, objects->batch);
        if (objects->batch->count > 0)
            batch_commit(objects, objects->batch);
        pthread_mutex_unlock(&objects->commit_lock);
        sc_store_turn_end(objects->store);
    }
    if (sc_objects_has_removals(objects))
        (void)sc_objects_record_removals(objects, NULL); /* retried with the next */
    sc_objects_task_end(objects);
}

bool sc_objects_commits_open(spec_objects *objects)
{
    objects->committer.step = committer_step;
    objects->batch = sc_alloc_zero(&objects->alloc, sizeof(*objects->batch));
    return objects->batch != NULL;
}
