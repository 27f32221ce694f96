/* rope.h: rotations of positions. */
#include "plugin/quant/rope.h"

#include "base/status.h"
#include "kernels/codec.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK         64u                 /* positions computed together */
#define POSITIONS_MAX (UINT64_C(1) << 20) /* keys beyond are not quantised */
#define SHARE         4u                  /* one of so many parts of the free address space */

_Static_assert(BLOCK % SC_KERNELS_BITPLANES_TILE == 0, "tiles are of one block");

enum { NOT_MADE, BEING_MADE, MADE };

/* Llama 3: wavelengths far beyond the original context length are stretched by `factor`. */
static double llama3_scaled(double frequency, const double scaling[8])
{
    double factor = scaling[0], low = scaling[1], high = scaling[2], length = scaling[3];
    double rope = length * frequency / (2 * M_PI); /* rotations over that length */
    if (rope >= high)
        return frequency;
    if (rope <= low)
        return frequency / factor;
    double share = (rope - low) / (high - low);
    return (1 - share) * frequency / factor + share * frequency;
}

static bool is_llama3(const struct spec_model *model)
{
    const double *scaling = model->rope_scaling;
    return strcmp(model->rope_scaling_kind, "llama3") == 0 && scaling[0] >= 1 && scaling[1] > 0 &&
           scaling[2] > scaling[1] && scaling[3] > 0 && isfinite(scaling[3]);
}

/* Tells whether keys can be rotated back; *ret_known: they can, or need not be. */
static bool is_turned(const struct spec_model *model, bool *ret_known)
{
    const char *kind = model->rope_scaling_kind;
    bool is_plain = kind == NULL || kind[0] == '\0';
    *ret_known = true;
    if (model->rope_kind == SPEC_ROPE_NONE || model->head_size % 2 != 0)
        return false;
    *ret_known =
        model->rope_theta >= 1 && isfinite(model->rope_theta) && (is_plain || is_llama3(model));
    return *ret_known;
}

static void *map(uint64_t bytes, int access)
{
    void *at = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED ? at : NULL;
}

/* Maps rows and tiles of *ret_capacity positions, halved until they fit. The host keeps SHARE - 1
 * of SHARE parts of the remaining address space (RLIMIT_AS, vm.overcommit_memory 2). */
static float *rows_map(uint64_t turned, uint64_t *ret_capacity)
{
    for (uint64_t capacity = *ret_capacity;; capacity = capacity / (2 * BLOCK) * BLOCK) {
        uint64_t bytes = 2 * capacity * turned * sizeof(float);
        if (capacity == 0)
            return NULL;
        void *room = map(SHARE * bytes, PROT_NONE);
        if (room == NULL)
            continue;
        munmap(room, SHARE * bytes);
        float *rows = map(bytes, PROT_READ | PROT_WRITE);
        *ret_capacity = capacity;
        if (rows != NULL)
            return rows;
    }
}

spec_status sc_plugin_rope_open(struct sc_plugin_rope *rope, struct sc_alloc *alloc,
                                const struct spec_model *model, uint64_t count, bool *ret_known,
                                struct spec_error *reterr)
{
    *rope = (struct sc_plugin_rope){0};
    if (!is_turned(model, ret_known))
        return SPEC_OK;
    uint64_t pairs = model->head_size / 2, capacity = POSITIONS_MAX;
    if (count < POSITIONS_MAX - SC_KERNELS_CODEC_ROWS_MAX)
        capacity = count + SC_KERNELS_CODEC_ROWS_MAX;
    capacity = (capacity + BLOCK - 1) / BLOCK * BLOCK;
    rope->rows = rows_map(model->head_size, &capacity);
    if (rope->rows != NULL)
        rope->tiles = rope->rows + capacity * model->head_size;
    rope->capacity = capacity;
    rope->rotary = (struct sc_kernels_rotary){
        model->rope_kind == SPEC_ROPE_HALF ? SC_KERNELS_ROTARY_HALF : SC_KERNELS_ROTARY_INTERLEAVED,
        model->head_size};
    rope->frequencies = sc_alloc_array(alloc, pairs, sizeof(*rope->frequencies));
    rope->states = sc_alloc_array(alloc, capacity / BLOCK, sizeof(*rope->states));
    if (rope->rows == NULL || rope->frequencies == NULL || rope->states == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "turns of %" PRIu64 " positions", capacity);
    for (uint64_t i = 0; i < pairs; i++) {
        double frequency = pow(model->rope_theta, -2 * (double)i / (double)model->head_size);
        if (model->rope_scaling_kind != NULL && model->rope_scaling_kind[0] != '\0')
            frequency = llama3_scaled(frequency, model->rope_scaling);
        rope->frequencies[i] = frequency;
    }
    return SPEC_OK;
}

void sc_plugin_rope_close(struct sc_plugin_rope *rope, struct sc_alloc *alloc)
{
    if (rope->rows != NULL)
        munmap(rope->rows, 2 * rope->capacity * rope->rotary.turned * sizeof(float));
    sc_alloc_free(alloc, rope->frequencies);
    sc_alloc_free(alloc, rope->states);
}

static void block_make(struct sc_plugin_rope *rope, uint64_t block)
{
    uint64_t turned = rope->rotary.turned;
    uint8_t state = NOT_MADE;
    if (atomic_compare_exchange_strong(&rope->states[block], &state, BEING_MADE)) {
        for (uint64_t position = block * BLOCK; position < (block + 1) * BLOCK; position++)
            sc_kernels_rope_row(position, rope->frequencies, turned,
                                rope->rows + position * turned);
        sc_kernels_bitplanes_rope_tiles(rope->rows + block * BLOCK * turned, BLOCK, turned,
                                        rope->tiles + block * BLOCK * turned);
        atomic_store_explicit(&rope->states[block], MADE, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&rope->states[block], memory_order_acquire) != MADE)
        sched_yield();
}

const float *sc_plugin_rope_tiles(const struct sc_plugin_rope *rope, uint64_t first)
{
    return first % SC_KERNELS_BITPLANES_TILE == 0 ? rope->tiles + first * rope->rotary.turned
                                                  : NULL;
}

const float *sc_plugin_rope_get(struct sc_plugin_rope *rope, uint64_t first, uint64_t count)
{
    if (!sc_plugin_rope_has(rope, first, count))
        return NULL;
    for (uint64_t block = first / BLOCK; block * BLOCK < first + count; block++)
        if (atomic_load_explicit(&rope->states[block], memory_order_acquire) != MADE)
            block_make(rope, block);
    return rope->rows + first * rope->rotary.turned;
}
