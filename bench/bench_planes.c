/* bench-planes: costs of quantised rows with bits per channel, beside uniform bits and the
 * machine's limits.
 *
 *   decode   2,048 rows of 32 heads of 128, 3 bits per channel on average (0 to 6), with their
 *            blocks' checksums: as they are, rope by halves, rope by pairs           memcpy: the
 *                                                                                   same bytes
 *   encode   the same, from f16                                                     4 bits
 *   score    1 and 4 queries per head; kernels alone, without a softmax             4 bits
 *   ask      1, 4 and 32 queries per head, a whole layer: scores, softmax, sums     4 bits
 *
 * Quantised rows and rows are read from memory: each run continues in a window of buffers, and
 * returns to one after four times the last cache. Decoded rows are never encoded again: they would
 * drift. Rope tables are shared by all layers and stay in a cache. Contenders are measured round by
 * round, in varying order. A series is named JOB LEVEL.
 * Threads: one. Tests: none (a measurement). */
#include "base/nt_copy.h"
#include "bench/bench.h"
#include "kernels/bitplanes.h"
#include "kernels/importance.h"
#include "store/rows/tag.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOBS_MAX    128u
#define ROWS        2048u
#define SLAB        128u
#define SLABS       (ROWS / SLAB)
#define HEADS       32u
#define SIZE        128u
#define CHANNELS    (HEADS * SIZE)
#define PART_BYTES  (2ull * ROWS * CHANNELS)
#define SCALES      (4ull * CHANNELS)
#define QUERIES     4u
#define ASKED       32u /* by a question: some tokens of a group of heads */
#define BLOCK_BYTES (SCALES + SLAB * CHANNELS / 2) /* of 4 bits, the larger ones */
#define CODE_BYTES  (SLABS * BLOCK_BYTES)

struct job {
    char name[64];
    void (*run)(const struct job *job);
    const struct sc_kernels *kernels;
    const struct sc_kernels_rotary *rotary;
    uint32_t dtype;
    uint64_t queries;
    bool has_tiles, is_even;
    struct bench_series *series;
};

static struct job g_jobs[JOBS_MAX];
static uint32_t g_job_count;
static const char *g_only;
static uint8_t *g_all_rows, *g_all_codes;
static uint8_t *g_sources, *g_rows, *g_codes; /* where this run has its windows */
static uint64_t g_turn, g_windows, g_copies;
static float *g_turns, *g_tiles, *g_queries, *g_scores, *g_one, *g_sums;
static void *g_scratch;
static struct sc_kernels_bitplanes g_planes;
static struct sc_kernels_bitplanes_group g_groups[CHANNELS / SC_KERNELS_BITPLANES_GROUP];
static uint8_t g_to[CHANNELS];
static volatile double g_sink;

static const struct sc_kernels_codec FOURS = {CHANNELS, 4, SC_KERNELS_F16};
static const struct sc_kernels_rotary HALF = {SC_KERNELS_ROTARY_HALF, SIZE};
static const struct sc_kernels_rotary PAIRS = {SC_KERNELS_ROTARY_INTERLEAVED, SIZE};

static void copy_run(const struct job *job)
{
    (void)job;
    memcpy(g_rows, g_sources, PART_BYTES);
}

static void rows_of(uint64_t slab, uint8_t *first, uint8_t **ret_rows)
{
    for (uint64_t i = 0; i < SLAB; i++)
        ret_rows[i] = first + (slab * SLAB + i) * 2 * CHANNELS;
}

static void planes_encode_run(const struct job *job)
{
    uint8_t *rows[SLAB];
    for (uint64_t slab = 0; slab < SLABS; slab++) {
        uint8_t *scales = g_codes + slab * BLOCK_BYTES;
        rows_of(slab, g_sources, rows);
        const struct sc_kernels_bitplanes_encode what = {.planes = &g_planes,
                                                         .rows = (const uint8_t *const *)rows,
                                                         .row_count = SLAB,
                                                         .dtype = SC_KERNELS_F16,
                                                         .rotary = job->rotary,
                                                         .rope = g_turns + slab * SLAB * SIZE,
                                                         .scales = scales,
                                                         .codes = scales + SCALES};
        if (!job->kernels->bitplanes_encode(&what))
            bench_die("slab %d has no codes", (int)slab);
    }
}

