/* Transfers in the background: OBJ-060 .. OBJ-063.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MANY 12u

static spec_operation get_begin(struct objects *fx, struct batch *batch, uint64_t user)
{
    spec_operation operation = 0;
    batch_poison(batch);
    batch->params.user = user;
    assert_ok(fx, fx->api->get_submit(fx->store, fx->domain, &batch->keys, &batch->pieces,
                                      &batch->params, &operation, &fx->error));
    assert_int_not_equal(operation, 0);
    return operation;
}

/* ---- 060 ---- */

/* Keys, arrays and params are overwritten as soon as the call has returned. */
static void obj_060_what_describes_a_transfer_is_copied(void **state)
{
    struct objects *fx = *state;
    for (uint32_t turn = 0; turn < 20; turn++) {
        struct batch b = batch_split(turn * 100, 32, 20000, 3, 1), kept = b;
        uint8_t keys[32 * KEY_BYTES];
        uint64_t addresses[96], sizes[96];
        bool is_put = turn % 2 == 0;
        if (!is_put)
            put_done(fx, fx->domain, b.first, 32, 20000);
        memcpy(keys, b.key_data, sizeof(keys));
        memcpy(addresses, b.addresses, sizeof(addresses));
        memcpy(sizes, b.sizes, sizeof(sizes));
        (void)(is_put ? put_begin(fx, fx->domain, &b, turn) : get_begin(fx, &b, turn));
        memset(b.key_data, POISON, sizeof(keys));
        memset(b.addresses, 0, sizeof(addresses));
        memset(b.sizes, POISON, sizeof(sizes));
        memset(&b.keys, POISON, sizeof(b.keys));
        memset(&b.pieces, POISON, sizeof(b.pieces));
        memset(&b.params, POISON, sizeof(b.params));
        struct spec_completion completion = poll_one(fx, fx->domain);
        assert_int_equal(completion.user, turn);
        assert_int_equal(completion.status, SPEC_OK);
        assert_int_equal(completion.done_count, 32);
        memcpy(kept.key_data, keys, sizeof(keys));
        memcpy(kept.addresses, addresses, sizeof(addresses));
        memcpy(kept.sizes, sizes, sizeof(sizes));
        batch_expect(&kept, SPEC_KEY_DONE);
        if (is_put)
            get(fx, fx->domain, &kept);
        batch_check_all(&kept);
        batch_expect(&kept, SPEC_KEY_DONE);
        batch_free(&kept);
    }
}

static void await_waiting(struct objects *fx, uint64_t expected)
{
    for (uint32_t tries = 0; objects_stats(fx, 0).waiting_puts != expected;)
        if (!conf_wait(&tries))
            fail_msg("%" PRIu64 " keys wait, expected %" PRIu64, objects_stats(fx, 0).waiting_puts,
                     expected);
}

static void obj_060_keys_that_are_not_finished_are_pending(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    fill_and_hold(fx, fx->domain, 1);
    struct batch large = batch_make(1000, 1, LARGE_MIB * MIB);
    (void)put_begin(fx, fx->domain, &large, 1);
    assert_int_equal(__atomic_load_n(&large.status[0], __ATOMIC_ACQUIRE), SPEC_KEY_PENDING);
    assert_int_equal(poll_none(fx, fx->domain, 0), 0);
    await_waiting(fx, 1);
    remove_keys(fx, fx->domain, 1, 48, 0);
    assert_int_equal(poll_one(fx, fx->domain).status, SPEC_OK);
    batch_expect(&large, SPEC_KEY_DONE);
    await_waiting(fx, 0);
    batch_free(&large);
}

