/* Objects by key when the power goes or anything fails: at the n-th change of the disk, for all n,
 * and with the n-th read, write, reservation, sync, completion or allocation that fails, until a
 * run meets none. After each the store opens, what was stored and not removed is delivered with its
 * bytes, and it works.
 *
 *   workload  puts of values of 4 bytes to 300 KB in two domains, gets, removals, keys that are put
 *             again with other values, a clear, evictions, checkpoints, an erasure
 *
 * Threads: one (the seeded loop). */
#include "tests/unit/plugin/object_rig.h"

#define N_MAX 5000u

/* ---- The workload ---------------------------------------------------------------------------- */

static void workload(struct rig *rig)
{
    rig_put(rig, 0, 0, 12);
    rig_put(rig, 1, 0, 6);
    rig_get(rig, 0, 1, 9);
    rig_remove(rig, 0, 2, 4, 0);
    rig_put(rig, 0, 2, 4); /* other values */
    rig_checkpoint(rig);
    rig_remove(rig, 0, 4, 3, 0);
    rig_put(rig, 0, 5, 3);
    rig_clear(rig, 1, 0);
    rig_put(rig, 1, 4, 5);
    for (uint32_t i = 0; i < RIG_KEYS; i += 8) /* more than there is room for */
        rig_put(rig, 0, i, 8);
    rig_put(rig, 1, 8, 8);
    rig_get(rig, 0, 16, 16);
    rig_remove(rig, 1, 8, 4, SPEC_REMOVE_ERASE);
    rig_put(rig, 1, 9, 2);
    rig_get(rig, 1, 4, 8);
    rig_put(rig, 0, 17, 3);
}

static void all_of_it_works_without_faults(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig, "", 1);
    rig_open(&rig);
    workload(&rig);
    assert_int_equal(rig.failures, 0);
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(rig.api->stats(rig.store, 0, &stats, NULL), SPEC_OK);
    assert_true(stats.evicted_objects > 0);
    assert_true(stats.checkpoints >= 2);
    rig_check(&rig);
    rig_close(&rig);
    rig_open(&rig);
    rig_check(&rig);
    rig_works(&rig);
    rig_free(&rig);
}

/* ---- The power goes ----------------------------------------------------------------------------
 */

/* Whether changes still have an effect. */
static bool has_power(struct rig *rig)
{
    uint64_t before = rig->failures;
    rig_put(rig, 0, 0, 1);
    rig_remove(rig, 0, 0, 1, 0);
    rig_put(rig, 0, 0, 1);
    return rig->failures == before;
}

/* kill -9: what was written stays. false: the run met no kill. */
static bool killed_after(uint64_t n, bool at_reopen)
{
    struct rig rig;
    bool met = true;
    rig_make(&rig, "", 1);
    if (at_reopen) {
        rig_open(&rig);
        workload(&rig);
        rig_kill(&rig);
    }
    rig.may_fail = rig.loses_power = true;
    sc_io_sim_power_off_after(rig.disk, n);
    if (rig_try_open(&rig) == SPEC_OK) {
        if (!at_reopen)
            workload(&rig);
        met = !has_power(&rig);
        rig_kill(&rig);
    } else {
        rig_kill(&rig);
    }
    rig.may_fail = false;
    rig_open(&rig);
    rig_check(&rig);
    rig_works(&rig);
    rig_free(&rig);
    return met;
}

/* Loss of power: a seeded part of what was not synced is there. */
static bool lost_after(uint64_t n)
{
    struct rig rig;
    bool met = true;
    rig_make(&rig, "", 1);
    rig.may_fail = rig.loses_power = true;
    sc_io_sim_power_off_after(rig.disk, n);
    if (rig_try_open(&rig) == SPEC_OK) {
        workload(&rig);
        met = !has_power(&rig);
        rig_close(&rig);
    }
    assert_int_equal(sc_io_sim_disk_crash(rig.disk, n * 7 + 1, &rig.error), SPEC_OK);
    rig.may_fail = false;
    rig.may_lie = true;
    rig_open(&rig);
    rig_check(&rig);
    rig_works(&rig);
    rig_free(&rig);
    return met;
}

static void a_kill_at_any_change_loses_nothing(void **state)
{
    (void)state;
    uint64_t n = 0;
    while (n < N_MAX && killed_after(n, false))
        n++;
    print_message("%" PRIu64 " changes\n", n);
    assert_true(n > 100 && n < N_MAX);
}

static void a_kill_of_the_next_open_loses_nothing(void **state)
{
    (void)state;
    uint64_t n = 0;
    while (n < N_MAX && killed_after(n, true))
        n++;
    print_message("%" PRIu64 " changes\n", n);
    assert_true(n > 1 && n < N_MAX);
}

static void a_loss_of_power_at_any_change_never_lies(void **state)
{
    (void)state;
    uint64_t n = 0;
    while (n < N_MAX && lost_after(n))
        n++;
    assert_true(n > 100 && n < N_MAX);
}

/* ---- Anything fails ----------------------------------------------------------------------------
 */

static bool failed_nth(enum sc_fault_kind kind, uint64_t n)
{
    struct rig rig;
    rig_make(&rig, "", 0);
    rig_open(&rig);
    rig.may_fail = true;
    sc_fault_arm(&rig.store->fault, kind, n);
    workload(&rig);
    bool met = atomic_load(&rig.store->fault.fired[kind]) > 0;
    atomic_store(&rig.store->fault.countdown[kind], -1);
    rig_check(&rig);
    rig_pass_ns(&rig, 60000000000u); /* a device that failed is tried again */
    rig_put(&rig, 1, 20, 2);
    rig_check(&rig);
    rig_kill(&rig);
    rig.may_fail = false;
    rig_open(&rig);
    rig_check(&rig);
    rig_works(&rig);
    rig_free(&rig);
    return met;
}

