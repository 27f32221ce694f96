/* object_follow: what the log's records do to the index, at open and while other processes append.
 *
 *   record of            entry here    does
 *   objects              none          LIVE
 *                        PENDING       ends that put: STORED; then LIVE
 *   removal              LIVE          leaves, without a record of our own
 *                        LEAVING       its pages are free: another may have them
 *   clear                LIVE ..       all of the domain leave
 *   domain               none          a slot; without an identity: it is forgotten
 *
 * A task asks every 25 ms whether the log has changed; and every append of our own reads on before
 * (store/log/turn.h).
 * Threads: open; then the thread that has the turn, without a lock.
 * Tests: tests/unit/plugin/test_objects_members.c */
#include "plugin/objects/objects.h"

#define FOLLOW_NS 25000000ull

/* ---- Records --------------------------------------------------------------------------------- */

static void forget(spec_objects *objects, uint32_t id)
{
    sc_key_table_expel(&objects->table, id);
    sc_catalog_leave(objects, id, SC_CATALOG_CLEARED, true);
    sc_catalog_settle(objects, id);
}

/* A process that does not use it, and knows of no object, has forgotten it. */
static void domain_leaves(spec_objects *objects, struct sc_object_domain *domain)
{
    while (domain->heap != 0) /* if records of removals were lost */
        forget(objects, domain->heap);
    sc_objects_domain_forget(objects, domain);
}

static spec_status on_domain(uint32_t id, const uint8_t *identity, uint32_t bytes, void *user,
                             struct spec_error *reterr)
{
    spec_objects *objects = user;
    spec_status status = SPEC_OK;
    pthread_mutex_lock(&objects->lock);
    struct sc_object_domain *domain = sc_objects_domain_by_id(objects, id);
    if (bytes > 0)
        status = sc_objects_domain_found(objects, id, identity, bytes, reterr);
    else if (domain != NULL)
        domain_leaves(objects, domain);
    pthread_mutex_unlock(&objects->lock);
    return status;
}

/* Returns a new entry of the key; 0: none. */
static uint32_t entry_make(spec_objects *objects, uint32_t space,
                           const struct sc_store_object *found)
{
    uint32_t id = sc_key_table_add(&objects->table, space, found->key, found->key_bytes);
    if (id == 0 || sc_catalog_reserve(objects, id))
        return id;
    sc_key_table_expel(&objects->table, id);
    sc_key_table_unlink(&objects->table, id);
    sc_key_table_free(&objects->table, id);
    return 0;
}

static spec_status object_add(spec_objects *objects, const struct sc_store_object *found,
                              uint32_t *ret_mark, struct spec_error *reterr)
{
    struct sc_object_domain *domain = sc_objects_domain_by_id(objects, found->domain);
    if (domain == NULL)
        return SPEC_E_BUSY;
    uint32_t space = (uint32_t)(domain - objects->domains);
    uint32_t id = sc_key_table_find(&objects->table, space, found->key, found->key_bytes);
    if (id != 0 && sc_object_of(objects, id)->put != NULL)
        sc_objects_put_end(objects, id, SPEC_KEY_STORED);
    else if (id != 0) /* without a removal record: the later one counts */
        forget(objects, id);
    id = entry_make(objects, space, found);
    if (id == 0 && objects->table.lacks_memory) /* refusing it would drop it for good */
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "index of objects");
    if (id == 0)
        return SPEC_E_BUSY; /* index_bytes_max was reduced */
    struct sc_object *object = sc_object_of(objects, id);
    object->domain = space;
    object->bytes = found->bytes;
    object->copy = found->copy;
    object->tag = found->tag;
    if (!sc_catalog_parts_set(objects, object, found->parts, found->part_count))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "parts of an object");
    sc_catalog_publish(objects, id,
                       objects->is_open ? sc_object_tick(objects) : ++objects->tick_base);
    if (objects->is_open)
        sc_objects_event_add(objects, space, id, SPEC_EVENT_STORED, 0);
    *ret_mark = id;
    return SPEC_OK;
}

static spec_status on_object(const struct sc_store_object *found, uint32_t *ret_mark, void *user,
                             struct spec_error *reterr)
{
    spec_objects *objects = user;
    pthread_mutex_lock(&objects->lock);
    spec_status status = object_add(objects, found, ret_mark, reterr);
    pthread_mutex_unlock(&objects->lock);
    return status;
}

static void on_removed(uint32_t mark, uint64_t copy, void *user)
{
    spec_objects *objects = user;
    pthread_mutex_lock(&objects->lock);
    if (sc_object_of(objects, mark)->copy == copy && objects->is_open)
        sc_catalog_removed(objects, mark);
    else if (sc_object_of(objects, mark)->copy == copy &&
             sc_key_entry_state(sc_key_table_entry(&objects->table, mark)) == SC_KEY_LIVE)
        forget(objects, mark);
    pthread_mutex_unlock(&objects->lock);
}

/* Those whose removal here has no record yet: the clear is one. */
static void leaving_cleared(spec_objects *objects, uint32_t space)
{
    for (uint32_t id = 1; id < objects->table.entry_end; id++) {
        const struct sc_key_entry *entry = sc_key_table_entry(&objects->table, id);
        if (sc_key_entry_state(entry) == SC_KEY_LEAVING &&
            atomic_load_explicit(&entry->space, memory_order_relaxed) == space)
            sc_catalog_removed(objects, id);
    }
}

