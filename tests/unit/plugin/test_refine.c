/* Refining a layered delivery, in place and in whatever order: rows that became exact are as
 * stored, the others as their codes decode, the set the best by the delivery's queries. Through the
 * calls of the ABI, on the simulated disk. */
#include "plugin/select/select.h"
#include "tests/unit/plugin/layered_fixture.h"
#include "tests/unit/threads.h"

/* The n-th way in which queries, or new keys, are none; false: there is no such way. */
static bool spoil(struct shot *shot, uint32_t n)
{
    struct spec_queries *q = &shot->pass.q;
    struct spec_memory *fresh = &shot->pass.fresh.memory;
    switch (n) {
    case 0:
        return true; /* as they are */
    case 1:
        shot->item.queries = NULL;
        return true;
    case 2:
        q->heads = SPEC_QUERIES_PROBE;
        return true;
    case 3:
        q->data = NULL;
        return true;
    case 4:
        q->device = SPEC_DEVICE_CUDA;
        return true;
    case 5:
        q->first_position = 0;
        return true;
    case 6:
        q->byte_count = 1;
        return true;
    case 7:
        fresh->dtype = 77;
        return true;
    case 8:
        fresh->k_bytes = 1;
        return true;
    case 9:
        q->struct_size = 1;
        return true;
    case 10:
        fresh->struct_size = 1;
        return true;
    default:
        return false;
    }
}

/* Whatever an item's queries are, submit takes it where get_important does, and only there. */
static void submit_takes_what_get_important_takes(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {
        "\"preset\": \"layered-uniform\"",
        "\"preset\": \"layered-uniform\", \"select\": {\"dense_layers\": 1}",
        "\"preset\": \"layered-uniform\", \"select\": {\"metric\": \"random\"}",
        "\"preset\": \"layered-uniform\", \"layered\": {\"keep_first\": 20}",
        ("\"preset\": \"layered-uniform\", \"select\": {\"identify\": \"static\"}, \"prefetch\": "
         "{\"predictor\": \"none\"}")};
    static const uint32_t PPM[] = {0, 50000, 1000000};
    uint32_t taken = 0, refused = 0;
    for (uint32_t e = 0; e < 5; e++) {
        struct world world;
        world_open_quantised(&world, EXTRA[e], 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        spec_request request = look(&world, 0);
        for (uint32_t p = 0; p < 3; p++)
            for (uint32_t n = 0;; n++) {
                struct shot shot;
                spec_ticket ticket = 0;
                shot_make(&shot, &world, request, 0, 0, PPM[p]);
                bool is_way = spoil(&shot, n);
                spec_status status = fire(&world, &shot);
                spec_status other = sc_plugin_submit(world.rig.conn, &shot.item, 1, &ticket, NULL);
                if (status != other)
                    fail_msg("%s, exact_ppm %u, way %u: get_important %d, submit %d", EXTRA[e],
                             PPM[p], n, (int)status, (int)other);
                if (other == SPEC_OK) {
                    assert_int_equal(
                        sc_plugin_submit_wait(world.rig.conn, ticket, UINT64_MAX, NULL), SPEC_OK);
                    assert_rows(&world, &shot, 0, 4, 2);
                    assert_int_equal(refine(&world, &shot, ticket, 1000000), SPEC_OK);
                    assert_int_equal(shot.item.exact_rows, 200);
                    assert_rows(&world, &shot, 0, 4, 2);
                }
                taken += status == SPEC_OK;
                refused += status != SPEC_OK;
                shot_free(&shot);
                if (!is_way)
                    break;
            }
        world_leave(&world, request);
    }
    assert_true(taken > 60 && refused > 20);
}

/* Every layer early, then all of them a second time, and a third. */
static void all_layers_are_refined_later_and_nothing_is_allocated(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"paired", "split"};
    for (uint32_t way = 0; way < 2; way++) {
        struct world world;
        char extra[128];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"%s\"}",
                       LAYOUTS[way]);
        world_open_quantised(&world, extra, 3, 2, 16, SPEC_DTYPE_F16, 300, 3);
        struct sc_alloc *alloc = &world.rig.conn->alloc;
        struct shot shots[4];
        spec_ticket tickets[4];
        spec_request request = look(&world, 0);
        for (uint32_t layer = 0; layer < 4; layer++) {
            (void)fire_first(&world, &shots[layer], request, layer, 300000, 0);
            shot_free(&shots[layer]);
        }
        rig_release(&world.rig, request);
        rig_background(&world.rig); /* the first averages make their place in the store's index */
        sc_alloc_seal(alloc);
        request = look(&world, 0);
        for (uint32_t layer = 0; layer < 4; layer++) {
            tickets[layer] = fire_first(&world, &shots[layer], request, layer, 300000, 1);
            assert_int_equal(shots[layer].item.result_flags, SPEC_IMPORTANT_PARTIAL);
            assert_true(shots[layer].item.exact_rows < 90);
        }
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct shot *shot = &shots[layer];
            uint64_t before = shot->item.exact_rows;
            assert_int_equal(refine(&world, shot, tickets[layer], 300000), SPEC_OK);
            assert_int_equal(shot->item.result_flags, 0);
            assert_int_equal(shot->item.exact_rows, 90);
            assert_int_equal(shot->item.tier_rows[SPEC_TIER_DISK], 90 - before);
            assert_rows(&world, shot, 0, 4, 2);
            (void)set_is_the_best(&world, shot, 0, 4);
        }
        for (uint32_t layer = 0; layer < 4; layer++) {
            assert_int_equal(refine(&world, &shots[layer], tickets[layer], 1000000), SPEC_OK);
            assert_int_equal(shots[layer].item.exact_rows, 300);
            assert_rows(&world, &shots[layer], 0, 4, 2);
            assert_int_equal(shots[layer].item.provenance.kind, SPEC_PROVENANCE_EXACT);
            shot_free(&shots[layer]);
        }
        rig_release(&world.rig, request);
        sc_alloc_unseal(alloc);
        assert_int_equal(atomic_load(&alloc->sealed_refusals), 0);
        assert_int_equal(atomic_load(&world.rig.conn->stats.refined_layers), 8);
        world_done(&world);
    }
}

