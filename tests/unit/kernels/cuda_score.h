/* Calls of the score kernels, of either way to make scores (test_cuda_importance.c,
 * test_cuda_tensor.c), and the same calls by ref/. What is read has nothing in front of it or
 * behind that may be read; what is written has guards.
 *
 * Threads: one. */
#ifndef SC_TESTS_UNIT_KERNELS_CUDA_SCORE_H
#define SC_TESTS_UNIT_KERNELS_CUDA_SCORE_H

#include "kernels/importance.h"
#include "tests/unit/kernels/cuda_run.h"

#define TOLERANCE   1e-5 /* of the largest sum: the contract's */
#define SLABS_MOST  16u
#define HEADS_MOST  4u
#define GUARD_BYTES 64u

enum kinds { PLAIN, EVEN, FREE, MIXED };

struct score_case {
    enum layout layout; /* of plain keys, and of new ones */
    enum kinds kinds;
    uint64_t heads, size, group, rows, prefix, fresh;
    uint32_t query_dtype, key_dtype, fresh_dtype;
    uint32_t head_first, head_count; /* 0: all */
    uint32_t tiles_each;             /* 0: as chosen */
    uint32_t bits, turned, pairs;    /* of codes: bits 0: each slab its own */
    uint64_t offset;
    float spread;
    bool last_row;
};

/* ---- Keys ----------------------------------------------------------------------------------- */

struct keys {
    struct sc_kernels_memory memory;
    struct exact bytes;
    int64_t *slots;
};

static inline void number_put(uint64_t *seed, uint32_t dtype, float spread, uint8_t *dst)
{
    float value = (float)((double)draw(seed) / (1u << 30) - 1.0) * spread;
    sc_kernels_dtypes[dtype].narrow(dst, &value, 1);
}

static inline uint8_t *key_at(const struct sc_kernels_memory *memory, uint64_t head, uint64_t key,
                              uint64_t channel)
{
    uint64_t step = memory->k_element_stride_bytes;
    step = step != 0 ? step : memory->element_bytes;
    return memory->k_base +
           sc_kernels_offsets_of(memory, (uint64_t)sc_kernels_slot_of(memory, key)).part[0] +
           head * memory->head_stride_bytes + channel * step;
}

static inline struct keys keys_make(const struct score_case *how, uint64_t count, uint32_t dtype,
                                    uint64_t seed)
{
    struct place_shape shape = {count, how->heads, how->size, sc_kernels_dtype_bytes(dtype)};
    bool has_slots =
        how->layout == SLOTS || how->layout == BLOCK_HEADS || how->layout == COLUMNS_FAR;
    uint64_t slot_count = has_slots ? 2 * count : count;
    struct keys keys = {.slots = malloc((count + 1) * sizeof(int64_t))};
    assert_non_null(keys.slots);
    place_strides(&keys.memory, how->layout, &shape, slot_count);
    for (uint64_t j = 0; j < count; j++)
        keys.slots[j] = (int64_t)(2 * (count - 1 - j) + 1);
    keys.memory.slots = has_slots ? keys.slots : NULL;
    if (count == 0)
        return keys;
    uint64_t bytes = place_extent(&keys.memory, 0, &shape, slot_count);
    keys.bytes = exact_copy(NULL, 0, bytes + how->offset / 4 * 4);
    memset(keys.bytes.block, GUARD, bytes + how->offset / 4 * 4);
    keys.memory.k_base = keys.bytes.block + how->offset / 4 * 4;
    for (uint64_t j = 0; j < count; j++)
        for (uint64_t c = 0; c < how->heads * how->size; c++)
            number_put(&seed, dtype, 1, key_at(&keys.memory, c / how->size, j, c % how->size));
    return keys;
}

static inline void keys_free(struct keys *keys)
{
    free(keys->bytes.block);
    free(keys->slots);
}

/* ---- Codes ---------------------------------------------------------------------------------- */

