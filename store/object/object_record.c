/* object_record: records of objects, msgpack maps like all others (store/log/record.h).
 *
 *   domain   {v, t: 11, id, "ident": bin}
 *   objects  {v, t: 12, id: domain, "n", "keys": bin, "lens": [u ..], "copies": bin of u64,
 *             "tags": bin of u64, "sizes": [u ..], "parts": [count, (segment, page, pages) .., ..]}
 *   removal  {v, t: 13, id: 0, "copies": bin of u64}
 *   clear    {v, t: 14, id: domain}
 *
 * Integers in bin are little-endian.
 *
 * Invariants: a decoded object is in range: its parts have exactly its pages. */
#include "store/object/object_record.h"
#include "store/log/record_format.h"

#include <msgpack.h>

#define PAGE ((uint64_t)SC_IO_PAGE_BYTES)

static void pack_key(msgpack_packer *packer, const char *key)
{
    msgpack_pack_str_with_body(packer, key, strlen(key));
}

static msgpack_packer pack_begin(struct sc_store_writer *writer, uint64_t keys, uint64_t type,
                                 uint64_t id)
{
    const struct {
        const char *key;
        uint64_t value;
    } common[SC_STORE_COMMON] = {{"v", SC_STORE_RECORD_VERSION}, {"t", type}, {"id", id}};
    msgpack_packer packer;
    msgpack_packer_init(&packer, writer, sc_store_writer_put);
    msgpack_pack_map(&packer, keys + SC_STORE_COMMON);
    for (uint32_t i = 0; i < SC_STORE_COMMON; i++) {
        pack_key(&packer, common[i].key);
        msgpack_pack_uint64(&packer, common[i].value);
    }
    return packer;
}

static void pack_words(msgpack_packer *packer, const char *key, const void *first, uint64_t stride,
                       uint32_t count)
{
    pack_key(packer, key);
    msgpack_pack_bin(packer, count * 8ull);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t le[8];
        uint64_t word;
        memcpy(&word, (const uint8_t *)first + i * stride, 8);
        sc_store_le_put(le, word, 8);
        msgpack_pack_bin_body(packer, le, 8);
    }
}

void sc_store_record_encode_domain(struct sc_store_writer *writer, uint32_t id,
                                   const uint8_t *identity, uint32_t bytes)
{
    msgpack_packer packer = pack_begin(writer, 1, SC_STORE_RECORD_DOMAIN, id);
    pack_key(&packer, "ident");
    msgpack_pack_bin_with_body(&packer, identity, bytes);
}

static void pack_parts(msgpack_packer *packer, const struct sc_store_object *objects,
                       uint32_t count)
{
    uint64_t words = count;
    for (uint32_t i = 0; i < count; i++)
        words += 3ull * objects[i].part_count;
    pack_key(packer, "parts");
    msgpack_pack_array(packer, words);
    for (uint32_t i = 0; i < count; i++) {
        msgpack_pack_uint32(packer, objects[i].part_count);
        for (uint32_t p = 0; p < objects[i].part_count; p++) {
            msgpack_pack_uint32(packer, objects[i].parts[p].segment);
            msgpack_pack_uint32(packer, objects[i].parts[p].page);
            msgpack_pack_uint32(packer, objects[i].parts[p].pages);
        }
    }
}

void sc_store_record_encode_objects(struct sc_store_writer *writer,
                                    const struct sc_store_object *objects, uint32_t count)
{
    uint64_t key_bytes = 0;
    msgpack_packer packer = pack_begin(writer, 7, SC_STORE_RECORD_OBJECTS, objects[0].domain);
    for (uint32_t i = 0; i < count; i++)
        key_bytes += objects[i].key_bytes;
    pack_key(&packer, "n");
    msgpack_pack_uint32(&packer, count);
    pack_key(&packer, "keys");
    msgpack_pack_bin(&packer, key_bytes);
    for (uint32_t i = 0; i < count; i++)
        msgpack_pack_bin_body(&packer, objects[i].key, objects[i].key_bytes);
    pack_key(&packer, "lens");
    msgpack_pack_array(&packer, count);
    for (uint32_t i = 0; i < count; i++)
        msgpack_pack_uint32(&packer, objects[i].key_bytes);
    pack_words(&packer, "copies", &objects[0].copy, sizeof(objects[0]), count);
    pack_words(&packer, "tags", &objects[0].tag, sizeof(objects[0]), count);
    pack_key(&packer, "sizes");
    msgpack_pack_array(&packer, count);
    for (uint32_t i = 0; i < count; i++)
        msgpack_pack_uint64(&packer, objects[i].bytes);
    pack_parts(&packer, objects, count);
}

void sc_store_record_encode_removal(struct sc_store_writer *writer, const uint64_t *copies,
                                    uint32_t count)
{
    msgpack_packer packer = pack_begin(writer, 1, SC_STORE_RECORD_REMOVAL, 0);
    pack_words(&packer, "copies", copies, sizeof(copies[0]), count);
}

void sc_store_record_encode_clear(struct sc_store_writer *writer, uint32_t domain)
{
    (void)pack_begin(writer, 0, SC_STORE_RECORD_CLEAR, domain);
}

/* ---- Decoding ------------------------------------------------------------------------------- */

