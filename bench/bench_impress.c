/* bench-impress: IMPRESS' evaluation on the simulated device and its clock.
 *
 * The plugin is complete. Important rows are a real model's (dump.h), rows have a large model's
 * shape, the GPU and its bus are waits. One request after the other:
 *
 *   lookup -> { begin_layer -> get_important -> prefetch_next -> bus, scores, compute (a wait) }
 *   per layer -> release; TTFT is the time from lookup to the last layer's end
 *
 * --dump: the model's sets are mapped to another shape; nothing else is drawn.
 *   layers    layer l is the model's layer l mod its layers
 *   heads     as many KV heads as the shape has: the layer's own, then those of the layers above it
 *             (below, if there is none), which differ as real heads do; or (--own 1) its own
 *             repeated. If the shape has as many query heads as KV heads, each is one query head of
 *             the model; else a KV head
 *   rows      row j of R is row (j - R) mod D of D: longer prefixes repeat the dump from its end,
 *             shorter ones have its end. Only latency is measured: no answer is computed
 *   prefixes  all have the sets of entry --entry; a request draws one of its questions
 * In dimension q of a key is its row's rank for question q, and a query is that dimension's unit
 * vector. So the plugin itself scores, votes, compares heads and falls back, as the model's heads
 * imply. Rows that all probe heads have among their k best must be in its set ("sure", "found").
 *
 * --scale S: rows have 1/S of their elements and the device 1/S of its bytes per second, with as
 * many operations. So a request takes as long, in less memory (bench/run impress compares with S =
 * 1). The bus, scores and compute are charged for true sizes, scores once, on the GPU. The
 * simulated clock counts no processor time.
 *
 * --configs FILE: lines "NAME<tab>LETTERS<tab>CONFIGURATION". All run on one store, filled by
 * --fill-config (of --stage-bytes), after --warm requests that fill caches. Letters:
 *   s   rows are selected: requests have queries
 *   r   the store is reordered, and remains so for later lines
 * The warm requests run twice, with the reordering between, because it makes cached rows useless.
 * If an upper tier stands for the GPU's memory (upper_bytes), the plugin charges the bus for a
 * load's rows. A configuration that the plugin refuses is reported and skipped. Requests draw
 * prefixes from a normal distribution around the middle one (6 deviations are all), the same
 * requests for each line. --taught N: the warm requests ask the first N questions of the entry, the
 * measured ones the others.
 *
 * --again 0, where nothing is cached: a request simulated twice is not simulated again; its second
 * time counts for later ones. The two must agree within 1 %.
 *
 * Prints series: "recompute" (prefix and query) and "query" (without its prefix) by the GPU's
 * table; per configuration NAME (TTFT) and "NAME load" (waits for the device and the bus).
 *
 * The plugin is linked in, for its executor's clock.
 * Threads: one loop. Tests: none (a measurement); bench/run impress --quick runs it. */
#include "bench/bench.h"
#include "bench/dump.h"
#include "bench/gpu_wait.h"
#include "plugin/connector.h"
#include "tests/sim/sim_connector.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED            UINT64_C(20261128)
#define QUESTIONS       16u /* at most: a dimension each */
#define PREFIXES_MAX    1024u
#define LAYERS_MAX      256u
#define LINE_BYTES      4096u
#define QUERY_HALF      0x4800u /* 8.0 */
#define REORDER_STILL_S 5u      /* reordering is over when it did nothing for so long */

struct outcome { /* all uint64_t: they are added up */
    uint64_t ttft_ns, load_ns, bus_ns, read_bytes, wanted_bytes, ops, rows, union_rows, all_rows,
        fallbacks, fallback_rows, fallback_all_rows, denses, ahead_rows, unused_bytes, host_rows,
        gpu_rows, reordered, sure, found;
    uint64_t wait_ns; /* of the GPU and of its own bus transfers, one after the other */
};

struct known { /* of a prefix and question */
    uint64_t count;
    struct outcome outcome; /* the last time */
};

