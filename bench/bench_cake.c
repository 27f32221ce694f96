/* bench-cake: bidirectional loads on the simulated device and its clock: Cake's cells.
 *
 * A prompt is computed from its front (a wait) while the plugin loads it from its back.
 *
 *   T(n) = 1.003e-4 n + 1.615e-9 n^2 s for the first n tokens (Llama-2-7B, an A100), 512 KiB of KV
 *   per token; a share of the GPU divides the speed, and the step's token budget, as in the paper
 *
 * A prompt is stored once. Each cell looks up its beginning and runs to the first token:
 *   compute  T(n) / share
 *   load     the tail alone: nobody calls next_chunk
 *   both     an engine (a task on the same executor) calls next_chunk, computes, and repeats, while
 *            the main thread waits for the tail; ends when the tail is reported, the last chunk is
 *            computed and next_chunk returns MET again
 *   oracle   the least max(computing the front, the tail's bytes / rate) over all cuts
 *
 * Options:
 *   --cells "tokens:share:mbit", separated by commas: share in percent, rate in Mbit/s. 0 Mbit/s:
 *           the device answers no request. "mbit>mbit": the rate changes after half of the first
 *           rate's oracle time; the oracle knows it. Share 0: nothing is computed, and
 *           get_important loads all layers beside the tail, load policy "load".
 *   --bits-k, --bits-v, --allocation (uniform, per_channel): rows are stored quantised, too, and
 *           both loads deliver the quantised rows. A token has the bytes that such a load asks for.
 *   --layers L: so many of the 32 layers, of rows as long as they are. The device and dequantising
 *           have that share of their speed, so a token takes as long as all layers would.
 *   --decode R: dequantising takes 1 / R of the rows' bytes, in MB/s of 16-bit rows, on the thread
 *           that loads; 0: nothing. The rate of the kernel's processor time is printed.
 *   --scale S: rows, io.op_bytes and the device are divided by S. At 16 a row of a layer has 1 KiB
 *           instead of 16, an operation 64 KiB instead of 1 MiB, so a block still has 64 rows. Rows
 *           must be whole elements, and the 4 KiB at an operation's ends are 1/16 of it, not 1/250.
 *           So the device's rate is adjusted: a token takes as long as without. With --over N a
 *           load takes N millionths of its rows' time; bench/run measures N with --scale 1.
 *   --op, --chunk, --step: unscaled io.op_bytes, chunk_tokens, an engine's step.
 *   --calls N: next_chunk alone, in real time: the mean of N calls, beside the same loop without.
 *
 * The simulated clock counts no processor time but --decode. All layers share one destination:
 * tests verify rows.
 * Threads: the plugin's loop. Tests: none (a measurement); bench/run cake --quick runs it. */
#include "bench/a100.h"
#include "bench/bench.h"
#include "bench/sim_open.h"
#include "kernels/bitplanes.h"
#include "kernels/codec.h"
#include "plugin/connector.h"
#include "tests/sim/sim_connector.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEP      512u /* tokens of an engine's step with the whole GPU */
#define FILL_STEP 512u
#define FIT       1536u /* tokens, on which the device's rate is made to fit */
#define HEAD      128u  /* size of a head */
#define DUE_NS    20000 /* a wait for dequantising is at least so long */

struct state {
    const struct spec_api *api;
    spec_connector *conn;
    struct sc_alloc alloc;
    struct sc_io_sim_disk *disk;
    uint64_t tokens, scale, layers, chunk, step, op_bytes;
    const char *bits_k, *bits_v, *allocation; /* of quantised rows; bits_k NULL: rows are loaded */
    uint64_t row_bytes;                       /* of a layer, as stored here */
    double token_bytes;                       /* bytes of a token as they would be */
    double loaded_bytes;                      /* bytes of a token that a load asks for here */
    double fit; /* what the device gives more, for the borders of pages */
    uint8_t *area;
    uint32_t *ids;
};

struct cell {
    uint64_t tokens, share;
    uint64_t mbit, later_mbit; /* later_mbit: of half of the oracle's time on; 0: none */
    double later_ns;
    bool is_mute;
};

