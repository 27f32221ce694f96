/* A connector on a simulated disk, in the executor's seeded loop: a run depends on its seeds alone.
 *
 * Its configuration has one group more than docs/reference/config.md lists. A shipped connector
 * refuses it as an unknown key:
 *
 *   "sim": {"bytes_per_s": 5000000000, "op_ns": 80000, "ops_per_s": 0, "seed": 1}
 *
 * These are what holds where it, or a member, is not given; 0 bytes or operations a second: no
 * limit; seed: the order of background steps.
 *
 * Threads: one, as the loop wants it (base/exec.h).
 * Tests: all that include tests/unit/plugin/plugin_fixture.h */
#ifndef SC_TESTS_SIM_SIM_CONNECTOR_H
#define SC_TESTS_SIM_SIM_CONNECTOR_H

#include "plugin/connector.h"
#include "tests/sim/io_sim.h"

#include <stdbool.h>

/* Whether a configuration is JSON text that has the group. */
bool sc_sim_connector_is_meant(const char *config);

/* sc_plugin_open on the disk, which outlives the connector; the disk is like the group says from
 * then on. Errors: also SPEC_E_CONFIG (the group). */
spec_status sc_sim_connector_open(const struct spec_open_params *params,
                                  struct sc_io_sim_disk *disk, spec_connector **ret_conn,
                                  struct spec_error *reterr);

#endif
