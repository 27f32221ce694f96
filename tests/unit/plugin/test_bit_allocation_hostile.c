/* Codes of free widths against models, tables and blocks that nobody should have: what is delivered
 * as exact is exact, whatever else is there; and nothing is read or written beside what is ours. */
#include "plugin/quant/quant.h"
#include "store/internal.h"
#include "store/rows/quant_blocks.h"
#include "store/rows/tag.h"
#include "store/log/where.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#include <math.h>

#define FREE                                                                                       \
    "\"preset\": \"layered-uniform\", \"lease_ns_max\": 0, \"layered\": {\"bit_allocation\": "     \
    "\"per_channel\"}"
#define FREE_WIDE                                                                                  \
    "\"preset\": \"layered-uniform\", \"lease_ns_max\": 0, "                                       \
    "\"layered\": {\"bit_allocation\": \"per_channel\", \"bits_k\": 5.5}"
#define ROWS_MAX 512u

static uint64_t g_queries; /* which channels they look at */

static uint64_t seed_of(uint64_t fallback)
{
    const char *text = getenv("SC_SEED");
    return text != NULL ? strtoull(text, NULL, 0) : fallback;
}

static uint64_t next(uint64_t *random)
{
    return *random = rig_mix(*random);
}

/* ---- Rows that were delivered --------------------------------------------------------------- */

struct got {
    uint64_t rows, exact, first;
    uint64_t bits[8][ROWS_MAX / 64];
    uint8_t *bytes; /* [layer][part][row] */
};

static const uint8_t *got_row(const struct rig *rig, const struct got *got, uint32_t layer,
                              uint32_t part, uint64_t position)
{
    uint64_t bytes = rig_part_bytes(rig);
    return got->bytes + ((2 * layer + part) * got->rows + position - got->first) * bytes;
}

static bool got_exact(const struct got *got, uint32_t layer, uint64_t position)
{
    uint64_t row = position - got->first;
    return (got->bits[layer][row / 64] >> (row % 64) & 1) != 0;
}

/* Every row that is said to be exact is. */
static struct got read_rows(struct rig *rig, const struct prompt *prompt, uint64_t from,
                            uint32_t exact_ppm)
{
    struct spec_lookup_result result;
    struct got got = {.first = from};
    uint64_t values = (uint64_t)rig->heads * rig->head_size;
    float *numbers = malloc(values * sizeof(*numbers));
    uint64_t bytes = rig_part_bytes(rig);
    uint8_t *expected = malloc(bytes);
    struct spec_select select = {
        .struct_size = sizeof(select), .given = SPEC_SELECT_EXACT, .exact_ppm = exact_ppm};
    assert_int_equal(rig_try_lookup(rig, prompt, from, RIG_MAX, &result), SPEC_OK);
    assert_true(result.matched_tokens > from && result.matched_tokens - from <= ROWS_MAX);
    got.rows = result.matched_tokens - from;
    got.bytes = malloc(rig->layers * 2 * got.rows * bytes);
    assert_true(got.bytes != NULL && numbers != NULL && expected != NULL && rig->layers <= 8);
    for (uint64_t i = 0; i < values; i++)
        numbers[i] = ((float)(rig_mix(i) % 17) / 8 - 1) *
                     (rig_mix(i / 8 + 1000 * g_queries) % 4 == 0 ? 100 : 1);
    const struct spec_queries queries = {.struct_size = sizeof(queries),
                                         .dtype = SPEC_DTYPE_F32,
                                         .data = numbers,
                                         .byte_count = values * sizeof(float),
                                         .row_count = 1,
                                         .row_stride_bytes = values * sizeof(float),
                                         .head_stride_bytes = rig->head_size * sizeof(float),
                                         .first_position = result.matched_tokens};
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        struct area area = rig_area(rig, got.rows);
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = result.request,
                                      .layer = layer,
                                      .queries = &queries,
                                      .destination = &area.memory,
                                      .exact_bits = got.bits[layer],
                                      .exact_bit_words = ROWS_MAX / 64,
                                      .select = &select};
        assert_int_equal(sc_plugin_begin_layer(rig->conn, &result.request, 1, layer, NULL),
                         SPEC_OK);
        assert_int_equal(sc_plugin_prefetch_next(rig->conn, result.request, layer, NULL, NULL),
                         SPEC_OK);
        struct spec_error error = {.struct_size = sizeof(error)};
        spec_status status = sc_plugin_get_important(rig->conn, &item, 1, &error);
        if (status != SPEC_OK)
            fail_msg("layer %u: %s", layer, error.text);
        assert_true(rig_is_poison(area.bytes, RIG_GUARD));
        got.exact += item.exact_rows;
        for (uint64_t j = 0; j < 2 * got.rows; j++) {
            uint64_t row = j / 2, part = j % 2;
            const uint8_t *at =
                (const uint8_t *)(part == 0 ? area.memory.k_base : area.memory.v_base) +
                row * bytes;
            memcpy(got.bytes + ((2 * layer + part) * got.rows + row) * bytes, at, bytes);
            if (!got_exact(&got, layer, from + row))
                continue;
            rig_row(rig, prompt, from + row, layer, (uint32_t)part, expected);
            assert_memory_equal(at, expected, bytes);
        }
        rig_area_free(&area);
    }
    free(expected);
    free(numbers);
    rig_release(rig, result.request);
    return got;
}

