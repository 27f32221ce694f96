/* The seam to a destination's memory: a target of another kind, whose pages are closed but inside
 * its own functions, so that whoever else touches them dies; it delivers what the host's does. */
#include "plugin/select/item.h"
#include "plugin/select/scatter.h"
#include "tests/unit/plugin/layered_fixture.h"

#include <sys/mman.h>

#define MATCHED    130u
#define DOOR_BYTES (64u << 10) /* K, then V */

extern const struct sc_plugin_target __real_sc_plugin_target_host;
extern struct sc_plugin_target __wrap_sc_plugin_target_host; /* --wrap: memory.c takes this one */

static struct {
    uint8_t *at; /* closed memory */
    uint32_t rows, codes, scores, compacts;
    char fences[32];
} door;

static void turn(const struct sc_plugin_memory *memory, int how)
{
    if (memory->at.k_base == door.at)
        assert_int_equal(mprotect(door.at, 2 * DOOR_BYTES, how), 0);
}

#define OPEN  (PROT_READ | PROT_WRITE)
#define CLOSE PROT_NONE

static uint64_t door_expect(const struct sc_plugin_placing *to, uint64_t row, uint64_t ahead,
                            uint64_t count)
{
    (void)ahead; /* no line of it is in a cache of ours */
    return __real_sc_plugin_target_host.expect(to, row, 0, count);
}

static struct sc_store_sink door_sink(struct sc_plugin_placing *to)
{
    (void)to;
    return (struct sc_store_sink){.span_bytes = 0};
}

static void door_place_rows(const struct sc_plugin_placing *to, const struct sc_store_rows *rows,
                            uint64_t from, uint64_t count, uint32_t wanted, uint64_t at)
{
    turn(to->memory, OPEN);
    __real_sc_plugin_target_host.place_rows(to, rows, from, count, wanted, at);
    turn(to->memory, CLOSE);
    door.rows++;
}

static void door_place_quant(const struct sc_plugin_placing *to,
                             const struct sc_kernels_quantised parts[2], uint64_t count,
                             uint64_t at, const uint64_t *skipped)
{
    turn(to->memory, OPEN);
    __real_sc_plugin_target_host.place_quant(to, parts, count, at, skipped);
    turn(to->memory, CLOSE);
    door.codes++;
}

static spec_status door_fence(const struct sc_plugin_memory *memory, enum sc_plugin_fence when,
                              struct spec_error *reterr)
{
    static const char NAMES[] = {[SC_FENCE_BEGIN] = 'B',
                                 [SC_FENCE_PLACED] = 'p',
                                 [SC_FENCE_SETTLED] = 'S',
                                 [SC_FENCE_END] = 'E'};
    uint64_t length = strlen(door.fences);
    assert_in_range(length, 0, sizeof(door.fences) - 2);
    door.fences[length] = NAMES[when];
    return __real_sc_plugin_target_host.fence(memory, when, reterr);
}

static void door_score(const struct sc_plugin_placing *to, const struct sc_kernels_importance *what,
                       uint64_t head_first, uint64_t head_end, void *scratch, float *ret_sums)
{
    turn(to->memory, OPEN);
    __real_sc_plugin_target_host.score(to, what, head_first, head_end, scratch, ret_sums);
    turn(to->memory, CLOSE);
    door.scores++;
}

static void door_compact(const struct sc_plugin_placing *to, uint64_t head, const uint32_t *rows,
                         uint64_t count)
{
    turn(to->memory, OPEN);
    __real_sc_plugin_target_host.compact(to, head, rows, count);
    turn(to->memory, CLOSE);
    door.compacts++;
}

struct sc_plugin_target __wrap_sc_plugin_target_host = {.expect = door_expect,
                                                        .sink = door_sink,
                                                        .place_rows = door_place_rows,
                                                        .place_quant = door_place_quant,
                                                        .fence = door_fence,
                                                        .score = door_score,
                                                        .compact = door_compact};

/* ---- Tests ---------------------------------------------------------------------------------- */

