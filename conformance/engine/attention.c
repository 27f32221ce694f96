/* attention: blocks the attention of passes; inner kernels: kernels_gemm.h, kernels_attention.h.
 *
 * A pair is (row of the pass, query head of the group), row-major. A unit is a run of pairs of one
 * pass and one KV head, and owns their outputs:
 *
 *   K by 32 ranks, transposed   -> scores [pairs][ranks]    tiles of pairs x 32 ranks
 *   softmax, row by row         -> p, and z
 *   V by 128 ranks, in panels    -> sums  [d / 32][pairs][32]   tiles of pairs x 32 dimensions
 *   out = sums / z
 *
 * Invariants: a tile of pairs multiplies V only up to the shortest list among its pairs. Longer
 * lists are finished pair by pair, continuing the same chains. So no pair touches a V that it does
 * not attend. Threads, Tests: see attention.h. */
#include "conformance/engine/attention.h"

#include <stdbool.h>
#include <stddef.h>

#include "conformance/engine/kernels.h"

#define UNIT_PAIRS_MAX   126u         /* nine full tiles of 14 */
#define UNIT_PAIRS_MIN   28u          /* fewer would lay K and V out too often */
#define SCORES_BYTES     (768u << 10) /* of a second-level cache of 2 MiB */
#define UNITS_A_THREAD   4u
#define COUNT_MAX        (1ull << 32)
#define ROW_EXTRA_FLOATS 16u /* keeps rows off one another's cache sets */

struct attention_run {
    const struct eng_kernels *kernels;
    struct eng_pool *pool;
    const struct eng_attention_shape *shape;
    const struct eng_attention_pass *passes;
    uint64_t pass_count;
    uint64_t group;      /* query heads of a KV head */
    uint64_t unit_pairs; /* the most pairs of a unit */
};

/* One unit and its scratch. */
struct unit {
    const struct attention_run *run;
    const struct eng_attention_pass *pass;
    uint64_t kv_head;
    uint64_t first, pairs;         /* of the pass's pairs for this KV head */
    uint64_t q_stride, s_stride;   /* floats */
    uint64_t panels;               /* of 32 dimensions */
    uint64_t tiles;                /* of pairs */
    float *q, *k_tile, *v_panels;  /* [pairs][q_stride], [d][32], [panels][128][32] */
    float *scores, *sums, *totals; /* [pairs][s_stride], [panels][pairs][32], [pairs] */
};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t q_stride_of(uint64_t head_dim)
{
    return round_up(head_dim, 16) + ROW_EXTRA_FLOATS;
}

static uint64_t s_stride_of(uint64_t ranks)
{
    return round_up(ranks, ENG_TILE_COLUMNS) + ROW_EXTRA_FLOATS;
}

static uint64_t scratch_bytes(uint64_t pairs, uint64_t head_dim, uint64_t ranks)
{
    uint64_t width = round_up(head_dim, ENG_TILE_COLUMNS);
    uint64_t floats = pairs * (q_stride_of(head_dim) + s_stride_of(ranks) + width) +
                      round_up(pairs, 16) + head_dim * ENG_TILE_COLUMNS +
                      width * ENG_ATTENTION_BLOCK;
    return floats * sizeof(float);
}

/* How many ranks the pair attends. */
static uint64_t pair_ranks(const struct unit *unit, uint64_t pair)
{
    return unit->pass->prefix_count + unit->pass->seen_count +
           (unit->first + pair) / unit->run->group + 1;
}

static uint64_t units_of_pass(const struct attention_run *run,
                              const struct eng_attention_pass *pass)
{
    uint64_t pairs = pass->new_count * run->group;
    return run->shape->kv_heads * ((pairs + run->unit_pairs - 1) / run->unit_pairs);
}

/* The cache row of a rank. */
static uint64_t rank_row(const struct eng_attention_pass *pass, uint64_t rank)
{
    if (rank < pass->prefix_count)
        return rank;
    rank -= pass->prefix_count;
    return rank < pass->seen_count ? pass->seen_first + rank
                                   : pass->new_first + (rank - pass->seen_count);
}

/* The addresses of ranks first .. first + count - 1 in one KV head; the last one repeats past
 * `end`. */
