/* gemm: packs weights and blocks the matrix product; inner kernels: kernels_gemm.h.
 *
 *   for a block of rows (x stays in the second-level cache)        one task: a block of rows and
 *     for a panel of 32 outputs                                    a range of panels of one job
 *       for a block of inputs (weights widened once, 24 KiB)
 *         for tiles of rows: sums += chain
 *       y = sums + bias
 *
 * Few rows skip the widened copy: the tile widens in registers. One row is streamed. Tasks own
 * disjoint parts of y, and lanes are outputs, so the partition changes no bit. Threads, Tests: see
 * gemm.h. */
#include "conformance/engine/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "conformance/engine/kernels.h"

#define ROWS_BLOCK_MAX   126u       /* nine full tiles of 14 rows */
#define ROWS_BLOCK_MIN   28u        /* fewer would widen the weights too often */
#define X_BLOCK_BYTES    (1u << 20) /* half of a second-level cache of 2 MiB */
#define TASKS_A_THREAD   4u         /* so that a thread that comes late holds up less */
#define STREAM_FEW       64u        /* panels a thread: below, cutting finer costs more */
#define WEIGHT_BYTES_MAX (1ull << 48)
#define PACK_INPUTS      64u /* inputs of 32 outputs: the target stays in L1 */

struct eng_weights {
    uint64_t outputs, inputs, panels;
    uint64_t panel_bytes;
    enum eng_dtype dtype;
    uint8_t *data; /* [panels][inputs][32] */
};

struct scratch {
    float wide[ENG_GEMM_K_BLOCK * ENG_TILE_COLUMNS];
    float sums[ROWS_BLOCK_MAX * ENG_TILE_COLUMNS];
};

_Static_assert(sizeof(struct scratch) <= ENG_POOL_SCRATCH_MIN_BYTES, "every pool has room");

struct pack_run {
    const struct eng_weights *weights;
    const uint8_t *source;
};

/* Copies output `column` of a panel, inputs first .. end-1. */
static void pack_column(const struct pack_run *run, uint64_t output, uint8_t *panel, uint64_t first,
                        uint64_t end)
{
    const struct eng_weights *weights = run->weights;
    uint64_t size = eng_dtype_bytes(weights->dtype);
    const uint8_t *from = run->source + (output * weights->inputs + first) * size;
    uint8_t *to = panel + (first * ENG_TILE_COLUMNS + output % ENG_TILE_COLUMNS) * size;
    for (uint64_t kk = first; kk < end; kk++) {
        if (size == 2)
            memcpy(to, from, 2); /* the source may be unaligned */
        else
            memcpy(to, from, 4);
        from += size;
        to += ENG_TILE_COLUMNS * size;
    }
}

static void pack_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    const struct pack_run *run = arg;
    const struct eng_weights *weights = run->weights;
    (void)thread;
    uint64_t first_panel;
    uint64_t end_panel;
    eng_pool_share(weights->panels, part, part_count, &first_panel, &end_panel);
    for (uint64_t p = first_panel; p < end_panel; p++) {
        uint8_t *panel = weights->data + p * weights->panel_bytes;
        uint64_t first = p * ENG_TILE_COLUMNS;
        uint64_t end = first + ENG_TILE_COLUMNS;
        if (end > weights->outputs) {
            end = weights->outputs;
            memset(panel, 0, weights->panel_bytes);
        }
        for (uint64_t kk = 0; kk < weights->inputs; kk += PACK_INPUTS) {
            uint64_t k_end =
                kk + PACK_INPUTS < weights->inputs ? kk + PACK_INPUTS : weights->inputs;
            for (uint64_t output = first; output < end; output++)
                pack_column(run, output, panel, kk, k_end);
        }
    }
}

eng_status eng_weights_pack(struct eng_pool *pool, const void *source, enum eng_dtype dtype,
                            uint64_t outputs, uint64_t inputs, struct eng_weights **ret_weights,
                            struct eng_error *reterr)
{
    if (outputs == 0 || inputs == 0 || outputs > WEIGHT_BYTES_MAX / 8 / inputs ||
        inputs > WEIGHT_BYTES_MAX / 8 / ENG_TILE_COLUMNS)
        return eng_fail(reterr, ENG_E_INVALID, "weights of %llu outputs x %llu inputs",
                        (unsigned long long)outputs, (unsigned long long)inputs);
    struct eng_weights *weights = calloc(1, sizeof(*weights));
    if (weights == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "weights handle");
    weights->outputs = outputs;
    weights->inputs = inputs;
    weights->dtype = dtype;
    weights->panels = (outputs + ENG_TILE_COLUMNS - 1) / ENG_TILE_COLUMNS;
    weights->panel_bytes = inputs * ENG_TILE_COLUMNS * eng_dtype_bytes(dtype);
    uint64_t bytes = weights->panels * weights->panel_bytes;
    weights->data = aligned_alloc(64, bytes); /* a panel row is 64 or 128 bytes */
    if (weights->data == NULL) {
        free(weights);
        return eng_fail(reterr, ENG_E_NO_MEMORY, "weights of %llu bytes",
                        (unsigned long long)bytes);
    }
    struct pack_run run = {.weights = weights, .source = source};
    uint64_t parts = (uint64_t)eng_pool_threads(pool) * TASKS_A_THREAD;
    eng_pool_run(pool, pack_part, &run, parts < weights->panels ? parts : weights->panels);
    *ret_weights = weights;
    return ENG_OK;
}

