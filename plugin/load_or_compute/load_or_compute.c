/* load_or_compute: measures passes and loads, and splits matches. Contract: load_or_compute.h. */
#include "plugin/load_or_compute/load_or_compute.h"

#include "plugin/args/args.h"
#include "plugin/connector.h"
#include "plugin/load_or_compute/tiers.h"

#include <math.h>
#include <string.h>

#define PASS_TOKENS_MIN  128u
#define PASS_NS_MIN      UINT64_C(2000000)
#define PASS_GAP_SHARE   4.0 /* longest layer's time in average layers; above: an interruption */
#define PASS_LAYERS_GAP  5u  /* with fewer layers none is detected */
#define PASSES_MIN       2u  /* minimum before they are used */
#define PASS_MEMORY      32u
#define LOAD_MEMORY      16u
#define LOAD_BYTES_MIN   (256u << 10)
#define LOAD_ROWS_MIN    64u
#define PROBE_BYTES      (2.0 * LOAD_BYTES_MIN)
#define PROBE_EVERY      16u   /* requests with nothing to load, per probe */
#define PROBE_EVERY_MOST 1023u /* odd, so that it does not always hit a host's first peek */
#define PROBE_COST       0.005 /* maximum share of the compute time */
#define CHANGE           0.04  /* relative change below which an estimate is kept */
#define TIME_MAX         1e15  /* ns: eleven days */

#define WRITE_NS UINT64_C(5000000000) /* minimum between two notes */
/* all have read a note by then: logs are read every 25 ms */
#define DELAY_NS     UINT64_C(1000000000)
#define FOLLOWED_NS  UINT64_C(2000000000) /* a reader opens the next log within 25 ms */
#define ASKED_PLACES 64u                  /* sampled tokens of a prompt, which identify it */
#define ASKED_TOKENS 8u                   /* last tokens, all sampled */
#define SEEDS        2u /* samples that an earlier process's estimate counts for */

/* ---- Estimates ------------------------------------------------------------------------------ */

bool sc_plugin_load_policy_is_alone(const spec_connector *conn)
{
    return conn->ranks.count == 1 && sc_plugin_can_store(conn) &&
           atomic_load(&conn->load_policy.is_followed) == 0;
}

void sc_plugin_load_policy_tick(spec_connector *conn)
{
    struct sc_plugin_load_policy *load_policy = &conn->load_policy;
    if (conn->config.load_policy != SC_LOAD_POLICY_SPLIT || conn->ranks.count != 1)
        return;
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    if (sc_store_is_followed(conn->store))
        atomic_store(&load_policy->followed_until_ns, now_ns + FOLLOWED_NS);
    atomic_store(&load_policy->is_followed,
                 now_ns < atomic_load(&load_policy->followed_until_ns) ? 1 : 0);
}

/* True for the one process of a store whose passes and loads are measured. */
static bool measures(const spec_connector *conn)
{
    return conn->config.load_policy == SC_LOAD_POLICY_SPLIT && conn->ranks.rank == 0 &&
           sc_plugin_can_store(conn);
}

static struct sc_plugin_estimate measured(const struct sc_plugin_load_policy *load_policy)
{
    uint64_t words[SC_PLUGIN_ESTIMATE_WORDS];
    for (uint32_t i = 0; i < SC_PLUGIN_ESTIMATE_WORDS; i++)
        words[i] = atomic_load_explicit(&load_policy->words[i], memory_order_relaxed);
    return sc_plugin_estimate_decode(words);
}

/* Returns the estimate that all processes of the store use now; zeros: none yet. */
static struct sc_plugin_estimate agreed(const spec_connector *conn, uint64_t *ret_layers)
{
    struct sc_plugin_estimate_note note;
    if (sc_plugin_agreed_get(&conn->load_policy.agreed, &note))
        *ret_layers = note.layers;
    return sc_exec_now_ns(conn->exec) >= note.from_ns ? note.next : note.before;
}

static bool computes(const struct sc_plugin_estimate *estimate)
{
    return estimate->token_ns + estimate->position_ns > 0;
}

