/* chain: marks and steps.
 *
 *   step message   previous 16 | tokens 4 x count | marks fold 16, if any | count u32 | marks u32
 *
 * Invariants: a message can be parsed in one way only, from its tail; so no two different steps
 * have equal bytes. */
#include "hashing/chain.h"

#include "base/assert.h"

#include <stddef.h>
#include <string.h>

#define STEP_BYTES_MAX (SC_HASH_BYTES + 4u * SC_CHAIN_CHUNK_TOKENS_MAX + SC_HASH_BYTES + 8u)

_Static_assert(SC_HASH_LANES_BYTES % SC_SHA256_BYTES == 0, "lanes are whole digests");

enum lanes_tag { LANES_SECRET = 1, LANES_PART = 2 };
enum root_tag { ROOT_SECRET = 1, ROOT_FAMILY = 2, ROOT_EPOCH = 3, ROOT_SALT = 4, ROOT_LORA = 5 };
enum salt_tag { SALT_SECRET = 1, SALT_VALUE = 2 };
enum key_tag { KEY_KIND = 1, KEY_TOKENS = 2, KEY_VALUE = 3 };

void sc_chain_secret_init(struct sc_chain_secret *secret,
                          const uint8_t bytes[SC_CHAIN_SECRET_BYTES])
{
    memcpy(secret->secret, bytes, SC_CHAIN_SECRET_BYTES);
    for (uint32_t i = 0; i < SC_HASH_LANES_BYTES / SC_SHA256_BYTES; i++) {
        struct sc_digest digest;
        sc_digest_init(&digest, "chain-lanes");
        sc_digest_bytes(&digest, LANES_SECRET, bytes, SC_CHAIN_SECRET_BYTES);
        sc_digest_u64(&digest, LANES_PART, i);
        struct sc_sha256 part = sc_digest_done_whole(&digest);
        memcpy(secret->lanes + (uint64_t)i * SC_SHA256_BYTES, part.bytes, SC_SHA256_BYTES);
    }
}

struct sc_sha256 sc_chain_root(const struct sc_chain_secret *secret,
                               const struct sc_chain_scope *scope)
{
    struct sc_digest digest;
    sc_digest_init(&digest, "chain-root");
    sc_digest_bytes(&digest, ROOT_SECRET, secret->secret, SC_CHAIN_SECRET_BYTES);
    sc_digest_hash(&digest, ROOT_FAMILY, scope->family);
    sc_digest_u64(&digest, ROOT_EPOCH, scope->epoch);
    sc_digest_bytes(&digest, ROOT_SALT, scope->salt, scope->salt_bytes);
    sc_digest_bytes(&digest, ROOT_LORA, scope->lora, scope->lora_bytes);
    return sc_digest_done_whole(&digest);
}

struct sc_hash sc_chain_salt(const struct sc_chain_secret *secret, const void *salt,
                             uint64_t salt_bytes)
{
    struct sc_digest digest;
    sc_digest_init(&digest, "salt");
    sc_digest_bytes(&digest, SALT_SECRET, secret->secret, SC_CHAIN_SECRET_BYTES);
    sc_digest_bytes(&digest, SALT_VALUE, salt, salt_bytes);
    return sc_digest_done(&digest);
}

/* ---- marks --------------------------------------------------------------------------------- */

static struct sc_sha256 key_digest(const struct sc_chain_key *key)
{
    struct sc_digest digest;
    sc_digest_init(&digest, "extra-key");
    sc_digest_u64(&digest, KEY_KIND, key->kind);
    sc_digest_u64(&digest, KEY_TOKENS, key->token_count);
    sc_digest_bytes(&digest, KEY_VALUE, key->value, key->value_bytes);
    return sc_digest_done_whole(&digest);
}

static bool mark_before(const struct sc_mark *a, const struct sc_mark *b)
{
    if (a->token != b->token)
        return a->token < b->token;
    return memcmp(&a->digest, &b->digest, sizeof(a->digest)) < 0;
}

/* Sorts in place by insertion, since keys are few and libc's qsort may allocate. */
static void marks_sort(struct sc_mark *marks, uint64_t count)
{
    for (uint64_t i = 1; i < count; i++) {
        struct sc_mark mark = marks[i];
        uint64_t at = i;
        for (; at > 0 && mark_before(&mark, &marks[at - 1]); at--)
            marks[at] = marks[at - 1];
        marks[at] = mark;
    }
}

/* Returns the mark of the keys that begin at one token. */
static struct sc_sha256 fold_keys(const struct sc_mark *keys, uint64_t count)
{
    if (count == 1)
        return keys[0].digest;
    struct sc_digest digest;
    sc_digest_init(&digest, "extra-keys");
    for (uint64_t i = 0; i < count; i++)
        sc_digest_bytes(&digest, (uint32_t)(i + 1), keys[i].digest.bytes, SC_SHA256_BYTES);
    return sc_digest_done_whole(&digest);
}

