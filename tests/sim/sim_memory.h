/* Memory that tests give to connectors and stores: libc's, and under a sanitizer big blocks are
 * kept from one connector to a later one.
 *
 *   get -> in use -> put -> kept, and poisoned -> rest, rest -> get ...
 *
 * A connector has 50 to 270 megabytes in big blocks. A sanitizer gives them back to the system with
 * their shadow when they are freed, and the next connector's come page fault by page fault: half of
 * the time of ASan's stage was that.
 *
 * Holds: a kept block is poisoned (ASan), and was written when it was put (TSan sees who still
 * reads it); it is given again, to who wants just its size, after two calls of rest (when a
 * connector that was opened after its own has been closed too), or when 256 MiB have been put
 * behind it, as ASan's quarantine has it. Around it stands what malloc put there. Of more than a
 * gigabyte the oldest are freed.
 *
 * Does not: keep anything in a build without a sanitizer; count what is in use.
 *
 * Threads: any. Tests: tests/unit/sim/test_memory.c */
#ifndef SC_TESTS_SIM_SIM_MEMORY_H
#define SC_TESTS_SIM_SIM_MEMORY_H

#include "base/alloc.h"

/* As aligned_alloc; NULL: none. put is told the same size. */
void *sc_sim_memory_get(uint64_t bytes, uint64_t align_bytes);
void sc_sim_memory_put(void *block, uint64_t bytes);

/* A connector or a store has been closed, or could not be opened. */
void sc_sim_memory_rest(void);

/* As sc_alloc_init: an allocator of such memory. Without a sanitizer it is libc's own. */
void sc_sim_memory_alloc_init(struct sc_alloc *alloc);

#endif
