/* reset: epochs, and notifications of epochs and failed ranges from readers to writers.
 *
 *   reset in a writer    one record in its log; other ranks and readers follow the log
 *   reset in a reader    its own epoch; a notification to every rank's writer, which records it
 *   both                 the epoch of the weights (store/log/weights_epoch.c), which connectors of
 *                        other configurations follow: another layout, chunk size, number of ranks
 *   failed range         void here; a notification to our rank's writer, which drops the piece,
 *                        unless it no longer has the failed rows
 *
 * The epoch is part of every chain's root. The connector's is the highest it knows: its own log,
 * other ranks' logs, notifications, the weights, its host. A reset takes the weights' epoch before
 * anything is stored under it. Otherwise another configuration's reset could take it, and that data
 * would outlast the reset. If the log is ahead (an older build), a writer's next open raises the
 * weights'.
 *
 * Invariants: conn->epoch never decreases. A writer stores only while its log has the same epoch,
 * so that no later record voids it. Epochs not posted are posted by a later tick, or at close.
 * Threads: reset and failed_tell any; the tick on an executor thread. */
#include "plugin/connector.h"

#include <string.h>

#define RESETS_TOGETHER 64u /* processes that reset the same weights at one moment */

static uint64_t epoch_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Writer: records the epoch. It moves there even on failure: nothing older is promised. */
static spec_status raise_writer(spec_connector *conn, uint64_t epoch, struct spec_error *reterr)
{
    pthread_mutex_lock(&conn->commit_lock);
    sc_store_turn_begin(conn->store); /* what others store from now on is of the new epoch */
    bool moves = epoch > sc_store_epoch(conn->store); /* else another member has, and we read it */
    spec_status status = sc_store_epoch_set(conn->store, epoch, reterr);
    sc_plugin_epoch_move(conn, epoch);
    if (status == SPEC_OK && moves) {
        pthread_mutex_lock(&conn->index.lock);
        sc_plugin_roots_are_old(conn->radix, &conn->index.old_roots);
        pthread_mutex_unlock(&conn->index.lock);
    }
    sc_store_turn_end(conn->store);
    pthread_mutex_unlock(&conn->commit_lock);
    return status;
}

/* Reader: returns the logs' highest epoch, after reading them to their ends, so that the new epoch
 * also voids what was stored under later ones. Fails if a log cannot be read. */
static spec_status logs_epoch(spec_connector *conn, uint64_t *ret_epoch, struct spec_error *reterr)
{
    while (sc_plugin_follow_own(conn))
        ;
    pthread_mutex_lock(&conn->ranks.follow_lock);
    spec_status status = conn->ranks.follow_status;
    pthread_mutex_unlock(&conn->ranks.follow_lock);
    if (status != SPEC_OK)
        return sc_fail(reterr, SPEC_E_IO, "reset: the log of rank %" PRIu32 " cannot be read (%s)",
                       conn->ranks.rank, sc_status_name(status));
    *ret_epoch = sc_plugin_epoch_known(conn);
    return SPEC_OK;
}

