/* memory_limit: how much memory this process may use.
 *
 *   min(physical memory, memory.max (v2) or memory.limit_in_bytes (v1) of its control group and of
 *       every group above it, RLIMIT_AS, RLIMIT_DATA)
 *
 * A value that cannot be read limits nothing. In a container, the visible groups count. Free memory
 * is not considered, because it changes.
 * Threads: any; blocks on the file system. Tests: tests/unit/base/test_memory.c */
#ifndef SC_BASE_MEMORY_LIMIT_H
#define SC_BASE_MEMORY_LIMIT_H

#include <stdint.h>

/* Bytes, > 0. */
uint64_t sc_memory_limit(void);

/* Returns the groups' part, from files like /proc/self/cgroup and /sys/fs/cgroup. UINT64_MAX: no
 * limit. */
uint64_t sc_memory_limit_of_groups(const char *groups_file, const char *root);

#endif
