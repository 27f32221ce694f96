/* Loaded before libc (LD_PRELOAD), so that the plugin's disk fails: the file named by
 * SPEC_BROKEN_IO says how, while it is there. "stall": reads of segments wait until it is gone;
 * "full": writes and reservations end with ENOSPC; "eio": reads of segments end with EIO; "slow":
 * reads of segments take as long as on a device that serves one after the other, at SPEC_SLOW_IO
 * bytes a second.
 *
 * Holds: without that file everything goes to libc as it came.
 * Does not: see io_uring (the test's plugin is told to use pread).
 * Threads: any.
 * Tests: integrations/vllm/run faults, cost */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
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

/* Until a device that began when it was free would have read so much. */
static void take_time(size_t bytes)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t free_ns;
    const char *rate = getenv("SPEC_SLOW_IO");
    uint64_t bytes_per_s = rate == NULL ? 1000000 : strtoull(rate, NULL, 10);
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    (void)pthread_mutex_lock(&lock);
    free_ns = (free_ns > now_ns ? free_ns : now_ns) + bytes * 1000000000 / bytes_per_s;
    uint64_t end_ns = free_ns;
    (void)pthread_mutex_unlock(&lock);
    struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000),
                           .tv_nsec = (long)(end_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        continue;
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
        if (now("slow"))
            take_time(bytes);
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
