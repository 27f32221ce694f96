/* Codes of free widths: the reference against the formulas in double, every rung against the
 * reference bit by bit, slabs that have no codes, turned keys; scores against values in double. */
#include "base/nt_copy.h"
#include "tests/unit/kernels/slab.h"

static double value_of(const struct slab *slab, uint64_t row, uint64_t channel)
{
    float value;
    sc_kernels_ref_widen(&value, slab->bytes[row] + channel * sc_kernels_dtype_bytes(slab->dtype),
                         1, slab->dtype);
    return (double)value;
}

/* The value turned back, in double. */
static double back_of(const struct slab *slab, uint64_t row, uint64_t channel)
{
    uint64_t c = channel % slab->size, pair;
    float sign;
    if (slab->encode.rotary == NULL || c >= slab->rotary.turned)
        return value_of(slab, row, channel);
    uint64_t other = sc_kernels_rotary_partner(&slab->rotary, c, &pair, &sign);
    const float *row_rope = slab->rope + row * slab->rotary.turned;
    return value_of(slab, row, channel) * (double)row_rope[pair] -
           (double)sign * value_of(slab, row, channel - c + other) *
               (double)row_rope[slab->rotary.turned / 2 + pair];
}

/* How far a decoded value may lie from its row's: half a step of its width, of one and two bits
 * from the border of its range to where the outermost value stands; and of a pair both. */
static double most_off(const struct slab *slab, uint64_t channel)
{
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (uint64_t i = 0; i < slab->rows; i++) {
        least = fmin(least, back_of(slab, i, channel));
        most = fmax(most, back_of(slab, i, channel));
    }
    double size = fmax(fabs(least), fabs(most)), span = most - least;
    static const double reach[] = {128, 64, 42, 16, 8, 4, 2, 1, .5}; /* of 256 */
    return span * reach[slab->to[channel]] / 256 + (size + span) * 0x1p-10 + 0x1p-22;
}

static void decoded_check(const struct slab *slab, const struct made *made)
{
    static float out[ROWS][CHANNELS];
    uint8_t *dst[ROWS];
    for (uint64_t i = 0; i < slab->rows; i++)
        dst[i] = (uint8_t *)out[i];
    slab_decode(slab, made, SC_KERNELS_REF, dst, SC_KERNELS_F32);
    for (uint64_t channel = 0; channel < HEADS * slab->size; channel++) {
        uint64_t c = channel % slab->size, pair;
        float sign;
        double bound = most_off(slab, channel);
        if (slab->encode.rotary != NULL && c < slab->rotary.turned)
            bound += most_off(slab, channel - c +
                                        sc_kernels_rotary_partner(&slab->rotary, c, &pair, &sign));
        for (uint64_t i = 0; i < slab->rows; i++)
            if (!(fabs((double)out[i][channel] - value_of(slab, i, channel)) <= bound))
                fail_msg("size %u, row %u, channel %u of %u bits: %g became %g, bound %g",
                         (unsigned)slab->size, (unsigned)i, (unsigned)channel, slab->to[channel],
                         value_of(slab, i, channel), (double)out[i][channel], bound);
    }
}

static void a_decoded_value_is_as_near_as_its_width_allows(void **state)
{
    (void)state;
    static struct made made;
    for (uint32_t n = 0; n < 3 * COUNT(SIZES); n++) {
        uint64_t size = SIZES[n % COUNT(SIZES)];
        struct shape shape = {size, 1 + n * 29 % 90, n % 3, 0, 8, 0, n / 9 % 2};
        shape.turned = n % 4 == 0 ? 0 : (uint32_t)(n % 4 == 1 ? size / 2 : size);
        struct slab *slab = slab_make(n, shape);
        assert_true(slab_encode(slab, SC_KERNELS_REF, &made));
        decoded_check(slab, &made);
        free(slab);
    }
}

