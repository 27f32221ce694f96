/* The smallest host: how an engine loads the plugin and uses it, in one page.
 *
 *   minimal_host PLUGIN.so CONFIG
 *     1  lookup: a miss     2  layer by layer: store       3  wait, release
 *     4  lookup: a hit      5  layer by layer: begin_layer, get_important, prefetch_next
 *     6  compare every byte, close
 *
 * A made-up model of two layers; where an engine would compute KV, make_rows makes some up.
 *
 * Holds: ends with 0 only when the second lookup hit and every delivered byte is what was stored.
 * Threads: one. Tests: it is run by ctest (examples/CMakeLists.txt). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spec_connector.h>
#include <spec_load.h>

enum { LAYERS = 2, HEADS = 3, HEAD_SIZE = 16, TOKENS = 150, ROW = HEADS * HEAD_SIZE };

static uint32_t tokens[TOKENS];
static float k_rows[LAYERS][TOKENS][ROW], v_rows[LAYERS][TOKENS][ROW];

static void make_rows(void)
{
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = 1000 + i * i % 97;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t i = 0; i < TOKENS * ROW; i++) {
            k_rows[layer][i / ROW][i % ROW] = (float)(tokens[i / ROW] + layer) / (float)(i + 1);
            v_rows[layer][i / ROW][i % ROW] = -(float)(i + layer);
        }
}

/* Rows [token][head][d] of K and of V, described to the plugin. */
static struct spec_memory describe(void *k, void *v, uint64_t bytes)
{
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F32,
                                .k_base = k,
                                .v_base = v,
                                .k_bytes = bytes,
                                .v_bytes = bytes,
                                .token_stride_bytes = ROW * sizeof(float),
                                .head_stride_bytes = HEAD_SIZE * sizeof(float)};
}

static void check(spec_status status, const char *call, const struct spec_error *error)
{
    if (status == SPEC_OK)
        return;
    fprintf(stderr, "minimal_host: %s: status %" PRId32 ": %s\n", call, status, error->text);
    exit(1);
}

static void store_prompt(const struct spec_api *api, spec_connector *conn, spec_request request)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_ticket ticket = 0; /* the last layer's is the pass's */
    spec_status status;
    for (uint32_t layer = 0; layer < LAYERS;
         layer++) { /* an engine: after each layer's attention */
        struct spec_memory memory = describe(k_rows[layer], v_rows[layer], sizeof(k_rows[layer]));
        struct spec_store_params store = {.struct_size = sizeof(store),
                                          .request = request,
                                          .layer = layer,
                                          .token_count = TOKENS,
                                          .memory = &memory};
        check(api->store(conn, &store, 1, &ticket, &error), "store", &error);
    }
    check(api->wait(conn, &ticket, 1, UINT64_MAX, &status, &error), "wait", &error);
    printf("store   %u tokens, %u layers: status %" PRId32 "\n", TOKENS, LAYERS, status);
}

/* Returns how many layers came back other than they were stored. */
static int load_prompt(const struct spec_api *api, spec_connector *conn,
                       const struct spec_lookup_result *found)
{
    static float k[TOKENS][ROW], v[TOKENS][ROW];
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t bytes = found->matched_tokens * sizeof(k[0]);
    int wrong = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        check(api->begin_layer(conn, &found->request, 1, layer, &error), "begin_layer", &error);
        struct spec_memory memory = describe(k, v, sizeof(k));
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = found->request,
                                      .layer = layer,
                                      .destination = &memory};
        check(api->get_important(conn, &item, 1, &error), "get_important", &error);
        check(api->prefetch_next(conn, found->request, layer, NULL, &error), "prefetch", &error);
        int same = item.row_count == found->matched_tokens &&
                   memcmp(k, k_rows[layer], bytes) == 0 && memcmp(v, v_rows[layer], bytes) == 0;
        printf("load    layer %" PRIu32 ": %" PRIu64 " rows, %" PRIu64 " bytes read, %s\n", layer,
               item.row_count, item.read_bytes, same ? "as stored" : "NOT as stored");
        wrong += !same;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: minimal_host PLUGIN.so CONFIG   (a file, or JSON text)\n");
        return 2;
    }
    make_rows();
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_plugin plugin;
    check(spec_load(argv[1], &plugin, &error), "load", &error);
    const struct spec_api *api = plugin.api;
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = LAYERS,
                               .kv_head_count = HEADS,
                               .query_head_count = HEADS,
                               .head_size = HEAD_SIZE,
                               .kv_dtype = SPEC_DTYPE_F32,
                               .weights_id = {"minimal-host", 12}};
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = argv[2], .model = &model};
    spec_connector *conn = NULL;
    check(api->open(&params, &conn, &error), "open", &error);
    printf("loaded  version %u.%u\n", api->major, api->minor);

    struct spec_lookup_params prompt = {
        .struct_size = sizeof(prompt), .tokens = tokens, .token_count = TOKENS};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    check(api->lookup(conn, &prompt, &found, &error), "lookup", &error);
    printf("lookup  %" PRIu64 " of %d tokens are stored\n", found.matched_tokens, TOKENS);
    store_prompt(api, conn, found.request);
    check(api->release(conn, found.request, &error), "release", &error);

    check(api->lookup(conn, &prompt, &found, &error), "lookup", &error);
    printf("lookup  %" PRIu64 " of %d tokens are stored\n", found.matched_tokens, TOKENS);
    int wrong = found.state == SPEC_LOOKUP_HIT ? load_prompt(api, conn, &found) : 1;
    check(api->release(conn, found.request, &error), "release", &error);
    api->close(conn);
    spec_unload(&plugin);
    printf("%s\n", wrong == 0 ? "every byte is what was stored" : "FAILED");
    return wrong == 0 ? 0 : 1;
}
