/* Blocks, their twins, and launches: see run.h. */
#include "tests/cuda/real/run.h"

#include "gpu/device.h"
#include "gpu/pin.h"
#include "gpu/work.h"
#include "plugin/device/images.h"

#include <inttypes.h>
#include <stdio.h>

#define BLOCKS_MAX   4096u
#define BOUNCE_BYTES (64ull << 20) /* of each direction */
#define ALIGN_BYTES  64u
#define FATBIN       0xba55ed50u /* how files begin */
#define CUBIN        0x464c457fu

struct block {
    uint8_t *at; /* NULL: none */
    uint64_t bytes;
    sc_cu_ptr twin; /* 0: none yet */
    bool is_lent;
    /* Of this launch. */
    bool is_reached, has_pointers;
    uint64_t bounce_at;
};

/* One a process: a device and what is on it. */
static struct {
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_gpu_device *device;
    struct sc_gpu_pin pin;
    uint8_t *image;  /* a file's bytes, or NULL */
    uint8_t *bounce; /* [2][BOUNCE_BYTES]: there, back */
    uint64_t bounce_used;
    struct block blocks[BLOCKS_MAX];
    uint32_t block_count; /* behind these are none */
} real;

/* ---- The device ----------------------------------------------------------------------------- */

/* A file as an image. It is read once a process, and stays. */
static uint32_t image_read(const char *path, struct sc_gpu_image *ret_image)
{
    uint32_t magic = 0;
    FILE *file = fopen(path, "rb");
    const char *slash = strrchr(path, '/'), *of = strstr(slash != NULL ? slash : path, "sm_");
    assert_true(file != NULL && fseek(file, 0, SEEK_END) == 0);
    long bytes = ftell(file);
    assert_true(bytes > 0 && fseek(file, 0, SEEK_SET) == 0);
    real.image = calloc((size_t)bytes + 1, 1); /* PTX ends with a NUL */
    assert_non_null(real.image);
    assert_int_equal(fread(real.image, 1, (size_t)bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    memcpy(&magic, real.image, sizeof(magic));
    *ret_image = (struct sc_gpu_image){.capability = of != NULL ? (uint32_t)atoi(of + 3) : 80,
                                       .kind = magic == FATBIN  ? SC_GPU_FATBIN
                                               : magic == CUBIN ? SC_GPU_CUBIN
                                                                : SC_GPU_PTX,
                                       .bytes = real.image,
                                       .byte_count = (uint64_t)bytes};
    ret_image->byte_count += ret_image->kind == SC_GPU_PTX ? 1 : 0;
    printf("image %s\n", path);
    return 1;
}

static void must(spec_status status, const struct spec_error *error)
{
    if (status != SPEC_OK)
        fail_msg("the device: status %d: %s", (int)status, error->text);
}

static void enter(struct sc_gpu_entry *ret_entry)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    must(sc_gpu_enter(real.device, ret_entry, &error), &error);
}

static void check(sc_cu_result code, const char *call)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    must(sc_gpu_check(real.device, code, call, &error), &error);
}

int real_open(void **state)
{
    static const char *const KERNELS[] = {
#define NAME(name, params, threads) #name,
        SC_CUDA_KERNELS(NAME)
#undef NAME
    };
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_gpu_image images[SC_PLUGIN_IMAGES];
    const char *path = getenv("SC_TEST_IMAGE");
    (void)state;
    sc_alloc_init(&real.alloc);
    const struct sc_gpu_params params = {.alloc = &real.alloc,
                                         .poison = &real.poison,
                                         .images = images,
                                         .image_count = path != NULL ? image_read(path, images)
                                                                     : sc_plugin_images(images),
                                         .kernels = KERNELS,
                                         .kernel_count = sizeof(KERNELS) / sizeof(KERNELS[0]),
                                         .slot_count = 1,
                                         .event_count = 1,
                                         .hold_max = 1};
    if (sc_gpu_device_attach(&params, &real.device, &error) != SPEC_OK) {
        printf("skipped: no CUDA device: %s\n", error.text);
        exit(0);
    }
    printf("%s, capability %u\n", real.device->name, real.device->capability);
    real.bounce = sc_alloc_huge(&real.alloc, 2 * BOUNCE_BYTES);
    if (real.bounce == NULL)
        return -1;
    return sc_gpu_pin(real.device, real.bounce, 2 * BOUNCE_BYTES, &real.pin, &error);
}

