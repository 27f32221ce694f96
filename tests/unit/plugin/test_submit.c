/* get_important in two halves, from inside: who does the work, what it may not do meanwhile, how it
 * ends. What it delivers through the calls of the ABI is conformance's (abi_133_*, abi_160_* ..).
 */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

/* The work is wait's (the loop, and without threads), a thread's, any of three threads'. */
static const struct {
    bool is_sim;
    const char *extra;
} WAYS[] = {{true, "\"chunk_tokens\": 16"},
            {false, "\"chunk_tokens\": 16, \"submit\": {\"threads\": 0}"},
            {false, "\"chunk_tokens\": 16"},
            {false, "\"chunk_tokens\": 16, \"submit\": {\"threads\": 3}"}};
#define WAY_COUNT (sizeof(WAYS) / sizeof(WAYS[0]))

static void open_way(struct rig *rig, uint64_t way)
{
    rig_begin(rig, WAYS[way].is_sim, WAYS[way].extra);
}

/* One layer, submitted. */
struct shot {
    struct area area;
    struct spec_important item;
    spec_ticket ticket;
};

static spec_status shot_submit(struct rig *rig, struct shot *shot, spec_request request,
                               uint64_t rows, uint32_t layer)
{
    shot->area = rig_area(rig, rows + 1);
    shot->item = (struct spec_important){.struct_size = sizeof(shot->item),
                                         .request = request,
                                         .layer = layer,
                                         .destination = &shot->area.memory};
    return sc_plugin_submit(rig->conn, &shot->item, 1, &shot->ticket, NULL);
}

static spec_status shot_wait(struct rig *rig, struct shot *shot)
{
    return sc_plugin_submit_wait(rig->conn, shot->ticket, UINT64_MAX, NULL);
}

static void submissions_deliver_and_allocate_nothing(void **state)
{
    (void)state;
    for (uint64_t way = 0; way < WAY_COUNT; way++) {
        struct rig rig;
        open_way(&rig, way);
        struct prompt prompt = rig_prompt(1, 0, 0, 150);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        struct sc_alloc *alloc = &rig.conn->alloc;
        sc_alloc_seal(alloc);
        for (uint32_t round = 0; round < 10; round++) {
            spec_request request = rig_lookup(&rig, &prompt).request;
            for (uint32_t layer = 0; layer < rig.layers; layer++) {
                struct shot shot;
                assert_int_equal(shot_submit(&rig, &shot, request, 150, layer), SPEC_OK);
                assert_int_equal(shot_wait(&rig, &shot), SPEC_OK);
                assert_int_equal(shot.item.row_count, 150);
                assert_true(rig_area_is_right(&rig, &shot.area, &prompt, 0, 150, layer));
                rig_area_free(&shot.area);
            }
            rig_release(&rig, request);
        }
        sc_alloc_unseal(alloc);
        assert_int_equal(atomic_load(&alloc->sealed_refusals), 0);
        rig_end(&rig, &prompt);
    }
}

/* Nobody works before wait: what is submitted stays so, and its slots are bounded. */
static void more_than_there_is_room_for_is_busy(void **state)
{
    (void)state;
    struct rig rig;
    struct shot shots[66];
    spec_request requests[66];
    rig_begin(&rig, true,
              "\"chunk_tokens\": 16, \"max_requests\": 66, "
              "\"max_request_tokens\": 256");
    struct prompt prompt = rig_prompt(2, 0, 0, 100);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    for (uint64_t i = 0; i < 66; i++) {
        requests[i] = rig_lookup(&rig, &prompt).request;
        assert_int_equal(shot_submit(&rig, &shots[i], requests[i], 100, 1),
                         i < 64 ? SPEC_OK : SPEC_E_BUSY);
    }
    for (uint64_t i = 0; i < 64; i += 2) /* they hold their slots until they are waited for */
        rig_release(&rig, requests[i]);
    assert_int_equal(shot_wait(&rig, &shots[0]), SPEC_E_STALE);
    rig_area_free(&shots[64].area);
    assert_int_equal(shot_submit(&rig, &shots[64], requests[64], 100, 1), SPEC_OK);
    for (uint64_t i = 1; i < 65; i++) {
        bool is_gone = i % 2 == 0 && i < 64;
        assert_int_equal(shot_wait(&rig, &shots[i]), is_gone ? SPEC_E_STALE : SPEC_OK);
        assert_true(rig_area_is_right(&rig, &shots[i].area, &prompt, 0, is_gone ? 0 : 100, 1));
    }
    for (uint64_t i = 0; i < 66; i++) {
        rig_area_free(&shots[i].area);
        if (i % 2 == 1 || i == 64)
            rig_release(&rig, requests[i]);
    }
    assert_int_equal(atomic_load(&rig.conn->stats.requests_open), 0);
    rig_end(&rig, &prompt);
}

