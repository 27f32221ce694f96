/* Fault points: the n-th operation of a kind fails, once, whoever meets it.
 *
 * Holds: each test states how many operations met the point.
 * Threads: four in one test, else one. */
#include "base/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void an_unarmed_point_never_fires(void **state)
{
    (void)state;
    struct sc_fault fault;
    sc_fault_init(&fault);
    for (int kind = 0; kind < SC_FAULT_KINDS; kind++)
        for (int i = 0; i < 10; i++)
            assert_false(sc_fault_hit(&fault, (enum sc_fault_kind)kind));
    assert_false(sc_fault_hit(NULL, SC_FAULT_READ));
    assert_int_equal(atomic_load(&fault.fired[SC_FAULT_READ]), 0);
}

static void the_nth_operation_of_that_kind_fails_once(void **state)
{
    (void)state;
    for (int kind = 0; kind < SC_FAULT_KINDS; kind++)
        for (uint64_t n = 0; n < 5; n++) {
            struct sc_fault fault;
            sc_fault_init(&fault);
            sc_fault_arm(&fault, (enum sc_fault_kind)kind, n);
            for (uint64_t i = 0; i < 10; i++)
                for (int other = 0; other < SC_FAULT_KINDS; other++)
                    assert_int_equal(sc_fault_hit(&fault, (enum sc_fault_kind)other),
                                     other == kind && i == n);
            for (int other = 0; other < SC_FAULT_KINDS; other++)
                assert_int_equal(atomic_load(&fault.fired[other]), other == kind);
            assert_int_equal(atomic_load(&fault.seen[kind]), n + 1);
        }
}

static void a_point_can_be_armed_again(void **state)
{
    (void)state;
    struct sc_fault fault;
    sc_fault_init(&fault);
    for (uint64_t n = 0; n < 4; n++) {
        sc_fault_arm(&fault, SC_FAULT_WRITE, n);
        for (uint64_t i = 0; i < n; i++)
            assert_false(sc_fault_hit(&fault, SC_FAULT_WRITE));
        assert_true(sc_fault_hit(&fault, SC_FAULT_WRITE));
    }
    assert_int_equal(atomic_load(&fault.fired[SC_FAULT_WRITE]), 4);
}

struct shared {
    struct sc_fault fault;
    _Atomic uint64_t hits;
};

static void *hit_often(void *argument)
{
    struct shared *shared = argument;
    for (int i = 0; i < 1000; i++)
        if (sc_fault_hit(&shared->fault, SC_FAULT_COMPLETION))
            atomic_fetch_add(&shared->hits, 1);
    return NULL;
}

static void exactly_one_of_four_threads_meets_it(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 8; n++) {
        struct shared shared;
        sc_fault_init(&shared.fault);
        atomic_init(&shared.hits, 0);
        sc_fault_arm(&shared.fault, SC_FAULT_COMPLETION, n * 500);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, hit_often, &shared), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&shared.hits), 1);
        assert_int_equal(atomic_load(&shared.fault.fired[SC_FAULT_COMPLETION]), 1);
    }
}

static void count_call(void *user)
{
    ++*(uint64_t *)user;
}

static void a_gate_is_passed_by_every_completion_once_it_is_set(void **state)
{
    (void)state;
    struct sc_fault fault;
    uint64_t calls = 0;
    sc_fault_init(&fault);
    sc_fault_gate_pass(&fault);
    sc_fault_gate_pass(NULL);
    assert_int_equal(calls, 0);
    sc_fault_gate_set(&fault, count_call, &calls);
    sc_fault_gate_pass(&fault);
    sc_fault_gate_pass(&fault);
    assert_int_equal(calls, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unarmed_point_never_fires),
        cmocka_unit_test(the_nth_operation_of_that_kind_fails_once),
        cmocka_unit_test(a_point_can_be_armed_again),
        cmocka_unit_test(exactly_one_of_four_threads_meets_it),
        cmocka_unit_test(a_gate_is_passed_by_every_completion_once_it_is_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
