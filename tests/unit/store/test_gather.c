/* Loads of picks (store/read/gather_plan.h, store/read/reader.c): random picks of random pieces, in
 * every layout and by both planners, beside a twin that makes each row anew; faults; loads begun on
 * a guess.
 *
 * Holds: what comes is exactly the picks, in their order, or an error at the range of the next one.
 * Threads: the fixture's. */
#include "tests/unit/store/selector_check.h"

#include "store/read/gather_plan.h"

#define PAGE       4096u
#define ROWS_MAX   4096u
#define RANGES_MAX 64u
#define ROUNDS     24u

static const struct world_setup setups[] = {
    {"sim, paired 768-byte rows", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 384, 0),
     WORLD_DISK(256, 4, 64)},
    {"sim, paired 8 KiB rows", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 4096, 0),
     WORLD_DISK(256, 16, 128)},
    {"sim, split 520-byte K rows", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 2, 520, 0),
     WORLD_DISK(256, 4, 64)},
    {"sim, split 6 KiB K rows, slabs of several operations", WORLD_ON(SIM, 0),
     WORLD_SHAPE(SPLIT, 2, 6144, 0), WORLD_DISK(256, 16, 128)},
    {"pread, paired 4 KiB rows, 2 threads", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 2, 2048, 0),
     WORLD_DISK(256, 16, 128)},
    /* AUTO: io_uring where it works. */
    {"io_uring, paired 4 KiB rows", WORLD_ON(AUTO, 2), WORLD_SHAPE(PAIRED, 2, 2048, 0),
     WORLD_DISK(256, 16, 128)},
    {"io_uring, split 1 KiB K rows", WORLD_ON(AUTO, 2), WORLD_SHAPE(SPLIT, 2, 1024, 0),
     WORLD_DISK(256, 16, 128)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

/* ThreadSanitizer has nothing to find in one thread, and takes minutes for it. */
#ifdef SC_SANITIZED_THREAD
#define FIRST 4u
#else
#define FIRST 0u
#endif

struct scene { /* ranges of stored pieces, and a load of picks of them */
    struct world *world;
    struct sc_store_reader *reader;
    uint32_t layer;
    uint64_t row_bytes, k_bytes, tag_step;
    struct sc_store_range ranges[RANGES_MAX];
    const struct world_piece *twins[RANGES_MAX];
    uint64_t range_count, row_count;
    uint32_t row_range[ROWS_MAX]; /* range of each logical row, */
    uint64_t row_index[ROWS_MAX]; /* and which of the range's it is */
    uint64_t *tags;
    uint32_t picks[ROWS_MAX];
    struct sc_store_gather_rows load;
    uint8_t *expected;
};

static uint64_t scene_position(const struct scene *scene, uint64_t row)
{
    uint32_t range = scene->row_range[row];
    return scene->twins[range]->first_position + scene->ranges[range].row_first +
           scene->row_index[row];
}

static void scene_row(const struct scene *scene, uint64_t row)
{
    row_fill(scene->expected, scene->row_bytes, scene->twins[scene->row_range[row]]->key,
             scene->layer, scene_position(scene, row));
}

/* Tags as the format has them, from the rows as they must be. */
static void scene_tags(struct scene *scene)
{
    bool is_paired = scene->world->setup->layout == SC_STORE_PAIRED;
    for (uint64_t row = 0; row < scene->row_count; row++) {
        const struct world_piece *twin = scene->twins[scene->row_range[row]];
        uint8_t hash[16];
        hash_of(twin->key, twin->first_position + twin->row_count, hash);
        scene_row(scene, row);
        for (uint32_t part = 0; part < scene->tag_step; part++) {
            const struct sc_store_tag_rows one = {
                .base = sc_store_tag_base(scene->world->params.space.digest, hash,
                                          copy_of(scene->world, twin->id), scene->layer,
                                          is_paired ? SC_STORE_PART_ROW : SC_STORE_PART_K + part),
                .position_first = scene_position(scene, row),
                .row_bytes = is_paired ? scene->row_bytes : scene->k_bytes,
                .count = 1};
            sc_store_tag_make(&one, scene->expected + part * scene->k_bytes,
                              scene->tags + row * scene->tag_step + part);
        }
    }
}

/* Ranges of stored pieces in any order, some part of a piece, some empty; logical rows of them. */
static void scene_ranges(struct scene *scene, uint64_t *random, bool whole)
{
    struct world *world = scene->world;
    uint64_t at = whole ? 0 : random_below(random, world->piece_count);
    scene->range_count = 1 + random_below(random, RANGES_MAX);
    scene->range_count = whole ? world->piece_count : scene->range_count;
    scene->row_count = 0;
    assert_true(scene->range_count <= RANGES_MAX);
    for (uint64_t i = 0; i < scene->range_count; i++) {
        const struct world_piece *twin = &world->pieces[at % world->piece_count];
        struct sc_store_range *range = &scene->ranges[i];
        *range = (struct sc_store_range){.piece = twin->id, .row_count = twin->row_count};
        if (!whole && random_below(random, 4) == 0) {
            range->row_first = (uint32_t)random_below(random, twin->row_count + 1);
            range->row_count =
                (uint32_t)random_below(random, twin->row_count - range->row_first + 1);
        }
        scene->twins[i] = twin;
        for (uint32_t j = 0; j < range->row_count; j++) {
            scene->row_range[scene->row_count] = (uint32_t)i;
            scene->row_index[scene->row_count++] = j;
        }
        at = whole || random_below(random, 4) > 0 ? at + 1
                                                  : random_below(random, world->piece_count);
    }
    scene_tags(scene);
}

/* Of every `one_in` rows one is picked, in clusters of `cluster`; shuffled in part when asked. */
static void scene_picks(struct scene *scene, uint64_t *random, uint64_t one_in, uint64_t cluster,
                        bool is_shuffled)
{
    uint64_t count = 0;
    for (uint64_t row = 0; row < scene->row_count;) {
        bool is_picked = random_below(random, one_in) == 0;
        for (uint64_t i = 0; i < cluster && row < scene->row_count; i++, row++)
            if (is_picked)
                scene->picks[count++] = (uint32_t)row;
    }
    for (uint64_t i = 0; is_shuffled && i + 1 < count; i++) {
        uint64_t other = i + random_below(random, count - i);
        uint32_t row = scene->picks[i];
        if (random_below(random, 3) > 0)
            continue;
        scene->picks[i] = scene->picks[other];
        scene->picks[other] = row;
    }
    scene->load.rows = scene->picks;
    scene->load.count = count;
}

static void scene_begin(struct scene *scene, enum sc_io_class io_class)
{
    sc_store_reader_begin_gather(scene->reader, scene->layer, scene->ranges, scene->range_count,
                                 &scene->load, io_class);
    sc_store_reader_tags(scene->reader, scene->tags);
}

static void scene_open_with(struct scene *scene, const struct world_setup *setup, uint64_t seed,
                            uint64_t staging_bytes, uint64_t host_bytes)
{
    *scene = (struct scene){.world = world_make(setup, seed)};
    scene->world->config.staging_bytes = staging_bytes;
    scene->world->config.host_bytes = host_bytes;
    world_open_ok(scene->world);
    scene->reader = world_reader(scene->world);
    scene->k_bytes = setup->k_row_bytes;
    scene->row_bytes = 2 * setup->k_row_bytes;
    scene->tag_step = setup->layout == SC_STORE_SPLIT ? 2 : 1;
    scene->tags = calloc(ROWS_MAX * scene->tag_step, sizeof(*scene->tags));
    scene->expected = malloc(scene->row_bytes);
    assert_non_null(scene->tags);
    assert_non_null(scene->expected);
    scene->load = (struct sc_store_gather_rows){.wanted = SC_STORE_WANT_ROWS};
    assert_int_equal(world_store(scene->world, 1, 0, 640), SPEC_OK);
    assert_int_equal(world_store(scene->world, 2, 0, 200), SPEC_OK);
    assert_int_equal(world_store(scene->world, 2, 200, 333), SPEC_OK);
    assert_int_equal(world_store(scene->world, 3, 17, 130), SPEC_OK);
}

static void scene_open(struct scene *scene, const struct world_setup *setup, uint64_t seed)
{
    scene_open_with(scene, setup, seed, 64u << 20, 0);
}

/* Setups twice: with a host tier, too, that has every second piece and room for little more. */
static void scene_open_nth(struct scene *scene, uint32_t i, uint64_t seed)
{
    const struct world_setup *setup = &setups[i % SETUPS];
    bool is_in_host_tier = i >= SETUPS;
    scene_open_with(scene, setup, seed, 64u << 20,
                    is_in_host_tier ? 700 * 2 * setup->k_row_bytes : 0);
    for (uint32_t p = 0; is_in_host_tier && p < scene->world->piece_count; p += 2)
        for (uint32_t layer = 0; layer < 2; layer++)
            assert_int_equal(
                world_load_piece(scene->world, scene->reader, layer, &scene->world->pieces[p])
                    .status,
                SPEC_OK);
}

static void scene_close(struct scene *scene)
{
    sc_store_readers_close(scene->reader, 1);
    struct sc_store_stats stats;
    sc_store_stats(scene->world->store, &stats);
    assert_int_equal(stats.staging_bytes_used, 0);
    struct sc_host_tier_stats host;
    sc_host_tier_stats(scene->world->store->host, &host);
    assert_true(host.bytes_max == 0 || host.hits > 0);
    world_free(scene->world);
    free(scene->tags);
    free(scene->expected);
}

/* Every row of a run is what its pick must be; how many there were. */
static uint64_t rows_check(const struct scene *scene, const struct sc_store_rows *rows)
{
    bool is_whole = scene->load.wanted == SC_STORE_WANT_ROWS;
    uint64_t bytes = is_whole ? scene->row_bytes : scene->k_bytes;
    uint64_t from = scene->load.wanted == SC_STORE_WANT_V ? scene->k_bytes : 0;
    assert_true(rows->row_first + rows->row_count <= scene->load.count);
    for (uint64_t i = 0; i < rows->row_count; i++) {
        uint64_t row = sc_store_gather_row(&scene->load, rows->row_first + i);
        scene_row(scene, row);
        assert_int_equal(row, sc_store_gather_row(&scene->load, rows->row_first) + i);
        bool is_there = sc_host_slab_has(scene->world->store, scene->layer,
                                         &scene->ranges[scene->row_range[row]], scene->load.wanted);
        /* a slab that the disk gave is there as soon as a row of it came */
        assert_true(rows->tier == SPEC_TIER_HOST ? is_there : !is_there || scene->load.whole_slabs);
        bytes_equal(rows->rows + i * bytes, scene->expected + from, bytes);
    }
    return rows->row_count;
}

/* Takes the next run: what comes must be pick *next, and those behind it. */
static spec_status scene_next(struct scene *scene, uint64_t *next, uint64_t *ret_count)
{
    struct sc_store_rows rows;
    spec_status status =
        sc_store_reader_next(scene->reader, SC_EXEC_FOREVER, NULL, &rows, &scene->world->error);
    *ret_count = 0;
    if (status != SPEC_OK) {
        assert_true(*next < scene->load.count);
        uint64_t row = sc_store_gather_row(&scene->load, *next);
        if (row < scene->row_count)
            assert_int_equal(rows.failed_range, scene->row_range[row]);
        assert_true(sc_store_reader_is_idle(scene->reader));
    } else if (rows.row_count > 0) {
        assert_int_equal(rows.row_first, *next);
        *ret_count = rows_check(scene, &rows);
        *next += *ret_count;
    }
    return status;
}

/* The whole load; how many picks came before it ended. */
static spec_status scene_load(struct scene *scene, uint64_t *ret_rows)
{
    uint64_t count = 1;
    spec_status status = SPEC_OK;
    *ret_rows = 0;
    scene_begin(scene, SC_IO_CLASS_DEMAND);
    while (status == SPEC_OK && count > 0)
        status = scene_next(scene, ret_rows, &count);
    return status;
}

static void scene_load_ok(struct scene *scene)
{
    uint64_t rows;
    struct sc_store_read_cost cost;
    assert_int_equal(scene_load(scene, &rows), SPEC_OK);
    assert_int_equal(rows, scene->load.count);
    assert_true(sc_store_reader_is_idle(scene->reader));
    sc_store_reader_cost(scene->reader, &cost);
    bool is_whole = scene->load.wanted == SC_STORE_WANT_ROWS;
    assert_int_equal(cost.wanted_bytes, rows * (is_whole ? scene->row_bytes : scene->k_bytes));
    assert_true(cost.read_bytes % PAGE == 0);
}

/* A load's shape, at random. */
static void scene_load_shape(struct scene *scene, uint64_t *random)
{
    static const uint64_t gaps[] = {0, 4096, 20000, 1u << 20};
    scene->load.whole_slabs = random_below(random, 3) == 0;
    scene->load.gap_bytes = gaps[random_below(random, 4)];
    scene->load.wanted = SC_STORE_WANT_ROWS;
    if (scene->world->setup->layout == SC_STORE_SPLIT)
        scene->load.wanted = (uint32_t)random_below(random, 3);
    scene->layer = (uint32_t)random_below(random, 2);
    scene_ranges(scene, random, random_below(random, 3) == 0);
    uint64_t one_in = 1 + random_below(random, 12), cluster = 1 + random_below(random, 9);
    scene_picks(scene, random, one_in, cluster, random_below(random, 3) == 0);
}

static void gather_come_in_their_order_and_are_right(void **state)
{
    static struct scene scene;
    (void)state;
    for (uint32_t i = FIRST; i < 2 * SETUPS; i++) {
        uint64_t random = 100 + i;
        scene_open_nth(&scene, i, 5 + i);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            scene_load_shape(&scene, &random);
            sc_alloc_seal(&scene.world->alloc);
            scene_load_ok(&scene);
            sc_alloc_unseal(&scene.world->alloc);
        }
        scene.load.rows = NULL; /* all */
        scene.load.count = scene.row_count;
        scene_load_ok(&scene);
        scene_close(&scene);
    }
}

