/* Editions in another order under test.
 *
 * Threads: tests/unit/store/permutation_check.h. */
#include "tests/unit/store/permutation_check.h"

#include "store/rows/row_permutation.h"

#define LEASE_NS UINT64_C(1000000000)

struct order_host order_host;

float score_of(uint64_t row, uint32_t layer)
{
    uint64_t noise = mix(row * 17 + layer + order_host.noise * 1009) % 8;
    return (float)(mix(row * 131 + layer + order_host.turn * 7919) % 97 * 8 + noise) / 776.f;
}

static uint64_t requests(void *user, const struct sc_store_range *ranges, uint64_t range_count)
{
    (void)user;
    (void)ranges;
    assert_true(range_count > 0);
    return order_host.requests;
}

static bool scores(void *user, const struct sc_store_range *ranges, uint64_t range_count,
                   uint32_t layer, float *ret_scores)
{
    uint64_t rows = 0;
    (void)user;
    for (uint64_t i = 0; i < range_count; i++)
        rows += ranges[i].row_count;
    for (uint64_t i = 0; i < rows; i++)
        ret_scores[i] = score_of(i, layer);
    return ranges[0].piece >= order_host.known_from;
}

static uint64_t moment(void *user)
{
    (void)user;
    return ++order_host.moments;
}

static bool is_quiet(void *user, uint64_t since)
{
    (void)user;
    assert_true(since <= order_host.moments);
    order_host.asked++;
    return !order_host.is_loud;
}

void orders_on(struct world *world, uint64_t span)
{
    order_host = (struct order_host){.requests = 2};
    world->config.maintain_bytes_per_s = 0;
    world->config.lease_ns_max = LEASE_NS;
    world->params.permutation = (struct sc_store_permutation){.span_rows = span,
                                                              .bytes_max = 64u << 20,
                                                              .scores = scores,
                                                              .repeat_requests = 10,
                                                              .requests = requests,
                                                              .moment = moment,
                                                              .is_quiet = is_quiet};
}

struct world *world_ordered(const struct world_setup *setup, uint64_t seed, uint64_t span)
{
    struct world *world = world_make(setup, seed);
    orders_on(world, span);
    return world_opened(world);
}

void order_all(struct world *world)
{
    sc_store_build_permutation(world->store, 0);
    build_wait(world);
    sc_store_build_settle(world->store);
    build_wait(world);
}

void orders_again(struct world *world)
{
    world->params.permutation.repeat_ppm = 200000;
}

void order_again(struct world *world)
{
    order_all(world); /* what was not judged since open begins to count */
    order_host.requests += 10;
    order_all(world);
}

uint64_t rows_by_turn(struct world *world, uint64_t key)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < world->piece_count; i++) {
        const struct world_piece *twin = &world->pieces[i];
        if (twin->key != key || twin->id == 0 ||
            sc_store_table_live(&world->store->table, twin->id) == NULL)
            continue;
        const struct sc_store_extent_entry *extent = extent_of(world, twin->id);
        struct sc_store_section *newest = atomic_load(&extent->permutation);
        uint64_t rows = extent->row_count, span = world->params.permutation.span_rows;
        for (uint32_t layer = 0; newest != NULL && layer < world->setup->layers; layer++) {
            const uint16_t *slots = sc_store_permutation_of(newest->slots, rows, layer);
            uint64_t wrong = 0;
            for (uint64_t row = 0; row + 1 < rows; row++)
                if (row / span == (row + 1) / span)
                    wrong += (slots[row] < slots[row + 1]) !=
                             (score_of(row, layer) >= score_of(row + 1, layer));
            count += wrong == 0 ? twin->row_count : 0;
        }
    }
    return count;
}

struct sc_store_extent_entry *extent_of(struct world *world, uint64_t piece)
{
    return sc_store_table_extent(&world->store->table,
                                 sc_store_table_piece(&world->store->table, piece)->extent);
}

void slot_damage(struct world *world, uint64_t piece, uint32_t layer, uint64_t row)
{
    const struct sc_store_extent_entry *extent = extent_of(world, piece);
    const struct sc_store_section *order = atomic_load(&extent->permutation);
    const uint16_t *slots = sc_store_permutation_of(order->slots, extent->row_count, layer);
    struct sc_store_where where =
        sc_store_layer_where(order->parts, order->part_count, order->stride, layer);
    uint64_t at =
        where.offset + order->row_offset + slots[row] * world->store->shape.row_bytes + 77;
    segment_flip(world, world->store->disk.segments[where.segment].number, at, 4);
}

/* ---- Reading --------------------------------------------------------------------------------- */

void row_check(const struct world *world, const struct match *match, uint32_t layer, uint64_t row,
               const uint8_t *k, const uint8_t *v)
{
    static uint8_t wanted[16384];
    uint64_t range = 0, half = world->setup->k_row_bytes;
    for (; row >= match->ranges[range].row_count; range++)
        row -= match->ranges[range].row_count;
    row_fill(wanted, 2 * half, match->twins[range]->key, layer,
             match->twins[range]->first_position + match->ranges[range].row_first + row);
    if (k != NULL)
        bytes_equal(k, wanted, half);
    if (v != NULL)
        bytes_equal(v, wanted + half, half);
}

