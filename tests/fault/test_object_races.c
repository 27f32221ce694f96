/* Three handles of one process over the objects of a rank, as three processes would be: each has
 * threads that put, get and remove the same keys, clear a domain, and rewrite the log.
 *
 * Holds: bytes that are delivered were put under that key; no value counts as damaged; a call has a
 * status that a full disk or another thread explains; at the end each handle finds the same.
 * Threads: six, and those of the handles. When they do something does not follow from the seed. */
#include "plugin/objects/objects.h"
#include "tests/unit/cases.h"
#include "tests/unit/threads.h"

#include <ftw.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMBERS   3u
#define EACH      2u /* threads of a handle */
#define ROUNDS    500u
#define KEYS      48u
#define DOMAINS   2u
#define VALUE_MAX (300u << 10)

struct races {
    char dir[64];
    const struct spec_objects_api *api;
    spec_objects *stores[MEMBERS];
    spec_domain domains[MEMBERS][DOMAINS];
    _Atomic uint64_t stored, delivered, wrong;
};

struct worker {
    struct races *races;
    uint32_t at;
    uint64_t random;
    uint8_t value[VALUE_MAX], expected[VALUE_MAX];
};

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t draw(struct worker *worker, uint64_t below)
{
    worker->random = mix(worker->random);
    return worker->random % below;
}

static uint64_t value_bytes(uint64_t key)
{
    return 16 + mix(key) % (key % 2 == 0 ? VALUE_MAX - 16 : 6000);
}

/* The bytes behind the first 16, the key and its domain, and who put it. */
static void value_fill(uint64_t bytes, uint8_t *dst)
{
    uint64_t head[2];
    memcpy(head, dst, sizeof(head));
    for (uint64_t at = sizeof(head); at < bytes; at += 8) {
        uint64_t word = mix(mix(head[0] ^ mix(head[1])) + at);
        memcpy(dst + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
}

static void wrong(struct worker *worker, const char *what, int32_t status)
{
    print_error("thread %u: %s: %d\n", worker->at, what, (int)status);
    (void)atomic_fetch_add(&worker->races->wrong, 1);
}

/* Puts or gets a key. */
static int32_t move(struct worker *worker, uint32_t domain, uint64_t key, bool is_put)
{
    struct races *races = worker->races;
    const uint32_t member = worker->at / EACH;
    const uint64_t address = (uint64_t)(uintptr_t)worker->value, bytes = value_bytes(key);
    int32_t key_status = 99;
    const struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = 1, .data = &key, .key_bytes = 8};
    const struct spec_pieces pieces = {
        .struct_size = sizeof(pieces), .pieces = 1, .addresses = &address, .piece_bytes = bytes};
    const struct spec_transfer_params params = {.struct_size = sizeof(params),
                                                .ret_status = &key_status};
    spec_status status =
        is_put ? races->api->put(races->stores[member], races->domains[member][domain], &keys,
                                 &pieces, &params, NULL)
               : races->api->get(races->stores[member], races->domains[member][domain], &keys,
                                 &pieces, &params, NULL);
    return status == SPEC_OK ? key_status : status;
}

static void put_one(struct worker *worker, uint32_t domain, uint64_t key)
{
    const uint64_t head[2] = {key * DOMAINS + domain, draw(worker, UINT64_MAX)};
    memcpy(worker->value, head, sizeof(head));
    value_fill(value_bytes(key), worker->value);
    int32_t status = move(worker, domain, key, true);
    (void)atomic_fetch_add(&worker->races->stored, status == SPEC_KEY_DONE);
    if (status != SPEC_KEY_DONE && status != SPEC_KEY_STORED && status != SPEC_E_DROPPED)
        wrong(worker, "put", status);
}

static void get_one(struct worker *worker, uint32_t domain, uint64_t key)
{
    uint64_t head[2];
    int32_t status = move(worker, domain, key, false);
    if (status != SPEC_KEY_DONE && status != SPEC_KEY_ABSENT)
        wrong(worker, "get", status);
    if (status != SPEC_KEY_DONE)
        return;
    memcpy(head, worker->value, sizeof(head));
    memcpy(worker->expected, head, sizeof(head));
    value_fill(value_bytes(key), worker->expected);
    if (head[0] != key * DOMAINS + domain ||
        memcmp(worker->value, worker->expected, value_bytes(key)) != 0)
        wrong(worker, "other bytes than were put", status);
    (void)atomic_fetch_add(&worker->races->delivered, 1);
}

static void remove_some(struct worker *worker, uint32_t domain, uint64_t first)
{
    struct races *races = worker->races;
    const uint32_t member = worker->at / EACH;
    uint64_t data[4] = {first, first + 1, first + 2, first + 3};
    const struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = 4, .data = data, .key_bytes = 8};
    spec_status status = races->api->remove(races->stores[member], races->domains[member][domain],
                                            &keys, 0, NULL, NULL);
    if (status != SPEC_OK)
        wrong(worker, "remove", status);
}

