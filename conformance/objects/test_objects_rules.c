/* Rules for every structure and call, and the table: OBJ-001, OBJ-002, OBJ-008.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 001: struct_size and reserved members ---- */

/* One structure of the header: a right one, and a call that takes it. */
struct form {
    const char *name;
    uint32_t bytes;
    uint32_t reserved_at; /* offset of a reserved member; 0: it has none */
    bool is_output;       /* its tail is not read */
    void (*make)(struct objects *fx, void *dst);
    spec_status (*call)(struct objects *fx, void *structure);
};

static struct batch one; /* key 1 with a value of 100 bytes */
static struct spec_object_event events[4];
static uint8_t key_room[SPEC_DOMAIN_BYTES_MAX];
static struct spec_exists_params exists_all = {.struct_size = sizeof(exists_all)};

static void make_keys(struct objects *fx, void *dst)
{
    (void)fx;
    memcpy(dst, &one.keys, sizeof(one.keys));
}

static spec_status call_keys(struct objects *fx, void *keys)
{
    return fx->api->exists(fx->store, fx->domain, keys, &exists_all, NULL, &fx->error);
}

static void make_pieces(struct objects *fx, void *dst)
{
    (void)fx;
    memcpy(dst, &one.pieces, sizeof(one.pieces));
}

static spec_status call_pieces(struct objects *fx, void *pieces)
{
    return fx->api->get(fx->store, fx->domain, &one.keys, pieces, &one.params, &fx->error);
}

static void make_domain(struct objects *fx, void *dst)
{
    (void)fx;
    struct spec_domain_params params = {.struct_size = sizeof(params), .identity = {"another", 7}};
    memcpy(dst, &params, sizeof(params));
}

static spec_status call_domain(struct objects *fx, void *params)
{
    spec_domain domain = 0;
    spec_status status = fx->api->domain_open(fx->store, params, &domain, &fx->error);
    assert_int_equal(domain != 0, status == SPEC_OK);
    if (status == SPEC_OK)
        assert_ok(fx, fx->api->domain_close(fx->store, domain, &fx->error));
    return status;
}

static void make_exists(struct objects *fx, void *dst)
{
    (void)fx;
    memcpy(dst, &exists_all, sizeof(exists_all));
}

static spec_status call_exists(struct objects *fx, void *params)
{
    return fx->api->exists(fx->store, fx->domain, &one.keys, params, NULL, &fx->error);
}

static void make_transfer(struct objects *fx, void *dst)
{
    (void)fx;
    memcpy(dst, &one.params, sizeof(one.params));
}

static spec_status call_transfer(struct objects *fx, void *params)
{
    return fx->api->get(fx->store, fx->domain, &one.keys, &one.pieces, params, &fx->error);
}

static void make_events(struct objects *fx, void *dst)
{
    (void)fx;
    struct spec_read_events in = {.struct_size = sizeof(in),
                                  .ret_events = events,
                                  .capacity = 4,
                                  .key_room = key_room,
                                  .key_room_bytes = sizeof(key_room)};
    memcpy(dst, &in, sizeof(in));
}

static spec_status call_events(struct objects *fx, void *in)
{
    return fx->api->events(fx->store, in, &fx->error);
}

static void make_list(struct objects *fx, void *dst)
{
    struct spec_list in = {.struct_size = sizeof(in),
                           .domain = fx->domain,
                           .ret_events = events,
                           .capacity = 4,
                           .key_room = key_room,
                           .key_room_bytes = sizeof(key_room)};
    memcpy(dst, &in, sizeof(in));
}

static spec_status call_list(struct objects *fx, void *in)
{
    return fx->api->list(fx->store, in, &fx->error);
}

static void make_stats(struct objects *fx, void *dst)
{
    (void)fx;
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    memcpy(dst, &stats, sizeof(stats));
}

static spec_status call_stats(struct objects *fx, void *stats)
{
    return fx->api->stats(fx->store, fx->domain, stats, &fx->error);
}

static const struct form FORMS[] = {
    {"keys", sizeof(struct spec_keys), offsetof(struct spec_keys, reserved), false, make_keys,
     call_keys},
    {"pieces", sizeof(struct spec_pieces), 0, false, make_pieces, call_pieces},
    {"domain_params", sizeof(struct spec_domain_params),
     offsetof(struct spec_domain_params, reserved), false, make_domain, call_domain},
    {"exists_params", sizeof(struct spec_exists_params), 0, false, make_exists, call_exists},
    {"transfer_params", sizeof(struct spec_transfer_params),
     offsetof(struct spec_transfer_params, reserved), false, make_transfer, call_transfer},
    {"read_events", sizeof(struct spec_read_events), offsetof(struct spec_read_events, reserved),
     false, make_events, call_events},
    {"list", sizeof(struct spec_list), offsetof(struct spec_list, reserved), false, make_list,
     call_list},
    {"object_stats", sizeof(struct spec_object_stats), 0, true, make_stats, call_stats}};
