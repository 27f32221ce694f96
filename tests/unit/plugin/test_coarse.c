/* Extents that give their rows up: what is delivered of them and said, who misses them, who keeps
 * them, and in which order they go. Everything through the calls of the ABI, on the simulated disk.
 */
#include "kernels/code.h"
#include "plugin/lab/average.h"
#include "store/internal.h"
#include "tests/unit/plugin/plugin_fixture.h"

#include <math.h>

#define LAYERED  "\"preset\": \"layered-even\", \"store\": {\"coarse_only\": \"yes\"}"
#define LOSSLESS "\"preset\": \"as-like\""
/* 256 rows of 256 bytes of K's codes, and as many of V's. */
#define LONG_CODES                                                                                 \
    LAYERED ", \"lease_ns_max\": 0, \"chunk_tokens\": 256, "                                       \
            "\"layered\": {\"bits_k\": 8, \"bits_v\": 8}"
#define SMALL "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 0"
#define LEASED                                                                                     \
    "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", "                                      \
    "\"lease_ns_max\": 2000000000"
#define ROWS_MAX  512u
#define CHUNK_MAX 256u

/* ---- What is expected ----------------------------------------------------------------------- */

/* The codes of a chunk's rows of one layer and part; row_count 0: none yet. */
struct slab {
    uint64_t first, row_count;
    uint8_t scales[256 * 4], codes[CHUNK_MAX * 256];
};

static struct sc_kernels_code slab_code(const struct rig *rig, uint32_t part)
{
    const struct sc_config *config = &rig->conn->config;
    uint64_t channels = (uint64_t)rig->heads * rig->head_size;
    return (struct sc_kernels_code){
        channels, part == 0 ? config->quarters_k / 4 : config->quarters_v / 4, SC_KERNELS_F16};
}

static void slab_make(const struct rig *rig, const struct prompt *prompt, uint64_t first,
                      uint32_t layer, uint32_t part, struct slab *ret_slab)
{
    static uint8_t bytes[CHUNK_MAX][512];
    const uint8_t *rows[CHUNK_MAX];
    const struct sc_kernels_code code = slab_code(rig, part);
    uint64_t chunk = rig->conn->config.chunk_tokens, left = prompt->count - first;
    assert_true(code.channels <= 256 && chunk <= CHUNK_MAX);
    assert_true(rig->dtype == SPEC_DTYPE_F16 && rig_part_bytes(rig) <= sizeof(bytes[0]));
    ret_slab->first = first;
    ret_slab->row_count = left < chunk ? left : chunk;
    for (uint64_t i = 0; i < ret_slab->row_count; i++) {
        rows[i] = bytes[i];
        rig_row(rig, prompt, first + i, layer, part, bytes[i]);
    }
    assert_true(sc_kernels_ref_code_encode(&code, rows, ret_slab->row_count, ret_slab->scales,
                                           ret_slab->codes));
}

/* What the codes of a position stand for, of a prompt that one pass stored. The slab is made again
 * where the position is in another chunk. */
static void decoded(const struct rig *rig, const struct prompt *prompt, uint64_t position,
                    uint32_t layer, uint32_t part, struct slab *slab, uint8_t *ret_row)
{
    const struct sc_kernels_code code = slab_code(rig, part);
    uint64_t chunk = rig->conn->config.chunk_tokens;
    if (slab->row_count == 0 || slab->first != position / chunk * chunk)
        slab_make(rig, prompt, position / chunk * chunk, layer, part, slab);
    assert_true(position - slab->first < slab->row_count);
    uint64_t row_bytes = sc_kernels_code_row_bytes(code.channels, code.bits);
    sc_kernels_ref_code_decode(&(struct sc_kernels_code_decode){
        &code, slab->scales, slab->codes + (position - slab->first) * row_bytes, 1, 0,
        code.channels, &ret_row, SC_KERNELS_F16, false});
}

struct got {
    spec_status status;
    uint64_t matched, exact; /* rows, of the last layer */
    struct spec_provenance found, delivered;
};

/* Every layer of a fresh lookup, each row as its bit says; ranges that one pass stored from 0. */
static struct got read_rows(struct rig *rig, const struct prompt *prompt, uint32_t exact_ppm)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    struct got got = {.matched = result.matched_tokens, .found = result.provenance};
    uint64_t rows = got.matched, bytes = rig_part_bytes(rig), bits[ROWS_MAX / 64];
    uint8_t expected[512];
    static struct slab slabs[2];
    struct spec_select select = {
        .struct_size = sizeof(select), .given = SPEC_SELECT_EXACT, .exact_ppm = exact_ppm};
    for (uint32_t layer = 0; layer < rig->layers && got.status == SPEC_OK && rows > 0; layer++) {
        struct area area = rig_area(rig, rows);
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = result.request,
                                      .layer = layer,
                                      .destination = &area.memory,
                                      .exact_bits = bits,
                                      .exact_bit_words = ROWS_MAX / 64,
                                      .select = &select};
        assert_int_equal(sc_plugin_begin_layer(rig->conn, &result.request, 1, layer, NULL),
                         SPEC_OK);
        assert_int_equal(sc_plugin_prefetch_next(rig->conn, result.request, layer, NULL, NULL),
                         SPEC_OK);
        got.status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
        got.exact = item.exact_rows;
        got.delivered = item.provenance;
        uint64_t counted = 0;
        slabs[0].row_count = slabs[1].row_count = 0; /* they were another layer's */
        for (uint64_t j = 0; j < rows && got.status == SPEC_OK; j++) {
            bool is_exact = (bits[j / 64] >> (j % 64) & 1) != 0;
            counted += is_exact;
            for (uint32_t part = 0; part < 2; part++) {
                const uint8_t *at = part == 0 ? area.memory.k_base : area.memory.v_base;
                if (is_exact)
                    rig_row(rig, prompt, j, layer, part, expected);
                else
                    decoded(rig, prompt, j, layer, part, &slabs[part], expected);
                if (memcmp(at + j * bytes, expected, bytes) != 0)
                    assert_memory_equal(at + j * bytes, expected, bytes); /* says what differs */
            }
        }
        if (got.status == SPEC_OK)
            assert_int_equal(counted, item.exact_rows);
        else
            assert_true(item.failed_position < got.matched);
        rig_area_free(&area);
    }
    rig_release(rig, result.request);
    return got;
}

/* Changes a bit of K's codes of the chunk, which has 64 rows. */
static void damage_codes(const struct rig *rig, const struct prompt *prompt, uint64_t chunk,
                         uint32_t layer)
{
    static const char PATH[] = "/sim/store/rank-0000-of-0001/seg-00000000";
    static uint8_t bytes[512], scales[64 * 16], codes[64 * 512], memory[64][512];
    uint64_t at = 0, flipped = 0, channels = (uint64_t)rig->heads * rig->head_size;
    const uint8_t *rows[64];
    for (uint64_t p = 0; p < 64; p++) {
        rows[p] = memory[p];
        rig_row(rig, prompt, chunk * 64 + p, layer, 0, memory[p]);
    }
    struct sc_kernels_code code = {channels, 4, SC_KERNELS_F16};
    assert_true(sc_kernels_ref_code_encode(&code, rows, 64, scales, codes));
    for (; flipped == 0 && sc_io_sim_disk_peek(rig->disk, PATH, at, bytes, 512); at += 8)
        if (memcmp(bytes, codes, 64) == 0) {
            bytes[5] ^= 0x10;
            assert_true(sc_io_sim_disk_poke(rig->disk, PATH, at, bytes, 512));
            flipped++;
        }
    assert_int_equal(flipped, 1);
}

