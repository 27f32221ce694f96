/* The engine of emu.h: fibers by a switch of our own, one block at a time.
 *
 * Holds: a fiber's stack is never shared with a sanitizer's idea of another one. With TSan every
 *   block has stacks and shared arrays that no thread of an earlier block has seen, so that what it
 *   reports is a kernel's doing. Compiled without -fsanitize=thread: TSan must not see the engine's
 *   own reads and writes.
 * Does not: free its stacks before the process ends.
 * Threads: one. Tests: tests/unit/kernels/test_cuda_emu.c */
#include "tests/cuda/emu/emu.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#endif
#if defined(SC_SANITIZED_THREAD) /* it is not compiled with it */
#define EMU_TSAN 1
#endif

extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
/* Saves the registers that a callee keeps, and goes on where `to` stood. */
void emu_switch(void **ret_saved, void *to);
}

#if defined(__x86_64__)
#define SWITCH_WORDS 6 /* of a new fiber's registers */
__asm__(".text\n.globl emu_switch\n.type emu_switch,@function\nemu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size emu_switch,.-emu_switch\n");
#else
#error "the switch of fibers is written for x86-64"
#endif

namespace emu
{
Thread *current;
dim3 block_index, block_dim, grid_dim;

namespace
{
enum State { READY, AT_BARRIER, AT_WARP, ENDED };

#ifdef EMU_TSAN
const size_t STACK_BYTES = 16 << 10; /* made anew for each block */
#else
const size_t STACK_BYTES = 64 << 10;
#endif
const unsigned EDGES = 64;

struct Fiber : Thread {
    void *at; /* stack pointer, where it stands */
    uint8_t *stack;
    State state;
    int line;
    unsigned mask, argument;
    Collective what;
    uint64_t in, out;
    int predicate;
    void *tsan, *fake;
};

struct Shared {
    int id;
    size_t bytes;
    uint8_t *at;
};

/* The launch. */
const emu_kernel *kernel;
void *const *kernel_params;
size_t dynamic_bytes;
bool is_in_order;
enum emu_mma mma_how = EMU_MMA_NEAREST;
uint64_t random_state;
struct emu_counts counts;

/* The block. */
std::vector<Fiber> fibers;
std::vector<unsigned> ready; /* linear numbers */
std::vector<Shared> shareds;
unsigned fiber_count, live;
size_t shared_bytes;
uint8_t *dynamic;

/* Sanitizers. An edge of its own for each barrier and __syncwarp that is forming: a fast thread's
 * next one does not order what a slow thread does behind this one. */
char launch_edge, end_edge, barrier_edges[EDGES], warp_edges[EMU_THREADS_MAX / 32][EDGES];
unsigned barrier_number, warp_numbers[EMU_THREADS_MAX / 32];
void *main_at;
#ifdef EMU_TSAN
const size_t ARENA_BYTES = 512 << 10;
const size_t ENDED_MAX = 2048;
std::vector<void *> ended;
uint8_t *arena;
size_t arena_used;
void *main_tsan;
#endif
#ifdef EMU_ASAN
void *main_fake;
const void *main_bottom;
size_t main_size;
#endif

void edge_acquire(char *edge)
{
#ifdef EMU_TSAN
    __tsan_acquire(edge);
#endif
    (void)edge;
}

void edge_release(char *edge)
{
#ifdef EMU_TSAN
    __tsan_release(edge);
#endif
    (void)edge;
}

uint64_t draw()
{
    random_state += 0x9e3779b97f4a7c15ull;
    uint64_t z = random_state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

[[noreturn]] void fail_at(Fiber *fiber, const char *what)
{
    current = fiber;
    fail(what, fiber->line);
}

void *pages(size_t bytes)
{
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        fail("no memory", 0);
    return at;
}

/* ---- Fibers --------------------------------------------------------------------------------- */

void to_engine()
{
    Fiber *fiber = static_cast<Fiber *>(current);
    counts.switches++;
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(main_tsan, 1);
#endif
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(fiber->state == ENDED ? nullptr : &fiber->fake, main_bottom,
                                   main_size);
#endif
    emu_switch(&fiber->at, main_at);
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake, nullptr, nullptr);
#endif
}

void to_fiber(Fiber *fiber)
{
    current = fiber;
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(fiber->tsan, 1);
#endif
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&main_fake, fiber->stack, STACK_BYTES);
#endif
    emu_switch(&main_at, fiber->at);
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(main_fake, nullptr, nullptr);
#endif
    current = nullptr;
}

void fiber_main()
{
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &main_bottom, &main_size);
#endif
    edge_acquire(&launch_edge);
    kernel->body(kernel_params);
    edge_release(&end_edge);
    static_cast<Fiber *>(current)->state = ENDED;
    to_engine();
    fail("a thread that has ended went on", 0);
}

