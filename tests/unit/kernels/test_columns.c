/* K in columns: turning at every level against ref/; packing, unpacking, decoding, compacting and
 * scoring against the same of plain rows, moved element by element by the ABI's formula; bytes that
 * no element has keep their poison. */
#include "kernels/bitplanes.h"
#include "kernels/columns.h"
#include "kernels/importance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POISON 0xa5
#define GUARD  64u

static uint64_t g_random;

static uint64_t random_below(uint64_t end)
{
    g_random = g_random * 6364136223846793005u + 1442695040888963407u;
    return (g_random >> 33) % end;
}

static void *must(void *memory)
{
    assert_non_null(memory);
    return memory;
}

/* ---- Turning -------------------------------------------------------------------------------- */

static uint8_t *lines_make(uint64_t bytes)
{
    return must(aligned_alloc(64, (bytes + 63) / 64 * 64));
}

/* streams: whole lines may go past the caches, where the destination has such. */
static void check_turn(uint32_t level, uint64_t element, uint64_t rows, uint64_t columns,
                       bool streams)
{
    const struct sc_kernels *ref = sc_kernels_get(SC_KERNELS_REF), *mine = sc_kernels_get(level);
    uint64_t src_stride = (columns + random_below(5)) * element;
    uint64_t dst_stride = (rows + random_below(5)) * element;
    if (streams)
        dst_stride = (dst_stride + 63) / 64 * 64;
    uint64_t src_bytes = rows * src_stride, dst_bytes = columns * dst_stride + 2 * GUARD;
    uint8_t *src = must(malloc(src_bytes + 1)); /* a sanitizer watches its end */
    uint8_t *want = lines_make(dst_bytes), *got = lines_make(dst_bytes);
    for (uint64_t i = 0; i < src_bytes; i++)
        src[i] = (uint8_t)random_below(256);
    memset(want, POISON, dst_bytes);
    memset(got, POISON, dst_bytes);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            memcpy(want + GUARD + c * dst_stride + r * element, src + r * src_stride + c * element,
                   element);
    const struct sc_kernels_transpose what = {.dst = got + GUARD,
                                              .src = src,
                                              .dst_stride = dst_stride,
                                              .src_stride = src_stride,
                                              .row_count = rows,
                                              .column_count = columns,
                                              .streams = streams};
    (element == 2 ? mine->transpose16 : mine->transpose32)(&what);
    if (memcmp(got, want, dst_bytes) != 0)
        fail_msg("level %u: %d rows of %d columns of %d bytes", level, (int)rows, (int)columns,
                 (int)element);
    memset(got, POISON, dst_bytes);
    (element == 2 ? ref->transpose16 : ref->transpose32)(&what);
    assert_memory_equal(got, want, dst_bytes);
    free(src);
    free(want);
    free(got);
}

static void every_level_turns_as_the_reference(void **state)
{
    (void)state;
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
        for (uint64_t element = 2; element <= 4; element += 2)
            for (uint64_t rows = 0; rows <= 70; rows += rows < 36 ? 1 : 7)
                for (uint64_t columns = 0; columns <= 70; columns += columns < 20 ? 1 : 5)
                    for (uint32_t streams = 0; streams < 2; streams++)
                        check_turn(level, element, rows, columns, streams != 0);
}

/* ---- Memories ------------------------------------------------------------------------------- */

struct shape {
    uint64_t tokens, heads, size;
};

static const struct shape SHAPES[] = {{1, 1, 1},   {9, 2, 8},    {40, 3, 5},   {140, 2, 32},
                                      {70, 2, 64}, {200, 1, 64}, {70, 2, 128}, {21, 1, 150}};
#define SHAPE_COUNT (sizeof(SHAPES) / sizeof(SHAPES[0]))

enum layout {
    CPU_32,   /* [block][head][K columns | V rows], as vLLM's CPU attention has it */
    CPU_128,  /* the same */
    NO_BLOCK, /* [head][dim][token], V [token][head][dim] */
    PADDED,   /* gaps between the tokens of a column: no runs */
    V_APART,  /* K plain rows, V's tokens further apart */
    LAYOUTS
};

enum order { IN_ORDER, BACKWARDS, RUNS, ANY, ORDERS };

