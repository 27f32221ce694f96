/* What is read ahead (whole layers, guesses, submissions) in any order of calls, with
 * deadlines in the midst of it: what is delivered is right, and nothing on the disk is taken for
 * bad, unless it is. On the simulated disk, some of whose operations come late, fail or flip a bit;
 * and by threads, on a directory.
 *
 *   a seed -> a configuration, a device, then steps: layers begun, guesses asked for, items of a
 *             few requests, at once or submitted, waited for or not, requests released meanwhile
 *   each item -> rows as its positions say; of the same queries the same rows, whatever was read
 *
 * Holds: a failure names its seed.
 * Threads: the loop's; four on a directory, whose requests are their own. */
#include "store/internal.h"
#include "tests/sample.h"
#include "tests/unit/awaits.h"
#include "tests/unit/plugin/layered_fixture.h"
#include "tests/unit/threads.h"

#define ROWS     300u
#define LAYERS   4u
#define REQUESTS 3u
#define ITEMS    4u
#define STEPS    120u
#define HEADS    2u
#define SUBMITS  4u
#define THREADS  4u

enum { RIGHT, NEGATED, NANS, KINDS }; /* queries */

#define SEEDS SAMPLE_OF(120u, 24u)
#define RUNS  SAMPLE_OF(10u, 4u)

static const struct {
    const char *preset, *layout, *more;
    bool is_layered, is_free; /* of free widths */
} CASES[] = {
    {"spec-itf", "paired", "", false, false},
    {"spec-itf+range", "split", "", false, false},
    {"spec-itf", "paired", ", \"prefetch\": {\"predictor\": \"static\"}", false, false},
    {"spec-itf+range", "paired", ", \"prefetch\": {\"predictor\": \"sink\"}", false, false},
    {"hinted", "paired", ", \"prefetch\": {\"min_precision_ppm\": 0}", false, false},
    {"hinted", "split",
     ", \"prefetch\": {\"min_precision_ppm\": 0}, \"read\": {\"planner\": \"chunk\"}", false,
     false},
    {"layered-uniform", "paired", ", \"prefetch\": {\"min_precision_ppm\": 0}", true, false},
    {"layered-uniform", "split",
     ", \"prefetch\": {\"predictor\": \"layer\", \"min_precision_ppm\": 0}, \"read\": "
     "{\"planner\": "
     "\"chunk\"}",
     true, false},
    {"layered-uniform", "paired", ", \"prefetch\": {\"min_precision_ppm\": 0}", true, true},
    {"layered-uniform", "split",
     ", \"prefetch\": {\"min_precision_ppm\": 0}, \"read\": {\"planner\": \"chunk\"}", true, true},
    {"layered-uniform", "paired",
     ", \"prefetch\": {\"predictor\": \"layer\", \"min_precision_ppm\": 0}, \"read\": "
     "{\"planner\": \"range\"}",
     true, true},
    {"layered-uniform", "split", "", true, true},
};
#define CASE_COUNT (sizeof(CASES) / sizeof(CASES[0]))

static const uint32_t PPM[] = {0, 50000, 200000};
#define SHARES (sizeof(PPM) / sizeof(PPM[0]))

struct shots { /* an item and what it points to */
    struct spec_select select;
    struct area area;
    uint32_t positions[HEADS * ROWS];
    uint64_t exact[(ROWS + 63) / 64];
    uint32_t held, kind, share; /* kind: of queries; share: of PPM, or SHARES: all rows */
};

struct held {
    spec_request request;
    uint64_t from;
    uint32_t out;  /* submissions that are not waited for */
    bool is_short; /* less than all is found */
};

struct submitted {
    spec_ticket ticket;
    uint64_t count;
    struct spec_important items[ITEMS];
    struct shots shots[ITEMS];
    bool is_out, is_left[ITEMS]; /* left: its request was released meanwhile */
};

struct known { /* what a choice was, the first time */
    bool is_known;
    uint64_t bits[HEADS][(ROWS + 63) / 64];
};

