/* fork_guard: a page with MADV_WIPEONFORK. */
#include "base/fork_guard.h"

#include <stddef.h>
#include <sys/mman.h>

#define GUARD_BYTES 4096u /* a page of its own */

uint32_t *sc_fork_guard_open(void)
{
    void *page =
        mmap(NULL, GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, GUARD_BYTES, MADV_WIPEONFORK) != 0) {
        munmap(page, GUARD_BYTES);
        return NULL;
    }
    uint32_t *guard = page;
    *guard = 1;
    return guard;
}

void sc_fork_guard_close(uint32_t *guard)
{
    if (guard != NULL)
        munmap(guard, GUARD_BYTES);
}
