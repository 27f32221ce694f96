/* budget: resolves how many rows an item gets, and checks what scores them. Contract: budget.h.
 *
 * A short match is delivered whole, whatever the configuration's budget; an item's own budget
 * holds. */
#include "plugin/select/budget.h"
#include "plugin/args/args.h"
#include "plugin/args/dtype_table.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/scratch.h"

#include <math.h>
#include <string.h>

#define PPM 1000000u

static spec_status read_select(const struct spec_select *host, struct spec_select *ret_select,
                               struct spec_error *reterr)
{
    *ret_select = (struct spec_select){0};
    if (host == NULL)
        return SPEC_OK;
    spec_status status = sc_plugin_args_read(ret_select, &sc_plugin_form_select, host,
                                             "get_important: select", reterr);
    if (status != SPEC_OK)
        return status;
    if ((ret_select->given &
         ~(SPEC_SELECT_BUDGET | SPEC_SELECT_METRIC | SPEC_SELECT_KEEP | SPEC_SELECT_EXACT)) ||
        ret_select->reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: select: given is %#" PRIx32 ", reserved %" PRIu32,
                       ret_select->given, ret_select->reserved);
    if ((ret_select->given & SPEC_SELECT_EXACT) && ret_select->exact_ppm > PPM)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: select: exact_ppm is %" PRIu32 ", at most %u expected",
                       ret_select->exact_ppm, PPM);
    if ((ret_select->given & SPEC_SELECT_BUDGET) &&
        (ret_select->budget > SPEC_BUDGET_MASS || ret_select->retain_ppm > PPM ||
         ret_select->mass_ppm > PPM))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: select: budget %" PRIu32 ", retain_ppm %" PRIu32
                       ", mass_ppm %" PRIu32 "; budget <= %u and shares <= %u expected",
                       ret_select->budget, ret_select->retain_ppm, ret_select->mass_ppm,
                       SPEC_BUDGET_MASS, PPM);
    if ((ret_select->given & SPEC_SELECT_METRIC) && ret_select->metric > SPEC_METRIC_RANDOM)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: select: metric is %" PRIu32 ", at most %u expected",
                       ret_select->metric, SPEC_METRIC_RANDOM);
    return SPEC_OK;
}

/* Returns ppm millionths of the rows, rounded up. */
static uint64_t share_of(uint64_t row_total, uint64_t ppm)
{
    return (row_total * ppm + PPM - 1) / PPM; /* row_total < 2^24 */
}

/* With a short match, selection saves little beside the tokens that are computed anyway. Rows
 * computed on the whole match are exact and may be stored (docs/decisions/0007). */
bool sc_plugin_match_is_short(const spec_connector *conn, const struct sc_plugin_request *request)
{
    uint64_t rows = sc_plugin_row_total(request);
    uint64_t fresh = sc_plugin_tokens_from(request, request->matched_tokens);
    return rows < conn->config.select_min_tokens ||
           rows * PPM < (rows + fresh) * conn->config.min_share_ppm;
}

static void set_keep(const struct sc_plugin_request *request, uint64_t first, uint64_t last,
                     struct sc_plugin_want *want)
{
    uint64_t end = request->matched_tokens, from = end > last ? end - last : 0;
    want->keep_before = first > want->first_position ? first - want->first_position : 0;
    if (want->keep_before > want->row_total)
        want->keep_before = want->row_total;
    want->keep_from = from > want->first_position ? from - want->first_position : 0;
}

static uint64_t kept_rows(const struct sc_plugin_want *want)
{
    uint64_t last = want->keep_from < want->row_total ? want->row_total - want->keep_from : 0;
    uint64_t both = want->keep_before + last;
    return both < want->row_total ? both : want->row_total;
}

static bool ranks_by_queries(const spec_connector *conn, const struct sc_plugin_want *want)
{
    return !sc_baseline_is_blind(&conn->config, want->metric);
}

