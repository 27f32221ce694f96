/* results: collects the tests' results and writes the report in three forms.
 *
 *   text     a line per clause, then the counts                 for people
 *   JSON     one object: counts, clauses, tests                 for programs
 *   JUnit    testsuite, a testcase per test                     for continuous integration
 *
 * A test's output becomes printable ASCII, lines and tabs. No times are reported.
 * Threads: one. Tests: conformance/test_program.py */
#ifndef CONFORMANCE_RESULTS_H
#define CONFORMANCE_RESULTS_H

#include "conformance/suite.h"

#include <stdio.h>

enum conf_outcome { CONF_PASSED, CONF_FAILED, CONF_SKIPPED, CONF_OUTCOMES };

struct conf_result {
    const struct conf_test *test;
    enum conf_outcome outcome;
    char *text; /* of a failure, or why it was skipped; owned */
};

struct conf_results {
    struct conf_result *list; /* [count] */
    size_t count, room;
    size_t totals[CONF_OUTCOMES];
};

/* Takes a copy of text. False: no memory. */
bool conf_results_add(struct conf_results *results, const struct conf_test *test,
                      enum conf_outcome outcome, const char *text);
void conf_results_done(struct conf_results *results);

void conf_results_print(const struct conf_results *results, FILE *out);
/* False: no memory, or it cannot be written. */
bool conf_results_json(const struct conf_results *results, FILE *out);
bool conf_results_junit(const struct conf_results *results, FILE *out);

#endif
