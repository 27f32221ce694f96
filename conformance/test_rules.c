/* test_rules: rules for every structure and call: ABI-001 .. ABI-009.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 001: struct_size ---- */

static void abi_001_struct_size_zero_is_invalid_everywhere(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1, 10);
    struct spec_lookup_params in = lookup_params(&prompt);
    struct spec_lookup_result found = {.struct_size = 0};
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    in.struct_size = 0;
    found.struct_size = sizeof(found);
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    in.struct_size = 3;
    assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
    found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 10);
    struct spec_important item = important(found.request, 0, &area.memory);
    item.struct_size = 0;
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_INVALID);
    struct spec_store_params store = {.request = found.request, .token_count = 10};
    store.memory = &area.memory;
    spec_ticket ticket;
    assert_status(fx->api->store(fx->conn, &store, 1, &ticket, &fx->error), SPEC_E_INVALID);
    store.struct_size = sizeof(store);
    area.memory.struct_size = 0;
    assert_status(fx->api->store(fx->conn, &store, 1, &ticket, &fx->error), SPEC_E_INVALID);
    struct spec_stats stats = {.struct_size = 0};
    assert_status(fx->api->stats(fx->conn, &stats, &fx->error), SPEC_E_INVALID);
    fixture_release(fx, found.request);
    area_free(&area);
    prompt_free(&prompt);
}

static void abi_001_open_struct_size_zero_is_invalid(void **state)
{
    struct fixture *fx = *state;
    fx->model.struct_size = 0;
    assert_status(fixture_try_open(fx), SPEC_E_INVALID);
    fixture_shape(fx, fx->shape);
    char config[8192];
    fixture_config(fx, config, sizeof(config));
    struct spec_open_params params = {.config = config, .model = &fx->model};
    assert_status(fx->api->open(&params, &fx->conn, &fx->error), SPEC_E_INVALID);
    assert_null(fx->conn);
}

static void abi_001_unknown_tail_of_zeros_is_accepted(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2, 10);
    struct {
        struct spec_lookup_params known;
        uint64_t unknown[3];
    } in = {.known = lookup_params(&prompt)};
    in.known.struct_size = sizeof(in);
    struct spec_lookup_result found = fixture_lookup(fx, &in.known);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_001_unknown_tail_that_is_not_zero_is_unsupported(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2, 10);
    struct {
        struct spec_lookup_params known;
        uint64_t unknown[3];
    } in = {.known = lookup_params(&prompt), .unknown = {0, 0, 1}};
    in.known.struct_size = sizeof(in);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    assert_status(fx->api->lookup(fx->conn, &in.known, &found, &fx->error), SPEC_E_UNSUPPORTED);
    assert_int_equal(found.request, 0);
    prompt_free(&prompt);
}

