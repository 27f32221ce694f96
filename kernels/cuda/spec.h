/* spec: kernel parameters, shared by CPU (C11) and device (CUDA C++) code and passed by value.
 *
 *   kernel                    does   (in brackets: its reference, sc_kernels_*)
 *   sc_cuda_rows_place        packed rows to a memory; widens 16 bits to float32 (rows_unpack)
 *   sc_cuda_rows_pack         a memory's rows to packed rows (rows_pack)
 *   sc_cuda_codec_decode      uniformly quantised rows (codec.h) to a memory (part_decode)
 *   sc_cuda_bitplanes_decode  per-channel quantised rows (bitplanes.h) to a memory (part_decode)
 *   sc_cuda_score_best        softmax of queries over plain or quantised keys: maximum and sum
 *   sc_cuda_score_join        joins the splits of the keys
 *   sc_cuda_score_columns     column sums over the prefix keys of a KV head (importance)
 *   sc_cuda_score_total       sums over several heads (importance_sum)
 *   sc_cuda_score_best_tensor, sc_cuda_score_columns_tensor
 *                             the same by tensor cores, if sc_cuda_score_has_tensor
 *
 * Every pointer is device-accessible: device memory, or pinned host memory by its device address.
 * They are passed as pointers, because ones rebuilt from integers have no known address space (LD,
 * not LDG). Tables are in such memory too and do not change while the kernel runs.
 *
 * Invariants: results have the same bits as ref/, NaN payloads included, except sums. Sums are
 * within 1e-5 of the largest, and the same in every run. Only bytes of a token's K and V are
 * written; only rows, codes, scales, rotations and tables are read. The order of threads has no
 * effect if no two tokens share a slot. kernels/cuda/launch.h checks arguments.
 * Tests: tests/unit/kernels/test_cuda_rows.c, test_cuda_codec.c, test_cuda_bitplanes.c,
 * test_cuda_importance.c, test_cuda_tensor.c */
#ifndef SC_KERNELS_CUDA_SPEC_H
#define SC_KERNELS_CUDA_SPEC_H

#if defined(__CUDACC__) || defined(__CUDA__) || defined(SC_EMULATED)
#include "kernels/cuda/port.h"
#else
#include <stdint.h>
#endif

/* The first types of enum sc_kernels_dtype, under its numbers. numbers.h has no others; launch.c
 * refuses them. */
enum sc_cuda_dtype { SC_CUDA_F32, SC_CUDA_F16, SC_CUDA_BF16, SC_CUDA_DTYPES };

#define SC_CUDA_K 1u /* parts, as bits */
#define SC_CUDA_V 2u

struct sc_cuda_part {
    uint8_t *base;
    uint64_t token_stride_bytes;
    uint64_t element_stride_bytes; /* the element's size, except for K in columns */
};

/* struct sc_kernels_memory with all defaults resolved. */
struct sc_cuda_memory {
    struct sc_cuda_part parts[2]; /* K, V */
    uint64_t head_stride_bytes;
    uint64_t block_tokens, block_stride_bytes; /* block_tokens 0: no blocks */
    const int64_t *slots;                      /* [tokens]; NULL: identity; negative: skipped */
};

/* Rows: [head_count, head_size elements] of each of `parts`, K first, at any address, of tokens in
 * any order. The memory's bases and strides are multiples of its elements. A warp handles a part of
 * a row. */
struct sc_cuda_rows {
    struct sc_cuda_memory memory;
    uint8_t *const *at;     /* [row_count]; NULL: rows + i * row_stride_bytes */
    const uint32_t *tokens; /* [row_count]; NULL: token_first + i */
    uint8_t *rows;
    uint64_t row_stride_bytes;
    uint64_t token_first;
    uint32_t row_count, head_count, head_size;
    uint32_t parts;                      /* SC_CUDA_K, SC_CUDA_V or both */
    uint32_t element_bytes, there_bytes; /* 1, 2 or 4; there_bytes: the memory's, 4 if widened */
    uint32_t dtype;                      /* of rows to be widened: f16 or bf16 */
};