struct place {
    struct sc_kernels_memory memory;
    uint8_t *bytes;
    uint64_t byte_count;
    int64_t *slots;
};

static void strides_set(struct sc_kernels_memory *m, enum layout layout, const struct shape *shape,
                        uint64_t slots)
{
    uint64_t e = m->element_bytes, head = shape->size * e;
    m->k_element_stride_bytes = layout == V_APART ? 0 : slots * e;
    m->token_stride_bytes = e;
    m->v_token_stride_bytes = shape->heads * head;
    m->head_stride_bytes = shape->size * slots * e;
    if (layout == CPU_32 || layout == CPU_128) {
        m->block_tokens = layout == CPU_32 ? 32 : 128;
        m->k_element_stride_bytes = m->block_tokens * e;
        m->v_token_stride_bytes = head;
        m->head_stride_bytes = 2 * m->block_tokens * head;
        m->block_stride_bytes = shape->heads * m->head_stride_bytes;
        m->v_base = m->k_base + m->block_tokens * head;
    } else if (layout == PADDED) {
        m->token_stride_bytes = 3 * e;
        m->k_element_stride_bytes = 3 * slots * e + e;
        m->head_stride_bytes = shape->size * m->k_element_stride_bytes;
        m->v_token_stride_bytes = head;
    } else if (layout == V_APART) {
        m->token_stride_bytes = shape->heads * head;
        m->v_token_stride_bytes = shape->heads * head + 6 * e;
        m->head_stride_bytes = head;
    } else { /* heads of V lie as far apart as K's */
        m->v_token_stride_bytes = head;
    }
}

/* Slots of the tokens: fewer than twice as many. */
static void slots_fill(int64_t *slots, uint64_t tokens, enum order order)
{
    uint64_t next = 0;
    for (uint64_t j = 0; j < tokens; j++) {
        slots[j] = (int64_t)(order == BACKWARDS ? tokens - 1 - j : next);
        next += order == RUNS && random_below(12) == 0 && next < 2 * j ? 2 : 1;
    }
    for (uint64_t j = tokens; order == ANY && j > 1; j--) {
        uint64_t other = random_below(j);
        int64_t kept = slots[j - 1];
        slots[j - 1] = slots[other];
        slots[other] = kept;
    }
}

static struct place make(enum layout layout, const struct shape *shape, uint64_t element,
                         enum order order)
{
    uint64_t slots = (2 * shape->tokens + 127) / 128 * 128;
    uint64_t head = shape->size * element, half = 4 * slots * shape->heads * (head + 8 * element);
    half = (half + 63) / 64 * 64; /* so that columns begin with a line */
    struct place made = {.byte_count = 2 * half + 2 * GUARD,
                         .slots = must(malloc(shape->tokens * sizeof(int64_t)))};
    made.bytes = lines_make(made.byte_count);
    memset(made.bytes, POISON, made.byte_count);
    slots_fill(made.slots, shape->tokens, order);
    struct sc_kernels_memory *m = &made.memory;
    m->k_base = made.bytes + GUARD;
    m->v_base = made.bytes + GUARD + half;
    m->element_bytes = element;
    m->slots = order == IN_ORDER ? NULL : made.slots;
    strides_set(m, layout, shape, slots);
    return made;
}

static void unmake(struct place *made)
{
    free(made->bytes);
    free(made->slots);
}

/* The ABI's formula, word for word. */
static uint8_t *address(const struct place *place, uint32_t part, uint64_t token, uint64_t h,
                        uint64_t d)
{
    const struct sc_kernels_memory *m = &place->memory;
    uint64_t slot = m->slots != NULL ? (uint64_t)m->slots[token] : token, block = 0;
    uint64_t e = m->element_bytes;
    uint64_t d_stride = part == 0 && m->k_element_stride_bytes != 0 ? m->k_element_stride_bytes : e;
    uint64_t t_stride = part == 0 ? m->token_stride_bytes : m->v_token_stride_bytes;
    if (m->block_tokens != 0) {
        block = slot / m->block_tokens * m->block_stride_bytes;
        slot %= m->block_tokens;
    }
    return (part == 0 ? m->k_base : m->v_base) + block + slot * t_stride +
           h * m->head_stride_bytes + d * d_stride;
}