struct host {
    struct world *world;
    uint64_t seed, state;
    bool churns;                /* others store, so that what nobody holds goes; and resets come */
    bool is_free;               /* of a layered one */
    bool is_layered, is_broken; /* broken: an operation failed, or brought something else */
    struct pass passes[LAYERS][KINDS]; /* of queries */
    struct held held[REQUESTS];
    struct submitted submits[SUBMITS];
    struct known known[3][LAYERS][KINDS][SHARES + 1];
    uint64_t late, full, stale;
};

static uint64_t draw(struct host *host, uint64_t below)
{
    host->state = rig_mix(host->state);
    return host->state % below;
}

static const uint64_t FROM[] = {0, 64, 100};

static void held_take(struct host *host, uint32_t i)
{
    uint64_t which = draw(host, 3);
    host->held[i] = (struct held){.from = FROM[which]};
    struct spec_lookup_result result;
    spec_status status;
    uint32_t looks = 0;
    do { /* threads may take each other's slots, and guesses hold some for a moment */
        status =
            rig_try_lookup(&host->world->rig, &host->world->prompt, FROM[which], RIG_MAX, &result);
    } while (status == SPEC_E_BUSY && !host->world->rig.is_sim && await_goes_on(&looks));
    assert_int_equal(status, SPEC_OK);
    host->held[i].request = result.request;
    host->held[i].is_short = result.matched_tokens < ROWS;
    assert_true(host->is_broken || host->churns || !host->held[i].is_short);
}

/* ---- Items ----------------------------------------------------------------------------------- */

static void item_make(struct host *host, uint32_t held, uint32_t layer, struct spec_important *item,
                      struct shots *shots)
{
    static const uint64_t LATE_NS[] = {1, 20000, 60000, 150000, 400000, 1000000};
    struct pass *pass;
    *shots = (struct shots){.held = held, .kind = (uint32_t)draw(host, KINDS)};
    shots->share = (uint32_t)draw(host, SHARES + 1);
    shots->area = rig_area(&host->world->rig, ROWS - host->held[held].from);
    pass = &host->passes[layer][shots->kind];
    shots->select.struct_size = sizeof(shots->select);
    if (host->is_layered) {
        shots->select.given = SPEC_SELECT_EXACT;
        shots->select.exact_ppm = shots->share < SHARES ? PPM[shots->share] : 1000000;
    } else {
        shots->select.given = shots->share < SHARES ? 0 : SPEC_SELECT_BUDGET;
        shots->select.budget = SPEC_BUDGET_RATIO;
        shots->select.retain_ppm = 1000000;
        shots->share = shots->share < SHARES ? 0 : SHARES;
    }
    *item = (struct spec_important){.struct_size = sizeof(*item),
                                    .request = host->held[held].request,
                                    .layer = layer,
                                    .queries = &pass->q,
                                    .new_keys = &pass->fresh.memory,
                                    .destination = &shots->area.memory,
                                    .positions = shots->positions,
                                    .position_capacity = HEADS * ROWS,
                                    .exact_bits = shots->exact,
                                    .exact_bit_words = (ROWS + 63) / 64,
                                    .deadline_ns = draw(host, 2) == 0 ? LATE_NS[draw(host, 6)] : 0,
                                    .select = &shots->select};
}

/* The head's part of row j of the destination is that of the position. */
static void head_check(const struct host *host, const struct spec_important *item,
                       const struct shots *shots, uint64_t j, uint64_t head, uint64_t position)
{
    uint64_t bytes = rig_part_bytes(&host->world->rig), part_bytes = bytes / HEADS;
    uint8_t row[512];
    for (uint32_t part = 0; part < 2; part++) {
        const uint8_t *at = part == 0 ? shots->area.memory.k_base : shots->area.memory.v_base;
        stored_row(host->world, position, item->layer, part, row);
        if (memcmp(at + j * bytes + head * part_bytes, row + head * part_bytes, part_bytes) != 0)
            fail_msg("seed %lu: layer %u row %lu (token %lu) head %lu part %u is not what it "
                     "should be",
                     host->seed, item->layer, j, position, head, part);
    }
}

