/* A connector that stands before the real one, and turns each host destination of a load, its
 * queries, its new keys, hints and the sources of stores into memory of a CUDA device, and back:
 * what judges loads to host memory and stores from it judges those of a device (stores: stores.c).
 *
 *   host    [ K .. V ]                                               [ K .. V ] what differs
 *              | copy                                                     ^
 *   up      [guard|K .. V|guard]                     down   [guard|K .. V|guard]
 *              | our stream                                               ^ our stream
 *   device  [guard|K .. V|guard]  <- the real connector's load, on our stream
 *
 * The real one is SC_THROUGH_CONNECTOR, or libspec_connector.so beside us or in ../lib. All else
 * that an item names (slots, positions, exact_bits ..) is the host's own.
 *
 * Holds: the device has K and V as the host has them, overlaps and alignment to 256 bytes too, and
 * before the load, in stream order, the host's bytes; nothing waits between that, the load and the
 * copy back. A destination that comes again has the same device memory until its request ends, so
 * that it can be refined. Only bytes that differ go to the host: others may be somebody else's by
 * then. What is asked with goes up in the same order, and goes when the call has told its results;
 * nobody writes there. Guards are looked at, and that current context and capture mode are as they
 * were; what is wrong ends the process with a line on stderr.
 * Does not: turn a description that it cannot follow (the real one says what is wrong with it), or
 * one in a child that was forked after the driver had been loaded: those go on as they are. Where
 * there is no driver the process ends at its first load or store, lest the host be judged for a
 * device.
 * Threads: any. One lock a connector, not held inside calls of the real one.
 * Tests: tests/cuda (conformance_device), where spec-conformance judges it. */
#include "conformance/device/span.h"
#include "conformance/device/stores.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/spec_load.h"

#define ITEMS_MAX 256u
#define NOT_TOLD  INT32_C(0x7d5a5a5a) /* a status that no call gives */

/* ---- The real one --------------------------------------------------------------------------- */

static struct {
    pthread_once_t once;
    struct spec_plugin plugin;
} real = {.once = PTHREAD_ONCE_INIT};

static bool real_try(const char *path)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (access(path, R_OK) != 0)
        return false;
    if (spec_load(path, &real.plugin, &error) == SPEC_OK)
        return true;
    fprintf(stderr, "through_device: %s\n", error.text);
    return false;
}

static void real_open(void)
{
    static const char *const BESIDE[] = {"/libspec_connector.so", "/../lib/libspec_connector.so"};
    const char *named = getenv("SC_THROUGH_CONNECTOR");
    char path[4096];
    Dl_info self;
    if (named != NULL) {
        (void)real_try(named);
        return;
    }
    if (dladdr(BESIDE, &self) == 0)
        return;
    const char *slash = strrchr(self.dli_fname, '/');
    int folder = slash != NULL ? (int)(slash - self.dli_fname) : 1;
    for (size_t i = 0; i < sizeof(BESIDE) / sizeof(BESIDE[0]); i++) {
        (void)snprintf(path, sizeof(path), "%.*s%s", folder, slash != NULL ? self.dli_fname : ".",
                       BESIDE[i]);
        if (real_try(path))
            return;
    }
    fprintf(stderr, "through_device: no libspec_connector.so; SC_THROUGH_CONNECTOR names one\n");
}

__attribute__((destructor)) static void real_close(void)
{
    spec_unload(&real.plugin);
}

/* ---- Memory --------------------------------------------------------------------------------- */

struct mirror { /* a destination's */
    struct mirror *next;
    const uint8_t *k_base, *v_base;
    uint64_t k_bytes, v_bytes;
    struct span spans[2];
    uint32_t span_count; /* 1: K and V meet */
    uint32_t uses;       /* by items whose call has not ended */
    bool is_doomed;      /* goes with the last of those */
    spec_request request;
    spec_ticket ticket; /* of the last submission that went there */
};

