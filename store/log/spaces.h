/* Namespaces that the log has named, by id.
 *
 *   slabs   [slab 0][slab 1] ..   entries in the order of their ids, which ascend, with gaps
 *
 * Invariants: an entry never moves, and stays as long as the store is open, also when a checkpoint
 * has left its record out: what still refers to its id never finds another namespace. `next` only
 * rises, so no id is given twice under one numbering of ids.
 * Threads: changed under the log lock; found from any.
 * Tests: tests/unit/store/test_checkpoint.c, test_follow.c */
#ifndef SC_STORE_LOG_SPACES_H
#define SC_STORE_LOG_SPACES_H

#include "base/alloc.h"
#include "base/status.h"
#include "store/rows/where.h"

#define SC_STORE_SPACES_MAX  4096u /* namespaces that one log has records of */
#define SC_STORE_SPACE_SLABS 256u  /* of SC_STORE_SPACES_MAX: those that a process ever heard of */

struct sc_store_spaces {
    struct sc_alloc *alloc;
    struct sc_store_shape *_Atomic slabs[SC_STORE_SPACE_SLABS]; /* [SC_STORE_SPACES_MAX] each */
    _Atomic uint64_t entry_count;
    uint64_t record_count; /* that the log has records of */
    uint64_t record_bytes; /* of these, at most */
    uint64_t next;         /* the id that comes next */
};

bool sc_store_spaces_init(struct sc_store_spaces *spaces, struct sc_alloc *alloc);
void sc_store_spaces_done(struct sc_store_spaces *spaces);

/* NULL: no namespace of this id was heard of. */
struct sc_store_shape *sc_store_space_find(const struct sc_store_spaces *spaces, uint64_t id);
/* Likewise; one without layers, which is nobody's, instead of NULL. */
const struct sc_store_shape *sc_store_space_of(const struct sc_store_spaces *spaces, uint64_t id);
/* The i-th, i < entry_count. */
struct sc_store_shape *sc_store_space_at(const struct sc_store_spaces *spaces, uint64_t i);

/* Makes room for the next entry, with a record. Errors: `full`, where there may be no more records;
 * NO_MEMORY. */
spec_status sc_store_spaces_take(struct sc_store_spaces *spaces, spec_status full, const char *dir,
                                 struct spec_error *reterr);
/* No more entries can be added, whatever memory there is. */
bool sc_store_spaces_are_full(const struct sc_store_spaces *spaces);
/* Makes room for one more entry; false: no memory, or they are full. */
bool sc_store_spaces_reserve(struct sc_store_spaces *spaces);
/* Adds an entry, for which there is room, under an id of `next` or more. record_bytes: of its
 * record. */
struct sc_store_shape *sc_store_spaces_add(struct sc_store_spaces *spaces, uint64_t id,
                                           const struct sc_store_shape *shape,
                                           uint64_t record_bytes);
/* Whether a checkpoint may leave the record out, if nothing of the namespace is stored. */
static inline bool sc_store_space_may_leave(const struct sc_store_shape *shape)
{
    return !shape->is_own && !shape->is_left_out && shape->epoch == 0;
}

/* Namespaces of which nothing is stored, so that a checkpoint leaves their records out: not our
 * own, and none that was ever reset, because other ranks' rows may be of before that reset. Bytes
 * of their records; ret_count: how many there are. Log lock held. */
uint64_t sc_store_spaces_dead(const struct sc_store_spaces *spaces, uint64_t *ret_count);

/* Forgets all: ids are given anew. */
void sc_store_spaces_forget(struct sc_store_spaces *spaces);

#endif
