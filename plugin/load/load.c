/* load: the items of a get_important, from their check to their results.
 *
 *   check    every item of the call, before anything changes
 *   begin    reads of whole layers and of selectors
 *   serve    rows are selected and their reads begun, item by item; then rows are consumed, item by
 *            item, so that the device never waits for a later item's scores
 *   report   results to the host and to the requests
 *
 * Invariants: of a call's items only the one being consumed draws on the demand share of the
 * staging frames, so that concurrent calls always progress.
 * Limits: allocates nothing. */
#include "plugin/load/load.h"
#include "plugin/args/args.h"
#include "plugin/args/handle.h"
#include "plugin/args/provenance.h"
#include "plugin/device/h2d_batch.h"
#include "plugin/load/bidirectional.h"
#include "plugin/load/load_recurrent.h"
#include "plugin/load/loads_end.h"
#include "plugin/load/refine.h"
#include "plugin/select/budget.h"
#include "plugin/select/delivery.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/prefetch.h"
#include "plugin/select/row_bits.h"
#include "plugin/select/scatter.h"
#include "plugin/select/select.h"
#include "plugin/select/submission.h"
#include "plugin/select/upper_bus.h"

#include <string.h>

spec_status sc_plugin_layer_check(const spec_connector *conn, uint32_t layer, const char *call,
                                  struct spec_error *reterr)
{
    if (layer >= sc_plugin_layers_named(conn))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: layer is %" PRIu32 ", the model has %" PRIu32 " layers", call, layer,
                       sc_plugin_layers_named(conn));
    return SPEC_OK;
}

/* Checks that so many positions, and all rows, can be returned. */
static spec_status check_room(spec_connector *conn, struct sc_plugin_item *item,
                              uint64_t position_count, struct spec_error *reterr)
{
    const struct spec_important *in = &item->in;
    struct sc_plugin_device_seat seat = {&conn->device,
                                         (uint64_t)(item->request - conn->requests.slots)};
    const struct sc_plugin_memory_need need = {"get_important: destination", SC_MEMORY_DESTINATION,
                                               sc_plugin_shape_of(conn, in->layer),
                                               item->want.row_total};
    const struct sc_plugin_memory_way way = {sc_plugin_h2d_batch_check, &seat};
    if (in->positions != NULL && in->position_capacity < position_count)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: position_capacity is %" PRIu64 ", expected %" PRIu64,
                       in->position_capacity, position_count);
    return sc_plugin_memory_check_on(in->destination, &need, &way, &item->memory, reterr);
}

/* Resolves what the item wants; checks that it can be scored and returned. */
static spec_status check_choice(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    bool is_ahead = sc_plugin_is_ahead(&item->in);
    spec_status status = sc_plugin_want_resolve(conn, item, reterr);
    if (status == SPEC_OK && is_ahead)
        sc_plugin_want_ahead(item);
    if (status == SPEC_OK && item->is_submitted)
        sc_plugin_want_ranked(conn, item);
    if (status == SPEC_OK)
        status = sc_plugin_scoring_check(conn, item, reterr);
    if (status != SPEC_OK)
        return status;
    if (is_ahead && !sc_plugin_delivery_fits(conn, item))
        return sc_fail(reterr, SPEC_E_BUSY,
                       "get_important: SPEC_ITEM_AHEAD: %" PRIu64
                       " rows are more than a request's share of layered.refine_bytes keeps",
                       item->want.row_total);
    bool may_part = item->want.has_head_sets && !item->scoring.is_probes_only;
    uint64_t sets = may_part ? conn->shape.kv_head_count : 1;
    return check_room(conn, item, sets * item->want.row_total, reterr);
}

