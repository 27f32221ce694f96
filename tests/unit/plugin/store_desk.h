/* A host that stores from a device, for tests: sources on the fake driver's device, written over in
 * the order of the host's stream as soon as the call has returned.
 *
 *   the host's stream   rows to the source | the store | other bytes over the source
 *
 * Rows are a function of their prompt (plugin_fixture.h), so that what is loaded is compared with
 * no other store.
 *
 * Holds: a source lives until the desk is through with its stream (desk_sources_free, desk_close).
 * Threads: one a desk; several desks may have copies of one rig. */
#ifndef SC_TESTS_UNIT_PLUGIN_STORE_DESK_H
#define SC_TESTS_UNIT_PLUGIN_STORE_DESK_H

#include "tests/unit/plugin/device_fixture.h"

#define DESK_LAYERS     3u
#define DESK_LAYERS_MAX 8u
#define DESK_SOURCES    32u
#define DESK_BLOCK      16u /* tokens */

struct desk {
    struct device_host host;
    struct rig rig;
    struct prompt prompt;
    struct spec_lookup_result found;
    spec_ticket ticket;
    uint64_t wait_ns; /* of desk_put, for room in staging; 0: none */
    struct there theres[DESK_SOURCES];
    int64_t *slots[DESK_SOURCES]; /* of the source, or NULL */
    uint32_t there_count;
};

/* The host on device 0, a prompt of so many tokens, and a rig that is not open: DESK_LAYERS layers
 * of three heads of 16 F16 on the simulated disk; extra: of its configuration. */
void desk_shape(struct desk *desk, const char *extra, uint64_t rows);
/* The rig is opened, and the prompt looked up. */
void desk_begin(struct desk *desk);
/* Both. */
void desk_open(struct desk *desk, const char *extra, uint64_t rows);
/* Nothing is left of the driver's (asserted), whatever the policy was. */
void desk_close(struct desk *desk);
void desk_sources_free(struct desk *desk);

/* How a source lies: rows, blocks that are named by slots (from the last one on), or K in columns.
 */
enum dress { DENSE, PAGED, COLUMNS, DRESSES };

/* A layer's rows as the prompt has them, in plain memory. slots [count]: the caller's, for what is
 * not DENSE. */
struct area desk_area(const struct rig *rig, const struct prompt *prompt, uint64_t first,
                      uint64_t count, uint32_t layer, enum dress dress, int64_t *slots);
/* The area's bytes are at the device from here on, and go with the desk; the last of a COLUMNS'
 * guard is not looked at. */
struct there *desk_to_device(struct desk *desk, struct area *area);

/* The store call, of one layer of the desk's request. */
spec_status desk_put(struct desk *desk, const struct spec_memory *memory, uint64_t first,
                     uint64_t count, uint32_t layer);
/* Stores a layer from the device and writes over the source at once, behind the call. */
spec_status desk_store_layer(struct desk *desk, uint64_t first, uint64_t count, uint32_t layer,
                             enum dress dress);
spec_status desk_store_host_layer(struct desk *desk, uint64_t first, uint64_t count,
                                  uint32_t layer);
/* All layers of the whole prompt, which are taken. */
void desk_store_pass(struct desk *desk, enum dress dress);

/* A pass whose sources are there before it begins: between its calls the host makes none. */
struct sources {
    struct area areas[DESK_LAYERS_MAX];
    int64_t *slots[DESK_LAYERS_MAX];
};
void sources_make(struct desk *desk, struct sources *sources, enum dress dress);
void sources_done(struct sources *sources);
/* The pass, and how it ended: as a call or the ticket says. */
spec_status sources_store(struct desk *desk, const struct sources *sources);

/* A lookup promises all of the prompt, and each layer of it is right. */
void desk_assert_read(struct desk *desk);
/* The desk's ticket says OK, and that holds. */
void desk_assert_stored(struct desk *desk);
/* Once all has come back: no save, flight or batch is anybody's. */
void desk_assert_idle(struct desk *desk);
/* The whole of it by host memory, in a request of its own. */
void desk_assert_goes_on(struct desk *desk);

#endif
