/* A lease as 64 bytes: a prefix that is promised until a time, named without its tokens, so that
 * another process of the same store finds it in its own index.
 *
 *   0  piece u64      id of the promise's last piece, in the log of the rank that gave it
 *   8  expiry u64     wall clock, ns
 *   16 border 16      chain hash at the last grid border <= length
 *   32 end 16         chain hash after `length` tokens
 *   48 u64            length 28 bits | rank << 28, 12 bits | epoch << 40, its low 24 bits
 *   56 tag u64        XXH3-64 of what stands before, seeded with the store's id and the family
 *
 * Holds: equal leases give equal bytes on every machine (little-endian); bytes of another store or
 * model, or changed ones, are none. The tag is no signature: who forges one on purpose gets what
 * its piece is of, if he knows the hashes too, and rows verified by their tags.
 * Does not: allocate, look anything up.
 * Threads: any.
 * Tests: tests/unit/plugin/test_lease.c */
#ifndef SC_PLUGIN_ARGS_LEASE_H
#define SC_PLUGIN_ARGS_LEASE_H

#include "hashing/radix.h"

#define SC_PLUGIN_LEASE_BYTES 64u

enum sc_plugin_lease_age { SC_LEASE_OLDER, SC_LEASE_CURRENT, SC_LEASE_NEWER };

struct sc_plugin_lease {
    uint64_t piece, expiry_ns;
    struct sc_radix_place place;
    uint32_t rank;
    uint32_t epoch_bits; /* the low 24 */
};

/* The tag's seed; never 0, which stands for a store that is not there yet. */
uint64_t sc_plugin_lease_seed(const uint8_t store_id[16], struct sc_hash family);
void sc_plugin_lease_encode(const struct sc_plugin_lease *lease, uint64_t seed,
                            uint8_t ret_bytes[SC_PLUGIN_LEASE_BYTES]);
/* false: no lease of this store and family. */
bool sc_plugin_lease_decode(const uint8_t bytes[SC_PLUGIN_LEASE_BYTES], uint64_t seed,
                            struct sc_plugin_lease *ret_lease);
/* The lease's epoch beside the connector's: right while they are less than 2^23 apart. */
enum sc_plugin_lease_age sc_plugin_lease_age(const struct sc_plugin_lease *lease, uint64_t epoch);

#endif
