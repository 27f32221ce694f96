/* Objects by key under test, and the truth about their keys; see object_rig.h.
 *
 * Holds, Threads: as object_rig.h. */
#include "tests/unit/plugin/object_rig.h"

#define GUARD    64u
#define VALUE_AT (512u << 10) /* from one value's memory to the next: more than any value */

/* ---- Memory, opening and closing ------------------------------------------------------------- */

static void *host_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    struct rig *rig = user;
    if (atomic_load(&rig->countdown) >= 0 && atomic_fetch_sub(&rig->countdown, 1) == 0) {
        atomic_fetch_add(&rig->refused, 1);
        return NULL;
    }
    void *block = sc_sim_memory_get(bytes, align_bytes);
    if (block != NULL) {
        memset(block, 0xcd, bytes < 4096 ? bytes : 4096); /* what is read was written before */
        atomic_fetch_add(&rig->live_blocks, 1);
        atomic_fetch_add(&rig->live_bytes, bytes);
    }
    return block;
}

static void host_free(void *block, uint64_t bytes, void *user)
{
    struct rig *rig = user;
    sc_sim_memory_put(block, bytes);
    atomic_fetch_sub(&rig->live_blocks, 1);
    atomic_fetch_sub(&rig->live_bytes, bytes);
}

void rig_make(struct rig *rig, const char *extra, uint32_t journal)
{
    *rig = (struct rig){.extra = extra, .api = spec_connector_objects_api(SPEC_OBJECTS_MAJOR)};
    assert_non_null(rig->api);
    atomic_init(&rig->countdown, -1);
    sc_sim_memory_alloc_init(&rig->disk_alloc);
    rig_disk_new(rig, 1, journal);
}

void rig_disk_new(struct rig *rig, uint64_t seed, uint32_t journal)
{
    struct sc_io_sim_disk_params params = {
        .alloc = &rig->disk_alloc, .seed = seed, .journal = journal};
    sc_io_sim_disk_close(rig->disk);
    assert_int_equal(sc_io_sim_disk_open(&params, &rig->disk, NULL), SPEC_OK);
    sc_io_sim_disk_device(
        rig->disk, &(const struct sc_io_sim_device){.bytes_per_s = 5000000000u, .op_ns = 80000});
}

static void memory_is_free(struct rig *rig)
{
    sc_sim_memory_rest();
    assert_int_equal(atomic_load(&rig->live_blocks), 0);
    assert_int_equal(atomic_load(&rig->live_bytes), 0);
}

void rig_free(struct rig *rig)
{
    if (rig->store != NULL)
        rig_close(rig);
    sc_io_sim_disk_close(rig->disk);
    memory_is_free(rig);
    sc_alloc_done(&rig->disk_alloc);
}

spec_status rig_try_open(struct rig *rig)
{
    static const char *const NAMES[RIG_DOMAINS] = {"domain a", "domain b"};
    char config[512];
    struct spec_alloc alloc = {
        .struct_size = sizeof(alloc), .alloc = host_alloc, .free = host_free, .user = rig};
    struct spec_objects_params params = {.struct_size = sizeof(params),
                                         .config = config,
                                         .alloc = &alloc,
                                         .rank_count = 1,
                                         .log_level_max = SPEC_LOG_DEBUG};
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"/sim/store\", \"disk_bytes\": \"3MiB\", \"segment_bytes\": "
                   "\"1MiB\", \"staging_bytes\": \"16MiB\", \"io\": {\"backend\": \"pread\", "
                   "\"op_bytes\": \"64KiB\"}%s}",
                   rig->extra);
    rig->error = (struct spec_error){.struct_size = sizeof(rig->error)};
    spec_status status =
        sc_objects_open_on(&params, rig->custom != NULL ? rig->custom : sc_io_sim_custom(rig->disk),
                           &rig->store, &rig->error);
    if (status != SPEC_OK) {
        rig->store = NULL;
        memory_is_free(rig);
        return status;
    }
    struct spec_read_events events = {.struct_size = sizeof(events)};
    struct spec_object_event event;
    uint8_t room[SPEC_KEY_BYTES_MAX];
    events.ret_events = &event;
    events.capacity = 1;
    events.key_room = room;
    events.key_room_bytes = sizeof(room);
    assert_int_equal(rig->api->events(rig->store, &events, NULL), SPEC_OK);
    rig->events_from = events.sequence;
    for (uint32_t i = 0; i < RIG_DOMAINS && status == SPEC_OK; i++) {
        struct spec_domain_params domain = {.struct_size = sizeof(domain),
                                            .identity = {NAMES[i], strlen(NAMES[i])}};
        status = rig->api->domain_open(rig->store, &domain, &rig->domains[i], &rig->error);
    }
    if (status != SPEC_OK)
        rig_close(rig);
    return status;
}

