/* Codes to pages, by both decoders: 64 rows a slab and part, as chunks have them.
 *
 *   one area    [slab, part: scales | codes | turns of keys] ..      16-byte aligned, as in a box
 *   beside      one copy on the device that reads and writes as many bytes together
 *
 * Codes are any bits, scales finite numbers. Even: 4 bits K, 2 bits V. Free widths: 2 to 4 bits K,
 * 3 on average, turned back by halves; 2 bits V.
 *
 * Threads: one. Tests: ctest bench_cuda_on_the_fake */
#include "bench/cuda/parts.h"

#include "kernels/bitplanes.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_ROWS 64u
#define EVEN_ROWS 16u /* of a slab, that a block has: as the connector has them */
#define FREE_ROWS 32u
#define REPEAT    4u
#define UP(bytes) (((bytes) + 15) / 16 * 16)

/* A part of a slab: where its bytes are in an area. */
struct slab_part {
    uint64_t scales, codes, rope;
};

struct codes {
    struct scene scene;
    bool is_free;
    uint32_t bits[2];
    struct sc_kernels_bitplanes planes[2]; /* free widths */
    struct sc_kernels_bitplanes_group *groups[2];
    uint8_t *to[2];
    struct sc_kernels_rotary rotary;
    struct slab_part *parts; /* [slabs][2] */
    uint64_t slabs, bytes, units;
    uint8_t *area; /* pinned: what all sets have */
    sc_cu_ptr there[SCENE_SETS_MAX], tables[SCENE_SETS_MAX], table[2];
    sc_cu_ptr copied[2]; /* [(read + written) / 2] each */
};

static uint64_t scale_bytes(const struct codes *it, uint32_t part)
{
    uint64_t channels = (uint64_t)it->scene.shape->heads * it->scene.shape->head_size;
    return it->is_free ? sc_kernels_bitplanes_scale_bytes(&it->planes[part])
                       : sc_kernels_codec_scale_bytes(channels);
}

static uint64_t row_bytes(const struct codes *it, uint32_t part)
{
    uint64_t channels = (uint64_t)it->scene.shape->heads * it->scene.shape->head_size;
    return it->is_free ? it->planes[part].row_bytes
                       : sc_kernels_codec_row_bytes(channels, it->bits[part]);
}

static uint64_t turn_bytes(const struct codes *it, uint32_t part)
{
    return it->is_free && part == 0 ? it->scene.shape->head_size * sizeof(float) : 0;
}

static const struct sc_kernels_rotary *rotary_of(const struct codes *it, uint32_t part)
{
    return it->is_free && part == 0 ? &it->rotary : NULL;
}

static uint64_t rows_of(const struct codes *it, uint64_t slab)
{
    uint64_t left = it->scene.shape->rows - slab * SLAB_ROWS;
    return left < SLAB_ROWS ? left : SLAB_ROWS;
}

/* ---- Making them ---------------------------------------------------------------------------- */

/* Of 64 channels, which ones by lot, 24 have 4 bits, 16 have 3 and 24 have 2: whole bytes of each
 * plane. */
static void bits_draw(uint8_t *to, uint64_t channels, uint64_t *state)
{
    uint32_t order[SC_KERNELS_BITPLANES_GROUP];
    for (uint64_t first = 0; first < channels; first += SC_KERNELS_BITPLANES_GROUP) {
        bench_shuffle(order, SC_KERNELS_BITPLANES_GROUP, state);
        for (uint64_t c = 0; c < SC_KERNELS_BITPLANES_GROUP; c++)
            to[first + order[c]] = c < 24 ? 4 : c < 40 ? 3 : 2;
    }
}

