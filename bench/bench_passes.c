/* bench-passes: how much of a pass larger than staging is kept, through the ABI, on this disk.
 *
 *   waits  the host waits for frames: everything is stored, and the time is the device's
 *   pace   layers arrive at this percentage of that rate; 0: as fast as memory allows
 *
 * Prints a JSON line per pass: tokens, tokens kept, bytes written, and the time from the first
 * layer's call to the last one's. Rows are random, and differ by layer.
 * Threads: the plugin's. Tests: none (a measurement). */
#include "abi/spec_load.h"
#include "bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define HEADS     8u
#define HEAD_SIZE 128u
#define HALF_ROW  (HEADS * HEAD_SIZE * 2u) /* K of a token; V has as many bytes */

struct scene {
    struct spec_plugin plugin;
    spec_connector *conn;
    uint32_t layers;
    uint64_t tokens;
    uint8_t *rows; /* [tokens + layers] rows: a layer's begin at its own number */
    uint32_t *ids;
    uint64_t prompts;
};

static void open_all(struct scene *scene, const char *connector, const char *config)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = scene->layers,
                               .kv_head_count = HEADS,
                               .query_head_count = HEADS,
                               .head_size = HEAD_SIZE,
                               .kv_dtype = SPEC_DTYPE_BF16,
                               .weights_id = {"bench-passes", 12}};
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = config, .model = &model};
    bench_must(spec_load(connector, &scene->plugin, &error), &error, "load");
    if (!SPEC_HAS(scene->plugin.api, wait_kept))
        bench_die("%s: a connector without wait_kept", connector);
    bench_must(scene->plugin.api->open(&params, &scene->conn, &error), &error, "open");
}

static void rows_make(struct scene *scene)
{
    uint64_t bytes = (scene->tokens + scene->layers) * 2 * HALF_ROW;
    scene->rows = bench_huge_memory(bytes, 1);
    scene->ids = malloc(scene->tokens * sizeof(*scene->ids));
    if (scene->rows == NULL || scene->ids == NULL)
        bench_die("no memory for %" PRIu64 " tokens", scene->tokens);
    for (uint64_t i = 0; i < bytes; i += 8)
        *(uint64_t *)(scene->rows + i) = bench_mix(i);
}

static uint64_t write_bytes(struct scene *scene)
{
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    struct spec_error error = {.struct_size = sizeof(error)};
    bench_must(scene->plugin.api->stats(scene->conn, &stats, &error), &error, "stats");
    return stats.write_bytes;
}

static void sleep_until(uint64_t ns)
{
    struct timespec at = {.tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
        continue;
}

/* One pass of a new prompt. pace_ns: between layers; wait_ns: for room. Returns the time until all
 * that is kept is durable. */
static uint64_t pass(struct scene *scene, const char *name, uint64_t pace_ns, uint64_t wait_ns)
{
    const struct spec_api *api = scene->plugin.api;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    for (uint64_t i = 0; i < scene->tokens; i++)
        scene->ids[i] = (uint32_t)(bench_mix(scene->prompts * scene->tokens + i) >> 40);
    scene->prompts++;
    const struct spec_lookup_params lookup = {
        .struct_size = sizeof(lookup), .tokens = scene->ids, .token_count = scene->tokens};
    bench_must(api->lookup(scene->conn, &lookup, &found, &error), &error, "lookup");
    uint64_t written = write_bytes(scene), begin_ns = bench_now_ns(), last_ns = begin_ns;
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < scene->layers; layer++) {
        uint8_t *rows = scene->rows + (uint64_t)layer * 2 * HALF_ROW;
        struct spec_memory memory = {.struct_size = sizeof(memory),
                                     .dtype = SPEC_DTYPE_BF16,
                                     .k_base = rows,
                                     .v_base = rows + HALF_ROW,
                                     .k_bytes = scene->tokens * 2 * HALF_ROW - HALF_ROW,
                                     .v_bytes = scene->tokens * 2 * HALF_ROW - HALF_ROW,
                                     .token_stride_bytes = 2 * HALF_ROW,
                                     .head_stride_bytes = HEAD_SIZE * 2};
        const struct spec_store_params store = {.struct_size = sizeof(store),
                                                .flags = wait_ns > 0 ? SPEC_STORE_WAIT : 0,
                                                .request = found.request,
                                                .layer = layer,
                                                .token_count = scene->tokens,
                                                .memory = &memory,
                                                .wait_ns = wait_ns};
        if (layer > 0 && pace_ns > 0)
            sleep_until(begin_ns + layer * pace_ns);
        last_ns = bench_now_ns();
        bench_must(api->store(scene->conn, &store, 1, &ticket, &error), &error, "store");
    }
    spec_status status;
    uint64_t kept = 0;
    bench_must(api->wait_kept(scene->conn, &ticket, 1, UINT64_MAX, &status, &kept, &error), &error,
               "wait_kept");
    uint64_t took_ns = bench_now_ns() - begin_ns;
    bench_must(api->release(scene->conn, found.request, &error), &error, "release");
    printf("{\"pass\": \"%s\", \"tokens\": %" PRIu64 ", \"kept\": %" PRIu64
           ", \"written\": %" PRIu64 ", \"ns\": %" PRIu64 ", \"durable_ns\": %" PRIu64 "}\n",
           name, scene->tokens, kept, write_bytes(scene) - written, last_ns - begin_ns, took_ns);
    return took_ns;
}

int main(int argc, char **argv)
{
    const char *connector = bench_option(argc, argv, "--connector", NULL);
    const char *config = bench_option(argc, argv, "--config", NULL);
    uint64_t rounds = bench_option_u64(argc, argv, "--rounds", 3);
    static const uint64_t PERCENT[] = {0, 800, 400, 200, 100};
    struct scene scene = {.layers = (uint32_t)bench_option_u64(argc, argv, "--layers", 32),
                          .tokens = bench_option_u64(argc, argv, "--tokens", 8192)};
    if (connector == NULL || config == NULL || scene.layers == 0 || scene.tokens == 0)
        bench_die("usage: bench-passes --connector SO --config JSON [--layers N] [--tokens N] "
                  "[--rounds N]");
    rows_make(&scene);
    open_all(&scene, connector, config);
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t took_ns = pass(&scene, "waits", 0, UINT64_MAX);
        for (uint32_t i = 0; i < sizeof(PERCENT) / sizeof(PERCENT[0]); i++) {
            char name[32];
            uint64_t pace_ns = PERCENT[i] > 0 ? took_ns * 100 / PERCENT[i] / scene.layers : 0;
            (void)snprintf(name, sizeof(name), "%" PRIu64, PERCENT[i]);
            (void)pass(&scene, name, pace_ns, 0);
        }
    }
    scene.plugin.api->close(scene.conn);
    free(scene.rows);
    free(scene.ids);
    return 0;
}