static void prefetch_add(const spec_connector *conn, struct sc_plugin_estimate *estimate)
{
    uint64_t prediction = conn->config.compute_tokens_per_s;
    if (!computes(estimate) && prediction > 0)
        estimate->token_ns = 1e9 / (double)prediction;
}

/* ret_layers: of the rank that measured. */
static bool estimate_get(const spec_connector *conn, struct sc_plugin_estimate *ret_estimate,
                         uint64_t *ret_layers)
{
    *ret_layers = conn->dims.layer_count;
    *ret_estimate = sc_plugin_load_policy_is_alone(conn) ? measured(&conn->load_policy)
                                                         : agreed(conn, ret_layers);
    prefetch_add(conn, ret_estimate);
    return ret_estimate->byte_ns > 0 && computes(ret_estimate);
}

bool sc_plugin_load_policy_estimate(const spec_connector *conn,
                                    struct sc_plugin_estimate *ret_estimate)
{
    uint64_t layers;
    return estimate_get(conn, ret_estimate, &layers);
}

static double share_of(const struct sc_plugin_share *share, double otherwise)
{
    return share->rows > 0 ? share->sum / share->rows : otherwise;
}

static void share_add(struct sc_plugin_share *share, double sum, double rows)
{
    double fade = 1 - 1.0 / LOAD_MEMORY;
    share->sum = share->sum * fade + sum;
    share->rows = share->rows * fade + rows;
}

/* Returns the bytes per token that a load of this kind reads in all layers, by the shape. */
static double bytes_of(const spec_connector *conn, uint32_t kind)
{
    const struct sc_config *config = &conn->config;
    double row = (double)(conn->dims.row_bytes + sizeof(uint64_t)), layers = conn->dims.layer_count;
    if (kind == SC_LOAD_ALL_ROWS)
        return row * layers;
    if (config->base == SC_BASE_QUANTISED) {
        double values = (double)conn->shape.kv_head_count * conn->shape.head_size;
        double codes = /* half a bit of scales each */
            values * (config->quarters_k + config->quarters_v + 4) / 32;
        return (codes + row * (double)config->exact_ppm * 1e-6) * layers;
    }
    double retained = config->budget == SPEC_BUDGET_COUNT ? 1 : (double)config->retain_ppm * 1e-6;
    return (row * retained + (double)conn->choice.probe_row_bytes) * layers;
}

/* Lock held. */
static struct sc_plugin_estimate estimate_make(const spec_connector *conn)
{
    const struct sc_plugin_load_policy *load_policy = &conn->load_policy;
    struct sc_plugin_estimate estimate = {.pass_tokens = load_policy->pass_tokens,
                                          .is_apart = (load_policy->apart & 7) == 7};
    double none;
    if (load_policy->compute.count >= PASSES_MIN)
        sc_plugin_line_solve(&load_policy->compute, &estimate.token_ns, &estimate.position_ns);
    sc_plugin_line_solve(&load_policy->load, &estimate.byte_ns, &none);
    for (uint32_t kind = 0; kind < SC_LOAD_KINDS; kind++) {
        double known = load_policy->known_row_bytes[kind];
        estimate.row_bytes[kind] =
            share_of(&load_policy->row_bytes[kind], known > 0 ? known : bytes_of(conn, kind));
        sc_plugin_line_solve(&load_policy->host[kind], &estimate.host_ns[kind], &none);
    }
    return estimate;
}

static bool is_near(double a, double b)
{
    double most = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
    return fabs(a - b) <= CHANGE * most;
}

/* Returns true if both give about the same for a short and a long prompt. */
static bool is_same(const struct sc_plugin_estimate *a, const struct sc_plugin_estimate *b)
{
    for (double tokens = 2048; tokens <= 32768; tokens *= 16) {
        double half = tokens / 2;
        if (!is_near(a->token_ns + a->position_ns * half, b->token_ns + b->position_ns * half))
            return false;
        for (uint32_t kind = 0; kind < SC_LOAD_KINDS; kind++)
            if (!is_near(a->byte_ns * a->row_bytes[kind], b->byte_ns * b->row_bytes[kind]) ||
                !is_near(a->token_ns + a->host_ns[kind], b->token_ns + b->host_ns[kind]))
                return false;
    }
    return is_near(a->pass_tokens, b->pass_tokens) && a->is_apart == b->is_apart;
}

