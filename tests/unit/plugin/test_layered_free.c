/* Layered delivery of codes of free widths: every row is there, exact ones bit
 * by bit as stored and the others as ref/ says of the table that their block
 * has; and so whatever the shape, the turn, the layout, the tier and the
 * process that coded them. What has no free widths has even ones.
 *
 * Threads: the fixture's. */
#include "kernels/bitplanes.h"
#include "store/internal.h"
#include "store/load.h"
#include "store/rows/quant_blocks.h"
#include "tests/unit/plugin/layered_fixture.h"

#define CHANNELS_MAX 2048u
#define CHUNK_MAX    256u
#define SLABS_MAX    64u
#define LAYERS       4u

static const struct rig_rope HALF = {.kind = SPEC_ROPE_HALF, .theta = 10000};
static const struct rig_rope INTERLEAVED = {.kind = SPEC_ROPE_INTERLEAVED, .theta = 500000};
static const struct rig_rope LLAMA3 = {
    .kind = SPEC_ROPE_HALF, .theta = 500000, .scaling = {8, 1, 4, 64}, .scaling_kind = "llama3"};
static const struct rig_rope UNKNOWN = {
    .kind = SPEC_ROPE_HALF, .theta = 10000, .scaling = {4, 32, 1, 4096}, .scaling_kind = "yarn"};
static const struct rig_rope NONE = {.kind = SPEC_ROPE_NONE};

struct shape {
    uint32_t heads, group, head_size, dtype, chunk;
    uint32_t quarters_k, quarters_v; /* of a bit */
    uint64_t matched;
    const char *layout;
    const struct rig_rope *rope;
    uint32_t form; /* that codes have to be of */
};

/* ---- What is expected ----------------------------------------------------------------------- */

/* Of a chunk's rows of a layer what their block says, beside codes. */
struct told {
    uint32_t form, bits_k, bits_v;
    uint8_t tables[2][CHANNELS_MAX / 2];
};

/* Of all ranges of a request, by a load of codes of our own; returns how many
 * have codes. */
static uint64_t tables_read(struct world *world, spec_request handle, uint32_t layer,
                            struct told ret_told[SLABS_MAX])
{
    spec_connector *conn = world->rig.conn;
    const struct sc_plugin_request *request = sc_plugin_request_find(conn, handle);
    struct sc_store_selector *selector = NULL;
    struct sc_store_slab slab;
    uint64_t count = 0;
    assert_in_range(request->range_count, 1, SLABS_MAX);
    assert_int_equal(sc_store_selector_open(conn->store, ROWS_MAX, ROWS_MAX, &selector, NULL),
                     SPEC_OK);
    assert_true(sc_store_selector_begin(
        selector, &(struct sc_store_selector_want){.layer = layer,
                                                   .io_class = SC_IO_CLASS_DEMAND,
                                                   .ranges = request->ranges,
                                                   .range_count = request->range_count,
                                                   .is_quant = true}));
    assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
    for (uint64_t r = 0; r < request->range_count; r++) {
        ret_told[r] = (struct told){0};
        if (!sc_store_slab_of(sc_store_selector_keys(selector), r, &slab))
            continue;
        ret_told[r].form = slab.shape->form;
        ret_told[r].bits_k = slab.bits_k;
        ret_told[r].bits_v = slab.bits_v;
        memcpy(ret_told[r].tables[0], slab.k_table, sc_store_quant_table_bytes(slab.shape, true));
        memcpy(ret_told[r].tables[1], slab.v_table, sc_store_quant_table_bytes(slab.shape, false));
        count++;
    }
    sc_store_selector_close(selector);
    return count;
}