struct state {
    const struct spec_api *api;
    spec_connector *conn;
    struct sc_alloc alloc;
    struct sc_io_sim_disk *disk;
    struct bench_dump dump;
    uint64_t entry, questions, taught; /* taught 0: all requests ask all questions */
    uint32_t layers, kv_heads, query_heads, probe_heads, head_size; /* head_size: as stored */
    uint64_t lengths[PREFIXES_MAX], prefixes, longest;
    uint64_t requests, warm, new_tokens, staging_bytes;
    double bus_bytes_per_s;
    struct bench_gpu gpu; /* of true sizes */
    uint64_t half_bytes;  /* of a row as stored: its K, its V */
    uint8_t *areas[2];    /* [K rows][V rows] of an even layer, of an odd one */
    uint32_t *ids, *positions;
    uint16_t *query;
    uint8_t *is_in;
    const uint8_t **planted; /* [kv_heads * questions] scratch */
    bool selects, reorders, has_bus, is_own, is_again;
    struct known known[PREFIXES_MAX][QUESTIONS]; /* where not is_again */
    uint64_t layer_rows[LAYERS_MAX]; /* that some head wants, over a configuration's requests */
};

struct request {
    uint64_t prefix, question, tokens;
};

static uint64_t now_ns(const struct state *state)
{
    return sc_exec_now_ns(state->conn->exec);
}

static void wait_until(const struct state *state, uint64_t when_ns)
{
    _Atomic uint32_t never = 0;
    (void)sc_exec_wait(state->conn->exec, &never, 0, when_ns);
}

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

/* ---- What is planted ------------------------------------------------------------------------ */

/* The dump's ranks for a KV head of a layer. */
static const uint8_t *ranks_of(const struct state *state, uint64_t question, uint32_t layer,
                               uint32_t head)
{
    const struct bench_dump_head *dump = &state->dump.head;
    bool is_grouped = state->query_heads > state->kv_heads;
    uint32_t lists = is_grouped ? dump->kv_heads : dump->heads;
    uint32_t at = layer % dump->layers;
    uint32_t beside = state->is_own ? 0 : head / lists % dump->layers;
    at = at + beside < dump->layers ? at + beside : dump->layers - 1 - beside;
    return bench_dump_ranks(&state->dump, state->entry, question, at,
                            (is_grouped ? 0 : dump->kv_heads) + head % lists);
}

/* The dump's row for row 0 of `tokens`: behind the last row of all comes the first. */
static uint64_t first_row(const struct state *state, uint64_t tokens)
{
    uint64_t all = state->dump.entries[state->entry].tokens;
    return (all - tokens % all) % all;
}

/* The half of 1 + 3 * rank / 255: [1, 2) has exponent 0, [2, 4] exponents 1 and 2. */
static uint16_t half_of_rank(uint32_t rank)
{
    uint32_t value = 1024 + 3072 * rank / 255; /* in 1024ths */
    uint32_t exponent = value < 2048 ? 15 : value < 4096 ? 16 : 17;
    return (uint16_t)(exponent << 10 | ((value >> (exponent - 15)) & 1023));
}

static void plant_layer(struct state *state, uint32_t layer, uint64_t tokens)
{
    uint64_t all = state->dump.entries[state->entry].tokens, at = first_row(state, tokens);
    uint64_t lists = state->kv_heads * state->questions;
    uint16_t halves[256];
    for (uint32_t i = 0; i < 256; i++)
        halves[i] = half_of_rank(i);
    for (uint64_t i = 0; i < lists; i++)
        state->planted[i] =
            ranks_of(state, i % state->questions, layer, (uint32_t)(i / state->questions));
    uint8_t *row = state->areas[0];
    for (uint64_t j = 0; j < tokens; j++, row += state->half_bytes) {
        for (uint64_t i = 0; i < lists; i++) {
            uint64_t element = i / state->questions * state->head_size + i % state->questions;
            memcpy(row + element * 2, &halves[state->planted[i][at]], 2);
        }
        at = at + 1 < all ? at + 1 : 0;
    }
}

/* ---- The host ------------------------------------------------------------------------------- */

static struct spec_memory memory_of(const struct state *state, uint32_t layer)
{
    uint64_t part_bytes = state->longest * state->half_bytes;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = state->areas[layer % 2],
                                .v_base = state->areas[layer % 2] + part_bytes,
                                .k_bytes = part_bytes,
                                .v_bytes = part_bytes,
                                .token_stride_bytes = state->half_bytes,
                                .head_stride_bytes = (uint64_t)state->head_size * 2};
}

