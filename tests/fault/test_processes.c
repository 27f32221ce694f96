/* Real processes over one store: writers of several ranks, readers, one that is killed, one that
 * forks. The program runs itself: "worker LIBRARY" is a process that obeys lines on its standard
 * input and answers a line each; the tests stand in the parent, which loads no plugin.
 *
 *   open DIR ROLE RANK COUNT [MEMBERS]   status
 *   store SEED FIRST COUNT LAYERS        status of the ticket; fewer LAYERS than all: left open
 *   read SEED COUNT                      matched tokens, every row compared; or the status
 *   look SEED COUNT                      matched expiry lease; its request stays open till the next
 *   load                                 status of loading all layers of it, every row compared
 *   attach LEASE SEED COUNT              status state matched, every row compared
 *   reset, epoch, role, close            status; number; number; status
 *   fork                                 pid of a child that made one call: its status, and how
 * many descriptors it has of the store
 *
 * Rows are a function of (rank, all tokens before, layer, K or V), so a row of another rank, prompt
 * or position is found out: the worker answers "wrong".
 *
 * Threads: one in each process, beside the plugin's. */
#include "abi/spec_load.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LAYERS     4u
#define HEADS      2u
#define HEAD_SIZE  32u
#define PART_BYTES (HEADS * HEAD_SIZE * 2u) /* K of one token and layer, f16 */
#define TOKENS_MAX 1024u
#define LINE_MAX   1024u
#define PATIENCE_S 600.0 /* for what comes within 100 ms on an idle machine */

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t wall_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- A worker ------------------------------------------------------------------------------- */

struct worker {
    const struct spec_api *api;
    spec_connector *conn;
    uint32_t rank;
    char dir[256];
    uint32_t tokens[TOKENS_MAX];
    uint64_t history[TOKENS_MAX];
    spec_request held;
    uint64_t held_count;
    uint8_t rows[2][TOKENS_MAX * PART_BYTES];
    char answer[LINE_MAX];
};

static struct spec_error error = {.struct_size = sizeof(error)};

/* The prompt of a seed, and the truth that its rows come from. */
static void make_prompt(struct worker *w, uint64_t seed, uint64_t count)
{
    uint64_t history = w->rank + 1;
    for (uint64_t p = 0; p < count; p++) {
        w->tokens[p] = (uint32_t)(mix(seed * 1000003 + p) % 50000);
        history = mix(history ^ w->tokens[p]);
        w->history[p] = history;
    }
}

static void make_row(const struct worker *w, uint64_t p, uint32_t layer, uint32_t part,
                     uint8_t *dst)
{
    for (uint64_t i = 0; i < PART_BYTES / 8; i++) {
        uint64_t word = mix(w->history[p] ^ mix(layer * 2 + part) ^ i);
        memcpy(dst + 8 * i, &word, 8);
    }
}

static struct spec_memory memory_of(struct worker *w, uint64_t count)
{
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = w->rows[0],
                                .v_base = w->rows[1],
                                .k_bytes = count * PART_BYTES,
                                .v_bytes = count * PART_BYTES,
                                .token_stride_bytes = PART_BYTES,
                                .head_stride_bytes = HEAD_SIZE * 2};
}

static void do_open(struct worker *w, const char *args)
{
    char members[512] = "";
    uint32_t role, count;
    if (sscanf(args, "%255s %" SCNu32 " %" SCNu32 " %" SCNu32 " %511[^\n]", w->dir, &role, &w->rank,
               &count, members) < 4)
        exit(3);
    char config[1024];
    bool has_lease = strstr(members, "lease_ns_max") != NULL; /* else longer than a test */
    (void)snprintf(
        config, sizeof(config),
        "{\"path\": \"%s\", \"load_policy\": \"load\", \"host_bytes\": 0, \"staging_bytes\": "
        "\"16MiB\", \"max_requests\": 8, "
        "\"max_request_tokens\": %u%s%s%s}",
        w->dir, TOKENS_MAX, has_lease ? "" : ", \"lease_ns_max\": 900000000000",
        members[0] != 0 ? ", " : "", members);
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = LAYERS,
                               .kv_head_count = HEADS,
                               .query_head_count = HEADS,
                               .head_size = HEAD_SIZE,
                               .kv_dtype = SPEC_DTYPE_F16,
                               .tp_rank = w->rank,
                               .tp_size = count,
                               .weights_id = {"processes", 9}};
    struct spec_open_params params = {.struct_size = sizeof(params),
                                      .role = role,
                                      .config = config,
                                      .model = &model,
                                      .rank = w->rank,
                                      .rank_count = count};
    spec_status status = w->api->open(&params, &w->conn, &error);
    (void)snprintf(w->answer, sizeof(w->answer), "%d %s", status,
                   status == SPEC_OK ? "" : error.text);
}