/* Rows [token][part][head][dim], any bits. */
static uint8_t *rows_make(const struct shape *shape, uint64_t element)
{
    uint64_t bytes = shape->tokens * 2 * shape->heads * shape->size * element;
    uint8_t *rows = must(malloc(bytes));
    for (uint64_t i = 0; i < bytes; i++)
        rows[i] = (uint8_t)random_below(256);
    return rows;
}

/* Element by element: into the memory, or out of it. */
static void move_slowly(const struct place *place, const struct shape *shape, uint8_t *rows,
                        bool is_out)
{
    uint64_t e = place->memory.element_bytes;
    for (uint64_t j = 0; j < shape->tokens; j++)
        for (uint32_t part = 0; part < 2; part++)
            for (uint64_t h = 0; h < shape->heads; h++)
                for (uint64_t d = 0; d < shape->size; d++) {
                    uint8_t *row =
                        rows + (((j * 2 + part) * shape->heads + h) * shape->size + d) * e;
                    if (place->memory.slots != NULL && place->memory.slots[j] < 0)
                        continue;
                    uint8_t *at = address(place, part, j, h, d);
                    memcpy(is_out ? row : at, is_out ? at : row, e);
                }
}

typedef void check_fn(enum layout layout, const struct shape *shape, uint64_t element,
                      enum order order, uint32_t level);

static void for_all(check_fn *check)
{
    for (uint32_t layout = 0; layout < LAYOUTS; layout++)
        for (uint32_t s = 0; s < SHAPE_COUNT; s++)
            for (uint64_t element = 2; element <= 4; element += 2)
                for (uint32_t order = (layout + s) % 2; order < ORDERS; order += 2)
                    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
                        check(layout, &SHAPES[s], element, order, level);
}

/* ---- Moving --------------------------------------------------------------------------------- */

static void check_pack(enum layout layout, const struct shape *shape, uint64_t element,
                       enum order order, uint32_t level)
{
    struct place place = make(layout, shape, element, order);
    struct sc_kernels_move how = {sc_kernels_get(level), &place.memory, .head_size = shape->size,
                                  .element_bytes = element};
    uint64_t head = shape->size * element, part_bytes = shape->heads * head;
    uint8_t *rows = rows_make(shape, element), *got = must(malloc(shape->tokens * 2 * part_bytes));
    move_slowly(&place, shape, rows, false);
    for (uint64_t first = 0, count; first < shape->tokens; first += count) {
        count = 1 + random_below(shape->tokens - first);
        how.head_count = shape->heads;
        sc_kernels_rows_pack(&how, first, count, got);
        assert_memory_equal(got, rows + first * 2 * part_bytes, count * 2 * part_bytes);
        uint64_t heads = how.head_count = 1 + random_below(shape->heads);
        for (uint32_t part = 0; part < 2; part++) {
            sc_kernels_part_pack(&how, part, first, count, got);
            for (uint64_t j = 0; j < count; j++)
                assert_memory_equal(got + j * heads * head,
                                    rows + (2 * (first + j) + part) * part_bytes, heads * head);
        }
    }
    free(rows);
    free(got);
    unmake(&place);
}

static void pack_finds_every_element(void **state)
{
    (void)state;
    for_all(check_pack);
}

static void expect_unpacked(enum layout layout, const struct shape *shape, enum order order,
                            struct sc_kernels_move *how, uint8_t *rows, uint8_t *wide,
                            bool by_parts)
{
    uint64_t element = how->widens ? sizeof(float) : how->element_bytes;
    struct place want = make(layout, shape, element, order),
                 got = make(layout, shape, element, order);
    uint64_t part_bytes = shape->heads * shape->size * how->element_bytes;
    memcpy(got.slots, want.slots, shape->tokens * sizeof(int64_t));
    for (uint64_t j = 0; order == RUNS && j < shape->tokens; j++)
        if (random_below(9) == 0)
            want.slots[j] = got.slots[j] = random_below(2) ? -1 : INT64_MIN;
    move_slowly(&want, shape, wide, false);
    how->memory = &got.memory;
    sc_kernels_rows_prefetch(how, 0, shape->tokens); /* writes nothing */
    for (uint64_t first = 0, count; first < shape->tokens; first += count) {
        const uint8_t *src = rows + first * 2 * part_bytes;
        count = 1 + random_below(shape->tokens - first);
        if (!by_parts)
            sc_kernels_rows_unpack(how, first, count, src);
        for (uint32_t part = 2; by_parts && part-- > 0;)
            sc_kernels_part_unpack(how, part, first, count, src + part * part_bytes,
                                   2 * part_bytes);
    }
    assert_memory_equal(got.bytes, want.bytes, want.byte_count);
    bool has_spans = layout == V_APART && !how->widens;
    assert_int_equal(sc_kernels_spans_bytes(how) != 0, has_spans);
    unmake(&want);
    unmake(&got);
}

