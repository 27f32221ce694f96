/* members: the processes that store, or may (members.c).
 *
 *   rank-RRRR-of-NNNN/members   [line of a process, 256 bytes][line] ...   16 places
 *
 * A writer and every AUTO process beside it have a place each, locked while they live. Readers have
 * none: they write nothing.
 * Threads: open, and the thread that follows.
 * Tests: tests/unit/store/test_members.c */
#ifndef SC_STORE_LOG_MEMBERS_H
#define SC_STORE_LOG_MEMBERS_H

#include "base/status.h"

struct sc_store;

#define SC_STORE_MEMBERS_MAX 16u

/* Takes a place, if the rank's directory is there and this process may store; else no effect.
 * Errors: LOCKED, all are taken; IO with EACCES, the file is not ours (base/path_owner.h). */
spec_status sc_store_members_join(struct sc_store *store, struct spec_error *reterr);
void sc_store_members_leave(struct sc_store *store);
/* Returns the living members of this rank, this process included; at least 1. */
uint32_t sc_store_members_count(struct sc_store *store);

#endif
