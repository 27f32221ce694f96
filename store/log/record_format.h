/* record_format: what encoder and decoder of records share besides key names.
 *
 *   mark   token u64 | digest[16]      all integers little-endian
 *
 * Threads: any.
 * Tests: tests/unit/store/test_record.c */
#ifndef SC_STORE_LOG_RECORD_FORMAT_H
#define SC_STORE_LOG_RECORD_FORMAT_H

#include "store/log/record.h"
#include "store/log/record_decode.h"

#include <string.h>

#define SC_STORE_IDENTITY_MAGIC "spec_connector store"

static inline void sc_store_le_put(uint8_t *dst, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        dst[i] = (uint8_t)(value >> (8 * i));
}

#define SC_STORE_FRAME_MAGIC     0x324C4353u /* "SCL2" */
#define SC_STORE_OLD_FRAME_MAGIC 0x314C4353u /* "SCL1" */

/* Write all of a header but its checksum, which they return. The payload is there. */
uint64_t sc_store_frame_head(uint8_t *frame, uint64_t payload_bytes, uint16_t resets,
                             const struct sc_store_log_end *end);
uint64_t sc_store_old_frame_head(uint8_t *frame, uint64_t payload_bytes, uint64_t sequence,
                                 uint64_t chain);

/* 1 to 8 bytes. */
static inline uint64_t sc_store_le_get(const uint8_t *src, uint32_t bytes)
{
    uint64_t value = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(&value, src, bytes); /* one load for a constant `bytes` */
#else
    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint64_t)src[i] << (8 * i);
#endif
    return value;
}

/* msgpack's write callback. */
static inline int sc_store_writer_put(void *data, const char *bytes, size_t count)
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

/* Tokens of a piece: from its chunk's start to its last row. */
static inline uint64_t sc_store_piece_token_count(const struct sc_store_piece *piece)
{
    return piece->first_position + piece->row_count - piece->chunk_first;
}

/* Keys that begin every record. Decoders read them again, so that none occurs twice. */
#define SC_STORE_COMMON 3u
#define SC_STORE_COMMON_FIELDS                                                                     \
    SC_STORE_FIELD_UINT("v", 0, UINT64_MAX), SC_STORE_FIELD_UINT("t", 0, UINT64_MAX),              \
        SC_STORE_FIELD_UINT("id", 0, UINT64_MAX)

/* sc_store_record_decode of a piece (record_piece.c). */
bool sc_store_record_decode_piece(const uint8_t *payload, uint64_t bytes,
                                  struct sc_store_record *record);

#endif