/* Codes of one part of a slab, or of some of its rows: row i is token token_first + i. */
struct sc_cuda_codec_slab {
    const uint8_t *scales, *codes; /* at any address; codes of the first row */
    uint64_t token_first;
    uint32_t row_count;
    uint16_t part, bits; /* part 0: K, 1: V;  bits 2 3 4 5 6 8 */
};

/* grid: (slabs, tiles of SC_CUDA_TILE units, ceil(most rows of a slab / rows_each)) */
struct sc_cuda_codec {
    struct sc_cuda_memory memory;
    const struct sc_cuda_codec_slab *slabs; /* [gridDim.x] */
    const uint64_t *skipped;               /* bits of tokens that are not written; NULL: none */
    uint32_t head_count, head_size, dst_dtype, rows_each;
};

/* ---- Per-channel bits ---------------------------------------------------------------------------
 *
 * A *unit* is two *runs* of up to 8 channels of a head, each inside a group. If keys are rotated by
 * halves, one run has the partners of the other, so threads exchange nothing. A *table* is
 *
 *   [struct sc_cuda_bitplanes_table][struct sc_cuda_unit x unit_count]
 *   [struct sc_cuda_unit_plane x unit_count] for each plane from 0 to 7
 *
 * made by sc_cuda_bitplanes_table_make. Tables of the same shape and rotation have the same units.
 */
#define SC_CUDA_RUN  8u  /* maximum channels of a run */
#define SC_CUDA_UNIT 16u /* maximum channels of a unit */

enum sc_cuda_rope { SC_CUDA_STILL, SC_CUDA_HALF, SC_CUDA_INTERLEAVED };

struct sc_cuda_bitplanes_table {
    uint32_t unit_count;
    uint32_t row_bytes;
    uint32_t turned; /* channels of a head; 0: no rotation */
    uint32_t end;    /* planes from this one on are empty */
};

struct sc_cuda_unit {
    uint16_t head;
    uint8_t first[2], count[2]; /* channels of the head; count 0: no run */
    uint8_t rope_kind;          /* enum sc_cuda_rope: pairs across runs 0 and 1, or inside runs */
    uint8_t reserved;
    uint32_t to[2]; /* bits of each channel, 4 bits a channel */
};

/* Location of a run's bits of a plane in a row. `where` is [byte << 8 | bit << 4 | count], or 0 if
 * there are none. `select` has 4 bits for each channel: the index of its bit, or 7, which is then
 * unused, for none. */
struct sc_cuda_unit_plane {
    uint32_t where[2], select[2];
};

/* Codes of one part of a slab, or of some of its rows: row i is token token_first + i. */
struct sc_cuda_bitplanes_slab {
    const struct sc_cuda_bitplanes_table *table; /* 16-byte aligned */
    const uint8_t *scales, *codes;            /* at any address */
    const float *rope; /* [row_count][table->turned]: cos and sin, as in rotary.h */
    uint64_t token_first;
    uint32_t row_count;
    uint32_t part;
};

/* grid: as for sc_cuda_codec */
struct sc_cuda_bitplanes {
    struct sc_cuda_memory memory;
    const struct sc_cuda_bitplanes_slab *slabs; /* [gridDim.x] */
    const uint64_t *skipped;
    uint32_t head_count, head_size, dst_dtype, rows_each;
};

/* ---- Scores -------------------------------------------------------------------------------------
 *
 * Query vector v of a KV head is row v / group, head v % group of its group. A *tile* is
 * SC_CUDA_SCORE_KEYS keys (half of them for long heads) of the prefix or of the fresh keys. A
 * *split* is tiles_each tiles, prefix first.
 *
 *   score_best     {maximum score, sum of 2^(score - maximum)} of each split and vector, to stats
 *   score_join     joins a vector's splits in order
 *   score_columns  sums[head][key] = shares of the vectors, in order
 *   score_total    total[key] = sums of the heads, in order
 *
 * They run in this order on one stream. Scores are in base 2, as in kernels/importance.c.
 * score_best and score_columns both use tensor cores, or neither does: their scores differ in the
 * last bits. */

