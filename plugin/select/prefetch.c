/* prefetch: predicts rows of the next layer and reads them before they are selected.
 *
 *   prefetch_next(l)     ranking -> its first rows are read
 *     with a hint        copied -> WAITS for keys -> POSTED -> RUNS: ranks -> BEGINS reads -> DONE
 *   get_important(l+1)   takes ownership back: WAITS, POSTED -> IDLE; RUNS -> GONE (the task begins
 *                        no reads); waits while BEGINS. Then measures the prediction, and ranks by
 *                        the scores for l + 2 (sc_baseline_follows)
 *
 *   prediction 0: layers 0 2 4 .. with reader 0   requested before or after get_important of the
 *   prediction 1: layers 1 3 5 .. with reader 1   layer below, which uses the other prediction
 *
 * From WAITS to GONE the task holds the request, so that its slot is not reused. While it is RUNS
 * or GONE it may read its selector, which is not begun again meanwhile.
 *
 * Invariants: there is one prediction per parity of layers. A task uses its parity's reader alone;
 * the host uses that reader after it has taken ownership back. A later prefetch_next replaces a
 * prediction that has not started, and does nothing otherwise. Without a window or accuracy nothing
 * is read and everything is measured.
 * Limits: prefetch_next and release wait for a task only in BEGINS. */
#include "plugin/select/prefetch.h"
#include "plugin/args/dtype_table.h"
#include "plugin/args/handle.h"
#include "plugin/select/budget.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/item.h"
#include "plugin/select/per_head.h"
#include "plugin/select/row_scores.h"
#include "plugin/select/row_set.h"
#include "plugin/select/scratch.h"

#include <string.h>

enum prefetch_state { IDLE, WAITS, POSTED, RUNS, BEGINS, DONE, GONE };

#define NOW     1u              /* a past deadline: no wait */
#define LOOK_NS UINT64_C(50000) /* ns until a hint on a device is polled again */

/* Hints at one time, in host memory and on a device, from prefetch_next until ranked; bits of a
 * word. */
#define HINTS_MAX 64u

static struct sc_plugin_prefetch *prefetch_of(struct sc_plugin_request *request, uint32_t layer)
{
    return &request->predictions[layer % SC_PLUGIN_AHEAD];
}

/* ---- Memory of hints ------------------------------------------------------------------------ */

uint64_t sc_plugin_hint_count(const spec_connector *conn)
{
    uint64_t most = SC_PLUGIN_AHEAD * (uint64_t)conn->config.max_requests;
    return most < HINTS_MAX ? most : HINTS_MAX;
}

static struct sc_plugin_device_hint *hint_there(const struct sc_plugin_prefetch *prediction)
{
    return &prediction->conn->device.hints[prediction->hint_place];
}

/* Takes a place on the device whose last copy has ended; returns false if there is none. */
static bool place_take(struct sc_plugin_prefetch *prediction)
{
    spec_connector *conn = prediction->conn;
    _Atomic uint64_t *free = &conn->requests.hint_places;
    for (uint64_t left = atomic_load(free); left != 0; left &= left - 1) {
        uint32_t place = (uint32_t)__builtin_ctzll(left);
        uint64_t bit = UINT64_C(1) << place;
        if (!sc_plugin_hint_is_over(&conn->device.hints[place]) ||
            (atomic_fetch_and(free, ~bit) & bit) == 0)
            continue;
        prediction->hint_place = place;
        prediction->has_place = true;
        return true;
    }
    return false;
}

/* Frees the hint, before the state says that no task has the prediction. */
static void hint_put(struct sc_plugin_prefetch *prediction)
{
    sc_run_put(&prediction->conn->requests.hints, &prediction->hint);
    if (prediction->has_place)
        atomic_fetch_or(&prediction->conn->requests.hint_places, UINT64_C(1)
                                                                     << prediction->hint_place);
    prediction->has_place = false;
}

/* ---- States --------------------------------------------------------------------------------- */

static bool state_move(struct sc_plugin_prefetch *prediction, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&prediction->state, &from, to);
}

static void task_end(struct sc_plugin_prefetch *prediction, uint32_t state)
{
    hint_put(prediction);
    atomic_store(&prediction->state, state);
    sc_exec_wake(prediction->conn->exec, &prediction->state);
    sc_plugin_request_unhold(prediction->request);
}

