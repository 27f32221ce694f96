/* The allocator: alignment, counting, seal, fault point, the host's functions.
 *
 * Holds: every test ends with live_bytes and live_blocks 0.
 * Threads: four in one test, else one. */
#include "base/alloc.h"
#include "base/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A host that remembers what it gave, and can break its promises. */
struct host {
    uint64_t live_blocks;
    uint64_t live_bytes;
    uint64_t refusals_left; /* refuse this many */
    uint64_t skew_bytes;    /* misalign by this much */
};

static void *host_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    struct host *host = user;
    assert_true(align_bytes >= 64 && (align_bytes & (align_bytes - 1)) == 0);
    if (host->refusals_left > 0) {
        host->refusals_left--;
        return NULL;
    }
    uint64_t room = (bytes + 2 * align_bytes - 1) / align_bytes * align_bytes;
    char *memory = aligned_alloc(align_bytes, room);
    assert_non_null(memory);
    memset(memory, 'h', room);
    host->live_blocks++;
    host->live_bytes += bytes;
    return memory + host->skew_bytes;
}

static void host_free(void *memory, uint64_t bytes, void *user)
{
    struct host *host = user;
    host->live_blocks--;
    host->live_bytes -= bytes; /* wraps unless the size is the one that was asked */
    free((char *)memory - host->skew_bytes);
}

static struct sc_alloc with_host(struct host *host)
{
    struct sc_alloc alloc;
    sc_alloc_init(&alloc);
    alloc.host_alloc = host_alloc;
    alloc.host_free = host_free;
    alloc.user = host;
    return alloc;
}

static void blocks_are_aligned_writable_and_counted(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    sc_alloc_init(&alloc);
    uint64_t sum = 0, blocks = 0;
    void *memory[64];
    for (uint64_t align = 64; align <= 2u << 20; align *= 8)
        for (uint64_t bytes = 1; bytes <= 65537; bytes = bytes * 16 + 1) {
            memory[blocks] = sc_alloc_aligned(&alloc, bytes, align);
            assert_non_null(memory[blocks]);
            assert_int_equal((uintptr_t)memory[blocks] % align, 0);
            memset(memory[blocks], 0xa5, bytes);
            sum += bytes;
            blocks++;
            assert_int_equal(atomic_load(&alloc.live_bytes), sum);
            assert_int_equal(atomic_load(&alloc.live_blocks), blocks);
        }
    uint64_t all = blocks;
    while (blocks > 0)
        sc_alloc_free(&alloc, memory[--blocks]);
    assert_true(all > 20);
    assert_int_equal(atomic_load(&alloc.peak_bytes), sum);
    sc_alloc_done(&alloc);
    assert_int_equal(atomic_load(&alloc.live_bytes), 0);
}

static void zero_array_and_string_have_their_contents(void **state)
{
    (void)state;
    struct host host = {0}; /* its memory is full of 'h' */
    struct sc_alloc alloc = with_host(&host);
    static const char zeros[1000];
    char *zeroed = sc_alloc_zero(&alloc, 1000);
    assert_memory_equal(zeroed, zeros, 1000);
    char *array = sc_alloc_array(&alloc, 100, 10);
    assert_memory_equal(array, zeros, 1000);
    char *string = sc_alloc_string(&alloc, "text");
    assert_string_equal(string, "text");
    void *nothing = sc_alloc(&alloc, 0);
    assert_non_null(nothing);
    assert_int_equal(atomic_load(&alloc.live_bytes), 2006);
    sc_alloc_free(&alloc, zeroed);
    sc_alloc_free(&alloc, array);
    sc_alloc_free(&alloc, string);
    sc_alloc_free(&alloc, nothing);
    sc_alloc_free(&alloc, NULL);
    assert_int_equal(host.live_blocks, 0);
    assert_int_equal(host.live_bytes, 0);
    sc_alloc_done(&alloc);
}

