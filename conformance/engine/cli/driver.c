/* driver: drives a connector. See driver.h. */
#include "conformance/engine/cli/driver.h"

#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/spec_connector.h"
#include "abi/spec_load.h"

/* Passes whose tickets are awaited together: more in flight could meet the plugin's limits, and it
 * would drop what comes too fast. Only prompts cut into many passes wait before they end. */
#define PASSES_MAX 16u

#define FILL_TOKENS 512u

/* ABSENT: none could be submitted, so that all is computed. */
enum tail_state { TAIL_NONE, TAIL_RUNS, TAIL_TOLD, TAIL_ABSENT };

struct eng_driver {
    struct spec_plugin plugin;
    spec_connector *conn;
    struct eng_source source;
    struct eng_report *report;
    uint64_t layers, kv_heads, query_heads, head_dim;
    uint32_t dtype;
    bool store, store_query;
    struct eng_driver_params params; /* the pointers in it are not used, but observe's */
    struct spec_select select;
    uint64_t probe_queries; /* query heads of the probe heads */

    /* Of the request that runs. */
    const struct eng_request *request;
    struct eng_result *result;
    spec_request handle; /* 0: none */
    uint64_t matched, store_end, prompt_end;
    uint64_t position; /* first of the pass that runs */
    uint64_t pass;
    uint64_t window_ns;   /* of the layer that is delivered */
    uint64_t asked_ns[2]; /* when layers of this parity were first asked to be read ahead; 0: not */
    bool selective;       /* a layer came with fewer than all rows, or might have */
    bool settles;
    struct eng_kv *kv;           /* of the pass that runs */
    bool is_whole;               /* the layer delivered last came whole, and nothing was chosen */
    struct spec_important ahead; /* submitted before its queries, until it is waited for */
    struct spec_memory ahead_memory;
    spec_ticket ahead_ticket; /* 0: nothing was told */
    bool ahead_runs;          /* the ticket is to be waited for */
    enum tail_state tail;     /* both ends: what is loaded from the back */
    spec_ticket tail_ticket;
    uint64_t tail_first;               /* told: rows from here on are there */
    struct spec_important *tail_items; /* [layers] where both ends are driven */
    struct spec_memory *tail_memory;   /* [layers] */
    spec_ticket *tickets;              /* [PASSES_MAX] */
    spec_status *statuses;
    uint64_t ticket_count;
    uint32_t *positions; /* [position_capacity]: KV heads x matched */
    uint64_t position_capacity;
    char problem[256]; /* "": none */
};

static eng_status fail(struct eng_error *reterr, const char *call, const struct spec_error *error)
{
    return eng_fail(reterr, ENG_E_SYSTEM, "connector: %s: %s", call, error->text);
}

static eng_status give_hint(void *user, const struct eng_hint_view *view, struct eng_error *reterr);

/* ---- The hooks, in the order of a pass ---- */

static eng_status begin_request(void *user, const struct eng_request *request,
                                const uint32_t *tokens, uint64_t token_count,
                                struct eng_result *result, uint64_t *ret_matched,
                                struct eng_error *reterr)
{
    struct eng_driver *driver = user;
    const struct spec_api *api = driver->plugin.api;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_lookup_params params = {
        .struct_size = sizeof(params), .tokens = tokens, .token_count = token_count};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    uint64_t start = eng_clock_ns();
    if (api->lookup(driver->conn, &params, &found, &error) != SPEC_OK)
        return fail(reterr, "lookup", &error);
    result->lookup_ns += eng_clock_ns() - start;
    uint64_t positions = found.matched_tokens * driver->kv_heads;
    if (positions > driver->position_capacity) {
        uint32_t *grown = realloc(driver->positions, positions * sizeof(*grown));
        if (grown == NULL)
            return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for positions");
        driver->positions = grown;
        driver->position_capacity = positions;
    }
    driver->request = request;
    driver->result = result;
    driver->handle = found.request;
    driver->matched = found.matched_tokens;
    driver->store_end = driver->store_query ? token_count : request->prefix_count;
    driver->prompt_end = token_count;
    driver->position = found.matched_tokens;
    driver->pass = 0;
    driver->selective = driver->is_whole = false;
    driver->asked_ns[0] = driver->asked_ns[1] = 0;
    driver->ahead_ticket = 0;
    driver->tail = TAIL_NONE;
    driver->tail_first = found.matched_tokens;
    result->front_tokens = result->tail_tokens = result->returned_tokens = 0;
    driver->source.hooks.hint = driver->params.hint == ENG_HINT_NONE ? NULL : give_hint;
    driver->problem[0] = '\0';
    *ret_matched = found.matched_tokens;
    return ENG_OK;
}

/* True while a pass runs that asks for the prefix's rows: the prompt's first, which is the only one
 * where they all came; else each of the prompt's. None where they came from both ends. */
