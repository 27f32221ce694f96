/* Removing and clearing: OBJ-070 .. OBJ-072.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 070 ---- */

static void obj_070_removed_keys_are_absent_at_once_and_later(void **state)
{
    struct objects *fx = *state;
    int8_t statuses[12];
    struct batch b = batch_make(0, 12, 1);
    put_done(fx, fx->domain, 0, 10, 9000);
    memset(statuses, POISON, sizeof(statuses));
    b.keys.count = 5;
    assert_ok(fx, fx->api->remove(fx->store, fx->domain, &b.keys, 0, statuses, &fx->error));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(statuses[i], SPEC_KEY_DONE);
    assert_int_equal((uint8_t)statuses[5], POISON);
    b.keys.count = 12;
    get_expect(fx, fx->domain, 0, 5, 9000, SPEC_KEY_ABSENT);
    get_expect(fx, fx->domain, 5, 5, 9000, SPEC_KEY_DONE);
    objects_reopen(fx);
    get_expect(fx, fx->domain, 0, 5, 9000, SPEC_KEY_ABSENT);
    get_expect(fx, fx->domain, 5, 5, 9000, SPEC_KEY_DONE);
    assert_ok(fx, fx->api->remove(fx->store, fx->domain, &b.keys, 0, statuses, &fx->error));
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(statuses[i], i < 5 || i >= 10 ? SPEC_KEY_ABSENT : SPEC_KEY_DONE);
    assert_int_equal(objects_stats(fx, fx->domain).objects, 0);
    batch_free(&b);
}

static void obj_070_a_held_object_is_removed(void **state)
{
    struct objects *fx = *state;
    put_done(fx, fx->domain, 0, 4, 9000);
    assert_int_equal(exists(fx, fx->domain, 0, 4, SPEC_EXISTS_HOLD, NULL), 4);
    remove_keys(fx, fx->domain, 0, 4, 0);
    get_expect(fx, fx->domain, 0, 4, 9000, SPEC_KEY_ABSENT);
}

static void obj_070_a_put_under_way_ends_dropped(void **state)
{
    struct objects *fx = *state;
    int8_t status = -1;
    objects_configure(fx, SMALL);
    fill_and_hold(fx, fx->domain, 1);
    struct batch large = batch_make(1000, 1, LARGE_MIB * MIB);
    (void)put_begin(fx, fx->domain, &large, 1);
    assert_ok(fx, fx->api->remove(fx->store, fx->domain, &large.keys, 0, &status, &fx->error));
    assert_int_equal(poll_one(fx, fx->domain).status, SPEC_E_DROPPED);
    batch_expect(&large, SPEC_E_DROPPED);
    assert_int_equal(exists_one(fx, fx->domain, 1000), SPEC_KEY_ABSENT);
    remove_keys(fx, fx->domain, 1, 48, 0);
    put(fx, fx->domain, &large);
    batch_expect(&large, SPEC_KEY_DONE);
    get(fx, fx->domain, &large);
    batch_expect(&large, SPEC_KEY_DONE);
    batch_free(&large);
}

/* All that the index has is held, so of many new keys some wait for an entry. */
static void obj_070_puts_without_room_in_the_index_end_dropped(void **state)
{
    enum { OTHERS = 600 };
    struct objects *fx = *state;
    objects_configure(fx, "\"disk_bytes\": \"128MiB\", \"index_bytes_max\": \"1MiB\", "
                          "\"objects\": {\"log_ppm\": 250000}");
    for (uint64_t i = 0; i < 8000; i += 1000)
        put_done(fx, fx->domain, i, 1000, 1);
    struct batch all = batch_make(0, 8000, 1), others = batch_make(10000, OTHERS, 1);
    const struct spec_exists_params hold = {
        .struct_size = sizeof(hold), .flags = SPEC_EXISTS_HOLD, .hold_ns = SPEC_HOLD_NS_MAX};
    assert_ok(fx, fx->api->exists(fx->store, fx->domain, &all.keys, &hold, NULL, &fx->error));
    for (uint32_t turn = 0; turn < 2; turn++) {
        batch_poison(&others);
        (void)put_begin(fx, fx->domain, &others, turn + 1);
        if (turn == 0)
            assert_ok(fx,
                      fx->api->remove(fx->store, fx->domain, &others.keys, 0, NULL, &fx->error));
        else
            assert_ok(fx, fx->api->clear(fx->store, fx->domain, 0, &fx->error));
        (void)poll_one(fx, fx->domain);
        assert_true(batch_count(&others, SPEC_E_DROPPED) > 0);
        assert_int_equal(exists_count(fx, fx->domain, 10000, OTHERS), 0);
    }
    batch_free(&all);
    batch_free(&others);
}

