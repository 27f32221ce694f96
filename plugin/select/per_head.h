/* per_head: a set per head, if the selector has the keys of every head. The union of the sets is
 * read, then each head keeps its own rows.
 * Threads: the owner of the request's loads.
 * Tests: tests/unit/plugin/test_select.c, conformance (abi_065_*) */
#ifndef SC_PLUGIN_SELECT_PER_HEAD_H
#define SC_PLUGIN_SELECT_PER_HEAD_H

#include "plugin/connector.h"

struct sc_plugin_item;

/* Returns true if the selector has the keys of every head. */
static inline bool sc_plugin_probes_are_all(const spec_connector *conn)
{
    return conn->choice.probe_heads == conn->shape.kv_head_count;
}

/* Makes the union of the heads' sets (bits) the item's set, and PER_HEAD its route. */
void sc_plugin_per_head_of(const spec_connector *conn, const uint64_t *sets,
                           struct sc_plugin_item *item);
/* Moves each head's rows down, after the union's rows were copied to the destination. */
void sc_plugin_per_head_part(const spec_connector *conn, struct sc_plugin_item *item);

#endif
