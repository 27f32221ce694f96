/* bench-lookup: the cost of finding a stored prefix, beside its lower bounds.
 *
 *   match     sc_radix_match of the first L tokens of a stored prompt
 *   in place  the index's own token bytes of that prefix: XXH3-128 of each run, then memcmp with
 *             the prompt (the addresses are given)
 *   linear    the same bytes copied into one array: one XXH3-128, one memcmp
 *   sha16/64  SHA-256 block hashing as in vLLM, 16 and 64 tokens per block, without a table
 *
 * cold: caches and TLB entries are evicted before each sample by reading twice the last level's
 * size, small pages. warm: the second of two calls. --order shuffled stores the chunks of all
 * prompts in random order, so that neighbours of a prefix are not neighbours in memory; prompts
 * stores prompt by prompt. With --extra 1 also: 100,000 siblings, insert, evict, lookups while
 * another thread inserts and evicts, and removal of everything in steps.
 * Threads: one, and a writer with --extra 1. Tests: none (a measurement). */
#include "bench/bench.h"
#include "hashing/radix_internal.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define CHUNK           64u
#define PROMPT_TOKENS   50000u
#define PROMPT_CHUNKS   ((PROMPT_TOKENS + CHUNK - 1) / CHUNK)
#define INDEX_BYTES_MAX (UINT64_C(4) << 30)
#define VOCABULARY      128000u
#define LINE_TOKENS     16u
#define LENGTHS         3u
#define SIBLINGS        100000u
#define SIBLING_TOKENS  1000u
#define SIBLING_FIRST   960u /* where they part: the 16th chunk */
#define BATCH           256u
#define EVICT_BATCH     10000u
#define EVICT_BATCHES   10u
#define RESET_STEPS     1024u
#define READ_PROMPTS    64u /* looked up under the writer, so that eviction spares them */
#define WINDOWS         20u /* of each kind, idle and written in turn */
#define GROUP           8u  /* runs that the in-place pass prefetches together */
#define WINDOW_LOOKUPS  400u

static const uint64_t lengths[LENGTHS] = {1000, 10000, 50000};
static const struct sc_sha256 root = {{21, 22}};
static const uint8_t secret[SC_CHAIN_SECRET_BYTES] = {23, 24};

struct run {
    const uint32_t *tokens;
    uint64_t count;
};

struct world {
    struct sc_alloc alloc;
    struct sc_radix *index;
    uint64_t random;
    uint64_t prompt_count;
    uint64_t chunk_count;
    const unsigned char *dirt; /* read to drive the caches out */
    uint64_t dirt_bytes;
    uint32_t query[PROMPT_TOKENS];
    uint32_t copy[PROMPT_TOKENS];
    struct sc_radix_segment segments[PROMPT_CHUNKS + 1];
    struct run runs[PROMPT_CHUNKS + 1];
    uint64_t run_count;
    volatile uint64_t sink;
};

static uint64_t draw(struct world *w)
{
    return bench_mix(w->random++);
}

/* The prompt's tokens from position `first`. */
static void make_tokens(uint64_t prompt, uint64_t first, uint64_t count, uint32_t *ret_tokens)
{
    for (uint64_t i = 0; i < count; i++)
        ret_tokens[i] = (uint32_t)(bench_mix(prompt << 32 | (first + i)) % VOCABULARY);
}

/* ---- building -------------------------------------------------------------------------------- */

/* Where a prompt's next chunk hangs. */
struct tail {
    struct sc_radix_ref after;
    uint64_t end;
};

/* Inserts [tail->end, end) of one chunk, after the tail. */
static void insert(struct world *w, struct tail *tail, const uint32_t *tokens, uint64_t end,
                   uint64_t piece)
{
    struct sc_radix_insertion insertion = {.root = root,
                                           .after = tail->after,
                                           .first = tail->end,
                                           .tokens = tokens,
                                           .token_count = end - tail->end,
                                           .run_first = tail->end,
                                           .value = {.piece = piece}};
    struct sc_radix_inserted inserted;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_radix_insert(w->index, &insertion, &inserted, &error) != SPEC_OK)
        bench_die("insert: %s", error.text);
    tail->after = inserted.whole;
    tail->end = inserted.whole_end;
}

