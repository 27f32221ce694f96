/* connector: opens and closes a connector. Open makes everything, sized by the configuration, so
 * that calls allocate nothing. A failed open undoes its work; close leaves no thread, mapping or
 * descriptor. Threads: open any; close one, alone. Tests: conformance (abi_012_* .. abi_015_*) */
#include "plugin/connector.h"
#include "base/fork_guard.h"
#include "plugin/args/args.h"
#include "plugin/args/dtype_table.h"
#include "plugin/args/identify.h"
#include "plugin/args/request_memory.h"
#include "plugin/load/load_recurrent.h"
#include "plugin/quant/quant.h"
#include "plugin/request/requests.h"
#include "plugin/save/save_recurrent.h"
#include "plugin/select/delivery.h"
#include "plugin/select/prefetch.h"
#include "plugin/select/scratch.h"
#include "plugin/select/select.h"
#include "plugin/select/upper_bus.h"

#define JOIN_NS      UINT64_C(3000000000) /* for another process that opens the store */
#define JOIN_STEP_NS UINT64_C(5000000)

static spec_status check_params(const struct spec_open_params *params, struct spec_error *reterr)
{
    if (params->config == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "open: config is NULL, expected a path or JSON");
    if (params->reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "open: reserved must be 0");
    if (params->role > SPEC_ROLE_READER)
        return sc_fail(reterr, SPEC_E_INVALID, "open: role %" PRIu32 " is unknown", params->role);
    uint32_t rank_count = params->rank_count > 0 ? params->rank_count : 1;
    if (params->rank >= rank_count || rank_count > SC_LIMIT_RANKS)
        return sc_fail(reterr, SPEC_E_INVALID, "open: rank %" PRIu32 " of %" PRIu32, params->rank,
                       rank_count);
    return SPEC_OK;
}

/* Refuses selection and quantisation for rows that are no numbers or not all of one kind. */
static spec_status check_scored(const spec_connector *conn, struct spec_error *reterr)
{
    const struct sc_config *config = &conn->config;
    if (sc_plugin_dtype_is_scored(conn->shape.dtype) && conn->layers == NULL)
        return SPEC_OK;
    const char *key = config->base == SC_BASE_QUANTISED           ? "select.base"
                      : config->identify == SC_IDENTIFY_QUANTISED ? "select.identify"
                      : sc_config_stores_quantised(config)        ? "layered.quantise"
                      : config->budget != SPEC_BUDGET_RATIO       ? "select.budget"
                      : sc_config_selects(config)                 ? "select.retain_ppm"
                      : conn->choice.probe_heads > 0              ? "select.probe_heads"
                                                                  : NULL;
    if (key == NULL)
        return SPEC_OK;
    if (conn->layers != NULL)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "model: its layers, or K and V, are not all alike: rows cannot be chosen or "
                       "coded, as %s (or the preset) asks",
                       key);
    return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                   "model: kv_dtype %s is bytes that are not interpreted: rows cannot be chosen or "
                   "coded, as %s (or the preset) asks",
                   sc_plugin_dtype_of(conn->shape.dtype)->name, key);
}

/* Makes all requests' marks, one allocation per kind, owned by request 0. */
static spec_status make_requests(spec_connector *conn, struct spec_error *reterr)
{
    struct sc_alloc *alloc = &conn->alloc;
    struct sc_plugin_request *first = conn->requests.slots;
    uint64_t slots = (uint64_t)conn->config.max_requests + SC_PLUGIN_PEEKS;
    first->marks = sc_alloc(alloc, slots * SC_PLUGIN_MARKS * sizeof(*first->marks));
    first->store_marks = sc_alloc(alloc, slots * SC_PLUGIN_MARKS * sizeof(*first->store_marks));
    if (first->marks == NULL || first->store_marks == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "marks of %" PRIu64 " requests", slots);
    for (uint64_t i = 0; i < slots; i++) {
        struct sc_plugin_request *request = &conn->requests.slots[i];
        atomic_init(&request->piece_last, UINT64_MAX);
        request->marks = first->marks + i * SC_PLUGIN_MARKS;
        request->store_marks = first->store_marks + i * SC_PLUGIN_MARKS;
    }
    return sc_plugin_request_memory_open(conn, reterr);
}

static uint64_t reader_count(const spec_connector *conn)
{
    return (uint64_t)conn->config.max_requests * SC_PLUGIN_READERS;
}

