/* The store through its interface: what was written comes back, row by row, after a reopen too;
 * what cannot be believed is refused with a text. One body, several shapes and back ends.
 *
 * Threads: the fixture's. */
#include "tests/unit/store/store_fixture.h"

#include "store/internal.h"

static const struct world_setup setups[] = {
    {"sim, paired 1 KiB rows, 4 layers", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 4, 512, 0),
     WORLD_DISK(64, 4, 64)},
    {"sim, paired 768-byte rows, 30 layers", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 30, 384, 0),
     WORLD_DISK(64, 1, 128)},
    {"sim, paired 8 KiB rows, 3 layers", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 4096, 0),
     WORLD_DISK(256, 16, 1024)},
    {"sim, split 200-byte K rows, 5 layers", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 5, 200, 0),
     WORLD_DISK(64, 2, 64)},
    {"pread, paired 1 KiB rows, 4 layers, 2 threads", WORLD_ON(PREAD, 2),
     WORLD_SHAPE(PAIRED, 4, 512, 0), WORLD_DISK(64, 4, 64)},
    {"pread, split 1 KiB K rows, 2 layers, 2 threads", WORLD_ON(PREAD, 2),
     WORLD_SHAPE(SPLIT, 2, 1024, 0), WORLD_DISK(64, 4, 128)},
    {"sim, paired 1 KiB rows with probe rows of 96, 4 layers", WORLD_ON(SIM, 0),
     WORLD_SHAPE(PAIRED, 4, 512, 96), WORLD_DISK(64, 4, 64)},
    {"sim, paired 8 KiB rows with probe rows of 1,538, 3 layers", WORLD_ON(SIM, 0),
     WORLD_SHAPE(PAIRED, 3, 4096, 1538), WORLD_DISK(256, 16, 1024)},
    {"pread, split 200-byte K rows, all of them probed, 5 layers, 2 threads", WORLD_ON(PREAD, 2),
     WORLD_SHAPE(SPLIT, 5, 200, 200), WORLD_DISK(64, 2, 64)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static uint32_t count_names(const char *path)
{
    DIR *dir = opendir(path);
    uint32_t count = 0;
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    (void)closedir(dir);
    return count - 2;
}

static void check_all_layers(struct world *world, uint64_t key, uint64_t rows)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        struct loaded loaded = world_load_key(world, reader, layer, key);
        if (loaded.status != SPEC_OK)
            fail_msg("%s: layer %u: %s", world->setup->name, layer, world->error.text);
        assert_int_equal(loaded.rows, rows);
    }
    sc_store_readers_close(reader, 1);
}

static void store_rows_come_back_before_and_after_a_reopen(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_new(&setups[i], 7);
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
        assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
        assert_int_equal(world_store(world, 2, 10, 130), SPEC_OK);
        check_all_layers(world, 1, 324);
        check_all_layers(world, 2, 130);
        world_reopen(world);
        assert_int_equal(world->open_count, world->piece_count);
        check_all_layers(world, 1, 324);
        check_all_layers(world, 2, 130);
        world_free(world);
    }
}

/* ---- Ranges ---------------------------------------------------------------------------------- */

static void store_ranges_in_any_order_give_exactly_their_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_make(&setups[i], 11);
        uint64_t random = 100 + i;
        world_open_ok(world);
        assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
        assert_int_equal(world_store(world, 1, 200, 77), SPEC_OK);
        assert_int_equal(world_store(world, 2, 64, 100), SPEC_OK);
        struct sc_store_reader *reader = world_reader(world);
        for (uint32_t turn = 0; turn < 60; turn++) {
            struct sc_store_range ranges[12];
            const struct world_piece *twins[12];
            uint64_t count = 1 + random_below(&random, 12), rows = 0;
            uint64_t next = random_below(&random, world->piece_count);
            for (uint64_t r = 0; r < count; r++) {
                bool jumps = random_below(&random, 3) == 0;
                next = jumps ? random_below(&random, world->piece_count)
                             : (next + 1) % world->piece_count;
                twins[r] = &world->pieces[next];
                uint32_t first = 0, rest = twins[r]->row_count;
                if (random_below(&random, 2) == 0) {
                    first = (uint32_t)random_below(&random, rest);
                    rest = (uint32_t)random_below(&random, rest - first + 1);
                }
                ranges[r] = (struct sc_store_range){twins[r]->id, first, rest};
                rows += rest;
            }
            uint32_t layer = (uint32_t)random_below(&random, world->setup->layers);
            struct loaded loaded = world_load(world, reader, layer, ranges, twins, count);
            assert_int_equal(loaded.status, SPEC_OK);
            assert_int_equal(loaded.rows, rows);
        }
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

static void store_a_range_of_no_live_piece_fails_after_the_good_rows(void **state)
{
    (void)state;
    struct world *world = world_new(&setups[0], 3);
    assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
    struct sc_store_reader *reader = world_reader(world);
    const struct world_piece *good = &world->pieces[0];
    const uint64_t bad_ids[] = {0, 3, 77, 1u << 20, UINT64_MAX};
    for (uint32_t i = 0; i < 5; i++) {
        struct sc_store_range ranges[2] = {{good->id, 0, 64}, {bad_ids[i], 0, 1}};
        const struct world_piece *twins[2] = {good, good};
        struct loaded loaded = world_load(world, reader, 1, ranges, twins, 2);
        assert_int_equal(loaded.status, SPEC_E_CORRUPT);
        assert_int_equal(loaded.failed_range, 1);
        assert_int_equal(loaded.rows, 64);
    }
    struct sc_store_range longer = {good->id, 1, 64}; /* one row more than there is */
    struct loaded loaded = world_load(world, reader, 1, &longer, &good, 1);
    assert_int_equal(loaded.status, SPEC_E_CORRUPT);
    sc_store_readers_close(reader, 1);
    world_free(world);
}

/* ---- Damage ---------------------------------------------------------------------------------- */

/* Calls of sc_io_sim_disk_files: the first segment's path. */
static void find_segment(const char *path, uint64_t bytes, void *user)
{
    char *found = user;
    (void)bytes;
    if (found[0] == '\0' && strstr(path, "/seg-") != NULL)
        (void)snprintf(found, 256, "%s", path);
}

static void store_a_flipped_bit_fails_its_row_and_no_other_layer(void **state)
{
    (void)state;
    struct world *world = world_new(&setups[0], 3);
    char path[256] = "";
    assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
    sc_io_sim_disk_files(world->disk, find_segment, path);
    uint64_t offset = 128 * 8 + 70 * 1024 + 5; /* layer 0: tags, then row 70: the second piece */
    disk_flip(world, path, offset, 0x10);
    struct sc_store_reader *reader = world_reader(world);
    struct loaded loaded = world_load_key(world, reader, 0, 1);
    assert_int_equal(loaded.status, SPEC_E_CORRUPT);
    assert_int_equal(loaded.failed_range, 1);
    assert_int_equal(world_load_key(world, reader, 1, 1).rows, 128);
    assert_int_equal(world_load_piece(world, reader, 0, &world->pieces[0]).rows, 64);
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.corrupt_rows, 1);
    sc_store_piece_drop(world->store, world->pieces[1].id);
    assert_int_equal(world_load_piece(world, reader, 1, &world->pieces[1]).status, SPEC_E_CORRUPT);
    sc_store_readers_close(reader, 1);
    world_reopen(world);
    assert_true(world->pieces[0].seen);
    assert_false(world->pieces[1].seen);
    world_free(world);
}

