/* bench-kernels: costs of selecting, moving and checking rows, beside the machine's limits.
 *
 *   score many   512 query rows over 2,048 keys     multiply-adds     fma: registers alone; sgemm
 *   score one    one query row over 16,384 keys     reading keys      read: the same bytes
 *                of three heads side by side
 *   score all    one query row, 2,048 keys of 32    reading keys      read: the same bytes; pieces:
 *                heads side by side, f16                              8 heads per pass
 *   choose       top-k, ranking, votes, overlap     passes of compares read: the same bytes
 *   move         pack, unpack, compact, widen       copying rows      memcpy: the same bytes
 *                the same of rows whose K is in columns
 *   tag          tags of rows                       reading rows      read: the same bytes
 *   codes        2,048 rows of 32 heads as codes,   writing rows      memcpy: what is written; for
 *                4 bits K and 2 bits V: decoded                       scores, exact keys
 *                with their checksums, made, scored
 *
 * A score costs d multiply-adds and a softmax of 14 vector operations on the same ports: largest so
 * far, difference, range, rounding 2, polynomial 5, remainder, scaling 2, sum, column sum. `flop`
 * counts the multiply-adds alone; bench/run prints both shares.
 *
 * Jobs bound by reading use memory: each run continues in a window of buffers, and returns to one
 * after four times the last cache (for codes: of their bytes and the rows'). `many` is bound by
 * arithmetic, choosing by compares; moves are measured in the caches that have the rows.
 *
 * Contenders are measured round by round, in varying order. A sample repeats its job until it is
 * long enough for the clock, after as many uncounted runs. A series is named JOB DTYPE LEVEL.
 * Threads: one. Tests: none (a measurement). */
#include "base/nt_copy.h"
#include "bench/bench.h"
#include "kernels/codec.h"
#include "kernels/columns.h"
#include "kernels/cpu/unroll.h"
#include "kernels/importance.h"
#include "store/rows/tag.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef BENCH_CBLAS
#include <cblas.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define JOBS_MAX      128u
#define SAMPLE_NS     2000000u
#define MANY_ROWS     512u
#define MANY_KEYS     2048u
#define ONE_KEYS      16384u
#define PROBES        3u
#define ALL_HEADS     32u
#define TOGETHER      8u /* heads that are scored in one pass, as the plugin does it */
#define HEAD_SIZE_MAX 128u
#define MOVE_ROWS     1024u
#define MOVE_HEADS    8u
#define BLOCK_TOKENS  128u
#define CHOOSE_ROWS   4096u
#define FMA_STEPS     4096u
#define BUFFER_BYTES  (48ull << 20)

enum { LEVEL_NAME_BYTES = 64 };

struct job {
    char name[LEVEL_NAME_BYTES];
    const char *unit;
    double work;
    void (*run)(const struct job *job);
    const struct sc_kernels *kernels;
    enum sc_kernels_level level;
    uint32_t dtype;
    uint64_t a, b, c; /* what the job says */
    uint64_t heads;   /* KV heads that are scored, side by side in memory */
    uint64_t window;  /* bytes by which each run goes on in the buffers; 0: the same ones again */
    struct bench_series *series;
};

/* One program, one set of buffers. */
static uint8_t *g_all_keys, *g_all_other, *g_all_codes;
static uint8_t *g_keys, *g_other, *g_codes; /* where this run has its window */
static uint64_t g_at, g_turn;               /* in the first two; in the third */
static uint64_t g_past_bytes;               /* so much drives out what came before */
static uint8_t *g_queries, *g_scratch;
static float *g_sums, *g_scores;
static uint32_t *g_rows, *g_every_fourth;
static uint64_t *g_tags, *g_sets, *g_bits;
static volatile double g_sink;
static const char *g_only;
static struct job g_jobs[JOBS_MAX];
static uint32_t g_job_count;

