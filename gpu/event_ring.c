/* event_ring.h: the ring has one writer, the slot's holder, and one reader at a time, the lock's
 * holder. They share only `departed` and `completed`. */
#include "gpu/event_ring.h"

#include "gpu/device.h"
#include "gpu/library.h"
#include "gpu/work.h"

#include <string.h>

static struct sc_gpu_events *event_at(struct sc_gpu_event_ring *event_ring, uint64_t number)
{
    return &event_ring->ring[number % event_ring->event_count];
}

static struct sc_gpu_hold *holds_at(struct sc_gpu_event_ring *event_ring, uint64_t number)
{
    return &event_ring->holds[number % event_ring->event_count * event_ring->hold_max];
}


spec_status sc_gpu_events_open(struct sc_gpu_device *device, struct sc_gpu_event_ring *event_ring,
                               uint32_t event_count, uint32_t hold_max, struct spec_error *reterr)
{
    memset(event_ring, 0, sizeof(*event_ring));
    event_ring->alloc = device->alloc;
    pthread_mutex_init(&event_ring->lock, NULL); /* cannot fail without attributes */
    event_ring->ring = sc_alloc_array(event_ring->alloc, event_count, sizeof(*event_ring->ring));
    event_ring->holds = sc_alloc_array(event_ring->alloc, (uint64_t)event_count * hold_max,
                                       sizeof(*event_ring->holds));
    if (event_ring->ring == NULL || event_ring->holds == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "CUDA flights");
    event_ring->event_count = event_count;
    event_ring->hold_max = hold_max;
    for (uint32_t i = 0; i < event_count; i++) {
        sc_cu_result code = device->cu->cuEventCreate(
            &event_ring->ring[i].event, SC_CU_EVENT_DISABLE_TIMING | SC_CU_EVENT_BLOCKING_SYNC);
        if (code != SC_CU_OK) {
            char text[160];
            event_ring->ring[i].event = NULL;
            return sc_fail(reterr, SPEC_E_UNSUPPORTED, "CUDA device %u: cuEventCreate: %s",
                           device->ordinal,
                           sc_gpu_result_text(device->cu, code, text, sizeof(text)));
        }
    }
    return SPEC_OK;
}

void sc_gpu_events_close(struct sc_gpu_device *device, struct sc_gpu_event_ring *event_ring,
                         bool is_forked)
{
    if (event_ring->alloc == NULL)
        return;
    if (!is_forked) {
        SC_ASSERT(device->poison,
                  atomic_load(&event_ring->submitted) == atomic_load(&event_ring->completed));
        for (uint32_t i = 0; i < event_ring->event_count; i++)
            if (event_ring->ring[i].event != NULL)
                (void)device->cu->cuEventDestroy(event_ring->ring[i].event);
        pthread_mutex_destroy(&event_ring->lock);
    }
    sc_alloc_free(event_ring->alloc, event_ring->holds);
    sc_alloc_free(event_ring->alloc, event_ring->ring);
    memset(event_ring, 0, sizeof(*event_ring));
}


bool sc_gpu_events_begin(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream)
{
    struct sc_gpu_event_ring *event_ring = &own_stream->event_ring;
    SC_ASSERT(device->poison, !event_ring->is_begun);
    uint64_t number = atomic_load_explicit(&event_ring->submitted, memory_order_relaxed);
    uint64_t completed = atomic_load_explicit(&event_ring->completed, memory_order_acquire);
    if (event_ring->is_begun || number - completed >= event_ring->event_count)
        return false;
    struct sc_gpu_events *event_slot = event_at(event_ring, number);
    event_slot->hold_count = 0;
    event_slot->range = (struct sc_gpu_range){0};
    event_ring->is_begun = true;
    return true;
}

static struct sc_gpu_events *begun_event(struct sc_gpu_event_ring *event_ring)
{
    uint64_t number = atomic_load_explicit(&event_ring->submitted, memory_order_relaxed);
    return event_ring->is_begun ? event_at(event_ring, number) : NULL;
}

bool sc_gpu_events_hold(struct sc_gpu_stream *own_stream, const struct sc_gpu_hold *hold)
{
    struct sc_gpu_event_ring *event_ring = &own_stream->event_ring;
    struct sc_gpu_events *event_slot = begun_event(event_ring);
    if (event_slot == NULL || event_slot->hold_count == event_ring->hold_max)
        return false;
    uint64_t number = atomic_load_explicit(&event_ring->submitted, memory_order_relaxed);
    if (hold->give != NULL)
        holds_at(event_ring, number)[event_slot->hold_count++] = *hold;
    return true;
}