static void every_rung_writes_the_same_codes(void **state)
{
    (void)state;
    static struct made mine, theirs;
    for (uint32_t n = 0; n < SHAPES; n++) {
        struct slab *slab = slab_make(n, shape_of(n));
        assert_true(slab_encode(slab, SC_KERNELS_REF, &mine));
        for (uint32_t level = 1; level <= sc_kernels_level_best(); level++) {
            assert_true(slab_encode(slab, level, &theirs));
            assert_memory_equal(mine.scales, theirs.scales, sizeof(mine.scales));
            assert_memory_equal(mine.codes, theirs.codes, sizeof(mine.codes));
        }
        uint64_t end = slab->rows * slab->planes.row_bytes; /* what is not theirs is untouched */
        for (uint64_t i = 0; i < 64; i++) {
            assert_int_equal(mine.codes[i], GUARD);
            assert_int_equal(mine.codes[64 + end + i], GUARD);
            assert_int_equal(
                mine.scales[64 + sc_kernels_bitplanes_scale_bytes(&slab->planes) + i % 64], GUARD);
        }
        free(slab);
    }
}

static void bad_put(struct slab *slab, uint64_t row, uint64_t channel, float value)
{
    sc_kernels_dtypes[slab->dtype].narrow(
        slab->bytes[row] + channel * sc_kernels_dtype_bytes(slab->dtype), &value, 1);
}

/* Not finite; beyond f16; a span beyond it; of turned keys 2^15 and more. */
static void a_slab_that_cannot_be_quantised_has_no_codes(void **state)
{
    (void)state;
    static struct made made;
    for (uint32_t n = 0; n < 3 * 2 * 6 * 2; n++)
        for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
            uint32_t bad = n / 6 % 6, turned = n / 3 % 2 ? 64 : 0;
            struct shape shape = {n / 36 ? 80 : 128, 70, n % 3, 0, 8, turned, n % 2};
            uint64_t row = (n * 17 + level) % 70, channel = (n * 61 + level) % (2 * shape.size);
            struct slab *slab = slab_make(n, shape);
            const float values[] = {NAN, INFINITY, -INFINITY, 60000, 32768, 70000};
            const float others[] = {0, 0, 0, -60000, 0, 70000};
            bool has_quant = bad == 4 && (turned == 0 || channel % shape.size >= turned);
            if (bad == 5 && shape.dtype == SC_KERNELS_F16) { /* has no such number */
                free(slab);
                continue;
            }
            for (uint64_t i = 0; i < 70;
                 i++) /* a pair of 0 else: what is turned back is as large */
                for (uint64_t c = 0; bad >= 3 && c < 2 * shape.size; c++)
                    bad_put(slab, i, c, c == channel ? others[bad] : 0);
            if (bad == 4 && turned > 0) /* not turned at all: the largest there is */
                for (uint64_t i = 0; i < turned; i++)
                    slab->rope[row * turned + i] = i < turned / 2 ? 1 : 0;
            bad_put(slab, row, channel, values[bad]);
            assert_int_equal(slab_encode(slab, level, &made), has_quant);
            for (uint64_t i = 0; !has_quant && i < sc_kernels_bitplanes_scale_bytes(&slab->planes);
                 i++)
                assert_int_equal(made.scales[64 + i], 0);
            for (uint64_t i = 0; !has_quant && i < 70 * slab->planes.row_bytes; i++)
                assert_int_equal(made.codes[64 + i], 0);
            free(slab);
        }
}

struct target {
    uint64_t head_first, head_count;
    uint32_t dtype, level;
    bool streams;
};

