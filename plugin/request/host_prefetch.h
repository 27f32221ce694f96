/* host_prefetch: reads matches into host memory before their loads (prefetch_to_host).
 * Tests: tests/unit/plugin/test_host_prefetch.c, test_host_prefetch_meanwhile.c,
 * test_host_prefetch_choice.c, test_bypass.c, tests/fault/test_host_races.c, conformance
 * (abi_130_*, abi_192_*, abi_193_*, abi_195_*) */
#ifndef SC_PLUGIN_REQUEST_HOST_PREFETCH_H
#define SC_PLUGIN_REQUEST_HOST_PREFETCH_H

#include "base/exec.h"
#include "base/status.h"
#include "store/load.h"

#include <pthread.h>
#include <stdbool.h>

#define SC_PLUGIN_HOST_PREFETCHES 16u /* at one time; one runs, the others wait */

struct sc_plugin_request;

/* Guarded by stages.lock. */
struct sc_plugin_host_prefetch {
    spec_connector *conn;
    struct sc_plugin_request *request; /* held; NULL: the slot is free */
    spec_ticket ticket;                /* 0: not wanted, or reported */
    uint64_t number;                   /* ascends; the store keeps what was read for it */
    uint64_t deadline_ns;              /* executor's clock; SC_EXEC_FOREVER: none */
    struct sc_store_match_fetch_wants wants; /* what loads of the match read */
    bool runs;                               /* the store reads its ranges */
    bool is_over;                            /* reported; the store may still read */
    spec_status status;                      /* status that was reported */
};

struct sc_plugin_host_prefetches {
    _Atomic uint32_t open; /* stages that are not over; read without the lock */
    _Atomic uint32_t word; /* changes when a stage is over or a step ends */

    pthread_mutex_t lock; /* rank 22; held briefly */
    struct sc_plugin_host_prefetch slots[SC_PLUGIN_HOST_PREFETCHES];
    struct sc_task timer; /* deadlines */
    uint64_t timer_ns;    /* when it is posted for; 0: it is not */
    uint64_t number;
};

void sc_plugin_host_prefetches_open(spec_connector *conn);
/* Ends all stages, and waits until nothing of them runs. */
void sc_plugin_host_prefetches_close(spec_connector *conn);

spec_status sc_plugin_host_prefetch(spec_connector *conn,
                                    const struct spec_prefetch_to_host_params *params,
                                    spec_ticket *ret_ticket, struct spec_error *reterr);
/* Ends the request's stage, because the request is released. */
void sc_plugin_host_prefetch_leave(spec_connector *conn, const struct sc_plugin_request *request);
/* Ends stages of earlier epochs (index_events.h). Any thread. */
void sc_plugin_host_prefetches_reset(spec_connector *conn);
/* Ends all stages, because a bypass has begun or an erasure was heard of. Any thread. */
void sc_plugin_host_prefetches_drop(spec_connector *conn);
/* Returns true if the request's match is not all in host memory and is part of what is being read
 * there, or the reverse. Its segments and match are set. Any thread; locks briefly if a stage is
 * open. */
bool sc_plugin_host_prefetch_covers(spec_connector *conn, const struct sc_plugin_request *request);

#endif
