/* Looking for what was erased in every byte of every file of a simulated disk.
 *
 * A fragment is 64 bytes, or the 16 bytes of four token ids that follow each other, as the log has
 * them. Fragments of few different bytes say nothing, and are left out.
 *
 * Holds: a fragment is found wherever it begins.
 * Threads: the test's. */
#ifndef SC_TESTS_SIM_FRAGMENTS_H
#define SC_TESTS_SIM_FRAGMENTS_H

#include "tests/sim/io_sim.h"

struct sc_sim_fragments;

struct sc_sim_fragments *sc_sim_fragments_new(void);
void sc_sim_fragments_free(struct sc_sim_fragments *fragments);
uint64_t sc_sim_fragments_count(const struct sc_sim_fragments *fragments);
/* Every 64 bytes of these, from each multiple of 64 on. */
void sc_sim_fragments_add(struct sc_sim_fragments *fragments, const uint8_t *bytes, uint64_t count);
/* Every four of these, which stand in one record. */
void sc_sim_fragments_add_tokens(struct sc_sim_fragments *fragments, const uint32_t *tokens,
                                 uint64_t count);
/* How many places of the disk's files have one; says where the first is. While nothing is in
 * flight. */
uint64_t sc_sim_fragments_found(const struct sc_sim_fragments *fragments,
                                struct sc_io_sim_disk *disk, char ret_where[160]);

#endif