static void measured_set(struct sc_plugin_load_policy *load_policy,
                         const struct sc_plugin_estimate *estimate)
{
    uint64_t words[SC_PLUGIN_ESTIMATE_WORDS];
    sc_plugin_estimate_encode(estimate, words);
    for (uint32_t i = 0; i < SC_PLUGIN_ESTIMATE_WORDS; i++)
        atomic_store_explicit(&load_policy->words[i], words[i], memory_order_relaxed);
}

/* Lock held. */
static void estimate_renew(spec_connector *conn)
{
    struct sc_plugin_estimate made = estimate_make(conn), is = made,
                              was = measured(&conn->load_policy);
    bool is_news = computes(&is) != computes(&was);
    prefetch_add(conn, &is);
    prefetch_add(conn, &was);
    if (!is_news && is_same(&was, &is))
        return;
    measured_set(&conn->load_policy, &made);
    atomic_fetch_add_explicit(&conn->load_policy.renewed, 1, memory_order_release);
}

void sc_plugin_load_policy_open(spec_connector *conn)
{
    pthread_mutex_init(&conn->load_policy.lock, NULL);
}

void sc_plugin_load_policy_close(spec_connector *conn)
{
    pthread_mutex_destroy(&conn->load_policy.lock);
}

/* ---- Passes --------------------------------------------------------------------------------- */

void sc_plugin_load_policy_forget(struct sc_plugin_request *request)
{
    request->loading_ns = 0;
    request->pass_clock = (struct sc_plugin_pass_clock){0};
    request->load_clock = (struct sc_plugin_load_clock){0};
}

/* Returns true if the call begins a timed pass of each request, and their sizes. */
static bool pass_begin(struct sc_plugin_request *const *requests, uint64_t count,
                       struct sc_plugin_pass_clock *ret_clock)
{
    *ret_clock = (struct sc_plugin_pass_clock){.count = count};
    for (uint64_t i = 0; i < count; i++) {
        const struct spec_store_params *params = &requests[i]->step.params;
        /* Tokens beyond a limit are computed, too. */
        double tokens = (double)(requests[i]->step.host_end - params->first_token);
        if (params->layer != 0 || (params->flags & SPEC_STORE_LATER) != 0 ||
            requests[i]->failed_position != UINT64_MAX)
            return false;
        ret_clock->tokens += tokens;
        ret_clock->positions += tokens * ((double)params->first_token + (tokens - 1) / 2);
    }
    return true;
}

/* Lock held. Adds a sample that is large enough. goes_on: the rest of the prompt is computed later.
 * is_one: the sample is of one request. */
static void compute_learn(struct sc_plugin_load_policy *load_policy, double tokens,
                          double positions, double ns, bool goes_on, bool is_one)
{
    sc_plugin_line_learn(&load_policy->compute, tokens, positions, ns, PASS_MEMORY);
    if (goes_on)
        load_policy->pass_tokens = tokens;
    else if (is_one && tokens > load_policy->pass_tokens * (1 + CHANGE))
        load_policy->pass_tokens = 0; /* passes may be longer now */
}

/* Adds a pass: all its layers but one were computed between its first and last call. */
static void pass_end(spec_connector *conn, const struct sc_plugin_pass_clock *clock, bool is_apart,
                     bool has_loaded)
{
    struct sc_plugin_load_policy *load_policy = &conn->load_policy;
    double layers = sc_plugin_layers_named(conn), gap_ns = (double)clock->gap_ns;
    bool is_whole = layers - 1 < PASS_LAYERS_GAP ||
                    (double)clock->gap_most_ns * (layers - 1) <= gap_ns * PASS_GAP_SHARE;
    if (clock->tokens < PASS_TOKENS_MIN || clock->gap_ns < PASS_NS_MIN ||
        clock->gap_ns < clock->call_ns || !is_whole)
        return;
    pthread_mutex_lock(&load_policy->lock);
    compute_learn(load_policy, clock->tokens, clock->positions, gap_ns * layers / (layers - 1),
                  clock->goes_on, clock->count == 1);
    if (has_loaded)
        load_policy->apart = load_policy->apart << 1 | (is_apart ? 1 : 0);
    estimate_renew(conn);
    pthread_mutex_unlock(&load_policy->lock);
}