struct picked gather_load(struct world *world, const struct match *match, uint32_t layer,
                          struct sc_store_gather_rows *picks, const uint64_t *wanted)
{
    static uint64_t covered[SELECTOR_ROWS_MAX / 64];
    static uint8_t seen[SELECTOR_ROWS_MAX];
    struct sc_store_selector *selector = selector_make(world);
    struct sc_store_reader *reader = world_reader(world);
    struct sc_store_rows got = {0};
    struct picked picked = {0};
    assert_int_equal(match_load(match, selector, layer, 0), SPEC_OK);
    memset(covered, 0, sizeof(covered));
    memset(seen, 0, sizeof(seen));
    sc_store_reader_begin_gather(reader, layer, match->ranges, match->count, picks,
                                 SC_IO_CLASS_SPECULATIVE);
    sc_store_reader_tags(reader, sc_store_selector_tags(selector));
    uint64_t left = picks->count;
    if (wanted != NULL)
        left = sc_store_reader_narrow(reader, wanted, covered);
    sc_store_reader_demand(reader);
    do {
        assert_int_equal(sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &got, &world->error),
                         SPEC_OK);
        for (uint64_t i = 0; i < got.row_count; i++) {
            uint64_t pick = got.row_first + i, row = picks->rows != NULL ? picks->rows[pick] : pick;
            bool is_v = picks->wanted == SC_STORE_WANT_V;
            assert_true(pick < picks->count && seen[pick]++ == 0);
            if (wanted != NULL)
                assert_true((wanted[row / 64] & covered[row / 64]) >> (row % 64) & 1);
            row_check(world, match, layer, row, is_v ? NULL : got.rows + i * got.stride,
                      is_v                                  ? got.rows + i * got.stride
                      : picks->wanted == SC_STORE_WANT_ROWS ? got.v + i * got.stride
                                                            : NULL);
            picked.count++;
        }
    } while (got.row_count > 0);
    assert_int_equal(picked.count, left);
    sc_store_reader_cost(reader, &picked.cost);
    sc_store_readers_close(reader, 1);
    sc_store_selector_close(selector);
    return picked;
}

static bool bit(const uint64_t *bits, uint64_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

void order_some(struct world *world)
{
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
    assert_int_equal(world_store(world, 1, 300, 150), SPEC_OK);
    assert_int_equal(world_store(world, 2, 0, 250), SPEC_OK);
    order_all(world);
    assert_int_equal(world_store(world, 3, 0, 200), SPEC_OK); /* as it was stored */
}

struct match any_match(struct world *world, uint64_t *random)
{
    struct match match = {.count = 0};
    for (uint64_t at = random_below(random, world->piece_count); match.count < 12;
         at += random_below(random, 3)) {
        const struct world_piece *twin = &world->pieces[at % world->piece_count];
        uint32_t first = (uint32_t)random_below(random, twin->row_count);
        first = random_below(random, 2) == 0 ? 0 : first;
        match_add(&match, twin, first, (uint32_t)random_below(random, twin->row_count - first + 1));
    }
    return match;
}

void any_parts_ok(struct world *world, uint32_t round, uint64_t *random)
{
    static uint32_t rows[SELECTOR_ROWS_MAX];
    uint64_t wanted[SELECTOR_ROWS_MAX / 64], count = 0;
    struct match match = any_match(world, random);
    uint32_t layer = (uint32_t)random_below(random, world->setup->layers);
    struct sc_store_reader *reader = world_reader(world);
    struct loaded loaded = world_load(world, reader, layer, match.ranges, match.twins, match.count);
    assert_int_equal(loaded.status, SPEC_OK);
    assert_int_equal(loaded.rows, match.rows);
    sc_store_readers_close(reader, 1);
    for (uint64_t w = 0; w < SELECTOR_ROWS_MAX / 64; w++)
        wanted[w] = mix(*random + w) & mix(*random - w);
    for (uint64_t row = 0; row < match.rows; row++)
        if (bit(wanted, row) || round % 5 == 4)
            rows[count++] = (uint32_t)row;
    for (uint64_t at = 0; round % 7 == 6 && at < count / 2; at++) { /* they descend, too */
        uint32_t row = rows[at];
        rows[at] = rows[count - 1 - at];
        rows[count - 1 - at] = row;
    }
    uint32_t parts = world->setup->layout == SC_STORE_SPLIT ? 3 : 1;
    struct sc_store_gather_rows picks = {.rows = round % 5 == 4 ? NULL : rows,
                                         .count = count,
                                         .wanted = round % parts,
                                         .whole_slabs = round % 3 == 1,
                                         .gap_bytes = round % 4 * 4096};
    (void)gather_load(world, &match, layer, &picks, round % 2 == 0 ? NULL : wanted);
}