static void chosen_check(struct host *host, const struct spec_important *item,
                         const struct shots *shots)
{
    bool is_parted = (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    uint64_t from = host->held[shots->held].from, count = item->row_count;
    uint32_t which = from == 0 ? 0 : from == 64 ? 1 : 2;
    struct known *known = &host->known[which][item->layer][shots->kind][shots->share];
    struct known now = {.is_known = true};
    for (uint64_t head = 0; head < HEADS; head++)
        for (uint64_t j = 0; j < count; j++) {
            uint64_t position = shots->positions[is_parted ? head * count + j : j];
            assert_in_range(position, from, ROWS - 1);
            head_check(host, item, shots, j, head, position);
            now.bits[head][position / 64] |= UINT64_C(1) << (position % 64);
        }
    if ((item->result_flags & SPEC_IMPORTANT_DENSE) != 0 || host->is_broken || host->churns)
        return;
    if (known->is_known && memcmp(known, &now, sizeof(now)) != 0)
        fail_msg("seed %lu: layer %u: another choice than before", host->seed, item->layer);
    *known = now;
}

static pthread_mutex_t checking = PTHREAD_MUTEX_INITIALIZER; /* the fixture has one buffer */

static void layered_check(struct host *host, const struct spec_important *item,
                          const struct shots *shots)
{
    struct shot shot;
    shot.item = *item;
    shot.area = shots->area;
    memcpy(shot.positions, shots->positions, ROWS * sizeof(shot.positions[0]));
    memset(shot.exact, 0, sizeof(shot.exact));
    memcpy(shot.exact, shots->exact, sizeof(shots->exact));
    pthread_mutex_lock(&checking);
    if (host->is_free)
        assert_rows_near(host->world, &shot, host->held[shots->held].from);
    else
        assert_rows(host->world, &shot, host->held[shots->held].from, 4, 2);
    pthread_mutex_unlock(&checking);
    if ((item->result_flags & (SPEC_IMPORTANT_PARTIAL | SPEC_IMPORTANT_DENSE)) != 0 ||
        host->is_broken || host->churns)
        return;
    uint64_t from = host->held[shots->held].from;
    struct known *known = &host->known[from == 0    ? 0
                                       : from == 64 ? 1
                                                    : 2][item->layer][shots->kind][shots->share];
    if (known->is_known && memcmp(known->bits[0], shot.exact, sizeof(shots->exact)) != 0)
        fail_msg("seed %lu: layer %u: another choice than before", host->seed, item->layer);
    known->is_known = true;
    memcpy(known->bits[0], shot.exact, sizeof(shots->exact));
}

static void item_check(struct host *host, const struct spec_important *item, struct shots *shots,
                       bool is_left)
{
    if (item->status == SPEC_OK && !is_left && host->is_layered)
        layered_check(host, item, shots);
    else if (item->status == SPEC_OK && !is_left)
        chosen_check(host, item, shots);
    else if (item->status != SPEC_OK && !(item->status == SPEC_E_STALE && is_left) &&
             !(item->status == SPEC_E_TIMEOUT && item->deadline_ns != 0) &&
             !(host->is_broken && (item->status == SPEC_E_IO || item->status == SPEC_E_CORRUPT)))
        fail_msg("seed %lu: layer %u: %s", host->seed, item->layer, sc_status_name(item->status));
    host->full += item->status == SPEC_OK;
    host->late += item->status == SPEC_E_TIMEOUT;
    host->stale += item->status == SPEC_E_STALE;
    if (item->status == SPEC_OK)
        assert_true(item->unused_bytes <= item->read_bytes);
    rig_area_free(&shots->area);
}

/* What says why is written where something failed, and nowhere else. [ABI-003] */
static struct spec_error error_fresh(void)
{
    return (struct spec_error){.struct_size = sizeof(struct spec_error), .code = 77};
}

static void error_check(const struct host *host, const struct spec_error *error, spec_status status)
{
    if (error->code != (status == SPEC_OK ? 77 : status) || (error->text[0] == 0) != (status == 0))
        fail_msg("seed %lu: %s, and the error is %d: %s", host->seed, sc_status_name(status),
                 error->code, error->text);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* One whose loads are the host's; REQUESTS: there is none. */
static uint32_t held_draw(struct host *host)
{
    uint32_t i = (uint32_t)draw(host, REQUESTS);
    return host->held[i].out == 0 && !host->held[i].is_short ? i : REQUESTS;
}

static uint64_t items_make(struct host *host, struct spec_important *items, struct shots *shots)
{
    uint64_t count = draw(host, ITEMS) + 1, made = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t held = held_draw(host);
        if (held < REQUESTS) {
            item_make(host, held, (uint32_t)draw(host, LAYERS), &items[made], &shots[made]);
            made++;
        }
    }
    return made;
}

static void step_get(struct host *host)
{
    struct spec_important items[ITEMS];
    struct shots shots[ITEMS];
    uint64_t count = items_make(host, items, shots);
    struct spec_error error = error_fresh();
    if (count > 0)
        error_check(host, &error,
                    sc_plugin_get_important(host->world->rig.conn, items, count, &error));
    for (uint64_t i = 0; i < count; i++)
        item_check(host, &items[i], &shots[i], false);
}

static void step_submit(struct host *host)
{
    struct submitted *submitted = &host->submits[draw(host, SUBMITS)];
    if (submitted->is_out)
        return;
    submitted->count = items_make(host, submitted->items, submitted->shots);
    if (submitted->count == 0)
        return;
    assert_int_equal(sc_plugin_submit(host->world->rig.conn, submitted->items, submitted->count,
                                      &submitted->ticket, NULL),
                     SPEC_OK);
    submitted->is_out = true;
    for (uint64_t i = 0; i < submitted->count; i++) {
        submitted->is_left[i] = false;
        host->held[submitted->shots[i].held].out++;
    }
}

static void submit_wait(struct host *host, struct submitted *submitted, uint64_t timeout_ns)
{
    if (!submitted->is_out)
        return;
    spec_status status =
        sc_plugin_submit_wait(host->world->rig.conn, submitted->ticket, timeout_ns, NULL);
    if (status == SPEC_E_TIMEOUT && timeout_ns != UINT64_MAX &&
        submitted->items[0].status == SPEC_PENDING)
        return;
    submitted->is_out = false;
    for (uint64_t i = 0; i < submitted->count; i++) {
        if (!submitted->is_left[i])
            host->held[submitted->shots[i].held].out--;
        item_check(host, &submitted->items[i], &submitted->shots[i], submitted->is_left[i]);
    }
}

static void step_release(struct host *host)
{
    uint32_t held = (uint32_t)draw(host, REQUESTS);
    for (uint32_t s = 0; s < SUBMITS; s++)
        for (uint64_t i = 0; host->submits[s].is_out && i < host->submits[s].count; i++)
            if (host->submits[s].shots[i].held == held)
                host->submits[s].is_left[i] = true;
    rig_release(&host->world->rig, host->held[held].request);
    held_take(host, held);
}

static void step_ahead(struct host *host)
{
    spec_connector *conn = host->world->rig.conn;
    uint32_t held = held_draw(host), layer = (uint32_t)draw(host, LAYERS);
    const struct spec_queries *hint = &host->passes[(layer + 1) % LAYERS][draw(host, KINDS)].q;
    if (held == REQUESTS)
        return;
    if (draw(host, 2) == 0)
        assert_int_equal(sc_plugin_begin_layer(conn, &host->held[held].request, 1, layer, NULL),
                         SPEC_OK);
    else
        assert_int_equal(sc_plugin_prefetch_next(conn, host->held[held].request, layer,
                                                 draw(host, 4) > 0 ? hint : NULL, NULL),
                         SPEC_OK);
}

/* As a host goes through layers: a guess, and some time later the layer, in time or not, and again.
 */
static void step_layer(struct host *host)
{
    spec_connector *conn = host->world->rig.conn;
    uint32_t held = held_draw(host), layer = 1 + (uint32_t)draw(host, LAYERS - 1);
    if (held == REQUESTS)
        return;
    struct sc_plugin_request *request = sc_plugin_request_find(conn, host->held[held].request);
    struct sc_plugin_selector *selector = &request->selectors[layer % SC_PLUGIN_SELECTORS];
    assert_int_equal(sc_plugin_prefetch_next(conn, host->held[held].request, layer - 1,
                                             &host->passes[layer][draw(host, KINDS)].q, NULL),
                     SPEC_OK);
    if (draw(host, 2) == 0)
        rig_pass_ns(&host->world->rig, draw(host, 300000));
    else /* the moment in which the choice can be made */
        for (uint32_t i = 0; i < 100 && selector->layer == layer &&
                             sc_store_selector_state(selector->selector) == SPEC_PENDING;
             i++) /* it may wait for frames that others have ahead */
            rig_pass_ns(&host->world->rig, 5000);
    for (uint64_t i = draw(host, 3) + 1; i > 0; i--) {
        struct spec_important item;
        struct shots shots;
        item_make(host, held, layer, &item, &shots);
        (void)sc_plugin_get_important(conn, &item, 1, NULL);
        item_check(host, &item, &shots, false);
    }
}

/* What is not there of the world is stored again. */
static void world_refill(struct host *host)
{
    struct rig *rig = &host->world->rig;
    struct prompt stored = {ROWS, host->world->prompt.tokens, host->world->prompt.history};
    struct spec_lookup_result result = rig_lookup(rig, &stored);
    uint64_t first = result.matched_tokens;
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < LAYERS && first < ROWS; layer++) {
        struct area area = world_area(host->world, first, ROWS - first, layer);
        struct spec_store_params params =
            rig_store_params(result.request, layer, first, ROWS - first, &area.memory);
        assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
        (void)rig_wait(rig, ticket);
    }
    rig_release(rig, result.request);
}