bool sc_gpu_events_hold_range(struct sc_gpu_stream *own_stream, const struct sc_gpu_range *range)
{
    struct sc_gpu_events *event_slot = begun_event(&own_stream->event_ring);
    if (event_slot == NULL || event_slot->range.bytes != 0)
        return false;
    event_slot->range = *range;
    return true;
}

spec_status sc_gpu_events_submit(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                                 struct spec_error *reterr)
{
    struct sc_gpu_event_ring *event_ring = &own_stream->event_ring;
    struct sc_gpu_events *event_slot = begun_event(event_ring);
    SC_ASSERT(device->poison, event_slot != NULL);
    if (event_slot == NULL)
        return SPEC_OK;
    spec_status status =
        sc_gpu_check(device, device->cu->cuEventRecord(event_slot->event, own_stream->stream),
                     "cuEventRecord", reterr);
    event_slot->is_recorded = status == SPEC_OK;
    if (!event_slot->is_recorded)
        sc_gpu_stream_finish(device, own_stream->stream);
    event_ring->is_begun = false;
    atomic_fetch_add_explicit(&event_ring->submitted, 1, memory_order_release);
    return status;
}


static bool has_completed(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                          const struct sc_gpu_events *event_slot, bool waits)
{
    if (!event_slot->is_recorded)
        return true;
    sc_cu_result code = waits ? device->cu->cuEventSynchronize(event_slot->event)
                              : device->cu->cuEventQuery(event_slot->event);
    if (code == SC_CU_NOT_READY)
        return false;
    if (code != SC_CU_OK) {
        (void)sc_gpu_check(device, code, waits ? "cuEventSynchronize" : "cuEventQuery", NULL);
        sc_gpu_stream_finish(device, own_stream->stream);
    }
    return true;
}

static void give_back(struct sc_gpu_device *device, struct sc_gpu_event_ring *event_ring,
                      uint64_t number)
{
    struct sc_gpu_events *event_slot = event_at(event_ring, number);
    const struct sc_gpu_hold *holds = holds_at(event_ring, number);
    for (uint32_t i = 0; i < event_slot->hold_count; i++)
        holds[i].give(holds[i].held, holds[i].user);
    sc_gpu_staging_give(&device->staging, &event_slot->range);
}

/* Call under lock, inside a device entry. */
static uint64_t events_complete(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                                uint64_t left_max, bool waits)
{
    struct sc_gpu_event_ring *event_ring = &own_stream->event_ring;
    uint64_t first = atomic_load_explicit(&event_ring->completed, memory_order_relaxed),
             number = first;
    uint64_t submitted = atomic_load_explicit(&event_ring->submitted, memory_order_acquire);
    while (submitted - number > left_max) {
        if (!has_completed(device, own_stream, event_at(event_ring, number), waits))
            break;
        give_back(device, event_ring, number);
        atomic_store_explicit(&event_ring->completed, ++number, memory_order_release);
    }
    return number - first;
}

uint64_t sc_gpu_events_pending(const struct sc_gpu_stream *own_stream)
{
    uint64_t completed =
        atomic_load_explicit(&own_stream->event_ring.completed, memory_order_acquire);
    return atomic_load_explicit(&own_stream->event_ring.submitted, memory_order_acquire) -
           completed;
}

uint64_t sc_gpu_events_reap(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream)
{
    if (sc_gpu_events_pending(own_stream) == 0 || sc_gpu_is_forked(device) ||
        pthread_mutex_trylock(&own_stream->event_ring.lock) != 0)
        return 0;
    struct sc_gpu_entry entry;
    sc_gpu_enter_anyway(device, &entry);
    uint64_t completed = events_complete(device, own_stream, 0, false);
    sc_gpu_leave(device, &entry);
    pthread_mutex_unlock(&own_stream->event_ring.lock);
    return completed;
}

uint64_t sc_gpu_events_wait(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                            uint64_t left_max)
{
    if (sc_gpu_events_pending(own_stream) <= left_max || sc_gpu_is_forked(device))
        return 0;
    struct sc_gpu_entry entry;
    pthread_mutex_lock(&own_stream->event_ring.lock);
    sc_gpu_enter_anyway(device, &entry);
    uint64_t completed = events_complete(device, own_stream, left_max, true);
    sc_gpu_leave(device, &entry);
    pthread_mutex_unlock(&own_stream->event_ring.lock);
    return completed;
}
