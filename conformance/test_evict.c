/* test_evict: eviction, maintenance, and full or failing devices: ABI-088, 089, 135, 174.
 *
 * Prompts of 512 KiB each in a store of 8 MiB. Threads, Tests: see fixture.h. */
#include "conformance/disk.h"
#include "conformance/suite.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TOKENS 256u

static void open_small(struct fixture *fx)
{
    fixture_shape(fx, (struct shape){2, 4, 64, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, FIXTURE_SMALL_STORE);
}

static uint64_t matched(struct fixture *fx, const struct prompt *prompt)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    fixture_check_layers(fx, &found, prompt, 0);
    fixture_release(fx, found.request);
    return found.matched_tokens;
}

/* No more than disk_bytes is taken. */
static void check_disk_bytes(struct fixture *fx)
{
    struct spec_stats stats = fixture_stats(fx);
    assert_true(stats.disk_bytes_used <= stats.disk_bytes_max || stats.disk_bytes_max == 0);
}

/* ---- 088 ---- */

static void abi_088_a_full_store_makes_room(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    for (uint64_t i = 0; i < 60; i++) {
        struct prompt prompt = prompt_make(2000 + i, TOKENS);
        bool stored = fixture_store_at_last(fx, &prompt);
        check_disk_bytes(fx);
        fixture_check(fx, &prompt, stored ? TOKENS - 1 : 0);
        if (i % 25 == 24)
            fixture_reopen(fx);
        prompt_free(&prompt);
    }
    if (conf_options.require_hits)
        assert_true(fixture_stats(fx).evicted_chunks > 0);
}

static void abi_088_what_is_used_again_and_again_stays(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    struct prompt often = prompt_make(2100, TOKENS), once = prompt_make(2101, TOKENS);
    bool stored = fixture_store_at_last(fx, &once) && fixture_store_at_last(fx, &often);
    for (uint64_t i = 0; i < 40; i++) {
        struct prompt prompt = prompt_make(2110 + i, TOKENS);
        (void)fixture_store_at_last(fx, &prompt);
        fixture_check(fx, &often, stored ? TOKENS - 1 : 0);
        prompt_free(&prompt);
    }
    assert_true(matched(fx, &once) == 0 || !conf_options.require_hits);
    prompt_free(&often);
    prompt_free(&once);
}

static void abi_088_what_a_request_holds_stays(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    struct prompt held = prompt_make(2160, TOKENS);
    (void)fixture_store_at_last(fx, &held);
    struct spec_lookup_result found = fixture_find(fx, &held);
    for (uint64_t i = 0; i < 40; i++) {
        struct prompt prompt = prompt_make(2170 + i, TOKENS);
        (void)fixture_store_at_last(fx, &prompt);
        prompt_free(&prompt);
    }
    fixture_check_layers(fx, &found, &held, 0);
    fixture_release(fx, found.request);
    prompt_free(&held);
}

/* Trees of prompts: a trunk of half a prompt and branches. What is found is right from its first
 * token on, and what has lost its beginning would take room for good: after all that, new prompts
 * of 3 MiB must fit, which is more than half of what a store of so short rows has for rows, and be
 * found all together. The rest, two fifths, is what eviction keeps free (an eighth), what it makes
 * free for a pass that was refused because that came first (a tenth), and ends of segments. */
static void abi_088_no_stored_prefix_loses_its_beginning(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    struct prompt trunks[6];
    for (uint64_t i = 0; i < 6; i++)
        trunks[i] = prompt_make(2220 + i, TOKENS);
    for (uint64_t i = 0; i < 90; i++) {
        const struct prompt *trunk = &trunks[i * 5 % 6];
        struct prompt prompt = prompt_diverge(trunk, 70 + i * 13 % 120, TOKENS, 2300 + i);
        (void)fixture_store_at_last(fx, &prompt);
        for (uint64_t j = 0; j < 6; j++)
            (void)matched(fx, &trunks[j]);
        prompt_free(&prompt);
    }
    struct prompt last[6];
    bool all = true;
    for (uint64_t i = 0; i < 6; i++) {
        last[i] = prompt_make(2400 + i, TOKENS);
        all = fixture_store_at_last(fx, &last[i]) && all;
    }
    for (uint64_t i = 0; i < 6; i++) {
        fixture_check(fx, &last[i], all ? TOKENS - 1 : matched(fx, &last[i]));
        prompt_free(&last[i]);
    }
    for (uint64_t i = 0; i < 6; i++)
        prompt_free(&trunks[i]);
}

