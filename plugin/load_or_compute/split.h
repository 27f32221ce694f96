/* split: models the time to load and to compute, and finds where a promise should end.
 *
 *   tokens   0          from                n                    R              total
 *            | engine's |  loaded, promised | computed though stored | computed    |
 *                        A(n) = bytes(n) * byte_ns                         the device
 *                        B(n) = rows(n) * host_ns + integral of (token_ns + position_ns * x)
 *                                                   from n to total        the host
 *
 * The host computes layer l while layer l + 1 is read: TTFT ~ max(A, B) + min(A, B) / layers. If a
 * prompt is computed in several passes, B is the first pass; the others are added. If a host loads
 * all before it computes, TTFT ~ A + B.
 *
 * A line is a least-squares fit of t = u x + v y through 0 (loads: y = 0) with fading samples.
 * Errors are relative, so that long samples do not dominate. v is pulled to 0 slightly, so that
 * samples of one shape also give a line. A sample off by more than a factor of 2 is held back; the
 * third in a row restarts the fit.
 * Threads: any; a line's owner guards it. Tests: tests/unit/plugin/test_fit.c */
#ifndef SC_PLUGIN_LOAD_OR_COMPUTE_SPLIT_H
#define SC_PLUGIN_LOAD_OR_COMPUTE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

struct sc_plugin_line {
    double xx, xy, yy, xt, yt; /* sums over samples, weighted and faded */
    uint32_t count;            /* samples used */
    uint32_t off_count;        /* samples held back in a row */
    bool is_off_above;         /* those took longer */
};

/* Adds a sample: x, y >= 0, not both 0, t > 0. `memory`: samples remembered, about. */
void sc_plugin_line_learn(struct sc_plugin_line *line, double x, double y, double t,
                          uint32_t memory);
/* Adds a sample whose t is only known to be in [least, most] (> 0, least <= most). A device beside
 * a busy host took at least its reads' time, but may be throttled. The fit's belief is kept if
 * possible: a sample shows at most twice the speed, unless `most` shows more. */
void sc_plugin_line_learn_within(struct sc_plugin_line *line, double x, double y, double least,
                                 double most, uint32_t memory);
/* Adds a sample t = u x + v y from elsewhere, never held back; ignored if t is close to 0. */
void sc_plugin_line_take(struct sc_plugin_line *line, double x, double y, double u, double v);
/* Returns both >= 0; 0 and 0 before the first sample. */
void sc_plugin_line_solve(const struct sc_plugin_line *line, double *ret_u, double *ret_v);

/* Loads of all rows; of rows that the configuration selects (or quantises). */
enum { SC_LOAD_ALL_ROWS, SC_LOAD_SELECTED_ROWS, SC_LOAD_KINDS };

/* Input of a split besides the request; the same in every process of a store. */
struct sc_plugin_estimate {
    double token_ns, position_ns;    /* to compute the token at position x: token + position * x */
    double byte_ns;                  /* to load a byte; 0: unknown */
    double row_bytes[SC_LOAD_KINDS]; /* read from the device per token, all layers */
    double host_ns[SC_LOAD_KINDS];   /* host thread's time for that token */
    double pass_tokens;              /* tokens per pass of longer prompts; 0: one pass */
    bool is_apart;                   /* hosts load all before they compute */
};

struct sc_plugin_cut {
    const struct sc_plugin_estimate *estimate;
    uint64_t from, end, total; /* tokens; end: R, the end without a split */
    uint64_t grid, multiple;   /* results are grid multiples rounded down to `multiple`, or R */
    uint64_t layers;
    uint64_t whole_end;      /* matches ending before it are loaded whole; 0: none */
    uint64_t host_slab_rows; /* first rows that are in memory already */
    uint64_t state_bytes;    /* read in addition if any row is read */
};

/* Returns n: `from`, R or a grid place between. R is chosen if nearly best, to spare the host; then
 * `from`, to spare the device. */
uint64_t sc_plugin_cut_find(const struct sc_plugin_cut *cut);
/* Returns the estimated time to first token, in ns, if rows [from, n) are loaded. */
double sc_plugin_cut_ns(const struct sc_plugin_cut *cut, uint64_t n);

#endif