static spec_status check_refined(spec_connector *conn, struct sc_plugin_item *item,
                                 struct spec_error *reterr)
{
    item->want.row_total = sc_plugin_row_total(item->request);
    spec_status status = check_room(conn, item, item->want.row_total, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_refine_check(conn, item, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_want_refine(conn, item, sc_plugin_refine_came_ahead(item),
                                       sc_plugin_refine_chooses(item), reterr);
    if (status != SPEC_OK || !sc_plugin_refine_chooses(item)) /* queries are ignored */
        return status;
    sc_plugin_want_ranked(conn, item);
    return sc_plugin_scoring_check(conn, item, reterr);
}

/* Checks that an item of a bidirectional load has what it may have; select is checked later. */
static spec_status check_tail_kind(const struct sc_plugin_item *item, uint64_t i,
                                   struct spec_error *reterr)
{
    const struct spec_important *in = &item->in;
    if (in->flags != SPEC_ITEM_BIDIRECTIONAL || !item->is_submitted || in->queries != NULL ||
        in->new_keys != NULL || in->positions != NULL || in->exact_bits != NULL ||
        in->budget_bytes != 0 || in->refine_of != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64 "]: SPEC_ITEM_BIDIRECTIONAL is for "
                       "get_important_submit, and for a destination, a deadline and exact_ppm "
                       "alone",
                       i);
    return SPEC_OK;
}

static spec_status check_kind(const spec_connector *conn, const struct sc_plugin_item *item,
                              uint64_t i, struct spec_error *reterr)
{
    const struct spec_important *in = &item->in;
    bool is_ahead = sc_plugin_is_ahead(in);
    if ((in->flags & ~(SPEC_ITEM_AHEAD | SPEC_ITEM_RESCORE | SPEC_ITEM_BIDIRECTIONAL)) != 0 ||
        in->reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64 "]: flags is %#" PRIx32
                       ", SPEC_ITEM_* expected, reserved %" PRIu32 ", 0 expected",
                       i, in->flags, in->reserved);
    if (sc_plugin_is_tail(in) && conn->states.count > 0)
        return sc_fail(
            reterr, SPEC_E_INVALID,
            "get_important: items[%" PRIu64
            "]: SPEC_ITEM_BIDIRECTIONAL: states of the model stand for all tokens of the match",
            i);
    if (sc_plugin_is_tail(in))
        return check_tail_kind(item, i, reterr);
    if (is_ahead && (in->refine_of != 0 || !item->is_submitted))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64
                       "]: SPEC_ITEM_AHEAD is for get_important_submit, without refine_of",
                       i);
    if (sc_plugin_rescores(in) && (in->refine_of == 0 || in->queries == NULL))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64
                       "]: SPEC_ITEM_RESCORE is for an item with refine_of and queries",
                       i);
    if ((is_ahead || in->refine_of != 0) && conn->config.base != SC_BASE_QUANTISED)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "get_important: items[%" PRIu64
                       "]: refine_of and SPEC_ITEM_AHEAD: only if select.base is quantised",
                       i);
    return SPEC_OK;
}

/* Checks the item of a recurrent state, which is delivered whole: budgets and queries are
 * ignored. */
static spec_status check_state(spec_connector *conn, struct sc_plugin_item *item, uint64_t i,
                               struct spec_error *reterr)
{
    const struct spec_important *in = &item->in;
    item->want.row_total = sc_plugin_row_total(item->request) > 0;
    if (in->flags != 0 || in->refine_of != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64
                       "]: a state is delivered once, without SPEC_ITEM_* and refine_of",
                       i);
    if ((in->positions != NULL && in->position_capacity < item->want.row_total) ||
        (in->exact_bits != NULL && in->exact_bit_words < item->want.row_total))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: items[%" PRIu64
                       "]: room for one position, and a word of bits, "
                       "expected",
                       i);
    return sc_plugin_recurrent_memory(conn, in->layer, "get_important: destination",
                                      in->destination, &item->memory, reterr);
}

static spec_status check_tail(spec_connector *conn, struct sc_plugin_item *item,
                              struct spec_error *reterr)
{
    spec_status status = sc_plugin_want_tail(conn, item, reterr);
    return status == SPEC_OK ? check_room(conn, item, 0, reterr) : status;
}

