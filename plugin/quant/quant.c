/* quant.h: formats, bits per channel and rotation of quantised rows. */
#include "plugin/quant/quant.h"

#include "plugin/args/dtype_table.h"
#include "plugin/connector.h"
#include "store/rows/tag.h"

#include <string.h>

#define SINKS        4u             /* first positions, whose keys are unlike others */
#define GENERATIONS  16u            /* other processes' tables per layer and part, besides ours */
#define OTHERS_BYTES (256ull << 20) /* limit of all of those, except one of each */

static uint64_t channels_of(const spec_connector *conn)
{
    return (uint64_t)conn->shape.kv_head_count * conn->shape.head_size;
}

static bool may_be_free(const spec_connector *conn)
{
    return channels_of(conn) % 16 == 0 && conn->shape.head_size % 8 == 0 &&
           conn->shape.head_size <= SC_KERNELS_BITPLANES_HEAD &&
           sc_plugin_dtype_is_scored(conn->shape.dtype);
}

/* Accepts other bits than the configured ones too. */
static bool part_fits(const spec_connector *conn, bool is_free, uint32_t bits, uint64_t row_bytes)
{
    uint64_t channels = channels_of(conn);
    if (is_free)
        return may_be_free(conn) && row_bytes <= channels && row_bytes * 8 / channels == bits;
    return sc_kernels_codec_has(bits) && row_bytes == sc_kernels_codec_row_bytes(channels, bits);
}

static bool quant_fit(void *user, const struct sc_store_codec_shape *shape)
{
    const spec_connector *conn = user;
    bool is_turned = (shape->form & SC_STORE_FORM_K_TURNED) != 0;
    return shape->scale_bytes == sc_kernels_codec_scale_bytes(channels_of(conn)) &&
           (!is_turned || conn->quant->rope.rotary.turned > 0) &&
           part_fits(conn, (shape->form & SC_STORE_FORM_K_PER_CHANNEL) != 0, shape->bits_k,
                     shape->k_row_bytes) &&
           part_fits(conn, (shape->form & SC_STORE_FORM_V_PER_CHANNEL) != 0, shape->bits_v,
                     shape->v_row_bytes);
}

/* This version rotates no keys without a rotation, but a block may claim it. */
static bool table_reads(void *user, uint32_t part, const struct sc_store_codec_shape *shape,
                        const uint8_t *table, uint64_t position, uint64_t row_count)
{
    const spec_connector *conn = user;
    struct sc_plugin_quant *quant = conn->quant;
    bool is_k = part == SC_STORE_PART_K;
    if (is_k && (shape->form & SC_STORE_FORM_K_TURNED) != 0 &&
        !sc_plugin_rope_has(&quant->rope, position, row_count))
        return false;
    return sc_plugin_tables_add_other(&quant->tables, table,
                                      is_k ? shape->k_row_bytes : shape->v_row_bytes) != NULL;
}

/* Returns uniform bits for a configuration of per-channel bits: rounded down to a supported number,
 * at least 2. */
static uint32_t even_bits(uint32_t quarters)
{
    uint32_t bits = quarters < 8 ? 2 : quarters / 4;
    return sc_kernels_codec_has(bits) ? bits : bits - 1;
}

static struct sc_store_codec_shape shape_of(const spec_connector *conn)
{
    const struct sc_config *config = &conn->config;
    uint64_t channels = channels_of(conn);
    bool is_free = config->bit_allocation == SC_BITS_PER_CHANNEL && may_be_free(conn);
    struct sc_store_codec_shape shape = {
        .bits_k = is_free ? config->quarters_k / 4 : even_bits(config->quarters_k),
        .bits_v = is_free ? config->quarters_v / 4 : even_bits(config->quarters_v),
        .scale_bytes = sc_kernels_codec_scale_bytes(channels)};
    if (is_free) {
        shape.form = SC_STORE_FORM_K_PER_CHANNEL;
        shape.form |= conn->quant->rope.rotary.turned > 0 ? SC_STORE_FORM_K_TURNED : 0;
        bool is_even = config->quarters_v % 4 == 0 && sc_kernels_codec_has(shape.bits_v);
        shape.form |= is_even ? 0 : SC_STORE_FORM_V_PER_CHANNEL;
    }
    shape.k_row_bytes = is_free ? channels * config->quarters_k / 32
                                : sc_kernels_codec_row_bytes(channels, shape.bits_k);
    shape.v_row_bytes = (shape.form & SC_STORE_FORM_V_PER_CHANNEL) != 0
                            ? channels * config->quarters_v / 32
                            : sc_kernels_codec_row_bytes(channels, shape.bits_v);
    return shape;
}