static spec_status make_readers(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t count = reader_count(conn);
    conn->requests.readers = sc_alloc_array(&conn->alloc, count, sizeof(struct sc_store_reader *));
    if (conn->requests.readers == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " readers", count);
    spec_status status = sc_store_readers_open(conn->store, count, conn->requests.readers, reterr);
    for (uint64_t i = 0; status == SPEC_OK && i < count; i++)
        conn->requests.slots[i / SC_PLUGIN_READERS].readers[i % SC_PLUGIN_READERS] =
            (struct sc_plugin_reader){.reader = conn->requests.readers[i],
                                      .layer = SC_PLUGIN_NO_LAYER};
    return status;
}

static spec_status make_pools(spec_connector *conn, struct spec_error *reterr)
{
    conn->choice.can_select = sc_plugin_can_select(conn);
    conn->requests.slots =
        sc_alloc_array(&conn->alloc, (uint64_t)conn->config.max_requests + SC_PLUGIN_PEEKS,
                       sizeof(*conn->requests.slots));
    conn->tickets.slots =
        sc_alloc_array(&conn->alloc, SC_LIMIT_TICKETS, sizeof(*conn->tickets.slots));
    conn->notify_queue.epoch_told =
        sc_alloc_array(&conn->alloc, conn->ranks.count, sizeof(*conn->notify_queue.epoch_told));
    if (sc_plugin_follows(conn))
        conn->grace.ring =
            sc_alloc_array(&conn->alloc, SC_PLUGIN_GRACE_ENTRIES, sizeof(*conn->grace.ring));
    if (conn->requests.slots == NULL || conn->tickets.slots == NULL ||
        conn->notify_queue.epoch_told == NULL ||
        (sc_plugin_follows(conn) && conn->grace.ring == NULL))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu32 " requests", conn->config.max_requests);
    static spec_status (*const MAKES[])(spec_connector *, struct spec_error *) = {
        make_requests,
        make_readers,
        sc_plugin_select_open,
        sc_plugin_deliveries_open,
        sc_plugin_batches_open,
        sc_plugin_submit_open,
        sc_plugin_saves_open,
        sc_plugin_recurrent_saves_open,
        sc_plugin_recurrent_loads_open,
        sc_plugin_admit_open,
    };
    spec_status status = SPEC_OK;
    for (uint32_t i = 0; status == SPEC_OK && i < sizeof(MAKES) / sizeof(MAKES[0]); i++)
        status = MAKES[i](conn, reterr);
    return status;
}

static spec_status open_as(spec_connector *conn, uint32_t role, struct sc_store_params *params,
                           struct spec_error *reterr)
{
    conn->ranks.role = role == SC_STORE_WRITER ? SPEC_ROLE_WRITER : SPEC_ROLE_READER;
    conn->ranks.takes_over = role == SC_STORE_HEIR;
    params->role = role;
    return sc_store_open(params, &conn->store, reterr);
}

/* Another process has the store alone for as long as an open takes, if both begin together. */
static void join_wait(spec_connector *conn)
{
    _Atomic uint32_t never = 0;
    const uint64_t end_ns = sc_exec_now_ns(conn->exec) + JOIN_NS;
    spec_status status = SPEC_E_LOCKED;
    for (uint64_t now_ns; !sc_store_stores(conn->store) && status == SPEC_E_LOCKED &&
                          (now_ns = sc_exec_now_ns(conn->exec)) < end_ns;) {
        (void)sc_exec_wait(conn->exec, &never, 0, now_ns + JOIN_STEP_NS);
        status = sc_store_take_over(conn->store, NULL);
    }
}

/* store.writers is many. A process that finds no place among them, or another that has the store
 * alone, reads. */
static spec_status open_member(spec_connector *conn, uint32_t role, struct sc_store_params *params,
                               struct spec_error *reterr)
{
    params->shares = conn->ranks.is_member = true;
    spec_status status = open_as(conn, SC_STORE_HEIR, params, reterr);
    if (status == SPEC_OK && role == SPEC_ROLE_WRITER)
        join_wait(conn);
    if (status != SPEC_OK || !sc_store_stores(conn->store))
        return status == SPEC_OK && role == SPEC_ROLE_WRITER
                   ? sc_fail(reterr, SPEC_E_LOCKED,
                             "%s: another process has the store alone, or 16 store in it",
                             conn->config.path)
                   : status;
    conn->ranks.role = SPEC_ROLE_WRITER;
    conn->ranks.takes_over = false;
    return SPEC_OK;
}

