/* suite: the lists of tests, one per group of clauses. The number in a test's name is its clause.
 *
 *   abi_NNN_what_condition_outcome(void **state)      state: struct fixture *
 *   obj_NNN_what_condition_outcome(void **state)      state: struct objects * (objects/objects.h)
 *
 * Each of the library's two tables has a set of tests; a run uses one of them. Each test runs once,
 * in the clauses' order, in its own process and directory.
 * Threads: one. Tests: see fixture.h. */
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
    CONF_WRITTEN[], CONF_CUT[], CONF_DEVICE[], CONF_BYPASS[], CONF_GROUPS[], CONF_STATES[],
    CONF_OVERLAP[], CONF_ERASE[];

struct conf_clause {
    uint32_t number;
    const char *title; /* in one line; NULL: the list ends */
};

/* The tests of one table, and what running them takes. */
struct conf_set {
    const char *prefix;                    /* of clauses: "ABI" */
    const struct conf_test *const *groups; /* ended by NULL */
    const struct conf_clause *clauses;
    const char *extra; /* members of the configuration, where --config has none */
    int (*setup)(void **state), (*setup_bare)(void **state), (*teardown)(void **state);
    /* Loads the library, opens it once, and closes it. An error's text says the reason. */
    spec_status (*open_once)(bool *ret_loaded, struct spec_error *reterr);
    const char *judged; /* that is expected to be loaded: "a connector of ABI", of this version */
    uint32_t major, minor;
};
extern const struct conf_set CONF_OF_ROWS, CONF_OF_OBJECTS;
extern const struct conf_clause CONF_ROW_CLAUSES[], CONF_OBJECT_CLAUSES[];

/* That of this run. Set once. */
extern const struct conf_set *conf_set;

/* The clause that a test's name begins with: 51 of abi_051_x. */
uint32_t conf_clause_of(const char *test_name);
/* In one line; "": no such clause is known. */
const char *conf_clause_title(uint32_t number);

#endif
