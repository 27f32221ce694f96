/* vecmath: splits row and element functions over the pool; the sums are in kernels_math.h.
 *
 * A part owns whole rows, or whole runs of SHARE elements, so its outputs are its own. See
 * vecmath.h. */
#include "conformance/engine/vecmath.h"

#include <math.h>
#include <stddef.h>

#include "conformance/engine/cpuid.h"
#include "conformance/engine/kernels.h"

#define SHARE          4096u  /* elements: a few microseconds of work */
#define ALONE_MAX      16384u /* elements below which waking other threads costs more */
#define PARTS_A_THREAD 2u     /* so that a thread that comes late holds up less */

const struct eng_kernels *eng_kernels_get(void)
{
    switch (eng_cpu_get()) {
#ifdef ENG_HAVE_AVX512
    case ENG_CPU_AVX512:
        return &eng_kernels_avx512;
#endif
#ifdef ENG_HAVE_AVX2
    case ENG_CPU_AVX2:
        return &eng_kernels_avx2;
#endif
    default:
        return &eng_kernels_plain;
    }
}

void eng_exp(const float *x, uint64_t count, float *y)
{
    eng_kernels_get()->exp(x, count, y);
}

float eng_max(const float *x, uint64_t count)
{
    return eng_kernels_get()->max(x, count);
}

void eng_softmax(float *x, uint64_t count)
{
    const struct eng_kernels *kernels = eng_kernels_get();
    kernels->divide(x, kernels->softmax_sum(x, count), count, x);
}

float eng_dot(const float *a, const float *b, uint64_t count)
{
    return eng_kernels_get()->dot(a, b, count);
}

uint64_t eng_argmax(const float *x, uint64_t count)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < count; i++) {
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i])))
            best = i;
    }
    return best;
}

static uint64_t parts_for(const struct eng_pool *pool, uint64_t items, uint64_t elements)
{
    if (elements <= ALONE_MAX)
        return items == 0 ? 0 : 1;
    uint64_t parts = (uint64_t)eng_pool_threads(pool) * PARTS_A_THREAD;
    return items < parts ? items : parts;
}

enum element_op { OP_ACTIVATE, OP_GELU, OP_SILU_MUL, OP_ADD, OP_MUL };

struct element_run {
    const struct eng_kernels *kernels;
    enum element_op op;
    enum eng_activation_kind kind;
    float *x;
    const float *y;
    uint64_t count;
};

static void gelu(float *x, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        x[i] = x[i] * 0.5f * (1.0f + erff(x[i] * 0.70710678118654752f));
}

static void element_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    const struct element_run *run = arg;
    (void)thread;
    uint64_t first;
    uint64_t end;
    eng_pool_share((run->count + SHARE - 1) / SHARE, part, part_count, &first, &end);
    first *= SHARE;
    end = end * SHARE < run->count ? end * SHARE : run->count;
    float *x = run->x + first;
    uint64_t count = end - first;
    switch (run->op) {
    case OP_ACTIVATE:
        run->kernels->activate(run->kind, x, count);
        break;
    case OP_GELU:
        gelu(x, count);
        break;
    case OP_SILU_MUL:
        run->kernels->silu_mul(x, run->y + first, count);
        break;
    case OP_ADD:
        run->kernels->add(x, run->y + first, count);
        break;
    case OP_MUL:
        run->kernels->mul(x, run->y + first, count);
        break;
    }
}

static void run_elements(struct eng_pool *pool, enum element_op op, enum eng_activation_kind kind,
                         float *x, const float *y, uint64_t count)
{
    struct element_run run = {
        .kernels = eng_kernels_get(), .op = op, .kind = kind, .x = x, .y = y, .count = count};
    eng_pool_run(pool, element_part, &run, parts_for(pool, (count + SHARE - 1) / SHARE, count));
}

void eng_silu(struct eng_pool *pool, float *x, uint64_t count)
{
    run_elements(pool, OP_ACTIVATE, ENG_KIND_SILU, x, NULL, count);
}

void eng_gelu(struct eng_pool *pool, float *x, uint64_t count)
{
    run_elements(pool, OP_GELU, ENG_KIND_SILU, x, NULL, count);
}

void eng_gelu_new(struct eng_pool *pool, float *x, uint64_t count)
{
    run_elements(pool, OP_ACTIVATE, ENG_KIND_GELU_NEW, x, NULL, count);
}

void eng_relu(struct eng_pool *pool, float *x, uint64_t count)
{
    run_elements(pool, OP_ACTIVATE, ENG_KIND_RELU, x, NULL, count);
}

void eng_silu_mul(struct eng_pool *pool, float *gate, const float *up, uint64_t count)
{
    run_elements(pool, OP_SILU_MUL, ENG_KIND_SILU, gate, up, count);
}

