/* Matches that are brought into host memory before their loads ask (host_prefetch.c).
 *
 * Threads: per member and call, below.
 * Tests: tests/unit/plugin/test_host_prefetch.c, test_bypass.c */
#ifndef SC_PLUGIN_REQUEST_HOST_PREFETCH_H
#define SC_PLUGIN_REQUEST_HOST_PREFETCH_H

#include "base/exec.h"
#include "base/status.h"
#include "store/load.h"

#include <pthread.h>
#include <stdbool.h>

#define SC_PLUGIN_HOST_PREFETCHES 16u /* at one time; one of them runs, the others wait for it */

struct sc_plugin_request;

/* Guarded by stages.lock. */
struct sc_plugin_host_prefetch {
    spec_connector *conn;
    struct sc_plugin_request *request; /* held; NULL: the slot is free */
    spec_ticket ticket;                /* 0: nobody asks, or it was told */
    uint64_t number;                   /* rises; what is kept is kept for it */
    uint64_t deadline_ns;              /* executor's clock; SC_EXEC_FOREVER: none */
    struct sc_store_match_fetch_wants wants; /* what loads of the match read */
    bool runs;                         /* the store has its ranges */
    bool is_over;                      /* told; the store has not let go of it yet */
    spec_status status;                /* that was told */
};

struct sc_plugin_host_prefetches {
    _Atomic uint32_t open; /* that are not over: looked at without the lock */
    _Atomic uint32_t word; /* moves when one is over, or a step ends */

    pthread_mutex_t lock; /* rank 22; held for a moment */
    struct sc_plugin_host_prefetch slots[SC_PLUGIN_HOST_PREFETCHES];
    struct sc_task timer; /* deadlines */
    uint64_t timer_ns;    /* what it is posted for; 0: it is not */
    uint64_t number;
};

void sc_plugin_host_prefetches_open(spec_connector *conn);
/* All are over, and nothing of theirs runs any more. */
void sc_plugin_host_prefetches_close(spec_connector *conn);

spec_status sc_plugin_host_prefetch(spec_connector *conn,
                                    const struct spec_prefetch_to_host_params *params,
                                    spec_ticket *ret_ticket, struct spec_error *reterr);
/* The request is released: what was staged for it is over. */
void sc_plugin_host_prefetch_leave(spec_connector *conn, const struct sc_plugin_request *request);
/* The epoch has moved: so are those of before (index_events.h). Any thread. */
void sc_plugin_host_prefetches_reset(spec_connector *conn);
/* A bypass has begun, or an erasure was heard of: so are all. Any thread. */
void sc_plugin_host_prefetches_drop(spec_connector *conn);
/* Whether the request's match, which is not all in host memory, is part of what is being brought
 * there, or the reverse. Its segments and match are set. Any thread; a lock for a moment, if
 * anything is staged at all. */
bool sc_plugin_host_prefetch_covers(spec_connector *conn, const struct sc_plugin_request *request);

#endif
