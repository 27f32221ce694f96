/* device_scores.h: copies inputs to the device, scores, and fetches sums. */
#include "plugin/device/device_scores.h"

#include "plugin/device/device_stream.h"
#include "plugin/device/h2d_batch.h"

#include <string.h>

#define ALIGN        16u
#define UP(bytes)    (((bytes) + ALIGN - 1) / ALIGN * ALIGN)
#define TABLES       16u /* tables of a layer that are copied once; others once per slab */
#define ROOM_WAIT_NS UINT64_C(1000000)

/* ---- Layout -------------------------------------------------------------------------------- */

/* Allocates bytes at *end; returns 0 for 0 bytes. */
static uint64_t place(uint64_t *end, uint64_t bytes)
{
    uint64_t at = *end;
    *end += UP(bytes);
    return bytes > 0 ? at : 0;
}

struct slab_places {
    uint64_t table, scales, codes, rope;
    uint64_t table_bytes; /* 0: an earlier slab's table */
    uint64_t scale_bytes, quantised_bytes, rope_bytes;
};

/* Iterates over the slabs, always with the same result. */
struct slab_walk {
    uint64_t at, table_most;
    uint32_t table_count;
    const struct sc_kernels_bitplanes *of[TABLES];
    const struct sc_kernels_rotary *turn[TABLES];
    uint64_t tables[TABLES];
};

static bool walk_table(struct slab_walk *walk, const struct sc_kernels_quantised *quantised,
                       struct slab_places *places)
{
    for (uint32_t i = 0; i < walk->table_count; i++)
        if (walk->of[i] == quantised->planes && walk->turn[i] == quantised->rotary) {
            places->table = walk->tables[i];
            return true;
        }
    places->table_bytes = sc_cuda_bitplanes_table_bytes(quantised->planes, quantised->rotary);
    places->table = place(&walk->at, places->table_bytes);
    if (walk->table_count < TABLES) {
        walk->of[walk->table_count] = quantised->planes;
        walk->turn[walk->table_count] = quantised->rotary;
        walk->tables[walk->table_count++] = places->table;
    }
    return places->table_bytes > 0 && places->table_bytes <= walk->table_most;
}

static uint64_t slab_rows(const struct sc_kernels_keys *keys, uint64_t slab)
{
    uint64_t end = slab + 1 < keys->slab_count ? keys->slabs[slab + 1].key_first : keys->count;
    return end - keys->slabs[slab].key_first;
}

static bool walk_slab(struct slab_walk *walk, const struct sc_kernels_keys *keys, uint64_t slab,
                      struct slab_places *places)
{
    const struct sc_kernels_quantised *quantised = &keys->slabs[slab].quantised;
    uint64_t rows = slab_rows(keys, slab);
    bool is_known = true;
    *places = (struct slab_places){0};
    if (quantised->planes != NULL) {
        is_known = walk_table(walk, quantised, places);
        places->scale_bytes = sc_kernels_bitplanes_scale_bytes(quantised->planes);
        places->quantised_bytes = rows * quantised->planes->row_bytes;
        if (quantised->rotary != NULL)
            places->rope_bytes = rows * quantised->rotary->turned * sizeof(float);
    } else {
        places->scale_bytes = sc_kernels_codec_scale_bytes(keys->channels);
        places->quantised_bytes =
            rows * sc_kernels_codec_row_bytes(keys->channels, quantised->bits);
    }
    places->scales = place(&walk->at, places->scale_bytes);
    places->codes = place(&walk->at, places->quantised_bytes);
    places->rope = place(&walk->at, places->rope_bytes);
    return is_known;
}

/* Addresses of one scoring from `base` on, and the kernels' parameter. */
struct plan {
    const struct sc_plugin_score *score;
    struct sc_kernels_queries queries;                /* host memory: the rows to copy */
    uint64_t slabs_at;                                /* descriptors */
    struct slab_walk slabs;                           /* at the first slab */
    uint64_t rows_at, queries_at, fresh_at, slots_at; /* 0: not copied */
    uint64_t end;
    bool has_tables;
    struct sc_cuda_score work;
};

static uint64_t query_row_bytes(const struct sc_plugin_score *score)
{
    return score->head_count * score->what->group * score->what->head_size *
           sc_kernels_dtype_bytes(score->what->queries.dtype);
}