/* All values are numbers near those that were stored: they lie in (-2, 2), turned within sqrt 2 of
 * that. Returns rows that are codes' values. */
static uint64_t assert_near(const struct rig *rig, const struct got *got)
{
    uint64_t values = rig_part_bytes(rig) / sc_plugin_dtype_bytes(rig->dtype), inexact = 0;
    float *row = malloc(values * sizeof(*row));
    assert_non_null(row);
    for (uint32_t layer = 0; layer < rig->layers; layer++)
        for (uint64_t p = got->first; p < got->first + got->rows; p++) {
            if (got_exact(got, layer, p))
                continue;
            inexact++;
            for (uint32_t part = 0; part < 2; part++) {
                rig->conn->kernels->widen(row, got_row(rig, got, layer, part, p), values,
                                          sc_plugin_kernels_dtype(rig->dtype));
                for (uint64_t i = 0; i < values; i++)
                    assert_true(fabsf(row[i]) < 6);
            }
        }
    free(row);
    return inexact;
}

/* Rows that both have as codes' values are the same bytes. */
static void assert_same(const struct rig *rig, const struct got *a, const struct got *b)
{
    uint64_t first = a->first > b->first ? a->first : b->first;
    uint64_t a_end = a->first + a->rows, b_end = b->first + b->rows;
    for (uint32_t layer = 0; layer < rig->layers; layer++)
        for (uint64_t p = first; p < a_end && p < b_end; p++)
            for (uint32_t part = 0; part < 2; part++)
                if (got_exact(a, layer, p) == got_exact(b, layer, p))
                    assert_memory_equal(got_row(rig, a, layer, part, p),
                                        got_row(rig, b, layer, part, p), rig_part_bytes(rig));
}

/* ---- Models --------------------------------------------------------------------------------- */

struct shape {
    uint32_t heads, head_size, dtype;
    bool has_free; /* else its codes are even ones */
};

static void any_model_is_quantised_as_it_can_be(void **state)
{
    (void)state;
    static const struct shape SHAPES[] = {
        {2, 4, SPEC_DTYPE_F16, false},    {1, 24, SPEC_DTYPE_F16, false},
        {2, 264, SPEC_DTYPE_BF16, false}, {3, 5, SPEC_DTYPE_F16, false},
        {1, 2, SPEC_DTYPE_F32, false},    {2, 8, SPEC_DTYPE_F16, true},
        {1, 256, SPEC_DTYPE_BF16, true},  {2, 200, SPEC_DTYPE_F32, true},
        {4, 72, SPEC_DTYPE_F16, true},    {1, 16, SPEC_DTYPE_F32, true},
        {96, 8, SPEC_DTYPE_F16, true},    {2, 136, SPEC_DTYPE_BF16, true},
        {14, 40, SPEC_DTYPE_F16, true},   {6, 88, SPEC_DTYPE_F32, true}};
    static const char *const BITS[] = {"7", "7.5", "2.5", "2", "6.5", "8"};
    for (uint32_t s = 0; s < sizeof(SHAPES) / sizeof(SHAPES[0]); s++)
        for (uint32_t b = 0; b < sizeof(BITS) / sizeof(BITS[0]); b++) {
            struct rig rig;
            char extra[200];
            (void)snprintf(extra, sizeof(extra),
                           "\"preset\": \"layered-uniform\", \"lease_ns_max\": 0, \"layered\": "
                           "{\"bit_allocation\": "
                           "\"per_channel\", \"bits_k\": %s, \"bits_v\": %s}",
                           BITS[b], BITS[(b + s) % 6]);
            rig_init(&rig, true, extra);
            rig_shape(&rig, 2, SHAPES[s].heads, SHAPES[s].head_size, SHAPES[s].dtype);
            struct spec_model model = rig_model(&rig);
            model.rope_kind = s % 2 == 0 ? SPEC_ROPE_HALF : SPEC_ROPE_INTERLEAVED;
            model.rope_theta = 10000;
            assert_int_equal(rig_try_open_model(&rig, &model), SPEC_OK);
            struct prompt prompt = rig_prompt(s + 1, 0, 0, 150);
            assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
            rig_wait_for_quant(&rig);
            struct got first = read_rows(&rig, &prompt, 0, 50000);
            assert_int_not_equal(assert_near(&rig, &first), 0);
            assert_int_equal((rig.conn->quant->made.form & SC_STORE_FORM_K_PER_CHANNEL) != 0,
                             SHAPES[s].has_free);
            rig_close(&rig);
            assert_int_equal(rig_try_open_model(&rig, &model), SPEC_OK);
            struct got again = read_rows(&rig, &prompt, 0, 50000);
            assert_int_not_equal(assert_near(&rig, &again), 0);
            assert_same(&rig, &first, &again);
            struct got behind = read_rows(&rig, &prompt, 77, 50000);
            assert_same(&rig, &first, &behind);
            free(first.bytes);
            free(again.bytes);
            free(behind.bytes);
            rig_end(&rig, &prompt);
        }
}

