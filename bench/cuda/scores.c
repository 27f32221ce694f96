/* Importance of a layer's keys, which are codes of 4 bits: four launches, one behind the other, by
 * FFMA and, where the device has them, by tensor cores.
 *
 *   queries [n][heads * group][head_size] bf16    prefix: rows of the shape    new keys: n, causal
 *   beside  as many multiply-adds of registers alone as both passes over the keys need:
 *           2 x n x query heads x (prefix + new keys that are seen) x head_size
 *
 * Threads: one. Tests: ctest bench_cuda_on_the_fake */
#include "bench/cuda/parts.h"

#include "kernels/importance.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_ROWS 64u
#define BITS      4u
#define TOLERANCE 1e-5
#define UP(bytes) (((bytes) + 15) / 16 * 16)

struct scores {
    const struct rig_shape *shape;
    uint64_t slabs, scale_bytes, row_bytes, slab_bytes, query_bytes, key_bytes;
    uint8_t *area, *queries, *fresh; /* pinned */
    struct sc_cuda_score what;
    bool is_tensor;
    sc_cu_ptr fma_to;
    double multiply_adds;
    float *sums; /* pinned: what was found */
};

static void scores_run(struct rig *rig, void *job, uint64_t round)
{
    const struct scores *it = job;
    const struct sc_cuda_score *what = &it->what;
    struct sc_cuda_shape best, join, columns, total;
    (void)round;
    if (!sc_cuda_score_best_shape(what, &best) || !sc_cuda_score_join_shape(what, &join) ||
        !sc_cuda_score_columns_shape(what, &columns) || !sc_cuda_score_total_shape(what, &total))
        bench_die("scores that no kernel takes");
    rig_launch(rig, rig->stream,
               it->is_tensor ? RIG_sc_cuda_score_best_tensor : RIG_sc_cuda_score_best, &best, what);
    rig_launch(rig, rig->stream, RIG_sc_cuda_score_join, &join, what);
    rig_launch(rig, rig->stream,
               it->is_tensor ? RIG_sc_cuda_score_columns_tensor : RIG_sc_cuda_score_columns,
               &columns, what);
    rig_launch(rig, rig->stream, RIG_sc_cuda_score_total, &total, what);
}

static void fma_run(struct rig *rig, void *job, uint64_t round)
{
    const struct scores *it = job;
    (void)round;
    ceilings_fma_run(rig, it->fma_to, it->multiply_adds);
}

/* ---- What is scored ------------------------------------------------------------------------- */

static void host_make(struct rig *rig, struct scores *it)
{
    const struct rig_shape *shape = it->shape;
    uint64_t channels = (uint64_t)shape->heads * shape->head_size, n = rig->sizes.query_rows;
    it->slabs = (shape->rows + SLAB_ROWS - 1) / SLAB_ROWS;
    it->scale_bytes = UP(sc_kernels_codec_scale_bytes(channels));
    it->row_bytes = sc_kernels_codec_row_bytes(channels, BITS);
    it->slab_bytes = it->scale_bytes + UP(SLAB_ROWS * it->row_bytes);
    it->area = rig_host_memory(rig, it->slabs * it->slab_bytes);
    rig_random(it->area, it->slabs * it->slab_bytes, 11, false);
    /* Steps of 1/4 or so: scores neither vanish nor leave one key alone. */
    for (uint64_t s = 0; s < it->slabs; s++)
        for (uint64_t c = 0; c < 2 * channels; c++) {
            uint16_t f16 = (uint16_t)(c < channels ? 0xb800 : 0x3000 | (bench_mix(s + c) & 0x3ff));
            memcpy(it->area + s * it->slab_bytes + 2 * c, &f16, sizeof(f16));
        }
    it->query_bytes = n * channels * shape->group * 2;
    it->key_bytes = n * channels * 2;
    it->queries = rig_host_memory(rig, it->query_bytes);
    it->fresh = rig_host_memory(rig, it->key_bytes);
    rig_random(it->queries, it->query_bytes, 12, true);
    rig_random(it->fresh, it->key_bytes, 13, true);
}

static sc_cu_ptr there(struct rig *rig, const void *from, uint64_t bytes)
{
    sc_cu_ptr at = rig_device_memory(rig, bytes);
    rig_put_any(rig, at, from, bytes);
    return at;
}

