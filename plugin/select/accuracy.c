/* accuracy: averages of accuracy, contention and window. Contract: accuracy.h.
 *
 * An average moves by 1 / min(n, 8) of the difference, so that it follows a change of prompts
 * within a few layers. */
#include "plugin/select/accuracy.h"
#include "plugin/select/row_bits.h"

#include <stddef.h>

#define PPM        1000000u
#define MEMORY     8u  /* measurements in an average, about */
#define OTHERS_MAX 64u /* waiting requests that count */
#define WORD_BITS  64u

/* Writes the set bits as ascending rows, and clears them. */
static void bits_take(uint64_t *bits, uint64_t word_first, uint64_t word_end, uint32_t *ret_rows)
{
    for (uint64_t w = word_first; w < word_end; w++)
        for (; bits[w] != 0; bits[w] &= bits[w] - 1)
            *ret_rows++ = (uint32_t)(w * WORD_BITS + (uint64_t)__builtin_ctzll(bits[w]));
}

void sc_plugin_ranking_order(uint32_t *rows, uint64_t count, uint64_t *bits)
{
    for (uint32_t decile = 0; decile < SC_PLUGIN_DECILES; decile++) {
        uint64_t first = decile > 0 ? sc_plugin_decile_end(count, decile - 1) : 0;
        uint64_t end = sc_plugin_decile_end(count, decile), least = UINT64_MAX, most = 0;
        for (uint64_t i = first; i < end; i++) {
            uint64_t word = rows[i] / WORD_BITS;
            least = word < least ? word : least;
            most = word > most ? word : most;
            sc_plugin_bit_set(bits, rows[i]);
        }
        if (first < end)
            bits_take(bits, least, most + 1, rows + first);
    }
}

/* Adds a measurement to an average of `seen` measurements. */
static void average_move(_Atomic uint32_t *ppm, uint32_t seen, uint64_t now_ppm)
{
    int64_t share = seen + 1 < MEMORY ? seen + 1 : MEMORY;
    int64_t old = atomic_load_explicit(ppm, memory_order_relaxed);
    atomic_store_explicit(ppm, (uint32_t)(old + ((int64_t)now_ppm - old) / share),
                          memory_order_relaxed);
}

/* Release: a thread that reads the count sees the average. */
static void count_up(_Atomic uint32_t *count, uint32_t seen)
{
    if (seen < UINT32_MAX)
        atomic_store_explicit(count, seen + 1, memory_order_release);
}

void sc_plugin_fallback_learn(struct sc_plugin_fallback *fallback, bool fell_back)
{
    uint32_t seen = atomic_load_explicit(&fallback->count, memory_order_relaxed);
    average_move(&fallback->ppm, seen, fell_back ? PPM : 0);
    count_up(&fallback->count, seen);
}

uint32_t sc_plugin_fallback_ppm(const struct sc_plugin_fallback *fallback)
{
    if (atomic_load_explicit(&fallback->count, memory_order_acquire) == 0)
        return 0;
    return atomic_load_explicit(&fallback->ppm, memory_order_relaxed);
}

void sc_plugin_accuracy_learn(struct sc_plugin_accuracy *accuracy, const uint32_t *rows,
                              uint64_t count, const uint64_t *wanted)
{
    if (count < SC_PLUGIN_DECILES)
        return; /* empty deciles measure nothing */
    uint32_t seen = atomic_load_explicit(&accuracy->count, memory_order_relaxed);
    uint64_t i = 0;
    for (uint32_t decile = 0; decile < SC_PLUGIN_DECILES; decile++) {
        uint64_t first = i, end = sc_plugin_decile_end(count, decile), right = 0;
        for (; i < end && wanted != NULL; i++)
            right += sc_plugin_bit_get(wanted, rows[i]);
        i = end;
        average_move(&accuracy->right_ppm[decile], seen, right * PPM / (end - first));
    }
    count_up(&accuracy->count, seen);
}

