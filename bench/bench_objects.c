/* bench-objects: objects by key through the ABI alone.
 *
 *   --mode exists     fills --objects values of one byte, then asks for batches of 1,000 keys
 *     hit warm .. miss cold   ns per batch; cold: 96 MiB are read before each batch
 *   --mode transfer   puts and gets --values values of 1 MiB in batches of 16
 *     put, get        ns per round over all values, page-aligned memory, in --pages huge or 4KiB
 *     fio write, fio read     the same bytes by fio, in the same rounds; memcpy: in memory
 *
 * A delivered value is compared with what was put, outside the timed part.
 * Threads: one, beside the library's.
 * Tests: none (a measurement; bench/run objects --quick runs it). */
#include "abi/spec_objects.h"
#include "bench/bench.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_KEYS    1000u
#define FILL_KEYS     10000u
#define WALK_BYTES    (UINT64_C(96) << 20)
#define KEY_BYTES_MIN 20u /* a number of 16 digits, and some bytes before it */
#define VALUE_BYTES   (UINT64_C(1) << 20)
#define BATCH_VALUES  16u

struct state {
    const struct spec_objects_api *api;
    spec_objects *objects;
    spec_domain domain;
    uint32_t key_bytes;
    struct spec_error error;
    uint8_t *walk, *keys;
};

static void objects_open(struct state *state, const char *library, const char *config)
{
    const struct spec_objects_api *(*get_api)(uint32_t) = NULL;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *symbol = handle != NULL ? dlsym(handle, "spec_connector_objects_api") : NULL;
    if (symbol == NULL)
        bench_die("--connector %s: exports no spec_connector_objects_api", library);
    memcpy(&get_api, &symbol, sizeof(get_api));
    state->api = get_api(SPEC_OBJECTS_MAJOR);
    if (state->api == NULL || state->api->minor != SPEC_OBJECTS_MINOR)
        bench_die("--connector %s: another version of spec_objects.h", library);
    state->error.struct_size = sizeof(state->error);
    struct spec_objects_params params = {.struct_size = sizeof(params), .config = config};
    bench_must(state->api->open(&params, &state->objects, &state->error), &state->error, "open");
    struct spec_domain_params domain = {.struct_size = sizeof(domain),
                                        .identity = {"bench-objects", 13}};
    bench_must(state->api->domain_open(state->objects, &domain, &state->domain, &state->error),
               &state->error, "domain_open");
}

/* Like the hosts' keys: the same bytes first, then a hash. */
static void key_write(const struct state *state, uint64_t number, uint8_t *key)
{
    char text[17];
    (void)snprintf(text, sizeof(text), "%016" PRIx64, bench_mix(number));
    memset(key, 'k', state->key_bytes);
    memcpy(key + state->key_bytes - 16, text, 16);
}

static struct spec_keys keys_from(const struct state *state, uint32_t count)
{
    return (struct spec_keys){.struct_size = sizeof(struct spec_keys),
                              .count = count,
                              .data = state->keys,
                              .key_bytes = state->key_bytes};
}

static void expect_all(const int32_t *status, uint32_t count, const char *what)
{
    for (uint32_t i = 0; i < count; i++)
        if (status[i] != SPEC_KEY_DONE)
            bench_die("%s: a key has status %" PRId32, what, status[i]);
}

/* ---- exists ---- */

static void fill(struct state *state, uint64_t objects)
{
    static uint8_t value;
    static uint64_t addresses[FILL_KEYS];
    static int32_t status[FILL_KEYS];
    struct spec_pieces pieces = {
        .struct_size = sizeof(pieces), .pieces = 1, .addresses = addresses, .piece_bytes = 1};
    struct spec_transfer_params params = {
        .struct_size = sizeof(params), .timeout_ns = SPEC_TIMEOUT_NONE, .ret_status = status};
    for (uint32_t i = 0; i < FILL_KEYS; i++)
        addresses[i] = (uint64_t)(uintptr_t)&value;
    for (uint64_t first = 0; first < objects; first += FILL_KEYS) {
        uint32_t count = objects - first < FILL_KEYS ? (uint32_t)(objects - first) : FILL_KEYS;
        for (uint32_t i = 0; i < count; i++)
            key_write(state, first + i, state->keys + (uint64_t)i * state->key_bytes);
        struct spec_keys keys = keys_from(state, count);
        bench_must(
            state->api->put(state->objects, state->domain, &keys, &pieces, &params, &state->error),
            &state->error, "put");
        expect_all(status, count, "put");
    }
}