static void fours_encode_run(const struct job *job)
{
    uint8_t *rows[SLAB];
    for (uint64_t slab = 0; slab < SLABS; slab++) {
        uint8_t *scales = g_codes + slab * BLOCK_BYTES;
        rows_of(slab, g_sources, rows);
        if (!job->kernels->codec_encode(&FOURS, (const uint8_t *const *)rows, SLAB, scales,
                                        scales + SCALES))
            bench_die("slab %d has no codes", (int)slab);
    }
}

static void block_check(const uint8_t *block, uint64_t bytes)
{
    const struct sc_store_tag_rows rows = {.base = 1, .row_bytes = bytes, .count = 1};
    uint64_t tag;
    sc_store_tag_make(&rows, block, &tag);
    g_sink = (double)tag;
}

static void planes_decode_run(const struct job *job)
{
    uint8_t *rows[SLAB];
    for (uint64_t slab = 0; slab < SLABS; slab++) {
        const uint8_t *scales = g_codes + slab * BLOCK_BYTES;
        rows_of(slab, g_rows, rows);
        block_check(scales, SCALES + SLAB * g_planes.row_bytes);
        const struct sc_kernels_bitplanes_decode what = {.planes = &g_planes,
                                                         .scales = scales,
                                                         .codes = scales + SCALES,
                                                         .row_count = SLAB,
                                                         .head_count = HEADS,
                                                         .dst = rows,
                                                         .dst_dtype = job->dtype,
                                                         .rotary = job->rotary,
                                                         .rope = g_turns + slab * SLAB * SIZE,
                                                         .streams = true};
        job->kernels->bitplanes_decode(&what);
    }
    sc_nt_copy_end();
}

static void fours_decode_run(const struct job *job)
{
    uint8_t *rows[SLAB];
    for (uint64_t slab = 0; slab < SLABS; slab++) {
        const uint8_t *scales = g_codes + slab * BLOCK_BYTES;
        rows_of(slab, g_rows, rows);
        block_check(scales, BLOCK_BYTES);
        job->kernels->codec_decode(&(struct sc_kernels_codec_decode){
            &FOURS, scales, scales + SCALES, SLAB, 0, CHANNELS, rows, SC_KERNELS_F16, true});
    }
    sc_nt_copy_end();
}

static void planes_score_run(const struct job *job)
{
    for (uint64_t slab = 0; slab < SLABS; slab++)
        for (uint64_t head = 0; head < HEADS; head++) {
            const uint8_t *scales = g_codes + slab * BLOCK_BYTES;
            const struct sc_kernels_bitplanes_score what = {
                .planes = &g_planes,
                .scales = scales,
                .codes = scales + SCALES,
                .row_count = SLAB,
                .head = head,
                .queries = g_queries,
                .head_padded = SIZE,
                .query_count = job->queries,
                .rotary = job->rotary,
                .rope = g_turns + slab * SLAB * SIZE,
                .scores = g_scores,
                .score_stride = SLAB,
                .ahead = scales + SCALES + (head + 1) / HEADS * BLOCK_BYTES,
                .ahead_head = (head + 1) % HEADS,
                .rope_tiles = job->has_tiles ? g_tiles + slab * SLAB * SIZE : NULL};
            job->kernels->bitplanes_score(&what);
        }
    g_sink = (double)g_scores[1];
}

static void fours_score_run(const struct job *job)
{
    for (uint64_t slab = 0; slab < SLABS; slab++)
        for (uint64_t head = 0; head < HEADS; head++) {
            const uint8_t *scales = g_codes + slab * BLOCK_BYTES;
            const struct sc_kernels_codec_score what = {.code = &FOURS,
                                                        .scales = scales,
                                                        .codes = scales + SCALES,
                                                        .row_count = SLAB,
                                                        .channel_first = head * SIZE,
                                                        .head_size = SIZE,
                                                        .queries = g_queries,
                                                        .head_padded = SIZE,
                                                        .query_count = job->queries,
                                                        .scores = g_scores,
                                                        .score_stride = SLAB,
                                                        .ahead = scales + SCALES,
                                                        .ahead_channel = (head + 1) % HEADS * SIZE};
            job->kernels->codec_score(&what);
        }
    g_sink = (double)g_scores[1];
}

/* What the queries of a question ask of a layer, its softmax and all: keys are decoded for many of
 * them at once. */
