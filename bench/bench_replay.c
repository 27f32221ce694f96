/* bench-replay: time to first token with a real plugin, disk and bytes; the GPU is a wait.
 *
 * Rows have a large model's length.
 *
 *   --mode fill   stores the prefixes, with planted keys
 *   --mode run    requests, one after the other: lookup -> { begin_layer -> get_important ->
 *                 prefetch_next -> the layer's compute (a wait) } per layer -> release
 *   --mode windows  the same, once without compute, then with --window-ns per layer, scoring
 *                 included (0: half of a layer's time before), with a connector opened for each
 *   --mode sim    fill and windows in one process on the simulated device and its clock
 *                 (tests/sim/io_sim.h), the executor one seeded loop
 *   --ahead 1     with compute, a layer is submitted while the one below is computed: layered,
 *                 ahead of its queries, with those as hints, and refined by the real ones; with
 *                 --selects 0 complete, so that nothing of it remains
 *   --beside 1    a sixteenth of the window after a layer has arrived, while prefetches run,
 *                 another request asks for all rows of it; its longest time is printed
 *
 * The GPU's choice is planted, so that the plugin makes it itself: dimension v of a key is its
 * token's importance for query variant v, and a query is its variant's unit vector. Per prefix,
 * layer, variant:
 *
 *   S(l)      k of R tokens; `recall` of them are in S(l - 1) too
 *   head h    its own set: a layer that passes shares c of S(l), so that two heads have a Jaccard
 *             index of about `similarity` (c^2 = 2 s / (1 + s)); a layer that falls back has
 *             independent ones, in all heads
 *   hint      in dimension VARIANTS + v, of all heads: a set that shares `hint` of S(l), or of a
 *             head's own set in layers that fall back
 *   order     a token's weight is the same for all heads and the hint, so the first rows of a
 *             hint's ranking are right as often as all, as measured on real models (bench/run
 *             similarity: the share is the same for 0.02 to 0.25 of the rows)
 *
 * The plugin scores one query row on the processor, within the time. If a GPU would take longer for
 * all new rows, the difference is added to the layer's wait, once. Other processor time counts, but
 * not on the simulated device: there only the I/O part of TTFT remains, reproducibly.
 *
 * The plugin is linked in: mode sim needs its executor's clock.
 * Threads: the plugin's. Tests: none (a measurement; every request's sets are compared with the
 * planted ones, outside the timed part, and the result is printed). */
#include "bench/bench.h"
#include "bench/gpu_wait.h"
#include "plugin/connector.h"
#include "tests/sim/sim_connector.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VARIANTS   4u
#define ROUND_SEED UINT64_C(20261121)

struct state {
    const struct spec_api *api;
    spec_connector *conn;
    struct sc_alloc alloc;       /* of the simulated disk */
    struct sc_io_sim_disk *disk; /* NULL: a real one, and real time */
    uint32_t layers, kv_heads, query_heads, head_size, probe_heads;
    uint64_t tokens, prefixes, first, warm, requests, new_tokens, staging_bytes;
    double retain, similarity, recall, fallback, hint;
    struct bench_gpu gpu;
    enum { HINTS_NONE, HINTS_BEFORE, HINTS_AFTER } hints;
    bool selects, has_window;
    uint64_t window_ns;  /* has_window: a layer's compute, whatever it does */
    uint64_t half_bytes; /* of a row: its K, its V */
    uint8_t *areas[2];   /* [K rows][V rows] of an even layer, of an odd one */
    bool has_beside;     /* another request asks for the layer while it is computed */
    uint64_t beside_ns;  /* what that took at most */
    bool is_ahead;       /* a layer's destination is told while the one below is computed */
    uint32_t *ids;
    uint32_t *positions; /* [layers][tokens * kv_heads] of the last request */
    uint64_t *voted;     /* [layers] rows of its sets that were one for all heads; 0: none was */
    uint32_t *set, *before, *own, *hinted; /* planted: [k] each */
    uint8_t *is_in;                        /* [tokens] scratch */
};

struct outcome { /* of one request */
    uint64_t ttft_ns, read_bytes, wanted_bytes, ops, exposed_ns, probe_ns, unused_bytes;
    uint64_t cpu_ns; /* of all threads, the host's wait for its GPU is none */
    uint64_t rows, read_rows, prefetched_rows, union_rows, fallbacks, denses, planted_rows,
        planted_found;
};