/* Reads and writes as many bytes as push the index out of the caches. */
static void walk(const struct state *state)
{
    for (uint64_t i = 0; i < WALK_BYTES; i += 64)
        state->walk[i]++;
}

/* One batch of keys by lot, which are stored or were never put; returns ns. */
static uint64_t ask(struct state *state, uint64_t objects, bool is_hit, bool is_cold,
                    uint64_t *turn)
{
    static int8_t status[BATCH_KEYS];
    struct spec_exists_params params = {.struct_size = sizeof(params), .ret_status = status};
    struct spec_keys keys = keys_from(state, BATCH_KEYS);
    uint64_t leading = 0;
    for (uint32_t i = 0; i < BATCH_KEYS; i++)
        key_write(state, bench_mix((*turn)++) % objects + (is_hit ? 0 : UINT64_C(1) << 40),
                  state->keys + (uint64_t)i * state->key_bytes);
    if (is_cold)
        walk(state);
    else /* the same batch once before */
        bench_must(state->api->exists(state->objects, state->domain, &keys, &params, &leading,
                                      &state->error),
                   &state->error, "exists");
    uint64_t begun_ns = bench_now_ns();
    spec_status ended =
        state->api->exists(state->objects, state->domain, &keys, &params, &leading, &state->error);
    uint64_t ns = bench_now_ns() - begun_ns;
    bench_must(ended, &state->error, "exists");
    if (leading != (is_hit ? BATCH_KEYS : 0))
        bench_die("exists: %" PRIu64 " leading keys", leading);
    return ns;
}

static void run_exists(struct state *state, uint64_t objects, uint64_t rounds)
{
    static struct bench_series series[4] = {
        {.name = "hit warm"}, {.name = "hit cold"}, {.name = "miss warm"}, {.name = "miss cold"}};
    uint32_t order[4];
    uint64_t turn = 1, order_turn = 0;
    uint64_t begun_ns = bench_now_ns();
    fill(state, objects);
    uint64_t fill_ns = bench_now_ns() - begun_ns;
    for (uint64_t round = 0; round < rounds; round++) {
        bench_shuffle(order, 4, &order_turn);
        for (uint32_t i = 0; i < 4; i++)
            bench_series_add(&series[order[i]],
                             ask(state, objects, order[i] < 2, order[i] % 2 == 1, &turn));
    }
    for (uint32_t i = 0; i < 4; i++) {
        series[i].unit = "key";
        series[i].work = BATCH_KEYS;
        bench_series_print(&series[i]);
    }
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    bench_must(state->api->stats(state->objects, 0, &stats, &state->error), &state->error, "stats");
    printf("{\"facts\": {\"objects\": %" PRIu64 ", \"key_bytes\": %" PRIu32
           ", \"index_bytes\": %" PRIu64 ", \"fill_ns\": %" PRIu64 "}}\n",
           stats.objects, state->key_bytes, stats.index_bytes, fill_ns);
}

/* ---- put and get ---- */

struct memory {
    uint8_t *source, *destination;
    uint64_t values;
};

/* All values, a batch after the other; returns ns. */
static uint64_t transfer(struct state *state, const struct memory *memory, uint64_t first,
                         bool is_put)
{
    uint64_t ns = 0;
    for (uint64_t at = 0; at < memory->values; at += BATCH_VALUES) {
        uint64_t addresses[BATCH_VALUES];
        int32_t status[BATCH_VALUES];
        uint8_t *base = (is_put ? memory->source : memory->destination) + at * VALUE_BYTES;
        for (uint32_t i = 0; i < BATCH_VALUES; i++) {
            key_write(state, first + at + i, state->keys + (uint64_t)i * state->key_bytes);
            addresses[i] = (uint64_t)(uintptr_t)(base + i * VALUE_BYTES);
        }
        struct spec_keys keys = keys_from(state, BATCH_VALUES);
        struct spec_pieces pieces = {.struct_size = sizeof(pieces),
                                     .pieces = 1,
                                     .addresses = addresses,
                                     .piece_bytes = VALUE_BYTES};
        struct spec_transfer_params params = {
            .struct_size = sizeof(params), .timeout_ns = SPEC_TIMEOUT_NONE, .ret_status = status};
        uint64_t begun_ns = bench_now_ns();
        spec_status ended = (is_put ? state->api->put : state->api->get)(
            state->objects, state->domain, &keys, &pieces, &params, &state->error);
        ns += bench_now_ns() - begun_ns;
        bench_must(ended, &state->error, is_put ? "put" : "get");
        expect_all(status, BATCH_VALUES, is_put ? "put" : "get");
    }
    return ns;
}

