/* bench-cache: which blocks of a request stream a tier keeps under each policy, and what misses
 * cost.
 *
 * No bytes are moved. Host memory is the product's (store/cache/host_tier.c) with a page per block,
 * the disk's eviction order the product's index (hashing/radix.c) with a token per block.
 *
 *   host   everything stored is on disk; a block loaded from there is inserted into host memory
 *          (fills loads), or already when it is stored (fills stores)
 *   disk   blocks that are not found from the front are computed and stored; leaves are evicted
 *   --tiers 1   device memory (a sixth of all chunks), host memory (half) and disk, exclusive, of
 *          chunks with some important rows (cache_tiers.h)
 *
 * Prints a JSON line per tier, capacity and policy: uses; reused (of blocks used before); missed
 * (reused ones that the tier lacked); milliseconds to the first token. Reads take the device's
 * rate; computing n tokens takes 1.003e-4 n + 1.615e-9 n^2 seconds (Cake's Llama-2-7B on an A100).
 * Threads: one. Tests: tests/unit/tools/quick_bench.py runs it. */
#include "bench/bench.h"
#include "bench/cache_stream.h"
#include "bench/cache_tiers.h"
#include "hashing/radix.h"
#include "store/cache/host_tier.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE       4096u
#define BELADY     4u /* behind enum sc_policy */
#define PARTS_MAX  8u
#define BLOCKS_MAX 65536u /* of a request */

struct model {
    uint64_t block_tokens;
    double block_bytes, bytes_per_ms;
};

struct cell {
    const struct cache_stream *stream;
    struct model model;
    const char *of;
    uint64_t part, capacity;
    uint32_t policy;
    bool is_disk, fills_stores;
    bool *has, *seen;     /* [use_count] the tier had the block; [distinct] it was used before */
    double *ms, *load_ms; /* [request_count] to the first token; of them, reading */
};

static const char *const policies[] = {"value", "lru", "lfu", "score", "belady"};

static void *must_have(void *memory)
{
    if (memory == NULL)
        bench_die("no memory");
    return memory;
}

/* ---- Host memory ----------------------------------------------------------------------------- */

static bool host_use(struct sc_host_tier *host, uint32_t block)
{
    const struct sc_host_tier_key key = {.copy = (uint64_t)block + 1};
    struct sc_host_tier_memory_slab *slab = sc_host_tier_get(host, &key);
    sc_host_tier_unpin(host, slab);
    return slab != NULL;
}

static void host_fill(struct sc_host_tier *host, const struct cell *cell, uint32_t block)
{
    const struct sc_host_tier_key key = {.copy = (uint64_t)block + 1};
    uint64_t cost_ns = (uint64_t)(cell->model.block_bytes / cell->model.bytes_per_ms * 1e6);
    struct sc_host_tier_memory_slab *slab =
        cell->seen[block] ? sc_host_tier_begin(host, &key, 1, PAGE, cost_ns)
                          : sc_host_tier_begin_stored(host, &key, 1, PAGE, cost_ns);
    if (slab != NULL)
        sc_host_tier_publish(host, slab);
}

static void host_replay(struct cell *cell)
{
    struct sc_alloc alloc;
    struct sc_host_tier *host;
    const struct cache_stream *stream = cell->stream;
    sc_alloc_init(&alloc);
    const struct sc_host_tier_params params = {.alloc = &alloc,
                                               .bytes = cell->capacity * PAGE,
                                               .slab_bytes = PAGE,
                                               .policy = (enum sc_policy)cell->policy};
    if (sc_host_tier_open(&params, &host, NULL) != SPEC_OK)
        bench_die("no memory for %" PRIu64 " blocks", cell->capacity);
    for (uint64_t i = 0; i < stream->use_count; i++) {
        uint32_t block = stream->blocks[i];
        bool is_stored = cell->seen[block];
        cell->has[i] = is_stored && host_use(host, block);
        if (is_stored ? !cell->has[i] : cell->fills_stores)
            host_fill(host, cell, block);
        cell->seen[block] = true;
    }
    sc_host_tier_close(host);
}

