/* frame_recover: restores a damaged frame of the log if its own checksum proves the result.
 *
 *   log   ... [frame n - 1] [damaged frame n] [frame n + 1] ...
 *              its checksum is named by n      n's checksum is named by n + 1
 *
 *   bad header      all of it is known but the length and whether it is a reset. The length is the
 *                   distance to frame n + 1, the length field, or the rest of the log. Accepted if
 *                   the payload fits the checksum (one byte of it may be wrong), or if frame n + 1
 *                   names the computed checksum
 *   bad payload     one wrong byte, or one wrong bit of a long payload: each is tried
 *   anything else   not restored; frames behind it are found by sc_store_frame_search
 *
 * Frames of store format 4 do not name their place. Behind one that is not restored only frames of
 * the present format are believed (docs/decisions/0065).
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
    uint64_t count;
    struct sc_store_log_end before; /* in front of the frame */
    bool is_old;                    /* it has the header of store format 4 */
    uint64_t head_bytes;
    uint64_t stored;                          /* the frame's checksum field */
    const struct sc_store_frame_search *next; /* the next whole frame, or NULL */
    uint8_t *frame; /* scratch buffer: the frame as it may have been written */
    uint32_t *searches_left;
};

struct restored {
    uint64_t frame_bytes, chain;
    uint16_t resets;
};

/* Returns true if a frame may begin here, `offset` bytes behind the damaged one's start. */
static bool next_seems(const struct damaged *damaged, uint64_t offset)
{
    const uint8_t *next = damaged->bytes + offset;
    const struct sc_store_log_end *before = &damaged->before;
    const uint64_t magic = sc_store_le_get(next, 4);
    if (magic == SC_STORE_FRAME_MAGIC)
        return sc_store_frame_stands(next, before->offset + offset);
    return damaged->is_old && magic == SC_STORE_OLD_FRAME_MAGIC &&
           sc_store_le_get(next + 8, 8) == before->sequence + 2;
}

/* A torn append may lack its last byte alone, and other bytes may stand there now. It is no damaged
 * frame, unless it ends the file, a frame seems to follow it directly, or the next one names it. */
static bool may_be_torn(const struct damaged *damaged, uint64_t payload_bytes)
{
    const struct sc_store_frame_search *next = damaged->next;
    const uint64_t end = damaged->head_bytes + payload_bytes;
    if (end == damaged->count || damaged->is_old ||
        (next != NULL && next->previous == damaged->stored))
        return false;
    return end + SC_STORE_FRAME_BYTES > damaged->count || !next_seems(damaged, end);
}

