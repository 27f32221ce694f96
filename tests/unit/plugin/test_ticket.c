/* Tickets: reported once, the first failure kept, slots reused without confusion, also by threads
 * that ask for the same ticket. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

static uint64_t open_count(struct rig *rig)
{
    return atomic_load(&rig->conn->stats.tickets_open);
}

static spec_status poll_one(struct rig *rig, spec_ticket ticket)
{
    spec_status status = 12345;
    assert_int_equal(sc_plugin_poll(rig->conn, &ticket, 1, &status, NULL), SPEC_OK);
    return status;
}

static int setup(void **state)
{
    struct rig *rig = malloc(sizeof(*rig));
    assert_non_null(rig);
    rig_begin(rig, true, "");
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(open_count(rig), 0);
    rig_done(rig);
    free(rig);
    return 0;
}

static void the_first_failure_is_kept_and_told_once(void **state)
{
    struct rig *rig = *state;
    spec_ticket ticket = sc_plugin_ticket_take(rig->conn, 3);
    assert_true(ticket != 0);
    assert_int_equal(poll_one(rig, ticket), SPEC_PENDING);
    sc_plugin_ticket_resolve(rig->conn, ticket, SPEC_OK);
    sc_plugin_ticket_resolve(rig->conn, ticket, SPEC_E_IO);
    assert_int_equal(poll_one(rig, ticket), SPEC_PENDING);
    sc_plugin_ticket_resolve(rig->conn, ticket, SPEC_E_DROPPED);
    assert_int_equal(poll_one(rig, ticket), SPEC_E_IO);
    spec_status status = 12345;
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(sc_plugin_poll(rig->conn, &ticket, 1, &status, &error), SPEC_E_INVALID);
    assert_int_equal(status, 12345);
    assert_true(error.text[0] != 0);
}

static void unknown_tickets_change_nothing(void **state)
{
    struct rig *rig = *state;
    spec_ticket good = sc_plugin_ticket_take(rig->conn, 1);
    sc_plugin_ticket_resolve(rig->conn, good, SPEC_OK);
    const spec_ticket bad[] = {0,          good + (UINT64_C(1) << 32),
                               good + 1,   UINT64_MAX,
                               UINT32_MAX, SC_LIMIT_TICKETS + 1 + (UINT64_C(1) << 32),
                               good & ~0u, good}; /* the last: named twice */
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        spec_ticket pair[2] = {good, bad[i]};
        spec_status statuses[2] = {77, 77};
        assert_int_equal(sc_plugin_poll(rig->conn, pair, 2, statuses, NULL), SPEC_E_INVALID);
        assert_int_equal(sc_plugin_wait(rig->conn, pair, 2, 0, statuses, NULL), SPEC_E_INVALID);
        assert_int_equal(statuses[0], 77);
        assert_int_equal(statuses[1], 77);
    }
    spec_status status;
    assert_int_equal(sc_plugin_poll(rig->conn, NULL, 1, &status, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_poll(rig->conn, &good, 1, NULL, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_plugin_poll(rig->conn, NULL, 0, NULL, NULL), SPEC_OK);
    assert_int_equal(poll_one(rig, good), SPEC_OK);
}

/* A slot's next ticket is another ticket; the old one stays ended. */
static void a_slot_is_reused_under_another_name(void **state)
{
    struct rig *rig = *state;
    spec_ticket old = 0;
    for (uint64_t i = 0; i < 3 * SC_LIMIT_TICKETS; i++) {
        spec_ticket ticket = sc_plugin_ticket_take(rig->conn, 1);
        assert_true(ticket != 0 && ticket != old);
        sc_plugin_ticket_resolve(rig->conn, ticket, SPEC_OK);
        if (i == 0)
            old = ticket;
        assert_int_equal(poll_one(rig, ticket), SPEC_OK);
    }
    spec_status status;
    assert_int_equal(sc_plugin_poll(rig->conn, &old, 1, &status, NULL), SPEC_E_INVALID);
}

static void all_tickets_can_be_taken_and_no_more(void **state)
{
    struct rig *rig = *state;
    static spec_ticket tickets[SC_LIMIT_TICKETS];
    for (uint64_t i = 0; i < SC_LIMIT_TICKETS; i++)
        assert_true((tickets[i] = sc_plugin_ticket_take(rig->conn, 1)) != 0);
    assert_int_equal(sc_plugin_ticket_take(rig->conn, 1), 0);
    assert_int_equal(open_count(rig), SC_LIMIT_TICKETS);
    for (uint64_t i = 0; i < SC_LIMIT_TICKETS; i++) {
        sc_plugin_ticket_resolve(rig->conn, tickets[i], SPEC_OK);
        assert_int_equal(poll_one(rig, tickets[i]), SPEC_OK);
    }
}

/* Forgotten before, between and after its parts: the slot comes back with the last. */
static void a_forgotten_ticket_ends_with_its_last_part(void **state)
{
    struct rig *rig = *state;
    for (uint32_t at = 0; at <= 3; at++) {
        spec_ticket ticket = sc_plugin_ticket_take(rig->conn, 3);
        for (uint32_t part = 0; part <= 3; part++) {
            if (part == at)
                sc_plugin_ticket_forget(rig->conn, ticket);
            if (part < 3) {
                assert_int_equal(open_count(rig), 1);
                sc_plugin_ticket_resolve(rig->conn, ticket, SPEC_OK);
            }
        }
        assert_int_equal(open_count(rig), 0);
    }
}

static void a_wait_that_is_late_says_what_is_done(void **state)
{
    struct rig *rig = *state;
    spec_ticket tickets[2] = {sc_plugin_ticket_take(rig->conn, 1),
                              sc_plugin_ticket_take(rig->conn, 1)};
    sc_plugin_ticket_resolve(rig->conn, tickets[1], SPEC_E_NO_SPACE);
    spec_status statuses[2] = {77, 77};
    uint64_t before_ns = sc_exec_now_ns(rig->conn->exec);
    assert_int_equal(sc_plugin_wait(rig->conn, tickets, 2, 5000, statuses, NULL), SPEC_E_TIMEOUT);
    assert_int_equal(sc_exec_now_ns(rig->conn->exec) - before_ns, 5000);
    assert_int_equal(statuses[0], SPEC_PENDING);
    assert_int_equal(statuses[1], SPEC_E_NO_SPACE);
    sc_plugin_ticket_resolve(rig->conn, tickets[0], SPEC_OK);
    assert_int_equal(sc_plugin_wait(rig->conn, tickets, 1, 0, statuses, NULL), SPEC_OK);
    assert_int_equal(statuses[0], SPEC_OK);
}

/* ---- Threads -------------------------------------------------------------------------------- */

#define RACERS 2u /* beside the test's own thread */
#define ROUNDS 600u
#define LIST   512u /* long enough that all are inside the call at once */

struct race {
    struct rig *rig;
    spec_ticket tickets[LIST]; /* of the round, done */
    _Atomic uint32_t round, ended;
    _Atomic uint64_t reported;
};

static void ask(struct race *race)
{
    spec_ticket tickets[LIST];
    spec_status statuses[LIST];
    memcpy(tickets, race->tickets, sizeof(tickets));
    for (uint32_t i = 0; i < LIST; i++)
        statuses[i] = SPEC_PENDING;
    (void)sc_plugin_poll(race->rig->conn, tickets, LIST, statuses, NULL);
    uint64_t reported = 0;
    for (uint32_t i = 0; i < LIST; i++)
        reported += statuses[i] == SPEC_E_DROPPED;
    atomic_fetch_add(&race->reported, reported);
}

static void *race(void *user)
{
    struct race *race = user;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (uint32_t spins = 0; atomic_load(&race->round) < round; spins++)
            if (spins % 4096 == 4095)
                sched_yield();
        ask(race);
        atomic_fetch_add(&race->ended, 1);
    }
    return NULL;
}