/* ---- The disk -------------------------------------------------------------------------------- */

static const struct sc_sha256 root = {{1}};

struct path {
    struct sc_radix *index;
    struct sc_radix_ref at; /* pinned; none: the root */
    uint64_t end, piece;
};

static struct sc_radix *index_open(struct sc_alloc *alloc, enum sc_policy policy)
{
    static const uint8_t secret[SC_CHAIN_SECRET_BYTES];
    struct sc_radix *index;
    const struct sc_radix_params params = {.alloc = alloc,
                                           .chunk_tokens = 1,
                                           .bytes_max = UINT64_C(8) << 30,
                                           .secret = secret,
                                           .policy = policy};
    sc_alloc_init(alloc);
    if (sc_radix_open(&params, &index, NULL) != SPEC_OK)
        bench_die("no memory for an index");
    return index;
}

/* One more block behind the path, for which the least leaf goes; false: all are in use. */
static bool path_store(struct path *path, uint64_t capacity, uint32_t block)
{
    struct sc_radix_stats stats;
    struct sc_radix_segment leaf;
    struct sc_radix_evicted evicted;
    struct sc_radix_inserted inserted;
    struct spec_error error = {.struct_size = sizeof(error)};
    sc_radix_stats(path->index, &stats);
    if (stats.runs >= capacity &&
        !(sc_radix_victim_old(path->index, sc_radix_below(UINT64_MAX), &leaf) &&
          sc_radix_evict_leaf(path->index, leaf.node, &evicted)))
        return false;
    const struct sc_radix_insertion insertion = {.root = root,
                                                 .after = path->at,
                                                 .first = path->end,
                                                 .tokens = &block,
                                                 .token_count = 1,
                                                 .run_first = path->end,
                                                 .value = {.piece = path->piece++}};
    if (sc_radix_insert(path->index, &insertion, &inserted, &error) != SPEC_OK)
        bench_die("insert: %s", error.text);
    sc_radix_pin(path->index, inserted.last);
    sc_radix_unpin(path->index, path->at);
    path->at = inserted.last;
    path->end++;
    return true;
}

static void disk_replay(struct cell *cell)
{
    struct sc_alloc alloc;
    const struct cache_stream *stream = cell->stream;
    struct sc_radix *index = index_open(&alloc, (enum sc_policy)cell->policy);
    struct path path = {.index = index};
    for (uint64_t r = 0; r < stream->request_count; r++) {
        const struct cache_request *request = &stream->requests[r];
        const uint32_t *blocks = stream->blocks + request->first;
        const struct sc_radix_query query = {
            .root = root, .tokens = blocks, .token_count = request->count};
        struct sc_radix_match match;
        sc_radix_match_pin(index, &query, NULL, 0, &match);
        for (uint64_t i = 0; i < match.token_count; i++)
            cell->has[request->first + i] = true;
        path.at = match.last;
        path.end = match.token_count;
        while (path.end < request->count && path_store(&path, cell->capacity, blocks[path.end]))
            ;
        sc_radix_unpin(index, path.at);
    }
    sc_radix_close(index);
}

/* ---- The device ------------------------------------------------------------------------------ */

static double compute_ms(double tokens)
{
    return 1e3 * (1.003e-4 * tokens + 1.615e-9 * tokens * tokens);
}

/* host: what was used before and is not there is read; disk: what is there is. A request has the
 * device to itself. */