/* What is there is handed out without a wait, and what fails is no wait either. */
static void whether_picks_are_there_is_told(void **state)
{
    static struct scene scene;
    (void)state;
    for (uint32_t fails = 0; fails < 2; fails++) {
        uint64_t random = 11, taken = 0;
        spec_status status = SPEC_OK;
        scene_open(&scene, &setups[0], 5);
        assert_true(sc_store_reader_is_there(scene.reader)); /* nothing is read */
        scene_load_shape(&scene, &random);
        scene.load.whole_slabs = false;
        if (scene.load.count > 8) /* as many as fly without anybody taking one */
            scene.load.count = 8;
        if (fails)
            sc_fault_arm(&scene.world->fault, SC_FAULT_READ, 0);
        scene_begin(&scene, SC_IO_CLASS_DEMAND);
        assert_false(sc_store_reader_is_there(scene.reader));
        while (sc_exec_step_one(scene.world->exec))
            continue;
        assert_true(sc_store_reader_is_there(scene.reader));
        for (uint64_t count = 1; status == SPEC_OK && count > 0; taken += count) {
            struct sc_store_rows rows;
            status = sc_store_reader_next(scene.reader, 1, NULL, &rows, &scene.world->error);
            count = status == SPEC_OK ? rows_check(&scene, &rows) : 0;
        }
        assert_int_equal(status, fails ? SPEC_E_IO : SPEC_OK);
        assert_true(fails || taken == scene.load.count);
        assert_true(sc_store_reader_is_there(scene.reader));
        scene_close(&scene);
    }
}

