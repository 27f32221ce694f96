/* test_sizes: every structure at every size, from 0 to its own: ABI-001.
 *
 *   size   inside the first group, or inside a member: INVALID, nothing made, nothing written
 *          after a member: OK, as if zeros followed
 *
 * Each structure is a copy of exactly its size on the heap, which a sanitizer checks. Threads,
 * Tests: see fixture.h. */
#include "conformance/suite.h"

#include <stdlib.h>
#include <string.h>

/* Where members end, from the first group on: those that are listed, and from the last of these on
 * every 8 bytes. */
struct form {
    uint32_t bytes;
    uint32_t count;
    uint16_t ends[16];
};

#define TO(object, member)                                                                         \
    ((uint16_t)(offsetof(struct object, member) + sizeof(((struct object *)0)->member)))

static const struct form ALLOC = {sizeof(struct spec_alloc), 1, {32}};
static const struct form MEMORY = {
    sizeof(struct spec_memory), 1, {TO(spec_memory, head_stride_bytes)}};
static const struct form QUERIES = {sizeof(struct spec_queries),
                                    5,
                                    {TO(spec_queries, head_stride_bytes),
                                     TO(spec_queries, first_position), TO(spec_queries, stream),
                                     TO(spec_queries, scale), TO(spec_queries, reserved)}};
static const struct form MODEL = {sizeof(struct spec_model),
                                  4,
                                  {TO(spec_model, weights_id), TO(spec_model, revision),
                                   TO(spec_model, head_size_v), TO(spec_model, reserved)}};
static const struct form OPEN = {sizeof(struct spec_open_params),
                                 6,
                                 {24, 32, 40, TO(spec_open_params, log_user),
                                  TO(spec_open_params, log_level_max), TO(spec_open_params, rank)}};
static const struct form EXTRA_KEY = {sizeof(struct spec_extra_key), 1, {40}};
static const struct form LOOKUP = {
    sizeof(struct spec_lookup_params), 6, {24, 32, 40, 48, 64, TO(spec_lookup_params, lora)}};
static const struct form RESULT = {
    sizeof(struct spec_lookup_result),
    5,
    {24, TO(spec_lookup_result, provenance), TO(spec_lookup_result, tier_bytes),
     TO(spec_lookup_result, load_ns), TO(spec_lookup_result, lease)}};
static const struct form SELECT = {
    sizeof(struct spec_select), 3, {TO(spec_select, count), TO(spec_select, exact_ppm), 48}};
static const struct form IMPORTANT = {
    sizeof(struct spec_important),
    14,
    {TO(spec_important, row_count), TO(spec_important, next_position),
     TO(spec_important, failed_position), TO(spec_important, similarity),
     TO(spec_important, threshold), TO(spec_important, wanted_bytes),
     TO(spec_important, read_bytes), TO(spec_important, io_ops), TO(spec_important, io_exposed_ns),
     TO(spec_important, probe_ns), TO(spec_important, tier_rows),
     TO(spec_important, prefetched_rows), TO(spec_important, exact_rows),
     TO(spec_important, provenance)}};
static const struct form STORE = {
    sizeof(struct spec_store_params), 1, {TO(spec_store_params, memory)}};
static const struct form ATTACH = {
    sizeof(struct spec_attach_params), 1, {TO(spec_attach_params, lease)}};
static const struct form MAINTAIN = {sizeof(struct spec_maintain_params), 3, {8, 16, 32}};
static const struct form STATS = {sizeof(struct spec_stats), 1, {TO(spec_stats, matched_tokens)}};

static bool is_allowed(const struct form *form, uint32_t size)
{
    for (uint32_t i = 0; i < form->count; i++)
        if (form->ends[i] == size)
            return true;
    if (form == &OPEN) /* four of 4 bytes at its end */
        return size > 56 && size % 4 == 0;
    return size > form->ends[form->count - 1] && (size - form->ends[form->count - 1]) % 8 == 0;
}

