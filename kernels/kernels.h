/* Numeric kernels behind one table, chosen once at run time: ref/ plain C, cpu/ AVX2 and AVX-512.
 *
 *   packed row  [K: head 0 .. head H-1][V: head 0 .. head H-1]   head_size elements a head
 *   memory      slot -> base + (slot / block) * block stride + (slot % block) * token stride
 *                            + head * head stride                (struct spec_memory)
 *               V's strides may be its own, and K's elements strided: columns.h
 *
 * Holds: every rung writes the same bits as ref/ where it moves, orders or widens; scores may
 * differ in their last bits (each rung always adds in the same order); no byte outside outputs is
 * written. Does not: check addresses (plugin/args/memory.c did), allocate, choose threads. Threads:
 * any. Tests: tests/unit/kernels/: test_rows.c, test_columns.c, test_widen.c, test_importance.c,
 * test_topk.c */
#ifndef SC_KERNELS_KERNELS_H
#define SC_KERNELS_KERNELS_H

#include "kernels/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sc_kernels_codec;
struct sc_kernels_codec_decode;
struct sc_kernels_codec_score;
struct sc_kernels_bitplanes_encode;
struct sc_kernels_bitplanes_decode;
struct sc_kernels_bitplanes_score;

/* Rungs of the ladder; a machine runs the highest that it has. */
enum sc_kernels_level { SC_KERNELS_REF, SC_KERNELS_AVX2, SC_KERNELS_AVX512, SC_KERNELS_LEVELS };

enum sc_kernels_keys_are {
    SC_KERNELS_KEYS_PLAIN,  /* scores; the key is the score's bits: no NaN, no sign */
    SC_KERNELS_KEYS_SCORES, /* scores; the key is sc_kernels_order_of */
    SC_KERNELS_KEYS_KEYS    /* keys themselves */
};

/* One pass over entries: how many keys lie above `high`, and which lie in [low, high]. */
struct sc_kernels_sift {
    const void *from;      /* [count] scores (float) or keys (uint32_t) */
    const uint64_t *among; /* NULL: all; else a bit an entry, the others take no part */
    uint64_t count;
    enum sc_kernels_keys_are keys_are;
    uint32_t low, high;
    uint32_t *kept; /* [kept_max + SC_KERNELS_KEPT_AHEAD] */
    uint64_t kept_max;
};
struct sc_kernels_sifted {
    uint64_t above, inside;
    uint32_t strange; /* of plain: not 0: some bits (of any entry) are no plain key's; the counts
                       * mean nothing then */
    /* kept: key - low of the first kept_max keys inside, in their order */
};

/* The k-th key: those above it are in the set, and the first of those that equal it. */
struct sc_kernels_edge {
    enum sc_kernels_keys_are keys_are;
    uint32_t key;
    uint64_t equal_count; /* so many of them, counted down as they are met; UINT64_MAX: all */
};

/* scores[key * width + lane] = sum over t of keys[key * key_stride + t] * queries[t * width + lane]
 * Meanwhile the keys that are scored next are asked for, a line at a time, between multiply-adds:
 * memory is waited for while there is something to compute. */
struct sc_kernels_lanes_score {
    const float *queries, *keys;
    uint64_t width, key_stride, head_size, key_count;
    const uint8_t *const *next;    /* [SC_KERNELS_TILE_KEYS] rows, of which */
    uint64_t next_first, next_end; /* these bytes are asked for */
    float *scores; /* [SC_KERNELS_TILE_KEYS, width]; written up to any key behind key_count */
};

/* scores[v * score_stride + i] = sum over t of queries[v][t]
 *                                  * (rows[i] + byte_first + v * head_step)[t] */
struct sc_kernels_rows_score {
    const float *queries;       /* [query_count, head_size rounded up to 16], 0 behind head_size */
    const uint8_t *const *rows; /* [SC_KERNELS_FEW_KEYS] all of which can be read */
    const uint8_t *const *next; /* NULL, or as many whose lines are asked for meanwhile */
    uint64_t query_count, key_count, byte_first, head_size;
    uint64_t head_step; /* bytes: a query each of heads side by side, rows too; 0: of one head */
    uint32_t dtype;
    float *scores; /* of each query SC_KERNELS_FEW_KEYS, any behind key_count */
    uint64_t score_stride;
};

