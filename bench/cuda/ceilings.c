/* What binds: copies by the copy engines, and multiply-adds of float32.
 *
 * Threads: one. Tests: ctest bench_cuda_on_the_fake */
#include "bench/cuda/parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BLOCKS_SM 8u

struct copies {
    sc_cu_ptr a, b;
    uint8_t *host, *back;
    uint64_t bytes;
};

static void device_run(struct rig *rig, void *job, uint64_t round)
{
    const struct copies *it = job;
    (void)round;
    rig_check(rig, rig->calls.copy(it->b, it->a, it->bytes, rig->stream), "cuMemcpyDtoDAsync");
}

static void in_run(struct rig *rig, void *job, uint64_t round)
{
    const struct copies *it = job;
    (void)round;
    rig_check(rig, rig->cu->cuMemcpyHtoDAsync(it->a, it->host, it->bytes, rig->stream),
              "cuMemcpyHtoDAsync");
}

static void out_run(struct rig *rig, void *job, uint64_t round)
{
    const struct copies *it = job;
    (void)round;
    rig_check(rig, rig->cu->cuMemcpyDtoHAsync(it->back, it->b, it->bytes, rig->stream),
              "cuMemcpyDtoHAsync");
}

static void copies_measure(struct rig *rig)
{
    struct copies it = {.bytes = rig->sizes.copy_bytes};
    struct rig_samples times[3];
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    it.a = rig_device_memory(rig, it.bytes);
    it.b = rig_device_memory(rig, it.bytes);
    it.host = rig_host_memory(rig, it.bytes);
    it.back = rig_host_memory(rig, it.bytes);
    rig_random(it.host, it.bytes, 1, false);
    rig_poison(rig, it.b, it.bytes);
    const struct rig_way ways[] = {
        {"H2D", in_run, &it, 1}, {"D2D", device_run, &it, 1}, {"D2H", out_run, &it, 1}};
    rig_race(rig, ways, 3, rig->sizes.load_rounds, times);
    if (memcmp(it.host, it.back, it.bytes) != 0)
        bench_die("a copy there, on the device and back is another");
    rig_tell_rate(rig, "ceiling: host to device, one copy", &times[0], (double)it.bytes, "pinned");
    rig_tell_rate(rig, "ceiling: on the device, read + written", &times[1], 2.0 * (double)it.bytes,
                  "one copy");
    rig_tell_rate(rig, "ceiling: device to host, one copy", &times[2], (double)it.bytes, "pinned");
    rig_memory_free(rig, memory, pins);
}

/* ---- Multiply-adds -------------------------------------------------------------------------- */

struct fma {
    sc_cu_ptr to;
    double multiply_adds;
};

uint32_t ceilings_fma_threads(const struct rig *rig)
{
    uint32_t blocks = rig->sizes.is_tiny ? 2 : rig->device->multiprocessors * BLOCKS_SM;
    return blocks * BENCH_CUDA_THREADS;
}

static uint32_t fma_steps(const struct rig *rig, double multiply_adds)
{
    double each = (double)ceilings_fma_threads(rig) * BENCH_CUDA_CHAINS;
    return (uint32_t)fmax(1, rint(multiply_adds / each));
}

void ceilings_fma_run(struct rig *rig, sc_cu_ptr to, double multiply_adds)
{
    const struct bench_ffma what = {.to = (float *)(uintptr_t)to,
                                    .factor = 0.5f,
                                    .addend = 1.0f,
                                    .steps = fma_steps(rig, multiply_adds)};
    rig_launch_own(rig, rig->stream, RIG_bench_cuda_ffma,
                   ceilings_fma_threads(rig) / BENCH_CUDA_THREADS, 1, &what);
}

static void fma_run(struct rig *rig, void *job, uint64_t round)
{
    const struct fma *it = job;
    (void)round;
    ceilings_fma_run(rig, it->to, it->multiply_adds);
}

/* Each chain comes near 2: sums are known but for what rounding leaves. */
static void fma_check(struct rig *rig, const float *found, uint32_t threads, uint32_t steps)
{
    for (uint32_t t = 0; t < threads; t++) {
        double expected = 0;
        for (uint32_t i = 0; i < BENCH_CUDA_CHAINS; i++)
            expected += 2 + ((double)(t % 7 + i) - 2) * exp2(-(double)steps);
        if (!(fabs((double)found[t] - expected) <= 1e-3 * fabs(expected) + 1e-3))
            bench_die("multiply-adds of thread %" PRIu32 ": found %g, expected %g", t,
                      (double)found[t], expected);
    }
    (void)rig;
}

static void fma_measure(struct rig *rig)
{
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    uint32_t threads = ceilings_fma_threads(rig);
    struct fma it = {.multiply_adds =
                         (double)threads * BENCH_CUDA_CHAINS * (double)rig->sizes.ffma_steps};
    struct rig_samples times;
    char note[160];
    it.to = rig_device_memory(rig, threads * sizeof(float));
    float *found = (float *)(void *)rig_host_memory(rig, threads * sizeof(float));
    rig_poison(rig, it.to, threads * sizeof(float));
    rig_race(rig, &(struct rig_way){"fma", fma_run, &it, 2}, 1, rig->sizes.rounds, &times);
    rig_get(rig, found, it.to, threads * sizeof(float));
    fma_check(rig, found, threads, (uint32_t)rig->sizes.ffma_steps);
    struct rig_samples rates = {.count = times.count};
    for (uint64_t i = 0; i < times.count; i++)
        rates.of[i] = 2e-3 * it.multiply_adds / times.of[i];
    double lanes = rig->device->capability == 75 || rig->device->capability == 80 ? 64 : 128;
    (void)snprintf(note, sizeof(note),
                   "of registers alone, measured; %g lanes x %" PRIu32 " SM x %.2f GHz are %.1f",
                   lanes, rig->device->multiprocessors, rig->clock_khz * 1e-6,
                   2e-9 * lanes * rig->device->multiprocessors * rig->clock_khz);
    rig_judge(rig, "ceiling: float32 multiply-adds", "Tflop/s", 0, 0, &rates, note);
    rig_memory_free(rig, memory, pins);
}

void part_ceilings(struct rig *rig)
{
    copies_measure(rig);
    fma_measure(rig);
}