/* Returns the epoch after all known ones and `taken`. It never wraps to 0, which voids nothing. */
static spec_status epoch_next(spec_connector *conn, uint64_t taken, uint64_t *ret_epoch,
                              struct spec_error *reterr)
{
    uint64_t weights, logs = 0;
    spec_status status = sc_store_weights_epoch(conn->store, conn->weights, &weights, reterr);
    if (status == SPEC_OK && !sc_plugin_can_store(conn))
        status = logs_epoch(conn, &logs, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t epoch = epoch_max(atomic_load(&conn->epoch), epoch_max(weights, logs));
    epoch = epoch_max(epoch, taken);
    if (epoch == UINT64_MAX)
        return sc_fail(reterr, SPEC_E_IO,
                       "reset: the epoch of these weights is %#" PRIx64 ", the last one", epoch);
    *ret_epoch = epoch + 1;
    return SPEC_OK;
}

/* Moves to the taken epoch. If recording fails, a later tick retries and nothing is stored. */
static void epoch_begin(spec_connector *conn, uint64_t epoch)
{
    struct spec_error why = {.struct_size = sizeof(why)};
    if (!sc_plugin_can_store(conn)) {
        sc_plugin_epoch_move(conn, epoch);
        sc_plugin_epoch_tell(conn, epoch);
    } else if (raise_writer(conn, epoch, &why) != SPEC_OK)
        SC_LOG(&conn->log, SPEC_LOG_WARN,
               "reset: done, and nothing is stored until the log has its record: %s", why.text);
}

/* An epoch taken at the same time by another process may be in use: takes the next one. */
spec_status sc_plugin_reset(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t epoch = 0;
    for (uint32_t i = 0; i < RESETS_TOGETHER; i++) {
        bool is_new = false;
        struct spec_error why = {.struct_size = sizeof(why)};
        spec_status status = epoch_next(conn, epoch, &epoch, reterr);
        if (status != SPEC_OK)
            return status;
        status = sc_store_weights_epoch_put(conn->store, conn->weights, epoch, &is_new, &why);
        if (status != SPEC_OK)
            return sc_fail_errno(reterr, status, why.sys_errno, "reset: %s", why.text);
        if (!is_new)
            continue;
        epoch_begin(conn, epoch);
        return SPEC_OK;
    }
    return sc_fail(reterr, SPEC_E_IO, "reset: %u others were faster, one after the other",
                   RESETS_TOGETHER);
}

/* Reads the weights' epoch; weights_heard never decreases. */
static spec_status weights_read(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t weights;
    spec_status status = sc_store_weights_epoch(conn->store, conn->weights, &weights, reterr);
    conn->notify_queue.weights_heard = epoch_max(conn->notify_queue.weights_heard, weights);
    return status;
}

spec_status sc_plugin_epoch_open(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t own = sc_store_epoch(conn->store);
    bool is_new, is_writer = sc_plugin_can_store(conn);
    spec_status status = weights_read(conn, reterr);
    if (status == SPEC_OK && is_writer && own > conn->notify_queue.weights_heard)
        status = sc_store_weights_epoch_put(conn->store, conn->weights, own, &is_new, reterr);
    return status;
}

static void on_notify(const struct sc_store_notify *notify, void *user)
{
    spec_connector *conn = user;
    uint8_t bytes[SC_HASH_BYTES];
    sc_hash_to_bytes(conn->family, bytes);
    bool is_family = memcmp(bytes, notify->family, sizeof(bytes)) == 0;
    if (notify->kind == SC_STORE_NOTIFY_EPOCH && is_family &&
        notify->epoch > conn->notify_queue.epoch_heard)
        conn->notify_queue.epoch_heard = notify->epoch;
    if (notify->kind != SC_STORE_NOTIFY_FAILED ||
        !sc_store_piece_hash(conn->store, notify->piece, bytes) ||
        memcmp(bytes, notify->hash, sizeof(bytes)) != 0)
        return; /* dropped already, or another piece than meant */
    SC_LOG(&conn->log, SPEC_LOG_WARN, "piece %" PRIu64 " failed in a reader, dropped",
           notify->piece);
    sc_count(&conn->stats.corrupt_ranges, 1);
    sc_plugin_piece_fail(conn, sc_plugin_ref_of(sc_store_piece_mark(conn->store, notify->piece)),
                         notify->piece);
}

static void say_once(spec_connector *conn, spec_status status, const struct spec_error *error)
{
    if (status != SPEC_OK && status != conn->notify_queue.notify_status)
        SC_LOG(&conn->log, SPEC_LOG_WARN, "notification: %s", error->text);
    conn->notify_queue.notify_status = status;
}

void sc_plugin_notify_tick(spec_connector *conn)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = SPEC_OK;
    if (sc_store_weights_epoch_due(conn->store) || conn->notify_queue.weights_failed) {
        status = weights_read(conn, &error);
        conn->notify_queue.weights_failed = status != SPEC_OK;
    }
    if (status == SPEC_OK && sc_plugin_can_store(conn))
        status = sc_store_notify_take(conn->store, on_notify, conn, &error);
    uint64_t epoch = epoch_max(sc_plugin_epoch_known(conn), conn->notify_queue.epoch_heard);
    epoch = epoch_max(epoch, conn->notify_queue.weights_heard);
    if (!sc_plugin_can_store(conn))
        sc_plugin_epoch_move(conn, epoch);
    else if (status == SPEC_OK && epoch > sc_store_epoch(conn->store))
        status = raise_writer(conn, epoch, &error);
    say_once(conn, status, &error);
    sc_plugin_notify_post(conn);
}