static spec_status open_connector(struct state *state, const char *config,
                                  struct spec_error *reterr)
{
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = state->layers,
                               .kv_head_count = state->kv_heads,
                               .query_head_count = state->query_heads,
                               .head_size = state->head_size,
                               .kv_dtype = SPEC_DTYPE_F16,
                               .weights_id = {"bench-impress", 13}};
    struct spec_open_params params = {
        .struct_size = sizeof(params), .role = SPEC_ROLE_WRITER, .config = config, .model = &model};
    state->api = spec_connector_api(SPEC_ABI_MAJOR);
    return sc_sim_connector_open(&params, state->disk, &state->conn, reterr);
}

static spec_request look_up(const struct state *state, uint64_t prefix, uint64_t expected)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t seed = prefix * UINT64_C(104729) + 17, tokens = state->lengths[prefix];
    for (uint64_t i = 0; i <= tokens; i++)
        state->ids[i] = (uint32_t)(next_word(&seed) % 50000);
    struct spec_lookup_params params = {
        .struct_size = sizeof(params), .tokens = state->ids, .token_count = tokens + 1};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    bench_must(state->api->lookup(state->conn, &params, &found, &error), &error, "lookup");
    if (found.matched_tokens != expected)
        bench_die("%" PRIu64 " tokens match, %" PRIu64 " expected", found.matched_tokens, expected);
    return found.request;
}

/* ---- Filling -------------------------------------------------------------------------------- */

static void await_ticket(const struct state *state, spec_ticket ticket)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status ended = SPEC_PENDING;
    bench_must(state->api->wait(state->conn, &ticket, 1, UINT64_MAX, &ended, &error), &error,
               "wait");
    bench_must(ended, &error, "a store");
}

static struct spec_stats stats_of(const struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    bench_must(state->api->stats(state->conn, &stats, &error), &error, "stats");
    return stats;
}

static void await_room(const struct state *state, uint64_t layer_bytes)
{
    if (layer_bytes > state->staging_bytes / 2)
        bench_die("a layer of %" PRIu64 " bytes does not fit half of --stage-bytes", layer_bytes);
    do {
        wait_until(state, now_ns(state) + 500000);
    } while (stats_of(state).staging_bytes_used > state->staging_bytes / 2 - layer_bytes);
}

static void store_prefix(struct state *state, uint64_t prefix)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state, 0);
    uint64_t tokens = state->lengths[prefix];
    spec_request request = look_up(state, prefix, 0);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        plant_layer(state, layer, tokens);
        await_room(state, 2 * tokens * state->half_bytes);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = request,
                                           .layer = layer,
                                           .token_count = tokens,
                                           .memory = &memory};
        bench_must(state->api->store(state->conn, &params, 1, &ticket, &error), &error, "store");
    }
    await_ticket(state, ticket);
    bench_must(state->api->release(state->conn, request, &error), &error, "release");
}

static void fill_store(struct state *state, const char *config)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t seed = 3;
    bench_must(open_connector(state, config, &error), &error, "open, to fill the store");
    /* Finite halves: a query's zeros would make nothing of a NaN. */
    for (uint64_t i = 0; i < 2 * state->longest * state->half_bytes; i += 8) {
        uint64_t word = next_word(&seed) & UINT64_C(0xbfffbfffbfffbfff);
        memcpy(state->areas[0] + i, &word, sizeof(word));
    }
    for (uint64_t prefix = 0; prefix < state->prefixes; prefix++)
        store_prefix(state, prefix);
    state->api->close(state->conn);
}

/* ---- A request ------------------------------------------------------------------------------ */

/* The number from which on ranks are among the k best of a head, ties left out. */
static uint32_t least_rank(const uint8_t *ranks, uint64_t all, uint64_t first, uint64_t tokens,
                           uint64_t k)
{
    uint64_t count[256] = {0}, sum = 0;
    for (uint64_t j = 0; j < tokens; j++)
        count[ranks[(first + j) % all]]++;
    for (uint32_t rank = 256; rank-- > 0;) {
        sum += count[rank];
        if (sum > k)
            return rank + 1;
    }
    return 0;
}

