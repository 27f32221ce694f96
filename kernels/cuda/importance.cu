/* importance.cu: importance sums (kernels/importance.h) on the device; see spec.h.
 *
 *   block    a tile of keys, decoded to float32 in shared memory, times tiles of query vectors;
 *            threads hold 8 x 8 scores each (64 keys: 128 vectors, 32 keys: 256)
 *   thread   keys low + i * key_groups, vectors high + i * vector_groups      low: by the lane
 *
 * Query channels pass through shared memory in pieces, between barriers. A score is the same chain
 * of fused multiply-adds in both kernels, whatever the grid, so none is above its maximum. Scores
 * are computed twice and never stored.
 *
 * Invariants: the order of additions depends only on tiles_each and the shape: a thread's vectors
 * ascending, lanes by a butterfly, vector groups and splits ascending. If a row's softmax is not a
 * number, every sum of its head is NaN, as on the CPU.
 * Tests: tests/unit/kernels/test_cuda_importance.c */
#include "kernels/cuda/score_soft.h"

#define EACH       8u /* keys, and vectors, of a thread */
#define FEW        2u /* vectors of a thread if the tile has no more */
#define KEY_FLOATS (SC_CUDA_SCORE_KEYS * (SC_CUDA_SCORE_CHANNELS + 4)) /* 32 * 260 are fewer */
#define QUERIES    2048u /* channels of all query vectors of a tile */
#define PIECES     (QUERIES + 4 * SC_CUDA_SCORE_VECTORS) /* with the gaps between vectors */
#define JOIN_AHEAD 16u                                   /* splits whose loads are in flight */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
#define BEST_BESIDE 4u
#else
#define BEST_BESIDE 3u /* limited by shared memory on 8.x; more would spill on 10.0 */
#endif

/* ---- Scores --------------------------------------------------------------------------------- */

struct Own {
    uint32_t key, key_groups;       /* keys key + i * key_groups */
    uint32_t vector, vector_groups; /* of a tile of vectors */
    uint32_t vectors;               /* of a tile */
    uint32_t piece;                 /* channels of a vector in shared memory at once */
};

SC_DEVICE Own own_of(const Lay &lay)
{
    Own own;
    own.key_groups = lay.keys / EACH;
    own.vector_groups = SC_CUDA_SCORE_THREADS / own.key_groups;
    own.key = threadIdx.x % own.key_groups;
    own.vector = threadIdx.x / own.key_groups;
    own.vectors = own.vector_groups * EACH;
    own.piece = QUERIES / own.vectors;
    return own;
}

/* Loads channels first .. first + piece - 1 of vectors vector .. + count - 1, times scale; 0 if
 * missing.
 *   pieces [own.vectors][own.piece + 4] */
SC_DEVICE void queries_load(const sc_cuda_score &what, const Lay &lay, const Own &own,
                            uint32_t head, uint32_t vector, uint32_t count, uint32_t first,
                            float *pieces)
{
    const sc_cuda_score_queries &from = what.queries;
    uint32_t runs = own.piece / SC_CUDA_RUN, bytes = element_bytes_of(from.dtype);
    uint32_t shift = runs == 1 ? 0 : 1; /* 8 or 16 channels */
    float scale = __fmul_rn(what.scale, LOG2_E);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < own.vectors * runs; i += SC_CUDA_SCORE_THREADS) {
        uint32_t v = i >> shift, at = (i & (runs - 1)) * SC_CUDA_RUN, channel = first + at;
        float value[SC_CUDA_RUN] = {};
        if (channel >= lay.channels)
            continue;
        if (v < count) {
            uint32_t row = what.row_first + (vector + v) / what.group;
            uint32_t query_head = head * what.group + (vector + v) % what.group;
            run_widen(from.data + row * from.row_stride_bytes +
                          query_head * from.head_stride_bytes + channel * bytes,
                      bytes, from.dtype, lesser(what.head_size - channel, SC_CUDA_RUN), value);
        }
#pragma unroll
        for (uint32_t c = 0; c < SC_CUDA_RUN; c++)
            value[c] = __fmul_rn(value[c], scale);
        run_keep(pieces + v * (own.piece + 4) + at, channel, lay.channels, value);
    }
}

