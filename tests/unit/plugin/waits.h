/* Who waits for a word (sc_exec_wait): a test that holds something until another thread has come as
 * far as it gets knows by this that it has. Linked with --wrap=sc_exec_wait.
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
