/* What the CPU and the kernels both see: parameters, passed by value. C11 and CUDA C++.
 *
 *   kernel                 does  (in brackets: who judges it, of sc_kernels_)
 *   sc_cuda_rows_place     packed rows to a memory; widens 16 bits to float32 (rows_unpack)
 *   sc_cuda_rows_pack      a memory's rows, packed (rows_pack)
 *   sc_cuda_codec_decode    codes of even widths (codec.h) to a memory (part_decode)
 *   sc_cuda_bitplanes_decode  codes of free widths (bitplanes.h) to a memory (part_decode)
 *   sc_cuda_score_best     softmax of queries over keys, of rows or codes: greatest and sum
 *   sc_cuda_score_join     of all splits of the keys
 *   sc_cuda_score_columns  then column sums over the prefix keys, a KV head's (importance)
 *   sc_cuda_score_total    and those of several heads, added (importance_sum)
 *   sc_cuda_score_best_tensor, sc_cuda_score_columns_tensor
 *                          the same by tensor cores, where sc_cuda_score_has_tensor says so
 *
 * Every pointer is one that the device can follow: device memory, or pinned memory of the CPU's by
 * its device address. They stay pointers: rebuilt from integers they would be loads of no known
 * address space (LD, not LDG). What is not a parameter but a table lies in such memory too, and is
 * not written while the kernel runs.
 *
 * Holds: the same bits as ref/, NaN payloads too, but of sums, which are within 1e-5 of the largest
 * and the same in every run; no byte outside of what a token's K and V cover
 * is written; nothing outside of rows, codes, scales, turns and tables is read. The order of
 * threads changes nothing, where no two tokens have the same slot. Does not: check
 * (sc_cuda_memory_of and those beside it in kernels/cuda/launch.h do). Tests:
 * tests/unit/kernels/test_cuda_rows.c, test_cuda_codec.c, test_cuda_bitplanes.c,
 * test_cuda_importance.c, test_cuda_tensor.c */
#ifndef SC_KERNELS_CUDA_SPEC_H
#define SC_KERNELS_CUDA_SPEC_H

#if defined(__CUDACC__) || defined(__CUDA__) || defined(SC_EMULATED)
#include "kernels/cuda/port.h"
#else
#include <stdint.h>
#endif

enum sc_cuda_dtype { SC_CUDA_F32, SC_CUDA_F16, SC_CUDA_BF16 }; /* enum sc_kernels_dtype */

#define SC_CUDA_K 1u /* parts, as bits */
#define SC_CUDA_V 2u

struct sc_cuda_part {
    uint8_t *base;
    uint64_t token_stride_bytes;
    uint64_t element_stride_bytes; /* an element's bytes, but of K in columns */
};

/* struct sc_kernels_memory, with nothing left to be filled in. */
struct sc_cuda_memory {
    struct sc_cuda_part parts[2]; /* K, V */
    uint64_t head_stride_bytes;
    uint64_t block_tokens, block_stride_bytes; /* block_tokens 0: no blocks */
    const int64_t *slots;                      /* [tokens]; NULL: identity; negative: skipped */
};

/* Rows
 *   [head_count, head_size elements] of each of `parts`, K first
 * at any address (the memory's bases and strides are multiples of its elements), of tokens that
 * have no order. A warp has a part of a row at a time. */
struct sc_cuda_rows {
    struct sc_cuda_memory memory;
    uint8_t *const *at;     /* [row_count]; NULL: rows + i * row_stride_bytes */
    const uint32_t *tokens; /* [row_count]; NULL: token_first + i */
    uint8_t *rows;
    uint64_t row_stride_bytes;
    uint64_t token_first;
    uint32_t row_count, head_count, head_size;
    uint32_t parts;                      /* SC_CUDA_K, SC_CUDA_V or both */
    uint32_t element_bytes, there_bytes; /* 1, 2 or 4; of the memory 4 where 2 are widened */
    uint32_t dtype;                      /* of the rows, where they are: f16 or bf16 */
};

/* Codes of one part of a slab, or of some rows of it: row i is token token_first + i. */
struct sc_cuda_codec_slab {
    const uint8_t *scales, *codes; /* at any address; codes at the first of the rows */
    uint64_t token_first;
    uint32_t row_count;
    uint16_t part, bits; /* 0: K, 1: V;  2 3 4 5 6 8 */
};

/* grid: (slabs, tiles of SC_CUDA_TILE units, ceil(most rows of a slab / rows_each)) */
struct sc_cuda_codec {
    struct sc_cuda_memory memory;
    const struct sc_cuda_codec_slab *slabs; /* [gridDim.x] */
    const uint64_t *skipped;               /* bits of tokens that are not written; NULL: none */
    uint32_t head_count, head_size, dst_dtype, rows_each;
};

/* ---- Free widths ------------------------------------------------------------------------------
 *
 * A *unit* is two *runs* of up to 8 channels of a head, inside a group each. Where keys turn by
 * halves one run has the partners of the other: no thread needs what another one has. A *table* is
 *
 *   [struct sc_cuda_bitplanes_table][struct sc_cuda_unit x unit_count]
 *   [struct sc_cuda_unit_plane x unit_count] for each plane from 0 to 7
 *
 * made by sc_cuda_bitplanes_table_make; its units are those of any other table of the same shape
 * and the same turn. */