/* Room for two deliveries of 200 rows, and less than a third. */
static void the_oldest_delivery_makes_room(void **state)
{
    (void)state;
    struct world world;
    struct shot shots[3];
    spec_ticket tickets[3];
    world_open_quantised(&world,
                         "\"preset\": \"layered-uniform\", \"max_requests\": 2, \"layered\": "
                         "{\"refine_bytes\": \"12KiB\"}",
                         2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    spec_request request = look(&world, 0);
    for (uint32_t i = 0; i < 30; i++) {
        struct shot *shot = &shots[i % 3];
        if (i >= 3)
            shot_free(shot);
        tickets[i % 3] = fire_first(&world, shot, request, i % 4, 100000, 0);
        if (i < 2)
            continue;
        for (uint32_t back = 0; back < 3; back++) {
            struct shot *kept = &shots[(i - back) % 3];
            assert_int_equal(refine(&world, kept, tickets[(i - back) % 3], 200000 + i),
                             back < 2 ? SPEC_OK : SPEC_E_STALE);
            assert_int_equal(exact_count(kept), back < 2 ? 41 : 20 + (i > 2) * 21);
            kept->item.exact_rows = exact_count(kept);
            assert_rows(&world, kept, 0, 4, 2);
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        shot_free(&shots[i]);
    world_leave(&world, request);
}

/* Whole layers take a place of a few bytes each. A delivery of 200 rows fits then neither behind
 * nor before what they took, but alone in the ring. */
static void a_delivery_that_fits_alone_has_room(void **state)
{
    (void)state;
    for (uint32_t wholes = 0; wholes < 32; wholes++) {
        struct world world;
        struct shot shot;
        world_open_quantised(&world,
                             "\"preset\": \"layered-uniform\", \"max_requests\": 2, \"layered\": "
                             "{\"refine_bytes\": \"8KiB\"}",
                             2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        spec_request request = look(&world, 0);
        for (uint32_t i = 0; i < wholes; i++) {
            (void)fire_first(&world, &shot, request, i % 4, 1000000, 0);
            shot_free(&shot);
        }
        spec_ticket ticket = fire_first(&world, &shot, request, 1, 100000, 0);
        assert_int_equal(refine(&world, &shot, ticket, 200000), SPEC_OK);
        assert_int_equal(shot.item.exact_rows, 40);
        assert_rows(&world, &shot, 0, 4, 2);
        shot_end(&shot, &world, request);
    }
}

/* Items of one call, one request: two refine, one delivers a layer anew that the last would. */
static void items_of_one_call_are_refined_beside_others(void **state)
{
    (void)state;
    struct world world;
    struct shot shots[4];
    struct spec_important items[4];
    spec_ticket ticket;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16, 200,
                         3);
    spec_request request = look(&world, 0);
    for (uint32_t i = 0; i < 4; i++) {
        shot_make(&shots[i], &world, request, i, 0, i == 3 ? 1000000 : 50000);
        items[i] = shots[i].item;
    }
    ticket = rig_submit_whole(&world.rig, items, 4);
    struct shot anew;
    shot_make(&anew, &world, request, 2, 0, 70000);
    for (uint32_t i = 0; i < 4; i++) {
        shots[i].item = items[i];
        aim(&shots[i], ticket, 500000);
        items[i] = shots[i].item;
    }
    struct spec_important call[5] = {items[0], anew.item, items[1], items[2], items[3]};
    assert_int_equal(sc_plugin_get_important(world.rig.conn, call, 5, NULL), SPEC_E_STALE);
    anew.item = call[1];
    assert_rows(&world, &anew, 0, 4, 2);
    for (uint32_t i = 0; i < 4; i++) {
        shots[i].item = call[i == 0 ? 0 : i + 1];
        assert_int_equal(shots[i].item.status, i == 2 ? SPEC_E_STALE : SPEC_OK);
        shots[i].item.row_count = i == 2 ? 200 : shots[i].item.row_count;
        shots[i].item.next_position = 200;
        assert_int_equal(exact_count(&shots[i]), i == 2 ? 10 : i == 3 ? 200 : 100);
        shots[i].item.exact_rows = exact_count(&shots[i]);
        assert_rows(&world, &shots[i], 0, 4, 2);
        shot_free(&shots[i]);
    }
    shot_end(&anew, &world, request);
}

/* ---- Ahead ---------------------------------------------------------------------------------- */

/* The queries are there now. */
static void aim_at(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm)
{
    aim(shot, ticket, exact_ppm);
    shot->item.flags = 0;
    shot->item.queries = &shot->pass.q;
    shot->item.new_keys = &shot->pass.fresh.memory;
}

static void assert_same(const struct shot *shot, const struct shot *other)
{
    assert_int_equal(shot->item.exact_rows, other->item.exact_rows);
    assert_int_equal(shot->item.result_flags, other->item.result_flags);
    assert_memory_equal(&shot->item.provenance, &other->item.provenance,
                        sizeof(shot->item.provenance));
    assert_memory_equal(shot->exact, other->exact, sizeof(shot->exact));
    assert_memory_equal(shot->positions, other->positions, sizeof(shot->positions));
    assert_memory_equal(shot->area.bytes, other->area.bytes, shot->area.part_bytes + 2 * RIG_GUARD);
    assert_memory_equal(shot->area.memory.v_base, other->area.memory.v_base, shot->area.part_bytes);
}

/* Codes first, while nobody knows the queries, then the rows that these choose: as one call. */
static void ahead_and_queries_later_are_one_call(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {
        "\"preset\": \"layered-uniform\"",
        "\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"split\"}",
        "\"preset\": \"layered-uniform\", \"layered\": {\"keep_first\": 3, \"keep_last\": 4}"};
    static const uint32_t PPM[] = {100000, 1000000, 0, 300000};
    for (uint32_t e = 0; e < 3; e++) {
        struct world world;
        uint64_t kept = e == 2 ? 7 : 0;
        world_open_quantised(&world, EXTRA[e], 3, 2, 16, SPEC_DTYPE_F16, 300, 3);
        struct sc_alloc *alloc = &world.rig.conn->alloc;
        for (uint32_t round = 0; round < 2; round++) {
            spec_request request = look(&world, 0), other = look(&world, 0);
            for (uint32_t layer = 0; layer < 4; layer++) {
                struct shot shot, once;
                uint64_t rows = ((uint64_t)PPM[layer] * 300 + 999999) / 1000000;
                spec_ticket ticket = fire_ahead(&world, &shot, request, layer, 100000);
                assert_int_equal(shot.item.exact_rows, kept);
                assert_int_equal(shot.item.result_flags, 0);
                assert_rows(&world, &shot, 0, 4, 2);
                uint64_t codes = shot.item.wanted_bytes;
                aim_at(&shot, ticket, PPM[layer]);
                assert_int_equal(fire(&world, &shot), SPEC_OK);
                assert_int_equal(shot.item.exact_rows, rows > kept ? rows : kept);
                assert_rows(&world, &shot, 0, 4, 2);
                shot_make(&once, &world, other, layer, 0, PPM[layer]);
                assert_int_equal(fire(&world, &once), SPEC_OK);
                if (rows > 0) /* of none, those that are kept are none */
                    assert_same(&shot, &once);
                if (rows > 0 && kept == 0)
                    (void)set_is_the_best(&world, &shot, 0, 4);
                if (rows > 0 && rows < 300) /* codes count once */
                    assert_int_equal(shot.item.wanted_bytes + codes, once.item.wanted_bytes);
                if (rows > 0 && rows < 300) /* it has been chosen: queries are needed no more */
                    aim(&shot, ticket, 500000);
                else
                    aim_at(&shot, ticket, 500000);
                assert_int_equal(fire(&world, &shot), SPEC_OK);
                assert_int_equal(shot.item.exact_rows, rows > 150 ? rows : 150);
                assert_rows(&world, &shot, 0, 4, 2);
                shot_free(&once);
                shot_free(&shot);
            }
            rig_release(&world.rig, request);
            rig_release(&world.rig, other);
            if (round == 0) { /* the first averages make their place in the store's index */
                rig_background(&world.rig);
                sc_alloc_seal(alloc);
            }
        }
        sc_alloc_unseal(alloc);
        assert_int_equal(atomic_load(&alloc->sealed_refusals), 0);
        world_done(&world);
    }
}

/* A guess of the queries brings rows early. Those that the queries name come beside them, and what
 * averages are taught is the queries' alone. */
static void a_prediction_brings_rows_and_decides_nothing(void **state)
{
    (void)state;
    struct world world;
    struct shot shot, once;
    spec_ticket ticket;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16, 300,
                         3);
    for (uint32_t way = 0; way < 2; way++) { /* the guess is right, or another's */
        spec_request request = look(&world, 0);
        shot_make(&shot, &world, request, 1, 0, 100000);
        shot.item.flags = SPEC_ITEM_AHEAD;
        if (way == 1)
            negate(&shot);
        ticket = rig_submit_whole(&world.rig, &shot.item, 1);
        assert_int_equal(shot.item.exact_rows, 30);
        assert_rows(&world, &shot, 0, 4, 2);
        if (way == 1)
            negate(&shot);
        shot_make(&once, &world, look(&world, 0), 1, 0, 100000);
        assert_int_equal(fire(&world, &once), SPEC_OK);
        aim_at(&shot, ticket, 100000);
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        assert_rows(&world, &shot, 0, 4, 2);
        for (uint32_t w = 0; w < (ROWS_MAX + 63) / 64; w++)
            assert_int_equal(shot.exact[w] & once.exact[w], once.exact[w]);
        if (way == 0)
            assert_same(&shot, &once);
        else
            assert_true(shot.item.exact_rows > 33);
        rig_release(&world.rig, once.item.request);
        rig_release(&world.rig, request);
        shot_free(&once);
        shot_free(&shot);
    }
    world_done(&world);
}

/* An item's queries are looked at where a delivery ahead waits for them, exactly as get_important
 * looks at them, and not any more when it has had them. */
static void queries_of_a_choice_are_checked(void **state)
{
    (void)state;
    struct world world;
    uint32_t taken = 0, refused = 0;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16, 200,
                         3);
    spec_request request = look(&world, 0), other = look(&world, 0);
    static const uint32_t PPM[] = {0, 50000, 1000000};
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t n = 0;; n++) {
            struct shot shot, once;
            spec_ticket ticket = fire_ahead(&world, &shot, request, 0, 100000);
            aim_at(&shot, ticket, PPM[p]);
            shot_make(&once, &world, other, 0, 0, PPM[p]);
            bool is_way = spoil(&shot, n);
            (void)spoil(&once, n);
            spec_status status = fire(&world, &shot);
            assert_int_equal(status, fire(&world, &once));
            taken += status == SPEC_OK;
            refused += status != SPEC_OK;
            if (status == SPEC_OK)
                assert_same(&shot, &once);
            shot_free(&once);
            shot_free(&shot);
            if (!is_way)
                break;
        }
    assert_true(taken > 10 && refused > 8);
    rig_release(&world.rig, request);
    world_leave(&world, other);
}