void make_ready(unsigned i)
{
    fibers[i].state = READY;
    ready.push_back(i);
}

/* At its first instruction. */
void fiber_begin(unsigned i)
{
    Fiber &fiber = fibers[i];
    fiber.linear = i;
    fiber.index =
        dim3{i % block_dim.x, i / block_dim.x % block_dim.y, i / block_dim.x / block_dim.y};
    void **top = reinterpret_cast<void **>(fiber.stack + STACK_BYTES - 8); /* as after a call */
    *--top = reinterpret_cast<void *>(fiber_main);
    for (int r = 0; r < SWITCH_WORDS; r++)
        *--top = nullptr;
    fiber.at = top;
#ifdef EMU_TSAN
    fiber.tsan = __tsan_create_fiber(0);
#endif
    make_ready(i);
}

/* ---- Warps ---------------------------------------------------------------------------------- */

/* Whether all lanes of the mask of `fiber` wait for the same as it does. */
bool warp_is_complete(Fiber &fiber, unsigned first, unsigned end)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(fiber.mask >> lane & 1) || first + lane >= end)
            continue; /* lanes that the block never had take no part */
        Fiber &other = fibers[first + lane];
        if (other.state == ENDED)
            fail_at(&fiber, "a warp collective names a lane that has ended");
        if (other.state != AT_WARP)
            return false;
        if (other.line != fiber.line || other.mask != fiber.mask || other.what != fiber.what)
            fail_at(&fiber, "lanes of one mask stand at different warp collectives");
    }
    return true;
}

/* Which lane's value a lane gets; beyond the warp: its own. */
unsigned source_of(const Fiber &fiber, unsigned lane)
{
    unsigned from = lane;
    if (fiber.what == IDX)
        from = fiber.argument % 32;
    else if (fiber.what == XOR)
        from = lane ^ fiber.argument;
    else if (fiber.what == UP)
        from = lane - fiber.argument;
    else if (fiber.what == DOWN)
        from = lane + fiber.argument;
    return from > 31 ? lane : from;
}

/* ---- Products of matrices ------------------------------------------------------------------- */

float widened(unsigned half, Collective what)
{
    if (what == MMA_BF16)
        return __uint_as_float(half << 16);
    unsigned sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    if (exponent == 0x1f)
        return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    float value = exponent == 0 ? ldexpf(static_cast<float>(fraction), -24)
                                : ldexpf(static_cast<float>(fraction + 1024), (int)exponent - 25);
    return sign != 0 ? -value : value;
}