/* ---- 174 ---- */

/* What is not found of the prompt, one token a pass; false: one was refused. */
static bool store_each_token(struct fixture *fx, const struct prompt *prompt)
{
    struct spec_lookup_result found = fixture_find(fx, prompt);
    spec_status ended = SPEC_OK;
    for (uint64_t at = found.matched_tokens; at < prompt->count && ended == SPEC_OK; at++)
        for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
            spec_ticket ticket = 0;
            assert_ok(fx, fixture_put(fx, found.request, prompt, at, 1, layer, &ticket));
            ended = fixture_wait(fx, ticket);
        }
    fixture_release(fx, found.request);
    return ended == SPEC_OK;
}

/* What is told of rows may fill a small store before the rows do: passes of one token each, many
 * times what fits, with leases, and another open in between. Each is stored at last. */
static void abi_174_short_passes_find_room_for_good(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, (struct shape){2, 1, 16, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, "\"disk_bytes\": \"3MiB\", \"segment_bytes\": \"1MiB\", "
                            "\"staging_bytes\": \"16MiB\", \"max_requests\": 16, "
                            "\"lease_ns_max\": 20000000");
    for (uint64_t i = 0; i < 100; i++) {
        struct prompt prompt = prompt_make(2900 + i, 64);
        uint32_t tries = 0;
        bool stored = store_each_token(fx, &prompt);
        while (!stored && conf_wait(&tries) && (conf_options.require_hits || tries < 4))
            stored = store_each_token(fx, &prompt);
        if (conf_options.require_hits && !stored)
            fail_msg("no room was made");
        check_disk_bytes(fx);
        fixture_check(fx, &prompt, stored ? 63 : matched(fx, &prompt));
        if (i == 20)
            fixture_reopen(fx);
        prompt_free(&prompt);
    }
}