static void door_make(void)
{
    memset(&door, 0, sizeof(door));
    door.at = mmap(NULL, 2 * DOOR_BYTES, OPEN, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(door.at != MAP_FAILED);
    memset(door.at, 0xa5, 2 * DOOR_BYTES);
    assert_int_equal(mprotect(door.at, 2 * DOOR_BYTES, CLOSE), 0);
}

/* The same item to the host's memory and behind the door; the second shot is left. */
static void fire_both(struct world *world, spec_request request, uint32_t layer, uint32_t given,
                      struct shot *ret_plain, struct shot *ret_closed)
{
    struct shot *shots[] = {ret_plain, ret_closed};
    for (uint32_t way = 0; way < 2; way++) {
        struct shot *shot = shots[way];
        shot_make(shot, world, request, layer, 0, 100000);
        shot->select.given = given;
        shot->select.retain_ppm = 200000;
        if (way == 0) {
            assert_int_equal(fire(world, shot), SPEC_OK);
            continue;
        }
        door_make();
        shot->area.memory.k_base = door.at;
        shot->area.memory.v_base = door.at + DOOR_BYTES;
        assert_true(shot->area.part_bytes <= DOOR_BYTES);
        spec_ticket ticket;
        assert_int_equal(sc_plugin_submit(world->rig.conn, &shot->item, 1, &ticket, NULL), SPEC_OK);
        assert_string_equal(door.fences, "B");
        assert_int_equal(sc_plugin_submit_wait(world->rig.conn, ticket, UINT64_MAX, NULL), SPEC_OK);
    }
}

/* What stands in one stands in the other, and the host is told the same. */
static void assert_both(const struct shot *plain, const struct shot *closed)
{
    const struct spec_important *a = &plain->item, *b = &closed->item;
    assert_int_equal(mprotect(door.at, 2 * DOOR_BYTES, PROT_READ), 0);
    assert_memory_equal(door.at, plain->area.memory.k_base, plain->area.part_bytes);
    assert_memory_equal(door.at + DOOR_BYTES, plain->area.memory.v_base, plain->area.part_bytes);
    assert_memory_equal(plain->positions, closed->positions, sizeof(plain->positions));
    assert_memory_equal(plain->exact, closed->exact, sizeof(plain->exact));
    assert_memory_equal(a->tier_rows, b->tier_rows, sizeof(a->tier_rows));
    assert_int_equal(a->row_count, b->row_count);
    assert_int_equal(a->union_rows, b->union_rows);
    assert_int_equal(b->tier_rows[SPEC_TIER_DISK], b->union_rows);
    assert_int_equal(a->result_flags, b->result_flags);
    uint64_t length = strlen(door.fences);
    assert_int_equal(door.fences[0], 'B');
    assert_int_equal(strspn(door.fences + 1, "p"), length - 3);
    assert_string_equal(door.fences + length - 2, "SE");
}

static void both_free(struct shot *plain, struct shot *closed)
{
    assert_int_equal(munmap(door.at, 2 * DOOR_BYTES), 0);
    shot_free(plain);
    shot_free(closed);
}

static void nobody_else_touches_a_destination(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        uint32_t flags;
        bool codes, scores, compacts;
    } WAYS[] = {
        {"\"preset\": \"as-like\"", 0, false, false, false},
        {"\"preset\": \"impress-itf\", \"select\": {\"alpha_milli\": 1000}", 0, false, false,
         false},
        {"\"preset\": \"as-h2o-lru\"", SPEC_IMPORTANT_FALLBACK, false, true, true},
        {"\"preset\": \"as-h2o-lru\", \"store\": {\"layout\": \"paired\"}", SPEC_IMPORTANT_FALLBACK,
         false, true, true},
        {"\"preset\": \"as-h2o-lru\", \"select\": {\"probe_heads\": 3}", SPEC_IMPORTANT_FALLBACK,
         false, false, true},
        {"\"preset\": \"layered-uniform\"", 0, true, false, false},
    };
    for (uint32_t way = 0; way < sizeof(WAYS) / sizeof(WAYS[0]); way++) {
        bool layered = WAYS[way].codes;
        struct world world;
        struct shot plain, closed;
        world_open_quantised(&world, WAYS[way].extra, 3, 2, 16, SPEC_DTYPE_F16, MATCHED,
                             WAYS[way].compacts ? 0 : 8);
        spec_request request = look(&world, 0);
        for (uint32_t layer = 0; layer < 4; layer++) {
            uint32_t given = layered ? SPEC_SELECT_EXACT : way == 0 ? 0 : SPEC_SELECT_BUDGET;
            fire_both(&world, request, layer, given, &plain, &closed);
            assert_both(&plain, &closed);
            assert_int_equal(closed.item.result_flags, WAYS[way].flags);
            assert_int_equal(closed.item.row_count, way == 0 || layered ? MATCHED : MATCHED / 5);
            assert_true(door.rows > 0);
            assert_int_equal(door.codes > 0, WAYS[way].codes);
            assert_int_equal(door.scores > 0, WAYS[way].scores);
            assert_int_equal(door.compacts, WAYS[way].compacts ? 3 : 0);
            both_free(&plain, &closed);
        }
        world_leave(&world, request);
    }
}

