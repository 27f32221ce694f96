/* Finding the driver: each reason why it cannot be used, then that it can; from several threads,
 * and in a forked child. */
#include "gpu/library.h"
#include "tests/cuda/fake/fake.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct sc_cu *const poison = (const struct sc_cu *)8;

/* Answers UNSUPPORTED, with these words in the text, and writes nothing. */
static void refused(const char *path, spec_status expected, const char *first, const char *second)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct sc_cu *cu = poison;
    assert_int_equal(sc_gpu_library_load(path, &cu, &error), expected);
    assert_ptr_equal(cu, poison);
    if (strstr(error.text, first) == NULL || strstr(error.text, second) == NULL)
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", error.text, first, second);
    assert_int_equal(sc_gpu_library_load(path, &cu, NULL), expected);
}

static void a_library_that_is_not_there_is_a_reason(void **state)
{
    (void)state;
    refused("/nowhere/libcuda.so.1", SPEC_E_UNSUPPORTED, "no CUDA driver", "/nowhere/libcuda.so.1");
}

static void an_old_driver_is_named_with_both_versions(void **state)
{
    (void)state;
    refused(FAKE_CUDA_OLD, SPEC_E_UNSUPPORTED, "CUDA 11.4", "12.0 (driver 525");
    fake_version(11080);
    refused(FAKE_CUDA, SPEC_E_UNSUPPORTED, "CUDA 11.8", "12.0 (driver 525");
    fake_version(13000);
}

static void a_missing_call_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {
#define X(name, version, arguments) #name,
        SC_CU_CALLS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fake_missing(names[i]);
        refused(FAKE_CUDA, SPEC_E_UNSUPPORTED, "lacks", names[i]);
    }
    fake_missing("cuStreamGetCtx");
    refused(FAKE_CUDA, SPEC_E_UNSUPPORTED, "lacks cuStreamGetCtx", "of CUDA 9.2");
    fake_missing(NULL);
}

static void no_device_is_a_reason(void **state)
{
    (void)state;
    fake_devices(0);
    refused(FAKE_CUDA, SPEC_E_UNSUPPORTED, "no CUDA device", "");
    fake_devices(FAKE_DEVICES);
}

static void a_driver_that_fails_says_how(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount"};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        const struct sc_cu *cu = poison;
        fake_fault(calls[i], 1, SC_CU_OUT_OF_MEMORY);
        assert_int_equal(sc_gpu_library_load(FAKE_CUDA, &cu, &error), SPEC_E_UNSUPPORTED);
        assert_true(fake_fired());
        assert_non_null(strstr(error.text, "CUDA 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory"));
        assert_ptr_equal(cu, poison);
    }
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct sc_cu *cu = poison;
    fake_fault("cuInit", 1, 803); /* one that the driver has no name for */
    assert_int_equal(sc_gpu_library_load(FAKE_CUDA, &cu, &error), SPEC_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "CUDA 803 unknown: no text"));
}

/* A child of whoever asked, also in vain, must not touch the lock or the driver. */
static void a_forked_child_is_refused(void **state)
{
    (void)state;
    const struct sc_cu *cu = poison;
    uint64_t calls = fake_calls();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool is_refused = sc_gpu_library_load(FAKE_CUDA, &cu, NULL) == SPEC_E_UNSUPPORTED;
        _exit(is_refused && cu == poison && fake_calls() == calls ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

static void *load_once(void *user)
{
    const struct sc_cu **ret_cu = user;
    if (sc_gpu_library_load(FAKE_CUDA, ret_cu, NULL) != SPEC_OK)
        *ret_cu = NULL;
    return NULL;
}

static void threads_at_once_get_the_same_calls(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    const struct sc_cu *cu[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_once, &cu[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_non_null(cu[i]);
        assert_ptr_equal(cu[i], cu[0]);
    }
    int version = 0;
    assert_int_equal(cu[0]->cuDriverGetVersion(&version), 0);
    assert_int_equal(version, 13000);
}

static void another_library_is_refused_and_the_same_is_not(void **state)
{
    (void)state;
    const struct sc_cu *first = NULL, *again = NULL;
    assert_int_equal(sc_gpu_library_load(FAKE_CUDA, &first, NULL), SPEC_OK);
    refused(FAKE_CUDA_OLD, SPEC_E_INVALID, "another CUDA driver", FAKE_CUDA_OLD);
    refused("/nowhere/libcuda.so.1", SPEC_E_INVALID, "another CUDA driver", "/nowhere");
    assert_int_equal(sc_gpu_library_load(FAKE_CUDA, &again, NULL), SPEC_OK);
    assert_ptr_equal(first, again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_is_not_there_is_a_reason),
        cmocka_unit_test(an_old_driver_is_named_with_both_versions),
        cmocka_unit_test(a_missing_call_is_named),
        cmocka_unit_test(no_device_is_a_reason),
        cmocka_unit_test(a_driver_that_fails_says_how),
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(threads_at_once_get_the_same_calls),
        cmocka_unit_test(another_library_is_refused_and_the_same_is_not),
        cmocka_unit_test(a_forked_child_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
