/* kernels: numeric kernels in a table chosen at run time: ref/ plain C, cpu/ AVX2 and AVX-512.
 *
 *   packed row  [K: head 0 .. head H-1][V: head 0 .. head H-1]   head_size elements a head
 *   memory      slot -> base + (slot / block) * block stride + (slot % block) * token stride
 *                            + head * head stride                (struct spec_memory)
 *               V may have own strides, and K's elements may be strided: columns.h
 *
 * Invariants: every rung writes the same bits as ref/ when it moves, orders or widens. Scores may
 * differ in their last bits; each rung always adds in the same order. No byte outside the outputs
 * is written. Nothing is allocated; plugin/args/memory.c has checked the addresses.
 * Threads: any.
 * Tests: tests/unit/kernels/: test_rows.c, test_columns.c, test_widen.c, test_importance.c,
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

/* Rungs: instruction sets; a machine uses the highest that it supports. */
enum sc_kernels_level { SC_KERNELS_REF, SC_KERNELS_AVX2, SC_KERNELS_AVX512, SC_KERNELS_LEVELS };

enum sc_kernels_keys_are {
    SC_KERNELS_KEYS_PLAIN,  /* scores whose bits are the key: no NaN, no sign */
    SC_KERNELS_KEYS_SCORES, /* scores; the key is sc_kernels_order_of */
    SC_KERNELS_KEYS_KEYS    /* keys themselves */
};

/* One pass over entries: counts keys above `high` and collects those in [low, high]. */
struct sc_kernels_sift {
    const void *from;      /* [count] scores (float) or keys (uint32_t) */
    const uint64_t *among; /* NULL: all; else one bit an entry: 0 excludes it */
    uint64_t count;
    enum sc_kernels_keys_are keys_are;
    uint32_t low, high;
    uint32_t *kept; /* [kept_max + SC_KERNELS_KEPT_AHEAD] */
    uint64_t kept_max;
};
struct sc_kernels_sifted {
    uint64_t above, inside;
    /* Plain keys only: not 0 if any entry's bits are no plain key; the counts are then invalid. */
    uint32_t strange;
    /* kept: key - low of the first kept_max keys inside, in their order */
};

/* The k-th key: larger keys are in the set, and the first equal_count of equal keys. */
struct sc_kernels_edge {
    enum sc_kernels_keys_are keys_are;
    uint32_t key;
    uint64_t equal_count; /* counted down as equal keys are marked; UINT64_MAX: all */
};

/* scores[key * width + lane] = sum over t of keys[key * key_stride + t] * queries[t * width + lane]
 * Keys that are scored next are prefetched meanwhile, a line at a time between multiply-adds. */
struct sc_kernels_lanes_score {
    const float *queries, *keys;
    uint64_t width, key_stride, head_size, key_count;
    const uint8_t *const *next;    /* [SC_KERNELS_TILE_KEYS] rows, of which */
    uint64_t next_first, next_end; /* these bytes are prefetched */
    float *scores; /* [SC_KERNELS_TILE_KEYS, width]; keys beyond key_count may be written */
};

/* scores[v * score_stride + i] = sum over t of queries[v][t]
 *                                  * (rows[i] + byte_first + v * head_step)[t] */
struct sc_kernels_rows_score {
    const float *queries;       /* [query_count, head_size rounded up to 16], 0 beyond head_size */
    const uint8_t *const *rows; /* [SC_KERNELS_FEW_KEYS], all readable */
    const uint8_t *const *next; /* NULL, or as many rows whose lines are prefetched */
    uint64_t query_count, key_count, byte_first, head_size;
    uint64_t head_step; /* bytes; one query each of contiguous heads, keys too; 0: one head */
    uint32_t dtype;
    float *scores; /* SC_KERNELS_FEW_KEYS of each query, undefined beyond key_count */
    uint64_t score_stride;
};

/* Transposes: element r of dst's column c = element c of src's row r. An element may be written
 * repeatedly with the same value. */
