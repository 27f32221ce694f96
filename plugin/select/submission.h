/* submission: a get_important_submit, and who owns a request's loads. States: request/submit.c.
 * Threads: any, unless a member says otherwise.
 * Tests: tests/unit/plugin/test_submit.c */
#ifndef SC_PLUGIN_SELECT_SUBMISSION_H
#define SC_PLUGIN_SELECT_SUBMISSION_H

#include "base/exec.h"
#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;

/* Owner of a request's loads. WAITER: a submission; the host has released the request. */
enum { SC_OWNER_HOST, SC_OWNER_SUBMITTED, SC_OWNER_WAITER };

struct sc_plugin_submission {
    /* Set by open, constant after. */
    spec_connector *conn;
    struct sc_plugin_item *work; /* [SC_LIMIT_BATCH] */

    /* Used by the thread that the state names. */
    struct sc_task task;
    struct spec_important *items; /* the host's array */
    uint64_t count;
    spec_status status;
    struct spec_error error;

    /* Any thread. */
    _Atomic uint64_t word;
    _Atomic uint64_t over_ns; /* deadline of all its waits; SC_EXEC_FOREVER: none */
};

/* Records the host's release of the request. Returns true if a submission owns its loads and will
 * end it. */
bool sc_plugin_submit_leaves(struct sc_plugin_request *request);
/* Returns true if the ticket was ever given out. */
bool sc_plugin_submit_knows(const spec_connector *conn, spec_ticket ticket);
/* Returns true if the item's result is no longer wanted: released, reset, erased or closing. */
bool sc_plugin_item_is_over(spec_connector *conn, const struct sc_plugin_item *item);
/* Returns the deadline of all waits of the item; SC_EXEC_FOREVER: none. */
uint64_t sc_plugin_item_over_ns(const struct sc_plugin_item *item);

#endif