/* ---- Doing it ------------------------------------------------------------------------------- */

static void fill(struct rig *rig, const struct prompt *prompt)
{
    assert_int_equal(rig_fill(rig, prompt), SPEC_OK);
    rig_wait_for_codes(rig);
    rig_background(rig);
}

static struct spec_stats stats_of(struct rig *rig)
{
    struct sc_store_stats store = rig_store_stats(rig);
    return (struct spec_stats){
        .coarsened_chunks = atomic_load(&rig->conn->stats.coarsened_chunks),
        .coarse_only_chunks = store.coarse_pieces,
        .evicted_chunks = atomic_load(&rig->conn->stats.evicted_chunks),
    };
}

static struct prompt open_filled(struct rig *rig, const char *extra, uint64_t count)
{
    rig_begin_shape(rig, true, extra, 3, 2, 32, SPEC_DTYPE_F16);
    struct prompt prompt = rig_prompt(1, 0, 0, count);
    fill(rig, &prompt);
    return prompt;
}

/* 400 tokens: the rows of the first 256 went, their codes stayed; the others are there. */
static struct prompt open_front_gone(struct rig *rig, uint32_t layers)
{
    struct prompt whole = rig_prompt(1, 0, 0, 400);
    struct prompt front = {256, whole.tokens, whole.history};
    rig_begin_shape(rig, true, LAYERED ", \"lease_ns_max\": 0", layers, 2, 32, SPEC_DTYPE_F16);
    fill(rig, &front);
    rig_press(rig);
    fill(rig, &whole);
    return whole;
}

/* One row of two heads of 32. */
static struct spec_queries query_behind(const struct prompt *prompt, const float numbers[2 * 32])
{
    return (struct spec_queries){.struct_size = sizeof(struct spec_queries),
                                 .dtype = SPEC_DTYPE_F32,
                                 .data = numbers,
                                 .byte_count = 2 * 32 * sizeof(float),
                                 .row_count = 1,
                                 .row_stride_bytes = 2 * 32 * sizeof(float),
                                 .head_stride_bytes = 32 * sizeof(float),
                                 .first_position = prompt->count};
}

static uint64_t lookup_exact(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_params params =
        rig_lookup_params(prompt, 0, RIG_MAX, SPEC_LOOKUP_REQUIRE_EXACT);
    struct spec_lookup_result result = rig_lookup_as(rig, &params);
    rig_release(rig, result.request);
    return result.matched_tokens;
}

/* ---- Delivered, and said -------------------------------------------------------------------- */

static void rows_that_went_are_delivered_as_codes_and_it_is_said(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = open_filled(&rig, LAYERED ", \"lease_ns_max\": 0", 300);
    assert_int_equal(read_rows(&rig, &prompt, 1000000).exact, 300);
    rig_press(&rig);
    assert_int_equal(stats_of(&rig).coarsened_chunks, 5);
    assert_int_equal(stats_of(&rig).evicted_chunks, 0);
    static const uint32_t PPM[] = {0, 50000, 1000000};
    for (uint32_t opened = 0; opened < 3; opened++) {
        for (uint32_t i = 0; i < 3; i++) {
            struct got got = read_rows(&rig, &prompt, PPM[i]);
            assert_int_equal(got.status, SPEC_OK);
            assert_int_equal(got.matched, 300);
            assert_int_equal(got.exact, 0);
            const struct spec_provenance *said[2] = {&got.found, &got.delivered};
            for (uint32_t s = 0; s < 2; s++) {
                assert_int_equal(said[s]->kind, SPEC_PROVENANCE_LOSSY);
                assert_int_equal(said[s]->held, SPEC_HELD_COARSE_ONLY);
                assert_int_equal(said[s]->bits_k, 4);
                assert_int_equal(said[s]->bits_v, 2);
                assert_int_equal(said[s]->exact_ppm, 0);
            }
            assert_int_equal(got.found.computed_on, SPEC_PROVENANCE_EXACT);
        }
        assert_int_equal(lookup_exact(&rig, &prompt), 0);
        assert_int_equal(stats_of(&rig).coarse_only_chunks, 5);
        if (opened == 0)
            assert_int_equal(sc_store_checkpoint(rig.conn->store, NULL), SPEC_OK);
        rig_reopen(&rig);
    }
    rig_end(&rig, &prompt);
}

/* From the back (load/ends.h), rows come as they were stored, or not at all. */
static void what_is_loaded_from_the_back_ends_above_rows_that_went(void **state)
{
    (void)state;
    for (uint64_t computed = 0; computed <= 400; computed += 100) {
        struct rig rig;
        struct prompt prompt = open_front_gone(&rig, 3);
        struct spec_lookup_result found = rig_lookup(&rig, &prompt);
        struct spec_next_chunk chunk = {
            .struct_size = sizeof(chunk), .request = found.request, .budget_tokens = computed};
        struct area areas[3];
        struct spec_important items[3];
        assert_int_equal(found.matched_tokens, 400);
        if (computed > 0)
            assert_int_equal(sc_plugin_next_chunk(rig.conn, &chunk, NULL), SPEC_OK);
        uint64_t front = chunk.token_count, loaded = front < 256 ? 144 : 400 - front;
        for (uint32_t layer = 0; layer < 3; layer++) {
            areas[layer] = rig_area(&rig, 400);
            items[layer] = (struct spec_important){.struct_size = sizeof(items[layer]),
                                                   .flags = SPEC_ITEM_TAIL,
                                                   .request = found.request,
                                                   .layer = layer,
                                                   .destination = &areas[layer].memory};
        }
        (void)rig_submit_whole(&rig, items, 3);
        chunk.budget_tokens = 1000;
        assert_int_equal(sc_plugin_next_chunk(rig.conn, &chunk, NULL), SPEC_OK);
        assert_int_equal(chunk.first_token, front);
        assert_int_equal(chunk.token_count, 400 - loaded - front);
        for (uint32_t layer = 0; layer < 3; layer++) {
            uint8_t row[512];
            const struct spec_memory *memory = &areas[layer].memory;
            uint64_t bytes = rig_part_bytes(&rig), gone = 400 - loaded;
            assert_int_equal(items[layer].row_count, loaded);
            assert_true(rig_is_poison(memory->k_base, gone * bytes));
            assert_true(rig_is_poison(memory->v_base, gone * bytes));
            for (uint64_t i = 2 * gone; i < 2 * 400; i++) {
                const uint8_t *at = i % 2 == 0 ? memory->k_base : memory->v_base;
                rig_row(&rig, &prompt, i / 2, layer, (uint32_t)(i % 2), row);
                assert_memory_equal(at + i / 2 * bytes, row, bytes);
            }
            rig_area_free(&areas[layer]);
        }
        rig_release(&rig, found.request);
        rig_end(&rig, &prompt);
    }
}

