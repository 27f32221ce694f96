/* Loads through the ABI, on a real disk, into device memory in pages:
 *
 *   from the drive  all layers of a prefix, cold (O_DIRECT, no host tier), to the device and to
 *                   host memory in turn
 *   from the tier   the same out of the host tier, beside one copy of as many bytes
 *   one call        layered: a layer's codes and rows in the host tier, queries and new keys on the
 *                   device: from the call to its return, on the host's clock
 *
 * Every row that a load delivers is compared with what was stored; of layered ones those that
 * are exact with what was stored, all others with what codes alone give (exact_ppm 0, host memory).
 *
 * The plugin is linked in, not loaded. Threads: the plugin's. Tests: ctest bench_cuda_on_the_fake
 */
#include "plugin/connector.h"
#include "bench/cuda/calls.h"
#include "bench/cuda/parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXACT_PPM   50000u
#define HOST_SLACK  (UINT64_C(256) << 20) /* of the tier, beside the rows */
#define SMALL_BYTES (UINT64_C(16) << 20)  /* a store of fewer needs little of anything */
#define THREADS     8u                    /* io.threads: rows of the tier are verified by as many */

struct loads {
    const struct spec_api *api;
    spec_connector *conn;
    const struct rig_shape *shape;
    struct scene scene; /* pages of one layer after the other: scene.pages[0], whole layers */
    uint64_t layers, bytes;
    uint32_t *tokens;
    uint8_t *rows;   /* [layers][K rows | V rows]: what was stored; pinned */
    uint8_t *plain;  /* [layers][bytes]: where loads to host memory go */
    sc_cu_ptr pages; /* [layers][pages of a layer] */
    char config[1024];
    /* Layered. */
    sc_cu_ptr queries, fresh;
    uint64_t *exact_bits;
    uint8_t *found, *inexact; /* pinned; a layer's pages, and what codes alone give in its place */
    uint64_t read_bytes, exact_rows;
    struct calls_span span; /* of the last call */
};

/* Where a call's time goes, in microseconds. */
struct parts_of_call {
    struct rig_samples before, sums, behind, driver, own;
};

static uint64_t layer_bytes(const struct loads *it)
{
    return it->scene.bytes;
}

/* ---- Memory --------------------------------------------------------------------------------- */

/* A layer as it was stored: rows one behind the other, K, then V. */
static struct spec_memory plain_memory(const struct loads *it, uint8_t *at)
{
    uint64_t part = it->shape->rows * it->scene.part_bytes;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_BF16,
                                .k_base = at,
                                .v_base = at + part,
                                .k_bytes = part,
                                .v_bytes = part,
                                .token_stride_bytes = it->scene.part_bytes,
                                .head_stride_bytes = it->shape->head_size * 2ull};
}

/* Pages, wherever they are. */
static struct spec_memory paged_memory(const struct loads *it, uint8_t *at)
{
    struct spec_memory memory = plain_memory(it, at);
    memory.slots = it->scene.slots;
    memory.slot_count = it->shape->rows;
    memory.block_tokens = SCENE_BLOCK;
    memory.block_stride_bytes = SCENE_BLOCK * it->scene.part_bytes;
    return memory;
}

static struct spec_memory there_memory(struct rig *rig, const struct loads *it, uint64_t layer)
{
    struct spec_memory memory =
        paged_memory(it, (uint8_t *)(uintptr_t)(it->pages + layer * layer_bytes(it)));
    memory.device = SPEC_DEVICE_CUDA;
    memory.device_index = (int32_t)rig->device->ordinal;
    memory.stream = rig->stream;
    return memory;
}

/* Row j of a layer in pages that lie at `at`. */
static const uint8_t *paged_row(const struct loads *it, const uint8_t *at, uint64_t j,
                                uint32_t part)
{
    uint64_t rows = it->shape->rows;
    return at + ((part * rows) + (uint64_t)it->scene.slots[j]) * it->scene.part_bytes;
}

static const uint8_t *stored_row(const struct loads *it, uint64_t layer, uint64_t j, uint32_t part)
{
    return it->rows + layer * layer_bytes(it) + (part * it->shape->rows + j) * it->scene.part_bytes;
}

/* ---- The connector -------------------------------------------------------------------------- */

