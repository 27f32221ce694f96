/* Column sums against a float64 reference over a grid of shapes, types, layouts and masks, on every
 * rung this machine has; guard bytes around what is written; exp2 against libm's. */
#include "kernels/bitplanes.h"
#include "kernels/exp2.h"
#include "kernels/importance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GUARD     64u
#define POISON    0xa5
#define TOLERANCE 1e-5 /* of the largest sum: the contract's */

enum layout { ROWS, HEADS_APART, BLOCKS, SLOTS, LAYOUTS };

struct shape {
    uint64_t kv_heads, group, head_size, rows, prefix, fresh;
    uint32_t query_dtype, key_dtype;
    enum layout layout;
    bool last_row;
    float spread; /* of scores: how sharp the softmax is */
};

struct keys {
    struct sc_kernels_keys view;
    uint8_t *bytes;
    int64_t *slots;
};

static uint64_t g_random;

static uint64_t next_random(void)
{
    g_random = g_random * 6364136223846793005u + 1442695040888963407u;
    return g_random >> 33;
}

static float next_float(void)
{
    return (float)((double)next_random() / (double)(1u << 30) - 1.0);
}

/* Writes an element of the type (f16: by hand, from values that it holds exactly). */
static void element_put(uint8_t *at, uint32_t dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == SC_KERNELS_F32) {
        memcpy(at, &value, sizeof(value));
        return;
    }
    if (dtype == SC_KERNELS_F16) {
        uint32_t exponent = bits >> 23 & 0xff;
        half = exponent < 113 || exponent > 142
                   ? 0
                   : (uint16_t)((bits >> 16 & 0x8000u) | (exponent - 112) << 10 |
                                (bits >> 13 & 0x3ffu));
    }
    memcpy(at, &half, sizeof(half));
}

static double element_get(const uint8_t *at, uint32_t dtype)
{
    float value;
    sc_kernels_ref_widen(&value, at, 1, dtype);
    return (double)value;
}

static uint8_t *key_at(const struct sc_kernels_keys *keys, uint64_t head, uint64_t j)
{
    const struct sc_kernels_memory *m = &keys->memory;
    uint64_t slot = m->slots != NULL ? (uint64_t)m->slots[j] : j;
    uint64_t blocks = m->block_tokens != 0 ? slot / m->block_tokens : 0;
    uint64_t in = m->block_tokens != 0 ? slot % m->block_tokens : slot;
    return m->k_base + blocks * m->block_stride_bytes + in * m->token_stride_bytes +
           head * m->head_stride_bytes;
}

static struct keys keys_make(const struct shape *shape, uint64_t count)
{
    uint64_t head_bytes = shape->head_size * sc_kernels_dtype_bytes(shape->key_dtype);
    uint64_t row_bytes = shape->kv_heads * head_bytes, places = 2 * count + 16;
    struct keys keys = {.view = {.count = count, .dtype = shape->key_dtype}};
    keys.bytes = calloc(places, row_bytes + 4 * 16);
    keys.slots = calloc(places, sizeof(*keys.slots));
    assert_true(keys.bytes != NULL && keys.slots != NULL);
    struct sc_kernels_memory *m = &keys.view.memory;
    m->k_base = keys.bytes;
    m->token_stride_bytes = row_bytes;
    m->head_stride_bytes = head_bytes;
    if (shape->layout == HEADS_APART) {
        m->token_stride_bytes = head_bytes;
        m->head_stride_bytes = (count + 3) * head_bytes;
    } else if (shape->layout == BLOCKS || shape->layout == SLOTS) {
        m->block_tokens = 8;
        m->block_stride_bytes = 8 * row_bytes + 32;
    }
    for (uint64_t j = 0; j < count; j++)
        keys.slots[j] = (int64_t)(2 * (count - 1 - j) + 1);
    m->slots = shape->layout == SLOTS ? keys.slots : NULL;
    for (uint64_t j = 0; j < count; j++)
        for (uint64_t i = 0; i < shape->kv_heads * shape->head_size; i++)
            element_put(key_at(&keys.view, i / shape->head_size, j) +
                            i % shape->head_size * sc_kernels_dtype_bytes(shape->key_dtype),
                        shape->key_dtype, next_float());
    return keys;
}