/* Many threads ask for the same list while its slots are taken again: each ticket is told to one,
 * and its slot's next ticket lives. */
static void one_of_many_threads_is_told(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "");
    static spec_ticket held[SC_LIMIT_TICKETS];
    for (uint64_t i = 0; i < SC_LIMIT_TICKETS - LIST; i++) /* the list's slots are what is left */
        held[i] = sc_plugin_ticket_take(rig.conn, 1);
    struct race all = {.rig = &rig};
    const struct threads threads = threads_begin(race, &all, 0, RACERS);
    spec_ticket next[LIST];
    for (uint32_t i = 0; i < LIST; i++)
        next[i] = sc_plugin_ticket_take(rig.conn, 1);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        memcpy(all.tickets, next, sizeof(next));
        for (uint32_t i = 0; i < LIST; i++)
            sc_plugin_ticket_resolve(rig.conn, next[i], SPEC_E_DROPPED);
        atomic_store(&all.ended, 0);
        atomic_store(&rig.conn->tickets.hint, SC_LIMIT_TICKETS - LIST); /* else takes look far */
        atomic_store(&all.round, round);
        ask(&all);
        for (uint32_t i = 0; i < LIST; i++)
            while ((next[i] = sc_plugin_ticket_take(rig.conn, 1)) == 0)
                sched_yield();
        while (atomic_load(&all.ended) < RACERS)
            sched_yield();
        assert_int_equal(atomic_load(&all.reported), (uint64_t)round * LIST);
        assert_int_equal(open_count(&rig), SC_LIMIT_TICKETS);
    }
    threads_join(&threads);
    memcpy(held + SC_LIMIT_TICKETS - LIST, next, sizeof(next));
    for (uint64_t i = 0; i < SC_LIMIT_TICKETS; i++) {
        sc_plugin_ticket_forget(rig.conn, held[i]);
        sc_plugin_ticket_resolve(rig.conn, held[i], SPEC_OK);
    }
    assert_int_equal(open_count(&rig), 0);
    rig_done(&rig);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(the_first_failure_is_kept_and_told_once),
        WITH(unknown_tickets_change_nothing),
        WITH(a_slot_is_reused_under_another_name),
        WITH(all_tickets_can_be_taken_and_no_more),
        WITH(a_forgotten_ticket_ends_with_its_last_part),
        WITH(a_wait_that_is_late_says_what_is_done),
        cmocka_unit_test(one_of_many_threads_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