static void *work(void *user)
{
    struct worker *worker = user;
    struct races *races = worker->races;
    const uint32_t member = worker->at / EACH;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t domain = (uint32_t)draw(worker, DOMAINS);
        uint64_t key = draw(worker, KEYS), what = draw(worker, 200);
        if (what < 80)
            put_one(worker, domain, key);
        else if (what < 170)
            get_one(worker, domain, key);
        else if (what < 195)
            remove_some(worker, domain, key);
        else if (what < 198)
            (void)sc_objects_checkpoint(races->stores[member], false, NULL); /* one at a time */
        else if (races->api->clear(races->stores[member], races->domains[member][domain], 0,
                                   NULL) != SPEC_OK)
            wrong(worker, "clear", 0);
    }
    return NULL;
}

static int remove_file(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

static void handles_open(struct races *races, const char *limits)
{
    static const char *const NAMES[DOMAINS] = {"one", "two"};
    char config[256];
    (void)snprintf(races->dir, sizeof(races->dir), "/var/tmp/spec-object-races-XXXXXX");
    assert_non_null(mkdtemp(races->dir));
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"%s/store\", \"staging_bytes\": \"16MiB\", \"segment_bytes\": "
                   "\"1MiB\", %s}",
                   races->dir, limits);
    const struct spec_objects_params params = {
        .struct_size = sizeof(params), .config = config, .rank_count = 1};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(races->api->open(&params, &races->stores[i], NULL), SPEC_OK);
        for (uint32_t d = 0; d < DOMAINS; d++) {
            const struct spec_domain_params domain = {.struct_size = sizeof(domain),
                                                      .identity = {NAMES[d], 3}};
            assert_int_equal(
                races->api->domain_open(races->stores[i], &domain, &races->domains[i][d], NULL),
                SPEC_OK);
        }
    }
}

/* The keys that a handle finds, as bits. */
static uint64_t found_by(struct races *races, uint32_t member, uint32_t domain)
{
    uint64_t data[KEYS], bits = 0;
    int8_t statuses[KEYS];
    const struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = KEYS, .data = data, .key_bytes = 8};
    const struct spec_exists_params params = {.struct_size = sizeof(params),
                                              .ret_status = statuses};
    for (uint32_t i = 0; i < KEYS; i++)
        data[i] = i;
    assert_int_equal(races->api->exists(races->stores[member], races->domains[member][domain],
                                        &keys, &params, NULL, NULL),
                     SPEC_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        bits |= (uint64_t)(statuses[i] == SPEC_KEY_DONE) << i;
    return bits;
}

/* Nobody changes anything any more. */
static void all_find_the_same(struct races *races)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct spec_object_stats stats = {.struct_size = sizeof(stats)};
        bool more = true;
        while (more)
            assert_int_equal(sc_store_follow(races->stores[i]->store, &more, NULL), SPEC_OK);
        assert_true(sc_store_stores(races->stores[i]->store));
        assert_int_equal(races->api->stats(races->stores[i], 0, &stats, NULL), SPEC_OK);
        assert_int_equal(stats.damaged_objects, 0);
        for (uint32_t d = 0; d < DOMAINS; d++)
            assert_int_equal(found_by(races, i, d), found_by(races, 0, d));
    }
}

static void run(const char *limits)
{
    static struct worker workers[MEMBERS * EACH];
    static struct races races;
    memset(&races, 0, sizeof(races));
    races.api = spec_connector_objects_api(SPEC_OBJECTS_MAJOR);
    handles_open(&races, limits);
    for (uint32_t i = 0; i < MEMBERS * EACH; i++) {
        workers[i].races = &races;
        workers[i].at = i;
        workers[i].random = i + 1;
    }
    struct threads threads = threads_begin(work, workers, sizeof(workers[0]), MEMBERS * EACH);
    threads_join(&threads);
    assert_int_equal(atomic_load(&races.wrong), 0);
    all_find_the_same(&races);
    print_message("%" PRIu64 " stored, %" PRIu64 " delivered\n", atomic_load(&races.stored),
                  atomic_load(&races.delivered));
    for (uint32_t i = 0; i < MEMBERS; i++)
        races.api->close(races.stores[i]);
    (void)nftw(races.dir, remove_file, 16, FTW_DEPTH | FTW_PHYS);
}

static void threads_of_several_handles_deliver_what_is_right(void **state)
{
    (void)state;
    run("\"disk_bytes\": \"64MiB\"");
}

static void and_on_a_disk_that_is_full(void **state)
{
    (void)state;
    run("\"disk_bytes\": \"9MiB\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_several_handles_deliver_what_is_right),
        cmocka_unit_test(and_on_a_disk_that_is_full),
    };
    return cmocka_run_group_tests_name("object races", tests, NULL, NULL);
}
