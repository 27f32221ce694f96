/* An encoder that any row changes, and what codes of a match must be; see quant_check.h. */
#include "tests/unit/store/quant_check.h"

bool encode(void *user, const struct sc_store_encode *what)
{
    uint64_t bytes = what->part == SC_STORE_PART_K ? K_CODE_BYTES : V_CODE_BYTES;
    const uint8_t *const *rows = what->rows;
    uint8_t *scales = what->scales;
    const struct world *world = user;
    uint64_t k_bytes = world->setup->k_row_bytes;
    memset(scales, (int)what->part, SCALE_BYTES);
    for (uint64_t i = 0; i < what->row_count; i++) {
        for (uint64_t b = 0; b < bytes; b++)
            what->codes[i * bytes + b] = (uint8_t)(rows[i][b % k_bytes] + i);
        for (uint64_t b = 0; b < SCALE_BYTES; b++)
            scales[b] = (uint8_t)(scales[b] * 3 + rows[i][(100 + b) % k_bytes]);
    }
    return what->part != SC_STORE_PART_K || rows[0][0] % 16 != 3;
}

void keep_quant(struct world *world, bool keeps)
{
    world->params.codes = (struct sc_store_quant){0};
    if (keeps)
        world->params.codes = (struct sc_store_quant){.shape = {.bits_k = 4,
                                                                .bits_v = 2,
                                                                .scale_bytes = SCALE_BYTES,
                                                                .k_row_bytes = K_CODE_BYTES,
                                                                .v_row_bytes = V_CODE_BYTES},
                                                      .encode = encode,
                                                      .user = world};
}

bool expected(struct world *world, const struct world_piece *twin, uint32_t skip, uint32_t layer,
              uint32_t part, uint8_t *scales, uint8_t *codes)
{
    static uint8_t bytes[256][2 * 2048];
    const uint8_t *rows[256];
    uint64_t k_bytes = world->setup->k_row_bytes;
    for (uint32_t i = skip; i < twin->row_count; i++) {
        row_fill(bytes[i], 2 * k_bytes, twin->key, layer, twin->first_position + i);
        rows[i - skip] = bytes[i] + (part == SC_STORE_PART_V ? k_bytes : 0);
    }
    return encode(world, &(struct sc_store_encode){.layer = layer,
                                                   .part = part,
                                                   .position = twin->first_position + skip,
                                                   .rows = rows,
                                                   .row_count = twin->row_count - skip,
                                                   .scales = scales,
                                                   .codes = codes});
}

uint64_t codes_check(struct world *world, const struct match *match, uint32_t skip, uint32_t layer,
                     bool k_alone, const struct sc_store_selector *selector)
{
    static uint8_t scales[SCALE_BYTES], codes[256 * K_CODE_BYTES];
    uint64_t count = 0;
    for (uint64_t r = 0; r < match->count; r++) {
        const struct sc_store_range *range = &match->ranges[r];
        struct sc_store_slab slab;
        uint64_t row = range->row_first - (r == 0 ? skip : 0), rows = range->row_count;
        if (!sc_store_slab_of(sc_store_selector_keys(selector), r, &slab))
            continue;
        count++;
        assert_int_equal(slab.bits_k, 4);
        assert_int_equal(slab.bits_v, k_alone ? 0 : 2);
        assert_true(expected(world, match->twins[r], r == 0 ? skip : 0, layer, SC_STORE_PART_K,
                             scales, codes));
        bytes_equal(slab.k_scales, scales, SCALE_BYTES);
        bytes_equal(slab.k_quant, codes + row * K_CODE_BYTES, rows * K_CODE_BYTES);
        if (k_alone)
            continue;
        assert_true(expected(world, match->twins[r], r == 0 ? skip : 0, layer, SC_STORE_PART_V,
                             scales, codes));
        bytes_equal(slab.v_scales, scales, SCALE_BYTES);
        bytes_equal(slab.v_quant, codes + row * V_CODE_BYTES, rows * V_CODE_BYTES);
    }
    return count;
}

void codes_load(const struct match *match, struct sc_store_selector *selector, uint32_t layer,
                bool k_alone)
{
    assert_true(sc_store_selector_begin(
        selector, &(struct sc_store_selector_want){.layer = layer,
                                                   .io_class = SC_IO_CLASS_DEMAND,
                                                   .ranges = match->ranges,
                                                   .range_count = match->count,
                                                   .is_quant = true,
                                                   .k_alone = k_alone}));
    assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
}

uint64_t raw_count(struct world *world, const struct match *match, uint32_t layer)
{
    static uint8_t scales[SCALE_BYTES], codes[256 * K_CODE_BYTES];
    uint64_t count = 0;
    for (uint64_t r = 0; r < match->count; r++)
        count += !expected(world, match->twins[r], 0, layer, SC_STORE_PART_K, scales, codes);
    return count;
}

uint64_t key_check(struct world *world, uint64_t key, bool has_all)
{
    struct sc_store_selector *selector = selector_make(world);
    uint64_t count = 0;
    struct match match = match_of(world, key);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++)
        for (uint32_t k_alone = 0; k_alone < 2; k_alone++) {
            codes_load(&match, selector, layer, k_alone);
            uint64_t found = codes_check(world, &match, 0, layer, k_alone, selector);
            if (has_all)
                assert_int_equal(found, match.count - raw_count(world, &match, layer));
            count += found;
        }
    sc_store_selector_close(selector);
    return count;
}

void pause_wait(struct world *world)
{
    world_wait_ns(world, SC_STORE_RETRY_NS);
}
