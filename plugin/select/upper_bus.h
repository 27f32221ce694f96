/* The bus to a device, where host memory stands for one: what goes over it, and how long that takes
 * (upper_bytes, upper_bus_bytes_per_s; decision 0046).
 *
 *   rows that lie in the upper tier     nothing goes
 *   rows of host memory, of the disk    go when they are there, one behind the other: the load has
 *                                       ended when the last of its own is over
 *   the rest of a slab that rose        goes behind the load; nobody waits for it
 *
 * Holds: on a simulated clock a load ends no sooner than its rows are over. On a real one nobody
 * waits, since nothing moves: bytes and time are counted. Rows that go to a device go over the real
 * bus: nothing is charged, and what the upper tier had of them is of host memory.
 * Does not: know the other direction, which is free while this one is busy; look at deadlines.
 * Threads: any.
 * Tests: tests/unit/plugin/test_dual.c */
#ifndef SC_PLUGIN_SELECT_UPPER_BUS_H
#define SC_PLUGIN_SELECT_UPPER_BUS_H

#include "abi/spec_connector.h"

struct sc_plugin_item;

/* The store is open. */
void sc_plugin_bus_open(spec_connector *conn);
/* So many rows came for the item, from that tier (SPEC_TIER_*), each of so many bytes; they are
 * counted as taken. */
void sc_plugin_bus_took(spec_connector *conn, struct sc_plugin_item *item, uint32_t tier,
                        uint64_t rows, uint64_t row_bytes);
/* Nobody takes rows for the item any more. */
void sc_plugin_bus_end(spec_connector *conn, const struct sc_plugin_item *item);

#endif
