/* Records which threads wait for which word.
 *
 * Holds, Threads: tests/unit/plugin/waits.h. */
#include "tests/unit/plugin/waits.h"

#include "base/exec.h"

#include <pthread.h>
#include <unistd.h>

#define WAITERS    64u    /* at a time; others are not seen */
#define LOOK_US    1000u  /* between two looks */
#define LOOKS_MOST 60000u /* so many find nobody only where nobody comes */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const _Atomic uint32_t *waited_for[WAITERS]; /* lock held; NULL: free */

bool __real_sc_exec_wait(struct sc_exec *exec, _Atomic uint32_t *word, uint32_t old,
                         uint64_t deadline_ns);
bool __wrap_sc_exec_wait(struct sc_exec *exec, _Atomic uint32_t *word, uint32_t old,
                         uint64_t deadline_ns);
bool __wrap_sc_exec_wait(struct sc_exec *exec, _Atomic uint32_t *word, uint32_t old,
                         uint64_t deadline_ns)
{
    uint32_t place = 0;
    pthread_mutex_lock(&lock);
    while (place < WAITERS && waited_for[place] != NULL)
        place++;
    if (place < WAITERS)
        waited_for[place] = word;
    pthread_mutex_unlock(&lock);
    bool changed = __real_sc_exec_wait(exec, word, old, deadline_ns);
    pthread_mutex_lock(&lock);
    if (place < WAITERS)
        waited_for[place] = NULL;
    pthread_mutex_unlock(&lock);
    return changed;
}

bool somebody_waits(const _Atomic uint32_t *word)
{
    bool waits = false;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < WAITERS; i++)
        waits = waits || waited_for[i] == word;
    pthread_mutex_unlock(&lock);
    return waits;
}

bool await_word(const _Atomic uint32_t *word)
{
    for (uint32_t look = 0; look < LOOKS_MOST && atomic_load(word) == 0; look++)
        usleep(LOOK_US);
    return atomic_load(word) != 0;
}

bool await_waiter(const _Atomic uint32_t *word)
{
    bool waits = somebody_waits(word);
    for (uint32_t look = 0; look < LOOKS_MOST && !waits; look++) {
        usleep(LOOK_US);
        waits = somebody_waits(word);
    }
    return waits;
}
