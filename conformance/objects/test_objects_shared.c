/* Several processes over the objects of a rank: OBJ-009. Skipped if the library lets one open them.
 *
 * Holds: what a process was told is stored is found by the others, bit by bit, after CONF_WAIT_NS
 * at the latest, whatever became of the process. Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define VALUE_BYTES UINT64_C(20000)

/* Opens a second handle beside fx, as another process would. */
static void second_open(const struct objects *fx, struct objects *second)
{
    *second = *fx;
    if (!objects_open_beside(second))
        conf_skip("one process opens the objects of a rank");
}

static void await_absent(struct objects *fx, uint64_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        await_exists(fx, fx->domain, first + i, SPEC_KEY_ABSENT);
}

static void await_found(struct objects *fx, uint64_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        await_exists(fx, fx->domain, first + i, SPEC_KEY_DONE);
    get_expect(fx, fx->domain, first, count, VALUE_BYTES, SPEC_KEY_DONE);
}

static void obj_009_all_find_what_any_has_stored_or_removed(void **state)
{
    struct objects *fx = *state;
    struct objects second;
    second_open(fx, &second);
    put_done(fx, fx->domain, 0, 20, VALUE_BYTES);
    put_done(&second, second.domain, 20, 20, VALUE_BYTES);
    await_found(&second, 0, 20);
    await_found(fx, 20, 20);
    struct batch again = batch_make(0, 40, VALUE_BYTES);
    put(&second, second.domain, &again);
    batch_expect(&again, SPEC_KEY_STORED);
    batch_free(&again);
    remove_keys(&second, second.domain, 5, 10, 0);
    await_absent(fx, 5, 10);
    put_done(fx, fx->domain, 5, 5, VALUE_BYTES);
    await_found(&second, 5, 5);
    assert_int_equal(objects_stats(fx, 0).objects, 35);
    assert_ok(fx, fx->api->clear(fx->store, fx->domain, 0, &fx->error));
    await_absent(&second, 0, 40);
    objects_close(&second);
    assert_int_equal(objects_stats(fx, 0).objects, 0);
}

static void obj_009_domains_of_others_have_the_same_identities(void **state)
{
    struct objects *fx = *state;
    struct objects second;
    second_open(fx, &second);
    for (uint32_t i = 0; i < 8; i++) { /* some at the same time */
        char name[16];
        (void)snprintf(name, sizeof(name), "domain %u", i % 5);
        spec_domain one = objects_domain(fx, name), other = objects_domain(&second, name);
        put_done(i % 2 == 0 ? fx : &second, i % 2 == 0 ? one : other, 100 * i, 4, VALUE_BYTES);
        for (uint32_t k = 0; k < 4; k++) {
            await_exists(fx, one, 100 * i + k, SPEC_KEY_DONE);
            await_exists(&second, other, 100 * i + k, SPEC_KEY_DONE);
        }
    }
    objects_close(&second);
    objects_reopen(fx);
    for (uint32_t i = 0; i < 8; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "domain %u", i % 5);
        get_expect(fx, objects_domain(fx, name), 100 * i, 4, VALUE_BYTES, SPEC_KEY_DONE);
    }
}

static void obj_009_a_domain_that_others_forget_keeps_its_identity(void **state)
{
    enum { COUNT = 1100 }; /* more than the most: those that are closed and empty go */
    struct objects *fx = *state;
    struct objects second;
    char name[16];
    second_open(fx, &second);
    spec_domain kept = objects_domain(&second, "kept"), last = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        (void)snprintf(name, sizeof(name), "domain %" PRIu32, i);
        last = objects_domain(fx, name);
        if (i + 1 < COUNT)
            assert_ok(fx, fx->api->domain_close(fx->store, last, &fx->error));
    }
    put_done(&second, kept, 1, 4, VALUE_BYTES);
    put_done(fx, last, 11, 4, VALUE_BYTES);
    await_exists(fx, objects_domain(fx, "kept"), 4, SPEC_KEY_DONE);
    get_expect(fx, objects_domain(fx, "kept"), 1, 4, VALUE_BYTES, SPEC_KEY_DONE);
    await_exists(&second, objects_domain(&second, name), 14, SPEC_KEY_DONE);
    assert_int_equal(exists_count(&second, kept, 11, 4), 0);
    assert_int_equal(exists_count(fx, last, 1, 4), 0);
    objects_close(&second);
    objects_reopen(fx);
    get_expect(fx, objects_domain(fx, "kept"), 1, 4, VALUE_BYTES, SPEC_KEY_DONE);
    get_expect(fx, objects_domain(fx, name), 11, 4, VALUE_BYTES, SPEC_KEY_DONE);
}