static spec_status check_item(spec_connector *conn, struct sc_plugin_visit *visit,
                              struct spec_important *items, uint64_t i,
                              struct sc_plugin_item *ret_item, struct spec_error *reterr)
{
    struct spec_important *in = &ret_item->in;
    spec_status status = sc_plugin_args_read_at(in, &sc_plugin_form_important, items, i,
                                                "get_important: items", reterr);
    if (status != SPEC_OK)
        return status;
    status = check_kind(conn, ret_item, i, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_layer_check(conn, in->layer, "get_important", reterr);
    if (status == SPEC_OK)
        status = sc_plugin_request_enter(conn, visit, in->request, &ret_item->request, reterr);
    if (status != SPEC_OK)
        return status;
    if (sc_plugin_is_submitted(ret_item->request))
        return sc_plugin_submitted(in->request, reterr);
    ret_item->named_layer = in->layer;
    if (sc_plugin_keeps_recurrent(conn, in->layer)) {
        ret_item->route = SC_ROUTE_RECURRENT;
        return check_state(conn, ret_item, i, reterr);
    }
    in->layer = sc_plugin_row_layer(conn, in->layer);
    if (sc_plugin_is_tail(in))
        return check_tail(conn, ret_item, reterr);
    uint64_t rows = sc_plugin_row_total(ret_item->request) -
                    sc_plugin_row_first(conn, ret_item->request, in->layer);
    uint64_t words = (rows + 63) / 64;
    if (in->exact_bits != NULL && in->exact_bit_words < words)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: exact_bit_words is %" PRIu64 ", expected %" PRIu64,
                       in->exact_bit_words, words);
    return in->refine_of != 0 ? check_refined(conn, ret_item, reterr)
                              : check_choice(conn, ret_item, reterr);
}

static spec_status finish_whole(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    struct spec_important *in = &item->in;
    uint64_t rows = item->want.row_total;
    spec_status status = sc_plugin_select_all(conn, item, reterr);
    if (status != SPEC_OK)
        return status;
    bool is_dense = item->route == SC_ROUTE_DENSE;
    sc_plugin_tell_all(item);
    in->exact_rows = rows;
    in->result_flags = is_dense ? SPEC_IMPORTANT_DENSE : 0;
    sc_plugin_tiers_tell(item, rows);
    in->prefetched_rows = item->covered_rows;
    sc_count(&conn->stats.dense_layers, is_dense);
    sc_count(&conn->stats.prefetched_rows, item->covered_rows);
    sc_count(&conn->stats.demanded_rows, rows - item->covered_rows);
    return SPEC_OK;
}

static spec_status start_item(spec_connector *conn, struct sc_plugin_item *item,
                              enum sc_io_class io_class, struct spec_error *reterr)
{
    return item->route == SC_ROUTE_REFINE ? sc_plugin_refine_start(conn, item, io_class, reterr)
                                          : sc_plugin_select_start(conn, item, io_class, reterr);
}

static spec_status finish_item(spec_connector *conn, struct sc_plugin_item *item,
                               struct spec_error *reterr)
{
    struct spec_important *in = &item->in;
    bool is_whole = item->route == SC_ROUTE_WHOLE || item->route == SC_ROUTE_DENSE;
    if (item->route == SC_ROUTE_REFINE)
        return sc_plugin_refine_finish(conn, item, reterr);
    spec_status status =
        is_whole ? finish_whole(conn, item, reterr) : sc_plugin_select_finish(conn, item, reterr);
    if (in->exact_bits != NULL && item->route != SC_ROUTE_LAYERED)
        sc_plugin_bits_all(in->exact_bits, in->row_count); /* nothing is quantised */
    return status;
}

static spec_status serve_rows(spec_connector *conn, struct sc_plugin_item *item,
                              struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct spec_important *in = &item->in;
    if (request->failed_position != UINT64_MAX) {
        if (item->route == SC_ROUTE_REFINE)
            sc_plugin_refine_tell(item);
        return sc_fail(reterr, request->failed_status,
                       "request %#" PRIx64 " is void from token %" PRIu64 " on", in->request,
                       in->failed_position);
    }
    if (sc_plugin_row_total(request) == 0 || item->want.row_total == 0)
        return SPEC_OK;
    if (item->route == SC_ROUTE_RECURRENT)
        return sc_plugin_recurrent_load(conn, item, reterr);
    if (item->is_late)
        item->status = start_item(conn, item, SC_IO_CLASS_DEMAND, reterr);
    if (item->status != SPEC_OK)
        return item->status;
    return finish_item(conn, item, reterr);
}