struct sc_kernels_transpose {
    uint8_t *dst;       /* [column_count], row_count elements each; only these are written */
    const uint8_t *src; /* [row_count], column_count elements each */
    uint64_t dst_stride, src_stride; /* bytes */
    uint64_t row_count, column_count;
    bool streams; /* allows non-temporal stores of whole lines; the caller calls sc_nt_copy_end */
};

struct sc_kernels {
    /* dst[i] = (float)src[i], exact (dtype.h).  src, dst [count] */
    void (*widen)(float *dst, const uint8_t *src, uint64_t count, uint32_t dtype);

    void (*transpose16)(const struct sc_kernels_transpose *what);
    void (*transpose32)(const struct sc_kernels_transpose *what);

    /* Scoring of a tile of keys: float32 rows, key_stride apart. SC_KERNELS_TILE_KEYS of them must
     * be readable; those beyond key_count do not affect results.
     *
     *   many queries   [key][lane], lane = query; width lanes, a multiple of lane_unit, at most
     *                  lane_most: exp and maxima run down a lane, no key is moved
     *   few queries    [key], one query after another */
    uint64_t lane_unit, lane_most;
    /* dst [count, head_size rounded up to 16] = rows as float32, 0 beyond head_size. Up to
     * rows[count + SC_KERNELS_AHEAD_KEYS - 1] must exist: they are prefetched. */
    void (*rows_widen)(float *dst, const uint8_t *const *rows, uint64_t count, uint64_t head_size,
                       uint32_t dtype);
    void (*lanes_score)(const struct sc_kernels_lanes_score *what);
    /* One softmax step down each lane, in base 2: best = max(best, scores), scores = 2^(score -
     * best), sums = sums * 2^(old best - best) + their sum. If seen is not NULL, a lane sees only
     * keys 0 .. seen[lane] - 1; the other scores become 0. best, sums [width]: in and out;
     * initially -infinity and 0 */
    void (*lanes_soften)(float *scores, uint64_t width, uint64_t key_count, const uint32_t *seen,
                         float *best, float *sums);
    /* weights[lane] = 2^(best_then - best) / sums, 0 from lane `used` on */
    void (*lanes_weigh)(const float *best_then, const float *best, const float *sums,
                        uint64_t width, uint64_t used, float *weights);
    /* dst[key] += sum over lanes of scores[key * width + lane] * weights[lane] */
    void (*lanes_fold)(const float *scores, uint64_t width, uint64_t key_count,
                       const float *weights, float *dst);
    /* Scores few queries against rows as stored: bound by reading the rows. */
    void (*rows_score)(const struct sc_kernels_rows_score *what);
    /* Returns the largest of scores and `floor`, ignoring NaN. */
    float (*few_best)(const float *scores, uint64_t count, float floor);
    /* scores[i] = 2^(scores[i] - best); returns their sum. */
    float (*few_soften)(float *scores, uint64_t count, float best);
    /* dst[i] += src[i] * factor */
    void (*accumulate)(float *dst, const float *src, float factor, uint64_t count);

    /* Selection (kernels/order.h defines keys). */
    void (*order_sift)(const struct sc_kernels_sift *sift, struct sc_kernels_sifted *ret_sifted);
    /* ret_keys[i]: the ranks[i]-th largest key, 1 <= ranks[i] <= count <= SC_KERNELS_RANKED. */
    void (*order_ranks)(const uint32_t *keys, uint64_t count, const uint64_t ranks[2],
                        uint32_t ret_keys[2]);
    /* Writes bits of the entries of `among` (NULL: all) that the edge selects.
     *   from [count]  scores, or keys;  ret_bits [count / 64 rounded up]  written whole */
    void (*order_mark)(const void *from, const uint64_t *among, uint64_t count,
                       struct sc_kernels_edge *edge, uint64_t *ret_bits);
    /* Writes the indexes of set bits, ascending, plus `first`; returns their number.
     *   ret_rows [room]  room >= the number of set bits */
    uint64_t (*bits_rows)(const uint64_t *bits, uint64_t word_count, uint32_t first,
                          uint32_t *ret_rows, uint64_t room);
    uint64_t (*bits_both)(const uint64_t *a, const uint64_t *b, uint64_t word_count);

