/* Records which threads wait for which word (sc_exec_wait), so that a test knows when another
 * thread has come as far as it can. Linked with --wrap=sc_exec_wait.
 *
 * Holds: a thread counts from before it looks at the word, for what it saw of it, to its return.
 * Threads: any. */
#ifndef SC_TESTS_UNIT_PLUGIN_WAITS_H
#define SC_TESTS_UNIT_PLUGIN_WAITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether a thread waits for the word now. The word is not read: it may be gone. */
bool somebody_waits(const _Atomic uint32_t *word);
/* Returns when a thread waits for the word; false: none did within a minute. */
bool await_waiter(const _Atomic uint32_t *word);
/* Returns when the word is not 0; false: it was 0 for a minute. */
bool await_word(const _Atomic uint32_t *word);

#endif
