/* Chained hashes, marks and canonical digests against tests/data/hash-vectors.json, which another
 * implementation wrote from docs/reference/hashing.md.
 *
 * Threads: one. */
#include "hashing/chain.h"
#include "tests/unit/cases.h"

#include <math.h>

#include <json-c/json.h>

#define TOKENS_MAX 1024
#define KEYS_MAX   64

static struct json_object *vectors;

static int load(void **state)
{
    (void)state;
    vectors = json_object_from_file(SC_SOURCE_DIR "/tests/data/hash-vectors.json");
    return vectors == NULL ? -1 : 0;
}

static int unload(void **state)
{
    (void)state;
    json_object_put(vectors);
    return 0;
}

static struct json_object *member(struct json_object *object, const char *name)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(object, name, &value))
        fail_msg("vectors have no %s", name);
    return value;
}

static uint64_t number(struct json_object *object, const char *name)
{
    return json_object_get_uint64(member(object, name));
}

static uint64_t unhex(const char *text, uint8_t *ret_bytes)
{
    uint64_t count = strlen(text) / 2;
    for (uint64_t i = 0; i < count; i++) {
        unsigned value;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
        ret_bytes[i] = (uint8_t)value;
    }
    return count;
}

static struct sc_hash hash_of(struct json_object *value)
{
    uint8_t bytes[SC_HASH_BYTES];
    assert_int_equal(unhex(json_object_get_string(value), bytes), SC_HASH_BYTES);
    return sc_hash_from_bytes(bytes);
}

static struct sc_sha256 sha_of(struct json_object *value)
{
    struct sc_sha256 sha;
    assert_int_equal(unhex(json_object_get_string(value), sha.bytes), SC_SHA256_BYTES);
    return sha;
}

static struct sc_chain_secret secret_of(struct json_object *value)
{
    uint8_t bytes[SC_CHAIN_SECRET_BYTES];
    struct sc_chain_secret secret;
    assert_int_equal(unhex(json_object_get_string(value), bytes), SC_CHAIN_SECRET_BYTES);
    sc_chain_secret_init(&secret, bytes);
    return secret;
}

static void assert_hash(struct sc_hash is, struct sc_hash want, uint64_t at)
{
    if (!sc_hash_equal(is, want))
        fail_msg("hash %" PRIu64 ": %016" PRIx64 "%016" PRIx64 ", expected %016" PRIx64
                 "%016" PRIx64,
                 at, is.hi, is.lo, want.hi, want.lo);
}

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* One case of the vectors, decoded. */
struct chain_case {
    uint32_t chunk_tokens;
    uint64_t token_count;
    uint32_t tokens[TOKENS_MAX];
    struct sc_chain_secret secret;
    struct sc_sha256 root;
    struct sc_hash hashes[TOKENS_MAX + 1];
    uint64_t key_count;
    struct sc_chain_key keys[KEYS_MAX];
    uint8_t values[KEYS_MAX][512];
    uint64_t mark_count;
    struct sc_mark marks[KEYS_MAX];
};

static void read_keys(struct json_object *from, struct chain_case *ret_case)
{
    struct json_object *keys = member(from, "keys");
    ret_case->key_count = json_object_array_length(keys);
    assert_true(ret_case->key_count <= KEYS_MAX);
    for (uint64_t i = 0; i < ret_case->key_count; i++) {
        struct json_object *key = json_object_array_get_idx(keys, i);
        ret_case->keys[i] = (struct sc_chain_key){
            .kind = (uint32_t)number(key, "kind"),
            .first_token = number(key, "first"),
            .token_count = number(key, "count"),
            .value = ret_case->values[i],
            .value_bytes = unhex(json_object_get_string(member(key, "value")), ret_case->values[i]),
        };
    }
    struct json_object *marks = member(from, "marks");
    ret_case->mark_count = json_object_array_length(marks);
    for (uint64_t i = 0; i < ret_case->mark_count; i++) {
        struct json_object *mark = json_object_array_get_idx(marks, i);
        ret_case->marks[i].token = number(mark, "token");
        ret_case->marks[i].digest = sha_of(member(mark, "digest"));
    }
}