static void step_churn(struct host *host)
{
    if (draw(host, 6) == 0) {
        assert_int_equal(sc_plugin_reset(host->world->rig.conn, NULL), SPEC_OK);
        for (uint32_t s = 0; s < SUBMITS; s++)
            for (uint64_t i = 0; host->submits[s].is_out && i < host->submits[s].count; i++)
                host->submits[s].is_left[i] = true;
        for (uint32_t i = 0; i < REQUESTS; i++)
            rig_release(&host->world->rig, host->held[i].request);
        world_refill(host);
        for (uint32_t i = 0; i < REQUESTS; i++)
            held_take(host, i);
        return;
    }
    struct prompt other = rig_prompt(1000 + draw(host, 1000), 0, 0, 100 + draw(host, 200));
    (void)rig_fill(&host->world->rig, &other);
    rig_prompt_free(&other);
    if (draw(host, 2) == 0)
        world_refill(host);
}

static void step(struct host *host)
{
    if (host->churns && draw(host, 8) == 0)
        step_churn(host);
    switch (draw(host, 16)) {
    case 12:
    case 13:
    case 14:
    case 15:
        step_layer(host);
        break;
    case 0:
        step_release(host);
        break;
    case 1:
    case 2:
    case 3:
        step_ahead(host);
        break;
    case 4:
    case 5:
        rig_pass_ns(&host->world->rig, draw(host, 300000));
        break;
    case 6:
    case 7:
        step_submit(host);
        break;
    case 8:
        submit_wait(host, &host->submits[draw(host, SUBMITS)], UINT64_MAX);
        break;
    default:
        step_get(host);
        break;
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Averages, and a window for guesses. */
static void warm_up(struct host *host)
{
    for (uint32_t round = 0; round < 4; round++) {
        spec_request request = look(host->world, 0);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            static struct shot shot;
            shot_make(&shot, host->world, request, layer, 0, 50000);
            shot.item.select = host->is_layered ? &shot.select : NULL;
            shot.item.positions = NULL;
            if (layer > 0)
                assert_int_equal(sc_plugin_prefetch_next(host->world->rig.conn, request, layer - 1,
                                                         &host->passes[layer][0].q, NULL),
                                 SPEC_OK);
            rig_pass_ns(&host->world->rig, 2000000);
            assert_int_equal(fire(host->world, &shot), SPEC_OK);
            shot_free(&shot);
        }
        rig_release(&host->world->rig, request);
    }
}

/* Beside path and device; its world is not open yet. */
static void world_choose(struct host *host, char *config, uint64_t bytes)
{
    uint64_t which = draw(host, CASE_COUNT);
    struct world *world = host->world;
    (void)snprintf(config, bytes,
                   "\"preset\": \"%s\", \"select\": {\"min_tokens\": 0, \"min_share_ppm\": 0}, "
                   "\"chunk_tokens\": %u, \"host_bytes\": %s, \"maintain\": {\"bytes_per_s\": 0}, "
                   "\"store\": {\"layout\": \"%s\"}, \"layered\": {%s}%s",
                   CASES[which].preset, draw(host, 2) == 0 && !CASES[which].is_layered ? 16 : 64,
                   draw(host, 3) == 0 ? "\"64MiB\"" : "0", CASES[which].layout,
                   CASES[which].is_free ? "\"bit_allocation\": \"per_channel\"" : "",
                   CASES[which].more);
    host->is_layered = CASES[which].is_layered;
    host->is_free = CASES[which].is_free;
    *world = (struct world){.matched = ROWS, .group = 1, .agree = 3 + (int64_t)draw(host, 2) * 5};
}

static void world_begin(struct host *host)
{
    struct world *world = host->world;
    rig_shape(&world->rig, LAYERS, HEADS, host->is_layered ? 32 : 128, SPEC_DTYPE_F16);
    world->rig.op = draw(host, 2) == 0 ? "2MiB" : "64KiB"; /* 7 frames, or many */
    world->rig.query_group = 1;
    world->prompt = rig_prompt(ROWS, 0, 0, ROWS + FRESH_ROWS);
    rig_open(&world->rig);
    world_store(world);
    wait_for_quant(world);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t kind = 0; kind < KINDS; kind++) {
            struct pass *pass = &host->passes[layer][kind];
            *pass = world_pass(world, layer, SPEC_DTYPE_F16);
            for (uint64_t i = 1; kind == NEGATED && i < pass->q.byte_count; i += 2)
                pass->queries[i] ^= 0x80;
            if (kind == NANS)
                memset(pass->queries, 0x7f, pass->q.byte_count);
        }
    warm_up(host);
}

