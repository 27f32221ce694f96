/* bench-members: processes that store into one directory at once (store.writers: many).
 *
 *   rate   all store different prompts as fast as they can, --prompts in total
 *   looks  all store --bytes-per-s in total, and one process more looks up stored prompts
 *   finds  the same, but the one more waits until it finds what the others have stored
 *   same   all store the same --prompts at the same moments, each for REQUESTS requests
 *
 * Every process opens the plugin, and waits at a barrier of pipes. The parent only measures the
 * bytes that the directory has on disk, every 10 ms. Prints one line of facts, and the samples of
 * the process that looks up or finds. Rows are random, and differ by layer.
 * Threads: one in each process, beside the plugin's. Tests: none (a measurement). */
#include "abi/spec_load.h"
#include "bench/bench.h"

#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HEADS         8u
#define HEAD_SIZE     128u
#define HALF_ROW      (HEADS * HEAD_SIZE * 2u) /* K of a token; V has as many bytes */
#define STORING_MAX   15u                      /* one of the store's 16 places is the observer's */
#define REQUESTS      4u                       /* of each process for one prompt, mode same */
#define IN_FLIGHT     2u                       /* prompts of a process, mode rate */
#define LOOKED_UP     16u                      /* prompts that the observer stored for itself */
#define WARM_BYTES    (UINT64_C(256) << 20)    /* that each process stores at first */
#define LOOKUP_GAP_NS 250000u
#define FIND_GAP_NS   1000000u
#define SAMPLE_NS     10000000u
#define RETRY_NS      1000000u
#define LAYER_NS      1000000u              /* between layers of a pass, mode same */
#define WAIT_NS       UINT64_C(10000000000) /* of a store for room in staging */
#define PATIENCE_NS   UINT64_C(60000000000)
#define STORED_MAX    65536u
#define FILES_MAX     4096u

struct options {
    const char *connector, *config, *store, *mode;
    uint32_t processes, layers;
    uint64_t tokens, prompts, seconds, bytes_per_s;
};

struct result { /* of one process; all but end_ns between the barriers */
    uint64_t end_ns, stored, refused, cpu_ns, switches;
    uint64_t write_bytes, log_bytes, lock_waits;
};

struct shared { /* memory of all processes */
    uint64_t start_ns;
    _Atomic int64_t prompts_left; /* mode rate */
    _Atomic uint64_t stored_count;
    struct stored {
        uint64_t ns;
        _Atomic uint64_t prompt; /* 0: not written yet */
    } stored[STORED_MAX];
    struct result results[STORING_MAX + 1];
    struct bench_series wall, cpu;
};

struct process {
    const struct options *options;
    struct shared *shared;
    struct result *result;
    uint32_t index; /* below options->processes, or equal: the observer */
    int ready, go;  /* ends of the barrier's pipes */
    struct spec_plugin plugin;
    spec_connector *conn;
    const uint8_t *rows; /* [tokens + layers] rows: a layer's begin at its own number */
    uint32_t *ids;
    uint64_t prompts;
};

static bool is_mode(const struct options *options, const char *mode)
{
    return strcmp(options->mode, mode) == 0;
}