static void any_rotary_parameters_are_turned_or_are_not(void **state)
{
    (void)state;
    static const double VALUES[] = {0, 1,         -1,  0.5, 1e308, -1e308, 5e-324, NAN, INFINITY,
                                    8, -INFINITY, 1e4, 32,  1e-9,  8192,   4,      1e6, 131072};
    const uint64_t count = sizeof(VALUES) / sizeof(VALUES[0]);
    uint64_t random = seed_of(1), turned = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        struct spec_model model = {.head_size = (uint32_t)(next(&random) % 40),
                                   .rope_kind = (uint32_t)(next(&random) % 3),
                                   .rope_theta = VALUES[next(&random) % count],
                                   .rope_scaling_kind = next(&random) % 4 > 0 ? "llama3" : NULL};
        for (uint32_t s = 0; s < 8; s++)
            model.rope_scaling[s] = VALUES[next(&random) % count];
        if (model.head_size == 0)
            continue;
        struct sc_alloc alloc;
        struct sc_plugin_rope turns;
        bool is_known;
        sc_alloc_init(&alloc);
        assert_int_equal(
            sc_plugin_rope_open(&turns, &alloc, &model, 1 + next(&random) % 3000, &is_known, NULL),
            SPEC_OK);
        uint64_t pairs = turns.rotary.turned / 2;
        for (uint64_t p = 0; p < pairs; p++)
            assert_true(turns.frequencies[p] >= 0 && turns.frequencies[p] <= 1);
        uint64_t at = turns.capacity > 0 ? next(&random) % turns.capacity : 0;
        const float *rows = pairs > 0 ? sc_plugin_rope_get(&turns, at, 1) : NULL;
        for (uint64_t p = 0; p < pairs; p++)
            assert_true(fabsf(rows[p] * rows[p] + rows[pairs + p] * rows[pairs + p] - 1) < 1e-5f);
        turned += pairs > 0;
        assert_null(sc_plugin_rope_get(&turns, turns.capacity, 1));
        sc_plugin_rope_close(&turns, &alloc);
        sc_alloc_done(&alloc);
    }
    assert_int_not_equal(turned, 0);
}

/* ---- Tables --------------------------------------------------------------------------------- */

static void any_bytes_are_a_table_or_are_none(void **state)
{
    (void)state;
    static const struct {
        uint64_t heads, size;
    } SHAPES[] = {{1, 16}, {2, 8}, {3, 80}, {2, 128}};
    uint64_t random = seed_of(2), tables_made = 0;
    for (uint32_t s = 0; s < 4; s++) {
        struct sc_alloc alloc;
        struct sc_plugin_tables tables;
        uint64_t channels = SHAPES[s].heads * SHAPES[s].size, made = 0;
        uint8_t *packed = malloc(channels / 2), *to = malloc(channels);
        assert_true(packed != NULL && to != NULL);
        sc_alloc_init(&alloc);
        assert_int_equal(
            sc_plugin_tables_open(&tables, &alloc, SHAPES[s].heads, SHAPES[s].size, 20, NULL),
            SPEC_OK);
        for (uint32_t i = 0; i < 20000; i++) {
            uint64_t bytes = 0, kind = next(&random) % 4;
            for (uint64_t c = 0; c < channels; c += 8) /* eights of a width: whole bytes */
                memset(to + c, (int)(next(&random) % (kind == 0 ? 16 : 9)), 8);
            for (uint64_t c = 0; c < channels; c++)
                bytes += to[c];
            sc_plugin_table_pack(to, channels, packed);
            if (kind == 1)
                packed[next(&random) % (channels / 2)] ^= (uint8_t)(1u << next(&random) % 8);
            bytes = kind == 2 ? next(&random) % 1000 : bytes / 8;
            const struct sc_plugin_table *table = sc_plugin_tables_add(&tables, packed, bytes);
            if (table == NULL)
                continue;
            made++;
            assert_ptr_equal(sc_plugin_tables_find(&tables, packed), table);
            assert_memory_equal(table->packed, packed, channels / 2);
            assert_int_equal(table->planes.row_bytes, bytes);
            for (uint64_t c = 0; c < channels; c++)
                assert_true(table->planes.to[c] <= 8);
        }
        assert_true(tables.count <= 21);
        tables_made += made;
        sc_plugin_tables_close(&tables, &alloc);
        sc_alloc_done(&alloc);
        free(packed);
        free(to);
    }
    assert_int_not_equal(tables_made, 0);
}

/* ---- No memory ------------------------------------------------------------------------------ */

static void without_memory_it_opens_or_says_so(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t refused = 0;
    rig_init(&rig, true, FREE);
    rig_shape(&rig, 3, 2, 32, SPEC_DTYPE_F16);
    struct spec_model model = rig_model(&rig);
    model.rope_kind = SPEC_ROPE_HALF;
    model.rope_theta = 10000;
    for (int64_t n = 0;; n++) {
        atomic_store(&rig.memory.countdown, n);
        uint64_t failed = atomic_load(&rig.memory.failed);
        spec_status status = rig_try_open_model(&rig, &model);
        atomic_store(&rig.memory.countdown, -1);
        bool has_failed = atomic_load(&rig.memory.failed) > failed;
        if (status == SPEC_OK)
            rig_close(&rig);
        assert_true(status == SPEC_OK || (has_failed && status == SPEC_E_NO_MEMORY));
        assert_int_equal(atomic_load(&rig.memory.live_blocks), 0);
        refused += status != SPEC_OK;
        if (!has_failed)
            break;
    }
    assert_true(refused > 10);
    rig_done(&rig);
}

/* ---- Blocks --------------------------------------------------------------------------------- */

static uint8_t block[128 << 10];

