/* Logits, K and V against outputs that Hugging Face computed (tests/data/golden/README.md).
 *
 * Four models lie in the repository; the others, and the trained ones, are read from the shared
 * data, where those are absent the case is skipped.
 *
 * Holds: error = largest |ours - golden| / largest |golden| of a tensor, NaN fails.
 * Threads: one; the model uses two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

#include "conformance/engine/model.h"
#include "conformance/engine/safetensors.h"
#include "conformance/engine/vecmath.h"

#define LOCAL  SC_SOURCE_DIR "/tests/data/golden/"
#define SHARED SC_SHARED_DIR "/"

struct golden_case {
    const char *name;
    const char *model;  /* NULL: SmolLM2, which a script fetches */
    const char *golden; /* NULL: golden.safetensors beside the model */
    double tolerance;
};

struct run {
    const struct golden_case *golden_case;
    const struct eng_config *config;
    struct eng_tensors *golden;
    struct eng_kv kv;
    uint64_t count; /* tokens of the prompt */
    float *logits;  /* [count][vocab] */
    double worst;
    unsigned compared;
};

static const char *smollm2_dir(void)
{
    const char *dir = getenv("SC_SMOLLM2_DIR");
    return dir != NULL && dir[0] != '\0' ? dir : SC_SOURCE_DIR "/build/models/smollm2";
}

static void compare(struct run *run, const struct eng_tensor *tensor, const float *ours)
{
    const float *golden = (const float *)(const void *)tensor->data;
    uint64_t count = tensor->bytes / sizeof(float);
    double largest = 0;
    double difference = 0;
    for (uint64_t i = 0; i < count; i++) {
        double here = fabs((double)ours[i] - (double)golden[i]);
        largest = fmax(largest, fabs((double)golden[i]));
        if (!(here <= difference) && !isnan(difference))
            difference = here; /* a NaN comes in, and stays */
    }
    double error = difference / largest;
    if (!(error <= run->golden_case->tolerance))
        fail_msg("%s: %s: relative error %.3g, at most %.3g", run->golden_case->name, tensor->name,
                 error, run->golden_case->tolerance);
    run->worst = fmax(run->worst, error);
    run->compared++;
}

static const struct eng_tensor *golden_of(const struct run *run, int prompt, const char *what)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "%d.%s", prompt, what);
    const struct eng_tensor *tensor = eng_tensors_find(run->golden, name);
    if (tensor == NULL)
        fail_msg("%s: golden tensor %s is missing", run->golden_case->name, name);
    return tensor;
}

