/* Ghosts: pieces that this reader's writer has dropped or replaced, and that leases may still name.
 * They stay pinned until no lease on them can be good.
 * Holds: a ring in the order of their ends; the oldest makes room.
 * Threads: under index_lock, which ghosts_end_due takes.
 * Tests: tests/unit/plugin/test_peers.c */
#include "plugin/connector.h"

/* Index lock held. The oldest goes: its lease is a miss from now on. */
static void ghost_end(spec_connector *conn)
{
    sc_radix_unpin(conn->radix, conn->ghosts[conn->ghost_first].run);
    conn->ghost_first = (conn->ghost_first + 1) % SC_PLUGIN_GHOSTS;
    conn->ghost_count--;
}

void sc_plugin_ghost_begin(spec_connector *conn, struct sc_radix_ref run, bool is_top)
{
    struct sc_radix_segment segment;
    uint64_t lease = conn->config.lease_ns_max;
    if (conn->ghosts == NULL || lease == 0 || !sc_radix_get(conn->radix, run, &segment))
        return;
    if (conn->ghost_count == SC_PLUGIN_GHOSTS)
        ghost_end(conn);
    sc_radix_pin(conn->radix, run);
    uint64_t at = (conn->ghost_first + conn->ghost_count++) % SC_PLUGIN_GHOSTS;
    conn->ghosts[at] = (struct sc_plugin_ghost){run, segment.value.piece,
                                                sc_exec_now_ns(conn->exec) + lease, is_top};
}

void sc_plugin_on_replacing(struct sc_radix_ref top, void *user)
{
    sc_plugin_ghost_begin(user, top, true);
}

bool sc_plugin_ghost_find(const spec_connector *conn, struct sc_radix_ref run)
{
    struct sc_radix_segment segment;
    if (conn->ghost_count == 0 || !sc_radix_get(conn->radix, run, &segment))
        return false;
    for (uint64_t i = 0; i < conn->ghost_count; i++) {
        const struct sc_plugin_ghost *ghost =
            &conn->ghosts[(conn->ghost_first + i) % SC_PLUGIN_GHOSTS];
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
    pthread_mutex_lock(&conn->index_lock);
    while (conn->ghost_count > 0 && conn->ghosts[conn->ghost_first].due_ns <= now) {
        ghost_end(conn);
        ended = true;
    }
    pthread_mutex_unlock(&conn->index_lock);
    return ended;
}