/* A slab, as the CPU and as the device have it. */
struct slab_of {
    struct exact scales, codes, rope;
    struct sc_kernels_bitplanes planes;
    struct sc_kernels_bitplanes_group *groups;
    uint8_t *to;
    struct sc_kernels_rotary rotary;
    struct sc_cuda_bitplanes_table *table;
};

struct slabs {
    struct slab_of of[SLABS_MOST];
    struct sc_kernels_slab cpu[SLABS_MOST];
    struct sc_cuda_score_slab device[SLABS_MOST];
    uint32_t count;
};

static inline void even_encode(struct slabs *slabs, const struct score_case *how,
                               const uint8_t *const *rows, uint64_t row_count)
{
    static const uint32_t WIDTHS[] = {4, 2, 5, 3, 8, 6};
    uint32_t s = slabs->count, bits = how->bits != 0 ? how->bits : WIDTHS[s % COUNT(WIDTHS)];
    struct sc_kernels_codec code = {how->heads * how->size, bits, how->key_dtype};
    uint64_t scale_bytes = sc_kernels_codec_scale_bytes(code.channels);
    uint64_t quantised_bytes = row_count * sc_kernels_codec_row_bytes(code.channels, bits);
    uint8_t *scales = malloc(scale_bytes), *codes = malloc(quantised_bytes);
    assert_true(scales != NULL && codes != NULL);
    assert_true(
        sc_kernels_get(SC_KERNELS_REF)->codec_encode(&code, rows, row_count, scales, codes));
    slabs->of[s].scales = exact_copy(scales, scale_bytes, how->offset);
    slabs->of[s].codes = exact_copy(codes, quantised_bytes, how->offset);
    slabs->cpu[s].quantised.bits = slabs->device[s].bits = bits;
    free(scales);
    free(codes);
}

static inline void turns_make(struct slab_of *of, const struct score_case *how, uint64_t key_first,
                              uint64_t row_count)
{
    double frequencies[SIZE_MOST / 2];
    float *rope = malloc((row_count * how->turned + 1) * sizeof(float));
    assert_non_null(rope);
    for (uint32_t i = 0; i < how->turned / 2; i++)
        frequencies[i] = pow(1e4, -2.0 * i / how->turned);
    for (uint64_t i = 0; i < row_count && how->turned > 0; i++)
        sc_kernels_rope_row(300 + key_first + i, frequencies, how->turned, rope + i * how->turned);
    of->rope = exact_copy(rope, row_count * how->turned * sizeof(float), how->offset / 4 * 4);
    free(rope);
}

static inline void free_encode(struct slabs *slabs, const struct score_case *how,
                               const uint8_t *const *rows, uint64_t row_count)
{
    uint32_t s = slabs->count;
    struct slab_of *of = &slabs->of[s];
    uint64_t seed = 77 + s, channels = how->heads * how->size;
    of->to = malloc(channels);
    of->groups =
        calloc(how->heads * sc_kernels_bitplanes_head_groups(how->size), sizeof(*of->groups));
    assert_true(of->to != NULL && of->groups != NULL);
    for (uint64_t h = 0; h < how->heads; h++)
        bit_counts_draw(&seed, how->size, s % 2, 3 + s * 5 % 6, of->to + h * how->size);
    assert_true(sc_kernels_bitplanes_init(&of->planes, how->heads, how->size, of->to, of->groups));
    of->rotary = (struct sc_kernels_rotary){how->pairs, how->turned};
    turns_make(of, how, slabs->cpu[s].key_first, row_count);
    const struct sc_kernels_rotary *rotary = how->turned > 0 ? &of->rotary : NULL;
    uint64_t scale_bytes = sc_kernels_bitplanes_scale_bytes(&of->planes);
    uint64_t quantised_bytes = row_count * of->planes.row_bytes;
    uint8_t *scales = malloc(scale_bytes), *codes = malloc(quantised_bytes + 1);
    assert_true(scales != NULL && codes != NULL);
    struct sc_kernels_bitplanes_encode what = {.planes = &of->planes,
                                               .rows = rows,
                                               .row_count = row_count,
                                               .dtype = how->key_dtype,
                                               .rotary = rotary,
                                               .rope = (float *)(void *)of->rope.at,
                                               .scales = scales,
                                               .codes = codes};
    assert_true(sc_kernels_get(SC_KERNELS_REF)->bitplanes_encode(&what));
    of->scales = exact_copy(scales, scale_bytes, how->offset);
    of->codes = exact_copy(codes, quantised_bytes, how->offset);
    void *table = NULL;
    uint64_t table_bytes = sc_cuda_bitplanes_table_bytes(&of->planes, rotary);
    assert_true(table_bytes > 0);
    assert_int_equal(posix_memalign(&table, 16, table_bytes), 0);
    of->table = table;
    sc_cuda_bitplanes_table_make(&of->planes, rotary, of->table);
    slabs->cpu[s].quantised.planes = &of->planes;
    slabs->cpu[s].quantised.rotary = rotary;
    slabs->cpu[s].quantised.rope = slabs->device[s].rope = what.rope;
    slabs->device[s].table = of->table;
    free(scales);
    free(codes);
}