static void cell_time(struct cell *cell)
{
    const struct cache_stream *stream = cell->stream;
    memset(cell->seen, 0, stream->distinct);
    for (uint64_t r = 0; r < stream->request_count; r++) {
        const struct cache_request *request = &stream->requests[r];
        uint64_t found = 0, read = 0;
        for (uint64_t i = request->first; i < request->first + request->count; i++) {
            bool is_stored = cell->is_disk ? cell->has[i] : cell->seen[stream->blocks[i]];
            found += is_stored && found == i - request->first;
            read += is_stored && (cell->is_disk || !cell->has[i]);
            cell->seen[stream->blocks[i]] = true;
        }
        uint64_t prefix = found * cell->model.block_tokens;
        prefix = prefix < request->tokens ? prefix : request->tokens;
        cell->load_ms[r] = (double)read * cell->model.block_bytes / cell->model.bytes_per_ms;
        cell->ms[r] =
            cell->load_ms[r] + compute_ms((double)request->tokens) - compute_ms((double)prefix);
    }
}

/* ---- ---- */

static int compare_ms(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void cell_print(struct cell *cell)
{
    const struct cache_stream *stream = cell->stream;
    uint64_t reused = 0, missed = 0;
    memset(cell->seen, 0, stream->distinct);
    for (uint64_t i = 0; i < stream->use_count; i++) {
        bool *seen = &cell->seen[stream->blocks[i]];
        reused += *seen;
        missed += *seen && !cell->has[i];
        *seen = true;
    }
    cell_time(cell);
    qsort(cell->ms, stream->request_count, sizeof(*cell->ms), compare_ms);
    qsort(cell->load_ms, stream->request_count, sizeof(*cell->load_ms), compare_ms);
    printf("{\"counts\": {\"name\": \"%s %s 1/%" PRIu64 " %s\", \"capacity\": %" PRIu64
           ", \"uses\": %" PRIu64 ", \"reused\": %" PRIu64 ", \"missed\": %" PRIu64
           ", \"requests\": %" PRIu64 ", \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
           "\"p99_load_ms\": %.3f}}\n",
           cell->is_disk        ? "disk"
           : cell->fills_stores ? "host+stores"
                                : "host",
           cell->of, cell->part, policies[cell->policy], cell->capacity, stream->use_count, reused,
           missed, stream->request_count, cell->ms[stream->request_count / 2],
           cell->ms[stream->request_count * 99 / 100],
           cell->load_ms[stream->request_count * 99 / 100]);
}

static void cell_run(struct cell *cell)
{
    const struct cache_stream *stream = cell->stream;
    memset(cell->seen, 0, stream->distinct);
    memset(cell->has, 0, stream->use_count);
    if (cell->policy == BELADY)
        cache_stream_belady(stream, cell->capacity, cell->is_disk || cell->fills_stores, cell->has);
    else if (cell->is_disk)
        disk_replay(cell);
    else
        host_replay(cell);
    cell_print(cell);
}

static void policies_run(struct cell *cell)
{
    for (cell->policy = 0; cell->policy <= BELADY; cell->policy++) {
        if (cell->policy == SC_POLICY_SCORE) /* is of what is read by rows: tiers_run */
            continue;
        cell->is_disk = cell->fills_stores = false;
        cell_run(cell);
        cell->fills_stores = true;
        cell_run(cell);
        cell->is_disk = true;
        cell->fills_stores = false;
        cell_run(cell);
    }
}

static void parts_run(struct cell *cell, const char *parts)
{
    const struct cache_stream *stream = cell->stream;
    char *list = must_have(strdup(parts)), *rest = list;
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
        cell->part = strtoull(word, NULL, 10);
        if (cell->part == 0)
            bench_die("--parts: numbers above 0 are expected");
        cell->of = "all";
        cell->capacity = stream->distinct / cell->part;
        policies_run(cell);
        cell->of = "reused";
        cell->capacity = stream->reused / cell->part;
        policies_run(cell);
    }
    free(list);
}

/* ---- Device memory, host memory, disk -------------------------------------------------------- */