/* The items of a submission for which there is no room, as they would be checked if there were. */
static void what_is_wrong_is_told_before_what_is_busy(void **state)
{
    (void)state;
    struct rig rig;
    struct shot shots[64];
    spec_request requests[66];
    rig_begin(&rig, true,
              "\"chunk_tokens\": 16, \"max_requests\": 66, "
              "\"max_request_tokens\": 256");
    struct prompt prompt = rig_prompt(5, 0, 0, 100);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    for (uint64_t i = 0; i < 66; i++) {
        requests[i] = rig_lookup(&rig, &prompt).request;
        if (i < 64)
            assert_int_equal(shot_submit(&rig, &shots[i], requests[i], 100, 1), SPEC_OK);
    }
    rig_release(&rig, requests[65]);
    struct spec_important good = shots[0].item, items[2] = {good, good};
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_ticket ticket = 7;
    const struct {
        spec_status status;
        uint64_t count;
        struct spec_important *items;
        uint32_t layer, flags, struct_size;
        spec_request request;
        const char *text;
    } CASES[] = {
        {SPEC_E_INVALID, 0, items, 1, 0, sizeof(good), requests[64], "1 .. "},
        {SPEC_E_INVALID, 1, NULL, 1, 0, sizeof(good), requests[64], "1 .. "},
        {SPEC_E_INVALID, SC_LIMIT_BATCH + 1, items, 1, 0, sizeof(good), requests[64], "1 .. "},
        {SPEC_E_INVALID, 1, items, rig.layers, 0, sizeof(good), requests[64], "layer"},
        {SPEC_E_INVALID, 1, items, 1, 8, sizeof(good), requests[64], "items[0]: flags"},
        {SPEC_E_INVALID, 2, items, 1, 0, sizeof(good) - 8, requests[64], "items[1] has another"},
        {SPEC_E_STALE, 1, items, 1, 0, sizeof(good), requests[65], "request"},
        {SPEC_E_BUSY, 1, items, 1, 0, sizeof(good), requests[64], "64 were submitted"},
    };
    for (uint64_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        items[0].layer = CASES[i].layer;
        items[0].flags = CASES[i].flags;
        items[0].request = CASES[i].request;
        items[1].struct_size = CASES[i].struct_size;
        assert_int_equal(
            sc_plugin_submit(rig.conn, CASES[i].items, CASES[i].count, &ticket, &error),
            CASES[i].status);
        assert_non_null(strstr(error.text, CASES[i].text));
        assert_int_equal(ticket, 7);
    }
    for (uint64_t i = 0; i < 64; i++) { /* none of that changed what is out */
        assert_int_equal(shot_wait(&rig, &shots[i]), SPEC_OK);
        assert_true(rig_area_is_right(&rig, &shots[i].area, &prompt, 0, 100, 1));
        rig_area_free(&shots[i].area);
        rig_release(&rig, requests[i]);
    }
    rig_release(&rig, requests[64]);
    rig_end(&rig, &prompt);
}