static void abi_001_members_that_the_caller_lacks_read_as_zero(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(3, 70);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_params in = lookup_params(&prompt);
    in.struct_size = offsetof(struct spec_lookup_params, from_token);
    in.from_token = UINT64_MAX; /* behind struct_size: must not be read */
    in.max_tokens = UINT64_MAX;
    in.multiple_of = UINT64_MAX;
    in.extra_key_count = UINT64_MAX;
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    assert_ok(fx, fx->api->lookup(fx->conn, &in, &found, &fx->error));
    expect_match(&found, stored ? 69 : 0);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_001_outputs_are_written_up_to_struct_size(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(4, 10);
    struct spec_lookup_params in = lookup_params(&prompt);
    uint8_t bytes[sizeof(struct spec_lookup_result)];
    memset(bytes, POISON, sizeof(bytes));
    struct spec_lookup_result *found = (struct spec_lookup_result *)(void *)bytes;
    found->struct_size = offsetof(struct spec_lookup_result, provenance);
    assert_ok(fx, fx->api->lookup(fx->conn, &in, found, &fx->error));
    assert_int_equal(found->state, SPEC_LOOKUP_MISS);
    for (uint64_t i = found->struct_size; i < sizeof(bytes); i++)
        assert_int_equal(bytes[i], POISON);
    fixture_release(fx, found->request);
    prompt_free(&prompt);
}

/* Queries that are given are read, whether or not they are needed. */
static void abi_001_wrong_queries_and_keys_are_found(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(14, 100);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 99 : 0);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found.matched_tokens);
    float rows[4 * 16] = {1.0f};
    struct spec_queries queries = {.struct_size = 0,
                                   .dtype = SPEC_DTYPE_F32,
                                   .data = rows,
                                   .byte_count = sizeof(rows),
                                   .row_count = 1,
                                   .row_stride_bytes = sizeof(rows),
                                   .head_stride_bytes = 16 * sizeof(float),
                                   .first_position = 99};
    struct spec_memory keys = area.memory;
    struct spec_important item = important(found.request, 0, &area.memory);
    item.queries = &queries;
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_INVALID);
    queries.struct_size = sizeof(queries);
    keys.struct_size = 0;
    item.new_keys = &keys;
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_INVALID);
    area_expect(&area, &fx->shape, &prompt, 0, 0, 0);
    item.new_keys = NULL;
    assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
    assert_int_equal(item.row_count, found.matched_tokens);
    area_expect(&area, &fx->shape, &prompt, 0, found.matched_tokens, 0);
    queries.struct_size = 0;
    assert_status(fx->api->prefetch_next(fx->conn, found.request, 0, &queries, &fx->error),
                  SPEC_E_INVALID);
    fixture_release(fx, found.request);
    area_free(&area);
    prompt_free(&prompt);
}

/* ---- 002: reserved members ---- */

static void abi_002_reserved_members_that_are_not_zero_are_invalid(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(5, 10);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 10);
    struct spec_important item = important(found.request, 0, &area.memory);
    item.reserved = 1;
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_INVALID);
    item.reserved = 0;
    item.flags = 1;
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_INVALID);
    struct spec_store_params store = {.struct_size = sizeof(store),
                                      .request = found.request,
                                      .computed_on = SPEC_PROVENANCE_PRUNED + 1,
                                      .token_count = 10,
                                      .memory = &area.memory};
    spec_ticket ticket;
    assert_status(fx->api->store(fx->conn, &store, 1, &ticket, &fx->error), SPEC_E_INVALID);
    store.computed_on = 0;
    store.flags = UINT32_C(1) << 31;
    assert_status(fx->api->store(fx->conn, &store, 1, &ticket, &fx->error), SPEC_E_INVALID);
    struct spec_lookup_params in = lookup_params(&prompt);
    struct spec_lookup_result other = {.struct_size = sizeof(other)};
    in.flags = UINT32_C(1) << 31;
    assert_status(fx->api->lookup(fx->conn, &in, &other, &fx->error), SPEC_E_INVALID);
    fixture_release(fx, found.request);
    area_free(&area);
    prompt_free(&prompt);
}

static void *refuse_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    (void)bytes, (void)align_bytes, (void)user;
    return NULL;
}

static void refuse_free(void *memory, uint64_t bytes, void *user)
{
    (void)memory, (void)bytes, (void)user;
}

static void abi_002_open_reserved_members_that_are_not_zero_are_invalid(void **state)
{
    struct fixture *fx = *state;
    char config[8192];
    fixture_config(fx, config, sizeof(config));
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = config, .model = &fx->model, .reserved = 1};
    assert_status(fx->api->open(&params, &fx->conn, &fx->error), SPEC_E_INVALID);
    struct spec_alloc alloc = {
        .struct_size = sizeof(alloc), .reserved = 1, .alloc = refuse_alloc, .free = refuse_free};
    params.reserved = 0;
    params.alloc = &alloc;
    assert_status(fx->api->open(&params, &fx->conn, &fx->error), SPEC_E_INVALID);
    assert_null(fx->conn);
}