static void obj_060_more_than_the_configured_operations_are_busy(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL ", \"objects\": {\"submitted_max\": 4}");
    fill_and_hold(fx, fx->domain, 1);
    struct batch waiting[5];
    spec_operation operation = 0;
    for (uint32_t i = 0; i < 5; i++)
        waiting[i] = batch_make(1000 + i, 1, LARGE_MIB * MIB);
    for (uint32_t i = 0; i < 4; i++)
        (void)put_begin(fx, fx->domain, &waiting[i], i);
    batch_fill(&waiting[4]);
    assert_status(fx->api->put_submit(fx->store, fx->domain, &waiting[4].keys, &waiting[4].pieces,
                                      &waiting[4].params, &operation, &fx->error),
                  SPEC_E_BUSY);
    assert_int_equal(operation, 0);
    assert_int_equal(exists_one(fx, fx->domain, 1004), SPEC_KEY_ABSENT);
    objects_close(fx);
    for (uint32_t i = 0; i < 5; i++)
        batch_free(&waiting[i]);
}

static void obj_060_the_completions_status_is_that_of_its_keys(void **state)
{
    struct objects *fx = *state;
    put_done(fx, fx->domain, 0, 4, 3000);
    put_done(fx, fx->domain, 6, 1, 3001);
    struct batch all = batch_make(0, 4, 3000), some = batch_make(2, 4, 3000);
    struct batch wrong = batch_make(3, 4, 3000); /* DONE, ABSENT, ABSENT, INVALID */
    (void)get_begin(fx, &all, 1);
    struct spec_completion completion = poll_one(fx, fx->domain);
    assert_true(completion.status == SPEC_OK && completion.done_count == 4);
    batch_check_all(&all);
    (void)get_begin(fx, &some, 2);
    completion = poll_one(fx, fx->domain);
    assert_true(completion.status == SPEC_PENDING && completion.done_count == 2);
    batch_check_all(&some);
    (void)get_begin(fx, &wrong, 3);
    completion = poll_one(fx, fx->domain);
    assert_true(completion.status == SPEC_E_INVALID && completion.done_count == 1);
    assert_int_equal(wrong.status[3], SPEC_E_INVALID);
    batch_check_all(&wrong);
    (void)put_begin(fx, fx->domain, &all, 4); /* all are STORED */
    completion = poll_one(fx, fx->domain);
    assert_true(completion.status == SPEC_OK && completion.done_count == 4);
    batch_expect(&all, SPEC_KEY_STORED);
    batch_free(&wrong);
    batch_free(&some);
    batch_free(&all);
}

/* ---- 061 ---- */

static void obj_061_each_completion_is_returned_once(void **state)
{
    struct objects *fx = *state;
    struct batch batches[MANY];
    spec_operation operations[MANY];
    uint32_t seen[MANY] = {0};
    for (uint32_t i = 0; i < MANY; i++) {
        batches[i] = batch_make(i * 100, 8, 9000);
        operations[i] = put_begin(fx, fx->domain, &batches[i], i);
        for (uint32_t j = 0; j < i; j++)
            assert_int_not_equal(operations[i], operations[j]);
    }
    for (uint32_t left = MANY; left > 0;) {
        struct spec_completion completions[5];
        uint64_t count = 0, capacity = left % 2 == 0 ? 5 : 1;
        assert_ok(fx, fx->api->poll(fx->store, fx->domain, completions, capacity, CONF_WAIT_NS,
                                    &count, &fx->error));
        assert_true(count >= 1 && count <= capacity && count <= left);
        left -= (uint32_t)count;
        for (uint64_t i = 0; i < count; i++) {
            assert_true(completions[i].user < MANY);
            assert_int_equal(completions[i].operation, operations[completions[i].user]);
            assert_int_equal(completions[i].done_count, 8);
            assert_int_equal(completions[i].status, SPEC_OK);
            assert_int_equal(seen[completions[i].user]++, 0);
        }
    }
    assert_int_equal(poll_none(fx, fx->domain, 10 * MS_NS), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        batch_expect(&batches[i], SPEC_KEY_DONE);
        batch_free(&batches[i]);
    }
}

