/* Copies of the same tokens in the same place (store/log/copy_number.c): what a device lost of the
 * later one does not pass for it, be it rows, probe rows or codes; numbers never come again.
 *
 * Threads: the seeded loop. */
#include "tests/unit/store/build_check.h"
#include "tests/unit/store/copy_check.h"
#include "tests/unit/store/quant_check.h"

static const struct world_setup setups[] = {
    {"paired", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 48, 18), WORLD_DISK(8, 1, 64),
     .journal = 1},
    {"split", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 3, 48, 18), WORLD_DISK(8, 1, 64), .journal = 1}};

static void writes_fault(struct world *world, enum sc_io_sim_fault fault, bool is_on)
{
    sc_io_sim_fault_scope(world->disk, "/seg-");
    sc_io_sim_fault_ppm(world->disk, fault, is_on ? 1000000 : 0);
}

/* A piece of it, all rows. */
static struct match match_piece(const struct world_piece *piece)
{
    struct match match = {.count = 0};
    match_add(&match, piece, 0, piece->row_count);
    return match;
}

/* Whether probe rows of the copy's pieces can be had, of any layer. */
static uint32_t probes_load(struct world *world, const struct copy *copy)
{
    struct sc_store_selector *selector = NULL;
    uint32_t count = 0;
    assert_int_equal(sc_store_selector_open(world->store, COPY_ROWS, COPY_ROWS, &selector, NULL),
                     SPEC_OK);
    for (uint32_t i = 0; i < copy->piece_count; i++)
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            const struct match match = match_piece(&copy->pieces[i]);
            assert_true(keys_begin(selector, &match, layer, SC_IO_CLASS_DEMAND, 18));
            count += sc_store_selector_wait(selector, SC_EXEC_FOREVER) == SPEC_OK;
        }
    sc_store_selector_close(selector);
    return count;
}

static uint32_t codes_load_of(struct world *world, const struct copy *copy)
{
    struct sc_store_selector *selector = NULL;
    struct sc_store_slab slab;
    uint32_t count = 0;
    assert_int_equal(sc_store_selector_open(world->store, COPY_ROWS, COPY_ROWS, &selector, NULL),
                     SPEC_OK);
    for (uint32_t i = 0; i < copy->piece_count; i++)
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            const struct match match = match_piece(&copy->pieces[i]);
            assert_true(quantised_begin(selector, &match, layer, SC_IO_CLASS_DEMAND));
            assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
            count += sc_store_slab_of(sc_store_selector_keys(selector), 0, &slab);
        }
    sc_store_selector_close(selector);
    return count;
}

/* Every order of exact, lossy and pruned: the later copy's writes are lost, its record is not. */
static void copies_that_were_lost_are_missed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        for (uint64_t first = 0; first < 3; first++)
            for (uint64_t second = 0; second < 3; second++) {
                struct world *world = world_make(&setups[i], 1 + first * 3 + second);
                struct copy earlier, later;
                struct sc_store_provenance provenance;
                world_open_ok(world);
                assert_int_equal(copy_store(world, 300 + first, &earlier), SPEC_OK);
                assert_int_equal(copy_load(world, world->store, &earlier), 9);
                uint64_t place = copy_extent(world->store, &earlier)->parts[0].offset;
                copy_drop(world, &earlier);
                writes_fault(world, SC_SIM_LOST, true);
                assert_int_equal(copy_store(world, 600 + second, &later), SPEC_OK);
                writes_fault(world, SC_SIM_LOST, false);
                assert_int_equal(copy_extent(world->store, &later)->parts[0].offset, place);
                assert_true(
                    sc_store_piece_provenance(world->store, later.pieces[0].id, &provenance));
                assert_int_equal(provenance.computed_on, second);
                assert_int_equal(copy_load(world, world->store, &later), 0);
                assert_int_equal(probes_load(world, &later), 0);
                world_free(world);
            }
}

