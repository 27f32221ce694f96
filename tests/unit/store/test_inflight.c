/* Operations in flight (store/cache/inflight.h) of many loads over few frames: readers and
 * selectors of one store are begun, waited for, raised, narrowed, cancelled and closed in a seeded
 * order, while reads fail, come late or in parts; on the simulated disk, where a run follows from
 * its seed, and by threads on what a machine has.
 *
 * Holds: what comes is what was stored, in its order; a load that fails says so; who waits without
 * a deadline is served; costs are never less than nothing; in the end nothing is held.
 * Threads: in the loop one; else PLAYERS, each with loads of its own.
 * SC_SEED=n runs one seed, SC_SEEDS=n so many, from 1 or SC_SEED on. */
#include "store/io/io_backend.h"
#include "tests/unit/store/build_check.h"
#include "tests/unit/store/quant_check.h"

#include <pthread.h>

#define PLAYERS  3u
#define READERS  5u
#define SELECTORS 3u
#define ROWS_MAX 640u
#define PROBE    64u
#define KEYS     3u
#define WORDS    (ROWS_MAX / 64)
#define STEPS    1500u /* of a player */
#define SEEDS    2u
#define OVERS    100u /* loads begun over others */
#define CALLS    64u  /* no call is late by so many loads */

static const struct world_setup setups[] = {
    {"sim, paired", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 512, PROBE), WORLD_DISK(64, 4, 20),
     .staging_bytes = 5 * (28u << 10)},
    {"sim, split", WORLD_ON(SIM, 0), WORLD_SHAPE(SPLIT, 2, 1504, PROBE), WORLD_DISK(64, 4, 24),
     .staging_bytes = 6 * (32u << 10)},
    {"sim, paired, two operations fly", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 512, PROBE),
     WORLD_DISK(64, 16, 8192), .staging_bytes = 5 * ((8u << 20) + (8u << 10))},
    {"pread, paired, 3 threads", WORLD_ON(PREAD, 3), WORLD_SHAPE(PAIRED, 2, 512, PROBE),
     WORLD_DISK(64, 4, 20), .staging_bytes = 5 * (28u << 10)},
    {"sim, split, 2 threads", WORLD_ON(SIM, 2), WORLD_SHAPE(SPLIT, 2, 512, PROBE),
     WORLD_DISK(64, 4, 20), .staging_bytes = 5 * (28u << 10)},
    {"io_uring, split, 2 threads", WORLD_ON(URING, 2), WORLD_SHAPE(SPLIT, 2, 512, PROBE),
     WORLD_DISK(64, 4, 20), .staging_bytes = 5 * (28u << 10)},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

/* Without cmocka: it belongs to one thread. */
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct load;
struct call { /* what on_ready is told */
    struct load *load;
    uint64_t begun; /* its number */
};

struct load { /* of a reader or a selector */
    struct sc_store_reader *reader;
    struct sc_store_selector *selector;
    struct {
        struct match match;
        uint32_t rows[ROWS_MAX]; /* picks */
    } turns[2]; /* a load is begun over another one, which looks at its own until then */
    uint32_t turn;
    struct match *match;
    uint32_t *rows;
    uint32_t layer;
    bool is_begun, is_gather, is_narrowed;
    bool is_touched; /* it may hold the spare frame */
    /* A reader's. */
    struct sc_store_gather_rows picks;
    uint64_t tags[2 * ROWS_MAX];
    uint64_t narrowings[2][WORDS]; /* the load reads the last one, at any time */
    uint64_t *wanted;              /* of them */
    uint64_t covered[WORDS];
    uint64_t next, came, due; /* pick that comes next; of those that were narrowed to */
    /* A selector's. */
    bool is_quant, k_alone, is_told;
    uint32_t told_before;
    struct sc_exec *exec;
    _Atomic uint32_t told; /* word of on_ready */
    _Atomic uint64_t begun;
    struct call calls[CALLS];
};

struct player {
    struct world *world;
    uint64_t random;
    uint32_t steps;
    uint64_t loads_done, failed, narrowed;
    struct load readers[READERS], selectors[SELECTORS];
};

