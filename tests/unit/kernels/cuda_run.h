/* Kernels as tests of kernels/cuda/ run them, and memories of every layout, twice: one that ref/
 * writes and one that the kernel writes. All bytes of both are compared, what nobody may write too.
 *
 * Each test is two programs. One emulates its kernels (tests/cuda/emu/), where ASan sees what lies
 * outside; the other one (SC_ON_DEVICE) launches the product's images on a device
 * (tests/cuda/real/), to which all that malloc gave goes by itself, and anything else once it was
 * lent.
 *
 * Threads: one. */
#ifndef SC_TESTS_UNIT_KERNELS_CUDA_RUN_H
#define SC_TESTS_UNIT_KERNELS_CUDA_RUN_H

#if defined(SC_ON_DEVICE)
#include "tests/cuda/real/run.h"
#define malloc(bytes)                    real_malloc(bytes)
#define calloc(count, bytes)             real_calloc(count, bytes)
#define aligned_alloc(align, bytes)      real_aligned_alloc(align, bytes)
#define posix_memalign(to, align, bytes) real_posix_memalign(to, align, bytes)
#define free(at)                         real_free(at)
#else
#include "tests/cuda/emu/run.h"
#endif
#include "kernels/cuda/launch.h"
#include "tests/sample.h"
#include "tests/unit/kernels/slab.h"

#if defined(SC_SANITIZED_THREAD)
#define ORDERS 3u /* a fiber costs up to 300 us there */
#elif defined(SC_ON_DEVICE)
#define ORDERS 2u /* it has one of its own */
#else
#define ORDERS SAMPLE_OF(16u, 4u)
#endif

#if defined(SC_ON_DEVICE)
#define cuda_open  real_open /* of a group of tests */
#define cuda_close real_close

/* Whether case n is run, where only some of them are: n % every == one. */
static inline bool is_due(uint64_t n, uint64_t every, uint64_t one)
{
    return !real_is_sampled() || n % every == one;
}

/* How a device adds is its own. */
enum emu_mma { EMU_MMA_NEAREST, EMU_MMA_TRUNCATED };
static inline void emu_mma_set(enum emu_mma how)
{
    (void)how;
}

/* What malloc did not give is there for the next launch. */
static inline void lend(const void *at, uint64_t bytes)
{
    real_lend(at, bytes);
}

static inline void launch(const char *name, const void *params, uint64_t param_bytes,
                          const struct sc_cuda_shape *shape, uint64_t seed)
{
    (void)seed;
    real_launch(name, params, param_bytes, shape);
}
#else
#define cuda_open  NULL
#define cuda_close NULL

/* Stages without a sanitizer run all. */
static inline bool is_due(uint64_t n, uint64_t every, uint64_t one)
{
#if defined(SC_SANITIZED_THREAD)
    return n % every == one;
#else
    return sample_is_whole() || n % every == one || n % 3 == 0;
#endif
}

static inline void lend(const void *at, uint64_t bytes)
{
    (void)at;
    (void)bytes;
}

static inline void launch(const char *name, const void *params, uint64_t param_bytes,
                          const struct sc_cuda_shape *shape, uint64_t seed)
{
    const struct emu_kernel *kernel = emu_kernel_find(name);
    union {
        const void *given;
        void *taken;
    } argument = {params};
    void *const arguments[] = {argument.taken};
    assert_non_null(kernel);
    assert_int_equal(kernel->param_count, 1);
    assert_int_equal(kernel->param_bytes[0], param_bytes);
    if (shape->grid[0] > 0)
        assert_int_equal(emu_run(kernel, arguments, shape->grid, shape->block, 0, seed), 0);
}
#endif

/* ---- Memories ------------------------------------------------------------------------------- */

enum layout {
    PACKED,
    HEAD_MAJOR,
    PADDED,      /* no address is a multiple of 16 but by chance */
    BLOCKS,      /* of 5 tokens */
    SLOTS,       /* backwards, with gaps and negative ones */
    BLOCK_HEADS, /* [block of 16][head][K rows | V rows], slots */
    SPLIT,       /* V's token stride is its own */
    COLUMNS,     /* K in columns, side by side */
    COLUMNS_FAR, /* and two elements apart, with slots */
    LAYOUTS
};

struct place {
    struct sc_kernels_memory memory[2]; /* ref/'s, the kernel's */
    uint8_t *bytes[2];
    uint64_t byte_count;
    int64_t *slots;
};

struct place_shape {
    uint64_t tokens, heads, size, element; /* bytes */
};