/* ---- Ranking -------------------------------------------------------------------------------- */

static struct sc_plugin_reader *reader_of(struct sc_plugin_prefetch *prediction)
{
    return &prediction->request->readers[prediction->layer % SC_PLUGIN_AHEAD];
}

/* Sorts each decile of the ranking; overwrites scratch->sets. */
static void deciles_order(struct sc_plugin_scratch *scratch, uint32_t *rows, uint64_t k,
                          uint64_t row_total)
{
    uint64_t *bits = scratch->sets;
    memset(bits, 0, (row_total + 63) / 64 * sizeof(*bits));
    sc_plugin_ranking_order(rows, k, bits);
}

/* Returns the bytes, of single rows or (is_run) of a run, that the device reads within the
 * window. */
static uint64_t bytes_that_fit(spec_connector *conn, bool is_run)
{
    struct sc_store_device device; /* rate before the first measurement */
    uint64_t rate = atomic_load_explicit(is_run ? &conn->ahead.load_bytes_per_s
                                                : &conn->ahead.gather_bytes_per_s,
                                         memory_order_relaxed);
    sc_store_device(conn->store, &device);
    return sc_plugin_window_bytes(&conn->ahead.window, rate > 0 ? rate : device.bytes_per_s);
}

static uint64_t rows_that_fit(spec_connector *conn, bool is_run)
{
    uint64_t page = SC_IO_PAGE_BYTES, pages = (conn->dims.row_bytes + page - 1) / page;
    return bytes_that_fit(conn, is_run) / (is_run ? conn->dims.row_bytes : pages * page);
}

/* Returns the ns that other requests have waited for demand loads since open. */
static uint64_t others_awaited(const struct sc_plugin_prefetch *prediction)
{
    uint64_t own_ns = sc_counted(&prediction->request->awaited_ns);
    uint64_t all_ns = sc_store_awaited_ns(prediction->conn->store);
    return all_ns > own_ns ? all_ns - own_ns : 0;
}

/* Begins reads as far as accuracy and window allow: of the layer's first rows if heads are expected
 * to disagree, else of the ranking's. Called by the thread that the state names. */
static void prefetch_begin(spec_connector *conn, struct sc_plugin_prefetch *prediction, uint64_t k)
{
    const struct sc_plugin_accuracy *own = &conn->ahead.trusts[prediction->layer];
    const struct sc_plugin_accuracy *all = &conn->ahead.trusts[conn->dims.layer_count];
    uint64_t whole_ppm = conn->config.min_precision_ppm; /* below: use the ranking */
    uint64_t least_ppm = sc_plugin_contention_least(&conn->ahead.contention, whole_ppm);
    uint64_t total = sc_plugin_row_total(prediction->request);
    prediction->count = k;
    if (prediction->is_whole && sc_plugin_accuracy_whole(own, all, whole_ppm)) {
        uint64_t fits = rows_that_fit(conn, true);
        sc_plugin_prefetch_begin_run(conn, prediction->request, prediction->layer,
                                     fits < total ? fits : total);
        return;
    }
    uint64_t count = sc_plugin_accuracy_rows(own, all, k, least_ppm);
    if (prediction->slabs != NULL) {
        sc_plugin_prefetch_begin_slabs(conn, prediction->request, prediction->layer, k, count,
                                       bytes_that_fit(conn, false), prediction->slabs);
        return;
    }
    uint64_t fits = rows_that_fit(conn, false);
    count = count < fits || rows_that_fit(conn, true) >= total ? count : fits;
    if (count > 0)
        sc_plugin_prefetch_begin(conn, prediction->request, prediction->layer, k, count);
}

/* Returns the number of rows to rank: as many as were selected last. */
static uint64_t rows_wanted(const struct sc_plugin_prefetch *prediction,
                            const struct sc_plugin_want *want)
{
    uint64_t selected = prediction->request->selected_row_list;
    if (selected == 0)
        return want->row_count;
    return selected < want->row_total ? selected : want->row_total;
}