static void gather_read_their_pages_and_no_tags(void **state)
{
    static struct scene scene;
    uint64_t random = 3;
    struct sc_store_read_cost cost;
    (void)state;
    scene_open(&scene, &setups[1], 3); /* 8 KiB rows at page borders: 16 fit an operation */
    scene_ranges(&scene, &random, true);
    static const uint32_t rows[] = {0, 1, 2, 5, 8, 64, 300, 299, 298};
    memcpy(scene.picks, rows, sizeof(rows));
    scene.load.rows = scene.picks;
    scene.load.count = 9;
    scene.load.gap_bytes = 0; /* 0-2, 5, 8, 64, 300, 299, 298 */
    scene_load_ok(&scene);
    sc_store_reader_cost(scene.reader, &cost);
    assert_int_equal(cost.read_bytes, 9 * scene.row_bytes);
    assert_int_equal(cost.op_count, 7);
    scene.load.gap_bytes = 1u << 30; /* three rows are not worth a gap of two */
    scene_load_ok(&scene);
    sc_store_reader_cost(scene.reader, &cost);
    assert_int_equal(cost.op_count, 7);
    for (uint32_t i = 0; i < 9; i++) /* a gap of one row for each six that are wanted */
        scene.picks[i] = i < 6 ? i : 2 * i - 5;
    scene.load.gap_bytes = scene.row_bytes; /* 0-5 . 7 | 9 | 11 */
    scene_load_ok(&scene);
    sc_store_reader_cost(scene.reader, &cost);
    assert_int_equal(cost.read_bytes, 10 * scene.row_bytes);
    assert_int_equal(cost.op_count, 3);
    scene.load.gap_bytes = scene.row_bytes - PAGE; /* 0-5 | 7 | 9 | 11 */
    scene_load_ok(&scene);
    sc_store_reader_cost(scene.reader, &cost);
    assert_int_equal(cost.op_count, 4);
    memcpy(scene.picks, rows, sizeof(rows));
    scene.load.whole_slabs = true; /* slabs of 64 rows in 4 operations: first, second, 3 x fifth */
    scene_load_ok(&scene);
    sc_store_reader_cost(scene.reader, &cost);
    assert_int_equal(cost.read_bytes, 5 * 64 * scene.row_bytes);
    assert_int_equal(cost.op_count, 20);
    scene_close(&scene);
}

