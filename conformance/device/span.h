/* Host memory, and the device's that stands for it, on one stream of a connector's.
 *
 *   host                     [ K .. V ]
 *                               | read, where it is there
 *   up (registered)   [guard][ K .. V ][guard]      down (registered): what came back
 *                               | our stream                ^ our stream
 *   device            [guard][ K .. V ][guard] -------------'
 *
 * Holds: addresses on the device are aligned as the host's are, to 256 bytes. What is wrong ends
 * the process with a line on stderr.
 * Does not: know calls of the ABI.
 * Threads: any, one a connector (its lock). Tests: as through_device.c. */
#ifndef CONFORMANCE_DEVICE_SPAN_H
#define CONFORMANCE_DEVICE_SPAN_H

#include "conformance/device/driver.h"

#include <pthread.h>
#include <stdint.h>

#include "abi/spec_connector.h"

#define SPAN_BYTES_MAX (UINT64_C(1) << 30) /* of host memory: more is not meant */
#define JUNK_BYTES     (UINT64_C(1) << 20)

#define END_OF(type, member)  (offsetof(type, member) + sizeof(((type *)NULL)->member))
#define MUST(conn, call, ...) must((conn)->cu->call(__VA_ARGS__), #call)

struct mirror;
struct flight;
struct sent;

struct spec_connector {
    spec_connector *real;
    pthread_mutex_t lock;
    /* Guarded by lock; cu, context, stream and junk constant once there. */
    const struct sc_cu *cu; /* NULL: nothing was loaded yet */
    sc_cu_context context;
    sc_cu_stream stream;
    uint8_t *junk; /* [JUNK_BYTES] registered, nobody's rows */
    struct mirror *mirrors;
    struct flight *flights; /* submitted */
    struct sent *sent;      /* sources of stores, of which the stream may not have come by */
    uint64_t sent_bytes, sent_count;
};

struct span { /* of host memory, and what stands for it */
    uint8_t *host;
    uint64_t bytes, whole_bytes; /* with guards */
    uint64_t lead;               /* bytes before those that stand for host */
    uint8_t *up, *down;          /* [whole_bytes] registered */
    sc_cu_ptr at;                /* [whole_bytes] */
};

_Noreturn void die(const char *what);
void must(sc_cu_result code, const char *call);
/* Zeroed, whole pages; never NULL. */
void *take(uint64_t bytes);

/* Lock held. The device is there; false: none is, or not in this process. */
bool conn_attach(struct spec_connector *conn);
/* Nothing moves any more. */
void conn_detach(struct spec_connector *conn);
void conn_enter(struct spec_connector *conn);
void conn_leave(struct spec_connector *conn);

/* All of these: entered. */
void span_open(struct spec_connector *conn, struct span *span, const uint8_t *from,
               const uint8_t *to);
void span_close(struct spec_connector *conn, struct span *span);
/* The host's bytes, into `up`; false: they are not there, whatever was described. */
bool span_read(struct span *span);
/* To the device, from `up`; to `down`, from the device: when the stream comes to it. */
void span_send(struct spec_connector *conn, const struct span *span);
void span_fetch(struct spec_connector *conn, const struct span *span);
/* Other bytes stand at the device, when the stream comes to it. */
void span_spoil(struct spec_connector *conn, const struct span *span);
/* `down` is there: bytes of [from, to) of the whole differ from `up`. */
bool span_is_changed(const struct span *span, uint64_t from, uint64_t to);

/* K and V of a memory: one span where they meet, which keeps them as they lie, else two. Returns
 * how many. */
uint32_t spans_open(struct spec_connector *conn, struct span spans[2],
                    const struct spec_memory *memory);
/* What stands for that base; is_v: it is V's. */
void *spans_address(const struct span spans[2], uint32_t count, const void *base, bool is_v);

/* The host's description whole, if K can be followed; what a short one lacks is 0. memory_read: V
 * too. */
bool keys_read(const struct spec_memory *host, struct spec_memory *memory);
bool memory_read(const struct spec_memory *host, struct spec_memory *memory);

/* What a call must leave as it was. */
struct thread_state {
    sc_cu_context context;
    sc_cu_capture_mode mode;
};
struct thread_state thread_state(const struct spec_connector *conn);
void thread_expect(const struct spec_connector *conn, const struct thread_state *before);

#endif
