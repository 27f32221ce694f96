/* a100: Llama-2-7B on an A100, from Cake's figures.
 *
 * Computing the first n tokens of a prompt takes T(n) = 1.003e-4 n + 1.615e-9 n^2 s. A token's KV
 * is 512 KiB in 32 layers.
 * Tests: none; bench/run cut and bench/run cake use it */
#ifndef BENCH_A100_H
#define BENCH_A100_H

#define A100_LAYERS     32u
#define A100_TOKEN_SIZE (512u << 10)

/* Of computing tokens [first, end), all layers. */
static inline double a100_compute_ns(double first, double end)
{
    return 1.003e5 * (end - first) + 1.615 * (end * end - first * first);
}

#endif
