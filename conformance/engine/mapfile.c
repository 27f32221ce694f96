/* mapfile: read-only file maps. See mapfile.h. */
#include "conformance/engine/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

eng_status eng_mapfile_open(const char *path, struct eng_mapfile *ret_map, struct eng_error *reterr)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return eng_fail(reterr, ENG_E_SYSTEM, "%s: cannot open: %s", path, strerror(errno));
    struct stat info;
    eng_status status = ENG_OK;
    if (fstat(fd, &info) != 0) {
        status = eng_fail(reterr, ENG_E_SYSTEM, "%s: cannot stat: %s", path, strerror(errno));
        goto close_fd;
    }
    if (!S_ISREG(info.st_mode)) {
        status = eng_fail(reterr, ENG_E_INPUT, "%s: not a regular file", path);
        goto close_fd;
    }
    if (info.st_size <= 0) {
        status = eng_fail(reterr, ENG_E_INPUT, "%s: the file is empty", path);
        goto close_fd;
    }
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        status = eng_fail(reterr, ENG_E_SYSTEM, "%s: cannot map: %s", path, strerror(errno));
        goto close_fd;
    }
    ret_map->data = data;
    ret_map->bytes = (uint64_t)info.st_size;
close_fd:
    (void)close(fd);
    return status;
}

void eng_mapfile_close(struct eng_mapfile *map)
{
    if (map->data != NULL)
        (void)munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    map->data = NULL;
    map->bytes = 0;
}