void sc_plugin_load_policy_step(spec_connector *conn, struct sc_plugin_request *const *requests,
                                uint64_t count, uint64_t begin_ns)
{
    struct sc_plugin_request *lead = requests[0];
    struct sc_plugin_pass_clock *clock = &lead->pass_clock;
    uint32_t layer = lead->step.params.layer;
    if (!measures(conn) || sc_plugin_layers_named(conn) < 2)
        return;
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    if (layer == 0) {
        bool is_timed = pass_begin(requests, count, clock);
        /* Hosts do not store a tail below a chunk; it does not mean that more is computed. */
        clock->goes_on =
            count == 1 && lead->step.host_end + conn->config.chunk_tokens <= lead->host_tokens;
        clock->has_loaded = lead->load_clock.is_whole;
        clock->after_ns = is_timed ? now_ns : 0;
        clock->loading_ns = lead->loading_ns;
        return;
    }
    if (clock->after_ns == 0 || clock->count != count) {
        clock->after_ns = 0;
        return;
    }
    uint64_t gap_ns = begin_ns - clock->after_ns, loading_ns = lead->loading_ns - clock->loading_ns;
    gap_ns -= loading_ns < gap_ns ? loading_ns : gap_ns;
    clock->gap_ns += gap_ns;
    clock->gap_most_ns = gap_ns > clock->gap_most_ns ? gap_ns : clock->gap_most_ns;
    clock->loading_ns = lead->loading_ns;
    clock->after_ns = now_ns;
    if (layer + 1 < sc_plugin_layers_named(conn)) {
        clock->call_ns += now_ns - begin_ns;
        return;
    }
    clock->after_ns = 0;
    pass_end(conn, clock, clock->has_loaded, lead->load_clock.is_whole);
    lead->load_clock.is_whole = false;
}

spec_status sc_plugin_computed(spec_connector *conn, const struct spec_computed *host_step,
                               struct spec_error *reterr)
{
    struct sc_plugin_load_policy *load_policy = &conn->load_policy;
    struct spec_computed step;
    spec_status status =
        sc_plugin_args_read(&step, &sc_plugin_form_computed, host_step, "computed: step", reterr);
    if (status != SPEC_OK)
        return status;
    if ((step.flags & ~SPEC_COMPUTED_PART) != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "computed: flags are %#" PRIx32 ", expected 0 or %x",
                       step.flags, SPEC_COMPUTED_PART);
    if (!measures(conn) || step.tokens < PASS_TOKENS_MIN || step.ns < PASS_NS_MIN)
        return SPEC_OK;
    pthread_mutex_lock(&load_policy->lock);
    compute_learn(load_policy, (double)step.tokens, (double)step.positions, (double)step.ns,
                  (step.flags & SPEC_COMPUTED_PART) != 0, false);
    estimate_renew(conn);
    pthread_mutex_unlock(&load_policy->lock);
    return SPEC_OK;
}

/* ---- Loads ---------------------------------------------------------------------------------- */

void sc_plugin_load_policy_read(struct sc_plugin_request *request,
                                const struct sc_store_read_cost *cost)
{
    struct sc_plugin_load_clock *clock = &request->load_clock;
    uint64_t first_ns = cost->first_ns, last_ns = cost->last_ns;
    clock->read_bytes += cost->read_bytes;
    if (cost->timed_bytes == 0)
        return;
    clock->begin_ns = clock->begin_ns == 0 ? first_ns : clock->begin_ns;
    first_ns = first_ns > clock->busy_until_ns ? first_ns : clock->busy_until_ns;
    clock->bytes += cost->timed_bytes;
    if (last_ns <= first_ns)
        return; /* covered by others of its reads */
    clock->busy_ns += last_ns - first_ns;
    clock->busy_until_ns = last_ns;
}

