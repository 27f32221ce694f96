/* importance.h: exact selection by a total order: top-k, ranked top-k, mass, votes.
 *
 *   scores   --sift-->  keys in [low, high]  --sift-->  ...  --ranks-->  edge: the k-th key
 *      \                    about a third of them, and the k-th among them
 *       --mark by the edge-->  set, as bits  -->  ascending indexes
 *
 * A bracket comes from a sample's ranks and nearly always contains the k-th key. If not, the counts
 * of the pass say on which side the k-th is, and the next bracket covers that side. Samples affect
 * only speed: after SAMPLED_ROUNDS the bracket is halved, so 32 more passes end any search. If the
 * first bracket holds, all scores are read once for the edge and once for the set.
 * Tests: tests/unit/kernels/test_topk.c */
#include "kernels/importance.h"
#include "kernels/order.h"

#include <string.h>

#define KEPT_MAX       4096u /* keys of a bracket that are copied for later passes */
#define EXACT_MAX      64u   /* keys that are ranked, not sampled */
#define SAMPLE_LEAST   32u
#define SAMPLE_REACH   5u /* two standard deviations of a rank among SAMPLE_LEAST */
#define SAMPLED_ROUNDS 8u
#define BLOCK_WORDS    64u /* words of bits converted to indexes at once */
#define WORD_BITS      64u
#define DIGIT_BITS     9u
#define DIGITS_MAX     4u /* digits of DIGIT_BITS in a key's 32 bits */

/* Search state: the key is in [low, high], the rank-th of the `population` keys there. */
struct search {
    const struct sc_kernels *kernels;
    struct sc_kernels_sift sift; /* input of the next pass; its low and high are the bracket */
    uint32_t low, high;
    uint32_t base; /* offset from a searched key to the score's key */
    uint64_t rank, population;
    uint64_t above;              /* searched entries above `high` */
    const uint32_t *sample_from; /* NULL: sample the input; else KEPT_MAX keys, minus low */
    uint32_t *kept;              /* two buffers: the input may be one of them */
    uint32_t round;
};

static uint32_t entry_at(const struct sc_kernels_sift *sift, uint64_t i)
{
    uint32_t entry;
    memcpy(&entry, (const uint8_t *)sift->from + i * sizeof(entry), sizeof(entry));
    return sc_kernels_key_of(entry, sift->keys_are);
}

/* Samples keys of [low, high] evenly over the input; returns their number, at most `wanted`. */
static uint64_t sample(const struct search *search, uint64_t wanted, uint32_t *ret_keys)
{
    const struct sc_kernels_sift *sift = &search->sift;
    uint64_t found = 0, count = search->sample_from != NULL ? KEPT_MAX : sift->count;
    uint64_t step = count / wanted, at = step * search->round / SAMPLED_ROUNDS;
    for (uint64_t i = 0; i < wanted; i++, at += step) {
        uint64_t place = at;
        if (search->sample_from != NULL) {
            ret_keys[found++] = search->sample_from[place] + search->low;
            continue;
        }
        if (sift->among != NULL) { /* the next set bit of the word */
            uint64_t word = sift->among[place / WORD_BITS] >> place % WORD_BITS;
            if (word == 0)
                continue;
            place += (uint64_t)__builtin_ctzll(word);
        }
        uint32_t key = entry_at(sift, place);
        if (key >= search->low && key <= search->high)
            ret_keys[found++] = key;
    }
    return found;
}

/* Sets the bracket around the key of that rank from a sample. If the sample cannot separate keys,
 * the bracket is its middle key. */
