/* Objects by key at their limits, where only the inside can be brought to: domains that were
 * recorded in vain, a device that fails while the store is closed.
 *
 * Threads: one (the seeded loop). */
#include "tests/unit/plugin/object_rig.h"

#define SUBMITTED 8u

/* Values of one page under long keys: the log is full before the pages are. Checkpoints and
 * evictions make room, no put fails, and disk_bytes holds. */
static void a_log_of_long_keys_makes_room(void **state)
{
    (void)state;
    struct rig rig;
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    uint8_t key[SPEC_KEY_BYTES_MAX] = {0}, value[100] = {1};
    int32_t status = 99;
    const uint64_t address = (uint64_t)(uintptr_t)value;
    struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = 1, .data = key, .key_bytes = sizeof(key)};
    const struct spec_pieces pieces = {.struct_size = sizeof(pieces),
                                       .pieces = 1,
                                       .addresses = &address,
                                       .piece_bytes = sizeof(value)};
    const struct spec_transfer_params params = {.struct_size = sizeof(params),
                                                .ret_status = &status};
    rig_make(&rig, "", 0);
    rig_open(&rig);
    for (uint32_t i = 0; i < 3000; i++) {
        memcpy(key, &i, sizeof(i));
        assert_int_equal(rig.api->put(rig.store, rig.domains[0], &keys, &pieces, &params, NULL),
                         SPEC_OK);
        assert_int_equal(status, SPEC_KEY_DONE);
        assert_int_equal(rig.api->stats(rig.store, 0, &stats, NULL), SPEC_OK);
        assert_true(stats.disk_bytes_used <= stats.disk_bytes_max);
    }
    assert_true(stats.checkpoints > 0 && stats.evicted_objects > 0);
    assert_int_equal(stats.put_timeouts + stats.put_no_space, 0);
    assert_true(stats.objects > 30);
    uint64_t objects = stats.objects;
    rig.events_from = rig.store->events.next; /* of keys that the twin does not know */
    rig_kill(&rig);
    rig_open(&rig);
    assert_int_equal(rig.api->stats(rig.store, 0, &stats, NULL), SPEC_OK);
    assert_int_equal(stats.objects, objects);
    rig_free(&rig);
}

static spec_domain domain_open(struct rig *rig, const char *identity, spec_status *ret_status)
{
    spec_domain domain = 0;
    const struct spec_domain_params params = {.struct_size = sizeof(params),
                                              .identity = {identity, strlen(identity)}};
    *ret_status = rig->api->domain_open(rig->store, &params, &domain, &rig->error);
    return domain;
}

/* A domain_open that failed after it had written its record is tried again, and the log has the
 * identity twice. What is put then is found by the next open. */
static void a_domain_that_was_recorded_twice_keeps_its_objects(void **state)
{
    (void)state;
    struct rig rig;
    spec_status status = SPEC_OK;
    uint64_t failed = 0;
    rig_make(&rig, "", 0);
    rig_open(&rig);
    for (uint64_t n = 0; status != SPEC_OK || n == 0; n++) {
        sc_fault_arm(&rig.store->fault, SC_FAULT_ALLOC, n);
        spec_domain domain = domain_open(&rig, "domain c", &status);
        failed += status == SPEC_E_NO_MEMORY;
        rig.domains[0] = status == SPEC_OK ? domain : rig.domains[0];
        assert_true(status == SPEC_OK || status == SPEC_E_NO_MEMORY);
    }
    atomic_store(&rig.store->fault.countdown[SC_FAULT_ALLOC], -1);
    assert_true(failed > 0);
    rig_put(&rig, 0, 0, 5);
    rig_kill(&rig);
    for (uint32_t round = 0; round < 2; round++) { /* of the log, then of the checkpoint */
        rig_open(&rig);
        rig.domains[0] = domain_open(&rig, "domain c", &status);
        assert_int_equal(status, SPEC_OK);
        rig_check(&rig);
        rig_close(&rig);
    }
    rig_free(&rig);
}

/* What the log says of the past is not counted. */
static void counts_begin_at_zero_after_a_kill(void **state)
{
    (void)state;
    struct rig rig;
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    rig_make(&rig, "", 0);
    rig_open(&rig);
    rig_put(&rig, 0, 0, 12);
    rig_put(&rig, 1, 0, 4);
    rig_remove(&rig, 0, 1, 3, 0);
    rig_clear(&rig, 1, 0);
    assert_int_equal(rig.api->stats(rig.store, 0, &stats, NULL), SPEC_OK);
    assert_int_equal(stats.deleted_objects, 7);
    rig_kill(&rig);
    rig_open(&rig);
    for (uint32_t i = 0; i <= RIG_DOMAINS; i++) {
        spec_domain domain = i == 0 ? 0 : rig.domains[i - 1];
        assert_int_equal(rig.api->stats(rig.store, domain, &stats, NULL), SPEC_OK);
        assert_int_equal(stats.deleted_objects + stats.evicted_objects + stats.damaged_objects, 0);
        assert_int_equal(stats.put_stored + stats.put_keys + stats.get_keys, 0);
        assert_int_equal(stats.objects, i < 2 ? 9 : 0);
    }
    rig_check(&rig);
    rig_free(&rig);
}

/* ---- A device that fails -----------------------------------------------------------------------
 */

static uint8_t values[SUBMITTED][300000];

/* Puts keys 8 .. 10, of 300,000 bytes each, which nearly fill the first segment, and holds them;
 * then the device is full: another segment cannot be made, and nothing can be evicted. */