static void remove_in_child(void *user)
{
    struct objects *fx = user;
    if (objects_try_open(fx) != SPEC_OK)
        _exit(1);
    fx->domain = objects_domain(fx, "domain");
    put_done(fx, fx->domain, 0, 20, 9000);
    remove_keys(fx, fx->domain, 0, 10, 0);
    (void)kill(getpid(), SIGKILL); /* directly behind the return */
}

static void obj_070_removed_keys_are_absent_after_a_kill(void **state)
{
    struct objects *fx = *state;
    int status = fixture_in_child(remove_in_child, fx);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    objects_open(fx);
    get_expect(fx, fx->domain, 0, 10, 9000, SPEC_KEY_ABSENT);
    get_expect(fx, fx->domain, 10, 10, 9000, SPEC_KEY_DONE);
}

static void obj_070_unknown_flags_are_invalid(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(0, 1, 1);
    put_done(fx, fx->domain, 0, 1, 100);
    assert_status(fx->api->remove(fx->store, fx->domain, &b.keys, 2, NULL, &fx->error),
                  SPEC_E_INVALID);
    assert_status(fx->api->clear(fx->store, fx->domain, 2, &fx->error), SPEC_E_INVALID);
    get_expect(fx, fx->domain, 0, 1, 100, SPEC_KEY_DONE);
    batch_free(&b);
}

/* ---- 071 ---- */

/* How often the key, and parts of the value, are in the files. */
static uint64_t found_in_files(struct objects *fx, uint64_t number, uint64_t value_bytes)
{
    static uint8_t value[70272];
    uint8_t key[KEY_BYTES];
    assert_true(value_bytes <= sizeof(value));
    key_write(number, key);
    value_write(number, value, value_bytes);
    uint64_t count = files_count(fx, key, sizeof(key));
    for (uint64_t at = 0; at + 64 <= value_bytes; at += value_bytes / 4)
        count += files_count(fx, value + at, 64);
    return count;
}

static uint64_t found_of(struct objects *fx, uint64_t first, uint64_t count)
{
    static const uint64_t SIZES[] = {500, 9000, 70272};
    uint64_t found = 0;
    for (uint64_t i = first; i < first + count; i++)
        found += found_in_files(fx, i, SIZES[i % 3]);
    return found;
}

static void put_three_sizes(struct objects *fx, spec_domain domain, uint64_t first, uint64_t count)
{
    static const uint64_t SIZES[] = {500, 9000, 70272};
    for (uint64_t i = first; i < first + count; i++)
        put_done(fx, domain, i, 1, SIZES[i % 3]);
}

static void obj_071_erased_keys_and_values_are_in_no_file(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    put_three_sizes(fx, fx->domain, 0, 18);
    assert_true(found_of(fx, 0, 18) > 0); /* the search finds what is stored */
    remove_keys(fx, fx->domain, 0, 9, SPEC_REMOVE_ERASE);
    assert_int_equal(found_of(fx, 0, 9), 0);
    objects_reopen(fx);
    assert_int_equal(found_of(fx, 0, 9), 0);
    assert_int_equal(exists_count(fx, fx->domain, 0, 9), 0);
    for (uint64_t i = 9; i < 18; i++)
        assert_int_equal(exists_one(fx, fx->domain, i), SPEC_KEY_DONE);
    get_expect(fx, fx->domain, 9, 1, 500, SPEC_KEY_DONE);
    get_expect(fx, fx->domain, 11, 1, 70272, SPEC_KEY_DONE);
}

/* Whatever moment of its put the removal meets. */
static void obj_071_a_value_that_is_being_put_is_in_no_file(void **state)
{
    struct objects *fx = *state;
    for (uint64_t i = 0; i < 8; i++) {
        struct batch b = batch_make(200 + i, 1, 24 * MIB);
        (void)put_begin(fx, fx->domain, &b, i);
        usleep((useconds_t)(i * 3000));
        if (i % 2 == 0)
            remove_keys(fx, fx->domain, 200 + i, 1, SPEC_REMOVE_ERASE);
        else
            assert_ok(fx, fx->api->clear(fx->store, fx->domain, SPEC_REMOVE_ERASE, &fx->error));
        assert_int_equal(found_in_files(fx, 200 + i, 70272), 0);
        (void)poll_one(fx, fx->domain);
        assert_true(b.status[0] == SPEC_E_DROPPED || b.status[0] == SPEC_KEY_DONE);
        assert_int_equal(found_in_files(fx, 200 + i, 70272), 0);
        batch_free(&b);
    }
}

