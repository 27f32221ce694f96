/* bench-recovery: the cost of opening a store, beside the lower bound of reading its log.
 *
 *   killed   open, in a process of its own, after SIGKILL ended the last user of the store
 *   clean    the same after the last user closed it
 *   pass     one thread reads the log, checks each frame, and decodes each record into a struct
 *
 * The log's pages are evicted from the page cache before each sample, and the memory that either
 * needs is touched and freed: on a virtual machine whose host reclaims memory, the first touch
 * takes 20 times as long. The plugin fills the store: prompts of 128 chunks of 64 tokens, rows of
 * 16 bytes in one layer, so that metadata dominates; open builds the index.
 * Threads: the plugin's. Tests: none (a measurement). */
#include "abi/spec_load.h"
#include "bench/bench.h"
#include "store/log/record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK         64u
#define PROMPT_CHUNKS 128u
#define PROMPT_TOKENS (CHUNK * PROMPT_CHUNKS)
#define ROW_BYTES     8u /* of K; V has as many */
#define IN_FLIGHT     16u
#define WINDOW_BYTES  (1u << 20)
#define SEED_BYTES    256u
/* a chunk: 352 of the index, 48 of the store's table, 420 of its log */
#define MEMORY_BYTES 1200u

struct options {
    const char *connector, *config, *dir;
    uint64_t chunks, rounds;
};

static spec_connector *open_store(const struct options *options, struct spec_plugin *plugin,
                                  uint64_t *ret_ns)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = 1,
                               .kv_head_count = 1,
                               .query_head_count = 1,
                               .head_size = ROW_BYTES / 2,
                               .kv_dtype = SPEC_DTYPE_F16,
                               .weights_id = {"bench-recovery", 14}};
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = options->config, .model = &model};
    spec_connector *conn = NULL;
    bench_must(spec_load(options->connector, plugin, &error), &error, "load");
    uint64_t begin_ns = bench_now_ns();
    bench_must(plugin->api->open(&params, &conn, &error), &error, "open");
    *ret_ns = bench_now_ns() - begin_ns;
    return conn;
}

/* ---- Filling, in a child ----------------------------------------------------------------------
 */

static void prompt_make(uint64_t number, uint32_t *tokens)
{
    uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++) {
        word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        tokens[i] = (uint32_t)(word >> 40);
    }
}

static void prompt_store(const struct spec_api *api, spec_connector *conn, const uint32_t *tokens,
                         uint8_t *rows, uint64_t token_count, spec_ticket *ret_ticket)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_lookup_params lookup = {
        .struct_size = sizeof(lookup), .tokens = tokens, .token_count = token_count};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    struct spec_memory memory = {.struct_size = sizeof(memory),
                                 .dtype = SPEC_DTYPE_F16,
                                 .k_base = rows,
                                 .v_base = rows,
                                 .k_bytes = token_count * ROW_BYTES,
                                 .v_bytes = token_count * ROW_BYTES,
                                 .token_stride_bytes = ROW_BYTES,
                                 .head_stride_bytes = ROW_BYTES};
    bench_must(api->lookup(conn, &lookup, &found, &error), &error, "lookup");
    struct spec_store_params store = {.struct_size = sizeof(store),
                                      .request = found.request,
                                      .token_count = token_count,
                                      .memory = &memory};
    bench_must(api->store(conn, &store, 1, ret_ticket, &error), &error, "store");
    bench_must(api->release(conn, found.request, &error), &error, "release");
}

static void fill(const struct options *options)
{
    static uint32_t tokens[PROMPT_TOKENS];
    static uint8_t rows[PROMPT_TOKENS * ROW_BYTES];
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_plugin plugin;
    spec_ticket tickets[IN_FLIGHT];
    spec_status statuses[IN_FLIGHT];
    uint64_t ns, waiting = 0, left = options->chunks;
    spec_connector *conn = open_store(options, &plugin, &ns);
    for (uint64_t number = 0; left > 0; number++) {
        uint64_t chunks = left < PROMPT_CHUNKS ? left : PROMPT_CHUNKS;
        prompt_make(number, tokens);
        prompt_store(plugin.api, conn, tokens, rows, chunks * CHUNK, &tickets[waiting++]);
        left -= chunks;
        if (waiting < IN_FLIGHT && left > 0)
            continue;
        bench_must(plugin.api->wait(conn, tickets, waiting, UINT64_MAX, statuses, &error), &error,
                   "wait");
        for (uint64_t i = 0; i < waiting; i++)
            bench_must(statuses[i], &error, "a pass");
        waiting = 0;
    }
    (void)raise(SIGKILL);
}

/* ---- Opening, in a child ----------------------------------------------------------------------
 */

static void open_once(const struct options *options, bool closes, int report)
{
    struct spec_plugin plugin;
    uint64_t ns;
    spec_connector *conn = open_store(options, &plugin, &ns);
    if (write(report, &ns, sizeof(ns)) != (ssize_t)sizeof(ns))
        bench_die("report");
    if (!closes)
        (void)raise(SIGKILL);
    plugin.api->close(conn);
    _exit(0);
}

/* Runs it in a child; the child's number, when it is told one. */
static uint64_t in_child(const struct options *options, bool fills, bool closes)
{
    int ends[2], status = 0;
    uint64_t ns = 0;
    if (pipe(ends) != 0)
        bench_die("pipe");
    pid_t child = fork();
    if (child < 0)
        bench_die("fork");
    if (child == 0) {
        close(ends[0]);
        if (fills)
            fill(options);
        open_once(options, closes, ends[1]);
    }
    close(ends[1]);
    ssize_t count = read(ends[0], &ns, sizeof(ns));
    close(ends[0]);
    if (waitpid(child, &status, 0) != child || count != (fills ? 0 : (ssize_t)sizeof(ns)))
        bench_die("the child failed");
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!(closes ? WIFEXITED(status) && WEXITSTATUS(status) == 0 : killed))
        bench_die("the child ended otherwise than it should");
    return ns;
}

