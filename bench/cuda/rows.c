/* Rows: placed and packed on the device, whole layers from the host, and picks.
 *
 *   place, pack    packed rows <-> pages                    beside one copy of as many bytes
 *   whole layer    host -> stage, a box at a time -> pages  beside one copy of as many bytes there
 *     with boxes   the same, each box filled by the processor first, as the connector does it
 *   picks          rows here and there in host memory -> pages
 *     kernel       reads them over the bus itself: by 24 blocks, and by as many as there are
 *     box          the processor puts them side by side; one copy, and a kernel behind it
 *     batch        cuMemcpyBatchAsync, a piece a row; where that is not there cuMemcpyHtoDAsync
 *
 * Slots and lists of rows are on the device before the clock starts: the connector brings them in
 * the box.
 *
 * Threads: one. Tests: ctest bench_cuda_on_the_fake */
#include "bench/cuda/parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_SM   4u /* as the connector has them */
#define BLOCKS_BUS  24u
#define BOX_BYTES   (2ull << 20)
#define PIECE_BYTES (UINT64_C(256) << 10) /* a slab of the host tier: 64 rows */
#define REPEAT      4u

struct rows {
    struct scene scene;
    struct sc_cuda_rows params;
    sc_cu_ptr other[SCENE_SETS_MAX]; /* as many bytes as rows have: of copies, and packed again */
    uint8_t *frames, *host;          /* [bytes]: where rows stand, and pinned memory for them */
    uint8_t *picked;                 /* pinned, [picks] rows */
    sc_cu_ptr stage, list;
    uint32_t *picks;
    uint64_t gather_count;
    uint32_t blocks;
};

/* ---- On the device -------------------------------------------------------------------------- */

static void rows_launch(struct rig *rig, const struct rows *it, sc_cu_stream stream,
                        enum rig_kernel kernel, const struct sc_cuda_rows *params)
{
    struct sc_cuda_shape shape;
    uint32_t blocks = it->blocks != 0 ? it->blocks : rig->device->multiprocessors * BLOCKS_SM;
    if (!sc_cuda_rows_shape(params, kernel == RIG_sc_cuda_rows_pack, blocks, &shape))
        bench_die("rows that no kernel takes");
    rig_launch(rig, stream, kernel, &shape, params);
}

static void place_run(struct rig *rig, void *job, uint64_t round)
{
    const struct rows *it = job;
    struct sc_cuda_rows params = it->params;
    uint32_t set = (uint32_t)(round % it->scene.sets);
    params.memory = scene_memory(&it->scene, set);
    params.rows = (uint8_t *)(uintptr_t)it->scene.packed[set];
    rows_launch(rig, it, rig->stream, RIG_sc_cuda_rows_place, &params);
}

static void pack_run(struct rig *rig, void *job, uint64_t round)
{
    const struct rows *it = job;
    struct sc_cuda_rows params = it->params;
    uint32_t set = (uint32_t)(round % it->scene.sets);
    params.memory = scene_memory(&it->scene, set);
    params.rows = (uint8_t *)(uintptr_t)it->other[set];
    rows_launch(rig, it, rig->stream, RIG_sc_cuda_rows_pack, &params);
}

static void copy_run(struct rig *rig, void *job, uint64_t round)
{
    const struct rows *it = job;
    uint32_t set = (uint32_t)(round % it->scene.sets);
    rig_check(rig,
              rig->calls.copy(it->other[set], it->scene.packed[set], it->scene.bytes, rig->stream),
              "cuMemcpyDtoDAsync");
}

static struct rows rows_make(struct rig *rig, const struct rig_shape *shape)
{
    struct rows it = {.blocks = 0};
    scene_open(rig, shape, true, &it.scene);
    for (uint32_t set = 0; set < it.scene.sets; set++)
        it.other[set] = rig_device_memory(rig, it.scene.bytes);
    it.params = (struct sc_cuda_rows){.row_stride_bytes = it.scene.row_bytes,
                                      .row_count = (uint32_t)shape->rows,
                                      .head_count = shape->heads,
                                      .head_size = shape->head_size,
                                      .parts = SC_CUDA_K | SC_CUDA_V,
                                      .element_bytes = 2,
                                      .there_bytes = 2,
                                      .dtype = shape->dtype};
    return it;
}