static bool is_small(const struct loads *it)
{
    return it->bytes < SMALL_BYTES;
}

static void print_log(int32_t level, const char *line, void *user)
{
    (void)user;
    (void)fprintf(stderr, "plugin (%d): %s\n", (int)level, line);
}

static void connector_open(struct rig *rig, struct loads *it, const char *store, const char *extra)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_model model = {.struct_size = sizeof(model),
                               .layer_count = (uint32_t)it->layers,
                               .kv_head_count = it->shape->heads,
                               .query_head_count = it->shape->heads * it->shape->group,
                               .head_size = it->shape->head_size,
                               .kv_dtype = SPEC_DTYPE_BF16,
                               .weights_id = {"bench-cuda", 10}};
    (void)snprintf(it->config, sizeof(it->config), "{\"path\": \"%s/%s\", %s%s}", rig->dir, store,
                   is_small(it) ? "\"disk_bytes\": \"256MiB\", \"segment_bytes\": \"8MiB\", "
                                  "\"staging_bytes\": \"32MiB\", \"max_requests\": 8, "
                                : "\"disk_bytes\": \"8GiB\", \"staging_bytes\": \"256MiB\", ",
                   extra);
    struct spec_open_params params = {.struct_size = sizeof(params),
                                      .role = SPEC_ROLE_WRITER,
                                      .config = it->config,
                                      .model = &model,
                                      .log = print_log,
                                      .log_level_max = SPEC_LOG_WARN};
    it->api = spec_connector_api(SPEC_ABI_MAJOR);
    bench_must(it->api->open(&params, &it->conn, &error), &error, "open");
}

static struct spec_stats stats_of(const struct loads *it)
{
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    struct spec_error error = {.struct_size = sizeof(error)};
    bench_must(it->api->stats(it->conn, &stats, &error), &error, "stats");
    return stats;
}

static spec_request lookup(const struct loads *it, uint64_t wanted)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_lookup_params params = {
        .struct_size = sizeof(params), .tokens = it->tokens, .token_count = it->shape->rows + 1};
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    bench_must(it->api->lookup(it->conn, &params, &result, &error), &error, "lookup");
    if (result.matched_tokens != wanted)
        bench_die("%" PRIu64 " tokens match, expected %" PRIu64, result.matched_tokens, wanted);
    return result.request;
}

/* All layers, from host memory; then until codes are made, where they are. */
static void store_all(const struct loads *it)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_request request = lookup(it, 0);
    spec_ticket ticket = 0;
    spec_status status;
    for (uint64_t layer = 0; layer < it->layers; layer++) {
        struct spec_memory memory = plain_memory(it, it->rows + layer * layer_bytes(it));
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = request,
                                           .layer = (uint32_t)layer,
                                           .token_count = it->shape->rows,
                                           .memory = &memory};
        while (stats_of(it).staging_bytes_used > 96ull << 20) /* a layer fits beside that */
            (void)usleep(200);
        bench_must(it->api->store(it->conn, &params, 1, &ticket, &error), &error, "store");
    }
    bench_must(it->api->wait(it->conn, &ticket, 1, UINT64_MAX, &status, &error), &error, "wait");
    bench_must(status, &error, "a ticket");
    bench_must(it->api->release(it->conn, request, &error), &error, "release");
    while (stats_of(it).building != 0)
        (void)usleep(1000);
}

/* ---- Whole loads ---------------------------------------------------------------------------- */

/* Where: the device, or host memory. Until the last row is there. */
static void load_all(struct rig *rig, struct loads *it, bool to_device)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_request request = lookup(it, it->shape->rows);
    for (uint32_t layer = 0; layer < it->layers; layer++) {
        struct spec_memory memory = to_device
                                        ? there_memory(rig, it, layer)
                                        : paged_memory(it, it->plain + layer * layer_bytes(it));
        struct spec_select all = {
            .struct_size = sizeof(all), .given = SPEC_SELECT_EXACT, .exact_ppm = 1000000};
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = request,
                                      .layer = layer,
                                      .select = &all,
                                      .destination = &memory};
        bench_must(it->api->begin_layer(it->conn, &request, 1, layer, &error), &error,
                   "begin_layer");
        bench_must(it->api->get_important(it->conn, &item, 1, &error), &error, "get_important");
    }
    if (to_device)
        rig_wait(rig, rig->stream);
    bench_must(it->api->release(it->conn, request, &error), &error, "release");
}

