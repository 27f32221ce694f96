/* Choices against a sort of all scores, on every rung: ties, NaN, infinities, both zeros; votes;
 * mass; sets; granules; the papers' worked examples; moving chosen rows together. */
#include "kernels/importance.h"
#include "kernels/order.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_MAX 3000u
#define SETS_MAX  5u
#define GUARD     0xdeadbeefu
#define WORDS_MAX SC_KERNELS_WORDS(COUNT_MAX)
#define KINDS     7u

static uint64_t g_random;

static uint64_t next_random(uint64_t below)
{
    g_random = g_random * 6364136223846793005u + 1442695040888963407u;
    return (g_random >> 33) % below;
}

/* Scores of one of several kinds: smooth, many ties, everything strange, all equal, skewed, in runs
 * of equal ones as granules make them, descending. */
static void scores_make(float *scores, uint64_t count, uint32_t kind)
{
    static const float STRANGE[] = {NAN,  -NAN,  INFINITY, -INFINITY, 0.0f,  -0.0f,
                                    1.0f, -1.0f, 1e-42f,   -1e-42f,   3e38f, 1.0000001f};
    for (uint64_t j = 0; j < count; j++) {
        double u = (double)next_random(1u << 30) / (double)(1u << 30);
        if (kind == 0)
            scores[j] = (float)u;
        else if (kind == 1)
            scores[j] = (float)next_random(7) - 3;
        else if (kind == 2)
            scores[j] = STRANGE[next_random(12)];
        else if (kind == 3)
            scores[j] = 0.25f;
        else if (kind == 5)
            scores[j] = j % 16 != 0 ? scores[j - 1] : (float)u;
        else if (kind == 6)
            scores[j] = 1.0f / (float)(j + 1);
        else
            scores[j] = (float)exp(-20 * u);
    }
}

struct entry {
    uint32_t votes;
    float score;
    uint32_t row;
};

/* "a stands before b": more votes, then the higher score (NaN is lowest), then the lower row. */
static int entry_compare(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->votes != b->votes)
        return a->votes > b->votes ? -1 : 1;
    bool a_nan = isnan(a->score), b_nan = isnan(b->score);
    if (a_nan != b_nan)
        return a_nan ? 1 : -1;
    if (!a_nan && a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

static int row_compare(const void *left, const void *right)
{
    uint32_t a, b;
    memcpy(&a, left, sizeof(a));
    memcpy(&b, right, sizeof(b));
    return a < b ? -1 : a > b;
}

/* The twin: the ranking of all rows by (votes, score, row). */
static void twin(const float *scores, const uint8_t *votes, uint64_t count, uint32_t *ret_ranked)
{
    static struct entry entries[COUNT_MAX];
    for (uint64_t j = 0; j < count; j++)
        entries[j] = (struct entry){votes != NULL ? votes[j] : 0, scores[j], (uint32_t)j};
    qsort(entries, count, sizeof(*entries), entry_compare);
    for (uint64_t j = 0; j < count; j++)
        ret_ranked[j] = entries[j].row;
}

static void sets_equal(const uint32_t *found, const uint32_t *ranked, uint64_t k, uint64_t seed)
{
    static uint32_t expected[COUNT_MAX];
    memcpy(expected, ranked, k * sizeof(*expected));
    qsort(expected, k, sizeof(*expected), row_compare);
    for (uint64_t i = 0; i < k; i++)
        if (found[i] != expected[i])
            fail_msg("seed %d: place %d: found row %u, expected %u", (int)seed, (int)i, found[i],
                     expected[i]);
    assert_int_equal(found[k], GUARD);
}

/* A set as bits, word by word, nothing behind the last row, against the ranking's first k. */
static void bits_equal(const uint64_t *bits, uint64_t count, const uint32_t *ranked, uint64_t k,
                       uint64_t seed)
{
    static uint32_t found[COUNT_MAX + 1];
    uint64_t rows = 0;
    for (uint64_t j = 0; j < 64 * SC_KERNELS_WORDS(count); j++)
        if (bits[j / 64] >> j % 64 & 1 && rows < k)
            found[rows++] = (uint32_t)j;
        else
            assert_int_equal(bits[j / 64] >> j % 64 & 1, 0);
    assert_int_equal(rows, k);
    found[k] = GUARD;
    sets_equal(found, ranked, k, seed);
    assert_int_equal(bits[SC_KERNELS_WORDS(count)], GUARD);
}

static void topk_is_the_sort_s_set_on_every_rung(void **state)
{
    (void)state;
    static float scores[COUNT_MAX];
    static uint32_t ranked[COUNT_MAX], found[COUNT_MAX + 1];
    static uint64_t scratch[2 * COUNT_MAX], bits[WORDS_MAX + 1];
    for (uint64_t seed = 1; seed <= 400; seed++) {
        g_random = seed;
        uint64_t count = seed < 70 ? seed : 1 + next_random(COUNT_MAX);
        uint64_t k = seed % 9 == 0 ? count : 1 + next_random(count);
        scores_make(scores, count, (uint32_t)(seed % KINDS));
        twin(scores, NULL, count, ranked);
        for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
            const struct sc_kernels *kernels = sc_kernels_get((enum sc_kernels_level)level);
            found[k] = GUARD;
            sc_kernels_topk(kernels, scores, count, k, found);
            sets_equal(found, ranked, k, seed);
            bits[SC_KERNELS_WORDS(count)] = GUARD;
            sc_kernels_topk_bits(kernels, scores, count, k, bits);
            bits_equal(bits, count, ranked, k, seed);
            sc_kernels_topk_ranked(kernels, scores, count, k, scratch, found);
            assert_memory_equal(found, ranked, k * sizeof(*found));
            assert_int_equal(found[k], GUARD);
        }
    }
}

