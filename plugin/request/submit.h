/* submit: a get_important in two halves, submit and wait.
 * Threads: submit and wait any; open, end and close the connector's.
 * Tests: tests/unit/plugin/test_submit.c, conformance (abi_133_*, abi_160_* .. abi_163_*) */
#ifndef SC_PLUGIN_REQUEST_SUBMIT_H
#define SC_PLUGIN_REQUEST_SUBMIT_H

#include "base/status.h"

struct sc_exec;
struct sc_plugin_submission;

struct sc_plugin_submits {
    /* Set by open, constant after. */
    struct sc_plugin_submission *slots; /* [count] */
    uint32_t count;
    struct sc_exec *exec; /* of submissions; NULL: the waiting call serves */

    /* Any thread. */
    _Atomic uint32_t word; /* changes when a submission ends */
    _Atomic uint32_t closing;
};

spec_status sc_plugin_submit_open(spec_connector *conn, struct spec_error *reterr);
/* Drops submissions that no thread works at, and waits for the others. */
void sc_plugin_submit_end(spec_connector *conn);
/* Frees the slots. After sc_plugin_submit_end. */
void sc_plugin_submit_close(spec_connector *conn);
spec_status sc_plugin_submit(spec_connector *conn, struct spec_important *items, uint64_t count,
                             spec_ticket *ret_ticket, struct spec_error *reterr);
spec_status sc_plugin_submit_wait(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                  struct spec_error *reterr);

#endif