/* Prompts that take most of the only segment, each another: who is refused finds room later. */
static void abi_174_a_prompt_as_large_as_the_disk_finds_room(void **state)
{
    struct fixture *fx = *state;
    fixture_shape(fx, (struct shape){2, 1, 16, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, "\"disk_bytes\": \"2MiB\", \"segment_bytes\": \"1MiB\", "
                            "\"staging_bytes\": \"16MiB\", \"max_requests\": 16, "
                            "\"lease_ns_max\": 20000000");
    for (uint64_t i = 0; i < 6; i++) {
        struct prompt prompt = prompt_make(3100 + i, 6000);
        bool stored = fixture_store_at_last(fx, &prompt);
        check_disk_bytes(fx);
        fixture_check(fx, &prompt, stored ? 5999 : matched(fx, &prompt));
        if (i == 3)
            fixture_reopen(fx);
        prompt_free(&prompt);
    }
}

/* ---- 089 ---- */

/* Says of a prompt that is not there any more when that was, and whether it was evicted. */
static void say_if_lost(struct fixture *fx, const struct prompt *prompt, const char *when)
{
    if (matched(fx, prompt) == 0)
        print_message("lost %s: %" PRIu64 " chunks evicted, %" PRIu64 " dropped\n", when,
                      fixture_stats(fx).evicted_chunks, fixture_stats(fx).dropped_chunks);
}

/* The file system refuses to let files grow, then lets them again; nobody opens anything anew. */
static void abi_089_after_a_full_device_stores_are_tried_again(void **state)
{
    struct fixture *fx = *state;
    struct prompt before = prompt_make(2500, 300);
    bool stored = fixture_store(fx, &before);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit small = {4096, limit.rlim_max};
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool kept_all = true;
    for (uint64_t i = 0; i < 400 && kept_all; i++) { /* until one was refused */
        struct prompt prompt = prompt_make(2600 + i, 2000);
        kept_all = fixture_try_store(fx, &prompt);
        assert_true(matched(fx, &prompt) == 0 || kept_all);
        prompt_free(&prompt);
    }
    say_if_lost(fx, &before, "while files may not grow");
    fixture_check(fx, &before, stored ? 299 : 0); /* loads go on */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct prompt after = prompt_make(2550, 300);
    bool again = fixture_try_store(fx, &after);
    for (int tries = 0; !again && tries < 600; tries++) { /* a minute */
        usleep(100000);
        again = fixture_try_store(fx, &after);
    }
    if (conf_options.require_hits)
        assert_true(again);
    say_if_lost(fx, &after, "when it had been stored");
    fixture_check(fx, &after, again ? 299 : 0);
    prompt_free(&after);
    say_if_lost(fx, &before, "when files grow again");
    fixture_reopen(fx);
    say_if_lost(fx, &before, "by the reopening");
    fixture_check(fx, &before, stored ? 299 : 0);
    prompt_free(&before);
}

/* ---- 135 ---- */

static spec_status maintain(struct fixture *fx, uint32_t flags)
{
    struct spec_maintain_params params = {.struct_size = sizeof(params), .flags = flags};
    return fx->api->maintain(fx->conn, &params, &fx->error);
}

static void abi_135_a_checkpoint_keeps_everything(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompts[6];
    bool all = true;
    for (uint64_t i = 0; i < 6; i++) {
        prompts[i] = prompt_make(2700 + i, 200 + i);
        all = fixture_store(fx, &prompts[i]) && all;
        uint64_t before = fixture_stats(fx).checkpoints;
        assert_ok(fx, maintain(fx, SPEC_MAINTAIN_CHECKPOINT));
        for (uint32_t tries = 0; fixture_stats(fx).checkpoints == before;)
            assert_true(conf_wait(&tries));
        if (i == 3)
            fixture_reopen(fx);
        for (uint64_t j = 0; j <= i; j++)
            fixture_check(fx, &prompts[j], prompts[j].count - 1);
    }
    fixture_reopen(fx);
    for (uint64_t j = 0; j < 6; j++) {
        fixture_check(fx, &prompts[j], prompts[j].count - 1);
        prompt_free(&prompts[j]);
    }
}

static void abi_135_evict_frees_an_eighth(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    for (uint64_t i = 0; i < 14; i++) {
        struct prompt prompt = prompt_make(2720 + i, TOKENS);
        (void)fixture_store_at_last(fx, &prompt);
        prompt_free(&prompt);
    }
    assert_ok(fx, maintain(fx, SPEC_MAINTAIN_EVICT));
    struct spec_stats stats = fixture_stats(fx);
    for (uint32_t tries = 0;
         stats.disk_bytes_max - stats.extent_bytes < stats.disk_bytes_max / 8;) {
        assert_true(conf_wait(&tries));
        stats = fixture_stats(fx);
    }
    for (uint64_t i = 0; i < 14; i++) {
        struct prompt prompt = prompt_make(2720 + i, TOKENS);
        (void)matched(fx, &prompt);
        prompt_free(&prompt);
    }
}

static void abi_135_what_cannot_be_done_is_said(void **state)
{
    struct fixture *fx = *state;
    assert_status(maintain(fx, 0), SPEC_E_INVALID);
    assert_status(maintain(fx, 1u << 20), SPEC_E_INVALID);
    assert_status(fx->api->maintain(fx->conn, NULL, &fx->error), SPEC_E_INVALID);
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    assert_status(maintain(&reader, SPEC_MAINTAIN_CHECKPOINT), SPEC_E_UNSUPPORTED);
    assert_status(maintain(&reader, SPEC_MAINTAIN_EVICT), SPEC_E_UNSUPPORTED);
    fixture_close(&reader);
}

const struct conf_test CONF_EVICT[] = {
    BARE(abi_088_a_full_store_makes_room),
    BARE(abi_088_what_is_used_again_and_again_stays),
    BARE(abi_088_what_a_request_holds_stays),
    BARE(abi_088_no_stored_prefix_loses_its_beginning),
    BARE(abi_174_short_passes_find_room_for_good),
    BARE(abi_174_a_prompt_as_large_as_the_disk_finds_room),
    OPENED(abi_089_after_a_full_device_stores_are_tried_again),
    OPENED(abi_135_a_checkpoint_keeps_everything),
    BARE(abi_135_evict_frees_an_eighth),
    OPENED(abi_135_what_cannot_be_done_is_said),
    END,
};