/* ---- Space ----------------------------------------------------------------------------------- */

struct moved { /* rows of a load, each in two spans a part; every third is nobody's */
    uint8_t *rows;
    uint64_t row_bytes;
};

static void moved_spans(void *user, uint64_t row, uint64_t count, uint8_t **ret_spans)
{
    const struct moved *moved = user;
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t j = 0; j < 4; j++)
            *ret_spans++ = (row + i) % 3 == 0 ? NULL
                                              : moved->rows + (row + i) * moved->row_bytes +
                                                    j * moved->row_bytes / 4;
}

/* What a move leaves, up to the first row that failed, is what next hands out; ranges begin and end
 * inside pieces. */
static void expect_moved(struct world *world, struct sc_store_reader *reader, uint32_t layer,
                         uint64_t good, spec_status expected)
{
    const struct world_piece *a = &world->pieces[0], *b = &world->pieces[1];
    const struct sc_store_range ranges[] = {{.piece = b->id, .row_first = 1, .row_count = 9},
                                            {.piece = a->id, .row_first = 0, .row_count = 64},
                                            {.piece = b->id, .row_first = 3, .row_count = 60}};
    const struct world_piece *twins[] = {b, a, b};
    struct moved moved = {.row_bytes = 2 * world->setup->k_row_bytes};
    const struct sc_store_sink sink = {
        .spans = moved_spans, .user = &moved, .span_bytes = moved.row_bytes / 4};
    uint64_t bytes = 133 * moved.row_bytes;
    moved.rows = malloc(bytes);
    uint8_t *row = malloc(moved.row_bytes);
    assert_true(moved.rows != NULL && row != NULL);
    memset(moved.rows, 0xa5, bytes);
    struct sc_store_rows rows = {.row_count = 1};
    spec_status status = SPEC_OK;
    uint64_t came = 0;
    sc_store_reader_begin(reader, layer, ranges, 3, SC_IO_CLASS_DEMAND);
    for (; status == SPEC_OK && rows.row_count > 0; came += rows.row_count) {
        status = sc_store_reader_next(reader, SC_EXEC_FOREVER, &sink, &rows, NULL);
        assert_true(rows.rows == NULL && (rows.row_count == 0 || rows.row_first == came));
    }
    assert_int_equal(status, expected);
    assert_true(status != SPEC_OK || came == 133);
    for (uint64_t i = 0, range = 0, first = 0; i < (status == SPEC_OK ? came : good); i++) {
        while (i - first == ranges[range].row_count)
            first += ranges[range++].row_count;
        row_fill(row, moved.row_bytes, twins[range]->key, layer,
                 twins[range]->first_position + ranges[range].row_first + i - first);
        if (i % 3 == 0)
            memset(row, 0xa5, moved.row_bytes);
        bytes_equal(moved.rows + i * moved.row_bytes, row, moved.row_bytes);
    }
    free(row);
    free(moved.rows);
}

static void store_rows_move_where_the_sink_says(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_new(&setups[i], 3);
        char path[256] = "";
        assert_int_equal(world_store(world, 1, 0, 128), SPEC_OK);
        struct sc_store_reader *reader = world_reader(world);
        for (uint32_t layer = 0; layer < world->setup->layers; layer++)
            expect_moved(world, reader, layer, 133, SPEC_OK);
        if (i == 0) { /* layer 0: tags, then row 70, the second piece's seventh */
            uint64_t offset = 128 * 8 + 70 * 1024 + 5;
            sc_io_sim_disk_files(world->disk, find_segment, path);
            disk_flip(world, path, offset, 0x10);
            expect_moved(world, reader, 0, 5, SPEC_E_CORRUPT);
        }
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* ---- Many rows at once ------------------------------------------------------------------------
 */

#define TOGETHER 40u /* of the larger rows more than a bite */

static uint64_t most_packed; /* rows that one call asked for */

static void counting_pack(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                          uint8_t *dst)
{
    most_packed = row_count > most_packed ? row_count : most_packed;
    pass_pack(user, part, row_first, row_count, dst);
}

/* Of rows so large that a bite has one of them, or some: as many as were asked for. */
static void store_together(struct world *world, uint64_t rows_least)
{
    struct pass *pass = pass_make(world, 1, 0, 128);
    const struct sc_store_source source = {
        .pack = counting_pack, .rows_least = rows_least, .user = pass};
    assert_int_equal(pass_begin(pass), SPEC_OK);
    most_packed = 0;
    for (; pass->layer < world->setup->layers; pass->layer++)
        assert_int_equal(
            sc_store_extent_put_layer(pass->extent, pass->layer, &source, &pass->error), SPEC_OK);
    pass_wait(pass);
    assert_int_equal(pass->status, SPEC_OK);
    assert_true(most_packed >= TOGETHER && most_packed <= 128);
    pass_note(pass);
    pass_free(pass);
}

/* K and V of every row stand where the rows say; returns how many came at once at the most. */
static uint64_t expect_apart(struct world *world, struct sc_store_reader *reader, uint32_t layer)
{
    const struct sc_store_range ranges[] = {{.piece = world->pieces[0].id, .row_count = 64},
                                            {.piece = world->pieces[1].id, .row_count = 64}};
    uint64_t k_bytes = world->setup->k_row_bytes, came = 0, most = 0;
    uint8_t *row = malloc(2 * k_bytes);
    struct sc_store_rows rows = {.row_count = 1};
    assert_non_null(row);
    sc_store_reader_begin(reader, layer, ranges, 2, SC_IO_CLASS_DEMAND);
    for (; rows.row_count > 0; came += rows.row_count) {
        assert_int_equal(sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, NULL), SPEC_OK);
        assert_true(rows.row_count == 0 || rows.row_first == came);
        most = rows.row_count > most ? rows.row_count : most;
        for (uint64_t i = 0; i < rows.row_count; i++) {
            row_fill(row, 2 * k_bytes, 1, layer, came + i);
            bytes_equal(rows.rows + i * rows.stride, row, k_bytes);
            bytes_equal(rows.v + i * rows.stride, row + k_bytes, k_bytes);
        }
    }
    assert_int_equal(came, 128);
    free(row);
    return most;
}