/* Tries all values of one payload byte (or bit). false: more than that is wrong. */
static bool byte_search(const struct damaged *damaged, uint64_t payload_bytes)
{
    const uint64_t end = payload_bytes - (may_be_torn(damaged, payload_bytes) ? 1 : 0);
    uint8_t *payload = damaged->frame + damaged->head_bytes;
    const bool is_short = payload_bytes <= BYTES_SEARCHED_MAX;
    const uint64_t seed =
        sc_store_checksum(damaged->frame, damaged->head_bytes - 8,
                          damaged->is_old ? damaged->before.chain : damaged->before.seed);
    if (payload_bytes > BITS_SEARCHED_MAX || *damaged->searches_left == 0)
        return false;
    --*damaged->searches_left;
    for (uint64_t i = 0; i < end; i++) {
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
static uint64_t head_make(const struct damaged *damaged, uint64_t frame_bytes, uint16_t resets)
{
    const uint64_t payload_bytes = frame_bytes - damaged->head_bytes;
    const struct sc_store_log_end *before = &damaged->before;
    return damaged->is_old ? sc_store_old_frame_head(damaged->frame, payload_bytes,
                                                     before->sequence + 1, before->chain)
                           : sc_store_frame_head(damaged->frame, payload_bytes, resets, before);
}

/* Returns true if the next frame is at this offset and follows `chain`. */
static bool next_fits(const struct damaged *damaged, uint64_t offset, uint64_t chain)
{
    struct sc_store_frame next;
    struct sc_store_log_end end = damaged->before;
    end.sequence++;
    end.offset += offset;
    end.chain = chain;
    end.is_old = damaged->is_old;
    return sc_store_frame_check(damaged->bytes + offset, damaged->count - offset, end.offset, &end,
                                &next) == SC_STORE_FRAME_OK;
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
static bool head_recover(const struct damaged *damaged, uint64_t frame_bytes,
                         struct restored *ret_restored)
{
    if (frame_bytes <= damaged->head_bytes || frame_bytes > SC_STORE_FRAME_BYTES_MAX ||
        frame_bytes > damaged->count)
        return false;
    memcpy(damaged->frame, damaged->bytes, frame_bytes);
    for (uint16_t more = 0; more < 2; more++) { /* a reset counts itself */
        const uint16_t resets = (uint16_t)(damaged->before.resets + more);
        const uint64_t computed = head_make(damaged, frame_bytes, resets);
        *ret_restored = (struct restored){frame_bytes, computed, resets};
        if (differs_in_a_byte(computed, damaged->stored) ||
            next_fits(damaged, frame_bytes, computed))
            return true;
    }
    return false;
}

/* The header is right as it is. */
static bool payload_recover(const struct damaged *damaged, struct restored *ret_restored)
{
    const uint64_t payload_bytes = sc_store_le_get(damaged->bytes + 4, 4);
    const uint64_t frame_bytes = damaged->head_bytes + payload_bytes;
    if (payload_bytes == 0 || payload_bytes > SC_STORE_PAYLOAD_BYTES_MAX ||
        frame_bytes > damaged->count)
        return false;
    memcpy(damaged->frame, damaged->bytes, frame_bytes);
    for (uint16_t more = 0; more < 2; more++) {
        const uint16_t resets = (uint16_t)(damaged->before.resets + more);
        (void)head_make(damaged, frame_bytes, resets);
        *ret_restored = (struct restored){frame_bytes, damaged->stored, resets};
        if (memcmp(damaged->frame, damaged->bytes, damaged->head_bytes - 8) == 0)
            return byte_search(damaged, payload_bytes);
    }
    return false;
}

static bool recover(const struct damaged *damaged, struct restored *ret_restored)
{
    if (head_recover(damaged, damaged->head_bytes + sc_store_le_get(damaged->bytes + 4, 4),
                     ret_restored) ||
        head_recover(damaged, damaged->count, ret_restored))
        return true;
    uint64_t end = damaged->count; /* it ends where the next whole frame begins, at the latest */
    if (damaged->next != NULL && damaged->next->offset - damaged->before.offset < end)
        end = damaged->next->offset - damaged->before.offset + SC_STORE_FRAME_BYTES + 1;
    for (uint64_t at = damaged->head_bytes + 1;
         at <= SC_STORE_FRAME_BYTES_MAX && at + SC_STORE_FRAME_BYTES < end; at++)
        if (next_seems(damaged, at) && head_recover(damaged, at, ret_restored))
            return true;
    return payload_recover(damaged, ret_restored);
}

bool sc_store_frame_recover(const uint8_t *bytes, uint64_t count, uint64_t at,
                            const struct sc_store_frame_search *next, struct sc_store_log_end *end,
                            uint8_t *scratch, uint32_t *searches_left,
                            struct sc_store_frame *ret_frame)
{
    struct damaged damaged = {.bytes = bytes,
                              .count = count,
                              .next = next,
                              .before = *end,
                              .frame = scratch,
                              .searches_left = searches_left};
    damaged.before.offset = at;
    for (uint32_t i = end->is_old && at == end->offset ? 0 : 1; i < 2; i++) {
        struct restored restored;
        damaged.is_old = i == 0;
        damaged.head_bytes = i == 0 ? SC_STORE_OLD_FRAME_BYTES : SC_STORE_FRAME_BYTES;
        if (count <= damaged.head_bytes)
            return false;
        damaged.stored = sc_store_le_get(bytes + damaged.head_bytes - 8, 8);
        if (!recover(&damaged, &restored))
            continue;
        *ret_frame =
            (struct sc_store_frame){.bytes = restored.frame_bytes,
                                    .payload = scratch + damaged.head_bytes,
                                    .payload_bytes = restored.frame_bytes - damaged.head_bytes};
        end->sequence++;
        end->offset = at + restored.frame_bytes;
        end->chain = restored.chain;
        end->resets = restored.resets;
        end->is_old = damaged.is_old;
        return true;
    }
    return false;
}
