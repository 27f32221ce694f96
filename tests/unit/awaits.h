/* Loops of tests that wait for another thread or process, with a bound: what never comes is a
 * failure that says so, not a hang.
 *
 *   for (uint32_t looks = 0; !came; look(&came))
 *       await_or_fail(&looks, "the checkpoint");
 *
 * Threads: any, with a count each; await_or_fail the test's alone. */
#ifndef SC_TESTS_UNIT_AWAITS_H
#define SC_TESTS_UNIT_AWAITS_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#define AWAIT_YIELDS 1000u   /* looks without a rest: most of what is waited for is near */
#define AWAIT_LOOKS  121000u /* the others are a millisecond apart: two minutes, or more */

/* Lets others go on for a moment; false: it has been two minutes. looks: 0 at first. */
static inline bool await_goes_on(uint32_t *looks)
{
    if (*looks < AWAIT_YIELDS)
        (void)sched_yield();
    else
        (void)usleep(1000);
    return ++*looks < AWAIT_LOOKS;
}

static inline void await_or_fail(uint32_t *looks, const char *what)
{
    if (!await_goes_on(looks))
        fail_msg("waited two minutes in vain: %s", what);
}

#endif
