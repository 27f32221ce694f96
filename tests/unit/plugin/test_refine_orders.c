/* Layered deliveries in any order of calls: ahead of their queries, refined, chosen, scored anew,
 * delivered anew, guessed beside, released in the middle; beside a host that remembers what is
 * exact.
 *
 *   a seed -> a configuration, then steps of one to four items over a few requests, each with two
 *             destinations a layer
 *   each item -> rows as its bits say, nothing else written, numbers that agree; where no codes
 *                were lost, the rows that were exact before and the set of one plain call
 *
 * Holds: a failure names its seed. Threads: one on the simulated disk; four on a directory. */
#include "tests/unit/plugin/layered_fixture.h"
#include "tests/unit/threads.h"

#define UNTOUCHED UINT64_MAX /* a result that a refused call leaves */
#define ROWS      200u
#define FRONT     128u /* rows that a pass of their own stored */
#define LAYERS    4u
#define REQUESTS  3u
#define ITEMS     4u
#define SHARES    6u
#define WORDS     ((ROWS + 63) / 64)
#define ROW       (2 * 16 * 2) /* bytes of K or V: two heads of 16 16-bit values */

static const uint32_t PPM[SHARES] = {0, 30000, 120000, 300000, 700000, 1000000};

/* What no call changes, once made. */
struct truth {
    struct world world;
    uint64_t keep_first, keep_last;          /* rows */
    bool has_quant, is_scored, is_tight;     /* tight: memory may lack for codes, or for refining */
    struct pass passes[LAYERS][2];           /* queries: right, and wrong */
    uint8_t rows[2][LAYERS][2][ROWS][ROW];   /* exact; of codes */
    uint64_t sets[LAYERS][2][SHARES][WORDS]; /* of one plain call, by right queries and by wrong */
};

enum state { EMPTY, KNOWN, UNDEFINED };

enum ranking { BY_RIGHT, BY_WRONG, BY_EITHER }; /* EITHER: a deadline came before or after it */

struct place {
    struct area area;
    enum state state;
    spec_ticket ticket; /* of what stands there; 0: of no submission */
    bool is_ahead;      /* nothing has been chosen for sure */
    bool is_tried;      /* something may have been */
    bool is_gone;       /* another delivery came that ends its refining */
    enum ranking ranking;
    uint64_t bits[WORDS];
};

struct held {
    spec_request request;
    struct place places[LAYERS][2];
};

struct shots { /* an item and what it points to */
    struct spec_important item;
    struct spec_select select;
    uint32_t positions[ROWS];
    uint64_t exact[WORDS];
    struct held *held;
    struct place *place;
    uint32_t share;
    bool is_plain_kind; /* metric and keep are not the item's own */
};

struct host {
    struct truth *truth;
    uint64_t seed, state;
    bool is_damaged[LAYERS];
    struct held held[REQUESTS];
    struct shots shots[ITEMS];
    struct spec_important items[ITEMS];
    uint32_t count;
    uint64_t chosen, rescored, partial, stale; /* what was met */
};

static uint64_t draw(struct host *host, uint64_t below)
{
    host->state = rig_mix(host->state + 1);
    return host->state % below;
}

#define EXPECT(host, held, ...)                                                                    \
    do {                                                                                           \
        if (!(held)) {                                                                             \
            (void)snprintf(text, sizeof(text), __VA_ARGS__);                                       \
            fail_msg("seed %lu: %s: %s", (host)->seed, #held, text);                               \
        }                                                                                          \
    } while (0)

static bool bit(const uint64_t *bits, uint64_t row)
{
    return (bits[row / 64] >> (row % 64) & 1) != 0;
}

static uint64_t count_of(const uint64_t *bits)
{
    uint64_t count = 0;
    for (uint32_t w = 0; w < WORDS; w++)
        count += (uint64_t)__builtin_popcountll(bits[w]);
    return count;
}

/* ---- The truth ------------------------------------------------------------------------------ */

static void store_part(struct world *world, uint64_t first, uint64_t count)
{
    struct rig *rig = &world->rig;
    struct prompt stored = {first + count, world->prompt.tokens, world->prompt.history};
    struct spec_lookup_result result = rig_lookup(rig, &stored);
    spec_ticket ticket = 0;
    assert_int_equal(result.matched_tokens, first);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct area area = world_area(world, first, count, layer);
        struct spec_store_params params =
            rig_store_params(result.request, layer, first, count, &area.memory);
        assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
        assert_int_equal(rig_wait(rig, ticket), SPEC_OK);
    }
    rig_release(rig, result.request);
}

