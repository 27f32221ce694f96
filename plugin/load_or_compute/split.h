/* Fits and the cut: how long loading and computing take, and where the one shall end and the other
 * begin. Plain arithmetic.
 *
 *   tokens   0          from                n                    R              total
 *            | engine's |  loaded, promised | computed though stored | computed    |
 *                        A(n) = bytes(n) * byte_ns                         the device
 *                        B(n) = rows(n) * host_ns + integral of (token_ns + position_ns * x)
 *                                                   from n to total        the host
 *
 * The host computes layer l while layer l + 1 is read, so that TTFT is about max(A, B), and of the
 * shorter one the layer that stands alone: max(A, B) + min(A, B) / layers. Where hosts compute a
 * prompt in several passes, only the first of them is beside the load: B is its, and what the
 * others take comes on top. Where hosts load all before they compute it is A + B.
 *
 * A line is a least-squares fit of t = u x + v y through 0 (of loads y is 0), whose samples fade.
 * Each sample counts by how much it differs from the fit in its own measure, so that long ones do
 * not drown short ones. v is held to 0 a little, so that samples of one shape alone (where u and v
 * cannot be told apart) give a line too. Samples that are off by more than a factor of two are held
 * back; the third of them in turn is the truth, and the fit begins anew with it.
 *
 * Holds: the same samples give the same fit, and the same estimates the same cut.
 * Does not: know the connector (load_or_compute.c), or the clock.
 * Threads: any; a line is guarded by whoever has it.
 * Tests: tests/unit/plugin/test_fit.c */
#ifndef SC_PLUGIN_LOAD_OR_COMPUTE_SPLIT_H
#define SC_PLUGIN_LOAD_OR_COMPUTE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

struct sc_plugin_line {
    double xx, xy, yy, xt, yt; /* sums over samples, weighed and faded */
    uint32_t count;            /* samples that count, all told */
    uint32_t off_count;        /* held back in turn */
    bool is_off_above;         /* they took longer */
};

/* x >= 0, y >= 0, not both 0, t > 0. memory: samples that it remembers, about. */
void sc_plugin_line_learn(struct sc_plugin_line *line, double x, double y, double t,
                          uint32_t memory);
/* Of t is known that it is from `least` to `most` (> 0, least <= most): what a device read while
 * its host had other work came in no less than the time that its reads flew, but a device that
 * gives so much a second (a volume with a budget, a throttle) may not have given all of that. So
 * what was believed stands as far as it may: a sample says at most that it is twice as fast, unless
 * `most` says more. */
void sc_plugin_line_learn_within(struct sc_plugin_line *line, double x, double y, double least,
                                 double most, uint32_t memory);
/* A sample t = u x + v y that is known from elsewhere: it counts, whatever others say; none where t
 * is next to nothing. */
void sc_plugin_line_take(struct sc_plugin_line *line, double x, double y, double u, double v);
/* Both >= 0; 0 and 0 before the first sample. */
void sc_plugin_line_solve(const struct sc_plugin_line *line, double *ret_u, double *ret_v);

/* Loads of all rows; of those that the configuration chooses (or codes). */
enum { SC_LOAD_ALL_ROWS, SC_LOAD_SELECTED_ROWS, SC_LOAD_KINDS };

/* All that a cut follows from, beside the request: the same in every process of a store. */
struct sc_plugin_estimate {
    double token_ns, position_ns; /* of computing the token at position x: token + position * x */
    double byte_ns;               /* of loading a byte; 0: not known */
    double row_bytes[SC_LOAD_KINDS]; /* that the device gives for a token, all layers */
    double host_ns[SC_LOAD_KINDS];   /* that the host's thread is busy with it meanwhile */
    double pass_tokens;              /* longer prompts are computed in several; 0: none are */
    bool is_apart;                   /* hosts load all before they compute */
};

struct sc_plugin_cut {
    const struct sc_plugin_estimate *estimate;
    uint64_t from, end, total; /* tokens; end: R, where the promise would end */
    uint64_t grid, multiple;   /* cuts are multiples of the first, cut to multiples of the other;
                                * R need not be */
    uint64_t layers;
    uint64_t whole_end;   /* matches that end before it are loaded whole; 0: none is */
    uint64_t host_slab_rows; /* the first so many are in memory already */
    uint64_t state_bytes; /* read beside rows that are not, however many */
};

/* n: from, R, or on the grid between. Nearly as good is good enough for R, since the host has other
 * work than to compute; then for none of it, since a device has other work than to load. */
uint64_t sc_plugin_cut_find(const struct sc_plugin_cut *cut);
/* Estimated time to the first token, if rows [from, n) are loaded; ns. */
double sc_plugin_cut_ns(const struct sc_plugin_cut *cut, uint64_t n);

#endif
