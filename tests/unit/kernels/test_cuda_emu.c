/* The emulation of CUDA threads itself: kernels that are right give their results in every order of
 * threads, and each mistake of wrong.h ends a process that makes it, with a line that says which.
 */
#include "tests/cuda/emu/wrong.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BLOCKS  3u
#define THREADS 96u
#define ORDERS  16u

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#endif

#if defined(SC_SANITIZED_THREAD)
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=0"; /* there are no other threads to wait for */
}
#endif

static _Alignas(16) uint32_t out[BLOCKS * 256];

static int run(const char *name, uint32_t count, uint64_t seed)
{
    const struct emu_kernel *kernel = emu_wrong_find(name);
    struct emu_wrong what = {out, count};
    void *const params[] = {&what};
    assert_non_null(kernel);
    return emu_run(kernel, params, (const uint32_t[]){BLOCKS, 1, 1},
                   (const uint32_t[]){THREADS, 1, 1}, 0, seed);
}

static void right_kernels_give_their_results_in_every_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < ORDERS; seed++) {
        memset(out, 0, sizeof(out));
        assert_int_equal(run("emu_sum", 5, seed), 0);
        for (uint32_t i = 0; i < BLOCKS * 256; i++)
            assert_int_equal(out[i],
                             i % 256 < THREADS ? 5 * THREADS + THREADS * (THREADS - 1) / 2 : 0);
        assert_int_equal(run("emu_exchange", 0, seed), 0);
        for (uint32_t i = 0; i < THREADS; i++) {
            uint32_t lane = i % 32, up = lane > 0 ? lane - 1 : 0, down = lane < 31 ? lane + 1 : 31;
            assert_int_equal(out[i], (lane + 1) % 32 + up * 100 + down * 10000 + 3 * 1000000 +
                                         5 * 10000000 + 100000000 + 1000000000);
        }
    }
}

static void products_of_matrices_have_their_lanes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < ORDERS; seed++) {
        emu_mma_set(seed % 2 == 0 ? EMU_MMA_NEAREST : EMU_MMA_TRUNCATED);
        assert_int_equal(run("emu_product", 0, seed), 0);
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t row = i % 128 / 8, column = i % 8, sum = row + 100 * column;
            for (uint32_t k = 0; k < 16; k++)
                sum += (16 * row + k) * (3 * k + 5 * column);
            assert_int_equal(out[i], sum);
        }
    }
}

static void products_are_added_as_it_is_set(void **state)
{
    (void)state;
    emu_mma_set(EMU_MMA_NEAREST);
    assert_int_equal(run("emu_product_rounded", 0, 0), 0);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], 0x3f800001);
    emu_mma_set(EMU_MMA_TRUNCATED);
    assert_int_equal(run("emu_product_rounded", 0, 0), 0);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], 0x3f800000);
    emu_mma_set(EMU_MMA_NEAREST);
}

/* The exit status of a process that runs the kernel; what it says on stderr. */
static int child_run(const char *name, uint64_t seed, char *ret_said, size_t said_bytes)
{
    int ends[2], status = 0;
    size_t said = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        exit(run(name, 1, seed));
    }
    close(ends[1]);
    for (ssize_t n = 1; n > 0 && said + 1 < said_bytes; said += n > 0 ? (size_t)n : 0)
        n = read(ends[0], ret_said + said, said_bytes - 1 - said);
    ret_said[said] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void each_mistake_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *said;
    } MISTAKES[] = {
        {"emu_barrier_in_a_branch", "stand at different barriers"},
        {"emu_exit_before_barrier", "has ended while others wait at a barrier"},
        {"emu_lane_has_ended", "names a lane that has ended"},
        {"emu_lane_outside_the_mask", "is not in the mask that it names"},
        {"emu_shuffle_of_a_stranger", "reads a lane that takes no part"},
        {"emu_warp_waits_for_barrier", "waits for lanes that are elsewhere"},
        {"emu_product_by_half_a_warp", "names a lane that has ended"},
        {"emu_unaligned", "is not aligned to its size"},
        {"emu_much_shared", "more than 227 KiB of shared memory"},
    };
    char said[4096];
    for (uint32_t i = 0; i < sizeof(MISTAKES) / sizeof(MISTAKES[0]); i++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            int code = child_run(MISTAKES[i].kernel, seed, said, sizeof(said));
            if (code != EMU_EXIT || strstr(said, MISTAKES[i].said) == NULL ||
                strstr(said, MISTAKES[i].kernel) == NULL)
                fail_msg("%s, order %u: exit status %d, said: %s", MISTAKES[i].kernel,
                         (unsigned)seed, code, said);
        }
}

