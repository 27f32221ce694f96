/* record: strict decoding of records: every key of the type once and in range.
 * Invariants, Threads: store/log/record.h.
 * Tests: tests/unit/store/test_record.c, test_log.c, tests/fuzz/fuzz_log.c */
#include "store/log/record.h"
#include "store/log/record_format.h"

/* Fast path: the first three keys in our encoder's order. */
static bool peek_first(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_cursor cursor = {payload, payload + bytes, false};
    static const char keys[SC_STORE_COMMON][3] = {"v", "t", "id"};
    uint64_t values[SC_STORE_COMMON], size;
    if (sc_store_cursor_head(&cursor, &size) != 'm' || size < SC_STORE_COMMON)
        return false;
    for (uint32_t i = 0; i < SC_STORE_COMMON; i++) {
        struct sc_store_field field = {.key = keys[i], .key_bytes = i == 2 ? 2 : 1};
        if (sc_store_cursor_head(&cursor, &size) != 's')
            return false;
        const uint8_t *key = sc_store_cursor_take(&cursor, size);
        if (key == NULL || !sc_store_field_has_key(&field, key, size) ||
            sc_store_cursor_head(&cursor, &values[i]) != 'u')
            return false;
    }
    record->version = values[0];
    record->type = values[1];
    record->id = values[2];
    return !cursor.bad;
}

bool sc_store_record_peek(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS};
    if (peek_first(payload, bytes, record))
        return true;
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON))
        return false;
    record->version = fields[0].value;
    record->type = fields[1].value;
    record->id = fields[2].value;
    return true;
}

bool sc_store_record_get_identity(const uint8_t *payload, uint64_t bytes,
                                  struct sc_store_identity *ret_identity)
{
    struct sc_store_field fields[] = {
        {SC_STORE_FIELD_KEY("magic"), .kind = 's', .max = 64},
        SC_STORE_FIELD_UINT("version", 1, UINT64_MAX),
        {SC_STORE_FIELD_KEY("store_id"), .kind = 'b', .min = 16, .max = 16, .optional = true},
        {SC_STORE_FIELD_KEY("created_ns"), .kind = 'u', .max = UINT64_MAX, .optional = true},
        {SC_STORE_FIELD_KEY("secret"), .kind = 'b', .min = SC_STORE_SECRET_BYTES,
         .max = SC_STORE_SECRET_BYTES, .optional = true}};
    if (!sc_store_fields_read(payload, bytes, fields, 5))
        return false;
    if (fields[0].value != strlen(SC_STORE_IDENTITY_MAGIC) ||
        memcmp(fields[0].bytes, SC_STORE_IDENTITY_MAGIC, fields[0].value) != 0)
        return false;
    *ret_identity =
        (struct sc_store_identity){.version = fields[1].value, .created_ns = fields[3].value};
    if (fields[1].value > SC_STORE_FORMAT_VERSION)
        return true;
    if (!fields[2].seen || !fields[3].seen)
        return false;
    memcpy(ret_identity->store_id, fields[2].bytes, 16);
    if (fields[1].value < SC_STORE_FORMAT_OLDEST)
        return true;
    if (!fields[4].seen)
        return false;
    memcpy(ret_identity->secret, fields[4].bytes, SC_STORE_SECRET_BYTES);
    return true;
}

