/* A device that stalls under real threads: completions wait at a gate (base/fault.h) until the test
 * lets them through, however long that takes.
 *
 *   host:  get_important, deadline passes -> takes its memory away -> opens the gate -> goes on
 *   I/O:   ... read done, held at the gate .....................> completes, late
 *
 * Holds: destinations are mappings that are gone when a late completion comes, so that a write into
 * them ends the test in every build.
 * Threads: the test's one, and one that opens the gate. */
#include "tests/unit/awaits.h"
#include "tests/unit/plugin/gate.h"
#include "tests/unit/plugin/plugin_fixture.h"

#include <pthread.h>
#include <sys/mman.h>

#define TOKENS      1500u
#define DEADLINE_NS 20000000u
#define PATIENCE_NS UINT64_C(600000000000) /* of what comes, unless it hangs */

struct stall {
    struct rig rig;
    struct gate gate;
    struct prompt prompt;
    uint64_t read_ops; /* of the first batch */
    bool went_on;      /* the second was under way when the gate was opened */
};

static uint64_t read_ops(struct stall *stall)
{
    struct sc_store_stats stats = rig_store_stats(&stall->rig);
    return stats.read_ops;
}

/* Opens the gate when the first batch is held at it and the second is under way. */
static void *open_later(void *user)
{
    struct stall *stall = user;
    uint32_t looks = 0;
    (void)gate_await(&stall->gate, 1);
    while (read_ops(stall) == stall->read_ops && await_goes_on(&looks))
        continue;
    stall->went_on = read_ops(stall) != stall->read_ops;
    gate_shut(&stall->gate, false);
    return NULL;
}

/* False: this machine has no such back end. */
static bool stall_open(struct stall *stall, const char *backend)
{
    *stall = (struct stall){.gate = GATE_OPEN, .prompt = rig_prompt(1, 0, 0, TOKENS)};
    rig_init(&stall->rig, false, "\"max_requests\": 64");
    stall->rig.backend = backend;
    rig_shape(&stall->rig, 4, 4, 64, SPEC_DTYPE_F16);
    if (strcmp(backend, "pread") != 0 && rig_try_open(&stall->rig) != SPEC_OK) {
        print_message("skipped: no %s here: %s\n", backend, stall->rig.error.text);
        rig_end(&stall->rig, &stall->prompt);
        return false;
    }
    if (stall->rig.conn == NULL)
        rig_open(&stall->rig);
    sc_fault_gate_set(&stall->rig.conn->fault, gate_pass, &stall->gate);
    assert_int_equal(rig_fill(&stall->rig, &stall->prompt), SPEC_OK);
    return true;
}

static void stall_done(struct stall *stall)
{
    rig_prompt_free(&stall->prompt);
    rig_done(&stall->rig); /* asserts that no invariant broke and no memory was kept */
}

/* One layer into a mapping that is taken away before this returns. */
static spec_status load_and_unmap(struct stall *stall, spec_request request, uint32_t layer)
{
    const struct rig *rig = &stall->rig;
    uint64_t part_bytes = TOKENS * rig_part_bytes(rig), bytes = 2 * part_bytes;
    uint8_t *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mapped != MAP_FAILED);
    struct area shape = rig_area(rig, 1); /* only how rows lie */
    struct spec_memory memory = shape.memory;
    rig_area_free(&shape);
    memory.k_base = mapped;
    memory.v_base = mapped + part_bytes;
    memory.k_bytes = memory.v_bytes = part_bytes;
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = request,
                                  .layer = layer,
                                  .destination = &memory,
                                  .deadline_ns = DEADLINE_NS};
    spec_status status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
    assert_int_equal(item.status, status);
    for (uint64_t i = 0; i < bytes && status == SPEC_E_TIMEOUT; i++)
        assert_int_equal(mapped[i], 0); /* no row came: the device stood still */
    assert_int_equal(munmap(mapped, bytes), 0);
    return status;
}

static void load_layers(struct stall *stall, spec_request request)
{
    rig_load_all(&stall->rig, request, &stall->prompt, 0, TOKENS);
}

