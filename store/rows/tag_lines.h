/* A row on its way, line by line: what the rungs of tags that copy what they hash are given.
 *
 *   src, dst   bytes that follow each other; or, where srcs or dsts is set, spans of span_count
 *              lines each: src or dst is the first one of them
 *
 * Does not: anything; the rungs' row_move does.
 * Tests: tests/unit/store/test_tag.c */
#ifndef SC_STORE_ROWS_TAG_LINES_H
#define SC_STORE_ROWS_TAG_LINES_H

#include <stddef.h>
#include <stdint.h>

#define TAG_LINE_BYTES 64u
#define TAG_DST_ALIGN  16u  /* of dst; of large memory of malloc, too */
#define TAG_SHORT_MAX  240u /* up to here XXH3 is another function */

struct tag_lines {
    const uint8_t *src;
    uint8_t *const *srcs; /* NULL: src goes on */
    uint8_t *dst;
    uint8_t *const *dsts; /* likewise */
    uint64_t count, span_count;
};

/* Behind a line: the next one. left: of the span, begins as span_count. */
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