static uint64_t chunk_end(uint64_t position)
{
    uint64_t end = (position / CHUNK + 1) * CHUNK;
    return end < PROMPT_TOKENS ? end : PROMPT_TOKENS;
}

static void build(struct world *w, uint64_t chunk_count, bool shuffled)
{
    w->prompt_count = (chunk_count + PROMPT_CHUNKS - 1) / PROMPT_CHUNKS;
    struct tail *tails = calloc(w->prompt_count, sizeof(*tails));
    uint64_t *open = calloc(w->prompt_count, sizeof(*open)); /* prompts that are not complete */
    if (tails == NULL || open == NULL)
        bench_die("no memory for %" PRIu64 " prompts", w->prompt_count);
    uint64_t open_count = w->prompt_count;
    for (uint64_t i = 0; i < open_count; i++)
        open[i] = i;
    while (open_count != 0) {
        uint64_t i = shuffled ? draw(w) % open_count : 0;
        struct tail *tail = &tails[open[i]];
        uint64_t end = chunk_end(tail->end);
        uint32_t tokens[CHUNK];
        make_tokens(open[i], tail->end, end - tail->end, tokens);
        insert(w, tail, tokens, end, ++w->chunk_count);
        if (tail->end == PROMPT_TOKENS)
            open[i] = open[--open_count];
    }
    free(open);
    free(tails);
}

static void open_world(struct world *w)
{
    sc_alloc_init(&w->alloc);
    struct sc_radix_params params = {
        .alloc = &w->alloc, .chunk_tokens = CHUNK, .bytes_max = INDEX_BYTES_MAX, .secret = secret};
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_radix_open(&params, &w->index, &error) != SPEC_OK)
        bench_die("%s", error.text);
    w->dirt_bytes = 2 * bench_cache_bytes();
    void *dirt =
        mmap(NULL, w->dirt_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (dirt == MAP_FAILED)
        bench_die("no %" PRIu64 " bytes to drive a cache out", w->dirt_bytes);
    (void)madvise(dirt, w->dirt_bytes, MADV_NOHUGEPAGE);
    memset(dirt, 1, w->dirt_bytes);
    w->dirt = dirt;
}

/* ---- contenders ------------------------------------------------------------------------------ */

static void drive_out(struct world *w)
{
    uint64_t sum = 0;
    for (uint64_t at = 0; at < w->dirt_bytes; at += 64)
        sum += w->dirt[at];
    w->sink += sum;
}

static uint64_t time_match(struct world *w, uint64_t length)
{
    struct sc_radix_query query = {.root = root, .tokens = w->query, .token_count = length};
    struct sc_radix_match match;
    uint64_t start = bench_now_ns();
    sc_radix_match(w->index, &query, w->segments, PROMPT_CHUNKS + 1, &match);
    uint64_t ns = bench_now_ns() - start;
    if (match.token_count != length)
        bench_die("match of %" PRIu64 " tokens found %" PRIu64, length, match.token_count);
    w->run_count = match.segment_count;
    return ns;
}

static uint64_t time_linear(struct world *w, uint64_t length)
{
    uint64_t start = bench_now_ns();
    struct sc_hash hash = sc_hash_bytes(w->copy, 4 * length);
    int differs = memcmp(w->copy, w->query, 4 * length);
    uint64_t ns = bench_now_ns() - start;
    w->sink += hash.lo + (uint64_t)differs;
    return ns;
}

/* Runs [first, first + GROUP): the first lines together, as their pages are translated together.
 * Inlined, because gcc drops calls of functions that only prefetch. */