static void truth_rows(struct truth *truth)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t part = 0; part < 2; part++) {
            struct slab slab = {.row_count = 0};
            for (uint64_t j = 0; j < ROWS; j++) {
                stored_row(&truth->world, j, layer, part, truth->rows[0][layer][part][j]);
                decoded(&truth->world, j, layer, part, part == 0 ? 4 : 2, &slab, SPEC_DTYPE_F16,
                        truth->rows[1][layer][part][j]);
            }
        }
}

/* One plain call for every layer and share, by queries of the layer, right or wrong. */
static void truth_sets(struct truth *truth)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t share = 0; share < SHARES; share++) {
            struct shot shot;
            shot_make(&shot, &truth->world, 0, layer, 0, PPM[share]);
            for (uint32_t wrong = 0; wrong < 2; wrong++) {
                spec_request request = look(&truth->world, 0);
                shot.item.request = request;
                shot.item.queries = &truth->passes[layer][wrong].q;
                assert_int_equal(fire(&truth->world, &shot), SPEC_OK);
                memcpy(truth->sets[layer][wrong][share], shot.exact, sizeof(truth->sets[0][0][0]));
                rig_release(&truth->world.rig, request);
                rig_landed(&truth->world.rig); /* what flies for it keeps memory that is tight */
            }
            shot_free(&shot);
        }
}

/* way: bits of what is unusual. */
static void truth_open(struct truth *truth, uint32_t way, bool is_sim)
{
    static _Thread_local char extra[640];
    struct world *world = &truth->world;
    bool is_static = way % 8 == 1, is_random = way % 8 == 2;
    bool is_tight = way / 128 % 2 == 1;
    *truth = (struct truth){.keep_first = way / 32 % 2 * 20,
                            .keep_last = way / 32 % 2 * 3,
                            .has_quant = way % 8 != 3,
                            .is_scored = !is_static && !is_random && way % 8 != 3,
                            .is_tight = is_tight};
    (void)snprintf(extra, sizeof(extra),
                   "\"preset\": \"layered-uniform\", \"max_requests\": 13, \"lease_ns_max\": 0, "
                   "\"prefetch\": {\"predictor\": \"%s\"}, "
                   "\"select\": {\"identify\": \"%s\", \"metric\": \"%s\", \"dense_layers\": %u, "
                   "\"selector_bytes\": \"%s\"}, "
                   "\"layered\": {\"quantise\": \"%s\", \"keep_first\": %lu, \"keep_last\": %lu, "
                   "\"refine_bytes\": \"%s\"}, \"store\": {\"layout\": \"%s\"}",
                   is_static      ? "none"
                   : way % 8 == 4 ? "layer"
                                  : "hint",
                   is_static ? "static" : "quantised", is_random ? "random" : "h2o", way / 64 % 2,
                   is_tight ? "256KiB" : "16MiB", truth->has_quant ? "yes" : "no",
                   truth->keep_first, truth->keep_last, is_tight ? "124KiB" : "4MiB",
                   way % 2 == 0 ? "paired" : "split");
    *world = (struct world){.matched = ROWS, .group = 2, .agree = 3};
    world_make(world, is_sim, extra, LAYERS, 2, 16, 7);
    rig_open(&world->rig);
    store_part(world, 0, FRONT);
    wait_for_quant(world);
    rig_background(&world->rig);
    store_part(world, FRONT, ROWS - FRONT);
    wait_for_quant(world);
    rig_background(&world->rig);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t wrong = 0; wrong < 2; wrong++) {
            struct pass *pass = &truth->passes[layer][wrong];
            *pass = world_pass(world, layer, SPEC_DTYPE_F16);
            for (uint64_t i = 1; wrong && i < pass->q.byte_count; i += 2) /* the sign's byte */
                pass->queries[i] ^= 0x80;
        }
    truth_rows(truth);
    truth_sets(truth);
    rig_background(&world->rig); /* averages have made their place in the store's index */
}