void rig_open(struct rig *rig)
{
    spec_status status = rig_try_open(rig);
    if (status != SPEC_OK)
        fail_msg("open: %s", rig->error.text);
}

void rig_close(struct rig *rig)
{
    assert_int_equal(atomic_load(&rig->store->poison.broken), 0);
    rig->api->close(rig->store);
    rig->store = NULL;
    memory_is_free(rig);
}

void rig_kill(struct rig *rig)
{
    struct sc_io_sim_disk *after = NULL;
    rig_events(rig);
    assert_int_equal(sc_io_sim_disk_copy(rig->disk, &after, NULL), SPEC_OK);
    if (rig->store != NULL)
        rig_close(rig);
    sc_io_sim_disk_close(rig->disk);
    rig->disk = after;
}

void rig_pass_ns(struct rig *rig, uint64_t ns)
{
    _Atomic uint32_t never = 0;
    (void)sc_exec_wait(rig->store->exec, &never, 0, sc_exec_now_ns(rig->store->exec) + ns);
}

/* ---- Keys and values ------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Both domains have the same keys. */
uint32_t rig_key(uint32_t domain, uint32_t number, uint8_t key[64])
{
    (void)domain;
    for (uint32_t i = 0; i < 64; i++)
        key[i] = (uint8_t)mix(number * 64 + i);
    key[0] = (uint8_t)number;
    return 1 + number % 60;
}

uint64_t rig_value_bytes(uint32_t domain, uint32_t number, uint32_t life)
{
    static const uint64_t SIZES[] = {4, 4096, 5000, 300000, 70001, 65536, 12288, 200};
    return SIZES[(number + domain) % 8] + life; /* lives of a key differ in size */
}

