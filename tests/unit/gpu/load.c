/* The load in small (load.h). */
#include "tests/unit/gpu/load.h"

/* ---- The host -------------------------------------------------------------------------------- */

static uint8_t *host_memory(struct load_host *host, uint64_t bytes)
{
    uint8_t *memory = sc_alloc_huge(&host->attached.alloc, bytes);
    assert_non_null(memory);
    assert_int_equal(host->attached.device->cu->cuMemHostRegister(
                         memory, bytes, SC_CU_HOSTREGISTER_PORTABLE | SC_CU_HOSTREGISTER_DEVICEMAP),
                     0);
    return memory;
}

void load_host_open(struct load_host *host, uint64_t seed)
{
    struct sc_gpu_entry entry;
    memset(host, 0, sizeof(*host));
    attached_open(&host->attached);
    const struct sc_cu *cu = host->attached.device->cu;
    assert_int_equal(sc_gpu_enter(host->attached.device, &entry, NULL), SPEC_OK);
    assert_int_equal(cu->cuStreamCreate(&host->stream, SC_CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(cu->cuMemAlloc(&host->destination, LOAD_BYTES), 0);
    host->before = host_memory(host, LOAD_BYTES);
    host->after = host_memory(host, LOAD_BYTES);
    sc_gpu_leave(host->attached.device, &entry);
    host->rows = sc_alloc(&host->attached.alloc, LOAD_BYTES);
    assert_non_null(host->rows);
    memset(host->before, 0x11, LOAD_BYTES);
    for (uint64_t i = 0; i < LOAD_BYTES; i++)
        host->rows[i] = (uint8_t)((i * 2654435761u >> 13) ^ seed);
}

void load_host_close(struct load_host *host)
{
    struct sc_gpu_entry entry;
    const struct sc_cu *cu = host->attached.device->cu;
    assert_int_equal(sc_gpu_enter(host->attached.device, &entry, NULL), SPEC_OK);
    assert_int_equal(cu->cuStreamSynchronize(host->stream), 0);
    assert_int_equal(cu->cuMemHostUnregister(host->before), 0);
    assert_int_equal(cu->cuMemHostUnregister(host->after), 0);
    assert_int_equal(cu->cuMemFree(host->destination), 0);
    assert_int_equal(cu->cuStreamDestroy(host->stream), 0);
    sc_gpu_leave(host->attached.device, &entry);
    sc_alloc_free(&host->attached.alloc, host->before);
    sc_alloc_free(&host->attached.alloc, host->after);
    sc_alloc_free(&host->attached.alloc, host->rows);
    sc_gpu_device_detach(host->attached.device);
    assert_int_equal(atomic_load(&host->attached.alloc.live_blocks), 0);
}

void load_host_work_before(struct load_host *host)
{
    struct sc_gpu_entry entry;
    const struct sc_cu *cu = host->attached.device->cu;
    assert_int_equal(sc_gpu_enter(host->attached.device, &entry, NULL), SPEC_OK);
    assert_int_equal(
        cu->cuMemcpyHtoDAsync(host->destination, host->before, LOAD_BYTES, host->stream), 0);
    sc_gpu_leave(host->attached.device, &entry);
}

void load_host_check(struct load_host *host)
{
    struct sc_gpu_entry entry;
    const struct sc_cu *cu = host->attached.device->cu;
    assert_int_equal(sc_gpu_enter(host->attached.device, &entry, NULL), SPEC_OK);
    assert_int_equal(
        cu->cuMemcpyDtoHAsync(host->after, host->destination, LOAD_BYTES, host->stream), 0);
    assert_int_equal(cu->cuStreamSynchronize(host->stream), 0);
    sc_gpu_leave(host->attached.device, &entry);
    assert_memory_equal(host->after, host->rows, LOAD_BYTES);
}

/* ---- Frames ---------------------------------------------------------------------------------- */

static void frame_give(void *held, void *user)
{
    struct load_frames *frames = user;
    uint8_t *frame = held;
    uint32_t i = (uint32_t)((uint64_t)(frame - frames->memory) / LOAD_FRAME_BYTES);
    memset(frame, 0xee, LOAD_FRAME_BYTES); /* its next owner is quick */
    atomic_fetch_add(&frames->given, 1);
    if (atomic_exchange(&frames->used[i], 0) != 1)
        atomic_fetch_add(&frames->twice, 1);
}

/* One that is free, if need be after the oldest flight; holds no more than the flights do. */
static uint8_t *frame_take(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                           struct load_frames *frames)
{
    for (;;) {
        (void)sc_gpu_events_reap(device, &slot->copies);
        (void)sc_gpu_events_reap(device, &slot->kernels);
        for (uint32_t i = 0; i < LOAD_FRAMES; i++) {
            uint32_t free = 0;
            if (atomic_compare_exchange_strong(&frames->used[i], &free, 1)) {
                frames->taken++;
                return frames->memory + (uint64_t)i * LOAD_FRAME_BYTES;
            }
        }
        struct sc_gpu_stream *lane =
            sc_gpu_events_pending(&slot->copies) > 0 ? &slot->copies : &slot->kernels;
        uint64_t flying = sc_gpu_events_pending(lane);
        (void)sc_gpu_events_wait(device, lane, flying > 0 ? flying - 1 : 0);
    }
}

spec_status load_frames_open(struct sc_gpu_device *device, struct load_frames *frames)
{
    memset(frames, 0, sizeof(*frames));
    uint64_t bytes = LOAD_FRAMES * LOAD_FRAME_BYTES;
    frames->memory = sc_alloc_huge(device->alloc, bytes);
    assert_non_null(frames->memory);
    return sc_gpu_pin(device, frames->memory, bytes, &frames->pin, NULL);
}

void load_frames_close(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                       struct load_frames *frames)
{
    (void)sc_gpu_events_wait(device, &slot->copies, 0);
    (void)sc_gpu_events_wait(device, &slot->kernels, 0);
    assert_int_equal(atomic_load(&frames->twice), 0);
    assert_int_equal(atomic_load(&frames->given), frames->taken);
    for (uint32_t i = 0; i < LOAD_FRAMES; i++)
        assert_int_equal(atomic_load(&frames->used[i]), 0);
    sc_gpu_unpin(&frames->pin);
    sc_alloc_free(device->alloc, frames->memory);
}

/* ---- The load -------------------------------------------------------------------------------- */

struct load {
    struct sc_gpu_device *device;
    struct sc_gpu_slot *slot;
    struct load_frames *frames;
    sc_cu_ptr destination;
};

static void flight_begin(const struct load *load, struct sc_gpu_stream *lane)
{
    while (!sc_gpu_events_begin(load->device, lane))
        (void)sc_gpu_events_wait(load->device, lane, lane->event_ring.event_count - 1);
}

static void hold_frame(const struct load *load, struct sc_gpu_stream *lane, uint8_t *frame)
{
    assert_true(sc_gpu_events_hold(
        lane, &(struct sc_gpu_hold){.give = frame_give, .held = frame, .user = load->frames}));
}

static spec_status place(const struct load *load, sc_cu_ptr to, sc_cu_ptr from)
{
    uint64_t bytes = LOAD_FRAME_BYTES;
    void *arguments[] = {&to, &from, &bytes};
    return sc_gpu_launch(load->device, load->slot->kernels.stream, COPY_KERNEL,
                         &(struct sc_gpu_grid){.blocks_x = 2, .threads = 64}, arguments, NULL);
}

/* frame -> copy engine -> staging -> kernel -> destination */
static spec_status by_staging(const struct load *load, uint8_t *frame, sc_cu_ptr to)
{
    struct sc_gpu_stream *copies = &load->slot->copies, *kernels = &load->slot->kernels;
    struct sc_gpu_range range;
    while (!sc_gpu_staging_take(&load->device->staging, LOAD_FRAME_BYTES, &range)) {
        (void)sc_gpu_events_reap(load->device, kernels);
        uint64_t flying = sc_gpu_events_pending(kernels);
        (void)sc_gpu_events_wait(load->device, kernels, flying > 0 ? flying - 1 : 0);
    }
    flight_begin(load, copies);
    hold_frame(load, copies, frame);
    spec_status status =
        sc_gpu_copy_in(load->device, copies, range.at, frame, LOAD_FRAME_BYTES, NULL);
    spec_status submitted = sc_gpu_events_submit(load->device, copies, NULL);
    flight_begin(load, kernels);
    assert_true(sc_gpu_events_hold_range(kernels, &range));
    if (status == SPEC_OK)
        status = submitted;
    if (status == SPEC_OK)
        status = sc_gpu_follow(load->device, kernels, copies, NULL);
    if (status == SPEC_OK)
        status = place(load, to, range.at);
    submitted = sc_gpu_events_submit(load->device, kernels, NULL);
    return status == SPEC_OK ? submitted : status;
}

/* frame -> kernel, over the bus -> destination */
static spec_status over_the_bus(const struct load *load, uint8_t *frame, sc_cu_ptr to)
{
    struct sc_gpu_stream *kernels = &load->slot->kernels;
    flight_begin(load, kernels);
    hold_frame(load, kernels, frame);
    spec_status status = place(load, to, sc_gpu_pin_address(&load->frames->pin, frame));
    spec_status submitted = sc_gpu_events_submit(load->device, kernels, NULL);
    return status == SPEC_OK ? submitted : status;
}

/* frame -> copy engine, rows of half a KiB -> destination */
static spec_status straight(const struct load *load, uint8_t *frame, sc_cu_ptr to)
{
    struct sc_gpu_stream *copies = &load->slot->copies;
    flight_begin(load, copies);
    hold_frame(load, copies, frame);
    spec_status status = sc_gpu_copy_rows_in(load->device, copies, to, 512, frame, 512, 512,
                                             LOAD_FRAME_BYTES / 512, NULL);
    spec_status submitted = sc_gpu_events_submit(load->device, copies, NULL);
    return status == SPEC_OK ? submitted : status;
}

static spec_status load_inside(const struct load *load, const uint8_t *rows, sc_cu_stream stream)
{
    spec_status status =
        sc_gpu_begin(load->device, load->slot, stream, SC_GPU_COPIES | SC_GPU_KERNELS, NULL);
    for (uint32_t i = 0; i < LOAD_BATCHES && status == SPEC_OK; i++) {
        uint64_t at = (uint64_t)i * LOAD_FRAME_BYTES;
        uint8_t *frame = frame_take(load->device, load->slot, load->frames);
        memcpy(frame, rows + at, LOAD_FRAME_BYTES);
        status = i % 5 == 4   ? straight(load, frame, load->destination + at)
                 : i % 3 == 2 ? over_the_bus(load, frame, load->destination + at)
                              : by_staging(load, frame, load->destination + at);
    }
    if (status == SPEC_OK) /* what copies wrote into the destination */
        status = sc_gpu_follow(load->device, &load->slot->kernels, &load->slot->copies, NULL);
    if (status == SPEC_OK)
        status = sc_gpu_end(load->device, load->slot, NULL);
    if (status == SPEC_OK)
        status = sc_gpu_end_wait(load->device, load->slot, stream, NULL);
    return status;
}

spec_status load_run(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                     struct load_frames *frames, const uint8_t *rows, sc_cu_ptr destination,
                     sc_cu_stream stream)
{
    const struct load load = {device, slot, frames, destination};
    struct sc_gpu_entry entry;
    spec_status status = sc_gpu_enter(device, &entry, NULL);
    if (status != SPEC_OK)
        return status;
    status = load_inside(&load, rows, stream);
    sc_gpu_leave(device, &entry);
    return status;
}

spec_status load_whole(struct load_host *host, bool reads_first)
{
    struct attached it;
    struct load_frames frames;
    attached_init(&it);
    it.params.staging_bytes = 3 * LOAD_FRAME_BYTES;
    spec_status status = sc_gpu_device_attach(&it.params, &it.device, NULL);
    if (status == SPEC_OK) {
        struct sc_gpu_slot *slot = &it.device->slots[0];
        status = load_frames_open(it.device, &frames);
        sc_alloc_seal(&it.alloc);
        if (status == SPEC_OK)
            status =
                load_run(it.device, slot, &frames, host->rows, host->destination, host->stream);
        if (status == SPEC_OK && reads_first)
            load_host_check(host);
        load_frames_close(it.device, slot, &frames);
        sc_alloc_unseal(&it.alloc);
        assert_int_equal(atomic_load(&it.alloc.sealed_refusals), 0);
        assert_int_equal(sc_gpu_staging_used(&it.device->staging), 0);
        sc_gpu_device_detach(it.device);
    }
    assert_int_equal(atomic_load(&it.alloc.live_blocks), 0);
    assert_int_equal(atomic_load(&it.poison.broken), 0);
    assert_int_equal(fake_depth(), 0);
    assert_int_equal(fake_mode(), 0);
    return status;
}
