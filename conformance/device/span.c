/* See span.h. */
#include "conformance/device/span.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define GUARD      256u /* bytes, before and behind; and what alignment is kept to */
#define PAGE       4096u
#define GUARD_BYTE 0xc3

_Noreturn void die(const char *what)
{
    fprintf(stderr, "through_device: %s\n", what);
    fflush(stderr);
    abort();
}

void must(sc_cu_result code, const char *call)
{
    if (code == SC_CU_OK)
        return;
    fprintf(stderr, "through_device: %s: CUDA %d\n", call, (int)code);
    die("the driver failed");
}

void *take(uint64_t bytes)
{
    uint64_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    void *memory = aligned_alloc(PAGE, pages > 0 ? pages : PAGE);
    if (memory == NULL)
        die("no memory");
    memset(memory, 0, pages > 0 ? pages : PAGE);
    return memory;
}

/* ---- The device ----------------------------------------------------------------------------- */

void conn_enter(struct spec_connector *conn)
{
    MUST(conn, cuCtxPushCurrent, conn->context);
}

void conn_leave(struct spec_connector *conn)
{
    sc_cu_context popped;
    MUST(conn, cuCtxPopCurrent, &popped);
    if (popped != conn->context)
        die("another context is current");
}

bool conn_attach(struct spec_connector *conn)
{
    const char *why;
    sc_cu_device device;
    const struct sc_cu *cu = conf_driver(&why);
    if (cu == NULL && !conf_driver_is_forked())
        die(why);
    if (cu == NULL || conn->cu != NULL)
        return cu != NULL;
    conn->cu = cu;
    conn->junk = take(JUNK_BYTES);
    for (uint64_t i = 0; i < JUNK_BYTES; i++)
        conn->junk[i] = (uint8_t)(i * 37 + 11);
    MUST(conn, cuDeviceGet, &device, 0);
    MUST(conn, cuDevicePrimaryCtxRetain, &conn->context, device);
    conn_enter(conn);
    MUST(conn, cuStreamCreate, &conn->stream, SC_CU_STREAM_NON_BLOCKING);
    MUST(conn, cuMemHostRegister, conn->junk, JUNK_BYTES, SC_CU_HOSTREGISTER_DEVICEMAP);
    conn_leave(conn);
    return true;
}

void conn_detach(struct spec_connector *conn)
{
    sc_cu_device device;
    conn_enter(conn);
    MUST(conn, cuMemHostUnregister, conn->junk);
    MUST(conn, cuStreamDestroy, conn->stream);
    conn_leave(conn);
    MUST(conn, cuDeviceGet, &device, 0);
    MUST(conn, cuDevicePrimaryCtxRelease, device);
    free(conn->junk);
}

struct thread_state thread_state(const struct spec_connector *conn)
{
    struct thread_state state = {.mode = 0};
    sc_cu_capture_mode mode = 0;
    MUST(conn, cuCtxGetCurrent, &state.context);
    MUST(conn, cuThreadExchangeStreamCaptureMode, &mode);
    state.mode = mode;
    MUST(conn, cuThreadExchangeStreamCaptureMode, &mode);
    return state;
}

void thread_expect(const struct spec_connector *conn, const struct thread_state *before)
{
    struct thread_state after = thread_state(conn);
    if (after.context != before->context)
        die("a call left another context current");
    if (after.mode != before->mode)
        die("a call left another capture mode");
}

/* ---- Spans ---------------------------------------------------------------------------------- */

void span_open(struct spec_connector *conn, struct span *span, const uint8_t *from,
               const uint8_t *to)
{
    uintptr_t first = (uintptr_t)from;
    memcpy(&span->host, &from, sizeof(from)); /* the host gave it to be written */
    span->bytes = (uint64_t)(to - from);
    span->lead = GUARD + first % GUARD;
    span->whole_bytes = span->lead + span->bytes + GUARD;
    span->up = take(span->whole_bytes);
    span->down = take(span->whole_bytes);
    MUST(conn, cuMemHostRegister, span->up, span->whole_bytes, SC_CU_HOSTREGISTER_DEVICEMAP);
    MUST(conn, cuMemHostRegister, span->down, span->whole_bytes, SC_CU_HOSTREGISTER_DEVICEMAP);
    MUST(conn, cuMemAlloc, &span->at, span->whole_bytes);
}