int real_close(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < real.block_count; i++) /* of tests that failed */
        if (real.blocks[i].at != NULL)
            real_free(real.blocks[i].at);
    sc_gpu_unpin(&real.pin);
    sc_gpu_device_detach(real.device);
    sc_alloc_free(&real.alloc, real.bounce);
    free(real.image);
    return atomic_load(&real.poison.broken) == 0 && atomic_load(&real.alloc.live_blocks) == 0 ? 0
                                                                                              : -1;
}

bool real_is_sampled(void)
{
    return getenv("SC_TEST_SAMPLE") != NULL;
}

/* ---- Blocks --------------------------------------------------------------------------------- */

static void *block_add(void *at, uint64_t bytes, bool is_lent)
{
    uint32_t i = 0;
    if (at == NULL)
        return NULL;
    while (i < real.block_count && real.blocks[i].at != NULL)
        i++;
    assert_true(i < BLOCKS_MAX);
    real.block_count = i < real.block_count ? real.block_count : i + 1;
    real.blocks[i] = (struct block){.at = at, .bytes = bytes, .is_lent = is_lent};
    return at;
}

static void block_remove(struct block *block)
{
    struct sc_gpu_entry entry;
    if (block->twin != 0) {
        sc_gpu_enter_anyway(real.device, &entry);
        (void)real.device->cu->cuMemFree(block->twin);
        sc_gpu_leave(real.device, &entry);
    }
    block->at = NULL;
    while (real.block_count > 0 && real.blocks[real.block_count - 1].at == NULL)
        real.block_count--;
}

void *real_malloc(size_t bytes)
{
    return block_add(malloc(bytes + (bytes == 0)), bytes, false);
}

void *real_calloc(size_t count, size_t bytes)
{
    return block_add(calloc(count, bytes), count * bytes, false);
}

void *real_aligned_alloc(size_t align, size_t bytes)
{
    return block_add(aligned_alloc(align, bytes), bytes, false);
}

int real_posix_memalign(void **ret_at, size_t align, size_t bytes)
{
    int code = posix_memalign(ret_at, align, bytes);
    if (code == 0)
        (void)block_add(*ret_at, bytes, false);
    return code;
}

void real_free(void *at)
{
    for (uint32_t i = 0; at != NULL && i < real.block_count; i++)
        if (real.blocks[i].at == at && !real.blocks[i].is_lent) {
            block_remove(&real.blocks[i]);
            break;
        }
    free(at);
}

void real_lend(const void *at, uint64_t bytes)
{
    union {
        const void *given;
        void *taken;
    } lent = {at};
    if (at != NULL)
        (void)block_add(lent.taken, bytes, true);
}

/* ---- What parameters reach ------------------------------------------------------------------ */

static struct block *block_of(const void *at)
{
    struct block *found = NULL;
    for (uint32_t i = 0; i < real.block_count; i++) {
        struct block *block = &real.blocks[i];
        uint64_t away = (uint64_t)((uintptr_t)at - (uintptr_t)block->at);
        if (block->at == NULL || away > block->bytes)
            continue;
        if (away < block->bytes)
            return block;
        found = block; /* nothing of it is read there */
    }
    return found;
}

/* Its bytes, as they are now, in the bounce, and a twin for them. */
static void block_reach(struct block *block)
{
    if (block->is_reached)
        return;
    block->is_reached = true;
    block->has_pointers = false;
    block->bounce_at = real.bounce_used;
    real.bounce_used += (block->bytes + ALIGN_BYTES) / ALIGN_BYTES * ALIGN_BYTES;
    assert_true(real.bounce_used <= BOUNCE_BYTES);
    memcpy(real.bounce + block->bounce_at, block->at, block->bytes);
    if (block->twin == 0)
        check(real.device->cu->cuMemAlloc(&block->twin, block->bytes + (block->bytes == 0)),
              "cuMemAlloc");
}