/* Whether the rows that every probe head wants were chosen. */
static void compare(struct state *state, const struct request *request, uint32_t layer,
                    const struct spec_important *item, struct outcome *outcome)
{
    uint64_t all = state->dump.entries[state->entry].tokens, tokens = request->tokens;
    uint64_t first = first_row(state, tokens), k = item->row_count;
    memset(state->is_in, 0, tokens);
    for (uint32_t head = 0; head < state->probe_heads; head++) {
        const uint8_t *ranks = ranks_of(state, request->question, layer, head);
        uint32_t least = least_rank(ranks, all, first, tokens, k);
        for (uint64_t j = 0; j < tokens; j++)
            state->is_in[j] += ranks[(first + j) % all] >= least;
    }
    for (uint64_t j = 0; j < tokens; j++)
        outcome->sure += state->is_in[j] == state->probe_heads;
    for (uint64_t i = 0; i < k; i++)
        outcome->found += state->is_in[state->positions[i]] == state->probe_heads;
}

static void note(struct state *state, const struct request *request,
                 const struct spec_important *item, struct outcome *outcome)
{
    bool fell = (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    outcome->read_bytes += item->read_bytes;
    outcome->wanted_bytes += item->wanted_bytes;
    outcome->ops += item->io_ops;
    outcome->rows += item->row_count;
    outcome->union_rows += item->union_rows;
    outcome->all_rows += request->tokens;
    outcome->ahead_rows += item->prefetched_rows;
    outcome->unused_bytes += item->unused_bytes;
    outcome->host_rows += item->tier_rows[SPEC_TIER_HOST];
    outcome->gpu_rows += item->tier_rows[SPEC_TIER_UPPER];
    outcome->denses += (item->result_flags & SPEC_IMPORTANT_DENSE) != 0;
    outcome->fallbacks += fell;
    outcome->fallback_rows += fell ? item->union_rows : 0;
    outcome->fallback_all_rows += fell ? request->tokens : 0;
    state->layer_rows[item->layer] += item->union_rows;
}

/* What goes over the bus: keys that are scored, and what of the chosen rows is not there then; but
 * for rows that the plugin charges. */
static double bus_bytes(const struct state *state, const struct request *request,
                        const struct spec_important *item)
{
    double half = (double)state->gpu.half_bytes, rows = (double)item->row_count;
    double all = (double)request->tokens;
    bool is_whole = item->row_count == request->tokens;
    bool is_probed = !is_whole && !(item->result_flags & SPEC_IMPORTANT_FALLBACK);
    double probes = is_probed ? half * all * state->probe_heads / state->kv_heads : 0;
    if (state->has_bus)
        return probes;
    if (is_whole)
        return 2 * half * all;
    return is_probed ? probes + 2 * half * rows : half * all + half * rows;
}

/* The GPU's time for a layer that is there: scores, then the layer. */
static double gpu_ns(const struct state *state, const struct request *request,
                     const struct spec_important *item)
{
    uint64_t group = state->query_heads / state->kv_heads;
    bool fell = (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    double ns = bench_gpu_layer_ns(&state->gpu, state->new_tokens, item->row_count);
    if (item->row_count < request->tokens)
        ns += bench_gpu_score_ns(&state->gpu, state->new_tokens, request->tokens,
                                 fell ? state->query_heads : state->probe_heads * group);
    return ns;
}

static struct spec_queries queries_of(const struct state *state, const struct request *request)
{
    uint64_t count = (uint64_t)state->query_heads * state->head_size;
    memset(state->query, 0, count * sizeof(*state->query));
    for (uint32_t head = 0; head < state->query_heads; head++)
        state->query[(uint64_t)head * state->head_size + request->question] = QUERY_HALF;
    return (struct spec_queries){.struct_size = sizeof(struct spec_queries),
                                 .dtype = SPEC_DTYPE_F16,
                                 .data = state->query,
                                 .byte_count = count * sizeof(*state->query),
                                 .row_count = 1,
                                 .heads = SPEC_QUERIES_ALL,
                                 .row_stride_bytes = count * sizeof(*state->query),
                                 .head_stride_bytes = (uint64_t)state->head_size * 2,
                                 .first_position = request->tokens};
}

static void run_layer(struct state *state, const struct request *request, spec_request handle,
                      uint32_t layer, const struct spec_queries *queries, struct outcome *outcome)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct spec_api *api = state->api;
    struct spec_memory memory = memory_of(state, layer);
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = handle,
                                  .layer = layer,
                                  .queries = state->selects ? queries : NULL,
                                  .destination = &memory,
                                  .positions = state->positions,
                                  .position_capacity = request->tokens * state->kv_heads};
    bench_must(api->begin_layer(state->conn, &handle, 1, layer, &error), &error, "begin_layer");
    uint64_t asked_ns = now_ns(state);
    bench_must(api->get_important(state->conn, &item, 1, &error), &error, "get_important");
    outcome->load_ns += now_ns(state) - asked_ns;
    bench_must(api->prefetch_next(state->conn, handle, layer, NULL, &error), &error,
               "prefetch_next");
    double bus_ns = bus_bytes(state, request, &item) / state->bus_bytes_per_s * 1e9;
    double ns = bus_ns + gpu_ns(state, request, &item);
    wait_until(state, now_ns(state) + (uint64_t)ns);
    note(state, request, &item, outcome);
    outcome->bus_ns += (uint64_t)bus_ns;
    outcome->wait_ns += (uint64_t)ns;
    outcome->load_ns += (uint64_t)bus_ns;
    if (item.row_count < request->tokens && !(item.result_flags & SPEC_IMPORTANT_FALLBACK))
        compare(state, request, layer, &item, outcome);
}

