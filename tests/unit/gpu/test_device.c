/* Attaching and entering a device: what is refused, what is as it was before, what an error closes,
 * what a forked child may do, several users at once. */
#include "base/fault.h"
#include "gpu/work.h"
#include "tests/unit/gpu/attached.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* Refused with these words; nothing is left. */
static void refused(struct attached *it, spec_status expected, const char *words)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(sc_gpu_device_attach(&it->params, &it->device, &error), expected);
    assert_null(it->device);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    attached_check_none_left(it);
}

static void what_cannot_be_attached_says_why(void **state)
{
    (void)state;
    struct attached it;
    attached_init(&it);
    it.params.image_count = 0;
    it.params.library_path = "/nowhere/libcuda.so.1"; /* is not even looked for */
    refused(&it, SPEC_E_UNSUPPORTED, "built without kernels");
    it.params.image_count = 1;
    refused(&it, SPEC_E_UNSUPPORTED, "no CUDA driver");
    attached_init(&it);
    it.params.slot_count = 0;
    refused(&it, SPEC_E_INVALID, "slot_count");
    attached_init(&it);
    it.params.ordinal = FAKE_DEVICES;
    refused(&it, SPEC_E_UNSUPPORTED, "no CUDA device 2, there are 2");
    attached_init(&it);
    fake_capability(70);
    refused(&it, SPEC_E_UNSUPPORTED, "has capability 7.0, needed is 7.5");
    fake_capability(90);
    static const char cubin[] = "\177ELF and so on";
    const struct sc_gpu_image sm_80 = {80, SC_GPU_CUBIN, cubin, sizeof(cubin)};
    it.params.images = &sm_80;
    refused(&it, SPEC_E_UNSUPPORTED, "no kernels for capability 9.0");
    attached_init(&it);
    const struct sc_gpu_image broken = {80, SC_GPU_PTX, "no image", 9};
    it.params.images = &broken;
    refused(&it, SPEC_E_UNSUPPORTED, "ptxas fatal : fake");
    attached_init(&it);
    static const char *const unknown[] = {"fake_copy", "no_such_kernel"};
    it.params.kernels = unknown;
    refused(&it, SPEC_E_UNSUPPORTED, "no_such_kernel: CUDA 500");
}

static void a_device_gets_the_image_that_fits_best(void **state)
{
    (void)state;
    const struct sc_gpu_image endless = {80, SC_GPU_PTX, "PTX", 3}; /* without its NUL */
    assert_null(sc_gpu_image_select(&endless, 1, 90));
    static const struct sc_gpu_image all[] = {
        {80, SC_GPU_PTX, "", 1},    {75, SC_GPU_PTX, "", 1},     {100, SC_GPU_PTX, "", 1},
        {80, SC_GPU_CUBIN, "", 1},  {86, SC_GPU_CUBIN, "", 1},   {90, SC_GPU_CUBIN, "", 1},
        {120, SC_GPU_CUBIN, "", 1}, {110, SC_GPU_FATBIN, "", 1}, {89, SC_GPU_CUBIN, "", 0}};
    static const struct {
        uint32_t capability;
        int image; /* -1: none */
    } expected[] = {{70, -1}, {75, 1}, {78, 1},  {80, 3},  {85, 3},  {86, 4},  {89, 4},
                    {90, 5},  {95, 5}, {100, 2}, {103, 2}, {110, 7}, {120, 6}, {130, 7}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const struct sc_gpu_image *image = sc_gpu_image_select(all, 9, expected[i].capability);
        assert_ptr_equal(image, expected[i].image < 0 ? NULL : &all[expected[i].image]);
    }
    assert_null(sc_gpu_image_select(all, 0, 90));
}

