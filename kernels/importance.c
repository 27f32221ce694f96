/* Column-sum importance: keys a tile at a time, queries a block at a time, softmax as it goes.
 *
 *   block of query vectors [t][lane]       tile of 48 keys, float32
 *              \                            /
 *               scores [key][lane]: 2^(score - best of the lane so far)     kept for prefix tiles
 *                        |                                                  with that best
 *   after the last tile: dst[key] += scores . 2^(best then - best) / sum
 *
 * Scores are in base 2 (the query is multiplied by scale * log2 e), which costs nothing and makes
 * exp one multiplication shorter. A handful of queries (one token of one group) would leave most
 * lanes empty: they go one by one, the lanes along the keys, and are bound by reading the keys.
 *
 * Holds: a row whose softmax is not a number (NaN or infinite scores) makes every sum NaN, on every
 *   rung; nothing else is touched. Work is done in one order, whatever thread does it.
 * Threads: any. Tests: tests/unit/kernels/test_importance.c */
#include "kernels/select.h"

#include <math.h>
#include <string.h>

#define TILE        SC_KERNELS_TILE_KEYS
#define FEW_MAX     7u /* queries that go one by one */
#define AHEAD       SC_KERNELS_AHEAD_KEYS
#define LINE_BYTES  64u
#define LOG2_E      1.44269504088896341f
#define PADDED(x)   (((x) + 15) / 16 * 16)
#define TILES(keys) (((keys) + TILE - 1) / TILE)

/* The scratch of a call, cut into its parts. */
struct parts {
    const struct sc_kernels_importance *what;
    uint64_t kv_head, head_padded, row_first;
    float *tile;                  /* [TILE, head_padded] */
    float *queries;               /* [head_size, width], or [query_count, head_padded] */
    float *best, *sums, *weights; /* [SC_KERNELS_LANES_MAX] */
    uint32_t *seen;               /* [SC_KERNELS_LANES_MAX] */
    float *best_then;             /* [tiles of the prefix, SC_KERNELS_LANES_MAX] */
    float *scores; /* [prefix in tiles, width] and one tile more, or [query_count, keys] */
};

static uint64_t scores_count(uint64_t prefix_count, uint64_t fresh_count)
{
    uint64_t prefix = TILES(prefix_count) * TILE, fresh = TILES(fresh_count) * TILE;
    uint64_t lanes = (prefix + TILE) * SC_KERNELS_LANES_MAX, few = (prefix + fresh) * FEW_MAX;
    return lanes > few ? lanes : few;
}