/* Layered: resolves the number of exact rows. budget_bytes 0: no limit. */
static void resolve_layered(const spec_connector *conn, const struct spec_select *select,
                            const struct sc_plugin_request *request, uint32_t layer,
                            uint64_t budget_bytes, struct sc_plugin_want *ret_want)
{
    const struct sc_config *config = &conn->config;
    bool kept = (select->given & SPEC_SELECT_KEEP) != 0;
    uint64_t total = sc_plugin_row_total(request);
    uint64_t ppm = (select->given & SPEC_SELECT_EXACT) ? select->exact_ppm : config->exact_ppm;
    struct sc_plugin_want want = {
        .row_total = total,
        .row_count = share_of(total, ppm),
        .first_position = request->from_token,
        .metric = (select->given & SPEC_SELECT_METRIC) ? select->metric : config->metric,
        .is_layered = true,
    };
    set_keep(request, kept ? select->keep_first : config->exact_first,
             kept ? select->keep_last : config->exact_last, &want);
    bool is_dense = layer < config->dense_layers;
    if (is_dense)
        want.row_count = total;
    if (!is_dense && budget_bytes > 0 && budget_bytes / conn->dims.row_bytes < want.row_count) {
        want.row_count = budget_bytes / conn->dims.row_bytes;
        want.is_cut = true;
    }
    want.selects = want.row_count < total;
    want.is_scored =
        want.selects && ranks_by_queries(conn, &want) && want.row_count > kept_rows(&want);
    *ret_want = want;
}

static void want_resolve(const spec_connector *conn, const struct spec_select *select,
                         const struct sc_plugin_request *request, uint32_t layer,
                         uint64_t budget_bytes, struct sc_plugin_want *ret_want)
{
    const struct sc_config *config = &conn->config;
    if (config->base == SC_BASE_QUANTISED) {
        resolve_layered(conn, select, request, layer, budget_bytes, ret_want);
        return;
    }
    bool given = (select->given & SPEC_SELECT_BUDGET) != 0;
    bool kept = (select->given & SPEC_SELECT_KEEP) != 0;
    uint64_t first = sc_plugin_row_first(conn, request, layer);
    uint64_t total = sc_plugin_row_total(request) - first;
    uint64_t ratio = share_of(total, given ? select->retain_ppm : config->retain_ppm);
    uint64_t count = given ? select->count : config->select_count;
    struct sc_plugin_want want = {
        .row_total = total,
        .first_position = request->from_token + first,
        .budget = given ? select->budget : config->budget,
        .mass_ppm = given ? select->mass_ppm : (uint32_t)config->mass_ppm,
        .metric = (select->given & SPEC_SELECT_METRIC) ? select->metric : config->metric,
    };
    count = want.budget != SPEC_BUDGET_COUNT ? ratio : count;
    count = count > 0 ? count : 1;
    want.row_count = count < total ? count : total;
    set_keep(request, kept ? select->keep_first : config->keep_first,
             kept ? select->keep_last : config->keep_last, &want);
    bool fewer = want.row_count < total || (want.budget == SPEC_BUDGET_MASS && total > 1);
    if (want.budget == SPEC_BUDGET_MASS && !sc_baseline_weighs(want.metric))
        fewer = want.row_count < total; /* rows without weights have no mass */
    want.selects = total > 0 && fewer && layer >= config->dense_layers;
    /* Models with unlike layers select nothing: the layer is delivered dense, as if short. */
    want.is_short = want.selects && ((!given && request->is_short) || conn->layers != NULL);
    want.selects = want.selects && !want.is_short;
    want.is_scored = want.selects && ranks_by_queries(conn, &want);
    /* also for a single head, whose rows are moved */
    want.has_head_sets = want.is_scored && config->identify != SC_IDENTIFY_QUANTISED;
    *ret_want = want;
}

struct sc_plugin_want sc_plugin_want_usual(const spec_connector *conn,
                                           const struct sc_plugin_request *request, uint32_t layer)
{
    struct sc_plugin_want want;
    want_resolve(conn, &(struct spec_select){0}, request, layer, 0, &want);
    return want;
}

bool sc_plugin_wants_some(const spec_connector *conn, const struct sc_plugin_request *request,
                          uint32_t layer)
{
    return conn->choice.can_select && sc_plugin_want_usual(conn, request, layer).selects;
}

spec_status sc_plugin_want_resolve(const spec_connector *conn, struct sc_plugin_item *item,
                                   struct spec_error *reterr)
{
    const struct spec_important *in = &item->in;
    struct spec_select select;
    spec_status status = read_select(in->select, &select, reterr);
    if (status == SPEC_OK)
        want_resolve(conn, &select, item->request, in->layer, in->budget_bytes, &item->want);
    return status;
}