static void keys_free(struct keys *keys)
{
    free(keys->bytes);
    free(keys->slots);
}

static double score_of(const struct sc_kernels_importance *what, const uint8_t *query,
                       const struct sc_kernels_keys *keys, uint64_t head, uint64_t j)
{
    const uint8_t *key = key_at(keys, head, j);
    double sum = 0;
    for (uint64_t t = 0; t < what->head_size; t++)
        sum += element_get(query + t * sc_kernels_dtype_bytes(what->queries.dtype),
                           what->queries.dtype) *
               element_get(key + t * sc_kernels_dtype_bytes(keys->dtype), keys->dtype);
    return sum * (double)what->scale;
}

/* What kernels/importance.h says of imp, word for word, in double. */
static void reference(const struct sc_kernels_importance *what, uint64_t head, double *ret_sums)
{
    uint64_t prefix = what->prefix.count, all = prefix + what->fresh.count;
    uint64_t rows = what->queries.row_count;
    double *scores = calloc(all + 1, sizeof(*scores));
    assert_non_null(scores);
    for (uint64_t j = 0; j < prefix; j++)
        ret_sums[j] = 0;
    for (uint64_t i = what->last_row ? rows - 1 : 0; i < rows; i++)
        for (uint64_t g = head * what->group; g < (head + 1) * what->group; g++) {
            const uint8_t *query = what->queries.data + i * what->queries.row_stride_bytes +
                                   g * what->queries.head_stride_bytes;
            uint64_t seen =
                what->fresh.count == 0 ? prefix : prefix + what->fresh.count - rows + i + 1;
            double best = -INFINITY, sum = 0;
            for (uint64_t j = 0; j < seen; j++) {
                scores[j] = j < prefix ? score_of(what, query, &what->prefix, head, j)
                                       : score_of(what, query, &what->fresh, head, j - prefix);
                best = scores[j] > best ? scores[j] : best;
            }
            for (uint64_t j = 0; j < seen; j++)
                sum += scores[j] = exp(scores[j] - best);
            for (uint64_t j = 0; j < prefix; j++)
                ret_sums[j] += scores[j] / sum;
        }
    free(scores);
}

/* Runs a head on a level, with guards around scratch and sums; the caller frees the sums. */
static float *run(const struct sc_kernels_importance *what, uint64_t head)
{
    uint64_t scratch_bytes =
        sc_kernels_importance_scratch_bytes(what->head_size, what->prefix.count, what->fresh.count);
    uint64_t sum_bytes = what->prefix.count * sizeof(float);
    uint8_t *scratch = aligned_alloc(64, scratch_bytes + 2 * GUARD);
    uint8_t *sums = malloc(sum_bytes + 2 * GUARD);
    assert_true(scratch != NULL && sums != NULL && scratch_bytes % 64 == 0);
    memset(scratch, POISON, scratch_bytes + 2 * GUARD);
    memset(sums, POISON, sum_bytes + 2 * GUARD);
    sc_kernels_importance(what, head, scratch + GUARD, (float *)(void *)(sums + GUARD));
    for (uint64_t i = 0; i < GUARD; i++) {
        assert_int_equal(scratch[i], POISON);
        assert_int_equal(scratch[GUARD + scratch_bytes + i], POISON);
        assert_int_equal(sums[i], POISON);
        assert_int_equal(sums[GUARD + sum_bytes + i], POISON);
    }
    free(scratch);
    memmove(sums, sums + GUARD, sum_bytes);
    return (float *)(void *)sums;
}

static void compare(struct sc_kernels_importance *what, uint64_t head)
{
    uint64_t count = what->prefix.count;
    double *expected = calloc(count + 1, sizeof(*expected)), most = 0;
    assert_non_null(expected);
    reference(what, head, expected);
    for (uint64_t j = 0; j < count; j++)
        most = expected[j] > most ? expected[j] : most;
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
        what->kernels = sc_kernels_get((enum sc_kernels_level)level);
        float *sums = run(what, head), *again = run(what, head);
        assert_memory_equal(sums, again, count * sizeof(float));
        for (uint64_t j = 0; j < count; j++)
            if (!(fabs((double)sums[j] - expected[j]) <= TOLERANCE * most))
                fail_msg("level %u head %d column %d: found %.9g, expected %.9g (largest %.9g)",
                         level, (int)head, (int)j, (double)sums[j], expected[j], most);
        free(sums);
        free(again);
    }
    free(expected);
}