/* What an item is asked with. host NULL: it is the host's own. */
struct sources {
    struct span queries, keys;
    struct spec_queries asked; /* as the real one sees them */
    struct spec_memory fresh;
};

/* A call's items, as the real one sees them. */
struct flight {
    struct flight *next;
    spec_ticket ticket;
    struct spec_important *host;
    uint64_t count, stride;
    uint8_t *items;                           /* [count * stride] */
    struct spec_memory *memories;             /* [count] */
    struct sources *sources;                  /* [count] */
    struct mirror *mirrors[ITEMS_MAX];        /* NULL: the host's destination itself */
    bool is_guest[ITEMS_MAX];                 /* somebody else moves the mirror's bytes */
    const struct spec_memory *own[ITEMS_MAX]; /* what the host named */
};

/* `down` is there: to the host what was written. */
static void span_write(struct span *span)
{
    uint64_t end = span->lead + span->bytes;
    if (span_is_changed(span, 0, span->lead) || span_is_changed(span, end, span->whole_bytes))
        die("bytes beside a destination were written");
    for (uint64_t i = 0; i < span->bytes; i++)
        if (span->up[span->lead + i] != span->down[span->lead + i])
            span->host[i] = span->down[span->lead + i];
}

/* Lock held, entered. */
static struct mirror *mirror_open(struct spec_connector *conn, const struct spec_memory *memory)
{
    struct mirror *mirror = take(sizeof(*mirror));
    *mirror = (struct mirror){.next = conn->mirrors,
                              .k_base = memory->k_base,
                              .v_base = memory->v_base,
                              .k_bytes = memory->k_bytes,
                              .v_bytes = memory->v_bytes};
    mirror->span_count = spans_open(conn, mirror->spans, memory);
    conn->mirrors = mirror;
    return mirror;
}

/* Lock held, entered. Nobody uses it. */
static void mirror_close(struct spec_connector *conn, struct mirror *mirror)
{
    struct mirror **at = &conn->mirrors;
    while (*at != mirror)
        at = &(*at)->next;
    *at = mirror->next;
    for (uint32_t i = 0; i < mirror->span_count; i++)
        span_close(conn, &mirror->spans[i]);
    free(mirror);
}

static bool is_mirror_of(const struct mirror *mirror, const struct spec_memory *memory)
{
    return mirror->k_base == memory->k_base && mirror->v_base == memory->v_base &&
           mirror->k_bytes == memory->k_bytes && mirror->v_bytes == memory->v_bytes;
}

/* Lock held. The one that stands for this memory: of the delivery that is refined, else one that
 * nobody uses now; NULL: none. */
static struct mirror *mirror_find(struct spec_connector *conn, const struct spec_memory *memory,
                                  spec_ticket refine_of)
{
    struct mirror *found = NULL;
    for (struct mirror *mirror = conn->mirrors; mirror != NULL; mirror = mirror->next) {
        if (!is_mirror_of(mirror, memory) || mirror->is_doomed)
            continue;
        if (refine_of != 0 && mirror->ticket == refine_of)
            return mirror;
        if (mirror->uses == 0 && found == NULL)
            found = mirror;
    }
    return found;
}

/* ---- Items ---------------------------------------------------------------------------------- */

static struct spec_important *item_at(const struct flight *flight, uint64_t i)
{
    return (struct spec_important *)(void *)(flight->items + i * flight->stride);
}

static struct spec_important *host_item_at(const struct flight *flight, uint64_t i)
{
    return (struct spec_important *)(void *)((uint8_t *)flight->host + i * flight->stride);
}

static bool queries_read(const struct spec_queries *host, struct spec_queries *queries)
{
    *queries = (struct spec_queries){.struct_size = 0};
    if (host == NULL || host->struct_size < END_OF(struct spec_queries, head_stride_bytes) ||
        host->struct_size > sizeof(*queries) || host->struct_size % sizeof(uint64_t) != 0)
        return false;
    memcpy(queries, host, host->struct_size);
    return queries->device == SPEC_DEVICE_HOST && queries->device_index == 0 &&
           queries->stream == NULL && queries->data != NULL &&
           queries->byte_count <= SPAN_BYTES_MAX &&
           (uintptr_t)queries->data <= UINTPTR_MAX - queries->byte_count;
}