spec_status sc_plugin_quant_open(spec_connector *conn, const struct spec_model *model,
                                 struct spec_error *reterr)
{
    const struct sc_config *config = &conn->config;
    bool is_known;
    struct sc_plugin_quant *quant = sc_alloc_zero(&conn->alloc, sizeof(*quant));
    conn->quant = quant;
    if (quant == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "coding");
    bool is_used = conn->choice.reads_quant || sc_config_stores_quantised(config);
    uint64_t parts = is_used && may_be_free(conn) ? 2 * (uint64_t)conn->dims.layer_count : 0;
    uint64_t others = OTHERS_BYTES /
                      sc_plugin_tables_slot_bytes(conn->shape.kv_head_count, conn->shape.head_size);
    others = others < parts * GENERATIONS ? others : parts * GENERATIONS;
    others = others > parts ? others : parts;
    uint64_t capacity = others + parts * SC_PLUGIN_TABLES_A_LAYER;
    spec_status status =
        sc_plugin_tables_open(&quant->tables, &conn->alloc, conn->shape.kv_head_count,
                              conn->shape.head_size, capacity, reterr);
    quant->tables.others_most = others; /* otherwise none might be left for ours */
    if (status == SPEC_OK && capacity > 0) {
        status = sc_plugin_rope_open(&quant->rope, &conn->alloc, model, config->max_request_tokens,
                                     &is_known, reterr);
        if (!is_known && config->bit_allocation == SC_BITS_PER_CHANNEL)
            SC_LOG(&conn->log, SPEC_LOG_INFO,
                   "rope_scaling_kind %s is unknown here: keys are coded as they come, not turned "
                   "back, which takes more bits",
                   model->rope_scaling_kind != NULL ? model->rope_scaling_kind : "(none)");
    }
    if (sc_config_stores_quantised(config) && config->chunk_tokens <= SC_KERNELS_CODEC_ROWS_MAX)
        quant->made = shape_of(conn);
    bool is_per_channel_k = (quant->made.form & SC_STORE_FORM_K_PER_CHANNEL) != 0;
    bool is_per_channel_v = (quant->made.form & SC_STORE_FORM_V_PER_CHANNEL) != 0;
    quant->learning =
        (struct sc_plugin_learning){.kernels = conn->kernels,
                                    .tables = &quant->tables,
                                    .head_count = conn->shape.kv_head_count,
                                    .head_size = conn->shape.head_size,
                                    .layer_count = conn->dims.layer_count,
                                    .query_group = conn->dims.query_group,
                                    .rotary = quant->rope.rotary,
                                    .row_bytes = {is_per_channel_k ? quant->made.k_row_bytes : 0,
                                                  is_per_channel_v ? quant->made.v_row_bytes : 0}};
    pthread_mutex_init(&quant->write_lock, NULL);
    spec_status learning = sc_plugin_learning_open(&quant->learning, &conn->alloc, reterr);
    uint64_t words = sc_plugin_learnt_words(&quant->learning);
    if (words > 0)
        quant->words =
            sc_alloc_array(&conn->alloc, SC_STORE_NOTE_HEAD + words, sizeof(*quant->words));
    if (words > 0 && quant->words == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a note of widths");
    return status != SPEC_OK ? status : learning;
}

void sc_plugin_quant_write(spec_connector *conn)
{
    struct sc_plugin_quant *quant = conn->quant;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (quant->words == NULL || !sc_plugin_can_store(conn) || !sc_store_takes_notes(conn->store))
        return;
    pthread_mutex_lock(&quant->write_lock);
    if (sc_plugin_learnt_put(&quant->learning, SC_PLUGIN_NOTE_CALIBRATION, &quant->written,
                             quant->words + SC_STORE_NOTE_HEAD) &&
        sc_store_note_put(conn->store, quant->words, sc_plugin_learnt_words(&quant->learning),
                          &error) != SPEC_OK)
        SC_LOG(&conn->log, SPEC_LOG_DEBUG, "widths are not written: %s", error.text);
    pthread_mutex_unlock(&quant->write_lock);
}

void sc_plugin_quant_close(spec_connector *conn)
{
    if (conn->quant == NULL)
        return;
    sc_plugin_learning_close(&conn->quant->learning, &conn->alloc);
    sc_plugin_tables_close(&conn->quant->tables, &conn->alloc);
    sc_plugin_rope_close(&conn->quant->rope, &conn->alloc);
    sc_alloc_free(&conn->alloc, conn->quant->words);
    pthread_mutex_destroy(&conn->quant->write_lock);
    sc_alloc_free(&conn->alloc, conn->quant);
}

/* Makes the layer's first table from the spans of this slab; overwrites what->scales. */
static const struct sc_plugin_table *first_table(const spec_connector *conn,
                                                 const struct sc_store_encode *what, uint32_t part,
                                                 struct sc_kernels_bitplanes_encode *encode)
{
    struct sc_plugin_quant *quant = conn->quant;
    uint64_t skip = what->position < SINKS ? SINKS - what->position : 0;
    skip = skip < what->row_count ? skip : what->row_count - 1;
    encode->planes = &quant->tables.none->planes;
    encode->rows += skip;
    encode->row_count -= skip;
    if (encode->rope != NULL)
        encode->rope += skip * encode->rotary->turned;
    if (!conn->kernels->bitplanes_encode(encode))
        return NULL;
    return sc_plugin_calibrate_first(&quant->learning, what->layer, part,
                                     what->scales + quant->made.scale_bytes / 2);
}

static bool free_encode(const spec_connector *conn, const struct sc_store_encode *what)
{
    struct sc_plugin_quant *quant = conn->quant;
    uint32_t part = what->part == SC_STORE_PART_K ? 0 : 1;
    sc_plugin_calibrate_due(&quant->learning, what->layer, part);
    const struct sc_plugin_table *table =
        sc_plugin_learnt_table(&quant->learning, what->layer, part);
    struct sc_kernels_bitplanes_encode encode = {.rows = what->rows,
                                                 .row_count = what->row_count,
                                                 .dtype =
                                                     sc_plugin_kernels_dtype(conn->shape.dtype),
                                                 .scales = what->scales,
                                                 .codes = what->codes};
    if (part == 0 && (quant->made.form & SC_STORE_FORM_K_TURNED) != 0) {
        encode.rotary = &quant->rope.rotary;
        encode.rope = sc_plugin_rope_get(&quant->rope, what->position, what->row_count);
        if (encode.rope == NULL)
            return false;
    }
    if (table == NULL) {
        struct sc_kernels_bitplanes_encode spans = encode;
        table = first_table(conn, what, part, &spans);
    }
    if (table == NULL)
        return false;
    encode.planes = &table->planes;
    memcpy(what->table, table->packed, quant->tables.packed_bytes);
    if (!conn->kernels->bitplanes_encode(&encode))
        return false;
    if (what->position >= SINKS) /* spans of a slab with sinks are not typical */
        sc_plugin_calibrate_slab(&quant->learning, what->layer, part,
                                 what->scales + quant->made.scale_bytes / 2);
    return true;
}

static bool slab_encode(void *user, const struct sc_store_encode *what)
{
    const spec_connector *conn = user;
    const struct sc_store_codec_shape *shape = &conn->quant->made;
    bool is_k = what->part == SC_STORE_PART_K;
    uint64_t row_bytes = is_k ? shape->k_row_bytes : shape->v_row_bytes;
    uint64_t table_bytes = sc_store_quant_table_bytes(shape, is_k);
    struct sc_kernels_codec code = {.channels = channels_of(conn),
                                    .bits = is_k ? shape->bits_k : shape->bits_v,
                                    .dtype = sc_plugin_kernels_dtype(conn->shape.dtype)};
    if (table_bytes == 0)
        return conn->kernels->codec_encode(&code, what->rows, what->row_count, what->scales,
                                           what->codes);
    if (free_encode(conn, what))
        return true;
    memset(what->table, 0, table_bytes);
    memset(what->scales, 0, shape->scale_bytes);
    memset(what->codes, 0, what->row_count * row_bytes);
    return false;
}

struct sc_store_quant sc_plugin_quant_params(spec_connector *conn)
{
    bool makes = conn->quant->made.bits_k != 0;
    return (struct sc_store_quant){.shape = conn->quant->made,
                                   .with_rows = makes,
                                   .encode = makes ? slab_encode : NULL,
                                   .fits = quant_fit,
                                   .reads = table_reads,
                                   .user = conn};
}

struct sc_kernels_quantised sc_plugin_quant_k(const spec_connector *conn,
                                              const struct sc_store_slab *slab, uint64_t position,
                                              uint64_t row_count)
{
    struct sc_plugin_quant *quant = conn->quant;
    struct sc_kernels_quantised quantised = {
        .scales = slab->k_scales, .codes = slab->k_quant, .bits = slab->bits_k};
    if ((slab->shape->form & SC_STORE_FORM_K_PER_CHANNEL) == 0)
        return quantised;
    quantised.planes = &sc_plugin_tables_find(&quant->tables, slab->k_table)->planes;
    if ((slab->shape->form & SC_STORE_FORM_K_TURNED) != 0) {
        quantised.rotary = &quant->rope.rotary;
        quantised.rope = sc_plugin_rope_get(&quant->rope, position, row_count);
        quantised.rope_tiles = sc_plugin_rope_tiles(&quant->rope, position);
    }
    return quantised;
}

struct sc_kernels_quantised sc_plugin_quant_v(const spec_connector *conn,
                                              const struct sc_store_slab *slab)
{
    struct sc_kernels_quantised quantised = {
        .scales = slab->v_scales, .codes = slab->v_quant, .bits = slab->bits_v};
    if (slab->bits_v != 0 && (slab->shape->form & SC_STORE_FORM_V_PER_CHANNEL) != 0)
        quantised.planes = &sc_plugin_tables_find(&conn->quant->tables, slab->v_table)->planes;
    return quantised;
}
