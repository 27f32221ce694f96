/* Row tags: frozen vectors, and every part of a row's identity changes its tag. */
#include "store/tag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 37u
#define COPY UINT64_C(0xfedcba9876543210)

static const uint8_t digest[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const uint8_t hash[16] = {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static void rows_fill(uint8_t *rows, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        rows[i] = (uint8_t)(i * 7 + i / 251);
}

static void tag_vectors_are_frozen(void **state)
{
    (void)state;
    /* Made by tools/make_store_vectors.py after docs/store-format.md, apart from store/tag.c; of
     * one format version they never change. */
    static const struct {
        uint64_t copy;
        uint32_t layer, part;
        uint64_t position, bytes, tag;
    } vectors[] = {{0, 0, 0, 0, 16, 0x535bd4f71d1630fc},
                   {1, 0, 0, 0, 16, 0x8a00d96a1be021c6},
                   {0, 0, 0, 0, 1024, 0xb48164e55ec27cd3},
                   {0x0102030405060708, 3, 1, 77, 768, 0x656c2eaa1ea929be},
                   {UINT64_C(1) << 63, 31, 2, 4000000000u, 16384, 0x971d380f7b0b69c2},
                   {UINT64_MAX, 11, 3, 4095, 192, 0x46e219a6d4d505a5},
                   {77, 5, 4, 128, 1000, 0xec3c8656166022c0}};
    static uint8_t row[16384];
    rows_fill(row, sizeof(row));
    for (uint32_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        uint64_t tag, base = sc_store_tag_base(digest, hash, vectors[i].copy, vectors[i].layer,
                                               vectors[i].part);
        sc_store_tag_make(base, vectors[i].position, row, vectors[i].bytes, 0, 1, &tag, 1);
        if (tag != vectors[i].tag)
            fail_msg("vector %u: 0x%016lx", i, (unsigned long)tag);
    }
}

static void tag_of_another_identity_fails(void **state)
{
    (void)state;
    static uint8_t rows[ROWS * 96];
    uint64_t tags[ROWS];
    rows_fill(rows, sizeof(rows));
    uint64_t base = sc_store_tag_base(digest, hash, COPY, 5, SC_STORE_PART_ROW);
    sc_store_tag_make(base, 1000, rows, 96, 96, ROWS, tags, 1);
    assert_int_equal(sc_store_tag_verify(base, 1000, rows, 96, 96, ROWS, tags, 1), ROWS);
    assert_int_equal(sc_store_tag_verify(base, 1001, rows, 96, 96, ROWS, tags, 1), 0);
    uint8_t other[16];
    for (uint32_t byte = 0; byte < 16; byte++) {
        memcpy(other, digest, 16);
        other[byte] ^= 0x40;
        assert_int_not_equal(sc_store_tag_base(other, hash, COPY, 5, SC_STORE_PART_ROW), base);
        memcpy(other, hash, 16);
        other[byte] ^= 1;
        assert_int_not_equal(sc_store_tag_base(digest, other, COPY, 5, SC_STORE_PART_ROW), base);
    }
    const uint64_t bases[5] = {
        sc_store_tag_base(digest, hash, COPY + 1, 5, SC_STORE_PART_ROW),
        sc_store_tag_base(digest, hash, COPY ^ UINT64_C(1) << 63, 5, SC_STORE_PART_ROW),
        sc_store_tag_base(digest, hash, COPY, 6, SC_STORE_PART_ROW),
        sc_store_tag_base(digest, hash, COPY, 5, SC_STORE_PART_K),
        sc_store_tag_base(digest, hash, COPY, 5, SC_STORE_PART_V)};
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(sc_store_tag_verify(bases[i], 1000, rows, 96, 96, ROWS, tags, 1), 0);
}

static void tag_finds_the_first_bad_row(void **state)
{
    (void)state;
    static uint8_t rows[ROWS * 96];
    uint64_t tags[2 * ROWS];
    uint64_t base = sc_store_tag_base(digest, hash, COPY, 5, SC_STORE_PART_K);
    rows_fill(rows, sizeof(rows));
    sc_store_tag_make(base, 9, rows, 48, 96, ROWS, tags, 2); /* K halves, tags two apart */
    assert_int_equal(sc_store_tag_verify(base, 9, rows, 48, 96, ROWS, tags, 2), ROWS);
    rows[20 * 96 + 50] ^= 1; /* the V half: not this tag's */
    assert_int_equal(sc_store_tag_verify(base, 9, rows, 48, 96, ROWS, tags, 2), ROWS);
    for (uint32_t bit = 0; bit < 48 * 8; bit++) {
        rows[20 * 96 + bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_int_equal(sc_store_tag_verify(base, 9, rows, 48, 96, ROWS, tags, 2), 20);
        rows[20 * 96 + bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    uint8_t row[48]; /* rows 3 and 4 change places */
    memcpy(row, rows + 3 * 96, 48);
    memcpy(rows + 3 * 96, rows + 4 * 96, 48);
    memcpy(rows + 4 * 96, row, 48);
    assert_int_equal(sc_store_tag_verify(base, 9, rows, 48, 96, ROWS, tags, 2), 3);
    uint64_t tag = tags[2 * 3]; /* and take their tags along */
    tags[2 * 3] = tags[2 * 4];
    tags[2 * 4] = tag;
    assert_int_equal(sc_store_tag_verify(base, 9, rows, 48, 96, ROWS, tags, 2), 3);
}

/* Lengths around XXH3's own borders (16, 128, 240 bytes; stripes of 64, blocks of 1,024), odd
 * addresses, and rows of real models. */
static void tag_rungs_agree_bit_for_bit(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1,    3,    8,    9,    16,   17,   128,  129,
                                     240,  241,  255,  256,  511,  768,  1023, 1024,
                                     1025, 1088, 2048, 4096, 5000, 16384};
    static uint8_t rows[4 * 16384 + 16];
    uint32_t rungs = 1;
    rows_fill(rows, sizeof(rows));
    for (; sc_store_tag_rung_at(rungs) != NULL; rungs++) {
        for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            for (uint64_t shift = 0; shift < 16; shift += 5) {
                uint64_t expected[4], got[4];
                const uint8_t *at = rows + shift;
                sc_store_tag_rung_at(0)->make(77, i, at, sizes[i], sizes[i], 4, expected, 1);
                sc_store_tag_rung_at(rungs)->make(77, i, at, sizes[i], sizes[i], 4, got, 1);
                assert_memory_equal(expected, got, sizeof(got));
                assert_int_equal(sc_store_tag_rung_at(rungs)->verify(77, i, at, sizes[i], sizes[i],
                                                                     4, expected, 1),
                                 4);
                for (uint64_t seed = 0; seed < 3; seed++) /* XXH3 has a way of its own for 0 */
                    assert_int_equal(sc_store_tag_rung_at(0)->hash(at, sizes[i], seed << 40),
                                     sc_store_tag_rung_at(rungs)->hash(at, sizes[i], seed << 40));
            }
        }
    }
    print_message("%u rungs\n", rungs);
    assert_null(sc_store_tag_rung_at(rungs + 1));
}

/* Made with libxxhash 0.8.1's XXH3_64bits_withSeed; they never change. */
static void checksum_vectors_are_frozen(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes, seed, checksum;
    } vectors[] = {{16, 0x0, 0x9da23836adf2be1e},
                   {240, 0x1, 0xea28c86764f89de3},
                   {241, 0x9e3779b97f4a7c15, 0x6ec6d69819587a84},
                   {394, 0x4d, 0xad83f43e539fc080},
                   {1024, 0x0, 0xba464919c6bb3ccd},
                   {1025, 0x5, 0xe6e636c958a761e0},
                   {4096, 0xffffffffffffffff, 0x12e949b7289c568f},
                   {16384, 0x3, 0x178d61dbdc3af50b}};
    static uint8_t bytes[16384];
    rows_fill(bytes, sizeof(bytes));
    for (uint32_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        assert_int_equal(sc_store_checksum(bytes, vectors[i].bytes, vectors[i].seed),
                         vectors[i].checksum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tag_vectors_are_frozen),
        cmocka_unit_test(tag_of_another_identity_fails),
        cmocka_unit_test(tag_finds_the_first_bad_row),
        cmocka_unit_test(tag_rungs_agree_bit_for_bit),
        cmocka_unit_test(checksum_vectors_are_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