/* Host queries, packed for the copy. */
static void plan_packed(struct plan *plan)
{
    const struct sc_plugin_score *score = plan->score;
    const struct sc_kernels_importance *what = score->what;
    uint64_t head_bytes = what->head_size * sc_kernels_dtype_bytes(what->queries.dtype);
    struct sc_cuda_score_queries *queries = &plan->work.queries;
    queries->row_stride_bytes = query_row_bytes(score);
    queries->head_stride_bytes = head_bytes;
    plan->queries_at = place(&plan->end, queries->row_count * queries->row_stride_bytes);
    queries->data = (const uint8_t *)(uintptr_t)plan->queries_at;
}

/* Metric `last` has one row, which sees all new keys. */
static void plan_queries(struct plan *plan)
{
    const struct sc_plugin_score *score = plan->score;
    const struct sc_kernels_importance *what = score->what;
    const struct sc_plugin_afar *afar = score->queries;
    struct sc_kernels_queries *from = &plan->queries;
    uint64_t row = 0;
    *from = what->queries;
    if (afar->device != NULL) {
        from->data = afar->at.k_base;
        from->row_stride_bytes = afar->at.token_stride_bytes;
        from->head_stride_bytes = afar->at.head_stride_bytes;
    }
    if (what->last_row && from->row_count > 0)
        row = from->row_count - 1;
    from->data += row * from->row_stride_bytes;
    from->row_count -= row;
    plan->work.queries =
        (struct sc_cuda_score_queries){.data = from->data,
                                       .row_stride_bytes = from->row_stride_bytes,
                                       .head_stride_bytes = from->head_stride_bytes,
                                       .row_count = (uint32_t)from->row_count,
                                       .dtype = from->dtype};
    if (afar->device == NULL)
        plan_packed(plan);
}

/* Returns false if kernels do not support the memory. */
static bool plan_fresh(struct plan *plan)
{
    const struct sc_plugin_score *score = plan->score;
    const struct sc_kernels_keys *fresh = &score->what->fresh;
    uint64_t element = sc_kernels_dtype_bytes(fresh->dtype);
    uint64_t head_bytes = score->what->head_size * element;
    struct sc_kernels_memory there = score->fresh->at;
    plan->work.fresh.count = (uint32_t)fresh->count;
    plan->work.fresh.dtype = fresh->dtype;
    if (fresh->count == 0)
        return true;
    if (score->fresh->device == NULL) {
        plan->fresh_at = place(&plan->end, fresh->count * score->head_count * head_bytes);
        there = (struct sc_kernels_memory){.k_base = (uint8_t *)(uintptr_t)plan->fresh_at,
                                           .v_base = (uint8_t *)(uintptr_t)plan->fresh_at,
                                           .token_stride_bytes = score->head_count * head_bytes,
                                           .head_stride_bytes = head_bytes};
    } else if (there.slots != NULL) {
        plan->slots_at = place(&plan->end, fresh->count * sizeof(int64_t));
        there.slots = (const int64_t *)(uintptr_t)plan->slots_at;
    }
    return sc_cuda_memory_of(&there, element, &plan->work.fresh.memory);
}

static bool plan_prefix(struct plan *plan)
{
    const struct sc_kernels_importance *what = plan->score->what;
    const struct sc_kernels_keys *prefix = &what->prefix;
    struct slab_places places;
    plan->work.prefix.count = (uint32_t)prefix->count;
    plan->work.prefix.dtype = prefix->dtype;
    if (prefix->slabs == NULL) {
        struct sc_kernels_memory there = prefix->memory; /* contiguous rows */
        plan->rows_at = place(&plan->end, prefix->count * there.token_stride_bytes);
        there.k_base = there.v_base = (uint8_t *)(uintptr_t)plan->rows_at;
        return sc_cuda_memory_of(&there, sc_kernels_dtype_bytes(prefix->dtype),
                                 &plan->work.prefix.memory);
    }
    plan->slabs_at = place(&plan->end, prefix->slab_count * sizeof(struct sc_cuda_score_slab));
    plan->slabs =
        (struct slab_walk){.at = plan->end, .table_most = plan->score->device->table_bytes};
    plan->work.slabs = (const void *)(uintptr_t)plan->slabs_at;
    plan->work.slab_count = (uint32_t)prefix->slab_count;
    plan->work.code_heads = (uint32_t)(prefix->channels / what->head_size);
    struct slab_walk walk = plan->slabs;
    for (uint64_t i = 0; i < prefix->slab_count; i++)
        if (!walk_slab(&walk, prefix, i, &places))
            return false;
    plan->has_tables = walk.table_count > 0;
    plan->end = walk.at;
    return true;
}