/* Some of them go to a device. */
static bool is_any_turned(const struct spec_important *items, uint64_t count)
{
    struct spec_memory memory;
    struct spec_queries queries;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *at = (const uint8_t *)items + i * items->struct_size;
        const struct spec_important *item = (const void *)at;
        if (memory_read(item->destination, &memory) || queries_read(item->queries, &queries) ||
            keys_read(item->new_keys, &memory))
            return true;
    }
    return false;
}

/* Lock held, entered. The host's bytes go up; false: they cannot be read. */
static bool mirror_send(struct spec_connector *conn, struct mirror *mirror)
{
    for (uint32_t i = 0; i < mirror->span_count; i++)
        if (!span_read(&mirror->spans[i]))
            return false;
    for (uint32_t i = 0; i < mirror->span_count; i++)
        span_send(conn, &mirror->spans[i]);
    return true;
}

/* Lock held, entered. Bytes that are only read; false: they are not there. */
static bool source_send(struct spec_connector *conn, struct span *span, const uint8_t *from,
                        uint64_t bytes)
{
    span_open(conn, span, from, from + bytes);
    if (!span_read(span)) {
        span_close(conn, span);
        *span = (struct span){.host = NULL};
        return false;
    }
    span_send(conn, span);
    return true;
}

static void *source_address(const struct span *span)
{
    return (void *)(uintptr_t)(span->at + span->lead);
}

/* Entered. Its bytes come back, by the stream. */
static void source_fetch(struct spec_connector *conn, const struct span *span)
{
    if (span->host != NULL)
        span_fetch(conn, span);
}

/* Entered, the stream has been waited for. */
static void source_close(struct spec_connector *conn, struct span *span, bool is_fetched)
{
    if (span->host == NULL)
        return;
    if (is_fetched && span_is_changed(span, 0, span->whole_bytes))
        die("what is only to be read was written");
    span_close(conn, span);
    span->host = NULL;
}

static bool queries_turn(struct spec_connector *conn, struct span *span,
                         struct spec_queries *queries)
{
    if (!source_send(conn, span, queries->data, queries->byte_count))
        return false;
    queries->struct_size = sizeof(*queries);
    queries->device = SPEC_DEVICE_CUDA;
    queries->data = source_address(span);
    queries->stream = conn->stream;
    return true;
}

/* Lock held, entered. What item i is asked with. */
static void asked_turn(struct spec_connector *conn, struct sources *sources,
                       struct spec_important *item)
{
    struct spec_memory *fresh = &sources->fresh;
    if (queries_read(item->queries, &sources->asked) &&
        queries_turn(conn, &sources->queries, &sources->asked))
        item->queries = &sources->asked;
    if (!keys_read(item->new_keys, fresh) ||
        !source_send(conn, &sources->keys, fresh->k_base, fresh->k_bytes))
        return;
    fresh->struct_size = sizeof(*fresh);
    fresh->device = SPEC_DEVICE_CUDA;
    fresh->k_base = source_address(&sources->keys);
    fresh->v_base = NULL; /* of new keys it is not looked at */
    fresh->stream = conn->stream;
    item->new_keys = fresh;
}