static void check_unpack(enum layout layout, const struct shape *shape, uint64_t element,
                         enum order order, uint32_t level)
{
    struct sc_kernels_move how = {.kernels = sc_kernels_get(level),
                                  .head_count = shape->heads,
                                  .head_size = shape->size,
                                  .element_bytes = element};
    uint64_t numbers = shape->tokens * 2 * shape->heads * shape->size;
    uint8_t *rows = rows_make(shape, element), *wide = must(malloc(numbers * sizeof(float)));
    for (how.dtype = SC_KERNELS_F32; how.dtype <= (element == 2 ? SC_KERNELS_BF16 : SC_KERNELS_F32);
         how.dtype++)
        for (uint32_t way = 0; way < 3; way++) {
            how.streams = way == 2;
            how.widens = how.dtype != SC_KERNELS_F32;
            if (how.widens)
                sc_kernels_ref_widen((float *)(void *)wide, rows, numbers, how.dtype);
            else
                memcpy(wide, rows, numbers * element);
            expect_unpacked(layout, shape, order, &how, rows, wide, way == 1);
        }
    free(rows);
    free(wide);
}

static void unpack_writes_every_element_and_nothing_else(void **state)
{
    (void)state;
    for_all(check_unpack);
}

/* Of V alone strided, spans are where unpack writes. */
static void spans_follow_v_s_own_stride(void **state)
{
    (void)state;
    const struct shape shape = {9, 2, 8};
    struct place place = make(V_APART, &shape, 2, BACKWARDS);
    struct sc_kernels_move how = {NULL, &place.memory, .head_count = 2, .head_size = 8,
                                  .element_bytes = 2};
    uint8_t *spans[18];
    assert_int_equal(sc_kernels_spans_bytes(&how), 32);
    sc_kernels_rows_spans(&how, 0, 9, spans);
    for (uint64_t j = 0; j < 9; j++)
        for (uint32_t part = 0; part < 2; part++)
            assert_ptr_equal(spans[2 * j + part], address(&place, part, j, 0, 0));
    unmake(&place);
}

static void check_compact(enum layout layout, const struct shape *shape, uint64_t element,
                          enum order order, uint32_t level)
{
    if (level != SC_KERNELS_REF)
        return;
    for (uint64_t head = 0; head <= shape->heads; head++) {
        struct place want = make(layout, shape, element, order);
        struct place got = make(layout, shape, element, order);
        uint8_t *rows = rows_make(shape, element);
        uint32_t *kept = must(malloc(shape->tokens * sizeof(*kept)));
        uint64_t count = 0, of = head == shape->heads ? UINT64_MAX : head;
        memcpy(got.slots, want.slots, shape->tokens * sizeof(int64_t));
        move_slowly(&want, shape, rows, false);
        move_slowly(&got, shape, rows, false);
        for (uint64_t j = 0; j < shape->tokens; j++)
            if (random_below(8) != 0)
                kept[count++] = (uint32_t)j;
        for (uint64_t r = 0; r < count; r++)
            for (uint32_t part = 0; part < 2; part++)
                for (uint64_t h = 0; h < shape->heads; h++)
                    for (uint64_t d = 0; d < shape->size && (of == UINT64_MAX || of == h); d++)
                        memmove(address(&want, part, r, h, d), address(&want, part, kept[r], h, d),
                                element);
        struct sc_kernels_move how = {NULL, &got.memory, shape->heads, shape->size,
                                      .element_bytes = element};
        sc_kernels_rows_compact(&how, of, kept, count);
        assert_memory_equal(got.bytes, want.bytes, want.byte_count);
        free(rows);
        free(kept);
        unmake(&want);
        unmake(&got);
    }
}

