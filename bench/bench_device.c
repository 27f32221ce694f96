/* bench-device: loads and stores of a real connector on a real disk through the ABI, beside fio.
 *
 *   --mode fill    stores one long prompt, and its size again as eight short ones, for load to read
 *   --mode load    rounds of: fio, load (the long prompt), columns (the same, into memory as vLLM's
 *                  CPU attention has it), batch8 (the eight in one call per layer), threads8 (the
 *                  eight, a thread each); every layer whole, back to back
 *   --mode write   rounds of: store (a long prompt, first store call to last ticket), coded (the
 *                  same until its quantised rows are in the log, if --extra asks for them), fio
 *                  into a new file of the rows' bytes; one untimed store before
 *   --mode call    rounds of: memcpy, store calls, while no operation on the device completes
 *
 *   kv       [prompt][layer][K rows][V rows]    one area, source of stores, destination of loads
 *   columns  [layer][block][head][K columns][V rows]                    the same area, loads only
 *
 * The plugin is linked in, so that mode call can delay completions (base/fault.h); timed calls use
 * its function table. Loads are cold: the store reads with O_DIRECT.
 * Threads: the plugin's, and eight for threads8. Tests: none (a measurement). */
#include "bench/bench.h"
#include "plugin/connector.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHORTS       8u
#define BLOCK_TOKENS 128u

struct prompt {
    uint32_t *tokens; /* [token_count + 1]: the last one is never stored, so all others can match */
    uint64_t token_count;
    uint8_t *kv; /* [layer][K rows][V rows] */
    bool is_columns;
};

struct state {
    const struct spec_api *api;
    spec_connector *conn;
    uint32_t layers, heads, head_size;
    uint64_t tokens, half_bytes;                    /* of a row: its K, its V */
    const char *dir, *backend, *extra, *fio, *bare; /* fio, bare: commands, or NULL */
    uint64_t rounds, staging_bytes, op_bytes;
    uint8_t *area;
    uint64_t area_bytes;
    struct prompt whole, columns, parts[SHORTS]; /* columns: whole, in another memory */
};

/* ---- Memory --------------------------------------------------------------------------------- */

/* The words of a layer are a function of the prompt and the layer. */
static uint64_t layer_seed(const struct prompt *prompt, uint32_t layer)
{
    return bench_mix(prompt->tokens[0] * UINT64_C(1000003) + layer);
}

static uint8_t *layer_at(const struct state *state, const struct prompt *prompt, uint32_t layer)
{
    return prompt->kv + (uint64_t)layer * prompt->token_count * 2 * state->half_bytes;
}

static void prompt_fill(const struct state *state, const struct prompt *prompt)
{
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        uint64_t word = layer_seed(prompt, layer);
        uint8_t *at = layer_at(state, prompt, layer);
        for (uint64_t i = 0; i < prompt->token_count * 2 * state->half_bytes; i += 8) {
            word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            memcpy(at + i, &word, 8);
        }
    }
}

/* Where the part's element of a token stands in the layer's columns. */
static const uint8_t *column_at(const struct state *state, const uint8_t *layer, uint64_t token,
                                uint64_t part, uint64_t element)
{
    uint64_t size = state->head_size, head = element / size, in = token % BLOCK_TOKENS;
    const uint8_t *at = layer + token / BLOCK_TOKENS * BLOCK_TOKENS * 2 * state->half_bytes +
                        head * BLOCK_TOKENS * 2 * size * 2;
    if (part == 0)
        return at + (element % size * BLOCK_TOKENS + in) * 2;
    return at + BLOCK_TOKENS * size * 2 + (in * size + element % size) * 2;
}

/* Whether word i of the layer's rows is there: four elements. */
static bool columns_have(const struct state *state, const struct prompt *prompt,
                         const uint8_t *layer, uint64_t i, uint64_t word)
{
    uint64_t part_bytes = prompt->token_count * state->half_bytes, part = i / part_bytes;
    uint64_t token = i % part_bytes / state->half_bytes, element = i % state->half_bytes / 2;
    for (uint64_t n = 0; n < 4; n++)
        if (memcmp(column_at(state, layer, token, part, element + n), (uint8_t *)&word + 2 * n,
                   2) != 0)
            return false;
    return true;
}

