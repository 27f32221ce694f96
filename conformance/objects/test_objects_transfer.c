/* Values of all sizes, puts that wait, follow and fail: OBJ-004, OBJ-050 .. OBJ-053.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- 004: sizes ---- */

static void put_and_get(struct objects *fx, uint64_t first, uint32_t count, uint64_t bytes)
{
    put_done(fx, fx->domain, first, count, bytes);
    get_expect(fx, fx->domain, first, count, bytes, SPEC_KEY_DONE);
}

static void obj_004_values_of_every_size_near_a_page(void **state)
{
    struct objects *fx = *state;
    static const uint64_t SIZES[] = {1,    2,     511,   512,   4095,  4096,    4097, 8191,
                                     8192, 12289, 70272, 65536, 73728, MIB - 1, MIB,  MIB + 1};
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++)
        put_and_get(fx, i * 100, 9, SIZES[i]);
    objects_reopen(fx);
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++)
        get_expect(fx, fx->domain, i * 100, 9, SIZES[i], SPEC_KEY_DONE);
}

static void obj_004_a_value_of_the_largest_size(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, "\"disk_bytes\": \"640MiB\"");
    put_and_get(fx, 1, 1, SPEC_OBJECT_BYTES_MAX);
    put_and_get(fx, 2, 3, 70272);
    objects_reopen(fx);
    get_expect(fx, fx->domain, 1, 1, SPEC_OBJECT_BYTES_MAX, SPEC_KEY_DONE);
    get_expect(fx, fx->domain, 2, 3, 70272, SPEC_KEY_DONE);
}

static void obj_004_another_value_of_a_key_after_its_removal(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(1, 8, 70272);
    for (uint32_t turn = 0; turn < 8; turn++) {
        b.salt = turn * (UINT64_C(1) << 40);
        put(fx, fx->domain, &b);
        batch_expect(&b, SPEC_KEY_DONE);
        get(fx, fx->domain, &b);
        batch_expect(&b, SPEC_KEY_DONE);
        if (turn % 3 == 2)
            objects_reopen(fx);
        get(fx, fx->domain, &b);
        batch_expect(&b, SPEC_KEY_DONE);
        remove_keys(fx, fx->domain, 1, 8, 0);
    }
    batch_free(&b);
}

/* ---- 050: a source that changes ---- */

struct changing {
    volatile uint8_t *byte;
    uint8_t values[2];
    _Atomic int is_over;
};

/* It breaks the contract on purpose: the put reads what this writes, so ThreadSanitizer is not to
 * look. */
__attribute__((no_sanitize("thread"))) static void *change(void *user)
{
    struct changing *changing = user;
    for (uint32_t i = 0; atomic_load(&changing->is_over) == 0; i++)
        *changing->byte = changing->values[i % 2];
    return NULL;
}

static void obj_050_a_source_that_changes_is_delivered_as_one_of_its_states_or_fails(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(1, 1, 4 * MIB);
    for (uint32_t turn = 0; turn < 8; turn++) {
        uint64_t at = turn * (MIB / 2) + 17;
        b.status[0] = SPEC_KEY_PENDING;
        batch_fill(&b);
        uint8_t was = batch_value(&b, 0)[at], other = was ^ 0xffu;
        struct changing changing = {.byte = batch_value(&b, 0) + at, .values = {was, other}};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, change, &changing), 0);
        spec_status status =
            fx->api->put(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, &fx->error);
        atomic_store(&changing.is_over, 1);
        (void)pthread_join(thread, NULL);
        assert_ok(fx, status);
        batch_expect(&b, SPEC_KEY_DONE);
        batch_poison(&b);
        assert_ok(fx,
                  fx->api->get(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, &fx->error));
        assert_true(b.status[0] == SPEC_KEY_DONE || b.status[0] == SPEC_E_CORRUPT);
        if (b.status[0] == SPEC_KEY_DONE) {
            uint8_t *byte = batch_value(&b, 0) + at;
            assert_true(*byte == was || *byte == other);
            *byte = was;
            assert_true(batch_is_right(&b, 0));
        } else {
            assert_int_equal(exists_one(fx, fx->domain, 1), SPEC_KEY_ABSENT);
        }
        remove_keys(fx, fx->domain, 1, 1, 0);
    }
    batch_free(&b);
}