/* The deadline came before the choice: the next item chooses, by its own queries. */
static void what_did_not_choose_leaves_it_to_the_next(void **state)
{
    (void)state;
    struct world world;
    struct shot shot, once;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16, 300,
                         3);
    spec_request request = look(&world, 0), other = look(&world, 0);
    spec_ticket ticket = fire_ahead(&world, &shot, request, 0, 100000);
    assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &request, 1, 1, NULL), SPEC_OK);
    rig_pass_ns(&world.rig, 1000000000); /* layer 3 has the place of layer 0's codes */
    aim_at(&shot, ticket, 100000);
    negate(&shot);
    shot.item.deadline_ns = 1;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.result_flags, SPEC_IMPORTANT_PARTIAL);
    assert_int_equal(shot.item.exact_rows, 0);
    assert_rows(&world, &shot, 0, 4, 2);
    negate(&shot);
    aim_at(&shot, ticket, 100000);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    shot_make(&once, &world, other, 0, 0, 100000);
    assert_int_equal(fire(&world, &once), SPEC_OK);
    assert_same(&shot, &once);
    assert_true(shot.item.wanted_bytes >= once.item.wanted_bytes); /* codes were read again */
    shot_free(&once);
    shot_release(&shot, &world, request);
    world_leave(&world, other);
}

