/* tickets: what a host waits for (ticket.c).
 * Threads: any. Tests: tests/unit/plugin/test_ticket.c */
#ifndef SC_PLUGIN_SAVE_TICKETS_H
#define SC_PLUGIN_SAVE_TICKETS_H

#include "base/status.h"

struct sc_plugin_ticket {
    _Atomic uint64_t word; /* layout: ticket.c */
    _Atomic uint64_t kept; /* stored tokens of a store's range */
};

struct sc_plugin_tickets {
    struct sc_plugin_ticket *slots; /* [SC_LIMIT_TICKETS] set by open, constant */
    _Atomic uint32_t word;          /* incremented when a ticket ends; waiters watch it */
    _Atomic uint64_t hint;          /* start of the search for a free one */
};

spec_ticket sc_plugin_ticket_take(spec_connector *conn, uint32_t remaining); /* 0: none free */
/* Ends one part of the ticket; the first failure is kept. */
void sc_plugin_ticket_resolve(spec_connector *conn, spec_ticket ticket, spec_status status);
/* Reports that its range's first `tokens` tokens are stored. Called before its last part ends. */
void sc_plugin_ticket_kept(spec_connector *conn, spec_ticket ticket, uint64_t tokens);
/* Ends `parts` parts, possibly 0. */
void sc_plugin_ticket_resolve_parts(spec_connector *conn, spec_ticket ticket, uint64_t parts,
                                    spec_status status);
/* Frees it with its last part: its host will not ask. */
void sc_plugin_ticket_forget(spec_connector *conn, spec_ticket ticket);
spec_status sc_plugin_poll(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           spec_status *ret_statuses, struct spec_error *reterr);
spec_status sc_plugin_wait(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           uint64_t timeout_ns, spec_status *ret_statuses,
                           struct spec_error *reterr);
/* ret_kept: may be NULL. */
spec_status sc_plugin_wait_kept(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                                uint64_t timeout_ns, spec_status *ret_statuses, uint64_t *ret_kept,
                                struct spec_error *reterr);

#endif
