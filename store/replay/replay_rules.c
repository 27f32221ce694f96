/* replay_rules: rules for all records: valid ids, reported namespaces, invalid records. */
#include "store/replay/replay.h"

void sc_store_replay_lie(struct sc_store *store, const char *what)
{
    sc_store_count(&store->counts.corrupt_records, 1);
    SC_LOG(store->params.log, 1, "log record %" PRIu64 " is not believed: %s",
           store->log.journal.end.sequence + 1, what);
}

bool sc_store_replay_lacks_pages(struct sc_store *store)
{
    bool lacks = sc_store_keeps_space(store) && store->follow.rereads && !store->follow.is_second;
    store->follow.lacks_pages = store->follow.lacks_pages || lacks;
    return lacks;
}

void sc_store_heir_end(struct sc_store *store, const char *why)
{
    if (sc_store_appends_shared(store)) {
        sc_store_seal_over(store, why);
        return;
    }
    if (store->params.role == SC_STORE_HEIR && atomic_exchange(&store->keeps_space, false))
        SC_LOG(store->params.log, SPEC_LOG_WARN, "%s: this process stays a reader: %s", store->dir,
               why);
}

void sc_store_replay_room_take(struct sc_store *store)
{
    if (!sc_store_keeps_space(store))
        return;
    if (!sc_store_replay_at_open(store))
        pthread_mutex_lock(&store->disk.lock);
    store->share.reserved += SC_STORE_DROP_BYTES;
    if (!sc_store_replay_at_open(store))
        pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_replay_dropped(struct sc_store *store, uint64_t id, uint64_t at_ns)
{
    if (!sc_store_keeps_space(store))
        return;
    sc_store_log_unreserve(store, SC_STORE_DROP_BYTES);
    (void)sc_store_quarantine_add(store, &id, 1, at_ns);
}

bool sc_store_replay_id_take(uint64_t *next, uint64_t base, uint64_t id, uint64_t *ret_id)
{
    if (id < *next || id >= SC_STORE_IDS || base >= SC_STORE_IDS - id)
        return false;
    *next = id + 1;
    *ret_id = base + id;
    return true;
}

bool sc_store_replay_space_is_told(const struct sc_store *store, uint64_t id)
{
    const struct sc_store_shape *shape = sc_store_space_of(&store->log.spaces, id);
    if (store->params.role == SC_STORE_PEER)
        return shape->is_own && shape->epoch == atomic_load(&store->log.epoch);
    return id == atomic_load(&store->log.space_id);
}
