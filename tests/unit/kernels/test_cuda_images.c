/* Images of the CUDA kernels, as they lie in this program: each is what it says, and has every
 * kernel by name where names can be read. */
#include "kernels/cuda/images.h"
#include "kernels/cuda/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NAME(name, params, threads) #name,
static const char *const NAMES[] = {SC_CUDA_KERNELS(NAME)};
#define NAME_COUNT (sizeof(NAMES) / sizeof(NAMES[0]))

static void each_image_is_what_it_says(void **state)
{
    (void)state;
    uint32_t count = UINT32_MAX;
    const struct sc_cuda_image *images = sc_cuda_images(&count);
    assert_true(count < 16);
    if (count == 0) {
        printf("skipped: no CUDA compiler, so there are no images\n");
        skip();
    }
    for (uint32_t i = 0; i < count; i++) {
        static const uint8_t FATBIN[] = {0x50, 0xed, 0x55, 0xba}, ELF[] = {0x7f, 'E', 'L', 'F'};
        const struct sc_cuda_image *image = &images[i];
        assert_true(image->size > 4096 && image->size < 16 << 20);
        assert_int_equal((uintptr_t)image->bytes % 64, 0);
        assert_int_equal(image->bytes[image->size], 0);
        assert_true(image->capability >= 75 && image->capability < 200);
        if (image->kind == SC_CUDA_IMAGE_FATBIN) /* compressed: no names to be read */
            assert_memory_equal(image->bytes, FATBIN, sizeof(FATBIN));
        if (image->kind == SC_CUDA_IMAGE_CUBIN)
            assert_memory_equal(image->bytes, ELF, sizeof(ELF));
        if (image->kind == SC_CUDA_IMAGE_PTX)
            assert_int_equal(strlen((const char *)image->bytes), image->size);
        for (uint32_t n = 0; n < NAME_COUNT && image->kind != SC_CUDA_IMAGE_FATBIN; n++)
            assert_non_null(memmem(image->bytes, image->size, NAMES[n], strlen(NAMES[n])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_image_is_what_it_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
