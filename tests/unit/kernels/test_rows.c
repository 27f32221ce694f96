/* Packing and unpacking rows: layouts as the ABI's formula says, checked element by element against
 * a plain loop over that formula; bytes that no row covers keep their poison. */
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POISON 0xa5

struct shape {
    uint64_t tokens, heads, size;
};

static const struct shape SHAPES[] = {{1, 1, 1},   {3, 2, 8},   {7, 3, 5},   {0, 2, 8},
                                      {33, 4, 64}, {65, 1, 17}, {5, 2, 1037}};
#define SHAPE_COUNT (sizeof(SHAPES) / sizeof(SHAPES[0]))

enum layout { PACKED, HEAD_MAJOR, PADDED, BLOCKS, VLLM_SLOTS, BLOCK_HEADS, LAYOUTS };

struct bench_memory {
    struct sc_kernels_memory memory;
    uint8_t *bytes;
    uint64_t byte_count;
    int64_t *slots;
};

/* A layout of the shape with elements of `element` bytes; slots are backwards, with gaps. */
static struct bench_memory make(enum layout layout, const struct shape *shape, uint64_t element)
{
    uint64_t head = shape->size * element, tokens = shape->tokens, row = shape->heads * head;
    uint64_t slots = tokens * 2 + 16;
    struct bench_memory made = {.byte_count = 4 * (slots + 8) * (row + 64) + 4096};
    made.bytes = malloc(made.byte_count);
    made.slots = malloc(slots * sizeof(int64_t));
    assert_true(made.bytes != NULL && made.slots != NULL);
    memset(made.bytes, POISON, made.byte_count);
    struct sc_kernels_memory *m = &made.memory;
    m->k_base = made.bytes + 1024;
    m->v_base = made.bytes + 1024 + (made.byte_count / 2 & ~UINT64_C(63));
    m->token_stride_bytes = row;
    m->head_stride_bytes = head;
    if (layout == HEAD_MAJOR) {
        m->token_stride_bytes = head;
        m->head_stride_bytes = (tokens + 1) * head;
    } else if (layout == PADDED) {
        m->token_stride_bytes = row + shape->heads * 2 * element + 4 * element;
        m->head_stride_bytes = head + 2 * element;
    } else if (layout == BLOCKS || layout == VLLM_SLOTS) {
        m->block_tokens = 4;
        m->block_stride_bytes = 4 * row + (layout == BLOCKS ? 8 * element : 0);
    } else if (layout == BLOCK_HEADS) { /* [block][head][K rows | V rows] */
        m->block_tokens = 4;
        m->token_stride_bytes = head;
        m->head_stride_bytes = 2 * 4 * head;
        m->block_stride_bytes = shape->heads * 2 * 4 * head;
        m->v_base = m->k_base + 4 * head;
    }
    if (layout == VLLM_SLOTS || layout == BLOCK_HEADS) {
        for (uint64_t j = 0; j < tokens; j++)
            made.slots[j] = (int64_t)(j * 2);
        for (uint64_t j = 0; j < tokens / 2; j++) {
            int64_t slot = made.slots[j];
            made.slots[j] = made.slots[tokens - 1 - j];
            made.slots[tokens - 1 - j] = slot;
        }
        m->slots = made.slots;
    }
    return made;
}

static void unmake(struct bench_memory *made)
{
    free(made->bytes);
    free(made->slots);
}

/* The ABI's formula, word for word. */
static uint8_t *address(const struct sc_kernels_memory *m, uint32_t part, uint64_t slot, uint64_t h)
{
    uint8_t *base = part == 0 ? m->k_base : m->v_base;
    if (m->block_tokens == 0)
        return base + slot * m->token_stride_bytes + h * m->head_stride_bytes;
    return base + slot / m->block_tokens * m->block_stride_bytes +
           slot % m->block_tokens * m->token_stride_bytes + h * m->head_stride_bytes;
}

static uint8_t byte_of(uint64_t token, uint32_t part, uint64_t h, uint64_t i)
{
    return (uint8_t)((token * 131 + part * 17 + h * 7 + i * 3) % 160); /* never POISON's 165 */
}

