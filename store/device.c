/* The device model: what a byte and an operation cost, for the planner that reads through gaps.
 *
 *   OFF -> WAITING -> BYTES -> OPS -> STORING -> OFF (measured)
 *             ^          \______|  other traffic came: the samples mean nothing, later again
 *             +-----------------+
 *
 * BYTES reads BYTES_OPS operations of op_bytes one behind the other, OPS reads OPS_COUNT pages in
 * random places, both of live extents, so that the device has really to read, with as much in
 * flight as the back end gives the lowest lane. rate = bytes / time; op_ns = time / pages - what a
 * page's bytes take. In all 24 MiB, once in a store's life: the result lies in a file beside the
 * log, one frame of store/record.h, and counts as long as that is there and whole.
 *
 * Holds: frames and operations of the lowest lane only; nothing while a store has fewer than
 * ROWS_BYTES_MIN, or anybody else has a frame; close waits for what flies.
 * Does not: run in a reader or peer (they read the file), measure writes.
 * Threads: step is the executor's; done any of the back end's; sc_store_device any.
 * Tests: tests/unit/store/test_device.c */
#include "store/device.h"
#include "store/where.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEVICE_NAME    "device"
#define GUESS_BYTES_S  2500000000ull
#define GUESS_OP_NS    5000u
#define GAP_BYTES_MAX  (64ull << 10) /* more is another operation whatever the model says */
#define ROWS_BYTES_MIN (64ull << 20)
#define FIRST_NS       1000000000ull /* after a commit: its host may store and load on */
#define AGAIN_NS       5000000000ull
#define TRIES_MAX      12u /* then not before the next commit */
#define FILE_BYTES_MAX 4096u
#define RATE_MIN       1000000ull /* of a file that is believed: 1 MB/s .. 1 TB/s, 1 ns .. 1 s */
#define RATE_MAX       1000000000000ull
#define OP_NS_MAX      1000000000ull

void sc_store_device(const struct sc_store *store, struct sc_store_device *ret_device)
{
    *ret_device = (struct sc_store_device){.bytes_per_s = GUESS_BYTES_S, .op_ns = GUESS_OP_NS};
    uint64_t bytes_per_s = atomic_load(&store->device_bytes_per_s); /* set after op_ns */
    if (bytes_per_s == 0)
        return;
    ret_device->bytes_per_s = bytes_per_s;
    ret_device->op_ns = atomic_load(&store->device_op_ns);
    ret_device->is_measured = true;
}

uint64_t sc_store_device_gap(const struct sc_store_device *device)
{
    double bytes = (double)device->op_ns * (double)device->bytes_per_s / 1e9;
    return bytes < (double)GAP_BYTES_MAX ? (uint64_t)bytes : GAP_BYTES_MAX;
}

/* ---- The file ------------------------------------------------------------------------------- */

static void device_path(const struct sc_store *store, char *path, uint64_t bytes)
{
    (void)snprintf(path, bytes, "%s/" DEVICE_NAME, store->dir);
}

static void device_set(struct sc_store *store, uint64_t bytes_per_s, uint64_t op_ns)
{
    atomic_store(&store->device_op_ns, op_ns);
    atomic_store(&store->device_bytes_per_s, bytes_per_s);
}

spec_status sc_store_device_read(struct sc_store *store, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_io_file *file;
    uint8_t bytes[FILE_BYTES_MAX];
    uint64_t count = 0, frame_bytes, chain = 0;
    struct sc_store_record_device record;
    device_path(store, path, sizeof(path));
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_io_file_open(store->io, path, 0, &file, &error);
    if (status != SPEC_OK && error.sys_errno == EACCES) /* somebody else's */
        return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
    if (status != SPEC_OK)
        return SPEC_OK; /* not measured yet */
    status = sc_io_file_size(store->io, file, &count, NULL);
    if (status == SPEC_OK && count > 0 && count <= sizeof(bytes))
        status = sc_io_file_pread(store->io, file, bytes, count, 0, NULL);
    sc_io_file_close(store->io, file);
    if (status == SPEC_OK && count <= sizeof(bytes) &&
        sc_store_frame_check(bytes, count, 0, &chain, &frame_bytes) == SC_STORE_FRAME_OK &&
        sc_store_record_get_device(bytes + SC_STORE_FRAME_BYTES, frame_bytes - SC_STORE_FRAME_BYTES,
                                   &record) &&
        record.bytes_per_s >= RATE_MIN && record.bytes_per_s <= RATE_MAX && record.op_ns >= 1 &&
        record.op_ns <= OP_NS_MAX)
        device_set(store, record.bytes_per_s, record.op_ns);
    else
        SC_LOG(store->params.log, 2, "%s is damaged: the device will be measured again", path);
    return SPEC_OK;
}

