/* other_models: the disk's share between living members of several models (other_models.c).
 *
 * Threads: the tick and the eviction job. Tests: tests/unit/plugin/test_uses.c,
 * tests/fault/test_many_processes.c */
#ifndef SC_PLUGIN_INDEX_OTHER_MODELS_H
#define SC_PLUGIN_INDEX_OTHER_MODELS_H

#include "abi/spec_connector.h"

#include <stdbool.h>
#include <stdint.h>

struct sc_plugin_other_models {
    _Atomic bool live;               /* written by the tick */
    _Atomic uint64_t asked_bytes;    /* to be evicted for them */
    _Atomic uint32_t asked_before_s; /* if it was used before this second (wall clock) */
    _Atomic uint64_t due_ns;         /* executor's clock: the tick starts the job then; 0: never */
    uint64_t say_ns;                 /* the tick's */

    /* The job's. Executor's clock. */
    uint64_t wait_ns;  /* until then another may evict; 0: nobody was asked */
    uint64_t quiet_ns; /* nobody is asked before, because nobody answered */
    uint64_t lacked;   /* bytes, when it was asked */
};

/* Tells that this member lives, and takes what others ask. */
void sc_plugin_other_models_tick(spec_connector *conn);
/* The job lacks so many bytes: returns true if another model has colder rows and was asked to evict
 * them. The job runs again when that may be done.
 *   is_refused  a pass waits that was refused before: if this member has nothing to evict, it asks
 *               for rows that were used within a lease, too */
bool sc_plugin_other_models_wait(spec_connector *conn, uint64_t bytes, bool is_refused);

#endif
