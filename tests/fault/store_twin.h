/* Random operations on a store, for tests that break things meanwhile: the twin knows what was
 * committed, and every row that comes back is compared with what its key says. */
#ifndef SC_TESTS_FAULT_STORE_TWIN_H
#define SC_TESTS_FAULT_STORE_TWIN_H

#include "tests/unit/store/quant_check.h"
#include "tests/unit/store/space_check.h"

static const struct world_setup twin_setups[] = {
    {"paired, 3 layers of 96-byte rows with probe rows", WORLD_ON(SIM, 0),
     WORLD_SHAPE(PAIRED, 3, 48, 18), WORLD_DISK(4, 1, 64), .journal = 1},
    {"split, 2 layers of 400-byte rows with probe rows", WORLD_ON(SIM, 0),
     WORLD_SHAPE(SPLIT, 2, 200, 64), WORLD_DISK(4, 1, 64), .journal = 1},
    {"paired, 5 layers of 4 KiB rows", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 5, 2048, 0),
     WORLD_DISK(8, 2, 128), .journal = 1},
};
#define TWIN_SETUPS (sizeof(twin_setups) / sizeof(twin_setups[0]))

#define TWIN_LEASE_NS 3000000000ull

struct twin {
    struct world *world;
    uint64_t random, key_next;
    uint64_t rows_right, loads_failed, stores_failed, quantised;
};

static inline void twin_make(struct twin *twin, uint64_t seed)
{
    *twin = (struct twin){.random = seed * 77, .key_next = 1};
    twin->world = world_make(&twin_setups[seed % TWIN_SETUPS], seed);
    twin->world->config.staging_bytes = 2u << 20;
    twin->world->config.lease_ns_max = seed % 4 == 0 ? 0 : TWIN_LEASE_NS;
    keep_quant(twin->world, seed % 5 < 2);
    twin->world->params.codes.with_rows = seed % 2 == 0;
}

/* After an open: pieces that it did not tell of are gone. */
static inline void twin_forget_unseen(struct twin *twin)
{
    struct world *world = twin->world;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        if (world->pieces[i].seen)
            world->pieces[kept++] = world->pieces[i];
    world->piece_count = kept;
}

static inline void twin_forget(struct twin *twin, uint32_t i)
{
    twin->world->pieces[i] = twin->world->pieces[--twin->world->piece_count];
}

static inline void twin_store(struct twin *twin)
{
    struct world *world = twin->world;
    uint64_t first = random_below(&twin->random, 100);
    uint32_t rows = (uint32_t)(1 + random_below(&twin->random, 150));
    if (world->piece_count + 8 > WORLD_PIECES ||
        world_store(world, twin->key_next++, first, rows) != SPEC_OK)
        twin->stores_failed++;
}

static inline void twin_abort(struct twin *twin)
{
    struct pass *pass = pass_make(twin->world, twin->key_next++, 0, 90);
    if (pass_begin(pass) == SPEC_OK) {
        spec_status status = SPEC_OK;
        uint64_t layers = random_below(&twin->random, twin->world->setup->layers);
        for (uint64_t l = 0; l < layers && status == SPEC_OK; l++)
            status = pass_put(pass);
        if (status == SPEC_OK)
            sc_store_extent_abort(pass->extent);
        pass_wait(pass);
        assert_int_not_equal(pass->status, SPEC_OK);
    }
    pass_free(pass);
}

/* A selector of the ranges gives the keys that the twin says, and tags that their rows agree with;
 * or fails, unless it must not. */