static bool rank_hint(spec_connector *conn, struct sc_plugin_prefetch *prediction,
                      const uint8_t *hint, const uint8_t *keys, uint64_t *ret_k)
{
    struct sc_plugin_request *request = prediction->request;
    struct sc_plugin_want want = sc_plugin_want_usual(conn, request, prediction->layer);
    struct sc_plugin_scratch *scratch =
        prediction->hint_ranks > 0 ? sc_plugin_scratch_take(conn, want.row_total, NOW) : NULL;
    if (scratch == NULL)
        return false;
    uint64_t element = sc_plugin_dtype_bytes(prediction->hint_dtype);
    uint64_t head_bytes = conn->shape.head_size * element;
    struct sc_kernels_importance what = {
        .kernels = conn->kernels,
        .head_size = conn->shape.head_size,
        .group = conn->dims.query_group,
        .scale = prediction->hint_scale,
        .queries = {.data = hint,
                    .row_stride_bytes =
                        conn->choice.hint_heads * conn->dims.query_group * head_bytes,
                    .head_stride_bytes = head_bytes,
                    .row_count = prediction->hint_rows,
                    .dtype = sc_plugin_kernels_dtype(prediction->hint_dtype)},
        .last_row = want.metric == SPEC_METRIC_LAST};
    struct sc_plugin_afar there = {.device = NULL};
    if (prediction->hint_afar.device != NULL)
        there = sc_plugin_hint_afar(&prediction->hint_afar, hint_there(prediction));
    const struct sc_plugin_asker asker = {.hint = &there};
    const float *sums;
    spec_status status =
        conn->choice.reads_quant
            ? sc_plugin_quant_scores(scratch, &asker, &what, request, keys, &sums, NULL)
            : sc_plugin_probe_sums(scratch, &asker, &what, keys, want.row_total, &sums, NULL);
    if (status != SPEC_OK) {
        sc_plugin_scratch_put(scratch);
        return false;
    }
    *ret_k = prediction->hint_ranks;
    prediction->is_whole =
        !sc_plugin_probes_are_all(conn) && !sc_plugin_probes_agree(scratch, &want, *ret_k);
    sc_plugin_rank(scratch, &want, sums, *ret_k, reader_of(prediction)->rows);
    deciles_order(scratch, reader_of(prediction)->rows, *ret_k, want.row_total);
    sc_plugin_scratch_put(scratch);
    return true;
}

/* Ranks rows by what is in memory; returns false without a ranking. */
static bool rank_now(spec_connector *conn, struct sc_plugin_prefetch *prediction, uint32_t *rows,
                     uint64_t *ret_k)
{
    struct sc_plugin_request *request = prediction->request;
    struct sc_plugin_want want = sc_plugin_want_usual(conn, request, prediction->layer);
    uint64_t k = rows_wanted(prediction, &want);
    struct sc_plugin_scratch *scratch =
        k > 0 ? sc_plugin_scratch_take(conn, want.row_total, NOW) : NULL;
    if (scratch == NULL)
        return false;
    struct sc_baseline_ask ask = sc_plugin_baseline_ask(request, prediction->layer);
    ask.k = k;
    ask.ret_rows = rows;
    ask.bits = scratch->sets;
    enum sc_baseline_answer answer = sc_baseline_predict(&conn->baseline, &ask, scratch->sums);
    if (answer == SC_BASELINE_IMPORTANCE)
        sc_plugin_rank(scratch, &want, scratch->sums, k, rows);
    if (answer != SC_BASELINE_NOTHING)
        deciles_order(scratch, rows, k, want.row_total);
    sc_plugin_scratch_put(scratch);
    *ret_k = k;
    return answer != SC_BASELINE_NOTHING;
}

/* ---- The task ------------------------------------------------------------------------------- */

static void task_post(struct sc_plugin_prefetch *prediction)
{
    if (state_move(prediction, WAITS, POSTED))
        sc_exec_post(prediction->conn->exec, &prediction->task, SC_IO_CLASS_SPECULATIVE);
}

static struct sc_store_selector *selector_of(struct sc_plugin_prefetch *prediction)
{
    return prediction->request->selectors[prediction->layer % SC_PLUGIN_SELECTORS].selector;
}

/* Returns the hint's rows; NULL: not yet, or (*ret_is_over) never. */
static const uint8_t *hint_look(const struct sc_plugin_prefetch *prediction, bool *ret_is_over)
{
    *ret_is_over = true;
    return prediction->hint_afar.device == NULL
               ? prediction->hint.at
               : sc_plugin_hint_look(&prediction->hint_afar, hint_there(prediction), ret_is_over);
}

