/* A store of a newer format, opened through the ABI: one clear error, and nothing is changed.
 *
 *   DIR/store.msgpack   "SCL1" | payload bytes u32 | sequence u64 | checksum u64 | payload
 *   payload             a msgpack map with "version": the format's, here raised to 127, with a
 *                       checksum that is right
 *
 * Holds: the store opens again, with all that it had, once its own version is put back.
 * Does not: link the plugin; argv[1] is the shared object.
 * Threads: one, beside the plugin's. Tests: it is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "abi/spec_connector.h"
#include "abi/spec_load.h"

#define FRAME_BYTES 24u

static const char *plugin_path;
static char dir[64], identity_path[128];

static spec_status try_open(const struct spec_api *api, spec_connector **ret_conn,
                            struct spec_error *reterr)
{
    char config[256];
    (void)snprintf(config, sizeof(config), "{\"path\": \"%s/store\", \"disk_bytes\": \"64MiB\"}",
                   dir);
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = 1,
                               .kv_head_count = 1,
                               .query_head_count = 1,
                               .head_size = 8,
                               .kv_dtype = SPEC_DTYPE_F32,
                               .weights_id = {"newer", 5}};
    struct spec_open_params params = {
        .struct_size = sizeof(params), .role = SPEC_ROLE_WRITER, .config = config, .model = &model};
    return api->open(&params, ret_conn, reterr);
}

static uint64_t lookup(const struct spec_api *api, spec_connector *conn, spec_request *ret_request)
{
    static const uint32_t TOKENS[20] = {1, 2, 3};
    struct spec_lookup_params prompt = {
        .struct_size = sizeof(prompt), .tokens = TOKENS, .token_count = 20};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    assert_int_equal(api->lookup(conn, &prompt, &found, NULL), SPEC_OK);
    *ret_request = found.request;
    return found.matched_tokens;
}

static void store(const struct spec_api *api, spec_connector *conn)
{
    static float rows[20 * 8];
    struct spec_memory memory = {.struct_size = sizeof(memory),
                                 .dtype = SPEC_DTYPE_F32,
                                 .k_base = rows,
                                 .v_base = rows,
                                 .k_bytes = sizeof(rows),
                                 .v_bytes = sizeof(rows),
                                 .token_stride_bytes = 32,
                                 .head_stride_bytes = 32};
    struct spec_store_params params = {
        .struct_size = sizeof(params), .token_count = 20, .memory = &memory};
    spec_ticket ticket;
    spec_status ended;
    assert_int_equal(lookup(api, conn, &params.request), 0);
    assert_int_equal(api->store(conn, &params, 1, &ticket, NULL), SPEC_OK);
    assert_int_equal(api->wait(conn, &ticket, 1, UINT64_MAX, &ended, NULL), SPEC_OK);
    assert_int_equal(ended, SPEC_OK);
    assert_int_equal(api->release(conn, params.request, NULL), SPEC_OK);
}

static uint64_t read_identity(uint8_t *bytes, uint64_t capacity)
{
    FILE *file = fopen(identity_path, "rb");
    assert_non_null(file);
    uint64_t count = fread(bytes, 1, capacity, file);
    fclose(file);
    return count;
}

static void write_identity(const uint8_t *bytes, uint64_t count)
{
    FILE *file = fopen(identity_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

/* Raises the map's "version", a one-byte msgpack integer behind its key, and signs it anew. */
static void make_newer(uint8_t *bytes, uint64_t count)
{
    uint8_t *version = memmem(bytes + FRAME_BYTES, count - FRAME_BYTES, "\xa7version", 8);
    assert_non_null(version);
    assert_in_range(version[8], 1, 126);
    version[8] = 127;
    XXH64_hash_t seed = XXH3_64bits_withSeed(bytes, 16, 0);
    XXH64_hash_t checksum = XXH3_64bits_withSeed(bytes + FRAME_BYTES, count - FRAME_BYTES, seed);
    memcpy(bytes + 16, &checksum, sizeof(checksum));
}

static void a_newer_store_is_refused_and_left_as_it_was(void **state)
{
    (void)state;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_plugin plugin = {0};
    spec_connector *conn = NULL;
    spec_request request;
    uint8_t own[512], newer[512], after[512];
    assert_int_equal(spec_load(plugin_path, &plugin, &error), SPEC_OK);
    const struct spec_api *api = plugin.api;
    assert_int_equal(try_open(api, &conn, &error), SPEC_OK);
    store(api, conn);
    api->close(conn);
    conn = NULL;
    uint64_t count = read_identity(own, sizeof(own));
    assert_in_range(count, FRAME_BYTES + 1, sizeof(own) - 1);
    memcpy(newer, own, count);
    make_newer(newer, count);
    write_identity(newer, count);
    assert_int_equal(try_open(api, &conn, &error), SPEC_E_VERSION);
    assert_null(conn);
    print_message("%s\n", error.text);
    assert_non_null(strstr(error.text, "127")); /* it says which version it found */
    assert_int_equal(read_identity(after, sizeof(after)), count);
    assert_memory_equal(after, newer, count);
    write_identity(own, count);
    assert_int_equal(try_open(api, &conn, &error), SPEC_OK);
    assert_int_equal(lookup(api, conn, &request), 19);
    api->close(conn);
    spec_unload(&plugin);
}

int main(int argc, char **argv)
{
    char command[128];
    (void)snprintf(dir, sizeof(dir), "newer-store-XXXXXX");
    if (argc != 2 || mkdtemp(dir) == NULL) {
        fprintf(stderr, "usage: test_newer_store SO   (in a directory that can be written)\n");
        return 2;
    }
    plugin_path = argv[1];
    (void)snprintf(identity_path, sizeof(identity_path), "%s/store/store.msgpack", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newer_store_is_refused_and_left_as_it_was),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command) == 0 && failed == 0 ? 0 : 1;
}
