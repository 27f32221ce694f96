/* reorder: row permutation (docs/decisions/0045; IMPRESS section 4.4.1): scores an extent's rows,
 * and says when the store may free the old order. Contract: reorder.h.
 *
 *   trigger  maintain REORDER, or every reorder.interval_s: the store walks its extents
 *   scores   average importance per row and layer, of pieces that two requests have scored
 *   again    after 16 more requests, if reorder.repeat_ppm of the best rows are apart by now
 *   quiet    no request is open that was made before the new permutation was found */
#include "plugin/connector.h"

bool sc_plugin_reorder_scores(void *user, const struct sc_store_range *ranges, uint64_t range_count,
                              uint32_t layer, float *ret_scores)
{
    spec_connector *conn = user;
    uint64_t rows = 0;
    for (uint64_t i = 0; i < range_count; i++)
        rows += ranges[i].row_count;
    /* The extent's end may belong to another prompt, which was not requested again. */
    return sc_baseline_order_scores(&conn->baseline, ranges, range_count, layer, ret_scores) * 2 >=
           rows;
}

uint64_t sc_plugin_reorder_requests(void *user, const struct sc_store_range *ranges,
                                    uint64_t range_count)
{
    spec_connector *conn = user;
    return sc_baseline_order_requests(&conn->baseline, ranges, range_count);
}

uint64_t sc_plugin_reorder_moment(void *user)
{
    spec_connector *conn = user;
    return atomic_load(&conn->requests.taken);
}

bool sc_plugin_reorder_is_quiet(void *user, uint64_t moment)
{
    spec_connector *conn = user;
    for (uint32_t i = 0; i < conn->config.max_requests + SC_PLUGIN_PEEKS; i++) {
        struct sc_plugin_request *request = &conn->requests.slots[i];
        if (sc_plugin_request_phase(request) != SC_REQUEST_FREE &&
            atomic_load(&request->taken) < moment)
            return false;
    }
    return true;
}

void sc_plugin_reorder_tick(spec_connector *conn)
{
    uint64_t interval_ns = conn->config.reorder_interval_s * 1000000000u;
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    sc_store_build_settle(conn->store);
    if (interval_ns == 0 || !sc_plugin_can_store(conn) || sc_plugin_is_bypassed(conn))
        return;
    if (conn->order_due_ns != 0 && now_ns >= conn->order_due_ns)
        sc_store_build_permutation(conn->store, conn->config.maintain_bytes_per_s);
    if (conn->order_due_ns == 0 || now_ns >= conn->order_due_ns)
        conn->order_due_ns = now_ns + interval_ns;
}
