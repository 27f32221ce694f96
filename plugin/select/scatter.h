/* scatter: consumes reads. Rows are verified, copied to their places in the destination and
 * counted; a range that cannot be read ends the match.
 * Threads: the owner of the request's loads; range_fail: any that holds the request.
 * Tests: conformance (abi_040_* .. abi_071_*), tests/unit/plugin/test_load.c, test_select.c */
#ifndef SC_PLUGIN_SELECT_SCATTER_H
#define SC_PLUGIN_SELECT_SCATTER_H

#include "plugin/select/item.h"

/* ---- Failures -------------------------------------------------------------------------------- */

/* Returns true for tiers in memory. */
static inline bool sc_plugin_is_memory(uint32_t tier)
{
    return tier == SPEC_TIER_UPPER || tier == SPEC_TIER_HOST;
}

/* Drops the piece of a range that cannot be read or is damaged, unless it was read from memory.
 * Leaves the request unchanged. tier: SPEC_TIER_* at fault. */
void sc_plugin_range_fail(spec_connector *conn, const struct sc_plugin_request *request,
                          uint64_t range, spec_status why, uint32_t tier);
/* Ends the request's match at the range and drops the range as sc_plugin_range_fail does, unless a
 * reset has made the request stale. */
void sc_plugin_request_fail(spec_connector *conn, struct sc_plugin_request *request, uint64_t range,
                            spec_status why, uint32_t tier);

/* ---- Results --------------------------------------------------------------------------------- */

/* Returns how many of the item's rows were read from memory. */
static inline uint64_t sc_plugin_rows_from_host(const struct sc_plugin_item *item)
{
    return item->taken[SPEC_TIER_UPPER] + item->taken[SPEC_TIER_HOST];
}

/* Writes the item's tier_rows: `count` delivered rows, in the proportion of the rows taken. */
void sc_plugin_tiers_tell(struct sc_plugin_item *item, uint64_t count);
/* Adds the cost of a load that has ended to the item, its request and the connector. */
void sc_plugin_cost_add(spec_connector *conn, struct sc_plugin_item *item,
                        const struct sc_store_read_cost *cost);

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Returns how target functions copy the item's rows into its destination. */
struct sc_plugin_placing sc_plugin_placing_of(const spec_connector *conn,
                                              const struct sc_plugin_item *item);
/* Consumes a reader into the item's memory: row i of the layer to token i or, with a set, to the
 * row's rank in it. Adds its cost to the results. */
spec_status sc_plugin_reader_take(spec_connector *conn, struct sc_plugin_item *item,
                                  struct sc_plugin_reader *reader, const uint32_t *set,
                                  uint64_t set_count, struct spec_error *reterr);
/* Consumes the set's rows, prefetched ones first: each to its rank in the set or, in a layered
 * item, to its own place. */
spec_status sc_plugin_set_take(spec_connector *conn, struct sc_plugin_item *item,
                               struct spec_error *reterr);
/* Consumes the rows that were not prefetched, each to its own place. */
spec_status sc_plugin_rest_take(spec_connector *conn, struct sc_plugin_item *item,
                                struct spec_error *reterr);
/* Consumes every row, each to its own place. */
spec_status sc_plugin_all_take(spec_connector *conn, struct sc_plugin_item *item,
                               struct spec_error *reterr);

#endif
