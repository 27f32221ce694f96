/* Rows and pages for them: see parts.h.
 *
 * Threads: one. Tests: ctest bench_cuda_on_the_fake */
#include "bench/cuda/parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t pages_bytes(const struct scene *scene)
{
    return scene->bytes + 2 * SCENE_GUARD;
}

static void slots_draw(struct rig *rig, struct scene *scene)
{
    uint64_t rows = scene->shape->rows, state = 7;
    uint32_t blocks = (uint32_t)(rows / SCENE_BLOCK);
    uint32_t *order = malloc(blocks * sizeof(*order));
    scene->slots = malloc(rows * sizeof(*scene->slots));
    if (order == NULL || scene->slots == NULL || rows % SCENE_BLOCK != 0)
        bench_die("%" PRIu64 " rows are no whole pages, or there is no memory", rows);
    bench_shuffle(order, blocks, &state);
    for (uint64_t j = 0; j < rows; j++)
        scene->slots[j] = (int64_t)(order[j / SCENE_BLOCK] * SCENE_BLOCK + j % SCENE_BLOCK);
    free(order);
    scene->slots_there = rig_device_memory(rig, rows * sizeof(*scene->slots));
    rig_put_any(rig, scene->slots_there, scene->slots, rows * sizeof(*scene->slots));
}

void scene_open(struct rig *rig, const struct rig_shape *shape, bool with_packed,
                struct scene *ret_scene)
{
    struct scene scene = {.shape = shape,
                          .part_bytes = (uint64_t)shape->heads * shape->head_size * 2};
    scene.row_bytes = 2 * scene.part_bytes;
    scene.bytes = shape->rows * scene.row_bytes;
    uint64_t sets = (rig->sizes.window_bytes + 2 * scene.bytes - 1) / (2 * scene.bytes);
    scene.sets = (uint32_t)(sets < 2 ? 2 : sets > SCENE_SETS_MAX ? SCENE_SETS_MAX : sets);
    scene.expected = rig_host_memory(rig, pages_bytes(&scene));
    scene.found = rig_host_memory(rig, pages_bytes(&scene));
    slots_draw(rig, &scene);
    for (uint32_t set = 0; set < scene.sets; set++) {
        scene.pages[set] = rig_device_memory(rig, pages_bytes(&scene)) + SCENE_GUARD;
        if (!with_packed)
            continue;
        scene.packed[set] = rig_device_memory(rig, scene.bytes);
        rig_random(scene.found, scene.bytes, set, false);
        rig_put(rig, scene.packed[set], scene.found, scene.bytes);
    }
    scene_poison(rig, &scene);
    *ret_scene = scene;
}

void scene_close(struct rig *rig, struct scene *scene)
{
    (void)rig; /* the part gives the memory back */
    free(scene->slots);
    scene->slots = NULL;
}

void scene_poison(struct rig *rig, const struct scene *scene)
{
    for (uint32_t set = 0; set < scene->sets; set++)
        rig_poison(rig, scene->pages[set] - SCENE_GUARD, pages_bytes(scene));
}

static struct sc_kernels_memory memory_at(const struct scene *scene, uint8_t *k_base,
                                          const int64_t *slots)
{
    return (struct sc_kernels_memory){.k_base = k_base,
                                      .v_base = k_base + scene->shape->rows * scene->part_bytes,
                                      .token_stride_bytes = scene->part_bytes,
                                      .head_stride_bytes = scene->shape->head_size * 2ull,
                                      .block_tokens = SCENE_BLOCK,
                                      .block_stride_bytes = SCENE_BLOCK * scene->part_bytes,
                                      .slots = slots,
                                      .element_bytes = 2};
}

struct sc_cuda_memory scene_memory(const struct scene *scene, uint32_t set)
{
    struct sc_cuda_memory made;
    const struct sc_kernels_memory there =
        memory_at(scene, (uint8_t *)(uintptr_t)scene->pages[set],
                  (const int64_t *)(uintptr_t)scene->slots_there);
    if (!sc_cuda_memory_of(&there, 2, &made))
        bench_die("pages that no kernel takes");
    return made;
}

struct sc_kernels_memory scene_expected(const struct scene *scene)
{
    memset(scene->expected, RIG_POISON, pages_bytes(scene));
    return memory_at(scene, scene->expected + SCENE_GUARD, scene->slots);
}

struct sc_kernels_move scene_move(const struct scene *scene, struct sc_kernels_memory *memory)
{
    return (struct sc_kernels_move){.kernels = sc_kernels_get(SC_KERNELS_REF),
                                    .memory = memory,
                                    .head_count = scene->shape->heads,
                                    .head_size = scene->shape->head_size,
                                    .element_bytes = 2,
                                    .dtype = scene->shape->dtype};
}

void scene_check(struct rig *rig, const struct scene *scene, uint32_t set, const char *what)
{
    rig_get(rig, scene->found, scene->pages[set] - SCENE_GUARD, pages_bytes(scene));
    for (uint64_t i = 0; i < pages_bytes(scene); i++)
        if (scene->found[i] != scene->expected[i])
            bench_die("%s, set %" PRIu32 ": byte %" PRIu64 " of %" PRIu64 " is %02x, expected %02x",
                      what, set, i, pages_bytes(scene), scene->found[i], scene->expected[i]);
}
