/* importance.h: column sums by online softmax, a tile of keys by a block of queries at a time.
 *
 *   block of query vectors [t][lane]       tile of 48 keys, float32
 *              \                            /
 *               scores [key][lane]: 2^(score - best of the lane so far)     kept for prefix tiles
 *                        |                                                  with that best
 *   after the last tile: dst[key] += scores . 2^(best then - best) / sum
 *
 * Scores are in base 2: the query is multiplied by scale * log2 e, which saves a multiplication in
 * exp. Few queries (one token of one group) would leave most lanes empty. Their lanes run along the
 * keys instead, which are read as stored, without a tile, for several heads together.
 *
 * Invariants: on every rung, if a row's softmax is not a number (NaN or infinite scores), every sum
 * is NaN. Work has one order, independent of threads.
 * Tests: tests/unit/kernels/test_importance.c */
#include "kernels/importance.h"
#include "kernels/bitplanes.h"
#include "kernels/codec.h"
#include "kernels/columns.h"

#include <math.h>
#include <string.h>

#define TILE        SC_KERNELS_TILE_KEYS
#define FEW_KEYS    SC_KERNELS_FEW_KEYS
#define FEW_MAX         7u  /* queries processed one by one */
#define FEW_ROWS        8u  /* such queries, of several heads, that share a quantised slab */
#define LANES_ALL       96u /* lanes of the blocks that share tiles of keys */
#define BLOCKS_MAX      6u  /* blocks of 16 lanes: no rung uses fewer lanes */
#define SHARED_KEYS 16384u
#define SHORT_BYTES     1536u /* bytes of a row: for longer ones the hardware prefetcher suffices */
#define LINE_BYTES  64u
#define TRANSPOSE_KEYS  16u /* keys in columns, transposed on the stack before widening */
#define TRANSPOSE_COUNT 64u /* elements of each key */
#define LOG2_E      1.44269504088896341f
#define PADDED(x)   (((x) + 15) / 16 * 16)
#define TILES(keys) (((keys) + TILE - 1) / TILE)

struct parts {
    const struct sc_kernels_importance *what;
    uint64_t kv_head, head_padded;
    float *tile;                  /* [TILE, head_padded] */
    float *queries;               /* [head_size, width] */
    float *best, *sums, *weights; /* [lane_most] */
    uint32_t *seen;               /* [lane_most] */
    float *best_then;             /* [tiles of the prefix, lane_most] */
    float *scores;                /* [prefix in tiles, width] and one tile more */
};

/* Query vectors first .. first + used - 1, one lane each, in a block of `width` lanes. */
struct block {
    struct parts parts;
    uint64_t first, used, width;
};

/* Returns how many blocks share the tiles. Keys of a long prefix do not stay in the L2 cache, so
 * they are widened once for all. Beyond SHARED_KEYS their scores would not stay there either. */
static uint64_t blocks_of(const struct sc_kernels *kernels, uint64_t prefix_count)
{
    return prefix_count <= SHARED_KEYS ? LANES_ALL / kernels->lane_most : 1;
}

/* Returns the floats of the parts for `lanes` lanes, without the tile of keys. */
static uint64_t lanes_floats(uint64_t head_size, uint64_t prefix_count, uint64_t lanes)
{
    return lanes * (PADDED(head_size) + 4 + TILES(prefix_count) + (TILES(prefix_count) + 1) * TILE);
}

/* Returns the floats of column keys, as rows, for few queries. */
static uint64_t few_keys_floats(uint64_t head_size)
{
    return FEW_KEYS * PADDED(head_size);
}