static void ask_run(const struct job *job)
{
    struct sc_kernels_slab slabs[SLABS];
    uint64_t head_bytes = sizeof(float) * SIZE;
    for (uint64_t slab = 0; slab < SLABS; slab++) {
        const uint8_t *scales = g_codes + slab * BLOCK_BYTES;
        slabs[slab] = (struct sc_kernels_slab){
            {.scales = scales, .codes = scales + SCALES, .bits = 4}, slab * SLAB};
        if (job->is_even)
            continue;
        slabs[slab].quantised.planes = &g_planes;
        slabs[slab].quantised.rotary = job->rotary;
        slabs[slab].quantised.rope = g_turns + slab * SLAB * SIZE;
        slabs[slab].quantised.rope_tiles = g_tiles + slab * SLAB * SIZE;
    }
    const struct sc_kernels_importance what = {
        .kernels = job->kernels,
        .head_size = SIZE,
        .group = 1,
        .scale = 1 / sqrtf((float)SIZE),
        .queries = {(const uint8_t *)g_queries, head_bytes, 0, job->queries, SC_KERNELS_F32},
        .prefix = {.slabs = slabs,
                   .slab_count = SLABS,
                   .channels = CHANNELS,
                   .count = ROWS,
                   .dtype = SC_KERNELS_F16}};
    sc_kernels_importance_sum(&what, 0, HEADS, g_scratch, g_one, g_sums);
    g_sink = (double)g_sums[1];
}

/* ---- The list ------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void add(struct job job, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(job.name, sizeof(job.name), format, args);
    va_end(args);
    if (strstr(job.name, g_only) == NULL)
        return;
    job.series = calloc(1, sizeof(*job.series));
    if (job.series == NULL || g_job_count == JOBS_MAX)
        bench_die("no room for %s", job.name);
    g_jobs[g_job_count++] = job;
}

static void jobs_make(void)
{
    static const char *const LEVELS[] = {"ref", "avx2", "avx512"};
    static const struct {
        const char *name;
        const struct sc_kernels_rotary *rotary;
    } TURNS[] = {{"", NULL}, {" turned", &HALF}, {" paired", &PAIRS}};
    static const uint64_t ASKS[] = {1, QUERIES, ASKED};
    add((struct job){.run = copy_run}, "memcpy planes");
    for (uint32_t level = 1; level <= sc_kernels_level_best(); level++) {
        struct job job = {.kernels = sc_kernels_get(level), .dtype = SC_KERNELS_F16};
        for (uint32_t t = 0; t < 3; t++) {
            job.rotary = TURNS[t].rotary;
            job.run = planes_encode_run;
            add(job, "encode 3%s %s", TURNS[t].name, LEVELS[level]);
            job.run = planes_decode_run;
            for (job.dtype = SC_KERNELS_F16; job.dtype <= SC_KERNELS_BF16; job.dtype++)
                add(job, "decode 3%s %s %s", TURNS[t].name,
                    job.dtype == SC_KERNELS_F16 ? "f16" : "bf16", LEVELS[level]);
            job.run = planes_score_run;
            for (uint32_t n = 0; n < (t == 0 ? 2 : 4); n++) {
                job.queries = n % 2 == 0 ? 1 : QUERIES;
                job.has_tiles = n >= 2;
                add(job, "score%d 3%s%s %s", (int)job.queries, TURNS[t].name, n < 2 ? "" : " tiles",
                    LEVELS[level]);
            }
            job.run = ask_run;
            for (uint32_t n = 0; n < 3; n++) {
                job.queries = ASKS[n];
                add(job, "ask%d 3%s %s", (int)job.queries, TURNS[t].name, LEVELS[level]);
            }
        }
        job.run = fours_encode_run;
        add(job, "encode 4 %s", LEVELS[level]);
        job.run = fours_decode_run;
        add(job, "decode 4 f16 %s", LEVELS[level]);
        job.run = fours_score_run;
        for (job.queries = 1; job.queries <= QUERIES; job.queries *= 4)
            add(job, "score%d 4 %s", (int)job.queries, LEVELS[level]);
        job.run = ask_run;
        job.is_even = true;
        for (uint32_t n = 0; n < 3; n++) {
            job.queries = ASKS[n];
            add(job, "ask%d 4 %s", (int)job.queries, LEVELS[level]);
        }
    }
}

/* Widths 0 1 2 3 3 4 5 6 of every eight channels of a group, by lot. */
static void table_make(void)
{
    static const uint8_t WIDTHS[] = {0, 1, 2, 3, 3, 4, 5, 6};
    for (uint64_t first = 0, turn = 0; first < CHANNELS; first += SC_KERNELS_BITPLANES_GROUP)
        for (uint64_t i = 0; i < SC_KERNELS_BITPLANES_GROUP; i++) {
            uint64_t other = bench_mix(turn++) % (i + 1);
            g_to[first + i] = g_to[first + other];
            g_to[first + other] = WIDTHS[i % 8];
        }
    if (!sc_kernels_bitplanes_init(&g_planes, HEADS, SIZE, g_to, g_groups))
        bench_die("no table");
}