/* Of a choice for which there is no memory, all rows come exactly: nothing else is known. */
static void without_memory_for_codes_a_choice_is_every_row(void **state)
{
    (void)state;
    uint64_t used = 0;
    for (uint32_t round = 0; round < 2; round++) {
        struct world world;
        struct shot shot;
        char extra[128];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"layered-uniform\", \"select\": {\"selector_bytes\": %lu}",
                       round == 0 ? UINT64_C(1) << 20 : used);
        world_open_quantised(&world, extra, 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        spec_request request = look(&world, 0);
        spec_ticket ticket = fire_ahead(&world, &shot, request, 0, 100000);
        sc_plugin_selectors_end(world.rig.conn, sc_plugin_request_find(world.rig.conn, request));
        rig_landed(&world.rig);
        spec_request other = look(&world, 0);
        assert_int_equal(sc_plugin_begin_layer(world.rig.conn, &other, 1, 0, NULL), SPEC_OK);
        used = sc_store_selector_bytes_used(world.rig.conn->store);
        aim_at(&shot, ticket, 100000);
        if (round == 1) { /* of which few are read: nothing was chosen, and that is not forgotten */
            shot.item.budget_bytes = 5 * 2 * rig_part_bytes(&world.rig);
            assert_int_equal(fire(&world, &shot), SPEC_OK);
            assert_int_equal(shot.item.result_flags, SPEC_IMPORTANT_PARTIAL);
            assert_int_equal(shot.item.exact_rows, 5);
            assert_rows(&world, &shot, 0, 4, 2);
            shot.item.budget_bytes = 0;
        }
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        assert_int_equal(shot.item.exact_rows, round == 0 ? 20 : 200);
        assert_int_equal(shot.item.provenance.kind,
                         round == 0 ? SPEC_PROVENANCE_LOSSY : SPEC_PROVENANCE_EXACT);
        assert_rows(&world, &shot, 0, 4, 2);
        shot_release(&shot, &world, request);
        world_leave(&world, other);
    }
}