static void every_nth_fails(enum sc_fault_kind kind, uint64_t met_min)
{
    uint64_t n = 0;
    while (n < N_MAX && failed_nth(kind, n))
        n++;
    print_message("%" PRIu64 " failures\n", n);
    assert_true(n >= met_min && n < N_MAX);
}

static void every_read_fails_once(void **state)
{
    (void)state;
    every_nth_fails(SC_FAULT_READ, 10);
}

static void every_write_fails_once(void **state)
{
    (void)state;
    every_nth_fails(SC_FAULT_WRITE, 50);
}

static void every_reservation_fails_once(void **state)
{
    (void)state;
    every_nth_fails(SC_FAULT_RESERVE, 1);
}

static void every_sync_fails_once(void **state)
{
    (void)state;
    every_nth_fails(SC_FAULT_SYNC, 2);
}

static void every_completion_fails_once(void **state)
{
    (void)state;
    every_nth_fails(SC_FAULT_COMPLETION, 50);
}

static void every_allocation_of_a_call_fails_once(void **state)
{
    (void)state;
    every_nth_fails(SC_FAULT_ALLOC, 20);
}

/* Open: one error, nothing left, and what was stored is as it was. */
static void every_allocation_of_open_fails_once(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t n = 0;
    rig_make(&rig, "", 0);
    rig_open(&rig);
    workload(&rig);
    for (bool met = true; met && n < N_MAX; n++) {
        rig_kill(&rig);
        atomic_store(&rig.refused, 0);
        atomic_store(&rig.countdown, (int64_t)n);
        spec_status status = rig_try_open(&rig);
        atomic_store(&rig.countdown, -1);
        met = atomic_load(&rig.refused) > 0;
        if (status != SPEC_OK) {
            assert_true(met);
            assert_int_equal(status, SPEC_E_NO_MEMORY);
            assert_true(rig.error.text[0] != 0);
        } else {
            rig_check(&rig);
        }
    }
    print_message("%" PRIu64 " failures\n", n - 1);
    assert_true(n > 20 && n < N_MAX);
    rig_works(&rig);
    rig_free(&rig);
}

/* ---- At random ---------------------------------------------------------------------------------
 */

static uint64_t draw(uint64_t *state, uint64_t bound)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (*state * UINT64_C(0x2545f4914f6cdd1d) >> 16) % bound;
}

static void random_step(struct rig *rig, uint64_t *random)
{
    uint32_t domain = (uint32_t)draw(random, RIG_DOMAINS), count = 1 + (uint32_t)draw(random, 12);
    uint32_t first = (uint32_t)draw(random, RIG_KEYS - count + 1);
    uint32_t erases = draw(random, 8) == 0 ? SPEC_REMOVE_ERASE : 0;
    switch (draw(random, 16)) {
    case 0:
        rig_clear(rig, domain, erases);
        break;
    case 1:
        rig_checkpoint(rig);
        break;
    case 2:
        rig_pass_ns(rig, 1 + draw(random, 2000000000));
        break;
    case 3:
    case 4:
    case 5:
        rig_remove(rig, domain, first, count, erases);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
        rig_get(rig, domain, first, count);
        break;
    default:
        rig_put(rig, domain, first, count);
    }
}

/* Four lives of a store, each ended by a kill: at a change of the disk, or after reads and writes
 * that failed now and then. */
static void operations_at_random_with_kills(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rig rig;
        uint64_t random = seed * 77 + 1;
        rig_make(&rig, "", 1);
        rig_disk_new(&rig, seed, 1);
        for (uint32_t life = 0; life < 4; life++) {
            rig_open(&rig);
            rig_check(&rig);
            rig_settle(&rig);
            rig.may_fail = rig.loses_power = true;
            if (seed % 2 == 0)
                sc_io_sim_power_off_after(rig.disk, draw(&random, 150));
            sc_io_sim_fault_scope(rig.disk, seed % 4 == 1 ? "/seg-" : "/objects-");
            for (uint32_t i = 0; i < 2 && seed % 2 == 1; i++)
                sc_io_sim_fault_ppm(rig.disk, i == 0 ? SC_SIM_READ_EIO : SC_SIM_WRITE_EIO, 20000);
            for (uint32_t step = 0; step < 30; step++)
                random_step(&rig, &random);
            sc_io_sim_fault_ppm(rig.disk, SC_SIM_READ_EIO, 0);
            sc_io_sim_fault_ppm(rig.disk, SC_SIM_WRITE_EIO, 0);
            rig_kill(&rig);
            rig.may_fail = rig.loses_power = false;
        }
        rig_open(&rig);
        rig_works(&rig);
        rig_free(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_it_works_without_faults),
        cmocka_unit_test(a_kill_at_any_change_loses_nothing),
        cmocka_unit_test(a_kill_of_the_next_open_loses_nothing),
        cmocka_unit_test(a_loss_of_power_at_any_change_never_lies),
        cmocka_unit_test(every_read_fails_once),
        cmocka_unit_test(every_write_fails_once),
        cmocka_unit_test(every_reservation_fails_once),
        cmocka_unit_test(every_sync_fails_once),
        cmocka_unit_test(every_completion_fails_once),
        cmocka_unit_test(every_allocation_of_a_call_fails_once),
        cmocka_unit_test(every_allocation_of_open_fails_once),
        cmocka_unit_test(operations_at_random_with_kills),
    };
    return cmocka_run_group_tests_name("plugin objects", tests, NULL, NULL);
}