/* A chunk's codes of K are more than an operation that another configuration allows, those of a
 * shorter one are not; both are there, and stay. */
static void codes_of_more_than_an_operation_are_read_in_several(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin_shape(&rig, true, LONG_CODES, 2, 2, 128, SPEC_DTYPE_F16);
    struct prompt prompt = rig_prompt(1, 0, 0, 300);
    fill(&rig, &prompt);
    assert_int_equal(read_rows(&rig, &prompt, 0).exact, 0);
    rig_press(&rig);
    assert_int_equal(stats_of(&rig).coarse_only_chunks, 2);
    for (uint32_t opened = 0; opened < 4; opened++) {
        struct got got = read_rows(&rig, &prompt, 50000);
        assert_int_equal(got.status, SPEC_OK);
        assert_int_equal(got.matched, 300);
        assert_int_equal(got.exact, 0);
        assert_int_equal(stats_of(&rig).coarse_only_chunks, 2);
        rig_close(&rig);
        rig.op = opened % 2 == 0 ? "64KiB" : NULL;
        rig_open(&rig);
    }
    rig_end(&rig, &prompt);
}

/* So are those that stand beside their rows: no row is exact for want of room for its codes. */
static void codes_of_more_than_an_operation_need_no_rows(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, LONG_CODES);
    rig.op = "64KiB";
    rig_shape(&rig, 2, 2, 128, SPEC_DTYPE_F16);
    rig_open(&rig);
    struct prompt prompt = rig_prompt(1, 0, 0, 300);
    fill(&rig, &prompt);
    struct got got = read_rows(&rig, &prompt, 0);
    assert_int_equal(got.matched, 300);
    assert_int_equal(got.exact, 0);
    rig_press(&rig);
    assert_int_equal(stats_of(&rig).coarsened_chunks, 2);
    got = read_rows(&rig, &prompt, 50000);
    assert_int_equal(got.status, SPEC_OK);
    assert_int_equal(got.exact, 0);
    rig_end(&rig, &prompt);
}

/* Who needs rows has a miss, computes them, and stores them in the place of codes. */
static void who_needs_rows_misses_and_brings_them_back(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = open_filled(&rig, LAYERED ", \"lease_ns_max\": 0", 300);
    rig_press(&rig);
    assert_int_equal(stats_of(&rig).coarse_only_chunks, 5);
    rig_close(&rig);
    rig.extra = LOSSLESS;
    rig_open(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 0);
    fill(&rig, &prompt);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 300);
    assert_int_equal(stats_of(&rig).coarse_only_chunks, 0);
    rig_close(&rig);
    rig.extra = LAYERED;
    rig_open(&rig);
    struct got got = read_rows(&rig, &prompt, 1000000);
    assert_int_equal(got.exact, 300);
    assert_int_equal(got.delivered.kind, SPEC_PROVENANCE_EXACT);
    rig_end(&rig, &prompt);
}

/* Rows behind what went are exact ones, and are computed on what is not. */
static struct spec_lookup_result look_from(struct rig *rig, const struct prompt *prompt,
                                           uint64_t from, uint32_t flags)
{
    struct spec_lookup_params params = rig_lookup_params(prompt, from, RIG_MAX, flags);
    struct spec_lookup_result result = rig_lookup_as(rig, &params);
    return result;
}

static void assert_stored(struct rig *rig, const struct prompt *prompt, uint32_t flags,
                          uint64_t expected)
{
    for (uint64_t from = 0; from <= prompt->count; from += 100) {
        struct spec_lookup_result result = look_from(rig, prompt, from, flags);
        assert_int_equal(result.stored_tokens, expected);
        rig_release(rig, result.request);
    }
}

/* Who needs rows is told how far there are rows, also where it holds those before the match. */
static void rows_that_went_are_not_told_as_stored_to_who_needs_them(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = open_front_gone(&rig, 3);
    assert_stored(&rig, &prompt, 0, 400);
    assert_stored(&rig, &prompt, SPEC_LOOKUP_REQUIRE_EXACT, 0);
    rig_close(&rig);
    rig.extra = LOSSLESS;
    rig_open(&rig);
    assert_stored(&rig, &prompt, 0, 0);
    assert_stored(&rig, &prompt, SPEC_LOOKUP_REQUIRE_EXACT, 0);
    struct spec_lookup_result result = look_from(&rig, &prompt, 300, 0);
    assert_int_equal(result.matched_tokens, 400); /* behind them there are rows */
    rig_release(&rig, result.request);
    result = look_from(&rig, &prompt, 300, SPEC_LOOKUP_REQUIRE_EXACT);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 0, 300)), SPEC_OK);
    rig_release(&rig, result.request);
    assert_stored(&rig, &prompt, 0, 300); /* what hung on codes alone went with them */
    assert_stored(&rig, &prompt, SPEC_LOOKUP_REQUIRE_EXACT, 300);
    rig_end(&rig, &prompt);
}

static void what_is_stored_on_codes_alone_is_lossy_and_has_rows(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt whole = open_front_gone(&rig, 3);
    struct got got = read_rows(&rig, &whole, 1000000);
    assert_int_equal(got.status, SPEC_OK);
    assert_int_equal(got.matched, 400);
    assert_int_equal(got.exact, 144);
    assert_int_equal(got.delivered.exact_ppm, 0); /* the worst over the match */
    assert_int_equal(got.found.computed_on, SPEC_PROVENANCE_LOSSY);
    got = read_rows(&rig, &whole, 0);
    assert_int_equal(got.exact, 0);
    assert_int_equal(lookup_exact(&rig, &whole), 0);
    rig_end(&rig, &whole);
}

/* Queries that are no numbers rank nothing; and rows that went are not asked for. */
static void queries_that_are_no_numbers_choose_rows_that_are_there(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt whole = open_front_gone(&rig, 3);
    assert_int_equal(stats_of(&rig).coarse_only_chunks, 4);
    struct spec_lookup_result result = rig_lookup(&rig, &whole);
    struct area area = rig_area(&rig, 400);
    uint64_t bits[ROWS_MAX / 64];
    float numbers[2 * 32];
    for (uint32_t i = 0; i < 2 * 32; i++)
        numbers[i] = NAN;
    struct spec_queries queries = query_behind(&whole, numbers);
    struct spec_select select = {
        .struct_size = sizeof(select), .given = SPEC_SELECT_EXACT, .exact_ppm = 200000};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = result.request,
                                  .queries = &queries,
                                  .destination = &area.memory,
                                  .exact_bits = bits,
                                  .exact_bit_words = ROWS_MAX / 64,
                                  .select = &select};
    spec_ticket ticket = rig_submit_whole(&rig, &item, 1);
    assert_int_equal(item.exact_rows, 80);
    item.refine_of = ticket;
    item.budget_bytes = 10 * 2 * rig_part_bytes(&rig);
    select.exact_ppm = 300000;
    assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_OK);
    assert_int_equal(item.exact_rows, 90);
    for (uint64_t w = 0; w < 256 / 64; w++)
        assert_int_equal(bits[w], 0);
    rig_area_free(&area);
    rig_release(&rig, result.request);
    assert_int_equal(read_rows(&rig, &whole, 1000000).exact, 144); /* nothing was dropped */
    rig_end(&rig, &whole);
}

