/* Random operations beside a twin in memory: OBJ-002, OBJ-004, OBJ-070.
 *
 *   twin   [domain][key] = version of the value that is stored, or 0: it is absent
 *
 * Holds: what a get delivers is the twin's version, bit by bit. A key that the twin does not have
 * is never DONE. A key that the twin has may be evicted: then the twin forgets it. A failure prints
 * its seed; SC_SEED=n in the environment begins with that one. Does not, Threads, Tests: as
 * objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOMAINS   3u
#define KEYS      300u
#define BATCH_MAX 12u
#define VERSIONS  (UINT64_C(1) << 20) /* of all keys: a version's value has the seed of its own */

struct twin {
    struct objects *fx;
    uint64_t seed, dice, step;
    spec_domain domains[DOMAINS];
    uint32_t versions[DOMAINS][KEYS]; /* stored; 0: absent */
    uint32_t next_version;
    uint64_t evicted; /* keys of the twin that were found absent */
};

static const char *const IDENTITIES[DOMAINS] = {"domain", "second", "third"};

#define twin_fail(twin, ...)                                                                       \
    do {                                                                                           \
        print_message("seed %" PRIu64 ", step %" PRIu64 ": ", (twin)->seed, (twin)->step);         \
        fail_msg(__VA_ARGS__);                                                                     \
    } while (0)

/* The size is the key's and the version's. */
static uint64_t size_of(uint32_t key, uint32_t version)
{
    static const uint64_t SIZES[] = {1, 800, 4096, 5000, 40000, 70272, 262144, 700001};
    return SIZES[(key * 7 + version) % 8];
}

static uint64_t value_seed(uint32_t key, uint32_t version)
{
    return key * VERSIONS + version + (UINT64_C(1) << 50);
}

/* What an operation works on: different keys of a domain. */
struct drawn {
    uint32_t domain, count, keys[BATCH_MAX], versions[BATCH_MAX];
    uint8_t key_data[BATCH_MAX * KEY_BYTES];
    uint64_t addresses[BATCH_MAX], sizes[BATCH_MAX];
    uint8_t *values[BATCH_MAX];
    int32_t status[BATCH_MAX];
    struct spec_keys in;
    struct spec_pieces pieces;
    struct spec_transfer_params params;
};

/* Memory has room for the size of the version that is expected, or of the next one (put). */
static void draw(struct twin *twin, struct drawn *drawn, bool is_put)
{
    memset(drawn, 0, sizeof(*drawn));
    drawn->domain = (uint32_t)dice(&twin->dice, DOMAINS);
    drawn->count = 1 + (uint32_t)dice(&twin->dice, BATCH_MAX);
    uint32_t first = (uint32_t)dice(&twin->dice, KEYS);
    for (uint32_t i = 0; i < drawn->count; i++) {
        uint32_t key = (first + i * 31) % KEYS;
        uint32_t version = is_put ? ++twin->next_version : twin->versions[drawn->domain][key];
        uint64_t size = size_of(key, version);
        drawn->keys[i] = key;
        drawn->versions[i] = version;
        key_write(key, drawn->key_data + i * KEY_BYTES);
        drawn->values[i] = aligned_alloc(PAGE, (size + 2 * PAGE - 1) / PAGE * PAGE);
        assert_non_null(drawn->values[i]);
        uint64_t shift = dice(&twin->dice, 2) * 100;
        drawn->addresses[i] = (uint64_t)(uintptr_t)drawn->values[i] + (size > 3000 ? shift : 0);
        drawn->sizes[i] = size;
        if (is_put)
            value_write(value_seed(key, version), (uint8_t *)(uintptr_t)drawn->addresses[i], size);
    }
    drawn->in = (struct spec_keys){.struct_size = sizeof(drawn->in),
                                   .count = drawn->count,
                                   .data = drawn->key_data,
                                   .key_bytes = KEY_BYTES};
    drawn->pieces = (struct spec_pieces){.struct_size = sizeof(drawn->pieces),
                                         .pieces = 1,
                                         .addresses = drawn->addresses,
                                         .sizes = drawn->sizes};
    drawn->params = (struct spec_transfer_params){.struct_size = sizeof(drawn->params),
                                                  .timeout_ns = SPEC_TIMEOUT_NONE,
                                                  .ret_status = drawn->status};
}

