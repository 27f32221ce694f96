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

#include "abi/spec_connector.h"
#include "conformance/engine/cli/driver.h"
#include "tests/sample.h"
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

static void open_recipe(struct fixture *fx, struct recipe recipe, enum eng_dtype dtype,
                        const char *more)
{
    struct eng_error error;
    recipe.positions = 512;
    strcpy(fx->folder, "/tmp/spec-driver-XXXXXX");
    assert_non_null(mkdtemp(fx->folder));
    make_model(fx->folder, &recipe);
    (void)snprintf(fx->config, sizeof(fx->config), "{\"path\": \"%s/store\", %s}", fx->folder,
                   more);
    must(eng_model_open(fx->folder, 2, &fx->model, &error), &error);
    fx->vocab = eng_model_config(fx->model)->vocab;
    must(eng_runner_open(fx->model, dtype, 512, &fx->runner, &error), &error);
    fx->wanted = malloc(fx->vocab * sizeof(float));
    assert_non_null(fx->wanted);
    make_prompt(fx, 0);
}

static void open_fixture(struct fixture *fx, bool llama, enum eng_dtype dtype)
{
    open_recipe(fx, llama ? recipe_llama() : recipe_opt(), dtype, "\"load_policy\": \"load\"");
}

/* Rows of 1 KiB in float32; small blocks, and nothing stays in memory. */
static void open_wide_fixture(struct fixture *fx)
{
    struct recipe recipe = recipe_llama();
    recipe.kv_heads = 2;
    recipe.head_dim = 64;
    open_recipe(
        fx, recipe, ENG_F32,
        "\"load_policy\": \"bidirectional\", \"chunk_tokens\": 16, \"host_bytes\": 0, \"io\": "
        "{\"op_bytes\": \"64KiB\"}");
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

#define IMAGES SAMPLE_OF(60u, 20u)

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

/* ---- Both ends ---- */

#define ALL_COUNT (PREFIX_COUNT + QUERY_COUNT + 2) /* rows of a run: two new tokens have some */

/* A driver's source; before the second range is asked for, all is loaded that can be. */
struct paced {
    struct eng_source source;
    const struct eng_source *inner;
    const struct eng_driver *driver;
    uint64_t asks, given, matched, layers, demanded_rows;
    bool gives_up; /* behind the first range */
};

static struct spec_stats stats_of(const struct eng_driver *driver)
{
    struct eng_error error;
    struct spec_stats stats;
    must(eng_driver_stats(driver, &stats, &error), &error);
    return stats;
}

static eng_status paced_begin(void *user, const struct eng_request *request, const uint32_t *tokens,
                              uint64_t token_count, struct eng_result *result,
                              uint64_t *ret_matched, struct eng_error *reterr)
{
    struct paced *paced = user;
    eng_status status = paced->inner->begin(paced->inner->user, request, tokens, token_count,
                                            result, ret_matched, reterr);
    paced->asks = 0;
    paced->matched = *ret_matched;
    return status;
}

/* The rows that the loading side has at last are counted when it has ended. */
static eng_status paced_front(void *user, struct eng_kv *kv, uint64_t *ret_count,
                              struct eng_error *reterr)
{
    struct paced *paced = user;
    if (paced->gives_up && paced->asks == 1)
        return eng_fail(reterr, ENG_E_SYSTEM, "given up");
    for (struct spec_stats now; paced->asks == 1;) {
        now = stats_of(paced->driver);
        if (now.corrupt_ranges > 0 || now.demanded_rows - paced->demanded_rows >=
                                          paced->layers * (paced->matched - paced->given))
            break;
        sched_yield();
    }
    eng_status status = paced->inner->front(paced->inner->user, kv, ret_count, reterr);
    paced->given = *ret_count;
    paced->asks++;
    return status;
}

static eng_status paced_settle(void *user, struct eng_result *result, struct eng_error *reterr)
{
    struct paced *paced = user;
    return paced->inner->settle(paced->inner->user, result, reterr);
}

static const struct eng_source *pace(struct paced *paced, const struct fixture *fx,
                                     const struct eng_driver *driver)
{
    *paced = (struct paced){.source = *eng_driver_source(driver),
                            .inner = eng_driver_source(driver),
                            .driver = driver,
                            .layers = eng_model_config(fx->model)->layers,
                            .demanded_rows = stats_of(driver).demanded_rows};
    paced->source.user = paced;
    paced->source.begin = paced_begin;
    paced->source.front = paced_front;
    paced->source.settle = paced_settle;
    return &paced->source;
}

static struct eng_driver *open_ends(struct fixture *fx, enum eng_dtype dtype, uint64_t tokens,
                                    uint64_t deadline_ns)
{
    struct eng_error error;
    struct eng_driver *driver = NULL;
    struct eng_driver_params params = {.connector = SC_BINARY_DIR "/lib/libspec_connector.so",
                                       .config = fx->config,
                                       .model_dir = fx->folder,
                                       .model = fx->model,
                                       .kv_dtype = dtype,
                                       .fill = ENG_LOAD_POLICY_ENDS,
                                       .fill_tokens = tokens,
                                       .fill_deadline_ns = deadline_ns,
                                       .store = true};
    must(eng_driver_open(&params, &driver, &error), &error);
    return driver;
}

/* K and V of a run, its decoding's too. */
static uint8_t *copy_cache(const struct fixture *fx)
{
    const struct eng_kv *kv = eng_runner_kv(fx->runner);
    uint64_t bytes = ALL_COUNT * kv->row_bytes;
    uint8_t *copy = malloc(2 * kv->layers * bytes);
    assert_non_null(copy);
    for (uint64_t layer = 0; layer < kv->layers; layer++) {
        assert_int_equal(kv->rows[layer], ALL_COUNT);
        memcpy(copy + 2 * layer * bytes, eng_kv_k(kv, layer, 0), bytes);
        memcpy(copy + (2 * layer + 1) * bytes, eng_kv_v(kv, layer, 0), bytes);
    }
    return copy;
}

/* What a run without a connector leaves. */
struct alone {
    struct eng_result result;
    uint8_t *cache;
};

static struct alone run_alone(struct fixture *fx)
{
    struct alone alone = {.result = run(fx, NULL, PREFIX_COUNT, 0)};
    alone.cache = copy_cache(fx);
    return alone;
}

static void alone_done(struct alone *alone)
{
    eng_result_done(&alone->result);
    free(alone->cache);
}

/* One run: every bit of it is the one that is computed, and each token of the match was computed or
 * loaded. */
static struct eng_result run_ends(struct fixture *fx, const struct eng_source *source,
                                  const struct alone *alone)
{
    const struct eng_kv *kv = eng_runner_kv(fx->runner);
    /* What an earlier run left is not taken for what this one did. */
    memset(kv->base, 0xa5, kv->base_bytes);
    struct eng_result result = run(fx, source, PREFIX_COUNT, 0);
    uint8_t *cache = copy_cache(fx);
    assert_memory_equal(result.logits, alone->result.logits, fx->vocab * sizeof(float));
    assert_int_equal(result.token_count, alone->result.token_count);
    assert_memory_equal(result.tokens, alone->result.tokens,
                        result.token_count * sizeof(*result.tokens));
    assert_memory_equal(cache, alone->cache, 2 * kv->layers * ALL_COUNT * kv->row_bytes);
    assert_int_equal(result.restarts, 0);
    assert_int_equal(result.layers_ahead, 0);
    assert_int_equal(result.front_tokens + result.tail_tokens, result.matched_tokens);
    assert_true(result.returned_tokens <= result.front_tokens);
    free(cache);
    return result;
}

static const uint64_t BUDGETS[] = {1, 17, 64, 512};

static void both_ends_give_the_bits_of_computing(void **state)
{
    (void)state;
    for (int llama = 0; llama < 2; llama++)
        for (int dtype = 0; dtype < ENG_DTYPES; dtype++) {
            struct fixture fx = {0};
            uint64_t restarts;
            open_fixture(&fx, llama != 0, (enum eng_dtype)dtype);
            struct alone alone = run_alone(&fx);
            assert_int_equal(matched_fresh(&fx, (enum eng_dtype)dtype, 0, &restarts), 0);
            for (uint64_t i = 0; i < 8; i++) {
                struct eng_driver *driver =
                    open_ends(&fx, (enum eng_dtype)dtype, BUDGETS[i / 2], 0);
                struct paced paced;
                const struct eng_source *source =
                    i % 2 == 0 ? pace(&paced, &fx, driver) : eng_driver_source(driver);
                struct eng_result result = run_ends(&fx, source, &alone);
                assert_int_equal(result.matched_tokens, PREFIX_COUNT);
                assert_int_equal(result.new_tokens, QUERY_COUNT);
                assert_int_equal(result.returned_tokens, 0);
                if (i % 2 == 0 && BUDGETS[i / 2] < PREFIX_COUNT) /* paced: one range, at most */
                    assert_true(result.tail_tokens >= PREFIX_COUNT - BUDGETS[i / 2]);
                eng_result_done(&result);
                assert_int_equal(stats_of(driver).stored_tokens, 0);
                assert_int_equal(stats_of(driver).duplicate_chunks, 0);
                assert_null(eng_driver_store_problem(driver));
                eng_driver_close(driver);
            }
            assert_int_equal(matched_fresh(&fx, (enum eng_dtype)dtype, 0, &restarts), PREFIX_COUNT);
            alone_done(&alone);
            close_fixture(&fx);
        }
}

/* What lies behind the match is stored, and nothing else. */
static void both_ends_store_what_lies_behind_the_match(void **state)
{
    (void)state;
    struct fixture fx = {0};
    uint64_t restarts;
    open_fixture(&fx, true, ENG_F16);
    struct alone alone = run_alone(&fx);
    struct eng_driver *driver = open_driver(&fx, ENG_F16);
    struct eng_result result = run(&fx, eng_driver_source(driver), 100, 0);
    assert_int_equal(stats_of(driver).stored_tokens, 100);
    eng_result_done(&result);
    eng_driver_close(driver);
    driver = open_ends(&fx, ENG_F16, 17, 0);
    result = run_ends(&fx, eng_driver_source(driver), &alone);
    assert_int_equal(result.matched_tokens, 100);
    assert_int_equal(stats_of(driver).stored_tokens, PREFIX_COUNT - 100);
    assert_null(eng_driver_store_problem(driver));
    eng_result_done(&result);
    eng_driver_close(driver);
    assert_int_equal(matched_fresh(&fx, ENG_F16, 0, &restarts), PREFIX_COUNT);
    alone_done(&alone);
    close_fixture(&fx);
}

static void a_deadline_of_both_ends_changes_no_bit(void **state)
{
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        struct fixture fx = {0};
        uint64_t restarts;
        open_fixture(&fx, llama != 0, ENG_BF16);
        struct alone alone = run_alone(&fx);
        assert_int_equal(matched_fresh(&fx, ENG_BF16, 0, &restarts), 0);
        for (uint64_t ns = 1; ns < 1000000000; ns *= 8) {
            struct eng_driver *driver = open_ends(&fx, ENG_BF16, 17, ns);
            struct eng_result result = run_ends(&fx, eng_driver_source(driver), &alone);
            assert_int_equal(result.matched_tokens, PREFIX_COUNT);
            eng_result_done(&result);
            eng_driver_close(driver);
        }
        alone_done(&alone);
        close_fixture(&fx);
    }
}