static void tiers_print(const struct cache_tiers_params *params, double *ms)
{
    struct cache_tiers_counts counts;
    uint64_t requests = params->stream->request_count - params->warm_count;
    cache_tiers_replay(params, &counts, ms);
    qsort(ms, requests, sizeof(*ms), compare_ms);
    printf("{\"counts\": {\"name\": \"%s %s\", \"device_chunks\": %" PRIu64
           ", \"host_chunks\": %" PRIu64 ", \"requests\": %" PRIu64 ", \"uses\": %" PRIu64
           ", \"rows\": %" PRIu64 ", \"device_rows\": %" PRIu64 ", \"disk_uses\": %" PRIu64
           ", \"p50_ms\": %.3f, \"p99_ms\": %.3f}}\n",
           policies[params->device_policy], policies[params->host_policy], params->device_chunks,
           params->host_chunks, requests, counts.uses, counts.rows, counts.device_rows,
           counts.disk_uses, ms[requests / 2], ms[requests * 99 / 100]);
}

static void tiers_run(const struct cache_stream *stream, int argc, char **argv)
{
    static const enum sc_policy device[] = {SC_POLICY_LRU, SC_POLICY_LFU, SC_POLICY_SCORE};
    static const enum sc_policy host[] = {SC_POLICY_LRU, SC_POLICY_LFU, SC_POLICY_VALUE,
                                          SC_POLICY_SCORE};
    uint64_t row_bytes = bench_option_u64(argc, argv, "--row-bytes", 4096);
    struct cache_tiers_params params = {
        .stream = stream,
        .chunk_rows = bench_option_u64(argc, argv, "--chunk-rows", 64),
        .device_chunks = stream->distinct / bench_option_u64(argc, argv, "--device-part", 6),
        .host_chunks = stream->distinct / bench_option_u64(argc, argv, "--host-part", 2),
        .warm_count = stream->request_count / 4};
    params.half_life = (params.device_chunks + 1) * bench_option_u64(argc, argv, "--half-life", 16);
    params.row_ms = 1e3 * (double)row_bytes /
                    (double)bench_option_u64(argc, argv, "--device-rate", 25000000000);
    params.chunk_ms = 1e3 * (double)(row_bytes * params.chunk_rows) /
                      (double)bench_option_u64(argc, argv, "--rate", 5000000000);
    double *ms = must_have(calloc(stream->request_count, sizeof(*ms)));
    for (uint32_t d = 0; d < sizeof(device) / sizeof(device[0]); d++)
        for (uint32_t h = 0; h < sizeof(host) / sizeof(host[0]); h++) {
            params.device_policy = device[d];
            params.host_policy = host[h];
            tiers_print(&params, ms);
        }
    free(ms);
}

int main(int argc, char **argv)
{
    struct cache_stream stream;
    struct cell cell = {.stream = &stream};
    uint64_t token_bytes = bench_option_u64(argc, argv, "--token-bytes", 131072);
    cell.model.block_tokens = bench_option_u64(argc, argv, "--block-tokens", 512);
    cell.model.block_bytes = (double)(cell.model.block_tokens * token_bytes);
    cell.model.bytes_per_ms = (double)bench_option_u64(argc, argv, "--rate", 5000000000) / 1e3;
    cache_stream_read(&stream, bench_option(argc, argv, "--stream", ""));
    cell.has = must_have(calloc(stream.use_count, sizeof(*cell.has)));
    cell.seen = must_have(calloc(stream.distinct, sizeof(*cell.seen)));
    cell.ms = must_have(calloc(stream.request_count, sizeof(*cell.ms)));
    cell.load_ms = must_have(calloc(stream.request_count, sizeof(*cell.load_ms)));
    printf("{\"facts\": {\"requests\": %" PRIu64 ", \"uses\": %" PRIu64 ", \"blocks\": %" PRIu64
           ", \"reused_blocks\": %" PRIu64 "}}\n",
           stream.request_count, stream.use_count, stream.distinct, stream.reused);
    if (bench_option_u64(argc, argv, "--tiers", 0) != 0)
        tiers_run(&stream, argc, argv);
    else
        parts_run(&cell, bench_option(argc, argv, "--parts", "1,2,3,4,6"));
    free(cell.has);
    free(cell.seen);
    free(cell.ms);
    free(cell.load_ms);
    cache_stream_free(&stream);
    return 0;
}
