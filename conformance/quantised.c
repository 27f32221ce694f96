/* quantised: scenes with quantised rows, and their checks. See quantised.h. */
#include "conformance/quantised.h"
#include "conformance/bit_tables.h"
#include "conformance/disk.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 64u
#define SLABS (2 * ROWS_MAX / CHUNK)
#define SLACK 1e-5
#define STEP  1e-3 /* of a share, by which averages may be off */

const struct shape WIDE = {3, 4, 16, SPEC_DTYPE_F16};

/* ---- Numbers ----------------------------------------------------------------------------------
 */

/* To so many digits, ties to even. */
static double rounded(double x, int digits, int exponent_min)
{
    if (x == 0)
        return 0;
    int exponent = ilogb(x) > exponent_min ? ilogb(x) : exponent_min;
    double unit = ldexp(1, exponent - digits + 1);
    return nearbyint(x / unit) * unit;
}

double quantised_f16(double x)
{
    return rounded(x, 11, -14);
}

static double to_dtype(double x, uint32_t dtype)
{
    float once = (float)x;
    return dtype == SPEC_DTYPE_F16    ? quantised_f16(once)
           : dtype == SPEC_DTYPE_BF16 ? rounded(once, 8, -126)
                                      : once;
}

void put_number(double x, uint32_t dtype, uint8_t *dst)
{
    float wide = (float)x;
    uint32_t bits;
    memcpy(&bits, &wide, sizeof(bits));
    uint16_t narrow = (uint16_t)(bits >> 16);
    if (dtype == SPEC_DTYPE_F16) {
        double size = fabs(x);
        int exponent = size > 0 && ilogb(size) > -14 ? ilogb(size) : -14;
        double digits = ldexp(size, 10 - exponent); /* below 1,024: a subnormal */
        narrow = (uint16_t)((bits >> 16 & 0x8000u) + ((unsigned)(exponent + 14) << 10) +
                            (unsigned)digits);
    }
    if (dtype == SPEC_DTYPE_F32)
        memcpy(dst, &wide, sizeof(wide));
    else
        memcpy(dst, &narrow, sizeof(narrow));
}

void quantised_slab(const struct quantised *quantised, uint64_t position, uint64_t *first,
                    uint64_t *end)
{
    uint64_t pass = position < quantised->cut ? 0 : quantised->cut;
    uint64_t pass_end = position < quantised->cut ? quantised->cut : quantised->stored;
    *first = position / CHUNK * CHUNK;
    *end = *first + CHUNK < pass_end ? *first + CHUNK : pass_end;
    *first = *first > pass ? *first : pass;
}

static struct scale scale_make(const struct quantised *quantised, uint64_t position, uint32_t layer,
                               int value, uint32_t channel)
{
    uint32_t size = quantised->scene.fx->shape.head_size;
    double least = INFINITY, most = -INFINITY;
    uint64_t first, end;
    quantised_slab(quantised, position, &first, &end);
    for (uint64_t p = first; p < end; p++) {
        double x =
            truth_number(&quantised->scene.prompt, p, layer, value, channel / size, channel % size);
        least = fmin(least, x);
        most = fmax(most, x);
    }
    float range = (float)most - (float)least;
    return (struct scale){quantised_f16(least),
                          quantised_f16(range / (float)(1u << quantised->bits[value])), true};
}

struct scale quantised_scale(const struct quantised *quantised, uint64_t position, uint32_t layer,
                             int value, uint32_t channel)
{
    uint64_t slab = position / CHUNK * 2 + (position >= quantised->cut); /* a pass may end in one */
    uint64_t part = layer * UINT64_C(2) + (uint64_t)value;
    struct scale *scale = &quantised->scales[(part * SLABS + slab) * CHANNELS + channel];
    if (!scale->is_known)
        *scale = scale_make(quantised, position, layer, value, channel);
    return *scale;
}

uint32_t scale_code(double x, struct scale scale, uint32_t bits)
{
    if (scale.step == 0)
        return 0;
    float code = floorf(((float)x - (float)scale.min) / (float)scale.step);
    float top = (float)((1u << bits) - 1);
    return (uint32_t)(code < 0 ? 0 : code > top ? top : code);
}