SC_DEVICE void quad_of(const float *at, float value[4])
{
    uint4 word = sc_shared16(at);
    value[0] = __uint_as_float(word.x);
    value[1] = __uint_as_float(word.y);
    value[2] = __uint_as_float(word.z);
    value[3] = __uint_as_float(word.w);
}

/* score[vector][key] += channels of the thread's first VECTORS vectors times those of its keys. */
template <uint32_t VECTORS>
SC_DEVICE void piece_add(const Own &own, const Lay &lay, const float *query, const float *key,
                         uint32_t channels, float score[EACH][EACH])
{
#pragma unroll 1
    for (uint32_t c = 0; c < channels; c += 4) {
        float q[VECTORS][4];
#pragma unroll
        for (uint32_t i = 0; i < VECTORS; i++)
            quad_of(query + i * own.vector_groups * (own.piece + 4) + c, q[i]);
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) {
            float k[4];
            quad_of(key + j * own.key_groups * lay.key_stride + c, k);
#pragma unroll
            for (uint32_t t = 0; t < 4; t++)
#pragma unroll
                for (uint32_t i = 0; i < VECTORS; i++)
                    score[i][j] = __fmaf_rn(q[i][t], k[t], score[i][j]);
        }
    }
}

/* Computes score[vector][key] of the thread's keys and vectors. Scores beyond the tile's keys are
 * undefined and do not affect others. Barriers: before the first query is written, and before it is
 * read. */
SC_DEVICE void tile_scores(const sc_cuda_score &what, const Lay &lay, const Own &own, uint32_t head,
                           uint32_t vector, uint32_t count, const float *keys, float *pieces,
                           float score[EACH][EACH])
{
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++)
            score[i][j] = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < lay.channels; first += own.piece) {
        __syncthreads();
        queries_load(what, lay, own, head, vector, count, first, pieces);
        __syncthreads();
        const float *query = pieces + own.vector * (own.piece + 4);
        const float *key = keys + own.key * lay.key_stride + first;
        uint32_t channels = lesser(lay.channels - first, own.piece);
        if (count <= FEW * own.vector_groups)
            piece_add<FEW>(own, lay, query, key, channels, score);
        else
            piece_add<EACH>(own, lay, query, key, channels, score);
    }
}

/* ---- Maximum and sum ----------------------------------------------------------------------- */

/* Computes a vector's softmax over the `seen` first keys of a tile; equal in all its lanes. */
SC_DEVICE Soft scores_soften(const Own &own, const float score[EACH], uint32_t seen)
{
    Soft soft = {-INFINITE, 0};
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++)
        if (own.key + j * own.key_groups < seen)
            soft.best = greater(soft.best, score[j]);
    for (uint32_t step = 1; step < own.key_groups; step *= 2)
        soft.best = greater(soft.best, __shfl_xor_sync(ALL_LANES, soft.best, step));
    float base = base_of(soft.best);
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++)
        if (own.key + j * own.key_groups < seen)
            soft.sum = __fadd_rn(soft.sum, exp2_of(__fadd_rn(score[j], -base)));
    for (uint32_t step = 1; step < own.key_groups; step *= 2)
        soft.sum = __fadd_rn(soft.sum, __shfl_xor_sync(ALL_LANES, soft.sum, step));
    return soft;
}

/* best, sum: of the block's vectors; one thread has each vector in all tiles */
SC_DEVICE void tile_soften(const sc_cuda_score &what, const Own &own, const KeyTile &tile,
                           uint32_t vector, uint32_t count, const float score[EACH][EACH],
                           float *best, float *sum)
{
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t v = own.vector + i * own.vector_groups, seen = tile.count;
        if (tile.is_fresh && v < count) {
            uint32_t all = seen_of(what, vector + v);
            seen = all > tile.first ? lesser(all - tile.first, tile.count) : 0;
        }
        Soft soft = scores_soften(own, score[i], seen);
        if (own.key == 0 && v < count) {
            soft = soft_join(Soft{best[v], sum[v]}, soft);
            best[v] = soft.best;
            sum[v] = soft.sum;
        }
    }
}

