/* Log records: frames, msgpack encoding, strict decoding.
 *
 * Holds, Does not, Threads: store/record.h.
 * Tests: tests/unit/store/test_record.c, test_log.c, tests/fuzz/fuzz_log.c */
#include "store/record.h"

#include "store/tag.h"

#include <msgpack.h>
#include <string.h>

#define FRAME_MAGIC 0x314C4353u /* "SCL1" */
#define MARK_BYTES  24u         /* token u64, digest[16] */

/* ---- Little-endian integers ----------------------------------------------------------------- */

static void put_le(uint8_t *dst, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        dst[i] = (uint8_t)(value >> (8 * i));
}

/* 1 to 8 bytes. */
static inline uint64_t get_le(const uint8_t *src, uint32_t bytes)
{
    uint64_t value = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(&value, src, bytes); /* one load where `bytes` is constant */
#else
    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint64_t)src[i] << (8 * i);
#endif
    return value;
}

/* ---- Frames --------------------------------------------------------------------------------- */

uint64_t sc_store_frame_seed(const uint8_t store_id[16], uint32_t rank, uint32_t rank_count)
{
    uint8_t bytes[24];
    memcpy(bytes, store_id, 16);
    put_le(bytes + 16, rank, 4);
    put_le(bytes + 20, rank_count, 4);
    return sc_store_checksum(bytes, sizeof(bytes), 0);
}

static uint64_t frame_checksum(const uint8_t *frame, uint64_t payload_bytes, uint64_t chain)
{
    uint64_t seed = sc_store_checksum(frame, 16, chain);
    return sc_store_checksum(frame + SC_STORE_FRAME_BYTES, payload_bytes, seed);
}

enum sc_store_frame_state sc_store_frame_check(const uint8_t *bytes, uint64_t count,
                                               uint64_t sequence, uint64_t *chain,
                                               uint64_t *ret_bytes)
{
    *ret_bytes = SC_STORE_FRAME_BYTES;
    if (count < SC_STORE_FRAME_BYTES)
        return SC_STORE_FRAME_SHORT;
    uint64_t payload_bytes = get_le(bytes + 4, 4);
    if (get_le(bytes, 4) != FRAME_MAGIC || payload_bytes == 0 ||
        payload_bytes > SC_STORE_PAYLOAD_BYTES_MAX || get_le(bytes + 8, 8) != sequence)
        return SC_STORE_FRAME_BAD;
    *ret_bytes = SC_STORE_FRAME_BYTES + payload_bytes;
    if (count < *ret_bytes)
        return SC_STORE_FRAME_SHORT;
    uint64_t checksum = frame_checksum(bytes, payload_bytes, *chain);
    if (get_le(bytes + 16, 8) != checksum)
        return SC_STORE_FRAME_BAD;
    *chain = checksum;
    return SC_STORE_FRAME_OK;
}

uint64_t sc_store_frame_bytes(const uint8_t *frame)
{
    return SC_STORE_FRAME_BYTES + get_le(frame + 4, 4);
}

uint64_t sc_store_frame_chain(const uint8_t *frame)
{
    return get_le(frame + 16, 8);
}

static int writer_put(void *data, const char *bytes, size_t count)
{
    struct sc_store_writer *writer = data;
    if (writer->overflow || count > writer->capacity - writer->used) {
        writer->overflow = true;
        return -1;
    }
    memcpy(writer->bytes + writer->used, bytes, count);
    writer->used += count;
    return 0;
}

uint64_t sc_store_frame_begin(struct sc_store_writer *writer)
{
    static const char empty[SC_STORE_FRAME_BYTES];
    uint64_t begin = writer->used;
    (void)writer_put(writer, empty, sizeof(empty));
    return begin;
}

void sc_store_frame_end(struct sc_store_writer *writer, uint64_t begin, uint64_t sequence,
                        uint64_t *chain)
{
    if (writer->overflow)
        return;
    uint8_t *frame = writer->bytes + begin;
    uint64_t payload_bytes = writer->used - begin - SC_STORE_FRAME_BYTES;
    put_le(frame, FRAME_MAGIC, 4);
    put_le(frame + 4, payload_bytes, 4);
    put_le(frame + 8, sequence, 8);
    *chain = frame_checksum(frame, payload_bytes, *chain);
    put_le(frame + 16, *chain, 8);
}

/* ---- Encoding -------------------------------------------------------------------------------- */

static void pack_key(msgpack_packer *packer, const char *key)
{
    msgpack_pack_str_with_body(packer, key, strlen(key));
}

static void pack_uint(msgpack_packer *packer, const char *key, uint64_t value)
{
    pack_key(packer, key);
    msgpack_pack_uint64(packer, value);
}

static void pack_bin(msgpack_packer *packer, const char *key, const void *bytes, uint64_t count)
{
    pack_key(packer, key);
    msgpack_pack_bin_with_body(packer, bytes, count);
}

static msgpack_packer pack_begin(struct sc_store_writer *writer, uint64_t keys, uint64_t type,
                                 uint64_t id)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, writer, writer_put);
    msgpack_pack_map(&packer, keys + 3);
    pack_uint(&packer, "v", SC_STORE_RECORD_VERSION);
    pack_uint(&packer, "t", type);
    pack_uint(&packer, "id", id);
    return packer;
}

void sc_store_record_put_space(struct sc_store_writer *writer, uint64_t id,
                               const struct sc_store_namespace *space)
{
    msgpack_packer packer = pack_begin(writer, 6, SC_STORE_RECORD_NAMESPACE, id);
    pack_bin(&packer, "digest", space->digest, SC_STORE_HASH_BYTES);
    pack_bin(&packer, "family", space->family, SC_STORE_HASH_BYTES);
    pack_uint(&packer, "layers", space->layer_count);
    pack_uint(&packer, "layout", space->layout);
    pack_uint(&packer, "krow", space->k_row_bytes);
    pack_key(&packer, "text");
    msgpack_pack_str_with_body(&packer, space->descriptor, strlen(space->descriptor));
}

