/* object_commit: appends records of written puts and publishes their objects.
 *
 *   commit_lock [ lock: take up to 64 | append one record per domain | lock: publish, answer ]
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
        if (transfer->is_dropped) {
            dropped_bytes += transfer->log_bytes;
            sc_objects_put_failed(objects, transfer, SPEC_E_DROPPED);
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
    if (transfer->is_dropped) { /* removed since: needs a record of its removal */
        object->put = NULL;
        object->heap_next = objects->unrecorded;
        objects->unrecorded = id;
        sc_objects_finish(objects, transfer, SPEC_E_DROPPED);
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

static void batch_commit(spec_objects *objects, struct sc_object_commit *batch)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_store_objects_put(objects->store, batch->objects, batch->count,
                                              batch->log_bytes, &error);
    if (status != SPEC_OK)
        SC_LOG(&objects->log, SPEC_LOG_WARN, "%" PRIu32 " objects are not stored: %s", batch->count,
               error.text);
    pthread_mutex_lock(&objects->lock);
    for (uint32_t i = 0; i < batch->count; i++) {
        if (status == SPEC_OK)
            put_publish(objects, batch->transfers[i]);
        else
            sc_objects_put_failed(objects, batch->transfers[i],
                                  batch->transfers[i]->is_dropped ? SPEC_E_DROPPED : status);
    }
    sc_objects_upkeep_wake(objects);
    pthread_mutex_unlock(&objects->lock);
}

static void committer_step(struct sc_task *task)
{
    spec_objects *objects = SC_TASK_OWNER(task, spec_objects, committer);
    bool has_some = true, has_removals = false;
    while (has_some) {
        pthread_mutex_lock(&objects->commit_lock);
        has_some = batch_take(objects, objects->batch);
        if (objects->batch->count > 0)
            batch_commit(objects, objects->batch);
        pthread_mutex_unlock(&objects->commit_lock);
    }
    pthread_mutex_lock(&objects->lock);
    has_removals = objects->unrecorded != 0;
    pthread_mutex_unlock(&objects->lock);
    if (has_removals)
        (void)sc_objects_record_removals(objects, NULL); /* retried with the next */
    sc_objects_task_end(objects);
}

bool sc_objects_commits_open(spec_objects *objects)
{
    objects->committer.step = committer_step;
    objects->batch = sc_alloc_zero(&objects->alloc, sizeof(*objects->batch));
    return objects->batch != NULL;
}