/* ---- 003, 004: errors ---- */

static void abi_003_error_is_written_on_errors_only(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(6, 10);
    struct spec_lookup_params in = lookup_params(&prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    struct spec_error error, poison;
    memset(&error, POISON, sizeof(error));
    error.struct_size = sizeof(error);
    poison = error;
    assert_ok(fx, fx->api->lookup(fx->conn, &in, &found, &error));
    assert_memory_equal(&error, &poison, sizeof(error));
    assert_status(fx->api->release(fx->conn, found.request + 1, &error), SPEC_E_STALE);
    assert_int_equal(error.struct_size, sizeof(error));
    assert_int_equal(error.code, SPEC_E_STALE);
    assert_non_null(memchr(error.text, '\0', sizeof(error.text)));
    assert_true(strlen(error.text) > 0);
    assert_null(strchr(error.text, '\n'));
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

static void abi_003_error_may_be_null_and_may_be_short(void **state)
{
    struct fixture *fx = *state;
    assert_status(fx->api->release(fx->conn, 0, NULL), SPEC_E_STALE);
    assert_status(fx->api->lookup(fx->conn, NULL, NULL, NULL), SPEC_E_INVALID);
    assert_status(fx->api->stats(fx->conn, NULL, NULL), SPEC_E_INVALID);
    struct spec_error error;
    memset(&error, POISON, sizeof(error));
    error.struct_size = offsetof(struct spec_error, text) + 8;
    assert_status(fx->api->release(fx->conn, 0, &error), SPEC_E_STALE);
    assert_non_null(memchr(error.text, '\0', 8));
    for (uint64_t i = 8; i < sizeof(error.text); i++)
        assert_int_equal((uint8_t)error.text[i], POISON);
}

static void abi_004_errors_change_nothing_and_repeat(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(7, 100);
    bool stored = fixture_store(fx, &prompt);
    struct spec_stats before = fixture_stats(fx);
    struct spec_lookup_params in = lookup_params(&prompt);
    in.from_token = prompt.count + 1;
    struct spec_lookup_result found, poison;
    memset(&found, POISON, sizeof(found));
    found.struct_size = sizeof(found);
    poison = found;
    for (int i = 0; i < 3; i++) {
        assert_status(fx->api->lookup(fx->conn, &in, &found, &fx->error), SPEC_E_INVALID);
        assert_memory_equal(&found, &poison, sizeof(found));
        assert_status(fx->api->prefetch_next(fx->conn, 77, 0, NULL, &fx->error), SPEC_E_STALE);
    }
    struct spec_stats after = fixture_stats(fx);
    assert_int_equal(after.requests_open, before.requests_open);
    assert_int_equal(after.stored_tokens, before.stored_tokens);
    fixture_check(fx, &prompt, stored ? 99 : 0);
    prompt_free(&prompt);
}

static void abi_004_a_null_connector_is_invalid(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(7, 10);
    struct spec_lookup_params in = lookup_params(&prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    spec_ticket ticket = 1;
    spec_status ended;
    assert_status(fx->api->lookup(NULL, &in, &found, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->stats(NULL, &stats, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->release(NULL, 1, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->poll(NULL, &ticket, 1, &ended, &fx->error), SPEC_E_INVALID);
    assert_status(fx->api->store_abort(NULL, 1, 0, &fx->error), SPEC_E_INVALID);
    prompt_free(&prompt);
}

/* ---- 005: forked children ---- */

struct forked {
    struct fixture *fx;
    struct prompt prompt;
    spec_request request;
};

/* Descriptors of this process that lead into the store, or to a ring of the kernel's. */
static int count_descriptors(const struct fixture *fx)
{
    int count = 0;
    for (int fd = 0; fd < 4096; fd++) {
        char name[64], target[4096];
        (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(name, target, sizeof(target) - 1);
        if (bytes <= 0)
            continue;
        target[bytes] = '\0';
        count += strncmp(target, fx->store, strlen(fx->store)) == 0;
        count += strstr(target, "[io_uring]") != NULL;
    }
    return count;
}

static void call_in_child(void *user)
{
    struct forked *forked = user;
    struct fixture *fx = forked->fx;
    struct spec_lookup_params in = lookup_params(&forked->prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, forked->prompt.count);
    struct spec_important item = important(forked->request, 0, &area.memory);
    spec_ticket ticket = 1;
    spec_status ended;
    spec_status statuses[] = {
        fx->api->lookup(fx->conn, &in, &found, NULL),
        fx->api->stats(fx->conn, &stats, NULL),
        fx->api->begin_layer(fx->conn, &forked->request, 1, 0, NULL),
        fx->api->get_important(fx->conn, &item, 1, NULL),
        fx->api->prefetch_next(fx->conn, forked->request, 0, NULL, NULL),
        fixture_put(fx, forked->request, &forked->prompt, 0, forked->prompt.count, 0, &ticket),
        fx->api->store_abort(fx->conn, forked->request, 0, NULL),
        fx->api->poll(fx->conn, &ticket, 1, &ended, NULL),
        fx->api->wait(fx->conn, &ticket, 1, 0, &ended, NULL),
        fx->api->release(fx->conn, forked->request, NULL),
        fx->api->reset(fx->conn, NULL),
    };
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i] != SPEC_E_FORKED)
            _exit(100 + (int)i); /* which call */
    fx->api->close(fx->conn);
    _exit(count_descriptors(fx)); /* none: another process may take the store over */
}

static void abi_005_a_forked_child_gets_forked_and_the_parent_goes_on(void **state)
{
    struct fixture *fx = *state;
    struct forked forked = {fx, prompt_make(8, 100), 0};
    bool stored = fixture_store(fx, &forked.prompt);
    struct spec_lookup_result found = fixture_find(fx, &forked.prompt);
    forked.request = found.request;
    int mine = count_descriptors(fx);
    int status = fixture_in_child(call_in_child, &forked);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(count_descriptors(fx), mine);
    expect_match(&found, stored ? 99 : 0);
    fixture_check_layers(fx, &found, &forked.prompt, 0);
    fixture_release(fx, found.request);
    prompt_free(&forked.prompt);
}

/* ---- 006: after a call returns ---- */

static void abi_006_memory_is_not_written_after_the_call(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(9, 500);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 499 : 0);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found.matched_tokens);
    uint8_t *copy = malloc(area.byte_count);
    assert_non_null(copy);
    for (uint64_t deadline_ns = 1; deadline_ns < UINT64_C(1) << 32; deadline_ns <<= 4) {
        struct spec_important item = important(found.request, 0, &area.memory);
        item.deadline_ns = deadline_ns; /* some end in the middle of a load */
        area_poison(&area);
        spec_status status = fx->api->get_important(fx->conn, &item, 1, &fx->error);
        assert_true(status == SPEC_OK || status == SPEC_E_TIMEOUT);
        struct spec_important kept = item;
        memcpy(copy, area.bytes, area.byte_count);
        /* Whatever was under way is read again, in another layer, into other memory. */
        fixture_check_layer(fx, &found, &prompt, 0, 1);
        assert_memory_equal(copy, area.bytes, area.byte_count);
        assert_memory_equal(&kept, &item, sizeof(item));
    }
    area_poison(&area);
    memcpy(copy, area.bytes, area.byte_count);
    assert_ok(fx, fx->api->begin_layer(fx->conn, &found.request, 1, 0, &fx->error));
    fixture_release(fx, found.request);
    fixture_close(fx); /* every thread has ended */
    assert_memory_equal(copy, area.bytes, area.byte_count);
    free(copy);
    area_free(&area);
    prompt_free(&prompt);
}

/* ---- 007: several connectors; unloading ---- */

static void abi_007_connectors_in_one_process_share_nothing(void **state)
{
    struct fixture *fx = *state;
    struct fixture other = *fx;
    other.conn = NULL;
    (void)snprintf(other.store, sizeof(other.store), "%s/other", fx->dir);
    fixture_open(&other);
    struct prompt mine = prompt_make(10, 130), theirs = prompt_make(10, 130);
    prompt_salt(&theirs, 99); /* the same tokens, other rows */
    bool stored = fixture_store(fx, &mine);
    struct spec_lookup_result found = fixture_find(&other, &theirs);
    assert_int_equal(found.matched_tokens, 0);
    fixture_release(&other, found.request);
    bool other_stored = fixture_store(&other, &theirs);
    fixture_check(fx, &mine, stored ? 129 : 0);
    fixture_check(&other, &theirs, other_stored ? 129 : 0);
    fixture_close(&other);
    fixture_check(fx, &mine, stored ? 129 : 0);
    prompt_free(&mine);
    prompt_free(&theirs);
}

static void abi_007_load_close_unload_load_works(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(11, 130);
    bool stored = fixture_store(fx, &prompt);
    for (int i = 0; i < 3; i++) {
        fixture_close(fx);
        spec_unload(&fx->plugin);
        assert_status(spec_load(conf_options.so, &fx->plugin, &fx->error), SPEC_OK);
        fx->api = fx->plugin.api;
        fixture_open(fx);
        fixture_check(fx, &prompt, stored ? 129 : 0);
    }
    prompt_free(&prompt);
}

/* ---- 008: every address is checked ---- */

/* Both uses of a description that reaches too far are refused, and nothing is written. */
static void expect_refused(struct fixture *fx, const struct spec_lookup_result *found,
                           struct area *area, spec_status expected)
{
    area_poison(area);
    struct spec_important item = important(found->request, 0, &area->memory);
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), expected);
    for (uint64_t i = 0; i < area->byte_count; i++)
        assert_int_equal(area->bytes[i], POISON);
    struct spec_store_params store = {.struct_size = sizeof(store),
                                      .request = found->request,
                                      .token_count = area->count,
                                      .memory = &area->memory};
    spec_ticket ticket = 0;
    assert_status(fx->api->store(fx->conn, &store, 1, &ticket, &fx->error), expected);
    assert_int_equal(ticket, 0);
}

static void abi_008_addresses_outside_the_memory_are_invalid(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(12, 101);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 100 : 0);
    if (found.matched_tokens < 100) { /* a miss asks for no row, so no address is wrong */
        fixture_release(fx, found.request);
        prompt_free(&prompt);
        return;
    }
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 100);
    struct spec_memory right = area.memory;
    area.memory.k_bytes--;
    expect_refused(fx, &found, &area, SPEC_E_INVALID);
    area.memory = right;
    area.memory.v_bytes--;
    expect_refused(fx, &found, &area, SPEC_E_INVALID);
    area.memory = right;
    area.memory.token_stride_bytes = UINT64_MAX - 63;
    expect_refused(fx, &found, &area, SPEC_E_INVALID);
    area.memory = right;
    area.memory.head_stride_bytes = right.k_bytes;
    expect_refused(fx, &found, &area, SPEC_E_INVALID);
    area.memory = right;
    area.memory.k_base = NULL;
    expect_refused(fx, &found, &area, SPEC_E_INVALID);
    area.memory = right;
    area.memory.block_tokens = 16;
    area.memory.block_stride_bytes = UINT64_C(1) << 62;
    expect_refused(fx, &found, &area, SPEC_E_INVALID);
    area.memory = right;
    area.memory.dtype = 77;
    expect_refused(fx, &found, &area, SPEC_E_INVALID);
    area.memory = right;
    area.memory.device = 77;
    expect_refused(fx, &found, &area, SPEC_E_INVALID);
    area.memory = right;
    fixture_check_layers(fx, &found, &prompt, 0);
    fixture_release(fx, found.request);
    area_free(&area);
    prompt_free(&prompt);
}

