/* importance_tensor.cu: score_best and score_columns of importance.cu by tensor cores, for
 * uniformly quantised keys, or rows of the queries' 16-bit type. Statistics, splits and sums have
 * the same layout; score_join and score_total are the same kernels.
 *
 *   block  a piece of the keys (the part of a tile in one slab) in shared memory, times all vectors
 *   warp   16 vectors (rows of A), all keys of the piece (8 columns of B each): a vector's softmax
 *          stays in a warp, and only keys are in shared memory
 *   lane   vectors g and g + 8, keys 8 n + 2 t and 8 n + 2 t + 1     g = lane / 4, t = lane % 4
 *
 * Quantised keys: q . value = sum of q middle + sum of (q step / 2)(2 code + 1 - levels). The last
 * factor is a small odd number, exact in f16. The other is scaled below 2^14 by a power of two of
 * its vector and split into two f16 of 11 bits: two products. One does not suffice
 * (docs/decisions/0041-tensor-scores.md). The first sum belongs to the vector and the slab, in
 * float32. Rows: 16-bit products are exact, and the scale is applied to the sum.
 *
 * Invariants: tensor cores do not round to nearest, so they add 32 channels, from 0, and the result
 * is added in float32. The order of additions depends only on the shape, the slabs and tiles_each,
 * and is the same in both kernels: no score is above its maximum. If a row's softmax is not a
 * number, every sum of its head is NaN, as in importance.cu.
 * Tests: tests/unit/kernels/test_cuda_tensor.c */
#include "kernels/cuda/tensor_keys.h"

#define WARPS        (SC_CUDA_SCORE_THREADS / SC_CUDA_WARP)
#define WARP_VECTORS 16u
#define COLUMNS_EACH 8u                                                   /* keys of a product */
#define PRODUCTS     (SC_CUDA_SCORE_KEYS / COLUMNS_EACH)                  /* accumulators */
#define KEY_HALVES   (SC_CUDA_SCORE_KEYS * (SC_CUDA_SCORE_CHANNELS + 32)) /* 32 * 288 are fewer */
#define BESIDE       2u          /* independent products */
#define ALL_STEPS    4u          /* steps whose vectors are loaded ahead */
#define TOP          13          /* largest exponent of a vector's numbers in f16 */
#define BITS_KEPT    0xffffe000u /* bits of a float32 that f16 has too */
#define BITS_HALF    0x1000u     /* half of the least of them */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
#define TENSOR_BESIDE 4u
#else
#define TENSOR_BESIDE 3u /* more would spill on 8.0; others not measured */
#endif

/* ---- Vectors -------------------------------------------------------------------------------- */

struct Pair {
    const uint8_t *at[2]; /* nullptr: none */
};

/* Locates those of vectors `vector` .. + 15, `count` of which exist. head: among all KV heads */
SC_DEVICE Pair pair_of(const sc_cuda_score &what, uint32_t head, uint32_t vector, uint32_t count)
{
    const sc_cuda_score_queries &from = what.queries;
    Pair pair;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t own = threadIdx.x % SC_CUDA_WARP / 4 + 8 * r, v = vector + own;
        uint32_t row = what.row_first + v / what.group;
        uint32_t query_head = head * what.group + v % what.group;
        pair.at[r] = own < count ? from.data + row * from.row_stride_bytes +
                                       query_head * from.head_stride_bytes
                                 : nullptr;
    }
    return pair;
}

SC_DEVICE void vector_widen(const sc_cuda_score &what, const uint8_t *at, uint32_t channel,
                            float value[SC_CUDA_RUN])
{
    uint32_t bytes = element_bytes_of(what.queries.dtype);
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++)
        value[c] = 0;
    if (at != nullptr && channel < what.head_size)
        run_widen(at + channel * bytes, bytes, what.queries.dtype,
                  lesser(what.head_size - channel, SC_CUDA_RUN), value);
}

/* Tells whether 8 channels of any vector are 16 aligned bytes. */
SC_DEVICE bool is_by_eight(const sc_cuda_score &what)
{
    uint64_t all = reinterpret_cast<uint64_t>(what.queries.data) | what.queries.row_stride_bytes |
                   what.queries.head_stride_bytes;
    return what.queries.dtype != SC_CUDA_F32 && what.head_size % SC_CUDA_RUN == 0 &&
           (all & 15) == 0;
}