static uint64_t next_word(uint64_t *seed)
{
    uint64_t word = bench_mix(*seed);
    *seed += UINT64_C(0x9e3779b97f4a7c15); /* as bench_mix steps */
    return word;
}

static double next_unit(uint64_t *seed)
{
    return (double)(next_word(seed) >> 11) * 0x1p-53;
}

static uint64_t gather_of(const struct state *state)
{
    return (uint64_t)ceil((double)state->tokens * state->retain);
}

/* ---- What is planted ------------------------------------------------------------------------ */

/* A set of k tokens that holds `kept` of `from` and else others; from NULL: any. */
static void set_draw(struct state *state, uint64_t *seed, const uint32_t *from, double kept,
                     uint32_t *ret_set)
{
    uint64_t k = gather_of(state), count = 0;
    uint64_t keep = from != NULL ? (uint64_t)llround(kept * (double)k) : 0;
    memset(state->is_in, 0, state->tokens);
    for (uint64_t i = 0; from != NULL && i < k; i++)
        state->is_in[from[i]] = 2; /* not to be drawn as another */
    for (uint64_t i = 0; i < k && keep > 0; i++)
        if (next_unit(seed) * (double)(k - i) < (double)(keep - count) && count < keep) {
            state->is_in[from[i]] = 1;
            ret_set[count++] = from[i];
        }
    while (count < k) {
        uint32_t token = (uint32_t)(next_word(seed) % state->tokens);
        if (state->is_in[token] != 0 && k * 2 <= state->tokens)
            continue;
        if (state->is_in[token] == 1)
            continue;
        state->is_in[token] = 1;
        ret_set[count++] = token;
    }
}

static bool falls_back(const struct state *state, uint64_t prefix, uint32_t layer)
{
    /* Spread evenly (by the golden section): of few layers a draw may miss the share by far. */
    double at = (double)(prefix * state->layers + layer + 1) * 0.61803398874989485;
    return at - floor(at) < state->fallback;
}

/* S(layer) of a prefix and variant: drawn anew from layer 0 on, so that any process finds it. */
static void set_of(struct state *state, uint64_t prefix, uint32_t layer, uint32_t variant)
{
    uint64_t seed = (prefix * VARIANTS + variant) * UINT64_C(1000003) + ROUND_SEED;
    set_draw(state, &seed, NULL, 0, state->set);
    for (uint32_t i = 1; i <= layer; i++) {
        uint32_t *swap = state->before;
        state->before = state->set;
        state->set = swap;
        set_draw(state, &seed, state->before, state->recall, state->set);
    }
}

/* The half of v >= 2^-14; what lies between two halves is cut off. */
static uint16_t half_of(double v)
{
    int exponent;
    double part = frexp(v, &exponent); /* v = part * 2^exponent, part in [.5, 1) */
    return (uint16_t)((uint32_t)(exponent + 14) << 10 | (uint32_t)((part * 2 - 1) * 1024));
}

/* Writes a dimension of one head: tokens of the set score above all others. order: seed of the
 * tokens' weights. */
static void plant(struct state *state, uint64_t order, uint32_t head, uint32_t dimension,
                  const uint32_t *set)
{
    uint64_t k = gather_of(state);
    memset(state->is_in, 0, state->tokens);
    for (uint64_t i = 0; i < k; i++)
        state->is_in[set[i]] = 1;
    for (uint64_t j = 0; j < state->tokens; j++) {
        uint16_t half = half_of((state->is_in[j] ? 4.0 : 1.0) * (1 + next_unit(&order)));
        memcpy(state->areas[0] + j * state->half_bytes +
                   ((uint64_t)head * state->head_size + dimension) * 2,
               &half, sizeof(half));
    }
}

static void plant_layer(struct state *state, uint64_t prefix, uint32_t layer)
{
    double shared = sqrt(2 * state->similarity / (1 + state->similarity));
    uint64_t seed = (prefix << 24 | layer) * UINT64_C(7919) + 1;
    for (uint32_t variant = 0; variant < VARIANTS; variant++) {
        set_of(state, prefix, layer, variant);
        bool apart = falls_back(state, prefix, layer);
        uint64_t order = next_word(&seed);
        set_draw(state, &seed, state->set, state->hint, state->hinted);
        for (uint32_t head = 0; head < state->kv_heads; head++) {
            set_draw(state, &seed, apart ? NULL : state->set, shared, state->own);
            plant(state, order, head, variant, state->own);
            if (apart)
                set_draw(state, &seed, state->own, state->hint, state->hinted);
            plant(state, order, head, VARIANTS + variant, state->hinted);
        }
    }
}