static inline void place_strides(struct sc_kernels_memory *m, enum layout layout,
                                 const struct place_shape *shape, uint64_t slot_count)
{
    uint64_t element = shape->element, head = shape->size * element, row = shape->heads * head;
    m->element_bytes = element;
    m->token_stride_bytes = row;
    m->head_stride_bytes = head;
    if (layout == HEAD_MAJOR) {
        m->token_stride_bytes = head;
        m->head_stride_bytes = (slot_count + 1) * head;
    } else if (layout == PADDED) {
        m->head_stride_bytes = head + element;
        m->token_stride_bytes = shape->heads * (head + element) + element;
    } else if (layout == BLOCKS) {
        m->block_tokens = 5;
        m->block_stride_bytes = 5 * row + 8 * element;
    } else if (layout == BLOCK_HEADS) {
        m->block_tokens = 16;
        m->token_stride_bytes = head;
        m->head_stride_bytes = 2 * 16 * head;
        m->block_stride_bytes = shape->heads * 2 * 16 * head;
    } else if (layout == SPLIT) {
        m->v_token_stride_bytes = row + 16;
    } else if (layout >= COLUMNS) {
        uint64_t step = (layout == COLUMNS ? 1 : 2) * element;
        m->token_stride_bytes = step;
        m->k_element_stride_bytes = slot_count * step;
        m->head_stride_bytes = shape->size * slot_count * step;
        m->v_token_stride_bytes = head;
    }
}

/* Bytes that slots 0 .. slot_count - 1 of a part cover. */
static inline uint64_t place_extent(const struct sc_kernels_memory *m, uint32_t part,
                                    const struct place_shape *shape, uint64_t slot_count)
{
    uint64_t most = 0, step = m->element_bytes;
    if (part == 0 && m->k_element_stride_bytes != 0)
        step = m->k_element_stride_bytes;
    for (uint64_t slot = 0; slot < slot_count; slot++) {
        uint64_t at = sc_kernels_offsets_of(m, slot).part[part];
        most = at > most ? at : most;
    }
    return most + (shape->heads - 1) * m->head_stride_bytes + (shape->size - 1) * step +
           m->element_bytes;
}

/* Both halves have the same addresses modulo 64, `shift` elements off it. */
static inline struct place place_make(enum layout layout, const struct place_shape *shape,
                                      uint64_t shift)
{
    uint64_t slot_count = 2 * shape->tokens + 17;
    struct sc_kernels_memory m = {.k_base = NULL};
    struct place place = {.slots = malloc(slot_count * sizeof(int64_t))};
    place_strides(&m, layout, shape, slot_count);
    for (uint64_t j = 0; j < slot_count; j++)
        place.slots[j] = j % 7 == 3 ? -1 - (int64_t)j : (int64_t)(2 * (shape->tokens - 1 - j));
    if (layout == SLOTS || layout == BLOCK_HEADS || layout == COLUMNS_FAR)
        m.slots = place.slots;
    uint64_t first = 64 + shift * shape->element;
    uint64_t k_bytes = place_extent(&m, 0, shape, slot_count);
    uint64_t v_bytes = place_extent(&m, 1, shape, slot_count);
    uint64_t second = first + (k_bytes + 63 + 64) / 64 * 64;
    if (layout == BLOCK_HEADS)
        second = first + 16 * shape->size * shape->element;
    place.byte_count = second + (k_bytes > v_bytes ? k_bytes : v_bytes) + 64;
    place.byte_count = (place.byte_count + 63) / 64 * 64;
    for (uint32_t i = 0; i < 2; i++) {
        place.bytes[i] = aligned_alloc(64, place.byte_count);
        assert_true(place.bytes[i] != NULL && place.slots != NULL);
        place.memory[i] = m;
        place.memory[i].k_base = place.bytes[i] + first;
        place.memory[i].v_base = place.bytes[i] + second;
        memset(place.bytes[i], GUARD, place.byte_count);
    }
    return place;
}

static inline struct sc_cuda_memory place_cuda(const struct place *place)
{
    struct sc_cuda_memory memory;
    assert_true(sc_cuda_memory_of(&place->memory[1], place->memory[1].element_bytes, &memory));
    return memory;
}

/* Both hold the same; then the kernel's is as it was. */
static inline void place_check(const struct place *place, const char *what, uint64_t a, uint64_t b)
{
    for (uint64_t i = 0; i < place->byte_count; i++)
        if (place->bytes[0][i] != place->bytes[1][i])
            fail_msg("%s %u %u: byte %u of %u is %02x, expected %02x", what, (unsigned)a,
                     (unsigned)b, (unsigned)i, (unsigned)place->byte_count, place->bytes[1][i],
                     place->bytes[0][i]);
    memset(place->bytes[1], GUARD, place->byte_count);
}

static inline void place_free(struct place *place)
{
    free(place->bytes[0]);
    free(place->bytes[1]);
    free(place->slots);
}

/* Bytes at `offset` from a multiple of 64, with nothing behind them that may be read. */
struct exact {
    uint8_t *block, *at;
};

static inline struct exact exact_copy(const void *from, uint64_t bytes, uint64_t offset)
{
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, 64, bytes + offset + (bytes + offset == 0)), 0);
    struct exact made = {block, (uint8_t *)block + offset};
    if (bytes > 0)
        memcpy(made.at, from, bytes);
    return made;
}

#endif