/* The same for such vectors, in two steps. */
SC_DEVICE uint4 eight_load(const sc_cuda_score &what, const uint8_t *at, uint32_t channel)
{
    if (at == nullptr || channel >= what.head_size)
        return uint4{0, 0, 0, 0};
    return sc_load16(at + channel * 2);
}

SC_DEVICE void pair_widen(uint32_t word, uint32_t dtype, float *value)
{
    if (dtype == SC_CUDA_F16) {
        value[0] = number_widen(word & 0xffff);
        value[1] = number_widen(word >> 16);
        return;
    }
    value[0] = __uint_as_float(word << 16);
    value[1] = __uint_as_float(word & 0xffff0000u);
}

SC_DEVICE void word_widen(const uint4 &word, uint32_t dtype, float value[SC_CUDA_RUN])
{
    pair_widen(word.x, dtype, value);
    pair_widen(word.y, dtype, value + 2);
    pair_widen(word.z, dtype, value + 4);
    pair_widen(word.w, dtype, value + 6);
}

SC_DEVICE void eight_of(const float *at, float value[SC_CUDA_RUN])
{
    uint4 low = sc_shared16(at), high = sc_shared16(at + 4);
    value[0] = __uint_as_float(low.x);
    value[1] = __uint_as_float(low.y);
    value[2] = __uint_as_float(low.z);
    value[3] = __uint_as_float(low.w);
    value[4] = __uint_as_float(high.x);
    value[5] = __uint_as_float(high.y);
    value[6] = __uint_as_float(high.z);
    value[7] = __uint_as_float(high.w);
}

SC_DEVICE float size_of(float x)
{
    return __uint_as_float(__float_as_uint(x) & 0x7fffffffu);
}