/* OK or INVALID, as the size has it. */
static void expect(const struct form *form, uint32_t size, const char *what, spec_status status)
{
    spec_status expected = is_allowed(form, size) ? SPEC_OK : SPEC_E_INVALID;
    if (status != expected)
        fail_msg("%s of %u bytes: status %d, expected %d", what, (unsigned)size, (int)status,
                 (int)expected);
}

/* The structure's first `size` bytes and no more (4 at the least), with that struct_size. */
static void *cut(const void *whole, const struct form *form, uint32_t size)
{
    uint8_t *copy = calloc(1, size < 4 ? 4 : size);
    assert_non_null(copy);
    memcpy(copy, whole, size < form->bytes ? size : form->bytes);
    memcpy(copy, &size, sizeof(size));
    return copy;
}

static void expect_levels(struct fixture *fx, const struct spec_stats *before)
{
    struct spec_stats now = fixture_stats(fx);
    assert_int_equal(now.requests_open, before->requests_open);
    assert_int_equal(now.tickets_open, before->tickets_open);
}

static void abi_001_lookup_at_every_size(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(190, 100);
    bool stored = fixture_store(fx, &prompt);
    struct spec_stats before = fixture_stats(fx);
    struct spec_lookup_params in = lookup_params(&prompt);
    for (uint32_t size = 0; size <= LOOKUP.bytes; size++) {
        struct spec_lookup_params *params = cut(&in, &LOOKUP, size);
        struct spec_lookup_result found = {.struct_size = sizeof(found)};
        spec_status status = fx->api->lookup(fx->conn, params, &found, &fx->error);
        expect(&LOOKUP, size, "lookup's params", status);
        if (status == SPEC_OK) {
            expect_match(&found, stored ? 99 : 0);
            fixture_release(fx, found.request);
        }
        assert_true(status == SPEC_OK || found.request == 0);
        free(params);
    }
    expect_levels(fx, &before);
    prompt_free(&prompt);
}

static void abi_001_lookups_result_at_every_size(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(191, 100);
    struct spec_stats before = fixture_stats(fx);
    struct spec_lookup_params in = lookup_params(&prompt);
    struct spec_lookup_result poison;
    memset(&poison, POISON, sizeof(poison));
    for (uint32_t size = 0; size <= RESULT.bytes; size++) {
        struct spec_lookup_result *found = cut(&poison, &RESULT, size);
        void *untouched = cut(&poison, &RESULT, size);
        spec_status status = fx->api->lookup(fx->conn, &in, found, &fx->error);
        expect(&RESULT, size, "lookup's result", status);
        if (status == SPEC_OK)
            fixture_release(fx, found->request);
        else
            assert_memory_equal(found, untouched, size);
        expect_levels(fx, &before); /* one that could not be told would stay */
        free(untouched);
        free(found);
    }
    prompt_free(&prompt);
}

/* Two elements of the same size. */
static void abi_001_extra_keys_at_every_size(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(192, 100);
    struct spec_stats before = fixture_stats(fx);
    struct spec_lookup_params in = lookup_params(&prompt);
    const struct spec_extra_key key = {.kind = 1, .first_token = 7, .value = {"image", 5}};
    for (uint32_t size = 0; size <= EXTRA_KEY.bytes; size++) {
        uint8_t *keys = calloc(2, size < 4 ? 4 : size);
        assert_non_null(keys);
        for (uint32_t i = 0; i < 2 && size >= 4; i++) {
            memcpy(keys + i * size, &key, size);
            memcpy(keys + i * size, &size, sizeof(size));
        }
        in.extra_keys = (const struct spec_extra_key *)(void *)keys;
        in.extra_key_count = 2;
        struct spec_lookup_result found = {.struct_size = sizeof(found)};
        spec_status status = fx->api->lookup(fx->conn, &in, &found, &fx->error);
        expect(&EXTRA_KEY, size, "an extra key", status);
        if (status == SPEC_OK)
            fixture_release(fx, found.request);
        expect_levels(fx, &before);
        free(keys);
    }
    prompt_free(&prompt);
}

