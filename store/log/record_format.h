/* What the encoder and the decoder of records agree on, beside the names of keys: integers outside
 * of msgpack, marks, how many tokens a piece has; and the keys that every record begins with.
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

#define SC_STORE_FRAME_MAGIC 0x314C4353u /* "SCL1" */

/* The checksum of the frame's first 16 bytes and its payload, as they are; chain: the checksum of
 * the frame before. */
uint64_t sc_store_frame_checksum(const uint8_t *frame, uint64_t payload_bytes, uint64_t chain);

/* 1 to 8 bytes. */
static inline uint64_t sc_store_le_get(const uint8_t *src, uint32_t bytes)
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

/* As msgpack's packer calls it; nothing is written past the writer's capacity. */
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

/* Tokens of a piece: from its chunk's first to its own last. */
static inline uint64_t sc_store_piece_token_count(const struct sc_store_piece *piece)
{
    return piece->first_position + piece->row_count - piece->chunk_first;
}

/* Every record has them first; the decoders read them again, so that none may come twice. */
#define SC_STORE_COMMON 3u
#define SC_STORE_COMMON_FIELDS                                                                     \
    SC_STORE_FIELD_UINT("v", 0, UINT64_MAX), SC_STORE_FIELD_UINT("t", 0, UINT64_MAX),              \
        SC_STORE_FIELD_UINT("id", 0, UINT64_MAX)

/* A piece's record, as sc_store_record_decode (record_piece.c). */
bool sc_store_record_decode_piece(const uint8_t *payload, uint64_t bytes,
                                  struct sc_store_record *record);

#endif