static void read_case(struct json_object *from, struct chain_case *ret_case)
{
    uint64_t seed = number(from, "seed");
    ret_case->chunk_tokens = (uint32_t)number(from, "chunk_tokens");
    ret_case->token_count = number(from, "token_count");
    assert_true(ret_case->token_count <= TOKENS_MAX);
    for (uint64_t i = 0; i < ret_case->token_count; i++)
        ret_case->tokens[i] = (uint32_t)(mix(seed + i) & number(from, "mask"));
    ret_case->secret = secret_of(member(from, "secret"));
    ret_case->root = sha_of(member(from, "root"));
    struct json_object *hashes = member(from, "hashes");
    assert_int_equal(json_object_array_length(hashes), ret_case->token_count + 1);
    for (uint64_t i = 0; i <= ret_case->token_count; i++)
        ret_case->hashes[i] = hash_of(json_object_array_get_idx(hashes, i));
    read_keys(from, ret_case);
}

static void for_each_case(void (*check)(struct json_object *from, struct chain_case *one))
{
    static struct chain_case one;
    struct json_object *cases = member(vectors, "chains");
    assert_true(json_object_array_length(cases) >= 8);
    for (uint64_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *from = json_object_array_get_idx(cases, i);
        read_case(from, &one);
        check(from, &one);
    }
}

static void hashes_plain_bytes(void **state)
{
    (void)state;
    static uint8_t bytes[4096];
    for (uint64_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7);
    struct json_object *plain = member(vectors, "plain");
    struct sc_chain_secret secret = secret_of(member(vectors, "plain_secret"));
    for (uint64_t i = 0; i < json_object_array_length(plain); i++) {
        struct json_object *one = json_object_array_get_idx(plain, i);
        uint64_t count = number(one, "bytes");
        assert_hash(sc_hash_bytes(bytes, count), hash_of(member(one, "hash")), count);
        assert_hash(sc_hash_keyed(bytes, count, secret.lanes), hash_of(member(one, "keyed")),
                    count);
    }
    assert_true(sc_hash_equal(sc_hash_bytes(NULL, 0), sc_hash_bytes(bytes, 0)));
    assert_true(sc_hash_bytes64(bytes, 9, 1) != sc_hash_bytes64(bytes, 9, 2));
}

static void digests_fields_of_every_type(void **state)
{
    (void)state;
    uint8_t bytes[SC_HASH_BYTES];
    for (uint8_t i = 0; i < SC_HASH_BYTES; i++)
        bytes[i] = i;
    struct sc_digest digest;
    sc_digest_init(&digest, "all-types");
    sc_digest_u64(&digest, 1, UINT64_MAX);
    sc_digest_i64(&digest, 2, -3);
    sc_digest_f64(&digest, 5, 0.1);
    sc_digest_f64(&digest, 6, -0.0);
    sc_digest_f64(&digest, 7, -(double)NAN);
    sc_digest_bytes(&digest, 9, NULL, 0);
    sc_digest_text(&digest, 10,
                   "gr\xc3\xb6\xc3\x9f"
                   "e");
    sc_digest_hash(&digest, 4000000000u, sc_hash_from_bytes(bytes));
    struct sc_digest again = digest;
    struct sc_sha256 all = sha_of(member(vectors, "digest_all_types"));
    struct sc_sha256 whole = sc_digest_done_whole(&digest);
    assert_memory_equal(&whole, &all, sizeof(all));
    assert_hash(sc_digest_done(&again), sc_sha256_short(&all), 0);
    sc_digest_init(&digest, "");
    struct sc_sha256 empty = sha_of(member(vectors, "digest_empty"));
    whole = sc_digest_done_whole(&digest);
    assert_memory_equal(&whole, &empty, sizeof(empty));
}

static void hash_bytes_go_there_and_back(void **state)
{
    (void)state;
    struct sc_hash hash = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    uint8_t bytes[SC_HASH_BYTES];
    sc_hash_to_bytes(hash, bytes);
    for (uint8_t i = 0; i < SC_HASH_BYTES; i++)
        assert_int_equal(bytes[i], i);
    assert_true(sc_hash_equal(sc_hash_from_bytes(bytes), hash));
}