void span_close(struct spec_connector *conn, struct span *span)
{
    MUST(conn, cuMemHostUnregister, span->up);
    MUST(conn, cuMemHostUnregister, span->down);
    MUST(conn, cuMemFree, span->at);
    free(span->up);
    free(span->down);
}

bool span_read(struct span *span)
{
    struct iovec to = {span->up + span->lead, span->bytes}, from = {span->host, span->bytes};
    memset(span->up, GUARD_BYTE, span->whole_bytes);
    return span->bytes == 0 ||
           process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)span->bytes;
}

void span_send(struct spec_connector *conn, const struct span *span)
{
    MUST(conn, cuMemcpyHtoDAsync, span->at, span->up, span->whole_bytes, conn->stream);
}

void span_fetch(struct spec_connector *conn, const struct span *span)
{
    MUST(conn, cuMemcpyDtoHAsync, span->down, span->at, span->whole_bytes, conn->stream);
}

void span_spoil(struct spec_connector *conn, const struct span *span)
{
    for (uint64_t at = 0; at < span->whole_bytes; at += JUNK_BYTES) {
        uint64_t left = span->whole_bytes - at;
        MUST(conn, cuMemcpyHtoDAsync, span->at + at, conn->junk,
             left < JUNK_BYTES ? left : JUNK_BYTES, conn->stream);
    }
}

bool span_is_changed(const struct span *span, uint64_t from, uint64_t to)
{
    return memcmp(span->up + from, span->down + from, to - from) != 0;
}

uint32_t spans_open(struct spec_connector *conn, struct span spans[2],
                    const struct spec_memory *memory)
{
    const uint8_t *k = memory->k_base, *v = memory->v_base;
    const uint8_t *k_end = k + memory->k_bytes, *v_end = v + memory->v_bytes;
    bool meet = k <= v_end && v <= k_end;
    span_open(conn, &spans[0], meet && v < k ? v : k, meet && v_end > k_end ? v_end : k_end);
    if (!meet)
        span_open(conn, &spans[1], v, v_end);
    return meet ? 1 : 2;
}

void *spans_address(const struct span spans[2], uint32_t count, const void *base, bool is_v)
{
    const struct span *span = &spans[is_v && count > 1 ? 1 : 0];
    return (void *)(uintptr_t)(span->at + span->lead +
                               (uint64_t)((const uint8_t *)base - span->host));
}

/* ---- Descriptions --------------------------------------------------------------------------- */

bool keys_read(const struct spec_memory *host, struct spec_memory *memory)
{
    *memory = (struct spec_memory){.struct_size = 0};
    if (host == NULL || host->struct_size < END_OF(struct spec_memory, head_stride_bytes) ||
        host->struct_size > sizeof(*memory) || host->struct_size % sizeof(uint64_t) != 0)
        return false;
    memcpy(memory, host, host->struct_size);
    return memory->device == SPEC_DEVICE_HOST && memory->device_index == 0 &&
           memory->stream == NULL && memory->k_base != NULL && memory->k_bytes <= SPAN_BYTES_MAX &&
           (uintptr_t)memory->k_base <= UINTPTR_MAX - memory->k_bytes;
}

bool memory_read(const struct spec_memory *host, struct spec_memory *memory)
{
    return keys_read(host, memory) && memory->v_base != NULL && memory->v_bytes <= SPAN_BYTES_MAX &&
           (uintptr_t)memory->v_base <= UINTPTR_MAX - memory->v_bytes;
}
