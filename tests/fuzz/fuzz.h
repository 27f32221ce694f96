/* What a fuzz target and the program that replays its corpus agree on. A target is one file with
 * LLVMFuzzerTestOneInput; libFuzzer drives it in a build with SC_FUZZ, replay.c in every build.
 *
 * Holds: a corpus file named ok-* must be accepted, bad-* refused; others are inputs only.
 * Threads: one. */
#ifndef SC_TESTS_FUZZ_FUZZ_H
#define SC_TESTS_FUZZ_FUZZ_H

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns 0; writes fuzz_was_accepted. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The target's: whether the last input was accepted. */
extern int fuzz_was_accepted;

/* Ends the program when a promise is broken: libFuzzer then keeps the input. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Stores are opened and closed thousands of times: malloc keeps their memory instead of mapping it
 * anew, page fault by page fault. Before the first allocation. ASan's has no such setting. */
static inline void fuzz_keep_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

#endif
