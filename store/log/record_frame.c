/* record_frame: frames of the log: validation, search, writing.
 * Layout, Invariants, Threads: store/log/record.h.
 * Tests: tests/unit/store/test_record.c, test_log.c, tests/fuzz/fuzz_log.c */
#include "store/log/record_format.h"
#include "store/rows/tag.h"

#define PLACE_BITS  48u
#define PLACE_MASK  ((UINT64_C(1) << PLACE_BITS) - 1)
#define MAGIC_FIRST 'S' /* first byte of the magic */

void sc_store_log_begin(struct sc_store_log_end *end, const uint8_t store_id[16], uint32_t rank,
                        uint32_t rank_count)
{
    uint8_t bytes[24];
    memcpy(bytes, store_id, 16);
    sc_store_le_put(bytes + 16, rank, 4);
    sc_store_le_put(bytes + 20, rank_count, 4);
    *end = (struct sc_store_log_end){.is_old = true};
    end->seed = end->chain = sc_store_checksum(bytes, sizeof(bytes), 0);
}

/* Sets the size of the frame at bytes; false: no header of this format. */
static bool head_read(const uint8_t *bytes, uint64_t count, uint32_t magic, uint64_t head_bytes,
                      struct sc_store_frame *ret_frame)
{
    if (count < head_bytes || sc_store_le_get(bytes, 4) != magic)
        return false;
    uint64_t payload_bytes = sc_store_le_get(bytes + 4, 4);
    *ret_frame = (struct sc_store_frame){.bytes = head_bytes + payload_bytes,
                                         .payload = bytes + head_bytes,
                                         .payload_bytes = payload_bytes};
    return payload_bytes > 0 && payload_bytes <= SC_STORE_PAYLOAD_BYTES_MAX;
}

/* ---- Frames of format 4 ---------------------------------------------------------------------- */

static uint64_t old_checksum(const uint8_t *frame, uint64_t payload_bytes, uint64_t chain)
{
    uint64_t seed = sc_store_checksum(frame, 16, chain);
    return sc_store_checksum(frame + SC_STORE_OLD_FRAME_BYTES, payload_bytes, seed);
}

enum sc_store_frame_state sc_store_old_frame_check(const uint8_t *bytes, uint64_t count,
                                                   uint64_t sequence, uint64_t *chain,
                                                   struct sc_store_frame *ret_frame)
{
    if (count < SC_STORE_OLD_FRAME_BYTES)
        return SC_STORE_FRAME_SHORT;
    if (!head_read(bytes, count, SC_STORE_OLD_FRAME_MAGIC, SC_STORE_OLD_FRAME_BYTES, ret_frame) ||
        sc_store_le_get(bytes + 8, 8) != sequence)
        return SC_STORE_FRAME_BAD;
    if (count < ret_frame->bytes)
        return SC_STORE_FRAME_SHORT;
    uint64_t checksum = old_checksum(bytes, ret_frame->payload_bytes, *chain);
    if (sc_store_le_get(bytes + 16, 8) != checksum)
        return SC_STORE_FRAME_BAD;
    *chain = checksum;
    return SC_STORE_FRAME_OK;
}

uint64_t sc_store_old_frame_begin(struct sc_store_writer *writer)
{
    static const char empty[SC_STORE_OLD_FRAME_BYTES];
    uint64_t begin = writer->used;
    (void)sc_store_writer_put(writer, empty, sizeof(empty));
    return begin;
}

uint64_t sc_store_old_frame_head(uint8_t *frame, uint64_t payload_bytes, uint64_t sequence,
                                 uint64_t chain)
{
    sc_store_le_put(frame, SC_STORE_OLD_FRAME_MAGIC, 4);
    sc_store_le_put(frame + 4, payload_bytes, 4);
    sc_store_le_put(frame + 8, sequence, 8);
    return old_checksum(frame, payload_bytes, chain);
}

void sc_store_old_frame_end(struct sc_store_writer *writer, uint64_t begin, uint64_t sequence,
                            uint64_t *chain)
{
    if (writer->overflow)
        return;
    uint8_t *frame = writer->bytes + begin;
    uint64_t payload_bytes = writer->used - begin - SC_STORE_OLD_FRAME_BYTES;
    *chain = sc_store_old_frame_head(frame, payload_bytes, sequence, *chain);
    sc_store_le_put(frame + 16, *chain, 8);
}

/* ---- Frames ---------------------------------------------------------------------------------- */

static uint64_t checksum_of(const uint8_t *frame, uint64_t payload_bytes, uint64_t seed)
{
    return sc_store_checksum(frame + SC_STORE_FRAME_BYTES, payload_bytes,
                             sc_store_checksum(frame, 24, seed));
}

uint64_t sc_store_frame_head(uint8_t *frame, uint64_t payload_bytes, uint16_t resets,
                             const struct sc_store_log_end *end)
{
    sc_store_le_put(frame, SC_STORE_FRAME_MAGIC, 4);
    sc_store_le_put(frame + 4, payload_bytes, 4);
    sc_store_le_put(frame + 8, end->offset | (uint64_t)resets << PLACE_BITS, 8);
    sc_store_le_put(frame + 16, end->chain, 8);
    return checksum_of(frame, payload_bytes, end->seed);
}