static pthread_mutex_t codes_lock = PTHREAD_MUTEX_INITIALIZER; /* of codes_check's memory */

static uint64_t draw(struct player *player, uint64_t bound)
{
    return random_below(&player->random, bound);
}

static bool bit(const uint64_t *bits, uint64_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

/* ---- What is loaded ------------------------------------------------------------------------- */

/* Some pieces of one key, in order; ends may lie inside a piece. */
static void match_draw(struct player *player, struct load *load, bool is_quant)
{
    load->turn ^= 1;
    load->rows = load->turns[load->turn].rows;
    struct match *match = load->match = &load->turns[load->turn].match;
    const struct world *world = player->world;
    struct match all = match_of(world, 1 + draw(player, KEYS));
    uint64_t first = draw(player, all.count), count = 1 + draw(player, all.count - first);
    *match = (struct match){.count = 0};
    for (uint64_t i = first; i < first + count; i++) {
        uint32_t rows = all.twins[i]->row_count, from = 0;
        if (!is_quant && draw(player, 4) == 0) {
            from = (uint32_t)draw(player, rows);
            rows = (uint32_t)draw(player, rows - from + 1);
        }
        match_add(match, all.twins[i], from, rows);
    }
}

static void row_of(const struct load *load, const struct world *world, uint64_t row, uint8_t *dst,
                   const struct world_piece **ret_twin, uint64_t *ret_position)
{
    uint64_t r = 0;
    for (; row >= load->match->ranges[r].row_count; r++)
        row -= load->match->ranges[r].row_count;
    *ret_twin = load->match->twins[r];
    *ret_position = (*ret_twin)->first_position + load->match->ranges[r].row_first + row;
    row_fill(dst, 2 * world->setup->k_row_bytes, (*ret_twin)->key, load->layer, *ret_position);
}

static void tags_make(const struct world *world, struct load *load)
{
    bool is_split = world->setup->layout == SC_STORE_SPLIT;
    uint64_t k_bytes = world->setup->k_row_bytes, bytes = is_split ? k_bytes : 2 * k_bytes;
    uint64_t *tags = load->tags;
    uint8_t row[2 * 1504];
    for (uint64_t i = 0; i < load->match->rows; i++) {
        const struct world_piece *twin;
        uint64_t position;
        uint8_t hash[16];
        row_of(load, world, i, row, &twin, &position);
        hash_of(twin->key, twin->first_position + twin->row_count, hash);
        for (uint32_t part = is_split ? SC_STORE_PART_K : SC_STORE_PART_ROW;
             part <= (uint32_t)(is_split ? SC_STORE_PART_V : SC_STORE_PART_ROW); part++) {
            const struct sc_store_tag_rows one = {
                .base = sc_store_tag_base(world->params.space.digest, hash,
                                          copy_of(world, twin->id), load->layer, part),
                .position_first = position,
                .row_bytes = bytes,
                .count = 1};
            sc_store_tag_make(&one, part == SC_STORE_PART_V ? row + k_bytes : row, tags++);
        }
    }
}

/* ---- Readers -------------------------------------------------------------------------------- */

static void reader_begin(struct player *player, struct load *load)
{
    enum sc_io_class io_class = draw(player, 2) == 0 ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE;
    match_draw(player, load, false);
    load->layer = (uint32_t)draw(player, player->world->setup->layers);
    load->is_gather = draw(player, 2) == 0;
    load->is_begun = true;
    load->is_narrowed = load->is_touched = false;
    load->next = 0;
    if (!load->is_gather) {
        sc_store_reader_begin(load->reader, load->layer, load->match->ranges, load->match->count,
                              io_class);
        return;
    }
    uint64_t one_in = 1 + draw(player, 6);
    load->picks = (struct sc_store_gather_rows){.rows = load->rows,
                                                .gap_bytes = draw(player, 3) * 4096,
                                                .wanted = SC_STORE_WANT_ROWS,
                                                .whole_slabs = draw(player, 4) == 0};
    for (uint32_t row = 0; row < load->match->rows; row++)
        if (draw(player, one_in) == 0)
            load->rows[load->picks.count++] = row;
    tags_make(player->world, load);
    sc_store_reader_begin_gather(load->reader, load->layer, load->match->ranges, load->match->count,
                                 &load->picks, io_class);
    sc_store_reader_tags(load->reader, load->tags);
}

static void rows_check(const struct player *player, struct load *load,
                       const struct sc_store_rows *rows)
{
    uint64_t k_bytes = player->world->setup->k_row_bytes;
    uint8_t row[2 * 1504];
    HOLDS(load->is_narrowed ? rows->row_first >= load->next : rows->row_first == load->next);
    for (uint64_t i = 0; i < rows->row_count; i++) {
        const struct world_piece *twin;
        uint64_t position, at = rows->row_first + i;
        at = load->is_gather ? load->rows[at] : at;
        row_of(load, player->world, at, row, &twin, &position);
        HOLDS(memcmp(rows->rows + i * rows->stride, row, k_bytes) == 0);
        HOLDS(memcmp(rows->v + i * rows->stride, row + k_bytes, k_bytes) == 0);
        if (load->is_narrowed)
            HOLDS(bit(load->wanted, at) && bit(load->covered, at));
    }
    load->next = rows->row_first + rows->row_count;
    load->came += rows->row_count;
}

static void cost_check(const struct sc_store_read_cost *cost)
{
    HOLDS(cost->read_bytes < 1u << 30 && cost->op_count <= cost->read_bytes / 4096);
    HOLDS(cost->row_count <= ROWS_MAX);
}

/* The next rows. Costs are looked at when a load ends. */
static void reader_take(struct player *player, struct load *load, uint64_t deadline_ns)
{
    struct sc_store_rows rows;
    struct sc_store_read_cost cost;
    struct spec_error error = {.struct_size = sizeof(error)};
    load->is_touched = true;
    spec_status status = sc_store_reader_next(load->reader, deadline_ns, NULL, &rows, &error);
    if (status == SPEC_E_TIMEOUT) {
        HOLDS(deadline_ns != SC_EXEC_FOREVER);
        return;
    }
    HOLDS(status == SPEC_OK || status == SPEC_E_IO);
    if (status == SPEC_OK && rows.row_count > 0) {
        rows_check(player, load, &rows);
        return;
    }
    HOLDS(sc_store_reader_is_idle(load->reader));
    uint64_t all = load->is_gather ? load->picks.count : load->match->rows;
    if (status == SPEC_OK)
        HOLDS(load->is_narrowed ? load->came == load->due : load->next == all);
    sc_store_reader_cost(load->reader, &cost);
    cost_check(&cost);
    player->loads_done++;
    player->failed += status != SPEC_OK;
    load->is_begun = load->is_touched = false;
}

static void reader_narrow(struct player *player, struct load *load)
{
    struct sc_store_read_cost cost;
    uint64_t one_in = 1 + draw(player, 8), count = 0;
    uint64_t *wanted = load->narrowings[load->wanted == load->narrowings[0] ? 1 : 0];
    memset(load->covered, 0, sizeof(load->covered));
    memset(wanted, 0xff, WORDS * sizeof(*wanted));
    if (load->is_narrowed)
        memcpy(wanted, load->wanted, WORDS * sizeof(*wanted));
    load->wanted = wanted;
    for (uint64_t row = 0; row < load->match->rows; row++)
        if (draw(player, one_in) != 0)
            load->wanted[row / 64] &= ~(1ull << (row % 64));
    load->due = sc_store_reader_narrow(load->reader, load->wanted, load->covered);
    load->is_narrowed = true;
    load->came = 0;
    for (uint64_t row = 0; row < load->match->rows; row++)
        count += bit(load->covered, row);
    HOLDS(count == load->due);
    sc_store_reader_cost(load->reader, &cost);
    cost_check(&cost);
    player->narrowed++;
}

/* ---- Sketches ------------------------------------------------------------------------------- */

/* Of a load that has ended it may come when the next one is under way. */
static void on_ready(struct sc_store_selector *selector, void *user)
{
    const struct call *call = user;
    struct load *load = call->load;
    bool is_pending = sc_store_selector_state(selector) == SPEC_PENDING;
    HOLDS(!is_pending || atomic_load(&load->begun) != call->begun);
    (void)atomic_fetch_add(&load->told, 1);
    sc_exec_wake(load->exec, &load->told);
}

static void selector_begin(struct player *player, struct load *load)
{
    load->is_quant = draw(player, 2) == 0;
    load->k_alone = draw(player, 2) == 0;
    load->is_told = draw(player, 2) == 0;
    match_draw(player, load, load->is_quant);
    load->layer = (uint32_t)draw(player, player->world->setup->layers);
    load->told_before = atomic_load(&load->told);
    uint64_t begun = atomic_fetch_add(&load->begun, 1) + 1;
    struct call *call = &load->calls[begun % CALLS];
    *call = (struct call){load, begun};
    struct sc_store_selector_want want = {
        .layer = load->layer,
        .io_class = draw(player, 2) == 0 ? SC_IO_CLASS_DEMAND : SC_IO_CLASS_SPECULATIVE,
        .ranges = load->match->ranges,
        .range_count = load->match->count,
        .probe_row_bytes = load->is_quant ? 0 : draw(player, 3) * (PROBE / 2),
        .is_quant = load->is_quant,
        .k_alone = load->k_alone,
        .on_ready = load->is_told ? on_ready : NULL,
        .user = call};
    load->due = want.probe_row_bytes;
    load->is_begun = sc_store_selector_begin(load->selector, &want);
}

static void selector_end(struct load *load)
{
    sc_store_selector_end(load->selector);
    HOLDS(sc_store_selector_state(load->selector) == SPEC_E_DROPPED);
    load->is_begun = false;
}

static void selector_wait(struct player *player, struct load *load, uint64_t deadline_ns)
{
    struct sc_store_read_cost cost;
    spec_status status = sc_store_selector_wait(load->selector, deadline_ns);
    if (status == SPEC_E_TIMEOUT) {
        HOLDS(deadline_ns != SC_EXEC_FOREVER);
        return;
    }
    HOLDS(status == SPEC_OK || status == SPEC_E_IO);
    if (status == SPEC_OK && load->is_quant) {
        (void)pthread_mutex_lock(&codes_lock);
        (void)codes_check(player->world, load->match, 0, load->layer, load->k_alone,
                          load->selector);
        (void)pthread_mutex_unlock(&codes_lock);
    } else if (status == SPEC_OK) {
        match_check(player->world, load->match, load->layer, load->due, load->selector, true);
    }
    while (load->is_told && atomic_load(&load->told) == load->told_before)
        HOLDS(sc_exec_wait(player->world->exec, &load->told, load->told_before, SC_EXEC_FOREVER));
    sc_store_selector_cost(load->selector, &cost);
    cost_check(&cost);
    player->loads_done++;
    player->failed += status != SPEC_OK;
    selector_end(load);
}

/* ---- Playing -------------------------------------------------------------------------------- */

/* Who waits for ever holds nothing that another may wait for. */
static uint64_t deadline_draw(struct player *player, const struct load *mine)
{
    if (draw(player, 3) > 0)
        return sc_exec_now_ns(player->world->exec) + draw(player, 300000);
    for (uint32_t i = 0; i < READERS; i++) {
        struct load *other = &player->readers[i];
        if (other == mine || !other->is_touched)
            continue;
        sc_store_reader_cancel(other->reader);
        other->is_begun = other->is_touched = false;
    }
    return SC_EXEC_FOREVER;
}

static void reader_step(struct player *player, struct load *load)
{
    uint64_t what = draw(player, 16);
    if (!load->is_begun || what == 0) {
        reader_begin(player, load); /* over an old one, too */
    } else if (what == 1) {
        sc_store_reader_cancel(load->reader);
        HOLDS(sc_store_reader_is_idle(load->reader));
        load->is_begun = load->is_touched = false;
    } else if (what == 2) {
        sc_store_reader_demand(load->reader);
    } else if (what == 3) {
        (void)sc_store_reader_is_there(load->reader);
    } else if (what <= 6 && load->is_gather) {
        reader_narrow(player, load);
    } else if (what == 7) {
        sc_store_readers_close(load->reader, 1);
        load->reader = world_reader(player->world);
        load->is_begun = load->is_touched = false;
    } else {
        reader_take(player, load, deadline_draw(player, load));
    }
}

static void selector_step(struct player *player, struct load *load)
{
    uint64_t what = draw(player, 16);
    if (!load->is_begun || what == 0) {
        selector_begin(player, load);
    } else if (what <= 2) {
        selector_end(load);
    } else if (what == 3) {
        sc_store_selector_demand(load->selector);
    } else if (what == 4) {
        sc_store_selector_close(load->selector);
        load->selector = selector_make(player->world);
        load->is_begun = false;
    } else if (what == 5) {
        const uint8_t *keys = sc_store_selector_keys_hold(load->selector);
        selector_end(load);
        if (keys != NULL)
            sc_store_selector_keys_leave(load->selector, keys);
    } else {
        selector_wait(player, load, deadline_draw(player, NULL));
    }
}

static void player_open(struct player *player, struct world *world, uint64_t seed, uint32_t steps)
{
    *player = (struct player){.world = world, .random = seed, .steps = steps};
    for (uint32_t i = 0; i < READERS; i++)
        player->readers[i].reader = world_reader(world);
    for (uint32_t i = 0; i < SELECTORS; i++)
        player->selectors[i] = (struct load){.selector = selector_make(world), .exec = world->exec};
}

static void player_close(struct player *player)
{
    for (uint32_t i = 0; i < READERS; i++)
        sc_store_readers_close(player->readers[i].reader, 1);
    for (uint32_t i = 0; i < SELECTORS; i++)
        sc_store_selector_close(player->selectors[i].selector);
}

static void *play(void *user)
{
    struct player *player = user;
    struct world *world = player->world;
    for (uint32_t i = 0; i < player->steps; i++) {
        uint64_t who = draw(player, READERS + SELECTORS);
        if (world->setup->thread_count == 0)
            for (uint64_t n = draw(player, 12); n > 0 && sc_exec_step_one(world->exec); n--) {
            }
        if (draw(player, 40) == 0)
            sc_fault_arm(&world->fault, draw(player, 2) == 0 ? SC_FAULT_READ : SC_FAULT_COMPLETION,
                         draw(player, 8));
        if (who < READERS)
            reader_step(player, &player->readers[who]);
        else
            selector_step(player, &player->selectors[who - READERS]);
    }
    player_close(player);
    return NULL;
}

/* NULL: the machine has no such back end. */
static struct world *world_filled(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    world->params.selector_bytes_max = 1u << 20;
    world->config.staging_bytes = 64u << 20; /* to write what is read over few frames */
    keep_quant(world, true);
    if (!world_opens(world)) {
        world_free(world);
        return NULL;
    }
    for (uint64_t key = 1; key <= KEYS; key++) {
        assert_int_equal(world_store(world, key, 0, 300), SPEC_OK);
        assert_int_equal(world_store(world, key, 300, (uint32_t)(30 * key)), SPEC_OK);
    }
    build_all(world, 0);
    world->config.staging_bytes = setup->staging_bytes;
    world_reopen(world);
    if (world->disk != NULL) {
        sc_io_sim_fault_ppm(world->disk, SC_SIM_READ_EIO, 10000);
        sc_io_sim_fault_ppm(world->disk, SC_SIM_SHORT, 100000);
        sc_io_sim_fault_ppm(world->disk, SC_SIM_LATE, 20000);
        sc_io_sim_fault_late_ns(world->disk, 3000000);
    }
    return world;
}

/* All players are through. */
static void nothing_is_held(struct world *world)
{
    struct sc_store *store = world->store;
    struct sc_store_stats stats;
    sc_store_stats(store, &stats);
    assert_int_equal(stats.staging_bytes_used, 0);
    assert_int_equal(sc_store_selector_bytes_used(store), 0);
    assert_int_equal(atomic_load(&store->counts.loads), 0);
    assert_int_equal(atomic_load(&store->io->held_bytes), 0);
    assert_int_equal(atomic_load(&store->io->in_flight), 0);
    assert_int_equal(atomic_load(&store->io->cost.flying_bytes), 0);
    assert_null(store->spare.owner);
    assert_null(store->spare.starved);
    assert_int_equal(stats.corrupt_rows, 0);
    assert_true(stats.read_ops <= stats.read_bytes / 4096 && stats.read_bytes < 1ull << 40);
}

/* All players of one world, where the machine has its back end. */
static void world_play(const struct world_setup *setup, uint64_t seed)
{
    static struct player players[PLAYERS];
    uint32_t count = setup->thread_count == 0 ? 1 : PLAYERS;
    uint64_t done = 0, failed = 0, narrowed = 0;
    pthread_t threads[PLAYERS];
    struct world *world = world_filled(setup, seed);
    if (world == NULL)
        return;
    for (uint32_t p = 0; p < count; p++)
        player_open(&players[p], world, mix(seed * PLAYERS + p), STEPS);
    for (uint32_t p = 1; p < count; p++)
        assert_int_equal(pthread_create(&threads[p], NULL, play, &players[p]), 0);
    (void)play(&players[0]);
    for (uint32_t p = 0; p < count; p++) {
        if (p > 0)
            assert_int_equal(pthread_join(threads[p], NULL), 0);
        done += players[p].loads_done;
        failed += players[p].failed;
        narrowed += players[p].narrowed;
    }
    print_message("%s, seed %" PRIu64 ": %" PRIu64 " loads to their end, %" PRIu64
                  " failed, %" PRIu64 " narrowed\n",
                  setup->name, seed, done, failed, narrowed);
    assert_true(done > failed && failed > 0 && narrowed > 0);
    nothing_is_held(world);
    world_free(world);
}

static void loads_over_few_frames_are_right(void **state)
{
    const char *only = getenv("SC_SEED"), *many = getenv("SC_SEEDS");
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 1;
    uint64_t count = many != NULL ? strtoull(many, NULL, 10) : only != NULL ? 1 : SEEDS;
    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++)
        for (uint32_t i = 0; i < SETUPS; i++)
            world_play(&setups[i], seed);
}