void sc_plugin_load_policy_call(struct sc_plugin_request *request, uint64_t took_ns,
                                uint64_t waited_ns)
{
    request->loading_ns += took_ns;
    request->load_clock.host_ns += took_ns > waited_ns ? took_ns - waited_ns : 0;
}

static uint32_t kind_of(const spec_connector *conn, const struct sc_plugin_request *request)
{
    bool is_layered = conn->config.base == SC_BASE_QUANTISED;
    bool chooses = is_layered || (sc_config_selects(&conn->config) && !request->is_short);
    return conn->choice.can_select && chooses ? SC_LOAD_SELECTED_ROWS : SC_LOAD_ALL_ROWS;
}

static void loads_learn(spec_connector *conn, const struct sc_plugin_request *request,
                        const struct sc_plugin_load_clock *clock, double rows)
{
    struct sc_plugin_load_policy *load_policy = &conn->load_policy;
    uint32_t kind = kind_of(conn, request);
    uint64_t busy_ns = clock->busy_ns, took_ns = sc_exec_now_ns(conn->exec) - clock->begin_ns;
    pthread_mutex_lock(&load_policy->lock);
    if (clock->bytes >= LOAD_BYTES_MIN && busy_ns > 0)
        sc_plugin_line_learn_within(&load_policy->load, (double)clock->bytes, 0, (double)busy_ns,
                                    (double)(took_ns > busy_ns ? took_ns : busy_ns), LOAD_MEMORY);
    share_add(&load_policy->row_bytes[kind], (double)(clock->read_bytes + clock->host_tier_bytes),
              rows);
    sc_plugin_line_learn(&load_policy->host[kind], rows, 0, (double)clock->host_ns + 1,
                         LOAD_MEMORY);
    estimate_renew(conn);
    pthread_mutex_unlock(&load_policy->lock);
}

void sc_plugin_load_policy_loaded(spec_connector *conn, struct sc_plugin_request *request,
                                  uint32_t layer, uint64_t host_slab_rows)
{
    struct sc_plugin_load_clock *clock = &request->load_clock;
    uint64_t rows = request->matched_tokens - request->from_token;
    if (!measures(conn))
        return;
    clock->layers++;
    clock->host_tier_bytes += host_slab_rows * conn->dims.row_bytes;
    if (layer + 1 < conn->dims.layer_count)
        return;
    if (rows >= LOAD_ROWS_MIN && clock->layers == conn->dims.layer_count)
        loads_learn(conn, request, clock, (double)rows);
    *clock = (struct sc_plugin_load_clock){.busy_until_ns = clock->busy_until_ns, .is_whole = true};
}

/* ---- The split ------------------------------------------------------------------------------- */

/* Returns the token before which matches are loaded whole (budget.c); 0: all alike. */
static uint64_t whole_end_of(const spec_connector *conn, const struct sc_plugin_request *request)
{
    const struct sc_config *config = &conn->config;
    if (config->base == SC_BASE_QUANTISED || !conn->choice.can_select || !sc_config_selects(config))
        return config->base == SC_BASE_QUANTISED && conn->choice.can_select ? 1 : 0;
    uint64_t ahead = sc_plugin_tokens_from(request, request->from_token); /* rows, and new ones */
    uint64_t share = (ahead * config->min_share_ppm + 999999) / 1000000;
    uint64_t rows = share > config->select_min_tokens ? share : config->select_min_tokens;
    return request->from_token + rows;
}

/* Returns the first end whose load is long enough to be measured. */
static uint64_t probe_end(const struct sc_plugin_cut *cut)
{
    uint32_t kind = cut->whole_end > 0 && cut->whole_end <= cut->from ? SC_LOAD_SELECTED_ROWS
                                                                      : SC_LOAD_ALL_ROWS;
    double rows = PROBE_BYTES / (cut->estimate->row_bytes[kind] + 1);
    uint64_t least = rows > LOAD_ROWS_MIN ? (uint64_t)rows + 1 : LOAD_ROWS_MIN;
    uint64_t step = cut->multiple > cut->grid ? cut->multiple : cut->grid;
    uint64_t n = cut->from + cut->host_slab_rows + least;
    n = (n / step + 1) * step;
    return n - (cut->multiple > 1 ? n % cut->multiple : 0);
}