static void store_rows_come_and_go_as_many_at_once_as_is_asked(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_make(&setups[i], 3);
        world->config.staging_bytes = 256 * setups[i].op_bytes; /* so that operations are as long */
        world_open_ok(world);
        store_together(world, TOGETHER);
        uint64_t bite = SC_STORE_BITE_BYTES / (2 * world->setup->k_row_bytes);
        struct sc_store_reader *reader = world_reader(world);
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            sc_store_reader_apart(reader, 0);
            assert_true(expect_apart(world, reader, layer) <= (bite > 0 ? bite : 1));
            sc_store_reader_apart(reader, TOGETHER);
            uint64_t most = expect_apart(world, reader, layer);
            bool has_room = world->setup->op_bytes >= 128 * 2 * world->setup->k_row_bytes;
            assert_true(!has_room || most >= TOGETHER);
            assert_true(most <= (bite > TOGETHER ? bite : TOGETHER));
        }
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

static void store_waste_is_under_a_tenth_for_short_passes(void **state)
{
    (void)state;
    static const struct world_setup shapes[] = {
        {.name = "opt-recall", .layers = 4, .k_row_bytes = 512},
        {.name = "smollm2", .layers = 30, .k_row_bytes = 384},
        {.name = "llama-3-8b fp16", .layers = 32, .k_row_bytes = 2048},
        {.name = "opt-6.7b fp16", .layers = 32, .k_row_bytes = 8192}};
    for (uint32_t i = 0; i < 4; i++) {
        struct world_setup setup = shapes[i];
        setup.backend = SC_BACKEND_SIM;
        setup.disk_bytes = 1u << 30;
        setup.segment_bytes = 64u << 20;
        setup.op_bytes = 1u << 20;
        struct world *world = world_make(&setup, 3);
        world->config.staging_bytes = 128u << 20;
        world_open_ok(world);
        uint64_t rows = 0;
        for (uint32_t turn = 0; turn < 10; turn++, rows += 23) {
            spec_status status = world_store(world, 1, rows, 23);
            if (status != SPEC_OK)
                fail_msg("%s: %s", setup.name, sc_status_name(status));
        }
        struct sc_store_stats stats = stats_of(world);
        double ratio =
            (double)stats.extent_bytes / (double)(rows * 2 * setup.k_row_bytes * setup.layers);
        print_message("%s: extent bytes / row bytes %.4f\n", setup.name, ratio);
        assert_true(ratio < 1.05);
        world_free(world);
    }
}

/* Stores keys until there is no space; returns how many fit. */
static uint64_t fill(struct world *world, uint64_t key_first)
{
    uint64_t key = key_first;
    struct sc_store_stats stats;
    for (;; key++) {
        spec_status status = world_store(world, key, 0, 150);
        sc_store_stats(world->store, &stats);
        assert_true(stats.disk_bytes_used <= stats.disk_bytes_max);
        if (status != SPEC_OK) {
            assert_int_equal(status, SPEC_E_NO_SPACE);
            return key - key_first;
        }
    }
}

static void store_stays_under_disk_bytes_and_reuses_dropped_space(void **state)
{
    (void)state;
    struct world_setup setup = setups[1];
    setup.disk_bytes = 24u << 20;
    for (uint32_t turn = 0; turn < 2; turn++) {
        struct world *world = world_new(&setup, 3);
        uint64_t first = fill(world, 1);
        assert_true(first >= 5); /* 24 MiB, 3.3 MiB each, and a short last segment */
        for (uint32_t i = 0; i < world->piece_count; i++) {
            if (world->pieces[i].key == 2 || world->pieces[i].key == 3) {
                sc_store_piece_drop(world->store, world->pieces[i].id);
                world->pieces[i].id = 0;
            }
        }
        if (turn == 1) { /* space that replay finds free is as good */
            world_reopen(world);
        }
        assert_int_equal(fill(world, 100), 2);
        for (uint64_t key = 1; key <= first; key++)
            if (key != 2 && key != 3)
                check_all_layers(world, key, 150);
        check_all_layers(world, 100, 150);
        world_reopen(world);
        check_all_layers(world, 1, 150);
        check_all_layers(world, 101, 150);
        world_free(world);
    }
}

static void store_of_a_smaller_disk_bytes_gives_up_empty_segments(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[0], 3);
    struct sc_store_stats stats;
    world_open_ok(world);
    for (uint64_t key = 1; key <= 40; key++)
        assert_int_equal(world_store(world, key, 0, 256), SPEC_OK); /* 1 MiB each */
    for (uint32_t i = 0; i < world->piece_count; i++)
        if (world->pieces[i].key > 4)
            sc_store_piece_drop(world->store, world->pieces[i].id);
    world_close(world);
    world->config.disk_bytes = 16u << 20;
    world_open_ok(world);
    sc_store_stats(world->store, &stats);
    assert_true(stats.disk_bytes_used <= 16u << 20);
    check_all_layers(world, 1, 256);
    world_free(world);
}

/* ---- Giving up, partial commits ---------------------------------------------------------------
 */

static void store_an_abort_or_discard_leaves_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_make(&setups[i], 3);
        struct sc_store_stats stats;
        world_open_ok(world);
        for (uint32_t layers = 0; layers <= setups[i].layers; layers++) {
            struct pass *pass = pass_make(world, 1, 0, 100);
            pass->discards = true;
            assert_int_equal(pass_begin(pass), SPEC_OK);
            for (uint32_t l = 0; l < layers; l++)
                assert_int_equal(pass_put(pass), SPEC_OK);
            if (layers < setups[i].layers)
                sc_store_extent_abort(pass->extent);
            pass_wait(pass);
            assert_int_equal(pass->status, layers < setups[i].layers ? SPEC_E_DROPPED : SPEC_OK);
            pass_free(pass);
            sc_store_stats(world->store, &stats);
            assert_int_equal(stats.extent_bytes, 0);
            assert_int_equal(stats.piece_count, 0);
        }
        world_reopen(world);
        assert_int_equal(world->open_count, 0);
        world_free(world);
    }
}

static void store_layers_out_of_order_and_lying_plans_are_refused(void **state)
{
    (void)state;
    struct world *world = world_new(&setups[0], 3);
    struct sc_store_stats stats;
    struct pass *pass = pass_make(world, 1, 0, 100);
    for (uint32_t put = 0; put < 2; put++) {
        assert_int_equal(pass_begin(pass), SPEC_OK);
        for (pass->layer = 0; pass->layer < put;)
            assert_int_equal(pass_put(pass), SPEC_OK);
        pass->layer = 1 - put; /* one too far, or the same again */
        assert_int_equal(pass_put(pass), SPEC_E_INVALID);
        pass_wait(pass);
        assert_int_equal(pass->status, SPEC_E_DROPPED);
        atomic_store(&pass->done, 0);
    }
    sc_store_stats(world->store, &stats);
    assert_int_equal(stats.extent_bytes, 0);
    pass->plans[1].first_position++;
    assert_int_equal(pass_begin(pass), SPEC_E_INVALID);
    pass->plans[1].first_position--;
    pass->plans[1].row_count = 0;
    assert_int_equal(pass_begin(pass), SPEC_E_INVALID);
    pass->plans[1].row_count = (uint32_t)sc_store_extent_rows_max(world->store);
    assert_int_equal(pass_begin(pass), SPEC_E_INVALID);
    pass->piece_count = 0;
    assert_int_equal(pass_begin(pass), SPEC_E_INVALID);
    pass_free(pass);
    world_free(world);
}

