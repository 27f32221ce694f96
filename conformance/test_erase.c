/* test_erase: erasing: ABI-219. Searches the store's files for bytes, without knowing a format.
 *
 * Rows are searched by the truth, token ids as 32-bit numbers.
 *
 *   stored under three salts -> ERASE_SALT of one -> a miss at once; then in no file
 *
 * Connectors that never find anything pass, if their files have no erased bytes. Threads, Tests:
 * see fixture.h. */
#include "conformance/disk.h"
#include "conformance/suite.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define SMALL "\"disk_bytes\": \"16MiB\", \"segment_bytes\": \"1MiB\", \"staging_bytes\": \"16MiB\""
#define COUNT 260u
#define EVERY 13u /* of the positions, those that are looked for */
#define SALTS 3u

static const struct shape SHAPE = {2, 4, 64, SPEC_DTYPE_F16};

static struct spec_bytes salt_at(uint32_t i)
{
    static const char *const TEXTS[SALTS] = {"tenant a", "tenant b", ""};
    return (struct spec_bytes){TEXTS[i], strlen(TEXTS[i])};
}

static struct spec_lookup_result find(struct fixture *fx, const struct prompt *prompt, uint32_t i)
{
    struct spec_lookup_params in = lookup_params(prompt);
    in.salt = salt_at(i);
    return fixture_lookup(fx, &in);
}

static bool store(struct fixture *fx, const struct prompt *prompt, uint32_t i)
{
    struct spec_lookup_result found = find(fx, prompt, i);
    bool stored = fixture_store_range(fx, found.request, prompt, found.matched_tokens,
                                      prompt->count - found.matched_tokens);
    fixture_release(fx, found.request);
    return stored;
}

static void check(struct fixture *fx, const struct prompt *prompt, uint32_t i, uint64_t expected)
{
    struct spec_lookup_result found = find(fx, prompt, i);
    expect_match(&found, expected);
    fixture_check_layers(fx, &found, prompt, 0);
    fixture_release(fx, found.request);
}

static spec_status maintain(struct fixture *fx, uint32_t flags, struct spec_bytes salt)
{
    struct spec_maintain_params params = {
        .struct_size = sizeof(params), .flags = flags, .salt = salt};
    return fx->api->maintain(fx->conn, &params, &fx->error);
}

/* Nothing is written for a request of before. */
static void expect_stale(struct fixture *fx, spec_request request)
{
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, COUNT);
    struct spec_important item = important(request, 0, &area.memory);
    assert_status(fx->api->get_important(fx->conn, &item, 1, &fx->error), SPEC_E_STALE);
    for (uint64_t i = 0; i < area.byte_count; i++)
        assert_int_equal(area.bytes[i], POISON);
    area_free(&area);
}

static void await_erased(struct fixture *fx)
{
    for (uint32_t tries = 0; fixture_stats(fx).erasing != 0;)
        if (!conf_wait(&tries))
            fail_msg("nothing is erased for long: %lu failures",
                     (unsigned long)fixture_stats(fx).erase_failures);
    assert_int_equal(fixture_stats(fx).erase_failures, 0);
}

/* How many of the prompt's rows, and of its runs of token ids, stand in a file. */
static uint64_t found_in_files(const struct fixture *fx, const struct prompt *prompt)
{
    struct disk_kept *kept = disk_keep(fx);
    uint8_t row[4096];
    uint64_t count = 0;
    assert_true(row_bytes(&fx->shape) <= sizeof(row));
    for (uint64_t p = 0; p + 4 <= prompt->count; p += EVERY) {
        for (uint32_t part = 0; part < 2 * fx->shape.layers; part++) {
            truth_row(&fx->shape, prompt, p, part / 2, (int)part % 2, row);
            count += disk_kept_find(kept, NULL, row, 64, 0, 0) != NULL;
        }
        count +=
            disk_kept_find(kept, NULL, (const uint8_t *)(prompt->tokens + p), 16, 0, 0) != NULL;
    }
    disk_kept_free(kept);
    return count;
}

static void prompts_make(struct prompt prompts[SALTS], uint64_t seed)
{
    for (uint32_t i = 0; i < SALTS; i++)
        prompts[i] = prompt_make(seed + i, COUNT);
}

static void prompts_free(struct prompt prompts[SALTS])
{
    for (uint32_t i = 0; i < SALTS; i++)
        prompt_free(&prompts[i]);
}

/* ---- One process ---- */

static void abi_219_what_lies_under_a_salt_goes_and_the_rest_stays(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompts[SALTS];
    bool stored[SALTS];
    fixture_shape(fx, SHAPE);
    fixture_reconfigure(fx, SMALL);
    prompts_make(prompts, 2190);
    for (uint32_t i = 0; i < SALTS; i++)
        stored[i] = store(fx, &prompts[i], i);
    for (uint32_t i = 0; i < SALTS; i++)
        check(fx, &prompts[i], i, stored[i] ? COUNT - 1 : 0);
    if (stored[0])
        assert_true(found_in_files(fx, &prompts[0]) > 0);
    struct spec_lookup_result held = find(fx, &prompts[0], 0), other = find(fx, &prompts[1], 1);
    assert_ok(fx, maintain(fx, SPEC_MAINTAIN_ERASE_SALT, salt_at(0)));
    check(fx, &prompts[0], 0, 0);
    expect_stale(fx, held.request);
    struct spec_attach_params params = {.struct_size = sizeof(params), .lease = {held.lease, 64}};
    struct spec_lookup_result attached = {.struct_size = sizeof(attached)};
    if (held.lease_expiry_ns != 0)
        assert_status(fx->api->attach(fx->conn, &params, &attached, &fx->error), SPEC_E_STALE);
    fixture_check_layers(fx, &other, &prompts[1], 0);
    await_erased(fx);
    assert_int_equal(found_in_files(fx, &prompts[0]), 0);
    fixture_release(fx, held.request);
    fixture_release(fx, other.request);
    fixture_reopen(fx);
    check(fx, &prompts[0], 0, 0);
    for (uint32_t i = 1; i < SALTS; i++)
        check(fx, &prompts[i], i, stored[i] ? COUNT - 1 : 0);
    stored[0] = store(fx, &prompts[0], 0); /* as ever */
    check(fx, &prompts[0], 0, stored[0] ? COUNT - 1 : 0);
    prompts_free(prompts);
}