/* Hashes prompt and match: equal for all who ask, in whatever pieces they hold them. */
static uint64_t asked_of(const uint32_t *tokens, uint64_t count, uint64_t end)
{
    uint64_t hash = end ^ count << 32;
    for (uint64_t i = 0; i < count; i += count / ASKED_PLACES + 1)
        hash = (hash ^ tokens[i]) * 0x9e3779b97f4a7c15u;
    for (uint64_t i = count > ASKED_TOKENS ? count - ASKED_TOKENS : 0; i < count; i++)
        hash = (hash ^ tokens[i]) * 0x9e3779b97f4a7c15u;
    return hash >> 32;
}

/* Chooses an end if nothing on the device is worth loading up to `at`. A few requests, at most one
 * in 16, load a little, to measure whether the device became faster. A hash selects them, so that
 * repeated questions have one answer. A counter adds some if they are rare. */
static uint64_t cut_probe(spec_connector *conn, const struct sc_plugin_cut *cut, uint64_t at,
                          const uint32_t *tokens)
{
    uint64_t count =
        atomic_fetch_add_explicit(&conn->load_policy.nothing, 1, memory_order_relaxed) + 1;
    uint64_t n = conn->states.count > 0 ? cut->end : probe_end(cut); /* no match ends between */
    uint64_t asked = asked_of(tokens, cut->total, cut->end);
    if (n > cut->end)
        return at;
    double whole_ns = sc_plugin_cut_ns(cut, at);
    double every = (sc_plugin_cut_ns(cut, n) - whole_ns) / (whole_ns * PROBE_COST);
    bool is_rare = !(every < PROBE_EVERY_MOST);
    every = every > PROBE_EVERY ? every : PROBE_EVERY;
    if (!sc_plugin_load_policy_is_alone(
            /* no counter here: other processes must promise the same */
            conn))
        return asked % (is_rare ? PROBE_EVERY_MOST : (uint64_t)every) == 0 ? n : at;
    bool is_selected = !is_rare && asked % (uint64_t)every == 0;
    return is_selected || count % PROBE_EVERY_MOST == 0 ? n : at;
}

/* Returns the rows of [from_token, end) in host memory. Returns 0 if other processes must promise
 * the same: they do not know this memory. */
static uint64_t host_slab_rows(const spec_connector *conn, const struct sc_plugin_request *request,
                               uint64_t end)
{
    uint64_t bytes[SPEC_TIERS] = {0}, in_host_tier, all;
    if (sc_plugin_load_policy_is_alone(conn))
        sc_plugin_tier_bytes(conn, request, request->from_token, end, bytes);
    in_host_tier = bytes[SPEC_TIER_UPPER] + bytes[SPEC_TIER_HOST];
    all = in_host_tier + bytes[SC_STORE_TIER]; /* layers with windows: what they need */
    return all > 0 ? (uint64_t)((double)(end - request->from_token) * (double)in_host_tier /
                                (double)all)
                   : 0;
}

/* Returns the bytes of a match's recurrent state; 0 if ranks must promise the same. */
static uint64_t state_bytes(const spec_connector *conn)
{
    return sc_plugin_load_policy_is_alone(conn) ? conn->states.bytes : 0;
}

/* Returns false if there is no estimate or nothing to split. */
static bool cut_make(const spec_connector *conn, const struct sc_plugin_request *request,
                     uint64_t end, uint64_t multiple, struct sc_plugin_estimate *estimate,
                     struct sc_plugin_cut *ret_cut)
{
    uint64_t layers;
    if (conn->config.load_policy != SC_LOAD_POLICY_SPLIT || end <= request->from_token ||
        !estimate_get(conn, estimate, &layers))
        return false;
    *ret_cut = (struct sc_plugin_cut){.estimate = estimate,
                                      .from = request->from_token,
                                      .end = end,
                                      .total = request->token_count,
                                      .grid = conn->config.chunk_tokens,
                                      .multiple = multiple,
                                      .layers = layers,
                                      .host_slab_rows = host_slab_rows(conn, request, end),
                                      .state_bytes = state_bytes(conn),
                                      .whole_end = whole_end_of(conn, request)};
    return true;
}