/* As transformers has it, by wavelengths. */
static double frequency_of(const struct rig_rope *rope, uint64_t head_size, uint64_t pair)
{
    double frequency = pow(rope->theta, -(double)(2 * pair) / (double)head_size);
    if (rope->scaling_kind == NULL)
        return frequency;
    double factor = rope->scaling[0], low = rope->scaling[1], high = rope->scaling[2];
    double length = rope->scaling[3], wavelength = 2 * M_PI / frequency;
    if (wavelength < length / high)
        return frequency;
    if (wavelength > length / low)
        return frequency / factor;
    double smooth = (length / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

/* Rows of a chunk by ref/; values are what the rows decode to, floats the same
 * in float32. */
struct chunk {
    uint64_t first, row_count, row_bytes;
    uint8_t bits_least, bits_most; /* of a channel */
    uint8_t rows[CHUNK_MAX][CHANNELS_MAX * 4];
    float floats[CHUNK_MAX][CHANNELS_MAX];
    uint8_t values[CHUNK_MAX][CHANNELS_MAX * 4];
    float turns[CHUNK_MAX][CHANNELS_MAX];
    uint8_t scales[CHANNELS_MAX * 4], codes[CHUNK_MAX * CHANNELS_MAX + 8];
};

static uint32_t kernels_dtype(uint32_t dtype)
{
    return dtype == SPEC_DTYPE_F32   ? SC_KERNELS_F32
           : dtype == SPEC_DTYPE_F16 ? SC_KERNELS_F16
                                     : SC_KERNELS_BF16;
}

static void even_decode(const struct world *world, struct chunk *chunk, uint32_t bits,
                        const uint8_t *const *rows)
{
    const struct sc_kernels_codec code = {(uint64_t)world->rig.heads * world->rig.head_size, bits,
                                          kernels_dtype(world->rig.dtype)};
    uint8_t *dst[2][CHUNK_MAX];
    for (uint64_t i = 0; i < chunk->row_count; i++) {
        dst[0][i] = chunk->values[i];
        dst[1][i] = (uint8_t *)chunk->floats[i];
    }
    assert_true(
        sc_kernels_ref_codec_encode(&code, rows, chunk->row_count, chunk->scales, chunk->codes));
    for (uint32_t way = 0; way < 2; way++)
        sc_kernels_ref_codec_decode(&(struct sc_kernels_codec_decode){
            &code, chunk->scales, chunk->codes, chunk->row_count, 0, code.channels, dst[way],
            way == 0 ? code.dtype : SC_KERNELS_F32, false});
}

static void free_decode(const struct world *world, struct chunk *chunk, const uint8_t *table,
                        uint64_t row_bytes, bool is_turned, const uint8_t *const *rows)
{
    static struct sc_kernels_bitplanes_group groups[CHANNELS_MAX / 8];
    uint64_t d = world->rig.head_size, heads = world->rig.heads;
    const struct rig_rope *rope = &world->rig.rope;
    const struct sc_kernels_rotary rotary = {
        rope->kind == SPEC_ROPE_HALF ? SC_KERNELS_ROTARY_HALF : SC_KERNELS_ROTARY_INTERLEAVED,
        (uint32_t)d};
    struct sc_kernels_bitplanes planes;
    uint8_t to[CHANNELS_MAX], *dst[CHUNK_MAX];
    static float turns[CHUNK_MAX * CHANNELS_MAX];
    double frequencies[CHANNELS_MAX / 2];
    chunk->bits_least = 8;
    chunk->bits_most = 0;
    for (uint64_t c = 0; c < heads * d; c++) {
        to[c] = c % 2 == 0 ? table[c / 2] & 15 : table[c / 2] >> 4;
        chunk->bits_least = to[c] < chunk->bits_least ? to[c] : chunk->bits_least;
        chunk->bits_most = to[c] > chunk->bits_most ? to[c] : chunk->bits_most;
    }
    assert_true(sc_kernels_bitplanes_init(&planes, heads, d, to, groups));
    assert_int_equal(planes.row_bytes, row_bytes);
    for (uint64_t i = 0; i < d / 2 && is_turned; i++)
        frequencies[i] = frequency_of(rope, d, i);
    for (uint64_t i = 0; i < chunk->row_count; i++) {
        dst[i] = (uint8_t *)chunk->floats[i];
        if (is_turned)
            sc_kernels_rope_row(chunk->first + i, frequencies, d, turns + i * d);
    }
    assert_true(sc_kernels_ref_bitplanes_encode(
        &(struct sc_kernels_bitplanes_encode){.planes = &planes,
                                              .rows = rows,
                                              .row_count = chunk->row_count,
                                              .dtype = kernels_dtype(world->rig.dtype),
                                              .rotary = is_turned ? &rotary : NULL,
                                              .rope = is_turned ? turns : NULL,
                                              .scales = chunk->scales,
                                              .codes = chunk->codes}));
    sc_kernels_ref_bitplanes_decode(
        &(struct sc_kernels_bitplanes_decode){.planes = &planes,
                                              .scales = chunk->scales,
                                              .codes = chunk->codes,
                                              .row_count = chunk->row_count,
                                              .head_count = heads,
                                              .dst = dst,
                                              .dst_dtype = SC_KERNELS_F32,
                                              .rotary = is_turned ? &rotary : NULL,
                                              .rope = is_turned ? turns : NULL});
    for (uint64_t i = 0; i < chunk->row_count; i++)
        sc_kernels_dtypes[kernels_dtype(world->rig.dtype)].narrow(chunk->values[i],
                                                                  chunk->floats[i], heads * d);
}

static const uint32_t FREE[2] = {SC_STORE_FORM_K_PER_CHANNEL, SC_STORE_FORM_V_PER_CHANNEL};

/* ---- Chunks that were made ------------------------------------------------------------------ */

/* ref/ makes the same of the same: what it made stays beside all that it was made of, since the
 * same chunks are compared many times. */
struct memo_key {
    struct rig_rope rope;
    uint64_t first, row_count, row_bytes, quantised_bytes;
    uint32_t heads, head_size, dtype, form, bits, part;
    uint8_t table[CHANNELS_MAX / 2];
};

struct memo {
    struct memo *next;
    struct memo_key key;
    uint8_t *bytes; /* of each row: as stored, values, floats */
};

#define MEMO_BYTES_MAX (UINT64_C(64) << 20)

static struct memo *memos;
static uint64_t memo_bytes;

static void memos_forget(void)
{
    for (struct memo *memo = memos, *next; memo != NULL; memo = next) {
        next = memo->next;
        free(memo->bytes);
        free(memo);
    }
    memos = NULL;
    memo_bytes = 0;
}

static void memo_key_make(const struct world *world, const struct shape *shape,
                          const struct told *told, const struct chunk *chunk, uint32_t part,
                          struct memo_key *ret_key)
{
    memset(ret_key, 0, sizeof(*ret_key));
    ret_key->rope = world->rig.rope;
    ret_key->first = chunk->first;
    ret_key->row_count = chunk->row_count;
    ret_key->row_bytes = rig_part_bytes(&world->rig);
    ret_key->quantised_bytes = (uint64_t)shape->heads * shape->head_size *
                               (part == 0 ? shape->quarters_k : shape->quarters_v) / 32;
    ret_key->heads = world->rig.heads;
    ret_key->head_size = world->rig.head_size;
    ret_key->dtype = world->rig.dtype;
    ret_key->form = told->form;
    ret_key->bits = part == 0 ? told->bits_k : told->bits_v;
    ret_key->part = part;
    memcpy(ret_key->table, told->tables[part], sizeof(ret_key->table));
}

/* The chunk's rows lie in a memo as those of key; from there, or to it. */
static void memo_copy(struct memo *memo, struct chunk *chunk, bool is_to_memo)
{
    const struct memo_key *key = &memo->key;
    uint64_t floats = (uint64_t)key->heads * key->head_size * sizeof(float);
    uint8_t *at = memo->bytes;
    for (uint64_t i = 0; i < key->row_count; i++) {
        uint8_t *const rows[] = {chunk->rows[i], chunk->values[i], (uint8_t *)chunk->floats[i]};
        for (uint32_t r = 0; r < 3; r++) {
            uint64_t bytes = r == 2 ? floats : key->row_bytes;
            memcpy(is_to_memo ? at : rows[r], is_to_memo ? rows[r] : at, bytes);
            at += bytes;
        }
    }
}

static bool memo_is_of(const struct memo *memo, const struct memo_key *key,
                       const struct chunk *chunk)
{
    uint64_t stride = 2 * key->row_bytes + (uint64_t)key->heads * key->head_size * sizeof(float);
    if (memcmp(&memo->key, key, sizeof(*key)) != 0)
        return false;
    for (uint64_t i = 0; i < key->row_count; i++)
        if (memcmp(memo->bytes + i * stride, chunk->rows[i], key->row_bytes) != 0)
            return false;
    return true;
}

static void memo_add(const struct memo_key *key, struct chunk *chunk)
{
    uint64_t stride = 2 * key->row_bytes + (uint64_t)key->heads * key->head_size * sizeof(float);
    uint64_t bytes = key->row_count * stride;
    if (memo_bytes + bytes > MEMO_BYTES_MAX)
        memos_forget();
    struct memo *memo = malloc(sizeof(*memo));
    assert_non_null(memo);
    *memo = (struct memo){.next = memos, .bytes = malloc(bytes)};
    assert_non_null(memo->bytes);
    memcpy(&memo->key, key, sizeof(*key));
    memo_copy(memo, chunk, true);
    memos = memo;
    memo_bytes += bytes;
}

/* The chunk of a position, unless it is there. */
static void chunk_make(const struct world *world, const struct shape *shape,
                       const struct told *told, uint64_t first, uint32_t layer, uint32_t part,
                       struct chunk *chunk)
{
    const uint8_t *rows[CHUNK_MAX];
    uint64_t left = world->matched - first, channels = (uint64_t)shape->heads * shape->head_size;
    struct memo_key key;
    assert_true(shape->chunk <= CHUNK_MAX && channels <= CHANNELS_MAX);
    chunk->first = first;
    chunk->row_count = left < shape->chunk ? left : shape->chunk;
    for (uint64_t i = 0; i < chunk->row_count; i++) {
        rows[i] = chunk->rows[i];
        stored_row(world, first + i, layer, part, chunk->rows[i]);
    }
    memo_key_make(world, shape, told, chunk, part, &key);
    for (struct memo *memo = memos; memo != NULL; memo = memo->next)
        if (memo_is_of(memo, &key, chunk)) {
            memo_copy(memo, chunk, false);
            return;
        }
    if ((told->form & FREE[part]) == 0)
        even_decode(world, chunk, key.bits, rows);
    else
        free_decode(world, chunk, told->tables[part], key.quantised_bytes,
                    part == 0 && (told->form & SC_STORE_FORM_K_TURNED) != 0, rows);
    memo_add(&key, chunk);
}

/* All rows of the shot, each as its bit says; keys in float32 to ret_keys
 * (NULL: not wanted). */
static void assert_all(const struct world *world, const struct shape *shape,
                       const struct told *told, const struct shot *shot, uint64_t from,
                       float (*ret_keys)[CHANNELS_MAX])
{
    static struct chunk chunk;
    uint64_t rows = world->matched - from, bytes = rig_part_bytes(&world->rig);
    assert_int_equal(shot->item.row_count, rows);
    assert_int_equal(shot->item.exact_rows, exact_count(shot));
    for (uint32_t part = 0; part < 2; part++) {
        const uint8_t *at = part == 0 ? shot->area.memory.k_base : shot->area.memory.v_base;
        chunk.row_count = 0;
        for (uint64_t j = 0; j < rows; j++) {
            uint64_t first = (from + j) / shape->chunk * shape->chunk;
            if (chunk.row_count == 0 || chunk.first != first)
                chunk_make(world, shape,
                           &told[(first - from / shape->chunk * shape->chunk) / shape->chunk],
                           first, shot->item.layer, part, &chunk);
            uint64_t row = from + j - first;
            const uint8_t *expected = is_exact(shot, j) ? chunk.rows[row] : chunk.values[row];
            if (memcmp(at + j * bytes, expected, bytes) != 0)
                fail_msg("heads %u of %u, layer %u row %lu part %u (%s) is not what it "
                         "should be",
                         shape->heads, shape->head_size, shot->item.layer, j, part,
                         is_exact(shot, j) ? "exact" : "coarse");
            if (part == 0 && ret_keys != NULL)
                memcpy(ret_keys[j], chunk.floats[row], sizeof(chunk.floats[row]));
        }
    }
    assert_true(rig_is_poison((uint8_t *)shot->area.memory.k_base - RIG_GUARD, RIG_GUARD));
    assert_true(
        rig_is_poison((uint8_t *)shot->area.memory.v_base + shot->area.part_bytes, RIG_GUARD));
}

/* ---- Worlds --------------------------------------------------------------------------------- */

static void text_make(const struct shape *shape, const char *bit_counts, const char *more,
                      char text[512])
{
    static const char *const FRACTIONS[] = {"", ".25", ".5", ".75"};
    (void)snprintf(text, 512,
                   "\"preset\": \"layered-uniform\", \"chunk_tokens\": %u, \"store\": {\"layout\": "
                   "\"%s\"%s}, \"layered\": {\"bits_k\": %u%s, \"bits_v\": %u%s, "
                   "\"bit_allocation\": "
                   "\"%s\"}",
                   shape->chunk, shape->layout, more, shape->quarters_k / 4,
                   FRACTIONS[shape->quarters_k % 4], shape->quarters_v / 4,
                   FRACTIONS[shape->quarters_v % 4], bit_counts);
}

/* Not opened. */
static void world_init(struct world *world, const struct shape *shape, const char *text)
{
    *world = (struct world){
        .matched = shape->matched, .group = shape->group, .agree = 3, .is_uneven = true};
    rig_init(&world->rig, true, text);
    rig_shape(&world->rig, LAYERS, shape->heads, shape->head_size, shape->dtype);
    world->rig.query_group = shape->group;
    world->rig.rope = *shape->rope;
    world->prompt =
        rig_prompt(shape->matched + shape->heads, 0, 0, shape->matched + 2 * FRESH_ROWS);
}

static void world_begin(struct world *world, const struct shape *shape, const char *text)
{
    world_init(world, shape, text);
    rig_open(&world->rig);
    world_store(world);
    wait_for_quant(world);
}

static void world_begin_text(struct world *world, const struct shape *shape, const char *bit_counts,
                             const char *more, char text[512])
{
    text_make(shape, bit_counts, more, text);
    world_begin(world, shape, text);
}

static void reopen_as(struct world *world, const char *text)
{
    rig_close(&world->rig);
    world->rig.extra = text;
    rig_open(&world->rig);
    wait_for_quant(world);
}

struct seen {
    uint64_t told, untold, uneven, tiers[SPEC_TIERS];
};

/* Those of the configuration without halves; 7 is none of even ones. */
static void even_bits_right(const struct shape *shape, const struct told *told)
{
    assert_int_equal(told->bits_k, shape->quarters_k / 4 == 7 ? 6 : shape->quarters_k / 4);
    assert_int_equal(told->bits_v, shape->quarters_v / 4 == 7 ? 6 : shape->quarters_v / 4);
}

/* A layer of a request of its own. */
static void layer_check(struct world *world, const struct shape *shape, uint32_t layer,
                        uint64_t from, uint32_t ppm, struct seen *seen)
{
    static struct told told[SLABS_MAX];
    static float keys[ROWS_MAX][CHANNELS_MAX];
    spec_request request = look(world, from);
    struct shot shot;
    uint64_t rows = world->matched - from;
    uint64_t slabs = (world->matched - 1) / shape->chunk - from / shape->chunk + 1;
    shot_make(&shot, world, request, layer, from, ppm);
    assert_int_equal(fire(world, &shot), SPEC_OK);
    assert_int_equal(shot.item.exact_rows, (rows * ppm + 999999) / 1000000);
    assert_int_equal(shot.item.result_flags, 0);
    for (uint32_t t = 0; t < SPEC_TIERS; t++)
        seen->tiers[t] += shot.item.tier_rows[t];
    assert_int_equal(tables_read(world, request, layer, told), slabs);
    assert_all(world, shape, told, &shot, from, keys);
    for (uint64_t i = 0; i < slabs; i++) {
        assert_int_equal(told[i].form, shape->form);
        if (shape->form == 0)
            even_bits_right(shape, &told[i]);
        for (uint64_t b = 1; b < (uint64_t)shape->heads * shape->head_size / 2; b++)
            seen->uneven += told[i].tables[0][b] != told[i].tables[0][0];
    }
    bool tells = set_is_the_best_of(world, &shot, from, keys[0], CHANNELS_MAX);
    seen->told += tells;
    seen->untold += !tells;
    assert_int_equal(shot.item.provenance.kind, SPEC_PROVENANCE_LOSSY);
    assert_int_equal(shot.item.provenance.bits_k, told[0].bits_k);
    assert_int_equal(shot.item.provenance.bits_v, told[0].bits_v);
    shot_release(&shot, world, request);
}

static struct seen all_check(struct world *world, const struct shape *shape)
{
    static const uint32_t PPM[LAYERS] = {0, 50000, 250000, 900000};
    struct seen seen = {0};
    for (uint64_t from = 0; from < 12; from += 11)
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            layer_check(world, shape, layer, from, PPM[layer], &seen);
    assert_int_equal(atomic_load(&world->rig.conn->stats.layered_forced_rows), 0);
    return seen;
}

/* ---- Shapes --------------------------------------------------------------------------------- */

#define K      SC_STORE_FORM_K_PER_CHANNEL
#define TURNED SC_STORE_FORM_K_TURNED
#define V      SC_STORE_FORM_V_PER_CHANNEL

static const struct shape BASE = {2, 2,   16,       SPEC_DTYPE_F16, 64,        12,
                                  8, 300, "paired", &HALF,          K | TURNED};

static void rows_are_exact_or_what_their_table_says(void **state)
{
    (void)state;
    static const struct shape SHAPES[] = {
        {3, 1, 16, SPEC_DTYPE_F16, 64, 12, 8, 300, "paired", &HALF, K | TURNED},
        {4, 2, 16, SPEC_DTYPE_BF16, 16, 11, 9, 333, "paired", &INTERLEAVED, K | TURNED | V},
        {2, 4, 8, SPEC_DTYPE_F32, 128, 12, 10, 300, "split", &LLAMA3, K | TURNED | V},
        {1, 3, 48, SPEC_DTYPE_F16, 64, 32, 28, 65, "split", &NONE, K | V},
        {1, 1, 64, SPEC_DTYPE_BF16, 16, 10, 8, 140, "split", &HALF, K | TURNED},
        {2, 2, 72, SPEC_DTYPE_F16, 64, 13, 11, 130, "paired", &LLAMA3, K | TURNED | V},
        {2, 1, 128, SPEC_DTYPE_F32, 256, 8, 30, 260, "paired", &INTERLEAVED, K | TURNED | V},
        {2, 1, 256, SPEC_DTYPE_F16, 64, 10, 10, 100, "split", &HALF, K | TURNED | V},
        {2, 2, 16, SPEC_DTYPE_F16, 64, 12, 8, 300, "paired", &UNKNOWN, K},
    };
    struct seen all = {0};
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        struct world world;
        char text[512];
        world_begin_text(&world, &SHAPES[i], "per_channel", "", text);
        struct seen seen = all_check(&world, &SHAPES[i]);
        if (SHAPES[i].quarters_k != 32 && SHAPES[i].head_size > 8 && seen.uneven == 0)
            fail_msg("heads %u of %u: all widths are the same", SHAPES[i].heads,
                     SHAPES[i].head_size);
        all.told += seen.told;
        all.untold += seen.untold;
        world_done(&world);
    }
    print_message("%lu sets compared, %lu too close to tell\n", all.told, all.untold);
    assert_true(all.told > 8 * all.untold);
}

/* Heads that no whole number of bytes is a plane of, or channels that no row of
 * any width is whole bytes of: widths are even, of the bits that even ones can
 * have. */
static void what_cannot_be_of_bits_per_channel_is_even(void **state)
{
    (void)state;
    static const struct shape SHAPES[] = {
        {3, 2, 20, SPEC_DTYPE_F16, 64, 16, 8, 100, "paired", &HALF, 0},
        {4, 1, 12, SPEC_DTYPE_F16, 64, 14, 10, 100, "split", &HALF, 0},
        {3, 1, 8, SPEC_DTYPE_F32, 64, 16, 12, 100, "paired", &NONE, 0},
        {1, 1, 272, SPEC_DTYPE_BF16, 64, 16, 12, 70, "paired", &INTERLEAVED, 0},
        {3, 1, 8, SPEC_DTYPE_F16, 64, 28, 30, 100, "paired", &NONE, 0}, /* 7 is none of those */
    };
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        struct world world;
        char text[512];
        world_begin_text(&world, &SHAPES[i], "per_channel", "", text);
        assert_int_equal(all_check(&world, &SHAPES[i]).uneven, 0);
        world_done(&world);
    }
}