static void obj_050_a_source_may_change_when_its_put_has_returned(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(1, 16, 70272);
    put(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    batch_poison(&b);
    get(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    batch_free(&b);
}

/* ---- 051: once ---- */

static void obj_051_a_stored_key_is_not_written_again(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(1, 8, 6000), other = batch_make(1, 8, 6000);
    other.salt = UINT64_C(1) << 40;
    put(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    put(fx, fx->domain, &other);
    batch_expect(&other, SPEC_KEY_STORED);
    put_done(fx, fx->domain, 100, 1, 6000);
    get(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    struct batch longer = batch_make(1, 8, 9000); /* another size of a stored key */
    put(fx, fx->domain, &longer);
    batch_expect(&longer, SPEC_KEY_STORED);
    objects_reopen(fx);
    get(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    batch_free(&longer);
    batch_free(&other);
    batch_free(&b);
}

static void obj_051_a_key_twice_in_a_put_is_written_once(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(7, 3, 6000);
    key_write(7, b.key_data + KEY_BYTES);
    put(fx, fx->domain, &b);
    assert_int_equal(batch_count(&b, SPEC_KEY_DONE), 2);
    assert_int_equal(batch_count(&b, SPEC_KEY_STORED), 1);
    assert_int_equal(b.status[2], SPEC_KEY_DONE);
    assert_int_equal(exists_one(fx, fx->domain, 7), SPEC_KEY_DONE);
    batch_poison(&b);
    key_write(8, b.key_data + KEY_BYTES);
    assert_ok(fx, fx->api->get(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, &fx->error));
    bool is_first = value_is(7, batch_value(&b, 0), 6000);
    assert_true(is_first || value_is(8, batch_value(&b, 0), 6000));
    batch_free(&b);
}

/* Two puts of one key wait for room; the first is cancelled, and room is made. */
static void obj_051_a_follower_writes_if_its_leader_is_cancelled(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    fill_and_hold(fx, fx->domain, 1);
    struct batch leader = batch_make(1000, 1, LARGE_MIB * MIB);
    struct batch follower = batch_make(1000, 1, LARGE_MIB * MIB);
    follower.salt = UINT64_C(1) << 40;
    spec_operation first = put_begin(fx, fx->domain, &leader, 1);
    spec_operation second = put_begin(fx, fx->domain, &follower, 2);
    assert_ok(fx, fx->api->cancel(fx->store, first, &fx->error));
    struct spec_completion completion = poll_one(fx, fx->domain);
    assert_true(completion.operation == first && completion.user == 1);
    assert_int_equal(leader.status[0], SPEC_E_DROPPED);
    assert_int_equal(completion.status, SPEC_E_DROPPED);
    assert_int_equal(exists_one(fx, fx->domain, 1000), SPEC_KEY_PENDING);
    remove_keys(fx, fx->domain, 1, 48, 0);
    completion = poll_one(fx, fx->domain);
    assert_true(completion.operation == second && completion.user == 2);
    assert_int_equal(completion.status, SPEC_OK);
    assert_int_equal(completion.done_count, 1);
    assert_int_equal(follower.status[0], SPEC_KEY_DONE);
    get(fx, fx->domain, &follower); /* the second's bytes, not the first's */
    batch_expect(&follower, SPEC_KEY_DONE);
    batch_free(&follower);
    batch_free(&leader);
}

static void obj_051_a_follower_is_stored_when_its_leader_is(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    fill_and_hold(fx, fx->domain, 1);
    struct batch leader = batch_make(1000, 1, LARGE_MIB * MIB);
    struct batch follower = batch_make(1000, 1, LARGE_MIB * MIB);
    follower.salt = UINT64_C(1) << 40;
    (void)put_begin(fx, fx->domain, &leader, 1);
    (void)put_begin(fx, fx->domain, &follower, 2);
    remove_keys(fx, fx->domain, 1, 48, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(poll_one(fx, fx->domain).status, SPEC_OK);
    assert_int_equal(leader.status[0], SPEC_KEY_DONE);
    assert_int_equal(follower.status[0], SPEC_KEY_STORED);
    get(fx, fx->domain, &leader);
    batch_expect(&leader, SPEC_KEY_DONE);
    batch_free(&follower);
    batch_free(&leader);
}

struct same {
    struct objects *fx;
    struct batch batch;
    spec_status status;
};

static void *put_same(void *user)
{
    struct same *same = user;
    struct objects *fx = same->fx;
    same->status = fx->api->put(fx->store, fx->domain, &same->batch.keys, &same->batch.pieces,
                                &same->batch.params, NULL);
    return NULL;
}

static void obj_051_threads_that_put_the_same_keys_write_each_once(void **state)
{
    struct objects *fx = *state;
    enum { THREADS = 8, KEYS = 64 };
    struct same same[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t turn = 0; turn < 10; turn++) {
        for (uint32_t i = 0; i < THREADS; i++) {
            same[i] = (struct same){fx, batch_make(turn * KEYS, KEYS, 9000), SPEC_E_INVALID};
            batch_fill(&same[i].batch);
        }
        for (uint32_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, put_same, &same[i]), 0);
        for (uint32_t i = 0; i < THREADS; i++)
            (void)pthread_join(threads[i], NULL);
        for (uint32_t k = 0; k < KEYS; k++) {
            uint32_t done = 0, stored = 0;
            for (uint32_t i = 0; i < THREADS; i++) {
                done += same[i].batch.status[k] == SPEC_KEY_DONE;
                stored += same[i].batch.status[k] == SPEC_KEY_STORED;
            }
            assert_int_equal(done, 1);
            assert_int_equal(stored, THREADS - 1);
        }
        for (uint32_t i = 0; i < THREADS; i++) {
            assert_int_equal(same[i].status, SPEC_OK);
            batch_free(&same[i].batch);
        }
        get_expect(fx, fx->domain, turn * KEYS, KEYS, 9000, SPEC_KEY_DONE);
    }
    assert_int_equal(objects_stats(fx, fx->domain).put_stored, 10 * KEYS);
}

/* ---- 052: room ---- */

static void obj_052_what_never_fits_is_no_space_at_once(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    spec_domain limited = objects_domain_limits(fx, "limited", 0, 4 * MIB);
    put_done(fx, fx->domain, 1, 16, MIB);
    struct batch larger = batch_make(1000, 1, SMALL_MIB * MIB + 1);
    put(fx, fx->domain, &larger); /* without a deadline: returns all the same */
    batch_expect(&larger, SPEC_E_NO_SPACE);
    struct batch above = batch_make(1000, 2, 4 * MIB + 1);
    put(fx, limited, &above);
    batch_expect(&above, SPEC_E_NO_SPACE);
    assert_int_equal(exists_one(fx, fx->domain, 1000), SPEC_KEY_ABSENT);
    get_expect(fx, fx->domain, 1, 16, MIB, SPEC_KEY_DONE); /* nothing was evicted for them */
    assert_int_equal(objects_stats(fx, 0).put_no_space, 3);
    batch_free(&above);
    batch_free(&larger);
}

static void obj_052_the_deadline_ends_a_put_that_waits(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL ", \"objects\": {\"timeout_ms\": 200}");
    fill_and_hold(fx, fx->domain, 1);
    struct batch large = batch_make(1000, 1, LARGE_MIB * MIB);
    large.params.timeout_ns = 50 * MS_NS;
    put(fx, fx->domain, &large);
    batch_expect(&large, SPEC_E_TIMEOUT);
    large.params.timeout_ns = SPEC_TIMEOUT_CONFIGURED;
    put(fx, fx->domain, &large);
    batch_expect(&large, SPEC_E_TIMEOUT);
    large.params.timeout_ns = 50 * MS_NS;
    (void)put_begin(fx, fx->domain, &large, 1);
    assert_int_equal(poll_one(fx, fx->domain).status, SPEC_E_TIMEOUT);
    batch_expect(&large, SPEC_E_TIMEOUT);
    assert_int_equal(exists_one(fx, fx->domain, 1000), SPEC_KEY_ABSENT);
    get_expect(fx, fx->domain, 1, 48, MIB, SPEC_KEY_DONE);
    assert_int_equal(objects_stats(fx, 0).put_timeouts, 3);
    remove_keys(fx, fx->domain, 1, 48, 0);
    large.params.timeout_ns = SPEC_TIMEOUT_NONE;
    put(fx, fx->domain, &large);
    batch_expect(&large, SPEC_KEY_DONE);
    batch_free(&large);
}

/* A small put behind a large one that waits: it does not overtake. */
static void obj_052_a_later_put_does_not_overtake_one_that_waits(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    fill_and_hold(fx, fx->domain, 1);
    struct batch large = batch_make(1000, 1, LARGE_MIB * MIB), little = batch_make(2000, 8, MIB);
    (void)put_begin(fx, fx->domain, &large, 1);
    (void)put_begin(fx, fx->domain, &little, 2);
    assert_int_equal(poll_none(fx, fx->domain, 300 * MS_NS), 0);
    assert_int_equal(exists_count(fx, fx->domain, 2000, 8), 0);
    remove_keys(fx, fx->domain, 1, 48, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(poll_one(fx, fx->domain).status, SPEC_OK);
    get_expect(fx, fx->domain, 1000, 1, LARGE_MIB * MIB, SPEC_KEY_DONE);
    get_expect(fx, fx->domain, 2000, 8, MIB, SPEC_KEY_DONE);
    batch_free(&little);
    batch_free(&large);
}

/* ---- 053: found when done ---- */

static void obj_053_every_key_is_found_when_its_put_is_done(void **state)
{
    struct objects *fx = *state;
    for (uint32_t i = 0; i < 200; i++) {
        put_done(fx, fx->domain, i * 4, 4, 5000);
        assert_int_equal(exists(fx, fx->domain, i * 4, 4, 0, NULL), 4);
        struct batch b = batch_make(100000 + i, 1, 5000);
        (void)put_begin(fx, fx->domain, &b, i);
        assert_int_equal(poll_one(fx, fx->domain).user, i);
        batch_expect(&b, SPEC_KEY_DONE);
        assert_int_equal(exists_one(fx, fx->domain, 100000 + i), SPEC_KEY_DONE);
        batch_free(&b);
    }
}

const struct conf_test CONF_OBJECT_SIZES[] = {
    OPENED(obj_004_values_of_every_size_near_a_page), OPENED(obj_004_a_value_of_the_largest_size),
    OPENED(obj_004_another_value_of_a_key_after_its_removal), END};

const struct conf_test CONF_OBJECT_TRANSFER[] = {
    OPENED(obj_050_a_source_that_changes_is_delivered_as_one_of_its_states_or_fails),
    OPENED(obj_050_a_source_may_change_when_its_put_has_returned),
    OPENED(obj_051_a_stored_key_is_not_written_again),
    OPENED(obj_051_a_key_twice_in_a_put_is_written_once),
    OPENED(obj_051_a_follower_writes_if_its_leader_is_cancelled),
    OPENED(obj_051_a_follower_is_stored_when_its_leader_is),
    OPENED(obj_051_threads_that_put_the_same_keys_write_each_once),
    OPENED(obj_052_what_never_fits_is_no_space_at_once),
    OPENED(obj_052_the_deadline_ends_a_put_that_waits),
    OPENED(obj_052_a_later_put_does_not_overtake_one_that_waits),
    OPENED(obj_053_every_key_is_found_when_its_put_is_done),
    END};