/* A prompt that fails meanwhile has its loading waited for: more of them than the plugin has
 * submissions, and the next one has one still. */
static void a_prompt_given_up_leaves_nothing_loading(void **state)
{
    (void)state;
    struct fixture fx = {0};
    struct paced paced;
    uint64_t restarts;
    open_fixture(&fx, true, ENG_F32);
    struct alone alone = run_alone(&fx);
    assert_int_equal(matched_fresh(&fx, ENG_F32, 0, &restarts), 0);
    struct eng_driver *driver = open_ends(&fx, ENG_F32, 1, 0);
    for (uint32_t i = 0; i < 70; i++) {
        struct eng_error error;
        struct eng_result result;
        struct eng_request request = {
            .prefix = fx.tokens, .prefix_count = PREFIX_COUNT, .max_new = 1};
        const struct eng_source *source = pace(&paced, &fx, driver);
        paced.gives_up = true;
        eng_status status = eng_run(fx.runner, &request, source, &result, &error);
        if (status == ENG_OK) /* all was loaded before the first range was asked for */
            eng_result_done(&result);
    }
    struct eng_result result = run_ends(&fx, eng_driver_source(driver), &alone);
    assert_int_equal(result.layers_loaded, eng_model_config(fx.model)->layers); /* as was told */
    eng_result_done(&result);
    eng_driver_close(driver);
    alone_done(&alone);
    close_fixture(&fx);
}