bool sc_store_record_get_domain(const uint8_t *payload, uint64_t bytes,
                                const uint8_t **ret_identity, uint32_t *ret_bytes)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_BIN("ident", 0, SC_STORE_DOMAIN_BYTES)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 1))
        return false;
    *ret_identity = fields[SC_STORE_COMMON].bytes;
    *ret_bytes = (uint32_t)fields[SC_STORE_COMMON].value;
    return true;
}

bool sc_store_record_get_removal(const uint8_t *payload, uint64_t bytes, const uint8_t **ret_copies,
                                 uint32_t *ret_count)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_BIN("copies", 8, 8 * SC_STORE_REMOVAL_BATCH)};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 1) ||
        fields[SC_STORE_COMMON].value % 8 != 0)
        return false;
    *ret_copies = fields[SC_STORE_COMMON].bytes;
    *ret_count = (uint32_t)fields[SC_STORE_COMMON].value / 8;
    return true;
}

/* Returns a cursor at an array of `count` numbers. */
static struct sc_store_cursor numbers_begin(const struct sc_store_field *field, const uint8_t *end,
                                            uint64_t count)
{
    struct sc_store_cursor cursor = {field->bytes, end, false};
    if (sc_store_cursor_array(&cursor) != count)
        cursor.bad = true;
    return cursor;
}

static bool decode_parts(struct sc_store_cursor *cursor, struct sc_store_object *object)
{
    uint64_t count = sc_store_cursor_uint(cursor), pages_all = 0;
    if (cursor->bad || count == 0 || count > SC_STORE_OBJECT_PARTS_MAX)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t segment = sc_store_cursor_uint(cursor), page = sc_store_cursor_uint(cursor);
        uint64_t pages = sc_store_cursor_uint(cursor);
        if (cursor->bad || segment >= SC_STORE_SEGMENT_NUMBERS || pages == 0 ||
            pages > UINT32_MAX || page > UINT32_MAX - pages)
            return false;
        object->parts[i] =
            (struct sc_store_object_part){(uint32_t)segment, (uint32_t)page, (uint32_t)pages};
        pages_all += pages;
    }
    object->part_count = (uint32_t)count;
    return pages_all == (object->bytes + PAGE - 1) / PAGE;
}

static bool decode_objects(const struct sc_store_field *fields, const uint8_t *end,
                           struct sc_store_object_batch *batch)
{
    const struct sc_store_field *keys = &fields[1], *copies = &fields[3], *tags = &fields[4];
    uint64_t used = 0, words;
    struct sc_store_cursor lengths = numbers_begin(&fields[2], end, batch->count);
    struct sc_store_cursor sizes = numbers_begin(&fields[5], end, batch->count);
    struct sc_store_cursor parts = {fields[6].bytes, end, false};
    words = sc_store_cursor_array(&parts);
    if (copies->value != 8ull * batch->count || tags->value != copies->value || words == 0)
        return false;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct sc_store_object *object = &batch->objects[i];
        uint64_t key_bytes = sc_store_cursor_uint(&lengths), size = sc_store_cursor_uint(&sizes);
        if (lengths.bad || sizes.bad || key_bytes == 0 || key_bytes > SC_STORE_OBJECT_KEY_BYTES ||
            key_bytes > keys->value - used || size == 0 || size > SC_STORE_OBJECT_BYTES_MAX)
            return false;
        *object = (struct sc_store_object){.copy = sc_store_le_get(copies->bytes + 8ull * i, 8),
                                           .tag = sc_store_le_get(tags->bytes + 8ull * i, 8),
                                           .bytes = size,
                                           .key = keys->bytes + used,
                                           .key_bytes = (uint32_t)key_bytes,
                                           .parts = batch->parts[i]};
        if (!decode_parts(&parts, object) || words < 1 + 3ull * object->part_count)
            return false;
        words -= 1 + 3ull * object->part_count;
        used += key_bytes;
    }
    return used == keys->value && words == 0;
}

bool sc_store_record_get_objects(const uint8_t *payload, uint64_t bytes,
                                 struct sc_store_object_batch *ret_batch)
{
    struct sc_store_field fields[] = {SC_STORE_COMMON_FIELDS,
                                      SC_STORE_FIELD_UINT("n", 1, SC_STORE_OBJECT_BATCH),
                                      SC_STORE_FIELD_BIN("keys", 1, SC_STORE_PAYLOAD_BYTES_MAX),
                                      {SC_STORE_FIELD_KEY("lens"), .kind = 'a'},
                                      SC_STORE_FIELD_BIN("copies", 8, 8 * SC_STORE_OBJECT_BATCH),
                                      SC_STORE_FIELD_BIN("tags", 8, 8 * SC_STORE_OBJECT_BATCH),
                                      {SC_STORE_FIELD_KEY("sizes"), .kind = 'a'},
                                      {SC_STORE_FIELD_KEY("parts"), .kind = 'a'}};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 7) ||
        fields[2].value == 0 || fields[2].value >= SC_STORE_OBJECT_DOMAINS)
        return false;
    ret_batch->count = (uint32_t)fields[SC_STORE_COMMON].value;
    if (!decode_objects(&fields[SC_STORE_COMMON], payload + bytes, ret_batch))
        return false;
    for (uint32_t i = 0; i < ret_batch->count; i++)
        ret_batch->objects[i].domain = (uint32_t)fields[2].value;
    return true;
}