static void buffers_make(void)
{
    uint64_t past = 4 * bench_cache_bytes(), seed = 1;
    double frequencies[SIZE / 2];
    g_windows = past / PART_BYTES + 2;
    g_copies = past / CODE_BYTES + 1;
    g_sources = g_all_rows = bench_huge_memory(2 * g_windows * PART_BYTES, 0);
    g_all_codes = bench_huge_memory((g_copies + 1) * CODE_BYTES, 0x55);
    g_turns = bench_huge_memory(ROWS * SIZE * sizeof(float), 0);
    g_tiles = bench_huge_memory(ROWS * SIZE * sizeof(float), 0);
    g_queries = bench_huge_memory(ASKED * SIZE * sizeof(float), 0);
    g_one = bench_huge_memory(ROWS * sizeof(float), 0);
    g_sums = bench_huge_memory(ROWS * sizeof(float), 0);
    g_scratch = bench_huge_memory(sc_kernels_importance_scratch_bytes(SIZE, ROWS, 0), 0);
    g_scores = bench_huge_memory(QUERIES * SLAB * sizeof(float), 0);
    for (uint64_t i = 0; i < g_windows * PART_BYTES / 2; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint16_t half = (uint16_t)(0x3400u | (seed >> 40 & 0x83ffu));
        memcpy(g_all_rows + 2 * i, &half, sizeof(half));
    }
    for (uint64_t i = 0; i < ASKED * SIZE; i++)
        g_queries[i] = (float)(bench_mix(i) >> 40) * 0x1p-24f - 0.5f;
    for (uint64_t i = 0; i < SIZE / 2; i++)
        frequencies[i] = pow(1e4, -2.0 * (double)i / SIZE);
    for (uint64_t i = 0; i < ROWS; i++)
        sc_kernels_rope_row(i, frequencies, SIZE, g_turns + i * SIZE);
    sc_kernels_bitplanes_rope_tiles(g_turns, ROWS, SIZE, g_tiles);
    table_make();
    struct job job = {.kernels = sc_kernels_get(sc_kernels_level_best())};
    g_codes = g_all_codes; /* scales that are numbers, in every copy */
    planes_encode_run(&job);
    for (uint64_t i = 1; i < g_copies; i++)
        memcpy(g_all_codes + i * CODE_BYTES, g_all_codes, CODE_BYTES);
}

static void run_next(const struct job *job)
{
    g_turn++;
    g_sources = g_all_rows + g_turn % g_windows * PART_BYTES;
    g_rows = g_sources + g_windows * PART_BYTES;
    g_codes = g_all_codes + g_turn % g_copies * CODE_BYTES;
    job->run(job);
}

int main(int argc, char **argv)
{
    uint64_t rounds = bench_option_u64(argc, argv, "--rounds", 15), turns = 0;
    g_only = bench_option(argc, argv, "--only", ""); /* jobs whose names hold it */
    buffers_make();
    jobs_make();
    for (uint32_t i = 0; i < g_job_count; i++)
        *g_jobs[i].series = (struct bench_series){
            .name = g_jobs[i].name, .unit = "byte", .work = (double)PART_BYTES};
    for (uint64_t round = 0; round <= rounds; round++) { /* the first is not counted */
        uint32_t order[JOBS_MAX];
        bench_shuffle(order, g_job_count, &turns);
        for (uint32_t i = 0; i < g_job_count; i++) {
            const struct job *job = &g_jobs[order[i]];
            run_next(job);
            uint64_t start_ns = bench_now_ns();
            run_next(job);
            uint64_t took_ns = bench_now_ns() - start_ns;
            if (round > 0)
                bench_series_add(job->series, took_ns);
        }
    }
    for (uint32_t i = 0; i < g_job_count; i++) {
        bench_series_print(g_jobs[i].series);
        free(g_jobs[i].series);
    }
    return 0;
}