static void fill_and_hold(struct rig *rig)
{
    uint64_t keys_data[3] = {8, 9, 10}, addresses[3], leading = 0;
    int32_t status[3];
    for (uint32_t i = 0; i < 3; i++)
        addresses[i] = (uint64_t)(uintptr_t)values[i];
    const struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = 3, .data = keys_data, .key_bytes = 8};
    const struct spec_pieces pieces = {.struct_size = sizeof(pieces),
                                       .pieces = 1,
                                       .addresses = addresses,
                                       .piece_bytes = sizeof(values[0])};
    const struct spec_transfer_params params = {.struct_size = sizeof(params),
                                                .ret_status = status};
    const struct spec_exists_params exists = {
        .struct_size = sizeof(exists), .flags = SPEC_EXISTS_HOLD, .hold_ns = SPEC_HOLD_NS_MAX};
    assert_int_equal(rig->api->put(rig->store, rig->domains[0], &keys, &pieces, &params, NULL),
                     SPEC_OK);
    assert_int_equal(rig->api->exists(rig->store, rig->domains[0], &keys, &exists, &leading, NULL),
                     SPEC_OK);
    assert_int_equal(leading, 3);
    sc_io_sim_fault_scope(rig->disk, "/seg-00000001");
    sc_io_sim_fault_ppm(rig->disk, SC_SIM_NO_SPACE, 1000000);
}

/* Submits puts of keys 0 .. 7, 300,000 bytes each. */
static void submit(struct rig *rig, uint64_t timeout_ns, int32_t status[SUBMITTED])
{
    static uint8_t keys_data[SUBMITTED * 8];
    uint64_t addresses[SUBMITTED];
    spec_operation operation;
    for (uint64_t i = 0; i < SUBMITTED; i++) {
        memcpy(keys_data + 8 * i, &i, 8);
        addresses[i] = (uint64_t)(uintptr_t)values[i];
    }
    const struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = SUBMITTED, .data = keys_data, .key_bytes = 8};
    const struct spec_pieces pieces = {.struct_size = sizeof(pieces),
                                       .pieces = 1,
                                       .addresses = addresses,
                                       .piece_bytes = sizeof(values[0])};
    const struct spec_transfer_params params = {
        .struct_size = sizeof(params), .timeout_ns = timeout_ns, .ret_status = status};
    assert_int_equal(rig->api->put_submit(rig->store, rig->domains[0], &keys, &pieces, &params,
                                          &operation, NULL),
                     SPEC_OK);
}

/* Steps so many tasks, so that the end comes at any point of the puts; time passes, too, and holds
 * may end. */
static void step(struct rig *rig, uint32_t count)
{
    while (count-- > 0 && sc_exec_step_one(rig->store->exec))
        continue;
}

/* Writes fail, and the store or the domain is closed meanwhile: that ends, and every key has
 * failed.
 */
static void a_close_ends_puts_that_fail(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 120; n++) {
        struct rig rig;
        int32_t status[SUBMITTED];
        rig_make(&rig, "", 0);
        rig_open(&rig);
        fill_and_hold(&rig);
        submit(&rig, n % 4 < 2 ? SPEC_TIMEOUT_NONE : SPEC_TIMEOUT_CONFIGURED, status);
        step(&rig, n / 2);
        uint64_t begin_ns = sc_exec_now_ns(rig.store->exec);
        if (n % 2 == 0) {
            assert_int_equal(rig.api->domain_close(rig.store, rig.domains[0], NULL), SPEC_OK);
            assert_true(sc_exec_now_ns(rig.store->exec) - begin_ns < 1000000000);
        } else {
            rig_close(&rig);
        }
        for (uint32_t i = 0; i < SUBMITTED; i++)
            assert_true(status[i] == SPEC_E_TIMEOUT || status[i] == SPEC_E_NO_SPACE ||
                        status[i] == SPEC_E_DROPPED || status[i] == SPEC_KEY_DONE);
        rig_free(&rig);
    }
}

/* The store is full, and removals cannot be recorded for a while: what waits evicts once, and not
 * again and again until nothing is left. */
static void a_log_that_fails_costs_one_eviction(void **state)
{
    (void)state;
    struct rig rig;
    struct spec_object_stats before = {.struct_size = sizeof(before)}, after = before;
    rig_make(&rig, "", 0);
    rig_open(&rig);
    for (uint32_t i = 0; i < RIG_KEYS; i += 8)
        rig_put(&rig, 0, i, 8);
    rig_put(&rig, 1, 0, 8);
    assert_int_equal(rig.api->stats(rig.store, 0, &before, NULL), SPEC_OK);
    assert_true(before.evicted_objects > 0);
    sc_io_sim_fault_scope(rig.disk, "/log");
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_WRITE_EIO, 1000000);
    rig.may_fail = rig.loses_power = true;
    rig_put(&rig, 1, 8, 8);
    rig_put(&rig, 1, 16, 8);
    assert_true(rig.failures > 0);
    assert_int_equal(rig.api->stats(rig.store, 0, &after, NULL), SPEC_OK);
    assert_true(after.objects > before.objects / 2);
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_WRITE_EIO, 0);
    rig_pass_ns(&rig, 60000000000u);
    rig_check(&rig);
    rig_works(&rig);
    rig_free(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_of_long_keys_makes_room),
        cmocka_unit_test(a_domain_that_was_recorded_twice_keeps_its_objects),
        cmocka_unit_test(counts_begin_at_zero_after_a_kill),
        cmocka_unit_test(a_close_ends_puts_that_fail),
        cmocka_unit_test(a_log_that_fails_costs_one_eviction),
    };
    return cmocka_run_group_tests_name("plugin objects limits", tests, NULL, NULL);
}
