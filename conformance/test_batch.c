/* test_batch: eight sequences in one forward of the reference engine, through one connector.
 *
 *   prompts   8 that share a trunk up to different positions (one shares nothing)
 *   round 0   all computed and stored, one store call per sequence and layer
 *   round 1   a new connector: prefixes of 8 lengths loaded inside one forward
 *
 * Invariants: logits, K and V of every sequence equal those of the engine alone, bit for bit.
 * Threads, Tests: see fixture.h. */
#include "conformance/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/through.h"

#define BATCH  8u
#define TOKENS 150u

/* Logits and caches of all sequences, one behind the other. */
static uint8_t *collect(const struct through *through, uint64_t *ret_bytes)
{
    const struct eng_kv *kv = &through->sequences[0].kv;
    uint64_t logits_bytes = through->config->vocab * sizeof(float);
    uint64_t plane = TOKENS * kv->row_bytes;
    *ret_bytes = BATCH * (logits_bytes + 2 * kv->layers * plane);
    uint8_t *all = malloc(*ret_bytes), *at = all;
    assert_non_null(all);
    for (uint64_t i = 0; i < BATCH; i++) {
        const struct sequence *sequence = &through->sequences[i];
        memcpy(at, sequence->logits, logits_bytes);
        at += logits_bytes;
        for (uint64_t layer = 0; layer < kv->layers; layer++) {
            assert_int_equal(sequence->kv.rows[layer], TOKENS);
            memcpy(at, eng_kv_k(&sequence->kv, layer, 0), plane);
            memcpy(at + plane, eng_kv_v(&sequence->kv, layer, 0), plane);
            at += 2 * plane;
        }
    }
    return all;
}

static void make_tokens(struct through *through, uint32_t tokens[BATCH][TOKENS])
{
    for (uint64_t i = 0; i < BATCH; i++) {
        uint64_t leaves = i == 7 ? 0 : 20 + 17 * i;
        for (uint64_t j = 0; j < TOKENS; j++)
            tokens[i][j] = (uint32_t)((j * 29 + j * j * 7 + (j >= leaves ? 1 + i : 0)) %
                                      through->config->vocab);
        through->sequences[i].tokens = tokens[i];
        through->sequences[i].count = TOKENS;
        through->sequences[i].max_tokens = TOKENS - 1 - 11 * i;
    }
}

static void check_batch(struct fixture *fx, const char *name, enum eng_dtype dtype)
{
    static uint32_t tokens[BATCH][TOKENS];
    struct through through = {0};
    char dir[4096];
    uint64_t bytes, expected[BATCH] = {0};
    (void)snprintf(dir, sizeof(dir), "%s/tests/data/golden/%s", SC_SOURCE_DIR, name);
    through_open(&through, fx, dir, BATCH, TOKENS, dtype);
    make_tokens(&through, tokens);
    through_alone(&through);
    uint8_t *alone = collect(&through, &bytes);
    for (int round = 0; round < 3; round++) {
        fixture_open(fx);
        through_connector(&through, expected);
        uint8_t *reused = collect(&through, &bytes);
        if (memcmp(alone, reused, bytes) != 0)
            fail_msg("%s, round %d: other bits than the engine alone", name, round);
        free(reused);
        fixture_close(fx);
        for (uint64_t i = 0; i < BATCH; i++)
            expected[i] = through.sequences[i].max_tokens;
    }
    free(alone);
    through_close(&through);
}

static void abi_051_opt_eight_at_once_have_the_same_bits(void **state)
{
    check_batch(*state, "opt-gelu-new-fp16", ENG_F16);
}

static void abi_051_llama_eight_at_once_have_the_same_bits(void **state)
{
    check_batch(*state, "llama-gqa-rope3-sharded-fp16", ENG_BF16);
}

static void abi_051_opt_post_norm_eight_at_once_have_the_same_bits(void **state)
{
    check_batch(*state, "opt-postln-proj-fp32", ENG_F32);
}

const struct conf_test CONF_BATCH[] = {
    BARE(abi_051_opt_eight_at_once_have_the_same_bits),
    BARE(abi_051_llama_eight_at_once_have_the_same_bits),
    BARE(abi_051_opt_post_norm_eight_at_once_have_the_same_bits),
    END,
};