static void store_commit_of_later_pieces_only_and_with_a_skip(void **state)
{
    (void)state;
    struct world *world = world_new(&setups[0], 3);
    struct pass *pass = pass_make(world, 1, 40, 150); /* pieces at 40, 64, 128 */
    pass->commit.piece_first = 1;
    pass->commit.skip = 5;
    pass_run(pass);
    assert_int_equal(pass->first_id, 1);
    pass_note(pass);
    assert_int_equal(world->piece_count, 2);
    pass_free(pass);
    check_all_layers(world, 1, 126);
    pass = pass_make(world, 2, 0, 64); /* nothing of it is committed */
    pass->commit.piece_first = 1;
    pass_run(pass);
    assert_int_equal(pass->first_id, 0);
    pass_free(pass);
    world_reopen(world);
    assert_int_equal(world->open_count, 2);
    check_all_layers(world, 1, 126);
    world_free(world);
}

static void check_provenance(const struct world *world, uint64_t piece,
                             const struct sc_store_provenance *expected)
{
    struct sc_store_provenance kept;
    memset(&kept, 0xa5, sizeof(kept));
    assert_true(sc_store_piece_provenance(world->store, piece, &kept));
    assert_memory_equal(&kept, expected, sizeof(kept));
}

/* What the commit says counts, not what was expected when the pass began. */
static void store_provenance_is_kept_and_outlives_reopen_checkpoint_and_drop(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[0], 3);
    struct sc_store_provenance said = {.computed_on = 2,
                                       .bits_k = 4,
                                       .bits_v = 2,
                                       .exact_ppm = 50000,
                                       .retain_ppm = 1000000,
                                       .metric = 1};
    struct sc_store_provenance exact = {0}, other;
    world_open_ok(world);
    struct pass *pass = pass_make(world, 5, 0, 70); /* the twin expects 5 % 3 */
    pass->commit.provenance = &said;
    pass_run(pass);
    pass_note(pass);
    pass_free(pass);
    assert_int_equal(world_store(world, 3, 0, 10), SPEC_OK);
    for (uint32_t opened = 0; opened < 3; opened++) {
        check_provenance(world, 1, &said);
        check_provenance(world, 2, &said);
        check_provenance(world, 3, &exact);
        assert_false(sc_store_piece_provenance(world->store, 0, &other));
        assert_false(sc_store_piece_provenance(world->store, 4, &other));
        if (opened == 1)
            assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        world_reopen(world);
    }
    sc_store_piece_drop(world->store, 1); /* who reads it still wants to know */
    check_provenance(world, 1, &said);
    world_free(world);
}

static void store_full_staging_fails_the_extent_and_nothing_else(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[2], 3); /* 16 MiB of staging */
    world_open_ok(world);
    struct pass *pass = pass_make(world, 1, 0, 1000); /* 8 MB a layer; the loop is not stepped */
    assert_int_equal(pass_begin(pass), SPEC_OK);
    spec_status status = SPEC_OK;
    while (status == SPEC_OK)
        status = pass_put(pass);
    assert_int_equal(status, SPEC_E_BUSY);
    pass_wait(pass);
    assert_int_equal(pass->status, SPEC_E_BUSY);
    pass_free(pass);
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.staging_bytes_used, 0);
    assert_int_equal(stats.extent_bytes, 0);
    assert_true(stats.stage_full > 0);
    assert_int_equal(world_store(world, 2, 0, 100), SPEC_OK);
    check_all_layers(world, 2, 100);
    world_free(world);
}

/* ---- Readers --------------------------------------------------------------------------------- */

static void store_many_readers_progress_in_any_order_of_consumption(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_make(&setups[i], 3);
        struct sc_store_reader *readers[24];
        uint64_t rows = 0;
        world_open_ok(world);
        for (uint64_t key = 1; key <= 8; key++)
            assert_int_equal(world_store(world, key, 0, 256), SPEC_OK);
        struct sc_store_range ranges[32];
        for (uint32_t r = 0; r < 32; r++)
            ranges[r] = (struct sc_store_range){world->pieces[r].id, 0, 64};
        assert_int_equal(sc_store_readers_open(world->store, 24, readers, NULL), SPEC_OK);
        for (uint32_t r = 0; r < 24; r++) {
            enum sc_io_class io_class = r % 3 == 2 ? SC_IO_CLASS_SPECULATIVE : SC_IO_CLASS_DEMAND;
            sc_store_reader_begin(readers[r], r % setups[i].layers, ranges, 32, io_class);
        }
        for (uint32_t r = 24; r-- > 0;) { /* the last one begun is waited for first */
            struct sc_store_rows got;
            sc_store_reader_demand(readers[r]);
            do {
                assert_int_equal(
                    sc_store_reader_next(readers[r], SC_EXEC_FOREVER, NULL, &got, NULL), SPEC_OK);
                rows += got.row_count;
            } while (got.row_count > 0);
        }
        assert_int_equal(rows, 24 * 32 * 64);
        sc_store_readers_close(readers[0], 24);
        world_free(world);
    }
}

/* A thread that consumes one load; the rows were checked by others, here progress counts. */
struct consumer {
    struct sc_store_reader *reader;
    pthread_t thread;
    uint64_t rows;
};

static void *consumer_main(void *argument)
{
    struct consumer *consumer = argument;
    struct sc_store_rows got;
    while (sc_store_reader_next(consumer->reader, SC_EXEC_FOREVER, NULL, &got, NULL) == SPEC_OK &&
           got.row_count > 0)
        consumer->rows += got.row_count;
    return NULL;
}

static void store_starved_readers_share_the_spare_frame(void **state)
{
    (void)state;
    struct world_setup setup = setups[2]; /* 16 MiB of staging */
    setup.backend = SC_BACKEND_PREAD;
    setup.thread_count = 2;
    struct world *world = world_make(&setup, 3);
    struct sc_store_reader *hoards[32];
    uint32_t hoard_count = 0;
    struct consumer consumers[4];
    struct sc_store_range ranges[32];
    struct sc_store_stats stats;
    world_open_ok(world);
    for (uint64_t key = 1; key <= 8; key++) /* 2 MiB a layer, each */
        assert_int_equal(world_store(world, key, 0, 256), SPEC_OK);
    for (uint32_t r = 0; r < 32; r++)
        ranges[r] = (struct sc_store_range){world->pieces[r].id, 0, 64};
    do { /* nobody consumes these */
        assert_true(hoard_count < 32);
        hoards[hoard_count] = world_reader(world);
        sc_store_reader_begin(hoards[hoard_count++], 0, ranges, 32, SC_IO_CLASS_DEMAND);
        sc_store_stats(world->store, &stats);
    } while (stats.stage_full == 0);
    for (uint32_t i = 0; i < 4; i++) {
        consumers[i] = (struct consumer){.reader = world_reader(world)};
        sc_store_reader_begin(consumers[i].reader, 1, ranges, 32, SC_IO_CLASS_DEMAND);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&consumers[i].thread, NULL, consumer_main, &consumers[i]),
                         0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(consumers[i].thread, NULL), 0);
        assert_int_equal(consumers[i].rows, 32 * 64);
        sc_store_readers_close(consumers[i].reader, 1);
    }
    for (uint32_t i = 0; i < hoard_count; i++)
        sc_store_readers_close(hoards[i], 1);
    world_free(world);
}

