/* Loads to a device are the host's loads: every byte of a destination there is what one in plain
 * memory has, in every policy of the fake driver (tests/cuda/fake/fake.h) and by kernels that are
 * emulated.
 *
 *   the host's stream   poison over the destination | the load | a copy back, which is compared
 *
 * Holds: what comes before a load on the host's stream is not written over it, what comes behind
 * sees all of it; guards stay. */
#include "tests/unit/plugin/device_fixture.h"

#define MATCHED 130u
#define LAYERS  4u

static struct device_host host;

static void host_open(void)
{
    device_host_open(&host, 0);
}

static void host_close(void)
{
    device_host_end(&host, "loads");
}

static uint64_t area_bytes(const struct area *area)
{
    return 3 * RIG_GUARD + 2 * area->part_bytes;
}

/* ---- Both ----------------------------------------------------------------------------------- */

struct way {
    const char *extra;
    uint32_t given;
    bool wider; /* the destination has float32 */
};

static const struct way WAYS[] = {
    {"\"preset\": \"as-like\"", 0, false},
    {"\"preset\": \"as-like\", \"store\": {\"layout\": \"split\"}", 0, true},
    {"\"preset\": \"impress-itf\", \"select\": {\"alpha_milli\": 1000}", SPEC_SELECT_BUDGET, false},
    {"\"preset\": \"hinted\"", SPEC_SELECT_BUDGET, false},
    {"\"preset\": \"layered-uniform\"", SPEC_SELECT_EXACT, false},
    {"\"preset\": \"layered-uniform\", \"store\": {\"layout\": \"split\"}, \"layered\": "
     "{\"bits_k\": "
     "5, \"bits_v\": 3}",
     SPEC_SELECT_EXACT, true},
    {"\"preset\": \"layered\"", SPEC_SELECT_EXACT, false},
    {"\"preset\": \"layered\", \"layered\": {\"bits_k\": 2.75, \"bits_v\": 2.5}", SPEC_SELECT_EXACT,
     true},
    {"\"preset\": \"int8\"", SPEC_SELECT_EXACT, false},
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct rig_rope HALF = {.kind = SPEC_ROPE_HALF, .theta = 10000};

static void way_open(struct world *world, const struct way *way)
{
    *world = (struct world){.matched = MATCHED, .group = 2, .agree = 8, .is_uneven = true};
    world_make(world, true, way->extra, LAYERS, 3, 16, MATCHED + 3);
    world->rig.rope = HALF;
    world_open_stored(world);
    wait_for_quant(world);
}

/* How tokens lie: as they come; the other way round in blocks, some of them nowhere. */
static void memory_dress(struct spec_memory *memory, uint32_t dress, int64_t slots[MATCHED])
{
    if (dress == 0)
        return;
    for (uint32_t j = 0; j < MATCHED; j++)
        slots[j] = dress == 2 && j % 7 == 3 ? -1 : (int64_t)(MATCHED - 1 - j);
    memory->slots = slots;
    memory->slot_count = MATCHED;
    memory->block_tokens = 16;
    memory->block_stride_bytes = 16 * memory->token_stride_bytes;
}

static void way_shot(struct shot *shot, const struct world *world, const struct way *way,
                     spec_request request, uint32_t layer, uint32_t dress, int64_t slots[MATCHED])
{
    shot_make(shot, world, request, layer, 0, 100000);
    shot->select.given = way->given;
    shot->select.retain_ppm = 200000;
    if (way->wider) {
        struct rig wider = world->rig;
        wider.dtype = SPEC_DTYPE_F32;
        rig_area_free(&shot->area);
        shot->area = rig_area(&wider, MATCHED);
    }
    memory_dress(&shot->area.memory, dress, slots);
}

static void assert_same(const struct shot *plain, const struct shot *there)
{
    const struct spec_important *a = &plain->item, *b = &there->item;
    assert_memory_equal(plain->area.bytes, there->area.bytes, area_bytes(&plain->area));
    assert_memory_equal(plain->positions, there->positions, sizeof(plain->positions));
    assert_memory_equal(plain->exact, there->exact, sizeof(plain->exact));
    assert_int_equal(a->row_count, b->row_count);
    assert_int_equal(a->exact_rows, b->exact_rows);
    assert_int_equal(a->result_flags, b->result_flags);
}

static void way_compare(struct world *world, const struct way *way, spec_request request,
                        uint32_t layer, uint32_t dress)
{
    static int64_t slots[2][MATCHED];
    struct shot plain, closed;
    way_shot(&plain, world, way, request, layer, dress, slots[0]);
    assert_int_equal(fire(world, &plain), SPEC_OK);
    way_shot(&closed, world, way, request, layer, dress, slots[1]);
    struct there there = there_make(&host, &closed.area);
    spec_status status = fire(world, &closed);
    if (status != SPEC_OK)
        fail_msg("%s: %s", way->extra, world->rig.error.text);
    there_read(&there, &closed.area);
    assert_same(&plain, &closed);
    there_free(&there);
    shot_free(&plain);
    shot_free(&closed);
}

static void a_load_is_what_the_hosts_memory_gets(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint32_t w = 0; w < COUNT(WAYS); w++) {
            struct world world;
            fake_policy((enum fake_policy)policy, w + 1);
            host_open();
            way_open(&world, &WAYS[w]);
            spec_request request = look(&world, 0);
            for (uint32_t layer = 0; layer < LAYERS; layer++)
                way_compare(&world, &WAYS[w], request, layer, (layer + w) % 3);
            world_leave(&world, request);
            host_close();
        }
}