/* ---- The host ------------------------------------------------------------------------------- */

static struct spec_memory memory_of(const struct state *state, uint32_t layer)
{
    uint8_t *area = state->areas[layer % 2];
    uint64_t part_bytes = state->tokens * state->half_bytes;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = area,
                                .v_base = area + part_bytes,
                                .k_bytes = part_bytes,
                                .v_bytes = part_bytes,
                                .token_stride_bytes = state->half_bytes,
                                .head_stride_bytes = (uint64_t)state->head_size * 2};
}

static void print_log(int32_t level, const char *line, void *user)
{
    (void)user;
    (void)fprintf(stderr, "plugin (%d): %s\n", (int)level, line);
}

static void open_connector(struct state *state, const char *config)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = state->layers,
                               .kv_head_count = state->kv_heads,
                               .query_head_count = state->query_heads,
                               .head_size = state->head_size,
                               .kv_dtype = SPEC_DTYPE_F16,
                               .weights_id = {"bench-replay", 12}};
    struct spec_open_params params = {.struct_size = sizeof(params),
                                      .role = SPEC_ROLE_WRITER,
                                      .config = config,
                                      .model = &model,
                                      .log = print_log,
                                      .log_level_max = SPEC_LOG_WARN};
    state->api = spec_connector_api(SPEC_ABI_MAJOR);
    if (state->disk == NULL)
        bench_must(state->api->open(&params, &state->conn, &error), &error, "open");
    else
        bench_must(sc_sim_connector_open(&params, state->disk, &state->conn, &error), &error,
                   "open");
}

static void ids_of(struct state *state, uint64_t prefix)
{
    uint64_t seed = prefix * UINT64_C(104729) + 17;
    for (uint64_t i = 0; i <= state->tokens; i++)
        state->ids[i] = (uint32_t)(next_word(&seed) % 50000);
}

static struct spec_lookup_result lookup(const struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_lookup_params params = {
        .struct_size = sizeof(params), .tokens = state->ids, .token_count = state->tokens + 1};
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    bench_must(state->api->lookup(state->conn, &params, &result, &error), &error, "lookup");
    return result;
}

/* ---- Time ----------------------------------------------------------------------------------- */

static uint64_t now_ns(const struct state *state)
{
    return state->disk != NULL ? sc_exec_now_ns(state->conn->exec) : bench_now_ns();
}

/* Processor time of this process so far. */
static uint64_t spent_ns(void)
{
    struct timespec spent;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000000000 + (uint64_t)spent.tv_nsec;
}

static void wait_until(const struct state *state, uint64_t when_ns)
{
    _Atomic uint32_t never = 0;
    if (state->disk != NULL) {
        (void)sc_exec_wait(state->conn->exec, &never, 0, when_ns);
        return;
    }
    struct timespec when = {.tv_sec = (time_t)(when_ns / 1000000000),
                            .tv_nsec = (long)(when_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        continue;
}

/* ---- Filling -------------------------------------------------------------------------------- */

static void await_room(const struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    uint64_t layer_bytes = 2 * state->tokens * state->half_bytes;
    if (layer_bytes > state->staging_bytes / 2)
        bench_die("a layer of %" PRIu64 " bytes does not fit half of --stage-bytes", layer_bytes);
    do {
        wait_until(state, now_ns(state) + 500000);
        bench_must(state->api->stats(state->conn, &stats, &error), &error, "stats");
    } while (stats.staging_bytes_used > state->staging_bytes / 2 - layer_bytes);
}

static void store_prefix(struct state *state, uint64_t prefix)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state, 0);
    ids_of(state, prefix);
    struct spec_lookup_result found = lookup(state);
    if (found.matched_tokens != 0)
        bench_die("prefix %" PRIu64 " is stored already", prefix);
    spec_ticket ticket = 0;
    spec_status ended = SPEC_PENDING;
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        plant_layer(state, prefix, layer);
        await_room(state);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = found.request,
                                           .layer = layer,
                                           .token_count = state->tokens,
                                           .memory = &memory};
        bench_must(state->api->store(state->conn, &params, 1, &ticket, &error), &error, "store");
    }
    bench_must(state->api->wait(state->conn, &ticket, 1, UINT64_MAX, &ended, &error), &error,
               "wait");
    bench_must(ended, &error, "the last ticket");
    bench_must(state->api->release(state->conn, found.request, &error), &error, "release");
}

