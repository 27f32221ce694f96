/* reload SO DIR [ROUNDS]: load, open, use, close, unload, and again; valgrind watches what is left.
 *
 * Holds: ends with 0 when every round went well; frees all that is its own.
 * Threads: one, beside the plugin's. Tests: tests/unit/abi/test_reload.py runs it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/spec_connector.h"
#include "abi/spec_load.h"

enum { TOKENS = 40, HEADS = 2, HEAD_SIZE = 8 };

static int fail(const char *call, spec_status status, const struct spec_error *error)
{
    fprintf(stderr, "reload: %s: status %" PRId32 ": %s\n", call, status, error->text);
    return 1;
}

static int use(const struct spec_api *api, spec_connector *conn, struct spec_error *error)
{
    uint32_t tokens[TOKENS];
    float rows[TOKENS * HEADS * HEAD_SIZE] = {1.0f};
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i;
    struct spec_lookup_params prompt = {
        .struct_size = sizeof(prompt), .tokens = tokens, .token_count = TOKENS};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    spec_status status = api->lookup(conn, &prompt, &found, error);
    if (status != SPEC_OK)
        return fail("lookup", status, error);
    struct spec_memory memory = {.struct_size = sizeof(memory),
                                 .dtype = SPEC_DTYPE_F32,
                                 .k_base = rows,
                                 .v_base = rows,
                                 .k_bytes = sizeof(rows),
                                 .v_bytes = sizeof(rows),
                                 .token_stride_bytes = HEADS * HEAD_SIZE * sizeof(float),
                                 .head_stride_bytes = HEAD_SIZE * sizeof(float)};
    struct spec_store_params store = {.struct_size = sizeof(store),
                                      .request = found.request,
                                      .token_count = TOKENS,
                                      .memory = &memory};
    spec_ticket ticket;
    status = api->store(conn, &store, 1, &ticket, error);
    if (status != SPEC_OK)
        return fail("store", status, error);
    spec_status ended;
    status = api->wait(conn, &ticket, 1, UINT64_MAX, &ended, error);
    return status == SPEC_OK ? 0 : fail("wait", status, error); /* close releases the request */
}

static int one_round(const char *path, const char *dir)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_plugin plugin;
    spec_status status = spec_load(path, &plugin, &error);
    if (status != SPEC_OK)
        return fail("load", status, &error);
    char config[4096];
    (void)snprintf(config, sizeof(config), "{\"path\": \"%s\", \"disk_bytes\": \"64MiB\"}", dir);
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = 1,
                               .kv_head_count = HEADS,
                               .query_head_count = HEADS,
                               .head_size = HEAD_SIZE,
                               .kv_dtype = SPEC_DTYPE_F32,
                               .weights_id = {"reload", 6}};
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = config, .model = &model};
    spec_connector *conn = NULL;
    status = plugin.api->open(&params, &conn, &error);
    int failed = status != SPEC_OK ? fail("open", status, &error) : use(plugin.api, conn, &error);
    plugin.api->close(conn);
    spec_unload(&plugin);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: reload SO DIR [ROUNDS]\n");
        return 2;
    }
    int rounds = argc > 3 ? atoi(argv[3]) : 3;
    int failed = 0;
    for (int i = 0; i < rounds && failed == 0; i++)
        failed = one_round(argv[1], argv[2]);
    return failed;
}