static void device_write(struct sc_store *store)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_io_file *file;
    uint8_t bytes[FILE_BYTES_MAX];
    struct sc_store_writer writer = {bytes, 0, sizeof(bytes), false};
    struct sc_store_record_device record = {.bytes_per_s = atomic_load(&store->device_bytes_per_s),
                                            .op_ns = atomic_load(&store->device_op_ns),
                                            .measured_ns = sc_exec_wall_ns(store->params.exec)};
    uint64_t chain = 0, frame = sc_store_frame_begin(&writer);
    sc_store_record_put_device(&writer, &record);
    sc_store_frame_end(&writer, frame, 0, &chain);
    device_path(store, path, sizeof(path));
    spec_status status =
        sc_io_file_open(store->io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, &error);
    if (status == SPEC_OK) {
        status = sc_io_file_truncate(store->io, file, 0, &error);
        if (status == SPEC_OK) /* not synced: when it is lost, it is measured again */
            status = sc_io_file_pwrite(store->io, file, bytes, writer.used, 0, &error);
        sc_io_file_close(store->io, file);
    }
    if (status != SPEC_OK)
        SC_LOG(store->params.log, 2, "the device model is not kept: %s", error.text);
}

/* ---- Measuring ------------------------------------------------------------------------------ */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Parts of live extents, from all over the table; false: they are too few for the device's own
 * cache not to matter. */
static bool spans_find(struct sc_store *store, struct sc_store_probe *probe)
{
    uint64_t bytes = 0;
    probe->span_count = 0;
    pthread_mutex_lock(&store->log.lock);
    uint64_t next = store->table.extent_next;
    uint64_t step = next / SC_STORE_PROBE_SPANS + 1;
    for (uint64_t id = 1; id < next && probe->span_count < SC_STORE_PROBE_SPANS; id += step) {
        const struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
        if (extent == NULL || extent->live_count == 0 || extent->part_count == 0)
            continue;
        const struct sc_store_part *part = &extent->parts[id % extent->part_count];
        uint64_t pages = sc_store_part_pages(part, extent->stride);
        probe->spans[probe->span_count].segment = part->segment;
        probe->spans[probe->span_count].offset = part->offset;
        probe->spans[probe->span_count++].pages = pages;
        bytes += pages * SC_IO_PAGE_BYTES;
    }
    pthread_mutex_unlock(&store->log.lock);
    return bytes >= ROWS_BYTES_MIN / 4;
}

static bool frames_get(struct sc_store *store, struct sc_store_probe *probe)
{
    while (probe->frame_count < SC_STORE_PROBE_FRAMES) {
        uint8_t *frame = sc_frames_take(store->frames, SC_LANE_BACKGROUND);
        if (frame == NULL)
            return false;
        probe->frames[probe->frame_count++] = frame;
    }
    return true;
}

static void frames_put(struct sc_store *store, struct sc_store_probe *probe)
{
    while (probe->frame_count > 0)
        sc_frames_put(store->frames, probe->frames[--probe->frame_count]);
}