/* Until the connector has made codes of what it stores, where it makes any. */
static void await_quant(const struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    do {
        wait_until(state, now_ns(state) + 1000000);
        bench_must(state->api->stats(state->conn, &stats, &error), &error, "stats");
    } while (stats.building != 0);
}

static void mode_load_policy(struct state *state)
{
    /* Finite halves: a query's zeros would make nothing of a NaN. */
    uint64_t seed = 3;
    for (uint64_t i = 0; i < 2 * state->tokens * state->half_bytes; i += 8) {
        uint64_t word = next_word(&seed) & UINT64_C(0xbfffbfffbfffbfff);
        memcpy(state->areas[0] + i, &word, sizeof(word));
    }
    for (uint64_t prefix = 0; prefix < state->prefixes; prefix++) {
        store_prefix(state, prefix);
        (void)fprintf(stderr, "\rstored %" PRIu64 "/%" PRIu64, prefix + 1, state->prefixes);
    }
    (void)fprintf(stderr, "\n");
    await_quant(state);
}

/* ---- The GPU, as a wait --------------------------------------------------------------------- */

/* What the GPU takes beyond the processor, which scored one row in the clock: scoring is charged
 * once, by whoever takes longer. Identifying waits for the device too, so of its time only what is
 * more than all waiting was surely spent on scores. */
static double score_ns(const struct state *state, uint64_t query_heads,
                       const struct spec_important *item)
{
    double ns = bench_gpu_score_ns(&state->gpu, state->new_tokens, state->tokens, query_heads);
    double spent = (double)item->probe_ns - (double)item->io_exposed_ns;
    return fmax(ns - fmax(spent, 0), 0);
}

/* ---- Requests ------------------------------------------------------------------------------- */

/* How many of the planted sets are among the last request's positions. */
static void compare(struct state *state, uint64_t prefix, uint32_t variant, struct outcome *outcome)
{
    uint64_t k = gather_of(state);
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        const uint32_t *positions = state->positions + layer * state->tokens * state->kv_heads;
        if (state->voted[layer] == 0)
            continue;
        set_of(state, prefix, layer, variant);
        memset(state->is_in, 0, state->tokens);
        for (uint64_t i = 0; i < state->voted[layer]; i++)
            state->is_in[positions[i]] = 1;
        for (uint64_t i = 0; i < k; i++)
            outcome->planted_found += state->is_in[state->set[i]];
        outcome->planted_rows += k;
    }
}

static void note_cost(struct outcome *outcome, const struct spec_important *item)
{
    outcome->read_bytes += item->read_bytes;
    outcome->wanted_bytes += item->wanted_bytes;
    outcome->ops += item->io_ops;
    outcome->exposed_ns += item->io_exposed_ns;
    outcome->probe_ns += item->probe_ns;
    outcome->unused_bytes += item->unused_bytes;
}

static void note(struct outcome *outcome, const struct spec_important *item)
{
    note_cost(outcome, item);
    outcome->rows += item->row_count;
    outcome->prefetched_rows += item->prefetched_rows;
    outcome->union_rows += item->union_rows;
    bool is_quantised = item->exact_rows > 0 && item->exact_rows < item->row_count; /* layered */
    outcome->read_rows += is_quantised ? item->exact_rows : item->union_rows;
    outcome->fallbacks += (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    outcome->denses += (item->result_flags & SPEC_IMPORTANT_DENSE) != 0;
}

static struct spec_queries queries_of(const struct state *state, uint16_t *rows, uint32_t dimension)
{
    uint64_t count = (uint64_t)state->query_heads * state->head_size;
    memset(rows, 0, count * sizeof(*rows));
    for (uint32_t head = 0; head < state->query_heads; head++)
        rows[(uint64_t)head * state->head_size + dimension] = half_of(8.0);
    return (struct spec_queries){.struct_size = sizeof(struct spec_queries),
                                 .dtype = SPEC_DTYPE_F16,
                                 .data = rows,
                                 .byte_count = count * sizeof(*rows),
                                 .row_count = 1,
                                 .heads = SPEC_QUERIES_ALL,
                                 .row_stride_bytes = count * sizeof(*rows),
                                 .head_stride_bytes = (uint64_t)state->head_size * 2,
                                 .first_position = state->tokens};
}

static void prefetch(struct state *state, spec_request request, uint32_t layer,
                     const struct spec_queries *hint)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    bench_must(state->api->prefetch_next(state->conn, request, layer, hint, &error), &error,
               "prefetch_next");
}