static void prompt_check(const struct state *state, const struct prompt *prompt)
{
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        uint64_t word = layer_seed(prompt, layer);
        const uint8_t *at = layer_at(state, prompt, layer);
        for (uint64_t i = 0; i < prompt->token_count * 2 * state->half_bytes; i += 8) {
            word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            if (prompt->is_columns ? !columns_have(state, prompt, at, i, word)
                                   : memcmp(at + i, &word, 8) != 0)
                bench_die("a loaded row is wrong: layer %" PRIu32 ", byte %" PRIu64, layer, i);
        }
    }
}

static void prompt_set(const struct state *state, struct prompt *prompt, uint64_t number,
                       uint64_t token_count, uint8_t *kv)
{
    if (prompt->tokens == NULL)
        prompt->tokens = malloc((state->tokens + 1) * sizeof(*prompt->tokens));
    if (prompt->tokens == NULL)
        bench_die("no memory for tokens");
    prompt->token_count = token_count;
    prompt->kv = kv;
    for (uint64_t i = 0; i <= token_count; i++)
        prompt->tokens[i] = (uint32_t)(bench_mix(number * UINT64_C(1000000007) + i) % 128000);
}

static struct spec_memory memory_of(const struct state *state, const struct prompt *prompt,
                                    uint32_t layer)
{
    uint64_t part_bytes = prompt->token_count * state->half_bytes;
    uint8_t *at = layer_at(state, prompt, layer);
    uint64_t head_bytes = (uint64_t)state->head_size * 2, block = BLOCK_TOKENS * head_bytes;
    if (prompt->is_columns)
        return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                    .dtype = SPEC_DTYPE_F16,
                                    .k_base = at,
                                    .v_base = at + block,
                                    .k_bytes = 2 * part_bytes,
                                    .v_bytes = 2 * part_bytes - block,
                                    .token_stride_bytes = 2,
                                    .head_stride_bytes = 2 * block,
                                    .block_tokens = BLOCK_TOKENS,
                                    .block_stride_bytes = 2 * block * state->heads,
                                    .k_element_stride_bytes = 2 * BLOCK_TOKENS,
                                    .v_token_stride_bytes = head_bytes};
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = at,
                                .v_base = at + part_bytes,
                                .k_bytes = part_bytes,
                                .v_bytes = part_bytes,
                                .token_stride_bytes = state->half_bytes,
                                .head_stride_bytes = (uint64_t)state->head_size * 2};
}

/* ---- The connector -------------------------------------------------------------------------- */

static void print_log(int32_t level, const char *line, void *user)
{
    (void)user;
    (void)fprintf(stderr, "plugin (%d): %s\n", (int)level, line);
}

static void open_connector(struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    char config[4096];
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"%s\", \"load_policy\": \"load\", %s"
                   "\"disk_bytes\": \"40GiB\", "
                   "\"staging_bytes\": %" PRIu64
                   ", \"io\": {\"backend\": \"%s\", \"op_bytes\": %" PRIu64 "}%s}",
                   state->dir,
                   strstr(state->extra, "\"host_bytes\"") != NULL ? "" : "\"host_bytes\": 0, ",
                   state->staging_bytes, state->backend, state->op_bytes, state->extra);
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = state->layers,
                               .kv_head_count = state->heads,
                               .query_head_count = state->heads,
                               .head_size = state->head_size,
                               .kv_dtype = SPEC_DTYPE_F16,
                               .weights_id = {"bench-device", 12}};
    struct spec_open_params params = {.struct_size = sizeof(params),
                                      .role = SPEC_ROLE_WRITER,
                                      .config = config,
                                      .model = &model,
                                      .log = print_log,
                                      .log_level_max = SPEC_LOG_WARN};
    state->api = spec_connector_api(SPEC_ABI_MAJOR);
    bench_must(state->api->open(&params, &state->conn, &error), &error, "open");
}

static struct spec_stats stats_of(const struct state *state)
{
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    struct spec_error error = {.struct_size = sizeof(error)};
    bench_must(state->api->stats(state->conn, &stats, &error), &error, "stats");
    return stats;
}

