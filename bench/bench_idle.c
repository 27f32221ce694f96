/* bench-idle: what processes cost that have a store open and do nothing.
 *
 *   writer     the first that opened
 *   beside     one that opened beside it, and follows its log
 *   bare       one that only wakes as often
 *
 * --of rows, or objects: by key.
 * Each is a process of its own. A tick is 25 ms (plugin/tick.c).
 * Threads: the plugin's. Tests: none (a measurement). */
#include "abi/spec_load.h"
#include "abi/spec_objects.h"
#include "bench/bench.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICKS_PER_S 40u
#define SETTLE_S    2u

struct cost { /* of a tick */
    double cpu_us, switches;
};

struct options {
    const char *connector, *config;
    bool objects; /* by key, else rows */
    uint64_t seconds;
};

static double cpu_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double switches(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_nvcsw;
}

static void wait_s(uint64_t seconds, bool is_bare)
{
    const struct timespec tick = {0, 1000000000 / TICKS_PER_S};
    if (!is_bare)
        (void)sleep((unsigned)seconds);
    for (uint64_t i = 0; is_bare && i < seconds * TICKS_PER_S; i++)
        (void)nanosleep(&tick, NULL);
}

static struct cost cost_now(const struct options *options, bool is_bare)
{
    wait_s(SETTLE_S, false);
    double cpu = cpu_us(), switched = switches();
    double ticks = (double)options->seconds * TICKS_PER_S;
    wait_s(options->seconds, is_bare);
    return (struct cost){(cpu_us() - cpu) / ticks, (switches() - switched) / ticks};
}

static struct cost ready_cost(const struct options *options, int ready)
{
    if (write(ready, "", 1) != 1)
        bench_die("nobody listens");
    return cost_now(options, false);
}

static struct cost objects_cost(const struct options *options, int ready)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    const struct spec_objects_params params = {.struct_size = sizeof(params),
                                               .config = options->config};
    const struct spec_objects_api *(*get_api)(uint32_t) = NULL;
    void *handle = dlopen(options->connector, RTLD_NOW | RTLD_LOCAL);
    void *symbol = handle != NULL ? dlsym(handle, "spec_connector_objects_api") : NULL;
    spec_objects *objects = NULL;
    if (symbol == NULL)
        bench_die("--connector %s: exports no spec_connector_objects_api", options->connector);
    memcpy(&get_api, &symbol, sizeof(get_api));
    const struct spec_objects_api *api = get_api(SPEC_OBJECTS_MAJOR);
    if (api == NULL)
        bench_die("--connector %s: another version of spec_objects.h", options->connector);
    bench_must(api->open(&params, &objects, &error), &error, "open");
    struct cost cost = ready_cost(options, ready);
    api->close(objects);
    return cost;
}

static struct cost rows_cost(const struct options *options, int ready)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = 32,
                               .kv_head_count = 8,
                               .query_head_count = 32,
                               .head_size = 128,
                               .kv_dtype = SPEC_DTYPE_BF16,
                               .rope_theta = 500000,
                               .weights_id = {"bench-idle", 10}};
    const struct spec_open_params params = {
        .struct_size = sizeof(params), .config = options->config, .model = &model};
    struct spec_plugin plugin = {NULL, NULL};
    spec_connector *conn = NULL;
    bench_must(spec_load(options->connector, &plugin, &error), &error, "load");
    bench_must(plugin.api->open(&params, &conn, &error), &error, "open");
    struct cost cost = ready_cost(options, ready);
    plugin.api->close(conn);
    return cost;
}

/* Runs in a child, which ends after all have measured. Returns where its result is read. */
static int child_start(const struct options *options, bool is_bare)
{
    int ready[2], result[2];
    if (pipe(ready) != 0 || pipe(result) != 0)
        bench_die("no pipe");
    pid_t pid = fork();
    if (pid < 0)
        bench_die("no process");
    if (pid == 0) {
        struct cost cost;
        if (is_bare && write(ready[1], "", 1) != 1)
            bench_die("nobody listens");
        if (is_bare)
            cost = cost_now(options, true);
        else
            cost =
                options->objects ? objects_cost(options, ready[1]) : rows_cost(options, ready[1]);
        _exit(write(result[1], &cost, sizeof(cost)) == sizeof(cost) ? 0 : 1);
    }
    char byte;
    (void)close(ready[1]);
    (void)close(result[1]);
    if (read(ready[0], &byte, 1) != 1)
        bench_die("a process ended before it was ready");
    (void)close(ready[0]);
    return result[0];
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"writer", "beside", "bare"};
    const struct options options = {
        .connector = bench_option(argc, argv, "--connector", ""),
        .config = bench_option(argc, argv, "--config", ""),
        .objects = strcmp(bench_option(argc, argv, "--of", "rows"), "objects") == 0,
        .seconds = bench_option_u64(argc, argv, "--seconds", 10)};
    int results[3];
    if (options.seconds == 0)
        bench_die("--seconds 0, expected at least 1");
    for (uint32_t i = 0; i < 3; i++)
        results[i] = child_start(&options, i == 2);
    printf("{\"facts\": {");
    for (uint32_t i = 0; i < 3; i++) {
        struct cost cost;
        int ended = 0;
        if (read(results[i], &cost, sizeof(cost)) != sizeof(cost))
            bench_die("a process did not measure");
        (void)wait(&ended);
        printf("%s\"%s_us\": %.1f, \"%s_switches\": %.2f", i > 0 ? ", " : "", names[i], cost.cpu_us,
               names[i], cost.switches);
    }
    printf("}}\n");
    return 0;
}