static void device_run(struct rig *rig, void *job, uint64_t round)
{
    (void)round;
    load_all(rig, job, true);
}

static void host_run(struct rig *rig, void *job, uint64_t round)
{
    (void)round;
    load_all(rig, job, false);
}

static void copy_run(struct rig *rig, void *job, uint64_t round)
{
    const struct loads *it = job;
    (void)round;
    rig_put(rig, it->pages, it->rows, it->bytes);
}

static void layer_compare(const struct loads *it, const uint8_t *found, uint64_t layer,
                          const char *what)
{
    for (uint64_t j = 0; j < it->shape->rows; j++)
        for (uint32_t part = 0; part < 2; part++)
            if (memcmp(paged_row(it, found, j, part), stored_row(it, layer, j, part),
                       it->scene.part_bytes) != 0)
                bench_die("%s: row %" PRIu64 " of layer %" PRIu64 " is not what was stored", what,
                          j, layer);
}

static void all_poison(struct rig *rig, struct loads *it)
{
    memset(it->plain, RIG_POISON, it->bytes);
    rig_poison(rig, it->pages, it->bytes);
}

static void all_check(struct rig *rig, struct loads *it, bool of_host, const char *what)
{
    for (uint64_t layer = 0; layer < it->layers; layer++) {
        rig_get(rig, it->found, it->pages + layer * layer_bytes(it), layer_bytes(it));
        layer_compare(it, it->found, layer, what);
        if (of_host)
            layer_compare(it, it->plain + layer * layer_bytes(it), layer, what);
    }
}

static void from_drive(struct rig *rig, struct loads *it)
{
    struct rig_samples times[2], ratio;
    const struct rig_way ways[] = {{"host", host_run, it, 0}, {"device", device_run, it, 0}};
    connector_open(rig, it, "whole", "\"load_policy\": \"load\", \"host_bytes\": 0");
    store_all(it);
    all_poison(rig, it);
    load_all(rig, it, true);
    load_all(rig, it, false);
    all_check(rig, it, true, "a load from the drive");
    all_poison(rig, it);
    rig_race(rig, ways, 2, rig->sizes.load_rounds, times);
    all_check(rig, it, true, "loads from the drive");
    it->api->close(it->conn);
    ratio = rig_ratio(&times[0], &times[1]);
    rig_judge(rig, "a load, drive -> device / drive -> host memory", "ratio", .95, 1.0, &ratio,
              "all layers, cold, O_DIRECT where the file system has it");
    rig_tell_rate(rig, "a load, drive -> host memory", &times[0], (double)it->bytes, "cold");
}

static void from_tier(struct rig *rig, struct loads *it)
{
    struct rig_samples times[2], ratio, host;
    char extra[160], note[160];
    const struct rig_way ways[] = {{"copy", copy_run, it, 0}, {"device", device_run, it, 0}};
    const struct rig_way to_host = {"host", host_run, it, 0};
    (void)snprintf(extra, sizeof(extra),
                   "\"load_policy\": \"load\", \"io\": {\"threads\": %u}, \"host_bytes\": %" PRIu64,
                   THREADS, it->bytes + it->bytes / 4 + HOST_SLACK);
    connector_open(rig, it, "tier", extra);
    store_all(it);
    load_all(rig, it, false); /* the tier has them from here on */
    load_all(rig, it, false);
    uint64_t before = stats_of(it).read_bytes;
    all_poison(rig, it);
    load_all(rig, it, true);
    all_check(rig, it, false, "a load from the host tier");
    rig_race(rig, ways, 2, rig->sizes.load_rounds, times);
    rig_race(rig, &to_host, 1, rig->sizes.load_rounds, &host);
    all_poison(rig, it);
    load_all(rig, it, true);
    all_check(rig, it, false, "loads from the host tier");
    uint64_t read_bytes = stats_of(it).read_bytes - before;
    it->api->close(it->conn);
    ratio = rig_ratio(&times[0], &times[1]);
    (void)snprintf(note, sizeof(note),
                   "through the ABI, %" PRIu64 " layers, of which the disk gave "
                   "%" PRIu64 " bytes in all loads",
                   it->layers, read_bytes);
    rig_judge(rig, "a load, host tier -> pages / one copy", "ratio", .80, .92, &ratio, note);
    rig_tell_rate(rig, "a load, host tier -> host memory", &host, (double)it->bytes,
                  "the same, one thread of the caller's");
}