/* What went is scored beside the rest, which takes its share of that; it has no averages itself. */
static void rows_that_went_have_no_averages(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt whole = open_front_gone(&rig, 3);
    assert_int_equal(stats_of(&rig).coarse_only_chunks, 4);
    struct spec_lookup_result result = rig_lookup(&rig, &whole);
    struct area area = rig_area(&rig, 400);
    float numbers[2 * 32] = {0}, scores[400], share = 0; /* every row is as important as another */
    struct spec_queries queries = query_behind(&whole, numbers);
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = result.request,
                                  .queries = &queries,
                                  .destination = &area.memory};
    assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_OK);
    assert_int_equal(item.exact_rows, 20);
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, result.request);
    assert_int_equal(sc_lab_averages_scores(rig.conn->lab.averages, request->ranges,
                                            request->range_count, 0, true, scores),
                     144);
    for (uint64_t row = 0; row < 400; row++) {
        assert_true(row >= 256 ? scores[row] > 0 : scores[row] == 0);
        share += scores[row];
    }
    assert_true(fabsf(share - 144 / 400.0f) < 1e-3f);
    rig_area_free(&area);
    rig_release(&rig, result.request);
    rig_end(&rig, &whole);
}

/* ---- Who keeps rows ------------------------------------------------------------------------- */

static void a_request_keeps_the_rows_that_it_was_promised(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = open_filled(&rig, LAYERED ", \"lease_ns_max\": 0", 200);
    struct prompt part = {100, prompt.tokens, prompt.history};
    const struct prompt *held[2] = {&prompt, &part}; /* its last run, and one above it */
    for (uint32_t i = 0; i < 2; i++) {
        struct spec_lookup_result result = rig_lookup(&rig, held[i]);
        rig_press(&rig);
        assert_int_equal(stats_of(&rig).coarsened_chunks, 0);
        for (uint32_t layer = 0; layer < 3; layer++) {
            struct area area = rig_area(&rig, held[i]->count);
            struct spec_select select = {
                .struct_size = sizeof(select), .given = SPEC_SELECT_EXACT, .exact_ppm = 1000000};
            struct spec_important item = {.struct_size = sizeof(item),
                                          .request = result.request,
                                          .layer = layer,
                                          .destination = &area.memory,
                                          .select = &select};
            assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_OK);
            assert_true(rig_area_is_right(&rig, &area, held[i], 0, held[i]->count, layer));
            rig_area_free(&area);
        }
        rig_release(&rig, result.request);
        fill(&rig, &prompt); /* of the second, what was evicted below the pinned run */
    }
    rig_press(&rig);
    assert_true(stats_of(&rig).coarsened_chunks > 0);
    rig_end(&rig, &prompt);
}

/* Another process attaches a lease that was given before: rows, for as long as it lasts. */
static void a_lease_reads_rows_to_its_end(void **state)
{
    (void)state;
    struct rig writer, readers[2];
    struct prompt prompt = open_filled(&writer, LAYERED ", \"lease_ns_max\": 1000000000", 200);
    struct spec_lookup_result found = rig_lookup(&writer, &prompt);
    rig_release(&writer, found.request);
    for (uint32_t i = 0; i < 2; i++) {
        rig_beside(&readers[i], &writer, SPEC_ROLE_READER, 0);
        readers[i].extra = i == 0 ? LOSSLESS ", \"lease_ns_max\": 1000000000"
                                  : LAYERED ", \"lease_ns_max\": 1000000000";
        rig_open(&readers[i]);
    }
    rig_pass_ns(&writer, 500000000);
    rig_press(&writer);
    assert_int_equal(stats_of(&writer).coarsened_chunks, 4);
    rig_pass_ns(&writer, 1000000);
    struct spec_lookup_result late = rig_lookup(&writer, &prompt); /* a promise of codes */
    rig_release(&writer, late.request);
    rig_pass_ns(&writer, 1000000); /* the device is one: what lookup began ends before it waits */
    for (uint32_t i = 0; i < 2; i++) {
        struct rig *reader = &readers[i];
        rig_pass_ns(reader, 500000000); /* it follows */
        assert_int_equal(stats_of(reader).coarse_only_chunks, 4);
        struct spec_lookup_result result = {.struct_size = sizeof(result)};
        struct spec_attach_params params = {.struct_size = sizeof(params),
                                            .lease = {found.lease, sizeof(found.lease)}};
        assert_int_equal(sc_plugin_attach(reader->conn, &params, &result, NULL), SPEC_OK);
        assert_int_equal(result.matched_tokens, 200);
        for (uint32_t layer = 0; layer < 3; layer++) {
            struct area area = rig_area(reader, 200);
            struct spec_select select = {.struct_size = sizeof(select),
                                         .given = i == 1 ? SPEC_SELECT_EXACT : 0,
                                         .exact_ppm = i == 1 ? 1000000 : 0};
            struct spec_important item = {.struct_size = sizeof(item),
                                          .request = result.request,
                                          .layer = layer,
                                          .destination = &area.memory,
                                          .select = &select};
            assert_int_equal(sc_plugin_get_important(reader->conn, &item, 1, NULL), SPEC_OK);
            assert_int_equal(item.exact_rows, 200);
            assert_true(rig_area_is_right(reader, &area, &prompt, 0, 200, layer));
            rig_area_free(&area);
        }
        rig_release(reader, result.request);
        assert_int_equal(rig_lookup(reader, &prompt).matched_tokens, i == 0 ? 0 : 200);
        result = (struct spec_lookup_result){.struct_size = sizeof(result)};
        params.lease.data = late.lease;
        struct spec_error error = {.struct_size = sizeof(error)};
        spec_status status = sc_plugin_attach(reader->conn, &params, &result, &error);
        assert_int_equal(status, i == 0 ? SPEC_E_STALE : SPEC_OK);
        if (i == 0)
            assert_non_null(strstr(error.text, "rows are not stored any more"));
        else
            assert_int_equal(result.provenance.held, SPEC_HELD_COARSE_ONLY);
        rig_leave(reader);
    }
    rig_end(&writer, &prompt);
}

/* A checkpoint syncs with the log's lock held, for ever: neither who holds the index' lock to find
 * an extent for eviction waits for that, nor a lookup, a load, an attach or the start of a pass. */
