/* The loops over rows, compiled once a rung: each includer defines TAG_RUNG, the name of its table,
 * and includes this file, which brings xxHash in whole for the instruction set of that file. It may
 * define TAG_HASH, a faster way to the same hash, and TAG_MOVE, one that copies what it reads:
 * whole lines of rows longer than SHORT_MAX, to multiples of DST_ALIGN.
 *
 * Holds: all rungs give the same tags, bit for bit (XXH3 is one function; the instruction set is
 * how fast).
 * Tests: tests/unit/store/test_tag.c compares every rung that the machine has. */
#ifndef TAG_RUNG
#error "tag_rung.h is included by store/tag*.c only"
#endif

#include "base/stream.h"
#include "store/tag.h"
#include "store/tag_lines.h"

#include <stdbool.h>
#include <string.h>

#ifndef TAG_HASH
#define XXH_INLINE_ALL
#define XXH_PREFETCH_DIST 4096 /* bytes that a device wrote are in no cache */
#include <xxhash.h>
#define TAG_HASH(row, bytes, seed) XXH3_64bits_withSeed((row), (bytes), (seed))
#endif

static inline uint64_t tag_seed(uint64_t base, uint64_t position)
{
    uint64_t x = base + position * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static void rung_make(uint64_t base, uint64_t position_first, const uint8_t *rows,
                      uint64_t row_bytes, uint64_t row_stride, uint64_t count, uint64_t *ret_tags,
                      uint64_t tag_step)
{
    for (uint64_t i = 0; i < count; i++)
        ret_tags[i * tag_step] =
            TAG_HASH(rows + i * row_stride, row_bytes, tag_seed(base, position_first + i));
}

static uint64_t rung_verify(uint64_t base, uint64_t position_first, const uint8_t *rows,
                            uint64_t row_bytes, uint64_t row_stride, uint64_t count,
                            const uint64_t *tags, uint64_t tag_step)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t tag =
            TAG_HASH(rows + i * row_stride, row_bytes, tag_seed(base, position_first + i));
        if (tag != tags[i * tag_step])
            return i;
    }
    return count;
}

#ifdef TAG_MOVE
static bool is_lines(uint64_t row_bytes, uint64_t span_bytes, uint8_t *const *spans)
{
    uint64_t bits = 0;
    for (uint64_t j = 0; j < row_bytes / span_bytes; j++)
        bits |= (uint64_t)(uintptr_t)spans[j];
    return row_bytes > TAG_SHORT_MAX && span_bytes % TAG_LINE_BYTES == 0 &&
           bits % TAG_DST_ALIGN == 0 && spans[0] != NULL;
}
#endif

static void row_put(const struct sc_store_tag_move *what, const uint8_t *row, uint8_t *const *spans)
{
    for (uint64_t j = 0; j < what->row_bytes / what->span_bytes && spans[j] != NULL; j++)
        sc_stream_copy(spans[j], row + j * what->span_bytes, what->span_bytes);
}

static uint64_t rung_move(const struct sc_store_tag_move *what)
{
    uint64_t i = 0;
    for (; i < what->count; i++) {
        const uint8_t *row = what->rows + i * what->row_bytes;
        uint8_t *const *spans = what->spans + i * what->span_step;
        uint64_t seed = tag_seed(what->base, what->position_first + i);
        uint64_t expected = what->tags[i * what->tag_step];
#ifdef TAG_MOVE
        if (is_lines(what->row_bytes, what->span_bytes, spans)) {
            struct tag_lines lines = {.src = row,
                                      .dst = spans[0],
                                      .dsts = spans,
                                      .count = what->row_bytes / TAG_LINE_BYTES,
                                      .span_count = what->span_bytes / TAG_LINE_BYTES};
            if (TAG_MOVE(&lines, seed) != expected)
                break;
            continue;
        }
#endif
        if (TAG_HASH(row, what->row_bytes, seed) != expected)
            break;
        row_put(what, row, spans);
    }
    sc_stream_end();
    return i;
}

static void rung_gather(const struct sc_store_tag_gather *what)
{
    for (uint64_t i = 0; i < what->count; i++) {
        uint8_t *row = what->rows + i * what->row_bytes;
        uint8_t *const *spans = what->spans + i * what->span_step;
        uint64_t seed = tag_seed(what->base, what->position_first + i);
#ifdef TAG_MOVE
        if (is_lines(what->row_bytes, what->row_bytes, &row) &&
            what->span_bytes % TAG_LINE_BYTES == 0) {
            struct tag_lines lines = {.src = spans[0],
                                      .srcs = spans,
                                      .dst = row,
                                      .count = what->row_bytes / TAG_LINE_BYTES,
                                      .span_count = what->span_bytes / TAG_LINE_BYTES};
            what->tags[i] = TAG_MOVE(&lines, seed);
            continue;
        }
#endif
        for (uint64_t j = 0; j < what->row_bytes / what->span_bytes; j++)
            memcpy(row + j * what->span_bytes, spans[j], what->span_bytes);
        what->tags[i] = TAG_HASH(row, what->row_bytes, seed);
    }
    sc_stream_end();
}

static uint64_t rung_hash(const void *bytes, uint64_t count, uint64_t seed)
{
    return TAG_HASH(bytes, count, seed);
}

const struct sc_store_tag_rung TAG_RUNG = {.make = rung_make,
                                           .verify = rung_verify,
                                           .move = rung_move,
                                           .gather = rung_gather,
                                           .hash = rung_hash};