static void check_late(const char *backend)
{
    struct stall stall;
    if (!stall_open(&stall, backend))
        return;
    spec_request request = rig_lookup(&stall.rig, &stall.prompt).request;
    for (uint32_t layer = 0; layer < stall.rig.layers; layer++) {
        gate_shut(&stall.gate, true);
        assert_int_equal(load_and_unmap(&stall, request, layer), SPEC_E_TIMEOUT);
        assert_true(gate_await(&stall.gate, 1)); /* what comes late was on its way */
        gate_shut(&stall.gate, false);
        load_layers(&stall, request);
    }
    gate_shut(&stall.gate, true); /* released with reads under way, and closed with them */
    assert_int_equal(load_and_unmap(&stall, request, 0), SPEC_E_TIMEOUT);
    assert_true(gate_await(&stall.gate, 1));
    rig_release(&stall.rig, request);
    gate_shut(&stall.gate, false);
    rig_reopen(&stall.rig);
    assert_int_equal(rig_read(&stall.rig, &stall.prompt, NULL), TOKENS);
    stall_done(&stall);
}

static void abi_059_late_rows_do_not_reach_freed_memory_pread(void **state)
{
    (void)state;
    check_late("pread");
}

static void abi_059_late_rows_do_not_reach_freed_memory_io_uring(void **state)
{
    (void)state;
    check_late("io_uring");
}

/* Layers 0 and 2 are one reader's: completions of the first batch come while the second is under
 * way, and must not be taken for it. */
static void check_stale(const char *backend)
{
    struct stall stall;
    if (!stall_open(&stall, backend))
        return;
    spec_request request = rig_lookup(&stall.rig, &stall.prompt).request;
    for (uint32_t round = 0; round < 6; round++) {
        pthread_t opener;
        gate_shut(&stall.gate, true);
        assert_int_equal(load_and_unmap(&stall, request, round % 2), SPEC_E_TIMEOUT);
        stall.read_ops = read_ops(&stall);
        assert_int_equal(pthread_create(&opener, NULL, open_later, &stall), 0);
        assert_int_equal(rig_load(&stall.rig, request, &stall.prompt, 0, TOKENS, round % 2 + 2),
                         SPEC_OK);
        assert_int_equal(pthread_join(opener, NULL), 0);
        assert_true(stall.went_on);
    }
    rig_release(&stall.rig, request);
    stall_done(&stall);
}

static void abi_051_stale_completion_of_an_earlier_batch_pread(void **state)
{
    (void)state;
    check_stale("pread");
}

static void abi_051_stale_completion_of_an_earlier_batch_io_uring(void **state)
{
    (void)state;
    check_stale("io_uring");
}

/* store returns while nothing completes; what finds no room is given up, and said so. A call that
 * waited for the device would hang here. */
static void check_store(const char *backend)
{
    struct stall stall;
    if (!stall_open(&stall, backend))
        return;
    struct prompt prompts[24];
    spec_ticket tickets[24];
    uint64_t kept = 0, begun = 0;
    gate_shut(&stall.gate, true);
    for (uint64_t i = 0; i < 24; i++) { /* 24 * 6 MB into 16 MiB of staging */
        prompts[i] = rig_prompt(10 + i, 0, 0, TOKENS);
        spec_request request = rig_lookup(&stall.rig, &prompts[i]).request;
        tickets[i] = rig_store(&stall.rig, request, &prompts[i], 0, TOKENS);
        rig_release(&stall.rig, request);
    }
    struct spec_lookup_result found = rig_lookup(&stall.rig, &stall.prompt);
    assert_int_equal(found.matched_tokens, TOKENS); /* lookups go on */
    gate_shut(&stall.gate, false);
    for (uint64_t i = 0; i < 24; i++) {
        spec_status ended = rig_wait(&stall.rig, tickets[i]);
        assert_true(ended == SPEC_OK || ended == SPEC_E_BUSY || ended == SPEC_E_DROPPED);
        uint64_t found_tokens = rig_read(&stall.rig, &prompts[i], NULL); /* and compared */
        assert_true(ended == SPEC_OK ? found_tokens == TOKENS : found_tokens < TOKENS);
        kept += ended == SPEC_OK;
        begun += found_tokens > 0;
        rig_prompt_free(&prompts[i]);
    }
    assert_true(kept < 24); /* they did not all fit: or nothing was stalled */
    assert_true(begun > 0); /* what fits of a beginning is kept */
    load_layers(&stall, found.request);
    rig_release(&stall.rig, found.request);
    stall_done(&stall);
}

static void abi_085_store_returns_while_the_device_stalls_pread(void **state)
{
    (void)state;
    check_store("pread");
}

static void abi_085_store_returns_while_the_device_stalls_io_uring(void **state)
{
    (void)state;
    check_store("io_uring");
}

