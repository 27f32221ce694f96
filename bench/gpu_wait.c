/* gpu_wait: the times of a simulated GPU. See gpu_wait.h. */
#include "bench/gpu_wait.h"

static double kernel_ns(const struct bench_gpu *gpu, double flop, double bytes)
{
    double compute = flop / gpu->flop_per_s, memory = bytes / gpu->bytes_per_s;
    return (compute > memory ? compute : memory) * 1e9 * gpu->slower;
}

double bench_gpu_layer_ns(const struct bench_gpu *gpu, uint64_t new_count, uint64_t rows)
{
    double n = (double)new_count;
    double flop = 2 * gpu->layer_params * n + 4 * n * ((double)rows + n / 2) * (double)gpu->width;
    double bytes = 2 * gpu->layer_params + 2 * (double)rows * (double)gpu->half_bytes;
    return kernel_ns(gpu, flop, bytes);
}

double bench_gpu_score_ns(const struct bench_gpu *gpu, uint64_t new_count, uint64_t rows,
                          uint64_t query_heads)
{
    double pairs = (double)new_count * (double)rows * (double)query_heads;
    double keys = (double)rows * (double)query_heads * (double)gpu->head_size * 2;
    return BENCH_LAUNCH_NS * gpu->slower + kernel_ns(gpu, 2 * pairs * (double)gpu->head_size, keys);
}