static void truth_close(struct truth *truth)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t wrong = 0; wrong < 2; wrong++)
            pass_free(&truth->passes[layer][wrong]);
    world_done(&truth->world);
}

/* ---- Checks --------------------------------------------------------------------------------- */

static void expect_place(const struct host *host, const struct place *place, uint32_t layer)
{
    const struct truth *truth = host->truth;
    const uint8_t *k = place->area.memory.k_base, *v = place->area.memory.v_base;
    char text[160];
    const uint64_t bytes = (uint64_t)ROWS * ROW;
    EXPECT(host,
           rig_is_poison(k - RIG_GUARD, RIG_GUARD) && rig_is_poison(k + bytes, RIG_GUARD) &&
               rig_is_poison(v - RIG_GUARD, RIG_GUARD) && rig_is_poison(v + bytes, RIG_GUARD),
           "layer %u: written beside", layer);
    for (uint64_t j = 0; j < ROWS && place->state == KNOWN; j++)
        for (uint32_t part = 0; part < 2; part++) {
            bool is_exact = bit(place->bits, j);
            EXPECT(host,
                   memcmp((part == 0 ? k : v) + j * ROW, truth->rows[!is_exact][layer][part][j],
                          ROW) == 0,
                   "layer %u row %lu part %u, %s", layer, j, part, is_exact ? "exact" : "coarse");
        }
}

static void expect_set(const struct host *host, const struct shots *shot, const uint64_t *before)
{
    const struct truth *truth = host->truth;
    const struct spec_important *item = &shot->item;
    const uint64_t *set = truth->sets[item->layer][shot->place->ranking == BY_WRONG][shot->share];
    bool is_refined = item->refine_of != 0, is_ahead = (item->flags & SPEC_ITEM_AHEAD) != 0;
    uint64_t expected[WORDS];
    char text[300];
    bool is_dense = item->layer < truth->world.rig.conn->config.dense_layers;
    uint64_t most = item->budget_bytes > 0 && !is_dense ? item->budget_bytes / 2 / ROW : ROWS;
    uint64_t most_kept = truth->keep_last + truth->keep_first;
    most = count_of(set) < most ? count_of(set) : most;
    bool is_known =
        is_ahead && truth->is_scored && item->queries == NULL && most > most_kept && most < ROWS;
    if ((is_ahead && item->queries == &truth->passes[item->layer][1].q) ||
        shot->place->ranking == BY_EITHER)
        return;
    for (uint32_t w = 0; w < WORDS; w++)
        expected[w] = set[w] | (is_refined ? before[w] : 0);
    for (uint64_t j = 0; is_known && j < ROWS; j++) /* what needs no queries */
        if (bit(expected, j) && j >= truth->keep_first && j < ROWS - truth->keep_last)
            expected[j / 64] &= ~(UINT64_C(1) << (j % 64));
    if (truth->is_tight || host->is_damaged[item->layer]) {
        EXPECT(host, is_ahead || count_of(shot->exact) >= count_of(set), "layer %u share %u: %lu",
               item->layer, shot->share, count_of(shot->exact));
        return;
    }
    for (uint32_t w = 0; w < WORDS; w++)
        EXPECT(host, shot->exact[w] == expected[w],
               "layer %u share %u refine %d ahead %d: word %u is %lx, not %lx (before %lx)",
               item->layer, shot->share, is_refined, is_ahead, w, shot->exact[w], expected[w],
               before[w]);
}