/* Rows of 1 KiB in pieces of 17, of which 64 KiB are a block: what lies above the damaged one was
 * loaded, and what had been taken of it is given back; the prompt does not fail. */
static void a_flipped_bit_is_given_back_and_computed(void **state)
{
    (void)state;
    uint64_t returned = 0, partly = 0, failed = 0;
    for (uint64_t i = 0; i < 12; i++) {
        struct fixture fx = {0};
        uint64_t restarts;
        open_wide_fixture(&fx);
        struct alone alone = run_alone(&fx);
        assert_int_equal(matched_fresh(&fx, ENG_F32, 17, &restarts), 0);
        spoil_segment(&fx, (long)(4096 + i * 37777));
        struct eng_driver *driver = open_ends(&fx, ENG_F32, i % 2 == 0 ? 1 : 17, 0);
        struct paced paced;
        struct eng_result result = run_ends(&fx, pace(&paced, &fx, driver), &alone);
        assert_int_equal(result.matched_tokens, PREFIX_COUNT);
        assert_true(result.returned_tokens == 0 || stats_of(driver).corrupt_ranges == 1);
        assert_null(eng_driver_store_problem(driver));
        bool is_found = stats_of(driver).corrupt_ranges > 0; /* padding is not looked at */
        failed += is_found;
        returned += result.returned_tokens > 0;
        partly += result.returned_tokens > 0 && result.tail_tokens > 0;
        eng_result_done(&result);
        result = run_ends(&fx, eng_driver_source(driver), &alone); /* what is damaged is gone */
        assert_true((result.matched_tokens < PREFIX_COUNT) == is_found);
        eng_result_done(&result);
        eng_driver_close(driver);
        if (is_found) { /* and was stored anew */
            assert_int_equal(matched_fresh(&fx, ENG_F32, 0, &restarts), PREFIX_COUNT);
            assert_int_equal(restarts, 0);
        }
        alone_done(&alone);
        close_fixture(&fx);
    }
    print_message("12 images: %" PRIu64 " failed, %" PRIu64 " gave tokens back, %" PRIu64
                  " of them after some had come\n",
                  failed, returned, partly);
    assert_true(returned > 0);
    assert_true(partly > 0);
}

