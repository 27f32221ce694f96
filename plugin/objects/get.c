/* get: looks keys up and pins them; reads, verifies and delivers values in place.
 *
 *   queue -> loader: reads into the host's memory -> verify: tag -> DONE
 *                                                  -> CORRUPT, IO: the object is removed
 *
 * A pinned object's pages are not reused by this process alone; beside others they may be
 * (objects.h). A status is DONE only after the tag matched. Threads: per function. Tests:
 * conformance/objects */
#include "plugin/objects/objects.h"

/* `lock` held. Removes an object that cannot be delivered, unless it is removed already. */
static void object_damaged(spec_objects *objects, uint32_t id)
{
    if (sc_object_of(objects, id)->is_leaving)
        return;
    sc_key_table_expel(&objects->table, id);
    sc_catalog_leave(objects, id, SPEC_REMOVED_DAMAGED, true);
}

/* `lock` held. Ends a successful get. */
static void get_deliver(spec_objects *objects, struct sc_object_transfer *transfer)
{
    SC_OBJECT_COUNT(objects, transfer->job->domain, get_hits, 1);
    SC_OBJECT_COUNT(objects, transfer->job->domain, get_bytes, transfer->bytes);
    sc_catalog_unpin(objects, transfer->entry);
    sc_objects_finish(objects, transfer, SPEC_KEY_DONE);
}

/* `lock` held. Ends a failed get. */
static void get_fail(spec_objects *objects, struct sc_object_transfer *transfer, int32_t status)
{
    uint32_t id = transfer->entry;
    if (objects->shares && sc_object_of(objects, id)->is_leaving) { /* its pages are another's */
        sc_catalog_unpin(objects, id);
        sc_objects_finish(objects, transfer, SPEC_KEY_ABSENT);
        return;
    }
    SC_LOG(&objects->log, SPEC_LOG_WARN, "an object of %" PRIu64 " bytes %s and is removed",
           transfer->bytes, status == SPEC_E_CORRUPT ? "failed verification" : "cannot be read");
    object_damaged(objects, id);
    sc_catalog_unpin(objects, id);
    sc_objects_finish(objects, transfer, status);
}

static bool tag_fits(const spec_objects *objects, const struct sc_object_transfer *transfer)
{
    const struct sc_object *object = sc_object_of(objects, transfer->entry);
    return sc_objects_tag(transfer, object->copy) == object->tag;
}

static void verify_step(struct sc_task *task)
{
    struct sc_object_transfer *transfer = SC_TASK_OWNER(task, struct sc_object_transfer, task);
    spec_objects *objects = transfer->job->objects;
    int32_t status = atomic_load(&transfer->status);
    bool again = status == SPEC_OK && atomic_load(&transfer->wants_bounce);
    if (status == SPEC_OK && !again && !tag_fits(objects, transfer))
        status = SPEC_E_CORRUPT;
    if (status != SPEC_OK) { /* another process may have removed it, which is read now */
        sc_store_turn_begin(objects->store);
        sc_store_turn_end(objects->store);
    }
    pthread_mutex_lock(&objects->lock);
    sc_objects_run_end(objects, transfer);
    if (again) {
        transfer->bounces = true;
        sc_objects_queue_add(&objects->gets, transfer, true);
        sc_objects_queue_wake(objects, &objects->gets, SC_IO_CLASS_DEMAND);
    } else if (status == SPEC_OK) {
        get_deliver(objects, transfer);
    } else {
        get_fail(objects, transfer, status);
    }
    pthread_mutex_unlock(&objects->lock);
    if (status != SPEC_OK)
        (void)sc_objects_record_removals(objects, NULL); /* retried with the next */
    sc_objects_task_end(objects);
}

/* Runs on the back end's thread. Verifies short values while they are in its cache; a task handles
 * longer ones and failures. */