/* ---- One call ------------------------------------------------------------------------------- */

static struct spec_queries queries_of(struct rig *rig, const struct loads *it)
{
    uint64_t row = (uint64_t)it->shape->heads * it->shape->group * it->shape->head_size * 2;
    return (struct spec_queries){.struct_size = sizeof(struct spec_queries),
                                 .device = SPEC_DEVICE_CUDA,
                                 .device_index = (int32_t)rig->device->ordinal,
                                 .dtype = SPEC_DTYPE_BF16,
                                 .data = (const void *)(uintptr_t)it->queries,
                                 .byte_count = rig->sizes.query_rows * row,
                                 .row_count = (uint32_t)rig->sizes.query_rows,
                                 .heads = SPEC_QUERIES_ALL,
                                 .row_stride_bytes = row,
                                 .head_stride_bytes = it->shape->head_size * 2ull,
                                 .first_position = it->shape->rows,
                                 .stream = rig->stream};
}

static struct spec_memory fresh_of(struct rig *rig, const struct loads *it)
{
    uint64_t bytes = rig->sizes.query_rows * it->scene.part_bytes;
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .device = SPEC_DEVICE_CUDA,
                                .device_index = (int32_t)rig->device->ordinal,
                                .dtype = SPEC_DTYPE_BF16,
                                .k_base = (void *)(uintptr_t)it->fresh,
                                .v_base = (void *)(uintptr_t)it->fresh,
                                .k_bytes = bytes,
                                .v_bytes = bytes,
                                .token_stride_bytes = it->scene.part_bytes,
                                .head_stride_bytes = it->shape->head_size * 2ull,
                                .stream = rig->stream};
}

/* A layer that is chosen by the device's queries; how long the host was held. */
static double one_call(struct rig *rig, struct loads *it, spec_request request, uint32_t layer)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = there_memory(rig, it, layer);
    struct spec_memory fresh = fresh_of(rig, it);
    struct spec_queries queries = queries_of(rig, it);
    struct spec_select some = {
        .struct_size = sizeof(some), .given = SPEC_SELECT_EXACT, .exact_ppm = EXACT_PPM};
    uint64_t words = (it->shape->rows + 63) / 64;
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = request,
                                  .layer = layer,
                                  .queries = &queries,
                                  .new_keys = &fresh,
                                  .select = &some,
                                  .destination = &memory,
                                  .exact_bits = it->exact_bits,
                                  .exact_bit_words = words};
    memset(it->exact_bits, 0, words * sizeof(*it->exact_bits));
    calls_begin(rig);
    bench_must(it->api->get_important(it->conn, &item, 1, &error), &error, "get_important");
    it->span = calls_end(rig);
    double took_ns = (double)(it->span.end_ns - it->span.begin_ns);
    it->read_bytes += item.read_bytes;
    it->exact_rows = item.exact_rows;
    if (item.exact_rows >= item.row_count)
        bench_die("%" PRIu64 " of %" PRIu64 " rows came exactly: there are no codes",
                  item.exact_rows, item.row_count);
    return took_ns;
}

/* Codes alone, into host memory: the values of all rows that did not come exactly. */
static void quantised_load(struct loads *it, spec_request request, uint32_t layer)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    struct spec_memory memory = paged_memory(it, it->inexact);
    struct spec_select none = {
        .struct_size = sizeof(none), .given = SPEC_SELECT_EXACT, .exact_ppm = 0};
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = request,
                                  .layer = layer,
                                  .select = &none,
                                  .destination = &memory};
    bench_must(it->api->get_important(it->conn, &item, 1, &error), &error, "get_important, codes");
}

