/* io_cost: estimates from ordinary reads what a byte and one more operation cost on this device.
 *
 * The planner of chosen rows uses it to decide which gaps to read through (decision 0020).
 *
 *   in flight  __/‾‾‾‾‾‾\___/‾‾‾‾‾‾‾‾|‾‾‾‾‾‾‾‾\___   stretches: until nothing is in flight, or
 *                |<-ns->|   |<--ns-->|<--ns-->|      enough was read and more is submitted
 *
 * - With enough in flight the device is busy: a stretch's ns per operation is the cost at depth.
 * - After an idle device the first completion's extra time is latency and is subtracted.
 * - Stretches are binned by operation size; a bin counts by the median of its last samples, so
 *   disturbed stretches (other traffic, preemption, page cache, clock jumps) have no effect.
 * - A line through the smallest and largest bins gives ns = op_ns + byte_ns * bytes. With one size
 *   only, the gap op_ns / byte_ns stays at its default.
 *
 * Invariants: a submit or completion costs relaxed additions, a stretch's end a clock read and a
 * few medians. Nothing allocates or waits. Stretches with writes, failures or dropped reads do not
 * count.
 * Threads: any. One thread samples at a time (is_sampling); other samples are lost meanwhile.
 * Concurrent submitters may falsify a stretch: one sample in a median.
 * Tests: tests/unit/store/test_io_cost.c */
#include "store/io/io_backend.h"

#define PREFETCH_BYTE_NS   0.4     /* default: 2.5 GB/s */
#define PREFETCH_GAP_BYTES 12500.0 /* 5 us at that rate */
#define BUSY_OPS           32u     /* operations, or bytes, in flight that keep a device busy */
#define BUSY_BYTES         (1u << 20)
#define STRETCH_OPS_MIN    128u /* operations, or bytes, of a sample: 0.5 to 2 ms */
#define STRETCH_BYTES_MIN  (2u << 20)
#define STRETCH_OPS_MAX    512u /* operations, or bytes (twice io_uring's target), after which */
#define STRETCH_BYTES_MAX  (16u << 20) /* the next submit ends the stretch */
#define LAG_SHARE          4.0 /* largest latency subtracted: a quarter of the stretch, or 0.2 ms */
#define LAG_NS_MAX         2e5
#define SAMPLES_MIN        3u   /* samples that a bin needs */
#define BYTE_NS_MIN        1e-3 /* 1 TB/s .. 1 MB/s; 1 ns .. 1 s per operation */
#define BYTE_NS_MAX        1e3
#define OP_NS_MAX          1e9