static bool decode_space(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {
        SC_STORE_COMMON_FIELDS,
        SC_STORE_FIELD_BIN("digest", SC_STORE_HASH_BYTES, SC_STORE_HASH_BYTES),
        SC_STORE_FIELD_UINT("layers", 1, SC_LIMIT_LAYERS),
        SC_STORE_FIELD_UINT("layout", SC_STORE_PAIRED, SC_STORE_SPLIT),
        SC_STORE_FIELD_UINT("krow", 1, SC_STORE_K_ROW_BYTES_MAX),
        {SC_STORE_FIELD_KEY("text"), .kind = 's', .max = SC_STORE_DESCRIPTOR_BYTES},
        SC_STORE_FIELD_BIN("family", SC_STORE_HASH_BYTES, SC_STORE_HASH_BYTES)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 6))
        return false;
    struct sc_store_namespace *space = &record->space.space;
    memcpy(space->digest, fields[SC_STORE_COMMON + 0].bytes, SC_STORE_HASH_BYTES);
    memcpy(space->family, fields[SC_STORE_COMMON + 5].bytes, SC_STORE_HASH_BYTES);
    space->layer_count = (uint32_t)fields[SC_STORE_COMMON + 1].value;
    space->layout = (uint32_t)fields[SC_STORE_COMMON + 2].value;
    space->k_row_bytes = fields[SC_STORE_COMMON + 3].value;
    space->descriptor = (const char *)fields[SC_STORE_COMMON + 4].bytes;
    record->space.descriptor_bytes = fields[SC_STORE_COMMON + 4].value;
    return true;
}

static bool decode_parts(const uint8_t *bytes, const uint8_t *end,
                         struct sc_store_record_extent *extent)
{
    struct sc_store_cursor cursor = {bytes, end, false};
    uint64_t count = sc_store_cursor_array(&cursor);
    if (cursor.bad || count == 0 || count > SC_LIMIT_LAYERS)
        return false;
    uint64_t layer = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (sc_store_cursor_array(&cursor) != 4)
            return false;
        uint64_t segment = sc_store_cursor_uint(&cursor), offset = sc_store_cursor_uint(&cursor);
        uint64_t layer_first = sc_store_cursor_uint(&cursor),
                 layer_count = sc_store_cursor_uint(&cursor);
        if (cursor.bad || segment >= SC_STORE_SEGMENT_NUMBERS || offset % SC_IO_PAGE_BYTES != 0 ||
            layer_first != layer || layer_count == 0 || layer_count > SC_LIMIT_LAYERS - layer)
            return false;
        extent->parts[i] = (struct sc_store_part){.offset = offset,
                                                  .segment = (uint32_t)segment,
                                                  .layer_first = (uint32_t)layer_first,
                                                  .layer_count = (uint32_t)layer_count};
        layer += layer_count;
    }
    extent->part_count = (uint32_t)count;
    return true;
}

static bool decode_provenance(const uint8_t *bytes, const uint8_t *end,
                              struct sc_store_provenance *ret_provenance)
{
    struct sc_store_cursor cursor = {bytes, end, false};
    uint32_t values[7];
    if (sc_store_cursor_array(&cursor) != 7)
        return false;
    for (uint32_t i = 0; i < 7; i++) {
        uint64_t value = sc_store_cursor_uint(&cursor);
        if (cursor.bad || value > UINT32_MAX)
            return false;
        values[i] = (uint32_t)value;
    }
    *ret_provenance = (struct sc_store_provenance){.computed_on = values[0],
                                                   .bits_k = values[2],
                                                   .bits_v = values[3],
                                                   .exact_ppm = values[4],
                                                   .retain_ppm = values[5],
                                                   .metric = values[6]};
    /* values[1] is 0; another value was reserved for extents without rows. */
    return values[0] <= SC_STORE_COMPUTED_MAX && values[1] == 0 && values[4] <= SC_STORE_PPM_MAX &&
           values[5] <= SC_STORE_PPM_MAX;
}

/* A key of another size leaves the salt unknown. */
static void salt_set(struct sc_store_salt *salt, const struct sc_store_field *field)
{
    *salt = (struct sc_store_salt){.state = SC_STORE_SALT_UNKNOWN};
    if (field->seen && field->value == 0)
        salt->state = SC_STORE_SALT_NONE;
    if (!field->seen || field->value != SC_STORE_HASH_BYTES)
        return;
    salt->state = SC_STORE_SALT_KNOWN;
    memcpy(salt->digest, field->bytes, SC_STORE_HASH_BYTES);
}

