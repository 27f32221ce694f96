/* store/erase/, store/log/erasures.c: what is erased stands in no byte of any file, also after a
 * power cut at any change of the disk; what is not covered stays as it is.
 *
 * Threads: the fixture's. */
#include "store/internal.h"
#include "store/space/quarantine.h"
#include "tests/unit/store/erase_check.h"
#include "tests/unit/store/permutation_check.h"

static const struct world_setup setups[] = {
    {"paired, probe rows", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 128, 32), WORLD_DISK(4, 1, 64),
     .journal = 1},
    {"split", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 2, 160, 0), WORLD_DISK(4, 1, 64), .journal = 1},
    {"one page a row", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 2048, 0), WORLD_DISK(32, 4, 128),
     .journal = 1},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

#define ROWS   192u
#define KEY(n) (UINT64_C(100) * (n)) /* far enough apart that no two share token ids */

/* Keys 1 and 2 under salt 1, 3 under salt 2, 4 under none, 5 under one that its record does not
 * say. */
static void world_plant(struct world *world)
{
    assert_int_equal(world_store_salted(world, KEY(1), ROWS, salt_of(1)), SPEC_OK);
    assert_int_equal(world_store_salted(world, KEY(2), ROWS, salt_of(1)), SPEC_OK);
    assert_int_equal(world_store_salted(world, KEY(3), ROWS, salt_of(2)), SPEC_OK);
    assert_int_equal(world_store_salted(world, KEY(4), ROWS, salt_of(0)), SPEC_OK);
    assert_int_equal(world_store_salted(world, KEY(5), ROWS,
                                        (struct sc_store_salt){.state = SC_STORE_SALT_UNKNOWN}),
                     SPEC_OK);
}

static void plant_fragments(struct sc_sim_fragments *fragments, const struct world *world,
                            const struct sc_store_erasure *what)
{
    fragments_plant(fragments, world, what);
    for (uint64_t key = 1; key <= 5; key++)
        if (what->is_all || key <= 2 || key == 5)
            fragments_plant_tokens(fragments, KEY(key), ROWS);
    assert_true(sc_sim_fragments_count(fragments) > 1000);
}

static void drop_key(struct world *world, uint64_t key)
{
    for (uint32_t i = 0; i < world->piece_count;) {
        if (world->pieces[i].key == KEY(key))
            world_drop(world, i, 1);
        else
            i++;
    }
}

static void nothing_found(const struct sc_sim_fragments *fragments, struct sc_io_sim_disk *disk,
                          const char *when)
{
    char where[160];
    uint64_t found = sc_sim_fragments_found(fragments, disk, where);
    if (found > 0)
        fail_msg("%s: %lu fragments, the first in %s", when, (unsigned long)found, where);
}

static uint64_t pieces_told(const struct world *world, uint64_t key)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        count += world->pieces[i].key == KEY(key) && world->pieces[i].seen;
    return count;
}

static void put(struct world *world, struct sc_store_erasure what)
{
    assert_int_equal(sc_store_erase_put(world->store, &what, &world->error), SPEC_OK);
}

static void all_is_erased_or_what_lies_under_a_salt(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * SETUPS; i++) {
        struct world *world = world_make(&setups[i / 2], 1 + i);
        struct sc_sim_fragments *fragments = sc_sim_fragments_new();
        bool is_all = i % 2 == 0;
        char where[160];
        world->config.lease_ns_max = i % 4 < 2 ? 0 : UINT64_C(3600000000000);
        world_open_ok(world);
        world_plant(world);
        struct sc_store_erasure what = is_all ? ERASE_ALL : erasure_of_salt(1);
        plant_fragments(fragments, world, &what);
        drop_key(world, 2);
        assert_true(sc_sim_fragments_found(fragments, world->disk, where) >=
                    sc_sim_fragments_count(fragments));
        put(world, what);
        assert_int_equal(world_erase(world, 1), SPEC_OK);
        nothing_found(fragments, world->disk, setups[i / 2].name);
        assert_int_equal(sc_store_erase_counts(world->store).erased, 1);
        if (!is_all) {
            rows_ok(world, KEY(3));
            rows_ok(world, KEY(4));
        }
        world_reopen(world);
        for (uint64_t key = 1; key <= 5; key++)
            assert_int_equal(pieces_told(world, key),
                             !is_all && (key == 3 || key == 4) ? ROWS / 64 : 0);
        nothing_found(fragments, world->disk, "reopened");
        /* The store is as good as any: what is stored now stays. */
        assert_int_equal(world_store_salted(world, KEY(6), ROWS, salt_of(1)), SPEC_OK);
        world_reopen(world);
        rows_ok(world, KEY(6));
        sc_sim_fragments_free(fragments);
        world_free(world);
    }
}