/* The bytes of a block where they lie; the block's own checksum is made again when it is put. */
struct place {
    char path[96];
    uint64_t at, bytes;
    struct sc_store_blocks blocks;
    const struct sc_store_section *derived_section;
    uint32_t layer, part;
};

static bool place_find(const struct rig *rig, uint64_t id, uint32_t layer, uint32_t part,
                       struct place *ret_place)
{
    const struct sc_store *store = rig->conn->store;
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    if (piece == NULL || piece->extent == 0)
        return false;
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    const struct sc_store_section *derived_section =
        extent != NULL ? atomic_load(&extent->codes) : NULL;
    if (derived_section == NULL)
        return false;
    struct place place = {.derived_section = derived_section, .layer = layer, .part = part};
    sc_store_quant_blocks(store, extent, derived_section->copy, &derived_section->codec_shape,
                          piece, &place.blocks);
    struct sc_store_where where = sc_store_layer_where(
        derived_section->parts, derived_section->part_count, derived_section->stride, layer);
    bool is_k = part == SC_STORE_PART_K;
    place.at = where.offset + (is_k ? place.blocks.k_at : place.blocks.v_at);
    place.bytes = is_k ? place.blocks.k_bytes : place.blocks.v_bytes;
    (void)snprintf(place.path, sizeof(place.path), "/sim/store/rank-0000-of-0001/seg-%08x",
                   where.segment);
    *ret_place = place;
    return place.bytes <= sizeof(block);
}

static void place_get(const struct rig *rig, const struct place *place)
{
    assert_true(sc_io_sim_disk_peek(rig->disk, place->path, place->at, block, place->bytes));
}

static void place_put(const struct rig *rig, const struct place *place)
{
    const struct sc_store *store = rig->conn->store;
    const struct sc_store_tag_rows one = {
        .base = sc_store_tag_base(
            store->shape.digest, place->blocks.piece_hash, place->blocks.copy, place->layer,
            place->part == SC_STORE_PART_K ? SC_STORE_PART_K_QUANT : SC_STORE_PART_V_QUANT),
        .position_first = place->blocks.position,
        .row_bytes = place->bytes - 8,
        .count = 1};
    uint64_t sum;
    sc_store_tag_make(&one, block, &sum);
    memcpy(block + place->bytes - 8, &sum, 8);
    assert_true(sc_io_sim_disk_poke(rig->disk, place->path, place->at, block, place->bytes));
}

static void damage(const struct place *place, uint64_t *random)
{
    bool is_k = place->part == SC_STORE_PART_K;
    uint64_t table = sc_store_quant_table_bytes(&place->derived_section->codec_shape, is_k), left;
    uint64_t scales = place->derived_section->codec_shape.scale_bytes;
    switch (next(random) % 6) {
    case 0: /* any widths */
        for (uint64_t i = 0; i < table; i++)
            block[8 + i] = (uint8_t)next(random);
        break;
    case 1: /* widths of others, of as many bytes, and of one more or less */
        left = table > 0 ? next(random) % (table / 4) : 0;
        for (uint64_t i = 0; i < 4; i++) {
            uint8_t kept = block[8 + i];
            block[8 + i] = block[8 + 4 * left + i];
            block[8 + 4 * left + i] = kept;
        }
        if (next(random) % 2 == 0)
            memset(block + 8, (int)(0x11 * (next(random) % 9)), 4);
        break;
    case 2: /* infinities, NaN */
        for (uint64_t i = 0; i < scales; i += 2)
            memcpy(block + 8 + table + i, (uint8_t[]){(uint8_t)next(random), 0x7c}, 2);
        break;
    case 3:
        block[next(random) % 8] ^= (uint8_t)(1u << next(random) % 8);
        break;
    case 4:
        for (uint64_t i = 8 + table; i < place->bytes - 8; i++)
            block[i] = (uint8_t)next(random);
        break;
    default:
        block[next(random) % place->bytes] ^= (uint8_t)(1u << next(random) % 8);
    }
}

static const char *const KINDS[] = {
    FREE,
    "\"preset\": \"layered-uniform\", \"lease_ns_max\": 0, \"layered\": {\"bit_allocation\": "
    "\"per_channel\", "
    "\"bits_k\": "
    "2.5, \"bits_v\": 3.5}",
    "\"preset\": \"layered-uniform\", \"lease_ns_max\": 0, \"store\": {\"layout\": \"split\"}, "
    "\"layered\": "
    "{\"bit_allocation\": \"per_channel\", \"bits_k\": 7, \"bits_v\": 7}",
    "\"preset\": \"layered-uniform\", \"lease_ns_max\": 0, \"chunk_tokens\": 16, \"host_bytes\": "
    "\"1MiB\", "
    "\"layered\": {\"bit_allocation\": \"per_channel\", \"bits_v\": 4.5}",
    "\"preset\": \"layered-uniform\", \"lease_ns_max\": 0, \"chunk_tokens\": 256, \"layered\": "
    "{\"bit_allocation\": "
    "\"per_channel\", \"bits_k\": 8, \"bits_v\": 2}"};