static void pack_provenance(msgpack_packer *packer, const struct sc_store_provenance *prov)
{
    const uint32_t values[7] = {prov->computed_on, prov->held,       prov->bits_k, prov->bits_v,
                                prov->exact_ppm,   prov->retain_ppm, prov->metric};
    pack_key(packer, "prov");
    msgpack_pack_array(packer, 7);
    for (uint32_t i = 0; i < 7; i++)
        msgpack_pack_uint32(packer, values[i]);
}

static void pack_parts(msgpack_packer *packer, const struct sc_store_part *parts, uint32_t count)
{
    pack_key(packer, "parts");
    msgpack_pack_array(packer, count);
    for (uint32_t i = 0; i < count; i++) {
        msgpack_pack_array(packer, 4);
        msgpack_pack_uint32(packer, parts[i].segment);
        msgpack_pack_uint64(packer, parts[i].offset);
        msgpack_pack_uint32(packer, parts[i].layer_first);
        msgpack_pack_uint32(packer, parts[i].layer_count);
    }
}

void sc_store_record_put_extent(struct sc_store_writer *writer, uint64_t id,
                                const struct sc_store_record_extent *extent)
{
    bool has_probes = extent->probe_row_bytes > 0;
    msgpack_packer packer = pack_begin(writer, has_probes ? 10 : 6, SC_STORE_RECORD_EXTENT, id);
    pack_uint(&packer, "ns", extent->space);
    pack_uint(&packer, "rows", extent->row_count);
    pack_uint(&packer, "off", extent->row_offset);
    pack_uint(&packer, "stride", extent->stride);
    if (has_probes) {
        pack_uint(&packer, "prow", extent->probe_row_bytes);
        pack_uint(&packer, "probe", extent->probe_offset);
        pack_uint(&packer, "ptags", extent->probe_tag_offset);
        pack_uint(&packer, "tags", extent->tag_offset);
    }
    pack_provenance(&packer, &extent->provenance);
    pack_parts(&packer, extent->parts, extent->part_count);
}

void sc_store_record_put_annex(struct sc_store_writer *writer, uint64_t extent_id,
                               const struct sc_store_record_extent *annex)
{
    const struct sc_store_code_shape *codes = &annex->code_shape;
    bool has_codes = codes->bits_k != 0;
    msgpack_packer packer = pack_begin(writer, has_codes ? 9 : 6, SC_STORE_RECORD_ANNEX, extent_id);
    pack_uint(&packer, "kind", has_codes ? SC_STORE_ANNEX_CODES : SC_STORE_ANNEX_PROBES);
    if (has_codes) {
        pack_uint(&packer, "bitsk", codes->bits_k);
        pack_uint(&packer, "bitsv", codes->bits_v);
        pack_uint(&packer, "group", 0); /* a scale a channel and slab */
        pack_uint(&packer, "scale", codes->scale_bytes);
        pack_uint(&packer, "kcode", codes->k_row_bytes);
        pack_uint(&packer, "vcode", codes->v_row_bytes);
    } else {
        pack_uint(&packer, "prow", annex->probe_row_bytes);
        pack_uint(&packer, "probe", annex->probe_offset);
        pack_uint(&packer, "ptags", annex->probe_tag_offset);
    }
    pack_uint(&packer, "stride", annex->stride);
    pack_parts(&packer, annex->parts, annex->part_count);
}

static uint64_t piece_token_count(const struct sc_store_piece *piece)
{
    return piece->first_position + piece->row_count - piece->chunk_first;
}

static void pack_tokens(msgpack_packer *packer, const uint32_t *tokens, uint64_t count)
{
    pack_key(packer, "tokens");
    msgpack_pack_bin(packer, count * 4);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t le[4];
        put_le(le, tokens[i], 4);
        msgpack_pack_bin_body(packer, le, 4);
    }
}

static void pack_marks(msgpack_packer *packer, const struct sc_store_mark *marks, uint64_t count)
{
    pack_key(packer, "marks");
    msgpack_pack_bin(packer, count * MARK_BYTES);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t le[MARK_BYTES];
        put_le(le, marks[i].token, 8);
        memcpy(le + 8, marks[i].digest, SC_STORE_HASH_BYTES);
        msgpack_pack_bin_body(packer, le, MARK_BYTES);
    }
}

void sc_store_record_put_piece(struct sc_store_writer *writer, const struct sc_store_piece *piece)
{
    uint64_t keys = piece->mark_count > 0 ? 11 : 10;
    msgpack_packer packer = pack_begin(writer, keys, SC_STORE_RECORD_PIECE, piece->id);
    pack_uint(&packer, "ext", piece->extent);
    pack_uint(&packer, "row", piece->extent_row);
    pack_uint(&packer, "rows", piece->row_count);
    pack_uint(&packer, "skip", piece->skip);
    pack_uint(&packer, "pos", piece->first_position);
    pack_uint(&packer, "chunk", piece->chunk_first);
    pack_bin(&packer, "root", piece->root, SC_STORE_HASH_BYTES);
    pack_bin(&packer, "chash", piece->chunk_hash, SC_STORE_HASH_BYTES);
    pack_bin(&packer, "hash", piece->hash, SC_STORE_HASH_BYTES);
    pack_tokens(&packer, piece->tokens, piece_token_count(piece));
    if (piece->mark_count > 0)
        pack_marks(&packer, piece->marks, piece->mark_count);
}

void sc_store_record_put_drop(struct sc_store_writer *writer, uint64_t piece, uint64_t at_ns)
{
    msgpack_packer packer = pack_begin(writer, 1, SC_STORE_RECORD_DROP, piece);
    pack_uint(&packer, "at", at_ns);
}

void sc_store_record_put_coarse(struct sc_store_writer *writer, uint64_t extent,
                                const struct sc_store_record_coarse *coarse)
{
    msgpack_packer packer = pack_begin(writer, 3, SC_STORE_RECORD_COARSE, extent);
    pack_uint(&packer, "at", coarse->at_ns);
    pack_uint(&packer, "bitsk", coarse->bits_k);
    pack_uint(&packer, "bitsv", coarse->bits_v);
}

void sc_store_record_put_epoch(struct sc_store_writer *writer, uint64_t space, uint64_t epoch,
                               uint64_t at_ns)
{
    msgpack_packer packer = pack_begin(writer, 2, SC_STORE_RECORD_EPOCH, space);
    pack_uint(&packer, "epoch", epoch);
    pack_uint(&packer, "at", at_ns);
}