/* Where nothing is computed between two layers there is nothing to do ahead of the second. */
static bool goes_ahead(const struct state *state)
{
    return state->is_ahead && (!state->has_window || state->window_ns > 0);
}

/* A layer that was submitted before its queries are there; where none are needed, all of it. */
struct ahead {
    struct spec_memory memory;
    struct spec_queries hint;
    struct spec_important item;
    spec_ticket ticket; /* 0: none was */
};

static void ahead_begin(const struct state *state, spec_request request, uint32_t layer,
                        const struct spec_queries *hint, struct ahead *ret_ahead)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    ret_ahead->hint = *hint;
    ret_ahead->memory = memory_of(state, layer);
    if (!state->selects) /* for the reads of the layer behind it: else its submission begins them */
        bench_must(state->api->begin_layer(state->conn, &request, 1, layer, &error), &error,
                   "begin_layer");
    ret_ahead->item =
        (struct spec_important){.struct_size = sizeof(ret_ahead->item),
                                .flags = state->selects ? SPEC_ITEM_AHEAD : 0,
                                .request = request,
                                .layer = layer,
                                .queries = state->hints == HINTS_NONE ? NULL : &ret_ahead->hint,
                                .destination = &ret_ahead->memory};
    bench_must(state->api->get_important_submit(state->conn, &ret_ahead->item, 1,
                                                &ret_ahead->ticket, &error),
               &error, "get_important_submit");
}

/* What the device took beside the host's compute is not exposed. */
static void ahead_end(const struct state *state, struct ahead *ahead, struct outcome *outcome)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t begin_ns = now_ns(state);
    bench_must(state->api->get_important_wait(state->conn, ahead->ticket, UINT64_MAX, &error),
               &error, "get_important_wait");
    uint64_t took_ns = now_ns(state) - begin_ns;
    if (ahead->item.io_exposed_ns > took_ns)
        ahead->item.io_exposed_ns = took_ns;
    if (state->selects) /* the rest of it has its own */
        note_cost(outcome, &ahead->item);
}

/* Another request of the same prefix wants all rows of the layer. */
static void beside(struct state *state, uint32_t layer)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state, layer);
    struct spec_lookup_result found = lookup(state);
    struct spec_select all = {
        .struct_size = sizeof(all), .given = SPEC_SELECT_BUDGET, .retain_ppm = 1000000};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = found.request,
                                  .layer = layer,
                                  .select = &all,
                                  .destination = &memory};
    uint64_t begin_ns = now_ns(state);
    bench_must(state->api->get_important(state->conn, &item, 1, &error), &error,
               "get_important beside");
    uint64_t took_ns = now_ns(state) - begin_ns;
    state->beside_ns = took_ns > state->beside_ns ? took_ns : state->beside_ns;
    bench_must(state->api->release(state->conn, found.request, &error), &error, "release");
}

