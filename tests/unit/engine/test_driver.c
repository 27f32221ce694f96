/* The driver with the real plugin: reuse through the ABI gives the bits of computing again, for
 * OPT and Llama, every KV dtype, in a later connector, over passes of any size, and after the disk
 * lied. */
#include <glob.h>
#include <inttypes.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance/engine/cli/driver.h"
#include "tests/unit/engine/make_model.h"

#define PREFIX_COUNT 150u
#define QUERY_COUNT  7u

struct fixture {
    char folder[64], config[256];
    struct eng_model *model;
    struct eng_runner *runner;
    uint32_t tokens[PREFIX_COUNT + QUERY_COUNT];
    float *wanted; /* [vocab]: computed without a connector */
    uint64_t vocab;
};

static void must(eng_status status, const struct eng_error *error)
{
    if (status != ENG_OK)
        fail_msg("%s", error->text);
}

static struct eng_result run(struct fixture *fx, const struct eng_source *source, uint64_t prefix,
                             uint64_t pass_tokens)
{
    struct eng_error error;
    struct eng_result result;
    struct eng_request request = {.prefix = fx->tokens,
                                  .query = fx->tokens + prefix,
                                  .prefix_count = prefix,
                                  .query_count = QUERY_COUNT,
                                  .max_new = 3,
                                  .pass_tokens = pass_tokens};
    must(eng_run(fx->runner, &request, source, &result, &error), &error);
    return result;
}

/* Prompt `number`, and the logits that it has without a connector. */
static void make_prompt(struct fixture *fx, uint32_t number)
{
    for (uint32_t i = 0; i < PREFIX_COUNT + QUERY_COUNT; i++)
        fx->tokens[i] = (uint32_t)((i * 37 + 5 + (i >= 40 ? number * (i + 3) : 0)) % fx->vocab);
    struct eng_result result = run(fx, NULL, PREFIX_COUNT, 0);
    memcpy(fx->wanted, result.logits, fx->vocab * sizeof(float));
    eng_result_done(&result);
}

static void open_fixture(struct fixture *fx, bool llama, enum eng_dtype dtype)
{
    struct eng_error error;
    struct recipe recipe = llama ? recipe_llama() : recipe_opt();
    recipe.positions = 512;
    strcpy(fx->folder, "/tmp/spec-driver-XXXXXX");
    assert_non_null(mkdtemp(fx->folder));
    make_model(fx->folder, &recipe);
    (void)snprintf(fx->config, sizeof(fx->config), "{\"path\": \"%s/store\", \"fill\": \"load\"}",
                   fx->folder);
    must(eng_model_open(fx->folder, 2, &fx->model, &error), &error);
    fx->vocab = eng_model_config(fx->model)->vocab;
    must(eng_runner_open(fx->model, dtype, 512, &fx->runner, &error), &error);
    fx->wanted = malloc(fx->vocab * sizeof(float));
    assert_non_null(fx->wanted);
    make_prompt(fx, 0);
}

static void close_fixture(struct fixture *fx)
{
    char command[256];
    eng_runner_close(fx->runner);
    eng_model_close(fx->model);
    free(fx->wanted);
    (void)snprintf(command, sizeof(command), "rm -rf %s/store", fx->folder);
    assert_int_equal(system(command), 0);
    remove_model(fx->folder);
}

static struct eng_driver *open_driver(struct fixture *fx, enum eng_dtype dtype)
{
    struct eng_error error;
    struct eng_driver *driver = NULL;
    struct eng_driver_params params = {.connector = SC_BINARY_DIR "/lib/libspec_connector.so",
                                       .config = fx->config,
                                       .model_dir = fx->folder,
                                       .model = fx->model,
                                       .kv_dtype = dtype,
                                       .store = true};
    must(eng_driver_open(&params, &driver, &error), &error);
    return driver;
}

/* One run in a connector of its own; the logits must be those computed without one. */
static uint64_t matched_fresh(struct fixture *fx, enum eng_dtype dtype, uint64_t pass_tokens,
                              uint64_t *ret_restarts)
{
    struct eng_driver *driver = open_driver(fx, dtype);
    struct eng_result result = run(fx, eng_driver_source(driver), PREFIX_COUNT, pass_tokens);
    uint64_t matched = result.matched_tokens;
    *ret_restarts = result.restarts;
    assert_memory_equal(result.logits, fx->wanted, fx->vocab * sizeof(float));
    eng_result_done(&result);
    if (eng_driver_store_problem(driver) != NULL)
        fail_msg("%s", eng_driver_store_problem(driver));
    eng_driver_close(driver);
    return matched;
}

