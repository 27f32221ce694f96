/* Loads under each policy of the fake driver and several seeds: bytes, order, frames, staging; two
 * at once, with somebody who reaps beside them; a load after a load. */
#include "tests/unit/gpu/load.h"

#include <pthread.h>

#define SEEDS 8u

static void loads_under(enum fake_policy policy)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct load_host host;
        fake_policy(FAKE_EAGER, 1);
        load_host_open(&host, seed);
        fake_policy(policy, seed);
        load_host_work_before(&host);
        assert_int_equal(load_whole(&host, true), SPEC_OK);
        fake_policy(FAKE_EAGER, 1);
        load_host_close(&host);
        assert_null(fake_leaks());
    }
}

static void loads_are_right_eager(void **state)
{
    (void)state;
    loads_under(FAKE_EAGER);
}

static void loads_are_right_lazy(void **state)
{
    (void)state;
    loads_under(FAKE_LAZY);
}

static void loads_are_right_starve(void **state)
{
    (void)state;
    loads_under(FAKE_STARVE);
}

static void loads_are_right_random(void **state)
{
    (void)state;
    loads_under(FAKE_RANDOM);
}

/* ---- At once --------------------------------------------------------------------------------- */

struct pair {
    struct load_host hosts[2];
    struct attached it;
    struct load_frames frames[2];
    _Atomic uint32_t left; /* loads that go on */
    _Atomic uint32_t failed;
};

struct loader {
    struct pair *pair;
    uint32_t number;
};

static void *load_often(void *user)
{
    const struct loader *loader = user;
    struct pair *pair = loader->pair;
    const struct load_host *host = &pair->hosts[loader->number];
    for (int i = 0; i < 3; i++)
        if (load_run(pair->it.device, &pair->it.device->slots[loader->number],
                     &pair->frames[loader->number], host->rows, host->destination,
                     host->stream) != SPEC_OK)
            atomic_fetch_add(&pair->failed, 1);
    atomic_fetch_sub(&pair->left, 1);
    return NULL;
}

static void *reap_often(void *user)
{
    struct pair *pair = user;
    while (atomic_load(&pair->left) > 0)
        for (int i = 0; i < 2; i++) {
            (void)sc_gpu_events_reap(pair->it.device, &pair->it.device->slots[i].copies);
            (void)sc_gpu_events_reap(pair->it.device, &pair->it.device->slots[i].kernels);
        }
    return NULL;
}

/* Two slots of a device, and a third thread that gives back what landed. */
static void loads_at_once_do_not_meet(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct pair pair = {.left = 2};
        pthread_t threads[3];
        fake_policy(FAKE_EAGER, 1);
        attached_init(&pair.it);
        pair.it.params.staging_bytes = 5 * LOAD_FRAME_BYTES;
        assert_int_equal(sc_gpu_device_attach(&pair.it.params, &pair.it.device, NULL), SPEC_OK);
        for (uint32_t i = 0; i < 2; i++) {
            load_host_open(&pair.hosts[i], seed + i);
            assert_int_equal(load_frames_open(pair.it.device, &pair.frames[i]), SPEC_OK);
        }
        fake_policy(seed % 2 ? FAKE_LAZY : FAKE_STARVE, seed);
        struct loader loaders[2] = {{&pair, 0}, {&pair, 1}};
        assert_int_equal(pthread_create(&threads[0], NULL, load_often, &loaders[0]), 0);
        assert_int_equal(pthread_create(&threads[1], NULL, load_often, &loaders[1]), 0);
        assert_int_equal(pthread_create(&threads[2], NULL, reap_often, &pair), 0);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&pair.failed), 0);
        for (uint32_t i = 0; i < 2; i++) {
            load_host_check(&pair.hosts[i]);
            load_frames_close(pair.it.device, &pair.it.device->slots[i], &pair.frames[i]);
        }
        assert_int_equal(sc_gpu_staging_used(&pair.it.device->staging), 0);
        fake_policy(FAKE_EAGER, 1);
        sc_gpu_device_detach(pair.it.device);
        pair.it.device = NULL;
        for (uint32_t i = 0; i < 2; i++)
            load_host_close(&pair.hosts[i]);
        attached_check_none_left(&pair.it);
    }
}

/* usage: test_load [NAME]: that test alone, for the mutants. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_are_right_eager),     cmocka_unit_test(loads_are_right_lazy),
        cmocka_unit_test(loads_are_right_starve),    cmocka_unit_test(loads_are_right_random),
        cmocka_unit_test(loads_at_once_do_not_meet),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
