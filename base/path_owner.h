/* Whose a file or directory of the store is: prompts and KV go where only we can put or change
 * them.
 *
 *   ours     its owner is the process's effective user, and neither group nor others may write it
 *   shared   anything else: refused with path, owner and mode (unless store.allow_shared)
 *
 * Holds: what is judged is what is open, not what has its name a moment later.
 * Does not: look at what lies above the store's directory, or at who may read.
 * Threads: any.
 * Tests: tests/unit/base/test_owner.c, tests/unit/plugin/test_hostile.c */
#ifndef SC_BASE_PATH_OWNER_H
#define SC_BASE_PATH_OWNER_H

#include "base/status.h"

#include <sys/stat.h>

/* SPEC_E_IO with EACCES where it is shared. path: for the text. */
spec_status sc_path_owner_check(const struct stat *about, const char *path,
                                struct spec_error *reterr);

/* The same of a directory; a symbolic link to it is followed. Nothing there: SPEC_OK. */
spec_status sc_path_owner_check_directory(const char *path, struct spec_error *reterr);

#endif