static void reuse_is_bit_identical_for_both_families_and_every_dtype(void **state)
{
    (void)state;
    for (int llama = 0; llama < 2; llama++)
        for (int dtype = 0; dtype < ENG_DTYPES; dtype++) {
            struct fixture fx = {0};
            uint64_t restarts;
            open_fixture(&fx, llama != 0, (enum eng_dtype)dtype);
            assert_int_equal(matched_fresh(&fx, (enum eng_dtype)dtype, 0, &restarts), 0);
            assert_int_equal(matched_fresh(&fx, (enum eng_dtype)dtype, 0, &restarts), PREFIX_COUNT);
            assert_int_equal(restarts, 0);
            close_fixture(&fx);
        }
}

/* Whole layers are asked for while the one below is computed, where nothing is chosen by queries:
 * all but the first; chosen ones, and where the caller bounds them, never. */
static void whole_layers_are_asked_for_ahead(void **state)
{
    static const char *const more[] = {
        "\"preset\": \"as-like\"", "\"preset\": \"as-like\", \"host_bytes\": \"64MiB\"",
        "\"preset\": \"impress-itf\", \"select\": {\"min_tokens\": 0, \"min_share_ppm\": 0}"};
    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        struct fixture fx = {0};
        open_fixture(&fx, true, ENG_F16);
        (void)snprintf(fx.config, sizeof(fx.config), "{\"path\": \"%s/store\", %s}", fx.folder,
                       more[i]);
        struct eng_driver *driver = open_driver(&fx, ENG_F16);
        uint64_t layers = eng_model_config(fx.model)->layers;
        for (uint32_t round = 0; round < 4; round++) {
            struct eng_result result = run(&fx, eng_driver_source(driver), PREFIX_COUNT, 0);
            bool is_loaded = round > 0 && i < 2;
            assert_int_equal(result.matched_tokens, round > 0 ? PREFIX_COUNT : 0);
            assert_int_equal(result.layers_ahead, is_loaded ? layers - 1 : 0);
            if (is_loaded)
                assert_memory_equal(result.logits, fx.wanted, fx.vocab * sizeof(float));
            if (i == 1 && round > 1)
                assert_int_equal(result.bytes_read, 0);
            eng_result_done(&result);
        }
        eng_driver_close(driver);
        close_fixture(&fx);
    }
}

static void passes_of_any_size_store_what_one_pass_stores(void **state)
{
    static const uint64_t sizes[] = {1, 17, 64, 100};
    (void)state;
    for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct fixture fx = {0};
        uint64_t restarts;
        open_fixture(&fx, true, ENG_F16);
        assert_int_equal(matched_fresh(&fx, ENG_F16, sizes[i], &restarts), 0);
        assert_int_equal(matched_fresh(&fx, ENG_F16, 0, &restarts), PREFIX_COUNT);
        close_fixture(&fx);
    }
}

static void other_dtype_shares_nothing(void **state)
{
    struct fixture fx = {0};
    uint64_t restarts;
    (void)state;
    open_fixture(&fx, false, ENG_F32);
    assert_int_equal(matched_fresh(&fx, ENG_F32, 0, &restarts), 0);
    struct eng_error error;
    eng_runner_close(fx.runner);
    must(eng_runner_open(fx.model, ENG_F16, 512, &fx.runner, &error), &error);
    struct eng_result result = run(&fx, NULL, PREFIX_COUNT, 0);
    memcpy(fx.wanted, result.logits, fx.vocab * sizeof(float));
    eng_result_done(&result);
    assert_int_equal(matched_fresh(&fx, ENG_F16, 0, &restarts), 0);
    assert_int_equal(matched_fresh(&fx, ENG_F16, 0, &restarts), PREFIX_COUNT);
    close_fixture(&fx);
}

/* The same weights under another activation make other keys and values. */
static void another_config_of_the_same_weights_shares_nothing(void **state)
{
    struct fixture fx = {0};
    struct eng_error error;
    uint64_t restarts;
    char command[256];
    (void)state;
    open_fixture(&fx, false, ENG_F32);
    assert_int_equal(matched_fresh(&fx, ENG_F32, 0, &restarts), 0);
    (void)snprintf(command, sizeof(command), "sed -i s/gelu_new/relu/ %s/config.json", fx.folder);
    assert_int_equal(system(command), 0);
    eng_runner_close(fx.runner);
    eng_model_close(fx.model);
    must(eng_model_open(fx.folder, 2, &fx.model, &error), &error);
    must(eng_runner_open(fx.model, ENG_F32, 512, &fx.runner, &error), &error);
    struct eng_result result = run(&fx, NULL, PREFIX_COUNT, 0);
    assert_memory_not_equal(result.logits, fx.wanted, fx.vocab * sizeof(float));
    memcpy(fx.wanted, result.logits, fx.vocab * sizeof(float));
    eng_result_done(&result);
    assert_int_equal(matched_fresh(&fx, ENG_F32, 0, &restarts), 0);
    assert_int_equal(matched_fresh(&fx, ENG_F32, 0, &restarts), PREFIX_COUNT);
    close_fixture(&fx);
}