/* Rows to columns: element r of dst's column c = element c of src's row r. An element may be
 * written more than once, the same. */
struct sc_kernels_rope {
    uint8_t *dst;       /* [column_count], row_count elements each; nothing beside them */
    const uint8_t *src; /* [row_count], column_count elements each */
    uint64_t dst_stride, src_stride; /* bytes */
    uint64_t row_count, column_count;
    bool streams; /* whole lines of dst may go past the caches; sc_nt_copy_end is the caller's */
};

struct sc_kernels {
    /* dst[i] = (float)src[i], exact (dtype.h).  src, dst [count] */
    void (*widen)(float *dst, const uint8_t *src, uint64_t count, uint32_t dtype);

    /* Elements of 2 or 4 bytes. */
    void (*rope16)(const struct sc_kernels_rope *what);
    void (*rope32)(const struct sc_kernels_rope *what);

    /* Scoring a tile of keys, which are rows of float32, key_stride apart; SC_KERNELS_TILE_KEYS of
     * them can be read (what lies behind key_count takes no part in any result).
     *
     *   many queries   [key][lane], lane = query; width lanes, a multiple of lane_unit, at most
     *                  lane_most: exp and maxima run down a lane, no key is moved
     *   few queries    [key], one query's after another's */
    uint64_t lane_unit, lane_most;
    /* dst [count, head_size rounded up to 16] = rows as float32, 0 behind head_size. Up to
     * rows[count + SC_KERNELS_AHEAD_KEYS - 1] are there, whose bytes are asked for ahead. */
    void (*rows_widen)(float *dst, const uint8_t *const *rows, uint64_t count, uint64_t head_size,
                       uint32_t dtype);
    void (*lanes_score)(const struct sc_kernels_lanes_score *what);
    /* One step of the softmax down each lane, in base 2: best = max(best, scores),
     * scores = 2^(score - best), sums = sums * 2^(old best - best) + their sum. Where seen is not
     * NULL, lane sees keys 0 .. seen[lane] - 1 alone; the others' scores become 0. best, sums
     * [width], in and out; before the first step: -infinity and 0 */
    void (*lanes_soften)(float *scores, uint64_t width, uint64_t key_count, const uint32_t *seen,
                         float *best, float *sums);
    /* weights[lane] = 2^(best_then - best) / sums, 0 from lane used on */
    void (*lanes_weigh)(const float *best_then, const float *best, const float *sums,
                        uint64_t width, uint64_t used, float *weights);
    /* dst[key] += sum over lanes of scores[key * width + lane] * weights[lane] */
    void (*lanes_fold)(const float *scores, uint64_t width, uint64_t key_count,
                       const float *weights, float *dst);
    /* A few queries, of rows as they are: bound by reading them. */
    void (*rows_score)(const struct sc_kernels_rows_score *what);
    /* The largest of scores and `floor`; NaN takes no part. */
    float (*few_best)(const float *scores, uint64_t count, float floor);
    /* scores[i] = 2^(scores[i] - best); returns their sum. */
    float (*few_soften)(float *scores, uint64_t count, float best);
    /* dst[i] += src[i] * factor */
    void (*accumulate)(float *dst, const float *src, float factor, uint64_t count);