static void bracket_sampled(struct search *search, const uint32_t *keys, uint64_t count,
                            uint64_t reach)
{
    struct sc_kernels_sift *sift = &search->sift;
    uint64_t middle = search->rank * count / search->population;
    bool has_upper = middle > reach, has_lower = middle + reach < count;
    uint64_t ranks[2] = {has_upper ? middle - reach : 1, has_lower ? middle + reach + 1 : count};
    uint32_t ends[2];
    search->kernels->order_ranks(keys, count, ranks, ends);
    sift->high = has_upper ? ends[0] : search->high;
    sift->low = has_lower ? ends[1] : search->low;
    if (sift->low > search->low || sift->high < search->high)
        return;
    ranks[0] = ranks[1] = middle > 0 ? middle : 1;
    search->kernels->order_ranks(keys, count, ranks, ends);
    sift->low = sift->high = ends[0];
}

/* Sets the next bracket: exact for few keys, by a sample for many, else a half. */
static void bracket(struct search *search)
{
    uint32_t keys[SC_KERNELS_RANKED], ends[2];
    struct sc_kernels_sift *sift = &search->sift;
    uint64_t wanted = SAMPLE_LEAST, reach = SAMPLE_REACH;
    bool is_kept = sift->keys_are == SC_KERNELS_KEYS_KEYS;
    sift->low = search->low;
    sift->high = search->high;
    if (is_kept && sift->count <= EXACT_MAX) {
        const uint64_t ranks[2] = {search->above + search->rank, search->above + search->rank};
        search->kernels->order_ranks(sift->from, sift->count, ranks, ends);
        sift->low = sift->high = ends[0];
        return;
    }
    if (!is_kept && search->population <= EXACT_MAX)
        return; /* they are kept */
    for (; wanted < SC_KERNELS_RANKED && wanted * wanted < sift->count / 4; wanted *= 2)
        reach += reach / 2;
    uint64_t count = 0;
    if (search->round < SAMPLED_ROUNDS && sift->count >= wanted)
        count = sample(search, wanted, keys);
    if (count >= SAMPLE_LEAST / 2)
        bracket_sampled(search, keys, count, reach);
    else
        sift->high = search->low + (search->high - search->low) / 2;
}

/* Applies the counts of a pass over the bracket. Returns true if the bracket is the edge. */
static bool narrow(struct search *search, const struct sc_kernels_sifted *sifted)
{
    struct sc_kernels_sift *sift = &search->sift;
    uint64_t above = sifted->above - search->above; /* keys of [low, high] above the bracket */
    search->sample_from = NULL;
    search->round++;
    if (search->rank <= above) {
        search->low = sift->high + 1;
        search->population = above;
        return false;
    }
    if (search->rank > above + sifted->inside) {
        search->high = sift->low - 1;
        search->above = sifted->above + sifted->inside;
        search->rank -= above + sifted->inside;
        search->population -= above + sifted->inside;
        return false;
    }
    search->rank -= above;
    search->population = sifted->inside;
    search->low = sift->low;
    search->high = sift->high;
    search->above = sifted->above;
    if (sift->low == sift->high)
        return true;
    search->sample_from = sift->kept;
    if (sifted->inside > KEPT_MAX)
        return false;
    search->base += sift->low; /* search only the kept keys from here on */
    search->high -= sift->low;
    search->low = 0;
    search->above = 0;
    search->sample_from = NULL;
    sift->from = sift->kept;
    sift->kept = search->kept + (sift->kept == search->kept ? KEPT_MAX + SC_KERNELS_KEPT_AHEAD : 0);
    sift->among = NULL;
    sift->count = sifted->inside;
    sift->keys_are = SC_KERNELS_KEYS_KEYS;
    return false;
}