/* Where the i-th operation of the phase reads. */
static void op_place(const struct sc_store *store, struct sc_store_probe *probe, uint64_t i,
                     struct sc_io_op *op)
{
    bool is_ops = probe->state == SC_STORE_PROBE_OPS;
    uint64_t want = is_ops ? 1 : store->limits.op_bytes / SC_IO_PAGE_BYTES;
    uint64_t at = is_ops ? mixed(probe->seed + i + 1) : mixed(probe->seed);
    uint64_t span = at % probe->span_count;
    for (uint64_t n = 0; probe->spans[span].pages < want && n < probe->span_count; n++)
        span = (span + 1) % probe->span_count;
    uint64_t pages = probe->spans[span].pages;
    uint64_t room = pages >= want ? pages - want + 1 : 1;
    uint64_t page = is_ops ? (at >> 32) % room : (at >> 32) % room + i * want;
    op->file = store->disk.segments[probe->spans[span].segment].file;
    op->bytes = (want < pages ? want : pages) * SC_IO_PAGE_BYTES;
    op->offset = probe->spans[span].offset + page % room * SC_IO_PAGE_BYTES;
}

static void on_done(struct sc_io_op *op)
{
    struct sc_store *store = op->user;
    struct sc_store_probe *probe = store->probe;
    if (op->status != SPEC_OK)
        atomic_store(&probe->failed, true);
    uint64_t i = atomic_fetch_add(&probe->issued, 1);
    if (i < probe->op_count && !atomic_load(&probe->failed)) {
        op_place(store, probe, i, op);
        sc_io_submit(store->io, &op, 1);
    } else if (atomic_fetch_sub(&probe->flying, 1) == 1) {
        probe->end_ns = sc_exec_now_ns(store->params.exec);
        sc_exec_post(store->params.exec, &probe->task, SC_LANE_BACKGROUND);
    }
}

/* Starts a phase: as many operations as its depth; each that ends issues the next. */
static void phase_begin(struct sc_store *store, enum sc_store_probe_state state)
{
    struct sc_store_probe *probe = store->probe;
    struct sc_io_op *ops[SC_STORE_PROBE_DEPTH];
    bool is_ops = state == SC_STORE_PROBE_OPS;
    uint64_t depth = is_ops ? SC_STORE_PROBE_DEPTH : SC_STORE_PROBE_FRAMES;
    uint64_t bytes = is_ops ? SC_IO_PAGE_BYTES : store->limits.op_bytes;
    uint64_t each =
        probe->frame_count * (store->limits.op_bytes / bytes); /* buffers that there are */
    depth = depth < each ? depth : each;
    probe->state = state;
    probe->op_count =
        is_ops ? SC_STORE_PROBE_OPS_COUNT
               : (SC_STORE_PROBE_BYTES + store->limits.op_bytes - 1) / store->limits.op_bytes;
    atomic_store(&probe->failed, false);
    atomic_store(&probe->flying, (uint32_t)depth);
    atomic_store(&probe->issued, depth);
    for (uint64_t i = 0; i < depth; i++) {
        probe->ops[i] = (struct sc_io_op){.buffer = probe->frames[i % probe->frame_count] +
                                                    i / probe->frame_count * bytes,
                                          .kind = SC_IO_READ,
                                          .lane = SC_LANE_BACKGROUND,
                                          .done = on_done,
                                          .user = store};
        op_place(store, probe, i, &probe->ops[i]);
        ops[i] = &probe->ops[i];
    }
    probe->start_ns = sc_exec_now_ns(store->params.exec);
    sc_io_submit(store->io, ops, depth);
}

/* What others read and wrote since open. */
static uint64_t traffic_of(const struct sc_store *store)
{
    return sc_store_counted(&store->counts.read_ops) + sc_store_counted(&store->counts.write_ops);
}

/* Space lock held by nobody. The measurement is over, or comes later. */
static void probe_end(struct sc_store *store, bool is_done)
{
    struct sc_store_probe *probe = store->probe;
    frames_put(store, probe);
    pthread_mutex_lock(&store->disk.lock);
    bool again = !is_done && !probe->is_closing && ++probe->tries < TRIES_MAX;
    probe->state = again ? SC_STORE_PROBE_WAITING : SC_STORE_PROBE_OFF;
    if (again)
        sc_exec_post_at(store->params.exec, &probe->task, SC_LANE_BACKGROUND,
                        sc_exec_now_ns(store->params.exec) + AGAIN_NS);
    pthread_mutex_unlock(&store->disk.lock);
    if (!again)
        sc_store_busy_end(store);
}