/* What the code stands for, as float32. */
static double decoded(const struct quantised *quantised, uint64_t position, uint32_t layer,
                      int value, uint32_t channel)
{
    uint32_t size = quantised->scene.fx->shape.head_size;
    if (quantised->bit_counts != NULL && bits_has(quantised->bit_counts, value))
        return quantised->bit_counts->numbers[layer][value][position][channel];
    struct scale scale = quantised_scale(quantised, position, layer, value, channel);
    double x = truth_number(&quantised->scene.prompt, position, layer, value, channel / size,
                            channel % size);
    return (float)(scale.min + (scale_code(x, scale, quantised->bits[value]) + .5) * scale.step);
}

static bool is_lost(const struct quantised *quantised, uint64_t position, uint32_t layer)
{
    uint64_t first, end;
    if (quantised->lost == NOWHERE || quantised->lost_layer != layer)
        return false;
    quantised_slab(quantised, quantised->lost, &first, &end);
    return position >= first && position < end;
}

/* ---- A scene with codes -----------------------------------------------------------------------
 */

void quantised_configure(struct fixture *fx, uint32_t bits_k, uint32_t bits_v, const char *members)
{
    char layered[64];
    (void)snprintf(layered, sizeof(layered), "\"bits_k\": %" PRIu32 ", \"bits_v\": %" PRIu32,
                   bits_k, bits_v);
    quantised_configure_layered(fx, layered, members);
}

void quantised_configure_layered(struct fixture *fx, const char *layered, const char *members)
{
    static char text[4096];
    const char *extra = conf_options.extra;
    static const char *const TAKEN[] = {"\"preset\"", "\"select\"", "\"layered\"", "\"prefetch\""};
    for (size_t i = 0; i < sizeof(TAKEN) / sizeof(TAKEN[0]); i++)
        if (strstr(extra, TAKEN[i]) != NULL || (members[0] != '\0' && strstr(extra, "\"store\"")))
            conf_skip("the command line's configuration says what is chosen or stored");
    const char *room = strstr(members, "\"select\"") != NULL
                           ? ""
                           : "\"select\": {\"selector_bytes\": \"16MiB\"}, "; /* scenes are small */
    int length = snprintf(
        text, sizeof(text), "%s%s\"preset\": \"layered-uniform\", %s\"layered\": {%s}%s%s", extra,
        extra[0] != '\0' ? ", " : "", room, layered, members[0] != '\0' ? ", " : "", members);
    assert_true(length > 0 && (size_t)length < sizeof(text));
    fixture_reconfigure(fx, text);
}

void quantised_settle(struct fixture *fx)
{
    uint32_t tries = 0;
    struct spec_stats stats = fixture_stats(fx);
    while (stats.building || (conf_options.require_hits && stats.quantised_bytes == 0)) {
        if (!conf_wait(&tries)) {
            if (conf_options.require_hits)
                fail_msg("codes of what was stored are not there (hits are required)");
            return;
        }
        stats = fixture_stats(fx);
    }
}

uint64_t quantised_damage(const struct quantised *quantised, uint64_t position, uint32_t layer)
{
    struct fixture *fx = quantised->scene.fx;
    fixture_close(fx);
    uint64_t copies =
        disk_damage(fx, (struct disk_row){&quantised->scene.prompt, position, layer}, DISK_FLIP);
    if (conf_options.require_hits)
        assert_true(copies > 0);
    fixture_open(fx);
    quantised_settle(fx);
    return copies;
}