static bool loads(const struct eng_driver *driver)
{
    return driver->params.fill == ENG_LOAD_POLICY_LOAD && driver->handle != 0 &&
           driver->matched > 0 && driver->position < driver->prompt_end &&
           (driver->pass == 0 || driver->selective);
}

static eng_status before_layer(void *user, uint64_t layer, struct eng_error *reterr)
{
    struct eng_driver *driver = user;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (!loads(driver) || driver->ahead_ticket != 0) /* what this layer needs was begun */
        return ENG_OK;
    if (driver->plugin.api->begin_layer(driver->conn, &driver->handle, 1, (uint32_t)layer,
                                        &error) != SPEC_OK)
        return fail(reterr, "begin_layer", &error);
    return ENG_OK;
}

static struct spec_memory describe(const struct eng_driver *driver, uint8_t *k, uint8_t *v,
                                   uint64_t rows)
{
    uint64_t head_bytes = driver->head_dim * (driver->dtype == SPEC_DTYPE_F32 ? 4u : 2u);
    uint64_t row_bytes = driver->kv_heads * head_bytes;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = driver->dtype,
                                .k_base = k,
                                .v_base = v,
                                .k_bytes = rows * row_bytes,
                                .v_bytes = rows * row_bytes,
                                .token_stride_bytes = row_bytes,
                                .head_stride_bytes = head_bytes};
}

/* ---- Ahead ---------------------------------------------------------------------------------- */

static spec_status submit_ahead(struct eng_driver *driver, uint64_t layer, uint32_t flags,
                                struct spec_error *error)
{
    struct eng_kv *kv = driver->kv;
    eng_kv_set_prefix(kv, layer, driver->matched, driver->matched);
    driver->ahead_memory =
        describe(driver, eng_kv_k(kv, layer, 0), eng_kv_v(kv, layer, 0), driver->matched);
    driver->ahead = (struct spec_important){.struct_size = sizeof(driver->ahead),
                                            .flags = flags,
                                            .request = driver->handle,
                                            .layer = (uint32_t)layer,
                                            .destination = &driver->ahead_memory};
    spec_status status = driver->plugin.api->get_important_submit(driver->conn, &driver->ahead, 1,
                                                                  &driver->ahead_ticket, error);
    driver->ahead_runs = status == SPEC_OK;
    return status == SPEC_E_BUSY ? SPEC_OK : status; /* the layer is asked for when it is needed */
}

/* Layered: the layer's destination, before its queries. */
static eng_status tell_ahead(struct eng_driver *driver, uint64_t layer, struct eng_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (!driver->params.ahead || driver->pass > 0 || layer == driver->layers)
        return ENG_OK;
    if (submit_ahead(driver, layer, SPEC_ITEM_AHEAD, &error) != SPEC_OK)
        return fail(reterr, "get_important_submit", &error);
    return ENG_OK;
}

/* Where layers come whole, the next one is asked for as soon as one is there: it is verified and
 * copied while this one is computed. begin_layer: for the reads of the one behind it. */
static eng_status ask_ahead(struct eng_driver *driver, uint64_t layer, struct eng_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (!driver->is_whole || driver->params.ahead || driver->params.hint != ENG_HINT_NONE ||
        driver->select.struct_size != 0 || driver->pass > 0 || layer == driver->layers)
        return ENG_OK;
    if (driver->plugin.api->begin_layer(driver->conn, &driver->handle, 1, (uint32_t)layer,
                                        &error) != SPEC_OK)
        return fail(reterr, "begin_layer", &error);
    spec_status status = submit_ahead(driver, layer, 0, &error);
    if (status != SPEC_OK && status != SPEC_E_INVALID) /* that one is chosen by queries after all */
        return fail(reterr, "get_important_submit", &error);
    return ENG_OK;
}

static spec_status await_ahead(struct eng_driver *driver, struct spec_error *error)
{
    if (!driver->ahead_runs)
        return SPEC_OK;
    driver->ahead_runs = false;
    return driver->plugin.api->get_important_wait(driver->conn, driver->ahead_ticket, UINT64_MAX,
                                                  error);
}

/* What was chosen without the queries is not taken for what they choose. */
static bool came_whole(const struct eng_driver *driver, const struct spec_important *item)
{
    return item->row_count == driver->matched && item->exact_rows == driver->matched &&
           item->result_flags == 0;
}

/* The results of a layer that came whole while the one below was computed. */
static void take_ahead(struct eng_driver *driver, struct spec_important *item)
{
    struct spec_important came = driver->ahead;
    came.queries = item->queries;
    came.new_keys = item->new_keys;
    came.destination = item->destination;
    came.positions = item->positions;
    came.position_capacity = item->position_capacity;
    for (uint64_t i = 0; i < came.row_count; i++)
        came.positions[i] = (uint32_t)i;
    *item = came;
    driver->result->layers_ahead++;
}

