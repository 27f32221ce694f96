/* A store whose extents are put in another order, above host memory in two tiers of any size,
 * beside a twin that knows every row: loads of all kinds begin, are narrowed, go on for a while,
 * end early, beside each other, while rows are ordered, staged, dropped, rot in memory and fail on
 * the way. Every row that comes is the row that was stored; what may not fail
 * does not; what failed in memory is right when it is asked for again.
 *
 * Threads: one; the executor's loop. */
#include "store/cache/host_tier_slab.h"
#include "store/space/quarantine.h"
#include "tests/unit/store/permutation_check.h"
#include "tests/unit/store/space_check.h"

#include <inttypes.h>

#define LOADS     4u
#define NEAR      30u
#define ROWS_MOST 1500u

struct load {
    struct sc_store_reader *reader;
    struct sc_store_selector *selector;
    struct match match;
    struct sc_store_gather_rows picks;
    uint32_t layer, rows[SELECTOR_ROWS_MAX];
    uint64_t wanted[SELECTOR_ROWS_MAX / 64], covered[SELECTOR_ROWS_MAX / 64], left;
    uint8_t seen[SELECTOR_ROWS_MAX];
    bool is_active, is_gather, is_narrow, is_begun, may_fail;
};

struct scene {
    struct world *world;
    uint64_t random;
    struct load loads[LOADS];
    bool gone[WORLD_PIECES], faults, has_rotted;
    bool is_mild; /* nothing rots, and nothing that is read is flipped */
    uint64_t key, failures, host_slab;
    struct match stage;
    struct sc_store_match_fetched told;
    bool is_staging;
};

static uint64_t below(struct scene *scene, uint64_t bound)
{
    return random_below(&scene->random, bound);
}