static bool plan_make(struct plan *plan, const struct sc_plugin_score *score, uint64_t base)
{
    const struct sc_kernels_importance *what = score->what;
    struct sc_cuda_score *work = &plan->work;
    if (what->prefix.count > INT32_MAX || what->fresh.count > INT32_MAX ||
        what->queries.row_count > INT32_MAX || what->prefix.slab_count > INT32_MAX)
        return false;
    *plan = (struct plan){.score = score, .end = base};
    *work = (struct sc_cuda_score){.head_count = (uint32_t)score->head_count,
                                   .head_size = (uint32_t)what->head_size,
                                   .group = (uint32_t)what->group,
                                   .scale = what->scale};
    plan_queries(plan);
    if (!plan_fresh(plan) || !plan_prefix(plan))
        return false;
    work->tiles_each = sc_cuda_score_tiles_each(work);
    if (work->tiles_each == 0)
        return false;
    uint64_t column = what->prefix.count * sizeof(float);
    work->stats = (float *)(uintptr_t)place(&plan->end, sc_cuda_score_scratch_bytes(work));
    work->sums = (float *)(uintptr_t)place(&plan->end, score->head_count * column);
    work->total = (float *)(uintptr_t)place(&plan->end, column);
    struct sc_cuda_shape shape;
    return sc_cuda_score_best_shape(work, &shape) && sc_cuda_score_join_shape(work, &shape) &&
           sc_cuda_score_columns_shape(work, &shape) && sc_cuda_score_total_shape(work, &shape);
}

bool sc_plugin_score_takes(const struct sc_plugin_score *score)
{
    struct plan plan;
    return plan_make(&plan, score, ALIGN) && plan.end <= score->device->params.score_bytes;
}

/* ---- Rooms --------------------------------------------------------------------------------- */

/* Takes a room of the device's scratch. Its owner waits only for pinned buffers and the device (the
 * host's stream included). Returns false if there is none and the score never waits. */
static bool room_take(const struct sc_plugin_score *score, uint64_t bytes,
                      struct sc_gpu_range *ret_range)
{
    struct sc_plugin_device *device = score->device;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&device->score_word, memory_order_acquire);
        if (sc_gpu_staging_take(&device->scores, bytes, ret_range))
            return true;
        if (score->never_waits)
            return false;
        (void)sc_exec_wait(device->params.exec, &device->score_word, seen,
                           sc_exec_now_ns(device->params.exec) + ROOM_WAIT_NS);
    }
}

static void room_give(struct sc_plugin_device *device, const struct sc_gpu_range *range)
{
    sc_gpu_staging_give(&device->scores, range);
    (void)atomic_fetch_add_explicit(&device->score_word, 1, memory_order_release);
    sc_exec_wake(device->params.exec, &device->score_word);
}

static struct sc_plugin_pinned *pinned_take(const struct sc_plugin_score *score)
{
    return score->never_waits ? sc_plugin_pinned_try(score->device)
                              : sc_plugin_pinned_take(score->device, score->slot);
}

static spec_status fail_busy(struct spec_error *reterr)
{
    return sc_fail(reterr, SPEC_E_BUSY, "no room to score in on the device now");
}

/* ---- Copy to the device -------------------------------------------------------------------- */

/* Bytes for ascending device addresses, one pinned buffer at a time. */
struct cargo {
    const struct sc_plugin_score *score;
    struct sc_plugin_pinned *pinned;
    uint64_t at, used;  /* device address of the first byte; bytes */
    uint64_t skew;      /* its offset in the buffer, for equal alignment */
    spec_status status; /* the first error: nothing is copied after it */
    struct spec_error *reterr;
};

/* Slot locked, device entered. The ring entry owns the pinned buffer from here on. */
static spec_status pinned_send(struct cargo *cargo)
{
    struct sc_plugin_device *device = cargo->score->device;
    struct sc_gpu_stream *own_stream = &device->gpu->slots[cargo->score->slot].copies;
    const struct sc_gpu_hold hold = {.give = sc_plugin_pinned_completed, .held = cargo->pinned};
    atomic_store(&cargo->pinned->left, 1);
    sc_plugin_stream_begin_wait(device, own_stream, &hold);
    spec_status status =
        sc_gpu_copy_in(device->gpu, own_stream, cargo->at, cargo->pinned->host + cargo->skew,
                       cargo->used, cargo->reterr);
    return sc_plugin_stream_submit(device, own_stream, status, cargo->reterr);
}