/* ---- Other processes ------------------------------------------------------------------------ */

/* What an earlier process coded by its tables is read by who has learned
 * others, and by none. */
static void codes_of_an_earlier_process_say_by_which_table(void **state)
{
    (void)state;
    struct shape wider = BASE, even = BASE;
    wider.quarters_k = 18;
    char texts[3][512];
    struct world world;
    text_make(&BASE, "per_channel", "", texts[0]);
    text_make(&wider, "per_channel", "", texts[1]);
    even.quarters_k = 16;
    text_make(&even, "uniform", "", texts[2]);
    world_begin(&world, &BASE, texts[0]);
    for (uint32_t way = 1; way <= 4; way++) {
        struct sc_store_stats stats;
        reopen_as(&world, texts[way % 3]);
        (void)all_check(&world, &BASE);
        sc_store_stats(world.rig.conn->store, &stats);
        assert_int_equal(stats.built_pieces, 0);
        if (way == 2)
            assert_int_equal(sc_store_checkpoint(world.rig.conn->store, NULL), SPEC_OK);
    }
    world_done(&world);
}

/* Codes of even widths stay what they are where free ones are made. */
static void even_codes_are_read_where_free_ones_are_made(void **state)
{
    (void)state;
    struct shape even = BASE;
    even.quarters_k = 16;
    even.form = 0;
    char texts[2][512];
    struct world world;
    text_make(&even, "uniform", "", texts[0]);
    text_make(&BASE, "per_channel", "", texts[1]);
    world_begin(&world, &even, texts[0]);
    for (uint32_t way = 1; way <= 2; way++) {
        reopen_as(&world, texts[way % 2]);
        (void)all_check(&world, &even);
    }
    world_done(&world);
}

