/* Tickets: what a host waits for (ticket.c).
 *
 * Threads: any.
 * Tests: tests/unit/plugin/test_ticket.c */
#ifndef SC_PLUGIN_SAVE_TICKETS_H
#define SC_PLUGIN_SAVE_TICKETS_H

#include "base/status.h"

struct sc_plugin_ticket {
    _Atomic uint64_t word; /* ticket.c draws it */
    _Atomic uint64_t kept; /* tokens of a store's range that are stored */
};

struct sc_plugin_tickets {
    struct sc_plugin_ticket *slots; /* [SC_LIMIT_TICKETS] set by open, constant */
    _Atomic uint32_t word;          /* moves when a ticket ends; waiters watch it */
    _Atomic uint64_t hint;          /* where the search for a free one begins */
};

spec_ticket sc_plugin_ticket_take(spec_connector *conn, uint32_t remaining); /* 0: none free */
/* One part of the ticket's work ended; the worst status is kept. */
void sc_plugin_ticket_resolve(spec_connector *conn, spec_ticket ticket, spec_status status);
/* So many tokens of its range, from the first one on, are stored. Before its last part ends. */
void sc_plugin_ticket_kept(spec_connector *conn, spec_ticket ticket, uint64_t tokens);
/* So many of its parts at once, which may be 0. */
void sc_plugin_ticket_resolve_parts(spec_connector *conn, spec_ticket ticket, uint64_t parts,
                                    spec_status status);
/* Its host will never ask for it: it ends with its last part. */
void sc_plugin_ticket_forget(spec_connector *conn, spec_ticket ticket);
spec_status sc_plugin_poll(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           spec_status *ret_statuses, struct spec_error *reterr);
spec_status sc_plugin_wait(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                           uint64_t timeout_ns, spec_status *ret_statuses,
                           struct spec_error *reterr);
/* ret_kept: NULL when nobody asks. */
spec_status sc_plugin_wait_kept(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                                uint64_t timeout_ns, spec_status *ret_statuses, uint64_t *ret_kept,
                                struct spec_error *reterr);

#endif
