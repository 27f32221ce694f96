/* hints: what members tell each other in shared memory (hints.c). Losing or corrupting it costs
 * speed, never truth.
 *
 *   intents [1024]  hash of a chunk | who stores it, until when           16 KiB
 *   uses    [n]     second of the last use, by the hash of a key          n by disk_bytes
 *
 * Threads: any; nothing blocks after open.
 * Tests: tests/unit/store/test_hints.c, test_many_writers.c */
#ifndef SC_STORE_LOG_HINTS_H
#define SC_STORE_LOG_HINTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct sc_store;

/* Returns the file's size for a store of this disk_bytes, which is counted in them. */
uint64_t sc_store_hints_bytes(uint64_t disk_bytes);
/* Maps the rank's hints; a member without them goes on alone. */
void sc_store_hints_open(struct sc_store *store);
void sc_store_hints_close(struct sc_store *store);
/* Removes a file that is longer than what is counted: that of a larger disk_bytes, or of members
 * that were here before one writer. For the only process of the rank. */
void sc_store_hints_trim(struct sc_store *store);

#endif