static void pack_follows_the_formula(void **state)
{
    (void)state;
    for (uint32_t layout = 0; layout < LAYOUTS; layout++)
        for (uint32_t s = 0; s < SHAPE_COUNT; s++)
            for (uint64_t element = 2; element <= 4; element += 2) {
                const struct shape *shape = &SHAPES[s];
                struct bench_memory made = make(layout, shape, element);
                uint64_t head = shape->size * element, row = 2 * shape->heads * head;
                for (uint64_t j = 0; j < shape->tokens; j++)
                    for (uint32_t part = 0; part < 2; part++)
                        for (uint64_t h = 0; h < shape->heads; h++) {
                            uint64_t slot = made.memory.slots ? (uint64_t)made.slots[j] : j;
                            for (uint64_t i = 0; i < head; i++)
                                address(&made.memory, part, slot, h)[i] = byte_of(j, part, h, i);
                        }
                for (uint64_t first = 0; first <= shape->tokens; first += 1 + first) {
                    uint64_t count = shape->tokens - first;
                    uint8_t *dst = malloc(count * row + 128);
                    assert_non_null(dst);
                    memset(dst, POISON, count * row + 128);
                    struct sc_kernels_move how = {sc_kernels_get(SC_KERNELS_REF), &made.memory,
                                                  shape->heads, shape->size,
                                                  .element_bytes = element};
                    sc_kernels_rows_pack(&how, first, count, dst + 64);
                    for (uint64_t n = 0; n < count * row; n++) {
                        uint64_t in = n % row;
                        assert_int_equal(dst[64 + n], byte_of(first + n / row, in >= row / 2,
                                                              in % (row / 2) / head, in % head));
                    }
                    for (uint64_t i = 0; i < 64; i++) {
                        assert_int_equal(dst[i], POISON);
                        assert_int_equal(dst[64 + count * row + i], POISON);
                    }
                    free(dst);
                }
                unmake(&made);
            }
}

/* What unpack must leave, made by plain loops. */
static void expect_unpacked(struct bench_memory *want, const struct sc_kernels_move *how,
                            const struct shape *shape, const uint16_t *src, uint64_t element)
{
    for (uint64_t j = 0; j < shape->tokens; j++) {
        int64_t slot = want->memory.slots ? want->memory.slots[j] : (int64_t)j;
        for (uint32_t part = 0; part < 2 && slot >= 0; part++)
            for (uint64_t h = 0; h < shape->heads; h++)
                for (uint64_t i = 0; i < shape->size; i++) {
                    const uint16_t *from =
                        src + ((j * 2 + part) * shape->heads + h) * shape->size + i;
                    uint8_t *to = address(&want->memory, part, (uint64_t)slot, h) + i * element;
                    float wide;
                    if (!how->widens) {
                        memcpy(to, from, 2);
                        continue;
                    }
                    sc_kernels_ref_widen(&wide, (const uint8_t *)from, 1, how->dtype);
                    memcpy(to, &wide, 4);
                }
    }
}

/* V of all tokens, then K of all, token by token: the same memory. */
static void expect_parts(const struct bench_memory *want, const struct sc_kernels_move *how,
                         uint32_t layout, const struct shape *shape, uint64_t element,
                         const uint16_t *src)
{
    struct bench_memory got = make(layout, shape, element);
    for (uint64_t j = 0; j < shape->tokens && want->memory.slots != NULL; j++)
        got.slots[j] = want->slots[j];
    uint64_t part_elements = shape->heads * shape->size;
    struct sc_kernels_move here = *how;
    here.memory = &got.memory;
    for (uint32_t part = 2; part-- > 0;)
        for (uint64_t j = 0; j < shape->tokens; j++)
            sc_kernels_part_unpack(&here, part, j, 1,
                                   (const uint8_t *)(src + (2 * j + part) * part_elements), 0);
    assert_memory_equal(got.bytes, want->bytes, want->byte_count);
    unmake(&got);
}

/* Whoever copies by the spans that unpack names leaves what unpack does. */
static void expect_spans(const struct bench_memory *want, const struct sc_kernels_move *how,
                         uint32_t layout, const struct shape *shape, const uint16_t *src)
{
    struct bench_memory got = make(layout, shape, 2);
    for (uint64_t j = 0; j < shape->tokens && want->memory.slots != NULL; j++)
        got.slots[j] = want->slots[j];
    struct sc_kernels_move here = *how;
    here.memory = &got.memory;
    uint64_t span_bytes = sc_kernels_spans_bytes(&here);
    uint64_t row_bytes = 2 * shape->heads * shape->size * 2, count = row_bytes / span_bytes;
    assert_int_equal(row_bytes / 2 % span_bytes, 0);
    uint8_t **spans = calloc(2 * count, sizeof(*spans));
    assert_non_null(spans);
    for (uint64_t j = 0; j < shape->tokens; j += 2) {
        uint64_t now = shape->tokens - j < 2 ? shape->tokens - j : 2;
        sc_kernels_rows_spans(&here, j, now, spans);
        for (uint64_t i = 0; i < now * count; i++)
            if (spans[i] != NULL)
                memcpy(spans[i], (const uint8_t *)src + j * row_bytes + i * span_bytes, span_bytes);
    }
    assert_memory_equal(got.bytes, want->bytes, want->byte_count);
    free(spans);
    unmake(&got);
}

