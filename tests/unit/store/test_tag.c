/* Row tags: frozen vectors, and every part of a row's identity changes its tag. */
#include "store/rows/tag.h"
#include "tests/unit/cases.h"

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
    /* Made by tools/make_store_vectors.py after docs/reference/store-format.md, apart from
     * store/rows/tag.c; of one format version they never change. */
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
        uint64_t tag;
        const struct sc_store_tag_rows one = {
            .base =
                sc_store_tag_base(digest, hash, vectors[i].copy, vectors[i].layer, vectors[i].part),
            .position_first = vectors[i].position,
            .row_bytes = vectors[i].bytes,
            .count = 1};
        sc_store_tag_make(&one, row, &tag);
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
    struct sc_store_tag_rows what = {
        .base = base, .position_first = 1000, .row_bytes = 96, .count = ROWS, .tag_step = 1};
    sc_store_tag_make(&what, rows, tags);
    assert_int_equal(sc_store_tag_verify(&what, rows, tags), ROWS);
    what.position_first = 1001;
    assert_int_equal(sc_store_tag_verify(&what, rows, tags), 0);
    what.position_first = 1000;
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
    for (uint32_t i = 0; i < 5; i++) {
        what.base = bases[i];
        assert_int_equal(sc_store_tag_verify(&what, rows, tags), 0);
    }
}

static void tag_finds_the_first_bad_row(void **state)
{
    (void)state;
    static uint8_t rows[2 * ROWS * 48];
    uint64_t tags[2 * ROWS] = {0};
    const struct sc_store_tag_rows what = {
        /* K rows before V rows, tags two apart */
        .base = sc_store_tag_base(digest, hash, COPY, 5, SC_STORE_PART_K),
        .position_first = 9,
        .row_bytes = 48,
        .count = ROWS,
        .tag_step = 2};
    rows_fill(rows, sizeof(rows));
    sc_store_tag_make(&what, rows, tags);
    assert_int_equal(sc_store_tag_verify(&what, rows, tags), ROWS);
    rows[(ROWS + 20) * 48 + 2] ^= 1; /* of V: not this tag's */
    tags[2 * 20 + 1] ^= 1;
    assert_int_equal(sc_store_tag_verify(&what, rows, tags), ROWS);
    for (uint32_t bit = 0; bit < 48 * 8; bit++) {
        rows[20 * 48 + bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_int_equal(sc_store_tag_verify(&what, rows, tags), 20);
        rows[20 * 48 + bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    uint8_t row[48]; /* rows 3 and 4 change places */
    memcpy(row, rows + 3 * 48, 48);
    memcpy(rows + 3 * 48, rows + 4 * 48, 48);
    memcpy(rows + 4 * 48, row, 48);
    assert_int_equal(sc_store_tag_verify(&what, rows, tags), 3);
    uint64_t tag = tags[2 * 3]; /* and take their tags along */
    tags[2 * 3] = tags[2 * 4];
    tags[2 * 4] = tag;
    assert_int_equal(sc_store_tag_verify(&what, rows, tags), 3);
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
                const struct sc_store_tag_rows what = {.base = 77,
                                                       .position_first = i,
                                                       .row_bytes = sizes[i],
                                                       .count = 4,
                                                       .tag_step = 1};
                sc_store_tag_rung_at(0)->make(&what, at, expected);
                sc_store_tag_rung_at(rungs)->make(&what, at, got);
                assert_memory_equal(expected, got, sizeof(got));
                assert_int_equal(sc_store_tag_rung_at(rungs)->verify(&what, at, expected), 4);
                for (uint64_t seed = 0; seed < 3; seed++) /* XXH3 has a way of its own for 0 */
                    assert_int_equal(sc_store_tag_rung_at(0)->hash(at, sizes[i], seed << 40),
                                     sc_store_tag_rung_at(rungs)->hash(at, sizes[i], seed << 40));
            }
        }
    }
    print_message("%u rungs\n", rungs);
    assert_null(sc_store_tag_rung_at(rungs + 1));
}

#define MOVED   5u
#define SPANS   8u
#define APART   192u /* bytes between spans that nobody may write */
#define WORST   (16384u + SPANS * (APART + 64u))
#define UNMOVED 0x5e

struct moved {
    uint8_t *area, *want; /* [MOVED * WORST] */
    uint8_t *spans[MOVED * SPANS];
    uint64_t tags[2 * MOVED];
};

/* Spans lie apart, `shift` bytes behind a line's border; those of row 2 nowhere. */
static void moved_lay(struct moved *moved, const uint8_t *rows, uint64_t row_bytes,
                      uint64_t span_bytes, uint64_t shift, uint64_t good)
{
    uint64_t count = row_bytes / span_bytes, at = APART + shift;
    memset(moved->area, UNMOVED, MOVED * WORST);
    memset(moved->want, UNMOVED, MOVED * WORST);
    for (uint64_t i = 0; i < MOVED; i++)
        for (uint64_t j = 0; j < count; j++) {
            moved->spans[i * SPANS + j] = i == 2 ? NULL : moved->area + at;
            if (i != 2 && i < good)
                memcpy(moved->want + at, rows + i * row_bytes + j * span_bytes, span_bytes);
            at += (span_bytes + APART + 63) / 64 * 64;
        }
    assert_true(at <= MOVED * WORST);
}

