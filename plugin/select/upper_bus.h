/* upper_bus: models the bus to a device whose memory is host memory here (upper_bytes,
 * upper_bus_bytes_per_s; decision 0046).
 *
 *   rows in the upper tier            are not sent
 *   rows of host memory or the disk   are sent in order; a load ends when its last row has crossed
 *   the rest of a promoted slab       is sent after the load; nobody waits for it
 *
 * Invariants: on a simulated clock a load ends no sooner than its rows have crossed. On a real
 * clock nobody waits, because nothing moves: bytes and time are counted. Rows for a real device
 * cross the real bus: nothing is charged, and their upper tier counts as host memory.
 * Limits: one direction; ignores deadlines.
 * Threads: any.
 * Tests: tests/unit/plugin/test_dual.c */
#ifndef SC_PLUGIN_SELECT_UPPER_BUS_H
#define SC_PLUGIN_SELECT_UPPER_BUS_H

#include "abi/spec_connector.h"

struct sc_plugin_item;

/* Opens the bus; the store is open. */
void sc_plugin_bus_open(spec_connector *conn);
/* Counts rows of row_bytes each that the item read from a tier (SPEC_TIER_*), and charges the
 * bus. */
void sc_plugin_bus_took(spec_connector *conn, struct sc_plugin_item *item, uint32_t tier,
                        uint64_t rows, uint64_t row_bytes);
/* Ends the item's transfers, after its last row was read. On a simulated clock waits for them. */
void sc_plugin_bus_end(spec_connector *conn, const struct sc_plugin_item *item);

#endif
