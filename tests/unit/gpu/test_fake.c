/* The fake driver itself: each of its rules, broken in a child, ends that child with the reason;
 * the policies run what they say. */
#include "tests/unit/gpu/load.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A device of the real code's, entered, and memory to break rules with. */
struct bench {
    struct attached it;
    const struct sc_cu *cu;
    struct sc_gpu_entry entry;
    sc_cu_stream stream, other;
    sc_cu_event event;
    sc_cu_ptr device; /* [4096] */
    uint8_t *host;    /* [4096], registered */
};

static void bench_open(struct bench *bench, enum fake_policy policy)
{
    attached_open(&bench->it);
    bench->cu = bench->it.device->cu;
    fake_policy(policy, 1);
    assert_int_equal(sc_gpu_enter(bench->it.device, &bench->entry, NULL), SPEC_OK);
    assert_int_equal(bench->cu->cuStreamCreate(&bench->stream, 1), 0);
    assert_int_equal(bench->cu->cuStreamCreate(&bench->other, 1), 0);
    assert_int_equal(bench->cu->cuEventCreate(&bench->event, 0), 0);
    assert_int_equal(bench->cu->cuMemAlloc(&bench->device, 4096), 0);
    bench->host = sc_alloc_huge(&bench->it.alloc, 4096);
    assert_int_equal(bench->cu->cuMemHostRegister(bench->host, 4096, SC_CU_HOSTREGISTER_DEVICEMAP),
                     0);
    memset(bench->host, 1, 4096);
}

static void bench_close(struct bench *bench)
{
    assert_int_equal(bench->cu->cuStreamSynchronize(bench->stream), 0);
    assert_int_equal(bench->cu->cuMemHostUnregister(bench->host), 0);
    assert_int_equal(bench->cu->cuMemFree(bench->device), 0);
    assert_int_equal(bench->cu->cuEventDestroy(bench->event), 0);
    assert_int_equal(bench->cu->cuStreamDestroy(bench->stream), 0);
    assert_int_equal(bench->cu->cuStreamDestroy(bench->other), 0);
    sc_alloc_free(&bench->it.alloc, bench->host);
    sc_gpu_leave(bench->it.device, &bench->entry);
    attached_close(&bench->it);
    fake_policy(FAKE_EAGER, 1);
}

static void copies_from_what_is_not_registered(struct bench *bench)
{
    static uint8_t memory[64];
    bench->cu->cuMemcpyHtoDAsync(bench->device, memory, 64, bench->stream);
}

static void copies_to_what_is_not_registered(struct bench *bench)
{
    static uint8_t memory[64];
    bench->cu->cuMemcpyDtoHAsync(memory, bench->device, 64, bench->stream);
}

static void copies_past_the_end(struct bench *bench)
{
    bench->cu->cuMemcpyHtoDAsync(bench->device + 4096 - 63, bench->host, 64, bench->stream);
}

static void changes_a_source_too_soon(struct bench *bench)
{
    bench->cu->cuMemcpyHtoDAsync(bench->device, bench->host, 64, bench->stream);
    bench->host[63] = 2;
    bench->cu->cuStreamSynchronize(bench->stream);
}

static void unregisters_too_soon(struct bench *bench)
{
    bench->cu->cuMemcpyHtoDAsync(bench->device, bench->host, 64, bench->stream);
    bench->cu->cuMemHostUnregister(bench->host);
}

static void enqueues_on_a_captured_stream(struct bench *bench)
{
    fake_capture(bench->stream, 1);
    bench->cu->cuEventRecord(bench->event, bench->stream);
}

static void disturbs_a_capture(struct bench *bench)
{
    sc_cu_ptr at;
    fake_capture(bench->stream, 1);
    sc_gpu_leave(bench->it.device, &bench->entry); /* RELAXED no more */
    bench->cu->cuMemAlloc(&at, 64);
}

static void has_no_context(struct bench *bench)
{
    sc_cu_ptr at;
    sc_gpu_leave(bench->it.device, &bench->entry);
    bench->cu->cuMemAlloc(&at, 64);
}

static void uses_a_destroyed_stream(struct bench *bench)
{
    bench->cu->cuStreamDestroy(bench->stream);
    bench->cu->cuStreamSynchronize(bench->stream);
}

static void uses_a_destroyed_event(struct bench *bench)
{
    bench->cu->cuEventDestroy(bench->event);
    bench->cu->cuEventQuery(bench->event);
}

static void unloads_a_queued_kernel(struct bench *bench)
{
    sc_cu_ptr to = bench->device;
    uint64_t bytes = 1;
    uint32_t byte = 0;
    void *arguments[] = {&to, &bytes, &byte};
    sc_gpu_launch(bench->it.device, bench->stream, FILL_KERNEL, &(struct sc_gpu_grid){.threads = 1},
                  arguments, NULL);
    bench->cu->cuModuleUnload(bench->it.device->module);
}