static void check_unpack(uint32_t layout, const struct shape *shape, uint32_t level, uint32_t dtype,
                         bool widens, bool skips, bool streams)
{
    uint64_t element = widens ? 4 : 2;
    struct bench_memory want = make(layout, shape, element), got = make(layout, shape, element);
    if (skips && want.memory.slots != NULL)
        for (uint64_t j = 0; j < shape->tokens; j += 3)
            want.slots[j] = got.slots[j] = j % 2 ? -1 : INT64_MIN;
    uint64_t row_elements = 2 * shape->heads * shape->size;
    uint16_t *src = malloc((shape->tokens * row_elements + 1) * sizeof(*src));
    assert_non_null(src);
    for (uint64_t i = 0; i < shape->tokens * row_elements; i++)
        src[i] = (uint16_t)(i * 40503u + level);
    struct sc_kernels_move how = {.kernels = sc_kernels_get(level),
                                  .memory = &got.memory,
                                  .head_count = shape->heads,
                                  .head_size = shape->size,
                                  .element_bytes = 2,
                                  .dtype = dtype,
                                  .widens = widens,
                                  .streams = streams};
    sc_kernels_rows_prefetch(&how, 0, shape->tokens);
    assert_memory_equal(got.bytes, want.bytes, want.byte_count); /* it writes nothing */
    expect_unpacked(&want, &how, shape, src, element);
    uint64_t step = shape->tokens / 3 + 1; /* in parts, as a reader hands rows out */
    for (uint64_t first = 0; first < shape->tokens; first += step) {
        uint64_t left = shape->tokens - first;
        sc_kernels_rows_unpack(&how, first, left < step ? left : step,
                               (const uint8_t *)(src + first * row_elements));
    }
    assert_memory_equal(got.bytes, want.bytes, want.byte_count);
    expect_parts(&want, &how, layout, shape, element, src);
    if (!widens)
        expect_spans(&want, &how, layout, shape, src);
    else
        assert_int_equal(sc_kernels_spans_bytes(&how), 0);
    free(src);
    unmake(&want);
    unmake(&got);
}

static void unpack_follows_the_formula_at_every_level(void **state)
{
    (void)state;
    for (uint32_t layout = 0; layout < LAYOUTS; layout++)
        for (uint32_t s = 0; s < SHAPE_COUNT; s++)
            for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
                for (uint32_t dtype = SC_KERNELS_F16; dtype <= SC_KERNELS_BF16; dtype++)
                    for (uint32_t how = 0; how < 8; how++)
                        check_unpack(layout, &SHAPES[s], level, dtype, how & 4, how & 1, how & 2);
}

/* ---- V of another size, or none, and rows that are longer than both ---------------------------
 */

struct unlike {
    uint64_t tokens, heads, size[2], pad, element; /* bytes of padding, and of an element */
    bool is_columns;                               /* K's elements lie 8 elements apart */
    bool widens, skips;                            /* to float32; every third token */
};

static struct bench_memory unlike_memory(const struct unlike *u, uint64_t element, uint64_t gap)
{
    uint64_t head = u->size[0] * element + gap, head_v = u->size[1] * element + gap, apart = 1;
    struct bench_memory made = {.byte_count = 1 << 18};
    made.bytes = malloc(made.byte_count);
    assert_non_null(made.bytes);
    memset(made.bytes, POISON, made.byte_count);
    if (u->is_columns)
        apart = 8;
    made.memory =
        (struct sc_kernels_memory){.k_base = made.bytes + 1024,
                                   .v_base = u->size[1] > 0 ? made.bytes + (1 << 17) : NULL,
                                   .token_stride_bytes = u->heads * head * apart,
                                   .head_stride_bytes = head * apart,
                                   .v_token_stride_bytes = u->heads * head_v,
                                   .v_head_stride_bytes = head_v,
                                   .k_element_stride_bytes = u->is_columns ? apart * element : 0,
                                   .element_bytes = element};
    return made;
}

static uint8_t *unlike_at(const struct bench_memory *made, uint64_t j, uint32_t part, uint64_t h,
                          uint64_t i)
{
    const struct sc_kernels_memory *m = &made->memory;
    uint64_t step =
        part == 0 && m->k_element_stride_bytes != 0 ? m->k_element_stride_bytes : m->element_bytes;
    return part == 0
               ? m->k_base + j * m->token_stride_bytes + h * m->head_stride_bytes + i * step
               : m->v_base + j * m->v_token_stride_bytes + h * m->v_head_stride_bytes + i * step;
}