/* grid: (heads, blocks of SC_CUDA_SCORE_VECTORS vectors, splits) */
SC_KERNEL_BESIDE(sc_cuda_score_best, sc_cuda_score, SC_CUDA_SCORE_THREADS, BEST_BESIDE)
{
    SC_SHARED(float, keys, KEY_FLOATS);
    SC_SHARED(float, pieces, PIECES);
    SC_SHARED(float, best, SC_CUDA_SCORE_VECTORS);
    SC_SHARED(float, sum, SC_CUDA_SCORE_VECTORS);
    Lay lay = lay_of(what);
    Own own = own_of(lay);
    uint32_t head = what.head_first + blockIdx.x, vectors = vectors_of(what);
    uint32_t begin = blockIdx.y * SC_CUDA_SCORE_VECTORS;
    uint32_t end = lesser(vectors, begin + SC_CUDA_SCORE_VECTORS);
    uint32_t tiles = tiles_of(what.prefix.count, lay) + tiles_of(what.fresh.count, lay);
    uint32_t tile_end = lesser(tiles, (blockIdx.z + 1) * what.tiles_each);
    for (uint32_t v = threadIdx.x; v < SC_CUDA_SCORE_VECTORS; v += SC_CUDA_SCORE_THREADS) {
        best[v] = -INFINITE;
        sum[v] = 0;
    }
#pragma unroll 1
    for (uint32_t t = blockIdx.z * what.tiles_each; t < tile_end; t++) {
        KeyTile tile = tile_of(what, lay, t);
        if (tile.is_fresh && seen_of(what, end - 1) <= tile.first)
            break; /* no vector sees this tile or later ones */
        __syncthreads();
        tile_load(what, lay, head, tile, keys);
#pragma unroll 1
        for (uint32_t v = begin; v < end; v += own.vectors) {
            uint32_t count = lesser(end - v, own.vectors);
            float score[EACH][EACH];
            if (tile.is_fresh && seen_of(what, v + count - 1) <= tile.first)
                continue;
            tile_scores(what, lay, own, head, v, count, keys, pieces, score);
            tile_soften(what, own, tile, v, count, score, best + (v - begin), sum + (v - begin));
        }
    }
    __syncthreads();
    float *stats = stats_of(what, blockIdx.x, gridDim.z, blockIdx.z);
    for (uint32_t v = begin + threadIdx.x; v < end; v += SC_CUDA_SCORE_THREADS)
        sc_store8(stats + v * 2ull,
                  uint2{__float_as_uint(best[v - begin]), __float_as_uint(sum[v - begin])});
}

/* ---- Joining -------------------------------------------------------------------------------- */

/* One thread per vector: the base to subtract from scores, and the factor of shares.
 * grid: (vectors by threads, heads) */
SC_KERNEL(sc_cuda_score_join, sc_cuda_score, SC_CUDA_SCORE_THREADS)
{
    uint32_t v = blockIdx.x * SC_CUDA_SCORE_THREADS + threadIdx.x, vectors = vectors_of(what);
    uint32_t splits = splits_of(what, lay_of(what));
    const float *from = stats_of(what, blockIdx.y, splits, 0) + v * 2ull;
    Soft all = {-INFINITE, 0};
    if (v >= vectors)
        return;
#pragma unroll 1
    for (uint32_t first = 0; first < splits; first += JOIN_AHEAD) {
        uint2 word[JOIN_AHEAD] = {};
#pragma unroll
        for (uint32_t k = 0; k < JOIN_AHEAD; k++)
            if (first + k < splits)
                word[k] = sc_load8(from + (first + k) * (uint64_t)vectors * 2);
        float best = all.best; /* over all so far: makes terms independent */
#pragma unroll
        for (uint32_t k = 0; k < JOIN_AHEAD; k++)
            if (first + k < splits)
                best = greater(best, __uint_as_float(word[k].x));
        float base = base_of(best);
        all.sum = __fmul_rn(all.sum, exp2_of(__fadd_rn(all.best, -base)));
        all.best = best;
#pragma unroll
        for (uint32_t k = 0; k < JOIN_AHEAD; k++)
            if (first + k < splits)
                all.sum = __fmaf_rn(__uint_as_float(word[k].y),
                                    exp2_of(__fadd_rn(__uint_as_float(word[k].x), -base)), all.sum);
    }
    sc_store8(stats_of(what, blockIdx.y, splits, splits) + v * 2ull,
              uint2{__float_as_uint(base_of(all.best)), __float_as_uint(__fdiv_rn(1.0f, all.sum))});
}

