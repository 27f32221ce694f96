/* record_frame: frames of the log: checksum chain, validation, writing.
 * Layout, Invariants, Threads: store/log/record.h.
 * Tests: tests/unit/store/test_record.c, test_log.c, tests/fuzz/fuzz_log.c */
#include "store/log/record_format.h"
#include "store/rows/tag.h"

uint64_t sc_store_frame_seed(const uint8_t store_id[16], uint32_t rank, uint32_t rank_count)
{
    uint8_t bytes[24];
    memcpy(bytes, store_id, 16);
    sc_store_le_put(bytes + 16, rank, 4);
    sc_store_le_put(bytes + 20, rank_count, 4);
    return sc_store_checksum(bytes, sizeof(bytes), 0);
}

uint64_t sc_store_frame_checksum(const uint8_t *frame, uint64_t payload_bytes, uint64_t chain)
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
    uint64_t payload_bytes = sc_store_le_get(bytes + 4, 4);
    if (sc_store_le_get(bytes, 4) != SC_STORE_FRAME_MAGIC || payload_bytes == 0 ||
        payload_bytes > SC_STORE_PAYLOAD_BYTES_MAX || sc_store_le_get(bytes + 8, 8) != sequence)
        return SC_STORE_FRAME_BAD;
    *ret_bytes = SC_STORE_FRAME_BYTES + payload_bytes;
    if (count < *ret_bytes)
        return SC_STORE_FRAME_SHORT;
    uint64_t checksum = sc_store_frame_checksum(bytes, payload_bytes, *chain);
    if (sc_store_le_get(bytes + 16, 8) != checksum)
        return SC_STORE_FRAME_BAD;
    *chain = checksum;
    return SC_STORE_FRAME_OK;
}

uint64_t sc_store_frame_bytes(const uint8_t *frame)
{
    return SC_STORE_FRAME_BYTES + sc_store_le_get(frame + 4, 4);
}

uint64_t sc_store_frame_chain(const uint8_t *frame)
{
    return sc_store_le_get(frame + 16, 8);
}

uint64_t sc_store_frame_begin(struct sc_store_writer *writer)
{
    static const char empty[SC_STORE_FRAME_BYTES];
    uint64_t begin = writer->used;
    (void)sc_store_writer_put(writer, empty, sizeof(empty));
    return begin;
}

void sc_store_frame_end(struct sc_store_writer *writer, uint64_t begin, uint64_t sequence,
                        uint64_t *chain)
{
    if (writer->overflow)
        return;
    uint8_t *frame = writer->bytes + begin;
    uint64_t payload_bytes = writer->used - begin - SC_STORE_FRAME_BYTES;
    sc_store_le_put(frame, SC_STORE_FRAME_MAGIC, 4);
    sc_store_le_put(frame + 4, payload_bytes, 4);
    sc_store_le_put(frame + 8, sequence, 8);
    *chain = sc_store_frame_checksum(frame, payload_bytes, *chain);
    sc_store_le_put(frame + 16, *chain, 8);
}