static void world_end(struct host *host, uint64_t *ret_met)
{
    struct world *world = host->world;
    struct sc_store_stats stats;
    const struct sc_plugin_stats *met = &world->rig.conn->stats;
    rig_landed(&world->rig);
    for (uint32_t i = 0; i < 1000; i++) { /* what still flies lands */
        sc_store_stats(world->rig.conn->store, &stats);
        if (stats.staging_bytes_used == 0)
            break;
        rig_pass_ns(&world->rig, 10000000);
    }
    if (stats.staging_bytes_used != 0)
        fail_msg("seed %lu: frames are left behind", host->seed);
    if (!host->is_broken && atomic_load(&met->corrupt_ranges) != 0)
        fail_msg("seed %lu: something is taken for bad", host->seed);
    ret_met[3] += atomic_load(&met->speculated_bytes);
    for (uint32_t i = 0; i < LAYERS * KINDS; i++)
        pass_free(&host->passes[i / KINDS][i % KINDS]);
    world_done(world);
}

static void host_begin(struct host *host)
{
    for (uint32_t i = 0; i < REQUESTS; i++)
        held_take(host, i);
}

static void host_end(struct host *host)
{
    for (uint32_t i = 0; i < SUBMITS; i++)
        submit_wait(host, &host->submits[i], UINT64_MAX);
    for (uint32_t i = 0; i < REQUESTS; i++)
        rig_release(&host->world->rig, host->held[i].request);
}