/* get_important, or what is left of it. The item has the cost of both. */
static spec_status deliver(struct eng_driver *driver, struct spec_important *item,
                           struct spec_error *error)
{
    const struct spec_api *api = driver->plugin.api;
    struct spec_important *ahead = &driver->ahead;
    if (driver->ahead_ticket == 0)
        return api->get_important(driver->conn, item, 1, error);
    uint64_t begin_ns = eng_clock_ns();
    spec_status status = await_ahead(driver, error);
    uint64_t waited_ns = eng_clock_ns() - begin_ns;
    if (ahead->io_exposed_ns > waited_ns)
        ahead->io_exposed_ns = waited_ns;
    bool is_told = ahead->flags == SPEC_ITEM_AHEAD;
    item->refine_of = is_told ? driver->ahead_ticket : 0;
    driver->ahead_ticket = 0;
    if (status == SPEC_OK && !is_told && came_whole(driver, ahead)) {
        take_ahead(driver, item);
        return SPEC_OK;
    }
    if (status == SPEC_OK)
        status = api->get_important(driver->conn, item, 1, error);
    item->wanted_bytes += ahead->wanted_bytes;
    item->read_bytes += ahead->read_bytes;
    item->io_ops += ahead->io_ops;
    item->io_exposed_ns += ahead->io_exposed_ns;
    return status;
}

/* ---- The hooks again ------------------------------------------------------------------------ */