/* ---- Loads that end while a block of them is copied ------------------------------------------ */

/* By threads: what is copied for the load before changes nothing of the one that is begun over it.
 */
static void a_load_begun_over_another_is_its_own(void **state)
{
    (void)state;
    for (uint32_t i = 3; i < SETUPS; i++) {
        struct world *world = world_filled(&setups[i], i);
        struct match matches[2] = {{.count = 0}, {.count = 0}};
        uint64_t random = i;
        if (world == NULL)
            continue;
        for (uint32_t f = 0; world->disk != NULL && f < SC_SIM_FAULTS; f++)
            sc_io_sim_fault_ppm(world->disk, f, 0);
        match_key(world, &matches[0], 1);
        match_key(world, &matches[1], 2);
        struct sc_store_selector *selector = selector_make(world);
        for (uint32_t round = 0; round < OVERS; round++) {
            for (uint32_t m = 0; m < 2; m++) {
                struct sc_store_selector_want want = {.io_class = SC_IO_CLASS_DEMAND,
                                                      .ranges = matches[m].ranges,
                                                      .range_count = matches[m].count,
                                                      .probe_row_bytes = PROBE};
                assert_true(sc_store_selector_begin(selector, &want));
                while (m == 0 && sc_store_selector_state(selector) == SPEC_PENDING &&
                       atomic_load(&world->store->io->in_flight) > 0)
                    ; /* its reads are done: it is copied now */
                for (_Atomic uint64_t n = m == 0 ? random_below(&random, 3000) : 0; n > 0; n--)
                    ;
            }
            assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
            match_check(world, &matches[1], 0, PROBE, selector, round % 16 == 0);
        }
        sc_store_selector_close(selector);
        nothing_is_held(world);
        world_free(world);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_over_few_frames_are_right),
        cmocka_unit_test(a_load_begun_over_another_is_its_own),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
