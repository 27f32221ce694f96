/* remove: remove and clear, with or without erasing.
 *
 *   remove   each key leaves the index; one record for up to 1,024
 *   clear    one record; then all entries of the domain leave the index, under commit_lock; if the
 *            record cannot be appended they are removed singly
 *   ERASE    removed objects and running puts keep their pages until zeros are written over them;
 *            then the log is rewritten, and zeros are written over the old one
 *
 * Beside other processes nothing can be erased: the call fails with BUSY and removes nothing.
 * Threads: any. Tests: conformance/objects */
#include "plugin/objects/objects.h"

#include <string.h>

/* ---- Erasing -------------------------------------------------------------------------------- */

struct zeroing {
    struct sc_store_write write;
    struct sc_store *store;
    _Atomic uint32_t done;
};

static void zero_done(struct sc_io_op *op)
{
    struct zeroing *zeroing = op->user;
    struct sc_store *store = zeroing->store;
    atomic_store(&zeroing->done, 1);
    sc_store_object_written(store);
}

/* Writes zeros over a part. Blocks. */
static spec_status part_zero(spec_objects *objects, const struct sc_store_object_part *part,
                             uint8_t *zeros)
{
    const uint64_t most = objects->op_bytes, bytes = part->pages * (uint64_t)SC_IO_PAGE_BYTES;
    spec_status status = SPEC_OK;
    for (uint64_t at = 0; at < bytes && status == SPEC_OK; at += most) {
        struct zeroing zeroing = {.store = objects->store};
        struct sc_store_write *write = &zeroing.write;
        write->segment = part->segment;
        write->op = (struct sc_io_op){.buffer = zeros,
                                      .offset = part->page * (uint64_t)SC_IO_PAGE_BYTES + at,
                                      .bytes = bytes - at < most ? bytes - at : most,
                                      .kind = SC_IO_WRITE,
                                      .io_class = SC_IO_CLASS_WRITER,
                                      .done = zero_done,
                                      .user = &zeroing};
        sc_store_object_write(objects->store, &write, 1);
        while (atomic_load(&zeroing.done) == 0) /* polls each millisecond: nothing wakes it */
            (void)sc_exec_wait(objects->exec, &zeroing.done, 0,
                               sc_exec_now_ns(objects->exec) + 1000000);
        status = write->op.status;
    }
    return status;
}

/* Objects being erased, pinned to keep their pages. */
struct erasure {
    uint32_t *ids; /* NULL: none */
    uint64_t count, most;
};

/* `lock` held. LIVE, or PENDING with a put that is not dropped yet. */
static void erasure_add(spec_objects *objects, struct erasure *erasure, uint32_t id)
{
    if (erasure->ids == NULL || erasure->count == erasure->most)
        return;
    sc_catalog_pin(objects, id);
    erasure->ids[erasure->count++] = id;
}

/* Zeros their pages once no get or put uses them, and unpins them. Blocks. */
static spec_status erase_pages(spec_objects *objects, struct erasure *erasure,
                               struct spec_error *reterr)
{
    uint8_t *zeros = sc_alloc_aligned(&objects->alloc, objects->op_bytes, SC_IO_PAGE_BYTES);
    spec_status status = SPEC_OK;
    if (zeros == NULL)
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " zeros", objects->op_bytes);
    else
        memset(zeros, 0, objects->op_bytes);
    for (uint64_t i = 0; i < erasure->count; i++) {
        struct sc_object *object = sc_object_of(objects, erasure->ids[i]);
        pthread_mutex_lock(&objects->lock);
        while (status == SPEC_OK && (object->pins > 1 || object->put != NULL)) {
            uint32_t word = atomic_load(&objects->job_word);
            pthread_mutex_unlock(&objects->lock);
            (void)sc_exec_wait(objects->exec, &objects->job_word, word,
                               sc_exec_now_ns(objects->exec) + 1000000);
            pthread_mutex_lock(&objects->lock);
        }
        pthread_mutex_unlock(&objects->lock);
        for (uint32_t p = 0; p < object->part_count && status == SPEC_OK; p++) {
            status = part_zero(objects, &object->parts[p], zeros);
            if (status != SPEC_OK)
                (void)sc_fail(reterr, status, "zeros cannot be written over a removed object");
        }
        pthread_mutex_lock(&objects->lock);
        sc_catalog_unpin(objects, erasure->ids[i]);
        pthread_mutex_unlock(&objects->lock);
    }
    sc_alloc_free(&objects->alloc, zeros);
    return status;
}