static void compacting_moves_every_element(void **state)
{
    (void)state;
    for_all(check_compact);
}

/* ---- Codes ---------------------------------------------------------------------------------- */

/* The same slots for both; some tokens are skipped, of runs some have no place. */
static void some_skip(struct place *want, struct place *got, uint64_t tokens, enum order order,
                      uint64_t ret_skipped[8])
{
    memset(ret_skipped, 0, 8 * sizeof(*ret_skipped));
    memcpy(got->slots, want->slots, tokens * sizeof(int64_t));
    for (uint64_t j = 0; order != ANY && j < tokens; j++)
        if (random_below(10) == 0)
            ret_skipped[j / 64] |= UINT64_C(1) << (j % 64);
    for (uint64_t j = 0; order == RUNS && j < tokens; j += 13)
        want->slots[j] = got->slots[j] = -1;
}

static void codes_make(const struct shape *shape, uint32_t bits, uint8_t **scales, uint8_t **codes)
{
    uint64_t channels = shape->heads * shape->size;
    *scales = must(calloc(1, sc_kernels_codec_scale_bytes(channels)));
    *codes = must(calloc(shape->tokens, sc_kernels_codec_row_bytes(channels, bits)));
    for (uint64_t c = 0; c < channels; c++)
        for (uint32_t i = 0; i < 2; i++) { /* min and step: small numbers in f16 */
            uint16_t half = (uint16_t)(0x3000 + random_below(0x800));
            memcpy(*scales + (i * sc_kernels_codec_padded(channels) + c) * 2, &half, 2);
        }
    for (uint64_t i = 0; i < shape->tokens * sc_kernels_codec_row_bytes(channels, bits); i++)
        (*codes)[i] = (uint8_t)random_below(256);
}

static void check_decode(enum layout layout, const struct shape *shape, uint64_t element,
                         enum order order, uint32_t level)
{
    if (shape->tokens > SC_KERNELS_CODEC_ROWS_MAX)
        return;
    for (uint32_t part = 0; part < 2; part++) {
        struct sc_kernels_decode how = {.kernels = sc_kernels_get(level),
                                        .head_count = shape->heads,
                                        .head_size = shape->size,
                                        .quantised.bits = part == 0 ? 4 : 3,
                                        .dst_dtype = element == 2 ? SC_KERNELS_F16 : SC_KERNELS_F32,
                                        .streams = random_below(2)};
        struct place want = make(layout, shape, element, order);
        struct place got = make(layout, shape, element, order);
        uint64_t head = shape->size * element;
        uint8_t *rows = must(calloc(shape->tokens * 2 * shape->heads, head)), *scales, *codes;
        struct sc_kernels_memory plain = {.k_base = rows,
                                          .v_base = rows + shape->heads * head,
                                          .token_stride_bytes = 2 * shape->heads * head,
                                          .head_stride_bytes = head};
        uint64_t skipped[8];
        some_skip(&want, &got, shape->tokens, order, skipped);
        codes_make(shape, how.quantised.bits, &scales, &codes);
        how.memory = &plain;
        how.quantised.scales = scales;
        how.quantised.codes = codes;
        sc_kernels_part_decode(&how, part, 0, shape->tokens);
        how.memory = &got.memory;
        how.skipped = skipped;
        sc_kernels_part_decode(&how, part, 0, shape->tokens);
        for (uint64_t j = 0; j < shape->tokens; j++)
            for (uint64_t h = 0; h < shape->heads; h++)
                for (uint64_t d = 0; d < shape->size; d++)
                    if (!(skipped[j / 64] >> (j % 64) & 1) && want.slots[j] >= 0)
                        memcpy(address(&want, part, j, h, d),
                               rows + ((2 * j + part) * shape->heads + h) * head + d * element,
                               element);
        assert_memory_equal(got.bytes, want.bytes, want.byte_count);
        free(rows);
        free(scales);
        free(codes);
        unmake(&want);
        unmake(&got);
    }
}