static void erase_all_of(struct world *world, const char *what)
{
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    const struct sc_store_erasure all = erasure_of_salt(1); /* records do not say their salts */
    fragments_plant(fragments, world, &all);
    assert_true(sc_sim_fragments_count(fragments) > 1000);
    put(world, all);
    assert_int_equal(world_erase(world, 1), SPEC_OK);
    nothing_found(fragments, world->disk, what);
    sc_sim_fragments_free(fragments);
    world_free(world);
}

/* What stands beside rows goes as they do: codes, and editions in another order. */
static void codes_and_permuted_copies_are_erased(void **state)
{
    (void)state;
    static const struct world_setup setup = {"codes", WORLD_ON(SIM, 0),
                                             WORLD_SHAPE(PAIRED, 3, 512, 0), WORLD_DISK(64, 4, 64)};
    struct world *world = world_ordered(&setup, 3, 64);
    order_some(world);
    assert_true(stats_of(world).permuted_pieces > 0);
    erase_all_of(world, "editions");
    for (uint32_t is_loud = 0; is_loud < 2; is_loud++) { /* two permuted copies at a time */
        world = world_make(&setup, 4);
        orders_on(world, 16384);
        orders_again(world);
        world_open_ok(world);
        order_some(world);
        (void)sc_store_quarantine_release(world->store, UINT64_MAX);
        order_host.turn++;
        order_host.is_loud = is_loud != 0;
        order_again(world);
        assert_true(stats_of(world).permuted_again > 0);
        erase_all_of(world, "a permuted copy and the one before");
    }
    world = world_make(&setup, 5);
    keep_quant(world, true);
    world_open_ok(world);
    world_store_two(world, 256, 192);
    build_quantised(world);
    assert_true(stats_of(world).quantised_bytes > 0);
    erase_all_of(world, "codes");
}

/* ---- Ends in the middle ---------------------------------------------------------------------- */

static const struct world_setup small = {.name = "small",
                                         WORLD_ON(SIM, 0),
                                         WORLD_SHAPE(PAIRED, 2, 128, 0),
                                         WORLD_DISK(4, 1, 64),
                                         .journal = 2};

/* What is left of an erasure that was put is carried out, and then there is nothing of it: where
 * its intent is not there any more, it was. Before it is, its intent covers it. */
static void finish(struct world *world, const struct sc_sim_fragments *fragments, bool is_put,
                   const char *when)
{
    world_open_ok(world);
    struct sc_store_salt salt = salt_of(1);
    assert_int_equal(sc_store_erase_hear(world->store, NULL, NULL, &world->error), SPEC_OK);
    bool is_known = sc_store_erasures(world->store) > 0;
    assert_int_equal(sc_store_erases(world->store, &salt), is_known);
    assert_int_equal(world_erase(world, 1), SPEC_OK);
    if (is_known || is_put)
        nothing_found(fragments, world->disk, when);
    rows_ok(world, KEY(3));
    rows_ok(world, KEY(4));
    world_free(world);
}

static struct world *origin_make(struct sc_sim_fragments *fragments, uint64_t seed)
{
    struct world *world = world_new(&small, seed);
    const struct sc_store_erasure what = erasure_of_salt(1);
    world_plant(world);
    world_reopen(world); /* so that what is stored is durable */
    for (uint32_t i = 0; i < world->store->disk.segment_count; i++)
        assert_int_equal(
            sc_io_file_sync(world->store->io, world->store->disk.segments[i].file, &world->error),
            SPEC_OK);
    plant_fragments(fragments, world, &what);
    return world;
}

static void a_power_cut_at_any_change_ends_in_an_erasure(void **state)
{
    (void)state;
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    struct world *origin = origin_make(fragments, 4);
    uint64_t before = sc_io_sim_disk_events(origin->disk);
    put(origin, erasure_of_salt(1));
    uint64_t put_at = sc_io_sim_disk_events(origin->disk);
    assert_int_equal(world_erase(origin, 1), SPEC_OK);
    uint64_t end = sc_io_sim_disk_events(origin->disk);
    for (uint64_t at = before; at <= end; at++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            char when[64];
            (void)snprintf(when, sizeof(when), "cut at %lu of %lu, seed %lu", (unsigned long)at,
                           (unsigned long)end, (unsigned long)seed);
            finish(world_cut(origin, at, 5, seed), fragments, at >= put_at, when);
        }
    assert_true(end - put_at > 8);
    world_free(origin);
    sc_sim_fragments_free(fragments);
}