/* All heads in one call: bit by bit what each has alone. */
static void compare_together(struct sc_kernels_importance *what, uint64_t heads)
{
    uint64_t count = what->prefix.count;
    uint64_t scratch_bytes =
        sc_kernels_importance_scratch_bytes(what->head_size, count, what->fresh.count);
    uint8_t *scratch = aligned_alloc(64, scratch_bytes + 2 * GUARD);
    float *sums = malloc((heads * count + 1) * sizeof(*sums));
    assert_true(scratch != NULL && sums != NULL);
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
        what->kernels = sc_kernels_get((enum sc_kernels_level)level);
        memset(scratch, POISON, scratch_bytes + 2 * GUARD);
        memset(sums, POISON, (heads * count + 1) * sizeof(*sums));
        float poison = sums[heads * count];
        sc_kernels_importance_heads(what, 0, heads, scratch + GUARD, sums);
        assert_memory_equal(&sums[heads * count], &poison, sizeof(poison));
        for (uint64_t i = 0; i < GUARD; i++) {
            assert_int_equal(scratch[i], POISON);
            assert_int_equal(scratch[GUARD + scratch_bytes + i], POISON);
        }
        for (uint64_t head = 0; head < heads; head++) {
            float *alone = run(what, head);
            assert_memory_equal(alone, sums + head * count, count * sizeof(*sums));
            free(alone);
        }
    }
    free(scratch);
    free(sums);
}

static void check(const struct shape *shape)
{
    uint64_t element = sc_kernels_dtype_bytes(shape->query_dtype),
             heads = shape->kv_heads * shape->group;
    uint64_t row_bytes = heads * shape->head_size * element + 8;
    uint8_t *queries = calloc(shape->rows + 1, row_bytes);
    assert_non_null(queries);
    for (uint64_t i = 0; i < shape->rows; i++)
        for (uint64_t t = 0; t < heads * shape->head_size; t++)
            element_put(queries + i * row_bytes + t * element, shape->query_dtype,
                        next_float() * shape->spread);
    struct keys prefix = keys_make(shape, shape->prefix), fresh = keys_make(shape, shape->fresh);
    struct sc_kernels_importance what = {
        .head_size = shape->head_size,
        .group = shape->group,
        .scale = 1 / sqrtf((float)shape->head_size),
        .queries = {.data = queries,
                    .row_stride_bytes = row_bytes,
                    .head_stride_bytes = shape->head_size * element,
                    .row_count = shape->rows,
                    .dtype = shape->query_dtype},
        .prefix = prefix.view,
        .fresh = fresh.view,
        .last_row = shape->last_row};
    for (uint64_t head = 0; head < shape->kv_heads; head++)
        compare(&what, head);
    compare_together(&what, shape->kv_heads);
    keys_free(&prefix);
    keys_free(&fresh);
    free(queries);
}

static void sums_equal_a_float64_reference_over_a_grid_of_shapes(void **state)
{
    (void)state;
    static const uint64_t HEAD_SIZES[] = {32, 64, 80, 128, 5}, GROUPS[] = {1, 3, 7};
    static const uint64_t PREFIXES[] = {0, 1, 31, 48, 97, 200}, ROWS_OF[] = {1, 2, 7, 24, 33};
    uint64_t round = 0;
    for (uint32_t h = 0; h < 5; h++)
        for (uint32_t g = 0; g < 3; g++)
            for (uint32_t p = 0; p < 6; p++)
                for (uint32_t r = 0; r < 5; r++, round++) {
                    uint64_t fresh = round % 3 == 0 ? 0 : ROWS_OF[r] + (round % 3 - 1) * 50;
                    check(&(struct shape){.kv_heads = 1 + round % 2,
                                          .group = GROUPS[g],
                                          .head_size = HEAD_SIZES[h],
                                          .rows = ROWS_OF[r],
                                          .prefix = PREFIXES[p],
                                          .fresh = fresh,
                                          .query_dtype = (uint32_t)(round / 3 % 3),
                                          .key_dtype = (uint32_t)(round % 3),
                                          .layout = (enum layout)(round / 2 % LAYOUTS),
                                          .last_row = round % 5 == 4,
                                          .spread = round % 7 == 0 ? 30 : 2});
                }
}

