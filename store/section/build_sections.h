/* build_sections: builds sections that stored extents lack.
 * Tests: tests/unit/store/test_build.c, test_quant.c, test_reorder.c,
 * tests/fault/test_store_faults.c */
#ifndef SC_STORE_SECTION_BUILD_SECTIONS_H
#define SC_STORE_SECTION_BUILD_SECTIONS_H

#include "base/status.h"

struct sc_store;

bool sc_store_build_runs(const struct sc_store *store); /* space lock held */
/* Builds quantised rows of an extent whose inline quantisation was dropped; 0: only those of newer
 * extents. No lock held. */
void sc_store_build_missed(struct sc_store *store, uint64_t extent_id);
spec_status sc_store_build_open(struct sc_store *store, struct spec_error *reterr);
/* Stops the builder: no step is or will be posted once store->busy is 0. */
void sc_store_build_stop(struct sc_store *store);
void sc_store_build_close(struct sc_store *store);

#endif