uint64_t sc_plugin_load_policy_split(spec_connector *conn, const struct sc_plugin_request *request,
                                     const uint32_t *tokens, uint64_t end, uint64_t multiple)
{
    struct sc_plugin_estimate estimate;
    struct sc_plugin_cut cut;
    if (!cut_make(conn, request, end, multiple, &estimate, &cut))
        return end;
    uint64_t n = sc_plugin_cut_find(&cut);
    return n - cut.from <= cut.host_slab_rows ? cut_probe(conn, &cut, n, tokens) : n;
}

uint64_t sc_plugin_load_policy_choose(spec_connector *conn, const struct sc_plugin_request *request,
                                      const uint32_t *tokens, uint64_t low, uint64_t end,
                                      uint64_t multiple)
{
    struct sc_plugin_estimate estimate;
    struct sc_plugin_cut cut;
    if (!cut_make(conn, request, end, multiple, &estimate, &cut) ||
        sc_plugin_cut_ns(&cut, low) >= sc_plugin_cut_ns(&cut, end))
        return end;
    return low - cut.from <= cut.host_slab_rows ? cut_probe(conn, &cut, low, tokens) : low;
}

void sc_plugin_load_policy_count(spec_connector *conn, uint64_t end, uint64_t n)
{
    sc_count(&conn->load_policy.lookups_cut, n < end);
    sc_count(&conn->load_policy.tokens_cut, end - n);
}

/* ---- The log -------------------------------------------------------------------------------- */

/* Takes over an earlier process's estimate as samples, for the kinds that it had measured. */
static void estimate_take(spec_connector *conn, const struct sc_plugin_estimate *known)
{
    struct sc_plugin_load_policy *load_policy = &conn->load_policy;
    pthread_mutex_lock(&load_policy->lock);
    load_policy->compute = load_policy->load = (struct sc_plugin_line){0};
    for (double tokens = 2048; tokens <= 32768; tokens *= 16)
        sc_plugin_line_take(&load_policy->compute, tokens, tokens * (tokens - 1) / 2,
                            known->token_ns, known->position_ns);
    for (uint32_t i = 0; i < SEEDS; i++)
        sc_plugin_line_take(&load_policy->load, 1e6, 0, known->byte_ns, 0);
    for (uint32_t kind = 0; kind < SC_LOAD_KINDS; kind++) {
        load_policy->host[kind] = (struct sc_plugin_line){0};
        for (uint32_t i = 0; i < SEEDS; i++)
            sc_plugin_line_take(&load_policy->host[kind], 1e3, 0, known->host_ns[kind], 0);
        load_policy->row_bytes[kind] = (struct sc_plugin_share){0};
        load_policy->known_row_bytes[kind] = known->host_ns[kind] > 0 ? known->row_bytes[kind] : 0;
    }
    load_policy->pass_tokens = known->pass_tokens;
    load_policy->apart = known->is_apart ? 7 : 0;
    measured_set(load_policy, known);
    pthread_mutex_unlock(&load_policy->lock);
}

/* Converts the log's times to the executor's clock (base/exec.h). A time that no writer gives,
 * because a clock was set, counts at once. */
void sc_plugin_load_policy_heard(spec_connector *conn, const uint16_t *words, uint64_t count)
{
    struct sc_plugin_estimate_note note;
    if (!sc_plugin_estimate_note_decode(words, count, &note))
        return;
    uint64_t now_ns = sc_exec_now_ns(conn->exec), wall_ns = sc_exec_wall_ns(conn->exec);
    uint64_t wait_ns = note.from_ns > wall_ns ? note.from_ns - wall_ns : 0;
    note.from_ns = now_ns + (wait_ns <= 2 * DELAY_NS ? wait_ns : 0);
    sc_plugin_agreed_set(&conn->load_policy.agreed, &note);
    if (!measures(conn))
        return;
    estimate_take(conn, &note.next);
    atomic_store_explicit(&conn->load_policy.write_ns, now_ns + WRITE_NS, memory_order_relaxed);
}