static void nobody_waits_for_a_log_that_syncs(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = open_filled(&rig, LAYERED ", \"lease_ns_max\": 1000000000", 200);
    struct prompt other = rig_prompt(2, 0, 0, 64);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    spec_ticket ticket;
    (void)alarm(600); /* instead of a test that hangs */
    pthread_mutex_lock(&rig.conn->store->log.lock);
    assert_int_equal(sc_store_coarse_find(rig.conn->store, 1).live_count, 4);
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    assert_int_equal(rig_attach(&rig, found.lease, 0, &result), SPEC_OK);
    assert_int_equal(result.matched_tokens, 200);
    rig_release(&rig, result.request);
    rig_release(&rig, found.request);
    result = rig_lookup(&rig, &other);
    assert_int_equal(rig_store_layer(&rig, result.request, &other, 0, 64, 0, &ticket), SPEC_OK);
    (void)rig_wait(&rig, ticket);
    assert_int_equal(sc_plugin_store_abort(rig.conn, result.request, 0, NULL), SPEC_OK);
    rig_release(&rig, result.request);
    pthread_mutex_unlock(&rig.conn->store->log.lock);
    (void)alarm(0);
    assert_int_equal(read_rows(&rig, &prompt, 1000000).matched, 200);
    rig_end(&rig, &other, &prompt);
}

/* Who reads rows on a promise that is over finds others in their place. It has not heard yet that
 * they went; the writer knows, and keeps the codes, which nobody found wrong. */
static void rows_that_a_late_reader_misses_cost_no_codes(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = open_filled(&writer, LAYERED ", \"lease_ns_max\": 1000000000", 200);
    struct prompt other = rig_prompt(2, 0, 0, 500);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    struct spec_lookup_result found = rig_lookup(&reader, &prompt);
    assert_int_equal(found.matched_tokens, 200);
    rig_pass_ns(&reader, 1000000); /* the device is one: what lookup began ends first */
    rig_press(&writer);
    rig_pass_ns(&writer, 2000000000);
    fill(&writer, &other); /* over the pages of the rows */
    assert_int_equal(stats_of(&writer).coarse_only_chunks, 4);
    struct area area = rig_area(&reader, 200);
    struct spec_select select = {
        .struct_size = sizeof(select), .given = SPEC_SELECT_EXACT, .exact_ppm = 1000000};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = found.request,
                                  .destination = &area.memory,
                                  .select = &select};
    assert_int_equal(sc_plugin_get_important(reader.conn, &item, 1, NULL), SPEC_E_CORRUPT);
    rig_area_free(&area);
    rig_release(&reader, found.request);
    rig_pass_ns(&reader, 100000000); /* it says so, and follows */
    rig_pass_ns(&writer, 100000000);
    assert_int_equal(read_rows(&writer, &prompt, 0).matched, 200);
    assert_int_equal(stats_of(&writer).coarse_only_chunks, 4);
    rig_reopen(&reader);
    assert_int_equal(read_rows(&reader, &prompt, 0).matched, 200);
    rig_leave(&reader);
    rig_end(&writer, &other, &prompt);
}

/* But codes that it finds damaged are void to all. */
static void codes_that_a_reader_finds_damaged_go(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = open_filled(&writer, LAYERED ", \"lease_ns_max\": 1000000000", 192);
    rig_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    rig_press(&writer);
    rig_open(&reader);
    damage_codes(&writer, &prompt, 1, 1);
    assert_int_equal(read_rows(&reader, &prompt, 0).status, SPEC_E_CORRUPT);
    rig_pass_ns(&reader, 100000000);
    rig_pass_ns(&writer, 100000000);
    rig_background(&writer);
    assert_int_equal(read_rows(&writer, &prompt, 0).matched, 64);
    assert_int_equal(stats_of(&writer).coarse_only_chunks, 1);
    rig_leave(&reader);
    rig_end(&writer, &prompt);
}

/* What another rank has as codes alone is a miss to who needs rows, and said to who does not. */
static void another_rank_may_have_codes_alone(void **state)
{
    (void)state;
    struct rig rigs[2];
    struct prompt prompt = rig_prompt(1, 0, 0, 200);
    rig_init(&rigs[0], true, LAYERED ", \"lease_ns_max\": 1000000000");
    rig_shape(&rigs[0], 3, 2, 32, SPEC_DTYPE_F16);
    rigs[0].rank_count = 2;
    rig_beside(&rigs[1], &rigs[0], SPEC_ROLE_WRITER, 1);
    for (uint32_t i = 0; i < 2; i++)
        rig_open(&rigs[i]);
    for (uint32_t i = 0; i < 2; i++) {
        rig_store_all(&rigs[i], &prompt, 200);
        rig_wait_for_codes(&rigs[i]);
    }
    rig_press(&rigs[1]);
    assert_int_equal(stats_of(&rigs[1]).coarse_only_chunks, 4);
    for (uint32_t opened = 0; opened < 3; opened++) { /* followed; at open; at open, for rows */
        rig_pass_ns(&rigs[0], 30000000);
        struct spec_lookup_result found = rig_lookup(&rigs[0], &prompt);
        assert_int_equal(found.matched_tokens, opened < 2 ? 200 : 0);
        if (opened < 2) {
            assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_LOSSY);
            assert_int_equal(found.provenance.held, SPEC_HELD_COARSE_ONLY);
            assert_int_equal(found.provenance.bits_k, 4);
        }
        rig_release(&rigs[0], found.request);
        assert_int_equal(lookup_exact(&rigs[0], &prompt), 0);
        rig_close(&rigs[0]);
        if (opened == 1)
            rigs[0].extra = LOSSLESS ", \"lease_ns_max\": 1000000000";
        rig_open(&rigs[0]);
    }
    rig_leave(&rigs[1]);
    rig_end(&rigs[0], &prompt);
}

/* ---- Damage --------------------------------------------------------------------------------- */

static void damaged_codes_without_rows_are_a_failed_range(void **state)
{
    (void)state;
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        struct rig rig;
        struct prompt prompt = open_filled(&rig, LAYERED ", \"lease_ns_max\": 0", 192);
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        rig_release(&rig, result.request);
        rig_press(&rig);
        assert_int_equal(stats_of(&rig).coarse_only_chunks, 3);
        damage_codes(&rig, &prompt, chunk, 1);
        struct got got = read_rows(&rig, &prompt, 50000);
        assert_int_equal(got.status, SPEC_E_CORRUPT);
        rig_background(&rig);
        got = read_rows(&rig, &prompt, 50000);
        assert_int_equal(got.status, SPEC_OK);
        assert_int_equal(got.matched, chunk * 64);
        rig_reopen(&rig);
        assert_int_equal(read_rows(&rig, &prompt, 50000).matched, chunk * 64);
        rig_end(&rig, &prompt);
    }
}

/* The extent of five chunks kept its rows, so the leaf went; those that are left gave them up. */
static void assert_rest_was_given(struct rig *rig, const struct prompt *prompt)
{
    if (stats_of(rig).coarsened_chunks == 0)
        rig_press(rig); /* the leaf was room enough */
    assert_int_equal(stats_of(rig).coarsened_chunks, 4);
    assert_int_equal(stats_of(rig).evicted_chunks, 1);
    struct got got = read_rows(rig, prompt, 0);
    assert_int_equal(got.status, SPEC_OK);
    assert_int_equal(got.matched, 256);
}

/* Damaged codes of one piece keep the rows of its extent, for as long as that piece is there. */
static void rows_go_when_the_piece_that_kept_them_has_gone(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = open_filled(&rig, LAYERED ", \"lease_ns_max\": 0", 320);
    damage_codes(&rig, &prompt, 4, 1);
    rig_press(&rig);
    assert_rest_was_given(&rig, &prompt);
    rig_end(&rig, &prompt);
}