/* The GPU: what next_chunk gives out is computed, one chunk after the other. */
struct engine {
    struct sc_task task;
    struct state *state;
    spec_request request;
    double share;
    uint64_t budget, computed, steps;
    _Atomic uint32_t is_met;
};

/* Kernels that take time on the simulated clock; one connector is open at a time. */
static struct {
    struct sc_kernels table;
    const struct sc_kernels *real;
    struct state *state;
    double bytes_per_s, due_ns; /* 0: no time is charged; charged and not yet waited for */
    uint64_t bytes, real_ns;    /* dequantised, and the processor time that it took */
} decoder;

struct turn { /* the rate changes */
    struct sc_task task;
    struct state *state;
    uint64_t bytes_per_s;
};

static uint64_t now_ns(const struct state *state)
{
    return sc_exec_now_ns(state->conn->exec);
}

/* ---- What could be --------------------------------------------------------------------------- */

/* What the device gives here at a rate, so that a token takes as long as it would. */
static uint64_t device_rate(const struct state *state, uint64_t mbit)
{
    return (uint64_t)((double)mbit * 1.25e5 * state->loaded_bytes / state->token_bytes *
                      state->fit);
}

static double load_ns(const struct state *state, const struct cell *cell, double tokens)
{
    double bytes = tokens * state->token_bytes,
           rate = (double)cell->mbit * 1.25e-4; /* bytes / ns */
    double early = cell->later_ns * rate;
    if (cell->is_mute)
        return tokens > 0 ? INFINITY : 0;
    if (cell->later_mbit == 0 || bytes <= early)
        return bytes / rate;
    return cell->later_ns + (bytes - early) / ((double)cell->later_mbit * 1.25e-4);
}

static double oracle_ns(const struct state *state, const struct cell *cell, uint64_t *ret_cut)
{
    double least = INFINITY;
    for (uint64_t cut = 0; cut <= cell->tokens; cut++) {
        double front = a100_compute_ns(0, (double)cut) * 100 / (double)cell->share;
        double ns = fmax(front, load_ns(state, cell, (double)(cell->tokens - cut)));
        if (ns >= least)
            continue;
        least = ns;
        *ret_cut = cut;
    }
    return least;
}

/* ---- Dequantising ---------------------------------------------------------------------------- */

/* Processor time of this thread: others that want the processor do not count. */
static uint64_t thread_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Charges rows of that many bytes, which the kernel decoded since begin_ns of processor time. */
static void decode_charge(uint64_t bytes, uint64_t begin_ns)
{
    struct sc_exec *exec = decoder.state->conn->exec;
    _Atomic uint32_t never = 0;
    decoder.real_ns += thread_ns() - begin_ns;
    decoder.bytes += bytes;
    decoder.due_ns += decoder.bytes_per_s > 0 ? (double)bytes * 1e9 / decoder.bytes_per_s : 0;
    if (decoder.due_ns < DUE_NS)
        return;
    uint64_t due_ns = (uint64_t)decoder.due_ns;
    decoder.due_ns -= (double)due_ns;
    (void)sc_exec_wait(exec, &never, 0, sc_exec_now_ns(exec) + due_ns);
}

static void codec_decode(const struct sc_kernels_codec_decode *what)
{
    uint64_t begin_ns = thread_ns();
    decoder.real->codec_decode(what);
    decode_charge(what->row_count * what->channel_count * 2, begin_ns);
}

static void bitplanes_decode(const struct sc_kernels_bitplanes_decode *what)
{
    uint64_t begin_ns = thread_ns();
    decoder.real->bitplanes_decode(what);
    decode_charge(what->row_count * what->head_count * HEAD * 2, begin_ns);
}

static void decoder_set(struct state *state)
{
    decoder.real = state->conn->kernels;
    decoder.table = *decoder.real;
    decoder.table.codec_decode = codec_decode;
    decoder.table.bitplanes_decode = bitplanes_decode;
    decoder.state = state;
    decoder.due_ns = 0;
    state->conn->kernels = &decoder.table;
}

/* ---- The host ------------------------------------------------------------------------------- */