static void rank_rows(const struct unit *unit, const void *base, uint64_t stride, uint64_t first,
                      uint64_t count, uint64_t end, const void **ret_rows)
{
    const struct eng_attention_pass *pass = unit->pass;
    const struct eng_attention_shape *shape = unit->run->shape;
    uint64_t value_bytes = eng_dtype_bytes(shape->kv_dtype);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t rank = first + i < end ? first + i : end - 1;
        uint64_t at = rank_row(pass, rank) * stride + unit->kv_head * shape->head_dim;
        ret_rows[i] = (const uint8_t *)base + at * value_bytes;
    }
}

static void scale_queries(const struct unit *unit)
{
    uint64_t d = unit->run->shape->head_dim;
    uint64_t group = unit->run->group;
    const float scale = unit->run->shape->scale; /* a local: the stores below cannot change it */
    for (uint64_t p = 0; p < unit->pairs; p++) {
        uint64_t row = (unit->first + p) / group;
        uint64_t head = unit->kv_head * group + (unit->first + p) % group;
        const float *from = unit->pass->q + row * unit->pass->q_stride + head * d;
        float *to = unit->q + p * unit->q_stride;
        for (uint64_t i = 0; i < d; i++)
            to[i] = from[i] * scale;
    }
}

static void compute_scores(const struct unit *unit)
{
    const struct eng_kernels *kernels = unit->run->kernels;
    const struct eng_attention_shape *shape = unit->run->shape;
    uint64_t end = pair_ranks(unit, unit->pairs - 1);
    const void *rows[ENG_TILE_COLUMNS];
    for (uint64_t rank = 0; rank < end; rank += ENG_TILE_COLUMNS) {
        rank_rows(unit, unit->pass->k, unit->pass->k_stride, rank, ENG_TILE_COLUMNS, end, rows);
        kernels->transpose(rows, shape->kv_dtype, shape->head_dim, unit->k_tile);
        for (uint64_t t = 0; t < unit->tiles; t++) {
            uint64_t from;
            uint64_t to;
            eng_pool_share(unit->pairs, t, unit->tiles, &from, &to);
            if (pair_ranks(unit, to - 1) <= rank)
                continue;
            kernels->tile(unit->q + from * unit->q_stride, unit->q_stride, unit->k_tile, ENG_F32,
                          shape->head_dim, unit->scores + from * unit->s_stride + rank,
                          unit->s_stride, to - from, ENG_TILE_SET);
        }
    }
}

/* Pairs from .. to-1 of one tile, one panel, where their lists end at different ranks of the
 * block [block, block_end). */
static void weigh_uneven(const struct unit *unit, uint64_t from, uint64_t to, const float *v,
                         float *sums, uint64_t block, uint64_t block_end)
{
    const struct eng_kernels *kernels = unit->run->kernels;
    float part[ENG_TILE_ROWS * ENG_TILE_COLUMNS];
    uint64_t shortest = pair_ranks(unit, from);
    uint64_t common = shortest > block ? shortest - block : 0;
    const float *p = unit->scores + from * unit->s_stride + block;
    kernels->tile(p, unit->s_stride, v, ENG_F32, common, part, ENG_TILE_COLUMNS, to - from,
                  ENG_TILE_SET);
    for (uint64_t r = 0; r < to - from; r++) {
        uint64_t end = pair_ranks(unit, from + r);
        end = end < block_end ? end : block_end;
        if (end <= block)
            continue;
        if (end - block > common)
            kernels->tile(p + r * unit->s_stride + common, unit->s_stride,
                          v + common * ENG_TILE_COLUMNS, ENG_F32, end - block - common,
                          part + r * ENG_TILE_COLUMNS, ENG_TILE_COLUMNS, 1, ENG_TILE_CONTINUE);
        kernels->finish(part + r * ENG_TILE_COLUMNS, NULL, block != 0, ENG_TILE_COLUMNS,
                        sums + (from + r) * ENG_TILE_COLUMNS);
    }
}