/* Codes lie at the end of their memory but for what may be read. streams: rows at lines' borders */
static void decode_compare(const struct slab *slab, const struct made *made,
                           const struct target *how)
{
    enum { STRIDE = CHANNELS * 4 + 64 };
    static _Alignas(64) uint8_t bytes[2][ROWS][STRIDE];
    uint8_t *dst[ROWS];
    uint64_t codes_bytes = slab->rows * slab->planes.row_bytes;
    uint8_t *codes = malloc(codes_bytes + SC_KERNELS_BITPLANES_AHEAD);
    assert_non_null(codes);
    memcpy(codes, made->codes + 64, codes_bytes + SC_KERNELS_BITPLANES_AHEAD);
    memset(bytes, GUARD, sizeof(bytes));
    for (uint32_t which = 0; which < 2; which++) {
        for (uint64_t i = 0; i < slab->rows; i++) {
            uint64_t offset = how->streams ? 0 : i % 3 * 4;
            dst[i] = i % 5 == 3 ? NULL : bytes[which][i] + offset;
        }
        sc_kernels_get(which == 0 ? SC_KERNELS_REF : how->level)
            ->bitplanes_decode(&(struct sc_kernels_bitplanes_decode){.planes = &slab->planes,
                                                                     .scales = made->scales + 64,
                                                                     .codes = codes,
                                                                     .row_count = slab->rows,
                                                                     .head_first = how->head_first,
                                                                     .head_count = how->head_count,
                                                                     .dst = dst,
                                                                     .dst_dtype = how->dtype,
                                                                     .rotary = slab->encode.rotary,
                                                                     .rope = slab->rope,
                                                                     .streams = how->streams});
        sc_nt_copy_end();
    }
    for (uint64_t i = 0; i < slab->rows; i++)
        if (memcmp(bytes[0][i], bytes[1][i], STRIDE) != 0)
            fail_msg("level %u: size %u, %u rows, row %u, turned %u %u, dtype %u", how->level,
                     (unsigned)slab->size, (unsigned)slab->rows, (unsigned)i, slab->rotary.turned,
                     slab->rotary.pairs, how->dtype);
    free(codes);
}

static void every_rung_decodes_the_same_values(void **state)
{
    (void)state;
    static struct made made;
    for (uint32_t n = 0; n < SHAPES; n++) {
        struct slab *slab = slab_make(n, shape_of(n));
        assert_true(slab_encode(slab, SC_KERNELS_REF, &made));
        for (uint32_t level = 1; level <= sc_kernels_level_best(); level++)
            for (uint32_t k = 0; k < 3; k++) {
                struct target how = {k == 1, k == 0 ? 2 : 1, slab->dtype, level, k == 0};
                how.dtype = k == 2 ? (uint32_t)SC_KERNELS_F32 : slab->dtype;
                decode_compare(slab, &made, &how);
            }
        free(slab);
    }
}

/* To the byte: 16 channels, of which 8 have a bit and 8 have three. */
static void a_slab_of_known_bytes_has_known_codes(void **state)
{
    (void)state;
    float values[3][16];
    const uint8_t *rows[3];
    uint8_t to[16], scales[64], codes[3 * 4 + 8];
    struct sc_kernels_bitplanes_group group;
    struct sc_kernels_bitplanes planes;
    for (uint32_t i = 0; i < 3; i++) {
        rows[i] = (const uint8_t *)values[i];
        for (uint32_t c = 0; c < 16; c++) { /* codes 0, 9 * 16 = 0x90 and 255 */
            values[i][c] = i == 0 ? -1.0f : i == 1 ? -1.0f + 9.5f / 16 * 4 : 3.0f;
            to[c] = c % 2 ? 3 : 1;
        }
        values[i][5] = 0.5f;
    }
    assert_true(sc_kernels_bitplanes_init(&planes, 1, 16, to, &group));
    assert_int_equal(planes.row_bytes, 4);
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
        struct sc_kernels_bitplanes_encode what = {&planes, rows, 3,      SC_KERNELS_F32,
                                                   NULL,    NULL, scales, codes};
        static const uint8_t CODES[3][4] = {{0, 0, 0, 0}, /* channel 5 is constant: code 0 */
                                            {0xdf, 0xff, 0x00, 0x00}, /* .100 1.. of all */
                                            {0xdf, 0xff, 0xfb, 0xfb}};
        assert_true(sc_kernels_get(level)->bitplanes_encode(&what));
        assert_memory_equal(codes, CODES, sizeof(CODES));
        assert_memory_equal(scales, "\x00\xbc\x00\xbc", 4);      /* -1 */
        assert_memory_equal(scales + 32, "\x00\x44\x00\x44", 4); /* 4 */
        assert_memory_equal(scales + 2 * 5, "\x00\x38", 2);      /* .5 */
        assert_memory_equal(scales + 32 + 2 * 5, "\x00\x00", 2);
    }
}