static spec_request lookup(const struct state *state, const struct prompt *prompt, uint64_t wanted)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = prompt->tokens,
                                        .token_count = prompt->token_count + 1};
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    bench_must(state->api->lookup(state->conn, &params, &result, &error), &error, "lookup");
    if (result.matched_tokens != wanted)
        bench_die("%" PRIu64 " tokens match, expected %" PRIu64, result.matched_tokens, wanted);
    return result.request;
}

/* ---- Storing -------------------------------------------------------------------------------- */

static spec_ticket store_layer(const struct state *state, const struct prompt *prompt,
                               spec_request request, uint32_t layer)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state, prompt, layer);
    struct spec_store_params params = {.struct_size = sizeof(params),
                                       .request = request,
                                       .layer = layer,
                                       .token_count = prompt->token_count,
                                       .memory = &memory};
    spec_ticket ticket = 0;
    bench_must(state->api->store(state->conn, &params, 1, &ticket, &error), &error, "store");
    return ticket;
}

/* A host that watches the staging memory: the plugin never waits, and gives a pass up that comes
 * faster than the disk. Returns when a layer fits beside what is on its way. */
static void await_room(const struct state *state, uint64_t layer_bytes)
{
    uint64_t most = state->staging_bytes / 8 * 5;
    if (layer_bytes > most)
        bench_die("a layer of %" PRIu64 " bytes does not fit the staging memory", layer_bytes);
    while (stats_of(state).staging_bytes_used > most - layer_bytes)
        (void)usleep(200);
}

static void store_prompt(const struct state *state, const struct prompt *prompt)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_ticket ticket = 0; /* the last layer's */
    spec_status status;
    spec_request request = lookup(state, prompt, 0);
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        await_room(state, prompt->token_count * 2 * state->half_bytes);
        ticket = store_layer(state, prompt, request, layer);
    }
    bench_must(state->api->wait(state->conn, &ticket, 1, UINT64_MAX, &status, &error), &error,
               "wait");
    bench_must(status, &error, "a ticket");
    bench_must(state->api->release(state->conn, request, &error), &error, "release");
}

/* ---- Loading -------------------------------------------------------------------------------- */

/* All layers of `count` prompts, one call a layer. Returns how many ns from the lookups on. */
static uint64_t load_prompts(const struct state *state, const struct prompt *prompts,
                             uint64_t count)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_request requests[SHORTS];
    struct spec_important items[SHORTS];
    struct spec_memory memories[SHORTS];
    uint64_t start_ns = bench_now_ns();
    for (uint64_t i = 0; i < count; i++)
        requests[i] = lookup(state, &prompts[i], prompts[i].token_count);
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        bench_must(state->api->begin_layer(state->conn, requests, count, layer, &error), &error,
                   "begin_layer");
        for (uint64_t i = 0; i < count; i++) {
            memories[i] = memory_of(state, &prompts[i], layer);
            items[i] = (struct spec_important){.struct_size = sizeof(items[i]),
                                               .request = requests[i],
                                               .layer = layer,
                                               .destination = &memories[i]};
        }
        bench_must(state->api->get_important(state->conn, items, count, &error), &error,
                   "get_important");
    }
    uint64_t took_ns = bench_now_ns() - start_ns;
    for (uint64_t i = 0; i < count; i++)
        bench_must(state->api->release(state->conn, requests[i], &error), &error, "release");
    return took_ns;
}

struct worker {
    const struct state *state;
    const struct prompt *prompt;
    pthread_barrier_t *barrier;
    pthread_t thread;
};

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    (void)pthread_barrier_wait(worker->barrier);
    (void)load_prompts(worker->state, worker->prompt, 1);
    (void)pthread_barrier_wait(worker->barrier);
    return NULL;
}