static void votes_are_the_sort_s_set_on_every_rung(void **state)
{
    (void)state;
    static float scores[COUNT_MAX];
    static uint32_t ranked[COUNT_MAX];
    static uint64_t sets[SETS_MAX * WORDS_MAX + 1], voted[WORDS_MAX + 1];
    static uint64_t scratch[(SETS_MAX + 1) * WORDS_MAX + 1];
    static uint8_t counted[COUNT_MAX];
    for (uint64_t seed = 1; seed <= 300; seed++) {
        g_random = seed;
        uint64_t count = seed < 140 ? seed : 1 + next_random(COUNT_MAX);
        uint64_t k = 1 + next_random(count), set_count = next_random(SETS_MAX + 1);
        uint64_t words = SC_KERNELS_WORDS(count);
        const struct sc_kernels *kernels = sc_kernels_get(sc_kernels_level_best());
        memset(counted, 0, sizeof(counted));
        for (uint64_t set = 0; set < set_count; set++) {
            scores_make(scores, count, (uint32_t)((seed + set) % KINDS));
            sc_kernels_topk_bits(kernels, scores, count, k, sets + set * words);
            for (uint64_t j = 0; j < count; j++)
                counted[j] += sets[set * words + j / 64] >> j % 64 & 1;
        }
        scores_make(scores, count, (uint32_t)(seed % KINDS));
        twin(scores, counted, count, ranked);
        for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
            voted[words] = scratch[(set_count + 1) * words] = GUARD;
            sc_kernels_vote(sc_kernels_get((enum sc_kernels_level)level),
                            &(struct sc_kernels_votes){sets, set_count, count, scores}, k, scratch,
                            voted);
            bits_equal(voted, count, ranked, k, seed);
            assert_int_equal(scratch[(set_count + 1) * words], GUARD);
        }
    }
}

/* What a sample sees is not what there is, or tells nothing apart; long rows, whose first bracket
 * holds more than stays with the search. */
