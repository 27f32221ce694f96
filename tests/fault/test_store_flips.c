/* Every byte of a small store flipped, one after the other: each row that is loaded is right, and
 * each that is not is a miss with a status. The store: two namespaces' worth of records, extents of
 * 160 KiB, identity and lock.
 *
 * Threads: the seeded loop. */
#include "tests/sample.h"
#include "tests/unit/store/selector_check.h"

#define FILES_MAX   16u
#define FLIPPED_MAX (160u << 10) /* bytes of the segment that extents use, and a little more */
#define PATH_BYTES  256u
#define EVERY       SAMPLE_OF(1u, 8u) /* one byte of so many is flipped */

struct files {
    char paths[FILES_MAX][PATH_BYTES];
    uint64_t sizes[FILES_MAX];
    uint32_t count;
};

struct counts {
    uint64_t flips, rows, missed, refused, selectors, selector_keys_bad;
};

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 80, 34),
                                         WORLD_DISK(4, 1, 64)};

static void list_file(const char *path, uint64_t bytes, void *user)
{
    struct files *files = user;
    assert_true(files->count < FILES_MAX);
    (void)snprintf(files->paths[files->count], PATH_BYTES, "%s", path);
    files->sizes[files->count++] = bytes;
}

/* The key's probe rows are right, or none are given. (Tags are, when rows agree with them.) */
static void selector_key(struct world *world, struct sc_store_selector *selector, uint32_t layer,
                         uint64_t key, struct counts *counts)
{
    struct match match = {.count = 0};
    for (uint32_t i = 0; i < world->piece_count; i++)
        if (world->pieces[i].key == key && world->pieces[i].seen)
            match_add(&match, &world->pieces[i], 0, world->pieces[i].row_count);
    if (!keys_begin(selector, &match, layer, SC_IO_CLASS_DEMAND, small.probe_row_bytes))
        return;
    bool good = sc_store_selector_wait(selector, SC_EXEC_FOREVER) == SPEC_OK;
    if (good)
        match_check(world, &match, layer, small.probe_row_bytes, selector, false);
    counts->selectors++;
    counts->selector_keys_bad += !good;
}

/* Loads everything in every layer; the fixture compares every byte of every row. */
static void load_all(struct world *world, struct sc_store_reader *reader,
                     struct sc_store_selector *selector, struct counts *counts)
{
    counts->flips++;
    for (uint64_t key = 1; key <= 3; key++) {
        for (uint32_t layer = 0; layer < small.layers; layer++) {
            struct loaded loaded = world_load_key(world, reader, layer, key);
            counts->rows += loaded.rows;
            counts->missed += loaded.status != SPEC_OK;
            selector_key(world, selector, layer, key, counts);
        }
    }
}

static void open_and_load(struct world *world, struct counts *counts)
{
    if (world_open(world) != SPEC_OK) {
        counts->flips++;
        counts->refused++;
        return;
    }
    struct sc_store_reader *reader = world_reader(world);
    struct sc_store_selector *selector = selector_make(world);
    load_all(world, reader, selector, counts);
    sc_store_selector_close(selector);
    sc_store_readers_close(reader, 1);
    world_close(world);
}

static void flip(struct world *world, const char *path, uint64_t offset)
{
    disk_flip(world, path, offset, (uint8_t)(1u << (offset % 8)));
}

/* Log and identity: read by open, which may cut the log. */
static void flip_metadata(struct world *world, const char *path, uint64_t bytes,
                          struct counts *counts)
{
    static uint8_t whole[64u << 10];
    assert_true(bytes <= sizeof(whole));
    assert_true(sc_io_sim_disk_peek(world->disk, path, 0, whole, bytes));
    for (uint64_t offset = 0; offset < bytes; offset += EVERY) {
        flip(world, path, offset);
        open_and_load(world, counts);
        assert_true(sc_io_sim_disk_resize(world->disk, path, bytes));
        assert_true(sc_io_sim_disk_poke(world->disk, path, 0, whole, bytes));
    }
}

/* Segments: open does not look into them. */
static void flip_segment(struct world *world, const char *path, uint64_t bytes,
                         struct counts *counts)
{
    world_open_ok(world);
    struct sc_store_reader *reader = world_reader(world);
    struct sc_store_selector *selector = selector_make(world);
    for (uint64_t offset = 0; offset < bytes && offset < FLIPPED_MAX; offset += EVERY) {
        flip(world, path, offset);
        load_all(world, reader, selector, counts);
        flip(world, path, offset);
    }
    sc_store_selector_close(selector);
    sc_store_readers_close(reader, 1);
    world_close(world);
}

/* Of key 2's first piece, so that the log has a record of every type. */
static void put_averages(struct world *world)
{
    static uint16_t codes[2 * 64];
    for (uint32_t i = 0; i < world->piece_count; i++) {
        const struct world_piece *piece = &world->pieces[i];
        struct sc_store_average average = {piece->id, 1, piece->row_count, codes};
        if (piece->key == 2)
            assert_int_equal(sc_store_average_put(world->store, &average, 1, NULL), SPEC_OK);
    }
}

static void store_every_flipped_byte_gives_right_rows_or_a_miss(void **state)
{
    (void)state;
    struct world *world = world_make(&small, 3);
    struct files files = {.count = 0};
    struct counts counts = {0};
    world->config.staging_bytes = 1u << 20;
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
    assert_int_equal(world_store(world, 2, 30, 120), SPEC_OK);
    assert_int_equal(world_store(world, 3, 0, 40), SPEC_OK);
    put_averages(world);
    world_close(world);
    sc_io_sim_disk_files(world->disk, list_file, &files);
    for (uint32_t f = 0; f < files.count; f++) {
        if (strstr(files.paths[f], "/seg-") != NULL)
            flip_segment(world, files.paths[f], files.sizes[f], &counts);
        else if (strstr(files.paths[f], "lock") == NULL) /* every open writes those */
            flip_metadata(world, files.paths[f], files.sizes[f], &counts);
    }
    print_message("%" PRIu64 " flips: %" PRIu64 " rows right, %" PRIu64 " loads missed, %" PRIu64
                  " opens refused; %" PRIu64 " of %" PRIu64 " selectors bad\n",
                  counts.flips, counts.rows, counts.missed, counts.refused,
                  counts.selector_keys_bad, counts.selectors);
    assert_true(counts.flips > FLIPPED_MAX / EVERY);
    assert_true(counts.missed > 100000 / EVERY);
    assert_true(counts.selector_keys_bad > 20000 / EVERY);
    struct counts after = {0};
    open_and_load(world, &after);
    assert_int_equal(after.missed + after.refused + after.selector_keys_bad, 0);
    assert_int_equal(after.selectors, 3 * small.layers);
    assert_int_equal(after.rows, 360 * small.layers);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_every_flipped_byte_gives_right_rows_or_a_miss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