static void check_root(struct json_object *from, struct chain_case *one)
{
    static uint8_t salt[64];
    static uint8_t lora[64];
    uint64_t salt_bytes = unhex(json_object_get_string(member(from, "salt")), salt);
    uint64_t lora_bytes = unhex(json_object_get_string(member(from, "lora")), lora);
    struct sc_digest digest;
    sc_digest_init(&digest, "family");
    sc_digest_u64(&digest, 1, number(from, "seed"));
    struct sc_hash family = sc_digest_done(&digest);
    const struct sc_chain_scope scope = {.family = family,
                                         .epoch = number(from, "epoch"),
                                         .salt = salt_bytes == 0 ? NULL : salt,
                                         .salt_bytes = salt_bytes,
                                         .lora = lora_bytes == 0 ? NULL : lora,
                                         .lora_bytes = lora_bytes};
    struct sc_sha256 root = sc_chain_root(&one->secret, &scope);
    assert_memory_equal(&root, &one->root, sizeof(root));
}

static void salt_is_named(struct json_object *from, struct chain_case *one)
{
    uint8_t salt[512];
    uint64_t bytes = unhex(json_object_get_string(member(from, "salt")), salt);
    struct sc_hash name = sc_chain_salt(&one->secret, salt, bytes);
    assert_true(sc_hash_equal(name, hash_of(member(from, "salt_name"))));
}

static void salts_have_the_frozen_names(void **state)
{
    (void)state;
    for_each_case(salt_is_named);
}

static void roots_bind_secret_family_epoch_salt_and_lora(void **state)
{
    (void)state;
    for_each_case(check_root);
}

static void check_marks(struct json_object *from, struct chain_case *one)
{
    (void)from;
    static struct sc_mark marks[KEYS_MAX];
    for (uint64_t turn = 0; turn < 2; turn++) {
        uint64_t count = sc_chain_marks(one->keys, one->key_count, marks);
        assert_int_equal(count, one->mark_count);
        for (uint64_t i = 0; i < count; i++) {
            assert_int_equal(marks[i].token, one->marks[i].token);
            assert_memory_equal(&marks[i].digest, &one->marks[i].digest, SC_SHA256_BYTES);
        }
        for (uint64_t i = 0; i < one->key_count / 2; i++) { /* the same keys, listed backwards */
            struct sc_chain_key swap = one->keys[i];
            one->keys[i] = one->keys[one->key_count - 1 - i];
            one->keys[one->key_count - 1 - i] = swap;
        }
    }
}

static void marks_do_not_depend_on_the_order_of_keys(void **state)
{
    (void)state;
    for_each_case(check_marks);
}

static struct sc_marks marks_of(const struct chain_case *one)
{
    return (struct sc_marks){one->marks, one->mark_count};
}

static void check_steps(struct json_object *from, struct chain_case *one)
{
    (void)from;
    for (uint64_t p = 1; p <= one->token_count; p++) {
        uint64_t grid = (p - 1) / one->chunk_tokens * one->chunk_tokens;
        assert_hash(sc_chain_step(&one->secret, one->hashes[grid], grid, one->tokens + grid,
                                  (uint32_t)(p - grid), marks_of(one)),
                    one->hashes[p], p);
    }
}

static void steps_give_the_hash_after_every_token(void **state)
{
    (void)state;
    for_each_case(check_steps);
}

static void check_parts(struct json_object *from, struct chain_case *one)
{
    (void)from;
    const uint64_t parts[] = {1, 7, 64, 100, 1000};
    for (uint64_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct sc_chain chain;
        sc_chain_init(&chain, &one->secret, &one->root, one->chunk_tokens);
        assert_hash(sc_chain_at(&chain), one->hashes[0], 0);
        for (uint64_t at = 0; at < one->token_count;) {
            uint64_t count = one->token_count - at < parts[i] ? one->token_count - at : parts[i];
            sc_chain_extend(&chain, one->tokens + at, count, marks_of(one));
            at += count;
            assert_int_equal(chain.grid_first, at / one->chunk_tokens * one->chunk_tokens);
            assert_int_equal(chain.grid_first + chain.pending_count, at);
            assert_hash(chain.grid, one->hashes[chain.grid_first], chain.grid_first);
            assert_hash(sc_chain_at(&chain), one->hashes[at], at);
        }
    }
}

static void chains_are_the_same_fed_in_any_parts(void **state)
{
    (void)state;
    for_each_case(check_parts);
}