void eng_weights_free(struct eng_weights *weights)
{
    if (weights == NULL)
        return;
    free(weights->data);
    free(weights);
}

uint64_t eng_weights_outputs(const struct eng_weights *weights)
{
    return weights->outputs;
}

uint64_t eng_weights_inputs(const struct eng_weights *weights)
{
    return weights->inputs;
}

uint64_t eng_weights_bytes(const struct eng_weights *weights)
{
    return weights->panels * weights->panel_bytes;
}

void eng_weights_row(const struct eng_weights *weights, uint64_t output, float *ret_row)
{
    const uint8_t *panel = weights->data + output / ENG_TILE_COLUMNS * weights->panel_bytes;
    uint64_t column = output % ENG_TILE_COLUMNS;
    for (uint64_t kk = 0; kk < weights->inputs; kk++) {
        uint64_t at = kk * ENG_TILE_COLUMNS + column;
        if (weights->dtype == ENG_F32)
            ret_row[kk] = ((const float *)(const void *)panel)[at];
        else if (weights->dtype == ENG_F16)
            ret_row[kk] = eng_f16_to_f32(((const uint16_t *)(const void *)panel)[at]);
        else
            ret_row[kk] = eng_bf16_to_f32(((const uint16_t *)(const void *)panel)[at]);
    }
}

struct gemm_run {
    const struct eng_kernels *kernels;
    struct eng_pool *pool;
    const struct eng_gemm_job *jobs;
    uint64_t job_count;
    uint64_t m;
};

/* How one job is cut: blocks of rows x ranges of panels. */
struct grid {
    uint64_t row_blocks, panel_ranges;
};

static uint64_t job_outputs(const struct eng_gemm_job *job)
{
    return job->outputs == 0 ? job->weights->outputs : job->outputs;
}

static uint64_t job_panels(const struct eng_gemm_job *job)
{
    return (job_outputs(job) + ENG_TILE_COLUMNS - 1) / ENG_TILE_COLUMNS;
}

static struct grid job_grid(const struct gemm_run *run, const struct eng_gemm_job *job)
{
    const struct eng_weights *weights = job->weights;
    uint64_t panels = job_panels(job);
    uint64_t rows = X_BLOCK_BYTES / sizeof(float) / weights->inputs;
    rows = rows < ROWS_BLOCK_MIN ? ROWS_BLOCK_MIN : rows;
    rows = rows > ROWS_BLOCK_MAX ? ROWS_BLOCK_MAX : rows;
    struct grid grid = {.row_blocks = (run->m + rows - 1) / rows};
    uint64_t threads = eng_pool_threads(run->pool);
    uint64_t tasks = threads * TASKS_A_THREAD;
    if (threads == 1 || (run->m == 1 && panels < threads * STREAM_FEW))
        tasks = threads;
    grid.panel_ranges = (tasks + grid.row_blocks - 1) / grid.row_blocks;
    if (grid.panel_ranges > panels)
        grid.panel_ranges = panels;
    return grid;
}

static void finish_rows(const struct gemm_run *run, const struct eng_gemm_job *job, uint64_t panel,
                        uint64_t first_row, uint64_t rows, const float *sums)
{
    uint64_t column = panel * ENG_TILE_COLUMNS;
    uint64_t columns = job_outputs(job) - column;
    columns = columns > ENG_TILE_COLUMNS ? ENG_TILE_COLUMNS : columns;
    const float *bias = job->bias == NULL ? NULL : job->bias + column;
    for (uint64_t r = 0; r < rows; r++)
        run->kernels->finish(sums + r * ENG_TILE_COLUMNS, bias, job->accumulate, columns,
                             job->y + (first_row + r) * job->y_stride + column);
}