/* What was stored without codes gets them from who opens with free widths. */
static void what_was_stored_before_gets_free_codes(void **state)
{
    (void)state;
    char text[512];
    struct world world;
    text_make(&BASE, "per_channel", "", text);
    world_init(&world, &BASE, "\"preset\": \"as-like\"");
    rig_open(&world.rig);
    world_store(&world);
    reopen_as(&world, text);
    (void)all_check(&world, &BASE);
    world_done(&world);
}

/* A reader beside the writer, which never coded anything, whatever its own
 * widths. */
static void a_reader_takes_the_writers_tables(void **state)
{
    (void)state;
    char texts[2][512];
    struct shape even = BASE;
    struct world writer;
    even.quarters_k = 16;
    text_make(&BASE, "per_channel", "", texts[0]);
    text_make(&even, "uniform", "", texts[1]);
    world_begin(&writer, &BASE, texts[0]);
    for (uint32_t way = 0; way < 2; way++) {
        struct world reader = writer;
        rig_beside(&reader.rig, &writer.rig, SPEC_ROLE_READER, 0);
        reader.rig.extra = texts[way];
        rig_open(&reader.rig);
        rig_pass_ns(&reader.rig, 500000000); /* it follows */
        (void)all_check(&reader, &BASE);
        rig_leave(&reader.rig);
    }
    world_done(&writer);
}