/* Of a store whose secret is known: damage that no checksum finds. */
static void blocks_of_any_bytes_are_decoded_or_are_not(void **state)
{
    (void)state;
    static const uint32_t HEAD_SIZES[] = {80, 16, 128, 8, 200};
    static const uint32_t DTYPES[] = {SPEC_DTYPE_F16, SPEC_DTYPE_BF16, SPEC_DTYPE_F32};
    uint64_t random = seed_of(3), inexact = 0, changed = 0;
    for (uint32_t round = 0; round < 20; round++) {
        struct rig rig;
        rig_init(&rig, true, KINDS[round % 5]);
        rig_shape(&rig, 2, 2, HEAD_SIZES[next(&random) % 5], DTYPES[next(&random) % 3]);
        struct spec_model model = rig_model(&rig);
        model.rope_kind = (uint32_t)(next(&random) % 3);
        model.rope_theta = 500000;
        assert_int_equal(rig_try_open_model(&rig, &model), SPEC_OK);
        struct prompt prompt = rig_prompt(round + 1, 0, 0, 300);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        rig_wait_for_quant(&rig);
        for (uint32_t i = 0; i < 16; i++) {
            struct place place;
            for (uint64_t id = 1; id < 20; id++)
                if (next(&random) % 2 == 0 &&
                    place_find(&rig, id, (uint32_t)(next(&random) % 2),
                               next(&random) % 2 == 0 ? SC_STORE_PART_K : SC_STORE_PART_V,
                               &place)) {
                    place_get(&rig, &place);
                    damage(&place, &random);
                    place_put(&rig, &place);
                    changed++;
                }
            uint64_t from = next(&random) % 3 == 0 ? 0 : next(&random) % 290;
            struct got got = read_rows(&rig, &prompt, from, (uint32_t)(next(&random) % 3 * 100000));
            inexact += got.rows * 2 - got.exact;
            free(got.bytes);
        }
        rig_end(&rig, &prompt);
    }
    assert_true(inexact > 0 && changed > 0);
}

/* ---- No room for tables --------------------------------------------------------------------- */

/* Tables until no more fit; others' until no more of theirs do. */
static void tables_fill(struct rig *rig, uint64_t row_bytes, bool are_others)
{
    struct sc_plugin_tables *tables = &rig->conn->quant->tables;
    uint64_t channels = tables->head_count * tables->head_size, random = 9;
    uint8_t to[1024], packed[512];
    assert_true(channels <= sizeof(to));
    while (are_others ? tables->others < tables->others_most : tables->count < tables->capacity) {
        uint64_t left = row_bytes;
        memset(to, 0, channels);
        while (left > 0) {
            uint64_t c = next(&random) % (channels / 8) * 8;
            if (to[c] == 8)
                continue;
            for (uint64_t i = 0; i < 8; i++)
                to[c + i]++;
            left--;
        }
        sc_plugin_table_pack(to, channels, packed);
        if (are_others)
            (void)sc_plugin_tables_add_other(tables, packed, row_bytes);
        else
            (void)sc_plugin_tables_add(tables, packed, row_bytes);
    }
}

static void open_quantised(struct rig *rig, const struct prompt *prompt)
{
    rig_begin_shape(rig, true, FREE, 3, 2, 32, SPEC_DTYPE_F16);
    assert_int_equal(rig_fill(rig, prompt), SPEC_OK);
    rig_wait_for_quant(rig);
}

/* Coded by other widths from now on, so that the log's note of tables is of no use to it: those
 * that are stored are another's. */
static void reopen_untaught(struct rig *rig, const char *extra)
{
    rig->extra = extra;
    rig_reopen(rig);
}

static void without_room_for_tables_rows_are_exact(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 300), other = rig_prompt(2, 0, 0, 300);
    open_quantised(&rig, &prompt);
    struct got quantised = read_rows(&rig, &prompt, 0, 50000);
    assert_int_not_equal(assert_near(&rig, &quantised), 0);
    tables_fill(&rig, rig.conn->quant->made.k_row_bytes, false);
    struct got again = read_rows(&rig, &prompt, 0, 50000);
    assert_same(&rig, &quantised, &again);
    assert_int_equal(quantised.exact, again.exact);
    reopen_untaught(&rig, FREE_WIDE); /* what it made is nobody's now */
    tables_fill(&rig, rig.conn->quant->made.k_row_bytes, false);
    struct got none = read_rows(&rig, &prompt, 0, 50000);
    assert_int_equal(none.exact, 3 * none.rows);
    assert_int_equal(rig_fill(&rig, &other), SPEC_OK);
    rig_wait_for_quant(&rig);
    struct got others = read_rows(&rig, &other, 0, 50000);
    assert_int_equal(others.exact, 3 * others.rows);
    free(quantised.bytes);
    free(again.bytes);
    free(none.bytes);
    free(others.bytes);
    rig_end(&rig, &prompt, &other);
}

/* Else a process that has read what many others stored could code nothing itself. */
static void tables_of_others_leave_room_for_our_own(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 0, 0, 300), other = rig_prompt(2, 0, 0, 300);
    open_quantised(&rig, &prompt);
    reopen_untaught(&rig, FREE_WIDE);
    tables_fill(&rig, rig.conn->quant->made.k_row_bytes, true);
    struct got none = read_rows(&rig, &prompt, 0, 50000);
    assert_int_equal(none.exact, 3 * none.rows);
    assert_int_equal(rig_fill(&rig, &other), SPEC_OK);
    rig_wait_for_quant(&rig);
    struct got own = read_rows(&rig, &other, 0, 50000);
    assert_true(own.exact < own.rows);
    assert_int_equal(assert_near(&rig, &own), 3 * own.rows - own.exact);
    free(none.bytes);
    free(own.bytes);
    rig_end(&rig, &prompt, &other);
}