/* Reduces over the four lanes of a vector; the result is equal in all. */
SC_DEVICE float quad_sum(float x)
{
    x = __fadd_rn(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

SC_DEVICE float quad_greatest(float x)
{
    x = greater(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return greater(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

/* Factor of a vector's numbers, and of its scores afterwards: powers of two. */
struct Power {
    float up, down;
};

/* most: the largest by size. If it is not finite, any factor works: the score is not a number. Very
 * small vectors stay small: 2^-112 of anything is negligible. */
SC_DEVICE Power power_of(float most)
{
    uint32_t exponent = __float_as_uint(most) >> 23; /* biased by 127 */
    exponent = exponent < 15 ? 15 : exponent > 253 ? 253 : exponent;
    return Power{__uint_as_float((254 + TOP - exponent) << 23),
                 __uint_as_float((exponent - TOP) << 23)};
}

/* A lane's words of A for two products, of both vectors: see tensor.h. */
struct Words2 {
    uint32_t of[2][4];
};

SC_DEVICE void words_put(uint32_t r, uint4 word, Words2 &a)
{
    a.of[0][r] = word.x;
    a.of[0][2 + r] = word.y;
    a.of[1][r] = word.z;
    a.of[1][2 + r] = word.w;
}

/* Splits x into two f16. high: 11 bits, and a multiple of 2^(TOP - 18 + bits of a code). Thus 32 of
 * them times odd numbers sum to less than 2^24 multiples, and no adder loses a bit. low: the rest,
 * to 11 bits. whole: adding it rounds to those multiples */
SC_DEVICE void parts_put(uint32_t r, const float x[SC_CUDA_RUN], float whole, Words2 &high,
                         Words2 &low)
{
    float first[SC_CUDA_RUN], rest[SC_CUDA_RUN];
#pragma unroll
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++) {
        float bits11 = __uint_as_float((__float_as_uint(x[c]) + BITS_HALF) & BITS_KEPT);
        first[c] = __fadd_rn(__fadd_rn(bits11, whole), -whole);
        rest[c] = __fadd_rn(x[c], -first[c]);
    }
    words_put(r,
              uint4{sc_pack_f16(first[0], first[1]), sc_pack_f16(first[2], first[3]),
                    sc_pack_f16(first[4], first[5]), sc_pack_f16(first[6], first[7])},
              high);
    words_put(r,
              uint4{sc_pack_f16(rest[0], rest[1]), sc_pack_f16(rest[2], rest[3]),
                    sc_pack_f16(rest[4], rest[5]), sc_pack_f16(rest[6], rest[7])},
              low);
}

/* Returns parts_put's `whole` for a slab: 1.5 * 2^23 multiples, so a sum keeps its exponent. */
SC_DEVICE float whole_of(uint32_t bits)
{
    return __uint_as_float((127 + 23 + TOP - 18 + bits) << 23 | 0x400000u);
}

/* ---- Scores --------------------------------------------------------------------------------- */

/* score[n] += 32 channels of the lane's vectors, times those of the keys. key: the lane's first */
template <uint32_t FORM>
SC_DEVICE void step_add(const TensorLay &lay, const uint16_t *key, uint32_t key_count,
                        const Words2 &high, const Words2 &low, float score[PRODUCTS][4])
{
#pragma unroll
    for (uint32_t first = 0; first < PRODUCTS; first += BESIDE) {
        if (first * COLUMNS_EACH >= key_count)
            continue;
        uint4 word[BESIDE];
        float sum[BESIDE][4] = {}, rest[BESIDE][4] = {};
#pragma unroll
        for (uint32_t n = 0; n < BESIDE; n++)
            word[n] = sc_shared16(key + (first + n) * COLUMNS_EACH * lay.stride);
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
#pragma unroll
            for (uint32_t n = 0; n < BESIDE; n++) {
                uint32_t even = half == 0 ? word[n].x : word[n].z;
                uint32_t odd = half == 0 ? word[n].y : word[n].w;
                if (FORM == BRAINS) {
                    sc_mma_bf16(high.of[half], even, odd, half == 0 ? sum[n] : rest[n]);
                } else if (FORM == HALVES) {
                    sc_mma_f16(high.of[half], even, odd, half == 0 ? sum[n] : rest[n]);
                } else {
                    sc_mma_f16(high.of[half], even, odd, sum[n]);
                    sc_mma_f16(low.of[half], even, odd, rest[n]);
                }
            }
#pragma unroll
        for (uint32_t n = 0; n < BESIDE; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                score[first + n][i] =
                    __fadd_rn(score[first + n][i], __fadd_rn(sum[n][i], rest[n][i]));
    }
}

/* Updates, for the lane's channels of a vector, the largest product with the factors and the sum
 * with the middles. */
SC_DEVICE void step_look(const float x[SC_CUDA_RUN], const float by[SC_CUDA_RUN],
                         const float rest[SC_CUDA_RUN], float *most, float *still)
{
#pragma unroll
    for (uint32_t i = 0; i < SC_CUDA_RUN; i++) {
        *still = __fmaf_rn(x[i], rest[i], *still);
        *most = greater(*most, size_of(__fmul_rn(x[i], by[i])));
    }
}

template <bool BY_EIGHT>
SC_DEVICE void vectors_look(const sc_cuda_score &what, const TensorLay &lay, const Pair &pair,
                            const float *factor, const float *middle, float most[2], float still[2])
{
    const uint32_t steps = BY_EIGHT ? ALL_STEPS : 1;
    uint32_t own = threadIdx.x % 4 * SC_CUDA_RUN;
#pragma unroll 1
    for (uint32_t first = 0; first < lay.channels;
         first += steps * STEP_CHANNELS) { /* equally often in all lanes */
        uint4 word[steps][2];
#pragma unroll
        for (uint32_t s = 0; BY_EIGHT && s < steps; s++)
#pragma unroll
            for (uint32_t r = 0; r < 2; r++)
                word[s][r] = eight_load(what, pair.at[r], first + s * STEP_CHANNELS + own);
#pragma unroll
        for (uint32_t s = 0; s < steps; s++) {
            uint32_t c = first + s * STEP_CHANNELS + own;
            float by[SC_CUDA_RUN], rest[SC_CUDA_RUN], x[SC_CUDA_RUN];
            if (c >= lay.channels)
                break;
            eight_of(factor + c, by);
            eight_of(middle + c, rest);
#pragma unroll
            for (uint32_t r = 0; r < 2; r++) {
                if (BY_EIGHT)
                    word_widen(word[s][r], what.queries.dtype, x);
                else
                    vector_widen(what, pair.at[r], c, x);
                step_look(x, by, rest, &most[r], &still[r]);
            }
        }
    }
}

template <bool BY_EIGHT>
SC_DEVICE void quant_score(const sc_cuda_score &what, const TensorLay &lay, const Pair &pair,
                           const uint16_t *keys, uint32_t key_count, const float *factor,
                           const float *middle, float whole, float score[PRODUCTS][4])
{
    uint32_t lane = threadIdx.x % SC_CUDA_WARP, own = lane % 4 * SC_CUDA_RUN;
    const uint16_t *key = keys + lane / 4 * lay.stride;
    float most[2] = {}, still[2] = {};
    Power power[2];
    vectors_look<BY_EIGHT>(what, lay, pair, factor, middle, most, still);
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        power[r] = power_of(quad_greatest(most[r]));
        still[r] = quad_sum(still[r]);
    }
#pragma unroll 1
    for (uint32_t first = 0; first < lay.channels;
         first += STEP_CHANNELS) { /* equally often in all lanes */
        uint32_t c = first + own;
        float by[SC_CUDA_RUN], x[SC_CUDA_RUN];
        uint4 word[2];
        Words2 high, low;
#pragma unroll
        for (uint32_t r = 0; BY_EIGHT && r < 2; r++)
            word[r] = eight_load(what, pair.at[r], c);
        eight_of(factor + c, by);
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            if (BY_EIGHT)
                word_widen(word[r], what.queries.dtype, x);
            else
                vector_widen(what, pair.at[r], c, x);
#pragma unroll
            for (uint32_t i = 0; i < SC_CUDA_RUN; i++)
                x[i] = __fmul_rn(__fmul_rn(x[i], by[i]), power[r].up);
            parts_put(r, x, whole, high, low);
        }
        step_add<CODES>(lay, key + c, key_count, high, low, score);
    }
#pragma unroll
    for (uint32_t n = 0; n < PRODUCTS; n++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            score[n][i] = __fmaf_rn(score[n][i], power[i / 2].down, still[i / 2]);
}

template <uint32_t FORM>
SC_DEVICE void rows_score(const sc_cuda_score &what, const TensorLay &lay, const Pair &pair,
                          const uint16_t *keys, uint32_t key_count, float score[PRODUCTS][4])
{
    uint32_t lane = threadIdx.x % SC_CUDA_WARP, own = lane % 4 * SC_CUDA_RUN;
    const uint16_t *key = keys + lane / 4 * lay.stride;
    float scale = __fmul_rn(what.scale, LOG2_E);
#pragma unroll 1
    for (uint32_t first = 0; first < lay.channels;
         first += STEP_CHANNELS) { /* equally often in all lanes */
        uint32_t c = first + own;
        Words2 word;
#pragma unroll
        for (uint32_t r = 0; r < 2; r++)
            words_put(r,
                      pair.at[r] != nullptr
                          ? run_bits(pair.at[r] + c * 2, 2, channels_left(what, c))
                          : uint4{0, 0, 0, 0},
                      word);
        step_add<FORM>(lay, key + c, key_count, word, word, score);
    }
#pragma unroll
    for (uint32_t n = 0; n < PRODUCTS; n++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            score[n][i] = __fmul_rn(score[n][i], scale);
}

/* Computes the lane's scores, by all lanes of a warp: score[n][2 r + j] of vector g + 8 r and key 8
 * n + 2 t + j. Scores beyond the piece's keys are undefined and do not affect others. */
SC_DEVICE void piece_scores(const sc_cuda_score &what, const TensorLay &lay, const KeyTile &piece,
                            const Pair &pair, const uint16_t *keys, const float *factor,
                            const float *middle, uint32_t slab, float score[PRODUCTS][4])
{
#pragma unroll
    for (uint32_t n = 0; n < PRODUCTS; n++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            score[n][i] = 0;
    if (is_quantised(what, piece) && is_by_eight(what))
        quant_score<true>(what, lay, pair, keys, piece.count, factor, middle,
                          whole_of(what.slabs[slab].bits), score);
    else if (is_quantised(what, piece))
        quant_score<false>(what, lay, pair, keys, piece.count, factor, middle,
                           whole_of(what.slabs[slab].bits), score);
    else if (what.queries.dtype == SC_CUDA_F16)
        rows_score<HALVES>(what, lay, pair, keys, piece.count, score);
    else
        rows_score<BRAINS>(what, lay, pair, keys, piece.count, score);
}

/* ---- Maximum and sum ----------------------------------------------------------------------- */

/* Computes the softmax of vector g + 8 r over the `seen` first keys; equal in all its lanes. */
SC_DEVICE Soft vector_soften(const float score[PRODUCTS][4], uint32_t r, uint32_t seen)
{
    Soft soft = {-INFINITE, 0};
    uint32_t own = threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t n = 0; n < PRODUCTS; n++)
#pragma unroll
        for (uint32_t j = 0; j < 2; j++)
            if (n * COLUMNS_EACH + own + j < seen)
                soft.best = greater(soft.best, score[n][2 * r + j]);
    soft.best = quad_greatest(soft.best);
    float base = base_of(soft.best);
#pragma unroll
    for (uint32_t n = 0; n < PRODUCTS; n++)
#pragma unroll
        for (uint32_t j = 0; j < 2; j++)
            if (n * COLUMNS_EACH + own + j < seen)
                soft.sum = __fadd_rn(soft.sum, exp2_of(__fadd_rn(score[n][2 * r + j], -base)));
    soft.sum = quad_sum(soft.sum);
    return soft;
}

/* best, sum: of the warp's vectors, which it has in all pieces */
SC_DEVICE void piece_soften(const sc_cuda_score &what, const KeyTile &piece, uint32_t vector,
                            uint32_t count, const float score[PRODUCTS][4], float *best, float *sum)
{
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t v = threadIdx.x % SC_CUDA_WARP / 4 + 8 * r, seen = piece.count;
        if (piece.is_fresh && v < count) {
            uint32_t all = seen_of(what, vector + v);
            seen = all > piece.first ? lesser(all - piece.first, piece.count) : 0;
        }
        Soft soft = vector_soften(score, r, seen);
        if (threadIdx.x % 4 == 0 && v < count) {
            soft = soft_join(Soft{best[v], sum[v]}, soft);
            best[v] = soft.best;
            sum[v] = soft.sum;
        }
    }
}

/* grid: as for score_best */
SC_KERNEL_BESIDE(sc_cuda_score_best_tensor, sc_cuda_score, SC_CUDA_SCORE_THREADS, TENSOR_BESIDE)
{
    SC_SHARED(uint16_t, keys, KEY_HALVES);
    SC_SHARED(float, factor, SC_CUDA_SCORE_HEAD);
    SC_SHARED(float, middle, SC_CUDA_SCORE_HEAD);
    SC_SHARED(float, best, SC_CUDA_SCORE_VECTORS);
    SC_SHARED(float, sum, SC_CUDA_SCORE_VECTORS);
    Lay tiles_as = lay_of(what);
    TensorLay lay = tensor_lay_of(what);
    uint32_t head = what.head_first + blockIdx.x, warp = threadIdx.x / SC_CUDA_WARP;
    uint32_t begin = blockIdx.y * SC_CUDA_SCORE_VECTORS;
    uint32_t end = lesser(vectors_of(what), begin + SC_CUDA_SCORE_VECTORS);
    uint32_t tiles = tiles_of(what.prefix.count, tiles_as) + tiles_of(what.fresh.count, tiles_as);
    uint32_t tile_end = lesser(tiles, (blockIdx.z + 1) * what.tiles_each);
    for (uint32_t v = threadIdx.x; v < SC_CUDA_SCORE_VECTORS; v += SC_CUDA_SCORE_THREADS) {
        best[v] = -INFINITE;
        sum[v] = 0;
    }
#pragma unroll 1
    for (uint32_t t = blockIdx.z * what.tiles_each; t < tile_end; t++) {
        KeyTile tile = tile_of(what, tiles_as, t);
        if (tile.is_fresh && seen_of(what, end - 1) <= tile.first)
            break; /* no vector sees this tile or later ones */
        uint32_t slab = is_quantised(what, tile) ? slab_find(what, tile.first) : 0;
        KeyTile piece = {};
#pragma unroll 1
        for (uint32_t at = tile.first; at < tile.first + tile.count; at += piece.count, slab++) {
            piece = piece_of(what, tile, at, slab);
            __syncthreads();
            piece_load(what, lay, head, piece, slab, keys, factor, middle);
            __syncthreads();
#pragma unroll 1
            for (uint32_t v = begin + warp * WARP_VECTORS; v < end; v += WARPS * WARP_VECTORS) {
                uint32_t count = lesser(end - v, WARP_VECTORS);
                float score[PRODUCTS][4];
                if (piece.is_fresh && seen_of(what, v + count - 1) <= piece.first)
                    continue;
                piece_scores(what, lay, piece, pair_of(what, head, v, count), keys, factor, middle,
                             slab, score);
                piece_soften(what, piece, v, count, score, best + (v - begin), sum + (v - begin));
            }
        }
    }
    __syncthreads();
    float *stats = stats_of(what, blockIdx.x, gridDim.z, blockIdx.z);
    for (uint32_t v = begin + threadIdx.x; v < end; v += SC_CUDA_SCORE_THREADS)
        sc_store8(stats + v * 2ull,
                  uint2{__float_as_uint(best[v - begin]), __float_as_uint(sum[v - begin])});
}

/* ---- Columns -------------------------------------------------------------------------------- */

/* column[n][j] += shares of the lane's vectors. stats: of the first of them */
SC_DEVICE void pair_add(const float *stats, uint32_t count, const float score[PRODUCTS][4],
                        float column[PRODUCTS][2])
{
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t v = threadIdx.x % SC_CUDA_WARP / 4 + 8 * r;
        if (v >= count)
            continue;
        uint2 word = sc_load8(stats + v * 2);
        float base = __uint_as_float(word.x), share = __uint_as_float(word.y);
#pragma unroll
        for (uint32_t n = 0; n < PRODUCTS; n++)
#pragma unroll
            for (uint32_t j = 0; j < 2; j++)
                column[n][j] =
                    __fmaf_rn(exp2_of(__fadd_rn(score[n][2 * r + j], -base)), share, column[n][j]);
    }
}

/* Sums all vectors of the warp, lanes by a butterfly, to shares [key]. */
SC_DEVICE void columns_keep(const float column[PRODUCTS][2], float *shares)
{
    uint32_t lane = threadIdx.x % SC_CUDA_WARP;
#pragma unroll
    for (uint32_t n = 0; n < PRODUCTS; n++)
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            float sum = column[n][j];
#pragma unroll
            for (uint32_t step = 4; step < SC_CUDA_WARP; step *= 2)
                sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, step));
            if (lane < 4)
                shares[n * COLUMNS_EACH + lane * 2 + j] = sum;
        }
}