static void expect_numbers(struct host *host, const struct shots *shot, const uint64_t *before)
{
    const struct spec_important *item = &shot->item;
    uint64_t exact = count_of(shot->exact), was = count_of(before);
    bool is_whole = exact == ROWS;
    char text[160];
    EXPECT(host, item->row_count == ROWS && item->next_position == ROWS, "rows %lu",
           item->row_count);
    EXPECT(host, item->exact_rows == exact, "%lu, bits %lu", item->exact_rows, exact);
    EXPECT(host,
           item->provenance.kind ==
               (is_whole ? SPEC_PROVENANCE_EXACT : (uint32_t)SPEC_PROVENANCE_LOSSY),
           "kind %u", item->provenance.kind);
    if (!is_whole)
        EXPECT(host,
               item->provenance.bits_k == 4 && item->provenance.bits_v == 2 &&
                   item->provenance.exact_ppm == exact * 1000000 / ROWS,
               "bits %u %u, %u ppm of %lu", item->provenance.bits_k, item->provenance.bits_v,
               item->provenance.exact_ppm, exact);
    if (item->result_flags & SPEC_IMPORTANT_PARTIAL)
        EXPECT(host, item->deadline_ns > 0 || item->budget_bytes > 0, "cut by nothing");
    for (uint64_t j = 0; j < ROWS; j++)
        EXPECT(host, shot->positions[j] == j, "position %lu is %u", j, shot->positions[j]);
    if (item->refine_of == 0)
        return;
    EXPECT(host, item->tier_rows[SPEC_TIER_DISK] == exact - was, "%lu, not %lu - %lu",
           item->tier_rows[SPEC_TIER_DISK], exact, was);
    EXPECT(host, item->wanted_bytes >= (exact - was) * 2 * ROW, "wanted %lu for %lu rows",
           item->wanted_bytes, exact - was);
    if (item->budget_bytes > 0)
        EXPECT(host, (exact - was) * 2 * ROW <= item->budget_bytes, "%lu rows", exact - was);
    for (uint32_t w = 0; w < WORDS; w++)
        EXPECT(host, (before[w] & ~shot->exact[w]) == 0, "a bit went, word %u", w);
}

/* Who ranks the place's rows, since the item. */
static void ranking_note(struct host *host, const struct shots *shot)
{
    const struct spec_important *item = &shot->item;
    bool is_partial = (item->result_flags & SPEC_IMPORTANT_PARTIAL) != 0;
    bool is_wrong = item->queries == &host->truth->passes[item->layer][1].q;
    if (item->refine_of == 0)
        shot->place->ranking = BY_RIGHT;
    if (!(item->flags & SPEC_ITEM_RESCORE) || PPM[shot->share] == 0)
        return;
    host->rescored++;
    shot->place->ranking = is_partial && item->deadline_ns > 0 ? BY_EITHER
                           : is_wrong                          ? BY_WRONG
                                                               : BY_RIGHT;
}

/* What the item's call left. may_be_over: its request was let go meanwhile, or its epoch is over.
 */
static void expect_item(struct host *host, struct shots *shot, bool may_be_over)
{
    const struct truth *truth = host->truth;
    struct spec_important *item = &shot->item;
    struct place *place = shot->place;
    uint64_t before[WORDS];
    char text[160];
    bool is_late = item->deadline_ns > 0 && item->status == SPEC_E_TIMEOUT && item->refine_of == 0;
    bool may_stale = item->refine_of != 0 && (truth->is_tight || place->is_gone);
    for (uint32_t i = 0; i < host->count; i++) /* one of the call delivers the layer anew */
        may_stale =
            may_stale || (item->refine_of != 0 && host->items[i].refine_of == 0 &&
                          host->shots[i].held == shot->held && host->items[i].layer == item->layer);
    memcpy(before, place->bits, sizeof(before));
    host->stale += item->status == SPEC_E_STALE;
    host->partial += (item->result_flags & SPEC_IMPORTANT_PARTIAL) != 0;
    EXPECT(host,
           item->status == SPEC_OK || is_late ||
               (item->status == SPEC_E_STALE && (may_be_over || may_stale)),
           "layer %u: status %d, refine %lx, flags %x", item->layer, (int)item->status,
           item->refine_of, item->flags);
    if (item->status == SPEC_E_STALE && item->refine_of != 0 && !may_be_over) {
        place->is_gone = true;
        return;
    }
    if (item->status != SPEC_OK) {
        place->state = UNDEFINED;
        return;
    }
    place->state = KNOWN;
    memcpy(place->bits, shot->exact, sizeof(place->bits));
    if (item->refine_of == 0)
        memset(before, 0, sizeof(before));
    expect_numbers(host, shot, before);
    ranking_note(host, shot);
    if (!(item->result_flags & SPEC_IMPORTANT_PARTIAL))
        expect_set(host, shot, before);
    if (item->refine_of != 0) {
        host->chosen += place->is_ahead;
        place->is_tried = true;
        if (!(item->result_flags & SPEC_IMPORTANT_PARTIAL) && PPM[shot->share] > 0)
            place->is_ahead = false;
    }
}