static void end_advance(struct sc_store_log_end *end, uint64_t offset, uint64_t chain)
{
    end->offset = offset;
    end->chain = chain;
    end->sequence++;
}

enum sc_store_frame_state sc_store_frame_check(const uint8_t *bytes, uint64_t count, uint64_t at,
                                               struct sc_store_log_end *end,
                                               struct sc_store_frame *ret_frame)
{
    *ret_frame = (struct sc_store_frame){0};
    if (end->is_old && at == end->offset && count >= 4 &&
        sc_store_le_get(bytes, 4) == SC_STORE_OLD_FRAME_MAGIC) {
        enum sc_store_frame_state state =
            sc_store_old_frame_check(bytes, count, end->sequence + 1, &end->chain, ret_frame);
        if (state == SC_STORE_FRAME_OK)
            end_advance(end, at + ret_frame->bytes, end->chain);
        return state;
    }
    if (count < SC_STORE_FRAME_BYTES)
        return SC_STORE_FRAME_SHORT;
    if (!head_read(bytes, count, SC_STORE_FRAME_MAGIC, SC_STORE_FRAME_BYTES, ret_frame))
        return SC_STORE_FRAME_BAD;
    if (count < ret_frame->bytes)
        return SC_STORE_FRAME_SHORT;
    uint64_t checksum = sc_store_le_get(bytes + 24, 8), place = sc_store_le_get(bytes + 8, 8);
    if (checksum != checksum_of(bytes, ret_frame->payload_bytes, end->seed))
        return SC_STORE_FRAME_BAD;
    if ((place & PLACE_MASK) != at)
        return SC_STORE_FRAME_LOST;
    if (sc_store_le_get(bytes + 16, 8) != end->chain)
        return SC_STORE_FRAME_BAD;
    end_advance(end, at + ret_frame->bytes, checksum);
    end->resets = (uint16_t)(place >> PLACE_BITS);
    end->is_old = false;
    return SC_STORE_FRAME_OK;
}

uint64_t sc_store_frame_bytes(const uint8_t *frame)
{
    return sc_store_frame_payload(frame) - frame + sc_store_le_get(frame + 4, 4);
}

const uint8_t *sc_store_frame_payload(const uint8_t *frame)
{
    return frame + (sc_store_le_get(frame, 4) == SC_STORE_OLD_FRAME_MAGIC ? SC_STORE_OLD_FRAME_BYTES
                                                                          : SC_STORE_FRAME_BYTES);
}

uint64_t sc_store_frame_chain(const uint8_t *frame)
{
    return sc_store_le_get(sc_store_frame_payload(frame) - 8, 8);
}

bool sc_store_frame_stands(const uint8_t *frame, uint64_t at)
{
    return sc_store_le_get(frame, 4) == SC_STORE_OLD_FRAME_MAGIC ||
           (sc_store_le_get(frame + 8, 8) & PLACE_MASK) == at;
}

/* ---- Behind bytes that are not believed ------------------------------------------------------ */

/* Returns true if the frame is whole. */
static bool is_whole(const uint8_t *bytes, uint64_t count, uint64_t seed,
                     struct sc_store_frame *ret_frame)
{
    return head_read(bytes, count, SC_STORE_FRAME_MAGIC, SC_STORE_FRAME_BYTES, ret_frame) &&
           count >= ret_frame->bytes &&
           sc_store_le_get(bytes + 24, 8) == checksum_of(bytes, ret_frame->payload_bytes, seed);
}

/* Behind bytes that are no frame, a frame that lost its race is not worth a checksum. */
static bool is_wanted(const struct sc_store_frame_search *search, const uint8_t *bytes)
{
    return !search->has_junk || sc_store_frame_stands(bytes, search->offset);
}

/* Returns the next place where a frame may begin, after `at`; count: none. */
static uint64_t place_next(const uint8_t *bytes, uint64_t count, uint64_t at)
{
    const uint8_t *next = memchr(bytes + at + 1, MAGIC_FIRST, count - at - 1);
    return next != NULL ? (uint64_t)(next - bytes) : count;
}

static void junk_note(struct sc_store_frame_search *search, uint64_t offset)
{
    search->junk = search->has_junk ? search->junk : offset;
    search->has_junk = true;
}