static struct request draw(const struct state *state, uint64_t number)
{
    uint64_t seed = number * UINT64_C(2654435761) + SEED;
    double bell = 0, last = (double)state->prefixes - 1; /* twelve units: a normal distribution's */
    for (uint32_t i = 0; i < 12; i++)
        bell += next_unit(&seed) - 0.5;
    double at = last / 2 + bell * (double)state->prefixes / 6;
    at = at < 0 ? 0 : at > last ? last : at;
    uint64_t prefix = (uint64_t)llround(at), question = next_word(&seed);
    bool is_warm = number > state->requests;
    uint64_t first = is_warm ? 0 : state->taught;
    uint64_t end = is_warm && state->taught > 0 ? state->taught : state->questions;
    return (struct request){.prefix = prefix,
                            .question = first + question % (end - first),
                            .tokens = state->lengths[prefix]};
}

static void run_request(struct state *state, uint64_t number, struct outcome *ret_outcome)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct request request = draw(state, number);
    struct spec_queries queries = queries_of(state, &request);
    *ret_outcome = (struct outcome){0};
    uint64_t begin_ns = now_ns(state), bus_ns = stats_of(state).upper_bus_ns;
    spec_request handle = look_up(state, request.prefix, request.tokens);
    for (uint32_t layer = 0; layer < state->layers; layer++)
        run_layer(state, &request, handle, layer, &queries, ret_outcome);
    ret_outcome->ttft_ns = now_ns(state) - begin_ns;
    ret_outcome->bus_ns += stats_of(state).upper_bus_ns - bus_ns; /* with what rose behind loads */
    bench_must(state->api->release(state->conn, handle, &error), &error, "release");
}

/* The number-th request: simulated, or known. */
static void ask(struct state *state, uint64_t number, struct outcome *ret_outcome)
{
    struct request request = draw(state, number);
    struct known *known = &state->known[request.prefix][request.question];
    if (!state->is_again && known->count >= 2) {
        *ret_outcome = known->outcome;
        return;
    }
    run_request(state, number, ret_outcome);
    double before = (double)known->outcome.ttft_ns, now = (double)ret_outcome->ttft_ns;
    if (!state->is_again && known->count > 0 && !(fabs(now - before) <= before / 100))
        bench_die("a request took %.0f ns, and then %.0f: it has to be simulated each time", before,
                  now);
    known->count++;
    known->outcome = *ret_outcome;
}