static void value_make(uint32_t domain, uint32_t number, uint32_t life, uint8_t *dst)
{
    uint64_t seed = mix(domain * 1000000 + number * 100 + life);
    uint64_t bytes = rig_value_bytes(domain, number, life), word;
    for (uint64_t i = 0; i < bytes; i += 8) {
        word = mix(seed + i);
        memcpy(dst + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

/* A call's arguments: values of one or three pieces, page-aligned or not, by their numbers. */
struct batch {
    struct spec_keys keys;
    struct spec_pieces pieces;
    struct spec_transfer_params params;
    uint8_t key_data[RIG_BATCH * 64];
    uint32_t lengths[RIG_BATCH];
    uint64_t addresses[RIG_BATCH * 3], sizes[RIG_BATCH * 3];
    int32_t status[RIG_BATCH];
};

static _Alignas(4096) uint8_t value_memory[RIG_BATCH * VALUE_AT];
static _Alignas(4096) uint8_t wanted_memory[VALUE_AT];

static uint8_t *value_at(uint32_t number, uint32_t i)
{
    return value_memory + (uint64_t)i * VALUE_AT + (number % 3 == 1 ? 24 : 0);
}

static void batch_make(struct batch *batch, uint32_t domain, uint32_t first, uint32_t count,
                       const uint32_t *lives)
{
    uint32_t used = 0;
    memset(batch, 0, sizeof(*batch));
    assert_true(count > 0 && count <= RIG_BATCH);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t key[64];
        uint64_t bytes = rig_value_bytes(domain, first + i, lives[i]), begin = 0;
        batch->lengths[i] = rig_key(domain, first + i, key);
        memcpy(batch->key_data + used, key, batch->lengths[i]);
        used += batch->lengths[i];
        uint32_t pieces = first % 2 == 0 ? 1 : 3;
        for (uint32_t p = 0; p < pieces; p++) { /* whole pages of a third, or one byte; the rest */
            uint64_t some = bytes / 3 / 4096 * 4096;
            some = p + 1 == pieces ? bytes - begin : some > 0 ? some : 1;
            batch->addresses[i * pieces + p] = (uint64_t)(uintptr_t)value_at(first + i, i) + begin;
            batch->sizes[i * pieces + p] = some;
            begin += some;
        }
    }
    batch->keys = (struct spec_keys){.struct_size = sizeof(batch->keys),
                                     .count = count,
                                     .data = batch->key_data,
                                     .lengths = batch->lengths};
    batch->pieces = (struct spec_pieces){.struct_size = sizeof(batch->pieces),
                                         .pieces = first % 2 == 0 ? 1 : 3,
                                         .addresses = batch->addresses,
                                         .sizes = batch->sizes};
    batch->params = (struct spec_transfer_params){.struct_size = sizeof(batch->params),
                                                  .ret_status = batch->status};
}

/* A failure that a fault explains. */
static void failed(struct rig *rig, int32_t status, const char *what)
{
    rig->failures++;
    if (!rig->may_fail && !rig->may_lie)
        fail_msg("%s: %s: %s", what, sc_status_name(status), rig->error.text);
    bool waited = rig->loses_power && status == SPEC_E_TIMEOUT; /* for a device that is off */
    if (status != SPEC_E_IO && status != SPEC_E_NO_SPACE && status != SPEC_E_NO_MEMORY &&
        status != SPEC_E_CORRUPT && !waited)
        fail_msg("%s: %s", what, sc_status_name(status));
}

/* ---- Calls ----------------------------------------------------------------------------------- */

void rig_put(struct rig *rig, uint32_t domain, uint32_t first, uint32_t count)
{
    static struct batch batch;
    uint32_t lives[RIG_BATCH] = {0};
    for (uint32_t i = 0; i < count; i++) {
        lives[i] = rig->twins[domain][first + i].lives;
        assert_true(lives[i] < RIG_LIVES);
        value_make(domain, first + i, lives[i], value_at(first + i, i));
    }
    batch_make(&batch, domain, first, count, lives);
    spec_status status = rig->api->put(rig->store, rig->domains[domain], &batch.keys, &batch.pieces,
                                       &batch.params, &rig->error);
    if (status != SPEC_OK)
        failed(rig, status, "put");
    for (uint32_t i = 0; i < count && status == SPEC_OK; i++) {
        struct rig_twin *twin = &rig->twins[domain][first + i];
        if (batch.status[i] == SPEC_KEY_STORED) {
            assert_int_not_equal(twin->state, RIG_NONE);
            continue;
        }
        twin->life = lives[i];
        twin->lives++;
        twin->state = batch.status[i] == SPEC_KEY_DONE ? RIG_SURE : RIG_MAYBE;
        if (batch.status[i] != SPEC_KEY_DONE)
            failed(rig, batch.status[i], "put of a key");
    }
    rig_events(rig); /* some may be evicted already */
}

/* exists of one key. */
static int8_t exists_one(struct rig *rig, uint32_t domain, uint32_t number, uint64_t *ret_bytes)
{
    uint8_t key[64];
    int8_t status = 99;
    uint64_t leading = 99;
    struct spec_keys keys = {.struct_size = sizeof(keys), .count = 1, .data = key};
    struct spec_exists_params params = {
        .struct_size = sizeof(params), .ret_status = &status, .ret_bytes = ret_bytes};
    keys.key_bytes = rig_key(domain, number, key);
    assert_int_equal(
        rig->api->exists(rig->store, rig->domains[domain], &keys, &params, &leading, &rig->error),
        SPEC_OK);
    assert_int_equal(leading, status == SPEC_KEY_DONE);
    return status;
}

/* The life that a value of so many bytes is of. */
static uint32_t life_of(const struct rig *rig, uint32_t domain, uint32_t number, uint64_t bytes)
{
    uint64_t life = bytes - rig_value_bytes(domain, number, 0);
    if (life >= rig->twins[domain][number].lives)
        fail_msg("key %u of domain %u has %" PRIu64 " bytes, which were never put", number, domain,
                 bytes);
    return (uint32_t)life;
}

static bool guard_is_whole(const uint8_t *bytes)
{
    for (uint32_t i = 0; i < GUARD; i++)
        if (bytes[i] != 0xa5)
            return false;
    return true;
}

/* Bytes that were delivered, and the memory behind them. */
static void value_check(uint32_t domain, uint32_t number, uint32_t life, uint32_t i)
{
    uint64_t bytes = rig_value_bytes(domain, number, life);
    value_make(domain, number, life, wanted_memory);
    if (memcmp(value_at(number, i), wanted_memory, bytes) != 0)
        fail_msg("key %u of domain %u: other bytes than were put", number, domain);
    assert_true(guard_is_whole(value_at(number, i) + bytes));
}

void rig_get(struct rig *rig, uint32_t domain, uint32_t first, uint32_t count)
{
    static struct batch batch;
    uint32_t lives[RIG_BATCH] = {0};
    for (uint32_t i = 0; i < count; i++) {
        const struct rig_twin *twin = &rig->twins[domain][first + i];
        uint64_t bytes = 0;
        lives[i] = twin->life;
        if (exists_one(rig, domain, first + i, &bytes) == SPEC_KEY_DONE)
            lives[i] = life_of(rig, domain, first + i, bytes);
        memset(value_at(first + i, i), 0xa5, rig_value_bytes(domain, first + i, lives[i]) + GUARD);
    }
    batch_make(&batch, domain, first, count, lives);
    spec_status status = rig->api->get(rig->store, rig->domains[domain], &batch.keys, &batch.pieces,
                                       &batch.params, &rig->error);
    rig_events(rig);
    if (status != SPEC_OK) {
        failed(rig, status, "get");
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct rig_twin *twin = &rig->twins[domain][first + i];
        if (batch.status[i] == SPEC_KEY_DONE) {
            value_check(domain, first + i, lives[i], i);
            if (!rig->may_lie)
                assert_true(twin->state == RIG_MAYBE ||
                            (twin->state == RIG_SURE && lives[i] == twin->life));
        } else if (batch.status[i] == SPEC_KEY_ABSENT) {
            if (twin->state == RIG_SURE && !rig->may_lie)
                fail_msg("key %u of domain %u was stored and is absent", first + i, domain);
        } else {
            if (twin->state != RIG_MAYBE) /* the event said so */
                failed(rig, batch.status[i], "get of a key");
            twin->state = RIG_MAYBE;
        }
    }
}

void rig_remove(struct rig *rig, uint32_t domain, uint32_t first, uint32_t count, uint32_t flags)
{
    static struct batch batch;
    uint32_t lives[RIG_BATCH] = {0};
    int8_t statuses[RIG_BATCH];
    batch_make(&batch, domain, first, count, lives);
    spec_status status = rig->api->remove(rig->store, rig->domains[domain], &batch.keys, flags,
                                          statuses, &rig->error);
    if (status != SPEC_OK)
        failed(rig, status, "remove");
    for (uint32_t i = 0; i < count; i++) {
        struct rig_twin *twin = &rig->twins[domain][first + i];
        uint64_t bytes;
        if (status == SPEC_OK)
            assert_true(statuses[i] == SPEC_KEY_DONE ? twin->state != RIG_NONE
                                                     : twin->state != RIG_SURE);
        assert_int_equal(exists_one(rig, domain, first + i, &bytes), SPEC_KEY_ABSENT);
        /* An append that failed may have been the removal's, or that of an earlier eviction. */
        twin->state = status == SPEC_OK ? RIG_NONE : twin->state == RIG_NONE ? RIG_NONE : RIG_MAYBE;
    }
    rig_events(rig);
}

void rig_clear(struct rig *rig, uint32_t domain, uint32_t flags)
{
    spec_status status = rig->api->clear(rig->store, rig->domains[domain], flags, &rig->error);
    rig_events(rig);
    if (status != SPEC_OK)
        failed(rig, status, "clear");
    for (uint32_t i = 0; i < RIG_KEYS; i++) {
        struct rig_twin *twin = &rig->twins[domain][i];
        uint64_t bytes;
        assert_int_equal(exists_one(rig, domain, i, &bytes), SPEC_KEY_ABSENT);
        if (status == SPEC_OK)
            twin->state = RIG_NONE;
        else if (twin->state == RIG_SURE)
            twin->state = RIG_MAYBE;
    }
}

void rig_events(struct rig *rig)
{
    struct spec_object_event list[32];
    uint8_t room[32 * 64 + SPEC_KEY_BYTES_MAX], key[64];
    struct spec_read_events events = {.struct_size = sizeof(events),
                                      .sequence = rig->events_from,
                                      .ret_events = list,
                                      .capacity = 32,
                                      .key_room = room,
                                      .key_room_bytes = sizeof(room)};
    if (rig->store == NULL)
        return;
    do {
        assert_int_equal(rig->api->events(rig->store, &events, &rig->error), SPEC_OK);
        assert_int_equal(events.ret_missed, 0);
        for (uint64_t i = 0; i < events.ret_count; i++) {
            uint32_t domain = list[i].domain == rig->domains[1];
            if (list[i].kind == SPEC_EVENT_CLEARED || list[i].reason == SPEC_REMOVED_DELETED)
                continue;
            assert_true(list[i].domain == rig->domains[domain]);
            uint32_t number = room[list[i].key_offset];
            assert_int_equal(list[i].key_bytes, rig_key(domain, number, key));
            assert_memory_equal(room + list[i].key_offset, key, list[i].key_bytes);
            rig->twins[domain][number].state =
                list[i].kind == SPEC_EVENT_STORED ? RIG_SURE : RIG_MAYBE;
        }
    } while (events.ret_count > 0);
    rig->events_from = events.sequence;
}

void rig_checkpoint(struct rig *rig)
{
    spec_status status = sc_objects_checkpoint(rig->store, false, &rig->error);
    if (status != SPEC_OK)
        failed(rig, status, "checkpoint");
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void list_check(struct rig *rig, uint32_t domain)
{
    struct spec_object_event found[8];
    uint8_t room[8 * 64 + SPEC_KEY_BYTES_MAX];
    uint64_t count = 0, stored = 0, bytes;
    struct spec_list list = {.struct_size = sizeof(list),
                             .domain = rig->domains[domain],
                             .ret_events = found,
                             .capacity = 8,
                             .key_room = room,
                             .key_room_bytes = sizeof(room)};
    do {
        assert_int_equal(rig->api->list(rig->store, &list, &rig->error), SPEC_OK);
        for (uint64_t i = 0; i < list.ret_count; i++) {
            uint32_t number = room[found[i].key_offset];
            assert_int_equal(exists_one(rig, domain, number, &bytes), SPEC_KEY_DONE);
            assert_int_equal(bytes, found[i].bytes);
        }
        count += list.ret_count;
    } while (list.cursor != 0);
    for (uint32_t i = 0; i < RIG_KEYS; i++)
        stored += exists_one(rig, domain, i, &bytes) == SPEC_KEY_DONE;
    assert_int_equal(count, stored);
}

void rig_check(struct rig *rig)
{
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    for (uint32_t domain = 0; domain < RIG_DOMAINS; domain++) {
        for (uint32_t i = 0; i < RIG_KEYS; i++) {
            const struct rig_twin *twin = &rig->twins[domain][i];
            uint64_t bytes;
            int8_t status = exists_one(rig, domain, i, &bytes);
            if (status == SPEC_KEY_ABSENT && twin->state == RIG_SURE && !rig->may_lie)
                fail_msg("key %u of domain %u was stored and is absent", i, domain);
            if (status == SPEC_KEY_DONE && twin->state == RIG_NONE && !rig->may_lie)
                fail_msg("key %u of domain %u was removed and is stored", i, domain);
            assert_int_not_equal(status, SPEC_KEY_PENDING);
        }
        for (uint32_t i = 0; i < RIG_KEYS; i += RIG_BATCH)
            rig_get(rig, domain, i, RIG_BATCH);
        list_check(rig, domain);
    }
    assert_int_equal(rig->api->stats(rig->store, 0, &stats, &rig->error), SPEC_OK);
    assert_true(stats.disk_bytes_used <= stats.disk_bytes_max);
    assert_int_equal(stats.waiting_puts, 0);
    assert_int_equal(stats.inflight_bytes, 0);
}

void rig_settle(struct rig *rig)
{
    uint64_t bytes;
    for (uint32_t domain = 0; domain < RIG_DOMAINS; domain++)
        for (uint32_t i = 0; i < RIG_KEYS; i++) {
            struct rig_twin *twin = &rig->twins[domain][i];
            twin->state = RIG_NONE;
            if (exists_one(rig, domain, i, &bytes) != SPEC_KEY_DONE)
                continue;
            twin->state = RIG_SURE;
            twin->life = life_of(rig, domain, i, bytes);
        }
    rig->may_lie = rig->may_fail = rig->loses_power = false;
}

void rig_works(struct rig *rig)
{
    for (uint32_t round = 0; round < 2; round++) {
        rig_settle(rig);
        rig_remove(rig, 0, 0, 8, 0);
        rig_put(rig, 0, 0, 8);
        for (uint32_t i = 0; i < 8; i++)
            assert_int_equal(rig->twins[0][i].state, RIG_SURE);
        rig_check(rig);
        rig_close(rig);
        rig_open(rig);
        rig_check(rig);
    }
}
