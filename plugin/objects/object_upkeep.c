/* object_upkeep: checkpoints rewrite the log from memory in the order of use, which survives
 * restarts.
 *
 *   checkpoint_lock
 *     commit_lock  [note the log's end; round + 1]
 *     domains, then LIVE objects of earlier rounds, sorted by last use, 64 at a time
 *     records appended meanwhile; swap (store/object/object_checkpoint.c)
 *
 * Pages reused since the beginning have objects of the new round. These are not written but copied
 * with the log's end, after the removals of the previous owners.
 *
 * Other processes go on in the new log with what they know. So what is left out, because it was
 * removed here, has a record in the old log before that ends: should this process be killed, they
 * would keep it, and whoever joins would not know of it.
 * Threads: one at a time, under checkpoint_lock; `lock` for 64 objects at a time.
 * Tests: tests/unit/plugin/test_objects.c, conformance/objects */
#include "plugin/objects/objects.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_NS 5000000000ull /* after a failed checkpoint */
/* a log below this plus twice its live bytes is not rewritten */
#define GROWN_BYTES (256ull << 10)

struct use {
    uint64_t rank;
    uint32_t id, domain;
};

struct dump {
    struct use *uses;
    uint64_t count;
    struct sc_store_object objects[SC_STORE_OBJECT_BATCH];
    struct sc_store_object_part parts[SC_STORE_OBJECT_BATCH][SC_STORE_OBJECT_PARTS_MAX];
    uint8_t keys[SC_STORE_OBJECT_BATCH][SC_KEY_BYTES_MAX];
    uint8_t identity[SPEC_DOMAIN_BYTES_MAX];
};

