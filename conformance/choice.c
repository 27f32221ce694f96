/* choice: computes which rows shall be chosen and checks answers. See choice.h. */
#include "conformance/choice.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADS_MAX 8u
#define SLACK     1e-5
#define GUARD     256u
#define ALPHA     .6
#define PPM       1000000u

struct verdict {
    uint64_t total, k;
    double *scores[HEADS_MAX]; /* [total] each KV head's importance */
    uint32_t *sets[HEADS_MAX]; /* [k] its rows, ascending */
    double *sum;               /* of the probes' */
    uint32_t *votes;           /* [total] */
    uint32_t *voted;           /* [k] */
    double similarity, threshold;
    bool k_is_sure, heads_are_sure, vote_is_sure, similarity_is_sure;
};

static void *must(void *memory)
{
    assert_non_null(memory);
    return memory;
}

/* ---- The scene ------------------------------------------------------------------------------- */

void scene_configure(struct fixture *fx, uint32_t probes, const char *members, const char *store)
{
    static char text[8192];
    if (strstr(conf_options.extra, "\"select\"") != NULL ||
        strstr(conf_options.extra, "\"store\"") != NULL ||
        strstr(conf_options.extra, "\"preset\"") != NULL)
        conf_skip("the command line's configuration says what is chosen or stored");
    const char *extra = conf_options.extra;
    int length = snprintf(
        text, sizeof(text),
        "%s%s\"select\": {\"selector_bytes\": \"16MiB\", \"probe_heads\": %" PRIu32 "%s%s}%s%s%s",
        extra, extra[0] != '\0' ? ", " : "", probes, members[0] != '\0' ? ", " : "", members,
        store[0] != '\0' ? ", \"store\": {" : "", store, store[0] != '\0' ? "}" : "");
    assert_true(length > 0 && (size_t)length < sizeof(text));
    fixture_reconfigure(fx, text);
}

struct scene scene_open(struct fixture *fx, struct shape shape, uint32_t probes, uint32_t agree,
                        uint64_t seed, uint64_t matched)
{
    struct scene scene = {.fx = fx, .matched = matched, .probes = probes, .group = 2};
    assert_true(shape.heads <= HEADS_MAX && probes > 0 && probes <= shape.heads);
    scene.prompt = prompt_make(seed, matched + FRESH);
    scene.prompt.numbers = agree + 1;
    struct spec_lookup_params params = lookup_params(&scene.prompt);
    params.max_tokens = matched;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    if (found.matched_tokens < matched)
        (void)fixture_store_range(fx, found.request, &scene.prompt, found.matched_tokens,
                                  matched - found.matched_tokens);
    fixture_release(fx, found.request);
    return scene;
}

void scene_close(struct scene *scene)
{
    prompt_free(&scene->prompt);
}

struct spec_lookup_result scene_find(struct scene *scene, uint64_t from)
{
    struct spec_lookup_params params = lookup_params(&scene->prompt);
    params.max_tokens = scene->matched;
    params.from_token = from;
    struct spec_lookup_result found = fixture_lookup(scene->fx, &params);
    expect_match(&found, scene->matched);
    return found;
}

struct ask ask_ratio(uint32_t layer, uint32_t retain_ppm)
{
    return (struct ask){.layer = layer,
                        .rows = FRESH,
                        .select = {.struct_size = sizeof(struct spec_select),
                                   .given = SPEC_SELECT_BUDGET,
                                   .retain_ppm = retain_ppm}};
}

double ask_scale(const struct ask *ask, const struct shape *shape)
{
    return ask->scale > 0 ? (double)ask->scale : 1 / sqrt(shape->head_size);
}

/* n / 16, of the head's own number and of what its KV heads share. */
static double query_number(const struct scene *scene, uint32_t layer, uint64_t position,
                           uint32_t head, uint32_t i)
{
    if (scene->is_still)
        return 0;
    /* Layers from 1000 on are of no row. */
    uint32_t apart = head % scene->group;
    return 4 * truth_number(&scene->prompt, position, layer + 1000 + apart + 10000 * scene->turn, 0,
                            head / scene->group, i);
}