static inline __attribute__((always_inline)) void prefetch_group(const struct world *w,
                                                                 uint64_t first)
{
    uint64_t end = first + GROUP < w->run_count ? first + GROUP : w->run_count;
    for (uint64_t i = first; i < end; i++)
        __builtin_prefetch(w->runs[i].tokens);
    for (uint64_t i = first; i < end; i++) {
        for (uint64_t at = LINE_TOKENS; at < w->runs[i].count + LINE_TOKENS; at += LINE_TOKENS)
            __builtin_prefetch(w->runs[i].tokens + at);
    }
}

static uint64_t time_in_place(struct world *w, uint64_t length)
{
    (void)length; /* the runs have it */
    uint64_t sum = 0;
    uint64_t at = 0;
    uint64_t start = bench_now_ns();
    prefetch_group(w, 0);
    for (uint64_t i = 0; i < w->run_count; i++) {
        const struct run *run = &w->runs[i];
        if (i % GROUP == 0)
            prefetch_group(w, i + GROUP);
        sum += sc_hash_bytes(run->tokens, 4 * run->count).lo;
        sum += (uint64_t)memcmp(run->tokens, w->query + at, 4 * run->count);
        at += run->count;
    }
    uint64_t ns = bench_now_ns() - start;
    w->sink += sum;
    return ns;
}

/* A prompt to look up, its copy, and where the index has it. */
static void choose(struct world *w, uint64_t length)
{
    make_tokens(draw(w) % w->prompt_count, 0, length, w->query);
    memcpy(w->copy, w->query, 4 * length);
    (void)time_match(w, length);
    for (uint64_t i = 0; i < w->run_count; i++) {
        const struct sc_radix_node *node = sc_radix_node_at(w->index, w->segments[i].node.id);
        uint64_t cut = sc_radix_up_cut(atomic_load(&node->up));
        w->runs[i] = (struct run){node->tokens + cut, w->segments[i].count};
    }
}

struct contender {
    const char *name;
    uint64_t (*time)(struct world *w, uint64_t length);
};
static const struct contender contenders[] = {
    {"match", time_match}, {"linear", time_linear}, {"in place", time_in_place}};
#define CONTENDERS (sizeof(contenders) / sizeof(contenders[0]))

static void print_named(struct bench_series *series, const char *name, uint64_t length,
                        const char *state)
{
    char text[96];
    (void)snprintf(text, sizeof(text), "%s %" PRIu64 " %s", name, length, state);
    series->name = text;
    bench_series_print(series);
}

static void measure_cells(struct world *w, uint64_t rounds)
{
    static struct bench_series cold[CONTENDERS], warm[CONTENDERS];
    for (uint32_t l = 0; l < LENGTHS; l++) {
        for (uint32_t c = 0; c < CONTENDERS; c++) {
            cold[c] = (struct bench_series){.unit = "byte", .work = 4.0 * (double)lengths[l]};
            warm[c] = cold[c];
        }
        for (uint64_t round = 0; round < rounds; round++) {
            choose(w, lengths[l]);
            for (uint32_t c = 0; c < CONTENDERS; c++) {
                drive_out(w);
                bench_series_add(&cold[c], contenders[c].time(w, lengths[l]));
            }
            for (uint32_t c = 0; c < CONTENDERS; c++) {
                (void)contenders[c].time(w, lengths[l]);
                bench_series_add(&warm[c], contenders[c].time(w, lengths[l]));
            }
        }
        for (uint32_t c = 0; c < CONTENDERS; c++) {
            print_named(&cold[c], contenders[c].name, lengths[l], "cold");
            print_named(&warm[c], contenders[c].name, lengths[l], "warm");
        }
    }
}

/* ---- SHA-256 block hashing ------------------------------------------------------------------- */