/* Returns the k-th of the `population` entries of `among` (NULL: all), 1 <= k <= population. */
static struct sc_kernels_edge edge_find(const struct sc_kernels *kernels, const float *scores,
                                        const uint64_t *among, uint64_t count, uint64_t population,
                                        uint64_t k)
{
    uint32_t kept[2 * (KEPT_MAX + SC_KERNELS_KEPT_AHEAD)];
    struct search search = {.kernels = kernels,
                            .sift = {.from = scores,
                                     .among = among,
                                     .count = count,
                                     .kept = kept,
                                     .kept_max = KEPT_MAX},
                            .kept = kept,
                            .high = UINT32_MAX,
                            .rank = k,
                            .population = population};
    struct sc_kernels_sifted sifted;
    struct sc_kernels_edge edge = {.keys_are = SC_KERNELS_KEYS_PLAIN};
    do {
        bracket(&search);
        kernels->order_sift(&search.sift, &sifted);
        if (sifted.strange != 0 && edge.keys_are == SC_KERNELS_KEYS_PLAIN) { /* with signed keys */
            edge.keys_are = search.sift.keys_are = SC_KERNELS_KEYS_SCORES;
            kernels->order_sift(&search.sift, &sifted);
        }
    } while (!narrow(&search, &sifted));
    edge.key = search.base + search.low;
    edge.equal_count = search.rank == search.population ? UINT64_MAX : search.rank;
    return edge;
}

void sc_kernels_topk_bits(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                          uint64_t k, uint64_t *ret_bits)
{
    struct sc_kernels_edge edge = edge_find(kernels, scores, NULL, count, count, k);
    kernels->order_mark(scores, NULL, count, &edge, ret_bits);
}

void sc_kernels_topk(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                     uint64_t k, uint32_t *ret_rows)
{
    uint64_t bits[BLOCK_WORDS], found = 0;
    struct sc_kernels_edge edge = edge_find(kernels, scores, NULL, count, count, k);
    for (uint64_t first = 0; first < count; first += BLOCK_WORDS * WORD_BITS) {
        uint64_t left = count - first;
        left = left < BLOCK_WORDS * WORD_BITS ? left : BLOCK_WORDS * WORD_BITS;
        kernels->order_mark(scores + first, NULL, left, &edge, bits);
        found += kernels->bits_rows(bits, SC_KERNELS_WORDS(left), (uint32_t)first, ret_rows + found,
                                    k - found);
    }
}

/* Sorts stably by the upper 32 bits, of which `bits` count. Returns the buffer with the result. */
static uint64_t *keys_sort(uint64_t *keys, uint64_t *other, uint64_t count, uint32_t bits)
{
    uint32_t starts[DIGITS_MAX][1u << DIGIT_BITS];
    uint32_t digits = (bits + DIGIT_BITS - 1) / DIGIT_BITS;
    memset(starts, 0, sizeof(starts));
    for (uint64_t i = 0; i < count; i++)
        for (uint32_t digit = 0; digit < digits; digit++)
            starts[digit][keys[i] >> (32 + DIGIT_BITS * digit) & ((1u << DIGIT_BITS) - 1)]++;
    for (uint32_t digit = 0; digit < digits; digit++) {
        uint32_t sum = 0, *start = starts[digit], shift = 32 + DIGIT_BITS * digit;
        for (uint32_t value = 0; value < 1u << DIGIT_BITS; value++) {
            uint32_t size = start[value];
            start[value] = sum;
            sum += size;
        }
        for (uint64_t i = 0; i < count; i++)
            other[start[keys[i] >> shift & ((1u << DIGIT_BITS) - 1)]++] = keys[i];
        uint64_t *sorted = other;
        other = keys;
        keys = sorted;
    }
    return keys;
}

/* Ranks rows, which ascend, by sorting (best - order) << 32 | row. Returns the result in `scratch`
 * or after its first k entries. */
static const uint64_t *rank(const float *scores, const uint32_t *rows, uint64_t k,
                            uint64_t *scratch)
{
    uint32_t best = 0, least = UINT32_MAX;
    for (uint64_t i = 0; i < k; i++) {
        uint32_t order = sc_kernels_order_of(scores[rows[i]]);
        best = order > best ? order : best;
        least = order < least ? order : least;
        scratch[i] = (uint64_t)order << 32 | rows[i];
    }
    for (uint64_t i = 0; i < k; i++)
        scratch[i] = ((uint64_t)best << 32) + 2 * (scratch[i] & UINT32_MAX) - scratch[i];
    uint32_t bits = best != least ? 32 - (uint32_t)__builtin_clz(best - least) : 0;
    return keys_sort(scratch, scratch + k, k, bits);
}