    /* Choosing (kernels/order.h says what a key is). */
    void (*order_sift)(const struct sc_kernels_sift *sift, struct sc_kernels_sifted *ret_sifted);
    /* ret_keys[i]: the ranks[i]-th largest of keys, 1 <= ranks[i] <= count <= SC_KERNELS_RANKED. */
    void (*order_ranks)(const uint32_t *keys, uint64_t count, const uint64_t ranks[2],
                        uint32_t ret_keys[2]);
    /* Bits of the entries of `among` (NULL: all) that the edge lets into the set.
     *   from [count]  scores, or keys;  ret_bits [count / 64 rounded up]  written whole */
    void (*order_mark)(const void *from, const uint64_t *among, uint64_t count,
                       struct sc_kernels_edge *edge, uint64_t *ret_bits);
    /* Indexes of the bits that are set, ascending, `first` added to each; returns how many.
     *   ret_rows [room]  room >= the number of bits that are set */
    uint64_t (*bits_rows)(const uint64_t *bits, uint64_t word_count, uint32_t first,
                          uint32_t *ret_rows, uint64_t room);
    /* How many bits are set in both. */
    uint64_t (*bits_both)(const uint64_t *a, const uint64_t *b, uint64_t word_count);

    /* Coarse codes (codec.h). Codes a slab: rows[i] is the first channel of row i, row_count from 1
     * to SC_KERNELS_CODEC_ROWS_MAX. scales and codes are written whole, whatever is returned;
     * false: the slab has no codes (a value or a scale is not finite). */
    bool (*codec_encode)(const struct sc_kernels_codec *code, const uint8_t *const *rows,
                         uint64_t row_count, uint8_t *scales, uint8_t *codes);
    void (*codec_decode)(const struct sc_kernels_codec_decode *what);
    /* Scores of keys of a slab without decoding them (codec.h). */
    void (*codec_score)(const struct sc_kernels_codec_score *what);

    /* Codes of free widths (bitplanes.h), as the three above. */
    bool (*bitplanes_encode)(const struct sc_kernels_bitplanes_encode *what);
    void (*bitplanes_decode)(const struct sc_kernels_bitplanes_decode *what);
    void (*bitplanes_score)(const struct sc_kernels_bitplanes_score *what);
};

#define SC_KERNELS_TILE_KEYS  48u
#define SC_KERNELS_FEW_KEYS   16u  /* that rows_score takes at once */
#define SC_KERNELS_AHEAD_KEYS 24u  /* whose lines are asked for before they are needed */
#define SC_KERNELS_LANES_MAX  48u  /* lane_most of any rung */
#define SC_KERNELS_RANKED     256u /* keys that order_ranks ranks at most */
#define SC_KERNELS_KEPT_AHEAD 16u  /* keys that order_sift may write behind those it keeps */

/* The highest level this machine and operating system run (CPUID, XGETBV; no static state). */
enum sc_kernels_level sc_kernels_level_best(void);
/* The table of a level; level <= sc_kernels_level_best(). Never NULL, static memory. */
const struct sc_kernels *sc_kernels_get(enum sc_kernels_level level);

/* A struct spec_memory that was checked, with what the copy loops need. */
struct sc_kernels_memory {
    uint8_t *k_base, *v_base;
    uint64_t token_stride_bytes, head_stride_bytes;
    uint64_t block_tokens, block_stride_bytes; /* block_tokens 0: no blocks */
    const int64_t *slots;                      /* NULL: identity */
    uint64_t v_token_stride_bytes;             /* 0: as K's */
    uint64_t v_head_stride_bytes;              /* 0: as K's */
    uint64_t k_element_stride_bytes;           /* 0: a head's elements of K lie side by side */
    uint64_t element_bytes;                    /* of this memory; where the one above is not 0 */
};

/* Negative: the token has no place. */
static inline int64_t sc_kernels_slot_of(const struct sc_kernels_memory *memory, uint64_t token)
{
    return memory->slots != NULL ? memory->slots[token] : (int64_t)token;
}

/* Where a slot's K and V begin, from their bases. */
struct sc_kernels_offsets {
    uint64_t part[2];
};
static inline struct sc_kernels_offsets
sc_kernels_offsets_of(const struct sc_kernels_memory *memory, uint64_t slot)
{
    uint64_t v_stride = memory->v_token_stride_bytes, block = 0;
    v_stride = v_stride != 0 ? v_stride : memory->token_stride_bytes;
    if (memory->block_tokens != 0) {
        block = slot / memory->block_tokens * memory->block_stride_bytes;
        slot %= memory->block_tokens;
    }
    return (struct sc_kernels_offsets){
        {block + slot * memory->token_stride_bytes, block + slot * v_stride}};
}

