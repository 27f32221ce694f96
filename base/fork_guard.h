/* A word that the kernel clears in a forked child, so that a call can tell without a system call
 * that it runs in one.
 *
 * Threads: any. Tests: conformance (abi_003_*) */
#ifndef SC_BASE_FORK_GUARD_H
#define SC_BASE_FORK_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* NULL: no memory, or the kernel cannot. */
uint32_t *sc_fork_guard_open(void);
void sc_fork_guard_close(uint32_t *guard); /* takes NULL */

static inline bool sc_fork_guard_is_child(const uint32_t *guard)
{
    return *(volatile const uint32_t *)guard == 0;
}

#endif