static void codes_are_decoded_into_columns(void **state)
{
    (void)state;
    for_all(check_decode);
}

/* Codes of free widths, any, keys turned. */
struct planes {
    struct sc_kernels_bitplanes planes;
    struct sc_kernels_bitplanes_group *groups;
    struct sc_kernels_rotary rotary;
    uint8_t *to, *scales, *codes;
    float *rope;
};

static struct planes planes_make(const struct shape *shape)
{
    uint64_t channels = shape->heads * shape->size, halves = channels * 2;
    uint64_t groups = shape->heads * sc_kernels_bitplanes_head_groups(shape->size);
    struct planes made = {.groups = must(malloc(groups * sizeof(*made.groups))),
                          .to = must(malloc(channels)),
                          .scales = must(malloc(channels * 4)),
                          .codes = must(malloc(shape->tokens * channels + 7)),
                          .rope = must(malloc(shape->tokens * shape->size * sizeof(float))),
                          .rotary = {(uint32_t)random_below(2), (uint32_t)shape->size}};
    for (uint64_t c = 0; c < channels; c++) /* planes are of whole bytes */
        made.to[c] = c % 8 == 0 ? (uint8_t)random_below(9) : made.to[c - 1];
    for (uint64_t i = 0; i < halves; i++) {
        uint16_t half = (uint16_t)(0x3000 + random_below(0x800));
        memcpy(made.scales + i * 2, &half, 2);
    }
    for (uint64_t i = 0; i < shape->tokens * channels + 7; i++)
        made.codes[i] = (uint8_t)random_below(256);
    for (uint64_t i = 0; i < shape->tokens * shape->size; i++)
        made.rope[i] = (float)random_below(129) / 64 - 1;
    assert_true(
        sc_kernels_bitplanes_init(&made.planes, shape->heads, shape->size, made.to, made.groups));
    return made;
}

static void planes_unmake(struct planes *made)
{
    free(made->groups);
    free(made->to);
    free(made->scales);
    free(made->codes);
    free(made->rope);
}

/* Against ref/, which decodes all tokens into plain rows. */
static void check_planes(enum layout layout, const struct shape *shape, uint64_t element,
                         enum order order, uint32_t level)
{
    if (shape->tokens > SC_KERNELS_CODEC_ROWS_MAX || shape->size % 8 != 0)
        return;
    struct planes made = planes_make(shape);
    uint64_t row = shape->heads * shape->size * element;
    uint8_t *rows = must(malloc(shape->tokens * row)), *dst[SC_KERNELS_CODEC_ROWS_MAX];
    for (uint64_t j = 0; j < shape->tokens; j++)
        dst[j] = rows + j * row;
    for (uint32_t part = 0; part < 2; part++) {
        bool is_turned = part == 0 && random_below(4) != 0;
        struct sc_kernels_decode how = {
            .kernels = sc_kernels_get(level),
            .head_count = shape->heads,
            .head_size = shape->size,
            .quantised = {.scales = made.scales,
                          .codes = made.codes,
                          .planes = &made.planes,
                          .rotary = is_turned ? &made.rotary : NULL,
                          .rope = is_turned ? made.rope : NULL},
            .dst_dtype = element == 2 ? SC_KERNELS_F16 + (uint32_t)random_below(2) : SC_KERNELS_F32,
            .streams = random_below(2)};
        struct place want = make(layout, shape, element, order);
        struct place got = make(layout, shape, element, order);
        uint64_t skipped[8];
        some_skip(&want, &got, shape->tokens, order, skipped);
        sc_kernels_ref_bitplanes_decode(
            &(struct sc_kernels_bitplanes_decode){.planes = &made.planes,
                                                  .scales = made.scales,
                                                  .codes = made.codes,
                                                  .row_count = shape->tokens,
                                                  .head_count = shape->heads,
                                                  .dst = dst,
                                                  .dst_dtype = how.dst_dtype,
                                                  .rotary = how.quantised.rotary,
                                                  .rope = how.quantised.rope});
        how.memory = &got.memory;
        how.skipped = skipped;
        sc_kernels_part_decode(&how, part, 0, shape->tokens);
        for (uint64_t j = 0; j < shape->tokens; j++)
            for (uint64_t h = 0; h < shape->heads; h++)
                for (uint64_t d = 0; d < shape->size; d++)
                    if (!(skipped[j / 64] >> (j % 64) & 1) && want.slots[j] >= 0)
                        memcpy(address(&want, part, j, h, d),
                               dst[j] + (h * shape->size + d) * element, element);
        assert_memory_equal(got.bytes, want.bytes, want.byte_count);
        unmake(&want);
        unmake(&got);
    }
    free(rows);
    planes_unmake(&made);
}