/* ---- What binds ---------------------------------------------------------------------------- */

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static double fma_avx512(void)
{
    __m512 sums[16], x = _mm512_set1_ps(1e-9f);
    SC_UNROLL
    for (uint32_t i = 0; i < 16; i++)
        sums[i] = _mm512_set1_ps((float)i);
    for (uint32_t step = 0; step < FMA_STEPS; step++)
        SC_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        sums[i] = _mm512_fmadd_ps(x, x, sums[i]);
        __asm__ volatile("" : "+v"(sums[i]));
    }
    SC_UNROLL
    for (uint32_t i = 1; i < 16; i++)
        sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return (double)_mm512_reduce_add_ps(sums[0]);
}

__attribute__((target("avx2,fma"))) static double fma_avx2(void)
{
    __m256 sums[12], x = _mm256_set1_ps(1e-9f);
    SC_UNROLL
    for (uint32_t i = 0; i < 12; i++)
        sums[i] = _mm256_set1_ps((float)i);
    for (uint32_t step = 0; step < FMA_STEPS; step++)
        SC_UNROLL
    for (uint32_t i = 0; i < 12; i++) {
        sums[i] = _mm256_fmadd_ps(x, x, sums[i]);
        __asm__ volatile("" : "+x"(sums[i]));
    }
    SC_UNROLL
    for (uint32_t i = 1; i < 12; i++)
        sums[0] = _mm256_add_ps(sums[0], sums[i]);
    float lanes[8];
    _mm256_storeu_ps(lanes, sums[0]);
    return (double)lanes[0] + (double)lanes[7];
}

__attribute__((target("avx2"))) static uint64_t bytes_read(const uint8_t *bytes, uint64_t count)
{
    __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                       _mm256_setzero_si256()};
    for (uint64_t i = 0; i + 128 <= count; i += 128)
        SC_UNROLL
    for (uint32_t v = 0; v < 4; v++)
        sums[v] = _mm256_add_epi64(sums[v], _mm256_loadu_si256((const void *)(bytes + i + 32 * v)));
    sums[0] =
        _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3]));
    return (uint64_t)_mm256_extract_epi64(sums[0], 0) + (uint64_t)_mm256_extract_epi64(sums[0], 3);
}

static void fma_run(const struct job *job)
{
    g_sink = job->level == SC_KERNELS_AVX512 ? fma_avx512() : fma_avx2();
}
#else
static uint64_t bytes_read(const uint8_t *bytes, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += bytes[i];
    return sum;
}
#endif

/* a: bytes */
static void read_run(const struct job *job)
{
    g_sink = (double)bytes_read(g_keys, job->a);
}

/* What `all` takes, in its order: of each row what the heads of a pass have. a: bytes */
static void pieces_run(const struct job *job)
{
    uint64_t row_bytes = 2ull * ALL_HEADS * HEAD_SIZE_MAX, sum = 0;
    uint64_t piece_bytes = row_bytes / ALL_HEADS * TOGETHER;
    for (uint64_t first = 0; first < row_bytes; first += piece_bytes)
        for (uint64_t at = first; at < job->a; at += row_bytes) {
            for (uint64_t i = 0; i < piece_bytes; i += 64)
                __builtin_prefetch(g_keys + at + 8 * row_bytes + i, 0, 2);
            sum += bytes_read(g_keys + at, piece_bytes);
        }
    g_sink = (double)sum;
}

static void copy_run(const struct job *job)
{
    memcpy(g_other, g_keys, job->a);
    g_sink = g_other[job->a / 2];
}

#ifdef BENCH_CBLAS
/* scores = keys . queries^T of one head of `a` elements, float32, one thread */
static void sgemm_run(const struct job *job)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, MANY_KEYS, MANY_ROWS, (int)job->a, 1,
                (const float *)(const void *)g_keys, (int)job->a,
                (const float *)(const void *)g_queries, (int)job->a, 0, (float *)(void *)g_scratch,
                MANY_ROWS);
}
#endif

/* ---- Jobs ---------------------------------------------------------------------------------- */