/* What was released before its work began ends with it, and its slot serves another request. */
static void a_released_requests_slot_is_used_again_after_its_submission(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"chunk_tokens\": 16, \"max_requests\": 1");
    struct prompt prompt = rig_prompt(3, 0, 0, 100);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    for (uint32_t round = 0; round < 3; round++) {
        struct shot shot;
        struct spec_lookup_result result;
        spec_request request = rig_lookup(&rig, &prompt).request;
        assert_int_equal(shot_submit(&rig, &shot, request, 100, 0), SPEC_OK);
        assert_int_equal(sc_plugin_release(rig.conn, request, NULL), SPEC_OK);
        assert_int_equal(sc_plugin_release(rig.conn, request, NULL), SPEC_E_STALE);
        assert_int_equal(rig_try_lookup(&rig, &prompt, 0, RIG_MAX, &result), SPEC_E_BUSY);
        assert_int_equal(shot_wait(&rig, &shot), SPEC_E_STALE);
        assert_int_equal(shot.item.status, SPEC_E_STALE);
        assert_true(rig_area_is_right(&rig, &shot.area, &prompt, 0, 0, 0));
        rig_area_free(&shot.area);
        assert_int_equal(rig_read(&rig, &prompt, NULL), 100);
    }
    rig_end(&rig, &prompt);
}

/* A reset, or close, comes before the work. */
static void what_nobody_wants_any_more_is_not_delivered(void **state)
{
    (void)state;
    for (uint32_t closes = 0; closes < 2; closes++) {
        struct rig rig;
        struct shot shot;
        rig_begin(&rig, true, "\"chunk_tokens\": 16");
        struct prompt prompt = rig_prompt(4, 0, 0, 100);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        spec_request request = rig_lookup(&rig, &prompt).request;
        assert_int_equal(shot_submit(&rig, &shot, request, 100, 2), SPEC_OK);
        if (closes) {
            rig_close(&rig);
        } else {
            assert_int_equal(sc_plugin_reset(rig.conn, NULL), SPEC_OK);
            assert_int_equal(shot_wait(&rig, &shot), SPEC_E_STALE);
            rig_release(&rig, request);
        }
        assert_true(rig_area_is_right(&rig, &shot.area, &prompt, 0, 0, 2));
        rig_area_free(&shot.area);
        rig_end(&rig, &prompt);
    }
}

/* Ends a request, or resets, at a moment of the work. */
struct ender {
    struct sc_task task;
    struct rig *rig;
    spec_request request;
    bool resets;
};

static void end_step(struct sc_task *task)
{
    struct ender *ender = (struct ender *)(void *)task;
    if (ender->resets)
        assert_int_equal(sc_plugin_reset(ender->rig->conn, NULL), SPEC_OK);
    else
        rig_release(ender->rig, ender->request);
}

/* Two layers; returns whether each is OK (bits 0 and 1) when the end comes after so long. */
static uint32_t end_after(uint64_t ns, bool resets)
{
    struct rig rig;
    rig_begin(&rig, true, "\"chunk_tokens\": 16, \"lease_ns_max\": 0");
    struct prompt prompt = rig_prompt(4, 0, 0, 100);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    struct area areas[2] = {rig_area(&rig, 101), rig_area(&rig, 101)};
    struct ender ender = {.task.step = end_step, .rig = &rig, .resets = resets};
    ender.request = rig_lookup(&rig, &prompt).request;
    struct spec_important items[2];
    for (uint32_t i = 0; i < 2; i++)
        items[i] = (struct spec_important){.struct_size = sizeof(items[i]),
                                           .request = ender.request,
                                           .layer = i,
                                           .destination = &areas[i].memory};
    spec_ticket ticket;
    assert_int_equal(sc_plugin_submit(rig.conn, items, 2, &ticket, NULL), SPEC_OK);
    sc_exec_post_at(rig.conn->exec, &ender.task, SC_IO_CLASS_DEMAND,
                    sc_exec_now_ns(rig.conn->exec) + ns);
    spec_status status = sc_plugin_submit_wait(rig.conn, ticket, UINT64_MAX, NULL);
    bool ended_first = !sc_exec_cancel(rig.conn->exec, &ender.task);
    uint32_t ok = 0;
    for (uint32_t i = 0; i < 2; i++) {
        ok |= (items[i].status == SPEC_OK) << i;
        assert_true(items[i].status == SPEC_OK || items[i].status == SPEC_E_STALE);
        if (items[i].status == SPEC_OK)
            assert_true(rig_area_is_right(&rig, &areas[i], &prompt, 0, 100, i));
        rig_area_free(&areas[i]);
    }
    assert_int_equal(status, ok == 3 ? SPEC_OK : SPEC_E_STALE);
    if (resets || !ended_first)
        rig_release(&rig, ender.request);
    rig_end(&rig, &prompt);
    return ended_first ? ok : 4;
}

