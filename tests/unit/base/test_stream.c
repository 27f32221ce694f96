/* Streaming copies: memcpy's bytes at every alignment, and none outside of them. */
#include "base/nt_copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POISON  0xa5
#define AROUND  128u
#define LARGEST (1u << 16)

static void stream_is_memcpy_at_every_alignment(void **state)
{
    (void)state;
    static const uint64_t SIZES[] = {0, 1, 63, 64, 65, 255, 256, 257, 319, 320, 4096, LARGEST};
    uint8_t *src = aligned_alloc(64, LARGEST + 2 * AROUND);
    uint8_t *dst = aligned_alloc(64, LARGEST + 2 * AROUND);
    assert_true(src != NULL && dst != NULL);
    for (uint64_t i = 0; i < LARGEST + 2 * AROUND; i++)
        src[i] = (uint8_t)(i * 40503u % 160); /* never POISON's 165 */
    for (uint32_t size = 0; size < sizeof(SIZES) / sizeof(SIZES[0]); size++)
        for (uint64_t to = 0; to < 65; to++) {
            uint64_t from = to * 7 % 65, bytes = SIZES[size];
            memset(dst, POISON, AROUND + bytes + AROUND);
            sc_nt_copy(dst + to, src + from, bytes);
            sc_nt_copy_end();
            for (uint64_t i = 0; i < to; i++)
                assert_int_equal(dst[i], POISON);
            assert_memory_equal(dst + to, src + from, bytes);
            for (uint64_t i = to + bytes; i < AROUND + bytes; i++)
                assert_int_equal(dst[i], POISON);
        }
    free(src);
    free(dst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_is_memcpy_at_every_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