uint64_t quantised_store_part(struct quantised *quantised, uint64_t end)
{
    struct fixture *fx = quantised->scene.fx;
    struct spec_lookup_params params = lookup_params(&quantised->scene.prompt);
    params.max_tokens = end;
    struct spec_lookup_result found = fixture_lookup(fx, &params);
    uint64_t first = found.matched_tokens;
    for (uint32_t layer = 0; layer < fx->shape.layers && first < end; layer++) {
        struct area area = area_make(&fx->shape, LAYOUT_PACKED, end - first);
        area_fill(&area, &fx->shape, &quantised->scene.prompt, first, layer);
        if (quantised->is_nan && layer == quantised->lost_layer && quantised->lost >= first &&
            quantised->lost < end)
            memset(area_at(&area, quantised->lost - first, 0, quantised->nan_value), 0xff,
                   dtype_bytes(fx->shape.dtype));
        struct spec_store_params store = {.struct_size = sizeof(store),
                                          .request = found.request,
                                          .layer = layer,
                                          .first_token = first,
                                          .token_count = end - first,
                                          .memory = &area.memory};
        spec_ticket ticket;
        assert_ok(fx, fx->api->store(fx->conn, &store, 1, &ticket, &fx->error));
        (void)fixture_wait(fx, ticket);
        area_free(&area);
    }
    fixture_release(fx, found.request);
    return first;
}

struct quantised quantised_make(struct fixture *fx, uint64_t seed, uint32_t bits_k, uint32_t bits_v,
                                uint64_t stored)
{
    struct quantised quantised = {.scene = {.fx = fx, .matched = stored, .probes = 1, .group = 2},
                                  .stored = stored,
                                  .cut = stored,
                                  .bits = {bits_k, bits_v},
                                  .lost = NOWHERE};
    assert_true(fx->shape.heads * fx->shape.head_size <= CHANNELS && stored <= ROWS_MAX);
    quantised.scene.prompt = prompt_make(seed, stored + FRESH);
    quantised.scene.prompt.numbers = 1;
    quantised.scene.prompt.is_uneven = true;
    quantised.scales =
        calloc(fx->shape.layers * UINT64_C(2) * SLABS * CHANNELS, sizeof(*quantised.scales));
    assert_non_null(quantised.scales);
    return quantised;
}

void quantised_store(struct quantised *quantised)
{
    if (quantised->cut < quantised->stored) {
        (void)quantised_store_part(quantised, quantised->cut);
        quantised->cut = quantised_store_part(quantised, quantised->stored);
    } else {
        (void)quantised_store_part(quantised, quantised->stored);
    }
    quantised_settle(quantised->scene.fx);
}

spec_status quantised_put(struct quantised *quantised, const struct spec_lookup_result *found,
                          uint32_t layer)
{
    struct fixture *fx = quantised->scene.fx;
    uint64_t first = found->matched_tokens;
    spec_ticket ticket;
    assert_ok(fx, fixture_put(fx, found->request, &quantised->scene.prompt, first,
                              quantised->scene.prompt.count - first, layer, &ticket));
    return fixture_wait(fx, ticket);
}

struct quantised quantised_open(struct fixture *fx, struct shape shape, uint64_t seed,
                                uint32_t bits_k, uint32_t bits_v)
{
    fixture_shape(fx, shape);
    quantised_configure(fx, bits_k, bits_v, "");
    struct quantised quantised = quantised_make(fx, seed, bits_k, bits_v, STORED);
    quantised_store(&quantised);
    return quantised;
}

void quantised_close(struct quantised *quantised)
{
    scene_close(&quantised->scene);
    free(quantised->scales);
}

/* ---- What shall be exact ----------------------------------------------------------------------
 */

struct verdict {
    uint64_t total, k, lost;
    bool in[ROWS_MAX];
    bool is_sure;
};

static double keys[ROWS_MAX + FRESH][CHANNELS];
static double scores[ROWS_MAX];
static bool is_scored[ROWS_MAX + FRESH];

/* One query row's attention over the keys of its head. */
static void add_query(const struct quantised *quantised, const struct ask *ask, const float *query,
                      uint32_t kv_head, uint64_t total, uint64_t fresh)
{
    static double logits[ROWS_MAX + FRESH];
    const struct shape *shape = &quantised->scene.fx->shape;
    uint32_t size = shape->head_size;
    double most = -INFINITY, all = 0;
    for (uint64_t j = 0; j < total + fresh; j++) {
        if (!is_scored[j])
            continue;
        double dot = 0;
        for (uint32_t i = 0; i < size; i++)
            dot += (double)query[i] * keys[j][kv_head * size + i];
        logits[j] = dot * ask_scale(ask, shape);
        most = fmax(most, logits[j]);
    }
    for (uint64_t j = 0; j < total + fresh; j++)
        if (is_scored[j])
            all += exp(logits[j] - most);
    for (uint64_t j = 0; j < total; j++)
        if (is_scored[j])
            scores[j] += exp(logits[j] - most) / all;
}

