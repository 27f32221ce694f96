/* Sketches: what they give is the first keys and the tags of every row that was asked for, whatever
 * the extents, the back end and the order of completions; what is damaged is told; memory stays
 * under its cap; nothing of an ended load reaches the next.
 *
 * Threads: the fixture's. */
#include "tests/unit/store/store_fixture.h"

#include "store/internal.h"

static const struct world_setup setups[] = {
    {.name = "sim, paired, probe rows of 96",
     .backend = SC_BACKEND_SIM,
     .layers = 3,
     .k_row_bytes = 512,
     .probe_row_bytes = 96,
     .disk_bytes = 64u << 20,
     .segment_bytes = 4u << 20,
     .op_bytes = 64u << 10},
    {.name = "sim, split, probe rows of 198",
     .backend = SC_BACKEND_SIM,
     .layers = 2,
     .layout = SC_STORE_SPLIT,
     .k_row_bytes = 200,
     .probe_row_bytes = 198,
     .disk_bytes = 64u << 20,
     .segment_bytes = 2u << 20,
     .op_bytes = 64u << 10},
    {.name = "sim, paired 8 KiB rows, probe rows of a half",
     .backend = SC_BACKEND_SIM,
     .layers = 2,
     .k_row_bytes = 4096,
     .probe_row_bytes = 2048,
     .disk_bytes = 256u << 20,
     .segment_bytes = 16u << 20,
     .op_bytes = 256u << 10},
    {.name = "pread, paired, probe rows of 96, 2 threads",
     .backend = SC_BACKEND_PREAD,
     .thread_count = 2,
     .layers = 3,
     .k_row_bytes = 512,
     .probe_row_bytes = 96,
     .disk_bytes = 64u << 20,
     .segment_bytes = 4u << 20,
     .op_bytes = 64u << 10},
    {.name = "io_uring, split, probe rows of 256, 3 threads",
     .backend = SC_BACKEND_URING,
     .thread_count = 3,
     .layers = 2,
     .layout = SC_STORE_SPLIT,
     .k_row_bytes = 512,
     .probe_row_bytes = 256,
     .disk_bytes = 64u << 20,
     .segment_bytes = 4u << 20,
     .op_bytes = 64u << 10},
};
#define SETUPS   (sizeof(setups) / sizeof(setups[0]))
#define ROWS_MAX 2048u

/* False: the machine has no such back end. */
static bool opens(struct world *world)
{
    spec_status status = world_open(world);
    if (status == SPEC_E_UNSUPPORTED) {
        print_message("%s: skipped: %s\n", world->setup->name, world->error.text);
        return false;
    }
    if (status != SPEC_OK)
        fail_msg("%s: open: %s", world->setup->name, world->error.text);
    return true;
}

static struct sc_store_sketch *sketch_make(struct world *world)
{
    struct sc_store_sketch *sketch = NULL;
    assert_int_equal(sc_store_sketch_open(world->store, ROWS_MAX, &sketch, &world->error), SPEC_OK);
    return sketch;
}

/* Ranges of the twin, at most 64. */
struct match {
    struct sc_store_range ranges[64];
    const struct world_piece *twins[64];
    uint64_t count, rows;
};

static void match_add(struct match *match, const struct world_piece *twin, uint32_t first,
                      uint32_t rows)
{
    assert_true(match->count < 64);
    match->twins[match->count] = twin;
    match->ranges[match->count++] = (struct sc_store_range){twin->id, first, rows};
    match->rows += rows;
}

static void match_key(const struct world *world, struct match *match, uint64_t key)
{
    for (uint32_t i = 0; i < world->piece_count; i++)
        if (world->pieces[i].key == key)
            match_add(match, &world->pieces[i], 0, world->pieces[i].row_count);
}

