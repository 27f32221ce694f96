/* select: selects rows of a layer by their importance and reads them.
 *
 *   item --budget.c--> want (k of R rows)     selector: keys, row tags    (read two layers ahead)
 *                         \                     /
 *        row_scores.c: sums of importance;  row_set.c: one set, or one per head
 *                                 |
 *   GATHER     the set's rows are read; prefetched rows count
 *   PER_HEAD   the selector has all heads' keys: the union of the heads' sets is read
 *   HEADS      all rows are read (split layout: K, then V of the union); each head is scored in the
 *              destination and keeps its own rows. Keys may go first (keys_first.h): then the probe
 *              heads are compared there, and one set is possible
 *   LAYERED    all rows are decoded from quantised rows, the set's are read exactly (layered.c)
 *   DENSE      every row is read: no selector, a damaged one, or no memory for it
 *
 * Invariants: a set depends on the item's rows, its queries and the configuration alone.
 * Limits: allocates nothing after open.
 * Threads: calls for one request do not overlap; a scratch is held while scores are computed.
 * Tests: tests/unit/plugin/test_select.c, test_prefetch.c, conformance (abi_061_* .. abi_069_*) */
#ifndef SC_PLUGIN_SELECT_SELECT_H
#define SC_PLUGIN_SELECT_SELECT_H

#include "base/exec.h"
#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;
struct sc_store_match_fetch_wants;

/* Returns true if some layer may be delivered with fewer than all rows. The configuration and the
 * shape must be known. */
bool sc_plugin_can_select(const spec_connector *conn);
spec_status sc_plugin_select_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_select_close(spec_connector *conn);
/* Ends the request's selectors; their memory may be reused afterwards. */
void sc_plugin_selectors_end(spec_connector *conn, struct sc_plugin_request *request);
/* Begins what the layer certainly needs: its selector, if the configuration selects rows; all rows
 * (with_rows), if it does not, or if all heads' keys are needed. */
void sc_plugin_select_ahead(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            bool with_rows);
/* The same for the selector of an item that selects rows. */
void sc_plugin_select_item_ahead(spec_connector *conn, const struct sc_plugin_item *item);
/* Begins to read quantised rows of ranges [first, end) of a layer with the request's selector `i`,
 * which no other load may use until sc_plugin_selectors_end. Returns NULL if it is not
 * available. */
struct sc_store_selector *sc_plugin_quant_part_begin(spec_connector *conn,
                                                     struct sc_plugin_request *request, uint32_t i,
                                                     uint32_t layer, uint64_t first, uint64_t end);
/* Returns what loads of the request's match read by the configuration. */
struct sc_store_match_fetch_wants
sc_plugin_host_prefetch_wants(const spec_connector *conn, const struct sc_plugin_request *request);
/* Selects rows, sets item->route and begins the reads. Errors: TIMEOUT and those of
 * sc_plugin_scoring_fetch; no reads of rows were begun. */
spec_status sc_plugin_select_start(spec_connector *conn, struct sc_plugin_item *item,
                                   enum sc_io_class io_class, struct spec_error *reterr);
/* Consumes every row into its place, and sets item->covered_rows. */
spec_status sc_plugin_select_all(spec_connector *conn, struct sc_plugin_item *item,
                                 struct spec_error *reterr);
/* Consumes what was started (GATHER, PER_HEAD, HEADS, LAYERED) and writes the results. */
spec_status sc_plugin_select_finish(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr);
/* Selects item->row_count rows by the item's queries into the request's set, and writes all rows'
 * scores to item->ranking. If the quantised rows are no longer available, the set is every row and
 * item->ranking NULL. Returns false after the deadline or a failed copy from the device. */
bool sc_plugin_set_select(spec_connector *conn, struct sc_plugin_item *item);

#endif