static spec_status serve_item(spec_connector *conn, struct sc_plugin_item *item,
                              struct spec_error *reterr)
{
    struct sc_plugin_request *request = item->request;
    struct spec_important *in = &item->in;
    in->next_position = request->matched_tokens;
    in->failed_position = request->failed_position;
    if (sc_plugin_item_is_over(conn, item))
        return sc_plugin_stale(in->request, reterr);
    spec_status status = serve_rows(conn, item, reterr);
    in->failed_position = request->failed_position;
    if (request->failed_position == UINT64_MAX)
        return status;
    sc_plugin_loads_end(conn, request); /* not before: only now the item does not use them */
    return request->failed_status == SPEC_E_STALE ? sc_plugin_stale(in->request, reterr) : status;
}

static void clear_results(struct sc_plugin_item *item)
{
    struct spec_important *in = &item->in;
    uint64_t first = offsetof(struct spec_important, status);
    memset((uint8_t *)in + first, 0, offsetof(struct spec_important, select) - first);
}

/* Ends the prediction of the item's layer. Its reads are dropped unless the item selects rows. */
static void prefetch_leave(spec_connector *conn, struct sc_plugin_item *item, uint64_t now_ns)
{
    bool refines = item->in.refine_of != 0;
    if (refines && !sc_plugin_refine_chooses(item))
        return;
    sc_plugin_prefetch_end(conn, item->request, item->in.layer, now_ns);
    if (refines || !item->want.selects) /* refining does not use them */
        item->in.unused_bytes = item->in.read_bytes =
            sc_plugin_prefetch_drop(conn, item->request, item->in.layer, SC_LOAD_WHOLE);
}

/* Begins to read the selectors of the two layers after one that is delivered ahead. The layer below
 * it was delivered, so its selector's memory is free; the device works while the host computes. */
static void quant_follow(spec_connector *conn, const struct sc_plugin_item *item)
{
    for (uint32_t ahead = 1; ahead < SC_PLUGIN_SELECTORS; ahead++)
        if (item->in.layer + ahead < conn->dims.layer_count)
            sc_plugin_select_ahead(conn, item->request, item->in.layer + ahead, false);
}

/* Returns true if the item needs the quantised rows again. */
static bool rescores_some(const struct sc_plugin_item *item)
{
    return sc_plugin_rescores(&item->in) && sc_plugin_refine_chooses(item) &&
           item->want.row_count > 0;
}

/* Later items that select rows of a request wait until they are served: a request has one set. */
void sc_plugin_items_begin(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                           uint64_t begin_ns)
{
    if (sc_plugin_is_tail(&work->in))
        sc_plugin_tail_begin(work->request);
    for (uint64_t i = 0; i < count; i++)
        sc_plugin_delivery_hold(&work[i]);
    for (uint64_t i = 0; i < count; i++) {
        struct sc_plugin_item *item = &work[i];
        uint64_t within_ns = item->in.deadline_ns;
        item->deadline_ns = SC_EXEC_FOREVER;
        if (within_ns != 0 && within_ns < SC_EXEC_FOREVER - begin_ns)
            item->deadline_ns = begin_ns + within_ns;
        clear_results(item);
        item->memory.begun = item->memory.target->fence(&item->memory, SC_FENCE_BEGIN, NULL);
        sc_plugin_scoring_begin(item);
        sc_plugin_delivery_begin(conn, item);
        if (item->route == SC_ROUTE_RECURRENT)
            continue;
        for (uint64_t j = 0; j < i && item->want.selects && !item->is_late; j++)
            item->is_late = work[j].want.selects && work[j].request == item->request;
        prefetch_leave(conn, item, begin_ns);
        item->route = SC_ROUTE_REFINE;
        if (rescores_some(item) && sc_plugin_has_loads(item->request)) /* for all items at once */
            sc_plugin_select_ahead(conn, item->request, item->in.layer, false);
        if (item->in.refine_of != 0)
            continue;
        item->route = item->want.selects    ? SC_ROUTE_GATHER
                      : item->want.is_short ? SC_ROUTE_DENSE
                                            : SC_ROUTE_WHOLE;
        if (sc_plugin_is_tail(&item->in)) /* begins its own reads */
            continue;
        /* Nobody waits for a submission before it is served. */
        bool is_awaited = i == 0 && !item->is_submitted;
        if (sc_plugin_has_loads(item->request) && !item->want.selects)
            item->was_started =
                sc_plugin_layer_start(conn, item->request, item->in.layer,
                                      is_awaited ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE);
        else if (sc_plugin_has_loads(item->request))
            sc_plugin_select_item_ahead(conn, item);
        if (sc_plugin_is_ahead(&item->in) && count == 1 && sc_plugin_has_loads(item->request))
            quant_follow(conn, item); /* other items may need that memory */
    }
}

