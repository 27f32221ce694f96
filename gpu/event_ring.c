/* Flights (event_ring.h says what holds). The ring has one writer, who has the slot, and one reader
 * at a time, who has the lock; they meet in departed and landed alone. */
#include "gpu/event_ring.h"

#include "gpu/device.h"
#include "gpu/library.h"
#include "gpu/work.h"

#include <string.h>

static struct sc_gpu_events *flight_at(struct sc_gpu_flights *flights, uint64_t number)
{
    return &flights->ring[number % flights->flight_count];
}

static struct sc_gpu_hold *holds_at(struct sc_gpu_flights *flights, uint64_t number)
{
    return &flights->holds[number % flights->flight_count * flights->hold_max];
}

/* ---- Open, close ----------------------------------------------------------------------------- */

spec_status sc_gpu_flights_open(struct sc_gpu_device *device, struct sc_gpu_flights *flights,
                                uint32_t flight_count, uint32_t hold_max, struct spec_error *reterr)
{
    memset(flights, 0, sizeof(*flights));
    flights->alloc = device->alloc;
    pthread_mutex_init(&flights->lock, NULL); /* with no attributes it cannot fail */
    flights->ring = sc_alloc_array(flights->alloc, flight_count, sizeof(*flights->ring));
    flights->holds =
        sc_alloc_array(flights->alloc, (uint64_t)flight_count * hold_max, sizeof(*flights->holds));
    if (flights->ring == NULL || flights->holds == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "CUDA flights");
    flights->flight_count = flight_count;
    flights->hold_max = hold_max;
    for (uint32_t i = 0; i < flight_count; i++) {
        sc_cu_result code = device->cu->cuEventCreate(
            &flights->ring[i].event, SC_CU_EVENT_DISABLE_TIMING | SC_CU_EVENT_BLOCKING_SYNC);
        if (code != SC_CU_OK) {
            char text[160];
            flights->ring[i].event = NULL;
            return sc_fail(reterr, SPEC_E_UNSUPPORTED, "CUDA device %u: cuEventCreate: %s",
                           device->ordinal,
                           sc_gpu_result_text(device->cu, code, text, sizeof(text)));
        }
    }
    return SPEC_OK;
}

void sc_gpu_flights_close(struct sc_gpu_device *device, struct sc_gpu_flights *flights,
                          bool is_forked)
{
    if (flights->alloc == NULL)
        return;
    if (!is_forked) {
        SC_ASSERT(device->poison, atomic_load(&flights->departed) == atomic_load(&flights->landed));
        for (uint32_t i = 0; i < flights->flight_count; i++)
            if (flights->ring[i].event != NULL)
                (void)device->cu->cuEventDestroy(flights->ring[i].event);
        pthread_mutex_destroy(&flights->lock);
    }
    sc_alloc_free(flights->alloc, flights->holds);
    sc_alloc_free(flights->alloc, flights->ring);
    memset(flights, 0, sizeof(*flights));
}

/* ---- Departing --------------------------------------------------------------------------------
 */

bool sc_gpu_events_begin(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream)
{
    struct sc_gpu_flights *flights = &own_stream->flights;
    SC_ASSERT(device->poison, !flights->is_boarding);
    uint64_t number = atomic_load_explicit(&flights->departed, memory_order_relaxed);
    uint64_t landed = atomic_load_explicit(&flights->landed, memory_order_acquire);
    if (flights->is_boarding || number - landed >= flights->flight_count)
        return false;
    struct sc_gpu_events *flight = flight_at(flights, number);
    flight->hold_count = 0;
    flight->range = (struct sc_gpu_range){0};
    flights->is_boarding = true;
    return true;
}

/* The flight that boards; NULL: none does. */
static struct sc_gpu_events *boarding(struct sc_gpu_flights *flights)
{
    uint64_t number = atomic_load_explicit(&flights->departed, memory_order_relaxed);
    return flights->is_boarding ? flight_at(flights, number) : NULL;
}

bool sc_gpu_events_hold(struct sc_gpu_stream *own_stream, const struct sc_gpu_hold *hold)
{
    struct sc_gpu_flights *flights = &own_stream->flights;
    struct sc_gpu_events *flight = boarding(flights);
    if (flight == NULL || flight->hold_count == flights->hold_max)
        return false;
    uint64_t number = atomic_load_explicit(&flights->departed, memory_order_relaxed);
    if (hold->give != NULL)
        holds_at(flights, number)[flight->hold_count++] = *hold;
    return true;
}

