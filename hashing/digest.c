/* digest: SHA-256 by libmd, XXH3 by xxHash. Hashed integers are little-endian (asserted at compile
 * time). */
#define XXH_INLINE_ALL
#include "hashing/digest.h"

#include "base/assert.h"

#include <stddef.h>
#include <string.h>
#include <sys/types.h>

#include <sha2.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "integers are hashed as they lie");
_Static_assert(sizeof(SHA2_CTX) <= sizeof(((struct sc_digest *)0)->state), "state fits");
_Static_assert(_Alignof(SHA2_CTX) <= 8, "state is aligned");
_Static_assert(sizeof(struct sc_hash) == SC_HASH_BYTES, "no padding");
_Static_assert(sizeof(struct sc_sha256) == SC_SHA256_BYTES, "no padding");
_Static_assert(SC_HASH_LANES_BYTES >= XXH3_SECRET_SIZE_MIN, "enough for XXH3");

static SHA2_CTX *state_of(struct sc_digest *digest)
{
    return (SHA2_CTX *)(void *)digest->state;
}

static struct sc_hash from_xxh(XXH128_hash_t hash)
{
    return (struct sc_hash){hash.low64, hash.high64};
}

struct sc_hash sc_hash_bytes(const void *data, uint64_t bytes)
{
    return from_xxh(XXH3_128bits(bytes == 0 ? "" : data, bytes));
}

struct sc_hash sc_hash_keyed(const void *data, uint64_t bytes,
                             const uint8_t lanes[SC_HASH_LANES_BYTES])
{
    return from_xxh(
        XXH3_128bits_withSecret(bytes == 0 ? "" : data, bytes, lanes, SC_HASH_LANES_BYTES));
}

uint64_t sc_hash_bytes64(const void *data, uint64_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes == 0 ? "" : data, bytes, seed);
}

void sc_hash_to_bytes(struct sc_hash hash, uint8_t *ret_bytes16)
{
    memcpy(ret_bytes16, &hash, SC_HASH_BYTES);
}

struct sc_hash sc_hash_from_bytes(const uint8_t *bytes16)
{
    struct sc_hash hash;
    memcpy(&hash, bytes16, SC_HASH_BYTES);
    return hash;
}

static void put(struct sc_digest *digest, const void *data, uint64_t bytes)
{
    if (bytes != 0)
        SHA256Update(state_of(digest), data, bytes);
}

static void put_u64(struct sc_digest *digest, uint64_t value)
{
    put(digest, &value, sizeof(value));
}

static void put_field(struct sc_digest *digest, uint32_t tag, uint32_t type, const void *data,
                      uint64_t bytes)
{
    SC_ASSERT(NULL, digest->field_count == 0 || tag > digest->tag_last);
    put(digest, &tag, sizeof(tag));
    put(digest, &type, sizeof(type));
    put_u64(digest, bytes);
    put(digest, data, bytes);
    digest->tag_last = tag;
    digest->field_count++;
}

void sc_digest_init(struct sc_digest *digest, const char *name)
{
    memset(digest, 0, sizeof(*digest));
    SHA256Init(state_of(digest));
    put(digest, "sc-dig-2", 8);
    put_u64(digest, strlen(name));
    put(digest, name, strlen(name));
}

void sc_digest_u64(struct sc_digest *digest, uint32_t tag, uint64_t value)
{
    put_field(digest, tag, SC_DIGEST_U64, &value, sizeof(value));
}

void sc_digest_i64(struct sc_digest *digest, uint32_t tag, int64_t value)
{
    put_field(digest, tag, SC_DIGEST_I64, &value, sizeof(value));
}

void sc_digest_f64(struct sc_digest *digest, uint32_t tag, double value)
{
    uint64_t bits;
    if (value != value) {
        bits = UINT64_C(0x7ff8000000000000); /* one NaN for all */
    } else {
        double plain = value + 0.0; /* -0 becomes 0 */
        memcpy(&bits, &plain, sizeof(bits));
    }
    put_field(digest, tag, SC_DIGEST_F64, &bits, sizeof(bits));
}

void sc_digest_bytes(struct sc_digest *digest, uint32_t tag, const void *data, uint64_t bytes)
{
    put_field(digest, tag, SC_DIGEST_BYTES, data, bytes);
}

void sc_digest_text(struct sc_digest *digest, uint32_t tag, const char *text)
{
    put_field(digest, tag, SC_DIGEST_TEXT, text, strlen(text));
}

void sc_digest_hash(struct sc_digest *digest, uint32_t tag, struct sc_hash hash)
{
    put_field(digest, tag, SC_DIGEST_HASH, &hash, SC_HASH_BYTES);
}

struct sc_sha256 sc_digest_done_whole(struct sc_digest *digest)
{
    struct sc_sha256 sha;
    put_u64(digest, digest->field_count);
    SHA256Final(sha.bytes, state_of(digest));
    return sha;
}

struct sc_hash sc_digest_done(struct sc_digest *digest)
{
    struct sc_sha256 sha = sc_digest_done_whole(digest);
    return sc_sha256_short(&sha);
}