/* Lock held, entered. Item i goes to a device, if its description can be followed. */
static void item_turn(struct spec_connector *conn, struct flight *flight, uint64_t i)
{
    struct spec_important *item = item_at(flight, i);
    struct spec_memory *memory = &flight->memories[i];
    flight->own[i] = item->destination;
    if (!memory_read(item->destination, memory))
        return;
    struct mirror *mirror = mirror_find(conn, memory, item->refine_of);
    if (mirror == NULL)
        mirror = mirror_open(conn, memory);
    flight->is_guest[i] = mirror->uses > 0;
    if (!flight->is_guest[i] && !mirror_send(conn, mirror)) {
        mirror_close(conn, mirror);
        return;
    }
    mirror->uses++;
    mirror->request = item->request;
    flight->mirrors[i] = mirror;
    memory->struct_size = sizeof(*memory);
    memory->device = SPEC_DEVICE_CUDA;
    memory->k_base = spans_address(mirror->spans, mirror->span_count, memory->k_base, false);
    memory->v_base = spans_address(mirror->spans, mirror->span_count, memory->v_base, true);
    memory->stream = conn->stream;
    item->destination = memory;
}

/* What a load is done with; NULL: as it is, by the real one. */
static struct flight *flight_begin(struct spec_connector *conn, struct spec_important *items,
                                   uint64_t count)
{
    if (conn == NULL || items == NULL || count == 0 || count > ITEMS_MAX ||
        items->struct_size < END_OF(struct spec_important, row_count) ||
        items->struct_size > sizeof(*items) || items->struct_size % sizeof(uint64_t) != 0 ||
        !is_any_turned(items, count))
        return NULL;
    pthread_mutex_lock(&conn->lock);
    if (!conn_attach(conn)) {
        pthread_mutex_unlock(&conn->lock);
        return NULL;
    }
    struct flight *flight = take(sizeof(*flight));
    flight->host = items;
    flight->count = count;
    flight->stride = items->struct_size;
    flight->items = take(count * flight->stride);
    flight->memories = take(count * sizeof(*flight->memories));
    flight->sources = take(count * sizeof(*flight->sources));
    memcpy(flight->items, items, count * flight->stride);
    conn_enter(conn);
    for (uint64_t i = 0; i < count; i++) {
        item_turn(conn, flight, i);
        asked_turn(conn, &flight->sources[i], item_at(flight, i));
        item_at(flight, i)->status = NOT_TOLD;
    }
    conn_leave(conn);
    pthread_mutex_unlock(&conn->lock);
    return flight;
}

/* Results to the host's items. */
static void flight_tell(const struct flight *flight)
{
    for (uint64_t i = 0; i < flight->count; i++) {
        struct spec_important *item = item_at(flight, i), *host = host_item_at(flight, i);
        item->destination = flight->own[i];
        item->queries = host->queries;
        item->new_keys = host->new_keys;
        if (item->status == NOT_TOLD)
            item->status = host->status;
        memcpy(host, item, flight->stride);
    }
}

/* Lock held, entered. Nobody moves bytes there any more. */
static void flight_free(struct spec_connector *conn, struct flight *flight, bool is_fetched)
{
    for (uint64_t i = 0; i < flight->count; i++) {
        struct mirror *mirror = flight->mirrors[i];
        if (mirror != NULL && --mirror->uses == 0 && mirror->is_doomed)
            mirror_close(conn, mirror);
        source_close(conn, &flight->sources[i].queries, is_fetched);
        source_close(conn, &flight->sources[i].keys, is_fetched);
    }
    free(flight->sources);
    free(flight->items);
    free(flight->memories);
    free(flight);
}

/* The call has told its results: bytes come back, and all of it goes to the host. */
static void flight_land(struct spec_connector *conn, struct flight *flight)
{
    pthread_mutex_lock(&conn->lock);
    conn_enter(conn);
    for (uint64_t i = 0; i < flight->count; i++)
        for (uint32_t s = 0; flight->mirrors[i] != NULL && !flight->is_guest[i] &&
                             s < flight->mirrors[i]->span_count;
             s++)
            span_fetch(conn, &flight->mirrors[i]->spans[s]);
    for (uint64_t i = 0; i < flight->count; i++) {
        source_fetch(conn, &flight->sources[i].queries);
        source_fetch(conn, &flight->sources[i].keys);
    }
    MUST(conn, cuStreamSynchronize, conn->stream);
    stores_reap(conn);
    for (uint64_t i = 0; i < flight->count; i++)
        for (uint32_t s = 0; flight->mirrors[i] != NULL && !flight->is_guest[i] &&
                             s < flight->mirrors[i]->span_count;
             s++)
            span_write(&flight->mirrors[i]->spans[s]);
    flight_tell(flight);
    flight_free(conn, flight, true);
    conn_leave(conn);
    pthread_mutex_unlock(&conn->lock);
}