static void codes_of_bits_per_channel_are_decoded_into_columns(void **state)
{
    (void)state;
    for_all(check_planes);
}

/* ---- Scores --------------------------------------------------------------------------------- */

static void keys_fill(const struct place *place, const struct shape *shape, uint8_t *rows)
{
    uint64_t row = shape->heads * shape->size, element = place->memory.element_bytes;
    for (uint64_t i = 0; i < shape->tokens * 2 * row; i++) { /* small numbers, of either size */
        uint16_t half = (uint16_t)(0x3000 + random_below(0xc00) + (random_below(2) << 15));
        float wide = (float)random_below(64) / 64 - .5f;
        memcpy(rows + i * element, element == 2 ? (const void *)&half : &wide, element);
    }
    move_slowly(place, shape, rows, false);
}

static void check_scores(enum layout layout, const struct shape *shape, uint64_t element,
                         enum order order, uint32_t level)
{
    static const uint32_t DTYPES[2] = {SC_KERNELS_F16, SC_KERNELS_F32};
    static const uint64_t QUERIES[3] = {1, 6, 40};
    uint64_t head = shape->size * element, row = shape->heads * head;
    uint64_t fresh = shape->tokens < 40 ? 0 : 40, total = shape->tokens;
    if (level == SC_KERNELS_REF && total > 100)
        return;
    struct place place = make(layout, shape, element, order),
                 later = make(layout, shape, element, order);
    uint8_t *rows = must(malloc(total * 2 * row)), *fresh_rows = must(malloc(total * 2 * row));
    keys_fill(&place, shape, rows);
    keys_fill(&later, shape, fresh_rows);
    for (uint32_t q = 0; q < 3; q++) {
        struct sc_kernels_importance what = {
            .kernels = sc_kernels_get(level),
            .head_size = shape->size,
            .group = 1,
            .scale = .125f,
            .queries = {rows, 2 * row, head, QUERIES[q], DTYPES[element / 4]},
            .prefix = {.memory = {.k_base = rows,
                                  .token_stride_bytes = 2 * row,
                                  .head_stride_bytes = head},
                       .count = total,
                       .dtype = DTYPES[element / 4]}};
        if (QUERIES[q] > total)
            continue;
        what.fresh = what.prefix;
        what.fresh.memory.k_base = fresh_rows;
        what.fresh.count = QUERIES[q] <= fresh ? fresh : 0;
        float *want = must(malloc(shape->heads * total * sizeof(float)));
        float *got = must(malloc(shape->heads * total * sizeof(float)));
        void *scratch = must(aligned_alloc(
            64, sc_kernels_importance_scratch_bytes(shape->size, total, what.fresh.count)));
        sc_kernels_importance_heads(&what, 0, shape->heads, scratch, want);
        what.prefix.memory = place.memory;
        what.fresh.memory = later.memory;
        sc_kernels_importance_heads(&what, 0, shape->heads, scratch, got);
        assert_memory_equal(got, want, shape->heads * total * sizeof(float));
        free(want);
        free(got);
        free(scratch);
    }
    free(rows);
    free(fresh_rows);
    unmake(&place);
    unmake(&later);
}

static void scores_of_columns_are_those_of_rows(void **state)
{
    (void)state;
    for_all(check_scores);
}

/* ---- Numbers at their ends ------------------------------------------------------------------ */