/* ---- Items ---------------------------------------------------------------------------------- */

static bool is_written(const struct host *host, const struct place *place)
{
    for (uint32_t i = 0; i < host->count; i++)
        if (host->shots[i].place == place && host->shots[i].item.refine_of == 0)
            return true;
    return false;
}

/* Another item; false: what was drawn cannot be. */
static bool item_add(struct host *host, bool is_submitted)
{
    const struct truth *truth = host->truth;
    struct shots *shot = &host->shots[host->count];
    struct held *held = &host->held[draw(host, REQUESTS)];
    uint32_t layer = (uint32_t)draw(host, LAYERS), kind = (uint32_t)draw(host, 8);
    struct place *place = &held->places[layer][draw(host, 2)];
    bool refines = kind < 5 && place->state == KNOWN && place->ticket != 0;
    bool is_ahead = !refines && is_submitted && kind < 7;
    uint64_t deadlines[] = {0, 0, 0, 0, 1, 2000};
    if (is_written(host, place) || (refines && place->is_gone && host->count > 0))
        return false;
    *shot = (struct shots){.held = held, .place = place};
    shot->share = (uint32_t)draw(host, SHARES);
    shot->select = (struct spec_select){.struct_size = sizeof(shot->select),
                                        .given = SPEC_SELECT_EXACT,
                                        .exact_ppm = PPM[shot->share],
                                        .metric = truth->world.rig.conn->config.metric,
                                        .keep_first = (uint32_t)truth->keep_first,
                                        .keep_last = (uint32_t)truth->keep_last};
    bool rescores = refines && draw(host, 2) == 0;
    bool chooses = !refines || rescores || (place->is_ahead && !place->is_tried);
    if (chooses && draw(host, 3) == 0)
        shot->select.given |= SPEC_SELECT_METRIC | SPEC_SELECT_KEEP;
    const struct pass *pass = &truth->passes[layer][0];
    shot->item = (struct spec_important){.struct_size = sizeof(shot->item),
                                         .request = held->request,
                                         .layer = layer,
                                         .queries = &pass->q,
                                         .new_keys = &pass->fresh.memory,
                                         .destination = &place->area.memory,
                                         .positions = shot->positions,
                                         .position_capacity = ROWS,
                                         .exact_bits = shot->exact,
                                         .exact_bit_words = WORDS,
                                         .select = &shot->select,
                                         .deadline_ns = deadlines[draw(host, 6)]};
    if (draw(host, 4) == 0)
        shot->item.budget_bytes = (1 + draw(host, 90)) * 2 * ROW;
    if (refines)
        shot->item.refine_of = place->ticket;
    if (is_ahead) {
        uint64_t prediction = draw(host, 3);
        shot->item.flags = SPEC_ITEM_AHEAD;
        shot->item.queries = prediction == 0 ? NULL : &truth->passes[layer][prediction - 1].q;
        shot->item.new_keys = prediction == 0 ? NULL : shot->item.new_keys;
    }
    if (rescores) {
        shot->item.flags = SPEC_ITEM_RESCORE;
        shot->item.queries = &truth->passes[layer][draw(host, 2)].q;
    } else if (refines && !place->is_ahead && draw(host, 2) == 0) {
        shot->item.queries = NULL;
    }
    host->items[host->count++] = shot->item;
    return true;
}

/* What the items of the call deliver anew ends the refining of what stood there. */
static void places_note(struct host *host, spec_ticket ticket)
{
    for (uint32_t i = 0; i < host->count; i++) {
        const struct shots *shot = &host->shots[i];
        if (shot->item.refine_of != 0)
            continue;
        for (uint32_t n = 0; n < 2; n++)
            shot->held->places[shot->item.layer][n].is_gone = true;
        shot->place->ticket = ticket;
        shot->place->is_ahead = (shot->item.flags & SPEC_ITEM_AHEAD) != 0;
        shot->place->is_tried = false;
    }
    for (uint32_t i = 0; i < host->count; i++) { /* of two of one layer the later one stays */
        const struct shots *shot = &host->shots[i];
        bool is_last = shot->item.refine_of == 0 && ticket != 0;
        for (uint32_t j = i + 1; j < host->count; j++)
            is_last = is_last &&
                      (host->shots[j].item.refine_of != 0 || host->shots[j].held != shot->held ||
                       host->shots[j].item.layer != shot->item.layer);
        if (is_last)
            shot->place->is_gone = false;
    }
}