static void open_connector(struct state *state, const char *fill, uint64_t bytes_per_s)
{
    char config[1024], quant[256] = "";
    if (state->bits_k != NULL)
        (void)snprintf(quant, sizeof(quant),
                       "\"select\": {\"base\": \"quantised\", \"identify\": \"quantised\"}, "
                       "\"layered\": {\"exact_ppm\": 0, \"bits_k\": %s, \"bits_v\": %s, "
                       "\"bit_allocation\": \"%s\"}, ",
                       state->bits_k, state->bits_v, state->allocation);
    (void)snprintf(config, sizeof(config),
                   "{%s\"path\": \"/sim\", \"host_bytes\": 0, \"disk_bytes\": \"4GiB\", "
                   "\"staging_bytes\": %" PRIu64 ", \"chunk_tokens\": %" PRIu64 ", "
                   "\"io\": {\"op_bytes\": %" PRIu64 "}, \"max_requests\": 4, "
                   "\"max_request_tokens\": %" PRIu64 ", \"load_policy\": \"%s\", "
                   "\"sim\": {\"bytes_per_s\": %" PRIu64 ", \"op_ns\": %" PRIu64
                   ", \"ops_per_s\": %" PRIu64 "}}",
                   quant, ((uint64_t)1 << 30) / state->scale, state->chunk,
                   state->op_bytes / state->scale, state->tokens + 1, fill, bytes_per_s,
                   80000 * A100_LAYERS / state->layers, 700000 * state->layers / A100_LAYERS);
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = (uint32_t)state->layers,
                               .kv_head_count = (uint32_t)(state->row_bytes / 4 / HEAD),
                               .query_head_count = (uint32_t)(state->row_bytes / 4 / HEAD),
                               .head_size = HEAD,
                               .kv_dtype = SPEC_DTYPE_F16,
                               .weights_id = {"bench-cake", 10}};
    state->api = spec_connector_api(SPEC_ABI_MAJOR);
    state->conn = bench_sim_open(state->disk, &model, config);
    decoder_set(state);
}

static struct spec_memory memory_of(const struct state *state)
{
    uint64_t half_bytes = state->row_bytes / 2, part_bytes = state->tokens * half_bytes;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = state->area,
                                .v_base = state->area + part_bytes,
                                .k_bytes = part_bytes,
                                .v_bytes = part_bytes,
                                .token_stride_bytes = half_bytes,
                                .head_stride_bytes = 2ull * HEAD};
}

static spec_request look_up(struct state *state, uint64_t tokens, uint64_t expected)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = state->ids,
                                        .token_count = tokens + (expected > 0)};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    bench_must(state->api->lookup(state->conn, &params, &found, &error), &error, "lookup");
    if (found.matched_tokens != expected)
        bench_die("lookup promises %" PRIu64 " tokens, %" PRIu64 " expected", found.matched_tokens,
                  expected);
    return found.request;
}

static void rest(struct state *state)
{
    _Atomic uint32_t never = 0;
    (void)sc_exec_wait(state->conn->exec, &never, 0, now_ns(state) + 1000000000);
}

/* In steps, as an engine stores what it computes. */
static void fill_store(struct state *state)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state);
    open_connector(state, "load", 0);
    spec_request request = look_up(state, state->tokens, 0);
    for (uint64_t first = 0, count; first < state->tokens; first += count) {
        spec_ticket ticket = 0;
        count = state->tokens - first < FILL_STEP ? state->tokens - first : FILL_STEP;
        for (uint32_t layer = 0; layer < state->layers; layer++) {
            struct spec_store_params params = {.struct_size = sizeof(params),
                                               .request = request,
                                               .layer = layer,
                                               .first_token = first,
                                               .token_count = count,
                                               .memory = &memory};
            bench_must(state->api->store(state->conn, &params, 1, &ticket, &error), &error,
                       "store");
        }
        spec_status ended = SPEC_PENDING;
        while (ended == SPEC_PENDING) {
            _Atomic uint32_t never = 0;
            (void)sc_exec_wait(state->conn->exec, &never, 0, now_ns(state) + 1000000);
            spec_status polled = state->api->poll(state->conn, &ticket, 1, &ended, &error);
            if (polled != SPEC_OK && polled != SPEC_PENDING)
                bench_must(polled, &error, "poll");
        }
        bench_must(ended, &error, "store");
    }
    bench_must(state->api->release(state->conn, request, &error), &error, "release");
    struct spec_stats stats = {.struct_size = sizeof(stats), .building = 1};
    while (state->bits_k != NULL && stats.building != 0) {
        rest(state);
        bench_must(state->api->stats(state->conn, &stats, &error), &error, "stats");
    }
    state->api->close(state->conn);
}