static void sleep_until(uint64_t ns)
{
    struct timespec at = {.tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
        continue;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t prompt_bytes(const struct options *options)
{
    return options->tokens * options->layers * 2 * HALF_ROW;
}

/* ---- A process ------------------------------------------------------------------------------ */

static void barrier(struct process *p)
{
    char byte = 0;
    if (write(p->ready, &byte, 1) != 1 || read(p->go, &byte, 1) != 1)
        bench_die("process %u: the barrier is closed", p->index);
}

static struct spec_stats stats_of(struct process *p)
{
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    struct spec_error error = {.struct_size = sizeof(error)};
    bench_must(p->plugin.api->stats(p->conn, &stats, &error), &error, "stats");
    return stats;
}

/* A process that makes the store, or repairs it, has it alone for a moment. */
static void open_member(struct process *p)
{
    const struct options *options = p->options;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = options->layers,
                               .kv_head_count = HEADS,
                               .query_head_count = HEADS,
                               .head_size = HEAD_SIZE,
                               .kv_dtype = SPEC_DTYPE_BF16,
                               .weights_id = {"bench-members", 13}};
    struct spec_open_params params = {
        .struct_size = sizeof(params), .config = options->config, .model = &model};
    uint64_t end_ns = bench_now_ns() + PATIENCE_NS;
    spec_status status;
    bench_must(spec_load(options->connector, &p->plugin, &error), &error, "load");
    while ((status = p->plugin.api->open(&params, &p->conn, &error)) == SPEC_E_LOCKED &&
           bench_now_ns() < end_ns)
        sleep_until(bench_now_ns() + RETRY_NS);
    bench_must(status, &error, "open");
    while (stats_of(p).role != SPEC_ROLE_WRITER) {
        if (bench_now_ns() > end_ns)
            bench_die("process %u reads, expected that it stores", p->index);
        sleep_until(bench_now_ns() + RETRY_NS);
    }
}

/* No two prompts have the same first token: a lookup finds a common beginning of any length. */
static void make_ids(struct process *p, uint64_t prompt)
{
    p->ids[0] = (uint32_t)prompt;
    for (uint64_t i = 1; i < p->options->tokens; i++)
        p->ids[i] = (uint32_t)(bench_mix(prompt << 20 | i) >> 40);
}

/* Looks up p->ids. Returns the tokens found. The caller releases the request. */
static uint64_t lookup(struct process *p, spec_request *ret_request)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    const struct spec_lookup_params params = {.struct_size = sizeof(params),
                                              .tokens = p->ids,
                                              .token_count = p->options->tokens,
                                              .max_tokens = p->options->tokens};
    bench_must(p->plugin.api->lookup(p->conn, &params, &found, &error), &error, "lookup");
    *ret_request = found.request;
    return found.matched_tokens;
}

static void release(struct process *p, spec_request request)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    bench_must(p->plugin.api->release(p->conn, request, &error), &error, "release");
}

/* Stores a whole prompt for each request, and releases it. layer_ns: time between layers. */
static void store_all(struct process *p, const spec_request *requests, uint64_t count,
                      uint64_t layer_ns, spec_ticket *ret_tickets)
{
    const struct options *options = p->options;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_store_params params[REQUESTS];
    uint64_t begin_ns = bench_now_ns(), bytes = options->tokens * 2 * HALF_ROW - HALF_ROW;
    for (uint32_t layer = 0; layer < options->layers; layer++) {
        uint8_t *rows = (uint8_t *)(uintptr_t)p->rows + (uint64_t)layer * 2 * HALF_ROW;
        struct spec_memory memory = {.struct_size = sizeof(memory),
                                     .dtype = SPEC_DTYPE_BF16,
                                     .k_base = rows,
                                     .v_base = rows + HALF_ROW,
                                     .k_bytes = bytes,
                                     .v_bytes = bytes,
                                     .token_stride_bytes = 2 * HALF_ROW,
                                     .head_stride_bytes = HEAD_SIZE * 2};
        for (uint64_t i = 0; i < count; i++)
            params[i] = (struct spec_store_params){.struct_size = sizeof(params[i]),
                                                   .flags = SPEC_STORE_WAIT,
                                                   .request = requests[i],
                                                   .layer = layer,
                                                   .token_count = options->tokens,
                                                   .memory = &memory,
                                                   .wait_ns = WAIT_NS};
        if (layer_ns > 0)
            sleep_until(begin_ns + layer * layer_ns);
        bench_must(p->plugin.api->store(p->conn, params, count, ret_tickets, &error), &error,
                   "store");
    }
    for (uint64_t i = 0; i < count; i++)
        release(p, requests[i]);
}

/* The number of a prompt that nobody has stored. Numbers are not 0. */
static uint64_t prompt_new(struct process *p)
{
    return (uint64_t)(p->index + 1) << 24 | p->prompts++;
}

static spec_ticket store_one(struct process *p, uint64_t prompt)
{
    spec_request request;
    spec_ticket ticket;
    make_ids(p, prompt);
    if (lookup(p, &request) != 0)
        bench_die("prompt %" PRIx64 " is found, expected a new one", prompt);
    store_all(p, &request, 1, 0, &ticket);
    return ticket;
}

