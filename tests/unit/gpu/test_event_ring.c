/* Flights: what a ring takes, the order in which it gives back, reaping and waiting, errors, detach
 * with flights under way, a forked child. */
#include "gpu/work.h"
#include "tests/unit/gpu/attached.h"

#include <sys/wait.h>
#include <unistd.h>

#define GIVEN_MAX 64u

struct bench {
    struct attached it;
    struct sc_gpu_stream *lane; /* copies of slot 0 */
    struct sc_gpu_entry entry;
    uint32_t given[GIVEN_MAX], given_count; /* in order */
    uint32_t items[GIVEN_MAX];              /* what is held: their numbers */
};

static void item_give(void *held, void *user)
{
    struct bench *bench = user;
    assert_true(bench->given_count < GIVEN_MAX);
    bench->given[bench->given_count++] = *(const uint32_t *)held;
}

static void bench_open(struct bench *bench, enum fake_policy policy)
{
    memset(bench, 0, sizeof(*bench));
    attached_open(&bench->it);
    bench->lane = &bench->it.device->slots[0].copies;
    for (uint32_t i = 0; i < GIVEN_MAX; i++)
        bench->items[i] = i;
    fake_policy(policy, 1);
    assert_int_equal(sc_gpu_enter(bench->it.device, &bench->entry, NULL), SPEC_OK);
}

static void bench_close(struct bench *bench)
{
    sc_gpu_leave(bench->it.device, &bench->entry);
    attached_close(&bench->it);
    fake_policy(FAKE_EAGER, 1);
}

static struct sc_gpu_hold hold_of(struct bench *bench, uint32_t item)
{
    return (struct sc_gpu_hold){.give = item_give, .held = &bench->items[item], .user = bench};
}

/* A flight that holds one item. */
static spec_status fly(struct bench *bench, uint32_t item)
{
    struct sc_gpu_hold hold = hold_of(bench, item);
    assert_true(sc_gpu_events_begin(bench->it.device, bench->lane));
    assert_true(sc_gpu_events_hold(bench->lane, &hold));
    return sc_gpu_events_submit(bench->it.device, bench->lane, NULL);
}

/* Items 0 .. count - 1 came back, in that order. */
static void check_given(const struct bench *bench, uint32_t count)
{
    assert_int_equal(bench->given_count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(bench->given[i], i);
}

static void a_ring_takes_what_it_was_opened_for(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, FAKE_LAZY);
    struct sc_gpu_hold hold = hold_of(&bench, 0), none = {0};
    struct sc_gpu_range range, other;
    assert_true(sc_gpu_staging_take(&bench.it.device->staging, 10, &range));
    assert_true(sc_gpu_staging_take(&bench.it.device->staging, 10, &other));
    assert_false(sc_gpu_events_hold(bench.lane, &hold)); /* none boards */
    assert_false(sc_gpu_events_hold_range(bench.lane, &range));
    assert_true(sc_gpu_events_begin(bench.it.device, bench.lane));
    for (uint32_t i = 0; i < bench.it.params.hold_max; i++) {
        assert_true(sc_gpu_events_hold(bench.lane, &none)); /* asks */
        hold = hold_of(&bench, i);
        assert_true(sc_gpu_events_hold(bench.lane, &hold));
    }
    assert_false(sc_gpu_events_hold(bench.lane, &none));
    assert_false(sc_gpu_events_hold(bench.lane, &hold));
    assert_true(sc_gpu_events_hold_range(bench.lane, &range));
    assert_false(sc_gpu_events_hold_range(bench.lane, &other));
    sc_gpu_staging_give(&bench.it.device->staging, &other);
    assert_int_equal(sc_gpu_events_submit(bench.it.device, bench.lane, NULL), SPEC_OK);
    for (uint32_t i = 1; i < bench.it.params.event_count; i++)
        assert_int_equal(fly(&bench, bench.it.params.hold_max + i - 1), SPEC_OK);
    assert_false(sc_gpu_events_begin(bench.it.device, bench.lane)); /* full */
    assert_int_equal(sc_gpu_events_pending(bench.lane), bench.it.params.event_count);
    assert_int_equal(sc_gpu_staging_used(&bench.it.device->staging), 2);
    check_given(&bench, 0);
    assert_int_equal(sc_gpu_events_wait(bench.it.device, bench.lane, 0),
                     bench.it.params.event_count);
    check_given(&bench, bench.it.params.hold_max + bench.it.params.event_count - 1);
    assert_int_equal(sc_gpu_staging_used(&bench.it.device->staging), 0);
    bench_close(&bench);
}

