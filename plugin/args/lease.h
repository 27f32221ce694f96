/* lease: a 64-byte promise that a prefix stays readable until a time. It names the prefix without
 * its tokens, so that another process of the store finds it in its own index.
 *
 *   0  piece u64      id of the promise's last piece, in the log of the issuing rank
 *   8  expiry u64     wall clock, ns
 *   16 border 16      chain hash at the last grid border <= length
 *   32 end 16         chain hash after `length` tokens
 *   48 u64            length 28 bits | rank << 28, 12 bits | epoch << 40, its low 24 bits
 *   56 tag u64        XXH3-64 of bytes 0 .. 55, seeded with the store's id and the family
 *
 * Invariants: equal leases have equal bytes on every machine (little-endian). Bytes of another
 * store or model, and changed bytes, are rejected. The tag is no signature: a forger who knows the
 * hashes can read the named piece's rows, which are verified by their tags.
 * Threads: any; no call allocates or searches. Tests: tests/unit/plugin/test_lease.c */
#ifndef SC_PLUGIN_ARGS_LEASE_H
#define SC_PLUGIN_ARGS_LEASE_H

#include "hashing/radix.h"

#define SC_PLUGIN_LEASE_BYTES 64u

enum sc_plugin_lease_age { SC_LEASE_OLDER, SC_LEASE_CURRENT, SC_LEASE_NEWER };

struct sc_plugin_lease {
    uint64_t piece, expiry_ns;
    struct sc_radix_place place;
    uint32_t rank;
    uint32_t epoch_bits; /* low 24 bits of the epoch */
};

/* Returns the tag's seed. It is never 0, which means that there is no store yet. */
uint64_t sc_plugin_lease_seed(const uint8_t store_id[16], struct sc_hash family);
void sc_plugin_lease_encode(const struct sc_plugin_lease *lease, uint64_t seed,
                            uint8_t ret_bytes[SC_PLUGIN_LEASE_BYTES]);
/* Returns false if the bytes are no lease of this store and family. */
bool sc_plugin_lease_decode(const uint8_t bytes[SC_PLUGIN_LEASE_BYTES], uint64_t seed,
                            struct sc_plugin_lease *ret_lease);
/* Compares the lease's epoch with the connector's; correct if they differ by less than 2^23. */
enum sc_plugin_lease_age sc_plugin_lease_age(const struct sc_plugin_lease *lease, uint64_t epoch);

#endif