static void a_misleading_sample_costs_time_alone(void **state)
{
    (void)state;
    enum { LONG = 70000 };
    static float scores[LONG];
    static struct entry entries[LONG];
    static uint32_t found[LONG + 1], expected[LONG];
    for (uint64_t seed = 0; seed < 10 * 3; seed++) {
        uint64_t count = seed / 10 == 0 ? 4096 : seed / 10 == 1 ? 20011 : LONG, k = 1;
        g_random = seed + 1;
        for (uint64_t j = 0; j < count; j++) {
            double u = (double)next_random(1u << 30) / (double)(1u << 30);
            bool is_seen = j % 32 == 0 || j % 64 < 2;
            scores[j] = seed % 5 == 0   ? (float)u
                        : seed % 5 == 1 ? (is_seen ? 2.0f : (float)u)
                        : seed % 5 == 2 ? (is_seen ? -1.0f : (float)u)
                        : seed % 5 == 3 ? (float)next_random(2)
                                        : (float)((is_seen ? 1e-30 : 1e30) * u);
        }
        k = seed % 3 == 0 ? count / 4 : seed % 3 == 1 ? count - 3 : 5;
        for (uint64_t j = 0; j < count; j++)
            entries[j] = (struct entry){0, scores[j], (uint32_t)j};
        qsort(entries, count, sizeof(*entries), entry_compare);
        for (uint64_t i = 0; i < k; i++)
            expected[i] = entries[i].row;
        qsort(expected, k, sizeof(*expected), row_compare);
        for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
            found[k] = GUARD;
            sc_kernels_topk(sc_kernels_get((enum sc_kernels_level)level), scores, count, k, found);
            assert_memory_equal(found, expected, k * sizeof(*found));
            assert_int_equal(found[k], GUARD);
        }
    }
}

/* ---- Passes ---------------------------------------------------------------------------------- */

/* Counts passes over scores: how many there were, over how many entries in all. */
static struct {
    const struct sc_kernels *kernels; /* what does the work */
    uint64_t passes, entries;
} g_sifted;

static void sift_counted(const struct sc_kernels_sift *sift, struct sc_kernels_sifted *ret_sifted)
{
    g_sifted.passes++;
    g_sifted.entries += sift->count;
    g_sifted.kernels->order_sift(sift, ret_sifted);
}

/* Kernels of the level whose passes are counted from now on. */
static struct sc_kernels counted_kernels(uint32_t level)
{
    g_sifted.kernels = sc_kernels_get((enum sc_kernels_level)level);
    g_sifted.passes = g_sifted.entries = 0;
    struct sc_kernels counted = *g_sifted.kernels;
    counted.order_sift = sift_counted;
    return counted;
}

/* A first pass has all scores, and those behind it the candidates that it kept, a third or less;
 * where a sample misses, a pass or two more have all. */
static void each_pass_looks_at_the_candidates_that_are_left(void **state)
{
    (void)state;
    enum { LONGEST = 20011, SEEDS = 20 }; /* of more, a third is more than is kept */
    static const uint64_t COUNTS[] = {2048, 4096, LONGEST};
    static float scores[LONGEST];
    static uint32_t found[LONGEST];
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
        for (uint32_t i = 0; i < sizeof(COUNTS) / sizeof(COUNTS[0]); i++) {
            uint64_t count = COUNTS[i], all = 0;
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                const struct sc_kernels kernels = counted_kernels(level);
                g_random = seed;
                scores_make(scores, count, seed % 2 == 0 ? 0 : 4);
                sc_kernels_topk(&kernels, scores, count, count / 10, found);
                assert_true(g_sifted.passes >= 2); /* it is what finds them */
                assert_true(g_sifted.entries >= count && g_sifted.entries < 4 * count);
                all += g_sifted.entries;
            }
            assert_true(all < 2 * SEEDS * count);
        }
}

static void the_order_is_total_and_knows_one_zero(void **state)
{
    (void)state;
    const float rising[] = {-INFINITY, -3e38f, -1, -1e-42f, 0, 1e-42f, 1, 3e38f, INFINITY};
    for (uint32_t i = 1; i < 9; i++)
        assert_true(sc_kernels_order_of(rising[i - 1]) < sc_kernels_order_of(rising[i]));
    assert_true(sc_kernels_order_of(-0.0f) == sc_kernels_order_of(0.0f));
    assert_true(sc_kernels_order_of(NAN) < sc_kernels_order_of(-INFINITY));
    assert_true(sc_kernels_order_of(-NAN) == sc_kernels_order_of(NAN));
}