/* Codes that could not be looked at, for once, say nothing about the extent. */
static void codes_that_could_not_be_looked_at_are_looked_at_again(void **state)
{
    (void)state;
    static const enum sc_fault_kind KINDS[] = {SC_FAULT_ALLOC, SC_FAULT_READ};
    for (uint32_t kind = 0; kind < 2; kind++)
        for (int64_t n = 0; n < 3; n++) { /* layers */
            struct rig rig;
            struct prompt prompt = open_filled(&rig, LAYERED ", \"lease_ns_max\": 0", 320);
            sc_fault_arm(&rig.conn->fault, KINDS[kind], n);
            rig_press(&rig);
            assert_int_equal(atomic_load(&rig.conn->fault.fired[KINDS[kind]]), 1);
            sc_fault_arm(&rig.conn->fault, KINDS[kind], INT64_MAX);
            assert_rest_was_given(&rig, &prompt);
            rig_end(&rig, &prompt);
        }
}

/* What cannot be read is void; codes alone that stand before it are not. */
static void a_read_that_fails_behind_codes_alone_leaves_them(void **state)
{
    (void)state;
    uint64_t codes_failed = 0, rows_failed = 0;
    for (uint64_t n = 0; n < 8; n++) {
        struct rig rig;
        struct prompt whole = open_front_gone(&rig, 1);
        sc_io_sim_fault_scope(rig.disk, "/seg-");
        sc_io_sim_fault_nth(rig.disk, SC_SIM_READ_EIO, n);
        struct got got = read_rows(&rig, &whole, 0);
        uint64_t fired = sc_io_sim_fault_fired(rig.disk, SC_SIM_READ_EIO);
        sc_io_sim_fault_nth(rig.disk, SC_SIM_READ_EIO, UINT64_MAX);
        assert_int_equal(got.status, fired > 0 ? SPEC_E_IO : SPEC_OK);
        rig_background(&rig);
        got = read_rows(&rig, &whole, 0);
        assert_int_equal(got.status, SPEC_OK);
        codes_failed += got.matched == 0;
        rows_failed += got.matched == 256;
        assert_true(got.matched == (fired == 0 ? 400 : got.matched == 0 ? 0 : 256));
        rig_end(&rig, &whole);
    }
    assert_true(codes_failed > 0);
    assert_true(rows_failed > 0);
}

/* Rows behind codes alone fail to one request. Another that had them promised hears of the same
 * range, and codes before it stay. */
static void rows_that_fail_behind_codes_alone_fail_to_all(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt whole = open_front_gone(&rig, 3);
    static const char PATH[] = "/sim/store/rank-0000-of-0001/seg-00000000";
    static uint8_t row[512], bytes[512];
    assert_int_equal(stats_of(&rig).coarse_only_chunks, 4);
    struct spec_lookup_result others = rig_lookup(&rig, &whole);
    assert_int_equal(others.matched_tokens, 400);
    rig_row(&rig, &whole, 300, 0, 0, row);
    uint64_t at = 0, flipped = 0, count = rig_part_bytes(&rig);
    for (; flipped == 0 && sc_io_sim_disk_peek(rig.disk, PATH, at, bytes, count); at += 8)
        if (memcmp(bytes, row, count) == 0) {
            bytes[7] ^= 1;
            assert_true(sc_io_sim_disk_poke(rig.disk, PATH, at, bytes, count));
            flipped++;
        }
    assert_int_equal(flipped, 1);
    assert_int_equal(read_rows(&rig, &whole, 1000000).status, SPEC_E_CORRUPT);
    rig_background(&rig);
    struct area area = rig_area(&rig, 400);
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = others.request,
                                  .layer = 2, /* lookup began the codes of 0 and 1 before */
                                  .destination = &area.memory};
    struct spec_select select = {.struct_size = sizeof(select), .given = SPEC_SELECT_EXACT};
    item.select = &select;
    assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_E_CORRUPT);
    assert_int_equal(item.failed_position, 256);
    rig_area_free(&area);
    rig_release(&rig, others.request);
    rig_background(&rig);
    struct got got = read_rows(&rig, &whole, 1000000);
    assert_int_equal(got.status, SPEC_OK);
    assert_int_equal(got.matched, 256);
    assert_int_equal(stats_of(&rig).coarse_only_chunks, 4);
    rig_end(&rig, &whole);
}

/* ---- The order ------------------------------------------------------------------------------ */

struct kept {
    uint64_t coarse, exact, coarsened, evicted; /* tokens; chunks */
};

/* Far more than fits is stored; what is there is right, and bounds hold. */
static struct kept kept_under_pressure(const char *extra)
{
    struct rig rig;
    struct kept kept = {0};
    rig_init(&rig, true, extra);
    rig_shape(&rig, 3, 2, 128, SPEC_DTYPE_F16); /* a token: 3 KiB */
    rig_open(&rig);
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct prompt prompt = rig_prompt(seed, 0, 0, 150);
        spec_status status = rig_fill(&rig, &prompt);
        assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE);
        rig_wait_for_codes(&rig);
        rig_background(&rig);
        rig_prompt_free(&prompt);
        if (stats_of(&rig).evicted_chunks == 0)
            kept.coarsened = stats_of(&rig).coarsened_chunks; /* before any node went */
        struct sc_store_stats store = rig_store_stats(&rig);
        assert_true(store.disk_bytes_used <= store.disk_bytes_max);
        rig_check_index(&rig);
    }
    kept.evicted = stats_of(&rig).evicted_chunks;
    for (uint32_t opened = 0; opened < 2; opened++) {
        kept.coarse = kept.exact = 0;
        for (uint64_t seed = 0; seed < 40; seed++) {
            struct prompt prompt = rig_prompt(seed, 0, 0, 150);
            struct got got = read_rows(&rig, &prompt, 1000000);
            assert_int_equal(got.status, SPEC_OK);
            kept.exact += got.exact;
            kept.coarse += got.matched - got.exact;
            rig_prompt_free(&prompt);
        }
        rig_reopen(&rig);
    }
    rig_done(&rig);
    return kept;
}

static void rows_go_before_nodes_under_pressure(void **state)
{
    (void)state;
    struct kept with = kept_under_pressure(LAYERED ", " SMALL);
    struct kept without = kept_under_pressure("\"preset\": \"layered-even\", " SMALL);
    print_message(
        "of 6,000 tokens %lu are there, %lu of them with rows; %lu when rows and codes go "
        "together\n",
        with.coarse + with.exact, with.exact, without.exact);
    assert_true(with.coarsened >= 3 * 3 && with.evicted > 0);
    assert_true(with.coarse > 0 && with.exact > 0);
    assert_int_equal(without.coarse, 0);
    assert_true(with.coarse + with.exact > 2 * without.exact); /* codes are a fifth of it */
}

/* Of a conversation whose turns are extents of their own, all rows go before its end does; a
 * beginning that others share keeps them. */
