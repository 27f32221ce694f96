/* notify: notifications of a reader to writers: its epoch to every rank, failed ranges to its own.
 * Failed posts are retried by a later tick, or at close. Contract: peers.h, reset.c. */
#include "plugin/connector.h"

void sc_plugin_failed_tell(spec_connector *conn, uint64_t piece)
{
    struct sc_store_notify notify = {.kind = SC_STORE_NOTIFY_FAILED, .piece = piece};
    if (sc_plugin_can_store(conn) || !sc_store_piece_hash(conn->store, piece, notify.hash))
        return;
    sc_hash_to_bytes(conn->family, notify.family);
    pthread_mutex_lock(&conn->notify_queue.lock);
    if (conn->notify_queue.count < SC_PLUGIN_NOTIFY_QUEUE)
        conn->notify_queue.notify[(conn->notify_queue.first + conn->notify_queue.count++) %
                                  SC_PLUGIN_NOTIFY_QUEUE] = notify;
    /* If full: it is void here anyway, and the next reader that meets it reports it. */
    pthread_mutex_unlock(&conn->notify_queue.lock);
}

/* Posts the epoch to every rank that has not received it. */
static void post_epoch(spec_connector *conn)
{
    struct sc_store_notify notify = {.kind = SC_STORE_NOTIFY_EPOCH,
                                     .epoch = conn->notify_queue.epoch};
    sc_hash_to_bytes(conn->family, notify.family);
    for (uint32_t rank = 0; rank < conn->ranks.count; rank++)
        if (conn->notify_queue.epoch_told[rank] < notify.epoch &&
            sc_store_notify_post(conn->store, rank, &notify, NULL) == SPEC_OK)
            conn->notify_queue.epoch_told[rank] = notify.epoch;
}

static void post_failed(spec_connector *conn)
{
    for (uint32_t i = 0; i < SC_PLUGIN_NOTIFY_QUEUE; i++) {
        pthread_mutex_lock(&conn->notify_queue.lock);
        bool waits = conn->notify_queue.count > 0;
        struct sc_store_notify notify = conn->notify_queue.notify[conn->notify_queue.first];
        pthread_mutex_unlock(&conn->notify_queue.lock);
        if (!waits || sc_store_notify_post(conn->store, conn->ranks.rank, &notify, NULL) != SPEC_OK)
            return; /* a later tick retries */
        pthread_mutex_lock(&conn->notify_queue.lock);
        conn->notify_queue.first = (conn->notify_queue.first + 1) % SC_PLUGIN_NOTIFY_QUEUE;
        conn->notify_queue.count--;
        pthread_mutex_unlock(&conn->notify_queue.lock);
    }
}

void sc_plugin_notify_post(spec_connector *conn)
{
    if (sc_plugin_can_store(conn))
        return;
    pthread_mutex_lock(&conn->ranks.follow_lock); /* keeps the followed store */
    pthread_mutex_lock(&conn->notify_queue.post_lock);
    post_epoch(conn);
    post_failed(conn);
    pthread_mutex_unlock(&conn->notify_queue.post_lock);
    pthread_mutex_unlock(&conn->ranks.follow_lock);
}

void sc_plugin_epoch_tell(spec_connector *conn, uint64_t epoch)
{
    pthread_mutex_lock(&conn->notify_queue.post_lock);
    if (conn->notify_queue.epoch < epoch)
        conn->notify_queue.epoch = epoch;
    pthread_mutex_unlock(&conn->notify_queue.post_lock);
    sc_plugin_notify_post(conn);
}