void sc_store_record_put_head(struct sc_store_writer *writer,
                              const struct sc_store_record_head *head)
{
    msgpack_packer packer = pack_begin(writer, 4, SC_STORE_RECORD_HEAD, 0);
    pack_uint(&packer, "n", head->number);
    pack_uint(&packer, "numbering", head->numbering);
    pack_uint(&packer, "piece", head->piece_next);
    pack_uint(&packer, "extent", head->extent_next);
}

void sc_store_record_put_average(struct sc_store_writer *writer, uint64_t piece, uint64_t requests,
                                 const uint16_t *codes, uint64_t code_count)
{
    msgpack_packer packer = pack_begin(writer, 2, SC_STORE_RECORD_AVERAGE, piece);
    pack_uint(&packer, "n", requests);
    pack_key(&packer, "codes");
    msgpack_pack_bin(&packer, code_count * 2);
    for (uint64_t i = 0; i < code_count; i++) {
        uint8_t le[2];
        put_le(le, codes[i], 2);
        msgpack_pack_bin_body(&packer, le, 2);
    }
}

#define DEVICE_MAGIC   "spec_connector device"
#define IDENTITY_MAGIC "spec_connector store"

void sc_store_record_put_identity(struct sc_store_writer *writer,
                                  const struct sc_store_identity *identity)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, writer, writer_put);
    msgpack_pack_map(&packer, 4);
    pack_key(&packer, "magic");
    msgpack_pack_str_with_body(&packer, IDENTITY_MAGIC, strlen(IDENTITY_MAGIC));
    pack_uint(&packer, "version", identity->version);
    pack_bin(&packer, "store_id", identity->store_id, sizeof(identity->store_id));
    pack_uint(&packer, "created_ns", identity->created_ns);
}

void sc_store_record_put_device(struct sc_store_writer *writer,
                                const struct sc_store_record_device *device)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, writer, writer_put);
    msgpack_pack_map(&packer, 4);
    pack_key(&packer, "magic");
    msgpack_pack_str_with_body(&packer, DEVICE_MAGIC, strlen(DEVICE_MAGIC));
    pack_uint(&packer, "bytes_per_s", device->bytes_per_s);
    pack_uint(&packer, "op_ns", device->op_ns);
    pack_uint(&packer, "measured_ns", device->measured_ns);
}

/* Largest encodings: a key of k characters is k + 1 bytes, an integer 9, a bin header 5. */
uint64_t sc_store_record_bytes_space(uint64_t descriptor_bytes)
{
    return SC_STORE_FRAME_BYTES + 192 + descriptor_bytes;
}

uint64_t sc_store_record_bytes_extent(uint64_t part_count)
{
    return SC_STORE_FRAME_BYTES + 256 + part_count * 25;
}

uint64_t sc_store_record_bytes_piece(uint64_t token_count, uint64_t mark_count)
{
    return SC_STORE_FRAME_BYTES + 256 + token_count * 4 + mark_count * MARK_BYTES;
}

uint64_t sc_store_record_bytes_drop(void)
{
    return SC_STORE_FRAME_BYTES + 48;
}

uint64_t sc_store_record_bytes_coarse(void)
{
    return SC_STORE_FRAME_BYTES + 80;
}

uint64_t sc_store_record_bytes_epoch(void)
{
    return SC_STORE_FRAME_BYTES + 64;
}

uint64_t sc_store_record_bytes_head(void)
{
    return SC_STORE_FRAME_BYTES + 96;
}

uint64_t sc_store_record_bytes_average(uint64_t code_count)
{
    return SC_STORE_FRAME_BYTES + 64 + code_count * 2;
}

uint64_t sc_store_record_bytes_annex(uint64_t part_count)
{
    return SC_STORE_FRAME_BYTES + 192 + part_count * 25;
}

/* ---- Decoding: a cursor over msgpack ---------------------------------------------------------
 *
 * Every step checks that its bytes are there; a step that fails leaves the cursor bad for good. */

#define SKIP_DEPTH_MAX 16 /* nesting of values under unknown keys */

struct cursor {
    const uint8_t *at, *end;
    bool bad;
};

static inline const uint8_t *cursor_take(struct cursor *cursor, uint64_t count)
{
    if (cursor->bad || (uint64_t)(cursor->end - cursor->at) < count) {
        cursor->bad = true;
        return NULL;
    }
    const uint8_t *at = cursor->at;
    cursor->at += count;
    return at;
}