static void sums_of_many_rows_over_a_long_prefix_stay_within_the_contract(void **state)
{
    (void)state;
    check(&(struct shape){.kv_heads = 1,
                          .group = 3,
                          .head_size = 64,
                          .rows = 300,
                          .prefix = 1021,
                          .fresh = 300,
                          .query_dtype = SC_KERNELS_F16,
                          .key_dtype = SC_KERNELS_F16,
                          .layout = ROWS,
                          .spread = 4});
    for (uint64_t prefix = 16384; prefix <= 16385; prefix++) /* blocks go in pairs, and alone */
        check(&(struct shape){.kv_heads = 1,
                              .group = 1,
                              .head_size = 5,
                              .rows = 100,
                              .prefix = prefix,
                              .fresh = 101,
                              .layout = ROWS,
                              .spread = 2});
    check(&(struct shape){.kv_heads = 1,
                          .group = 1,
                          .head_size = 64,
                          .rows = 1,
                          .prefix = 9001,
                          .fresh = 1,
                          .query_dtype = SC_KERNELS_F32,
                          .key_dtype = SC_KERNELS_BF16,
                          .layout = SLOTS,
                          .spread = 4});
}

/* More heads than a scratch holds at once; rows that are short, and that are not. */
static void heads_together_are_each_head_alone(void **state)
{
    (void)state;
    for (uint64_t group = 1; group <= 7; group++)
        check(&(struct shape){.kv_heads = group == 2 ? 3 : 40,
                              .group = group,
                              .head_size = group % 2 ? 16 : 24,
                              .rows = 1,
                              .prefix = 50 + group,
                              .fresh = group % 3 * 300,
                              .query_dtype = SC_KERNELS_F32,
                              .key_dtype = (uint32_t)(group % 3),
                              .layout = (enum layout)(group % LAYOUTS),
                              .spread = 2});
}

/* A query a head, of rows without gaps: all heads of a key come before the next key. */
static void heads_of_rows_without_gaps_are_each_head_alone(void **state)
{
    (void)state;
    static const uint64_t HEAD_SIZES[] = {5, 16, 24, 80, 128}, HEADS[] = {1, 3, 8, 11};
    for (uint32_t i = 0; i < 3 * 5 * 4; i++)
        check(&(struct shape){.kv_heads = HEADS[i / 15],
                              .group = 1,
                              .head_size = HEAD_SIZES[i / 3 % 5],
                              .rows = 1,
                              .prefix = 33 + i,
                              .fresh = i % 2,
                              .query_dtype = SC_KERNELS_F32,
                              .key_dtype = i % 3,
                              .layout = i % 7 == 0 ? BLOCKS : ROWS,
                              .spread = 2});
}

/* Codes of a prefix, slab by slab, and the float32 rows that ref/ decodes them to. */
struct quantised {
    uint8_t *scales, *codes;
    float *values;
    struct sc_kernels_slab slabs[8];
    struct planes_of {
        struct sc_kernels_bitplanes planes;
        struct sc_kernels_bitplanes_group groups[3 * SC_KERNELS_BITPLANES_HEAD / 64];
        uint8_t to[3 * SC_KERNELS_BITPLANES_HEAD];
        struct sc_kernels_rotary rotary;
    } * tables;   /* [8], of slabs of free widths */
    float *rope;  /* of all keys */
};

