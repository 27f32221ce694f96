/* Keys and pieces of a call: OBJ-010, OBJ-011, and what exists and get say of them: OBJ-030,
 * OBJ-031, OBJ-040, OBJ-041, OBJ-043.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- 010: keys ---- */

static uint8_t key_bytes_max[SPEC_KEY_BYTES_MAX + 1];

/* Every call that takes keys gives the same answer to wrong ones, and nothing is changed. */
static void expect_keys(struct objects *fx, const struct spec_keys *keys, spec_status expected)
{
    const struct spec_objects_api *api = fx->api;
    struct spec_exists_params params = {.struct_size = sizeof(params)};
    struct batch b = batch_make(1, 4, 100);
    spec_operation operation = 0;
    spec_status statuses[] = {
        api->exists(fx->store, fx->domain, keys, &params, NULL, NULL),
        api->touch(fx->store, fx->domain, keys, NULL),
        api->remove(fx->store, fx->domain, keys, 0, NULL, NULL),
        api->get(fx->store, fx->domain, keys, &b.pieces, &b.params, NULL),
        expected == SPEC_OK ? SPEC_OK
                            : api->put(fx->store, fx->domain, keys, &b.pieces, &b.params, NULL),
        expected == SPEC_OK
            ? SPEC_OK
            : api->put_submit(fx->store, fx->domain, keys, &b.pieces, &b.params, &operation, NULL),
        expected == SPEC_OK
            ? SPEC_OK
            : api->get_submit(fx->store, fx->domain, keys, &b.pieces, &b.params, &operation, NULL)};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i] != expected)
            fail_msg("call %zu: status %d, expected %d", i, (int)statuses[i], (int)expected);
    assert_int_equal(operation, 0);
    batch_free(&b);
}

static void obj_010_lengths_of_keys_outside_their_range_are_invalid(void **state)
{
    struct objects *fx = *state;
    struct spec_keys keys = {.struct_size = sizeof(keys), .count = 1, .data = key_bytes_max};
    uint32_t lengths[4] = {1, 1024, 7, 0};
    static uint8_t data[1032];
    static const uint32_t FINE[] = {1, 2, 1023, 1024}, WRONG[] = {0, 1025, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        keys.key_bytes = FINE[i];
        expect_keys(fx, &keys, SPEC_OK);
        keys.key_bytes = WRONG[i];
        expect_keys(fx, &keys, SPEC_E_INVALID);
    }
    keys = (struct spec_keys){
        .struct_size = sizeof(keys), .count = 3, .data = data, .lengths = lengths};
    expect_keys(fx, &keys, SPEC_OK);
    keys.key_bytes = 36; /* 0 with lengths */
    expect_keys(fx, &keys, SPEC_E_INVALID);
    keys.key_bytes = 0;
    keys.count = 4;
    expect_keys(fx, &keys, SPEC_E_INVALID);
    lengths[3] = 1025;
    expect_keys(fx, &keys, SPEC_E_INVALID);
}

static void obj_010_counts_outside_their_range_are_invalid(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(1, 1, 100);
    struct spec_keys keys = b.keys;
    keys.count = 0;
    expect_keys(fx, &keys, SPEC_E_INVALID);
    keys.count = SPEC_KEYS_MAX + 1;
    expect_keys(fx, &keys, SPEC_E_INVALID);
    keys.count = UINT32_MAX;
    expect_keys(fx, &keys, SPEC_E_INVALID);
    keys = b.keys;
    keys.data = NULL;
    expect_keys(fx, &keys, SPEC_E_INVALID);
    batch_free(&b);
}

