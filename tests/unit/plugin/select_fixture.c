/* Keys and queries by arithmetic, and what importance says of them; see select_fixture.h.
 *
 * Holds, Threads: as select_fixture.h. */
#include "tests/unit/plugin/select_fixture.h"
#include "tests/unit/awaits.h"

#include "plugin/baselines/average.h"

static int64_t world_word(uint64_t seed, int64_t most)
{
    return (int64_t)(rig_mix(seed) % (2 * (uint64_t)most + 1)) - most;
}

static int64_t world_blend(const struct world *world, uint64_t seed, uint64_t head, int64_t most)
{
    int64_t all = world_word(seed, most), own = world_word(seed + 77 * (head + 1), most);
    return (all * world->agree + own * (8 - world->agree)) / 8;
}

float world_kv(const struct world *world, uint64_t position, uint32_t layer, uint32_t part,
               uint64_t head, uint64_t i)
{
    uint64_t seed = rig_mix(world->prompt.history[position] + layer * 2 + part) + 131 * i;
    float value = (float)world_blend(world, seed, head, 64) / 64;
    return world->is_uneven ? ldexpf(value, -(int)(rig_mix(head * 1000 + i + part) % 4)) : value;
}

float world_query(const struct world *world, uint64_t position, uint32_t layer, uint64_t head,
                  uint64_t i)
{
    uint64_t seed = rig_mix(world->prompt.history[position] + 1000 + layer) + 131 * i;
    return (float)world_blend(world, seed + head % world->group * 7, head / world->group, 64) / 16;
}

void world_put(uint8_t *dst, uint32_t dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == SPEC_DTYPE_F32) {
        memcpy(dst, &value, sizeof(value));
        return;
    }
    if (dtype == SPEC_DTYPE_F16) {
        uint32_t exponent = bits >> 23 & 255;
        half = (uint16_t)(bits >> 16 & 0x8000u);
        if (exponent != 0) /* zero, or normal in both */
            half = (uint16_t)(half | (exponent - 112) << 10 | (bits >> 13 & 0x3ffu));
    }
    memcpy(dst, &half, sizeof(half));
}

struct area world_area(const struct world *world, uint64_t first, uint64_t count, uint32_t layer)
{
    const struct rig *rig = &world->rig;
    struct area area = rig_area(rig, count);
    uint64_t element = sc_plugin_dtype_bytes(rig->dtype);
    for (uint64_t j = 0; j < count; j++)
        for (uint64_t n = 0; n < (uint64_t)rig->heads * rig->head_size; n++)
            for (uint32_t part = 0; part < 2; part++)
                world_put((uint8_t *)(part == 0 ? area.memory.k_base : area.memory.v_base) +
                              j * rig_part_bytes(rig) + n * element,
                          rig->dtype,
                          world_kv(world, first + j, layer, part, n / rig->head_size,
                                   n % rig->head_size));
    return area;
}

void world_store(struct world *world)
{
    struct rig *rig = &world->rig;
    struct prompt stored = {world->matched, world->prompt.tokens, world->prompt.history};
    struct spec_lookup_result result = rig_lookup(rig, &stored);
    spec_ticket ticket = 0;
    assert_int_equal(result.matched_tokens, 0);
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        struct area area = world_area(world, 0, world->matched, layer);
        struct spec_store_params params =
            rig_store_params(result.request, layer, 0, world->matched, &area.memory);
        assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
        assert_int_equal(rig_wait(rig, ticket), SPEC_OK);
    }
    rig_release(rig, result.request);
}

void world_make(struct world *world, bool is_sim, const char *extra, uint32_t layers,
                uint32_t heads, uint32_t head_size, uint64_t prompt_seed)
{
    rig_init(&world->rig, is_sim, extra);
    rig_shape(&world->rig, layers, heads, head_size, SPEC_DTYPE_F16);
    world->rig.query_group = world->group;
    world->prompt = rig_prompt(prompt_seed, 0, 0, world->matched + FRESH_ROWS);
}

void world_open_stored(struct world *world)
{
    rig_open(&world->rig);
    world_store(world);
}

void world_open(struct world *world, const char *extra, uint32_t heads, uint32_t group,
                uint32_t head_size, uint32_t dtype, uint64_t matched, int64_t agree)
{
    *world = (struct world){.matched = matched, .group = group, .agree = agree};
    world_make(world, true, extra, 4, heads, head_size, matched + heads);
    world->rig.dtype = dtype;
    world_open_stored(world);
}

spec_request look(struct world *world, uint64_t from)
{
    struct spec_lookup_result result;
    spec_status status = rig_try_lookup(&world->rig, &world->prompt, from, RIG_MAX, &result);
    uint32_t looks = 0;
    while (status == SPEC_E_BUSY && !sc_exec_is_loop(world->rig.conn->exec) &&
           await_goes_on(&looks))
        status = rig_try_lookup(&world->rig, &world->prompt, from, RIG_MAX, &result);
    assert_int_equal(status, SPEC_OK);
    assert_int_equal(result.matched_tokens, world->matched);
    return result.request;
}