/* Begins the items' reads. ret_error: of the first item that fails. */
static void items_start(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                        struct spec_error *ret_error)
{
    struct spec_error *error = ret_error;
    for (uint64_t i = 0; i < count; i++) {
        if (!work[i].want.selects || work[i].is_late || !sc_plugin_has_loads(work[i].request) ||
            sc_plugin_item_is_over(conn, &work[i]))
            continue;
        work[i].status = start_item(conn, &work[i],
                                    i == 0 ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE, error);
        error = work[i].status == SPEC_OK ? error : NULL;
    }
}

/* Fails the item, unless it has failed already, if its destination lacks rows or its device
 * failed. */
static spec_status item_settle(const spec_connector *conn, const struct sc_plugin_item *item,
                               struct spec_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = item->memory.target->fence(&item->memory, SC_FENCE_SETTLED, &error);
    if (item->in.status != SPEC_OK)
        return item->in.status;
    if (status != SPEC_OK)
        return sc_fail(reterr, status, "get_important: destination: %s", error.text);
    return sc_plugin_scoring_fail(conn, item, reterr);
}

/* A delivered item may have met errors, such as a deadline that left rows quantised. reterr has the
 * error of the first item that failed. */
spec_status sc_plugin_items_serve(spec_connector *conn, struct sc_plugin_item *work, uint64_t count,
                                  struct spec_error *reterr)
{
    spec_status first_status = SPEC_OK;
    struct spec_error begun = {.struct_size = sizeof(begun)};
    if (sc_plugin_is_tail(&work->in)) {
        first_status = sc_plugin_tail_serve(conn, work, count, reterr);
        for (uint64_t i = 0; i < count; i++)
            sc_plugin_bus_end(conn, &work[i]);
        return first_status;
    }
    items_start(conn, work, count, &begun);
    for (uint64_t i = 0; i < count; i++) {
        struct spec_important *in = &work[i].in;
        struct spec_error error = {.struct_size = sizeof(error)};
        in->status = serve_item(conn, &work[i], &error);
        sc_plugin_bus_end(conn, &work[i]);
        in->status = item_settle(conn, &work[i], &error);
        sc_plugin_delivery_end(&work[i]);
        if (first_status != SPEC_OK || in->status == SPEC_OK)
            continue;
        const struct spec_error *why = error.code != SPEC_OK ? &error : &begun;
        first_status = sc_fail_errno(reterr, in->status, why->sys_errno, "%s", why->text);
    }
    return first_status;
}

/* Records the delivery's provenance: what is stored next was computed on it. */
static void tell_request(spec_connector *conn, struct sc_plugin_item *item)
{
    bool is_ahead = sc_plugin_is_ahead(&item->in);
    bool is_layered = is_ahead && item->delivered.kind != SPEC_PROVENANCE_EXACT;
    if (item->in.status == SPEC_OK)
        sc_plugin_provenance_ahead(item->request, item->in.layer,
                                   is_layered ? &item->delivered : NULL);
    if (!is_ahead) /* nothing was computed on it */
        sc_plugin_provenance_add(&item->request->delivered, &item->delivered);
    if (item->request->failed_position != UINT64_MAX)
        sc_plugin_pass_void(conn, item->request);
}