static void obj_010_a_call_takes_65536_keys(void **state)
{
    struct objects *fx = *state;
    struct batch all = batch_make(0, SPEC_KEYS_MAX, 1);
    struct spec_exists_params params = {.struct_size = sizeof(params)};
    uint64_t leading = UINT64_MAX;
    put_done(fx, fx->domain, 0, 100, 1);
    put_done(fx, fx->domain, SPEC_KEYS_MAX - 1, 1, 1);
    assert_ok(fx, fx->api->exists(fx->store, fx->domain, &all.keys, &params, &leading, &fx->error));
    assert_int_equal(leading, 100);
    assert_ok(fx, fx->api->touch(fx->store, fx->domain, &all.keys, &fx->error));
    get(fx, fx->domain, &all);
    assert_int_equal(batch_count(&all, SPEC_KEY_DONE), 101);
    assert_int_equal(batch_count(&all, SPEC_KEY_ABSENT), SPEC_KEYS_MAX - 101);
    assert_int_equal(all.status[SPEC_KEYS_MAX - 1], SPEC_KEY_DONE);
    assert_ok(fx, fx->api->remove(fx->store, fx->domain, &all.keys, 0, NULL, &fx->error));
    assert_int_equal(objects_stats(fx, fx->domain).objects, 0);
    batch_free(&all);
}