static bool decode_extent(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {
        SC_STORE_COMMON_FIELDS,
        SC_STORE_FIELD_UINT("ns", 1, UINT32_MAX),
        SC_STORE_FIELD_UINT("copy", 0, UINT64_MAX),
        SC_STORE_FIELD_UINT("rows", 1, SC_STORE_ROWS_MAX),
        SC_STORE_FIELD_UINT("off", 8, UINT64_C(1) << 40),
        SC_STORE_FIELD_UINT("stride", 8, UINT64_C(1) << 40),
        SC_STORE_FIELD_OPTIONAL("prow", 0, SC_STORE_K_ROW_BYTES_MAX),
        SC_STORE_FIELD_OPTIONAL("probe", 0, UINT64_C(1) << 40),
        SC_STORE_FIELD_OPTIONAL("ptags", 0, UINT64_C(1) << 40),
        SC_STORE_FIELD_OPTIONAL("tags", 0, UINT64_C(1) << 40),
        {SC_STORE_FIELD_KEY("prov"), .kind = 'a'},
        {SC_STORE_FIELD_KEY("parts"), .kind = 'a'},
        SC_STORE_FIELD_OPTIONAL("gap", 0, 1),
        {SC_STORE_FIELD_KEY("salt"), .kind = 'b', .max = SC_STORE_HASH_BYTES, .optional = true}};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 13))
        return false;
    struct sc_store_record_extent *extent = &record->extent;
    extent->space = fields[SC_STORE_COMMON + 0].value;
    extent->copy = fields[SC_STORE_COMMON + 1].value;
    extent->row_count = fields[SC_STORE_COMMON + 2].value;
    extent->row_offset = fields[SC_STORE_COMMON + 3].value;
    extent->stride = fields[SC_STORE_COMMON + 4].value;
    extent->probe_row_bytes = fields[SC_STORE_COMMON + 5].value;
    extent->probe_offset = fields[SC_STORE_COMMON + 6].value;
    extent->probe_tag_offset = fields[SC_STORE_COMMON + 7].value;
    extent->tag_offset = fields[SC_STORE_COMMON + 8].value;
    extent->leaves_ids = fields[SC_STORE_COMMON + 11].value == 1;
    salt_set(&extent->salt, &fields[SC_STORE_COMMON + 12]);
    if (extent->row_offset % 8 != 0 || extent->stride % 8 != 0 || extent->probe_offset % 8 != 0 ||
        extent->probe_tag_offset % 8 != 0 || extent->tag_offset % 8 != 0)
        return false;
    return decode_provenance(fields[SC_STORE_COMMON + 9].bytes, payload + bytes,
                             &extent->provenance) &&
           decode_parts(fields[SC_STORE_COMMON + 10].bytes, payload + bytes, extent);
}

bool sc_store_record_extent_fits(const struct sc_store_record_extent *extent, uint64_t tags_per_row,
                                 uint64_t k_row_bytes)
{
    uint64_t rows = extent->row_count;
    uint64_t probe_end = extent->probe_offset + rows * extent->probe_row_bytes;
    if (extent->probe_row_bytes > 0 &&
        (extent->probe_row_bytes > k_row_bytes || extent->probe_tag_offset < probe_end ||
         extent->tag_offset < extent->probe_tag_offset + rows * 8))
        return false;
    return extent->row_offset >= extent->tag_offset + rows * tags_per_row * 8 &&
           extent->stride >= extent->row_offset &&
           extent->stride - extent->row_offset >= rows * 2 * k_row_bytes;
}

/* Checks that exactly the keys of the section's kind are present. own: as in decode_section. */
static bool derived_has(const struct sc_store_field *own)
{
    uint64_t kind = own[0].value;
    bool is_order = kind == SC_STORE_SECTION_PERMUTATION || kind == SC_STORE_SECTION_REPLACED;
    for (uint32_t i = 4; i < 7; i++) /* optional for a copy of the rows */
        if (own[i].seen != (is_order ? own[4].seen : kind == SC_STORE_SECTION_PROBES))
            return false;
    for (uint32_t i = 7; i < 13; i++)
        if (own[i].seen != (kind == SC_STORE_SECTION_QUANT))
            return false;
    for (uint32_t i = 15; i < 18; i++)
        if (own[i].seen != is_order)
            return false;
    if (kind != SC_STORE_SECTION_PROBES && kind != SC_STORE_SECTION_QUANT &&
        kind != SC_STORE_SECTION_RETIRED && !is_order)
        return false;
    return own[13].seen == own[14].seen && (!own[13].seen || kind == SC_STORE_SECTION_QUANT);
}