static void gather_of_a_split_layout_can_be_keys_alone(void **state)
{
    static struct scene scene;
    uint64_t random = 4;
    struct sc_store_read_cost cost;
    (void)state;
    scene_open(&scene, &setups[3], 3); /* K rows of 6 KiB */
    scene_ranges(&scene, &random, true);
    scene_picks(&scene, &random, 1, 64, false);
    uint64_t k_bytes = scene.row_count * scene.k_bytes;
    for (uint32_t wanted = SC_STORE_WANT_K; wanted <= SC_STORE_WANT_V; wanted++) {
        scene.load.wanted = wanted;
        scene_load_ok(&scene);
        sc_store_reader_cost(scene.reader, &cost);
        assert_true(cost.read_bytes >= k_bytes);
        assert_true(cost.read_bytes <= k_bytes + 2 * PAGE * cost.op_count);
    }
    scene_close(&scene);
}

static void gather_fail_at_the_range_that_is_bad_and_nowhere_else(void **state)
{
    static struct scene scene;
    uint64_t rows, failed = 0, passed = 0, corrupt = 0;
    (void)state;
    for (uint32_t i = 0; i < 4; i++) { /* those on sim */
        uint64_t random = 40 + i;
        scene_open(&scene, &setups[i], 9 + i);
        struct sc_io_sim_disk *disk = scene.world->disk;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            scene_load_shape(&scene, &random);
            enum sc_io_sim_fault fault = round % 2 == 0 ? SC_SIM_READ_EIO : SC_SIM_FLIP;
            sc_io_sim_fault_nth(disk, fault, random_below(&random, 12));
            spec_status status = scene_load(&scene, &rows); /* scene_next checks where it fails */
            if (status == SPEC_OK)
                assert_int_equal(rows, scene.load.count);
            else /* a fault that an earlier load did not come to may be this one's */
                assert_true(status == SPEC_E_CORRUPT || status == SPEC_E_IO);
            corrupt += status == SPEC_E_CORRUPT;
            failed += status != SPEC_OK;
            passed += status == SPEC_OK;
        }
        scene_ranges(&scene, &random, true);
        scene_picks(&scene, &random, 2, 1, false);
        for (uint32_t round = 0; round < 6; round++) /* what faults are left, over 40 reads */
            (void)scene_load(&scene, &rows);
        sc_io_sim_fault_ppm(disk, SC_SIM_SHORT, 300000);
        for (uint32_t round = 0; round < 10; round++) {
            scene_load_shape(&scene, &random);
            scene_load_ok(&scene);
        }
        scene_close(&scene);
    }
    assert_true(corrupt > 10);
    assert_true(failed > corrupt + 10);
    assert_true(passed > 10);
}