/* A slab of free widths; every second one turned. what: rows, and where codes go */
static void planes_make(struct quantised *quantised, uint64_t s,
                        struct sc_kernels_bitplanes_encode what, uint64_t channels,
                        uint8_t *const *dst)
{
    struct planes_of *of = &quantised->tables[s];
    uint64_t size = channels / 3, first = quantised->slabs[s].key_first;
    struct sc_kernels_quantised *made = &quantised->slabs[s].quantised;
    for (uint64_t c = 0; c < channels; c++) /* planes are of whole bytes */
        of->to[c] = (uint8_t)((c / 8 * 5 + s) % 9);
    assert_true(sc_kernels_bitplanes_init(&of->planes, 3, size, of->to, of->groups));
    what.planes = made->planes = &of->planes;
    what.rotary = made->rotary = s % 2 == 0 ? &of->rotary : NULL;
    what.rope = made->rope = s % 2 == 0 ? quantised->rope + first * size : NULL;
    assert_true(sc_kernels_ref_bitplanes_encode(&what));
    sc_kernels_ref_bitplanes_decode(
        &(struct sc_kernels_bitplanes_decode){.planes = what.planes,
                                              .scales = what.scales,
                                              .codes = what.codes,
                                              .row_count = what.row_count,
                                              .head_count = 3,
                                              .dst = dst,
                                              .dst_dtype = SC_KERNELS_F32,
                                              .rotary = what.rotary,
                                              .rope = what.rope});
}

static void turns_make(struct quantised *quantised, uint64_t count, uint64_t size)
{
    double frequencies[SC_KERNELS_BITPLANES_HEAD / 2];
    for (uint64_t s = 0; s < 8; s++)
        quantised->tables[s].rotary = (struct sc_kernels_rotary){count % 2, (uint32_t)size};
    for (uint64_t i = 0; i < size / 2; i++)
        frequencies[i] = pow(1e4, -2.0 * (double)i / (double)size);
    for (uint64_t j = 0; j < count; j++)
        sc_kernels_rope_row(300 + j, frequencies, size, quantised->rope + j * size);
}

/* wide: bit s, slab s is of free widths. */
static struct quantised quantised_make(const struct keys *keys, uint64_t channels, uint32_t wide,
                                       struct sc_kernels_keys *ret_keys)
{
    static const uint64_t ENDS[] = {1, 65, 70, 134, 170, 234, 250};
    static const uint32_t BITS[] = {4, 2, 5, 3, 8, 6, 4};
    uint64_t count = keys->view.count;
    struct quantised quantised = {.scales = malloc(8 * sc_kernels_codec_scale_bytes(channels)),
                                  .codes =
                                      malloc(count * sc_kernels_codec_row_bytes(channels, 8) + 7),
                                  .values = malloc(count * channels * sizeof(float)),
                                  .tables = calloc(8, sizeof(*quantised.tables)),
                                  .rope = malloc(count * channels * sizeof(float))};
    assert_true(quantised.scales != NULL && quantised.codes != NULL && quantised.values != NULL);
    assert_true(quantised.tables != NULL && quantised.rope != NULL);
    if (wide != 0)
        turns_make(&quantised, count, channels / 3);
    uint8_t *codes = quantised.codes;
    *ret_keys = keys->view;
    for (uint64_t first = 0, s = 0; first < count; first = ENDS[s++]) {
        struct sc_kernels_codec code = {channels, BITS[s], keys->view.dtype};
        uint64_t rows = (ENDS[s] < count ? ENDS[s] : count) - first;
        uint8_t *scales = quantised.scales + s * sc_kernels_codec_scale_bytes(channels);
        const uint8_t *src[SC_KERNELS_CODEC_ROWS_MAX];
        uint8_t *dst[SC_KERNELS_CODEC_ROWS_MAX];
        for (uint64_t i = 0; i < rows; i++) {
            src[i] = key_at(&keys->view, 0, first + i);
            dst[i] = (uint8_t *)(quantised.values + (first + i) * channels);
        }
        quantised.slabs[s] =
            (struct sc_kernels_slab){{.scales = scales, .codes = codes, .bits = BITS[s]}, first};
        ret_keys->slab_count = s + 1;
        if ((wide >> s & 1) != 0) {
            planes_make(&quantised, s,
                        (struct sc_kernels_bitplanes_encode){.rows = src,
                                                             .row_count = rows,
                                                             .dtype = code.dtype,
                                                             .scales = scales,
                                                             .codes = codes},
                        channels, dst);
            codes += rows * quantised.tables[s].planes.row_bytes;
            continue;
        }
        assert_true(sc_kernels_ref_codec_encode(&code, src, rows, scales, codes));
        sc_kernels_ref_codec_decode(&(struct sc_kernels_codec_decode){
            &code, scales, codes, rows, 0, channels, dst, SC_KERNELS_F32, false});
        codes += rows * sc_kernels_codec_row_bytes(channels, BITS[s]);
    }
    ret_keys->channels = channels;
    return quantised;
}