static void measure_sha(struct world *w, uint64_t rounds, uint32_t block_tokens)
{
    EVP_MD *sha = EVP_MD_fetch(NULL, "SHA256", NULL);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (sha == NULL || context == NULL)
        bench_die("SHA-256: OpenSSL has none");
    for (uint32_t l = 0; l < LENGTHS; l++) {
        static struct bench_series series;
        series = (struct bench_series){.unit = "byte", .work = 4.0 * (double)lengths[l]};
        make_tokens(1, 0, lengths[l], w->query);
        for (uint64_t round = 0; round <= rounds; round++) {
            unsigned char chain[32] = {0};
            int good = 1;
            uint64_t start = bench_now_ns();
            for (uint64_t at = 0; at + block_tokens <= lengths[l]; at += block_tokens) {
                good &= EVP_DigestInit_ex2(context, sha, NULL);
                good &= EVP_DigestUpdate(context, chain, sizeof(chain));
                good &= EVP_DigestUpdate(context, w->query + at, 4 * (size_t)block_tokens);
                good &= EVP_DigestFinal_ex(context, chain, NULL);
            }
            uint64_t ns = bench_now_ns() - start;
            if (good != 1)
                bench_die("SHA-256 failed");
            w->sink += chain[0];
            if (round != 0)
                bench_series_add(&series, ns);
        }
        print_named(&series, block_tokens == 16 ? "sha16" : "sha64", lengths[l], "warm");
    }
    EVP_MD_CTX_free(context);
    EVP_MD_free(sha);
}

/* ---- siblings, insert, evict ----------------------------------------------------------------- */

static void sibling_tokens(uint64_t sibling, uint32_t *ret_tokens)
{
    make_tokens(UINT64_C(1) << 30, 0, SIBLING_FIRST, ret_tokens);
    make_tokens((UINT64_C(1) << 30) + 1 + sibling, SIBLING_FIRST, SIBLING_TOKENS - SIBLING_FIRST,
                ret_tokens + SIBLING_FIRST);
}

/* Batches of lookups of 1,000 tokens, queries made before: prompts, or siblings. */
static uint64_t time_batch(struct world *w, uint32_t (*queries)[SIBLING_TOKENS])
{
    uint64_t start = bench_now_ns();
    for (uint32_t i = 0; i < BATCH; i++) {
        struct sc_radix_query query = {
            .root = root, .tokens = queries[i], .token_count = SIBLING_TOKENS};
        struct sc_radix_match match;
        sc_radix_match(w->index, &query, w->segments, PROMPT_CHUNKS + 1, &match);
        if (match.token_count != SIBLING_TOKENS)
            bench_die("a sibling was not found");
    }
    return bench_now_ns() - start;
}

static void measure_siblings(struct world *w, uint64_t rounds)
{
    static uint32_t queries[BATCH][SIBLING_TOKENS];
    struct tail common = {.end = 0};
    sibling_tokens(0, queries[0]);
    while (common.end < SIBLING_FIRST)
        insert(w, &common, queries[0] + common.end, chunk_end(common.end), ++w->chunk_count);
    for (uint64_t i = 0; i < SIBLINGS; i++) {
        struct tail tail = common;
        sibling_tokens(i, queries[0]);
        insert(w, &tail, queries[0] + SIBLING_FIRST, SIBLING_TOKENS, ++w->chunk_count);
    }
    static struct bench_series plain, siblings;
    plain = (struct bench_series){.name = "plain", .unit = "request", .work = BATCH};
    siblings = (struct bench_series){.name = "siblings", .unit = "request", .work = BATCH};
    for (uint64_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < BATCH; i++)
            make_tokens(draw(w) % w->prompt_count, 0, SIBLING_TOKENS, queries[i]);
        bench_series_add(&plain, time_batch(w, queries));
        for (uint32_t i = 0; i < BATCH; i++)
            sibling_tokens(draw(w) % SIBLINGS, queries[i]);
        bench_series_add(&siblings, time_batch(w, queries));
    }
    bench_series_print(&plain);
    bench_series_print(&siblings);
}

/* A prompt's chunks, one insertion each, as an engine's passes bring them. */
static void insert_prompt(struct world *w, const uint32_t *tokens)
{
    struct tail tail = {.end = 0};
    while (tail.end < PROMPT_TOKENS)
        insert(w, &tail, tokens + tail.end, chunk_end(tail.end), ++w->chunk_count);
}

