/* Guesses: which rows of the next layer are read before their scores are known.
 *
 *   ranking, best first      [ decile 0 | decile 1 | ... | decile 9 ]   k rows
 *   in the order of reading    each decile ascending, so that neighbours share operations
 *   read ahead               [ 0 .. cut )   cut: behind it guesses are wrong too often, and no
 *                                           more bytes than the window of compute lets through
 *   too often                a row that was right spares its request what it takes the device, one
 *                            that was wrong has others wait so long: those that do wait. Where none
 *                            does, whatever was right at times is worth its reading
 *   heads will disagree      rows 0 1 2 ... as far as the window lets through: the layer is read
 *                            whole, in one run, and its beginning is as good as any part of it
 *
 * Holds: what is delivered does not depend on a guess. How often a decile is right is measured on
 * the ranking, not on what was read: a decile that is not read is measured all the same, so a bad
 * start (or a bad stretch) ends as soon as the rankings are good again, and nothing has to be read
 * to find that out. The window, too, is measured where nothing is read ahead.
 * Does not: rank by keys (row_set.c), read (issue_reads.c), allocate; outlive the connector: one
 * layer of the first request measures what a store could have kept, and a window is the host's of
 * now.
 * Threads: any; numbers are statistics, lost updates cost nothing but a sample.
 * Tests: tests/unit/plugin/test_predict.c */
#ifndef SC_PLUGIN_SELECT_ACCURACY_H
#define SC_PLUGIN_SELECT_ACCURACY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SC_PLUGIN_DECILES 10u

/* How right guesses of one layer were: made at its neighbour below, measured at itself. */
struct sc_plugin_accuracy {
    _Atomic uint32_t right_ppm[SC_PLUGIN_DECILES];
    _Atomic uint32_t count; /* rankings that were measured; 0: right_ppm says nothing yet */
    /* Heads that disagree: no row is left out. */
    _Atomic uint32_t parted_ppm, parted_count; /* how often they did, of so many times */
    _Atomic uint32_t whole_ppm, whole_count;   /* where that was expected: wanted rows of all */
};

/* Time that the host computes between prefetch_next and the next get_important. */
struct sc_plugin_window {
    _Atomic uint64_t ns;
    _Atomic uint32_t count;
};

/* First place behind decile d of `count` ranked rows. */
static inline uint64_t sc_plugin_decile_end(uint64_t count, uint32_t decile)
{
    return count * (decile + 1) / SC_PLUGIN_DECILES;
}

/* Makes each decile of a ranking ascend.
 *   bits  one for each row there is, zero before and after; no row comes twice */
void sc_plugin_ranking_order(uint32_t *rows, uint64_t count, uint64_t *bits);

/* The ranking's truth is known: bit i of wanted says that row i is wanted. NULL: the ranking was of
 * no use, because all rows are read in one run. */
void sc_plugin_accuracy_learn(struct sc_plugin_accuracy *accuracy, const uint32_t *rows,
                              uint64_t count, const uint64_t *wanted);
/* How many rows of a ranking are worth reading: those deciles [0, d) for which the sum of (share
 * that was right - least_ppm) is largest, and of several the most. That is where the best falling
 * curve through the deciles crosses least_ppm (isotonic regression), so one of them, measured on a
 * few rows and wrong by chance, does not end what those behind it are good for. `own` is the
 * layer's; before its first measurement `all` (of all layers) speaks, before any 0. */
uint64_t sc_plugin_accuracy_rows(const struct sc_plugin_accuracy *own,
                                 const struct sc_plugin_accuracy *all, uint64_t count,
                                 uint64_t least_ppm);

/* What the layer wanted is known: all rows, because its heads disagree (wanted_ppm 1000000), or so
 * many millionths of them. was_expected: the guess had said that heads would disagree. */
void sc_plugin_accuracy_whole_learn(struct sc_plugin_accuracy *accuracy, bool was_expected,
                                    uint64_t wanted_ppm);
/* The layer's heads disagreed most times; for predictors that see no keys. */
bool sc_plugin_accuracy_parts(const struct sc_plugin_accuracy *own);
/* Where all rows are expected to be wanted: at least least_ppm of them were, up to now. */
bool sc_plugin_accuracy_whole(const struct sc_plugin_accuracy *own,
                              const struct sc_plugin_accuracy *all, uint64_t least_ppm);

/* How many others waited for their loads while rows were guessed: of layer after layer, smoothed.
 */
struct sc_plugin_contention {
    _Atomic uint32_t ppm; /* millionths of one that waits all the time */
    _Atomic uint32_t count;
};

/* Others waited for so long, all together, in a window of window_ns. */
void sc_plugin_contention_learn(struct sc_plugin_contention *contention, uint64_t others_ns,
                                uint64_t window_ns);
/* How right a guess has to be, in millionths: min_ppm where one other waits all the time; less
 * where less is waited, by p * saved > (1 - p) * what others wait, with saved as min_ppm has it; 1
 * where nobody waits. min_ppm 0: all is read, whoever waits. */
uint64_t sc_plugin_contention_least(const struct sc_plugin_contention *contention,
                                    uint64_t min_ppm);

void sc_plugin_window_learn(struct sc_plugin_window *window, uint64_t took_ns);
/* Bytes that a device of this rate moves within the window; 0 before the first measurement. */
uint64_t sc_plugin_window_bytes(const struct sc_plugin_window *window, uint64_t bytes_per_s);

#endif
