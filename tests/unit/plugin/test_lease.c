/* The lease's bytes: what goes in comes out, what is changed or another's is none.
 *
 * Threads: one. */
#include "base/limits.h"
#include "plugin/args/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct sc_plugin_lease LEASE = {
    .piece = 0x0102030405060708,
    .expiry_ns = 0x1112131415161718,
    .place = {.border = {0x2122232425262728, 0x3132333435363738},
              .end = {0x4142434445464748, 0x5152535455565758},
              .length = SC_LIMIT_REQUEST_TOKENS},
    .rank = SC_LIMIT_RANKS - 1,
    .epoch_bits = 0xABCDEF};
static const uint8_t STORE[16] = {9, 8, 7};
static const struct sc_hash FAMILY = {1, 2};

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    uint8_t bytes[SC_PLUGIN_LEASE_BYTES];
    struct sc_plugin_lease back;
    uint64_t seed = sc_plugin_lease_seed(STORE, FAMILY);
    sc_plugin_lease_encode(&LEASE, seed, bytes);
    assert_true(sc_plugin_lease_decode(bytes, seed, &back));
    assert_int_equal(back.piece, LEASE.piece);
    assert_int_equal(back.expiry_ns, LEASE.expiry_ns);
    assert_true(sc_hash_equal(back.place.border, LEASE.place.border));
    assert_true(sc_hash_equal(back.place.end, LEASE.place.end));
    assert_int_equal(back.place.length, LEASE.place.length);
    assert_int_equal(back.rank, LEASE.rank);
    assert_int_equal(back.epoch_bits, LEASE.epoch_bits);
}

/* Processes of two builds exchange them, so the bytes stay. */
static void the_bytes_stand_where_the_header_says(void **state)
{
    (void)state;
    static const uint8_t expected[56] = {
        8,    7,    6,    5,    4,    3,    2,    1,    0x18, 0x17, 0x16, 0x15, 0x14, 0x13,
        0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35,
        0x34, 0x33, 0x32, 0x31, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, 0x58, 0x57,
        0x56, 0x55, 0x54, 0x53, 0x52, 0x51, 0x00, 0x00, 0x00, 0xf1, 0xff, 0xef, 0xcd, 0xab};
    uint8_t bytes[SC_PLUGIN_LEASE_BYTES];
    uint64_t seed = sc_plugin_lease_seed(STORE, FAMILY), tag;
    sc_plugin_lease_encode(&LEASE, seed, bytes);
    assert_memory_equal(bytes, expected, sizeof(expected));
    memcpy(&tag, bytes + 56, 8);
    assert_int_equal(tag, sc_hash_bytes64(bytes, 56, seed));
}

static void every_flipped_bit_makes_it_none(void **state)
{
    (void)state;
    uint8_t bytes[SC_PLUGIN_LEASE_BYTES];
    struct sc_plugin_lease back;
    uint64_t seed = sc_plugin_lease_seed(STORE, FAMILY);
    sc_plugin_lease_encode(&LEASE, seed, bytes);
    for (uint32_t bit = 0; bit < 8 * SC_PLUGIN_LEASE_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(sc_plugin_lease_decode(bytes, seed, &back));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(sc_plugin_lease_decode(bytes, seed, &back));
    memset(bytes, 0, sizeof(bytes));
    assert_false(sc_plugin_lease_decode(bytes, seed, &back)); /* "no promise" */
}

static void another_store_or_family_has_another_seed(void **state)
{
    (void)state;
    uint8_t bytes[SC_PLUGIN_LEASE_BYTES], other[16];
    struct sc_plugin_lease back;
    sc_plugin_lease_encode(&LEASE, sc_plugin_lease_seed(STORE, FAMILY), bytes);
    for (uint32_t i = 0; i < 16; i++) {
        memcpy(other, STORE, 16);
        other[i] ^= 1;
        assert_false(sc_plugin_lease_decode(bytes, sc_plugin_lease_seed(other, FAMILY), &back));
    }
    struct sc_hash family = {FAMILY.lo, FAMILY.hi ^ 1};
    assert_false(sc_plugin_lease_decode(bytes, sc_plugin_lease_seed(STORE, family), &back));
}

static void epochs_are_told_apart_also_where_the_bits_end(void **state)
{
    (void)state;
    struct sc_plugin_lease lease = LEASE;
    for (uint64_t epoch = (1u << 24) - 2; epoch < (1u << 24) + 3; epoch++) {
        lease.epoch_bits = (uint32_t)(epoch & 0xFFFFFF);
        assert_int_equal(sc_plugin_lease_age(&lease, epoch), SC_LEASE_CURRENT);
        assert_int_equal(sc_plugin_lease_age(&lease, epoch + 1), SC_LEASE_OLDER);
        assert_int_equal(sc_plugin_lease_age(&lease, epoch - 1), SC_LEASE_NEWER);
        assert_int_equal(sc_plugin_lease_age(&lease, epoch + 100000), SC_LEASE_OLDER);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(the_bytes_stand_where_the_header_says),
        cmocka_unit_test(every_flipped_bit_makes_it_none),
        cmocka_unit_test(another_store_or_family_has_another_seed),
        cmocka_unit_test(epochs_are_told_apart_also_where_the_bits_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
