/* Processes that are killed: OBJ-002, OBJ-005. A child puts batches and notes in shared memory
 * which keys were DONE; it is killed at any moment; then the parent opens the same directory.
 *
 * Holds: a key that was noted is found with its bytes; every other key is whole or absent.
 * Does not: depend on when a kill falls.
 * Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_BATCHES 100u
#define BATCH_KEYS    8u
#define KEYS_MAX      (CHILD_BATCHES * BATCH_KEYS)

struct notes {
    _Atomic uint32_t opened, batches, failed;
    _Atomic uint8_t done[KEYS_MAX], removed[KEYS_MAX]; /* 1: begun; 2: returned */
};

static uint64_t size_of(uint64_t number)
{
    static const uint64_t SIZES[] = {100, 4097, 70272, 200000};
    return SIZES[number / BATCH_KEYS % 4];
}

static void child_run(struct objects *fx, struct notes *notes)
{
    if (objects_try_open(fx) != SPEC_OK)
        _exit(1);
    fx->domain = objects_domain(fx, "domain");
    atomic_store(&notes->opened, 1);
    for (uint32_t i = 0; i < CHILD_BATCHES; i++) {
        uint64_t first = (uint64_t)i * BATCH_KEYS;
        if (atomic_load(&notes->done[first]) != 0)
            continue; /* an earlier child's */
        struct batch b = batch_make(first, BATCH_KEYS, size_of(first));
        for (uint32_t k = 0; k < BATCH_KEYS; k++)
            atomic_store(&notes->done[first + k], 1);
        put(fx, fx->domain, &b);
        for (uint32_t k = 0; k < BATCH_KEYS; k++) {
            atomic_store(&notes->done[first + k], b.status[k] == SPEC_KEY_DONE ? 2 : 1);
            atomic_fetch_add(&notes->failed, b.status[k] != SPEC_KEY_DONE);
        }
        if (i % 5 == 4) {
            atomic_store(&notes->removed[first + 1], 1);
            remove_keys(fx, fx->domain, first + 1, 1, 0);
            atomic_store(&notes->removed[first + 1], 2);
        }
        batch_free(&b);
        atomic_fetch_add(&notes->batches, 1);
    }
    for (;;)
        pause();
}

/* The moment: after so many batches, and some microseconds. */
static void run_and_kill(struct objects *fx, struct notes *notes, uint32_t batches, uint64_t us)
{
    int status = 0;
    pid_t ended = 0;
    pid_t pid = conf_fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child_run(fx, notes);
    while (ended == 0 && atomic_load(&notes->batches) < batches) {
        usleep(100);
        ended = waitpid(pid, &status, WNOHANG);
    }
    assert_int_equal(ended, 0); /* it does not end by itself */
    usleep((useconds_t)us);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void check_notes(struct objects *fx, struct notes *notes)
{
    for (uint64_t i = 0; i < KEYS_MAX; i++) {
        uint8_t done = atomic_load(&notes->done[i]), removed = atomic_load(&notes->removed[i]);
        struct batch b = batch_make(i, 1, size_of(i));
        get(fx, fx->domain, &b);
        if (b.status[0] != SPEC_KEY_DONE && b.status[0] != SPEC_KEY_ABSENT)
            fail_msg("key %" PRIu64 " has status %" PRId32, i, b.status[0]);
        bool is_there = b.status[0] == SPEC_KEY_DONE;
        if (is_there && (done == 0 || removed == 2))
            fail_msg("key %" PRIu64 " is stored: %s", i, done == 0 ? "never put" : "removed");
        if (!is_there && done == 2 && removed == 0)
            fail_msg("key %" PRIu64 " was DONE and is absent after the kill", i);
        batch_free(&b);
    }
}

static void obj_005_what_was_done_is_found_after_kills(void **state)
{
    struct objects *fx = *state;
    struct notes *notes = memory_shared(sizeof(*notes));
    uint64_t turn_of_dice = seed_of_run();
    uint32_t kills = SAMPLE_OF(40u, 10u), batches = 0;
    for (uint32_t i = 0; i < kills; i++) {
        batches += (uint32_t)dice(&turn_of_dice, 4);
        if (batches >= CHILD_BATCHES) {
            memset((void *)notes, 0, sizeof(*notes));
            conf_remove_tree(fx->rows.store);
            batches = 0;
        }
        run_and_kill(fx, notes, batches, dice(&turn_of_dice, 20000));
        assert_int_equal(atomic_load(&notes->failed), 0);
        objects_open(fx);
        check_notes(fx, notes);
        objects_close(fx);
        batches = atomic_load(&notes->batches);
    }
}

static void evict_in_child(void *user)
{
    struct objects *fx = user;
    if (objects_try_open(fx) != SPEC_OK)
        _exit(1);
    fx->domain = objects_domain(fx, "domain");
    for (uint64_t i = 0; i < 200; i += 8)
        put_done(fx, fx->domain, i, 8, MIB);
    (void)kill(getpid(), SIGKILL);
}

/* Killed with a full store that has evicted: what is found has its bytes, and the last is found. */
static void obj_005_a_full_store_reopens_after_a_kill(void **state)
{
    struct objects *fx = *state;
    fx->extra = SMALL;
    int status = fixture_in_child(evict_in_child, fx);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    objects_open(fx);
    struct batch b = batch_make(0, 200, MIB);
    get(fx, fx->domain, &b);
    assert_int_equal(batch_count(&b, SPEC_KEY_DONE) + batch_count(&b, SPEC_KEY_ABSENT), 200);
    assert_int_equal(b.status[199], SPEC_KEY_DONE);
    assert_true(batch_count(&b, SPEC_KEY_DONE) >= 32);
    batch_free(&b);
    put_done(fx, fx->domain, 1000, 64, MIB);
    assert_true(exists_count(fx, fx->domain, 1000, 64) >= 32);
}

/* Killed with a put of which no key is done: no key is half there. */
static void obj_002_a_put_that_was_killed_leaves_whole_objects(void **state)
{
    struct objects *fx = *state;
    struct notes *notes = memory_shared(sizeof(*notes));
    for (uint32_t i = 0; i < SAMPLE_OF(30u, 8u); i++) {
        memset((void *)notes, 0, sizeof(*notes));
        conf_remove_tree(fx->rows.store);
        run_and_kill(fx, notes, 0, i * 1500);
        assert_int_equal(atomic_load(&notes->failed), 0);
        objects_open(fx);
        check_notes(fx, notes);
        objects_reopen(fx);
        check_notes(fx, notes);
        objects_close(fx);
    }
}

const struct conf_test CONF_OBJECT_CRASH[] = {
    BARE(obj_002_a_put_that_was_killed_leaves_whole_objects),
    BARE(obj_005_what_was_done_is_found_after_kills),
    BARE(obj_005_a_full_store_reopens_after_a_kill), END};
