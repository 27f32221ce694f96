/* chain: token ids to chained, keyed XXH3-128 hashes on the absolute token grid.
 * docs/reference/hashing.md defines every byte; tests/data/hash-vectors.json has the vectors.
 *
 *   grid      0            64            128           192
 *   tokens    |<- chunk 0 ->|<- chunk 1 ->|<- chunk 2 ->|
 *   hashes   h(0) ------> h(64) -------> h(128) ---+--> h(192)
 *             | first 16 bytes of                  +--> h(150), a short chunk: 128..149
 *            root: 32 bytes
 *
 * The hash after p tokens chains the full chunks before p, then the short chunk that ends at p. It
 * covers all that the rows before p depend on: the root (secret, family, epoch, salt, LoRA), all
 * tokens, and every extra key that begins before p. All extra keys that begin at one token are
 * folded into its mark.
 *
 * Invariants: equal prompts give equal hashes on every machine. The order of keys that begin at one
 * token does not matter. Roots and marks are whole SHA-256 digests and are compared so. Steps are
 * XXH3 keyed by the store's secret: nobody without the secret can prepare a collision. Someone who
 * has it can, so the index compares tokens by value, and a collision is a miss.
 * Threads: any; an object belongs to one at a time. Nothing is allocated. Tests:
 * tests/unit/hashing/test_chain.c */
#ifndef SC_HASHING_CHAIN_H
#define SC_HASHING_CHAIN_H

#include "hashing/digest.h"

#include <stdbool.h>
#include <stdint.h>

#define SC_CHAIN_CHUNK_TOKENS_MIN 1u
#define SC_CHAIN_CHUNK_TOKENS_MAX 256u

struct sc_chain_key {
    uint32_t kind;        /* extra key kind of the ABI */
    uint64_t first_token; /* absolute position at which it begins */
    uint64_t token_count; /* number of its tokens; hashed */
    const void *value;
    uint64_t value_bytes;
};

struct sc_mark {
    uint64_t token; /* absolute position at which the keys begin */
    struct sc_sha256 digest;
};

/* Marks of a prompt, ascending. */
struct sc_marks {
    const struct sc_mark *at; /* [count]; NULL if count is 0 */
    uint64_t count;
};

/* The store's secret, and the lanes derived from it, which key the steps. */
#define SC_CHAIN_SECRET_BYTES 32u
struct sc_chain_secret {
    uint8_t lanes[SC_HASH_LANES_BYTES];
    uint8_t secret[SC_CHAIN_SECRET_BYTES];
};
void sc_chain_secret_init(struct sc_chain_secret *secret,
                          const uint8_t bytes[SC_CHAIN_SECRET_BYTES]);

/* Requests with equal scopes share KV of equal tokens. */
struct sc_chain_scope {
    struct sc_hash family; /* digest of the namespace fields that all ranks of a model share */
    uint64_t epoch;        /* number of resets of the model's KV */
    const void *salt;      /* NULL if its size is 0; so for lora */
    uint64_t salt_bytes;
    const void *lora;
    uint64_t lora_bytes;
};
/* Returns the root of a chain; the chain begins with its first 16 bytes. */
struct sc_sha256 sc_chain_root(const struct sc_chain_secret *secret,
                               const struct sc_chain_scope *scope);

/* Returns the name under which data of a salt (at least one byte) is found. Nobody without the
 * secret can test a guess by it. */
struct sc_hash sc_chain_salt(const struct sc_chain_secret *secret, const void *salt,
                             uint64_t salt_bytes);

/* Folds keys, in any order, into marks. Returns their number, <= key_count.
 *   ret_marks  [key_count]  written from the front, ascending */
uint64_t sc_chain_marks(const struct sc_chain_key *keys, uint64_t key_count,
                        struct sc_mark *ret_marks);

/* Returns the hash after `count` tokens of the chunk that begins at `first`, from the hash at
 * `first`. 1 <= count <= SC_CHAIN_CHUNK_TOKENS_MAX.
 *   tokens  [count]
 *   marks   only those in [first, first + count) are used */
struct sc_hash sc_chain_step(const struct sc_chain_secret *secret, struct sc_hash previous,
                             uint64_t first, const uint32_t *tokens, uint32_t count,
                             struct sc_marks marks);

/* A chain that is fed in parts of any size. */
struct sc_chain {
    const struct sc_chain_secret *secret; /* the caller's */
    uint32_t chunk_tokens;
    uint32_t pending_count; /* tokens since the last grid border */
    uint32_t pending_marks; /* marks among them */
    uint64_t grid_first;    /* the last grid border */
    struct sc_hash grid;    /* hash at grid_first */
    struct sc_hash fold;    /* folded marks since then */
    uint32_t pending[SC_CHAIN_CHUNK_TOKENS_MAX];
};

void sc_chain_init(struct sc_chain *chain, const struct sc_chain_secret *secret,
                   const struct sc_sha256 *root, uint32_t chunk_tokens);
/* Starts at a grid border whose hash is known. */
void sc_chain_init_at(struct sc_chain *chain, const struct sc_chain_secret *secret,
                      struct sc_hash grid, uint64_t grid_first, uint32_t chunk_tokens);
/* Appends tokens. marks are those of the whole prompt; those of the appended range are used. */
void sc_chain_extend(struct sc_chain *chain, const uint32_t *tokens, uint64_t token_count,
                     struct sc_marks marks);
/* Returns the hash after all appended tokens. */
struct sc_hash sc_chain_at(const struct sc_chain *chain);

/* Returns the index of the first mark at or after a token, by binary search. */
uint64_t sc_chain_mark_from(struct sc_marks marks, uint64_t token);

#endif