static void obj_010_keys_of_the_longest_length_are_stored(void **state)
{
    struct objects *fx = *state;
    uint8_t *data = calloc(64, SPEC_KEY_BYTES_MAX);
    struct batch b = batch_make(1, 64, 4096);
    assert_non_null(data);
    for (uint32_t i = 0; i < 64; i++) {
        memset(data + i * SPEC_KEY_BYTES_MAX, 'k', SPEC_KEY_BYTES_MAX);
        data[(i + 1) * SPEC_KEY_BYTES_MAX - 1] = (uint8_t)i;
    }
    b.keys.data = data;
    b.keys.key_bytes = SPEC_KEY_BYTES_MAX;
    put(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    objects_reopen(fx);
    get(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    batch_free(&b);
    free(data);
}

/* ---- 011: pieces ---- */

static void expect_pieces(struct objects *fx, const struct batch *b,
                          const struct spec_pieces *pieces)
{
    spec_operation operation = 0;
    assert_status(fx->api->get(fx->store, fx->domain, &b->keys, pieces, &b->params, NULL),
                  SPEC_E_INVALID);
    assert_status(fx->api->put(fx->store, fx->domain, &b->keys, pieces, &b->params, NULL),
                  SPEC_E_INVALID);
    assert_status(
        fx->api->get_submit(fx->store, fx->domain, &b->keys, pieces, &b->params, &operation, NULL),
        SPEC_E_INVALID);
    assert_status(
        fx->api->put_submit(fx->store, fx->domain, &b->keys, pieces, &b->params, &operation, NULL),
        SPEC_E_INVALID);
    assert_int_equal(operation, 0);
    assert_int_equal(exists_count(fx, fx->domain, b->first, b->keys.count), 0);
}

static void obj_011_pieces_outside_their_range_are_invalid(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_split(1, 2, 1000, 16, 0);
    struct spec_pieces wrong = b.pieces;
    wrong.pieces = 0;
    expect_pieces(fx, &b, &wrong);
    wrong.pieces = SPEC_PIECES_MAX + 1;
    expect_pieces(fx, &b, &wrong);
    wrong = b.pieces;
    wrong.addresses = NULL;
    expect_pieces(fx, &b, &wrong);
    wrong = b.pieces;
    wrong.piece_bytes = 10; /* 0 with sizes */
    expect_pieces(fx, &b, &wrong);
    wrong = b.pieces;
    wrong.sizes = NULL; /* and no piece_bytes */
    expect_pieces(fx, &b, &wrong);
    uint64_t size = b.sizes[31];
    b.sizes[31] = 0;
    expect_pieces(fx, &b, &b.pieces);
    b.sizes[31] = size;
    b.addresses[17] = 0;
    expect_pieces(fx, &b, &b.pieces);
    batch_free(&b);
}

/* 257 MiB in pieces that share their memory. */
static void obj_011_a_value_beyond_the_largest_size_is_not_stored(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, "\"disk_bytes\": \"1GiB\"");
    struct batch b = batch_make(1, 1, 17 * MIB);
    uint64_t addresses[SPEC_PIECES_MAX];
    for (uint32_t i = 0; i < SPEC_PIECES_MAX; i++)
        addresses[i] = b.addresses[0];
    struct spec_pieces pieces = {.struct_size = sizeof(pieces),
                                 .pieces = SPEC_PIECES_MAX,
                                 .addresses = addresses,
                                 .piece_bytes = 17 * MIB};
    spec_status status =
        fx->api->put(fx->store, fx->domain, &b.keys, &pieces, &b.params, &fx->error);
    if (status == SPEC_OK)
        assert_true(b.status[0] == SPEC_E_INVALID || b.status[0] == SPEC_E_NO_SPACE);
    else
        assert_int_equal(status, SPEC_E_INVALID);
    assert_int_equal(exists_one(fx, fx->domain, 1), SPEC_KEY_ABSENT);
    pieces.piece_bytes = UINT64_MAX / 8; /* the sum does not fit in 64 bits */
    assert_int_not_equal(
        fx->api->get(fx->store, fx->domain, &b.keys, &pieces, &b.params, &fx->error) == SPEC_OK &&
            b.status[0] == SPEC_KEY_DONE,
        1);
    batch_free(&b);
}

static void obj_011_every_number_of_pieces_at_any_alignment(void **state)
{
    struct objects *fx = *state;
    static const uint64_t SHIFTS[] = {0, 1, 7, 64, 511, 512, 4095};
    uint64_t first = 0;
    for (uint32_t pieces = 1; pieces <= SPEC_PIECES_MAX; pieces++)
        for (size_t i = 0; i < sizeof(SHIFTS) / sizeof(SHIFTS[0]); i++, first += 10) {
            struct batch b = batch_split(first, 3, 30000 + pieces, pieces, SHIFTS[i]);
            put(fx, fx->domain, &b);
            batch_expect(&b, SPEC_KEY_DONE);
            get(fx, fx->domain, &b);
            batch_expect(&b, SPEC_KEY_DONE);
            get_expect(fx, fx->domain, first, 3, 30000 + pieces, SPEC_KEY_DONE);
            batch_free(&b);
        }
}

static void obj_011_whole_pages_are_moved_without_a_copy(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, "\"objects\": {\"staging\": \"never\"}");
    struct batch b = batch_make(1, 16, MIB);
    put(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    get(fx, fx->domain, &b);
    batch_expect(&b, SPEC_KEY_DONE);
    assert_int_equal(objects_stats(fx, 0).bounce_bytes, 0);
    batch_free(&b);
}

/* ---- 030, 031: exists ---- */

static void obj_030_statuses_sizes_and_the_leading_run(void **state)
{
    struct objects *fx = *state;
    int8_t statuses[16];
    uint64_t bytes[16], leading = UINT64_MAX;
    struct batch b = batch_make(0, 16, 1);
    struct spec_exists_params params = {
        .struct_size = sizeof(params), .ret_status = statuses, .ret_bytes = bytes};
    for (uint32_t i = 0; i < 16; i++)
        if (i != 5 && i < 9)
            put_done(fx, fx->domain, i, 1, 1000 * (i + 1));
    memset(statuses, POISON, sizeof(statuses));
    memset(bytes, POISON, sizeof(bytes));
    assert_ok(fx, fx->api->exists(fx->store, fx->domain, &b.keys, &params, &leading, &fx->error));
    assert_int_equal(leading, 5);
    for (uint32_t i = 0; i < 16; i++) {
        bool is_stored = i != 5 && i < 9;
        assert_int_equal(statuses[i], is_stored ? SPEC_KEY_DONE : SPEC_KEY_ABSENT);
        assert_int_equal(bytes[i], is_stored ? 1000 * (i + 1) : 0);
    }
    params.flags = SPEC_EXISTS_PREFIX;
    memset(statuses, POISON, sizeof(statuses));
    memset(bytes, POISON, sizeof(bytes));
    assert_ok(fx, fx->api->exists(fx->store, fx->domain, &b.keys, &params, &leading, &fx->error));
    assert_int_equal(leading, 5);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(statuses[i], i < 5 ? SPEC_KEY_DONE : SPEC_KEY_ABSENT);
        assert_int_equal(bytes[i], i < 5 ? 1000 * (i + 1) : 0);
    }
    params.ret_status = NULL;
    params.ret_bytes = NULL;
    assert_ok(fx, fx->api->exists(fx->store, fx->domain, &b.keys, &params, NULL, &fx->error));
    batch_free(&b);
}

