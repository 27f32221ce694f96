/* test_conversation: 50 turns of 23 tokens; each turn finds all earlier ones, and disk use is
 * bounded.
 *
 *   turn n   tokens [0, 23 n): the first 23 (n - 1) are loaded and compared, 23 are stored
 *   bound    extent_bytes <= 1.1 x unique tokens x row bytes x layers
 *
 * The engine does the same with a model's rows, beside its own cache (a small Llama of 160
 * positions, turns of 3 tokens). The bound counts alignment and other bytes of extents, not the
 * log.
 *
 * Threads: one. Tests: it is one; argv[1] is the connector. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conformance/through.h"

#define TURNS       50u
#define TURN_TOKENS 23u

static void converse(struct fixture *fx, struct shape shape, const char *name)
{
    uint64_t unique = TURNS * TURN_TOKENS;
    fixture_shape(fx, shape);
    fixture_open(fx);
    struct prompt whole = prompt_make(7, unique);
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        struct prompt prompt = prompt_diverge(&whole, turn * TURN_TOKENS, turn * TURN_TOKENS, 1);
        struct spec_lookup_result found = fixture_find(fx, &prompt);
        assert_int_equal(found.matched_tokens, (turn - 1) * TURN_TOKENS);
        fixture_check_layers(fx, &found, &prompt, 0);
        assert_true(fixture_store_range(fx, found.request, &prompt, found.matched_tokens,
                                        prompt.count - found.matched_tokens));
        fixture_release(fx, found.request);
        prompt_free(&prompt);
        if (turn % 10 == 0)
            fixture_reopen(fx); /* the next turn comes to a new process */
    }
    fixture_check(fx, &whole, unique - 1);
    struct spec_stats stats = fixture_stats(fx);
    uint64_t rows = unique * 2 * row_bytes(&shape) * shape.layers;
    printf("%s: %u turns of %u tokens: %" PRIu64 " bytes of rows, %" PRIu64
           " in extents (x %.3f), log %" PRIu64 "\n",
           name, TURNS, TURN_TOKENS, rows, stats.extent_bytes,
           (double)stats.extent_bytes / (double)rows, stats.log_bytes);
    assert_true(stats.extent_bytes >= rows);
    assert_true(stats.extent_bytes * 10 <= rows * 11);
    prompt_free(&whole);
}

/* The engine talks through the connector beside the engine with its own cache: the same logits and
 * the same cache, bit for bit, at every turn. */
static void engine_converses(struct fixture *fx, const char *name, enum eng_dtype dtype,
                             uint64_t turn_tokens)
{
    static uint32_t tokens[TURNS * TURN_TOKENS];
    struct through alone = {0}, reused = {0};
    char dir[4096];
    (void)snprintf(dir, sizeof(dir), "%s/%s", SC_SOURCE_DIR, name);
    through_open(&alone, fx, dir, 1, TURNS * turn_tokens, dtype);
    through_open(&reused, fx, dir, 1, TURNS * turn_tokens, dtype);
    fixture_open(fx);
    for (uint64_t i = 0; i < TURNS * turn_tokens; i++)
        tokens[i] = (uint32_t)((i * 31 + i * i * 13 + 3) % alone.config->vocab);
    struct sequence *own = &alone.sequences[0], *theirs = &reused.sequences[0];
    own->tokens = theirs->tokens = tokens;
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        uint64_t expected = (turn - 1) * turn_tokens;
        own->count = theirs->count = turn * turn_tokens;
        through_alone(&alone);
        through_connector(&reused, &expected);
        assert_int_equal(theirs->matched, expected);
        through_expect_same(&reused, &alone, 0, own->count);
        if (turn % 10 == 0)
            fixture_reopen(fx);
    }
    through_close(&alone);
    through_close(&reused);
}

static void opt_recall_f16_has_the_same_bits_at_every_turn(void **state)
{
    engine_converses(*state, "models/opt-recall", ENG_F16, TURN_TOKENS);
}

static void llama_f32_has_the_same_bits_at_every_turn(void **state)
{
    engine_converses(*state, "tests/data/golden/llama-gqa-bias-fp32", ENG_F32, 3);
}

static void opt_recall_f32_stays_within_the_bound(void **state)
{
    converse(*state, (struct shape){4, 4, 32, SPEC_DTYPE_F32}, "opt-recall f32");
}

static void opt_recall_f16_stays_within_the_bound(void **state)
{
    converse(*state, (struct shape){4, 4, 32, SPEC_DTYPE_F16}, "opt-recall f16");
}

static void smollm2_f16_stays_within_the_bound(void **state)
{
    converse(*state, (struct shape){30, 3, 64, SPEC_DTYPE_F16}, "smollm2 f16");
}

int main(int argc, char **argv)
{
    static char dir[] = "conversation-XXXXXX";
    static char full[4096];
    static struct conf_shared shared;
    if (argc != 2 || mkdtemp(dir) == NULL || realpath(dir, full) == NULL) {
        fprintf(stderr, "usage: test_conversation SO   (in a directory that can be written)\n");
        return 2;
    }
    conf_options = (struct conf_options){.so = argv[1],
                                         .extra = "\"disk_bytes\": \"256MiB\", "
                                                  "\"staging_bytes\": \"32MiB\", "
                                                  "\"max_requests\": 8, "
                                                  "\"max_request_tokens\": 4096",
                                         .dir = full,
                                         .require_hits = true,
                                         .shared = &shared};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opt_recall_f32_stays_within_the_bound, fixture_setup_bare,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(opt_recall_f16_stays_within_the_bound, fixture_setup_bare,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(smollm2_f16_stays_within_the_bound, fixture_setup_bare,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(opt_recall_f16_has_the_same_bits_at_every_turn,
                                        fixture_setup_bare, fixture_teardown),
        cmocka_unit_test_setup_teardown(llama_f32_has_the_same_bits_at_every_turn,
                                        fixture_setup_bare, fixture_teardown),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    conf_remove_tree(full);
    return failed == 0 ? 0 : 1;
}