/* Some pages of the later copy are there, and some are the earlier one's. */
static void copies_that_were_lost_in_part_give_their_own_rows_or_none(void **state)
{
    (void)state;
    uint32_t whole = 0, count = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct world *world = world_make(&setups[seed % 2], seed);
        struct copy copy;
        world_open_ok(world);
        for (uint64_t turn = 0; turn < 4; turn++) {
            writes_fault(world, SC_SIM_STALE, turn > 0);
            assert_int_equal(copy_store(world, 300 + 7 * turn, &copy), SPEC_OK);
            writes_fault(world, SC_SIM_STALE, false);
            whole += turn > 0 ? copy_load(world, world->store, &copy) : 0;
            count += turn > 0 ? 9 : 0;
            copy_drop(world, &copy);
        }
        assert_true(sc_io_sim_fault_fired(world->disk, SC_SIM_STALE) > 0);
        world_free(world);
    }
    print_message("%u of %u slabs whole\n", whole, count);
    assert_true(whole < count / 2);
}

/* Probe rows and codes that are built later, of both copies in the same places. */
static void built_of(struct world *world, uint64_t row_key, enum sc_io_sim_fault fault,
                     struct copy *copy)
{
    world->params.probe_row_bytes = 0;
    world_open_ok(world);
    assert_int_equal(copy_store(world, row_key, copy), SPEC_OK);
    world_close(world);
    world->params.probe_row_bytes = 18;
    world_open_ok(world);
    if (fault != SC_SIM_FAULTS)
        writes_fault(world, fault, true);
    build_all(world, 0);
    if (fault != SC_SIM_FAULTS)
        writes_fault(world, fault, false);
    const struct sc_store_extent_entry *extent = copy_extent(world->store, copy);
    assert_non_null(atomic_load(&extent->derived));
    assert_non_null(atomic_load(&extent->codes));
}

static void sections_that_were_lost_are_missed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_make(&setups[i], 5);
        struct copy earlier, later;
        keep_quant(world, true);
        built_of(world, 300, SC_SIM_FAULTS, &earlier);
        assert_int_equal(probes_load(world, &earlier), 9);
        uint32_t quantised = codes_load_of(world, &earlier);
        assert_true(quantised > 0);
        const struct sc_store_extent_entry *extent = copy_extent(world->store, &earlier);
        uint64_t probes_at = atomic_load(&extent->derived)->parts[0].offset;
        uint64_t codes_at = atomic_load(&extent->codes)->parts[0].offset;
        copy_drop(world, &earlier);
        world_close(world);
        built_of(world, 601, SC_SIM_LOST, &later);
        extent = copy_extent(world->store, &later);
        assert_int_equal(atomic_load(&extent->derived)->parts[0].offset, probes_at);
        assert_int_equal(atomic_load(&extent->codes)->parts[0].offset, codes_at);
        assert_int_equal(probes_load(world, &later), 0);
        assert_int_equal(codes_load_of(world, &later), 0);
        assert_int_equal(copy_load(world, world->store, &later), 9);
        world_free(world);
    }
}

/* Lives that end well, and lives whose last records a power cut takes: ids come again then. */
static void copies_never_get_a_number_again(void **state)
{
    (void)state;
    enum { LIVES = 60 };
    uint64_t numbers[2 * LIVES], ids[2 * LIVES], count = 0, again = 0;
    struct world *world = world_make(&setups[0], 11);
    for (uint64_t life = 0; life < LIVES; life++) {
        struct copy copies[2];
        world_open_ok(world);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(copy_store(world, 300 + life, &copies[i]), SPEC_OK);
            numbers[count] = copy_extent(world->store, &copies[i])->copy;
            ids[count] = copies[i].pieces[0].id;
            for (uint64_t before = 0; before < count; before++) {
                assert_int_not_equal(numbers[before], numbers[count]);
                again += ids[before] == ids[count];
            }
            count++;
        }
        copy_drop(world, &copies[0]);
        copy_drop(world, &copies[1]);
        bool is_cut = life % 2 == 1;
        if (is_cut)
            sc_io_sim_power_off(world->disk);
        world_close(world);
        if (is_cut)
            assert_int_equal(sc_io_sim_disk_crash(world->disk, life, NULL), SPEC_OK);
    }
    assert_true(again > 0);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_that_were_lost_are_missed),
        cmocka_unit_test(copies_that_were_lost_in_part_give_their_own_rows_or_none),
        cmocka_unit_test(sections_that_were_lost_are_missed),
        cmocka_unit_test(copies_never_get_a_number_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
