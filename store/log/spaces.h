/* spaces: namespaces that the log has named, by id.
 *
 *   slabs   [slab 0][slab 1] ..   entries in the order of their ids, which ascend, with gaps
 *
 * Invariants: an entry never moves and stays until close, even if a checkpoint drops its record, so
 * an id never finds another namespace. `next` never decreases: no id is given twice under one
 * numbering.
 * Threads: changed under the log lock; found from any thread.
 * Tests: tests/unit/store/test_checkpoint.c, test_follow.c */
#ifndef SC_STORE_LOG_SPACES_H
#define SC_STORE_LOG_SPACES_H

#include "base/alloc.h"
#include "base/status.h"
#include "store/log/where.h"

#define SC_STORE_SPACES_MAX  4096u /* namespaces with a record in one log */
#define SC_STORE_SPACE_SLABS 256u  /* of SC_STORE_SPACES_MAX; namespaces seen since open */

struct sc_store_spaces {
    struct sc_alloc *alloc;
    struct sc_store_shape *_Atomic slabs[SC_STORE_SPACE_SLABS]; /* [SC_STORE_SPACES_MAX] each */
    _Atomic uint64_t entry_count;
    uint64_t record_count; /* namespaces with a record in the log */
    uint64_t record_bytes; /* their records' bytes, at most */
    uint64_t next;         /* next id */
};

bool sc_store_spaces_init(struct sc_store_spaces *spaces, struct sc_alloc *alloc);
void sc_store_spaces_done(struct sc_store_spaces *spaces);

/* NULL: unknown id. */
struct sc_store_shape *sc_store_space_find(const struct sc_store_spaces *spaces, uint64_t id);
/* The same; a shape without layers instead of NULL. */
const struct sc_store_shape *sc_store_space_of(const struct sc_store_spaces *spaces, uint64_t id);
/* The i-th entry, i < entry_count. */
struct sc_store_shape *sc_store_space_at(const struct sc_store_spaces *spaces, uint64_t i);

/* Reserves the next entry and its record. Errors: `full` (too many records), NO_MEMORY. */
spec_status sc_store_spaces_take(struct sc_store_spaces *spaces, spec_status full, const char *dir,
                                 struct spec_error *reterr);
/* Returns true if no entry can be added. */
bool sc_store_spaces_are_full(const struct sc_store_spaces *spaces);
/* Reserves one more entry; false: no memory, or full. */
bool sc_store_spaces_reserve(struct sc_store_spaces *spaces);
/* Adds a reserved entry under an id >= `next`. record_bytes: its record's size. */
struct sc_store_shape *sc_store_spaces_add(struct sc_store_spaces *spaces, uint64_t id,
                                           const struct sc_store_shape *shape,
                                           uint64_t record_bytes);
/* Returns true if a checkpoint may drop the record once nothing of the namespace is stored. */
static inline bool sc_store_space_may_leave(const struct sc_store_shape *shape)
{
    return !shape->is_own && !shape->is_left_out && shape->epoch == 0;
}

/* Returns the record bytes of namespaces that a checkpoint would drop: nothing stored, not our own,
 * never reset (other ranks may hold rows from before a reset). Log lock held. */
uint64_t sc_store_spaces_dead(const struct sc_store_spaces *spaces, uint64_t *ret_count);

/* Forgets all entries, for a new numbering of ids. */
void sc_store_spaces_forget(struct sc_store_spaces *spaces);

#endif