static void weigh_values(const struct unit *unit)
{
    const struct eng_kernels *kernels = unit->run->kernels;
    const struct eng_attention_shape *shape = unit->run->shape;
    uint64_t end = pair_ranks(unit, unit->pairs - 1);
    const void *rows[ENG_ATTENTION_BLOCK];
    for (uint64_t block = 0; block < end; block += ENG_ATTENTION_BLOCK) {
        uint64_t ranks = end - block < ENG_ATTENTION_BLOCK ? end - block : ENG_ATTENTION_BLOCK;
        rank_rows(unit, unit->pass->v, unit->pass->v_stride, block, ranks, end, rows);
        kernels->panels(rows, ranks, shape->kv_dtype, shape->head_dim, ENG_ATTENTION_BLOCK,
                        unit->v_panels);
        for (uint64_t t = 0; t < unit->tiles; t++) {
            uint64_t from;
            uint64_t to;
            eng_pool_share(unit->pairs, t, unit->tiles, &from, &to);
            if (pair_ranks(unit, to - 1) <= block)
                continue;
            for (uint64_t panel = 0; panel < unit->panels; panel++) {
                const float *v = unit->v_panels + panel * ENG_ATTENTION_BLOCK * ENG_TILE_COLUMNS;
                float *sums = unit->sums + panel * unit->pairs * ENG_TILE_COLUMNS;
                if (pair_ranks(unit, from) >= block + ranks)
                    kernels->tile(unit->scores + from * unit->s_stride + block, unit->s_stride, v,
                                  ENG_F32, ranks, sums + from * ENG_TILE_COLUMNS, ENG_TILE_COLUMNS,
                                  to - from, block == 0 ? ENG_TILE_SET : ENG_TILE_ADD);
                else
                    weigh_uneven(unit, from, to, v, sums, block, block + ranks);
            }
        }
    }
}

static void write_outputs(const struct unit *unit)
{
    uint64_t d = unit->run->shape->head_dim;
    uint64_t group = unit->run->group;
    for (uint64_t p = 0; p < unit->pairs; p++) {
        uint64_t row = (unit->first + p) / group;
        uint64_t head = unit->kv_head * group + (unit->first + p) % group;
        float *out = unit->pass->out + row * unit->pass->out_stride + head * d;
        for (uint64_t panel = 0; panel < unit->panels; panel++) {
            uint64_t column = panel * ENG_TILE_COLUMNS;
            uint64_t columns = d - column < ENG_TILE_COLUMNS ? d - column : ENG_TILE_COLUMNS;
            unit->run->kernels->divide(unit->sums + (panel * unit->pairs + p) * ENG_TILE_COLUMNS,
                                       unit->totals[p], columns, out + column);
        }
    }
}

static void run_unit(struct unit *unit, float *scratch)
{
    const struct eng_attention_shape *shape = unit->run->shape;
    uint64_t tile_rows = unit->run->kernels->tile_rows;
    unit->tiles = (unit->pairs + tile_rows - 1) / tile_rows;
    unit->panels = (shape->head_dim + ENG_TILE_COLUMNS - 1) / ENG_TILE_COLUMNS;
    unit->q_stride = q_stride_of(shape->head_dim);
    unit->s_stride = s_stride_of(pair_ranks(unit, unit->pairs - 1));
    unit->k_tile = scratch;
    unit->v_panels = unit->k_tile + shape->head_dim * ENG_TILE_COLUMNS;
    unit->q = unit->v_panels + unit->panels * ENG_ATTENTION_BLOCK * ENG_TILE_COLUMNS;
    unit->totals = unit->q + unit->pairs * unit->q_stride;
    unit->sums = unit->totals + round_up(unit->pairs, 16);
    unit->scores = unit->sums + unit->panels * unit->pairs * ENG_TILE_COLUMNS;
    scale_queries(unit);
    compute_scores(unit);
    for (uint64_t p = 0; p < unit->pairs; p++)
        unit->totals[p] =
            unit->run->kernels->softmax_sum(unit->scores + p * unit->s_stride, pair_ranks(unit, p));
    weigh_values(unit);
    write_outputs(unit);
}

static void attention_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    const struct attention_run *run = arg;
    (void)part_count;
    uint64_t pass = 0;
    while (part >= units_of_pass(run, &run->passes[pass])) {
        part -= units_of_pass(run, &run->passes[pass]);
        pass++;
    }
    struct unit unit = {
        .run = run, .pass = &run->passes[pass], .kv_head = part % run->shape->kv_heads};
    uint64_t end;
    eng_pool_share(unit.pass->new_count * run->group, part / run->shape->kv_heads,
                   units_of_pass(run, unit.pass) / run->shape->kv_heads, &unit.first, &end);
    unit.pairs = end - unit.first;
    run_unit(&unit, eng_pool_scratch(run->pool, thread));
}