static void trace_layer(struct eng_driver *driver, const struct spec_important *item)
{
    FILE *trace = driver->report == NULL ? NULL : eng_report_trace(driver->report);
    if (trace == NULL)
        return;
    bool fallback = (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    uint64_t lists = fallback ? driver->kv_heads : 1;
    uint64_t *positions = calloc(lists * item->row_count + 1, sizeof(*positions));
    if (positions == NULL)
        return;
    for (uint64_t i = 0; i < lists * item->row_count; i++)
        positions[i] = driver->positions[i];
    struct eng_trace_row row = {.request = driver->request->index,
                                .pass = driver->pass,
                                .layer = item->layer,
                                .k = item->row_count,
                                .similarity = (double)item->similarity,
                                .threshold = (double)item->threshold,
                                .fallback = fallback,
                                .dense = (item->result_flags & SPEC_IMPORTANT_DENSE) != 0,
                                .positions = positions,
                                .position_count = lists * item->row_count,
                                .union_rows = item->union_rows,
                                .prefetched = item->prefetched_rows,
                                .missing = item->union_rows > item->prefetched_rows
                                               ? item->union_rows - item->prefetched_rows
                                               : 0};
    eng_trace_write(trace, &row);
    free(positions);
}

static void add_cost(struct eng_result *result, const struct spec_important *item)
{
    result->probe_ns += item->probe_ns;
    result->io_exposed_ns += item->io_exposed_ns;
    result->bytes_wanted += item->wanted_bytes;
    result->bytes_read += item->read_bytes;
    result->io_ops += item->io_ops;
    for (int tier = 0; tier < ENG_TIERS; tier++)
        result->tier_hits[tier] += item->tier_rows[tier];
    result->layers_loaded++;
    result->fallback_layers += (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    result->dense_layers += (item->result_flags & SPEC_IMPORTANT_DENSE) != 0;
    result->rows_selected += item->row_count;
    result->rows_matched += item->next_position;
    result->rows_union += item->union_rows;
    result->rows_prefetched += item->prefetched_rows;
    result->bytes_unused += item->unused_bytes;
}

static eng_status observe(struct eng_driver *driver, const struct eng_attention_view *view,
                          const struct spec_important *item, struct eng_error *reterr)
{
    if (driver->params.observe == NULL)
        return ENG_OK;
    bool fallback = (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    const struct eng_selection selection = {
        .view = view,
        .request = driver->request->index,
        .pass = driver->pass,
        .matched = driver->matched,
        .row_count = item->row_count,
        .positions = driver->positions,
        .lists = fallback ? driver->kv_heads : 1,
        .fallback = fallback,
        .dense = (item->result_flags & SPEC_IMPORTANT_DENSE) != 0,
        .similarity = item->similarity,
        .threshold = item->threshold,
        .union_rows = item->union_rows,
        .prefetched_rows = item->prefetched_rows,
        .wanted_bytes = item->wanted_bytes,
        .read_bytes = item->read_bytes,
        .unused_bytes = item->unused_bytes,
        .io_ops = item->io_ops,
        .probe_ns = item->probe_ns,
        .io_exposed_ns = item->io_exposed_ns,
        .window_ns = driver->window_ns,
    };
    return driver->params.observe(driver->params.observe_user, &selection, reterr);
}

static struct spec_queries describe_queries(const struct eng_driver *driver, const float *q,
                                            uint64_t stride, const struct eng_pass *pass,
                                            bool probes)
{
    uint64_t head_bytes = driver->head_dim * sizeof(float);
    uint64_t heads = probes ? driver->probe_queries : driver->query_heads;
    uint64_t row_bytes = stride * sizeof(float);
    return (struct spec_queries){.struct_size = sizeof(struct spec_queries),
                                 .dtype = SPEC_DTYPE_F32,
                                 .data = q,
                                 .byte_count = (pass->count - 1) * row_bytes + heads * head_bytes,
                                 .row_count = (uint32_t)pass->count,
                                 .heads = probes ? SPEC_QUERIES_PROBE : SPEC_QUERIES_ALL,
                                 .row_stride_bytes = row_bytes,
                                 .head_stride_bytes = head_bytes,
                                 .first_position = pass->first_position};
}

/* Makes room for the prefix in front of the layer's new rows, and puts the pass's own keys behind
 * those of earlier passes, where the forward will put them too: the connector sees them as one. */
static eng_status lay_out(const struct eng_driver *driver, const struct eng_attention_view *view,
                          uint64_t *ret_new_rows, struct eng_error *reterr)
{
    struct eng_kv *kv = view->pass->kv;
    if (driver->pass == 0)
        eng_kv_set_prefix(kv, view->layer, driver->matched, driver->matched);
    uint64_t held = kv->rows[view->layer];
    if (held > kv->capacity || view->pass->count > kv->capacity - held)
        return eng_fail(reterr, ENG_E_INVALID,
                        "layer %" PRIu64 ": %" PRIu64 " new rows behind %" PRIu64
                        " in a KV cache of %" PRIu64,
                        view->layer, view->pass->count, held, kv->capacity);
    memcpy(eng_kv_k(kv, view->layer, held), view->k, view->pass->count * kv->row_bytes);
    *ret_new_rows = held - driver->matched + view->pass->count;
    return ENG_OK;
}

static eng_status before_attention(void *user, const struct eng_attention_view *view,
                                   struct eng_error *reterr)
{
    struct eng_driver *driver = user;
    const struct spec_api *api = driver->plugin.api;
    if (!loads(driver))
        return ENG_OK;
    struct eng_kv *kv = driver->kv = view->pass->kv;
    uint64_t new_rows = 0;
    eng_status laid = lay_out(driver, view, &new_rows, reterr);
    if (laid != ENG_OK)
        return laid;
    struct spec_memory destination = describe(driver, eng_kv_k(kv, view->layer, 0),
                                              eng_kv_v(kv, view->layer, 0), driver->matched);
    struct spec_memory new_keys = describe(driver, eng_kv_k(kv, view->layer, driver->matched),
                                           eng_kv_v(kv, view->layer, driver->matched), new_rows);
    struct spec_queries queries =
        describe_queries(driver, view->q, driver->query_heads * driver->head_dim, view->pass,
                         driver->params.probe_queries);
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = driver->handle,
                                  .layer = (uint32_t)view->layer,
                                  .queries = &queries,
                                  .new_keys = driver->params.no_new_keys ? NULL : &new_keys,
                                  .select =
                                      driver->select.struct_size == 0 ? NULL : &driver->select,
                                  .destination = &destination,
                                  .positions = driver->positions,
                                  .position_capacity = driver->position_capacity};
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t *asked_ns = &driver->asked_ns[view->layer % 2];
    driver->window_ns = *asked_ns == 0 ? 0 : eng_clock_ns() - *asked_ns;
    *asked_ns = 0;
    spec_status status = deliver(driver, &item, &error);
    bool is_void = status == SPEC_E_BUSY && item.failed_position != UINT64_MAX;
    if (status == SPEC_E_CORRUPT || status == SPEC_E_IO || is_void) {
        (void)api->release(driver->conn, driver->handle, NULL);
        driver->handle = 0;
        return eng_fail(reterr, ENG_E_RESTART, "connector: get_important: %s", error.text);
    }
    if (status != SPEC_OK)
        return fail(reterr, "get_important", &error);
    eng_kv_set_prefix(kv, view->layer, driver->matched, item.row_count);
    driver->selective |= item.row_count < driver->matched ||
                         (item.result_flags & (SPEC_IMPORTANT_FALLBACK | SPEC_IMPORTANT_DENSE));
    driver->is_whole = came_whole(driver, &item);
    eng_status asked = ask_ahead(driver, view->layer + 1, reterr);
    if (asked != ENG_OK)
        return asked;
    add_cost(driver->result, &item);
    trace_layer(driver, &item);
    return observe(driver, view, &item, reterr);
}

/* The layer may be read ahead from now on. */
static void note_asked(struct eng_driver *driver, uint64_t layer)
{
    uint64_t *asked_ns = &driver->asked_ns[layer % 2];
    *asked_ns = *asked_ns == 0 ? eng_clock_ns() : *asked_ns;
}

/* Queries of view->layer: before or after the attention of the layer below. */
static eng_status give_hint(void *user, const struct eng_hint_view *view, struct eng_error *reterr)
{
    struct eng_driver *driver = user;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (!loads(driver))
        return ENG_OK;
    struct spec_queries hint = describe_queries(driver, view->q, view->q_stride, view->pass,
                                                driver->probe_queries < driver->query_heads);
    note_asked(driver, view->layer);
    if (driver->plugin.api->prefetch_next(driver->conn, driver->handle, (uint32_t)view->layer - 1,
                                          &hint, &error) != SPEC_OK)
        return fail(reterr, "prefetch_next", &error);
    return ENG_OK;
}

static eng_status after_attention(void *user, uint64_t layer, struct eng_error *reterr)
{
    struct eng_driver *driver = user;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (!loads(driver) || driver->ahead_runs || driver->params.hint != ENG_HINT_NONE)
        return ENG_OK; /* it is on its way; a call without a hint would replace what a hint began */
    note_asked(driver, layer + 1);
    if (driver->plugin.api->prefetch_next(driver->conn, driver->handle, (uint32_t)layer, NULL,
                                          &error) != SPEC_OK)
        return fail(reterr, "prefetch_next", &error);
    return tell_ahead(driver, layer + 1, reterr);
}

static const char *store_reason(spec_status status)
{
    switch (status) {
    case SPEC_E_NO_SPACE:
        return "no space left on disk or in the store's share of it";
    case SPEC_E_BUSY:
        return "a limit of the connector was reached";
    case SPEC_E_IO:
        return "a write failed";
    default:
        return "the connector gave it up";
    }
}

/* Waits for the tickets; the first that did not end well is the problem. */
static eng_status await_tickets(struct eng_driver *driver, struct eng_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t count = driver->ticket_count;
    driver->ticket_count = 0;
    if (count > 0 && driver->plugin.api->wait(driver->conn, driver->tickets, count, UINT64_MAX,
                                              driver->statuses, &error) != SPEC_OK)
        return fail(reterr, "wait", &error);
    for (uint64_t i = 0; i < count; i++)
        /* DROPPED: the plugin is configured not to keep such a pass (preset, store.min_tokens). */
        if (driver->statuses[i] != SPEC_OK && driver->statuses[i] != SPEC_E_DROPPED &&
            driver->problem[0] == '\0')
            (void)snprintf(driver->problem, sizeof(driver->problem),
                           "the prefix was not stored: %s (status %" PRId32 ")",
                           store_reason(driver->statuses[i]), driver->statuses[i]);
    return ENG_OK;
}

/* Stores the pass's rows as far as they belong to what is kept. */
static eng_status store_rows(struct eng_driver *driver, uint64_t layer, const struct eng_pass *pass,
                             struct eng_error *reterr)
{
    uint64_t first = pass->first_position;
    uint64_t end =
        first + pass->count < driver->store_end ? first + pass->count : driver->store_end;
    eng_status status = ENG_OK;
    if (!driver->store || driver->handle == 0 || first >= end)
        return ENG_OK;
    if (layer == 0 && driver->ticket_count == PASSES_MAX)
        status = await_tickets(driver, reterr);
    if (status != ENG_OK)
        return status;
    uint64_t row = pass->kv->rows[layer] - pass->count;
    struct spec_memory memory = describe(driver, eng_kv_k(pass->kv, layer, row),
                                         eng_kv_v(pass->kv, layer, row), end - first);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = driver->handle,
                                       .layer = (uint32_t)layer,
                                       .first_token = first,
                                       .token_count = end - first,
                                       .memory = &memory};
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_ticket ticket; /* of a last layer, else 0 */
    if (driver->plugin.api->store(driver->conn, &params, 1, &ticket, &error) != SPEC_OK)
        return fail(reterr, "store", &error);
    if (ticket != 0)
        driver->tickets[driver->ticket_count++] = ticket;
    return ENG_OK;
}

static eng_status after_layer(void *user, uint64_t layer, uint64_t pass_index,
                              const struct eng_pass *pass, struct eng_error *reterr)
{
    struct eng_driver *driver = user;
    (void)pass_index;
    eng_status status = store_rows(driver, layer, pass, reterr);
    if (status == ENG_OK && layer + 1 == driver->layers) {
        driver->position = pass->first_position + pass->count;
        driver->pass++;
        if (!loads(driver))
            driver->source.hooks.hint = NULL; /* and the model computes none */
    }
    return status;
}

/* ---- Both ends ------------------------------------------------------------------------------ */

static eng_status fail_ends(struct eng_error *reterr, spec_status status, const char *call,
                            const struct spec_error *error)
{
    if (status != SPEC_E_UNSUPPORTED)
        return fail(reterr, call, error);
    return eng_fail(reterr, ENG_E_SYSTEM,
                    "connector: %s: %s; both ends take a plugin that has next_chunk and "
                    "SPEC_ITEM_BIDIRECTIONAL",
                    call, error->text);
}

/* All layers, from the last row of the match on. */
static eng_status submit_tail(struct eng_driver *driver, const struct eng_kv *kv,
                              struct eng_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    for (uint64_t layer = 0; layer < driver->layers; layer++) {
        driver->tail_memory[layer] =
            describe(driver, eng_kv_k(kv, layer, 0), eng_kv_v(kv, layer, 0), driver->matched);
        driver->tail_items[layer] =
            (struct spec_important){.struct_size = sizeof(*driver->tail_items),
                                    .flags = SPEC_ITEM_BIDIRECTIONAL,
                                    .request = driver->handle,
                                    .layer = (uint32_t)layer,
                                    .destination = &driver->tail_memory[layer],
                                    .deadline_ns = driver->params.fill_deadline_ns};
    }
    spec_status status = driver->plugin.api->get_important_submit(
        driver->conn, driver->tail_items, driver->layers, &driver->tail_ticket, &error);
    driver->tail = status == SPEC_OK ? TAIL_RUNS : TAIL_ABSENT;
    if (status == SPEC_OK || status == SPEC_E_BUSY) /* BUSY: all is computed then */
        return ENG_OK;
    return fail_ends(reterr, status, "get_important_submit", &error);
}

static eng_status ask_chunk(struct eng_driver *driver, struct spec_next_chunk *ret_chunk,
                            struct eng_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t budget = driver->params.fill_tokens;
    *ret_chunk = (struct spec_next_chunk){.struct_size = sizeof(*ret_chunk),
                                          .request = driver->handle,
                                          .budget_tokens = budget == 0 ? FILL_TOKENS : budget};
    spec_status status = driver->plugin.api->next_chunk(driver->conn, ret_chunk, &error);
    return status == SPEC_OK ? ENG_OK : fail_ends(reterr, status, "next_chunk", &error);
}

/* What came of each layer. The wait for it is all that loading cost the prompt. */
static void take_tail(struct eng_driver *driver, uint64_t waited_ns)
{
    driver->result->io_exposed_ns += waited_ns;
    for (uint64_t layer = 0; layer < driver->layers; layer++) {
        struct spec_important *item = &driver->tail_items[layer];
        uint64_t rows = item->row_count < driver->matched ? item->row_count : driver->matched;
        uint64_t first = driver->matched - rows;
        if (layer == 0 || first > driver->tail_first)
            driver->tail_first = first;
        for (uint64_t i = 0; i < rows; i++)
            driver->positions[i] = (uint32_t)(first + i);
        item->row_count = item->next_position = rows; /* of these, no other was left out */
        item->io_exposed_ns = 0;
        add_cost(driver->result, item);
        trace_layer(driver, item);
    }
    driver->result->tail_tokens = driver->matched - driver->tail_first;
}

/* What failed is computed instead: no failure of the prompt. */
static eng_status await_tail(struct eng_driver *driver, struct eng_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t begin_ns = eng_clock_ns();
    spec_status status = driver->plugin.api->get_important_wait(driver->conn, driver->tail_ticket,
                                                                UINT64_MAX, &error);
    driver->tail = TAIL_TOLD;
    if (status != SPEC_OK && status != SPEC_E_CORRUPT && status != SPEC_E_IO)
        return fail(reterr, "get_important_wait", &error);
    take_tail(driver, eng_clock_ns() - begin_ns);
    return ENG_OK;
}

/* Both ends have met: every row of the match is there. */
static eng_status end_front(const struct eng_driver *driver, struct eng_kv *kv,
                            struct eng_error *reterr)
{
    if (kv->rows[0] != driver->tail_first)
        return eng_fail(reterr, ENG_E_SYSTEM,
                        "connector: next_chunk: MET at %" PRIu64
                        ", rows were delivered from %" PRIu64 " on",
                        kv->rows[0], driver->tail_first);
    for (uint64_t layer = 0; layer < driver->layers; layer++)
        eng_kv_set_prefix(kv, layer, driver->matched, driver->matched);
    return ENG_OK;
}

static eng_status next_front(void *user, struct eng_kv *kv, uint64_t *ret_count,
                             struct eng_error *reterr)
{
    struct eng_driver *driver = user;
    struct spec_next_chunk chunk = {0};
    eng_status status = ENG_OK;
    *ret_count = 0;
    if (driver->handle == 0 || driver->matched == 0)
        return ENG_OK;
    if (driver->tail == TAIL_NONE)
        status = submit_tail(driver, kv, reterr);
    if (status == ENG_OK)
        status = ask_chunk(driver, &chunk, reterr);
    if (status == ENG_OK && chunk.token_count == 0 && driver->tail == TAIL_RUNS) {
        status = await_tail(driver, reterr);
        if (status == ENG_OK)
            status = ask_chunk(driver, &chunk, reterr);
    }
    if (status != ENG_OK)
        return status;
    if (chunk.first_token != kv->rows[0])
        return eng_fail(reterr, ENG_E_SYSTEM,
                        "connector: next_chunk: a range from %" PRIu64
                        " on, expected from %" PRIu64,
                        chunk.first_token, kv->rows[0]);
    if (chunk.token_count == 0)
        return end_front(driver, kv, reterr);
    driver->result->front_tokens += chunk.token_count;
    driver->result->returned_tokens += driver->tail == TAIL_TOLD ? chunk.token_count : 0;
    *ret_count = chunk.token_count;
    return ENG_OK;
}

/* ---- The last hook -------------------------------------------------------------------------- */

static eng_status settle_request(void *user, struct eng_result *result, struct eng_error *reterr)
{
    struct eng_driver *driver = user;
    struct spec_error error = {.struct_size = sizeof(error)};
    (void)result;
    eng_status status = ENG_OK;
    (void)await_ahead(driver, NULL); /* a pass that was given up: its memory is ours again */
    if (driver->handle != 0 &&
        driver->plugin.api->release(driver->conn, driver->handle, &error) != SPEC_OK)
        status = fail(reterr, "release", &error);
    driver->handle = 0;
    if (driver->tail == TAIL_RUNS) /* given up, too; the release has ended it */
        (void)driver->plugin.api->get_important_wait(driver->conn, driver->tail_ticket, UINT64_MAX,
                                                     NULL);
    driver->tail = TAIL_NONE;
    eng_status waited = await_tickets(driver, status == ENG_OK ? reterr : NULL);
    return status == ENG_OK ? waited : status;
}

/* ---- Opening ---- */

static uint32_t abi_dtype(enum eng_dtype dtype)
{
    return dtype == ENG_F32 ? SPEC_DTYPE_F32 : dtype == ENG_F16 ? SPEC_DTYPE_F16 : SPEC_DTYPE_BF16;
}

static void describe_model(const struct eng_driver_params *params, struct spec_model *ret_model)
{
    const struct eng_config *config = eng_model_config(params->model);
    *ret_model = (struct spec_model){.struct_size = sizeof(*ret_model),
                                     .layer_count = (uint32_t)config->layers,
                                     .kv_head_count = (uint32_t)config->kv_heads,
                                     .query_head_count = (uint32_t)config->heads,
                                     .head_size = (uint32_t)config->head_dim,
                                     .kv_dtype = abi_dtype(params->kv_dtype)};
    if (config->family != ENG_FAMILY_LLAMA)
        return;
    ret_model->rope_kind = config->rope.interleaved ? SPEC_ROPE_INTERLEAVED : SPEC_ROPE_HALF;
    ret_model->rope_theta = config->rope.theta;
    if (!config->rope.llama3)
        return;
    ret_model->rope_scaling_kind = "llama3";
    ret_model->rope_scaling[0] = config->rope.factor;
    ret_model->rope_scaling[1] = config->rope.low_freq_factor;
    ret_model->rope_scaling[2] = config->rope.high_freq_factor;
    ret_model->rope_scaling[3] = (double)config->rope.original_positions;
}

/* The names of the model's weight files, and of config.json: the same weights under another
 * activation or epsilon have other keys and values. */
static eng_status find_weights(const char *model_dir, glob_t *ret_files, struct eng_error *reterr)
{
    char pattern[8192]; /* the directory's own name is no pattern: escaped */
    uint64_t used = 0;
    for (const char *c = model_dir; *c != '\0' && used + 32 < sizeof(pattern); c++) {
        if (strchr("*?[\\", *c) != NULL)
            pattern[used++] = '\\';
        pattern[used++] = *c;
    }
    int found = GLOB_ABORTED;
    if (used + 32 < sizeof(pattern)) {
        strcpy(pattern + used, "/*.safetensors");
        found = glob(pattern, 0, NULL, ret_files);
    }
    if (found == 0) {
        strcpy(pattern + used, "/config.json");
        found = glob(pattern, GLOB_APPEND, NULL, ret_files);
    }
    if (found == 0)
        return ENG_OK;
    globfree(ret_files);
    return eng_fail(reterr, ENG_E_INPUT, "%s: no *.safetensors files with a config.json",
                    model_dir);
}

static eng_status open_connector(struct eng_driver *driver, const struct eng_driver_params *params,
                                 struct eng_error *reterr)
{
    glob_t weights = {0};
    eng_status found = find_weights(params->model_dir, &weights, reterr);
    if (found != ENG_OK)
        return found;
    struct spec_model model;
    describe_model(params, &model);
    model.weights_paths = (const char *const *)weights.gl_pathv;
    model.weights_path_count = weights.gl_pathc;
    struct spec_open_params open = {.struct_size = sizeof(open),
                                    .role = SPEC_ROLE_WRITER,
                                    .config = params->config,
                                    .model = &model,
                                    .log = params->log,
                                    .log_user = params->log_user,
                                    .log_level_max = SPEC_LOG_WARN};
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = driver->plugin.api->open(&open, &driver->conn, &error);
    globfree(&weights);
    return status == SPEC_OK ? ENG_OK : fail(reterr, "open", &error);
}

static void set_source(struct eng_driver *driver)
{
    enum eng_hint hint = driver->params.hint;
    bool before = hint == ENG_HINT_BEFORE || hint == ENG_HINT_BOTH;
    bool after = hint == ENG_HINT_AFTER || hint == ENG_HINT_BOTH;
    driver->source = (struct eng_source){
        .user = driver,
        .hooks = {.user = driver,
                  .before_layer = before_layer,
                  .hint_heads = driver->probe_queries,
                  .hint_before = before,
                  .hint_after = after,
                  .before_attention = before_attention,
                  .after_attention = after_attention,
                  .after_layer = after_layer},
        .begin = begin_request,
        .front = driver->params.fill == ENG_LOAD_POLICY_ENDS ? next_front : NULL,
        .settle = settle_request};
}

eng_status eng_driver_open(const struct eng_driver_params *params, struct eng_driver **ret_driver,
                           struct eng_error *reterr)
{
    const struct eng_config *config = eng_model_config(params->model);
    struct eng_driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a driver");
    driver->layers = config->layers;
    driver->tickets = calloc(PASSES_MAX, sizeof(*driver->tickets));
    driver->statuses = calloc(PASSES_MAX, sizeof(*driver->statuses));
    driver->tail_items = calloc(config->layers, sizeof(*driver->tail_items));
    driver->tail_memory = calloc(config->layers, sizeof(*driver->tail_memory));
    driver->kv_heads = config->kv_heads;
    driver->query_heads = config->heads;
    driver->head_dim = config->head_dim;
    driver->dtype = abi_dtype(params->kv_dtype);
    driver->settles = params->settle;
    driver->store = params->store;
    driver->store_query = params->store_query;
    driver->report = params->report;
    driver->params = *params;
    if (params->select != NULL)
        driver->select = *params->select;
    uint64_t probes = params->probe_heads == 0 ? 3 : params->probe_heads;
    probes = probes < config->kv_heads ? probes : config->kv_heads;
    driver->probe_queries = probes * (config->heads / config->kv_heads);
    set_source(driver);
    eng_status status = ENG_OK;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (driver->tickets == NULL || driver->statuses == NULL || driver->tail_items == NULL ||
        driver->tail_memory == NULL)
        status = eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for tickets");
    else if (spec_load(params->connector, &driver->plugin, &error) != SPEC_OK)
        status = eng_fail(reterr, ENG_E_INPUT, "connector %s", error.text);
    else if (params->fill == ENG_LOAD_POLICY_ENDS && driver->plugin.api->next_chunk == NULL)
        status = eng_fail(reterr, ENG_E_INPUT,
                          "connector %s: its table has no next_chunk, which both ends take",
                          params->connector);
    else
        status = open_connector(driver, params, reterr);
    if (status != ENG_OK) {
        eng_driver_close(driver);
        return status;
    }
    *ret_driver = driver;
    return ENG_OK;
}

void eng_driver_settle(const struct eng_driver *driver)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    while (driver->plugin.api->stats(driver->conn, &stats, NULL) == SPEC_OK && stats.building != 0)
        (void)nanosleep(&pause, NULL);
}

