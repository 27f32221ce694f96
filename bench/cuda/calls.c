/* Wrappers of the driver's calls: see calls.h. */
#include "bench/cuda/calls.h"

#include "bench/bench.h"

#include <stdatomic.h>

static struct {
    struct sc_cu real;
    _Atomic uint64_t count[CALLS_KINDS], ns[CALLS_KINDS];
    uint64_t begin_ns;
    _Atomic uint64_t asked_ns, there_ns;
} spans;

static sc_cu_result ended(enum calls_kind kind, uint64_t from_ns, sc_cu_result code)
{
    atomic_fetch_add(&spans.count[kind], 1);
    atomic_fetch_add(&spans.ns[kind], bench_now_ns() - from_ns);
    return code;
}

#define TIMED(kind, call)                                                                          \
    uint64_t from_ns = bench_now_ns();                                                             \
    return ended(kind, from_ns, spans.real.call)

/* The first event that is met after the first wish for sums is theirs. */
static sc_cu_result met(enum calls_kind kind, uint64_t from_ns, sc_cu_result code)
{
    uint64_t none = 0;
    if (code == SC_CU_OK && atomic_load(&spans.asked_ns) != 0)
        (void)atomic_compare_exchange_strong(&spans.there_ns, &none, bench_now_ns());
    return ended(kind, from_ns, code);
}

static sc_cu_result copy_in(sc_cu_ptr to, const void *from, size_t bytes, sc_cu_stream stream)
{
    TIMED(CALLS_COPY, cuMemcpyHtoDAsync(to, from, bytes, stream));
}

static sc_cu_result copy_out(void *to, sc_cu_ptr from, size_t bytes, sc_cu_stream stream)
{
    uint64_t from_ns = bench_now_ns(), none = 0;
    sc_cu_result code = spans.real.cuMemcpyDtoHAsync(to, from, bytes, stream);
    (void)atomic_compare_exchange_strong(&spans.asked_ns, &none, bench_now_ns());
    return ended(CALLS_COPY, from_ns, code);
}

static sc_cu_result launch(sc_cu_function function, unsigned grid_x, unsigned grid_y,
                           unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, sc_cu_stream stream, void **arguments,
                           void **extra)
{
    TIMED(CALLS_LAUNCH, cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                       shared_bytes, stream, arguments, extra));
}

static sc_cu_result event_record(sc_cu_event event, sc_cu_stream stream)
{
    TIMED(CALLS_ORDER, cuEventRecord(event, stream));
}

static sc_cu_result wait_event(sc_cu_stream stream, sc_cu_event event, unsigned flags)
{
    TIMED(CALLS_ORDER, cuStreamWaitEvent(stream, event, flags));
}

static sc_cu_result event_wait(sc_cu_event event)
{
    uint64_t from_ns = bench_now_ns();
    return met(CALLS_WAIT, from_ns, spans.real.cuEventSynchronize(event));
}

static sc_cu_result event_ask(sc_cu_event event)
{
    uint64_t from_ns = bench_now_ns();
    return met(CALLS_ASK, from_ns, spans.real.cuEventQuery(event));
}

/* The table is constant to who loads the driver, not in memory (gpu/library.c). */
static struct sc_cu *table_of(const struct rig *rig)
{
    return (struct sc_cu *)(uintptr_t)rig->cu;
}

void calls_begin(struct rig *rig)
{
    struct sc_cu *table = table_of(rig);
    spans.real = *table;
    for (uint32_t i = 0; i < CALLS_KINDS; i++) {
        atomic_store(&spans.count[i], 0);
        atomic_store(&spans.ns[i], 0);
    }
    atomic_store(&spans.asked_ns, 0);
    atomic_store(&spans.there_ns, 0);
    table->cuMemcpyHtoDAsync = copy_in;
    table->cuMemcpyDtoHAsync = copy_out;
    table->cuLaunchKernel = launch;
    table->cuEventRecord = event_record;
    table->cuStreamWaitEvent = wait_event;
    table->cuEventSynchronize = event_wait;
    table->cuEventQuery = event_ask;
    spans.begin_ns = bench_now_ns();
}

struct calls_span calls_end(struct rig *rig)
{
    struct calls_span span = {.begin_ns = spans.begin_ns,
                              .end_ns = bench_now_ns(),
                              .asked_ns = atomic_load(&spans.asked_ns),
                              .there_ns = atomic_load(&spans.there_ns)};
    for (uint32_t i = 0; i < CALLS_KINDS; i++) {
        span.count[i] = atomic_load(&spans.count[i]);
        span.ns[i] = atomic_load(&spans.ns[i]);
    }
    *table_of(rig) = spans.real;
    return span;
}