/* Waits for the ticket, and returns whether the prompt is stored. A full disk may refuse it. */
static bool is_stored(struct process *p, spec_ticket ticket)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status;
    bench_must(p->plugin.api->wait(p->conn, &ticket, 1, UINT64_MAX, &status, &error), &error,
               "wait");
    if (status == SPEC_E_IO)
        bench_die("process %u: a store failed with IO", p->index);
    p->result->stored += status == SPEC_OK;
    p->result->refused += status != SPEC_OK;
    return status == SPEC_OK;
}

/* Returns the number of a new prompt that is stored then. */
static uint64_t store_surely(struct process *p)
{
    for (uint64_t end_ns = bench_now_ns() + PATIENCE_NS; bench_now_ns() < end_ns;) {
        uint64_t prompt = prompt_new(p);
        if (is_stored(p, store_one(p, prompt)))
            return prompt;
        sleep_until(bench_now_ns() + RETRY_NS);
    }
    bench_die("process %u could store nothing", p->index);
}

/* Stores new prompts while some are left to store, of which all processes may take. */
static void store_many(struct process *p, _Atomic int64_t *prompts_left)
{
    spec_ticket tickets[IN_FLIGHT];
    uint32_t count = 0;
    uint64_t end_ns = bench_now_ns() + PATIENCE_NS;
    for (;;) {
        if (count < IN_FLIGHT && atomic_fetch_sub(prompts_left, 1) > 0) {
            tickets[count++] = store_one(p, prompt_new(p));
            continue;
        }
        if (count == 0)
            return;
        bool stored = is_stored(p, tickets[0]);
        memmove(tickets, tickets + 1, --count * sizeof(tickets[0]));
        if (stored) {
            p->result->end_ns = bench_now_ns();
            continue;
        }
        if (bench_now_ns() > end_ns)
            bench_die("process %u: stores are refused all the time", p->index);
        /* Others may have left the counter below 0. */
        int64_t left = atomic_load(prompts_left);
        while (!atomic_compare_exchange_weak(prompts_left, &left, left < 0 ? 1 : left + 1))
            continue;
        sleep_until(bench_now_ns() + RETRY_NS);
    }
}

/* Stores as the measured part does, so that the process has its place in the store and its
 * segments, and the kernel need not make pages of staging later. */
static void warm_up(struct process *p)
{
    uint64_t bytes = prompt_bytes(p->options);
    _Atomic int64_t prompts_left = (int64_t)((WARM_BYTES + bytes - 1) / bytes);
    store_many(p, &prompts_left);
}

/* ---- What the processes do between the barriers ---------------------------------------------- */

static uint64_t finish_ns(const struct process *p)
{
    return p->shared->start_ns + p->options->seconds * 1000000000u;
}

/* Everybody stores at the same distances, one behind the other. */
static void paced_run(struct process *p)
{
    const struct options *options = p->options;
    uint64_t each_ns =
        (uint64_t)((double)prompt_bytes(options) * 1e9 / (double)options->bytes_per_s);
    uint64_t at = p->shared->start_ns + p->index * each_ns;
    for (; at < finish_ns(p) && bench_now_ns() < finish_ns(p); at += each_ns * options->processes) {
        sleep_until(at);
        uint64_t prompt = prompt_new(p);
        if (!is_stored(p, store_one(p, prompt)))
            continue;
        p->result->end_ns = bench_now_ns();
        uint64_t i = atomic_fetch_add(&p->shared->stored_count, 1);
        if (i >= STORED_MAX)
            bench_die("more than %u prompts", STORED_MAX);
        p->shared->stored[i].ns = p->result->end_ns;
        atomic_store(&p->shared->stored[i].prompt, prompt);
    }
}

static void same_run(struct process *p)
{
    for (uint64_t round = 0; round < p->options->prompts; round++) {
        spec_request requests[REQUESTS];
        spec_ticket tickets[REQUESTS];
        make_ids(p, UINT64_C(1) << 40 | round);
        for (uint32_t i = 0; i < REQUESTS; i++)
            if (lookup(p, &requests[i]) != 0)
                bench_die("round %" PRIu64 " has its prompt already", round);
        barrier(p);
        store_all(p, requests, REQUESTS, LAYER_NS, tickets);
        for (uint32_t i = 0; i < REQUESTS; i++)
            (void)is_stored(p, tickets[i]);
        p->result->end_ns = bench_now_ns();
    }
}