/* ---- Both ends ------------------------------------------------------------------------------ */

static bool chunk_next(struct engine *engine, struct spec_next_chunk *ret_chunk)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    *ret_chunk = (struct spec_next_chunk){.struct_size = sizeof(*ret_chunk),
                                          .request = engine->request,
                                          .budget_tokens = engine->budget};
    bench_must(engine->state->api->next_chunk(engine->state->conn, ret_chunk, &error), &error,
               "next_chunk");
    return ret_chunk->state == SPEC_CHUNK_COMPUTE;
}

/* What was given out before is computed. */
static void engine_step(struct sc_task *task)
{
    struct engine *engine = SC_TASK_OWNER(task, struct engine, task);
    struct sc_exec *exec = engine->state->conn->exec;
    struct spec_next_chunk chunk;
    if (!chunk_next(engine, &chunk)) {
        atomic_store(&engine->is_met, 1);
        sc_exec_wake(exec, &engine->is_met);
        return;
    }
    engine->computed += chunk.token_count;
    engine->steps++;
    double first = (double)chunk.first_token, end = first + (double)chunk.token_count;
    uint64_t ns = (uint64_t)(a100_compute_ns(first, end) / engine->share);
    sc_exec_post_at(exec, task, SC_IO_CLASS_DEMAND, sc_exec_now_ns(exec) + ns);
}

static void engine_go(struct engine *engine)
{
    atomic_store(&engine->is_met, 0);
    sc_exec_post(engine->state->conn->exec, &engine->task, SC_IO_CLASS_DEMAND);
}

static void engine_await(struct engine *engine)
{
    if (!sc_exec_wait(engine->state->conn->exec, &engine->is_met, 0, SC_EXEC_FOREVER))
        bench_die("the engine stands still");
}

static void tick_step(struct sc_task *task)
{
    struct turn *turn = SC_TASK_OWNER(task, struct turn, task);
    sc_io_sim_disk_rate(turn->state->disk, turn->bytes_per_s);
}

struct told {
    uint64_t ns, computed, steps, wait_ns;
    uint64_t bytes; /* that the loading side asked for */
};

/* To the first token. share 0: nobody computes. */
static struct told run_tail(struct state *state, const struct cell *cell, uint64_t share)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state);
    struct spec_important items[A100_LAYERS];
    struct turn turn = {.task.step = tick_step,
                        .state = state,
                        .bytes_per_s = device_rate(state, cell->later_mbit)};
    uint64_t begin_ns = now_ns(state);
    struct engine engine = {.task.step = engine_step,
                            .state = state,
                            .request = look_up(state, cell->tokens, cell->tokens),
                            .share = (double)share / 100,
                            .budget = state->step * share / 100};
    struct sc_exec *exec = state->conn->exec;
    spec_ticket ticket;
    for (uint32_t i = 0; i < state->layers; i++)
        items[i] = (struct spec_important){.struct_size = sizeof(items[i]),
                                           .flags = SPEC_ITEM_BIDIRECTIONAL,
                                           .request = engine.request,
                                           .layer = i,
                                           .destination = &memory};
    if (cell->later_mbit > 0)
        sc_exec_post_at(exec, &turn.task, SC_IO_CLASS_DEMAND, begin_ns + (uint64_t)cell->later_ns);
    bench_must(state->api->get_important_submit(state->conn, items, state->layers, &ticket, &error),
               &error, "get_important_submit");
    if (share > 0)
        engine_go(&engine);
    bench_must(state->api->get_important_wait(state->conn, ticket, UINT64_MAX, &error), &error,
               "get_important_wait");
    uint64_t waited_ns = now_ns(state) - begin_ns;
    if (share > 0) {
        engine_await(&engine);
        engine_go(&engine); /* what the tail had taken and has not */
        engine_await(&engine);
    }
    struct told told = {.ns = now_ns(state) - begin_ns,
                        .computed = engine.computed,
                        .steps = engine.steps,
                        .wait_ns = waited_ns};
    for (uint32_t i = 0; i < state->layers; i++) {
        told.bytes += items[i].wanted_bytes;
        if (items[i].exact_rows != (state->bits_k == NULL ? items[i].row_count : 0))
            bench_die("%" PRIu64 " of %" PRIu64 " rows are exact", items[i].exact_rows,
                      items[i].row_count);
    }
    if (engine.computed + items[0].row_count != cell->tokens)
        bench_die("%" PRIu64 " tokens computed and %" PRIu64 " loaded of %" PRIu64, engine.computed,
                  items[0].row_count, cell->tokens);
    if (cell->later_mbit > 0)
        (void)sc_exec_cancel(exec, &turn.task);
    bench_must(state->api->release(state->conn, engine.request, &error), &error, "release");
    return told;
}

