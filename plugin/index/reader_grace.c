/* Ghosts: pieces that this reader's writer has dropped or replaced, and that leases may still name.
 * They stay pinned until no lease on them can be good.
 * Holds: a ring in the order of their ends; the oldest makes room. */
#include "plugin/connector.h"

/* Index lock held. The oldest goes: its lease is a miss from now on. */
static void ghost_end(spec_connector *conn)
{
    sc_radix_unpin(conn->radix, conn->ghosts.ring[conn->ghosts.first].run);
    conn->ghosts.first = (conn->ghosts.first + 1) % SC_PLUGIN_GHOSTS;
    conn->ghosts.count--;
}

void sc_plugin_ghost_begin(spec_connector *conn, struct sc_radix_ref run, bool is_top)
{
    struct sc_radix_segment segment;
    uint64_t lease = conn->config.lease_ns_max;
    if (conn->ghosts.ring == NULL || lease == 0 || !sc_radix_get(conn->radix, run, &segment))
        return;
    if (conn->ghosts.count == SC_PLUGIN_GHOSTS)
        ghost_end(conn);
    sc_radix_pin(conn->radix, run);
    uint64_t at = (conn->ghosts.first + conn->ghosts.count++) % SC_PLUGIN_GHOSTS;
    conn->ghosts.ring[at] = (struct sc_plugin_ghost){run, segment.value.piece,
                                                     sc_exec_now_ns(conn->exec) + lease, is_top};
}

void sc_plugin_on_replacing(struct sc_radix_ref top, void *user)
{
    sc_plugin_ghost_begin(user, top, true);
}

bool sc_plugin_ghost_find(const spec_connector *conn, struct sc_radix_ref run)
{
    struct sc_radix_segment segment;
    if (conn->ghosts.count == 0 || !sc_radix_get(conn->radix, run, &segment))
        return false;
    for (uint64_t i = 0; i < conn->ghosts.count; i++) {
        const struct sc_plugin_ghost *ghost =
            &conn->ghosts.ring[(conn->ghosts.first + i) % SC_PLUGIN_GHOSTS];
        /* Its last run, or one that others were merged into had before. */
        if (ghost->piece == segment.value.piece ||
            (ghost->is_top && sc_radix_is_below(conn->radix, run, ghost->run)))
            return true;
    }
    return false;
}

bool sc_plugin_ghosts_end_due(spec_connector *conn)
{
    uint64_t now = sc_exec_now_ns(conn->exec);
    bool ended = false;
    pthread_mutex_lock(&conn->index.lock);
    while (conn->ghosts.count > 0 && conn->ghosts.ring[conn->ghosts.first].due_ns <= now) {
        ghost_end(conn);
        ended = true;
    }
    pthread_mutex_unlock(&conn->index.lock);
    return ended;
}

void sc_plugin_ghosts_erase(spec_connector *conn)
{
    struct sc_plugin_ghosts *ghosts = &conn->ghosts;
    uint64_t kept = 0;
    pthread_mutex_lock(&conn->index.lock);
    for (uint64_t i = 0; i < ghosts->count; i++) {
        struct sc_plugin_ghost *ghost = &ghosts->ring[(ghosts->first + i) % SC_PLUGIN_GHOSTS];
        if (sc_store_piece_is_erased(conn->store, ghost->piece))
            sc_radix_unpin(conn->radix, ghost->run);
        else
            ghosts->ring[(ghosts->first + kept++) % SC_PLUGIN_GHOSTS] = *ghost;
    }
    ghosts->count = kept;
    pthread_mutex_unlock(&conn->index.lock);
}