/* Runs the task again later, because the device does not notify. */
static void task_later(struct sc_plugin_prefetch *prediction)
{
    spec_connector *conn = prediction->conn;
    if (state_move(prediction, RUNS, POSTED))
        sc_exec_post_at(conn->exec, &prediction->task, SC_IO_CLASS_SPECULATIVE,
                        sc_exec_now_ns(conn->exec) + LOOK_NS);
    else
        task_end(prediction, IDLE);
}

static void hint_step(struct sc_task *task)
{
    struct sc_plugin_prefetch *prediction = SC_TASK_OWNER(task, struct sc_plugin_prefetch, task);
    spec_connector *conn = prediction->conn;
    uint64_t k;
    if (!state_move(prediction, POSTED, RUNS)) {
        task_end(prediction, IDLE);
        return;
    }
    struct sc_store_selector *selector = selector_of(prediction);
    spec_status status = sc_store_selector_state(selector);
    if (status == SPEC_PENDING && state_move(prediction, RUNS, WAITS)) {
        if (sc_store_selector_state(selector) != SPEC_PENDING) /* on_ready came before WAITS */
            task_post(prediction);
        return;
    }
    bool is_over;
    const uint8_t *hint = hint_look(prediction, &is_over);
    if (!is_over) {
        task_later(prediction);
        return;
    }
    /* The host may end the selector while the task ranks by it. */
    const uint8_t *keys =
        hint != NULL && status == SPEC_OK ? sc_store_selector_keys_hold(selector) : NULL;
    bool ranked = keys != NULL && rank_hint(conn, prediction, hint, keys, &k);
    if (keys != NULL)
        sc_store_selector_keys_leave(selector, keys);
    if (!ranked || !state_move(prediction, RUNS, BEGINS)) {
        task_end(prediction, IDLE);
        return;
    }
    prefetch_begin(conn, prediction, k);
    task_end(prediction, DONE);
}

void sc_plugin_prefetch_on_selector(struct sc_store_selector *selector, void *user)
{
    struct sc_plugin_request *request = user;
    (void)selector; /* each task checks its own */
    for (uint32_t i = 0; i < SC_PLUGIN_AHEAD && request->predictions[i].conn != NULL; i++)
        task_post(&request->predictions[i]);
}

/* Takes ownership back for the host. Afterwards the state is IDLE, DONE or, if the task still runs,
 * GONE. */
static void prefetch_settle(struct sc_plugin_prefetch *prediction)
{
    for (;;) {
        uint32_t state = atomic_load(&prediction->state);
        if (state == IDLE || state == DONE || state == GONE)
            return;
        if (state == WAITS && state_move(prediction, WAITS, IDLE)) {
            hint_put(prediction);
            sc_plugin_request_unhold(prediction->request);
            return;
        }
        if (state == POSTED && state_move(prediction, POSTED, GONE)) {
            if (sc_exec_cancel(prediction->conn->exec, &prediction->task))
                task_end(prediction, IDLE);
            return;
        }
        if (state == RUNS && state_move(prediction, RUNS, GONE))
            return;
        if (state == BEGINS)
            (void)sc_exec_wait(prediction->conn->exec, &prediction->state, BEGINS, SC_EXEC_FOREVER);
    }
}

bool sc_plugin_prefetch_leaves(spec_connector *conn, struct sc_plugin_request *request,
                               uint32_t selector, bool waits)
{
    bool leaves = true;
    for (uint32_t i = 0; i < SC_PLUGIN_AHEAD; i++) {
        struct sc_plugin_prefetch *prediction = &request->predictions[i];
        if (prediction->conn == NULL || prediction->layer == SC_PLUGIN_NO_LAYER ||
            prediction->layer % SC_PLUGIN_SELECTORS != selector)
            continue;
        prefetch_settle(prediction);
        while (waits && atomic_load(&prediction->state) == GONE)
            (void)sc_exec_wait(conn->exec, &prediction->state, GONE, SC_EXEC_FOREVER);
        leaves = atomic_load(&prediction->state) != GONE && leaves;
    }
    return leaves;
}

/* ---- Asking --------------------------------------------------------------------------------- */

/* Copies the hint's last rows. Returns false if the device cannot copy now or no hint memory is
 * free. */