static bool decode_section(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {
        SC_STORE_COMMON_FIELDS,
        SC_STORE_FIELD_UINT("kind", SC_STORE_SECTION_PROBES, SC_STORE_SECTION_REPLACED),
        SC_STORE_FIELD_UINT("copy", 0, UINT64_MAX),
        SC_STORE_FIELD_UINT("stride", 8, UINT64_C(1) << 40),
        {SC_STORE_FIELD_KEY("parts"), .kind = 'a'},
        SC_STORE_FIELD_OPTIONAL("prow", 1, SC_STORE_K_ROW_BYTES_MAX),
        SC_STORE_FIELD_OPTIONAL("probe", 0, UINT64_C(1) << 40),
        SC_STORE_FIELD_OPTIONAL("ptags", 0, UINT64_C(1) << 40),
        SC_STORE_FIELD_OPTIONAL("bitsk", 1, 8),
        SC_STORE_FIELD_OPTIONAL("bitsv", 1, 8),
        SC_STORE_FIELD_OPTIONAL("group", 0, 7),
        SC_STORE_FIELD_OPTIONAL("scale", 0, UINT64_C(1) << 32),
        SC_STORE_FIELD_OPTIONAL("kcode", 1, SC_STORE_K_ROW_BYTES_MAX),
        SC_STORE_FIELD_OPTIONAL("vcode", 1, SC_STORE_K_ROW_BYTES_MAX),
        /* Bit planes behind the blocks, written before 0.3; ignored. */
        SC_STORE_FIELD_OPTIONAL("kfine", 1, SC_STORE_K_ROW_BYTES_MAX),
        SC_STORE_FIELD_OPTIONAL("vfine", 1, SC_STORE_K_ROW_BYTES_MAX),
        SC_STORE_FIELD_OPTIONAL("tags", 0, UINT64_C(1) << 40),
        SC_STORE_FIELD_OPTIONAL("off", 0, UINT64_C(1) << 40),
        SC_STORE_FIELD_OPTIONAL("at", 0, UINT64_MAX)};
    const struct sc_store_field *own = &fields[SC_STORE_COMMON];
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 18) || !derived_has(own))
        return false;
    struct sc_store_record_extent *derived = &record->extent;
    uint64_t kind = own[0].value;
    derived->copy = own[1].value;
    derived->stride = own[2].value;
    derived->probe_row_bytes = own[4].value; /* absent fields are 0 */
    derived->probe_offset = own[5].value;
    derived->probe_tag_offset = own[6].value;
    derived->is_retired = kind == SC_STORE_SECTION_RETIRED;
    derived->is_replaced = kind == SC_STORE_SECTION_REPLACED;
    derived->is_order = kind == SC_STORE_SECTION_PERMUTATION || derived->is_replaced;
    derived->tag_offset = own[15].value;
    derived->row_offset = own[16].value;
    derived->permuted_at_ns = own[17].value;
    derived->codec_shape = (struct sc_store_codec_shape){0};
    if (kind == SC_STORE_SECTION_QUANT)
        derived->codec_shape = (struct sc_store_codec_shape){.bits_k = (uint32_t)own[7].value,
                                                             .bits_v = (uint32_t)own[8].value,
                                                             .scale_bytes = own[10].value,
                                                             .k_row_bytes = own[11].value,
                                                             .v_row_bytes = own[12].value,
                                                             .form = (uint32_t)own[9].value};
    if ((derived->codec_shape.form & SC_STORE_FORM_K_TURNED) != 0 &&
        (derived->codec_shape.form & SC_STORE_FORM_K_PER_CHANNEL) == 0)
        return false;
    if (derived->codec_shape.form != 0 && derived->codec_shape.scale_bytes % 64 != 0)
        return false;
    return derived->probe_offset % 8 == 0 && derived->probe_tag_offset % 8 == 0 &&
           derived->stride % 8 == 0 && derived->tag_offset % 8 == 0 &&
           derived->row_offset % 8 == 0 && decode_parts(own[3].bytes, payload + bytes, derived);
}

