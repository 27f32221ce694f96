/* The same load, by whatever libcuda.so.1 the loader finds: a real driver, where there is one. A
 * second ctest runs this program with the fake in the loader's path, so that the program itself is
 * known to work. Its rules are not asked for here: what the fake is asked is answered below. */
#include "gpu/library.h"
#include "tests/unit/gpu/load.h"

#include <dlfcn.h>

void fake_policy(enum fake_policy policy, uint64_t seed)
{
    (void)policy;
    (void)seed;
}

int fake_depth(void)
{
    return 0;
}

int fake_mode(void)
{
    return 0;
}

const char *fake_leaks(void)
{
    return NULL;
}

/* Says why and skips where there is no device that can be attached. */
static void device_or_skip(void)
{
    struct attached it;
    struct spec_error error = {.struct_size = sizeof(error)};
    attached_init(&it);
    if (sc_gpu_device_attach(&it.params, &it.device, &error) != SPEC_OK) {
        printf("skipped: no CUDA device: %s\n", error.text);
        skip();
    }
    printf("%s, capability %u\n", it.device->name, it.device->capability);
    attached_close(&it);
}

static void loads_are_right_on_this_driver(void **state)
{
    (void)state;
    device_or_skip();
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct load_host host;
        load_host_open(&host, seed);
        for (int i = 0; i < 3; i++) {
            load_host_work_before(&host);
            assert_int_equal(load_whole(&host, true), SPEC_OK);
        }
        load_host_close(&host);
    }
}

static void memory_is_known_by_this_driver(void **state)
{
    (void)state;
    device_or_skip();
    struct load_host host;
    struct sc_gpu_entry entry;
    load_host_open(&host, 1);
    struct sc_gpu_device *device = host.attached.device;
    assert_int_equal(sc_gpu_enter(device, &entry, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_memory_check(device, host.destination, LOAD_BYTES, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_memory_check(device, (uintptr_t)host.before, 1, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_gpu_memory_check(device, (uintptr_t)&host, 1, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_gpu_stream_check(device, host.stream, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_stream_check(device, NULL, NULL), SPEC_OK);
    assert_false(sc_gpu_has_failed(device));
    sc_gpu_leave(device, &entry);
    load_host_close(&host);
}

/* Loads beside a capture of the host's in GLOBAL mode; the captured stream is INVALID. */
static void a_capture_survives_on_this_driver(void **state)
{
    (void)state;
    device_or_skip();
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *begin_at = library ? dlsym(library, "cuStreamBeginCapture_v2") : NULL;
    void *end_at = library ? dlsym(library, "cuStreamEndCapture") : NULL;
    if (begin_at == NULL || end_at == NULL) {
        printf("skipped: no CUDA captures in this driver\n");
        skip();
    }
    sc_cu_result (*begin)(sc_cu_stream stream, sc_cu_capture_mode mode);
    sc_cu_result (*end)(sc_cu_stream stream, void **graph);
    memcpy(&begin, &begin_at, sizeof(begin));
    memcpy(&end, &end_at, sizeof(end));

    struct load_host host;
    struct sc_gpu_entry entry;
    sc_cu_stream captured = NULL;
    void *graph = NULL;
    load_host_open(&host, 1);
    struct sc_gpu_device *device = host.attached.device;
    assert_int_equal(sc_gpu_enter(device, &entry, NULL), SPEC_OK);
    assert_int_equal(device->cu->cuStreamCreate(&captured, SC_CU_STREAM_NON_BLOCKING), 0);
    sc_gpu_leave(device, &entry);
    sc_cu_context context = device->context;
    assert_int_equal(device->cu->cuCtxPushCurrent(context), 0);
    assert_int_equal(begin(captured, 0), 0);
    assert_int_equal(sc_gpu_enter(device, &entry, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_begin(device, &device->slots[0], captured, SC_GPU_KERNELS, NULL),
                     SPEC_E_INVALID);
    sc_gpu_leave(device, &entry);
    assert_int_equal(load_whole(&host, false), SPEC_OK);
    assert_int_equal(end(captured, &graph), 0);
    assert_non_null(graph);
    assert_int_equal(device->cu->cuCtxPopCurrent(&context), 0);
    load_host_check(&host);
    assert_int_equal(device->cu->cuStreamDestroy(captured), 0);
    load_host_close(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_are_right_on_this_driver),
        cmocka_unit_test(memory_is_known_by_this_driver),
        cmocka_unit_test(a_capture_survives_on_this_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