static void a_conversation_gives_its_rows_up_before_its_end_goes(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt whole = rig_prompt(1, 128, 0, 400);
    struct prompt other = rig_prompt(1, 128, 5, 200);
    rig_begin_shape(&rig, true, LAYERED ", \"lease_ns_max\": 0", 3, 2, 128, SPEC_DTYPE_F16);
    for (uint64_t end = 128; end <= 400; end += 136) {
        struct prompt turn = {end, whole.tokens, whole.history};
        fill(&rig, &turn);
    }
    fill(&rig, &other);
    static const uint64_t COARSE[] = {3, 6, 8}; /* 264..400, 128..264, then the other's 128..200 */
    for (uint32_t i = 0; i < 2; i++) {
        rig_press(&rig);
        uint64_t seen = stats_of(&rig).coarsened_chunks;
        assert_true(seen > 0 && seen <= COARSE[2]);
        assert_int_equal(stats_of(&rig).evicted_chunks, 0);
    }
    rig_press(&rig);
    assert_int_equal(stats_of(&rig).coarsened_chunks, COARSE[2]);
    assert_int_equal(stats_of(&rig).evicted_chunks, 0);
    struct prompt front = {128, whole.tokens, whole.history};
    assert_int_equal(read_rows(&rig, &front, 1000000).exact, 128);
    rig_press(&rig);
    assert_true(stats_of(&rig).evicted_chunks > 0);
    rig_end(&rig, &other, &whole);
}

/* Prompts of seeds 0 .. count, all of whose rows went, in this order of use, and of the first one
 * more. A new one of seed 100 is stored behind them. */
static struct prompt open_spent(struct rig *rig, uint64_t count)
{
    rig_begin_shape(rig, true, LAYERED ", \"lease_ns_max\": 0", 3, 2, 128, SPEC_DTYPE_F16);
    for (uint64_t seed = 0; seed < count; seed++) {
        struct prompt prompt = rig_prompt(seed, 0, 0, 150);
        fill(rig, &prompt);
        rig_prompt_free(&prompt);
    }
    while (stats_of(rig).evicted_chunks == 0)
        rig_press(rig);
    assert_int_equal(stats_of(rig).coarsened_chunks, 3 * count);
    struct prompt fresh = rig_prompt(100, 0, 0, 150);
    fill(rig, &fresh);
    return fresh;
}

static uint64_t tokens_kept(struct rig *rig, uint64_t seed)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, 150);
    struct spec_lookup_result result = rig_lookup(rig, &prompt);
    rig_release(rig, result.request);
    rig_prompt_free(&prompt);
    return result.matched_tokens;
}

/* Who holds what was stored just now, and finds no room, has what gave its rows up evicted. */
static void a_request_finds_room_behind_what_it_holds(void **state)
{
    (void)state;
    for (uint64_t held = 0; held < 2; held++) { /* what is new, or has no rows itself */
        struct rig rig;
        struct prompt fresh = open_spent(&rig, 5);
        struct prompt last = rig_prompt(4, 0, 0, 150);
        struct spec_lookup_result holds = rig_lookup(&rig, held == 0 ? &fresh : &last);
        assert_int_equal(holds.matched_tokens, 150);
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t before = stats_of(&rig).evicted_chunks + stats_of(&rig).coarsened_chunks;
            rig_press(&rig);
            assert_true(stats_of(&rig).evicted_chunks + stats_of(&rig).coarsened_chunks > before);
        }
        assert_true(stats_of(&rig).evicted_chunks > 3);
        rig_release(&rig, holds.request);
        assert_int_equal(tokens_kept(&rig, held == 0 ? 100 : 4), 150);
        rig_check_index(&rig);
        rig_end(&rig, &last, &fresh);
    }
}

/* A full index has room made by what was used longest ago, whatever has rows. */
static void a_full_index_keeps_what_was_stored_just_now(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt fresh = open_spent(&rig, 5);
    uint64_t before = stats_of(&rig).evicted_chunks;
    for (uint32_t i = 0; i < 8; i++) {
        sc_plugin_evict_ask_runs(rig.conn);
        rig_background(&rig);
        assert_true(stats_of(&rig).evicted_chunks > before + i);
    }
    assert_int_equal(tokens_kept(&rig, 100), 150);
    assert_int_equal(tokens_kept(&rig, 4), 150);
    assert_int_equal(tokens_kept(&rig, 1), 0);
    rig_end(&rig, &fresh);
}

/* What has no rows and is used stays longer than what was used before it, though much goes at
 * once. */
static void a_use_keeps_what_has_codes_alone(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt fresh = open_spent(&rig, 5);
    assert_int_equal(tokens_kept(&rig, 2), 150);
    rig_press(&rig); /* the new one's rows */
    uint64_t before = stats_of(&rig).evicted_chunks;
    while (stats_of(&rig).evicted_chunks < before + 6) {
        sc_plugin_evict_ask(rig.conn, NULL, 60);
        rig_background(&rig);
    }
    assert_true(stats_of(&rig).evicted_chunks < before + 11);
    assert_int_equal(tokens_kept(&rig, 100), 150);
    assert_int_equal(tokens_kept(&rig, 2), 150);
    assert_true(tokens_kept(&rig, 3) < 150);
    rig_end(&rig, &fresh);
}

/* A pass that would not fit with its codes though all else went finds no room, and costs nobody
 * anything. */
static void nothing_goes_for_what_never_fits(void **state)
{
    (void)state;
    static const uint64_t COUNT[] = {1200, 1400, 3000}; /* of 3 KiB; 4 MiB are there for all */
    struct rig rig;
    rig_begin_shape(&rig, true, LAYERED ", " SMALL, 3, 2, 128, SPEC_DTYPE_F16);
    struct prompt small = rig_prompt(1, 0, 0, 150);
    fill(&rig, &small);
    for (uint32_t i = 0; i < 3; i++) {
        struct prompt large = rig_prompt(2 + i, 0, 0, COUNT[i]);
        for (uint32_t again = 0; again < 3; again++) {
            assert_int_equal(rig_fill(&rig, &large), SPEC_E_NO_SPACE);
            rig_background(&rig);
        }
        assert_int_equal(stats_of(&rig).evicted_chunks + stats_of(&rig).coarsened_chunks, 0);
        rig_prompt_free(&large);
    }
    assert_int_equal(read_rows(&rig, &small, 1000000).exact, 150);
    struct prompt fits = rig_prompt(7, 0, 0, 400); /* when the other has gone */
    for (uint32_t i = 0; i < 3 && rig_fill(&rig, &fits) != SPEC_OK; i++)
        rig_background(&rig);
    rig_wait_for_codes(&rig);
    struct spec_lookup_result result = rig_lookup(&rig, &fits);
    assert_int_equal(result.matched_tokens, 400);
    rig_release(&rig, result.request);
    rig_end(&rig, &fits, &small);
}

static struct spec_lookup_result lookup_as(struct rig *rig, const struct prompt *prompt,
                                           uint64_t retain_s, int64_t priority)
{
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = prompt->tokens,
                                        .token_count = prompt->count,
                                        .max_tokens = prompt->count,
                                        .retain_s = retain_s,
                                        .priority = priority};
    struct spec_lookup_result result = rig_lookup_as(rig, &params);
    return result;
}

