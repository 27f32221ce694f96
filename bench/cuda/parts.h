/* The parts of bench cuda, in the order in which they run. Each takes back its memory. */
#ifndef BENCH_CUDA_PARTS_H
#define BENCH_CUDA_PARTS_H

#include "bench/cuda/rig.h"

void part_ceilings(struct rig *rig); /* ceilings.c: copies of 1 GiB, multiply-adds */
void part_rows(struct rig *rig);     /* rows.c: place, pack; whole layers and picks from the host */
void part_codes(struct rig *rig);    /* codes.c: both decoders */
void part_scores(struct rig *rig);   /* scores.c: importance */
void part_beside(struct rig *rig);   /* beside.c: a product while a layer is placed */
/* connector.c: the same through the ABI, on a real disk: from the drive, from the host tier, and a
 * call with everything in memory. */
void part_calls(struct rig *rig);
void part_tier(struct rig *rig);
void part_drive(struct rig *rig);

/* A run that does so many of them, on the rig's stream. to: a float for each thread of the device
 * memory that ceilings_fma_threads() asks for. */
uint32_t ceilings_fma_threads(const struct rig *rig);
void ceilings_fma_run(struct rig *rig, sc_cu_ptr to, double multiply_adds);

/* ---- Rows of a model in pages (scene.c) ----------------------------------------------------- */

#define SCENE_BLOCK    16u /* tokens of a page */
#define SCENE_SETS_MAX 16u

/* Packed rows and pages for them, several times over: a cache has none of them when their turn
 * comes.
 *
 *   packed  [rows][K all heads | V all heads]         pages  [K: rows / 16 blocks][V: the same]
 *   slots   blocks in an order by lot                 guards in front of pages and behind */
struct scene {
    const struct rig_shape *shape;
    uint64_t part_bytes, row_bytes, bytes; /* of a row: its K, both; of all rows */
    uint32_t sets;
    sc_cu_ptr packed[SCENE_SETS_MAX], pages[SCENE_SETS_MAX]; /* pages: of K; V lies behind */
    sc_cu_ptr slots_there;
    int64_t *slots;
    uint8_t *expected, *found; /* host memory, pinned; [bytes + guards] */
};

#define SCENE_GUARD 4096u

/* with_packed: their bits are any, set by set. Pages are poisoned. */
void scene_open(struct rig *rig, const struct rig_shape *shape, bool with_packed,
                struct scene *ret_scene);
void scene_close(struct rig *rig, struct scene *scene);
struct sc_cuda_memory scene_memory(const struct scene *scene, uint32_t set);
/* As ref/ sees the pages: K at scene->expected + SCENE_GUARD. */
struct sc_kernels_memory scene_expected(const struct scene *scene);
/* The pages are what scene->expected has, guards too; else the program ends. */
void scene_check(struct rig *rig, const struct scene *scene, uint32_t set, const char *what);
void scene_poison(struct rig *rig, const struct scene *scene);
struct sc_kernels_move scene_move(const struct scene *scene, struct sc_kernels_memory *memory);

#endif