/* a: head size, b: query rows, c: keys, one query head a KV head */
static void score_run(const struct job *job)
{
    uint64_t head_bytes = job->a * sc_kernels_dtype_bytes(job->dtype);
    struct sc_kernels_importance what = {
        .kernels = job->kernels,
        .head_size = job->a,
        .group = 1,
        .scale = 1 / sqrtf((float)job->a),
        .queries = {g_queries, job->heads * head_bytes, head_bytes, job->b, job->dtype},
        .prefix = {.memory = {.k_base = g_keys,
                              .token_stride_bytes = job->heads * head_bytes,
                              .head_stride_bytes = head_bytes},
                   .count = job->c,
                   .dtype = job->dtype}};
    for (uint64_t head = 0; head < job->heads; head += TOGETHER) {
        uint64_t left = job->heads - head, count = left < TOGETHER ? left : TOGETHER;
        sc_kernels_importance_heads(&what, head, head + count, g_scratch, g_sums);
    }
    g_sink = (double)g_sums[1];
}

/* a: count, b: k */
static void topk_run(const struct job *job)
{
    sc_kernels_topk(job->kernels, g_scores, job->a, job->b, g_rows);
}

static void ranked_run(const struct job *job)
{
    sc_kernels_topk_ranked(job->kernels, g_scores, job->a, job->b, g_tags, g_rows);
}

static void bits_run(const struct job *job)
{
    sc_kernels_topk_bits(job->kernels, g_scores, job->a, job->b, g_bits);
}

static void overlap_run(const struct job *job)
{
    g_sink = sc_kernels_similarity(job->kernels, g_sets, PROBES, job->a, job->b);
}

static void vote_run(const struct job *job)
{
    const struct sc_kernels_votes votes = {g_sets, PROBES, job->a, g_scores};
    sc_kernels_vote(job->kernels, &votes, job->b, (uint64_t *)(void *)g_scratch, g_bits);
}

static struct sc_kernels_memory move_memory(uint8_t *base, uint32_t dtype, uint64_t part_bytes)
{
    uint64_t head_bytes = HEAD_SIZE_MAX * sc_kernels_dtype_bytes(dtype);
    return (struct sc_kernels_memory){.k_base = base,
                                      .v_base = base + part_bytes,
                                      .token_stride_bytes = MOVE_HEADS * head_bytes,
                                      .head_stride_bytes = head_bytes};
}

static struct sc_kernels_move move_of(const struct job *job, const struct sc_kernels_memory *memory)
{
    return (struct sc_kernels_move){job->kernels,
                                    memory,
                                    MOVE_HEADS,
                                    HEAD_SIZE_MAX,
                                    .element_bytes = sc_kernels_dtype_bytes(job->dtype),
                                    .dtype = job->dtype};
}

/* a: bytes of a part */
static void pack_run(const struct job *job)
{
    struct sc_kernels_memory memory = move_memory(g_keys, job->dtype, job->a);
    struct sc_kernels_move how = move_of(job, &memory);
    sc_kernels_rows_pack(&how, 0, MOVE_ROWS, g_other);
}

/* b: 1: to float32 */
static void unpack_run(const struct job *job)
{
    uint32_t to = job->b ? (uint32_t)SC_KERNELS_F32 : job->dtype;
    struct sc_kernels_memory memory = move_memory(
        g_other, to, MOVE_ROWS * MOVE_HEADS * HEAD_SIZE_MAX * sc_kernels_dtype_bytes(to));
    struct sc_kernels_move how = move_of(job, &memory);
    how.widens = job->b != 0;
    sc_kernels_rows_unpack(&how, 0, MOVE_ROWS, g_keys);
}

/* As vLLM's CPU cache has it: [block][head][K in columns | V in rows]; a: head size */
static struct sc_kernels_memory columns_memory(const struct job *job)
{
    uint64_t element = sc_kernels_dtype_bytes(job->dtype), head_bytes = job->a * element;
    return (struct sc_kernels_memory){.k_base = g_other,
                                      .v_base = g_other + BLOCK_TOKENS * head_bytes,
                                      .token_stride_bytes = element,
                                      .head_stride_bytes = 2 * BLOCK_TOKENS * head_bytes,
                                      .block_tokens = BLOCK_TOKENS,
                                      .block_stride_bytes =
                                          2 * BLOCK_TOKENS * MOVE_HEADS * HEAD_SIZE_MAX * element,
                                      .v_token_stride_bytes = head_bytes,
                                      .k_element_stride_bytes = BLOCK_TOKENS * element,
                                      .element_bytes = element};
}

