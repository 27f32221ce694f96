/* uses: the eviction order of several processes. Contract: uses.h.
 *
 *   lookup of A --second--> word of its last piece --> evictor of B: its candidate's word
 *
 *   B's own order is by the index's time, which only its own uses move. Moments translate:
 *
 *   second   .. 640  648 ..      704      712 713 714 715     the nearer, the finer
 *   time          31   31         38       40  40  41  43
 *
 * A candidate that was used after its last use here is ranked as if used here at the time of the
 * second's moment, so the same use counts once, and a later one again. A run that hung behind a
 * piece leaves it its rank, so a use of the end of a prefix keeps all of it.
 *
 * Invariants: a word keeps nothing for longer than its second says. A word without a moment, from
 * before this process opened the store, changes no rank. */
#include "plugin/index/uses.h"
#include "plugin/connector.h"

#define LEVEL_BITS 3u /* a moment of a level is 8 of the level below */
#define RENEW_PART 4u /* of a lease */
#define SECOND_NS  UINT64_C(1000000000)

void sc_plugin_uses_add(spec_connector *conn, struct sc_plugin_request *request, uint32_t which,
                        uint64_t piece)
{
    if (!conn->ranks.is_member)
        return;
    atomic_store_explicit(&request->used_pieces[which], piece, memory_order_relaxed);
    sc_store_use(conn->store, piece);
}

static void requests_renew(spec_connector *conn)
{
    for (uint32_t i = 0; i < conn->config.max_requests; i++)
        for (uint32_t which = 0; which < SC_PLUGIN_USES; which++) {
            struct sc_plugin_request *request = &conn->requests.slots[i];
            uint64_t piece =
                atomic_load_explicit(&request->used_pieces[which], memory_order_relaxed);
            if (piece != 0)
                sc_store_use(conn->store, piece);
        }
}

void sc_plugin_uses_tick(spec_connector *conn)
{
    uint64_t now_ns = sc_exec_now_ns(conn->exec), every_ns = conn->config.lease_ns_max / RENEW_PART;
    if (!conn->ranks.is_member || now_ns < conn->uses.renew_ns)
        return;
    conn->uses.renew_ns = now_ns + (every_ns < SECOND_NS ? every_ns : SECOND_NS);
    requests_renew(conn);
    pthread_mutex_lock(&conn->index.lock);
    sc_plugin_uses_now(conn);
    pthread_mutex_unlock(&conn->index.lock);
}

/* ---- Seconds and the index's time ------------------------------------------------------------ */

static uint32_t now_s(const spec_connector *conn)
{
    return (uint32_t)(sc_exec_wall_ns(conn->exec) / SECOND_NS);
}

static struct sc_plugin_moment *moment_at(struct sc_plugin_uses *uses, uint32_t level,
                                          uint32_t second)
{
    return &uses->moments[level][(second >> LEVEL_BITS * level) % SC_PLUGIN_USE_MOMENTS];
}

static bool is_of(const struct sc_plugin_moment *moment, uint32_t level, uint32_t second)
{
    return moment->second >> LEVEL_BITS * level == second >> LEVEL_BITS * level;
}

void sc_plugin_uses_now(spec_connector *conn)
{
    uint32_t second = now_s(conn);
    uint64_t time = sc_radix_time(conn->radix);
    for (uint32_t level = 0; level < SC_PLUGIN_USE_LEVELS; level++) {
        struct sc_plugin_moment *moment = moment_at(&conn->uses, level, second);
        if (!is_of(moment, level, second))
            *moment = (struct sc_plugin_moment){.time = time, .second = second};
    }
}

/* Returns the index's time at a second or a little before; 0: it is not known. */
static uint64_t time_at(struct sc_plugin_uses *uses, uint32_t second)
{
    for (uint32_t level = 0; level < SC_PLUGIN_USE_LEVELS; level++) {
        const struct sc_plugin_moment *moment = moment_at(uses, level, second);
        if (is_of(moment, level, second) && moment->second <= second)
            return moment->time;
    }
    return 0;
}

/* Returns the latest second known to be not after a time of the index; before all: the first. */
static uint32_t second_at(const struct sc_plugin_uses *uses, uint64_t time, uint32_t now)
{
    uint32_t latest = 0, first = now;
    for (uint32_t i = 0; i < SC_PLUGIN_USE_LEVELS * SC_PLUGIN_USE_MOMENTS; i++) {
        const struct sc_plugin_moment *moment =
            &uses->moments[i / SC_PLUGIN_USE_MOMENTS][i % SC_PLUGIN_USE_MOMENTS];
        if (moment->second == 0 || moment->second > now)
            continue;
        first = moment->second < first ? moment->second : first;
        if (moment->time <= time && moment->second > latest)
            latest = moment->second;
    }
    return latest != 0 ? latest : first;
}

uint32_t sc_plugin_uses_second(spec_connector *conn, const struct sc_radix_segment *leaf)
{
    uint32_t noted = sc_store_used_s(conn->store, leaf->value.piece);
    uint32_t own = second_at(&conn->uses, sc_radix_time_of(conn->radix, leaf->node), now_s(conn));
    return own > noted ? own : noted;
}

bool sc_plugin_uses_keep(spec_connector *conn, const struct sc_radix_segment *leaf,
                         struct sc_plugin_looks *looks)
{
    uint32_t second = sc_store_used_s(conn->store, leaf->value.piece);
    if (second == 0)
        return false;
    if (sc_radix_used_then(conn->radix, leaf->node, time_at(&conn->uses, second))) {
        looks->raised++;
        return true;
    }
    uint64_t end_ns = (second + UINT64_C(1)) * SECOND_NS + conn->config.lease_ns_max;
    if (!looks->spares || end_ns <= sc_exec_wall_ns(conn->exec))
        return false;
    sc_radix_pass_over(conn->radix, leaf->node); /* as one that is in use here */
    looks->spared++;
    return true;
}