/* AUTO: if another process is the rank's writer, becomes a reader that takes over later. */
static spec_status open_role(spec_connector *conn, uint32_t role, struct sc_store_params *params,
                             struct spec_error *reterr)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    bool reads = role == SPEC_ROLE_READER;
    bool is_member = !reads && conn->config.writers == SC_WRITERS_MANY;
    spec_status status =
        is_member ? open_member(conn, role, params, &error)
                  : open_as(conn, reads ? SC_STORE_READER : SC_STORE_WRITER, params, &error);
    if (status == SPEC_E_LOCKED && role == SPEC_ROLE_AUTO && !is_member) {
        SC_LOG(&conn->log, SPEC_LOG_INFO, "opens as a reader, until there is no writer: %s",
               error.text);
        status = open_as(conn, SC_STORE_HEIR, params, &error);
    }
    if (status != SPEC_OK && conn->ranks.takes_over && !is_member) {
        SC_LOG(&conn->log, SPEC_LOG_WARN, "stays a reader: %s", error.text);
        status = open_as(conn, SC_STORE_READER, params, &error);
    }
    if (status != SPEC_OK)
        return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
    sc_plugin_bus_open(conn);
    sc_plugin_evict_open(conn);
    return SPEC_OK;
}

/* Returns the configured bytes, at most twice what all requests use at once: an ended load keeps
 * its selector while it is read into. */
static uint64_t selector_bytes(const spec_connector *conn)
{
    uint64_t each = sc_store_selector_bytes(conn->config.max_request_tokens,
                                            conn->choice.probe_row_bytes, conn->config.layout);
    if (conn->choice
            /* 8-bit quantised rows have half the size of rows, and take it twice in parts. */
            .reads_quant)
        each += conn->config.max_request_tokens * conn->dims.row_bytes +
                (conn->config.max_request_tokens / conn->config.chunk_tokens + 1) *
                    SC_STORE_SELECTOR_SLACK_BYTES;
    uint64_t most = 2 * each * SC_PLUGIN_SELECTORS * conn->config.max_requests;
    if (!sc_plugin_can_select(conn))
        return 0;
    return conn->config.selector_bytes < most ? conn->config.selector_bytes : most;
}

static void on_average(const struct sc_store_average *average, void *user)
{
    const spec_connector *conn = user;
    sc_baseline_averages_load(conn->baseline.averages, average);
}

static void on_note(const uint16_t *words, uint64_t count, void *user)
{
    spec_connector *conn = user;
    uint32_t kind = words[0] >> 8;
    if (kind == SC_PLUGIN_NOTE_ESTIMATE && conn->ranks.rank == 0)
        sc_plugin_load_policy_heard(conn, words, count);
    else if (kind == SC_PLUGIN_NOTE_CALIBRATION)
        sc_plugin_learnt_load(&conn->quant->learning, kind, words, count);
}

static void on_write(void *user)
{
    sc_plugin_quant_write(user);
}

static spec_status open_baseline(spec_connector *conn, struct spec_error *reterr)
{
    conn->baseline = (struct sc_baseline){.config = &conn->config,
                                          .log = &conn->log,
                                          .store = &conn->store,
                                          .on_write = on_write,
                                          .user = conn};
    if (!sc_plugin_can_select(conn))
        return SPEC_OK; /* nothing is scored, predicted or selected by averages */
    return sc_baseline_open(&conn->baseline, &conn->alloc, conn->dims.layer_count, reterr);
}