/* The process ends, and what it wrote is there. */
static void a_kill_at_any_change_ends_in_an_erasure(void **state)
{
    (void)state;
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    bool is_through = false;
    for (uint64_t n = 0; !is_through; n++) {
        struct world *world = origin_make(fragments, 4);
        struct sc_io_sim_disk *copy = NULL;
        const struct sc_store_erasure what = erasure_of_salt(1);
        char when[64];
        (void)snprintf(when, sizeof(when), "killed after %lu changes", (unsigned long)n);
        sc_io_sim_power_off_after(world->disk, n);
        bool is_put = sc_store_erase_put(world->store, &what, &world->error) == SPEC_OK;
        is_through = is_put && world_erase(world, 1) == SPEC_OK &&
                     sc_store_erase_counts(world->store).erased == 1;
        world_close(world);
        assert_int_equal(sc_io_sim_disk_copy(world->disk, &copy, NULL), SPEC_OK);
        sc_io_sim_disk_close(world->disk);
        world_disk(world, copy);
        finish(world, fragments, is_put, when);
    }
    sc_sim_fragments_free(fragments);
}

/* ---- Disks that fail, and that lie ------------------------------------------------------------
 */

/* The n-th operation of a kind has the fault, for each n until a run meets none. What says that it
 * was erased has no byte left, also after a power cut. */
static void erase_with_fault(enum sc_io_sim_fault fault, const char *scope)
{
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    bool meets = true;
    for (uint64_t n = 0; meets; n++) {
        struct world *origin = origin_make(fragments, 6 + n);
        put(origin, erasure_of_salt(1));
        sc_io_sim_fault_scope(origin->disk, scope);
        sc_io_sim_fault_nth(origin->disk, fault, n);
        spec_status status = world_erase(origin, 1);
        meets = sc_io_sim_fault_fired(origin->disk, fault) > 0;
        struct sc_store_erase_counts counts = sc_store_erase_counts(origin->store);
        if (status != SPEC_OK) {
            assert_true(counts.erased == 0 && counts.failures == 1);
            assert_true(sc_store_erasures(origin->store) == 1);
            status = world_erase(origin, 1); /* the next try meets none */
        }
        assert_int_equal(status, SPEC_OK);
        nothing_found(fragments, origin->disk, scope);
        struct world *cut = world_cut(origin, sc_io_sim_disk_events(origin->disk), 5, n);
        world_open_ok(cut);
        assert_int_equal(sc_store_erase_hear(cut->store, NULL, NULL, NULL), SPEC_OK);
        nothing_found(fragments, cut->disk, "after a power cut");
        assert_int_equal(sc_store_erasures(cut->store), 0);
        world_free(cut);
        world_free(origin);
    }
    sc_sim_fragments_free(fragments);
}

static void what_fails_is_no_erasure(void **state)
{
    (void)state;
    erase_with_fault(SC_SIM_WRITE_EIO, "seg-");
    erase_with_fault(SC_SIM_WRITE_PART, "seg-");
    erase_with_fault(SC_SIM_SYNC_EIO, "seg-");
    erase_with_fault(SC_SIM_READ_EIO, "seg-");
    erase_with_fault(SC_SIM_WRITE_EIO, "log");
    erase_with_fault(SC_SIM_SYNC_EIO, "log");
}

static void a_disk_that_lies_is_read_back(void **state)
{
    (void)state;
    erase_with_fault(SC_SIM_LOST, "seg-");
    erase_with_fault(SC_SIM_STALE, "seg-");
    erase_with_fault(SC_SIM_TORN, "seg-");
}

/* ---- Beside it --------------------------------------------------------------------------------
 */

/* Reads that are under way when zeros are written deliver rows or an error, never zeros. */
static void a_load_in_the_middle_delivers_no_zeros(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_new(&setups[i], 9);
        uint64_t row_bytes = 2 * setups[i].k_row_bytes;
        world_plant(world);
        struct sc_store_reader *reader = world_reader(world);
        struct sc_store_range ranges[ROWS / 64];
        for (uint32_t r = 0; r < ROWS / 64; r++)
            ranges[r] = (struct sc_store_range){.piece = world->pieces[r].id, .row_count = 64};
        sc_store_reader_begin(reader, 1, ranges, ROWS / 64, SC_IO_CLASS_DEMAND);
        put(world, erasure_of_salt(1));
        assert_int_equal(world_erase(world, 1), SPEC_OK);
        uint8_t *expected = malloc(row_bytes);
        struct sc_store_rows rows = {0};
        spec_status status;
        assert_non_null(expected);
        for (;;) {
            status = sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, &world->error);
            if (status != SPEC_OK || rows.row_count == 0)
                break;
            for (uint64_t r = 0; r < rows.row_count && setups[i].layout == SC_STORE_PAIRED; r++) {
                row_fill(expected, row_bytes, KEY(1), 1, rows.row_first + r);
                bytes_equal(rows.rows + r * row_bytes, expected, row_bytes);
            }
        }
        assert_int_not_equal(status, SPEC_OK);
        free(expected);
        sc_store_readers_close(reader, 1);
        rows_ok(world, KEY(3));
        world_free(world);
    }
}