static spec_status lookup(struct worker *w, uint64_t count, struct spec_lookup_result *ret_result)
{
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = w->tokens,
                                        .token_count = count,
                                        .max_tokens = count};
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result)};
    return w->api->lookup(w->conn, &params, ret_result, &error);
}

/* Status of loading every layer; 99: a row is wrong. */
static int load_all(struct worker *w, spec_request request, uint64_t matched)
{
    uint8_t expected[PART_BYTES];
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct spec_memory memory = memory_of(w, TOKENS_MAX);
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = request,
                                      .layer = layer,
                                      .destination = &memory};
        spec_status status = w->api->get_important(w->conn, &item, 1, &error);
        if (status != SPEC_OK)
            return status;
        for (uint64_t p = 0; p < matched; p++)
            for (uint32_t part = 0; part < 2; part++) {
                make_row(w, p, layer, part, expected);
                if (memcmp(expected, w->rows[part] + p * PART_BYTES, PART_BYTES) != 0)
                    return 99;
            }
    }
    return SPEC_OK;
}

static void do_read(struct worker *w, const char *args)
{
    uint64_t seed, count;
    struct spec_lookup_result result;
    if (sscanf(args, "%" SCNu64 " %" SCNu64, &seed, &count) != 2 || count > TOKENS_MAX)
        exit(3);
    make_prompt(w, seed, count);
    int status = lookup(w, count, &result);
    if (status == SPEC_OK) {
        status = load_all(w, result.request, result.matched_tokens);
        (void)w->api->release(w->conn, result.request, NULL);
    }
    if (status == SPEC_OK)
        (void)snprintf(w->answer, sizeof(w->answer), "%" PRIu64, result.matched_tokens);
    else
        (void)snprintf(w->answer, sizeof(w->answer), status == 99 ? "wrong" : "error %d", status);
}

/* With all layers: the last ticket's status. With fewer the pass stays open, as its process does.
 */
static void do_store(struct worker *w, const char *args)
{
    uint64_t seed, first, count;
    uint32_t layers;
    struct spec_lookup_result result;
    if (sscanf(args, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu32, &seed, &first, &count,
               &layers) != 4 ||
        first + count > TOKENS_MAX)
        exit(3);
    make_prompt(w, seed, first + count);
    spec_status status = lookup(w, first + count, &result);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < layers && status == SPEC_OK; layer++) {
        for (uint64_t j = 0; j < count; j++)
            for (uint32_t part = 0; part < 2; part++)
                make_row(w, first + j, layer, part, w->rows[part] + j * PART_BYTES);
        struct spec_memory memory = memory_of(w, count);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = result.request,
                                           .layer = layer,
                                           .first_token = first,
                                           .token_count = count,
                                           .memory = &memory};
        status = w->api->store(w->conn, &params, 1, &ticket, &error);
        spec_status ended = SPEC_OK;
        if (status == SPEC_OK && layer + 1 == LAYERS)
            status = w->api->wait(w->conn, &ticket, 1, UINT64_MAX, &ended, &error);
        status = status == SPEC_OK ? ended : status;
    }
    if (layers == LAYERS)
        (void)w->api->release(w->conn, result.request, NULL);
    (void)snprintf(w->answer, sizeof(w->answer), "%d", status);
}

static void do_look(struct worker *w, const char *args)
{
    uint64_t seed, count;
    struct spec_lookup_result result;
    if (sscanf(args, "%" SCNu64 " %" SCNu64, &seed, &count) != 2 || count > TOKENS_MAX)
        exit(3);
    make_prompt(w, seed, count);
    if (w->held != 0)
        (void)w->api->release(w->conn, w->held, NULL);
    if (lookup(w, count, &result) != SPEC_OK)
        exit(3);
    w->held = result.request;
    w->held_count = result.matched_tokens;
    int used = snprintf(w->answer, sizeof(w->answer), "%" PRIu64 " %" PRIu64 " ",
                        result.matched_tokens, result.lease_expiry_ns);
    for (uint32_t i = 0; i < sizeof(result.lease); i++)
        used +=
            snprintf(w->answer + used, sizeof(w->answer) - (size_t)used, "%02x", result.lease[i]);
}

