/* Host memory that is stored goes up first, and what is stored is the device's.
 *
 *   our stream   rows go up | the real one's store | they come back | other bytes over them
 *                           '- the call returns at once, and so do we
 *
 * SC_THROUGH_STORES=host leaves them on the host, =mixed every other layer of a request, so that
 * layers of both come behind each other in a pass.
 *
 * Holds: nobody waits for the stream between or behind these, but now and then, when a lot was sent
 * (KEPT_BYTES, KEPT_CALLS), since it is all kept until then; what was only to be read is as it was
 * when the store is through with it. Does not: turn a description that it cannot follow: it goes on
 * as it is. Threads, Tests: as through_device.c. */
#include "conformance/device/stores.h"

#include <stdlib.h>
#include <string.h>

#define PARAMS_MAX 256u
#define KEPT_BYTES (UINT64_C(32) << 20)
#define KEPT_CALLS 64u

struct source {
    struct span spans[2];
    uint32_t span_count; /* 0: it is the host's own */
    struct spec_memory memory;
};

struct sent { /* a call's */
    struct sent *next;
    uint8_t *params;        /* [count * stride] as the real one sees them */
    struct source *sources; /* [count] */
    uint64_t count, stride;
};

static struct spec_store_params *params_at(const struct sent *sent, uint64_t i)
{
    return (struct spec_store_params *)(void *)(sent->params + i * sent->stride);
}

static bool is_turned(const struct spec_store_params *params)
{
    const char *how = getenv("SC_THROUGH_STORES");
    struct spec_memory memory;
    if (how != NULL && strcmp(how, "host") == 0)
        return false;
    if (how != NULL && strcmp(how, "mixed") == 0 && (params->layer + params->request) % 2 != 0)
        return false;
    return memory_read(params->memory, &memory);
}

static bool is_any_turned(const struct spec_store_params *params, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *at = (const uint8_t *)params + i * params->struct_size;
        if (is_turned((const void *)at))
            return true;
    }
    return false;
}

/* Entered. */
static void source_close(struct spec_connector *conn, struct source *source)
{
    for (uint32_t s = 0; s < source->span_count; s++)
        span_close(conn, &source->spans[s]);
    source->span_count = 0;
}

/* Lock held, entered. Its rows go up, if they can be read. */
static void source_turn(struct spec_connector *conn, struct source *source,
                        struct spec_store_params *params)
{
    struct spec_memory *memory = &source->memory;
    if (!is_turned(params) || !memory_read(params->memory, memory))
        return;
    source->span_count = spans_open(conn, source->spans, memory);
    for (uint32_t s = 0; s < source->span_count; s++)
        if (!span_read(&source->spans[s])) {
            source_close(conn, source);
            return;
        }
    for (uint32_t s = 0; s < source->span_count; s++)
        span_send(conn, &source->spans[s]);
    memory->struct_size = sizeof(*memory);
    memory->device = SPEC_DEVICE_CUDA;
    memory->k_base = spans_address(source->spans, source->span_count, memory->k_base, false);
    memory->v_base = spans_address(source->spans, source->span_count, memory->v_base, true);
    memory->stream = conn->stream;
    params->memory = memory;
}

/* What a store is done with; NULL: as it is, by the real one. */
static struct sent *sent_begin(struct spec_connector *conn, const struct spec_store_params *params,
                               uint64_t count)
{
    if (conn == NULL || params == NULL || count == 0 || count > PARAMS_MAX ||
        params->struct_size < END_OF(struct spec_store_params, memory) ||
        params->struct_size > sizeof(*params) || params->struct_size % sizeof(uint64_t) != 0 ||
        !is_any_turned(params, count))
        return NULL;
    pthread_mutex_lock(&conn->lock);
    if (!conn_attach(conn)) {
        pthread_mutex_unlock(&conn->lock);
        return NULL;
    }
    struct sent *sent = take(sizeof(*sent));
    sent->count = count;
    sent->stride = params->struct_size;
    sent->params = take(count * sent->stride);
    sent->sources = take(count * sizeof(*sent->sources));
    memcpy(sent->params, params, count * sent->stride);
    conn_enter(conn);
    for (uint64_t i = 0; i < count; i++)
        source_turn(conn, &sent->sources[i], params_at(sent, i));
    conn_leave(conn);
    pthread_mutex_unlock(&conn->lock);
    return sent;
}

/* Lock held, entered. The call is over: they are ours again in the order of the stream. */
static void sent_end(struct spec_connector *conn, struct sent *sent)
{
    for (uint64_t i = 0; i < sent->count; i++)
        for (uint32_t s = 0; s < sent->sources[i].span_count; s++) {
            const struct span *span = &sent->sources[i].spans[s];
            span_fetch(conn, span);
            span_spoil(conn, span);
            conn->sent_bytes += span->whole_bytes;
        }
    free(sent->params);
    sent->next = conn->sent;
    conn->sent = sent;
    if (conn->sent_bytes < KEPT_BYTES && ++conn->sent_count < KEPT_CALLS)
        return;
    MUST(conn, cuStreamSynchronize, conn->stream);
    stores_reap(conn);
}

void stores_reap(struct spec_connector *conn)
{
    while (conn->sent != NULL) {
        struct sent *sent = conn->sent;
        conn->sent = sent->next;
        for (uint64_t i = 0; i < sent->count; i++) {
            struct source *source = &sent->sources[i];
            for (uint32_t s = 0; s < source->span_count; s++)
                if (span_is_changed(&source->spans[s], 0, source->spans[s].whole_bytes))
                    die("what is only to be stored was written");
            source_close(conn, source);
        }
        free(sent->sources);
        free(sent);
    }
    conn->sent_bytes = conn->sent_count = 0;
}

spec_status stores_store(const struct spec_api *api, struct spec_connector *conn,
                         const struct spec_store_params *params, uint64_t count,
                         spec_ticket *ret_tickets, struct spec_error *reterr)
{
    struct sent *sent = sent_begin(conn, params, count);
    if (sent == NULL)
        return api->store(conn != NULL ? conn->real : NULL, params, count, ret_tickets, reterr);
    struct thread_state before = thread_state(conn);
    spec_status status =
        api->store(conn->real, (const void *)sent->params, count, ret_tickets, reterr);
    thread_expect(conn, &before);
    pthread_mutex_lock(&conn->lock);
    conn_enter(conn);
    sent_end(conn, sent);
    conn_leave(conn);
    pthread_mutex_unlock(&conn->lock);
    return status;
}