static bool bit(const uint64_t *bits, uint64_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

static bool any_active(const struct scene *scene)
{
    bool is = false;
    for (uint32_t i = 0; i < LOADS; i++)
        is = is || scene->loads[i].is_active;
    return is;
}

/* Parts of a few pieces that live, often one behind the other. */
static struct match match_any(struct scene *scene)
{
    struct match match = {.count = 0};
    struct world *world = scene->world;
    if (world->piece_count == 0)
        return match;
    uint64_t at = below(scene, world->piece_count), most = 1 + below(scene, 20);
    if (below(scene, 4) != 0 && world->piece_count > NEAR) /* often the same */
        at = world->piece_count - NEAR;
    bool is_whole = below(scene, 2) == 0;
    if (is_whole && below(scene, 2) == 0)
        most = 20;
    for (uint32_t tries = 0; tries < 60 && match.count < most; tries++) {
        const struct world_piece *twin = &world->pieces[at % world->piece_count];
        at += !is_whole && below(scene, 8) == 0 ? below(scene, world->piece_count) : 1;
        if (scene->gone[twin - world->pieces] || match.rows + twin->row_count > ROWS_MOST)
            continue;
        uint32_t first = 0, rows = twin->row_count;
        if (!is_whole && below(scene, 3) == 0) {
            first = (uint32_t)below(scene, rows);
            rows = (uint32_t)below(scene, rows - first + 1);
        }
        match_add(&match, twin, first, rows);
    }
    return match;
}

/* ---- Loads ----------------------------------------------------------------------------------- */

static void load_end(struct load *load)
{
    sc_store_reader_cancel(load->reader);
    load->is_active = false;
}

static void load_narrow(struct scene *scene, struct load *load)
{
    if (!load->is_active || !load->is_gather)
        return;
    uint64_t how = below(scene, 3);
    for (uint64_t w = 0; w < SELECTOR_ROWS_MAX / 64; w++) {
        uint64_t bits = mix(below(scene, UINT64_MAX));
        bits = how == 0 ? bits : how == 1 ? bits & mix(bits) & mix(bits + 1) : 0;
        if (how == 2 && below(scene, 4) == 0)
            bits = UINT64_MAX;
        load->wanted[w] = load->is_narrow ? load->wanted[w] & bits : bits;
    }
    memset(load->covered, 0, sizeof(load->covered));
    load->left = sc_store_reader_narrow(load->reader, load->wanted, load->covered);
    load->is_narrow = true;
}

static void load_begin(struct scene *scene, struct load *load)
{
    struct world *world = scene->world;
    load_end(load);
    load->match = match_any(scene);
    if (load->match.rows == 0)
        return;
    load->layer = below(scene, 2) == 0 ? 0 : (uint32_t)below(scene, world->setup->layers);
    load->is_gather = below(scene, 3) != 0;
    load->is_narrow = false;
    load->may_fail = scene->faults;
    load->left = load->match.rows;
    memset(load->seen, 0, sizeof(load->seen));
    enum sc_io_class io_class = below(scene, 2) == 0 ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE;
    if (load->is_gather && scene->faults)
        return;
    load->is_active = true;
    if (!load->is_gather) {
        sc_store_reader_begin(load->reader, load->layer, load->match.ranges, load->match.count,
                              io_class);
        return;
    }
    assert_int_equal(match_load(&load->match, load->selector, load->layer, 0), SPEC_OK);
    load->picks = (struct sc_store_gather_rows){
        .whole_slabs = below(scene, 2) == 0,
        .wanted = world->setup->layout == SC_STORE_SPLIT ? (uint32_t)below(scene, 3) : 0,
        .gap_bytes = below(scene, 4) * 4096};
    uint64_t share = 1 + below(scene, 8);
    for (uint64_t row = 0; row < load->match.rows; row++)
        if (below(scene, share) == 0)
            load->rows[load->picks.count++] = (uint32_t)row;
    if (below(scene, 6) == 0)
        for (uint64_t i = 0, n = load->picks.count; i < n / 2; i++) {
            uint32_t row = load->rows[i];
            load->rows[i] = load->rows[n - 1 - i];
            load->rows[n - 1 - i] = row;
        }
    load->picks.rows = share == 1 ? NULL : load->rows;
    load->left = load->picks.count;
    sc_store_reader_begin_gather(load->reader, load->layer, load->match.ranges, load->match.count,
                                 &load->picks, io_class);
    if (below(scene, 2) == 0)
        sc_store_reader_tags(load->reader, sc_store_selector_tags(load->selector));
    if (below(scene, 2) == 0) /* before the device has begun most of it */
        load_narrow(scene, load);
}

static void load_failed(struct scene *scene, struct load *load, spec_status status,
                        const struct sc_store_rows *got)
{
    bool is_memory = got->tier == SPEC_TIER_HOST || got->tier == SPEC_TIER_UPPER;
    if (!load->may_fail && !(is_memory && scene->has_rotted && status == SPEC_E_CORRUPT))
        fail_msg("%s: load of layer %" PRIu32 " (%s, %s) fails: %" PRId32 ", tier %" PRIu32 ", %s",
                 scene->world->setup->name, load->layer, load->is_gather ? "picks" : "whole",
                 load->is_narrow ? "narrowed" : "all", status, got->tier, scene->world->error.text);
    assert_true(got->failed_range < load->match.count);
    scene->failures++;
    load->is_active = false;
}

static void load_go(struct scene *scene, struct load *load, uint64_t bites)
{
    struct world *world = scene->world;
    uint64_t half = world->setup->k_row_bytes;
    if (load->is_active && load->is_gather)
        sc_store_reader_tags(load->reader, sc_store_selector_tags(load->selector));
    for (; bites > 0 && load->is_active; bites--) {
        struct sc_store_rows got = {0};
        spec_status status =
            sc_store_reader_next(load->reader, SC_EXEC_FOREVER, NULL, &got, &world->error);
        if (status != SPEC_OK) {
            load_failed(scene, load, status, &got);
            return;
        }
        scene->host_slab += got.tier != SPEC_TIER_DISK ? got.row_count : 0;
        for (uint64_t i = 0; i < got.row_count; i++) {
            uint64_t at = got.row_first + i, row = at;
            const uint8_t *k = got.rows + i * got.stride, *v = k + half;
            if (load->is_gather) {
                assert_true(at < load->picks.count);
                row = load->picks.rows != NULL ? load->picks.rows[at] : at;
                v = got.v + i * got.stride;
            }
            assert_true(row < load->match.rows && load->seen[at]++ == 0);
            if (load->is_narrow)
                assert_true(bit(load->wanted, row) && bit(load->covered, row));
            if (load->is_gather && load->picks.wanted == SC_STORE_WANT_V) {
                v = k;
                k = NULL;
            }
            if (load->is_gather && load->picks.wanted == SC_STORE_WANT_K)
                v = NULL;
            row_check(world, &load->match, load->layer, row, k, v);
        }
        assert_true(got.row_count <= load->left);
        load->left -= got.row_count;
        if (got.row_count == 0) {
            assert_int_equal(load->left, 0);
            load->is_active = false;
        }
    }
}

/* ---- What happens meanwhile ------------------------------------------------------------------ */

static void faults_off(struct scene *scene)
{
    sc_io_sim_fault_nth(scene->world->disk, SC_SIM_READ_EIO, INT64_MAX);
    sc_io_sim_fault_nth(scene->world->disk, SC_SIM_FLIP, INT64_MAX);
    scene->faults = false;
}

static void faults_on(struct scene *scene)
{
    faults_off(scene);
    for (uint32_t i = 0; i < LOADS; i++)
        scene->loads[i].may_fail = true;
    scene->faults = true;
    if (scene->is_mild || below(scene, 2) == 0) {
        sc_io_sim_fault_nth(scene->world->disk, SC_SIM_READ_EIO, below(scene, 12));
    } else {
        sc_io_sim_fault_nth(scene->world->disk, SC_SIM_FLIP, below(scene, 12));
        scene->has_rotted = true; /* also rows that nobody wants */
    }
}

static void time_goes(struct scene *scene, uint64_t ns)
{
    _Atomic uint32_t word = 0;
    (void)sc_exec_wait(scene->world->exec, &word, 0, sc_exec_now_ns(scene->world->exec) + ns);
}

static void on_staged(const struct sc_store_match_fetched *staged, void *user)
{
    struct scene *scene = user;
    scene->told = *staged;
    scene->is_staging = false;
}

static void stage_any(struct scene *scene)
{
    struct world *world = scene->world;
    if (scene->is_staging || !sc_store_can_fetch_match(world->store))
        return;
    scene->stage = match_any(scene);
    for (uint64_t i = 0; i < scene->stage.count; i++) { /* whole pieces */
        scene->stage.ranges[i].row_first = 0;
        scene->stage.ranges[i].row_count = scene->stage.twins[i]->row_count;
    }
    const struct sc_store_match_fetch what = {
        .ranges = scene->stage.ranges,
        .range_count = scene->stage.count,
        .wants = {.choice_from = world->setup->layers, .rows_end = world->setup->layers},
        .keeper = 1 + below(scene, 3),
        .done = on_staged,
        .user = scene};
    if (scene->stage.count == 0)
        return;
    scene->is_staging = sc_store_match_fetch_begin(world->store, &what, NULL) == SPEC_OK;
}

static void stage_wait(struct scene *scene)
{
    while (scene->is_staging)
        if (!sc_exec_step_one(scene->world->exec))
            time_goes(scene, 1000000);
}

static void piece_gone(struct scene *scene, uint32_t i)
{
    const struct world_piece *twin = &scene->world->pieces[i];
    scene->gone[i] = true;
    for (uint32_t l = 0; l < LOADS; l++)
        for (uint64_t r = 0; r < scene->loads[l].match.count; r++)
            if (scene->loads[l].match.twins[r] == twin)
                scene->loads[l].may_fail = true;
}

static void drop_some(struct scene *scene)
{
    struct world *world = scene->world;
    if (world->piece_count == 0)
        return;
    uint64_t at = below(scene, world->piece_count), count = 1 + below(scene, 6);
    for (; count > 0 && at < world->piece_count; count--, at++) {
        if (scene->gone[at])
            continue;
        piece_gone(scene, (uint32_t)at);
        sc_store_piece_drop(world->store, world->pieces[at].id);
    }
}

/* The oldest go first, so that no more than some live. */
static void drop_many(struct scene *scene)
{
    struct world *world = scene->world;
    for (uint32_t i = 0; i < world->piece_count; i++)
        if (!scene->gone[i] && below(scene, 3) != 0) {
            piece_gone(scene, i);
            sc_store_piece_drop(world->store, world->pieces[i].id);
        }
}

static void store_some(struct scene *scene)
{
    struct world *world = scene->world;
    uint64_t rows = 1 + below(scene, below(scene, 3) == 0 ? 700 : 250);
    if (world->piece_count + 40 > WORLD_PIECES)
        return;
    spec_status status = world_store(world, ++scene->key, below(scene, 100), (uint32_t)rows);
    if (status != SPEC_OK)
        drop_many(scene);
}

/* A byte of what memory has of a row, of any kind. */
static void rot_some(struct scene *scene)
{
    struct world *world = scene->world;
    if (world->piece_count == 0 || world->store->host == NULL || scene->is_mild)
        return;
    for (uint32_t tries = 0; tries < 40; tries++) {
        uint64_t at = below(scene, world->piece_count);
        const struct world_piece *twin = &world->pieces[at];
        if (scene->gone[at])
            continue;
        uint32_t layer = (uint32_t)below(scene, world->setup->layers);
        const struct sc_store_range range = {.piece = twin->id, .row_count = twin->row_count};
        const struct sc_store_extent_entry *extent = extent_of(world, twin->id);
        struct sc_store_slab_where where;
        sc_store_slab_where(&world->store->shape, extent, layer,
                            sc_store_table_piece(&world->store->table, twin->id), &where);
        bool is_split = world->setup->layout == SC_STORE_SPLIT;
        uint32_t wanted = is_split ? (uint32_t)below(scene, 3) : SC_STORE_WANT_ROWS;
        struct sc_host_slab host_slab = sc_host_slab_get(world->store, layer, &range, wanted);
        uint64_t rows = twin->row_count;
        if (host_slab.slab == NULL && where.slots != NULL) {
            const struct sc_host_chunk chunk = sc_host_chunk_of(
                world->store, layer, where.slots_copy, extent->row_count,
                where.slots[sc_store_table_piece(&world->store->table, twin->id)->extent_row],
                wanted);
            host_slab = sc_host_chunk_get(world->store, &chunk);
            rows = chunk.end - chunk.first;
        }
        if (host_slab.slab == NULL)
            continue;
        host_slab.bytes[host_slab.row_at + below(scene, rows * world->setup->k_row_bytes)] ^= 16;
        sc_host_tier_unpin(world->store->host, host_slab.slab);
        scene->has_rotted = true;
        return;
    }
}

static void order_some_of(struct scene *scene)
{
    order_host.is_loud = any_active(scene);
    if (any_active(scene)) {
        sc_store_build_permutation(scene->world->store, 0);
        time_goes(scene, 1 + below(scene, 3000000));
    } else {
        order_all(scene->world);
    }
}

static void loads_open(struct scene *scene)
{
    for (uint32_t i = 0; i < LOADS; i++) {
        scene->loads[i].reader = world_reader(scene->world);
        scene->loads[i].selector = selector_make(scene->world);
    }
}

static void loads_close(struct scene *scene)
{
    for (uint32_t i = 0; i < LOADS; i++) {
        load_end(&scene->loads[i]);
        sc_store_readers_close(scene->loads[i].reader, 1);
        sc_store_selector_close(scene->loads[i].selector);
    }
}

static void ends_all(struct scene *scene)
{
    for (uint32_t i = 0; i < LOADS; i++)
        load_end(&scene->loads[i]);
}

static void reopen(struct scene *scene)
{
    struct world *world = scene->world;
    faults_off(scene);
    stage_wait(scene);
    loads_close(scene);
    if (below(scene, 2) == 0)
        (void)sc_store_checkpoint(world->store, NULL);
    world_reopen(world);
    space_check(world->store);
    scene->has_rotted = false;
    loads_open(scene);
}

static void tiers_hold(const struct scene *scene)
{
    struct sc_host_tier_stats stats;
    const struct world *world = scene->world;
    if (world->store->host == NULL)
        return;
    sc_host_tier_stats(world->store->host, &stats);
    assert_in_range(stats.bytes_used, 0, world->config.host_bytes);
    assert_in_range(stats.upper_bytes_used, 0, world->config.upper_bytes);
}

/* What does not begin with a load. */
static void happens(struct scene *scene, uint64_t what)
{
    switch (what) {
    case 0:
        faults_off(scene);
        if (below(scene, 3) == 0)
            store_some(scene);
        break;
    case 1:
        order_some_of(scene);
        break;
    case 2:
        if (below(scene, 3) == 0)
            drop_some(scene);
        break;
    case 3:
        if (below(scene, 4) == 0)
            faults_on(scene);
        break;
    case 4:
    case 5:
        faults_off(scene);
        break;
    case 6:
        if (below(scene, 4) == 0)
            rot_some(scene);
        break;
    case 7:
        stage_any(scene);
        break;
    case 8:
        time_goes(scene, below(scene, 2) == 0 ? below(scene, 100000) : below(scene, 3000000000));
        break;
    case 9:
        if (below(scene, 8) == 0)
            reopen(scene);
        break;
    case 10:
        if (below(scene, 4) == 0) {
            ends_all(scene);
            time_goes(scene, 2000000000);
            (void)sc_store_quarantine_release(scene->world->store, UINT64_MAX);
        }
        break;
    default:
        if (!any_active(scene)) {
            order_host.is_loud = false;
            sc_store_build_settle(scene->world->store);
        }
        break;
    }
}

static void step(struct scene *scene)
{
    struct load *load = &scene->loads[below(scene, LOADS)];
    uint64_t what = below(scene, 24);
    if (what < 13)
        happens(scene, what);
    else if (what == 13)
        load_end(load);
    else if (what < 16)
        load_narrow(scene, load);
    else if (what < 19)
        load_begin(scene, load);
    else if (what > 19)
        load_go(scene, load, UINT64_MAX);
    if (what == 19) {
        sc_store_reader_demand(load->reader);
        load_go(scene, load, 1 + below(scene, 30));
    }
    tiers_hold(scene);
}

/* All that lives is there: what fails once is right then. */
static void all_is_there(struct scene *scene)
{
    struct world *world = scene->world;
    faults_off(scene);
    ends_all(scene);
    stage_wait(scene);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++)
        for (uint32_t i = 0; i < world->piece_count; i++) {
            spec_status status = SPEC_E_CORRUPT;
            for (uint32_t tries = 0; !scene->gone[i] && status != SPEC_OK; tries++) {
                assert_in_range(tries, 0, scene->has_rotted ? 40 : 0);
                status = world_load_piece(world, scene->loads[0].reader, layer, &world->pieces[i])
                             .status;
            }
        }
}