static void tell_load_policy(spec_connector *conn, const struct sc_plugin_item *item)
{
    bool is_layer = item->in.refine_of == 0 && !sc_plugin_is_tail(&item->in) &&
                    item->route != SC_ROUTE_RECURRENT;
    if (item->in.status == SPEC_OK && is_layer && sc_plugin_row_total(item->request) > 0)
        sc_plugin_load_policy_loaded(conn, item->request, item->in.layer,
                                     sc_plugin_rows_from_host(item));
}

/* Ends the use of the item's destination. ret_error: why it lacks rows. */
static spec_status item_end(struct sc_plugin_item *item, struct spec_error *ret_error)
{
    spec_status ended = item->memory.target->fence(&item->memory, SC_FENCE_END, ret_error);
    if (item->in.status == SPEC_OK)
        item->in.status = ended;
    return item->in.status;
}

static spec_status items_end(struct sc_plugin_item *work, uint64_t count, spec_status served,
                             struct spec_error *reterr)
{
    bool is_told = false; /* the first failure was reported */
    for (uint64_t i = 0; i < count; i++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        bool was_served = work[i].in.status == SPEC_OK;
        spec_status status = item_end(&work[i], &error);
        if (was_served && status != SPEC_OK && !is_told)
            served = sc_fail(reterr, status, "get_important: destination: %s", error.text);
        is_told = is_told || status != SPEC_OK;
    }
    return served;
}

spec_status sc_plugin_items_report(spec_connector *conn, struct spec_important *items,
                                   struct sc_plugin_item *work, uint64_t count, spec_status served,
                                   struct spec_error *reterr)
{
    served = sc_plugin_is_tail(&work->in) ? sc_plugin_tail_end(conn, work, count, served, reterr)
                                          : items_end(work, count, served, reterr);
    for (uint64_t i = 0; i < count; i++) {
        if (!work[i].is_gone) {
            tell_request(conn, &work[i]);
            tell_load_policy(conn, &work[i]);
        }
        work[i].in.layer = work[i].named_layer;
        sc_plugin_args_write((uint8_t *)items + i * items[0].struct_size, &work[i].in,
                             sizeof(work[i].in));
    }
    return served;
}

/* Tells of a refused call in its items, up to one that cannot be read: `at` is at fault, and the
 * others were not begun. */
static void items_refuse(struct spec_important *items, uint64_t count, uint64_t at,
                         spec_status status)
{
    for (uint64_t i = 0; i < count; i++) {
        struct spec_important item;
        if (sc_plugin_args_read_at(&item, &sc_plugin_form_important, items, i, "items", NULL) !=
            SPEC_OK)
            return;
        item.status = i == at ? status : SPEC_PENDING;
        sc_plugin_args_write((uint8_t *)items + i * items[0].struct_size, &item, sizeof(item));
    }
}

spec_status sc_plugin_items_check(spec_connector *conn, struct sc_plugin_visit *visit,
                                  struct spec_important *items, uint64_t count, bool is_submitted,
                                  struct sc_plugin_item *ret_work, struct spec_error *reterr)
{
    if (items == NULL || count == 0 || count > SC_LIMIT_BATCH)
        return sc_fail(reterr, SPEC_E_INVALID, "get_important: 1 .. %u items expected",
                       SC_LIMIT_BATCH);
    struct sc_plugin_item spare[2]; /* without ret_work: the first item, and the current one */
    const struct sc_plugin_item *first = ret_work != NULL ? ret_work : spare;
    for (uint64_t i = 0; i < count; i++) {
        struct sc_plugin_item *item = ret_work != NULL ? &ret_work[i] : &spare[i > 0];
        *item = (struct sc_plugin_item){.is_submitted = is_submitted};
        spec_status status = check_item(conn, visit, items, i, item, reterr);
        if (status == SPEC_OK)
            status = sc_plugin_tail_check(conn, &first->in, &item->in, i, count, reterr);
        if (status != SPEC_OK && !is_submitted)
            items_refuse(items, count, i, status);
        if (status != SPEC_OK)
            return status;
    }
    return SPEC_OK;
}