static void cargo_send(struct cargo *cargo)
{
    struct sc_plugin_device *device = cargo->score->device;
    pthread_mutex_t *lock = &device->slot_locks[cargo->score->slot];
    struct sc_gpu_entry entry;
    if (cargo->pinned == NULL)
        return;
    if (cargo->status == SPEC_OK)
        cargo->status = sc_gpu_enter(device->gpu, &entry, cargo->reterr);
    if (cargo->status == SPEC_OK) {
        pthread_mutex_lock(lock);
        cargo->status = pinned_send(cargo);
        pthread_mutex_unlock(lock);
        sc_gpu_leave(device->gpu, &entry);
    } else {
        sc_plugin_pinned_give(cargo->pinned); /* nothing of it was enqueued */
    }
    cargo->pinned = NULL;
}

/* Returns where to write *bytes for address `at`, with *bytes reduced to the room, at least
 * `least`. A skipped gap is copied uninitialised. NULL: an earlier error. */
static uint8_t *cargo_room(struct cargo *cargo, uint64_t at, uint64_t least, uint64_t *bytes)
{
    struct sc_plugin_device *device = cargo->score->device;
    uint64_t room = device->pinned_buffer_bytes - ALIGN;
    if (cargo->pinned != NULL && at - cargo->at + least > room)
        cargo_send(cargo);
    if (cargo->status != SPEC_OK)
        return NULL;
    if (cargo->pinned == NULL) {
        cargo->pinned = pinned_take(cargo->score);
        if (cargo->pinned == NULL) {
            cargo->status = fail_busy(cargo->reterr);
            return NULL;
        }
        cargo->at = at;
        cargo->skew = at % ALIGN;
    }
    uint64_t first = at - cargo->at;
    *bytes = *bytes < room - first ? *bytes : room - first;
    cargo->used = first + *bytes;
    return cargo->pinned->host + cargo->skew + first;
}

static void cargo_put(struct cargo *cargo, uint64_t at, const void *from, uint64_t bytes)
{
    const uint8_t *next = from;
    while (bytes > 0) {
        uint64_t some = bytes;
        uint8_t *to = cargo_room(cargo, at, 1, &some);
        if (to == NULL)
            return;
        memcpy(to, next, some);
        at += some;
        next += some;
        bytes -= some;
    }
}

/* Descriptors first: their addresses precede those of their data. */
static void slabs_put(struct cargo *cargo, const struct plan *plan)
{
    const struct sc_kernels_keys *prefix = &plan->score->what->prefix;
    struct slab_walk walk = plan->slabs;
    struct slab_places places;
    for (uint64_t i = 0; i < prefix->slab_count; i++) {
        (void)walk_slab(&walk, prefix, i, &places);
        const struct sc_cuda_score_slab slab = {.table = (const void *)(uintptr_t)places.table,
                                                .scales = (const uint8_t *)(uintptr_t)places.scales,
                                                .codes = (const uint8_t *)(uintptr_t)places.codes,
                                                .rope = (const float *)(uintptr_t)places.rope,
                                                .key_first = (uint32_t)prefix->slabs[i].key_first,
                                                .bits = prefix->slabs[i].quantised.bits};
        cargo_put(cargo, plan->slabs_at + i * sizeof(slab), &slab, sizeof(slab));
    }
    walk = plan->slabs;
    for (uint64_t i = 0; i < prefix->slab_count; i++) {
        const struct sc_kernels_quantised *quantised = &prefix->slabs[i].quantised;
        (void)walk_slab(&walk, prefix, i, &places);
        if (places.table_bytes > 0) {
            uint64_t bytes = places.table_bytes;
            uint8_t *to = cargo_room(cargo, places.table, bytes, &bytes);
            if (to == NULL)
                return;
            (void)sc_plugin_device_table(plan->score->device, quantised->planes, quantised->rotary,
                                         to);
        }
        cargo_put(cargo, places.scales, quantised->scales, places.scale_bytes);
        cargo_put(cargo, places.codes, quantised->codes, places.quantised_bytes);
        cargo_put(cargo, places.rope, quantised->rope, places.rope_bytes);
    }
}