static inline uint64_t cursor_be(struct cursor *cursor, uint32_t bytes)
{
    const uint8_t *at = cursor_take(cursor, bytes);
    uint64_t value = 0;
    for (uint32_t i = 0; at != NULL && i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

/* One value's head. kind: 'u' unsigned, 's' str, 'b' bin, 'a' array, 'm' map, 'o' other (size
 * bytes follow); size: the value, the bytes that follow, or the items. */
static char cursor_head_long(struct cursor *cursor, uint64_t tag, uint64_t *ret_size);

/* What nearly all values of a record are, in line. */
static inline char cursor_head(struct cursor *cursor, uint64_t *ret_size)
{
    const uint8_t *at = cursor_take(cursor, 1);
    *ret_size = 0;
    if (at == NULL)
        return 0;
    if (*at <= 0x7F)
        return *ret_size = *at, 'u';
    if ((*at & 0xE0) == 0xA0)
        return *ret_size = *at & 0x1F, 's';
    return cursor_head_long(cursor, *at, ret_size);
}

static char cursor_head_long(struct cursor *cursor, uint64_t tag, uint64_t *ret_size)
{
    if (tag <= 0x8F)
        return *ret_size = tag & 0x0F, 'm';
    if (tag <= 0x9F)
        return *ret_size = tag & 0x0F, 'a';
    if (tag >= 0xE0 || tag == 0xC0 || tag == 0xC2 || tag == 0xC3)
        return 'o'; /* negative, nil, false, true: nothing follows */
    if (tag >= 0xC4 && tag <= 0xC6)
        return *ret_size = cursor_be(cursor, 1u << (tag - 0xC4)), 'b';
    if (tag >= 0xC7 && tag <= 0xC9) /* ext: a type byte and data */
        return *ret_size = cursor_be(cursor, 1u << (tag - 0xC7)) + 1, 'o';
    if (tag == 0xCA || tag == 0xCB)
        return *ret_size = tag == 0xCA ? 4 : 8, 'o';
    if (tag >= 0xCC && tag <= 0xCF)
        return *ret_size = cursor_be(cursor, 1u << (tag - 0xCC)), 'u';
    if (tag >= 0xD0 && tag <= 0xD3)
        return *ret_size = 1u << (tag - 0xD0), 'o';
    if (tag >= 0xD4 && tag <= 0xD8)
        return *ret_size = 1 + (1u << (tag - 0xD4)), 'o';
    if (tag >= 0xD9 && tag <= 0xDB)
        return *ret_size = cursor_be(cursor, 1u << (tag - 0xD9)), 's';
    if (tag == 0xDC || tag == 0xDD)
        return *ret_size = cursor_be(cursor, tag == 0xDC ? 2 : 4), 'a';
    if (tag == 0xDE || tag == 0xDF)
        return *ret_size = cursor_be(cursor, tag == 0xDE ? 2 : 4), 'm';
    cursor->bad = true; /* 0xC1 is no msgpack */
    return 0;
}

/* Items that remain at each level stand on a stack of SKIP_DEPTH_MAX. Each item has a byte at
 * least, so claimed counts end at the end of the bytes. */
static void cursor_skip(struct cursor *cursor)
{
    uint64_t left[SKIP_DEPTH_MAX];
    uint32_t depth = 1;
    left[0] = 1;
    while (depth > 0 && !cursor->bad) {
        if (left[depth - 1] == 0) {
            depth--;
            continue;
        }
        left[depth - 1]--;
        uint64_t size;
        char kind = cursor_head(cursor, &size);
        if (kind == 's' || kind == 'b' || kind == 'o') {
            (void)cursor_take(cursor, size);
        } else if (kind == 'a' || kind == 'm') {
            if (depth == SKIP_DEPTH_MAX) {
                cursor->bad = true;
                return;
            }
            left[depth++] = kind == 'm' ? 2 * size : size;
        }
    }
}

static uint64_t cursor_uint(struct cursor *cursor)
{
    uint64_t size;
    if (cursor_head(cursor, &size) != 'u')
        cursor->bad = true;
    return size;
}

static uint64_t cursor_array(struct cursor *cursor)
{
    uint64_t size;
    if (cursor_head(cursor, &size) != 'a')
        cursor->bad = true;
    return size;
}

/* A key of a record: where its value goes. */
struct field {
    const char *key;
    uint8_t key_bytes;
    char kind;     /* as cursor_head's; 'a': the cursor is left in `bytes` for the caller */
    bool optional; /* may be absent */
    bool seen;
    uint64_t min, max; /* 'u': of the value; 's', 'b': of the size in bytes */
    uint64_t value;    /* 'u': the value; 's', 'b': size in bytes */
    const uint8_t *bytes;
};

static void field_read(struct field *field, struct cursor *cursor)
{
    if (field->seen) { /* twice */
        cursor->bad = true;
        return;
    }
    field->seen = true;
    field->bytes = cursor->at;
    if (field->kind == 'a') {
        cursor_skip(cursor);
        return;
    }
    if (cursor_head(cursor, &field->value) != field->kind || field->value < field->min ||
        field->value > field->max) {
        cursor->bad = true;
        return;
    }
    if (field->kind != 'u')
        field->bytes = cursor_take(cursor, field->value);
}

static inline bool field_has_key(const struct field *field, const uint8_t *key, uint64_t bytes)
{
    if (field->key_bytes != bytes)
        return false;
    for (uint64_t i = 0; i < bytes; i++)
        if ((uint8_t)field->key[i] != key[i])
            return false;
    return true;
}

/* Keys may come in any order; in that of `fields` they are found without a search. */
static bool map_decode(const uint8_t *payload, uint64_t bytes, struct field *fields, uint32_t count)
{
    struct cursor cursor = {payload, payload + bytes, false};
    uint64_t pairs, key_bytes;
    uint32_t next = 0;
    if (cursor_head(&cursor, &pairs) != 'm')
        return false;
    for (uint64_t i = 0; i < pairs && !cursor.bad; i++) {
        if (cursor_head(&cursor, &key_bytes) != 's')
            return false;
        const uint8_t *key = cursor_take(&cursor, key_bytes);
        uint32_t tried = 0;
        while (key != NULL && tried < count && !field_has_key(&fields[next], key, key_bytes)) {
            next = next + 1 == count ? 0 : next + 1;
            tried++;
        }
        if (key == NULL || tried == count) {
            cursor_skip(&cursor);
            continue;
        }
        field_read(&fields[next], &cursor);
        next = next + 1 == count ? 0 : next + 1;
    }
    for (uint32_t f = 0; f < count; f++)
        if (!fields[f].seen && !fields[f].optional)
            return false;
    return !cursor.bad && cursor.at == cursor.end;
}

#define FIELD_KEY(name) .key = (name), .key_bytes = sizeof(name) - 1
#define FIELD_UINT(name, low, high)                                                                \
    {                                                                                              \
        FIELD_KEY(name), .kind = 'u', .min = (low), .max = (high)                                  \
    }
#define FIELD_OPTIONAL(name, low, high)                                                            \
    {                                                                                              \
        FIELD_KEY(name), .kind = 'u', .min = (low), .max = (high), .optional = true                \
    }
#define FIELD_BIN(name, low, high)                                                                 \
    {                                                                                              \
        FIELD_KEY(name), .kind = 'b', .min = (low), .max = (high)                                  \
    }

/* Every record has them first; the decoders read them again, so that none may come twice. */
#define COMMON 3u
#define FIELDS_COMMON                                                                              \
    FIELD_UINT("v", 0, UINT64_MAX), FIELD_UINT("t", 0, UINT64_MAX), FIELD_UINT("id", 0, UINT64_MAX)

/* As our encoder puts them: the first three keys, in order. */
static bool peek_first(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct cursor cursor = {payload, payload + bytes, false};
    static const char keys[COMMON][3] = {"v", "t", "id"};
    uint64_t values[COMMON], size;
    if (cursor_head(&cursor, &size) != 'm' || size < COMMON)
        return false;
    for (uint32_t i = 0; i < COMMON; i++) {
        struct field field = {.key = keys[i], .key_bytes = i == 2 ? 2 : 1};
        if (cursor_head(&cursor, &size) != 's')
            return false;
        const uint8_t *key = cursor_take(&cursor, size);
        if (key == NULL || !field_has_key(&field, key, size) ||
            cursor_head(&cursor, &values[i]) != 'u')
            return false;
    }
    record->version = values[0];
    record->type = values[1];
    record->id = values[2];
    return !cursor.bad;
}

bool sc_store_record_peek(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field fields[] = {FIELDS_COMMON};
    if (peek_first(payload, bytes, record))
        return true;
    if (!map_decode(payload, bytes, fields, COMMON))
        return false;
    record->version = fields[0].value;
    record->type = fields[1].value;
    record->id = fields[2].value;
    return true;
}

bool sc_store_record_get_identity(const uint8_t *payload, uint64_t bytes,
                                  struct sc_store_identity *ret_identity)
{
    struct field fields[] = {
        {FIELD_KEY("magic"), .kind = 's', .max = 64},
        FIELD_UINT("version", 1, UINT64_MAX),
        {FIELD_KEY("store_id"), .kind = 'b', .min = 16, .max = 16, .optional = true},
        {FIELD_KEY("created_ns"), .kind = 'u', .max = UINT64_MAX, .optional = true}};
    if (!map_decode(payload, bytes, fields, 4))
        return false;
    if (fields[0].value != strlen(IDENTITY_MAGIC) ||
        memcmp(fields[0].bytes, IDENTITY_MAGIC, fields[0].value) != 0)
        return false;
    *ret_identity =
        (struct sc_store_identity){.version = fields[1].value, .created_ns = fields[3].value};
    if (fields[1].value > SC_STORE_FORMAT_VERSION)
        return true;
    if (!fields[2].seen || !fields[3].seen)
        return false;
    memcpy(ret_identity->store_id, fields[2].bytes, 16);
    return true;
}

bool sc_store_record_get_device(const uint8_t *payload, uint64_t bytes,
                                struct sc_store_record_device *ret_device)
{
    struct field fields[] = {{FIELD_KEY("magic"), .kind = 's', .max = 64},
                             FIELD_UINT("bytes_per_s", 0, UINT64_MAX),
                             FIELD_UINT("op_ns", 0, UINT64_MAX),
                             FIELD_UINT("measured_ns", 0, UINT64_MAX)};
    if (!map_decode(payload, bytes, fields, 4) || fields[0].value != strlen(DEVICE_MAGIC) ||
        memcmp(fields[0].bytes, DEVICE_MAGIC, fields[0].value) != 0)
        return false;
    *ret_device = (struct sc_store_record_device){
        .bytes_per_s = fields[1].value, .op_ns = fields[2].value, .measured_ns = fields[3].value};
    return true;
}

static bool decode_space(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field fields[] = {FIELDS_COMMON,
                             FIELD_BIN("digest", SC_STORE_HASH_BYTES, SC_STORE_HASH_BYTES),
                             FIELD_UINT("layers", 1, SC_LIMIT_LAYERS),
                             FIELD_UINT("layout", SC_STORE_PAIRED, SC_STORE_SPLIT),
                             FIELD_UINT("krow", 1, SC_STORE_K_ROW_BYTES_MAX),
                             {FIELD_KEY("text"), .kind = 's', .max = SC_STORE_DESCRIPTOR_BYTES},
                             FIELD_BIN("family", SC_STORE_HASH_BYTES, SC_STORE_HASH_BYTES)};
    if (!map_decode(payload, bytes, fields, COMMON + 6))
        return false;
    struct sc_store_namespace *space = &record->space.space;
    memcpy(space->digest, fields[COMMON + 0].bytes, SC_STORE_HASH_BYTES);
    memcpy(space->family, fields[COMMON + 5].bytes, SC_STORE_HASH_BYTES);
    space->layer_count = (uint32_t)fields[COMMON + 1].value;
    space->layout = (uint32_t)fields[COMMON + 2].value;
    space->k_row_bytes = fields[COMMON + 3].value;
    space->descriptor = (const char *)fields[COMMON + 4].bytes;
    record->space.descriptor_bytes = fields[COMMON + 4].value;
    return true;
}

static bool decode_parts(const uint8_t *bytes, const uint8_t *end,
                         struct sc_store_record_extent *extent)
{
    struct cursor cursor = {bytes, end, false};
    uint64_t count = cursor_array(&cursor);
    if (cursor.bad || count == 0 || count > SC_LIMIT_LAYERS)
        return false;
    uint64_t layer = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (cursor_array(&cursor) != 4)
            return false;
        uint64_t segment = cursor_uint(&cursor), offset = cursor_uint(&cursor);
        uint64_t layer_first = cursor_uint(&cursor), layer_count = cursor_uint(&cursor);
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
    struct cursor cursor = {bytes, end, false};
    uint32_t values[7];
    if (cursor_array(&cursor) != 7)
        return false;
    for (uint32_t i = 0; i < 7; i++) {
        uint64_t value = cursor_uint(&cursor);
        if (cursor.bad || value > UINT32_MAX)
            return false;
        values[i] = (uint32_t)value;
    }
    *ret_provenance = (struct sc_store_provenance){.computed_on = values[0],
                                                   .held = values[1],
                                                   .bits_k = values[2],
                                                   .bits_v = values[3],
                                                   .exact_ppm = values[4],
                                                   .retain_ppm = values[5],
                                                   .metric = values[6]};
    return values[0] <= SC_STORE_COMPUTED_MAX && values[1] <= SC_STORE_HELD_MAX &&
           values[4] <= SC_STORE_PPM_MAX && values[5] <= SC_STORE_PPM_MAX;
}

static bool decode_extent(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field fields[] = {FIELDS_COMMON,
                             FIELD_UINT("ns", 1, UINT32_MAX),
                             FIELD_UINT("rows", 1, SC_STORE_ROWS_MAX),
                             FIELD_UINT("off", 8, UINT64_C(1) << 40),
                             FIELD_UINT("stride", 8, UINT64_C(1) << 40),
                             FIELD_OPTIONAL("prow", 0, SC_STORE_K_ROW_BYTES_MAX),
                             FIELD_OPTIONAL("probe", 0, UINT64_C(1) << 40),
                             FIELD_OPTIONAL("ptags", 0, UINT64_C(1) << 40),
                             FIELD_OPTIONAL("tags", 0, UINT64_C(1) << 40),
                             {FIELD_KEY("prov"), .kind = 'a'},
                             {FIELD_KEY("parts"), .kind = 'a'}};
    if (!map_decode(payload, bytes, fields, COMMON + 10))
        return false;
    struct sc_store_record_extent *extent = &record->extent;
    extent->space = fields[COMMON + 0].value;
    extent->row_count = fields[COMMON + 1].value;
    extent->row_offset = fields[COMMON + 2].value;
    extent->stride = fields[COMMON + 3].value;
    extent->probe_row_bytes = fields[COMMON + 4].value;
    extent->probe_offset = fields[COMMON + 5].value;
    extent->probe_tag_offset = fields[COMMON + 6].value;
    extent->tag_offset = fields[COMMON + 7].value;
    if (extent->row_offset % 8 != 0 || extent->stride % 8 != 0 || extent->probe_offset % 8 != 0 ||
        extent->probe_tag_offset % 8 != 0 || extent->tag_offset % 8 != 0)
        return false;
    return decode_provenance(fields[COMMON + 8].bytes, payload + bytes, &extent->provenance) &&
           decode_parts(fields[COMMON + 9].bytes, payload + bytes, extent);
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

/* Of what the kind needs, nothing is absent, and of the other kind's there is nothing. */
static bool decode_annex(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field fields[] = {FIELDS_COMMON,
                             FIELD_UINT("kind", SC_STORE_ANNEX_PROBES, SC_STORE_ANNEX_CODES),
                             FIELD_UINT("stride", 8, UINT64_C(1) << 40),
                             {FIELD_KEY("parts"), .kind = 'a'},
                             FIELD_OPTIONAL("prow", 1, SC_STORE_K_ROW_BYTES_MAX),
                             FIELD_OPTIONAL("probe", 0, UINT64_C(1) << 40),
                             FIELD_OPTIONAL("ptags", 0, UINT64_C(1) << 40),
                             FIELD_OPTIONAL("bitsk", 2, 8),
                             FIELD_OPTIONAL("bitsv", 2, 8),
                             FIELD_OPTIONAL("group", 0, 0),
                             FIELD_OPTIONAL("scale", 0, UINT64_C(1) << 32),
                             FIELD_OPTIONAL("kcode", 1, SC_STORE_K_ROW_BYTES_MAX),
                             FIELD_OPTIONAL("vcode", 1, SC_STORE_K_ROW_BYTES_MAX)};
    const struct field *own = &fields[COMMON];
    if (!map_decode(payload, bytes, fields, COMMON + 12))
        return false;
    struct sc_store_record_extent *annex = &record->extent;
    bool is_codes = own[0].value == SC_STORE_ANNEX_CODES;
    for (uint32_t i = 3; i < 12; i++)
        if (own[i].seen != (is_codes == (i >= 6)))
            return false;
    if (!is_codes && own[0].value != SC_STORE_ANNEX_PROBES)
        return false;
    annex->stride = own[1].value;
    annex->probe_row_bytes = is_codes ? 0 : own[3].value;
    annex->probe_offset = is_codes ? 0 : own[4].value;
    annex->probe_tag_offset = is_codes ? 0 : own[5].value;
    annex->code_shape = (struct sc_store_code_shape){0};
    if (is_codes)
        annex->code_shape = (struct sc_store_code_shape){.bits_k = (uint32_t)own[6].value,
                                                         .bits_v = (uint32_t)own[7].value,
                                                         .scale_bytes = own[9].value,
                                                         .k_row_bytes = own[10].value,
                                                         .v_row_bytes = own[11].value};
    return annex->probe_offset % 8 == 0 && annex->probe_tag_offset % 8 == 0 &&
           annex->stride % 8 == 0 && decode_parts(own[2].bytes, payload + bytes, annex);
}

bool sc_store_record_annex_fits(const struct sc_store_record_extent *annex, uint64_t row_count,
                                uint64_t k_row_bytes)
{
    const struct sc_store_code_shape *codes = &annex->code_shape;
    if (codes->bits_k != 0) /* where each block ends is looked at when it is read */
        return annex->stride >= row_count * (codes->k_row_bytes + codes->v_row_bytes) +
                                    2 * (16 + codes->scale_bytes);
    return annex->probe_row_bytes <= k_row_bytes &&
           annex->probe_tag_offset >= annex->probe_offset + row_count * annex->probe_row_bytes &&
           annex->stride >= annex->probe_tag_offset + row_count * 8;
}

/* Lists of the piece, whose other members are decoded. Marks ascend inside the piece's tokens. */
static bool decode_piece_lists(const struct field *tokens, const struct field *marks,
                               struct sc_store_record *record)
{
    struct sc_store_piece *piece = &record->piece;
    uint64_t token_count = piece_token_count(piece);
    if (tokens->value != 4 * token_count)
        return false;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(record->tokens, tokens->bytes, 4 * token_count);
#else
    for (uint64_t i = 0; i < token_count; i++)
        record->tokens[i] = (uint32_t)get_le(tokens->bytes + 4 * i, 4);
#endif
    piece->tokens = record->tokens;
    if (!marks->seen)
        return true;
    if (marks->value % MARK_BYTES != 0)
        return false;
    uint64_t low = piece->chunk_first, end = piece->first_position + piece->row_count;
    piece->mark_count = (uint32_t)(marks->value / MARK_BYTES);
    for (uint64_t i = 0; i < piece->mark_count; i++) {
        struct sc_store_mark *mark = &record->marks[i];
        mark->token = get_le(marks->bytes + MARK_BYTES * i, 8);
        memcpy(mark->digest, marks->bytes + MARK_BYTES * i + 8, SC_STORE_HASH_BYTES);
        if (mark->token < low || mark->token >= end)
            return false;
        low = mark->token;
    }
    piece->marks = record->marks;
    return true;
}

/* ---- Pieces as our encoder puts them ---------------------------------------------------------
 *
 * Nearly all records, and half the time that a log takes: read without a look at the end, which is
 * farther than any key or value of them reaches, but for the tokens. */

/* A map's head, 13 keys, integers of 9 bytes, bins of hashes, the tokens' tag and what is read
 * behind it. */
#define PLAIN_HEAD_BYTES_MAX (1u + 58u + 9u * 9u + 3u * 18u + 1u + 8u)

/* Steps over the text; false: it is not there. */
#define PLAIN_IS(at, text)                                                                         \
    (memcmp((at), (text), sizeof(text) - 1) == 0 && ((at) += sizeof(text) - 1, true))

static inline uint64_t plain_be(const uint8_t *at, uint32_t bytes)
{
    uint64_t value;
    memcpy(&value, at, 8); /* as many bytes as the largest */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value >> (64 - 8 * bytes);
}

/* The integer; not one: *is_bad. */
static inline uint64_t plain_uint(const uint8_t **at, bool *is_bad)
{
    uint8_t tag = *(*at)++;
    if (tag <= 0x7F)
        return tag;
    if (tag < 0xCC || tag > 0xCF) {
        *is_bad = true;
        return 0;
    }
    uint32_t bytes = 1u << (tag - 0xCC);
    uint64_t value = plain_be(*at, bytes);
    *at += bytes;
    return value;
}

static inline bool plain_hash(const uint8_t **at, uint8_t ret_hash[SC_STORE_HASH_BYTES])
{
    if ((*at)[0] != 0xC4 || (*at)[1] != SC_STORE_HASH_BYTES)
        return false;
    memcpy(ret_hash, *at + 2, SC_STORE_HASH_BYTES);
    *at += 2 + SC_STORE_HASH_BYTES;
    return true;
}

/* Up to the hashes. */
static inline bool plain_numbers(const uint8_t **cursor, struct sc_store_piece *piece)
{
    const uint8_t *at = *cursor;
    bool is_bad = false;
    if (!PLAIN_IS(at, "\x8d\xa1v") || plain_uint(&at, &is_bad) != SC_STORE_RECORD_VERSION ||
        !PLAIN_IS(at, "\xa1t") || plain_uint(&at, &is_bad) != SC_STORE_RECORD_PIECE ||
        !PLAIN_IS(at, "\xa2id"))
        return false;
    uint64_t id = plain_uint(&at, &is_bad);
    uint64_t extent = PLAIN_IS(at, "\xa3\x65xt") ? plain_uint(&at, &is_bad) : 0;
    uint64_t row = PLAIN_IS(at, "\xa3row") ? plain_uint(&at, &is_bad) : UINT64_MAX;
    uint64_t rows = PLAIN_IS(at, "\xa4rows") ? plain_uint(&at, &is_bad) : 0;
    uint64_t skip = PLAIN_IS(at, "\xa4skip") ? plain_uint(&at, &is_bad) : UINT64_MAX;
    uint64_t position = PLAIN_IS(at, "\xa3pos") ? plain_uint(&at, &is_bad) : UINT64_MAX;
    uint64_t chunk = PLAIN_IS(at, "\xa5\x63hunk") ? plain_uint(&at, &is_bad) : UINT64_MAX;
    if (is_bad || extent == 0 || row >= SC_STORE_ROWS_MAX || rows == 0 ||
        rows > SC_STORE_ROWS_MAX || skip >= SC_STORE_ROWS_MAX || position > SC_STORE_POSITION_MAX ||
        chunk > SC_STORE_POSITION_MAX)
        return false;
    *cursor = at;
    *piece = (struct sc_store_piece){.id = id,
                                     .extent = extent,
                                     .extent_row = (uint32_t)row,
                                     .row_count = (uint32_t)rows,
                                     .skip = (uint32_t)skip,
                                     .first_position = position,
                                     .chunk_first = chunk};
    return true;
}

/* False: maybe it is good all the same. tokens: where they lie. */
static bool decode_piece_fast(const uint8_t *payload, uint64_t bytes, struct sc_store_piece *piece,
                              struct field *ret_tokens)
{
    const uint8_t *at = payload;
    if (bytes < PLAIN_HEAD_BYTES_MAX || !plain_numbers(&at, piece) || !PLAIN_IS(at, "\xa4root") ||
        !plain_hash(&at, piece->root) || !PLAIN_IS(at, "\xa5\x63hash") ||
        !plain_hash(&at, piece->chunk_hash) || !PLAIN_IS(at, "\xa4hash") ||
        !plain_hash(&at, piece->hash) || !PLAIN_IS(at, "\xa6tokens"))
        return false;
    uint8_t tag = *at++;
    if (tag < 0xC4 || tag > 0xC6)
        return false;
    ret_tokens->value = plain_be(at, 1u << (tag - 0xC4));
    ret_tokens->bytes = at + (1u << (tag - 0xC4));
    return (uint64_t)(ret_tokens->bytes - payload) + ret_tokens->value == bytes;
}

static bool decode_piece_any(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record,
                             struct field *ret_tokens, struct field *ret_marks)
{
    struct field fields[] = {FIELDS_COMMON,
                             FIELD_UINT("ext", 1, UINT64_MAX),
                             FIELD_UINT("row", 0, SC_STORE_ROWS_MAX - 1),
                             FIELD_UINT("rows", 1, SC_STORE_ROWS_MAX),
                             FIELD_UINT("skip", 0, SC_STORE_ROWS_MAX - 1),
                             FIELD_UINT("pos", 0, SC_STORE_POSITION_MAX),
                             FIELD_UINT("chunk", 0, SC_STORE_POSITION_MAX),
                             FIELD_BIN("root", SC_STORE_HASH_BYTES, SC_STORE_HASH_BYTES),
                             FIELD_BIN("chash", SC_STORE_HASH_BYTES, SC_STORE_HASH_BYTES),
                             FIELD_BIN("hash", SC_STORE_HASH_BYTES, SC_STORE_HASH_BYTES),
                             FIELD_BIN("tokens", 4, 4 * SC_STORE_ROWS_MAX),
                             {FIELD_KEY("marks"), .kind = 'b', .min = MARK_BYTES,
                              .max = MARK_BYTES * SC_STORE_MARKS_MAX, .optional = true}};
    if (!map_decode(payload, bytes, fields, COMMON + 11))
        return false;
    struct sc_store_piece *piece = &record->piece;
    *piece = (struct sc_store_piece){.id = record->id,
                                     .extent = fields[COMMON + 0].value,
                                     .extent_row = (uint32_t)fields[COMMON + 1].value,
                                     .row_count = (uint32_t)fields[COMMON + 2].value,
                                     .skip = (uint32_t)fields[COMMON + 3].value,
                                     .first_position = fields[COMMON + 4].value,
                                     .chunk_first = fields[COMMON + 5].value};
    memcpy(piece->root, fields[COMMON + 6].bytes, SC_STORE_HASH_BYTES);
    memcpy(piece->chunk_hash, fields[COMMON + 7].bytes, SC_STORE_HASH_BYTES);
    memcpy(piece->hash, fields[COMMON + 8].bytes, SC_STORE_HASH_BYTES);
    *ret_tokens = fields[COMMON + 9];
    *ret_marks = fields[COMMON + 10];
    return true;
}

static bool piece_fits(const struct sc_store_piece *piece)
{
    return piece->chunk_first <= piece->first_position && piece->skip < piece->row_count &&
           piece_token_count(piece) <= SC_STORE_ROWS_MAX;
}

static bool decode_piece(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field tokens = {.kind = 'b'}, marks = {.kind = 'b'};
    return (decode_piece_fast(payload, bytes, &record->piece, &tokens) ||
            decode_piece_any(payload, bytes, record, &tokens, &marks)) &&
           piece_fits(&record->piece) && decode_piece_lists(&tokens, &marks, record);
}

bool sc_store_record_decode_plain(uint8_t *payload, uint64_t bytes,
                                  struct sc_store_piece *ret_piece)
{
    struct field tokens = {.kind = 'b'};
    if (!decode_piece_fast(payload, bytes, ret_piece, &tokens) || !piece_fits(ret_piece) ||
        tokens.value != 4 * piece_token_count(ret_piece))
        return false;
    uint8_t *at = payload + (tokens.bytes - payload);
    uint8_t *aligned = at - (uintptr_t)at % sizeof(uint32_t); /* over the head of their bin */
    memmove(aligned, at, tokens.value);
    uint32_t *words = (uint32_t *)(void *)aligned;
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    for (uint64_t i = 0; i < tokens.value / 4; i++)
        words[i] = (uint32_t)get_le(aligned + 4 * i, 4);
#endif
    ret_piece->tokens = words;
    return true;
}

static bool decode_drop(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field fields[] = {FIELDS_COMMON, FIELD_UINT("at", 0, UINT64_MAX)};
    if (!map_decode(payload, bytes, fields, COMMON + 1))
        return false;
    record->drop.at_ns = fields[COMMON + 0].value;
    return true;
}

static bool decode_epoch(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field fields[] = {FIELDS_COMMON, FIELD_UINT("epoch", 1, UINT64_MAX),
                             FIELD_UINT("at", 0, UINT64_MAX)};
    if (!map_decode(payload, bytes, fields, COMMON + 2))
        return false;
    record->epoch.epoch = fields[COMMON + 0].value;
    record->epoch.at_ns = fields[COMMON + 1].value;
    return true;
}

static bool decode_head(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field fields[] = {
        FIELDS_COMMON, FIELD_UINT("n", 0, UINT64_MAX), FIELD_UINT("numbering", 0, UINT64_MAX),
        FIELD_UINT("piece", 1, UINT64_MAX), FIELD_UINT("extent", 1, UINT64_MAX)};
    if (!map_decode(payload, bytes, fields, COMMON + 4))
        return false;
    record->head = (struct sc_store_record_head){.number = fields[COMMON + 0].value,
                                                 .numbering = fields[COMMON + 1].value,
                                                 .piece_next = fields[COMMON + 2].value,
                                                 .extent_next = fields[COMMON + 3].value};
    return true;
}

static bool decode_coarse(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field fields[] = {FIELDS_COMMON, FIELD_UINT("at", 0, UINT64_MAX - 1),
                             FIELD_UINT("bitsk", 2, 8), FIELD_UINT("bitsv", 2, 8)};
    if (!map_decode(payload, bytes, fields, COMMON + 3))
        return false;
    record->coarse = (struct sc_store_record_coarse){.at_ns = fields[COMMON + 0].value,
                                                     .bits_k = (uint32_t)fields[COMMON + 1].value,
                                                     .bits_v = (uint32_t)fields[COMMON + 2].value};
    return true;
}

static bool decode_average(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record)
{
    struct field fields[] = {FIELDS_COMMON, FIELD_UINT("n", 1, UINT32_MAX),
                             FIELD_BIN("codes", 2, SC_STORE_CODES_BYTES_MAX)};
    if (!map_decode(payload, bytes, fields, COMMON + 2) || fields[COMMON + 1].value % 2 != 0)
        return false;
    record->average = (struct sc_store_record_average){.requests = fields[COMMON + 0].value,
                                                       .codes = fields[COMMON + 1].bytes,
                                                       .codes_bytes = fields[COMMON + 1].value};
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
        return decode_piece(payload, bytes, record);
    case SC_STORE_RECORD_DROP:
        return decode_drop(payload, bytes, record);
    case SC_STORE_RECORD_EPOCH:
        return decode_epoch(payload, bytes, record);
    case SC_STORE_RECORD_HEAD:
        return decode_head(payload, bytes, record);
    case SC_STORE_RECORD_AVERAGE:
        return decode_average(payload, bytes, record);
    case SC_STORE_RECORD_ANNEX:
        return decode_annex(payload, bytes, record);
    case SC_STORE_RECORD_COARSE:
        return decode_coarse(payload, bytes, record);
    default:
        return false;
    }
}