/* 2^exponent of a double; those that are out of its range cannot come. */
double power(int exponent)
{
    uint64_t bits = static_cast<uint64_t>(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* c + terms, by what a device's adders keep. */
float added_truncated(const double *terms, unsigned count, float c)
{
    double all[9] = {static_cast<double>(c)}, most = 0;
    int64_t whole = 0;
    memcpy(all + 1, terms, count * sizeof(*terms));
    for (unsigned i = 0; i <= count; i++)
        most = fabs(all[i]) > most ? fabs(all[i]) : most;
    for (unsigned i = 0; i <= count; i++)
        if (!std::isfinite(all[i])) {
            double sum = 0;
            for (unsigned k = 0; k <= count; k++)
                sum += all[k];
            return static_cast<float>(sum);
        }
    if (most == 0)
        return 0;
    int exponent = 0;
    (void)frexp(most, &exponent);
    for (unsigned i = 0; i <= count; i++)
        whole += static_cast<int64_t>(all[i] * power(24 - exponent)); /* toward 0 */
    double sum = static_cast<double>(whole) * power(exponent - 24);
    float nearest = static_cast<float>(sum);
    return fabs(static_cast<double>(nearest)) > fabs(sum) ? nextafterf(nearest, 0) : nearest;
}

/* Row `row` times column `column`, added to c. terms: of the 16 in their order. */
float product_add(const double terms[16], float c)
{
    if (mma_how == EMU_MMA_TRUNCATED)
        return added_truncated(terms + 8, 8, added_truncated(terms, 8, c));
    for (unsigned k = 0; k < 16; k++)
        c = static_cast<float>(static_cast<double>(c) + terms[k]);
    return c;
}

/* in: where each lane's matrices are; results go back there. */
void matrices_multiply(const uint64_t in[32], Collective what)
{
    float a[16][16], b[16][8], c[16][8];
    Matrices *lane[32];
    for (unsigned i = 0; i < 32; i++) {
        unsigned g = i / 4, t = i % 4;
        lane[i] = reinterpret_cast<Matrices *>(static_cast<uintptr_t>(in[i]));
        for (unsigned word = 0; word < 4; word++)
            for (unsigned half = 0; half < 2; half++)
                a[g + word % 2 * 8][2 * t + word / 2 * 8 + half] =
                    widened(lane[i]->a[word] >> half * 16 & 0xffff, what);
        for (unsigned word = 0; word < 2; word++)
            for (unsigned half = 0; half < 2; half++)
                b[2 * t + word * 8 + half][g] =
                    widened(lane[i]->b[word] >> half * 16 & 0xffff, what);
    }
    for (unsigned row = 0; row < 16; row++)
        for (unsigned column = 0; column < 8; column++) {
            double terms[16]; /* exact: 11 bits times 11 */
            for (unsigned k = 0; k < 16; k++)
                terms[k] = static_cast<double>(a[row][k]) * static_cast<double>(b[k][column]);
            unsigned owner = row % 8 * 4 + column / 2, i = row / 8 * 2 + column % 2;
            c[row][column] = product_add(terms, lane[owner]->c[i]);
        }
    for (unsigned i = 0; i < 32; i++)
        for (unsigned k = 0; k < 4; k++)
            lane[i]->c[k] = c[i / 4 + k / 2 * 8][i % 4 * 2 + k % 2];
}

void warp_complete(unsigned mask, unsigned first, unsigned end)
{
    uint64_t in[32] = {0};
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32 && first + lane < end; lane++) {
        in[lane] = fibers[first + lane].in;
        ballot |= (mask >> lane & 1) && in[lane] != 0 ? 1u << lane : 0;
    }
    for (unsigned lane = 0; lane < 32 && first + lane < end; lane++) {
        Fiber &fiber = fibers[first + lane];
        unsigned from = source_of(fiber, lane);
        if (!(mask >> lane & 1))
            continue;
        if (!(mask >> from & 1) || first + from >= end)
            fail_at(&fiber, "a shuffle reads a lane that takes no part");
        fiber.out = fiber.what == BALLOT || fiber.what == SYNCWARP ? ballot : in[from];
        make_ready(first + lane);
    }
    warp_numbers[first / 32]++;
}

void mma_complete(unsigned first, unsigned end)
{
    uint64_t in[32];
    if (end - first < 32)
        fail_at(&fibers[first], "a product of matrices by less than a warp");
    for (unsigned lane = 0; lane < 32; lane++)
        in[lane] = fibers[first + lane].in;
    matrices_multiply(in, fibers[first].what);
    for (unsigned lane = 0; lane < 32; lane++)
        make_ready(first + lane);
    warp_numbers[first / 32]++;
}

/* A fiber has come to a collective, or ended. */
void warp_resolve(unsigned comer)
{
    unsigned first = comer / 32 * 32;
    unsigned end = first + 32 < fiber_count ? first + 32 : fiber_count;
    Fiber &fiber = fibers[comer];
    if (fiber.state == AT_WARP) {
        if (!warp_is_complete(fiber, first, end))
            return;
        if (fiber.what == MMA_F16 || fiber.what == MMA_BF16)
            mma_complete(first, end);
        else
            warp_complete(fiber.mask, first, end);
        return;
    }
    for (unsigned i = first; i < end; i++)
        if (fibers[i].state == AT_WARP && (fibers[i].mask >> comer % 32 & 1))
            fail_at(&fibers[i], "a warp collective names a lane that has ended");
}

/* ---- Blocks --------------------------------------------------------------------------------- */

/* Nobody can go on: all of the block stand at one barrier, or it is wrong. */
void barrier_resolve()
{
    int line = 0, true_count = 0;
    for (unsigned i = 0; i < fiber_count; i++) {
        Fiber &fiber = fibers[i];
        if (fiber.state == AT_WARP)
            fail_at(&fiber, "a warp collective waits for lanes that are elsewhere");
        if (fiber.state == ENDED)
            fail_at(&fiber, "a thread has ended while others wait at a barrier");
        if (line != 0 && fiber.line != line)
            fail_at(&fiber, "threads of a block stand at different barriers");
        line = fiber.line;
        true_count += fiber.predicate != 0;
    }
    barrier_number++;
    for (unsigned i = fiber_count; i-- > 0;) {
        fibers[i].out = static_cast<uint64_t>(true_count);
        make_ready(i);
    }
}

/* Poisoned. With ASan a heap block; with TSan of pages that are new. */
uint8_t *shared_take(size_t bytes)
{
#ifdef EMU_TSAN
    uint8_t *at = arena + arena_used;
    arena_used += (bytes + 63) & ~static_cast<size_t>(63);
#else
    uint8_t *at = static_cast<uint8_t *>(malloc(bytes + (bytes == 0)));
    if (at == nullptr)
        fail("no memory", 0);
#endif
    for (size_t i = 0; i < bytes; i++) /* TSan would see memset, as the first thread's */
        const_cast<volatile uint8_t *>(at)[i] = 0xa5;
    return at;
}

void shared_give(uint8_t *at)
{
#ifndef EMU_TSAN
    free(at);
#endif
    (void)at;
}

/* Memory without a past. */
void block_renew()
{
#ifdef EMU_TSAN
    for (unsigned i = 0; i < fiber_count; i++) {
        munmap(fibers[i].stack, STACK_BYTES);
        fibers[i].stack = static_cast<uint8_t *>(pages(STACK_BYTES));
    }
    if (arena != nullptr)
        munmap(arena, ARENA_BYTES);
    arena = static_cast<uint8_t *>(pages(ARENA_BYTES));
    arena_used = 0;
#endif
    edge_release(&launch_edge);
}

/* TSan takes who comes after for who went: so those of earlier blocks stay, as many as it has room
 * for, while a launch has more blocks. */
void fibers_forget()
{
#ifdef EMU_TSAN
    for (void *fiber : ended)
        __tsan_destroy_fiber(fiber);
    ended.clear();
#endif
}

void block_end()
{
#ifdef EMU_TSAN
    for (unsigned i = 0; i < fiber_count; i++)
        ended.push_back(fibers[i].tsan);
    if (ended.size() > ENDED_MAX)
        fibers_forget();
#endif
    for (const Shared &shared : shareds)
        shared_give(shared.at);
    shareds.clear();
    shared_give(dynamic);
}

void block_run()
{
    block_renew();
    shared_bytes = dynamic_bytes;
    dynamic = shared_take(dynamic_bytes);
    live = fiber_count;
    ready.clear();
    for (unsigned i = fiber_count; i-- > 0;) /* taken from the back */
        fiber_begin(i);
    while (live > 0) {
        if (ready.empty())
            barrier_resolve();
        size_t at = is_in_order ? ready.size() - 1 : draw() % ready.size();
        unsigned i = ready[at];
        ready[at] = ready.back();
        ready.pop_back();
        to_fiber(&fibers[i]);
        live -= fibers[i].state == ENDED;
        if (fibers[i].state == AT_WARP || fibers[i].state == ENDED)
            warp_resolve(i);
    }
    block_end();
    counts.blocks++;
    counts.threads += fiber_count;
}

bool is_launch(const uint32_t grid[3], const uint32_t block[3], uint64_t bytes)
{
    uint64_t threads = static_cast<uint64_t>(block[0]) * block[1] * block[2];
    return threads > 0 && block[0] <= EMU_THREADS_MAX && block[1] <= EMU_THREADS_MAX &&
           block[2] <= 64 && threads <= kernel->threads_max && grid[0] > 0 && grid[1] > 0 &&
           grid[2] > 0 && grid[0] <= 0x7fffffffu && grid[1] <= 65535 && grid[2] <= 65535 &&
           bytes <= EMU_SHARED_BYTES;
}
} // namespace