static void host_count(const struct host *host, uint64_t *ret_met)
{
    ret_met[0] += host->full;
    ret_met[1] += host->late;
    ret_met[2] += host->stale;
}

static void run(uint64_t seed, uint64_t *ret_met)
{
    static const uint64_t RATES[] = {0, 20000, 100000};
    static struct host host;
    static struct world world;
    char config[1024];
    host = (struct host){.world = &world, .seed = seed, .state = seed};
    world_choose(&host, config, sizeof(config));
    rig_init(&world.rig, true, config);
    (void)snprintf(config + strlen(config), sizeof(config) - strlen(config),
                   ", \"sim\": {\"bytes_per_s\": 5000000000, \"op_ns\": %lu, \"ops_per_s\": %lu, "
                   "\"seed\": %lu}",
                   draw(&host, 2) * 80000, RATES[draw(&host, 3)], seed);
    bool churns = draw(&host, 3) == 0;
    if (churns)
        (void)snprintf(
            config + strlen(config), sizeof(config) - strlen(config),
            ", \"segment_bytes\": \"1MiB\", \"disk_bytes\": \"%uMiB\", \"lease_ns_max\": 0",
            host.is_layered ? 3 : 6);
    world_begin(&host);
    sc_io_sim_fault_late_ns(world.rig.disk, 200000);
    sc_io_sim_fault_ppm(world.rig.disk, SC_SIM_LATE, draw(&host, 2) * 200000);
    host_begin(&host);
    host.churns = churns;
    uint64_t breaks_at = draw(&host, 2) == 0 ? draw(&host, STEPS) : STEPS;
    for (uint32_t i = 0; i < STEPS; i++) {
        host.is_broken = i >= breaks_at;
        if (i >= breaks_at && draw(&host, 10) == 0)
            sc_io_sim_fault_nth(world.rig.disk, draw(&host, 2) == 0 ? SC_SIM_READ_EIO : SC_SIM_FLIP,
                                draw(&host, 30));
        step(&host);
    }
    host_end(&host);
    host_count(&host, ret_met);
    world_end(&host, ret_met);
}