/* The short prompts, a thread each; from the moment when all stand ready to the last one's end. */
static uint64_t load_threads(const struct state *state)
{
    struct worker workers[SHORTS];
    pthread_barrier_t barrier;
    if (pthread_barrier_init(&barrier, NULL, SHORTS + 1) != 0)
        bench_die("no barrier");
    for (uint32_t i = 0; i < SHORTS; i++) {
        workers[i] =
            (struct worker){.state = state, .prompt = &state->parts[i], .barrier = &barrier};
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
            bench_die("no thread");
    }
    (void)pthread_barrier_wait(&barrier);
    uint64_t start_ns = bench_now_ns();
    (void)pthread_barrier_wait(&barrier);
    uint64_t took_ns = bench_now_ns() - start_ns;
    for (uint32_t i = 0; i < SHORTS; i++)
        (void)pthread_join(workers[i].thread, NULL);
    (void)pthread_barrier_destroy(&barrier);
    return took_ns;
}

/* ---- Modes ---------------------------------------------------------------------------------- */

static void set_prompts(struct state *state)
{
    uint64_t each = state->tokens / SHORTS;
    prompt_set(state, &state->whole, 1, state->tokens, state->area);
    state->columns = state->whole;
    state->columns.is_columns = true;
    for (uint32_t i = 0; i < SHORTS; i++)
        prompt_set(state, &state->parts[i], 100 + i, each,
                   state->area + i * each * state->layers * 2 * state->half_bytes);
}

static void mode_load_policy(struct state *state)
{
    set_prompts(state);
    prompt_fill(state, &state->whole);
    store_prompt(state, &state->whole);
    for (uint32_t i = 0; i < SHORTS; i++) {
        prompt_fill(state, &state->parts[i]);
        store_prompt(state, &state->parts[i]);
    }
}

/* Each way once, into memory that was poisoned, and every byte is looked at. */
static void check_loads(struct state *state)
{
    memset(state->area, 0x5a, state->area_bytes);
    (void)load_prompts(state, &state->whole, 1);
    prompt_check(state, &state->whole);
    memset(state->area, 0x5a, state->area_bytes);
    (void)load_prompts(state, &state->columns, 1);
    prompt_check(state, &state->columns);
    memset(state->area, 0x5a, state->area_bytes);
    (void)load_prompts(state, state->parts, SHORTS);
    for (uint32_t i = 0; i < SHORTS; i++)
        prompt_check(state, &state->parts[i]);
    memset(state->area, 0x5a, state->area_bytes);
    (void)load_threads(state);
    for (uint32_t i = 0; i < SHORTS; i++)
        prompt_check(state, &state->parts[i]);
}

/* A contender's command over the store's own files: fio (with --write: a file of the same size), or
 * a bare loop that reads and copies out. It prints how long it took as `word`. */
static void run_beside(const struct state *state, struct bench_series *series, const char *program,
                       const char *what, uint64_t bytes, const char *word)
{
    char command[4096];
    if (program == NULL)
        return;
    (void)snprintf(command, sizeof(command), "%s%s --bytes %" PRIu64 " --op-bytes %" PRIu64,
                   program, what, bytes, state->op_bytes);
    bench_series_add(series, bench_command_ns(command, word));
}

static void mode_load(struct state *state)
{
    static struct bench_series fio = {.name = "fio", .unit = "byte"};
    static struct bench_series bare = {.name = "bare", .unit = "byte"};
    static struct bench_series load = {.name = "load", .unit = "byte"};
    static struct bench_series columns = {.name = "columns", .unit = "byte"};
    static struct bench_series batch = {.name = "batch8", .unit = "byte"};
    static struct bench_series threads = {.name = "threads8", .unit = "byte"};
    set_prompts(state);
    if (state->fio != NULL)
        check_loads(state);
    uint64_t verify_ns = 0, exposed_ns = 0, read_bytes = 0, read_ops = 0;
    for (uint64_t i = 0; i < state->rounds; i++) {
        struct spec_stats before = stats_of(state);
        bench_series_add(&load, load_prompts(state, &state->whole, 1));
        struct spec_stats after = stats_of(state);
        verify_ns += after.verify_ns - before.verify_ns;
        exposed_ns += after.exposed_ns - before.exposed_ns;
        read_bytes = after.read_bytes - before.read_bytes;
        read_ops = after.read_ops - before.read_ops;
        run_beside(state, &fio, state->fio, "", read_bytes, "fio_ns");
        run_beside(state, &bare, state->bare, "", read_bytes, "bare_ns");
        if (state->fio == NULL)
            continue;
        bench_series_add(&columns, load_prompts(state, &state->columns, 1));
        bench_series_add(&batch, load_prompts(state, state->parts, SHORTS));
        bench_series_add(&threads, load_threads(state));
    }
    load.work = columns.work = batch.work = threads.work = (double)state->area_bytes;
    fio.work = bare.work = (double)read_bytes;
    printf("{\"facts\": {\"backend\": \"%s\", \"row_bytes\": %" PRIu64 ", \"tokens\": %" PRIu64
           ", \"layers\": %" PRIu32 ", \"bytes\": %" PRIu64 ", \"read_bytes\": %" PRIu64
           ", \"read_ops\": %" PRIu64 ", \"verify_ns\": %" PRIu64 ", \"exposed_ns\": %" PRIu64
           "}}\n",
           state->backend, 2 * state->half_bytes, state->tokens, state->layers, state->area_bytes,
           read_bytes, read_ops, verify_ns / state->rounds, exposed_ns / state->rounds);
    bench_series_print(&load);
    if (state->fio == NULL)
        return;
    bench_series_print(&fio);
    if (state->bare != NULL)
        bench_series_print(&bare);
    bench_series_print(&columns);
    bench_series_print(&batch);
    bench_series_print(&threads);
}