void fail(const char *what, int line)
{
    fprintf(stderr, "emu: %s", what);
    if (kernel != nullptr)
        fprintf(stderr, " (%s", kernel->name);
    if (current != nullptr)
        fprintf(stderr, ", block %u,%u,%u, thread %u,%u,%u", block_index.x, block_index.y,
                block_index.z, current->index.x, current->index.y, current->index.z);
    fprintf(stderr, kernel != nullptr ? ", line %d)\n" : ", line %d\n", line);
    _exit(EMU_EXIT);
}

int sync(int line, int predicate, Joined joined)
{
    Fiber *fiber = static_cast<Fiber *>(current);
    char *edge = &barrier_edges[barrier_number % EDGES];
    edge_release(edge);
    fiber->state = AT_BARRIER;
    fiber->line = line;
    fiber->predicate = predicate;
    to_engine();
    edge_acquire(edge);
    int count = static_cast<int>(fiber->out);
    return joined == COUNT ? count : joined == ANY ? count != 0 : count == (int)fiber_count;
}

/* Shuffles and ballots order no memory; __syncwarp does. */
uint64_t warp(int line, unsigned mask, uint64_t value, Collective what, unsigned argument)
{
    Fiber *fiber = static_cast<Fiber *>(current);
    unsigned number = fiber->linear / 32;
    char *edge = &warp_edges[number][warp_numbers[number] % EDGES];
    if (!(mask >> fiber->linear % 32 & 1))
        fail("a lane is not in the mask that it names", line);
    if (what == SYNCWARP)
        edge_release(edge);
    fiber->state = AT_WARP;
    fiber->line = line;
    fiber->mask = mask;
    fiber->what = what;
    fiber->argument = argument;
    fiber->in = value;
    to_engine();
    if (what == SYNCWARP)
        edge_acquire(edge);
    return fiber->out;
}