static void on_cleared(uint32_t log_id, void *user)
{
    spec_objects *objects = user;
    pthread_mutex_lock(&objects->lock);
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++) {
        const struct sc_object_domain *domain = &objects->domains[i];
        bool is_meant = domain->log_id != 0 && (log_id == 0 || domain->log_id == log_id);
        while (is_meant && domain->heap != 0) { /* all LIVE ones; the log may have many clears */
            if (log_id == 0) /* the log is read again, and its records have these pages */
                sc_catalog_pages_give(objects, domain->heap);
            forget(objects, domain->heap);
        }
        if (is_meant && objects->is_open && log_id != 0) {
            leaving_cleared(objects, i);
            sc_objects_event_add(objects, i, 0, SPEC_EVENT_CLEARED, 0);
        }
    }
    pthread_mutex_unlock(&objects->lock);
}

static void on_restart(void *user)
{
    spec_objects *objects = user;
    on_cleared(0, objects);
    pthread_mutex_lock(&objects->lock);
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++)
        sc_objects_domain_forget(objects, &objects->domains[i]);
    pthread_mutex_unlock(&objects->lock);
}

static bool on_own(uint64_t copy, uint32_t *ret_mark, void *user)
{
    return sc_objects_commit_found(user, copy, ret_mark);
}

static bool knows(uint32_t mark, uint64_t copy, void *user)
{
    spec_objects *objects = user;
    pthread_mutex_lock(&objects->lock);
    bool is_it = sc_object_of(objects, mark)->copy == copy;
    pthread_mutex_unlock(&objects->lock);
    return is_it;
}

void sc_objects_follow_params(spec_objects *objects, struct sc_store_objects_params *ret_params)
{
    ret_params->on_domain = on_domain;
    ret_params->on_object = on_object;
    ret_params->on_removed = on_removed;
    ret_params->on_cleared = on_cleared;
    ret_params->on_restart = on_restart;
    ret_params->on_own = on_own;
    ret_params->knows = objects->shares ? knows : NULL;
    ret_params->user = objects;
}

/* ---- The task -------------------------------------------------------------------------------- */

/* `lock` held. */
static void follow_arm(spec_objects *objects)
{
    if (objects->is_closing)
        return;
    objects->follow_armed = true;
    atomic_fetch_add(&objects->tasks, 1);
    sc_exec_post_at(objects->exec, &objects->follow, SC_IO_CLASS_BACKGROUND,
                    sc_exec_now_ns(objects->exec) + FOLLOW_NS);
}

static void follow_step(struct sc_task *task)
{
    spec_objects *objects = SC_TASK_OWNER(task, spec_objects, follow);
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = SPEC_OK;
    for (bool more = sc_store_follow_due(objects->store); more && status == SPEC_OK;)
        status = sc_store_follow(objects->store, &more, &error);
    if (status != SPEC_OK)
        SC_LOG(&objects->log, SPEC_LOG_DEBUG, "what others store is not followed: %s", error.text);
    if (sc_store_claims_tick(objects->store)) {
        pthread_mutex_lock(&objects->lock);
        sc_objects_room_came(objects);
        pthread_mutex_unlock(&objects->lock);
    }
    if (sc_objects_has_removals(objects))
        (void)sc_objects_record_removals(objects, NULL);
    pthread_mutex_lock(&objects->lock);
    objects->follow_armed = false;
    follow_arm(objects);
    pthread_mutex_unlock(&objects->lock);
    sc_objects_task_end(objects);
}

void sc_objects_follow_begin(spec_objects *objects)
{
    if (!objects->shares)
        return;
    objects->follow.step = follow_step;
    pthread_mutex_lock(&objects->lock);
    follow_arm(objects);
    pthread_mutex_unlock(&objects->lock);
}

void sc_objects_follow_end(spec_objects *objects)
{
    pthread_mutex_lock(&objects->lock);
    bool was_armed = objects->follow_armed && sc_exec_cancel(objects->exec, &objects->follow);
    pthread_mutex_unlock(&objects->lock);
    if (was_armed)
        sc_objects_task_end(objects);
}

/* ---- Alone ----------------------------------------------------------------------------------- */

spec_status sc_objects_alone_begin(spec_objects *objects, struct spec_error *reterr)
{
    pthread_mutex_lock(&objects->lock);
    spec_status status = sc_store_objects_alone(objects->store, reterr);
    objects->alone_count += status == SPEC_OK;
    pthread_mutex_unlock(&objects->lock);
    sc_store_turn_begin(objects->store); /* reads what the others did before they ended */
    sc_store_turn_end(objects->store);
    return status;
}

void sc_objects_alone_end(spec_objects *objects)
{
    pthread_mutex_lock(&objects->lock);
    bool is_last = --objects->alone_count == 0;
    for (uint32_t id = 1; is_last && objects->shares && id < objects->table.entry_end; id++)
        if (sc_key_entry_state(sc_key_table_entry(&objects->table, id)) == SC_KEY_LEAVING)
            sc_catalog_settle(objects, id); /* its pages are for all from here on */
    if (is_last)
        sc_store_objects_alone_end(objects->store);
    pthread_mutex_unlock(&objects->lock);
}
