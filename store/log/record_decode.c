/* record_decode: the out-of-line parts of decoding a msgpack map.
 * Invariants, Threads: store/log/record_decode.h.
 * Tests: tests/unit/store/test_record.c, tests/fuzz/fuzz_log.c */
#include "store/log/record_decode.h"

#define SKIP_DEPTH_MAX 16 /* nesting depth of values with unknown keys */

char sc_store_cursor_head_long(struct sc_store_cursor *cursor, uint64_t tag, uint64_t *ret_size)
{
    if (tag <= 0x8F)
        return *ret_size = tag & 0x0F, 'm';
    if (tag <= 0x9F)
        return *ret_size = tag & 0x0F, 'a';
    if (tag >= 0xE0 || tag == 0xC0 || tag == 0xC2 || tag == 0xC3)
        return 'o'; /* negative, nil, false, true: no bytes follow */
    if (tag >= 0xC4 && tag <= 0xC6)
        return *ret_size = sc_store_cursor_be(cursor, 1u << (tag - 0xC4)), 'b';
    if (tag >= 0xC7 && tag <= 0xC9) /* ext: type byte and data */
        return *ret_size = sc_store_cursor_be(cursor, 1u << (tag - 0xC7)) + 1, 'o';
    if (tag == 0xCA || tag == 0xCB)
        return *ret_size = tag == 0xCA ? 4 : 8, 'o';
    if (tag >= 0xCC && tag <= 0xCF)
        return *ret_size = sc_store_cursor_be(cursor, 1u << (tag - 0xCC)), 'u';
    if (tag >= 0xD0 && tag <= 0xD3)
        return *ret_size = 1u << (tag - 0xD0), 'o';
    if (tag >= 0xD4 && tag <= 0xD8)
        return *ret_size = 1 + (1u << (tag - 0xD4)), 'o';
    if (tag >= 0xD9 && tag <= 0xDB)
        return *ret_size = sc_store_cursor_be(cursor, 1u << (tag - 0xD9)), 's';
    if (tag == 0xDC || tag == 0xDD)
        return *ret_size = sc_store_cursor_be(cursor, tag == 0xDC ? 2 : 4), 'a';
    if (tag == 0xDE || tag == 0xDF)
        return *ret_size = sc_store_cursor_be(cursor, tag == 0xDE ? 2 : 4), 'm';
    cursor->bad = true; /* 0xC1 is not msgpack */
    return 0;
}

/* Skips one value. A stack holds the remaining items of each level; each item has at least one
 * byte, so false counts end with the bytes. */
static void cursor_skip(struct sc_store_cursor *cursor)
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
        char kind = sc_store_cursor_head(cursor, &size);
        if (kind == 's' || kind == 'b' || kind == 'o') {
            (void)sc_store_cursor_take(cursor, size);
        } else if (kind == 'a' || kind == 'm') {
            if (depth == SKIP_DEPTH_MAX) {
                cursor->bad = true;
                return;
            }
            left[depth++] = kind == 'm' ? 2 * size : size;
        }
    }
}

static void field_read(struct sc_store_field *field, struct sc_store_cursor *cursor)
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
    if (sc_store_cursor_head(cursor, &field->value) != field->kind || field->value < field->min ||
        field->value > field->max) {
        cursor->bad = true;
        return;
    }
    if (field->kind != 'u')
        field->bytes = sc_store_cursor_take(cursor, field->value);
}

bool sc_store_fields_read(const uint8_t *payload, uint64_t bytes, struct sc_store_field *fields,
                          uint32_t count)
{
    struct sc_store_cursor cursor = {payload, payload + bytes, false};
    uint64_t pairs, key_bytes;
    uint32_t next = 0;
    if (sc_store_cursor_head(&cursor, &pairs) != 'm')
        return false;
    for (uint64_t i = 0; i < pairs && !cursor.bad; i++) {
        if (sc_store_cursor_head(&cursor, &key_bytes) != 's')
            return false;
        const uint8_t *key = sc_store_cursor_take(&cursor, key_bytes);
        uint32_t tried = 0;
        while (key != NULL && tried < count &&
               !sc_store_field_has_key(&fields[next], key, key_bytes)) {
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