    /* Quantises a slab uniformly (codec.h): rows[i] is the first channel of row i, 1 to
     * SC_KERNELS_CODEC_ROWS_MAX rows. scales and codes are written whole in any case. Returns false
     * if a value or a scale is not finite: the slab has no codes. */
    bool (*codec_encode)(const struct sc_kernels_codec *code, const uint8_t *const *rows,
                         uint64_t row_count, uint8_t *scales, uint8_t *codes);
    void (*codec_decode)(const struct sc_kernels_codec_decode *what);
    /* Scores keys of a slab without decoding them (codec.h). */
    void (*codec_score)(const struct sc_kernels_codec_score *what);

    /* The same three for per-channel bits (bitplanes.h). */
    bool (*bitplanes_encode)(const struct sc_kernels_bitplanes_encode *what);
    void (*bitplanes_decode)(const struct sc_kernels_bitplanes_decode *what);
    void (*bitplanes_score)(const struct sc_kernels_bitplanes_score *what);
};

#define SC_KERNELS_TILE_KEYS  48u
#define SC_KERNELS_FEW_KEYS   16u  /* keys per call of rows_score */
#define SC_KERNELS_AHEAD_KEYS 24u  /* keys prefetched before use */
#define SC_KERNELS_LANES_MAX  48u  /* largest lane_most of any rung */
#define SC_KERNELS_RANKED     256u /* maximum keys of order_ranks */
#define SC_KERNELS_KEPT_AHEAD 16u  /* keys that order_sift may write beyond the kept ones */

/* Returns the highest level that CPU and OS support (CPUID, XGETBV; no static state). */
enum sc_kernels_level sc_kernels_level_best(void);
/* Returns the table of a level <= sc_kernels_level_best(): static, never NULL. */
const struct sc_kernels *sc_kernels_get(enum sc_kernels_level level);

/* A checked struct spec_memory, in the form that the copy loops need. */
struct sc_kernels_memory {
    uint8_t *k_base, *v_base;
    uint64_t token_stride_bytes, head_stride_bytes;
    uint64_t block_tokens, block_stride_bytes; /* block_tokens 0: no blocks */
    const int64_t *slots;                      /* NULL: identity */
    uint64_t v_token_stride_bytes;             /* 0: K's */
    uint64_t v_head_stride_bytes;              /* 0: K's */
    uint64_t k_element_stride_bytes;           /* 0: a head's elements of K are contiguous */
    uint64_t element_bytes;                    /* used if k_element_stride_bytes is not 0 */
};

/* Returns the token's slot; negative: it has none. */
static inline int64_t sc_kernels_slot_of(const struct sc_kernels_memory *memory, uint64_t token)
{
    return memory->slots != NULL ? memory->slots[token] : (int64_t)token;
}

/* Offsets of a slot's K and V from their bases. */
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

/* Movement of rows between a memory and a packed buffer. Tokens [token_first, + token_count) of the
 * memory are consecutive rows
 *   [token_count, 2, head_count, head_size elements]   element_bytes each
 * or of one part, 0: K, 1: V,
 *   [token_count, head_count, head_size elements]
 * If row_bytes is not 0, V's heads have size head_size_v, and a whole row is row_bytes long:
 *   [token_count][K: head_count, head_size][V: head_count, head_size_v][zeros] */
struct sc_kernels_move {
    const struct sc_kernels *kernels;
    const struct sc_kernels_memory *memory;
    uint64_t head_count;               /* packing: the memory's heads, or the first of them */
    uint64_t head_size, element_bytes; /* of the rows */
    uint32_t dtype;                    /* enum sc_kernels_dtype of the rows, needed for widening */
    bool widens;                       /* unpacking: the memory is float32 */
    bool streams;                      /* unpacking: non-temporal stores (base/nt_copy.h) */
    uint64_t row_bytes, head_size_v; /* both 0: V's heads have K's size; only row_bytes set: no V */
};