/* The same rows, in one call, to plain memory. */
static void assert_plain(struct world *world, const struct way *way, spec_request request,
                         uint32_t exact_ppm, const uint8_t *found)
{
    struct shot plain;
    way_shot(&plain, world, way, request, 1, 0, NULL);
    plain.select.exact_ppm = exact_ppm;
    assert_int_equal(fire(world, &plain), SPEC_OK);
    assert_memory_equal(plain.area.bytes, found, area_bytes(&plain.area));
    shot_free(&plain);
}

/* A delivery ahead, its queries, then all rows exactly: what stands there after each of these. */
static void ahead_compare(struct world *world, const struct way *way)
{
    struct shot closed;
    spec_ticket ticket;
    spec_request request = look(world, 0);
    way_shot(&closed, world, way, request, 1, 0, NULL);
    struct there there = there_make(&host, &closed.area);
    const struct spec_queries *queries = closed.item.queries;
    closed.item.flags = SPEC_ITEM_AHEAD;
    closed.item.queries = NULL;
    ticket = rig_submit_whole(&world->rig, &closed.item, 1);
    closed.item.flags = 0;
    closed.item.queries = queries;
    closed.item.refine_of = ticket;
    assert_int_equal(fire(world, &closed), SPEC_OK);
    there_read(&there, &closed.area);
    uint8_t *chosen = malloc(area_bytes(&closed.area));
    assert_non_null(chosen);
    memcpy(chosen, closed.area.bytes, area_bytes(&closed.area));
    assert_int_equal(refine(world, &closed, ticket, 1000000), SPEC_OK);
    there_read(&there, &closed.area);
    assert_plain(world, way, request, 100000, chosen);
    assert_plain(world, way, request, 1000000, closed.area.bytes);
    free(chosen);
    there_free(&there);
    shot_release(&closed, world, request);
}

static void ahead_and_refined_go_there_too(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint32_t w = 4; w < 9; w++) {
            struct world world;
            fake_policy((enum fake_policy)policy, w + 1);
            host_open();
            way_open(&world, &WAYS[w]);
            ahead_compare(&world, &WAYS[w]);
            world_done(&world);
            host_close();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_load_is_what_the_hosts_memory_gets),
        cmocka_unit_test(ahead_and_refined_go_there_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