static void large_blocks_begin_on_a_huge_page_and_small_ones_on_a_page(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    sc_alloc_init(&alloc);
    static const uint64_t bytes[] = {1, 4096, (4u << 20) - 1, 4u << 20, (6u << 20) + 4097};
    for (uint32_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        uint8_t *memory = sc_alloc_huge(&alloc, bytes[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % (i < 3 ? 4096 : 2u << 20), 0);
        memory[0] = memory[bytes[i] - 1] = 1;
        assert_int_equal(atomic_load(&alloc.live_bytes), bytes[i]);
        sc_alloc_free(&alloc, memory);
    }
    sc_alloc_done(&alloc);
}

/* libc gives again what was freed, full of what stood there. */
static void zeroed_blocks_are_aligned_and_zero_from_used_memory(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct host host = {0};
    struct sc_alloc in_host_tier = with_host(&host);
    sc_alloc_init(&alloc);
    for (uint64_t align = 64; align <= 2u << 20; align *= 8)
        for (uint64_t bytes = 1; bytes <= 1048577; bytes = bytes * 32 + 1) {
            struct sc_alloc *allocs[2] = {&alloc, &in_host_tier};
            char *used = sc_alloc_aligned(&alloc, bytes, align);
            assert_non_null(used);
            memset(used, 0xa5, bytes);
            sc_alloc_free(&alloc, used);
            for (uint32_t i = 0; i < 2; i++) {
                char *zeroed = sc_alloc_zero_aligned(allocs[i], bytes, align);
                assert_non_null(zeroed);
                assert_int_equal((uintptr_t)zeroed % align, 0);
                for (uint64_t at = 0; at < bytes; at++)
                    if (zeroed[at] != 0)
                        fail_msg("byte %llu of %llu, alignment %llu", (unsigned long long)at,
                                 (unsigned long long)bytes, (unsigned long long)align);
                memset(zeroed, 0xa5, bytes);
                sc_alloc_free(allocs[i], zeroed);
            }
        }
    assert_int_equal(host.live_blocks, 0);
    sc_alloc_done(&alloc);
    sc_alloc_done(&in_host_tier);
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    struct host host = {0};
    struct sc_alloc alloc = with_host(&host);
    assert_null(sc_alloc_array(&alloc, UINT64_MAX / 8 + 1, 8));
    assert_null(sc_alloc_array(&alloc, UINT64_MAX, UINT64_MAX));
    for (uint64_t less = 0; less < 200; less++) /* the header and the rounding do not wrap */
        assert_null(sc_alloc_aligned(&alloc, UINT64_MAX - less, 4096));
    for (uint64_t less = 0; less < 200; less++)
        assert_null(sc_alloc_zero_aligned(&alloc, UINT64_MAX - less, 4096));
    assert_int_equal(host.live_blocks, 0);
    assert_int_equal(atomic_load(&alloc.peak_bytes), 0);
}

static void a_host_that_refuses_or_misaligns_means_no_memory(void **state)
{
    (void)state;
    struct host host = {.refusals_left = 1};
    struct sc_alloc alloc = with_host(&host);
    assert_null(sc_alloc(&alloc, 10));
    host.skew_bytes = 16;
    assert_null(sc_alloc(&alloc, 10));
    assert_int_equal(host.live_blocks, 0); /* what came misaligned went back */
    host.skew_bytes = 0;
    void *memory = sc_alloc(&alloc, 10);
    assert_non_null(memory);
    sc_alloc_free(&alloc, memory);
    assert_int_equal(host.live_blocks, 0);
    sc_alloc_done(&alloc);
}

static void a_seal_refuses_and_counts_and_nests_and_lets_frees_through(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    sc_alloc_init(&alloc);
    void *memory = sc_alloc(&alloc, 10);
    sc_alloc_seal(&alloc);
    sc_alloc_seal(&alloc);
    assert_null(sc_alloc(&alloc, 1));
    sc_alloc_unseal(&alloc);
    assert_null(sc_alloc_zero(&alloc, 1));
    sc_alloc_free(&alloc, memory);
    sc_alloc_unseal(&alloc);
    assert_int_equal(atomic_load(&alloc.sealed_refusals), 2);
    memory = sc_alloc(&alloc, 1);
    assert_non_null(memory);
    sc_alloc_free(&alloc, memory);
    sc_alloc_done(&alloc);
}

static void the_fault_point_fails_the_nth_allocation_once(void **state)
{
    (void)state;
    struct sc_fault fault;
    struct sc_alloc alloc;
    sc_fault_init(&fault);
    sc_alloc_init(&alloc);
    alloc.fault = &fault;
    sc_fault_arm(&fault, SC_FAULT_ALLOC, 2);
    for (int i = 0; i < 6; i++) {
        void *memory = sc_alloc(&alloc, 8);
        assert_int_equal(memory == NULL, i == 2);
        sc_alloc_free(&alloc, memory);
    }
    sc_alloc_done(&alloc);
}

static void *churn(void *argument)
{
    struct sc_alloc *alloc = argument;
    for (uint64_t i = 0; i < 2000; i++) {
        void *a = sc_alloc(alloc, i % 300);
        void *b = sc_alloc_array(alloc, i % 7, 64);
        sc_alloc_free(alloc, a);
        sc_alloc_free(alloc, b);
    }
    return NULL;
}

static void four_threads_leave_the_counts_at_zero(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    sc_alloc_init(&alloc);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &alloc), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&alloc.live_bytes), 0);
    assert_int_equal(atomic_load(&alloc.live_blocks), 0);
    assert_true(atomic_load(&alloc.peak_bytes) >= 299);
    assert_true(atomic_load(&alloc.peak_bytes) <= 4 * (299 + 384));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_writable_and_counted),
        cmocka_unit_test(zero_array_and_string_have_their_contents),
        cmocka_unit_test(large_blocks_begin_on_a_huge_page_and_small_ones_on_a_page),
        cmocka_unit_test(zeroed_blocks_are_aligned_and_zero_from_used_memory),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(a_host_that_refuses_or_misaligns_means_no_memory),
        cmocka_unit_test(a_seal_refuses_and_counts_and_nests_and_lets_frees_through),
        cmocka_unit_test(the_fault_point_fails_the_nth_allocation_once),
        cmocka_unit_test(four_threads_leave_the_counts_at_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
