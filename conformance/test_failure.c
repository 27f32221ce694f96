/* Bytes on the disk that changed behind the connector's back: ABI-058.
 *
 *   the files below the store are searched for bytes of the truth, and those are changed: no
 *   format is known here
 *
 * Holds, Does not, Threads, Tests: as fixture.h. */
#include "conformance/suite.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* nftw has no user pointer: what to look for, what to do there, and how often it was done. */
static uint8_t needle[64];
static uint64_t needle_bytes, changed_count;
static bool cuts; /* the file ends in the middle of the row; else a bit of the row is flipped */

static void change_file(const char *path, uint8_t *bytes, uint64_t byte_count)
{
    FILE *file = NULL;
    for (uint8_t *at = bytes;
         (at = memmem(at, byte_count - (uint64_t)(at - bytes), needle, needle_bytes)) != NULL;
         at++) {
        if (cuts) {
            changed_count += truncate(path, (off_t)(at - bytes) + 5) == 0 ? 1 : 0;
            break;
        }
        if (file == NULL)
            file = fopen(path, "r+b");
        uint8_t wrong = (uint8_t)(at[5] ^ 0x10);
        if (file != NULL && fseek(file, (long)(at - bytes) + 5, SEEK_SET) == 0 &&
            fputc(wrong, file) == wrong)
            changed_count++;
    }
    if (file != NULL)
        fclose(file);
}

static int change_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)walk;
    if (type != FTW_F || info->st_size < (off_t)needle_bytes)
        return 0;
    uint8_t *bytes = malloc((size_t)info->st_size);
    FILE *file = fopen(path, "rb");
    if (bytes != NULL && file != NULL) {
        size_t got = fread(bytes, 1, (size_t)info->st_size, file);
        if (got >= needle_bytes)
            change_file(path, bytes, got);
    }
    if (file != NULL)
        fclose(file);
    free(bytes);
    return 0;
}

/* Changes a bit of a row wherever it lies, or ends its file in it; returns how often it was found.
 */
static uint64_t damage_so(struct fixture *fx, const struct prompt *prompt, uint64_t position,
                          uint32_t layer, bool cut)
{
    uint8_t row[4096];
    assert_true(row_bytes(&fx->shape) <= sizeof(row));
    truth_row(&fx->shape, prompt, position, layer, 1, row);
    needle_bytes = row_bytes(&fx->shape) < sizeof(needle) ? row_bytes(&fx->shape) : sizeof(needle);
    memcpy(needle, row, needle_bytes);
    changed_count = 0;
    cuts = cut;
    assert_int_equal(nftw(fx->store, change_entry, 16, FTW_PHYS), 0);
    return changed_count;
}

static uint64_t damage(struct fixture *fx, const struct prompt *prompt, uint64_t position,
                       uint32_t layer)
{
    return damage_so(fx, prompt, position, layer, false);
}

/* Loads all layers as an engine would; returns where the match broke, or its length. Every layer
 * that is delivered is compared. */
static uint64_t load_until_broken(struct fixture *fx, const struct prompt *prompt,
                                  const struct spec_lookup_result *found)
{
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found->matched_tokens);
    uint64_t good = found->matched_tokens;
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_important item = important(found->request, layer, &area.memory);
        area_poison(&area);
        spec_status status = fx->api->get_important(fx->conn, &item, 1, &fx->error);
        assert_int_equal(item.status, status);
        if (status == SPEC_OK) {
            assert_int_equal(good, found->matched_tokens); /* void at every layer */
            area_expect(&area, &fx->shape, prompt, 0, found->matched_tokens, layer);
            continue;
        }
        assert_true(status == SPEC_E_CORRUPT || status == SPEC_E_IO);
        assert_true(item.failed_position < found->matched_tokens);
        if (good < found->matched_tokens)
            assert_int_equal(item.failed_position, good);
        good = item.failed_position;
    }
    area_free(&area);
    return good;
}

