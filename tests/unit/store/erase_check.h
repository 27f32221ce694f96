/* Storing under salts, and erasing; fragments (tests/sim/fragments.h) of what is to go: all that
 * the disk has of an erased extent, its rows, tags, codes and other sections, and token ids.
 *
 * Threads: the test's. */
#ifndef SC_TESTS_UNIT_STORE_ERASE_CHECK_H
#define SC_TESTS_UNIT_STORE_ERASE_CHECK_H

#include "store/erase.h"
#include "tests/sim/fragments.h"
#include "tests/unit/store/store_fixture.h"

/* All that the open writer's disk has of the extents that the erasure covers. */
void fragments_plant(struct sc_sim_fragments *fragments, const struct world *world,
                     const struct sc_store_erasure *what);
/* Token ids [0, count) of a key. */
void fragments_plant_tokens(struct sc_sim_fragments *fragments, uint64_t key, uint64_t count);

/* What is stored under the salt with this number; 0: under none; 1 .. */
struct sc_store_salt salt_of(uint64_t number);
struct sc_store_erasure erasure_of_salt(uint64_t number);
#define ERASE_ALL ((struct sc_store_erasure){.is_all = true})
/* Stores rows [0, rows) of a key under the salt. */
spec_status world_store_salted(struct world *world, uint64_t key, uint32_t rows,
                               struct sc_store_salt salt);
/* The open writer hears of intents and carries them out; the first status that is no success, once
 * it has been tried `tries` times. */
spec_status world_erase(struct world *world, uint32_t tries);

#endif
