/* issue_reads: begins the reads of a request's readers; scatter.c consumes them.
 *
 *   reader 0: layers 0 2 4 ..    whole layers, predicted rows, or all K of a split layout;
 *   reader 1: layers 1 3 5 ..    one is consumed while the other reads ahead
 *   reader 2 (SC_PLUGIN_REST)    rows of a set that were not prefetched
 *
 * Invariants: no call waits. A new read cancels the reader's earlier one.
 * Threads: the owner of the request's loads; prefetch calls also from the prediction's task, while
 * it owns the reader of its parity (prefetch.c).
 * Tests: tests/unit/plugin/test_load.c, test_select.c, test_prefetch.c */
#ifndef SC_PLUGIN_SELECT_ISSUE_READS_H
#define SC_PLUGIN_SELECT_ISSUE_READS_H

#include "plugin/connector.h"

/* Returns the first row, counted from from_token, that the layer needs: tokens after the match do
 * not attend to rows before it. At most sc_plugin_row_total. */
uint64_t sc_plugin_row_first(const spec_connector *conn, const struct sc_plugin_request *request,
                             uint32_t layer);

/* Cancels the reader's reads. */
static inline void sc_plugin_reader_drop(struct sc_plugin_reader *reader)
{
    sc_store_reader_cancel(reader->reader);
    reader->layer = SC_PLUGIN_NO_LAYER;
}

/* Begins to read the whole layer unless it is being read; returns true if it was. */
bool sc_plugin_layer_start(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                           enum sc_io_class io_class);
/* Begins to read the layer's rows of ranges [first, end) ahead. */
void sc_plugin_part_begin(const struct sc_plugin_request *request, struct sc_plugin_reader *reader,
                          uint32_t layer, uint64_t first, uint64_t end);
/* Begins to read what all heads are scored by: K of all rows, or all rows of a paired layout.
 * Returns true if that was being read already. */
bool sc_plugin_heads_start(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                           enum sc_io_class io_class);

/* Returns a gather of ascending rows, K and V, with the configured planner. */
struct sc_store_gather_rows sc_plugin_gather_of(const spec_connector *conn, const uint32_t *rows,
                                                uint64_t count);
/* gather->rows must not change until the reader is consumed or begun again. */
void sc_plugin_gather_begin(spec_connector *conn, struct sc_plugin_request *request,
                            struct sc_plugin_reader *reader, uint32_t layer,
                            const struct sc_store_gather_rows *gather, enum sc_io_class io_class);
/* Begins to read the first `count` rows of the rest reader's list, ascending. tags: of all rows of
 * the layer. */
void sc_plugin_rest_begin(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                          uint64_t count, const uint64_t *tags, enum sc_io_class io_class);

/* Returns the reader of the layer's predicted rows; NULL if none are being read. */
struct sc_plugin_reader *sc_plugin_prefetch_reader(struct sc_plugin_request *request,
                                                   uint32_t layer);
/* Returns the list for the layer's predicted rows, best first; NULL if the layer is being read. */
uint32_t *sc_plugin_prefetch_rows(struct sc_plugin_request *request, uint32_t layer);
/* Begins to read the first `count` of `ranked` rows, whose deciles ascend: decile by decile or, if
 * that would read the same pages repeatedly, in one ascending run. */
void sc_plugin_prefetch_begin(spec_connector *conn, struct sc_plugin_request *request,
                              uint32_t layer, uint64_t ranked, uint64_t count);
/* Does the same with planner `chunk`: whole slabs of those rows, the best decile's first, up to
 * `bytes`. bits: scratch, one per row. */
void sc_plugin_prefetch_begin_slabs(spec_connector *conn, struct sc_plugin_request *request,
                                    uint32_t layer, uint64_t ranked, uint64_t count, uint64_t bytes,
                                    uint64_t *bits);
/* Returns the number of rows in slabs with a set bit. ret_bits: NULL, or where to set their
 * bits. */
uint64_t sc_plugin_slabs_of(const struct sc_plugin_request *request, const uint64_t *bits,
                            uint64_t *ret_bits);
/* Begins to read the layer's first `count` rows in one run, because heads are expected to disagree.
 * Split layout: K of all rows, if `count` is all rows. */
void sc_plugin_prefetch_begin_run(spec_connector *conn, struct sc_plugin_request *request,
                                  uint32_t layer, uint64_t count);

#endif
