/* Blocks that are kept for a later connector are guarded as long as nobody has them. */
#include "tests/sim/sim_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* NULL: this is no build of ASan. */
extern int __asan_address_is_poisoned(void const volatile *address) __attribute__((weak));

#define BYTES (3u << 20)
#define ALIGN 4096u

static char *get(uint64_t bytes)
{
    char *block = sc_sim_memory_get(bytes, ALIGN);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % ALIGN, 0);
    memset(block, 1, bytes);
    return block;
}

/* The first and the last byte of each page, and those around. */
static void assert_guarded(char *block, uint64_t bytes, int is_kept)
{
    if (__asan_address_is_poisoned == NULL)
        return;
    for (uint64_t at = 0; at < bytes; at += ALIGN) {
        assert_int_equal(__asan_address_is_poisoned(block + at), is_kept);
        assert_int_equal(__asan_address_is_poisoned(block + at + ALIGN - 1), is_kept);
    }
    assert_int_equal(__asan_address_is_poisoned(block - 1), 1);
    assert_int_equal(__asan_address_is_poisoned(block + bytes), 1);
}

static void what_is_put_is_poisoned_until_it_is_given_again(void **state)
{
    (void)state;
    char *first = get(BYTES);
    assert_guarded(first, BYTES, 0);
    sc_sim_memory_put(first, BYTES);
#ifdef SC_SANITIZED
    char *others[2];
    for (uint32_t rests = 0; rests < 2; rests++) { /* its own connector's, and a later one's */
        assert_guarded(first, BYTES, 1);
        others[rests] = get(BYTES);
        assert_ptr_not_equal(others[rests], first);
        sc_sim_memory_rest();
    }
    assert_guarded(first, BYTES, 1);
    assert_ptr_equal(get(BYTES), first);
    assert_guarded(first, BYTES, 0);
    for (uint32_t i = 0; i < 2; i++)
        sc_sim_memory_put(others[i], BYTES);
    sc_sim_memory_put(first, BYTES);
#endif
}

static void a_block_of_another_size_is_not_given(void **state)
{
    (void)state;
    char *block = get(BYTES);
    sc_sim_memory_put(block, BYTES);
    sc_sim_memory_rest();
    sc_sim_memory_rest();
    char *other = get(BYTES - ALIGN);
    assert_guarded(other, BYTES - ALIGN, 0);
    sc_sim_memory_put(other, BYTES - ALIGN);
}

/* Two gigabytes in all, of which few pages are touched. */
static void the_oldest_are_given_up_where_many_are_kept(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 64; i++) {
        char *block = sc_sim_memory_get((32u << 20) + i * ALIGN, ALIGN);
        assert_non_null(block);
        sc_sim_memory_put(block, (32u << 20) + i * ALIGN);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_poisoned_until_it_is_given_again),
        cmocka_unit_test(a_block_of_another_size_is_not_given),
        cmocka_unit_test(the_oldest_are_given_up_where_many_are_kept)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
