/* bench-device: measures the device under a directory with our own back ends and O_DIRECT.
 *
 * Per size of an operation, sequential and random: rate, and the cost of an operation. It uses one
 * file in DIR, which is removed at the end, also after a failure.
 * Threads: the back end's. Tests: tests/unit/tools/test_ctl.py (that it runs and adds up) */
#include "tools/ctl/ctl.h"

#include "base/config.h"
#include "store/io/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEPTH_MAX  64u
#define INFLIGHT_MAX (UINT64_C(8) << 20) /* the back end's own target */
#define HUGE_BYTES (UINT64_C(2) << 20)
#define SPAN_NS    UINT64_C(700000000) /* of one measurement, or one pass over the file */

struct device {
    struct sc_alloc alloc;
    struct sc_log log;
    struct sc_fault fault;
    struct sc_exec *exec;
    struct sc_io *io;
    struct sc_io_file *file;
    uint8_t *memory; /* DEPTH_MAX operations of the largest size, at most INFLIGHT_MAX in all */
    char path[SC_LIMIT_PATH_BYTES + 64];
    uint64_t file_bytes;

    /* Of one measurement: what submits next is whatever completed. */
    struct sc_io_op ops[DEPTH_MAX];
    uint64_t op_bytes, ops_max;
    bool is_random;
    uint64_t end_ns;
    _Atomic uint64_t issued, done_ops;
    _Atomic int32_t failed;
    _Atomic uint32_t flying, word;
};

/* The i-th operation's place: in order, or a fixed shuffle of the file. */
static uint64_t place_of(const struct device *device, uint64_t i)
{
    uint64_t slots = device->file_bytes / device->op_bytes;
    uint64_t mixed = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    mixed ^= mixed >> 31;
    return (device->is_random ? mixed % slots : i % slots) * device->op_bytes;
}

static void op_issue(struct device *device, struct sc_io_op *op)
{
    uint64_t i = atomic_fetch_add(&device->issued, 1);
    if (i >= device->ops_max || sc_exec_now_ns(device->exec) >= device->end_ns ||
        atomic_load(&device->failed) != SPEC_OK) {
        if (atomic_fetch_sub(&device->flying, 1) == 1) {
            atomic_fetch_add(&device->word, 1);
            sc_exec_wake(device->exec, &device->word);
        }
        return;
    }
    op->offset = place_of(device, i);
    sc_io_submit(device->io, &op, 1);
}

static void on_done(struct sc_io_op *op)
{
    struct device *device = op->user;
    if (op->status != SPEC_OK)
        atomic_store(&device->failed, op->status);
    else
        atomic_fetch_add(&device->done_ops, 1);
    op_issue(device, op);
}

/* Bytes a second; 0: an operation failed. */
static double measure(struct device *device, uint32_t kind, uint64_t op_bytes, bool is_random)
{
    uint64_t depth = INFLIGHT_MAX / op_bytes < DEPTH_MAX ? INFLIGHT_MAX / op_bytes : DEPTH_MAX;
    device->op_bytes = op_bytes;
    device->is_random = is_random;
    device->ops_max = device->file_bytes / op_bytes;
    uint64_t start_ns = sc_exec_now_ns(device->exec);
    device->end_ns = kind == SC_IO_WRITE ? UINT64_MAX : start_ns + SPAN_NS;
    atomic_store(&device->issued, 0);
    atomic_store(&device->done_ops, 0);
    atomic_store(&device->flying, (uint32_t)depth);
    uint32_t word = atomic_load(&device->word);
    for (uint64_t i = 0; i < depth; i++) {
        device->ops[i] = (struct sc_io_op){.file = device->file,
                                           .buffer = device->memory + i * op_bytes,
                                           .bytes = op_bytes,
                                           .kind = kind,
                                           .io_class = SC_IO_CLASS_DEMAND,
                                           .done = on_done,
                                           .user = device};
        op_issue(device, &device->ops[i]);
    }
    (void)sc_exec_wait(device->exec, &device->word, word, SC_EXEC_FOREVER);
    uint64_t took_ns = sc_exec_now_ns(device->exec) - start_ns;
    if (atomic_load(&device->failed) != SPEC_OK)
        return 0;
    return (double)(atomic_load(&device->done_ops) * op_bytes) * 1e9 / (double)took_ns;
}

#define SIZES 6u
static const uint64_t SIZE_BYTES[SIZES] = {4096, 16384, 65536, 262144, 1048576, 4194304};

struct result {
    char name[16];
    double write, sequential[SIZES], random[SIZES]; /* bytes a second */
};

static int failed(const char *what, const struct spec_error *error)
{
    fprintf(stderr, "spec-ctl: %s: %s\n", what, error->text);
    return CTL_FAILED;
}