static inline uint64_t sc_kernels_head_stride_of(const struct sc_kernels_memory *memory,
                                                 uint32_t part)
{
    bool is_own = part == 1 && memory->v_head_stride_bytes != 0;
    return is_own ? memory->v_head_stride_bytes : memory->head_stride_bytes;
}

static inline uint8_t *sc_kernels_base_of(const struct sc_kernels_memory *memory, uint32_t part)
{
    return part == 0 ? memory->k_base : memory->v_base;
}

/* How rows move between a memory and where they lie packed. Tokens [token_first, + token_count) of
 * the memory are consecutive rows
 *   [token_count, 2, head_count, head_size elements]   element_bytes each
 * or of one part alone, 0: K, 1: V,
 *   [token_count, head_count, head_size elements]
 * Where row_bytes is not 0, V's heads have the size head_size_v, and whole rows are so long:
 *   [token_count][K: head_count, head_size][V: head_count, head_size_v][zeros]  */
struct sc_kernels_move {
    const struct sc_kernels *kernels;
    const struct sc_kernels_memory *memory;
    uint64_t head_count;               /* packing: those of the memory, or the first of them */
    uint64_t head_size, element_bytes; /* of the rows */
    uint32_t dtype; /* enum sc_kernels_dtype, of the rows; where they become wider */
    bool widens;    /* unpacking: the memory has float32 */
    bool streams;   /* unpacking: stores go past the caches (base/nt_copy.h); the same bytes */
    uint64_t row_bytes, head_size_v; /* both 0: V's heads are K's size; row_bytes alone: no V */
};

/* dst: written whole. No slot is negative. */
void sc_kernels_rows_pack(const struct sc_kernels_move *how, uint64_t token_first,
                          uint64_t token_count, uint8_t *dst);
void sc_kernels_part_pack(const struct sc_kernels_move *how, uint32_t part, uint64_t token_first,
                          uint64_t token_count, uint8_t *dst);
/* The way back; negative slots are skipped. src_stride: bytes from token to token */
void sc_kernels_rows_unpack(const struct sc_kernels_move *how, uint64_t token_first,
                            uint64_t token_count, const uint8_t *src);
void sc_kernels_part_unpack(const struct sc_kernels_move *how, uint32_t part, uint64_t token_first,
                            uint64_t token_count, const uint8_t *src, uint64_t src_stride);
/* Where unpacking puts its bytes, for who copies them in another way: each row's K and V are
 * [row bytes / span bytes] spans. spans_bytes: of each; 0 where elements are widened, or strided,
 * or V's heads have another size.
 *   ret_spans [token_count][spans of a row]   NULL: the token's slot is negative */
uint64_t sc_kernels_spans_bytes(const struct sc_kernels_move *how);
void sc_kernels_rows_spans(const struct sc_kernels_move *how, uint64_t token_first,
                           uint64_t token_count, uint8_t **ret_spans);
/* Asks for the cache lines that such an unpack will write: for a caller that has something to
 * compute before it, so that the two wait for memory together. No effect on memory. */
void sc_kernels_rows_prefetch(const struct sc_kernels_move *how, uint64_t token_first,
                              uint64_t token_count);
/* Moves rows rows[0..row_count) of one KV head (UINT64_MAX: of all heads), K and V, to slots
 * 0 .. row_count - 1 of the same memory. rows ascend. Of heads that are alike alone. */
void sc_kernels_rows_compact(const struct sc_kernels_move *how, uint64_t head, const uint32_t *rows,
                             uint64_t row_count);