static void score(const struct quantised *quantised, const struct ask *ask,
                  const struct answer *answer, uint64_t total)
{
    const struct scene *scene = &quantised->scene;
    const struct shape *shape = &scene->fx->shape;
    uint32_t heads = shape->heads * scene->group;
    bool last = (ask->select.given & SPEC_SELECT_METRIC) && ask->select.metric == SPEC_METRIC_LAST;
    memset(scores, 0, sizeof(scores));
    for (uint64_t j = 0; j < total + ask->first + ask->rows; j++) {
        is_scored[j] = j >= total || !is_lost(quantised, ask->from + j, ask->layer);
        for (uint32_t c = 0; c < shape->heads * shape->head_size; c++)
            keys[j][c] = j < total
                             ? decoded(quantised, ask->from + j, ask->layer, 0, c)
                             : truth_number(&scene->prompt, scene->matched + j - total, ask->layer,
                                            0, c / shape->head_size, c % shape->head_size);
    }
    for (uint64_t i = last ? ask->rows - 1 : 0; i < ask->rows; i++)
        for (uint32_t g = 0; g < heads; g++)
            add_query(quantised, ask,
                      answer->query_numbers + (i * heads + g) * (uint64_t)shape->head_size,
                      g / scene->group, total, ask->lacks_new_keys ? 0 : ask->first + i + 1);
}