static sc_cu_ptr slabs_there(struct rig *rig, const struct scores *it)
{
    struct sc_cuda_score_slab *slabs = calloc(it->slabs, sizeof(*slabs));
    if (slabs == NULL)
        bench_die("no memory for slabs");
    sc_cu_ptr area = there(rig, it->area, it->slabs * it->slab_bytes);
    for (uint64_t s = 0; s < it->slabs; s++) {
        slabs[s].scales = (const uint8_t *)(uintptr_t)(area + s * it->slab_bytes);
        slabs[s].codes = slabs[s].scales + it->scale_bytes;
        slabs[s].key_first = (uint32_t)(s * SLAB_ROWS);
        slabs[s].bits = BITS;
    }
    sc_cu_ptr table = there(rig, slabs, it->slabs * sizeof(*slabs));
    free(slabs);
    return table;
}

static struct sc_kernels_keys fresh_keys(const struct rig *rig, const struct scores *it,
                                         uint8_t *base)
{
    return (struct sc_kernels_keys){
        .memory = {.k_base = base,
                   .token_stride_bytes = (uint64_t)it->shape->heads * it->shape->head_size * 2,
                   .head_stride_bytes = it->shape->head_size * 2ull,
                   .element_bytes = 2},
        .count = rig->sizes.query_rows,
        .dtype = SC_KERNELS_BF16};
}

static void there_make(struct rig *rig, struct scores *it)
{
    const struct rig_shape *shape = it->shape;
    uint64_t n = rig->sizes.query_rows;
    struct sc_cuda_score *what = &it->what;
    struct sc_kernels_keys fresh =
        fresh_keys(rig, it, (uint8_t *)(uintptr_t)there(rig, it->fresh, it->key_bytes));
    *what = (struct sc_cuda_score){
        .queries = {.data = (const uint8_t *)(uintptr_t)there(rig, it->queries, it->query_bytes),
                    .row_stride_bytes = it->query_bytes / n,
                    .head_stride_bytes = shape->head_size * 2ull,
                    .row_count = (uint32_t)n,
                    .dtype = SC_CUDA_BF16},
        .prefix = {.count = (uint32_t)shape->rows},
        .fresh = {.count = (uint32_t)n, .dtype = SC_CUDA_BF16},
        .slabs = (const struct sc_cuda_score_slab *)(uintptr_t)slabs_there(rig, it),
        .slab_count = (uint32_t)it->slabs,
        .code_heads = shape->heads,
        .head_count = shape->heads,
        .head_size = shape->head_size,
        .group = shape->group,
        .scale = 1 / sqrtf((float)shape->head_size)};
    if (!sc_cuda_memory_of(&fresh.memory, 2, &what->fresh.memory))
        bench_die("new keys that no kernel takes");
    what->tiles_each = sc_cuda_score_tiles_each(what);
    uint64_t stats_bytes = sc_cuda_score_scratch_bytes(what);
    uint64_t total_bytes = shape->rows * sizeof(float);
    if (stats_bytes == 0)
        bench_die("scores that no kernel takes");
    sc_cu_ptr stats = rig_device_memory(rig, stats_bytes);
    sc_cu_ptr sums = rig_device_memory(rig, shape->heads * total_bytes);
    sc_cu_ptr total = rig_device_memory(rig, total_bytes);
    rig_poison(rig, stats, stats_bytes);
    rig_poison(rig, sums, shape->heads * total_bytes);
    rig_poison(rig, total, total_bytes);
    what->stats = (float *)(uintptr_t)stats;
    what->sums = (float *)(uintptr_t)sums;
    what->total = (float *)(uintptr_t)total;
}

/* ---- What ref/'s arithmetic says ------------------------------------------------------------ */

static void total_check(struct rig *rig, const struct scores *it, const float *expected)
{
    uint64_t count = it->shape->rows;
    double most = 0;
    rig_get(rig, it->sums, (sc_cu_ptr)(uintptr_t)it->what.total, count * sizeof(float));
    for (uint64_t j = 0; j < count; j++)
        most = fmax(most, (double)expected[j]);
    for (uint64_t j = 0; j < count; j++)
        if (!(fabs((double)it->sums[j] - (double)expected[j]) <= TOLERANCE * most))
            bench_die("importance of key %" PRIu64 ": found %.9g, expected %.9g (largest %.9g)", j,
                      (double)it->sums[j], (double)expected[j], most);
}