static void bits_make(struct codes *it)
{
    const struct rig_shape *shape = it->scene.shape;
    uint64_t channels = (uint64_t)shape->heads * shape->head_size, state = 1;
    it->rotary = (struct sc_kernels_rotary){SC_KERNELS_ROTARY_HALF, shape->head_size};
    for (uint32_t part = 0; part < 2; part++) {
        it->to[part] = malloc(channels);
        it->groups[part] = calloc(shape->heads * sc_kernels_bitplanes_head_groups(shape->head_size),
                                  sizeof(*it->groups[part]));
        if (it->to[part] == NULL || it->groups[part] == NULL)
            bench_die("no memory for widths");
        memset(it->to[part], 2, channels);
        if (part == 0)
            bits_draw(it->to[part], channels, &state);
        if (!sc_kernels_bitplanes_init(&it->planes[part], shape->heads, shape->head_size,
                                       it->to[part], it->groups[part]))
            bench_die("widths that are none");
    }
}

static void turns_make(const struct codes *it, uint64_t first, uint64_t count, uint8_t *to)
{
    uint64_t turned = it->rotary.turned;
    double *frequencies = malloc(turned / 2 * sizeof(*frequencies));
    if (frequencies == NULL)
        bench_die("no memory for turns");
    for (uint64_t i = 0; i < turned / 2; i++)
        frequencies[i] = pow(5e5, -2.0 * (double)i / (double)turned);
    for (uint64_t i = 0; i < count; i++)
        sc_kernels_rope_row(first + i, frequencies, turned,
                            (float *)(void *)(to + i * turned * sizeof(float)));
    free(frequencies);
}

static void area_make(struct rig *rig, struct codes *it)
{
    it->slabs = (it->scene.shape->rows + SLAB_ROWS - 1) / SLAB_ROWS;
    it->parts = malloc(2 * it->slabs * sizeof(*it->parts));
    if (it->parts == NULL)
        bench_die("no memory for slabs");
    for (uint64_t i = 0; i < 2 * it->slabs; i++) {
        uint64_t rows = rows_of(it, i / 2);
        it->parts[i].scales = it->bytes;
        it->parts[i].codes = it->parts[i].scales + UP(scale_bytes(it, i % 2));
        it->parts[i].rope = it->parts[i].codes + UP(rows * row_bytes(it, i % 2));
        it->bytes = it->parts[i].rope + UP(rows * turn_bytes(it, i % 2));
    }
    it->area = rig_host_memory(rig, it->bytes);
    rig_random(it->area, it->bytes, 5, false);
    for (uint64_t i = 0; i < 2 * it->slabs; i++) {
        rig_random(it->area + it->parts[i].scales, scale_bytes(it, i % 2), i, true);
        if (turn_bytes(it, i % 2) > 0)
            turns_make(it, i / 2 * SLAB_ROWS, rows_of(it, i / 2), it->area + it->parts[i].rope);
    }
}

/* Widths' tables, as kernels have them. */
static void tables_make(struct rig *rig, struct codes *it)
{
    for (uint32_t part = 0; it->is_free && part < 2; part++) {
        uint64_t bytes = sc_cuda_bitplanes_table_bytes(&it->planes[part], rotary_of(it, part));
        struct sc_cuda_bitplanes_table *made = aligned_alloc(16, UP(bytes));
        if (bytes == 0 || made == NULL)
            bench_die("widths that no table holds");
        sc_cuda_bitplanes_table_make(&it->planes[part], rotary_of(it, part), made);
        it->units = made->unit_count > it->units ? made->unit_count : it->units;
        it->table[part] = rig_device_memory(rig, bytes);
        rig_put_any(rig, it->table[part], made, bytes);
        free(made);
    }
}

static struct sc_cuda_codec_slab even_slab(const struct codes *it, sc_cu_ptr base, uint64_t i)
{
    const struct slab_part *at = &it->parts[i];
    return (struct sc_cuda_codec_slab){
        .scales = (const uint8_t *)(uintptr_t)(base + at->scales),
        .codes = (const uint8_t *)(uintptr_t)(base + at->codes),
        .token_first = i / 2 * SLAB_ROWS,
        .row_count = (uint32_t)rows_of(it, i / 2),
        .part = (uint16_t)(i % 2),
        .bits = (uint16_t)it->bits[i % 2],
    };
}

