/* Host memory between the host and the disk: what lookup says of it: ABI-191.
 *
 * Holds: connectors that keep nothing in memory pass: then every row is of the disk.
 * Does not, Threads, Tests: as fixture.h. */
#include "conformance/suite.h"

#define HOST  "\"host_bytes\": \"64MiB\""
#define COUNT 301u

/* Loads every layer; all rows right. Returns how many rows times layers came from host memory. */
static uint64_t load_all(struct fixture *fx, const struct prompt *prompt,
                         const struct spec_lookup_result *found)
{
    uint64_t hosted = 0, rows = found->matched_tokens;
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, rows);
    for (uint32_t layer = 0; layer < fx->shape.layers; layer++) {
        struct spec_important item = important(found->request, layer, &area.memory);
        area_poison(&area);
        assert_ok(fx, fx->api->get_important(fx->conn, &item, 1, &fx->error));
        assert_ok(fx, item.status);
        area_expect(&area, &fx->shape, prompt, 0, rows, layer);
        hosted += item.tier_rows[SPEC_TIER_HOST];
    }
    area_free(&area);
    return hosted;
}

static uint64_t bytes_of(const struct spec_lookup_result *found)
{
    uint64_t bytes = 0;
    for (uint64_t tier = 0; tier < SPEC_TIERS; tier++)
        bytes += found->tier_bytes[tier];
    return bytes;
}

static void abi_191_tier_bytes_say_where_the_rows_lie_now(void **state)
{
    struct fixture *fx = *state;
    fixture_reconfigure(fx, HOST);
    struct prompt prompt = prompt_make(190, COUNT);
    bool stored = fixture_store(fx, &prompt);
    for (uint32_t round = 0; stored && round < 3; round++) {
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        expect_match(&found, COUNT - 1);
        uint64_t rows = found.matched_tokens * fx->shape.layers, hosted;
        if (rows == 0)
            break;
        uint64_t row_bytes = bytes_of(&found) / rows;
        assert_int_equal(row_bytes * rows, bytes_of(&found));
        hosted = load_all(fx, &prompt, &found);
        assert_int_equal(found.tier_bytes[SPEC_TIER_HOST], hosted * row_bytes);
        assert_int_equal(round == 0 ? hosted : 0, 0); /* nobody had loaded it before */
        fixture_release(fx, found.request);
    }
    struct spec_stats stats = fixture_stats(fx);
    assert_in_range(stats.host_bytes_used, 0, stats.host_bytes_max);
    prompt_free(&prompt);
}

const struct conf_test CONF_STAGE[] = {
    OPENED(abi_191_tier_bytes_say_where_the_rows_lie_now),
    END,
};