/* ---- The pass ---------------------------------------------------------------------------------
 */

static void log_begin(const struct options *options, struct sc_store_log_end *ret_end)
{
    char path[4096 + 32];
    uint8_t bytes[SEED_BYTES];
    uint64_t chain = 0;
    struct sc_store_frame frame;
    struct sc_store_identity identity;
    (void)snprintf(path, sizeof(path), "%s/" SC_STORE_IDENTITY_NAME, options->dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd >= 0 ? read(fd, bytes, sizeof(bytes)) : -1;
    if (count <= 0 ||
        sc_store_old_frame_check(bytes, (uint64_t)count, 0, &chain, &frame) != SC_STORE_FRAME_OK)
        bench_die("%s: no identity", path);
    if (!sc_store_record_get_identity(frame.payload, frame.payload_bytes, &identity))
        bench_die("%s: no identity", path);
    close(fd);
    sc_store_log_begin(ret_end, identity.store_id, 0, 1);
}

static int open_log(const struct options *options)
{
    char path[4096 + 32];
    (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001/log", options->dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        bench_die("%s: cannot be opened", path);
    return fd;
}

/* Written pages leave the page cache once they are clean. */
static void drive_out(const struct options *options)
{
    int fd = open_log(options);
    if (fdatasync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        bench_die("the log's pages stay");
    close(fd);
}

/* Of the page cache for the pass, of the index for an open. */
static void memory_warm(const struct options *options)
{
    uint64_t bytes = (64u << 20) + options->chunks * MEMORY_BYTES;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("no memory to warm");
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    (void)munmap(memory, bytes);
}

static void cold(const struct options *options)
{
    drive_out(options);
    memory_warm(options);
}

struct passed {
    uint64_t bytes, records, pieces;
};

static struct passed pass(const struct options *options, struct sc_store_record *record)
{
    static uint8_t window[2 * WINDOW_BYTES];
    struct passed passed = {0};
    struct sc_store_log_end end;
    struct sc_store_frame frame;
    uint64_t at = 0, count = 0;
    log_begin(options, &end);
    int fd = open_log(options);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (;;) {
        enum sc_store_frame_state state =
            sc_store_frame_check(window + at, count - at, end.offset, &end, &frame);
        if (state == SC_STORE_FRAME_SHORT) {
            memmove(window, window + at, count - at);
            count -= at;
            at = 0;
            ssize_t more = read(fd, window + count, WINDOW_BYTES);
            if (more <= 0)
                break;
            count += (uint64_t)more;
            continue;
        }
        if (state != SC_STORE_FRAME_OK ||
            !sc_store_record_peek(frame.payload, frame.payload_bytes, record) ||
            !sc_store_record_decode(frame.payload, frame.payload_bytes, record))
            bench_die("a record of the log is bad");
        passed.records++;
        passed.pieces += record->type == SC_STORE_RECORD_PIECE;
        passed.bytes += frame.bytes;
        at += frame.bytes;
    }
    close(fd);
    return passed;
}

int main(int argc, char **argv)
{
    static uint32_t tokens[SC_STORE_ROWS_MAX];
    static struct sc_store_mark marks[SC_STORE_MARKS_MAX];
    static struct sc_store_part parts[SC_LIMIT_LAYERS];
    static struct bench_series killed = {.name = "killed", .unit = "chunk"};
    static struct bench_series clean = {.name = "clean", .unit = "chunk"};
    static struct bench_series least = {.name = "pass", .unit = "chunk"};
    struct sc_store_record record = {.tokens = tokens, .marks = marks, .extent.parts = parts};
    struct options options = {
        .connector = bench_option(argc, argv, "--connector", "build/lib/libspec_connector.so"),
        .config = bench_option(argc, argv, "--config", "{\"path\": \"build/bench-store\"}"),
        .dir = bench_option(argc, argv, "--dir", "build/bench-store"),
        .chunks = bench_option_u64(argc, argv, "--chunks", 10000),
        .rounds = bench_option_u64(argc, argv, "--rounds", 5)};
    struct passed passed = {0};
    killed.work = clean.work = least.work = (double)options.chunks;
    (void)in_child(&options, true, false);
    for (uint64_t round = 0; round < options.rounds; round++) {
        cold(&options);
        bench_series_add(&killed, in_child(&options, false, false)); /* killed again */
        cold(&options);
        uint64_t begin_ns = bench_now_ns();
        passed = pass(&options, &record);
        bench_series_add(&least, bench_now_ns() - begin_ns);
    }
    for (uint64_t round = 0; round <= options.rounds; round++) {
        cold(&options);
        uint64_t ns = in_child(&options, false, true);
        if (round > 0) /* the first one opened what was killed */
            bench_series_add(&clean, ns);
    }
    if (passed.pieces != options.chunks)
        bench_die("%" PRIu64 " pieces in the log, %" PRIu64 " were stored", passed.pieces,
                  options.chunks);
    printf("{\"facts\": {\"log_bytes\": %" PRIu64 ", \"records\": %" PRIu64 ", \"chunks\": %" PRIu64
           "}}\n",
           passed.bytes, passed.records, passed.pieces);
    bench_series_print(&killed);
    bench_series_print(&clean);
    bench_series_print(&least);
    return 0;
}