static void looks_run(struct process *p, const uint64_t *prompts)
{
    for (uint64_t i = 0; bench_now_ns() < finish_ns(p); i++) {
        spec_request request;
        make_ids(p, prompts[bench_mix(i) % LOOKED_UP]);
        uint64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID), wall_ns = bench_now_ns();
        uint64_t found = lookup(p, &request);
        wall_ns = bench_now_ns() - wall_ns;
        bench_series_add(&p->shared->wall, wall_ns);
        bench_series_add(&p->shared->cpu, clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns);
        if (found != p->options->tokens)
            bench_die("%" PRIu64 " of %" PRIu64 " tokens are found", found, p->options->tokens);
        release(p, request);
        sleep_until(bench_now_ns() + LOOKUP_GAP_NS);
    }
}

/* A prompt that is found before its ticket is waited for counts as 1 ns. */
static void finds_run(struct process *p)
{
    for (uint64_t i = 0; i < STORED_MAX;) {
        struct stored *stored = &p->shared->stored[i];
        uint64_t prompt = atomic_load(&stored->prompt), now_ns = bench_now_ns();
        spec_request request;
        if (prompt == 0 && now_ns > finish_ns(p) + WAIT_NS / 10)
            return;
        if (prompt != 0) {
            make_ids(p, prompt);
            uint64_t found = lookup(p, &request);
            now_ns = bench_now_ns();
            release(p, request);
            if (found == p->options->tokens) {
                bench_series_add(&p->shared->wall, now_ns > stored->ns ? now_ns - stored->ns : 1);
                i++;
                continue;
            }
            if (now_ns > stored->ns + PATIENCE_NS)
                bench_die("prompt %" PRIx64 " is stored, and never found", prompt);
        }
        sleep_until(now_ns + FIND_GAP_NS);
    }
}

static void run(struct process *p, const uint64_t *prompts)
{
    const struct options *options = p->options;
    struct spec_stats before = stats_of(p), after;
    struct rusage usage;
    *p->result = (struct result){0};
    if (!is_mode(options, "same"))
        barrier(p);
    uint64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    (void)getrusage(RUSAGE_SELF, &usage);
    uint64_t switches = (uint64_t)usage.ru_nvcsw;
    if (p->index == options->processes && is_mode(options, "looks"))
        looks_run(p, prompts);
    else if (p->index == options->processes)
        finds_run(p);
    else if (is_mode(options, "rate"))
        store_many(p, &p->shared->prompts_left);
    else if (is_mode(options, "same"))
        same_run(p);
    else
        paced_run(p);
    (void)getrusage(RUSAGE_SELF, &usage);
    after = stats_of(p);
    p->result->switches = (uint64_t)usage.ru_nvcsw - switches;
    p->result->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    p->result->write_bytes = after.write_bytes - before.write_bytes;
    p->result->log_bytes = after.log_write_bytes + after.checkpoint_write_bytes -
                           before.log_write_bytes - before.checkpoint_write_bytes;
    p->result->lock_waits = after.lock_waits - before.lock_waits;
}

static _Noreturn void process_main(struct process *p)
{
    uint64_t prompts[LOOKED_UP] = {0};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    p->ids = malloc(p->options->tokens * sizeof(*p->ids));
    if (p->ids == NULL)
        bench_die("no memory for %" PRIu64 " tokens", p->options->tokens);
    open_member(p);
    warm_up(p);
    for (uint32_t i = 0; i < LOOKED_UP && p->index == p->options->processes; i++)
        prompts[i] = store_surely(p);
    run(p, prompts);
    barrier(p);
    p->plugin.api->close(p->conn);
    free(p->ids);
    _exit(0);
}

/* ---- The parent: barriers and the directory's bytes ------------------------------------------ */

/* nftw has no user pointer. */
static struct walk {
    struct file {
        ino_t inode;
        uint64_t bytes; /* on disk */
    } files[FILES_MAX];
    uint32_t count;
} walk;