static void twin_run(const struct world_setup *setup, uint64_t seed, uint64_t steps,
                     uint64_t *sum_in_host_tier, uint64_t *sum_failures)
{
    static struct scene scene;
    static const uint64_t sizes[] = {0, 4096, 40u << 10, 300u << 10, 1u << 20, 16u << 20};
    memset(&scene, 0, sizeof(scene));
    scene.random = mix(seed);
    scene.is_mild = below(&scene, 3) != 0;
    scene.world = world_make(setup, seed);
    struct world *world = scene.world;
    orders_on(world, below(&scene, 2) == 0 ? 16384 : 100 + below(&scene, 200));
    world->config.host_bytes = sizes[below(&scene, 6)];
    world->config.upper_bytes = sizes[below(&scene, 6)];
    static const uint32_t policies[] = {SC_POLICY_LRU, SC_POLICY_LFU, SC_POLICY_VALUE,
                                        SC_POLICY_SCORE};
    world->config.host_policy = policies[below(&scene, 4)];
    world->config.upper_policy = policies[below(&scene, 4)];
    keep_quant(world, below(&scene, 3) == 0);
    world_open_ok(world);
    if (below(&scene, 2) == 0)
        sc_io_sim_disk_device(world->disk, &(const struct sc_io_sim_device){
                                               .bytes_per_s = 200000000, .op_ns = 80000});
    loads_open(&scene);
    for (uint64_t i = 0; i < steps; i++)
        step(&scene);
    all_is_there(&scene);
    loads_close(&scene);
    *sum_in_host_tier += scene.host_slab;
    *sum_failures += scene.failures;
    world_free(world);
}

