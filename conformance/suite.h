/* The suite's tests, one list a group of clauses. A test's clause is the number in its name.
 *
 *   abi_NNN_what_condition_outcome(void **state)      state: struct fixture *
 *
 * Holds: each test runs in a process of its own, over a directory of its own.
 * Does not: run a test twice, or in any order but the clauses'.
 * Threads: one. Tests: as fixture.h. */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include "conformance/fixture.h"

struct conf_test {
    const char *name; /* NULL: the list ends */
    void (*run)(void **state);
    bool bare; /* loads, does not open */
};

/* Opened on the default shape; BARE: only loaded. */
#define OPENED(test)                                                                               \
    {                                                                                              \
#test, test, false                                                                         \
    }
#define BARE(test)                                                                                 \
    {                                                                                              \
#test, test, true                                                                          \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, false                                                                          \
    }

extern const struct conf_test CONF_RULES[], CONF_SIZES[], CONF_OPEN[], CONF_NAMESPACE[],
    CONF_LOOKUP[], CONF_LOAD[], CONF_LAYOUT[], CONF_FAILURE[], CONF_SAVE[], CONF_STORE_CALL[],
    CONF_HERD[], CONF_TICKET[], CONF_HALVES[], CONF_ENDS[], CONF_ENGINE[], CONF_BATCH[],
    CONF_FIELD_REPORTS[], CONF_PROCESS[], CONF_LEASE[], CONF_RESET[], CONF_EVICT[], CONF_WORKER[],
    CONF_SELECT[], CONF_PROVENANCE[], CONF_LAYERED[], CONF_REFINE[], CONF_AHEAD[], CONF_VALUE[],
    CONF_COPIES[], CONF_SCALE[], CONF_BYTES[], CONF_COLUMNS[], CONF_RESCORE[], CONF_STAGE[],
    CONF_WEAR[], CONF_CUT[], CONF_DEVICE[], CONF_BYPASS[], CONF_GROUPS[], CONF_STATES[],
    CONF_OVERLAP[], CONF_ERASE[];

/* The clause that a test's name begins with: 51 of abi_051_x. */
uint32_t conf_clause_of(const char *test_name);
/* In one line; "": no such clause is known. */
const char *conf_clause_title(uint32_t number);

#endif
