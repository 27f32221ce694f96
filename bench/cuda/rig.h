/* What the parts of bench cuda share: a device, memory on both sides, races between ways to do the
 * same thing, and figures, which are ratios inside one race.
 *
 *   race    round: way A, way B, ..., in another order each round; what is in front is not counted
 *   way     by events, on the rig's stream: `repeat` runs between two events, divided
 *           by the clock: one run that waits for its end
 *   figure  the median over rounds of B / A, with least and most, beside a floor and an aim
 *
 * Everything is printed by the program itself and written as CSV, since a machine with a GPU need
 * not have Python: bench/run cuda only builds it and runs it.
 *
 * Holds: what a way writes is poisoned before a race and compared after it, by the part; a
 *   failed call of the driver ends the program. Memory that was asked for is freed by close.
 * Threads: one; the device's context is current from open to close.
 * Tests: ctest bench_cuda_on_the_fake */
#ifndef BENCH_CUDA_RIG_H
#define BENCH_CUDA_RIG_H

#include "bench/bench.h"
#include "bench/cuda/kernels.h"
#include "gpu/device.h"
#include "gpu/library.h"
#include "gpu/pin.h"
#include "gpu/work.h"
#include "kernels/cuda/launch.h"

#include <stdio.h>

#define RIG_ROUNDS_MAX  201u
#define RIG_WAYS_MAX    8u
#define RIG_FIGURES_MAX 64u
#define RIG_MEMORY_MAX  96u
#define RIG_POISON      0xa5

enum rig_kernel {
#define RIG_KERNEL(name, params, threads) RIG_##name,
    SC_CUDA_KERNELS(RIG_KERNEL) /* */
    RIG_PRODUCT_KERNELS
#undef RIG_KERNEL
};
enum rig_own_kernel {
#define RIG_KERNEL(name, params, threads) RIG_##name,
    BENCH_CUDA_KERNELS(RIG_KERNEL) /* */
    RIG_OWN_KERNELS
#undef RIG_KERNEL
};

/* Times of a way, or ratios of two, round by round. */
struct rig_samples {
    uint64_t count;
    double of[RIG_ROUNDS_MAX]; /* ns, where they are times */
};

struct rig_figure {
    char name[96], note[160];
    const char *unit;  /* "ratio", "us", "GB/s" */
    double floor, aim; /* 0: it is told, not judged */
    bool is_at_most;   /* floor and aim are the most it may be */
    bool is_there;     /* false: note says why not */
    double value, min, max;
};

struct rig_shape { /* of a model's rows */
    const char *name;
    uint32_t heads, head_size, group; /* KV heads; query heads of each */
    uint32_t dtype;                   /* enum sc_kernels_dtype, of 16 bits */
    uint64_t rows;
};

/* How much of everything. */
struct rig_sizes {
    uint64_t copy_bytes;   /* of a ceiling */
    uint64_t window_bytes; /* buffers go round within so many, so that no cache has them */
    struct rig_shape llama, opt;
    uint64_t layers, picks, query_rows, rounds, load_rounds;
    uint64_t product_side, product_depth, ffma_steps;
    bool is_tiny;  /* it is shown to work: nothing is timed, and nothing judged */
    bool is_quick; /* nothing is judged */
};

/* What the driver has beside struct sc_cu. */
struct rig_calls {
    sc_cu_result (*elapsed)(float *ret_ms, sc_cu_event first, sc_cu_event last);
    sc_cu_result (*copy)(sc_cu_ptr to, sc_cu_ptr from, size_t bytes, sc_cu_stream stream);
    /* NULL: before CUDA 12.8 */
    sc_cu_result (*batch)(sc_cu_ptr *to, sc_cu_ptr *from, size_t *bytes, size_t count,
                          void *attributes, size_t *first_of, size_t attribute_count,
                          size_t *ret_failed, sc_cu_stream stream);
};

