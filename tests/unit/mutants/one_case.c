/* The case that a mutant's program runs: the one that SC_MUTANT_CASE in the environment names. Many
 * test programs take no arguments, so this is set before main, and without arguments main runs it
 * alone.
 *
 * Threads: one. Tests: judge_mutant.py, which fails where the case did not run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void one_case(void)
{
    const char *name = getenv("SC_MUTANT_CASE");
    if (name != NULL)
        cmocka_set_test_filter(name);
}