/* As many rows at a time as the plugin takes. */
static void columns_unpack_run(const struct job *job)
{
    struct sc_kernels_memory memory = columns_memory(job);
    uint64_t row_bytes = 2 * MOVE_HEADS * HEAD_SIZE_MAX * memory.element_bytes;
    uint64_t bite = sc_kernels_rows_together(&memory);
    struct sc_kernels_move how = {job->kernels, &memory, MOVE_HEADS * HEAD_SIZE_MAX / job->a,
                                  job->a, .element_bytes = memory.element_bytes};
    for (uint64_t row = 0; row < MOVE_ROWS; row += bite)
        sc_kernels_rows_unpack(&how, row, bite, g_keys + row * row_bytes);
}

static void columns_pack_run(const struct job *job)
{
    struct sc_kernels_memory memory = columns_memory(job);
    uint64_t row_bytes = 2 * MOVE_HEADS * HEAD_SIZE_MAX * memory.element_bytes;
    uint64_t bite = sc_kernels_rows_together(&memory);
    struct sc_kernels_move how = {job->kernels, &memory, MOVE_HEADS * HEAD_SIZE_MAX / job->a,
                                  job->a, .element_bytes = memory.element_bytes};
    for (uint64_t row = 0; row < MOVE_ROWS; row += bite)
        sc_kernels_rows_pack(&how, row, bite, g_scratch + row * row_bytes);
}

/* Every fourth row of four times as many moves down: what it writes is of the same value again. */
static void compact_run(const struct job *job)
{
    struct sc_kernels_memory memory = move_memory(g_other, job->dtype, 4 * job->a);
    struct sc_kernels_move how = move_of(job, &memory);
    sc_kernels_rows_compact(&how, UINT64_MAX, g_every_fourth, MOVE_ROWS);
}

static void tag_run(const struct job *job)
{
    const struct sc_store_tag_rows rows = {
        .base = 1, .row_bytes = job->a, .count = MOVE_ROWS, .tag_step = 1};
    sc_store_tag_make(&rows, g_keys, g_tags);
}

/* ---- Codes: K of 4 bits, V of 2, in slabs of 64 rows ---------------------------------------- */

#define SLAB_ROWS  64u
#define SLABS      (MANY_KEYS / SLAB_ROWS)
#define CHANNELS   (ALL_HEADS * HEAD_SIZE_MAX)
#define PART_BYTES (2ull * MANY_KEYS * CHANNELS)

static uint64_t block_bytes(uint32_t bits)
{
    return sc_kernels_codec_scale_bytes(CHANNELS) +
           SLAB_ROWS * sc_kernels_codec_row_bytes(CHANNELS, bits);
}

static uint64_t codes_bytes(void)
{
    return SLABS * (block_bytes(4) + block_bytes(2));
}

static uint64_t code_copies(void)
{
    return g_past_bytes / codes_bytes() + 1;
}

/* Of K, then V. */
static uint8_t *block_at(uint32_t part, uint64_t slab)
{
    return g_codes +
           (part == 0 ? slab * block_bytes(4) : SLABS * block_bytes(4) + slab * block_bytes(2));
}

static void encode_run(const struct job *job)
{
    const uint8_t *rows[SLAB_ROWS];
    for (uint32_t part = 0; part < 2; part++)
        for (uint64_t slab = 0; slab < SLABS; slab++) {
            struct sc_kernels_codec code = {CHANNELS, part == 0 ? 4 : 2, SC_KERNELS_F16};
            uint8_t *scales = block_at(part, slab);
            for (uint64_t i = 0; i < SLAB_ROWS; i++)
                rows[i] = g_keys + part * PART_BYTES + (slab * SLAB_ROWS + i) * 2 * CHANNELS;
            if (!job->kernels->codec_encode(&code, rows, SLAB_ROWS, scales,
                                            scales + sc_kernels_codec_scale_bytes(CHANNELS)))
                bench_die("slab %d has no codes", (int)slab);
        }
}

