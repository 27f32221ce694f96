/* bench-memory: memory of an open connector and its open requests.
 *
 *   asked      bytes from the host's allocator
 *   address    growth of the process's address space since before open
 *   resident   growth of resident bytes: after open, and after each number of lookups
 *
 * The model has 32 layers of 8 KV heads of 128 values. Lookups find nothing, and their requests
 * stay open. A BUSY lookup ends them.
 * Threads: the plugin's. Tests: none (a measurement). */
#include "abi/spec_load.h"
#include "bench/bench.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t asked;

static void *memory_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    (void)user;
    atomic_fetch_add(&asked, bytes);
    return aligned_alloc(align_bytes, (bytes + align_bytes - 1) / align_bytes * align_bytes);
}

static void memory_free(void *memory, uint64_t bytes, void *user)
{
    (void)user;
    atomic_fetch_sub(&asked, bytes);
    free(memory);
}

struct size {
    uint64_t address, resident;
};

static struct size size_now(void)
{
    struct size size = {0, 0};
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%" SCNu64 " %" SCNu64, &size.address, &size.resident) != 2)
        bench_die("/proc/self/statm cannot be read");
    (void)fclose(file);
    return (struct size){size.address * 4096, size.resident * 4096};
}

int main(int argc, char **argv)
{
    uint64_t lookups = bench_option_u64(argc, argv, "--lookups", 0), opened = 0;
    uint64_t count = bench_option_u64(argc, argv, "--tokens", 1000);
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_alloc alloc = {
        .struct_size = sizeof(alloc), .alloc = memory_alloc, .free = memory_free};
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = 32,
                               .kv_head_count = 8,
                               .query_head_count = 32,
                               .head_size = 128,
                               .kv_dtype = SPEC_DTYPE_BF16,
                               .rope_theta = 500000,
                               .weights_id = {"bench-memory", 12}};
    struct spec_open_params params = {.struct_size = sizeof(params),
                                      .config = bench_option(argc, argv, "--config", ""),
                                      .model = &model,
                                      .alloc = &alloc};
    struct spec_plugin plugin = {NULL, NULL};
    spec_connector *conn = NULL;
    bench_must(spec_load(bench_option(argc, argv, "--connector", ""), &plugin, &error), &error,
               "load");
    uint32_t *tokens = malloc((count > 0 ? count : 1) * sizeof(*tokens));
    for (uint64_t i = 0; tokens != NULL && i < count; i++)
        tokens[i] = (uint32_t)i;
    struct size before = size_now();
    bench_must(plugin.api->open(&params, &conn, &error), &error, "open");
    struct size after = size_now();
    struct spec_lookup_params prompt = {
        .struct_size = sizeof(prompt), .tokens = tokens, .token_count = count};
    for (; opened < lookups; opened++) {
        struct spec_lookup_result result = {.struct_size = sizeof(result)};
        spec_status status = plugin.api->lookup(conn, &prompt, &result, &error);
        if (status == SPEC_E_BUSY)
            break;
        bench_must(status, &error, "lookup");
    }
    printf("{\"facts\": {\"asked\": %" PRIu64 ", \"address\": %" PRIu64 ", \"resident\": %" PRIu64
           ", \"opened\": %" PRIu64 ", \"resident_opened\": %" PRIu64 "}}\n",
           atomic_load(&asked), after.address - before.address, after.resident - before.resident,
           opened, size_now().resident - before.resident);
    plugin.api->close(conn);
    free(tokens);
    return 0;
}
