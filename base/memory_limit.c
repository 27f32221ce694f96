/* memory_limit: reads control groups and resource limits. */
#include "base/memory_limit.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PATH_BYTES 4608u
#define LINE_BYTES 4352u

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the number at a file's beginning; UINT64_MAX: none ("max", absent). */
static uint64_t number_in(const char *path)
{
    uint64_t number = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return UINT64_MAX;
    if (fscanf(file, "%" SCNu64, &number) != 1)
        number = UINT64_MAX;
    (void)fclose(file);
    return number;
}

/* Returns the least value of root/group/name and the same file of every group above; cuts group. */
static uint64_t limit_upwards(const char *root, char *group, const char *name)
{
    char path[PATH_BYTES];
    uint64_t limit = UINT64_MAX;
    for (;;) {
        int bytes = snprintf(path, sizeof(path), "%s%s/%s", root, group, name);
        if (bytes > 0 && (uint64_t)bytes < sizeof(path))
            limit = least(limit, number_in(path));
        char *last = strrchr(group, '/');
        if (last == NULL)
            return limit;
        *last = '\0';
    }
}

/* Returns true if the list, as "cpu,memory", has the memory controller. */
static bool is_memory(const char *controllers, uint64_t bytes)
{
    static const char name[] = "memory";
    for (uint64_t at = 0; at <= bytes;) {
        const char *comma = memchr(controllers + at, ',', bytes - at);
        uint64_t end = comma != NULL ? (uint64_t)(comma - controllers) : bytes;
        if (end - at == sizeof(name) - 1 && memcmp(controllers + at, name, end - at) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

/* Returns the limit of a line "4:cpu,memory:/group" (v1) or "0::/group" (v2). */
static uint64_t limit_of_line(char *line, const char *root)
{
    char v1[PATH_BYTES];
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL)
        return UINT64_MAX;
    controllers++;
    group++;
    if (controllers + 1 == group)
        return limit_upwards(root, group, "memory.max");
    int bytes = snprintf(v1, sizeof(v1), "%s/memory", root);
    if (!is_memory(controllers, (uint64_t)(group - 1 - controllers)) || bytes < 0 ||
        (uint64_t)bytes >= sizeof(v1))
        return UINT64_MAX;
    return limit_upwards(v1, group, "memory.limit_in_bytes");
}

uint64_t sc_memory_limit_of_groups(const char *groups_file, const char *root)
{
    char line[LINE_BYTES];
    uint64_t limit = UINT64_MAX;
    FILE *file = fopen(groups_file, "re");
    if (file == NULL)
        return UINT64_MAX;
    while (fgets(line, sizeof(line), file) != NULL)
        limit = least(limit, limit_of_line(line, root));
    (void)fclose(file);
    return limit;
}

static uint64_t limit_of_process(int resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

uint64_t sc_memory_limit(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t limit = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
    limit = least(limit, sc_memory_limit_of_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
    limit = least(limit, limit_of_process(RLIMIT_AS));
    return least(limit, limit_of_process(RLIMIT_DATA));
}