static void queries_put(struct cargo *cargo, const struct plan *plan)
{
    const struct sc_plugin_score *score = plan->score;
    const struct sc_kernels_queries *from = &plan->queries;
    uint64_t head_bytes = plan->work.queries.head_stride_bytes, row_bytes = query_row_bytes(score);
    uint64_t heads = score->head_count * score->what->group;
    for (uint64_t row = 0; row < from->row_count; row++) {
        uint64_t bytes = row_bytes;
        uint8_t *to = cargo_room(cargo, plan->queries_at + row * row_bytes, bytes, &bytes);
        if (to == NULL)
            return;
        for (uint64_t h = 0; h < heads; h++)
            memcpy(to + h * head_bytes,
                   from->data + row * from->row_stride_bytes + h * from->head_stride_bytes,
                   head_bytes);
    }
}

static void fresh_put(struct cargo *cargo, const struct plan *plan)
{
    const struct sc_kernels_importance *what = plan->score->what;
    struct sc_kernels_move how = {.kernels = what->kernels,
                                  .memory = &what->fresh.memory,
                                  .head_count = plan->score->head_count,
                                  .head_size = what->head_size,
                                  .element_bytes = sc_kernels_dtype_bytes(what->fresh.dtype),
                                  .dtype = what->fresh.dtype};
    uint64_t row_bytes = how.head_count * how.head_size * how.element_bytes;
    for (uint64_t row = 0, some; row < what->fresh.count; row += some) {
        uint64_t bytes = (what->fresh.count - row) * row_bytes;
        uint8_t *to = cargo_room(cargo, plan->fresh_at + row * row_bytes, row_bytes, &bytes);
        if (to == NULL)
            return;
        some = bytes / row_bytes;
        sc_kernels_part_pack(&how, 0, row, some, to);
        cargo->used -= bytes - some * row_bytes;
    }
}

static spec_status send(const struct plan *plan, struct spec_error *reterr)
{
    const struct sc_plugin_score *score = plan->score;
    const struct sc_kernels_importance *what = score->what;
    struct cargo cargo = {.score = score, .status = SPEC_OK, .reterr = reterr};
    if (plan->queries_at != 0)
        queries_put(&cargo, plan);
    if (plan->fresh_at != 0)
        fresh_put(&cargo, plan);
    if (plan->slots_at != 0)
        cargo_put(&cargo, plan->slots_at, score->fresh->at.slots,
                  what->fresh.count * sizeof(int64_t));
    if (plan->rows_at != 0)
        cargo_put(&cargo, plan->rows_at, what->prefix.memory.k_base,
                  what->prefix.count * what->prefix.memory.token_stride_bytes);
    if (plan->slabs_at != 0)
        slabs_put(&cargo, plan);
    cargo_send(&cargo);
    return cargo.status;
}

/* ---- Scores, and sums back ----------------------------------------------------------------- */

/* Slot locked, device entered. */
static spec_status kernels_launch(const struct plan *plan, struct sc_gpu_slot *slot,
                                  struct spec_error *reterr)
{
    struct sc_plugin_device *device = plan->score->device;
    struct sc_cuda_score work = plan->work;
    bool is_tensor = sc_cuda_score_has_tensor(&work, plan->has_tables, device->gpu->capability);
    const struct {
        enum sc_plugin_kernel kernel;
        bool (*shape)(const struct sc_cuda_score *what, struct sc_cuda_shape *ret_shape);
    } steps[] = {{is_tensor ? SC_PLUGIN_KERNEL_sc_cuda_score_best_tensor
                            : SC_PLUGIN_KERNEL_sc_cuda_score_best,
                  sc_cuda_score_best_shape},
                 {SC_PLUGIN_KERNEL_sc_cuda_score_join, sc_cuda_score_join_shape},
                 {is_tensor ? SC_PLUGIN_KERNEL_sc_cuda_score_columns_tensor
                            : SC_PLUGIN_KERNEL_sc_cuda_score_columns,
                  sc_cuda_score_columns_shape},
                 {SC_PLUGIN_KERNEL_sc_cuda_score_total, sc_cuda_score_total_shape}};
    spec_status status = sc_gpu_follow(device->gpu, &slot->kernels, &slot->copies, reterr);
    for (uint32_t i = 0; status == SPEC_OK && i < (plan->score->is_total ? 4u : 3u); i++) {
        struct sc_cuda_shape shape;
        bool fits = steps[i].shape(&work, &shape);
        status = sc_plugin_stream_launch(device, slot->kernels.stream, steps[i].kernel, fits,
                                         &shape, &work, reterr);
    }
    return status;
}

