/* Our own invariants, on in release too. In debug and test builds a broken one aborts; in release
 * it poisons the connector (logged once, every later call is a miss): we are a guest in somebody's
 * server.
 *
 * Threads: any.
 * Tests: tests/unit/base/test_assert.c, with and without SC_ASSERT_ABORTS */
#ifndef SC_BASE_ASSERT_H
#define SC_BASE_ASSERT_H

#include <stdatomic.h>
#include <stdint.h>

/* Zero is whole. The place is for the log line; it is complete soon after broken, not before it. */
struct sc_poison {
    _Atomic uint32_t broken; /* 0: whole; 1: an invariant broke */
    const char *_Atomic expression;
    const char *_Atomic file;
    _Atomic uint32_t line;
};

/* Aborts when SC_ASSERT_ABORTS is defined (debug and test builds); otherwise marks poison, keeping
 * the first place. poison NULL: only the abort. */
void sc_assert_failed(struct sc_poison *poison, const char *expression, const char *file,
                      uint32_t line);

#define SC_ASSERT(poison, condition)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sc_assert_failed((poison), #condition, __FILE__, __LINE__);                            \
    } while (0)

#endif