/* ---- Ways to the host ----------------------------------------------------------------------- */

/* Codes in the host tier; and again of a store that is opened with one, after
 * the disk was read. */
static void codes_of_the_host_tier_are_the_disks(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"paired", "split"};
    for (uint32_t way = 0; way < 2; way++) {
        struct shape shape = BASE;
        struct world world;
        char text[600], most[512];
        shape.layout = LAYOUTS[way];
        shape.quarters_v = 10;
        shape.form |= V;
        text_make(&shape, "per_channel", "", most);
        (void)snprintf(text, sizeof(text), "%s, \"host_bytes\": \"64MiB\"", most);
        world_begin(&world, &shape, text);
        (void)all_check(&world, &shape);
        struct seen again = all_check(&world, &shape);
        assert_true(again.tiers[SPEC_TIER_HOST] > 0);
        reopen_as(&world, text);
        (void)all_check(&world, &shape);
        assert_true(all_check(&world, &shape).tiers[SPEC_TIER_HOST] > 0);
        world_done(&world);
    }
}

/* A match that is staged before anyone asks for its rows. */
static void codes_that_are_staged_are_the_disks(void **state)
{
    (void)state;
    struct world world;
    char text[600], most[512];
    text_make(&BASE, "per_channel", "", most);
    (void)snprintf(text, sizeof(text), "%s, \"host_bytes\": \"64MiB\"", most);
    world_begin(&world, &BASE, text);
    reopen_as(&world, text);
    spec_request request = look(&world, 0);
    assert_int_equal(rig_wait(&world.rig, rig_stage(&world.rig, request, 0)), SPEC_OK);
    rig_release(&world.rig, request);
    assert_true(all_check(&world, &BASE).tiers[SPEC_TIER_HOST] > 0);
    world_done(&world);
}