/* Slabs that end where no tile does, and where one does. */
static inline struct slabs *slabs_make(const struct score_case *how)
{
    static const uint64_t ENDS[] = {1, 65, 70, 128, 170, 234, 250, 506, 600, 856, 1112, 1368, 1624};
    struct slabs *slabs = calloc(1, sizeof(*slabs));
    uint8_t *values = malloc(ROWS * how->heads * how->size * sizeof(float));
    const uint8_t *rows[ROWS];
    uint64_t seed = 5 + how->prefix, bytes = sc_kernels_dtype_bytes(how->key_dtype);
    assert_true(slabs != NULL && values != NULL);
    for (uint64_t first = 0, end; first < how->prefix; first = end, slabs->count++) {
        uint32_t s = slabs->count;
        assert_true(s < COUNT(ENDS));
        end = ENDS[s] < how->prefix ? ENDS[s] : how->prefix;
        for (uint64_t i = 0; i < end - first; i++) {
            rows[i] = values + i * how->heads * how->size * bytes;
            for (uint64_t c = 0; c < how->heads * how->size; c++)
                number_put(&seed, how->key_dtype, c % 9 == 4 ? 4 : 1,
                           values + (i * how->heads * how->size + c) * bytes);
        }
        slabs->cpu[s].key_first = first;
        slabs->device[s].key_first = (uint32_t)first;
        if (how->kinds == FREE || (how->kinds == MIXED && s % 3 != 0))
            free_encode(slabs, how, rows, end - first);
        else
            even_encode(slabs, how, rows, end - first);
        slabs->cpu[s].quantised.scales = slabs->device[s].scales = slabs->of[s].scales.at;
        slabs->cpu[s].quantised.codes = slabs->device[s].codes = slabs->of[s].codes.at;
    }
    free(values);
    return slabs;
}

static inline void slabs_free(struct slabs *slabs)
{
    for (uint32_t s = 0; s < slabs->count; s++) {
        struct slab_of *of = &slabs->of[s];
        free(of->scales.block);
        free(of->codes.block);
        free(of->rope.block);
        free(of->groups);
        free(of->to);
        free(of->table);
    }
    free(slabs);
}

/* ---- Running -------------------------------------------------------------------------------- */

/* Floats with guards. */
struct guarded {
    uint8_t *block;
    float *at;
    uint64_t bytes;
};

static inline struct guarded guarded_make(uint64_t bytes)
{
    struct guarded made = {.bytes = bytes};
    made.block = aligned_alloc(64, (bytes + 63) / 64 * 64 + 2 * GUARD_BYTES);
    assert_non_null(made.block);
    made.at = (float *)(void *)(made.block + GUARD_BYTES);
    return made;
}

static inline void guarded_fill(const struct guarded *what)
{
    memset(what->block, GUARD, what->bytes + 2 * GUARD_BYTES);
}