uint64_t sc_kernels_importance_scratch_bytes(uint64_t head_size, uint64_t prefix_count,
                                             uint64_t fresh_count)
{
    uint64_t floats = (TILE + SC_KERNELS_LANES_MAX) * PADDED(head_size) +
                      (4 + TILES(prefix_count)) * SC_KERNELS_LANES_MAX +
                      scores_count(prefix_count, fresh_count);
    return (floats * sizeof(float) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static struct parts cut(const struct sc_kernels_importance *what, uint64_t kv_head, void *scratch)
{
    struct parts parts = {.what = what, .kv_head = kv_head};
    parts.head_padded = PADDED(what->head_size);
    parts.row_first = what->last_row ? what->queries.row_count - 1 : 0;
    float *at = scratch;
    parts.tile = at;
    parts.queries = at += TILE * parts.head_padded;
    parts.best = at += SC_KERNELS_LANES_MAX * parts.head_padded;
    parts.sums = at += SC_KERNELS_LANES_MAX;
    parts.weights = at += SC_KERNELS_LANES_MAX;
    parts.seen = (uint32_t *)(void *)(at += SC_KERNELS_LANES_MAX);
    parts.best_then = at += SC_KERNELS_LANES_MAX;
    parts.scores = at + TILES(what->prefix.count) * SC_KERNELS_LANES_MAX;
    return parts;
}

static void widen(const struct sc_kernels *kernels, uint32_t dtype, float *dst, const uint8_t *src,
                  uint64_t count)
{
    if (dtype == SC_KERNELS_F32)
        memcpy(dst, src, count * sizeof(float));
    else if (dtype == SC_KERNELS_F16)
        kernels->widen_f16(dst, (const uint16_t *)(const void *)src, count);
    else
        kernels->widen_bf16(dst, (const uint16_t *)(const void *)src, count);
}

static const uint8_t *key_at(const struct sc_kernels_keys *keys, uint64_t kv_head, uint64_t j)
{
    const struct sc_kernels_memory *memory = &keys->memory;
    uint64_t slot = memory->slots != NULL ? (uint64_t)memory->slots[j] : j;
    const uint8_t *base = memory->k_base + kv_head * memory->head_stride_bytes;
    if (memory->block_tokens == 0)
        return base + slot * memory->token_stride_bytes;
    return base + slot / memory->block_tokens * memory->block_stride_bytes +
           slot % memory->block_tokens * memory->token_stride_bytes;
}

/* Keys [first, first + TILE) as far as they exist, in float32; what is behind them is 0.
 *   rows: where keys first .. first + TILE + AHEAD - 1 are; kept from one tile to the next */
static void tile_gather(const struct parts *parts, const struct sc_kernels_keys *keys,
                        uint64_t first, const uint8_t **rows)
{
    const struct sc_kernels_importance *what = parts->what;
    uint64_t count = keys->count - first < TILE ? keys->count - first : TILE;
    uint64_t known = first == 0 ? 0 : AHEAD;
    if (first != 0)
        memmove(rows, rows + TILE, AHEAD * sizeof(*rows));
    for (uint64_t i = known; i < count + AHEAD; i++)
        rows[i] =
            key_at(keys, parts->kv_head, first + i < keys->count ? first + i : keys->count - 1);
    what->kernels->rows_widen(parts->tile, rows, count, what->head_size, keys->dtype);
    memset(parts->tile + count * parts->head_padded, 0,
           (TILE - count) * parts->head_padded * sizeof(float));
}

/* Query vector v (row v / group, head v % group of the KV head's), ready to be multiplied. */
static void query_load(const struct parts *parts, uint64_t v, float *dst)
{
    const struct sc_kernels_importance *what = parts->what;
    uint64_t row = parts->row_first + v / what->group;
    uint64_t head = parts->kv_head * what->group + v % what->group;
    widen(what->kernels, what->queries.dtype, dst,
          what->queries.data + row * what->queries.row_stride_bytes +
              head * what->queries.head_stride_bytes,
          what->head_size);
    for (uint64_t t = 0; t < what->head_size; t++)
        dst[t] *= what->scale * LOG2_E;
}

/* Fresh keys that query vector v sees. */
static uint64_t fresh_seen(const struct parts *parts, uint64_t v)
{
    const struct sc_kernels_importance *what = parts->what;
    if (what->fresh.count == 0)
        return 0;
    uint64_t row = parts->row_first + v / what->group;
    return what->fresh.count - what->queries.row_count + row + 1;
}

static uint64_t tile_count(const struct sc_kernels_keys *keys, uint64_t first)
{
    return keys->count - first < TILE ? keys->count - first : TILE;
}

/* ---- Many queries: a lane each ------------------------------------------------------------ */

/* Lanes behind `used` repeat the last query: they then hold nothing that it does not. */
static void lanes_load(const struct parts *parts, uint64_t first, uint64_t used, uint64_t width)
{
    uint64_t head_size = parts->what->head_size;
    float *row = parts->tile; /* no tile is there yet */
    for (uint64_t lane = 0; lane < width; lane++) {
        if (lane < used)
            query_load(parts, first + lane, row);
        for (uint64_t t = 0; t < head_size; t++)
            parts->queries[t * width + lane] = row[t];
        parts->best[lane] = -INFINITY;
        parts->sums[lane] = 0;
    }
}

static void lanes_fresh(const struct parts *parts, uint64_t first, uint64_t used, uint64_t width,
                        float *scores)
{
    const struct sc_kernels_importance *what = parts->what;
    const uint8_t *rows[TILE + AHEAD];
    uint64_t most = fresh_seen(parts, first + used - 1), least = fresh_seen(parts, first);
    for (uint64_t key = 0; key < most; key += TILE) {
        uint64_t count = tile_count(&what->fresh, key);
        tile_gather(parts, &what->fresh, key, rows);
        what->kernels->lanes_score(parts->queries, width, parts->tile, parts->head_padded,
                                   what->head_size, count, scores);
        for (uint64_t lane = 0; lane < width; lane++) {
            uint64_t seen = fresh_seen(parts, first + (lane < used ? lane : used - 1));
            parts->seen[lane] = (uint32_t)(seen < key ? 0 : seen - key < TILE ? seen - key : TILE);
        }
        what->kernels->lanes_soften(scores, width, count, least < key + count ? parts->seen : NULL,
                                    parts->best, parts->sums);
    }
}

static void lanes_block(const struct parts *parts, uint64_t first, uint64_t used, uint64_t width,
                        float *ret_sums)
{
    const struct sc_kernels_importance *what = parts->what;
    const uint8_t *rows[TILE + AHEAD];
    uint64_t tiles = TILES(what->prefix.count);
    lanes_load(parts, first, used, width);
    for (uint64_t tile = 0; tile < tiles; tile++) {
        float *scores = parts->scores + tile * TILE * width;
        uint64_t count = tile_count(&what->prefix, tile * TILE);
        tile_gather(parts, &what->prefix, tile * TILE, rows);
        what->kernels->lanes_score(parts->queries, width, parts->tile, parts->head_padded,
                                   what->head_size, count, scores);
        what->kernels->lanes_soften(scores, width, count, NULL, parts->best, parts->sums);
        memcpy(parts->best_then + tile * SC_KERNELS_LANES_MAX, parts->best, width * sizeof(float));
    }
    lanes_fresh(parts, first, used, width, parts->scores + tiles * TILE * width);
    for (uint64_t tile = 0; tile < tiles; tile++) {
        what->kernels->lanes_weigh(parts->best_then + tile * SC_KERNELS_LANES_MAX, parts->best,
                                   parts->sums, width, used, parts->weights);
        what->kernels->lanes_fold(parts->scores + tile * TILE * width, width,
                                  tile_count(&what->prefix, tile * TILE), parts->weights,
                                  ret_sums + tile * TILE);
    }
}

/* ---- A few queries: one after the other ---------------------------------------------------- */

static void few_score(const struct parts *parts, const struct sc_kernels_keys *keys, uint64_t count,
                      uint64_t query_count, uint64_t stride, float *scores)
{
    const struct sc_kernels *kernels = parts->what->kernels;
    const uint8_t *rows[TILE + AHEAD];
    for (uint64_t key = 0; key < count; key += TILE) {
        tile_gather(parts, keys, key, rows);
        for (uint64_t v = 0; v < query_count; v++)
            kernels->few_score(parts->queries + v * parts->head_padded, parts->tile,
                               parts->head_padded, tile_count(keys, key),
                               scores + v * stride + key);
    }
}

static void few(const struct parts *parts, uint64_t query_count, float *ret_sums)
{
    const struct sc_kernels_importance *what = parts->what;
    const struct sc_kernels *kernels = what->kernels;
    uint64_t prefix = TILES(what->prefix.count) * TILE;
    uint64_t stride = prefix + TILES(what->fresh.count) * TILE;
    memset(parts->queries, 0, query_count * parts->head_padded * sizeof(float));
    for (uint64_t v = 0; v < query_count; v++)
        query_load(parts, v, parts->queries + v * parts->head_padded);
    few_score(parts, &what->prefix, what->prefix.count, query_count, stride, parts->scores);
    few_score(parts, &what->fresh, fresh_seen(parts, query_count - 1), query_count, stride,
              parts->scores + prefix);
    for (uint64_t v = 0; v < query_count; v++) {
        float *scores = parts->scores + v * stride;
        uint64_t seen = fresh_seen(parts, v);
        float best = kernels->few_best(scores, what->prefix.count, -INFINITY);
        best = kernels->few_best(scores + prefix, seen, best);
        float base = best == -INFINITY ? 0 : best;
        float sum = kernels->few_soften(scores, what->prefix.count, base);
        sum += kernels->few_soften(scores + prefix, seen, base);
        kernels->accumulate(ret_sums, scores, 1 / sum, what->prefix.count);
    }
}

void sc_kernels_importance(const struct sc_kernels_importance *what, uint64_t kv_head,
                           void *scratch, float *ret_sums)
{
    memset(ret_sums, 0, what->prefix.count * sizeof(float));
    if (what->prefix.count == 0 || what->queries.row_count == 0 || what->group == 0)
        return;
    struct parts parts = cut(what, kv_head, scratch);
    uint64_t total = (what->queries.row_count - parts.row_first) * what->group;
    if (total <= FEW_MAX) {
        few(&parts, total, ret_sums);
        return;
    }
    uint64_t unit = what->kernels->lane_unit;
    for (uint64_t first = 0, used; first < total; first += used) {
        uint64_t most = what->kernels->lane_most;
        used = total - first < most ? total - first : most;
        lanes_block(&parts, first, used, (used + unit - 1) / unit * unit, ret_sums);
    }
}
