/* record_piece: decoding of pieces: a fast path for our encoder's layout, and the general way.
 *
 *   [13 keys, integers, three hashes][tokens: u32 each][marks, few pieces have any]
 *
 * Invariants: both ways accept the same records. No allocation, no I/O.
 * Threads: any.
 * Tests: tests/unit/store/test_record.c, test_log.c, tests/fuzz/fuzz_log.c */
#include "store/log/record_format.h"

/* Decodes tokens and marks; the other members are set. Marks ascend inside the piece's tokens. */
static bool decode_piece_lists(const struct sc_store_field *tokens,
                               const struct sc_store_field *marks, struct sc_store_record *record)
{
    struct sc_store_piece *piece = &record->piece;
    uint64_t token_count = sc_store_piece_token_count(piece);
    if (tokens->value != 4 * token_count)
        return false;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(record->tokens, tokens->bytes, 4 * token_count);
#else
    for (uint64_t i = 0; i < token_count; i++)
        record->tokens[i] = (uint32_t)sc_store_le_get(tokens->bytes + 4 * i, 4);
#endif
    piece->tokens = record->tokens;
    if (!marks->seen)
        return true;
    if (marks->value % SC_STORE_MARK_BYTES != 0)
        return false;
    uint64_t low = piece->chunk_first, end = piece->first_position + piece->row_count;
    piece->mark_count = (uint32_t)(marks->value / SC_STORE_MARK_BYTES);
    for (uint64_t i = 0; i < piece->mark_count; i++) {
        struct sc_store_mark *mark = &record->marks[i];
        mark->token = sc_store_le_get(marks->bytes + SC_STORE_MARK_BYTES * i, 8);
        memcpy(mark->digest, marks->bytes + SC_STORE_MARK_BYTES * i + 8, SC_STORE_SHA256_BYTES);
        if (mark->token < low || mark->token >= end)
            return false;
        low = mark->token;
    }
    piece->marks = record->marks;
    return true;
}

/* ---- Our encoder's layout --------------------------------------------------------------------
 *
 * Nearly all records, and half of the time that a log takes. Read without bounds checks: the
 * payload has PLAIN_HEAD_BYTES_MAX bytes, more than all keys and values but the tokens. */

/* Map head, 13 keys, 9-byte integers, bins of hashes, the tokens' tag and bytes read after it. */
#define PLAIN_HEAD_BYTES_MAX (1u + 58u + 9u * 9u + 34u + 2u * 18u + 1u + 8u)

/* Skips the text; false: other bytes. */
#define PLAIN_IS(at, text)                                                                         \
    (memcmp((at), (text), sizeof(text) - 1) == 0 && ((at) += sizeof(text) - 1, true))

static inline uint64_t plain_be(const uint8_t *at, uint32_t bytes)
{
    uint64_t value;
    memcpy(&value, at, 8); /* the largest integer's size */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value >> (64 - 8 * bytes);
}

/* Reads an integer; sets *is_bad for other values. */
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

static inline bool plain_hash(const uint8_t **at, uint8_t *ret_hash, uint32_t hash_bytes)
{
    if ((*at)[0] != 0xC4 || (*at)[1] != hash_bytes)
        return false;
    memcpy(ret_hash, *at + 2, hash_bytes);
    *at += 2 + hash_bytes;
    return true;
}

/* Reads the members before the hashes. */
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

/* false: not this layout, but perhaps valid. */
static bool decode_piece_fast(const uint8_t *payload, uint64_t bytes, struct sc_store_piece *piece,
                              struct sc_store_field *ret_tokens)
{
    const uint8_t *at = payload;
    if (bytes < PLAIN_HEAD_BYTES_MAX || !plain_numbers(&at, piece) || !PLAIN_IS(at, "\xa4root") ||
        !plain_hash(&at, piece->root, SC_STORE_SHA256_BYTES) || !PLAIN_IS(at, "\xa5\x63hash") ||
        !plain_hash(&at, piece->chunk_hash, SC_STORE_HASH_BYTES) || !PLAIN_IS(at, "\xa4hash") ||
        !plain_hash(&at, piece->hash, SC_STORE_HASH_BYTES) || !PLAIN_IS(at, "\xa6tokens"))
        return false;
    uint8_t tag = *at++;
    if (tag < 0xC4 || tag > 0xC6)
        return false;
    ret_tokens->value = plain_be(at, 1u << (tag - 0xC4));
    ret_tokens->bytes = at + (1u << (tag - 0xC4));
    return (uint64_t)(ret_tokens->bytes - payload) + ret_tokens->value == bytes;
}

