/* accuracy: how many predicted rows of the next layer are worth prefetching.
 *
 *   ranking, best first   [ decile 0 | decile 1 | ... | decile 9 ]   k rows; a decile is read in
 *                         ascending order, so that neighbours share operations
 *   prefetched            [ 0 .. cut )   cut: accuracy is too low behind it, or the window of
 *                         compute time has no room for more bytes
 *   heads will disagree   rows 0 1 2 .., as many as the window allows: the whole layer will be read
 *
 * A correct row saves its request the device time of the read; a wrong one delays the requests that
 * wait by as much. If no request waits, any decile that was ever right is worth reading.
 *
 * Invariants: deliveries do not depend on predictions. Accuracy is measured on the ranking, whether
 * it was read or not, so that a bad stretch ends by itself. The window, too, is measured without
 * reads.
 * Limits: allocates and stores nothing.
 * Threads: any; a lost update loses one sample.
 * Tests: tests/unit/plugin/test_predict.c */
#ifndef SC_PLUGIN_SELECT_ACCURACY_H
#define SC_PLUGIN_SELECT_ACCURACY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SC_PLUGIN_DECILES 10u

/* How often a layer's probe heads disagree. */
struct sc_plugin_fallback {
    _Atomic uint32_t ppm, count; /* of selections, smoothed; measurements */
};

/* Accuracy of a layer's predictions: made at the layer below, measured at this layer. */
struct sc_plugin_accuracy {
    _Atomic uint32_t right_ppm[SC_PLUGIN_DECILES];
    _Atomic uint32_t count;                  /* rankings measured; 0: right_ppm is unknown */
    struct sc_plugin_fallback fallback;      /* heads that disagree: every row is wanted */
    _Atomic uint32_t whole_ppm, whole_count; /* rows wanted if expected; measurements */
};

/* Time that the host computes between prefetch_next and the next get_important. */
struct sc_plugin_window {
    _Atomic uint64_t ns;
    _Atomic uint32_t count;
};

/* Returns the end of a decile of `count` ranked rows. */
static inline uint64_t sc_plugin_decile_end(uint64_t count, uint32_t decile)
{
    return count * (decile + 1) / SC_PLUGIN_DECILES;
}

/* Sorts each decile of a ranking. Rows are distinct. bits: one per row, zero before and after. */
void sc_plugin_ranking_order(uint32_t *rows, uint64_t count, uint64_t *bits);

void sc_plugin_fallback_learn(struct sc_plugin_fallback *fallback, bool fell_back);
/* Returns the share of selections that fell back; 0 without measurements. */
uint32_t sc_plugin_fallback_ppm(const struct sc_plugin_fallback *fallback);
/* Records a ranking's accuracy: bit i of wanted says that row i is wanted. NULL: all rows are read
 * in one run, so the ranking was of no use. */
void sc_plugin_accuracy_learn(struct sc_plugin_accuracy *accuracy, const uint32_t *rows,
                              uint64_t count, const uint64_t *wanted);
/* Returns how many rows of a ranking are worth reading: the deciles [0, d) with the largest sum of
 * (accuracy - least_ppm), of equal sums the longest. There the best falling curve through the
 * deciles crosses least_ppm (isotonic regression), so a decile that is wrong by chance does not cut
 * off those behind it. `own` is the layer's accuracy; `all`, of all layers, replaces it until it is
 * measured. Returns 0 without measurements. */
uint64_t sc_plugin_accuracy_rows(const struct sc_plugin_accuracy *own,
                                 const struct sc_plugin_accuracy *all, uint64_t count,
                                 uint64_t least_ppm);

/* Records what the layer wanted: all rows, because its heads disagree (wanted_ppm 1000000), or a
 * share of them. was_expected: the prediction said that heads would disagree. */
void sc_plugin_accuracy_whole_learn(struct sc_plugin_accuracy *accuracy, bool was_expected,
                                    uint64_t wanted_ppm);
/* Returns true if the layer's heads disagreed most times. For predictors that do not score keys. */
bool sc_plugin_accuracy_parts(const struct sc_plugin_accuracy *own);
/* Returns true if at least least_ppm of the rows were wanted when heads were expected to
 * disagree. */
bool sc_plugin_accuracy_whole(const struct sc_plugin_accuracy *own,
                              const struct sc_plugin_accuracy *all, uint64_t least_ppm);

/* Share of the window that other requests waited for their loads; smoothed over layers. */
struct sc_plugin_contention {
    _Atomic uint32_t ppm; /* millionths; 1000000: one request waits all the time */
    _Atomic uint32_t count;
};

/* Records that other requests waited others_ns in total during a window of window_ns. */
void sc_plugin_contention_learn(struct sc_plugin_contention *contention, uint64_t others_ns,
                                uint64_t window_ns);
/* Returns the accuracy, in millionths, from which a prediction is worth reading: min_ppm if one
 * other request waits all the time, less if they wait less, 1 if none waits. It follows from p *
 * saved > (1 - p) * (what others wait), with `saved` as min_ppm implies. min_ppm 0: always 0. */
uint64_t sc_plugin_contention_least(const struct sc_plugin_contention *contention,
                                    uint64_t min_ppm);

void sc_plugin_window_learn(struct sc_plugin_window *window, uint64_t took_ns);
/* Returns the bytes that a device of this rate moves within the window; 0 before a measurement. */
uint64_t sc_plugin_window_bytes(const struct sc_plugin_window *window, uint64_t bytes_per_s);

#endif
