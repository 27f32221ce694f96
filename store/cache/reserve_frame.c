/* The spare frame. Only a load that somebody waits for, and that gets no frame from the pool, may
 * take it: so it progresses even when others hold all of the pool's frames.
 *
 *   owner     at most one load, for one operation
 *   starved   those that wait for it to come back, linked; their words change when it does
 *
 * Holds: who takes it gives it back when its operation is consumed or dropped, so everybody who
 * waits gets it in turn.
 * Does not: know what a load is; serve one that nobody waits for.
 * Threads: any (rank 35).
 * Tests: tests/unit/store/test_store.c, test_selector.c */
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