static void run_layer(struct state *state, spec_request request, uint32_t layer, uint32_t variant,
                      uint16_t *rows[2], struct ahead *ahead, struct outcome *outcome)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct spec_api *api = state->api;
    struct spec_memory memory = memory_of(state, layer);
    struct spec_queries queries = queries_of(state, rows[0], variant);
    struct spec_queries hint = queries_of(state, rows[1], VARIANTS + variant);
    struct spec_important item = {
        .struct_size = sizeof(item),
        .request = request,
        .layer = layer,
        .queries = state->selects ? &queries : NULL,
        .destination = &memory,
        .positions = state->positions + layer * state->tokens * state->kv_heads,
        .position_capacity = state->tokens * state->kv_heads,
        .refine_of = ahead->ticket,
    };
    bool is_ahead = goes_ahead(state), is_there = ahead->ticket != 0 && !state->selects;
    ahead->ticket = 0;
    bench_must(api->begin_layer(state->conn, &request, 1, layer, &error), &error, "begin_layer");
    if (state->hints == HINTS_BEFORE && !is_ahead)
        prefetch(state, request, layer, &hint);
    if (is_there)
        item = ahead->item;
    else
        bench_must(api->get_important(state->conn, &item, 1, &error), &error, "get_important");
    if (state->hints != HINTS_BEFORE || is_ahead)
        prefetch(state, request, layer, state->hints == HINTS_AFTER ? &hint : NULL);
    uint64_t done_ns = now_ns(state);
    if (is_ahead && layer + 1 < state->layers)
        ahead_begin(state, request, layer + 1, &hint, ahead);
    bool fell = (item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    double wait = bench_gpu_layer_ns(&state->gpu, state->new_tokens, item.row_count);
    uint64_t group = state->query_heads / state->kv_heads;
    if (item.row_count < state->tokens && !fell)
        wait += score_ns(state, state->probe_heads * group, &item);
    else if (item.row_count < state->tokens || item.exact_rows < state->tokens)
        wait += score_ns(state, state->query_heads, &item); /* layered: all heads' codes */
    state->voted[layer] = item.row_count < state->tokens && !fell ? item.row_count : 0;
    note(outcome, &item);
    if (state->has_beside) {
        wait_until(state, done_ns + state->window_ns / 16 + layer * 41000); /* amid any operation */
        beside(state, layer);
    }
    wait_until(state, done_ns + (state->has_window ? state->window_ns : (uint64_t)wait));
    if (ahead->ticket != 0)
        ahead_end(state, ahead, outcome);
}

static void run_request(struct state *state, uint64_t number, uint16_t *rows[2],
                        struct outcome *ret_outcome)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t seed = number * UINT64_C(2654435761) + ROUND_SEED;
    double bell = 0; /* the sum of twelve units: a normal distribution's */
    for (uint32_t i = 0; i < 12; i++)
        bell += next_unit(&seed) - 0.5;
    double at = ((double)state->prefixes - 1) / 2 + bell * (double)state->prefixes / 6;
    at = at < 0 ? 0 : at > (double)state->prefixes - 1 ? (double)state->prefixes - 1 : at;
    uint64_t prefix = (uint64_t)llround(at);
    uint32_t variant = (uint32_t)(number % VARIANTS);
    *ret_outcome = (struct outcome){0};
    ids_of(state, prefix);
    uint64_t begin_ns = now_ns(state), cpu_ns = spent_ns();
    struct spec_lookup_result found = lookup(state);
    if (found.matched_tokens != state->tokens)
        bench_die("%" PRIu64 " of %" PRIu64 " tokens match", found.matched_tokens, state->tokens);
    struct ahead ahead = {0};
    for (uint32_t layer = 0; layer < state->layers; layer++)
        run_layer(state, found.request, layer, variant, rows, &ahead, ret_outcome);
    ret_outcome->ttft_ns = now_ns(state) - begin_ns;
    ret_outcome->cpu_ns = spent_ns() - cpu_ns;
    bench_must(state->api->release(state->conn, found.request, &error), &error, "release");
    compare(state, prefix, variant, ret_outcome);
}

/* name: of counts, NULL: these are the run's facts. */
static void print_facts(const struct state *state, const char *name, const struct outcome *sum)
{
    struct sc_store_device device;
    sc_store_device(state->conn->store, &device);
    if (name == NULL)
        printf("{\"facts\": {");
    else
        printf("{\"counts\": {\"name\": \"%s\", ", name);
    printf("\"requests\": %" PRIu64 ", \"layers\": %" PRIu32 ", \"read_bytes\": %" PRIu64
           ", \"wanted_bytes\": %" PRIu64 ", \"ops\": %" PRIu64 ", \"exposed_ns\": %" PRIu64
           ", \"probe_ns\": %" PRIu64 ", \"unused_bytes\": %" PRIu64 ", \"cpu_ns\": %" PRIu64
           ", \"rows\": %" PRIu64 ", \"read_rows\": %" PRIu64 ", \"prefetched_rows\": %" PRIu64
           ", \"union_rows\": %" PRIu64 ", \"fallbacks\": %" PRIu64 ", \"denses\": %" PRIu64
           ", \"planted_rows\": %" PRIu64 ", \"planted_found\": %" PRIu64
           ", \"layer_wait_ns\": %.0f, \"recompute_ns\": %.0f"
           ", \"beside_ns\": %" PRIu64 ", \"window_ns\": %" PRIu64
           ", \"model_bytes_per_s\": %" PRIu64 ", \"model_op_ns\": %" PRIu64 "}}\n",
           state->requests, state->layers, sum->read_bytes, sum->wanted_bytes, sum->ops,
           sum->exposed_ns, sum->probe_ns, sum->unused_bytes, sum->cpu_ns, sum->rows,
           sum->read_rows, sum->prefetched_rows, sum->union_rows, sum->fallbacks, sum->denses,
           sum->planted_rows, sum->planted_found,
           bench_gpu_layer_ns(&state->gpu, state->new_tokens, gather_of(state)),
           bench_gpu_layer_ns(&state->gpu, state->tokens + state->new_tokens, 0) * state->layers,
           state->beside_ns, state->window_ns, device.bytes_per_s, device.op_ns);
}