static void decode_run(const struct job *job)
{
    struct sc_kernels_memory memory = {.k_base = g_other,
                                       .v_base = g_other + PART_BYTES,
                                       .token_stride_bytes = 2 * CHANNELS,
                                       .head_stride_bytes = 2 * HEAD_SIZE_MAX};
    struct sc_kernels_decode how = {.kernels = job->kernels,
                                    .memory = &memory,
                                    .head_count = ALL_HEADS,
                                    .head_size = HEAD_SIZE_MAX,
                                    .dst_dtype = SC_KERNELS_F16,
                                    .streams = true};
    for (uint64_t slab = 0; slab < SLABS; slab++)
        for (uint32_t part = 0; part < 2; part++) {
            const uint8_t *scales = block_at(part, slab);
            how.quantised = (struct sc_kernels_quantised){
                .scales = scales,
                .codes = scales + sc_kernels_codec_scale_bytes(CHANNELS),
                .bits = part == 0 ? 4 : 2};
            const struct sc_store_tag_rows block = {.base = 1,
                                                    .position_first = slab,
                                                    .row_bytes = block_bytes(how.quantised.bits),
                                                    .count = 1};
            sc_store_tag_make(&block, scales, g_tags);
            sc_kernels_part_decode(&how, part, slab * SLAB_ROWS, SLAB_ROWS);
        }
    sc_nt_copy_end();
    g_sink = g_other[PART_BYTES];
}

static void quantised_run(const struct job *job)
{
    struct sc_kernels_slab slabs[SLABS];
    for (uint64_t slab = 0; slab < SLABS; slab++)
        slabs[slab] = (struct sc_kernels_slab){
            {.scales = block_at(0, slab),
             .codes = block_at(0, slab) + sc_kernels_codec_scale_bytes(CHANNELS),
             .bits = 4},
            slab * SLAB_ROWS};
    uint64_t head_bytes = 2 * HEAD_SIZE_MAX;
    struct sc_kernels_importance what = {
        .kernels = job->kernels,
        .head_size = HEAD_SIZE_MAX,
        .group = 1,
        .scale = 1 / sqrtf((float)HEAD_SIZE_MAX),
        .queries = {g_queries, ALL_HEADS * head_bytes, head_bytes, 1, SC_KERNELS_F16},
        .prefix = {.slabs = slabs,
                   .slab_count = SLABS,
                   .channels = CHANNELS,
                   .count = MANY_KEYS,
                   .dtype = SC_KERNELS_F16}};
    sc_kernels_importance_sum(&what, 0, ALL_HEADS, g_scratch, g_scores, g_sums);
    g_sink = (double)g_sums[1];
}

/* ---- The list ------------------------------------------------------------------------------ */

static const char *const DTYPES[] = {"f32", "f16", "bf16"};
static const char *const LEVELS[] = {"ref", "avx2", "avx512"};

__attribute__((format(printf, 4, 5))) static void add(struct job job, const char *unit, double work,
                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(job.name, sizeof(job.name), format, args);
    va_end(args);
    if (strstr(job.name, g_only) == NULL)
        return;
    if (g_job_count == JOBS_MAX)
        bench_die("more than %u jobs", JOBS_MAX);
    job.unit = unit;
    job.work = work;
    job.series = calloc(1, sizeof(*job.series));
    if (job.series == NULL)
        bench_die("no memory for a series");
    g_jobs[g_job_count++] = job;
}