static inline void twin_selector(struct twin *twin, uint32_t layer, const struct match *match,
                                 bool must)
{
    struct world *world = twin->world;
    struct sc_store_selector *selector = NULL;
    uint64_t wanted = random_below(&twin->random, world->setup->probe_row_bytes / 2 + 1) * 2;
    if (sc_store_selector_open(world->store, SELECTOR_ROWS_MAX, SELECTOR_ROWS_MAX, &selector,
                               NULL) != SPEC_OK)
        return; /* no memory */
    if (keys_begin(selector, match, layer, SC_IO_CLASS_SPECULATIVE, wanted)) {
        if (random_below(&twin->random, 3) == 0)
            sc_store_selector_end(selector);
        else if (sc_store_selector_wait(selector, SC_EXEC_FOREVER) == SPEC_OK)
            match_check(world, match, layer, wanted, selector, must);
        else if (must)
            fail_msg("a selector failed: %s", world->last_line);
    } else if (must) {
        fail_msg("a selector was not begun");
    }
    sc_store_selector_close(selector);
}

/* Codes of the ranges are those of their rows, or there are none. */
static inline void twin_codes(struct twin *twin, uint32_t layer, const struct match *match)
{
    struct sc_store_selector *selector = NULL;
    bool k_alone = random_below(&twin->random, 2) == 0;
    if (sc_store_selector_open(twin->world->store, SELECTOR_ROWS_MAX, SELECTOR_ROWS_MAX, &selector,
                               NULL) != SPEC_OK)
        return; /* no memory */
    if (sc_store_selector_begin(
            selector, &(struct sc_store_selector_want){.layer = layer,
                                                       .io_class = SC_IO_CLASS_SPECULATIVE,
                                                       .ranges = match->ranges,
                                                       .range_count = match->count,
                                                       .is_quant = true,
                                                       .k_alone = k_alone}) &&
        sc_store_selector_wait(selector, SC_EXEC_FOREVER) == SPEC_OK)
        twin->quantised += codes_check(twin->world, match, 0, layer, k_alone, selector);
    sc_store_selector_close(selector);
}

/* What was stored gets its codes, or a part of it: a run may be on when the next step comes. */
static inline void twin_build(struct twin *twin)
{
    struct sc_store *store = twin->world->store;
    struct sc_exec *exec = twin->world->exec;
    _Atomic uint32_t never = 0;
    if (random_below(&twin->random, 2) == 0)
        sc_store_build_start(store, 0);
    else
        sc_store_build_quant(store);
    uint64_t wait_ns = random_below(&twin->random, 400000000);
    (void)sc_exec_wait(exec, &never, 0, sc_exec_now_ns(exec) + wait_ns);
}

/* Loads some ranges; rows that come are right (the fixture compares them). must: all of them come.
 */
static inline void twin_load(struct twin *twin, struct sc_store_reader *reader, bool must)
{
    struct world *world = twin->world;
    struct sc_store_range ranges[8];
    const struct world_piece *twins[8];
    uint64_t rows = 0, count = 1 + random_below(&twin->random, 8);
    if (world->piece_count == 0)
        return;
    for (uint64_t r = 0; r < count; r++) {
        uint32_t i = (uint32_t)random_below(&twin->random, world->piece_count);
        i = r > 0 && i % 2 == 0 && twins[r - 1] + 1 < world->pieces + world->piece_count
                ? (uint32_t)(twins[r - 1] + 1 - world->pieces)
                : i;
        twins[r] = &world->pieces[i];
        uint32_t first = (uint32_t)random_below(&twin->random, twins[r]->row_count);
        uint32_t row_count = (uint32_t)random_below(&twin->random, twins[r]->row_count - first + 1);
        ranges[r] = (struct sc_store_range){twins[r]->id, first, row_count};
        rows += row_count;
    }
    uint32_t layer = (uint32_t)random_below(&twin->random, world->setup->layers);
    struct loaded loaded = world_load(world, reader, layer, ranges, twins, count);
    twin->rows_right += loaded.rows;
    if (loaded.status == SPEC_OK)
        assert_int_equal(loaded.rows, rows);
    else
        twin->loads_failed++;
    struct match match = {.count = 0};
    for (uint64_t r = 0; r < count; r++)
        match_add(&match, twins[r], ranges[r].row_first, ranges[r].row_count);
    twin_selector(twin, layer, &match, must);
    twin_codes(twin, layer, &match);
    if (must && loaded.status != SPEC_OK)
        fail_msg("a load failed: %s", world->error.text);
}