static void lets_a_kernel_write_past_the_end(struct bench *bench)
{
    sc_cu_ptr to = bench->device;
    uint64_t bytes = 4097;
    uint32_t byte = 0;
    void *arguments[] = {&to, &bytes, &byte};
    sc_gpu_launch(bench->it.device, bench->stream, FILL_KERNEL, &(struct sc_gpu_grid){.threads = 1},
                  arguments, NULL);
    bench->cu->cuStreamSynchronize(bench->stream);
}

static void touches_device_memory(struct bench *bench)
{
    signal(SIGSEGV, SIG_DFL);
    *(volatile uint8_t *)(uintptr_t)bench->device = 1;
}

static void leaves_something(struct bench *bench)
{
    (void)bench;
    exit(0); /* by way of the report at the end */
}

/* How a child that does this ends, as waitpid says it. */
static int ends(void (*breach)(struct bench *bench))
{
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct bench bench;
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(1);
        bench_open(&bench, FAKE_LAZY);
        breach(&bench);
        _exit(0);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    return how;
}

static void a_broken_rule_ends_the_process(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*breach)(struct bench *bench);
    } breaches[] = {
#define BREACH(name) {#name, name}
        BREACH(copies_from_what_is_not_registered),
        BREACH(copies_to_what_is_not_registered),
        BREACH(copies_past_the_end),
        BREACH(changes_a_source_too_soon),
        BREACH(unregisters_too_soon),
        BREACH(enqueues_on_a_captured_stream),
        BREACH(disturbs_a_capture),
        BREACH(has_no_context),
        BREACH(uses_a_destroyed_stream),
        BREACH(uses_a_destroyed_event),
        BREACH(unloads_a_queued_kernel),
        BREACH(lets_a_kernel_write_past_the_end),
        BREACH(leaves_something),
    };
    for (size_t i = 0; i < sizeof(breaches) / sizeof(breaches[0]); i++) {
        int how = ends(breaches[i].breach);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != FAKE_EXIT)
            fail_msg("%s: ended with %#x", breaches[i].name, (unsigned)how);
    }
    int how = ends(touches_device_memory);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV);
}

static void device_memory_and_targets_are_poisoned(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, FAKE_LAZY);
    assert_int_equal(bench.cu->cuMemcpyDtoHAsync(bench.host, bench.device, 4096, bench.stream), 0);
    assert_int_equal(bench.host[0], FAKE_POISON_H);
    assert_int_equal(bench.host[4095], FAKE_POISON_H);
    assert_int_equal(bench.cu->cuStreamSynchronize(bench.stream), 0);
    assert_int_equal(bench.host[0], FAKE_POISON);
    assert_int_equal(bench.host[4095], FAKE_POISON);
    bench_close(&bench);
}

static int has_run(struct bench *bench)
{
    return bench->host[0] != FAKE_POISON_H;
}

static void lazy_runs_what_somebody_waits_for(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, FAKE_LAZY);
    assert_int_equal(bench.cu->cuMemcpyDtoHAsync(bench.host, bench.device, 64, bench.stream), 0);
    assert_int_equal(bench.cu->cuEventRecord(bench.event, bench.stream), 0);
    assert_int_equal(bench.cu->cuStreamSynchronize(bench.other), 0);
    assert_false(has_run(&bench));
    assert_int_equal(bench.cu->cuStreamWaitEvent(bench.other, bench.event, 0), 0);
    assert_false(has_run(&bench));
    assert_int_equal(bench.cu->cuStreamSynchronize(bench.other), 0); /* by way of the event */
    assert_true(has_run(&bench));
    bench_close(&bench);
}

static void eager_runs_at_once(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, FAKE_EAGER);
    assert_int_equal(bench.cu->cuMemcpyDtoHAsync(bench.host, bench.device, 64, bench.stream), 0);
    assert_true(has_run(&bench));
    bench_close(&bench);
}

/* Of a few seeds some starve this stream, and some another. */
static void starve_leaves_one_stream(void **state)
{
    (void)state;
    uint32_t ran = 0, starved = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct bench bench;
        bench_open(&bench, FAKE_EAGER);
        assert_int_equal(bench.cu->cuEventRecord(bench.event, bench.other), 0); /* it is used too */
        assert_int_equal(bench.cu->cuEventRecord(bench.event, bench.stream), 0);
        fake_policy(FAKE_STARVE, seed);
        assert_int_equal(bench.cu->cuMemcpyDtoHAsync(bench.host, bench.device, 64, bench.stream),
                         0);
        if (has_run(&bench))
            ran++;
        else
            starved++;
        bench_close(&bench);
    }
    assert_int_equal(ran, 2);
    assert_int_equal(starved, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_rule_ends_the_process),
        cmocka_unit_test(device_memory_and_targets_are_poisoned),
        cmocka_unit_test(lazy_runs_what_somebody_waits_for),
        cmocka_unit_test(eager_runs_at_once),
        cmocka_unit_test(starve_leaves_one_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