static inline void guarded_check(const struct guarded *what)
{
    for (uint32_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(what->block[i], GUARD);
        assert_int_equal(what->block[GUARD_BYTES + what->bytes + i], GUARD);
    }
}

/* What a call gives: sums of each head, and their total. */
struct scored {
    struct guarded stats, sums, total;
};

static inline struct scored scored_make(const struct sc_cuda_score *what)
{
    struct scored made;
    made.stats = guarded_make(sc_cuda_score_scratch_bytes(what));
    made.sums = guarded_make((uint64_t)what->head_count * what->prefix.count * sizeof(float));
    made.total = guarded_make(what->prefix.count * sizeof(float));
    return made;
}

static inline void scored_free(struct scored *scored)
{
    free(scored->stats.block);
    free(scored->sums.block);
    free(scored->total.block);
}

/* Kernels of one way to make scores. */
struct score_way {
    const char *best, *columns;
};

static inline void score_run_by(const struct score_way *way, struct sc_cuda_score *what,
                                const struct scored *to, uint64_t seed)
{
    struct sc_cuda_shape shape;
    guarded_fill(&to->stats);
    guarded_fill(&to->sums);
    guarded_fill(&to->total);
    what->stats = to->stats.at;
    what->sums = to->sums.at;
    what->total = to->total.at;
    assert_true(sc_cuda_score_best_shape(what, &shape));
    launch(way->best, what, sizeof(*what), &shape, seed);
    assert_true(sc_cuda_score_join_shape(what, &shape));
    launch("sc_cuda_score_join", what, sizeof(*what), &shape, seed);
    assert_true(sc_cuda_score_columns_shape(what, &shape));
    launch(way->columns, what, sizeof(*what), &shape, seed);
    assert_true(sc_cuda_score_total_shape(what, &shape));
    launch("sc_cuda_score_total", what, sizeof(*what), &shape, seed);
    guarded_check(&to->stats);
    guarded_check(&to->sums);
    guarded_check(&to->total);
}

static inline void sums_compare(const float *found, const float *expected, uint64_t count,
                                const char *what, uint64_t n)
{
    double most = 0;
    for (uint64_t j = 0; j < count; j++)
        most = (double)expected[j] > most ? (double)expected[j] : most;
    for (uint64_t j = 0; j < count; j++)
        if (!(fabs((double)found[j] - (double)expected[j]) <= TOLERANCE * most))
            fail_msg("%s, case %u: key %u: found %.9g, expected %.9g (largest %.9g)", what,
                     (unsigned)n, (unsigned)j, (double)found[j], (double)expected[j], most);
}

/* By ref/, head by head and in total. */
static inline void ref_compare(const struct sc_kernels_importance *cpu,
                               const struct sc_cuda_score *what, uint64_t n)
{
    uint64_t count = cpu->prefix.count, head_end = what->head_first + what->head_count;
    void *scratch = aligned_alloc(
        64, sc_kernels_importance_scratch_bytes(cpu->head_size, count, cpu->fresh.count));
    float *one = malloc((count + 1) * sizeof(float)), *all = malloc((count + 1) * sizeof(float));
    assert_true(scratch != NULL && one != NULL && all != NULL);
    for (uint64_t h = what->head_first; h < head_end; h++) {
        sc_kernels_importance(cpu, h, scratch, one);
        sums_compare(what->sums + (h - what->head_first) * count, one, count, "head", n);
    }
    sc_kernels_importance_sum(cpu, what->head_first, head_end, scratch, one, all);
    sums_compare(what->total, all, count, "total", n);
    free(scratch);
    free(one);
    free(all);
}

static inline struct sc_cuda_score_keys device_keys(const struct sc_kernels_keys *keys)
{
    struct sc_cuda_score_keys made = {.count = (uint32_t)keys->count, .dtype = keys->dtype};
    assert_true(
        sc_cuda_memory_of(&keys->memory, sc_kernels_dtype_bytes(keys->dtype), &made.memory));
    return made;
}