static void gather_with_a_wrong_tag_or_of_a_dropped_piece_fail(void **state)
{
    static struct scene scene;
    (void)state;
    for (uint32_t i = FIRST; i < SETUPS; i++) {
        uint64_t random = 60 + i, rows;
        scene_open(&scene, &setups[i], 9 + i);
        scene_ranges(&scene, &random, true);
        scene_picks(&scene, &random, 3, 2, false);
        uint64_t bad = scene.load.count / 2;
        scene.tags[scene.picks[bad] * scene.tag_step + scene.tag_step - 1] ^= 1;
        assert_int_equal(scene_load(&scene, &rows), SPEC_E_CORRUPT);
        assert_true(rows <= bad); /* no row of it came; of its run, none */
        assert_int_equal(scene.row_range[scene.picks[rows]], scene.row_range[scene.picks[bad]]);
        scene.tags[scene.picks[bad] * scene.tag_step + scene.tag_step - 1] ^= 1;
        scene_load_ok(&scene);
        uint32_t range = scene.row_range[scene.picks[bad]];
        sc_store_piece_drop(scene.world->store, scene.ranges[range].piece);
        assert_int_equal(scene_load(&scene, &rows), SPEC_E_CORRUPT);
        assert_int_equal(scene.row_range[scene.picks[rows]], range);
        assert_true(rows == 0 || scene.row_range[scene.picks[rows - 1]] != range);
        static const uint32_t outside = ROWS_MAX; /* no such row: an error, not a crash */
        scene.load.rows = &outside;
        scene.load.count = 1;
        assert_int_equal(scene_load(&scene, &rows), SPEC_E_CORRUPT);
        scene_close(&scene);
    }
}

