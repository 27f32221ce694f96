/* removal_append: appends records of objects that were removed, up to 1,024 copies each. See
 * removal.c, which also rewrites a log that cannot be appended.
 * Threads: any; one append at a time, under commit_lock. Tests: conformance/objects */
#include "plugin/objects/objects.h"

struct removals {
    uint64_t copies[SC_STORE_REMOVAL_BATCH];
    uint32_t ids[SC_STORE_REMOVAL_BATCH];
    uint32_t count;
};

/* `lock` held. */
static void removals_take(spec_objects *objects, struct removals *removals)
{
    removals->count = 0;
    while (objects->unrecorded != 0 && removals->count < SC_STORE_REMOVAL_BATCH) {
        uint32_t id = objects->unrecorded;
        struct sc_object *object = sc_object_of(objects, id);
        objects->unrecorded = object->heap_next;
        object->heap_next = 0;
        if (object->is_recorded) { /* another process removed it, too */
            object->is_listed = false;
            sc_catalog_settle(objects, id);
            continue;
        }
        removals->ids[removals->count] = id;
        removals->copies[removals->count++] = object->copy;
    }
}

/* `lock` held. */
static void removals_end(spec_objects *objects, const struct removals *removals, bool is_recorded)
{
    for (uint32_t i = 0; i < removals->count; i++) {
        struct sc_object *object = sc_object_of(objects, removals->ids[i]);
        if (is_recorded) {
            object->is_recorded = true;
            object->is_listed = false;
            sc_catalog_settle(objects, removals->ids[i]);
        } else {
            sc_catalog_removal_add(objects, removals->ids[i]);
        }
    }
}

bool sc_objects_has_removals(spec_objects *objects)
{
    pthread_mutex_lock(&objects->lock);
    bool has_some = objects->unrecorded != 0;
    pthread_mutex_unlock(&objects->lock);
    return has_some;
}

spec_status sc_objects_append_removals_first(spec_objects *objects, struct spec_error *reterr)
{
    struct removals removals;
    spec_status status = SPEC_OK;
    pthread_mutex_lock(&objects->lock);
    removals_take(objects, &removals);
    while (removals.count > 0) {
        pthread_mutex_unlock(&objects->lock);
        status = sc_store_objects_remove(objects->store, removals.copies, removals.count, reterr);
        pthread_mutex_lock(&objects->lock);
        removals_end(objects, &removals, status == SPEC_OK);
        if (status != SPEC_OK)
            break;
        removals_take(objects, &removals);
    }
    pthread_mutex_unlock(&objects->lock);
    return status;
}

spec_status sc_objects_append_removals(spec_objects *objects, struct spec_error *reterr)
{
    sc_store_turn_begin(objects->store);
    pthread_mutex_lock(&objects->commit_lock);
    spec_status status = sc_objects_append_removals_first(objects, reterr);
    pthread_mutex_unlock(&objects->commit_lock);
    sc_store_turn_end(objects->store);
    return status;
}
