/* test_failure: bytes on disk that were changed behind the connector's back: ABI-058.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/disk.h"
#include "conformance/suite.h"

#include <string.h>

/* One damaged row: found out, never delivered, never promised again, and storable anew. */
static void check_damage(struct fixture *fx, const struct prompt *prompt, uint64_t position,
                         uint32_t layer)
{
    bool stored = fixture_store(fx, prompt);
    fixture_check(fx, prompt, stored ? prompt->count - 1 : 0);
    fixture_close(fx);
    uint64_t copies = disk_damage(fx, (struct disk_row){prompt, position, layer}, DISK_FLIP);
    if (stored && conf_options.require_hits)
        assert_true(copies > 0);
    fixture_open(fx);
    struct spec_lookup_result found = fixture_find(fx, prompt);
    uint64_t good = fixture_load_until_broken(fx, prompt, &found);
    assert_true(copies == 0 || good <= position);
    fixture_release(fx, found.request);
    found = fixture_find(fx, prompt);
    assert_true(found.matched_tokens <= good);
    fixture_check_layers(fx, &found, prompt, 0);
    fixture_release(fx, found.request);
    fixture_reopen(fx);
    found = fixture_find(fx, prompt);
    assert_true(found.matched_tokens <= good); /* also after a restart */
    fixture_release(fx, found.request);
    stored = fixture_store(fx, prompt);
    fixture_check(fx, prompt, stored ? prompt->count - 1 : good);
    fixture_reopen(fx);
    fixture_check(fx, prompt, stored ? prompt->count - 1 : good);
}

static void abi_058_a_changed_row_is_never_delivered_nor_promised_again(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t POSITIONS[] = {0, 63, 64, 150, 298};
    for (uint64_t i = 0; i < sizeof(POSITIONS) / sizeof(POSITIONS[0]); i++) {
        struct prompt prompt = prompt_make(130 + i, 300);
        check_damage(fx, &prompt, POSITIONS[i], (uint32_t)(i % fx->shape.layers));
        prompt_free(&prompt);
    }
}

static void abi_058_what_was_extended_behind_a_failed_range_is_void_too(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(140, 500), part = prompt_diverge(&whole, 200, 200, 1);
    bool stored = fixture_store(fx, &part) && fixture_store(fx, &whole);
    fixture_check(fx, &whole, stored ? 499 : 0);
    fixture_close(fx);
    uint64_t copies = disk_damage(fx, (struct disk_row){&part, 100, 0}, DISK_FLIP);
    fixture_open(fx);
    struct spec_lookup_result found = fixture_find(fx, &whole);
    uint64_t good = fixture_load_until_broken(fx, &whole, &found);
    assert_true(copies == 0 || good <= 100);
    fixture_release(fx, found.request);
    found = fixture_find(fx, &whole);
    assert_true(found.matched_tokens <= good);
    fixture_check_layers(fx, &found, &whole, 0);
    fixture_release(fx, found.request);
    stored = fixture_store(fx, &whole);
    fixture_check(fx, &whole, stored ? 499 : good);
    prompt_free(&whole);
    prompt_free(&part);
}

static void abi_058_other_requests_of_the_range_are_told_too(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(141, 300);
    (void)fixture_store(fx, &prompt);
    fixture_close(fx);
    uint64_t copies = disk_damage(fx, (struct disk_row){&prompt, 100, 0}, DISK_FLIP);
    fixture_open(fx);
    struct spec_lookup_result first = fixture_find(fx, &prompt), second = fixture_find(fx, &prompt);
    uint64_t first_good = fixture_load_until_broken(fx, &prompt, &first);
    uint64_t second_good = fixture_load_until_broken(fx, &prompt, &second);
    assert_true(copies == 0 || (first_good <= 100 && second_good <= 100));
    fixture_release(fx, first.request);
    fixture_release(fx, second.request);
    prompt_free(&prompt);
}

/* Passes until one is whole; returns what it delivered, `found` is the lookup after it. A cut takes
 * the layers behind it too, also of ranges that the layer in the cut delivers still: a lookup may
 * promise those until a load has found out. */
static uint64_t load_until_whole(struct fixture *fx, const struct prompt *prompt,
                                 struct spec_lookup_result *found)
{
    for (;;) {
        uint64_t promised = found->matched_tokens;
        uint64_t good = fixture_load_until_broken(fx, prompt, found);
        fixture_release(fx, found->request);
        *found = fixture_find(fx, prompt);
        assert_true(found->matched_tokens <= good);
        if (good == promised)
            return good;
    }
}

/* The file ends where rows are expected, while the connector has it open: reads come short. */
static void abi_058_short_read_taken_as_whole(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t POSITIONS[] = {0, 1, 100, 298};
    for (uint64_t i = 0; i < sizeof(POSITIONS) / sizeof(POSITIONS[0]); i++) {
        struct prompt prompt = prompt_make(580 + i, 300);
        bool stored = fixture_store(fx, &prompt);
        fixture_check(fx, &prompt, stored ? 299 : 0); /* staging holds these rows by now */
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        uint64_t copies = disk_damage(fx, (struct disk_row){&prompt, POSITIONS[i], 1}, DISK_CUT);
        if (stored && conf_options.require_hits)
            assert_true(copies > 0);
        uint64_t good = load_until_whole(fx, &prompt, &found);
        fixture_check_layers(fx, &found, &prompt, 0);
        fixture_release(fx, found.request);
        stored = fixture_store(fx, &prompt);
        fixture_check(fx, &prompt, stored ? 299 : good);
        prompt_free(&prompt);
    }
}

/* Files of another program, or of nobody, where the store's files were. */
static void abi_058_a_store_of_other_bytes_is_an_error_or_a_miss(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(142, 300);
    (void)fixture_store(fx, &prompt);
    fixture_close(fx);
    disk_overwrite(fx);
    spec_status status = fixture_try_open(fx);
    if (status != SPEC_OK) {
        assert_true(status == SPEC_E_VERSION || status == SPEC_E_CORRUPT || status == SPEC_E_IO);
        assert_true(strlen(fx->error.text) > 0);
        prompt_free(&prompt);
        return;
    }
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    (void)fixture_load_until_broken(fx, &prompt, &found);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

const struct conf_test CONF_FAILURE[] = {
    OPENED(abi_058_a_changed_row_is_never_delivered_nor_promised_again),
    OPENED(abi_058_what_was_extended_behind_a_failed_range_is_void_too),
    OPENED(abi_058_other_requests_of_the_range_are_told_too),
    OPENED(abi_058_short_read_taken_as_whole),
    OPENED(abi_058_a_store_of_other_bytes_is_an_error_or_a_miss),
    END,
};