struct rig {
    struct rig_sizes sizes;
    const char *dir, *csv, *commit; /* csv: a path, of lines that are added to; or NULL */
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_gpu_device *device;
    struct sc_gpu_entry entry;
    const struct sc_cu *cu;
    struct rig_calls calls;
    sc_cu_module module; /* of kernels of our own */
    sc_cu_function functions[RIG_OWN_KERNELS];
    sc_cu_stream stream;
    sc_cu_event first, last;
    int driver_version, clock_khz, cache_bytes;
    sc_cu_ptr memory[RIG_MEMORY_MAX];
    struct sc_gpu_pin pins[RIG_MEMORY_MAX];
    uint32_t memory_count, pin_count, figure_count;
    struct rig_figure figures[RIG_FIGURES_MAX];
};

/* false: there is no device; ret_why says so. */
bool rig_open(struct rig *rig, char *ret_why, uint64_t why_bytes);
void rig_close(struct rig *rig);
/* Ends the program where a call of the driver failed. */
void rig_check(struct rig *rig, sc_cu_result code, const char *call);

/* ---- Memory --------------------------------------------------------------------------------- */

sc_cu_ptr rig_device_memory(struct rig *rig, uint64_t bytes);
/* Pinned. */
uint8_t *rig_host_memory(struct rig *rig, uint64_t bytes);
/* Where the device sees pinned memory. */
sc_cu_ptr rig_seen(struct rig *rig, const void *at);
/* All that was asked for since then: {rig->memory_count, rig->pin_count} of that time. */
void rig_memory_free(struct rig *rig, uint32_t memory_count, uint32_t pin_count);
/* From and to pinned memory; done at return. */
void rig_put(struct rig *rig, sc_cu_ptr to, const void *from, uint64_t bytes);
void rig_get(struct rig *rig, void *to, sc_cu_ptr from, uint64_t bytes);
/* By way of pinned memory of its own. */
void rig_put_any(struct rig *rig, sc_cu_ptr to, const void *from, uint64_t bytes);
void rig_poison(struct rig *rig, sc_cu_ptr at, uint64_t bytes);
/* Any bits; with is_finite numbers of 16 bits between .5 and 2, of either sign. */
void rig_random(void *at, uint64_t bytes, uint64_t seed, bool is_finite);
void rig_wait(struct rig *rig, sc_cu_stream stream);

/* ---- Launches ------------------------------------------------------------------------------- */

void rig_launch(struct rig *rig, sc_cu_stream stream, enum rig_kernel kernel,
                const struct sc_cuda_shape *shape, const void *params);
void rig_launch_own(struct rig *rig, sc_cu_stream stream, enum rig_own_kernel kernel,
                    uint32_t blocks_x, uint32_t blocks_y, const void *params);

/* ---- Races and figures ---------------------------------------------------------------------- */

struct rig_way {
    const char *name;
    void (*run)(struct rig *rig, void *job, uint64_t round); /* number of the run, from 0 */
    void *job;
    uint32_t repeat; /* 0: by the clock, once */
};

void rig_race(struct rig *rig, const struct rig_way *ways, uint32_t count, uint64_t rounds,
              struct rig_samples *ret_times);
/* a / b, round by round. */
struct rig_samples rig_ratio(const struct rig_samples *a, const struct rig_samples *b);
double rig_median(const struct rig_samples *samples);

/* A ratio or another number, judged where floor is not 0, printed and kept for the CSV. */
void rig_judge(struct rig *rig, const char *name, const char *unit, double floor, double aim,
               const struct rig_samples *samples, const char *note);
void rig_judge_most(struct rig *rig, const char *name, const char *unit, double floor, double aim,
                    const struct rig_samples *samples, const char *note);
/* A rate in GB/s of what took so long. */
void rig_tell_rate(struct rig *rig, const char *name, const struct rig_samples *times, double bytes,
                   const char *note);
/* A number that nothing judges. */
void rig_tell(struct rig *rig, const char *name, const char *unit,
              const struct rig_samples *samples, const char *note);
/* It was not measured. */
void rig_tell_none(struct rig *rig, const char *name, const char *why);
/* How many do not hold. */
uint32_t rig_figures_end(struct rig *rig);

#endif