/* Every key and tag of the sketch is what the twin says. */
static void match_check(const struct world *world, const struct match *match, uint32_t layer,
                        uint64_t wanted, const struct sc_store_sketch *sketch)
{
    const struct world_setup *setup = world->setup;
    const uint8_t *keys = sc_store_sketch_keys(sketch);
    const uint64_t *tags = sc_store_sketch_tags(sketch);
    uint8_t *row = malloc(2 * setup->k_row_bytes);
    assert_non_null(row);
    for (uint64_t r = 0, at = 0; r < match->count; r++) {
        uint8_t hash[16];
        const struct world_piece *twin = match->twins[r];
        hash_of(twin->key, twin->first_position + twin->row_count, hash);
        for (uint64_t i = 0; i < match->ranges[r].row_count; i++, at++) {
            uint64_t position = twin->first_position + match->ranges[r].row_first + i;
            bool split = setup->layout == SC_STORE_SPLIT;
            uint64_t bytes = split ? setup->k_row_bytes : 2 * setup->k_row_bytes;
            row_fill(row, 2 * setup->k_row_bytes, twin->key, layer, position);
            assert_memory_equal(keys + at * wanted, row, wanted);
            for (uint32_t part = split ? 1 : 0; part <= (split ? 2u : 0u); part++) {
                uint64_t tag, base;
                base = sc_store_tag_base(world->params.space.digest, hash, layer, part);
                sc_store_tag_make(base, position, part == 2 ? row + bytes : row, bytes, bytes, 1,
                                  &tag, 1);
                assert_int_equal(*tags++, tag);
            }
        }
    }
    free(row);
}

static spec_status match_load(const struct match *match, struct sc_store_sketch *sketch,
                              uint32_t layer, uint64_t wanted)
{
    assert_true(sc_store_sketch_begin(sketch, layer, match->ranges, match->count, wanted,
                                      SC_LANE_DEMAND, NULL, NULL));
    return sc_store_sketch_wait(sketch, SC_EXEC_FOREVER);
}

static void match_load_ok(const struct world *world, const struct match *match,
                          struct sc_store_sketch *sketch, uint64_t wanted)
{
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        spec_status status = match_load(match, sketch, layer, wanted);
        if (status != SPEC_OK)
            fail_msg("%s: layer %u: status %d: %s", world->setup->name, layer, (int)status,
                     world->last_line);
        match_check(world, match, layer, wanted, sketch);
        sc_store_sketch_end(sketch);
    }
}

static void sketch_gives_keys_and_tags_of_whole_matches_after_a_reopen_too(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_make(&setups[i], 7);
        if (opens(world)) {
            assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
            assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
            assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
            assert_int_equal(world_store(world, 1, 324, 350), SPEC_OK);
            assert_int_equal(world_store(world, 1, 674, 350), SPEC_OK);
            for (uint32_t opened = 0; opened < 2; opened++) {
                struct sc_store_sketch *sketch = sketch_make(world);
                struct match match = {.count = 0};
                match_key(world, &match, 1);
                assert_int_equal(match.rows, 1024);
                match_load_ok(world, &match, sketch, setups[i].probe_row_bytes);
                match_load_ok(world, &match, sketch, 2); /* shorter than what is stored */
                match_load_ok(world, &match, sketch, 0);
                sc_store_sketch_close(sketch);
                world_close(world);
                world_open_ok(world);
            }
        }
        world_free(world);
    }
}

static void sketch_of_any_ranges_gives_exactly_their_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_make(&setups[i], 11);
        uint64_t random = 300 + i;
        if (opens(world)) {
            assert_int_equal(world_store(world, 1, 0, 400), SPEC_OK);
            assert_int_equal(world_store(world, 1, 400, 77), SPEC_OK);
            assert_int_equal(world_store(world, 2, 64, 100), SPEC_OK);
            struct sc_store_sketch *sketch = sketch_make(world);
            for (uint32_t turn = 0; turn < 100; turn++) {
                struct match match = {.count = 0};
                uint64_t count = random_below(&random, 24), next = 0;
                for (uint64_t r = 0; r < count; r++) {
                    bool jumps = random_below(&random, 4) == 0;
                    next = jumps ? random_below(&random, world->piece_count)
                                 : (next + 1) % world->piece_count;
                    const struct world_piece *twin = &world->pieces[next];
                    uint32_t first = 0, rows = twin->row_count;
                    if (random_below(&random, 2) == 0) {
                        first = (uint32_t)random_below(&random, rows);
                        rows = (uint32_t)random_below(&random, rows - first + 1);
                    }
                    match_add(&match, twin, first, rows);
                }
                uint64_t wanted = random_below(&random, setups[i].probe_row_bytes / 2 + 1) * 2;
                uint32_t layer = (uint32_t)random_below(&random, setups[i].layers);
                assert_int_equal(match_load(&match, sketch, layer, wanted), SPEC_OK);
                match_check(world, &match, layer, wanted, sketch);
            }
            sc_store_sketch_close(sketch);
        }
        world_free(world);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sketch_gives_keys_and_tags_of_whole_matches_after_a_reopen_too),
        cmocka_unit_test(sketch_of_any_ranges_gives_exactly_their_rows),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