/* What place made, by ref/; then what pack makes of that. */
static void place_check(struct rig *rig, struct rows *it)
{
    struct sc_kernels_memory memory = scene_expected(&it->scene);
    struct sc_kernels_move move = scene_move(&it->scene, &memory);
    uint8_t *packed = it->scene.found;
    for (uint32_t set = 0; set < it->scene.sets; set++) {
        rig_random(packed, it->scene.bytes, set, false);
        sc_kernels_rows_unpack(&move, 0, it->scene.shape->rows, packed);
        scene_check(rig, &it->scene, set, "rows placed");
    }
}

static void pack_check(struct rig *rig, struct rows *it)
{
    for (uint32_t set = 0; set < it->scene.sets; set++) {
        rig_random(it->scene.expected, it->scene.bytes, set, false);
        rig_get(rig, it->scene.found, it->other[set], it->scene.bytes);
        if (memcmp(it->scene.expected, it->scene.found, it->scene.bytes) != 0)
            bench_die("rows packed: set %" PRIu32 " is not what was placed", set);
    }
}

static void on_device(struct rig *rig, const struct rig_shape *shape)
{
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    struct rows it = rows_make(rig, shape);
    struct rig_samples times[2], ratio;
    char name[96];
    uint64_t rounds = rig->sizes.rounds;
    const struct rig_way place[] = {{"copy", copy_run, &it, REPEAT},
                                    {"place", place_run, &it, REPEAT}};
    const struct rig_way pack[] = {{"copy", copy_run, &it, REPEAT},
                                   {"pack", pack_run, &it, REPEAT}};
    for (uint32_t set = 0; set < it.scene.sets; set++) /* each is placed, however few rounds */
        place_run(rig, &it, set);
    rig_race(rig, place, 2, rounds, times);
    place_check(rig, &it);
    ratio = rig_ratio(&times[0], &times[1]);
    (void)snprintf(name, sizeof(name), "place from the device, %s / copy on it", shape->name);
    rig_judge(rig, name, "ratio", .70, .80, &ratio, "as many bytes read + written");
    rig_race(rig, pack, 2, rounds, times);
    for (uint32_t set = 0; set < it.scene.sets; set++) {
        rig_poison(rig, it.other[set], it.scene.bytes); /* the copy wrote the same bytes there */
        pack_run(rig, &it, set);
    }
    pack_check(rig, &it);
    ratio = rig_ratio(&times[0], &times[1]);
    (void)snprintf(name, sizeof(name), "pack, %s / copy on the device", shape->name);
    rig_judge(rig, name, "ratio", .70, .80, &ratio, "as many bytes read + written");
    scene_close(rig, &it.scene);
    rig_memory_free(rig, memory, pins);
}

/* ---- Whole layers from the host ------------------------------------------------------------- */

/* piece_bytes: of a copy; 0: none, the kernel reads pinned memory over the bus. */
static void layer_run(struct rig *rig, struct rows *it, uint64_t piece_bytes, bool with_boxes)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_gpu_stream *copies = &rig->device->slots[0].copies;
    struct sc_gpu_stream *kernels = &rig->device->slots[0].kernels;
    uint64_t box_rows = BOX_BYTES / it->scene.row_bytes, rows = it->scene.shape->rows;
    struct sc_cuda_rows params = it->params;
    params.memory = scene_memory(&it->scene, 0);
    for (uint64_t first = 0; first < rows; first += box_rows) {
        uint64_t count = rows - first < box_rows ? rows - first : box_rows;
        uint64_t at = first * it->scene.row_bytes, bytes = count * it->scene.row_bytes;
        if (with_boxes)
            memcpy(it->host + at, it->frames + at, bytes);
        params.rows =
            (uint8_t *)(uintptr_t)(piece_bytes > 0 ? it->stage + at : rig_seen(rig, it->host + at));
        params.token_first = first;
        params.row_count = (uint32_t)count;
        for (uint64_t done = 0, some; piece_bytes > 0 && done < bytes; done += some) {
            some = bytes - done < piece_bytes ? bytes - done : piece_bytes;
            if (sc_gpu_copy_in(rig->device, copies, it->stage + at + done, it->host + at + done,
                               some, &error) != SPEC_OK)
                bench_die("a box: %s", error.text);
        }
        if (piece_bytes > 0 && sc_gpu_follow(rig->device, kernels, copies, &error) != SPEC_OK)
            bench_die("a box: %s", error.text);
        rows_launch(rig, it, kernels->stream, RIG_sc_cuda_rows_place, &params);
    }
    rig_wait(rig, kernels->stream);
}

