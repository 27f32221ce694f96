/* The plugin when the n-th thing fails: n = 0, 1, 2, ... until a run meets none. After each, every
 * row that is delivered is right, a reopen finds only right rows, a fault-free engine stores and
 * finds everything again, and the host got all its memory back. */
#include "tests/unit/plugin/plugin_fixture.h"

#define N_MAX 5000u

static const char *const NAMES[SC_FAULT_KINDS] = {"alloc",   "read", "write",
                                                  "reserve", "sync", "completion"};

/* What an engine does with a prompt when anything may fail; a miss is fine, a lie is not. */
static void serve(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result;
    if (rig_try_lookup(rig, prompt, 0, RIG_MAX, &result) != SPEC_OK)
        return;
    uint64_t matched = result.matched_tokens;
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < rig->layers && status == SPEC_OK; layer++) {
        (void)sc_plugin_begin_layer(rig->conn, &result.request, 1, layer, NULL);
        status = rig_load(rig, result.request, prompt, 0, matched, layer);
    }
    if (status != SPEC_OK) { /* the engine releases the request and starts the pass again */
        rig_release(rig, result.request);
        assert_int_equal(rig_try_lookup(rig, prompt, 0, RIG_MAX, &result), SPEC_OK);
        matched = result.matched_tokens; /* the engine computes on rows of its own up to here */
    }
    spec_ticket ticket = 0;
    status = SPEC_OK;
    for (uint32_t layer = 0; layer < rig->layers && matched < prompt->count; layer++) {
        status = rig_store_layer(rig, result.request, prompt, matched, prompt->count - matched,
                                 layer, &ticket);
        assert_int_equal(status, SPEC_OK);
        status = rig_wait(rig, ticket);
        assert_true(status == SPEC_OK || status == SPEC_E_DROPPED || status == SPEC_E_BUSY ||
                    status == SPEC_E_IO || status == SPEC_E_NO_SPACE);
    }
    rig_release(rig, result.request);
}

static void serve_all(struct rig *rig)
{
    for (uint64_t i = 0; i < 4; i++) {
        struct prompt prompt = rig_prompt(1, 40 + 20 * i, i, 150);
        serve(rig, &prompt);
        rig_prompt_free(&prompt);
    }
}

/* Without faults: what is found is right; then everything is stored, and found. */
static void heals(struct rig *rig)
{
    for (uint32_t round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 4; i++) {
            struct prompt prompt = rig_prompt(1, 40 + 20 * i, i, 150);
            spec_status status;
            if (rig_read(rig, &prompt, &status) == UINT64_MAX) /* said so, and removed it */
                assert_true(status == SPEC_E_CORRUPT || status == SPEC_E_IO);
            spec_status filled = rig_fill(rig, &prompt);
            if (filled != SPEC_OK)
                fail_msg("fill: %s", sc_status_name(filled));
            assert_int_equal(rig_read(rig, &prompt, NULL), 150);
            rig_prompt_free(&prompt);
        }
        rig_settle(rig);
        assert_int_equal(atomic_load(&rig->conn->stats.tickets_open), 0);
        assert_int_equal(atomic_load(&rig->conn->stats.requests_open), 0);
        rig_reopen(rig);
    }
}

/* Returns whether the fault was met. */
static bool cycle(struct rig *rig, enum sc_fault_kind kind, uint64_t n)
{
    rig_open(rig);
    sc_fault_arm(&rig->conn->fault, kind, n);
    serve_all(rig); /* stores */
    serve_all(rig); /* loads */
    rig_settle(rig);
    bool met = atomic_load(&rig->conn->fault.fired[kind]) > 0;
    atomic_store(&rig->conn->fault.countdown[kind], -1);
    assert_int_equal(atomic_load(&rig->conn->stats.requests_open), 0);
    assert_int_equal(atomic_load(&rig->conn->stats.tickets_open), 0);
    rig_reopen(rig);
    heals(rig);
    rig_close(rig);
    return met;
}

static void every_nth(bool is_sim, enum sc_fault_kind kind, uint64_t met_min)
{
    bool met = true;
    uint64_t n = 0;
    for (; met && n < N_MAX; n++) {
        struct rig rig;
        rig_init(&rig, is_sim,
                 is_sim ? "\"chunk_tokens\": 16, \"max_requests\": 4, "
                          "\"disk_bytes\": \"64MiB\", \"segment_bytes\": \"1MiB\", "
                          "\"layered\": {\"quantise\": \"yes\"}"
                        : "\"chunk_tokens\": 16, \"max_requests\": 4, "
                          "\"disk_bytes\": \"16MiB\", \"segment_bytes\": \"1MiB\"");
        met = cycle(&rig, kind, n);
        rig_done(&rig);
    }
    print_message("%s on %s: %llu failures\n", NAMES[kind], is_sim ? "sim" : "pread",
                  (unsigned long long)(n - 1));
    assert_true(n < N_MAX);
    assert_true(n - 1 >= met_min);
}

