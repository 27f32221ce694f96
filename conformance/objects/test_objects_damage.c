/* Bytes that changed on disk: OBJ-004, OBJ-042. The files are damaged from outside, where values or
 * keys are found, and without a format in every page that is not zero.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KEYS   24u
#define NEEDLE 32u
/* of bytes of a value that are flipped: every place in a page, in turn */
#define FLIP_STRIDE 4099u
#define TINY "\"disk_bytes\": \"64MiB\""

static uint64_t size_of(uint64_t number)
{
    static const uint64_t SIZES[] = {100, 4096, 4097, 12288, 70272, 300000};
    return SIZES[number % 6];
}

static void put_all(struct objects *fx, uint64_t first)
{
    for (uint64_t i = first; i < first + KEYS; i++)
        put_done(fx, fx->domain, i, 1, size_of(i));
}

/* Each key is DONE with its bytes, or fails and is deleted, or is absent. Returns how many are not
 * DONE. */
static uint32_t check_all(struct objects *fx, uint64_t first, uint64_t except)
{
    uint32_t lost = 0;
    for (uint64_t i = first; i < first + KEYS; i++) {
        if (i == except)
            continue;
        struct batch b = batch_make(i, 1, size_of(i));
        get(fx, fx->domain, &b);
        int32_t status = b.status[0];
        if (status != SPEC_KEY_DONE && status != SPEC_E_CORRUPT && status != SPEC_KEY_ABSENT &&
            status != SPEC_E_IO)
            fail_msg("key %" PRIu64 " has status %" PRId32, i, status);
        if (status != SPEC_KEY_DONE) {
            lost++;
            assert_int_equal(exists_one(fx, fx->domain, i), SPEC_KEY_ABSENT);
        }
        batch_free(&b);
    }
    return lost;
}

/* One byte of value `number` is another on disk, while the store is open. */
static bool flip_value(struct objects *fx, uint64_t number, uint64_t at)
{
    uint64_t bytes = size_of(number), from = at + NEEDLE <= bytes ? at : bytes - NEEDLE;
    uint8_t *value = malloc(bytes);
    assert_non_null(value);
    value_write(number, value, bytes);
    bool found = files_flip_in(fx, value + from, NEEDLE, at - from);
    free(value);
    return found;
}

static void obj_042_a_flipped_byte_fails_its_key_alone(void **state)
{
    struct objects *fx = *state;
    uint64_t flipped = 0, at = 0;
    objects_configure(fx, TINY);
    for (uint64_t turn = 0; turn < SAMPLE_OF(20u, 3u); turn++) {
        put_all(fx, 0);
        for (uint64_t i = 0; i < KEYS; i++, at += FLIP_STRIDE) {
            if (!flip_value(fx, i, at % size_of(i)))
                conf_skip("values are not found in the files as they were put");
            struct batch b = batch_make(i, 1, size_of(i));
            get(fx, fx->domain, &b);
            batch_expect(&b, SPEC_E_CORRUPT);
            assert_int_equal(exists_one(fx, fx->domain, i), SPEC_KEY_ABSENT);
            get(fx, fx->domain, &b);
            batch_expect(&b, SPEC_KEY_ABSENT);
            put(fx, fx->domain, &b); /* it can be stored again */
            batch_expect(&b, SPEC_KEY_DONE);
            get(fx, fx->domain, &b);
            batch_expect(&b, SPEC_KEY_DONE);
            batch_free(&b);
            flipped++;
        }
        assert_int_equal(check_all(fx, 0, UINT64_MAX), 0);
        assert_int_equal(objects_stats(fx, 0).damaged_objects, flipped);
        remove_keys(fx, fx->domain, 0, KEYS, SPEC_REMOVE_ERASE); /* no old copies are found */
    }
}

static void obj_042_damage_is_an_event_with_its_reason(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, TINY);
    put_all(fx, 0);
    struct event_list list = list_all(fx, fx->domain, 100, 64 * KIB);
    if (!flip_value(fx, 4, 70271))
        conf_skip("values are not found in the files as they were put");
    get_expect(fx, fx->domain, 4, 1, size_of(4), SPEC_E_CORRUPT);
    struct event_list events = events_from(fx, fx->domain, list.sequence, 10);
    assert_int_equal(events.count, 1);
    assert_int_equal(events.events[0].kind, SPEC_EVENT_REMOVED);
    assert_int_equal(events.events[0].reason, SPEC_REMOVED_DAMAGED);
    assert_int_equal(events.events[0].bytes, size_of(4));
    assert_true(event_is(&events, 0, 4));
    objects_reopen(fx);
    assert_int_equal(exists_one(fx, fx->domain, 4), SPEC_KEY_ABSENT);
    assert_int_equal(check_all(fx, 0, 4), 0);
    event_list_free(&events);
    event_list_free(&list);
}

static void obj_041_a_damaged_key_of_a_batch_fails_alone(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, TINY);
    struct batch b = batch_make(4, 12, size_of(4));
    put(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    if (!flip_value(fx, 4, 40000))
        conf_skip("values are not found in the files as they were put");
    get(fx, fx->domain, &b);
    assert_int_equal(b.status[0], SPEC_E_CORRUPT);
    assert_int_equal(batch_count(&b, SPEC_KEY_DONE), 11);
    batch_free(&b);
}