static void held_open(struct host *host, struct held *held)
{
    held->request = look(&host->truth->world, 0);
    for (uint32_t i = 0; i < LAYERS * 2; i++) {
        struct place *place = &held->places[i / 2][i % 2];
        if (place->area.bytes == NULL)
            place->area = rig_area(&host->truth->world.rig, ROWS);
        *place = (struct place){.area = place->area};
    }
}

static void held_free(struct held *held)
{
    for (uint32_t i = 0; i < LAYERS * 2; i++)
        rig_area_free(&held->places[i / 2][i % 2].area);
}

/* ---- Steps ---------------------------------------------------------------------------------- */

/* While a submission is out; true: its requests are over. */
static bool meanwhile(struct host *host, spec_ticket ticket, struct held **ret_released)
{
    spec_connector *conn = host->truth->world.rig.conn;
    struct held *held = host->shots[0].held;
    uint64_t what = draw(host, 8);
    char text[160];
    if (what == 0) {
        EXPECT(host, sc_plugin_begin_layer(conn, &held->request, 1, 0, NULL) == SPEC_E_BUSY,
               "beside");
        EXPECT(host, sc_plugin_prefetch_next(conn, held->request, 0, NULL, NULL) == SPEC_E_BUSY,
               "beside");
    } else if (what == 1) {
        rig_release(&host->truth->world.rig, held->request);
        *ret_released = held;
    }
    spec_status status = sc_plugin_submit_wait(conn, ticket, draw(host, 2), NULL);
    if (status == SPEC_E_TIMEOUT)
        return false;
    return true;
}

static void call(struct host *host)
{
    spec_connector *conn = host->truth->world.rig.conn;
    bool is_submitted = draw(host, 3) > 0;
    uint64_t wanted = 1 + draw(host, ITEMS);
    struct held *released = NULL;
    spec_ticket ticket = 0;
    struct spec_error error = {.struct_size = sizeof(error)};
    char text[300];
    host->count = 0;
    for (uint32_t tries = 0; tries < 8 && host->count < wanted; tries++)
        (void)item_add(host, is_submitted);
    if (host->count == 0)
        return;
    host->items[0].io_ops = UNTOUCHED;
    const struct place *first = host->shots[0].place;
    bool was_gone = host->items[0].refine_of != 0 && first->is_gone;
    spec_status status;
    if (is_submitted) {
        status = sc_plugin_submit(conn, host->items, host->count, &ticket, &error);
        if (status == SPEC_OK && !meanwhile(host, ticket, &released))
            (void)sc_plugin_submit_wait(conn, ticket, UINT64_MAX, &error);
    } else {
        status = sc_plugin_get_important(conn, host->items, host->count, &error);
    }
    bool is_refused = status != SPEC_OK && ticket == 0 && host->items[0].io_ops == UNTOUCHED;
    if (is_refused) {
        bool refines = false;
        for (uint32_t i = 0; i < host->count; i++)
            refines = refines || host->items[i].refine_of != 0;
        EXPECT(host,
               (status == SPEC_E_STALE && refines && (was_gone || host->truth->is_tight)) ||
                   (status == SPEC_E_INVALID && was_gone),
               "refused: %d %s", (int)status, error.text);
        for (uint32_t i = 0; i < host->count; i++)
            if (host->items[i].refine_of != 0 && host->count == 1)
                host->shots[i].place->is_gone = true;
        return;
    }
    places_note(host, ticket);
    for (uint32_t i = 0; i < host->count; i++) {
        host->shots[i].item = host->items[i];
        expect_item(host, &host->shots[i], released == host->shots[i].held);
    }
    for (uint32_t i = 0; i < host->count; i++)
        expect_place(host, host->shots[i].place, host->shots[i].item.layer);
    if (released != NULL)
        held_open(host, released);
}

