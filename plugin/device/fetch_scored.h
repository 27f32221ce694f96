/* fetch_scored: copies queries and new keys from the device to host memory, if the device does not
 * score them itself (device_scores.h).
 *
 *   host's stream   ..Q of the layer  E0                      | its next work
 *                                     \
 *   our stream                         '-> pack -> copy out      one pinned buffer after another
 *                                                       \
 *   scoring thread                          waits -------'-> room   [rows][heads][head_size]
 *
 * Hints never wait for the device: the host's stream packs them, they have their own streams and
 * pinned memory, taken by a prediction, and are checked later.
 *
 * Invariants: device memory is read behind the work on the host's stream at begin. When fetch
 * returns, no memory of the host is read any more. A failed read is a status, never other bytes.
 * Threads: check, begin and send: the host's, inside its call; fetch: the scoring thread; look: the
 * ranking thread.
 * Tests: tests/unit/plugin/test_device_queries.c */
#ifndef SC_PLUGIN_DEVICE_FETCH_SCORED_H
#define SC_PLUGIN_DEVICE_FETCH_SCORED_H

#include "kernels/importance.h"
#include "plugin/device/device_tables.h"

/* Rows on a device. Zero: none. */
struct sc_plugin_afar {
    struct sc_plugin_device *device; /* NULL: they are in host memory */
    uint32_t slot;                   /* the request's slot for asks */
    struct sc_kernels_memory at;     /* only K is used; slots are host memory */
    uint64_t row_count, head_count, head_size;
    void *stream;      /* the host's CUstream */
    spec_status begun; /* result of begin; if it is not OK, nothing is fetched */
};

/* Attaches the device; checks that [base, base + bytes) is its memory, and the stream.
 * Errors: those of sc_plugin_device_attach; INVALID (memory, stream); IO. May block once. */
spec_status sc_plugin_afar_check(struct sc_plugin_device *device, int32_t ordinal, void *stream,
                                 const void *base, uint64_t bytes, struct spec_error *reterr);
/* For struct sc_plugin_memory_way, for memory that is read; user: the device. */
spec_status sc_plugin_afar_memory_check(void *user, const struct spec_memory *host,
                                        struct sc_plugin_memory *memory, struct spec_error *reterr);
/* Returns room number `room`: [room_bytes] of host memory. Attached. */
uint8_t *sc_plugin_afar_room(const struct sc_plugin_device *device, uint64_t room);
/* Returns the bytes that the rows take in a room, whole lines; 0: they are in host memory. */
uint64_t sc_plugin_afar_bytes(const struct sc_plugin_afar *afar);
/* Orders the fetch behind the work on the stream so far. Errors are reported by fetch. */
void sc_plugin_afar_begin(struct sc_plugin_afar *afar);
/* Copies all rows to `to` [sc_plugin_afar_bytes]. Waits for the stream's work at begin, even beyond
 * a deadline. Errors: IO (the device is closed); the error of begin. */
spec_status sc_plugin_afar_fetch(const struct sc_plugin_afar *afar, uint8_t *to,
                                 struct spec_error *reterr);
/* Repeats the error of fetch or begin. */
spec_status sc_plugin_afar_fail(const struct sc_plugin_device *device, spec_status status,
                                struct spec_error *reterr);

/* Copies few rows without slots to the hint's memory. The host's stream packs them, so its later
 * work may overwrite them. Never waits. Returns false if there will be no hint: the last one is in
 * flight, the device failed, or a ring is full. */
bool sc_plugin_hint_send(const struct sc_plugin_afar *afar, struct sc_plugin_device_hint *hint);
/* Returns the packed rows until the next send. NULL: incomplete, or with *ret_is_over failed. */
const uint8_t *sc_plugin_hint_look(const struct sc_plugin_afar *afar,
                                   const struct sc_plugin_device_hint *hint, bool *ret_is_over);
/* Returns the same rows on the device, without a stream to wait for; none if there are none. */
struct sc_plugin_afar sc_plugin_hint_afar(const struct sc_plugin_afar *afar,
                                          const struct sc_plugin_device_hint *hint);

#endif
