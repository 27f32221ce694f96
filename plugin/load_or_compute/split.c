/* split: fits, and where a promise ends. Contract: split.h. */
#include "plugin/load_or_compute/split.h"

#define TAKEN_LEAST 1e-3 /* ns; shorter samples are ignored */
#define HOLD        1e-3 /* weight that pulls v to 0, relative to its samples */
#define OFF         2.0  /* factor beyond which a sample is held back */
#define OFF_COUNT   3u   /* held-back samples in a row that restart the fit */
#define ENOUGH      1.02 /* all, or nothing, is promised if within this factor of the best */

void sc_plugin_line_solve(const struct sc_plugin_line *line, double *ret_u, double *ret_v)
{
    double yy = line->yy * (1 + HOLD), det = line->xx * yy - line->xy * line->xy;
    double u = 0, v = 0;
    if (line->xx > 0 && line->yy > 0 && det > 0) {
        u = (line->xt * yy - line->yt * line->xy) / det;
        v = (line->yt * line->xx - line->xt * line->xy) / det;
    }
    if (!(u >= 0) || (line->xx <= 0 && line->yy > 0)) { /* all of it is y's */
        u = 0;
        v = line->yt / line->yy;
    } else if (!(v >= 0) || line->yy <= 0 || !(det > 0)) {
        u = line->xx > 0 ? line->xt / line->xx : 0;
        v = 0;
    }
    *ret_u = u;
    *ret_v = v;
}

static bool is_held(struct sc_plugin_line *line, double expected, double t)
{
    bool is_above = t > expected * OFF, is_below = t * OFF < expected;
    if (line->count == 0 || !(is_above || is_below)) {
        line->off_count = 0;
        return false;
    }
    line->off_count =
        line->off_count > 0 && line->is_off_above == is_above ? line->off_count + 1 : 1;
    line->is_off_above = is_above;
    if (line->off_count < OFF_COUNT)
        return true;
    *line = (struct sc_plugin_line){0};
    return false;
}

static void sample_add(struct sc_plugin_line *line, double x, double y, double t, double weight)
{
    line->xx += x * x * weight;
    line->xy += x * y * weight;
    line->yy += y * y * weight;
    line->xt += x * t * weight;
    line->yt += y * t * weight;
    line->count += line->count < UINT32_MAX;
}

void sc_plugin_line_take(struct sc_plugin_line *line, double x, double y, double u, double v)
{
    double t = u * x + v * y;
    if (t >= TAKEN_LEAST)
        sample_add(line, x, y, t, 1 / (t * t));
}

void sc_plugin_line_learn(struct sc_plugin_line *line, double x, double y, double t,
                          uint32_t memory)
{
    double u, v;
    sc_plugin_line_solve(line, &u, &v);
    double expected = u * x + v * y;
    if (is_held(line, expected, t))
        return;
    if (line->count == 0)
        expected = t;
    double fade = line->count < memory ? 1 : 1 - 1.0 / memory, weight = 1 / (expected * expected);
    line->xx *= fade;
    line->xy *= fade;
    line->yy *= fade;
    line->xt *= fade;
    line->yt *= fade;
    sample_add(line, x, y, t, weight);
}

void sc_plugin_line_learn_within(struct sc_plugin_line *line, double x, double y, double least,
                                 double most, uint32_t memory)
{
    double u, v, t = least;
    sc_plugin_line_solve(line, &u, &v);
    double believed = (u * x + v * y) / OFF;
    if (t < believed)
        t = believed < most ? believed : most;
    sc_plugin_line_learn(line, x, y, t, memory);
}

struct sides {
    double device, host, rest; /* ns; rest: of later passes */
};

static double compute_ns(const struct sc_plugin_estimate *estimate, double first, double end)
{
    return estimate->token_ns * (end - first) +
           estimate->position_ns * (end * end - first * first) / 2;
}

