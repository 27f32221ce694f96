/* cache_stream: a request stream as blocks of its prompts, and the fewest misses of any cache.
 *
 *   file      one line per request: TIME_MS TOKENS BLOCK BLOCK .., or BLOCK:ROWS BLOCK:ROWS .. if
 *             ROWS rows of a block are wanted
 *   block     a number for the tokens of a block and all before it: equal tokens after different
 *             prefixes have different numbers
 *
 * Threads: one. Tests: none of its own; bench/run cache runs it */
#ifndef BENCH_CACHE_STREAM_H
#define BENCH_CACHE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

struct cache_request {
    double ms;
    uint64_t tokens;
    uint64_t first, count; /* of its blocks in stream.blocks */
};

struct cache_stream {
    struct cache_request *requests;
    uint64_t request_count;
    uint32_t *blocks; /* [use_count] */
    uint32_t *rows;   /* [use_count] 0 where the file does not say */
    uint64_t use_count;
    uint64_t distinct; /* numbers are below it */
    uint64_t reused;   /* blocks that more than one request has */
};

void cache_stream_read(struct cache_stream *stream, const char *path);
void cache_stream_free(struct cache_stream *stream);

/* What a cache of so many blocks does that knows the future (Belady), and need not admit: which
 * uses find their block there. fills_first: a block may enter at its first use; else only at a
 * later one. hit: [use_count]. As whoever uses a block uses those before it in its prompt, it never
 * drops one that another block hangs on earlier: leaves first is no worse. */
void cache_stream_belady(const struct cache_stream *stream, uint64_t capacity, bool fills_first,
                         bool *ret_hit);

#endif