static void layer_pinned_run(struct rig *rig, void *job, uint64_t round)
{
    (void)round;
    layer_run(rig, job, BOX_BYTES, false);
}

static void layer_pieces_run(struct rig *rig, void *job, uint64_t round)
{
    (void)round;
    layer_run(rig, job, PIECE_BYTES, false);
}

static void layer_bus_run(struct rig *rig, void *job, uint64_t round)
{
    (void)round;
    layer_run(rig, job, 0, false);
}

static void layer_boxes_run(struct rig *rig, void *job, uint64_t round)
{
    (void)round;
    layer_run(rig, job, BOX_BYTES, true);
}

static void layer_copy_run(struct rig *rig, void *job, uint64_t round)
{
    struct rows *it = job;
    (void)round;
    rig_put(rig, it->other[0], it->host, it->scene.bytes);
}

static void layer_check(struct rig *rig, struct rows *it, const char *what)
{
    struct sc_kernels_memory memory = scene_expected(&it->scene);
    struct sc_kernels_move move = scene_move(&it->scene, &memory);
    sc_kernels_rows_unpack(&move, 0, it->scene.shape->rows, it->frames);
    scene_check(rig, &it->scene, 0, what);
}

static void whole_layers(struct rig *rig, struct rows *it)
{
    struct rig_samples times[5], ratio;
    const struct rig_way ways[] = {{"copy", layer_copy_run, it, 0},
                                   {"pinned", layer_pinned_run, it, 0},
                                   {"boxes", layer_boxes_run, it, 0},
                                   {"pieces", layer_pieces_run, it, 0},
                                   {"bus", layer_bus_run, it, 0}};
    for (uint32_t way = 1; way < 5; way++) {
        if (way == 2)
            continue; /* behind the race */
        scene_poison(rig, &it->scene);
        ways[way].run(rig, it, 0);
        layer_check(rig, it, "a layer out of pinned memory");
    }
    scene_poison(rig, &it->scene);
    rig_race(rig, ways, 5, rig->sizes.rounds, times);
    scene_poison(rig, &it->scene);
    layer_boxes_run(rig, it, 0);
    layer_check(rig, it, "a layer by boxes");
    ratio = rig_ratio(&times[0], &times[1]);
    rig_judge(rig, "a layer, pinned memory -> pages / one copy", "ratio", .80, .92, &ratio,
              "boxes of 2 MiB, copies and kernels alone, latency included");
    ratio = rig_ratio(&times[0], &times[3]);
    rig_tell(rig, "a layer, pieces of 256 KiB -> pages / one copy", "ratio", &ratio,
             "as slabs of the host tier are: eight copies a box");
    ratio = rig_ratio(&times[0], &times[4]);
    rig_tell(rig, "a layer by the kernel over the bus / one copy", "ratio", &ratio,
             "512 rows a launch, all blocks");
    ratio = rig_ratio(&times[0], &times[2]);
    rig_judge(rig, "a layer, boxes filled first -> pages / one copy", "ratio", 0, 0, &ratio,
              "the processor's copy into boxes included, one thread");
}

/* ---- Picks ---------------------------------------------------------------------------------- */

static void gather_launch(struct rig *rig, struct rows *it, uint32_t blocks)
{
    struct sc_cuda_rows params = it->params;
    params.memory = scene_memory(&it->scene, 0);
    params.at = (uint8_t *const *)(uintptr_t)it->list;
    params.row_count = (uint32_t)it->gather_count;
    it->blocks = blocks;
    rows_launch(rig, it, rig->stream, RIG_sc_cuda_rows_place, &params);
    it->blocks = 0;
    rig_wait(rig, rig->stream);
}