static void probe_begin(struct sc_store *store)
{
    struct sc_store_probe *probe = store->probe;
    probe->traffic = traffic_of(store);
    probe->seed = sc_exec_now_ns(store->params.exec);
    if (sc_frames_used(store->frames) > 0 || !spans_find(store, probe) || !frames_get(store, probe))
        probe_end(store, false);
    else
        phase_begin(store, SC_STORE_PROBE_READ);
}

static void probe_step(struct sc_task *task)
{
    struct sc_store_probe *probe =
        (struct sc_store_probe *)((char *)task - offsetof(struct sc_store_probe, task));
    struct sc_store *store = probe->store;
    if (probe->state == SC_STORE_PROBE_WAITING) {
        probe_begin(store);
        return;
    }
    uint64_t ns = probe->end_ns - probe->start_ns;
    bool is_alone =
        traffic_of(store) == probe->traffic && sc_frames_used(store->frames) == probe->frame_count;
    if (atomic_load(&probe->failed) || !is_alone || ns == 0) {
        probe_end(store, false);
    } else if (probe->state == SC_STORE_PROBE_READ) {
        uint64_t bytes = probe->op_count * probe->ops[0].bytes;
        probe->bytes_per_s = (uint64_t)((double)bytes * 1e9 / (double)ns);
        phase_begin(store, SC_STORE_PROBE_OPS);
    } else {
        double page_ns = (double)ns / (double)probe->op_count;
        double op_ns = page_ns - (double)SC_IO_PAGE_BYTES * 1e9 / (double)probe->bytes_per_s;
        device_set(store, probe->bytes_per_s, op_ns < 1 ? 1 : (uint64_t)op_ns);
        device_write(store);
        probe_end(store, true);
    }
}

/* store->extent_stored. */
static void device_want(struct sc_store *store)
{
    struct sc_store_probe *probe = store->probe;
    if (atomic_load(&store->device_bytes_per_s) != 0)
        return;
    pthread_mutex_lock(&store->disk.lock);
    if (probe->state == SC_STORE_PROBE_OFF && !probe->is_closing &&
        store->disk.extent_bytes >= ROWS_BYTES_MIN) {
        probe->state = SC_STORE_PROBE_WAITING;
        probe->tries = 0;
        atomic_fetch_add(&store->busy, 1);
        sc_exec_post_at(store->params.exec, &probe->task, SC_LANE_BACKGROUND,
                        sc_exec_now_ns(store->params.exec) + FIRST_NS);
    }
    pthread_mutex_unlock(&store->disk.lock);
}

spec_status sc_store_device_open(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = sc_store_device_read(store, reterr);
    if (status != SPEC_OK)
        return status;
    store->probe = sc_alloc_zero(store->params.alloc, sizeof(*store->probe));
    if (store->probe == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "the device's measurement");
    store->probe->store = store;
    store->probe->task.step = probe_step;
    store->extent_stored = device_want;
    return SPEC_OK;
}

void sc_store_device_stop(struct sc_store *store)
{
    struct sc_store_probe *probe = store->probe;
    if (probe == NULL)
        return;
    pthread_mutex_lock(&store->disk.lock);
    probe->is_closing = true;
    bool was_waiting =
        probe->state == SC_STORE_PROBE_WAITING && sc_exec_cancel(store->params.exec, &probe->task);
    if (was_waiting)
        probe->state = SC_STORE_PROBE_OFF;
    pthread_mutex_unlock(&store->disk.lock);
    if (was_waiting)
        sc_store_busy_end(store);
}

void sc_store_device_close(struct sc_store *store)
{
    sc_alloc_free(store->params.alloc, store->probe);
    store->probe = NULL;
}
