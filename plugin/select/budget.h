/* budget: how many rows of a layer an item wants, and whether its queries can score them.
 *
 *   configuration <- struct spec_select (what is given) -> struct sc_plugin_want: k of R rows
 *
 * Invariants: after the checks every address that scoring forms is inside what the host described.
 * Threads: any.
 * Tests: tests/unit/plugin/test_select.c, conformance (abi_061_*, abi_068_*) */
#ifndef SC_PLUGIN_SELECT_BUDGET_H
#define SC_PLUGIN_SELECT_BUDGET_H

#include "plugin/select/item.h"

struct sc_plugin_scratch;

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Returns true if the match is too short for selection (select.min_tokens, .min_share_ppm). lookup
 * asks once, so that all layers and passes of the request agree. */
bool sc_plugin_match_is_short(const spec_connector *conn, const struct sc_plugin_request *request);
/* Resolves item->want. Errors: INVALID, a structure of the host is wrong. */
spec_status sc_plugin_want_resolve(const spec_connector *conn, struct sc_plugin_item *item,
                                   struct spec_error *reterr);
/* Returns true if the configuration selects rows of this layer. */
bool sc_plugin_wants_some(const spec_connector *conn, const struct sc_plugin_request *request,
                          uint32_t layer);
/* Returns k and R of a layer by the configuration alone. */
struct sc_plugin_want sc_plugin_want_usual(const spec_connector *conn,
                                           const struct sc_plugin_request *request, uint32_t layer);
/* Resolves the want of an item of a bidirectional load: row_count 0 if it wants quantised rows,
 * else all rows. Errors: INVALID, select is not for it. */
spec_status sc_plugin_want_tail(const spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr);
/* Resolves the want of a refining item: row_count rows of the delivery's ranking, or of its own.
 * came_ahead, chooses: sc_plugin_refine_came_ahead, _chooses of the item. */
spec_status sc_plugin_want_refine(const spec_connector *conn, struct sc_plugin_item *item,
                                  bool came_ahead, bool chooses, struct spec_error *reterr);
/* Limits a delivery ahead (SPEC_ITEM_AHEAD) to rows that are selected without queries. */
void sc_plugin_want_ahead(struct sc_plugin_item *item);
/* Ranks the item's rows by its queries, if it has valid ones, even if its set is known without
 * them: the rows may be refined later. */
void sc_plugin_want_ranked(spec_connector *conn, struct sc_plugin_item *item);

/* ---- Queries --------------------------------------------------------------------------------- */

/* Reads the host's structure. Errors: INVALID, a reserved member is set. */
spec_status sc_plugin_queries_read(const struct spec_queries *host, const char *name,
                                   struct spec_queries *ret_queries, struct spec_error *reterr);
float sc_plugin_queries_scale(const spec_connector *conn, const struct spec_queries *queries);
/* Errors: INVALID, a member is wrong or rows reach beyond byte_count; for CUDA memory also those of
 * sc_plugin_afar_check. */
spec_status sc_plugin_queries_check(spec_connector *conn, const struct spec_queries *queries,
                                    const char *name, struct spec_error *reterr);
/* Returns the device location of checked queries; zero if they are in host memory. */
struct sc_plugin_afar sc_plugin_queries_afar(spec_connector *conn,
                                             const struct sc_plugin_request *request,
                                             const struct spec_queries *queries);

/* ---- Scoring --------------------------------------------------------------------------------- */

/* Checks whether the item can be scored as it wants, and sets item->scoring. */
spec_status sc_plugin_scoring_check(spec_connector *conn, struct sc_plugin_item *item,
                                    struct spec_error *reterr);
/* Records the host's streams: queries on a device are read after the work enqueued before this
 * call. */
void sc_plugin_scoring_begin(struct sc_plugin_item *item);
/* Returns the device slot that scores this request. */
uint32_t sc_plugin_request_slot(const spec_connector *conn,
                                const struct sc_plugin_request *request);
/* Copies queries and new keys from the device to the scratch's memory, for scoring on the CPU.
 * Waits for the host's streams. Errors: scoring.lost, which sc_plugin_scoring_fail returns too. */
spec_status sc_plugin_scoring_fetch(const struct sc_plugin_scratch *scratch,
                                    struct sc_plugin_item *item, struct spec_error *reterr);
/* Returns every step-th row of the item's queries in host memory, valid until the scratch is put or
 * receives others. Waits and fails as sc_plugin_scoring_fetch does. */
spec_status sc_plugin_scoring_sample(const struct sc_plugin_scratch *scratch,
                                     struct sc_plugin_item *item, uint64_t step,
                                     struct sc_kernels_queries *ret_queries,
                                     struct spec_error *reterr);
/* Returns scoring.lost, with its text. */
spec_status sc_plugin_scoring_fail(const spec_connector *conn, const struct sc_plugin_item *item,
                                   struct spec_error *reterr);

#endif