/* Quantised rows are what a layered item without exact rows would get. Without queries no share of
 * the rows can be selected, so any other share is all of them (docs/decisions/0062). */
spec_status sc_plugin_want_tail(const spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr)
{
    const struct sc_plugin_request *request = item->request;
    bool is_layered = conn->config.base == SC_BASE_QUANTISED;
    struct sc_plugin_want want;
    struct spec_select select;
    spec_status status = read_select(item->in.select, &select, reterr);
    if (status != SPEC_OK)
        return status;
    if (item->in.select != NULL && (!is_layered || select.given != SPEC_SELECT_EXACT))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: SPEC_ITEM_BIDIRECTIONAL: select: given is %#" PRIx32
                       ", only SPEC_SELECT_EXACT expected, and if select.base is quantised",
                       select.given);
    want_resolve(conn, &select, request, item->in.layer, 0, &want);
    bool is_exact = !is_layered || want.row_count > 0 || request->requires_exact;
    uint64_t total = sc_plugin_row_total(request);
    item->want = (struct sc_plugin_want){.row_total = total,
                                         .row_count = is_exact ? total : 0,
                                         .first_position = request->from_token};
    return SPEC_OK;
}

spec_status sc_plugin_want_refine(const spec_connector *conn, struct sc_plugin_item *item,
                                  bool came_ahead, bool chooses, struct spec_error *reterr)
{
    struct sc_plugin_want *want = &item->want;
    struct spec_select select;
    spec_status status = read_select(item->in.select, &select, reterr);
    if (status != SPEC_OK)
        return status;
    /* After a deadline the host cannot know whether a set was selected already. */
    bool rescores = sc_plugin_rescores(&item->in), may_rank = came_ahead || rescores;
    uint32_t taken = SPEC_SELECT_EXACT | (may_rank ? SPEC_SELECT_METRIC | SPEC_SELECT_KEEP : 0);
    if (select.given & ~taken)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: refine_of: select: given is %#" PRIx32 ", expected %#" PRIx32
                       " at most: %s",
                       select.given, taken,
                       may_rank ? "budgets of rows are not layered's"
                                : "the delivery's rows are ranked already");
    resolve_layered(conn, &select, item->request, item->in.layer, 0, want);
    want->selects = true; /* a call's items of one request are served one by one */
    want->is_scored = rescores ? ranks_by_queries(conn, want) : want->is_scored && chooses;
    return SPEC_OK;
}

void sc_plugin_want_ahead(struct sc_plugin_item *item)
{
    if (!item->want.is_scored || item->in.queries != NULL)
        return;
    item->want.is_scored = false;
    item->want.is_known_only = true;
}

void sc_plugin_want_ranked(spec_connector *conn, struct sc_plugin_item *item)
{
    struct sc_plugin_want *want = &item->want;
    if (want->is_scored || !ranks_by_queries(conn, want) || !want->is_layered || !want->selects ||
        item->in.queries == NULL || conn->requests.delivery_bytes == 0)
        return;
    /* Invalid queries are no error if the set is known without them. */
    want->is_scored = true;
    want->is_scored = sc_plugin_scoring_check(conn, item, NULL) == SPEC_OK;
}

/* ---- Queries and new keys ------------------------------------------------------------------- */

spec_status sc_plugin_queries_read(const struct spec_queries *host, const char *name,
                                   struct spec_queries *ret_queries, struct spec_error *reterr)
{
    spec_status status =
        sc_plugin_args_read(ret_queries, &sc_plugin_form_queries, host, name, reterr);
    if (status == SPEC_OK && ret_queries->reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "%s: reserved must be 0", name);
    return status;
}

float sc_plugin_queries_scale(const spec_connector *conn, const struct spec_queries *queries)
{
    return queries->scale > 0 ? queries->scale : 1.0f / sqrtf((float)conn->shape.head_size);
}

static uint64_t query_heads(const spec_connector *conn, const struct spec_queries *queries)
{
    uint64_t heads =
        queries->heads == SPEC_QUERIES_PROBE ? conn->choice.probe_heads : conn->shape.kv_head_count;
    return heads * conn->dims.query_group;
}