static void abi_008_slots_outside_the_memory_are_invalid(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(13, 101);
    bool stored = fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    expect_match(&found, stored ? 100 : 0);
    if (found.matched_tokens < 100) {
        fixture_release(fx, found.request);
        prompt_free(&prompt);
        return;
    }
    for (enum layout layout = LAYOUT_VLLM; layout <= LAYOUT_BLOCK_HEADS; layout++) {
        struct area area = area_make(&fx->shape, layout, 100);
        int64_t right = area.slots[57];
        area.slots[57] = INT64_MAX;
        expect_refused(fx, &found, &area, SPEC_E_INVALID);
        area.slots[57] = 100000;
        expect_refused(fx, &found, &area, SPEC_E_INVALID);
        area.slots[57] = right;
        area.memory.slot_count = 99;
        expect_refused(fx, &found, &area, SPEC_E_INVALID);
        area_free(&area);
    }
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

/* ---- 009: the exported function ---- */

static void abi_009_other_major_versions_are_not_spoken(void **state)
{
    struct fixture *fx = *state;
    const struct spec_api *(*get_api)(uint32_t) = NULL;
    void *symbol = dlsym(fx->plugin.library, "spec_connector_api");
    assert_non_null(symbol);
    memcpy(&get_api, &symbol, sizeof(get_api));
    assert_ptr_equal(get_api(SPEC_ABI_MAJOR), fx->api);
    assert_null(get_api(SPEC_ABI_MAJOR + 1));
    assert_null(get_api(UINT32_MAX));
}

static void abi_009_the_table_is_whole(void **state)
{
    struct fixture *fx = *state;
    const struct spec_api *api = fx->api;
    assert_int_equal(api->major, SPEC_ABI_MAJOR);
    assert_true(SPEC_HAS(api, maintain));
    uint64_t first = offsetof(struct spec_api, open) / sizeof(void *);
    for (uint64_t i = first; i < sizeof(struct spec_api) / sizeof(void *); i++) {
        void *member;
        memcpy(&member, (const uint8_t *)api + i * sizeof(void *), sizeof(member));
        assert_non_null(member);
    }
}

const struct conf_test CONF_RULES[] = {
    OPENED(abi_001_struct_size_zero_is_invalid_everywhere),
    BARE(abi_001_open_struct_size_zero_is_invalid),
    OPENED(abi_001_unknown_tail_of_zeros_is_accepted),
    OPENED(abi_001_unknown_tail_that_is_not_zero_is_unsupported),
    OPENED(abi_001_members_that_the_caller_lacks_read_as_zero),
    OPENED(abi_001_outputs_are_written_up_to_struct_size),
    OPENED(abi_001_wrong_queries_and_keys_are_found),
    OPENED(abi_002_reserved_members_that_are_not_zero_are_invalid),
    BARE(abi_002_open_reserved_members_that_are_not_zero_are_invalid),
    OPENED(abi_003_error_is_written_on_errors_only),
    OPENED(abi_003_error_may_be_null_and_may_be_short),
    OPENED(abi_004_errors_change_nothing_and_repeat),
    BARE(abi_004_a_null_connector_is_invalid),
    OPENED(abi_005_a_forked_child_gets_forked_and_the_parent_goes_on),
    OPENED(abi_006_memory_is_not_written_after_the_call),
    OPENED(abi_007_connectors_in_one_process_share_nothing),
    OPENED(abi_007_load_close_unload_load_works),
    OPENED(abi_008_addresses_outside_the_memory_are_invalid),
    OPENED(abi_008_slots_outside_the_memory_are_invalid),
    BARE(abi_009_other_major_versions_are_not_spoken),
    BARE(abi_009_the_table_is_whole),
    END,
};
