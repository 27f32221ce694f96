/* reader_grace: pieces that the writer dropped or replaced stay pinned while leases may name them.
 * A ring ordered by end; a full ring drops the oldest. */
#include "plugin/connector.h"

/* Index lock held. Ends the oldest entry; its lease is a miss from now on. */
static void grace_entry_end(spec_connector *conn)
{
    sc_radix_unpin(conn->radix, conn->grace.ring[conn->grace.first].run);
    conn->grace.first = (conn->grace.first + 1) % SC_PLUGIN_GRACE_ENTRIES;
    conn->grace.count--;
}

void sc_plugin_grace_entry_begin(spec_connector *conn, struct sc_radix_ref run, bool is_top)
{
    struct sc_radix_segment segment;
    uint64_t lease = conn->config.lease_ns_max;
    if (conn->grace.ring == NULL || lease == 0 || !sc_radix_get(conn->radix, run, &segment))
        return;
    if (conn->grace.count == SC_PLUGIN_GRACE_ENTRIES)
        grace_entry_end(conn);
    sc_radix_pin(conn->radix, run);
    uint64_t at = (conn->grace.first + conn->grace.count++) % SC_PLUGIN_GRACE_ENTRIES;
    conn->grace.ring[at] = (struct sc_plugin_grace_entry){
        run, segment.value.piece, sc_exec_now_ns(conn->exec) + lease, is_top};
}

void sc_plugin_on_replacing(struct sc_radix_ref top, void *user)
{
    sc_plugin_grace_entry_begin(user, top, true);
}

bool sc_plugin_grace_entry_find(const spec_connector *conn, struct sc_radix_ref run)
{
    struct sc_radix_segment segment;
    if (conn->grace.count == 0 || !sc_radix_get(conn->radix, run, &segment))
        return false;
    for (uint64_t i = 0; i < conn->grace.count; i++) {
        const struct sc_plugin_grace_entry *grace_entry =
            &conn->grace.ring[(conn->grace.first + i) % SC_PLUGIN_GRACE_ENTRIES];
        /* Its last run, or the run of a piece compacted into another. */
        if (grace_entry->piece == segment.value.piece ||
            (grace_entry->is_top && sc_radix_is_below(conn->radix, run, grace_entry->run)))
            return true;
    }
    return false;
}

bool sc_plugin_reader_grace_end_due(spec_connector *conn)
{
    uint64_t now = sc_exec_now_ns(conn->exec);
    bool ended = false;
    pthread_mutex_lock(&conn->index.lock);
    while (conn->grace.count > 0 && conn->grace.ring[conn->grace.first].due_ns <= now) {
        grace_entry_end(conn);
        ended = true;
    }
    pthread_mutex_unlock(&conn->index.lock);
    return ended;
}

void sc_plugin_reader_grace_erase(spec_connector *conn)
{
    struct sc_plugin_reader_grace *grace = &conn->grace;
    uint64_t kept = 0;
    pthread_mutex_lock(&conn->index.lock);
    for (uint64_t i = 0; i < grace->count; i++) {
        struct sc_plugin_grace_entry *grace_entry =
            &grace->ring[(grace->first + i) % SC_PLUGIN_GRACE_ENTRIES];
        if (sc_store_piece_is_erased(conn->store, grace_entry->piece))
            sc_radix_unpin(conn->radix, grace_entry->run);
        else
            grace->ring[(grace->first + kept++) % SC_PLUGIN_GRACE_ENTRIES] = *grace_entry;
    }
    grace->count = kept;
    pthread_mutex_unlock(&conn->index.lock);
}
