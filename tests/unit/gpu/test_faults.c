/* Every call of the driver that an attach, a load and a detach make fails once; and a kernel
 * crashes at every step. Each time a status comes back, or the bytes are right; frames come back
 * once, and not too soon; nothing is left on the device. */
#include "tests/unit/gpu/load.h"

static const char *const calls[] = {
#define X(name, version, arguments) #name,
    SC_CU_CALLS(X)
#undef X
};

/* Whether the fault was met. */
static bool load_with_fault(const char *call, int n, int code, enum fake_policy policy)
{
    struct load_host host;
    fake_policy(FAKE_EAGER, 1);
    load_host_open(&host, (uint64_t)n);
    fake_policy(policy, (uint64_t)n);
    load_host_work_before(&host);
    fake_fault(call, n, code);
    spec_status status = load_whole(&host, false);
    bool is_met = fake_fired() != 0;
    fake_fault(NULL, 0, 0);
    if (status == SPEC_OK)
        load_host_check(&host);
    else if (status != SPEC_E_UNSUPPORTED && status != SPEC_E_IO)
        fail_msg("%s number %d: status %d", call, n, status);
    else
        assert_true(is_met);
    fake_policy(FAKE_EAGER, 1);
    load_host_close(&host);
    if (fake_leaks() != NULL)
        fail_msg("%s number %d: left: %s", call, n, fake_leaks());
    return is_met;
}

static void each_call_may_fail(void **state)
{
    (void)state;
    unsigned met = 0;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        for (int n = 1; load_with_fault(calls[i], n, SC_CU_OUT_OF_MEMORY, FAKE_LAZY); n++)
            met++;
    printf("%u faults, each a status\n", met);
    assert_true(met > 200);
}

static void each_call_may_fail_while_a_stream_starves(void **state)
{
    (void)state;
    static const char *const some[] = {"cuMemcpyHtoDAsync", "cuEventRecord", "cuStreamWaitEvent",
                                       "cuLaunchKernel",    "cuEventQuery",  "cuEventSynchronize"};
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
        for (int n = 1; load_with_fault(some[i], n, SC_CU_LAUNCH_FAILED, FAKE_STARVE); n++)
            continue;
}

/* From the n-th operation on the context is dead: every call says so, nothing runs any more. */
static void a_crashed_context_gives_everything_back(void **state)
{
    (void)state;
    for (int n = 1; n < 40; n++) {
        struct load_host host;
        fake_policy(FAKE_EAGER, 1);
        load_host_open(&host, (uint64_t)n);
        fake_policy(FAKE_LAZY, (uint64_t)n);
        load_host_work_before(&host);
        fake_crash(n, SC_CU_LAUNCH_FAILED);
        spec_status status = load_whole(&host, false);
        assert_int_equal(status, SPEC_E_IO);
        fake_sticky(0);
        fake_policy(FAKE_EAGER, 1);
        load_host_close(&host);
        assert_null(fake_leaks());
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_may_fail),
        cmocka_unit_test(each_call_may_fail_while_a_stream_starves),
        cmocka_unit_test(a_crashed_context_gives_everything_back),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