/* What is told ahead begins the codes of the layers behind it, in the memory of the layer below. */
static void codes_of_two_more_layers_follow(void **state)
{
    (void)state;
    struct world world;
    struct shot shot;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16, 200,
                         3);
    spec_request handle = look(&world, 0);
    const struct sc_plugin_request *request = sc_plugin_request_find(world.rig.conn, handle);
    shot_make(&shot, &world, handle, 0, 0, 100000);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    shot_free(&shot);
    (void)fire_ahead(&world, &shot, handle, 1, 100000);
    assert_int_equal(request->selectors[1].layer, 1);
    assert_int_equal(request->selectors[2].layer, 2);
    assert_int_equal(request->selectors[0].layer, 3);
    shot_end(&shot, &world, handle);
}

static spec_status submit(struct world *world, struct shot *shot)
{
    spec_ticket ticket;
    spec_status status = sc_plugin_submit(world->rig.conn, &shot->item, 1, &ticket, NULL);
    if (status != SPEC_OK)
        return status;
    return sc_plugin_submit_wait(world->rig.conn, ticket, UINT64_MAX, NULL);
}

static void what_cannot_be_ahead_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        spec_status expected;
    } CASES[] = {
        {"\"preset\": \"layered-uniform\"", SPEC_OK},
        {"\"preset\": \"layered-uniform\", \"layered\": {\"refine_bytes\": 0}", SPEC_E_BUSY},
        {"\"preset\": \"layered-uniform\", \"max_requests\": 2, \"layered\": {\"refine_bytes\": "
         "\"4KiB\"}",
         SPEC_E_BUSY},
        {"\"preset\": \"hinted\"", SPEC_E_UNSUPPORTED},
        {"\"preset\": \"as-like\"", SPEC_E_UNSUPPORTED},
    };
    for (uint32_t i = 0; i < 5; i++) {
        struct world world;
        struct shot shot;
        world_open_quantised(&world, CASES[i].extra, 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        spec_request request = look(&world, 0);
        shot_make(&shot, &world, request, 1, 0, 100000);
        shot.item.flags = SPEC_ITEM_AHEAD;
        assert_int_equal(fire(&world, &shot), SPEC_E_INVALID); /* who waits has its queries */
        assert_int_equal(submit(&world, &shot), CASES[i].expected);
        shot.item.flags = SPEC_ITEM_AHEAD | 2;
        assert_int_equal(submit(&world, &shot), SPEC_E_INVALID);
        shot.item.flags = SPEC_ITEM_AHEAD;
        shot.item.refine_of = 1;
        assert_int_equal(submit(&world, &shot), SPEC_E_INVALID);
        shot_end(&shot, &world, request);
    }
}

