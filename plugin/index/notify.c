/* What a reader has to tell writers: its epoch every rank's, failed ranges its own rank's.
 * Contract: peers.h, reset.c. What could not be posted is posted by a later turn, or at close.
 * Threads: any. */
#include "plugin/connector.h"

void sc_plugin_failed_tell(spec_connector *conn, uint64_t piece)
{
    struct sc_store_mail mail = {.kind = SC_STORE_MAIL_FAILED, .piece = piece};
    if (conn->ranks.role != SPEC_ROLE_READER || !sc_store_piece_hash(conn->store, piece, mail.hash))
        return;
    sc_hash_to_bytes(conn->family, mail.family);
    pthread_mutex_lock(&conn->outbox.lock);
    if (conn->outbox.count < SC_PLUGIN_OUTBOX)
        conn->outbox.mail[(conn->outbox.first + conn->outbox.count++) % SC_PLUGIN_OUTBOX] = mail;
    /* Else it is void here all the same, and the next reader that meets it says so again. */
    pthread_mutex_unlock(&conn->outbox.lock);
}

/* Tells every rank that has not heard of it. */
static void post_epoch(spec_connector *conn)
{
    struct sc_store_mail mail = {.kind = SC_STORE_MAIL_EPOCH, .epoch = conn->outbox.epoch};
    sc_hash_to_bytes(conn->family, mail.family);
    for (uint32_t rank = 0; rank < conn->ranks.count; rank++)
        if (conn->outbox.epoch_told[rank] < mail.epoch &&
            sc_store_mail_post(conn->store, rank, &mail, NULL) == SPEC_OK)
            conn->outbox.epoch_told[rank] = mail.epoch;
}

static void post_failed(spec_connector *conn)
{
    for (uint32_t i = 0; i < SC_PLUGIN_OUTBOX; i++) {
        pthread_mutex_lock(&conn->outbox.lock);
        bool waits = conn->outbox.count > 0;
        struct sc_store_mail mail = conn->outbox.mail[conn->outbox.first];
        pthread_mutex_unlock(&conn->outbox.lock);
        if (!waits || sc_store_mail_post(conn->store, conn->ranks.rank, &mail, NULL) != SPEC_OK)
            return; /* a later turn tries again */
        pthread_mutex_lock(&conn->outbox.lock);
        conn->outbox.first = (conn->outbox.first + 1) % SC_PLUGIN_OUTBOX;
        conn->outbox.count--;
        pthread_mutex_unlock(&conn->outbox.lock);
    }
}

void sc_plugin_mail_post(spec_connector *conn)
{
    if (conn->ranks.role != SPEC_ROLE_READER)
        return;
    pthread_mutex_lock(&conn->ranks.follow_lock); /* the store that is followed stays what it is */
    pthread_mutex_lock(&conn->outbox.post_lock);
    post_epoch(conn);
    post_failed(conn);
    pthread_mutex_unlock(&conn->outbox.post_lock);
    pthread_mutex_unlock(&conn->ranks.follow_lock);
}

void sc_plugin_epoch_tell(spec_connector *conn, uint64_t epoch)
{
    pthread_mutex_lock(&conn->outbox.post_lock);
    if (conn->outbox.epoch < epoch)
        conn->outbox.epoch = epoch;
    pthread_mutex_unlock(&conn->outbox.post_lock);
    sc_plugin_mail_post(conn);
}
