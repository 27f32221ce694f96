/* submission: state of submissions for other modules. Contract: submission.h. */
#include "plugin/select/submission.h"
#include "plugin/select/item.h"

#define QUANT_GRACE_NS 1000000000ull /* wait for quantised rows beyond the deadline */

bool sc_plugin_item_is_over(spec_connector *conn, const struct sc_plugin_item *item)
{
    if (sc_plugin_request_phase(item->request) == SC_REQUEST_LEFT) /* during a call */
        return true;
    return item->is_submitted && (atomic_load(&item->request->turn) == SC_OWNER_WAITER ||
                                  item->request->epoch != atomic_load(&conn->epoch) ||
                                  sc_plugin_erase_covers(conn, item->request) ||
                                  atomic_load(&conn->submits.closing) != 0);
}

bool sc_plugin_submit_leaves(struct sc_plugin_request *request)
{
    uint32_t turn = SC_OWNER_SUBMITTED;
    return atomic_compare_exchange_strong(&request->turn, &turn, SC_OWNER_WAITER);
}

bool sc_plugin_submit_knows(const spec_connector *conn, spec_ticket ticket)
{
    uint64_t slot = (ticket & UINT32_MAX) - SC_LIMIT_TICKETS - 1, generation = ticket >> 32;
    return slot < conn->submits.count && generation > 0 &&
           generation <= atomic_load(&conn->submits.slots[slot].word) >> 32;
}

/* A layered delivery needs quantised rows, so it waits longer for them. */
uint64_t sc_plugin_item_over_ns(const struct sc_plugin_item *item)
{
    bool has_grace = item->want.is_layered && item->deadline_ns < SC_EXEC_FOREVER - QUANT_GRACE_NS;
    return has_grace ? item->deadline_ns + QUANT_GRACE_NS : item->deadline_ns;
}
