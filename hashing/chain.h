/* Tokens to hashes: chained, keyed XXH3-128 over the absolute token grid. docs/reference/hashing.md
 * gives every byte; tests/data/hash-vectors.json freezes it.
 *
 *   grid      0            64            128           192
 *   tokens    |<- chunk 0 ->|<- chunk 1 ->|<- chunk 2 ->|
 *   hashes   h(0) ------> h(64) -------> h(128) ---+--> h(192)
 *             | first 16 bytes of                  +--> h(150), a short chunk: 128..149
 *            root: 32 bytes
 *
 * The hash after p tokens is the chain over the full chunks before p, then over the short chunk
 * that ends at p. It says everything that the rows before p depend on: the root (secret, family,
 * epoch, salt, LoRA), all tokens, and every extra key that begins before p.
 *
 * Roots and marks are SHA-256, whole, and are compared so: what a host calls a salt, a LoRA id or
 * an extra key shares with no other, whatever somebody chose it for. Steps are fast: XXH3 keyed by
 * the store's secret, so that nobody who has not read it prepares a collision; where one comes
 * about, tokens differ by value, and that is a miss.
 *
 * An extra key (image hash, prompt embeddings) counts from the token where it begins. All keys that
 * begin at one token are folded into one **mark**; marks ascend and no two stand at one token.
 *
 * Holds: equal prompts give equal hashes on every machine (little-endian bytes); the order in which
 * keys that begin at one token are given does not matter.
 * Does not: allocate; keep pointers, but the chain one to its secret; resist, in a step alone, one
 * who has read the secret (XXH3 is no cryptographic hash; so the index compares tokens by value).
 * Threads: any; an object belongs to one at a time.
 * Tests: tests/unit/hashing/test_chain.c */
#ifndef SC_HASHING_CHAIN_H
#define SC_HASHING_CHAIN_H

#include "hashing/digest.h"

#include <stdbool.h>
#include <stdint.h>

#define SC_CHAIN_CHUNK_TOKENS_MIN 1u
#define SC_CHAIN_CHUNK_TOKENS_MAX 256u

struct sc_chain_key {
    uint32_t kind;        /* the ABI's extra key kind */
    uint64_t first_token; /* absolute position where it begins */
    uint64_t token_count; /* how many tokens it stands for; hashed */
    const void *value;
    uint64_t value_bytes;
};

struct sc_mark {
    uint64_t token; /* absolute position where the keys begin */
    struct sc_sha256 digest;
};

/* Marks of a prompt, ascending. */
struct sc_marks {
    const struct sc_mark *at; /* [count]; NULL when 0 */
    uint64_t count;
};

/* The store's secret, and what keys the steps, which follows from it. */
#define SC_CHAIN_SECRET_BYTES 32u
struct sc_chain_secret {
    uint8_t lanes[SC_HASH_LANES_BYTES];
    uint8_t secret[SC_CHAIN_SECRET_BYTES];
};
void sc_chain_secret_init(struct sc_chain_secret *secret,
                          const uint8_t bytes[SC_CHAIN_SECRET_BYTES]);

/* Who shares KV of equal tokens. */
struct sc_chain_scope {
    struct sc_hash family; /* digest of what the namespaces of all ranks of one model share */
    uint64_t epoch;        /* how often the model's KV was reset */
    const void *salt;      /* may be NULL when its size is 0 (none); lora too */
    uint64_t salt_bytes;
    const void *lora;
    uint64_t lora_bytes;
};
/* The root of a chain; the chain begins with its first 16 bytes. */
struct sc_sha256 sc_chain_root(const struct sc_chain_secret *secret,
                               const struct sc_chain_scope *scope);

/* What a salt of at least one byte is called where what was stored under it is looked for: nobody
 * who has not read the secret can test a guess by it. */
struct sc_hash sc_chain_salt(const struct sc_chain_secret *secret, const void *salt,
                             uint64_t salt_bytes);

/* Folds a few keys, in any order, into marks.
 *   ret_marks  [key_count]  written from the front, ascending
 * Returns how many marks there are, <= key_count. */
uint64_t sc_chain_marks(const struct sc_chain_key *keys, uint64_t key_count,
                        struct sc_mark *ret_marks);

/* One step: the hash after `count` tokens of the chunk that begins at `first`, from the hash at
 * `first`. 1 <= count <= SC_CHAIN_CHUNK_TOKENS_MAX.
 *   tokens  [count]
 *   marks   only those in [first, first + count) are used */
struct sc_hash sc_chain_step(const struct sc_chain_secret *secret, struct sc_hash previous,
                             uint64_t first, const uint32_t *tokens, uint32_t count,
                             struct sc_marks marks);

/* The chain, fed in parts of any size. */
struct sc_chain {
    const struct sc_chain_secret *secret; /* the caller's */
    uint32_t chunk_tokens;
    uint32_t pending_count; /* tokens since the last grid border */
    uint32_t pending_marks; /* marks among them */
    uint64_t grid_first;    /* the last grid border */
    struct sc_hash grid;    /* the hash there */
    struct sc_hash fold;    /* the marks since then */
    uint32_t pending[SC_CHAIN_CHUNK_TOKENS_MAX];
};

void sc_chain_init(struct sc_chain *chain, const struct sc_chain_secret *secret,
                   const struct sc_sha256 *root, uint32_t chunk_tokens);
/* Begins again at a grid border whose hash is known. */
void sc_chain_init_at(struct sc_chain *chain, const struct sc_chain_secret *secret,
                      struct sc_hash grid, uint64_t grid_first, uint32_t chunk_tokens);
/* Appends tokens. marks: of the whole prompt; those inside the appended range are used. */
void sc_chain_extend(struct sc_chain *chain, const uint32_t *tokens, uint64_t token_count,
                     struct sc_marks marks);
/* The hash after all that was appended. */
struct sc_hash sc_chain_at(const struct sc_chain *chain);

/* The index of the first mark at or after a token: binary search. */
uint64_t sc_chain_mark_from(struct sc_marks marks, uint64_t token);

#endif