/* Whatever is being delivered ends as it would have, or (by a reset) is STALE; what comes behind it
 * is STALE, what was there before is OK. */
static void a_request_that_ends_in_the_middle_ends_what_has_not_begun(void **state)
{
    (void)state;
    for (uint32_t resets = 0; resets < 2; resets++) {
        uint32_t seen = 0, last = 0;
        for (uint64_t ns = 0; last != 4; ns += 10000) {
            uint32_t ok = end_after(ns, resets != 0);
            assert_true(ok != 2 && ok >= last); /* the later it ends, the more was there */
            seen |= 1u << ok;
            last = ok;
        }
        assert_true((seen & 2) != 0); /* the first alone */
    }
}

/* A read fails while the host stores: the wait says so, and from then on nothing of the pass is
 * kept. */
static void a_failed_range_voids_the_pass_at_the_wait(void **state)
{
    (void)state;
    for (uint64_t way = 0; way < WAY_COUNT; way++) {
        struct rig rig;
        struct shot shot;
        spec_ticket ticket;
        open_way(&rig, way);
        struct prompt prompt = rig_prompt(5, 0, 0, 100),
                      start = {50, prompt.tokens, prompt.history};
        assert_int_equal(rig_fill(&rig, &start), SPEC_OK);
        spec_request request = rig_lookup(&rig, &prompt).request;
        assert_int_equal(rig_load(&rig, request, &prompt, 0, 50, 0), SPEC_OK);
        assert_int_equal(rig_store_layer(&rig, request, &prompt, 50, 50, 0, &ticket), SPEC_OK);
        assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
        sc_fault_arm(&rig.conn->fault, SC_FAULT_READ, 0);
        assert_int_equal(shot_submit(&rig, &shot, request, 50, 1), SPEC_OK);
        assert_int_equal(rig_store_layer(&rig, request, &prompt, 50, 50, 1, &ticket), SPEC_OK);
        assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
        assert_int_equal(shot_wait(&rig, &shot), SPEC_E_IO);
        assert_int_equal(shot.item.status, SPEC_E_IO);
        assert_int_equal(shot.item.failed_position, 0);
        rig_area_free(&shot.area);
        assert_int_equal(rig_store_layer(&rig, request, &prompt, 50, 50, 2, &ticket), SPEC_OK);
        assert_int_equal(rig_wait(&rig, ticket), SPEC_E_DROPPED);
        rig_release(&rig, request);
        assert_int_equal(rig_read(&rig, &prompt, NULL), 0);
        rig_end(&rig, &prompt);
    }
}