/* grid: as for score_columns */
SC_KERNEL_BESIDE(sc_cuda_score_columns_tensor, sc_cuda_score, SC_CUDA_SCORE_THREADS, TENSOR_BESIDE)
{
    SC_SHARED(uint16_t, keys, KEY_HALVES);
    SC_SHARED(float, factor, SC_CUDA_SCORE_HEAD);
    SC_SHARED(float, middle, SC_CUDA_SCORE_HEAD);
    SC_SHARED(float, shares, WARPS *SC_CUDA_SCORE_KEYS);
    Lay tiles_as = lay_of(what);
    TensorLay lay = tensor_lay_of(what);
    KeyTile tile = tile_of(what, tiles_as, blockIdx.z);
    uint32_t head = what.head_first + blockIdx.x, vectors = vectors_of(what);
    uint32_t splits = splits_of(what, tiles_as), warp = threadIdx.x / SC_CUDA_WARP;
    const float *stats = stats_of(what, blockIdx.x, splits, splits);
    float *sums = what.sums + (uint64_t)blockIdx.x * what.prefix.count;
    uint32_t slab = is_quantised(what, tile) ? slab_find(what, tile.first) : 0;
    KeyTile piece = {};
#pragma unroll 1
    for (uint32_t at = tile.first; at < tile.first + tile.count; at += piece.count, slab++) {
        piece = piece_of(what, tile, at, slab);
        float column[PRODUCTS][2] = {};
        __syncthreads(); /* sums of the last piece were read */
        piece_load(what, lay, head, piece, slab, keys, factor, middle);
        __syncthreads();
#pragma unroll 1
        for (uint32_t v = warp * WARP_VECTORS; v < vectors; v += WARPS * WARP_VECTORS) {
            uint32_t count = lesser(vectors - v, WARP_VECTORS);
            float score[PRODUCTS][4];
            piece_scores(what, lay, piece, pair_of(what, head, v, count), keys, factor, middle,
                         slab, score);
            pair_add(stats + v * 2ull, count, score, column);
        }
        columns_keep(column, shares + warp * SC_CUDA_SCORE_KEYS);
        __syncthreads();
        for (uint32_t key = threadIdx.x; key < piece.count; key += SC_CUDA_SCORE_THREADS) {
            float all = 0;
            for (uint32_t w = 0; w < WARPS; w++)
                all = __fadd_rn(all, shares[w * SC_CUDA_SCORE_KEYS + key]);
            sc_store4(sums + piece.first + key, __float_as_uint(all));
        }
    }
}