static const struct world_setup twins[] = {
    {"paired", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 512, 96), WORLD_DISK(24, 4, 64)},
    {"split, odd rows", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 2, 1504, 198), WORLD_DISK(24, 2, 64)},
    {"paired, small odd rows, large reads", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 84, 32),
     WORLD_DISK(64, 4, 512)},
    {"split, small rows, large reads", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 3, 200, 32),
     WORLD_DISK(16, 2, 256)},
    {"paired, rows of 8 KiB", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 4096, 512),
     WORLD_DISK(64, 8, 64)}};
#define TWINS (sizeof(twins) / sizeof(twins[0]))

static uint64_t number_of(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : usual;
}

/* SC_SEED=N SC_SEEDS=N SC_STEPS=N: others, or more. */
static void what_comes_is_what_was_stored(void **state)
{
    (void)state;
    uint64_t seed = number_of("SC_SEED", 1), end = seed + number_of("SC_SEEDS", 10);
    uint64_t host_slab = 0, failures = 0;
    for (; seed < end; seed++) {
        print_message("seed %" PRIu64 "\n", seed);
        twin_run(&twins[seed % TWINS], seed, number_of("SC_STEPS", 500), &host_slab, &failures);
    }
    assert_true(host_slab > 0 && failures > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_comes_is_what_was_stored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
