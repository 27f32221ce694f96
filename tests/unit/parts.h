/* A test program that ctest may run in parts beside each other: sc_add_test(... PARTS n).
 *
 *   test_x              all cases
 *   test_x 'the_n*'     those whose name fits the pattern
 *   test_x --part 2/3   the second, the fifth, ... : every case is in exactly one of the three
 *
 * Threads: one. */
#ifndef SC_TESTS_UNIT_PARTS_H
#define SC_TESTS_UNIT_PARTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PARTS_CASES_MAX 64u

/* main's status. A part without a case is an error: nothing would be checked by it. */
static inline int parts_run(int argc, char **argv, const struct CMUnitTest *cases, size_t count)
{
    struct CMUnitTest mine[PARTS_CASES_MAX];
    size_t part = 1, parts = 1, mine_count = 0;
    bool is_part = argc == 3 && strcmp(argv[1], "--part") == 0;
    if ((argc > 2 && !is_part) || count > PARTS_CASES_MAX ||
        (is_part && (sscanf(argv[2], "%zu/%zu", &part, &parts) != 2 || part < 1 || part > parts ||
                     part > count))) {
        fprintf(stderr, "usage: %s [PATTERN | --part K/N]\n", argv[0]);
        return 2;
    }
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = part - 1; i < count; i += parts)
        mine[mine_count++] = cases[i];
    return _cmocka_run_group_tests(argv[0], mine, mine_count, NULL, NULL);
}

#endif
