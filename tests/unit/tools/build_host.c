/* A host whose store lacked selectors: it stores rows under one configuration, opens the store with
 * another, and has maintain build what that one wants.
 *
 *   build_host PLUGIN.so CONFIG_BEFORE CONFIG_AFTER [LAYERS HEADS HEAD_SIZE TOKENS]
 *
 * Holds: ends with 0 only when every chunk that it stored was built.
 * Threads: one. Tests: it is run by test_ctl.py. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/spec_connector.h"
#include "abi/spec_load.h"

static struct spec_error error = {.struct_size = sizeof(error)};

static void check(spec_status status, const char *call)
{
    if (status == SPEC_OK)
        return;
    fprintf(stderr, "build_host: %s: status %" PRId32 ": %s\n", call, status, error.text);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static spec_connector *open_with(const struct spec_api *api, const struct spec_model *model,
                                 const char *config)
{
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = config, .model = model};
    spec_connector *conn = NULL;
    check(api->open(&params, &conn, &error), "open");
    return conn;
}

/* Returns the chunks that were stored. */
static uint64_t store(const struct spec_api *api, spec_connector *conn,
                      const struct spec_model *model, uint64_t token_count)
{
    uint64_t row_bytes = (uint64_t)model->kv_head_count * model->head_size * 2;
    uint32_t *tokens = calloc(token_count, sizeof(*tokens));
    uint8_t *rows = malloc(2 * token_count * row_bytes);
    if (tokens == NULL || rows == NULL)
        exit(1);
    for (uint64_t i = 0; i < token_count; i++)
        tokens[i] = (uint32_t)(1000 + i * i % 97);
    for (uint64_t i = 0; i < 2 * token_count * row_bytes; i++)
        rows[i] = (uint8_t)((i % 251 + i / 4096) & (i % 2 == 1 ? 0xbf : 0xff)); /* finite */
    struct spec_lookup_params prompt = {
        .struct_size = sizeof(prompt), .tokens = tokens, .token_count = token_count};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    check(api->lookup(conn, &prompt, &found, &error), "lookup");
    spec_ticket ticket = 0; /* the last layer's */
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        struct spec_memory memory = {.struct_size = sizeof(memory),
                                     .dtype = model->kv_dtype,
                                     .k_base = rows,
                                     .v_base = rows + token_count * row_bytes,
                                     .k_bytes = token_count * row_bytes,
                                     .v_bytes = token_count * row_bytes,
                                     .token_stride_bytes = row_bytes,
                                     .head_stride_bytes = model->head_size * 2ull};
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = found.request,
                                           .layer = layer,
                                           .token_count = token_count,
                                           .memory = &memory};
        check(api->store(conn, &params, 1, &ticket, &error), "store");
    }
    spec_status status;
    check(api->wait(conn, &ticket, 1, UINT64_MAX, &status, &error), "wait");
    check(status, "store's ticket");
    check(api->release(conn, found.request, &error), "release");
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    check(api->stats(conn, &stats, &error), "stats");
    free(rows);
    free(tokens);
    return stats.stored_chunks;
}

/* Until every chunk was built; how long it took. */
static uint64_t build(const struct spec_api *api, spec_connector *conn, uint64_t chunks,
                      struct spec_stats *ret_stats)
{
    struct spec_maintain_params params = {.struct_size = sizeof(params),
                                          .flags = SPEC_MAINTAIN_BUILD};
    uint64_t begin_ns = now_ns();
    check(api->maintain(conn, &params, &error), "maintain");
    do {
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        *ret_stats = (struct spec_stats){.struct_size = sizeof(*ret_stats)};
        check(api->stats(conn, ret_stats, &error), "stats");
    } while (ret_stats->built_chunks < chunks);
    return now_ns() - begin_ns;
}

static uint32_t number(char **argv, int argc, int i, uint32_t otherwise)
{
    return i < argc ? (uint32_t)strtoul(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: build_host PLUGIN.so BEFORE AFTER "
                        "[LAYERS HEADS HEAD_SIZE TOKENS]\n");
        return 2;
    }
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = number(argv, argc, 4, 2),
                               .kv_head_count = number(argv, argc, 5, 3),
                               .query_head_count = number(argv, argc, 5, 3),
                               .head_size = number(argv, argc, 6, 16),
                               .kv_dtype = SPEC_DTYPE_F16,
                               .weights_id = {"build-host", 10}};
    struct spec_plugin plugin = {0};
    struct spec_stats stats = {0};
    check(spec_load(argv[1], &plugin, &error), "load");
    spec_connector *conn = open_with(plugin.api, &model, argv[2]);
    uint64_t chunks = store(plugin.api, conn, &model, number(argv, argc, 7, 150));
    plugin.api->close(conn);
    conn = open_with(plugin.api, &model, argv[3]);
    uint64_t took_ns = build(plugin.api, conn, chunks, &stats);
    plugin.api->close(conn);
    spec_unload(&plugin);
    printf("%" PRIu64 " chunks, %" PRIu64 " bytes read, %" PRIu64 " bytes built, %" PRIu64 " us\n",
           stats.built_chunks, stats.read_bytes, stats.built_bytes, took_ns / 1000);
    return 0;
}