static void store_cost_of_a_load_is_its_rows_tags_and_pages(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[0], 3);
    struct sc_store_read_cost cost;
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
    struct sc_store_reader *reader = world_reader(world);
    assert_int_equal(world_load_key(world, reader, 0, 1).rows, 256);
    sc_store_reader_cost(reader, &cost);
    assert_int_equal(cost.wanted_bytes, 256 * (1024 + 8));
    assert_true(cost.read_bytes >= cost.wanted_bytes);
    assert_true(cost.read_bytes <= cost.wanted_bytes + cost.op_count * 2 * 4096);
    assert_int_equal(cost.op_count, 5); /* 64 KiB each, the first with the tags */
    assert_true(cost.wait_ns > 0);
    struct sc_store_range range = {world->pieces[3].id, 10, 1};
    const struct world_piece *twin = &world->pieces[3];
    assert_int_equal(world_load(world, reader, 1, &range, &twin, 1).rows, 1);
    sc_store_reader_cost(reader, &cost);
    assert_int_equal(cost.op_count, 2); /* its tag lies far in front */
    assert_int_equal(cost.wanted_bytes, 1024 + 8);
    assert_true(cost.read_bytes <= 4 * 4096);
    sc_store_readers_close(reader, 1);
    world_free(world);
}

/* 40 MiB of one layer in five extents, while nobody consumes: 16 operations go out, then at least 8
 * at a time. */
static void store_operations_go_out_in_batches_of_one_size(void **state)
{
    (void)state;
    static const struct world_setup setup = {"one layer of 64 KiB K rows", WORLD_ON(SIM, 0),
                                             WORLD_SHAPE(PAIRED, 1, 65536, 0),
                                             WORLD_DISK(128, 64, 1024)};
    enum { ROWS = 320, FLIGHT = 16 };
    struct world *world = world_make(&setup, 3);
    world->config.staging_bytes = 256u << 20;
    struct sc_store_range ranges[ROWS / 64];
    struct sc_store_stats stats;
    struct sc_store_rows got;
    struct sc_store_read_cost cost;
    world_open_ok(world);
    for (uint32_t i = 0; i < ROWS / 64; i++)
        assert_int_equal(world_store(world, 1 + i, 0, 64), SPEC_OK);
    for (uint32_t i = 0; i < ROWS / 64; i++)
        ranges[i] = (struct sc_store_range){world->pieces[i].id, 0, 64};
    struct sc_store_reader *reader = world_reader(world);
    sc_store_reader_begin(reader, 0, ranges, ROWS / 64, SC_IO_CLASS_DEMAND);
    sc_store_stats(world->store, &stats);
    assert_int_equal(stats.read_ops, FLIGHT);
    uint64_t seen = FLIGHT, batches = 1;
    while (sc_exec_step_one(world->exec)) {
        sc_store_stats(world->store, &stats);
        if (stats.read_ops == seen)
            continue;
        sc_store_reader_cost(reader, &cost);
        if (cost.read_bytes < (uint64_t)ROWS * 131072) /* not the last */
            assert_true(stats.read_ops - seen >= FLIGHT / 2);
        seen = stats.read_ops;
        batches++;
    }
    assert_true(batches <= 1 + (seen - FLIGHT + FLIGHT / 2 - 1) / (FLIGHT / 2));
    uint64_t rows = 0;
    do {
        assert_int_equal(sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, NULL), SPEC_OK);
        rows += got.row_count;
    } while (got.row_count > 0);
    assert_int_equal(rows, ROWS);
    sc_store_reader_cost(reader, &cost);
    assert_int_equal(cost.op_count, ROWS / 8); /* 1 MiB each, the first of an extent with tags */
    sc_store_readers_close(reader, 1);
    world_free(world);
}

/* A layer of 64 rows of 16 KiB and its page of tags: the frame's spare pages take them. */
static void store_a_mebibyte_of_rows_and_its_tags_are_two_halves(void **state)
{
    (void)state;
    static const struct world_setup setup = {"two layers of 8 KiB K rows", WORLD_ON(SIM, 0),
                                             WORLD_SHAPE(PAIRED, 2, 8192, 0),
                                             WORLD_DISK(64, 16, 1024)};
    struct world *world = world_make(&setup, 3);
    struct sc_store_read_cost cost;
    world->config.staging_bytes = 256u << 20;
    world_open_ok(world);
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t mebibytes = 1; mebibytes <= 3; mebibytes++) {
        assert_int_equal(world_store(world, mebibytes, 0, mebibytes * 64), SPEC_OK);
        assert_int_equal(world_load_key(world, reader, 1, mebibytes).rows, mebibytes * 64);
        sc_store_reader_cost(reader, &cost);
        assert_int_equal(cost.op_count, mebibytes == 1 ? 2 : mebibytes);
        assert_int_equal(cost.read_bytes, (mebibytes << 20) + 4096);
    }
    /* Beside a request that loads two layers it is one: devices are busy as it is. */
    struct sc_store_reader *others[2];
    struct sc_store_range range = {world->pieces[0].id, 0, 64};
    for (uint32_t i = 0; i < 2; i++) {
        others[i] = world_reader(world);
        sc_store_reader_begin(others[i], i, &range, 1, SC_IO_CLASS_SPECULATIVE);
        assert_int_equal(world_load_key(world, reader, 1, 1).rows, 64);
        sc_store_reader_cost(reader, &cost);
        assert_int_equal(cost.op_count, i == 0 ? 2 : 1);
    }
    for (uint32_t i = 0; i < 2; i++)
        sc_store_readers_close(others[i], 1);
    sc_store_readers_close(reader, 1);
    world_free(world);
}

static void store_more_extents_at_once_than_there_are_is_busy(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[0], 3);
    struct pass *passes[8 * 8 + 257];
    uint32_t begun = 0;
    world_open_ok(world);
    for (; begun < sizeof(passes) / sizeof(passes[0]); begun++) {
        passes[begun] = pass_make(world, 1 + begun, 0, 20);
        spec_status status = pass_begin(passes[begun]);
        if (status != SPEC_OK) {
            assert_int_equal(status, SPEC_E_BUSY);
            pass_free(passes[begun]);
            break;
        }
    }
    assert_int_equal(begun, 8 * 8 + 256); /* of max_requests, turn after turn */
    for (uint32_t i = 0; i < begun; i++) {
        sc_store_extent_abort(passes[i]->extent);
        pass_wait(passes[i]);
        pass_free(passes[i]);
    }
    assert_int_equal(world_store(world, 100, 0, 20), SPEC_OK);
    world_free(world);
}