/* What is stored after a pass says what was computed on, which is not what came ahead of it. */
static void what_came_ahead_is_not_computed_on(void **state)
{
    (void)state;
    struct world world;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 2, 2, 16, SPEC_DTYPE_F16, 128,
                         3);
    spec_request request = look(&world, 0);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct shot shot;
        spec_ticket ahead = fire_ahead(&world, &shot, request, layer, 100000);
        assert_int_equal(shot.item.provenance.exact_ppm, 0);
        aim_at(&shot, ahead, 100000);
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        ticket = store_fresh(&world, request, layer);
        shot_free(&shot);
    }
    assert_int_equal(rig_wait(&world.rig, ticket), SPEC_OK);
    rig_release(&world.rig, request);
    wait_for_quant(&world);
    expect_lossy(&world, 101562);
    world_done(&world);
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct refiner {
    struct world *world;
};

/* As fire_first. Codes are waited for a second longer than the deadline; where the machine was
 * slower than that, they come with a later try. */
static spec_ticket fire_until_first(struct world *world, struct shot *shot, spec_request request,
                                    uint32_t layer, uint64_t deadline_ns)
{
    spec_ticket ticket;
    spec_status status;
    shot_make(shot, world, request, layer, 0, 100000);
    shot->item.deadline_ns = deadline_ns;
    do {
        assert_int_equal(sc_plugin_submit(world->rig.conn, &shot->item, 1, &ticket, NULL), SPEC_OK);
        status = sc_plugin_submit_wait(world->rig.conn, ticket, UINT64_MAX, NULL);
    } while (deadline_ns > 0 && status == SPEC_E_TIMEOUT);
    assert_int_equal(status, SPEC_OK);
    return ticket;
}