spec_status sc_plugin_queries_check(spec_connector *conn, const struct spec_queries *queries,
                                    const char *name, struct spec_error *reterr)
{
    uint64_t element = sc_plugin_dtype_bytes(queries->dtype), end, heads_end;
    bool is_cuda = queries->device == SPEC_DEVICE_CUDA;
    bool is_host = queries->device == SPEC_DEVICE_HOST && queries->device_index == 0;
    if (!(is_cuda || is_host) || !sc_plugin_dtype_is_scored(queries->dtype) ||
        queries->data == NULL || queries->row_count == 0 || queries->heads > SPEC_QUERIES_PROBE)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: host or CUDA memory, a dtype of numbers, data, at least one row and "
                       "known heads expected",
                       name);
    if (((uintptr_t)queries->data | queries->row_stride_bytes | queries->head_stride_bytes) %
            element !=
        0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: data and strides must be multiples of the element's %" PRIu64 " bytes",
                       name, element);
    if (!isfinite(queries->scale) || queries->scale < 0)
        return sc_fail(reterr, SPEC_E_INVALID, "%s: scale is %g, a finite one >= 0 expected", name,
                       (double)queries->scale);
    uint64_t heads = query_heads(conn, queries);
    if (heads > 0 &&
        (__builtin_mul_overflow(queries->row_count - 1u, queries->row_stride_bytes, &end) ||
         __builtin_mul_overflow(heads - 1, queries->head_stride_bytes, &heads_end) ||
         __builtin_add_overflow(end, heads_end, &end) ||
         __builtin_add_overflow(end, conn->shape.head_size * element, &end) ||
         end > queries->byte_count))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: %" PRIu32 " rows of %" PRIu64 " heads reach beyond byte_count %" PRIu64,
                       name, queries->row_count, heads, queries->byte_count);
    if (!is_cuda)
        return SPEC_OK;
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_afar_check(&conn->device, queries->device_index, queries->stream,
                                              queries->data, queries->byte_count, &error);
    return status == SPEC_OK ? status : sc_fail(reterr, status, "%s: %s", name, error.text);
}

uint32_t sc_plugin_request_slot(const spec_connector *conn, const struct sc_plugin_request *request)
{
    return sc_plugin_device_ask_slot((uint64_t)(request - conn->requests.slots));
}

struct sc_plugin_afar sc_plugin_queries_afar(spec_connector *conn,
                                             const struct sc_plugin_request *request,
                                             const struct spec_queries *queries)
{
    struct sc_plugin_afar afar = {.row_count = queries->row_count,
                                  .head_count = query_heads(conn, queries),
                                  .head_size = conn->shape.head_size,
                                  .stream = queries->stream};
    if (queries->device != SPEC_DEVICE_CUDA)
        return (struct sc_plugin_afar){.device = NULL};
    afar.device = &conn->device;
    afar.slot = sc_plugin_request_slot(conn, request);
    memcpy(&afar.at.k_base, &queries->data, sizeof(afar.at.k_base)); /* only read */
    afar.at.v_base = afar.at.k_base;
    afar.at.token_stride_bytes = queries->row_stride_bytes;
    afar.at.head_stride_bytes = queries->head_stride_bytes;
    afar.at.element_bytes = sc_plugin_dtype_bytes(queries->dtype);
    return afar;
}