static void met_print(const uint64_t *met)
{
    print_message("%lu delivered, %lu late, %lu stale, %lu bytes of guesses\n", met[0], met[1],
                  met[2], met[3]);
}

static void what_is_read_ahead_never_matters(void **state)
{
    (void)state;
    uint64_t met[4] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(seed, met);
    met_print(met);
    assert_true(met[1] > 0 && met[2] > 0 && met[3] > 0);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *work(void *user)
{
    struct host *host = user;
    host_begin(host);
    for (uint32_t i = 0; i < STEPS; i++)
        step(host);
    host_end(host);
    return NULL;
}

static void nor_beside_others(void **state)
{
    (void)state;
    static struct host hosts[THREADS];
    static struct world world;
    uint64_t met[4] = {0};
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        char config[1024];
        hosts[0] = (struct host){.world = &world, .seed = seed, .state = seed};
        world_choose(&hosts[0], config, sizeof(config));
        rig_init(&world.rig, false, config);
        world_begin(&hosts[0]);
        for (uint64_t i = 1; i < THREADS; i++) {
            hosts[i] = hosts[0];
            hosts[i].state += i;
        }
        threads_run(work, hosts, sizeof(hosts[0]), THREADS);
        for (uint64_t i = 0; i < THREADS; i++)
            host_count(&hosts[i], met);
        world_end(&hosts[0], met);
    }
    met_print(met);
}

/* In the midst of it the connector closes, with guesses that are being ranked and submissions that
 * nobody has waited for. */
static void a_close_ends_it_all(void **state)
{
    (void)state;
    for (uint64_t seed = 500; seed < 500 + SEEDS / 4; seed++) {
        static struct host host;
        static struct world world;
        char config[1024];
        host = (struct host){.world = &world, .seed = seed, .state = seed};
        world_choose(&host, config, sizeof(config));
        rig_init(&world.rig, seed % 2 == 0, config);
        world_begin(&host);
        host_begin(&host);
        for (uint32_t i = 0; i < STEPS / 4; i++)
            step(&host);
        for (uint32_t i = 0; i < 4; i++) {
            step_submit(&host);
            step_ahead(&host);
        }
        rig_close(&world.rig);
        for (uint32_t s = 0; s < SUBMITS; s++)
            for (uint64_t i = 0; host.submits[s].is_out && i < host.submits[s].count; i++)
                rig_area_free(&host.submits[s].shots[i].area);
        for (uint32_t i = 0; i < LAYERS * KINDS; i++)
            pass_free(&host.passes[i / KINDS][i % KINDS]);
        world_done(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_ahead_never_matters),
        cmocka_unit_test(nor_beside_others),
        cmocka_unit_test(a_close_ends_it_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
