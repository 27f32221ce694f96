/* object_tag: tags of objects, by which a get verifies that it has the bytes that were put.
 *
 *   seed   XXH3-64 of domain digest[16] | XXH3-128(key)[16] | copy u64 | bytes u64, little-endian
 *   unit u XXH3-64 of its 1 MiB (the last: what is left), seeded with seed + u
 *   tag    XXH3-64 of all units' hashes, u64 each, little-endian, seeded with seed
 *
 * Pieces are hashed in place; a unit may span several.
 *
 * Threads: any.
 * Tests: tests/unit/store/test_object_record.c */
#include "store/log/record_format.h"
#include "store/object/object.h"
#include "store/rows/tag.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void digest_put(uint8_t dst[SC_STORE_HASH_BYTES], XXH128_hash_t hash)
{
    sc_store_le_put(dst, hash.low64, 8);
    sc_store_le_put(dst + 8, hash.high64, 8);
}

void sc_store_domain_digest(const uint8_t *identity, uint32_t bytes,
                            uint8_t ret_digest[SC_STORE_HASH_BYTES])
{
    digest_put(ret_digest, XXH3_128bits(identity, bytes));
}

static uint64_t name_seed(const struct sc_store_object_name *name)
{
    uint8_t bytes[2 * SC_STORE_HASH_BYTES + 16];
    memcpy(bytes, name->domain, SC_STORE_HASH_BYTES);
    digest_put(bytes + SC_STORE_HASH_BYTES, XXH3_128bits(name->key, name->key_bytes));
    sc_store_le_put(bytes + 2 * SC_STORE_HASH_BYTES, name->copy, 8);
    sc_store_le_put(bytes + 2 * SC_STORE_HASH_BYTES + 8, name->bytes, 8);
    return XXH3_64bits(bytes, sizeof(bytes));
}

/* Hashes a unit that begins at byte `at` of piece *piece, and moves both behind it. */
static uint64_t unit_hash(const uint8_t *const *pieces, const uint64_t *piece_bytes,
                          uint32_t *piece, uint64_t *at, uint64_t bytes, uint64_t seed)
{
    uint64_t hash;
    if (piece_bytes[*piece] - *at >= bytes) {
        hash = sc_store_checksum(pieces[*piece] + *at, bytes, seed); /* the same hash, vectorised */
        *at += bytes;
    } else {
        XXH3_state_t state = {0}; /* reset reads the state's seed */
        XXH3_64bits_reset_withSeed(&state, seed);
        while (bytes > 0) {
            uint64_t some = piece_bytes[*piece] - *at < bytes ? piece_bytes[*piece] - *at : bytes;
            XXH3_64bits_update(&state, pieces[*piece] + *at, some);
            bytes -= some;
            *at += some;
            if (*at == piece_bytes[*piece] && bytes > 0) {
                ++*piece;
                *at = 0;
            }
        }
        hash = XXH3_64bits_digest(&state);
    }
    return hash;
}

uint64_t sc_store_object_tag(const struct sc_store_object_name *name, const uint8_t *const *pieces,
                             const uint64_t *piece_bytes, uint32_t piece_count)
{
    uint64_t seed = name_seed(name), at = 0, unit = 0;
    uint32_t piece = 0;
    XXH3_state_t all = {0}; /* as above */
    XXH3_64bits_reset_withSeed(&all, seed);
    for (uint64_t done = 0; done < name->bytes; unit++) {
        uint64_t bytes =
            name->bytes - done < SC_STORE_OBJECT_UNIT ? name->bytes - done : SC_STORE_OBJECT_UNIT;
        uint8_t le[8];
        while (piece + 1 < piece_count && at == piece_bytes[piece]) {
            piece++;
            at = 0;
        }
        sc_store_le_put(le, unit_hash(pieces, piece_bytes, &piece, &at, bytes, seed + unit), 8);
        XXH3_64bits_update(&all, le, sizeof(le));
        done += bytes;
    }
    return XXH3_64bits_digest(&all);
}
