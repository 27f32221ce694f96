/* What placing a layer costs who computes meanwhile: a product of bf16 on the rig's stream, with
 * and without layers that go from pinned memory to pages on the connector's kind of streams.
 *
 *   copies lane   box | box | box ..            as many layers as outlast the product
 *   kernels lane     place | place ..
 *   rig's stream  product                       its time, by events
 *
 * The product is a kernel of our own (kernels.h); cuBLAS is not carried along.
 *
 * Threads: one. Tests: ctest bench_cuda_on_the_fake */
#include "bench/cuda/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_SM 4u
#define BOX_BYTES (2ull << 20)
#define CHECKED   64u /* elements of the product that are computed again */

struct beside {
    struct scene scene;
    struct sc_cuda_rows params;
    uint8_t *host;
    sc_cu_ptr stage;
    uint64_t layers; /* that are on their way beside a product */
    struct bench_product product;
    uint8_t *a, *b; /* pinned */
    float *found;
};

static void product_run(struct rig *rig, void *job, uint64_t round)
{
    const struct beside *it = job;
    (void)round;
    rig_launch_own(rig, rig->stream, RIG_bench_cuda_product, it->product.n / BENCH_CUDA_SIDE,
                   it->product.m / BENCH_CUDA_SIDE, &it->product);
}

static void layer_enqueue(struct rig *rig, const struct beside *it)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_gpu_stream *copies = &rig->device->slots[0].copies;
    struct sc_gpu_stream *kernels = &rig->device->slots[0].kernels;
    uint64_t box_rows = BOX_BYTES / it->scene.row_bytes, rows = it->scene.shape->rows;
    struct sc_cuda_rows params = it->params;
    struct sc_cuda_shape shape;
    params.memory = scene_memory(&it->scene, 0);
    for (uint64_t first = 0; first < rows; first += box_rows) {
        uint64_t count = rows - first < box_rows ? rows - first : box_rows;
        uint64_t at = first * it->scene.row_bytes;
        params.rows = (uint8_t *)(uintptr_t)(it->stage + at);
        params.token_first = first;
        params.row_count = (uint32_t)count;
        if (sc_gpu_copy_in(rig->device, copies, it->stage + at, it->host + at,
                           count * it->scene.row_bytes, &error) != SPEC_OK ||
            sc_gpu_follow(rig->device, kernels, copies, &error) != SPEC_OK ||
            !sc_cuda_rows_shape(&params, false, rig->device->multiprocessors * BLOCKS_SM, &shape))
            bench_die("a box: %s", error.text);
        rig_launch(rig, kernels->stream, RIG_sc_cuda_rows_place, &shape, &params);
    }
}

/* Both by the product's own events; layers were enqueued before, and are waited for after. */
static double product_ns(struct rig *rig, struct beside *it, bool with_layers, bool *ret_outlasts)
{
    float ms = 0;
    sc_cu_stream kernels = rig->device->slots[0].kernels.stream;
    for (uint64_t i = 0; with_layers && i < it->layers; i++)
        layer_enqueue(rig, it);
    rig_check(rig, rig->cu->cuEventRecord(rig->first, rig->stream), "cuEventRecord");
    product_run(rig, it, 0);
    rig_check(rig, rig->cu->cuEventRecord(rig->last, rig->stream), "cuEventRecord");
    rig_check(rig, rig->cu->cuEventRecord(rig->device->slots[0].end, kernels), "cuEventRecord");
    rig_check(rig, rig->cu->cuEventSynchronize(rig->last), "cuEventSynchronize");
    *ret_outlasts = rig->cu->cuEventQuery(rig->device->slots[0].end) == SC_CU_NOT_READY;
    rig_wait(rig, kernels);
    rig_check(rig, rig->calls.elapsed(&ms, rig->first, rig->last), "cuEventElapsedTime");
    return (double)ms * 1e6;
}