/* Some that do not count, then the requests; returns their mean. */
static uint64_t run(struct state *state, const char *name)
{
    static struct bench_series ttft;
    uint64_t values = (uint64_t)state->query_heads * state->head_size;
    uint16_t *rows[2] = {calloc(values, 2), calloc(values, 2)};
    struct outcome sum = {0}, one;
    state->beside_ns = 0;
    if (rows[0] == NULL || rows[1] == NULL)
        bench_die("no memory for queries");
    ttft =
        (struct bench_series){.name = name != NULL ? name : "ttft", .unit = "request", .work = 1};
    for (uint64_t i = 0; i < state->warm; i++) /* memory is touched, and guesses are judged */
        run_request(state, state->first + state->requests + i, rows, &one);
    for (uint64_t i = 0; i < state->requests; i++) {
        run_request(state, state->first + i, rows, &one);
        bench_series_add(&ttft, one.ttft_ns);
        uint64_t *to = (uint64_t *)&sum, *from = (uint64_t *)&one;
        for (uint64_t j = 0; j < sizeof(sum) / sizeof(*to); j++)
            to[j] += from[j];
    }
    print_facts(state, name, &sum);
    bench_series_print(&ttft);
    free(rows[0]);
    free(rows[1]);
    return sum.ttft_ns / state->requests;
}

static void mode_windows(struct state *state, const char *config, uint64_t window_ns)
{
    uint64_t load_ns = 0;
    state->has_window = true;
    for (uint32_t i = 0; i < 2; i++) {
        open_connector(state, config);
        if (i == 1)
            state->window_ns = window_ns > 0 ? window_ns : load_ns / 2;
        load_ns = run(state, i == 0 ? "no window" : "window") / state->layers;
        state->api->close(state->conn);
    }
}

static void sim_fill(struct state *state, const char *config)
{
    struct sc_io_sim_disk_params disk = {.alloc = &state->alloc, .seed = ROUND_SEED};
    struct spec_error error = {.struct_size = sizeof(error)};
    sc_alloc_init(&state->alloc);
    bench_must(sc_io_sim_disk_open(&disk, &state->disk, &error), &error, "simulated disk");
    open_connector(state, config);
    mode_load_policy(state);
    state->api->close(state->conn);
}

/* ---- Options -------------------------------------------------------------------------------- */

static double option_real(int argc, char **argv, const char *name, const char *fallback)
{
    const char *text = bench_option(argc, argv, name, fallback);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0))
        bench_die("%s %s: expected a number, 0 or more", name, text);
    return value;
}