/* A rung's table, of functions that are named PREFIX_MEMBER. */
#define SC_KERNELS_TABLE(prefix, unit, most)                                                       \
    {                                                                                              \
        .lane_unit = (unit), .lane_most = (most), .widen = prefix##_widen,                         \
        .rope16 = prefix##_rope16, .rope32 = prefix##_rope32, .rows_widen = prefix##_rows_widen,   \
        .lanes_score = prefix##_lanes_score, .lanes_soften = prefix##_lanes_soften,                \
        .lanes_weigh = prefix##_lanes_weigh, .lanes_fold = prefix##_lanes_fold,                    \
        .rows_score = prefix##_rows_score, .few_best = prefix##_few_best,                          \
        .few_soften = prefix##_few_soften, .accumulate = prefix##_accumulate,                      \
        .order_sift = prefix##_order_sift, .order_ranks = prefix##_order_ranks,                    \
        .order_mark = prefix##_order_mark, .bits_rows = prefix##_bits_rows,                        \
        .bits_both = prefix##_bits_both, .codec_encode = prefix##_codec_encode,                    \
        .codec_decode = prefix##_codec_decode, .codec_score = prefix##_codec_score,                \
        .bitplanes_encode = prefix##_bitplanes_encode,                                             \
        .bitplanes_decode = prefix##_bitplanes_decode,                                             \
        .bitplanes_score = prefix##_bitplanes_score,                                               \
    }
extern const struct sc_kernels sc_kernels_avx2, sc_kernels_avx512;

/* The reference, for its table, for what is left over in others, and for tests. */
void sc_kernels_ref_widen(float *dst, const uint8_t *src, uint64_t count, uint32_t dtype);
void sc_kernels_ref_rope16(const struct sc_kernels_rope *what);
void sc_kernels_ref_rope32(const struct sc_kernels_rope *what);
void sc_kernels_ref_rows_widen(float *dst, const uint8_t *const *rows, uint64_t count,
                               uint64_t head_size, uint32_t dtype);
void sc_kernels_ref_lanes_score(const struct sc_kernels_lanes_score *what);
void sc_kernels_ref_lanes_soften(float *scores, uint64_t width, uint64_t key_count,
                                 const uint32_t *seen, float *best, float *sums);
void sc_kernels_ref_lanes_weigh(const float *best_then, const float *best, const float *sums,
                                uint64_t width, uint64_t used, float *weights);
void sc_kernels_ref_lanes_fold(const float *scores, uint64_t width, uint64_t key_count,
                               const float *weights, float *dst);
void sc_kernels_ref_rows_score(const struct sc_kernels_rows_score *what);
float sc_kernels_ref_few_best(const float *scores, uint64_t count, float floor);
float sc_kernels_ref_few_soften(float *scores, uint64_t count, float best);
void sc_kernels_ref_accumulate(float *dst, const float *src, float factor, uint64_t count);
void sc_kernels_ref_order_sift(const struct sc_kernels_sift *sift,
                               struct sc_kernels_sifted *ret_sifted);
void sc_kernels_ref_order_ranks(const uint32_t *keys, uint64_t count, const uint64_t ranks[2],
                                uint32_t ret_keys[2]);
void sc_kernels_ref_order_mark(const void *from, const uint64_t *among, uint64_t count,
                               struct sc_kernels_edge *edge, uint64_t *ret_bits);
uint64_t sc_kernels_ref_bits_rows(const uint64_t *bits, uint64_t word_count, uint32_t first,
                                  uint32_t *ret_rows, uint64_t room);
uint64_t sc_kernels_ref_bits_both(const uint64_t *a, const uint64_t *b, uint64_t word_count);
bool sc_kernels_ref_codec_encode(const struct sc_kernels_codec *code, const uint8_t *const *rows,
                                 uint64_t row_count, uint8_t *scales, uint8_t *codes);
void sc_kernels_ref_codec_decode(const struct sc_kernels_codec_decode *what);
void sc_kernels_ref_codec_score(const struct sc_kernels_codec_score *what);
bool sc_kernels_ref_bitplanes_encode(const struct sc_kernels_bitplanes_encode *what);
void sc_kernels_ref_bitplanes_decode(const struct sc_kernels_bitplanes_decode *what);
void sc_kernels_ref_bitplanes_score(const struct sc_kernels_bitplanes_score *what);

#endif