static void get_ended(spec_objects *objects, struct sc_object_transfer *transfer)
{
    bool is_right = transfer->bytes <= SC_STORE_OBJECT_UNIT &&
                    atomic_load(&transfer->status) == SPEC_OK &&
                    !atomic_load(&transfer->wants_bounce) && tag_fits(objects, transfer);
    if (is_right) {
        pthread_mutex_lock(&objects->lock);
        sc_objects_run_end(objects, transfer);
        get_deliver(objects, transfer);
        pthread_mutex_unlock(&objects->lock);
        return;
    }
    transfer->task.step = verify_step;
    sc_objects_post(objects, &transfer->task, SC_IO_CLASS_DEMAND);
}

void sc_objects_get_begin(spec_objects *objects, struct sc_object_job *job)
{
    const uint32_t tick = sc_object_tick(objects);
    uint32_t space = (uint32_t)(job->domain - objects->domains);
    SC_OBJECT_COUNT(objects, job->domain, get_keys, job->count);
    for (uint32_t i = 0, count = job->count; i < count; i++) {
        struct sc_object_transfer *transfer = &job->transfers[i];
        uint32_t id = sc_key_table_find(&objects->table, space, transfer->key, transfer->key_bytes);
        struct sc_key_entry *entry = id != 0 ? sc_key_table_entry(&objects->table, id) : NULL;
        if (id == 0 || sc_key_entry_state(entry) != SC_KEY_LIVE) {
            sc_objects_finish(objects, transfer, SPEC_KEY_ABSENT);
            continue;
        }
        atomic_store_explicit(&entry->used, tick, memory_order_relaxed);
        sc_store_use(objects->store, sc_object_of(objects, id)->copy);
        transfer->bytes = sc_object_of(objects, id)->bytes;
        if (sc_objects_pieces_bytes(transfer) != transfer->bytes) {
            sc_objects_finish(objects, transfer, SPEC_E_INVALID);
            continue;
        }
        transfer->entry = id;
        sc_catalog_pin(objects, id);
        transfer->ended = get_ended;
        sc_objects_queue_add(&objects->gets, transfer, false);
    }
    if (objects->gets.head != NULL)
        sc_objects_queue_wake(objects, &objects->gets, SC_IO_CLASS_DEMAND);
}

/* Returns the next transfer to issue; NULL: none, and the task is not posted any more. */
static struct sc_object_transfer *loader_next(spec_objects *objects)
{
    struct sc_object_queue *queue = &objects->gets;
    pthread_mutex_lock(&objects->lock);
    struct sc_object_transfer *transfer = queue->current;
    queue->runs_again = false;
    if (transfer == NULL && queue->head != NULL) {
        transfer = queue->current = queue->head;
        sc_objects_queue_remove(queue, transfer);
        transfer->state = SC_OBJECT_RUNNING;
        sc_objects_run_begin(objects, transfer, 1);
    }
    queue->is_posted = transfer != NULL;
    pthread_mutex_unlock(&objects->lock);
    return transfer;
}

/* Stops for lack of operations. Returns false if some arrived meanwhile. */
static bool loader_rests(spec_objects *objects)
{
    pthread_mutex_lock(&objects->lock);
    objects->gets.is_posted = objects->gets.runs_again;
    bool rests = !objects->gets.is_posted;
    pthread_mutex_unlock(&objects->lock);
    return rests;
}

static void loader_step(struct sc_task *task)
{
    spec_objects *objects = SC_TASK_OWNER(task, spec_objects, gets.task);
    struct sc_object_transfer *transfer;
    while ((transfer = loader_next(objects)) != NULL) {
        if (!sc_objects_issue(objects, transfer, &objects->reads)) {
            if (loader_rests(objects))
                break;
            continue;
        }
        pthread_mutex_lock(&objects->lock);
        objects->gets.current = NULL;
        pthread_mutex_unlock(&objects->lock);
        sc_objects_unref(objects, transfer);
    }
    sc_objects_task_end(objects);
}

void sc_objects_gets_open(spec_objects *objects)
{
    objects->gets.task.step = loader_step;
}
