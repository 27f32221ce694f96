/* fork_guard: a word that the kernel clears in a forked child, so a call detects a fork without a
 * system call.
 *
 * Threads: any. Tests: conformance (abi_003_*) */
#ifndef SC_BASE_FORK_GUARD_H
#define SC_BASE_FORK_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* Returns NULL if memory or the kernel's support is missing. */
uint32_t *sc_fork_guard_open(void);
void sc_fork_guard_close(uint32_t *guard); /* takes NULL */

static inline bool sc_fork_guard_is_child(const uint32_t *guard)
{
    return *(volatile const uint32_t *)guard == 0;
}

#endif