/* *pointer, which is one of the host's, becomes the twin's. Returns where what it points to stands
 * in the bounce; NULL: it points to nothing. */
static void *reach(void *pointer)
{
    void *at;
    memcpy(&at, pointer, sizeof(at));
    if (at == NULL)
        return NULL;
    struct block *block = block_of(at);
    if (block == NULL)
        fail_msg("a kernel is given %p, which no block has", at);
    block_reach(block);
    uint64_t away = (uint64_t)((uintptr_t)at - (uintptr_t)block->at);
    uintptr_t there = (uintptr_t)(block->twin + away);
    memcpy(pointer, &there, sizeof(there));
    return real.bounce + block->bounce_at + away;
}

/* What was given to the device has no address of the host's left in it: an emulated kernel would
 * follow it, and a real one not. */
static void none_left(const void *given, uint64_t bytes)
{
    for (uint64_t i = 0; i + sizeof(uintptr_t) <= bytes; i += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, (const uint8_t *)given + i, sizeof(word));
        for (uint32_t b = 0; b < real.block_count; b++) {
            const struct block *block = &real.blocks[b];
            if (block->at != NULL && word - (uintptr_t)block->at < block->bytes)
                fail_msg("byte %u of what a kernel is given is an address of the host's",
                         (unsigned)i);
        }
    }
}

/* A table of `count` entries, each `bytes` long, whose pointers are made the twin's by `each`. */
static void reach_table(void *pointer, uint64_t count, uint64_t bytes, void (*each)(void *entry))
{
    void *at;
    memcpy(&at, pointer, sizeof(at));
    struct block *block = at != NULL ? block_of(at) : NULL;
    uint8_t *entries = reach(pointer);
    if (entries == NULL)
        return;
    block->has_pointers = true;
    for (uint64_t i = 0; i < count; i++)
        each(entries + i * bytes);
    none_left(entries, count * bytes);
}

static void reach_entry(void *entry)
{
    (void)reach(entry);
}

static void reach_memory(struct sc_cuda_memory *memory)
{
    (void)reach(&memory->parts[0].base);
    (void)reach(&memory->parts[1].base);
    (void)reach(&memory->slots);
}

static void reach_rows(void *params, const struct sc_cuda_shape *shape)
{
    struct sc_cuda_rows *rows = params;
    (void)shape;
    reach_memory(&rows->memory);
    reach_table(&rows->at, rows->row_count, sizeof(uint8_t *), reach_entry);
    (void)reach(&rows->tokens);
    (void)reach(&rows->rows);
}

static void reach_code_slab(void *entry)
{
    struct sc_cuda_codec_slab *slab = entry;
    (void)reach(&slab->scales);
    (void)reach(&slab->codes);
}

static void reach_code(void *params, const struct sc_cuda_shape *shape)
{
    struct sc_cuda_codec *code = params;
    reach_memory(&code->memory);
    reach_table(&code->slabs, shape->grid[0], sizeof(*code->slabs), reach_code_slab);
    (void)reach(&code->skipped);
}

static void reach_planes_slab(void *entry)
{
    struct sc_cuda_bitplanes_slab *slab = entry;
    (void)reach(&slab->table);
    (void)reach(&slab->scales);
    (void)reach(&slab->codes);
    (void)reach(&slab->rope);
}

static void reach_planes(void *params, const struct sc_cuda_shape *shape)
{
    struct sc_cuda_bitplanes *planes = params;
    reach_memory(&planes->memory);
    reach_table(&planes->slabs, shape->grid[0], sizeof(*planes->slabs), reach_planes_slab);
    (void)reach(&planes->skipped);
}

static void reach_score_slab(void *entry)
{
    struct sc_cuda_score_slab *slab = entry;
    (void)reach(&slab->table);
    (void)reach(&slab->scales);
    (void)reach(&slab->codes);
    (void)reach(&slab->rope);
}

