/* keys_first: what a layer of the split layout reads first to select rows by probe heads.
 *
 *   probes first   P, then of the set K and V; after a fallback K of all rows, then V of the union
 *   keys first     K of all rows, which contains P; then V of the set or of the union
 *
 * The keys go first where that is expected to read less. With P, K: bytes of all rows' probe keys
 * and keys, f: the share of selections that fell back, rho: the share of rows that are selected:
 *
 *   P + f K + (1 - f) rho K  >  K
 *
 * So no probe key is read twice where fallbacks are frequent or probe heads are most of the heads.
 *
 * Invariants: sets and results do not depend on the order.
 * Threads: any; a lost update loses one measurement.
 * Tests: tests/unit/plugin/test_keys_first.c, conformance (abi_227_*) */
#ifndef SC_PLUGIN_SELECT_KEYS_FIRST_H
#define SC_PLUGIN_SELECT_KEYS_FIRST_H

#include "base/status.h"

struct sc_plugin_want;

/* Errors: NO_MEMORY. */
spec_status sc_plugin_keys_first_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_keys_first_close(spec_connector *conn);
/* Records whether a layer's probe heads disagreed. */
void sc_plugin_keys_first_learn(spec_connector *conn, uint32_t layer, bool fell_back);
/* Returns true if the layer's keys go first to select the wanted rows. */
bool sc_plugin_keys_go_first(const spec_connector *conn, uint32_t layer,
                             const struct sc_plugin_want *want);

#endif
