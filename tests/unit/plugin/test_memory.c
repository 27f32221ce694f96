/* Checking described memory: against a plain loop over every address in wide arithmetic. */
#include "plugin/args/dtype_table.h"
#include "plugin/args/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct sc_plugin_shape SHAPE = {
    .kv_head_count = 3, .head_size = 8, .dtype = SPEC_DTYPE_F16}; /* 16 bytes a head */
static const struct sc_plugin_shape V_SMALLER = {
    .kv_head_count = 3, .head_size = 8, .dtype = SPEC_DTYPE_F16, .head_size_v = 5, .row_bytes = 80};
static const struct sc_plugin_shape NO_V = {
    .kv_head_count = 3, .head_size = 8, .dtype = SPEC_DTYPE_F16, .row_bytes = 48};
__extension__ typedef unsigned __int128 wide_int; /* no sum of ours wraps in it */
static uint64_t area[512];

static struct spec_memory packed(uint64_t tokens)
{
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = area,
                                .v_base = area,
                                .k_bytes = tokens * 48,
                                .v_bytes = tokens * 48,
                                .token_stride_bytes = 48,
                                .head_stride_bytes = 16};
}

static spec_status check_shape(const struct sc_plugin_shape *shape,
                               const struct spec_memory *memory, enum sc_plugin_memory_use use,
                               uint64_t token_count)
{
    struct sc_plugin_memory checked;
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct sc_plugin_memory_need need = {"test: memory", use, shape, token_count};
    spec_status status = sc_plugin_memory_check(memory, &need, &checked, &error);
    if (status != SPEC_OK)
        assert_non_null(strstr(error.text, "test: memory"));
    return status;
}

static spec_status check(const struct spec_memory *memory, enum sc_plugin_memory_use use,
                         uint64_t token_count)
{
    return check_shape(&SHAPE, memory, use, token_count);
}

/* Whether every address lies inside, in 128 bits, token by token. */
static bool is_inside(const struct spec_memory *m, uint64_t size_v, uint64_t token_count)
{
    uint64_t v_head = m->v_head_stride_bytes != 0 ? m->v_head_stride_bytes : m->head_stride_bytes;
    uint64_t k_element = m->k_element_stride_bytes != 0 ? m->k_element_stride_bytes : 2;
    uint64_t v_token =
        m->v_token_stride_bytes != 0 ? m->v_token_stride_bytes : m->token_stride_bytes;
    for (uint64_t j = 0; j < token_count; j++) {
        if (m->slots != NULL && m->slots[j] < 0)
            continue;
        uint64_t slot = m->slots != NULL ? (uint64_t)m->slots[j] : j;
        wide_int at = 0, heads = SHAPE.kv_head_count - 1;
        if (m->block_tokens != 0) {
            at = (wide_int)(slot / m->block_tokens) * m->block_stride_bytes;
            slot %= m->block_tokens;
        }
        if (at + heads * m->head_stride_bytes + (wide_int)slot * m->token_stride_bytes +
                (wide_int)7 * k_element + 2 >
            m->k_bytes)
            return false;
        if (size_v > 0 && at + heads * v_head + (wide_int)slot * v_token + size_v * 2 > m->v_bytes)
            return false;
    }
    return true;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull + 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
}