static uint64_t copy(const struct memory *memory)
{
    uint64_t begun_ns = bench_now_ns();
    for (uint64_t at = 0; at < memory->values; at++)
        memcpy(memory->destination + at * VALUE_BYTES, memory->source + at * VALUE_BYTES,
               VALUE_BYTES);
    return bench_now_ns() - begun_ns;
}

static void run_transfer(struct state *state, uint64_t values, uint64_t rounds, bool is_huge,
                         const char *fio_write, const char *fio_read)
{
    static struct bench_series put = {.name = "put"}, get = {.name = "get"},
                               memcpy_ = {.name = "memcpy"}, written = {.name = "fio write"},
                               read = {.name = "fio read"};
    struct bench_series *const all[] = {&put, &written, &get, &read, &memcpy_};
    struct memory memory = {.source = bench_memory(values * VALUE_BYTES, is_huge, 1),
                            .destination = bench_memory(values * VALUE_BYTES, is_huge, 0),
                            .values = values};
    for (uint64_t i = 0; i < values * VALUE_BYTES; i += 8) {
        uint64_t word = bench_mix(i);
        memcpy(memory.source + i, &word, sizeof(word));
    }
    for (uint64_t round = 0; round < rounds; round++) {
        bench_series_add(&put, transfer(state, &memory, round * values, true));
        if (fio_write[0] != '\0')
            bench_series_add(&written, bench_command_ns(fio_write, "fio_ns"));
        bench_series_add(&get, transfer(state, &memory, round * values, false));
        if (memcmp(memory.source, memory.destination, values * VALUE_BYTES) != 0)
            bench_die("get: wrong bytes");
        if (fio_read[0] != '\0')
            bench_series_add(&read, bench_command_ns(fio_read, "fio_ns"));
        bench_series_add(&memcpy_, copy(&memory));
        memset(memory.destination, 0, values * VALUE_BYTES);
        bench_must(state->api->clear(state->objects, state->domain, 0, &state->error),
                   &state->error, "clear");
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        all[i]->unit = "byte";
        all[i]->work = (double)(values * VALUE_BYTES);
        if (all[i]->rounds > 0)
            bench_series_print(all[i]);
    }
    free(memory.source);
    free(memory.destination);
}

int main(int argc, char **argv)
{
    static struct state state;
    const char *mode = bench_option(argc, argv, "--mode", "exists");
    const char *pages = bench_option(argc, argv, "--pages", "huge");
    uint64_t rounds = bench_option_u64(argc, argv, "--rounds", 100);
    uint64_t key_bytes = bench_option_u64(argc, argv, "--key-bytes", 36);
    uint64_t objects = bench_option_u64(argc, argv, "--objects", 1000000);
    uint64_t values = bench_option_u64(argc, argv, "--values", 256);
    if (key_bytes < KEY_BYTES_MIN || key_bytes > SPEC_KEY_BYTES_MAX || objects == 0 ||
        values == 0 || values % BATCH_VALUES != 0)
        bench_die("--key-bytes is 20 to 1024, --objects at least 1, --values a multiple of 16");
    if (strcmp(pages, "huge") != 0 && strcmp(pages, "4KiB") != 0)
        bench_die("--pages is huge or 4KiB");
    state.key_bytes = (uint32_t)key_bytes;
    state.walk = bench_huge_memory(WALK_BYTES, 0);
    state.keys = malloc(FILL_KEYS * key_bytes);
    if (state.keys == NULL)
        bench_die("no memory for keys");
    objects_open(&state, bench_option(argc, argv, "--connector", ""),
                 bench_option(argc, argv, "--config", ""));
    if (strcmp(mode, "exists") == 0)
        run_exists(&state, objects, rounds);
    else
        run_transfer(&state, values, rounds, strcmp(pages, "huge") == 0,
                     bench_option(argc, argv, "--fio-write", ""),
                     bench_option(argc, argv, "--fio-read", ""));
    state.api->close(state.objects);
    free(state.keys);
    free(state.walk);
    return 0;
}