#define FORM_COUNT (sizeof(FORMS) / sizeof(FORMS[0]))

/* Calls with `size` bytes of the structure, zero behind those that are known; `last` is the last
 * byte. Memory behind it is not the structure's. */
static void expect_size(struct objects *fx, const struct form *form, uint32_t size, uint8_t last,
                        spec_status expected)
{
    uint8_t whole[512] = {0};
    uint8_t *cut = malloc(size < 4 ? 4 : size);
    assert_true(cut != NULL && size <= sizeof(whole) && form->bytes <= sizeof(whole));
    form->make(fx, whole);
    memcpy(whole, &size, sizeof(size));
    memcpy(cut, whole, size < 4 ? 4 : size);
    if (size > form->bytes)
        cut[size - 1] = last;
    spec_status status = form->call(fx, cut);
    free(cut);
    if (status != expected)
        fail_msg("%s of %u bytes, the last is %u: status %d, expected %d", form->name,
                 (unsigned)size, last, (int)status, (int)expected);
}

static void obj_001_struct_sizes_that_end_inside_a_member_are_invalid(void **state)
{
    struct objects *fx = *state;
    one = batch_make(1, 1, 100);
    put(fx, fx->domain, &one);
    for (size_t i = 0; i < FORM_COUNT; i++) {
        for (uint32_t size = 0; size < FORMS[i].bytes; size++)
            if (size < 8 || size % 4 != 0)
                expect_size(fx, &FORMS[i], size, 0, SPEC_E_INVALID);
        expect_size(fx, &FORMS[i], FORMS[i].bytes, 0, SPEC_OK);
    }
    assert_int_equal(exists_one(fx, fx->domain, 1), SPEC_KEY_DONE);
    batch_free(&one);
}

static void obj_001_an_unknown_tail_must_be_zero(void **state)
{
    struct objects *fx = *state;
    one = batch_make(1, 1, 100);
    put(fx, fx->domain, &one);
    for (size_t i = 0; i < FORM_COUNT; i++) {
        expect_size(fx, &FORMS[i], FORMS[i].bytes + 16, 0, SPEC_OK);
        if (!FORMS[i].is_output)
            expect_size(fx, &FORMS[i], FORMS[i].bytes + 16, 1, SPEC_E_UNSUPPORTED);
    }
    batch_free(&one);
}

static void obj_001_reserved_members_must_be_zero(void **state)
{
    struct objects *fx = *state;
    one = batch_make(1, 1, 100);
    put(fx, fx->domain, &one);
    for (size_t i = 0; i < FORM_COUNT; i++) {
        uint64_t whole[64] = {0};
        uint32_t wrong = 1;
        FORMS[i].make(fx, whole);
        if (FORMS[i].reserved_at == 0)
            continue;
        memcpy((uint8_t *)whole + FORMS[i].reserved_at, &wrong, sizeof(wrong));
        spec_status status = FORMS[i].call(fx, whole);
        if (status != SPEC_E_INVALID)
            fail_msg("%s with a reserved member of 1: status %d", FORMS[i].name, (int)status);
    }
    batch_free(&one);
}

static void obj_001_stats_are_written_up_to_struct_size(void **state)
{
    struct objects *fx = *state;
    uint8_t bytes[sizeof(struct spec_object_stats) + 16];
    struct spec_object_stats *stats = (struct spec_object_stats *)(void *)bytes;
    put_done(fx, fx->domain, 1, 3, 100);
    memset(bytes, POISON, sizeof(bytes));
    stats->struct_size = sizeof(*stats);
    stats->reserved = 0;
    assert_ok(fx, fx->api->stats(fx->store, fx->domain, stats, &fx->error));
    assert_int_equal(stats->struct_size, sizeof(*stats));
    assert_int_equal(stats->objects, 3);
    for (uint64_t i = sizeof(*stats); i < sizeof(bytes); i++)
        assert_int_equal(bytes[i], POISON);
}

