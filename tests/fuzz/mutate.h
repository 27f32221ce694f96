/* Logs for the targets that fuzz one: made whole from a seed, as a writer could have left them, and
 * bent field by field, of every type of record. The target frames payloads with honest checksums,
 * so what is bent is what the checks behind them meet.
 *
 *   input   [head][payload] [head][payload] ...     a head: 2 bytes, the payload's size, or 3 with
 *                                                    what to do with it in front (fuzz_follow.c)
 *   make    head record, namespaces, extents with pieces, with ids left free behind them and with
 *           ids that were, annexes, editions, averages, drops, epochs, rows gone
 *   bend    an integer (nested ones too), a byte, the length of a string, keys; or whole records:
 *           left out, doubled, exchanged, brought from elsewhere in the log
 *
 * Holds: the same seed gives the same log; what is not bent fits what stands before it.
 * Threads: one.
 * Tests: tests/fuzz/fuzz_log.c, fuzz_follow.c, fuzz_objects.c; tests/fuzz/seeds.c */
#ifndef SC_TESTS_FUZZ_MUTATE_H
#define SC_TESTS_FUZZ_MUTATE_H

#include "store/store.h"

struct fuzz_form {
    const struct sc_store_namespace *space; /* whose pieces are told of; of 2 layers */
    uint32_t head_bytes;                    /* 2, or 3 */
    /* NULL: logs of rows, as said above. */
    size_t (*make)(uint64_t seed, uint8_t *bytes, size_t room);
};

/* The target's. */
const struct fuzz_form *fuzz_form(void);

/* Both return bytes, at most `room`. */
size_t fuzz_log_make(const struct fuzz_form *form, uint64_t seed, uint8_t *bytes, size_t room);
size_t fuzz_log_bend(const struct fuzz_form *form, uint64_t seed, uint8_t *bytes, size_t count,
                     size_t room);

#endif
