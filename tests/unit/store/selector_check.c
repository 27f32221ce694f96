/* Matches of the twin, and what a selector of them must give; see selector_check.h. */
#include "tests/unit/store/selector_check.h"

struct sc_store_selector *selector_make(struct world *world)
{
    struct sc_store_selector *selector = NULL;
    assert_int_equal(sc_store_selector_open(world->store, SELECTOR_ROWS_MAX, SELECTOR_ROWS_MAX,
                                            &selector, &world->error),
                     SPEC_OK);
    return selector;
}

void match_add(struct match *match, const struct world_piece *twin, uint32_t first, uint32_t rows)
{
    assert_true(match->count < 64);
    match->twins[match->count] = twin;
    match->ranges[match->count++] = (struct sc_store_range){twin->id, first, rows};
    match->rows += rows;
}

void match_key(const struct world *world, struct match *match, uint64_t key)
{
    for (uint32_t i = 0; i < world->piece_count; i++)
        if (world->pieces[i].key == key)
            match_add(match, &world->pieces[i], 0, world->pieces[i].row_count);
}

struct match match_of(const struct world *world, uint64_t key)
{
    struct match match = {.count = 0};
    match_key(world, &match, key);
    return match;
}

uint64_t copy_of(const struct world *world, uint64_t piece)
{
    const struct sc_store_table *table = &world->store->table;
    return sc_store_table_extent(table, sc_store_table_piece(table, piece)->extent)->copy;
}

void match_check(const struct world *world, const struct match *match, uint32_t layer,
                 uint64_t wanted, const struct sc_store_selector *selector, bool tags_too)
{
    const struct world_setup *setup = world->setup;
    const uint8_t *keys = sc_store_selector_keys(selector);
    const uint64_t *tags = sc_store_selector_tags(selector);
    uint8_t *row = malloc(2 * setup->k_row_bytes);
    assert_non_null(row);
    for (uint64_t r = 0, at = 0; r < match->count; r++) {
        uint8_t hash[16];
        const struct world_piece *twin = match->twins[r];
        hash_of(twin->key, twin->first_position + twin->row_count, hash);
        for (uint64_t i = 0; i < match->ranges[r].row_count; i++, at++) {
            uint64_t position = twin->first_position + match->ranges[r].row_first + i;
            bool split = setup->layout == SC_STORE_SPLIT;
            uint64_t bytes = split ? setup->k_row_bytes : 2 * setup->k_row_bytes;
            row_fill(row, 2 * setup->k_row_bytes, twin->key, layer, position);
            bytes_equal(keys + at * wanted, row, wanted);
            for (uint32_t part = split ? 1 : 0; tags_too && part <= (split ? 2u : 0u); part++) {
                uint64_t tag;
                const struct sc_store_tag_rows one = {
                    .base = sc_store_tag_base(world->params.space.digest, hash,
                                              copy_of(world, twin->id), layer, part),
                    .position_first = position,
                    .row_bytes = bytes,
                    .count = 1};
                sc_store_tag_make(&one, part == 2 ? row + bytes : row, &tag);
                assert_int_equal(*tags++, tag);
            }
        }
    }
    free(row);
}

bool keys_begin(struct sc_store_selector *selector, const struct match *match, uint32_t layer,
                enum sc_io_class io_class, uint64_t probe_row_bytes)
{
    return sc_store_selector_begin(
        selector, &(struct sc_store_selector_want){.layer = layer,
                                                   .io_class = io_class,
                                                   .ranges = match->ranges,
                                                   .range_count = match->count,
                                                   .probe_row_bytes = probe_row_bytes});
}

bool quantised_begin(struct sc_store_selector *selector, const struct match *match, uint32_t layer,
                     enum sc_io_class io_class)
{
    return sc_store_selector_begin(selector,
                                   &(struct sc_store_selector_want){.layer = layer,
                                                                    .io_class = io_class,
                                                                    .ranges = match->ranges,
                                                                    .range_count = match->count,
                                                                    .is_quant = true});
}

spec_status match_load(const struct match *match, struct sc_store_selector *selector,
                       uint32_t layer, uint64_t wanted)
{
    assert_true(keys_begin(selector, match, layer, SC_IO_CLASS_DEMAND, wanted));
    return sc_store_selector_wait(selector, SC_EXEC_FOREVER);
}

void match_load_ok(const struct world *world, const struct match *match,
                   struct sc_store_selector *selector, uint64_t wanted)
{
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        spec_status status = match_load(match, selector, layer, wanted);
        if (status != SPEC_OK)
            fail_msg("%s: layer %u: status %d: %s", world->setup->name, layer, (int)status,
                     world->last_line);
        match_check(world, match, layer, wanted, selector, true);
        sc_store_selector_end(selector);
    }
}

void holes_store(struct world *world)
{
    struct pass *pass = pass_make(world, 5, 10, 300);
    pass->commit.piece_first = 1;
    pass->commit.skip = 7;
    pass_run(pass);
    pass_note(pass);
    pass_free(pass);
}

struct match holes_match(const struct world *world)
{
    struct match match = {.count = 0};
    match_add(&match, &world->pieces[0], 7, 57);
    for (uint32_t p = 2; p < 4; p++)
        match_add(&match, &world->pieces[p], 0, world->pieces[p].row_count);
    return match;
}
