/* Many threads: OBJ-030, OBJ-031, OBJ-004. Each thread returns what it found wrong.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define READERS 16u
#define WRITERS 4u
#define FIXED   256u /* keys that are never removed */
#define MOVING  512u

struct shared {
    struct objects *fx;
    _Atomic uint32_t writers_left;
    _Atomic uint64_t asserted;
    _Atomic uint64_t put_keys[WRITERS]; /* of each evictor */
};

struct worker {
    struct shared *shared;
    uint32_t number;
    char wrong[160];
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Puts and removes keys behind the fixed ones. */
static void *run_writer(void *user)
{
    struct worker *worker = user;
    struct objects *fx = worker->shared->fx;
    uint64_t state = worker->number;
    for (uint32_t turn = 0; turn < SAMPLE_OF(2000u, 400u); turn++) {
        struct batch b = batch_make(FIXED + dice(&state, MOVING - 8), 8, 5000);
        batch_fill(&b);
        spec_status status =
            turn % 2 == 0 ? fx->api->put(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, NULL)
                          : fx->api->remove(fx->store, fx->domain, &b.keys, 0, NULL, NULL);
        if (status != SPEC_OK)
            (void)snprintf(worker->wrong, sizeof(worker->wrong), "turn %u: status %d",
                           (unsigned)turn, (int)status);
        for (uint32_t i = 0; i < 8 && turn % 2 == 0; i++)
            if (b.status[i] != SPEC_KEY_DONE && b.status[i] != SPEC_KEY_STORED &&
                b.status[i] != SPEC_E_DROPPED)
                (void)snprintf(worker->wrong, sizeof(worker->wrong), "a put ended with %d",
                               (int)b.status[i]);
        batch_free(&b);
    }
    atomic_fetch_sub(&worker->shared->writers_left, 1);
    return NULL;
}

/* Fixed keys are always DONE, keys that were never put always ABSENT. */
static void *run_reader(void *user)
{
    struct worker *worker = user;
    struct objects *fx = worker->shared->fx;
    uint64_t state = 1000 + worker->number;
    struct batch fixed = batch_make(0, FIXED, 1), moving = batch_make(FIXED, MOVING, 1);
    struct batch never = batch_make(1000000, FIXED, 1);
    int8_t statuses[MOVING];
    struct spec_exists_params params = {.struct_size = sizeof(params), .ret_status = statuses};
    uint64_t leading = 0;
    do {
        if (fx->api->exists(fx->store, fx->domain, &fixed.keys, &params, &leading, NULL) !=
                SPEC_OK ||
            leading != FIXED)
            (void)snprintf(worker->wrong, sizeof(worker->wrong),
                           "%" PRIu64 " of %u stored keys are found", leading, FIXED);
        if (fx->api->exists(fx->store, fx->domain, &never.keys, &params, &leading, NULL) !=
                SPEC_OK ||
            leading != 0)
            (void)snprintf(worker->wrong, sizeof(worker->wrong), "a key is found, never put");
        if (fx->api->exists(fx->store, fx->domain, &moving.keys, &params, NULL, NULL) != SPEC_OK)
            (void)snprintf(worker->wrong, sizeof(worker->wrong), "exists failed");
        struct batch b = batch_make(dice(&state, FIXED + MOVING - 4), 4, 5000);
        if (fx->api->get(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, NULL) != SPEC_OK)
            (void)snprintf(worker->wrong, sizeof(worker->wrong), "get failed");
        for (uint32_t i = 0; i < 4; i++) {
            bool is_done = b.status[i] == SPEC_KEY_DONE;
            if ((is_done && !batch_is_right(&b, i)) ||
                (!is_done && (b.status[i] != SPEC_KEY_ABSENT || b.first + i < FIXED)))
                (void)snprintf(worker->wrong, sizeof(worker->wrong), "key %" PRIu64 ": status %d",
                               b.first + i, (int)b.status[i]);
        }
        batch_free(&b);
    } while (atomic_load(&worker->shared->writers_left) > 0);
    batch_free(&never);
    batch_free(&moving);
    batch_free(&fixed);
    return NULL;
}

static void run_workers(struct shared *shared, void *(*writer)(void *), void *(*reader)(void *))
{
    struct worker workers[READERS + WRITERS];
    pthread_t threads[READERS + WRITERS];
    atomic_store(&shared->writers_left, WRITERS);
    for (uint32_t i = 0; i < READERS + WRITERS; i++) {
        workers[i] = (struct worker){.shared = shared, .number = i};
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < WRITERS ? writer : reader, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < READERS + WRITERS; i++)
        (void)pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < READERS + WRITERS; i++)
        if (workers[i].wrong[0] != '\0')
            fail_msg("%s %u: %s", i < WRITERS ? "writer" : "reader", (unsigned)i, workers[i].wrong);
}