/* Both sides of a call. */
struct call {
    struct sc_kernels_importance cpu;
    struct sc_cuda_score device;
    struct keys prefix, fresh;
    struct exact queries;
    struct slabs *slabs;
};

static inline void call_device(struct call *call, const struct score_case *how)
{
    const struct sc_kernels_queries *queries = &call->cpu.queries;
    struct sc_cuda_score *what = &call->device;
    *what = (struct sc_cuda_score){
        .queries = {queries->data, queries->row_stride_bytes, queries->head_stride_bytes,
                    (uint32_t)queries->row_count, queries->dtype},
        .prefix = device_keys(&call->cpu.prefix),
        .fresh = device_keys(&call->cpu.fresh),
        .slabs = call->slabs != NULL ? call->slabs->device : NULL,
        .slab_count = call->slabs != NULL ? call->slabs->count : 0,
        .code_heads = (uint32_t)how->heads,
        .head_first = how->head_first,
        .head_count = how->head_count != 0 ? how->head_count : (uint32_t)how->heads,
        .head_size = (uint32_t)how->size,
        .group = (uint32_t)how->group,
        .row_first = how->last_row ? (uint32_t)how->rows - 1 : 0,
        .tiles_each = how->tiles_each,
        .scale = call->cpu.scale};
    if (what->tiles_each == 0)
        what->tiles_each = sc_cuda_score_tiles_each(what);
    assert_true(what->tiles_each > 0);
}

static inline struct call call_make(const struct score_case *how)
{
    uint64_t bytes = sc_kernels_dtype_bytes(how->query_dtype);
    uint64_t query_heads = how->heads * how->group;
    uint64_t stride = query_heads * how->size * bytes + how->offset % 7 * bytes;
    uint64_t seed = 9 + how->rows, all = how->rows > 0 ? how->rows * stride : 0;
    struct call call = {.prefix = keys_make(how, how->kinds == PLAIN ? how->prefix : 0,
                                            how->key_dtype, 1 + how->prefix),
                        .fresh = keys_make(how, how->fresh, how->fresh_dtype, 3 + how->fresh),
                        .queries = exact_copy(NULL, 0, all + how->offset)};
    uint8_t *queries = call.queries.block + how->offset;
    for (uint64_t i = 0; i < how->rows; i++)
        for (uint64_t c = 0; c < query_heads * how->size; c++)
            number_put(&seed, how->query_dtype, how->spread, queries + i * stride + c * bytes);
    call.cpu = (struct sc_kernels_importance){
        .kernels = sc_kernels_get(SC_KERNELS_REF),
        .head_size = how->size,
        .group = how->group,
        .scale = 1 / sqrtf((float)how->size),
        .queries = {queries, stride, how->size * bytes, how->rows, how->query_dtype},
        .prefix = {.memory = call.prefix.memory, .count = how->prefix, .dtype = how->key_dtype},
        .fresh = {.memory = call.fresh.memory, .count = how->fresh, .dtype = how->fresh_dtype},
        .last_row = how->last_row};
    if (how->kinds != PLAIN && how->prefix > 0) {
        call.slabs = slabs_make(how);
        call.cpu.prefix.slabs = call.slabs->cpu;
        call.cpu.prefix.slab_count = call.slabs->count;
        call.cpu.prefix.channels = how->heads * how->size;
    }
    call_device(&call, how);
    return call;
}

static inline void call_free(struct call *call)
{
    keys_free(&call->prefix);
    keys_free(&call->fresh);
    free(call->queries.block);
    if (call->slabs != NULL)
        slabs_free(call->slabs);
}

