/* Row tags and log checksums; the only file of the store that compiles xxHash. It is included
 * whole, so that the hash of a row is inlined into the loop over rows.
 *
 * Holds, Does not, Threads: store/tag.h.
 * Tests: tests/unit/store/test_tag.c */
#include "store/tag.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static void tag_put32(uint8_t *dst, uint32_t value)
{
    for (uint32_t i = 0; i < 4; i++)
        dst[i] = (uint8_t)(value >> (8 * i));
}

uint64_t sc_store_tag_base(const uint8_t digest[16], const uint8_t piece_hash[16], uint32_t layer,
                           uint32_t part)
{
    uint8_t identity[40];
    memcpy(identity, digest, 16);
    memcpy(identity + 16, piece_hash, 16);
    tag_put32(identity + 32, layer);
    tag_put32(identity + 36, part);
    return XXH3_64bits(identity, sizeof(identity));
}

static inline uint64_t tag_seed(uint64_t base, uint64_t position)
{
    uint64_t x = base + position * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

void sc_store_tag_make(uint64_t base, uint64_t position_first, const uint8_t *rows,
                       uint64_t row_bytes, uint64_t row_stride, uint64_t count, uint64_t *ret_tags,
                       uint64_t tag_step)
{
    for (uint64_t i = 0; i < count; i++)
        ret_tags[i * tag_step] = XXH3_64bits_withSeed(rows + i * row_stride, row_bytes,
                                                      tag_seed(base, position_first + i));
}

uint64_t sc_store_tag_verify(uint64_t base, uint64_t position_first, const uint8_t *rows,
                             uint64_t row_bytes, uint64_t row_stride, uint64_t count,
                             const uint64_t *tags, uint64_t tag_step)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t tag = XXH3_64bits_withSeed(rows + i * row_stride, row_bytes,
                                            tag_seed(base, position_first + i));
        if (tag != tags[i * tag_step])
            return i;
    }
    return count;
}

uint64_t sc_store_checksum(const void *bytes, uint64_t count, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, count, seed);
}