static void mass_takes_the_fewest_rows_that_hold_the_share(void **state)
{
    (void)state;
    const float scores[] = {1, 5, 0, 2, 2};
    uint64_t scratch[10];
    const struct sc_kernels *kernels = sc_kernels_get(sc_kernels_level_best());
    static const struct {
        double share;
        uint64_t k_max, k;
    } CASES[] = {{0, 5, 1},   {.5, 5, 1},  {.51, 5, 2}, {.7, 5, 2},
                 {.71, 5, 3}, {.91, 5, 4}, {1, 5, 4},   {.91, 2, 2}};
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        assert_int_equal(
            sc_kernels_mass_count(kernels, scores, 5, CASES[i].share, CASES[i].k_max, scratch),
            CASES[i].k);
    const uint64_t rows = 1u << 1 | 1u << 3;
    assert_true(sc_kernels_mass_of(scores, &rows, 5) == 7.0);
    const float nothing[] = {0, 0, 0};
    assert_int_equal(sc_kernels_mass_count(kernels, nothing, 3, .9, 3, scratch), 1);
    const float broken[] = {NAN, 1, NAN};
    assert_int_equal(sc_kernels_mass_count(kernels, broken, 3, .9, 3, scratch), 3);
}

static void sets_overlap_as_the_papers_example_says(void **state)
{
    (void)state;
    const uint64_t three[] = {0x5, 0x3, 0x5}; /* rows 0 and 2; 0 and 1; 0 and 2 */
    assert_true(fabs(sc_kernels_jaccard(1, 2, 2) - 1.0 / 3) < 1e-15);
    assert_true(sc_kernels_jaccard(0, 0, 0) == 1);
    assert_true(sc_kernels_jaccard(0, 2, 0) == 0);
    static uint64_t x[17], y[17];
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
        const struct sc_kernels *kernels = sc_kernels_get((enum sc_kernels_level)level);
        assert_true(fabs(sc_kernels_similarity(kernels, three, 3, 4, 2) -
                         (1.0 / 3 + 1 + 1.0 / 3) / 3) < 1e-15);
        assert_true(sc_kernels_similarity(kernels, three, 1, 4, 2) == 1);
        for (uint64_t words = 0; words < 17; words++) {
            g_random = words;
            uint64_t both = 0;
            memset(x, 0, sizeof(x));
            memset(y, 0, sizeof(y));
            for (uint32_t row = 0; row < 64 * words; row++) {
                uint64_t kind = next_random(4);
                x[row / 64] |= (kind & 1) << row % 64;
                y[row / 64] |= (kind >> 1) << row % 64;
                both += kind == 3;
            }
            x[words] = y[words] = UINT64_MAX; /* takes no part */
            assert_int_equal(kernels->bits_both(x, y, words), both);
        }
    }
}

static void the_threshold_is_the_papers(void **state)
{
    (void)state;
    assert_true(fabs(sc_kernels_threshold(25, 100, 0.6) - 0.311) < 5e-4);
    assert_true(sc_kernels_threshold(25, 100, 0) == 1);
    assert_true(sc_kernels_threshold(100, 100, 0.6) == 1);
    assert_true(sc_kernels_threshold(1, 100, 50) < 1e-100);
}

/* IMPRESS section 4.3: 32 heads, 4 tokens, k = 1. Keys of all heads and the values of the chosen
 * rows are 160 vectors; three probes' keys and one voted row of all heads are 76. */