static void measure_changes(struct world *w, uint64_t rounds)
{
    static struct bench_series inserts, evictions;
    inserts = (struct bench_series){.name = "insert", .unit = "chunk", .work = PROMPT_CHUNKS};
    for (uint64_t round = 0; round < rounds; round++) {
        make_tokens((UINT64_C(1) << 31) + round, 0, PROMPT_TOKENS, w->query);
        uint64_t start = bench_now_ns();
        insert_prompt(w, w->query);
        bench_series_add(&inserts, bench_now_ns() - start);
    }
    bench_series_print(&inserts);
    evictions = (struct bench_series){.name = "evict", .unit = "chunk", .work = EVICT_BATCH};
    for (uint32_t batch = 0; batch < EVICT_BATCHES; batch++) {
        uint64_t start = bench_now_ns();
        for (uint32_t i = 0; i < EVICT_BATCH; i++) {
            struct sc_radix_evicted evicted;
            if (!sc_radix_evict(w->index, &evicted))
                bench_die("nothing left to evict");
        }
        bench_series_add(&evictions, bench_now_ns() - start);
    }
    bench_series_print(&evictions);
}

/* ---- lookups under a writer ------------------------------------------------------------------ */

struct writer {
    struct world *w;
    _Atomic uint32_t wanted; /* 0 rest, 1 write, 2 end */
    _Atomic uint32_t is_writing;
    _Atomic uint64_t written;
    uint32_t tokens[PROMPT_TOKENS];
};