/* Copies sums [first, + count) to the pinned buffer; the first call launches the kernels before. */
static spec_status fetch(const struct plan *plan, const struct sc_plugin_pinned *pinned,
                         uint64_t first, uint64_t count, _Atomic uint32_t *over,
                         struct spec_error *reterr)
{
    struct sc_plugin_device *device = plan->score->device;
    struct sc_gpu_slot *slot = &device->gpu->slots[plan->score->slot];
    const float *sums = plan->score->is_total ? plan->work.total : plan->work.sums;
    const struct sc_gpu_hold hold = sc_plugin_stream_hold(over);
    sc_plugin_stream_begin_wait(device, &slot->kernels, &hold);
    spec_status status = first == 0 ? kernels_launch(plan, slot, reterr) : SPEC_OK;
    if (status == SPEC_OK)
        status = sc_gpu_copy_out(device->gpu, &slot->kernels, pinned->host,
                                 (uintptr_t)(sums + first), count * sizeof(float), reterr);
    return sc_plugin_stream_submit(device, &slot->kernels, status, reterr);
}

static spec_status piece_fetch(const struct plan *plan, const struct sc_plugin_pinned *pinned,
                               uint64_t first, uint64_t count, struct spec_error *reterr)
{
    struct sc_plugin_device *device = plan->score->device;
    pthread_mutex_t *lock = &device->slot_locks[plan->score->slot];
    _Atomic uint32_t over = 0;
    struct sc_gpu_entry entry;
    spec_status status = sc_gpu_enter(device->gpu, &entry, reterr);
    if (status != SPEC_OK)
        return status;
    pthread_mutex_lock(lock);
    status = fetch(plan, pinned, first, count, &over, reterr);
    pthread_mutex_unlock(lock);
    sc_gpu_leave(device->gpu, &entry);
    sc_plugin_stream_await(device, &device->gpu->slots[plan->score->slot].kernels, &over);
    if (status == SPEC_OK && sc_gpu_has_failed(device->gpu)) /* possibly before the copy */
        status = sc_fail(reterr, SPEC_E_IO, "%s", device->gpu->failed_text);
    return status;
}

static spec_status sums_fetch(const struct plan *plan, float *ret_sums, struct spec_error *reterr)
{
    const struct sc_plugin_score *score = plan->score;
    struct sc_plugin_device *device = score->device;
    uint64_t heads = score->is_total ? 1 : score->head_count;
    uint64_t count = heads * score->what->prefix.count,
             most = device->pinned_buffer_bytes / sizeof(float);
    spec_status status = SPEC_OK;
    for (uint64_t first = 0, some; first < count && status == SPEC_OK; first += some) {
        struct sc_plugin_pinned *pinned = pinned_take(score);
        if (pinned == NULL)
            return fail_busy(reterr);
        some = count - first < most ? count - first : most;
        status = piece_fetch(plan, pinned, first, some, reterr);
        if (status == SPEC_OK)
            memcpy(ret_sums + first, pinned->host, some * sizeof(float));
        sc_plugin_pinned_give(pinned);
    }
    return status;
}

spec_status sc_plugin_score_sum(const struct sc_plugin_score *score, float *ret_sums,
                                struct spec_error *reterr)
{
    struct sc_plugin_device *device = score->device;
    struct sc_gpu_range range;
    struct plan plan;
    if (score->queries->device != NULL && score->queries->begun != SPEC_OK)
        return sc_plugin_afar_fail(device, score->queries->begun, reterr);
    if (score->fresh->device != NULL && score->fresh->begun != SPEC_OK)
        return sc_plugin_afar_fail(device, score->fresh->begun, reterr);
    if (score->what->prefix.count == 0)
        return SPEC_OK; /* no kernel would follow the copies, so nothing would wait for them */
    (void)plan_make(&plan, score, ALIGN);
    if (!room_take(score, plan.end, &range))
        return fail_busy(reterr);
    (void)plan_make(&plan, score, range.at);
    spec_status status = send(&plan, reterr);
    if (status == SPEC_OK)
        status = sums_fetch(&plan, ret_sums, reterr);
    if (status != SPEC_OK) /* copies to the room may be in flight */
        (void)sc_gpu_events_wait(device->gpu, &device->gpu->slots[score->slot].copies, 0);
    room_give(device, &range);
    return status;
}