static void do_attach(struct worker *w, const char *args)
{
    char hex[129];
    uint8_t lease[64];
    uint64_t seed, count;
    if (sscanf(args, "%128s %" SCNu64 " %" SCNu64, hex, &seed, &count) != 3 || count > TOKENS_MAX)
        exit(3);
    for (uint32_t i = 0; i < sizeof(lease); i++) {
        unsigned byte = 0;
        (void)sscanf(hex + 2 * i, "%2x", &byte);
        lease[i] = (uint8_t)byte;
    }
    make_prompt(w, seed, count);
    struct spec_attach_params params = {.struct_size = sizeof(params), .lease = {lease, 64}};
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    int status = w->api->attach(w->conn, &params, &result, &error);
    if (status == SPEC_OK && result.state != SPEC_LOOKUP_PENDING) {
        status = load_all(w, result.request, result.matched_tokens);
        (void)w->api->release(w->conn, result.request, NULL);
    }
    (void)snprintf(w->answer, sizeof(w->answer), "%d %" PRIu32 " %" PRIu64, status, result.state,
                   result.matched_tokens);
}

/* Descriptors of this process that lead into the store, or to rings that hold its files. */
static uint32_t store_descriptors(const struct worker *w)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[300], target[512];
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        if (length > 0) {
            target[length] = '\0';
            count += strstr(target, w->dir) != NULL || strstr(target, "io_uring") != NULL;
        }
    }
    (void)closedir(dir);
    return count;
}

/* The child answers for both, then stays, so that what it holds open would be held. */
static void do_fork(struct worker *w)
{
    uint32_t before = store_descriptors(w);
    pid_t pid = fork();
    if (pid != 0) {
        w->answer[0] = '\0';
        return;
    }
    struct spec_lookup_result result;
    spec_status status = lookup(w, 10, &result);
    dprintf(1, "%d %d %u %u\n", getpid(), status, before, store_descriptors(w));
    w->api->close(w->conn); /* in a child it ends nothing */
    for (;;)
        (void)pause();
}

static void obey(struct worker *w, const char *line)
{
    if (strncmp(line, "open ", 5) == 0) {
        do_open(w, line + 5);
    } else if (strncmp(line, "store ", 6) == 0) {
        do_store(w, line + 6);
    } else if (strncmp(line, "read ", 5) == 0) {
        do_read(w, line + 5);
    } else if (strncmp(line, "look ", 5) == 0) {
        do_look(w, line + 5);
    } else if (strncmp(line, "load", 4) == 0) {
        (void)snprintf(w->answer, sizeof(w->answer), "%d", load_all(w, w->held, w->held_count));
    } else if (strncmp(line, "attach ", 7) == 0) {
        do_attach(w, line + 7);
    } else if (strncmp(line, "reset", 5) == 0) {
        (void)snprintf(w->answer, sizeof(w->answer), "%d", w->api->reset(w->conn, &error));
    } else if (strncmp(line, "epoch", 5) == 0 || strncmp(line, "role", 4) == 0) {
        struct spec_stats stats = {.struct_size = sizeof(stats)};
        (void)w->api->stats(w->conn, &stats, NULL);
        (void)snprintf(w->answer, sizeof(w->answer), "%" PRIu64,
                       line[0] == 'e' ? stats.epoch : stats.role);
    } else if (strncmp(line, "fork", 4) == 0) {
        do_fork(w);
    } else if (strncmp(line, "close", 5) == 0) {
        w->api->close(w->conn);
        w->conn = NULL;
        (void)snprintf(w->answer, sizeof(w->answer), "0");
    } else {
        exit(3);
    }
}

static int work(const char *library)
{
    static struct worker w;
    struct spec_plugin plugin;
    char line[LINE_MAX];
    if (spec_load(library, &plugin, &error) != SPEC_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return 3;
    }
    w.api = plugin.api;
    while (fgets(line, sizeof(line), stdin) != NULL) {
        obey(&w, line);
        if (w.answer[0] != '\0')
            dprintf(1, "%s\n", w.answer);
    }
    if (w.conn != NULL)
        w.api->close(w.conn);
    spec_unload(&plugin);
    return 0;
}

/* ---- The parent ----------------------------------------------------------------------------- */

static const char *library_path;