static void obj_001_open_checks_its_structures(void **state)
{
    struct objects *fx = *state;
    char config[4096];
    (void)snprintf(config, sizeof(config), "{\"path\": \"%s\"}", fx->rows.store);
    struct spec_alloc alloc = {.struct_size = 0};
    struct spec_objects_params params = {.struct_size = 0, .config = config};
    assert_status(fx->api->open(&params, &fx->store, &fx->error), SPEC_E_INVALID);
    params.struct_size = sizeof(params) - 3;
    assert_status(fx->api->open(&params, &fx->store, &fx->error), SPEC_E_INVALID);
    params.struct_size = sizeof(params);
    params.alloc = &alloc;
    assert_status(fx->api->open(&params, &fx->store, &fx->error), SPEC_E_INVALID);
    params.alloc = NULL;
    params.config = NULL;
    assert_status(fx->api->open(&params, &fx->store, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->open(NULL, &fx->store, &fx->error), SPEC_E_INVALID);
    assert_null(fx->store);
}

static void obj_001_errors_are_written_on_error_returns_only(void **state)
{
    struct objects *fx = *state;
    uint8_t bytes[sizeof(struct spec_error)];
    struct spec_error *error = (struct spec_error *)(void *)bytes;
    struct batch batch = batch_make(1, 1, 10);
    struct spec_keys wrong = batch.keys;
    wrong.count = 0;
    memset(bytes, POISON, sizeof(bytes));
    error->struct_size = offsetof(struct spec_error, text) + 8;
    assert_status(fx->api->exists(fx->store, fx->domain, &batch.keys, &exists_all, NULL, error),
                  SPEC_OK);
    for (uint64_t i = 4; i < sizeof(bytes); i++)
        assert_int_equal(bytes[i], POISON);
    assert_status(fx->api->exists(fx->store, fx->domain, &wrong, &exists_all, NULL, error),
                  SPEC_E_INVALID);
    assert_int_equal(error->code, SPEC_E_INVALID);
    assert_true(memchr(error->text, 0, 8) != NULL);
    for (uint64_t i = offsetof(struct spec_error, text) + 8; i < sizeof(bytes); i++)
        assert_int_equal(bytes[i], POISON);
    assert_status(fx->api->exists(fx->store, fx->domain, &wrong, &exists_all, NULL, NULL),
                  SPEC_E_INVALID);
    batch_free(&batch);
}

static void obj_001_required_pointers_that_are_null_are_invalid(void **state)
{
    struct objects *fx = *state;
    const struct spec_objects_api *api = fx->api;
    struct batch b = batch_make(1, 1, 10);
    struct spec_transfer_params nowhere = b.params;
    nowhere.ret_status = NULL;
    struct spec_error *error = &fx->error;
    spec_operation operation = 0;
    uint64_t count = 0;
    spec_status statuses[] = {
        api->exists(fx->store, fx->domain, NULL, &exists_all, NULL, error),
        api->exists(fx->store, fx->domain, &b.keys, NULL, NULL, error),
        api->get(fx->store, fx->domain, &b.keys, NULL, &b.params, error),
        api->get(fx->store, fx->domain, &b.keys, &b.pieces, NULL, error),
        api->get(fx->store, fx->domain, &b.keys, &b.pieces, &nowhere, error),
        api->put(fx->store, fx->domain, NULL, &b.pieces, &b.params, error),
        api->put(fx->store, fx->domain, &b.keys, &b.pieces, &nowhere, error),
        api->put_submit(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, NULL, error),
        api->get_submit(fx->store, fx->domain, &b.keys, NULL, &b.params, &operation, error),
        api->poll(fx->store, fx->domain, NULL, 1, 0, &count, error),
        api->remove(fx->store, fx->domain, NULL, 0, NULL, error),
        api->touch(fx->store, fx->domain, NULL, error),
        api->list(fx->store, NULL, error),
        api->events(fx->store, NULL, error),
        api->stats(fx->store, fx->domain, NULL, error),
        api->domain_open(fx->store, NULL, &fx->domain, error),
        api->exists(NULL, fx->domain, &b.keys, &exists_all, NULL, error)};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i] != SPEC_E_INVALID)
            fail_msg("call %zu with NULL: status %d", i, (int)statuses[i]);
    assert_int_equal(operation, 0);
    batch_free(&b);
}

/* ---- 001: forked children ---- */