static void scoring_add(enum sc_kernels_level level)
{
    const struct sc_kernels *kernels = sc_kernels_get(level);
    for (uint64_t head_size = 64; head_size <= HEAD_SIZE_MAX; head_size *= 2)
        for (uint32_t dtype = 0; dtype < 3; dtype++) {
            struct job job = {
                .run = score_run, .kernels = kernels, .dtype = dtype, .heads = PROBES};
            job.a = head_size;
            job.b = MANY_ROWS;
            job.c = MANY_KEYS;
            add(job, "flop", 2.0 * (double)(PROBES * MANY_ROWS * MANY_KEYS * head_size),
                "many%d %s %s", (int)head_size, DTYPES[dtype], LEVELS[level]);
            job.b = 1;
            job.c = ONE_KEYS;
            job.window = PROBES * ONE_KEYS * head_size * sc_kernels_dtype_bytes(dtype);
            add(job, "byte", (double)job.window, "one%d %s %s", (int)head_size, DTYPES[dtype],
                LEVELS[level]);
        }
    struct job all = {.run = score_run, .kernels = kernels, .dtype = SC_KERNELS_F16};
    all.a = HEAD_SIZE_MAX;
    all.b = 1;
    all.c = MANY_KEYS;
    all.heads = ALL_HEADS;
    all.window = 2ull * ALL_HEADS * MANY_KEYS * HEAD_SIZE_MAX;
    add(all, "byte", (double)all.window, "all128 f16 %s", LEVELS[level]);
}

static void moving_add(enum sc_kernels_level level)
{
    const struct sc_kernels *kernels = sc_kernels_get(level);
    for (uint32_t dtype = 0; dtype < 3; dtype++) {
        uint64_t part_bytes =
            MOVE_ROWS * MOVE_HEADS * HEAD_SIZE_MAX * sc_kernels_dtype_bytes(dtype);
        struct job job = {.kernels = kernels, .dtype = dtype, .a = part_bytes};
        if (dtype != SC_KERNELS_F32) { /* counted: what is written */
            job.run = unpack_run;
            job.b = 1;
            add(job, "byte", 4.0 * (double)part_bytes, "widen %s %s", DTYPES[dtype], LEVELS[level]);
        }
        if (dtype == SC_KERNELS_BF16 || level != sc_kernels_level_best())
            continue; /* moving does not look at elements: their size alone matters */
        job.b = 0;
        job.run = unpack_run;
        add(job, "byte", 2.0 * (double)part_bytes, "unpack %s", DTYPES[dtype]);
        job.run = pack_run;
        add(job, "byte", 2.0 * (double)part_bytes, "pack %s", DTYPES[dtype]);
        job.run = compact_run;
        add(job, "byte", 2.0 * (double)part_bytes, "compact %s", DTYPES[dtype]);
        for (job.a = 64; job.a <= HEAD_SIZE_MAX; job.a *= 2) {
            job.run = columns_unpack_run;
            add(job, "byte", 2.0 * (double)part_bytes, "unpack columns%d %s", (int)job.a,
                DTYPES[dtype]);
            job.run = columns_pack_run;
            add(job, "byte", 2.0 * (double)part_bytes, "pack columns%d %s", (int)job.a,
                DTYPES[dtype]);
        }
        job.run = copy_run;
        job.a = 2 * part_bytes;
        add(job, "byte", (double)job.a, "memcpy %s", DTYPES[dtype]);
    }
}

static void codes_add(enum sc_kernels_level level)
{
    struct job job = {
        .kernels = sc_kernels_get(level), .run = encode_run, .window = 2 * PART_BYTES};
    add(job, "byte", 2.0 * (double)PART_BYTES, "encode 4+2 f16 %s", LEVELS[level]);
    job.run = decode_run;
    add(job, "byte", 2.0 * (double)PART_BYTES, "decode 4+2 f16 %s", LEVELS[level]);
    job.run = quantised_run; /* counted: the keys, as 16-bit ones are */
    add(job, "byte", (double)PART_BYTES, "coded128 f16 %s", LEVELS[level]);
}