static void store_cancelled_loads_leave_nothing_behind(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_make(&setups[i], 3);
        uint64_t random = 5;
        struct sc_store_rows got;
        struct sc_store_stats stats;
        world_open_ok(world);
        assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
        struct sc_store_reader *reader = world_reader(world);
        struct sc_store_range ranges[4];
        for (uint32_t r = 0; r < 4; r++)
            ranges[r] = (struct sc_store_range){world->pieces[r].id, 0, 64};
        for (uint32_t turn = 0; turn < 100; turn++) {
            uint32_t layer = (uint32_t)random_below(&random, setups[i].layers);
            sc_store_reader_begin(reader, layer, ranges, 4, SC_IO_CLASS_SPECULATIVE);
            for (uint64_t n = random_below(&random, 3); n > 0; n--)
                (void)sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, NULL);
            if (random_below(&random, 2) == 0)
                sc_store_reader_cancel(reader);
            struct loaded loaded = world_load_key(world, reader, layer, 1);
            assert_int_equal(loaded.status, SPEC_OK);
            assert_int_equal(loaded.rows, 256);
        }
        sc_store_readers_close(reader, 1);
        sc_store_stats(world->store, &stats);
        assert_int_equal(stats.staging_bytes_used, 0);
        world_free(world);
    }
}

static void store_an_operation_that_never_completes_times_out(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[0], 3);
    struct sc_store_rows got;
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    struct sc_store_reader *reader = world_reader(world);
    struct sc_store_range range = {world->pieces[0].id, 0, 64};
    sc_io_sim_fault_nth(world->disk, SC_SIM_NEVER, 0);
    sc_store_reader_begin(reader, 0, &range, 1, SC_IO_CLASS_DEMAND);
    uint64_t deadline_ns = sc_exec_now_ns(world->exec) + 1000000;
    assert_int_equal(sc_store_reader_next(reader, deadline_ns, NULL, &got, NULL), SPEC_E_TIMEOUT);
    assert_int_equal(got.row_count, 0);
    sc_store_reader_cancel(reader);
    assert_int_equal(world_load_key(world, reader, 1, 1).rows, 64); /* beside the stuck one */
    assert_int_equal(sc_io_sim_release_all(world->disk), 1);
    assert_int_equal(world_load_key(world, reader, 2, 1).rows, 64);
    sc_store_readers_close(reader, 1);
    world_free(world);
}

static void store_paths_of_layers_and_requests_allocate_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_new(&setups[i], 3);
        struct sc_store_reader *reader = world_reader(world);
        sc_alloc_seal(&world->alloc);
        assert_int_equal(world_store(world, 1, 0, 256), SPEC_OK);
        assert_int_equal(world_load_key(world, reader, 0, 1).rows, 256);
        sc_store_piece_drop(world->store, world->pieces[0].id);
        sc_alloc_unseal(&world->alloc);
        assert_int_equal(atomic_load(&world->alloc.sealed_refusals), 0);
        sc_store_readers_close(reader, 1);
        world_free(world);
    }
}

/* ---- Namespaces, ranks, replay's callback ------------------------------------------------------
 */

static void store_keeps_namespaces_and_ranks_apart(void **state)
{
    (void)state;
    struct world *world = world_new(&setups[0], 3);
    assert_int_equal(world_store(world, 1, 0, 100), SPEC_OK);
    world_close(world);
    world->params.space.digest[0] ^= 1; /* other weights, say, and another shape */
    world->params.space.layer_count = 2;
    struct world_setup other = setups[0];
    other.layers = 2;
    world->setup = &other;
    world_open_ok(world);
    assert_int_equal(world->open_count, 0);
    struct sc_store_reader *reader = world_reader(world);
    assert_int_equal(world_load_piece(world, reader, 0, &world->pieces[0]).status, SPEC_E_CORRUPT);
    sc_store_readers_close(reader, 1);
    assert_int_equal(world_store(world, 2, 0, 100), SPEC_OK);
    check_all_layers(world, 2, 100);
    world_close(world);
    world->params.rank = 1;
    world->params.rank_count = 2;
    world_open_ok(world);
    assert_int_equal(world->open_count, 0);
    world_close(world);
    world->params.rank = 0;
    world->params.rank_count = 1;
    world->params.space.digest[0] ^= 1;
    world->params.space.layer_count = 4;
    world->setup = &setups[0];
    world_open_ok(world);
    assert_int_equal(world->open_count, 2);
    check_all_layers(world, 1, 100);
    world_free(world);
}

struct rank {
    struct world *world;
    struct sc_store_params params;
    struct sc_store *store;
    pthread_t thread;
    spec_status status;
    struct spec_error error;
};

#define LOCK_WAIT_NS 5000000000ull /* so long open waits for a rank that makes the identity */

/* One that syncs to a slow disk, or stands, is waited for again; LOCKED at once is wrong. */
static void *rank_main(void *argument)
{
    struct rank *rank = argument;
    struct sc_exec *exec = rank->world->exec;
    uint64_t begin_ns;
    do {
        begin_ns = sc_exec_now_ns(exec);
        rank->error = (struct spec_error){.struct_size = sizeof(rank->error)};
        rank->status = sc_store_open(&rank->params, &rank->store, &rank->error);
    } while (rank->status == SPEC_E_LOCKED && sc_exec_now_ns(exec) - begin_ns >= LOCK_WAIT_NS);
    return NULL;
}

static void store_ranks_that_start_together_agree_on_one_identity(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 10; turn++) {
        struct world *world = world_make(&setups[4], turn);
        struct rank ranks[6] = {0};
        for (uint32_t i = 0; i < 6; i++) {
            ranks[i].world = world;
            ranks[i].params = world->params;
            ranks[i].params.rank = i;
            ranks[i].params.rank_count = 6;
            assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
        }
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
        for (uint32_t i = 0; i < 6; i++) {
            if (ranks[i].status != SPEC_OK)
                fail_msg("rank %u: %s", i, ranks[i].error.text);
            sc_store_close(ranks[i].store);
        }
        assert_int_equal(count_names(world->config.path), 2 + 6);
        world_free(world);
    }
}

static struct sc_store_mark told_marks[8];
static uint32_t told_mark_count, told_skip;

static bool note_marks(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    (void)ret_mark;
    (void)user;
    for (uint32_t i = 0; i < piece->mark_count; i++)
        told_marks[told_mark_count++ % 8] = piece->marks[i];
    told_skip += piece->skip;
    return true;
}

static void store_marks_and_skip_survive_a_reopen(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[0], 3);
    const struct sc_store_mark marks[4] = {{.token = 3, .digest = {1}},
                                           {.token = 70, .digest = {2}},
                                           {.token = 70, .digest = {3}},
                                           {.token = 127, .digest = {4}}};
    world_open_ok(world);
    struct pass *pass = pass_make(world, 1, 80, 100); /* pieces at 80 (chunk 64) and 128 */
    pass->commit.marks = marks;
    pass->commit.mark_count = 4;
    pass->commit.skip = 7;
    pass_run(pass);
    pass_free(pass);
    world_close(world);
    told_mark_count = told_skip = 0;
    world->params.on_piece = note_marks;
    world_open_ok(world);
    assert_int_equal(told_mark_count, 3); /* token 3 lies before the first chunk */
    assert_memory_equal(told_marks, &marks[1], 3 * sizeof(marks[0]));
    assert_int_equal(told_skip, 7);
    world_free(world);
}

