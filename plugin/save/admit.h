/* Admission: what of a pass is worth its writes (store.admit; docs/decisions/0024).
 *
 *   a pass's chunks, by chain hash -> filter of sights: was it here before? -> so many of its
 * tokens
 *
 *   generation 0  [64 bytes][64 bytes] ...   4 bits a hash, all in one cache line
 *   generation 1  [64 bytes][64 bytes] ...   notes go to one; when it has had its share, the other
 *                                            is cleared and takes its place
 *
 * Holds: the memory is fixed, and taken at open where admit is second; a hash is remembered for as
 * long as SC_PLUGIN_SIGHTS others are noted behind it, at least. A wrong yes (one in two hundred
 * when both are full) admits early, a wrong no late: neither changes what a row is.
 * Does not: outlive the connector; know what is stored.
 * Threads: any; no lock. A note beside a change of generations may be lost.
 * Tests: tests/unit/plugin/test_admit.c, conformance (abi_190_*) */
#ifndef SC_PLUGIN_SAVE_ADMIT_H
#define SC_PLUGIN_SAVE_ADMIT_H

#include "base/status.h"
#include "hashing/chain.h"

#include <stdatomic.h>

#define SC_PLUGIN_SIGHTS (UINT64_C(1) << 19) /* of a generation, 16 bits each: a MiB */

struct sc_plugin_request;

struct sc_plugin_admit {
    /* Set by open, constant after. */
    _Atomic uint64_t *words; /* of both generations; NULL: everything is stored at once */

    /* Any thread. */
    _Atomic uint32_t current; /* the generation that notes go to */
    _Atomic uint64_t noted;   /* in it, since it was cleared */
};

/* Errors: NO_MEMORY. */
spec_status sc_plugin_admit_open(spec_connector *conn, struct spec_error *reterr);
/* Whether the hash was noted before; and notes it, if told so. */
bool sc_plugin_admit_sees(struct sc_plugin_admit *admit, struct sc_hash hash, bool notes);
/* Nothing was seen before. */
void sc_plugin_admit_forget(struct sc_plugin_admit *admit);
/* How many tokens of the request's pass [first, first + count) may be stored: up to the first chunk
 * that is seen for the first time; chunks that the store had at the lookup always may. Its chunks
 * are noted. The chain stands at `first`. Host thread. */
uint64_t sc_plugin_admit_tokens(spec_connector *conn, const struct sc_plugin_request *request,
                                const struct sc_chain *chain, uint64_t first, uint64_t count);

#endif