uint64_t sc_chain_marks(const struct sc_chain_key *keys, uint64_t key_count,
                        struct sc_mark *ret_marks)
{
    for (uint64_t i = 0; i < key_count; i++)
        ret_marks[i] = (struct sc_mark){keys[i].first_token, key_digest(&keys[i])};
    marks_sort(ret_marks, key_count);
    uint64_t count = 0;
    for (uint64_t first = 0, end; first < key_count; first = end) {
        end = first + 1;
        while (end < key_count && ret_marks[end].token == ret_marks[first].token)
            end++;
        struct sc_sha256 mark = fold_keys(ret_marks + first, end - first);
        ret_marks[count++] = (struct sc_mark){ret_marks[first].token, mark};
    }
    return count;
}

uint64_t sc_chain_mark_from(struct sc_marks marks, uint64_t token)
{
    uint64_t low = 0;
    uint64_t high = marks.count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (marks.at[middle].token < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct sc_hash fold_mark(const struct sc_chain_secret *secret, struct sc_hash fold,
                                uint64_t offset, const struct sc_sha256 *digest)
{
    unsigned char bytes[SC_HASH_BYTES + 8 + SC_SHA256_BYTES];
    memcpy(bytes, &fold, SC_HASH_BYTES);
    memcpy(bytes + SC_HASH_BYTES, &offset, 8);
    memcpy(bytes + SC_HASH_BYTES + 8, digest, SC_SHA256_BYTES);
    return sc_hash_keyed(bytes, sizeof(bytes), secret->lanes);
}

/* ---- steps --------------------------------------------------------------------------------- */

static struct sc_hash step(const struct sc_chain_secret *secret, struct sc_hash previous,
                           const uint32_t *tokens, uint32_t count, struct sc_hash fold,
                           uint32_t marks)
{
    unsigned char message[STEP_BYTES_MAX];
    uint64_t at = 0;
    memcpy(message, &previous, SC_HASH_BYTES);
    at += SC_HASH_BYTES;
    memcpy(message + at, tokens, 4 * (uint64_t)count);
    at += 4 * (uint64_t)count;
    if (marks != 0) {
        memcpy(message + at, &fold, SC_HASH_BYTES);
        at += SC_HASH_BYTES;
    }
    memcpy(message + at, &count, 4);
    memcpy(message + at + 4, &marks, 4);
    return sc_hash_keyed(message, at + 8, secret->lanes);
}

struct sc_hash sc_chain_step(const struct sc_chain_secret *secret, struct sc_hash previous,
                             uint64_t first, const uint32_t *tokens, uint32_t count,
                             struct sc_marks marks)
{
    SC_ASSERT(NULL, count >= 1);
    SC_ASSERT(NULL, count <= SC_CHAIN_CHUNK_TOKENS_MAX);
    struct sc_hash fold = {0, 0};
    uint32_t inside = 0;
    uint64_t i = sc_chain_mark_from(marks, first);
    for (; i < marks.count && marks.at[i].token - first < count; i++, inside++)
        fold = fold_mark(secret, fold, marks.at[i].token - first, &marks.at[i].digest);
    return step(secret, previous, tokens, count, fold, inside);
}

void sc_chain_init(struct sc_chain *chain, const struct sc_chain_secret *secret,
                   const struct sc_sha256 *root, uint32_t chunk_tokens)
{
    sc_chain_init_at(chain, secret, sc_sha256_short(root), 0, chunk_tokens);
}

void sc_chain_init_at(struct sc_chain *chain, const struct sc_chain_secret *secret,
                      struct sc_hash grid, uint64_t grid_first, uint32_t chunk_tokens)
{
    SC_ASSERT(NULL, chunk_tokens >= SC_CHAIN_CHUNK_TOKENS_MIN);
    SC_ASSERT(NULL, chunk_tokens <= SC_CHAIN_CHUNK_TOKENS_MAX);
    chain->secret = secret;
    chain->chunk_tokens = chunk_tokens;
    chain->pending_count = 0;
    chain->pending_marks = 0;
    chain->grid_first = grid_first;
    chain->grid = grid;
    chain->fold = (struct sc_hash){0, 0};
}

/* Returns the number of tokens appended since the root. */
static uint64_t position(const struct sc_chain *chain)
{
    return chain->grid_first + chain->pending_count;
}

void sc_chain_extend(struct sc_chain *chain, const uint32_t *tokens, uint64_t token_count,
                     struct sc_marks marks)
{
    uint64_t i = sc_chain_mark_from(marks, position(chain));
    while (token_count != 0) {
        uint64_t room = chain->chunk_tokens - chain->pending_count;
        uint32_t part = (uint32_t)(token_count < room ? token_count : room);
        uint64_t end = position(chain) + part;
        memcpy(chain->pending + chain->pending_count, tokens, 4 * (uint64_t)part);
        for (; i < marks.count && marks.at[i].token < end; i++, chain->pending_marks++)
            chain->fold = fold_mark(chain->secret, chain->fold,
                                    marks.at[i].token - chain->grid_first, &marks.at[i].digest);
        chain->pending_count += part;
        tokens += part;
        token_count -= part;
        if (chain->pending_count == chain->chunk_tokens)
            sc_chain_init_at(chain, chain->secret, sc_chain_at(chain), end, chain->chunk_tokens);
    }
}

struct sc_hash sc_chain_at(const struct sc_chain *chain)
{
    if (chain->pending_count == 0)
        return chain->grid;
    return step(chain->secret, chain->grid, chain->pending, chain->pending_count, chain->fold,
                chain->pending_marks);
}