static void call_check(struct rig *rig, struct loads *it, spec_request request, uint32_t layer)
{
    uint64_t exact = 0;
    rig_get(rig, it->found, it->pages + layer * layer_bytes(it), layer_bytes(it));
    quantised_load(it, request, layer);
    for (uint64_t j = 0; j < it->shape->rows; j++) {
        bool is_exact = (it->exact_bits[j / 64] >> j % 64 & 1) != 0;
        exact += is_exact;
        for (uint32_t part = 0; part < 2; part++) {
            const uint8_t *expected =
                is_exact ? stored_row(it, layer, j, part) : paged_row(it, it->inexact, j, part);
            if (memcmp(paged_row(it, it->found, j, part), expected, it->scene.part_bytes) != 0)
                bench_die("layer %" PRIu32 ": row %" PRIu64 " is not %s", layer, j,
                          is_exact ? "what was stored" : "what its codes say");
        }
    }
    if (exact != it->exact_rows)
        bench_die("%" PRIu64 " rows have their bit, %" PRIu64 " are told", exact, it->exact_rows);
}

static void calls_prepare(struct rig *rig, struct loads *it)
{
    uint64_t n = rig->sizes.query_rows;
    uint64_t query_bytes = n * it->scene.part_bytes * it->shape->group;
    uint8_t *made = rig_host_memory(rig, query_bytes);
    it->queries = rig_device_memory(rig, query_bytes);
    it->fresh = rig_device_memory(rig, n * it->scene.part_bytes);
    rig_random(made, query_bytes, 31, true);
    rig_put(rig, it->queries, made, query_bytes);
    rig_random(made, n * it->scene.part_bytes, 32, true);
    rig_put(rig, it->fresh, made, n * it->scene.part_bytes);
    it->exact_bits = malloc((it->shape->rows + 63) / 64 * sizeof(*it->exact_bits));
    if (it->exact_bits == NULL)
        bench_die("no memory for bits");
}

static void sample_add(struct rig_samples *samples, uint64_t from_ns, uint64_t to_ns)
{
    if (samples->count < RIG_ROUNDS_MAX)
        samples->of[samples->count++] = (double)(to_ns - from_ns) * 1e-3;
}

static void parts_add(struct parts_of_call *parts, const struct calls_span *span)
{
    uint64_t enqueuing_ns = span->ns[CALLS_COPY] + span->ns[CALLS_LAUNCH] + span->ns[CALLS_ORDER];
    uint64_t waiting_ns = span->ns[CALLS_WAIT] + span->ns[CALLS_ASK];
    sample_add(&parts->driver, 0, enqueuing_ns);
    sample_add(&parts->own, enqueuing_ns + waiting_ns, span->end_ns - span->begin_ns);
    if (span->asked_ns == 0 || span->there_ns == 0)
        return;
    sample_add(&parts->before, span->begin_ns, span->asked_ns);
    sample_add(&parts->sums, span->asked_ns, span->there_ns);
    sample_add(&parts->behind, span->there_ns, span->end_ns);
}

static void parts_tell(struct rig *rig, const struct parts_of_call *parts,
                       const struct calls_span *span)
{
    char note[160];
    rig_tell(rig, "get_important: until it asks for the sums", "us", &parts->before,
             "checks, codes in boxes, queries, launches of scores");
    rig_tell(rig, "get_important: until the sums are there", "us", &parts->sums,
             "both passes of the scores, and their copy");
    rig_tell(rig, "get_important: behind the sums", "us", &parts->behind,
             "the choice, tags of chosen rows, boxes of codes and rows");
    (void)snprintf(note, sizeof(note),
                   "the last call: %" PRIu64 " copies, %" PRIu64 " launches, %" PRIu64
                   " of events, %" PRIu64 " waits, %" PRIu64 " questions (%.0f us)",
                   span->count[CALLS_COPY], span->count[CALLS_LAUNCH], span->count[CALLS_ORDER],
                   span->count[CALLS_WAIT], span->count[CALLS_ASK],
                   (double)span->ns[CALLS_ASK] * 1e-3);
    rig_tell(rig, "get_important: in the driver, enqueuing", "us", &parts->driver, note);
    rig_tell(rig, "get_important: neither there nor waiting", "us", &parts->own,
             "the caller's own work, and what its threads lost to others");
}