static int walk_file(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)path, (void)at;
    if (type != FTW_F)
        return 0;
    if (walk.count == FILES_MAX)
        bench_die("more than %u files", FILES_MAX);
    walk.files[walk.count++] =
        (struct file){.inode = info->st_ino, .bytes = (uint64_t)info->st_blocks * 512};
    return 0;
}

/* Returns bytes that were on disk at the moment between two walks, or fewer: of each file that both
 * saw, the lesser of its sizes. One walk could add up files that were never there together. */
static uint64_t bytes_on_disk(const char *dir)
{
    static struct walk first;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < 2; i++) {
        first = walk;
        walk.count = 0;
        (void)nftw(dir, walk_file, 16, FTW_PHYS);
    }
    for (uint32_t i = 0; i < first.count; i++)
        for (uint32_t j = 0; j < walk.count; j++)
            if (first.files[i].inode == walk.files[j].inode)
                bytes += first.files[i].bytes < walk.files[j].bytes ? first.files[i].bytes
                                                                    : walk.files[j].bytes;
    return bytes;
}

struct parent {
    const struct options *options;
    struct shared *shared;
    uint32_t count; /* of processes, the observer among them */
    pid_t pids[STORING_MAX + 1];
    int ready[2], go[STORING_MAX + 1][2];
    uint64_t sample_ns, samples, bytes_max;
};

/* A process that failed has said why; PR_SET_PDEATHSIG ends the others. */
static void look_after(struct parent *parent)
{
    int ended;
    pid_t pid = waitpid(-1, &ended, WNOHANG);
    if (pid > 0 && ended != 0)
        bench_die("process %d ended with status %d", (int)pid, ended);
    if (bench_now_ns() < parent->sample_ns)
        return;
    uint64_t bytes = bytes_on_disk(parent->options->store);
    parent->sample_ns = bench_now_ns() + SAMPLE_NS;
    parent->bytes_max = bytes > parent->bytes_max ? bytes : parent->bytes_max;
    parent->samples++;
}

static void parent_barrier(struct parent *parent, uint32_t count, bool starts)
{
    char bytes[STORING_MAX + 1];
    struct pollfd ready = {.fd = parent->ready[0], .events = POLLIN};
    for (uint32_t left = count; left > 0;) {
        if (poll(&ready, 1, SAMPLE_NS / 1000000) > 0) {
            ssize_t got = read(parent->ready[0], bytes, left);
            left -= got > 0 ? (uint32_t)got : 0;
        }
        look_after(parent);
    }
    if (starts)
        parent->shared->start_ns = bench_now_ns();
    for (uint32_t i = 0; i < count; i++)
        if (write(parent->go[i][1], "", 1) != 1)
            bench_die("process %u listens no more", i);
}

static void start_all(struct parent *parent, const uint8_t *rows)
{
    if (pipe(parent->ready) != 0)
        bench_die("no pipe");
    for (uint32_t i = 0; i < parent->count; i++) {
        if (pipe(parent->go[i]) != 0)
            bench_die("no pipe");
        parent->pids[i] = fork();
        if (parent->pids[i] < 0)
            bench_die("no process");
        if (parent->pids[i] == 0) {
            struct process process = {.options = parent->options,
                                      .shared = parent->shared,
                                      .result = &parent->shared->results[i],
                                      .index = i,
                                      .ready = parent->ready[1],
                                      .go = parent->go[i][0],
                                      .rows = rows};
            process_main(&process);
        }
    }
}