unsigned pack_f16(float low, float high)
{
    const float value[2] = {low, high};
    unsigned word = 0;
    for (unsigned i = 0; i < 2; i++) {
        unsigned bits = __float_as_uint(value[i]), sign = bits >> 16 & 0x8000u, half;
        double size = fabs(static_cast<double>(value[i]));
        int exponent = 0;
        if (std::isnan(value[i])) {
            half = 0x7fff; /* of all */
        } else if (size >= 65520.0) {
            half = sign | 0x7c00;
        } else {
            (void)frexp(size, &exponent);
            exponent =
                exponent < -13 || size == 0 ? -13 : exponent; /* a unit is 2^(exponent - 11) */
            double units = nearbyint(ldexp(size, 11 - exponent));
            /* A normal number has 1024 .. 2048 units: the first 1024 and a carry are its exponent's
             */
            half = sign |
                   ((static_cast<unsigned>(exponent + 13) << 10) + static_cast<unsigned>(units));
        }
        word |= half << 16 * i;
    }
    return word;
}

unsigned pack_bf16(float low, float high)
{
    const float value[2] = {low, high};
    unsigned word = 0;
    for (unsigned i = 0; i < 2; i++) {
        unsigned half;
        int exponent = 0;
        if (std::isnan(value[i])) {
            half = 0x7fff; /* of all */
        } else if (std::isinf(value[i]) || value[i] == 0) {
            half = __float_as_uint(value[i]) >> 16;
        } else { /* 8 bits of a double; 256 units of the largest exponent are infinity's bits */
            (void)frexp(static_cast<double>(value[i]), &exponent);
            exponent = exponent < -125 ? -125 : exponent;
            double units = nearbyint(ldexp(static_cast<double>(value[i]), 8 - exponent));
            half = __float_as_uint(static_cast<float>(ldexp(units, exponent - 8))) >> 16;
        }
        word |= half << 16 * i;
    }
    return word;
}