#define SC_CUDA_RUN  8u  /* channels of a run, at most */
#define SC_CUDA_UNIT 16u /* of a unit */

enum sc_cuda_rope { SC_CUDA_STILL, SC_CUDA_HALF, SC_CUDA_INTERLEAVED };

struct sc_cuda_bitplanes_table {
    uint32_t unit_count;
    uint32_t row_bytes;
    uint32_t turned; /* channels of a head; 0: nothing turns */
    uint32_t end;    /* planes from here on are empty */
};

struct sc_cuda_unit {
    uint16_t head;
    uint8_t first[2], count[2]; /* channels of the head; a run of none: 0 */
    uint8_t rope_kind;          /* enum sc_cuda_rope: run 0 with run 1, or pairs inside of runs */
    uint8_t reserved;
    uint32_t to[2]; /* bits of a code with those before: 4 bits a channel */
};

/* Where a run's bits of a plane are in a row: `where` is [byte << 8 | bit << 4 | how many], 0 where
 * there are none, and
 * `select` has for each channel, 4 bits, which of them is its own; 7, which is then none: no one.
 */
struct sc_cuda_unit_plane {
    uint32_t where[2], select[2];
};

/* Codes of one part of a slab, or of some rows of it: row i is token token_first + i. */
struct sc_cuda_bitplanes_slab {
    const struct sc_cuda_bitplanes_table *table; /* 16-byte aligned */
    const uint8_t *scales, *codes;            /* at any address */
    const float *rope; /* [row_count][table->turned], cos and sin, as rotary.h has them */
    uint64_t token_first;
    uint32_t row_count;
    uint32_t part;
};

/* grid: as sc_cuda_codec's */
struct sc_cuda_bitplanes {
    struct sc_cuda_memory memory;
    const struct sc_cuda_bitplanes_slab *slabs; /* [gridDim.x] */
    const uint64_t *skipped;
    uint32_t head_count, head_size, dst_dtype, rows_each;
};

/* ---- Scores -----------------------------------------------------------------------------------
 *
 * Query vector v of a KV head is row v / group, head v % group of its group. A *tile* is some keys
 * of the prefix (SC_CUDA_SCORE_KEYS, of long heads half of them), or of the fresh ones; a *split*
 * tiles_each tiles, prefix first.
 *
 *   score_best     {greatest score, sum of 2^(score - greatest)} of each split and vector, to stats
 *   score_join     a vector's splits, joined in their order
 *   score_columns  sums[head][key] = shares of the vectors, in order
 *   score_total    total[key] = sums of the heads, in order
 *
 * one behind the other on one stream. Scores are in base 2, as in kernels/importance.c. The first
 * and the third by tensor cores or not, both the same way: their scores differ in the last bits. */

/* Codes of consecutive keys, of either kind: from key_first to where the next slab begins. */
struct sc_cuda_score_slab {
    const struct sc_cuda_bitplanes_table *table; /* of free widths; nullptr: all have `bits` */
    const uint8_t *scales, *codes;            /* at any address; codes at key_first */
    const float *rope;  /* [rows][table->turned]; not read where nothing turns */
    uint32_t key_first; /* ascending from 0 */
    uint32_t bits;
};

struct sc_cuda_score_queries {
    const uint8_t *data; /* q[i][g] at i * row_stride_bytes + g * head_stride_bytes, any address */
    uint64_t row_stride_bytes, head_stride_bytes;
    uint32_t row_count, dtype;
};

struct sc_cuda_score_keys {
    struct sc_cuda_memory memory; /* its K; no slot of theirs is negative */
    uint32_t count, dtype;
};

struct sc_cuda_score {
    struct sc_cuda_score_queries queries;
    struct sc_cuda_score_keys prefix;       /* memory and dtype: where slab_count is 0 */
    struct sc_cuda_score_keys fresh;        /* count 0: none; else at least row_count: row i sees
                                             * 0 .. count - row_count + i */
    const struct sc_cuda_score_slab *slabs; /* [slab_count] */
    float *stats; /* [head_count][splits + 1][vector][2], 8-byte aligned; scratch */
    float *sums;  /* [head_count][prefix.count], score_columns writes */
    float *total; /* [prefix.count], score_total writes */
    uint32_t slab_count;
    uint32_t code_heads;             /* of a slab's row: all KV heads */
    uint32_t head_first, head_count; /* KV heads that are scored */
    uint32_t head_size, group;
    uint32_t row_first;  /* of the queries; metric `last`: row_count - 1 */
    uint32_t tiles_each; /* at least 1 */
    float scale;
};

#define SC_CUDA_SCORE_KEYS     64u  /* of a tile */
#define SC_CUDA_SCORE_CHANNELS 128u /* of a head, at most, whose tile has so many */
#define SC_CUDA_SCORE_HEAD     256u /* channels of a head, at most */
#define SC_CUDA_SCORE_VECTORS  256u /* that a block of score_best has, at most */

#define SC_CUDA_TILE           64u /* units that a block of a decoder has */
#define SC_CUDA_DECODE_THREADS 128u
#define SC_CUDA_ROWS_THREADS   256u
#define SC_CUDA_SCORE_THREADS  128u
#define SC_CUDA_WARP           32u

/* X(kernel, its one parameter, threads of a block): what a driver looks up, and checks. */
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