/* Blocks that are more than an operation come in parts. */
static void blocks_of_more_than_an_operation_come_in_parts(void **state)
{
    (void)state;
    struct shape shape = {2,  1,   256,      SPEC_DTYPE_F16, 256,           16,
                          15, 300, "paired", &HALF,          K | TURNED | V};
    char text[512];
    struct world world;
    world_begin_text(&world, &shape, "per_channel", "", text);
    (void)all_check(&world, &shape);
    world.rig.op = "64KiB";
    reopen_as(&world, text);
    (void)all_check(&world, &shape);
    world_done(&world);
}

/* ---- In part -------------------------------------------------------------------------------- */

/* As aim, by the queries, also if a set was chosen before. */
static void aim_by_queries(struct shot *shot, spec_ticket ticket, uint32_t ppm, uint32_t flags)
{
    aim(shot, ticket, ppm);
    shot->item.flags = flags;
    shot->item.queries = &shot->pass.q;
    shot->item.new_keys = &shot->pass.fresh.memory;
}

/* Another layer's codes take the place of those of layer 0. */
static void codes_leave(struct world *world, spec_request request)
{
    struct shot other;
    shot_make(&other, world, request, SC_PLUGIN_SELECTORS, 0, 50000);
    assert_int_equal(fire(world, &other), SPEC_OK);
    shot_free(&other);
}

/* Two items of one call go on with a delivery that came ahead: the first chooses, so that the
 * second has a ranking, of rows alone, when its turn comes. */
static void a_second_item_goes_on_by_the_ranking_of_the_first(void **state)
{
    (void)state;
    static struct told told[SLABS_MAX];
    for (uint32_t way = 0; way < 8; way++) {
        bool has_left = way % 2 == 1, is_most = way / 2 % 2 == 1, is_submitted = way / 4 % 2 == 1;
        char text[512];
        struct world world;
        struct shot shot;
        world_begin_text(&world, &BASE, "per_channel", "", text);
        spec_request request = look(&world, 0);
        assert_int_equal(tables_read(&world, request, 0, told), 5);
        spec_ticket ticket = fire_ahead(&world, &shot, request, 0, 100000);
        if (has_left)
            codes_leave(&world, request);
        struct spec_select more = shot.select;
        more.exact_ppm = is_most ? 900000 : 200000;
        aim_by_queries(&shot, ticket, 100000, 0);
        struct spec_important items[2] = {shot.item, shot.item};
        items[0].exact_bits = NULL;
        items[1].select = &more;
        if (is_submitted)
            (void)rig_submit_whole(&world.rig, items, 2);
        else
            assert_int_equal(sc_plugin_get_important(world.rig.conn, items, 2, NULL), SPEC_OK);
        assert_int_equal(items[0].status, SPEC_OK);
        assert_int_equal(items[1].status, SPEC_OK);
        shot.item = items[1];
        assert_int_equal(shot.item.exact_rows, is_most ? 270 : 60);
        assert_all(&world, &BASE, told, &shot, 0, NULL);
        assert_int_equal(atomic_load(&world.rig.conn->stats.corrupt_ranges), 0);
        shot_release(&shot, &world, request);
        request = look(&world, 0); /* nothing was dropped for it */
        world_leave(&world, request);
    }
}

/* A value that no code stands for makes its slab raw, in one layer, K or V: its rows come exactly,
 * first of all. */
