/* A model some of whose layers keep a state: what its layers have is a function of the prompt up to
 * where a pass ends, as rows are (plugin_fixture.h).
 *
 * Threads: any, but make, open and done. */
#ifndef SC_TESTS_UNIT_PLUGIN_HYBRID_FIXTURE_H
#define SC_TESTS_UNIT_PLUGIN_HYBRID_FIXTURE_H

#include "tests/unit/plugin/plugin_fixture.h"

#define HYBRID_LAYERS 6u

struct hybrid {
    struct rig rig;
    uint64_t state_bytes[HYBRID_LAYERS]; /* 0: rows */
    struct spec_layer_group groups[HYBRID_LAYERS];
    uint32_t layers[HYBRID_LAYERS];
};

/* 300, 0, 5000, 4999, 0, 700 bytes, beside rows of 64; the caller may set others before open. */
void hybrid_make(struct hybrid *hybrid, bool is_sim, const char *extra);
/* Another process, or rank, on the same disk. */
void hybrid_beside(struct hybrid *hybrid, const struct hybrid *first, uint32_t role, uint32_t rank);
spec_status hybrid_try_open(struct hybrid *hybrid);
void hybrid_open(struct hybrid *hybrid);

/* What the layer's state is where a pass ends at `end`. */
void hybrid_state(const struct hybrid *hybrid, const struct prompt *prompt, uint64_t end,
                  uint32_t layer, uint8_t *ret_bytes);
struct spec_memory hybrid_memory(const struct hybrid *hybrid, uint8_t *bytes, uint32_t layer);

/* A layer of the pass [first, first + count), computed on what the host says; of those with rows it
 * must be EXACT. */
spec_status hybrid_store_on(struct hybrid *hybrid, spec_request request,
                            const struct prompt *prompt, uint64_t first, uint64_t count,
                            uint32_t layer, uint32_t computed_on, spec_ticket *ret_ticket);
spec_status hybrid_store(struct hybrid *hybrid, spec_request request, const struct prompt *prompt,
                         uint64_t first, uint64_t count, uint32_t layer, spec_ticket *ret_ticket);
/* A lookup, and one pass from where it ends to the prompt's end; what its ticket says. */
spec_status hybrid_fill(struct hybrid *hybrid, const struct prompt *prompt);

/* Rows [from, end) of a layer, or its state at `end`: right, if it is OK. */
spec_status hybrid_load(struct hybrid *hybrid, spec_request request, const struct prompt *prompt,
                        uint64_t from, uint64_t end, uint32_t layer);
/* A lookup and all layers; returns where the match ends, every layer of which must come. */
uint64_t hybrid_read(struct hybrid *hybrid, const struct prompt *prompt);

#endif