/* ---- Runs ----------------------------------------------------------------------------------- */

static void print_counts(const struct state *state, const char *name, const struct outcome *sum)
{
    printf("{\"counts\": {\"name\": \"%s\", \"requests\": %" PRIu64 ", \"layers\": %" PRIu32
           ", \"read_bytes\": %" PRIu64 ", \"wanted_bytes\": %" PRIu64 ", \"ops\": %" PRIu64
           ", \"rows\": %" PRIu64 ", \"union_rows\": %" PRIu64 ", \"all_rows\": %" PRIu64
           ", \"fallbacks\": %" PRIu64 ", \"fallback_rows\": %" PRIu64
           ", \"fallback_all_rows\": %" PRIu64 ", \"denses\": %" PRIu64 ", \"ahead_rows\": %" PRIu64
           ", \"unused_bytes\": %" PRIu64 ", \"host_rows\": %" PRIu64 ", \"gpu_rows\": %" PRIu64
           ", \"reordered\": %" PRIu64 ", \"bus_ns\": %" PRIu64 ", \"wait_ns\": %" PRIu64
           ", \"sure\": %" PRIu64 ", \"found\": %" PRIu64 ", \"layer_rows\": [",
           name, state->requests, state->layers, sum->read_bytes, sum->wanted_bytes, sum->ops,
           sum->rows, sum->union_rows, sum->all_rows, sum->fallbacks, sum->fallback_rows,
           sum->fallback_all_rows, sum->denses, sum->ahead_rows, sum->unused_bytes, sum->host_rows,
           sum->gpu_rows, sum->reordered, sum->bus_ns, sum->wait_ns, sum->sure, sum->found);
    for (uint32_t i = 0; i < state->layers; i++)
        printf("%s%" PRIu64, i == 0 ? "" : ", ", state->layer_rows[i]);
    printf("]}}\n");
}

/* Returns how many more chunks stand in another order then. */
static uint64_t reorder(const struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct spec_maintain_params params = {.struct_size = sizeof(params),
                                                .flags = SPEC_MAINTAIN_REORDER};
    uint64_t before, now = stats_of(state).reordered_chunks, still_s = 0;
    bench_must(state->api->maintain(state->conn, &params, &error), &error, "maintain");
    for (; still_s < REORDER_STILL_S; still_s = now == before ? still_s + 1 : 0) {
        before = now;
        wait_until(state, now_ns(state) + UINT64_C(1000000000));
        now = stats_of(state).reordered_chunks;
    }
    return now;
}

static void run_config(struct state *state, const char *name, const char *config)
{
    static struct bench_series ttft, load;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct outcome sum = {0}, one;
    char load_name[128];
    if (open_connector(state, config, &error) != SPEC_OK) {
        for (char *c = error.text; *c != '\0'; c++) /* no JSON escapes */
            *c = *c == '"' || *c == '\\' ? '\'' : *c;
        printf("{\"counts\": {\"name\": \"%s\", \"refused\": \"%.160s\"}}\n", name, error.text);
        return;
    }
    (void)snprintf(load_name, sizeof(load_name), "%s load", name);
    ttft = (struct bench_series){.name = name, .unit = "request", .work = 1};
    load = (struct bench_series){.name = load_name, .unit = "request", .work = 1};
    state->has_bus = stats_of(state).upper_bytes_max > 0;
    for (uint64_t round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < state->warm; i++)
            run_request(state, state->requests + 1 + i, &one);
        if (round == 0 && state->reorders)
            sum.reordered = reorder(state);
    }
    memset(state->layer_rows, 0, sizeof(state->layer_rows));
    memset(state->known, 0, sizeof(state->known));
    for (uint64_t i = 0; i < state->requests; i++) {
        ask(state, i + 1, &one);
        bench_series_add(&ttft, one.ttft_ns);
        bench_series_add(&load, one.load_ns);
        uint64_t *to = (uint64_t *)&sum, *from = (uint64_t *)&one;
        for (uint64_t j = 0; j < sizeof(sum) / sizeof(*to); j++)
            to[j] += from[j];
    }
    state->api->close(state->conn);
    print_counts(state, name, &sum);
    bench_series_print(&ttft);
    bench_series_print(&load);
    (void)fflush(stdout);
}

