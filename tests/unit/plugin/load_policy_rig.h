/* An engine on the simulated device, whose clock moves while the device is waited for, or a test
 * says that the host computes: for tests of compute or load.
 *
 * Threads: one. */
#ifndef SC_TESTS_UNIT_PLUGIN_LOAD_POLICY_RIG_H
#define SC_TESTS_UNIT_PLUGIN_LOAD_POLICY_RIG_H

#include "tests/unit/plugin/plugin_fixture.h"

#include "plugin/load_or_compute/load_or_compute.h"

#define LAYERS    8u
#define TOKENS    1024u
#define ROW_BYTES 2048u                                /* K and V of a layer */
#define TOKEN_NS  (UINT64_C(8) * (ROW_BYTES + 8) * 10) /* of loading one at 100 MB/s, all layers */
#define SPLIT                                                                                      \
    "\"load_policy\": \"split\", \"sim\": {\"bytes_per_s\": 100000000, \"op_ns\": 20000}"

static inline void begin(struct rig *rig, const char *extra)
{
    rig_init(rig, true, extra);
    rig_shape(rig, LAYERS, 4, 128, SPEC_DTYPE_F16);
    rig->stage = "64MiB";
    rig_open(rig);
}

/* Prompts of a seed have the same beginning. */
static inline struct prompt plain(uint64_t seed, uint64_t count)
{
    return rig_prompt(seed, count, 0, count);
}

/* All but the last token, which is to be computed in any case. */
static inline struct spec_lookup_result find(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result;
    assert_int_equal(rig_try_lookup(rig, prompt, 0, 0, &result), SPEC_OK);
    return result;
}

/* Loads all that is promised. */
static inline uint64_t read_all(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result found = find(rig, prompt);
    for (uint32_t layer = 0; layer < rig->layers && found.matched_tokens > 0; layer++)
        assert_int_equal(rig_load(rig, found.request, prompt, 0, found.matched_tokens, layer),
                         SPEC_OK);
    rig_release(rig, found.request);
    return found.matched_tokens;
}

struct served {
    uint64_t matched, stored, took_ns;
};

/* A pass's layers, each of which takes the host so long; layer `slow` takes slow_ns more. */
struct pass {
    uint64_t first, end, layer_ns, slow_ns;
    uint32_t slow, flags;
};

static inline void run(struct rig *rig, const struct spec_lookup_result *found,
                       const struct prompt *prompt, const struct pass *pass)
{
    struct area area = rig_area(rig, pass->end - pass->first);
    uint64_t part_bytes = rig_part_bytes(rig);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        if (found->matched_tokens > 0) {
            assert_int_equal(sc_plugin_begin_layer(rig->conn, &found->request, 1, layer, NULL),
                             SPEC_OK);
            assert_int_equal(rig_load(rig, found->request, prompt, 0, found->matched_tokens, layer),
                             SPEC_OK);
        }
        rig_pass_ns(rig, pass->layer_ns + (layer == pass->slow ? pass->slow_ns : 0));
        for (uint64_t j = 0; j < pass->end - pass->first; j++)
            for (uint32_t part = 0; part < 2; part++)
                rig_row(rig, prompt, pass->first + j, layer, part,
                        (uint8_t *)(part == 0 ? area.memory.k_base : area.memory.v_base) +
                            j * part_bytes);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .flags = pass->flags,
                                           .request = found->request,
                                           .layer = layer,
                                           .first_token = pass->first,
                                           .token_count = pass->end - pass->first,
                                           .memory = &area.memory};
        assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &ticket, NULL), SPEC_OK);
    }
    rig_area_free(&area);
    assert_int_equal(rig_wait(rig, ticket), SPEC_OK);
}

/* A request as an engine has it: what is promised is loaded layer by layer, the rest computed. */
static inline struct served serve(struct rig *rig, const struct prompt *prompt, uint64_t token_ns)
{
    struct spec_lookup_result found = find(rig, prompt);
    uint64_t begin_ns = sc_exec_now_ns(rig->conn->exec);
    struct pass pass = {.first = found.matched_tokens, .end = prompt->count};
    pass.layer_ns = token_ns * (pass.end - pass.first) / LAYERS;
    run(rig, &found, prompt, &pass);
    struct served served = {.matched = found.matched_tokens,
                            .stored = found.stored_tokens,
                            .took_ns = sc_exec_now_ns(rig->conn->exec) - begin_ns};
    rig_release(rig, found.request);
    rig_settle(rig);
    return served;
}

static inline struct spec_stats stats_of(struct rig *rig)
{
    struct sc_store_stats store = rig_store_stats(rig);
    struct spec_stats stats = {.stored_tokens = sc_counted(&rig->conn->stats.stored_tokens),
                               .stored_chunks = sc_counted(&rig->conn->stats.stored_chunks),
                               .duplicate_chunks = sc_counted(&rig->conn->stats.duplicate_chunks),
                               .write_bytes = store.write_bytes};
    sc_plugin_load_policy_stats(rig->conn, &stats);
    return stats;
}

/* Two passes and a load: what it takes to know both sides. */
static inline void teach(struct rig *rig, uint64_t token_ns)
{
    for (uint64_t i = 0; i < 2; i++) {
        struct prompt prompt = plain(900 + i, TOKENS / (1 + i));
        assert_int_equal(serve(rig, &prompt, token_ns).matched, 0);
        rig_prompt_free(&prompt);
    }
    struct prompt longer = plain(900, TOKENS);
    assert_int_equal(serve(rig, &longer, token_ns).matched, TOKENS - 1);
    rig_prompt_free(&longer);
}

/* Opens it and teaches it; serves a prompt then, which is the caller's. */
static inline struct prompt begin_taught(struct rig *rig, const char *extra, uint64_t token_ns)
{
    begin(rig, extra);
    teach(rig, token_ns);
    struct prompt prompt = plain(1, TOKENS);
    serve(rig, &prompt, token_ns);
    return prompt;
}

/* What lookup promises without the last token. */
static inline uint64_t promised(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_params params = rig_lookup_params(prompt, 0, 0, SPEC_LOOKUP_PEEK);
    return rig_lookup_as(rig, &params).matched_tokens;
}

#endif
