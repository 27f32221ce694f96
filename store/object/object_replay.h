/* object_replay: applies the records of objects, at open and while other processes append.
 *
 *   record -> domain, objects, removal, clear: callbacks (object.h)
 *          -> segment, limits, seal: of stores with members (store/replay/replay_segments.c)
 *
 * Removals name copies; a table maps each copy to the caller's mark. A record that a checkpoint
 * copied may name a copy that is known already, which is skipped.
 *
 * Invariants: a record that does not fit is counted and skipped at open. Beside others it ends this
 * process's storing: its map of pages is not theirs any more.
 * Threads: open; then the turn is held (store/log/turn.h).
 * Tests: tests/unit/store/test_object_log.c, tests/unit/plugin/test_objects_members.c */
#ifndef SC_STORE_OBJECT_OBJECT_REPLAY_H
#define SC_STORE_OBJECT_OBJECT_REPLAY_H

#include "store/object/object_record.h"
#include "store/replay/follow.h"

struct sc_store_object_replay;

/* Hooks of following (store/replay/follow.h). */
extern const struct sc_store_follow_calls sc_store_object_follow_calls;

spec_status sc_store_object_replay_open(struct sc_store *store,
                                        const struct sc_store_objects_params *params,
                                        struct spec_error *reterr);
void sc_store_object_replay_close(struct sc_store *store);
/* For sc_store_journal_scan. */
spec_status sc_store_object_replay_record(struct sc_store *store,
                                          const struct sc_store_payload *payload, void *user,
                                          struct spec_error *reterr);
/* Writes what a scan found. */
void sc_store_object_replay_tell(const struct sc_store *store,
                                 struct sc_store_objects_found *ret_found);
/* This process has logged objects, with their marks, for which log_room made room; or removals.
 * Beside others a later removal of theirs names the copy. Errors: NO_MEMORY. */
spec_status sc_store_object_log_room(struct sc_store *store, uint32_t count,
                                     struct spec_error *reterr);
void sc_store_object_logged(struct sc_store *store, const struct sc_store_object *objects,
                            uint32_t count);
void sc_store_object_unlogged(struct sc_store *store, const uint64_t *copies, uint64_t count);

#endif