void eng_driver_close(struct eng_driver *driver)
{
    if (driver == NULL)
        return;
    if (driver->conn != NULL && driver->settles)
        eng_driver_settle(driver);
    if (driver->conn != NULL)
        driver->plugin.api->close(driver->conn);
    spec_unload(&driver->plugin);
    free(driver->tickets);
    free(driver->statuses);
    free(driver->positions);
    free(driver->tail_items);
    free(driver->tail_memory);
    free(driver);
}

const struct eng_source *eng_driver_source(const struct eng_driver *driver)
{
    return &driver->source;
}

eng_status eng_driver_stats(const struct eng_driver *driver, struct spec_stats *ret_stats,
                            struct eng_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    *ret_stats = (struct spec_stats){.struct_size = sizeof(*ret_stats)};
    if (driver->plugin.api->stats(driver->conn, ret_stats, &error) != SPEC_OK)
        return fail(reterr, "stats", &error);
    return ENG_OK;
}

eng_status eng_driver_maintain(const struct eng_driver *driver, uint32_t flags,
                               struct eng_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct spec_maintain_params params = {.struct_size = sizeof(params), .flags = flags};
    if (driver->plugin.api->maintain(driver->conn, &params, &error) != SPEC_OK)
        return fail(reterr, "maintain", &error);
    return ENG_OK;
}

const char *eng_driver_store_problem(const struct eng_driver *driver)
{
    return driver->problem[0] == '\0' ? NULL : driver->problem;
}