/* Each layer of a request, after a while in which its codes came out of the tier. */
static void calls_pass(struct rig *rig, struct loads *it, struct rig_samples *ret_times,
                       struct parts_of_call *ret_parts, bool is_checked)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_request request = lookup(it, it->shape->rows);
    for (uint32_t layer = 0; layer < it->layers; layer++) {
        bench_must(it->api->begin_layer(it->conn, &request, 1, layer, &error), &error,
                   "begin_layer");
        (void)usleep(20000);
        double ns = one_call(rig, it, request, layer);
        rig_wait(rig, rig->stream);
        if (is_checked)
            call_check(rig, it, request, layer);
        if (ret_times != NULL && ret_times->count < RIG_ROUNDS_MAX)
            ret_times->of[ret_times->count++] = ns * 1e-3;
        if (ret_parts != NULL)
            parts_add(ret_parts, &it->span);
    }
    bench_must(it->api->release(it->conn, request, &error), &error, "release");
}

static void calls(struct rig *rig, struct loads *it)
{
    static struct parts_of_call parts;
    struct rig_samples times = {.count = 0};
    char extra[256], note[160];
    (void)snprintf(
        extra, sizeof(extra),
        "\"load_policy\": \"load\", \"preset\": \"layered-uniform\", \"prefetch\": {\"predictor\": "
        "\"none\"}, \"select\": {\"selector_bytes\": \"%s\"}, \"host_bytes\": %" PRIu64,
        is_small(it) ? "16MiB" : "256MiB", 2 * it->bytes + HOST_SLACK);
    connector_open(rig, it, "layered", extra);
    calls_prepare(rig, it);
    store_all(it);
    load_all(rig, it, false); /* rows into the tier, then codes */
    load_all(rig, it, false);
    rig_poison(rig, it->pages, it->bytes);
    calls_pass(rig, it, NULL, NULL, true);
    calls_pass(rig, it, NULL, NULL, false);
    it->read_bytes = 0;
    for (uint64_t round = 0; round < rig->sizes.load_rounds; round++)
        calls_pass(rig, it, &times, &parts, false);
    uint64_t read_bytes = it->read_bytes;
    calls_pass(rig, it, NULL, NULL, true);
    it->api->close(it->conn);
    free(it->exact_bits);
    (void)snprintf(note, sizeof(note),
                   "n %" PRIu64 ", queries on the device, %" PRIu64 " of %" PRIu64
                   " rows exact; the disk gave %" PRIu64 " bytes",
                   rig->sizes.query_rows, it->exact_rows, it->shape->rows, read_bytes);
    rig_judge_most(rig, "get_important with all in memory: host time", "us", 200, 120, &times,
                   note);
    parts_tell(rig, &parts, &it->span);
}

/* ---- All ------------------------------------------------------------------------------------ */

static void run(struct rig *rig, void (*part)(struct rig *rig, struct loads *it))
{
    uint32_t memory = rig->memory_count, pins = rig->pin_count;
    struct rig_shape shape = rig->sizes.llama;
    struct loads it = {.shape = &shape, .layers = rig->sizes.layers};
    shape.dtype = SC_KERNELS_BF16;
    scene_open(rig, &shape, false, &it.scene);
    it.bytes = it.layers * it.scene.bytes;
    it.rows = rig_host_memory(rig, it.bytes);
    it.found = rig_host_memory(rig, it.scene.bytes);
    it.inexact = bench_huge_memory(it.scene.bytes, 0);
    it.plain = bench_huge_memory(it.bytes, 0);
    it.pages = rig_device_memory(rig, it.bytes);
    it.tokens = malloc((shape.rows + 1) * sizeof(*it.tokens));
    if (it.tokens == NULL)
        bench_die("no memory for tokens");
    for (uint64_t i = 0; i <= shape.rows; i++)
        it.tokens[i] = (uint32_t)(bench_mix(i) % 128000);
    rig_random(it.rows, it.bytes, 30, true); /* codes are made of numbers */
    part(rig, &it);
    scene_close(rig, &it.scene);
    free(it.tokens);
    free(it.plain);
    free(it.inexact);
    rig_memory_free(rig, memory, pins);
}

void part_calls(struct rig *rig)
{
    run(rig, calls);
}

void part_tier(struct rig *rig)
{
    run(rig, from_tier);
}

void part_drive(struct rig *rig)
{
    run(rig, from_drive);
}