static void gather_few_run(struct rig *rig, void *job, uint64_t round)
{
    (void)round;
    gather_launch(rig, job, BLOCKS_BUS);
}

static void gather_all_run(struct rig *rig, void *job, uint64_t round)
{
    (void)round;
    gather_launch(rig, job, 0);
}

static void gather_box_run(struct rig *rig, void *job, uint64_t round)
{
    struct rows *it = job;
    struct sc_cuda_rows params = it->params;
    uint64_t bytes = it->gather_count * it->scene.row_bytes;
    (void)round;
    for (uint64_t i = 0; i < it->gather_count; i++)
        memcpy(it->picked + i * it->scene.row_bytes, it->host + it->picks[i] * it->scene.row_bytes,
               it->scene.row_bytes);
    rig_check(rig, rig->cu->cuMemcpyHtoDAsync(it->stage, it->picked, bytes, rig->stream),
              "cuMemcpyHtoDAsync");
    params.memory = scene_memory(&it->scene, 0);
    params.rows = (uint8_t *)(uintptr_t)it->stage;
    params.row_count = (uint32_t)it->gather_count;
    rows_launch(rig, it, rig->stream, RIG_sc_cuda_rows_place, &params);
    rig_wait(rig, rig->stream);
}

static void gather_copy_run(struct rig *rig, void *job, uint64_t round)
{
    struct rows *it = job;
    (void)round;
    rig_put(rig, it->stage, it->host, it->gather_count * it->scene.row_bytes);
}

/* CUmemcpyAttributes: sources are read in stream order; hints are for managed memory. */
struct batch_attributes {
    int order;
    struct {
        int type, id;
    } from, to;
    unsigned flags;
};

static void gather_batch_run(struct rig *rig, void *job, uint64_t round)
{
    struct rows *it = job;
    enum { PICKS_MAX = 4096 };
    static sc_cu_ptr to[PICKS_MAX], from[PICKS_MAX];
    static size_t bytes[PICKS_MAX];
    struct batch_attributes attributes = {.order = 1};
    size_t first_of = 0, failed = 0;
    (void)round;
    for (uint64_t i = 0; i < it->gather_count && i < PICKS_MAX; i++) {
        uint8_t *row = it->host + it->picks[i] * it->scene.row_bytes;
        to[i] = it->other[0] + i * it->scene.row_bytes;
        from[i] = (uintptr_t)row;
        bytes[i] = it->scene.row_bytes;
        if (rig->calls.batch == NULL)
            rig_check(rig, rig->cu->cuMemcpyHtoDAsync(to[i], row, bytes[i], rig->stream),
                      "cuMemcpyHtoDAsync");
    }
    if (rig->calls.batch != NULL &&
        rig->calls.batch(to, from, bytes, it->gather_count, &attributes, &first_of, 1, &failed,
                         rig->stream) != SC_CU_OK) {
        rig->calls.batch = NULL; /* the figure will say that it is not beside this call */
        gather_batch_run(rig, job, round);
    }
    rig_wait(rig, rig->stream);
}

static void gather_draw(struct rig *rig, struct rows *it)
{
    uint64_t rows = it->scene.shape->rows, state = 3, n = 0;
    uint32_t *order = malloc(rows * sizeof(*order));
    uint8_t *is_in = calloc(rows, 1);
    it->gather_count = rig->sizes.picks;
    it->picks = malloc(it->gather_count * sizeof(*it->picks));
    uint64_t *list = malloc(it->gather_count * sizeof(*list));
    if (order == NULL || is_in == NULL || it->picks == NULL || list == NULL)
        bench_die("no memory for picks");
    bench_shuffle(order, (uint32_t)rows, &state);
    for (uint64_t i = 0; i < it->gather_count; i++)
        is_in[order[i]] = 1;
    for (uint64_t j = 0; j < rows; j++) /* ascending, as sets are */
        if (is_in[j]) {
            it->picks[n] = (uint32_t)j;
            list[n++] = rig_seen(rig, it->host + j * it->scene.row_bytes);
        }
    it->list = rig_device_memory(rig, it->gather_count * sizeof(*list));
    rig_put_any(rig, it->list, list, it->gather_count * sizeof(*list));
    it->picked = rig_host_memory(rig, it->gather_count * it->scene.row_bytes);
    free(order);
    free(is_in);
    free(list);
}

