/* take_over_tick: an AUTO reader becomes the rank's writer when there is none. Contract: peers.h.
 *
 *   tick, every TRY_NS   the writer's lock is free? -> the store takes over -> role, then what a
 *                        writer's open does: the epoch, orphans, rows to quantise
 *
 * Requests that are open go on. Calls that found the role READER finish as a reader's: what they
 * dropped is recorded by the store, what they posted is our own mail now.
 * Tests: tests/unit/plugin/test_take_over_tick.c, tests/fault/test_processes.c */
#include "plugin/connector.h"

#define TRY_NS     UINT64_C(100000000)
#define ORPHANS_NS UINT64_C(60000000000)

/* As at a writer's open. */
static void begin_writing(spec_connector *conn)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    atomic_store_explicit(&conn->ranks.role, SPEC_ROLE_WRITER, memory_order_release);
    if (sc_plugin_epoch_open(conn, &error) != SPEC_OK) /* the tick reads it again */
        SC_LOG(&conn->log, SPEC_LOG_WARN, "taking over: %s", error.text);
    sc_plugin_orphans_drop(conn);
    sc_plugin_drops_flush(conn);
    conn->ranks.quantises = true;
}

/* A member that ended may have dropped a piece, and not what another stored behind it meanwhile. */
static void orphans_tick(spec_connector *conn, uint64_t now_ns)
{
    if (now_ns < conn->ranks.orphans_ns)
        return;
    conn->ranks.orphans_ns = now_ns + ORPHANS_NS;
    sc_plugin_orphans_drop(conn);
    pthread_mutex_lock(&conn->index.lock);
    conn->index.has_orphans = false;
    pthread_mutex_unlock(&conn->index.lock);
}

void sc_plugin_take_over_tick(spec_connector *conn)
{
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    if (conn->ranks.quantises && !sc_store_is_paused(conn->store)) { /* extents can begin */
        conn->ranks.quantises = false;
        sc_store_build_quant(conn->store);
    }
    if (conn->ranks.is_member && sc_plugin_can_store(conn) && !sc_store_stores(conn->store))
        atomic_store(&conn->ranks.role, SPEC_ROLE_READER); /* the store has said why */
    if (conn->ranks.is_member && sc_plugin_can_store(conn)) {
        sc_store_claims_tick(conn->store);
        sc_store_pieces_drop(conn->store, NULL, 0); /* records that could not be written */
        orphans_tick(conn, now_ns);
    }
    if (!conn->ranks.takes_over || now_ns < conn->ranks.take_over_ns)
        return;
    conn->ranks.take_over_ns = now_ns + TRY_NS;
    pthread_mutex_lock(&conn->ranks.follow_lock);
    spec_status status = sc_store_take_over(conn->store, NULL); /* the store says why it cannot */
    atomic_store(&conn->ranks.pieces_followed, sc_store_piece_next(conn->store));
    pthread_mutex_unlock(&conn->ranks.follow_lock);
    if (status == SPEC_E_LOCKED)
        return;
    conn->ranks.takes_over = false;
    if (status != SPEC_OK)
        return;
    SC_LOG(&conn->log, SPEC_LOG_INFO, "%s: this process stores from now on",
           conn->ranks.is_member ? "nobody has the store alone any more" : "the writer ended");
    begin_writing(conn);
}
