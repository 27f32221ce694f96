/* cache_stream: request streams for bench-cache. See bench/cache_stream.h. */
#include "bench/cache_stream.h"

#include "bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *more(void *memory, uint64_t count, uint64_t *capacity, uint64_t bytes)
{
    if (count < *capacity)
        return memory;
    *capacity = *capacity == 0 ? 4096 : 2 * *capacity;
    memory = realloc(memory, *capacity * bytes);
    if (memory == NULL)
        bench_die("no memory for a stream");
    return memory;
}

static void blocks_count(struct cache_stream *stream)
{
    uint8_t *uses;
    for (uint64_t i = 0; i < stream->use_count; i++)
        if (stream->blocks[i] >= stream->distinct)
            stream->distinct = (uint64_t)stream->blocks[i] + 1;
    uses = calloc(stream->distinct + 1, 1);
    if (uses == NULL)
        bench_die("no memory for %" PRIu64 " blocks", stream->distinct);
    for (uint64_t i = 0; i < stream->use_count; i++) {
        uint8_t *of = &uses[stream->blocks[i]];
        stream->reused += *of == 1;
        *of = *of < 2 ? *of + 1 : 2;
    }
    free(uses);
}

void cache_stream_read(struct cache_stream *stream, const char *path)
{
    char *line = NULL, *at, *end;
    size_t line_bytes = 0;
    uint64_t requests_max = 0, uses_max = 0, rows_max = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        bench_die("%s: cannot be read", path);
    *stream = (struct cache_stream){0};
    while (getline(&line, &line_bytes, file) > 0) {
        struct cache_request request = {.first = stream->use_count};
        request.ms = strtod(line, &at);
        request.tokens = strtoull(at, &at, 10);
        for (;; at = end) {
            uint64_t block = strtoull(at, &end, 10);
            if (end == at)
                break;
            stream->blocks =
                more(stream->blocks, stream->use_count, &uses_max, sizeof(*stream->blocks));
            stream->rows = more(stream->rows, stream->use_count, &rows_max, sizeof(*stream->rows));
            stream->rows[stream->use_count] =
                *end == ':' ? (uint32_t)strtoull(end + 1, &end, 10) : 0;
            stream->blocks[stream->use_count++] = (uint32_t)block;
        }
        request.count = stream->use_count - request.first;
        stream->requests =
            more(stream->requests, stream->request_count, &requests_max, sizeof(request));
        stream->requests[stream->request_count++] = request;
    }
    free(line);
    (void)fclose(file);
    if (stream->use_count == 0)
        bench_die("%s: no request has a block", path);
    blocks_count(stream);
}

void cache_stream_free(struct cache_stream *stream)
{
    free(stream->requests);
    free(stream->blocks);
    free(stream->rows);
}

/* ---- Belady: a heap of (next use, block), the farthest at the root; stale ones are passed over --
 */

struct entry {
    uint64_t next;
    uint32_t block;
};

struct future {
    uint64_t *next; /* [use_count] where the block of a use is used again; UINT64_MAX: nowhere */
    uint64_t *key;  /* [distinct] the next use under which a block is kept; 0: it is not */
    struct entry *heap;
    uint64_t heap_count, kept;
};

static void heap_push(struct future *future, struct entry entry)
{
    uint64_t at = future->heap_count++;
    while (at > 0 && future->heap[(at - 1) / 2].next < entry.next) {
        future->heap[at] = future->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    future->heap[at] = entry;
}

static void heap_pop(struct future *future)
{
    struct entry last = future->heap[--future->heap_count];
    uint64_t at = 0;
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= future->heap_count)
            break;
        if (child + 1 < future->heap_count &&
            future->heap[child + 1].next > future->heap[child].next)
            child++;
        if (future->heap[child].next <= last.next)
            break;
        future->heap[at] = future->heap[child];
        at = child;
    }
    future->heap[at] = last;
}

/* The one of those kept that is used again last goes, if that is after `next`. */
static bool heap_evict(struct future *future, uint64_t next)
{
    while (future->heap_count > 0) {
        struct entry top = future->heap[0];
        if (future->key[top.block] == top.next) {
            if (top.next <= next)
                return false;
            future->key[top.block] = 0;
            future->kept--;
            heap_pop(future);
            return true;
        }
        heap_pop(future);
    }
    return false;
}

static void future_init(struct future *future, const struct cache_stream *stream)
{
    uint64_t *last = malloc(stream->distinct * sizeof(*last));
    future->next = calloc(stream->use_count, sizeof(*future->next));
    future->key = calloc(stream->distinct, sizeof(*future->key));
    future->heap = calloc(stream->use_count + 1, sizeof(*future->heap));
    if (last == NULL || future->next == NULL || future->key == NULL || future->heap == NULL)
        bench_die("no memory for %" PRIu64 " uses", stream->use_count);
    memset(last, 0xff, stream->distinct * sizeof(*last));
    for (uint64_t i = stream->use_count; i-- > 0;) {
        future->next[i] = last[stream->blocks[i]];
        last[stream->blocks[i]] = i;
    }
    free(last);
}

void cache_stream_belady(const struct cache_stream *stream, uint64_t capacity, bool fills_first,
                         bool *ret_hit)
{
    struct future future = {0};
    future_init(&future, stream);
    bool *seen = calloc(stream->distinct, sizeof(*seen));
    if (seen == NULL)
        bench_die("no memory for %" PRIu64 " blocks", stream->distinct);
    for (uint64_t i = 0; i < stream->use_count; i++) {
        uint32_t block = stream->blocks[i];
        uint64_t next = future.next[i];
        ret_hit[i] = future.key[block] != 0;
        bool may = ret_hit[i] || seen[block] || fills_first;
        seen[block] = true;
        future.kept -= ret_hit[i];
        future.key[block] = 0;
        if (!may || next == UINT64_MAX || (future.kept == capacity && !heap_evict(&future, next)))
            continue;
        future.kept++;
        future.key[block] = next;
        heap_push(&future, (struct entry){.next = next, .block = block});
    }
    free(seen);
    free(future.next);
    free(future.key);
    free(future.heap);
}