/* Codes of what was stored are in the log, or there are none to be made. */
static void await_quant(const struct state *state)
{
    while (stats_of(state).building != 0)
        (void)usleep(100);
}

static void mode_write(struct state *state)
{
    static struct bench_series fio = {.name = "fio", .unit = "byte"};
    static struct bench_series store = {.name = "store", .unit = "byte"};
    static struct bench_series quantised = {.name = "coded", .unit = "byte"};
    prompt_set(state, &state->whole, 1, state->tokens, state->area);
    prompt_fill(state, &state->whole);
    uint64_t write_bytes = 0, read_bytes = 0, quantised_bytes = 0;
    store_prompt(state, &state->whole); /* the frames' pages are there from now on */
    await_quant(state);
    for (uint64_t i = 0; i < state->rounds; i++) {
        prompt_set(state, &state->whole, 2 + i, state->tokens, state->area);
        struct spec_stats before = stats_of(state);
        uint64_t start_ns = bench_now_ns();
        store_prompt(state, &state->whole);
        bench_series_add(&store, bench_now_ns() - start_ns);
        await_quant(state);
        bench_series_add(&quantised, bench_now_ns() - start_ns);
        struct spec_stats after = stats_of(state);
        write_bytes = after.write_bytes - before.write_bytes;
        read_bytes += after.read_bytes - before.read_bytes;
        quantised_bytes = after.quantised_bytes - before.quantised_bytes;
        run_beside(state, &fio, state->fio, " --write", write_bytes - quantised_bytes, "fio_ns");
    }
    store.work = quantised.work = (double)state->area_bytes;
    fio.work = (double)(write_bytes - quantised_bytes);
    printf("{\"facts\": {\"write_bytes\": %" PRIu64 ", \"quantised_bytes\": %" PRIu64
           ", \"read_bytes\": %" PRIu64 "}}\n",
           write_bytes, quantised_bytes, read_bytes);
    bench_series_print(&store);
    if (quantised_bytes > 0)
        bench_series_print(&quantised);
    bench_series_print(&fio);
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_shut;
};

static void gate_wait(void *user)
{
    struct gate *gate = user;
    (void)pthread_mutex_lock(&gate->lock);
    while (gate->is_shut)
        (void)pthread_cond_wait(&gate->opened, &gate->lock);
    (void)pthread_mutex_unlock(&gate->lock);
}

static void gate_turn(struct gate *gate, bool is_shut)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->is_shut = is_shut;
    (void)pthread_cond_broadcast(&gate->opened);
    (void)pthread_mutex_unlock(&gate->lock);
}

/* Store calls of a whole pass while the gate holds every completion: the staging memory takes all
 * of it, the plugin's threads sleep in the gate. Sum of the calls' times. */