/* Checks the new keys, from the end of the match to the last query row. */
static spec_status check_fresh(spec_connector *conn, struct sc_plugin_item *item,
                               const struct spec_queries *queries, uint64_t count,
                               struct spec_error *reterr)
{
    const struct spec_important *in = &item->in;
    struct sc_plugin_scoring *scoring = &item->scoring;
    struct sc_plugin_shape shape = conn->shape;
    struct spec_memory memory;
    if (queries->heads == SPEC_QUERIES_PROBE)
        shape.kv_head_count = conn->choice.probe_heads;
    spec_status status = sc_plugin_args_read(&memory, &sc_plugin_form_memory, in->new_keys,
                                             "get_important: new_keys", reterr);
    if (status != SPEC_OK)
        return status;
    if (!sc_plugin_dtype_is_scored(memory.dtype))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: new_keys: dtype is %" PRIu32 ", one of numbers expected",
                       memory.dtype);
    if (shape.kv_head_count == 0)
        return SPEC_OK;
    struct sc_plugin_memory keys;
    const struct sc_plugin_memory_need need = {"get_important: new_keys", SC_MEMORY_KEYS, &shape,
                                               count};
    const struct sc_plugin_memory_way way = {sc_plugin_afar_memory_check, &conn->device};
    shape.dtype = memory.dtype;
    status = sc_plugin_memory_check_on(in->new_keys, &need, &way, &keys, reterr);
    if (status != SPEC_OK)
        return status;
    scoring->fresh = (struct sc_kernels_keys){
        .memory = keys.at, .count = count, .dtype = sc_plugin_kernels_dtype(memory.dtype)};
    if (memory.device == SPEC_DEVICE_CUDA)
        scoring->fresh_afar =
            (struct sc_plugin_afar){.device = &conn->device,
                                    .slot = sc_plugin_request_slot(conn, item->request),
                                    .at = keys.at,
                                    .row_count = count,
                                    .head_count = shape.kv_head_count,
                                    .head_size = shape.head_size,
                                    .stream = keys.stream};
    return SPEC_OK;
}

/* Checks that queries and new keys in device memory fit into gpu.query_bytes of host memory. */
static spec_status check_afar(const spec_connector *conn, const struct sc_plugin_scoring *scoring,
                              struct spec_error *reterr)
{
    uint64_t bytes =
        sc_plugin_afar_bytes(&scoring->queries_afar) + sc_plugin_afar_bytes(&scoring->fresh_afar);
    if (bytes <= conn->config.gpu_query_bytes)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_INVALID,
                   "get_important: queries and new keys in CUDA memory have %" PRIu64
                   " bytes, gpu.query_bytes has room for %" PRIu64,
                   bytes, conn->config.gpu_query_bytes);
}

spec_status sc_plugin_scoring_check(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr)
{
    const struct spec_important *in = &item->in;
    const struct sc_plugin_want *want = &item->want;
    struct sc_plugin_scoring *scoring = &item->scoring;
    struct spec_queries queries = {0};
    struct spec_memory unneeded;
    spec_status status = SPEC_OK;
    *scoring = (struct sc_plugin_scoring){0};
    if (in->queries != NULL)
        status = sc_plugin_queries_read(in->queries, "get_important: queries", &queries, reterr);
    if (status == SPEC_OK && in->new_keys != NULL)
        status = sc_plugin_args_read(&unneeded, &sc_plugin_form_memory, in->new_keys,
                                     "get_important: new_keys", reterr);
    if (status != SPEC_OK || !want->is_scored)
        return status;
    if (in->queries == NULL)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: queries is NULL, and %" PRIu64 " of %" PRIu64
                       " rows are to be chosen by them",
                       want->row_count, want->row_total);
    status = sc_plugin_queries_check(conn, &queries, "get_important: queries", reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t end = queries.first_position + queries.row_count, base = item->request->matched_tokens;
    if (queries.first_position < base || end < queries.first_position)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: queries: rows [%" PRIu64 ", + %" PRIu32
                       "), expected behind the match of %" PRIu64,
                       queries.first_position, queries.row_count, base);
    /* A scratch has room for max_request_tokens rows at any position; a prompt may be longer. */
    uint64_t most = conn->config.max_request_tokens, keys = in->new_keys != NULL ? end - base : 0;
    if (queries.row_count > most || keys > most)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: %" PRIu32 " rows of queries and %" PRIu64
                       " new keys, at most %" PRIu64 " (max_request_tokens) of each",
                       queries.row_count, keys, most);
    scoring->is_probes_only = queries.heads == SPEC_QUERIES_PROBE;
    if (scoring->is_probes_only && conn->choice.reads_quant)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "get_important: queries: all heads expected, since codes of all are scored");
    scoring->scale = sc_plugin_queries_scale(conn, &queries);
    scoring->queries = (struct sc_kernels_queries){.data = queries.data,
                                                   .row_stride_bytes = queries.row_stride_bytes,
                                                   .head_stride_bytes = queries.head_stride_bytes,
                                                   .row_count = queries.row_count,
                                                   .dtype = sc_plugin_kernels_dtype(queries.dtype)};
    scoring->queries_afar = sc_plugin_queries_afar(conn, item->request, &queries);
    if (in->new_keys != NULL)
        status = check_fresh(conn, item, &queries, end - base, reterr);
    return status == SPEC_OK ? check_afar(conn, scoring, reterr) : status;
}

