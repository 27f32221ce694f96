/* processes: workers that have the plugin, and the parent that asks them. See processes.h. */
#include "tests/fault/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

uint64_t wall_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- A worker ------------------------------------------------------------------------------- */

struct spec_error error = {.struct_size = sizeof(error)};

uint64_t common_tokens(uint64_t seed)
{
    return (seed & SEED_SHARES) != 0 ? (mix(seed) >> 32) % 4 * COMMON_TOKENS : 0;
}

void make_prompt(struct worker *w, uint64_t seed, uint64_t count)
{
    uint64_t history = w->rank + 1, common = common_tokens(seed);
    uint64_t family = SEED_SHARES + mix(seed) % FAMILIES;
    for (uint64_t p = 0; p < count; p++) {
        uint64_t source = p < common ? family : seed;
        w->tokens[p] = (uint32_t)(mix(source * 1000003 + p) % 50000);
        history = mix(history ^ w->tokens[p]);
        w->history[p] = history;
    }
}

void make_row(const struct worker *w, uint64_t p, uint32_t layer, uint32_t part, uint8_t *dst)
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

static void log_line(int32_t level, const char *line, void *user)
{
    (void)user;
    (void)fprintf(stderr, "%d.%03u %d: %s\n", (int)getpid(), (unsigned)(wall_ns() / 1000000 % 1000),
                  level, line);
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
    const char *weights = w->weights[0] != '\0' ? w->weights : "processes";
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = LAYERS,
                               .kv_head_count = HEADS,
                               .query_head_count = HEADS,
                               .head_size = HEAD_SIZE,
                               .kv_dtype = SPEC_DTYPE_F16,
                               .tp_rank = w->rank,
                               .tp_size = count,
                               .weights_id = {weights, strlen(weights)}};
    struct spec_open_params params = {.struct_size = sizeof(params),
                                      .role = role,
                                      .config = config,
                                      .model = &model,
                                      .rank = w->rank,
                                      .log = getenv("SC_LOG") != NULL ? log_line : NULL,
                                      .log_level_max = SPEC_LOG_DEBUG,
                                      .rank_count = count};
    spec_status status = w->api->open(&params, &w->conn, &error);
    (void)snprintf(w->answer, sizeof(w->answer), "%d %s", status,
                   status == SPEC_OK ? "" : error.text);
}

spec_status lookup(struct worker *w, uint64_t count, struct spec_lookup_result *ret_result)
{
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = w->tokens,
                                        .token_count = count,
                                        .max_tokens = count};
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result)};
    return w->api->lookup(w->conn, &params, ret_result, &error);
}

int load_all(struct worker *w, spec_request request, uint64_t matched)
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
                    return ROWS_WRONG;
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
        (void)snprintf(w->answer, sizeof(w->answer), status == ROWS_WRONG ? "wrong" : "error %d",
                       status);
}

spec_status store_layers(struct worker *w, spec_request request, uint64_t first, uint64_t count,
                         uint32_t layers)
{
    spec_status status = SPEC_OK;
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < layers && status == SPEC_OK; layer++) {
        for (uint64_t j = 0; j < count; j++)
            for (uint32_t part = 0; part < 2; part++)
                make_row(w, first + j, layer, part, w->rows[part] + j * PART_BYTES);
        struct spec_memory memory = memory_of(w, count);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = request,
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
    return status;
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
    if (status == SPEC_OK)
        status = store_layers(w, result.request, first, count, layers);
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
    } else if (w->more == NULL || !w->more(w, line)) {
        exit(3);
    }
}

int worker_main(const char *library, worker_more more)
{
    static struct worker w;
    struct spec_plugin plugin;
    char line[LINE_MAX];
    if (spec_load(library, &plugin, &error) != SPEC_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return 3;
    }
    w.api = plugin.api;
    w.more = more;
    setvbuf(stdin, NULL, _IONBF, 0); /* a command may poll for the next line */
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

const char *library_path;

void scene_open(struct scene *scene)
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

void scene_close(struct scene *scene)
{
    (void)nftw(scene->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Processes of this test that have not ended. */
static pid_t living[PROCESSES_MAX];

static void replace_living(pid_t old, pid_t new)
{
    for (uint32_t i = 0; i < PROCESSES_MAX; i++)
        if (living[i] == old) {
            living[i] = new;
            return;
        }
    fail_msg("pid %d is not one of %u processes", old, PROCESSES_MAX);
}

int kill_leftovers(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PROCESSES_MAX; i++)
        if (living[i] != 0) {
            (void)kill(living[i], SIGKILL);
            (void)waitpid(living[i], NULL, 0);
            living[i] = 0;
        }
    return 0;
}

struct process start(void)
{
    int down[2], up[2];
    struct process process;
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    process.pid = fork();
    assert_true(process.pid >= 0);
    if (process.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(down[0], 0);
        (void)dup2(up[1], 1);
        (void)execl("/proc/self/exe", "test", "worker", library_path, (char *)NULL);
        _exit(3);
    }
    replace_living(0, process.pid);
    (void)close(down[0]);
    (void)close(up[1]);
    process.to = fdopen(down[1], "w");
    process.from = fdopen(up[0], "r");
    assert_true(process.to != NULL && process.from != NULL);
    return process;
}

__attribute__((format(printf, 2, 0))) static void tell_args(struct process *process,
                                                            const char *format, va_list args)
{
    (void)vfprintf(process->to, format, args);
    (void)fputc('\n', process->to);
    (void)fflush(process->to);
}

void tell(struct process *process, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell_args(process, format, args);
    va_end(args);
}

const char *hear(struct process *process)
{
    static char answer[LINE_MAX];
    if (fgets(answer, sizeof(answer), process->from) == NULL)
        fail_msg("process %d died", process->pid);
    answer[strcspn(answer, "\n")] = '\0';
    return answer;
}

const char *ask(struct process *process, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell_args(process, format, args);
    va_end(args);
    return hear(process);
}

int64_t ask_number(struct process *process, const char *line)
{
    const char *answer = ask(process, "%s", line);
    char *end;
    int64_t number = strtoll(answer, &end, 10);
    if (end == answer)
        fail_msg("%s: %s", line, answer);
    return number;
}

void finish(struct process *process)
{
    int how = 0;
    (void)fclose(process->to);
    (void)fclose(process->from);
    assert_int_equal(waitpid(process->pid, &how, 0), process->pid);
    replace_living(process->pid, 0);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

void kill_hard(struct process *process)
{
    (void)kill(process->pid, SIGKILL);
    (void)waitpid(process->pid, NULL, 0);
    replace_living(process->pid, 0);
    (void)fclose(process->to);
    (void)fclose(process->from);
}

struct process start_open(const struct scene *scene, uint32_t role, uint32_t rank, uint32_t count,
                          const char *members)
{
    struct process process = start();
    const char *answer =
        ask(&process, "open %s %u %u %u %s", scene->dir, role, rank, count, members);
    if (strcmp(answer, "0 ") != 0)
        fail_msg("open of rank %u: %s", rank, answer);
    return process;
}

void await_number(struct process *process, const char *line, int64_t expected)
{
    double end_s = now_s() + PATIENCE_S;
    int64_t number;
    while ((number = ask_number(process, line)) != expected && now_s() < end_s)
        (void)usleep(2000);
    if (number != expected)
        fail_msg("%s: %" PRId64 ", expected %" PRId64, line, number, expected);
}
