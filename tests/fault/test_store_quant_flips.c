/* Every bit of what codes are made of flipped, one after the other: heads, scales, codes,
 * checksums, padding between them, and the records that tell of them (8). What a load is given is
 * what the encoder said of these rows, or nothing; rows are right.
 *
 * Threads: the seeded loop. */
#include "tests/sample.h"
#include "tests/unit/store/build_check.h"
#include "tests/unit/store/quant_check.h"

#define LOG_PATH     "/sim/store/rank-0000-of-0001/log"
#define SEGMENT_PATH "/sim/store/rank-0000-of-0001/seg-00000000"
#define LOG_MAX      (16u << 10)
#define EVERY        SAMPLE_OF(1u, 11u) /* one bit of so many is flipped */

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 80, 0),
                                         WORLD_DISK(4, 1, 64)};

struct counts {
    uint64_t flips, ranges, quantised, rows_ok, rows_missed;
};

static void bit_flip(struct world *world, const char *path, uint64_t bit)
{
    disk_flip(world, path, bit / 8, (uint8_t)(1u << bit % 8));
}

/* Codes of both keys, as a load takes them. */
static void codes_look(struct world *world, struct sc_store_selector *selector,
                       struct counts *counts)
{
    for (uint64_t key = 1; key <= 2; key++) {
        struct match match = match_of(world, key);
        for (uint32_t layer = 0; layer < small.layers; layer++) {
            if (!quantised_begin(selector, &match, layer, SC_IO_CLASS_DEMAND))
                continue; /* a piece is void: the load is a miss */
            assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
            counts->ranges += match.count;
            counts->quantised += codes_check(world, &match, 0, layer, false, selector);
        }
    }
}

/* The fixture compares each row that comes. */
static void rows_look(struct world *world, struct counts *counts)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint64_t key = 1; key <= 2; key++)
        for (uint32_t layer = 0; layer < small.layers; layer++) {
            struct loaded loaded = world_load_key(world, reader, layer, key);
            counts->rows_ok += loaded.status == SPEC_OK;
            counts->rows_missed += loaded.status != SPEC_OK;
        }
    sc_store_readers_close(reader, 1);
}

/* ---- The store ------------------------------------------------------------------------------- */

/* A key's extent. */
static struct sc_store_extent_entry *extent_of(struct world *world, uint64_t key)
{
    for (uint32_t i = 0; i < world->piece_count; i++)
        if (world->pieces[i].key == key)
            return sc_store_table_extent(
                &world->store->table,
                sc_store_table_piece(&world->store->table, world->pieces[i].id)->extent);
    fail_msg("no key %lu", (unsigned long)key);
    return NULL;
}

static struct world *world_quantised(void)
{
    struct world *world = world_make(&small, 6);
    keep_quant(world, true);
    world->config.staging_bytes = 1u << 20;
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 60, 6), SPEC_OK);
    assert_int_equal(world_store(world, 2, 61, 6), SPEC_OK);
    build_quantised(world);
    return world;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void every_flipped_bit_of_codes_gives_what_was_quantised_or_nothing(void **state)
{
    (void)state;
    struct world *world = world_quantised();
    struct sc_store_selector *selector = selector_make(world);
    struct counts whole = {0}, counts = {0};
    codes_look(world, selector, &whole);
    assert_true(whole.quantised > 0);
    for (uint64_t key = 1; key <= 2; key++) {
        const struct sc_store_section *derived_section = atomic_load(&extent_of(world, key)->codes);
        uint64_t first = derived_section->parts[0].offset * 8;
        assert_int_equal(derived_section->part_count, 1);
        for (uint64_t bit = 0; bit < derived_section->stride * small.layers * 8; bit += EVERY) {
            struct counts now = {0};
            bit_flip(world, SEGMENT_PATH, first + bit);
            codes_look(world, selector, &now);
            bit_flip(world, SEGMENT_PATH, first + bit);
            assert_int_equal(now.ranges, whole.ranges);
            assert_in_range(whole.quantised - now.quantised, 0,
                            1); /* its own range, and no other */
            counts.flips++;
            counts.quantised += now.quantised;
        }
    }
    rows_look(world, &counts);
    assert_int_equal(counts.rows_ok, 2 * small.layers);
    uint64_t lost = counts.flips * whole.quantised - counts.quantised;
    print_message("%" PRIu64 " flips: %" PRIu64 " lost a range\n", counts.flips, lost);
    assert_true(lost * 10 > counts.flips * 8); /* the others are padding, or of raw blocks */
    sc_store_selector_close(selector);
    world_free(world);
}

/* ---- Records --------------------------------------------------------------------------------- */

static void record_flip(struct world *world, const uint8_t *log, uint64_t bytes, uint64_t first,
                        uint64_t end, struct counts *counts)
{
    for (uint64_t bit = first * 8; bit < end * 8; bit += EVERY) {
        bit_flip(world, LOG_PATH, bit);
        if (world_open(world) == SPEC_OK) {
            struct sc_store_selector *selector = selector_make(world);
            codes_look(world, selector, counts);
            rows_look(world, counts);
            sc_store_selector_close(selector);
            world_close(world);
        }
        counts->flips++;
        assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, bytes));
        assert_true(sc_io_sim_disk_poke(world->disk, LOG_PATH, 0, log, bytes));
    }
}

static void every_flipped_bit_of_their_records_gives_what_was_quantised_or_nothing(void **state)
{
    (void)state;
    static uint8_t log[LOG_MAX];
    struct world *world = world_quantised();
    struct counts counts = {0};
    uint64_t bytes = world->store->log.journal.end.offset, records = 0;
    world_close(world);
    assert_true(bytes <= LOG_MAX);
    assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, 0, log, bytes));
    for (uint64_t at = 0, count; at < bytes; at += count) {
        struct sc_store_record record = {0};
        count = sc_store_frame_bytes(log + at);
        assert_true(sc_store_record_peek(log + at + SC_STORE_FRAME_BYTES,
                                         count - SC_STORE_FRAME_BYTES, &record));
        if (record.type != SC_STORE_RECORD_SECTION)
            continue;
        records++;
        record_flip(world, log, bytes, at, at + count, &counts);
    }
    assert_int_equal(records, 2);
    assert_int_equal(counts.rows_ok, counts.flips * 2 * small.layers);
    world_open_ok(world);
    struct sc_store_selector *selector = selector_make(world);
    struct counts after = {0};
    codes_look(world, selector, &after);
    assert_true(after.quantised > 0);
    sc_store_selector_close(selector);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_bit_of_codes_gives_what_was_quantised_or_nothing),
        cmocka_unit_test(every_flipped_bit_of_their_records_gives_what_was_quantised_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
