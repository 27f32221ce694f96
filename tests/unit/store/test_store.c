/* The store through its interface: what was written comes back, row by row, after a reopen too;
 * what cannot be believed is refused with a text. One body, several shapes and back ends.
 *
 * Threads: the fixture's. */
#include "tests/unit/store/store_fixture.h"

static const struct world_setup setups[] = {
    {.name = "sim, paired 1 KiB rows, 4 layers",
     .backend = SC_BACKEND_SIM,
     .layers = 4,
     .k_row_bytes = 512,
     .disk_bytes = 64u << 20,
     .segment_bytes = 4u << 20,
     .op_bytes = 64u << 10},
    {.name = "sim, paired 768-byte rows, 30 layers",
     .backend = SC_BACKEND_SIM,
     .layers = 30,
     .k_row_bytes = 384,
     .disk_bytes = 64u << 20,
     .segment_bytes = 1u << 20,
     .op_bytes = 128u << 10},
    {.name = "sim, paired 8 KiB rows, 3 layers",
     .backend = SC_BACKEND_SIM,
     .layers = 3,
     .k_row_bytes = 4096,
     .disk_bytes = 256u << 20,
     .segment_bytes = 16u << 20,
     .op_bytes = 1u << 20},
    {.name = "sim, split 200-byte K rows, 5 layers",
     .backend = SC_BACKEND_SIM,
     .layers = 5,
     .layout = SC_STORE_SPLIT,
     .k_row_bytes = 200,
     .disk_bytes = 64u << 20,
     .segment_bytes = 2u << 20,
     .op_bytes = 64u << 10},
    {.name = "pread, paired 1 KiB rows, 4 layers, 2 threads",
     .backend = SC_BACKEND_PREAD,
     .thread_count = 2,
     .layers = 4,
     .k_row_bytes = 512,
     .disk_bytes = 64u << 20,
     .segment_bytes = 4u << 20,
     .op_bytes = 64u << 10},
    {.name = "pread, split 1 KiB K rows, 2 layers, 2 threads",
     .backend = SC_BACKEND_PREAD,
     .thread_count = 2,
     .layers = 2,
     .layout = SC_STORE_SPLIT,
     .k_row_bytes = 1024,
     .disk_bytes = 64u << 20,
     .segment_bytes = 4u << 20,
     .op_bytes = 128u << 10},
};
#define SETUPS (sizeof(setups) / sizeof(setups[0]))

static void check_all_layers(struct world *world, uint64_t key, uint64_t rows)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
        struct loaded loaded = world_load_key(world, reader, layer, key);
        if (loaded.status != SPEC_OK)
            fail_msg("%s: layer %u: %s", world->setup->name, layer, world->error.text);
        assert_int_equal(loaded.rows, rows);
    }
    sc_store_reader_close(reader);
}

static void store_rows_come_back_before_and_after_a_reopen(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SETUPS; i++) {
        struct world *world = world_make(&setups[i], 7);
        world_open_ok(world);
        assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK);
        assert_int_equal(world_store(world, 1, 300, 23), SPEC_OK);
        assert_int_equal(world_store(world, 1, 323, 1), SPEC_OK);
        assert_int_equal(world_store(world, 2, 10, 130), SPEC_OK);
        check_all_layers(world, 1, 324);
        check_all_layers(world, 2, 130);
        world_close(world);
        world_open_ok(world);
        assert_int_equal(world->open_count, world->piece_count);
        check_all_layers(world, 1, 324);
        check_all_layers(world, 2, 130);
        world_free(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_rows_come_back_before_and_after_a_reopen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