void sc_plugin_accuracy_whole_learn(struct sc_plugin_accuracy *accuracy, bool was_expected,
                                    uint64_t wanted_ppm)
{
    sc_plugin_fallback_learn(&accuracy->fallback, wanted_ppm == PPM);
    if (!was_expected)
        return;
    uint32_t seen = atomic_load_explicit(&accuracy->whole_count, memory_order_relaxed);
    average_move(&accuracy->whole_ppm, seen, wanted_ppm);
    count_up(&accuracy->whole_count, seen);
}

bool sc_plugin_accuracy_parts(const struct sc_plugin_accuracy *own)
{
    return sc_plugin_fallback_ppm(&own->fallback) > PPM / 2;
}

bool sc_plugin_accuracy_whole(const struct sc_plugin_accuracy *own,
                              const struct sc_plugin_accuracy *all, uint64_t least_ppm)
{
    if (atomic_load_explicit(&own->whole_count, memory_order_acquire) == 0)
        own = all;
    return atomic_load_explicit(&own->whole_count, memory_order_acquire) > 0 &&
           atomic_load_explicit(&own->whole_ppm, memory_order_relaxed) >= least_ppm;
}

uint64_t sc_plugin_accuracy_rows(const struct sc_plugin_accuracy *own,
                                 const struct sc_plugin_accuracy *all, uint64_t count,
                                 uint64_t least_ppm)
{
    if (atomic_load_explicit(&own->count, memory_order_acquire) == 0)
        own = all;
    if (atomic_load_explicit(&own->count, memory_order_acquire) == 0)
        return 0;
    int64_t gain = 0, most = 0;
    uint64_t rows = 0;
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++) {
        gain += (int64_t)atomic_load_explicit(&own->right_ppm[d], memory_order_relaxed);
        gain -= (int64_t)least_ppm;
        if (gain < most)
            continue;
        most = gain;
        rows = sc_plugin_decile_end(count, d);
    }
    return rows;
}

void sc_plugin_contention_learn(struct sc_plugin_contention *contention, uint64_t others_ns,
                                uint64_t window_ns)
{
    uint32_t seen = atomic_load_explicit(&contention->count, memory_order_relaxed);
    double share = window_ns > 0 ? (double)others_ns / (double)window_ns : 0;
    share = share < OTHERS_MAX ? share : OTHERS_MAX;
    average_move(&contention->ppm, seen, (uint64_t)(share * PPM));
    count_up(&contention->count, seen);
}

/* Solves p / (1 - p) = m / (1 - m) * c for p: m is min_ppm, c the requests that wait. */
uint64_t sc_plugin_contention_least(const struct sc_plugin_contention *contention, uint64_t min_ppm)
{
    uint64_t others = atomic_load_explicit(&contention->ppm, memory_order_relaxed);
    if (min_ppm == 0)
        return 0;
    uint64_t wrong = min_ppm * others, right = (PPM - min_ppm) * PPM;
    uint64_t least = wrong > 0 ? (uint64_t)((double)wrong * PPM / (double)(wrong + right)) : 0;
    return least > 0 ? least : 1;
}

void sc_plugin_window_learn(struct sc_plugin_window *window, uint64_t took_ns)
{
    uint32_t seen = atomic_load_explicit(&window->count, memory_order_relaxed);
    uint64_t old = atomic_load_explicit(&window->ns, memory_order_relaxed);
    uint64_t share = seen + 1 < MEMORY ? seen + 1 : MEMORY;
    uint64_t now = took_ns > old ? old + (took_ns - old) / share : old - (old - took_ns) / share;
    atomic_store_explicit(&window->ns, now, memory_order_relaxed);
    if (seen < UINT32_MAX)
        atomic_store_explicit(&window->count, seen + 1, memory_order_relaxed);
}

uint64_t sc_plugin_window_bytes(const struct sc_plugin_window *window, uint64_t bytes_per_s)
{
    uint64_t ns = atomic_load_explicit(&window->ns, memory_order_relaxed);
    double bytes = (double)ns * (double)bytes_per_s / 1e9;
    return bytes < 0x1p62 ? (uint64_t)bytes : UINT64_C(1) << 62;
}