static bool stands_before(uint64_t a, uint64_t b)
{
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

/* Rows without codes, those that are kept, then the most important ones. */
static struct verdict judge(const struct quantised *quantised, const struct ask *ask,
                            const struct answer *answer)
{
    struct verdict verdict = {.total = quantised->scene.matched - ask->from, .is_sure = true};
    uint64_t total = verdict.total;
    double worst_in = INFINITY, best_out = 0;
    bool is_ranked = !ask->lacks_queries || quantised->is_taught;
    verdict.k = (total * ask->select.exact_ppm + PPM - 1) / PPM;
    if (is_ranked)
        score(quantised, ask, answer, total);
    for (uint64_t j = 0; j < total; j++) {
        bool kept = (ask->select.given & SPEC_SELECT_KEEP) != 0 &&
                    (ask->from + j < ask->select.keep_first || j + ask->select.keep_last >= total);
        scores[j] = kept ? INFINITY : is_ranked ? scores[j] : 0;
        verdict.lost += is_lost(quantised, ask->from + j, ask->layer);
    }
    uint64_t room = verdict.k > verdict.lost ? verdict.k - verdict.lost : 0;
    for (uint64_t j = 0; j < total; j++) {
        uint64_t before = 0;
        if ((verdict.in[j] = is_lost(quantised, ask->from + j, ask->layer)))
            continue;
        for (uint64_t i = 0; i < total; i++)
            before += !is_lost(quantised, ask->from + i, ask->layer) && stands_before(i, j);
        verdict.in[j] = before < room;
        if (verdict.in[j])
            worst_in = fmin(worst_in, scores[j]);
        else
            best_out = fmax(best_out, scores[j]);
    }
    if (room > 0 && !isinf(worst_in) && !quantised->scene.is_still && is_ranked)
        verdict.is_sure = worst_in - best_out > (ask->lacks_queries ? STEP : SLACK) * worst_in;
    return verdict;
}

/* ---- Comparing --------------------------------------------------------------------------------
 */

bool shot_bit(const struct shot *shot, uint64_t row)
{
    return (shot->bits[row / 64] >> (row % 64) & 1) != 0;
}

uint64_t shot_count_bits(const struct shot *shot)
{
    uint64_t count = 0;
    for (uint64_t row = 0; row < ROWS_MAX; row++)
        count += shot_bit(shot, row);
    return count;
}

/* One head's numbers of a row, as they shall be delivered. */
static void expected_head(const struct quantised *quantised, const struct shot *shot, uint64_t row,
                          uint32_t head, int value, uint8_t *dst)
{
    const struct shape *shape = &quantised->scene.fx->shape;
    uint32_t dtype = shot->dtype;
    uint64_t position = shot->ask.from + row;
    for (uint32_t i = 0; i < shape->head_size; i++) {
        uint8_t *at = dst + i * dtype_bytes(dtype);
        if (!shot_bit(shot, row))
            put_number(to_dtype(decoded(quantised, position, shot->ask.layer, value,
                                        head * shape->head_size + i),
                                dtype),
                       dtype, at);
        else if (quantised->is_nan && position == quantised->lost && head == 0 && i == 0 &&
                 shot->ask.layer == quantised->lost_layer && value == quantised->nan_value)
            memset(at, 0xff, dtype_bytes(dtype));
        else
            put_number(
                truth_number(&quantised->scene.prompt, position, shot->ask.layer, value, head, i),
                dtype, at);
    }
}

void shot_expect_area(const struct quantised *quantised, const struct shot *shot)
{
    struct shape shape = quantised->scene.fx->shape;
    const struct area *area = &shot->answer.area;
    shape.dtype = shot->dtype;
    struct area want = area_make(&shape, shot->layout, area->count);
    uint8_t head[CHANNELS * sizeof(float)];
    assert_true(head_bytes(&shape) <= sizeof(head));
    assert_int_equal(want.byte_count, area->byte_count);
    for (uint64_t row = 0; row < area->count; row++) {
        if (area->slots != NULL && (want.slots[row] = area->slots[row]) < 0)
            continue;
        for (uint32_t part = 0; part < 2 * shape.heads; part++) {
            expected_head(quantised, shot, row, part / 2, part % 2, head);
            area_put(&want, row, part / 2, part % 2, head);
            if (!area_has(area, row, part / 2, part % 2, head))
                fail_msg("layer %u, %s: row %u, head %u, %s is not what its %s are",
                         shot->ask.layer, LAYOUT_NAMES[shot->layout], (unsigned)row, part / 2,
                         part % 2 == 0 ? "K" : "V",
                         shot_bit(shot, row) ? "stored bytes" : "codes' values");
        }
    }
    if (memcmp(want.bytes, area->bytes, area->byte_count) != 0)
        fail_msg("layer %u, %s: bytes between rows were written", shot->ask.layer,
                 LAYOUT_NAMES[shot->layout]);
    area_free(&want);
}

void shot_expect_worth(const struct quantised *quantised, const struct shot *shot)
{
    const struct spec_important *item = &shot->answer.item;
    uint64_t total = quantised->scene.matched - shot->ask.from;
    if (item->exact_rows == total) {
        assert_int_equal(item->provenance.kind, SPEC_PROVENANCE_EXACT);
        return;
    }
    assert_int_equal(item->provenance.kind, SPEC_PROVENANCE_LOSSY);
    assert_int_equal(item->provenance.bits_k, quantised->bits[0]);
    assert_int_equal(item->provenance.bits_v, quantised->bits[1]);
    assert_int_equal(item->provenance.exact_ppm, item->exact_rows * PPM / total);
}

void shot_expect_told(const struct quantised *quantised, const struct shot *shot)
{
    assert_int_equal(shot->answer.item.exact_rows, shot_count_bits(shot));
    if (shot->missed)
        return;
    shot_expect_area(quantised, shot);
    shot_expect_worth(quantised, shot);
}

/* Exact are the first rows and no others, as where no averages are. */
static bool is_lowest(const struct shot *shot)
{
    uint64_t count = 0;
    while (shot_bit(shot, count))
        count++;
    return count == shot->answer.item.exact_rows;
}

/* The set; one that ended early is a part of it. */
static void expect_set(struct quantised *quantised, const struct shot *shot)
{
    const struct spec_important *item = &shot->answer.item;
    struct verdict verdict = judge(quantised, &shot->ask, &shot->answer);
    uint64_t due = verdict.k > verdict.lost ? verdict.k : verdict.lost;
    bool is_cut = shot->deadline_ns > 0 || shot->budget_bytes > 0;
    bool is_whole = item->exact_rows == verdict.total; /* as a connector without codes delivers */
    quantised->scene.asked++;
    if (is_whole && due < verdict.total && !conf_options.require_hits)
        return;
    if (quantised->is_taught && is_lowest(shot) && !conf_options.require_hits)
        verdict.is_sure = false; /* averages may have been lost */
    if (!is_cut)
        assert_int_equal(item->exact_rows, due);
    assert_true(item->exact_rows <= due);
    assert_int_equal(item->result_flags, item->exact_rows < due ? SPEC_IMPORTANT_PARTIAL
                                         : is_cut ? item->result_flags & SPEC_IMPORTANT_PARTIAL
                                                  : 0);
    quantised->scene.sure += verdict.is_sure;
    for (uint64_t j = 0; j < verdict.total && verdict.is_sure; j++)
        if (shot_bit(shot, j) != verdict.in[j] && (shot_bit(shot, j) || !is_cut))
            fail_msg("layer %u: row %u of %u is %s, expected %s (%u exact rows are due)",
                     shot->ask.layer, (unsigned)j, (unsigned)verdict.total,
                     shot_bit(shot, j) ? "exact" : "coarse", verdict.in[j] ? "exact" : "coarse",
                     (unsigned)due);
}

void shot_expect_best(struct quantised *quantised, const struct shot *shot)
{
    struct ask ask = shot->ask;
    uint64_t total = quantised->scene.matched - ask.from;
    ask.select.exact_ppm = (uint32_t)(shot->answer.item.exact_rows * PPM / total);
    struct verdict verdict = judge(quantised, &ask, &shot->answer);
    assert_int_equal(verdict.k, shot->answer.item.exact_rows);
    for (uint64_t j = 0; j < total && verdict.is_sure; j++)
        assert_int_equal(shot_bit(shot, j), verdict.in[j]);
}

void shot_expect(struct quantised *quantised, const struct shot *shot)
{
    const struct spec_important *item = &shot->answer.item;
    uint64_t total = quantised->scene.matched - shot->ask.from;
    if (shot->missed) {
        assert_int_equal(item->row_count, 0);
        return;
    }
    assert_int_equal(item->status, SPEC_OK);
    assert_int_equal(item->row_count, total);
    assert_int_equal(item->next_position, quantised->scene.matched);
    assert_int_equal(item->exact_rows, shot_count_bits(shot));
    for (uint64_t j = 0; j < total; j++)
        assert_int_equal(shot->answer.positions[j], shot->ask.from + j);
    shot_expect_area(quantised, shot);
    shot_expect_worth(quantised, shot);
    expect_set(quantised, shot);
}

/* ---- Asking -----------------------------------------------------------------------------------
 */

struct shot shot_of(uint32_t layer, uint32_t exact_ppm)
{
    return (struct shot){.ask = {.layer = layer,
                                 .rows = FRESH,
                                 .select = {.struct_size = sizeof(struct spec_select),
                                            .given = SPEC_SELECT_EXACT,
                                            .exact_ppm = exact_ppm}}};
}

void shot_make(struct quantised *quantised, struct shot *shot,
               const struct spec_lookup_result *found)
{
    struct shape shape = quantised->scene.fx->shape;
    shot->dtype = shape.dtype = shot->dtype != 0 ? shot->dtype : shape.dtype;
    shot->missed = found->matched_tokens == shot->ask.from;
    assert_true(shot->missed || found->matched_tokens == quantised->scene.matched);
    shot->answer = answer_make(&quantised->scene, &shot->ask, found);
    area_free(&shot->answer.area);
    shot->answer.area = area_make(&shape, shot->layout, found->matched_tokens - shot->ask.from);
    if (shot->has_slot_less && !shot->missed)
        shot->answer.area.slots[shot->answer.area.count / 2] = -1;
    shot->answer.item = answer_item(&shot->ask, &shot->answer);
    memset(shot->bits, 0, sizeof(shot->bits));
    shot->answer.item.exact_bits = shot->bits;
    shot->answer.item.exact_bit_words = ROWS_MAX / 64;
    shot->answer.item.deadline_ns = shot->deadline_ns;
    shot->answer.item.budget_bytes = shot->budget_bytes;
}

void shot_free(struct shot *shot)
{
    answer_free(&shot->answer);
}

uint32_t shot_worse(const struct shot *shot, uint32_t exact_ppm)
{
    const struct spec_provenance *worth = &shot->answer.item.provenance;
    bool is_worse = worth->kind == SPEC_PROVENANCE_LOSSY && worth->exact_ppm < exact_ppm;
    return is_worse ? worth->exact_ppm : exact_ppm;
}

bool fire_in(struct quantised *quantised, struct shot *shot, const struct spec_lookup_result *found)
{
    struct fixture *fx = quantised->scene.fx;
    shot_make(quantised, shot, found);
    if (shot->is_hinted && shot->ask.layer > 0)
        assert_ok(fx, fx->api->prefetch_next(fx->conn, found->request, shot->ask.layer - 1,
                                             &shot->answer.queries, &fx->error));
    spec_status status = fx->api->get_important(fx->conn, &shot->answer.item, 1, &fx->error);
    bool is_late = shot->may_be_late && status == SPEC_E_TIMEOUT;
    if (!is_late) {
        assert_ok(fx, status);
        shot_expect(quantised, shot);
    }
    return !is_late;
}

bool fire(struct quantised *quantised, struct shot shot)
{
    struct spec_lookup_result found = scene_find(&quantised->scene, shot.ask.from);
    bool in_time = fire_in(quantised, &shot, &found);
    shot_free(&shot);
    fixture_release(quantised->scene.fx, found.request);
    return in_time;
}

bool fire_first(struct quantised *quantised, struct shot *shot,
                const struct spec_lookup_result *found, spec_ticket *ret_ticket)
{
    struct fixture *fx = quantised->scene.fx;
    shot_make(quantised, shot, found);
    assert_ok(
        fx, fx->api->get_important_submit(fx->conn, &shot->answer.item, 1, ret_ticket, &fx->error));
    spec_status status = fx->api->get_important_wait(fx->conn, *ret_ticket, UINT64_MAX, &fx->error);
    bool is_late = shot->may_be_late && status == SPEC_E_TIMEOUT;
    if (!is_late) {
        assert_ok(fx, status);
        shot_expect(quantised, shot);
    }
    return !is_late;
}

void aim(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm, uint64_t budget_bytes)
{
    shot->ask.select.exact_ppm = shot->answer.select.exact_ppm = exact_ppm;
    shot->budget_bytes = shot->answer.item.budget_bytes = budget_bytes;
    shot->deadline_ns = shot->answer.item.deadline_ns = 0;
    shot->answer.item.queries = NULL;
    shot->answer.item.new_keys = NULL;
    shot->answer.item.refine_of = ticket;
}

spec_status refine(struct quantised *quantised, struct shot *shot, bool submits)
{
    struct fixture *fx = quantised->scene.fx;
    spec_ticket ticket;
    if (!submits)
        return fx->api->get_important(fx->conn, &shot->answer.item, 1, &fx->error);
    assert_ok(fx,
              fx->api->get_important_submit(fx->conn, &shot->answer.item, 1, &ticket, &fx->error));
    return fx->api->get_important_wait(fx->conn, ticket, UINT64_MAX, &fx->error);
}

void quantised_expect_sure(const struct quantised *quantised)
{
    if (conf_options.require_hits && quantised->scene.sure * 10 < quantised->scene.asked * 9)
        fail_msg("only %u of %u sets were sure enough to be compared",
                 (unsigned)quantised->scene.sure, (unsigned)quantised->scene.asked);
}