/* Zeros removed objects, then the log that names them. Frees the erasure. */
static spec_status erase_end(spec_objects *objects, struct erasure *erasure, spec_status status,
                             struct spec_error *reterr)
{
    spec_status erased = erase_pages(objects, erasure, status == SPEC_OK ? reterr : NULL);
    if (status == SPEC_OK)
        status = erased;
    if (status == SPEC_OK)
        status = sc_objects_checkpoint(objects, true, reterr);
    sc_alloc_free(&objects->alloc, erasure->ids);
    return status;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

/* `lock` held. Returns SPEC_KEY_DONE or _ABSENT. */
static int8_t key_remove(spec_objects *objects, uint32_t space, const uint8_t *key,
                         uint32_t key_bytes, struct erasure *erasure)
{
    uint32_t id = sc_key_table_find(&objects->table, space, key, key_bytes);
    sc_objects_put_unindexed_removed(objects, space, key, key_bytes);
    if (id == 0)
        return SPEC_KEY_ABSENT;
    erasure_add(objects, erasure, id);
    if (sc_key_entry_state(sc_key_table_entry(&objects->table, id)) == SC_KEY_PENDING) {
        sc_objects_put_end(objects, id, SPEC_E_DROPPED);
        return SPEC_KEY_ABSENT;
    }
    sc_key_table_expel(&objects->table, id);
    sc_catalog_leave(objects, id, SPEC_REMOVED_DELETED, true);
    return SPEC_KEY_DONE;
}

spec_status sc_objects_remove(spec_objects *objects, struct sc_object_domain *domain,
                              const struct spec_keys *keys, uint32_t flags, int8_t *ret_status,
                              struct spec_error *reterr)
{
    uint32_t space = (uint32_t)(domain - objects->domains);
    const uint8_t *key = keys->data;
    struct erasure erasure = {0};
    bool erases = (flags & SPEC_REMOVE_ERASE) != 0;
    spec_status begun = SPEC_OK; /* the keys are absent, whatever fails */
    if (erases)
        begun = sc_objects_alone_begin(objects, reterr);
    if (begun != SPEC_OK)
        return begun;
    if (erases) {
        erasure.ids = sc_alloc_array(&objects->alloc, keys->count, sizeof(*erasure.ids));
        if (erasure.ids == NULL)
            begun = sc_fail(reterr, SPEC_E_NO_MEMORY, "remove: %" PRIu32 " keys", keys->count);
        erasure.most = erasure.ids != NULL ? keys->count : 0;
    }
    for (uint32_t first = 0, i = 0; first < keys->count; first = i) {
        pthread_mutex_lock(&objects->lock);
        for (; i < keys->count && i - first < SC_STORE_REMOVAL_BATCH; i++) {
            uint32_t key_bytes = keys->lengths != NULL ? keys->lengths[i] : keys->key_bytes;
            int8_t status = key_remove(objects, space, key, key_bytes, &erasure);
            if (ret_status != NULL)
                ret_status[i] = status;
            key += key_bytes;
        }
        pthread_mutex_unlock(&objects->lock);
    }
    spec_status status = sc_objects_record_removals(objects, begun == SPEC_OK ? reterr : NULL);
    if (erases && begun == SPEC_OK)
        status = erase_end(objects, &erasure, status, reterr);
    if (erases)
        sc_objects_alone_end(objects);
    return begun != SPEC_OK ? begun : status;
}

/* commit_lock held. is_recorded: the clear is logged; else each removal needs a record. */
static void domain_empty(spec_objects *objects, struct sc_object_domain *domain,
                         struct erasure *erasure, bool is_recorded)
{
    uint32_t space = (uint32_t)(domain - objects->domains);
    pthread_mutex_lock(&objects->lock);
    sc_objects_put_unindexed_removed(objects, space, NULL, 0);
    for (uint32_t id = 1; id < objects->table.entry_end; id++) {
        const struct sc_key_entry *entry = sc_key_table_entry(&objects->table, id);
        enum sc_key_state state = sc_key_entry_state(entry);
        bool is_its = atomic_load_explicit(&entry->space, memory_order_relaxed) == space;
        if (is_its && (state == SC_KEY_PENDING || state == SC_KEY_LIVE))
            erasure_add(objects, erasure, id);
        if (is_its && state == SC_KEY_PENDING) {
            sc_objects_put_end(objects, id, SPEC_E_DROPPED);
        } else if (is_its && state == SC_KEY_LIVE) {
            sc_key_table_expel(&objects->table, id);
            sc_catalog_leave(objects, id, is_recorded ? SC_CATALOG_CLEARED : SPEC_REMOVED_DELETED,
                             true);
            sc_catalog_settle(objects, id);
            if (is_recorded)
                SC_OBJECT_COUNT(objects, domain, deleted_objects, 1);
        } else if (is_its && state == SC_KEY_LEAVING && is_recorded && objects->shares) {
            sc_catalog_removed(objects, id); /* for others the clear is its removal */
        }
        if (id % SC_KEY_SLAB == 0) { /* lets others take the lock */
            pthread_mutex_unlock(&objects->lock);
            pthread_mutex_lock(&objects->lock);
        }
    }
    sc_objects_event_add(objects, space, 0, SPEC_EVENT_CLEARED, 0);
    sc_objects_upkeep_wake(objects);
    pthread_mutex_unlock(&objects->lock);
}

spec_status sc_objects_clear(spec_objects *objects, struct sc_object_domain *domain, uint32_t flags,
                             struct spec_error *reterr)
{
    struct erasure erasure = {0};
    const bool erases = (flags & SPEC_REMOVE_ERASE) != 0;
    spec_status begun = SPEC_OK; /* as in remove */
    if (erases)
        begun = sc_objects_alone_begin(objects, reterr);
    if (begun != SPEC_OK)
        return begun;
    if (sc_objects_record_removals(objects, NULL) != SPEC_OK) /* frees log space, usually */
        (void)sc_objects_checkpoint(objects, false, NULL);
    sc_store_turn_begin(objects->store);
    pthread_mutex_lock(&objects->commit_lock);
    if (erases) {
        pthread_mutex_lock(&objects->lock);
        erasure.most = objects->table.linked_count + 1ull; /* puts, too */
        pthread_mutex_unlock(&objects->lock);
        erasure.ids = sc_alloc_array(&objects->alloc, erasure.most, sizeof(*erasure.ids));
        if (erasure.ids == NULL)
            begun = sc_fail(reterr, SPEC_E_NO_MEMORY, "clear: %" PRIu64 " objects", erasure.most);
        erasure.most = erasure.ids != NULL ? erasure.most : 0;
    }
    spec_status status = SPEC_OK;
    if (domain->log_id != 0) /* else the log has nothing of it */
        status = sc_store_objects_clear(objects->store, domain->log_id,
                                        begun == SPEC_OK ? reterr : NULL);
    domain_empty(objects, domain, &erasure, status == SPEC_OK);
    pthread_mutex_unlock(&objects->commit_lock);
    sc_store_turn_end(objects->store);
    if (erases && begun == SPEC_OK)
        status = erase_end(objects, &erasure, status, reterr);
    if (erases)
        sc_objects_alone_end(objects);
    return begun != SPEC_OK ? begun : status;
}