static int device_open(struct device *device, const struct ctl_options *options, uint32_t backend)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_config config; /* its defaults: what a connector would use */
    struct sc_exec_params exec = {.alloc = &device->alloc, .thread_count = 2, .name = "ctl"};
    sc_alloc_init(&device->alloc);
    sc_log_init(&device->log, NULL, NULL, 0);
    sc_fault_init(&device->fault);
    device->file_bytes = options->bytes - options->bytes % SIZE_BYTES[SIZES - 1];
    (void)snprintf(device->path, sizeof(device->path), "%s/spec-ctl-bench.%ld", options->path,
                   (long)getpid());
    if (sc_config_parse(&device->alloc, "{\"path\": \"/\"}", &config, &error) != SPEC_OK ||
        sc_exec_open(&exec, &device->exec, &error) != SPEC_OK)
        return failed("executor", &error);
    struct sc_io_params io = {.alloc = &device->alloc,
                              .exec = device->exec,
                              .log = &device->log,
                              .fault = &device->fault,
                              .backend = backend,
                              .ring_count = config.io_threads,
                              .in_flight_bytes = config.io_in_flight_bytes};
    if (sc_io_open(&io, &device->io, &error) != SPEC_OK)
        return failed("back end", &error);
    device->memory = aligned_alloc(HUGE_BYTES, INFLIGHT_MAX);
    if (device->memory == NULL)
        return failed("memory", &error);
    (void)madvise(device->memory, INFLIGHT_MAX, MADV_HUGEPAGE); /* as the staging pool has them */
    sc_io_buffers(device->io, device->memory, INFLIGHT_MAX, INFLIGHT_MAX);
    for (uint64_t i = 0; i < INFLIGHT_MAX / 8; i++) /* nothing that a device could compress */
        ((uint64_t *)(void *)device->memory)[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t flags =
        SC_IO_OPEN_CREATE | SC_IO_OPEN_EXCLUSIVE | SC_IO_OPEN_WRITE | SC_IO_OPEN_DIRECT;
    if (sc_io_file_open(device->io, device->path, flags, &device->file, &error) != SPEC_OK ||
        sc_io_file_reserve(device->io, device->file, device->file_bytes, &error) != SPEC_OK)
        return failed("file", &error);
    return CTL_OK;
}

static void device_close(struct device *device)
{
    if (device->file != NULL) {
        sc_io_file_close(device->io, device->file);
        (void)sc_io_unlink(device->io, device->path, NULL);
    }
    if (device->memory != NULL)
        sc_io_buffers(device->io, NULL, 0, 0);
    sc_io_close(device->io);
    sc_exec_close(device->exec);
    free(device->memory);
    sc_log_done(&device->log);
    sc_alloc_done(&device->alloc);
    free(device);
}

static int device_run(const struct ctl_options *options, uint32_t backend, struct result *ret)
{
    struct device *device = calloc(1, sizeof(*device));
    if (device == NULL)
        return CTL_FAILED;
    int code = device_open(device, options, backend);
    if (code == CTL_OK) {
        (void)snprintf(ret->name, sizeof(ret->name), "%s", sc_io_name(device->io));
        ret->write = measure(device, SC_IO_WRITE, SIZE_BYTES[SIZES - 2], false);
        for (uint32_t i = 0; i < SIZES; i++) {
            if (!options->quiet && isatty(STDERR_FILENO))
                fprintf(stderr, "\r%s, operations of %" PRIu64 " bytes   ", ret->name,
                        SIZE_BYTES[i]);
            ret->sequential[i] = measure(device, SC_IO_READ, SIZE_BYTES[i], false);
            ret->random[i] = measure(device, SC_IO_READ, SIZE_BYTES[i], true);
        }
        if (!options->quiet && isatty(STDERR_FILENO))
            fputs("\r\033[K", stderr);
        if (atomic_load(&device->failed) != SPEC_OK) {
            fprintf(stderr, "spec-ctl: %s: an operation failed\n", device->path);
            code = CTL_FAILED;
        }
    }
    device_close(device);
    return code;
}

static struct json_object *result_json(const struct result *result)
{
    struct json_object *object = json_object_new_object(), *list = json_object_new_array();
    json_object_object_add(object, "backend", json_object_new_string(result->name));
    json_object_object_add(object, "write_bytes_per_s", json_object_new_double(result->write));
    for (uint32_t i = 0; i < SIZES; i++) {
        struct json_object *line = json_object_new_object();
        json_object_object_add(line, "op_bytes", json_object_new_uint64(SIZE_BYTES[i]));
        json_object_object_add(line, "sequential_bytes_per_s",
                               json_object_new_double(result->sequential[i]));
        json_object_object_add(line, "random_bytes_per_s",
                               json_object_new_double(result->random[i]));
        json_object_array_add(list, line);
    }
    json_object_object_add(object, "reads", list);
    return object;
}

static void result_lines(const struct result *result)
{
    printf("%s: sequential write %.2f GB/s\n", result->name, result->write / 1e9);
    printf("  %12s %16s %16s %16s\n", "operation", "sequential GB/s", "random GB/s", "random op/s");
    for (uint32_t i = 0; i < SIZES; i++)
        printf("  %12" PRIu64 " %16.2f %16.2f %16.0f\n", SIZE_BYTES[i], result->sequential[i] / 1e9,
               result->random[i] / 1e9, result->random[i] / (double)SIZE_BYTES[i]);
}

int ctl_bench_device(const struct ctl_options *options)
{
    static const struct {
        const char *name;
        uint32_t backend;
    } backends[] = {{"io_uring", SC_BACKEND_URING}, {"pread", SC_BACKEND_PREAD}};
    struct json_object *list = json_object_new_array();
    int code = CTL_OK;
    bool known = options->only == NULL;
    for (uint32_t i = 0; i < 2; i++) {
        struct result result = {0};
        if (options->only != NULL && strcmp(options->only, backends[i].name) != 0)
            continue;
        known = true;
        int one = device_run(options, backends[i].backend, &result);
        code = one != CTL_OK ? one : code;
        if (one != CTL_OK)
            continue;
        json_object_array_add(list, result_json(&result));
        if (!options->json)
            result_lines(&result);
    }
    if (!known)
        fprintf(stderr, "spec-ctl: --only expects io_uring or pread, found %s\n", options->only);
    if (options->json && known)
        printf("%s\n", json_object_to_json_string_ext(list, JSON_C_TO_STRING_PRETTY));
    json_object_put(list);
    return known ? code : CTL_USAGE;
}