static void drawn_free(struct drawn *drawn)
{
    for (uint32_t i = 0; i < drawn->count; i++)
        free(drawn->values[i]);
}

/* Blocking or submitted. */
static void transfer(struct twin *twin, struct drawn *drawn, bool is_put)
{
    struct objects *fx = twin->fx;
    const struct spec_objects_api *api = fx->api;
    spec_domain domain = twin->domains[drawn->domain];
    if (dice(&twin->dice, 2) == 0) {
        assert_ok(fx, (is_put ? api->put : api->get)(fx->store, domain, &drawn->in, &drawn->pieces,
                                                     &drawn->params, &fx->error));
        return;
    }
    spec_operation operation = 0;
    assert_ok(fx, (is_put ? api->put_submit : api->get_submit)(fx->store, domain, &drawn->in,
                                                               &drawn->pieces, &drawn->params,
                                                               &operation, &fx->error));
    assert_int_equal(poll_one(fx, domain).operation, operation);
}

static void do_put(struct twin *twin)
{
    struct drawn drawn;
    draw(twin, &drawn, true);
    transfer(twin, &drawn, true);
    for (uint32_t i = 0; i < drawn.count; i++) {
        uint32_t *version = &twin->versions[drawn.domain][drawn.keys[i]];
        if (drawn.status[i] == SPEC_KEY_DONE) {
            twin->evicted += *version != 0; /* else it would be STORED */
            *version = drawn.versions[i];
        } else if (drawn.status[i] != SPEC_KEY_STORED) {
            twin_fail(twin, "put of key %" PRIu32 ": status %" PRId32, drawn.keys[i],
                      drawn.status[i]);
        } else if (*version == 0) {
            twin_fail(twin, "key %" PRIu32 " is STORED, and was removed or never put",
                      drawn.keys[i]);
        }
    }
    drawn_free(&drawn);
}

static void do_get(struct twin *twin)
{
    struct drawn drawn;
    draw(twin, &drawn, false);
    transfer(twin, &drawn, false);
    for (uint32_t i = 0; i < drawn.count; i++) {
        uint32_t key = drawn.keys[i], *version = &twin->versions[drawn.domain][key];
        const uint8_t *value = (const uint8_t *)(uintptr_t)drawn.addresses[i];
        if (drawn.status[i] == SPEC_KEY_ABSENT) {
            twin->evicted += *version != 0;
            *version = 0;
        } else if (drawn.status[i] != SPEC_KEY_DONE || *version == 0) {
            twin_fail(twin, "get of key %" PRIu32 ", version %" PRIu32 ": status %" PRId32, key,
                      *version, drawn.status[i]);
        } else if (!value_is(value_seed(key, *version), value, drawn.sizes[i])) {
            twin_fail(twin, "key %" PRIu32 ", version %" PRIu32 ": wrong bytes", key, *version);
        }
    }
    drawn_free(&drawn);
}

static void do_exists(struct twin *twin)
{
    struct drawn drawn;
    int8_t statuses[BATCH_MAX];
    uint64_t bytes[BATCH_MAX];
    struct objects *fx = twin->fx;
    draw(twin, &drawn, false);
    struct spec_exists_params params = {
        .struct_size = sizeof(params), .ret_status = statuses, .ret_bytes = bytes};
    assert_ok(fx, fx->api->exists(fx->store, twin->domains[drawn.domain], &drawn.in, &params, NULL,
                                  &fx->error));
    for (uint32_t i = 0; i < drawn.count; i++) {
        uint32_t *version = &twin->versions[drawn.domain][drawn.keys[i]];
        bool is_found = statuses[i] == SPEC_KEY_DONE;
        if ((is_found && (*version == 0 || bytes[i] != drawn.sizes[i])) ||
            (!is_found && statuses[i] != SPEC_KEY_ABSENT))
            twin_fail(twin, "exists of key %" PRIu32 ", version %" PRIu32 ": %d, %" PRIu64 " bytes",
                      drawn.keys[i], *version, statuses[i], bytes[i]);
        twin->evicted += !is_found && *version != 0;
        *version = is_found ? *version : 0;
    }
    drawn_free(&drawn);
}