static struct sc_store_tag_rows moved_rows(uint64_t row_bytes, uint64_t tag_step)
{
    return (struct sc_store_tag_rows){.base = 99,
                                      .position_first = 7,
                                      .row_bytes = row_bytes,
                                      .count = MOVED,
                                      .tag_step = tag_step};
}

static uint64_t moved_move(const struct sc_store_tag_rung *rung, const struct moved *moved,
                           const uint8_t *rows, uint64_t row_bytes, uint64_t span_bytes)
{
    const struct sc_store_tag_rows what = moved_rows(row_bytes, 2);
    const struct sc_store_tag_spans to = {.at = moved->spans, .bytes = span_bytes, .step = SPANS};
    return rung->move(&what, rows, moved->tags, &to);
}

/* A bad bit anywhere in row `bad`: found, and the rows before it have moved. */
static void expect_bad(const struct sc_store_tag_rung *rung, struct moved *moved, uint8_t *rows,
                       uint64_t row_bytes, uint64_t span_bytes, uint64_t shift, uint64_t bad)
{
    uint64_t at = bad * row_bytes + bad * 37 % row_bytes;
    moved_lay(moved, rows, row_bytes, span_bytes, shift, bad);
    rows[at] ^= 0x10;
    assert_int_equal(moved_move(rung, moved, rows, row_bytes, span_bytes), bad);
    rows[at] ^= 0x10;
    uint64_t end = moved->spans[bad * SPANS] == NULL
                       ? APART
                       : (uint64_t)(moved->spans[bad * SPANS] - moved->area);
    assert_memory_equal(moved->area, moved->want, end);
}

/* Rows out of spans: the bytes and tags of make's, and nothing beside them. */
static void expect_gathered(const struct sc_store_tag_rung *rung, struct moved *moved,
                            const uint8_t *rows, uint64_t row_bytes, uint64_t span_bytes,
                            uint64_t shift)
{
    uint64_t tags[MOVED];
    moved_lay(moved, rows, row_bytes, span_bytes, shift, MOVED);
    for (uint64_t i = 0; i < MOVED; i++)
        for (uint64_t j = 0; j < row_bytes / span_bytes; j++)
            moved->spans[i * SPANS + j] =
                (uint8_t *)(uintptr_t)rows + i * row_bytes + j * span_bytes;
    memset(moved->area, UNMOVED, MOVED * WORST);
    const struct sc_store_tag_rows what = moved_rows(row_bytes, 1);
    const struct sc_store_tag_spans from = {.at = moved->spans, .bytes = span_bytes, .step = SPANS};
    rung->gather(&what, &from, moved->area + APART + shift, tags);
    for (uint64_t i = 0; i < MOVED; i++)
        assert_int_equal(tags[i], moved->tags[2 * i]);
    memset(moved->want, UNMOVED, MOVED * WORST);
    memcpy(moved->want + APART + shift, rows, MOVED * row_bytes);
    assert_memory_equal(moved->area, moved->want, MOVED * WORST);
}

/* What they put is what a copy puts, and nothing beside it; what a move finds is what verify finds.
 * Lines and what is none, borders of XXH3's stripes and blocks inside spans and between them. */
static void tag_moves_and_gathers_as_copies_would(void **state)
{
    (void)state;
    static const struct {
        uint64_t row_bytes, span_bytes;
    } shapes[] = {{64, 64},    {128, 32},    {240, 120},    {241, 241},    {256, 128},
                  {320, 64},   {320, 160},   {768, 384},    {960, 480},    {1024, 1024},
                  {1024, 128}, {1088, 1088}, {1088, 136},   {2048, 1024},  {2112, 704},
                  {4096, 512}, {5000, 1000}, {16384, 8192}, {16384, 2048}, {2, 1},
                  {30, 5},     {514, 257},   {1026, 513},   {4095, 585}};
    static const uint64_t shifts[] = {0, 1, 8, 15, 16, 23, 31, 32, 48, 55, 63};
    static uint8_t rows[MOVED * 16384 + 64];
    struct moved moved = {.area = aligned_alloc(64, MOVED * WORST),
                          .want = aligned_alloc(64, MOVED * WORST)};
    assert_true(moved.area != NULL && moved.want != NULL);
    rows_fill(rows, sizeof(rows));
    for (uint32_t r = 0; sc_store_tag_rung_at(r) != NULL; r++)
        for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            for (uint32_t s = 0; s < sizeof(shifts) / sizeof(shifts[0]); s++) {
                uint64_t shift = shifts[s];
                const struct sc_store_tag_rung *rung = sc_store_tag_rung_at(r);
                uint64_t row_bytes = shapes[i].row_bytes, span_bytes = shapes[i].span_bytes;
                uint8_t *from = rows + shift / 2; /* rows need not begin at a line */
                const struct sc_store_tag_rows what = moved_rows(row_bytes, 2);
                sc_store_tag_make(&what, from, moved.tags);
                moved_lay(&moved, from, row_bytes, span_bytes, shift, MOVED);
                assert_int_equal(moved_move(rung, &moved, from, row_bytes, span_bytes), MOVED);
                assert_memory_equal(moved.area, moved.want, MOVED * WORST);
                expect_gathered(rung, &moved, from, row_bytes, span_bytes, shift);
                for (uint64_t bad = 0; bad < MOVED; bad++)
                    expect_bad(rung, &moved, from, row_bytes, span_bytes, shift, bad);
            }
    free(moved.area);
    free(moved.want);
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
        cmocka_unit_test(tag_moves_and_gathers_as_copies_would),
        cmocka_unit_test(checksum_vectors_are_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
