/* admit: which part of a pass is worth its writes (store.admit; docs/decisions/0024).
 *
 *   a pass's chunks, by chain hash -> filter: seen before? -> number of admitted tokens
 *
 *   generation 0  [64 bytes][64 bytes] ...   4 bits per hash, all in one cache line
 *   generation 1  [64 bytes][64 bytes] ...   notes are added to one; when it is full, the other is
 *                                            cleared and becomes current
 *
 * Memory is fixed, and allocated at open if admit is `second`. A hash is remembered for at least
 * SC_PLUGIN_SIGHTS later notes. False positives (0.5 % when both are full) admit early, false
 * negatives late. Nothing is kept beyond the connector.
 * Threads: any; no lock. A note during a change of generations may be lost.
 * Tests: tests/unit/plugin/test_admit.c, conformance (abi_190_*) */
#ifndef SC_PLUGIN_SAVE_ADMIT_H
#define SC_PLUGIN_SAVE_ADMIT_H

#include "base/status.h"
#include "hashing/chain.h"

#include <stdatomic.h>

#define SC_PLUGIN_SIGHTS (UINT64_C(1) << 19) /* notes per generation, 16 bits each: 1 MiB */

struct sc_plugin_request;

struct sc_plugin_admit {
    /* Set by open, constant after. */
    _Atomic uint64_t *words; /* both generations; NULL: everything is admitted */

    _Atomic uint32_t current; /* generation that takes notes; any thread */
    _Atomic uint64_t noted;   /* notes in it; any thread */
};

/* Errors: NO_MEMORY. */
spec_status sc_plugin_admit_open(spec_connector *conn, struct spec_error *reterr);
/* Returns true if the hash was noted before; notes it if `notes`. */
bool sc_plugin_admit_sees(struct sc_plugin_admit *admit, struct sc_hash hash, bool notes);
void sc_plugin_admit_forget(struct sc_plugin_admit *admit);
/* Returns how many tokens of the pass [first, first + count) may be stored: up to the first chunk
 * never seen or stored before. Notes its chunks. The chain is at `first`. Host thread. */
uint64_t sc_plugin_admit_tokens(spec_connector *conn, const struct sc_plugin_request *request,
                                const struct sc_chain *chain, uint64_t first, uint64_t count);

#endif
