/* load_call: begin_layer, prefetch_next and get_important, the host's calls that load.
 *
 * Each call enters its requests and ends its visit, which ends requests that were released
 * meanwhile.
 * Threads: calls for one request do not overlap (ABI); requests are independent.
 * Tests: conformance (abi_040_* .. abi_071_*), tests/unit/plugin/test_load.c */
#include "plugin/args/handle.h"
#include "plugin/load/batch.h"
#include "plugin/load/load.h"
#include "plugin/request/requests.h"
#include "plugin/select/budget.h"
#include "plugin/select/item.h"
#include "plugin/select/prefetch.h"
#include "plugin/select/select.h"

static spec_status begin_layer(spec_connector *conn, struct sc_plugin_visit *visit,
                               const spec_request *requests, uint64_t count, uint32_t layer,
                               struct spec_error *reterr)
{
    if (requests == NULL || count == 0 || count > SC_LIMIT_BATCH)
        return sc_fail(reterr, SPEC_E_INVALID, "begin_layer: 1 .. %u requests expected",
                       SC_LIMIT_BATCH);
    spec_status status = sc_plugin_layer_check(conn, layer, "begin_layer", reterr);
    if (status != SPEC_OK)
        return status;
    struct sc_plugin_request *found[SC_LIMIT_BATCH]; /* looked up once: a reset may happen */
    for (uint64_t i = 0; i < count; i++) {
        status = sc_plugin_request_enter(conn, visit, requests[i], &found[i], reterr);
        if (status != SPEC_OK)
            return status;
    }
    for (uint64_t i = 0; i < count; i++)
        if (sc_plugin_is_submitted(found[i]))
            return sc_plugin_submitted(requests[i], reterr);
    layer = sc_plugin_row_layer(conn, layer); /* states are read on demand */
    for (uint32_t ahead = 0; ahead < SC_PLUGIN_SELECTORS; ahead++)
        for (uint64_t i = 0; i < count && layer + ahead < conn->dims.layer_count; i++)
            if (sc_plugin_has_loads(found[i]))
                sc_plugin_select_ahead(conn, found[i], layer + ahead, ahead < SC_PLUGIN_AHEAD);
    return SPEC_OK;
}

spec_status sc_plugin_begin_layer(spec_connector *conn, const spec_request *requests,
                                  uint64_t count, uint32_t layer, struct spec_error *reterr)
{
    struct sc_plugin_visit visit = {NULL};
    spec_status status = begin_layer(conn, &visit, requests, count, layer, reterr);
    sc_plugin_visit_end(conn, &visit);
    return status;
}

static spec_status prefetch_next(spec_connector *conn, struct sc_plugin_visit *visit,
                                 spec_request handle, uint32_t layer,
                                 const struct spec_queries *hint, struct spec_error *reterr)
{
    struct sc_plugin_request *request;
    spec_status status = sc_plugin_request_enter(conn, visit, handle, &request, reterr);
    if (status != SPEC_OK)
        return status;
    if (sc_plugin_is_submitted(request))
        return sc_plugin_submitted(handle, reterr);
    status = sc_plugin_layer_check(conn, layer, "prefetch_next", reterr);
    struct spec_queries queries;
    if (status == SPEC_OK && hint != NULL)
        status = sc_plugin_queries_read(hint, "prefetch_next: hint", &queries, reterr);
    if (status == SPEC_OK && hint != NULL && conn->layers == NULL) /* else it is ignored */
        status = sc_plugin_queries_check(conn, &queries, "prefetch_next: hint", reterr);
    if (status == SPEC_OK && hint != NULL && conn->choice.reads_quant &&
        queries.heads == SPEC_QUERIES_PROBE)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "prefetch_next: hint: all heads expected, since codes of all are scored");
    if (status != SPEC_OK)
        return status;
    uint32_t next = sc_plugin_row_layer(conn, layer) + !sc_plugin_keeps_recurrent(conn, layer);
    for (uint32_t ahead = 0; ahead + 1 < SC_PLUGIN_SELECTORS; ahead++)
        if (next + ahead < conn->dims.layer_count && sc_plugin_has_loads(request))
            sc_plugin_select_ahead(conn, request, next + ahead, ahead == 0);
    if (next < conn->dims.layer_count && sc_plugin_has_loads(request))
        sc_plugin_prefetch_ask(conn, request, next, hint != NULL ? &queries : NULL);
    return SPEC_OK;
}

spec_status sc_plugin_prefetch_next(spec_connector *conn, spec_request handle, uint32_t layer,
                                    const struct spec_queries *hint, struct spec_error *reterr)
{
    struct sc_plugin_visit visit = {NULL};
    spec_status status = prefetch_next(conn, &visit, handle, layer, hint, reterr);
    sc_plugin_visit_end(conn, &visit);
    return status;
}

static spec_status items_deliver(spec_connector *conn, struct spec_important *items, uint64_t count,
                                 uint64_t begin_ns, struct sc_plugin_item *work,
                                 struct spec_error *reterr)
{
    sc_plugin_items_begin(conn, work, count, begin_ns);
    spec_status status = sc_plugin_items_serve(conn, work, count, reterr);
    uint64_t took_ns = (sc_exec_now_ns(conn->exec) - begin_ns) / count;
    for (uint64_t i = 0; i < count; i++)
        sc_plugin_load_policy_call(work[i].request, took_ns, work[i].in.io_exposed_ns);
    return sc_plugin_items_report(conn, items, work, count, status, reterr);
}

static spec_status items_do(spec_connector *conn, struct spec_important *items, uint64_t count,
                            uint64_t begin_ns, struct sc_plugin_item *work,
                            struct spec_error *reterr)
{
    struct sc_plugin_visit visit = {NULL};
    spec_status status = sc_plugin_items_check(conn, &visit, items, count, false, work, reterr);
    if (status == SPEC_OK)
        status = items_deliver(conn, items, count, begin_ns, work, reterr);
    sc_plugin_visit_end(conn, &visit);
    return status;
}

spec_status sc_plugin_get_important(spec_connector *conn, struct spec_important *items,
                                    uint64_t count, struct spec_error *reterr)
{
    struct sc_plugin_item few[SC_PLUGIN_ITEMS_FEW];
    uint64_t begin_ns = sc_exec_now_ns(conn->exec);
    if (count <= SC_PLUGIN_ITEMS_FEW || count > SC_LIMIT_BATCH) /* more are refused */
        return items_do(conn, items, count, begin_ns, few, reterr);
    struct sc_plugin_item *many = sc_plugin_batch_take(conn);
    spec_status status = items_do(conn, items, count, begin_ns, many, reterr);
    sc_plugin_batch_put(conn, many);
    return status;
}
