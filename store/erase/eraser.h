/* eraser: overwrites erased data (eraser.c). Contract: store/erase.h.
 * Threads: close, when no step runs.
 * Tests: tests/unit/store/test_erase.c */
#ifndef SC_STORE_ERASE_ERASER_H
#define SC_STORE_ERASE_ERASER_H

struct sc_store;

/* Ends an erasure that is not complete; its intents stay. */
void sc_store_eraser_close(struct sc_store *store);

#endif