/* ---- Loads ---------------------------------------------------------------------------------- */

static spec_connector *real_of(const spec_connector *conn)
{
    return conn != NULL ? conn->real : NULL;
}

static spec_status through_get_important(spec_connector *conn, struct spec_important *items,
                                         uint64_t count, struct spec_error *reterr)
{
    const struct spec_api *api = real.plugin.api;
    struct flight *flight = flight_begin(conn, items, count);
    if (flight == NULL)
        return api->get_important(real_of(conn), items, count, reterr);
    struct thread_state before = thread_state(conn);
    spec_status status = api->get_important(
        conn->real, (struct spec_important *)(void *)flight->items, count, reterr);
    thread_expect(conn, &before);
    flight_land(conn, flight);
    return status;
}

static spec_status through_submit(spec_connector *conn, struct spec_important *items,
                                  uint64_t count, spec_ticket *ret_ticket,
                                  struct spec_error *reterr)
{
    const struct spec_api *api = real.plugin.api;
    struct flight *flight = ret_ticket != NULL ? flight_begin(conn, items, count) : NULL;
    if (flight == NULL)
        return api->get_important_submit(real_of(conn), items, count, ret_ticket, reterr);
    struct thread_state before = thread_state(conn);
    spec_status status = api->get_important_submit(
        conn->real, (struct spec_important *)(void *)flight->items, count, ret_ticket, reterr);
    thread_expect(conn, &before);
    if (status != SPEC_OK) {
        flight_land(conn, flight);
        return status;
    }
    pthread_mutex_lock(&conn->lock);
    flight->ticket = *ret_ticket;
    flight->next = conn->flights;
    conn->flights = flight;
    for (uint64_t i = 0; i < count; i++)
        if (flight->mirrors[i] != NULL && !flight->is_guest[i])
            flight->mirrors[i]->ticket = *ret_ticket;
    pthread_mutex_unlock(&conn->lock);
    return status;
}

/* Lock held. Where the flight of that ticket hangs; *: NULL: there is none. */
static struct flight **flight_find(struct spec_connector *conn, spec_ticket ticket)
{
    struct flight **at = &conn->flights;
    while (*at != NULL && (*at)->ticket != ticket)
        at = &(*at)->next;
    return at;
}

static spec_status through_wait(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                struct spec_error *reterr)
{
    const struct spec_api *api = real.plugin.api;
    const char *why;
    struct flight *flight = NULL;
    if (conn != NULL && conn->cu != NULL && conf_driver(&why) != NULL) {
        pthread_mutex_lock(&conn->lock);
        flight = *flight_find(conn, ticket);
        pthread_mutex_unlock(&conn->lock);
    }
    if (flight == NULL)
        return api->get_important_wait(real_of(conn), ticket, timeout_ns, reterr);
    struct thread_state before = thread_state(conn);
    spec_status status = api->get_important_wait(conn->real, ticket, timeout_ns, reterr);
    thread_expect(conn, &before);
    if (item_at(flight, 0)->status == NOT_TOLD)
        return status; /* not reported: the items are the real one's still */
    pthread_mutex_lock(&conn->lock);
    *flight_find(conn, ticket) = flight->next;
    pthread_mutex_unlock(&conn->lock);
    flight_land(conn, flight);
    return status;
}

