/* digest: canonical SHA-256 digests of named, tagged fields, for namespaces, roots and extra keys;
 * fast hashes of plain bytes.
 *
 *   "sc-dig-2" | name length u64 | name | field | field | ... | field count u64
 *   field:  tag u32 | type u32 | length u64 | bytes          all little-endian
 *
 * Invariants: the bytes can be parsed in one way only, so different descriptors have different
 * bytes. Fields are in ascending order of tags (asserted). XXH3 collisions can be found, so it
 * decides nothing alone. Nothing is allocated.
 * Threads: any; an object belongs to one at a time.
 * Tests: tests/unit/hashing/test_chain.c (frozen vectors) */
#ifndef SC_HASHING_DIGEST_H
#define SC_HASHING_DIGEST_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

/* 128 bits; as bytes lo, then hi, both little-endian. */
struct sc_hash {
    uint64_t lo;
    uint64_t hi;
};

#define SC_HASH_BYTES   16u
#define SC_SHA256_BYTES 32u

/* A whole digest: an identity that is compared by value. */
struct sc_sha256 {
    uint8_t bytes[SC_SHA256_BYTES];
};

static inline bool sc_sha256_equal(const struct sc_sha256 *a, const struct sc_sha256 *b)
{
    return __builtin_memcmp(a, b, sizeof(*a)) == 0;
}

/* Returns the first 16 bytes. */
static inline struct sc_hash sc_sha256_short(const struct sc_sha256 *sha)
{
    struct sc_hash hash;
    __builtin_memcpy(&hash, sha, sizeof(hash));
    return hash;
}

static inline bool sc_hash_equal(struct sc_hash a, struct sc_hash b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* XXH3-128 and XXH3-64 of plain bytes; data may be NULL if bytes is 0. */
struct sc_hash sc_hash_bytes(const void *data, uint64_t bytes);
uint64_t sc_hash_bytes64(const void *data, uint64_t bytes, uint64_t seed);
/* XXH3-128 with lanes in place of xxHash's default secret. */
#define SC_HASH_LANES_BYTES 192u
struct sc_hash sc_hash_keyed(const void *data, uint64_t bytes,
                             const uint8_t lanes[SC_HASH_LANES_BYTES]);

void sc_hash_to_bytes(struct sc_hash hash, uint8_t *ret_bytes16);
struct sc_hash sc_hash_from_bytes(const uint8_t *bytes16);

enum sc_digest_type {
    SC_DIGEST_U64 = 1,   /* 8 bytes */
    SC_DIGEST_I64 = 2,   /* 8 bytes, two's complement */
    SC_DIGEST_F64 = 3,   /* 8 bytes, IEEE 754; -0 is written as 0, every NaN as one NaN */
    SC_DIGEST_BYTES = 4, /* as given */
    SC_DIGEST_TEXT = 5,  /* UTF-8, without a NUL */
    SC_DIGEST_HASH = 6,  /* 16 bytes */
};

struct sc_digest {
    alignas(8) unsigned char state[208]; /* SHA2_CTX */
    uint64_t field_count;
    uint32_t tag_last;
};

/* name is the kind of thing described, such as "namespace"; it is part of the digest. */
void sc_digest_init(struct sc_digest *digest, const char *name);
void sc_digest_u64(struct sc_digest *digest, uint32_t tag, uint64_t value);
void sc_digest_i64(struct sc_digest *digest, uint32_t tag, int64_t value);
void sc_digest_f64(struct sc_digest *digest, uint32_t tag, double value);
void sc_digest_bytes(struct sc_digest *digest, uint32_t tag, const void *data, uint64_t bytes);
void sc_digest_text(struct sc_digest *digest, uint32_t tag, const char *text);
void sc_digest_hash(struct sc_digest *digest, uint32_t tag, struct sc_hash hash);
/* Return the digest, whole or its first 16 bytes. The object must be initialised again. */
struct sc_sha256 sc_digest_done_whole(struct sc_digest *digest);
struct sc_hash sc_digest_done(struct sc_digest *digest);

#endif
