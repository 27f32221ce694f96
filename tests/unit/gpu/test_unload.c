/* A shared object that uses gpu/ is loaded, attaches, is unloaded, and all of it again: the driver
 * stays loaded, and the next one finds it. */
#include "base/alloc.h"
#include "tests/cuda/fake/fake.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void unloading_leaves_nothing_and_loading_works_again(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sc_alloc alloc;
        sc_alloc_init(&alloc);
        void *handle = dlopen(GPU_GUEST, RTLD_NOW | RTLD_LOCAL);
        assert_non_null(handle);
        int (*guest)(struct sc_alloc *, const char *) = NULL;
        void *found = dlsym(handle, "gpu_guest");
        memcpy(&guest, &found, sizeof(found));
        assert_non_null(guest);
        uint64_t calls = fake_calls();
        assert_int_equal(guest(&alloc, FAKE_CUDA), 0);
        assert_true(fake_calls() > calls);
        assert_int_equal(guest(&alloc, FAKE_CUDA), 0);
        assert_int_equal(atomic_load(&alloc.live_blocks), 0);
        assert_null(fake_leaks());
        assert_int_equal(dlclose(handle), 0);
        assert_null(dlopen(GPU_GUEST, RTLD_NOW | RTLD_NOLOAD)); /* it is gone */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unloading_leaves_nothing_and_loading_works_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
