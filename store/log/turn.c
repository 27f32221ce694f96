/* turn: one thread of this process at a time reads the log on, or appends to it.
 *
 *   turn [ read on | build, append ------ lost | read on | build, append ]
 *   other process            [ append ]
 *
 * An append is believed only if it stands where it was meant to, so its records were built on
 * everything before it. Whoever loses that race reads what won, and builds them anew: an id may be
 * taken now, a piece void, the epoch another (docs/decisions/0067).
 *
 * Lock order: the turn comes before every lock that a callback of following takes, and before the
 * space and log locks. It is recursive: a commit drops pieces in its turn.
 * Threads: any. */
#include "store/log/turn.h"
#include "store/internal.h"

#define TRIES_MAX 4096u /* of one append: others win that often only if something is wrong */

void sc_store_turn_begin(struct sc_store *store)
{
    if (!sc_store_is_member(store))
        return;
    pthread_mutex_lock(&store->log.turn.lock);
    /* Not within a turn: its holder has decided on what was read. If others append, it loses. */
    if (store->log.turn.depth++ == 0)
        (void)sc_store_turn_read(store, NULL); /* else the append finds out */
}

void sc_store_turn_end(struct sc_store *store)
{
    if (!sc_store_is_member(store))
        return;
    store->turn_calls->ends(store);
    store->log.turn.depth--;
    pthread_mutex_unlock(&store->log.turn.lock);
}

bool sc_store_turn_is_reading(const struct sc_store *store)
{
    return store->log.turn.is_reading;
}

spec_status sc_store_turn_read(struct sc_store *store, struct spec_error *reterr)
{
    if (!sc_store_appends_shared(store) || store->log.turn.is_reading)
        return SPEC_OK;
    return store->turn_calls->read_on(store, reterr);
}

void sc_store_log_enter(struct sc_store *store)
{
    sc_store_turn_begin(store);
    pthread_mutex_lock(&store->log.lock);
    store->log.turn.tries = 0; /* one writer has no turn: the lock guards it */
}

bool sc_store_log_again(struct sc_store *store, spec_status *status, struct spec_error *reterr)
{
    if (*status != SPEC_PENDING)
        return false;
    if (++store->log.turn.tries > TRIES_MAX) {
        *status = sc_fail(reterr, SPEC_E_BUSY, "%s/log: other processes were faster %u times",
                          store->dir, TRIES_MAX);
        return false;
    }
    pthread_mutex_unlock(&store->log.lock);
    *status = sc_store_turn_read(store, reterr);
    pthread_mutex_lock(&store->log.lock);
    return *status == SPEC_OK;
}

void sc_store_log_leave(struct sc_store *store)
{
    pthread_mutex_unlock(&store->log.lock);
    sc_store_turn_end(store);
}