/* The log's first piece has other tokens than its hash says. */
static bool first_does_not_hold(const struct sc_store_piece *piece, void *user)
{
    (void)user;
    return piece->id != 1;
}

static void refused_piece_is_dropped_for_good(bool by_hash)
{
    struct world *world = world_make(&setups[0], 3);
    struct sc_store_stats stats;
    world_open_ok(world);
    world_store_two(world, 64, 64);
    world_close(world);
    world->refuse_id = by_hash ? 0 : 1;
    world->params.piece_holds = by_hash ? first_does_not_hold : NULL;
    world_open_ok(world);
    assert_int_equal(world->open_count, 1); /* nobody was told of the other */
    sc_store_stats(world->store, &stats);
    assert_int_equal(stats.piece_count, 1);
    assert_int_equal(stats.extent_count, 1);
    assert_int_equal(world_store(world, 3, 0, 64), SPEC_OK); /* in its place */
    world_close(world);
    world->refuse_id = 0;
    world->params.piece_holds = NULL;
    world_open_ok(world);
    assert_false(world->pieces[0].seen);
    check_all_layers(world, 2, 64);
    check_all_layers(world, 3, 64);
    world_free(world);
}

static void store_a_refused_piece_is_dropped_for_good(void **state)
{
    (void)state;
    refused_piece_is_dropped_for_good(false);
    refused_piece_is_dropped_for_good(true);
}

/* ---- Refusals at open --------------------------------------------------------------------------
 */

static void store_refuses_a_foreign_directory_and_leaves_it_alone(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[4], 3);
    assert_int_equal(mkdir(world->config.path, 0700), 0);
    write_file(world->config.path, "thesis.tex", "text");
    assert_int_equal(world_open(world), SPEC_E_VERSION);
    assert_non_null(strstr(world->error.text, "found thesis.tex"));
    assert_int_equal(count_names(world->config.path), 1);
    remove_tree(world->config.path);
    assert_int_equal(mkdir(world->config.path, 0700), 0);
    write_file(world->config.path, "store.msgpack", "not a store at all");
    assert_int_equal(world_open(world), SPEC_E_VERSION);
    assert_int_equal(count_names(world->config.path), 1);
    world_free(world);
}

/* Made by tools/make_store_vectors.py after docs/reference/store-format.md, apart from store/:
 * two layers of ten rows, of positions 60 .. 69, whose keys are 16 bytes, six of them probed. */
static void store_layers_are_the_formats_to_the_byte(void **state)
{
    (void)state;
    static const char *const names[] = {"layers-paired.bin", "layers-split.bin"};
    for (uint32_t layout = SC_STORE_PAIRED; layout <= SC_STORE_SPLIT; layout++) {
        struct world_setup setup = setups[0];
        char path[SC_LIMIT_PATH_BYTES];
        uint8_t golden[4096] = {0}, bytes[4096];
        setup.layers = 2;
        setup.layout = layout;
        setup.k_row_bytes = 16;
        setup.probe_row_bytes = 6;
        (void)snprintf(path, sizeof(path), "%s/tests/data/store/%s", SC_SOURCE_DIR, names[layout]);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        assert_true(fread(golden, 1, sizeof(golden), file) > 900);
        assert_int_equal(fclose(file), 0);
        struct world *world = world_new(&setup, 3);
        atomic_store(&world->store->copy_next, UINT64_C(0x0102030405060708));
        assert_int_equal(world_store(world, 5, 60, 10), SPEC_OK);
        assert_true(sc_io_sim_disk_peek(world->disk, "/sim/store/rank-0000-of-0001/seg-00000000", 0,
                                        bytes, sizeof(bytes)));
        assert_memory_equal(bytes, golden, sizeof(bytes)); /* zeros to the page's end */
        world_free(world);
    }
}

#define SECRET_FIELD_BYTES (7u + 2u + SC_STORE_SECRET_BYTES) /* the last of an identity */

/* The identity that is there becomes another one. */
static void identity_poke(struct world *world, uint64_t version, bool has_secret)
{
    uint8_t bytes[4096] = {0};
    struct sc_store_writer writer = {bytes, 0, sizeof(bytes), false};
    struct sc_store_identity identity = {.version = version};
    uint64_t chain = 0, frame = sc_store_old_frame_begin(&writer);
    sc_store_record_encode_identity(&writer, &identity);
    assert_int_equal(bytes[SC_STORE_OLD_FRAME_BYTES], 0x85);
    if (!has_secret) {
        writer.used -= SECRET_FIELD_BYTES;
        bytes[SC_STORE_OLD_FRAME_BYTES] = 0x84;
    }
    sc_store_old_frame_end(&writer, frame, 0, &chain);
    const char *path = "/sim/store/store.msgpack";
    assert_true(sc_io_sim_disk_resize(world->disk, path, writer.used));
    assert_true(sc_io_sim_disk_poke(world->disk, path, 0, bytes, writer.used));
}

static void store_refuses_a_newer_format_naming_both_versions(void **state)
{
    (void)state;
    struct world *world = world_new(&setups[0], 3);
    world_close(world);
    identity_poke(world, 9, true);
    assert_int_equal(world_open(world), SPEC_E_VERSION);
    assert_non_null(strstr(world->error.text, "format 9"));
    assert_non_null(strstr(world->error.text, "reads 4 to 5"));
    world_free(world);
}

/* Whoever has one of before is told what to do; one of now without a secret is none. */
static void store_refuses_an_older_format_and_one_without_a_secret(void **state)
{
    (void)state;
    struct world *world = world_new(&setups[0], 3);
    world_close(world);
    identity_poke(world, 3, false);
    assert_int_equal(world_open(world), SPEC_E_VERSION);
    assert_non_null(strstr(world->error.text, "format 3"));
    assert_non_null(strstr(world->error.text, "reads 4 to 5"));
    assert_non_null(strstr(world->error.text, "remove the directory"));
    identity_poke(world, SC_STORE_FORMAT_VERSION, false);
    assert_int_equal(world_open(world), SPEC_E_VERSION);
    assert_non_null(strstr(world->error.text, "not ours"));
    identity_poke(world, SC_STORE_FORMAT_VERSION, true);
    assert_int_equal(world_open(world), SPEC_OK);
    world_close(world);
    world_free(world);
}

static uint8_t told_secrets[8][SC_STORE_SECRET_BYTES];
static uint32_t told_secret_count;
static spec_status secret_status;