/* Sums of codes on every rung: of many queries bit by bit those of the float32 values that they
 * stand for (`decoded`), of a few, whose scales are folded into the query, within the contract. */
static void quantised_compare(struct sc_kernels_importance *what, uint64_t head,
                              const struct sc_kernels_keys *decoded,
                              const struct sc_kernels_keys *quantised)
{
    uint64_t count = quantised->count;
    double *sums = calloc(count, sizeof(*sums)), most = 0;
    assert_non_null(sums);
    what->prefix = *decoded;
    reference(what, head, sums);
    for (uint64_t j = 0; j < count; j++)
        most = sums[j] > most ? sums[j] : most;
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
        what->kernels = sc_kernels_get((enum sc_kernels_level)level);
        what->prefix = *decoded;
        float *expected = run(what, head);
        what->prefix = *quantised;
        float *found = run(what, head), *again = run(what, head);
        assert_memory_equal(found, again, count * sizeof(float));
        if (what->queries.row_count * what->group > 7)
            assert_memory_equal(expected, found, count * sizeof(float));
        for (uint64_t j = 0; j < count; j++)
            if (!(fabs((double)found[j] - sums[j]) <= TOLERANCE * most))
                fail_msg("level %u, %d keys of %d: found %.9g, expected %.9g (largest %.9g)", level,
                         (int)count, (int)what->head_size, (double)found[j], sums[j], most);
        free(expected);
        free(found);
        free(again);
    }
    free(sums);
}

/* slabs: bit s, slab s is of free widths, where the head size allows it. */
static void codes_compare_all(uint32_t slabs)
{
    static const uint64_t SIZES[] = {64, 16, 80, 8, 20, 128, 272};
    static const uint64_t GROUPS[] = {2, 2, 2, 1, 1}, ROW_COUNTS[] = {1, 3, 31, 1, 3};
    for (uint64_t i = 0; i < 7 * 5; i++) {
        struct shape shape = {.kv_heads = 3,
                              .group = GROUPS[i / 7],
                              .head_size = SIZES[i % 7],
                              .rows = ROW_COUNTS[i / 7],
                              .prefix = 1 + i * 17 % 250,
                              .key_dtype = i % 2 ? SC_KERNELS_F16 : SC_KERNELS_BF16};
        struct keys keys = keys_make(&shape, shape.prefix), queries;
        uint64_t channels = shape.kv_heads * shape.head_size;
        struct sc_kernels_keys view;
        bool may = shape.head_size % 8 == 0 && shape.head_size <= SC_KERNELS_BITPLANES_HEAD;
        struct quantised quantised = quantised_make(&keys, channels, may ? slabs : 0, &view);
        struct shape of_queries = {
            .kv_heads = 3 * shape.group, .head_size = shape.head_size, .key_dtype = SC_KERNELS_F32};
        queries = keys_make(&of_queries, shape.rows);
        struct sc_kernels_importance what = {
            .head_size = shape.head_size,
            .group = shape.group,
            .scale = 0.3f,
            .queries = {queries.bytes, 3 * shape.group * shape.head_size * 4, shape.head_size * 4,
                        shape.rows, SC_KERNELS_F32}};
        struct sc_kernels_keys decoded = {
            .memory = {.k_base = (uint8_t *)quantised.values,
                       .token_stride_bytes = channels * sizeof(float),
                       .head_stride_bytes = shape.head_size * sizeof(float)},
            .count = shape.prefix,
            .dtype = SC_KERNELS_F32};
        view.slabs = quantised.slabs;
        for (uint64_t head = 0; head < shape.kv_heads; head++)
            quantised_compare(&what, head, &decoded, &view);
        free(quantised.scales);
        free(quantised.codes);
        free(quantised.values);
        free(quantised.tables);
        free(quantised.rope);
        keys_free(&keys);
        keys_free(&queries);
    }
}