static void choosing_add(enum sc_kernels_level level)
{
    struct job job = {.kernels = sc_kernels_get(level), .a = CHOOSE_ROWS, .b = CHOOSE_ROWS / 4};
    static const struct {
        const char *name;
        void (*run)(const struct job *job);
    } CHOICES[] = {{"topk", topk_run},
                   {"topk bits", bits_run},
                   {"similarity", overlap_run},
                   {"ranked", ranked_run},
                   {"vote", vote_run}};
    for (uint32_t i = 0; i < 5; i++) {
        job.run = CHOICES[i].run;
        add(job, "byte", (double)(CHOOSE_ROWS * sizeof(float)), "%s %s", CHOICES[i].name,
            LEVELS[level]);
    }
}

static void jobs_make(void)
{
    for (uint32_t level = 0; level <= sc_kernels_level_best(); level++) {
        choosing_add((enum sc_kernels_level)level);
        moving_add((enum sc_kernels_level)level);
        if (level == SC_KERNELS_REF)
            continue;
        scoring_add((enum sc_kernels_level)level);
        codes_add((enum sc_kernels_level)level);
#if defined(__x86_64__)
        double lanes = level == SC_KERNELS_AVX512 ? 16 * 16 : 12 * 8;
        add((struct job){.run = fma_run, .level = (enum sc_kernels_level)level}, "flop",
            2.0 * lanes * FMA_STEPS, "fma %s", LEVELS[level]);
#endif
    }
    struct job job = {.kernels = sc_kernels_get(sc_kernels_level_best())};
    job.run = copy_run;
    job.window = job.a = 2 * PART_BYTES;
    add(job, "byte", (double)job.a, "memcpy codes");
    job.run = tag_run;
    job.a = 4096;
    job.window = MOVE_ROWS * job.a;
    add(job, "byte", (double)(MOVE_ROWS * job.a), "tag 4096");
    job.run = read_run;
    job.a = MOVE_ROWS * job.a;
    add(job, "byte", (double)job.a, "read rows");
    job.window = job.a = 2ull * ALL_HEADS * MANY_KEYS * HEAD_SIZE_MAX;
    add(job, "byte", (double)job.a, "read all");
    job.run = pieces_run;
    add(job, "byte", (double)job.a, "read pieces");
    job.run = read_run;
    job.a = CHOOSE_ROWS * sizeof(float);
    job.window = 0;
    add(job, "byte", (double)job.a, "read scores");
    for (uint64_t head_size = 64; head_size <= HEAD_SIZE_MAX; head_size *= 2)
        for (uint64_t element = 2; element <= 4; element += 2) {
            job.window = job.a = PROBES * ONE_KEYS * head_size * element;
            job.run = read_run;
            add(job, "byte", (double)job.a, "read one%d %d", (int)head_size, (int)element);
        }
#ifdef BENCH_CBLAS
    openblas_set_num_threads(1);
    job.window = 0;
    for (uint64_t head_size = 64; head_size <= HEAD_SIZE_MAX; head_size *= 2) {
        job.run = sgemm_run;
        job.a = head_size;
        add(job, "flop", 2.0 * (double)(MANY_ROWS * MANY_KEYS * head_size), "sgemm%d",
            (int)head_size);
    }
#endif
}

static void run_next(const struct job *job)
{
    g_at = g_at + job->window > g_past_bytes ? 0 : g_at + job->window;
    g_turn = (g_turn + 1) % code_copies();
    g_keys = g_all_keys + g_at;
    g_other = g_all_other + g_at;
    g_codes = g_all_codes + g_turn * codes_bytes();
    job->run(job);
}