void eng_add(struct eng_pool *pool, float *x, const float *y, uint64_t count)
{
    run_elements(pool, OP_ADD, ENG_KIND_SILU, x, y, count);
}

void eng_mul(struct eng_pool *pool, float *x, const float *y, uint64_t count)
{
    run_elements(pool, OP_MUL, ENG_KIND_SILU, x, y, count);
}

struct norm_run {
    const struct eng_kernels *kernels;
    const float *x;
    uint64_t x_stride, rows, width;
    const float *weight, *bias;
    float eps;
    float *y;
    uint64_t y_stride;
    int rms;
};

static void norm_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    const struct norm_run *run = arg;
    (void)thread;
    uint64_t first;
    uint64_t end;
    eng_pool_share(run->rows, part, part_count, &first, &end);
    for (uint64_t i = first; i < end; i++) {
        const float *x = run->x + i * run->x_stride;
        float *y = run->y + i * run->y_stride;
        if (run->rms)
            run->kernels->rmsnorm(x, run->width, run->weight, run->eps, y);
        else
            run->kernels->layernorm(x, run->width, run->weight, run->bias, run->eps, y);
    }
}

void eng_rmsnorm(struct eng_pool *pool, const float *x, uint64_t x_stride, uint64_t rows,
                 uint64_t width, const float *weight, float eps, float *y, uint64_t y_stride)
{
    struct norm_run run = {.kernels = eng_kernels_get(),
                           .x = x,
                           .x_stride = x_stride,
                           .rows = rows,
                           .width = width,
                           .weight = weight,
                           .eps = eps,
                           .y = y,
                           .y_stride = y_stride,
                           .rms = 1};
    eng_pool_run(pool, norm_part, &run, parts_for(pool, rows, rows * width));
}

void eng_layernorm(struct eng_pool *pool, const float *x, uint64_t x_stride, uint64_t rows,
                   uint64_t width, const float *weight, const float *bias, float eps, float *y,
                   uint64_t y_stride)
{
    struct norm_run run = {.kernels = eng_kernels_get(),
                           .x = x,
                           .x_stride = x_stride,
                           .rows = rows,
                           .width = width,
                           .weight = weight,
                           .bias = bias,
                           .eps = eps,
                           .y = y,
                           .y_stride = y_stride,
                           .rms = 0};
    eng_pool_run(pool, norm_part, &run, parts_for(pool, rows, rows * width));
}

struct rope_run {
    const struct eng_kernels *kernels;
    float *x;
    uint64_t x_stride, rows, heads, head_dim;
    const uint32_t *positions;
    const float *cos_table, *sin_table;
    bool interleaved;
};

static void rope_interleaved(float *x, uint64_t half, const float *cos_row, const float *sin_row)
{
    for (uint64_t i = 0; i < half; i++) {
        float a = x[2 * i];
        float b = x[2 * i + 1];
        x[2 * i] = fmaf(a, cos_row[i], 0.0f - b * sin_row[i]);
        x[2 * i + 1] = fmaf(b, cos_row[i], a * sin_row[i]);
    }
}

static void rope_part(void *arg, uint64_t part, uint64_t part_count, uint32_t thread)
{
    const struct rope_run *run = arg;
    (void)thread;
    uint64_t half = run->head_dim / 2;
    uint64_t first;
    uint64_t end;
    eng_pool_share(run->rows, part, part_count, &first, &end);
    for (uint64_t i = first; i < end; i++) {
        const float *cos_row = run->cos_table + run->positions[i] * half;
        const float *sin_row = run->sin_table + run->positions[i] * half;
        for (uint64_t h = 0; h < run->heads; h++) {
            float *x = run->x + i * run->x_stride + h * run->head_dim;
            if (run->interleaved)
                rope_interleaved(x, half, cos_row, sin_row);
            else
                run->kernels->rope(x, x + half, half, cos_row, sin_row);
        }
    }
}

void eng_rope(struct eng_pool *pool, float *x, uint64_t x_stride, uint64_t rows, uint64_t heads,
              uint64_t head_dim, const uint32_t *positions, const float *cos_table,
              const float *sin_table, bool interleaved)
{
    struct rope_run run = {.kernels = eng_kernels_get(),
                           .x = x,
                           .x_stride = x_stride,
                           .rows = rows,
                           .heads = heads,
                           .head_dim = head_dim,
                           .positions = positions,
                           .cos_table = cos_table,
                           .sin_table = sin_table,
                           .interleaved = interleaved};
    eng_pool_run(pool, rope_part, &run, parts_for(pool, rows, rows * heads * head_dim));
}