/* ---- Columns -------------------------------------------------------------------------------- */

/* column[j] += shares of the thread's vectors. */
SC_DEVICE void shares_add(const Own &own, uint32_t count, const float score[EACH][EACH],
                          const float *base, const float *share, float column[EACH])
{
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t v = own.vector + i * own.vector_groups;
        if (v >= count)
            continue;
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++)
            column[j] = __fmaf_rn(exp2_of(__fadd_rn(score[i][j], -base[v])), share[v], column[j]);
    }
}

/* grid: (heads, 1, tiles of the prefix) */
SC_KERNEL_BESIDE(sc_cuda_score_columns, sc_cuda_score, SC_CUDA_SCORE_THREADS, BEST_BESIDE)
{
    SC_SHARED(float, keys, KEY_FLOATS);
    SC_SHARED(float, pieces, PIECES);
    SC_SHARED(float, base, SC_CUDA_SCORE_VECTORS); /* maximum vectors of a tile */
    SC_SHARED(float, share, SC_CUDA_SCORE_VECTORS);
    Lay lay = lay_of(what);
    Own own = own_of(lay);
    KeyTile tile = tile_of(what, lay, blockIdx.z);
    uint32_t head = what.head_first + blockIdx.x, vectors = vectors_of(what);
    uint32_t splits = splits_of(what, lay);
    const float *stats = stats_of(what, blockIdx.x, splits, splits);
    float column[EACH] = {};
    tile_load(what, lay, head, tile, keys);
#pragma unroll 1
    for (uint32_t first = 0; first < vectors; first += own.vectors) {
        uint32_t count = lesser(vectors - first, own.vectors);
        float score[EACH][EACH];
        __syncthreads(); /* those of the last vectors were read */
        for (uint32_t v = threadIdx.x; v < count; v += SC_CUDA_SCORE_THREADS) {
            uint2 word = sc_load8(stats + (first + v) * 2ull);
            base[v] = __uint_as_float(word.x);
            share[v] = __uint_as_float(word.y);
        }
        tile_scores(what, lay, own, head, first, count, keys, pieces, score);
        shares_add(own, count, score, base, share, column);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++)
        pieces[own.vector * lay.keys + own.key + j * own.key_groups] = column[j];
    __syncthreads();
    for (uint32_t key = threadIdx.x; key < tile.count; key += SC_CUDA_SCORE_THREADS) {
        float sum = 0;
        for (uint32_t g = 0; g < own.vector_groups; g++)
            sum = __fadd_rn(sum, pieces[g * lay.keys + key]);
        sc_store4(what.sums + (uint64_t)blockIdx.x * what.prefix.count + tile.first + key,
                  __float_as_uint(sum));
    }
}

/* One thread per key. */
SC_KERNEL(sc_cuda_score_total, sc_cuda_score, SC_CUDA_SCORE_THREADS)
{
    uint32_t key = blockIdx.x * SC_CUDA_SCORE_THREADS + threadIdx.x;
    float total = 0;
    if (key >= what.prefix.count)
        return;
    for (uint32_t h = 0; h < what.head_count; h++)
        total = __fadd_rn(
            total, __uint_as_float(sc_load4(what.sums + (uint64_t)h * what.prefix.count + key)));
    sc_store4(what.total + key, __float_as_uint(total));
}
