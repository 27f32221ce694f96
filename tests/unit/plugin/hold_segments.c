/* For LD_PRELOAD: a program's first look into a segment of a store waits until a file is there, and
 * says so by another: HOLD_SEGMENTS.go, HOLD_SEGMENTS.held. What it reads before, logs, is old
 * then.
 *
 * Threads: any. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("default"))) int open(const char *path, int flags, ...);
__attribute__((visibility("default"))) int open64(const char *path, int flags, ...);

static void hold(void)
{
    char held[4096], go[4096];
    const char *name = getenv("HOLD_SEGMENTS");
    if (name == NULL)
        return;
    (void)snprintf(held, sizeof(held), "%s.held", name);
    (void)snprintf(go, sizeof(go), "%s.go", name);
    close(creat(held, 0600));
    pid_t test = getppid(); /* whose end would leave us here */
    while (access(go, F_OK) != 0 && getppid() == test)
        usleep(1000);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    if (strstr(path, "/seg-") != NULL)
        hold();
    return next(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    return open(path, flags, mode);
}