static void a_raw_slab_is_exact(void **state)
{
    (void)state;
    char text[512];
    text_make(&BASE, "per_channel", "", text);
    for (uint32_t part = 0; part < 2; part++) {
        struct world world;
        uint64_t bytes, where;
        spec_ticket ticket = 0;
        world_init(&world, &BASE, text);
        rig_open(&world.rig);
        bytes = rig_part_bytes(&world.rig);
        where = 130 * bytes + 7 * 2;
        struct prompt stored = {world.matched, world.prompt.tokens, world.prompt.history};
        spec_request request = rig_lookup(&world.rig, &stored).request;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            struct area area = world_area(&world, 0, world.matched, layer);
            uint8_t *base = part == 0 ? area.memory.k_base : area.memory.v_base;
            if (layer == 1)
                memset(base + where, 0x7f, 2); /* NaN */
            struct spec_store_params params =
                rig_store_params(request, layer, 0, world.matched, &area.memory);
            assert_int_equal(sc_plugin_store(world.rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
            rig_area_free(&area);
        }
        assert_int_equal(rig_wait(&world.rig, ticket), SPEC_OK);
        rig_release(&world.rig, request);
        wait_for_quant(&world);
        for (uint32_t ppm = 0; ppm <= 400000; ppm += 200000) {
            static struct told told[SLABS_MAX];
            struct shot shot;
            request = look(&world, 0);
            shot_make(&shot, &world, request, 1, 0, ppm);
            assert_int_equal(fire(&world, &shot), SPEC_OK);
            assert_int_equal(tables_read(&world, request, 1, told), 4);
            assert_int_equal(shot.item.exact_rows, ppm == 400000 ? 120 : 64);
            for (uint64_t j = 128; j < 192; j++)
                assert_true(is_exact(&shot, j));
            uint8_t row[CHANNELS_MAX],
                *at = part == 0 ? shot.area.memory.k_base : shot.area.memory.v_base;
            assert_int_equal(at[where], 0x7f);
            stored_row(&world, 130, 1, part, row);
            memcpy(at + where, row + 7 * 2, 2);
            assert_all(&world, &BASE, told, &shot, 0, NULL);
            shot_release(&shot, &world, request);
        }
        world_done(&world);
    }
}

/* ---- Orders ---------------------------------------------------------------------------------- */

struct orders {
    struct world world;
    struct shape shape;
    uint64_t state, seed, delivered, late, exact;
};

static uint64_t draw(struct orders *orders, uint64_t below)
{
    orders->state = rig_mix(orders->state);
    return orders->state % below;
}

/* Four chunks, and FRESH_ROWS of another pass. */
static void orders_begin(struct orders *orders, char text[512])
{
    static const char *const MORE[] = {"", "}, \"read\": {\"planner\": \"chunk\"",
                                       "}, \"host_bytes\": \"64MiB\", \"read\": {",
                                       "}, \"select\": {\"dense_layers\": 1"};
    struct world *world = &orders->world;
    spec_ticket ticket = 0;
    orders->shape = BASE;
    orders->shape.matched = 256;
    orders->shape.layout = draw(orders, 2) == 0 ? "paired" : "split";
    world_begin_text(world, &orders->shape, "per_channel", MORE[draw(orders, 4)], text);
    spec_request request = look(world, 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        ticket = store_fresh(world, request, layer);
    assert_int_equal(rig_wait(&world->rig, ticket), SPEC_OK);
    rig_release(&world->rig, request);
    wait_for_quant(world);
    world->matched += FRESH_ROWS;
}

/* What was exact is exact still. */
static void order_check(struct orders *orders, const struct told *told, const struct shot *shot,
                        uint64_t from, const uint64_t *exact)
{
    for (uint32_t w = 0; w < (ROWS_MAX + 63) / 64; w++)
        assert_int_equal(exact[w] & ~shot->exact[w], 0);
    assert_all(&orders->world, &orders->shape, told, shot, from, NULL);
    orders->delivered++;
    orders->exact += shot->item.exact_rows;
}

/* It writes no more into the destination. */
static void late_check(struct orders *orders, const struct shot *shot)
{
    static uint8_t copy[ROWS_MAX * CHANNELS_MAX];
    const uint8_t *base = shot->area.memory.k_base;
    uint64_t bytes = shot->area.part_bytes;
    assert_true(bytes <= sizeof(copy));
    memcpy(copy, base, bytes);
    rig_pass_ns(&orders->world.rig, 1000000000);
    assert_memory_equal(copy, base, bytes);
    orders->late++;
}

static void one_order(struct orders *orders, spec_request request, uint64_t from, uint32_t layer)
{
    static const uint64_t LATE_NS[] = {0, 0, 1, 100000, 500000, 1500000};
    static const uint32_t PPM[] = {0, 50000, 300000, 1000000};
    static struct told told[SLABS_MAX];
    static struct shot shot;
    struct world *world = &orders->world;
    uint64_t exact[(ROWS_MAX + 63) / 64] = {0};
    spec_ticket ticket = 0;
    shot_make(&shot, world, request, layer, from, PPM[draw(orders, 4)]);
    if (layer > 0 && draw(orders, 2) == 0)
        assert_int_equal(
            sc_plugin_prefetch_next(world->rig.conn, request, layer - 1, &shot.pass.q, NULL),
            SPEC_OK);
    rig_pass_ns(&world->rig, draw(orders, 3) * 100000);
    bool is_ahead = draw(orders, 3) == 0;
    shot.item.flags = is_ahead ? SPEC_ITEM_AHEAD : 0;
    if (is_ahead && draw(orders, 2) == 0) {
        shot.item.queries = NULL;
        shot.item.new_keys = NULL;
    }
    if (draw(orders, 2) == 0) {
        shot.select.given |= SPEC_SELECT_KEEP;
        shot.select.keep_first = (uint32_t)draw(orders, 300);
        shot.select.keep_last = (uint32_t)draw(orders, 40);
    }
    shot.item.budget_bytes = draw(orders, 4) == 0 ? 1 + draw(orders, 10000) : 0;
    shot.item.deadline_ns = LATE_NS[draw(orders, 6)];
    assert_int_equal(sc_plugin_submit(world->rig.conn, &shot.item, 1, &ticket, NULL), SPEC_OK);
    (void)sc_plugin_submit_wait(world->rig.conn, ticket, UINT64_MAX, NULL);
    assert_true(shot.item.status == SPEC_OK || shot.item.status == SPEC_E_TIMEOUT);
    if (shot.item.status == SPEC_OK)
        (void)tables_read(world, request, layer, told);
    for (uint32_t round = 0; shot.item.status == SPEC_OK; round++) {
        order_check(orders, told, &shot, from, exact);
        memcpy(exact, shot.exact, sizeof(exact));
        if (round == 3)
            break;
        bool is_again = draw(orders, 2) == 0;
        uint64_t late_ns = LATE_NS[draw(orders, 6)];
        aim(&shot, ticket, PPM[draw(orders, 4)]);
        shot.item.flags = is_again ? SPEC_ITEM_RESCORE : 0;
        shot.select.given = SPEC_SELECT_EXACT;
        shot.item.queries = is_ahead || is_again ? &shot.pass.q : NULL;
        shot.item.new_keys = is_ahead || is_again ? &shot.pass.fresh.memory : NULL;
        shot.item.budget_bytes = draw(orders, 4) == 0 ? 1 + draw(orders, 10000) : 0;
        shot.item.deadline_ns = late_ns;
        spec_status status = sc_plugin_get_important(world->rig.conn, &shot.item, 1, NULL);
        if (status != SPEC_OK || shot.item.status != SPEC_OK)
            fail_msg("seed %lu: layer %u: refined: %s", orders->seed, layer,
                     sc_status_name(shot.item.status));
    }
    if (shot.item.status == SPEC_E_TIMEOUT)
        late_check(orders, &shot);
    shot_free(&shot);
}

/* In any order: guesses, deliveries ahead or not, in time or not, refined and ranked anew. */
static void any_order_gives_what_its_bits_say(void **state)
{
    (void)state;
    static const uint64_t FROM[] = {0, 11, 70};
    static struct orders orders;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        char text[512];
        orders.state = orders.seed = seed;
        orders_begin(&orders, text);
        sc_io_sim_fault_late_ns(orders.world.rig.disk, 400000);
        sc_io_sim_fault_ppm(orders.world.rig.disk, SC_SIM_LATE,
                            (uint32_t)draw(&orders, 2) * 300000);
        for (uint32_t i = 0; i < 6; i++) {
            uint64_t from = FROM[draw(&orders, 3)];
            struct spec_lookup_result found;
            assert_int_equal(
                rig_try_lookup(&orders.world.rig, &orders.world.prompt, from, RIG_MAX, &found),
                SPEC_OK);
            assert_int_equal(found.matched_tokens, orders.world.matched);
            for (uint32_t layer = (uint32_t)draw(&orders, 2); layer < LAYERS; layer++)
                one_order(&orders, found.request, from, layer);
            rig_release(&orders.world.rig, found.request);
        }
        assert_int_equal(atomic_load(&orders.world.rig.conn->stats.corrupt_ranges), 0);
        world_done(&orders.world);
    }
    print_message("%lu deliveries, %lu late, %lu rows exact\n", orders.delivered, orders.late,
                  orders.exact);
    assert_true(orders.delivered > 0 && orders.late > 0 && orders.exact > 0);
}

/* Two passes that end inside a chunk: each has a block of its own, and
 * positions of its own. */
static void a_chunk_of_two_passes_has_two_blocks(void **state)
{
    (void)state;
    struct shape shape = BASE;
    char text[512];
    struct world world;
    struct shot shot;
    static struct told told[SLABS_MAX];
    static struct chunk chunk;
    shape.matched = 100;
    world_begin_text(&world, &shape, "per_channel", "", text);
    spec_request request = look(&world, 0);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        ticket = store_fresh(&world, request, layer);
    assert_int_equal(rig_wait(&world.rig, ticket), SPEC_OK);
    rig_release(&world.rig, request);
    wait_for_quant(&world);
    struct spec_lookup_result result = rig_lookup(&world.rig, &world.prompt);
    assert_int_equal(result.matched_tokens, 100 + FRESH_ROWS);
    world.matched += FRESH_ROWS;
    shot_make(&shot, &world, result.request, 1, 0, 0);
    shot.item.queries = NULL;
    shot.item.new_keys = NULL;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(tables_read(&world, result.request, 1, told), 3);
    chunk_make(&world, &shape, &told[2], 100, 1, 0, &chunk);
    uint64_t bytes = rig_part_bytes(&world.rig);
    for (uint64_t i = 0; i < FRESH_ROWS; i++)
        assert_memory_equal((uint8_t *)shot.area.memory.k_base + (100 + i) * bytes, chunk.values[i],
                            bytes);
    shot_end(&shot, &world, result.request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_exact_or_what_their_table_says),
        cmocka_unit_test(what_cannot_be_of_bits_per_channel_is_even),
        cmocka_unit_test(codes_of_an_earlier_process_say_by_which_table),
        cmocka_unit_test(even_codes_are_read_where_free_ones_are_made),
        cmocka_unit_test(what_was_stored_before_gets_free_codes),
        cmocka_unit_test(a_reader_takes_the_writers_tables),
        cmocka_unit_test(codes_of_the_host_tier_are_the_disks),
        cmocka_unit_test(codes_that_are_staged_are_the_disks),
        cmocka_unit_test(blocks_of_more_than_an_operation_come_in_parts),
        cmocka_unit_test(a_second_item_goes_on_by_the_ranking_of_the_first),
        cmocka_unit_test(a_raw_slab_is_exact),
        cmocka_unit_test(any_order_gives_what_its_bits_say),
        cmocka_unit_test(a_chunk_of_two_passes_has_two_blocks),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    memos_forget();
    return failed;
}