static void obj_061_domains_have_completions_of_their_own(void **state)
{
    struct objects *fx = *state;
    spec_domain other = objects_domain(fx, "other");
    struct batch mine = batch_make(1, 4, 5000), theirs = batch_make(1, 4, 5000);
    (void)put_begin(fx, other, &theirs, 2);
    await_exists(fx, other, 4, SPEC_KEY_DONE);
    assert_int_equal(poll_none(fx, fx->domain, 10 * MS_NS), 0);
    (void)put_begin(fx, fx->domain, &mine, 1);
    assert_int_equal(poll_one(fx, fx->domain).user, 1);
    assert_int_equal(poll_one(fx, other).user, 2);
    batch_free(&theirs);
    batch_free(&mine);
}

static void obj_061_poll_without_a_completion_returns_at_once(void **state)
{
    struct objects *fx = *state;
    struct spec_completion completion;
    uint64_t count = 7;
    assert_status(fx->api->poll(fx->store, fx->domain, &completion, 1, 0, NULL, &fx->error),
                  SPEC_E_INVALID);
    assert_ok(fx, fx->api->poll(fx->store, fx->domain, &completion, 1, 0, &count, &fx->error));
    assert_int_equal(count, 0);
}

/* ---- 062 ---- */

static uint64_t fd_count(int fd)
{
    uint64_t count = 0;
    return read(fd, &count, sizeof(count)) == sizeof(count) ? count : 0;
}

static void obj_062_an_eventfd_counts_completions(void **state)
{
    struct objects *fx = *state;
    struct batch batches[MANY];
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        second = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    uint64_t counted = 0;
    assert_true(fd >= 0 && second >= 0);
    assert_ok(fx, fx->api->event_fd_set(fx->store, fx->domain, fd, &fx->error));
    for (uint32_t i = 0; i < MANY; i++) {
        batches[i] = batch_make(i, 1, 5000);
        (void)put_begin(fx, fx->domain, &batches[i], i);
    }
    for (uint32_t tries = 0; counted < MANY; counted += fd_count(fd))
        if (!conf_wait(&tries))
            fail_msg("%" PRIu64 " completions were counted of %u", counted, MANY);
    assert_int_equal(counted, MANY);
    /* None was polled: another descriptor gets all of them at once. */
    assert_ok(fx, fx->api->event_fd_set(fx->store, fx->domain, second, &fx->error));
    assert_int_equal(fd_count(second), MANY);
    for (uint32_t i = 0; i < MANY; i++)
        (void)poll_one(fx, fx->domain);
    assert_ok(fx, fx->api->event_fd_set(fx->store, fx->domain, -1, &fx->error));
    (void)put_begin(fx, fx->domain, &batches[0], 1);
    assert_int_equal(poll_one(fx, fx->domain).user, 1);
    assert_int_equal(fd_count(fd), 0);
    assert_int_equal(fd_count(second), 0);
    assert_int_equal(close(fd), 0); /* it was never closed by the store */
    assert_int_equal(close(second), 0);
    for (uint32_t i = 0; i < MANY; i++)
        batch_free(&batches[i]);
}

/* It counts no further, and nobody waits for it. */
static void obj_062_a_full_eventfd_stops_nobody(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(0, 1, 5000);
    const uint64_t most = UINT64_MAX - 1;
    int fd = eventfd(0, EFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, &most, sizeof(most)) == (ssize_t)sizeof(most));
    assert_ok(fx, fx->api->event_fd_set(fx->store, fx->domain, fd, &fx->error));
    (void)put_begin(fx, fx->domain, &b, 1);
    assert_int_equal(poll_one(fx, fx->domain).user, 1);
    put_done(fx, fx->domain, 1, 4, 5000);
    assert_int_equal(fd_count(fd), most);
    assert_int_equal(close(fd), 0); /* the host's mistake: the store has it still */
    (void)put_begin(fx, fx->domain, &b, 2);
    assert_int_equal(poll_one(fx, fx->domain).user, 2);
    batch_free(&b);
}