/* Packed, K, V and zeros; unpacked into memory of another form, what was there. */
static void check_unlike(const struct unlike *u, uint32_t level, bool streams)
{
    uint64_t used = u->heads * (u->size[0] + u->size[1]) * u->element, row = used + u->pad;
    struct bench_memory from = unlike_memory(u, u->element, 0), want = from, got;
    struct unlike there = *u;
    uint8_t *packed = malloc(u->tokens * row + 64), *at = packed;
    assert_non_null(packed);
    memset(packed, POISON, u->tokens * row + 64);
    there.is_columns = !u->is_columns;
    uint64_t wide = u->widens ? 4 : u->element;
    int64_t slots[20];
    for (uint64_t j = 0; j < u->tokens; j++)
        slots[j] = u->skips && j % 3 == 0 ? -1 : (int64_t)j;
    want = unlike_memory(&there, wide, 3 * wide);
    got = unlike_memory(&there, wide, 3 * wide);
    got.memory.slots = slots;
    for (uint64_t j = 0; j < u->tokens; j++)
        for (uint32_t part = 0; part < 2; part++)
            for (uint64_t h = 0; h < u->heads; h++)
                for (uint64_t i = 0; i < u->size[part]; i++) {
                    uint8_t *element = unlike_at(&from, j, part, h, i);
                    for (uint64_t b = 0; b < u->element; b++)
                        element[b] = byte_of(j, part, h, i * u->element + b);
                    if (slots[j] < 0)
                        continue;
                    if (u->widens)
                        sc_kernels_ref_widen((float *)(void *)unlike_at(&want, j, part, h, i),
                                             element, 1, SC_KERNELS_BF16);
                    else
                        memcpy(unlike_at(&want, j, part, h, i), element, u->element);
                }
    struct sc_kernels_move how = {.kernels = sc_kernels_get(level),
                                  .memory = &from.memory,
                                  .head_count = u->heads,
                                  .head_size = u->size[0],
                                  .element_bytes = u->element,
                                  .streams = streams,
                                  .row_bytes = row,
                                  .head_size_v = u->size[1]};
    assert_int_equal(sc_kernels_spans_bytes(&how), 0);
    sc_kernels_rows_pack(&how, 0, u->tokens, packed);
    for (uint64_t j = 0; j < u->tokens; j++) {
        for (uint32_t part = 0; part < 2; part++)
            for (uint64_t n = 0; n < u->heads * u->size[part] * u->element; n++)
                assert_int_equal(*at++, byte_of(j, part, n / (u->size[part] * u->element),
                                                n % (u->size[part] * u->element)));
        for (uint64_t n = 0; n < u->pad; n++)
            assert_int_equal(*at++, 0);
    }
    assert_int_equal(*at, POISON);
    how.memory = &got.memory;
    how.widens = u->widens;
    how.dtype = SC_KERNELS_BF16;
    sc_kernels_rows_prefetch(&how, 0, u->tokens);
    for (uint64_t j = 0; j < u->tokens; j += 5)
        sc_kernels_rows_unpack(&how, j, u->tokens - j < 5 ? u->tokens - j : 5, packed + j * row);
    assert_memory_equal(got.bytes, want.bytes, want.byte_count);
    free(packed);
    unmake(&from);
    unmake(&want);
    unmake(&got);
}

static void rows_of_unlike_parts_come_back(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (uint32_t round = 0; round < 600; round++) {
        uint64_t r[6];
        for (uint32_t i = 0; i < 6; i++)
            r[i] = (random = random * 6364136223846793005u + 1442695040888963407u) >> 33;
        const struct unlike u = {.tokens = r[0] % 20,
                                 .heads = 1 + r[1] % 4,
                                 .size = {1 + r[2] % 40, r[3] % 3 == 0 ? 0 : r[3] % 40},
                                 .pad = r[4] % 3 == 0 ? 0 : r[4] % 40,
                                 .element = UINT64_C(2) << r[5] % 2,
                                 .is_columns = r[5] & 2,
                                 .widens = r[5] % 2 == 0 && (r[5] & 8),
                                 .skips = r[5] & 16};
        check_unlike(&u, round % (sc_kernels_level_best() + 1), r[5] & 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_unlike_parts_come_back),
        cmocka_unit_test(pack_follows_the_formula),
        cmocka_unit_test(unpack_follows_the_formula_at_every_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