/* ---- Narrowing ------------------------------------------------------------------------------ */

static bool bit_at(const uint64_t *bits, uint64_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

/* What is left of the load is `total` covered rows, in order, from pick *next on. */
static void narrowed_check(struct scene *scene, const uint64_t *wanted, uint64_t *covered,
                           uint64_t total, uint64_t next)
{
    struct sc_store_rows rows;
    for (;;) {
        assert_int_equal(
            sc_store_reader_next(scene->reader, SC_EXEC_FOREVER, NULL, &rows, &scene->world->error),
            SPEC_OK);
        if (rows.row_count == 0)
            break;
        assert_true(rows.row_first >= next);
        (void)rows_check(scene, &rows);
        for (uint64_t i = 0; i < rows.row_count; i++) {
            uint64_t row = sc_store_gather_row(&scene->load, rows.row_first + i);
            assert_true(bit_at(wanted, row));
            assert_true(bit_at(covered, row)); /* once: it is taken out */
            covered[row / 64] &= ~(1ull << (row % 64));
        }
        total -= rows.row_count;
        next = rows.row_first + rows.row_count;
    }
    assert_int_equal(total, 0);
    for (uint64_t i = 0; i < ROWS_MAX / 64; i++)
        assert_int_equal(covered[i], 0);
}

static void a_prediction_that_is_narrowed_gives_what_was_wanted_of_it(void **state)
{
    static struct scene scene;
    static uint64_t wanted[ROWS_MAX / 64], covered[ROWS_MAX / 64];
    (void)state;
    for (uint32_t i = FIRST; i < 2 * SETUPS; i++) {
        uint64_t random = 80 + i;
        scene_open_nth(&scene, i, 21 + i);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            scene_load_shape(&scene, &random);
            memset(covered, 0, sizeof(covered));
            uint64_t one_in = 1 + random_below(&random, 40), next = 0, count = 1;
            for (uint64_t row = 0; row < ROWS_MAX; row++)
                if (random_below(&random, one_in) == 0)
                    wanted[row / 64] |= 1ull << (row % 64);
                else
                    wanted[row / 64] &= ~(1ull << (row % 64));
            scene_begin(&scene, round % 2 == 0 ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE);
            if (setups[i % SETUPS].thread_count == 0) /* any state of what flies */
                for (uint64_t n = random_below(&random, 60); n > 0; n--)
                    (void)sc_exec_step_one(scene.world->exec);
            for (uint64_t n = random_below(&random, 3) * random_below(&random, 40);
                 n > 0 && count > 0; n--)
                assert_int_equal(scene_next(&scene, &next, &count), SPEC_OK);
            uint64_t total = sc_store_reader_narrow(scene.reader, wanted, covered);
            if (random_below(&random, 2) == 0)
                sc_store_reader_demand(scene.reader);
            narrowed_check(&scene, wanted, covered, total, next);
            assert_true(sc_store_reader_is_idle(scene.reader));
            scene.load.count = scene.load.count < 7 ? scene.load.count : 7;
            scene_load_ok(&scene); /* and nothing of it touches the next */
        }
        scene_close(&scene);
    }
}