static void beside_make(struct rig *rig, struct beside *it)
{
    const struct rig_shape *shape = &rig->sizes.llama;
    uint32_t side = (uint32_t)rig->sizes.product_side;
    it->product =
        (struct bench_product){.m = side, .n = side, .k = (uint32_t)rig->sizes.product_depth};
    uint64_t bytes = (uint64_t)side * it->product.k * 2, to_bytes = (uint64_t)side * side * 4;
    scene_open(rig, shape, false, &it->scene);
    it->host = rig_host_memory(rig, it->scene.bytes);
    it->stage = rig_device_memory(rig, it->scene.bytes);
    rig_random(it->host, it->scene.bytes, 21, false);
    it->params = (struct sc_cuda_rows){.row_stride_bytes = it->scene.row_bytes,
                                       .head_count = shape->heads,
                                       .head_size = shape->head_size,
                                       .parts = SC_CUDA_K | SC_CUDA_V,
                                       .element_bytes = 2,
                                       .there_bytes = 2,
                                       .dtype = shape->dtype};
    it->a = rig_host_memory(rig, bytes);
    it->b = rig_host_memory(rig, bytes);
    it->found = (float *)(void *)rig_host_memory(rig, to_bytes);
    rig_random(it->a, bytes, 22, true);
    rig_random(it->b, bytes, 23, true);
    sc_cu_ptr a = rig_device_memory(rig, bytes), b = rig_device_memory(rig, bytes);
    sc_cu_ptr to = rig_device_memory(rig, to_bytes);
    rig_put(rig, a, it->a, bytes);
    rig_put(rig, b, it->b, bytes);
    rig_poison(rig, to, to_bytes);
    it->product.a = (const uint8_t *)(uintptr_t)a;
    it->product.b = (const uint8_t *)(uintptr_t)b;
    it->product.to = (float *)(uintptr_t)to;
}

static double bf16_at(const uint8_t *from, uint64_t i)
{
    uint16_t half;
    uint32_t bits;
    float value;
    memcpy(&half, from + 2 * i, sizeof(half));
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

static void product_check(struct rig *rig, const struct beside *it)
{
    uint64_t n = it->product.n, k = it->product.k;
    rig_get(rig, it->found, (sc_cu_ptr)(uintptr_t)it->product.to, it->product.m * n * 4);
    for (uint64_t i = 0; i < CHECKED; i++) {
        uint64_t at = bench_mix(i) % (it->product.m * n);
        double expected = 0;
        for (uint64_t c = 0; c < k; c++)
            expected += bf16_at(it->a, at / n * k + c) * bf16_at(it->b, at % n * k + c);
        if (!(fabs((double)it->found[at] - expected) <= 1e-3 * sqrt((double)k)))
            bench_die("element %" PRIu64 " of the product: found %g, expected %g", at,
                      (double)it->found[at], expected);
    }
}

static void layer_check(struct rig *rig, const struct beside *it)
{
    struct sc_kernels_memory memory = scene_expected(&it->scene);
    struct sc_kernels_move move = scene_move(&it->scene, &memory);
    sc_kernels_rows_unpack(&move, 0, it->scene.shape->rows, it->host);
    scene_check(rig, &it->scene, 0, "a layer beside a product");
}

void part_beside(struct rig *rig)
{
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    struct beside it = {.layers = 1};
    struct rig_samples slower = {.count = 0}, alone = {.count = 0};
    char note[160];
    bool outlasts;
    beside_make(rig, &it);
    (void)product_ns(rig, &it, false, &outlasts);
    for (outlasts = false; !outlasts && it.layers < 16 && !rig->sizes.is_tiny; it.layers *= 2)
        (void)product_ns(rig, &it, true, &outlasts);
    uint32_t short_of = 0;
    for (uint64_t round = 0; round < rig->sizes.rounds; round++) {
        double first = product_ns(rig, &it, false, &outlasts);
        double beside = product_ns(rig, &it, true, &outlasts);
        short_of += !outlasts;
        double last = product_ns(rig, &it, false, &outlasts);
        alone.of[alone.count++] = (first + last) / 2;
        slower.of[slower.count++] = 100 * (beside / ((first + last) / 2) - 1);
    }
    product_check(rig, &it);
    layer_check(rig, &it);
    double flop = 2.0 * it.product.m * it.product.n * it.product.k;
    (void)snprintf(note, sizeof(note),
                   "a kernel of our own, %.1f Tflop/s alone; %" PRIu64 " layers beside it, which "
                   "ended first in %" PRIu32 " of %" PRIu64 " rounds",
                   rig->sizes.is_tiny ? 0 : flop / rig_median(&alone) * 1e-3, it.layers, short_of,
                   rig->sizes.rounds);
    rig_judge_most(rig, "a bf16 product while layers are placed: slower by", "%", 15, 5, &slower,
                   note);
    scene_close(rig, &it.scene);
    rig_memory_free(rig, memory, pins);
}