static void obj_030_readers_beside_writers_find_what_stays(void **state)
{
    struct objects *fx = *state;
    struct shared shared = {.fx = fx};
    put_done(fx, fx->domain, 0, FIXED, 5000);
    run_workers(&shared, run_writer, run_reader);
    assert_int_equal(exists(fx, fx->domain, 0, FIXED, 0, NULL), FIXED);
    objects_reopen(fx);
    get_expect(fx, fx->domain, 0, FIXED, 5000, SPEC_KEY_DONE);
}

/* Puts without an end: every put evicts. */
static void *run_evictor(void *user)
{
    struct worker *worker = user;
    struct objects *fx = worker->shared->fx;
    for (uint32_t turn = 0; turn < SAMPLE_OF(1500u, 300u); turn++) {
        struct batch b = batch_make((uint64_t)worker->number * 1000000 + turn * 4, 4, 256 * KIB);
        batch_fill(&b);
        spec_status status =
            fx->api->put(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, NULL);
        if (status != SPEC_OK || batch_count(&b, SPEC_KEY_DONE) != 4)
            (void)snprintf(worker->wrong, sizeof(worker->wrong), "put: status %d, key %d",
                           (int)status, (int)b.status[0]);
        atomic_store(&worker->shared->put_keys[worker->number], turn * 4 + 4);
        batch_free(&b);
    }
    atomic_fetch_sub(&worker->shared->writers_left, 1);
    return NULL;
}

/* Asks for keys that were put lately with a short hold, and gets what was found: DONE, if the get
 * began before the hold ended. Some of the keys are evicted next. */
static void *run_holder(void *user)
{
    enum { HOLD_MS = 500 };
    struct worker *worker = user;
    struct objects *fx = worker->shared->fx;
    uint64_t state = worker->number;
    while (atomic_load(&worker->shared->writers_left) > 0) {
        uint64_t writer = dice(&state, WRITERS), lately = dice(&state, 90) + 2;
        uint64_t at = atomic_load(&worker->shared->put_keys[writer]);
        at = at > lately ? at - lately : 0;
        struct batch b = batch_make(writer * 1000000 + at, 2, 256 * KIB);
        int8_t statuses[2];
        struct spec_exists_params params = {.struct_size = sizeof(params),
                                            .flags = SPEC_EXISTS_HOLD,
                                            .hold_ns = HOLD_MS * MS_NS,
                                            .ret_status = statuses};
        uint64_t begun_ns = now_ns();
        spec_status asked = fx->api->exists(fx->store, fx->domain, &b.keys, &params, NULL, NULL);
        spec_status got = asked;
        bool is_found = statuses[0] == SPEC_KEY_DONE || statuses[1] == SPEC_KEY_DONE;
        if (asked == SPEC_OK && is_found)
            got = fx->api->get(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, NULL);
        bool in_time = now_ns() - begun_ns < HOLD_MS * MS_NS;
        for (uint32_t i = 0; i < 2 && is_found && got == SPEC_OK; i++) {
            bool is_done = b.status[i] == SPEC_KEY_DONE;
            atomic_fetch_add(&worker->shared->asserted, statuses[i] == SPEC_KEY_DONE && in_time);
            if ((is_done && !batch_is_right(&b, i)) ||
                (!is_done && statuses[i] == SPEC_KEY_DONE && in_time))
                (void)snprintf(worker->wrong, sizeof(worker->wrong),
                               "key %" PRIu64 " was held, and get gave %d", b.first + i,
                               (int)b.status[i]);
        }
        if (got != SPEC_OK)
            (void)snprintf(worker->wrong, sizeof(worker->wrong), "status %d", (int)got);
        batch_free(&b);
    }
    return NULL;
}

static void obj_031_holds_of_many_threads_beside_evicting_puts(void **state)
{
    struct objects *fx = *state;
    struct shared shared = {.fx = fx};
    objects_configure(fx, SMALL);
    run_workers(&shared, run_evictor, run_holder);
    print_message("gets within their hold: %" PRIu64 "\n", atomic_load(&shared.asserted));
    assert_true(objects_stats(fx, 0).evicted_objects > 0);
}

const struct conf_test CONF_OBJECT_THREADS[] = {
    OPENED(obj_030_readers_beside_writers_find_what_stays),
    OPENED(obj_031_holds_of_many_threads_beside_evicting_puts), END};