static void print_all(const struct parent *parent)
{
    const struct options *options = parent->options;
    struct result sum = {0};
    for (uint32_t i = 0; i < options->processes; i++) {
        const struct result *one = &parent->shared->results[i];
        sum.end_ns = one->end_ns > sum.end_ns ? one->end_ns : sum.end_ns;
        sum.stored += one->stored;
        sum.refused += one->refused;
        sum.cpu_ns += one->cpu_ns;
        sum.switches += one->switches;
        sum.write_bytes += one->write_bytes;
        sum.log_bytes += one->log_bytes;
        sum.lock_waits += one->lock_waits;
    }
    printf("{\"facts\": {\"prompt_bytes\": %" PRIu64 ", \"stored\": %" PRIu64
           ", \"refused\": %" PRIu64 ", \"took_ns\": %" PRIu64 ", \"cpu_ns\": %" PRIu64
           ", \"switches\": %" PRIu64 ", \"write_bytes\": %" PRIu64 ", \"log_bytes\": %" PRIu64
           ", \"lock_waits\": %" PRIu64 ", \"samples\": %" PRIu64 ", \"bytes_max\": %" PRIu64
           "}}\n",
           prompt_bytes(options), sum.stored, sum.refused,
           sum.end_ns > 0 ? sum.end_ns - parent->shared->start_ns : 0, sum.cpu_ns, sum.switches,
           sum.write_bytes, sum.log_bytes, sum.lock_waits, parent->samples, parent->bytes_max);
    if (parent->shared->wall.rounds > 0)
        bench_series_print(&parent->shared->wall);
    if (parent->shared->cpu.rounds > 0)
        bench_series_print(&parent->shared->cpu);
}

static struct shared *shared_make(const struct options *options)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        bench_die("no memory for samples");
    shared->prompts_left = (int64_t)options->prompts;
    shared->wall = (struct bench_series){.name = options->mode, .unit = "request", .work = 1};
    shared->cpu = (struct bench_series){.name = "cpu looks", .unit = "request", .work = 1};
    return shared;
}

static struct options options_of(int argc, char **argv)
{
    struct options options = {.connector = bench_option(argc, argv, "--connector", NULL),
                              .config = bench_option(argc, argv, "--config", NULL),
                              .store = bench_option(argc, argv, "--store", NULL),
                              .mode = bench_option(argc, argv, "--mode", "rate"),
                              .processes = (uint32_t)bench_option_u64(argc, argv, "--processes", 1),
                              .layers = (uint32_t)bench_option_u64(argc, argv, "--layers", 32),
                              .tokens = bench_option_u64(argc, argv, "--tokens", 256),
                              .prompts = bench_option_u64(argc, argv, "--prompts", 16),
                              .seconds = bench_option_u64(argc, argv, "--seconds", 3),
                              .bytes_per_s =
                                  bench_option_u64(argc, argv, "--bytes-per-s", 100000000)};
    bool observes = is_mode(&options, "looks") || is_mode(&options, "finds");
    if (options.connector == NULL || options.config == NULL || options.store == NULL ||
        options.processes > STORING_MAX || options.processes + observes == 0 ||
        options.layers == 0 || options.tokens == 0 || options.bytes_per_s == 0 ||
        !(observes || is_mode(&options, "rate") || is_mode(&options, "same")))
        bench_die("usage: bench-members --connector SO --config JSON --store DIR --mode "
                  "rate|looks|finds|same [--processes N] [--layers N] [--tokens N] [--prompts N] "
                  "[--seconds N] [--bytes-per-s N]");
    return options;
}

int main(int argc, char **argv)
{
    const struct options options = options_of(argc, argv);
    bool observes = is_mode(&options, "looks") || is_mode(&options, "finds");
    struct parent parent = {.options = &options,
                            .shared = shared_make(&options),
                            .count = options.processes + observes};
    uint64_t bytes = (options.tokens + options.layers) * 2 * HALF_ROW;
    uint8_t *rows = bench_huge_memory(bytes, 1);
    if (rows == NULL)
        bench_die("no memory for %" PRIu64 " tokens", options.tokens);
    for (uint64_t i = 0; i < bytes; i += 8)
        *(uint64_t *)(rows + i) = bench_mix(i);
    start_all(&parent, rows);
    for (uint64_t i = 0; i < (is_mode(&options, "same") ? options.prompts : 1); i++)
        parent_barrier(&parent, parent.count, i == 0);
    parent_barrier(&parent, parent.count, false);
    print_all(&parent);
    for (uint32_t i = 0; i < parent.count; i++) {
        int ended = 0;
        if (waitpid(parent.pids[i], &ended, 0) != parent.pids[i] || ended != 0)
            bench_die("process %u did not close", i);
    }
    free(rows);
    return 0;
}
