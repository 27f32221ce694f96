/* scratch: memory in which rows are scored and ranked; a few scratches, made at open.
 * Invariants: callers block until a scratch is returned; holders never block, so there is no
 * deadlock.
 * Threads: any; a scratch has one holder at a time.
 * Tests: tests/unit/plugin/test_request_memory.c, test_select.c */
#ifndef SC_PLUGIN_SELECT_SCRATCH_H
#define SC_PLUGIN_SELECT_SCRATCH_H

#include "base/status.h"
#include "kernels/importance.h"

struct sc_plugin_item;

/* Heads scored in one pass: 2 KiB of a row at 128 16-bit values per head. */
#define SC_PLUGIN_HEADS_TOGETHER 8u

struct sc_plugin_scratch {
    spec_connector *conn;
    uint8_t *importance; /* sc_kernels_importance's */
    float *sums;         /* [heads + 1][rows] sums of each probe head, then their total; or sums of
                          * up to SC_PLUGIN_HEADS_TOGETHER heads */
    float *scores;       /* [rows] sums as they are ranked */
    float *granules;     /* [rows] */
    uint64_t *sets;      /* [2 * probe_heads + 2] sets of rows, as bits: each probe head's, the
                          * voted one, and what voting needs */
    uint64_t *ranked;    /* [2 * rows] */
    struct sc_kernels_slab *slabs; /* [segments of a match], if quantised rows are read */
};

/* The number of scratches that open makes. */
uint32_t sc_plugin_scratch_count(const spec_connector *conn);
/* Errors: NO_MEMORY. */
spec_status sc_plugin_scratches_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_scratches_close(spec_connector *conn);
/* Takes a scratch for so many rows: those of the match, or of new keys if more. Waits until the
 * deadline, then returns NULL. */
struct sc_plugin_scratch *sc_plugin_scratch_take(spec_connector *conn, uint64_t rows,
                                                 uint64_t deadline_ns);
/* Takes a scratch for an item whose queries are checked, until the item's deadline. */
struct sc_plugin_scratch *sc_plugin_scratch_take_for(spec_connector *conn,
                                                     const struct sc_plugin_item *item);
void sc_plugin_scratch_put(const struct sc_plugin_scratch *scratch);

#endif