static bool take_hint(spec_connector *conn, struct sc_plugin_prefetch *prediction,
                      const struct spec_queries *hint)
{
    uint64_t rows =
        hint->row_count < conn->config.hint_rows ? hint->row_count : conn->config.hint_rows;
    uint64_t first = hint->row_count - rows;
    prediction->hint_rows = rows;
    prediction->hint_dtype = hint->dtype;
    prediction->hint_scale = sc_plugin_queries_scale(conn, hint);
    prediction->hint_afar = sc_plugin_queries_afar(conn, prediction->request, hint);
    if (prediction->hint_afar.device != NULL) {
        prediction->hint_afar.at.k_base += first * hint->row_stride_bytes;
        prediction->hint_afar.row_count = rows;
        prediction->hint_afar.head_count = conn->choice.hint_heads * conn->dims.query_group;
        if (place_take(prediction) &&
            sc_plugin_hint_send(&prediction->hint_afar, hint_there(prediction)))
            return true;
        hint_put(prediction);
        return false;
    }
    uint64_t heads = conn->choice.hint_heads * conn->dims.query_group;
    uint64_t head_bytes = conn->shape.head_size * sc_plugin_dtype_bytes(hint->dtype);
    const uint8_t *row = (const uint8_t *)hint->data + first * hint->row_stride_bytes;
    if (!sc_run_take(&conn->requests.hints, rows * heads * head_bytes, &prediction->hint))
        return false; /* all are in use: the layer is not predicted */
    uint8_t *dst = prediction->hint.at;
    for (uint64_t i = 0; i < rows; i++, row += hint->row_stride_bytes)
        for (uint64_t h = 0; h < heads; h++, dst += head_bytes)
            memcpy(dst, row + h * hint->head_stride_bytes, head_bytes);
    return true;
}

void sc_plugin_prefetch_ask(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            const struct spec_queries *hint)
{
    struct sc_plugin_prefetch *prediction = prefetch_of(request, layer);
    if (prediction->conn == NULL || !sc_plugin_wants_some(conn, request, layer))
        return;
    uint32_t state = atomic_load(&prediction->state);
    if (state == WAITS || state == POSTED)
        prefetch_settle(prediction);
    state = atomic_load(&prediction->state);
    if (state != IDLE && state != DONE)
        return; /* already started */
    bool is_by_layer = sc_baseline_follows(&conn->baseline);
    uint64_t k = is_by_layer && prediction->layer == layer ? prediction->count : 0;
    uint32_t *rows = NULL;
    if (!is_by_layer || k == 0)
        rows = sc_plugin_prefetch_rows(request, layer);
    else if (request->readers[layer % SC_PLUGIN_AHEAD].layer == layer)
        return;
    if (!is_by_layer && rows == NULL)
        return; /* being read */
    prediction->layer = layer;
    prediction->count = 0;
    prediction->asked_ns = sc_exec_now_ns(conn->exec);
    prediction->others_ns = others_awaited(prediction);
    if (conn->config.predictor != SC_PREDICTOR_HINT) {
        prediction->is_whole = sc_plugin_accuracy_parts(&conn->ahead.trusts[layer]);
        if (is_by_layer ? k > 0 : rank_now(conn, prediction, rows, &k))
            prefetch_begin(conn, prediction, k);
        return;
    }
    if (hint == NULL || conn->requests.hint_bytes == 0 ||
        request->selectors[layer % SC_PLUGIN_SELECTORS].layer != layer)
        return;
    if (!take_hint(conn, prediction, hint))
        return;
    struct sc_plugin_want want = sc_plugin_want_usual(conn, request, layer);
    prediction->hint_ranks = rows_wanted(prediction, &want);
    atomic_fetch_add_explicit(&request->holds, 1, memory_order_relaxed);
    atomic_store(&prediction->state, WAITS);
    if (sc_store_selector_state(selector_of(prediction)) != SPEC_PENDING)
        task_post(prediction);
}

void sc_plugin_prefetch_yield(struct sc_plugin_request *request, uint32_t layer)
{
    struct sc_plugin_prefetch *prediction = prefetch_of(request, layer);
    if (prediction->conn != NULL)
        prefetch_settle(prediction);
}