/* ---- What shall be -----------------------------------------------------------------------------
 */

/* Adds one query row's attention over the prefix. */
static void add_row(const struct scene *scene, const struct ask *ask, uint32_t head,
                    uint64_t position, uint64_t total, double *logits, double *imp)
{
    const struct shape *shape = &scene->fx->shape;
    uint64_t fresh = ask->lacks_new_keys ? 0 : position + 1 - scene->matched;
    double most = -INFINITY, all = 0;
    for (uint64_t j = 0; j < total + fresh; j++) {
        double dot = 0;
        for (uint32_t i = 0; i < shape->head_size; i++)
            dot +=
                query_number(scene, ask->layer, position, head, i) *
                truth_number(&scene->prompt, ask->from + j, ask->layer, 0, head / scene->group, i);
        logits[j] = dot * ask_scale(ask, shape);
        most = logits[j] > most ? logits[j] : most;
    }
    for (uint64_t j = 0; j < total + fresh; j++)
        all += exp(logits[j] - most);
    for (uint64_t j = 0; j < total; j++)
        imp[j] += exp(logits[j] - most) / all;
}

static double *importance(const struct scene *scene, const struct ask *ask, uint32_t kv_head,
                          uint64_t total)
{
    double *imp = must(calloc(total, sizeof(*imp)));
    double *logits = must(calloc(total + FRESH, sizeof(*logits)));
    bool last =
        (ask->select.given & SPEC_SELECT_METRIC) != 0 && ask->select.metric == SPEC_METRIC_LAST;
    for (uint32_t g = 0; g < scene->group; g++)
        for (uint64_t i = last ? ask->rows - 1 : 0; i < ask->rows; i++)
            add_row(scene, ask, kv_head * scene->group + g, scene->matched + ask->first + i, total,
                    logits, imp);
    free(logits);
    return imp;
}

/* Rows that are always chosen stand above all others. */
static bool is_kept(const struct ask *ask, uint64_t total, uint64_t row)
{
    if ((ask->select.given & SPEC_SELECT_KEEP) == 0)
        return false;
    return ask->from + row < ask->select.keep_first || row + ask->select.keep_last >= total;
}

/* a stands before b: more votes, then a higher score, then a lower position. */
static const double *sort_scores;
static const uint32_t *sort_votes;