static void abi_001_attach_at_every_size(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(193, 100);
    (void)fixture_store(fx, &prompt);
    struct spec_lookup_result found = fixture_find(fx, &prompt), poison;
    struct spec_stats before = fixture_stats(fx);
    struct spec_attach_params in = {.lease = {found.lease, sizeof(found.lease)}};
    bool promised = found.lease_expiry_ns != 0;
    memset(&poison, POISON, sizeof(poison));
    for (uint32_t size = 0; size <= RESULT.bytes; size++) {
        struct spec_lookup_result *got = cut(&poison, &RESULT, size);
        struct spec_attach_params *params = cut(&in, &ATTACH, ATTACH.bytes);
        spec_status status = fx->api->attach(fx->conn, params, got, &fx->error);
        if (promised || !is_allowed(&RESULT, size))
            expect(&RESULT, size, "attach's result", status);
        if (status == SPEC_OK && got->request != 0)
            fixture_release(fx, got->request);
        expect_levels(fx, &before);
        free(params);
        params = cut(&in, &ATTACH, size % (ATTACH.bytes + 1));
        struct spec_lookup_result whole = {.struct_size = sizeof(whole)};
        status = fx->api->attach(fx->conn, params, &whole, &fx->error);
        if (promised || !is_allowed(&ATTACH, params->struct_size))
            expect(&ATTACH, params->struct_size, "attach's params", status);
        if (status == SPEC_OK && whole.request != 0)
            fixture_release(fx, whole.request);
        free(params);
        free(got);
    }
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

struct item_inputs { /* NULL: as it should be */
    const struct spec_memory *destination, *new_keys;
    const struct spec_queries *queries;
    const struct spec_select *select;
};

struct loading {
    struct fixture *fx;
    struct prompt prompt;
    struct spec_lookup_result found;
    struct area area;
    float rows[64];
    struct spec_queries queries;
    struct spec_select select;
};

static struct loading loading_begin(struct fixture *fx, uint64_t seed)
{
    struct loading loading = {.fx = fx, .prompt = prompt_make(seed, 100)};
    (void)fixture_store(fx, &loading.prompt);
    loading.found = fixture_find(fx, &loading.prompt);
    loading.area = area_make(&fx->shape, LAYOUT_PACKED, 99);
    loading.queries =
        (struct spec_queries){.dtype = SPEC_DTYPE_F32,
                              .byte_count = sizeof(loading.rows),
                              .row_count = 1,
                              .row_stride_bytes = sizeof(loading.rows),
                              .head_stride_bytes = fx->shape.head_size * sizeof(float),
                              .first_position = loading.found.matched_tokens};
    return loading;
}

static void loading_end(struct loading *loading)
{
    fixture_release(loading->fx, loading->found.request);
    area_free(&loading->area);
    prompt_free(&loading->prompt);
}

/* Two items of `size`, with these inputs; delivered, or nothing happened but for results. */
static spec_status load_sized(struct loading *loading, uint32_t size, struct item_inputs inputs)
{
    struct fixture *fx = loading->fx;
    struct spec_important item =
        important(loading->found.request, 0,
                  inputs.destination != NULL ? inputs.destination : &loading->area.memory);
    item.new_keys = inputs.new_keys;
    item.queries = inputs.queries;
    item.select = inputs.select;
    uint8_t *items = calloc(2, size < 4 ? 4 : size), *before = calloc(2, size < 4 ? 4 : size);
    assert_non_null(items);
    assert_non_null(before);
    for (uint32_t i = 0; i < 2 && size >= 4; i++) {
        memcpy(items + i * size, &item, size);
        memcpy(items + i * size, &size, sizeof(size));
    }
    memcpy(before, items, 2 * (uint64_t)size);
    uint64_t inputs_bytes = offsetof(struct spec_important, status);
    inputs_bytes = size < inputs_bytes ? size : inputs_bytes;
    area_poison(&loading->area);
    spec_status status =
        fx->api->get_important(fx->conn, (struct spec_important *)(void *)items, 2, &fx->error);
    for (uint32_t i = 0; i < 2 && status != SPEC_OK; i++)
        assert_memory_equal(items + i * size, before + i * size, inputs_bytes);
    memcpy(before, items, 2 * (uint64_t)size);
    area_expect(&loading->area, &fx->shape, &loading->prompt, 0,
                status == SPEC_OK ? loading->found.matched_tokens : 0, 0);
    spec_ticket ticket = 0;
    if (status != SPEC_OK)
        assert_status(fx->api->get_important_submit(
                          fx->conn, (struct spec_important *)(void *)items, 2, &ticket, &fx->error),
                      status);
    assert_int_equal(ticket, 0);
    if (status != SPEC_OK)
        assert_memory_equal(items, before, 2 * (uint64_t)size);
    free(before);
    free(items);
    return status;
}

static void abi_001_items_and_their_inputs_at_every_size(void **state)
{
    struct fixture *fx = *state;
    struct loading loading = loading_begin(fx, 194);
    loading.queries.data = loading.rows;
    for (uint32_t size = 0; size <= IMPORTANT.bytes; size++)
        expect(&IMPORTANT, size, "an item", load_sized(&loading, size, (struct item_inputs){0}));
    for (uint32_t size = 0; size <= MEMORY.bytes; size++) {
        struct spec_memory *memory = cut(&loading.area.memory, &MEMORY, size);
        expect(&MEMORY, size, "a destination",
               load_sized(&loading, IMPORTANT.bytes, (struct item_inputs){.destination = memory}));
        expect(&MEMORY, size, "new keys",
               load_sized(&loading, IMPORTANT.bytes, (struct item_inputs){.new_keys = memory}));
        free(memory);
    }
    for (uint32_t size = 0; size <= QUERIES.bytes; size++) {
        struct spec_queries *queries = cut(&loading.queries, &QUERIES, size);
        expect(&QUERIES, size, "queries",
               load_sized(&loading, IMPORTANT.bytes, (struct item_inputs){.queries = queries}));
        expect(&QUERIES, size, "a hint",
               fx->api->prefetch_next(fx->conn, loading.found.request, 0, queries, &fx->error));
        free(queries);
    }
    for (uint32_t size = 0; size <= SELECT.bytes; size++) {
        struct spec_select *select = cut(&loading.select, &SELECT, size);
        expect(&SELECT, size, "select",
               load_sized(&loading, IMPORTANT.bytes, (struct item_inputs){.select = select}));
        free(select);
    }
    loading_end(&loading);
}

static void abi_001_store_at_every_size(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(195, 10);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, 10);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct spec_stats before = fixture_stats(fx);
    for (uint32_t size = 0; size <= MEMORY.bytes + STORE.bytes; size++) {
        uint32_t store_size = size <= STORE.bytes ? size : STORE.bytes;
        uint32_t memory_size = size <= STORE.bytes ? MEMORY.bytes : size - STORE.bytes - 1;
        struct spec_memory *memory = cut(&area.memory, &MEMORY, memory_size);
        struct spec_store_params in = {
            .request = found.request, .token_count = 10, .memory = memory};
        struct spec_store_params *params = cut(&in, &STORE, store_size);
        spec_ticket ticket = 0;
        spec_status status = fx->api->store(fx->conn, params, 1, &ticket, &fx->error);
        if (size <= STORE.bytes)
            expect(&STORE, store_size, "store's params", status);
        else
            expect(&MEMORY, memory_size, "store's memory", status);
        assert_true(status == SPEC_OK || ticket == 0);
        if (status == SPEC_OK) {
            (void)fixture_wait(fx, ticket);
            assert_ok(fx, fx->api->store_abort(fx->conn, found.request, 0, &fx->error));
        }
        free(params);
        free(memory);
    }
    uint32_t tries = 0; /* what was aborted ends in the background */
    while (fixture_stats(fx).tickets_open != before.tickets_open && conf_wait(&tries))
        continue;
    expect_levels(fx, &before);
    fixture_release(fx, found.request);
    area_free(&area);
    prompt_free(&prompt);
}