/* Records one event if both are on the same stream. */
void sc_plugin_scoring_begin(struct sc_plugin_item *item)
{
    struct sc_plugin_afar *queries = &item->scoring.queries_afar;
    struct sc_plugin_afar *fresh = &item->scoring.fresh_afar;
    sc_plugin_afar_begin(queries);
    if (queries->device != NULL && fresh->stream == queries->stream)
        fresh->begun = queries->begun;
    else
        sc_plugin_afar_begin(fresh);
}

spec_status sc_plugin_scoring_fail(const spec_connector *conn, const struct sc_plugin_item *item,
                                   struct spec_error *reterr)
{
    spec_status lost = item->scoring.lost;
    return lost == SPEC_OK ? lost : sc_plugin_afar_fail(&conn->device, lost, reterr);
}

/* Returns the scratch's host memory for rows from the device. */
static uint8_t *room_of(const struct sc_plugin_scratch *scratch)
{
    const spec_connector *conn = scratch->conn;
    return sc_plugin_afar_room(&conn->device, (uint64_t)(scratch - conn->choice.scratches));
}

/* Copies queries from the device to `room`, and describes them there. */
static spec_status queries_fetch(const struct sc_plugin_afar *queries, uint8_t *room,
                                 uint32_t dtype, struct sc_kernels_queries *ret_queries,
                                 struct spec_error *reterr)
{
    uint64_t head_bytes = queries->head_size * queries->at.element_bytes;
    *ret_queries = (struct sc_kernels_queries){.data = room,
                                               .row_stride_bytes = queries->head_count * head_bytes,
                                               .head_stride_bytes = head_bytes,
                                               .row_count = queries->row_count,
                                               .dtype = dtype};
    return sc_plugin_afar_fetch(queries, room, reterr);
}

spec_status sc_plugin_scoring_sample(const struct sc_plugin_scratch *scratch,
                                     struct sc_plugin_item *item, uint64_t step,
                                     struct sc_kernels_queries *ret_queries,
                                     struct spec_error *reterr)
{
    struct sc_plugin_scoring *scoring = &item->scoring;
    struct sc_plugin_afar some = scoring->queries_afar;
    uint64_t count = (scoring->queries.row_count + step - 1) / step;
    if (some.device == NULL) {
        *ret_queries = scoring->queries;
        ret_queries->row_stride_bytes *= step;
        ret_queries->row_count = count;
        return SPEC_OK;
    }
    some.at.token_stride_bytes *= step;
    some.row_count = count;
    scoring->lost =
        queries_fetch(&some, room_of(scratch), scoring->queries.dtype, ret_queries, reterr);
    return scoring->lost;
}

spec_status sc_plugin_scoring_fetch(const struct sc_plugin_scratch *scratch,
                                    struct sc_plugin_item *item, struct spec_error *reterr)
{
    struct sc_plugin_scoring *scoring = &item->scoring;
    const struct sc_plugin_afar *queries = &scoring->queries_afar, *fresh = &scoring->fresh_afar;
    if (queries->device == NULL && fresh->device == NULL)
        return SPEC_OK; /* perhaps no device is attached */
    uint8_t *room = room_of(scratch), *behind = room + sc_plugin_afar_bytes(queries);
    if (queries->device != NULL)
        scoring->lost =
            queries_fetch(queries, room, scoring->queries.dtype, &scoring->queries, reterr);
    if (scoring->lost == SPEC_OK && fresh->device != NULL) {
        uint64_t head_bytes = fresh->head_size * fresh->at.element_bytes;
        scoring->lost = sc_plugin_afar_fetch(fresh, behind, reterr);
        scoring->fresh.memory =
            (struct sc_kernels_memory){.k_base = behind,
                                       .v_base = behind,
                                       .token_stride_bytes = fresh->head_count * head_bytes,
                                       .head_stride_bytes = head_bytes,
                                       .element_bytes = fresh->at.element_bytes};
    }
    return scoring->lost;
}