static int compare(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    if (sort_votes != NULL && sort_votes[a] != sort_votes[b])
        return sort_votes[a] > sort_votes[b] ? -1 : 1;
    if (sort_scores[a] != sort_scores[b])
        return sort_scores[a] > sort_scores[b] ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int ascending(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

/* The first k; *sure: the next one is not within the slack of the last. Equal scores of a still
 * scene are equal in every arithmetic. */
static uint32_t *top(const struct scene *scene, const double *scores, const uint32_t *votes,
                     uint64_t total, uint64_t k, bool *sure)
{
    uint32_t *rows = must(calloc(total, sizeof(*rows)));
    for (uint64_t j = 0; j < total; j++)
        rows[j] = (uint32_t)j;
    sort_scores = scores;
    sort_votes = votes;
    qsort(rows, total, sizeof(*rows), compare);
    if (k < total && !scene->is_still) {
        uint32_t in = rows[k - 1], out = rows[k];
        bool parted = votes != NULL && votes[in] != votes[out];
        bool apart = isinf(scores[in]) || scores[in] - scores[out] > SLACK * scores[in];
        *sure = *sure && (parted || apart);
    }
    qsort(rows, k, sizeof(*rows), ascending);
    return rows;
}

static uint64_t count_common(const uint32_t *a, const uint32_t *b, uint64_t k)
{
    uint64_t common = 0;
    for (uint64_t i = 0, j = 0; i < k && j < k;) {
        common += a[i] == b[j];
        if (a[i] <= b[j])
            i++;
        else
            j++;
    }
    return common;
}

static double jaccard_of(uint32_t *const *sets, uint32_t heads, uint64_t k)
{
    double sum = 0;
    uint32_t pairs = 0;
    for (uint32_t a = 0; a < heads; a++)
        for (uint32_t b = a + 1; b < heads; b++, pairs++) {
            uint64_t common = count_common(sets[a], sets[b], k);
            sum += (double)common / (double)(2 * k - common);
        }
    return pairs > 0 ? sum / pairs : 1;
}

static uint64_t ratio_of(uint64_t total, uint32_t ppm)
{
    uint64_t k = (total * ppm + PPM - 1) / PPM;
    return k > 0 ? k : 1;
}

/* The fewest rows with the share of the sum; at most the ratio's. */
static uint64_t mass_of(const struct scene *scene, const struct ask *ask, struct verdict *verdict)
{
    uint64_t most = ratio_of(verdict->total, ask->select.retain_ppm);
    bool sure = true;
    uint32_t *rows = top(scene, verdict->sum, NULL, verdict->total, 1, &sure);
    double all = 0, held = 0, share = (double)ask->select.mass_ppm / PPM;
    sort_scores = verdict->sum;
    sort_votes = NULL;
    qsort(rows, verdict->total, sizeof(*rows), compare);
    for (uint64_t j = 0; j < verdict->total; j++)
        all += verdict->sum[j];
    uint64_t k = 0;
    while (k < most && held < share * all) {
        held += verdict->sum[rows[k++]];
        verdict->k_is_sure = verdict->k_is_sure && fabs(held - share * all) > SLACK * all;
    }
    free(rows);
    return k > 0 ? k : 1;
}

static uint64_t k_of(const struct scene *scene, const struct ask *ask, struct verdict *verdict)
{
    uint64_t total = verdict->total;
    uint64_t count = ask->select.count > 0 ? ask->select.count : 1;
    if (ask->select.budget == SPEC_BUDGET_COUNT)
        return count < total ? count : total;
    if (ask->select.budget == SPEC_BUDGET_MASS)
        return mass_of(scene, ask, verdict);
    return ratio_of(total, ask->select.retain_ppm);
}

static void judge_sets(const struct scene *scene, const struct ask *ask, struct verdict *verdict)
{
    uint64_t total = verdict->total, k = verdict->k;
    verdict->votes = must(calloc(total, sizeof(uint32_t)));
    bool probes_are_sure = true;
    for (uint64_t j = 0; j < total; j++)
        if (is_kept(ask, total, j)) {
            verdict->sum[j] = INFINITY;
            for (uint32_t h = 0; h < scene->fx->shape.heads; h++)
                verdict->scores[h][j] = INFINITY;
        }
    for (uint32_t h = 0; h < scene->fx->shape.heads; h++) {
        bool *sure = h < scene->probes ? &probes_are_sure : &verdict->heads_are_sure;
        verdict->sets[h] = top(scene, verdict->scores[h], NULL, total, k, sure);
        for (uint64_t i = 0; i < k && h < scene->probes; i++)
            verdict->votes[verdict->sets[h][i]]++;
    }
    verdict->vote_is_sure = probes_are_sure;
    verdict->heads_are_sure = verdict->heads_are_sure && probes_are_sure;
    verdict->voted = top(scene, verdict->sum, verdict->votes, total, k, &verdict->vote_is_sure);
    double share = (double)k / (double)total;
    verdict->similarity = jaccard_of(verdict->sets, scene->probes, k);
    verdict->threshold = pow(share / (2 - share), ALPHA);
    verdict->similarity_is_sure = scene->probes == 1 || scene->is_still ||
                                  fabs(verdict->similarity - verdict->threshold) > 2 / (double)k;
}

static struct verdict judge(const struct scene *scene, const struct ask *ask)
{
    uint64_t total = scene->matched - ask->from;
    struct verdict verdict = {.total = total, .k_is_sure = true, .heads_are_sure = true};
    verdict.sum = must(calloc(total, sizeof(double)));
    for (uint32_t h = 0; h < scene->fx->shape.heads; h++) {
        verdict.scores[h] = importance(scene, ask, h, total);
        for (uint64_t j = 0; j < total && h < scene->probes; j++)
            verdict.sum[j] += verdict.scores[h][j];
    }
    verdict.k = k_of(scene, ask, &verdict);
    judge_sets(scene, ask, &verdict);
    return verdict;
}

static void verdict_free(struct verdict *verdict)
{
    for (uint32_t h = 0; h < HEADS_MAX; h++) {
        free(verdict->scores[h]);
        free(verdict->sets[h]);
    }
    free(verdict->sum);
    free(verdict->votes);
    free(verdict->voted);
}

/* ---- Asking ------------------------------------------------------------------------------------
 */

static void make_queries(const struct scene *scene, const struct ask *ask, struct answer *answer)
{
    const struct shape *shape = &scene->fx->shape;
    uint32_t heads =
        (ask->heads == SPEC_QUERIES_PROBE ? scene->probes : shape->heads) * scene->group;
    uint64_t row = (uint64_t)heads * shape->head_size, count = ask->rows * row;
    answer->query_numbers = must(calloc(count, sizeof(float)));
    for (uint64_t i = 0; i < ask->rows; i++)
        for (uint64_t at = 0; at < row; at++)
            answer->query_numbers[i * row + at] = (float)query_number(
                scene, ask->layer, scene->matched + ask->first + i,
                (uint32_t)(at / shape->head_size), (uint32_t)(at % shape->head_size));
    answer->queries = (struct spec_queries){.struct_size = sizeof(struct spec_queries),
                                            .dtype = SPEC_DTYPE_F32,
                                            .data = answer->query_numbers,
                                            .byte_count = count * sizeof(float),
                                            .row_count = (uint32_t)ask->rows,
                                            .heads = ask->heads,
                                            .row_stride_bytes = row * sizeof(float),
                                            .head_stride_bytes = shape->head_size * sizeof(float),
                                            .first_position = scene->matched + ask->first,
                                            .scale = ask->scale};
}

struct answer answer_make(const struct scene *scene, const struct ask *ask,
                          const struct spec_lookup_result *found)
{
    const struct shape *shape = &scene->fx->shape;
    uint64_t total = found->matched_tokens - ask->from, new_count = ask->first + ask->rows;
    struct answer answer = {.select = ask->select};
    answer.area = area_make(shape, ask->has_negative_slot ? LAYOUT_VLLM : LAYOUT_PACKED, total);
    if (ask->has_negative_slot && total > 1)
        answer.area.slots[total / 2] = -1;
    answer.positions = must(calloc(total * shape->heads + 1, sizeof(uint32_t)));
    answer.item = important(found->request, ask->layer, &answer.area.memory);
    answer.item.positions = answer.positions;
    answer.item.position_capacity = total * shape->heads;
    make_queries(scene, ask, &answer);
    answer.new_keys = area_make(shape, LAYOUT_PACKED, new_count);
    area_fill(&answer.new_keys, shape, &scene->prompt, scene->matched, ask->layer);
    return answer;
}

/* The item's pointers, once the answer lies where it stays. */
static void answer_point(const struct ask *ask, struct answer *answer)
{
    answer->item.destination = &answer->area.memory;
    if (!ask->lacks_queries)
        answer->item.queries = &answer->queries;
    if (!ask->lacks_new_keys && !ask->lacks_queries)
        answer->item.new_keys = &answer->new_keys.memory;
    if (ask->select.given != 0)
        answer->item.select = &answer->select;
}

struct spec_important answer_item(const struct ask *ask, struct answer *answer)
{
    answer_point(ask, answer);
    return answer->item;
}

void answer_free(struct answer *answer)
{
    area_free(&answer->area);
    area_free(&answer->new_keys);
    free(answer->positions);
    free(answer->query_numbers);
}

/* ---- Comparing ---------------------------------------------------------------------------------
 */

/* Row r of the destination holds, for the head, the row of `position`. */
static void expect_row(const struct scene *scene, const struct ask *ask,
                       const struct answer *answer, uint64_t r, uint32_t head, uint64_t position)
{
    static uint8_t row[1u << 16];
    const struct shape *shape = &scene->fx->shape;
    assert_true(row_bytes(shape) <= sizeof(row));
    if (answer->area.slots != NULL && answer->area.slots[r] < 0)
        return;
    for (int value = 0; value < 2; value++) {
        truth_row(shape, &scene->prompt, position, ask->layer, value, row);
        if (!area_has(&answer->area, r, head, value, row + head * head_bytes(shape)))
            fail_msg("layer %u: row %u of head %u is not that of position %u (%s)", ask->layer,
                     (unsigned)r, head, (unsigned)position, value == 0 ? "K" : "V");
    }
}

/* One head's positions: ascending, inside the match, with their rows; and its set when it is sure.
 */
static void expect_head(const struct scene *scene, const struct ask *ask,
                        const struct answer *answer, const uint32_t *positions, uint32_t head,
                        const uint32_t *set)
{
    for (uint64_t r = 0; r < answer->item.row_count; r++) {
        assert_in_range(positions[r], ask->from, scene->matched - 1);
        if (r > 0)
            assert_true(positions[r] > positions[r - 1]);
        expect_row(scene, ask, answer, r, head, positions[r]);
    }
    for (uint64_t r = 0; set != NULL && r < answer->item.row_count; r++)
        if (positions[r] != ask->from + set[r])
            fail_msg("layer %u head %u: row %u is of position %u, expected %u", ask->layer, head,
                     (unsigned)r, positions[r], (unsigned)(ask->from + set[r]));
}

static void expect_whole(const struct scene *scene, const struct ask *ask,
                         const struct answer *answer)
{
    uint64_t total = scene->matched - ask->from;
    assert_int_equal(answer->item.row_count, total);
    assert_int_equal(answer->item.provenance.kind, SPEC_PROVENANCE_EXACT);
    for (uint32_t h = 0; h < scene->fx->shape.heads; h++)
        expect_head(scene, ask, answer, answer->positions, h, NULL);
}

static void expect_guards(const struct answer *answer)
{
    const struct area *area = &answer->area;
    for (uint64_t i = 0; i < GUARD; i++)
        assert_true(area->bytes[i] == POISON && area->bytes[area->byte_count - 1 - i] == POISON);
}

static void expect_worth(const struct ask *ask, const struct answer *answer, uint64_t total)
{
    const struct spec_important *item = &answer->item;
    uint32_t metric =
        (ask->select.given & SPEC_SELECT_METRIC) != 0 ? ask->select.metric : SPEC_METRIC_H2O;
    assert_int_equal(item->provenance.kind, SPEC_PROVENANCE_PRUNED);
    assert_int_equal(item->provenance.retain_ppm, (item->row_count * PPM + total - 1) / total);
    assert_int_equal(item->provenance.metric, metric);
}

static bool is_random(const struct ask *ask)
{
    return (ask->select.given & SPEC_SELECT_METRIC) != 0 &&
           ask->select.metric == SPEC_METRIC_RANDOM;
}

/* Each head has a set of its own, or may have, and so the rows may all be there. */
static bool may_be_parted(const struct scene *scene, const struct ask *ask)
{
    if (scene->fx->shape.heads == 1)
        return false;
    struct verdict verdict = judge(scene, ask);
    bool parted = is_random(ask) || !verdict.k_is_sure || !verdict.similarity_is_sure ||
                  verdict.similarity <= verdict.threshold;
    verdict_free(&verdict);
    return parted;
}

/* The probes' agreement, and that the sets were given in the way that it asks for. */
static void expect_way(const struct scene *scene, const struct answer *answer,
                       const struct verdict *verdict, bool parts)
{
    const struct spec_important *item = &answer->item;
    if (item->similarity == 0 && item->threshold == 0)
        return; /* not probed: all keys were looked at */
    if (verdict->k_is_sure && verdict->k < verdict->total) {
        double slack = 2 / (double)verdict->k + SLACK;
        assert_true(fabs(item->similarity - verdict->similarity) <= slack);
        assert_true(fabs(item->threshold - verdict->threshold) <= SLACK);
    }
    if (scene->fx->shape.heads == 1 || !verdict->k_is_sure || !verdict->similarity_is_sure)
        return;
    if (parts != (verdict->similarity <= verdict->threshold))
        fail_msg("sets are %s, and the probes agree by %f with a threshold of %f",
                 parts ? "per head" : "one for all", verdict->similarity, verdict->threshold);
}

static void expect_chosen(struct scene *scene, const struct ask *ask, const struct answer *answer)
{
    const struct spec_important *item = &answer->item;
    struct verdict verdict = judge(scene, ask);
    bool parts = (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    bool sure = verdict.k_is_sure && (parts ? verdict.heads_are_sure : verdict.vote_is_sure);
    uint32_t heads = scene->fx->shape.heads;
    uint64_t distinct = 0;
    if (verdict.k_is_sure)
        assert_int_equal(item->row_count, verdict.k);
    if (!is_random(ask))
        expect_way(scene, answer, &verdict, parts);
    uint8_t *in_any = must(calloc(scene->matched, 1));
    for (uint32_t h = 0; h < heads; h++) {
        const uint32_t *positions = answer->positions + (parts ? h * item->row_count : 0);
        const uint32_t *set = parts ? verdict.sets[h] : verdict.voted;
        expect_head(scene, ask, answer, positions, h, sure && !is_random(ask) ? set : NULL);
        for (uint64_t r = 0; r < item->row_count; r++) {
            distinct += in_any[positions[r]] == 0;
            in_any[positions[r]] = 1;
        }
    }
    free(in_any);
    assert_int_equal(item->union_rows, distinct);
    if (item->row_count < verdict.total)
        expect_worth(ask, answer, verdict.total);
    scene->sure += sure;
    verdict_free(&verdict);
}

void answer_expect(struct scene *scene, const struct ask *ask, const struct answer *answer)
{
    const struct spec_important *item = &answer->item;
    assert_int_equal(item->status, SPEC_OK);
    expect_guards(answer);
    if (answer->area.count == 0) { /* a miss */
        assert_int_equal(item->row_count, 0);
        return;
    }
    assert_int_equal(item->next_position, scene->matched);
    assert_true((item->result_flags & ~(SPEC_IMPORTANT_FALLBACK | SPEC_IMPORTANT_DENSE)) == 0);
    scene->asked++;
    if ((item->result_flags & SPEC_IMPORTANT_DENSE) != 0) {
        if (conf_options.require_hits && !ask->may_be_dense &&
            !(conf_options.one_set && may_be_parted(scene, ask)))
            fail_msg("layer %u is delivered whole (hits are required)", ask->layer);
        expect_whole(scene, ask, answer);
        scene->sure++;
        return;
    }
    expect_chosen(scene, ask, answer);
}

void answer_expect_same(const struct scene *scene, const struct answer *one,
                        const struct answer *other)
{
    bool parts = (one->item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    assert_int_equal(one->item.row_count, other->item.row_count);
    assert_int_equal(one->item.result_flags, other->item.result_flags);
    assert_memory_equal(one->positions, other->positions,
                        one->item.row_count * (parts ? scene->fx->shape.heads : 1) *
                            sizeof(uint32_t));
}

uint32_t scene_ask(struct scene *scene, const struct ask *ask)
{
    struct fixture *fx = scene->fx;
    struct spec_lookup_result found = scene_find(scene, ask->from);
    struct answer answer = answer_make(scene, ask, &found);
    answer_point(ask, &answer);
    assert_ok(fx, fx->api->begin_layer(fx->conn, &found.request, 1, ask->layer, &fx->error));
    assert_ok(fx, fx->api->get_important(fx->conn, &answer.item, 1, &fx->error));
    answer_expect(scene, ask, &answer);
    uint32_t flags = answer.area.count > 0 ? answer.item.result_flags : 0;
    answer_free(&answer);
    fixture_release(fx, found.request);
    return flags;
}
