/* path_owner: owners and modes. */
#include "base/path_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

spec_status sc_path_owner_check(const struct stat *about, const char *path,
                                struct spec_error *reterr)
{
    if (about->st_uid == geteuid() && (about->st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return SPEC_OK;
    return sc_fail_errno(reterr, SPEC_E_IO, EACCES,
                         "%s belongs to user %lu with mode %04o, expected user %lu and no writing "
                         "by others (store.allow_shared)",
                         path, (unsigned long)about->st_uid, (unsigned)about->st_mode & 07777u,
                         (unsigned long)geteuid());
}

spec_status sc_path_owner_check_directory(const char *path, struct spec_error *reterr)
{
    struct stat about;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return SPEC_OK;
    if (fd < 0 || fstat(fd, &about) != 0) {
        int why = errno;
        if (fd >= 0)
            (void)close(fd);
        return sc_fail_errno(reterr, SPEC_E_IO, why, "look at directory %s", path);
    }
    (void)close(fd);
    return sc_path_owner_check(&about, path, reterr);
}