static void probing_loads_76_vectors_where_all_keys_are_160(void **state)
{
    (void)state;
    const float scores[3][4] = {{.1f, .2f, .6f, .1f}, {.2f, .1f, .5f, .2f}, {.3f, .4f, .2f, .1f}};
    const uint64_t heads = 32, tokens = 4, probes = 3, k = 1;
    const struct sc_kernels *kernels = sc_kernels_get(sc_kernels_level_best());
    uint64_t sets[3], voted, scratch[4];
    float sum[4] = {0};
    for (uint64_t probe = 0; probe < probes; probe++) {
        sc_kernels_topk_bits(kernels, scores[probe], tokens, k, sets + probe);
        sc_kernels_add(kernels, sum, scores[probe], tokens);
    }
    assert_true(sc_kernels_similarity(kernels, sets, probes, tokens, k) >
                sc_kernels_threshold(k, tokens, 0.6)); /* 1/3 against .311: one set */
    sc_kernels_vote(kernels, &(struct sc_kernels_votes){sets, probes, tokens, sum}, k, scratch,
                    &voted);
    assert_int_equal(voted, 1u << 2);
    assert_int_equal(probes * tokens + heads * k * 2, 76);
    assert_int_equal(heads * tokens + heads * k, 160);
}

static void granules_stand_on_the_absolute_grid(void **state)
{
    (void)state;
    const float scores[] = {1, 2, 3, 4, 5, 6, 7};
    float sums[8];
    assert_int_equal(sc_kernels_granules(scores, 7, 0, 4, sums), 2);
    assert_true(sums[0] == 10 && sums[1] == 18);
    assert_int_equal(sc_kernels_granules(scores, 7, 6, 4, sums), 3);
    assert_true(sums[0] == 3 && sums[1] == 18 && sums[2] == 7);
    assert_int_equal(sc_kernels_granules(scores, 7, 3, 1, sums), 7);
    assert_memory_equal(sums, scores, sizeof(scores));
    assert_int_equal(sc_kernels_granules(scores, 0, 3, 16, sums), 0);
}

static void adding_is_exact_on_every_rung(void **state)
{
    (void)state;
    static float dst[COUNT_MAX], expected[COUNT_MAX], src[COUNT_MAX];
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++)
        for (uint64_t count = 0; count < 70; count++) {
            scores_make(dst, 70, 0);
            scores_make(src, 70, 4);
            for (uint64_t j = 0; j < 70; j++)
                expected[j] = j < count ? dst[j] + src[j] : dst[j];
            sc_kernels_add(sc_kernels_get((enum sc_kernels_level)level), dst, src, count);
            assert_memory_equal(dst, expected, 70 * sizeof(*dst));
        }
}

#define HEADS  3u
#define HEAD   6u /* bytes */
#define TOKENS 20u

static uint8_t byte_of(uint64_t token, uint32_t part, uint64_t head, uint64_t i)
{
    return (uint8_t)(token * 7 + part * 101 + head * 37 + i);
}

static void memory_fill(struct sc_kernels_memory *memory, uint8_t *bytes, int64_t *slots,
                        uint32_t layout)
{
    memset(bytes, 0, 8192);
    *memory = (struct sc_kernels_memory){.k_base = bytes,
                                         .v_base = bytes + 4096,
                                         .token_stride_bytes = HEADS * HEAD,
                                         .head_stride_bytes = HEAD};
    if (layout == 1) {
        memory->token_stride_bytes = HEAD;
        memory->head_stride_bytes = TOKENS * HEAD;
    } else if (layout == 2) {
        memory->block_tokens = 4;
        memory->block_stride_bytes = 4 * HEADS * HEAD + 16;
        memory->slots = slots;
    }
    for (uint64_t j = 0; j < TOKENS; j++)
        slots[j] = (int64_t)(2 * (TOKENS - 1 - j));
}

static uint8_t *place(const struct sc_kernels_memory *m, uint32_t part, uint64_t j, uint64_t h)
{
    uint64_t slot = m->slots != NULL ? (uint64_t)m->slots[j] : j;
    uint64_t block = m->block_tokens != 0 ? slot / m->block_tokens : 0;
    slot -= block * m->block_tokens;
    return (part ? m->v_base : m->k_base) + block * m->block_stride_bytes +
           slot * m->token_stride_bytes + h * m->head_stride_bytes;
}