static struct sc_cuda_bitplanes_slab free_slab(const struct codes *it, sc_cu_ptr base, uint64_t i)
{
    const struct slab_part *at = &it->parts[i];
    return (struct sc_cuda_bitplanes_slab){
        .table = (const struct sc_cuda_bitplanes_table *)(uintptr_t)it->table[i % 2],
        .scales = (const uint8_t *)(uintptr_t)(base + at->scales),
        .codes = (const uint8_t *)(uintptr_t)(base + at->codes),
        .rope = turn_bytes(it, i % 2) > 0 ? (const float *)(uintptr_t)(base + at->rope) : NULL,
        .token_first = i / 2 * SLAB_ROWS,
        .row_count = (uint32_t)rows_of(it, i / 2),
        .part = (uint32_t)(i % 2),
    };
}

static void sets_make(struct rig *rig, struct codes *it)
{
    uint64_t count = 2 * it->slabs;
    uint64_t each =
        it->is_free ? sizeof(struct sc_cuda_bitplanes_slab) : sizeof(struct sc_cuda_codec_slab);
    uint8_t *slabs = malloc(count * each);
    if (slabs == NULL)
        bench_die("no memory for slabs");
    for (uint32_t set = 0; set < it->scene.sets; set++) {
        it->there[set] = rig_device_memory(rig, it->bytes);
        rig_put(rig, it->there[set], it->area, it->bytes);
        for (uint64_t i = 0; i < count; i++) {
            const struct sc_cuda_codec_slab even = even_slab(it, it->there[set], i);
            const struct sc_cuda_bitplanes_slab free_ = free_slab(it, it->there[set], i);
            memcpy(slabs + i * each, it->is_free ? (const void *)&free_ : (const void *)&even,
                   each);
        }
        it->tables[set] = rig_device_memory(rig, count * each);
        rig_put_any(rig, it->tables[set], slabs, count * each);
    }
    free(slabs);
}

/* ---- Running -------------------------------------------------------------------------------- */

static void even_run(struct rig *rig, const struct codes *it, uint32_t set)
{
    const struct rig_shape *shape = it->scene.shape;
    const struct sc_cuda_codec what = {
        .memory = scene_memory(&it->scene, set),
        .slabs = (const struct sc_cuda_codec_slab *)(uintptr_t)it->tables[set],
        .head_count = shape->heads,
        .head_size = shape->head_size,
        .dst_dtype = shape->dtype,
        .rows_each = EVEN_ROWS};
    struct sc_cuda_shape grid;
    if (!sc_cuda_codec_shape(&what, (uint32_t)(2 * it->slabs), SLAB_ROWS, &grid))
        bench_die("codes that no kernel takes");
    rig_launch(rig, rig->stream, RIG_sc_cuda_codec_decode, &grid, &what);
}

static void free_run(struct rig *rig, const struct codes *it, uint32_t set)
{
    const struct rig_shape *shape = it->scene.shape;
    const struct sc_cuda_bitplanes what = {
        .memory = scene_memory(&it->scene, set),
        .slabs = (const struct sc_cuda_bitplanes_slab *)(uintptr_t)it->tables[set],
        .head_count = shape->heads,
        .head_size = shape->head_size,
        .dst_dtype = shape->dtype,
        .rows_each = FREE_ROWS};
    struct sc_cuda_shape grid;
    if (!sc_cuda_bitplanes_shape(&what, (uint32_t)it->units, (uint32_t)(2 * it->slabs), SLAB_ROWS,
                                 &grid))
        bench_die("codes that no kernel takes");
    rig_launch(rig, rig->stream, RIG_sc_cuda_bitplanes_decode, &grid, &what);
}

static void decode_run(struct rig *rig, void *job, uint64_t round)
{
    const struct codes *it = job;
    uint32_t set = (uint32_t)(round % it->scene.sets);
    if (it->is_free)
        free_run(rig, it, set);
    else
        even_run(rig, it, set);
}