static int use_compare(const void *left, const void *right)
{
    const struct use *a = left, *b = right;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int domain_compare(const void *left, const void *right)
{
    const struct use *a = left, *b = right;
    if (a->domain != b->domain)
        return a->domain < b->domain ? -1 : 1;
    return use_compare(left, right);
}

/* `lock` held. LIVE, and recorded before this round. */
static bool is_dumped(const spec_objects *objects, uint32_t id)
{
    return sc_key_entry_state(sc_key_table_entry(&objects->table, id)) == SC_KEY_LIVE &&
           sc_object_of(objects, id)->round < objects->round;
}

static spec_status uses_collect(spec_objects *objects, struct dump *dump, struct spec_error *reterr)
{
    pthread_mutex_lock(&objects->lock);
    uint64_t most = objects->table.linked_count;
    uint32_t end = objects->table.entry_end;
    pthread_mutex_unlock(&objects->lock);
    dump->uses = sc_alloc_array(&objects->alloc, most > 0 ? most : 1, sizeof(*dump->uses));
    if (dump->uses == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a checkpoint of %" PRIu64 " objects", most);
    pthread_mutex_lock(&objects->lock);
    for (uint32_t id = 1; id < end && dump->count < most; id++) {
        const struct sc_key_entry *entry = sc_key_table_entry(&objects->table, id);
        if (is_dumped(objects, id)) {
            uint64_t used = atomic_load_explicit(&entry->used, memory_order_relaxed);
            struct sc_object *object = sc_object_of(objects, id);
            dump->uses[dump->count++] =
                (struct use){used << 32 | (UINT32_MAX - object->order), id, object->domain};
        }
        if (id % SC_KEY_SLAB == 0) {
            pthread_mutex_unlock(&objects->lock);
            pthread_mutex_lock(&objects->lock);
        }
    }
    pthread_mutex_unlock(&objects->lock);
    qsort(dump->uses, dump->count, sizeof(*dump->uses), use_compare);
    return SPEC_OK;
}

/* `lock` held. Copies an object's record. */
static void object_copy(const spec_objects *objects, struct dump *dump, uint32_t i, uint32_t id)
{
    const struct sc_object *object = sc_object_of(objects, id);
    memcpy(dump->parts[i], object->parts, object->part_count * sizeof(*object->parts));
    dump->objects[i] =
        (struct sc_store_object){.copy = object->copy,
                                 .bytes = object->bytes,
                                 .tag = object->tag,
                                 .key = dump->keys[i],
                                 .key_bytes = sc_key_table_key(&objects->table, id, dump->keys[i]),
                                 .domain = objects->domains[object->domain].log_id,
                                 .part_count = object->part_count,
                                 .parts = dump->parts[i]};
}

/* Writes up to 64 objects, one record per domain. */
static spec_status objects_dump(spec_objects *objects, struct dump *dump,
                                struct sc_store_object_copy *copy, struct use *uses,
                                uint32_t use_count, struct spec_error *reterr)
{
    uint32_t count = 0, end;
    spec_status status = SPEC_OK;
    qsort(uses, use_count, sizeof(*uses), domain_compare);
    pthread_mutex_lock(&objects->lock);
    for (uint32_t i = 0; i < use_count; i++)
        if (is_dumped(objects, uses[i].id))
            object_copy(objects, dump, count++, uses[i].id);
    pthread_mutex_unlock(&objects->lock);
    for (uint32_t i = 0; i < count && status == SPEC_OK; i = end) {
        for (end = i + 1; end < count && dump->objects[end].domain == dump->objects[i].domain;)
            end++;
        status = sc_store_objects_copy_objects(copy, &dump->objects[i], end - i, reterr);
    }
    return status;
}

/* Writes domains that are open or hold something; forgets the others. */
static spec_status domains_dump(spec_objects *objects, struct dump *dump,
                                struct sc_store_object_copy *copy, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX && status == SPEC_OK; i++) {
        struct sc_object_domain *domain = &objects->domains[i];
        pthread_mutex_lock(&objects->lock);
        if (domain->log_id != 0 && sc_objects_domain_may_go(objects, domain))
            sc_objects_domain_forget(objects, domain);
        uint32_t log_id = domain->log_id, bytes = domain->identity_bytes;
        if (log_id != 0)
            memcpy(dump->identity, domain->identity, bytes);
        pthread_mutex_unlock(&objects->lock);
        if (log_id != 0)
            status = sc_store_objects_copy_domain(copy, log_id, dump->identity, bytes, reterr);
    }
    return status;
}

static spec_status checkpoint_run(spec_objects *objects, struct dump *dump, bool erases,
                                  struct sc_store_object_copy **ret_copy, struct spec_error *reterr)
{
    sc_store_turn_begin(objects->store);
    sc_objects_domains_forget(objects);
    pthread_mutex_lock(&objects->commit_lock);
    spec_status status = sc_store_objects_copy_begin(objects->store, ret_copy, reterr);
    pthread_mutex_lock(&objects->lock);
    objects->round++;
    pthread_mutex_unlock(&objects->lock);
    pthread_mutex_unlock(&objects->commit_lock);
    sc_store_turn_end(objects->store);
    if (status == SPEC_OK)
        status = domains_dump(objects, dump, *ret_copy, reterr);
    if (status == SPEC_OK)
        status = uses_collect(objects, dump, reterr);
    for (uint64_t i = 0; i < dump->count && status == SPEC_OK; i += SC_STORE_OBJECT_BATCH) {
        uint64_t left = dump->count - i;
        uint32_t some = left < SC_STORE_OBJECT_BATCH ? (uint32_t)left : SC_STORE_OBJECT_BATCH;
        status = objects_dump(objects, dump, *ret_copy, &dump->uses[i], some, reterr);
    }
    if (status == SPEC_OK && objects->is_open && objects->shares)
        (void)sc_objects_append_removals(objects, NULL);
    return status == SPEC_OK ? sc_store_objects_copy_end(*ret_copy, erases, reterr) : status;
}

spec_status sc_objects_checkpoint(spec_objects *objects, bool erases, struct spec_error *reterr)
{
    struct sc_store_object_copy *copy = NULL;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store_object_sizes sizes;
    pthread_mutex_lock(&objects->checkpoint_lock);
    struct dump *dump = sc_alloc_zero(&objects->alloc, sizeof(*dump));
    spec_status status = SPEC_OK;
    if (dump == NULL)
        status = sc_fail(&error, SPEC_E_NO_MEMORY, "a checkpoint");
    else
        status = checkpoint_run(objects, dump, erases, &copy, &error);
    sc_store_objects_copy_free(copy);
    if (dump != NULL)
        sc_alloc_free(&objects->alloc, dump->uses);
    sc_alloc_free(&objects->alloc, dump);
    sc_store_object_sizes(objects->store, &sizes);
    pthread_mutex_lock(&objects->lock);
    if (status == SPEC_OK) {
        objects->kept_log_bytes = sizes.log_bytes;
        objects->kept_live_bytes = objects->live_log_bytes;
        sc_objects_room_came(objects);
    } else
        objects->checkpoint_ns = sc_exec_now_ns(objects->exec) + RETRY_NS;
    pthread_mutex_unlock(&objects->lock);
    pthread_mutex_unlock(&objects->checkpoint_lock);
    if (status == SPEC_OK)
        return SPEC_OK;
    uint32_t level = status == SPEC_E_BUSY ? SPEC_LOG_DEBUG : SPEC_LOG_WARN; /* another does it */
    SC_LOG(&objects->log, level, "the log of objects is not written anew: %s", error.text);
    return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
}

uint64_t sc_objects_log_live(const spec_objects *objects)
{
    uint64_t live = objects->live_log_bytes, kept = objects->kept_log_bytes;
    if (objects->kept_live_bytes == 0 || kept <= objects->kept_live_bytes)
        return live;
    /* Records of few objects are larger: 64 objects of 64 domains need 64 records. */
    return (uint64_t)((double)live * (double)kept / (double)objects->kept_live_bytes);
}

void sc_objects_upkeep_wake(spec_objects *objects)
{
    struct sc_store_object_sizes sizes;
    sc_store_object_sizes(objects->store, &sizes);
    if (objects->upkeep_posted || objects->is_closing ||
        sizes.log_bytes <= GROWN_BYTES + 2 * sc_objects_log_live(objects) ||
        sc_exec_now_ns(objects->exec) < objects->checkpoint_ns)
        return;
    objects->upkeep_posted = true;
    sc_objects_post(objects, &objects->upkeep, SC_IO_CLASS_BACKGROUND);
}

static void upkeep_step(struct sc_task *task)
{
    spec_objects *objects = SC_TASK_OWNER(task, spec_objects, upkeep);
    (void)sc_objects_checkpoint(objects, false, NULL);
    pthread_mutex_lock(&objects->lock);
    objects->upkeep_posted = false;
    pthread_mutex_unlock(&objects->lock);
    sc_objects_task_end(objects);
}

void sc_objects_upkeep_open(spec_objects *objects)
{
    objects->upkeep.step = upkeep_step;
}