void sc_plugin_prefetch_end(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            uint64_t now_ns)
{
    struct sc_plugin_prefetch *prediction = prefetch_of(request, layer);
    if (prediction->conn == NULL)
        return;
    prefetch_settle(prediction);
    if (prediction->layer == layer && prediction->asked_ns != 0) {
        uint64_t window_ns = now_ns - prediction->asked_ns, others_ns = others_awaited(prediction);
        others_ns = others_ns > prediction->others_ns ? others_ns - prediction->others_ns : 0;
        sc_plugin_window_learn(&conn->ahead.window, window_ns);
        sc_plugin_contention_learn(&conn->ahead.contention, others_ns, window_ns);
    }
    prediction->asked_ns = 0;
}

/* Measures the prediction. bits NULL: heads disagree, so all rows are read in one run and a ranking
 * is of no use. */
static void learn_accuracy(spec_connector *conn, struct sc_plugin_prefetch *prediction,
                           const struct sc_plugin_item *item, const uint64_t *bits)
{
    bool is_predicted = prediction->layer == item->in.layer && prediction->count > 0;
    bool is_whole = is_predicted && prediction->is_whole;
    uint64_t total = item->want.row_total;
    uint64_t wanted_ppm = bits != NULL ? item->set_count * 1000000 / total : 1000000;
    const uint32_t layers[2] = {item->in.layer, conn->dims.layer_count};
    if (is_predicted && bits != NULL && prediction->slabs != NULL) { /* the unit is the slab */
        memset(prediction->slabs, 0, sc_plugin_words_of(item) * sizeof(*bits));
        (void)sc_plugin_slabs_of(item->request, bits, prediction->slabs);
        bits = prediction->slabs;
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct sc_plugin_accuracy *accuracy = &conn->ahead.trusts[layers[i]];
        sc_plugin_accuracy_whole_learn(accuracy, is_whole, wanted_ppm);
        if (is_predicted && (bits != NULL || !is_whole))
            sc_plugin_accuracy_learn(accuracy, reader_of(prediction)->rows, prediction->count,
                                     bits);
    }
}

/* Returns false for ranges without quantised rows: they were not scored, so their sum means
 * nothing. */
static bool is_kept(void *user, uint64_t range)
{
    const struct sc_plugin_item *item = user;
    struct sc_store_slab slab;
    return sc_store_slab_of(sc_store_selector_keys(item->selector), range, &slab);
}

/* Adds the scores to the baseline's averages, once per selection. */
static void teach_baseline(spec_connector *conn, const struct sc_plugin_item *item,
                           const float *sums)
{
    struct sc_baseline_sample sample = {.ranges = item->request->ranges,
                                        .range_count = item->request->range_count,
                                        .layer = item->in.layer,
                                        .sums = sums,
                                        .is_kept = conn->choice.reads_quant ? is_kept : NULL,
                                        .user = (void *)(uintptr_t)item}; /* only read */
    if (sc_baseline_averages_note(conn->baseline.averages, &sample) && sc_plugin_can_store(conn))
        sc_plugin_kick(conn, SC_JOB_BASELINE);
}

void sc_plugin_prefetch_learn(spec_connector *conn, struct sc_plugin_scratch *scratch,
                              const struct sc_plugin_item *item, const uint64_t *bits,
                              const float *sums)
{
    struct sc_plugin_request *request = item->request;
    uint32_t layer = item->in.layer;
    struct sc_plugin_prefetch *prediction = prefetch_of(request, layer),
                              *next = prefetch_of(request, layer + 1);
    if (sums != NULL)
        teach_baseline(conn, item, sums);
    request->selected_row_list = item->row_count;
    if (prediction->conn == NULL)
        return;
    learn_accuracy(conn, prediction, item, bits);
    if (!sc_baseline_follows(&conn->baseline) || sums == NULL || item->row_count == 0 ||
        layer + 1 >= conn->dims.layer_count || !sc_plugin_wants_some(conn, request, layer + 1))
        return;
    uint32_t *rows = sc_plugin_prefetch_rows(request, layer + 1);
    if (rows == NULL)
        return;
    sc_plugin_rank(scratch, &item->want, sums, item->row_count, rows);
    deciles_order(scratch, rows, item->row_count, item->want.row_total);
    if (next->layer != layer + 1)
        next->asked_ns = 0; /* for a layer that was not loaded */
    next->layer = layer + 1;
    next->count = item->row_count;
}

/* ---- Ending --------------------------------------------------------------------------------- */

