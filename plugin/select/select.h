/* Choosing rows of a layer: what an item wants, what its scores say, which rows are read for it.
 *
 *   item --budget.c--> want (k of R rows)      selector: probe rows, row tags   (two layers ahead)
 *                        \                        /
 *             row_scores.c: sums of importance; row_set.c: ranks -> sets -> one set, or one a head
 *                                  /                        \
 *           PICKS: rows of the set are read      HEADS: all rows come into the destination (of a
 *           (what a guess read ahead counts)     split layout K, then V of the union), each head is
 *                                                scored there and keeps its own
 *           UNION: a set a head, where all heads are probes: the union's rows are read, as of a set
 *           LAYERED: all rows as codes decode, the set's exactly (layered.c)
 *
 * Holds: what is chosen follows from the item's rows, its queries and the configuration alone; a
 * doubt (no selector, a damaged one, no memory for it) is DENSE: every row.
 * Does not: allocate after open; verify rows (the store does).
 * Threads: calls for one request do not overlap; a scratch is held while scores are computed.
 * Tests: tests/unit/plugin/test_select.c, test_prediction.c, conformance (abi_061_* .. abi_069_*)
 * */
#ifndef SC_PLUGIN_SELECT_SELECT_H
#define SC_PLUGIN_SELECT_SELECT_H

#include "base/exec.h"
#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;
struct sc_store_match_fetch_wants;

/* Some layer may be delivered with fewer than all rows. Once the configuration and the shape are
 * known. */
bool sc_plugin_can_select(const spec_connector *conn);
spec_status sc_plugin_select_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_select_close(spec_connector *conn);
/* Ends the request's selectors: their memory may be another's from then on. */
void sc_plugin_selectors_end(spec_connector *conn, struct sc_plugin_request *request);
/* Starts what the layer will certainly need: its selector where the configuration chooses rows; all
 * rows where it does not, or where all heads' keys are needed (with_rows). */
void sc_plugin_select_ahead(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            bool with_rows);
/* What loads of the request's match read, as the configuration has it. */
struct sc_store_match_fetch_wants
sc_plugin_host_prefetch_wants(const spec_connector *conn, const struct sc_plugin_request *request);
/* Decides item->route and starts its reads; row sets are computed here. An error is SPEC_E_TIMEOUT:
 * nothing was begun. */
spec_status sc_plugin_select_start(spec_connector *conn, struct sc_plugin_item *item,
                                   enum sc_io_class io_class, struct spec_error *reterr);
/* DENSE: every row into its place, and how many of them were there or on the way. */
spec_status sc_plugin_select_all(spec_connector *conn, struct sc_plugin_item *item,
                                 struct spec_error *reterr);
/* Consumes what was started (PICKS, HEADS) and writes the results. */
spec_status sc_plugin_select_finish(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr);
/* Chooses item->row_count rows by the item's queries into the request's set, and writes the scores
 * of all rows to item->ranking. If the codes cannot be read any more, the set is every row. false:
 * the deadline came first. */
bool sc_plugin_set_select(spec_connector *conn, struct sc_plugin_item *item);

#endif