static void a_prediction_of_which_nothing_is_wanted_reads_nothing_more(void **state)
{
    static struct scene scene;
    static const uint64_t none[ROWS_MAX / 64];
    static uint64_t wanted[ROWS_MAX / 64], covered[ROWS_MAX / 64];
    uint64_t random = 7;
    struct sc_store_stats before, after;
    (void)state;
    scene_open(&scene, &setups[1], 2);
    scene_ranges(&scene, &random, true);
    scene_picks(&scene, &random, 2, 1, false);
    sc_store_stats(scene.world->store, &before);
    scene_begin(&scene, SC_IO_CLASS_SPECULATIVE);
    assert_int_equal(sc_store_reader_narrow(scene.reader, none, covered), 0);
    struct sc_store_rows rows;
    assert_int_equal(
        sc_store_reader_next(scene.reader, SC_EXEC_FOREVER, NULL, &rows, &scene.world->error),
        SPEC_OK);
    assert_int_equal(rows.row_count, 0);
    while (sc_exec_step_one(scene.world->exec)) {
    }
    sc_store_stats(scene.world->store, &after);
    assert_int_equal(after.read_ops, before.read_ops);
    assert_int_equal(after.staging_bytes_used, 0);

    scene_begin(&scene, SC_IO_CLASS_SPECULATIVE); /* one row: one operation */
    wanted[scene.picks[3] / 64] |= 1ull << (scene.picks[3] % 64);
    struct sc_store_read_cost once, again;
    assert_int_equal(sc_store_reader_narrow(scene.reader, wanted, covered), 1);
    sc_store_reader_cost(scene.reader, &once);
    assert_int_equal(sc_store_reader_narrow(scene.reader, wanted, covered), 1);
    sc_store_reader_cost(scene.reader, &again); /* what was dropped is so once */
    assert_int_equal(again.row_count, once.row_count);
    narrowed_check(&scene, wanted, covered, 1, 0);
    sc_store_stats(scene.world->store, &after);
    assert_int_equal(after.read_ops, before.read_ops + 1);
    scene_close(&scene);
}

/* Planner `chunk`: of a slab that is begun all wanted rows come, or who reads the others would read
 * it all again. */
static void a_slab_that_is_begun_is_read_to_its_end(void **state)
{
    static struct scene scene;
    static uint64_t wanted[ROWS_MAX / 64], covered[ROWS_MAX / 64], first[SC_STORE_ROWS_MAX];
    uint64_t random = 17, cut = 0;
    (void)state;
    scene_open(&scene, &setups[1], 4); /* slabs of 64 rows in 4 operations */
    for (uint32_t round = 0; round < 3 * ROUNDS; round++) {
        scene_ranges(&scene, &random, round % 2 == 0);
        scene.load = (struct sc_store_gather_rows){.count = scene.row_count, .whole_slabs = true};
        memset(covered, 0, sizeof(covered));
        memset(wanted, 0xff, sizeof(wanted));
        scene_begin(&scene, SC_IO_CLASS_SPECULATIVE);
        for (uint64_t n = random_below(&random, 60); n > 0; n--)
            (void)sc_exec_step_one(scene.world->exec);
        uint64_t total = sc_store_reader_narrow(scene.reader, wanted, covered);
        memset(first, 0, sizeof(first));
        for (uint64_t row = 0; row < scene.row_count; row++) {
            uint32_t range = scene.row_range[row];
            if (row == 0 || range != scene.row_range[row - 1])
                first[range] = bit_at(covered, row);
            assert_int_equal(bit_at(covered, row), first[range]);
        }
        cut += total < scene.row_count;
        sc_store_reader_demand(scene.reader);
        narrowed_check(&scene, wanted, covered, total, 0);
        assert_true(sc_store_reader_is_idle(scene.reader));
    }
    assert_true(cut > ROUNDS); /* some were narrowed before all was planned */
    scene_close(&scene);
}