/* All layers, one after the other, read ahead as an engine would have it. */
static uint64_t run_load(struct state *state, uint64_t tokens)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = memory_of(state);
    uint64_t begin_ns = now_ns(state);
    spec_request request = look_up(state, tokens, tokens);
    for (uint32_t layer = 0; layer < state->layers; layer++) {
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = request,
                                      .layer = layer,
                                      .destination = &memory};
        bench_must(state->api->begin_layer(state->conn, &request, 1, layer, &error), &error,
                   "begin");
        bench_must(state->api->get_important(state->conn, &item, 1, &error), &error,
                   "get_important");
        bench_must(state->api->prefetch_next(state->conn, request, layer, NULL, &error), &error,
                   "prefetch_next");
    }
    uint64_t took_ns = now_ns(state) - begin_ns;
    bench_must(state->api->release(state->conn, request, &error), &error, "release");
    return took_ns;
}

/* ---- Cells ----------------------------------------------------------------------------------- */

static void run_cell(struct state *state, struct cell *cell)
{
    uint64_t cut = 0, whole_ns = 0, alone = cell->share > 0 ? cell->share : 100;
    struct cell at = *cell;
    at.share = alone;
    at.later_mbit = 0;
    double compute = a100_compute_ns(0, (double)cell->tokens) * 100 / (double)alone;
    double oracle = oracle_ns(state, &at, &cut);
    if (cell->later_mbit > 0) {
        cell->later_ns = oracle / 2;
        oracle = oracle_ns(state, cell, &cut);
    }
    uint64_t rate = device_rate(state, cell->mbit);
    struct told load = {0}, both = {0};
    if (cell->share == 0) {
        open_connector(state, "load", rate);
        whole_ns = run_load(state, cell->tokens);
        state->api->close(state->conn);
    }
    open_connector(state, "bidirectional", rate);
    if (!cell->is_mute) {
        load = run_tail(state, cell, 0);
        sc_io_sim_disk_rate(state->disk, rate);
        rest(state);
    } else {
        sc_io_sim_fault_scope(state->disk, "seg-");
        sc_io_sim_fault_ppm(state->disk, SC_SIM_NEVER, 1000000);
    }
    if (cell->share > 0)
        both = run_tail(state, cell, cell->share);
    sc_io_sim_fault_ppm(state->disk, SC_SIM_NEVER, 0);
    (void)sc_io_sim_release_all(state->disk);
    state->api->close(state->conn);
    printf("{\"tokens\": %" PRIu64 ", \"share\": %" PRIu64 ", \"mbit\": %" PRIu64
           ", \"later_mbit\": %" PRIu64 ", \"token_bytes\": %.0f, \"decoded_bytes_per_s\": %.0f, "
           "\"compute_ns\": %.0f, \"load_ns\": %" PRIu64 ", \"whole_ns\": %" PRIu64
           ", \"both_ns\": %" PRIu64 ", \"oracle_ns\": %.0f, \"cut\": %" PRIu64
           ", \"computed\": %" PRIu64 ", \"steps\": %" PRIu64 ", \"wait_ns\": %" PRIu64
           ", \"bytes_ns\": %.0f, \"block_ns\": %.0f}\n",
           cell->tokens, cell->share, cell->mbit, cell->later_mbit, state->token_bytes,
           decoder.real_ns > 0 ? (double)decoder.bytes * 1e9 / (double)decoder.real_ns : 0.0,
           compute, load.ns, whole_ns, both.ns, oracle, cut, both.computed, both.steps,
           both.wait_ns, cell->is_mute ? 0.0 : load_ns(state, &at, (double)cell->tokens),
           a100_compute_ns((double)cell->tokens - 64, (double)cell->tokens));
    (void)fflush(stdout);
}