static void buffers_make(void)
{
    uint64_t scratch = sc_kernels_importance_scratch_bytes(HEAD_SIZE_MAX, ONE_KEYS, 0);
    g_past_bytes = 4 * bench_cache_bytes();
    uint64_t all_bytes = g_past_bytes + BUFFER_BYTES;
    g_keys = g_all_keys = bench_huge_memory(all_bytes, 0);
    g_other = g_all_other = bench_huge_memory(all_bytes, 0);
    g_codes = g_all_codes = bench_huge_memory(code_copies() * codes_bytes(), 0);
    g_queries = bench_huge_memory(4ull * MANY_ROWS * PROBES * HEAD_SIZE_MAX, 0);
    g_scratch = bench_huge_memory(scratch > BUFFER_BYTES ? scratch : BUFFER_BYTES, 0);
    g_sums = bench_huge_memory(PROBES * ONE_KEYS * sizeof(float), 0); /* TOGETHER * MANY_KEYS */
    g_scores = bench_huge_memory(CHOOSE_ROWS * sizeof(float), 0);
    g_rows = bench_huge_memory(CHOOSE_ROWS * sizeof(uint32_t), 0);
    g_sets = bench_huge_memory(PROBES * CHOOSE_ROWS / 8, 0);
    g_bits = bench_huge_memory(CHOOSE_ROWS / 8, 0);
    g_every_fourth = bench_huge_memory(MOVE_ROWS * sizeof(uint32_t), 0);
    g_tags = bench_huge_memory(2 * CHOOSE_ROWS * sizeof(uint64_t), 0);
    uint64_t seed = 1; /* 0x2c00 | bits: small numbers in f16, in bf16, and in f32 */
    for (uint64_t i = 0; i < all_bytes / 2; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint16_t half = (uint16_t)(0x3400u | (seed >> 40 & 0x83ffu));
        memcpy(g_keys + 2 * i, &half, sizeof(half));
    }
    memcpy(g_queries, g_keys + 4096, 4ull * MANY_ROWS * PROBES * HEAD_SIZE_MAX);
    for (uint32_t set = 0; set < PROBES; set++) { /* skewed, as importance is */
        for (uint64_t j = 0; j < CHOOSE_ROWS; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            g_scores[j] = (float)exp(-8 * (double)(seed >> 40) / (double)(1 << 24));
        }
        sc_kernels_topk_bits(sc_kernels_get(SC_KERNELS_REF), g_scores, CHOOSE_ROWS, CHOOSE_ROWS / 4,
                             g_sets + set * SC_KERNELS_WORDS(CHOOSE_ROWS));
    }
    for (uint32_t i = 0; i < MOVE_ROWS; i++)
        g_every_fourth[i] = 4 * i + 1;
}

/* As many runs that are not counted come first: caches then hold what the job left, not others. */
static void sample(const struct job *job, uint64_t repeats)
{
    for (uint64_t n = 0; n < repeats; n++)
        run_next(job);
    uint64_t start_ns = bench_now_ns();
    for (uint64_t n = 0; n < repeats; n++)
        run_next(job);
    bench_series_add(job->series, bench_now_ns() - start_ns);
}

int main(int argc, char **argv)
{
    uint64_t rounds = bench_option_u64(argc, argv, "--rounds", 9);
    static uint64_t repeats[JOBS_MAX];
    g_only = bench_option(argc, argv, "--only", ""); /* jobs whose names hold it */
    buffers_make();
    jobs_make();
    for (uint32_t i = 0; i < g_job_count; i++) {
        run_next(&g_jobs[i]);
        uint64_t best_ns = UINT64_MAX;
        for (uint32_t n = 0; n < 3; n++) {
            uint64_t start_ns = bench_now_ns();
            run_next(&g_jobs[i]);
            uint64_t took_ns = bench_now_ns() - start_ns;
            best_ns = took_ns < best_ns ? took_ns : best_ns;
        }
        repeats[i] = 1 + SAMPLE_NS / (best_ns + 1);
        *g_jobs[i].series = (struct bench_series){.name = g_jobs[i].name,
                                                  .unit = g_jobs[i].unit,
                                                  .work = g_jobs[i].work * (double)repeats[i]};
    }
    for (uint64_t round = 0, turns = 0; round < rounds; round++) {
        uint32_t order[JOBS_MAX];
        bench_shuffle(order, g_job_count, &turns);
        for (uint32_t i = 0; i < g_job_count; i++)
            sample(&g_jobs[order[i]], repeats[order[i]]);
    }
    for (uint32_t i = 0; i < g_job_count; i++) {
        bench_series_print(g_jobs[i].series);
        free(g_jobs[i].series);
    }
    return 0;
}