static void attach_and_detach_leave_nothing(void **state)
{
    (void)state;
    struct attached it;
    for (int i = 0; i < 3; i++) {
        attached_open(&it);
        assert_int_equal(it.device->capability, 90);
        assert_int_equal(it.device->multiprocessors, 132);
        assert_string_equal(it.device->name, "fake device 0");
        assert_ptr_equal(fake_image(), kernels_ptx);
        assert_non_null(fake_leaks());
        attached_close(&it);
    }
    sc_gpu_device_detach(NULL);
}

static void no_memory_of_the_hosts_is_a_status(void **state)
{
    (void)state;
    struct sc_fault fault;
    uint32_t failed = 0;
    sc_fault_init(&fault);
    for (uint64_t n = 0;; n++) {
        struct attached it;
        attached_init(&it);
        it.alloc.fault = &fault;
        uint64_t fired = atomic_load(&fault.fired[SC_FAULT_ALLOC]);
        sc_fault_arm(&fault, SC_FAULT_ALLOC, n);
        spec_status status = sc_gpu_device_attach(&it.params, &it.device, NULL);
        if (atomic_load(&fault.fired[SC_FAULT_ALLOC]) == fired) {
            assert_int_equal(status, SPEC_OK);
            attached_close(&it);
            break;
        }
        assert_int_equal(status, SPEC_E_NO_MEMORY);
        attached_check_none_left(&it);
        failed++;
    }
    assert_true(failed >= 4);
}