static void every_read_fails_once(void **state)
{
    (void)state;
    every_nth(true, SC_FAULT_READ, 4);
    every_nth(false, SC_FAULT_READ, 4);
}

static void every_write_fails_once(void **state)
{
    (void)state;
    every_nth(true, SC_FAULT_WRITE, 4);
    every_nth(false, SC_FAULT_WRITE, 4);
}

static void every_reserve_fails_once(void **state)
{
    (void)state;
    every_nth(true, SC_FAULT_RESERVE, 1);
    every_nth(false, SC_FAULT_RESERVE, 1);
}

static void every_completion_fails_once(void **state)
{
    (void)state;
    every_nth(true, SC_FAULT_COMPLETION, 8);
    every_nth(false, SC_FAULT_COMPLETION, 8);
}

static void every_allocation_of_a_call_fails_once(void **state)
{
    (void)state;
    every_nth(true, SC_FAULT_ALLOC, 0);
}

/* The host's allocator refuses the n-th block of open: one error, nothing left, and the store that
 * was there is as it was. */
static void every_allocation_of_open_fails_once(void **state)
{
    (void)state;
    for (uint32_t is_filled = 0; is_filled < 2; is_filled++) {
        struct rig rig;
        rig_init(&rig, true,
                 "\"chunk_tokens\": 16, \"max_requests\": 4, "
                 "\"disk_bytes\": \"64MiB\", \"segment_bytes\": \"1MiB\"");
        if (is_filled) {
            rig_open(&rig);
            serve_all(&rig);
            rig_close(&rig);
        }
        uint64_t n = 0;
        for (bool met = true; met && n < N_MAX; n++) {
            atomic_store(&rig.memory.failed, 0);
            atomic_store(&rig.memory.countdown, (int64_t)n);
            spec_status status = rig_try_open(&rig);
            atomic_store(&rig.memory.countdown, -1);
            met = atomic_load(&rig.memory.failed) > 0;
            if (status != SPEC_OK) {
                assert_true(met);
                assert_int_equal(status, SPEC_E_NO_MEMORY);
                assert_true(rig.error.text[0] != 0);
                assert_null(rig.conn);
                assert_int_equal(atomic_load(&rig.memory.live_blocks), 0);
                continue;
            }
            for (uint64_t i = 0; i < 4 && is_filled; i++) {
                struct prompt prompt = rig_prompt(1, 40 + 20 * i, i, 150);
                uint64_t matched = rig_read(&rig, &prompt, NULL);
                assert_true(met ? matched <= 150
                                : matched == 150); /* what has no memory is unseen */
                rig_prompt_free(&prompt);
            }
            rig_close(&rig);
        }
        assert_true(n > 20 && n < N_MAX);
        print_message("open: %llu failures\n", (unsigned long long)(n - 1));
        rig_open(&rig);
        heals(&rig);
        rig_done(&rig);
    }
}

/* Device lies on the simulated disk, at random, during stores and loads: lost, torn, misdirected
 * writes and flipped bits. Seeded; a failure prints its seed. */
static void a_lying_device_gives_misses(void **state)
{
    (void)state;
    static const enum sc_io_sim_fault LIES[] = {SC_SIM_TORN, SC_SIM_FLIP,  SC_SIM_MISDIRECTED,
                                                SC_SIM_LOST, SC_SIM_SHORT, SC_SIM_LATE,
                                                SC_SIM_STALE};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rig rig;
        rig_init(&rig, true,
                 "\"chunk_tokens\": 16, \"max_requests\": 4, "
                 "\"disk_bytes\": \"64MiB\", \"segment_bytes\": \"1MiB\", "
                 "\"layered\": {\"quantise\": \"yes\"}");
        sc_io_sim_disk_close(rig.disk);
        struct sc_io_sim_disk_params params = {.alloc = &rig.disk_alloc, .seed = seed};
        assert_int_equal(sc_io_sim_disk_open(&params, &rig.disk, NULL), SPEC_OK);
        rig_open(&rig);
        sc_io_sim_fault_scope(rig.disk, "/seg-");
        for (uint32_t i = 0; i < sizeof(LIES) / sizeof(LIES[0]); i++)
            sc_io_sim_fault_ppm(rig.disk, LIES[i], 30000);
        for (uint32_t round = 0; round < 4; round++)
            serve_all(&rig);
        rig_settle(&rig);
        for (uint32_t i = 0; i < sizeof(LIES) / sizeof(LIES[0]); i++)
            sc_io_sim_fault_ppm(rig.disk, LIES[i], 0);
        rig_reopen(&rig);
        for (uint32_t round = 0; round < 12; round++) /* what is wrong is found, and removed */
            serve_all(&rig);
        heals(&rig);
        rig_done(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_read_fails_once),
        cmocka_unit_test(every_write_fails_once),
        cmocka_unit_test(every_reserve_fails_once),
        cmocka_unit_test(every_completion_fails_once),
        cmocka_unit_test(every_allocation_of_a_call_fails_once),
        cmocka_unit_test(every_allocation_of_open_fails_once),
        cmocka_unit_test(a_lying_device_gives_misses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
