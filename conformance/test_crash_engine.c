/* test_crash_engine: the reference engine is killed while it stores; another process continues.
 *
 *   child    computes a prompt in turns of 15 tokens, storing each; killed at a random moment
 *            (every tenth not before it has stored a turn)
 *   parent   opens the store, loads what is promised, computes the rest, and compares logits, K and
 *            V with a prompt computed alone, bit for bit
 *
 * 150 kills with a small OPT and f16 KV, 150 with a small Llama and bf16 KV, over one store each.
 * Prompts share a trunk, so later children load rows of earlier ones. The counts of kills and of
 * reused tokens are printed.
 *
 * Threads: one, beside the plugin's. Tests: it is one; argv[1] is the connector. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conformance/sample.h"
#include "conformance/through.h"

#define KILLS       SAMPLE_OF(150u, 40u)
#define TOKENS      150u
#define TRUNK       40u
#define TURN_TOKENS 15u

static _Atomic uint32_t *reached; /* shared with the child: 1, it has opened; 2, it has stored */
static uint64_t dice_state;

static uint64_t dice(uint64_t sides)
{
    dice_state = dice_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (dice_state >> 33) % sides;
}

static void sleep_us(uint64_t us)
{
    struct timespec left = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static void store_in_turns(struct through *through)
{
    uint64_t expected = TOKENS;
    fixture_open(through->fx);
    atomic_store(reached, 1);
    for (uint64_t count = TURN_TOKENS; count <= TOKENS; count += TURN_TOKENS) {
        through->sequences[0].count = count;
        through_connector(through, &expected);
        atomic_store(reached, 2);
    }
    for (;;)
        pause();
}

static void kill_one(struct through *through, uint64_t number)
{
    uint32_t least = number % 10 == 9 ? 2 : 1;
    atomic_store(reached, 0);
    pid_t pid = conf_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        store_in_turns(through);
        _exit(1);
    }
    int status = 0;
    pid_t ended = 0;
    while (atomic_load(reached) < least && ended == 0) {
        sleep_us(100);
        ended = waitpid(pid, &status, WNOHANG);
    }
    if (ended == 0) {
        sleep_us(dice(12000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void make_tokens(const struct through *through, uint64_t number, uint32_t *tokens)
{
    for (uint64_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint32_t)((i * 31 + i * i * 13 + (i >= TRUNK ? number * 17 + 1 : 0)) %
                               through->config->vocab);
}

static void survive(struct fixture *fx, const char *name, enum eng_dtype dtype)
{
    static uint32_t tokens[TOKENS];
    struct through alone = {0}, reused = {0};
    char dir[4096];
    uint64_t matched = 0, partial = 0;
    (void)snprintf(dir, sizeof(dir), "%s/tests/data/golden/%s", SC_SOURCE_DIR, name);
    through_open(&alone, fx, dir, 1, TOKENS, dtype);
    through_open(&reused, fx, dir, 1, TOKENS, dtype);
    alone.sequences[0].tokens = reused.sequences[0].tokens = tokens;
    for (uint64_t number = 0; number < KILLS; number++) {
        uint64_t expected = TOKENS - 1;
        make_tokens(&alone, number, tokens);
        alone.sequences[0].count = TOKENS;
        eng_kv_truncate(&alone.sequences[0].kv, 0);
        through_alone(&alone);
        kill_one(&reused, number);
        fixture_open(fx);
        reused.sequences[0].count = TOKENS;
        reused.loads_only = true;
        through_connector(&reused, &expected);
        reused.loads_only = false;
        through_expect_same(&reused, &alone, 0, TOKENS);
        matched += reused.sequences[0].matched;
        partial += reused.sequences[0].matched < TOKENS - 1;
        fixture_close(fx);
    }
    printf("%s: kills: %u, %" PRIu64 " before all was stored; %" PRIu64 " of %u tokens reused\n",
           name, KILLS, partial, matched, KILLS * TOKENS);
    assert_true(matched > 0);
    through_close(&alone);
    through_close(&reused);
}

static void opt_goes_on_after_every_kill_with_the_same_bits(void **state)
{
    survive(*state, "opt-gelu-new-fp16", ENG_F16);
}

static void llama_goes_on_after_every_kill_with_the_same_bits(void **state)
{
    survive(*state, "llama-gqa-rope3-sharded-fp16", ENG_BF16);
}

int main(int argc, char **argv)
{
    static char dir[] = "crash-engine-XXXXXX";
    static char full[2048];
    static struct conf_shared shared;
    if (argc < 2 || mkdtemp(dir) == NULL || realpath(dir, full) == NULL) {
        fprintf(stderr, "usage: test_crash_engine SO [SEED]   (in a directory to write to)\n");
        return 2;
    }
    dice_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    reached =
        mmap(NULL, sizeof(*reached), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (reached == MAP_FAILED)
        return 2;
    conf_options = (struct conf_options){.so = argv[1],
                                         .extra = "\"disk_bytes\": \"128MiB\", "
                                                  "\"segment_bytes\": \"1MiB\", "
                                                  "\"staging_bytes\": \"16MiB\", "
                                                  "\"max_requests\": 4, "
                                                  "\"max_request_tokens\": 1024",
                                         .dir = full,
                                         .shared = &shared};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opt_goes_on_after_every_kill_with_the_same_bits,
                                        fixture_setup_bare, fixture_teardown),
        cmocka_unit_test_setup_teardown(llama_goes_on_after_every_kill_with_the_same_bits,
                                        fixture_setup_bare, fixture_teardown),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    conf_remove_tree(full);
    return failed == 0 ? 0 : 1;
}