static void context_and_capture_mode_are_as_before(void **state)
{
    (void)state;
    struct attached it, other;
    struct sc_gpu_entry entry, inner, theirs;
    sc_cu_context now = NULL;
    attached_open(&it);
    attached_init(&other);
    other.params.ordinal = 1;
    assert_int_equal(sc_gpu_device_attach(&other.params, &other.device, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_enter(other.device, &theirs, NULL), SPEC_OK); /* the host's, say */
    sc_cu_capture_mode mode = 1; /* THREAD_LOCAL, the host's */
    assert_int_equal(it.device->cu->cuThreadExchangeStreamCaptureMode(&mode), 0);

    assert_int_equal(sc_gpu_enter(it.device, &entry, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_enter(it.device, &inner, NULL), SPEC_OK);
    assert_int_equal(it.device->cu->cuCtxGetCurrent(&now), 0);
    assert_ptr_equal(now, it.device->context);
    assert_int_equal(fake_mode(), SC_CU_CAPTURE_MODE_RELAXED);
    sc_gpu_leave(it.device, &inner);
    assert_int_equal(fake_mode(), SC_CU_CAPTURE_MODE_RELAXED);
    sc_gpu_leave(it.device, &entry);

    assert_int_equal(it.device->cu->cuCtxGetCurrent(&now), 0);
    assert_ptr_equal(now, other.device->context);
    assert_int_equal(fake_mode(), 1);
    assert_int_equal(it.device->cu->cuThreadExchangeStreamCaptureMode(&mode), 0);
    sc_gpu_leave(other.device, &theirs);
    sc_gpu_device_detach(it.device);
    attached_close(&other);
    attached_check_none_left(&it);
}

/* Attach, detach and an entry beside a capture in the same context: the fake ends the process where
 * a real driver would break the capture. */
static void a_capture_elsewhere_goes_on(void **state)
{
    (void)state;
    struct attached it, later;
    struct sc_gpu_entry entry;
    sc_cu_stream captured;
    attached_open(&it);
    assert_int_equal(sc_gpu_enter(it.device, &entry, NULL), SPEC_OK);
    assert_int_equal(it.device->cu->cuStreamCreate(&captured, 1), 0);
    fake_capture(captured, 1);
    sc_gpu_leave(it.device, &entry);
    attached_open(&later);
    sc_gpu_device_detach(later.device);
    assert_int_equal(sc_gpu_enter(it.device, &entry, NULL), SPEC_OK);
    fake_capture(captured, 0);
    assert_int_equal(it.device->cu->cuStreamDestroy(captured), 0);
    sc_gpu_leave(it.device, &entry);
    attached_close(&it);
}

static void streams_and_memory_of_others_are_invalid(void **state)
{
    (void)state;
    struct attached it, other;
    struct sc_gpu_entry entry;
    sc_cu_stream mine, theirs;
    attached_open(&it);
    attached_init(&other);
    other.params.ordinal = 1;
    assert_int_equal(sc_gpu_device_attach(&other.params, &other.device, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_enter(other.device, &entry, NULL), SPEC_OK);
    assert_int_equal(it.device->cu->cuStreamCreate(&theirs, 1), 0);
    sc_gpu_leave(other.device, &entry);
    assert_int_equal(sc_gpu_enter(it.device, &entry, NULL), SPEC_OK);
    assert_int_equal(it.device->cu->cuStreamCreate(&mine, 1), 0);
    struct sc_gpu_slot *slot = &it.device->slots[0];

    uint64_t enqueued = fake_enqueued();
    assert_int_equal(sc_gpu_stream_check(it.device, mine, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_stream_check(it.device, NULL, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_stream_check(it.device, theirs, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_gpu_begin(it.device, slot, theirs, SC_GPU_KERNELS, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_gpu_end_wait(it.device, slot, theirs, NULL), SPEC_E_INVALID);
    fake_capture(mine, 1);
    assert_int_equal(sc_gpu_begin(it.device, slot, mine, SC_GPU_KERNELS, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_gpu_end_wait(it.device, slot, mine, NULL), SPEC_E_INVALID);
    fake_capture(mine, 0);
    static const struct {
        const char *call;
        int code;
    } mistakes[] = {{"cuStreamIsCapturing", SC_CU_CAPTURE_IMPLICIT},
                    {"cuStreamIsCapturing", SC_CU_INVALID_HANDLE},
                    {"cuStreamGetCtx", SC_CU_INVALID_HANDLE},
                    {"cuStreamGetCtx", SC_CU_NOT_SUPPORTED}};
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        fake_fault(mistakes[i].call, 1, mistakes[i].code);
        assert_int_equal(sc_gpu_begin(it.device, slot, mine, SC_GPU_KERNELS, NULL), SPEC_E_INVALID);
        assert_true(fake_fired());
    }
    assert_int_equal(fake_enqueued(), enqueued);

    sc_cu_ptr here = it.device->staging_base, there = other.device->staging_base;
    uint64_t bytes = it.params.staging_bytes;
    int host = 0;
    assert_int_equal(sc_gpu_memory_check(it.device, here, bytes, NULL), SPEC_OK);
    assert_int_equal(sc_gpu_memory_check(it.device, here, bytes + 1, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_gpu_memory_check(it.device, here, 0, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_gpu_memory_check(it.device, here, UINT64_MAX, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_gpu_memory_check(it.device, there, 1, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_gpu_memory_check(it.device, (uintptr_t)&host, 1, NULL), SPEC_E_INVALID);
    assert_false(sc_gpu_has_failed(it.device)); /* the host's mistakes close nothing */

    assert_int_equal(it.device->cu->cuStreamDestroy(mine), 0);
    assert_int_equal(it.device->cu->cuStreamDestroy(theirs), 0);
    sc_gpu_leave(it.device, &entry);
    sc_gpu_device_detach(it.device);
    attached_close(&other);
}

static void an_error_closes_the_device_for_good(void **state)
{
    (void)state;
    struct attached it;
    struct sc_gpu_entry entry, never;
    struct spec_error error = {.struct_size = sizeof(error)};
    attached_open(&it);
    assert_int_equal(sc_gpu_enter(it.device, &entry, NULL), SPEC_OK);
    fake_sticky(SC_CU_LAUNCH_FAILED);
    assert_int_equal(sc_gpu_end(it.device, &it.device->slots[0], &error), SPEC_E_IO);
    assert_non_null(strstr(error.text, "CUDA 719 CUDA_ERROR_LAUNCH_FAILED"));
    char first[sizeof(error.text)];
    memcpy(first, error.text, sizeof(first));
    fake_sticky(0);
    sc_gpu_leave(it.device, &entry);
    assert_true(sc_gpu_has_failed(it.device));
    uint64_t calls = fake_calls();
    assert_int_equal(sc_gpu_enter(it.device, &never, &error), SPEC_E_UNSUPPORTED);
    const char *why = strstr(error.text, "closed since ");
    assert_non_null(why);
    assert_string_equal(why + strlen("closed since "), first); /* the call's name with it */
    assert_int_equal(fake_calls(), calls);
    fake_sticky(SC_CU_LAUNCH_FAILED);
    attached_close(&it); /* though every call on the device fails */
    fake_sticky(0);
    attached_open(&it); /* another connector may try again */
    attached_close(&it);
}

static void a_forked_child_touches_nothing(void **state)
{
    (void)state;
    struct attached it;
    struct sc_gpu_entry entry;
    attached_open(&it);
    struct sc_gpu_range range;
    assert_true(sc_gpu_staging_take(&it.device->staging, 1, &range));
    uint64_t calls = fake_calls();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool is_refused = sc_gpu_enter(it.device, &entry, NULL) == SPEC_E_UNSUPPORTED;
        sc_gpu_device_detach(it.device);
        bool is_clean = atomic_load(&it.alloc.live_blocks) == 0 && fake_calls() == calls &&
                        atomic_load(&it.poison.broken) == 0;
        _exit(is_refused && is_clean ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_int_equal(sc_gpu_enter(it.device, &entry, NULL), SPEC_OK);
    sc_gpu_leave(it.device, &entry);
    sc_gpu_staging_give(&it.device->staging, &range);
    attached_close(&it);
}

static void *attach_often(void *user)
{
    const uint32_t *ordinal = user;
    for (int i = 0; i < 5; i++) {
        struct attached it;
        struct sc_gpu_entry entry;
        attached_init(&it);
        it.params.ordinal = *ordinal;
        if (sc_gpu_device_attach(&it.params, &it.device, NULL) != SPEC_OK)
            return user;
        for (int j = 0; j < 20; j++) {
            if (sc_gpu_enter(it.device, &entry, NULL) != SPEC_OK)
                return user;
            spec_status status = sc_gpu_end(it.device, &it.device->slots[j % 2], NULL);
            sc_gpu_leave(it.device, &entry);
            if (status != SPEC_OK)
                return user;
        }
        sc_gpu_device_detach(it.device);
        if (atomic_load(&it.alloc.live_blocks) != 0 || fake_depth() != 0 || fake_mode() != 0)
            return user;
    }
    return NULL;
}

/* Two devices, and two users of each. */
static void users_at_once_do_not_meet(void **state)
{
    (void)state;
    enum { USERS = 4 };
    pthread_t threads[USERS];
    uint32_t ordinals[USERS];
    fake_policy(FAKE_LAZY, 1);
    for (uint32_t i = 0; i < USERS; i++) {
        ordinals[i] = i % FAKE_DEVICES;
        assert_int_equal(pthread_create(&threads[i], NULL, attach_often, &ordinals[i]), 0);
    }
    for (int i = 0; i < USERS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    fake_policy(FAKE_EAGER, 1);
    assert_null(fake_leaks());
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_attached_says_why),
        cmocka_unit_test(a_device_gets_the_image_that_fits_best),
        cmocka_unit_test(attach_and_detach_leave_nothing),
        cmocka_unit_test(no_memory_of_the_hosts_is_a_status),
        cmocka_unit_test(context_and_capture_mode_are_as_before),
        cmocka_unit_test(a_capture_elsewhere_goes_on),
        cmocka_unit_test(streams_and_memory_of_others_are_invalid),
        cmocka_unit_test(an_error_closes_the_device_for_good),
        cmocka_unit_test(a_forked_child_touches_nothing),
        cmocka_unit_test(users_at_once_do_not_meet),
    };
    if (argc > 1) /* for the mutants */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