static void reach_score(void *params, const struct sc_cuda_shape *shape)
{
    struct sc_cuda_score *score = params;
    (void)shape;
    (void)reach(&score->queries.data);
    reach_memory(&score->prefix.memory);
    reach_memory(&score->fresh.memory);
    reach_table(&score->slabs, score->slab_count, sizeof(*score->slabs), reach_score_slab);
    (void)reach(&score->stats);
    (void)reach(&score->sums);
    (void)reach(&score->total);
}

/* ---- Launches ------------------------------------------------------------------------------- */

/* A parameter of another type needs a function that says what it reaches. */
static const struct kernel {
    const char *name;
    uint64_t param_bytes;
    void (*reach)(void *params, const struct sc_cuda_shape *shape);
} KERNELS[] = {
#define ROW(name, params, threads)                                                                 \
    {#name, sizeof(params),                                                                        \
     _Generic((params *)NULL, struct sc_cuda_rows *                                                \
              : reach_rows, struct sc_cuda_codec *                                                 \
              : reach_code, struct sc_cuda_bitplanes *                                             \
              : reach_planes, struct sc_cuda_score *                                               \
              : reach_score)},
    SC_CUDA_KERNELS(ROW)
#undef ROW
};

static void there_and_back(uint32_t kernel, void *params, const struct sc_cuda_shape *shape)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_gpu_stream *lane = &real.device->slots[0].kernels;
    const struct sc_gpu_grid grid = {.blocks_x = shape->grid[0],
                                     .blocks_y = shape->grid[1],
                                     .blocks_z = shape->grid[2],
                                     .threads = shape->block[0]};
    for (uint32_t i = 0; i < real.block_count; i++) {
        struct block *block = &real.blocks[i];
        if (block->is_reached && block->bytes > 0)
            must(sc_gpu_copy_in(real.device, lane, block->twin, real.bounce + block->bounce_at,
                                block->bytes, &error),
                 &error);
    }
    must(sc_gpu_launch(real.device, lane->stream, kernel, &grid, &params, &error), &error);
    for (uint32_t i = 0; i < real.block_count; i++) {
        struct block *block = &real.blocks[i];
        if (block->is_reached && !block->is_lent && !block->has_pointers && block->bytes > 0)
            must(sc_gpu_copy_out(real.device, lane, real.bounce + BOUNCE_BYTES + block->bounce_at,
                                 block->twin, block->bytes, &error),
                 &error);
    }
    check(real.device->cu->cuStreamSynchronize(lane->stream), "cuStreamSynchronize");
}

/* What came back, and the next launch's beginning. */
static void blocks_settle(void)
{
    for (uint32_t i = real.block_count; i-- > 0;) {
        struct block *block = &real.blocks[i];
        if (block->at == NULL)
            continue;
        if (block->is_reached && !block->is_lent && !block->has_pointers)
            memcpy(block->at, real.bounce + BOUNCE_BYTES + block->bounce_at, block->bytes);
        block->is_reached = block->has_pointers = false;
        if (block->is_lent)
            block_remove(block);
    }
    real.bounce_used = 0;
}

void real_launch(const char *name, const void *params, uint64_t param_bytes,
                 const struct sc_cuda_shape *shape)
{
    const uint32_t count = sizeof(KERNELS) / sizeof(KERNELS[0]);
    static _Alignas(16) uint8_t copy[4096]; /* a kernel has at most as many of parameters */
    struct sc_gpu_entry entry;
    uint32_t i = 0;
    while (i < count && strcmp(KERNELS[i].name, name) != 0)
        i++;
    assert_true(i < count);
    assert_int_equal(KERNELS[i].param_bytes, param_bytes);
    assert_true(param_bytes <= sizeof(copy));
    memcpy(copy, params, param_bytes);
    if (shape->grid[0] > 0) {
        enter(&entry);
        KERNELS[i].reach(copy, shape);
        none_left(copy, param_bytes);
        there_and_back(i, copy, shape);
        sc_gpu_leave(real.device, &entry);
    }
    blocks_settle();
}
