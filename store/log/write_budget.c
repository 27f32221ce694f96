/* What the device was written: counts, and the bucket of the write budget.
 *
 * Holds, Does not, Threads, Tests: store/log/write_budget.h. */
#include "store/log/write_budget.h"
#include "store/internal.h"

#include <stdio.h>

#define BURST_PART 4u /* of a day's budget is a full bucket */
#define WAIT_PART  4u /* of a full bucket is kept for passes */

/* ---- The bucket ----------------------------------------------------------------------------- */

static double full_of(const struct sc_store_wear *wear)
{
    return (double)wear->budget / BURST_PART;
}

static void lock_filled(struct sc_store *store)
{
    struct sc_store_wear *wear = &store->wear;
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    pthread_mutex_lock(&wear->lock);
    if (now_ns > wear->filled_ns) {
        double full = full_of(wear), passed_ns = (double)(now_ns - wear->filled_ns);
        wear->level += (double)wear->budget * (passed_ns / (double)SC_STORE_DAY_NS);
        wear->level = wear->level < full ? wear->level : full;
        wear->filled_ns = now_ns;
    }
}

void sc_store_wear_move(struct sc_store *store, int64_t bytes)
{
    if (store->wear.budget == 0 || bytes == 0)
        return;
    lock_filled(store);
    store->wear.level -= (double)bytes;
    pthread_mutex_unlock(&store->wear.lock);
}

uint64_t sc_store_wear_take(struct sc_store *store, uint64_t least, uint64_t bytes)
{
    struct sc_store_wear *wear = &store->wear;
    if (wear->budget == 0)
        return bytes;
    lock_filled(store);
    uint64_t taken = wear->level > 0 ? (uint64_t)wear->level : 0;
    if (taken < least && wear->level >= full_of(wear))
        taken = least;
    taken = taken < bytes ? taken : bytes;
    wear->level -= (double)taken;
    pthread_mutex_unlock(&wear->lock);
    return taken;
}

uint64_t sc_store_wear_wait_ns(struct sc_store *store)
{
    struct sc_store_wear *wear = &store->wear;
    if (wear->budget == 0)
        return 0;
    lock_filled(store);
    double lacks = full_of(wear) / WAIT_PART - wear->level;
    pthread_mutex_unlock(&wear->lock);
    double days = lacks / (double)wear->budget; /* who waits for more than one asks again */
    return lacks > 0 ? (uint64_t)((days < 1 ? days : 1) * (double)SC_STORE_DAY_NS) + 1 : 0;
}

uint64_t sc_store_wear_left(struct sc_store *store)
{
    struct sc_store_wear *wear = &store->wear;
    if (wear->budget == 0)
        return 0;
    lock_filled(store);
    uint64_t left = wear->level > 0 ? (uint64_t)wear->level : 0;
    pthread_mutex_unlock(&wear->lock);
    return left;
}

/* ---- Counts --------------------------------------------------------------------------------- */

void sc_store_wear_count(struct sc_store *store, enum sc_store_wear_kind kind, uint64_t bytes)
{
    sc_store_count(&store->wear.written[kind], bytes);
}

void sc_store_wear_charge(struct sc_store *store, enum sc_store_wear_kind kind, uint64_t bytes)
{
    sc_store_wear_count(store, kind, bytes);
    sc_store_wear_move(store, (int64_t)bytes);
}

/* ---- Open ----------------------------------------------------------------------------------- */

spec_status sc_store_wear_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_wear *wear = &store->wear;
    uint64_t log_bytes; /* none: the store is new */
    spec_status status = sc_io_file_size(store->io, store->log.journal.file, &log_bytes, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t budget = store->params.config->write_budget, ranks = store->params.rank_count;
    wear->budget = budget / ranks + (budget > 0 && budget < ranks ? 1 : 0); /* 0: there is none */
    wear->filled_ns = sc_exec_now_ns(store->params.exec);
    wear->level = log_bytes == 0 ? full_of(wear) : 0;
    return SPEC_OK;
}

void sc_store_wear_file_remove(struct sc_store *store)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/wear", store->dir);
    (void)sc_io_unlink(store->io, path, NULL);
}