static spec_status through_release(spec_connector *conn, spec_request request,
                                   struct spec_error *reterr)
{
    const char *why;
    spec_status status = real.plugin.api->release(real_of(conn), request, reterr);
    if (status != SPEC_OK || conn == NULL || conn->cu == NULL || conf_driver(&why) == NULL)
        return status;
    pthread_mutex_lock(&conn->lock);
    conn_enter(conn);
    for (struct mirror *mirror = conn->mirrors, *next; mirror != NULL; mirror = next) {
        next = mirror->next;
        if (mirror->request != request)
            continue;
        mirror->is_doomed = true;
        if (mirror->uses == 0)
            mirror_close(conn, mirror);
    }
    conn_leave(conn);
    pthread_mutex_unlock(&conn->lock);
    return status;
}

/* A hint is the host's own again when the call returns, in the order of the stream. */
static spec_status through_prefetch_next(spec_connector *conn, spec_request request, uint32_t layer,
                                         const struct spec_queries *hint, struct spec_error *reterr)
{
    const struct spec_api *api = real.plugin.api;
    struct spec_queries queries;
    struct span span = {.host = NULL};
    bool is_turned = false;
    if (conn == NULL || !queries_read(hint, &queries))
        return api->prefetch_next(real_of(conn), request, layer, hint, reterr);
    pthread_mutex_lock(&conn->lock);
    if (conn_attach(conn)) {
        conn_enter(conn);
        is_turned = queries_turn(conn, &span, &queries);
        conn_leave(conn);
    }
    pthread_mutex_unlock(&conn->lock);
    if (!is_turned)
        return api->prefetch_next(conn->real, request, layer, hint, reterr);
    struct thread_state before = thread_state(conn);
    spec_status status = api->prefetch_next(conn->real, request, layer, &queries, reterr);
    thread_expect(conn, &before);
    conn_enter(conn);
    source_fetch(conn, &span);
    MUST(conn, cuStreamSynchronize, conn->stream);
    source_close(conn, &span, true);
    conn_leave(conn);
    return status;
}

static spec_status through_store(spec_connector *conn, const struct spec_store_params *params,
                                 uint64_t count, spec_ticket *ret_tickets,
                                 struct spec_error *reterr)
{
    return stores_store(real.plugin.api, conn, params, count, ret_tickets, reterr);
}

/* ---- Open, close, and what goes on as it is ------------------------------------------------- */

static spec_status through_open(const struct spec_open_params *params, spec_connector **ret_conn,
                                struct spec_error *reterr)
{
    const struct spec_api *api = real.plugin.api;
    if (ret_conn == NULL)
        return api->open(params, NULL, reterr);
    spec_connector *inner = NULL;
    spec_status status = api->open(params, &inner, reterr);
    if (status != SPEC_OK)
        return status;
    struct spec_connector *conn = take(sizeof(*conn));
    conn->real = inner;
    pthread_mutex_init(&conn->lock, NULL);
    *ret_conn = conn;
    return status;
}

/* The real one is closed: nothing moves any more. */
static void detach(struct spec_connector *conn)
{
    conn_enter(conn);
    MUST(conn, cuStreamSynchronize, conn->stream);
    stores_reap(conn);
    for (struct flight *flight = conn->flights, *next; flight != NULL; flight = next) {
        next = flight->next;
        flight_free(conn, flight, false);
    }
    while (conn->mirrors != NULL)
        mirror_close(conn, conn->mirrors);
    conn_leave(conn);
    conn_detach(conn);
}

static void through_close(spec_connector *conn)
{
    const char *why;
    real.plugin.api->close(real_of(conn));
    if (conn == NULL)
        return;
    if (conn->cu != NULL && conf_driver(&why) != NULL)
        detach(conn);
    pthread_mutex_destroy(&conn->lock);
    free(conn);
}