static bool is_new(const spec_connector *conn)
{
    const struct sc_plugin_load_policy *load_policy = &conn->load_policy;
    return measures(conn) && sc_store_takes_notes(conn->store) &&
           atomic_load_explicit(&load_policy->renewed, memory_order_acquire) !=
               atomic_load_explicit(&load_policy->written, memory_order_relaxed);
}

/* Waits for a measurement of the device, without which nothing is split. */
bool sc_plugin_load_policy_due(const spec_connector *conn)
{
    return is_new(conn) && measured(&conn->load_policy).byte_ns > 0 &&
           sc_exec_now_ns(conn->exec) >=
               atomic_load_explicit(&conn->load_policy.write_ns, memory_order_relaxed);
}

void sc_plugin_load_policy_write(spec_connector *conn, bool is_last)
{
    struct sc_plugin_load_policy *load_policy = &conn->load_policy;
    struct spec_error error = {.struct_size = sizeof(error)};
    uint16_t words[SC_STORE_NOTE_HEAD + SC_PLUGIN_ESTIMATE_NOTE_WORDS] = {0};
    if (is_last ? !is_new(conn) : !sc_plugin_load_policy_due(conn))
        return;
    uint64_t layers, now_ns = sc_exec_now_ns(conn->exec), wall_ns = sc_exec_wall_ns(conn->exec);
    struct sc_plugin_estimate_note note = {.layers = conn->dims.layer_count,
                                           .from_ns = wall_ns + DELAY_NS,
                                           .before = agreed(conn, &layers)};
    pthread_mutex_lock(&load_policy->lock);
    uint32_t renewed = atomic_load_explicit(&load_policy->renewed, memory_order_relaxed);
    note.next = measured(load_policy);
    pthread_mutex_unlock(&load_policy->lock);
    sc_plugin_estimate_note_encode(&note, SC_PLUGIN_NOTE_ESTIMATE, words + SC_STORE_NOTE_HEAD);
    if (!sc_plugin_estimate_note_decode(words + SC_STORE_NOTE_HEAD, SC_PLUGIN_ESTIMATE_NOTE_WORDS,
                                        &note)) {
        atomic_store_explicit(&load_policy->written, renewed, memory_order_relaxed);
        return; /* out of range: readers would refuse it */
    }
    spec_status status =
        sc_store_note_put(conn->store, words, SC_PLUGIN_ESTIMATE_NOTE_WORDS, &error);
    atomic_store_explicit(&load_policy->write_ns, now_ns + WRITE_NS, memory_order_relaxed);
    if (status != SPEC_OK) {
        SC_LOG(&conn->log, SPEC_LOG_DEBUG, "how long things take is not written: %s", error.text);
        return;
    }
    atomic_store_explicit(&load_policy->written, renewed, memory_order_relaxed);
    note.from_ns = now_ns + DELAY_NS;
    sc_plugin_agreed_set(&load_policy->agreed, &note);
}

/* ---- Statistics ------------------------------------------------------------------------------ */

static uint64_t ps_of(double ns)
{
    return ns < TIME_MAX ? (uint64_t)(ns * 1000 + 0.5) : (uint64_t)TIME_MAX * 1000;
}

void sc_plugin_load_policy_stats(const spec_connector *conn, struct spec_stats *stats)
{
    struct sc_plugin_estimate estimate;
    (void)sc_plugin_load_policy_estimate(conn, &estimate);
    bool is_layered = conn->choice.can_select && conn->config.base == SC_BASE_QUANTISED;
    bool chooses = is_layered || (conn->choice.can_select && sc_config_selects(&conn->config));
    uint32_t kind = chooses ? SC_LOAD_SELECTED_ROWS : SC_LOAD_ALL_ROWS;
    stats->lookups_cut = sc_counted(&conn->load_policy.lookups_cut);
    stats->tokens_cut = sc_counted(&conn->load_policy.tokens_cut);
    stats->compute_token_ps = ps_of(estimate.token_ns);
    stats->compute_position_ps = ps_of(estimate.position_ns);
    stats->load_token_ps = ps_of(estimate.row_bytes[kind] * estimate.byte_ns);
    stats->place_token_ps = ps_of(estimate.host_ns[kind]);
}
