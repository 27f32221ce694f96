/* The smallest host of objects: values by key that are still there after the store was closed.
 *
 *   minimal_objects PLUGIN.so CONFIG
 *     1  open, put two values, close
 *     2  open, ask which keys exist, get both values, compare every byte, close
 *
 * An engine that moves KV blocks as opaque bytes needs no more calls than these.
 *
 * Holds: ends with 0 only if both values came back as they were put.
 * Threads: one. Tests: it is run by ctest (examples/CMakeLists.txt). */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spec_objects.h>

enum { KEYS = 2, KEY_BYTES = 8, VALUE_BYTES = 65536, PAGE_BYTES = 4096 };

static const char key_data[] = "block-00block-01";
/* Whole pages, so that the device writes and reads this memory without a copy. */
_Alignas(PAGE_BYTES) static unsigned char put_values[KEYS][VALUE_BYTES];
_Alignas(PAGE_BYTES) static unsigned char got_values[KEYS][VALUE_BYTES];

static void check(spec_status status, const char *call, const struct spec_error *error)
{
    if (status == SPEC_OK)
        return;
    fprintf(stderr, "minimal_objects: %s: status %" PRId32 ": %s\n", call, status, error->text);
    exit(1);
}

/* Loads the plugin; it stays loaded. A host that links -lspec_connector needs only the last call.
 */
static const struct spec_objects_api *load(const char *path)
{
    const struct spec_objects_api *(*get_api)(uint32_t) = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "spec_connector_objects_api") : NULL;
    if (symbol == NULL) {
        fprintf(stderr, "minimal_objects: %s\n", dlerror());
        exit(1);
    }
    memcpy(&get_api, &symbol, sizeof(get_api)); /* ISO C has no cast from object to function */
    const struct spec_objects_api *api = get_api(SPEC_OBJECTS_MAJOR);
    if (api == NULL || (SPEC_OBJECTS_MAJOR == 0 && api->minor != SPEC_OBJECTS_MINOR)) {
        fprintf(stderr, "minimal_objects: %s: another version of the interface\n", path);
        exit(1);
    }
    return api;
}

/* Opens the store, and in it the values of one model and layout. */
static spec_domain open_store(const struct spec_objects_api *api, const char *config,
                              spec_objects **ret_objects)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_objects_params params = {
        .struct_size = sizeof(params), .rank_count = 1, .config = config};
    struct spec_domain_params identity = {.struct_size = sizeof(identity),
                                          .identity = {"minimal-objects", 15}};
    spec_domain domain = 0;
    check(api->open(&params, ret_objects, &error), "open", &error);
    check(api->domain_open(*ret_objects, &identity, &domain, &error), "domain_open", &error);
    return domain;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: minimal_objects PLUGIN.so CONFIG   (a file, or JSON text)\n");
        return 2;
    }
    const struct spec_objects_api *api = load(argv[1]);
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = KEYS, .data = key_data, .key_bytes = KEY_BYTES};
    uint64_t from[KEYS] = {(uintptr_t)put_values[0], (uintptr_t)put_values[1]};
    uint64_t to[KEYS] = {(uintptr_t)got_values[0], (uintptr_t)got_values[1]};
    struct spec_pieces pieces = {
        .struct_size = sizeof(pieces), .pieces = 1, .addresses = from, .piece_bytes = VALUE_BYTES};
    int32_t status[KEYS];
    struct spec_transfer_params transfer = {.struct_size = sizeof(transfer), .ret_status = status};
    for (uint32_t i = 0; i < KEYS * VALUE_BYTES; i++)
        put_values[i / VALUE_BYTES][i % VALUE_BYTES] = (unsigned char)(i * 31 + i / 251);

    spec_objects *objects = NULL;
    spec_domain domain = open_store(api, argv[2], &objects);
    check(api->put(objects, domain, &keys, &pieces, &transfer, &error), "put", &error);
    for (uint32_t i = 0; i < KEYS; i++)
        printf("put     %.*s: %s\n", KEY_BYTES, key_data + i * KEY_BYTES,
               status[i] == SPEC_KEY_DONE || status[i] == SPEC_KEY_STORED ? "stored" : "failed");
    check(api->domain_close(objects, domain, &error), "domain_close", &error);
    api->close(objects);

    domain = open_store(api, argv[2], &objects);
    struct spec_exists_params exists = {.struct_size = sizeof(exists), .flags = SPEC_EXISTS_HOLD};
    uint64_t found = 0;
    check(api->exists(objects, domain, &keys, &exists, &found, &error), "exists", &error);
    printf("exists  %" PRIu64 " of %d keys\n", found, KEYS);
    pieces.addresses = to;
    check(api->get(objects, domain, &keys, &pieces, &transfer, &error), "get", &error);
    int same = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        same +=
            status[i] == SPEC_KEY_DONE && memcmp(put_values[i], got_values[i], VALUE_BYTES) == 0;
    check(api->domain_close(objects, domain, &error), "domain_close", &error);
    api->close(objects);
    printf("%s\n", same == KEYS ? "every byte is what was put" : "FAILED");
    return same == KEYS ? 0 : 1;
}