/* A byte of one page after the other, of all files, while the store is closed. */
static void obj_042_a_flipped_byte_anywhere_never_gives_wrong_bytes(void **state)
{
    struct objects *fx = *state;
    uint64_t flips = SAMPLE_OF(400u, 40u), opened = 0, turn_of_dice = seed_of_run();
    objects_configure(fx, TINY);
    put_all(fx, 0);
    remove_keys(fx, fx->domain, 0, 3, 0);
    put_all(fx, 100);
    objects_close(fx);
    files_save(fx, "kept");
    uint64_t pages = files_pages(fx);
    assert_true(pages > 0);
    for (uint64_t i = 0; i < flips; i++) {
        char path[4096] = "";
        files_restore(fx, "kept");
        uint64_t page = i * pages / flips;
        assert_true(files_flip(fx, page, dice(&turn_of_dice, PAGE), path));
        if (objects_try_open(fx) != SPEC_OK) { /* it says so, instead of a lie */
            fx->store = NULL;
            assert_true(fx->error.code != SPEC_E_INVALID && fx->error.code != SPEC_E_POISONED);
            continue;
        }
        opened++;
        fx->domain = objects_domain(fx, "domain");
        assert_int_equal(exists_count(fx, fx->domain, 0, 3), 0); /* removed ones stay removed */
        uint32_t lost = check_all(fx, 0, UINT64_MAX) + check_all(fx, 100, UINT64_MAX);
        (void)lost;
        put_all(fx, 200);
        assert_int_equal(check_all(fx, 200, UINT64_MAX), 0);
        objects_close(fx);
    }
    assert_true(opened >= flips / 2);
}

/* The log ends anywhere behind the last key that it has. */
static void obj_004_a_log_that_was_cut_never_gives_wrong_bytes(void **state)
{
    struct objects *fx = *state;
    uint8_t key[KEY_BYTES];
    objects_configure(fx, TINY);
    put_all(fx, 0);
    objects_close(fx);
    files_save(fx, "kept");
    for (uint64_t i = 0; i < SAMPLE_OF(200u, 24u); i++) {
        files_restore(fx, "kept");
        key_write(i % KEYS, key);
        if (!files_cut(fx, key, KEY_BYTES, (i * 7) % 90))
            conf_skip("keys are not found in the files as they were put");
        if (objects_try_open(fx) != SPEC_OK) {
            fx->store = NULL;
            continue;
        }
        fx->domain = objects_domain(fx, "domain");
        (void)check_all(fx, 0, UINT64_MAX);
        put_all(fx, 100);
        assert_int_equal(check_all(fx, 100, UINT64_MAX), 0);
        objects_reopen(fx);
        assert_int_equal(check_all(fx, 100, UINT64_MAX), 0);
        objects_close(fx);
    }
}

/* The file with the keys is as it was before, as after a loss of power; values were written over
 * meanwhile. */
static void obj_004_an_older_log_over_newer_values_never_gives_wrong_bytes(void **state)
{
    struct objects *fx = *state;
    uint8_t key[KEY_BYTES];
    char path[4096], kept[8192], command[16384];
    objects_configure(fx, TINY);
    put_all(fx, 0);
    objects_close(fx);
    key_write(5, key);
    if (!files_path_of(fx, key, KEY_BYTES, path))
        conf_skip("keys are not found in the files as they were put");
    files_save(fx, "kept");
    objects_open(fx);
    remove_keys(fx, fx->domain, 0, KEYS, 0);
    for (uint64_t i = 0; i < KEYS; i++) {
        struct batch b = batch_make(i, 1, size_of(i));
        b.salt = UINT64_C(1) << 40; /* other values of the same keys and sizes */
        put(fx, fx->domain, &b);
        batch_expect(&b, SPEC_KEY_DONE);
        batch_free(&b);
    }
    objects_close(fx);
    (void)snprintf(kept, sizeof(kept), "%s/kept%s", fx->rows.dir, path + strlen(fx->rows.store));
    (void)snprintf(command, sizeof(command), "cp -a '%s' '%s'", kept, path);
    assert_int_equal(system(command), 0);
    if (objects_try_open(fx) != SPEC_OK) {
        fx->store = NULL;
        return;
    }
    fx->domain = objects_domain(fx, "domain");
    (void)check_all(fx, 0, UINT64_MAX); /* the older bytes, or none */
    put_all(fx, 100);
    assert_int_equal(check_all(fx, 100, UINT64_MAX), 0);
}

const struct conf_test CONF_OBJECT_DAMAGE[] = {
    OPENED(obj_004_a_log_that_was_cut_never_gives_wrong_bytes),
    OPENED(obj_004_an_older_log_over_newer_values_never_gives_wrong_bytes),
    OPENED(obj_041_a_damaged_key_of_a_batch_fails_alone),
    OPENED(obj_042_a_flipped_byte_fails_its_key_alone),
    OPENED(obj_042_damage_is_an_event_with_its_reason),
    OPENED(obj_042_a_flipped_byte_anywhere_never_gives_wrong_bytes),
    END};
