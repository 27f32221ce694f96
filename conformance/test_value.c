/* test_value: comparisons by value that a collision of a fast hash cannot deceive: ABI-170,
 * ABI-171.
 *
 * XXH3 of long inputs works on lanes of a 64-byte stripe. To each lane it adds the product of the
 * halves of (8 bytes of input ^ 8 bytes of its secret); to the neighbouring lane it adds the input.
 * If the low half equals the secret's, the product is 0. So two such words of one lane may change
 * as long as their sum does not: two inputs with one hash. The secret is public; the constants
 * below are two places of it. tools/make_hash_vectors.py makes and proves the same inputs.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VALUE_BYTES 700u
#define LANE        2u

/* The low halves of the 8 bytes of the secret that lane LANE has of stripe 1, 2, 3 and 5. */
static const uint32_t KEYS[] = {
    [1] = 0xa4a44072, [2] = 0x4ee679cb, [3] = 0x7dd05a82, [5] = 0xe69035e0};

static void put_word(uint8_t *at, uint32_t low, uint32_t high)
{
    memcpy(at, &low, sizeof(low));
    memcpy(at + sizeof(low), &high, sizeof(high));
}

/* Two values with one XXH3 (64 or 128 bits) of every message in which they begin at byte `at`. */
static void make_twins(uint8_t twins[2][VALUE_BYTES], uint32_t at)
{
    for (uint32_t twin = 0; twin < 2; twin++) {
        for (uint32_t i = 0; i < VALUE_BYTES; i++)
            twins[twin][i] = (uint8_t)(i * 7);
        put_word(twins[twin] + 64 * 3 + 8 * LANE - at, KEYS[3], 1000 + twin);
        put_word(twins[twin] + 64 * 5 + 8 * LANE - at, KEYS[5], 1000 - twin);
    }
    assert_memory_not_equal(twins[0], twins[1], VALUE_BYTES);
}

/* ---- 170 ---- */

enum what { SALT, LORA, EXTRA_KEY };

static void set_value(struct spec_lookup_params *in, enum what what, const uint8_t *value,
                      struct spec_extra_key *key)
{
    const struct spec_bytes bytes = {value, VALUE_BYTES};
    *key = (struct spec_extra_key){
        .struct_size = sizeof(*key), .kind = 1, .token_count = 5, .value = bytes};
    in->salt = what == SALT ? bytes : (struct spec_bytes){NULL, 0};
    in->lora = what == LORA ? bytes : (struct spec_bytes){NULL, 0};
    in->extra_keys = what == EXTRA_KEY ? key : NULL;
    in->extra_key_count = what == EXTRA_KEY;
}

/* One stores; the other finds nothing of it, stores rows of its own, and each then finds its own.
 */
static void check_twins(struct fixture *fx, enum what what, uint32_t at, uint64_t seed)
{
    uint8_t twins[2][VALUE_BYTES];
    struct prompt prompt = prompt_make(seed, 200);
    bool stored[2];
    make_twins(twins, at);
    for (uint64_t i = 0; i < 4; i++) {
        struct spec_extra_key key;
        struct spec_lookup_params in = lookup_params(&prompt);
        set_value(&in, what, twins[i % 2], &key);
        prompt_salt(&prompt, i % 2);
        struct spec_lookup_result found = fixture_lookup(fx, &in);
        expect_match(&found, i >= 2 && stored[i % 2] ? 199 : 0);
        fixture_check_layers(fx, &found, &prompt, 0);
        if (i < 2)
            stored[i] = fixture_store_range(fx, found.request, &prompt, found.matched_tokens,
                                            200 - found.matched_tokens);
        fixture_release(fx, found.request);
    }
    prompt_free(&prompt);
}

/* The value hashed alone, and as this connector's format 3 had it in a digest. */
static void abi_170_salts_chosen_to_collide_share_nothing(void **state)
{
    check_twins(*state, SALT, 0, 2300);
    check_twins(*state, SALT, 74, 2301);
}

static void abi_170_lora_ids_chosen_to_collide_share_nothing(void **state)
{
    check_twins(*state, LORA, 0, 2310);
    check_twins(*state, LORA, 90, 2311);
}

static void abi_170_extra_keys_chosen_to_collide_share_nothing(void **state)
{
    check_twins(*state, EXTRA_KEY, 0, 2320);
    check_twins(*state, EXTRA_KEY, 89, 2321);
}

/* ---- 171 ---- */

/* Two prompts of one chunk of 64 tokens that differ in four: where tokens stand from byte 16 on in
 * what is hashed, and nothing in it keeps a secret, they have one hash. */
