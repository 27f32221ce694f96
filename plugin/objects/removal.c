/* removal: logs objects that were removed, evicted or damaged.
 *
 *   lock: the entry is not found any more, the event is written   (catalog.c)
 *   commit_lock: appends records of up to 1,024 copies each
 *   lock: pages and entry are freed, unless a get reads them
 *
 * If the append fails the object keeps its pages; the next removal or waiting put retries it. Pages
 * are never reused while the log gives them to an object, and nothing more is evicted meanwhile. A
 * log that cannot be appended is rewritten, without removed objects; after a failure not again
 * soon.
 * Threads: any; one append at a time, under commit_lock. Tests: conformance/objects */
#include "plugin/objects/objects.h"

#define FAR_MOST 4u /* times the pages asked for: evicted, also where others place values */

spec_status sc_objects_record_removals(spec_objects *objects, struct spec_error *reterr)
{
    spec_status status = sc_objects_append_removals(objects, reterr);
    pthread_mutex_lock(&objects->lock);
    sc_objects_upkeep_wake(objects);
    bool may_try = sc_exec_now_ns(objects->exec) >= objects->checkpoint_ns;
    pthread_mutex_unlock(&objects->lock);
    if (status != SPEC_OK && may_try && sc_objects_checkpoint(objects, false, reterr) == SPEC_OK)
        status = sc_objects_append_removals(objects, reterr);
    return status;
}

uint64_t sc_objects_evict(spec_objects *objects, const struct sc_object_domain *domain,
                          bool is_limited, uint64_t pages)
{
    uint64_t count = 0, freed = 0, all = 0; /* pages; freed: where this process may place values */
    bool goes = is_limited || sc_store_object_may_place(objects->store);
    pthread_mutex_lock(&objects->lock);
    bool has_some = objects->unrecorded != 0; /* those first: they have pages and are not found */
    while (goes && !has_some && freed < pages && all < FAR_MOST * pages &&
           count < SC_STORE_REMOVAL_BATCH) {
        uint32_t id = sc_catalog_evict_one(objects, domain, is_limited);
        if (id == 0)
            break;
        const struct sc_object *object = sc_object_of(objects, id);
        freed += is_limited ? sc_object_pages(object->bytes)
                            : sc_store_object_pages_near(objects->store, object->parts,
                                                         object->part_count);
        all += sc_object_pages(object->bytes);
        count++;
    }
    pthread_mutex_unlock(&objects->lock);
    if ((has_some || count > 0) && sc_objects_record_removals(objects, NULL) != SPEC_OK)
        return 0; /* nothing is free yet */
    return has_some ? 1 : count;
}
