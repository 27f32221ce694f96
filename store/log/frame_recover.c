/* frame_recover: restores a damaged frame of the log if its own checksum proves the result.
 *
 *   log   ... [frame s - 1] [damaged frame s] [frame s + 1] ...
 *              its checksum seeds that of ^ s, and the one of s that of ^ s + 1
 *
 *   bad header      magic and sequence are known. The length is the distance to frame s + 1, the
 *                   length field, or the rest of the log. Accepted if the payload fits the checksum
 *                   (one byte of it may be wrong), or if frame s + 1 fits the computed checksum
 *   bad payload     one wrong byte, or one wrong bit of a long payload: each is tried
 *   anything else   not restored; the log ends before it
 *
 * Only the chain proves that a frame follows another. After a frame that is not restored nothing is
 * believed: stale frames of an earlier log also chain to each other, and a lost frame may be a
 * reset. sc_store_frame_is_ahead tells such an end from a torn one (docs/decisions/0051).
 *
 * Invariants: a restored frame fits 64 checksum bits, or 56 if a byte of the checksum is wrong. A
 * search tries at most 2^20 payloads: a false match has probability 2^-44.
 * Threads: any.
 * Tests: tests/unit/store/test_log_damage.c, tests/fuzz/fuzz_follow.c */
#include "store/log/record_format.h"
#include "store/rows/tag.h"

#define BYTES_SEARCHED_MAX 4096u  /* longest payload of which each byte is tried: 0.5 s */
#define BITS_SEARCHED_MAX  32768u /* longest payload of which each bit is tried: 0.5 s */

struct damaged {
    const uint8_t *bytes;
    uint64_t count, sequence, chain;
    uint64_t stored; /* the frame's checksum field */
    uint8_t *frame;  /* scratch buffer: the frame as it may have been written */
    uint32_t *searches_left;
};

/* Tries all values of one payload byte (or bit). false: more than that is wrong. */
static bool byte_search(const struct damaged *damaged, uint64_t payload_bytes)
{
    uint8_t *payload = damaged->frame + SC_STORE_FRAME_BYTES;
    const bool is_short = payload_bytes <= BYTES_SEARCHED_MAX;
    const uint64_t seed = sc_store_checksum(damaged->frame, 16, damaged->chain);
    if (payload_bytes > BITS_SEARCHED_MAX || *damaged->searches_left == 0)
        return false;
    --*damaged->searches_left;
    for (uint64_t i = 0; i < payload_bytes; i++) {
        const uint8_t found = payload[i];
        for (uint32_t flip = 1; flip < 256; flip = is_short ? flip + 1 : 2 * flip) {
            payload[i] = (uint8_t)(found ^ flip);
            if (sc_store_checksum(payload, payload_bytes, seed) == damaged->stored)
                return true;
        }
        payload[i] = found;
    }
    return false;
}

/* Rebuilds the header for this length in scratch. Returns the frame's checksum. */
static uint64_t frame_make(const struct damaged *damaged, uint64_t frame_bytes)
{
    const uint64_t payload_bytes = frame_bytes - SC_STORE_FRAME_BYTES;
    memcpy(damaged->frame, damaged->bytes, frame_bytes);
    sc_store_le_put(damaged->frame, SC_STORE_FRAME_MAGIC, 4);
    sc_store_le_put(damaged->frame + 4, payload_bytes, 4);
    sc_store_le_put(damaged->frame + 8, damaged->sequence, 8);
    return sc_store_frame_checksum(damaged->frame, payload_bytes, damaged->chain);
}

/* Returns true if the next frame is at this offset, seeded by `chain`. */
static bool next_fits(const struct damaged *damaged, uint64_t offset, uint64_t chain)
{
    uint64_t next_bytes;
    return sc_store_frame_check(damaged->bytes + offset, damaged->count - offset,
                                damaged->sequence + 1, &chain, &next_bytes) == SC_STORE_FRAME_OK;
}