/* clang-format off: a line a call */
#define FORWARD(X)                                                                                 \
    X(lookup,                                                                                      \
      (spec_connector * conn, const struct spec_lookup_params *params,                             \
       struct spec_lookup_result *ret_result, struct spec_error *reterr),                          \
      (real_of(conn), params, ret_result, reterr))                                                 \
    X(prefetch_to_host,                                                                            \
      (spec_connector * conn, const struct spec_prefetch_to_host_params *params,                   \
       spec_ticket *ret_ticket, struct spec_error *reterr),                                        \
      (real_of(conn), params, ret_ticket, reterr))                                                 \
    X(attach,                                                                                      \
      (spec_connector * conn, const struct spec_attach_params *params,                             \
       struct spec_lookup_result *ret_result, struct spec_error *reterr),                          \
      (real_of(conn), params, ret_result, reterr))                                                 \
    X(next_chunk,                                                                                  \
      (spec_connector * conn, struct spec_next_chunk * chunk, struct spec_error * reterr),         \
      (real_of(conn), chunk, reterr))                                                              \
    X(begin_layer,                                                                                 \
      (spec_connector * conn, const spec_request *requests, uint64_t count, uint32_t layer,        \
       struct spec_error *reterr),                                                                 \
      (real_of(conn), requests, count, layer, reterr))                                             \
    X(store_abort,                                                                                 \
      (spec_connector * conn, spec_request request, uint64_t from_token,                           \
       struct spec_error * reterr),                                                                \
      (real_of(conn), request, from_token, reterr))                                                \
    X(poll,                                                                                        \
      (spec_connector * conn, const spec_ticket *tickets, uint64_t count,                          \
       spec_status *ret_statuses, struct spec_error *reterr),                                      \
      (real_of(conn), tickets, count, ret_statuses, reterr))                                       \
    X(wait,                                                                                        \
      (spec_connector * conn, const spec_ticket *tickets, uint64_t count, uint64_t timeout_ns,     \
       spec_status *ret_statuses, struct spec_error *reterr),                                      \
      (real_of(conn), tickets, count, timeout_ns, ret_statuses, reterr))                           \
    X(wait_kept,                                                                                   \
      (spec_connector * conn, const spec_ticket *tickets, uint64_t count, uint64_t timeout_ns,     \
       spec_status *ret_statuses, uint64_t *ret_kept, struct spec_error *reterr),                  \
      (real_of(conn), tickets, count, timeout_ns, ret_statuses, ret_kept, reterr))                 \
    X(reset, (spec_connector * conn, struct spec_error * reterr), (real_of(conn), reterr))         \
    X(stats, (spec_connector * conn, struct spec_stats * ret_stats, struct spec_error * reterr),   \
      (real_of(conn), ret_stats, reterr))                                                          \
    X(maintain,                                                                                    \
      (spec_connector * conn, const struct spec_maintain_params *params,                           \
       struct spec_error *reterr),                                                                 \
      (real_of(conn), params, reterr))                                                             \
    X(computed,                                                                                    \
      (spec_connector * conn, const struct spec_computed *step, struct spec_error *reterr),        \
      (real_of(conn), step, reterr))
/* clang-format on */

#define DEFINE(name, arguments, passed)                                                            \
    static spec_status forward_##name arguments                                                    \
    {                                                                                              \
        return real.plugin.api->name passed;                                                       \
    }
FORWARD(DEFINE)

static const struct spec_api API = {.struct_size = sizeof(struct spec_api),
                                    .major = SPEC_ABI_MAJOR,
                                    .minor = SPEC_ABI_MINOR,
                                    .open = through_open,
                                    .close = through_close,
                                    .get_important = through_get_important,
                                    .get_important_submit = through_submit,
                                    .get_important_wait = through_wait,
                                    .prefetch_next = through_prefetch_next,
                                    .release = through_release,
                                    .store = through_store,
#define ENTRY(name, arguments, passed) .name = forward_##name,
                                    FORWARD(ENTRY)
#undef ENTRY
};

const struct spec_api *spec_connector_api(uint32_t major)
{
    (void)pthread_once(&real.once, real_open);
    return major == SPEC_ABI_MAJOR && real.plugin.api != NULL ? &API : NULL;
}
