/* Contract: members.h. Places are only counted and shown: what a process may do is decided by the
 * writer's lock. So a file that cannot be made or locked is no error; one of another owner is, as
 * every file in the directory. */
#include "store/log/members.h"
#include "store/internal.h"

#include <errno.h>
#include <stdio.h>

#define MEMBERS_NAME "members"

spec_status sc_store_members_join(struct sc_store *store, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_io_file *file;
    struct spec_error error = {.struct_size = sizeof(error)};
    bool may_store = store->params.role == SC_STORE_WRITER || store->params.role == SC_STORE_HEIR;
    if (!may_store || store->members != NULL ||
        sc_io_dir_check(store->io, store->dir, NULL) != SPEC_OK)
        return SPEC_OK;
    (void)snprintf(path, sizeof(path), "%s/" MEMBERS_NAME, store->dir);
    spec_status status =
        sc_io_file_open(store->io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, &error);
    if (status != SPEC_OK)
        return error.sys_errno == EACCES ? sc_fail_errno(reterr, status, EACCES, "%s", error.text)
                                         : SPEC_OK;
    status = sc_io_file_join(store->io, file, SC_STORE_MEMBERS_MAX, &store->member_place, reterr);
    if (status == SPEC_OK) {
        store->members = file;
        return SPEC_OK;
    }
    sc_io_file_close(store->io, file);
    return status == SPEC_E_LOCKED ? status : SPEC_OK;
}

void sc_store_members_leave(struct sc_store *store)
{
    if (store->members != NULL)
        sc_io_file_close(store->io, store->members);
    store->members = NULL;
}

uint32_t sc_store_members_count(struct sc_store *store)
{
    return 1 + (store->members != NULL
                    ? sc_io_file_joined(store->io, store->members, SC_STORE_MEMBERS_MAX)
                    : 0);
}