uint64_t sc_kernels_importance_scratch_bytes(uint64_t head_size, uint64_t prefix_count,
                                             uint64_t fresh_count)
{
    uint64_t shared = prefix_count < SHARED_KEYS ? prefix_count : SHARED_KEYS;
    uint64_t one = lanes_floats(head_size, prefix_count, SC_KERNELS_LANES_MAX);
    uint64_t all = lanes_floats(head_size, shared, LANES_ALL);
    uint64_t few =
        FEW_ROWS * (PADDED(head_size) + (TILES(prefix_count) + TILES(fresh_count)) * TILE);
    uint64_t floats = TILE * PADDED(head_size) + (one > all ? one : all);
    floats = (floats > few ? floats : few) + few_keys_floats(head_size);
    return (floats * sizeof(float) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* Divides memory from `at` on into a block's parts; returns their end. */
static float *cut(const struct sc_kernels_importance *what, uint64_t kv_head, float *tile,
                  float *at, struct parts *ret_parts)
{
    uint64_t head_padded = PADDED(what->head_size), lanes = what->kernels->lane_most;
    *ret_parts =
        (struct parts){.what = what, .kv_head = kv_head, .head_padded = head_padded, .tile = tile};
    ret_parts->queries = at;
    ret_parts->best = at += lanes * head_padded;
    ret_parts->sums = at += lanes;
    ret_parts->weights = at += lanes;
    ret_parts->seen = (uint32_t *)(void *)(at += lanes);
    ret_parts->best_then = at += lanes;
    ret_parts->scores = at += TILES(what->prefix.count) * lanes;
    return at + (TILES(what->prefix.count) + 1) * TILE * lanes;
}

static const uint8_t *key_at(const struct sc_kernels_keys *keys, uint64_t kv_head, uint64_t j)
{
    const struct sc_kernels_memory *memory = &keys->memory;
    uint64_t slot = (uint64_t)sc_kernels_slot_of(memory, j);
    return memory->k_base + sc_kernels_offsets_of(memory, slot).part[0] +
           kv_head * memory->head_stride_bytes;
}

static uint64_t slab_find(const struct sc_kernels_keys *keys, uint64_t key)
{
    uint64_t low = 0, high = keys->slab_count;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (keys->slabs[middle].key_first <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* tile_gather for quantised keys: decodes them into the tile. */
static void tile_decode(const struct parts *parts, const struct sc_kernels_keys *keys,
                        uint64_t first)
{
    const struct sc_kernels_importance *what = parts->what;
    uint64_t end = keys->count - first < TILE ? keys->count : first + TILE;
    uint8_t *dst[TILE];
    if (parts->head_padded != what->head_size || end - first < TILE)
        memset(parts->tile, 0, TILE * parts->head_padded * sizeof(float));
    for (uint64_t i = 0; i < TILE; i++)
        dst[i] = (uint8_t *)(parts->tile + i * parts->head_padded);
    for (uint64_t key = first, s = slab_find(keys, first), stop; key < end; key = stop, s++) {
        const struct sc_kernels_slab *slab = &keys->slabs[s];
        const struct sc_kernels_quantised *quantised = &slab->quantised;
        struct sc_kernels_codec code = {keys->channels, quantised->bits, keys->dtype};
        uint64_t row = key - slab->key_first;
        stop = s + 1 < keys->slab_count && slab[1].key_first < end ? slab[1].key_first : end;
        if (quantised->planes != NULL) {
            what->kernels->bitplanes_decode(&(struct sc_kernels_bitplanes_decode){
                .planes = quantised->planes,
                .scales = quantised->scales,
                .codes = quantised->codes + row * quantised->planes->row_bytes,
                .row_count = stop - key,
                .head_first = parts->kv_head,
                .head_count = 1,
                .dst = dst + (key - first),
                .dst_dtype = SC_KERNELS_F32,
                .rotary = quantised->rotary,
                .rope = sc_kernels_quantised_rope(quantised, row)});
            continue;
        }
        what->kernels->codec_decode(&(struct sc_kernels_codec_decode){
            .code = &code,
            .scales = quantised->scales,
            .codes = quantised->codes +
                     row * sc_kernels_codec_row_bytes(keys->channels, quantised->bits),
            .row_count = stop - key,
            .channel_first = parts->kv_head * what->head_size,
            .channel_count = what->head_size,
            .dst = dst + (key - first),
            .dst_dtype = SC_KERNELS_F32});
    }
}

/* Returns addresses of keys first .. first + count - 1; from `end` on: of the last key below it. */
static void keys_locate(const struct sc_kernels_keys *keys, uint64_t kv_head, uint64_t first,
                        uint64_t count, uint64_t end, const uint8_t **rows)
{
    const struct sc_kernels_memory *memory = &keys->memory;
    const uint8_t *base = memory->k_base + kv_head * memory->head_stride_bytes;
    bool is_plain = memory->slots == NULL && memory->block_tokens == 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t key = first + i < end ? first + i : end - 1;
        rows[i] = is_plain ? base + key * memory->token_stride_bytes : key_at(keys, kv_head, key);
    }
}

/* Widens keys [first, first + count) stored in columns. */
static void tile_rope(const struct parts *parts, const struct sc_kernels_keys *keys, uint64_t first,
                      uint64_t count)
{
    const struct sc_kernels *kernels = parts->what->kernels;
    float rows[TRANSPOSE_KEYS][TRANSPOSE_COUNT]; /* half of each is used for 16 bits */
    uint64_t head_size = parts->what->head_size;
    struct sc_kernels_slice slice = {kernels, &keys->memory, .head = parts->kv_head};
    memset(parts->tile, 0, TILE * parts->head_padded * sizeof(float));
    for (; slice.first < head_size; slice.first += slice.count) {
        slice.count =
            head_size - slice.first < TRANSPOSE_COUNT ? head_size - slice.first : TRANSPOSE_COUNT;
        for (uint64_t key = 0, now; key < count; key += now) {
            float *dst = parts->tile + key * parts->head_padded + slice.first;
            now = count - key < TRANSPOSE_KEYS ? count - key : TRANSPOSE_KEYS;
            sc_kernels_columns_get(&slice, first + key, now, (uint8_t *)rows, sizeof(rows[0]));
            for (uint64_t i = 0; i < now; i++)
                kernels->widen(dst + i * parts->head_padded, (const uint8_t *)rows[i], slice.count,
                               keys->dtype);
        }
    }
}

static uint64_t tile_count(const struct sc_kernels_keys *keys, uint64_t first)
{
    return keys->count - first < TILE ? keys->count - first : TILE;
}

/* Writes keys [first, first + TILE) in float32; missing keys are 0.
 *   rows [2 * TILE]  addresses of this tile's keys and the next one's, kept between calls */
static void tile_gather(const struct parts *parts, const struct sc_kernels_keys *keys,
                        uint64_t first, const uint8_t **rows)
{
    const struct sc_kernels_importance *what = parts->what;
    if (keys->slabs != NULL) {
        tile_decode(parts, keys, first);
        return;
    }
    uint64_t count = tile_count(keys, first);
    if (sc_kernels_is_columns(&keys->memory)) {
        tile_rope(parts, keys, first, count);
        return;
    }
    if (first != 0) /* this tile, and the next */
        memcpy(rows, rows + TILE, TILE * sizeof(*rows));
    else
        keys_locate(keys, parts->kv_head, 0, TILE, keys->count, rows);
    keys_locate(keys, parts->kv_head, first + TILE, TILE, keys->count, rows + TILE);
    what->kernels->rows_widen(parts->tile, rows, count, what->head_size, keys->dtype);
    memset(parts->tile + count * parts->head_padded, 0,
           (TILE - count) * parts->head_padded * sizeof(float));
}

static uint64_t row_first(const struct sc_kernels_importance *what)
{
    return what->last_row ? what->queries.row_count - 1 : 0;
}

static uint64_t query_vectors(const struct sc_kernels_importance *what)
{
    return (what->last_row ? 1 : what->queries.row_count) * what->group;
}

/* Loads query vector v (row v / group, head v % group of the KV head's), scaled. */
static void query_load(const struct sc_kernels_importance *what, uint64_t kv_head, uint64_t v,
                       float *dst)
{
    uint64_t row = row_first(what) + v / what->group;
    uint64_t head = kv_head * what->group + v % what->group;
    what->kernels->widen(dst,
                         what->queries.data + row * what->queries.row_stride_bytes +
                             head * what->queries.head_stride_bytes,
                         what->head_size, what->queries.dtype);
    for (uint64_t t = 0; t < what->head_size; t++)
        dst[t] *= what->scale * LOG2_E;
}

static uint64_t fresh_seen(const struct sc_kernels_importance *what, uint64_t v)
{
    if (what->fresh.count == 0)
        return 0;
    uint64_t row = row_first(what) + v / what->group;
    return what->fresh.count - what->queries.row_count + row + 1;
}

/* ---- Many queries: one lane each ----------------------------------------------------------- */

/* Lanes beyond `used` repeat the last query. */
static void lanes_load(const struct block *block)
{
    const struct parts *parts = &block->parts;
    uint64_t head_size = parts->what->head_size;
    float *row = parts->tile; /* still unused */
    for (uint64_t lane = 0; lane < block->width; lane++) {
        if (lane < block->used)
            query_load(parts->what, parts->kv_head, block->first + lane, row);
        for (uint64_t t = 0; t < head_size; t++)
            parts->queries[t * block->width + lane] = row[t];
        parts->best[lane] = -INFINITY;
        parts->sums[lane] = 0;
    }
}

/* Scores the tile and does a softmax step.
 *   tile  scoring arguments that are not the block's: key_count, next rows, scores */
static void lanes_step(const struct block *block, const uint32_t *seen,
                       struct sc_kernels_lanes_score tile)
{
    const struct parts *parts = &block->parts;
    const struct sc_kernels *kernels = parts->what->kernels;
    tile.queries = parts->queries;
    tile.keys = parts->tile;
    tile.width = block->width;
    tile.key_stride = parts->head_padded;
    tile.head_size = parts->what->head_size;
    kernels->lanes_score(&tile);
    kernels->lanes_soften(tile.scores, block->width, tile.key_count, seen, parts->best,
                          parts->sums);
}

static void lanes_prefix(const struct block *blocks, uint64_t block_count)
{
    const struct sc_kernels_keys *prefix = &blocks[0].parts.what->prefix;
    const uint8_t *rows[2 * TILE];
    uint64_t row_bytes = blocks[0].parts.what->head_size * sc_kernels_dtype_bytes(prefix->dtype);
    bool has_rows = prefix->slabs == NULL && !sc_kernels_is_columns(&prefix->memory);
    uint64_t lines = has_rows ? (row_bytes + LINE_BYTES - 1) / LINE_BYTES : 0;
    for (uint64_t tile = 0; tile < TILES(prefix->count); tile++) {
        tile_gather(&blocks[0].parts, prefix, tile * TILE, rows);
        for (uint64_t i = 0; i < block_count; i++) {
            const struct parts *parts = &blocks[i].parts;
            const struct sc_kernels_lanes_score what = {
                .key_count = tile_count(prefix, tile * TILE),
                .next = rows + TILE, /* its part of each row */
                .next_first = lines * i / block_count * LINE_BYTES,
                .next_end = lines * (i + 1) / block_count * LINE_BYTES,
                .scores = parts->scores + tile * TILE * blocks[i].width};
            lanes_step(&blocks[i], NULL, what);
            memcpy(parts->best_then + tile * parts->what->kernels->lane_most, parts->best,
                   blocks[i].width * sizeof(float));
        }
    }
}

static void lanes_fresh(const struct block *block)
{
    const struct parts *parts = &block->parts;
    const struct sc_kernels_keys *fresh = &parts->what->fresh;
    const uint8_t *rows[2 * TILE];
    float *scores = parts->scores + TILES(parts->what->prefix.count) * TILE * block->width;
    uint64_t most = fresh_seen(parts->what, block->first + block->used - 1);
    uint64_t least = fresh_seen(parts->what, block->first);
    for (uint64_t key = 0; key < most; key += TILE) {
        struct sc_kernels_lanes_score what = {.key_count = tile_count(fresh, key),
                                              .scores = scores};
        tile_gather(parts, fresh, key, rows);
        for (uint64_t lane = 0; lane < block->width; lane++) {
            uint64_t like = lane < block->used ? lane : block->used - 1;
            uint64_t seen = fresh_seen(parts->what, block->first + like);
            parts->seen[lane] = (uint32_t)(seen < key ? 0 : seen - key < TILE ? seen - key : TILE);
        }
        lanes_step(block, least < key + what.key_count ? parts->seen : NULL, what);
    }
}

static void lanes_fold(const struct block *block, float *ret_sums)
{
    const struct parts *parts = &block->parts;
    const struct sc_kernels *kernels = parts->what->kernels;
    for (uint64_t tile = 0; tile < TILES(parts->what->prefix.count); tile++) {
        kernels->lanes_weigh(parts->best_then + tile * kernels->lane_most, parts->best, parts->sums,
                             block->width, block->used, parts->weights);
        kernels->lanes_fold(parts->scores + tile * TILE * block->width, block->width,
                            tile_count(&parts->what->prefix, tile * TILE), parts->weights,
                            ret_sums + tile * TILE);
    }
}

/* ---- Few queries: one after another -------------------------------------------------------- */

struct few {
    const struct sc_kernels_importance *what;
    uint64_t head_first, head_count, query_count; /* queries per head */
    uint64_t head_padded, prefix, stride;         /* floats per query: [prefix][fresh] */
    float *queries;                               /* [head_count * query_count, head_padded] */
    float *scores;                                /* [head_count * query_count, stride] */
    float *keys;                                  /* [few_keys_floats] */
};

/* Returns the scratch floats of this call, without those of few.keys. */
static uint64_t few_floats(const struct sc_kernels_importance *what)
{
    uint64_t bytes =
        sc_kernels_importance_scratch_bytes(what->head_size, what->prefix.count, what->fresh.count);
    return bytes / sizeof(float) - few_keys_floats(what->head_size);
}

static struct few few_cut(const struct sc_kernels_importance *what, uint64_t head_first,
                          uint64_t head_count, float *scratch)
{
    struct few few = {.what = what,
                      .head_first = head_first,
                      .head_count = head_count,
                      .query_count = query_vectors(what),
                      .head_padded = PADDED(what->head_size),
                      .prefix = TILES(what->prefix.count) * TILE,
                      .queries = scratch};
    few.stride = few.prefix + TILES(what->fresh.count) * TILE;
    few.scores = few.queries + head_count * few.query_count * few.head_padded;
    few.keys = scratch + few_floats(what);
    return few;
}

/* few_score for keys in columns: transposed first, head by head. */
static void few_score_columns(const struct few *few, const struct sc_kernels_keys *keys,
                              uint64_t count, uint64_t at)
{
    const uint8_t *rows[FEW_KEYS];
    uint64_t head_size = few->what->head_size;
    uint64_t head_bytes = head_size * keys->memory.element_bytes;
    struct sc_kernels_rows_score what = {.rows = rows,
                                         .query_count = few->query_count,
                                         .head_size = head_size,
                                         .dtype = keys->dtype,
                                         .score_stride = few->stride};
    memset(few->keys, 0, few_keys_floats(head_size) * sizeof(float)); /* read beyond key_count */
    for (uint64_t i = 0; i < FEW_KEYS; i++)
        rows[i] = (const uint8_t *)few->keys + i * head_bytes;
    for (uint64_t key = 0; key < count; key += FEW_KEYS) {
        what.key_count = count - key < FEW_KEYS ? count - key : FEW_KEYS;
        for (uint64_t head = 0; head < few->head_count; head++) {
            uint64_t first = head * few->query_count;
            struct sc_kernels_slice slice = {few->what->kernels, &keys->memory,
                                             few->head_first + head, 0, head_size};
            sc_kernels_columns_get(&slice, key, what.key_count, (uint8_t *)few->keys, head_bytes);
            what.queries = few->queries + first * few->head_padded;
            what.scores = few->scores + first * few->stride + at + key;
            few->what->kernels->rows_score(&what);
        }
    }
}

/* Tells whether one query per head reads contiguous rows without gaps. */
static bool is_gapless(const struct few *few, const struct sc_kernels_keys *keys,
                       uint64_t head_bytes)
{
    const struct sc_kernels_memory *memory = &keys->memory;
    return few->query_count == 1 && memory->slots == NULL &&
           memory->head_stride_bytes == head_bytes &&
           memory->token_stride_bytes == few->head_count * head_bytes;
}

/* Scores keys in memory, a few at a time, all heads of them before the next: mostly contiguous.
 * Prefetches the next keys if the hardware does not: not for gapless rows, nor for one query's
 * rows. at: index of the first score */
static void few_score(const struct few *few, const struct sc_kernels_keys *keys, uint64_t count,
                      uint64_t at)
{
    const uint8_t *rows[2][FEW_KEYS];
    if (sc_kernels_is_columns(&keys->memory)) {
        few_score_columns(few, keys, count, at);
        return;
    }
    uint64_t head_bytes = few->what->head_size * sc_kernels_dtype_bytes(keys->dtype);
    struct sc_kernels_rows_score what = {.query_count = few->query_count,
                                         .head_size = few->what->head_size,
                                         .dtype = keys->dtype,
                                         .score_stride = few->stride};
    if (is_gapless(few, keys, head_bytes)) {
        what.query_count = few->head_count;
        what.head_step = head_bytes;
    }
    uint64_t calls = what.head_step != 0 ? 1 : few->head_count;
    bool asks = what.head_step == 0 &&
                (few->query_count > 1 || few->head_count * head_bytes <= SHORT_BYTES);
    if (count > 0)
        keys_locate(keys, few->head_first, 0, FEW_KEYS, count, rows[0]);
    for (uint64_t key = 0, parity = 0; key < count; key += FEW_KEYS, parity ^= 1) {
        keys_locate(keys, few->head_first, key + FEW_KEYS, FEW_KEYS, count, rows[parity ^ 1]);
        what.rows = rows[parity];
        what.next = asks ? rows[parity ^ 1] : NULL;
        what.key_count = count - key < FEW_KEYS ? count - key : FEW_KEYS;
        for (uint64_t head = 0; head < calls; head++) {
            uint64_t first = head * few->query_count;
            what.byte_first = head * keys->memory.head_stride_bytes;
            what.queries = few->queries + first * few->head_padded;
            what.scores = few->scores + first * few->stride + at + key;
            few->what->kernels->rows_score(&what);
        }
    }
}

static void slab_score(const struct few *few, const struct sc_kernels_slab *slab,
                       const struct sc_kernels_slab *next)
{
    const struct sc_kernels_keys *keys = &few->what->prefix;
    uint64_t head_size = few->what->head_size, first = few->head_first * head_size;
    struct sc_kernels_codec code = {keys->channels, slab->quantised.bits, keys->dtype};
    struct sc_kernels_codec_score what = {
        .code = &code,
        .scales = slab->quantised.scales,
        .codes = slab->quantised.codes,
        .row_count = (next != slab ? next->key_first : keys->count) - slab->key_first,
        .head_size = head_size,
        .head_padded = few->head_padded,
        .query_count = few->query_count,
        .score_stride = few->stride};
    for (uint64_t head = 0; head < few->head_count; head++) {
        bool is_last = head + 1 == few->head_count;
        what.channel_first = first + head * head_size;
        what.ahead = is_last ? next->quantised.codes : slab->quantised.codes;
        what.ahead_channel = is_last ? first : what.channel_first + head_size;
        what.queries = few->queries + head * few->query_count * few->head_padded;
        what.scores = few->scores + head * few->query_count * few->stride + slab->key_first;
        few->what->kernels->codec_score(&what);
    }
}

/* slab_score for per-channel bits. */
static void slab_score_planes(const struct few *few, const struct sc_kernels_slab *slab,
                              const struct sc_kernels_slab *next)
{
    struct sc_kernels_bitplanes_score what = {
        .planes = slab->quantised.planes,
        .scales = slab->quantised.scales,
        .codes = slab->quantised.codes,
        .row_count = (next != slab ? next->key_first : few->what->prefix.count) - slab->key_first,
        .head_padded = few->head_padded,
        .query_count = few->query_count,
        .rotary = slab->quantised.rotary,
        .rope = slab->quantised.rope,
        .rope_tiles = slab->quantised.rope_tiles,
        .score_stride = few->stride};
    for (uint64_t head = 0; head < few->head_count; head++) {
        bool is_last = head + 1 == few->head_count;
        what.head = few->head_first + head;
        what.ahead = is_last ? next->quantised.codes : slab->quantised.codes;
        what.ahead_head = is_last ? few->head_first : what.head + 1;
        what.queries = few->queries + head * few->query_count * few->head_padded;
        what.scores = few->scores + head * few->query_count * few->stride + slab->key_first;
        few->what->kernels->bitplanes_score(&what);
    }
}

/* Scores quantised keys slab by slab, all heads of one before the next (contiguous codes). */
static void few_score_quant(const struct few *few)
{
    const struct sc_kernels_keys *keys = &few->what->prefix;
    for (uint64_t s = 0; s < keys->slab_count; s++) {
        const struct sc_kernels_slab *slab = &keys->slabs[s];
        const struct sc_kernels_slab *next = s + 1 < keys->slab_count ? slab + 1 : slab;
        if (slab->quantised.planes != NULL)
            slab_score_planes(few, slab, next);
        else
            slab_score(few, slab, next);
    }
}

/* ret_sums[j] += the sums of some heads, in order; ret_sums advances head_stride floats a head. */
static void few_add(const struct sc_kernels_importance *what, uint64_t head_first,
                    uint64_t head_count, float *scratch, float *ret_sums, uint64_t head_stride)
{
    const struct sc_kernels *kernels = what->kernels;
    struct few few = few_cut(what, head_first, head_count, scratch);
    uint64_t each = few.query_count, total = head_count * each;
    memset(few.queries, 0, total * few.head_padded * sizeof(float));
    for (uint64_t i = 0; i < total; i++)
        query_load(what, head_first + i / each, i % each, few.queries + i * few.head_padded);
    if (what->prefix.slabs != NULL)
        few_score_quant(&few);
    else
        few_score(&few, &what->prefix, what->prefix.count, 0);
    few_score(&few, &what->fresh, fresh_seen(what, each - 1), few.prefix);
    for (uint64_t i = 0; i < total; i++) {
        float *scores = few.scores + i * few.stride;
        uint64_t seen = fresh_seen(what, i % each);
        float best = kernels->few_best(scores, what->prefix.count, -INFINITY);
        best = kernels->few_best(scores + few.prefix, seen, best);
        float base = best == -INFINITY ? 0 : best;
        float sum = kernels->few_soften(scores, what->prefix.count, base);
        sum += kernels->few_soften(scores + few.prefix, seen, base);
        kernels->accumulate(ret_sums + i / each * head_stride, scores, 1 / sum, what->prefix.count);
    }
}

void sc_kernels_importance(const struct sc_kernels_importance *what, uint64_t kv_head,
                           void *scratch, float *ret_sums)
{
    memset(ret_sums, 0, what->prefix.count * sizeof(float));
    if (what->prefix.count == 0 || what->queries.row_count == 0 || what->group == 0)
        return;
    uint64_t total = query_vectors(what), first = 0;
    if (total <= FEW_MAX) {
        few_add(what, kv_head, 1, scratch, ret_sums, 0);
        return;
    }
    struct block blocks[BLOCKS_MAX];
    float *tile = scratch, *at = tile + TILE * PADDED(what->head_size);
    uint64_t unit = what->kernels->lane_unit, most = what->kernels->lane_most;
    for (uint64_t i = 0; i < blocks_of(what->kernels, what->prefix.count); i++)
        at = cut(what, kv_head, tile, at, &blocks[i].parts);
    while (first < total) {
        uint64_t count = 0;
        for (; count < blocks_of(what->kernels, what->prefix.count) && first < total; count++) {
            struct block *block = &blocks[count];
            block->first = first;
            block->used = total - first < most ? total - first : most;
            block->width = (block->used + unit - 1) / unit * unit;
            lanes_load(block);
            first += block->used;
        }
        lanes_prefix(blocks, count);
        for (uint64_t i = 0; i < count; i++) {
            lanes_fresh(&blocks[i]);
            lanes_fold(&blocks[i], ret_sums);
        }
    }
}

/* Returns how many heads share a quantised slab. For plain rows: how many heads' queries and scores
 * fit in any call's scratch, since a lane takes more than such a query. */
static uint64_t heads_together(const struct sc_kernels_importance *what)
{
    uint64_t keys = (TILES(what->prefix.count) + TILES(what->fresh.count)) * TILE;
    if (what->prefix.slabs != NULL)
        return FEW_ROWS / query_vectors(what);
    return few_floats(what) / (query_vectors(what) * (PADDED(what->head_size) + keys));
}

/* few_add in groups of heads. */
static void few_heads(const struct sc_kernels_importance *what, uint64_t head_first,
                      uint64_t head_end, void *scratch, float *ret_sums, uint64_t head_stride)
{
    uint64_t most = heads_together(what);
    for (uint64_t head = head_first, together; head < head_end; head += together) {
        together = most < head_end - head ? most : head_end - head;
        few_add(what, head, together, scratch, ret_sums + (head - head_first) * head_stride,
                head_stride);
    }
}

static bool is_few(const struct sc_kernels_importance *what)
{
    uint64_t queries = query_vectors(what);
    return what->prefix.count > 0 && queries > 0 && queries <= FEW_MAX;
}

void sc_kernels_importance_sum(const struct sc_kernels_importance *what, uint64_t head_first,
                               uint64_t head_end, void *scratch, float *one, float *ret_sums)
{
    uint64_t count = what->prefix.count;
    memset(ret_sums, 0, count * sizeof(*ret_sums));
    if (is_few(what) && what->prefix.slabs != NULL) {
        few_heads(what, head_first, head_end, scratch, ret_sums, 0);
        return;
    }
    for (uint64_t head = head_first; head < head_end; head++) {
        sc_kernels_importance(what, head, scratch, one);
        sc_kernels_add(what->kernels, ret_sums, one, count);
    }
}

void sc_kernels_importance_heads(const struct sc_kernels_importance *what, uint64_t head_first,
                                 uint64_t head_end, void *scratch, float *ret_sums)
{
    uint64_t count = what->prefix.count;
    if (is_few(what) && what->prefix.slabs == NULL) {
        memset(ret_sums, 0, (head_end - head_first) * count * sizeof(*ret_sums));
        few_heads(what, head_first, head_end, scratch, ret_sums, count);
        return;
    }
    for (uint64_t head = head_first; head < head_end; head++)
        sc_kernels_importance(what, head, scratch, ret_sums + (head - head_first) * count);
}