bool sc_gpu_events_hold_range(struct sc_gpu_stream *own_stream, const struct sc_gpu_range *range)
{
    struct sc_gpu_events *flight = boarding(&own_stream->flights);
    if (flight == NULL || flight->range.bytes != 0)
        return false;
    flight->range = *range;
    return true;
}

spec_status sc_gpu_events_submit(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                                 struct spec_error *reterr)
{
    struct sc_gpu_flights *flights = &own_stream->flights;
    struct sc_gpu_events *flight = boarding(flights);
    SC_ASSERT(device->poison, flight != NULL);
    if (flight == NULL)
        return SPEC_OK;
    spec_status status =
        sc_gpu_check(device, device->cu->cuEventRecord(flight->event, own_stream->stream),
                     "cuEventRecord", reterr);
    flight->is_recorded = status == SPEC_OK;
    if (!flight->is_recorded)
        sc_gpu_stream_finish(device, own_stream->stream);
    flights->is_boarding = false;
    atomic_fetch_add_explicit(&flights->departed, 1, memory_order_release);
    return status;
}

/* ---- Landing ----------------------------------------------------------------------------------
 */

static bool has_completed(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                          const struct sc_gpu_events *flight, bool waits)
{
    if (!flight->is_recorded)
        return true;
    sc_cu_result code = waits ? device->cu->cuEventSynchronize(flight->event)
                              : device->cu->cuEventQuery(flight->event);
    if (code == SC_CU_NOT_READY)
        return false;
    if (code != SC_CU_OK) {
        (void)sc_gpu_check(device, code, waits ? "cuEventSynchronize" : "cuEventQuery", NULL);
        sc_gpu_stream_finish(device, own_stream->stream);
    }
    return true;
}

static void give_back(struct sc_gpu_device *device, struct sc_gpu_flights *flights, uint64_t number)
{
    struct sc_gpu_events *flight = flight_at(flights, number);
    const struct sc_gpu_hold *holds = holds_at(flights, number);
    for (uint32_t i = 0; i < flight->hold_count; i++)
        holds[i].give(holds[i].held, holds[i].user);
    sc_gpu_staging_give(&device->stage, &flight->range);
}

/* Under lock, inside an entry. */
static uint64_t land(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                     uint64_t left_max, bool waits)
{
    struct sc_gpu_flights *flights = &own_stream->flights;
    uint64_t first = atomic_load_explicit(&flights->landed, memory_order_relaxed), number = first;
    uint64_t departed = atomic_load_explicit(&flights->departed, memory_order_acquire);
    while (departed - number > left_max) {
        if (!has_completed(device, own_stream, flight_at(flights, number), waits))
            break;
        give_back(device, flights, number);
        atomic_store_explicit(&flights->landed, ++number, memory_order_release);
    }
    return number - first;
}

uint64_t sc_gpu_flights_flying(const struct sc_gpu_stream *own_stream)
{
    uint64_t landed = atomic_load_explicit(&own_stream->flights.landed, memory_order_acquire);
    return atomic_load_explicit(&own_stream->flights.departed, memory_order_acquire) - landed;
}

uint64_t sc_gpu_flights_reap(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream)
{
    if (sc_gpu_flights_flying(own_stream) == 0 || sc_gpu_is_forked(device) ||
        pthread_mutex_trylock(&own_stream->flights.lock) != 0)
        return 0;
    struct sc_gpu_entry entry;
    sc_gpu_enter_anyway(device, &entry);
    uint64_t landed = land(device, own_stream, 0, false);
    sc_gpu_leave(device, &entry);
    pthread_mutex_unlock(&own_stream->flights.lock);
    return landed;
}

uint64_t sc_gpu_flights_wait(struct sc_gpu_device *device, struct sc_gpu_stream *own_stream,
                             uint64_t left_max)
{
    if (sc_gpu_flights_flying(own_stream) <= left_max || sc_gpu_is_forked(device))
        return 0;
    struct sc_gpu_entry entry;
    pthread_mutex_lock(&own_stream->flights.lock);
    sc_gpu_enter_anyway(device, &entry);
    uint64_t landed = land(device, own_stream, left_max, true);
    sc_gpu_leave(device, &entry);
    pthread_mutex_unlock(&own_stream->flights.lock);
    return landed;
}