#define LEASED(bits)                                                                               \
    "\"preset\": \"layered-uniform\", \"lease_ns_max\": 1000000000, "                              \
    "\"layered\": {\"bit_allocation\": \"per_channel\", \"bits_k\": " bits "}"

/* ---- Several processes ----------------------------------------------------------------------- */

/* A reader beside a writer that goes on to other tables delivers what the writer does. */
static void a_reader_follows_tables_as_they_come(void **state)
{
    (void)state;
    struct rig writer, reader;
    uint64_t inexact = 0, tables = 0;
    rig_begin_shape(&writer, true, LEASED("3"), 2, 2, 32, SPEC_DTYPE_BF16);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    for (uint64_t i = 0; i < 24; i++) {
        struct prompt prompt = rig_prompt(i + 1, 0, 0, 100 + 13 * i);
        g_queries = i / 4;
        assert_int_equal(rig_fill(&writer, &prompt), SPEC_OK);
        rig_wait_for_quant(&writer);
        rig_pass_ns(&reader, 60000000);
        struct got theirs = read_rows(&writer, &prompt, 0, 50000);
        struct got ours = read_rows(&reader, &prompt, 0, 50000);
        assert_int_equal(theirs.rows, ours.rows);
        assert_int_equal(theirs.exact, ours.exact);
        assert_same(&writer, &theirs, &ours);
        inexact += assert_near(&reader, &ours);
        free(theirs.bytes);
        free(ours.bytes);
        rig_prompt_free(&prompt);
    }
    for (uint32_t layer = 0; layer < 2; layer++)
        tables += writer.conn->quant->learning.learnt[2 * layer].tables;
    assert_true(inexact > 0 && tables > 2);
    g_queries = 0;
    rig_leave(&reader);
    rig_done(&writer);
}

/* ---- What is said of turns, and of queries -------------------------------------------------- */

static void turned_codes_where_there_are_no_turns_are_not_read(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, FREE ", \"max_request_tokens\": 1000");
    rig_shape(&rig, 1, 2, 32, SPEC_DTYPE_F16);
    struct spec_model model = rig_model(&rig);
    model.rope_kind = SPEC_ROPE_HALF;
    model.rope_theta = 10000;
    assert_int_equal(rig_try_open_model(&rig, &model), SPEC_OK);
    const struct sc_store_quant codes = sc_plugin_quant_params(rig.conn);
    uint64_t capacity = rig.conn->quant->rope.capacity;
    uint8_t table[32];
    memset(table, 0x44, sizeof(table));
    assert_true((codes.shape.form & SC_STORE_FORM_K_TURNED) != 0);
    assert_true(capacity >= 1000 + SC_KERNELS_CODEC_ROWS_MAX); /* a chunk that begins below */
    static const uint64_t ROWS[] = {1, 63, 64, 256};
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t rows = ROWS[i];
        const uint64_t behind[] = {capacity - rows + 1, capacity,          capacity + 1,
                                   UINT64_C(1) << 40,   UINT64_MAX - rows, UINT64_MAX};
        assert_true(
            codes.reads(codes.user, SC_STORE_PART_K, &codes.shape, table, capacity - rows, rows));
        for (uint32_t b = 0; b < 6; b++)
            assert_false(
                codes.reads(codes.user, SC_STORE_PART_K, &codes.shape, table, behind[b], rows));
    }
    rig_done(&rig);
}

static void queries_of_nearly_nothing_teach_nothing(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct sc_plugin_tables tables;
    sc_alloc_init(&alloc);
    assert_int_equal(sc_plugin_tables_open(&tables, &alloc, 1, 16, 20, NULL), SPEC_OK);
    struct sc_plugin_learning learning = {.kernels = sc_kernels_get(sc_kernels_level_best()),
                                          .tables = &tables,
                                          .head_count = 1,
                                          .head_size = 16,
                                          .layer_count = 1,
                                          .query_group = 1,
                                          .row_bytes = {4, 0}};
    assert_int_equal(sc_plugin_learning_open(&learning, &alloc, NULL), SPEC_OK);
    uint8_t spans[32] = {0};
    float numbers[16] = {0};
    for (uint32_t c = 0; c < 8; c++) { /* 1, and nothing */
        spans[2 * c + 1] = 0x3c;
        numbers[c] = 1e-21f; /* its square is a subnormal number */
    }
    const struct sc_plugin_table *first = sc_plugin_calibrate_first(&learning, 0, 0, spans);
    assert_non_null(first);
    const struct sc_kernels_queries queries = {.data = (const uint8_t *)numbers,
                                               .dtype = SC_KERNELS_F32,
                                               .row_count = 1,
                                               .row_stride_bytes = sizeof(numbers),
                                               .head_stride_bytes = sizeof(numbers)};
    for (uint32_t i = 0; i < 64; i++)
        sc_plugin_calibrate_queries(&learning, 0, &queries);
    for (uint32_t i = 0; i < 64; i++)
        sc_plugin_calibrate_slab(&learning, 0, 0, spans);
    assert_ptr_equal(sc_plugin_learnt_table(&learning, 0, 0), first);
    assert_int_equal(learning.learnt[0].tables, 1);
    for (uint32_t c = 0; c < 16; c++)
        assert_true(isfinite(learning.weights[c]));
    sc_plugin_learning_close(&learning, &alloc);
    sc_plugin_tables_close(&tables, &alloc);
    sc_alloc_done(&alloc);
}

