/* epoch: the connector's epoch, and removal of older roots. Contract: index.h, reset.c. */
#include "plugin/connector.h"

#define CLEAR_STEPS  512u /* runs of an old root per lock hold */
#define CLEAR_ROUNDS 64u  /* lock holds per tick */

void sc_plugin_epoch_move(spec_connector *conn, uint64_t epoch)
{
    uint64_t old = atomic_load(&conn->epoch);
    while (old < epoch && !atomic_compare_exchange_weak(&conn->epoch, &old, epoch))
        ;
    conn->index_events->epoch_moved(conn);
}

void sc_plugin_roots_are_old(const struct sc_radix *radix, struct sc_plugin_old_roots *old)
{
    old->mark = sc_radix_root_mark(radix);
    old->clears = true;
}

bool sc_plugin_roots_clear(struct sc_radix *radix, pthread_mutex_t *lock,
                           struct sc_plugin_old_roots *old)
{
    bool clears = true;
    for (uint32_t i = 0; i < CLEAR_ROUNDS && clears; i++) {
        pthread_mutex_lock(lock);
        clears = old->clears && sc_radix_remove_roots(radix, old->mark, CLEAR_STEPS, NULL);
        old->clears = clears;
        pthread_mutex_unlock(lock);
    }
    return clears;
}

bool sc_plugin_epoch_is_current(spec_connector *conn, const struct sc_plugin_request *request)
{
    return request->epoch == atomic_load(&conn->epoch) &&
           request->epoch == sc_store_epoch(conn->store) && !sc_plugin_erase_covers(conn, request);
}