bool sc_store_record_section_fits(const struct sc_store_record_extent *derived, uint64_t row_count,
                                  uint64_t tags_per_row, uint64_t k_row_bytes)
{
    const struct sc_store_codec_shape *codes = &derived->codec_shape;
    if (derived->is_order) {
        struct sc_store_record_extent like = *derived;
        like.row_count = row_count;
        return sc_store_record_extent_fits(&like, tags_per_row, k_row_bytes);
    }
    if (codes->bits_k != 0) /* block ends are checked when read */
        return derived->stride >= row_count * (codes->k_row_bytes + codes->v_row_bytes) +
                                      2 * (16 + codes->scale_bytes) +
                                      sc_store_quant_table_bytes(codes, true) +
                                      sc_store_quant_table_bytes(codes, false);
    return derived->probe_row_bytes <= k_row_bytes &&
           derived->probe_tag_offset >=
               derived->probe_offset + row_count * derived->probe_row_bytes &&
           derived->stride >= derived->probe_tag_offset + row_count * 8;
}

static bool decode_drop(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_UINT("at", 0, UINT64_MAX)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 1))
        return false;
    record->drop.at_ns = fields[SC_STORE_COMMON + 0].value;
    return true;
}

static bool decode_epoch(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_UINT("epoch", 1, UINT64_MAX),
                                      SC_STORE_FIELD_UINT("at", 0, UINT64_MAX)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 2))
        return false;
    record->epoch.epoch = fields[SC_STORE_COMMON + 0].value;
    record->epoch.at_ns = fields[SC_STORE_COMMON + 1].value;
    return true;
}

static bool decode_head(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_UINT("n", 0, UINT64_MAX),
                                      SC_STORE_FIELD_UINT("numbering", 0, UINT64_MAX),
                                      SC_STORE_FIELD_UINT("piece", 1, UINT64_MAX),
                                      SC_STORE_FIELD_UINT("extent", 1, UINT64_MAX),
                                      SC_STORE_FIELD_OPTIONAL("space", 0, UINT32_MAX)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 5))
        return false;
    record->head = (struct sc_store_record_head){.number = fields[SC_STORE_COMMON + 0].value,
                                                 .numbering = fields[SC_STORE_COMMON + 1].value,
                                                 .piece_next = fields[SC_STORE_COMMON + 2].value,
                                                 .extent_next = fields[SC_STORE_COMMON + 3].value,
                                                 .space_next = fields[SC_STORE_COMMON + 4].value};
    return true;
}

static bool decode_segment(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_UINT("bytes", 1, UINT64_C(1) << 30)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 1))
        return false;
    record->segment_bytes = fields[SC_STORE_COMMON + 0].value;
    return record->id < SC_STORE_SEGMENT_NUMBERS && record->segment_bytes % SC_IO_PAGE_BYTES == 0;
}

static bool decode_limits(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_UINT("disk", 2u << 20, UINT64_C(1) << 60)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 1))
        return false;
    record->disk_bytes = fields[SC_STORE_COMMON + 0].value;
    return true;
}

