/* compact: combines the pieces of a chunk into one (compact.c; docs/decisions/0016).
 * Threads: the job; tails: per call. Tests: tests/unit/plugin/test_compaction.c */
#ifndef SC_PLUGIN_INDEX_COMPACT_H
#define SC_PLUGIN_INDEX_COMPACT_H

#include "base/status.h"

#define SC_PLUGIN_TAILS 256u /* prompt ends in the queue */

struct sc_plugin_compaction {
    struct sc_plugin_compact *job;   /* made by the job; NULL: it never ran */
    _Atomic uint32_t waiting;        /* compactions waiting for a release or a retry */
    uint64_t tails[SC_PLUGIN_TAILS]; /* jobs.lock: ring of prompt ends that may be compacted */
    uint32_t tail_first, tail_count;
};

bool sc_plugin_compact_some(spec_connector *conn);
/* Queues the last piece of an ended request, in a chunk that others began. */
void sc_plugin_compact_tail(spec_connector *conn, uint64_t piece);
void sc_plugin_compact_close(spec_connector *conn); /* after jobs_close, before the store's */

#endif