/* Quantised consecutive keys in either format, from key_first to the next slab. */
struct sc_cuda_score_slab {
    const struct sc_cuda_bitplanes_table *table; /* per-channel bits; nullptr: all have `bits` */
    const uint8_t *scales, *codes;               /* at any address; codes of key_first */
    const float *rope;  /* [rows][table->turned]; unused without rotation */
    uint32_t key_first; /* ascending from 0 */
    uint32_t bits;
};

struct sc_cuda_score_queries {
    const uint8_t *data; /* q[i][g] at i * row_stride_bytes + g * head_stride_bytes, any address */
    uint64_t row_stride_bytes, head_stride_bytes;
    uint32_t row_count, dtype;
};

struct sc_cuda_score_keys {
    struct sc_cuda_memory memory; /* only K; no slot of the keys is negative */
    uint32_t count, dtype;
};

struct sc_cuda_score {
    struct sc_cuda_score_queries queries;
    struct sc_cuda_score_keys prefix; /* memory and dtype are used if slab_count is 0 */
    /* count 0: none. Else >= row_count: row i sees fresh keys 0 .. count - row_count + i. */
    struct sc_cuda_score_keys fresh;
    const struct sc_cuda_score_slab *slabs; /* [slab_count] */
    float *stats; /* [head_count][splits + 1][vector][2], 8-byte aligned; scratch */
    float *sums;  /* [head_count][prefix.count], written by score_columns */
    float *total; /* [prefix.count], written by score_total */
    uint32_t slab_count;
    uint32_t code_heads;             /* heads of a slab's row: all KV heads */
    uint32_t head_first, head_count; /* KV heads to score */
    uint32_t head_size, group;
    uint32_t row_first;  /* first query row; metric `last`: row_count - 1 */
    uint32_t tiles_each; /* at least 1 */
    float scale;
};

#define SC_CUDA_SCORE_KEYS     64u  /* keys of a tile */
#define SC_CUDA_SCORE_CHANNELS 128u /* maximum head_size with full tiles */
#define SC_CUDA_SCORE_HEAD     256u /* maximum head_size */
#define SC_CUDA_SCORE_VECTORS  256u /* maximum vectors of a score_best block */

#define SC_CUDA_TILE           64u /* units of a decoder block */
#define SC_CUDA_DECODE_THREADS 128u
#define SC_CUDA_ROWS_THREADS   256u
#define SC_CUDA_SCORE_THREADS  128u
#define SC_CUDA_WARP           32u

/* X(kernel, its parameter, threads of a block): the driver looks the names up. */
#define SC_CUDA_KERNELS(X)                                                                         \
    X(sc_cuda_rows_place, struct sc_cuda_rows, SC_CUDA_ROWS_THREADS)                               \
    X(sc_cuda_rows_pack, struct sc_cuda_rows, SC_CUDA_ROWS_THREADS)                                \
    X(sc_cuda_codec_decode, struct sc_cuda_codec, SC_CUDA_DECODE_THREADS)                          \
    X(sc_cuda_bitplanes_decode, struct sc_cuda_bitplanes, SC_CUDA_DECODE_THREADS)                  \
    X(sc_cuda_score_best, struct sc_cuda_score, SC_CUDA_SCORE_THREADS)                             \
    X(sc_cuda_score_join, struct sc_cuda_score, SC_CUDA_SCORE_THREADS)                             \
    X(sc_cuda_score_columns, struct sc_cuda_score, SC_CUDA_SCORE_THREADS)                          \
    X(sc_cuda_score_total, struct sc_cuda_score, SC_CUDA_SCORE_THREADS)                            \
    X(sc_cuda_score_best_tensor, struct sc_cuda_score, SC_CUDA_SCORE_THREADS)                      \
    X(sc_cuda_score_columns_tensor, struct sc_cuda_score, SC_CUDA_SCORE_THREADS)

#endif