static uint64_t stalled_calls(struct state *state, struct gate *gate)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_ticket ticket = 0;
    spec_status status = SPEC_OK;
    uint64_t took_ns = 0;
    spec_request request = lookup(state, &state->whole, 0);
    gate_turn(gate, true);
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        uint64_t start_ns = bench_now_ns();
        ticket = store_layer(state, &state->whole, request, layer);
        took_ns += bench_now_ns() - start_ns;
    }
    if (stats_of(state).staging_bytes_used < state->area_bytes)
        bench_die("the device was not stalled");
    gate_turn(gate, false);
    bench_must(state->api->wait(state->conn, &ticket, 1, UINT64_MAX, &status, &error), &error,
               "wait");
    bench_must(status, &error, "a ticket");
    bench_must(state->api->release(state->conn, request, &error), &error, "release");
    return took_ns;
}

static void mode_call(struct state *state)
{
    static struct bench_series copy = {.name = "memcpy", .unit = "byte"};
    static struct bench_series call = {.name = "store", .unit = "byte"};
    static struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    sc_fault_gate_set(&state->conn->fault, gate_wait, &gate);
    uint8_t *copied = bench_huge_memory(state->area_bytes, 0x5a);
    prompt_set(state, &state->whole, 1, state->tokens, state->area);
    prompt_fill(state, &state->whole);
    (void)stalled_calls(state, &gate); /* the frames' pages are there from now on */
    for (uint64_t i = 0; i < state->rounds; i++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t layer = 0; layer < state->layers; layer++) {
            uint8_t *from = layer_at(state, &state->whole, layer);
            memcpy(copied + (from - state->area), from, state->area_bytes / state->layers);
        }
        bench_series_add(&copy, bench_now_ns() - start_ns);
        prompt_set(state, &state->whole, 2 + i, state->tokens, state->area);
        bench_series_add(&call, stalled_calls(state, &gate));
    }
    copy.work = call.work = (double)state->area_bytes;
    printf("{\"facts\": {\"bytes\": %" PRIu64 ", \"staging_bytes\": %" PRIu64 "}}\n",
           state->area_bytes, state->staging_bytes);
    bench_series_print(&copy);
    bench_series_print(&call);
    free(copied);
}

int main(int argc, char **argv)
{
    static struct state state;
    const char *mode = bench_option(argc, argv, "--mode", "load");
    state.dir = bench_option(argc, argv, "--dir", "build/bench-store");
    state.backend = bench_option(argc, argv, "--backend", "auto");
    state.extra = bench_option(argc, argv, "--extra", "");
    state.fio = bench_option(argc, argv, "--fio", NULL);
    state.bare = bench_option(argc, argv, "--bare", NULL);
    state.layers = (uint32_t)bench_option_u64(argc, argv, "--layers", 32);
    state.heads = (uint32_t)bench_option_u64(argc, argv, "--heads", 32);
    state.head_size = (uint32_t)bench_option_u64(argc, argv, "--head-size", 128);
    state.tokens = bench_option_u64(argc, argv, "--tokens", 2048) / (SHORTS * 64) * (SHORTS * 64);
    state.rounds = bench_option_u64(argc, argv, "--rounds", 5);
    state.staging_bytes = bench_option_u64(argc, argv, "--stage-bytes", 256ull << 20);
    state.op_bytes = bench_option_u64(argc, argv, "--op-bytes", 1ull << 20);
    state.half_bytes = (uint64_t)state.heads * state.head_size * 2;
    state.area_bytes = state.tokens * state.layers * 2 * state.half_bytes;
    if (state.tokens == 0 || state.rounds == 0)
        bench_die("--tokens is at least %u, --rounds at least 1", SHORTS * 64);
    state.area = bench_huge_memory(state.area_bytes, 0x5a);
    open_connector(&state);
    if (strcmp(mode, "fill") == 0)
        mode_load_policy(&state);
    else if (strcmp(mode, "load") == 0)
        mode_load(&state);
    else if (strcmp(mode, "write") == 0)
        mode_write(&state);
    else if (strcmp(mode, "call") == 0)
        mode_call(&state);
    else
        bench_die("--mode %s: expected fill, load, write or call", mode);
    state.api->close(state.conn);
    free(state.area);
    free(state.whole.tokens);
    for (uint32_t i = 0; i < SHORTS; i++)
        free(state.parts[i].tokens);
    return 0;
}
