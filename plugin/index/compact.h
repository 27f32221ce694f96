/* Pieces of a chunk that become one (compact.c; docs/decisions/0016).
 *
 * Threads: the job; tails: per call, below.
 * Tests: tests/unit/plugin/test_compaction.c */
#ifndef SC_PLUGIN_INDEX_COMPACT_H
#define SC_PLUGIN_INDEX_COMPACT_H

#include "base/status.h"

#define SC_PLUGIN_TAILS 256u /* ends of prompts that wait to be compacted */

struct sc_plugin_compaction {
    struct sc_plugin_compact *job;   /* made by it; NULL: nothing was ever to be compacted */
    _Atomic uint32_t waiting;        /* for a request to be released */
    uint64_t tails[SC_PLUGIN_TAILS]; /* jobs.lock: a ring: ends of prompts that may be compacted */
    uint32_t tail_first, tail_count;
};

bool sc_plugin_compact_some(spec_connector *conn); /* the job */
/* The request has ended, which stored this piece last, inside a chunk that others began. */
void sc_plugin_compact_tail(spec_connector *conn, uint64_t piece);
void sc_plugin_compact_close(spec_connector *conn); /* after jobs_close, before the store's */

#endif
