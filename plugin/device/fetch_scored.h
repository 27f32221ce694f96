/* Queries and new keys that lie on the device and that it does not score itself (device_scores.h):
 * they come to host memory.
 *
 *   the host's stream   ..Q of the layer  E0                      | its next work
 *                                          \
 *   our stream                              '-> pack -> copy out      pinned buffer after buffer
 *                                                          \
 *   who scores                                    waits ----'-> room   [rows][heads][head_size]
 *
 * Of hints nobody waits for the device: the host's own stream packs them, they have pinned memory
 * of their own, taken by a guess, and streams of their own, and are looked at later.
 *
 * Holds: what is read of the device comes behind what the host's stream had been given at begin,
 *   and bring has waited when it returns: nothing of the host's is read any more. What could not be
 *   read is a status, never other bytes.
 * Does not: look at numbers; hold a room longer than a scratch is (plugin/select).
 * Threads: check, begin and send the host's own, inside its call; bring whoever scores, look
 *   whoever ranks.
 * Tests: tests/unit/plugin/test_device_queries.c */
#ifndef SC_PLUGIN_DEVICE_FETCH_SCORED_H
#define SC_PLUGIN_DEVICE_FETCH_SCORED_H

#include "kernels/importance.h"
#include "plugin/device/device_tables.h"

/* Rows that lie there. Zero: none do. */
struct sc_plugin_afar {
    struct sc_plugin_device *device; /* NULL: they are host memory */
    uint32_t slot;                   /* of the device: where the request asks */
    struct sc_kernels_memory at;     /* K alone is looked at; slots are host memory */
    uint64_t row_count, head_count, head_size;
    void *stream;      /* the host's CUstream */
    spec_status begun; /* what begin said: if it is not OK, nothing is brought */
};

/* The device is attached, and [base, base + bytes) is its memory; the stream one to wait for.
 * Errors: as those of sc_plugin_device_attach; INVALID (memory, stream); IO. May block once. */
spec_status sc_plugin_afar_check(struct sc_plugin_device *device, int32_t ordinal, void *stream,
                                 const void *base, uint64_t bytes, struct spec_error *reterr);
/* A struct sc_plugin_memory_way's, of memory that is read; user: the device. */
spec_status sc_plugin_afar_memory_check(void *user, const struct spec_memory *host,
                                        struct sc_plugin_memory *memory, struct spec_error *reterr);
/* Of so many whom they are brought to: [room_bytes] of host memory. Attached. */
uint8_t *sc_plugin_afar_room(const struct sc_plugin_device *device, uint64_t room);
/* Bytes of a room that they take, whole lines; 0: they are host memory. */
uint64_t sc_plugin_afar_bytes(const struct sc_plugin_afar *afar);
/* What is brought comes behind what the stream has been given so far; told by bring. */
void sc_plugin_afar_begin(struct sc_plugin_afar *afar);
/* All rows to `to` [sc_plugin_afar_bytes]. Waits for what the stream had been given at begin,
 * whatever a deadline says. Errors: IO (the device is closed), what begin said. */
spec_status sc_plugin_afar_fetch(const struct sc_plugin_afar *afar, uint8_t *to,
                                 struct spec_error *reterr);
/* Why bring or begin was not OK, once more. */
spec_status sc_plugin_afar_fail(const struct sc_plugin_device *device, spec_status status,
                                struct spec_error *reterr);

/* The afar's rows, few and without slots, to the hint's memory: they are packed by the host's own
 * stream, so that what it is given next may write over them. Waits for nothing. false: there will
 * be none (the last one is still on its way; a device that failed; too much is enqueued). */
bool sc_plugin_hint_send(const struct sc_plugin_afar *afar, struct sc_plugin_device_hint *hint);
/* The rows, packed, until the next send; NULL: they are not there yet, or (is over) never will be.
 */
const uint8_t *sc_plugin_hint_look(const struct sc_plugin_afar *afar,
                                   const struct sc_plugin_device_hint *hint, bool *ret_is_over);
/* The same rows as they lie on the device, with nothing to be waited for; of none: none. */
struct sc_plugin_afar sc_plugin_hint_afar(const struct sc_plugin_afar *afar,
                                          const struct sc_plugin_device_hint *hint);

#endif
