/* Layers of a match, delivered: now (load.c, batch.c) or later (submit.c).
 *
 * Threads: the host's that calls for the request, or its submission's.
 * Tests: tests/unit/plugin/test_load.c, test_submit.c, test_select.c */
#ifndef SC_PLUGIN_LOADS_H
#define SC_PLUGIN_LOADS_H

#include "base/slot_pool.h"
#include "base/status.h"

struct sc_plugin_request;

struct sc_plugin_batches {        /* memory for many items of one call; set by open, constant */
    struct sc_plugin_item *items; /* [slots][SC_LIMIT_BATCH] */
    struct sc_slot_pool slots;
};

struct sc_plugin_submits {
    struct sc_plugin_submission *slots; /* [count] submit.c; set by open, constant after */
    uint32_t count;
    struct sc_exec *exec;  /* likewise; NULL: waiting does the work */
    _Atomic uint32_t word; /* moves when a submission ended */
    _Atomic uint32_t closing;
};

/* budget.c: whether the match is too short to be worth a choice (select.min_tokens,
 * .min_share_ppm); lookup asks once, so that all layers and passes of the request agree. */
bool sc_plugin_match_is_short(const spec_connector *conn, const struct sc_plugin_request *request);

/* load.c */
spec_status sc_plugin_begin_layer(spec_connector *conn, const spec_request *requests,
                                  uint64_t count, uint32_t layer, struct spec_error *reterr);
spec_status sc_plugin_get_important(spec_connector *conn, struct spec_important *items,
                                    uint64_t count, struct spec_error *reterr);
spec_status sc_plugin_prefetch_next(spec_connector *conn, spec_request handle, uint32_t layer,
                                    const struct spec_queries *hint, struct spec_error *reterr);
/* loads_end.c: the one place where the memory that a request's loads work on (readers, selectors)
 * is given up for good. Whose turn it is calls it, between items: see request.c. */
void sc_plugin_loads_end(spec_connector *conn, struct sc_plugin_request *request);

/* bidirectional.c */
spec_status sc_plugin_next_chunk(spec_connector *conn, struct spec_next_chunk *chunk,
                                 struct spec_error *reterr);
/* A new request has the slot: nothing of its match is given out or loaded. */
void sc_plugin_bidirectional_forget(struct sc_plugin_request *request);

/* batch.c */
spec_status sc_plugin_batches_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_batches_close(spec_connector *conn);

/* submit.c */
spec_status sc_plugin_submit_open(spec_connector *conn, struct spec_error *reterr);
/* Submissions that nobody works at are dropped, the others are waited for. */
void sc_plugin_submit_end(spec_connector *conn);
void sc_plugin_submit_close(spec_connector *conn); /* after end; takes what open made */
spec_status sc_plugin_submit(spec_connector *conn, struct spec_important *items, uint64_t count,
                             spec_ticket *ret_ticket, struct spec_error *reterr);
spec_status sc_plugin_submit_wait(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                  struct spec_error *reterr);

/* submission.c: the host lets the request go: true: a submission has the turn, and ends it with its
 * own. */
bool sc_plugin_submit_leaves(struct sc_plugin_request *request);

/* delivery.c: a new request has the slot. */
void sc_plugin_deliveries_forget(struct sc_plugin_request *request);

/* select.c */
void sc_plugin_selectors_end(spec_connector *conn, struct sc_plugin_request *request);

/* prefetch.c */
/* No guess of this request is made any more; what was read for one counts as unused. */
void sc_plugin_prefetch_stop(struct sc_plugin_request *request);

#endif