/* The distance of the two best logits, relative to the largest absolute one. */
static double best_two_apart(const float *logits, uint64_t vocab)
{
    float best = -INFINITY;
    float second = -INFINITY;
    float largest = 0;
    for (uint64_t i = 0; i < vocab; i++) {
        largest = fmaxf(largest, fabsf(logits[i]));
        if (logits[i] > best) {
            second = best;
            best = logits[i];
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    return (double)(best - second) / (double)largest;
}

/* Golden logits stand for the last rows only in the larger files; argmax for all. Where golden
 * logits are absent, ours, which were compared elsewhere, say which positions are near ties. */
static void compare_argmax(struct run *run, int prompt)
{
    const struct eng_tensor *argmax = golden_of(run, prompt, "argmax");
    const int32_t *golden = (const int32_t *)(const void *)argmax->data;
    uint64_t vocab = run->config->vocab;
    assert_int_equal(argmax->shape[0], run->count);
    for (uint64_t row = 0; row < run->count; row++) {
        const float *logits = run->logits + row * vocab;
        if (best_two_apart(logits, vocab) <= 2 * run->golden_case->tolerance)
            continue;
        if ((int64_t)eng_argmax(logits, vocab) != golden[row])
            fail_msg("%s: prompt %d row %u: argmax %u, golden %d", run->golden_case->name, prompt,
                     (unsigned)row, (unsigned)eng_argmax(logits, vocab), golden[row]);
    }
}

/* K or V of the layers that the file holds: all rows, or the last few. */
static void compare_rows(struct run *run, int prompt, const char *what, bool values)
{
    for (uint64_t layer = 0; layer < run->config->layers; layer++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "%d.%s.%u", prompt, what, (unsigned)layer);
        const struct eng_tensor *tensor = eng_tensors_find(run->golden, name);
        if (tensor == NULL)
            continue;
        assert_int_equal(tensor->shape[1], run->config->kv_heads);
        assert_int_equal(tensor->shape[2], run->config->head_dim);
        uint64_t first = run->count - tensor->shape[0];
        const uint8_t *ours =
            values ? eng_kv_v(&run->kv, layer, first) : eng_kv_k(&run->kv, layer, first);
        compare(run, tensor, (const float *)(const void *)ours);
    }
}

static void run_prompt(struct run *run, struct eng_model *model, int prompt)
{
    struct eng_error error = {0};
    const struct eng_tensor *ids = golden_of(run, prompt, "ids");
    const struct eng_tensor *logits = golden_of(run, prompt, "logits");
    uint64_t vocab = run->config->vocab;
    run->count = ids->shape[0];
    run->logits = calloc(run->count * vocab, sizeof(float));
    uint32_t *tokens = calloc(run->count, sizeof(*tokens));
    assert_non_null(run->logits);
    assert_non_null(tokens);
    memcpy(tokens, ids->data, run->count * sizeof(*tokens));
    assert_int_equal(eng_kv_init(&run->kv, run->config, ENG_F32, run->count, &error), ENG_OK);
    const struct eng_pass pass = {.kv = &run->kv,
                                  .tokens = tokens,
                                  .count = run->count,
                                  .want = ENG_LOGITS_ALL,
                                  .logits = run->logits};
    if (eng_forward(model, &pass, 1, NULL, &error) != ENG_OK)
        fail_msg("%s: %s", run->golden_case->name, error.text);
    assert_int_equal(logits->shape[1], vocab);
    compare(run, logits, run->logits + (run->count - logits->shape[0]) * vocab);
    compare_argmax(run, prompt);
    compare_rows(run, prompt, "k", false);
    compare_rows(run, prompt, "v", true);
    eng_kv_done(&run->kv);
    free(run->logits);
    free(tokens);
}

static void equals_golden(void **state)
{
    const struct golden_case *golden_case = *state;
    const char *dir = golden_case->model == NULL ? smollm2_dir() : golden_case->model;
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/golden.safetensors", dir);
    if (golden_case->golden != NULL)
        (void)snprintf(path, sizeof(path), "%s", golden_case->golden);
    if (access(dir, F_OK) != 0 || access(path, F_OK) != 0) {
        print_message("skipped: %s is not there (%s)\n", golden_case->name,
                      access(dir, F_OK) != 0 ? dir : path);
        skip();
    }
    struct eng_error error = {0};
    struct eng_model *model = NULL;
    struct run run = {.golden_case = golden_case};
    if (eng_model_open(dir, 2, &model, &error) != ENG_OK ||
        eng_tensors_open_file(path, &run.golden, &error) != ENG_OK)
        fail_msg("%s: %s", golden_case->name, error.text);
    run.config = eng_model_config(model);
    for (int prompt = 0; prompt < 3; prompt++)
        run_prompt(&run, model, prompt);
    assert_true(run.compared >= 3 * 5); /* logits, and K and V of two layers at the least */
    print_message("%s: %u tensors, worst relative error %.3g\n", golden_case->name, run.compared,
                  run.worst);
    eng_tensors_close(run.golden);
    eng_model_close(model);
}

#define IN_REPOSITORY(name)                                                                        \
    {                                                                                              \
        name, LOCAL name, NULL, 1e-5                                                               \
    }
#define IN_SHARED(name)                                                                            \
    {                                                                                              \
        name, SHARED "golden/models/" name, NULL, 1e-5                                             \
    }
#define TRAINED(name)                                                                              \
    {                                                                                              \
        name, SHARED "data/models/" name, SHARED "golden/" name ".safetensors", 1e-5               \
    }

static struct golden_case cases[] = {
    IN_REPOSITORY("opt-postln-proj-fp32"),
    IN_REPOSITORY("opt-gelu-new-fp16"),
    IN_REPOSITORY("llama-gqa-bias-fp32"),
    IN_REPOSITORY("llama-gqa-rope3-sharded-fp16"),
    IN_SHARED("opt-nobias-gelu-fp32"),
    IN_SHARED("opt-preln-bf16"),
    IN_SHARED("opt-preln-fp16"),
    IN_SHARED("opt-preln-proj-fp16"),
    IN_SHARED("opt-sharded-fp16"),
    IN_SHARED("llama-gqa-tied-fp16"),
    IN_SHARED("llama-mha-untied-fp32"),
    IN_SHARED("llama-mqa-headdim-bf16"),
    TRAINED("stories260K"),
    TRAINED("tinychat-opt"),
    TRAINED("opt-recall"),
    {"smollm2", NULL, SHARED "golden/smollm2.safetensors", 5e-5},
};

int main(void)
{
    struct CMUnitTest tests[sizeof(cases) / sizeof(cases[0])];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = equals_golden, .initial_state = &cases[i]};
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