static void a_table_of_parts_of_bytes_is_refused(void **state)
{
    (void)state;
    uint8_t to[80] = {0};
    struct sc_kernels_bitplanes_group groups[2];
    struct sc_kernels_bitplanes planes;
    assert_true(sc_kernels_bitplanes_init(&planes, 1, 80, to, groups));
    assert_int_equal(planes.row_bytes, 0);
    memset(to, 3, 7);
    assert_false(sc_kernels_bitplanes_init(&planes, 1, 80, to, groups));
    to[64] = 3; /* eight of a head, but not of a group */
    assert_false(sc_kernels_bitplanes_init(&planes, 1, 80, to, groups));
    to[64] = 0;
    to[63] = 4;
    assert_false(sc_kernels_bitplanes_init(&planes, 1, 80, to, groups));
    to[63] = 3;
    assert_true(sc_kernels_bitplanes_init(&planes, 1, 80, to, groups));
    assert_int_equal(planes.row_bytes, 3);
    memset(to, 9, 8); /* more bits than there are */
    assert_false(sc_kernels_bitplanes_init(&planes, 1, 8, to, groups));
    assert_false(sc_kernels_bitplanes_init(&planes, 1, 0, to, groups));
    assert_false(sc_kernels_bitplanes_init(&planes, 1, SC_KERNELS_BITPLANES_HEAD + 1, to, groups));
}

/* Scores between others that stay; of each head alone. */
static void scores_compare(const struct slab *slab, const struct made *made, uint64_t queries,
                           uint64_t head, uint32_t level, const float *tiles)
{
    enum { QUERIES = 9, STRIDE = ROWS + 2, PADDED = SIZE_MOST + 16 };
    static float values[ROWS][CHANNELS], wanted[QUERIES][PADDED], scores[QUERIES + 1][STRIDE];
    static const uint8_t GUARDS[4] = {GUARD, GUARD, GUARD, GUARD};
    uint64_t seed = slab->size + slab->rows;
    uint8_t *dst[ROWS];
    double largest = 0;
    for (uint64_t i = 0; i < slab->rows; i++)
        dst[i] = (uint8_t *)values[i];
    slab_decode(slab, made, SC_KERNELS_REF, dst, SC_KERNELS_F32);
    memset(wanted, 0, sizeof(wanted));
    for (uint64_t v = 0; v < queries; v++)
        for (uint64_t t = 0; t < slab->size; t++)
            wanted[v][t] = (float)draw(&seed) / (1u << 30) - 1.0f;
    memset(scores, GUARD, sizeof(scores));
    sc_kernels_get(level)->bitplanes_score(
        &(struct sc_kernels_bitplanes_score){.planes = &slab->planes,
                                             .scales = made->scales + 64,
                                             .codes = made->codes + 64,
                                             .row_count = slab->rows,
                                             .head = head,
                                             .queries = wanted[0],
                                             .head_padded = PADDED,
                                             .query_count = queries,
                                             .rotary = slab->encode.rotary,
                                             .rope = slab->rope,
                                             .scores = scores[0] + 1,
                                             .score_stride = STRIDE,
                                             .ahead = made->codes + 64,
                                             .rope_tiles = tiles});
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint64_t v = 0; v <= QUERIES; v++)
            for (uint64_t i = 0; i < STRIDE; i++) {
                bool is_score = v < queries && i >= 1 && i <= slab->rows;
                double sum = 0, sizes = 0;
                for (uint64_t t = 0; is_score && t < slab->size; t++) {
                    double product =
                        (double)wanted[v][t] * (double)values[i - 1][head * slab->size + t];
                    sum += product;
                    sizes += fabs(product);
                }
                largest = sizes > largest ? sizes : largest;
                if (is_score && pass && !(fabs((double)scores[v][i] - sum) <= largest * 1e-6))
                    fail_msg("level %u, size %u, query %u, key %u: %.9g is %.9g", level,
                             (unsigned)slab->size, (unsigned)v, (unsigned)(i - 1),
                             (double)scores[v][i], sum);
                if (!is_score)
                    assert_memory_equal(&scores[v][i], GUARDS, 4);
            }
}