/* Random strides, blocks, slots and sizes, some near 2^64. */
static void bounds_agree_with_a_loop_over_all_addresses(void **state)
{
    (void)state;
    uint64_t random = 1, inside = 0;
    for (uint32_t round = 0; round < 200000; round++) {
        int64_t slots[12];
        uint64_t r[8];
        for (uint32_t i = 0; i < 8; i++)
            r[i] = random = mix(random + i);
        struct spec_memory m = packed(1);
        uint64_t tokens = r[0] % 12, shift = r[0] >> 60 == 0 ? 52 : 0;
        m.token_stride_bytes = (r[1] % 40 * 2) << shift;
        m.head_stride_bytes = (r[2] % 40 * 2) << shift;
        m.k_element_stride_bytes =
            r[7] & 1 ? (r[7] >> 8) % 40 * 2 << (r[7] >> 61 == 0 ? 55 : 0) : 0;
        m.v_token_stride_bytes = r[7] & 2 ? (r[7] >> 16) % 40 * 2 << (r[7] >> 61 == 1 ? 55 : 0) : 0;
        m.block_tokens = r[3] % 5;
        m.block_stride_bytes = (r[3] >> 8) % 200 * 2;
        m.k_bytes = r[4] % 1500;
        m.v_bytes = r[4] >> 32 & 1 ? m.k_bytes : r[5] % 1500;
        if (shift != 0)
            m.k_bytes = m.v_bytes = UINT64_MAX - r[4] % 4;
        if (r[6] & 1) {
            m.slots = slots;
            m.slot_count = tokens;
            for (uint64_t j = 0; j < tokens; j++) {
                random = mix(random);
                slots[j] = random >> 60 == 0   ? -(int64_t)(random % 5)
                           : random >> 58 == 1 ? INT64_MAX - (int64_t)(random % 3)
                                               : (int64_t)(random % 20);
            }
        }
        const struct sc_plugin_shape *shape = round % 3 == 0   ? &SHAPE
                                              : round % 3 == 1 ? &V_SMALLER
                                                               : &NO_V;
        if (shape == &NO_V) {
            m.v_base = NULL;
            m.v_bytes = 0;
        } else if (shape == &V_SMALLER && r[7] & 4) {
            m.v_head_stride_bytes = (r[7] >> 24) % 40 * 2 << (r[7] >> 61 == 2 ? 55 : 0);
        }
        bool expected = is_inside(&m, sc_plugin_head_size_v(shape), tokens);
        inside += expected;
        spec_status status = check_shape(shape, &m, SC_MEMORY_DESTINATION, tokens);
        if (status != (expected ? SPEC_OK : SPEC_E_INVALID))
            fail_msg("round %u: status %d, expected %s", round, (int)status,
                     expected ? "ok" : "invalid");
    }
    assert_true(inside > 20000 && inside < 180000); /* both ways were tried */
}

static void v_is_there_where_rows_have_it_alone(void **state)
{
    (void)state;
    struct spec_memory m = packed(2);
    m.v_head_stride_bytes = 10;
    assert_int_equal(check_shape(&V_SMALLER, &m, SC_MEMORY_SOURCE, 2), SPEC_OK);
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 2), SPEC_E_INVALID); /* V is as large as K */
    m.v_head_stride_bytes = 9;                                        /* of an element and a half */
    assert_int_equal(check_shape(&V_SMALLER, &m, SC_MEMORY_SOURCE, 2), SPEC_E_INVALID);
    m.v_head_stride_bytes = 16;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 2), SPEC_OK); /* as 0 */
    assert_int_equal(check_shape(&NO_V, &m, SC_MEMORY_SOURCE, 2), SPEC_E_INVALID);
    m.v_base = NULL;
    assert_int_equal(check_shape(&NO_V, &m, SC_MEMORY_SOURCE, 2), SPEC_E_INVALID);
    m.v_bytes = 0;
    assert_int_equal(check_shape(&NO_V, &m, SC_MEMORY_SOURCE, 2), SPEC_OK);
    assert_int_equal(check_shape(&V_SMALLER, &m, SC_MEMORY_SOURCE, 2), SPEC_E_INVALID);
    assert_int_equal(check_shape(&NO_V, &m, SC_MEMORY_KEYS, 2), SPEC_OK);
}

static void one_byte_less_is_refused(void **state)
{
    (void)state;
    for (uint64_t tokens = 1; tokens < 20; tokens++) {
        struct spec_memory m = packed(tokens);
        assert_int_equal(check(&m, SC_MEMORY_SOURCE, tokens), SPEC_OK);
        assert_int_equal(check(&m, SC_MEMORY_SOURCE, tokens + 1), SPEC_E_INVALID);
        m.v_bytes--;
        assert_int_equal(check(&m, SC_MEMORY_SOURCE, tokens), SPEC_E_INVALID);
        m.v_bytes++, m.k_bytes--;
        assert_int_equal(check(&m, SC_MEMORY_SOURCE, tokens), SPEC_E_INVALID);
    }
}

/* K in columns, V in rows behind them: each has its own end, to the byte. Strides at the end of 64
 * bits wrap nothing. */