static void run_configs(struct state *state, const char *path)
{
    static char line[LINE_BYTES];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        bench_die("--configs %s cannot be opened", path);
    while (fgets(line, sizeof(line), file) != NULL) {
        char *rest = line, *name = strsep(&rest, "\t"), *letters = strsep(&rest, "\t");
        if (rest == NULL || strchr(rest, '\n') == NULL)
            bench_die("--configs: expected NAME, LETTERS and CONFIGURATION, with tabs between");
        state->selects = strchr(letters, 's') != NULL;
        state->reorders = strchr(letters, 'r') != NULL;
        run_config(state, name, strsep(&rest, "\n"));
    }
    (void)fclose(file);
}

/* By the GPU's table, for the same requests. */
static void print_computed(const struct state *state)
{
    static struct bench_series whole = {.name = "recompute", .unit = "request", .work = 1},
                               query = {.name = "query", .unit = "request", .work = 1};
    double query_ns = bench_gpu_layer_ns(&state->gpu, state->new_tokens, 0) * state->layers;
    for (uint64_t i = 0; i < state->requests; i++) {
        struct request request = draw(state, i + 1);
        double ns = bench_gpu_layer_ns(&state->gpu, request.tokens + state->new_tokens, 0);
        bench_series_add(&whole, (uint64_t)(ns * state->layers));
        bench_series_add(&query, (uint64_t)query_ns);
    }
    bench_series_print(&whole);
    bench_series_print(&query);
}

/* ---- Options -------------------------------------------------------------------------------- */

static double option_real(int argc, char **argv, const char *name, const char *fallback)
{
    const char *text = bench_option(argc, argv, name, fallback);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0))
        bench_die("%s %s: expected a number above 0", name, text);
    return value;
}

static void read_lengths(struct state *state, int argc, char **argv)
{
    const char *rest = bench_option(argc, argv, "--lengths", "4096");
    for (char *end; *rest != '\0'; rest = *end == ',' ? end + 1 : end) {
        uint64_t tokens = strtoull(rest, &end, 10);
        if (end == rest || (*end != ',' && *end != '\0') || tokens == 0 || tokens > 1u << 20 ||
            state->prefixes == PREFIXES_MAX)
            bench_die("--lengths: expected tokens of each prefix, with commas between");
        state->lengths[state->prefixes++] = tokens;
        state->longest = tokens > state->longest ? tokens : state->longest;
    }
    if (state->prefixes == 0)
        bench_die("--lengths: no prefix");
}

static void read_shape(struct state *state, int argc, char **argv)
{
    uint64_t scale = bench_option_u64(argc, argv, "--scale", 16);
    uint64_t head_size = bench_option_u64(argc, argv, "--head-size", 128);
    state->layers = (uint32_t)bench_option_u64(argc, argv, "--layers", 32);
    state->kv_heads = (uint32_t)bench_option_u64(argc, argv, "--kv-heads", 32);
    state->query_heads = (uint32_t)bench_option_u64(argc, argv, "--query-heads", 32);
    state->probe_heads = (uint32_t)bench_option_u64(argc, argv, "--probe-heads", 3);
    if (scale == 0 || head_size % scale != 0)
        bench_die("--scale: expected one that divides the head's elements");
    if (state->layers == 0 || state->layers > LAYERS_MAX || state->kv_heads < state->probe_heads ||
        state->probe_heads == 0 || state->kv_heads > 1024 ||
        state->query_heads % state->kv_heads != 0 || state->query_heads == 0)
        bench_die("a number of layers or heads is out of range");
    state->head_size = (uint32_t)(head_size / scale);
    state->half_bytes = (uint64_t)state->kv_heads * state->head_size * 2;
    state->gpu =
        (struct bench_gpu){.layer_params = option_real(argc, argv, "--layer-params", "201326592"),
                           .flop_per_s = option_real(argc, argv, "--gpu-flop", "156e12"),
                           .bytes_per_s = option_real(argc, argv, "--gpu-bytes", "2.0e12"),
                           .slower = 1,
                           .width = state->query_heads * head_size,
                           .head_size = head_size,
                           .half_bytes = state->kv_heads * head_size * 2};
}

