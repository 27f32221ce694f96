/* bench: timing and printing for benchmark programs. See bench.h.
 *
 * Threads: one. Tests: bench/run engine, bench/run ttft */
#include "bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE_BYTES    (UINT64_C(2) << 20)
#define CACHE_KIB_MAX (UINT64_C(256) << 10)

uint64_t bench_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bench_series_add(struct bench_series *series, uint64_t ns)
{
    if (series->rounds < BENCH_ROUNDS_MAX)
        series->ns[series->rounds++] = ns;
}

void bench_series_print(const struct bench_series *series)
{
    printf("{\"name\": \"%s\", \"unit\": \"%s\", \"work\": %.17g, \"ns\": [", series->name,
           series->unit, series->work);
    for (uint64_t i = 0; i < series->rounds; i++)
        printf("%s%" PRIu64, i == 0 ? "" : ", ", series->ns[i]);
    printf("]}\n");
    (void)fflush(stdout);
}

void bench_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fprintf(stderr, "bench: ");
    (void)vfprintf(stderr, format, arguments);
    (void)fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

void bench_must(spec_status status, const struct spec_error *error, const char *what)
{
    if (status != SPEC_OK)
        bench_die("%s: status %d: %s", what, (int)status, error->text);
}

uint64_t bench_command_ns(const char *command, const char *word)
{
    char line[256];
    uint64_t ns = 0;
    FILE *pipe = popen(command, "r");
    while (pipe != NULL && fgets(line, sizeof(line), pipe) != NULL) {
        char *end = strchr(line, ' ');
        if (end != NULL && strncmp(line, word, strlen(word)) == 0 && line + strlen(word) == end)
            ns = strtoull(end, NULL, 10);
    }
    if (pipe == NULL || pclose(pipe) != 0 || ns == 0)
        bench_die("did not print \"%s NS\": %s", word, command);
    return ns;
}

uint64_t bench_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void bench_shuffle(uint32_t *ret_order, uint32_t count, uint64_t *turn)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = (uint32_t)(bench_mix((*turn)++) % (i + 1));
        ret_order[i] = ret_order[other];
        ret_order[other] = i;
    }
}

void *bench_memory(uint64_t bytes, bool is_huge, int fill)
{
    uint64_t whole_bytes = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    void *memory = aligned_alloc(HUGE_BYTES, whole_bytes);
    if (memory == NULL)
        bench_die("no memory for %" PRIu64 " bytes", bytes);
    (void)madvise(memory, whole_bytes, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, fill, bytes);
    return memory;
}

void *bench_huge_memory(uint64_t bytes, int fill)
{
    return bench_memory(bytes, true, fill);
}

uint64_t bench_cache_bytes(void)
{
    uint64_t kib = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (file != NULL) {
        if (fscanf(file, "%" SCNu64 "K", &kib) != 1)
            kib = 0;
        (void)fclose(file);
    }
    return (kib == 0 ? 32768 : kib < CACHE_KIB_MAX ? kib : CACHE_KIB_MAX) * 1024;
}

const char *bench_option(int argc, char **argv, const char *name, const char *fallback)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return fallback;
}

uint64_t bench_option_u64(int argc, char **argv, const char *name, uint64_t fallback)
{
    const char *text = bench_option(argc, argv, name, NULL);
    if (text == NULL)
        return fallback;
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        bench_die("%s: found \"%s\", expected a number", name, text);
    return value;
}