static void abi_001_maintain_stats_and_errors_at_every_size(void **state)
{
    struct fixture *fx = *state;
    const struct spec_maintain_params in = {.flags = SPEC_MAINTAIN_CHECKPOINT};
    for (uint32_t size = 0; size <= MAINTAIN.bytes; size++) {
        struct spec_maintain_params *params = cut(&in, &MAINTAIN, size);
        expect(&MAINTAIN, size, "maintain's params",
               fx->api->maintain(fx->conn, params, &fx->error));
        free(params);
    }
    struct spec_stats poison;
    memset(&poison, POISON, sizeof(poison));
    for (uint32_t size = 0; size <= STATS.bytes; size++) {
        struct spec_stats *stats = cut(&poison, &STATS, size);
        void *untouched = cut(&poison, &STATS, size);
        spec_status status = fx->api->stats(fx->conn, stats, &fx->error);
        expect(&STATS, size, "stats", status);
        if (status != SPEC_OK)
            assert_memory_equal(stats, untouched, size);
        free(untouched);
        free(stats);
    }
    struct spec_error bad;
    memset(&bad, POISON, sizeof(bad));
    for (uint32_t size = 4; size <= sizeof(bad); size++) { /* a text may be short */
        const struct form form = {.bytes = sizeof(bad)};
        struct spec_error *error = cut(&bad, &form, size);
        assert_status(fx->api->release(fx->conn, 0, error), SPEC_E_STALE);
        assert_int_equal(error->struct_size, size);
        if (size >= TO(spec_error, code))
            assert_int_equal(error->code, SPEC_E_STALE);
        if (size > offsetof(struct spec_error, text))
            assert_non_null(memchr(error->text, 0, size - offsetof(struct spec_error, text)));
        free(error);
    }
}

