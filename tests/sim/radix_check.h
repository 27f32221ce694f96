/* A radix index, looked at from inside by its tests.
 *
 * Threads: the index's writer, and no reader inside.
 * Tests: tests/unit/hashing/test_radix.c (also: that a broken index is found) */
#ifndef SC_TESTS_SIM_RADIX_CHECK_H
#define SC_TESTS_SIM_RADIX_CHECK_H

#include "hashing/radix.h"

/* Walks everything and checks the invariants that hashing/radix.h and radix_internal.h state; slow.
 * Errors: SPEC_E_CORRUPT, the text says which. */
spec_status sc_radix_check(struct sc_radix *index, struct spec_error *reterr);

#endif
