/* write_budget: bytes written to the device, and the token bucket of the write budget.
 * Invariants, Threads, Tests: store/log/write_budget.h. */
#include "store/log/write_budget.h"
#include "store/internal.h"

#include <stdio.h>

#define BURST_PART 4u /* a full bucket is a quarter of a day's budget */
#define WAIT_PART  4u /* a quarter of a full bucket is kept for passes */

/* ---- The bucket ----------------------------------------------------------------------------- */

static double full_of(const struct sc_store_write_budget *day_budget)
{
    return (double)day_budget->budget / BURST_PART;
}

static void lock_filled(struct sc_store *store)
{
    struct sc_store_write_budget *day_budget = &store->day_budget;
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    pthread_mutex_lock(&day_budget->lock);
    if (now_ns > day_budget->filled_ns) {
        double full = full_of(day_budget), passed_ns = (double)(now_ns - day_budget->filled_ns);
        day_budget->level += (double)day_budget->budget * (passed_ns / (double)SC_STORE_DAY_NS);
        day_budget->level = day_budget->level < full ? day_budget->level : full;
        day_budget->filled_ns = now_ns;
    }
}

void sc_store_write_budget_move(struct sc_store *store, int64_t bytes)
{
    if (store->day_budget.budget == 0 || bytes == 0)
        return;
    lock_filled(store);
    store->day_budget.level -= (double)bytes;
    pthread_mutex_unlock(&store->day_budget.lock);
}

uint64_t sc_store_write_budget_take(struct sc_store *store, uint64_t least, uint64_t bytes)
{
    struct sc_store_write_budget *day_budget = &store->day_budget;
    if (day_budget->budget == 0)
        return bytes;
    lock_filled(store);
    uint64_t taken = day_budget->level > 0 ? (uint64_t)day_budget->level : 0;
    if (taken < least && day_budget->level >= full_of(day_budget))
        taken = least;
    taken = taken < bytes ? taken : bytes;
    day_budget->level -= (double)taken;
    pthread_mutex_unlock(&day_budget->lock);
    return taken;
}

uint64_t sc_store_write_budget_wait_ns(struct sc_store *store)
{
    struct sc_store_write_budget *day_budget = &store->day_budget;
    if (day_budget->budget == 0)
        return 0;
    lock_filled(store);
    double lacks = full_of(day_budget) / WAIT_PART - day_budget->level;
    pthread_mutex_unlock(&day_budget->lock);
    double days = lacks / (double)day_budget->budget; /* at most a day; callers ask again */
    return lacks > 0 ? (uint64_t)((days < 1 ? days : 1) * (double)SC_STORE_DAY_NS) + 1 : 0;
}

uint64_t sc_store_write_budget_left(struct sc_store *store)
{
    struct sc_store_write_budget *day_budget = &store->day_budget;
    if (day_budget->budget == 0)
        return 0;
    lock_filled(store);
    uint64_t left = day_budget->level > 0 ? (uint64_t)day_budget->level : 0;
    pthread_mutex_unlock(&day_budget->lock);
    return left;
}

/* ---- Counts --------------------------------------------------------------------------------- */

void sc_store_write_budget_count(struct sc_store *store, enum sc_store_write_budget_kind kind,
                                 uint64_t bytes)
{
    sc_store_count(&store->day_budget.written[kind], bytes);
}

void sc_store_write_budget_charge(struct sc_store *store, enum sc_store_write_budget_kind kind,
                                  uint64_t bytes)
{
    sc_store_write_budget_count(store, kind, bytes);
    sc_store_write_budget_move(store, (int64_t)bytes);
}

/* ---- Open ----------------------------------------------------------------------------------- */

void sc_store_write_budget_heir_open(struct sc_store *store)
{
    struct sc_store_write_budget *day_budget = &store->day_budget;
    uint64_t budget = store->params.config->write_budget, ranks = store->params.rank_count;
    day_budget->budget = budget / ranks + (budget > 0 && budget < ranks ? 1 : 0); /* 0: no budget */
    day_budget->filled_ns = sc_exec_now_ns(store->params.exec);
}

spec_status sc_store_write_budget_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_write_budget *day_budget = &store->day_budget;
    uint64_t log_bytes; /* 0: the store is new */
    spec_status status = sc_io_file_size(store->io, store->log.journal.file, &log_bytes, reterr);
    if (status != SPEC_OK)
        return status;
    sc_store_write_budget_heir_open(store);
    day_budget->level = log_bytes == 0 ? full_of(day_budget) : 0;
    return SPEC_OK;
}

void sc_store_write_budget_take_over(struct sc_store *store)
{
    lock_filled(store);
    store->day_budget.level = 0;
    pthread_mutex_unlock(&store->day_budget.lock);
}

void sc_store_write_budget_file_remove(struct sc_store *store)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/wear", store->dir);
    (void)sc_io_unlink(store->io, path, NULL);
}
