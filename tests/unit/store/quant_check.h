/* Codes under test: an encoder that any row changes, and what codes of a match must be.
 *
 * Threads: one test thread beside the executor's. */
#ifndef SC_TESTS_UNIT_STORE_QUANT_CHECK_H
#define SC_TESTS_UNIT_STORE_QUANT_CHECK_H

#include "store/internal.h"
#include "tests/unit/store/selector_check.h"

#define SCALE_BYTES  24u
#define K_CODE_BYTES 48u
#define V_CODE_BYTES 16u

/* Scales are a sum over all rows, codes the first bytes of each; K of 15 in 16 slabs has codes.
 * user: the world. */
bool encode(void *user, const struct sc_store_encode *what);

void keep_quant(struct world *world, bool keeps);

/* What the encoder says of the rows of a twin that its piece can be asked for. */
bool expected(struct world *world, const struct world_piece *twin, uint32_t skip, uint32_t layer,
              uint32_t part, uint8_t *scales, uint8_t *codes);

/* Every range of the match has the codes that it should have, or none; returns how many have. */
uint64_t codes_check(struct world *world, const struct match *match, uint32_t skip, uint32_t layer,
                     bool k_alone, const struct sc_store_selector *selector);

void codes_load(const struct match *match, struct sc_store_selector *selector, uint32_t layer,
                bool k_alone);
uint64_t raw_count(struct world *world, const struct match *match, uint32_t layer);

/* Codes of all pieces of a key, but of raw ones; returns how many ranges have them. */
uint64_t key_check(struct world *world, uint64_t key, bool has_all);

/* After a write that failed the store takes nothing for a while. */
void pause_wait(struct world *world);

#endif