float unpack_f16(unsigned half)
{
    float value = widened(half, MMA_F16);
    return std::isnan(value) ? __uint_as_float(0x7fffffff) : value; /* of all */
}

void *shared(int id, size_t bytes, int line)
{
    for (const Shared &known : shareds)
        if (known.id == id)
            return known.at;
    shared_bytes += bytes;
    if (shared_bytes > EMU_SHARED_BYTES)
        fail("more than 227 KiB of shared memory", line);
    shareds.push_back({id, bytes, shared_take(bytes)});
    return shareds.back().at;
}

void *shared_dynamic()
{
    return dynamic;
}
} // namespace emu

using namespace emu;

int emu_run(const struct emu_kernel *what, void *const *params, const uint32_t grid[3],
            const uint32_t block[3], uint64_t dynamic_shared_bytes, uint64_t seed)
{
    kernel = what;
    if (!is_launch(grid, block, dynamic_shared_bytes))
        return EMU_INVALID;
    kernel_params = params;
    block_dim = dim3{block[0], block[1], block[2]};
    grid_dim = dim3{grid[0], grid[1], grid[2]};
    dynamic_bytes = dynamic_shared_bytes;
    is_in_order = seed == 0;
    random_state = seed;
    fiber_count = block[0] * block[1] * block[2];
    while (fibers.size() < fiber_count) {
        Fiber fiber = {};
        fiber.stack = static_cast<uint8_t *>(pages(STACK_BYTES));
        fibers.push_back(fiber);
    }
#ifdef EMU_TSAN
    main_tsan = __tsan_get_current_fiber();
#endif
    uint64_t blocks = static_cast<uint64_t>(grid[0]) * grid[1] * grid[2];
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t n = is_in_order ? i : blocks - 1 - i;
        block_index =
            dim3{static_cast<unsigned>(n % grid[0]), static_cast<unsigned>(n / grid[0] % grid[1]),
                 static_cast<unsigned>(n / grid[0] / grid[1])};
        block_run();
    }
    edge_acquire(&end_edge);
    fibers_forget();
    counts.launches++;
    kernel = nullptr;
    return 0;
}

void emu_mma_set(enum emu_mma how)
{
    mma_how = how;
}

struct emu_counts emu_counts_get(void)
{
    return counts;
}