/* Some order shows it: in that of their numbers a thread reads what is not written yet. */
static void a_race_shows_in_results(void **state)
{
    (void)state;
#if !defined(SC_SANITIZED_THREAD)
    bool is_seen = false;
    for (uint64_t seed = 0; seed < ORDERS; seed++) {
        assert_int_equal(run("emu_race", 0, seed), 0);
        for (uint32_t i = 0; i < THREADS; i++)
            is_seen |= out[i] != (i + 1) % THREADS;
    }
    assert_true(is_seen);
#endif
}

static void sanitizers_see_what_results_do_not_show(void **state)
{
    (void)state;
    char said[8192];
    (void)said;
#if defined(SC_SANITIZED_THREAD)
    static const char *const RACES[] = {"emu_race", "emu_race_in_a_warp", "emu_race_of_blocks"};
    for (uint32_t i = 0; i < sizeof(RACES) / sizeof(RACES[0]); i++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            int code = child_run(RACES[i], seed, said, sizeof(said));
            if (code == 0 || strstr(said, "data race") == NULL)
                fail_msg("%s, order %u: exit status %d, said: %s", RACES[i], (unsigned)seed, code,
                         said);
        }
    assert_int_equal(child_run("emu_sum", 1, said, sizeof(said)), 0);
    assert_int_equal(child_run("emu_exchange", 1, said, sizeof(said)), 0);
#elif defined(HAS_ASAN)
    assert_int_not_equal(child_run("emu_shared_overrun", 0, said, sizeof(said)), 0);
    assert_non_null(strstr(said, "heap-buffer-overflow"));
#else
    print_message("without a sanitizer nothing is looked for\n");
#endif
}

static void a_launch_that_no_device_takes_is_invalid(void **state)
{
    (void)state;
    static const uint32_t ONE[] = {1, 1, 1}, NONE[] = {1, 0, 1}, MANY[] = {257, 1, 1},
                          DEEP[] = {1, 1, 65}, HIGH[] = {1, 65536, 1};
    const struct emu_kernel *kernel = emu_wrong_find("emu_sum");
    struct emu_wrong what = {out, 0};
    void *const params[] = {&what};
    assert_int_equal(emu_run(kernel, params, NONE, ONE, 0, 0), EMU_INVALID);
    assert_int_equal(emu_run(kernel, params, ONE, NONE, 0, 0), EMU_INVALID);
    assert_int_equal(emu_run(kernel, params, ONE, MANY, 0, 0), EMU_INVALID);
    assert_int_equal(emu_run(kernel, params, ONE, DEEP, 0, 0), EMU_INVALID);
    assert_int_equal(emu_run(kernel, params, HIGH, ONE, 0, 0), EMU_INVALID);
    assert_int_equal(emu_run(kernel, params, ONE, ONE, EMU_SHARED_BYTES + 1, 0), EMU_INVALID);
    assert_null(emu_wrong_find("emu_nothing"));
    struct emu_counts before = emu_counts_get();
    assert_int_equal(run("emu_sum", 0, 1), 0);
    assert_int_equal(emu_counts_get().blocks - before.blocks, BLOCKS);
    assert_int_equal(emu_counts_get().threads - before.threads, BLOCKS * THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_give_their_results_in_every_order),
        cmocka_unit_test(products_of_matrices_have_their_lanes),
        cmocka_unit_test(products_are_added_as_it_is_set),
        cmocka_unit_test(each_mistake_is_named),
        cmocka_unit_test(a_race_shows_in_results),
        cmocka_unit_test(sanitizers_see_what_results_do_not_show),
        cmocka_unit_test(a_launch_that_no_device_takes_is_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