static void codes_are_scored_as_what_they_decode_to(void **state)
{
    (void)state;
    codes_compare_all(0);
}

static void codes_of_bits_per_channel_are_scored_beside_even_ones(void **state)
{
    (void)state;
    codes_compare_all(0xff);
    codes_compare_all(0x55);
    codes_compare_all(0xb6);
}

static void no_rows_give_zeros(void **state)
{
    (void)state;
    check(&(struct shape){.kv_heads = 2,
                          .group = 2,
                          .head_size = 32,
                          .rows = 0,
                          .prefix = 60,
                          .layout = ROWS,
                          .spread = 1});
}

/* A key that is infinite in the wrong way leaves no number; nothing crashes, every rung agrees. */
static void infinite_keys_give_nan_or_nothing_on_every_rung(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (uint64_t rows = 1; rows <= 40; rows += 39)
        for (uint32_t b = 0; b < 3; b++) {
            float keys[100 * 16], queries[40 * 16];
            for (uint32_t i = 0; i < 100 * 16; i++)
                keys[i] = next_float();
            for (uint32_t i = 0; i < 40 * 16; i++)
                queries[i] = fabsf(next_float()) + 0.5f;
            keys[70 * 16 + 3] = bad[b];
            struct sc_kernels_importance what = {.head_size = 16,
                                                 .group = 1,
                                                 .scale = 1,
                                                 .queries = {.data = (const uint8_t *)queries,
                                                             .row_stride_bytes = 64,
                                                             .head_stride_bytes = 64,
                                                             .row_count = rows},
                                                 .prefix = {.memory = {.k_base = (uint8_t *)keys,
                                                                       .token_stride_bytes = 64,
                                                                       .head_stride_bytes = 64},
                                                            .count = 100}};
            for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
                what.kernels = sc_kernels_get((enum sc_kernels_level)level);
                float *sums = run(&what, 0);
                double total = 0;
                for (uint32_t j = 0; j < 100; j++) {
                    assert_true(b == 2 ? sums[j] >= 0 : isnan(sums[j]));
                    total += (double)sums[j];
                }
                if (b == 2) { /* -infinity: the key has no weight, the others have all */
                    assert_true(sums[70] == 0);
                    assert_true(fabs(total - (double)rows) < 1e-4 * (double)rows);
                }
                free(sums);
            }
        }
}

static void exp2_is_within_two_units_and_never_denormal(void **state)
{
    (void)state;
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
        for (double from = 0; from > -140; from -= 0.37) {
            float x[37];
            for (uint32_t i = 0; i < 37; i++)
                x[i] = (float)(from - (double)i * 0.01);
            float given[37];
            memcpy(given, x, sizeof(x));
            (void)sc_kernels_get((enum sc_kernels_level)level)->few_soften(x, 37, 0);
            for (uint32_t i = 0; i < 37; i++) {
                double expected = exp2((double)given[i]);
                if (given[i] < SC_KERNELS_EXP2_LEAST)
                    assert_true(x[i] == 0);
                else if (!(fabs((double)x[i] - expected) <= expected * 0x1p-22))
                    fail_msg("2^%.9g: found %.9g, expected %.9g", (double)given[i], (double)x[i],
                             expected);
            }
        }
    assert_true(isnan(sc_kernels_exp2(NAN)));
    assert_true(sc_kernels_exp2(-INFINITY) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_equal_a_float64_reference_over_a_grid_of_shapes),
        cmocka_unit_test(sums_of_many_rows_over_a_long_prefix_stay_within_the_contract),
        cmocka_unit_test(heads_together_are_each_head_alone),
        cmocka_unit_test(heads_of_rows_without_gaps_are_each_head_alone),
        cmocka_unit_test(codes_are_scored_as_what_they_decode_to),
        cmocka_unit_test(codes_of_bits_per_channel_are_scored_beside_even_ones),
        cmocka_unit_test(no_rows_give_zeros),
        cmocka_unit_test(infinite_keys_give_nan_or_nothing_on_every_rung),
        cmocka_unit_test(exp2_is_within_two_units_and_never_denormal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