/* ---- 063 ---- */

static void obj_063_what_waits_is_dropped_and_completes(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    fill_and_hold(fx, fx->domain, 1);
    struct batch large = batch_make(1000, 1, LARGE_MIB * MIB);
    spec_operation operation = put_begin(fx, fx->domain, &large, 5);
    assert_ok(fx, fx->api->cancel(fx->store, operation, &fx->error));
    struct spec_completion completion = poll_one(fx, fx->domain);
    assert_int_equal(completion.operation, operation);
    assert_int_equal(completion.user, 5);
    assert_int_equal(completion.status, SPEC_E_DROPPED);
    assert_int_equal(completion.done_count, 0);
    batch_expect(&large, SPEC_E_DROPPED);
    assert_int_equal(exists_one(fx, fx->domain, 1000), SPEC_KEY_ABSENT);
    get_expect(fx, fx->domain, 1, 48, MIB, SPEC_KEY_DONE);
    batch_free(&large);
}

/* Cancelled at any moment: every key is DONE or DROPPED, and what exists says agrees. */
static void obj_063_cancel_at_any_moment_leaves_whole_objects(void **state)
{
    struct objects *fx = *state;
    for (uint32_t turn = 0; turn < 60; turn++) {
        struct batch b = batch_make(turn * 100, 16, 70272);
        spec_operation operation = put_begin(fx, fx->domain, &b, turn);
        usleep(turn * 20);
        spec_status status = fx->api->cancel(fx->store, operation, &fx->error);
        assert_int_equal(status, SPEC_OK); /* its completion was not returned yet */
        struct spec_completion completion = poll_one(fx, fx->domain);
        assert_int_equal(completion.done_count, batch_count(&b, SPEC_KEY_DONE));
        for (uint32_t i = 0; i < 16; i++) {
            int32_t ended = b.status[i];
            assert_true(ended == SPEC_KEY_DONE || ended == SPEC_E_DROPPED);
            get_expect(fx, fx->domain, b.first + i, 1, 70272,
                       ended == SPEC_KEY_DONE ? SPEC_KEY_DONE : SPEC_KEY_ABSENT);
        }
        batch_free(&b);
    }
}

static void obj_063_an_operation_that_was_returned_is_stale(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(1, 1, 5000);
    spec_operation operation = put_begin(fx, fx->domain, &b, 1);
    (void)poll_one(fx, fx->domain);
    assert_status(fx->api->cancel(fx->store, operation, &fx->error), SPEC_E_STALE);
    assert_status(fx->api->cancel(fx->store, operation + 12345, &fx->error), SPEC_E_STALE);
    assert_status(fx->api->cancel(fx->store, 0, &fx->error), SPEC_E_STALE);
    assert_status(fx->api->cancel(fx->store, UINT64_MAX, &fx->error), SPEC_E_STALE);
    batch_free(&b);
}

const struct conf_test CONF_OBJECT_SUBMIT[] = {
    OPENED(obj_060_what_describes_a_transfer_is_copied),
    OPENED(obj_060_keys_that_are_not_finished_are_pending),
    OPENED(obj_060_more_than_the_configured_operations_are_busy),
    OPENED(obj_060_the_completions_status_is_that_of_its_keys),
    OPENED(obj_061_each_completion_is_returned_once),
    OPENED(obj_061_domains_have_completions_of_their_own),
    OPENED(obj_061_poll_without_a_completion_returns_at_once),
    OPENED(obj_062_an_eventfd_counts_completions),
    OPENED(obj_062_a_full_eventfd_stops_nobody),
    OPENED(obj_063_what_waits_is_dropped_and_completes),
    OPENED(obj_063_cancel_at_any_moment_leaves_whole_objects),
    OPENED(obj_063_an_operation_that_was_returned_is_stale),
    END};