static void strided_elements_end_where_the_last_one_does(void **state)
{
    (void)state;
    struct spec_memory good = packed(1), m;
    good.token_stride_bytes = 2;
    good.k_element_stride_bytes = 64; /* 32 tokens */
    good.head_stride_bytes = 2 * 512;
    good.v_base = (uint8_t *)area + 512;
    good.v_token_stride_bytes = 16;
    good.k_bytes = 2 * 1024 + 7 * 64 + 10; /* of 5 tokens */
    good.v_bytes = 2 * 1024 + 5 * 16;
    for (uint32_t use = SC_MEMORY_SOURCE; use <= SC_MEMORY_KEYS; use++) {
        assert_int_equal(check(&good, use, 5), SPEC_OK);
        assert_int_equal(check(&good, use, 6), SPEC_E_INVALID);
        m = good, m.k_bytes--;
        assert_int_equal(check(&m, use, 5), SPEC_E_INVALID);
        m = good, m.v_bytes--;
        assert_int_equal(check(&m, use, 5), use == SC_MEMORY_KEYS ? SPEC_OK : SPEC_E_INVALID);
    }
    good.k_bytes = good.v_bytes = UINT64_MAX;
    const uint64_t far[] = {UINT64_MAX - 1, UINT64_C(1) << 63, UINT64_MAX / 7 / 2 * 2 + 2};
    for (uint32_t i = 0; i < 3; i++) {
        m = good, m.k_element_stride_bytes = far[i];
        assert_int_equal(check(&m, SC_MEMORY_SOURCE, 5), SPEC_E_INVALID);
        m = good, m.v_token_stride_bytes = far[i];
        assert_int_equal(check(&m, SC_MEMORY_SOURCE, 9), SPEC_E_INVALID);
    }
    m = good, m.k_element_stride_bytes = (UINT64_MAX - 2 * 1024 - 10) / 7 / 2 * 2;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 5), SPEC_OK);
    m.k_element_stride_bytes += 2;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 5), SPEC_E_INVALID);
}

/* What lies side by side needs no columns, and takes no slower way. */
static void an_element_stride_of_one_element_is_none(void **state)
{
    (void)state;
    struct spec_memory m = packed(2);
    struct sc_plugin_memory checked;
    const struct sc_plugin_memory_need need = {"test: memory", SC_MEMORY_SOURCE, &SHAPE, 2};
    for (m.k_element_stride_bytes = 0; m.k_element_stride_bytes <= 2;
         m.k_element_stride_bytes += 2) {
        assert_int_equal(sc_plugin_memory_check(&m, &need, &checked, NULL), SPEC_OK);
        assert_int_equal(checked.at.k_element_stride_bytes, 0);
        assert_int_equal(checked.at.v_token_stride_bytes, 48);
    }
}

static void negative_slots_are_for_loads_only(void **state)
{
    (void)state;
    int64_t slots[3] = {2, -1, 0};
    struct spec_memory m = packed(3);
    m.slots = slots;
    m.slot_count = 3;
    assert_int_equal(check(&m, SC_MEMORY_DESTINATION, 3), SPEC_OK);
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 3), SPEC_E_INVALID);
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_OK); /* only the first is used */
    m.slot_count = 2;
    assert_int_equal(check(&m, SC_MEMORY_DESTINATION, 3), SPEC_E_INVALID);
}

static void bases_and_strides_are_aligned_to_the_element(void **state)
{
    (void)state;
    struct spec_memory good = packed(4), m = good;
    m.k_base = (uint8_t *)area + 1;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 2), SPEC_E_INVALID);
    m = good, m.v_base = (uint8_t *)area + 3;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 2), SPEC_E_INVALID);
    m = good, m.token_stride_bytes = 49;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
    m = good, m.head_stride_bytes = 17;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
    m = good, m.k_element_stride_bytes = 3;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
    m = good, m.v_token_stride_bytes = 49;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
    assert_int_equal(check(&m, SC_MEMORY_KEYS, 1), SPEC_OK); /* V is not looked at */
    m = good, m.block_tokens = 1, m.block_stride_bytes = 49;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
    m = good, m.k_base = NULL;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
    m = good, m.v_base = NULL;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
}