/* By the fastest rung, whose sums are within as much of ref/'s as these may be: half a minute of
 * multiply-adds else. */
static void scores_check(struct rig *rig, const struct scores *it)
{
    uint64_t count = it->shape->rows, n = rig->sizes.query_rows;
    struct sc_kernels_slab *slabs = calloc(it->slabs, sizeof(*slabs));
    float *one = malloc(count * sizeof(float)), *expected = malloc(count * sizeof(float));
    void *scratch =
        aligned_alloc(64, sc_kernels_importance_scratch_bytes(it->shape->head_size, count, n));
    if (slabs == NULL || one == NULL || expected == NULL || scratch == NULL)
        bench_die("no memory for scores");
    for (uint64_t s = 0; s < it->slabs; s++) {
        slabs[s].quantised.scales = it->area + s * it->slab_bytes;
        slabs[s].quantised.codes = slabs[s].quantised.scales + it->scale_bytes;
        slabs[s].quantised.bits = BITS;
        slabs[s].key_first = s * SLAB_ROWS;
    }
    const struct sc_kernels_importance cpu = {
        .kernels = sc_kernels_get(sc_kernels_level_best()),
        .head_size = it->shape->head_size,
        .group = it->shape->group,
        .scale = it->what.scale,
        .queries = {it->queries, it->query_bytes / n, it->shape->head_size * 2ull, n,
                    SC_KERNELS_BF16},
        .prefix = {.slabs = slabs,
                   .slab_count = it->slabs,
                   .channels = (uint64_t)it->shape->heads * it->shape->head_size,
                   .count = count,
                   .dtype = it->shape->dtype},
        .fresh = fresh_keys(rig, it, it->fresh)};
    sc_kernels_importance_sum(&cpu, 0, it->shape->heads, scratch, one, expected);
    total_check(rig, it, expected);
    free(slabs);
    free(one);
    free(expected);
    free(scratch);
}

/* Beside multiply-adds, and checked. floor 0: it is told, not judged. */
static void way_judge(struct rig *rig, struct scores *it, double floor, double aim)
{
    struct rig_samples times[2];
    char name[96], note[160];
    const struct rig_way ways[] = {{"fma", fma_run, it, 1}, {"scores", scores_run, it, 1}};
    rig_race(rig, ways, 2, rig->sizes.rounds, times);
    scores_check(rig, it);
    struct rig_samples ratio = rig_ratio(&times[0], &times[1]);
    (void)snprintf(name, sizeof(name), "scores%s, %s, n %" PRIu64 " / multiply-adds alone",
                   it->is_tensor ? " by tensor cores" : "", it->shape->name, rig->sizes.query_rows);
    (void)snprintf(note, sizeof(note),
                   "two passes over %" PRIu64 " keys of 4 bits, four launches: %.1f us",
                   it->shape->rows, rig->sizes.is_tiny ? 0 : rig_median(&times[1]) * 1e-3);
    rig_judge(rig, name, "ratio", floor, aim, &ratio, note);
}

void part_scores(struct rig *rig)
{
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    struct scores it = {.shape = &rig->sizes.llama};
    uint64_t n = rig->sizes.query_rows;
    host_make(rig, &it);
    there_make(rig, &it);
    it.sums = (float *)(void *)rig_host_memory(rig, it.shape->rows * sizeof(float));
    it.fma_to = rig_device_memory(rig, ceilings_fma_threads(rig) * sizeof(float));
    double seen = (double)it.shape->rows + (double)(n + 1) / 2;
    it.multiply_adds =
        2.0 * (double)n * it.shape->heads * it.shape->group * seen * it.shape->head_size;
    way_judge(rig, &it, .30, .50);
    it.is_tensor = sc_cuda_score_has_tensor(&it.what, false, rig->device->capability);
    if (it.is_tensor) /* their own bound is another one's */
        way_judge(rig, &it, 0, 0);
    rig_memory_free(rig, memory, pins);
}
