/* Refining a layered delivery, in place and in whatever order: rows that became exact are as
 * stored, the others as their codes decode, the set the best by the delivery's queries. Through the
 * calls of the ABI, on the simulated disk. */
#include "tests/unit/plugin/layered_fixture.h"

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
        "\"preset\": \"layered\"", "\"preset\": \"layered\", \"select\": {\"dense_layers\": 1}",
        "\"preset\": \"layered\", \"select\": {\"metric\": \"random\"}",
        "\"preset\": \"layered\", \"layered\": {\"keep_first\": 20}",
        ("\"preset\": \"layered\", \"select\": {\"identify\": \"static\"}, \"prefetch\": "
         "{\"predictor\": \"none\"}")};
    static const uint32_t PPM[] = {0, 50000, 1000000};
    uint32_t taken = 0, refused = 0;
    for (uint32_t e = 0; e < 5; e++) {
        struct world world;
        world_open(&world, EXTRA[e], 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        wait_for_codes(&world);
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
        rig_release(&world.rig, request);
        world_done(&world);
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
                       "\"preset\": \"layered\", \"store\": {\"layout\": \"%s\"}", LAYOUTS[way]);
        world_open(&world, extra, 3, 2, 16, SPEC_DTYPE_F16, 300, 3);
        wait_for_codes(&world);
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
    world_open(&world,
               "\"preset\": \"layered\", \"max_requests\": 2, \"layered\": "
               "{\"refine_bytes\": \"12KiB\"}",
               2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    wait_for_codes(&world);
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
    rig_release(&world.rig, request);
    world_done(&world);
}

/* Whole layers take a place of a few bytes each. A delivery of 200 rows fits then neither behind
 * nor before what they took, but alone in the ring. */
static void a_delivery_that_fits_alone_has_room(void **state)
{
    (void)state;
    for (uint32_t wholes = 0; wholes < 32; wholes++) {
        struct world world;
        struct shot shot;
        world_open(&world,
                   "\"preset\": \"layered\", \"max_requests\": 2, \"layered\": "
                   "{\"refine_bytes\": \"8KiB\"}",
                   2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        wait_for_codes(&world);
        spec_request request = look(&world, 0);
        for (uint32_t i = 0; i < wholes; i++) {
            (void)fire_first(&world, &shot, request, i % 4, 1000000, 0);
            shot_free(&shot);
        }
        spec_ticket ticket = fire_first(&world, &shot, request, 1, 100000, 0);
        assert_int_equal(refine(&world, &shot, ticket, 200000), SPEC_OK);
        assert_int_equal(shot.item.exact_rows, 40);
        assert_rows(&world, &shot, 0, 4, 2);
        shot_free(&shot);
        rig_release(&world.rig, request);
        world_done(&world);
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
    world_open(&world, "\"preset\": \"layered\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    wait_for_codes(&world);
    spec_request request = look(&world, 0);
    for (uint32_t i = 0; i < 4; i++) {
        shot_make(&shots[i], &world, request, i, 0, i == 3 ? 1000000 : 50000);
        items[i] = shots[i].item;
    }
    assert_int_equal(sc_plugin_submit(world.rig.conn, items, 4, &ticket, NULL), SPEC_OK);
    assert_int_equal(sc_plugin_submit_wait(world.rig.conn, ticket, UINT64_MAX, NULL), SPEC_OK);
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
    shot_free(&anew);
    rig_release(&world.rig, request);
    world_done(&world);
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct refiner {
    struct world *world;
    pthread_t thread;
};

static void *refine_all(void *user)
{
    struct world *world = ((struct refiner *)user)->world;
    for (uint32_t round = 0; round < 20; round++) {
        struct spec_lookup_result result;
        assert_int_equal(rig_try_lookup(&world->rig, &world->prompt, 0, RIG_MAX, &result), SPEC_OK);
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct shot shot;
            spec_ticket ticket =
                fire_first(world, &shot, result.request, layer, 100000, round % 2 == 0 ? 1 : 0);
            assert_int_equal(refine(world, &shot, ticket, 400000), SPEC_OK);
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
    rig_init(&world.rig, false, "\"preset\": \"layered\"");
    rig_shape(&world.rig, 4, 2, 16, SPEC_DTYPE_F16);
    world.rig.query_group = 2;
    world.prompt = rig_prompt(7, 0, 0, 200 + FRESH_ROWS);
    rig_open(&world.rig);
    world_store(&world);
    wait_for_codes(&world);
    for (uint32_t i = 0; i < 4; i++) {
        refiners[i].world = &world;
        assert_int_equal(pthread_create(&refiners[i].thread, NULL, refine_all, &refiners[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(pthread_join(refiners[i].thread, NULL), 0);
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
        cmocka_unit_test(four_threads_refine_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