/* A pass that was begun under the salt is not committed, its places are zeros, and nothing new
 * begins before it is over. */
static void an_open_pass_is_erased_with_the_rest(void **state)
{
    (void)state;
    struct world *world = world_new(&setups[2], 11);
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    struct sc_sim_fragments *ours_alone = sc_sim_fragments_new();
    const struct sc_store_erasure what = erasure_of_salt(1);
    world_plant(world);
    struct pass *ours = pass_make(world, KEY(7), 0, ROWS),
                *theirs = pass_make(world, KEY(8), 0, 64);
    ours->salt = salt_of(1);
    theirs->salt = salt_of(2);
    assert_int_equal(pass_begin(ours), SPEC_OK);
    assert_int_equal(pass_begin(theirs), SPEC_OK);
    assert_int_equal(pass_put(ours), SPEC_OK);
    assert_int_equal(pass_put(theirs), SPEC_OK);
    world_wait_ns(world, 1000000000); /* on the disk */
    plant_fragments(fragments, world, &what);
    for (uint64_t p = 0; p < ROWS; p++) { /* the layer that was put */
        static uint8_t row[4096];
        row_fill(row, sizeof(row), KEY(7), 0, p);
        sc_sim_fragments_add(fragments, row, sizeof(row));
        sc_sim_fragments_add(ours_alone, row, sizeof(row));
    }
    char where[160];
    assert_true(sc_sim_fragments_found(ours_alone, world->disk, where) > 0);
    put(world, what);
    assert_int_equal(sc_store_erase_hear(world->store, NULL, NULL, NULL), SPEC_OK);
    assert_int_equal(world_store_salted(world, KEY(9), 64, salt_of(2)), SPEC_E_BUSY);
    assert_int_equal(world_erase(world, 1), SPEC_OK);
    nothing_found(fragments, world->disk, "an open pass");
    assert_int_equal(pass_put(ours), SPEC_OK);
    assert_int_equal(pass_put(theirs), SPEC_OK);
    pass_wait(ours);
    pass_wait(theirs);
    assert_int_equal(ours->status, SPEC_E_DROPPED);
    assert_int_equal(theirs->status, SPEC_OK);
    pass_note(theirs);
    rows_ok(world, KEY(8));
    pass_free(ours);
    pass_free(theirs);
    assert_int_equal(world_store_salted(world, KEY(9), 64, salt_of(1)), SPEC_OK);
    sc_sim_fragments_free(ours_alone);
    sc_sim_fragments_free(fragments);
    world_free(world);
}

/* Names that nobody of us writes are no intents, nor are those of another rank. */
static void foreign_names_say_nothing(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"0000-of-0001-",
                                        "0000-of-0001-done",
                                        "0001-of-0002-all",
                                        "0000-of-0001-alle",
                                        "0000-of-0001-00",
                                        "all",
                                        "0000-of-0001-0000000000000000000000000000000G"};
    struct world *world = world_new(&small, 12);
    assert_int_equal(sc_io_mkdir(world->store->io, "/sim/store/erase", NULL), SPEC_OK);
    for (uint32_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        char path[128];
        struct sc_io_file *file;
        (void)snprintf(path, sizeof(path), "/sim/store/erase/%s", NAMES[i]);
        assert_int_equal(sc_io_file_open(world->store->io, path,
                                         SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL),
                         SPEC_OK);
        sc_io_file_close(world->store->io, file);
    }
    assert_int_equal(world_erase(world, 1), SPEC_OK);
    assert_int_equal(sc_store_erase_counts(world->store).erased, 0);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_erased_or_what_lies_under_a_salt),
        cmocka_unit_test(codes_and_permuted_copies_are_erased),
        cmocka_unit_test(a_power_cut_at_any_change_ends_in_an_erasure),
        cmocka_unit_test(a_kill_at_any_change_ends_in_an_erasure),
        cmocka_unit_test(what_fails_is_no_erasure),
        cmocka_unit_test(a_disk_that_lies_is_read_back),
        cmocka_unit_test(a_load_in_the_middle_delivers_no_zeros),
        cmocka_unit_test(an_open_pass_is_erased_with_the_rest),
        cmocka_unit_test(foreign_names_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