struct process {
    pid_t pid;
    FILE *to, *from;
};

struct scene {
    char root[64], dir[96];
};

static void scene_open(struct scene *scene)
{
    (void)snprintf(scene->root, sizeof(scene->root), "/var/tmp/spec-processes-XXXXXX");
    assert_non_null(mkdtemp(scene->root));
    (void)snprintf(scene->dir, sizeof(scene->dir), "%s/store", scene->root);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

static void scene_close(struct scene *scene)
{
    (void)nftw(scene->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct process start(void)
{
    int down[2], up[2];
    struct process process;
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    process.pid = fork();
    assert_true(process.pid >= 0);
    if (process.pid == 0) {
        (void)dup2(down[0], 0);
        (void)dup2(up[1], 1);
        (void)execl("/proc/self/exe", "test_processes", "worker", library_path, (char *)NULL);
        _exit(3);
    }
    (void)close(down[0]);
    (void)close(up[1]);
    process.to = fdopen(down[1], "w");
    process.from = fdopen(up[0], "r");
    assert_true(process.to != NULL && process.from != NULL);
    return process;
}

static const char *ask(struct process *process, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static const char *ask(struct process *process, const char *format, ...)
{
    static char answer[LINE_MAX];
    va_list args;
    va_start(args, format);
    (void)vfprintf(process->to, format, args);
    va_end(args);
    (void)fputc('\n', process->to);
    (void)fflush(process->to);
    if (fgets(answer, sizeof(answer), process->from) == NULL)
        fail_msg("a worker died over: %s", format);
    answer[strcspn(answer, "\n")] = '\0';
    return answer;
}

static int64_t ask_number(struct process *process, const char *line)
{
    const char *answer = ask(process, "%s", line);
    char *end;
    int64_t number = strtoll(answer, &end, 10);
    if (end == answer)
        fail_msg("%s: %s", line, answer);
    return number;
}

static void finish(struct process *process)
{
    int how = 0;
    (void)fclose(process->to);
    (void)fclose(process->from);
    assert_int_equal(waitpid(process->pid, &how, 0), process->pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void kill_hard(struct process *process)
{
    (void)kill(process->pid, SIGKILL);
    (void)waitpid(process->pid, NULL, 0);
    (void)fclose(process->to);
    (void)fclose(process->from);
}

static struct process start_open(const struct scene *scene, uint32_t role, uint32_t rank,
                                 uint32_t count, const char *members)
{
    struct process process = start();
    const char *answer =
        ask(&process, "open %s %u %u %u %s", scene->dir, role, rank, count, members);
    if (strcmp(answer, "0 ") != 0)
        fail_msg("open of rank %u: %s", rank, answer);
    return process;
}

/* Asks until the number is the expected one; every answer on the way is right or a number. */
static void await_number(struct process *process, const char *line, int64_t expected)
{
    double end_s = now_s() + PATIENCE_S;
    int64_t number;
    while ((number = ask_number(process, line)) != expected && now_s() < end_s)
        (void)usleep(2000);
    if (number != expected)
        fail_msg("%s: %" PRId64 ", expected %" PRId64, line, number, expected);
}

/* ---- Tests ---------------------------------------------------------------------------------- */

/* The first: promised = the minimum over ranks, no wrong row. */
static void a_writer_killed_between_layers_costs_what_it_had_not_finished(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process ranks[2], reader;
    for (uint32_t i = 0; i < 2; i++)
        ranks[i] = start_open(&scene, SPEC_ROLE_WRITER, i, 2, "");
    reader = start_open(&scene, SPEC_ROLE_READER, 0, 2, "");
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(ask_number(&ranks[i], "store 1 0 200 4"), 0);
    struct process *all[] = {&ranks[0], &ranks[1], &reader};
    for (uint32_t i = 0; i < 3; i++)
        await_number(all[i], "read 1 500", 200);
    assert_int_equal(ask_number(&ranks[0], "store 1 200 150 4"), 0);
    assert_int_equal(ask_number(&ranks[1], "store 1 200 150 2"), 0); /* two of four layers */
    kill_hard(&ranks[1]);
    assert_int_equal(ask_number(&ranks[0], "read 1 500"), 200);
    assert_int_equal(ask_number(&reader, "read 1 500"), 200);
    ranks[1] = start_open(&scene, SPEC_ROLE_WRITER, 1, 2, "");
    for (uint32_t i = 0; i < 3; i++)
        await_number(all[i], "read 1 500", 200);
    assert_int_equal(ask_number(&ranks[1], "store 1 200 100 4"), 0);
    for (uint32_t i = 0; i < 3; i++)
        await_number(all[i], "read 1 500", 300);
    finish(&reader);
    for (uint32_t i = 0; i < 2; i++)
        finish(&ranks[i]);
    scene_close(&scene);
}

/* How often one of the store's segments holds the row of (prompt, token, layer, K); flips: and a
 * byte of each is changed. */
static uint32_t find_row(const char *path, const uint8_t *row, bool flips)
{
    struct stat info;
    uint32_t found = 0;
    int fd = open(path, (flips ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    uint8_t *bytes = malloc((size_t)info.st_size);
    assert_non_null(bytes);
    assert_int_equal(pread(fd, bytes, (size_t)info.st_size, 0), info.st_size);
    const uint8_t *at = bytes, *end = bytes + info.st_size;
    for (; (at = memmem(at, (size_t)(end - at), row, PART_BYTES)) != NULL; at++, found++) {
        uint8_t other = (uint8_t)(*at ^ 1);
        if (flips)
            assert_int_equal(pwrite(fd, &other, 1, at - bytes), 1);
    }
    free(bytes);
    (void)close(fd);
    return found;
}

static uint32_t rows_on_disk(const struct scene *scene, uint64_t seed, uint64_t token,
                             uint32_t layer, bool flips)
{
    static struct worker truth;
    char path[512];
    uint8_t row[PART_BYTES];
    uint32_t found = 0;
    make_prompt(&truth, seed, token + 1);
    make_row(&truth, token, layer, 0, row);
    (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001", scene->dir);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, "seg-", 4) != 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001/%.100s", scene->dir,
                       entry->d_name);
        found += find_row(path, row, flips);
    }
    (void)closedir(dir);
    return found;
}

/* Whether rows were loaded, and the lease attached, before its end: else the machine was too slow
 * for a lease of so long. The disk holds a dozen prompts, and what was dropped waits for a lease's
 * time. */
static bool lease_outlives_eviction(const char *members)
{
    struct scene scene;
    scene_open(&scene);
    struct process writer = start_open(&scene, SPEC_ROLE_WRITER, 0, 1, members);
    struct process reader = start_open(&scene, SPEC_ROLE_READER, 0, 1, members);
    assert_int_equal(ask_number(&writer, "store 1 0 256 4"), 0);
    await_number(&reader, "read 1 256", 256);
    char lease[129];
    uint64_t matched = 0, expiry_ns = 0;
    double end_s = now_s() + PATIENCE_S;
    while (matched != 256) { /* nothing, when the reader's turn is a lease late */
        assert_true(now_s() < end_s);
        const char *answer = ask(&reader, "look 1 256");
        assert_int_equal(
            sscanf(answer, "%" SCNu64 " %" SCNu64 " %128s", &matched, &expiry_ns, lease), 3);
    }
    uint64_t seed = 1000, loaded = 0, attached = 0;
    char line[LINE_MAX];
    /* The writer pushes it out, and goes on until other rows stand in its place: of the second
     * chunk, and of the first, which goes last. */
    while (wall_ns() < expiry_ns || rows_on_disk(&scene, 1, 100, 2, false) > 0 ||
           rows_on_disk(&scene, 1, 0, 2, false) > 0) {
        assert_true(now_s() < end_s);
        (void)snprintf(line, sizeof(line), "store %" PRIu64 " 0 256 4", seed++);
        (void)ask_number(&writer, line);
        if (wall_ns() >= expiry_ns)
            continue;
        int64_t status = ask_number(&reader, "load");
        assert_int_not_equal(status, 99);
        if (status != 0 && wall_ns() < expiry_ns)
            fail_msg("a leased row was refused: %" PRId64, status);
        loaded += status == 0;
        (void)snprintf(line, sizeof(line), "attach %s 1 256", lease);
        const char *answer = ask(&reader, "%s", line);
        bool is_attached = strcmp(answer, "0 1 256") == 0;
        if (!is_attached && wall_ns() < expiry_ns)
            fail_msg("a lease was refused: %s", answer);
        attached += is_attached;
    }
    assert_int_not_equal(ask_number(&reader, "load"), 99); /* whatever stands there now */
    (void)snprintf(line, sizeof(line), "attach %s 1 256", lease);
    assert_int_equal(ask_number(&reader, line), SPEC_E_STALE);
    assert_int_equal(ask_number(&writer, "read 1 256"), 0);
    await_number(&reader, "read 1 256", 0);
    finish(&reader);
    finish(&writer);
    scene_close(&scene);
    return loaded > 0 && attached > 0;
}

/* The second. On a machine that is too slow for a lease of two seconds, with longer ones,
 * up to two minutes. */
static void a_lease_outlives_eviction_and_rewriting_until_it_ends(void **state)
{
    (void)state;
    char members[160];
    uint64_t lease_ns = 500000000;
    bool has_outlived = false;
    for (uint32_t tries = 0; tries < 4 && !has_outlived; tries++) {
        lease_ns *= 4;
        (void)snprintf(members, sizeof(members),
                       "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", "
                       "\"lease_ns_max\": %" PRIu64,
                       lease_ns);
        has_outlived = lease_outlives_eviction(members);
    }
    if (!has_outlived)
        fail_msg("no row was loaded, and no lease attached, within a lease of %" PRIu64 " ns",
                 lease_ns);
}

static void a_slab_that_a_reader_finds_bad_goes_in_the_writer(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process writer = start_open(&scene, SPEC_ROLE_WRITER, 0, 1, "");
    struct process reader = start_open(&scene, SPEC_ROLE_READER, 0, 1, "");
    struct process other = start_open(&scene, SPEC_ROLE_READER, 0, 1, "");
    assert_int_equal(ask_number(&writer, "store 1 0 320 4"), 0);
    await_number(&reader, "read 1 320", 320);
    await_number(&other, "read 1 320", 320);
    assert_int_equal(rows_on_disk(&scene, 1, 200, 2, true), 1);
    char expected[32];
    (void)snprintf(expected, sizeof(expected), "error %d", SPEC_E_CORRUPT);
    assert_string_equal(ask(&reader, "read 1 320"), expected);
    assert_int_equal(ask_number(&reader, "read 1 320"), 192); /* at once: chunks before the bad */
    double end_s = now_s() + PATIENCE_S;
    const char *answer;
    uint64_t found = 320;
    while (found != 192 && now_s() < end_s) { /* a look alone, which reads no row */
        answer = ask(&writer, "look 1 320");
        assert_int_equal(sscanf(answer, "%" SCNu64, &found), 1);
        (void)usleep(50000);
        if (found != 192) {
            finish(&other);
            other = start_open(&scene, SPEC_ROLE_READER, 0, 1, "");
        }
    }
    assert_int_equal(found, 192);
    await_number(&other, "read 1 320", 192);
    assert_int_equal(ask_number(&writer, "store 1 192 128 4"), 0);
    await_number(&reader, "read 1 320", 320);
    finish(&other);
    finish(&reader);
    finish(&writer);
    scene_close(&scene);
}

static void a_reset_by_a_reader_reaches_both_writers(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process ranks[2], reader;
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = start_open(&scene, SPEC_ROLE_WRITER, i, 2, "");
        assert_int_equal(ask_number(&ranks[i], "store 1 0 100 4"), 0);
    }
    reader = start_open(&scene, SPEC_ROLE_READER, 1, 2, "");
    await_number(&reader, "read 1 100", 100);
    assert_int_equal(ask_number(&reader, "reset"), 0);
    assert_int_equal(ask_number(&reader, "read 1 100"), 0);
    for (uint32_t i = 0; i < 2; i++) {
        await_number(&ranks[i], "epoch", 1);
        assert_int_equal(ask_number(&ranks[i], "read 1 100"), 0);
        assert_int_equal(ask_number(&ranks[i], "store 1 0 90 4"), 0);
    }
    await_number(&reader, "read 1 100", 90);
    finish(&reader);
    for (uint32_t i = 0; i < 2; i++)
        finish(&ranks[i]);
    scene_close(&scene);
}

/* Killed right after its reset returned: the mail is there. */
static void a_reset_outlives_the_reader_that_asked_for_it(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process writer = start_open(&scene, SPEC_ROLE_WRITER, 0, 1, "");
    struct process reader = start_open(&scene, SPEC_ROLE_READER, 0, 1, "");
    assert_int_equal(ask_number(&writer, "store 1 0 100 4"), 0);
    assert_int_equal(ask_number(&reader, "reset"), 0);
    kill_hard(&reader);
    await_number(&writer, "epoch", 1);
    assert_int_equal(ask_number(&writer, "read 1 100"), 0);
    finish(&writer);
    scene_close(&scene);
}

static void a_second_writer_is_told_who_is_first_and_auto_reads(void **state)
{
    (void)state;
    struct scene scene;
    char expected[32];
    scene_open(&scene);
    struct process writer = start_open(&scene, SPEC_ROLE_AUTO, 0, 1, ""), second = start();
    (void)snprintf(expected, sizeof(expected), "pid %d", writer.pid);
    const char *answer = ask(&second, "open %s %u 0 1", scene.dir, SPEC_ROLE_WRITER);
    assert_int_equal(strtol(answer, NULL, 10), SPEC_E_LOCKED);
    assert_non_null(strstr(answer, expected));
    assert_string_equal(ask(&second, "open %s %u 0 1", scene.dir, SPEC_ROLE_AUTO), "0 ");
    assert_int_equal(ask_number(&writer, "store 1 0 100 4"), 0);
    await_number(&second, "read 1 100", 100);
    assert_int_equal(ask_number(&second, "store 2 0 100 4"), SPEC_E_UNSUPPORTED);
    kill_hard(&writer); /* the reader goes on with what is there, and stores soon */
    assert_int_equal(ask_number(&second, "read 1 100"), 100);
    await_number(&second, "role", SPEC_ROLE_WRITER);
    writer = start_open(&scene, SPEC_ROLE_AUTO, 0, 1, "");
    assert_int_equal(ask_number(&writer, "role"), SPEC_ROLE_READER);
    await_number(&second, "store 2 0 70 4", 0);
    await_number(&writer, "read 2 100", 70);
    finish(&second);
    finish(&writer);
    scene_close(&scene);
}

/* Returns the process of three that has become the writer. */
static uint32_t await_writer(struct process *processes)
{
    for (double end_s = now_s() + PATIENCE_S; now_s() < end_s; (void)usleep(2000))
        for (uint32_t i = 0; i < 3; i++)
            if (processes[i].pid != 0 && ask_number(&processes[i], "role") == SPEC_ROLE_WRITER)
                return i;
    fail_msg("none of them stores");
    return 0;
}

/* Three AUTO processes; the one that stores is killed at any moment of a pass, again and again.
 * Survivors and processes that open later find all acknowledged data; nothing else is promised. */
/* Places of docs/reference/store-format.md that a living process has. */
static uint32_t members_of(const struct scene *scene)
{
    char path[512];
    uint32_t count = 0;
    (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001/members", scene->dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = 0; at < 16 * 256; at += 256) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
        assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
        count += lock.l_type != F_UNLCK;
    }
    (void)close(fd);
    return count;
}

static void an_auto_reader_takes_over_from_each_killed_writer(void **state)
{
    (void)state;
    struct scene scene;
    struct process processes[3];
    uint64_t seed = 0, kills = 12, random = 1;
    char line[LINE_MAX];
    scene_open(&scene);
    for (uint32_t i = 0; i < 3; i++)
        processes[i] = start_open(&scene, SPEC_ROLE_AUTO, 0, 1, "");
    for (uint64_t kill_at = 0; kill_at < kills; kill_at++) {
        uint32_t writer = await_writer(processes);
        assert_int_equal(members_of(&scene), 3);
        for (uint32_t stored = 0; stored < 3; stored++) {
            (void)snprintf(line, sizeof(line), "store %" PRIu64 " 0 %u 4", ++seed, 100 + stored);
            await_number(&processes[writer], line, 0);
        }
        (void)fprintf(processes[writer].to, "store %" PRIu64 " 0 900 4\n", seed + 1000);
        (void)fflush(processes[writer].to);
        (void)usleep((useconds_t)((random = mix(random)) % 4000));
        kill_hard(&processes[writer]);
        processes[writer].pid = 0;
        assert_int_equal(members_of(&scene), 2); /* nobody has to look after its place */
        uint32_t next = await_writer(processes);
        processes[writer] = start_open(&scene, SPEC_ROLE_AUTO, 0, 1, "");
        for (uint64_t known = 1; known <= seed; known++) {
            (void)snprintf(line, sizeof(line), "read %" PRIu64 " 100", known);
            assert_int_equal(ask_number(&processes[next], line), 100);
            assert_int_equal(ask_number(&processes[writer], line), 100);
        }
        (void)snprintf(line, sizeof(line), "read %" PRIu64 " 900", seed + 1000);
        assert_true(ask_number(&processes[next], line) >= 0); /* some of it, and right */
    }
    for (uint32_t i = 0; i < 3; i++)
        finish(&processes[i]);
    scene_close(&scene);
}

/* A child that was forked away keeps nothing of the store open once it has made a call, so that the
 * parent's lock goes with the parent. */
static void fork_away(const char *members)
{
    struct scene scene;
    scene_open(&scene);
    struct process ranks[2];
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = start_open(&scene, SPEC_ROLE_WRITER, i, 2, members);
        assert_int_equal(ask_number(&ranks[i], "store 1 0 100 4"), 0);
    }
    await_number(&ranks[0], "read 1 100", 100);
    int child, status;
    unsigned before, after;
    const char *answer = ask(&ranks[0], "fork");
    assert_int_equal(sscanf(answer, "%d %d %u %u", &child, &status, &before, &after), 4);
    assert_int_equal(status, SPEC_E_FORKED);
    assert_true(before > 0);
    assert_int_equal(after, 0);
    assert_int_equal(ask_number(&ranks[0], "read 1 100"), 100); /* the parent goes on */
    assert_int_equal(ask_number(&ranks[0], "store 1 100 50 4"), 0);
    kill_hard(&ranks[0]);
    assert_int_equal(kill(child, 0), 0); /* the child is still there */
    ranks[0] = start_open(&scene, SPEC_ROLE_WRITER, 0, 2, members);
    await_number(&ranks[0], "read 1 100", 100);
    (void)kill(child, SIGKILL);
    for (uint32_t i = 0; i < 2; i++)
        finish(&ranks[i]);
    scene_close(&scene);
}

static void a_forked_child_holds_nothing_of_the_store(void **state)
{
    (void)state;
    fork_away("\"io\": {\"backend\": \"pread\"}");
    fork_away("\"io\": {\"backend\": \"auto\"}"); /* rings, where the kernel allows them */
}

/* A scheduler that holds no rows hands leases to the ranks that do. */
static void a_lease_travels_from_a_scheduler_to_workers(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    struct process scheduler = start_open(&scene, SPEC_ROLE_READER, 0, 2, ""), ranks[2];
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = start_open(&scene, SPEC_ROLE_WRITER, i, 2, "");
        assert_int_equal(ask_number(&ranks[i], "store 1 0 200 4"), 0);
    }
    await_number(&scheduler, "read 1 150", 0 + 150);
    struct process loader = start_open(&scene, SPEC_ROLE_READER, 1, 2, "");
    uint64_t matched, expiry_ns;
    char lease[129], line[LINE_MAX];
    const char *answer = ask(&scheduler, "look 1 150");
    assert_int_equal(sscanf(answer, "%" SCNu64 " %" SCNu64 " %128s", &matched, &expiry_ns, lease),
                     3);
    (void)snprintf(line, sizeof(line), "attach %s 1 150", lease);
    char expected[32];
    (void)snprintf(expected, sizeof(expected), "0 %u 150", SPEC_LOOKUP_HIT);
    struct process *all[] = {&ranks[0], &ranks[1], &loader, &scheduler};
    for (uint32_t i = 0; i < 4; i++)
        assert_string_equal(ask(all[i], "%s", line), expected);
    for (uint32_t i = 0; i < 2; i++)
        finish(&ranks[i]);
    finish(&loader);
    finish(&scheduler);
    scene_close(&scene);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "worker") == 0)
        return work(argv[2]);
    if (argc != 2) {
        (void)fprintf(stderr, "usage: test_processes PLUGIN\n");
        return 2;
    }
    library_path = argv[1];
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_writer_killed_between_layers_costs_what_it_had_not_finished),
        cmocka_unit_test(a_lease_outlives_eviction_and_rewriting_until_it_ends),
        cmocka_unit_test(a_slab_that_a_reader_finds_bad_goes_in_the_writer),
        cmocka_unit_test(a_reset_by_a_reader_reaches_both_writers),
        cmocka_unit_test(a_reset_outlives_the_reader_that_asked_for_it),
        cmocka_unit_test(a_second_writer_is_told_who_is_first_and_auto_reads),
        cmocka_unit_test(an_auto_reader_takes_over_from_each_killed_writer),
        cmocka_unit_test(a_forked_child_holds_nothing_of_the_store),
        cmocka_unit_test(a_lease_travels_from_a_scheduler_to_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