static void copy_run(struct rig *rig, void *job, uint64_t round)
{
    const struct codes *it = job;
    uint64_t half = (it->bytes + it->scene.bytes) / 2;
    /* Two pairs of areas, each larger than codes and pages of one set together. */
    uint64_t at = round % 2 * half;
    rig_check(rig, rig->calls.copy(it->copied[1] + at, it->copied[0] + at, half, rig->stream),
              "cuMemcpyDtoDAsync");
}

static void decode_check(struct rig *rig, const struct codes *it)
{
    struct sc_kernels_memory memory = scene_expected(&it->scene);
    for (uint64_t i = 0; i < 2 * it->slabs; i++) {
        const struct slab_part *at = &it->parts[i];
        uint32_t part = (uint32_t)(i % 2);
        struct sc_kernels_decode decode = {
            .kernels = sc_kernels_get(SC_KERNELS_REF),
            .memory = &memory,
            .head_count = it->scene.shape->heads,
            .head_size = it->scene.shape->head_size,
            .quantised = {.scales = it->area + at->scales,
                          .codes = it->area + at->codes,
                          .bits = it->bits[part],
                          .planes = it->is_free ? &it->planes[part] : NULL,
                          .rotary = rotary_of(it, part),
                          .rope = (const float *)(const void *)(it->area + at->rope)},
            .dst_dtype = it->scene.shape->dtype};
        sc_kernels_part_decode(&decode, part, i / 2 * SLAB_ROWS, rows_of(it, i / 2));
    }
    for (uint32_t set = 0; set < it->scene.sets; set++)
        scene_check(rig, &it->scene, set, it->is_free ? "free widths" : "even widths");
}

static void decode_measure(struct rig *rig, const struct rig_shape *shape, bool is_free)
{
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    struct codes it = {.is_free = is_free, .bits = {4, 2}};
    struct rig_samples times[2];
    char name[96], note[160];
    scene_open(rig, shape, false, &it.scene);
    if (is_free)
        bits_make(&it);
    area_make(rig, &it);
    tables_make(rig, &it);
    sets_make(rig, &it);
    uint64_t half = (it.bytes + it.scene.bytes) / 2;
    for (uint32_t i = 0; i < 2; i++) {
        it.copied[i] = rig_device_memory(rig, 2 * half);
        rig_poison(rig, it.copied[i], 2 * half);
    }
    const struct rig_way ways[] = {{"copy", copy_run, &it, REPEAT},
                                   {"decode", decode_run, &it, REPEAT}};
    for (uint32_t set = 0; set < it.scene.sets; set++)
        decode_run(rig, &it, set);
    rig_race(rig, ways, 2, rig->sizes.rounds, times);
    decode_check(rig, &it);
    struct rig_samples ratio = rig_ratio(&times[0], &times[1]);
    (void)snprintf(name, sizeof(name), "decode %s, %s / copy on the device",
                   is_free ? "free widths" : "even widths", shape->name);
    (void)snprintf(note, sizeof(note), "%.1f MiB of codes read, %.1f MiB written",
                   (double)it.bytes / 1048576, (double)it.scene.bytes / 1048576);
    rig_judge(rig, name, "ratio", .70, .80, &ratio, note);
    rig_tell_rate(rig, name, &times[0], (double)(it.bytes + it.scene.bytes), "the copy");
    rig_tell_rate(rig, name, &times[1], (double)(it.bytes + it.scene.bytes), "the decoder");
    for (uint32_t part = 0; part < 2; part++) {
        free(it.to[part]);
        free(it.groups[part]);
    }
    free(it.parts);
    scene_close(rig, &it.scene);
    rig_memory_free(rig, memory, pins);
}

void part_codes(struct rig *rig)
{
    for (uint32_t is_free = 0; is_free < 2; is_free++) {
        decode_measure(rig, &rig->sizes.llama, is_free != 0);
        decode_measure(rig, &rig->sizes.opt, is_free != 0);
    }
}
