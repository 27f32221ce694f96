/* tag_lines: a row as 64-byte lines, for rungs that hash while they copy.
 *
 *   src, dst   contiguous bytes; or, if srcs or dsts is set, spans of span_count lines each, of
 *              which src or dst is the first
 *
 * Tests: tests/unit/store/test_tag.c */
#ifndef SC_STORE_ROWS_TAG_LINES_H
#define SC_STORE_ROWS_TAG_LINES_H

#include <stddef.h>
#include <stdint.h>

#define TAG_LINE_BYTES 64u
#define TAG_DST_ALIGN  16u  /* of dst: what malloc guarantees */
#define TAG_SHORT_MAX  240u /* up to here XXH3 uses other functions */

struct tag_lines {
    const uint8_t *src;
    uint8_t *const *srcs; /* NULL: src is contiguous */
    uint8_t *dst;
    uint8_t *const *dsts; /* NULL: dst is contiguous */
    uint64_t count, span_count;
};

/* Moves to the next line. left: lines left in the span, initially span_count. */
static inline void tag_lines_next(struct tag_lines *lines, uint64_t *left)
{
    lines->src += TAG_LINE_BYTES;
    lines->dst += TAG_LINE_BYTES;
    if (--*left > 0)
        return;
    *left = lines->span_count;
    lines->src = lines->srcs != NULL ? *++lines->srcs : lines->src;
    lines->dst = lines->dsts != NULL ? *++lines->dsts : lines->dst;
}

#endif
