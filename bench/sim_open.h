/* sim_open: a connector on the simulated disk, for benchmark programs.
 *
 * Threads: one. Tests: none of its own; bench/run cut, cake, cache and overhead run it */
#ifndef BENCH_SIM_OPEN_H
#define BENCH_SIM_OPEN_H

#include "abi/spec_connector.h"

struct sc_io_sim_disk;

/* Opens a connector that writes; ends the program if that fails. The disk outlives it. */
spec_connector *bench_sim_open(struct sc_io_sim_disk *disk, const struct spec_model *model,
                               const char *config);

#endif