static void obj_071_a_cleared_domain_is_in_no_file(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    spec_domain other = objects_domain(fx, "other");
    put_three_sizes(fx, fx->domain, 0, 12);
    put_three_sizes(fx, other, 100, 12);
    assert_ok(fx, fx->api->clear(fx->store, fx->domain, SPEC_REMOVE_ERASE, &fx->error));
    assert_int_equal(found_of(fx, 0, 12), 0);
    assert_int_equal(exists_count(fx, other, 100, 12), 12);
    objects_reopen(fx);
    other = objects_domain(fx, "other");
    assert_int_equal(found_of(fx, 0, 12), 0);
    get_expect(fx, other, 101, 1, 70272, SPEC_KEY_DONE);
}

/* ---- 072 ---- */

static void obj_072_clear_removes_all_objects_of_one_domain(void **state)
{
    struct objects *fx = *state;
    spec_domain other = objects_domain(fx, "other");
    put_done(fx, fx->domain, 0, 500, 100);
    put_done(fx, other, 0, 500, 100);
    assert_int_equal(exists(fx, fx->domain, 0, 10, SPEC_EXISTS_HOLD, NULL), 10);
    assert_ok(fx, fx->api->clear(fx->store, fx->domain, 0, &fx->error));
    assert_int_equal(exists_count(fx, fx->domain, 0, 500), 0);
    assert_int_equal(exists_count(fx, other, 0, 500), 500);
    assert_int_equal(objects_stats(fx, fx->domain).objects, 0);
    put_done(fx, fx->domain, 400, 200, 100);
    objects_reopen(fx);
    other = objects_domain(fx, "other");
    get_expect(fx, fx->domain, 0, 400, 100, SPEC_KEY_ABSENT);
    get_expect(fx, fx->domain, 400, 200, 100, SPEC_KEY_DONE);
    get_expect(fx, other, 0, 500, 100, SPEC_KEY_DONE);
    assert_ok(fx, fx->api->clear(fx->store, other, 0, &fx->error));
    assert_ok(fx, fx->api->clear(fx->store, other, 0, &fx->error)); /* an empty one, too */
    objects_reopen(fx);
    other = objects_domain(fx, "other");
    assert_int_equal(exists_count(fx, other, 0, 500), 0);
    get_expect(fx, fx->domain, 400, 200, 100, SPEC_KEY_DONE);
}

static void obj_072_a_put_under_way_when_its_domain_is_cleared_ends_dropped(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    spec_domain other = objects_domain(fx, "other");
    fill_and_hold(fx, other, 1);
    struct batch large = batch_make(1000, 1, LARGE_MIB * MIB);
    (void)put_begin(fx, fx->domain, &large, 1);
    assert_ok(fx, fx->api->clear(fx->store, fx->domain, 0, &fx->error));
    assert_int_equal(poll_one(fx, fx->domain).status, SPEC_E_DROPPED);
    batch_expect(&large, SPEC_E_DROPPED);
    assert_int_equal(exists_one(fx, fx->domain, 1000), SPEC_KEY_ABSENT);
    batch_free(&large);
}

const struct conf_test CONF_OBJECT_REMOVE[] = {
    OPENED(obj_070_removed_keys_are_absent_at_once_and_later),
    OPENED(obj_070_a_held_object_is_removed),
    OPENED(obj_070_a_put_under_way_ends_dropped),
    OPENED(obj_070_puts_without_room_in_the_index_end_dropped),
    BARE(obj_070_removed_keys_are_absent_after_a_kill),
    OPENED(obj_070_unknown_flags_are_invalid),
    OPENED(obj_071_erased_keys_and_values_are_in_no_file),
    OPENED(obj_071_a_value_that_is_being_put_is_in_no_file),
    OPENED(obj_071_a_cleared_domain_is_in_no_file),
    OPENED(obj_072_clear_removes_all_objects_of_one_domain),
    OPENED(obj_072_a_put_under_way_when_its_domain_is_cleared_ends_dropped),
    END};