/* The check lets a slot be any where block_stride_bytes is 0. */
static void no_run_goes_behind_the_last_slot(void **state)
{
    (void)state;
    static const int64_t SLOTS[] = {INT64_MAX - 1, INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN};
    const struct sc_kernels_memory memory = {.token_stride_bytes = 2,
                                             .block_tokens = 5, /* of which the last is the third */
                                             .slots = SLOTS,
                                             .k_element_stride_bytes = 10,
                                             .element_bytes = 2};
    struct sc_kernels_run run = sc_kernels_columns_run(&memory, NULL, 0, 5);
    assert_int_equal(run.offset, 2);
    assert_int_equal(run.count, 2);
    run = sc_kernels_columns_run(&memory, NULL, 3, 5);
    assert_int_equal(run.offset, 4);
    assert_int_equal(run.count, 1);
    run = sc_kernels_columns_run(&memory, NULL, 2, 4);
    assert_true(run.offset == UINT64_MAX);
    assert_int_equal(run.count, 1);
}

/* Of one head any head stride will do, of one element any of those: a sanitizer watches. */
static void a_stride_that_is_not_needed_leads_nowhere(void **state)
{
    (void)state;
    const struct shape one = {6, 1, 1};
    static const uint32_t ROWS[] = {1, 2, 5};
    float k[6], v[6];
    for (uint32_t i = 0; i < 6; i++) {
        k[i] = (float)i;
        v[i] = (float)(10 + i);
    }
    struct sc_kernels_memory memory = {.k_base = (uint8_t *)k,
                                       .v_base = (uint8_t *)v,
                                       .token_stride_bytes = 4,
                                       .head_stride_bytes = UINT64_MAX - 3,
                                       .element_bytes = 4};
    for (uint32_t columns = 0; columns < 2; columns++) {
        memory.k_element_stride_bytes = columns != 0 ? UINT64_MAX - 7 : 0;
        struct sc_kernels_move how = {NULL, &memory, 1, 1, .element_bytes = 4};
        sc_kernels_rows_compact(&how, columns != 0 ? 0 : UINT64_MAX, ROWS, 3);
        for (uint32_t i = 0; i < 3; i++)
            assert_true(k[i] == (columns == 0 ? (float)ROWS[i] : k[i]));
    }
    uint8_t *scales, *codes;
    codes_make(&one, 4, &scales, &codes);
    struct sc_kernels_decode how = {.kernels = sc_kernels_get(SC_KERNELS_REF),
                                    .memory = &memory,
                                    .head_count = 1,
                                    .head_size = 1,
                                    .quantised = {.scales = scales, .codes = codes, .bits = 4},
                                    .dst_dtype = SC_KERNELS_F32};
    sc_kernels_part_decode(&how, 1, 0, one.tokens);
    free(scales);
    free(codes);
}

/* Rows that lie over each other are of no use, and no reason to copy what overlaps. */
static void rows_over_each_other_are_moved(void **state)
{
    (void)state;
    static const uint32_t ROWS[] = {1, 2};
    uint8_t bytes[64], want[64];
    for (uint32_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = want[i] = (uint8_t)i;
    struct sc_kernels_memory memory = {.k_base = bytes,
                                       .v_base = bytes + 32,
                                       .token_stride_bytes = 3,
                                       .head_stride_bytes = 8,
                                       .element_bytes = 1};
    for (uint32_t i = 0; i < 2; i++) {
        memmove(want + 3 * i, want + 3 * ROWS[i], 8);
        memmove(want + 32 + 3 * i, want + 32 + 3 * ROWS[i], 8);
    }
    struct sc_kernels_move how = {NULL, &memory, 1, 8, .element_bytes = 1};
    sc_kernels_rows_compact(&how, UINT64_MAX, ROWS, 2);
    assert_memory_equal(bytes, want, sizeof(bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_run_goes_behind_the_last_slot),
        cmocka_unit_test(a_stride_that_is_not_needed_leads_nowhere),
        cmocka_unit_test(rows_over_each_other_are_moved),
        cmocka_unit_test(every_level_turns_as_the_reference),
        cmocka_unit_test(pack_finds_every_element),
        cmocka_unit_test(unpack_writes_every_element_and_nothing_else),
        cmocka_unit_test(spans_follow_v_s_own_stride),
        cmocka_unit_test(compacting_moves_every_element),
        cmocka_unit_test(codes_are_decoded_into_columns),
        cmocka_unit_test(codes_of_bits_per_channel_are_decoded_into_columns),
        cmocka_unit_test(scores_of_columns_are_those_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
