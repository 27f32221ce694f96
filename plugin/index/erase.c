/* erase: receives intents to erase and executes them. Contract: erase.h, store/erase.h. */
#include "plugin/index/erase.h"
#include "plugin/connector.h"
#include "store/erase.h"

#include <string.h>

#define RETRY_NS UINT64_C(5000000000) /* after a failure */

static void on_new(const struct sc_store_erasure *what, void *user)
{
    spec_connector *conn = user;
    sc_plugin_erase_note(conn, what);
    SC_LOG(&conn->log, SPEC_LOG_INFO, "erasure of %s begins",
           what->is_all ? "everything" : "what was stored under a salt");
}

static void on_gone(uint64_t piece, uint64_t mark, void *user)
{
    sc_plugin_piece_erase(user, sc_plugin_ref_of(mark), piece);
}

/* Marks what is covered. No commit, or in a reader no following of the log, runs meanwhile; later
 * commits test for coverage. */
static void mark(spec_connector *conn)
{
    bool reads = !sc_plugin_can_store(conn);
    pthread_mutex_t *lock = reads ? &conn->ranks.follow_lock : &conn->commit_lock;
    pthread_mutex_lock(lock);
    sc_store_turn_begin(conn->store);
    sc_store_erase_mark(conn->store, on_gone, conn);
    sc_store_turn_end(conn->store);
    if (sc_plugin_follows(conn))
        sc_plugin_reader_grace_erase(conn);
    pthread_mutex_unlock(lock);
    sc_plugin_kick(conn, SC_JOB_TIDY);
}

/* Lock held. Acts if intents were noted since `before`. */
static void heard_since(spec_connector *conn, uint64_t before)
{
    if (atomic_load(&conn->erasures.heard) == before)
        return;
    mark(conn);
    conn->index_events->erasure_heard(conn);
}

/* Reads the intents. `known`: just put by this process, counted even if deleted; or NULL. */
static spec_status hear(spec_connector *conn, const struct sc_store_erasure *known,
                        struct spec_error *reterr)
{
    struct sc_plugin_erase *erase = &conn->erase;
    pthread_mutex_lock(&erase->lock);
    uint64_t before = atomic_load(&conn->erasures.heard);
    if (known != NULL) {
        sc_store_erase_know(conn->store, known, on_new, conn);
        heard_since(conn, before);
        before = atomic_load(&conn->erasures.heard);
    }
    spec_status status = sc_store_erase_hear(conn->store, on_new, conn, reterr);
    heard_since(conn, before);
    pthread_mutex_unlock(&erase->lock);
    if (sc_store_erasures(conn->store) > 0 && sc_plugin_can_store(conn))
        sc_plugin_kick(conn, SC_JOB_CHECKPOINT);
    return status;
}

spec_status sc_plugin_erase_open(spec_connector *conn, struct spec_error *reterr)
{
    conn->erase.marks = true;
    return hear(conn, NULL, reterr);
}

spec_status sc_plugin_erase_put(spec_connector *conn, const struct spec_bytes *salt,
                                struct spec_error *reterr)
{
    struct sc_store_erasure what = {.is_all = salt == NULL};
    struct sc_store_salt known = {.state = SC_STORE_SALT_KNOWN};
    struct spec_error why = {.struct_size = sizeof(why)};
    if (salt != NULL)
        known = sc_plugin_salt(conn, salt);
    if (known.state == SC_STORE_SALT_UNKNOWN) /* a reader without a store */
        return SPEC_OK;
    memcpy(what.salt, known.digest, sizeof(what.salt));
    spec_status status = sc_store_erase_put(conn->store, &what, &why);
    if (status == SPEC_OK)
        status = hear(conn, &what, &why);
    return status == SPEC_OK
               ? SPEC_OK
               : sc_fail_errno(reterr, status, why.sys_errno, "maintain: erase: %s", why.text);
}

void sc_plugin_erase_tick(spec_connector *conn)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (!sc_store_erase_due(conn->store) && sc_store_erasures(conn->store) == 0 &&
        conn->erase.status == SPEC_OK)
        return;
    spec_status status = hear(conn, NULL, &error);
    if (status != SPEC_OK && status != conn->erase.status)
        SC_LOG(&conn->log, SPEC_LOG_WARN, "erasures cannot be read: %s", error.text);
    conn->erase.status = status;
    /* Covers pieces that the log added meanwhile. */
    if (sc_store_erasures(conn->store) > 0 && sc_plugin_follows(conn))
        mark(conn);
}

static void failed(spec_connector *conn, spec_status status, const struct spec_error *error)
{
    conn->erase.retry_ns = sc_exec_now_ns(conn->exec) + RETRY_NS;
    SC_LOG(&conn->log, SPEC_LOG_ERROR, "nothing counts as erased, tried again in %llu s (%s): %s",
           (unsigned long long)(RETRY_NS / 1000000000u), sc_status_name(status), error->text);
}

static void ended(spec_connector *conn)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store_erase_counts counts = sc_store_erase_counts(conn->store);
    SC_LOG(&conn->log, SPEC_LOG_INFO,
           "erased: %" PRIu64 " erasures since open, %" PRIu64 " bytes were overwritten",
           counts.erased, counts.zeroed_bytes);
    (void)hear(conn, NULL, &error); /* the next tick reports failures */
}

bool sc_plugin_erase_some(spec_connector *conn)
{
    struct sc_plugin_erase *erase = &conn->erase;
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t before = sc_store_erase_counts(conn->store).erased;
    bool more = false;
    if (sc_exec_now_ns(conn->exec) < erase->retry_ns)
        return false; /* the tick kicks */
    if (erase->marks)
        mark(conn);
    spec_status status = sc_store_erase_step(conn->store, &more, &error);
    erase->marks = status != SPEC_OK || !more;
    if (status != SPEC_OK && status != SPEC_PENDING)
        failed(conn, status, &error);
    if (sc_store_erase_counts(conn->store).erased != before)
        ended(conn);
    return status == SPEC_OK && more;
}