/* ---- Tables that follow each other ---------------------------------------------------------- */

/* Half bits of K and V, and whether widths are free, of one opening after another. */
static const char *const TURNS[][3] = {{"per_channel", "4", "2"},   {"per_channel", "4", "2"},
                                       {"uniform", "4", "2"},       {"per_channel", "2.5", "3.5"},
                                       {"uniform", "8", "5"},       {"per_channel", "8", "8"},
                                       {"per_channel", "6.5", "4"}, {"per_channel", "4", "2"}};
#define TURN_COUNT (sizeof(TURNS) / sizeof(TURNS[0]))

/* What was read once is read again so, by whoever reads it, whatever was learnt since. */
static void codes_are_what_they_were(void **state)
{
    (void)state;
    static const char *const BESIDE[] = {"\"chunk_tokens\": 32",
                                         "\"chunk_tokens\": 256, \"host_bytes\": \"2MiB\"",
                                         "\"store\": {\"layout\": \"split\"}"};
    uint64_t random = seed_of(5), tables_made = 0;
    for (uint32_t kind = 0; kind < 3; kind++) {
        struct rig rig, reader;
        char extra[300];
        struct prompt prompts[TURN_COUNT];
        struct got firsts[TURN_COUNT];
        rig_init(&rig, true, extra);
        rig_shape(&rig, 2, 2, 72, kind == 1 ? SPEC_DTYPE_BF16 : SPEC_DTYPE_F16);
        struct spec_model model = rig_model(&rig);
        model.rope_kind = kind == 2 ? SPEC_ROPE_INTERLEAVED : SPEC_ROPE_HALF;
        model.rope_theta = 10000;
        for (uint32_t t = 0; t < TURN_COUNT; t++) {
            (void)snprintf(extra, sizeof(extra),
                           "\"preset\": \"layered-uniform\", %s, \"layered\": "
                           "{\"bit_allocation\": \"%s\", \"bits_k\": %s, \"bits_v\": %s}",
                           BESIDE[kind], TURNS[t][0], TURNS[t][1], TURNS[t][2]);
            assert_int_equal(rig_try_open_model(&rig, &model), SPEC_OK);
            for (uint32_t i = 0; i < 20 && t > 0; i++) { /* queries that are like no others */
                g_queries = t;
                struct got got = read_rows(&rig, &prompts[i % t], 0, 50000);
                assert_same(&rig, &got, &firsts[i % t]);
                free(got.bytes);
            }
            prompts[t] = rig_prompt(t + 1, 0, 0, 150 + next(&random) % 200);
            assert_int_equal(rig_fill(&rig, &prompts[t]), SPEC_OK);
            rig_wait_for_quant(&rig);
            firsts[t] = read_rows(&rig, &prompts[t], 0, 50000);
            assert_true(assert_near(&rig, &firsts[t]) > firsts[t].rows);
            for (uint32_t i = 0; i <= t; i++) {
                uint64_t from = next(&random) % 149;
                struct got got = read_rows(&rig, &prompts[i], from, 50000);
                assert_same(&rig, &got, &firsts[i]);
                free(got.bytes);
            }
            for (uint32_t l = 0; l < 2 * rig.layers && TURNS[t][0][0] == 'p'; l++)
                tables_made += rig.conn->quant->learning.learnt[l].tables;
            rig_beside(&reader, &rig, SPEC_ROLE_READER, 0);
            assert_int_equal(rig_try_open_model(&reader, &model), SPEC_OK);
            for (uint32_t i = 0; i <= t; i++) {
                struct got got = read_rows(&reader, &prompts[i], 0, 50000);
                assert_same(&reader, &got, &firsts[i]);
                assert_int_equal(got.exact, firsts[i].exact);
                free(got.bytes);
            }
            rig_leave(&reader);
            rig_close(&rig);
        }
        g_queries = 0;
        for (uint32_t t = 0; t < TURN_COUNT; t++) {
            free(firsts[t].bytes);
            rig_prompt_free(&prompts[t]);
        }
        rig_done(&rig);
    }
    assert_true(tables_made > 0);
}

/* ---- Many at once --------------------------------------------------------------------------- */

#define THREADS  4u
#define LAYERS   6u
#define CHANNELS 64u

struct many {
    struct sc_plugin_tables tables;
    struct sc_plugin_learning learning;
    struct sc_plugin_rope turns;
    _Atomic uint32_t ready;
    const struct sc_plugin_table *first[THREADS][LAYERS][2];
};
struct one {
    struct many *many;
    uint32_t number;
};

static void table_is_right(struct many *many, const struct sc_plugin_table *table)
{
    uint64_t bits = 0;
    uint8_t packed[CHANNELS / 2];
    for (uint64_t c = 0; c < CHANNELS; c++)
        bits += table->planes.to[c];
    sc_plugin_table_pack(table->planes.to, CHANNELS, packed);
    assert_int_equal(bits, table->planes.row_bytes * 8);
    assert_memory_equal(packed, table->packed, sizeof(packed));
    assert_ptr_equal(sc_plugin_tables_find(&many->tables, packed), table);
}