uint64_t sc_plugin_prefetch_drop(spec_connector *conn, struct sc_plugin_request *request,
                                 uint32_t layer, uint32_t kept_load)
{
    struct sc_plugin_reader *reader = &request->readers[layer % SC_PLUGIN_AHEAD];
    if (layer == SC_PLUGIN_NO_LAYER || reader->layer != layer || reader->load == kept_load)
        return 0;
    struct sc_store_read_cost cost;
    sc_store_reader_cost(reader->reader, &cost);
    sc_count(&conn->stats.speculated_bytes, cost.read_bytes);
    sc_count(&conn->stats.unused_bytes, cost.read_bytes);
    sc_plugin_reader_drop(reader);
    return cost.read_bytes;
}

void sc_plugin_prefetch_stop(struct sc_plugin_request *request)
{
    for (uint32_t i = 0; i < SC_PLUGIN_AHEAD && request->predictions[i].conn != NULL; i++) {
        prefetch_settle(&request->predictions[i]);
        (void)sc_plugin_prefetch_drop(request->predictions[i].conn, request,
                                      request->readers[i].layer,
                                      SC_LOAD_WHOLE); /* certain, not predicted */
    }
}

void sc_plugin_prefetch_forget(struct sc_plugin_request *request)
{
    request->selected_row_list = 0;
    for (uint32_t i = 0; i < SC_PLUGIN_AHEAD; i++) {
        struct sc_plugin_prefetch *prediction = &request->predictions[i];
        prediction->layer = SC_PLUGIN_NO_LAYER;
        prediction->asked_ns = prediction->count = 0;
    }
}

uint64_t sc_plugin_hint_bytes(const spec_connector *conn)
{
    if (conn->config.predictor != SC_PREDICTOR_HINT || conn->config.identify == SC_IDENTIFY_KEYS)
        return 0;
    return conn->config.hint_rows * (uint64_t)conn->choice.hint_heads * conn->dims.query_group *
           conn->shape.head_size * sizeof(float);
}

spec_status sc_plugin_prefetches_open(spec_connector *conn, struct spec_error *reterr)
{
    if (conn->config.predictor == SC_PREDICTOR_NONE || conn->config.identify == SC_IDENTIFY_KEYS)
        return SPEC_OK;
    conn->ahead.trusts = sc_alloc_array(&conn->alloc, conn->dims.layer_count + UINT64_C(1),
                                        sizeof(*conn->ahead.trusts));
    if (conn->ahead.trusts == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "trust of %" PRIu32 " layers",
                       conn->dims.layer_count);
    uint64_t each = sc_plugin_hint_bytes(conn);
    uint64_t hints = sc_plugin_hint_count(conn);
    conn->requests.hint_bytes = each;
    atomic_store(&conn->requests.hint_places,
                 hints < HINTS_MAX ? (UINT64_C(1) << hints) - 1 : UINT64_MAX);
    if (each > 0 && !sc_run_pool_open(&conn->requests.hints, &conn->alloc, &conn->poison,
                                      hints * sc_run_bytes(each)))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " hints", hints);
    for (uint64_t i = 0; i < SC_PLUGIN_AHEAD * (uint64_t)conn->config.max_requests; i++) {
        struct sc_plugin_request *request = &conn->requests.slots[i / SC_PLUGIN_AHEAD];
        struct sc_plugin_prefetch *prediction = &request->predictions[i % SC_PLUGIN_AHEAD];
        prediction->conn = conn;
        prediction->request = request;
        prediction->task.step = hint_step;
        sc_plugin_prefetch_forget(request);
    }
    return SPEC_OK;
}

void sc_plugin_prefetches_close(spec_connector *conn)
{
    uint64_t count = SC_PLUGIN_AHEAD * (uint64_t)conn->config.max_requests;
    for (uint64_t i = 0; conn->requests.slots != NULL && i < count; i++) {
        struct sc_plugin_prefetch *prediction =
            &conn->requests.slots[i / SC_PLUGIN_AHEAD].predictions[i % SC_PLUGIN_AHEAD];
        while (prediction->conn != NULL && atomic_load(&prediction->state) == GONE)
            (void)sc_exec_wait(conn->exec, &prediction->state, GONE, SC_EXEC_FOREVER);
    }
    sc_run_pool_close(&conn->requests.hints);
    sc_alloc_free(&conn->alloc, conn->ahead.trusts);
}