static void chain_begins_again_at_a_grid_border(void **state)
{
    (void)state;
    static struct chain_case one;
    read_case(json_object_array_get_idx(member(vectors, "chains"), 6), &one);
    uint64_t grid = 2 * (uint64_t)one.chunk_tokens;
    struct sc_chain chain;
    sc_chain_init_at(&chain, &one.secret, one.hashes[grid], grid, one.chunk_tokens);
    uint64_t border = grid + one.chunk_tokens;
    sc_chain_extend(&chain, one.tokens + grid, one.chunk_tokens, marks_of(&one));
    assert_int_equal(chain.grid_first, border);
    assert_hash(chain.grid, one.hashes[border], 0);
    sc_chain_extend(&chain, one.tokens + border, one.token_count - border, marks_of(&one));
    assert_hash(sc_chain_at(&chain), one.hashes[one.token_count], 1);
}

/* Two salts that XXH3-128 with its own secret takes for one, where format 3 hashed them: roots and
 * digests of today tell them apart. */
static void salts_that_xxh3_takes_for_one_are_two(void **state)
{
    (void)state;
    static uint8_t salts[2][74 + 700];
    struct sc_chain_secret secret = secret_of(member(vectors, "plain_secret"));
    struct sc_sha256 roots[2];
    struct json_object *given = member(vectors, "salts");
    for (uint64_t i = 0; i < 2; i++) {
        struct json_object *salt = json_object_array_get_idx(given, i);
        assert_int_equal(unhex(json_object_get_string(salt), salts[i] + 74), 700);
        const struct sc_chain_scope scope = {
            .family = {1, 2}, .epoch = 3, .salt = salts[i] + 74, .salt_bytes = 700};
        roots[i] = sc_chain_root(&secret, &scope);
    }
    assert_memory_not_equal(salts[0], salts[1], sizeof(salts[0]));
    assert_true(sc_hash_equal(sc_hash_bytes(salts[0], sizeof(salts[0])),
                              sc_hash_bytes(salts[1], sizeof(salts[1]))));
    assert_false(sc_hash_equal(sc_hash_keyed(salts[0], sizeof(salts[0]), secret.lanes),
                               sc_hash_keyed(salts[1], sizeof(salts[1]), secret.lanes)));
    assert_false(sc_hash_equal(sc_sha256_short(&roots[0]), sc_sha256_short(&roots[1])));
}

/* What one who has read the secret can do, and only under that secret: token blocks with one hash.
 */
static void blocks_collide_under_their_secret_alone(void **state)
{
    (void)state;
    struct json_object *given = member(vectors, "blocks"), *tokens = member(given, "tokens");
    struct sc_chain_secret own = secret_of(member(given, "secret"));
    struct sc_chain_secret other = secret_of(member(vectors, "plain_secret"));
    uint32_t blocks[2][16];
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t j = 0; j < 16; j++)
            blocks[i][j] = (uint32_t)json_object_get_uint64(
                json_object_array_get_idx(json_object_array_get_idx(tokens, i), j));
    assert_memory_not_equal(blocks[0], blocks[1], sizeof(blocks[0]));
    for (uint64_t i = 0; i < 3; i++) {
        struct sc_hash before = {i * 1000, i};
        struct sc_marks none = {NULL, 0};
        assert_true(sc_hash_equal(sc_chain_step(&own, before, 0, blocks[0], 16, none),
                                  sc_chain_step(&own, before, 0, blocks[1], 16, none)));
        assert_false(sc_hash_equal(sc_chain_step(&other, before, 0, blocks[0], 16, none),
                                   sc_chain_step(&other, before, 0, blocks[1], 16, none)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_plain_bytes),
        cmocka_unit_test(digests_fields_of_every_type),
        cmocka_unit_test(hash_bytes_go_there_and_back),
        cmocka_unit_test(salts_have_the_frozen_names),
        cmocka_unit_test(roots_bind_secret_family_epoch_salt_and_lora),
        cmocka_unit_test(marks_do_not_depend_on_the_order_of_keys),
        cmocka_unit_test(steps_give_the_hash_after_every_token),
        cmocka_unit_test(chains_are_the_same_fed_in_any_parts),
        cmocka_unit_test(chain_begins_again_at_a_grid_border),
        cmocka_unit_test(salts_that_xxh3_takes_for_one_are_two),
        cmocka_unit_test(blocks_collide_under_their_secret_alone),
    };
    return cmocka_run_group_tests_name("hashing chain", tests, load, unload);
}