/* Some pieces at once, in a row or anywhere. */
static inline void twin_drop(struct twin *twin)
{
    struct world *world = twin->world;
    uint64_t ids[8], count = 0, wanted = 1 + random_below(&twin->random, 8);
    bool in_a_row = random_below(&twin->random, 2) == 0;
    uint32_t i = (uint32_t)random_below(&twin->random, WORLD_PIECES);
    while (count < wanted && world->piece_count > 0) {
        i = in_a_row ? i % world->piece_count
                     : (uint32_t)random_below(&twin->random, world->piece_count);
        ids[count++] = world->pieces[i].id;
        twin_forget(twin, i);
    }
    sc_store_pieces_drop(world->store, ids, count);
}

/* Averages of some pieces, of which one is not there: the log has records of every type. */
static inline void twin_average(struct twin *twin)
{
    static uint16_t codes[WORLD_ROWS];
    struct world *world = twin->world;
    struct sc_store_average averages[4];
    for (uint32_t i = 0; i < 4 && world->piece_count > 0; i++) {
        const struct world_piece *piece =
            &world->pieces[random_below(&twin->random, world->piece_count)];
        averages[i] = (struct sc_store_average){piece->id, 1 + i, piece->row_count, codes};
    }
    averages[2].piece = UINT32_MAX;
    if (world->piece_count > 0)
        (void)sc_store_average_put(world->store, averages, 4, NULL);
}

/* Leases end, and pauses after a failed write. */
static inline void twin_wait(struct twin *twin)
{
    _Atomic uint32_t never = 0;
    struct sc_exec *exec = twin->world->exec;
    uint64_t wait_ns = random_below(&twin->random, 2 * TWIN_LEASE_NS);
    (void)sc_exec_wait(exec, &never, 0, sc_exec_now_ns(exec) + wait_ns);
}

/* While something is made in the background it may hold pages that are nobody's yet. */
static inline void twin_space_check(const struct twin *twin)
{
    if (atomic_load(&twin->world->store->busy) == 0)
        space_check(twin->world->store);
}

static inline void twin_file(const char *path, uint64_t bytes, void *user)
{
    uint64_t *total = user;
    (void)path;
    *total += (bytes + CHECK_PAGE - 1) / CHECK_PAGE * CHECK_PAGE;
}

/* One operation. must: loads may not fail. */
static inline void twin_step(struct twin *twin, struct sc_store_reader *reader, bool must)
{
    switch (random_below(&twin->random, 12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        twin_store(twin);
        break;
    case 4:
        twin_drop(twin);
        break;
    case 5:
        twin_abort(twin);
        break;
    case 6:
        twin_wait(twin);
        break;
    case 7:
        twin_average(twin);
        break;
    case 8:
        twin_build(twin);
        break;
    default:
        twin_load(twin, reader, must);
        break;
    }
    uint64_t total = 0;
    twin_space_check(twin);
    sc_io_sim_disk_files(twin->world->disk, twin_file, &total);
    assert_true(total <= twin->world->config.disk_bytes);
}

/* Loads every piece whole, in every layer. Returns how many loads failed. */
static inline uint64_t twin_load_all(struct twin *twin)
{
    struct world *world = twin->world;
    struct sc_store_reader *reader = world_reader(world);
    uint64_t failed = 0;
    for (uint32_t i = 0; i < world->piece_count; i++) {
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            struct loaded loaded = world_load_piece(world, reader, layer, &world->pieces[i]);
            twin->rows_right += loaded.rows;
            failed += loaded.status != SPEC_OK;
            if (loaded.status == SPEC_OK)
                assert_int_equal(loaded.rows, world->pieces[i].row_count);
        }
    }
    sc_store_readers_close(reader, 1);
    return failed;
}

#endif
