/* bypass: begins and ends a bypass. Contract: bypass.h. */
#include "plugin/index/bypass.h"
#include "plugin/connector.h"

void sc_plugin_bypass_open(spec_connector *conn)
{
    pthread_mutex_init(&conn->bypass.lock, NULL);
}

void sc_plugin_bypass_close(spec_connector *conn)
{
    pthread_mutex_destroy(&conn->bypass.lock);
}

static bool is_over(const spec_connector *conn, uint64_t until_ns)
{
    return until_ns != SC_EXEC_FOREVER && sc_exec_now_ns(conn->exec) >= until_ns;
}

bool sc_plugin_is_bypassed(const spec_connector *conn)
{
    uint64_t until_ns = atomic_load_explicit(&conn->bypass.until_ns, memory_order_acquire);
    return until_ns != 0 && !is_over(conn, until_ns);
}

/* Lock held. */
static void bypass_begin(spec_connector *conn)
{
    conn->bypass.lookups = sc_counted(&conn->stats.bypassed_lookups);
    conn->bypass.chunks = sc_counted(&conn->stats.bypassed_chunks);
    sc_store_build_rest(conn->store, true);
    conn->index_events->bypass_begun(conn);
}

/* Lock held. Starts jobs again that were kicked during the bypass. */
static void bypass_end(spec_connector *conn)
{
    atomic_store_explicit(&conn->bypass.until_ns, 0, memory_order_release);
    sc_store_build_rest(conn->store, false);
    SC_LOG(&conn->log, SPEC_LOG_WARN,
           "bypass ends: %" PRIu64 " lookups were misses, %" PRIu64 " chunks were not stored",
           sc_counted(&conn->stats.bypassed_lookups) - conn->bypass.lookups,
           sc_counted(&conn->stats.bypassed_chunks) - conn->bypass.chunks);
    if (!sc_plugin_can_store(conn))
        return;
    sc_plugin_kick(conn, SC_JOB_BASELINE);
    sc_plugin_kick(conn, SC_JOB_COMPACT);
}

/* Lock held. */
static void bypass_set(spec_connector *conn, uint64_t in_ns)
{
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    bool is_endless = in_ns == 0 || in_ns >= SC_EXEC_FOREVER - now_ns;
    bool was_on = atomic_load(&conn->bypass.until_ns) != 0;
    const char *what = was_on ? "goes on" : "begins";
    atomic_store_explicit(&conn->bypass.until_ns, is_endless ? SC_EXEC_FOREVER : now_ns + in_ns,
                          memory_order_release); /* before work under way is ended */
    if (is_endless)
        SC_LOG(&conn->log, SPEC_LOG_WARN, "bypass %s, until it is ended", what);
    else
        SC_LOG(&conn->log, SPEC_LOG_WARN, "bypass %s, for %" PRIu64 " ms", what, in_ns / 1000000);
    if (!was_on)
        bypass_begin(conn);
}

void sc_plugin_bypass(spec_connector *conn, uint64_t deadline_ns)
{
    sc_plugin_lock(conn, &conn->bypass.lock);
    uint64_t until_ns = atomic_load(&conn->bypass.until_ns);
    bool ends = deadline_ns == SPEC_BYPASS_END;
    if (until_ns != 0 && (ends || is_over(conn, until_ns)))
        bypass_end(conn);
    if (!ends)
        bypass_set(conn, deadline_ns);
    pthread_mutex_unlock(&conn->bypass.lock);
}

void sc_plugin_bypass_tick(spec_connector *conn)
{
    if (atomic_load_explicit(&conn->bypass.until_ns, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&conn->bypass.lock);
    uint64_t until_ns = atomic_load(&conn->bypass.until_ns);
    if (until_ns != 0 && is_over(conn, until_ns))
        bypass_end(conn);
    pthread_mutex_unlock(&conn->bypass.lock);
}
