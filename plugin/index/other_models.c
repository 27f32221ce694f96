/* other_models: which model's rows are evicted first. Contract: other_models.h.
 *
 *   each second   member of a model:  "I live; what I would evict first was used at 12:03:10"
 *   evictor       its own is younger than another model's?  -> asks that member for bytes, waits
 *                 100 ms at most, and evicts its own rows for what it still lacks
 *   asked member  evicts its leaves while they are older than the asker's
 *
 * So the oldest rows of all models are evicted first, by members that know their order. Only a
 * model's own members drop its rows, while one of them lives: others do not know which rows hang on
 * which. A member that does not answer is not asked again for a second.
 *
 * Rows that are retained (retain_s) are not evicted for other models. Rows used within a lease are
 * only for a member that has nothing to evict itself, and whose pass was refused before. */
#include "plugin/index/other_models.h"
#include "plugin/connector.h"

#define SECOND_NS UINT64_C(1000000000)
#define SAY_NS    SECOND_NS
#define ANSWER_NS UINT64_C(100000000)
#define QUIET_NS  SECOND_NS

/* Returns the second of the last use of what this member would evict first; 0: nothing. */
static uint32_t coldest_s(spec_connector *conn)
{
    struct sc_radix_segment leaf;
    pthread_mutex_lock(&conn->index.lock);
    bool found = sc_plugin_index_leaf(conn, sc_radix_below(UINT64_MAX), &leaf);
    uint32_t second = found ? sc_plugin_uses_second(conn, &leaf) : 0;
    pthread_mutex_unlock(&conn->index.lock);
    return second;
}

static void others_ask(spec_connector *conn)
{
    struct sc_plugin_other_models *others = &conn->other_models;
    uint32_t before_s = 0;
    uint64_t bytes = sc_store_models_asked(conn->store, &before_s);
    if (bytes == 0)
        return;
    atomic_store(&others->asked_before_s, before_s);
    atomic_store(&others->asked_bytes, bytes);
    sc_plugin_kick(conn, SC_JOB_EVICT);
}

void sc_plugin_other_models_tick(spec_connector *conn)
{
    struct sc_plugin_other_models *others = &conn->other_models;
    uint64_t now_ns = sc_exec_now_ns(conn->exec), due_ns = atomic_load(&others->due_ns);
    if (!conn->ranks.is_member || !sc_plugin_can_store(conn))
        return;
    others_ask(conn);
    if (due_ns != 0 && now_ns >= due_ns) {
        atomic_store(&others->due_ns, 0);
        sc_plugin_kick(conn, SC_JOB_EVICT);
    }
    if (now_ns < others->say_ns)
        return;
    others->say_ns = now_ns + SAY_NS;
    bool live = atomic_load(&others->live);
    atomic_store(&others->live, sc_store_models_say(conn->store, live ? coldest_s(conn) : 0));
}

/* Returns the second before which rows of others are older than this member's. Rows that others
 * used within a lease are spared, as this member's own are. */
static uint32_t before_of(spec_connector *conn, bool is_refused)
{
    uint32_t own_s = coldest_s(conn);
    uint64_t now_ns = sc_exec_wall_ns(conn->exec), lease_ns = conn->config.lease_ns_max;
    uint32_t now_s = (uint32_t)(now_ns / SECOND_NS);
    uint32_t spared_s = now_ns > lease_ns ? (uint32_t)((now_ns - lease_ns) / SECOND_NS) : 0;
    if (own_s == 0)
        return is_refused ? now_s : spared_s;
    return own_s < spared_s ? own_s : spared_s;
}

bool sc_plugin_other_models_wait(spec_connector *conn, uint64_t bytes, bool is_refused)
{
    struct sc_plugin_other_models *others = &conn->other_models;
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    if (!atomic_load(&others->live) || bytes == 0)
        return false;
    if (now_ns < others->wait_ns)
        return true;
    if (others->wait_ns != 0 && bytes >= others->lacked)
        others->quiet_ns = now_ns + QUIET_NS;
    others->wait_ns = 0;
    if (now_ns < others->quiet_ns)
        return false;
    if (!sc_store_models_ask(conn->store, bytes, before_of(conn, is_refused)))
        return false;
    others->lacked = bytes;
    others->wait_ns = now_ns + ANSWER_NS;
    atomic_store(&others->due_ns, others->wait_ns);
    return true;
}
