/* path_owner: checks that only this user can place or change a file of the store, which has prompts
 * and KV.
 *
 *   ours    owned by the process's effective user; neither group nor others may write
 *   shared  anything else: refused with path, owner and mode (unless store.allow_shared)
 *
 * Invariants: the open file is judged, not its name. Parents of the store's directory and read
 * permissions are not checked.
 * Threads: any. Tests: tests/unit/base/test_owner.c, tests/unit/plugin/test_hostile.c */
#ifndef SC_BASE_PATH_OWNER_H
#define SC_BASE_PATH_OWNER_H

#include "base/status.h"

#include <sys/stat.h>

/* Returns SPEC_E_IO with EACCES if shared. path is for the text. */
spec_status sc_path_owner_check(const struct stat *about, const char *path,
                                struct spec_error *reterr);

/* As above for a directory; follows a symbolic link. SPEC_OK if it does not exist. */
spec_status sc_path_owner_check_directory(const char *path, struct spec_error *reterr);

#endif