static void obj_030_a_put_under_way_is_pending(void **state)
{
    struct objects *fx = *state;
    int8_t statuses[3] = {-1, -1, -1};
    uint64_t bytes[3] = {9, 9, 9};
    objects_configure(fx, SMALL);
    fill_and_hold(fx, fx->domain, 1);
    struct batch large = batch_make(1001, 1, LARGE_MIB * MIB), b = batch_make(1000, 3, 1);
    put_done(fx, fx->domain, 1000, 1, 100);
    assert_int_equal(exists(fx, fx->domain, 1000, 1, SPEC_EXISTS_HOLD, NULL), 1);
    (void)put_begin(fx, fx->domain, &large, 1);
    struct spec_exists_params params = {
        .struct_size = sizeof(params), .ret_status = statuses, .ret_bytes = bytes};
    uint64_t leading = UINT64_MAX;
    assert_ok(fx, fx->api->exists(fx->store, fx->domain, &b.keys, &params, &leading, &fx->error));
    assert_int_equal(leading, 1);
    assert_int_equal(statuses[0], SPEC_KEY_DONE);
    assert_int_equal(statuses[1], SPEC_KEY_PENDING);
    assert_int_equal(statuses[2], SPEC_KEY_ABSENT);
    assert_int_equal(bytes[1], 0);
    params.flags = SPEC_EXISTS_PREFIX; /* pending ones are reported ABSENT */
    assert_ok(fx, fx->api->exists(fx->store, fx->domain, &b.keys, &params, &leading, &fx->error));
    assert_int_equal(leading, 1);
    assert_int_equal(statuses[1], SPEC_KEY_ABSENT);
    batch_free(&b);
    objects_close(fx);
    batch_free(&large);
}

static void obj_030_unknown_flags_and_long_holds_are_invalid(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(0, 1, 1);
    struct spec_exists_params params = {.struct_size = sizeof(params), .flags = 4};
    assert_status(fx->api->exists(fx->store, fx->domain, &b.keys, &params, NULL, &fx->error),
                  SPEC_E_INVALID);
    params.flags = SPEC_EXISTS_HOLD;
    params.hold_ns = SPEC_HOLD_NS_MAX + 1;
    assert_status(fx->api->exists(fx->store, fx->domain, &b.keys, &params, NULL, &fx->error),
                  SPEC_E_INVALID);
    params.hold_ns = SPEC_HOLD_NS_MAX;
    assert_ok(fx, fx->api->exists(fx->store, fx->domain, &b.keys, &params, NULL, &fx->error));
    batch_free(&b);
}

/* Found and held, then as much is put as the whole store holds, then got. */
static void obj_031_what_was_found_survives_evicting_puts(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    uint64_t next = 0, asserted = 0, turn_of_dice = 1;
    for (uint32_t turn = 0; turn < SAMPLE_OF(40u, 12u); turn++) {
        int8_t statuses[8];
        put_done(fx, fx->domain, next, 8, MIB);
        uint64_t held = next - (next > 40 ? 8 * dice(&turn_of_dice, 4) : 0);
        next += 8;
        (void)exists(fx, fx->domain, held, 8, SPEC_EXISTS_HOLD, statuses);
        for (uint32_t i = 0; i < 9; i++, next += 8)
            put_done(fx, fx->domain, next, 8, MIB);
        for (uint32_t i = 0; i < 8; i++)
            if (statuses[i] == SPEC_KEY_DONE) {
                get_expect(fx, fx->domain, held + i, 1, MIB, SPEC_KEY_DONE);
                asserted++;
            }
        remove_keys(fx, fx->domain, held, 8, 0); /* so that not everything is held at last */
    }
    assert_true(asserted >= 8);
    assert_true(objects_stats(fx, 0).evicted_objects > 0);
}