static double value_within(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

static uint64_t counter_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Returns ns per byte if each operation also cost the default gap's bytes. */
static double sample_slowness(const struct sc_io_cost_sample *sample)
{
    return sample->ns / (sample->bytes + PREFETCH_GAP_BYTES);
}

static struct sc_io_cost_sample median_of(const struct sc_io_cost_bin *bin)
{
    struct sc_io_cost_sample sorted[SC_IO_COST_LAST];
    uint64_t count = bin->count < SC_IO_COST_LAST ? bin->count : SC_IO_COST_LAST;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = i;
        for (; at > 0 && sample_slowness(&sorted[at - 1]) > sample_slowness(&bin->last[i]); at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = bin->last[i];
    }
    return sorted[count / 2];
}

/* Computes the estimate from the bins. The caller holds is_sampling. */
static void cost_believe(struct sc_io_cost_watch *watch)
{
    struct sc_io_cost_sample points[SC_IO_COST_BINS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < SC_IO_COST_BINS; i++)
        if (watch->bins[i].count >= SAMPLES_MIN)
            points[count++] = median_of(&watch->bins[i]);
    if (count == 0)
        return;
    const struct sc_io_cost_sample *small = &points[0], *large = &points[count - 1];
    double byte_ns = sample_slowness(large), op_ns = byte_ns * PREFETCH_GAP_BYTES;
    bool is_line = large->bytes >= 2 * small->bytes && large->ns > small->ns;
    if (is_line) {
        byte_ns = (large->ns - small->ns) / (large->bytes - small->bytes);
        op_ns = small->ns - byte_ns * small->bytes;
    }
    byte_ns = value_within(byte_ns, BYTE_NS_MIN, BYTE_NS_MAX);
    op_ns = value_within(op_ns, 1, OP_NS_MAX);
    atomic_store_explicit(&watch->op_ns, (uint64_t)op_ns, memory_order_relaxed);
    atomic_store_explicit(&watch->bytes_per_s, (uint64_t)(1e9 / byte_ns), memory_order_relaxed);
    atomic_store_explicit(&watch->is_measured, is_line, memory_order_relaxed);
}

static uint32_t bin_of(uint64_t ops, uint64_t bytes)
{
    uint32_t bin = 0;
    while (bin < SC_IO_COST_BINS - 1 && bytes / ops >= (uint64_t)2 * SC_IO_PAGE_BYTES << bin)
        bin++;
    return bin;
}

static bool is_enough(uint64_t ops, uint64_t bytes)
{
    return ops >= STRETCH_OPS_MIN || bytes >= STRETCH_BYTES_MIN;
}

/* Ends the stretch and takes its sample, without the operations and bytes still in flight. */
static void stretch_end(struct sc_io *io, uint64_t ops_left, uint64_t bytes_left)
{
    struct sc_io_cost_watch *watch = &io->cost;
    uint64_t start_ns = counter_get(&watch->start_ns), now_ns = sc_exec_now_ns(io->exec);
    uint64_t ops = counter_get(&watch->ops), bytes = counter_get(&watch->bytes);
    uint64_t first_ns = counter_get(&watch->first_ns);
    if (ops_left == 0 && atomic_load_explicit(&io->in_flight, memory_order_relaxed) > 0)
        return; /* a new stretch began: the numbers belong to both */
    if (atomic_load_explicit(&watch->is_spoiled, memory_order_relaxed) || now_ns <= start_ns ||
        ops <= ops_left || bytes <= bytes_left)
        return;
    ops -= ops_left;
    bytes -= bytes_left;
    if (!is_enough(ops, bytes) ||
        atomic_exchange_explicit(&watch->is_sampling, true, memory_order_acquire))
        return;
    double ns = (double)(now_ns - start_ns);
    if (first_ns > start_ns && first_ns <= now_ns) {
        double most = ns / LAG_SHARE < LAG_NS_MAX ? ns / LAG_SHARE : LAG_NS_MAX;
        ns -= value_within((double)(first_ns - start_ns) - ns / (double)ops, 0, most);
    }
    struct sc_io_cost_bin *bin = &watch->bins[bin_of(ops, bytes)];
    bin->last[bin->count++ % SC_IO_COST_LAST] =
        (struct sc_io_cost_sample){.ns = ns / (double)ops, .bytes = (double)bytes / (double)ops};
    cost_believe(watch);
    atomic_store_explicit(&watch->is_sampling, false, memory_order_release);
}

/* Returns true if a submission ends the stretch: too little is in flight, or enough was read and it
 * is long or of another operation size. */
static bool is_over(const struct sc_io_cost_watch *watch, uint64_t ops_flying,
                    uint64_t bytes_flying, uint64_t ops, uint64_t bytes)
{
    uint64_t had = counter_get(&watch->ops), had_bytes = counter_get(&watch->bytes);
    if (ops_flying < BUSY_OPS && bytes_flying < BUSY_BYTES)
        return true;
    if (had <= ops_flying || had_bytes <= bytes_flying ||
        !is_enough(had - ops_flying, had_bytes - bytes_flying))
        return false;
    uint32_t bin = bin_of(had, had_bytes), other = bin_of(ops, bytes);
    return had - ops_flying >= STRETCH_OPS_MAX || had_bytes - bytes_flying >= STRETCH_BYTES_MAX ||
           bin > other + 1 || other > bin + 1;
}

void sc_io_cost_submitted(struct sc_io *io, uint64_t ops_before, uint64_t ops, uint64_t bytes,
                          bool is_reads)
{
    struct sc_io_cost_watch *watch = &io->cost;
    if (ops == 0)
        return;
    uint64_t before = atomic_fetch_add_explicit(&watch->flying_bytes, bytes, memory_order_relaxed);
    if (!is_over(watch, ops_before, before, ops, bytes)) {
        (void)atomic_fetch_add_explicit(&watch->ops, ops, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&watch->bytes, bytes, memory_order_relaxed);
    } else {
        if (ops_before > 0)
            stretch_end(io, ops_before, before);
        atomic_store_explicit(&watch->ops, ops_before + ops, memory_order_relaxed);
        atomic_store_explicit(&watch->bytes, before + bytes, memory_order_relaxed);
        atomic_store_explicit(&watch->start_ns, sc_exec_now_ns(io->exec), memory_order_relaxed);
        atomic_store_explicit(&watch->is_spoiled, false, memory_order_relaxed);
        atomic_store_explicit(&watch->first_ns, ops_before == 0 ? SC_IO_COST_AWAITED : 0,
                              memory_order_relaxed);
    }
    if (!is_reads)
        sc_io_cost_spoil(io);
}

void sc_io_cost_first(struct sc_io *io)
{
    atomic_store_explicit(&io->cost.first_ns, sc_exec_now_ns(io->exec), memory_order_relaxed);
}

void sc_io_cost_idle(struct sc_io *io)
{
    stretch_end(io, 0, 0);
}

void sc_io_cost(const struct sc_io *io, struct sc_io_cost *ret_cost)
{
    uint64_t bytes_per_s = counter_get(&io->cost.bytes_per_s), op_ns = counter_get(&io->cost.op_ns);
    *ret_cost = (struct sc_io_cost){
        .bytes_per_s = bytes_per_s > 0 ? bytes_per_s : (uint64_t)(1e9 / PREFETCH_BYTE_NS),
        .op_ns = op_ns > 0 ? op_ns : (uint64_t)(PREFETCH_GAP_BYTES * PREFETCH_BYTE_NS),
        .is_measured = atomic_load_explicit(&io->cost.is_measured, memory_order_relaxed)};
}
