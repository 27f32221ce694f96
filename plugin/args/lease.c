/* lease: encoding of leases. Contract: lease.h. */
#include "plugin/args/lease.h"
#include "base/limits.h"

#include <string.h>

#define LENGTH_BITS 28u
#define RANK_BITS   12u
#define EPOCH_BITS  24u
#define TAG_AT      56u
_Static_assert(LENGTH_BITS + RANK_BITS + EPOCH_BITS == 64, "one word");
_Static_assert(SC_LIMIT_REQUEST_TOKENS < 1u << LENGTH_BITS, "a length fits");
_Static_assert(SC_LIMIT_RANKS <= 1u << RANK_BITS, "a rank fits");

static uint64_t low_bits(uint64_t value, uint32_t bits)
{
    return value & ((UINT64_C(1) << bits) - 1);
}

uint64_t sc_plugin_lease_seed(const uint8_t store_id[16], struct sc_hash family)
{
    uint8_t bytes[16 + SC_HASH_BYTES];
    memcpy(bytes, store_id, 16);
    sc_hash_to_bytes(family, bytes + 16);
    uint64_t seed = sc_hash_bytes64(bytes, sizeof(bytes), 0);
    return seed != 0 ? seed : 1;
}

void sc_plugin_lease_encode(const struct sc_plugin_lease *lease, uint64_t seed,
                            uint8_t ret_bytes[SC_PLUGIN_LEASE_BYTES])
{
    uint64_t word = low_bits(lease->place.length, LENGTH_BITS) |
                    low_bits(lease->rank, RANK_BITS) << LENGTH_BITS |
                    low_bits(lease->epoch_bits, EPOCH_BITS) << (LENGTH_BITS + RANK_BITS);
    memcpy(ret_bytes, &lease->piece, 8);
    memcpy(ret_bytes + 8, &lease->expiry_ns, 8);
    sc_hash_to_bytes(lease->place.border, ret_bytes + 16);
    sc_hash_to_bytes(lease->place.end, ret_bytes + 32);
    memcpy(ret_bytes + 48, &word, 8);
    uint64_t tag = sc_hash_bytes64(ret_bytes, TAG_AT, seed);
    memcpy(ret_bytes + TAG_AT, &tag, 8);
}

bool sc_plugin_lease_decode(const uint8_t bytes[SC_PLUGIN_LEASE_BYTES], uint64_t seed,
                            struct sc_plugin_lease *ret_lease)
{
    uint64_t tag, word;
    memcpy(&tag, bytes + TAG_AT, 8);
    memcpy(&word, bytes + 48, 8);
    if (tag != sc_hash_bytes64(bytes, TAG_AT, seed))
        return false;
    *ret_lease =
        (struct sc_plugin_lease){.place = {.border = sc_hash_from_bytes(bytes + 16),
                                           .end = sc_hash_from_bytes(bytes + 32),
                                           .length = low_bits(word, LENGTH_BITS)},
                                 .rank = (uint32_t)low_bits(word >> LENGTH_BITS, RANK_BITS),
                                 .epoch_bits = (uint32_t)(word >> (LENGTH_BITS + RANK_BITS))};
    memcpy(&ret_lease->piece, bytes, 8);
    memcpy(&ret_lease->expiry_ns, bytes + 8, 8);
    return ret_lease->place.length > 0;
}

enum sc_plugin_lease_age sc_plugin_lease_age(const struct sc_plugin_lease *lease, uint64_t epoch)
{
    uint64_t ahead = low_bits(lease->epoch_bits - epoch, EPOCH_BITS);
    if (ahead == 0)
        return SC_LEASE_CURRENT;
    return ahead < 1u << (EPOCH_BITS - 1) ? SC_LEASE_NEWER : SC_LEASE_OLDER;
}