/* One line says what the plugin lacks: at open where its table does, else with the first match. */
static void a_plugin_without_both_ends_is_one_line(void **state)
{
    (void)state;
    struct fixture fx = {0};
    struct eng_error error = {0};
    struct eng_driver *driver = NULL;
    uint64_t restarts;
    open_fixture(&fx, false, ENG_F32);
    assert_int_equal(matched_fresh(&fx, ENG_F32, 0, &restarts), 0);
    struct eng_driver_params params = {.connector = SC_BINARY_DIR "/tests/ends_absent.so",
                                       .config = fx.config,
                                       .model_dir = fx.folder,
                                       .model = fx.model,
                                       .kv_dtype = ENG_F32,
                                       .fill = ENG_LOAD_POLICY_ENDS};
    assert_int_equal(eng_driver_open(&params, &driver, &error), ENG_E_INPUT);
    assert_null(driver);
    assert_non_null(strstr(error.text, "next_chunk"));
    params.connector = SC_BINARY_DIR "/tests/ends_unsupported.so";
    must(eng_driver_open(&params, &driver, &error), &error);
    struct eng_result result;
    struct eng_request request = {.prefix = fx.tokens, .prefix_count = PREFIX_COUNT, .max_new = 1};
    assert_int_equal(eng_run(fx.runner, &request, eng_driver_source(driver), &result, &error),
                     ENG_E_SYSTEM);
    assert_non_null(strstr(error.text, "next_chunk"));
    assert_null(strchr(error.text, '\n'));
    eng_driver_close(driver);
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
        cmocka_unit_test(both_ends_give_the_bits_of_computing),
        cmocka_unit_test(both_ends_store_what_lies_behind_the_match),
        cmocka_unit_test(a_deadline_of_both_ends_changes_no_bit),
        cmocka_unit_test(a_prompt_given_up_leaves_nothing_loading),
        cmocka_unit_test(a_flipped_bit_is_given_back_and_computed),
        cmocka_unit_test(a_plugin_without_both_ends_is_one_line),
        cmocka_unit_test(wrong_plugins_and_configurations_are_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
