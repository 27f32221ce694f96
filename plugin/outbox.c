/* What a reader has to tell writers: its epoch every rank's, failed ranges its own rank's.
 * Contract: connector.h, reset.c. What could not be posted is posted by a later turn, or at close.
 * Threads: any. Tests: tests/unit/plugin/test_reset.c, tests/fault/test_processes.c */
#include "plugin/connector.h"

void sc_plugin_failed_tell(spec_connector *conn, uint64_t piece, bool is_codes)
{
    struct sc_store_mail mail = {.kind = SC_STORE_MAIL_FAILED, .piece = piece};
    if (conn->role != SPEC_ROLE_READER || !sc_store_piece_hash(conn->store, piece, mail.hash))
        return;
    mail.what = is_codes ? SC_STORE_MAIL_CODES : SC_STORE_MAIL_ROWS;
    sc_hash_to_bytes(conn->family, mail.family);
    pthread_mutex_lock(&conn->outbox_lock);
    if (conn->outbox_count < SC_PLUGIN_OUTBOX)
        conn->outbox[(conn->outbox_first + conn->outbox_count++) % SC_PLUGIN_OUTBOX] = mail;
    else /* void here all the same; the next reader that meets it says so again */
        atomic_fetch_add_explicit(&conn->stats.mail_dropped, 1, memory_order_relaxed);
    pthread_mutex_unlock(&conn->outbox_lock);
}

/* Tells every rank that has not heard of it. */
static void post_epoch(spec_connector *conn)
{
    struct sc_store_mail mail = {.kind = SC_STORE_MAIL_EPOCH, .epoch = conn->epoch_to_tell};
    sc_hash_to_bytes(conn->family, mail.family);
    for (uint32_t rank = 0; rank < conn->rank_count; rank++)
        if (conn->epoch_told[rank] < mail.epoch &&
            sc_store_mail_post(conn->store, rank, &mail, NULL) == SPEC_OK)
            conn->epoch_told[rank] = mail.epoch;
}

static void post_failed(spec_connector *conn)
{
    for (uint32_t i = 0; i < SC_PLUGIN_OUTBOX; i++) {
        pthread_mutex_lock(&conn->outbox_lock);
        bool waits = conn->outbox_count > 0;
        struct sc_store_mail mail = conn->outbox[conn->outbox_first];
        pthread_mutex_unlock(&conn->outbox_lock);
        if (!waits || sc_store_mail_post(conn->store, conn->rank, &mail, NULL) != SPEC_OK)
            return; /* a later turn tries again */
        pthread_mutex_lock(&conn->outbox_lock);
        conn->outbox_first = (conn->outbox_first + 1) % SC_PLUGIN_OUTBOX;
        conn->outbox_count--;
        pthread_mutex_unlock(&conn->outbox_lock);
    }
}

void sc_plugin_mail_post(spec_connector *conn)
{
    if (conn->role != SPEC_ROLE_READER)
        return;
    pthread_mutex_lock(&conn->follow_lock); /* the store that is followed stays what it is */
    pthread_mutex_lock(&conn->post_lock);
    post_epoch(conn);
    post_failed(conn);
    pthread_mutex_unlock(&conn->post_lock);
    pthread_mutex_unlock(&conn->follow_lock);
}

void sc_plugin_epoch_tell(spec_connector *conn, uint64_t epoch)
{
    pthread_mutex_lock(&conn->post_lock);
    if (conn->epoch_to_tell < epoch)
        conn->epoch_to_tell = epoch;
    pthread_mutex_unlock(&conn->post_lock);
    sc_plugin_mail_post(conn);
}