/* One damaged row: found out, never delivered, never promised again, and storable anew. */
static void check_damage(struct fixture *fx, const struct prompt *prompt, uint64_t position,
                         uint32_t layer)
{
    bool stored = fixture_store(fx, prompt);
    fixture_check(fx, prompt, stored ? prompt->count - 1 : 0);
    fixture_close(fx);
    uint64_t copies = damage(fx, prompt, position, layer);
    if (stored && conf_options.require_hits)
        assert_true(copies > 0);
    fixture_open(fx);
    struct spec_lookup_result found = fixture_find(fx, prompt);
    uint64_t good = load_until_broken(fx, prompt, &found);
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
    uint64_t copies = damage(fx, &part, 100, 0);
    fixture_open(fx);
    struct spec_lookup_result found = fixture_find(fx, &whole);
    uint64_t good = load_until_broken(fx, &whole, &found);
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
    uint64_t copies = damage(fx, &prompt, 100, 0);
    fixture_open(fx);
    struct spec_lookup_result first = fixture_find(fx, &prompt), second = fixture_find(fx, &prompt);
    uint64_t first_good = load_until_broken(fx, &prompt, &first);
    uint64_t second_good = load_until_broken(fx, &prompt, &second);
    assert_true(copies == 0 || (first_good <= 100 && second_good <= 100));
    fixture_release(fx, first.request);
    fixture_release(fx, second.request);
    prompt_free(&prompt);
}

/* The file ends where rows are expected, while the connector has it open: reads come short. */
static void abi_058_a_short_read_is_never_taken_as_whole(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t POSITIONS[] = {0, 1, 100, 298};
    for (uint64_t i = 0; i < sizeof(POSITIONS) / sizeof(POSITIONS[0]); i++) {
        struct prompt prompt = prompt_make(580 + i, 300);
        bool stored = fixture_store(fx, &prompt);
        fixture_check(fx, &prompt, stored ? 299 : 0); /* staging holds these rows by now */
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        uint64_t copies = damage_so(fx, &prompt, POSITIONS[i], 1, true);
        if (stored && conf_options.require_hits)
            assert_true(copies > 0);
        uint64_t good = load_until_broken(fx, &prompt, &found);
        fixture_release(fx, found.request);
        found = fixture_find(fx, &prompt);
        assert_true(found.matched_tokens <= good);
        fixture_check_layers(fx, &found, &prompt, 0);
        fixture_release(fx, found.request);
        stored = fixture_store(fx, &prompt);
        fixture_check(fx, &prompt, stored ? 299 : good);
        prompt_free(&prompt);
    }
}

/* A file of another program, or of nobody, where the store's files were. */
static int overwrite_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)walk;
    if (type != FTW_F)
        return 0;
    FILE *file = fopen(path, "r+b");
    for (off_t i = 0; file != NULL && i < info->st_size; i++)
        fputc((int)(i * 7 % 251), file);
    if (file != NULL)
        fclose(file);
    return 0;
}

static void abi_058_a_store_of_other_bytes_is_an_error_or_a_miss(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(142, 300);
    (void)fixture_store(fx, &prompt);
    fixture_close(fx);
    assert_int_equal(nftw(fx->store, overwrite_entry, 16, FTW_PHYS), 0);
    spec_status status = fixture_try_open(fx);
    if (status != SPEC_OK) {
        assert_true(status == SPEC_E_VERSION || status == SPEC_E_CORRUPT || status == SPEC_E_IO);
        assert_true(strlen(fx->error.text) > 0);
        prompt_free(&prompt);
        return;
    }
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    (void)load_until_broken(fx, &prompt, &found);
    fixture_release(fx, found.request);
    prompt_free(&prompt);
}

const struct conf_test CONF_FAILURE[] = {
    OPENED(abi_058_a_changed_row_is_never_delivered_nor_promised_again),
    OPENED(abi_058_what_was_extended_behind_a_failed_range_is_void_too),
    OPENED(abi_058_other_requests_of_the_range_are_told_too),
    OPENED(abi_058_a_short_read_is_never_taken_as_whole),
    OPENED(abi_058_a_store_of_other_bytes_is_an_error_or_a_miss),
    END,
};