static void abi_219_everything_goes(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompts[SALTS];
    fixture_shape(fx, SHAPE);
    fixture_reconfigure(fx, SMALL);
    prompts_make(prompts, 2193);
    for (uint32_t i = 0; i < SALTS; i++)
        (void)store(fx, &prompts[i], i);
    assert_ok(fx, maintain(fx, SPEC_MAINTAIN_EVICT, (struct spec_bytes){NULL, 0}));
    assert_ok(fx, maintain(fx, SPEC_MAINTAIN_ERASE, (struct spec_bytes){NULL, 0}));
    for (uint32_t i = 0; i < SALTS; i++)
        check(fx, &prompts[i], i, 0);
    await_erased(fx);
    for (uint32_t i = 0; i < SALTS; i++)
        assert_int_equal(found_in_files(fx, &prompts[i]), 0);
    fixture_reopen(fx);
    for (uint32_t i = 0; i < SALTS; i++)
        check(fx, &prompts[i], i, 0);
    prompts_free(prompts);
}

static void abi_219_what_is_no_salt_is_refused(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2196, COUNT);
    bool stored = fixture_store(fx, &prompt);
    const struct spec_bytes none = {NULL, 0}, missing = {NULL, 1}, some = {"x", 1};
    assert_status(maintain(fx, SPEC_MAINTAIN_ERASE_SALT, none), SPEC_E_INVALID);
    assert_status(maintain(fx, SPEC_MAINTAIN_ERASE_SALT, missing), SPEC_E_INVALID);
    assert_status(maintain(fx, SPEC_MAINTAIN_ERASE, some), SPEC_E_INVALID);
    assert_status(maintain(fx, SPEC_MAINTAIN_CHECKPOINT, some), SPEC_E_INVALID);
    assert_int_equal(fixture_stats(fx).erasing, 0);
    fixture_check(fx, &prompt, stored ? COUNT - 1 : 0);
    prompt_free(&prompt);
}

/* ---- A process that ends ---- */

struct dying {
    struct fixture *fx;
    const struct prompt *prompts;
};

static void erase_and_die(void *user)
{
    struct dying *dying = user;
    fixture_open(dying->fx);
    for (uint32_t i = 0; i < SALTS; i++)
        (void)store(dying->fx, &dying->prompts[i], i);
    assert_ok(dying->fx, maintain(dying->fx, SPEC_MAINTAIN_ERASE_SALT, salt_at(0)));
    raise(SIGKILL);
}

static void abi_219_it_outlives_the_process(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompts[SALTS];
    fixture_shape(fx, SHAPE);
    fx->extra = SMALL;
    prompts_make(prompts, 2197);
    struct dying dying = {fx, prompts};
    int status = fixture_in_child(erase_and_die, &dying);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    fixture_open(fx);
    check(fx, &prompts[0], 0, 0);
    await_erased(fx);
    assert_int_equal(found_in_files(fx, &prompts[0]), 0);
    check(fx, &prompts[0], 0, 0);
    struct spec_lookup_result found = find(fx, &prompts[1], 1);
    if (conf_options.require_hits)
        assert_int_equal(found.matched_tokens, COUNT - 1);
    fixture_check_layers(fx, &found, &prompts[1], 0);
    fixture_release(fx, found.request);
    prompts_free(prompts);
}

/* ---- Other processes ---- */

static void abi_219_readers_follow_and_may_ask(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompts[SALTS];
    fixture_shape(fx, SHAPE);
    fixture_reconfigure(fx, SMALL);
    prompts_make(prompts, 2200);
    for (uint32_t i = 0; i < SALTS; i++)
        (void)store(fx, &prompts[i], i);
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    struct spec_lookup_result held = find(&reader, &prompts[0], 0);
    assert_ok(&reader, maintain(&reader, SPEC_MAINTAIN_ERASE_SALT, salt_at(0)));
    check(&reader, &prompts[0], 0, 0);
    for (uint32_t tries = 0; fixture_stats(fx).erased == 0;) /* the writer's */
        if (!conf_wait(&tries)) {
            if (conf_options.require_hits)
                fail_msg("the writer has not heard of it");
            break;
        }
    await_erased(fx);
    assert_int_equal(found_in_files(fx, &prompts[0]), 0);
    check(fx, &prompts[0], 0, 0);
    expect_stale(&reader, held.request);
    fixture_release(&reader, held.request);
    fixture_close(&reader);
    prompts_free(prompts);
}

const struct conf_test CONF_ERASE[] = {
    OPENED(abi_219_what_lies_under_a_salt_goes_and_the_rest_stays),
    OPENED(abi_219_everything_goes),
    OPENED(abi_219_what_is_no_salt_is_refused),
    BARE(abi_219_it_outlives_the_process),
    OPENED(abi_219_readers_follow_and_may_ask),
    END};