/* True if at most one byte differs. */
static bool differs_in_a_byte(uint64_t a, uint64_t b)
{
    uint64_t differs = a ^ b;
    while (differs != 0 && (differs & 0xFF) == 0)
        differs >>= 8;
    return differs <= 0xFF;
}

/* Restores the frame if it has this length and only its header is damaged. */
static bool header_recover(const struct damaged *damaged, uint64_t frame_bytes,
                           struct sc_store_recovered *ret_recovered)
{
    if (frame_bytes <= SC_STORE_FRAME_BYTES || frame_bytes > SC_STORE_FRAME_BYTES_MAX ||
        frame_bytes > damaged->count)
        return false;
    const uint64_t computed = frame_make(damaged, frame_bytes);
    *ret_recovered =
        (struct sc_store_recovered){frame_bytes, computed, damaged->frame + SC_STORE_FRAME_BYTES};
    return differs_in_a_byte(computed, damaged->stored) ||
           next_fits(damaged, frame_bytes, computed);
}

static bool header_seems(const uint8_t *frame)
{
    const uint64_t payload_bytes = sc_store_le_get(frame + 4, 4);
    return sc_store_le_get(frame, 4) == SC_STORE_FRAME_MAGIC && payload_bytes > 0 &&
           payload_bytes <= SC_STORE_PAYLOAD_BYTES_MAX;
}

static bool payload_recover(const struct damaged *damaged, struct sc_store_recovered *ret_recovered)
{
    const uint64_t frame_bytes = sc_store_frame_bytes(damaged->bytes);
    if (!header_seems(damaged->bytes) || frame_bytes > damaged->count ||
        sc_store_le_get(damaged->bytes + 8, 8) != damaged->sequence)
        return false;
    memcpy(damaged->frame, damaged->bytes, frame_bytes);
    *ret_recovered = (struct sc_store_recovered){frame_bytes, damaged->stored,
                                                 damaged->frame + SC_STORE_FRAME_BYTES};
    return byte_search(damaged, frame_bytes - SC_STORE_FRAME_BYTES);
}

bool sc_store_frame_recover(const uint8_t *bytes, uint64_t count, uint64_t sequence, uint64_t chain,
                            uint8_t *scratch, uint32_t *searches_left,
                            struct sc_store_recovered *ret_recovered)
{
    if (count <= SC_STORE_FRAME_BYTES)
        return false;
    const struct damaged damaged = {.bytes = bytes,
                                    .count = count,
                                    .sequence = sequence,
                                    .chain = chain,
                                    .stored = sc_store_frame_chain(bytes),
                                    .frame = scratch,
                                    .searches_left = searches_left};
    if (header_recover(&damaged, sc_store_frame_bytes(bytes), ret_recovered) ||
        header_recover(&damaged, count, ret_recovered))
        return true;
    for (uint64_t at = SC_STORE_FRAME_BYTES + 1;
         at <= SC_STORE_FRAME_BYTES_MAX && at + SC_STORE_FRAME_BYTES < count; at++)
        if (header_seems(bytes + at) && sc_store_le_get(bytes + at + 8, 8) == sequence + 1 &&
            header_recover(&damaged, at, ret_recovered))
            return true;
    return payload_recover(&damaged, ret_recovered);
}

bool sc_store_frame_is_ahead(const uint8_t *bytes, uint64_t count, uint64_t sequence)
{
    for (uint64_t at = 1; at + SC_STORE_FRAME_BYTES < count; at++) {
        const uint8_t *frame = bytes + at;
        const uint64_t found = sc_store_le_get(frame + 8, 8);
        uint64_t next_bytes, next = at + sc_store_frame_bytes(frame);
        uint64_t chain = sc_store_frame_chain(frame);
        if (header_seems(frame) && found > sequence && next < count &&
            sc_store_frame_check(bytes + next, count - next, found + 1, &chain, &next_bytes) ==
                SC_STORE_FRAME_OK)
            return true;
    }
    return false;
}