/* Rows become exact where they stand. */
static void refining_goes_through_the_door(void **state)
{
    (void)state;
    struct world world;
    struct shot plain, closed;
    world_open_quantised(&world, "\"preset\": \"layered-uniform\"", 3, 2, 16, SPEC_DTYPE_F16,
                         MATCHED, 0);
    spec_request request = look(&world, 0);
    shot_make(&closed, &world, request, 1, 0, 100000);
    door_make();
    closed.area.memory.k_base = door.at;
    closed.area.memory.v_base = door.at + DOOR_BYTES;
    spec_ticket ticket = rig_submit_whole(&world.rig, &closed.item, 1);
    door.rows = 0;
    assert_int_equal(refine(&world, &closed, ticket, 600000), SPEC_OK);
    assert_true(door.rows > 0);
    assert_int_equal(closed.item.exact_rows, 78);
    shot_make(&plain, &world, request, 1, 0, 600000);
    assert_int_equal(fire(&world, &plain), SPEC_OK);
    assert_int_equal(mprotect(door.at, 2 * DOOR_BYTES, PROT_READ), 0);
    assert_memory_equal(door.at, plain.area.memory.k_base, plain.area.part_bytes);
    assert_memory_equal(door.at + DOOR_BYTES, plain.area.memory.v_base, plain.area.part_bytes);
    both_free(&plain, &closed);
    world_leave(&world, request);
}

/* Where heads would differ, all get all rows. */
static void what_cannot_be_scored_is_dense(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {
        "\"preset\": \"as-h2o-lru\"",
        "\"preset\": \"as-h2o-lru\", \"select\": {\"probe_heads\": 3}",
        "\"preset\": \"impress-itf\", \"select\": {\"alpha_milli\": 0}"};
    __wrap_sc_plugin_target_host.score = NULL;
    for (uint32_t way = 0; way < 3; way++) {
        struct world world;
        struct shot plain, closed;
        world_open(&world, EXTRA[way], 3, 2, 16, SPEC_DTYPE_F16, MATCHED, 0);
        spec_request request = look(&world, 0);
        fire_both(&world, request, 2, SPEC_SELECT_BUDGET, &plain, &closed);
        assert_both(&plain, &closed);
        assert_int_equal(closed.item.result_flags, SPEC_IMPORTANT_DENSE);
        assert_int_equal(closed.item.row_count, MATCHED);
        assert_int_equal(door.scores + door.compacts, 0);
        both_free(&plain, &closed);
        world_leave(&world, request);
    }
    __wrap_sc_plugin_target_host.score = door_score;
}

static void tiers_are_told_in_the_shares_that_were_taken(void **state)
{
    (void)state;
    struct sc_plugin_item item = {.taken = {0, 30, 50, 1}};
    sc_plugin_tiers_tell(&item, 81);
    assert_memory_equal(item.in.tier_rows, item.taken, sizeof(item.taken));
    sc_plugin_tiers_tell(&item, 8);
    assert_int_equal(item.in.tier_rows[SPEC_TIER_HOST], 2);
    assert_int_equal(item.in.tier_rows[SPEC_TIER_DISK], 5);
    assert_int_equal(item.in.tier_rows[SPEC_TIER_REMOTE], 1); /* what rounding left */
    struct sc_plugin_item none = {.route = SC_ROUTE_WHOLE};
    sc_plugin_tiers_tell(&none, 0);
    for (uint32_t t = 0; t < SPEC_TIERS; t++)
        assert_int_equal(none.in.tier_rows[t], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_else_touches_a_destination),
        cmocka_unit_test(refining_goes_through_the_door),
        cmocka_unit_test(what_cannot_be_scored_is_dense),
        cmocka_unit_test(tiers_are_told_in_the_shares_that_were_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