static void gather_check(struct rig *rig, struct rows *it, const char *what)
{
    struct sc_kernels_memory memory = scene_expected(&it->scene);
    struct sc_kernels_move move = scene_move(&it->scene, &memory);
    for (uint64_t i = 0; i < it->gather_count; i++)
        sc_kernels_rows_unpack(&move, i, 1, it->frames + it->picks[i] * it->scene.row_bytes);
    scene_check(rig, &it->scene, 0, what);
    scene_poison(rig, &it->scene);
}

static void batch_check(struct rig *rig, struct rows *it)
{
    uint64_t bytes = it->gather_count * it->scene.row_bytes;
    rig_poison(rig, it->other[0], bytes);
    gather_batch_run(rig, it, 0);
    rig_get(rig, it->scene.found, it->other[0], bytes);
    for (uint64_t i = 0; i < it->gather_count; i++)
        if (memcmp(it->scene.found + i * it->scene.row_bytes,
                   it->frames + it->picks[i] * it->scene.row_bytes, it->scene.row_bytes) != 0)
            bench_die("pick %" PRIu64 " of a batch is another row", i);
}

static void picks(struct rig *rig, struct rows *it)
{
    struct rig_samples times[5], ratio;
    const struct rig_way ways[] = {{"copy", gather_copy_run, it, 0},
                                   {"few", gather_few_run, it, 0},
                                   {"all", gather_all_run, it, 0},
                                   {"box", gather_box_run, it, 0},
                                   {"batch", gather_batch_run, it, 0}};
    gather_draw(rig, it);
    scene_poison(rig, &it->scene);
    gather_few_run(rig, it, 0);
    gather_check(rig, it, "picks by few blocks");
    gather_all_run(rig, it, 0);
    gather_check(rig, it, "picks by all blocks");
    gather_box_run(rig, it, 0);
    gather_check(rig, it, "picks by a box");
    batch_check(rig, it);
    rig_race(rig, ways, 5, rig->sizes.rounds, times);
    gather_box_run(rig, it, 0);
    gather_few_run(rig, it, 0);
    gather_check(rig, it, "picks after the race");
    ratio = rig_ratio(&times[0], &times[1]);
    rig_judge(rig, "picks by a kernel over the bus / one copy", "ratio", .50, .75, &ratio,
              "24 blocks, latency included");
    ratio = rig_ratio(&times[4], &times[1]);
    rig_judge(rig, "picks, a copy each / by the kernel", "ratio", 3, 3, &ratio,
              rig->calls.batch != NULL ? "beside cuMemcpyBatchAsync, a piece a row"
                                       : "beside cuMemcpyHtoDAsync, a call a row");
    ratio = rig_ratio(&times[0], &times[2]);
    rig_judge(rig, "picks by a kernel of all blocks / one copy", "ratio", 0, 0, &ratio, "");
    ratio = rig_ratio(&times[0], &times[3]);
    rig_judge(rig, "picks by a box / one copy", "ratio", 0, 0, &ratio,
              "as the connector does it: put side by side by the processor, copied, placed");
    free(it->picks);
}

static void from_host(struct rig *rig)
{
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    struct rows it = rows_make(rig, &rig->sizes.llama);
    it.frames = bench_huge_memory(it.scene.bytes, 0);
    it.host = rig_host_memory(rig, it.scene.bytes);
    it.stage = rig_device_memory(rig, it.scene.bytes);
    rig_random(it.frames, it.scene.bytes, 99, false);
    memcpy(it.host, it.frames, it.scene.bytes);
    whole_layers(rig, &it);
    picks(rig, &it);
    scene_close(rig, &it.scene);
    free(it.frames);
    rig_memory_free(rig, memory, pins);
}

void part_rows(struct rig *rig)
{
    on_device(rig, &rig->sizes.llama);
    on_device(rig, &rig->sizes.opt);
    from_host(rig);
}