static void *host_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    (void)user;
    return aligned_alloc(align_bytes, (bytes + align_bytes - 1) / align_bytes * align_bytes);
}

static void host_free(void *memory, uint64_t bytes, void *user)
{
    (void)bytes, (void)user;
    free(memory);
}

/* Opens with what is given in place of the fixture's. */
static spec_status try_open(struct fixture *fx, const struct spec_model *model,
                            const struct spec_alloc *alloc, uint32_t size)
{
    char config[8192];
    fixture_config(fx, config, sizeof(config));
    struct spec_open_params in = {.config = config, .model = model, .alloc = alloc};
    struct spec_open_params *params = cut(&in, &OPEN, size);
    spec_status status = fx->api->open(params, &fx->conn, &fx->error);
    assert_true(status == SPEC_OK ? fx->conn != NULL : fx->conn == NULL);
    if (status == SPEC_OK)
        fixture_close(fx);
    free(params);
    return status;
}

static void abi_001_open_at_every_size(void **state)
{
    struct fixture *fx = *state;
    const struct spec_alloc alloc = {.alloc = host_alloc, .free = host_free};
    for (uint32_t size = 0; size <= OPEN.bytes; size++)
        expect(&OPEN, size, "open's params", try_open(fx, &fx->model, NULL, size));
    for (uint32_t size = 0; size <= MODEL.bytes; size++) {
        struct spec_model *model = cut(&fx->model, &MODEL, size);
        expect(&MODEL, size, "open's model", try_open(fx, model, NULL, OPEN.bytes));
        free(model);
    }
    for (uint32_t size = 0; size <= ALLOC.bytes; size++) {
        struct spec_alloc *cut_alloc = cut(&alloc, &ALLOC, size);
        expect(&ALLOC, size, "open's alloc", try_open(fx, &fx->model, cut_alloc, OPEN.bytes));
        free(cut_alloc);
    }
}

const struct conf_test CONF_SIZES[] = {
    OPENED(abi_001_lookup_at_every_size),
    OPENED(abi_001_lookups_result_at_every_size),
    OPENED(abi_001_extra_keys_at_every_size),
    OPENED(abi_001_attach_at_every_size),
    OPENED(abi_001_items_and_their_inputs_at_every_size),
    OPENED(abi_001_store_at_every_size),
    OPENED(abi_001_maintain_stats_and_errors_at_every_size),
    BARE(abi_001_open_at_every_size),
    END,
};