static bool decode_piece_any(const uint8_t *payload, uint64_t bytes, struct sc_store_record *record,
                             struct sc_store_field *ret_tokens, struct sc_store_field *ret_marks)
{
    struct sc_store_field fields[] = {
        SC_STORE_COMMON_FIELDS,
        SC_STORE_FIELD_UINT("ext", 1, UINT64_MAX),
        SC_STORE_FIELD_UINT("row", 0, SC_STORE_ROWS_MAX - 1),
        SC_STORE_FIELD_UINT("rows", 1, SC_STORE_ROWS_MAX),
        SC_STORE_FIELD_UINT("skip", 0, SC_STORE_ROWS_MAX - 1),
        SC_STORE_FIELD_UINT("pos", 0, SC_STORE_POSITION_MAX),
        SC_STORE_FIELD_UINT("chunk", 0, SC_STORE_POSITION_MAX),
        SC_STORE_FIELD_BIN("root", SC_STORE_SHA256_BYTES, SC_STORE_SHA256_BYTES),
        SC_STORE_FIELD_BIN("chash", SC_STORE_HASH_BYTES, SC_STORE_HASH_BYTES),
        SC_STORE_FIELD_BIN("hash", SC_STORE_HASH_BYTES, SC_STORE_HASH_BYTES),
        SC_STORE_FIELD_BIN("tokens", 4, 4 * SC_STORE_ROWS_MAX),
        {SC_STORE_FIELD_KEY("marks"), .kind = 'b', .min = SC_STORE_MARK_BYTES,
         .max = SC_STORE_MARK_BYTES * SC_STORE_MARKS_MAX, .optional = true}};
    if (!sc_store_fields_read(payload, bytes, fields, SC_STORE_COMMON + 11))
        return false;
    struct sc_store_piece *piece = &record->piece;
    *piece = (struct sc_store_piece){.id = record->id,
                                     .extent = fields[SC_STORE_COMMON + 0].value,
                                     .extent_row = (uint32_t)fields[SC_STORE_COMMON + 1].value,
                                     .row_count = (uint32_t)fields[SC_STORE_COMMON + 2].value,
                                     .skip = (uint32_t)fields[SC_STORE_COMMON + 3].value,
                                     .first_position = fields[SC_STORE_COMMON + 4].value,
                                     .chunk_first = fields[SC_STORE_COMMON + 5].value};
    memcpy(piece->root, fields[SC_STORE_COMMON + 6].bytes, SC_STORE_SHA256_BYTES);
    memcpy(piece->chunk_hash, fields[SC_STORE_COMMON + 7].bytes, SC_STORE_HASH_BYTES);
    memcpy(piece->hash, fields[SC_STORE_COMMON + 8].bytes, SC_STORE_HASH_BYTES);
    *ret_tokens = fields[SC_STORE_COMMON + 9];
    *ret_marks = fields[SC_STORE_COMMON + 10];
    return true;
}

static bool piece_fits(const struct sc_store_piece *piece)
{
    return piece->chunk_first <= piece->first_position && piece->skip < piece->row_count &&
           sc_store_piece_token_count(piece) <= SC_STORE_ROWS_MAX;
}

bool sc_store_record_decode_piece(const uint8_t *payload, uint64_t bytes,
                                  struct sc_store_record *record)
{
    struct sc_store_field tokens = {.kind = 'b'}, marks = {.kind = 'b'};
    return (decode_piece_fast(payload, bytes, &record->piece, &tokens) ||
            decode_piece_any(payload, bytes, record, &tokens, &marks)) &&
           piece_fits(&record->piece) && decode_piece_lists(&tokens, &marks, record);
}

bool sc_store_record_decode_plain(uint8_t *payload, uint64_t bytes,
                                  struct sc_store_piece *ret_piece)
{
    struct sc_store_field tokens = {.kind = 'b'};
    if (!decode_piece_fast(payload, bytes, ret_piece, &tokens) || !piece_fits(ret_piece) ||
        tokens.value != 4 * sc_store_piece_token_count(ret_piece))
        return false;
    uint8_t *at = payload + (tokens.bytes - payload);
    uint8_t *aligned = at - (uintptr_t)at % sizeof(uint32_t); /* over their bin head */
    memmove(aligned, at, tokens.value);
    uint32_t *words = (uint32_t *)(void *)aligned;
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    for (uint64_t i = 0; i < tokens.value / 4; i++)
        words[i] = (uint32_t)sc_store_le_get(aligned + 4 * i, 4);
#endif
    ret_piece->tokens = words;
    return true;
}
