/* hints: what members tell each other in shared memory (hints.c). Losing or corrupting it costs
 * speed, never truth.
 *
 *   intents [1024]  hash of a chunk | who stores it, until when
 *
 * Threads: any; nothing blocks after open.
 * Tests: tests/unit/store/test_many_writers.c */
#ifndef SC_STORE_LOG_HINTS_H
#define SC_STORE_LOG_HINTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct sc_store;

/* Maps the rank's hints; a member without them goes on alone. */
void sc_store_hints_open(struct sc_store *store);
void sc_store_hints_close(struct sc_store *store);

#endif