void sc_kernels_topk_ranked(const struct sc_kernels *kernels, const float *scores, uint64_t count,
                            uint64_t k, uint64_t *scratch, uint32_t *ret_rows)
{
    sc_kernels_topk(kernels, scores, count, k, ret_rows);
    const uint64_t *ranking = rank(scores, ret_rows, k, scratch);
    for (uint64_t i = 0; i < k; i++)
        ret_rows[i] = (uint32_t)ranking[i];
}

uint64_t sc_kernels_mass_count(const struct sc_kernels *kernels, const float *scores,
                               uint64_t count, double share, uint64_t k_max, uint64_t *scratch)
{
    double total = 0, mass = 0;
    for (uint64_t i = 0; i < count; i++)
        total += (double)scores[i];
    uint32_t *rows = (uint32_t *)(void *)(scratch + k_max);
    sc_kernels_topk(kernels, scores, count, k_max, rows);
    const uint64_t *ranking = rank(scores, rows, k_max, scratch);
    uint64_t k = 0;
    do
        mass += (double)scores[(uint32_t)ranking[k++]];
    while (k < k_max && !(mass >= share * total));
    return k;
}

double sc_kernels_mass_of(const float *scores, const uint64_t *bits, uint64_t count)
{
    double mass = 0;
    for (uint64_t w = 0; w < SC_KERNELS_WORDS(count); w++)
        for (uint64_t left = bits[w]; left != 0; left &= left - 1)
            mass += (double)scores[w * WORD_BITS + (uint64_t)__builtin_ctzll(left)];
    return mass;
}

/* at_least[v] = rows in at least v + 1 of the sets, v < set_count. */
static void votes_count(const uint64_t *sets, uint64_t set_count, uint64_t words,
                        uint64_t *at_least)
{
    memset(at_least, 0, set_count * words * sizeof(*at_least));
    for (uint64_t set = 0; set < set_count; set++, sets += words)
        for (uint64_t v = set + 1; v-- > 0;) { /* descending: reads v - 1 before its update */
            uint64_t *more = at_least + v * words;
            const uint64_t *fewer = v > 0 ? more - words : NULL;
            for (uint64_t w = 0; w < words; w++)
                more[w] |= fewer != NULL ? fewer[w] & sets[w] : sets[w];
        }
}

void sc_kernels_vote(const struct sc_kernels *kernels, const struct sc_kernels_votes *votes,
                     uint64_t k, uint64_t *scratch, uint64_t *ret_bits)
{
    uint64_t count = votes->count, set_count = votes->set_count, v = set_count;
    uint64_t words = SC_KERNELS_WORDS(count), sure = 0, at_most = count;
    uint64_t *among = scratch + set_count * words;
    votes_count(votes->sets, set_count, words, scratch);
    for (; v > 0; v--) { /* at least k rows have v votes or more: choose among exactly v */
        const uint64_t *rows = scratch + (v - 1) * words;
        at_most = kernels->bits_both(rows, rows, words);
        if (at_most >= k)
            break;
        sure = at_most;
        at_most = count;
    }
    const uint64_t *more = v < set_count ? scratch + v * words : NULL;
    const uint64_t *some = v > 0 ? scratch + (v - 1) * words : NULL;
    for (uint64_t w = 0; w < words; w++)
        among[w] = (some != NULL ? some[w] : UINT64_MAX) & ~(more != NULL ? more[w] : 0);
    if (count % WORD_BITS != 0)
        among[words - 1] &= (UINT64_C(1) << count % WORD_BITS) - 1;
    struct sc_kernels_edge edge =
        edge_find(kernels, votes->scores, among, count, at_most - sure, k - sure);
    kernels->order_mark(votes->scores, among, count, &edge, ret_bits);
    for (uint64_t w = 0; more != NULL && w < words; w++)
        ret_bits[w] |= more[w];
}
