/* Copies of the same tokens; see copy_check.h. */
#include "tests/unit/store/copy_check.h"

spec_status copy_store(struct world *world, uint64_t row_key, struct copy *ret_copy)
{
    struct pass *pass = pass_make(world, COPY_KEY, 0, COPY_ROWS);
    pass->key = row_key;
    spec_status status = pass_begin(pass);
    if (status == SPEC_OK) {
        while (status == SPEC_OK && pass->layer < world->setup->layers)
            status = pass_put(pass);
        pass_wait(pass);
        status = pass->status;
    }
    *ret_copy = (struct copy){.piece_count = pass->piece_count};
    for (uint32_t i = 0; status == SPEC_OK && i < pass->piece_count; i++)
        ret_copy->pieces[i] = (struct world_piece){.id = pass->first_id + i,
                                                   .key = row_key,
                                                   .first_position = pass->plans[i].first_position,
                                                   .row_count = pass->plans[i].row_count,
                                                   .computed_on = (uint32_t)(row_key % 3)};
    pass_free(pass);
    return status;
}

void copy_drop(struct world *world, const struct copy *copy)
{
    for (uint32_t i = 0; i < copy->piece_count; i++)
        sc_store_piece_drop(world->store, copy->pieces[i].id);
}

const struct sc_store_extent_entry *copy_extent(const struct sc_store *store,
                                                const struct copy *copy)
{
    const struct sc_store_table *table = &store->table;
    return sc_store_table_extent(table, sc_store_table_piece(table, copy->pieces[0].id)->extent);
}

uint32_t copy_load(const struct world *world, struct sc_store *store, const struct copy *copy)
{
    struct world *reading = malloc(sizeof(*reading));
    struct sc_store_reader *reader = NULL;
    uint32_t whole = 0;
    assert_non_null(reading);
    *reading = *world;
    reading->store = store;
    assert_int_equal(sc_store_readers_open(store, 1, &reader, NULL), SPEC_OK);
    for (uint32_t i = 0; i < copy->piece_count; i++)
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            struct loaded loaded = world_load_piece(reading, reader, layer, &copy->pieces[i]);
            assert_true(loaded.status == SPEC_OK || loaded.status == SPEC_E_CORRUPT);
            assert_true(loaded.status == SPEC_OK || loaded.rows < copy->pieces[i].row_count);
            whole += loaded.status == SPEC_OK;
        }
    sc_store_readers_close(reader, 1);
    free(reading);
    return whole;
}