/* Nobody works at what was submitted: it is read ahead, and leaves others their part. */
static void expect_half_free(struct rig *rig)
{
    struct sc_store_stats stats = {.staging_bytes_used = 0};
    _Atomic uint32_t never = 0;
    for (uint32_t looks = 0; stats.staging_bytes_used == 0 && looks < 1200;
         looks++) { /* a minute */
        (void)sc_exec_wait(rig->conn->exec, &never, 0, sc_exec_now_ns(rig->conn->exec) + 50000000);
        sc_store_stats(rig->conn->store, &stats);
    }
    assert_true(stats.staging_bytes_used > 0);
    assert_true(stats.staging_bytes_used * 2 <= rig->conn->config.staging_bytes);
}

/* More is submitted than there are frames for, and who waits first comes last: one thread, or none,
 * has the frames of all in its way, and so has a load that is not submitted. */
static void frames_that_wait_for_their_turn_stop_nobody(void **state)
{
    (void)state;
    for (uint64_t way = 0; way < WAY_COUNT; way++) {
        struct rig rig;
        struct shot shots[8];
        spec_request requests[9];
        rig_begin_shape(&rig, WAYS[way].is_sim, WAYS[way].extra, 2, 8, 128, SPEC_DTYPE_F16);
        struct prompt prompt = rig_prompt(8, 0, 0, 1000);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        for (uint32_t round = 0; round < 2; round++) {
            for (uint64_t i = 0; i < 9; i++)
                requests[i] = rig_lookup(&rig, &prompt).request;
            for (uint64_t i = 0; i < 8; i++)
                assert_int_equal(shot_submit(&rig, &shots[i], requests[i], 1000, i % 2), SPEC_OK);
            if (way == 0)
                expect_half_free(&rig);
            assert_int_equal(rig_load(&rig, requests[8], &prompt, 0, 1000, 1), SPEC_OK);
            if (round == 1) /* its work may not have begun */
                rig_release(&rig, requests[5]);
            for (uint64_t i = 8; i-- > 0;) {
                spec_status status = shot_wait(&rig, &shots[i]);
                assert_true(status == SPEC_OK || (round == 1 && i == 5 && status == SPEC_E_STALE));
                assert_true(rig_area_is_right(&rig, &shots[i].area, &prompt, 0,
                                              status == SPEC_OK ? 1000 : 0, i % 2));
                rig_area_free(&shots[i].area);
            }
            for (uint64_t i = 0; i < 9; i++)
                if (round == 0 || i != 5)
                    rig_release(&rig, requests[i]);
        }
        rig_end(&rig, &prompt);
    }
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct worker {
    struct rig *rig;
    uint64_t number, delivered;
};

/* A pass: each layer submitted, stored and waited for; some requests go before their last wait. */
static void run_pass(struct worker *worker, const struct prompt *prompt, uint64_t random)
{
    struct rig *rig = worker->rig;
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    if (rig_try_lookup(rig, prompt, 0, RIG_MAX, &result) != SPEC_OK)
        return;
    uint64_t matched = result.matched_tokens, fresh = prompt->count - matched;
    uint32_t leaves_at = (uint32_t)(random % 5);
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        struct shot shot;
        spec_ticket stored;
        assert_int_equal(shot_submit(rig, &shot, result.request, matched, layer), SPEC_OK);
        if (fresh > 0) {
            assert_int_equal(
                rig_store_layer(rig, result.request, prompt, matched, fresh, layer, &stored),
                SPEC_OK);
            if (layer + 1 < rig->layers)
                (void)rig_wait(rig, stored);
            else
                sc_plugin_ticket_forget(rig->conn, stored);
        }
        if (layer == leaves_at)
            rig_release(rig, result.request);
        spec_status status = SPEC_E_TIMEOUT;
        while (status == SPEC_E_TIMEOUT)
            status = sc_plugin_submit_wait(rig->conn, shot.ticket,
                                           random >> 8 & 1 ? UINT64_MAX : 20000, NULL);
        assert_true(status == SPEC_OK || (status == SPEC_E_STALE && layer == leaves_at));
        if (status == SPEC_OK)
            assert_true(rig_area_is_right(rig, &shot.area, prompt, 0, matched, layer));
        worker->delivered += status == SPEC_OK && matched > 0;
        rig_area_free(&shot.area);
        if (layer == leaves_at)
            return;
    }
    rig_release(rig, result.request);
}