static void *one_run(void *user)
{
    const struct one *one = user;
    struct many *many = one->many;
    uint64_t random = one->number + 1;
    atomic_fetch_add(&many->ready, 1);
    while (atomic_load(&many->ready) < THREADS)
        (void)sched_yield();
    for (uint32_t i = 0; i < 400; i++) {
        uint32_t layer = (uint32_t)(next(&random) % LAYERS), part = (uint32_t)(next(&random) % 2);
        uint8_t spans[CHANNELS * 2], to[CHANNELS], packed[CHANNELS / 2];
        float numbers[CHANNELS], turn[16];
        for (uint32_t c = 0; c < CHANNELS; c++) {
            uint16_t span = (uint16_t)(next(&random) % 0x7c00); /* finite */
            memcpy(spans + 2 * c, &span, 2);
            numbers[c] = (float)(next(&random) % 1000) - 500;
        }
        if (i < LAYERS * 2) {
            layer = i / 2;
            part = i % 2;
            many->first[one->number][layer][part] =
                sc_plugin_calibrate_first(&many->learning, layer, part, spans);
        }
        sc_plugin_calibrate_slab(&many->learning, layer, part, spans);
        const struct sc_kernels_queries queries = {.data = (const uint8_t *)numbers,
                                                   .dtype = SC_KERNELS_F32,
                                                   .row_count = 1,
                                                   .row_stride_bytes = sizeof(numbers),
                                                   .head_stride_bytes = 16 * sizeof(float)};
        sc_plugin_calibrate_queries(&many->learning, layer, &queries);
        const struct sc_plugin_table *table = sc_plugin_learnt_table(&many->learning, layer, part);
        if (table != NULL)
            table_is_right(many, table);
        for (uint32_t c = 0; c < CHANNELS; c += 8) /* as all threads make them, and some alone */
            memset(to + c, (int)(rig_mix(i * 64 + c + (i % 8 == 0 ? random : 0)) % 9), 8);
        sc_plugin_table_pack(to, CHANNELS, packed);
        uint64_t bytes = 0;
        for (uint32_t c = 0; c < CHANNELS; c += 8)
            bytes += to[c];
        table = sc_plugin_tables_add_other(&many->tables, packed, bytes);
        if (table != NULL)
            table_is_right(many, table);
        uint64_t position = i * 17 % 3000;
        const float *rows = sc_plugin_rope_get(&many->turns, position, 70);
        sc_kernels_rope_row(position + 69, many->turns.frequencies, 16, turn);
        assert_memory_equal(rows + 69 * 16, turn, sizeof(turn));
    }
    return NULL;
}

static void many_learn_code_and_read_at_once(void **state)
{
    (void)state;
    struct sc_alloc alloc;
    struct many many = {.ready = 0};
    const struct spec_model model = {
        .head_size = 16, .rope_kind = SPEC_ROPE_HALF, .rope_theta = 10000};
    bool is_known;
    sc_alloc_init(&alloc);
    assert_int_equal(sc_plugin_tables_open(&many.tables, &alloc, 4, 16, 300, NULL), SPEC_OK);
    many.tables.others_most = 300 - LAYERS * 2 * SC_PLUGIN_TABLES_A_LAYER;
    assert_int_equal(sc_plugin_rope_open(&many.turns, &alloc, &model, 3200, &is_known, NULL),
                     SPEC_OK);
    many.learning = (struct sc_plugin_learning){.kernels = sc_kernels_get(sc_kernels_level_best()),
                                                .tables = &many.tables,
                                                .head_count = 4,
                                                .head_size = 16,
                                                .layer_count = LAYERS,
                                                .query_group = 1,
                                                .rotary = many.turns.rotary,
                                                .row_bytes = {32, 20}};
    assert_int_equal(sc_plugin_learning_open(&many.learning, &alloc, NULL), SPEC_OK);
    struct one ones[THREADS];
    for (uint32_t i = 0; i < THREADS; i++)
        ones[i] = (struct one){&many, i};
    threads_run(one_run, ones, sizeof(ones[0]), THREADS);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t part = 0; part < 2; part++)
            for (uint32_t i = 0; i < THREADS; i++)
                assert_non_null(many.first[i][layer][part]);
    assert_true(many.tables.others <= many.tables.others_most);
    sc_plugin_learning_close(&many.learning, &alloc);
    sc_plugin_rope_close(&many.turns, &alloc);
    sc_plugin_tables_close(&many.tables, &alloc);
    sc_alloc_done(&alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_model_is_quantised_as_it_can_be),
        cmocka_unit_test(any_rotary_parameters_are_turned_or_are_not),
        cmocka_unit_test(any_bytes_are_a_table_or_are_none),
        cmocka_unit_test(without_memory_it_opens_or_says_so),
        cmocka_unit_test(blocks_of_any_bytes_are_decoded_or_are_not),
        cmocka_unit_test(without_room_for_tables_rows_are_exact),
        cmocka_unit_test(tables_of_others_leave_room_for_our_own),
        cmocka_unit_test(a_reader_follows_tables_as_they_come),
        cmocka_unit_test(turned_codes_where_there_are_no_turns_are_not_read),
        cmocka_unit_test(queries_of_nearly_nothing_teach_nothing),
        cmocka_unit_test(codes_are_what_they_were),
        cmocka_unit_test(many_learn_code_and_read_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
