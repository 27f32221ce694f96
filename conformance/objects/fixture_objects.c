/* A loaded table of objects by key, and the calls that most tests make; see objects.h.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FULL_OBJECTS 48u /* of 1 MiB: a SMALL store holds them */

/* ---- Loading and opening ---- */

static spec_status load_failed(struct spec_error *reterr, spec_status code, const char *text)
{
    reterr->code = code;
    (void)snprintf(reterr->text, sizeof(reterr->text), "%.100s: %.130s", conf_options.so, text);
    return code;
}

spec_status objects_load(struct objects *fx, struct spec_error *reterr)
{
    typedef const struct spec_objects_api *(*api_fn)(uint32_t);
    api_fn get_api = NULL;
    void *library = dlopen(conf_options.so, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return load_failed(reterr, SPEC_E_IO, dlerror());
    void *symbol = dlsym(library, "spec_connector_objects_api");
    if (symbol != NULL)
        memcpy(&get_api, &symbol, sizeof(get_api));
    const struct spec_objects_api *api = get_api != NULL ? get_api(SPEC_OBJECTS_MAJOR) : NULL;
    if (api == NULL || api->struct_size < sizeof(*api) ||
        (SPEC_OBJECTS_MAJOR == 0 && api->minor != SPEC_OBJECTS_MINOR)) {
        (void)dlclose(library);
        return load_failed(reterr, SPEC_E_VERSION,
                           symbol == NULL ? "exports no spec_connector_objects_api"
                                          : "has another version of spec_objects.h");
    }
    fx->library = library;
    fx->api = api;
    return SPEC_OK;
}

spec_status objects_try_open(struct objects *fx)
{
    char config[8192];
    const char *extra = fx->extra != NULL ? fx->extra : conf_options.extra;
    int length = snprintf(config, sizeof(config), "{\"path\": \"%s\"%s%s}", fx->rows.store,
                          extra[0] != '\0' ? ", " : "", extra);
    if (length < 0 || (size_t)length >= sizeof(config))
        fail_msg("configuration of more than %zu bytes", sizeof(config));
    struct spec_objects_params params = {.struct_size = sizeof(params),
                                         .config = config,
                                         .rank = fx->rank,
                                         .rank_count = fx->rank_count,
                                         .alloc = fx->alloc};
    return fx->api->open(&params, &fx->store, &fx->error);
}

void objects_open(struct objects *fx)
{
    spec_objects *poison = (spec_objects *)(void *)fx;
    fx->store = poison;
    spec_status status = objects_try_open(fx);
    if (status != SPEC_OK)
        fx->store = NULL;
    assert_ok(fx, status);
    if (fx->store == poison || fx->store == NULL) {
        fx->store = NULL;
        fail_msg("open: SPEC_OK, and ret_objects was not written");
    }
    fx->domain = objects_domain(fx, "domain");
}

bool objects_open_beside(struct objects *fx)
{
    fx->store = NULL;
    spec_status status = objects_try_open(fx);
    if (status != SPEC_OK)
        assert_status(status, SPEC_E_LOCKED);
    assert_true((fx->store != NULL) == (status == SPEC_OK));
    if (fx->store != NULL)
        fx->domain = objects_domain(fx, "domain");
    return fx->store != NULL;
}

void objects_close(struct objects *fx)
{
    fx->api->close(fx->store);
    fx->store = NULL;
}

void objects_reopen(struct objects *fx)
{
    objects_close(fx);
    objects_open(fx);
}

void objects_configure(struct objects *fx, const char *extra)
{
    if (fx->store != NULL)
        objects_close(fx);
    fx->extra = extra;
    objects_open(fx);
}

spec_domain objects_domain_limits(struct objects *fx, const char *identity, uint64_t bytes_min,
                                  uint64_t bytes_max)
{
    spec_domain domain = 0;
    struct spec_domain_params params = {.struct_size = sizeof(params),
                                        .identity = {identity, strlen(identity)},
                                        .bytes_min = bytes_min,
                                        .bytes_max = bytes_max};
    assert_ok(fx, fx->api->domain_open(fx->store, &params, &domain, &fx->error));
    assert_int_not_equal(domain, 0);
    return domain;
}

spec_domain objects_domain(struct objects *fx, const char *identity)
{
    return objects_domain_limits(fx, identity, 0, 0);
}

int objects_setup_bare(void **state)
{
    struct objects *fx = calloc(1, sizeof(*fx));
    if (fx == NULL)
        return -1;
    *state = fx;
    fx->error.struct_size = sizeof(fx->error);
    fx->rows.error.struct_size = sizeof(fx->rows.error);
    (void)snprintf(fx->rows.dir, sizeof(fx->rows.dir), "%s/%ld-0", conf_options.dir,
                   (long)getpid());
    (void)snprintf(fx->rows.store, sizeof(fx->rows.store), "%s/store", fx->rows.dir);
    if (mkdir(fx->rows.dir, 0700) != 0)
        fail_msg("cannot make %s", fx->rows.dir);
    if (objects_load(fx, &fx->error) != SPEC_OK)
        fail_msg("%s", fx->error.text);
    return 0;
}

int objects_setup(void **state)
{
    int failed = objects_setup_bare(state);
    if (failed == 0)
        objects_open(*state);
    return failed;
}

/* As fixture_teardown: after a failure the library stays as it is until the process ends. */
int objects_teardown(void **state)
{
    struct objects *fx = *state;
    if (conf_options.in_test)
        return 0;
    if (fx->store != NULL)
        fx->api->close(fx->store);
    (void)dlclose(fx->library);
    free(fx);
    return 0;
}

/* ---- Calls ---- */

void put(struct objects *fx, spec_domain domain, struct batch *batch)
{
    batch_fill(batch);
    memset(batch->status, POISON, batch->keys.count * sizeof(*batch->status));
    assert_ok(fx, fx->api->put(fx->store, domain, &batch->keys, &batch->pieces, &batch->params,
                               &fx->error));
}

void put_done(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count,
              uint64_t value_bytes)
{
    struct batch batch = batch_make(first, count, value_bytes);
    put(fx, domain, &batch);
    batch_expect(&batch, SPEC_KEY_DONE);
    batch_free(&batch);
}

void get(struct objects *fx, spec_domain domain, struct batch *batch)
{
    batch_poison(batch);
    memset(batch->status, POISON, batch->keys.count * sizeof(*batch->status));
    assert_ok(fx, fx->api->get(fx->store, domain, &batch->keys, &batch->pieces, &batch->params,
                               &fx->error));
    batch_check_all(batch);
    uint32_t hits = batch_count(batch, SPEC_KEY_DONE);
    conf_options.shared->hits += hits;
    conf_options.shared->misses += batch->keys.count - hits;
}

void get_expect(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count,
                uint64_t value_bytes, int32_t status)
{
    struct batch batch = batch_make(first, count, value_bytes);
    get(fx, domain, &batch);
    batch_expect(&batch, status);
    batch_free(&batch);
}

uint64_t exists(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count,
                uint32_t flags, int8_t *statuses)
{
    struct batch batch = batch_make(first, count, 1);
    struct spec_exists_params params = {.struct_size = sizeof(params),
                                        .flags = flags,
                                        .hold_ns = (flags & SPEC_EXISTS_HOLD) != 0 ? HOLD_NS : 0,
                                        .ret_status = statuses};
    uint64_t leading = UINT64_MAX;
    assert_ok(fx, fx->api->exists(fx->store, domain, &batch.keys, &params, &leading, &fx->error));
    assert_true(leading <= count);
    batch_free(&batch);
    return leading;
}

int8_t exists_one(struct objects *fx, spec_domain domain, uint64_t number)
{
    int8_t status = (int8_t)POISON;
    uint64_t leading = exists(fx, domain, number, 1, 0, &status);
    assert_in_range(status, SPEC_KEY_ABSENT, SPEC_KEY_PENDING);
    assert_int_equal(leading, status == SPEC_KEY_DONE);
    return status;
}

uint32_t exists_count(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count)
{
    int8_t *statuses = calloc(count, 1);
    uint32_t found = 0;
    assert_non_null(statuses);
    (void)exists(fx, domain, first, count, 0, statuses);
    for (uint32_t i = 0; i < count; i++)
        found += statuses[i] == SPEC_KEY_DONE;
    free(statuses);
    return found;
}

void remove_keys(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count,
                 uint32_t flags)
{
    struct batch batch = batch_make(first, count, 1);
    assert_ok(fx, fx->api->remove(fx->store, domain, &batch.keys, flags, NULL, &fx->error));
    batch_free(&batch);
}

struct spec_object_stats objects_stats(struct objects *fx, spec_domain domain)
{
    struct spec_object_stats stats;
    memset(&stats, POISON, sizeof(stats));
    stats.struct_size = sizeof(stats);
    stats.reserved = 0;
    assert_ok(fx, fx->api->stats(fx->store, domain, &stats, &fx->error));
    return stats;
}

spec_operation put_begin(struct objects *fx, spec_domain domain, struct batch *batch, uint64_t user)
{
    spec_operation operation = 0;
    batch_fill(batch);
    memset(batch->status, POISON, batch->keys.count * sizeof(*batch->status));
    batch->params.user = user;
    assert_ok(fx, fx->api->put_submit(fx->store, domain, &batch->keys, &batch->pieces,
                                      &batch->params, &operation, &fx->error));
    assert_int_not_equal(operation, 0);
    return operation;
}

struct spec_completion poll_one(struct objects *fx, spec_domain domain)
{
    struct spec_completion completion;
    uint64_t count = UINT64_MAX;
    memset(&completion, POISON, sizeof(completion));
    assert_ok(fx,
              fx->api->poll(fx->store, domain, &completion, 1, CONF_WAIT_NS, &count, &fx->error));
    assert_int_equal(count, 1);
    return completion;
}

uint64_t poll_none(struct objects *fx, spec_domain domain, uint64_t timeout_ns)
{
    struct spec_completion completions[4];
    uint64_t count = UINT64_MAX;
    assert_ok(fx, fx->api->poll(fx->store, domain, completions, 4, timeout_ns, &count, &fx->error));
    return count;
}

void await_exists(struct objects *fx, spec_domain domain, uint64_t number, int8_t status)
{
    for (uint32_t tries = 0; exists_one(fx, domain, number) != status;)
        if (!conf_wait(&tries))
            fail_msg("exists does not report %d of key %" PRIu64, status, number);
}

uint32_t fill_and_hold(struct objects *fx, spec_domain domain, uint64_t first)
{
    int8_t statuses[FULL_OBJECTS];
    for (uint32_t i = 0; i < FULL_OBJECTS; i += 8)
        put_done(fx, domain, first + i, 8, MIB);
    assert_int_equal(exists(fx, domain, first, FULL_OBJECTS, SPEC_EXISTS_HOLD, statuses),
                     FULL_OBJECTS);
    assert_true((FULL_OBJECTS + LARGE_MIB) > SMALL_MIB);
    return FULL_OBJECTS;
}

/* ---- Lists and events ---- */

/* Appends what a call reported; its keys move into the list's own memory. */
static void list_append(struct event_list *list, const struct spec_object_event *events,
                        uint64_t count, const uint8_t *key_room, uint64_t key_room_bytes)
{
    for (uint64_t i = 0; i < count; i++) {
        struct spec_object_event event = events[i];
        assert_true((uint64_t)event.key_offset + event.key_bytes <= key_room_bytes);
        if (list->count % 256 == 0)
            list->events = reallocarray(list->events, list->count + 256, sizeof(event));
        list->keys = realloc(list->keys, list->key_bytes + event.key_bytes + 1);
        assert_true(list->events != NULL && list->keys != NULL);
        memcpy(list->keys + list->key_bytes, key_room + event.key_offset, event.key_bytes);
        event.key_offset = (uint32_t)list->key_bytes;
        list->key_bytes += event.key_bytes;
        list->events[list->count++] = event;
    }
}

struct event_list list_all(struct objects *fx, spec_domain domain, uint64_t capacity,
                           uint64_t key_room_bytes)
{
    struct event_list all = {0};
    struct spec_object_event *events = calloc(capacity, sizeof(*events));
    uint8_t *room = malloc(key_room_bytes);
    assert_true(events != NULL && room != NULL);
    struct spec_list list = {.struct_size = sizeof(list),
                             .domain = domain,
                             .ret_events = events,
                             .capacity = capacity,
                             .key_room = room,
                             .key_room_bytes = key_room_bytes};
    do {
        bool is_first = list.cursor == 0;
        list.ret_count = UINT64_MAX;
        assert_ok(fx, fx->api->list(fx->store, &list, &fx->error));
        assert_true(list.ret_count <= capacity);
        if (is_first)
            all.sequence = list.sequence;
        list_append(&all, events, list.ret_count, room, key_room_bytes);
    } while (list.cursor != 0);
    free(room);
    free(events);
    return all;
}

struct event_list events_from(struct objects *fx, spec_domain domain, uint64_t sequence,
                              uint64_t capacity)
{
    struct event_list all = {.sequence = sequence};
    struct spec_object_event *events = calloc(capacity, sizeof(*events));
    uint8_t room[SPEC_KEY_BYTES_MAX];
    assert_non_null(events);
    struct spec_read_events in;
    do {
        in = (struct spec_read_events){.struct_size = sizeof(in),
                                       .domain = domain,
                                       .sequence = all.sequence,
                                       .ret_events = events,
                                       .capacity = capacity,
                                       .key_room = room,
                                       .key_room_bytes = sizeof(room)};
        assert_ok(fx, fx->api->events(fx->store, &in, &fx->error));
        assert_true(in.ret_count <= capacity);
        assert_true(in.sequence >= all.sequence);
        all.missed += in.ret_missed;
        all.sequence = in.sequence;
        list_append(&all, events, in.ret_count, room, sizeof(room));
    } while (in.ret_count > 0);
    free(events);
    return all;
}

void event_list_free(struct event_list *list)
{
    free(list->events);
    free(list->keys);
    *list = (struct event_list){0};
}

bool event_is(const struct event_list *list, uint64_t i, uint64_t number)
{
    uint8_t key[KEY_BYTES];
    key_write(number, key);
    return i < list->count && list->events[i].key_bytes == KEY_BYTES &&
           memcmp(list->keys + list->events[i].key_offset, key, KEY_BYTES) == 0;
}

/* ---- Memory and numbers ---- */

void *memory_shared(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

uint64_t dice(uint64_t *state, uint64_t sides)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % sides;
}

uint64_t seed_of_run(void)
{
    const char *text = getenv("SC_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 1;
}
