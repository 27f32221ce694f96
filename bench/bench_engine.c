/* bench-engine: how close the reference engine is to the machine's limits. Contenders in turn:
 *
 *   sgemm    OpenBLAS at 1024 x 576 x 1536 (m, k, n), same threads
 *   prefill  a pass of --tokens tokens: 2 x weights x tokens flop
 *   stream   one read of the decode step's weight bytes, same threads
 *   decode   one token after --tokens
 *
 * Threads: --threads. Tests: none (a measurement); its numbers are checked by bench/run. */
#include "bench/bench.h"
#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/gemm.h"
#include "conformance/engine/pool.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#define GEMM_M 1024
#define GEMM_K 576
#define GEMM_N 1536

struct state {
    struct eng_model *model;
    struct eng_pool *pool;
    struct eng_kv kv;
    uint32_t *tokens;
    uint64_t token_count;
    float *a, *b, *c, *logits;
    uint64_t *stream;
    uint64_t stream_words;
    uint64_t sums[64]; /* one a part: keeps the reads from being dropped */
};

static void *take(uint64_t count, uint64_t bytes)
{
    void *memory = calloc(count, bytes);
    if (memory == NULL)
        bench_die("no memory");
    return memory;
}

/* Wide loads and independent sums: a plain read that waits for memory, not for additions. */
typedef uint64_t wide __attribute__((vector_size(64)));

static void read_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    struct state *state = arg;
    const wide *words = (const wide *)(const void *)state->stream;
    uint64_t first, end;
    wide sums[4] = {{0}};
    (void)thread;
    eng_pool_share(state->stream_words / 32, part, part_count, &first, &end);
    for (uint64_t i = first * 4; i < end * 4; i += 4)
        for (int j = 0; j < 4; j++)
            sums[j] += words[i + (uint64_t)j];
    wide sum = sums[0] + sums[1] + sums[2] + sums[3];
    for (int i = 0; i < 8; i++)
        state->sums[part] += sum[i];
}

static uint64_t time_sgemm(struct state *state)
{
    uint64_t start = bench_now_ns();
    for (int i = 0; i < 8; i++)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, GEMM_M, GEMM_N, GEMM_K, 1.0f, state->a,
                    GEMM_K, state->b, GEMM_K, 0.0f, state->c, GEMM_N);
    return (bench_now_ns() - start) / 8;
}

static uint64_t time_forward(struct state *state, uint64_t first, uint64_t count)
{
    struct eng_error error;
    struct eng_pass pass = {.kv = &state->kv,
                            .tokens = state->tokens + first,
                            .count = count,
                            .first_position = first,
                            .want = ENG_LOGITS_LAST,
                            .logits = state->logits};
    eng_kv_truncate(&state->kv, first);
    uint64_t start = bench_now_ns();
    if (eng_forward(state->model, &pass, 1, NULL, &error) != ENG_OK)
        bench_die("%s", error.text);
    return bench_now_ns() - start;
}

static uint64_t time_stream(struct state *state, uint32_t threads)
{
    uint64_t start = bench_now_ns();
    eng_pool_run(state->pool, read_part, state, threads);
    return bench_now_ns() - start;
}

static void open_state(struct state *state, const char *dir, uint32_t threads)
{
    struct eng_error error;
    if (eng_model_open(dir, threads, &state->model, &error) != ENG_OK ||
        eng_pool_open(threads, &state->pool, &error) != ENG_OK ||
        eng_kv_init(&state->kv, eng_model_config(state->model), ENG_F32, state->token_count + 1,
                    &error) != ENG_OK)
        bench_die("%s", error.text);
    eng_kv_touch(&state->kv);
    const struct eng_config *config = eng_model_config(state->model);
    state->tokens = take(state->token_count + 1, sizeof(uint32_t));
    for (uint64_t i = 0; i <= state->token_count; i++)
        state->tokens[i] = (uint32_t)((i * 7919 + 11) % config->vocab);
    state->logits = take(config->vocab, sizeof(float));
    state->a = take(GEMM_M * GEMM_K, sizeof(float));
    state->b = take(GEMM_N * GEMM_K, sizeof(float));
    state->c = take(GEMM_M * GEMM_N, sizeof(float));
    for (int i = 0; i < GEMM_M * GEMM_K; i++)
        state->a[i] = (float)(i % 13) * 0.25f - 1.0f;
    for (int i = 0; i < GEMM_N * GEMM_K; i++)
        state->b[i] = (float)(i % 11) * 0.25f - 1.0f;
    state->stream_words = eng_model_weight_bytes(state->model) / 256 * 32;
    /* Huge pages: the contender at its best. */
    state->stream = bench_huge_memory(state->stream_words * sizeof(uint64_t), 1);
}

int main(int argc, char **argv)
{
    static struct state state;
    const char *dir = bench_option(argc, argv, "--model", "models/opt-recall");
    uint64_t rounds = bench_option_u64(argc, argv, "--rounds", 5);
    uint32_t threads = (uint32_t)bench_option_u64(argc, argv, "--threads", 2);
    uint64_t bytes_each = bench_option_u64(argc, argv, "--weight-bytes", 2);
    state.token_count = bench_option_u64(argc, argv, "--tokens", 1024);
    if (threads == 0 || threads > 64 || bytes_each == 0)
        bench_die("--threads 1 .. 64 and --weight-bytes 2 or 4 expected");
    openblas_set_num_threads((int)threads);
    open_state(&state, dir, threads);
    double weights = (double)eng_model_weight_bytes(state.model) / (double)bytes_each;
    static struct bench_series sgemm = {.name = "sgemm", .unit = "flop"};
    static struct bench_series prefill = {.name = "prefill", .unit = "flop"};
    static struct bench_series stream = {.name = "stream", .unit = "byte"};
    static struct bench_series decode = {.name = "decode", .unit = "byte"};
    sgemm.work = 2.0 * GEMM_M * GEMM_K * GEMM_N;
    prefill.work = 2.0 * weights * (double)state.token_count;
    stream.work = decode.work = (double)eng_model_weight_bytes(state.model);
    time_sgemm(&state);
    time_forward(&state, 0, state.token_count);
    for (uint64_t i = 0; i < rounds; i++) {
        bench_series_add(&sgemm, time_sgemm(&state));
        bench_series_add(&prefill, time_forward(&state, 0, state.token_count));
        bench_series_add(&stream, time_stream(&state, threads));
        for (int j = 0; j < 3; j++)
            bench_series_add(&decode, time_forward(&state, state.token_count, 1));
        bench_series_add(&stream, time_stream(&state, threads));
    }
    bench_series_print(&sgemm);
    bench_series_print(&prefill);
    bench_series_print(&stream);
    bench_series_print(&decode);
    eng_kv_done(&state.kv);
    eng_pool_close(state.pool);
    eng_model_close(state.model);
    free(state.tokens), free(state.logits), free(state.stream);
    free(state.a), free(state.b), free(state.c);
    return 0;
}
