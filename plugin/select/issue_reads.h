/* What a request's readers read. Beginning is all that is done here: scatter.c consumes.
 *
 *   reader 0: layers 0 2 4 ...    whole, or rows of a guess, or all K of a split layout;
 *   reader 1: layers 1 3 5 ...    one while the other reads ahead
 *   reader 2 (the rest)           rows of a set that no guess brought
 *
 * Holds: beginning never waits; what a reader read before is given up.
 * Threads: the request's host thread, or whose turn its loads are; what is said of guesses also the
 * guess's task, while it has the turn of the reader of its parity (prefetch.c).
 * Tests: tests/unit/plugin/test_load.c, test_select.c, test_prediction.c */
#ifndef SC_PLUGIN_SELECT_ISSUE_READS_H
#define SC_PLUGIN_SELECT_ISSUE_READS_H

#include "plugin/connector.h"

/* Returns the first row of the match, counted from from_token, that the layer needs: tokens behind
 * the match do not see the rows before it. At most sc_plugin_row_total. */
uint64_t sc_plugin_row_first(const spec_connector *conn, const struct sc_plugin_request *request,
                             uint32_t layer);

/* Nothing that it reads is wanted any more. */
static inline void sc_plugin_reader_drop(struct sc_plugin_reader *reader)
{
    sc_store_reader_cancel(reader->reader);
    reader->layer = SC_PLUGIN_NO_LAYER;
}

/* Makes sure that the layer is being read whole; returns true when it was already. */
bool sc_plugin_layer_start(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                           enum sc_io_class io_class);
/* The layer's rows of ranges [first, end), whole, read ahead. */
void sc_plugin_part_begin(const struct sc_plugin_request *request, struct sc_plugin_reader *reader,
                          uint32_t layer, uint64_t first, uint64_t end);
/* K of all rows, or, where K and V lie together, all: what all heads are scored by. Returns true
 * when they were being read already. */
bool sc_plugin_heads_start(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                           enum sc_io_class io_class);

/* Ascending rows, K and V, as the configuration plans their reads. */
struct sc_store_gather_rows sc_plugin_gather_of(const spec_connector *conn, const uint32_t *rows,
                                                uint64_t count);
/* picks->rows stay as they are until the reader is consumed or begun anew. */
void sc_plugin_gather_begin(spec_connector *conn, struct sc_plugin_request *request,
                            struct sc_plugin_reader *reader, uint32_t layer,
                            const struct sc_store_gather_rows *gather, enum sc_io_class io_class);
/* The first `count` rows of the rest's reader, ascending; tags: of all the layer's rows. */
void sc_plugin_rest_begin(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                          uint64_t count, const uint64_t *tags, enum sc_io_class io_class);

/* The reader of this layer's guess, if one is being read; or NULL. */
struct sc_plugin_reader *sc_plugin_prefetch_reader(struct sc_plugin_request *request,
                                                   uint32_t layer);
/* Where a guess of the layer's rows, best first, shall be written; NULL: it is being read. */
uint32_t *sc_plugin_prefetch_rows(struct sc_plugin_request *request, uint32_t layer);
/* Begins reading the first `count` of `ranked` rows, whose deciles ascend: decile by decile, or,
 * where that would read the same pages again and again, in one ascending run. */
void sc_plugin_prefetch_begin(spec_connector *conn, struct sc_plugin_request *request,
                              uint32_t layer, uint64_t ranked, uint64_t count);
/* The same, planner `chunk`: the slabs of those rows, whole, the best decile's first, as far as
 * `bytes` go, so that who wants other rows of them has them too. bits: scratch, one a row. */
void sc_plugin_prefetch_begin_slabs(spec_connector *conn, struct sc_plugin_request *request,
                                    uint32_t layer, uint64_t ranked, uint64_t count, uint64_t bytes,
                                    uint64_t *bits);
/* Rows of all slabs in which a bit is set; ret_bits: NULL, or where their bits are set. */
uint64_t sc_plugin_slabs_of(const struct sc_plugin_request *request, const uint64_t *bits,
                            uint64_t *ret_bits);
/* Begins reading the layer's first `count` rows in one run (of a split layout K of all rows, if
 * those are all): heads are expected to disagree. */
void sc_plugin_prefetch_begin_run(spec_connector *conn, struct sc_plugin_request *request,
                                  uint32_t layer, uint64_t count);

#endif