/* A bit of K's codes of a chunk of the layer. */
static void damage(struct host *host)
{
    static const char PATH[] = "/sim/store/rank-0000-of-0001/seg-00000000";
    struct truth *truth = host->truth;
    struct rig *rig = &truth->world.rig;
    uint32_t layer = (uint32_t)draw(host, LAYERS);
    struct slab slab;
    uint8_t bytes[64];
    slab_make(&truth->world, draw(host, ROWS / 64) * 64, layer, 0, 4, &slab);
    for (uint64_t at = 0; sc_io_sim_disk_peek(rig->disk, PATH, at, bytes, 64); at += 8)
        if (memcmp(bytes, slab.codes, 64) == 0) {
            bytes[5] ^= 0x10;
            assert_true(sc_io_sim_disk_poke(rig->disk, PATH, at, bytes, 64));
            host->is_damaged[layer] = true;
            return;
        }
}

static void step(struct host *host)
{
    struct rig *rig = &host->truth->world.rig;
    struct held *held = &host->held[draw(host, REQUESTS)];
    uint32_t layer = (uint32_t)draw(host, LAYERS);
    uint64_t what = draw(host, 24);
    if (what < 4) {
        assert_int_equal(sc_plugin_begin_layer(rig->conn, &held->request, 1, layer, NULL), SPEC_OK);
    } else if (what < 8) {
        uint64_t hint = layer + 1 < LAYERS ? draw(host, 3) : 0;
        assert_int_equal(sc_plugin_prefetch_next(
                             rig->conn, held->request, layer,
                             hint == 0 ? NULL : &host->truth->passes[layer + 1][hint - 1].q, NULL),
                         SPEC_OK);
    } else if (what == 8) {
        rig_release(rig, held->request);
        held_open(host, held);
    } else if (what < 11 && rig->is_sim) {
        rig_pass_ns(rig, 1 + draw(host, 3) * 1000000);
    } else if (what == 11 && rig->is_sim && draw(host, 4) == 0) {
        damage(host);
    } else {
        call(host);
    }
}

static void play(struct host *host, uint32_t steps)
{
    host->state = host->seed * 7919;
    for (uint32_t i = 0; i < REQUESTS; i++)
        held_open(host, &host->held[i]);
    for (uint32_t i = 0; i < steps; i++)
        step(host);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        rig_release(&host->truth->world.rig, host->held[i].request);
        held_free(&host->held[i]);
    }
}

static struct truth truth;
static struct host hosts[4];

#ifndef SC_SANITIZED_THREAD /* one thread: nothing to find there, and it takes minutes for it */
static void rows_are_what_their_bits_say_in_any_order(void **state)
{
    (void)state;
    uint64_t chosen = 0, rescored = 0, partial = 0, stale = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct host *host = &hosts[0];
        truth_open(&truth, (uint32_t)(seed * 37 % 256), true); /* bits of all kinds meet */
        *host = (struct host){.truth = &truth, .seed = seed};
        struct sc_alloc *alloc = &truth.world.rig.conn->alloc;
        sc_alloc_seal(alloc);
        play(host, 80);
        sc_alloc_unseal(alloc);
        assert_int_equal(atomic_load(&alloc->sealed_refusals), 0);
        chosen += host->chosen;
        rescored += host->rescored;
        partial += host->partial;
        stale += host->stale;
        truth_close(&truth);
    }
    assert_true(chosen > 200 && rescored > 200 && partial > 500 && stale > 100);
}
#endif

static void *play_all(void *user)
{
    play(user, 150);
    return NULL;
}

/* Way 0: hints. 128: memory that lacks. */
static void rows_are_what_their_bits_say_beside_other_threads(void **state)
{
    (void)state;
    for (uint32_t way = 0; way <= 128; way += 128) {
        truth_open(&truth, way, false);
        for (uint32_t i = 0; i < 4; i++)
            hosts[i] = (struct host){.truth = &truth, .seed = 1000 + way + i};
        threads_run(play_all, hosts, sizeof(hosts[0]), 4);
        truth_close(&truth);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifndef SC_SANITIZED_THREAD
        cmocka_unit_test(rows_are_what_their_bits_say_in_any_order),
#endif
        cmocka_unit_test(rows_are_what_their_bits_say_beside_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