/* Writes dst whole. No slot is negative. */
void sc_kernels_rows_pack(const struct sc_kernels_move *how, uint64_t token_first,
                          uint64_t token_count, uint8_t *dst);
void sc_kernels_part_pack(const struct sc_kernels_move *how, uint32_t part, uint64_t token_first,
                          uint64_t token_count, uint8_t *dst);
/* Reverses packing and skips negative slots. src_stride: bytes from token to token */
void sc_kernels_rows_unpack(const struct sc_kernels_move *how, uint64_t token_first,
                            uint64_t token_count, const uint8_t *src);
void sc_kernels_part_unpack(const struct sc_kernels_move *how, uint32_t part, uint64_t token_first,
                            uint64_t token_count, const uint8_t *src, uint64_t src_stride);
/* Lists the destinations of unpacking, for callers that copy in another way: each row's K and V are
 * [row bytes / span bytes] spans. spans_bytes returns the bytes of a span, or 0 if elements are
 * widened or strided, or if V's heads have another size.
 *   ret_spans [token_count][spans of a row]   NULL: the token's slot is negative */
uint64_t sc_kernels_spans_bytes(const struct sc_kernels_move *how);
void sc_kernels_rows_spans(const struct sc_kernels_move *how, uint64_t token_first,
                           uint64_t token_count, uint8_t **ret_spans);
/* Prefetches the cache lines that such an unpack will write. A caller with work to do before it
 * thus hides the wait for memory. */
void sc_kernels_rows_prefetch(const struct sc_kernels_move *how, uint64_t token_first,
                              uint64_t token_count);
/* Moves rows rows[0..row_count) of one KV head (UINT64_MAX: all heads), K and V, to slots 0 ..
 * row_count - 1 of the same memory. rows ascend; all heads have the same size. */
void sc_kernels_rows_compact(const struct sc_kernels_move *how, uint64_t head, const uint32_t *rows,
                             uint64_t row_count);

/* Initialises a rung's table with functions named PREFIX_MEMBER. */
#define SC_KERNELS_TABLE(prefix, unit, most)                                                       \
    {                                                                                              \
        .lane_unit = (unit), .lane_most = (most), .widen = prefix##_widen,                         \
        .transpose16 = prefix##_transpose16, .transpose32 = prefix##_transpose32,                  \
        .rows_widen = prefix##_rows_widen, .lanes_score = prefix##_lanes_score,                    \
        .lanes_soften = prefix##_lanes_soften, .lanes_weigh = prefix##_lanes_weigh,                \
        .lanes_fold = prefix##_lanes_fold, .rows_score = prefix##_rows_score,                      \
        .few_best = prefix##_few_best, .few_soften = prefix##_few_soften,                          \
        .accumulate = prefix##_accumulate, .order_sift = prefix##_order_sift,                      \
        .order_ranks = prefix##_order_ranks, .order_mark = prefix##_order_mark,                    \
        .bits_rows = prefix##_bits_rows, .bits_both = prefix##_bits_both,                          \
        .codec_encode = prefix##_codec_encode, .codec_decode = prefix##_codec_decode,              \
        .codec_score = prefix##_codec_score, .bitplanes_encode = prefix##_bitplanes_encode,        \
        .bitplanes_decode = prefix##_bitplanes_decode,                                             \
        .bitplanes_score = prefix##_bitplanes_score,                                               \
    }
extern const struct sc_kernels sc_kernels_avx2, sc_kernels_avx512;

/* Reference functions: their table, remainders in other rungs, and tests use them. */
void sc_kernels_ref_widen(float *dst, const uint8_t *src, uint64_t count, uint32_t dtype);
void sc_kernels_ref_transpose16(const struct sc_kernels_transpose *what);
void sc_kernels_ref_transpose32(const struct sc_kernels_transpose *what);
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
