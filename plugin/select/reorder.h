/* reorder: what the store asks before it permutes rows (docs/decisions/0045).
 * Threads: the executor's.
 * Tests: tests/unit/plugin/test_reorder.c, conformance (abi_207_*) */
#ifndef SC_PLUGIN_SELECT_REORDER_H
#define SC_PLUGIN_SELECT_REORDER_H

#include "abi/spec_connector.h"

#include <stdbool.h>
#include <stdint.h>

struct sc_store_range;

#define SC_PLUGIN_SPAN_ROWS 1024u /* rows; reorder.scope span */

/* Callbacks of sc_store_permutation. user: the connector. */
bool sc_plugin_reorder_scores(void *user, const struct sc_store_range *ranges, uint64_t range_count,
                              uint32_t layer, float *ret_scores);
uint64_t sc_plugin_reorder_requests(void *user, const struct sc_store_range *ranges,
                                    uint64_t range_count);
uint64_t sc_plugin_reorder_moment(void *user);
bool sc_plugin_reorder_is_quiet(void *user, uint64_t moment);
/* Begins a permutation that is due. Called by the tick. */
void sc_plugin_reorder_tick(spec_connector *conn);

#endif