static void every_rung_scores_codes_as_their_values(void **state)
{
    (void)state;
    static struct made made;
    static float tiles[3 * SC_KERNELS_BITPLANES_TILE * SIZE_MOST];
    for (uint32_t n = 0; n < SHAPES; n++) {
        struct shape shape = shape_of(n);
        shape.rows = 1 + (shape.rows + n) % 80;
        struct slab *slab = slab_make(n, shape);
        assert_true(slab_encode(slab, SC_KERNELS_REF, &made));
        sc_kernels_bitplanes_rope_tiles(slab->rope, shape.rows, shape.turned, tiles);
        for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
            scores_compare(slab, &made, 1 + n % 9, n / 2 % HEADS, level, NULL);
            scores_compare(slab, &made, 1 + n % 9, n / 2 % HEADS, level, tiles);
        }
        free(slab);
    }
}

/* AVX2 has a way of its own for these. Heads of 2 bytes to 256, so of any rest of 16. */
static void one_query_of_many_keys_is_scored_by_their_values(void **state)
{
    (void)state;
    static const uint64_t COUNTS[] = {47, 48, 49, 63, 128, ROWS};
    static struct made made;
    for (uint32_t n = 0; n < SHAPES; n++) {
        struct shape shape = shape_of(n);
        shape.rows = COUNTS[n * 5 / 3 % COUNT(COUNTS)];
        shape.turned = 0;
        struct slab *slab = slab_make(n, shape);
        assert_true(slab_encode(slab, SC_KERNELS_REF, &made));
        for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
            for (uint64_t head = 0; head < HEADS; head++)
                scores_compare(slab, &made, 1, head, level, NULL);
        free(slab);
    }
}

static void turn_tiles_are_the_turns_of_32_rows_side_by_side(void **state)
{
    (void)state;
    enum { TURNED = 6, TILE = SC_KERNELS_BITPLANES_TILE, MOST = 3 * TILE };
    static const uint64_t COUNTS[] = {0, 1, 31, 32, 33, 96};
    static float rope[MOST * TURNED], tiles[MOST * TURNED + 1];
    for (uint32_t i = 0; i < MOST * TURNED; i++)
        rope[i] = 1.0f + (float)i;
    for (uint32_t n = 0; n < COUNT(COUNTS); n++) {
        uint64_t count = COUNTS[n], floats = sc_kernels_bitplanes_tile_floats(count, TURNED);
        assert_int_equal(floats, (count + TILE - 1) / TILE * TILE * TURNED);
        memset(tiles, GUARD, sizeof(tiles));
        sc_kernels_bitplanes_rope_tiles(rope, count, TURNED, tiles);
        for (uint64_t i = 0; i < floats; i++) {
            uint64_t row = i / (TURNED * TILE) * TILE + i % TILE, pair = i / TILE % TURNED;
            float expected = row < count ? rope[row * TURNED + pair] : 0;
            assert_memory_equal(&tiles[i], &expected, sizeof(expected));
        }
        static const uint8_t GUARDS[4] = {GUARD, GUARD, GUARD, GUARD};
        assert_memory_equal(&tiles[floats], GUARDS, sizeof(GUARDS));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decoded_value_is_as_near_as_its_width_allows),
        cmocka_unit_test(every_rung_writes_the_same_codes),
        cmocka_unit_test(a_slab_that_cannot_be_quantised_has_no_codes),
        cmocka_unit_test(every_rung_decodes_the_same_values),
        cmocka_unit_test(a_slab_of_known_bytes_has_known_codes),
        cmocka_unit_test(a_table_of_parts_of_bytes_is_refused),
        cmocka_unit_test(turn_tiles_are_the_turns_of_32_rows_side_by_side),
        cmocka_unit_test(every_rung_scores_codes_as_their_values),
        cmocka_unit_test(one_query_of_many_keys_is_scored_by_their_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