static void call_in_child(void *user)
{
    struct objects *fx = user;
    const struct spec_objects_api *api = fx->api;
    struct batch b = batch_make(1, 1, 100);
    spec_operation operation = 0;
    spec_domain domain = 0;
    uint64_t count = 0;
    struct spec_completion completion;
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    struct spec_read_events in;
    struct spec_list list;
    struct spec_domain_params params;
    make_events(fx, &in);
    make_list(fx, &list);
    make_domain(fx, &params);
    spec_status statuses[] = {
        api->domain_open(fx->store, &params, &domain, NULL),
        api->exists(fx->store, fx->domain, &b.keys, &exists_all, NULL, NULL),
        api->get(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, NULL),
        api->put(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, NULL),
        api->get_submit(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, &operation, NULL),
        api->put_submit(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, &operation, NULL),
        api->poll(fx->store, fx->domain, &completion, 1, 0, &count, NULL),
        api->event_fd_set(fx->store, fx->domain, -1, NULL),
        api->cancel(fx->store, 1, NULL),
        api->remove(fx->store, fx->domain, &b.keys, 0, NULL, NULL),
        api->clear(fx->store, fx->domain, 0, NULL),
        api->touch(fx->store, fx->domain, &b.keys, NULL),
        api->list(fx->store, &list, NULL),
        api->events(fx->store, &in, NULL),
        api->stats(fx->store, fx->domain, &stats, NULL),
        api->domain_close(fx->store, fx->domain, NULL)};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i] != SPEC_E_FORKED)
            _exit(100 + (int)i); /* which call */
    api->close(fx->store);
    _exit(0);
}

static void obj_001_a_forked_child_gets_forked_and_the_parent_goes_on(void **state)
{
    struct objects *fx = *state;
    put_done(fx, fx->domain, 1, 4, 100);
    int status = fixture_in_child(call_in_child, fx);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    get_expect(fx, fx->domain, 1, 4, 100, SPEC_KEY_DONE);
    put_done(fx, fx->domain, 5, 4, 100);
    objects_reopen(fx);
    get_expect(fx, fx->domain, 1, 8, 100, SPEC_KEY_DONE);
}

/* ---- 002 ---- */

static void obj_002_a_key_has_one_value_whatever_its_pieces_are(void **state)
{
    struct objects *fx = *state;
    struct batch whole = batch_make(1, 8, 50000), split = batch_split(1, 8, 50000, 7, 3);
    put(fx, fx->domain, &split);
    batch_expect(&split, SPEC_KEY_DONE);
    get(fx, fx->domain, &whole);
    batch_expect(&whole, SPEC_KEY_DONE);
    get(fx, fx->domain, &split);
    batch_expect(&split, SPEC_KEY_DONE);
    batch_free(&split);
    batch_free(&whole);
}

/* ---- 008 ---- */

static void obj_008_the_table_is_of_the_version_that_was_asked_for(void **state)
{
    struct objects *fx = *state;
    const struct spec_objects_api *(*get_api)(uint32_t) = NULL;
    void *symbol = dlsym(fx->library, "spec_connector_objects_api");
    assert_non_null(symbol);
    memcpy(&get_api, &symbol, sizeof(get_api));
    assert_ptr_equal(get_api(SPEC_OBJECTS_MAJOR), fx->api);
    assert_null(get_api(SPEC_OBJECTS_MAJOR + 1));
    assert_null(get_api(UINT32_MAX));
    assert_int_equal(fx->api->major, SPEC_OBJECTS_MAJOR);
    assert_int_equal(fx->api->minor, SPEC_OBJECTS_MINOR);
    assert_true(fx->api->struct_size >= sizeof(*fx->api));
}

static void obj_008_no_call_of_the_table_is_null(void **state)
{
    struct objects *fx = *state;
    const uint8_t *table = (const uint8_t *)fx->api;
    for (size_t at = offsetof(struct spec_objects_api, open); at < sizeof(*fx->api);
         at += sizeof(void *)) {
        void *call = NULL;
        memcpy(&call, table + at, sizeof(call));
        if (call == NULL)
            fail_msg("the call at offset %zu is NULL", at);
    }
}

const struct conf_test CONF_OBJECT_RULES[] = {
    OPENED(obj_001_struct_sizes_that_end_inside_a_member_are_invalid),
    OPENED(obj_001_an_unknown_tail_must_be_zero),
    OPENED(obj_001_reserved_members_must_be_zero),
    OPENED(obj_001_stats_are_written_up_to_struct_size),
    BARE(obj_001_open_checks_its_structures),
    OPENED(obj_001_errors_are_written_on_error_returns_only),
    OPENED(obj_001_required_pointers_that_are_null_are_invalid),
    OPENED(obj_001_a_forked_child_gets_forked_and_the_parent_goes_on),
    OPENED(obj_002_a_key_has_one_value_whatever_its_pieces_are),
    BARE(obj_008_the_table_is_of_the_version_that_was_asked_for),
    BARE(obj_008_no_call_of_the_table_is_null),
    END};
