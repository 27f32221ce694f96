/* A match that is computed from its front while it is loaded from its back, and who wrote what of
 * it: what is "computed" is the rows' bits turned over.
 *
 *   desk   a request, a destination of each layer: plain memory, or a device's, which the host
 *          writes by its stream
 *
 * Holds: at check, rows that were told as loaded are what was stored, in every layer, or as many as
 * told what their quantised rows decode to; rows that were given out are as the host wrote them;
 * guards stay.
 * Threads: next may run beside wait; the rest one. */
#ifndef SC_TESTS_UNIT_PLUGIN_TAIL_DESK_H
#define SC_TESTS_UNIT_PLUGIN_TAIL_DESK_H

#include "tests/unit/plugin/plugin_fixture.h"

#define DESK_LAYERS 5u

struct tail_desk {
    struct rig *rig;
    const struct prompt *prompt;
    spec_request request;
    spec_ticket ticket;
    uint64_t from, rows, front; /* front: of the rows */
    struct area areas[DESK_LAYERS];
    uint8_t *bases[DESK_LAYERS][2]; /* of K and V, as they stand in the areas */
    int64_t *slots; /* [rows]: where a row stands, negative: nowhere; NULL: each at its place */
    struct spec_important items[DESK_LAYERS];
    uint32_t bits_k,
        bits_v; /* loaded rows may be quantised uniformly, in slabs of chunk_tokens; 0: all
                              * are exact */
    /* NULL: plain memory. What stands at `at` of the layer's area, K or V of a row, goes to where
     * the destination is. */
    void (*put)(struct tail_desk *desk, uint32_t layer, const uint8_t *at);
    void *user;
};

/* The first max_tokens of the prompt, from from_token on. */
void tail_desk_look(struct tail_desk *desk, struct rig *rig, const struct prompt *prompt,
                    uint64_t from_token, uint64_t max_tokens);
/* Rows stand the other way round, in blocks; each skipped-th (0: none) nowhere. Before submit. */
void tail_desk_dress(struct tail_desk *desk, uint64_t skipped);
/* Releases the request, if it still is one. */
void tail_desk_leave(struct tail_desk *desk);
spec_status tail_desk_submit(struct tail_desk *desk);
spec_status tail_desk_wait(struct tail_desk *desk, uint64_t timeout_ns);
/* The next range, which is computed; false: MET, or (STALE is told by ret_status) none. */
bool tail_desk_next(struct tail_desk *desk, uint64_t budget, spec_status *ret_status);
/* Of all items alike; the areas have what stands in the destinations. Returns how many rows. */
uint64_t tail_desk_check(struct tail_desk *desk);
/* The same, of so many rows that are loaded. */
void tail_desk_compare(struct tail_desk *desk, uint64_t loaded);

#endif