static uint32_t hints_of(const char *text)
{
    static const char *const names[] = {"none", "before", "after"};
    for (uint32_t i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    bench_die("--hints %s: expected none, before or after (get_important of the layer below)",
              text);
}

static void read_options(struct state *state, int argc, char **argv)
{
    state->layers = (uint32_t)bench_option_u64(argc, argv, "--layers", 8);
    state->kv_heads = (uint32_t)bench_option_u64(argc, argv, "--kv-heads", 32);
    state->query_heads = (uint32_t)bench_option_u64(argc, argv, "--query-heads", 32);
    state->head_size = (uint32_t)bench_option_u64(argc, argv, "--head-size", 128);
    state->probe_heads = (uint32_t)bench_option_u64(argc, argv, "--probe-heads", 3);
    state->tokens = bench_option_u64(argc, argv, "--tokens", 4096);
    state->prefixes = bench_option_u64(argc, argv, "--prefixes", 4);
    state->first = bench_option_u64(argc, argv, "--first", 1);
    state->warm = bench_option_u64(argc, argv, "--warm", 1);
    state->requests = bench_option_u64(argc, argv, "--requests", 30);
    state->new_tokens = bench_option_u64(argc, argv, "--new-tokens", 64);
    state->staging_bytes = bench_option_u64(argc, argv, "--stage-bytes", 512ull << 20);
    state->hints = hints_of(bench_option(argc, argv, "--hints", "none"));
    state->is_ahead = bench_option_u64(argc, argv, "--ahead", 0) != 0;
    state->has_beside = bench_option_u64(argc, argv, "--beside", 0) != 0;
    state->selects = bench_option_u64(argc, argv, "--selects", 1) != 0;
    state->retain = option_real(argc, argv, "--retain", ".25");
    state->similarity = option_real(argc, argv, "--similarity", ".8");
    state->recall = option_real(argc, argv, "--recall", ".6");
    state->fallback = option_real(argc, argv, "--fallback", ".2");
    state->hint = option_real(argc, argv, "--hint-recall", ".9");
    state->half_bytes = (uint64_t)state->kv_heads * state->head_size * 2;
    state->gpu =
        (struct bench_gpu){.layer_params = option_real(argc, argv, "--layer-params", "201326592"),
                           .flop_per_s = option_real(argc, argv, "--gpu-flop", "156e12"),
                           .bytes_per_s = option_real(argc, argv, "--gpu-bytes", "2.0e12"),
                           .slower = option_real(argc, argv, "--slower", "1"),
                           .width = (uint64_t)state->query_heads * state->head_size,
                           .head_size = state->head_size,
                           .half_bytes = state->half_bytes};
    if (state->tokens == 0 || state->prefixes == 0 || state->requests == 0 || state->first == 0 ||
        state->requests > BENCH_ROUNDS_MAX || state->head_size < 2 * VARIANTS ||
        state->kv_heads == 0 || state->query_heads % state->kv_heads != 0 || state->retain > 1)
        bench_die("a size is out of range");
}

static void *memory_get(uint64_t count, uint64_t bytes)
{
    void *memory = calloc(count, bytes);
    if (memory == NULL)
        bench_die("no memory for %" PRIu64 " x %" PRIu64 " bytes", count, bytes);
    return memory;
}

int main(int argc, char **argv)
{
    static struct state state;
    const char *mode = bench_option(argc, argv, "--mode", "run");
    read_options(&state, argc, argv);
    uint64_t k = gather_of(&state), area_bytes = 2 * state.tokens * state.half_bytes;
    for (uint32_t i = 0; i < 2; i++)
        state.areas[i] = bench_huge_memory(area_bytes, 0);
    state.ids = memory_get(state.tokens + 1, sizeof(*state.ids));
    state.positions =
        memory_get(state.layers * state.tokens * state.kv_heads, sizeof(*state.positions));
    state.voted = memory_get(state.layers, sizeof(*state.voted));
    state.set = memory_get(k, sizeof(*state.set));
    state.before = memory_get(k, sizeof(*state.before));
    state.own = memory_get(k, sizeof(*state.own));
    state.hinted = memory_get(k, sizeof(*state.hinted));
    state.is_in = memory_get(state.tokens, 1);
    const char *config = bench_option(argc, argv, "--config", NULL);
    uint64_t window_ns = bench_option_u64(argc, argv, "--window-ns", 0);
    bool is_sim = strcmp(mode, "sim") == 0;
    if (is_sim)
        sim_fill(&state, bench_option(argc, argv, "--fill-config", config));
    if (is_sim || strcmp(mode, "windows") == 0) {
        mode_windows(&state, config, window_ns);
    } else if (strcmp(mode, "fill") == 0 || strcmp(mode, "run") == 0) {
        open_connector(&state, config);
        if (strcmp(mode, "fill") == 0)
            mode_load_policy(&state);
        else
            (void)run(&state, NULL);
        state.api->close(state.conn);
    } else {
        bench_die("--mode %s: expected fill, run, windows or sim", mode);
    }
    if (is_sim) {
        sc_io_sim_disk_close(state.disk);
        sc_alloc_done(&state.alloc);
    }
    for (uint32_t i = 0; i < 2; i++)
        free(state.areas[i]);
    free(state.ids);
    free(state.positions);
    free(state.voted);
    free(state.set);
    free(state.before);
    free(state.own);
    free(state.hinted);
    free(state.is_in);
    return 0;
}