static void *work(void *user)
{
    struct worker *worker = user;
    uint64_t random = worker->number + 1;
    for (uint32_t round = 0; round < 40; round++) {
        random = rig_mix(random);
        struct prompt prompt = rig_prompt(1, random % 200, random >> 32 & 7, 220);
        run_pass(worker, &prompt, random >> 16);
        rig_prompt_free(&prompt);
    }
    return NULL;
}

static void eight_threads_submit_at_once(void **state)
{
    (void)state;
    for (uint64_t way = 1; way < WAY_COUNT; way++) {
        struct rig rig;
        struct worker workers[8];
        uint64_t delivered = 0;
        open_way(&rig, way);
        struct prompt shared = rig_prompt(1, 220, 0, 220); /* there before anybody looks */
        assert_int_equal(rig_fill(&rig, &shared), SPEC_OK);
        rig_prompt_free(&shared);
        for (uint64_t i = 0; i < 8; i++)
            workers[i] = (struct worker){.rig = &rig, .number = i};
        threads_run(work, workers, sizeof(workers[0]), 8);
        for (uint64_t i = 0; i < 8; i++)
            delivered += workers[i].delivered;
        assert_true(delivered > 0);
        rig_settle(&rig);
        assert_int_equal(atomic_load(&rig.conn->stats.requests_open), 0);
        rig_done(&rig);
    }
}

struct waiter {
    struct rig *rig;
    spec_ticket ticket;
    spec_status status;
};

static void *wait_on(void *user)
{
    struct waiter *waiter = user;
    waiter->status = sc_plugin_submit_wait(waiter->rig->conn, waiter->ticket, UINT64_MAX, NULL);
    return NULL;
}

/* One has it, to the others it is one that was reported; nobody waits for what is over. */
static void of_many_waiters_one_has_it_and_all_return(void **state)
{
    (void)state;
    for (uint64_t way = 1; way < WAY_COUNT; way++) {
        struct rig rig;
        open_way(&rig, way);
        struct prompt prompt = rig_prompt(6, 0, 0, 150);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        spec_request request = rig_lookup(&rig, &prompt).request;
        for (uint32_t round = 0; round < 200; round++) {
            struct shot shot;
            struct waiter waiters[4];
            uint64_t reported = 0;
            assert_int_equal(shot_submit(&rig, &shot, request, 150, round % rig.layers), SPEC_OK);
            for (uint64_t i = 0; i < 4; i++)
                waiters[i] = (struct waiter){.rig = &rig, .ticket = shot.ticket};
            threads_run(wait_on, waiters, sizeof(waiters[0]), 4);
            for (uint64_t i = 0; i < 4; i++) {
                assert_true(waiters[i].status == SPEC_OK || waiters[i].status == SPEC_E_INVALID);
                reported += waiters[i].status == SPEC_OK;
            }
            assert_int_equal(reported, 1);
            rig_area_free(&shot.area);
        }
        rig_release(&rig, request);
        rig_end(&rig, &prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(submissions_deliver_and_allocate_nothing),
        cmocka_unit_test(more_than_there_is_room_for_is_busy),
        cmocka_unit_test(what_is_wrong_is_told_before_what_is_busy),
        cmocka_unit_test(a_released_requests_slot_is_used_again_after_its_submission),
        cmocka_unit_test(what_nobody_wants_any_more_is_not_delivered),
        cmocka_unit_test(a_request_that_ends_in_the_middle_ends_what_has_not_begun),
        cmocka_unit_test(a_failed_range_voids_the_pass_at_the_wait),
        cmocka_unit_test(frames_that_wait_for_their_turn_stop_nobody),
        cmocka_unit_test(eight_threads_submit_at_once),
        cmocka_unit_test(of_many_waiters_one_has_it_and_all_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