uint64_t world_averages(struct world *world, uint32_t layer, float *ret_scores)
{
    spec_request handle = look(world, 0);
    struct sc_plugin_request *request = sc_plugin_request_find(world->rig.conn, handle);
    uint64_t known =
        sc_baseline_averages_scores(world->rig.conn->baseline.averages, request->ranges,
                                    request->range_count, layer, true, ret_scores);
    rig_release(&world->rig, handle);
    return known;
}

void world_done(struct world *world)
{
    rig_end(&world->rig, &world->prompt);
}

void world_leave(struct world *world, spec_request request)
{
    rig_release(&world->rig, request);
    world_done(world);
}

struct pass world_pass(const struct world *world, uint32_t layer, uint32_t dtype)
{
    uint64_t heads = (uint64_t)world->rig.heads * world->group, d = world->rig.head_size;
    uint64_t element = sc_plugin_dtype_bytes(dtype), bytes = FRESH_ROWS * heads * d * element;
    struct pass pass = {.queries = malloc(bytes),
                        .fresh = world_area(world, world->matched, FRESH_ROWS, layer)};
    assert_non_null(pass.queries);
    for (uint64_t n = 0; n < FRESH_ROWS * heads * d; n++)
        world_put(
            pass.queries + n * element, dtype,
            world_query(world, world->matched + n / (heads * d), layer, n / d % heads, n % d));
    pass.fresh.memory.v_base = NULL; /* keys are enough */
    pass.q = (struct spec_queries){.struct_size = sizeof(pass.q),
                                   .dtype = dtype,
                                   .data = pass.queries,
                                   .byte_count = bytes,
                                   .row_count = FRESH_ROWS,
                                   .row_stride_bytes = heads * d * element,
                                   .head_stride_bytes = d * element,
                                   .first_position = world->matched,
                                   .scale = world->scale};
    return pass;
}

void pass_free(struct pass *pass)
{
    free(pass->queries);
    rig_area_free(&pass->fresh);
}

/* ---- The reference -------------------------------------------------------------------------- */

void reference_importance(const struct world *world, uint32_t layer, uint64_t from, uint64_t head,
                          bool with_fresh, bool last_row, double *ret_importance)
{
    uint64_t d = world->rig.head_size, end = world->matched + FRESH_ROWS;
    double *logits = calloc(end, sizeof(*logits));
    assert_non_null(logits);
    for (uint64_t j = 0; j < world->matched - from; j++)
        ret_importance[j] = 0;
    for (uint64_t row = world->matched; row < end; row++)
        for (uint64_t g = 0; g < world->group && (!last_row || row + 1 == end); g++) {
            uint64_t seen = with_fresh ? row + 1 : world->matched;
            double most = -1e300, sum = 0;
            for (uint64_t j = from; j < seen; j++) {
                double dot = 0;
                for (uint64_t i = 0; i < d; i++)
                    dot += (double)world_query(world, row, layer, head * world->group + g, i) *
                           (double)world_kv(world, j, layer, 0, head, i);
                logits[j] = dot * (world->scale > 0 ? (double)world->scale : 1 / sqrt((double)d));
                most = logits[j] > most ? logits[j] : most;
            }
            for (uint64_t j = from; j < seen; j++)
                sum += exp(logits[j] - most);
            for (uint64_t j = from; j < world->matched; j++)
                ret_importance[j - from] += exp(logits[j] - most) / sum;
        }
    free(logits);
}

/* Whether row a stands before row b: votes (may be NULL), score, position. */
static bool reference_before(const double *scores, const uint32_t *votes, uint64_t a, uint64_t b)
{
    if (votes != NULL && votes[a] != votes[b])
        return votes[a] > votes[b];
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
}

void reference_top(const double *scores, const uint32_t *votes, uint64_t rows, uint64_t k,
                   bool *ret_in, double *gap)
{
    double worst_in = INFINITY, best_out = -INFINITY;
    uint32_t votes_in = UINT32_MAX, votes_out = 0;
    for (uint64_t a = 0; a < rows; a++) {
        uint64_t rank = 0;
        for (uint64_t b = 0; b < rows; b++)
            rank += b != a && reference_before(scores, votes, b, a);
        ret_in[a] = rank < k;
        if (rank + 1 == k) {
            worst_in = scores[a];
            votes_in = votes != NULL ? votes[a] : 0;
        } else if (rank == k) {
            best_out = scores[a];
            votes_out = votes != NULL ? votes[a] : 0;
        }
    }
    if (votes_in == votes_out && worst_in != best_out && isfinite(worst_in) && k < rows)
        *gap = fmin(*gap, (worst_in - best_out) / worst_in);
}

double reference_jaccard(const bool *a, const bool *b, uint64_t rows)
{
    uint64_t both = 0, any = 0;
    for (uint64_t j = 0; j < rows; j++) {
        both += a[j] && b[j];
        any += a[j] || b[j];
    }
    return (double)both / (double)any;
}