/* head: UINT64_MAX for all. Rows of other heads, and slots behind the chosen rows, stay. */
static void compact_once(uint32_t layout, uint64_t head)
{
    static const uint32_t ROWS[] = {0, 1, 4, 5, 6, 11, 18, 19};
    const uint64_t row_count = sizeof(ROWS) / sizeof(ROWS[0]);
    static uint8_t bytes[8192], before[8192];
    int64_t slots[TOKENS];
    struct sc_kernels_memory memory, old;
    memory_fill(&memory, bytes, slots, layout);
    for (uint64_t i = 0; i < 2 * TOKENS * HEADS * HEAD; i++) {
        uint64_t j = i / (2 * HEADS * HEAD), h = i / HEAD % HEADS;
        uint32_t part = i / (HEADS * HEAD) % 2;
        place(&memory, part, j, h)[i % HEAD] = byte_of(j, part, h, i % HEAD);
    }
    memcpy(before, bytes, sizeof(bytes));
    struct sc_kernels_move how = {NULL, &memory, HEADS, HEAD, .element_bytes = 1};
    sc_kernels_rows_compact(&how, head, ROWS, row_count);
    old = memory;
    old.k_base = before;
    old.v_base = before + 4096;
    for (uint64_t j = 0; j < row_count; j++)
        for (uint64_t h = 0; h < HEADS; h++)
            for (uint32_t part = 0; part < 2; part++)
                if (head == UINT64_MAX || head == h) {
                    assert_memory_equal(place(&memory, part, j, h), place(&old, part, ROWS[j], h),
                                        HEAD);
                    memcpy(place(&memory, part, j, h), place(&old, part, j, h), HEAD);
                }
    assert_memory_equal(bytes, before, sizeof(bytes)); /* nothing else moved */
}

static void compacting_moves_chosen_rows_down_and_nothing_else(void **state)
{
    (void)state;
    for (uint32_t layout = 0; layout < 3; layout++) {
        compact_once(layout, UINT64_MAX);
        for (uint64_t head = 0; head < HEADS; head++)
            compact_once(layout, head);
    }
}

static void probe_rows_hold_the_first_heads_keys(void **state)
{
    (void)state;
    static uint8_t bytes[8192];
    uint8_t packed[TOKENS * 2 * HEAD + 1];
    int64_t slots[TOKENS];
    struct sc_kernels_memory memory;
    for (uint32_t layout = 0; layout < 3; layout++) {
        memory_fill(&memory, bytes, slots, layout);
        for (uint64_t i = 0; i < TOKENS * HEADS * HEAD; i++)
            place(&memory, 0, i / (HEADS * HEAD), i / HEAD % HEADS)[i % HEAD] =
                byte_of(i / (HEADS * HEAD), 0, i / HEAD % HEADS, i % HEAD);
        memset(packed, 0xa5, sizeof(packed));
        struct sc_kernels_move how = {sc_kernels_get(SC_KERNELS_REF), &memory, 2, HEAD,
                                      .element_bytes = 1};
        sc_kernels_part_pack(&how, 0, 3, TOKENS - 3, packed);
        for (uint64_t i = 0; i < (TOKENS - 3) * 2 * HEAD; i++)
            assert_int_equal(packed[i], byte_of(3 + i / (2 * HEAD), 0, i / HEAD % 2, i % HEAD));
        assert_int_equal(packed[(TOKENS - 3) * 2 * HEAD], 0xa5);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_is_the_sort_s_set_on_every_rung),
        cmocka_unit_test(votes_are_the_sort_s_set_on_every_rung),
        cmocka_unit_test(a_misleading_sample_costs_time_alone),
        cmocka_unit_test(each_pass_looks_at_the_candidates_that_are_left),
        cmocka_unit_test(the_order_is_total_and_knows_one_zero),
        cmocka_unit_test(mass_takes_the_fewest_rows_that_hold_the_share),
        cmocka_unit_test(sets_overlap_as_the_papers_example_says),
        cmocka_unit_test(the_threshold_is_the_papers),
        cmocka_unit_test(probing_loads_76_vectors_where_all_keys_are_160),
        cmocka_unit_test(granules_stand_on_the_absolute_grid),
        cmocka_unit_test(adding_is_exact_on_every_rung),
        cmocka_unit_test(compacting_moves_chosen_rows_down_and_nothing_else),
        cmocka_unit_test(probe_rows_hold_the_first_heads_keys),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