/* A configuration that keeps nothing is no failure: everything is computed again. */
static void what_is_configured_away_is_no_problem(void **state)
{
    static const char *const more[] = {"\"preset\": \"recompute\"",
                                       "\"store\": {\"min_tokens\": 1000}"};
    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        struct fixture fx = {0};
        open_fixture(&fx, false, ENG_F32);
        (void)snprintf(fx.config, sizeof(fx.config), "{\"path\": \"%s/store\", %s}", fx.folder,
                       more[i]);
        struct eng_driver *driver = open_driver(&fx, ENG_F32);
        for (int round = 0; round < 2; round++) {
            struct eng_result result = run(&fx, eng_driver_source(driver), PREFIX_COUNT, 0);
            assert_int_equal(result.matched_tokens, 0);
            assert_memory_equal(result.logits, fx.wanted, fx.vocab * sizeof(float));
            assert_null(eng_driver_store_problem(driver));
            eng_result_done(&result);
        }
        eng_driver_close(driver);
        close_fixture(&fx);
    }
}

static void spoil_segment(const struct fixture *fx, long offset)
{
    char pattern[128];
    glob_t found = {0};
    (void)snprintf(pattern, sizeof(pattern), "%s/store/rank-*/seg-*", fx->folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    FILE *segment = fopen(found.gl_pathv[0], "r+b");
    assert_non_null(segment);
    assert_int_equal(fseek(segment, offset, SEEK_SET), 0);
    int byte = fgetc(segment);
    assert_true(byte != EOF);
    assert_int_equal(fseek(segment, offset, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 0x10, segment), byte ^ 0x10);
    assert_int_equal(fclose(segment), 0);
    globfree(&found);
}

static void a_flipped_bit_is_a_restart_and_never_promised_again(void **state)
{
    (void)state;
    for (long offset = 8; offset < 210000; offset += 13777) {
        struct fixture fx = {0};
        uint64_t restarts;
        open_fixture(&fx, false, ENG_F32);
        assert_int_equal(matched_fresh(&fx, ENG_F32, 0, &restarts), 0);
        spoil_segment(&fx, offset);
        uint64_t matched = matched_fresh(&fx, ENG_F32, 0, &restarts);
        assert_true(matched < PREFIX_COUNT && restarts == 1);
        matched = matched_fresh(&fx, ENG_F32, 0, &restarts);
        assert_int_equal(restarts, 0);
        assert_int_equal(matched, PREFIX_COUNT); /* stored anew by the run before */
        close_fixture(&fx);
    }
}

/* ---- Killed, then damaged ---- */

#define IMAGES 60u

static uint64_t dice_state = 1;

static uint64_t dice(uint64_t sides)
{
    dice_state = dice_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (dice_state >> 33) % sides;
}

struct signal { /* in memory that parent and child share */
    _Atomic int opened;
};

/* A child with a model of its own stores the prompt in passes of 17 and is killed at a random
 * moment after its first write began to be possible. */
static void kill_while_storing(struct fixture *fx, enum eng_dtype dtype, struct signal *shared)
{
    struct timespec delay = {.tv_nsec = (long)dice(9000000)};
    atomic_store(&shared->opened, 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct eng_error error;
        if (eng_model_open(fx->folder, 1, &fx->model, &error) != ENG_OK ||
            eng_runner_open(fx->model, dtype, 512, &fx->runner, &error) != ENG_OK)
            _exit(1);
        struct eng_driver *driver = open_driver(fx, dtype);
        atomic_store(&shared->opened, 1);
        run(fx, eng_driver_source(driver), PREFIX_COUNT, 17);
        for (;;)
            pause();
    }
    int status = 0;
    pid_t ended = 0;
    while (atomic_load(&shared->opened) == 0 && (ended = waitpid(pid, &status, WNOHANG)) == 0)
        sched_yield();
    assert_int_equal(ended, 0);
    (void)nanosleep(&delay, NULL);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* The rank's file of this name, opened; its size. */
static FILE *open_part(const struct fixture *fx, const char *name, long *ret_bytes)
{
    char pattern[128];
    glob_t found = {0};
    (void)snprintf(pattern, sizeof(pattern), "%s/store/rank-*/%s", fx->folder, name);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    FILE *file = fopen(found.gl_pathv[0], "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *ret_bytes = ftell(file);
    globfree(&found);
    return file;
}

/* Cuts the log a few bytes short: inside its last record, which is longer. */
static void cut_log(const struct fixture *fx)
{
    long bytes;
    FILE *log = open_part(fx, "log", &bytes);
    if (bytes > 16)
        assert_int_equal(ftruncate(fileno(log), bytes - 1 - (long)dice(16)), 0);
    assert_int_equal(fclose(log), 0);
}

/* Zeroes up to 8 sectors that end somewhere in the last 16 KiB that were written. */
static void zero_sectors(const struct fixture *fx)
{
    static const uint8_t zeros[8 * 512];
    uint8_t page[4096];
    long bytes, at;
    FILE *segment = open_part(fx, "seg-00000000", &bytes);
    for (at = bytes - 4096; at > 0; at -= 4096) {
        assert_int_equal(fseek(segment, at, SEEK_SET), 0);
        assert_int_equal(fread(page, 1, sizeof(page), segment), sizeof(page));
        if (memcmp(page, zeros, sizeof(page)) != 0)
            break;
    }
    at += 4096 - 512 * (long)dice(32);
    uint64_t count = 1 + dice(8);
    at = at > (long)count * 512 ? at - (long)count * 512 : 0;
    assert_int_equal(fseek(segment, at, SEEK_SET), 0);
    assert_int_equal(fwrite(zeros, 512, count, segment), count);
    assert_int_equal(fclose(segment), 0);
}

static void damaged_images_of_killed_stores_give_the_same_logits(void **state)
{
    struct signal *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        enum eng_dtype dtype = llama ? ENG_BF16 : ENG_F32;
        uint64_t restarts_total = 0, matched_total = 0;
        struct fixture fx = {0};
        open_fixture(&fx, llama != 0, dtype);
        for (uint32_t i = 0; i < IMAGES / 2; i++) {
            uint64_t restarts;
            make_prompt(&fx, i);
            kill_while_storing(&fx, dtype, shared);
            if (i % 2 == 0)
                cut_log(&fx);
            else
                zero_sectors(&fx);
            matched_total += matched_fresh(&fx, dtype, 0, &restarts);
            restarts_total += restarts;
        }
        print_message("%s: %u kills, %u images cut or zeroed, %" PRIu64 " tokens reused, %" PRIu64
                      " restarts\n",
                      llama ? "llama" : "opt", IMAGES / 2, IMAGES / 2, matched_total,
                      restarts_total);
        assert_true(matched_total > 0);
        close_fixture(&fx);
    }
    assert_int_equal(munmap(shared, sizeof(*shared)), 0);
}

static void wrong_plugins_and_configurations_are_one_line(void **state)
{
    static const char *const configs[] = {"{}", "{\"path\": 3}", "{\"path\": \"/tmp/x\", \"a\": 1}",
                                          "/no/such/file.json", "{\"path\": \"/no/such/dir/x\"}"};
    (void)state;
    struct fixture fx = {0};
    open_fixture(&fx, false, ENG_F32);
    for (uint64_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        struct eng_error error = {0};
        struct eng_driver *driver = NULL;
        struct eng_driver_params params = {.connector = SC_BINARY_DIR "/lib/libspec_connector.so",
                                           .config = configs[i],
                                           .model_dir = fx.folder,
                                           .model = fx.model,
                                           .kv_dtype = ENG_F32};
        assert_int_not_equal(eng_driver_open(&params, &driver, &error), ENG_OK);
        assert_null(driver);
        assert_true(strlen(error.text) > 20);
        assert_null(strchr(error.text, '\n'));
        params.connector = "/no/such/plugin.so";
        assert_int_not_equal(eng_driver_open(&params, &driver, &error), ENG_OK);
    }
    close_fixture(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reuse_is_bit_identical_for_both_families_and_every_dtype),
        cmocka_unit_test(whole_layers_are_asked_for_ahead),
        cmocka_unit_test(passes_of_any_size_store_what_one_pass_stores),
        cmocka_unit_test(other_dtype_shares_nothing),
        cmocka_unit_test(another_config_of_the_same_weights_shares_nothing),
        cmocka_unit_test(what_is_configured_away_is_no_problem),
        cmocka_unit_test(a_flipped_bit_is_a_restart_and_never_promised_again),
        cmocka_unit_test(damaged_images_of_killed_stores_give_the_same_logits),
        cmocka_unit_test(wrong_plugins_and_configurations_are_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