/* Do the three spans stand one behind the other, with counts that can be multiplied? */
static bool spans_fit(const struct eng_attention_pass *pass, uint64_t q_heads)
{
    uint64_t end = pass->prefix_count;
    if (pass->seen_count > COUNT_MAX || pass->new_count > COUNT_MAX / q_heads)
        return false;
    if (pass->seen_count > 0) {
        if (pass->seen_first < end || pass->seen_first > COUNT_MAX)
            return false;
        end = pass->seen_first + pass->seen_count;
    }
    return end <= pass->new_first && pass->new_first <= COUNT_MAX;
}

static eng_status check(const struct eng_attention_shape *shape,
                        const struct eng_attention_pass *passes, uint64_t pass_count,
                        struct eng_error *reterr)
{
    if (shape->kv_heads == 0 || shape->q_heads == 0 || shape->q_heads % shape->kv_heads != 0 ||
        shape->q_heads > COUNT_MAX)
        return eng_fail(reterr, ENG_E_INVALID, "%llu query heads over %llu KV heads",
                        (unsigned long long)shape->q_heads, (unsigned long long)shape->kv_heads);
    if (shape->head_dim == 0 || shape->head_dim > COUNT_MAX / 64)
        return eng_fail(reterr, ENG_E_INVALID, "head size %llu",
                        (unsigned long long)shape->head_dim);
    for (uint64_t i = 0; i < pass_count; i++) {
        const struct eng_attention_pass *pass = &passes[i];
        if (!spans_fit(pass, shape->q_heads))
            return eng_fail(
                reterr, ENG_E_INVALID,
                "pass %llu: prefix of %llu rows, %llu seen from row %llu, %llu new "
                "rows from row %llu",
                (unsigned long long)i, (unsigned long long)pass->prefix_count,
                (unsigned long long)pass->seen_count, (unsigned long long)pass->seen_first,
                (unsigned long long)pass->new_count, (unsigned long long)pass->new_first);
    }
    return ENG_OK;
}

eng_status eng_attention(struct eng_pool *pool, const struct eng_attention_shape *shape,
                         const struct eng_attention_pass *passes, uint64_t pass_count,
                         struct eng_error *reterr)
{
    eng_status status = check(shape, passes, pass_count, reterr);
    if (status != ENG_OK)
        return status;
    struct attention_run run = {.kernels = eng_kernels_get(),
                                .pool = pool,
                                .shape = shape,
                                .passes = passes,
                                .pass_count = pass_count,
                                .group = shape->q_heads / shape->kv_heads};
    uint64_t pairs = 0;
    uint64_t ranks = 1;
    for (uint64_t i = 0; i < pass_count; i++) {
        uint64_t longest = passes[i].prefix_count + passes[i].seen_count + passes[i].new_count;
        pairs += passes[i].new_count * shape->q_heads;
        ranks = passes[i].new_count > 0 && longest > ranks ? longest : ranks;
    }
    uint64_t units = (uint64_t)eng_pool_threads(pool) * UNITS_A_THREAD;
    uint64_t most = pairs / units < UNIT_PAIRS_MIN ? UNIT_PAIRS_MIN : pairs / units;
    uint64_t fitting = SCORES_BYTES / sizeof(float) / s_stride_of(ranks);
    most = most < fitting ? most : fitting;
    most = most < UNIT_PAIRS_MAX ? most : UNIT_PAIRS_MAX;
    run.unit_pairs = most == 0 ? 1 : most;
    status = eng_pool_reserve(pool, scratch_bytes(run.unit_pairs, shape->head_dim, ranks), reterr);
    if (status != ENG_OK)
        return status;
    uint64_t parts = 0;
    for (uint64_t i = 0; i < pass_count; i++)
        parts += units_of_pass(&run, &passes[i]);
    eng_pool_run(pool, attention_part, &run, parts);
    return ENG_OK;
}
