/* A submission, and whose turn it is with a request's loads. submit.c has its life.
 * Threads: any, but as the members say.
 * Tests: tests/unit/plugin/test_submit.c */
#ifndef SC_PLUGIN_SELECT_SUBMISSION_H
#define SC_PLUGIN_SELECT_SUBMISSION_H

#include "base/exec.h"
#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;

/* Of a request; LEFT: a submission's, and the host has released it. */
enum { SC_OWNER_HOST, SC_OWNER_SUBMITTED, SC_OWNER_WAITER };

struct sc_plugin_submission {
    /* Set by open, constant after. */
    spec_connector *conn;
    struct sc_plugin_item *work; /* [SC_LIMIT_BATCH] */

    /* Whoever the state names. */
    struct sc_task task;
    struct spec_important *items; /* the host's */
    uint64_t count;
    spec_status status;
    struct spec_error error;

    /* Any thread. */
    _Atomic uint64_t word;
    _Atomic uint64_t over_ns; /* nothing of its work waits after that; SC_EXEC_FOREVER: it may */
};

/* The host releases the request. true: a submission has the turn, and will end the request. */
bool sc_plugin_submit_leaves(struct sc_plugin_request *request);
/* Whether the ticket was given out, some time. */
bool sc_plugin_submit_knows(const spec_connector *conn, spec_ticket ticket);
/* Whether nobody wants the item any more: released, reset, closing. */
bool sc_plugin_item_is_over(spec_connector *conn, const struct sc_plugin_item *item);
/* Nothing of the item waits after this; SC_EXEC_FOREVER: it may. */
uint64_t sc_plugin_item_over_ns(const struct sc_plugin_item *item);

#endif