static void *refine_all(void *user)
{
    struct world *world = ((struct refiner *)user)->world;
    for (uint32_t round = 0; round < 20; round++) {
        struct spec_lookup_result result = rig_lookup(&world->rig, &world->prompt);
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct shot shot;
            spec_ticket ticket;
            if (round % 3 == 2) {
                ticket = fire_ahead(world, &shot, result.request, layer, 100000);
                aim_at(&shot, ticket, 400000);
                assert_int_equal(fire(world, &shot), SPEC_OK);
            } else {
                ticket = fire_until_first(world, &shot, result.request, layer, round % 3);
                assert_int_equal(refine(world, &shot, ticket, 400000), SPEC_OK);
            }
            assert_int_equal(exact_count(&shot), 80);
            assert_int_equal(refine(world, &shot, ticket, 1000000), SPEC_OK);
            struct area area = world_area(world, 0, world->matched, layer);
            assert_memory_equal(shot.area.bytes, area.bytes, shot.area.part_bytes + 2 * RIG_GUARD);
            assert_memory_equal(shot.area.memory.v_base, area.memory.v_base, area.part_bytes);
            rig_area_free(&area);
            shot_free(&shot);
        }
        rig_release(&world->rig, result.request);
    }
    return NULL;
}

static void four_threads_refine_at_once(void **state)
{
    (void)state;
    struct world world = {.matched = 200, .group = 2, .agree = 3};
    struct refiner refiners[4];
    world_make(&world, false, "\"preset\": \"layered-uniform\"", 4, 2, 16, 7);
    world_open_stored(&world);
    wait_for_quant(&world);
    for (uint32_t i = 0; i < 4; i++)
        refiners[i].world = &world;
    threads_run(refine_all, refiners, sizeof(refiners[0]), 4);
    world_done(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(submit_takes_what_get_important_takes),
        cmocka_unit_test(all_layers_are_refined_later_and_nothing_is_allocated),
        cmocka_unit_test(the_oldest_delivery_makes_room),
        cmocka_unit_test(a_delivery_that_fits_alone_has_room),
        cmocka_unit_test(items_of_one_call_are_refined_beside_others),
        cmocka_unit_test(ahead_and_queries_later_are_one_call),
        cmocka_unit_test(a_prediction_brings_rows_and_decides_nothing),
        cmocka_unit_test(queries_of_a_choice_are_checked),
        cmocka_unit_test(what_did_not_choose_leaves_it_to_the_next),
        cmocka_unit_test(without_memory_for_codes_a_choice_is_every_row),
        cmocka_unit_test(codes_of_two_more_layers_follow),
        cmocka_unit_test(what_cannot_be_ahead_is_refused),
        cmocka_unit_test(what_came_ahead_is_not_computed_on),
        cmocka_unit_test(four_threads_refine_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