static spec_status open_stores(spec_connector *conn, const struct spec_open_params *params,
                               const struct spec_model *model, const struct sc_io_custom *custom,
                               struct spec_error *reterr)
{
    char *descriptor;
    spec_status status =
        sc_plugin_namespace(conn, model, &conn->name_space, &conn->family, &descriptor, reterr);
    if (status != SPEC_OK)
        return status;
    struct sc_store_params store = {
        .alloc = &conn->alloc,
        .exec = conn->exec,
        .log = &conn->log,
        .fault = &conn->fault,
        .poison = &conn->poison,
        .config = &conn->config,
        .custom = custom,
        .rank = conn->ranks.rank,
        .rank_count = conn->ranks.count,
        .space = {.layer_count = conn->dims.layer_count,
                  .layout = conn->config.layout,
                  .k_row_bytes = conn->dims.k_row_bytes,
                  .descriptor = descriptor},
        .windows = conn->windows,
        .extents_more = conn->states.count > 0 ? SC_PLUGIN_RECURRENT_EXTENTS : 0,
        .selector_bytes_max = selector_bytes(conn),
        .probe_row_bytes = conn->choice.probe_row_bytes,
        .codes = sc_plugin_quant_params(conn),
        .permutation = {.span_rows = conn->baseline.averages == NULL ? 0
                                     : conn->config.reorder_scope == SC_REORDER_NODE
                                         ? SC_STORE_PERMUTATION_ROWS_MAX
                                         : SC_PLUGIN_SPAN_ROWS,
                        .bytes_max = conn->config.reorder_bytes_max,
                        .scores = sc_plugin_reorder_scores,
                        .repeat_ppm = conn->config.reorder_repeat_ppm,
                        .repeat_requests = SC_BASELINE_REPEAT_REQUESTS,
                        .requests = sc_plugin_reorder_requests,
                        .moment = sc_plugin_reorder_moment,
                        .is_quiet = sc_plugin_reorder_is_quiet,
                        .user = conn},
        .on_piece = sc_plugin_on_piece,
        .on_secret = sc_plugin_on_secret,
        .piece_holds = sc_plugin_piece_holds,
        .on_pieces_soon = sc_plugin_on_pieces_soon,
        .on_piece_soon = sc_plugin_on_piece_soon,
        .on_drop = sc_plugin_on_drop,
        .on_epoch = sc_plugin_on_epoch,
        .on_average = on_average,
        .on_note = on_note,
        .on_written = sc_plugin_on_written,
        .user = conn,
    };
    sc_hash_to_bytes(conn->name_space, store.space.digest);
    sc_hash_to_bytes(conn->family, store.space.family);
    status = open_role(conn, params->role, &store, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_peers_open(conn, &store, reterr);
    sc_alloc_free(&conn->alloc, descriptor);
    return status;
}

/* A configured device is attached when open returns, or open fails. */
static spec_status open_device(spec_connector *conn, struct spec_error *reterr)
{
    const struct sc_plugin_device_params params = {
        .alloc = &conn->alloc,
        .exec = conn->exec,
        .log = &conn->log,
        .poison = &conn->poison,
        .shape = &conn->shape,
        .request_count = conn->config.max_requests,
        .staging_bytes = conn->config.gpu_staging_bytes,
        .store_bytes = conn->config.gpu_store_bytes,
        .query_group = conn->dims.query_group,
        .room_bytes = conn->config.gpu_query_bytes,
        .room_count = sc_plugin_scratch_count(conn),
        .score_bytes = conn->choice.can_select ? conn->config.gpu_score_bytes : 0,
        .store = conn->store,
        .hint_bytes = sc_plugin_hint_bytes(conn),
        .hint_count = sc_plugin_hint_bytes(conn) > 0 ? sc_plugin_hint_count(conn) : 0};
    sc_plugin_device_open(&conn->device, &params);
    if (conn->config.gpu_device == SC_CONFIG_AUTO)
        return SPEC_OK;
    return sc_plugin_device_attach(&conn->device, (int32_t)conn->config.gpu_device, reterr);
}

static spec_status set_windows(spec_connector *conn, struct spec_error *reterr)
{
    conn->windows = sc_alloc_array(&conn->alloc, conn->dims.layer_count, sizeof(*conn->windows));
    if (conn->windows == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "windows of %" PRIu32 " layers",
                       conn->dims.layer_count);
    for (uint32_t l = 0; l < conn->dims.layer_count; l++) {
        uint64_t window = conn->windows[l] = conn->layers[l].window;
        conn->dims.full_layers += window == 0;
        conn->dims.window_most = window > conn->dims.window_most ? window : conn->dims.window_most;
    }
    if (conn->dims.window_most > 0)
        return SPEC_OK;
    sc_alloc_free(&conn->alloc, conn->windows);
    conn->windows = NULL;
    return SPEC_OK;
}

static spec_status set_shapes(spec_connector *conn, const struct spec_model *model,
                              struct spec_error *reterr)
{
    conn->dims.layer_count = model->layer_count;
    conn->dims.query_group = model->query_head_count / model->kv_head_count;
    conn->dims.k_row_bytes =
        (uint64_t)model->kv_head_count * model->head_size * sc_plugin_dtype_bytes(model->kv_dtype);
    conn->shape = (struct sc_plugin_shape){.kv_head_count = model->kv_head_count,
                                           .head_size = model->head_size,
                                           .dtype = model->kv_dtype};
    struct sc_plugin_layer_form *forms = NULL;
    spec_status status = sc_plugin_model_layers(model, &conn->alloc, &forms, reterr);
    if (status == SPEC_OK && sc_plugin_model_is_recurrent(model, forms))
        status = sc_plugin_recurrent_layers(conn, model, forms, reterr);
    else
        conn->layers = forms;
    if (status == SPEC_OK && conn->layers != NULL) { /* the store does not know where V begins */
        conn->shape.row_bytes = conn->layers[0].shape.row_bytes; /* the device reads it from here */
        conn->dims.k_row_bytes = conn->layers[0].shape.row_bytes / 2;
        conn->config.layout = SC_STORE_PAIRED; /* overrides the configuration; in the namespace */
        status = set_windows(conn, reterr);
    }
    conn->dims.row_bytes = 2 * conn->dims.k_row_bytes;
    return status;
}

static spec_status open_parts(spec_connector *conn, const struct spec_open_params *params,
                              const struct spec_model *model, const struct sc_io_custom *custom,
                              struct spec_error *reterr)
{
    spec_status status = sc_config_parse(&conn->alloc, params->config, &conn->config, reterr);
    if (status != SPEC_OK)
        return status;
    conn->ranks.rank = params->rank;
    conn->ranks.count = params->rank_count > 0 ? params->rank_count : 1;
    status = set_shapes(conn, model, reterr);
    if (status != SPEC_OK)
        return status;
    conn->choice.probe_heads = conn->config.probe_heads < model->kv_head_count
                                   ? conn->config.probe_heads
                                   : model->kv_head_count;
    conn->choice.probe_row_bytes = (uint64_t)conn->choice.probe_heads * model->head_size *
                                   sc_plugin_dtype_bytes(model->kv_dtype);
    conn->choice.reads_quant =
        conn->config.base == SC_BASE_QUANTISED || conn->config.identify == SC_IDENTIFY_QUANTISED;
    conn->choice.hint_heads =
        conn->choice.reads_quant ? model->kv_head_count : conn->choice.probe_heads;
    conn->kernels = sc_kernels_get(sc_kernels_level_best());
    status = check_scored(conn, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_quant_open(conn, model, reterr);
    if (status == SPEC_OK)
        conn->fork_guard = sc_fork_guard_open();
    if (status == SPEC_OK && conn->fork_guard == NULL)
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "fork guard page");
    struct sc_exec_params exec = {.alloc = &conn->alloc,
                                  .thread_count = custom != NULL ? 0 : conn->config.io_threads,
                                  .keeps_one = true, /* for loads, while writes or syncs block */
                                  .seed = custom != NULL ? custom->seed : 0,
                                  .name = "spec",
                                  .poison = &conn->poison};
    if (status == SPEC_OK)
        status = sc_exec_open(&exec, &conn->exec, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_index_open(conn, &conn->radix, reterr);
    conn->index.is_opening = true;
    if (status == SPEC_OK)
        status = open_baseline(conn, reterr);
    if (status == SPEC_OK)
        status = open_stores(conn, params, model, custom, reterr);
    conn->index.is_opening = false;
    if (status == SPEC_OK)
        status = make_pools(conn, reterr);
    if (status == SPEC_OK)
        status = open_device(conn, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_epoch_open(conn, reterr);
    if (status == SPEC_OK) { /* posted resets count before the first lookup */
        sc_plugin_lease_seed_find(conn);
        atomic_store(&conn->ranks.pieces_followed, sc_store_piece_next(conn->store));
        sc_plugin_orphans_drop(conn);
        status = sc_plugin_erase_open(conn, reterr);
    }
    if (status == SPEC_OK) {
        sc_plugin_notify_tick(conn);
        sc_plugin_tick_start(conn);
        if (sc_plugin_can_store(conn)) /* left by an earlier process */
            sc_store_build_quant(conn->store);
    }
    return status;
}

/* The admission filter has hashes of erased chunks, so it is cleared too. */
static void on_erasure_heard(spec_connector *conn)
{
    sc_plugin_host_prefetches_drop(conn);
    sc_plugin_admit_forget(&conn->admit);
}

static const struct sc_plugin_index_events index_events = {
    .epoch_moved = sc_plugin_host_prefetches_reset,
    .bypass_begun = sc_plugin_host_prefetches_drop,
    .erasure_heard = on_erasure_heard};

/* Allocates the connector with the host's functions, or libc's if it gives none. */
static spec_status make_connector(const struct spec_open_params *params, spec_connector **ret_conn,
                                  struct spec_error *reterr)
{
    struct sc_alloc alloc;
    sc_alloc_init(&alloc);
    if (params->alloc != NULL) {
        struct spec_alloc host;
        spec_status status =
            sc_plugin_args_read(&host, &sc_plugin_form_alloc, params->alloc, "open: alloc", reterr);
        if (status != SPEC_OK)
            return status;
        if (host.reserved != 0)
            return sc_fail(reterr, SPEC_E_INVALID, "open: alloc: reserved must be 0");
        if (host.alloc == NULL || host.free == NULL)
            return sc_fail(reterr, SPEC_E_INVALID, "open: alloc lacks a function");
        alloc.host_alloc = host.alloc;
        alloc.host_free = host.free;
        alloc.user = host.user;
    }
    spec_connector *conn = sc_alloc_zero(&alloc, sizeof(*conn));
    if (conn == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "connector");
    conn->alloc = alloc;
    conn->index_events = &index_events;
    sc_fault_init(&conn->fault);
    conn->alloc.fault = &conn->fault;
    sc_log_init(&conn->log, params->log, params->log_user, params->log_level_max);
    pthread_mutex_init(&conn->commit_lock, NULL);
    pthread_mutex_init(&conn->index.lock, NULL);
    pthread_mutex_init(&conn->saves.lock, NULL);
    pthread_mutex_init(&conn->jobs.lock, NULL);
    sc_plugin_load_policy_open(conn);
    sc_plugin_maintain_open(conn);
    sc_plugin_bypass_open(conn);
    pthread_mutex_init(&conn->erase.lock, NULL);
    pthread_mutex_init(&conn->erasures.ring_lock, NULL);
    sc_plugin_host_prefetches_open(conn);
    pthread_mutex_init(&conn->ranks.follow_lock, NULL);
    pthread_mutex_init(&conn->notify_queue.post_lock, NULL);
    pthread_mutex_init(&conn->notify_queue.lock, NULL);
    *ret_conn = conn;
    return SPEC_OK;
}

static void destroy_connector(spec_connector *conn)
{
    if (conn->exec != NULL) {
        sc_plugin_host_prefetches_close(conn);
        sc_plugin_jobs_close(conn);
    }
    sc_plugin_submit_close(conn);
    sc_plugin_batches_close(conn);
    sc_plugin_recurrent_loads_close(conn);
    sc_plugin_recurrent_saves_close(conn);
    sc_plugin_recurrent_close(conn);
    if (conn->requests.readers != NULL)
        sc_store_readers_close(conn->requests.readers[0], reader_count(conn));
    sc_plugin_select_close(conn);
    sc_plugin_device_close(&conn->device); /* no task uses its hint places any more */
    sc_plugin_deliveries_close(conn);
    if (conn->requests.slots != NULL) { /* the first of each is all of them */
        sc_alloc_free(&conn->alloc, conn->requests.slots[0].marks);
        sc_alloc_free(&conn->alloc, conn->requests.slots[0].store_marks);
    }
    sc_plugin_compact_close(conn);
    sc_plugin_peers_close(conn);
    sc_store_close(conn->store);
    sc_radix_close(conn->radix);
    sc_exec_close(conn->exec);
    sc_alloc_free(&conn->alloc, conn->compaction.job);
    sc_baseline_averages_close(conn->baseline.averages);
    sc_alloc_free(&conn->alloc, conn->requests.readers);
    sc_plugin_request_memory_close(conn);
    sc_alloc_free(&conn->alloc, conn->requests.slots);
    sc_alloc_free(&conn->alloc, conn->tickets.slots);
    sc_alloc_free(&conn->alloc, conn->saves.slots);
    sc_alloc_free(&conn->alloc, conn->saves.sharers.slots);
    sc_alloc_free(&conn->alloc, conn->saves.sharers.table);
    sc_alloc_free(&conn->alloc, conn->index.drops);
    sc_alloc_free(&conn->alloc, conn->notify_queue.epoch_told);
    sc_alloc_free(&conn->alloc, conn->grace.ring);
    sc_alloc_free(&conn->alloc, conn->admit.words);
    sc_alloc_free(&conn->alloc, conn->layers);
    sc_alloc_free(&conn->alloc, conn->windows);
    sc_plugin_quant_close(conn);
    sc_fork_guard_close(conn->fork_guard);
    pthread_mutex_destroy(&conn->commit_lock);
    pthread_mutex_destroy(&conn->index.lock);
    pthread_mutex_destroy(&conn->saves.lock);
    sc_plugin_load_policy_close(conn);
    pthread_mutex_destroy(&conn->jobs.lock);
    sc_plugin_bypass_close(conn);
    pthread_mutex_destroy(&conn->erase.lock);
    pthread_mutex_destroy(&conn->erasures.ring_lock);
    pthread_mutex_destroy(&conn->stages.lock);
    pthread_mutex_destroy(&conn->ranks.follow_lock);
    pthread_mutex_destroy(&conn->notify_queue.post_lock);
    pthread_mutex_destroy(&conn->notify_queue.lock);
    sc_log_drain(&conn->log);
    sc_log_done(&conn->log);
    struct sc_alloc alloc = conn->alloc;
    alloc.fault = NULL;
    sc_alloc_free(&alloc, conn);
    sc_alloc_done(&alloc);
}

spec_status sc_plugin_open_on(const struct spec_open_params *host_params,
                              const struct sc_io_custom *custom, spec_connector **ret_conn,
                              struct spec_error *reterr)
{
    struct spec_open_params params;
    struct spec_model model;
    spec_status status =
        sc_plugin_args_read(&params, &sc_plugin_form_open, host_params, "open: params", reterr);
    if (status == SPEC_OK && ret_conn == NULL)
        status = sc_fail(reterr, SPEC_E_INVALID, "open: ret_conn is NULL");
    if (status == SPEC_OK)
        status = check_params(&params, reterr);
    if (status == SPEC_OK)
        status =
            sc_plugin_args_read(&model, &sc_plugin_form_model, params.model, "open: model", reterr);
    if (status == SPEC_OK)
        status = sc_plugin_model_check(&model, reterr);
    if (status != SPEC_OK)
        return status;
    spec_connector *conn = NULL;
    status = make_connector(&params, &conn, reterr);
    if (status != SPEC_OK)
        return status;
    status = open_parts(conn, &params, &model, custom, reterr);
    if (status != SPEC_OK) {
        destroy_connector(conn);
        return status;
    }
    sc_log_drain(&conn->log);
    *ret_conn = conn;
    return SPEC_OK;
}

spec_status sc_plugin_open(const struct spec_open_params *params, spec_connector **ret_conn,
                           struct spec_error *reterr)
{
    return sc_plugin_open_on(params, NULL, ret_conn, reterr);
}

void sc_plugin_close(spec_connector *conn)
{
    sc_plugin_tick_stop(conn);
    sc_plugin_notify_post(conn); /* last chance to notify */
    sc_plugin_submit_end(conn);
    for (uint32_t i = 0; i < conn->config.max_requests; i++) {
        struct sc_plugin_request *request = &conn->requests.slots[i];
        uint64_t gate = atomic_load(&request->gate);
        if ((uint32_t)gate == SC_REQUEST_OPEN)
            sc_plugin_release(conn, gate >> 32 << 32 | (i + 1), NULL);
    }
    for (;;) {
        uint32_t seen = atomic_load_explicit(&conn->saves.word, memory_order_acquire);
        if (atomic_load_explicit(&conn->saves.live, memory_order_acquire) == 0)
            break;
        sc_exec_wait(conn->exec, &conn->saves.word, seen, SC_EXEC_FOREVER);
    }
    sc_plugin_jobs_close(conn);
    (void)sc_plugin_tidy(conn); /* failed ranges must not return with the next open */
    if (sc_plugin_can_store(conn))
        sc_baseline_write_all(&conn->baseline);
    sc_plugin_load_policy_write(conn, true);
    destroy_connector(conn);
}