static void stream_panels(const struct gemm_run *run, const struct eng_gemm_job *job,
                          uint64_t first, uint64_t end, struct scratch *scratch)
{
    const struct eng_weights *weights = job->weights;
    uint64_t groups = (end - first + ENG_STREAM_MAX - 1) / ENG_STREAM_MAX;
    for (uint64_t g = 0; g < groups; g++) {
        uint64_t from;
        uint64_t to;
        eng_pool_share(end - first, g, groups, &from, &to);
        from += first;
        to += first;
        run->kernels->stream(job->x, weights->data + from * weights->panel_bytes,
                             weights->inputs * ENG_TILE_COLUMNS, weights->dtype, weights->inputs,
                             to - from, scratch->sums);
        for (uint64_t p = from; p < to; p++)
            finish_rows(run, job, p, 0, 1, scratch->sums + (p - from) * ENG_TILE_COLUMNS);
    }
}

/* One panel for rows first_row .. first_row + rows - 1: their sums over all inputs. */
static void panel_sums(const struct gemm_run *run, const struct eng_gemm_job *job, uint64_t panel,
                       uint64_t first_row, uint64_t rows, struct scratch *scratch)
{
    const struct eng_weights *weights = job->weights;
    uint64_t tiles = (rows + run->kernels->tile_rows - 1) / run->kernels->tile_rows;
    uint64_t value_bytes = eng_dtype_bytes(weights->dtype);
    for (uint64_t block = 0; block < weights->inputs; block += ENG_GEMM_K_BLOCK) {
        uint64_t left = weights->inputs - block;
        uint64_t k = left < ENG_GEMM_K_BLOCK ? left : ENG_GEMM_K_BLOCK;
        const void *b =
            weights->data + panel * weights->panel_bytes + block * ENG_TILE_COLUMNS * value_bytes;
        enum eng_dtype dtype = weights->dtype;
        if (dtype != ENG_F32 && tiles > 1) {
            run->kernels->widen(b, dtype, k * ENG_TILE_COLUMNS, scratch->wide);
            b = scratch->wide;
            dtype = ENG_F32;
        }
        for (uint64_t t = 0; t < tiles; t++) {
            uint64_t from;
            uint64_t to;
            eng_pool_share(rows, t, tiles, &from, &to);
            run->kernels->tile(job->x + (first_row + from) * job->x_stride + block, job->x_stride,
                               b, dtype, k, scratch->sums + from * ENG_TILE_COLUMNS,
                               ENG_TILE_COLUMNS, to - from,
                               block == 0 ? ENG_TILE_SET : ENG_TILE_ADD);
        }
    }
}

static void run_task(const struct gemm_run *run, const struct eng_gemm_job *job,
                     const struct grid *grid, uint64_t task, struct scratch *scratch)
{
    uint64_t first_panel;
    uint64_t end_panel;
    uint64_t first_row;
    uint64_t end_row;
    eng_pool_share(job_panels(job), task % grid->panel_ranges, grid->panel_ranges, &first_panel,
                   &end_panel);
    eng_pool_share(run->m, task / grid->panel_ranges, grid->row_blocks, &first_row, &end_row);
    if (run->m == 1) {
        stream_panels(run, job, first_panel, end_panel, scratch);
        return;
    }
    for (uint64_t p = first_panel; p < end_panel; p++) {
        panel_sums(run, job, p, first_row, end_row - first_row, scratch);
        finish_rows(run, job, p, first_row, end_row - first_row, scratch->sums);
    }
}

static void gemm_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    const struct gemm_run *run = arg;
    (void)part_count;
    for (uint64_t j = 0; j < run->job_count; j++) {
        struct grid grid = job_grid(run, &run->jobs[j]);
        uint64_t tasks = grid.row_blocks * grid.panel_ranges;
        if (part < tasks) {
            run_task(run, &run->jobs[j], &grid, part, eng_pool_scratch(run->pool, thread));
            return;
        }
        part -= tasks;
    }
}

void eng_gemm_many(struct eng_pool *pool, const struct eng_gemm_job *jobs, uint64_t job_count,
                   uint64_t m)
{
    if (m == 0)
        return;
    struct gemm_run run = {
        .kernels = eng_kernels_get(), .pool = pool, .jobs = jobs, .job_count = job_count, .m = m};
    uint64_t parts = 0;
    for (uint64_t j = 0; j < job_count; j++) {
        struct grid grid = job_grid(&run, &jobs[j]);
        parts += grid.row_blocks * grid.panel_ranges;
    }
    eng_pool_run(pool, gemm_part, &run, parts);
}

void eng_gemm(struct eng_pool *pool, const struct eng_weights *weights, const float *x,
              uint64_t x_stride, uint64_t m, const float *bias, bool accumulate, float *y,
              uint64_t y_stride)
{
    struct eng_gemm_job job = {.weights = weights,
                               .x = x,
                               .bias = bias,
                               .y = y,
                               .x_stride = x_stride,
                               .y_stride = y_stride,
                               .accumulate = accumulate};
    eng_gemm_many(pool, &job, 1, m);
}
