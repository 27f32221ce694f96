/* record_decode: strict decoding of a msgpack map with known keys: a cursor and a list of fields.
 *
 *   bytes    [map 5]["v"][1]["t"][2]["x"][[1, 2, 3]]...
 *   cursor    ^ every step checks that its bytes exist; a failed step makes it bad for good
 *   fields   {"v", u, 0..max}{"t", u, ...}    each at most once, in range; other keys are skipped
 *
 * Invariants: reads each byte once and none past the end, whatever lengths the bytes claim. No
 * allocation, no copy: str, bin and arrays stay in place.
 * Threads: any.
 * Tests: tests/unit/store/test_record.c, tests/fuzz/fuzz_log.c */
#ifndef SC_STORE_LOG_RECORD_DECODE_H
#define SC_STORE_LOG_RECORD_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- The cursor ----------------------------------------------------------------------------- */

struct sc_store_cursor {
    const uint8_t *at, *end;
    bool bad;
};

static inline const uint8_t *sc_store_cursor_take(struct sc_store_cursor *cursor, uint64_t count)
{
    if (cursor->bad || (uint64_t)(cursor->end - cursor->at) < count) {
        cursor->bad = true;
        return NULL;
    }
    const uint8_t *at = cursor->at;
    cursor->at += count;
    return at;
}

static inline uint64_t sc_store_cursor_be(struct sc_store_cursor *cursor, uint32_t bytes)
{
    const uint8_t *at = sc_store_cursor_take(cursor, bytes);
    uint64_t value = 0;
    for (uint32_t i = 0; at != NULL && i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

/* Reads a value's head. Returns 'u' unsigned, 's' str, 'b' bin, 'a' array, 'm' map, 'o' other;
 * size: the value, the bytes that follow, or the items. */
char sc_store_cursor_head_long(struct sc_store_cursor *cursor, uint64_t tag, uint64_t *ret_size);

/* The common cases, inline. */
static inline char sc_store_cursor_head(struct sc_store_cursor *cursor, uint64_t *ret_size)
{
    const uint8_t *at = sc_store_cursor_take(cursor, 1);
    *ret_size = 0;
    if (at == NULL)
        return 0;
    if (*at <= 0x7F)
        return *ret_size = *at, 'u';
    if ((*at & 0xE0) == 0xA0)
        return *ret_size = *at & 0x1F, 's';
    return sc_store_cursor_head_long(cursor, *at, ret_size);
}

static inline uint64_t sc_store_cursor_uint(struct sc_store_cursor *cursor)
{
    uint64_t size;
    if (sc_store_cursor_head(cursor, &size) != 'u')
        cursor->bad = true;
    return size;
}

static inline uint64_t sc_store_cursor_array(struct sc_store_cursor *cursor)
{
    uint64_t size;
    if (sc_store_cursor_head(cursor, &size) != 'a')
        cursor->bad = true;
    return size;
}

/* ---- Fields --------------------------------------------------------------------------------- */

/* A key of a record and where its value is. */
struct sc_store_field {
    const char *key;
    uint8_t key_bytes;
    char kind; /* as sc_store_cursor_head's; 'a': `bytes` is left at the array */
    bool optional;
    bool seen;
    uint64_t min, max; /* 'u': of the value; 's', 'b': of the size, bytes */
    uint64_t value;    /* 'u': the value; 's', 'b': size, bytes */
    const uint8_t *bytes;
};

static inline bool sc_store_field_has_key(const struct sc_store_field *field, const uint8_t *key,
                                          uint64_t bytes)
{
    if (field->key_bytes != bytes)
        return false;
    for (uint64_t i = 0; i < bytes; i++)
        if ((uint8_t)field->key[i] != key[i])
            return false;
    return true;
}

/* Decodes the map. Keys may have any order; the order of `fields` is found without a search. false:
 * malformed, or it does not end with the bytes. */
bool sc_store_fields_read(const uint8_t *payload, uint64_t bytes, struct sc_store_field *fields,
                          uint32_t count);

#define SC_STORE_FIELD_KEY(name) .key = (name), .key_bytes = sizeof(name) - 1
#define SC_STORE_FIELD_UINT(name, low, high)                                                       \
    {                                                                                              \
        SC_STORE_FIELD_KEY(name), .kind = 'u', .min = (low), .max = (high)                         \
    }
#define SC_STORE_FIELD_OPTIONAL(name, low, high)                                                   \
    {                                                                                              \
        SC_STORE_FIELD_KEY(name), .kind = 'u', .min = (low), .max = (high), .optional = true       \
    }
#define SC_STORE_FIELD_BIN(name, low, high)                                                        \
    {                                                                                              \
        SC_STORE_FIELD_KEY(name), .kind = 'b', .min = (low), .max = (high)                         \
    }

#endif
