/* tag_rung: the loops over rows, compiled once per instruction set.
 * The includer defines TAG_RUNG, its table's name. It may define TAG_HASH, a faster equal hash, and
 * TAG_MOVE, which hashes while it copies whole lines (rows > TAG_SHORT_MAX, to multiples of
 * TAG_DST_ALIGN).
 * Invariants: all rungs give the same tags, bit for bit.
 * Tests: tests/unit/store/test_tag.c compares every rung that the machine has. */
#ifndef TAG_RUNG
#error "tag_rung.h is included by store/rows/tag*.c only"
#endif

#include "base/nt_copy.h"
#include "store/rows/tag.h"
#include "store/rows/tag_lines.h"

#include <stdbool.h>
#include <string.h>

#ifndef TAG_HASH
#define XXH_INLINE_ALL
#define XXH_PREFETCH_DIST 4096 /* DMA data is in no cache */
#include <xxhash.h>
#define TAG_HASH(row, bytes, seed) XXH3_64bits_withSeed((row), (bytes), (seed))
#endif

/* Row i's seed. */
static inline uint64_t tag_seed(const struct sc_store_tag_rows *what, uint64_t i)
{
    uint64_t x = what->base + (what->position_first + i) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static void rung_make(const struct sc_store_tag_rows *what, const uint8_t *rows, uint64_t *ret_tags)
{
    for (uint64_t i = 0; i < what->count; i++)
        ret_tags[i * what->tag_step] =
            TAG_HASH(rows + i * what->row_bytes, what->row_bytes, tag_seed(what, i));
}

static uint64_t rung_verify(const struct sc_store_tag_rows *what, const uint8_t *rows,
                            const uint64_t *tags)
{
    for (uint64_t i = 0; i < what->count; i++)
        if (TAG_HASH(rows + i * what->row_bytes, what->row_bytes, tag_seed(what, i)) !=
            tags[i * what->tag_step])
            return i;
    return what->count;
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

static uint64_t rung_move(const struct sc_store_tag_rows *what, const uint8_t *rows,
                          const uint64_t *tags, const struct sc_store_tag_spans *to)
{
    uint64_t i = 0;
    for (; i < what->count; i++, rows += what->row_bytes) {
        uint8_t *const *spans = to->at + i * to->step;
        uint64_t seed = tag_seed(what, i), expected = tags[i * what->tag_step];
#ifdef TAG_MOVE
        if (is_lines(what->row_bytes, to->bytes, spans)) {
            struct tag_lines lines = {.src = rows,
                                      .dst = spans[0],
                                      .dsts = spans,
                                      .count = what->row_bytes / TAG_LINE_BYTES,
                                      .span_count = to->bytes / TAG_LINE_BYTES};
            if (TAG_MOVE(&lines, seed) != expected)
                break;
            continue;
        }
#endif
        if (TAG_HASH(rows, what->row_bytes, seed) != expected)
            break;
        for (uint64_t j = 0; j < what->row_bytes / to->bytes && spans[j] != NULL; j++)
            sc_nt_copy(spans[j], rows + j * to->bytes, to->bytes);
    }
    sc_nt_copy_end();
    return i;
}

static void rung_gather(const struct sc_store_tag_rows *what, const struct sc_store_tag_spans *from,
                        uint8_t *ret_rows, uint64_t *ret_tags)
{
    for (uint64_t i = 0; i < what->count; i++, ret_rows += what->row_bytes) {
        uint8_t *const *spans = from->at + i * from->step;
        uint64_t seed = tag_seed(what, i);
#ifdef TAG_MOVE
        if (is_lines(what->row_bytes, what->row_bytes, &ret_rows) &&
            from->bytes % TAG_LINE_BYTES == 0) {
            struct tag_lines lines = {.src = spans[0],
                                      .srcs = spans,
                                      .dst = ret_rows,
                                      .count = what->row_bytes / TAG_LINE_BYTES,
                                      .span_count = from->bytes / TAG_LINE_BYTES};
            ret_tags[i * what->tag_step] = TAG_MOVE(&lines, seed);
            continue;
        }
#endif
        for (uint64_t j = 0; j < what->row_bytes / from->bytes; j++)
            memcpy(ret_rows + j * from->bytes, spans[j], from->bytes);
        ret_tags[i * what->tag_step] = TAG_HASH(ret_rows, what->row_bytes, seed);
    }
    sc_nt_copy_end();
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