static spec_status on_secret(const uint8_t secret[SC_STORE_SECRET_BYTES], void *user,
                             struct spec_error *reterr)
{
    (void)user;
    (void)reterr;
    memcpy(told_secrets[told_secret_count++ % 8], secret, SC_STORE_SECRET_BYTES);
    return secret_status;
}

/* Drawn once a store, told at every open, the same by every process; nobody else may read it. */
static void store_tells_its_secret_which_stays(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i += 4) { /* sim, pread */
        struct world *world = world_make(&setups[i], 3);
        told_secret_count = 0;
        secret_status = SPEC_OK;
        world->params.on_secret = on_secret;
        world_open_ok(world);
        world_reopen(world);
        struct sc_store_params beside = world->params;
        struct sc_store *reader = NULL;
        beside.role = SC_STORE_READER;
        assert_int_equal(sc_store_open(&beside, &reader, &world->error), SPEC_OK);
        sc_store_close(reader);
        world_close(world);
        assert_int_equal(told_secret_count, 3);
        static const uint8_t none[SC_STORE_SECRET_BYTES];
        assert_memory_not_equal(told_secrets[0], none, sizeof(none));
        assert_memory_equal(told_secrets[0], told_secrets[1], sizeof(none));
        assert_memory_equal(told_secrets[0], told_secrets[2], sizeof(none));
        secret_status = SPEC_E_NO_MEMORY;
        assert_int_equal(world_open(world), SPEC_E_NO_MEMORY);
        struct stat info;
        char path[sizeof(world->config.path) + 32];
        (void)snprintf(path, sizeof(path), "%s/store.msgpack", world->config.path);
        if (i > 0) {
            assert_int_equal(stat(path, &info), 0);
            assert_int_equal(info.st_mode & 0777, 0600);
        }
        world_free(world);
    }
}

static void store_refuses_a_second_writer_and_a_missing_parent(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i += 4) { /* sim, pread */
        struct world *world = world_make(&setups[i], 3);
        struct sc_store *second = NULL;
        world_open_ok(world);
        assert_int_equal(sc_store_open(&world->params, &second, &world->error), SPEC_E_LOCKED);
        assert_null(second);
        world_reopen(world);
        world_close(world);
        strcat(world->config.path, "/no/such");
        assert_int_equal(world_open(world), SPEC_E_IO);
        assert_int_not_equal(world->error.sys_errno, 0);
        world_free(world);
    }
}

/* Also true for root, whom permission bits do not bind. */
static void store_refuses_what_cannot_be_written(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[4], 3);
    char path[SC_LIMIT_PATH_BYTES];
    memcpy(path, world->config.path, sizeof(path));
    write_file(world->root, "file", "text");
    (void)snprintf(world->config.path, sizeof(world->config.path), "%.60s/file", world->root);
    assert_int_equal(world_open(world), SPEC_E_IO); /* a file, no directory */
    (void)snprintf(world->config.path, sizeof(world->config.path), "/proc/spec");
    assert_int_equal(world_open(world), SPEC_E_IO); /* a file system that takes none */
    memcpy(world->config.path, path, sizeof(path));
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    world_close(world);
    strcat(path, "/rank-0000-of-0001/log");
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(world_open(world), SPEC_E_IO); /* the log is a directory */
    world_free(world);
}

static void store_refuses_shapes_that_do_not_fit(void **state)
{
    (void)state;
    struct world *world = world_make(&setups[0], 3);
    world->params.space.k_row_bytes = 33u << 10; /* a row over op_bytes */
    assert_int_equal(world_open(world), SPEC_E_UNSUPPORTED);
    world->params.space.k_row_bytes = 512;
    world->params.space.layer_count = 0;
    assert_int_equal(world_open(world), SPEC_E_INVALID);
    world->params.space.layer_count = 4;
    world->params.rank = 1;
    assert_int_equal(world_open(world), SPEC_E_INVALID);
    world->params.rank = 0;
    world->config.disk_bytes = 1u << 20;
    assert_int_equal(world_open(world), SPEC_E_NO_SPACE);
    world->config.disk_bytes = 0; /* half of what is free: 20 GiB at most */
    world_open_ok(world);
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.disk_bytes_max, 20ull << 30);
    world_free(world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_rows_come_back_before_and_after_a_reopen),
        cmocka_unit_test(store_ranges_in_any_order_give_exactly_their_rows),
        cmocka_unit_test(store_a_range_of_no_live_piece_fails_after_the_good_rows),
        cmocka_unit_test(store_a_flipped_bit_fails_its_row_and_no_other_layer),
        cmocka_unit_test(store_rows_move_where_the_sink_says),
        cmocka_unit_test(store_rows_come_and_go_as_many_at_once_as_is_asked),
        cmocka_unit_test(store_waste_is_under_a_tenth_for_short_passes),
        cmocka_unit_test(store_stays_under_disk_bytes_and_reuses_dropped_space),
        cmocka_unit_test(store_of_a_smaller_disk_bytes_gives_up_empty_segments),
        cmocka_unit_test(store_an_abort_or_discard_leaves_nothing),
        cmocka_unit_test(store_layers_out_of_order_and_lying_plans_are_refused),
        cmocka_unit_test(store_commit_of_later_pieces_only_and_with_a_skip),
        cmocka_unit_test(store_provenance_is_kept_and_outlives_reopen_checkpoint_and_drop),
        cmocka_unit_test(store_full_staging_fails_the_extent_and_nothing_else),
        cmocka_unit_test(store_many_readers_progress_in_any_order_of_consumption),
        cmocka_unit_test(store_starved_readers_share_the_spare_frame),
        cmocka_unit_test(store_cost_of_a_load_is_its_rows_tags_and_pages),
        cmocka_unit_test(store_operations_go_out_in_batches_of_one_size),
        cmocka_unit_test(store_a_mebibyte_of_rows_and_its_tags_are_two_halves),
        cmocka_unit_test(store_more_extents_at_once_than_there_are_is_busy),
        cmocka_unit_test(store_cancelled_loads_leave_nothing_behind),
        cmocka_unit_test(store_an_operation_that_never_completes_times_out),
        cmocka_unit_test(store_paths_of_layers_and_requests_allocate_nothing),
        cmocka_unit_test(store_keeps_namespaces_and_ranks_apart),
        cmocka_unit_test(store_ranks_that_start_together_agree_on_one_identity),
        cmocka_unit_test(store_marks_and_skip_survive_a_reopen),
        cmocka_unit_test(store_a_refused_piece_is_dropped_for_good),
        cmocka_unit_test(store_refuses_a_foreign_directory_and_leaves_it_alone),
        cmocka_unit_test(store_layers_are_the_formats_to_the_byte),
        cmocka_unit_test(store_refuses_a_newer_format_naming_both_versions),
        cmocka_unit_test(store_refuses_an_older_format_and_one_without_a_secret),
        cmocka_unit_test(store_tells_its_secret_which_stays),
        cmocka_unit_test(store_refuses_a_second_writer_and_a_missing_parent),
        cmocka_unit_test(store_refuses_what_cannot_be_written),
        cmocka_unit_test(store_refuses_shapes_that_do_not_fit),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