static void read_options(struct state *state, int argc, char **argv)
{
    read_shape(state, argc, argv);
    read_lengths(state, argc, argv);
    state->requests = bench_option_u64(argc, argv, "--requests", 100);
    state->warm = bench_option_u64(argc, argv, "--warm", 10);
    state->new_tokens = bench_option_u64(argc, argv, "--new-tokens", 64);
    state->staging_bytes = bench_option_u64(argc, argv, "--stage-bytes", 256ull << 20);
    state->bus_bytes_per_s = option_real(argc, argv, "--bus", "25e9");
    state->entry = bench_option_u64(argc, argv, "--entry", 0);
    state->is_again = bench_option_u64(argc, argv, "--again", 1) != 0;
    state->is_own = bench_option_u64(argc, argv, "--own", 0) != 0;
    const char *dump = bench_option(argc, argv, "--dump", NULL);
    if (dump == NULL)
        bench_die("--dump FILE is needed, as bench-similarity --dump writes it");
    bench_dump_read(&state->dump, dump);
    if (state->entry >= state->dump.head.entry_count)
        bench_die("--entry: the dump has %" PRIu32 " entries", state->dump.head.entry_count);
    uint64_t questions = state->dump.entries[state->entry].questions;
    questions = questions < QUESTIONS ? questions : QUESTIONS;
    state->questions = questions < state->head_size ? questions : state->head_size;
    state->taught = bench_option_u64(argc, argv, "--taught", 0);
    if (state->taught >= state->questions)
        bench_die("--taught: expected fewer than the %" PRIu64 " questions", state->questions);
    if (state->requests == 0 || state->requests > BENCH_ROUNDS_MAX || state->new_tokens == 0)
        bench_die("--requests or --new-tokens is out of range");
}

static void *memory_get(uint64_t count, uint64_t bytes)
{
    void *memory = calloc(count, bytes);
    if (memory == NULL)
        bench_die("no memory for %" PRIu64 " x %" PRIu64 " bytes", count, bytes);
    return memory;
}

static void make_memory(struct state *state)
{
    for (uint32_t i = 0; i < 2; i++)
        state->areas[i] = memory_get(2 * state->longest * state->half_bytes + 8, 1);
    state->ids = memory_get(state->longest + 1, sizeof(*state->ids));
    state->positions = memory_get(state->longest * state->kv_heads, sizeof(*state->positions));
    state->query = memory_get((uint64_t)state->query_heads * state->head_size, 2);
    state->is_in = memory_get(state->longest, 1);
    state->planted = memory_get(state->kv_heads * state->questions, sizeof(*state->planted));
}

static void free_memory(struct state *state)
{
    free(state->areas[0]);
    free(state->areas[1]);
    free(state->ids);
    free(state->positions);
    free(state->query);
    free(state->is_in);
    free(state->planted);
    bench_dump_done(&state->dump);
}

int main(int argc, char **argv)
{
    static struct state state;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_io_sim_disk_params disk = {.alloc = &state.alloc, .seed = SEED};
    read_options(&state, argc, argv);
    make_memory(&state);
    const char *fill_config = bench_option(argc, argv, "--fill-config", NULL);
    const char *configs = bench_option(argc, argv, "--configs", NULL);
    if (fill_config == NULL || configs == NULL)
        bench_die("--fill-config JSON and --configs FILE are needed");
    printf("{\"facts\": {\"source\": \"%s\", \"entry\": \"%s\", \"entry_tokens\": %" PRIu32
           ", \"questions\": %" PRIu64 ", \"taught\": %" PRIu64 "}}\n",
           state.dump.head.source, state.dump.entries[state.entry].id,
           state.dump.entries[state.entry].tokens, state.questions, state.taught);
    print_computed(&state);
    sc_alloc_init(&state.alloc);
    bench_must(sc_io_sim_disk_open(&disk, &state.disk, &error), &error, "simulated disk");
    fill_store(&state, fill_config);
    run_configs(&state, configs);
    sc_io_sim_disk_close(state.disk);
    sc_alloc_done(&state.alloc);
    free_memory(&state);
    return 0;
}