static void do_remove(struct twin *twin)
{
    struct drawn drawn;
    int8_t statuses[BATCH_MAX];
    struct objects *fx = twin->fx;
    draw(twin, &drawn, false);
    assert_ok(fx, fx->api->remove(fx->store, twin->domains[drawn.domain], &drawn.in,
                                  dice(&twin->dice, 10) == 0 ? SPEC_REMOVE_ERASE : 0, statuses,
                                  &fx->error));
    for (uint32_t i = 0; i < drawn.count; i++) {
        uint32_t *version = &twin->versions[drawn.domain][drawn.keys[i]];
        if (statuses[i] != SPEC_KEY_ABSENT && *version == 0)
            twin_fail(twin, "remove of key %" PRIu32 ", which is absent: %d", drawn.keys[i],
                      statuses[i]);
        *version = 0;
    }
    drawn_free(&drawn);
}

static void do_rare(struct twin *twin)
{
    struct objects *fx = twin->fx;
    uint32_t domain = (uint32_t)dice(&twin->dice, DOMAINS);
    if (dice(&twin->dice, 2) == 0) {
        assert_ok(fx, fx->api->clear(fx->store, twin->domains[domain], 0, &fx->error));
        memset(twin->versions[domain], 0, sizeof(twin->versions[domain]));
        return;
    }
    objects_reopen(fx);
    for (uint32_t i = 0; i < DOMAINS; i++)
        twin->domains[i] = objects_domain(fx, IDENTITIES[i]);
}

static void do_touch(struct twin *twin)
{
    struct drawn drawn;
    struct objects *fx = twin->fx;
    draw(twin, &drawn, false);
    assert_ok(fx, fx->api->touch(fx->store, twin->domains[drawn.domain], &drawn.in, &fx->error));
    drawn_free(&drawn);
}

/* Returns how many keys were evicted meanwhile. */
static uint64_t run_seed(struct objects *fx, uint64_t seed)
{
    static struct twin twin;
    memset(&twin, 0, sizeof(twin));
    twin.fx = fx;
    twin.seed = twin.dice = seed;
    for (uint32_t i = 0; i < DOMAINS; i++) {
        twin.domains[i] = objects_domain(fx, IDENTITIES[i]);
        assert_ok(fx, fx->api->clear(fx->store, twin.domains[i], 0, &fx->error));
    }
    for (twin.step = 0; twin.step < SAMPLE_OF(4000u, 1500u); twin.step++) {
        uint64_t side = dice(&twin.dice, 100);
        if (side < 35)
            do_put(&twin);
        else if (side < 65)
            do_get(&twin);
        else if (side < 80)
            do_exists(&twin);
        else if (side < 92)
            do_remove(&twin);
        else if (side < 98)
            do_touch(&twin);
        else
            do_rare(&twin);
    }
    return twin.evicted;
}

/* All fits: nothing is evicted, and every get of a stored key is DONE. */
static void obj_002_random_operations_in_a_store_with_room(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, "\"disk_bytes\": \"1GiB\"");
    for (uint64_t seed = seed_of_run(); seed < seed_of_run() + SAMPLE_OF(8u, 2u); seed++)
        if (run_seed(fx, seed) > 0)
            fail_msg("seed %" PRIu64 ": stored keys were absent, though nothing is evicted", seed);
    assert_int_equal(objects_stats(fx, 0).evicted_objects, 0);
    assert_int_equal(objects_stats(fx, 0).damaged_objects, 0);
}

static void obj_004_random_operations_in_a_full_store(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    for (uint64_t seed = seed_of_run(); seed < seed_of_run() + SAMPLE_OF(8u, 2u); seed++)
        (void)run_seed(fx, seed);
    assert_int_equal(objects_stats(fx, 0).damaged_objects, 0);
}

const struct conf_test CONF_OBJECT_RANDOM[] = {
    OPENED(obj_002_random_operations_in_a_store_with_room),
    OPENED(obj_004_random_operations_in_a_full_store), END};
