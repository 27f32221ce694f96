/* object_member: how a process joins others that store objects into one log (object_member.c).
 * Threads: open.
 * Tests: tests/unit/plugin/test_objects_members.c */
#ifndef SC_STORE_OBJECT_OBJECT_MEMBER_H
#define SC_STORE_OBJECT_OBJECT_MEMBER_H

#include "base/status.h"

struct sc_store;

/* Takes the writer's lock together with others, and a place among the members. LOCKED: another
 * process has the store alone, or nobody is here any more. BUSY: 16 are here. */
spec_status sc_store_object_join(struct sc_store *store, struct spec_error *reterr);
/* The log has no head yet, or it is lost: the next checkpoint, and the seal before it, need one. */
void sc_store_object_head_make(struct sc_store *store);
/* Reads the log on to its end, and begins to append. LOCKED: nobody left it so that others may. */
spec_status sc_store_object_joined(struct sc_store *store, struct spec_error *reterr);

#endif