struct round { /* in shared memory */
    _Atomic int goes;      /* 1: the child opens the rank, and puts */
    _Atomic uint64_t done; /* keys that are stored */
};

/* Puts batch after batch when its round begins. Never returns. */
static void child_puts(struct objects *fx, struct round *round, uint64_t first)
{
    while (atomic_load(&round->goes) == 0)
        usleep(1000);
    objects_open(fx);
    for (uint64_t i = 0;; i += 8) {
        put_done(fx, fx->domain, first + i, 8, VALUE_BYTES);
        atomic_store(&round->done, i + 8);
    }
}

static void obj_009_a_killed_process_leaves_what_it_has_stored(void **state)
{
    enum { ROUNDS = 6, LEAST = 24 };
    struct objects *fx = *state;
    struct objects second;
    struct round *rounds = memory_shared(ROUNDS * sizeof(*rounds));
    pid_t pids[ROUNDS];
    objects_open(fx);
    second_open(fx, &second);
    objects_close(&second);
    objects_close(fx);
    for (uint64_t i = 0; i < ROUNDS; i++) { /* before there are threads */
        pids[i] = conf_fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            child_puts(fx, &rounds[i], 10000 * (i + 1));
    }
    objects_open(fx);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        const uint64_t first = 10000 * (i + 1);
        atomic_store(&rounds[i].goes, 1);
        for (uint64_t own = 0; atomic_load(&rounds[i].done) < LEAST + 8 * i; own += 8) {
            put_done(fx, fx->domain, first + 5000 + own, 8, VALUE_BYTES);
            assert_int_equal(waitpid(pids[i], NULL, WNOHANG), 0);
        }
        assert_int_equal(kill(pids[i], SIGKILL), 0);
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
        await_found(fx, first, (uint32_t)atomic_load(&rounds[i].done));
    }
    objects_reopen(fx);
    for (uint64_t i = 0; i < ROUNDS; i++)
        get_expect(fx, fx->domain, 10000 * (i + 1), LEAST + 8 * (uint32_t)i, VALUE_BYTES,
                   SPEC_KEY_DONE);
}

static void obj_009_a_full_disk_is_shared(void **state)
{
    struct objects *fx = *state;
    struct objects second;
    objects_configure(fx, SMALL);
    second_open(fx, &second);
    for (uint64_t i = 0; i < 2 * SMALL_MIB; i += 8) { /* twice what there is room for */
        put_done(fx, fx->domain, i, 8, MIB);
        put_done(&second, second.domain, 1000 + i, 8, MIB);
        assert_true(objects_stats(fx, 0).disk_bytes_used <= SMALL_MIB * MIB);
    }
    for (uint64_t i = 0; i < 8; i++) /* the newest */
        await_exists(&second, second.domain, 2 * SMALL_MIB - 8 + i, SPEC_KEY_DONE);
    objects_close(&second);
}

static void obj_009_nothing_is_erased_beside_others(void **state)
{
    struct objects *fx = *state;
    struct objects second;
    second_open(fx, &second);
    put_done(fx, fx->domain, 1, 4, VALUE_BYTES);
    assert_status(fx->api->clear(fx->store, fx->domain, SPEC_REMOVE_ERASE, &fx->error),
                  SPEC_E_BUSY);
    get_expect(fx, fx->domain, 1, 4, VALUE_BYTES, SPEC_KEY_DONE);
    objects_close(&second);
    assert_ok(fx, fx->api->clear(fx->store, fx->domain, SPEC_REMOVE_ERASE, &fx->error));
    get_expect(fx, fx->domain, 1, 4, VALUE_BYTES, SPEC_KEY_ABSENT);
}

const struct conf_test CONF_OBJECT_SHARED[] = {
    OPENED(obj_009_all_find_what_any_has_stored_or_removed),
    OPENED(obj_009_domains_of_others_have_the_same_identities),
    OPENED(obj_009_a_domain_that_others_forget_keeps_its_identity),
    BARE(obj_009_a_killed_process_leaves_what_it_has_stored),
    OPENED(obj_009_a_full_disk_is_shared),
    OPENED(obj_009_nothing_is_erased_beside_others),
    END};