/* As many writes as there are threads for them stand still: loads go on. */
static void loads_go_on_while_writes_stall_pread(void **state)
{
    (void)state;
    struct stall stall;
    assert_true(stall_open(&stall, "pread"));
    struct prompt other = rig_prompt(2, 0, 0, TOKENS);
    spec_request request = rig_lookup(&stall.rig, &stall.prompt).request;
    struct spec_lookup_result result = rig_lookup(&stall.rig, &other);
    rig_background(&stall.rig);
    stall.gate.holds = stall.rig.conn->config.io_threads;
    gate_shut(&stall.gate, true);
    spec_ticket ticket = rig_store(&stall.rig, result.request, &other, 0, TOKENS);
    assert_true(gate_await(&stall.gate, stall.gate.holds));
    for (uint32_t layer = 0; layer < stall.rig.layers; layer++) {
        struct area area = rig_area(&stall.rig, TOKENS);
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = request,
                                      .layer = layer,
                                      .destination = &area.memory,
                                      .deadline_ns = PATIENCE_NS};
        assert_int_equal(sc_plugin_get_important(stall.rig.conn, &item, 1, NULL), SPEC_OK);
        assert_true(rig_area_is_right(&stall.rig, &area, &stall.prompt, 0, TOKENS, layer));
        rig_area_free(&area);
    }
    spec_status status;
    assert_int_equal(sc_plugin_poll(stall.rig.conn, &ticket, 1, &status, NULL), SPEC_OK);
    assert_int_equal(status, SPEC_PENDING);
    gate_shut(&stall.gate, false);
    assert_int_equal(rig_wait(&stall.rig, ticket), SPEC_OK);
    rig_release(&stall.rig, result.request);
    rig_release(&stall.rig, request);
    rig_prompt_free(&other);
    stall_done(&stall);
}

/* The only thread for submissions is at one that has no deadline, of a device that stands still.
 * One behind it ends when its own has passed, as its host waits with a limit. */
static void a_deadline_holds_behind_a_submission_without_one(void **state)
{
    (void)state;
    struct stall stall;
    assert_true(stall_open(&stall, "pread"));
    spec_connector *conn = stall.rig.conn;
    struct area areas[2];
    struct spec_important items[2];
    spec_request requests[2];
    spec_ticket tickets[2];
    gate_shut(&stall.gate, true);
    for (uint32_t i = 0; i < 2; i++) {
        areas[i] = rig_area(&stall.rig, TOKENS);
        requests[i] = rig_lookup(&stall.rig, &stall.prompt).request;
        items[i] = (struct spec_important){.struct_size = sizeof(items[i]),
                                           .request = requests[i],
                                           .destination = &areas[i].memory,
                                           .deadline_ns = i == 0 ? 0 : DEADLINE_NS};
        assert_int_equal(sc_plugin_submit(conn, &items[i], 1, &tickets[i], NULL), SPEC_OK);
        assert_true(gate_await(&stall.gate, 1));
    }
    assert_int_equal(sc_plugin_submit_wait(conn, tickets[1], PATIENCE_NS, NULL), SPEC_E_TIMEOUT);
    assert_int_equal(items[1].status, SPEC_E_TIMEOUT); /* the item's, not the wait's */
    assert_int_equal(sc_plugin_submit_wait(conn, tickets[1], 0, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_submit_wait(conn, tickets[0], 0, NULL), SPEC_E_TIMEOUT);
    gate_shut(&stall.gate, false);
    assert_int_equal(sc_plugin_submit_wait(conn, tickets[0], UINT64_MAX, NULL), SPEC_OK);
    assert_int_equal(sc_plugin_submit(conn, &items[1], 1, &tickets[1], NULL), SPEC_OK);
    (void)sc_plugin_submit_wait(conn, tickets[1], UINT64_MAX, NULL);
    assert_true(rig_area_is_right(&stall.rig, &areas[0], &stall.prompt, 0, TOKENS, 0));
    for (uint32_t i = 0; i < 2; i++) {
        rig_release(&stall.rig, requests[i]);
        rig_area_free(&areas[i]);
    }
    stall_done(&stall);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abi_059_late_rows_do_not_reach_freed_memory_pread),
        cmocka_unit_test(abi_059_late_rows_do_not_reach_freed_memory_io_uring),
        cmocka_unit_test(abi_051_stale_completion_of_an_earlier_batch_pread),
        cmocka_unit_test(abi_051_stale_completion_of_an_earlier_batch_io_uring),
        cmocka_unit_test(abi_085_store_returns_while_the_device_stalls_pread),
        cmocka_unit_test(abi_085_store_returns_while_the_device_stalls_io_uring),
        cmocka_unit_test(loads_go_on_while_writes_stall_pread),
        cmocka_unit_test(a_deadline_holds_behind_a_submission_without_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