/* ---- 040, 041, 043: get ---- */

static void obj_040_a_wrong_size_is_invalid_and_nothing_is_written(void **state)
{
    struct objects *fx = *state;
    static const uint64_t WRONG[] = {1, 4999, 5001, 8192, 100000};
    put_done(fx, fx->domain, 1, 4, 5000);
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++)
        get_expect(fx, fx->domain, 1, 4, WRONG[i], SPEC_E_INVALID);
    get_expect(fx, fx->domain, 1, 4, 5000, SPEC_KEY_DONE);
    assert_int_equal(objects_stats(fx, fx->domain).objects, 4);
}

static void obj_041_keys_that_fail_do_not_affect_the_others(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_split(0, 12, 6000, 2, 5);
    for (uint32_t i = 0; i < 12; i++)
        if (i % 3 != 1)
            put_done(fx, fx->domain, i, 1, i % 3 == 2 ? 5999 : 6000);
    get(fx, fx->domain, &b);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(b.status[i], i % 3 == 0   ? SPEC_KEY_DONE
                                      : i % 3 == 1 ? SPEC_KEY_ABSENT
                                                   : SPEC_E_INVALID);
    batch_free(&b);
}

static void obj_041_a_key_twice_in_a_call_is_delivered_twice(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(7, 2, 6000);
    key_write(7, b.key_data + KEY_BYTES);
    put_done(fx, fx->domain, 7, 1, 6000);
    batch_poison(&b);
    assert_ok(fx, fx->api->get(fx->store, fx->domain, &b.keys, &b.pieces, &b.params, &fx->error));
    batch_expect(&b, SPEC_KEY_DONE);
    assert_true(value_is(7, batch_value(&b, 0), 6000));
    assert_true(value_is(7, batch_value(&b, 1), 6000));
    batch_free(&b);
}

static void obj_043_a_get_of_a_put_under_way_is_absent(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    fill_and_hold(fx, fx->domain, 1);
    struct batch large = batch_make(1000, 1, LARGE_MIB * MIB);
    (void)put_begin(fx, fx->domain, &large, 1);
    assert_int_equal(exists_one(fx, fx->domain, 1000), SPEC_KEY_PENDING);
    get_expect(fx, fx->domain, 1000, 1, LARGE_MIB * MIB, SPEC_KEY_ABSENT);
    remove_keys(fx, fx->domain, 1, 48, 0);
    struct spec_completion completion = poll_one(fx, fx->domain);
    assert_int_equal(completion.status, SPEC_OK);
    get_expect(fx, fx->domain, 1000, 1, LARGE_MIB * MIB, SPEC_KEY_DONE);
    batch_free(&large);
}

const struct conf_test CONF_OBJECT_KEYS[] = {
    OPENED(obj_010_lengths_of_keys_outside_their_range_are_invalid),
    OPENED(obj_010_counts_outside_their_range_are_invalid),
    OPENED(obj_010_a_call_takes_65536_keys),
    OPENED(obj_010_keys_of_the_longest_length_are_stored),
    OPENED(obj_011_pieces_outside_their_range_are_invalid),
    OPENED(obj_011_a_value_beyond_the_largest_size_is_not_stored),
    OPENED(obj_011_every_number_of_pieces_at_any_alignment),
    OPENED(obj_011_whole_pages_are_moved_without_a_copy),
    END};

const struct conf_test CONF_OBJECT_EXISTS[] = {
    OPENED(obj_030_statuses_sizes_and_the_leading_run),
    OPENED(obj_030_a_put_under_way_is_pending),
    OPENED(obj_030_unknown_flags_and_long_holds_are_invalid),
    OPENED(obj_031_what_was_found_survives_evicting_puts),
    OPENED(obj_040_a_wrong_size_is_invalid_and_nothing_is_written),
    OPENED(obj_041_keys_that_fail_do_not_affect_the_others),
    OPENED(obj_041_a_key_twice_in_a_call_is_delivered_twice),
    OPENED(obj_043_a_get_of_a_put_under_way_is_absent),
    END};