bool sc_store_frame_search(const uint8_t *bytes, uint64_t count, bool is_rest,
                           const struct sc_store_log_end *end, struct sc_store_frame_search *search)
{
    const uint64_t least = is_rest ? SC_STORE_FRAME_BYTES + 1 : SC_STORE_FRAME_BYTES_MAX;
    const uint64_t first = search->offset;
    uint64_t at = 0;
    while (at + least <= count) {
        struct sc_store_frame frame;
        const uint8_t *next = bytes + at;
        search->offset = first + at;
        if (!is_wanted(search, next) || !is_whole(next, count - at, end->seed, &frame)) {
            junk_note(search, first + at);
            at = place_next(bytes, count, at);
            continue;
        }
        search->previous = sc_store_le_get(next + 16, 8);
        search->resets = (uint16_t)(sc_store_le_get(next + 8, 8) >> PLACE_BITS);
        search->misses =
            search->previous != end->chain || (uint16_t)(search->resets - end->resets) > 1;
        /* Where nothing can be missing, its writer did not see what we see. */
        if (sc_store_frame_stands(next, search->offset) && (!search->misses || search->has_junk))
            return true;
        at += frame.bytes;
    }
    if (is_rest && at < count)
        junk_note(search, first + at);
    search->offset = first + at;
    return false;
}

void sc_store_log_jump(struct sc_store_log_end *end, const struct sc_store_frame_search *found)
{
    end->sequence += found->misses ? 1 : 0;
    end->offset = found->offset;
    end->chain = found->previous;
    end->is_old = false;
}

bool sc_store_jump_loses_resets(const struct sc_store_log_end *end,
                                const struct sc_store_frame_search *found)
{
    return found->misses && (end->is_old || end->resets != found->resets);
}

/* Returns true if frames of format 4 follow that are behind the next one. */
static bool old_frames_follow(const uint8_t *bytes, uint64_t count, uint64_t sequence)
{
    for (uint64_t at = 0; at + SC_STORE_OLD_FRAME_BYTES < count;) {
        struct sc_store_frame frame;
        if (head_read(bytes + at, count - at, SC_STORE_OLD_FRAME_MAGIC, SC_STORE_OLD_FRAME_BYTES,
                      &frame) &&
            sc_store_le_get(bytes + at + 8, 8) > sequence + 1)
            return true;
        at = place_next(bytes, count, at);
    }
    return false;
}

/* Returns true for the header of a frame for a place before `at`: it lost its race, and its writer
 * was ended within the append. */
static bool is_lost_head(const uint8_t *bytes, uint64_t count, uint64_t at,
                         const struct sc_store_log_end *end)
{
    if (count < 16 || sc_store_le_get(bytes, 4) != SC_STORE_FRAME_MAGIC)
        return false;
    uint64_t place = sc_store_le_get(bytes + 8, 8);
    return (place & PLACE_MASK) < at &&
           (uint16_t)(end->resets - (uint16_t)(place >> PLACE_BITS)) <= UINT16_MAX / 2;
}

bool sc_store_tail_is_torn(const uint8_t *bytes, uint64_t count, uint64_t at,
                           const struct sc_store_log_end *end)
{
    uint8_t expected[SC_STORE_FRAME_BYTES] = {0};
    uint64_t head_bytes = SC_STORE_FRAME_BYTES - 8, same = 0;
    if (end->is_old && at == end->offset && count >= 4 &&
        sc_store_le_get(bytes, 4) == SC_STORE_OLD_FRAME_MAGIC) {
        head_bytes = SC_STORE_OLD_FRAME_BYTES - 8;
        sc_store_le_put(expected, SC_STORE_OLD_FRAME_MAGIC, 4);
        sc_store_le_put(expected + 8, end->sequence + 1, 8);
    } else {
        sc_store_le_put(expected, SC_STORE_FRAME_MAGIC, 4);
        sc_store_le_put(expected + 8, at | (uint64_t)end->resets << PLACE_BITS, 8);
        sc_store_le_put(expected + 16, end->chain, 8);
    }
    if (is_lost_head(bytes, count, at, end))
        return true;
    head_bytes = head_bytes < count ? head_bytes : count;
    while (same < head_bytes && (bytes[same] == expected[same] || (same >= 4 && same < 8)))
        same++; /* any length */
    for (uint64_t i = same; i < head_bytes; i++)
        if (bytes[i] != 0)
            return false;
    return !end->is_old || !old_frames_follow(bytes, count, end->sequence);
}

/* ---- Writing --------------------------------------------------------------------------------- */

uint64_t sc_store_frame_begin(struct sc_store_writer *writer)
{
    static const char empty[SC_STORE_FRAME_BYTES];
    uint64_t begin = writer->used;
    (void)sc_store_writer_put(writer, empty, sizeof(empty));
    return begin;
}

void sc_store_frame_end(struct sc_store_writer *writer, uint64_t begin, bool resets,
                        struct sc_store_log_end *end)
{
    if (writer->overflow)
        return;
    uint8_t *frame = writer->bytes + begin;
    uint64_t payload_bytes = writer->used - begin - SC_STORE_FRAME_BYTES;
    end->resets = (uint16_t)(end->resets + (resets ? 1 : 0));
    uint64_t checksum = sc_store_frame_head(frame, payload_bytes, end->resets, end);
    sc_store_le_put(frame + 24, checksum, 8);
    end_advance(end, end->offset + writer->used - begin, checksum);
    end->is_old = false;
}