/* Which dtype may go where, for each stored one. */
static void only_exact_widening_is_allowed(void **state)
{
    (void)state;
    for (uint32_t stored = SPEC_DTYPE_F32; stored <= SPEC_DTYPE_BYTES; stored++)
        for (uint32_t dtype = 0; dtype <= SPEC_DTYPE_BYTES + 1; dtype++)
            for (uint32_t use = SC_MEMORY_SOURCE; use <= SC_MEMORY_DESTINATION; use++) {
                struct sc_plugin_shape shape = {
                    .kv_head_count = 1, .head_size = 2, .dtype = stored};
                struct spec_memory m = packed(1);
                struct sc_plugin_memory checked;
                m.dtype = dtype;
                const struct sc_plugin_memory_need need = {
                    "test: memory", (enum sc_plugin_memory_use)use, &shape, 1};
                spec_status status = sc_plugin_memory_check(&m, &need, &checked, NULL);
                bool widens = use == SC_MEMORY_DESTINATION && dtype == SPEC_DTYPE_F32 &&
                              (stored == SPEC_DTYPE_F16 || stored == SPEC_DTYPE_BF16);
                assert_int_equal(status, dtype == stored || widens ? SPEC_OK : SPEC_E_INVALID);
                if (status == SPEC_OK)
                    assert_int_equal(checked.widens, widens);
            }
}

static void devices_that_are_not_here_are_refused(void **state)
{
    (void)state;
    struct spec_memory m = packed(1);
    m.device = SPEC_DEVICE_CUDA;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_UNSUPPORTED);
    m.device = 2;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
    m.device = SPEC_DEVICE_HOST, m.device_index = 1;
    assert_int_equal(check(&m, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
    assert_int_equal(check(NULL, SC_MEMORY_SOURCE, 1), SPEC_E_INVALID);
}

/* None but the known ones have bytes, or are one of the kernels': no other is taken for one. */
static void unknown_dtypes_are_none(void **state)
{
    (void)state;
    assert_int_equal(sc_plugin_kernels_dtype(SPEC_DTYPE_F32), SC_KERNELS_F32);
    assert_int_equal(sc_plugin_kernels_dtype(SPEC_DTYPE_F16), SC_KERNELS_F16);
    assert_int_equal(sc_plugin_kernels_dtype(SPEC_DTYPE_BF16), SC_KERNELS_BF16);
    for (uint32_t dtype = SPEC_DTYPE_FP8_E4M3; dtype <= SPEC_DTYPE_BYTES; dtype++) {
        assert_int_equal(sc_plugin_dtype_bytes(dtype), 1);
        assert_false(sc_plugin_dtype_is_scored(dtype));
        assert_int_equal(sc_plugin_kernels_dtype(dtype), SC_PLUGIN_DTYPE_NONE);
    }
    static const uint32_t UNKNOWN[] = {0, SPEC_DTYPE_BYTES + 1, 9, 255, UINT32_MAX};
    for (uint32_t i = 0; i < sizeof(UNKNOWN) / sizeof(UNKNOWN[0]); i++) {
        assert_int_equal(sc_plugin_dtype_bytes(UNKNOWN[i]), 0);
        assert_int_equal(sc_plugin_kernels_dtype(UNKNOWN[i]), SC_PLUGIN_DTYPE_NONE);
        for (uint32_t use = SC_MEMORY_SOURCE; use <= SC_MEMORY_KEYS; use++) {
            struct spec_memory memory = packed(4);
            memory.dtype = UNKNOWN[i];
            assert_int_equal(check(&memory, use, 4), SPEC_E_INVALID);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_agree_with_a_loop_over_all_addresses),
        cmocka_unit_test(v_is_there_where_rows_have_it_alone),
        cmocka_unit_test(one_byte_less_is_refused),
        cmocka_unit_test(strided_elements_end_where_the_last_one_does),
        cmocka_unit_test(an_element_stride_of_one_element_is_none),
        cmocka_unit_test(negative_slots_are_for_loads_only),
        cmocka_unit_test(bases_and_strides_are_aligned_to_the_element),
        cmocka_unit_test(only_exact_widening_is_allowed),
        cmocka_unit_test(unknown_dtypes_are_none),
        cmocka_unit_test(devices_that_are_not_here_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
