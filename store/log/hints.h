/* hints: what members tell each other in shared memory (hints.c). Losing or corrupting it costs
 * speed, never truth.
 *
 *   intents [1024]  hash of a chunk | who stores it, until when           16 KiB
 *   models  [16]    by a member's place: its namespace, when it was heard of,  4 KiB
 *                   the second of its coldest rows | what others ask it to evict
 *   asks    [1]     who can place nothing, and asks for segments
 *   uses    [n]     second of the last use, by the hash of a key          n by disk_bytes
 *
 * Threads: any; nothing blocks after open.
 * Tests: tests/unit/store/test_hints.c, test_many_writers.c */
#ifndef SC_STORE_LOG_HINTS_H
#define SC_STORE_LOG_HINTS_H

#include "base/status.h"
#include "store/log/members.h"

#include <stdbool.h>
#include <stdint.h>

struct sc_store;

/* Returns the file's size for a store of this disk_bytes, which is counted in them. */
uint64_t sc_store_hints_bytes(uint64_t disk_bytes);
/* Maps the rank's hints; a member without them goes on alone. */
void sc_store_hints_open(struct sc_store *store);
void sc_store_hints_close(struct sc_store *store);
/* Namespaces of other living members. */
struct sc_store_living {
    uint64_t digests[SC_STORE_MEMBERS_MAX]; /* [count] their first 8 bytes */
    uint32_t count;
    uint64_t sum; /* differs if others live */
};
void sc_store_models_living(const struct sc_store *store, struct sc_store_living *ret_living);
bool sc_store_model_lives(const struct sc_store_living *living, const uint8_t *digest);
/* Says that this member can place nothing in the segments that it can claim. Forgotten soon. */
void sc_store_claims_ask(struct sc_store *store);
/* Returns true if another member asks. To one that asks itself, only those of a lower place count,
 * so that two do not wait for each other's. */
bool sc_store_claims_asked(const struct sc_store *store, bool asks);

/* Removes a file that is longer than what is counted: that of a larger disk_bytes, or of members
 * that were here before one writer. For the only process of the rank. */
void sc_store_hints_trim(struct sc_store *store);

#endif