/* The sums of two heads, by one head of ref/ at a time: what is no number is none there either. */
static inline void heads_compare(const struct call *call, const struct score_case *how, uint32_t n)
{
    uint64_t count = how->prefix;
    float *one = malloc(count * sizeof(float));
    void *scratch =
        aligned_alloc(64, sc_kernels_importance_scratch_bytes(how->size, count, how->fresh));
    assert_true(one != NULL && scratch != NULL);
    for (uint64_t h = 0; h < 2; h++) {
        sc_kernels_importance(&call->cpu, h, scratch, one);
        for (uint32_t j = 0; j < count; j++) {
            float found = call->device.sums[h * count + j];
            if (isnan(one[j]) != isnan(found) ||
                (!isnan(one[j]) && !(fabsf(found - one[j]) <= 1e-5f * (float)how->rows)))
                fail_msg("case %u, head %u, key %u: found %g, expected %g", (unsigned)n,
                         (unsigned)h, (unsigned)j, (double)found, (double)one[j]);
        }
    }
    free(scratch);
    free(one);
}

/* The same call with one tile a split, with two and with three. */
static inline void splits_compare(const struct score_way *way, struct call *call)
{
    for (uint32_t each = 1; each < 4; each++) {
        call->device.tiles_each = each;
        struct scored scored = scored_make(&call->device);
        score_run_by(way, &call->device, &scored, each);
        ref_compare(&call->cpu, &call->device, each);
        scored_free(&scored);
    }
}

/* Of a case without rows: two heads. */
static inline void zeros_check(const struct score_way *way, const struct score_case *how)
{
    struct call call = call_make(how);
    struct scored scored = scored_make(&call.device);
    score_run_by(way, &call.device, &scored, 0);
    for (uint32_t j = 0; j < 2 * how->prefix; j++)
        assert_true(call.device.sums[j] == 0);
    for (uint32_t j = 0; j < how->prefix; j++)
        assert_true(call.device.total[j] == 0);
    scored_free(&scored);
    call_free(&call);
}

static inline void case_run_by(const struct score_way *way, const struct score_case *how,
                               uint64_t orders, uint64_t n)
{
    struct call call = call_make(how);
    struct scored first = scored_make(&call.device), again = scored_make(&call.device);
    score_run_by(way, &call.device, &first, 0);
    ref_compare(&call.cpu, &call.device, n);
    for (uint64_t seed = 1; seed < orders; seed++) {
        score_run_by(way, &call.device, &again, seed);
        assert_memory_equal(again.stats.block, first.stats.block, first.stats.bytes + GUARD_BYTES);
        assert_memory_equal(again.sums.block, first.sums.block, first.sums.bytes + GUARD_BYTES);
        assert_memory_equal(again.total.block, first.total.block, first.total.bytes + GUARD_BYTES);
    }
    scored_free(&first);
    scored_free(&again);
    call_free(&call);
}

/* ---- Cases ---------------------------------------------------------------------------------- */

static const uint64_t GROUPS_OF[] = {1, 4, 8, 3}, ROWS_OF[] = {1, 2, 7, 24};
static const uint64_t PREFIXES[] = {0, 1, 63, 64, 65, 200};

static inline void rest_of(struct score_case *how, uint64_t n)
{
    how->group = GROUPS_OF[n / 2 % COUNT(GROUPS_OF)];
    how->rows = ROWS_OF[n / 3 % COUNT(ROWS_OF)];
    how->prefix = PREFIXES[n * 5 % COUNT(PREFIXES)];
    how->fresh = n % 3 == 0 ? 0 : how->rows + (n % 3 - 1) * 70;
    how->query_dtype = (uint32_t)(n / 3 % 3);
    how->key_dtype = (uint32_t)(n % 3);
    how->fresh_dtype = (uint32_t)(n / 2 % 3);
    how->offset = n % 4 == 1 ? 4 : n % 8 == 2 ? 2 * (n % 3) : 0;
    how->spread = n % 7 == 0 ? 30 : 2;
    how->last_row = n % 5 == 4;
    how->tiles_each = n % 4 == 3 ? 1 + (uint32_t)(n % 3) : 0;
    if (n % 6 == 5) {
        how->head_first = 1;
        how->head_count = (uint32_t)how->heads - 1;
    }
}

#define FEW(n) is_due(n, 32, 3)

#endif