/* Measures what a load asks for a token. */
static void bytes_measure(struct state *state)
{
    struct cell cell = {.tokens = state->tokens < FIT ? state->tokens : FIT, .mbit = 1000};
    open_connector(state, "bidirectional", 0);
    struct told told = run_tail(state, &cell, 0);
    state->loaded_bytes = (double)told.bytes / (double)cell.tokens;
    state->api->close(state->conn);
}

/* over_ppm: of the rows' bytes, what a load of long rows takes; the device makes up for what one of
 * short rows takes more. */
static void fit_device(struct state *state, uint64_t over_ppm)
{
    struct cell cell = {.tokens = state->tokens < FIT ? state->tokens : FIT, .mbit = 1000};
    open_connector(state, "bidirectional", device_rate(state, cell.mbit));
    double took_ns = (double)run_tail(state, &cell, 0).ns;
    state->api->close(state->conn);
    state->fit = took_ns / load_ns(state, &cell, (double)cell.tokens) / ((double)over_ppm / 1e6);
}

/* Real time: a chunk a call, and MET, beside the loop alone. */
static void run_calls(struct state *state, uint64_t calls)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct bench_series given = {.name = "next_chunk compute", .unit = "call", .work = 1};
    struct bench_series met = {.name = "next_chunk met", .unit = "call", .work = 1};
    open_connector(state, "bidirectional", 0);
    for (uint64_t round = 0; round < 9; round++) {
        struct engine engine = {.state = state, .budget = 1};
        struct spec_next_chunk chunk;
        uint64_t count = calls < state->tokens ? calls : state->tokens;
        engine.request = look_up(state, state->tokens, state->tokens);
        uint64_t begin_ns = bench_now_ns();
        for (uint64_t i = 0; i < count; i++)
            if (!chunk_next(&engine, &chunk))
                bench_die("next_chunk: MET after %" PRIu64 " tokens", i);
        uint64_t middle_ns = bench_now_ns();
        engine.budget = state->tokens;
        (void)chunk_next(&engine, &chunk);
        uint64_t again_ns = bench_now_ns();
        for (uint64_t i = 0; i < count; i++)
            if (chunk_next(&engine, &chunk))
                bench_die("next_chunk: not MET");
        uint64_t end_ns = bench_now_ns();
        bench_series_add(&given, (middle_ns - begin_ns) / count);
        bench_series_add(&met, (end_ns - again_ns) / count);
        bench_must(state->api->release(state->conn, engine.request, &error), &error, "release");
    }
    state->api->close(state->conn);
    bench_series_print(&given);
    bench_series_print(&met);
}

static uint64_t number(const char **at)
{
    char *end;
    uint64_t value = strtoull(*at, &end, 10);
    if (end == *at)
        bench_die("--cells: a number expected at %s", *at);
    *at = end;
    return value;
}

static void expect(const char **at, char sign)
{
    if (*(*at)++ != sign)
        bench_die("--cells: tokens:share:mbit, or tokens:share:mbit>mbit, with commas between");
}