static struct sides sides_of(const struct sc_plugin_cut *cut, uint64_t n)
{
    const struct sc_plugin_estimate *estimate = cut->estimate;
    uint64_t kind =
        cut->whole_end > 0 && n >= cut->whole_end ? SC_LOAD_SELECTED_ROWS : SC_LOAD_ALL_ROWS;
    double rows = (double)(n - cut->from), total = (double)cut->total, at = (double)n;
    double read = rows > (double)cut->host_slab_rows ? rows - (double)cut->host_slab_rows : 0;
    double end = estimate->pass_tokens > 0 ? at + estimate->pass_tokens : total;
    end = end < total ? end : total;
    struct sides sides = {.host = rows * estimate->host_ns[kind] + compute_ns(estimate, at, end),
                          .rest = compute_ns(estimate, end, total)};
    if (read > 0)
        sides.device =
            (read * estimate->row_bytes[kind] + (double)cut->state_bytes) * estimate->byte_ns;
    return sides;
}

double sc_plugin_cut_ns(const struct sc_plugin_cut *cut, uint64_t n)
{
    struct sides sides = sides_of(cut, n);
    double less = sides.device < sides.host ? sides.device : sides.host;
    double more = sides.device < sides.host ? sides.host : sides.device;
    less /= cut->estimate->is_apart ? 1 : (double)cut->layers;
    return more + less + sides.rest;
}

/* Returns the k-th grid place from `from` on, at most R. */
static uint64_t place_at(const struct sc_plugin_cut *cut, uint64_t k)
{
    uint64_t n = (cut->from / cut->grid + k) * cut->grid;
    n -= cut->multiple > 1 ? n % cut->multiple : 0;
    n = n > cut->from ? n : cut->from;
    return n < cut->end ? n : cut->end;
}

struct best {
    uint64_t n;
    double ns;
};

static void place_try(const struct sc_plugin_cut *cut, uint64_t n, struct best *best)
{
    double ns = sc_plugin_cut_ns(cut, n);
    if (!(ns <= best->ns) || (ns == best->ns && n < best->n))
        return;
    *best = (struct best){.n = n, .ns = ns};
}

/* Tries the ends of [low, high], places of one kind, and where the device begins to take longer
 * than the host. The host may take longer to place a row than to compute it. */
static void stretch_try(const struct sc_plugin_cut *cut, uint64_t low, uint64_t high,
                        struct best *best)
{
    place_try(cut, place_at(cut, low), best);
    place_try(cut, place_at(cut, high), best);
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        struct sides sides = sides_of(cut, place_at(cut, middle));
        *(sides.device < sides.host ? &low : &high) = middle;
    }
    place_try(cut, place_at(cut, low), best);
    place_try(cut, place_at(cut, high), best);
}

uint64_t sc_plugin_cut_find(const struct sc_plugin_cut *asked)
{
    struct sc_plugin_cut own = *asked, *cut = &own;
    cut->grid = cut->multiple > cut->grid ? cut->multiple : cut->grid; /* no place appears twice */
    uint64_t first = cut->from / cut->grid, last = (cut->end + cut->grid - 1) / cut->grid - first;
    uint64_t part = cut->whole_end > 0 ? (cut->whole_end + cut->grid - 1) / cut->grid : 0;
    struct best best = {.n = cut->end, .ns = sc_plugin_cut_ns(cut, cut->end)};
    double all_ns = best.ns, passes = cut->estimate->pass_tokens;
    part = part > first ? part - first : 0;
    if (part > 0 && part <= last) {
        stretch_try(cut, 0, part - 1, &best);
        stretch_try(cut, part, last, &best);
    } else {
        stretch_try(cut, 0, last, &best);
    }
    if (passes > 0 && passes < (double)cut->total) { /* where one pass suffices */
        uint64_t at = (cut->total - (uint64_t)passes) / cut->grid;
        at = at > first ? at - first : 0;
        place_try(cut, place_at(cut, at), &best);
        place_try(cut, place_at(cut, at + 1), &best);
    }
    if (all_ns <= best.ns * ENOUGH)
        return cut->end;
    return sc_plugin_cut_ns(cut, cut->from) <= best.ns * ENOUGH ? cut->from : best.n;
}