static void *write_all(void *user)
{
    struct writer *writer = user;
    const struct timespec rest = {.tv_nsec = 200000};
    uint64_t prompt = UINT64_C(3) << 30;
    while (atomic_load(&writer->wanted) != 2) {
        atomic_store(&writer->is_writing, 0);
        if (atomic_load(&writer->wanted) == 0)
            (void)nanosleep(&rest, NULL);
        while (atomic_load(&writer->wanted) == 1) {
            make_tokens(prompt++, 0, PROMPT_TOKENS, writer->tokens);
            struct tail tail = {.end = 0};
            while (tail.end < PROMPT_TOKENS) {
                struct sc_radix_evicted evicted;
                insert(writer->w, &tail, writer->tokens + tail.end, chunk_end(tail.end), prompt);
                (void)sc_radix_evict(writer->w->index, &evicted);
                atomic_store(&writer->is_writing, 1);
                atomic_fetch_add_explicit(&writer->written, 1, memory_order_relaxed);
            }
        }
    }
    return NULL;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Indexed by whether the writer runs. */
struct contest {
    struct bench_series wall[2], cpu[2];
    uint64_t waits[2]; /* voluntary context switches of this thread while it looked up */
    uint64_t preempted[2];
    uint64_t shorter[2]; /* answers that a change in progress cut */
};

static void measure_window(struct world *w, uint32_t (*queries)[PROMPT_TOKENS], uint64_t length,
                           uint32_t state, struct contest *contest)
{
    struct rusage before, after;
    (void)getrusage(RUSAGE_THREAD, &before);
    for (uint32_t i = 0; i < WINDOW_LOOKUPS; i++) {
        struct sc_radix_query query = {
            .root = root, .tokens = queries[draw(w) % READ_PROMPTS], .token_count = length};
        struct sc_radix_match match;
        uint64_t cpu = thread_cpu_ns();
        uint64_t start = bench_now_ns();
        sc_radix_match_pin(w->index, &query, w->segments, PROMPT_CHUNKS + 1, &match);
        bench_series_add(&contest->wall[state], bench_now_ns() - start);
        bench_series_add(&contest->cpu[state], thread_cpu_ns() - cpu);
        sc_radix_unpin(w->index, match.last);
        contest->shorter[state] += match.token_count != length;
    }
    (void)getrusage(RUSAGE_THREAD, &after);
    contest->waits[state] += (uint64_t)(after.ru_nvcsw - before.ru_nvcsw);
    contest->preempted[state] += (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
}

static void measure_contest(struct world *w, uint32_t (*queries)[PROMPT_TOKENS], uint64_t length,
                            struct writer *writer)
{
    static struct contest contest;
    static const char *const states[2] = {"idle", "written"};
    contest = (struct contest){.waits = {0, 0}};
    for (uint32_t state = 0; state < 2; state++) {
        contest.wall[state] = (struct bench_series){.unit = "request", .work = 1};
        contest.cpu[state] = contest.wall[state];
    }
    const struct timespec rest = {.tv_nsec = 100000};
    uint64_t written = atomic_load(&writer->written);
    for (uint32_t window = 0; window < 2 * WINDOWS; window++) {
        uint32_t state = window % 2;
        atomic_store(&writer->wanted, state);
        while (atomic_load(&writer->is_writing) != state)
            (void)nanosleep(&rest, NULL);
        measure_window(w, queries, length, state, &contest);
    }
    atomic_store(&writer->wanted, 0);
    for (uint32_t state = 0; state < 2; state++) {
        print_named(&contest.wall[state], "wall", length, states[state]);
        print_named(&contest.cpu[state], "cpu", length, states[state]);
        printf("{\"counts\": {\"name\": \"%" PRIu64 " %s\", \"waits\": %" PRIu64
               ", \"preempted\": %" PRIu64 ", \"shorter\": %" PRIu64 ", \"written\": %" PRIu64
               "}}\n",
               length, states[state], contest.waits[state], contest.preempted[state],
               contest.shorter[state], state * (atomic_load(&writer->written) - written));
    }
}

static void measure_writer(struct world *w)
{
    static uint32_t queries[READ_PROMPTS][PROMPT_TOKENS];
    static struct writer writer;
    writer.w = w;
    /* The newest prompts: fresh ones, since older ones are evicted by now. */
    for (uint32_t i = 0; i < READ_PROMPTS; i++) {
        make_tokens((UINT64_C(5) << 30) + i, 0, PROMPT_TOKENS, queries[i]);
        insert_prompt(w, queries[i]);
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, write_all, &writer) != 0)
        bench_die("no thread");
    measure_contest(w, queries, 50000, &writer);
    measure_contest(w, queries, 1000, &writer);
    atomic_store(&writer.wanted, 2);
    (void)pthread_join(thread, NULL);
}

/* A reset of everything that is stored, in steps: how long one call keeps other writers waiting. */
static void measure_reset(struct world *w)
{
    static struct bench_series series;
    series = (struct bench_series){.name = "reset", .unit = "step", .work = RESET_STEPS};
    uint64_t mark = sc_radix_root_mark(w->index);
    bool more = true;
    while (more) {
        uint64_t start = bench_now_ns();
        more = sc_radix_remove_roots(w->index, mark, RESET_STEPS, NULL);
        bench_series_add(&series, bench_now_ns() - start);
    }
    bench_series_print(&series);
}

int main(int argc, char **argv)
{
    static struct world w;
    uint64_t chunks = bench_option_u64(argc, argv, "--chunks", 1000000);
    uint64_t rounds = bench_option_u64(argc, argv, "--rounds", 9);
    bool shuffled = strcmp(bench_option(argc, argv, "--order", "shuffled"), "shuffled") == 0;
    w.random = chunks;
    open_world(&w);
    build(&w, chunks, shuffled);
    struct sc_radix_stats stats;
    sc_radix_stats(w.index, &stats);
    measure_cells(&w, rounds);
    if (bench_option_u64(argc, argv, "--extra", 0) != 0) {
        measure_sha(&w, rounds, 16);
        measure_sha(&w, rounds, 64);
        measure_siblings(&w, rounds);
        measure_changes(&w, rounds);
        measure_writer(&w);
        measure_reset(&w);
    }
    printf("{\"facts\": {\"chunks\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"tokens\": %" PRIu64
           ", \"driven_out_bytes\": %" PRIu64 "}}\n",
           stats.runs, stats.bytes, stats.tokens, w.dirt_bytes);
    sc_radix_close(w.index);
    return 0;
}