static void run_cells(struct state *state, const char *cells)
{
    for (const char *at = cells; *at != '\0';) {
        struct cell cell = {.tokens = number(&at)};
        expect(&at, ':');
        cell.share = number(&at);
        expect(&at, ':');
        cell.mbit = number(&at);
        cell.is_mute = cell.mbit == 0;
        if (*at == '>') {
            at++;
            cell.later_mbit = number(&at);
        }
        if (*at != '\0')
            expect(&at, ',');
        if (cell.tokens == 0 || cell.tokens > state->tokens || cell.share > 100)
            bench_die("--cells: tokens 1 .. --tokens, share 0 .. 100");
        run_cell(state, &cell);
    }
}

/* Finite 16-bit numbers, channels of six sizes, so that bits per channel differ. */
static void area_fill(const struct state *state)
{
    uint64_t count = state->tokens * state->row_bytes / 2, word = 1;
    uint16_t *numbers = (uint16_t *)(void *)state->area;
    for (uint64_t i = 0; i < count; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        uint64_t exponent = 10 + i % HEAD % 6;
        numbers[i] = (uint16_t)((word >> 48 & 0x83ff) | exponent << 10);
    }
}

int main(int argc, char **argv)
{
    static struct state state;
    struct spec_error error = {.struct_size = sizeof(error)};
    const char *cells = bench_option(argc, argv, "--cells", "");
    uint64_t calls = bench_option_u64(argc, argv, "--calls", 0);
    uint64_t over_ppm = bench_option_u64(argc, argv, "--over", 0);
    state.tokens = bench_option_u64(argc, argv, "--tokens", 32768);
    state.scale = bench_option_u64(argc, argv, "--scale", 16);
    state.layers = bench_option_u64(argc, argv, "--layers", A100_LAYERS);
    state.bits_k = bench_option(argc, argv, "--bits-k", NULL);
    state.bits_v = bench_option(argc, argv, "--bits-v", state.bits_k);
    state.allocation = bench_option(argc, argv, "--allocation", "uniform");
    decoder.bytes_per_s = 1e6 * (double)bench_option_u64(argc, argv, "--decode", 0);
    state.chunk = bench_option_u64(argc, argv, "--chunk", 64);
    state.op_bytes = bench_option_u64(argc, argv, "--op", 1 << 20);
    state.step = bench_option_u64(argc, argv, "--step", STEP);
    state.fit = 1;
    if (state.scale == 0 || 16 % state.scale != 0)
        bench_die("--scale divides 16 (operations of 64 KiB at the least)");
    if (state.layers == 0 || state.layers > A100_LAYERS)
        bench_die("--layers: 1 .. %u", A100_LAYERS);
    if (state.bits_k != NULL && state.scale != 1)
        bench_die("--bits-k: --scale 1 expected, since pages cut quantised rows");
    decoder.bytes_per_s *= (double)state.layers / A100_LAYERS;
    state.row_bytes = A100_TOKEN_SIZE / A100_LAYERS / state.scale;
    state.token_bytes = A100_TOKEN_SIZE;
    state.loaded_bytes = (double)(state.row_bytes * state.layers);
    sc_alloc_init(&state.alloc);
    state.area = bench_huge_memory(state.tokens * state.row_bytes, 1);
    area_fill(&state);
    state.ids = calloc(state.tokens + 1, sizeof(*state.ids));
    if (state.ids == NULL)
        bench_die("no memory");
    for (uint64_t i = 0; i <= state.tokens; i++)
        state.ids[i] = (uint32_t)(bench_mix(i) % 50000);
    struct sc_io_sim_disk_params disk = {.alloc = &state.alloc, .seed = 20261127};
    bench_must(sc_io_sim_disk_open(&disk, &state.disk, &error), &error, "simulated disk");
    fill_store(&state);
    if (state.bits_k != NULL) {
        bytes_measure(&state);
        state.token_bytes = state.loaded_bytes * A100_LAYERS / (double)state.layers;
        decoder.bytes = decoder.real_ns = 0;
    }
    if (over_ppm > 0)
        fit_device(&state, over_ppm);
    run_cells(&state, cells);
    if (calls > 0)
        run_calls(&state, calls);
    sc_io_sim_disk_close(state.disk);
    sc_alloc_done(&state.alloc);
    free(state.area);
    free(state.ids);
    return 0;
}