static struct spec_lookup_result lookup_randomly(struct rig *rig, const struct prompt *prompt,
                                                 uint64_t random)
{
    static const uint64_t RETAIN[] = {0, 0, 0, 1, 60};
    static const int64_t PRIORITY[] = {0, 0, 0, -1, 2};
    return lookup_as(rig, prompt, RETAIN[random % 5], PRIORITY[random / 8 % 5]);
}

/* Of a few conversations, of which three at a time begin alike, always of the same length. */
static struct prompt random_prompt(uint64_t random)
{
    uint64_t seed = random % 7, branch = random / 8 % 3;
    return rig_prompt(seed, 128, branch, 130 + (seed * 41 + branch * 17) % 120);
}

/* One of many things happens to a full disk. */
static void random_step(struct rig *rig, uint64_t random, spec_request held[4])
{
    struct prompt prompt = random_prompt(random / 16);
    uint64_t which = random % 16, at = random / 16 % 4;
    if (which < 7) {
        struct spec_lookup_result result = lookup_randomly(rig, &prompt, random / 32);
        uint64_t first = result.matched_tokens;
        if (first < prompt.count)
            (void)rig_wait(rig,
                           rig_store(rig, result.request, &prompt, first, prompt.count - first));
        rig_release(rig, result.request);
    } else if (which < 10) {
        if (held[at] != 0)
            rig_release(rig, held[at]);
        held[at] = random / 64 % 2 == 0 ? 0 : lookup_randomly(rig, &prompt, random / 32).request;
    } else if (which < 13) {
        assert_int_equal(read_rows(rig, &prompt, random / 16 % 2 * 1000000).status, SPEC_OK);
    } else if (which == 13) {
        sc_plugin_evict_ask(rig->conn, NULL, 1 + random / 16 % 200);
    } else if (which == 14) {
        sc_plugin_evict_ask_runs(rig->conn);
    } else if (random / 16 % 8 == 0) {
        assert_int_equal(sc_plugin_reset(rig->conn, NULL), SPEC_OK);
    } else {
        rig_pass_ns(rig, random / 16 % 3 * 1000000000);
    }
    rig_prompt_free(&prompt);
}

/* Whatever has happened and is held: rows and codes are right, and once nothing is held there is
 * room for more, for which all may go, and all that was kept for codes has been given back. */
static void no_order_of_things_leaves_a_disk_full(void **state)
{
    (void)state;
    uint64_t evicted = 0, coarsened = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct rig rig;
        spec_request held[4] = {0};
        rig_begin_shape(&rig, true, seed % 2 == 0 ? LAYERED ", " SMALL : LAYERED ", " LEASED, 3, 2,
                        128, SPEC_DTYPE_F16);
        uint64_t random = seed;
        for (uint32_t i = 0; i < 120; i++) {
            random = rig_mix(random + i);
            random_step(&rig, random, held);
            if (random >> 60 < 8)
                rig_background(&rig);
            struct sc_store_stats store = rig_store_stats(&rig);
            assert_true(store.disk_bytes_used <= store.disk_bytes_max);
        }
        for (uint32_t i = 0; i < 4; i++)
            if (held[i] != 0)
                rig_release(&rig, held[i]);
        struct prompt last = rig_prompt(99, 0, 0, 150);
        spec_status status = SPEC_E_NO_SPACE;
        for (uint32_t i = 0; i < 4 && status != SPEC_OK; i++) {
            struct spec_lookup_result result = lookup_as(&rig, &last, 1000, 0);
            status = rig_wait(&rig, rig_store(&rig, result.request, &last, 0, last.count));
            rig_release(&rig, result.request);
            rig_background(&rig);
            rig_pass_ns(&rig, 2500000000);
        }
        assert_int_equal(status, SPEC_OK);
        rig_wait_for_codes(&rig);
        assert_int_equal(rig.conn->store->disk.codes_due, 0);
        rig_check_index(&rig);
        evicted += stats_of(&rig).evicted_chunks;
        coarsened += stats_of(&rig).coarsened_chunks;
        rig_end(&rig, &last);
    }
    print_message("%lu chunks gave their rows up, %lu went\n", coarsened, evicted);
    assert_true(evicted > 100 && coarsened > 100);
}

/* Off by default, and nothing to a connector that delivers rows. */
static void rows_go_only_where_it_was_asked_for(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {
        "\"preset\": \"layered-even\", \"lease_ns_max\": 0",
        "\"preset\": \"as-like\", \"layered\": {\"codes\": \"yes\"}, \"store\": {\"coarse_only\": "
        "\"yes\"}, \"lease_ns_max\": 0",
    };
    for (uint32_t i = 0; i < 2; i++) {
        struct rig rig;
        struct prompt prompt = open_filled(&rig, EXTRA[i], 200);
        rig_press(&rig);
        assert_int_equal(stats_of(&rig).coarsened_chunks, 0);
        assert_true(stats_of(&rig).evicted_chunks > 0);
        rig_end(&rig, &prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_went_are_delivered_as_codes_and_it_is_said),
        cmocka_unit_test(what_is_loaded_from_the_back_ends_above_rows_that_went),
        cmocka_unit_test(codes_of_more_than_an_operation_are_read_in_several),
        cmocka_unit_test(codes_of_more_than_an_operation_need_no_rows),
        cmocka_unit_test(who_needs_rows_misses_and_brings_them_back),
        cmocka_unit_test(rows_that_went_are_not_told_as_stored_to_who_needs_them),
        cmocka_unit_test(what_is_stored_on_codes_alone_is_lossy_and_has_rows),
        cmocka_unit_test(queries_that_are_no_numbers_choose_rows_that_are_there),
        cmocka_unit_test(rows_that_went_have_no_averages),
        cmocka_unit_test(a_request_keeps_the_rows_that_it_was_promised),
        cmocka_unit_test(a_lease_reads_rows_to_its_end),
        cmocka_unit_test(nobody_waits_for_a_log_that_syncs),
        cmocka_unit_test(rows_that_a_late_reader_misses_cost_no_codes),
        cmocka_unit_test(codes_that_a_reader_finds_damaged_go),
        cmocka_unit_test(another_rank_may_have_codes_alone),
        cmocka_unit_test(damaged_codes_without_rows_are_a_failed_range),
        cmocka_unit_test(rows_go_when_the_piece_that_kept_them_has_gone),
        cmocka_unit_test(codes_that_could_not_be_looked_at_are_looked_at_again),
        cmocka_unit_test(a_read_that_fails_behind_codes_alone_leaves_them),
        cmocka_unit_test(rows_that_fail_behind_codes_alone_fail_to_all),
        cmocka_unit_test(rows_go_before_nodes_under_pressure),
        cmocka_unit_test(a_conversation_gives_its_rows_up_before_its_end_goes),
        cmocka_unit_test(a_request_finds_room_behind_what_it_holds),
        cmocka_unit_test(a_full_index_keeps_what_was_stored_just_now),
        cmocka_unit_test(a_use_keeps_what_has_codes_alone),
        cmocka_unit_test(nothing_goes_for_what_never_fits),
        cmocka_unit_test(no_order_of_things_leaves_a_disk_full),
        cmocka_unit_test(rows_go_only_where_it_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
