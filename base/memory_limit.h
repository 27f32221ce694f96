/* How much memory this process may use: of the machine, of its control groups, of its own limits.
 *
 *   min(physical memory, memory.max (v2) or memory.limit_in_bytes (v1) of its group and of every
 *       group above it, RLIMIT_AS, RLIMIT_DATA)
 *
 * Holds: what cannot be read limits nothing; inside a container whose groups' paths are the host's,
 * the groups that it sees count.
 * Does not: look at what is free now: it changes, and whoever asks at open has to live with it.
 * Threads: any; blocks on the file system.
 * Tests: tests/unit/base/test_memory.c */
#ifndef SC_BASE_MEMORY_LIMIT_H
#define SC_BASE_MEMORY_LIMIT_H

#include <stdint.h>

/* Bytes, > 0. */
uint64_t sc_memory_limit(void);

/* The groups' part of it, for a /proc/self/cgroup and a /sys/fs/cgroup that stand elsewhere.
 * UINT64_MAX: no limit. */
uint64_t sc_memory_limit_of_groups(const char *groups_file, const char *root);

#endif