static void waiting_leaves_as_many_as_it_is_told(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, FAKE_LAZY);
    assert_int_equal(sc_gpu_events_wait(bench.it.device, bench.lane, 0), 0);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(fly(&bench, i), SPEC_OK);
    assert_int_equal(sc_gpu_events_wait(bench.it.device, bench.lane, 5), 0);
    check_given(&bench, 0);
    assert_int_equal(sc_gpu_events_wait(bench.it.device, bench.lane, 3), 2);
    check_given(&bench, 2);
    assert_int_equal(sc_gpu_events_pending(bench.lane), 3);
    assert_int_equal(sc_gpu_events_wait(bench.it.device, bench.lane, 0), 3);
    check_given(&bench, 5);
    bench_close(&bench);
}

/* The driver says when; until then reaping gives nothing and waits for nothing. */
static void reaping_gives_what_has_landed(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, FAKE_LAZY);
    assert_int_equal(sc_gpu_events_reap(bench.it.device, bench.lane), 0);
    assert_int_equal(fly(&bench, 0), SPEC_OK);
    assert_int_equal(fly(&bench, 1), SPEC_OK);
    fake_fault("cuEventQuery", 1, SC_CU_NOT_READY);
    assert_int_equal(sc_gpu_events_reap(bench.it.device, bench.lane), 0);
    assert_false(sc_gpu_has_failed(bench.it.device)); /* not an error */
    check_given(&bench, 0);
    fake_policy(FAKE_EAGER, 1);
    fake_fault("cuEventQuery", 2, SC_CU_NOT_READY);
    assert_int_equal(sc_gpu_events_reap(bench.it.device, bench.lane), 1);
    check_given(&bench, 1);
    assert_int_equal(sc_gpu_events_reap(bench.it.device, bench.lane), 1);
    check_given(&bench, 2);
    bench_close(&bench);
}

static void what_flies_lands_though_the_device_has_failed(void **state)
{
    (void)state;
    static const char *const failing[] = {"cuEventRecord", "cuEventQuery", "cuEventSynchronize"};
    for (size_t i = 0; i < 3; i++) {
        struct bench bench;
        bench_open(&bench, FAKE_LAZY);
        assert_int_equal(fly(&bench, 0), SPEC_OK);
        fake_fault(failing[i], 1, SC_CU_LAUNCH_FAILED);
        assert_int_equal(fly(&bench, 1), i == 0 ? SPEC_E_IO : SPEC_OK);
        assert_int_equal(sc_gpu_has_failed(bench.it.device), i == 0);
        if (i == 1)
            assert_true(sc_gpu_events_reap(bench.it.device, bench.lane) > 0);
        (void)sc_gpu_events_wait(bench.it.device, bench.lane, 0);
        assert_true(fake_fired());
        assert_true(sc_gpu_has_failed(bench.it.device));
        check_given(&bench, 2);
        bench_close(&bench);
    }
}

static void detach_gives_back_what_flies(void **state)
{
    (void)state;
    struct bench bench;
    struct sc_gpu_range range;
    bench_open(&bench, FAKE_LAZY);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(fly(&bench, i), SPEC_OK);
    bench.lane = &bench.it.device->slots[1].kernels;
    assert_true(sc_gpu_staging_take(&bench.it.device->staging, 10, &range));
    assert_true(sc_gpu_events_begin(bench.it.device, bench.lane));
    assert_true(sc_gpu_events_hold_range(bench.lane, &range));
    assert_int_equal(sc_gpu_events_submit(bench.it.device, bench.lane, NULL), SPEC_OK);
    sc_gpu_leave(bench.it.device, &bench.entry);
    attached_close(&bench.it);
    check_given(&bench, 3);
    fake_policy(FAKE_EAGER, 1);
}

static void a_forked_child_gives_nothing_back(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, FAKE_LAZY);
    assert_int_equal(fly(&bench, 0), SPEC_OK);
    uint64_t calls = fake_calls();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint64_t landed = sc_gpu_events_reap(bench.it.device, bench.lane) +
                          sc_gpu_events_wait(bench.it.device, bench.lane, 0);
        sc_gpu_device_detach(bench.it.device);
        bool is_clean = landed == 0 && bench.given_count == 0 && fake_calls() == calls &&
                        atomic_load(&bench.it.alloc.live_blocks) == 0;
        _exit(is_clean ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_int_equal(sc_gpu_events_wait(bench.it.device, bench.lane, 0), 1);
    check_given(&bench, 1);
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_takes_what_it_was_opened_for),
        cmocka_unit_test(waiting_leaves_as_many_as_it_is_told),
        cmocka_unit_test(reaping_gives_what_has_landed),
        cmocka_unit_test(what_flies_lands_though_the_device_has_failed),
        cmocka_unit_test(detach_gives_back_what_flies),
        cmocka_unit_test(a_forked_child_gives_nothing_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
