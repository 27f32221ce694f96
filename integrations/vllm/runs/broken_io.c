/* Loaded before libc (LD_PRELOAD), so that the plugin's disk fails: the file named by
 * SPEC_BROKEN_IO says how, while it is there. "stall": reads of segments wait until it is gone;
 * "full": writes and reservations end with ENOSPC; "eio": reads of segments end with EIO.
 *
 * Holds: without that file everything goes to libc as it came.
 * Does not: see io_uring (the test's plugin is told to use pread).
 * Threads: any.
 * Tests: integrations/vllm/run faults */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static bool now(const char *mode)
{
    const char *path = getenv("SPEC_BROKEN_IO");
    char text[16] = "";
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    if (file == NULL)
        return false;
    size_t count = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    return count == strlen(mode) && memcmp(text, mode, count) == 0;
}

static bool is_segment(int fd)
{
    char link[64], path[512];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t count = readlink(link, path, sizeof(path) - 1);
    path[count < 0 ? 0 : count] = '\0';
    return strstr(path, "/seg-") != NULL;
}

ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t) =
        (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    if (is_segment(fd)) {
        while (now("stall"))
            (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (now("eio")) {
            errno = EIO;
            return -1;
        }
    }
    return real(fd, buffer, bytes, offset);
}

ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    if (is_segment(fd) && now("full")) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, buffer, bytes, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    int (*real)(int, int, off_t, off_t) =
        (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate");
    if (now("full")) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, mode, offset, bytes);
}