static struct prompt twin_prompt(uint32_t twin)
{
    struct prompt prompt = prompt_make(2330, 65);
    prompt.tokens[(64 * 1 + 8 * LANE - 16) / 4] = KEYS[1];
    prompt.tokens[(64 * 1 + 8 * LANE - 16) / 4 + 1] = 1000 + twin;
    prompt.tokens[(64 * 2 + 8 * LANE - 16) / 4] = KEYS[2];
    prompt.tokens[(64 * 2 + 8 * LANE - 16) / 4 + 1] = 1000 - twin;
    prompt_salt(&prompt, 0); /* the truth follows the tokens */
    return prompt;
}

static void copy_file(int from_dir, int to_dir, const char *name, uint64_t bytes)
{
    int from = openat(from_dir, name, O_RDONLY);
    int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    uint8_t *memory = malloc(bytes + 1);
    assert_true(from >= 0 && to >= 0 && memory != NULL);
    uint64_t at = 0;
    for (ssize_t got; at < bytes && (got = read(from, memory + at, bytes - at)) > 0;)
        at += (uint64_t)got;
    assert_int_equal(at, bytes);
    assert_int_equal(write(to, memory, bytes), (ssize_t)bytes);
    free(memory);
    close(from);
    close(to);
}

/* Files and folders of folders; a store has no more. */
static void copy_tree(const char *from, const char *to)
{
    assert_int_equal(mkdir(to, 0700), 0);
    int from_dir = open(from, O_RDONLY | O_DIRECTORY), to_dir = open(to, O_RDONLY | O_DIRECTORY);
    DIR *dir = opendir(from);
    assert_true(from_dir >= 0 && to_dir >= 0 && dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat info;
        char below[2][4096];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        assert_int_equal(fstatat(from_dir, entry->d_name, &info, AT_SYMLINK_NOFOLLOW), 0);
        if (S_ISREG(info.st_mode))
            copy_file(from_dir, to_dir, entry->d_name, (uint64_t)info.st_size);
        if (!S_ISDIR(info.st_mode))
            continue;
        (void)snprintf(below[0], sizeof(below[0]), "%.3000s/%s", from, entry->d_name);
        (void)snprintf(below[1], sizeof(below[1]), "%.3000s/%s", to, entry->d_name);
        copy_tree(below[0], below[1]);
    }
    closedir(dir);
    close(from_dir);
    close(to_dir);
}

/* Attaches a lease that was given for other tokens than those stored in their place. */
static void expect_stale(struct fixture *fx, const struct spec_lookup_result *leased,
                         const struct prompt *prompt)
{
    struct spec_attach_params params = {.struct_size = sizeof(params),
                                        .lease = {leased->lease, 64}};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    spec_status status = fx->api->attach(fx->conn, &params, &found, &fx->error);
    if (status == SPEC_OK && found.state == SPEC_LOOKUP_HIT) {
        fixture_check_layers(fx, &found, prompt, 0); /* the rows of its tokens, or it is a lie */
        fixture_release(fx, found.request);
        fail_msg("a lease on tokens that are not stored was opened");
    }
    if (status != SPEC_OK)
        assert_status(status, SPEC_E_STALE);
}

/* What a crash may do, or a backup: the store is as it was before the first prompt came, and
 * another takes its place, of the same length, by the same hash where hashes keep no secret. */
static void abi_171_a_lease_opens_the_tokens_that_it_was_given_for(void **state)
{
    struct fixture *fx = *state;
    struct prompt first = prompt_make(2340, 100), a = twin_prompt(0), b = twin_prompt(1);
    char before[3300];
    (void)snprintf(before, sizeof(before), "%.3000s/before", fx->dir);
    fixture_reconfigure(fx, "\"chunk_tokens\": 64");
    (void)fixture_store(fx, &first); /* there is a log */
    fixture_close(fx);
    copy_tree(fx->store, before);
    fixture_open(fx);
    bool stored = fixture_store(fx, &a);
    struct spec_lookup_result leased = fixture_find(fx, &a);
    expect_match(&leased, stored ? 64 : 0);
    fixture_release(fx, leased.request);
    fixture_close(fx);
    conf_remove_tree(fx->store);
    assert_int_equal(rename(before, fx->store), 0);
    fixture_open(fx);
    stored = fixture_store(fx, &b);
    if (leased.lease_expiry_ns != 0)
        expect_stale(fx, &leased, &a);
    fixture_check(fx, &b, stored ? 64 : 0);
    prompt_free(&first);
    prompt_free(&a);
    prompt_free(&b);
}

const struct conf_test CONF_VALUE[] = {
    OPENED(abi_170_salts_chosen_to_collide_share_nothing),
    OPENED(abi_170_lora_ids_chosen_to_collide_share_nothing),
    OPENED(abi_170_extra_keys_chosen_to_collide_share_nothing),
    OPENED(abi_171_a_lease_opens_the_tokens_that_it_was_given_for), END};