static void cancelled_picks_leave_nothing_behind(void **state)
{
    static struct scene scene;
    (void)state;
    for (uint32_t i = FIRST; i < 2 * SETUPS; i++) {
        uint64_t random = 90 + i;
        scene_open_nth(&scene, i, 31 + i);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint64_t next = 0, count = 1;
            scene_load_shape(&scene, &random);
            scene_begin(&scene, SC_IO_CLASS_SPECULATIVE);
            for (uint64_t n = random_below(&random, 30); n > 0 && count > 0; n--)
                assert_int_equal(scene_next(&scene, &next, &count), SPEC_OK);
            sc_store_reader_cancel(scene.reader);
            assert_true(sc_store_reader_is_idle(scene.reader));
            if (round % 2 == 0)
                (void)world_load_piece(scene.world, scene.reader, 0, &scene.world->pieces[0]);
            scene_load_ok(&scene);
        }
        scene_close(&scene);
    }
}

/* More readers than frames for all: each has one operation's worth and waits; consumed in any
 * order, each comes through. */
static void readers_of_picks_progress_without_frames(void **state)
{
    enum { READERS = 40 };
    static struct scene scene;
    static struct sc_store_reader *readers[READERS];
    uint64_t random = 5;
    (void)state;
    for (uint32_t i = 1; i < SETUPS; i += 3) {
        scene_open_with(&scene, &setups[i], 3, 32u << 20, 0);
        scene_ranges(&scene, &random, true);
        scene_picks(&scene, &random, 2, 1, false);
        assert_int_equal(
            sc_store_readers_open(scene.world->store, READERS, readers, &scene.world->error),
            SPEC_OK);
        for (uint32_t j = 0; j < READERS; j++) {
            sc_store_reader_begin_gather(readers[j], 0, scene.ranges, scene.range_count,
                                         &scene.load,
                                         j % 2 == 0 ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE);
            sc_store_reader_tags(readers[j], scene.tags);
        }
        struct sc_store_reader *own = scene.reader;
        scene.layer = 0;
        scene_tags(&scene);
        for (uint32_t j = READERS; j-- > 0;) {
            uint64_t next = 0, count = 1;
            scene.reader = readers[j];
            while (count > 0)
                assert_int_equal(scene_next(&scene, &next, &count), SPEC_OK);
            assert_int_equal(next, scene.load.count);
        }
        scene.reader = own;
        sc_store_readers_close(readers[0], READERS);
        scene_close(&scene);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_come_in_their_order_and_are_right),
        cmocka_unit_test(whether_picks_are_there_is_told),
        cmocka_unit_test(gather_read_their_pages_and_no_tags),
        cmocka_unit_test(gather_of_a_split_layout_can_be_keys_alone),
        cmocka_unit_test(gather_fail_at_the_range_that_is_bad_and_nowhere_else),
        cmocka_unit_test(gather_with_a_wrong_tag_or_of_a_dropped_piece_fail),
        cmocka_unit_test(a_prediction_that_is_narrowed_gives_what_was_wanted_of_it),
        cmocka_unit_test(a_prediction_of_which_nothing_is_wanted_reads_nothing_more),
        cmocka_unit_test(a_slab_that_is_begun_is_read_to_its_end),
        cmocka_unit_test(cancelled_picks_leave_nothing_behind),
        cmocka_unit_test(readers_of_picks_progress_without_frames),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
