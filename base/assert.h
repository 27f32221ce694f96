/* assert: internal invariants, checked in release too. In debug and test builds a broken one
 * aborts. In release it poisons the connector: logged once, and every later call is a miss.
 *
 * Threads: any. Tests: tests/unit/base/test_assert.c, with and without SC_ASSERT_ABORTS */
#ifndef SC_BASE_ASSERT_H
#define SC_BASE_ASSERT_H

#include <stdatomic.h>
#include <stdint.h>

/* Zero: no invariant broke. The place is for the log line; it is complete soon after `broken` is
 * set. */
struct sc_poison {
    _Atomic uint32_t broken;
    const char *_Atomic expression;
    const char *_Atomic file;
    _Atomic uint32_t line;
};

/* Aborts if SC_ASSERT_ABORTS is defined (debug and test builds). Else marks poison, keeping the
 * first place; poison NULL: does nothing. */
void sc_assert_failed(struct sc_poison *poison, const char *expression, const char *file,
                      uint32_t line);

#define SC_ASSERT(poison, condition)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sc_assert_failed((poison), #condition, __FILE__, __LINE__);                            \
    } while (0)

#endif
