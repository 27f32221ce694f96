/* reserve_frame: lends one frame to starved loads, one at a time. Contract:
 * store/cache/reserve_frame.h. */
#include "store/cache/reserve_frame.h"
#include "store/internal.h"

bool sc_store_reserve_frame_take(struct sc_store *store, struct sc_store_starved *starved)
{
    pthread_mutex_lock(&store->spare.lock);
    bool mine = store->spare.owner == NULL;
    if (mine) {
        store->spare.owner = starved;
    } else if (!starved->is_queued) {
        starved->is_queued = true;
        starved->next = store->spare.starved;
        store->spare.starved = starved;
    }
    pthread_mutex_unlock(&store->spare.lock);
    return mine;
}

void sc_store_reserve_frame_put(struct sc_store *store)
{
    pthread_mutex_lock(&store->spare.lock);
    store->spare.owner = NULL;
    for (struct sc_store_starved *starved = store->spare.starved; starved != NULL;
         starved = starved->next) {
        atomic_fetch_add(starved->word, 1);
        sc_exec_wake(store->params.exec, starved->word);
    }
    pthread_mutex_unlock(&store->spare.lock);
}

void sc_store_starved_leave(struct sc_store *store, struct sc_store_starved *starved)
{
    pthread_mutex_lock(&store->spare.lock);
    if (starved->is_queued) {
        struct sc_store_starved **link = &store->spare.starved;
        while (*link != starved)
            link = &(*link)->next;
        *link = starved->next;
        starved->is_queued = false;
    }
    pthread_mutex_unlock(&store->spare.lock);
}