static bool decode_seal(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_UINT("place", 0, UINT16_MAX),
                                      SC_STORE_FIELD_UINT("first", 0, UINT64_MAX),
                                      SC_STORE_FIELD_UINT("bytes", 1, UINT64_C(1) << 48),
                                      SC_STORE_FIELD_UINT("seq", 1, UINT64_MAX),
                                      SC_STORE_FIELD_UINT("chain", 0, UINT64_MAX),
                                      SC_STORE_FIELD_UINT("resets", 0, UINT16_MAX),
                                      SC_STORE_FIELD_UINT("pieces", 0, SC_STORE_IDS),
                                      SC_STORE_FIELD_UINT("n", 0, UINT64_MAX),
                                      SC_STORE_FIELD_UINT("numbering", 0, UINT64_MAX),
                                      SC_STORE_FIELD_UINT("piece", 1, SC_STORE_IDS),
                                      SC_STORE_FIELD_UINT("extent", 1, SC_STORE_IDS),
                                      SC_STORE_FIELD_UINT("space", 0, UINT32_MAX)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 12))
        return false;
    const struct sc_store_field *own = &fields[SC_STORE_COMMON];
    record->seal = (struct sc_store_record_seal){.place = own[0].value,
                                                 .first = own[1].value,
                                                 .bytes = own[2].value,
                                                 .sequence = own[3].value,
                                                 .chain = own[4].value,
                                                 .resets = own[5].value,
                                                 .pieces = own[6].value,
                                                 .head = {.number = own[7].value,
                                                          .numbering = own[8].value,
                                                          .piece_next = own[9].value,
                                                          .extent_next = own[10].value,
                                                          .space_next = own[11].value}};
    return true;
}

static bool decode_average(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_UINT("n", 1, UINT32_MAX),
                                      SC_STORE_FIELD_BIN("codes", 2, SC_STORE_QUANT_BYTES_MAX)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 2) ||
        fields[SC_STORE_COMMON + 1].value % 2 != 0)
        return false;
    record->average =
        (struct sc_store_record_average){.requests = fields[SC_STORE_COMMON + 0].value,
                                         .codes = fields[SC_STORE_COMMON + 1].bytes,
                                         .quant_bytes = fields[SC_STORE_COMMON + 1].value};
    return true;
}

static bool decode_permutation(const uint8_t *payload, uint64_t bytes,
                               struct sc_store_record *record)
{
    struct sc_store_field fields[] = {
        SC_STORE_COMMON_FIELDS, SC_STORE_FIELD_UINT("copy", 0, UINT64_MAX),
        SC_STORE_FIELD_UINT("layer", 0, SC_LIMIT_LAYERS - 1),
        SC_STORE_FIELD_BIN("slots", 2, SC_STORE_PERMUTATION_BYTES_MAX)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 3) ||
        fields[SC_STORE_COMMON + 2].value % 2 != 0)
        return false;
    record->permutation =
        (struct sc_store_record_permutation){.copy = fields[SC_STORE_COMMON + 0].value,
                                             .layer_first = fields[SC_STORE_COMMON + 1].value,
                                             .slots = fields[SC_STORE_COMMON + 2].bytes,
                                             .slots_bytes = fields[SC_STORE_COMMON + 2].value};
    return true;
}

bool sc_store_record_decode(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    switch (record->type) {
    case SC_STORE_RECORD_NAMESPACE:
        return decode_space(payload, bytes, record);
    case SC_STORE_RECORD_EXTENT:
        return decode_extent(payload, bytes, record);
    case SC_STORE_RECORD_PIECE:
        return sc_store_record_decode_piece(payload, bytes, record);
    case SC_STORE_RECORD_DROP:
    case SC_STORE_RECORD_ROWS_GONE:
        return decode_drop(payload, bytes, record);
    case SC_STORE_RECORD_EPOCH:
        return decode_epoch(payload, bytes, record);
    case SC_STORE_RECORD_HEAD:
        return decode_head(payload, bytes, record);
    case SC_STORE_RECORD_AVERAGE:
        return decode_average(payload, bytes, record);
    case SC_STORE_RECORD_SEGMENT:
        return decode_segment(payload, bytes, record);
    case SC_STORE_RECORD_LIMITS:
        return decode_limits(payload, bytes, record);
    case SC_STORE_RECORD_SEAL:
        return decode_seal(payload, bytes, record);
    case SC_STORE_RECORD_SECTION:
        return decode_section(payload, bytes, record);
    case SC_STORE_RECORD_PERMUTATION:
        return decode_permutation(payload, bytes, record);
    default:
        return false;
    }
}
